"""kill -9 of the driver, of Python workers and executors: one run later every table is as if nothing had been.

`make test-nights` kills a driver once; `make faults` everything that the design names, for an hour.
"""

import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from jobs.delta.warehouse import Warehouse
from jobs.errors import WarehouseError
from jobs.operations.maintain import maintain
from jobs.operations.nightly import run_replay
from jobs.operations.run_context import RunContext
from jobs.spark.executors import Executor, SparkExecutor
from tests.cluster.standalone import SPARK_HOME
from tests.faults.harness import CLUSTER, EXECUTOR, WORKER, differences, digests, kill, processes_of, processor_seconds
from tests.jobs.silver.test_incremental_replay import FULL_A, Nights
from tests.jobs.silver.test_replay import STARTED_AT, Jobs
from tests.jobs.slices import slices_of
from tests.lengths import is_long, takes_minutes
from tests.live.job import Job

FIRST_FILE: Final = "first data file"
"""Seen from outside: the driver dies as soon as there is one."""
POINTS: Final = (
    # between two tables of replay
    "after silver.group_members",
    # commit seen: bronze has it, and coverage does not say so
    "after bronze.record_batches",
    FIRST_FILE,
    # all data files of bronze, of silver, of gold, and no commit
    "before bronze.record_batches",
    "before silver.offset_commits",
    "before gold.partition_owners",
    "after bronze.coverage",
    "after state.run_starts",
    "after silver.offset_commits",
    "after silver.group_events",
    "before silver.topics",
    "after silver.configs",
    "before state.checkpoints",
    "after state.checkpoints",
    "before state.runs",
    "after state.runs",
    "after gold.rebalances",
    # the last commit of all
    "after state.run_metrics",
)
POINTS_OF_TEST: Final = 1
MAINTAIN_POINTS: Final = (
    "before swap of bronze.record_batches",
    "after swap of bronze.record_batches",
    "before swap of silver.offset_commits",
    "after swap of state.runs",
)
WORKER_RUNS: Final = 20
EXECUTOR_RUNS: Final = 10
MOMENT_MAX: Final = 0.7
"""The latest moment of a fault, as a share of a night: some nights take less than another."""
LOCAL_CLUSTER: Final = ("--master", "local-cluster[2,1,1024]", "--executor-memory", "1g")
MERGE_ALL: Final = {"GROUPLEDGER_MAINTAIN_MERGE_FILE_COUNT_MIN": "2"}


@pytest.fixture(scope="module")
def undisturbed(no_spark: Executor, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """The tables of one night without any fault."""
    jobs = Jobs(no_spark, tmp_path_factory.mktemp("undisturbed") / "warehouse", FULL_A)
    jobs.nightly()
    return digests(jobs.warehouse)


def nightly(folder: Path, fault: str | None = None, spark_options: tuple[str, ...] = ()) -> Job:
    """A night in a process of its own."""
    words = ("--cluster-id", CLUSTER, "--segments", str(FULL_A))
    environment = {} if fault is None else {"GROUPLEDGER_FAULT": fault}
    return Job(folder, "nightly", *words, environment=environment, spark_options=spark_options)


@pytest.fixture(scope="module")
def workers_seconds(tmp_path_factory: pytest.TempPathFactory) -> float:
    """How much processor time a night without any fault takes once it has Python workers, on this machine."""
    return seconds_with_workers(tmp_path_factory.mktemp("timed"))


@pytest.fixture(scope="module")
def executors_seconds(tmp_path_factory: pytest.TempPathFactory) -> float:
    """The same of executors, which first unpack the environment: what they take for their work."""
    folder = tmp_path_factory.mktemp("timed")
    with two_executors(folder) as options:
        return seconds_with_workers(folder, options)


def seconds_with_workers(folder: Path, spark_options: tuple[str, ...] = ()) -> float:
    """Processor time of a night from the first Python worker to its end."""
    taken = []
    with nightly(folder, spark_options=spark_options) as job:
        await_workers(job)
        while job.is_running:
            taken.append(processor_seconds(job.pid))
            time.sleep(0.2)
        assert job.wait() == 0, job.end_of_said()
    return max(taken) - taken[0]


def await_workers(job: Job, seconds: float = 0.0) -> None:
    """Wait until a night has Python workers, and has then taken so much processor time: on a busy machine, where a
    night lasts longer, it is as far as on another."""
    job.await_that(lambda: bool(processes_of(job.pid, WORKER)))
    began = processor_seconds(job.pid)
    job.await_that(lambda: processor_seconds(job.pid) - began >= seconds)


def has_data_file(folder: Path) -> bool:
    """Is there a file of bronze?"""
    return any((folder / "warehouse" / "bronze" / "record_batches").glob("*.parquet"))


@pytest.mark.parametrize("point", POINTS if is_long() else POINTS[:POINTS_OF_TEST])
def test_a_driver_is_killed(
    spark: SparkSession, tmp_path: Path, undisturbed: dict[str, tuple[int, str]], point: str
) -> None:
    """Wherever it was: one run later nothing is lost, nothing is there twice."""
    with nightly(tmp_path, None if point == FIRST_FILE else f"SIGKILL {point}") as job:
        if point == FIRST_FILE:
            while not has_data_file(tmp_path):
                assert job.is_running, job.end_of_said()
                time.sleep(0.01)  # the processor is the night's
            kill(job.pid)
        assert job.wait() == -signal.SIGKILL, job.end_of_said()
    jobs = Jobs(SparkExecutor(spark), tmp_path / "warehouse", FULL_A)
    if point != POINTS[-1]:
        assert differences(digests(jobs.warehouse), undisturbed), "the fault came too late to prove anything"
    jobs.nightly()
    assert differences(digests(jobs.warehouse), undisturbed) == []


@takes_minutes
@pytest.mark.parametrize("point", MAINTAIN_POINTS)
def test_maintain_is_killed(
    spark: SparkSession, tmp_path: Path, undisturbed: dict[str, tuple[int, str]], point: str
) -> None:
    """Merging is one transaction a table: done or not; what a dead run wrote is of no table, and goes by and by."""
    parts = slices_of(FULL_A, tmp_path / "parts", lambda name: [0.5])
    jobs = Nights(SparkExecutor(spark), tmp_path / "warehouse", parts[0])
    for night, part in enumerate(parts):
        jobs.run(part, f"night-{night}")
    # batches know the file they were read from
    before = digests(jobs.warehouse)
    environment = MERGE_ALL | {"GROUPLEDGER_FAULT": f"SIGKILL {point}"}
    with Job(tmp_path, "maintain", environment=environment) as job:
        assert job.wait() == -signal.SIGKILL, job.end_of_said()
    assert differences(digests(jobs.warehouse), before) == []
    with Job(tmp_path, "maintain", environment=MERGE_ALL) as job:
        assert job.wait() == 0, job.end_of_said()
    assert differences(digests(jobs.warehouse), before) == []
    jobs.nightly("after")
    of_silver = {name: found for name, found in digests(jobs.warehouse).items() if name.startswith("silver.")}
    assert differences(of_silver, {name: undisturbed[name] for name in of_silver}) == []


@takes_minutes
@pytest.mark.parametrize("run", range(WORKER_RUNS))
def test_a_python_worker_is_killed(
    tmp_path: Path, undisturbed: dict[str, tuple[int, str]], workers_seconds: float, run: int
) -> None:
    """Spark gives its task to another; the files of the first attempt are of no table."""
    moments = random.Random(run)
    with nightly(tmp_path) as job:
        await_workers(job, moments.uniform(0.0, MOMENT_MAX * workers_seconds))
        workers = processes_of(job.pid, WORKER)
        assert job.is_running and workers, "the fault came too late to prove anything"
        assert kill(moments.choice(workers))
        assert job.wait() == 0, job.end_of_said()
    assert differences(digests(Warehouse(str(tmp_path / "warehouse"))), undisturbed) == []


@contextmanager
def two_executors(folder: Path) -> Iterator[tuple[str, ...]]:
    """Options of Spark for a local cluster. Its workers unpack the environment into Spark's own folder, and executors
    that are killed leave it in the temporary one: gigabytes each."""
    work, local = SPARK_HOME / "work", folder / "local"
    before = set(work.glob("app-*"))
    local.mkdir()
    try:
        yield (*LOCAL_CLUSTER, "--conf", f"spark.local.dir={local}")
    finally:
        for left in {local, *work.glob("app-*")} - before:
            shutil.rmtree(left)


@takes_minutes
@pytest.mark.parametrize("run", range(EXECUTOR_RUNS))
def test_an_executor_is_killed(
    tmp_path: Path, undisturbed: dict[str, tuple[int, str]], executors_seconds: float, run: int
) -> None:
    """With all tasks that it had, and its workers: another executor does them again."""
    moments = random.Random(run)
    with two_executors(tmp_path) as options, nightly(tmp_path, spark_options=options) as job:
        await_workers(job, moments.uniform(0.0, MOMENT_MAX * executors_seconds))
        executors = processes_of(job.pid, EXECUTOR)
        assert job.is_running and executors, "the fault came too late to prove anything"
        assert kill(moments.choice(executors))
        assert job.wait() == 0, job.end_of_said()
        assert "ExecutorLostFailure" in job.said or "Lost executor" in job.said
    assert differences(digests(Warehouse(str(tmp_path / "warehouse"))), undisturbed) == []


@takes_minutes
def test_two_processes_at_one_time(
    spark: SparkSession, tmp_path: Path, undisturbed: dict[str, tuple[int, str]]
) -> None:
    """While one is stopped in the middle, the other is refused, and so is maintain; the first then ends as ever."""
    jobs = Jobs(SparkExecutor(spark), tmp_path / "warehouse", FULL_A)
    with nightly(tmp_path, "SIGSTOP after silver.group_members") as job:
        job.await_that(lambda: is_stopped(job.pid))
        with pytest.raises(WarehouseError, match=rf"another replay of cluster .*process {job.pid}"):
            run_replay(
                RunContext(
                    SparkExecutor(spark),
                    jobs.warehouse,
                    jobs.settings,
                    run_id="r2",
                    started_at=STARTED_AT,
                    steps=jobs.steps,
                )
            )
        with pytest.raises(WarehouseError, match=rf"another replay of cluster .*process {job.pid}"):
            maintain(SparkExecutor(spark), jobs.warehouse, jobs.settings, started_at=STARTED_AT)
        os.kill(job.pid, signal.SIGCONT)
        assert job.wait() == 0, job.end_of_said()
    assert differences(digests(jobs.warehouse), undisturbed) == []


def is_stopped(pid: int) -> bool:
    """Does a process hold still, by a signal?"""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
