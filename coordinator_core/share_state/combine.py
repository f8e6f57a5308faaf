"""Combining state batches, exactly as Kafka's PersisterStateBatchCombiner does, order and boundaries
included.

Where two batches cover an offset the higher (delivery count, delivery state) wins, so the order of arrival
does not matter. What Kafka returned before 4.4 is not always canonical: a batch which the scan has passed is not looked
at again, so equal neighbours may stay apart. Since 4.4 it sweeps over the boundaries of the batches: the state of each
offset is the same, and equal neighbours are always joined. Compare states by offset; use `canonical_batches` where one
form is needed.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Final

from coordinator_core.kafka_versions import DEFAULT_VERSION, KafkaVersion, Since

UNSET_OFFSET: Final = -1
"""A start offset which is not known (PartitionFactory.UNINITIALIZED_START_OFFSET): nothing is trimmed."""


@dataclass(frozen=True, slots=True)
class StateBatch:
    """A range of offsets in one delivery state (PersisterStateBatch)."""

    first_offset: int
    last_offset: int
    """Inclusive."""
    delivery_state: int
    """0 AVAILABLE, 1 ACQUIRED (never stored by Kafka), 2 ACKNOWLEDGED, 3 ARCHIVING, 4 ARCHIVED."""
    delivery_count: int

    @property
    def rank(self) -> tuple[int, int]:
        """The higher one wins an offset: delivery count first, then state (compareBatchDeliveryInfo)."""
        return self.delivery_count, self.delivery_state


StateBatches = tuple[StateBatch, ...]


class CleanBatches(StateBatches):
    """State batches of which no two overlap or could be joined, in order: a combination leaves most of them alone."""

    __slots__ = ()


_Ordered = tuple[int, int, int, int]
"""first, last, count, state: the order of PersisterStateBatch.compareTo."""


def _ordered(batch: StateBatch) -> _Ordered:
    return batch.first_offset, batch.last_offset, batch.delivery_count, batch.delivery_state


def _trimmed(batches: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Without what lies below the start offset (pruneBatches)."""
    if start_offset == UNSET_OFFSET:
        return list(batches)
    return [
        batch if batch.first_offset >= start_offset else _from(batch, start_offset)
        for batch in batches
        if batch.first_offset >= start_offset or batch.last_offset >= start_offset
    ]


def _from(batch: StateBatch, start_offset: int) -> StateBatch:
    return StateBatch(start_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)


def combine_state_batches(
    so_far: Iterable[StateBatch],
    update: Iterable[StateBatch],
    start_offset: int,
    version: KafkaVersion = DEFAULT_VERSION,
) -> StateBatches:
    """The batches of both, disjoint and in order, without offsets below `start_offset` (-1: none is dropped).

    Fewer than two batches come back as they are. Source: PersisterStateBatchCombiner.combineStateBatches.
    """
    fresh = _trimmed(update, start_offset)
    if isinstance(so_far, CleanBatches):
        combined = _spliced(so_far, fresh, start_offset)
    else:
        combined = _combined([*_trimmed(so_far, start_offset), *fresh])
    if isinstance(combined, CleanBatches) or not Since.EQUAL_BATCHES_JOIN.holds_in(version):
        return combined
    joined = _joined(combined)
    return combined if joined is None else joined


_first_offset: Final = attrgetter("first_offset")
_last_offset: Final = attrgetter("last_offset")


def _spliced(so_far: CleanBatches, fresh: list[StateBatch], start_offset: int) -> StateBatches:
    """As `_combined` of both, but only where they meet: a live share partition may have hundreds of batches.

    What ends before the first fresh offset and does not touch it is passed by the scan unchanged, and so is what begins
    after the last one; nothing which the scan makes of the batches between can be joined with either, since the
    outermost pieces have the rank of batches which could not be joined before.
    """
    kept: StateBatches = so_far
    if start_offset != UNSET_OFFSET and kept and kept[0].first_offset < start_offset:
        kept = kept[bisect_left(kept, start_offset, key=_last_offset) :]
        if kept and kept[0].first_offset < start_offset:
            kept = (_from(kept[0], start_offset), *kept[1:])
    if not fresh:
        return so_far if kept is so_far else CleanBatches(kept)
    if not all(batch.first_offset <= batch.last_offset for batch in fresh):
        return _combined([*kept, *fresh])
    low = bisect_left(kept, min(map(_first_offset, fresh)) - 1, key=_last_offset)
    high = bisect_right(kept, max(map(_last_offset, fresh)) + 1, lo=low, key=_first_offset)
    between = _combined([*kept[low:high], *fresh])
    joined = (*kept[:low], *between, *kept[high:])
    return CleanBatches(joined) if isinstance(between, CleanBatches) else joined


def _combined(batches: Sequence[StateBatch]) -> StateBatches:
    """What Kafka's scan makes of batches which need no trimming."""
    joined = _joined(batches)
    if joined is not None:
        return joined
    if len(batches) < 2:
        return tuple(batches)
    scanned = _scanned(batches)
    # Most often the scan leaves nothing to be joined: then this is what it gave.
    joined = _joined(scanned)
    return joined if joined is not None and len(joined) == len(scanned) else scanned


def _joined(batches: Sequence[StateBatch]) -> CleanBatches | None:
    """Batches which ascend and do not overlap, neighbours of equal rank as one; None where they are not such."""
    joined: list[StateBatch] = []
    before: StateBatch | None = None
    last_offset = UNSET_OFFSET
    for batch in batches:
        if batch.first_offset > batch.last_offset:
            return None
        if before is not None:
            if batch.first_offset <= last_offset:
                return None
            if (
                batch.first_offset == last_offset + 1
                and batch.delivery_count == before.delivery_count
                and batch.delivery_state == before.delivery_state
            ):
                last_offset = batch.last_offset
                continue
            joined.append(_until(before, last_offset))
        before, last_offset = batch, batch.last_offset
    if before is not None:
        joined.append(_until(before, last_offset))
    return CleanBatches(joined)


def _until(batch: StateBatch, last_offset: int) -> StateBatch:
    if batch.last_offset == last_offset:
        return batch
    return StateBatch(batch.first_offset, last_offset, batch.delivery_state, batch.delivery_count)


def _scanned(batches: Iterable[StateBatch]) -> StateBatches:
    # Kafka's sorted set as a heap: equal batches come out one after the other, and all but one are dropped
    # there.
    waiting = list(map(_ordered, batches))
    heapify(waiting)
    final: list[_Ordered] = []
    previous = _pop(waiting)
    while waiting:
        candidate = _pop(waiting)
        pieces = _resolve(previous, candidate)
        if pieces is None:
            final.append(previous)
            previous = candidate
            continue
        for piece in pieces:
            heappush(waiting, piece)
        previous = _pop(waiting)
    final.append(previous)
    return tuple(StateBatch(first, last, state, count) for first, last, count, state in final)


def _pop(waiting: list[_Ordered]) -> _Ordered:
    least = heappop(waiting)
    while waiting and waiting[0] == least:
        heappop(waiting)
    return least


def _resolve(previous: _Ordered, candidate: _Ordered) -> tuple[_Ordered, ...] | None:
    """What takes the place of two neighbours of the sorted set; None where they neither overlap nor join."""
    first, last, *rank = previous
    candidate_first, candidate_last, *candidate_rank = candidate
    overlaps = candidate_first <= last
    if rank == candidate_rank and (overlaps or last + 1 == candidate_first):
        return ((first, max(last, candidate_last), rank[0], rank[1]),)
    if not overlaps:
        return None
    candidate_rest = (last + 1, candidate_last, candidate_rank[0], candidate_rank[1])
    if candidate_rank < rank:
        # A candidate with the same first offset is the longer one: the set is ordered by last offset next.
        return (previous, candidate_rest) if candidate_last > last else (previous,)
    if candidate_first == first:
        # Kafka drops what a shorter previous batch covers; a longer one would come after the candidate.
        return (candidate,)
    head = (first, candidate_first - 1, rank[0], rank[1])
    if candidate_last < last:
        return head, candidate, (candidate_last + 1, last, rank[0], rank[1])
    return head, candidate


def canonical_batches(batches: Iterable[StateBatch], start_offset: int = UNSET_OFFSET) -> StateBatches:
    """One form for each state by offset: sorted, disjoint, neighbours of equal rank joined.

    A batch whose last offset lies before its first, or which begins below 0, covers no offset and is left
    out.
    """
    batches = (batch for batch in batches if 0 <= batch.first_offset <= batch.last_offset)
    joined: list[StateBatch] = []
    for batch in combine_state_batches((), batches, start_offset):
        before = joined[-1] if joined else None
        if before is not None and before.last_offset + 1 == batch.first_offset and before.rank == batch.rank:
            joined[-1] = StateBatch(before.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        else:
            joined.append(batch)
    return tuple(joined)
