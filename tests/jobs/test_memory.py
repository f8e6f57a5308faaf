"""The memory of a worker process: Python looks for cycles seldom in a task, and not never."""

import gc
import weakref

import pytest

from jobs.memory import few_cycles


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


def test_a_task_leaves_the_collector_as_it_was() -> None:
    """Thresholds and what is passed over are as before, also after an error."""
    gc.unfreeze()
    before = gc.get_threshold()
    with pytest.raises(KeyError), few_cycles():
        assert gc.get_threshold() > before and gc.get_freeze_count() > 0
        raise KeyError
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


def test_what_a_worker_was_forked_with_stays_passed_over() -> None:
    """Where something is passed over already, a task neither adds to it nor takes it back.

    What is passed over grows less when some of it is dropped (as other threads of the process may), so a few are
    allowed to be missing, never to come.
    """
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        newer: list[list[int]] = [[] for _ in range(10_000)]
        with few_cycles():
            assert frozen - len(newer) < gc.get_freeze_count() <= frozen
        assert frozen - len(newer) < gc.get_freeze_count() <= frozen
    finally:
        gc.unfreeze()
