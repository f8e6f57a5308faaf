"""Where tasks run: on Spark, or one by one in this process where Spark would cost more than the work.

Jobs pass plans of tasks, and no rows (`jobs.spark.tasks`), so they need nothing else of Spark. In this process, too,
the input of a task and its result are pickled as on the way to a worker, so a task works on its own copy.
"""

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from jobs.console.running import Done

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

InputPartition = TypeVar("InputPartition")
WriterCommitMessage = TypeVar("WriterCommitMessage")
Copied = TypeVar("Copied")

Task = Callable[[Iterable[InputPartition]], Iterator[WriterCommitMessage]]


@dataclass
class Count:
    """What tasks of this process have done. It counts in the task's own copy."""

    value: int = 0

    def add(self, count: int) -> None:
        self.value += count


class Executor(ABC):
    """Runs the tasks of a plan."""

    core_count: int
    session: "SparkSession | None" = None
    """For what only Spark can do: publish to a metastore, and its SQL."""

    def task_counts(self) -> tuple[int, int]:
        """(done, all) tasks of the running stages, where that is known."""
        return 0, 0

    @abstractmethod
    def counter(self) -> Done:
        """A count that tasks add to."""

    @abstractmethod
    def run(
        self,
        task: Task[InputPartition, WriterCommitMessage],
        plan: Sequence[InputPartition],
        what: str,
    ) -> list[WriterCommitMessage]:
        """Call `task` with each input partition of the plan, in a task of its own. Returns what they yield, in order.

        `what`: description of the stage.
        """


class SparkExecutor(Executor):
    session: "SparkSession"

    def __init__(self, session: "SparkSession") -> None:
        self.session = session
        self.core_count = session.sparkContext.defaultParallelism

    def task_counts(self) -> tuple[int, int]:
        tracker = self.session.sparkContext.statusTracker()
        infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        running = [info for info in infos if info is not None]
        return sum(info.numCompletedTasks for info in running), sum(info.numTasks for info in running)

    def counter(self) -> Done:
        return self.session.sparkContext.accumulator(0)

    def run(
        self,
        task: Task[InputPartition, WriterCommitMessage],
        plan: Sequence[InputPartition],
        what: str,
    ) -> list[WriterCommitMessage]:
        context = self.session.sparkContext
        context.setJobDescription(what)
        try:
            return context.parallelize(plan, len(plan)).mapPartitions(task).setName(what).collect()
        finally:
            context.setJobDescription("")


class InProcess(Executor):
    def __init__(self, core_count: int = 1) -> None:
        """`core_count`: for how many cores plans are made."""
        self.core_count = core_count

    def counter(self) -> Done:
        return Count()

    def run(
        self,
        task: Task[InputPartition, WriterCommitMessage],
        plan: Sequence[InputPartition],
        what: str,
    ) -> list[WriterCommitMessage]:
        return [_copied(made) for partition in plan for made in _copied(task)(iter((_copied(partition),)))]


def _copied(value: Copied) -> Copied:
    copy: Copied = pickle.loads(pickle.dumps(value))
    return copy
