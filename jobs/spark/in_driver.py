"""A substitute for a Spark session where Spark would cost more than the work: tasks run in this process, one by one.

Jobs pass plans of tasks to Spark, and no rows (`jobs.spark.tasks`), so they need nothing else of a session. Task input
and results are pickled as on the way to a worker, so a task works on its own copy.
"""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, cast

from pyspark.sql import SparkSession


@dataclass
class _Accumulator:
    """Counts only in the task's own copy."""

    value: int = 0

    def add(self, count: int) -> None:
        self.value += count


@dataclass
class _Context:
    """A substitute for SparkContext, with its names."""

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
    """A substitute for SparkSession, without a metastore."""

    def __init__(self, core_count: int) -> None:
        self.sparkContext = _Context(core_count)
        self.conf: dict[str, str] = {}


def in_driver(core_count: int = 1) -> SparkSession:
    """For jobs whose tasks are plain functions; plans are made for this many cores."""
    return cast("SparkSession", _Session(core_count))
