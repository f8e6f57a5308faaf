"""What the coordinator before Kafka 4.0 does to groups that have only offsets.

A group with only offsets has no record of its own. The old coordinator (GroupMetadataManager.scala, Kafka 0.9 to 3.x)
drops it with its last offset, and writes a group tombstone only if its generation is above 0 (cleanupGroupMetadata).
The new coordinator (GroupMetadataManager.java) keeps the group until it writes its tombstone.

A group tombstone does not delete the group's offsets: Kafka 0.9 writes one when the last member leaves, and the offsets
stay until they expire. A broker that loads such a log has an empty group with these offsets (doLoadGroupsAndOffsets).

A batch shows which coordinator wrote it: the old one does not number records (base sequence -1, or a format without
sequences), the new one numbers them from 0. A batch packed from a dump, without a leader epoch, does not show its
writer, and nothing is concluded from it.

A transaction that aborts writes no record of the group. A broker that loads the log does not have a group that is left
without offsets; the running broker drops it at its next check for expired offsets. Here the group ends at the marker.
In a log partition with transactions only, no batch shows its writer: there the group ends unless its commits have
values of Kafka 4.1 or later. With a coordinator of 4.0 it ends some minutes before the coordinator writes its
tombstone.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coordinator_core.bytes.log.chunk import I64, BatchColumns, BoolArray
from coordinator_core.replay.columnar import offsets_kernels as kernels
from coordinator_core.replay.columnar.offsets_columnar import ColumnarOffsetReplay, CommitColumns

WRITER_OLD: Final = 0
WRITER_NEW: Final = 1
_NEVER: Final = 2**63 - 1
_ENDS_A_TRANSACTION: Final = (0, 1)
"""Marker types: abort and commit."""
_NO_SEQUENCE: Final = -1
_VERSION_OF_NEW: Final = 4
"""The first version of OffsetCommitValue that no coordinator before 4.0 writes: that of Kafka 4.1."""
_WITH_SEQUENCES: Final = 2
"""The first record format (magic) with sequences and leader epochs."""


class Death(NamedTuple):
    """The old coordinator dropped a group because its last offset was deleted."""

    group_id: str
    log_offset: int
    """Log offset of the offset's tombstone, or of the marker that left the group without offsets."""
    at_ms: int
    event_index: int
    """0 at a tombstone. Several groups may end at one marker; there it is the distance from the group's last commit in
    the transaction to the marker, which is unique for each group."""
    next_commit: tuple[int, int] | None
    """Log offset and time (epoch ms, -1: none) of the group's next commit, if this chunk has one."""


class GroupTombstone(NamedTuple):
    group_id: str
    log_offset: int
    last_offset: int
    """Last offset of its operation."""


def is_of_old_coordinator(batches: BatchColumns) -> BoolArray:
    """For each batch, whether a coordinator before Kafka 4.0 wrote it. False if the batch does not show it."""
    is_plain = ~batches.is_control & (batches.producer_id < 0) & (batches.leader_epoch >= 0)
    is_old: BoolArray = is_plain & (batches.base_sequence == _NO_SEQUENCE)
    return is_old | (~batches.is_control & (batches.magic < _WITH_SEQUENCES))


def is_of_new_coordinator(batches: BatchColumns) -> BoolArray:
    """For each batch, whether a coordinator of Kafka 4.0 or later wrote it. False if the batch does not show it."""
    is_new: BoolArray = ~batches.is_control & (batches.producer_id < 0) & (batches.base_sequence > _NO_SEQUENCE)
    return is_new


def writer_after(batches: BatchColumns, before: int) -> int:
    """Which coordinator wrote last (`ColumnarOffsetReplay.writer`), given the one before these batches."""
    return int(_writers(batches, before)[-1]) if len(batches) else before


def deaths_with_last_offset(
    batches: BatchColumns, commits: CommitColumns, columnar: ColumnarOffsetReplay
) -> Iterator[Death]:
    """Groups that end in a chunk. Call it right after a columnar replay has replayed the chunk, while its `writer` is
    still the one before the chunk.

    A group ends where a tombstone deletes its last offset, or where a transaction ends and leaves it no offset. It
    stays while another transaction is open that committed offsets of it (GroupMetadata.hasOffsets). The number of its
    offsets at each place follows from the number at the end of the chunk and the changes within it.
    """
    is_taken = (commits.change == kernels.CHANGE_DELETE) & commits.previous_offset_valid
    # a deletion in a transaction, which no coordinator writes, may belong to an earlier chunk
    may_end = is_taken & (commits.producer_id < 0)
    may_end |= commits.is_value & (commits.producer_id >= 0) & (commits.outcome != kernels.OUTCOME_APPLIED)
    if not may_end.any():
        return
    writers = _writers(batches, columnar.writer)
    has_epoch = (batches.leader_epoch >= 0) | (batches.magic < _WITH_SEQUENCES)
    may_be_old = has_epoch & (writers != WRITER_NEW)
    if not may_be_old.any():
        return
    groups = np.unique(commits.group[may_end])
    counts = columnar.offset_counts(groups).tolist()
    rows = np.flatnonzero(np.isin(commits.group, groups))
    rows = rows[np.argsort(commits.group[rows], kind="stable")]
    markers = _markers(batches)
    for count, rows_of_group in zip(counts, np.split(rows, _starts(commits.group[rows])[1:]), strict=True):
        ends = _ends_of(rows_of_group, commits, markers)
        is_place = np.isin(ends, ends[may_end[rows_of_group] & (ends < _NEVER)])
        # of several rows that end at one place, the last one; at a tombstone that is the tombstone
        order = np.lexsort((-commits.log_offset[rows_of_group], ends))
        order = order[is_place[order]]
        places, first = np.unique(ends[order], return_index=True)
        row = rows_of_group[order[first]]
        batch = np.searchsorted(batches.base_offset, places, side="right") - 1
        is_dying = may_be_old[batch] & (batch >= 0)
        # where no batch shows the writer, the version of a value may
        of_new = ends[commits.value_version[rows_of_group] >= _VERSION_OF_NEW]
        is_dying &= (writers[batch] == WRITER_OLD) | ~np.isin(places, of_new)
        is_dying &= _left_at(places, count, rows_of_group, is_taken, commits) == 0
        is_dying &= ~_is_in_transaction(places, rows_of_group, ends, commits, columnar)
        at_ms = np.where(batches.is_control[batch], batches.max_timestamp_ms[batch], commits.recorded_at_ms[row])
        index = places - commits.log_offset[row]
        dying = zip(places[is_dying].tolist(), at_ms[is_dying].tolist(), index[is_dying].tolist(), strict=True)
        yield from _deaths(rows_of_group, dying, commits, columnar)


def outlived_by_offsets(
    tombstones: Sequence[GroupTombstone], batches: BatchColumns, commits: CommitColumns, columnar: ColumnarOffsetReplay
) -> Iterator[GroupTombstone]:
    """Tombstones of the old coordinator whose group still has offsets after their operation, in a chunk that a columnar
    replay has just replayed. Kafka 0.10 and later delete the offsets in the same operation."""
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


def _markers(batches: BatchColumns) -> Mapping[int, I64]:
    """Log offsets of the markers of each producer, followed by a sentinel that is never reached."""
    rows = np.flatnonzero(batches.is_control & np.isin(batches.control_type, _ENDS_A_TRANSACTION))
    rows = rows[np.argsort(batches.producer_id[rows], kind="stable")]
    found: defaultdict[int, I64] = defaultdict(lambda: np.full(1, _NEVER))
    starts = _starts(batches.producer_id[rows])
    for own in np.split(rows, starts[1:]) if len(rows) else ():
        found[int(batches.producer_id[own[0]])] = np.append(batches.base_offset[own], _NEVER)
    return found


def _writers(batches: BatchColumns, before: int) -> I64:
    """For each batch, which coordinator was active there, given the one before all of them. Markers and transactional
    commits are the same for both, so the last batch that shows its writer decides."""
    is_new = is_of_new_coordinator(batches)
    shows = np.where(is_new | is_of_old_coordinator(batches), np.arange(len(batches)), -1)
    last = np.maximum.accumulate(shows)
    writers: I64 = np.where(last >= 0, np.where(is_new[last], WRITER_NEW, WRITER_OLD), before)
    return writers


def _ends_of(rows: I64, commits: CommitColumns, markers: Mapping[int, I64]) -> I64:
    """Where each of a group's rows was decided: a transactional commit at its marker, or at an earlier tombstone; any
    other row at its own offset."""
    ends = commits.log_offset[rows].copy()
    is_pending = commits.is_value[rows] & (commits.producer_id[rows] >= 0)
    if not is_pending.any():
        return ends
    of_transactions = rows[is_pending]
    offsets, producers = commits.log_offset[of_transactions], commits.producer_id[of_transactions]
    found = np.full(len(of_transactions), _NEVER, np.int64)
    for producer_id in np.unique(producers).tolist():
        own = np.flatnonzero(producers == producer_id)
        found[own] = markers[producer_id][np.searchsorted(markers[producer_id], offsets[own], side="right")]
    replaced = np.flatnonzero(commits.outcome[of_transactions] == kernels.OUTCOME_SUPERSEDED)
    for row in rows[~commits.is_value[rows]].tolist() if len(replaced) else ():
        place, its = commits.log_offset[row], of_transactions[replaced]
        is_its = (commits.topic[its] == commits.topic[row]) & (commits.partition[its] == commits.partition[row])
        is_its &= (offsets[replaced] < place) & (place < found[replaced])
        found[replaced[is_its]] = place
    ends[is_pending] = found
    return ends


def _left_at(places: I64, count: int, rows: I64, is_taken: BoolArray, commits: CommitColumns) -> I64:
    """How many offsets a group has after each place, given the `count` at the end of the chunk."""
    changed = rows[(commits.change[rows] == kernels.CHANGE_FIRST) | is_taken[rows]]
    # the records of one transaction are all applied at one place
    changed = changed[np.lexsort((commits.log_offset[changed], commits.applied_log_offset[changed]))]
    deltas = np.where(commits.change[changed] == kernels.CHANGE_FIRST, 1, -1)
    so_far = np.concatenate((np.zeros(1, np.int64), np.cumsum(deltas)))
    left: I64 = count - so_far[-1] + so_far[np.searchsorted(commits.applied_log_offset[changed], places, side="right")]
    return left


def _is_in_transaction(
    places: I64, rows: I64, ends: I64, commits: CommitColumns, columnar: ColumnarOffsetReplay
) -> BoolArray:
    """For each place in the chunk, whether a transaction is open that committed offsets of the group before."""
    pending, _ = columnar.pending_of(int(commits.group[rows[0]]))
    is_pending = ends > commits.log_offset[rows]
    offsets, ends = commits.log_offset[rows][is_pending], ends[is_pending]
    begun = np.searchsorted(np.sort(np.concatenate((offsets, pending))), places, side="left")
    is_open: BoolArray = begun > np.searchsorted(np.sort(ends), places, side="right")
    return is_open


def _starts(values: NDArray[Any]) -> I64:
    """The positions where runs of equal values begin."""
    return np.flatnonzero(np.diff(values, prepend=values[:1] - 1))


def _deaths(
    rows: I64, dying: Iterable[tuple[int, int, int]], commits: CommitColumns, columnar: ColumnarOffsetReplay
) -> Iterator[Death]:
    """The ends of the group that `rows` belong to. `dying`: log offset, time and event index of each."""
    dying = list(dying)
    if not dying:
        return
    group = int(commits.group[rows[0]])
    decided = rows[commits.is_value[rows]]
    at_ms = commits.recorded_at_ms[decided]
    pending_offsets, pending_at_ms = columnar.pending_of(group)
    offsets = np.concatenate((commits.log_offset[decided], pending_offsets))
    times = np.concatenate((np.where(at_ms < 0, commits.commit_time_ms[decided], at_ms), pending_at_ms))
    order = np.argsort(offsets, kind="stable")
    offsets, times = offsets[order], times[order]
    for log_offset, died_at_ms, event_index in dying:
        place = int(np.searchsorted(offsets, log_offset, side="right"))
        next_commit = (int(offsets[place]), int(times[place])) if place < len(offsets) else None
        if next_commit is None:
            columnar.forget_touch(group)
        yield Death(commits.groups[group], log_offset, died_at_ms, event_index, next_commit)
