"""The row groups of a table's data files in row order, for tasks that read without Spark."""

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Final

import pyarrow as pa

from jobs.delta.arrow_columns import as_read
from jobs.delta.arrow_schemas import file_schema
from jobs.delta.scanner import Scanner
from jobs.delta.table_files import TableFile
from schemas.tables.declare import Table

ORDER_COLUMNS: Final = ("base_offset", "log_partition")
"""Row groups are sorted by the first of these columns that the table has."""


def row_groups_in_order(
    files: Sequence[TableFile], table: Table, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of some files, row group by row group: some columns, or all that a file of the table has today."""
    order = next((name for name in ORDER_COLUMNS if name in table.column_names), None)
    schema = file_schema(table)
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns])
    places = []
    for number, file in enumerate(files):
        with Scanner(file.path) as scanner:
            bounds = [None] * len(scanner.row_counts) if order is None else scanner.bounds(order)
            for index, (row_count, known) in enumerate(zip(scanner.row_counts, bounds, strict=True)):
                if row_count:
                    places.append((-1 if known is None else known[0], number, index, scanner.metadata))
    for _, number, index, metadata in sorted(places, key=itemgetter(0, 1, 2)):
        with Scanner(files[number].path, metadata=metadata) as scanner:
            yield as_read(scanner.read_row_group(index, columns), schema)


def stored_rows(file: TableFile, table: Table) -> Iterator[pa.Table]:
    """Yield the rows of a file, row group by row group, as stored, without partition columns."""
    schema = file_schema(table)
    with Scanner(file.path) as scanner:
        for rows in scanner.row_groups():
            yield as_read(rows, schema)
