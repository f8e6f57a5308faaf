"""Where in a log partition a moment is: by time where that only grows, by log offset where it does not."""

from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.history.moments import NO_TIME, filled, is_regular, log_ends_at, unplaced_at

CLOCK_BEHIND: Final = (100, 110, 160, 170, 30, 40, 50, 60, 200, 210)
"""The second leader's clock is behind, from offset 4 to 7."""


def array(*values: int | None) -> I64:
    """Times, None for none."""
    return np.array([NO_TIME if value is None else value for value in values], np.int64)


def ends(times: tuple[int | None, ...], at_ms: int) -> list[int]:
    """Log ends at a moment, of records at the offsets 0, 1, ..."""
    return list(log_ends_at(np.arange(len(times)), filled(array(*times)), at_ms))


@pytest.mark.parametrize(
    ("at_ms", "expected"),
    [(29, [0]), (30, [5]), (105, [1, 8]), (165, [3, 8]), (175, [4, 8]), (199, [4, 8]), (200, [9]), (10_000, [10])],
)
def test_a_moment_that_the_log_has_twice(at_ms: int, expected: list[int]) -> None:
    """Both places count until the log passes the time from which the clock went back."""
    assert ends(CLOCK_BEHIND, at_ms) == expected


def test_a_clock_that_never_comes_back() -> None:
    """Until the log would have passed that time, had the clock not gone back, nobody can tell; then it is its end."""
    assert [ends((100, 40, 60), at_ms) for at_ms in (99, 100, 119, 120)] == [[3], [1, 3], [1, 3], [3]]


def test_records_without_a_time_follow_the_one_before_them() -> None:
    """They count from then on, and until the next one with a time they may have been written later."""
    times = (None, 10, None, None, 20)
    assert [ends(times, at_ms) for at_ms in (5, 10, 20)] == [[1], [4], [5]]
    unplaced = [np.flatnonzero(unplaced_at(array(*times), at_ms)).tolist() for at_ms in (5, 10, 20)]
    assert unplaced == [[0], [2, 3], []]


@given(st.lists(st.integers(0, 50), max_size=20).map(sorted), st.integers(0, 60))
def test_where_time_only_grows_there_is_one_place(times: list[int], at_ms: int) -> None:
    """It is behind the last record that was written by then."""
    assert is_regular(array(*times))
    expected = [sum(time <= at_ms for time in times)] if times else []
    assert ends(tuple(times), at_ms) == expected


@given(st.lists(st.one_of(st.none(), st.integers(0, 50)), min_size=1, max_size=20), st.integers(0, 60))
def test_a_place_is_behind_a_record_of_by_then(times: list[int | None], at_ms: int) -> None:
    """Whatever the clocks did: no place is behind a record of later, and the places ascend."""
    found = ends(tuple(times), at_ms)
    known = filled(array(*times))
    assert found == sorted(set(found))
    assert all(known[end - 1] <= at_ms for end in found if end)
    assert (found == [0]) == bool(np.all(known > at_ms))
    if not np.any(known[1:] < known[:-1]):
        assert len(found) == 1
