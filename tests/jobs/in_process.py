"""Stands in for a Spark session where jobs only hand it tasks: these run here, one after the other."""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

from pyspark.sql import SparkSession


@dataclass
class _Accumulator:
    """Counts where the tasks run: what they add to is their copy."""

    value: int = 0

    def add(self, count: int) -> None:
        self.value += count


class _Context:
    """A Spark context of two cores; tasks and their results are pickled, as they would be on their way."""

    defaultParallelism = 2  # noqa: N815  (Spark names it so)

    def __init__(self) -> None:
        self._work: Sequence[Any] = ()
        self._functions: list[Callable[[Any], Any]] = []

    def parallelize(self, work: Sequence[Any], _: int) -> Self:
        made = type(self)()
        made._work = pickle.loads(pickle.dumps(list(work)))
        return made

    def accumulator(self, value: int) -> _Accumulator:
        return _Accumulator(value)

    def mapPartitions(self, function: Callable[[Any], Any]) -> Self:  # noqa: N802  (Spark names it so)
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
    """A Spark session without Spark."""

    def __init__(self) -> None:
        self.sparkContext = _Context()
        self.conf: dict[str, str] = {}


def in_process() -> SparkSession:
    """For jobs whose tasks are plain functions."""
    return cast("SparkSession", _Session())
