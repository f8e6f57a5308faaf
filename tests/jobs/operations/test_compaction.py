"""Which files are merged, and that what is merged is what was there, in the order that readers rely on."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.bronze.reader import read_log
from jobs.delta.part_files import write_part
from jobs.delta.table_files import TableFile
from jobs.delta.warehouse import Warehouse
from jobs.operations.compaction import MergeWork, large_chunks, merge_files, merge_plan
from schemas.tables.bronze import END_OFFSETS, RECORD_BATCHES
from schemas.tables.silver import GROUP_EVENTS
from tests.jobs.table_rows import rows

AT = datetime(2026, 1, 1, tzinfo=UTC)


def bronze_file(first: int, last: int, *, size: int = 10, partition: int = 0, name: str = "batches") -> TableFile:
    """A file of bronze that spans some offsets."""
    return TableFile(
        f"/w/bronze/record_batches/{name}-{partition}-{first:04}.parquet",
        size,
        1,
        {"cluster_id": "c", "topic": "t", "partition": partition},
        {"base_offset": first},
        {"last_offset": last},
    )


def merged(files: Sequence[TableFile], warehouse: Warehouse, **options: Any) -> list[list[int]]:
    """First offsets of the files that become one."""
    target = warehouse.target(RECORD_BATCHES)
    defaults: dict[str, Any] = {"file_bytes": 100, "file_count_min": 2}
    works = merge_plan(files, target, **defaults | options)
    return [[file.minimum["base_offset"] for file in work.files] for work in works]


CASES = {
    "side by side": ([(0, 9), (10, 19), (20, 29)], [[0, 10, 20]]),
    "whatever order they come in": ([(20, 29), (0, 9), (10, 19)], [[0, 10, 20]]),
    "a gap that may still be filled": ([(0, 9), (10, 19), (30, 39), (40, 49)], [[0, 10], [30, 40]]),
    "a gap that compaction left": ([(0, 9), (15, 19)], [[0, 15]]),
    "one inside another": ([(0, 99), (50, 59), (100, 109)], [[0, 50, 100]]),
    "one alone": ([(0, 9), (30, 39)], []),
}


@pytest.mark.parametrize("case", CASES)
def test_only_neighbours_are_merged(warehouse: Warehouse, case: str) -> None:
    """Never over a gap: replay would take the offsets in it for replayed, and capture for captured."""
    ranges, expected = CASES[case]
    holes = {("c", ("t", 0)): [(10, 14)]}
    assert merged([bronze_file(*offsets) for offsets in ranges], warehouse, holes=holes) == expected


def test_damaged_batches_and_other_partitions_stay_apart(warehouse: Warehouse) -> None:
    """A damaged batch's header binds nobody; a file is of one log partition."""
    files = [bronze_file(0, 9), bronze_file(10, 10, name="damaged"), bronze_file(10, 19, partition=1)]
    assert merged(files, warehouse) == []
    assert merged([*files, bronze_file(20, 29, partition=1)], warehouse) == [[10, 20]]


def test_large_files_are_left_alone(warehouse: Warehouse) -> None:
    """Bins end at the wanted size; what is about as large already is not written again; a few are not worth it."""
    files = [bronze_file(n * 10, n * 10 + 9, size=size) for n, size in enumerate([40, 50, 40, 90, 10, 10])]
    assert merged(files, warehouse) == [[0, 10], [40, 50]]
    assert merged(files, warehouse, file_count_min=3) == []


def test_rows_that_are_not_settled_are_left_alone(warehouse: Warehouse) -> None:
    """The next run of replay takes them out by themselves."""
    files = [
        TableFile(f"/w/{is_settled}-{n}", 10, 1, {"cluster_id": "c", "is_settled": is_settled})
        for is_settled in (True, False)
        for n in range(2)
    ]
    works = merge_plan(files, warehouse.target(GROUP_EVENTS), file_bytes=100, file_count_min=2)
    assert [[file.path for file in work.files] for work in works] == [["/w/True-0", "/w/True-1"]]


def written(warehouse: Warehouse, table: Any, *parts: pa.Table) -> tuple[TableFile, ...]:
    """One file of each part, committed."""
    version = warehouse.last_version(table, "a")
    for part in parts:
        version += 1
        target = warehouse.target(table)
        warehouse.commit(table, [write_part(target, part)], app_id="a", version=version)
    return tuple(warehouse.files(table))


def batches(*offsets: int) -> pa.Table:
    """Rows of bronze: one batch of one record an offset."""
    place = {"cluster_id": "c", "topic": "t", "partition": 0}
    return rows(
        RECORD_BATCHES,
        *(
            place | {"base_offset": o, "last_offset": o, "batch": b"%04d" % o, "source": "s", "crc_valid": True}
            for o in offsets
        ),
    )


def test_batches_keep_the_order_of_their_offsets(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of all files come in the order of their offsets, with the statistics by which replay skips them."""
    monkeypatch.setattr("jobs.operations.compaction.ROW_GROUP_BYTES", 1)
    files = written(warehouse, RECORD_BATCHES, batches(4, 5), batches(0, 1), batches(2, 3), batches(6))
    done = merge_files(MergeWork(warehouse.target(RECORD_BATCHES), files))
    version = warehouse.swap(
        RECORD_BATCHES,
        done.removed,
        done.added,
        version=warehouse.version(RECORD_BATCHES),
        at=AT,
        writers=[],
        changes_rows=False,
    )
    (file,) = warehouse.files(RECORD_BATCHES)
    assert (file.row_count, file.minimum["base_offset"], file.maximum["last_offset"]) == (7, 0, 6)
    assert Path(file.path).name.startswith("batches-")
    metadata = pq.read_metadata(file.path)
    column = metadata.schema.to_arrow_schema().get_field_index("base_offset")
    groups = [metadata.row_group(index).column(column).statistics for index in range(metadata.num_row_groups)]
    assert [(group.min, group.max) for group in groups] == [(0, 1), (2, 3), (4, 5), (6, 6)]
    read = b"".join(bytes(chunk.data) for chunk in read_log([file], from_offset=3))
    assert read == b"0003000400050006"
    assert len(warehouse.files(RECORD_BATCHES, version - 1)) == 4, "the version before is still there"


def test_small_row_groups_become_one(warehouse: Warehouse) -> None:
    """A night's few rows are no row group of their own for ever."""
    files = written(warehouse, RECORD_BATCHES, *(batches(n) for n in range(5)))
    done = merge_files(MergeWork(warehouse.target(RECORD_BATCHES), files))
    path = Path(warehouse.path(RECORD_BATCHES)) / done.added[0].path
    assert pq.read_metadata(path).num_row_groups == 1
    assert list(large_chunks([])) == []


def test_rows_that_are_too_old_are_left_out(warehouse: Warehouse) -> None:
    """Those at the very time stay, and so do those without a time."""
    times = [AT - timedelta(seconds=1), AT, None]
    values = [{"cluster_id": "c", "topic": "t", "partition": n, "sampled_at": at} for n, at in enumerate(times)]
    (file,) = written(warehouse, END_OFFSETS, rows(END_OFFSETS, *values))
    target = warehouse.target(END_OFFSETS)
    done = merge_files(MergeWork(target, (file,), keep_from=AT))
    kept = pq.read_table(Path(target.folder) / done.added[0].path)
    assert (sorted(kept["partition"].to_pylist()), done.left_out_count) == ([1, 2], 1)
    assert merge_files(MergeWork(target, (file,), keep_from=AT + timedelta(days=1))).left_out_count == 2
    old = written(warehouse, END_OFFSETS, rows(END_OFFSETS, values[0]))[0]
    assert merge_files(MergeWork(target, (old,), keep_from=AT)).added == (), "of old rows alone nothing is left"
