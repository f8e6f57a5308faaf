"""Replay of offset commits and of transaction markers, like OffsetMetadataManager.

Pure and slow: the compiled columnar replay (`columnar.py`) is tested against it, and the simulator uses it.
"""

from typing import Any, Final

from immutables import Map

from coordinator_core.replay.offsets.state import CommittedOffset, OffsetKey, OffsetsState

NO_PRODUCER_ID: Final = -1
"""RecordBatch.NO_PRODUCER_ID."""
NO_LEADER_EPOCH: Final = -1
"""RecordBatch.NO_PARTITION_LEADER_EPOCH."""
NO_EXPIRE_TIMESTAMP: Final = -1
"""OffsetCommitRequest.DEFAULT_TIMESTAMP."""
ZERO_UUID: Final = "A" * 22
"""Uuid.ZERO_UUID as text: the topic id is unknown."""


def committed_offset_of(value: Any, *, offset: int) -> CommittedOffset:
    """The committed offset in an OffsetCommitValue or LegacyOffsetCommitValue at log offset `offset`
    (OffsetAndMetadata.fromRecord).

    A legacy value has no leader epoch, expiry or topic id (as CoordinatorRecordHelpers converts it).
    """
    leader_epoch = getattr(value, "leader_epoch", NO_LEADER_EPOCH)
    expire_timestamp_ms = getattr(value, "expire_timestamp", NO_EXPIRE_TIMESTAMP)
    topic_id = getattr(value, "topic_id", ZERO_UUID)
    return CommittedOffset(
        record_offset=offset,
        committed_offset=value.offset,
        leader_epoch=None if leader_epoch == NO_LEADER_EPOCH else leader_epoch,
        metadata=value.metadata,
        commit_timestamp_ms=value.commit_timestamp,
        expire_timestamp_ms=None if expire_timestamp_ms == NO_EXPIRE_TIMESTAMP else expire_timestamp_ms,
        topic_id=None if topic_id == ZERO_UUID else topic_id,
    )


def replay_offset_commit(
    state: OffsetsState, key: Any, value: Any | None, *, offset: int, producer_id: int
) -> OffsetsState:
    """Apply one record of type 0 or 1 (OffsetMetadataManager.replay).

    `key` is an OffsetCommitKey or LegacyOffsetCommitKey, `value` its value or None for a tombstone, `offset` the
    record's log offset, `producer_id` that of the batch. Only the producer id makes a commit transactional: Kafka does
    not check the batch's transactional bit. A tombstone takes effect at once, in any batch.
    """
    offset_key = OffsetKey(key.group, key.topic, key.partition)
    if value is None:
        return _without(state, offset_key)
    committed = committed_offset_of(value, offset=offset)
    if producer_id == NO_PRODUCER_ID:
        return OffsetsState(state.offsets.set(offset_key, committed), state.pending, state.open_producers)
    pending: Map[OffsetKey, CommittedOffset] = state.pending.get(producer_id, Map())
    open_producers = state.open_producers.get(offset_key, frozenset())
    return OffsetsState(
        state.offsets,
        state.pending.set(producer_id, pending.set(offset_key, committed)),
        state.open_producers.set(offset_key, open_producers | {producer_id}),
    )


def replay_end_transaction_marker(state: OffsetsState, producer_id: int, committed: bool) -> OffsetsState:
    """Apply a COMMIT or ABORT marker of a producer (OffsetMetadataManager.replayEndTransactionMarker).

    The marker decides for all groups of the partition at once; the producer's epoch is not checked. On COMMIT a pending
    offset is stored only if its record is later in the log than the one in force: a plain commit between the
    transactional record and the marker wins. A marker without pending offsets changes nothing.
    """
    pending = state.pending.get(producer_id)
    if pending is None:
        return state
    offsets, open_producers = state.offsets, state.open_producers
    for key, value in pending.items():
        open_producers = _without_producer(open_producers, key, producer_id)
        in_force = offsets.get(key)
        if committed and (in_force is None or value.record_offset > in_force.record_offset):
            offsets = offsets.set(key, value)
    return OffsetsState(offsets, state.pending.delete(producer_id), open_producers)


def _without(state: OffsetsState, key: OffsetKey) -> OffsetsState:
    """Remove the key: the offset in force, and what any producer has pending for it. A missing key is fine."""
    offsets = state.offsets.delete(key) if key in state.offsets else state.offsets
    producers = state.open_producers.get(key)
    if producers is None:
        return OffsetsState(offsets, state.pending, state.open_producers)
    pending = state.pending
    for producer_id in producers:
        rest = pending[producer_id].delete(key)
        pending = pending.set(producer_id, rest) if rest else pending.delete(producer_id)
    return OffsetsState(offsets, pending, state.open_producers.delete(key))


def _without_producer(
    open_producers: Map[OffsetKey, frozenset[int]], key: OffsetKey, producer_id: int
) -> Map[OffsetKey, frozenset[int]]:
    rest = open_producers[key] - {producer_id}
    return open_producers.set(key, rest) if rest else open_producers.delete(key)
