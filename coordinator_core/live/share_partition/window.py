"""The window from start to end offset: where to fetch next, and how far the start offset may move."""

from coordinator_core.live.share_partition.in_flight import AVAILABLE
from coordinator_core.live.share_partition.state import SharePartition


def next_fetch_offset(partition: SharePartition) -> int:
    """The next offset to read from the log (SharePartition.nextFetchOffset).

    The first offset that is available or in the gap window; without one, the offset after the end of the window, and
    `find_next_fetch_offset` is cleared.
    """
    cached = partition.cached
    if not len(cached) or partition.start_offset > cached.last.last_offset:
        # Nothing is in flight: the end offset itself was never fetched.
        partition.find_next_fetch_offset = False
        return partition.end_offset
    if not partition.find_next_fetch_offset:
        return partition.end_offset + 1
    gap_window = partition.gap_window if partition.is_gap_window_active else None
    gap_start_offset = gap_window.gap_start_offset if gap_window is not None else -1
    for batch in cached:
        if gap_window is not None:
            if batch.first_offset > gap_start_offset:
                return gap_start_offset
            # Offsets before the gap's start were fetched since, or do not exist.
            gap_start_offset = max(batch.last_offset + 1, gap_start_offset)
        if batch.whole is not None:
            if batch.whole.state is AVAILABLE and batch.whole.rollback is None:
                return batch.first_offset
        else:
            assert batch.offsets is not None
            for offset, state in enumerate(batch.offsets, batch.first_offset):
                if state.state is AVAILABLE and state.rollback is None:
                    return offset
    partition.find_next_fetch_offset = False
    return partition.end_offset + 1


def can_acquire_records(partition: SharePartition) -> bool:
    """Whether there is room in flight, or records in flight to deliver again (SharePartition.canAcquireRecords)."""
    if next_fetch_offset(partition) != partition.end_offset + 1:
        return True
    return partition.in_flight_record_count < partition.config.in_flight_records_max


def advance_start_offset(partition: SharePartition) -> bool:
    """Move the start offset over settled offsets, and drop batches below it. Returns whether it may have moved.

    It stops at the first record that is not final or has a pending write, and at a gap that is still to be fetched. If
    the log start offset had moved it beyond the records in flight, it may fall back to their end, or to the gap; Kafka
    4.3.1 does so, and the next fetch, which is out of the log's range, corrects it. Source:
    SharePartition.maybeUpdateCachedStateAndOffsets.
    """
    if not _can_move_start_offset(partition):
        return False
    settled_offset, settled_record_count = _last_settled_offset(partition)
    if settled_offset is None:
        return False
    cached = partition.cached
    last_offset = cached.last.last_offset
    if settled_offset == last_offset:
        partition.start_offset = partition.end_offset = last_offset + 1
        partition.delivery_complete_count = 0
        cached.clear()
        return True
    batch = cached.floor(settled_offset)
    assert batch is not None
    if settled_offset == batch.last_offset:
        following_offset = cached.next_first_offset(settled_offset)
        assert following_offset is not None
        # Offsets between two batches do not exist in the log, unless they are in the gap window.
        partition.start_offset = max(partition.start_offset, following_offset)
        if partition.gap_window is not None and partition.is_gap_window_active:
            partition.start_offset = min(partition.gap_window.gap_start_offset, partition.start_offset)
        cached.drop_before(following_offset)
    else:
        partition.start_offset = max(partition.start_offset, settled_offset + 1)
        cached.drop_before(batch.first_offset)
    partition.delivery_complete_count -= settled_record_count
    return True


def _can_move_start_offset(partition: SharePartition) -> bool:
    """Whether the record at the start offset is settled (SharePartition.canMoveStartOffset)."""
    batch = partition.cached.floor(partition.start_offset)
    if batch is None:
        # A gap at the very start, or nothing in flight.
        return False
    if batch.whole is not None:
        return batch.whole.is_settled
    assert batch.offsets is not None
    if partition.start_offset > batch.last_offset:
        # The log start offset moved into a hole, or beyond everything in flight.
        return False
    at = partition.start_offset - batch.first_offset
    return batch.offsets[at].is_settled


def _last_settled_offset(partition: SharePartition) -> tuple[int | None, int]:
    """The last offset before the first unsettled one, and the number of offsets from the start to it.

    Source: SharePartition.findLastOffsetAcknowledgedAndMetadata.
    """
    settled_offset, record_count = None, 0
    gap_window = partition.gap_window if partition.is_gap_window_active else None
    for batch in partition.cached:
        if gap_window is not None and batch.last_offset >= gap_window.gap_start_offset:
            break
        count = batch.settled_count()
        if count:
            settled_offset = batch.first_offset + count - 1
            record_count += partition.record_count_from_start(batch.first_offset, settled_offset)
        if count < batch.record_count:
            break
    return settled_offset, record_count
