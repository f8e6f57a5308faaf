"""The one reader of Parquet files: statistics of row groups, and what may hold a value."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.delta.scanner import Scanner, dataset_of

ROWS = pa.table({"offset": [0, 4, 5, 9, 10, 14], "to": [3, None, 8, 9, 20, 30], "text": list("aabbcc")})


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Three row groups of two rows."""
    path = tmp_path / "rows.parquet"
    pq.write_table(ROWS, path, row_group_size=2)
    return str(path)


def test_bounds_are_of_row_groups_without_nulls(file: str) -> None:
    """A row group with a null has no bounds, nor has a column that the file lacks."""
    with Scanner(file) as scanner:
        assert scanner.row_counts == (2, 2, 2)
        assert scanner.bounds("offset") == [(0, 4), (5, 9), (10, 14)]
        assert scanner.bounds("to") == [None, (8, 9), (20, 30)]
        assert scanner.bounds("other") == [None] * 3


def test_row_groups_that_may_hold_a_value(file: str) -> None:
    """Those without bounds may hold any."""
    with Scanner(file) as scanner:
        assert scanner.may_hold("offset", 4, 5) == [0, 1]
        assert scanner.may_hold("offset", 15, 99) == []
        assert scanner.may_hold("to", 20, 20) == [0, 2]
        found = pa.concat_tables(scanner.row_groups(["offset"], scanner.may_hold("offset", 4, 5)))
    assert found == ROWS.select(["offset"]).slice(0, 4)


def test_rows_of_a_file(file: str) -> None:
    """Whole, by row group, in batches, from an open file, with a footer that was read before, or filtered."""
    with Scanner(file, ["text"]) as scanner:
        assert scanner.read(["offset"]) == ROWS.select(["offset"])
        assert pa.types.is_dictionary(scanner.read_row_group(1)["text"].type)
        metadata = scanner.metadata
    with Scanner(file, metadata=metadata) as again:
        assert pa.concat_tables(again.row_groups()) == ROWS
    with Path(file).open("rb") as source:
        scanner = Scanner.of_open(source)
        assert scanner.schema.names == ROWS.column_names
        assert [batch.num_rows for batch in scanner.batches(["to"], rows_max=1, indices=[0, 2])] == [1] * 4
        assert len(scanner.row_group_bytes) == 3
    found = dataset_of([file], ROWS.schema).to_table(filter=pa.compute.field("offset") > 9)
    assert found["text"].to_pylist() == ["c", "c"]


def test_an_unread_file_is_not_opened(tmp_path: Path) -> None:
    """A file whose row groups are all left out costs nothing."""
    with Scanner(str(tmp_path / "none.parquet")):
        pass
