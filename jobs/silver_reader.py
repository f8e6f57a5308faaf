"""Reading silver by log partition, for tasks: the rows of some log partitions, without Spark.

A log partition is the unit of work here as in replay: all rows of a group are of one. Row groups whose statistics say
that they hold none of the wanted log partitions are not read.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coordinator_core.history.rows import AssignmentRow, EventRow, GenerationRow, MemberRow
from coordinator_core.inference.life import GroupCommits, GroupLife
from coordinator_core.inference.ordering import ordered_by
from coordinator_core.log.chunk import I64
from coordinator_core.offsets.lane import CHANGES, OUTCOMES
from jobs.arrow_columns import (
    CODED,
    as_read,
    codes_of,
    columns_read,
    epoch_ms_column,
    indices_in,
    numbers_of,
    ordered_codes,
    small_numbers_of,
)
from jobs.arrow_schemas import TIMESTAMP_TYPE, arrow_schema
from jobs.runs import WholeRun
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
LOG_OFFSET: Final = "log_offset"

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
COMMIT_TEXTS: Final = ("group_id", "topic", "outcome", "change")


class _Footer(NamedTuple):
    """What the end of a file tells, read once."""

    metadata: pq.FileMetaData
    bounds: tuple[tuple[int, int] | None, ...]
    """Lowest and highest log partition of each row group; None where the file does not say."""
    last_offsets: tuple[int | None, ...]
    """Highest log offset of each row group; None where the file does not say."""


class SilverFiles:
    """The files of some silver tables, of one cluster. Small and picklable: it goes to every task."""

    def __init__(self, files: Mapping[str, tuple[TableFile, ...]]) -> None:
        self._files = dict(files)
        self._footers: dict[str, _Footer] = {}

    def __getstate__(self) -> dict[str, tuple[TableFile, ...]]:
        return self._files

    def __setstate__(self, files: dict[str, tuple[TableFile, ...]]) -> None:
        self._files = files
        self._footers = {}

    @classmethod
    def of(cls, warehouse: Warehouse, tables: Iterable[Table], cluster_id: str) -> "SilverFiles":
        """As the newest whole run of replay left them."""
        whole = WholeRun.newest(warehouse, cluster_id)
        return cls({table.full_name: whole.files(table) for table in tables})

    def read(
        self,
        table: Table,
        columns: Sequence[str],
        log_partition: int,
        coded: Collection[str] = (),
        *,
        from_log_offset: int = 0,
    ) -> pa.Table:
        """The rows of one log partition, in no order. Of the columns, those of `coded` are of the type `CODED`.

        `from_log_offset`: rows whose `log_offset` is lower are left out.
        """
        parts = list(self.iterate(table, columns, log_partition, coded, from_log_offset=from_log_offset))
        return pa.concat_tables(parts) if parts else columns_read(table, columns, coded).empty_table()

    def scan(self, table: Table, columns: Sequence[str], coded: Collection[str] = ()) -> pa.Table:
        """Some columns of all rows, in no order; for small tables, and those without log partitions."""
        schema = columns_read(table, columns, coded)
        parts = []
        for file in self._files[table.full_name]:
            filesystem, path = filesystem_of(file.path)
            with filesystem.open_input_file(path) as source:
                rows = pq.ParquetFile(source, read_dictionary=coded).read(columns=list(columns), use_threads=False)
                parts.append(as_read(rows, schema))
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def iterate(
        self,
        table: Table,
        columns: Sequence[str],
        log_partition: int,
        coded: Collection[str] = (),
        *,
        from_log_offset: int = 0,
    ) -> Iterator[pa.Table]:
        """As `read`, row group by row group."""
        schema = columns_read(table, columns, coded)
        for file in self._files[table.full_name]:
            if from_log_offset and file.maximum.get(LOG_OFFSET, from_log_offset) < from_log_offset:
                continue
            footer = self._footer(file)
            wanted = [
                index
                for index, (bounds, last_offset) in enumerate(zip(footer.bounds, footer.last_offsets, strict=True))
                if (bounds is None or bounds[0] <= log_partition <= bounds[1])
                and (last_offset is None or last_offset >= from_log_offset)
            ]
            if not wanted:
                continue
            filesystem, path = filesystem_of(file.path)
            with filesystem.open_input_file(path) as source:
                parquet = pq.ParquetFile(source, metadata=footer.metadata, read_dictionary=coded)
                for index in wanted:
                    rows = _rows_of(parquet, index, columns, log_partition, footer.bounds[index])
                    if from_log_offset:
                        rows = rows.filter(pc.greater_equal(rows[LOG_OFFSET], from_log_offset))
                    if rows.num_rows:
                        yield as_read(rows, schema)

    def _footer(self, file: TableFile) -> _Footer:
        footer = self._footers.get(file.path)
        if footer is None:
            filesystem, path = filesystem_of(file.path)
            with filesystem.open_input_file(path) as source:
                metadata = pq.read_metadata(source)
            footer = self._footers[file.path] = _Footer(
                metadata, tuple(_bounds(metadata)), tuple(_last_offsets(metadata))
            )
        return footer


def _bounds(metadata: pq.FileMetaData) -> Iterator[tuple[int, int] | None]:
    """`_Footer.bounds`. Row groups without rows hold no log partition."""
    column = metadata.schema.to_arrow_schema().get_field_index(LOG_PARTITION)
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        statistics = group.column(column).statistics if group.num_rows else None
        if not group.num_rows:
            yield 0, -1
        else:
            yield (statistics.min, statistics.max) if statistics is not None and statistics.has_min_max else None


def _last_offsets(metadata: pq.FileMetaData) -> Iterator[int | None]:
    """`_Footer.last_offsets`."""
    column = metadata.schema.to_arrow_schema().get_field_index(LOG_OFFSET)
    for index in range(metadata.num_row_groups):
        statistics = metadata.row_group(index).column(column).statistics if column >= 0 else None
        yield statistics.max if statistics is not None and statistics.has_min_max else None


def _rows_of(
    parquet: pq.ParquetFile, index: int, columns: Sequence[str], log_partition: int, bounds: tuple[int, int] | None
) -> pa.Table:
    """The rows of one log partition in a row group."""
    if bounds == (log_partition, log_partition):
        return parquet.read_row_group(index, columns=list(columns), use_threads=False)
    stored = [*columns, *([] if LOG_PARTITION in columns else [LOG_PARTITION])]
    rows = parquet.read_row_group(index, columns=stored, use_threads=False)
    return rows.filter(pc.equal(rows[LOG_PARTITION], log_partition))


def group_lives(files: SilverFiles, log_partition: int, only: Set[str] | None = None) -> Iterator[GroupLife]:
    """All groups of one log partition of `__consumer_offsets`, or `only` some, by group id."""
    if only is not None and not only:
        return
    generations = _by_group(files, GROUP_GENERATIONS, GenerationRow, log_partition, only)
    members = _by_group(files, GROUP_MEMBERS, MemberRow, log_partition, only)
    assignments = _by_group(files, MEMBER_ASSIGNMENTS, AssignmentRow, log_partition, only)
    events = _by_group(files, GROUP_EVENTS, EventRow, log_partition, only)
    commits = _commits_by_group(files, log_partition, only)
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


def _by_group(
    files: SilverFiles, table: Table, row_class: type[Row], log_partition: int, only: Set[str] | None
) -> dict[str, list[Row]]:
    """Rows of a table by group id, each group's sorted by place in the log, then by the table's key."""
    columns = row_class._fields
    declared = arrow_schema(table)
    texts = [name for name in columns if pa.types.is_string(declared.field(name).type)]
    rows = _only(files.iterate(table, columns, log_partition, texts), columns_read(table, columns, texts), only)
    if not rows.num_rows:
        return {}
    place = "log_offset" if "log_offset" in columns else "from_log_offset"
    key = [column.name for column in table.columns if column.is_key and column.name in columns]
    names = dict.fromkeys(("group_id", place, *key))
    group, group_ids = ordered_codes(rows["group_id"])
    order = np.lexsort([_sortable(rows[name]) for name in names][::-1])
    bounds = np.searchsorted(group[order], np.arange(len(group_ids) + 1)).tolist()
    found = list(rows_of(rows, row_class, order))
    return {group_id: found[bounds[code] : bounds[code + 1]] for code, group_id in enumerate(group_ids)}


def _sortable(column: pa.ChunkedArray) -> I64:
    """Numbers in the order of the values, null before all else; whole numbers of keys are not negative."""
    if column.type != CODED:
        return numbers_of(column)
    codes, _ = ordered_codes(column)
    return codes


def rows_of(rows: pa.Table, row_class: type[Row], order: I64 | None = None) -> Iterator[Row]:
    """Rows as the core has them: times as epoch milliseconds, lists as tuples, maps as dicts.

    `order`: indices of the rows, where they are wanted in another order than their own.
    """
    columns = [_values(rows[name], order) for name in row_class._fields]
    return map(row_class._make, zip(*columns, strict=True))


def _values(column: pa.ChunkedArray, order: I64 | None) -> list[Any]:
    """Python's values, in order. One object a distinct text: what compares texts finds them the same at once."""
    if column.type == CODED:
        codes, texts = codes_of(column)
        values = np.array([*texts, None], object)[codes]
    elif pa.types.is_integer(column.type) or column.type == TIMESTAMP_TYPE:
        values = _whole_numbers(column)
    else:
        values = np.fromiter(chain.from_iterable(map(_plain, column.chunks)), object, len(column))
    return (values if order is None else values[order]).tolist()  # type: ignore[no-any-return]


def _whole_numbers(column: pa.ChunkedArray) -> Any:
    """Numbers, None for null; of times the epoch milliseconds."""
    numbers = numbers_of(column.cast(pa.int64()) if column.type == TIMESTAMP_TYPE else column)
    if column.type == TIMESTAMP_TYPE:
        numbers = numbers // 1000
    if not column.null_count:
        return numbers
    values = numbers.astype(object)
    values[column.is_null().to_numpy()] = None
    return values


def _plain(column: pa.Array) -> list[Any]:
    """Python's values, one by one only where nothing is quicker."""
    is_map = pa.types.is_map(column.type)
    if not is_map and not pa.types.is_list(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    inner = zip(column.keys.to_pylist(), column.items.to_pylist(), strict=True) if is_map else column.values.to_pylist()
    make, values = (dict if is_map else tuple), list(inner)
    stretches = zip(column.is_valid().to_pylist(), pairwise(column.offsets.to_pylist()), strict=True)
    return [make(values[begin:end]) if is_there else None for is_there, (begin, end) in stretches]


def _only(parts: Iterable[pa.Table], schema: pa.Schema, only: Set[str] | None) -> pa.Table:
    """Rows of some groups, filtered part by part."""
    if only is None:
        kept = list(parts)
    else:
        wanted = pa.array(sorted(only), pa.string())
        kept = [rows.filter(pc.is_in(rows["group_id"].cast(pa.string()), value_set=wanted)) for rows in parts]
    return pa.concat_tables(kept) if kept else schema.empty_table()


def new_commits(
    files: SilverFiles, log_partition: int, from_log_offset: int
) -> tuple[GroupCommits, I64, Sequence[str]]:
    """Commits of all groups of one log partition from a place in the log on, and the group of each: an index into
    the ids."""
    rows = files.read(OFFSET_COMMITS, COMMIT_COLUMNS, log_partition, COMMIT_TEXTS, from_log_offset=from_log_offset)
    group, group_ids = codes_of(rows["group_id"])
    return _commit_columns(rows, np.arange(rows.num_rows)), group, group_ids


def _commits_by_group(files: SilverFiles, log_partition: int, only: Set[str] | None) -> dict[str, GroupCommits]:
    parts = files.iterate(OFFSET_COMMITS, COMMIT_COLUMNS, log_partition, COMMIT_TEXTS)
    rows = _only(parts, columns_read(OFFSET_COMMITS, COMMIT_COLUMNS, COMMIT_TEXTS), only)
    if not rows.num_rows:
        return {}
    group, group_ids = codes_of(rows["group_id"])
    # filtered rows keep the texts of all
    ends = np.cumsum(np.bincount(group, minlength=len(group_ids))).tolist()
    every = _commit_columns(rows, ordered_by(group, len(group_ids), numbers_of(rows["log_offset"])))
    columns = {name: getattr(every, name) for name in GroupCommits.__slots__ if name != "topics"}
    return {
        group_id: GroupCommits(every.topics, **{name: values[begin:end] for name, values in columns.items()})
        for group_id, begin, end in zip(group_ids, [0, *ends[:-1]], ends, strict=True)
        if end > begin
    }


def _commit_columns(rows: pa.Table, order: I64) -> GroupCommits:
    topic, topics = codes_of(rows["topic"])
    return GroupCommits(
        topics=tuple(topics),
        topic=topic.astype(np.int32)[order],
        partition=small_numbers_of(rows["partition"])[order],
        log_offset=numbers_of(rows["log_offset"])[order],
        recorded_at_ms=epoch_ms_column(rows["recorded_at"])[order],
        applied_log_offset=numbers_of(rows["applied_log_offset"])[order],
        applied_at_ms=epoch_ms_column(rows["applied_at"])[order],
        committed_offset=numbers_of(rows["committed_offset"])[order],
        previous_offset=numbers_of(rows["previous_offset"])[order],
        outcome=indices_in(rows["outcome"], OUTCOMES)[order],
        change=indices_in(rows["change"], CHANGES)[order],
        is_transactional=rows["is_transactional"].fill_null(False).to_numpy()[order],
    )
