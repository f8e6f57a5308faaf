"""The one reader of Parquet files: statistics of row groups, and what may hold a value."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.delta.scanner import Scanner, damage_of, dataset_of
from jobs.delta.warehouse import Warehouse
from jobs.errors import TableDamaged
from schemas.tables import TABLES
from tests.jobs.table_rows import rows

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


def test_a_changed_byte_of_a_page_is_found(tmp_path: Path) -> None:
    """Whichever it is: a page has a checksum, since a changed value may be as good a number as the true one."""
    table = TABLES["state.rewrites"]
    warehouse = Warehouse(str(tmp_path))
    given = rows(table, *({"cluster_id": "c", "topic": "t", "partition": 0, "from_offset": 7 * it} for it in range(40)))
    warehouse.write(table, given, app_id="a", version=1)
    before = warehouse.read(table)
    [file] = warehouse.files(table)
    whole = Path(file.path).read_bytes()
    group = pq.read_metadata(file.path).row_group(0)
    pages = range(4, 4 + sum(group.column(index).total_compressed_size for index in range(group.num_columns)))
    found = 0
    for place in pages:
        Path(file.path).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            assert warehouse.read(table) == before
        except TableDamaged as damage:
            assert str(damage) == f"state.rewrites is damaged: {file.path}: it is not what was written"
            found += 1
    assert found > 0.9 * len(pages)


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), OSError("AWS Error NETWORK_CONNECTION")])
def test_a_store_that_does_not_deliver_is_no_damage(tmp_path: Path, error: OSError) -> None:
    """Nothing must be made again because a disk or a network failed."""
    path = tmp_path / "state" / "runs" / "part.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"PAR1")
    assert damage_of(str(path), error) is None
    assert damage_of(str(path), OSError("Couldn't deserialize thrift")) is not None
    assert damage_of(str(path), PermissionError(13, "no")) is not None
    assert damage_of(str(tmp_path / "dumps" / "a.parquet"), OSError("Couldn't deserialize thrift")) is None
