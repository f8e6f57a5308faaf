"""In place of a Spark session where Spark would cost more than the work: tasks run in this process, one by one.

Jobs hand Spark plans of tasks and no rows (`jobs.spark.tasks`), so that nothing else of a session is needed. What goes
to a task and what comes back is pickled as on its way to a worker: a task has a copy of its own.
"""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, cast

from pyspark.sql import SparkSession


@dataclass
class _Accumulator:
    """Counts where the tasks run: what they add to is their copy."""

    value: int = 0

    def add(self, count: int) -> None:
        self.value += count


@dataclass
class _Context:
    """A Spark context; names are Spark's."""

    defaultParallelism: int = 1  # noqa: N815
    _work: Sequence[Any] = ()
    _functions: list[Callable[[Any], Any]] = field(default_factory=list)

    def parallelize(self, work: Sequence[Any], _: int) -> Self:
        return type(self)(self.defaultParallelism, pickle.loads(pickle.dumps(list(work))))

    def accumulator(self, value: int) -> _Accumulator:
        return _Accumulator(value)

    def mapPartitions(self, function: Callable[[Any], Any]) -> Self:  # noqa: N802
        self._functions.append(pickle.loads(pickle.dumps(function)))
        return self

    def setName(self, _: str) -> Self:  # noqa: N802
        return self

    def setJobDescription(self, _: str) -> None:  # noqa: N802
        pass

    def collect(self) -> list[Any]:
        done = self._work
        for function in self._functions:
            done = [pickle.loads(pickle.dumps(made)) for element in done for made in function(iter((element,)))]
        return list(done)


class _Session:
    """A Spark session without Spark: it has no metastore."""

    def __init__(self, core_count: int) -> None:
        self.sparkContext = _Context(core_count)
        self.conf: dict[str, str] = {}


def in_driver(core_count: int = 1) -> SparkSession:
    """For jobs whose tasks are plain functions; plans are made as for so many cores."""
    return cast("SparkSession", _Session(core_count))
