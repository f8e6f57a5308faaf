"""Files of a table, according to Delta's log."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa

from jobs.delta.arrow_schemas import arrow_schema, stored_column
from jobs.delta.scanner import Scanner
from schemas.tables.declare import Table

if TYPE_CHECKING:
    from deltalake import DeltaTable

THREADS_BYTES_MIN: Final = 1 << 20
"""Minimum size of a file whose columns are read in parallel: for smaller ones, starting threads takes longer than
reading."""


@dataclass(frozen=True, slots=True)
class TableFile:
    path: str
    """Absolute path or URI, for `filesystem_of`."""
    size_bytes: int
    row_count: int | None
    """None where the writer stored no statistics."""
    partition_values: Mapping[str, Any]
    minimum: Mapping[str, Any] = field(default_factory=dict)
    """By column, for `jobs.delta.arrow_schemas.statistics_columns`; columns without statistics are missing."""
    maximum: Mapping[str, Any] = field(default_factory=dict)


def files_by_name(delta: "DeltaTable", folder: str, known: Mapping[str, TableFile]) -> dict[str, TableFile]:
    """The files of a version by their paths in Delta's log.

    Files never change, so those in `known` are not read again.
    """
    actions = pa.table(delta.get_add_actions(flatten=True))
    names = actions["path"].to_pylist()
    unknown = [index for index, name in enumerate(names) if name not in known]
    made = _table_files(actions.take(pa.array(unknown, pa.int64())), folder)
    found = dict(zip((names[index] for index in unknown), made, strict=True))
    return {name: known[name] if name in known else found[name] for name in names}


def read_file(file: TableFile, table: Table, columns: Sequence[str]) -> pa.Table:
    """Some columns of one file in their declared types, including partition columns; nulls where the file lacks a
    column.
    """
    schema = arrow_schema(table)
    stored = [name for name in columns if name not in table.partition_by]
    with Scanner(file.path, use_threads=file.size_bytes >= THREADS_BYTES_MIN) as scanner:
        rows = scanner.read(stored)
    arrays = []
    for name in columns:
        declared = schema.field(name)
        if name in stored:
            arrays.append(stored_column(rows, declared))
        else:
            scalar = pa.scalar(file.partition_values[name], declared.type)
            # for a projection without stored columns, the row count is only in the footer
            arrays.append(pa.chunked_array([pa.repeat(scalar, rows.num_rows)]))
    return pa.Table.from_arrays(arrays, schema=pa.schema([schema.field(name) for name in columns]))


def place_of(name: str, folder: str) -> str:
    """The path of a file. Delta's log escapes Spark's partition folders once more."""
    return f"{folder}/{unquote(name)}"


def _table_files(actions: pa.Table, folder: str) -> Iterator[TableFile]:
    names = actions.column_names

    def named(prefix: str) -> list[tuple[str, str]]:
        return [(name.removeprefix(prefix), name) for name in names if name.startswith(prefix)]

    partitions, minima, maxima = named("partition."), named("min."), named("max.")
    for action in actions.to_pylist():
        yield TableFile(
            path=place_of(action["path"], folder),
            size_bytes=action["size_bytes"],
            row_count=action.get("num_records"),
            partition_values={column: action[name] for column, name in partitions},
            minimum={column: action[name] for column, name in minima if action[name] is not None},
            maximum={column: action[name] for column, name in maxima if action[name] is not None},
        )
