"""Copies of one log that differ: which batch counts at an offset.

Replicas are cleaned each by its own broker, a dead broker keeps a tail that its successor never had, a dump may lack
headers. Whatever the order in which copies come, the same batches are left. In this order decide:

1. The leader epoch. From the offset on at which an epoch begins, no batch of an older epoch is of the log
   (`Lineage.is_cut`): followers truncate it when they see the new leader's epochs. A batch in which none is written
   (message formats 0 and 1) has that of its own replica's checkpoint (`with_checkpoint_epochs`), or of another's that
   has the same bytes. One of no known epoch that another keeps out counts again where that is cut away.
2. An intact batch before a damaged one. Damaged batches are never compared: their headers prove nothing.
3. A batch of the log before one that was packed from rows without headers. Records that only rows have are kept: in
   the batch that spans their offset, if there is one (`log/fill.py`).
4. The number of records: the cleaner takes records out of a batch and leaves its offsets.
5. Kafka's own bytes before a batch made of what a tool printed; then the bytes themselves.

A batch in which an id was erased stays, whatever comes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, Self

import numpy as np

from coordinator_core.log.chunk import I64, BatchColumns, BoolArray

UNKNOWN_EPOCH: Final = -1
"""Of a batch in which no leader epoch is written (message format 0 and 1) and whose replica has no checkpoint that says
it, and where a dump does not have it. It neither cuts nor is cut."""


class Origin(IntEnum):
    """Where a batch is from; of two batches with as many records the greater one counts."""

    ROWS = 0
    """Packed from rows of keys and values: its header says nothing."""
    PRINTED = 1
    """Made of what kafka-dump-log printed."""
    LOG = 2
    """Kafka's own bytes."""
    ERASED = 3
    """An id in it was erased."""


@dataclass(frozen=True, slots=True)
class BatchRows:
    """Intact batches of one log partition, ascending and disjoint, as far as it takes to choose among copies."""

    base_offset: I64
    last_offset: I64
    leader_epoch: I64
    record_count: I64
    """Without those that a dump put into the batch."""
    origin: I64
    has_own_epoch: BoolArray
    """Is its leader epoch written in the batch itself? Of batches of message format 2 in bronze this is assumed."""
    place: I64
    """Of the caller's own: where the batch is."""

    @classmethod
    def empty(cls) -> Self:
        """None at all."""
        nothing = np.zeros(0, np.int64)
        return cls(nothing, nothing, nothing, nothing, nothing, np.zeros(0, np.bool_), nothing)

    @classmethod
    def of(cls, batches: BatchColumns, origin: Origin, has_own_epoch: BoolArray | None = None, place: int = -1) -> Self:
        """Framed batches. Nothing is known of the epochs of rows. `has_own_epoch`: None where each epoch that is known
        is written in its batch."""
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

    def __len__(self) -> int:
        return len(self.base_offset)

    def take(self, rows: BoolArray | I64) -> Self:
        """Some of them."""
        return type(self)(*(getattr(self, name)[rows] for name in type(self).__slots__))

    def with_others(self, others: "BatchRows") -> "BatchRows":
        """Both together, ascending."""
        columns = [np.concatenate([getattr(self, name), getattr(others, name)]) for name in BatchRows.__slots__]
        return BatchRows(*columns).take(np.argsort(columns[0], kind="stable"))


def has_no_epoch(batch: bytes) -> bool:
    """Is no leader epoch written in a batch?"""
    return batch[16] < 2 or batch[12:16] == b"\xff" * 4


def with_checkpoint_epochs(batches: BatchColumns, checkpoint: Sequence[tuple[int, int]]) -> BatchColumns:
    """The same batches; where none is written, the leader epoch is that which the replica's own checkpoint has for the
    offset. `checkpoint`: (leader epoch, its first offset), ascending."""
    is_unwritten = batches.leader_epoch < 0
    if not checkpoint or not is_unwritten.any():
        return batches
    epochs = np.array([UNKNOWN_EPOCH, *(epoch for epoch, _ in checkpoint)], np.int32)
    starts = np.array([offset for _, offset in checkpoint], np.int64)
    of_checkpoint = epochs[np.searchsorted(starts, batches.base_offset, side="right")]
    return replace(batches, leader_epoch=np.where(is_unwritten, of_checkpoint, batches.leader_epoch))


@dataclass(frozen=True, slots=True)
class Lineage:
    """At which offset each leader epoch of a log partition begins, as far as copies show it.

    Two of them merge into one whatever the order. A leader-epoch-checkpoint of a replica knows the whole history of its
    own log: that with the newest epoch decides for all epochs from its first to its last. Of newer ones, and without a
    checkpoint, the first batch that was seen decides.
    """

    seen: Mapping[int, int] = field(default_factory=dict)
    """Leader epoch -> base offset of its first batch in any copy."""
    checkpoint: tuple[tuple[int, int], ...] = ()
    """(leader epoch, its first offset), ascending: of the replica with the newest epoch."""

    def with_batches(self, rows: BatchRows) -> "Lineage":
        """What batches add. The same object where they show nothing new."""
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
        """What a replica's checkpoint adds. The same object where that is nothing new."""
        other = tuple(sorted(entries))
        if not other:
            return self
        best = max(self.checkpoint, other, key=_checkpoint_rank)
        return self if best == self.checkpoint else replace(self, checkpoint=best)

    def without(self, batches: Iterable[tuple[int, int]]) -> "Lineage":
        """Without what the headers of some batches showed, (leader epoch, base offset), which turned out damaged."""
        gone = {epoch for epoch, offset in batches if self.seen.get(epoch) == offset}
        return replace(self, seen={epoch: at for epoch, at in self.seen.items() if epoch not in gone}) if gone else self

    def merged(self, other: "Lineage") -> "Lineage":
        """Both together."""
        seen = dict(self.seen)
        for epoch, offset in other.seen.items():
            seen[epoch] = min(offset, seen.get(epoch, offset))
        return Lineage(seen, self.checkpoint).with_checkpoint(other.checkpoint)

    @property
    def starts(self) -> dict[int, int]:
        """Leader epoch -> the offset from which on no older one is of the log."""
        if not self.checkpoint:
            return dict(self.seen)
        first, last = self.checkpoint[0][0], self.checkpoint[-1][0]
        others = {epoch: offset for epoch, offset in self.seen.items() if not first <= epoch <= last}
        return {**others, **dict(self.checkpoint)}

    def is_cut(self, rows: BatchRows) -> BoolArray:
        """Which batches are of a tail that the log does not have any more, one bool each."""
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
        """The first offset at which nothing of an epoch is of the log any more; None: it goes on."""
        if self.checkpoint:
            epochs = [epoch for epoch, _ in self.checkpoint]
            if epochs[0] <= leader_epoch <= epochs[-1] and leader_epoch not in epochs:
                return 0
        return min((offset for epoch, offset in self.starts.items() if epoch > leader_epoch), default=None)

    def cut_by(self, leader_epoch: int, last_offset: int) -> tuple[int, int]:
        """The newer leader epoch that cuts a batch away, and the offset at which it begins."""
        newer = [
            (epoch, offset)
            for epoch, offset in sorted(self.starts.items())
            if epoch > leader_epoch and offset <= last_offset
        ]
        return newer[0] if newer else max(self.starts.items())


def out_of_order(epochs: I64, before: int = UNKNOWN_EPOCH, after: int | None = None) -> BoolArray:
    """Which batches of one copy have a leader epoch that cannot be theirs, one bool each.

    Epochs never fall in a log, and no checksum covers them: where they do, as few batches as possible are taken for
    damaged, of as many those with the higher epochs. `before`: the highest epoch in front of them; `after`: that of the
    batch behind them, if it is known.
    """
    is_odd = np.zeros(len(epochs), np.bool_)
    known = np.flatnonzero(epochs != UNKNOWN_EPOCH)
    found = epochs[known] if after is None else np.append(epochs[known], after)
    if not len(known) or (found[0] >= before and (found[1:] >= found[:-1]).all()):
        return is_odd
    starts = np.concatenate([[0], np.flatnonzero(found[1:] != found[:-1]) + 1])
    counts = np.diff(np.append(starts, len(found))).tolist()
    # of each epoch, the most batches that can be kept up to a run of it: (count, run)
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
    """The newest epoch, then the longest history."""
    return (entries[-1][0] if entries else -1, len(entries), entries)


@dataclass(frozen=True, slots=True)
class Choice:
    """What becomes of batches that come, and of those that are there. Bools, one a batch."""

    is_taken: BoolArray
    is_same: BoolArray
    """Not taken, since the same batch is there: what can be said of it holds for what is there."""
    overlaps: BoolArray
    """Not taken, though some of their offsets are nowhere: only batches of message format 0 and 1 can be so."""
    is_replaced: BoolArray
    """Of those that are there."""
    parts: tuple[tuple[int, int], ...] = ()
    """Rows of batches that come and of those there with as many records at the same offsets, but other ones, where the
    leader epochs in the batches do not say why."""


def choose(
    there: BatchRows,
    come: BatchRows,
    content: Callable[[int], tuple[bytes, bytes]],
    have_same_checksum: Callable[[I64, I64], BoolArray],
) -> Choice:
    """Which of the batches that come are taken, and which of those that are there they replace.

    `content`: the bytes of a batch that comes, and of that with the same offsets which is there; asked where two were
    cleaned and keep as many records, and where their epochs do not say that they are the same batch.
    `have_same_checksum`: of rows of both, whether the checksums of their records agree.
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
    # one leader wrote a batch once: with the epoch in both, the same number of records is the same records
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
    """Of batches with the same offsets, 1 where that which comes is the stronger one, -1 where it is the weaker one: by
    what is of the log, then the leader epoch, the number of records, and the bytes' origin."""
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
    """Of batches whose offsets overlap otherwise. One order for all, so that it does not matter which comes first."""
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
