"""One Spark session for all tests, with the settings of the jobs but for those that only cost time here."""

import gc
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import compress
from pathlib import Path
from typing import Any, Final

PROJECT_ROOT = Path(__file__).resolve().parent.parent
REPORT_LINE = "line of the report"
"""Name of the property by which a test hands over a line for the end of the run, from whichever process it ran in."""
OF_SMALL_TESTS = {PROJECT_ROOT / "tests" / name for name in ("cases", "conformance", "coordinator_core")}
for compiled in (PROJECT_ROOT / ".cache" / "numba").glob("*/.compiled"):
    # what set-up compiled; numba reads the variable when it is first imported
    os.environ.setdefault("NUMBA_CACHE_DIR", str(compiled.parent))
for classes in (PROJECT_ROOT / ".cache").glob("classes-*.jsa"):
    # where a job has left Spark's classes, no JVM of the tests reads them one by one
    os.environ.setdefault("SPARK_SUBMIT_OPTS", f"-XX:SharedArchiveFile='{classes}' -Xlog:cds=off -Xlog:cds+dynamic=off")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # so a shell starts what runs in its background: processes of tests would ignore Ctrl-C, too
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
from hypothesis import settings as hypothesis_settings
from pyspark.sql import SparkSession
from xdist.remote import Producer

from jobs.delta.warehouse import Warehouse
from jobs.spark.executors import Executor
from jobs.spark.session import start_session
from tests import lengths
from tests.claims import CLAIMS, table
from tests.jobs.in_process import in_process
from tests.made_once import MadeOnce
from tests.scheduling import needs_spark, one_jvm
from tests.spark_defaults import spark_defaults

hypothesis_settings.register_profile("deterministic", max_examples=50, derandomize=True, deadline=None)
hypothesis_settings.register_profile("exhaustive", max_examples=5000, deadline=None)
hypothesis_settings.load_profile("deterministic")


PARTS: Final[Mapping[str, str]] = {
    "cases": "nights",
    "faults": "nights",
    "conformance": "conformance",
    "cluster": "conformance",
    "live": "conformance",
    "stores": "conformance",
    "groupledger": "spark",
    "simulator": "simulator",
    "jobs/laboratory": "simulator",
}
"""Folder of tests -> the part of `make test-all` that has them, a mark; tests elsewhere that need Spark are of the part
`spark`. A test's own mark comes first: one of these, or `first`, which `make test` has. So it has all that is left."""
FIRST: Final = "first"
SPARK: Final = "spark"


def pytest_addoption(parser: pytest.Parser) -> None:
    lengths.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    lengths.read_options(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes minutes is only in a run with --long. Tests get the mark of their part. Those that need Spark come
    first: one process takes all of them. Files of many small tests come last, and fill up what is left when the long
    ones are done."""
    if not lengths.is_long():
        is_short = [item.get_closest_marker(lengths.takes_minutes.name) is None for item in items]
        config.hook.pytest_deselected(items=[item for item, short in zip(items, is_short, strict=True) if not short])
        items[:] = compress(items, is_short)
    own = {FIRST, *PARTS.values()}
    for item in items:
        if own.isdisjoint(mark.name for mark in item.iter_markers()):
            part = part_of(item.path.parent)
            if part is not None or needs_spark(item.nodeid):
                item.add_marker(part or SPARK)
    items.sort(key=lambda item: (not needs_spark(item.nodeid), is_of_small_tests(item.path.parent)))


@cache
def part_of(folder: Path) -> str | None:
    """The part that a folder of tests is of, if `PARTS` says it."""
    names = map(str, (folder / "test").relative_to(PROJECT_ROOT / "tests").parents)
    return next((PARTS[name] for name in names if name in PARTS), None)


@cache
def is_of_small_tests(folder: Path) -> bool:
    return not OF_SMALL_TESTS.isdisjoint((folder / "test").parents)


def pytest_collection_finish() -> None:
    """Modules and thousands of tests stay to the end: the garbage collector looks at them no more."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Any:
    """`make test` distributes files so that one JVM does."""
    return one_jvm(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The lines of all comparisons with what brokers said."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)]
    lines: set[str] = {
        value
        for report in reports
        if isinstance(report, pytest.TestReport)
        for name, value in report.user_properties
        if name == REPORT_LINE and isinstance(value, str)
    }
    handed_over = [value for report in reports for name, value in report.user_properties if name == CLAIMS]
    if lines or handed_over:
        terminalreporter.section("conformance")
        for line in (*sorted(lines), *table(handed_over)):
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark with Delta: two cores, no UI, no adaptive planning, no compiled queries, one shuffle partition."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = f"{PROJECT_ROOT}{os.pathsep}{path}" if path else str(PROJECT_ROOT)
    scratch = tmp_path_factory.mktemp("spark")
    overrides = spark_defaults() | {
        "spark.master": "local[2,3]",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        # compiling a query takes longer than it saves on small tables; with --long queries are compiled
        "spark.sql.codegen.wholeStage": str(lengths.is_long()).lower(),
        "spark.sql.codegen.factoryMode": "FALLBACK" if lengths.is_long() else "NO_CODEGEN",
        "spark.local.dir": str(scratch),
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile=file:{PROJECT_ROOT}/conf/log4j2.properties"
            f" -Dderby.system.home={scratch} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        ),
    }
    session = start_session("tests", overrides)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def no_spark() -> Executor:
    """For tests of what tasks do, where Spark would only carry them to another process: a tenth of
    the time. What Spark makes of the same jobs is compared by the tests of `nightly` and of faults."""
    return in_process()


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """Makes what is too dear to be made by each process of a run."""
    return MadeOnce(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def own_session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session for what makes names known: it finds none of another module's, and leaves none.

    Temporary views and functions are the session's own; databases and tables belong to all sessions of the process.
    """
    session = spark.newSession()
    yield session
    for database in session.catalog.listDatabases():
        if database.name != "default":
            session.sql("DROP DATABASE IDENTIFIER(:name) CASCADE", args={"name": database.name})


@pytest.fixture
def left_sockets() -> Iterator[None]:
    """kafka-python leaves sockets that could not connect to the garbage collector: they are gone before the next test.

    With this goes `pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")`.
    """
    yield
    gc.collect()


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    """An empty warehouse."""
    return Warehouse(str(tmp_path / "warehouse"))
