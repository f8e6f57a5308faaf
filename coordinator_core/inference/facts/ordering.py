"""Sorts rows in compiled passes, where numpy would need a comparison sort."""

from typing import TypeVar

import numpy as np

from coordinator_core.bytes.log.chunk import I32, I64
from coordinator_core.bytes.log.kernels import compiled


def ordered_by(code: I64, code_count: int, place: I64) -> I64:
    """The order of rows by code (0 to `code_count`, exclusive), then place. Stable.

    Places are mostly ascending already, as in a log: then no sort is needed.
    """
    order = np.arange(len(place)) if is_ascending(place) else np.argsort(place, kind="stable")
    return stable_order(code, code_count, order)


@compiled
def is_ascending(values: I64) -> bool:
    """Whether no value is less than the one before it."""
    for index in range(1, len(values)):  # noqa: SIM110  (compiled: it stops at the first one)
        if values[index] < values[index - 1]:
            return False
    return True


def stable_order(code: I64, code_count: int, order: I64) -> I64:
    """`order`, stably sorted by code. Codes are 0 to `code_count`, exclusive."""
    found, _ = grouped(code, code_count, order)
    return found


Rows = TypeVar("Rows", I32, I64)


@compiled
def grouped(code: I32 | I64, code_count: int, rows: Rows) -> tuple[Rows, I64]:
    """Rows stably sorted by code; and for each code, where its rows end."""
    ends = np.zeros(code_count, np.int64)
    for index in range(len(rows)):
        ends[code[rows[index]]] += 1
    next_place = 0
    for number in range(code_count):
        count = ends[number]
        ends[number] = next_place
        next_place += count
    found = np.empty_like(rows)
    for index in range(len(rows)):
        row = rows[index]
        found[ends[code[row]]] = row
        ends[code[row]] += 1
    return found, ends
