"""Metrics: a row a job, a whole textfile that Prometheus reads, and a dashboard which asks for nothing else."""

import ast
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from coordinator_core.ledger import LedgerCounts
from jobs.delta.warehouse import Warehouse
from jobs.errors import WarehouseError
from jobs.operations.metrics import JobRun, Metrics, job_of, metric_names, textfile_of
from schemas.tables.state import RUN_METRICS
from tests.conftest import PROJECT_ROOT

START = datetime(2026, 1, 1, tzinfo=UTC)
EXAMPLES = PROJECT_ROOT / "examples"


class Clock:
    """Each look at it is a minute later."""

    def __init__(self) -> None:
        self.minutes = -1

    def __call__(self) -> datetime:
        self.minutes += 1
        return START + timedelta(minutes=self.minutes)


def metrics(warehouse: Warehouse, clock: Clock, said: list[str] | None = None, textfile: str = "") -> Metrics:
    """Of one run of cluster c."""
    lines = [] if said is None else said
    return Metrics(warehouse, cluster_id="c", run_id="r", clock=clock, textfile=textfile, say=lines.append)


def filled(run: JobRun) -> None:
    """All that a job may tell."""
    run.exit_code = 3
    run.batch_count, run.record_count, run.size_bytes = 2, 5, 700
    run.row_counts = {"silver.topics": 4, "silver.group_events": 6}
    run.gap_count, run.quarantined_row_count, run.deleted_file_count = 1, 0, 9
    run.ledger = LedgerCounts(5, 1, 1, 1, 1, 1)
    run.lag = {"__consumer_offsets": (7, 1.5), "__share_group_state": (1, None)}


def samples(path: Path) -> dict[tuple[str, str], float]:
    """Of a textfile: value by name and label of its own."""
    found = {}
    for family in text_string_to_metric_families(path.read_text()):
        assert family.type == "gauge" and family.documentation, family.name
        for sample in family.samples:
            own = {name: value for name, value in sample.labels.items() if name not in ("cluster_id", "job")}
            assert (sample.labels["cluster_id"], sample.labels["job"]) == ("c", "replay")
            found[sample.name, "".join(own.values())] = sample.value
    return found


def test_a_run_leaves_a_row_and_a_textfile(warehouse: Warehouse, tmp_path: Path) -> None:
    """The same numbers in both; what a job has not is null in the one and not there in the other."""
    textfile = tmp_path / "groupledger.prom"
    of_run = metrics(warehouse, Clock(), textfile=str(textfile))
    with of_run.job("replay") as run:
        filled(run)
    (row,) = warehouse.read(RUN_METRICS).to_pylist()
    assert (row["started_at"], row["ended_at"]) == (START, START + timedelta(minutes=1))
    assert (row["job"], row["exit_code"], row["row_count"], row["gap_count"]) == ("replay", 3, 10, 1)
    assert dict(row["ledger"])["control"] == 1
    assert dict(row["lag_records"]) == {"__consumer_offsets": 7, "__share_group_state": 1}
    found = samples(tmp_path / "groupledger.replay.prom")
    assert found["groupledger_run_duration_seconds", ""] == 60
    assert found["groupledger_run_success_timestamp_seconds", ""] == (START + timedelta(minutes=1)).timestamp()
    assert found["groupledger_written_rows", "silver.topics"] == 4
    assert found["groupledger_capture_lag_seconds", "__consumer_offsets"] == 1.5
    assert ("groupledger_capture_lag_seconds", "__share_group_state") not in found
    assert {name for name, _ in found} == metric_names()


def test_a_run_that_failed_is_told_of(warehouse: Warehouse, tmp_path: Path) -> None:
    """Its error goes on; the time of the last success stays that of the run before."""
    textfile = tmp_path / "groupledger.prom"
    clock = Clock()
    with metrics(warehouse, clock, textfile=str(textfile)).job("replay"):
        pass
    with (
        pytest.raises(WarehouseError, match="no"),
        metrics(warehouse, clock, textfile=str(textfile)).job("replay"),
    ):
        raise WarehouseError("no")
    assert sorted(row["exit_code"] for row in warehouse.read(RUN_METRICS).to_pylist()) == [0, 1]
    found = samples(textfile_of(textfile, "replay"))
    assert found["groupledger_run_exit_code", ""] == 1
    assert found["groupledger_run_success_timestamp_seconds", ""] == (START + timedelta(minutes=1)).timestamp()


def test_metrics_never_make_a_run_fail(warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No place for the textfile, no right to write the table: it is said, and the job is done all the same."""
    said: list[str] = []

    def full(*_: Any, **__: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(Warehouse, "write", full)
    with metrics(warehouse, Clock(), said, textfile=str(tmp_path / "no" / "such.prom")).job("replay"):
        pass
    assert len(said) == 2
    assert all("metrics of this run are not written" in line for line in said)


def test_jobs_that_end_together_both_leave_a_row(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was faster between the look and the write does not push the other out."""
    looks = [-1]
    last_version = Warehouse.last_version

    def stale(self: Warehouse, *arguments: Any) -> int:
        return looks.pop() if looks else last_version(self, *arguments)

    clock = Clock()
    with metrics(warehouse, clock).job("capture"):
        pass
    monkeypatch.setattr(Warehouse, "last_version", stale)
    with metrics(warehouse, clock).job("replay"):
        pass
    assert sorted(row["job"] for row in warehouse.read(RUN_METRICS).to_pylist()) == ["capture", "replay"]
    with job_of(None, "audit") as run:
        filled(run)


def test_the_dashboard_asks_for_what_is_written() -> None:
    """Every metric of the example for Grafana is one of ours, and the main ones are on it."""
    text = (EXAMPLES / "grafana" / "groupledger.json").read_text()
    board = json.loads(text)
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked = set(re.findall(r"groupledger_[a-z_]+", " ".join([*expressions, text])))
    assert asked <= metric_names()
    assert len(expressions) >= 10 and all("groupledger_" in expression for expression in expressions)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_the_dag_is_python_and_runs_jobs_that_there_are() -> None:
    """Airflow itself is not needed to see that; its words for the jobs are those of the command line."""
    from jobs.cli.app import app  # noqa: PLC0415

    tree = ast.parse((EXAMPLES / "airflow" / "nightly.py").read_text())
    jobs = {
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "job"
        and isinstance(node.args[0], ast.Constant)
    }
    names = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert jobs == {"capture", "replay", "audit", "maintain"}
    assert jobs <= names
