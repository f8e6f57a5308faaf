"""The one door for writes: both lanes leave the same rows, a repeated commit changes nothing."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from chispa.dataframe_comparer import assert_df_equality
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from jobs.arrow_schemas import arrow_schema, spark_schema
from jobs.errors import WarehouseError
from jobs.sinks import OVERWRITE, PartWriter, TableFile, Warehouse, WrittenFile, write_part, write_parts
from schemas.tables import TABLES, Table
from schemas.tables.declare import Scalar
from tests.conftest import takes_minutes

COMMITS = TABLES["silver.offset_commits"]
EVENTS = TABLES["silver.group_events"]
STATES = TABLES["silver.share_partition_states"]
TOPICS = TABLES["silver.topics"]

AT = datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)
NAMES = ["plain", "a b:/%=#?&'`\"é", None]


def rows(table: Table, *values: dict[str, Any]) -> pa.Table:
    """Rows of a table, null where nothing is said."""
    empty: dict[str, Any] = dict.fromkeys(table.column_names)
    return pa.Table.from_pylist([empty | value for value in values], schema=arrow_schema(table))


def commits(*offsets: int, cluster_id: str | None = "c") -> pa.Table:
    """Offset commits at some offsets of one cluster."""
    return rows(
        COMMITS,
        *({"cluster_id": cluster_id, "log_partition": 0, "log_offset": o, "recorded_at": AT} for o in offsets),
    )


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
        return warehouse.write(table, rows(table), app_id="a", version=8) and table.full_name

    with pytest.raises(WarehouseError, match="refused"):
        warehouse.at_once(put, tables)
    assert [warehouse.last_version(table, "a") for table in tables] == [-1, 8, 8, 8]
    assert warehouse.at_once(put, tables[1:]) == [table.full_name for table in tables[1:]]


def test_commit_checks_the_version_even_when_files_are_written(warehouse: Warehouse) -> None:
    """A second attempt whose files are there already is skipped at the commit, and its files are in no table."""
    target = warehouse.target(COMMITS, app_id="a", version=1)
    first, second = (write_parts(target, commits(1)) for _ in range(2))
    assert not warehouse.commit(COMMITS, first, app_id="a", version=1).skipped
    assert warehouse.commit(COMMITS, second, app_id="a", version=1).skipped
    assert offsets(warehouse) == [1]
    assert len(warehouse.files(COMMITS)) == 1


@pytest.mark.parametrize("damage", ["missing", "short"])
def test_a_file_that_is_not_there_is_not_committed(warehouse: Warehouse, damage: str) -> None:
    """delta-rs would take the name of any file; readers would break later."""
    warehouse.ensure(COMMITS)
    target = warehouse.target(COMMITS, app_id="a", version=1)
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


def test_a_writer_that_fails_leaves_no_file(warehouse: Warehouse) -> None:
    """What a failed task began is removed."""
    target = warehouse.target(COMMITS, app_id="a", version=1)
    values = {"cluster_id": "c", "is_settled": True}
    with pytest.raises(RuntimeError, match="stop"), PartWriter(target, "p", values) as writer:
        writer.write(commits(1))
        raise RuntimeError("stop")
    assert list(Path(target.folder).glob("*.parquet")) == []


def test_small_writes_share_a_row_group(warehouse: Warehouse) -> None:
    """In their order, whatever their dictionaries; what is large enough alone stays alone, and nothing is left over."""
    target = warehouse.target(COMMITS, app_id="a", version=1)
    values = {"cluster_id": "c", "is_settled": True}
    names = [["g", "h"], ["h", "g", "i"], ["j"] * 5, ["k"]]
    with PartWriter(target, "p", values, row_group_rows_min=5) as writer:
        for texts in names:
            table = rows(COMMITS, *({"group_id": text} for text in texts))
            place = table.schema.get_field_index("group_id")
            writer.write(table.set_column(place, "group_id", table["group_id"].dictionary_encode()))
    assert writer.written is not None
    assert writer.written.row_count == 11
    file = pq.ParquetFile(Path(target.folder) / writer.written.path)
    assert [file.metadata.row_group(index).num_rows for index in range(file.num_row_groups)] == [5, 5, 1]
    assert file.read(["group_id"])["group_id"].to_pylist() == [text for some in names for text in some]


def test_what_is_held_is_not_what_a_lane_fills_again(warehouse: Warehouse) -> None:
    """Columns of numbers are written as they were when they came, not as they are when a row group is full."""
    target = warehouse.target(COMMITS, app_id="a", version=1)
    buffer = np.arange(3)
    with PartWriter(target, "p", {"cluster_id": "c", "is_settled": True}, row_group_rows_min=5) as writer:
        for first in (0, 3):
            buffer[:] = np.arange(first, first + 3)
            table = commits(0, 0, 0)
            writer.write(table.set_column(table.schema.get_field_index("log_offset"), "log_offset", pa.array(buffer)))
    assert writer.written is not None
    path = Path(target.folder) / writer.written.path
    assert pq.read_table(path, columns=["log_offset"])["log_offset"].to_pylist() == list(range(6))


def never_null(table: pa.Table, *names: str) -> pa.Table:
    """The same rows, saying of some columns that no row has a null there."""
    fields = [field.with_nullable(field.name not in names) for field in table.schema]
    return pa.Table.from_arrays(table.columns, schema=pa.schema(fields))


def test_what_is_never_null_is_required_in_the_file(warehouse: Warehouse) -> None:
    """As the first rows say; later ones need not say it again, and are refused where it is not so."""
    target = warehouse.target(COMMITS, app_id="a", version=1)
    values = {"cluster_id": "c", "is_settled": True}
    with PartWriter(target, "p", values, row_group_rows_min=3) as writer:
        writer.write(never_null(commits(1, 2), "log_offset"))
        writer.write(commits(3))
        writer.write(never_null(commits(4), "log_offset", "recorded_at"))
    assert writer.written is not None
    file = pq.ParquetFile(Path(target.folder) / writer.written.path)
    levels = {file.schema.column(index).name: file.schema.column(index).max_definition_level for index in range(5)}
    assert levels["log_offset"] == 0
    assert set(levels.values()) == {0, 1}
    assert file.read(["log_offset"])["log_offset"].to_pylist() == [1, 2, 3, 4]
    with (
        pytest.raises(WarehouseError, match=r"silver.offset_commits.log_offset: null where"),
        PartWriter(target, "q", values) as writer,
    ):
        writer.write(never_null(commits(1), "log_offset"))
        writer.write(rows(COMMITS, {"log_offset": None}))


def test_what_repeats_takes_no_room(tmp_path: Path) -> None:
    """The log partition, a time and the like are the same in row after row: deltas make little of them."""
    target = Warehouse(str(tmp_path), codec="none").target(COMMITS, app_id="a", version=1)
    written = write_part(target, commits(*range(50_000)))
    group = pq.ParquetFile(Path(target.folder) / written.path).metadata.row_group(0)
    columns = {column.path_in_schema: column for column in map(group.column, range(group.num_columns))}
    for name in ("log_partition", "log_offset"):
        assert "DELTA_BINARY_PACKED" in columns[name].encodings
        assert columns[name].total_compressed_size < 50_000 / 8


@pytest.mark.parametrize(("codec", "of_packed"), [("lz4", "UNCOMPRESSED"), ("zstd", "ZSTD"), ("none", "UNCOMPRESSED")])
def test_lz4_is_not_asked_to_compress_what_is_packed(tmp_path: Path, codec: str, of_packed: str) -> None:
    """Offsets are packed as deltas, and lz4 finds next to nothing in them; zstd does, and both do in all else."""
    target = Warehouse(str(tmp_path), codec=codec).target(COMMITS, app_id="a", version=1)
    written = write_part(target, commits(*range(100)))
    group = pq.ParquetFile(Path(target.folder) / written.path).metadata.row_group(0)
    columns = {column.path_in_schema: column for column in map(group.column, range(group.num_columns))}
    packed = {name for name, column in columns.items() if "DELTA_BINARY_PACKED" in column.encodings}
    times = {column.name for column in COMMITS.columns if column.type is Scalar.TIMESTAMP}
    assert "log_offset" in packed - times
    assert {columns[name].compression for name in packed - times} == {of_packed}
    assert {columns[name].compression for name in {*columns} - (packed - times)} == {
        "UNCOMPRESSED" if codec == "none" else codec.upper()
    }


@pytest.mark.spark
def test_readers_take_files_of_both_kinds(spark: SparkSession, warehouse: Warehouse) -> None:
    """Where one file says that a column is never null and another does not, the table is as it always was."""
    told = never_null(commits(1, 2), "log_offset", "log_partition")
    for version, some in enumerate((commits(3), told, commits(4))):
        warehouse.write(COMMITS, some, app_id="a", version=version)
    assert offsets(warehouse) == [1, 2, 3, 4]
    assert warehouse.frame(COMMITS).schema == spark_schema(COMMITS)
    assert sorted(row["log_offset"] for row in warehouse.frame(COMMITS).collect()) == [1, 2, 3, 4]
    dataset = DeltaTable(warehouse.path(COMMITS)).to_pyarrow_dataset()
    assert sorted(dataset.to_table()["log_offset"].to_pylist()) == [1, 2, 3, 4]


def test_wrong_rows_are_refused(warehouse: Warehouse) -> None:
    """A column of another type, rows of two partitions in one file, and a partition without value are errors."""
    target = warehouse.target(COMMITS, app_id="a", version=1)
    wrong = commits(1).set_column(2, "log_offset", pa.array([1], pa.int32()))
    with pytest.raises(WarehouseError, match="log_offset takes int64, not int32"):
        write_part(target, wrong)
    mixed = pa.concat_tables([commits(1, cluster_id="c"), commits(2, cluster_id="d")])
    with pytest.raises(WarehouseError, match="share one cluster_id"):
        write_part(target, mixed)
    with pytest.raises(WarehouseError, match="needs a value"):
        PartWriter(target, "p", {})


def test_dictionary_columns_are_written_as_what_they_mean(warehouse: Warehouse) -> None:
    """A task may hand over dictionaries of texts: the file holds them, readers see texts."""
    encoded = commits(1, 2).set_column(3, "group_id", pa.array(["g", "h"]).dictionary_encode())
    warehouse.write(COMMITS, encoded, app_id="a", version=1)
    assert warehouse.read(COMMITS, ["group_id"])["group_id"].to_pylist() == ["g", "h"]
    assert warehouse.files(COMMITS)[0].maximum["group_id"] == "h"


def test_dictionaries_within_lists_are_written_as_what_they_mean(warehouse: Warehouse) -> None:
    """So are texts in the structs of a list; what is another struct is refused."""
    declared = arrow_schema(STATES).field("changed_batches").type
    batches = [{"first_offset": 1, "last_offset": 2, "delivery_state": "ACQUIRED", "delivery_count": 3}]
    fields = [
        field.with_type(pa.dictionary(pa.uint8(), pa.string())) if field.name == "delivery_state" else field
        for field in declared.value_type.fields
    ]
    coded = pa.list_(declared.value_field.with_type(pa.struct(fields)))
    table = rows(STATES, {"cluster_id": "c", "is_settled": True})
    place = table.schema.get_field_index("changed_batches")
    warehouse.write(
        STATES, table.set_column(place, "changed_batches", pa.array([batches], coded)), app_id="a", version=1
    )
    assert warehouse.read(STATES, ["changed_batches"])["changed_batches"].to_pylist() == [batches]
    [path] = Path(warehouse.path(STATES)).rglob("*.parquet")
    assert pq.read_schema(path).field("changed_batches").type.value_type == declared.value_type
    other = pa.list_(declared.value_field.with_type(pa.struct(fields[1:])))
    with pytest.raises(WarehouseError, match="changed_batches takes"):
        wrong = table.set_column(place, "changed_batches", pa.array([[]], other))
        warehouse.write(STATES, wrong, app_id="a", version=2)


def test_statistics_bound_the_rows_and_leave_people_out(warehouse: Warehouse) -> None:
    """Minimum, maximum and null count as Delta's protocol has them; no personal column, long texts cut to bounds."""
    target = warehouse.target(COMMITS, app_id="a", version=1)
    long = "g" * 40
    values = [
        {"cluster_id": "c", "log_offset": 5, "group_id": long, "metadata": "me", "recorded_at": AT},
        {"cluster_id": "c", "log_offset": -3, "group_id": None, "metadata": "you"},
    ]
    written = write_parts(target, rows(COMMITS, *values))[0]
    stats = json.loads(written.stats)
    assert stats["numRecords"] == 2
    assert (stats["minValues"]["log_offset"], stats["maxValues"]["log_offset"]) == (-3, 5)
    assert stats["minValues"]["recorded_at"] == "2023-11-14T22:13:20.123000Z"
    assert stats["nullCount"]["group_id"] == 1
    assert stats["minValues"]["group_id"] == "g" * 32
    assert stats["maxValues"]["group_id"] == "g" * 32 + chr(0x10FFFF)
    assert "metadata" not in stats["nullCount"]


def test_partition_values_come_back_whole(warehouse: Warehouse) -> None:
    """A cluster may be named with anything, or be null: files and readers tell the same."""
    all_rows = pa.concat_tables([commits(i, cluster_id=name) for i, name in enumerate(NAMES)])
    warehouse.write(COMMITS, all_rows, app_id="a", version=1)
    assert {file.partition_values["cluster_id"] for file in warehouse.files(COMMITS)} == set(NAMES)
    found = warehouse.read(COMMITS, ["cluster_id", "log_offset"]).to_pylist()
    assert sorted(found, key=lambda row: row["log_offset"]) == [
        {"cluster_id": name, "log_offset": i} for i, name in enumerate(NAMES)
    ]
    assert warehouse.read(COMMITS, ["log_offset"], where={"cluster_id": NAMES[1]})["log_offset"].to_pylist() == [1]


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


@pytest.mark.spark
@pytest.mark.parametrize(
    "table", [COMMITS, pytest.param(EVENTS, marks=takes_minutes), STATES], ids=lambda table: table.name
)
def test_both_lanes_leave_the_same_rows(spark: SparkSession, tmp_path: Path, table: Table) -> None:
    """Appended twice with one version and then replaced in part, the two lanes' tables are equal, schema included."""
    frames = []
    for lane in ("arrow", "spark"):
        warehouse = Warehouse(str(tmp_path / lane), lane=lane, session=spark)
        given = sample(table)
        for _ in range(2):
            committed = warehouse.write(table, given, app_id="a", version=1)
        assert committed.skipped
        target = warehouse.target(table, app_id="a", version=2)
        one = given.slice(0, 1)
        by_cluster = {"cluster_id": one["cluster_id"][0].as_py()}
        if "cluster_id" not in table.partition_by:
            by_cluster = {}
        files = write_parts(target, one)
        warehouse.commit(table, files, app_id="a", version=2, mode=OVERWRITE, replace=by_cluster)
        assert warehouse.last_version(table, "a") == 2
        assert sum(file.row_count or 0 for file in warehouse.files(table)) == warehouse.read(table).num_rows
        frames.append(warehouse.frame(table))
        assert warehouse.frame(table).schema == spark_schema(table)
        direct = warehouse.read(table).sort_by("log_offset").to_pylist()
        assert direct == pa.Table.from_pylist(direct, schema=arrow_schema(table)).to_pylist()
        assert not (Path(warehouse.root) / "_staging").exists() or not list(
            (Path(warehouse.root) / "_staging").rglob("*.parquet")
        )
    as_text = [frame.selectExpr("to_json(struct(*)) as row") for frame in frames]
    assert_df_equality(as_text[0], as_text[1], ignore_row_order=True, ignore_nullable=True)


@pytest.mark.spark
def test_spark_skips_what_delta_rs_committed(spark: SparkSession, tmp_path: Path) -> None:
    """The two lanes share their versions: the other lane knows what the one has committed."""
    arrow = Warehouse(str(tmp_path / "w"), lane="arrow", session=spark)
    other = Warehouse(str(tmp_path / "w"), lane="spark", session=spark)
    arrow.write(TOPICS, rows(TOPICS, {"cluster_id": "c", "topic_id": "1"}), app_id="a", version=1)
    again = other.write(TOPICS, rows(TOPICS, {"cluster_id": "c", "topic_id": "1"}), app_id="a", version=1)
    assert again.skipped
    other.write(TOPICS, rows(TOPICS, {"cluster_id": "c", "topic_id": "2"}), app_id="a", version=2)
    assert arrow.last_version(TOPICS, "a") == 2
    assert sorted(arrow.read(TOPICS, ["topic_id"])["topic_id"].to_pylist()) == ["1", "2"]


@pytest.mark.spark
def test_spark_skips_files_by_our_statistics(spark: SparkSession, warehouse: Warehouse) -> None:
    """Statistics which we wrote are understood: a filter on a time reads the right rows, and fewer files."""
    for version, offset in enumerate((1, 1000)):
        one = rows(
            COMMITS,
            {"cluster_id": "c", "log_offset": offset, "recorded_at": AT.replace(year=2023 + version)},
        )
        warehouse.write(COMMITS, one, app_id="a", version=version)
    frame = warehouse.frame(COMMITS).where("recorded_at > timestamp'2024-01-01'")
    assert [row["log_offset"] for row in frame.collect()] == [1000]
    assert len(warehouse.files(COMMITS)) == 2
    assert len(frame.inputFiles()) == 1
    assert len(warehouse.frame(COMMITS).where("log_offset < 10").inputFiles()) == 1


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
    assert duckdb.sql("select sum(log_offset), count(*) from dataset where cluster_id = 'c'").fetchall() == [(3, 2)]
    assert dataset is not None


def test_an_encoded_folder_is_no_place_for_the_arrow_lane(tmp_path: Path) -> None:
    """delta-rs would write `%41` as `A`: such a folder goes through Spark, or is refused."""
    assert not Warehouse(str(tmp_path / "a%41")).is_arrow_lane
    with pytest.raises(WarehouseError, match="Arrow lane cannot write"):
        Warehouse(str(tmp_path / "a%41"), lane="arrow")


@pytest.mark.parametrize("name", ["a b", "a'b`c", "ü#?", 'quo"te'])
def test_any_folder_name_will_do(tmp_path: Path, name: str) -> None:
    """A warehouse may lie anywhere."""
    warehouse = Warehouse(str(tmp_path / name))
    warehouse.write(COMMITS, commits(1), app_id="a", version=1)
    assert offsets(warehouse) == [1]
    assert (tmp_path / name / "silver" / "offset_commits" / "_delta_log").is_dir()


def test_written_files_are_small_to_send() -> None:
    """What a task returns pickles: a few texts and numbers."""
    import pickle  # noqa: PLC0415

    file = WrittenFile("p", 1, 2, "{}", (("cluster_id", "c"),))
    assert pickle.loads(pickle.dumps(file)) == file


def test_single_files_go_with_those_of_a_partition(warehouse: Warehouse) -> None:
    """In one transaction; files which are gone already are not taken out twice."""

    def put(version: int, *, is_settled: bool, removed: Sequence[TableFile] = ()) -> None:
        target = warehouse.target(EVENTS, app_id="a", version=version)
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
