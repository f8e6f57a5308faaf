"""Helpers for columns."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final, TypeVar

import numpy as np

from coordinator_core.bytes.log.chunk import I8, I64, BoolArray

COUNTED_MIN: Final = 1 << 12
COUNTED_FACTOR: Final = 16
"""Distinct numbers are counted in an array if their span is at most COUNTED_MIN or COUNTED_FACTOR times their count;
else they are sorted, which is then faster."""

Columns = TypeVar("Columns")


def taken(columns: Columns, rows: I64) -> Columns:
    """Some rows of a dataclass of columns. Its fields are columns of one length, or dataclasses of columns."""
    values = ((field.name, getattr(columns, field.name)) for field in fields(columns))  # type: ignore[arg-type]
    found: dict[str, Any] = {
        name: taken(value, rows) if is_dataclass(value) and not isinstance(value, type) else value[rows]
        for name, value in values
    }
    return type(columns)(**found)


def joined(first: Columns, second: Columns) -> Columns:
    """Concatenate the rows of two dataclasses of columns."""
    names = [field.name for field in fields(first)]  # type: ignore[arg-type]
    return type(first)(**{name: np.concatenate((getattr(first, name), getattr(second, name))) for name in names})


def first_that_holds(conditions: Sequence[BoolArray]) -> I8:
    """For each row, the index of the first condition that holds; the number of conditions if none does."""
    found = np.full(len(conditions[0]), len(conditions), np.int8)
    for index in reversed(range(len(conditions))):
        found = np.where(conditions[index], np.int8(index), found)
    return found


def code_of(codes: Sequence[int], index: I8) -> I8:
    """For each row, the code at its index."""
    found: I8 = np.array(codes, np.int8)[index]
    return found


def numbered_pairs(first: I64, second: I64) -> I64:
    """A number for each pair: equal for equal pairs, and in the order of the pairs.

    The value ranges of both, multiplied, must fit into 64 bits. That is so for fewer than 2**31 rows, if `first` counts
    from 0 and `second` has 32 bits.
    """
    if not len(first):
        return first
    lowest = int(second.min())
    return first * (int(second.max()) - lowest + 1) + (second - lowest)


def is_countable(span: int, count: int) -> bool:
    """Whether counting `count` numbers in an array of `span` is cheaper than sorting them."""
    return span <= max(COUNTED_MIN, COUNTED_FACTOR * count)


def distinct(numbers: I64) -> tuple[I64, I64]:
    """The distinct numbers in order, and for each row the index of its number."""
    if not len(numbers):
        return numbers, numbers
    lowest, highest = int(numbers.min()), int(numbers.max())
    if not is_countable(highest - lowest + 1, len(numbers)):
        return np.unique(numbers, return_inverse=True)
    places = numbers - lowest
    is_there = np.zeros(highest - lowest + 1, np.bool_)
    is_there[places] = True
    return np.flatnonzero(is_there) + lowest, (np.cumsum(is_there) - 1)[places]


def distinct_pairs(first: I64, second: I64) -> tuple[I64, I64, I64]:
    """The first and second elements of the distinct pairs, in order, and for each row the index of its pair. Limits as
    in `numbered_pairs`."""
    pairs, index = distinct(numbered_pairs(first, second))
    if not len(pairs):
        return first, second, index
    lowest = int(second.min())
    span = int(second.max()) - lowest + 1
    return pairs // span, pairs % span + lowest, index
