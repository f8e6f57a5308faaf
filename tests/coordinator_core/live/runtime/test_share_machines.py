"""Tests of the share coordinator under the runtime."""

import itertools

import pytest

from coordinator_core.bytes.log.batch import Record, build_batch, build_marker
from coordinator_core.bytes.log.records import iter_records
from coordinator_core.live.coordinator.image import MetadataImage, Topic, image_of
from coordinator_core.live.coordinator.records import Producer
from coordinator_core.live.runtime.loader import load
from coordinator_core.live.runtime.messages import Answer, EndTransaction, Request
from coordinator_core.live.runtime.partition import PartitionLog
from coordinator_core.live.runtime.runtime import CoordinatorRuntime
from coordinator_core.live.runtime.share_machines import (
    ShareMachines,
    SharePartitionRequest,
    partition_requests,
    result_of,
)
from coordinator_core.live.runtime.states import CoordinatorState
from coordinator_core.live.share_state.config import ShareCoordinatorConfig
from coordinator_core.live.share_state.messages import (
    InitializePartition,
    PartitionData,
    PartitionResult,
    ReadPartition,
    StateRequest,
    StateTopic,
    WritePartition,
)
from coordinator_core.replay.lookup import SharePartitionKey
from coordinator_core.replay.share_state.combine import StateBatch
from schemas.error_codes import ErrorCode
from schemas.share_group_state import TOPIC

PARTITION = 11
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
KEY = SharePartitionKey("sg", TOPIC_ID, 3)
IMAGE = image_of([Topic("t", TOPIC_ID, 8)])
START_MS = 1_700_000_000_000


class Broker:
    """The leader of one partition, with followers where asked for."""

    def __init__(self, replicas: tuple[int, ...] = (0,), log: PartitionLog | None = None) -> None:
        self.log = log or PartitionLog(TOPIC, PARTITION, replicas, min_insync_replicas=2)
        self.kind = ShareMachines(ShareCoordinatorConfig(updates_per_snapshot=2))
        self.runtime = CoordinatorRuntime(replicas[0], self.kind, image=IMAGE)
        self.now_ms = START_MS
        self.requests: dict[int, Request] = {}
        self.answers: dict[int, Answer] = {}
        self.runtime.load(self.log, now_ms=self.now_ms)
        self.run()

    def run(self) -> None:
        for answer in self.runtime.run(self.now_ms):
            self.answers[answer.request_id] = answer

    def send(self, operation: str, data: PartitionData, key: SharePartitionKey = KEY) -> int:
        number = len(self.requests) + 1
        self.requests[number] = Request(operation, SharePartitionRequest(key, data), number)
        self.runtime.submit(PARTITION, self.requests[number])
        self.run()
        return number

    def initialize(self, start_offset: int = 0, key: SharePartitionKey = KEY) -> int:
        return self.send("initialize_state", InitializePartition(key.partition, 1, start_offset), key)

    def write(self, start_offset: int, key: SharePartitionKey = KEY) -> int:
        batch = StateBatch(start_offset, start_offset + 9, 0, 1)
        data = WritePartition(key.partition, 1, 0, start_offset, 0, (batch,))
        return self.send("write_state", data, key)

    def read(self, operation: str = "read_state") -> int:
        return self.send(operation, ReadPartition(KEY.partition))

    def result(self, number: int) -> object:
        return result_of(self.requests[number], self.answers[number])

    def replicate(self) -> None:
        self.log.replicate()
        self.run()


def test_a_refused_write_is_answered_with_the_error_and_taken_back() -> None:
    """In the words of the share coordinator."""
    broker = Broker((0, 1))
    broker.initialize(5)
    broker.replicate()
    broker.log.shrink_isr(1)
    number = broker.write(6)
    result = broker.result(number)
    assert isinstance(result, PartitionResult)
    assert result.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (result.error_message or "").startswith("Unable to write share group state: ")
    broker.log.replicate((1,))
    broker.log.replicate((1,))
    read = broker.read()
    broker.replicate()
    assert broker.result(read).start_offset == 5  # type: ignore[attr-defined]


def test_another_broker_goes_on_from_the_log() -> None:
    """Snapshots and updates are read back; so are tombstones."""
    broker = Broker((0, 1))
    broker.initialize()
    for start_offset in (1, 2, 3):
        broker.write(start_offset)
    other_key = SharePartitionKey("sg", TOPIC_ID, 4)
    broker.initialize(key=other_key)
    broker.runtime.update_metadata(MetadataImage(), ["t"])
    broker.replicate()
    broker.replicate()
    coordinator = broker.runtime.coordinators[PARTITION]
    assert coordinator.machine is not None
    state = coordinator.machine.state
    assert len(state.share_partitions) == 0
    broker.log.elect(1)
    other = Broker((1,), broker.log).runtime.coordinators[PARTITION]
    assert other.state is CoordinatorState.ACTIVE
    assert other.machine is not None
    assert other.machine.state == state
    keys = [record.key for batch in broker.log.batches() for record in iter_records(batch.data)]
    assert len(keys) == 7


def test_the_log_is_not_pruned_while_a_commit_fails() -> None:
    """The time-out of the write ends the job; it comes again after its interval."""
    broker = Broker((0, 1))
    broker.initialize()
    for start_offset in range(1, 8):
        broker.write(start_offset)
    broker.now_ms = START_MS + 300_000
    broker.run()
    broker.now_ms += 5000
    broker.run()
    broker.replicate()
    assert broker.log.log_start_offset == 0
    broker.now_ms = START_MS + 600_000
    broker.run()
    broker.replicate()
    assert broker.log.log_start_offset > 0


def test_what_another_kafka_or_a_transaction_left_in_the_log_is_passed_over() -> None:
    """A record of an unknown type and a marker change nothing; a key that cannot be read fails the coordinator."""
    broker = Broker()
    broker.initialize()
    broker.runtime.handle(PARTITION, EndTransaction(Producer(1, 1), True, 0, 99), now_ms=START_MS)
    log = broker.log
    marker = build_marker(
        offset=0, timestamp_ms=1, producer_id=1, producer_epoch=1, is_commit=True, coordinator_epoch=0
    )
    log.append(0, marker)
    log.append(0, build_batch([Record(0, 1, b"\x03\xe7rest", b"\0\0")]))
    state = load(broker.kind, log)
    assert KEY in state.share_partitions
    assert Broker(log=log).runtime.coordinators[PARTITION].state is CoordinatorState.ACTIVE
    log.append(0, build_batch([Record(0, 1, b"\0\0\0", b"\0\0")]))
    failed = Broker(log=log)
    assert failed.runtime.coordinators[PARTITION].state is CoordinatorState.FAILED
    number = failed.read()
    assert failed.result(number).error_code == ErrorCode.NOT_COORDINATOR  # type: ignore[attr-defined]


def test_a_share_coordinator_which_moves_away_fails_what_is_not_committed() -> None:
    """While it loads it asks for patience."""
    broker = Broker((0, 1))
    number = broker.initialize()
    for answer in broker.runtime.unload(PARTITION, None, now_ms=broker.now_ms):
        broker.answers[answer.request_id] = answer
    assert broker.result(number).error_code == ErrorCode.NOT_COORDINATOR  # type: ignore[attr-defined]
    broker.log.elect(0)
    broker.runtime.load(broker.log, now_ms=broker.now_ms, duration_ms=10)
    number = broker.read()
    assert broker.result(number).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # type: ignore[attr-defined]


@pytest.mark.parametrize("count", [1, 50])
def test_a_request_is_taken_apart_by_share_partition(count: int) -> None:
    """Each goes to the coordinator partition of its own key, in the order of the request."""
    request = StateRequest(
        "sg", (StateTopic(TOPIC_ID, (ReadPartition(3), ReadPartition(4))), StateTopic("A" * 22, (ReadPartition(0),)))
    )
    parts = partition_requests("read_state", request, count, itertools.count(10))
    assert [(part.message.key, part.request_id) for _, part in parts] == [
        (KEY, 10),
        (SharePartitionKey("sg", TOPIC_ID, 4), 11),
        (SharePartitionKey("sg", "A" * 22, 0), 12),
    ]
    assert parts[0][0] == (11 if count == 50 else 0)
