"""The decisions of each operation on a share partition: the records to write and the result (ShareCoordinatorShard).

A command is a pure function `(view, key, request for the partition) -> Decision`. `OPERATIONS` lists them all, each
with the checks that precede it, in Kafka's order: the first check that fails gives the result.

Kafka also refuses a topic id of null, which no request can contain.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from coordinator_core.bytes.kafka_versions import KafkaVersion, Since
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.image import MetadataImage
from coordinator_core.live.share_state.config import ShareCoordinatorConfig
from coordinator_core.live.share_state.messages import (
    NO_CHECK,
    DeletePartition,
    InitializePartition,
    PartitionResult,
    ReadPartition,
    ReadResult,
    Result,
    SummaryResult,
    WritePartition,
)
from coordinator_core.live.share_state.records import ShareStateRecord
from coordinator_core.replay.java.hash_codes import share_partition_key_hash_code
from coordinator_core.replay.java.hash_map import in_hash_order
from coordinator_core.replay.java.timeline import timeline_order
from coordinator_core.replay.lookup import SharePartitionKey
from coordinator_core.replay.share_state.combine import UNSET_OFFSET, combine_state_batches
from coordinator_core.replay.share_state.state import (
    UNCHANGED,
    UNKNOWN_COUNT,
    SharePartition,
    ShareShard,
    ShareSnapshot,
    ShareUpdate,
)
from schemas.error_codes import ErrorCode


class View(NamedTuple):
    """The input of a command. Time is epoch milliseconds."""

    shard: ShareShard
    image: MetadataImage
    config: ShareCoordinatorConfig
    now_ms: int


class Decision(NamedTuple):
    """The records to write, in order, and the result once they are written."""

    records: tuple[ShareStateRecord, ...]
    result: Result


STATE_EPOCH_DID_NOT_MATCH: Final = "The coordinator rejected the request because the state epoch did not match."
"""Message of FENCED_STATE_EPOCH since 4.4."""

Check = Callable[[View, SharePartitionKey, Any], None]
"""Raises Refused with the error of the response, else lets the request pass."""
Command = Callable[[View, SharePartitionKey, Any], Decision]


# --- checks ---


def check_partition(view: View, key: SharePartitionKey, request: Any) -> None:
    if key.partition < 0:
        raise Refused(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")


def check_leader_epoch_is_valid(view: View, key: SharePartitionKey, request: WritePartition | ReadPartition) -> None:
    """Refuse a negative leader epoch, in releases where -1 is not a wildcard."""
    if request.leader_epoch < 0 and Since.NEGATIVE_EPOCHS_ARE_INVALID.holds_in(view.config.kafka_version):
        raise Refused(ErrorCode.INVALID_REQUEST, "The leader epoch cannot be a negative number.")


def check_state_epoch_is_valid(
    view: View, key: SharePartitionKey, request: WritePartition | InitializePartition
) -> None:
    """Refuse a negative state epoch, in releases where -1 is not a wildcard."""
    if request.state_epoch < 0 and Since.NEGATIVE_EPOCHS_ARE_INVALID.holds_in(view.config.kafka_version):
        raise Refused(ErrorCode.INVALID_REQUEST, "The state epoch cannot be a negative number.")


def check_initialized_to_write(view: View, key: SharePartitionKey, request: Any) -> None:
    """Refuse a write to a share partition that was never initialized, or was deleted."""
    if key not in view.shard.share_partitions:
        raise Refused(ErrorCode.INVALID_REQUEST, "Write operation on uninitialized share partition not allowed.")


def check_initialized_to_read(view: View, key: SharePartitionKey, request: Any) -> None:
    """Refuse to read a share partition that was never initialized, or was deleted."""
    if key not in view.shard.share_partitions:
        raise Refused(ErrorCode.INVALID_REQUEST, "Read operation on uninitialized share partition not allowed.")


def check_leader_epoch(view: View, key: SharePartitionKey, request: WritePartition | ReadPartition) -> None:
    """Fence an earlier leader of the data partition."""
    highest = view.shard.leader_epochs.get(key)
    if request.leader_epoch != NO_CHECK and highest is not None and highest > request.leader_epoch:
        raise Refused(ErrorCode.FENCED_LEADER_EPOCH)


def check_state_epoch(view: View, key: SharePartitionKey, request: WritePartition | InitializePartition) -> None:
    """Fence a request with a state epoch from before the last initialization."""
    highest = view.shard.state_epochs.get(key)
    if request.state_epoch != NO_CHECK and highest is not None and highest > request.state_epoch:
        if Since.STATE_EPOCH_MESSAGE_NAMES_NO_SHARE_GROUP.holds_in(view.config.kafka_version):
            raise Refused(ErrorCode.FENCED_STATE_EPOCH, STATE_EPOCH_DID_NOT_MATCH)
        raise Refused(ErrorCode.FENCED_STATE_EPOCH)


def check_topic(view: View, key: SharePartitionKey, request: Any) -> None:
    """Refuse a partition that the cluster does not have."""
    topic = view.image.topic_of_id(key.topic_id)
    if topic is None or topic.partition_count <= key.partition:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


# --- commands ---


def initialize_state(view: View, key: SharePartitionKey, request: InitializePartition) -> Decision:
    """Begin a state, or reset it: a snapshot without batches, whose epoch follows that of the state before.

    Source: ShareCoordinatorShard.initializeState, ShareGroupOffset.fromRequest.
    """
    before = view.shard.share_partitions.get(key)
    has_count = Since.SHARE_STATE_COUNTS_COMPLETE.holds_in(view.config.kafka_version)
    snapshot = ShareSnapshot(
        snapshot_epoch=0 if before is None else before.snapshot_epoch + 1,
        state_epoch=request.state_epoch,
        leader_epoch=0,
        start_offset=request.start_offset,
        delivery_complete_count=0 if has_count and request.start_offset != UNSET_OFFSET else UNKNOWN_COUNT,
        create_timestamp_ms=view.now_ms,
        write_timestamp_ms=view.now_ms,
        state_batches=(),
    )
    return Decision((ShareStateRecord(key, snapshot),), PartitionResult(key.partition))


def write_state(view: View, key: SharePartitionKey, request: WritePartition) -> Decision:
    """Write the changes. The leader epoch stays that of the last read (ShareCoordinatorShard.writeState)."""
    state = view.shard.share_partitions[key]
    return Decision((_state_record(view, key, state, request, state.leader_epoch),), PartitionResult(key.partition))


def read_state(view: View, key: SharePartitionKey, request: ReadPartition) -> Decision:
    """Return the state to the current leader of the data partition; a new leader epoch is recorded.

    Source: ShareCoordinatorShard.readStateAndMaybeUpdateLeaderEpoch.
    """
    state = view.shard.share_partitions[key]
    result = ReadResult(
        key.partition,
        state_epoch=state.state_epoch,
        start_offset=state.start_offset,
        state_batches=state.state_batches,
    )
    if request.leader_epoch in (NO_CHECK, view.shard.leader_epochs.get(key)):
        return Decision((), result)
    unchanged = WritePartition(
        key.partition,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
    )
    return Decision((_state_record(view, key, state, unchanged, request.leader_epoch),), result)


def _state_record(
    view: View, key: SharePartitionKey, state: SharePartition, request: WritePartition, leader_epoch: int
) -> ShareStateRecord:
    """An update, or a snapshot once the number of updates has reached the limit (generateShareStateRecord)."""
    version = view.config.kafka_version
    value: ShareSnapshot | ShareUpdate
    request = _with_progress_of(state, request, version)
    if view.shard.update_counts.get(key, 0) < view.config.updates_per_snapshot:
        value = ShareUpdate(
            state.snapshot_epoch,
            leader_epoch,
            request.start_offset,
            request.delivery_complete_count,
            # The batches of one write may overlap each other.
            combine_state_batches((), request.state_batches, request.start_offset, version),
        )
        return ShareStateRecord(key, value)
    start_offset = state.start_offset if request.start_offset == UNCHANGED else request.start_offset
    value = state.next_snapshot(
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=request.delivery_complete_count,
        create_timestamp_ms=view.now_ms,
        write_timestamp_ms=view.now_ms,
        state_batches=combine_state_batches(state.state_batches, request.state_batches, start_offset, version),
    )
    return ShareStateRecord(key, value)


def _with_progress_of(state: SharePartition, request: WritePartition, version: KafkaVersion) -> WritePartition:
    """The write, changed so that it lowers neither start offset nor delivery complete count, in releases that ensure
    this.

    In a write from below the start offset, the count belongs to an older state; at the same start offset, two writes
    may have arrived in the wrong order. Before Kafka 4.2 no count is written.
    """
    if not Since.SHARE_STATE_COUNTS_COMPLETE.holds_in(version):
        return replace(request, delivery_complete_count=UNKNOWN_COUNT)
    if not Since.SHARE_WRITES_KEEP_PROGRESS.holds_in(version) or request.start_offset > state.start_offset:
        return request
    count = state.delivery_complete_count
    if request.start_offset == state.start_offset:
        count = max(count, request.delivery_complete_count)
    return replace(request, start_offset=state.start_offset, delivery_complete_count=count)


def read_state_summary(view: View, key: SharePartitionKey, request: ReadPartition) -> Decision:
    """Return the state without its batches. No request is fenced, and an uninitialized state is not an error.

    Source: ShareCoordinatorShard.readStateSummary.
    """
    state = view.shard.share_partitions.get(key)
    if state is None:
        return Decision((), SummaryResult(key.partition, start_offset=UNSET_OFFSET))
    result = SummaryResult(
        key.partition,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
    )
    return Decision((), result)


def delete_state(view: View, key: SharePartitionKey, request: DeletePartition) -> Decision:
    """Write a tombstone, or nothing if there is no state (ShareCoordinatorShard.deleteState)."""
    records = (ShareStateRecord(key, None),) if key in view.shard.share_partitions else ()
    return Decision(records, PartitionResult(key.partition))


class Operation(NamedTuple):
    """How the share coordinator serves one request."""

    checks: tuple[Check, ...]
    command: Command
    refused: Callable[..., Result]
    """Makes the result for an error: (partition, error code, error message)."""
    failure: str
    """Prefix of the message for an error that the request did not cause (ShareCoordinatorService)."""


OPERATIONS: Final[Mapping[str, Operation]] = {
    "initialize_state": Operation(
        checks=(check_partition, check_state_epoch_is_valid, check_state_epoch, check_topic),
        command=initialize_state,
        refused=PartitionResult,
        failure="Unable to initialize share group state: ",
    ),
    "write_state": Operation(
        checks=(
            check_partition,
            check_leader_epoch_is_valid,
            check_state_epoch_is_valid,
            check_initialized_to_write,
            check_leader_epoch,
            check_state_epoch,
            check_topic,
        ),
        command=write_state,
        refused=PartitionResult,
        failure="Unable to write share group state: ",
    ),
    "read_state": Operation(
        checks=(
            check_partition,
            check_leader_epoch_is_valid,
            check_initialized_to_read,
            check_leader_epoch,
            check_topic,
        ),
        command=read_state,
        refused=ReadResult,
        failure="Unable to read share group state: ",
    ),
    "read_state_summary": Operation(
        checks=(check_partition, check_topic),
        command=read_state_summary,
        refused=SummaryResult,
        failure="Unable to read share group state summary: ",
    ),
    "delete_state": Operation(
        checks=(check_partition, check_topic),
        command=delete_state,
        refused=PartitionResult,
        failure="Unable to delete share group state: ",
    ),
}


# --- jobs ---


def snapshots_of_cold_partitions(view: View) -> tuple[ShareStateRecord, ...]:
    """A snapshot of each share partition whose last one is as old as the interval; its creation time stays.

    Nothing if the last snapshot of every share partition is already a cold one: then nothing was written since. In
    the order of Kafka's hash map. Source: ShareCoordinatorShard.snapshotColdPartitions.
    """
    shard, share_partitions = view.shard, view.shard.share_partitions
    if all(state.create_timestamp_ms != state.write_timestamp_ms for state in share_partitions.values()):
        return ()
    interval_ms = view.config.cold_partition_snapshot_interval_ms
    walked = ((key, share_partitions[key]) for key in _in_table_order(shard))
    return tuple(
        ShareStateRecord(key, state.next_snapshot(write_timestamp_ms=view.now_ms))
        for key, state in walked
        if view.now_ms - state.write_timestamp_ms >= interval_ms
    )


def _in_table_order(shard: ShareShard) -> list[SharePartitionKey]:
    """Share partitions in the iteration order of Kafka's TimelineHashMap."""
    return timeline_order(shard.arrivals, shard.table_capacity, share_partition_key_hash_code)


def tombstones_of_topics(view: View, topic_ids: Iterable[str]) -> tuple[ShareStateRecord, ...]:
    """A tombstone for each share partition of deleted topics, in the order of Kafka's hash set.

    Source: ShareCoordinatorShard.maybeCleanupShareState.
    """
    deleted = frozenset(topic_ids)
    if not deleted:
        return ()
    walked = _in_table_order(view.shard)
    keys = in_hash_order((key for key in walked if key.topic_id in deleted), share_partition_key_hash_code)
    return tuple(ShareStateRecord(key, None) for key in keys)
