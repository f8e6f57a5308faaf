"""The first read of a cluster that runs: what compaction left of a group does not make its beginning."""

from pathlib import Path
from typing import Any

import pytest

from coordinator_core.bytes.log.batch import build_batch
from coordinator_core.bytes.log.records import iter_records
from coordinator_core.inference.facts.settings import InferenceSettings
from schemas.consumer_offsets import RecordType
from tests.cases.harness import CASES, Ledger
from tests.cases.judged import Judged
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.coordinator_core.inference.group_nights import after_nights


def of_group(ledger: Ledger | Judged, name: str, group_id: str) -> list[dict[str, Any]]:
    """Rows of one group."""
    return [row for row in ledger.rows(name) if row["group_id"] == group_id]


@pytest.mark.parametrize("group_id", ["first-gap", "first-nogap", "first-zero"])
def test_a_commit_before_the_record_of_its_group_makes_no_generation(ledger: Ledger, group_id: str) -> None:
    """Generation 283366 says that as many were before it: nothing is known of how it came about, as of group `usual`,
    whose commits came later."""
    assert ledger.night(CASES / "G-first" / "logs").exit_code in {0, 3}
    generations = sorted(of_group(ledger, "silver.group_generations", group_id), key=lambda row: row["generation"])
    reported = [(row["generation"], row["is_contiguous"], row["previous_generation"]) for row in generations]
    assert reported == [(283366, False, None), (283367, True, 283366)]
    first, second = sorted(of_group(ledger, "gold.rebalances", group_id), key=lambda row: row["to_generation"])
    (usual,) = of_group(ledger, "gold.rebalances", "usual")
    for row in (first, usual):
        assert (row["cause"], row["method"], row["confidence"]) == ("UNKNOWN", "FIRST_SEEN", "GUESS")
        assert row["from_generation"] is None and not row["members_joined"]
    assert (second["cause"], second["confidence"]) == ("MEMBER_JOINED", "CERTAIN")


def test_commits_left_of_a_consumer_group_are_no_conversion(judged: Judged) -> None:
    """A commit, then epoch 1000 of a consumer group, and no tombstone of a classic group: nothing was converted. With
    the tombstone in the same operation it was."""
    log = SmallLog()

    def consumer_group(group_id: str) -> None:
        keys = {"group_id": group_id}, {"group_id": group_id, "member_id": "m"}
        log.group_record(RecordType.CONSUMER_GROUP_MEMBER_METADATA, keys[1], {}, NOON_MS + 5_000)
        log.group_record(RecordType.CONSUMER_GROUP_METADATA, keys[0], {"epoch": 1_000}, NOON_MS + 5_000)

    for group_id in ("left", "recreated"):
        log.commit(group_id, 0, 5, NOON_MS)
    consumer_group("left")
    log.group_record(RecordType.GROUP_METADATA, {"group": "recreated"}, None, NOON_MS + 5_000)
    consumer_group("recreated")
    judged.night(log.batches)
    causes = {row["cause"] for row in of_group(judged, "gold.rebalances", "left")}
    assert "GROUP_CONVERTED" not in causes
    types = {row["group_type"] for row in of_group(judged, "silver.group_generations", "left")}
    assert types == {"CONSUMER"}
    assert not any(row["event_type"] == "GROUP_CONVERTED" for row in of_group(judged, "silver.group_events", "left"))


def test_a_group_that_begins_after_a_commit_begins(judged: Judged) -> None:
    """Offsets set before the first member comes are of a simple group, and generation 1 is the first one of all."""
    log = SmallLog()
    log.commit("g", 0, 5, NOON_MS)
    log.generation("g", 1, {"a": (0,)}, NOON_MS + 1_000)
    judged.night(log.batches)
    assert [row["generation"] for row in judged.rows("silver.group_generations")] == [0, 1]
    (row,) = judged.rows("gold.rebalances")
    assert (row["cause"], row["confidence"]) == ("FIRST", "CERTAIN")


def test_the_cut_into_nights_changes_nothing_of_it() -> None:
    """A night may end between the commit and the first record of its group."""
    log = SmallLog()
    log.commit("g", 0, 5, NOON_MS)
    log.generation("g", 9, {"a": (0,)}, NOON_MS + 1_000)
    log.commit("g", 0, 3, NOON_MS + 2_000)
    log.generation("g", 10, {}, NOON_MS + 3_000)
    log.commit("g", 0, 4, NOON_MS + 4_000)
    for cut in range(1, len(log.batches)):
        assert after_nights(log.batches, [cut], InferenceSettings()).gold["g"].rebalances


def test_offsets_that_compaction_left_were_not_set_by_a_tool(ledger: Ledger, tmp_path: Path) -> None:
    """Of each partition one commit is left, between offsets that are gone: that no other is there proves nothing. In a
    log that lacks nothing so far it may be a tool's work, which is a guess and is said to be one."""
    reported = ledger.night(CASES / "G-first" / "logs")
    assert not of_group(ledger, "gold.commit_anomalies", "flink-job")
    assert "commit anomal" not in reported.text
    whole, log = Ledger(tmp_path / "whole"), SmallLog()
    for partition in range(3):
        log.commit("set", partition, 100, NOON_MS)
    night = whole.night(log.write(tmp_path / "logs"))
    rows = whole.rows("gold.commit_anomalies")
    assert {(row["kind"], row["confidence"]) for row in rows} == {("EMPTY_GROUP_RESET", "GUESS")}
    assert "Nothing new tonight" in night.text, "a guess about commits is no news"


NEWER_TYPES = {
    "CONSUMER": (RecordType.CONSUMER_GROUP_MEMBER_METADATA, RecordType.CONSUMER_GROUP_METADATA),
    "SHARE": (RecordType.SHARE_GROUP_MEMBER_METADATA, RecordType.SHARE_GROUP_METADATA),
    "STREAMS": (RecordType.STREAMS_GROUP_MEMBER_METADATA, RecordType.STREAMS_GROUP_METADATA),
}


@pytest.mark.parametrize("group_type", sorted(NEWER_TYPES))
def test_member_metadata_that_compaction_left_make_no_first_epoch(judged: Judged, group_type: str) -> None:
    """Of what made the group two members' metadata are left, then epoch 12, then a third member: the first epoch that
    a record tells is the first one seen, and nothing is known of how it came about, whatever the cut into nights."""
    member_record, group_record = NEWER_TYPES[group_type]
    log = SmallLog()
    for number, member_id in enumerate(("a", "b", "c")):
        log.skip(5)
        log.group_record(
            member_record, {"group_id": "g", "member_id": member_id}, {"client_id": "app"}, NOON_MS + number
        )
        if number:
            log.group_record(group_record, {"group_id": "g"}, {"epoch": 11 + number}, NOON_MS + number)
    judged.night(log.batches, from_offset=5)
    rows = sorted(judged.rows("silver.group_generations"), key=lambda row: row["generation"])
    reported = [(row["generation"], row["is_contiguous"], row["previous_generation"]) for row in rows]
    assert reported == [(1, True, None), (12, False, 1), (13, True, 12)]  # as Kafka's own replay has it
    *first, last = sorted(judged.rows("gold.rebalances"), key=lambda row: row["to_generation"])
    assert {(row["cause"], row["method"], row["confidence"]) for row in first} == {("UNKNOWN", "FIRST_SEEN", "GUESS")}
    assert (last["from_generation"], last["cause"], last["members_joined"]) == (12, "MEMBER_JOINED", ["c"])
    for cut in (1, 2):
        after_nights(log.batches, [cut], InferenceSettings())


@pytest.mark.parametrize("group_type", sorted(NEWER_TYPES))
def test_a_group_of_which_no_epoch_is_left_has_no_first_one(judged: Judged, group_type: str) -> None:
    """A member's metadata alone prove neither a beginning nor an epoch."""
    log = SmallLog()
    log.skip(9)
    log.group_record(NEWER_TYPES[group_type][0], {"group_id": "g", "member_id": "a"}, {"client_id": "app"}, NOON_MS)
    judged.night(log.batches)
    (row,) = judged.rows("gold.rebalances")
    assert (row["cause"], row["method"], row["confidence"]) == ("UNKNOWN", "FIRST_SEEN", "GUESS")
    created = [row for row in judged.rows("silver.group_events") if row["event_type"] == "GROUP_CREATED"]
    assert [dict(row["details"]).keys() for row in created] == [{"first_seen"}]


def share_member(log: SmallLog, member_id: str, at_ms: int) -> None:
    """Metadata of a member of a share group."""
    key = {"group_id": "g", "member_id": member_id}
    value = {"client_id": member_id, "client_host": "/10.0.0.1", "subscribed_topic_names": ("in",)}
    log.group_record(RecordType.SHARE_GROUP_MEMBER_METADATA, key, value, at_ms)


def share_epoch(log: SmallLog, epoch: int, at_ms: int) -> None:
    """An epoch of a share group."""
    log.group_record(RecordType.SHARE_GROUP_METADATA, {"group_id": "g"}, {"epoch": epoch}, at_ms)


def reconciled(log: SmallLog, member_id: str, epoch: int, previous: int, at_ms: int) -> None:
    """A member of a share group that takes an epoch."""
    key = {"group_id": "g", "member_id": member_id}
    value = {"member_epoch": epoch, "previous_member_epoch": previous}
    log.group_record(RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT, key, value, at_ms)


def in_one_batch(log: SmallLog, first: int) -> None:
    """The batches from an index on as one, as an operation is."""
    records = [record for batch in log.batches[first:] for record in iter_records(batch)]
    log.batches[first:] = [build_batch(records)]


def test_members_whose_join_is_in_a_missing_beginning(judged: Judged) -> None:
    """The log begins with epoch 6. A member that only an assignment names is none that joined, nor are the topics
    changed to which it subscribes by its first metadata; first metadata of another one may be no join. One that is
    reconciled from epoch 0 joined for certain."""
    log = SmallLog()
    log.skip(20)
    for number, (member_id, is_described) in enumerate(
        (("a", False), ("b", False), ("b", True), ("c", True), ("d", True))
    ):
        at_ms, index = NOON_MS + 60_000 * number, len(log.batches)
        if is_described:
            share_member(log, member_id, at_ms)
        share_epoch(log, 6 + number, at_ms)
        reconciled(log, member_id, 6 + number, 0 if member_id == "d" else 5, at_ms)
        in_one_batch(log, index)
    judged.night(log.batches, from_offset=20)
    rows = sorted(judged.rows("gold.rebalances"), key=lambda row: row["to_generation"])
    assert [(row["cause"], row["members_joined"], row["confidence"]) for row in rows] == [
        ("UNKNOWN", [], "GUESS"),
        ("UNKNOWN", [], "GUESS"),
        ("UNKNOWN", [], "GUESS"),
        ("MEMBER_JOINED", ["c"], "LIKELY"),
        ("MEMBER_JOINED", ["d"], "CERTAIN"),
    ]
    assert {row["member_id"] for row in judged.rows("silver.group_members")} == {"a", "b", "c", "d"}


@pytest.mark.parametrize(("begin", "confidence"), [(20, "LIKELY"), (0, "CERTAIN")])
def test_a_group_whose_known_members_left_behind_a_missing_beginning(
    judged: Judged, begin: int, confidence: str
) -> None:
    """Another member may have been there since before the log begins: it is not certain that the group is empty, nor
    that a tool set its offsets."""
    log = SmallLog()
    log.skip(begin)
    group, member = {"group_id": "g"}, {"group_id": "g", "member_id": "a"}
    of_member = {"client_id": "a", "client_host": "/10.0.0.1"}
    log.group_record(RecordType.CONSUMER_GROUP_MEMBER_METADATA, member, of_member, NOON_MS)
    log.group_record(RecordType.CONSUMER_GROUP_METADATA, group, {"epoch": 2}, NOON_MS)
    in_one_batch(log, 0)
    log.commit("g", 0, 5, NOON_MS + 1_000)
    log.group_record(RecordType.CONSUMER_GROUP_MEMBER_METADATA, member, None, NOON_MS + 2_000)
    log.group_record(RecordType.CONSUMER_GROUP_METADATA, group, {"epoch": 3}, NOON_MS + 2_000)
    in_one_batch(log, 2)
    log.commit("g", 0, 9, NOON_MS + 3_000)
    judged.night(log.batches, from_offset=begin)
    last = max(judged.rows("gold.rebalances"), key=lambda row: int(row["to_generation"]))
    assert (last["causes"][0], last["cause_confidences"][0]) == ("GROUP_EMPTIED", confidence)
    (reset,) = judged.rows("gold.commit_anomalies")
    was_empty = True if confidence == "CERTAIN" else None
    assert (reset["kind"], reset["confidence"], reset["was_group_empty"]) == (
        "EMPTY_GROUP_RESET",
        confidence,
        was_empty,
    )


@pytest.mark.parametrize("epoch", [1, 2, 9])
def test_a_group_that_committed_before_its_first_record_has_no_first_epoch(judged: Judged, epoch: int) -> None:
    """What is left of its first members is a commit: whatever the epoch of the first record, it is not the group's
    first one, since a coordinator that makes a group of one that only commits deletes that in the same operation."""
    log = SmallLog()
    log.commit("g", 0, 5, NOON_MS)
    log.skip(7)
    share_member(log, "a", NOON_MS + 1_000)
    if epoch > 1:
        share_epoch(log, epoch, NOON_MS + 1_000)
    reconciled(log, "a", epoch, epoch - 1, NOON_MS + 1_000)
    in_one_batch(log, 1)
    share_epoch(log, 12, NOON_MS + 2_000)
    judged.night(log.batches)
    rows = sorted(of_group(judged, "gold.rebalances", "g"), key=lambda row: row["to_generation"])
    assert [row["to_generation"] for row in rows] == [epoch, 12]
    assert {(row["cause"], row["method"], row["confidence"]) for row in rows} == {("UNKNOWN", "FIRST_SEEN", "GUESS")}


def test_a_converted_group_of_which_no_epoch_is_left_has_no_first_one(judged: Judged) -> None:
    """The classic group's generations and the epochs up to 4 were compacted: a commit, the tombstone of the conversion
    and a member that came with it are left. How epochs 1 and 5 came about is not known."""
    log = SmallLog()
    log.commit("g", 0, 5, NOON_MS)
    log.skip(4)
    log.group_record(RecordType.GROUP_METADATA, {"group": "g"}, None, NOON_MS + 1_000)
    for number, member_id in enumerate(("a", "b")):
        if number:
            log.skip(20)
        at_ms = NOON_MS + 1_000 + 60_000 * number
        key, value = {"group_id": "g", "member_id": member_id}, {"client_id": member_id, "client_host": "/10.0.0.1"}
        log.group_record(RecordType.CONSUMER_GROUP_MEMBER_METADATA, key, value, at_ms)
    log.group_record(RecordType.CONSUMER_GROUP_METADATA, {"group_id": "g"}, {"epoch": 5}, at_ms)
    log.batches[1:3] = [build_batch([it for batch in log.batches[1:3] for it in iter_records(batch)])]
    in_one_batch(log, 2)
    judged.night(log.batches)
    rows = sorted(of_group(judged, "gold.rebalances", "g"), key=lambda row: row["to_generation"])
    assert [row["to_generation"] for row in rows] == [1, 5]
    assert {(row["cause"], row["method"], row["confidence"]) for row in rows} == {("UNKNOWN", "FIRST_SEEN", "GUESS")}


def test_an_epoch_that_compaction_took_out_of_the_first_operation(judged: Judged) -> None:
    """A member made the group with epoch 2 and was reconciled at epoch 1, since its target was not computed yet; epoch
    3 replaced the record of epoch 2. Epoch 1, which no record tells, was not its first."""
    log = SmallLog()
    share_member(log, "a", NOON_MS)
    log.skip(1)
    reconciled(log, "a", 1, 0, NOON_MS)
    in_one_batch(log, 0)
    share_member(log, "b", NOON_MS + 500)
    share_epoch(log, 3, NOON_MS + 500)
    reconciled(log, "b", 1, 0, NOON_MS + 500)
    in_one_batch(log, 1)
    judged.night(log.batches)
    rows = sorted(judged.rows("gold.rebalances"), key=lambda row: row["to_generation"])
    assert {(row["cause"], row["method"], row["confidence"]) for row in rows} == {("UNKNOWN", "FIRST_SEEN", "GUESS")}


@pytest.mark.parametrize("group_type", sorted(NEWER_TYPES))
def test_records_without_times_show_no_operations(judged: Judged, group_type: str) -> None:
    """A member's metadata and an epoch may be of one operation or of two: a first epoch is not caused by its topics'
    metadata, nor is one before which a member came or went."""
    member_record, group_record = NEWER_TYPES[group_type]
    log = SmallLog()

    def member(member_id: str, fields: dict[str, str] | None) -> None:
        log.group_record(member_record, {"group_id": "g", "member_id": member_id}, fields, None)

    def epoch(number: int) -> None:
        log.group_record(group_record, {"group_id": "g"}, {"epoch": number, "metadata_hash": number}, None)

    member("a", {"client_id": "app"})
    epoch(2)
    member("b", {"client_id": "app"})
    log.commit("g", 0, 1, NOON_MS)
    epoch(3)
    member("a", None)
    log.commit("g", 0, 2, NOON_MS + 1)
    epoch(4)
    judged.night(log.batches)
    rows = sorted(judged.rows("gold.rebalances"), key=lambda row: int(row["to_generation"]))
    assert [(row["to_generation"], row["cause"], row["method"], row["confidence"]) for row in rows] == [
        (1, "UNKNOWN", "FIRST_SEEN", "GUESS"),
        (2, "UNKNOWN", "FIRST_SEEN", "GUESS"),
        (3, "MEMBER_JOINED", "IN_LOG", "LIKELY"),
        (4, "UNKNOWN", "LEFT_OR_EXPIRED", "GUESS"),
    ]


@pytest.mark.parametrize("group_type", sorted(NEWER_TYPES))
def test_a_group_without_times_is_empty_from_where_its_last_member_left(judged: Judged, group_type: str) -> None:
    """Not from its last epoch on: the records of members that came or went since then are not known to be of the next
    epoch's operation."""
    member_record, group_record = NEWER_TYPES[group_type]
    log = SmallLog()
    offsets = iter(range(90, 0, -10))

    def member(member_id: str, fields: dict[str, str] | None) -> None:
        log.group_record(member_record, {"group_id": "g", "member_id": member_id}, fields, None)

    def epoch(number: int) -> None:
        log.group_record(group_record, {"group_id": "g"}, {"epoch": number}, None)
        log.commit("g", 0, next(offsets), NOON_MS)

    member("a", {"client_id": "app"})
    epoch(2)
    log.commit("g", 0, next(offsets), NOON_MS)
    member("a", None)
    log.commit("g", 0, next(offsets), NOON_MS)
    epoch(3)
    member("b", {"client_id": "app"})
    log.commit("g", 0, next(offsets), NOON_MS)
    epoch(4)
    judged.night(log.batches)
    rows = sorted(judged.rows("gold.commit_anomalies"), key=lambda row: int(row["log_offset"]))
    assert [(row["to_offset"], row["kind"], row["was_group_empty"]) for row in rows] == [
        (80, "REWIND", False),
        (70, "EMPTY_GROUP_RESET", True),
        (60, "REWIND", None),
        (50, "REWIND", False),
        (40, "REWIND", False),
    ]
