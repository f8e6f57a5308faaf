"""Reading silver by log partition, for tasks: the rows of some log partitions, without Spark.

A log partition is the unit of work here as in replay: all rows of a group are of one. Row groups whose statistics say
that they hold none of the wanted log partitions are not read.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coordinator_core.history.rows import AssignmentRow, EventRow, GenerationRow, MemberRow
from coordinator_core.inference.life import NONE_MS, GroupCommits, GroupLife
from coordinator_core.log.chunk import I64
from coordinator_core.offsets.lane import CHANGES, OUTCOMES
from jobs.arrow_schemas import TIMESTAMP_TYPE, arrow_schema, stored_column
from jobs.sinks import TableFile, Warehouse, filesystem_of
from schemas.tables.declare import Table
from schemas.tables.silver import (
    GROUP_EVENTS,
    GROUP_GENERATIONS,
    GROUP_MEMBERS,
    MEMBER_ASSIGNMENTS,
    OFFSET_COMMITS,
)

LOG_PARTITION: Final = "log_partition"

Row = TypeVar("Row", bound=NamedTuple)

COMMIT_COLUMNS: Final = (
    "group_id",
    "topic",
    "partition",
    "log_offset",
    "recorded_at",
    "applied_log_offset",
    "applied_at",
    "committed_offset",
    "previous_offset",
    "outcome",
    "change",
    "is_transactional",
)


class SilverFiles:
    """The files of some silver tables, of one cluster. Small and picklable: it goes to every task."""

    def __init__(self, files: Mapping[str, tuple[TableFile, ...]]) -> None:
        self._files = dict(files)

    @classmethod
    def of(cls, warehouse: Warehouse, tables: Iterable[Table], cluster_id: str) -> "SilverFiles":
        """The newest version's."""
        return cls(
            {
                table.full_name: tuple(
                    file for file in warehouse.files(table) if file.partition_values["cluster_id"] == cluster_id
                )
                for table in tables
            }
        )

    def read(self, table: Table, columns: Sequence[str], log_partition: int) -> pa.Table:
        """The rows of one log partition, in no order."""
        parts = list(self.iterate(table, columns, log_partition))
        schema = pa.schema([arrow_schema(table).field(name).remove_metadata() for name in columns])
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def scan(self, table: Table, columns: Sequence[str]) -> pa.Table:
        """Some columns of all rows, in no order; for small tables, and those without log partitions."""
        parts = []
        for file in self._files[table.full_name]:
            filesystem, path = filesystem_of(file.path)
            with filesystem.open_input_file(path) as source:
                rows = pq.ParquetFile(source).read(columns=list(columns), use_threads=False)
                parts.append(_typed(rows, table, columns))
        schema = pa.schema([arrow_schema(table).field(name).remove_metadata() for name in columns])
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def iterate(self, table: Table, columns: Sequence[str], log_partition: int) -> Iterator[pa.Table]:
        """As `read`, row group by row group."""
        stored = [*columns, *([] if LOG_PARTITION in columns else [LOG_PARTITION])]
        for file in self._files[table.full_name]:
            filesystem, path = filesystem_of(file.path)
            with filesystem.open_input_file(path) as source:
                parquet = pq.ParquetFile(source)
                for index in _row_groups(parquet.metadata, log_partition):
                    rows = parquet.read_row_group(index, columns=stored, use_threads=False)
                    place = rows[LOG_PARTITION]
                    if pc.min_max(place).as_py() != {"min": log_partition, "max": log_partition}:
                        rows = rows.filter(pc.equal(place, log_partition))
                    if rows.num_rows:
                        yield _typed(rows, table, columns)


def _row_groups(metadata: Any, log_partition: int) -> Iterator[int]:
    """Row groups which may hold rows of the log partition."""
    column = metadata.schema.to_arrow_schema().get_field_index(LOG_PARTITION)
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        if group.num_rows == 0:
            continue
        statistics = group.column(column).statistics
        if statistics is None or not statistics.has_min_max or statistics.min <= log_partition <= statistics.max:
            yield index


def _typed(rows: pa.Table, table: Table, columns: Sequence[str]) -> pa.Table:
    """Columns as declared: files of other writers and of older versions may have other types, or lack some."""
    schema = pa.schema([arrow_schema(table).field(name).remove_metadata() for name in columns])
    return pa.Table.from_arrays([stored_column(rows, field) for field in schema], schema=schema)


def group_lives(files: SilverFiles, log_partition: int) -> Iterator[GroupLife]:
    """All groups of one log partition of `__consumer_offsets`, by group id."""
    generations = _by_group(files, GROUP_GENERATIONS, GenerationRow, log_partition)
    members = _by_group(files, GROUP_MEMBERS, MemberRow, log_partition)
    assignments = _by_group(files, MEMBER_ASSIGNMENTS, AssignmentRow, log_partition)
    events = _by_group(files, GROUP_EVENTS, EventRow, log_partition)
    commits = _commits_by_group(files, log_partition)
    for group_id in sorted({*generations, *members, *assignments, *events, *commits}):
        yield GroupLife(
            group_id,
            log_partition,
            tuple(generations.get(group_id, ())),
            tuple(members.get(group_id, ())),
            tuple(assignments.get(group_id, ())),
            tuple(events.get(group_id, ())),
            commits.get(group_id, GroupCommits()),
        )


def _by_group(files: SilverFiles, table: Table, row_class: type[Row], log_partition: int) -> dict[str, list[Row]]:
    """Rows of a table by group id, each group's sorted by place in the log."""
    columns = row_class._fields
    rows = files.read(table, columns, log_partition)
    by_group: dict[str, list[Row]] = {}
    for row in rows_of(rows, row_class):
        by_group.setdefault(row.group_id, []).append(row)  # type: ignore[attr-defined]
    place = "log_offset" if "log_offset" in columns else "from_log_offset"
    names = (place, *(column.name for column in table.columns if column.is_key and column.name in columns))
    indices = [columns.index(name) for name in dict.fromkeys(names)]
    for group_rows in by_group.values():
        group_rows.sort(key=lambda row: tuple(_sortable(row[index]) for index in indices))
    return by_group


def _sortable(value: Any) -> tuple[bool, Any]:
    """Null before all else."""
    return (value is not None, value)


def rows_of(rows: pa.Table, row_class: type[Row]) -> Iterator[Row]:
    """Rows as the core has them: times as epoch milliseconds, lists as tuples, maps as dicts."""
    columns = [_values(rows[name]) for name in row_class._fields]
    return map(row_class._make, zip(*columns, strict=True))


def _values(column: pa.ChunkedArray) -> list[Any]:
    if column.type == TIMESTAMP_TYPE:
        return pc.divide(column.cast(pa.int64()), 1000).to_pylist()  # type: ignore[no-any-return]
    values: list[Any] = column.to_pylist()
    if pa.types.is_map(column.type):
        return [None if value is None else dict(value) for value in values]
    if pa.types.is_list(column.type):
        return [None if value is None else tuple(value) for value in values]
    return values


def _commits_by_group(files: SilverFiles, log_partition: int) -> dict[str, GroupCommits]:
    rows = files.read(OFFSET_COMMITS, COMMIT_COLUMNS, log_partition)
    if not rows.num_rows:
        return {}
    group, group_ids = codes_of(rows["group_id"])
    topic, topics = codes_of(rows["topic"])
    log_offset = numbers_of(rows["log_offset"])
    order = np.lexsort((log_offset, group))
    columns = {
        "topic": topic[order].astype(np.int32),
        "partition": numbers_of(rows["partition"])[order].astype(np.int32),
        "log_offset": log_offset[order],
        "recorded_at_ms": epoch_ms_column(rows["recorded_at"])[order],
        "applied_log_offset": numbers_of(rows["applied_log_offset"])[order],
        "applied_at_ms": epoch_ms_column(rows["applied_at"])[order],
        "committed_offset": numbers_of(rows["committed_offset"])[order],
        "previous_offset": numbers_of(rows["previous_offset"])[order],
        "outcome": indices_in(rows["outcome"], OUTCOMES)[order],
        "change": indices_in(rows["change"], CHANGES)[order],
        "is_transactional": rows["is_transactional"].fill_null(False).to_numpy()[order],
    }
    bounds = np.searchsorted(group[order], np.arange(len(group_ids) + 1))
    return {
        group_id: GroupCommits(
            tuple(topics), **{name: values[bounds[number] : bounds[number + 1]] for name, values in columns.items()}
        )
        for number, group_id in enumerate(group_ids)
    }


def codes_of(column: pa.ChunkedArray) -> tuple[Any, list[str]]:
    """Values as indices into the distinct values."""
    coded = column.dictionary_encode().combine_chunks()
    return coded.indices.to_numpy(), coded.dictionary.to_pylist()


def indices_in(column: pa.ChunkedArray, values: Sequence[str]) -> Any:
    """Values as indices into a fixed list; -1: null."""
    return pc.fill_null(pc.index_in(column, pa.array(values)), -1).to_numpy().astype(np.int8)


def numbers_of(column: pa.ChunkedArray) -> I64:
    """Whole numbers; -1: null."""
    return pc.fill_null(column, -1).to_numpy().astype(np.int64, copy=False)  # type: ignore[no-any-return]


def epoch_ms_column(column: pa.ChunkedArray) -> I64:
    """Times as epoch milliseconds; -1: null."""
    micros = pc.fill_null(column.cast(pa.int64()), NONE_MS * 1000).to_numpy()
    return micros // 1000  # type: ignore[no-any-return]
