"""Archiving in memory: records that need no delivery any more, because the log or a transaction has dropped them.

It is not persisted. The start offset of the next write reflects it, and records above that are found again after a
restart.
"""

from typing import NamedTuple

from coordinator_core.live.share_partition.in_flight import AVAILABLE, InFlightBatch
from coordinator_core.live.share_partition.state import SharePartition
from coordinator_core.live.share_partition.states import TERMINAL, RecordState


def archive_between(
    partition: SharePartition,
    first_offset: int,
    last_offset: int,
    batches: list[InFlightBatch],
    from_state: RecordState,
) -> int:
    """Archive the offsets of the range that are in `from_state`; `batches` ascend. Returns the number of offsets.

    The delivery complete count stays: not every caller may raise it. Source: SharePartition.archiveRecords.
    """
    archived_count = 0
    for batch in batches:
        if batch.first_offset > last_offset:
            break
        if batch.whole is not None:
            if batch.whole.state is not from_state:
                continue
            if batch.is_within(first_offset, last_offset):
                batch.whole.archive(partition.locks)
                archived_count += batch.record_count
                continue
            batch.split(partition.locks)
        for _, state in batch.states_between(first_offset, last_offset):
            if state.state is from_state:
                state.archive(partition.locks)
                archived_count += 1
    return archived_count


def archive_stale_batches(partition: SharePartition, fetch_offset: int, first_offset: int) -> None:
    """Archive available records from the fetch offset up to the first batch that the log still has.

    Compaction has removed them since the previous fetch. Source: SharePartition.maybeArchiveStaleBatches.
    """
    if fetch_offset >= first_offset or not len(partition.cached):
        return
    floor = partition.cached.floor(fetch_offset)
    from_offset = floor.first_offset if floor is not None and floor.last_offset >= fetch_offset else fetch_offset
    batches = partition.cached.between(from_offset, first_offset - 1)
    archived_count = archive_between(partition, fetch_offset, first_offset - 1, batches, AVAILABLE)
    if archived_count:
        partition.delivery_complete_count += archived_count
        partition.find_next_fetch_offset = True


class Undelivered(NamedTuple):
    """Records that no member has acquired or finished; `last_offset` is inclusive."""

    first_offset: int
    last_offset: int
    delivery_count: int


def undelivered_below(partition: SharePartition, log_start_offset: int) -> list[Undelivered]:
    """What the group loses when the data log begins at `log_start_offset`: records that are available or were never
    fetched.

    Accepted, rejected and archived records are not lost, and acquired ones still belong to a member.
    """
    found: list[Undelivered] = []

    def add(first_offset: int, last_offset: int, count: int) -> None:
        last = found[-1] if found else None
        if last is not None and last.last_offset == first_offset - 1 and last.delivery_count == count:
            found[-1] = last._replace(last_offset=last_offset)
        elif first_offset <= last_offset:
            found.append(Undelivered(first_offset, last_offset, count))

    following = partition.start_offset
    for batch in partition.cached:
        if batch.first_offset >= log_start_offset:
            break
        add(following, batch.first_offset - 1, 0)
        last_offset = min(batch.last_offset, log_start_offset - 1)
        if batch.whole is not None:
            if batch.whole.state is AVAILABLE:
                add(max(batch.first_offset, partition.start_offset), last_offset, batch.whole.delivery_count)
        else:
            for offset, state in batch.states_between(partition.start_offset, last_offset):
                if state.state is AVAILABLE:
                    add(offset, offset, state.delivery_count)
        following = max(following, last_offset + 1)
    add(following, log_start_offset - 1, 0)
    return found


def update_log_start_offset(partition: SharePartition, log_start_offset: int) -> None:
    """The data log now begins at `log_start_offset`; the window starts there too if it started before.

    Available records below it are archived. Acquired ones stay acquired until they are released, and then become
    ARCHIVED. Source: SharePartition.updateCacheAndOffsets.
    """
    if log_start_offset <= partition.start_offset:
        return
    if not len(partition.cached):
        partition.start_offset = partition.end_offset = log_start_offset
        partition.delivery_complete_count = 0
        return
    # Before archiving: records archived now were never counted as complete.
    passed_count = _terminal_record_count(partition, log_start_offset - 1)
    batches = list(partition.cached)
    if archive_between(partition, partition.start_offset, log_start_offset - 1, batches, AVAILABLE):
        partition.find_next_fetch_offset = True
    partition.start_offset = log_start_offset
    partition.delivery_complete_count -= passed_count
    partition.end_offset = max(partition.end_offset, log_start_offset)


def _terminal_record_count(partition: SharePartition, last_offset: int) -> int:
    """Terminal offsets from the start offset to `last_offset` (SharePartition.countTerminalRecordsUpToNewLSO)."""
    count = 0
    for batch in partition.cached:
        if batch.first_offset > last_offset:
            break
        if batch.whole is not None:
            if batch.whole.state in TERMINAL:
                count += partition.record_count_from_start(batch.first_offset, min(batch.last_offset, last_offset))
            continue
        states = batch.states_between(partition.start_offset, last_offset)
        count += sum(state.state in TERMINAL for _, state in states)
    return count
