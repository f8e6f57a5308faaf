"""Leader epochs of one copy: which ones cannot be true."""

import numpy as np
import pytest

from coordinator_core.log.copies import Lineage, out_of_order

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
