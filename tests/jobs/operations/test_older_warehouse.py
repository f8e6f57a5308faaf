"""A warehouse which an older version of the project made: its tables get the columns they lack, silver is rebuilt."""

import json
import shutil
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import SparkSession

from coordinator_core.history.checkpoint import STATE_FORMAT
from jobs.bronze.admin_snapshots import first_topic_ids
from jobs.bronze.retention import deleted_ranges
from jobs.cli.app import main
from jobs.delta.arrow_schemas import STATISTICS_PROPERTY, arrow_schema, sql_type, statistics_columns
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.last_release import REBUILT, carry_over
from jobs.delta.other_writers import written_by_others
from jobs.delta.replay_runs import WholeRun
from jobs.delta.silver_format import SILVER_FORMAT, require_current_silver, silver_format
from jobs.delta.spark_schemas import spark_schema
from jobs.delta.warehouse import Warehouse
from jobs.errors import WarehouseError
from jobs.exit_codes import DONE
from jobs.gold.snapshot import AUDIT_FORMAT
from jobs.operations.erase import KEY_BYTES, erase
from jobs.operations.nightly import run_audit
from jobs.operations.run_context import RunContext
from jobs.settings import Settings
from jobs.silver.checkpoints import Watermark, read_watermarks, watermark_rows
from jobs.silver.reader import SilverFiles
from jobs.silver.replay import replay_application
from jobs.spark.executors import Executor
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.tables import TABLES, bronze
from schemas.tables.bronze import RECORD_BATCHES, TOPICS
from schemas.tables.declare import Table
from schemas.tables.gold import GOLD_TABLES, REBALANCES
from schemas.tables.silver import CONFIGS, GROUP_EVENTS, GROUP_GENERATIONS, SILVER_TABLES
from schemas.tables.state import ALL_LOGS, CHECKPOINTS, OFFSET_RANGES, RUN_STARTS, RUNS, Checkpoint, Ranges
from tests.conftest import PROJECT_ROOT
from tests.jobs.frames import frame
from tests.jobs.history import CLUSTER, START
from tests.jobs.silver.test_replay import CLUSTER as REPLAYED
from tests.jobs.silver.test_replay import STARTED_AT, Jobs
from tests.jobs.table_rows import AT, rows
from tests.recorded import RECORDINGS
from tools.recordings import unpack

pytestmark = pytest.mark.nights

LOGS = RECORDINGS / "codec-gzip" / "logs"
LACKING = ("at", "generation", "details")
OLD_EVENT: dict[str, Any] = {"cluster_id": CLUSTER, "log_partition": 3, "log_offset": 1, "group_id": "g"}
NEW_EVENT: dict[str, Any] = OLD_EVENT | {"log_offset": 2, "at": AT, "generation": 7, "details": [("k", "v")]}


def write_older(warehouse: Warehouse, table: Table, given: pa.Table, lacking: tuple[str, ...], app_id: str) -> None:
    """In place of a table one without some columns, as an older version would have left it."""
    version = max(warehouse.last_version(table, app_id), 0)
    shutil.rmtree(warehouse.path(table), ignore_errors=True)
    write_deltalake(
        warehouse.path(table),
        given.drop_columns(list(lacking)),
        partition_by=list(table.partition_by),
        commit_properties=CommitProperties(app_transactions=[Transaction(app_id, version)]),
    )


def test_table_of_an_older_layout_is_rebuilt(tmp_path: Path) -> None:
    """Silver which was partitioned otherwise is emptied and laid out as declared; bronze is nothing to be emptied."""
    warehouse = Warehouse(str(tmp_path))
    old = pa.Table.from_pylist([OLD_EVENT], schema=arrow_schema(GROUP_EVENTS))
    write_deltalake(warehouse.path(GROUP_EVENTS), old.drop_columns(["is_settled"]), partition_by=["cluster_id"])
    warehouse.ensure(GROUP_EVENTS)
    delta = DeltaTable(warehouse.path(GROUP_EVENTS))
    assert tuple(delta.metadata().partition_columns) == GROUP_EVENTS.partition_by
    assert [field.name for field in delta.schema().fields] == list(GROUP_EVENTS.column_names)
    assert warehouse.read(GROUP_EVENTS).num_rows == 0
    batches = pa.Table.from_pylist([{"cluster_id": CLUSTER}], schema=arrow_schema(RECORD_BATCHES))
    write_deltalake(warehouse.path(RECORD_BATCHES), batches, partition_by=["cluster_id"])
    with pytest.raises(WarehouseError, match=r"bronze\.record_batches is not partitioned by cluster_id, topic"):
        warehouse.ensure(RECORD_BATCHES)
    assert warehouse.read(RECORD_BATCHES, ["cluster_id"]).num_rows == 1


def events(warehouse: Warehouse) -> list[tuple[Any, ...]]:
    """What the table holds, by offset."""
    names = ["log_offset", "group_id", *LACKING]
    return [tuple(row.values()) for row in warehouse.read(GROUP_EVENTS, names).sort_by("log_offset").to_pylist()]


def test_a_table_gets_the_columns_it_lacks(spark: SparkSession, tmp_path: Path) -> None:
    """Former rows have nulls there, new ones what is written; comments and statistics are as in a new table."""
    warehouse = Warehouse(f"{tmp_path}/a'b `c")
    write_older(warehouse, GROUP_EVENTS, rows(GROUP_EVENTS, OLD_EVENT), LACKING, "a")
    assert events(warehouse) == [(1, "g", None, None, None)]
    warehouse.ensure(GROUP_EVENTS)
    version = warehouse.version(GROUP_EVENTS)
    warehouse.ensure(GROUP_EVENTS)
    again = Warehouse(warehouse.root)
    again.ensure(GROUP_EVENTS)
    assert again.version(GROUP_EVENTS) == version
    assert again.last_version(GROUP_EVENTS, "a") == 0
    again.write(GROUP_EVENTS, rows(GROUP_EVENTS, NEW_EVENT), app_id="a", version=1)
    assert events(again) == [(1, "g", None, None, None), (2, "g", AT, 7, [("k", "v")])]
    by_spark = frame(spark, again, GROUP_EVENTS)
    assert {row["log_offset"]: row["generation"] for row in by_spark.collect()} == {1: None, 2: 7}
    declared = {field.name: field for field in spark_schema(GROUP_EVENTS.columns)}
    assert set(by_spark.columns) == set(declared)
    assert [by_spark.schema[name] for name in LACKING] == [declared[name] for name in LACKING]
    configuration = DeltaTable(again.path(GROUP_EVENTS)).metadata().configuration
    assert configuration[STATISTICS_PROPERTY] == ",".join(statistics_columns(GROUP_EVENTS))


def test_a_column_that_cannot_be_added_is_said(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """What delta-rs refuses comes as an error of ours, which names the columns."""
    from deltalake.exceptions import DeltaError  # noqa: PLC0415
    from deltalake.table import TableAlterer  # noqa: PLC0415

    def refuse(*_: Any) -> None:
        raise DeltaError("read-only")

    write_older(warehouse, GROUP_EVENTS, rows(GROUP_EVENTS, OLD_EVENT), LACKING, "a")
    monkeypatch.setattr(TableAlterer, "add_columns", refuse)
    with pytest.raises(WarehouseError, match="cannot add the columns at, generation, details: read-only"):
        warehouse.ensure(GROUP_EVENTS)


def test_tasks_read_nulls_where_a_file_lacks_a_column(warehouse: Warehouse) -> None:
    """Files of before the column and of after it, by log partition and as a whole."""
    write_older(warehouse, GROUP_EVENTS, rows(GROUP_EVENTS, OLD_EVENT), LACKING, "a")
    warehouse.write(GROUP_EVENTS, rows(GROUP_EVENTS, NEW_EVENT), app_id="a", version=1)
    files = SilverFiles.of(ClusterTables(warehouse, CLUSTER), [GROUP_EVENTS])
    columns = ["at", "log_offset", "details"]
    for found in (files.read(GROUP_EVENTS, columns, 3), files.scan(GROUP_EVENTS, columns)):
        assert found.schema.types == [arrow_schema(GROUP_EVENTS).field(name).type for name in columns]
        values = found.sort_by("log_offset").to_pylist()
        assert [tuple(row.values()) for row in values] == [(None, 1, None), (AT, 2, [("k", "v")])]
    assert files.read(GROUP_EVENTS, columns, 4).num_rows == 0


OLDER: Final = r"made by an older version of the project: run \./spark-submit\.sh replay"

NEWER_SILVER: Final = "made by a newer version of the project: run that version"


def run_row(minute: int, number: int | None, cluster_id: str = CLUSTER) -> dict[str, Any]:
    """A row of state.runs."""
    started_at = START + timedelta(minutes=minute)
    return {"cluster_id": cluster_id, "run_id": f"r{minute}", "started_at": started_at, "silver_format": number}


@pytest.mark.parametrize(
    ("runs", "found", "error"),
    [
        ([], None, None),
        ([run_row(0, None, "other")], None, f"nothing of cluster '{CLUSTER}': name another --cluster-id, of 'other'$"),
        ([run_row(0, None)], 1, OLDER),
        ([run_row(0, None), run_row(1, SILVER_FORMAT)], SILVER_FORMAT, None),
        ([run_row(1, None), run_row(0, SILVER_FORMAT)], 1, OLDER),
        ([run_row(0, SILVER_FORMAT + 1)], SILVER_FORMAT + 1, NEWER_SILVER),
    ],
)
def test_the_newest_run_tells_the_format(
    warehouse: Warehouse, runs: list[dict[str, Any]], found: int | None, error: str | None
) -> None:
    """Of the cluster alone; a run without a number is older than any; no run at all is no reason to complain, runs of
    other clusters alone are one."""
    if runs:
        warehouse.write(RUNS, rows(RUNS, *runs), app_id="a", version=1)
    assert silver_format(ClusterTables(warehouse, CLUSTER)) == found
    if error is None:
        require_current_silver(ClusterTables(warehouse, CLUSTER))
    else:
        with pytest.raises(WarehouseError, match=error):
            require_current_silver(ClusterTables(warehouse, CLUSTER))


@pytest.fixture(scope="module")
def older_folder(no_spark: Executor, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[str]]]:
    """A warehouse as before silver had numbers, and the silver it should have."""
    folder = tmp_path_factory.mktemp("older") / "warehouse"
    jobs = Jobs(no_spark, folder, LOGS)
    assert jobs.nightly("r1") == DONE
    silver = jobs.silver()
    assert silver[CONFIGS.full_name]
    for table, lacking in ((GROUP_GENERATIONS, "current_state_at"), (RUNS, "silver_format")):
        write_older(jobs.warehouse, table, jobs.warehouse.read(table), (lacking,), replay_application(REPLAYED))
    shutil.rmtree(folder / "silver" / CONFIGS.name)
    return folder, silver


@pytest.fixture
def older(no_spark: Executor, tmp_path: Path, older_folder: tuple[Path, dict[str, list[str]]]) -> Jobs:
    """A copy of it."""
    shutil.copytree(older_folder[0], tmp_path / "w")
    return Jobs(no_spark, tmp_path / "w", LOGS)


COMMANDS = {
    "describe": (),
    "owner": ("--topic", "t", "--partition", "0"),
    "restore": ("--group", "g", "--at", "2026-01-01"),
    "whatif": ("--group", "g", "--set", "session.timeout.ms=60000"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_jobs_that_read_older_silver_say_what_to_run(
    older: Jobs, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """One line, no answer."""
    place = ("--warehouse", older.warehouse.root, "--cluster-id", REPLAYED)
    assert main([command, *COMMANDS[command], *place]) == 1
    reported = capsys.readouterr()
    assert reported.out == ""
    assert reported.err.count("\n") == 1
    assert "made by an older version of the project: run ./spark-submit.sh replay" in reported.err


def test_older_silver_is_rebuilt(
    older: Jobs,
    older_folder: tuple[Path, dict[str, list[str]]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """audit says so and stops; nightly rebuilds it, says so once, and all is as this version makes it."""
    jobs = older
    with pytest.raises(WarehouseError, match="older version"):
        audit_alone(jobs, jobs.settings)
    assert jobs.nightly("r3") == DONE
    assert jobs.text.getvalue().count("silver is of an older version: rebuilt") == 1
    assert jobs.silver() == older_folder[1]
    said = jobs.text.getvalue()
    assert jobs.nightly("r4") == DONE
    assert "older version" not in jobs.text.getvalue()[len(said) :]
    assert main(["describe", "--warehouse", jobs.warehouse.root, "--cluster-id", REPLAYED]) == DONE
    assert "GROUP" in capsys.readouterr().out


def audit_alone(jobs: Jobs, settings: Settings) -> None:
    """As `audit` begins."""
    started_at = STARTED_AT + timedelta(days=1 + jobs.warehouse.read(RUNS).num_rows)
    run_audit(RunContext(jobs.executor, jobs.warehouse, settings, run_id="a", started_at=started_at, steps=jobs.steps))


def test_older_gold_is_rebuilt(older: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where its tables lack columns and silver is of this version; with other settings too, without a word."""
    jobs = older
    jobs.nightly("r1")
    gold = {table.full_name: jobs.rows(table.full_name) for table in GOLD_TABLES}
    rebalances = jobs.warehouse.read(REBALANCES)
    write_older(jobs.warehouse, REBALANCES, rebalances, ("in_storm",), f"groupledger/audit/{REPLAYED}")
    jobs.warehouse = Warehouse(jobs.warehouse.root)
    monkeypatch.setattr("jobs.gold.snapshot.AUDIT_FORMAT", AUDIT_FORMAT + 1)
    said = jobs.text.getvalue()
    audit_alone(jobs, jobs.settings)
    assert "gold is of an older version: rebuilt" in jobs.text.getvalue()[len(said) :]
    assert {table.full_name: jobs.rows(table.full_name) for table in GOLD_TABLES} == gold

    said = jobs.text.getvalue()
    inference = replace(jobs.settings.inference, storm_generation_count=1)
    audit_alone(jobs, replace(jobs.settings, inference=inference))
    assert "version" not in jobs.text.getvalue()[len(said) :]
    newest = jobs.warehouse.read(RUNS).sort_by("started_at").to_pylist()[-1]
    assert json.loads(newest["settings"])["storm_generation_count"] == 1
    assert jobs.warehouse.read(REBALANCES)["in_storm"].to_pylist() != rebalances["in_storm"].to_pylist()


def test_how_far_silver_is_can_be_reported_state_of_any_format(tmp_path: Path) -> None:
    """Replay starts over where state is of another version; an audit before that still sees what silver is of."""
    warehouse = Warehouse(str(tmp_path))
    place = OFFSETS_TOPIC, 3
    [reported] = watermark_rows({place: Watermark(8, ((2, 7),))})
    other = {"kind": Checkpoint.WATERMARK, "log": ALL_LOGS, "state_format": STATE_FORMAT + 1}
    ClusterTables(warehouse, REPLAYED).write(CHECKPOINTS, [reported | other], app_id="a")
    run = WholeRun(ClusterTables(warehouse, REPLAYED), None)
    assert read_watermarks(run) == {}
    assert read_watermarks(run, of_any_format=True) == {place: Watermark(8, ((2, 7),))}


def columns_hash(tables: Iterable[Table]) -> str:
    """Of names and types of all columns."""
    columns = [(table.full_name, column.name, sql_type(column.type)) for table in tables for column in table.columns]
    return sha256(repr(sorted(columns)).encode()).hexdigest()[:16]


def test_changed_columns_raise_the_format() -> None:
    """Whoever changes a table of silver or gold raises SILVER_FORMAT or AUDIT_FORMAT, and puts the new hash here."""
    assert (SILVER_FORMAT, columns_hash(SILVER_TABLES)) == (7, "4480697a266e4c6c")
    assert (AUDIT_FORMAT, columns_hash(GOLD_TABLES)) == (26, "aab81ed231739264")


LAST_RELEASE: Final = PROJECT_ROOT / "tests" / "data" / "last-release.tar.xz"
"""A warehouse as the last release left it: two nights over LOGS, with answers of a cluster's Admin and a deleted range
of another cluster."""
FORMER_TABLES: Final = (*REBUILT, "dropped")


@pytest.fixture
def last_release(no_spark: Executor, tmp_path: Path) -> Jobs:
    """The jobs of today on that warehouse."""
    return Jobs(no_spark, unpack(LAST_RELEASE, tmp_path), LOGS)


def test_what_the_last_release_stored_and_no_log_has_is_carried_over(last_release: Jobs) -> None:
    """Deleted ranges and what a cluster's Admin said have new names; readers of silver say what to run."""
    warehouse = last_release.warehouse
    with pytest.raises(WarehouseError, match="older version"):
        require_current_silver(ClusterTables(warehouse, REPLAYED))
    carry_over(warehouse)
    assert deleted_ranges(ClusterTables(warehouse, "other")) == {(OFFSETS_TOPIC, 3): ((0, 41),)}
    assert first_topic_ids(ClusterTables(warehouse, REPLAYED)) == {"orders": "A" * 21 + "Q"}
    for read in (warehouse, Warehouse(warehouse.root)):
        assert None not in read.read(TOPICS)["observed_at"].to_pylist()


def test_a_warehouse_of_the_last_release_is_renamed_and_rebuilt(last_release: Jobs, tmp_path: Path) -> None:
    """A night leaves the tables that a new warehouse has, under their new names alone; what no log gives is kept."""
    jobs = last_release
    state = Path(jobs.warehouse.root) / "state"
    carry_over(of_today := Warehouse(str(shutil.copytree(jobs.warehouse.root, tmp_path / "copy"))))
    before = {table: of_today.read(table).to_pylist() for table in (TOPICS, bronze.CONFIGS, OFFSET_RANGES)}
    assert all(before.values())
    assert jobs.nightly("r3", day=2) == DONE
    assert jobs.text.getvalue().count("silver is of an older version: rebuilt") == 1
    fresh = Jobs(jobs.executor, tmp_path / "fresh", LOGS)
    for table in (TOPICS, bronze.CONFIGS):
        given = pa.Table.from_pylist(before[table], schema=arrow_schema(table))
        fresh.warehouse.write(table, given, app_id="a", version=0)
    assert fresh.nightly("r3", day=2) == DONE
    assert jobs.silver() == fresh.silver()
    assert {table.full_name: jobs.rows(table.full_name) for table in GOLD_TABLES} == {
        table.full_name: fresh.rows(table.full_name) for table in GOLD_TABLES
    }
    assert [name for name in FORMER_TABLES if (state / name).exists()] == []
    for table in (TOPICS, bronze.CONFIGS, OFFSET_RANGES):
        now = jobs.warehouse.read(table).to_pylist()
        assert [row for row in now if row.get("kind") != Ranges.LEADER_EPOCH] == before[table]
    for table in TABLES.values():
        if jobs.warehouse.exists(table):
            delta = DeltaTable(jobs.warehouse.path(table))
            names = {field.name for field in delta.schema().fields}
            assert names.isdisjoint({"told_at", "dropped_at"})
            assert set(delta.metadata().configuration[STATISTICS_PROPERTY].split(",")) <= {*names, ""}
    rows_of_starts = jobs.warehouse.read(RUN_STARTS).to_pylist()
    starts = [row for row in rows_of_starts if row["replay_version"] is not None]
    assert [(row["replay_version"], row["topics_version"], row["is_rebuild"]) for row in starts] == [
        (2, jobs.warehouse.version(TOPICS), True)
    ]
    assert written_by_others(ClusterTables(jobs.warehouse, REPLAYED)) == []
    assert jobs.nightly("r4", day=3) == DONE
    assert jobs.warehouse.read(RUN_STARTS).num_rows == len(rows_of_starts) == 2, "nothing was new"


@pytest.mark.parametrize("done", range(4))
def test_carrying_over_that_broke_off_goes_on(
    last_release: Jobs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, done: int
) -> None:
    """No row is lost or there twice, and the next job ends it."""
    root = last_release.warehouse.root
    carry_over(whole := Warehouse(str(shutil.copytree(root, tmp_path / "copy"))))
    expected = {table: whole.read(table).to_pylist() for table in (OFFSET_RANGES, TOPICS, bronze.CONFIGS)}
    calls: list[str] = []

    def until(function: Any) -> Any:
        def counted(*args: Any) -> None:
            if len(calls) == done:
                raise RuntimeError("stop")
            calls.append(function.__name__)
            function(*args)

        return counted

    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="stop"):
        for name in ("rebuild", "delete"):
            patched.setattr(Warehouse, name, until(getattr(Warehouse, name)))
        carry_over(Warehouse(root))
    for _ in range(2):
        warehouse = Warehouse(root)
        carry_over(warehouse)
        assert {table: warehouse.read(table).to_pylist() for table in expected} == expected
        assert {name: (Path(root) / "state" / name).exists() for name in FORMER_TABLES} == dict.fromkeys(
            FORMER_TABLES, False
        )
    assert warehouse.version(TOPICS) == whole.version(TOPICS)


def test_erase_carries_over_first(last_release: Jobs) -> None:
    """Erase leaves no table that only the last release knows, and whose rows it would not have read."""
    jobs = last_release
    warehouse = jobs.warehouse
    at = STARTED_AT + timedelta(days=9)
    erase(jobs.executor, warehouse, ids=["consumer-codec"], new_key=b"k" * KEY_BYTES, at=at)
    assert [name for name in FORMER_TABLES if (Path(warehouse.root) / "state" / name).exists()] == []
    assert deleted_ranges(ClusterTables(warehouse, "other")) == {(OFFSETS_TOPIC, 3): ((0, 41),)}
