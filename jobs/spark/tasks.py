"""Spark tasks that read and write files themselves: a plan of input partitions, one per task, and the tasks' results.

The terms are those of DataSource V2. The driver plans input partitions; `mapPartitions` passes each to a task, which
reads, replays and writes; its commit message names the files that it wrote; the driver commits the files of all tasks,
in one Delta transaction per table, or none of them. No row passes through the JVM in either direction.
"""

import ctypes
import gc
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, Generic

import pyarrow as pa

from jobs.console.running import Done, RunningStage, running
from jobs.spark.executors import Executor, InputPartition, WriterCommitMessage

TASKS_PER_CORE: Final = 2
"""Minimum number, if there is enough work."""
TASK_BYTES_MIN: Final = 16 << 20
"""Minimum size of a task, in bytes of bronze. With less work, one task per core suffices: a task has overhead, its
own part files, and reads shared row groups itself."""
SIDE_BY_SIDE_MAX: Final = 1.1
"""Maximum ratio of the heaviest contiguous range to the heaviest bin for using contiguous ranges."""
LIGHTEST_SHARES: Final = 4
"""Maximum ratio of the heaviest to the lightest task: part files should stay large."""
YOUNG_OBJECTS_MAX: Final = 200_000
"""The number of newly created objects, minus freed ones, at which a process with tasks searches for cycles: about
40 MiB. It exceeds the number of group rows that a replay buffers (`jobs.silver.tasks.BUFFERED_ROWS_MAX`), so that most
objects are freed before a search. With Python's own number (700) the searches take a fifth of a replay."""
_TRIM: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""A function of glibc; other C libraries have none."""


def give_back() -> None:
    """Return freed memory to the system.

    The next allocations have other sizes, so otherwise both would be in memory at the same time.
    """
    pa.default_memory_pool().release_unused()
    if _TRIM is not None:
        _TRIM(0)


@dataclass(frozen=True, slots=True)
class _Task(Generic[InputPartition, WriterCommitMessage]):
    """The function on each partition of the plan; reports its completed bytes to an accumulator."""

    function: Callable[[InputPartition], WriterCommitMessage]
    done: Done

    def __call__(self, partitions: Iterable[InputPartition]) -> Iterator[WriterCommitMessage]:
        for partition in partitions:
            give_back()
            gc.set_threshold(YOUNG_OBJECTS_MAX, *gc.get_threshold()[1:])
            message = self.function(partition)
            self.done.add(_size_bytes(partition))
            yield message


def run_tasks(
    executor: Executor,
    function: Callable[[InputPartition], WriterCommitMessage],
    plan: Sequence[InputPartition],
    what: str = "",
) -> list[WriterCommitMessage]:
    """Run `function` on each input partition in its own task. Returns commit messages in the order of the plan.

    Both must be picklable, like functions of a module. Spark retries a failed task, so a second run of `function` must
    not duplicate anything. `what`: description of the stage, for Spark's UI and event log; if partitions have
    `size_bytes`, progress is measured in them.
    """
    if not plan:
        return []
    stage = RunningStage(what, sum(map(_size_bytes, plan)), executor.counter())
    with running(stage):
        return executor.run(_Task(function, stage.done), plan, what)


def _size_bytes(partition: object) -> int:
    size_bytes: int = getattr(partition, "size_bytes", 0)
    return size_bytes


def tapered(
    weights: Sequence[int],
    core_count: int,
    *,
    new_bytes: int | None = None,
    weight_max: int = sys.maxsize,
) -> list[list[int]]:
    """Divide the indices of `weights` (bytes) into bins, one per task: the heaviest bin first, none empty.

    A task takes a share of what the tasks before it leave (guided self-scheduling, Polychronopoulos and Kuck 1987):
    heavy ones first, for few and large part files, then lighter ones, so that all cores end at about the same time
    although a byte of one log costs more than a byte of another. Deterministic: in order of falling weight, each index
    goes into the bin with most room; ties are decided by index.

    `new_bytes`: the work within the weights, by default all of it; a task has at least `TASK_BYTES_MIN` of it, unless
    cores would idle. `weight_max`: limit for a bin with several indices. With one bin per core, bins are contiguous
    ranges if that makes none much heavier: a task then reads what one task of the last run wrote.
    """
    weights = [max(1, weight) for weight in weights]
    total = sum(weights)
    task_count = (total if new_bytes is None else new_bytes) // TASK_BYTES_MIN
    bins = _filled(weights, _bin_weights(total, max(task_count, core_count), core_count, weight_max))

    def weight_of(bin_: Sequence[int]) -> int:
        return sum(weights[index] for index in bin_)

    if bins and task_count <= core_count:
        side_by_side = _side_by_side(weights, core_count)
        if max(map(weight_of, side_by_side)) <= SIDE_BY_SIDE_MAX * max(map(weight_of, bins)):
            bins = side_by_side
    return sorted(bins, key=weight_of, reverse=True)


def _side_by_side(weights: Sequence[int], bin_count: int) -> list[list[int]]:
    """Contiguous ranges of similar weight, none empty."""
    ends = list(accumulate(weights))
    total = ends[-1] if ends else 0
    # a cut comes before the first index whose middle is past it
    middles = [2 * end - weight for end, weight in zip(ends, weights, strict=True)]
    cuts = [bisect_left(middles, 2 * total * number / bin_count) for number in range(bin_count + 1)]
    return [list(range(first, end)) for first, end in pairwise(cuts) if first < end]


def _filled(weights: Sequence[int], rooms: list[int]) -> list[list[int]]:
    """Fill bins of given room, none empty: by falling weight, each index goes into the bin with most room left."""
    bins: list[list[int]] = [[] for _ in rooms]
    for index in sorted(range(len(weights)), key=lambda index: (-weights[index], index)):
        roomiest = rooms.index(max(rooms))
        bins[roomiest].append(index)
        rooms[roomiest] -= weights[index]
    return [sorted(bin_) for bin_ in bins if bin_]


def _bin_weights(total: int, task_count: int, core_count: int, weight_max: int) -> list[int]:
    """Falling weights: each a share of the remainder, at least the lightest; at most `task_count` of them add up to
    the total."""
    share_count = min(TASKS_PER_CORE * core_count, task_count)
    heaviest = min(-(-total // share_count), weight_max)
    lightest = -(-total // min(task_count, LIGHTEST_SHARES * share_count))
    left, bins = total, []
    while left > 0:
        bins.append(min(max(left // share_count, lightest), heaviest, left))
        left -= bins[-1]
    return bins
