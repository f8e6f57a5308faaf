"""Runs that go on from one another: whatever the nights were, silver is what one run over all of it makes."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from coordinator_core.bytes.log_partitions import LogPartition
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.commits import Committed
from jobs.delta.locks import only_one
from jobs.delta.replay_runs import WholeRun, ended
from jobs.delta.warehouse import Warehouse
from jobs.errors import WarehouseError
from jobs.exit_codes import DONE
from jobs.operations.maintain import maintain
from jobs.operations.nightly import run_catch_up, run_replay
from jobs.operations.run_context import RunContext
from jobs.silver.checkpoints import log_name
from jobs.spark.executors import Executor
from schemas.tables.silver import SHARE_STATE_BATCHES, SILVER_TABLES
from schemas.tables.state import CHECKPOINTS, RUNS, Checkpoint
from tests.jobs.conftest import Recorded
from tests.jobs.silver.test_replay import CLUSTER, STARTED_AT, Jobs
from tests.jobs.slices import slices_of
from tests.lengths import takes_minutes
from tests.recorded import RECORDINGS

pytestmark = pytest.mark.nights

FULL_A = RECORDINGS / "full-a" / "logs"


class Nights(Jobs):
    """Runs over slices of one recording."""

    def run(self, logs: Path, run_id: str) -> None:
        self.settings = replace(self.settings, segments=(str(logs),))
        assert self.nightly(run_id) in {0, 3}

    def catch_up(self, logs: Path, run_id: str) -> None:
        """Without an audit: what is asked of is silver alone."""
        self.settings = replace(self.settings, segments=(str(logs),))
        run = RunContext(
            self.executor, self.warehouse, self.settings, run_id=run_id, started_at=STARTED_AT, steps=self.steps
        )
        assert run_catch_up(run) in {0, 3}

    def replayed(self) -> dict[str, int]:
        """Records of the newest run, by topic."""
        rows = ended(ClusterTables(self.warehouse, CLUSTER), "replay_version", RUNS.column_names)
        newest = max(row["run_id"] for row in rows)
        return {row["topic"]: row["record_count"] for row in rows if row["run_id"] == newest}


@pytest.fixture(scope="module")
def whole(no_spark: Executor, recorded: Recorded) -> dict[str, list[str]]:
    """Silver of one run over all."""
    return Jobs(no_spark, Path(recorded("full-a").root), FULL_A).silver()


def assert_same(jobs: Jobs, whole: dict[str, list[str]]) -> None:
    """Table by table, row by row."""
    for table in SILVER_TABLES:
        assert jobs.rows(table.full_name) == whole[table.full_name], table.full_name


def test_nights_make_what_one_run_makes(no_spark: Executor, tmp_path: Path, whole: dict[str, list[str]]) -> None:
    """Each log partition is cut at places of its own: transactions, intervals and names are open across the runs."""

    def cuts(name: str) -> Sequence[float]:
        random = Random(f"1/{name}")
        return sorted(random.random() for _ in range(3))

    parts = slices_of(FULL_A, tmp_path / "parts", cuts)
    jobs = Nights(no_spark, tmp_path / "warehouse", parts[0])
    records = 0
    for index, part in enumerate(parts):
        jobs.catch_up(part, f"night-{index}")
        records += sum(jobs.replayed().values())
    assert_same(jobs, whole)
    assert records == 4000, "every record was read by one run"


LATE: tuple[LogPartition, ...] = ("__consumer_offsets", 1), ("__share_group_state", 2), ("__cluster_metadata", 0)
"""Log partitions of which an older range comes last."""


def is_late(folder: str) -> bool:
    """Is a folder that of a late log partition?"""
    return folder in {log_name(*log) for log in LATE}


@pytest.mark.parametrize("has_state", [True, False])
def test_older_interval_is_replayed_from_the_last_state_before_it(
    no_spark: Executor, tmp_path: Path, whole: dict[str, list[str]], has_state: bool
) -> None:
    """The second third of some log partitions comes last: these alone are replayed, from where the first night ended;
    from their beginning where VACUUM took away what that night left."""
    parts = slices_of(FULL_A, tmp_path / "parts", lambda name: [0.3, 0.6] if is_late(name) else [0.6, 0.6])
    jobs = Nights(no_spark, tmp_path / "warehouse", parts[0])
    jobs.catch_up(parts[0], "night-0")
    before = watermarks(jobs)
    jobs.catch_up(parts[2], "night-1")
    if not has_state:
        jobs.warehouse.vacuum(CHECKPOINTS, retention_hours=0)
    jobs.catch_up(parts[1], "night-2")
    assert_same(jobs, whole)
    for log in LATE:
        assert jobs.replayed()[log[0]] == watermarks(jobs)[log] - (before[log] if has_state else 0)


def test_the_first_interval_that_comes_last_is_replayed_with_all_behind_it(
    no_spark: Executor, tmp_path: Path, whole: dict[str, list[str]]
) -> None:
    """No run had a state before it: log partitions whose first half comes last are replayed from their beginning."""
    parts = slices_of(FULL_A, tmp_path / "parts", lambda name: [0.0, 0.5] if is_late(name) else [0.5, 0.5])
    jobs = Nights(no_spark, tmp_path / "warehouse", parts[0])
    for night, index in enumerate((0, 2, 1)):
        jobs.catch_up(parts[index], f"night-{night}")
    assert_same(jobs, whole)
    assert {log[0]: watermarks(jobs)[log] for log in LATE} == {log[0]: jobs.replayed()[log[0]] for log in LATE}


def watermarks(jobs: Nights) -> dict[LogPartition, int]:
    """How far each log partition is replayed: so many records it has had."""
    rows = jobs.warehouse.read(CHECKPOINTS, where={"kind": Checkpoint.WATERMARK}).to_pylist()
    return {(row["log_topic"], row["log_partition"]): row["next_offset"] for row in rows}


class BrokenOffError(Exception):
    """What ends a run in these tests."""


def break_off(monkeypatch: pytest.MonkeyPatch, commit_count: int, job: str = "replay") -> None:
    """Let a job fail after so many commits."""
    left = [commit_count]
    commits = Warehouse.commit

    def breaking(self: Warehouse, *arguments: Any, **options: Any) -> Committed:
        if options["app_id"].startswith(f"groupledger/{job}/"):
            left[0] -= 1
            if left[0] < 0:
                raise BrokenOffError
        return commits(self, *arguments, **options)

    monkeypatch.setattr(Warehouse, "commit", breaking)


@pytest.mark.parametrize("commit", [1, *(pytest.param(commit, marks=takes_minutes) for commit in (4, 9)), 14])
def test_a_run_that_breaks_off_is_repeated(
    no_spark: Executor, tmp_path: Path, whole: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch, commit: int
) -> None:
    """Whichever table it had come to: readers see the run before it, and the next run makes it good."""
    parts = slices_of(FULL_A, tmp_path / "parts", lambda name: [0.4, 0.8])
    jobs = Nights(no_spark, tmp_path / "warehouse", parts[0])
    jobs.catch_up(parts[0], "night-0")
    before = whole_silver(jobs)
    break_off(monkeypatch, commit)
    with pytest.raises(BrokenOffError):
        jobs.catch_up(parts[1], "night-1")
    monkeypatch.undo()
    assert whole_silver(jobs) == before
    jobs.catch_up(parts[2], "night-2")
    assert_same(jobs, whole)
    assert whole_silver(jobs) == {table.full_name: len(whole[table.full_name]) for table in SILVER_TABLES}


def test_maintain_between_a_backfill_that_broke_off_and_its_repetition(
    no_spark: Executor, tmp_path: Path, whole: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files whose rows were to go are not there any more, and their rows are in others."""
    parts = slices_of(FULL_A, tmp_path / "parts", lambda name: [0.3, 0.6] if is_late(name) else [0.3, 0.3])
    jobs = Nights(no_spark, tmp_path / "warehouse", parts[0])
    jobs.catch_up(parts[0], "night-0")
    jobs.catch_up(parts[2], "night-1")
    break_off(monkeypatch, 4)
    with pytest.raises(BrokenOffError):
        jobs.catch_up(parts[1], "night-2")
    monkeypatch.undo()
    merging = replace(jobs.settings, maintain=replace(jobs.settings.maintain, merge_file_count_min=2))
    files = jobs.warehouse.files(SHARE_STATE_BATCHES)
    maintain(jobs.executor, jobs.warehouse, merging, started_at=STARTED_AT)
    assert jobs.warehouse.files(SHARE_STATE_BATCHES) != files
    jobs.catch_up(parts[1], "night-3")
    assert_same(jobs, whole)


def whole_silver(jobs: Jobs) -> dict[str, int]:
    """Row counts of silver as readers see it."""
    run = WholeRun.newest(ClusterTables(jobs.warehouse, CLUSTER))
    return {table.full_name: run.read(table, ["cluster_id"]).num_rows for table in SILVER_TABLES}


def test_a_second_run_at_the_same_time_is_refused(no_spark: Executor, tmp_path: Path) -> None:
    """It says who is at work; once that has ended, it may."""
    jobs = Jobs(no_spark, tmp_path / "warehouse", RECORDINGS / "codec-gzip" / "logs")
    with (
        only_one(jobs.warehouse, "replay", CLUSTER, since=STARTED_AT),
        pytest.raises(WarehouseError, match=rf"another replay of cluster .* \(process {os.getpid()}, since 20"),
    ):
        jobs.nightly()
    assert jobs.nightly() == DONE


def test_nothing_new_writes_nothing(no_spark: Executor, tmp_path: Path) -> None:
    """A run that finds nothing new leaves every table at its version."""
    jobs = Jobs(no_spark, tmp_path / "warehouse", RECORDINGS / "codec-gzip" / "logs")
    jobs.nightly("r1")
    versions = {table.full_name: jobs.warehouse.version(table) for table in SILVER_TABLES}
    run_replay(
        RunContext(no_spark, jobs.warehouse, jobs.settings, run_id="r2", started_at=STARTED_AT, steps=jobs.steps)
    )
    assert versions == {table.full_name: jobs.warehouse.version(table) for table in SILVER_TABLES}
