"""The row groups of a table's data files, in the order of their rows: what tasks read without Spark."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.delta.arrow_schemas import file_schema, stored_column
from jobs.delta.filesystems import filesystem_of
from jobs.delta.warehouse import TableFile
from schemas.tables.declare import Table

ORDER_COLUMNS: Final = ("base_offset", "log_partition")
"""Row groups are kept in the order of the first of these which the table has."""


def row_groups_in_order(
    files: Sequence[TableFile], table: Table, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """The rows of some files, row group by row group: all columns that a file of the table has today, or some."""
    column = next((name for name in ORDER_COLUMNS if name in table.column_names), None)
    places = []
    for number, file in enumerate(files):
        metadata = _metadata(file)
        for index in range(metadata.num_row_groups):
            if metadata.row_group(index).num_rows:
                places.append((_least(metadata, index, column), number, index))
    for _, number, index in sorted(places):
        yield read_row_group(files[number], table, index, columns)


def _metadata(file: TableFile) -> pq.FileMetaData:
    filesystem, path = filesystem_of(file.path)
    with filesystem.open_input_file(path) as source:
        return pq.read_metadata(source)


def _least(metadata: pq.FileMetaData, index: int, column: str | None) -> Any:
    """The least value of a column in a row group; below all others where the file does not say."""
    if column is None:
        return 0
    place = metadata.schema.to_arrow_schema().get_field_index(column)
    statistics = metadata.row_group(index).column(place).statistics
    return statistics.min if statistics is not None and statistics.has_min_max else -1


def read_row_group(file: TableFile, table: Table, index: int, columns: Sequence[str] | None = None) -> pa.Table:
    """All columns that a data file of the table has, or some, in their declared types; nulls in those of a later
    version."""
    filesystem, path = filesystem_of(file.path)
    schema = file_schema(table)
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns])
    with filesystem.open_input_file(path) as source:
        rows = pq.ParquetFile(source).read_row_group(
            index, columns=None if columns is None else list(columns), use_threads=False
        )
    return pa.Table.from_arrays([stored_column(rows, field) for field in schema], schema=schema)
