"""The one door for writes: Spark reads what was written, a repeated commit changes nothing."""

import ctypes
import os
import struct
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from threading import Event
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from chispa.dataframe_comparer import assert_df_equality
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from jobs.delta import handles
from jobs.delta.commits import OVERWRITE, Committed
from jobs.delta.filesystems import spark_uri
from jobs.delta.handles import UNFINISHED
from jobs.delta.part_files import write_part, write_parts
from jobs.delta.spark_schemas import spark_schema
from jobs.delta.table_files import TableFile
from jobs.delta.warehouse import Warehouse
from jobs.errors import WarehouseError
from schemas.tables import TABLES, Table
from tests.jobs.frames import frame
from tests.jobs.table_rows import AT, COMMITS, NAMES, commits, never_null, rows
from tests.lengths import takes_minutes

EVENTS = TABLES["silver.group_events"]
STATES = TABLES["silver.share_partition_states"]
TOPICS = TABLES["silver.topics"]

IN_CREATE: Final = 0x100
"""The kernel's event of a new file in a folder."""


def offsets(warehouse: Warehouse) -> list[int]:
    """The offsets in the table."""
    return sorted(warehouse.read(COMMITS, ["log_offset"])["log_offset"].to_pylist())


def test_a_version_is_committed_once(warehouse: Warehouse) -> None:
    """The same version again, or an older one, is skipped and leaves the table as it was."""
    assert warehouse.write(COMMITS, commits(1, 2), app_id="a", version=7).row_count == 2
    for version in (7, 3):
        again = warehouse.write(COMMITS, commits(1, 2), app_id="a", version=version)
        assert (again.skipped, again.row_count) == (True, 0)
    assert offsets(warehouse) == [1, 2]
    assert warehouse.last_version(COMMITS, "a") == 7
    assert warehouse.last_version(COMMITS, "b") == -1
    assert not warehouse.write(COMMITS, commits(3), app_id="b", version=0).skipped
    assert offsets(warehouse) == [1, 2, 3]


def test_several_tables_at_once(warehouse: Warehouse) -> None:
    """All are there afterwards, those of before as they were; answers come in order, and the first error is raised when
    what was begun is done."""
    warehouse.write(COMMITS, commits(1), app_id="a", version=7)
    tables = (TOPICS, COMMITS, EVENTS, STATES)
    assert list(warehouse.ensure_all(tables, "a").items()) == [
        (TOPICS.full_name, -1),
        (COMMITS.full_name, 7),
        (EVENTS.full_name, -1),
        (STATES.full_name, -1),
    ]
    assert all(map(warehouse.exists, tables))

    begun = {table: Event() for table in tables}

    def put(table: Table) -> str:
        begun[table].set()
        if table is TOPICS:
            # what is not begun when the error comes is not done any more
            assert all(begun[other].wait(60) for other in tables)
            raise WarehouseError("refused")
        warehouse.write(table, rows(table), app_id="a", version=8)
        return table.full_name

    with pytest.raises(WarehouseError, match="refused"):
        warehouse.at_once(put, tables)
    assert [warehouse.last_version(table, "a") for table in tables] == [-1, 8, 8, 8]
    assert warehouse.at_once(put, tables[1:]) == [table.full_name for table in tables[1:]]


def test_commit_checks_the_version_even_when_files_are_written(warehouse: Warehouse) -> None:
    """A second attempt whose files are there already is skipped at the commit, and its files are in no table."""
    target = warehouse.target(COMMITS)
    first, second = (write_parts(target, commits(1)) for _ in range(2))
    assert not warehouse.commit(COMMITS, first, app_id="a", version=1).skipped
    assert warehouse.commit(COMMITS, second, app_id="a", version=1).skipped
    assert offsets(warehouse) == [1]
    assert len(warehouse.files(COMMITS)) == 1


@pytest.mark.parametrize("damage", ["missing", "short"])
def test_a_file_that_is_not_there_is_not_committed(warehouse: Warehouse, damage: str) -> None:
    """delta-rs would take the name of any file; readers would break later."""
    warehouse.ensure(COMMITS)
    target = warehouse.target(COMMITS)
    files = write_parts(target, commits(1))
    path = Path(target.folder) / files[0].path
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(WarehouseError, match="not there as it was written"):
        warehouse.commit(COMMITS, files, app_id="a", version=1)
    assert warehouse.last_version(COMMITS, "a") == -1
    assert offsets(warehouse) == []


def test_overwrite_replaces_one_cluster_or_all(warehouse: Warehouse) -> None:
    """With `replace` the other clusters' rows stay; without it nothing stays; no rows at all empty the table."""
    two = pa.concat_tables([commits(1, cluster_id="c"), commits(2, cluster_id="d")])
    warehouse.write(COMMITS, two, app_id="a", version=1)
    warehouse.write(COMMITS, commits(3), app_id="a", version=2, mode=OVERWRITE, replace={"cluster_id": "c"})
    assert offsets(warehouse) == [2, 3]
    warehouse.write(COMMITS, commits(), app_id="a", version=3, mode=OVERWRITE, replace={"cluster_id": "d"})
    assert offsets(warehouse) == [3]
    warehouse.write(COMMITS, commits(4), app_id="a", version=4, mode=OVERWRITE)
    assert offsets(warehouse) == [4]
    warehouse.write(COMMITS, commits(), app_id="a", version=5, mode=OVERWRITE)
    assert offsets(warehouse) == []


def test_readers_take_files_of_both_kinds(spark: SparkSession, warehouse: Warehouse) -> None:
    """Where one file says that a column is never null and another does not, the table is as it always was."""
    reported = never_null(commits(1, 2), "log_offset", "log_partition")
    for version, some in enumerate((commits(3), reported, commits(4))):
        warehouse.write(COMMITS, some, app_id="a", version=version)
    assert offsets(warehouse) == [1, 2, 3, 4]
    assert frame(spark, warehouse, COMMITS).schema == spark_schema(COMMITS.columns)
    assert sorted(row["log_offset"] for row in frame(spark, warehouse, COMMITS).collect()) == [1, 2, 3, 4]
    dataset = DeltaTable(warehouse.path(COMMITS)).to_pyarrow_dataset()
    assert sorted(dataset.to_table()["log_offset"].to_pylist()) == [1, 2, 3, 4]


def sample(table: Table) -> pa.Table:
    """Rows with every kind of column: texts, times, arrays of structs, maps, null partitions."""
    if table is STATES:
        changed = [{"first_offset": 1, "last_offset": 2, "delivery_state": "AVAILABLE", "delivery_count": 3}]
        base = {"group_id": "g", "topic_id": "t", "partition": 1, "valid_from": AT}
        return rows(
            table,
            *(
                base | {"cluster_id": name, "log_offset": i, "changed_batches": changed if i else []}
                for i, name in enumerate(NAMES)
            ),
        )
    if table is EVENTS:
        return rows(
            table,
            {"cluster_id": "c", "log_offset": 1, "details": [("k", "v"), ("n", None)], "at": AT},
            {"cluster_id": "c", "log_offset": 2},
        )
    return commits(1, 2, 3)


@pytest.mark.parametrize(
    "table", [COMMITS, pytest.param(EVENTS, marks=takes_minutes), STATES], ids=lambda table: table.name
)
def test_spark_reads_what_was_written(spark: SparkSession, warehouse: Warehouse, table: Table) -> None:
    """Appended twice with one version and then replaced in part: Spark's rows are ours, schema included."""
    given = sample(table)
    for _ in range(2):
        committed = warehouse.write(table, given, app_id="a", version=1)
    assert committed.skipped
    one = given.slice(0, 1)
    of_one = {"cluster_id": one["cluster_id"][0].as_py()} if "cluster_id" in table.partition_by else {}
    files = write_parts(warehouse.target(table), one)
    warehouse.commit(table, files, app_id="a", version=2, mode=OVERWRITE, replace=of_one)
    assert warehouse.last_version(table, "a") == 2
    direct = warehouse.read(table)
    assert sum(file.row_count or 0 for file in warehouse.files(table)) == direct.num_rows
    by_spark = frame(spark, warehouse, table)
    assert by_spark.schema == spark_schema(table.columns)
    expected = spark.createDataFrame(direct, spark_schema(table.columns))
    as_text = [rows.selectExpr("to_json(struct(*)) as row") for rows in (by_spark, expected)]
    assert_df_equality(as_text[0], as_text[1], ignore_row_order=True, ignore_nullable=True)


def test_sparks_own_writer_and_ours_share_versions(spark: SparkSession, warehouse: Warehouse) -> None:
    """Delta's writer in Spark skips what was committed here under the same application, and the other way round."""
    one, two = (rows(TOPICS, {"cluster_id": "c", "topic_id": name}) for name in ("1", "2"))
    warehouse.write(TOPICS, one, app_id="a", version=1)
    for version, given in ((1, one), (2, two)):
        (
            spark.createDataFrame(given.to_pandas(), spark_schema(TOPICS.columns))
            .write.format("delta")
            .mode("append")
            .option("txnAppId", "a")
            .option("txnVersion", str(version))
            .save(spark_uri(warehouse.path(TOPICS)))
        )
    assert warehouse.last_version(TOPICS, "a") == 2
    assert warehouse.write(TOPICS, two, app_id="a", version=2).skipped
    assert sorted(warehouse.read(TOPICS, ["topic_id"])["topic_id"].to_pylist()) == ["1", "2"]


def test_spark_skips_files_by_our_statistics(spark: SparkSession, warehouse: Warehouse) -> None:
    """Statistics which we wrote are understood: a filter on a time reads the right rows, and fewer files."""
    for version, offset in enumerate((1, 1000)):
        one = rows(
            COMMITS,
            {"cluster_id": "c", "log_offset": offset, "recorded_at": AT.replace(year=2023 + version)},
        )
        warehouse.write(COMMITS, one, app_id="a", version=version)
    later = frame(spark, warehouse, COMMITS).where("recorded_at > timestamp'2024-01-01'")
    assert [row["log_offset"] for row in later.collect()] == [1000]
    assert len(warehouse.files(COMMITS)) == 2
    assert len(later.inputFiles()) == 1
    assert len(frame(spark, warehouse, COMMITS).where("log_offset < 10").inputFiles()) == 1


@pytest.mark.parametrize("group_id", ["x" * 40, "x" * 32 + chr(0x10FFFF) * 3 + "y", chr(0x10FFFF) * 40, chr(0x20000)])
def test_long_texts_are_found_by_delta_rs(warehouse: Warehouse, group_id: str) -> None:
    """The bounds of a file hold for texts that are longer than the bounds, whoever reads them."""
    warehouse.write(
        COMMITS,
        rows(COMMITS, *({"cluster_id": "c", "log_offset": len(text), "group_id": text} for text in ("a", group_id))),
        app_id="a",
        version=1,
    )
    dataset = DeltaTable(warehouse.path(COMMITS)).to_pyarrow_dataset()
    for text in ("a", group_id):
        assert dataset.to_table(filter=pc.field("group_id") == text).num_rows == 1


def test_duckdb_reads_the_tables(warehouse: Warehouse) -> None:
    """Other engines read the tables: no table feature that they lack is on."""
    warehouse.write(COMMITS, commits(1, 2), app_id="a", version=1)
    delta = DeltaTable(warehouse.path(COMMITS))
    assert delta.protocol().reader_features in (None, [])
    assert delta.protocol().min_reader_version == 1
    dataset = delta.to_pyarrow_dataset()  # duckdb finds it by its name here
    assert duckdb.execute("select sum(log_offset), count(*) from dataset where cluster_id = 'c'").fetchall() == [(3, 2)]
    assert dataset is not None


@pytest.mark.parametrize(
    ("root", "why"), [("a%41", "two hexadecimal digits in its name"), ("ftp://host/a", "no warehouse can be there")]
)
def test_no_place_for_a_warehouse(root: str, why: str) -> None:
    """delta-rs would write `%41` as `A`, and knows no such store: refused before anything is written."""
    with pytest.raises(WarehouseError, match=why):
        Warehouse(root)


@pytest.mark.parametrize("name", ["a b", "a'b`c", "ü#?", 'quo"te'])
def test_any_folder_name_will_do(tmp_path: Path, name: str) -> None:
    """A warehouse may lie anywhere."""
    warehouse = Warehouse(str(tmp_path / name))
    warehouse.write(COMMITS, commits(1), app_id="a", version=1)
    assert offsets(warehouse) == [1]
    assert (tmp_path / name / "silver" / "offset_commits" / "_delta_log").is_dir()


def test_single_files_go_with_those_of_a_partition(warehouse: Warehouse) -> None:
    """In one transaction; files which are gone already are not taken out twice."""

    def put(version: int, *, is_settled: bool, removed: Sequence[TableFile] = ()) -> None:
        target = warehouse.target(EVENTS)
        shared = {"cluster_id": "c", "is_settled": is_settled}
        parts = [
            write_part(
                target, rows(EVENTS, shared | {"log_partition": partition, "log_offset": version * 10 + partition})
            )
            for partition in (0, 1)
        ]
        replace = {"cluster_id": "c", "is_settled": False}
        warehouse.commit(EVENTS, parts, app_id="a", version=version, mode=OVERWRITE, replace=replace, removed=removed)

    put(1, is_settled=True)
    put(2, is_settled=False)
    of_first = [
        file
        for file in warehouse.files(EVENTS)
        if file.partition_values["is_settled"] and file.minimum["log_partition"] == 0
    ]
    put(3, is_settled=True, removed=of_first)
    assert sorted(warehouse.read(EVENTS, ["log_offset"])["log_offset"].to_pylist()) == [11, 30, 31]
    with pytest.raises(WarehouseError, match="took files out meanwhile"):
        put(4, is_settled=True, removed=of_first)


def test_what_a_killed_commit_left_is_deleted(warehouse: Warehouse) -> None:
    """By the next run that writes the table; a young one may be of a commit under way."""
    warehouse.write(COMMITS, commits(1), app_id="a", version=1)
    folder = Path(warehouse.path(COMMITS), "_delta_log")
    names = (f"{2:020}.json#1", "_commit_a.json.tmp", f"{2:020}.json#2", f"{1:020}.json")
    for name in names:
        (folder / name).touch()
        if name != names[2]:
            os.utime(folder / name, (0, 0))
    Warehouse(warehouse.root).write(COMMITS, commits(2), app_id="a", version=2)
    assert [(folder / name).exists() for name in names] == [False, False, True, True]


def test_an_erasure_leaves_nothing_that_is_unfinished(warehouse: Warehouse) -> None:
    """However young: bounds of rows are in it."""
    warehouse.write(COMMITS, commits(1), app_id="a", version=1)
    unfinished = Path(warehouse.path(COMMITS), "_delta_log", f"{2:020}.json#1")
    unfinished.touch()
    warehouse.forget_history(COMMITS)
    assert not unfinished.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="inotify")
def test_delta_rs_names_temporary_files_so(warehouse: Warehouse) -> None:
    """What is deleted as unfinished is what a commit leaves that ends between its file and the file's number."""
    warehouse.ensure(COMMITS)
    folder = Path(warehouse.path(COMMITS), "_delta_log")
    seen: list[str] = []
    events = ctypes.CDLL(None).inotify_init1(os.O_NONBLOCK)
    ctypes.CDLL(None).inotify_add_watch(events, bytes(folder), IN_CREATE)
    warehouse.write(COMMITS, commits(1), app_id="a", version=1)
    content = os.read(events, 1 << 16)
    os.close(events)
    while content:
        (size,) = struct.unpack_from("12xI", content)
        seen.append(content[16 : 16 + size].rstrip(b"\0").decode())
        content = content[16 + size :]
    assert seen[-1] == f"{1:020}.json"
    assert all(any(fnmatch(name, pattern) for pattern in UNFINISHED) for name in seen[:-1])


def test_a_commit_behind_another_ones(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where two commits do not touch, both stay, whoever was faster; of one application only the first does."""
    warehouse.write(COMMITS, commits(1), app_id="a", version=1)
    commit = DeltaTable.create_write_transaction

    def slower(*arguments: Any, **named: Any) -> None:
        monkeypatch.setattr(DeltaTable, "create_write_transaction", commit)
        Warehouse(warehouse.root).write(COMMITS, commits(2), app_id=other, version=3)
        commit(*arguments, **named)

    other = "b"
    monkeypatch.setattr(DeltaTable, "create_write_transaction", slower)
    assert warehouse.write(COMMITS, commits(3), app_id="a", version=2) == Committed(3, 1, skipped=False)
    other = "a"
    monkeypatch.setattr(DeltaTable, "create_write_transaction", slower)
    assert warehouse.write(COMMITS, commits(4), app_id="a", version=3) == Committed(4, 0, skipped=True)
    assert sorted(warehouse.read(COMMITS, ["log_offset"])["log_offset"].to_pylist()) == [1, 2, 2, 3]


def test_a_table_is_opened_once(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many commits there are, of this process and of others; and a checkpoint comes every ten."""
    opened: list[str] = []
    open_table = handles.open_table

    def noted(path: str, version: int | None = None) -> DeltaTable:
        opened.append(path)
        return open_table(path, version)

    monkeypatch.setattr(handles, "open_table", noted)
    both = (warehouse, Warehouse(warehouse.root))
    for number in range(8):
        for one in both:
            one.write(COMMITS, commits(number), app_id=str(id(one)), version=number)
    assert [len(one.files(COMMITS)) for one in both] == [16, 16]
    assert len(opened) == 1
    assert len(list(Path(warehouse.path(COMMITS), "_delta_log").glob("*.checkpoint.parquet"))) == 1
