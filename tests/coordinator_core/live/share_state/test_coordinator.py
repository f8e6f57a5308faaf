"""The live share coordinator: its jobs, and what a failing log leaves behind. What requests write and answer is in
Kafka's traces (tests/conformance)."""

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
    ReadPartition,
    WritePartition,
)
from coordinator_core.live.share_state.records import ShareStateRecord, replay_record
from coordinator_core.replay.lookup import SharePartitionKey
from coordinator_core.replay.share_state.combine import StateBatch
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


def test_an_operation_which_is_none_is_distinguished_from_a_refusal() -> None:
    """Nobody can send it: it is the caller's mistake."""
    with pytest.raises(UnknownOperation):
        Live().run("forget_state", DeletePartition(0))


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
