"""Files of a table, as Delta's log has them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from jobs.delta.arrow_schemas import arrow_schema, stored_column
from jobs.delta.former_names import former_columns
from jobs.delta.scanner import Scanner
from schemas.tables.declare import Table

THREADS_BYTES_MIN: Final = 1 << 20
"""Of a file whose columns are read side by side: to hand them out takes longer than to read those of a smaller one."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """One file of a table's newest version."""

    path: str
    """Absolute path or URI, as `filesystem_of` takes it."""
    size_bytes: int
    row_count: int | None
    """None where the writer kept no statistics."""
    partition_values: Mapping[str, Any]
    minimum: Mapping[str, Any] = field(default_factory=dict)
    """By column, for `jobs.delta.arrow_schemas.statistics_columns`; a column without statistics is not in it."""
    maximum: Mapping[str, Any] = field(default_factory=dict)


def files_by_name(delta: DeltaTable, folder: str, known: Mapping[str, TableFile]) -> dict[str, TableFile]:
    """The files of a version by their paths in Delta's log. A file never changes: those in `known` are not read."""
    actions = pa.table(delta.get_add_actions(flatten=True))
    names = actions["path"].to_pylist()
    unknown = [index for index, name in enumerate(names) if name not in known]
    made = _table_files(actions.take(pa.array(unknown, pa.int64())), folder)
    found = dict(zip((names[index] for index in unknown), made, strict=True))
    return {name: known[name] if name in known else found[name] for name in names}


def read_file(file: TableFile, table: Table, columns: Sequence[str]) -> pa.Table:
    """Some columns of one file, with the declared types, partition columns included; nulls where the file has none."""
    schema = arrow_schema(table)
    stored = [name for name in columns if name not in table.partition_by]
    with Scanner(file.path, use_threads=file.size_bytes >= THREADS_BYTES_MIN) as scanner:
        former = former_columns(table, stored, scanner)
        rows = scanner.read([*stored, *former])
        rows = rows.rename_columns([former.get(name, name) for name in rows.column_names])
    arrays = []
    for name in columns:
        declared = schema.field(name)
        if name in stored:
            arrays.append(stored_column(rows, declared))
        else:
            scalar = pa.scalar(file.partition_values[name], declared.type)
            # the row count of a projection without stored columns is in the footer alone
            arrays.append(pa.chunked_array([pa.repeat(scalar, rows.num_rows)]))
    return pa.Table.from_arrays(arrays, schema=pa.schema([schema.field(name) for name in columns]))


def place_of(name: str, folder: str) -> str:
    """Where a file is: folders of partitions, which Spark's writer makes, are escaped once more in Delta's log."""
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
