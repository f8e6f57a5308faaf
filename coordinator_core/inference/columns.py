"""Work on columns which would take numpy a sort or many passes: compiled loops, and what is made of them."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final, TypeVar

import numpy as np

from coordinator_core.log.chunk import I8, I64, BoolArray
from coordinator_core.log.fast import compiled

COUNTED_MAX: Final = 1 << 20
"""Distinct numbers are counted in an array where they lie this close together, or closer than there are rows; else
they are sorted."""

Columns = TypeVar("Columns")


def taken(columns: Columns, rows: I64) -> Columns:
    """Some rows of a dataclass of columns, its fields columns of one length or dataclasses of such."""
    values = ((field.name, getattr(columns, field.name)) for field in fields(columns))  # type: ignore[arg-type]
    found: dict[str, Any] = {
        name: taken(value, rows) if is_dataclass(value) and not isinstance(value, type) else value[rows]
        for name, value in values
    }
    return type(columns)(**found)


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


def distinct(numbers: I64) -> tuple[I64, I64]:
    """The distinct numbers in order, and for each row the index of its own."""
    if not len(numbers):
        return numbers, numbers
    lowest, highest = int(numbers.min()), int(numbers.max())
    if highest - lowest >= max(COUNTED_MAX, len(numbers)):
        return np.unique(numbers, return_inverse=True)
    places = numbers - lowest
    is_there = np.zeros(highest - lowest + 1, np.bool_)
    is_there[places] = True
    return np.flatnonzero(is_there) + lowest, (np.cumsum(is_there) - 1)[places]


def ordered_by(code: I64, code_count: int, place: I64) -> I64:
    """The order of rows by code (0 to `code_count`, exclusive), then place; of equals, as they come.

    Places mostly ascend as they come, as a log does: then it takes no sort.
    """
    order = np.arange(len(place)) if is_ascending(place) else np.argsort(place, kind="stable")
    return stable_order(code, code_count, order)


@compiled
def is_ascending(values: I64) -> bool:
    """Is no value less than the one before it?"""
    for index in range(1, len(values)):  # noqa: SIM110  (compiled: it stops at the first one)
        if values[index] < values[index - 1]:
            return False
    return True


@compiled
def stable_order(code: I64, code_count: int, order: I64) -> I64:
    """`order`, sorted by code: what has one code stays in its order. Codes are 0 to `code_count`, exclusive."""
    place = np.zeros(code_count + 1, np.int64)
    for row in range(len(code)):
        place[code[row] + 1] += 1
    for number in range(code_count):
        place[number + 1] += place[number]
    found = np.empty(len(order), np.int64)
    for index in range(len(order)):
        row = order[index]
        found[place[code[row]]] = row
        place[code[row]] += 1
    return found
