"""The live share coordinator: what each request writes and answers, its jobs, and what a failing log leaves behind."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion
from coordinator_core.live.coordinator.errors import Refused, UnknownOperation
from coordinator_core.live.coordinator.image import MetadataImage, Topic, image_of
from coordinator_core.live.share_state.config import ShareCoordinatorConfig
from coordinator_core.live.share_state.coordinator import ShareCoordinator, empty_shard
from coordinator_core.live.share_state.messages import (
    DeletePartition,
    InitializePartition,
    PartitionResult,
    ReadPartition,
    ReadResult,
    Response,
    StateRequest,
    StateTopic,
    TopicResult,
    WritePartition,
)
from coordinator_core.live.share_state.records import ShareStateRecord, replay_record
from coordinator_core.replay.lookup import SharePartitionKey
from coordinator_core.replay.share_state.combine import StateBatch
from coordinator_core.replay.share_state.state import ShareSnapshot, ShareUpdate
from schemas.error_codes import ErrorCode
from tests.coordinator_core.logs import MemoryLog

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAg"
IMAGE = image_of([Topic("orders", TOPIC_ID, 4), Topic("returns", OTHER_ID, 1)])
KEY = SharePartitionKey("sg", TOPIC_ID, 0)
ACK = (StateBatch(10, 12, 2, 1),)


class Live:
    """One share coordinator with short words."""

    def __init__(
        self,
        updates: int = 500,
        cold_ms: int = 300_000,
        image: MetadataImage = IMAGE,
        version: KafkaVersion = DEFAULT_VERSION,
    ) -> None:
        self.now_ms = 1000
        self.log = MemoryLog(100)
        config = ShareCoordinatorConfig(
            updates_per_snapshot=updates, cold_partition_snapshot_interval_ms=cold_ms, kafka_version=version
        )
        self.coordinator = ShareCoordinator(now_ms=self.now_ms, config=config, image=image, log=self.log)

    def run(self, operation: str, data: Any, key: SharePartitionKey = KEY) -> Any:
        """The result for one partition."""
        result, self.written = self.coordinator.run(operation, key, data, now_ms=self.now_ms)
        return result

    def initialize(self, state_epoch: int = 3, start_offset: int = 10, key: SharePartitionKey = KEY) -> Any:
        return self.run("initialize_state", InitializePartition(key.partition, state_epoch, start_offset), key)

    def write(self, batches: Sequence[StateBatch] = ACK, *, state: int = 3, leader: int = -1, start: int = 10) -> Any:
        return self.run("write_state", WritePartition(0, state, leader, start, 3, tuple(batches)))

    def read(self, leader_epoch: int, key: SharePartitionKey = KEY) -> Any:
        return self.run("read_state", ReadPartition(key.partition, leader_epoch), key)

    def values(self) -> list[Any]:
        """The values which the last call wrote."""
        return [entry.record.value for entry in self.written]

    def state(self) -> Any:
        return self.coordinator.shard.share_partitions[KEY]


# --- write ---


def test_batches_of_one_write_are_combined_before_they_are_written() -> None:
    """What one request says may overlap in itself, and may lie below its start offset."""
    live = Live()
    live.initialize()
    live.write([StateBatch(8, 12, 0, 1), StateBatch(11, 14, 2, 1)], start=9)
    assert live.values()[0].state_batches == (StateBatch(9, 10, 0, 1), StateBatch(11, 14, 2, 1))


@pytest.mark.parametrize(("limit", "kinds"), [(0, "SSSS"), (1, "USUS"), (2, "UUSU"), (500, "UUUU")])
def test_a_snapshot_comes_after_so_many_updates(limit: int, kinds: str) -> None:
    """share.coordinator.snapshot.update.records.per.snapshot; with 0 every write is a snapshot."""
    live = Live(updates=limit)
    live.initialize()
    written = ""
    for at in range(4):
        live.write([StateBatch(10 + at, 10 + at, 2, 1)])
        written += "S" if isinstance(live.values()[0], ShareSnapshot) else "U"
    assert written == kinds
    assert live.state().state_batches == (StateBatch(10, 13, 2, 1),)


# --- read ---


def test_a_read_by_a_new_leader_is_written_down_and_fences_the_old_one() -> None:
    """The next write of the leader before is refused, whoever of the two comes first to the log."""
    live = Live()
    live.initialize()
    live.write()
    assert live.read(5) == ReadResult(0, state_epoch=3, start_offset=10, state_batches=ACK)
    assert live.values() == [ShareUpdate(0, 5, 10, 3, ())]
    assert live.write(leader=4).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert live.read(4).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert live.write(leader=5).error_code == ErrorCode.NONE


# --- refusals ---

NEGATIVE = KEY._replace(partition=-1)
BEYOND = KEY._replace(partition=4)
GONE = KEY._replace(topic_id="AAAAAAAAAAAAAAAAAAAAAw")
MESSAGES = {
    "negative": "The partition id cannot be a negative number.",
    "write": "Write operation on uninitialized share partition not allowed.",
    "read": "Read operation on uninitialized share partition not allowed.",
    "topic": "This server does not host this topic-partition.",
    "leader": "The leader epoch in the request is older than the epoch on the broker.",
    "state": "The share coordinator rejected the request because the share-group state epoch did not match.",
}


@pytest.mark.parametrize(
    ("operation", "key", "data", "code", "message"),
    [
        pytest.param("initialize_state", NEGATIVE, InitializePartition(-1), 42, "negative", id="initialize-negative"),
        pytest.param("initialize_state", BEYOND, InitializePartition(4, 1), 3, "topic", id="initialize-beyond"),
        pytest.param("initialize_state", GONE, InitializePartition(0, 1), 3, "topic", id="initialize-no-topic"),
        pytest.param("initialize_state", KEY, InitializePartition(0, 2), 124, "state", id="initialize-older"),
        pytest.param("write_state", NEGATIVE, WritePartition(-1), 42, "negative", id="write-negative"),
        pytest.param("write_state", BEYOND, WritePartition(4), 42, "write", id="write-uninitialized-before-topic"),
        pytest.param("write_state", KEY, WritePartition(0, 2, 4), 74, "leader", id="write-leader-before-state"),
        pytest.param("write_state", KEY, WritePartition(0, 2, -1), 124, "state", id="write-older-state"),
        pytest.param("read_state", NEGATIVE, ReadPartition(-1), 42, "negative", id="read-negative"),
        pytest.param("read_state", GONE, ReadPartition(0, 9), 42, "read", id="read-uninitialized-before-topic"),
        pytest.param("read_state", KEY, ReadPartition(0, 4), 74, "leader", id="read-older-leader"),
        pytest.param("read_state_summary", NEGATIVE, ReadPartition(-1), 42, "negative", id="summary-negative"),
        pytest.param("read_state_summary", GONE, ReadPartition(0), 3, "topic", id="summary-no-topic"),
        pytest.param("delete_state", NEGATIVE, DeletePartition(-1), 42, "negative", id="delete-negative"),
        pytest.param("delete_state", BEYOND, DeletePartition(4), 3, "topic", id="delete-beyond"),
    ],
)
def test_a_refusal_writes_nothing(operation: str, key: SharePartitionKey, data: Any, code: int, message: str) -> None:
    """Of several things which are wrong the first in Kafka's order is the answer."""
    live = Live()
    live.initialize(3)
    live.read(5)
    shard, end = live.coordinator.shard, live.log.next_offset
    result = live.run(operation, data, key)
    assert (result.partition, result.error_code, result.error_message) == (key.partition, code, MESSAGES[message])
    assert (live.coordinator.shard, live.log.next_offset) == (shard, end)


NEW = KafkaVersion(4, 4)


@pytest.mark.parametrize(
    ("operation", "data", "message"),
    [
        ("initialize_state", InitializePartition(0, -1), "The state epoch cannot be a negative number."),
        ("write_state", WritePartition(0, -1, 5), "The state epoch cannot be a negative number."),
        ("write_state", WritePartition(0, -1, -1), "The leader epoch cannot be a negative number."),
        ("read_state", ReadPartition(0, -1), "The leader epoch cannot be a negative number."),
    ],
)
def test_since_4_4_a_negative_epoch_is_refused(operation: str, data: Any, message: str) -> None:
    """What -1 asked for until 4.3, Kafka 4.4 refuses, with a state or without; a summary takes it."""
    live = Live(version=NEW)
    live.initialize(3)
    live.read(5)
    result = live.run(operation, data)
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert live.run("read_state_summary", ReadPartition(0, -1)).error_code == ErrorCode.NONE
    assert Live(version=NEW).run(operation, data).error_message == message


@pytest.mark.parametrize(
    ("start_offset", "count", "expected"),
    [
        pytest.param(12, 1, (12, 1), id="a-later-start-has-its-own-count"),
        pytest.param(10, 1, (10, 3), id="equal-start-keeps-the-larger-count"),
        pytest.param(10, 5, (10, 5), id="equal-start-takes-the-larger-count"),
        pytest.param(9, 9, (10, 3), id="an-earlier-start-changes-neither"),
        pytest.param(-1, 9, (10, 3), id="no-start-changes-neither"),
    ],
)
@pytest.mark.parametrize("updates", [1, 500])
def test_since_4_4_a_write_keeps_progress(
    start_offset: int, count: int, expected: tuple[int, int], updates: int
) -> None:
    """Neither start offset nor complete count goes down in updates and snapshots; batches below are left out."""
    live = Live(version=NEW, updates=updates)
    live.initialize()
    live.write(leader=0)
    batches = (StateBatch(9, 13, 2, 1),)
    live.run("write_state", WritePartition(0, 3, 0, start_offset, count, batches))
    (value,) = live.values()
    assert (value.start_offset, value.delivery_complete_count) == expected
    assert value.state_batches == (StateBatch(expected[0], 13, 2, 1),)


@pytest.mark.parametrize("updates", [0, 500])
@pytest.mark.parametrize(("version", "count"), [((4, 1), -1), ((4, 2), 3)])
def test_since_4_2_the_state_has_a_complete_count(version: tuple[int, int], count: int, updates: int) -> None:
    """Before, neither a first snapshot nor what follows has one, whatever is asked."""
    live = Live(version=KafkaVersion(*version), updates=updates)
    live.initialize()
    assert live.values()[0].delivery_complete_count == min(count, 0)
    live.write()
    assert live.values()[0].delivery_complete_count == count
    live.read(8)
    assert live.values()[0].delivery_complete_count == count
    assert live.run("read_state_summary", ReadPartition(0, -1)).delivery_complete_count == count


def test_since_4_4_an_older_state_epoch_has_another_message() -> None:
    """The same error code, and a text that is not of share groups alone."""
    live = Live(version=NEW)
    live.initialize(3)
    result = live.write(state=2, leader=0)
    assert result.error_code == ErrorCode.FENCED_STATE_EPOCH
    assert result.error_message == "The coordinator rejected the request because the state epoch did not match."


# --- whole requests ---


def write_request(*partitions: WritePartition, group_id: str = "sg") -> StateRequest:
    return StateRequest(group_id, (StateTopic(TOPIC_ID, partitions),))


@pytest.mark.parametrize(
    "request_",
    [
        StateRequest("sg"),
        write_request(),
        write_request(WritePartition(0), group_id=""),
        StateRequest("sg", (StateTopic(TOPIC_ID, (WritePartition(0),)), StateTopic(OTHER_ID))),
    ],
    ids=["no-topic", "no-partition", "no-group", "one-topic-without-partition"],
)
def test_a_request_which_says_nothing_has_an_empty_answer(request_: StateRequest) -> None:
    """Kafka answers without a word, and serves no part of the request."""
    live = Live()
    live.initialize()
    outcome = live.coordinator.handle("write_state", request_, now_ms=0)
    assert (outcome.response, outcome.records) == (Response(), ())


def test_of_a_partition_named_twice_the_last_result_is_given() -> None:
    """Both are served, in order (the service keeps one future for a partition)."""
    live = Live()
    live.initialize()
    request = write_request(WritePartition(0, 3, -1, 10, 1, ACK), WritePartition(0, 2, -1, 10, 2, ACK))
    outcome = live.coordinator.handle("write_state", request, now_ms=0)
    fenced = PartitionResult(0, ErrorCode.FENCED_STATE_EPOCH, MESSAGES["state"])
    assert outcome.response == Response((TopicResult(TOPIC_ID, (fenced,)),))
    assert len(outcome.records) == 1


def test_an_operation_which_is_none_is_distinguished_from_a_refusal() -> None:
    """Nobody can send it: it is the caller's mistake."""
    live = Live()
    with pytest.raises(UnknownOperation):
        live.coordinator.handle("forget_state", StateRequest(""), now_ms=0)
    with pytest.raises(UnknownOperation):
        live.run("forget_state", DeletePartition(0))


# --- a log which fails ---


class FailingLog(MemoryLog):
    """Refuses whatever is appended."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__()
        self.code = code

    def append(self, records: Sequence[ShareStateRecord], timestamp_ms: int) -> int:
        raise Refused(self.code)


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_what_the_log_refuses_changes_nothing(code: ErrorCode, answer: ErrorCode) -> None:
    """The answer has the error which a client may act on, with the text of the log's."""
    live = Live()
    live.initialize()
    shard = live.coordinator.shard
    live.coordinator.log = FailingLog(code)
    result = live.write()
    assert result.error_code == answer
    assert result.error_message == f"Unable to write share group state: {Refused(code).message}"
    assert live.coordinator.shard is shard
    assert live.written == ()


def test_a_job_which_the_log_refuses_says_so() -> None:
    """Nobody waits for its answer; the next run tries again."""
    live = Live(cold_ms=10)
    live.initialize()
    log, live.coordinator.log = live.coordinator.log, FailingLog(ErrorCode.NOT_ENOUGH_REPLICAS)
    outcome = live.coordinator.advance(1010)
    assert outcome.error is not None
    assert outcome.error.code == ErrorCode.NOT_ENOUGH_REPLICAS
    live.coordinator.log = log
    assert len(live.coordinator.advance(1020).records) == 1


# --- jobs ---


def test_cold_share_partitions_get_a_snapshot_each() -> None:
    """Cold: its last snapshot is as old as the interval, updates or not. The creation time stays."""
    live = Live(cold_ms=5000)
    live.initialize(key=KEY._replace(partition=2))
    live.initialize()
    live.write()
    live.now_ms = 1001
    live.initialize(key=KEY._replace(partition=1))
    outcome = live.coordinator.snapshot_cold_partitions(now_ms=6000)
    assert [entry.record.key.partition for entry in outcome.records] == [0, 2]
    assert outcome.records[0].record.value == ShareSnapshot(1, 3, 0, 10, 3, 1000, 6000, ACK)


def test_deleted_topics_are_cleaned_up_after_in_every_group() -> None:
    """The metadata say what is gone; the state of other topics stays."""
    live = Live()
    live.initialize(key=SharePartitionKey("b", TOPIC_ID, 1))
    live.initialize(key=SharePartitionKey("a", TOPIC_ID, 3))
    live.initialize(key=SharePartitionKey("a", OTHER_ID, 0))
    outcome = live.coordinator.update_metadata(IMAGE.without_topic("orders"), now_ms=2000)
    assert [entry.record for entry in outcome.records] == [
        ShareStateRecord(SharePartitionKey("a", TOPIC_ID, 3), None),
        ShareStateRecord(SharePartitionKey("b", TOPIC_ID, 1), None),
    ]
    assert list(live.coordinator.shard.share_partitions) == [SharePartitionKey("a", OTHER_ID, 0)]
    assert live.coordinator.update_metadata(live.coordinator.image, now_ms=3000).records == ()


def test_the_log_is_pruned_up_to_the_oldest_snapshot_which_is_needed() -> None:
    """Once for each offset: a log which was pruned is not asked again."""
    live = Live(updates=1)
    live.initialize()
    live.initialize(key=KEY._replace(partition=1))
    live.write()
    live.write()
    assert live.coordinator.redundant_offset() == 101
    live.log.delete_records(101)
    live.coordinator.records_deleted(101)
    assert live.coordinator.redundant_offset() is None
    assert [entry.offset for entry in live.log.entries] == [101, 102, 103]
    shard = empty_shard(live.coordinator.config)
    for entry in live.log.entries:
        shard = replay_record(shard, entry.record, entry.offset)
    assert shard.share_partitions[KEY].state_batches == live.state().state_batches


def test_jobs_run_at_their_own_time() -> None:
    """Cold snapshots and pruning, each at its interval; a long pause is made up for step by step."""
    live = Live(cold_ms=200_000)
    live.initialize()
    assert live.coordinator.next_deadline_ms() == 201_000
    assert live.coordinator.advance(200_999).records == ()
    outcome = live.coordinator.advance(301_000)
    assert [entry.timestamp_ms for entry in outcome.records] == [201_000]
    assert outcome.delete_before_offset == 101
    assert live.coordinator.next_deadline_ms() == 401_000


@pytest.mark.parametrize(
    "settings",
    [
        lambda: ShareCoordinatorConfig(updates_per_snapshot=-1),
        lambda: ShareCoordinatorConfig(updates_per_snapshot=501),
        lambda: ShareCoordinatorConfig(cold_partition_snapshot_interval_ms=0),
        lambda: ShareCoordinatorConfig(prune_interval_ms=0),
    ],
)
def test_settings_which_kafka_refuses_are_refused(settings: Callable[[], ShareCoordinatorConfig]) -> None:
    """The bounds of ShareCoordinatorConfig."""
    with pytest.raises(ValueError, match=r"share coordinator|updates"):
        settings()
