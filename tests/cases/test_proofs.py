"""What rules take for a proof, rule by rule: logs that meet a premise, and in which something else happened."""

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from jobs.bronze.retention import deleted_ranges
from jobs.operations.maintain import maintain
from jobs.operations.nightly import run_audit
from jobs.queries.answers.audit_report import Span, completeness
from jobs.queries.as_of.as_of import GROUPS_LOG
from schemas.consumer_offsets import RecordType
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from tests.cases.client_logs import Client, Generation, batches_of
from tests.cases.harness import Ledger
from tests.cases.judged import Judged
from tests.cases.small_logs import NOON_MS, SmallLog, subscription
from tests.cases.test_certain import (
    MINUTE_MS,
    REMOVED,
    REMOVED_MS,
    deleted,
    group_epoch,
    last_rebalance,
    with_gap,
)
from tests.cases.test_lag_of_topics_made_again import sampled
from tests.cases.test_share_holes import limits
from tests.cases.test_times import gold
from tests.coordinator_core.group_records import T1
from tests.jobs.in_process import in_process

HOUR_MS = 3_600_000
LATER = datetime(2030, 1, 1, tzinfo=UTC)
SECOND_MS = 1_000
Anomaly = tuple[str, str, str, bool | None]


def odd_commits(ledger: Ledger | Judged) -> list[Anomaly]:
    """Kind, method and confidence of commit anomalies, and whether the group was empty."""
    rows = sorted(ledger.rows("gold.commit_anomalies"), key=lambda row: int(row["log_offset"]))
    return [(row["kind"], row["method"], row["confidence"], row["was_group_empty"]) for row in rows]


def test_an_offset_behind_a_gap_may_have_gone_back_before(judged: Judged) -> None:
    """100, then 20 that nobody saw, then 50: the last one went ahead."""
    first, second = SmallLog(), SmallLog()
    first.commit("g", 0, 100, NOON_MS)
    second.skip(40)
    second.commit("g", 0, 50, NOON_MS + MINUTE_MS)
    second.commit("g", 0, 40, NOON_MS + 2 * MINUTE_MS)
    with_gap(judged, first, second)
    assert [confidence for _, _, confidence, _ in odd_commits(judged)] == ["LIKELY", "CERTAIN"]


def test_an_offset_whose_successors_were_compacted_between_two_nights(judged: Judged) -> None:
    """The first night read 100; 20 and perhaps a tombstone came, and compaction left only 50 of them."""
    log = SmallLog()
    log.commit("g", 0, 100, NOON_MS)
    judged.night(log.batches)
    log.skip(2)
    log.commit("g", 0, 50, NOON_MS + MINUTE_MS)
    log.commit("g", 0, 40, NOON_MS + 2 * MINUTE_MS)
    judged.night(log.batches)
    assert [confidence for _, _, confidence, _ in odd_commits(judged)] == ["LIKELY", "CERTAIN"]


def test_the_owner_in_a_generation_that_was_compacted_between_two_nights(judged: Judged) -> None:
    """Generation 2, of another member, was replaced before anybody read it: its commits are not of the owner of
    generation 1. Before the hole, and in generation 3, the owner is known."""
    log = SmallLog()
    log.generation("g", 1, {"m": (0,)}, NOON_MS)
    log.commit("g", 0, 100, NOON_MS + SECOND_MS)
    log.commit("g", 0, 60, NOON_MS + 2 * SECOND_MS)
    judged.night(log.batches)
    log.skip(1)
    log.commit("g", 0, 50, NOON_MS + MINUTE_MS)
    log.commit("g", 0, 40, NOON_MS + 2 * MINUTE_MS)
    log.generation("g", 3, {"m": (0,)}, NOON_MS + 3 * MINUTE_MS)
    log.commit("g", 0, 30, NOON_MS + 4 * MINUTE_MS)
    judged.night(log.batches)
    rows = sorted(judged.rows("gold.commit_anomalies"), key=lambda row: int(row["log_offset"]))
    assert [(row["confidence"], row["owner_member_id"], row["was_group_empty"]) for row in rows] == [
        ("CERTAIN", "m", False),
        ("LIKELY", None, None),
        ("CERTAIN", None, None),
        ("CERTAIN", "m", False),
    ]


def test_whether_a_group_had_members_behind_a_gap_is_not_known(judged: Judged) -> None:
    """All members left, and a tool set the offset: nobody who owned nothing committed. Nor was a group empty to which
    members may have come."""
    first, second = SmallLog(), SmallLog()
    first.generation("g", 1, {"m": (0,)}, NOON_MS)
    first.commit("g", 1, 100, NOON_MS + 1_000)
    first.generation("h", 1, {"m": (0,)}, NOON_MS)
    first.commit("h", 0, 100, NOON_MS + 1_000)
    first.generation("h", 2, {}, NOON_MS + 2_000)
    first.generation("owned", 1, {"m": (0,)}, NOON_MS + 2_000)
    first.commit("owned", 0, 100, NOON_MS + 2_000)
    second.skip(40)
    second.commit("g", 1, 50, NOON_MS + MINUTE_MS)
    second.commit("h", 0, 50, NOON_MS + MINUTE_MS)
    second.commit("owned", 0, 50, NOON_MS + MINUTE_MS)
    with_gap(judged, first, second)
    assert odd_commits(judged) == [
        ("REWIND", "OFFSET_WENT_BACK", "LIKELY", None),
        ("EMPTY_GROUP_RESET", "COMMIT_TO_EMPTY_GROUP", "LIKELY", None),
        ("REWIND", "OFFSET_WENT_BACK", "LIKELY", None),
    ]
    assert {row["owner_member_id"] for row in judged.rows("gold.commit_anomalies")} == {None}


def test_an_offset_whose_successor_is_of_its_transaction(judged: Judged) -> None:
    """A commit of 100 is there, one of 50 is missing, and the marker of both is there: nobody knows the offset that
    was in force when it was deleted, or whether 70 is less. That of a transaction that ended before the missing part is
    known. And 100 in a transaction behind it may have been followed by the end of another one, which began there."""
    first, second = SmallLog(), SmallLog()
    first.commit("known", 0, 7, NOON_MS, producer_id=8)
    first.marker(NOON_MS, 8)
    first.commit("known", 0, None, NOON_MS + SECOND_MS)
    first.commit("g", 0, 100, NOON_MS, producer_id=7)
    second.next_offset = first.next_offset + 1
    second.commit("behind", 0, 100, NOON_MS + MINUTE_MS, producer_id=9)
    for producer_id in (7, 9, 10):
        second.marker(NOON_MS + MINUTE_MS, producer_id)
    second.commit("g", 0, None, NOON_MS + 2 * MINUTE_MS)
    second.commit("behind", 0, 70, NOON_MS + 2 * MINUTE_MS)
    second.commit("behind", 0, 60, NOON_MS + 2 * MINUTE_MS)
    with_gap(judged, first, second)
    rows = sorted(judged.rows("gold.commit_anomalies"), key=lambda row: int(row["log_offset"]))
    assert [(row["group_id"], row["kind"], row["from_offset"], row["confidence"]) for row in rows] == [
        ("known", "DELETED", 7, "CERTAIN"),
        ("g", "DELETED", None, "CERTAIN"),
        ("behind", "REWIND", 100, "LIKELY"),
        ("behind", "REWIND", 70, "CERTAIN"),
    ]


@pytest.mark.parametrize(("missing", "was_empty"), [(0, True), (40, None)])
def test_whether_a_group_has_members_whose_records_are_before_the_log_begins(
    judged: Judged, missing: int, was_empty: bool | None
) -> None:
    """Its commits are all that is left of it: it had members, or it never had any."""
    log = SmallLog()
    log.skip(missing)
    log.commit("g", 0, 100, NOON_MS)
    log.commit("g", 0, 50, NOON_MS + SECOND_MS)
    judged.night(log.batches, from_offset=missing)
    assert odd_commits(judged) == [("REWIND", "OFFSET_WENT_BACK", "CERTAIN", was_empty)]


def test_whether_a_partition_had_an_owner_in_a_gap_is_not_known(judged: Judged) -> None:
    """Another member may have come and gone in what is missing: nobody knows how long nobody owned the partition."""
    first, second = SmallLog(), SmallLog()
    first.generation("g", 1, {"m": (0, 1)}, NOON_MS)
    first.generation("g", 2, {"m": (0,)}, NOON_MS + MINUTE_MS)
    second.skip(40)
    second.generation("g", 5, {"m": (0, 1)}, NOON_MS + 10 * MINUTE_MS)
    second.generation("g", 6, {"m": (0,)}, NOON_MS + 11 * MINUTE_MS)
    second.generation("g", 7, {"m": (0, 1)}, NOON_MS + 13 * MINUTE_MS)
    with_gap(judged, first, second)
    rows = sorted(judged.rows("gold.partition_owners"), key=lambda row: int(row["from_log_offset"]))
    assert [row["gap_before_ms"] for row in rows if row["partition"] == 1] == [None, None, 2 * MINUTE_MS]


def test_a_partition_whose_owner_cannot_be_read(judged: Judged) -> None:
    """A member has an assignment that nobody can read: the partition may be in it, so the commit may be its owner's."""
    more = SmallLog()
    more.batches = batches_of("g", [Generation(1, {"m": Client(subscription("in"), b"?")}, 0)])
    more.skip(1)
    for offset, at_ms in ((100, NOON_MS + 1_000), (50, NOON_MS + 2_000)):
        more.commit("g", 0, offset, at_ms)
    judged.night(more.batches)
    assert odd_commits(judged) == [("REWIND", "OFFSET_WENT_BACK", "CERTAIN", False)]


@pytest.mark.parametrize(("missing", "is_given_up"), [(0, True), (3, False)])
def test_what_a_start_offset_passed_behind_a_gap(
    ledger: Ledger, tmp_path: Path, missing: int, is_given_up: bool
) -> None:
    """That records were acknowledged may be in what is missing: they are not given up."""
    log = SmallLog(0, SHARE_TOPIC)
    log.snapshot("share", NOON_MS, ((0, 9, 0, 1),), snapshot_epoch=0)
    log.skip(missing)
    log.snapshot("share", NOON_MS + MINUTE_MS, ((105, 106, 0, 1),), snapshot_epoch=1, start_offset=100)
    ledger.night(log.write(tmp_path / "logs"))
    assert bool(ledger.rows("gold.archived_records")) == is_given_up


def test_a_broken_rule_behind_a_gap(judged: Judged) -> None:
    """Groups were deleted, which nobody saw, and made again: no coordinator broke a rule by that. One whose generation
    falls behind it broke one, but not for certain."""
    first, second = SmallLog(), SmallLog()
    first.generation("g", 7, {"m": (0,)}, NOON_MS)
    first.commit("g", 0, 5, NOON_MS)
    second.skip(40)
    second.generation("g", 1, {"m": (0,)}, NOON_MS + MINUTE_MS)
    second.generation("behind", 7, {"m": (0,)}, NOON_MS + 2 * MINUTE_MS)
    second.generation("behind", 6, {"m": (0,)}, NOON_MS + 3 * MINUTE_MS)
    second.group_record(RecordType.GROUP_METADATA, {"group": "g"}, None, NOON_MS + 4 * MINUTE_MS)
    with_gap(judged, first, second)
    found = [(row["group_id"], row["rule"], row["confidence"]) for row in judged.rows("gold.log_anomalies")]
    assert found == [("behind", "GENERATION_FELL", "LIKELY")]


def test_an_emptied_group_whose_next_life_was_compacted_between_two_nights(tmp_path: Path) -> None:
    """The first night read that the group was empty. It was deleted, made again, and had the same generation when it
    was empty again: of that compaction left the last record. So the commits between may be of members. One night that
    reads both copies says the same."""
    nights, at_once, before, log = Ledger(tmp_path / "nights"), Ledger(tmp_path / "once"), SmallLog(), SmallLog()
    for it in (before, log):
        it.commit("kept", 0, 1, NOON_MS)
    before.generation("g", 1, {"m": (0,)}, NOON_MS)
    before.commit("g", 0, 5, NOON_MS + 1_000)
    before.generation("g", 2, {}, NOON_MS + 2_000)
    log.skip(40)
    log.commit("g", 0, 9, NOON_MS + MINUTE_MS, producer_id=7)
    log.marker(NOON_MS + MINUTE_MS, 7, is_commit=False)
    log.commit("g", 0, 9, NOON_MS + 2 * MINUTE_MS)
    log.generation("g", 2, {}, NOON_MS + 3 * MINUTE_MS)
    nights.night(before.write(tmp_path / "before"), number=1)
    nights.night(log.write(tmp_path / "after"), number=2)
    assert {row["kind"] for row in nights.rows("bronze.coverage")} == {"CAPTURED", "COMPACTED"}
    found = {
        row["kind"]: (row["from_offset"], row["confidence"])
        for row in nights.rows("gold.commit_anomalies")
        if row["group_id"] == "g"
    }
    assert found == {"ABORTED": (None, "CERTAIN"), "EMPTY_GROUP_RESET": (5, "LIKELY")}
    at_once.night(tmp_path / "after", tmp_path / "before")
    assert gold(at_once) == gold(nights)


def owning(
    log: SmallLog, member_id: str, epoch: int, partitions: tuple[int, ...], at_ms: int, group_id: str = "g"
) -> None:
    """A member of a consumer group, and what it is assigned."""
    key = {"group_id": group_id, "member_id": member_id}
    log.group_record(RecordType.CONSUMER_GROUP_MEMBER_METADATA, key, {"client_id": member_id}, at_ms)
    log.group_record(RecordType.CONSUMER_GROUP_METADATA, {"group_id": group_id}, {"epoch": epoch}, at_ms)
    assigned = ({"topic_id": T1, "partitions": partitions},) if partitions else ()
    value = {"member_epoch": epoch, "previous_member_epoch": epoch - 1, "assigned_partitions": assigned}
    log.group_record(RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, key, value, at_ms)


@pytest.mark.parametrize(("cleaned", "goes_on"), [(0, True), (3, True), (3, False)])
def test_an_owner_whose_revocation_was_compacted_between_two_nights(
    judged: Judged, cleaned: int, goes_on: bool
) -> None:
    """KAFKA-19862: of `a` the first night read that it owns the partition, and the second one only what it did after
    another member had got it. Both did not own it at a time, and no coordinator broke a rule; where no record is
    missing, one did."""
    log = SmallLog()
    owning(log, "a", 2, (0,), NOON_MS)
    judged.night(log.batches)
    log.skip(cleaned)
    owning(log, "b", 4, (0,), NOON_MS + MINUTE_MS)
    if goes_on:
        owning(log, "a", 5, (), NOON_MS + 2 * MINUTE_MS)
    judged.night(log.batches)
    first, second = sorted(judged.rows("gold.partition_owners"), key=lambda row: int(row["from_log_offset"]))
    assert (first["is_double"], second["is_double"]) == (not cleaned, not cleaned)
    assert (first["to_log_offset"] == second["from_log_offset"]) == bool(cleaned)
    assert second["gap_before_ms"] is None
    rules = [(row["rule"], row["confidence"]) for row in judged.rows("gold.log_anomalies")]
    assert rules == ([] if cleaned else [("DOUBLE_OWNER", "CERTAIN")])


@pytest.mark.parametrize(("missing", "expected"), [(0, "CERTAIN"), (3, None)])
def test_epochs_of_a_share_partition_that_fell_behind_a_gap(
    ledger: Ledger, tmp_path: Path, missing: int, expected: str | None
) -> None:
    """Its deletion may be in what is missing, and is the better explanation than a broken rule."""
    log = SmallLog(0, SHARE_TOPIC)
    log.snapshot("share", NOON_MS, ((0, 9, 0, 1),), snapshot_epoch=9, start_offset=3)
    log.skip(missing)
    log.snapshot("share", NOON_MS + MINUTE_MS, ((2, 4, 0, 1),), snapshot_epoch=1, start_offset=2)
    ledger.night(log.write(tmp_path / "logs"))
    found = {(row["rule"], row["confidence"]) for row in ledger.rows("gold.log_anomalies")}
    rules = ("SNAPSHOT_EPOCH_FELL", "START_OFFSET_WENT_BACK")
    assert found == {(rule, expected) for rule in rules if expected is not None}


@pytest.mark.parametrize("missing", [0, 30])
def test_tombstones_that_are_missing_in_a_gap(judged: Judged, missing: int) -> None:
    """A group of two members is deleted, and only its last tombstones are there: no rule is broken where the others
    may be in a missing part of the log."""
    first, second = SmallLog(), SmallLog()
    for member_id in ("a", "b"):
        owning(first, member_id, 2, (), NOON_MS)
    second.next_offset = first.next_offset + missing
    second.group_record(RecordType.CONSUMER_GROUP_METADATA, {"group_id": "g"}, None, NOON_MS + MINUTE_MS)
    judged.night(first.batches)
    judged.night(second.batches, from_offset=first.next_offset + missing)
    rules = [row["rule"] for row in judged.rows("gold.log_anomalies")]
    assert rules == ([] if missing else ["GROUP_TOMBSTONE_TOO_EARLY"])


@pytest.mark.parametrize(("hole", "confidence"), [("nowhere", "CERTAIN"), ("before", "LIKELY"), ("between", None)])
def test_tombstones_that_compaction_took_between_two_nights(judged: Judged, hole: str, confidence: str | None) -> None:
    """What the first night read was deleted before the second one, and compaction took the tombstones: no rule is
    broken. One is where no record is missing behind what was read (KAFKA-21102, KAFKA-21117)."""
    log = SmallLog()
    log.skip(4 * (hole == "before"))
    log.generation("GROUP_TYPE_MISMATCH", 1, {"a": (0,)}, NOON_MS)
    last = {
        "GROUP_TYPE_MISMATCH": RecordType.CONSUMER_GROUP_METADATA,
        "GROUP_TOMBSTONE_TOO_EARLY": RecordType.CONSUMER_GROUP_METADATA,
        "MEMBER_TOMBSTONE_TOO_EARLY": RecordType.CONSUMER_GROUP_MEMBER_METADATA,
        "TARGET_TOMBSTONE_TOO_EARLY": RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
    }
    for rule in [*last][1:]:
        owning(log, "a", 2, (0,), NOON_MS, rule)
        key = {"group_id": rule, "member_id": "a"}
        target = {"topic_partitions": ({"topic_id": T1, "partitions": (0,)},)}
        log.group_record(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, key, target, NOON_MS)
    judged.night(log.batches)
    log.skip(4 * (hole == "between"))
    for rule, record_type in last.items():
        key = {"group_id": rule} | ({"member_id": "a"} if rule.startswith("MEMBER") else {})
        log.group_record(record_type, key, None, NOON_MS + MINUTE_MS)
    judged.night(log.batches)
    found = {(row["group_id"], row["rule"], row["confidence"]) for row in judged.rows("gold.log_anomalies")}
    assert found == (set() if confidence is None else {(rule, rule, confidence) for rule in last})


@pytest.mark.parametrize(("cleaned", "confidence"), [(0, "CERTAIN"), (4, "LIKELY")])
def test_a_member_whose_assignment_and_its_tombstone_are_gone(judged: Judged, cleaned: int, confidence: str) -> None:
    """KAFKA-21102: a cleaned log has a member and its tombstone, and between them nothing of its assignment. Kafka's
    loader throws at this log."""
    log, member = SmallLog(), {"group_id": "g", "member_id": "a"}
    log.group_record(RecordType.CONSUMER_GROUP_MEMBER_METADATA, member, {"client_id": "a"}, NOON_MS)
    log.skip(cleaned)
    log.group_record(RecordType.CONSUMER_GROUP_METADATA, {"group_id": "g"}, {"epoch": 3}, NOON_MS + MINUTE_MS)
    log.group_record(RecordType.CONSUMER_GROUP_MEMBER_METADATA, member, None, NOON_MS + MINUTE_MS)
    judged.night(log.batches)
    found = [(row["rule"], row["confidence"]) for row in judged.rows("gold.log_anomalies")]
    assert found == [("MEMBER_TOMBSTONE_TOO_EARLY", confidence)]


@pytest.mark.parametrize(("magic", "confidence"), [(2, "CERTAIN"), (1, "LIKELY")])
def test_records_without_a_leader_epoch(judged: Judged, magic: int, confidence: str) -> None:
    """Message formats before 2 do not show that another leader, with another clock, wrote the second generation."""
    log = SmallLog()
    log.generation("g", 1, {"a": (0,), "b": (1,)}, NOON_MS, magic=magic)
    log.generation("g", 2, {"a": (0, 1)}, NOON_MS + 20_000, magic=magic)
    judged.night(log.batches)
    assert last_rebalance(judged) == ("MEMBER_LEFT", confidence)


@pytest.mark.parametrize("nights", [1, 2])
def test_a_leader_that_writes_an_older_format_again(judged: Judged, nights: int) -> None:
    """With a lowered log.message.format.version the second generation has no epoch, behind records that have one; a
    later epoch shows who wrote the third and the fourth."""
    log = SmallLog()
    log.generation("g", 1, {"a": (0,), "b": (1,)}, NOON_MS)
    log.generation("g", 2, {"a": (0, 1)}, NOON_MS + 20_000, magic=1)
    if nights == 2:
        judged.night(log.batches)
    log.leader_epoch = 1
    log.generation("g", 3, {"a": (0,), "b": (1,)}, NOON_MS + 30_000)
    log.generation("g", 4, {"a": (0, 1)}, NOON_MS + 40_000)
    judged.night(log.batches)
    rows = sorted(judged.rows("gold.rebalances"), key=lambda row: int(row["to_generation"]))
    assert [(row["cause"], row["confidence"]) for row in rows if row["to_generation"] in (2, 4)] == [
        ("MEMBER_LEFT", "LIKELY"),
        ("MEMBER_LEFT", "CERTAIN"),
    ]


def test_a_group_that_is_deleted_just_after_its_topic(judged: Judged) -> None:
    """Its deletion may come before the coordinator knows of the topic's: both write these records."""
    log = SmallLog()
    log.generation("g", 1, {"m": (0,)}, NOON_MS)
    log.commit("g", 0, 5, NOON_MS + 1_000)
    log.generation("g", 2, {}, NOON_MS + 2_000)
    log.commit("g", 0, None, REMOVED_MS + 5)
    log.group_record(RecordType.GROUP_METADATA, {"group": "g"}, None, REMOVED_MS + 5)
    judged.removed = REMOVED
    judged.night(log.batches)
    assert deleted(judged) == [("TOPIC_DELETED", "LIKELY")]


@pytest.mark.parametrize("is_known", [False, True])
def test_an_offset_that_may_have_been_committed_after_its_topic_was_removed(judged: Judged, is_known: bool) -> None:
    """The topic was created again at once, and the group's deletion took what was committed to it, which nobody
    saw."""
    first, second = SmallLog(), SmallLog()
    if is_known:
        first.commit("g", 0, 5, NOON_MS)
    first.commit("other", 0, 5, NOON_MS, topic="other")
    second.skip(40)
    second.commit("g", 0, None, REMOVED_MS + 20_000)
    judged.removed = REMOVED
    with_gap(judged, first, second)
    assert ("TOPIC_DELETED", "CERTAIN") not in deleted(judged)


@pytest.mark.parametrize("is_removed", [False, True])
def test_an_offset_that_expires_as_its_topic_is_removed(judged: Judged, is_removed: bool) -> None:
    """A check of the coordinator and the removal of the topic write the same record at the same time."""
    log = SmallLog()
    log.expiring_commit("g", 5, NOON_MS, expire_ms=REMOVED_MS - MINUTE_MS)
    log.commit("g", 0, None, REMOVED_MS + 5)
    judged.removed = REMOVED if is_removed else {}
    judged.night(log.batches)
    assert deleted(judged) == [("TOPIC_DELETED", "LIKELY") if is_removed else ("EXPIRED", "CERTAIN")]


@pytest.mark.parametrize(("until_ms", "confidence"), [(-MINUTE_MS, "CERTAIN"), (MINUTE_MS, "LIKELY")])
def test_a_commit_that_was_compacted_since_its_topic_was_removed(
    judged: Judged, until_ms: int, confidence: str
) -> None:
    """Between two nights compaction removed records. If that may be a commit to a topic that was created again, its
    deletion is none of the topic; what was compacted from before the removal is of the same topic."""
    log = SmallLog()
    log.commit("g", 0, 5, NOON_MS + 1_000)
    judged.night(log.batches)
    log.skip(1)
    if until_ms < 0:
        log.commit("other", 0, 5, REMOVED_MS + until_ms)
    log.commit("g", 0, None, REMOVED_MS + 20_000)
    log.commit("other", 0, 6, REMOVED_MS + MINUTE_MS)
    judged.removed = REMOVED
    judged.night(log.batches)
    assert deleted(judged) == [("TOPIC_DELETED", confidence)]


def test_partitions_of_a_removed_topic_go_in_one_operation(judged: Judged) -> None:
    """An admin deletes the offset of one partition before the coordinator knows of the removal, which then deletes the
    other."""
    log = SmallLog()
    log.commit("g", 0, 5, NOON_MS + 1_000)
    log.commit("g", 1, 5, NOON_MS + 1_000)
    log.commit("g", 0, None, REMOVED_MS + 20)
    log.commit("g", 1, None, REMOVED_MS + 80)
    judged.removed = REMOVED
    judged.night(log.batches)
    assert deleted(judged) == [("TOPIC_DELETED", "LIKELY"), ("TOPIC_DELETED", "CERTAIN")]


def test_a_value_that_expired_may_have_had_a_successor_that_was_compacted(judged: Judged) -> None:
    """The first night read it, and a commit that expires later was gone before the second."""
    log = SmallLog()
    log.expiring_commit("g", 5, NOON_MS, expire_ms=NOON_MS + MINUTE_MS)
    judged.night(log.batches)
    log.skip(1)
    log.commit("g", 0, None, NOON_MS + MINUTE_MS + 1_000)
    log.commit("other", 0, 6, NOON_MS + 2 * MINUTE_MS)
    judged.night(log.batches)
    assert deleted(judged) == [("EXPIRED", "LIKELY")]


def test_a_value_that_expired_is_not_the_last_one_behind_a_gap(judged: Judged) -> None:
    """A later commit, which nobody saw, expires later: an admin deleted it."""
    first, second = SmallLog(), SmallLog()
    first.expiring_commit("g", 5, NOON_MS, expire_ms=NOON_MS + MINUTE_MS)
    second.skip(40)
    second.commit("g", 0, None, NOON_MS + 2 * MINUTE_MS)
    with_gap(judged, first, second)
    assert deleted(judged) == [("EXPIRED", "LIKELY")]


@pytest.mark.parametrize(
    ("ahead_ms", "expected"), [(500, ("LIMIT_OR_REJECT", "GUESS")), (1_500, ("REJECT_OR_GAP", "CERTAIN"))]
)
def test_a_limit_that_changes_just_after(tmp_path: Path, ahead_ms: int, expected: tuple[str, str]) -> None:
    """The clock of the controller may be ahead: the limit of 3 was in force, under which the broker gave it up."""
    ledger, log = Ledger(tmp_path / "warehouse"), SmallLog(0, SHARE_TOPIC)
    log.snapshot("share", NOON_MS, ((0, 9, 0, 2),), snapshot_epoch=0)
    log.snapshot("share", NOON_MS + HOUR_MS, ((0, 9, 4, 3),), snapshot_epoch=1)
    changes = limits((NOON_MS - HOUR_MS, 5), (NOON_MS + HOUR_MS + ahead_ms, 3))
    changes.write(tmp_path / "logs")
    ledger.night(log.write(tmp_path / "logs"))
    (row,) = ledger.rows("gold.archived_records")
    assert (row["cause"], row["confidence"]) == expected


def test_no_list_is_complete_around_a_hole_behind_a_clock_step(ledger: Ledger, tmp_path: Path) -> None:
    """A leader an hour ahead wrote first. What is missing is of the time around it, not of the time behind that of the
    first leader's last record."""
    log = SmallLog()
    log.commit("g", 0, 1, NOON_MS + HOUR_MS)
    log.commit("g", 0, 2, NOON_MS + 1 * SECOND_MS)
    log.skip(5)
    log.commit("g", 0, 3, NOON_MS + 20 * SECOND_MS)
    ledger.night(log.write(tmp_path / "logs"), partitions=(f"{GROUPS_LOG}=1",))
    found = completeness(
        ledger.tables,
        GROUPS_LOG,
        Span(NOON_MS + 5 * SECOND_MS, NOON_MS + 10 * SECOND_MS),
    )
    assert not found.is_complete
    assert any("offsets 2 to 6" in line for line in found.statements), found.statements


@pytest.mark.parametrize(("behind_ms", "confidence"), [(500, "LIKELY"), (1_500, "CERTAIN")])
def test_a_commit_close_to_a_sample(ledger: Ledger, tmp_path: Path, behind_ms: int, confidence: str) -> None:
    """Clocks decide whether a commit is from before a sample or after it, and so how far behind the group was."""
    log = SmallLog()
    at_ms = NOON_MS + MINUTE_MS
    log.commit("g", 0, 70, at_ms + behind_ms)
    sampled(ledger, (NOON_MS, 80), (at_ms, 90), (at_ms + MINUTE_MS, 90))
    ledger.night(log.write(tmp_path / "logs"))
    (row,) = ledger.rows("gold.lag_history")
    assert (row["method"], row["lag"], row["confidence"]) == ("UNCHANGED_END", 20, confidence)


@pytest.mark.parametrize(("metadata_hash", "confidence"), [(5, "CERTAIN"), (7, "LIKELY")])
def test_a_member_with_a_pattern_joins_as_topics_change(judged: Judged, metadata_hash: int, confidence: str) -> None:
    """A new pattern raises no epoch before its topics are known: the topics' new metadata did."""
    log = SmallLog()
    for epoch, member_id, now_hash, at_ms in ((2, "m", 5, NOON_MS), (3, "n", metadata_hash, NOON_MS + MINUTE_MS)):
        member = {"client_id": "c", "client_host": "/h", "rebalance_timeout_ms": 300_000}
        member |= {"subscribed_topic_names": ("in",)} if member_id == "m" else {"subscribed_topic_regex": "a.*"}
        key = {"group_id": "g", "member_id": member_id}
        log.group_record(RecordType.CONSUMER_GROUP_MEMBER_METADATA, key, member, at_ms)
        group_epoch(log, epoch, now_hash, at_ms)
    judged.night(log.batches)
    assert last_rebalance(judged) == ("MEMBER_JOINED", confidence)


@pytest.mark.parametrize(("removed", "confidence"), [(0, "CERTAIN"), (1, "LIKELY")])
def test_a_member_whose_joining_was_compacted_between_two_nights(judged: Judged, removed: int, confidence: str) -> None:
    """Its record is replaced by a later one before the second night, and the epoch that it raised stays: that nothing
    but the topics' metadata changed is not proven."""
    log = SmallLog()

    def member(member_id: str, host: str, at_ms: int) -> None:
        fields = {"client_id": "c", "client_host": host, "subscribed_topic_names": ("in",), "rebalance_timeout_ms": 1}
        key = {"group_id": "g", "member_id": member_id}
        log.group_record(RecordType.CONSUMER_GROUP_MEMBER_METADATA, key, fields, at_ms)

    member("m", "/a", NOON_MS)
    group_epoch(log, 2, 5, NOON_MS)
    judged.night(log.batches)
    log.skip(removed)
    group_epoch(log, 3, 7, NOON_MS + MINUTE_MS)
    member("n", "/b", NOON_MS + 2 * MINUTE_MS)
    judged.night(log.batches)
    assert last_rebalance(judged) == ("PARTITIONS_CHANGED", confidence)


def test_steps_of_a_clock_in_batches_that_retention_deleted(ledger: Ledger, tmp_path: Path) -> None:
    """Gold that is built again without them says the same: that a member went within its time-outs stays unproven."""
    log = SmallLog()
    log.generation("g", 1, {"a": (0,), "b": (1,)}, NOON_MS)
    log.commit("other", 0, 1, NOON_MS + 30_000)
    log.generation("g", 2, {"a": (0, 1)}, NOON_MS + 20_000)
    ledger.night(log.write(tmp_path / "logs"), number=1)
    log.commit("other", 0, 2, NOON_MS + 40_000)
    ledger.night(log.write(tmp_path / "logs"), number=2)
    before = gold(ledger)
    settings = ledger.settings()
    short = replace(settings, maintain=replace(settings.maintain, retention_days={"bronze.record_batches": 1}))
    maintain(in_process(), ledger.warehouse, short, started_at=LATER)
    assert deleted_ranges(ledger.tables) == {(GROUPS_LOG, 0): ((0, 2),)}
    ledger.run(partial(run_audit, rebuild=True), number=3)
    assert gold(ledger) == before
    assert last_rebalance(ledger) == ("MEMBER_LEFT", "LIKELY")


ABORTED_AT = NOON_MS + 3 * MINUTE_MS


def two_transactions(between: int, behind: int) -> tuple[SmallLog, SmallLog]:
    """Producer 7 commits in two transactions; offsets are missing before the marker of the first, and behind it."""
    first, second = SmallLog(), SmallLog()
    first.commit("g", 0, 5, NOON_MS, producer_id=7)
    first.commit("h", 0, 1, NOON_MS)
    second.skip(2 + between)
    second.marker(ABORTED_AT, 7, is_commit=False)
    second.skip(behind)
    second.commit("h", 0, 2, ABORTED_AT + MINUTE_MS)
    return first, second


@pytest.mark.parametrize(("between", "behind", "confidence"), [(0, 40, "CERTAIN"), (40, 0, "LIKELY")])
def test_the_next_marker_behind_a_gap_may_be_of_another_transaction(
    ledger: Ledger, tmp_path: Path, between: int, behind: int, confidence: str
) -> None:
    """The transaction was committed, and a second one of the same producer aborted: what is missing has the marker of
    the first and the records of the second."""
    first, second = two_transactions(between, behind)
    first.write(tmp_path / "first")
    folder = tmp_path / "second" / "__consumer_offsets-0"
    folder.mkdir(parents=True)
    begin = second.next_offset - len(second.batches) - behind
    (folder / f"{begin:020d}.log").write_bytes(b"".join(second.batches))
    ledger.night(tmp_path / "first", number=1)
    ledger.night(tmp_path / "second", number=2)
    at_once = Ledger(tmp_path / "once")
    at_once.night(tmp_path / "second", tmp_path / "first")
    assert [row[:3] for row in odd_commits(ledger)] == [("ABORTED", "ABORT_MARKER", confidence)]
    assert gold(at_once) == gold(ledger)


def test_a_marker_that_compaction_removed_between_two_nights(ledger: Ledger, tmp_path: Path) -> None:
    """The first night read the commit; it was committed, replaced and cleaned together with its marker. The cleaner
    stops before an open transaction, so none hangs; and the producer's next marker is of another one."""
    log = SmallLog()
    log.commit("g", 0, 5, NOON_MS, producer_id=7)
    log.commit("hanging", 0, 5, NOON_MS, producer_id=8)
    ledger.night(log.write(tmp_path / "logs"), number=1)
    log.skip(3)
    log.commit("g", 0, 9, NOON_MS + HOUR_MS)
    ledger.night(log.write(tmp_path / "logs"), number=2)
    assert ledger.rows("gold.hanging_transactions") == []
    log.marker(NOON_MS + HOUR_MS, 7, is_commit=False)
    log.commit("late", 0, 9, NOON_MS + HOUR_MS, producer_id=8)
    log.commit("g", 0, 10, NOON_MS + 2 * HOUR_MS)
    ledger.night(log.write(tmp_path / "logs"), number=3)
    assert [row[:3] for row in odd_commits(ledger)] == [("ABORTED", "ABORT_MARKER", "LIKELY")]
    assert [row["group_id"] for row in ledger.rows("gold.hanging_transactions")] == ["late"]


def test_an_offset_deleted_behind_a_gap(judged: Judged) -> None:
    """What was deleted may have been committed in what is missing."""
    first, second = SmallLog(), SmallLog()
    first.commit("g", 0, 100, NOON_MS)
    second.skip(40)
    second.commit("g", 0, None, NOON_MS + MINUTE_MS)
    second.commit("g", 0, 7, NOON_MS + 2 * MINUTE_MS)
    second.commit("g", 0, None, NOON_MS + 3 * MINUTE_MS)
    with_gap(judged, first, second)
    rows = sorted(judged.rows("gold.commit_anomalies"), key=lambda row: int(row["log_offset"]))
    assert [row["from_offset"] for row in rows if row["to_offset"] is None] == [None, 7]


def test_an_aborted_commit_behind_a_gap(judged: Judged) -> None:
    """That it was aborted is certain; what was committed before it, and whether the group had members, may be in what
    is missing. Behind a commit that is there, the former is known."""
    first, second = SmallLog(), SmallLog()
    first.commit("g", 0, 100, NOON_MS)
    second.skip(40)
    for partition in (0, 1):
        second.commit("g", partition, 300, NOON_MS + MINUTE_MS, producer_id=7)
        second.marker(NOON_MS + MINUTE_MS, 7, is_commit=False)
        second.commit("g", 1, 200, NOON_MS + MINUTE_MS)
    with_gap(judged, first, second)
    rows = sorted(judged.rows("gold.commit_anomalies"), key=lambda row: int(row["log_offset"]))
    assert [(row["kind"], row["confidence"], row["from_offset"], row["was_group_empty"]) for row in rows] == [
        ("ABORTED", "CERTAIN", None, None),
        ("ABORTED", "CERTAIN", 200, None),
    ]
