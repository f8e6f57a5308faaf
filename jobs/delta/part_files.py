"""Part files: tasks write them and the driver commits them (`jobs.delta.warehouse`).

A task gets a target (`PartTarget`), writes Parquet (`PartWriter`) and returns a description of each file
(`WrittenFile`), including statistics for Delta's log.
"""

import json
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from math import isnan
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from jobs.delta.arrow_schemas import arrow_schema, statistics_columns
from jobs.delta.filesystems import filesystem_of
from jobs.delta.parquet.file import ParquetFileWriter
from jobs.delta.parquet.pages import is_packed
from jobs.delta.times import EPOCH
from jobs.errors import WarehouseError, writing
from schemas.tables import TABLES
from schemas.tables.declare import Table

LOG_PARTITION: Final = "log_partition"
TO_LOG_OFFSET: Final = "to_log_offset"
"""Columns of silver tables by log partition: rows of one log partition are contiguous."""
WRITE_BYTES: Final = 1 << 20
"""Pages are written in portions of this size: that takes the operating system a third of the time of single pages."""
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
        self._writer: ParquetFileWriter | None = None
        self._statistics = _Statistics(self._table)
        self._row_count = 0
        self._row_group_rows_min = row_group_rows_min
        self._row_group_rows_max = row_group_rows_max
        self._buffered: list[pa.Table] = []
        self._buffered_count = 0
        self._buffered_bytes = 0
        self._layout: _Layout | None = None
        self._never_null: frozenset[str] | None = None
        """Columns without nulls, according to the first rows."""
        self.written: WrittenFile | None = None

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Append rows. Columns are matched by name; partition columns come from `partition_values`."""
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
            # a dictionary that changes within a row group would be dropped
            rows = _unified(pa.concat_tables(self._buffered)).combine_chunks()
            self._buffered, self._buffered_count, self._buffered_bytes = [], 0, 0
            self._write(rows)

    def _write(self, table: pa.Table) -> None:
        with writing(self._table.full_name, self._folder):
            if self._writer is None:
                self._writer = self._open(table.schema)
            self._writer.write(table, self._row_group_rows_max)
        self._statistics.add(table)
        self._row_count += table.num_rows

    def close(self) -> WrittenFile:
        """Close the file and return its description."""
        if self.written is None:
            self._write_buffered()
            with writing(self._table.full_name, self._folder):
                if self._writer is None:
                    self._writer = self._open(self._in_file_order(arrow_schema(self._table).empty_table()).schema)
                self._writer.close()
            self.written = WrittenFile(
                path=self._path,
                size_bytes=self._writer.size_bytes,
                row_count=self._row_count,
                stats=self._statistics.to_json(self._row_count, self._writer.bounds),
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
        with suppress(Exception):
            if self._writer is not None:
                self._writer.close()
        with suppress(Exception):
            self._filesystem.delete_file(self._full_path)

    def _open(self, schema: pa.Schema) -> ParquetFileWriter:
        if isinstance(self._filesystem, fs.LocalFileSystem):
            self._filesystem.create_dir(self._full_path.rpartition("/")[0], recursive=True)
        sought = {*self._table.key, LOG_PARTITION, *([TO_LOG_OFFSET] if self._row_group_rows_max is not None else ())}
        return ParquetFileWriter(
            self._filesystem.open_output_stream(self._full_path, buffer_size=WRITE_BYTES),
            schema,
            codec=self._codec,
            # statistics of row groups, only for numbers in the key and for those that the audit filters by; Delta's
            # statistics of files cover all columns
            statistics=[field.name for field in schema if field.name in sought and is_packed(field.type)],
        )

    def _in_file_order(self, rows: pa.Table) -> pa.Table:
        layout = self._layout
        if layout is None or not layout.given.equals(rows.schema):
            layout = self._layout = self._layout_of(rows)
        for name in self._never_null or ():
            if rows.column(name).null_count:
                raise WarehouseError(f"{self._table.full_name}.{name}: null where the first rows said there is none")
        if layout.is_as_given:
            return rows
        return pa.Table.from_arrays([rows.column(index) for index in layout.sources], schema=layout.file)

    def _layout_of(self, rows: pa.Table) -> "_Layout":
        given = rows.schema
        if self._never_null is None:
            self._never_null = frozenset(field.name for field in given if not field.nullable)
        never_null = self._never_null
        sources = []
        fields = []
        for declared in arrow_schema(self._table):
            name = declared.name
            if name in self._partition_values:
                # only in Delta's log
                continue
            type_ = rows.column(name).type
            if not _is_type_of(type_, declared.type):
                raise WarehouseError(f"{self._table.full_name}.{name} takes {declared.type}, not {type_}")
            sources.append(given.get_field_index(name))
            fields.append(pa.field(name, type_, nullable=name not in never_null))
        file = pa.schema(fields)
        return _Layout(given, tuple(sources), file, file.equals(given, check_metadata=True))


class _Layout(NamedTuple):
    """How to convert given rows to those of the file: computed once for rows of equal schema."""

    given: pa.Schema
    sources: tuple[int, ...]
    """Index of each file column among the given columns."""
    file: pa.Schema
    is_as_given: bool


def _unified(rows: pa.Table) -> pa.Table:
    """Rows whose chunks share one dictionary in each string column."""
    try:
        return rows.unify_dictionaries()
    except pa.ArrowInvalid:
        # the index type of a column is too narrow for the strings of all its chunks
        return rows.cast(pa.schema([field.with_type(_uncoded(field.type)) for field in rows.schema]))


def _uncoded(type_: pa.DataType) -> pa.DataType:
    """The type without dictionary encoding at any level."""
    if pa.types.is_dictionary(type_):
        return type_.value_type
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_uncoded(type_.value_type)))
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_uncoded(field.type)) for field in type_.fields])
    return type_


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
    """Write rows as part files, one for each combination of partition values; none if there are no rows."""
    partition_by = list(target.table.partition_by)
    if not rows.num_rows:
        return []
    if not partition_by:
        return [write_part(target, rows, name)]
    distinct = [pc.unique(rows[column]).to_pylist() for column in partition_by]
    if all(len(values) == 1 for values in distinct):
        return [write_part(target, rows, name, dict(zip(partition_by, chain.from_iterable(distinct), strict=True)))]
    written = []
    for values in rows.group_by(partition_by).aggregate([]).to_pylist():
        mask = None
        for column, value in values.items():
            same = pc.is_null(rows[column]) if value is None else pc.fill_null(pc.equal(rows[column], value), False)
            mask = same if mask is None else pc.and_(mask, same)
        written.append(write_part(target, rows.filter(mask), name, values))
    return written


class _Statistics:
    """Minimum, maximum and null count of some columns, over all rows of a file. The Parquet writer provides the
    bounds of numbers and times."""

    def __init__(self, table: Table) -> None:
        self._names = statistics_columns(table)
        types = [arrow_schema(table).field(name).type for name in self._names]
        self._others = [name for name, type_ in zip(self._names, types, strict=True) if not is_packed(type_)]
        self._times = {name for name, type_ in zip(self._names, types, strict=True) if pa.types.is_timestamp(type_)}
        self._minimum: dict[str, Any] = {}
        self._maximum: dict[str, Any] = {}
        self._null_count = dict.fromkeys(self._names, 0)

    def add(self, rows: pa.Table) -> None:
        for name in self._names:
            self._null_count[name] += rows.column(name).null_count
        for name in self._others:
            column = rows.column(name)
            if pa.types.is_dictionary(column.type):
                # bounds of the dictionary are bounds of its rows too
                column = pa.chunked_array([chunk.dictionary for chunk in column.chunks], column.type.value_type)
            bounds = pc.min_max(column)
            if bounds["min"].is_valid:
                low, high = bounds["min"].as_py(), bounds["max"].as_py()
                if not (isinstance(low, float) and (isnan(low) or isnan(high))):
                    self._minimum[name] = min(self._minimum.get(name, low), low)
                    self._maximum[name] = max(self._maximum.get(name, high), high)

    def to_json(self, row_count: int, bounds_of_numbers: Mapping[str, tuple[int, int]]) -> str:
        minimum, maximum = dict(self._minimum), dict(self._maximum)
        for name in self._names:
            if name in bounds_of_numbers:
                low, high = bounds_of_numbers[name]
                is_time = name in self._times
                minimum[name], maximum[name] = (_moment(low), _moment(high)) if is_time else (low, high)
        return json.dumps(
            {
                "numRecords": row_count,
                "minValues": {
                    # a long string is truncated, which makes it less
                    name: _statistic(value[:STATISTICS_TEXT_MAX] if isinstance(value, str) else value)
                    for name, value in minimum.items()
                },
                "maxValues": {name: _statistic(_upper_bound(value)) for name, value in maximum.items()},
                "nullCount": self._null_count,
            },
            ensure_ascii=False,  # arrow-rs misreads the escapes of some characters outside the basic multilingual plane
        )


def _moment(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


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


def _is_type_of(type_: pa.DataType, declared: pa.DataType) -> bool:
    """Is it the declared type, with or without dictionary encoding at any level?"""
    if pa.types.is_dictionary(type_):
        return bool(type_.value_type == declared)
    if pa.types.is_list(type_) and pa.types.is_list(declared):
        return _is_type_of(type_.value_type, declared.value_type)
    if pa.types.is_struct(type_) and pa.types.is_struct(declared):
        names = [[field.name for field in of.fields] for of in (type_, declared)]
        pairs = zip(type_.fields, declared.fields, strict=False)
        return names[0] == names[1] and all(_is_type_of(field.type, other.type) for field, other in pairs)
    return bool(type_ == declared)
