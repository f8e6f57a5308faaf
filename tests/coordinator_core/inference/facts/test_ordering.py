"""Orders of rows, against Python's sort."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.inference.facts.ordering import is_ascending, ordered_by


def column(values: list[int]) -> I64:
    """A column of numbers."""
    return np.array(values, np.int64)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(-9, 9))), st.booleans())
def test_order_by_code_and_place_is_stable(rows: list[tuple[int, int]], is_sorted: bool) -> None:
    """As Python sorts, where places ascend already and where they do not."""
    if is_sorted:
        rows.sort(key=lambda row: row[1])
    codes, places = (column(list(values)) for values in zip(*rows, strict=True)) if rows else (column([]), column([]))
    assert ordered_by(codes, 7, places).tolist() == sorted(range(len(rows)), key=rows.__getitem__)


@given(st.lists(st.integers(-5, 5)))
def test_what_ascends(values: list[int]) -> None:
    """Equal neighbours do, too."""
    assert is_ascending(column(values)) == (values == sorted(values))
