"""Orders of rows which take numpy a sort, in compiled passes."""

import numpy as np

from coordinator_core.log.chunk import I64
from coordinator_core.log.fast import compiled


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
