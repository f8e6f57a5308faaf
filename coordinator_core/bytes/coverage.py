"""Which offsets of a log partition were captured and which were not: an algebra of offset ranges.

Two coverages merge offset by offset, and the better knowledge wins: CAPTURED over CORRUPT over COMPACTED over MISSING;
a hole within an intact batch wins over CORRUPT. So the order of captures does not matter, and capturing the same range
again changes nothing. A complete coverage has exactly one kind for each offset from 0 to the last known one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final

OFFSET_MAX: Final = 2**63 - 1


class CoverageKind(IntEnum):
    """What is known about an offset. A greater value is better knowledge."""

    MISSING = 0
    """Never read: it lies before the first capture, or between two captures."""
    COMPACTED = 1
    """A hole inside a captured range: the log was read there, and compaction had removed the record."""
    CORRUPT = 2
    """Its bytes were read and are damaged."""
    CAPTURED = 3
    """Its record or marker is in bronze."""


@dataclass(frozen=True, slots=True)
class CoverageRange:
    """Consecutive offsets of one kind. `to_offset` is inclusive; times are epoch milliseconds.

    Only CAPTURED ranges have timestamps: those of their batches, None if the batches have none. `with_times` derives
    times for the ranges between them. `observed_at_ms` is the start of the run that first saw the range as this kind.
    """

    from_offset: int
    to_offset: int
    kind: CoverageKind
    observed_at_ms: int
    reason: str | None = None
    first_timestamp_ms: int | None = None
    last_timestamp_ms: int | None = None
    leader_epoch: int | None = None
    """For a hole or a damaged range: the epoch of the batch after it, in the copy that shows it. None if unknown."""

    def __post_init__(self) -> None:
        if not 0 <= self.from_offset <= self.to_offset <= OFFSET_MAX:
            raise ValueError(f"no range of offsets: {self.from_offset} to {self.to_offset}")
        has_timestamp = self.first_timestamp_ms is not None or self.last_timestamp_ms is not None
        if self.kind is not CoverageKind.CAPTURED and has_timestamp:
            raise ValueError("only captured ranges have timestamps")


BEFORE_FIRST: Final = "before the first captured offset"
BETWEEN: Final = "between two captures"
IN_BATCH: Final = "compaction took the record out of its batch"
"""Reason of a hole within an intact batch. A damaged copy of that batch does not contradict it."""


def merge_coverage(old: Iterable[CoverageRange], new: Iterable[CoverageRange]) -> tuple[CoverageRange, ...]:
    """Merge two coverages into disjoint, ascending ranges. Idempotent, commutative and associative."""
    ranges = [*old, *new]
    captured = _union_of_captured(r for r in ranges if r.kind is CoverageKind.CAPTURED)
    others = [r for r in ranges if r.kind is not CoverageKind.CAPTURED]
    return tuple(_joined(_best_pieces([*captured, *others])))


def complete_coverage(ranges: Iterable[CoverageRange], *, observed_at_ms: int) -> tuple[CoverageRange, ...]:
    """Fill the gaps with MISSING ranges, from offset 0 to the last known offset. Returns disjoint ranges.

    A gap that was known before keeps its time. Its reason (before the first captured offset, or between two captures)
    is decided again, since a later capture may have read offsets before it.
    """
    ascending = sorted(ranges, key=lambda r: r.from_offset)
    if not ascending:
        return ()
    first_captured = next((r.from_offset for r in ascending if r.kind is CoverageKind.CAPTURED), OFFSET_MAX)
    gaps = subtract([(0, ascending[-1].to_offset)], ((r.from_offset, r.to_offset) for r in ascending))
    filled = [*ascending, *(CoverageRange(*gap, CoverageKind.MISSING, observed_at_ms, BETWEEN) for gap in gaps)]
    filled.sort(key=lambda r: r.from_offset)
    return tuple(_joined(_relabelled(r, first_captured) for r in filled))


def with_times(
    ranges: Sequence[CoverageRange],
) -> Iterator[tuple[CoverageRange, int | None, int | None]]:
    """Each of some ascending ranges, with the times (epoch ms) between which its records were written.

    A captured range has its own times. A MISSING or CORRUPT range was written after the last captured batch before it
    and before the first captured batch after it; a side without such a batch is None. A COMPACTED hole has no times:
    its record was obsolete.
    """
    after: list[int | None] = []
    first_after: int | None = None
    for r in reversed(ranges):
        after.append(first_after)
        if r.first_timestamp_ms is not None:
            first_after = r.first_timestamp_ms
    last_before: int | None = None
    for r, first_ms in zip(ranges, reversed(after), strict=True):
        match r.kind:
            case CoverageKind.CAPTURED:
                yield r, r.first_timestamp_ms, r.last_timestamp_ms
            case CoverageKind.COMPACTED:
                yield r, None, None
            case _:
                yield r, last_before, first_ms
        if r.last_timestamp_ms is not None:
            last_before = r.last_timestamp_ms


def _relabelled(r: CoverageRange, first_captured: int) -> CoverageRange:
    if r.kind is not CoverageKind.MISSING or r.reason not in (BEFORE_FIRST, BETWEEN):
        return r
    return replace(r, reason=BEFORE_FIRST if r.to_offset < first_captured else BETWEEN)


def subtract(ranges: Iterable[tuple[int, int]], holes: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Subtract offset ranges from others. Both ends are inclusive; the input may be in any order, the result is
    ascending and disjoint.
    """
    result: list[tuple[int, int]] = []
    cuts = union(holes)
    index = 0
    for first, last in union(ranges):
        position = first
        while index < len(cuts) and cuts[index][0] <= last:
            cut_first, cut_last = cuts[index]
            if cut_first > position:
                result.append((position, cut_first - 1))
            position = max(position, cut_last + 1)
            if cut_last > last:
                break  # this cut reaches into the next range
            index += 1
        if position <= last:
            result.append((position, last))
    return result


def intersect(a: Iterable[tuple[int, int]], b: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The offsets that are in both. Both ends are inclusive."""
    ranges = union(a)
    return subtract(ranges, subtract(ranges, b))


def union(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same offsets as ascending ranges that neither overlap nor adjoin. Both ends are inclusive."""
    result: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(result[-1][1], last))
        else:
            result.append((first, last))
    return result


def _union_of_captured(ranges: Iterable[CoverageRange]) -> list[CoverageRange]:
    """Captured ranges, with those joined that adjoin or overlap."""
    result: list[CoverageRange] = []
    for r in sorted(ranges, key=lambda r: r.from_offset):
        if not result or r.from_offset > result[-1].to_offset + 1:
            result.append(replace(r, reason=None))
            continue
        last = result[-1]
        result[-1] = CoverageRange(
            from_offset=last.from_offset,
            to_offset=max(last.to_offset, r.to_offset),
            kind=CoverageKind.CAPTURED,
            observed_at_ms=min(last.observed_at_ms, r.observed_at_ms),
            first_timestamp_ms=_least(last.first_timestamp_ms, r.first_timestamp_ms),
            last_timestamp_ms=_greatest(last.last_timestamp_ms, r.last_timestamp_ms),
        )
    return result


def _least(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def _greatest(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


def _rank(r: CoverageRange) -> tuple[int, int, int, str]:
    """Sort key for overlapping ranges: better knowledge first, then the newer leader epoch, which is truncated last,
    then the earlier observation, then the reason, so that ties have one winner."""
    epoch = OFFSET_MAX if r.leader_epoch is None else r.leader_epoch
    return -2 * int(r.kind) - 3 * (r.reason == IN_BATCH), -epoch, r.observed_at_ms, r.reason or ""


def _best_pieces(ranges: list[CoverageRange]) -> Iterator[CoverageRange]:
    """The best of overlapping ranges at each offset: a sweep over all ends, with the best open range on top of a
    heap."""
    ascending = sorted(ranges, key=lambda r: r.from_offset)
    ends = sorted({r.from_offset for r in ranges} | {r.to_offset + 1 for r in ranges})
    opened: list[tuple[tuple[int, int, int, str], int]] = []
    index = 0
    for first, next_end in pairwise(ends):
        while index < len(ascending) and ascending[index].from_offset == first:
            heappush(opened, (_rank(ascending[index]), index))
            index += 1
        while opened and ascending[opened[0][1]].to_offset < first:
            heappop(opened)
        if opened:
            yield replace(ascending[opened[0][1]], from_offset=first, to_offset=next_end - 1)


def _joined(ranges: Iterable[CoverageRange]) -> Iterator[CoverageRange]:
    """Merge neighbouring ranges that are alike."""
    current: CoverageRange | None = None
    for r in ranges:
        if current is not None and current.to_offset + 1 == r.from_offset and _rank(current) == _rank(r):
            current = replace(
                current,
                to_offset=r.to_offset,
                first_timestamp_ms=_least(current.first_timestamp_ms, r.first_timestamp_ms),
                last_timestamp_ms=_greatest(current.last_timestamp_ms, r.last_timestamp_ms),
            )
        else:
            if current is not None:
                yield current
            current = r
    if current is not None:
        yield current
