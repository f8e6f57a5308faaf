"""Work on columns, against what numpy and Python say of the same."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.inference.facts import columns
from coordinator_core.inference.facts.columns import code_of, distinct, first_that_holds, taken

NUMBERS = st.one_of(
    st.lists(st.integers(-5, 5)), st.lists(st.integers(-(2**62), 2**62)), st.lists(st.integers(10**12, 10**12 + 50))
)


def column(values: list[int]) -> I64:
    """A column of numbers."""
    return np.array(values, np.int64)


@given(NUMBERS, st.sampled_from([(0, 0), (0, 1), (100, 0), (columns.COUNTED_MIN, columns.COUNTED_FACTOR)]))
def test_distinct_numbers_whether_counted_or_sorted(values: list[int], counted: tuple[int, int]) -> None:
    """The numbers come back from the distinct ones by the indices, and these are in order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "COUNTED_MIN", counted[0])
        patch.setattr(columns, "COUNTED_FACTOR", counted[1])
        found, index = distinct(column(values))
    assert found.tolist() == sorted(set(values))
    assert found[index].tolist() == values


def test_the_first_condition_that_holds_gives_the_code() -> None:
    """Of several the first; where none holds the code behind the last."""
    first, second = np.array([True, False, False, True]), np.array([True, True, False, False])
    assert code_of((7, 8, -1), first_that_holds((first, second))).tolist() == [7, 8, -1, 7]


@dataclass(frozen=True)
class Inner:
    """Columns in columns."""

    number: I64


@dataclass(frozen=True)
class Outer:
    """Columns."""

    number: I64
    inner: Inner


def test_some_rows_of_columns_in_columns() -> None:
    """All columns are cut alike, at every depth."""
    found = taken(Outer(column([1, 2, 3]), Inner(column([4, 5, 6]))), column([2, 0]))
    assert (found.number.tolist(), found.inner.number.tolist()) == ([3, 1], [6, 4])
