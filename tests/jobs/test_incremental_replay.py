"""Runs that go on from one another: whatever the nights were, silver is what one run over all of it makes."""

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs.errors import WarehouseError
from jobs.locks import only_one
from jobs.nightly import DONE, run_replay
from jobs.runs import WholeRun
from jobs.settings import with_options
from jobs.sinks import Committed, Warehouse
from schemas.tables.silver import SILVER_TABLES
from schemas.tables.state import RUNS, WATERMARKS
from tests.conftest import RECORDINGS
from tests.jobs.slices import slices_of
from tests.jobs.test_replay import CLUSTER, STARTED_AT, Jobs

FULL_A = RECORDINGS / "full-a" / "logs"


class Nights(Jobs):
    """Runs over slices of one recording."""

    def run(self, logs: Path, run_id: str) -> None:
        self.settings = with_options(self.settings, segments=(str(logs),))
        assert self.nightly(run_id) in {0, 3}

    def replayed(self) -> dict[str, int]:
        """Records of the newest run, by topic."""
        rows = self.warehouse.read(RUNS).to_pylist()
        newest = max(row["run_id"] for row in rows)
        return {row["topic"]: row["record_count"] for row in rows if row["run_id"] == newest}


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Silver of one run over all."""
    jobs = Jobs(spark, tmp_path_factory.mktemp("whole") / "warehouse", FULL_A)
    jobs.nightly()
    return jobs.silver()


def assert_same(jobs: Jobs, whole: dict[str, list[str]]) -> None:
    """Table by table, row by row."""
    for table in SILVER_TABLES:
        assert jobs.rows(table.full_name) == whole[table.full_name], table.full_name


def test_nights_make_what_one_run_makes(spark: SparkSession, tmp_path: Path, whole: dict[str, list[str]]) -> None:
    """Each log partition is cut at places of its own: transactions, intervals and names are open across the runs."""

    def cuts(name: str) -> Sequence[float]:
        random = Random(f"1/{name}")
        return sorted(random.random() for _ in range(3))

    parts = slices_of(FULL_A, tmp_path / "parts", cuts)
    jobs = Nights(spark, tmp_path / "warehouse", parts[0])
    records = 0
    for index, part in enumerate(parts):
        jobs.run(part, f"night-{index}")
        records += sum(jobs.replayed().values())
    assert_same(jobs, whole)
    assert records == 4000, "every record was read by one run"


def test_older_stretch_replays_its_log_partition_alone(
    spark: SparkSession, tmp_path: Path, whole: dict[str, list[str]]
) -> None:
    """The first half of some log partitions comes last: these are replayed from their beginning, and only these."""
    late = "__consumer_offsets-1", "__share_group_state-2", "__cluster_metadata-0"
    parts = slices_of(FULL_A, tmp_path / "parts", lambda name: [0.5, 0.5] if name not in late else [0.0, 0.5])
    jobs = Nights(spark, tmp_path / "warehouse", parts[0])
    for night, index in enumerate((0, 2, 1)):
        jobs.run(parts[index], f"night-{night}")
    assert_same(jobs, whole)
    counts = jobs.replayed()
    watermarks = {(row["topic"], row["partition"]): row for row in jobs.warehouse.read(WATERMARKS).to_pylist()}
    assert counts["__share_group_state"] < sum(
        row["next_offset"] for (topic, _), row in watermarks.items() if topic == "__share_group_state"
    )


class BrokenOffError(Exception):
    """What ends a run in these tests."""


@pytest.mark.parametrize("commit", [1, 4, 9, 14])
def test_a_run_that_breaks_off_is_repeated(
    spark: SparkSession, tmp_path: Path, whole: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch, commit: int
) -> None:
    """Whichever table it had come to: readers see the run before it, and the next run makes it good."""
    parts = slices_of(FULL_A, tmp_path / "parts", lambda name: [0.4, 0.8])
    jobs = Nights(spark, tmp_path / "warehouse", parts[0])
    jobs.run(parts[0], "night-0")
    before = whole_silver(jobs)
    left = [commit]
    commits = Warehouse.commit

    def breaking(self: Warehouse, *arguments: Any, **options: Any) -> Committed:
        if options["app_id"].startswith("groupledger/replay"):
            left[0] -= 1
            if left[0] < 0:
                raise BrokenOffError
        return commits(self, *arguments, **options)

    monkeypatch.setattr(Warehouse, "commit", breaking)
    with pytest.raises(BrokenOffError):
        jobs.run(parts[1], "night-1")
    monkeypatch.undo()
    assert whole_silver(jobs) == before
    jobs.run(parts[2], "night-2")
    assert_same(jobs, whole)
    assert whole_silver(jobs) == {table.full_name: len(whole[table.full_name]) for table in SILVER_TABLES}


def whole_silver(jobs: Jobs) -> dict[str, int]:
    """Row counts of silver as readers see it."""
    run = WholeRun.newest(jobs.warehouse, CLUSTER)
    return {table.full_name: run.read(table, ["cluster_id"]).num_rows for table in SILVER_TABLES}


def test_a_second_run_at_the_same_time_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """It says who is at work; once that has ended, it may."""
    jobs = Jobs(spark, tmp_path / "warehouse", RECORDINGS / "codec-gzip" / "logs")
    with (
        only_one(jobs.warehouse, "replay", CLUSTER, since=STARTED_AT),
        pytest.raises(WarehouseError, match=rf"another replay of cluster .* \(process {os.getpid()}, since 20"),
    ):
        jobs.nightly()
    assert jobs.nightly() == DONE


def test_nothing_new_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """A run that finds nothing new leaves every table at its version."""
    jobs = Jobs(spark, tmp_path / "warehouse", RECORDINGS / "codec-gzip" / "logs")
    jobs.nightly("r1")
    versions = {table.full_name: jobs.warehouse.version(table) for table in SILVER_TABLES}
    run_replay(
        spark,
        jobs.warehouse,
        jobs.settings,
        run_id="r2",
        started_at=STARTED_AT,
        steps=jobs.steps,
    )
    assert versions == {table.full_name: jobs.warehouse.version(table) for table in SILVER_TABLES}
