"""Coverage is an algebra: merging is idempotent, commutative, associative, and agrees with single offsets."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.bytes.coverage import (
    BEFORE_FIRST,
    BETWEEN,
    CoverageKind,
    CoverageRange,
    complete_coverage,
    intersect,
    merge_coverage,
    subtract,
    union,
    with_times,
)

CAPTURED, COMPACTED, CORRUPT, MISSING = (
    CoverageKind.CAPTURED,
    CoverageKind.COMPACTED,
    CoverageKind.CORRUPT,
    CoverageKind.MISSING,
)


def captured(first: int, last: int, at: int = 0, times: tuple[int, int] | None = None) -> CoverageRange:
    first_ms, last_ms = times or (None, None)
    return CoverageRange(first, last, CAPTURED, at, first_timestamp_ms=first_ms, last_timestamp_ms=last_ms)


@st.composite
def ranges(draw: st.DrawFn) -> CoverageRange:
    first = draw(st.integers(0, 30))
    last = first + draw(st.integers(0, 8))
    kind = draw(st.sampled_from(CoverageKind))
    at = draw(st.integers(0, 3))
    if kind is not CAPTURED:
        reasons = {MISSING: [BEFORE_FIRST, BETWEEN, "deleted"], CORRUPT: ["crc", "skipped"]}
        return CoverageRange(first, last, kind, at, draw(st.sampled_from(reasons.get(kind, ["compaction"]))))
    times = draw(st.none() | st.tuples(st.integers(0, 5), st.integers(5, 9)))
    return captured(first, last, at, times)


coverages = st.lists(ranges(), max_size=8)


def by_offset(coverage: Sequence[CoverageRange]) -> dict[int, tuple[CoverageKind, int, str | None]]:
    """The model: what is best known of each single offset (times of captured ranges belong to whole ranges)."""
    best: dict[int, tuple[int, int, str]] = {}
    for r in coverage:
        for offset in range(r.from_offset, r.to_offset + 1):
            rank = (-int(r.kind), 0 if r.kind is CAPTURED else r.observed_at_ms, r.reason or "")
            best[offset] = min(best.get(offset, rank), rank)
    return {offset: (CoverageKind(-kind), at, reason or None) for offset, (kind, at, reason) in best.items()}


@given(coverages, coverages)
def test_merge_agrees_with_single_offsets(a: list[CoverageRange], b: list[CoverageRange]) -> None:
    """At each offset the merge says what the better of the two said, and nothing of any other offset."""
    assert by_offset(merge_coverage(a, b)) == by_offset([*a, *b])


@given(coverages, coverages, coverages)
def test_merge_does_not_depend_on_order(a: list[CoverageRange], b: list[CoverageRange], c: list[CoverageRange]) -> None:
    """Captures may come in any order and any grouping."""
    together = merge_coverage(merge_coverage(a, b), c)
    assert together == merge_coverage(a, merge_coverage(b, c))
    assert together == merge_coverage(c, merge_coverage(b, a))


@given(coverages, coverages)
def test_merge_is_idempotent(a: list[CoverageRange], b: list[CoverageRange]) -> None:
    """Seeing the same again changes nothing."""
    merged = merge_coverage(a, b)
    assert merge_coverage(merged, b) == merged
    assert merge_coverage(merged, merged) == merged


@given(coverages)
def test_merge_is_disjoint_and_ascending(a: list[CoverageRange]) -> None:
    """No offset is in two ranges, and neighbours that say the same are one."""
    merged = merge_coverage(a, [])
    for earlier, later in pairwise(merged):
        assert earlier.to_offset < later.from_offset
        if earlier.kind is CAPTURED and later.kind is CAPTURED:
            assert earlier.to_offset + 1 < later.from_offset


@given(coverages)
def test_completed_coverage_has_every_offset_once(a: list[CoverageRange]) -> None:
    """From offset 0 to the last one, each offset is in exactly one range."""
    complete = complete_coverage(merge_coverage(a, []), observed_at_ms=7)
    next_offset = 0
    for r in complete:
        assert r.from_offset == next_offset
        next_offset = r.to_offset + 1
    assert next_offset == max((r.to_offset + 1 for r in a), default=0)
    assert complete_coverage(complete, observed_at_ms=9) == complete


def test_gaps_are_named_by_where_they_are() -> None:
    """A gap lies before the first captured offset or between two captures, and a later capture can change which."""
    one = complete_coverage(merge_coverage([captured(10, 19)], []), observed_at_ms=1)
    assert one == (CoverageRange(0, 9, MISSING, 1, BEFORE_FIRST), captured(10, 19))
    two = complete_coverage(merge_coverage(one, [captured(2, 3, at=2)]), observed_at_ms=2)
    assert two == (
        CoverageRange(0, 1, MISSING, 1, BEFORE_FIRST),
        captured(2, 3, at=2),
        CoverageRange(4, 9, MISSING, 1, BETWEEN),
        captured(10, 19),
    )


def test_a_reason_of_its_own_is_kept() -> None:
    """What Kafka deleted on purpose stays said so."""
    deleted = CoverageRange(0, 9, MISSING, 1, "deleted below the log start offset")
    assert complete_coverage([deleted, captured(10, 10)], observed_at_ms=2)[0] == deleted


def test_captured_neighbours_join_with_their_times() -> None:
    """Two captures that touch are one range, first seen at the first, with the times of both."""
    merged = merge_coverage([captured(0, 4, at=1, times=(100, 200))], [captured(5, 9, at=2, times=(150, 300))])
    assert merged == (captured(0, 9, at=1, times=(100, 300)),)


@pytest.mark.parametrize(
    ("first", "last", "kind", "timestamp_ms"), [(-1, 0, CAPTURED, None), (5, 4, CAPTURED, None), (0, 1, MISSING, 5)]
)
def test_impossible_ranges_cannot_exist(first: int, last: int, kind: CoverageKind, timestamp_ms: int | None) -> None:
    """Offsets do not go back or below 0, and only what was captured has times."""
    with pytest.raises(ValueError, match=r"offsets|timestamps"):
        CoverageRange(first, last, kind, 0, first_timestamp_ms=timestamp_ms)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6))),
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6))),
)
def test_union_and_subtract_agree_with_sets(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    """Ranges behave as the sets of their offsets."""
    first = [(start, start + more) for start, more in a]
    second = [(start, start + more) for start, more in b]

    def offsets(ranges: list[tuple[int, int]]) -> set[int]:
        return {offset for start, last in ranges for offset in range(start, last + 1)}

    assert offsets(union(first)) == offsets(first)
    assert offsets(subtract(first, second)) == offsets(first) - offsets(second)
    assert offsets(intersect(first, second)) == offsets(first) & offsets(second)
    for parts in (subtract(first, second), intersect(first, second)):
        assert all(earlier[1] < later[0] for earlier, later in pairwise(parts))


def test_what_is_missing_lies_between_the_times_of_its_neighbours() -> None:
    """The last captured batch before and the first one after bound what was lost; compaction lost nothing."""
    merged = complete_coverage(
        [
            captured(10, 19, times=(100, 200)),
            CoverageRange(20, 29, COMPACTED, 0, "compaction"),
            captured(30, 39),
            CoverageRange(50, 54, CORRUPT, 0, "crc"),
            captured(55, 59, times=(300, 400)),
            CoverageRange(60, 69, MISSING, 0, "deleted"),
        ],
        observed_at_ms=1,
    )
    assert [(r.from_offset, r.kind, first_ms, last_ms) for r, first_ms, last_ms in with_times(merged)] == [
        (0, MISSING, None, 100),
        (10, CAPTURED, 100, 200),
        (20, COMPACTED, None, None),
        (30, CAPTURED, None, None),
        (40, MISSING, 200, 300),
        (50, CORRUPT, 200, 300),
        (55, CAPTURED, 300, 400),
        (60, MISSING, 400, None),
    ]
