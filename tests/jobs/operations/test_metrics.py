"""Metrics: a row a job, a whole textfile that Prometheus reads, and a dashboard which asks for nothing else."""

import json
import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from coordinator_core.history.ledger import LedgerCounts
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.errors import WarehouseError
from jobs.operations.group_metrics import GAUGES
from jobs.operations.metrics import COUNTS, LABELLED, OF_FINDINGS, OF_RUN, PREFIX, JobRun, Metrics, job_of, textfile_of
from jobs.queries.answers.group_verdicts import group_verdicts
from schemas.tables.state import RUN_METRICS
from tests.cases.harness import CLUSTER_ID, Ledger
from tests.conftest import PROJECT_ROOT
from tests.jobs.conftest import LedgerOf

START = datetime(2026, 1, 1, tzinfo=UTC)
EXAMPLES = PROJECT_ROOT / "examples"
PROMTOOL = shutil.which("promtool")


class Clock:
    """Each look at it is a minute later."""

    def __init__(self) -> None:
        self.minutes = -1

    def __call__(self) -> datetime:
        self.minutes += 1
        return START + timedelta(minutes=self.minutes)


METRICS = {PREFIX + name for name in (*OF_RUN, *COUNTS, *LABELLED, *GAUGES)}
ASKED = METRICS | {PREFIX + name for name in OF_FINDINGS}


def metrics(warehouse: Warehouse, clock: Clock, said: list[str] | None = None, textfile: str = "") -> Metrics:
    """Of one run of cluster c."""
    lines = [] if said is None else said
    return Metrics(ClusterTables(warehouse, "c"), run_id="r", clock=clock, textfile=textfile, say=lines.append)


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
    found = samples(tmp_path / "groupledger.c.replay.prom")
    assert found["groupledger_run_duration_seconds", ""] == 60
    assert found["groupledger_run_success_timestamp_seconds", ""] == (START + timedelta(minutes=1)).timestamp()
    assert found["groupledger_written_rows", "silver.topics"] == 4
    assert found["groupledger_capture_lag_seconds", "__consumer_offsets"] == 1.5
    assert ("groupledger_capture_lag_seconds", "__share_group_state") not in found
    assert {name for name, _ in found} == METRICS - {f"groupledger_{name}" for name in GAUGES}


def test_a_run_that_failed_is_reported(warehouse: Warehouse, tmp_path: Path) -> None:
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
    found = samples(textfile_of(textfile, "c", "replay"))
    assert found["groupledger_run_exit_code", ""] == 1
    assert found["groupledger_run_success_timestamp_seconds", ""] == (START + timedelta(minutes=1)).timestamp()


def test_jobs_together_leave_their_rows_in_one_commit(warehouse: Warehouse) -> None:
    """That of the one that failed among them; a job behind them has a commit of its own again."""
    of_run = metrics(warehouse, Clock())
    with pytest.raises(WarehouseError, match="no"), of_run.together():
        with of_run.job("capture"):
            pass
        assert not warehouse.exists(RUN_METRICS)
        with of_run.job("replay"):
            raise WarehouseError("no")
    found = {row["job"]: (row["started_at"], row["exit_code"]) for row in warehouse.read(RUN_METRICS).to_pylist()}
    assert found == {"capture": (START, 0), "replay": (START + timedelta(minutes=2), 1)}
    version = warehouse.version(RUN_METRICS)
    with of_run.job("maintain"):
        pass
    assert warehouse.version(RUN_METRICS) == version + 1
    assert warehouse.read(RUN_METRICS).num_rows == 3


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
    assert asked <= ASKED
    assert len(expressions) >= 10 and all("groupledger_" in expression for expression in expressions)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_alert_rules_are_prometheus_own(tmp_path: Path, ledger_of: LedgerOf) -> None:
    """promtool takes them, and finds no fault in the textfiles that they are about."""
    rules = EXAMPLES / "prometheus" / "groupledger.rules.yml"
    assert set(re.findall(r"groupledger_[a-z_]+", rules.read_text())) <= ASKED
    if PROMTOOL is None:
        pytest.skip("no promtool: apt install prometheus")
    done = subprocess.run([PROMTOOL, "check", "rules", str(rules)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "11 rules found" in done.stdout, done.stdout + done.stderr
    of_run = Metrics(ledger_of("full-a").tables, run_id="r", clock=Clock(), textfile=f"{tmp_path}/g.prom", groups_max=9)
    with of_run.job("replay") as run:
        filled(run)
    of_run.expose_groups()
    for path in (tmp_path / "g.case.replay.prom", tmp_path / "g.case.groups.prom"):
        done = subprocess.run(
            [PROMTOOL, "check", "metrics"], input=path.read_text(), capture_output=True, text=True, check=False
        )
        # promtool takes names of ours that end in _count for a summary's
        faults = [line for line in done.stderr.splitlines() if "_count" not in line]
        assert faults == [], path


def groups_file(ledger: Ledger, textfile: Path, groups_max: int) -> list[Sample]:
    """What the textfile of groups says."""
    of_run = Metrics(ledger.tables, run_id="r", clock=Clock(), textfile=str(textfile), groups_max=groups_max)
    of_run.expose_groups()
    text = textfile_of(textfile, CLUSTER_ID, "groups").read_text()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def test_groups_have_metrics_of_their_own(tmp_path: Path, ledger_of: LedgerOf) -> None:
    """Those that need somebody first, as many as the settings say; sums are of all; each verdict has its rule."""
    ledger = ledger_of("full-a")
    verdicts = {it.group_id: it for it in group_verdicts(ledger.tables)}
    found = groups_file(ledger, tmp_path / "g.prom", 20)
    assert {sample.name for sample in found} == {f"groupledger_{name}" for name in GAUGES} - {
        "groupledger_group_lag_records"
    }
    of_groups = [sample for sample in found if sample.name == "groupledger_group_verdict"]
    assert len(of_groups) == 20
    warned = {name for name, it in verdicts.items() if it.verdict == "WARN"}
    assert warned == {sample.labels["group_id"] for sample in of_groups if sample.value == 1}
    by_rule = {sample.labels["group_id"]: sample.labels["rule"] for sample in of_groups}
    assert (by_rule["k03-static"], by_rule["c08-simple"], by_rule["s05-limit"]) == (
        "IN_STORM",
        "OFFSETS_WENT_BACK",
        "RECORDS_GIVEN_UP",
    )
    values = {(it.name, it.labels.get("group_id") or it.labels.get("verdict")): it.value for it in found}
    assert values["groupledger_cluster_rebalances", None] == ledger.table("gold.rebalances").num_rows > 200
    assert values["groupledger_cluster_groups", "WARN"] == len(warned)
    assert values["groupledger_group_given_up_records", "s05-limit"] == 16
    few = groups_file(ledger, tmp_path / "g.prom", 1)
    assert len([sample for sample in few if sample.name == "groupledger_group_verdict"]) == 1
    assert {(it.name, it.value) for it in few if "cluster_" in it.name} == {
        (it.name, it.value) for it in found if "cluster_" in it.name
    }


def test_clusters_of_one_machine_have_files_of_their_own(warehouse: Warehouse, tmp_path: Path) -> None:
    """Whatever their names; a file that an older version left, without the cluster in its name, goes."""
    textfile = tmp_path / "g.prom"
    old, other = tmp_path / "g.replay.prom", tmp_path / "g.audit.prom"
    old.write_text('groupledger_run_exit_code{cluster_id="c",job="replay"} 0\n')
    other.write_text('groupledger_run_exit_code{cluster_id="d",job="audit"} 0\n')
    names = ("c", "../d", "e" * 300, "e" * 299)
    for name in names:
        of_run = Metrics(ClusterTables(warehouse, name), run_id="r", clock=Clock(), textfile=str(textfile))
        for job in ("replay", "audit"):
            with of_run.job(job):
                pass
    files = {textfile_of(textfile, name, job) for name in names for job in ("replay", "audit")}
    assert {*tmp_path.glob("*.prom")} == {*files, other} and len(files) == 8
