"""What several tests of the jobs share."""

import fcntl
import os
from collections.abc import Callable, Iterator
from functools import cache

import pytest
from pyspark.sql import SparkSession

from jobs.delta.warehouse import Warehouse
from tests.jobs.java_says import JavaSays
from tests.recorded import RECORDINGS

Recorded = Callable[[str], Warehouse]
"""Gives the tables of a recording."""


@pytest.fixture(scope="session")
def java() -> Iterator[JavaSays]:
    """A JVM that says what the JDK makes of some input."""
    with JavaSays() as process:
        yield process


@pytest.fixture(scope="session")
def recorded(no_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Gives the tables of a recording after a night, made once for all processes of a run of the tests: to be read, and
    never changed."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent

    def make(recording: str) -> Warehouse:
        from tests.jobs.silver.test_replay import Jobs  # noqa: PLC0415  (pytest rewrites its assertions when it collects it)

        root, is_made = folder / f"recorded-{recording}", folder / f"recorded-{recording}.made"
        with (folder / f"recorded-{recording}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not is_made.exists():
                Jobs(no_spark, root, RECORDINGS / recording / "logs").nightly()
                is_made.touch()
        return Warehouse(str(root))

    return cache(make)
