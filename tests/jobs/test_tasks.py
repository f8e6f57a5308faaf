"""How work is shared out between tasks."""

from random import Random

import pytest

from jobs.tasks import tapered

MIB = 1024 * 1024


@pytest.mark.parametrize("core_count", [1, 2, 7, 64])
def test_every_index_is_in_one_bin(core_count: int) -> None:
    """None is lost, none is there twice, no task has nothing to do; also of logs of which nothing is to be read."""
    random = Random(core_count)
    for count in (0, 1, 3, 50, 400):
        weights = [random.choice([0, 1, 1000, 20 * MIB, 3000 * MIB]) for _ in range(count)]
        bins = tapered(weights, core_count, 128 * MIB)
        assert sorted(index for bin_ in bins for index in bin_) == list(range(count))
        assert all(bins)


@pytest.mark.parametrize("core_count", [2, 4, 16])
@pytest.mark.parametrize("seed", range(5))
def test_cores_end_together(core_count: int, seed: int) -> None:
    """A byte of some logs costs twice what it costs in others, and nobody knows: no core waits long."""
    random = Random(seed)
    weights = [14 * MIB] * 25 * core_count
    costs = [weight * random.uniform(1, 2) for weight in weights]
    ends = [0.0] * core_count
    for bin_ in tapered(weights, core_count, 128 * MIB):
        ends[ends.index(min(ends))] += sum(costs[index] for index in bin_)
    assert max(ends) < 1.06 * sum(costs) / core_count


def test_little_work_makes_few_tasks() -> None:
    """Two a core and no more; each has part files of its own."""
    assert [len(bin_) for bin_ in tapered([1000] * 100, 2)] == [25] * 4


def test_bins_are_as_heavy_as_allowed() -> None:
    """Much work makes as many tasks as are needed; a log that is heavier alone has one of its own."""
    weights = [10 * MIB] * 400 + [500 * MIB]
    bins = tapered(weights, 2, 128 * MIB)
    loads = [sum(weights[index] for index in bin_) for bin_ in bins]
    assert bins[0] == [400]
    assert loads == sorted(loads, reverse=True)
    assert max(loads[1:]) <= 140 * MIB
    assert len(bins) < 50
