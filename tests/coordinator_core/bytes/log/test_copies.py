"""Leader epochs of copies: which ones cannot be true, and which leaders loaded a log whose start had moved."""

import numpy as np
import pytest

from coordinator_core.bytes.log.copies import Lineage, Load, out_of_order

CASES = {
    "none": ([], -1, None, []),
    "in order": ([0, 0, 1, 3], -1, None, []),
    "one too high": ([0, 0, 9, 0, 1], -1, None, [2]),
    "one too low": ([2, 2, 0, 2], -1, None, [2]),
    "the first of a new epoch": ([0, 0, 4, 1, 1], -1, None, [2]),
    "of two that contradict each other the higher": ([5, 3], -1, None, [0]),
    "unknown ones say nothing": ([4, -1, 4, -1, 5], -1, None, []),
    "below that of the segment before": ([1, 2, 2], 2, None, [0]),
    "above that of the segment behind": ([2, 2, 9], -1, 2, [2]),
    "a segment behind that is damaged itself": ([5, 5], -1, 0, []),
    "all of them": ([1], 2, None, [0]),
}


@pytest.mark.parametrize("name", CASES)
def test_epochs_out_of_order(name: str) -> None:
    """As few as possible, the higher ones of as many."""
    epochs, before, after, expected = CASES[name]
    found = out_of_order(np.array(epochs, np.int64), before, after)
    assert np.flatnonzero(found).tolist() == expected


def test_what_a_damaged_header_showed_is_forgotten() -> None:
    """Only of the batch that showed it: another one proves the epoch."""
    lineage = Lineage({0: 0, 3: 7, 9: 12})
    assert lineage.without([(9, 12), (3, 8)]) == Lineage({0: 0, 3: 7})
    assert lineage.without([(3, 8)]) is lineage


def seen(*copies: tuple[int, int], epochs: dict[int, int], known: tuple[int, ...] = ()) -> Lineage:
    """What captures of one copy each find: its log start offset and its end. `known`: the end of bronze before each."""
    lineage = Lineage(epochs)
    for index, copy in enumerate(copies):
        end = known[index] if known else max((end for _, end in copies[:index]), default=0)
        lineage = lineage.with_log_starts([copy], end)
    return lineage


LOADS = {
    "the start never moved": (((0, 40), (0, 60)), {0: 0, 1: 45}, []),
    "moved, and no new leader": (((0, 40), (40, 60)), {0: 0}, []),
    "moved and an epoch began between two captures": (((0, 40), (40, 60)), {0: 0, 1: 45}, [Load(45, 1, 40, False)]),
    "moved before the epoch began": (((0, 40), (40, 60), (40, 80)), {0: 0, 1: 61}, [Load(61, 1, 40, True)]),
    "moved after the epoch began": (((0, 50), (40, 60)), {0: 0, 1: 45}, []),
    "moved beyond the epoch's beginning": (((0, 40), (50, 60)), {0: 0, 1: 45}, []),
    "the second epoch loads what the first one did": (
        ((0, 40), (40, 60)),
        {0: 0, 1: 45, 2: 50},
        [Load(45, 1, 40, False)],
    ),
    "moved twice": (
        ((0, 40), (40, 60), (70, 90)),
        {0: 0, 1: 45, 2: 65, 3: 80},
        [Load(45, 1, 40, False), Load(80, 3, 70, False)],
    ),
    "of the first capture": (((30, 60),), {0: 0, 1: 45}, [Load(45, 1, 30, False)]),
    "of the first capture, without a new leader": (((30, 60),), {0: 0}, []),
}


@pytest.mark.parametrize("name", LOADS)
def test_loads_from_a_start_that_moved(name: str) -> None:
    """A leader loads from the log start: what a copy that was read before its epoch began is certain, else likely."""
    copies, epochs, expected = LOADS[name]
    assert list(seen(*copies, epochs=epochs).loads) == expected


@pytest.mark.parametrize("name", LOADS)
def test_loads_do_not_depend_on_the_order_of_copies(name: str) -> None:
    """Copies that come late, or together, show the same."""
    copies, epochs, expected = LOADS[name]
    late = seen(*reversed(copies), epochs=epochs)
    together = Lineage(epochs).with_log_starts(copies, 0)
    parts = Lineage()
    for copy in copies:
        parts = parts.merged(Lineage(epochs).with_log_starts([copy, max(copies)], 0))
    assert [list(it.loads) for it in (late, together, parts)] == [expected] * 3


def test_a_start_that_stays_is_not_written_again() -> None:
    """A night that finds the log start where it was changes nothing."""
    lineage = seen((0, 40), (40, 60), epochs={0: 0})
    assert lineage.with_log_starts([(40, 80)], 60) is lineage
    assert Lineage({0: 0}).with_log_starts([(0, 80)], 60) == Lineage({0: 0})


def test_a_checkpoint_shows_where_the_start_moved_to() -> None:
    """Kafka drops older epochs from it and sets the offset of the first one left to the log start offset."""
    lineage = Lineage({0: 0, 1: 20, 2: 50})
    assert lineage.bounds_of([(0, 0), (1, 20), (2, 50)], 0, 60) == (0, 60)
    assert lineage.bounds_of([(1, 40), (2, 50)], 0, 60) == (40, 60)
    assert lineage.bounds_of([(2, 50)], 0, 60) == (50, 60), "older epochs are gone"
    assert lineage.bounds_of([(1, 40), (2, 50)], 45, 60) == (45, 60)
    assert lineage.bounds_of([(0, 0), (3, 60)], 0, 60) == (0, 61), "an epoch that has no record yet"
    assert Lineage({2: 50}).bounds_of([(2, 50)], 0, 60) == (0, 60), "written before there were leader epochs"
    assert lineage.bounds_of([], 30, 60) == (30, 60)
