"""The memory of a task: Python looks for cycles seldom, and not never; what the task before left is given back."""

import gc
import os
import weakref
from pathlib import Path

from jobs.spark.executors import InProcess
from jobs.spark.tasks import YOUNG_OBJECTS_MAX, give_back, run_tasks


class _Cycle:
    """An object that holds itself."""

    def __init__(self) -> None:
        self.itself = self


def _most_cycles(count: int) -> int:
    """Make and drop cycles. Returns how many were there at a time."""
    alive: weakref.WeakSet[_Cycle] = weakref.WeakSet()
    most = 0
    for _ in range(count):
        alive.add(_Cycle())
        most = max(most, len(alive))
    return most


def test_cycles_stay_bounded_in_a_task() -> None:
    """Of four hundred thousand cycles that a task makes and drops, many are there at a time, and not all."""
    before = gc.get_threshold()
    try:
        (most,) = run_tasks(InProcess(), _most_cycles, [2 * YOUNG_OBJECTS_MAX])
    finally:
        gc.set_threshold(*before)
    assert 10_000 < most < 1.2 * YOUNG_OBJECTS_MAX


def test_what_was_freed_is_given_back() -> None:
    """Of a gigabyte in blocks that malloc would keep, the process has nothing any more."""
    blocks = [bytearray(1 << 16) for _ in range(1 << 14)]
    owned = _resident_bytes()
    pins = blocks[::256]
    del blocks
    give_back()
    assert len(pins) == 64
    assert _resident_bytes() < owned - (900 << 20)


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
