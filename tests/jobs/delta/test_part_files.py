"""Part files: what is written is what was given, and their statistics hold."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.part_files import PartWriter, WrittenFile, write_part, write_parts
from jobs.delta.warehouse import Warehouse
from jobs.errors import WarehouseError
from schemas.tables import TABLES
from tests.jobs.table_rows import AT, COMMITS, NAMES, commits, never_null, rows

STATES = TABLES["silver.share_partition_states"]


def test_a_writer_that_fails_leaves_no_file(warehouse: Warehouse) -> None:
    """What a failed task began is removed."""
    target = warehouse.target(COMMITS)
    values = {"cluster_id": "c", "is_settled": True}
    with pytest.raises(RuntimeError, match="stop"), PartWriter(target, "p", values) as writer:
        writer.write(commits(1))
        raise RuntimeError("stop")
    assert list(Path(target.folder).glob("*.parquet")) == []


def test_small_writes_share_a_row_group(warehouse: Warehouse) -> None:
    """In their order, whatever their dictionaries; what is large enough alone stays alone, and nothing is left over."""
    target = warehouse.target(COMMITS)
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


def test_what_is_kept_is_not_what_a_columnar_replay_fills_again(warehouse: Warehouse) -> None:
    """Columns of numbers are written as they were when they came, not as they are when a row group is full."""
    target = warehouse.target(COMMITS)
    buffer = np.arange(3)
    with PartWriter(target, "p", {"cluster_id": "c", "is_settled": True}, row_group_rows_min=5) as writer:
        for first in (0, 3):
            buffer[:] = np.arange(first, first + 3)
            table = commits(0, 0, 0)
            writer.write(table.set_column(table.schema.get_field_index("log_offset"), "log_offset", pa.array(buffer)))
    assert writer.written is not None
    path = Path(target.folder) / writer.written.path
    assert pq.read_table(path, columns=["log_offset"])["log_offset"].to_pylist() == list(range(6))


def test_what_is_never_null_is_required_in_the_file(warehouse: Warehouse) -> None:
    """As the first rows say; later ones need not say it again, and are refused where it is not so."""
    target = warehouse.target(COMMITS)
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
    target = Warehouse(str(tmp_path), codec="none").target(COMMITS)
    written = write_part(target, commits(*range(50_000)))
    group = pq.ParquetFile(Path(target.folder) / written.path).metadata.row_group(0)
    columns = {column.path_in_schema: column for column in map(group.column, range(group.num_columns))}
    for name in ("log_partition", "log_offset"):
        assert "DELTA_BINARY_PACKED" in columns[name].encodings
        assert columns[name].total_compressed_size < 50_000 / 8


def test_wrong_rows_are_refused(warehouse: Warehouse) -> None:
    """A column of another type, rows of two partitions in one file, and a partition without value are errors."""
    target = warehouse.target(COMMITS)
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


def test_small_writes_with_more_texts_than_their_indices_can_number_share_a_row_group(warehouse: Warehouse) -> None:
    """What each of several small writes can number in a byte, all of them together cannot: the texts are written."""
    target = warehouse.target(COMMITS)
    with PartWriter(target, "p", {"cluster_id": "c", "is_settled": True}, row_group_rows_min=1_000) as writer:
        for number in range(3):
            codes, texts = pa.array(np.arange(200, dtype=np.uint8)), pa.array([f"g{number}-{at}" for at in range(200)])
            coded = pa.DictionaryArray.from_arrays(codes, texts)
            rows_of = commits(*range(200 * number, 200 * (number + 1))).drop_columns(["cluster_id", "is_settled"])
            writer.write(rows_of.set_column(rows_of.schema.get_field_index("group_id"), "group_id", coded))
        written = writer.close()
    read = pq.read_table(Path(warehouse.path(COMMITS)) / written.path)
    assert read["group_id"].to_pylist() == [f"g{number}-{at}" for number in range(3) for at in range(200)]


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
    target = warehouse.target(COMMITS)
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


def test_written_files_are_small_to_send() -> None:
    """What a task returns pickles: a few texts and numbers."""
    import pickle  # noqa: PLC0415

    file = WrittenFile("p", 1, 2, "{}", (("cluster_id", "c"),))
    assert pickle.loads(pickle.dumps(file)) == file
