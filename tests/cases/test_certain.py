"""What is not proven is not CERTAIN: logs in which what looks like a proof has another cause."""

from pathlib import Path
from typing import Any

import pytest

from coordinator_core.bytes import codec
from schemas import cluster_metadata as metadata
from schemas.consumer_offsets import RecordType
from tests.cases.harness import Ledger
from tests.cases.judged import Judged
from tests.cases.small_logs import NOON_MS, SESSION_MS, SmallLog
from tests.coordinator_core.group_records import T1
from tests.jobs.builders import batch, write_segment

MINUTE_MS = 60_000
REMOVED_MS = NOON_MS + 10 * MINUTE_MS
REMOVED = {"in": (REMOVED_MS,)}


def deleted(ledger: Ledger | Judged, group_id: str = "g") -> list[tuple[str | None, str]]:
    """Why offsets of a group went, and how sure that is."""
    return [
        (row["likely_cause"], row["confidence"])
        for row in sorted(ledger.rows("gold.commit_anomalies"), key=lambda row: int(row["log_offset"]))
        if row["kind"] == "DELETED" and row["group_id"] == group_id
    ]


def last_rebalance(ledger: Ledger | Judged) -> tuple[str, str]:
    """Cause of the newest rebalance, and how sure it is."""
    row = max(ledger.rows("gold.rebalances"), key=lambda row: int(row["to_generation"]))
    return row["cause"], row["confidence"]


def topic_removed(root: Path) -> Path:
    """A metadata log in which topic `in` is made and removed."""
    made = codec.make(metadata.TOPIC_RECORD, topic_id=T1, name="in")
    gone = codec.make(metadata.REMOVE_TOPIC_RECORD, topic_id=T1)
    data = batch(0, timestamp_ms=NOON_MS, value=codec.encode_metadata(metadata.TOPIC_RECORD, made, 0))
    data += batch(1, timestamp_ms=REMOVED_MS, value=codec.encode_metadata(metadata.REMOVE_TOPIC_RECORD, gone, 0))
    write_segment(root, "__cluster_metadata", 0, 0, data)
    return root


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_topic_that_another_group_goes_on_with(ledger: Ledger, tmp_path: Path, is_elsewhere: bool) -> None:
    """That a subscribed topic of which the group keeps nothing was deleted is a guess: another group reads on, be it in
    this log partition or in another one."""
    log = SmallLog()
    log.generation("g", 1, {"m": (0,)}, NOON_MS)
    log.commit("g", 0, 5, NOON_MS + 1_000)
    log.commit("g", 0, None, NOON_MS + 2_000)
    other = SmallLog(1) if is_elsewhere else log
    other.commit("other", 0, 5, NOON_MS + 1_000)
    other.commit("other", 0, 9, NOON_MS + 3_000)
    log.write(tmp_path / "logs")
    ledger.night(other.write(tmp_path / "logs"))
    assert deleted(ledger) == [("TOPIC_DELETED", "GUESS")]


def test_a_topic_that_was_made_again(ledger: Ledger, tmp_path: Path) -> None:
    """What was committed after the topic was removed is of another topic, and did not go with that one."""
    log = SmallLog()
    log.commit("g", 0, 5, NOON_MS + 1_000)
    log.commit("g", 0, None, REMOVED_MS + 44)
    log.commit("g", 0, 7, REMOVED_MS + 10_000)
    log.commit("g", 0, None, REMOVED_MS + 20_000)
    ledger.night(log.write(tmp_path / "logs"), topic_removed(tmp_path / "metadata"))
    first, second = deleted(ledger)
    assert first == ("TOPIC_DELETED", "CERTAIN")
    assert second[0] != "TOPIC_DELETED"


def test_offsets_of_other_topics_in_the_same_operation(judged: Judged) -> None:
    """A group that is deleted just after a topic was removed loses offsets of all topics at once."""
    log = SmallLog()
    log.commit("g", 0, 5, NOON_MS + 1_000)
    log.commit("g", 0, 5, NOON_MS + 1_000, topic="kept")
    log.commit("g", 0, None, REMOVED_MS + 20_000)
    log.commit("g", 0, None, REMOVED_MS + 20_000, topic="kept")
    judged.removed = REMOVED
    judged.night(log.batches)
    assert ("TOPIC_DELETED", "CERTAIN") not in deleted(judged)


def test_another_partition_of_a_removed_topic_is_kept(judged: Judged) -> None:
    """The coordinator deletes the offsets of all partitions: one that stays shows that it was something else."""
    log = SmallLog()
    log.commit("g", 0, 5, NOON_MS + 1_000)
    log.commit("g", 1, 5, NOON_MS + 1_000)
    log.commit("g", 0, None, REMOVED_MS + 44)
    log.commit("g", 1, 6, REMOVED_MS + MINUTE_MS)
    judged.removed = REMOVED
    judged.night(log.batches)
    assert deleted(judged) != [("TOPIC_DELETED", "CERTAIN")]


@pytest.mark.parametrize(("leader_epoch", "confidence"), [(0, "CERTAIN"), (1, "LIKELY")])
def test_a_member_that_goes_under_another_leader(judged: Judged, leader_epoch: int, confidence: str) -> None:
    """Between records of two leaders nobody knows how long it was: the clock of the second may be far behind."""
    log = SmallLog()
    log.generation("g", 1, {"a": (0,), "b": (1,)}, NOON_MS)
    log.leader_epoch = leader_epoch
    log.generation("g", 2, {"a": (0, 1)}, NOON_MS + 20_000)
    judged.night(log.batches)
    assert last_rebalance(judged) == ("MEMBER_LEFT", confidence)


def with_gap(judged: Judged, first: SmallLog, second: SmallLog) -> None:
    """Two captures with offsets between them that nobody saw."""
    judged.night(first.batches)
    judged.night(second.batches, from_offset=second.next_offset - len(second.batches))
    assert judged.facts().gaps


def test_commits_to_an_empty_group_behind_a_gap(judged: Judged) -> None:
    """Where a part of the log is missing, an emptied group may have got members that committed: no certain reset."""
    first, second = SmallLog(), SmallLog()
    first.generation("g", 1, {"m": (0,)}, NOON_MS)
    first.commit("g", 0, 5, NOON_MS + 1_000)
    first.generation("g", 2, {}, NOON_MS + 2_000)
    second.skip(40)
    second.commit("g", 0, 9, NOON_MS + MINUTE_MS)
    with_gap(judged, first, second)
    found = {row["confidence"] for row in judged.rows("gold.commit_anomalies") if row["kind"] == "EMPTY_GROUP_RESET"}
    assert found == {"LIKELY"}


def test_a_rebalance_behind_a_gap(judged: Judged) -> None:
    """Where a part of the log is missing, the group may have been made again in it, with numbers that fit by chance."""
    first, second = SmallLog(), SmallLog()
    first.generation("g", 1, {"a": (0, 1)}, NOON_MS)
    second.skip(40)
    second.generation("g", 2, {"a": (0,), "b": (1,)}, NOON_MS + 60 * MINUTE_MS)
    with_gap(judged, first, second)
    assert last_rebalance(judged) == ("MEMBER_JOINED", "LIKELY")


def test_a_leader_that_learned_late_of_partitions(judged: Judged) -> None:
    """Partitions assigned for the first time may have been there for long: without the metadata log it is likely."""
    log = SmallLog()
    log.generation("g", 1, {"m": (0,)}, NOON_MS)
    log.generation("g", 2, {"m": (0, 1)}, NOON_MS + 6 * MINUTE_MS)
    judged.night(log.batches)
    assert last_rebalance(judged) == ("PARTITIONS_CHANGED", "LIKELY")


def test_a_topic_that_grew_between_two_generations(ledger: Ledger, tmp_path: Path) -> None:
    """The metadata log proves it, though it is read a night later."""
    made = codec.make(metadata.TOPIC_RECORD, topic_id=T1, name="in")
    data = batch(0, timestamp_ms=NOON_MS, value=codec.encode_metadata(metadata.TOPIC_RECORD, made, 0))
    for offset, at_ms in ((1, NOON_MS), (2, NOON_MS + 5 * MINUTE_MS)):
        partition = codec.make(metadata.PARTITION_RECORD, partition_id=offset - 1, topic_id=T1)
        value = codec.encode_metadata(metadata.PARTITION_RECORD, partition, 0)
        data += batch(offset, timestamp_ms=at_ms, value=value)
    write_segment(tmp_path / "metadata", "__cluster_metadata", 0, 0, data)
    log = SmallLog()
    log.generation("g", 1, {"m": (0,)}, NOON_MS)
    log.generation("g", 2, {"m": (0, 1)}, NOON_MS + 6 * MINUTE_MS)
    ledger.night(log.write(tmp_path / "logs"), number=1)
    assert last_rebalance(ledger) == ("PARTITIONS_CHANGED", "LIKELY")
    ledger.night(tmp_path / "metadata", number=2)
    assert last_rebalance(ledger) == ("PARTITIONS_CHANGED", "CERTAIN")


def group_epoch(log: SmallLog, epoch: int, metadata_hash: int, at_ms: int) -> None:
    """A group epoch of a consumer group."""
    fields = {"epoch": epoch, "metadata_hash": metadata_hash}
    log.group_record(RecordType.CONSUMER_GROUP_METADATA, {"group_id": "g"}, fields, at_ms)


def target(log: SmallLog, epoch: int, at_ms: int) -> None:
    """A target assignment of partition 0 to the one member."""
    value: dict[str, Any] = {"topic_partitions": [{"topic_id": T1, "partitions": (0,)}]}
    kind = RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER
    log.group_record(kind, {"group_id": "g", "member_id": "m"}, value, at_ms)
    kind = RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA
    log.group_record(kind, {"group_id": "g"}, {"assignment_epoch": epoch}, at_ms)


def test_the_first_hash_after_an_upgrade(judged: Judged) -> None:
    """Kafka before 4.1 wrote no hash of the topics: that one is there now does not show that they changed."""
    log = SmallLog()
    member = {"client_id": "c", "client_host": "/h", "subscribed_topic_names": ("in",), "rebalance_timeout_ms": 300_000}
    kind = RecordType.CONSUMER_GROUP_MEMBER_METADATA
    log.group_record(kind, {"group_id": "g", "member_id": "m"}, member, NOON_MS)
    group_epoch(log, 1, 0, NOON_MS)
    target(log, 1, NOON_MS)
    group_epoch(log, 2, 77, NOON_MS + MINUTE_MS)
    target(log, 2, NOON_MS + MINUTE_MS)
    judged.night(log.batches)
    assert last_rebalance(judged)[1] != "CERTAIN"


@pytest.mark.parametrize(("away_ms", "confidence"), [(SESSION_MS - 1, "LIKELY"), (SESSION_MS, "GUESS")])
def test_a_static_member_that_comes_back(judged: Judged, away_ms: int, confidence: str) -> None:
    """By itself it makes no rebalance (KIP-345), so it is not certain that it made this one. If its session may have
    expired just before, that may be what made the others join again."""
    log = SmallLog()
    log.generation("g", 1, {"a": (0,), "b": (1,)}, NOON_MS, instances={"b": "i"})
    log.generation("g", 2, {"a": (0,), "b2": (1,)}, NOON_MS + away_ms, instances={"b2": "i"})
    judged.night(log.batches)
    assert last_rebalance(judged) == ("STATIC_MEMBER_REPLACED", confidence)


@pytest.mark.parametrize(
    ("silent_ms", "causes"),
    [
        (SESSION_MS - 1, {"PARTITIONS_CHANGED": "LIKELY", "STATIC_MEMBER_REPLACED": "LIKELY"}),
        (SESSION_MS, {"PARTITIONS_CHANGED": "GUESS", "MEMBER_EXPIRED": "GUESS"}),
    ],
)
def test_a_static_member_that_committed_before_it_came_back(
    judged: Judged, silent_ms: int, causes: dict[str, str]
) -> None:
    """Its commits show how long it had been silent: its session cannot have expired sooner. Where it may have, that
    made the others join again, and not the partition that was there by then."""
    log = SmallLog()
    log.generation("g", 1, {"a": (0,), "b": (1,)}, NOON_MS, instances={"b": "i"})
    for minute in (3, 4, 5):
        log.commit("g", 1, minute, NOON_MS + minute * MINUTE_MS)
    back_ms = NOON_MS + 5 * MINUTE_MS + silent_ms
    log.generation("g", 2, {"a": (0, 2), "b2": (1,)}, back_ms, instances={"b2": "i"})
    log.commit("g", 1, 10, back_ms + MINUTE_MS)
    log.generation("g", 3, {"a": (0, 2), "b2": (1,), "c": ()}, back_ms + 2 * MINUTE_MS, instances={"b2": "i"})
    judged.night(log.batches)
    (row,) = (row for row in judged.rows("gold.rebalances") if row["to_generation"] == 2)
    assert dict(zip(row["causes"], row["cause_confidences"], strict=True)) == causes


@pytest.mark.parametrize(
    "states",
    [
        pytest.param((0, 0), id="none was kept"),
        pytest.param((NOON_MS // 1_000, NOON_MS // 1_000 + 240), id="seconds"),
        pytest.param((NOON_MS + 220_000, NOON_MS + 240_000), id="behind its record"),
    ],
)
def test_the_end_of_a_join_phase_that_no_clock_shows(judged: Judged, states: tuple[int, int]) -> None:
    """By the times in two values a member went within its time-outs; by those of their records it was silent for four
    minutes. No duration rests on the former, either."""
    log = SmallLog()
    log.generation("g", 1, {"a": (0,), "b": (1,)}, NOON_MS, state_ms=states[0])
    log.generation("g", 2, {"a": (0, 1)}, NOON_MS + 240_000, state_ms=states[1])
    judged.night(log.batches)
    assert last_rebalance(judged) == ("UNKNOWN", "GUESS")
    assert {row["unowned_partition_ms"] for row in judged.rows("gold.rebalances")} == {0}
