"""Work for Spark's tasks that reads and writes files itself: one element a task, results back to the driver.

Neither the input nor the output of such a task goes through the JVM: it gets a small description of its work and
answers with a small description of what it did.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from pyspark import Accumulator
from pyspark.sql import SparkSession

from jobs.memory import few_cycles, give_back

TASKS_PER_CORE: Final = 2
"""So that the last tasks end at about one time, without paying for many small tasks."""
TASK_BYTES_MIN: Final = 16 << 20
"""Of bronze. Where tasks have less each, one a core will do: a task has its price, and files with rows of several log
partitions are read by each task that wants some of them."""

Work = TypeVar("Work")
Done = TypeVar("Done")


@dataclass(frozen=True, slots=True)
class Doing:
    """What tasks are at, for whoever shows it."""

    what: str
    """In plain words."""
    total_bytes: int
    """Of all tasks; 0 where their work has no `size_bytes`."""
    done: "Accumulator[int]"

    @property
    def done_bytes(self) -> int:
        """Of the tasks that ended."""
        return min(self.done.value, self.total_bytes)


_doing: Final[list[Doing]] = []
"""A driver does one thing at a time."""


def doing() -> Doing | None:
    """What tasks are at now, if they are."""
    return _doing[-1] if _doing else None


@dataclass(frozen=True, slots=True)
class _Counted(Generic[Work, Done]):
    """A function that says in bytes how much it has done, when it has."""

    function: Callable[[Work], Done]
    done: "Accumulator[int]"

    def __call__(self, work: Work) -> Done:
        give_back()
        with few_cycles():
            result = self.function(work)
        self.done.add(_size_bytes(work))
        return result


def run_tasks(
    session: SparkSession, function: Callable[[Work], Done], work: Sequence[Work], what: str = ""
) -> list[Done]:
    """Run `function` on each element in a task of its own; results in the order of `work`.

    `function` and `work` must pickle: functions of a module do. Spark repeats a task that failed, so `function` must
    leave nothing behind that a second run would double. `what` is being done, in plain words; where elements have
    `size_bytes`, progress is told by them.
    """
    if not work:
        return []
    context = session.sparkContext
    with _telling(Doing(what, sum(map(_size_bytes, work)), context.accumulator(0))) as now:
        return context.parallelize(work, len(work)).map(_Counted(function, now.done)).collect()


def _size_bytes(work: object) -> int:
    size_bytes: int = getattr(work, "size_bytes", 0)
    return size_bytes


@contextmanager
def _telling(now: Doing) -> Iterator[Doing]:
    _doing.append(now)
    try:
        yield now
    finally:
        _doing.remove(now)


def task_count(session: SparkSession, size_bytes: int, task_bytes_min: int = TASK_BYTES_MIN) -> int:
    """In how many tasks to read so many bytes."""
    core_count = session.sparkContext.defaultParallelism
    return min(TASKS_PER_CORE * core_count, max(core_count, size_bytes // task_bytes_min))


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
