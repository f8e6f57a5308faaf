"""The memory of a worker process: Python looks for cycles seldom in a task, and not never; what is left of one kind of
task is given back before the next."""

import gc
import os
import weakref
from pathlib import Path

import pytest

from jobs.spark import gc_freeze as loading
from jobs.spark import worker_memory as memory
from jobs.spark.worker_memory import few_cycles, free_bytes, give_back, make_room_for


class _Cycle:
    """An object that holds itself."""

    def __init__(self) -> None:
        self.itself = self


def test_cycles_stay_bounded_in_a_task() -> None:
    """Of two hundred thousand cycles that a task makes and drops, not all are there at a time."""
    alive: weakref.WeakSet[_Cycle] = weakref.WeakSet()
    most = 0
    with few_cycles():
        for _ in range(200_000):
            alive.add(_Cycle())
            most = max(most, len(alive))
    assert 1_000 < most < 120_000


def test_a_task_leaves_the_collector_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thresholds and what is passed over are as before, also after an error."""
    monkeypatch.setattr(loading, "_is_loaded", False)
    gc.unfreeze()
    before = gc.get_threshold()
    with pytest.raises(KeyError), few_cycles():
        assert gc.get_threshold() > before and gc.get_freeze_count() > 0
        raise KeyError
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


def test_what_a_worker_was_forked_with_stays_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where something was loaded for good, a task neither adds to what is passed over nor takes it back.

    What is passed over grows less when some of it is dropped (as other threads of the process may), so a few are
    allowed to be missing, never to come.
    """
    monkeypatch.setattr(loading, "_is_loaded", False)
    with loading.loaded_for_good():
        pass
    try:
        frozen = gc.get_freeze_count()
        newer: list[list[int]] = [[] for _ in range(10_000)]
        with few_cycles():
            assert frozen - len(newer) < gc.get_freeze_count() <= frozen
        assert frozen - len(newer) < gc.get_freeze_count() <= frozen
    finally:
        gc.unfreeze()


def test_memory_is_given_back_where_another_kind_of_task_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for all tasks of one kind in a row; again when it is their turn once more."""
    trimmed: list[int] = []
    monkeypatch.setattr(memory, "_TRIM", trimmed.append)
    monkeypatch.setattr(memory, "_KEPT_BYTES_MAX", -1)
    monkeypatch.setattr(memory, "_made_room_for", None)
    counts = []
    for function in (len, len, sorted, sorted, sorted, len):
        make_room_for(function)
        counts.append(len(trimmed))
    assert counts == [1, 1, 2, 2, 2, 3]


def test_a_little_memory_is_kept_for_whatever_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A heap with holes of 100 MB is given back when another kind of task begins, and then next to nothing is."""
    trimmed: list[int] = []
    monkeypatch.setattr(memory, "_made_room_for", None)
    blocks = [bytearray(1 << 16) for _ in range(1600)]
    give_back()
    free = free_bytes()
    monkeypatch.setattr(memory, "_TRIM", trimmed.append)
    monkeypatch.setattr(memory, "_KEPT_BYTES_MAX", free + (64 << 20))
    make_room_for(len)
    assert not trimmed
    pins = blocks[::16]
    del blocks
    assert len(pins) == 100
    assert free_bytes() > free + (90 << 20)
    make_room_for(sorted)
    assert len(trimmed) == 1


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
