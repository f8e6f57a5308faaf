"""The share coordinator under the runtime: one partition of `__share_group_state` (ShareCoordinatorService, KIP-932).

A request to the share coordinators names several share partitions, each with its own coordinator partition:
`partition_requests` splits it. The runtime's requests are for one share partition each, and `result_of` converts the
runtime's answer to its result in the response.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from coordinator_core.bytes.log.batch import Record
from coordinator_core.errors import UnknownRecordType
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.image import MetadataImage
from coordinator_core.live.coordinator.operation import Outcome
from coordinator_core.live.coordinator.records import NO_PRODUCER, Producer
from coordinator_core.live.runtime.batching import Batcher
from coordinator_core.live.runtime.machines import MachineKind, StateMachine
from coordinator_core.live.runtime.messages import NO_REQUEST, Answer, Request
from coordinator_core.live.share_state.commands import OPERATIONS
from coordinator_core.live.share_state.config import ShareCoordinatorConfig
from coordinator_core.live.share_state.coordinator import ShareCoordinator, empty_shard
from coordinator_core.live.share_state.messages import PartitionData, Result, StateRequest
from coordinator_core.live.share_state.records import ShareStateRecord, decode_record, encode_record, replay_record
from coordinator_core.replay.lookup import SharePartitionKey, share_partition_partition
from coordinator_core.replay.share_state.state import ShareShard
from schemas.share_group_state import TOPIC


class SharePartitionRequest(NamedTuple):
    """The part of a request for one share partition: the message of a runtime `Request`."""

    key: SharePartitionKey
    data: PartitionData


def partition_requests(
    operation: str, request: StateRequest, partition_count: int, request_ids: Iterator[int]
) -> list[tuple[int, Request]]:
    """(partition of `__share_group_state`, request) for each share partition of a request, in its order."""
    parts = []
    for topic in request.topics:
        for data in topic.partitions:
            key = SharePartitionKey(request.group_id, topic.topic_id, data.partition)
            partition = share_partition_partition(key, partition_count)
            message = SharePartitionRequest(key, data)
            parts.append((partition, Request(operation, message, next(request_ids, NO_REQUEST))))
    return parts


def result_of(request: Request, answer: Answer) -> Result:
    """The result for a share partition; if the coordinator or its log failed, that error with Kafka's message."""
    if answer.error is None:
        result: Result = answer.response
        return result
    operation = OPERATIONS[request.operation]
    message = operation.failure + answer.error.message
    return operation.refused(request.message.key.partition, answer.error.code, message)


class _RecordLog:
    """The batcher as a share coordinator's log: there are no transactions."""

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher

    def append(self, records: Sequence[ShareStateRecord], timestamp_ms: int) -> int:
        return self._batcher.append(records, NO_PRODUCER, timestamp_ms)


class ShareMachine(StateMachine):
    """A `ShareCoordinator` as a state machine. It has no tasks, and its requests wait only for the log."""

    def __init__(self, coordinator: ShareCoordinator, delete_records: Callable[[int], int]) -> None:
        self.coordinator = coordinator
        self._delete_records = delete_records

    @property
    def state(self) -> ShareShard:
        return self.coordinator.shard

    def revert(self, state: ShareShard) -> None:
        self.coordinator.revert(state)

    def handle(self, request: Request, now_ms: int) -> Outcome:
        """Serve the part of a request for one share partition."""
        key, data = request.message
        result, _ = self.coordinator.run(request.operation, key, data, now_ms=now_ms)
        return Outcome(result)

    def run_next_timer(self, now_ms: int) -> Outcome:
        """Run the jobs of the next deadline. The log is pruned once earlier records are committed."""
        deadline_ms = self.coordinator.next_deadline_ms()
        outcome = self.coordinator.advance(now_ms if deadline_ms is None else min(now_ms, deadline_ms))
        before_offset = outcome.delete_before_offset
        return Outcome(parked=() if before_offset is None else (lambda: self._prune(before_offset),))

    def resume(self, parked: Callable[[], None], error: Refused | None, now_ms: int) -> Outcome:
        """Prune, unless earlier records are lost."""
        if error is None:
            parked()
        return Outcome()

    def end_transaction(self, producer: Producer, *, is_commit: bool, now_ms: int) -> None:
        """Nothing: there are no transactions here, and a marker changes nothing."""

    def update_metadata(self, image: MetadataImage, changed_topics: Iterable[str], now_ms: int) -> Outcome:
        """Clean up after deleted topics."""
        self.coordinator.update_metadata(image, now_ms=now_ms)
        return Outcome()

    def next_deadline_ms(self) -> int | None:
        return self.coordinator.next_deadline_ms()

    def _prune(self, before_offset: int) -> None:
        self._delete_records(before_offset)
        self.coordinator.records_deleted(before_offset)


class ShareMachines(MachineKind):
    """Share coordinators for `__share_group_state`. No request is a read: Kafka schedules even the summary as a
    write."""

    topic = TOPIC

    def __init__(self, config: ShareCoordinatorConfig | None = None) -> None:
        self.config = config or ShareCoordinatorConfig()

    def empty_state(self) -> ShareShard:
        return empty_shard(self.config)

    def replay(self, state: ShareShard, record: Record, producer_id: int) -> ShareShard:
        try:
            decoded = decode_record(record.key or b"", record.value)
        except UnknownRecordType:
            return state
        return replay_record(state, decoded, record.offset)

    def start(self, state: ShareShard, batcher: Batcher, image: MetadataImage, now_ms: int) -> ShareMachine:
        coordinator = ShareCoordinator(
            now_ms=now_ms, config=self.config, image=image, log=_RecordLog(batcher), shard=state
        )
        return ShareMachine(coordinator, batcher.delete_records)

    def encode(self, record: Any) -> tuple[bytes, bytes | None]:
        """Key and value of a ShareStateRecord."""
        return encode_record(record)
