"""Work on columns."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final, TypeVar

import numpy as np

from coordinator_core.log.chunk import I8, I64, BoolArray

COUNTED_MIN: Final = 1 << 12
COUNTED_FACTOR: Final = 16
"""Distinct numbers are counted in an array where they lie so close together, or within so many times as many as there
are; else they are sorted, which takes less time then."""

Columns = TypeVar("Columns")


def taken(columns: Columns, rows: I64) -> Columns:
    """Some rows of a dataclass of columns, its fields columns of one length or dataclasses of such."""
    values = ((field.name, getattr(columns, field.name)) for field in fields(columns))  # type: ignore[arg-type]
    found: dict[str, Any] = {
        name: taken(value, rows) if is_dataclass(value) and not isinstance(value, type) else value[rows]
        for name, value in values
    }
    return type(columns)(**found)


def joined(first: Columns, second: Columns) -> Columns:
    """The rows of two dataclasses of columns, one after the other."""
    names = [field.name for field in fields(first)]  # type: ignore[arg-type]
    return type(first)(**{name: np.concatenate((getattr(first, name), getattr(second, name))) for name in names})


def first_that_holds(conditions: Sequence[BoolArray]) -> I8:
    """For each row, the index of the first condition that holds; as many as there are where none does."""
    found = np.full(len(conditions[0]), len(conditions), np.int8)
    for index in reversed(range(len(conditions))):
        found = np.where(conditions[index], np.int8(index), found)
    return found


def code_of(codes: Sequence[int], index: I8) -> I8:
    """One of a few codes for each row."""
    found: I8 = np.array(codes, np.int8)[index]
    return found


def numbered_pairs(first: I64, second: I64) -> I64:
    """A number for each pair: the same for the same pair, and in the order of the pairs.

    The distinct values of both, multiplied, must fit: as those of what has fewer rows than 2**31 do, if `first` counts
    from 0 and `second` is of 32 bits.
    """
    if not len(first):
        return first
    lowest = int(second.min())
    return first * (int(second.max()) - lowest + 1) + (second - lowest)


def is_countable(span: int, count: int) -> bool:
    """Does it take less to count `count` numbers in an array of `span` than to sort them?"""
    return span <= max(COUNTED_MIN, COUNTED_FACTOR * count)


def distinct(numbers: I64) -> tuple[I64, I64]:
    """The distinct numbers in order, and for each row the index of its own."""
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
    """Of the distinct pairs, in order, the first and the second ones; and for each row the index of its own. The limit
    is that of `numbered_pairs`."""
    pairs, index = distinct(numbered_pairs(first, second))
    if not len(pairs):
        return first, second, index
    lowest = int(second.min())
    span = int(second.max()) - lowest + 1
    return pairs // span, pairs % span + lowest, index
