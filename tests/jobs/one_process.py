"""Jobs without Spark: their tasks, which read and write files themselves, run one after another in this process."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

JOBS: Final = ("capture", "replay", "audit", "maintain", "erase")


def run_here(_: SparkSession, function: Callable[[Any], Any], work: Sequence[Any], what: str = "") -> list[Any]:
    """`run_tasks`, without Spark."""
    return [function(item) for item in work]


@contextmanager
def one_process() -> Iterator[SparkSession]:
    """While it lasts, no task of a job needs Spark; what it gives stands for the session."""
    with pytest.MonkeyPatch.context() as patch:
        for job in JOBS:
            patch.setattr(f"jobs.{job}.run_tasks", run_here)
        session: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1), conf={})
        yield session
