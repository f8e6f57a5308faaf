"""What several tests of the jobs share."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from jobs.delta.warehouse import Warehouse
from jobs.spark.executors import Executor
from tests.cases.harness import Ledger
from tests.jobs.java_says import JavaSays
from tests.made_once import MadeOnce
from tests.recorded import RECORDINGS

Recorded = Callable[[str], Warehouse]
"""Gives the tables of a recording."""
LedgerOf = Callable[[str], Ledger]
"""Gives the ledger of a recording."""


@pytest.fixture(scope="session")
def java() -> Iterator[JavaSays]:
    """A JVM that says what the JDK makes of some input."""
    with JavaSays() as process:
        yield process


@pytest.fixture(scope="session")
def recorded(no_spark: Executor, made_once: MadeOnce) -> Recorded:
    """Gives the tables of a recording after a night: to be read, and never changed."""

    def make(recording: str) -> Warehouse:
        from tests.jobs.silver.test_replay import Jobs  # noqa: PLC0415  (pytest rewrites its assertions when it collects it)

        def night(root: Path) -> None:
            Jobs(no_spark, root, RECORDINGS / recording / "logs").nightly()

        return Warehouse(str(made_once(f"recorded-{recording}", night)))

    return cache(make)


@pytest.fixture(scope="session")
def ledger_of(made_once: MadeOnce) -> LedgerOf:
    """The same as a ledger, of a night after the recording: to be read, and never changed."""

    def make(recording: str) -> Ledger:
        logs = RECORDINGS / recording / "logs"
        return Ledger(made_once(f"ledger-{recording}", lambda root: Ledger(root).night(logs)))

    return cache(make)
