"""maintain: the same rows in fewer files, nothing gone that anybody needs, and replay goes on as if nothing were."""

import os
import shutil
from dataclasses import asdict, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs.bronze.retention import deleted_ranges
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.commits import OVERWRITE
from jobs.delta.locks import only_one
from jobs.delta.part_files import write_parts
from jobs.delta.replay_runs import Start
from jobs.delta.warehouse import MAINTAIN_APPLICATION, Warehouse
from jobs.errors import SettingsError, WarehouseError
from jobs.operations.maintain import MaintainSummary, maintain, old_staging, pinned_versions
from jobs.spark.executors import Executor
from schemas.tables import TABLES
from schemas.tables.bronze import RECORD_BATCHES
from schemas.tables.gold import COMMIT_ANOMALIES, REBALANCES
from schemas.tables.silver import OFFSET_COMMITS
from schemas.tables.state import RUN_STARTS, RUNS
from tests.jobs.conftest import Recorded
from tests.jobs.delta.test_warehouse import offsets
from tests.jobs.frames import frame
from tests.jobs.silver.test_incremental_replay import FULL_A, Nights
from tests.jobs.silver.test_replay import CLUSTER, STARTED_AT, Jobs
from tests.jobs.slices import slices_of
from tests.jobs.table_rows import commits, rows

pytestmark = pytest.mark.nights

LATER = datetime(2030, 1, 1, tzinfo=UTC)
WEEK_HOURS = 168


def tended(jobs: Jobs, *, at: datetime = STARTED_AT, days: dict[str, int] | None = None) -> MaintainSummary:
    """Maintain that merges wherever two files lie side by side."""
    settings = replace(
        jobs.settings, maintain=replace(jobs.settings.maintain, merge_file_count_min=2, retention_days=days or {})
    )
    return maintain(jobs.executor, jobs.warehouse, settings, started_at=at)


@pytest.fixture(scope="module")
def two_nights(no_spark: Executor, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """A warehouse after two nights of three, and the logs of all three."""
    folder = tmp_path_factory.mktemp("nights")
    parts = slices_of(FULL_A, folder / "parts", lambda name: [0.4, 0.8])
    jobs = Nights(no_spark, folder / "warehouse", parts[0])
    for night in range(2):
        jobs.run(parts[night], f"night-{night}")
    return folder / "warehouse", parts


@pytest.fixture
def nights(no_spark: Executor, two_nights: tuple[Path, list[Path]], tmp_path: Path) -> tuple[Nights, list[Path]]:
    """Two nights of three, in a warehouse of the test's own; the last is to come."""
    warehouse, parts = two_nights
    shutil.copytree(warehouse, tmp_path / "nights")
    return Nights(no_spark, tmp_path / "nights", parts[0]), parts


def contents(jobs: Jobs) -> dict[str, list[str]]:
    """Rows of all tables that retention leaves alone."""
    return {name: jobs.rows(name) for name, table in TABLES.items() if jobs.warehouse.exists(table)}


@pytest.fixture(scope="module")
def whole(no_spark: Executor, recorded: Recorded) -> dict[str, list[str]]:
    """Silver of one run over all."""
    return Jobs(no_spark, Path(recorded("full-a").root), FULL_A).silver()


def test_maintained_tables_hold_the_same_and_are_replayed_on(
    nights: tuple[Nights, list[Path]], whole: dict[str, list[str]]
) -> None:
    """Merging changes no row; then retention takes old bronze, and neither capture nor replay starts over for that."""
    jobs, parts = nights
    before = contents(jobs)
    summary = tended(jobs)
    assert contents(jobs) == before
    done = {table.name: table for table in summary.tables}
    bronze = done[RECORD_BATCHES.full_name]
    assert bronze.file_count < bronze.file_count_before
    assert bronze.file_count == len(jobs.warehouse.files(RECORD_BATCHES))
    assert done[OFFSET_COMMITS.full_name].file_count < done[OFFSET_COMMITS.full_name].file_count_before
    again = tended(jobs)
    assert [table for table in again.tables if table.file_count != table.file_count_before] == []

    jobs.catch_up(parts[2], "night-2")
    assert sum(jobs.replayed().values()) < 1500, "it went on from its state"
    assert jobs.silver() == whole
    jobs.replay("rebuilt", rebuild=True)
    assert jobs.silver() == whole

    old = tended(jobs, at=LATER, days={RECORD_BATCHES.full_name: 1})
    taken = next(table for table in old.tables if table.name == RECORD_BATCHES.full_name)
    assert taken.left_out_count > 0
    logs = {
        (f.partition_values["topic"], f.partition_values["partition"]) for f in jobs.warehouse.files(RECORD_BATCHES)
    }
    assert set(deleted_ranges(ClusterTables(jobs.warehouse, CLUSTER))) <= logs, (
        "the newest of each log partition is there"
    )
    batch_count = jobs.warehouse.read(RECORD_BATCHES, ["base_offset"]).num_rows
    jobs.catch_up(FULL_A, "night-3")
    assert jobs.warehouse.read(RECORD_BATCHES, ["base_offset"]).num_rows == batch_count, "none of it is captured again"
    assert jobs.silver() == whole


def test_old_days_of_gold_go(no_spark: Executor, tmp_path: Path) -> None:
    """Whole days, of the tables that have a retention; what is open stays."""
    jobs = Jobs(no_spark, tmp_path / "warehouse", FULL_A)
    first = date(2029, 12, 30)
    days = [None, *(first + timedelta(days=number) for number in range(3))]
    for table in (REBALANCES, COMMIT_ANOMALIES):
        made = rows(table, *({"cluster_id": "c", "group_id": "g", "day": day} for day in days))
        jobs.warehouse.write(table, made, app_id="a", version=1)
    done = {table.name: table for table in tended(jobs, at=LATER, days={REBALANCES.full_name: 1}).tables}
    assert done[REBALANCES.full_name].left_out_count == 1
    assert set(jobs.warehouse.read(REBALANCES)["day"].to_pylist()) == {None, *days[2:]}
    assert set(jobs.warehouse.read(COMMIT_ANOMALIES)["day"].to_pylist()) == set(days)


def test_replay_does_not_forget_by_itself(
    nights: tuple[Nights, list[Path]], whole: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would make it start over where bronze was cut is refused, with the remedy; asked for, it is done."""
    jobs, _ = nights
    if not deleted_ranges(ClusterTables(jobs.warehouse, CLUSTER)):
        tended(jobs, at=LATER, days={RECORD_BATCHES.full_name: 1})
    before = jobs.silver()
    monkeypatch.setattr("jobs.silver.replay.SILVER_FORMAT", 99)
    with pytest.raises(WarehouseError, match=r"retention took .* replay --rebuild"):
        jobs.replay("newer", rebuild=False)
    assert jobs.silver() == before


def test_a_stale_swap_is_refused(warehouse: Warehouse) -> None:
    """Whoever planned by an older version, and one of those it must not cross has written since: nothing changes."""
    warehouse.write(OFFSET_COMMITS, commits(1, 2), app_id="replay", version=1)
    version, files = warehouse.version(OFFSET_COMMITS), warehouse.files(OFFSET_COMMITS)
    warehouse.write(OFFSET_COMMITS, commits(3), app_id="other", version=1)
    target = warehouse.target(OFFSET_COMMITS)

    def swap(version: int) -> int:
        added = write_parts(target, commits(1, 2))
        return warehouse.swap(
            OFFSET_COMMITS, files, added, version=version, at=STARTED_AT, writers=["replay"], changes_rows=False
        )

    swapped = swap(version)
    assert offsets(warehouse) == [1, 2, 3], "an append of others may come between"
    with pytest.raises(WarehouseError, match="wrote to it meanwhile"):
        swap(version)
    files = [file for file in warehouse.files(OFFSET_COMMITS) if file.row_count == 2]
    warehouse.write(OFFSET_COMMITS, commits(4), app_id="replay", version=2, mode=OVERWRITE)
    with pytest.raises(WarehouseError, match="wrote to it meanwhile"):
        swap(swapped)
    assert offsets(warehouse) == [4]
    assert warehouse.last_version(OFFSET_COMMITS, MAINTAIN_APPLICATION) == 0


def test_a_writer_that_a_swap_crossed_is_refused(warehouse: Warehouse) -> None:
    """delta-rs would let it take out files that are gone already, and leave those that came in their place."""
    from deltalake import CommitProperties, DeltaTable, Transaction  # noqa: PLC0415  (in place of another process)

    warehouse.write(OFFSET_COMMITS, commits(1, 2), app_id="replay", version=1)
    stale = DeltaTable(warehouse.path(OFFSET_COMMITS))
    warehouse.swap(
        OFFSET_COMMITS,
        warehouse.files(OFFSET_COMMITS),
        write_parts(warehouse.target(OFFSET_COMMITS), commits(1, 2)),
        version=warehouse.version(OFFSET_COMMITS),
        at=STARTED_AT,
        writers=["replay"],
        changes_rows=False,
    )
    with pytest.raises(Exception, match="Concurrent transaction"):
        stale.create_write_transaction(
            [],
            mode=OVERWRITE,
            schema=stale.schema(),
            commit_properties=CommitProperties(app_transactions=[Transaction("replay", 2)]),
        )
    assert offsets(warehouse) == [1, 2]


def test_sparks_reader_follows_a_swap(spark: SparkSession, tmp_path: Path) -> None:
    """Files whose partitions have characters that paths escape are swapped, once, for Spark too."""
    warehouse = Warehouse(str(tmp_path / "a b%"))
    for version in range(2):
        warehouse.write(OFFSET_COMMITS, commits(version, cluster_id="a:b/c"), app_id="a", version=version)
    version, files = warehouse.version(OFFSET_COMMITS), warehouse.files(OFFSET_COMMITS)
    added = write_parts(warehouse.target(OFFSET_COMMITS), commits(0, 1, cluster_id="a:b/c"))
    warehouse.swap(OFFSET_COMMITS, files, added, version=version, at=STARTED_AT, writers=["a"], changes_rows=False)
    with pytest.raises(WarehouseError, match="wrote to it meanwhile"):
        warehouse.swap(OFFSET_COMMITS, files, added, version=version, at=STARTED_AT, writers=["a"], changes_rows=False)
    by_spark = frame(spark, warehouse, OFFSET_COMMITS)
    assert sorted(row["log_offset"] for row in by_spark.collect()) == offsets(warehouse) == [0, 1]
    assert len(by_spark.inputFiles()) == 1


def test_vacuum_leaves_what_is_young_or_kept(warehouse: Warehouse) -> None:
    """Files taken out go when they are old, and files of no commit too; a version that is kept loses nothing."""
    warehouse.write(OFFSET_COMMITS, commits(1), app_id="a", version=1)
    kept = warehouse.version(OFFSET_COMMITS)
    warehouse.write(OFFSET_COMMITS, commits(2), app_id="a", version=2, mode=OVERWRITE)
    warehouse.write(OFFSET_COMMITS, commits(3), app_id="a", version=3, mode=OVERWRITE)
    folder = Path(warehouse.path(OFFSET_COMMITS))
    for name, age in (("part-old.parquet", timedelta(days=8)), ("part-young.parquet", timedelta(hours=1))):
        (folder / name).write_bytes(b"x")
        at = (datetime.now(UTC) - age).timestamp()
        os.utime(folder / name, (at, at))
    version = warehouse.version(OFFSET_COMMITS)
    assert warehouse.unreferenced(OFFSET_COMMITS, retention_hours=WEEK_HOURS) == ["part-old.parquet"]
    assert warehouse.unreferenced(OFFSET_COMMITS, retention_hours=0, orphans_only=True) == [
        "part-old.parquet",
        "part-young.parquet",
    ]
    warehouse.vacuum(OFFSET_COMMITS, retention_hours=WEEK_HOURS)
    assert not (folder / "part-old.parquet").exists()
    assert (folder / "part-young.parquet").exists()
    assert all(warehouse.has_version(OFFSET_COMMITS, older) for older in range(kept, version + 1))
    warehouse.vacuum(OFFSET_COMMITS, retention_hours=0, keep_versions=[kept])
    assert warehouse.has_version(OFFSET_COMMITS, kept)
    assert not warehouse.has_version(OFFSET_COMMITS, kept + 1)
    assert not (folder / "part-young.parquet").exists()
    version = warehouse.version(OFFSET_COMMITS)
    warehouse.vacuum(OFFSET_COMMITS, retention_hours=WEEK_HOURS)
    assert warehouse.version(OFFSET_COMMITS) == version, "nothing to do writes nothing"


def test_versions_that_readers_are_pinned_at_are_kept(warehouse: Warehouse) -> None:
    """While a replay is under way, or broke off, its readers' tables and its own bronze are not to go."""
    for table in (OFFSET_COMMITS, RECORD_BATCHES):
        warehouse.ensure(table)
    run = {"cluster_id": "c", "run_id": "r1", "topic": "t", "started_at": STARTED_AT, "replay_version": 1}
    versions = {"table_versions": [(OFFSET_COMMITS.full_name, 0)], "admin_version": -2}
    warehouse.write(RUNS, rows(RUNS, run | versions), app_id="a", version=1)
    warehouse.write(OFFSET_COMMITS, commits(1), app_id="a", version=2)
    assert pinned_versions(warehouse, ["c"]) == {}, "the newest version is as the last run left it"
    start = Start(2, "r2", STARTED_AT, 0, -1, -1, False)
    ClusterTables(warehouse, "c").write(RUN_STARTS, [asdict(start)], app_id="a", version=2)
    assert pinned_versions(warehouse, ["c"]) == {
        OFFSET_COMMITS.full_name: frozenset({0}),
        RECORD_BATCHES.full_name: frozenset({0}),
    }


def test_a_short_retention_is_refused(no_spark: Executor, tmp_path: Path) -> None:
    """Below what readers need it takes a word of its own; a table that is none is named."""
    jobs = Jobs(no_spark, tmp_path / "warehouse", FULL_A)
    with pytest.raises(SettingsError, match="--allow-short-retention"):
        maintain(no_spark, jobs.warehouse, jobs.settings, started_at=STARTED_AT, vacuum_after_ms=1)
    with pytest.raises(SettingsError, match=r"no table 'silver\.nope'"):
        maintain(no_spark, jobs.warehouse, jobs.settings, started_at=STARTED_AT, tables=["silver.nope"])
    assert maintain(
        no_spark, jobs.warehouse, jobs.settings, started_at=STARTED_AT, vacuum_after_ms=1, allows_short_retention=True
    ) == MaintainSummary(())


def test_nobody_replays_meanwhile(nights: tuple[Nights, list[Path]]) -> None:
    """Not while any cluster is replayed; and while it lasts no replay begins, and the error says why."""
    jobs, _ = nights
    with (
        only_one(jobs.warehouse, "replay", CLUSTER, since=STARTED_AT),
        pytest.raises(WarehouseError, match="another replay of cluster"),
    ):
        tended(jobs)
    with (
        only_one(jobs.warehouse, "replay", CLUSTER, since=STARTED_AT, holder="maintain"),
        pytest.raises(WarehouseError, match=rf"process {os.getpid()}, since .*, by maintain"),
    ):
        jobs.replay("r", rebuild=False)


def test_a_dry_run_changes_nothing(nights: tuple[Nights, list[Path]]) -> None:
    """It says what would be done."""
    jobs, _ = nights
    versions = {name: jobs.warehouse.version(table) for name, table in TABLES.items()}
    settings = replace(jobs.settings, maintain=replace(jobs.settings.maintain, merge_file_count_min=2))
    summary = maintain(jobs.executor, jobs.warehouse, settings, started_at=LATER, dry_run=True)
    assert {table.name for table in summary.tables} == {name for name, version in versions.items() if version >= 0}
    assert versions == {name: jobs.warehouse.version(table) for name, table in TABLES.items()}


def test_staging_of_runs_that_broke_off_goes_when_it_is_old(warehouse: Warehouse) -> None:
    """By its newest file; what may still be in use stays."""
    now = datetime.now(UTC)
    for name, age in (("unnamed/old", timedelta(days=9)), ("dumps/young", timedelta(0))):
        path = Path(warehouse.root) / "_staging" / name / "deep" / "part.parquet"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x")
        for place in (path, path.parent):
            os.utime(place, ((now - age).timestamp(),) * 2)
    found = old_staging(warehouse, now - timedelta(days=7))
    assert found == [f"{warehouse.root}/_staging/unnamed/old"]
