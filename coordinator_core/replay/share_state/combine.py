"""Combines state batches exactly like Kafka's PersisterStateBatchCombiner, including order and boundaries.

Where two batches cover an offset, the higher (delivery count, delivery state) wins, so the order of arrival does not
matter. Before 4.4, Kafka's result is not always canonical: the scan does not look at a batch again that it has passed,
so equal neighbours may stay separate. Since 4.4 it sweeps over the boundaries of the batches: the state of each offset
is the same, and equal neighbours are always joined. So states
are compared by offset.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Final

from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion, Since

UNSET_OFFSET: Final = -1
"""An unknown start offset (PartitionFactory.UNINITIALIZED_START_OFFSET): nothing is trimmed."""


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
        """The batch with the higher rank wins an offset: delivery count first, then state
        (compareBatchDeliveryInfo)."""
        return self.delivery_count, self.delivery_state


StateBatches = tuple[StateBatch, ...]


class CleanBatches(StateBatches):
    """Sorted state batches that neither overlap nor can be joined. A combination leaves most of them as they are."""

    __slots__ = ()


_Ordered = tuple[int, int, int, int]
"""(first, last, count, state): sorts like PersisterStateBatch.compareTo."""


def _ordered(batch: StateBatch) -> _Ordered:
    return batch.first_offset, batch.last_offset, batch.delivery_count, batch.delivery_state


def _trimmed(batches: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Remove offsets below the start offset (pruneBatches)."""
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
    """The combination of both, disjoint and sorted, without offsets below `start_offset` (-1: none is dropped).

    Fewer than two batches are returned unchanged. Source: PersisterStateBatchCombiner.combineStateBatches.
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
    """Like `_combined` for both, but only where they meet: a live share partition may have hundreds of batches.

    The scan passes batches unchanged that end before the first fresh offset without adjoining it, and those that begin
    after the last one. Nothing that the scan makes of the batches in between can be joined with either: the outermost
    pieces have the rank of batches that could not be joined before.
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
    """The result of Kafka's scan over batches that need no trimming."""
    joined = _joined(batches)
    if joined is not None:
        return joined
    if len(batches) < 2:
        return tuple(batches)
    scanned = _scanned(batches)
    # Usually the scan leaves nothing to join: then this is its result.
    joined = _joined(scanned)
    return joined if joined is not None and len(joined) == len(scanned) else scanned


def _joined(batches: Sequence[StateBatch]) -> CleanBatches | None:
    """Join neighbours of equal rank. None if the batches are not ascending and disjoint."""
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
    # Kafka's sorted set as a heap: equal batches come out one after the other, and all but one are dropped there.
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
    """The replacement for two neighbours of the sorted set; None if they neither overlap nor join."""
    first, last, *rank = previous
    candidate_first, candidate_last, *candidate_rank = candidate
    overlaps = candidate_first <= last
    if rank == candidate_rank and (overlaps or last + 1 == candidate_first):
        return ((first, max(last, candidate_last), rank[0], rank[1]),)
    if not overlaps:
        return None
    candidate_rest = (last + 1, candidate_last, candidate_rank[0], candidate_rank[1])
    if candidate_rank < rank:
        # A candidate with the same first offset is the longer one: the set is then sorted by last offset.
        return (previous, candidate_rest) if candidate_last > last else (previous,)
    if candidate_first == first:
        # Kafka drops the part that a shorter previous batch covers; a longer one would come after the candidate.
        return (candidate,)
    head = (first, candidate_first - 1, rank[0], rank[1])
    if candidate_last < last:
        return head, candidate, (candidate_last + 1, last, rank[0], rank[1])
    return head, candidate
