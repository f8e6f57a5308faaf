"""Work for Spark's tasks that reads and writes files itself: one element a task, results back to the driver.

Neither the input nor the output of such a task goes through the JVM: it gets a small description of its work and
answers with a small description of what it did.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from pyspark.sql import SparkSession

Work = TypeVar("Work")
Done = TypeVar("Done")


def run_tasks(session: SparkSession, function: Callable[[Work], Done], work: Sequence[Work]) -> list[Done]:
    """Run `function` on each element in a task of its own; results in the order of `work`.

    `function` and `work` must pickle: functions of a module do. Spark repeats a task that failed, so `function` must
    leave nothing behind that a second run would double.
    """
    if not work:
        return []
    return session.sparkContext.parallelize(work, len(work)).map(function).collect()


def balanced(weights: Sequence[int], bins_max: int) -> list[list[int]]:
    """Indices of `weights` in at most `bins_max` bins of about one weight, the heaviest bin first.

    Greedy by falling weight, ties by index: deterministic.
    """
    bins: list[list[int]] = [[] for _ in range(min(bins_max, len(weights)))]
    loads = [0] * len(bins)
    for index in sorted(range(len(weights)), key=lambda index: (-weights[index], index)):
        lightest = loads.index(min(loads))
        bins[lightest].append(index)
        loads[lightest] += weights[index]
    order = sorted(range(len(bins)), key=lambda bin_: (-loads[bin_], bin_))
    return [sorted(bins[bin_]) for bin_ in order]
