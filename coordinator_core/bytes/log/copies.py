"""Copies of one log that differ: which batch counts at an offset.

Each broker cleans its own replica, a dead broker keeps a tail that its successor never had, a dump may lack headers.
The result does not depend on the order in which copies arrive. The criteria, most important first:

1. The leader epoch. From the offset on at which an epoch begins, no batch of an older epoch belongs to the log
  (`Lineage.is_cut`): followers truncate such batches when they see the new leader's epochs. A batch without an epoch
  (message formats 0 and 1) gets that of its own replica's checkpoint (`with_checkpoint_epochs`), or of another replica
  with the same bytes. A batch of unknown epoch that lost to another counts again if that other one is truncated.
2. An intact batch wins over a damaged one. Damaged batches are never compared: their headers prove nothing.
3. A batch of the log wins over one that was packed from rows without headers. Records that only rows have are kept: in
  the batch that spans their offset, if there is one (`bytes/log/fill.py`).
4. The number of records: the cleaner removes records from a batch and keeps its offsets.
5. Kafka's own bytes win over a batch made from what a tool printed; then the bytes themselves decide.

A batch in which an id was erased always stays.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, NamedTuple, Self

import numpy as np

from coordinator_core.bytes.log.chunk import I64, BatchColumns, BoolArray, Columns

UNKNOWN_EPOCH: Final = -1
"""Epoch of a batch that has no leader epoch (message formats 0 and 1, or from a dump without it), if no checkpoint of
its replica has one either. Such a batch neither truncates others nor is truncated."""


class Origin(IntEnum):
    """Where a batch comes from. Of two batches with equally many records the greater origin counts."""

    ROWS = 0
    """Packed from rows of keys and values: its header has no information."""
    PRINTED = 1
    """Made from what kafka-dump-log printed."""
    LOG = 2
    """Kafka's own bytes."""
    ERASED = 3
    """An id in it was erased."""


@dataclass(frozen=True, slots=True)
class BatchRows(Columns):
    """Intact batches of one log partition, ascending and disjoint, with the columns that are needed to choose among
    copies.
    """

    base_offset: I64
    last_offset: I64
    leader_epoch: I64
    record_count: I64
    """Without records that a dump added to the batch."""
    origin: I64
    has_own_epoch: BoolArray
    """Whether the leader epoch is written in the batch itself. For batches of message format 2 in bronze this is
    assumed.
    """
    place: I64
    """For the caller: where the batch is."""

    @classmethod
    def empty(cls) -> Self:
        nothing = np.zeros(0, np.int64)
        return cls(nothing, nothing, nothing, nothing, nothing, np.zeros(0, np.bool_), nothing)

    @classmethod
    def of(cls, batches: BatchColumns, origin: Origin, has_own_epoch: BoolArray | None = None, place: int = -1) -> Self:
        """From framed batches. Epochs of batches from rows are unknown. `has_own_epoch`: None if every known epoch is
        written in its batch."""
        is_known = (batches.leader_epoch >= 0) & (origin is not Origin.ROWS)
        return cls(
            batches.base_offset,
            batches.last_offset,
            np.where(is_known, batches.leader_epoch, UNKNOWN_EPOCH).astype(np.int64),
            batches.record_count.astype(np.int64),
            np.full(len(batches), int(origin), np.int64),
            is_known if has_own_epoch is None else is_known & has_own_epoch,
            np.full(len(batches), place, np.int64),
        )

    def with_others(self, others: "BatchRows") -> "BatchRows":
        """Both together, ascending."""
        columns = [np.concatenate([getattr(self, name), getattr(others, name)]) for name in BatchRows.__slots__]
        return BatchRows(*columns).take(np.argsort(columns[0], kind="stable"))


def has_no_epoch(batch: bytes) -> bool:
    return batch[16] < 2 or batch[12:16] == b"\xff" * 4


def with_checkpoint_epochs(batches: BatchColumns, checkpoint: Sequence[tuple[int, int]]) -> BatchColumns:
    """The same batches; those without a leader epoch get the one that the replica's own checkpoint has for their
    offset. `checkpoint`: (leader epoch, its first offset), ascending."""
    is_unwritten = batches.leader_epoch < 0
    if not checkpoint or not is_unwritten.any():
        return batches
    epochs = np.array([UNKNOWN_EPOCH, *(epoch for epoch, _ in checkpoint)], np.int32)
    starts = np.array([offset for _, offset in checkpoint], np.int64)
    of_checkpoint = epochs[np.searchsorted(starts, batches.base_offset, side="right")]
    return replace(batches, leader_epoch=np.where(is_unwritten, of_checkpoint, batches.leader_epoch))


class Load(NamedTuple):
    """A new leader loaded a log partition whose start had moved: it does not know what only lower offsets had."""

    log_offset: int
    """The offset at which its epoch begins."""
    leader_epoch: int
    log_start_offset: int
    is_ordered: bool
    """The start was seen there before the epoch began. False: it moved, and the epoch began, between two captures."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """The offset at which each leader epoch of a log partition begins, as far as copies show it.

    Lineages merge to the same result in any order. A replica's leader-epoch-checkpoint has the whole history of its own
    log: the checkpoint with the newest epoch decides for all epochs from its first to its last. For newer epochs, and
    without a checkpoint, the first batch that was seen decides.
    """

    seen: Mapping[int, int] = field(default_factory=dict)
    """Leader epoch -> base offset of its first batch in any copy."""
    checkpoint: tuple[tuple[int, int], ...] = ()
    """(leader epoch, its first offset), ascending, of the replica with the newest epoch."""
    log_starts: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Log start offset -> the least and the greatest end offset of copies that begin there; none while the start never
    moved. The greatest end is not kept up for the highest start."""

    def with_batches(self, rows: BatchRows) -> "Lineage":
        """Add the epochs of batches. Returns the same object if nothing is new."""
        epochs = rows.leader_epoch
        if not len(epochs):
            return self
        starts = np.concatenate([[0], np.flatnonzero(epochs[1:] != epochs[:-1]) + 1])
        found: dict[int, int] = {}
        for epoch, offset in zip(epochs[starts].tolist(), rows.base_offset[starts].tolist(), strict=True):
            if epoch != UNKNOWN_EPOCH and offset < min(self.seen.get(epoch, offset + 1), found.get(epoch, offset + 1)):
                found[epoch] = offset
        return replace(self, seen={**self.seen, **found}) if found else self

    def with_checkpoint(self, entries: Iterable[tuple[int, int]]) -> "Lineage":
        """Add a replica's checkpoint. Returns the same object if nothing is new."""
        other = tuple(sorted(entries))
        if not other:
            return self
        best = max(self.checkpoint, other, key=_checkpoint_rank)
        return self if best == self.checkpoint else replace(self, checkpoint=best)

    def without(self, batches: Iterable[tuple[int, int]]) -> "Lineage":
        """Remove what the headers of batches showed, given as (leader epoch, base offset), that turned out to be
        damaged.
        """
        gone = {epoch for epoch, offset in batches if self.seen.get(epoch) == offset}
        return replace(self, seen={epoch: at for epoch, at in self.seen.items() if epoch not in gone}) if gone else self

    def merged(self, other: "Lineage") -> "Lineage":
        seen = dict(self.seen)
        for epoch, offset in other.seen.items():
            seen[epoch] = min(offset, seen.get(epoch, offset))
        starts = dict(self.log_starts)
        for start, (least, greatest) in other.log_starts.items():
            ends = starts.get(start, (least, greatest))
            starts[start] = min(least, ends[0]), max(greatest, ends[1])
        return Lineage(seen, self.checkpoint, starts).with_checkpoint(other.checkpoint)

    def with_log_starts(self, observed: Iterable[tuple[int, int]], known_end: int) -> "Lineage":
        """Add the log start offset and the end offset of copies; `known_end`: the end of what was captured before them.
        Returns the same object if nothing is new."""
        observed = set(observed)
        before = max(self.log_starts, default=0)
        highest = max((start for start, _ in observed), default=0)
        if highest > before and known_end:
            observed.add((before, known_end))
        if max(highest, before) == 0:
            return self
        starts = dict(self.log_starts)
        for start, end in observed:
            least, greatest = starts.get(start, (end, end))
            starts[start] = min(least, end), greatest if start == max(highest, before) else max(greatest, end)
        return self if starts == self.log_starts else replace(self, log_starts=starts)

    def bounds_of(self, checkpoint: Sequence[tuple[int, int]], log_start_offset: int, end: int) -> tuple[int, int]:
        """The log start offset of a copy, and its end, with what the replica's own checkpoint shows.

        Where the start moves, Kafka drops older epochs and sets the offset of the first one that is left
        (LeaderEpochFileCache.truncateFromStart). An epoch at the end of the log began before it was copied.
        """
        if not checkpoint:
            return log_start_offset, end
        first, offset = checkpoint[0]
        is_moved = any(epoch <= first and began < offset for epoch, began in self.seen.items())
        return max(log_start_offset, offset if is_moved else 0), max(end, checkpoint[-1][1] + 1)

    @property
    def loads(self) -> tuple[Load, ...]:
        """Where leaders loaded the log from a start that had moved, ascending; each start only the first time.

        A copy whose end is at most an epoch's first offset was read before the epoch began, any other one after it.
        """
        if not self.log_starts:
            return ()
        starts = self.starts
        begins = {epoch: offset for epoch, offset in self.seen.items() if epoch in starts} | dict(self.checkpoint[1:])
        highest = max(self.log_starts)
        found: list[Load] = []
        known = 0
        for epoch, offset in sorted(begins.items(), key=lambda it: (it[1], it[0])):
            before = max((start for start, (least, _) in self.log_starts.items() if least <= offset), default=0)
            after = min(
                start for start, (_, greatest) in self.log_starts.items() if start == highest or greatest > offset
            )
            start = max(before, after if after <= offset else 0)
            if start > known:
                found.append(Load(offset, epoch, start, is_ordered=start == before))
                known = start
        return tuple(found)

    @property
    def starts(self) -> dict[int, int]:
        """Leader epoch -> the offset from which on no older epoch belongs to the log."""
        if not self.checkpoint:
            return dict(self.seen)
        first, last = self.checkpoint[0][0], self.checkpoint[-1][0]
        others = {epoch: offset for epoch, offset in self.seen.items() if not first <= epoch <= last}
        return {**others, **dict(self.checkpoint)}

    def is_cut(self, rows: BatchRows) -> BoolArray:
        """For each batch, whether it belongs to a tail that the log has truncated."""
        starts = sorted(self.starts.items())
        epochs = np.array([epoch for epoch, _ in starts], np.int64)
        lowest = np.minimum.accumulate(np.array([offset for _, offset in starts], np.int64)[::-1])[::-1]
        is_known = rows.leader_epoch != UNKNOWN_EPOCH
        newer = np.searchsorted(epochs, rows.leader_epoch, side="right")
        is_cut = np.zeros(len(rows), np.bool_)
        has_newer = is_known & (newer < len(epochs))
        is_cut[has_newer] = lowest[newer[has_newer]] <= rows.last_offset[has_newer]
        if self.checkpoint:
            first, last = self.checkpoint[0][0], self.checkpoint[-1][0]
            is_in = np.isin(rows.leader_epoch, np.array([epoch for epoch, _ in self.checkpoint], np.int64))
            is_cut |= is_known & (rows.leader_epoch >= first) & (rows.leader_epoch <= last) & ~is_in
        return is_cut

    def end_of(self, leader_epoch: int) -> int | None:
        """The offset from which on no batch of an epoch belongs to the log; None if the epoch is the newest."""
        if self.checkpoint:
            epochs = [epoch for epoch, _ in self.checkpoint]
            if epochs[0] <= leader_epoch <= epochs[-1] and leader_epoch not in epochs:
                return 0
        return min((offset for epoch, offset in self.starts.items() if epoch > leader_epoch), default=None)

    def cut_by(self, leader_epoch: int, last_offset: int) -> tuple[int, int]:
        """The newer leader epoch that truncates a batch, and the offset at which it begins."""
        newer = [
            (epoch, offset)
            for epoch, offset in sorted(self.starts.items())
            if epoch > leader_epoch and offset <= last_offset
        ]
        return newer[0] if newer else max(self.starts.items())


def out_of_order(epochs: I64, before: int = UNKNOWN_EPOCH, after: int | None = None) -> BoolArray:
    """For each batch of one copy, whether its leader epoch is damaged.

    Epochs never decrease in a log, and no checksum covers them. Where they decrease, as few batches as possible are
    considered damaged, on a tie those with the higher epochs. `before`: the highest epoch before the batches; `after`:
    the epoch of the next batch, if known.
    """
    is_odd = np.zeros(len(epochs), np.bool_)
    known = np.flatnonzero(epochs != UNKNOWN_EPOCH)
    found = epochs[known] if after is None else np.append(epochs[known], after)
    if not len(known) or (found[0] >= before and (found[1:] >= found[:-1]).all()):
        return is_odd
    starts = np.concatenate([[0], np.flatnonzero(found[1:] != found[:-1]) + 1])
    counts = np.diff(np.append(starts, len(found))).tolist()
    # by epoch: the most batches that can be kept up to a run of this epoch, as (count, run)
    best: dict[int, tuple[int, int]] = {}
    previous: list[int] = []
    for run, (epoch, count) in enumerate(zip(found[starts].tolist(), counts, strict=True)):
        kept, _, at = max(
            ((kept, -other, at) for other, (kept, at) in best.items() if other <= epoch), default=(0, 0, -1)
        )
        previous.append(at)
        if epoch >= before:
            best[epoch] = kept + count, run
    run = max(((kept, -epoch, at) for epoch, (kept, at) in best.items()), default=(0, 0, -1))[2]
    kept_runs = set()
    while run >= 0:
        kept_runs.add(run)
        run = previous[run]
    for run, start in enumerate(starts.tolist()):
        if run not in kept_runs:
            is_odd[known[start : start + counts[run]]] = True
    return is_odd


def _checkpoint_rank(entries: tuple[tuple[int, int], ...]) -> tuple[int, int, tuple[tuple[int, int], ...]]:
    """Order checkpoints by the newest epoch, then by the longest history."""
    return (entries[-1][0] if entries else -1, len(entries), entries)


@dataclass(frozen=True, slots=True)
class Choice:
    """What happens to new batches and to existing ones. One bool for each batch."""

    is_taken: BoolArray
    is_same: BoolArray
    """Not taken, since the same batch exists already: what is known about one holds for the other."""
    overlaps: BoolArray
    """Not taken, although some of their offsets are in no other batch. Only batches of message formats 0 and 1 can be
    like this.
    """
    is_replaced: BoolArray
    """Whether a new batch replaces an existing one; one bool for each existing batch."""
    parts: tuple[tuple[int, int], ...] = ()
    """Rows of new and existing batches with equally many but different records at the same offsets, where the leader
    epochs in the batches do not explain it."""


def choose(
    there: BatchRows,
    come: BatchRows,
    content: Callable[[int], tuple[bytes, bytes]],
    have_same_checksum: Callable[[I64, I64], BoolArray],
) -> Choice:
    """Which of the new batches (`come`) are taken, and which existing ones (`there`) they replace.

    `content`: the bytes of a new batch, and of the existing one with the same offsets. It is called where both were
    cleaned and have equally many records, and their epochs do not show that they are the same batch.
    `have_same_checksum`: for rows of both, whether the checksums of their records are equal.
    """
    first = np.searchsorted(there.last_offset, come.base_offset, side="left")
    after = np.searchsorted(there.base_offset, come.last_offset, side="right")
    is_taken = after <= first
    is_same = np.zeros(len(come), np.bool_)
    overlaps = np.zeros(len(come), np.bool_)
    is_replaced = np.zeros(len(there), np.bool_)
    others = np.flatnonzero(~is_taken)
    if not len(others):
        return Choice(is_taken, is_same, overlaps, is_replaced)
    at = first[others]
    is_alike = (
        (after[others] == at + 1)
        & (there.base_offset[at] == come.base_offset[others])
        & (there.last_offset[at] == come.last_offset[others])
    )
    rows, at = others[is_alike], at[is_alike]
    order = _compared(come, rows, there, at)
    is_full = come.record_count[rows] == come.last_offset[rows] - come.base_offset[rows] + 1
    is_logs = (come.origin[rows] == Origin.LOG) & (there.origin[at] == Origin.LOG)
    # a leader writes each batch once: with equal epochs in both batches, equal record counts mean equal records
    is_unsure = is_logs & ~(come.has_own_epoch[rows] & there.has_own_epoch[at])
    has_same_checksum = np.zeros(len(rows), np.bool_)
    if is_unsure.any():
        has_same_checksum[is_unsure] = have_same_checksum(rows[is_unsure], at[is_unsure])
    is_same[rows[(order == 0) & ~is_unsure | has_same_checksum]] = True
    parts = np.flatnonzero(
        is_unsure & ~has_same_checksum & is_full & (there.record_count[at] == come.record_count[rows])
    )
    order[there.origin[at] == Origin.ERASED] = -1
    is_to_compare = (order == 0) & ~has_same_checksum & (is_unsure | ~is_full)
    for index in np.flatnonzero(is_to_compare).tolist():
        coming, kept = content(int(rows[index]))
        if coming != kept:
            is_same[rows[index]] = False
            order[index] = 1 if coming > kept else -1
        else:
            is_same[rows[index]] = True
    is_taken[rows[order > 0]] = True
    is_replaced[at[order > 0]] = True
    for row in others[~is_alike].tolist():
        met = [index for index in range(int(first[row]), int(after[row])) if not is_replaced[index]]
        if all(_is_stronger(come, row, there, index) for index in met):
            is_taken[row] = True
            is_replaced[met] = True
        else:
            covered = sum(
                int(min(there.last_offset[index], come.last_offset[row]))
                - int(max(there.base_offset[index], come.base_offset[row]))
                + 1
                for index in met
            )
            overlaps[row] = covered < come.last_offset[row] - come.base_offset[row] + 1
    parted = tuple(zip(rows[parts].tolist(), at[parts].tolist(), strict=True))
    return Choice(is_taken, is_same, overlaps, is_replaced, parted)


def _compared(come: BatchRows, rows: I64, there: BatchRows, at: I64) -> I64:
    """For batches with the same offsets: 1 if the new one wins, -1 if it loses; by origin in the log, leader
    epoch, number of records, and origin of the bytes."""
    order = np.zeros(len(rows), np.int64)
    for one, other in (
        (come.origin[rows] > Origin.ROWS, there.origin[at] > Origin.ROWS),
        (come.leader_epoch[rows], there.leader_epoch[at]),
        (come.record_count[rows], there.record_count[at]),
        (come.origin[rows], there.origin[at]),
    ):
        order = np.where(order == 0, np.sign(one.astype(np.int64) - other.astype(np.int64)), order)
    return order


def _is_stronger(come: BatchRows, row: int, there: BatchRows, index: int) -> bool:
    """Compare batches whose offsets overlap in any other way. It is a total order, so it does not matter which comes
    first.
    """
    if there.origin[index] == Origin.ERASED:
        return False

    def rank(rows: BatchRows, at: int) -> tuple[bool, int, int, int, int, int]:
        return (
            bool(rows.origin[at] > Origin.ROWS),
            int(rows.leader_epoch[at]),
            int(rows.record_count[at]),
            int(rows.origin[at]),
            -int(rows.base_offset[at]),
            int(rows.last_offset[at]),
        )

    return rank(come, row) > rank(there, index)
