"""What the coordinator of before Kafka 4.0 does to groups of offsets only.

A group of offsets only has no record of its own. The old coordinator (GroupMetadataManager.scala, Kafka 0.9 to 3.x)
drops it with its last offset, and writes a tombstone of a group only where its generation is above 0
(cleanupGroupMetadata). The coordinator since (GroupMetadataManager.java) keeps the group until it writes its tombstone.

A tombstone of the group does not end its offsets there: Kafka 0.9 writes one when the last member leaves, and the
offsets stay until they expire. Who loads such a log has an empty group with them (doLoadGroupsAndOffsets).

Which one wrote a batch shows in it: the old one numbers no records (base sequence -1, or a format without sequences),
the new one numbers them from 0. A batch that was packed from a dump, without a leader epoch, shows neither: nothing is
said of it.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from coordinator_core.log.chunk import I64, BatchColumns, BoolArray
from coordinator_core.offsets import kernels
from coordinator_core.offsets.columnar import ColumnarOffsetReplay, CommitColumns

_NO_SEQUENCE: Final = -1
_WITH_SEQUENCES: Final = 2
"""The first record format (magic) that has them, and leader epochs."""


class Death(NamedTuple):
    """The last offset of a group went, at the hands of the old coordinator."""

    group_id: str
    log_offset: int
    """Of its tombstone."""
    at_ms: int
    next_commit: tuple[int, int] | None
    """Log offset and time (epoch ms, -1: none) of the next commit to the group, where this chunk has one."""


class GroupTombstone(NamedTuple):
    """A tombstone of a classic group."""

    group_id: str
    log_offset: int
    last_offset: int
    """Of its operation."""


def is_of_old_coordinator(batches: BatchColumns) -> BoolArray:
    """For each batch: did the coordinator of before Kafka 4.0 write it? False where it does not show."""
    is_unnumbered = (batches.base_sequence == _NO_SEQUENCE) & (batches.leader_epoch >= 0) & (batches.producer_id < 0)
    is_old: BoolArray = ~batches.is_control & ((batches.magic < _WITH_SEQUENCES) | is_unnumbered)
    return is_old


def deaths_with_last_offset(
    batches: BatchColumns, commits: CommitColumns, columnar: ColumnarOffsetReplay
) -> Iterator[Death]:
    """Of a chunk that a columnar replay has just replayed. A group that an open transaction committed offsets of stays
    (GroupMetadata.hasOffsets).

    From how many offsets a group has at the end of the chunk, and what came and went in it, follows how many it had at
    each moment.
    """
    is_taken = (commits.change == kernels.CHANGE_DELETE) & commits.previous_offset_valid
    # what a transaction deletes, which no coordinator writes, may be of an earlier chunk
    deleted = np.flatnonzero(is_taken & (commits.producer_id < 0))
    if not len(deleted):
        return
    batch = np.searchsorted(batches.base_offset, commits.log_offset[deleted], side="right") - 1
    is_old = np.zeros(len(commits), np.bool_)
    is_old[deleted] = is_of_old_coordinator(batches)[batch] & (batch >= 0)
    if not is_old.any():
        return
    groups = np.unique(commits.group[is_old])
    counts = dict(zip(groups.tolist(), columnar.offset_counts(groups).tolist(), strict=True))
    changed = np.flatnonzero(np.isin(commits.group, groups) & ((commits.change == kernels.CHANGE_FIRST) | is_taken))
    # the records of one transaction are applied at one place
    order = np.lexsort((commits.log_offset[changed], commits.applied_log_offset[changed], commits.group[changed]))
    changed = changed[order]
    starts = np.flatnonzero(np.diff(commits.group[changed], prepend=-1)).tolist()
    for start, stop in zip(starts, [*starts[1:], len(changed)], strict=True):
        rows = changed[start:stop]
        group = int(commits.group[rows[0]])
        deltas = np.where(commits.change[rows] == kernels.CHANGE_FIRST, 1, -1)
        # what is left after each change: all at the end, less what came after it
        left = counts[group] - (deltas.sum() - np.cumsum(deltas))
        dying = rows[(left == 0) & (deltas < 0) & is_old[rows]]
        if len(dying):
            dying = dying[~_is_in_transaction(group, commits.log_offset[dying], batches, commits, columnar)]
        yield from _deaths(group, dying, commits, columnar)


def outlived_by_offsets(
    tombstones: Sequence[GroupTombstone], batches: BatchColumns, commits: CommitColumns, columnar: ColumnarOffsetReplay
) -> Iterator[GroupTombstone]:
    """Tombstones of the old coordinator whose group still has offsets after their operation, in a chunk that a columnar
    replay has just replayed. Those of Kafka 0.10 and later delete the offsets in the same operation."""
    if not tombstones:
        return
    offsets = np.array([it.log_offset for it in tombstones], np.int64)
    batch = np.searchsorted(batches.base_offset, offsets, side="right") - 1
    is_old = is_of_old_coordinator(batches)[batch] & (batch >= 0)
    of_old = {it.group_id for it, is_its in zip(tombstones, is_old.tolist(), strict=True) if is_its}
    codes = {group_id: code for code, group_id in enumerate(commits.groups) if group_id in of_old}
    if not codes:
        return
    groups = np.array(sorted(codes.values()), np.int32)
    counts = dict(zip(groups.tolist(), columnar.offset_counts(groups).tolist(), strict=True))
    is_taken = (commits.change == kernels.CHANGE_DELETE) & commits.previous_offset_valid
    changed = np.flatnonzero(np.isin(commits.group, groups) & ((commits.change == kernels.CHANGE_FIRST) | is_taken))
    for tombstone, is_its in zip(tombstones, is_old.tolist(), strict=True):
        code = codes.get(tombstone.group_id)
        if code is None or not is_its:
            continue
        later = changed[
            (commits.group[changed] == code) & (commits.applied_log_offset[changed] > tombstone.last_offset)
        ]
        came = int((commits.change[later] == kernels.CHANGE_FIRST).sum())
        if counts[code] - came + (len(later) - came) > 0:
            yield tombstone


def _is_in_transaction(
    group: int, places: I64, batches: BatchColumns, commits: CommitColumns, columnar: ColumnarOffsetReplay
) -> BoolArray:
    """For each place of the chunk: is a transaction open there that committed offsets of the group before?"""
    pending, _ = columnar.pending_of(group)
    rows = np.flatnonzero((commits.group == group) & commits.is_value & (commits.producer_id >= 0))
    offsets, producers = commits.log_offset[rows], commits.producer_id[rows]
    ends = np.full(len(rows), -1, np.int64)
    for producer_id in np.unique(producers).tolist():
        markers = batches.base_offset[batches.is_control & (batches.producer_id == producer_id)]
        own = np.flatnonzero(producers == producer_id)
        place = np.searchsorted(markers, offsets[own], side="right")
        own, place = own[place < len(markers)], place[place < len(markers)]
        ends[own] = markers[place]
    is_open = [bool((pending < place).any() or ((offsets < place) & (place < ends)).any()) for place in places.tolist()]
    return np.array(is_open, np.bool_)


def _deaths(group: int, dying: I64, commits: CommitColumns, columnar: ColumnarOffsetReplay) -> Iterator[Death]:
    if not len(dying):
        return
    decided = np.flatnonzero((commits.group == group) & commits.is_value)
    at_ms = commits.recorded_at_ms[decided]
    pending_offsets, pending_at_ms = columnar.pending_of(group)
    offsets = np.concatenate((commits.log_offset[decided], pending_offsets))
    times = np.concatenate((np.where(at_ms < 0, commits.commit_time_ms[decided], at_ms), pending_at_ms))
    order = np.argsort(offsets, kind="stable")
    offsets, times = offsets[order], times[order]
    for row in dying.tolist():
        log_offset = int(commits.log_offset[row])
        place = int(np.searchsorted(offsets, log_offset, side="right"))
        next_commit = (int(offsets[place]), int(times[place])) if place < len(offsets) else None
        if next_commit is None:
            columnar.forget_touch(group)
        yield Death(commits.groups[group], log_offset, int(commits.recorded_at_ms[row]), next_commit)
