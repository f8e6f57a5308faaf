"""The nightly job on a real standalone cluster: the same tables as on one machine, also when a worker dies."""

import hashlib
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from deltalake import DeltaTable

from schemas.tables import TABLES
from tests.cluster.standalone import StandaloneCluster, await_that
from tests.conftest import PROJECT_ROOT, RECORDINGS
from tests.live.conftest import IS_WHOLE

pytestmark = pytest.mark.skipif(not IS_WHOLE, reason="a cluster of processes: make test-live runs it")

RECORDING: Final = RECORDINGS / "full-a" / "logs"
JOB_TIMEOUT_S: Final = 600
OF_THIS_RUN: Final = frozenset({"captured_at", "capture_id", "seen_at", "observed_at", "source"})
"""Columns which tell of the run, not of the log."""
LAYERS: Final = ("bronze", "silver", "gold")


def started(master: str, warehouse: Path) -> subprocess.Popen[str]:
    """The nightly job, as users start it."""
    words = ["--master", master, "--conf", "spark.executor.memory=1g", "nightly"]
    words += ["--segments", str(RECORDING), "--warehouse", str(warehouse), "--cluster-id", "c"]
    return subprocess.Popen(
        [str(PROJECT_ROOT / "spark-submit.sh"), *words],
        cwd=warehouse.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(job: subprocess.Popen[str]) -> str:
    """What it said; it must have succeeded."""
    said, _ = job.communicate(timeout=JOB_TIMEOUT_S)
    assert job.returncode == 0, said[-6000:]
    return said


def contents(warehouse: Path) -> dict[str, str]:
    """A hash of the sorted rows of each table."""
    hashes = {}
    for name, table in TABLES.items():
        path = warehouse / table.layer / table.name
        if table.layer in LAYERS and DeltaTable.is_deltatable(str(path)):
            columns = [column for column in table.column_names if column not in OF_THIS_RUN]
            rows = DeltaTable(str(path)).to_pyarrow_table(columns=columns).to_pylist()
            hashes[name] = hashlib.sha256("\n".join(sorted(map(as_text, rows))).encode()).hexdigest()
    return hashes


def as_text(row: Mapping[str, Any]) -> str:
    """A row, so that equal rows are equal texts."""
    return json.dumps(row, sort_keys=True, default=str)


@pytest.fixture(scope="module")
def on_one_machine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The tables which local mode makes."""
    warehouse = tmp_path_factory.mktemp("local") / "warehouse"
    ended(started("local[2,3]", warehouse))
    return contents(warehouse)


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    """A master and two workers of one core each."""
    with StandaloneCluster(tmp_path / "cluster") as running:
        yield running


def test_two_workers_make_what_one_machine_makes(
    cluster: StandaloneCluster, on_one_machine: dict[str, str], tmp_path: Path
) -> None:
    """Packages and code reach workers which know nothing of the project; every table is equal."""
    ended(started(cluster.url, tmp_path / "warehouse"))
    assert len(on_one_machine) >= len(LAYERS) * 3
    assert contents(tmp_path / "warehouse") == on_one_machine


def test_a_worker_that_dies_costs_nothing_but_time(
    cluster: StandaloneCluster, on_one_machine: dict[str, str], tmp_path: Path
) -> None:
    """The first one on which a task writes is killed with its executors: the tables are those of an undisturbed run."""
    warehouse = tmp_path / "warehouse"
    job = started(cluster.url, warehouse)
    silver = warehouse / "silver" / "offset_commits"
    await_that(lambda: any(silver.rglob("*.parquet")) or job.poll() is not None, JOB_TIMEOUT_S, lambda: "no part file")
    assert job.poll() is None, job.communicate()[0]
    victim = next(worker for worker in cluster.workers if worker.executors())
    victim.kill()
    ended(job)
    assert contents(warehouse) == on_one_machine
