"""The nightly job on a real standalone cluster: the same tables as on one machine, also when a worker dies."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from jobs.delta.warehouse import Warehouse
from tests.cluster.standalone import StandaloneCluster
from tests.faults.harness import CLUSTER, differences, digests
from tests.lengths import takes_minutes
from tests.live.job import Job
from tests.recorded import RECORDINGS

pytestmark = takes_minutes

RECORDING: Final = RECORDINGS / "full-a" / "logs"
JOB_TIMEOUT_S: Final = 600
LAYERS: Final = ("bronze", "silver", "gold")

Digests = dict[str, tuple[int, str]]


def nightly(folder: Path, master: str) -> Job:
    """The nightly job, as users start it."""
    words = ("--cluster-id", CLUSTER, "--segments", str(RECORDING))
    options = ("--master", master, "--conf", "spark.executor.memory=1g")
    return Job(folder, "nightly", *words, spark_options=options)


def made(folder: Path) -> Digests:
    """The tables in the warehouse of a folder."""
    return digests(Warehouse(str(folder / "warehouse")))


@pytest.fixture(scope="module")
def on_one_machine(tmp_path_factory: pytest.TempPathFactory) -> Digests:
    """The tables which local mode makes."""
    folder = tmp_path_factory.mktemp("local")
    with nightly(folder, "local[2,3]") as job:
        assert job.wait(JOB_TIMEOUT_S) == 0, job.end_of_said()
    return made(folder)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandaloneCluster]:
    """A master and two workers of one core each."""
    with StandaloneCluster(tmp_path / "cluster") as running:
        yield running


def test_two_workers_make_what_one_machine_makes(
    cluster: StandaloneCluster, on_one_machine: Digests, tmp_path: Path
) -> None:
    """Packages and code reach workers which know nothing of the project; every table is equal."""
    with nightly(tmp_path, cluster.url) as job:
        assert job.wait(JOB_TIMEOUT_S) == 0, job.end_of_said()
    assert sum(name.startswith(LAYERS) for name in on_one_machine) >= len(LAYERS) * 3
    assert differences(made(tmp_path), on_one_machine) == []


def test_a_worker_that_dies_costs_nothing_but_time(
    cluster: StandaloneCluster, on_one_machine: Digests, tmp_path: Path
) -> None:
    """The first one on which a task writes is killed with its executors: the tables are those of an undisturbed run."""
    silver = tmp_path / "warehouse" / "silver" / "offset_commits"
    with nightly(tmp_path, cluster.url) as job:
        job.await_that(lambda: any(silver.rglob("*.parquet")), JOB_TIMEOUT_S)
        victim = next(worker for worker in cluster.workers if worker.executors())
        victim.kill()
        assert job.wait(JOB_TIMEOUT_S) == 0, job.end_of_said()
    assert differences(made(tmp_path), on_one_machine) == []
