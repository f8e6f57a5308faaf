"""Part files: tasks write them and the driver commits them (`jobs.delta.warehouse`).

A task gets a target (`PartTarget`), writes Parquet (`PartWriter`) and returns a description of each file
(`WrittenFile`), including statistics for Delta's log.
"""

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from math import isnan
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from jobs.delta.arrow_columns import CODED, own_texts
from jobs.delta.arrow_schemas import file_schema, statistics_columns
from jobs.delta.filesystems import filesystem_of
from jobs.errors import WarehouseError, writing
from schemas.tables import TABLES
from schemas.tables.declare import Table

LOG_PARTITION: Final = "log_partition"
TO_LOG_OFFSET: Final = "to_log_offset"
"""Columns of silver tables by log partition: rows of one log partition are contiguous."""
KIND: Final = "kind"
"""Partition column of tables with rows of several kinds, each with its own columns."""
WRITE_BYTES: Final = 1 << 20
"""Pages are written in portions of this size: that takes the operating system a third of the time of single pages."""
ROW_GROUP_ROWS_MAX: Final = 1 << 20
PAGE_ROWS_MAX: Final = 1 << 16
"""pyarrow writes so many rows at a time, too; its own 1,024 take a third longer for dictionary-encoded strings."""
BUFFERED_BYTES_MAX: Final = 16 << 20
"""Maximum size of buffered rows."""
STATISTICS_TEXT_MAX: Final = 32
"""Length to which strings are truncated in Delta's statistics, as in Spark's own writer (DataSkippingReader)."""
LAST_CHARACTER: Final = chr(0x10FFFF)
"""The greatest Unicode character."""


@dataclass(frozen=True, slots=True)
class PartTarget:
    """The destination of the part files of one commit. Small and picklable: every task gets it."""

    table_name: str
    folder: str
    """Absolute folder or URI; paths in `WrittenFile` are relative to it."""
    codec: str

    @property
    def table(self) -> Table:
        return TABLES[self.table_name]


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """One closed part file."""

    path: str
    """Relative to the folder of its `PartTarget`."""
    size_bytes: int
    row_count: int
    stats: str
    """Delta's statistics, as JSON."""
    partition_values: tuple[tuple[str, str | None], ...]


class PartWriter:
    """Writes one part file, record batch by record batch; each `write` makes new row groups.

    `partition_values`: the value of each partition column, the same for all rows of the file. `row_group_rows_min`:
    smaller writes are buffered, in order, until they have this many rows. `row_group_rows_max`: row groups have no more
    rows, and get statistics of where in the log their rows end. Use as a context manager: an error removes the file.
    `written` is set by `close`.
    """

    def __init__(
        self,
        target: PartTarget,
        name: str,
        partition_values: Mapping[str, Any],
        *,
        row_group_rows_min: int = 0,
        row_group_rows_max: int | None = None,
    ) -> None:
        self._table = target.table
        self._partition_values = dict(partition_values)
        if set(partition_values) != set(self._table.partition_by):
            raise WarehouseError(f"{target.table_name} needs a value for each of {self._table.partition_by}")
        # a retried task writes another file, so a late first attempt cannot change a committed one
        self._path = f"{name}-{uuid.uuid4().hex}.parquet"
        self._folder = target.folder
        self._filesystem, folder = filesystem_of(target.folder)
        self._full_path = f"{folder}/{self._path}"
        self._codec = target.codec
        self._stream: Any = None
        self._writer: pq.ParquetWriter | None = None
        self._statistics = _Statistics(self._table)
        self._row_count = 0
        self._row_group_rows_min = row_group_rows_min
        self._row_group_rows_max = row_group_rows_max or ROW_GROUP_ROWS_MAX
        self._buffered: list[pa.Table] = []
        self._buffered_count = 0
        self._buffered_bytes = 0
        self._schema = file_schema(self._table)
        """The columns of the file: the first rows say which are never null, and which are dictionary-encoded."""
        self._given: pa.Schema | None = None
        """The schema of the last rows."""
        self.written: WrittenFile | None = None

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Append rows. Columns are matched by name; partition columns come from `partition_values`."""
        if not rows.num_rows:
            return
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        table = self._in_file_order(table)
        if table.num_rows >= self._row_group_rows_min:
            self._write_buffered()
            self._write(table)
            return
        buffered = _copied(table)
        self._buffered.append(buffered)
        self._buffered_count += buffered.num_rows
        # exact, since the rows were copied; nbytes, summed column by column, would take as long as the copy
        self._buffered_bytes += buffered.get_total_buffer_size()
        if self._buffered_count >= self._row_group_rows_min or self._buffered_bytes >= BUFFERED_BYTES_MAX:
            self._write_buffered()

    def _write_buffered(self) -> None:
        if self._buffered:
            rows = pa.concat_tables(self._buffered)
            self._buffered, self._buffered_count, self._buffered_bytes = [], 0, 0
            self._write(rows)

    def _write(self, table: pa.Table) -> None:
        # a dictionary that changes within a row group would be dropped
        rows = table.unify_dictionaries().combine_chunks()
        with writing(self._table.full_name, self._folder):
            self._open().write_table(rows, self._row_group_rows_max)
        self._statistics.add(rows)
        self._row_count += rows.num_rows

    def close(self) -> WrittenFile:
        """Close the file and return its description."""
        if self.written is None:
            self._write_buffered()
            with writing(self._table.full_name, self._folder):
                self._open().close()
                size_bytes = self._stream.tell()
                self._stream.close()
            self.written = WrittenFile(
                path=self._path,
                size_bytes=size_bytes,
                row_count=self._row_count,
                stats=self._statistics.to_json(self._row_count),
                partition_values=tuple(
                    (name, partition_text(self._partition_values[name])) for name in self._table.partition_by
                ),
            )
        return self.written

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self.close()
            return
        # ignore errors of closing: the original error is raised
        for opened in (self._writer, self._stream):
            if opened is not None:
                with suppress(Exception):
                    opened.close()
        with suppress(Exception):
            self._filesystem.delete_file(self._full_path)

    def _open(self) -> pq.ParquetWriter:
        if self._writer is None:
            if isinstance(self._filesystem, fs.LocalFileSystem):
                self._filesystem.create_dir(self._full_path.rpartition("/")[0], recursive=True)
            self._stream = self._filesystem.open_output_stream(self._full_path, buffer_size=WRITE_BYTES)
            self._writer = pq.ParquetWriter(
                self._stream,
                self._schema,
                compression=self._codec,
                store_schema=False,
                write_page_index=True,
                write_page_checksum=True,
                write_batch_size=PAGE_ROWS_MAX,
                max_rows_per_page=PAGE_ROWS_MAX,
                **_encodings(self._table),
            )
        return self._writer

    def _in_file_order(self, rows: pa.Table) -> pa.Table:
        if self._given is None or not self._given.equals(rows.schema):
            schema = self._schema_of(rows.schema)
            self._schema = schema if self._given is None else self._schema
            self._given = rows.schema
        rows = rows.select(self._schema.names)
        for field, column in zip(self._schema, rows.columns, strict=True):
            if column.null_count and not field.nullable:
                raise WarehouseError(
                    f"{self._table.full_name}.{field.name}: null where the first rows said there is none"
                )
        return rows if rows.schema.equals(self._schema) else rows.cast(self._schema)

    def _schema_of(self, given: pa.Schema) -> pa.Schema:
        """The columns of a file with such rows. Partition columns are only in Delta's log. In a table with rows of
        several kinds, each kind has its own columns."""
        fields = []
        for declared in file_schema(self._table):
            if KIND in self._table.partition_by and declared.name not in given.names:
                continue
            field = given.field(declared.name)
            if _recoded(field.type, pa.string()) != declared.type:
                raise WarehouseError(f"{self._table.full_name}.{field.name} takes {declared.type}, not {field.type}")
            fields.append(pa.field(field.name, _recoded(field.type, CODED), nullable=field.nullable))
        return pa.schema(fields)


def _recoded(type_: pa.DataType, texts: pa.DataType) -> pa.DataType:
    """The type with `texts` in place of dictionary-encoded strings, at any level."""
    if pa.types.is_dictionary(type_) and type_.value_type == pa.string():
        return texts
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_recoded(type_.value_type, texts)))
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_recoded(field.type, texts)) for field in type_.fields])
    return type_


@cache
def _encodings(table: Table) -> dict[str, Any]:
    """How the columns of a table are encoded, and which have statistics.

    Offsets, times and counts grow in small steps or stay the same; strings repeat. Statistics of personal columns would
    tell what they hold.
    """
    leaves = {path: type_ for field in file_schema(table) for path, type_ in _leaves(field.name, field.type)}
    return {
        "use_dictionary": [path for path, type_ in leaves.items() if pa.types.is_string(type_)],
        "column_encoding": {
            path: "DELTA_BINARY_PACKED"
            for path, type_ in leaves.items()
            if pa.types.is_integer(type_) or pa.types.is_timestamp(type_)
        },
        "write_statistics": list(statistics_columns(table)),
    }


def _leaves(path: str, type_: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """The leaves of a column, by their paths in Parquet."""
    if pa.types.is_list(type_):
        yield from _leaves(f"{path}.list.element", type_.value_type)
    elif pa.types.is_map(type_):
        yield from _leaves(f"{path}.key_value.key", type_.key_type)
        yield from _leaves(f"{path}.key_value.value", type_.item_type)
    elif pa.types.is_struct(type_):
        for field in type_.fields:
            yield from _leaves(f"{path}.{field.name}", field.type)
    else:
        yield path, type_


def _copied(rows: pa.Table) -> pa.Table:
    """A copy of the rows, except dictionaries: columnar replays reuse their buffers."""
    return pa.concat_tables([rows, rows.slice(0, 0)]).combine_chunks()


def write_part(
    target: PartTarget, rows: pa.Table, name: str = "part", partition_values: Mapping[str, Any] | None = None
) -> WrittenFile:
    """Write rows as one part file. Without `partition_values`, the values are read from the rows, which must agree."""
    if partition_values is None:
        partition_values = _common_values(rows, target.table)
    with PartWriter(target, name, partition_values) as writer:
        if rows.num_rows:
            writer.write(rows)
        return writer.close()


def write_parts(target: PartTarget, rows: pa.Table, name: str = "part") -> list[WrittenFile]:
    """Write rows as part files, one for each combination of partition values, in order; none if there are no rows."""
    partition_by = list(target.table.partition_by)
    if not rows.num_rows:
        return []
    if not partition_by:
        return [write_part(target, rows, name)]
    codes = np.zeros(rows.num_rows, np.int64)
    for column in partition_by:
        values = rows[column].combine_chunks().dictionary_encode(null_encoding="encode")
        codes = codes * len(values.dictionary) + values.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    edges = np.flatnonzero(np.diff(codes[order])) + 1
    if not len(edges):
        return [write_part(target, rows, name)]
    together = rows.take(pa.array(order))
    parts = (together.slice(start, end - start) for start, end in pairwise([0, *edges.tolist(), len(order)]))
    return [write_part(target, own_texts(part), name) for part in parts]


class _Statistics:
    """Minimum, maximum and null count of some columns, over all rows of a file."""

    def __init__(self, table: Table) -> None:
        self._names = statistics_columns(table)
        self._minimum: dict[str, Any] = {}
        self._maximum: dict[str, Any] = {}
        self._null_count: dict[str, int] = {}

    def add(self, rows: pa.Table) -> None:
        for name in self._names:
            if name not in rows.column_names:
                continue
            column = rows.column(name)
            self._null_count[name] = self._null_count.get(name, 0) + column.null_count
            if pa.types.is_dictionary(column.type):
                # bounds of the dictionary are bounds of its rows too
                column = pa.chunked_array([chunk.dictionary for chunk in column.chunks], column.type.value_type)
            bounds = pc.min_max(column)
            if bounds["min"].is_valid:
                low, high = bounds["min"].as_py(), bounds["max"].as_py()
                if not (isinstance(low, float) and (isnan(low) or isnan(high))):
                    self._minimum[name] = min(self._minimum.get(name, low), low)
                    self._maximum[name] = max(self._maximum.get(name, high), high)

    def to_json(self, row_count: int) -> str:
        return json.dumps(
            {
                "numRecords": row_count,
                "minValues": {
                    # a long string is truncated, which makes it less
                    name: _statistic(value[:STATISTICS_TEXT_MAX] if isinstance(value, str) else value)
                    for name, value in self._minimum.items()
                },
                "maxValues": {name: _statistic(_upper_bound(value)) for name, value in self._maximum.items()},
                "nullCount": self._null_count,
            },
            ensure_ascii=False,  # arrow-rs misreads the escapes of some characters outside the basic multilingual plane
        )


def _statistic(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")
    return value


def _upper_bound(value: Any) -> Any:
    """A long string is truncated and raised, so that it is not less. A bound is required: delta-rs treats a missing
    maximum as less than everything."""
    if not isinstance(value, str) or len(value) <= STATISTICS_TEXT_MAX:
        return value
    end = STATISTICS_TEXT_MAX
    while end < len(value) and value[end] == LAST_CHARACTER:
        end += 1
    return value[:end] + LAST_CHARACTER


def partition_text(value: Any) -> str | None:
    """A partition value as a string of Delta's log."""
    if value is None:
        return None
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _common_values(rows: pa.Table, table: Table) -> dict[str, Any]:
    values = {}
    for name in table.partition_by:
        distinct = pc.unique(rows.column(name)).to_pylist()
        if len(distinct) != 1:
            raise WarehouseError(f"the rows of one part file of {table.full_name} must share one {name}")
        values[name] = distinct[0]
    return values
