"""Reading silver by log partition, for tasks: the rows of some log partitions, without Spark.

A log partition is the unit of work here as in replay: all rows of a group are of one. Row groups whose statistics say
that they hold none of the wanted log partitions are not read.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import compress, pairwise
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coordinator_core.history.rows import AssignmentRow, EventRow, GenerationRow, MemberRow
from coordinator_core.inference.columns import distinct
from coordinator_core.inference.days import UNKNOWN_TYPE
from coordinator_core.inference.group_past import GroupedCommits
from coordinator_core.inference.life import NO_EXPIRY, GroupCommits, GroupLife
from coordinator_core.inference.ordering import is_ascending, ordered_by
from coordinator_core.inference.plain import BEGINNING_EVENTS, Beginning
from coordinator_core.inference.settled import Settled
from coordinator_core.key_buckets import KeyBucket
from coordinator_core.log.chunk import I32, I64, BoolArray
from coordinator_core.offsets.lane import CHANGES, OUTCOMES
from jobs.delta.arrow_columns import (
    CODED,
    as_read,
    codes_of,
    columns_read,
    epoch_ms_column,
    indices_in,
    numbers_of,
    ordered_codes,
    small_numbers_of,
    together,
    values_of,
)
from jobs.delta.arrow_schemas import text_columns
from jobs.delta.filesystems import filesystem_of
from jobs.delta.part_files import LOG_PARTITION, TO_LOG_OFFSET
from jobs.delta.replay_runs import WholeRun
from jobs.delta.warehouse import TableFile, Warehouse
from jobs.spark.worker_memory import give_back
from schemas.tables.declare import Table
from schemas.tables.silver import (
    GROUP_EVENTS,
    GROUP_GENERATIONS,
    GROUP_MEMBERS,
    MEMBER_ASSIGNMENTS,
    OFFSET_COMMITS,
)

LOG_OFFSET: Final = "log_offset"
END_OF_LOG: Final = 2**63 - 1
"""Behind every log offset."""
SHARED_BYTES_MAX: Final = 64 << 20
"""Of row groups with rows of several log partitions that a task keeps from one to the next."""
GROUPS_BYTES_MAX: Final = 16 << 20
"""The same of what tells of which groups their rows are."""
TEXT_BYTES: Final = 100
"""About as much memory does a text take with its number."""

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
    "expire_time",
)
COMMIT_TEXTS: Final = ("group_id", "topic", "outcome", "change")


class _Footer(NamedTuple):
    """What the end of a file tells, read once."""

    metadata: pq.FileMetaData
    row_counts: tuple[int, ...]
    """Of each row group."""
    bounds: tuple[tuple[int, int] | None, ...]
    """Lowest and highest log partition of each row group; None where the file does not say."""
    log_offsets: tuple[tuple[int, int] | None, ...]
    """Lowest and highest log offset of each row group; None where the file does not say."""
    ends: tuple[tuple[int, int] | None, ...]
    """The same of where rows ended; None, too, where some are open."""

    def wanted(self, log_partition: int, from_log_offset: int, to_log_offset: int, ended_after: int = -1) -> list[int]:
        """The row groups that may hold rows of a log partition whose `log_offset` is within bounds, and that did not
        end until a place in the log."""
        return [
            index
            for index, (bounds, offsets, ends) in enumerate(zip(self.bounds, self.log_offsets, self.ends, strict=True))
            if (bounds is None or bounds[0] <= log_partition <= bounds[1])
            and (offsets is None or (offsets[1] >= from_log_offset and offsets[0] < to_log_offset))
            and (ends is None or ends[1] > ended_after)
        ]


class SilverFiles:
    """The files of some silver tables, of one cluster. Small and picklable: it goes to every task."""

    def __init__(self, files: Mapping[str, tuple[TableFile, ...]]) -> None:
        self._files = dict(files)
        self._forget()

    def _forget(self) -> None:
        """Nothing was read so far."""
        self._footers: dict[str, _Footer] = {}
        self._shared: _Newest[_SharedRows] = _Newest(SHARED_BYTES_MAX)
        self._groups: _Newest[_SharedGroups] = _Newest(GROUPS_BYTES_MAX)

    def __getstate__(self) -> dict[str, tuple[TableFile, ...]]:
        return self._files

    def __setstate__(self, files: dict[str, tuple[TableFile, ...]]) -> None:
        self._files = files
        self._forget()

    @classmethod
    def of(cls, warehouse: Warehouse, tables: Iterable[Table], cluster_id: str) -> "SilverFiles":
        """As the newest whole run of replay left them."""
        whole = WholeRun.newest(warehouse, cluster_id)
        return cls({table.full_name: whole.files(table) for table in tables})

    def having(self, table: Table, column: str, value: str) -> Self:
        """The same, but for files of one table whose rows all have another value."""

        def may_have(file: TableFile) -> bool:
            return bool(file.minimum.get(column, value) <= value <= file.maximum.get(column, value))

        of_table = tuple(filter(may_have, self._files.get(table.full_name, ())))
        return type(self)({**self._files, table.full_name: of_table})

    def of_bucket(self, tables: Iterable[Table], log_partition: int, bucket: KeyBucket) -> tuple[Self, Set[str] | None]:
        """The same, without those files of some tables that have no groups of a bucket in a log partition; and its
        groups that they have, None where these are all groups that they have. A replay in buckets leaves files of the
        groups of one."""
        own: set[str] = set()
        others: set[str] = set()
        kept = dict(self._files)
        for table in tables:
            of_table = []
            for file in self._files.get(table.full_name, ()):
                found = type(self)({table.full_name: (file,)}).group_ids(table, log_partition)
                has = bucket.has_groups(found).tolist()
                if any(has):
                    of_table.append(file)
                    own.update(compress(found, has))
                    others.update(found)
            kept[table.full_name] = tuple(of_table)
        return type(self)(kept), None if own and own == others else own

    def group_ids(self, table: Table, log_partition: int, *, from_log_offset: int = 0) -> list[str]:
        """The groups of a log partition of which a table has rows, from a place in the log on, in order."""
        found: set[str] = set()
        columns = ["group_id", LOG_OFFSET] if from_log_offset else ["group_id"]
        for rows in self.iterate(table, columns, log_partition, ["group_id"], from_log_offset=from_log_offset):
            group, texts = codes_of(rows["group_id"])
            # filtered rows keep the texts of all
            present = np.flatnonzero(np.bincount(group, minlength=len(texts)))
            found.update(texts[code] for code in present.tolist())
        return sorted(found)

    def read(
        self,
        table: Table,
        columns: Sequence[str],
        log_partition: int,
        coded: Collection[str] = (),
        *,
        from_log_offset: int = 0,
        to_log_offset: int = END_OF_LOG,
    ) -> pa.Table:
        """The rows of one log partition, in no order. Of the columns, those of `coded` are of the type `CODED`.

        Rows whose `log_offset` is less than `from_log_offset`, or not less than `to_log_offset`, are left out.
        """
        parts = list(
            self.iterate(
                table, columns, log_partition, coded, from_log_offset=from_log_offset, to_log_offset=to_log_offset
            )
        )
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

    def row_count_max(self, table: Table, log_partition: int, *, from_log_offset: int = 0) -> int:
        """The most rows that one log partition can have from a place on, as the ends of the files tell."""
        return sum(
            footer.row_counts[index]
            for file in self._files[table.full_name]
            if file.maximum.get(LOG_OFFSET, from_log_offset) >= from_log_offset
            for footer in (self._footer(file),)
            for index in footer.wanted(log_partition, from_log_offset, END_OF_LOG)
        )

    def iterate(
        self,
        table: Table,
        columns: Sequence[str],
        log_partition: int,
        coded: Collection[str] = (),
        *,
        from_log_offset: int = 0,
        to_log_offset: int = END_OF_LOG,
        ended_after: int = -1,
        only: Set[str] | None = None,
        settled: "SettledGroups | None" = None,
    ) -> Iterator[pa.Table]:
        """As `read`, row group by row group. `only`: of some groups, and of those that are `settled` what is needed;
        of other row groups no more is read than tells so. Row groups of which all rows ended up to `ended_after` are
        left out."""
        schema = columns_read(table, columns, coded)
        for source, index in self._row_groups(
            table,
            log_partition,
            coded,
            from_log_offset=from_log_offset,
            to_log_offset=to_log_offset,
            ended_after=ended_after,
        ):
            is_needed = None
            if only is not None:
                is_needed = self._groups_of(source, index, table).needed(
                    log_partition, only, settled or NOTHING_SETTLED
                )
                if not is_needed.any():
                    continue
            rows = self._rows_of(source, index, schema, log_partition)
            if is_needed is not None and not is_needed.all():
                rows = rows.filter(pa.array(is_needed))
            lowest, highest = source.footer.log_offsets[index] or (0, END_OF_LOG)
            if lowest < from_log_offset:
                rows = rows.filter(pc.greater_equal(rows[LOG_OFFSET], from_log_offset))
            if highest >= to_log_offset and to_log_offset != END_OF_LOG:
                rows = rows.filter(pc.less(rows[LOG_OFFSET], to_log_offset))
            if rows.num_rows:
                yield rows

    def needed_counts(
        self,
        table: Table,
        log_partition: int,
        only: Set[str],
        settled: "SettledGroups",
        *,
        from_log_offset: int = 0,
        ended_after: int = -1,
    ) -> Counter[str]:
        """How many rows of some groups `iterate` would give, by group; what tells so is kept for it."""
        counts: Counter[str] = Counter()
        for source, index in self._row_groups(
            table, log_partition, ("group_id",), from_log_offset=from_log_offset, ended_after=ended_after
        ):
            counts.update(self._groups_of(source, index, table).needed_counts(log_partition, only, settled))
        return counts

    def _row_groups(
        self,
        table: Table,
        log_partition: int,
        coded: Collection[str],
        *,
        from_log_offset: int,
        to_log_offset: int = END_OF_LOG,
        ended_after: int = -1,
    ) -> Iterator[tuple["_OpenFile", int]]:
        """The row groups that may hold such rows as `iterate` gives, by file and number."""
        for file in self._files.get(table.full_name, ()):
            if from_log_offset and file.maximum.get(LOG_OFFSET, from_log_offset) < from_log_offset:
                continue
            footer = self._footer(file)
            with _OpenFile(file, footer, tuple(coded)) as source:
                for index in footer.wanted(log_partition, from_log_offset, to_log_offset, ended_after):
                    yield source, index

    def iterate_some(
        self, table: Table, columns: Sequence[str], log_partitions: Collection[int], coded: Collection[str] = ()
    ) -> Iterator[pa.Table]:
        """The rows of some log partitions, row group by row group. `columns`: LOG_PARTITION among them."""
        schema = columns_read(table, columns, coded)
        wanted_of = np.array(sorted(log_partitions), np.int64)
        for file in self._files.get(table.full_name, ()):
            footer = self._footer(file)
            with _OpenFile(file, footer, tuple(coded)) as source:
                for index, bounds in enumerate(footer.bounds):
                    if bounds is not None and not ((wanted_of >= bounds[0]) & (wanted_of <= bounds[1])).any():
                        continue
                    shared = self._shared.get(_place(source, index, schema))
                    rows = (
                        as_read(source.read_row_group(index, schema.names), schema) if shared is None else shared.rows
                    )
                    is_wanted = np.isin(numbers_of(rows[LOG_PARTITION]), wanted_of)
                    yield rows if is_wanted.all() else rows.filter(pa.array(is_wanted))

    def _groups_of(self, source: "_OpenFile", index: int, table: Table) -> "_SharedGroups":
        """What tells which rows of a row group are needed is a small part of it; it is kept as rows are."""
        place = source.path, index
        groups = self._groups.get(place)
        if groups is None:
            schema = columns_read(table, ("group_id", _place_column(table), LOG_PARTITION), source.coded)
            groups = _SharedGroups(table, as_read(source.read_row_group(index, schema.names), schema))
            self._groups.put(place, groups)
        return groups

    def _rows_of(self, source: "_OpenFile", index: int, schema: pa.Schema, log_partition: int) -> pa.Table:
        """The rows of one log partition in a row group. Those of others are next: what several share is kept."""
        if source.footer.bounds[index] == (log_partition, log_partition):
            return as_read(source.read_row_group(index, schema.names), schema)
        place = _place(source, index, schema)
        shared = self._shared.get(place)
        if shared is None:
            rows = source.read_row_group(index, list(dict.fromkeys((*schema.names, LOG_PARTITION))))
            shared = _SharedRows(as_read(rows, schema), numbers_of(rows[LOG_PARTITION]))
            self._shared.put(place, shared)
        return shared.of(log_partition)

    def _footer(self, file: TableFile) -> _Footer:
        footer = self._footers.get(file.path)
        if footer is None:
            filesystem, path = filesystem_of(file.path)
            with filesystem.open_input_file(path) as source:
                metadata = pq.read_metadata(source)
            footer = self._footers[file.path] = _Footer(
                metadata,
                tuple(metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)),
                tuple(_bounds(metadata)),
                tuple(_extremes(metadata, LOG_OFFSET)),
                tuple(_extremes(metadata, TO_LOG_OFFSET)),
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


def _extremes(metadata: pq.FileMetaData, name: str) -> Iterator[tuple[int, int] | None]:
    """Lowest and highest number of a column in each row group; None where a row may have none, or nothing tells it."""
    column = metadata.schema.to_arrow_schema().get_field_index(name)
    for index in range(metadata.num_row_groups):
        statistics = metadata.row_group(index).column(column).statistics if column >= 0 else None
        if statistics is not None and statistics.has_min_max and statistics.null_count == 0:
            yield statistics.min, statistics.max
        else:
            yield None


class _OpenFile:
    """A file, opened when it is first read. Use as a context manager."""

    def __init__(self, file: TableFile, footer: _Footer, coded: tuple[str, ...]) -> None:
        self.path = file.path
        self.footer = footer
        self.coded = coded
        self._source: pa.NativeFile | None = None
        self._parquet: pq.ParquetFile | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._source is not None:
            self._source.close()

    def read_row_group(self, index: int, columns: list[str]) -> pa.Table:
        """Some columns of a row group, those of `coded` as they are stored."""
        if self._parquet is None:
            filesystem, path = filesystem_of(self.path)
            self._source = filesystem.open_input_file(path)
            metadata = self.footer.metadata
            self._parquet = pq.ParquetFile(self._source, metadata=metadata, read_dictionary=self.coded)
        return self._parquet.read_row_group(index, columns=columns, use_threads=False)


SharedPlace = tuple[str, int, tuple[str, ...], tuple[str, ...]]
"""Path of a file, number of a row group, columns, those of them that are coded."""


def _place(source: _OpenFile, index: int, schema: pa.Schema) -> SharedPlace:
    return source.path, index, tuple(schema.names), source.coded


class _LogPartitions:
    """Of which log partition each row of a row group is: those of one mostly stand together."""

    def __init__(self, log_partition: I64) -> None:
        self._log_partition = log_partition
        self._is_sorted = is_ascending(log_partition)

    def rows_of(self, log_partition: int) -> slice | BoolArray:
        """Which rows are of one log partition."""
        if not self._is_sorted:
            is_own: BoolArray = self._log_partition == log_partition
            return is_own
        return slice(*np.searchsorted(self._log_partition, (log_partition, log_partition + 1)).tolist())


class _SharedRows:
    """A row group of several log partitions."""

    def __init__(self, rows: pa.Table, log_partition: I64) -> None:
        self.rows = rows
        self._log_partitions = _LogPartitions(log_partition)
        self.size_bytes: int = rows.nbytes

    def of(self, log_partition: int) -> pa.Table:
        """The rows of one log partition."""
        own = self._log_partitions.rows_of(log_partition)
        if isinstance(own, slice):
            return self.rows.slice(own.start, own.stop - own.start)
        return self.rows.filter(pa.array(own))


class _SharedGroups:
    """Of which groups the rows of a row group are, and the place in the log that tells whether each is needed."""

    def __init__(self, table: Table, rows: pa.Table) -> None:
        self._table = table
        self._group, self._group_ids = codes_of(rows["group_id"])
        self._numbers = {group_id: number for number, group_id in enumerate(self._group_ids)}
        self._place = _places_of(table, rows)
        self._log_partitions = _LogPartitions(numbers_of(rows[LOG_PARTITION]))
        self.size_bytes = rows.num_rows * 3 * np.dtype(np.int64).itemsize + len(self._group_ids) * TEXT_BYTES

    def needed_counts(self, log_partition: int, group_ids: Set[str], settled: "SettledGroups") -> dict[str, int]:
        """How many rows of a log partition are needed of each of some groups."""
        is_needed = self.needed(log_partition, group_ids, settled)
        if not is_needed.any():
            return {}
        counts = np.bincount(self._group[self._log_partitions.rows_of(log_partition)][is_needed])
        return {self._group_ids[number]: int(counts[number]) for number in np.flatnonzero(counts).tolist()}

    def needed(self, log_partition: int, group_ids: Set[str], settled: "SettledGroups") -> BoolArray:
        """Which rows of a log partition are needed of some groups."""
        own = self._log_partitions.rows_of(log_partition)
        group, place = self._group[own], self._place[own]
        if not len(group):
            return np.zeros(0, np.bool_)
        after = np.full(len(self._numbers), END_OF_LOG)
        for group_id in group_ids & self._numbers.keys():
            after[self._numbers[group_id]] = _needed_after(self._table, settled.get(group_id))
        is_needed: BoolArray = place > after[group]
        return is_needed


class _Sized(Protocol):
    size_bytes: int


Kept = TypeVar("Kept", bound=_Sized)


class _Newest(Generic[Kept]):
    """What was read for one log partition and tells of others, too: the newest, of so many bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._found: dict[Hashable, Kept] = {}
        self._size_bytes = 0

    def get(self, place: Hashable) -> Kept | None:
        """One that is kept, if it is; it is the newest then."""
        found = self._found.pop(place, None)
        if found is not None:
            self._found[place] = found
        return found

    def put(self, place: Hashable, one: Kept) -> None:
        """Keep one, and let go of the oldest for it; a large one is not kept."""
        if one.size_bytes > self._bytes_max // 4:
            return
        self._found[place] = one
        self._size_bytes += one.size_bytes
        while self._size_bytes > self._bytes_max:
            oldest = next(iter(self._found))
            self._size_bytes -= self._found.pop(oldest).size_bytes


class NeededFrom(NamedTuple):
    """Places in the log which tell what of a group is needed, as those of `Settled` do."""

    generation_at: int
    """What ended there, or before, is not."""
    events_from: int
    """Events from here on are."""


OPEN_ROWS: Final = NeededFrom(END_OF_LOG - 1, END_OF_LOG)
"""How a group stands now, and no more of it."""
SettledGroups = Mapping[str, Settled | NeededFrom]
"""By group id, what of it is needed; of others all is."""
NOTHING_SETTLED: Final[SettledGroups] = {}

GROUP_ROWS: Final[Mapping[Table, type[NamedTuple]]] = {
    GROUP_GENERATIONS: GenerationRow,
    GROUP_MEMBERS: MemberRow,
    MEMBER_ASSIGNMENTS: AssignmentRow,
    GROUP_EVENTS: EventRow,
}
"""What there is of a group beside its commits."""


@dataclass(slots=True)
class GroupBundle:
    """What silver holds of some groups of one log partition of `__consumer_offsets`."""

    log_partition: int
    commits: GroupedCommits
    rows: Mapping[Table, pa.Table]
    """By the tables of `GROUP_ROWS`, in no order. `lives` lets go of both: they may be many."""

    def beginnings(self) -> dict[str, Beginning]:
        """Of groups of which there is nothing beside commits but how they began."""
        return beginnings(self.rows)

    def known(self) -> Set[str]:
        """Groups of which there are other rows than commits."""
        return {group_id for rows in self.rows.values() for group_id in groups_in(rows)}

    def lives(self, left_out: Set[str] = frozenset(), also: Set[str] = frozenset()) -> Iterator[GroupLife]:
        """Of all groups of which there are rows, by group id, but for some; and of some, be there rows or not."""
        generations = _by_group(self.rows, GROUP_GENERATIONS, GenerationRow, left_out)
        members = _by_group(self.rows, GROUP_MEMBERS, MemberRow, left_out)
        assignments = _by_group(self.rows, MEMBER_ASSIGNMENTS, AssignmentRow, left_out)
        events = _by_group(self.rows, GROUP_EVENTS, EventRow, left_out)
        commits, slices = self.commits.commits, self.commits.slices()
        self.commits, self.rows = GroupedCommits.of(()), {}
        with_commits = {group_id for group_id, rows in slices.items() if rows.start < rows.stop}
        for group_id in sorted({*generations, *members, *assignments, *events, *with_commits, *also} - left_out):
            yield GroupLife(
                group_id,
                self.log_partition,
                tuple(generations.pop(group_id, ())),
                tuple(members.pop(group_id, ())),
                tuple(assignments.pop(group_id, ())),
                tuple(events.pop(group_id, ())),
                commits.taken(slices[group_id]) if group_id in with_commits else GroupCommits(),
            )


def group_ids(files: SilverFiles, log_partition: int) -> list[str]:
    """All groups of one log partition of `__consumer_offsets`, in order."""
    return sorted({group_id for table in GROUP_WEIGHTS for group_id in files.group_ids(table, log_partition)})


def group_lives(files: SilverFiles, log_partition: int, only: Set[str] | None = None) -> Iterator[GroupLife]:
    """All groups of one log partition of `__consumer_offsets`, or `only` some, by group id."""
    for bundle in group_bundles(files, log_partition, only):
        yield from bundle.lives()


def group_bundles(
    files: SilverFiles, log_partition: int, only: Set[str] | None = None, *, from_log_offset: int = 0
) -> Iterator[GroupBundle]:
    """All groups of one log partition of `__consumer_offsets`, or `only` some.

    So many are read at a time as fit into memory; a larger one alone. `from_log_offset`: no commits were before.
    """
    if only is not None and not only:
        return
    for some in bundles(files, log_partition, only, GROUP_WEIGHTS, from_log_offset=from_log_offset):
        commits = _commits_by_group(files, log_partition, some, from_log_offset)
        rows = _group_rows(files, log_partition, some)
        yield GroupBundle(log_partition, commits, rows)
        del commits, rows  # before more is read


def bundles_with(
    files: SilverFiles, log_partition: int, only: Set[str], commits: GroupedCommits, settled: SettledGroups
) -> Iterator[tuple[Set[str], GroupBundle]]:
    """As `group_bundles`, with commits that are read already; and which of `only` each bundle is of, whether there are
    rows of them or not. Of groups that are `settled`, what is not needed is left out."""
    weights = {table: weight for table, weight in GROUP_WEIGHTS.items() if table is not OFFSET_COMMITS}
    for some in bundles(files, log_partition, only, weights, settled=settled) if only else ():
        wanted = some or set()
        rows = _group_rows(files, log_partition, some, settled)
        yield wanted, GroupBundle(log_partition, commits.of_some(wanted), rows)


def _group_rows(
    files: SilverFiles, log_partition: int, only: Set[str] | None, settled: SettledGroups = NOTHING_SETTLED
) -> Mapping[Table, pa.Table]:
    return {
        table: _rows_of_groups(files, table, row._fields, log_partition, only, settled)
        for table, row in GROUP_ROWS.items()
    }


def _needed_after(table: Table, settled: Settled | NeededFrom | None) -> int:
    """Behind which place in the log the rows of a group are needed; -1: all are."""
    if settled is None:
        return -1
    return settled.events_from - 1 if table is GROUP_EVENTS else settled.generation_at


def _places_of(table: Table, rows: pa.Table) -> I64:
    """Of each row the place in the log that tells whether it is needed; what is so still is behind all of it."""
    places = numbers_of(rows[_place_column(table)])
    return np.where(places < 0, END_OF_LOG, places)


def _events_from(table: Table, only: Set[str] | None, settled: SettledGroups) -> int:
    """From which place in the log on events of some groups are needed; 0: all are, or it is another table."""
    if table is not GROUP_EVENTS or only is None or not only <= settled.keys():
        return 0
    return min((settled[group_id].events_from for group_id in only), default=0)


def _ended_after(table: Table, only: Set[str] | None, settled: SettledGroups) -> int:
    """Of some groups no row is needed that ended until this place in the log; -1: all are, or it is another table."""
    if table in (GROUP_EVENTS, OFFSET_COMMITS) or only is None or not only <= settled.keys():
        return -1
    return min((settled[group_id].generation_at for group_id in only), default=-1)


def _place_column(table: Table) -> str:
    return LOG_OFFSET if table in (GROUP_EVENTS, OFFSET_COMMITS) else TO_LOG_OFFSET


ROW_WEIGHT: Final = 16
"""A row as Python's values takes as much memory as so many commits as columns."""
GROUP_WEIGHTS: Final = {
    GROUP_GENERATIONS: ROW_WEIGHT,
    GROUP_MEMBERS: ROW_WEIGHT,
    MEMBER_ASSIGNMENTS: ROW_WEIGHT,
    GROUP_EVENTS: ROW_WEIGHT,
    OFFSET_COMMITS: 1,
}
BUNDLE_WEIGHT_MAX: Final = 4_000_000
"""Of the groups that are read at a time: about 250 MB."""


def bundles(
    files: SilverFiles,
    log_partition: int,
    only: Set[str] | None,
    weights: Mapping[Table, int],
    *,
    from_log_offset: int = 0,
    settled: SettledGroups = NOTHING_SETTLED,
) -> Iterator[Set[str] | None]:
    """The groups in bundles, by group id; None where all are wanted and one bundle holds them.

    `weights`: of a row of each table that is to be read. `from_log_offset`: from where commits are. `settled`: which of
    `only` some do not need all of their rows.
    """
    begins = {table: from_log_offset if table is OFFSET_COMMITS else 0 for table in weights}
    if (
        sum(
            weight * files.row_count_max(table, log_partition, from_log_offset=begins[table])
            for table, weight in weights.items()
        )
        <= BUNDLE_WEIGHT_MAX
    ):
        yield only
        return
    weight_of: Counter[str] = Counter()
    for table, weight in weights.items():
        begin = max(begins[table], _events_from(table, only, settled))
        if only is None:
            counts = _row_counts(files, table, log_partition, begin)
        else:
            ended_after = _ended_after(table, only, settled)
            counts = files.needed_counts(
                table, log_partition, only, settled, from_log_offset=begin, ended_after=ended_after
            )
        weight_of.update({group_id: weight * count for group_id, count in counts.items()})
    bundle: set[str] = set()
    filled = 0
    for group_id in sorted(weight_of if only is None else only):
        if bundle and filled + weight_of[group_id] > BUNDLE_WEIGHT_MAX:
            yield bundle
            bundle, filled = set(), 0
        bundle.add(group_id)
        filled += weight_of[group_id]
    yield bundle


def _row_counts(files: SilverFiles, table: Table, log_partition: int, from_log_offset: int) -> Counter[str]:
    """The rows of each group, of all."""
    counts: Counter[str] = Counter()
    columns = ["group_id", LOG_OFFSET] if from_log_offset else ["group_id"]
    for rows in files.iterate(table, columns, log_partition, ["group_id"], from_log_offset=from_log_offset):
        group, group_ids = codes_of(rows["group_id"])
        of_groups = np.bincount(group, minlength=len(group_ids)).tolist()
        counts.update(dict(zip(group_ids, of_groups, strict=True)))
    return counts


def _rows_of_groups(
    files: SilverFiles,
    table: Table,
    columns: Sequence[str],
    log_partition: int,
    only: Set[str] | None,
    settled: SettledGroups,
) -> pa.Table:
    """Rows of a table that are needed, in no order; texts as they are stored."""
    texts = text_columns(table, columns)
    begin, ended_after = _events_from(table, only, settled), _ended_after(table, only, settled)
    pieces = files.iterate(
        table,
        columns,
        log_partition,
        texts,
        from_log_offset=begin,
        ended_after=ended_after,
        only=only,
        settled=settled,
    )
    parts = list(pieces)
    return together(parts) if parts else columns_read(table, columns, texts).empty_table()


def groups_in(rows: pa.Table) -> list[str]:
    """The groups of some rows."""
    group, group_ids = codes_of(rows["group_id"])
    # filtered rows keep the texts of all
    return [group_ids[code] for code in np.unique(group).tolist()]


def beginnings(rows: Mapping[Table, pa.Table]) -> dict[str, Beginning]:
    """Of groups of which there are no other rows than of a beginning (see `inference.plain`)."""
    generations, events = rows[GROUP_GENERATIONS], rows[GROUP_EVENTS]
    if not generations.num_rows:
        return {}
    group, group_ids = codes_of(generations["group_id"])
    is_beginning = (
        (numbers_of(generations["generation"]) == 0)
        & (numbers_of(generations["member_count"]) == 0)
        & (numbers_of(generations["to_log_offset"]) < 0)
        & (indices_in(generations["group_type"], (UNKNOWN_TYPE,)) == 0)
        & (np.bincount(group, minlength=len(group_ids))[group] == 1)
    )
    others = {group_id for table in (GROUP_MEMBERS, MEMBER_ASSIGNMENTS) for group_id in groups_in(rows[table])}
    newest_ms: dict[str, int] = {}
    created: dict[tuple[str, int], int] = {}
    """By group and time: the last place in the log where it was created then."""
    if events.num_rows:
        of_event, with_events = codes_of(events["group_id"])
        kind = indices_in(events["event_type"], BEGINNING_EVENTS)
        others.update(with_events[code] for code in np.unique(of_event[kind < 0]).tolist())
        log_offset, at_ms = numbers_of(events["log_offset"]), epoch_ms_column(events["at"])
        order = np.lexsort((numbers_of(events["event_index"]), log_offset, of_event))
        texts = [with_events[code] for code in of_event[order].tolist()]
        times = at_ms[order].tolist()
        newest_ms = dict(zip(texts, times, strict=True))
        is_created = (kind[order] == BEGINNING_EVENTS.index("GROUP_CREATED")).tolist()
        places = zip(zip(texts, times, strict=True), log_offset[order].tolist(), is_created, strict=True)
        created = {at: place for at, place, is_one in places if is_one}
    begun = np.flatnonzero(is_beginning)
    columns = (
        [group_ids[code] for code in group[begun].tolist()],
        numbers_of(generations["from_log_offset"])[begun].tolist(),
        epoch_ms_column(generations["valid_from"])[begun].tolist(),
    )
    return {
        text: Beginning(min(created.get((text, ms), place), place), place, ms, newest_ms.get(text, -1))
        for text, place, ms in zip(*columns, strict=True)
        if text not in others
    }


def _by_group(
    of_tables: Mapping[Table, pa.Table], table: Table, row_class: type[Row], left_out: Set[str]
) -> dict[str, list[Row]]:
    """Rows of a table by group id, each group's sorted by place in the log, then by the table's key."""
    columns, rows = row_class._fields, of_tables[table]
    if left_out and rows.num_rows:
        group, group_ids = codes_of(rows["group_id"])
        is_left_out = np.array([group_id in left_out for group_id in group_ids], np.bool_)[group]
        rows = rows.filter(pa.array(~is_left_out))
    if not rows.num_rows:
        return {}
    place = "log_offset" if "log_offset" in columns else "from_log_offset"
    key = [column.name for column in table.columns if column.is_key and column.name in columns]
    names = dict.fromkeys(("group_id", place, *key))
    group, group_ids = ordered_codes(rows["group_id"])
    order = np.lexsort([_sortable(rows[name]) for name in names][::-1])
    bounds = np.searchsorted(group[order], np.arange(len(group_ids) + 1)).tolist()
    found = list(rows_of(rows, row_class, order))
    # filtered rows keep the texts of all
    return {
        group_id: found[begin:end]
        for group_id, (begin, end) in zip(group_ids, pairwise(bounds), strict=True)
        if end > begin
    }


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
    columns = [values_of(rows[name], order) for name in row_class._fields]
    return map(row_class._make, zip(*columns, strict=True))


def _of_groups(parts: Iterable[pa.Table], only: Set[str] | None) -> Iterator[pa.Table]:
    """Rows of some groups, part by part."""
    if only is None:
        yield from parts
        return
    for rows in parts:
        is_wanted = _is_of_any(rows, only)
        wanted = rows if is_wanted.all() else rows.filter(pa.array(is_wanted))
        if wanted.num_rows:
            yield wanted


def _is_of_any(rows: pa.Table, only: Set[str]) -> BoolArray:
    """Which rows are of some groups. The texts are those of the whole row group, and some may have no row here."""
    group, group_ids = codes_of(rows["group_id"])
    return np.array([group_id in only for group_id in group_ids], np.bool_)[group]


def is_of_groups(rows: pa.Table, groups: Mapping[int, Set[str]]) -> BoolArray:
    """Which rows are of some groups, given by log partition. `rows`: `group_id` and LOG_PARTITION among the columns."""
    found, place = groups_of(rows)
    return np.array([group_id in groups.get(log_partition, ()) for log_partition, group_id in found], np.bool_)[place]


def numbers_by_group(rows: pa.Table, numbers: Mapping[int, Mapping[str, int]], default: int) -> I64:
    """Of each row the number of its group, given by log partition. `rows` as in `is_of_groups`."""
    found, place = groups_of(rows)
    none: Mapping[str, int] = {}
    of_groups = [numbers.get(log_partition, none).get(group_id, default) for log_partition, group_id in found]
    return np.array(of_groups, np.int64)[place]


def groups_of(rows: pa.Table) -> tuple[list[tuple[int, str]], I64]:
    """The log partitions and groups that rows are of, and which of them each row is of."""
    group, group_ids = codes_of(rows["group_id"])
    count = max(len(group_ids), 1)
    places, place = distinct(numbers_of(rows[LOG_PARTITION]) * count + group)
    return [(code // count, group_ids[code % count]) for code in places.tolist()], place


def new_commits(
    files: SilverFiles, log_partition: int, from_log_offset: int, only: Set[str] | None = None
) -> Iterator[tuple[GroupCommits, I64, Sequence[str]]]:
    """Commits of all groups of one log partition, or `only` some, from a place in the log on, piece by piece, and the
    group of each: an index into the ids."""
    pieces = files.iterate(OFFSET_COMMITS, COMMIT_COLUMNS, log_partition, COMMIT_TEXTS, from_log_offset=from_log_offset)
    for rows in _of_groups(pieces, only):
        group, group_ids = codes_of(rows["group_id"])
        topic, topics = codes_of(rows["topic"])
        yield GroupCommits(tuple(topics), topic=topic.astype(np.int32), **_commit_columns(rows)), group, group_ids


def _commits_by_group(
    files: SilverFiles, log_partition: int, only: Set[str] | None, from_log_offset: int
) -> GroupedCommits:
    group_ids: dict[str, int] = {}
    topics: dict[str, int] = {}
    columns: dict[str, Any] = {}
    # zeros that nobody has written to cost nothing: each column is put in its place row group by row group, and one of
    # zeros alone (of one group, one topic, commits without transactions) takes no memory
    counts = np.zeros(0, np.int64)
    count, capacity = 0, files.row_count_max(OFFSET_COMMITS, log_partition, from_log_offset=from_log_offset)
    pieces = files.iterate(OFFSET_COMMITS, COMMIT_COLUMNS, log_partition, COMMIT_TEXTS, from_log_offset=from_log_offset)
    for rows in _of_groups(pieces, only):
        piece = {"group": _numbered(rows["group_id"], group_ids), "topic": _numbered(rows["topic"], topics)}
        piece |= _commit_columns(rows)
        so_far, counts = counts, np.bincount(piece["group"], minlength=len(group_ids))
        counts[: len(so_far)] += so_far
        end = count + rows.num_rows
        for name, values in piece.items():
            same = APPLIED_AS_RECORDED.get(name)
            if name not in columns:
                if same is not None and values is piece[same]:
                    continue
                columns[name] = np.zeros(capacity, values.dtype)
                if same is not None:
                    columns[name][:count] = columns[same][:count]
            if values.any():
                columns[name][count:end] = values
        count = end
    if not count:
        return GroupedCommits.of(())
    columns = {name: values[:count] for name, values in columns.items()}
    group = columns.pop("group")
    # filtered rows keep the texts of all
    present = np.flatnonzero(counts)
    if len(present) > 1 or not is_ascending(columns["log_offset"]):
        order = ordered_by(group, len(group_ids), columns["log_offset"])
        for name in columns:
            columns[name] = columns[name][order]
    for name, same in APPLIED_AS_RECORDED.items():
        columns.setdefault(name, columns[same])
    if count > BUNDLE_WEIGHT_MAX:
        give_back()
    texts = list(group_ids)
    return GroupedCommits(
        tuple(texts[code] for code in present.tolist()),
        np.repeat(np.arange(len(present)), counts[present]) if len(present) > 1 else np.zeros(count, np.int64),
        GroupCommits(tuple(topics), **columns),
    )


APPLIED_AS_RECORDED: Final = {"applied_log_offset": "log_offset", "applied_at_ms": "recorded_at_ms"}
"""What is the same of all plain commits, and kept but once then."""


def _numbered(column: pa.ChunkedArray, numbers: dict[str, int]) -> I32:
    """Texts as numbers, in order of appearance over all pieces; -1: null."""
    codes, texts = codes_of(column)
    of_text = np.array([*(numbers.setdefault(text, len(numbers)) for text in texts), -1], np.int32)
    return of_text[codes]


def _expiry_column(column: pa.ChunkedArray) -> I64:
    """Times as epoch milliseconds; NO_EXPIRY: null, as nearly all are."""
    if column.null_count == len(column):
        return np.full(len(column), NO_EXPIRY, np.int64)
    found = epoch_ms_column(column)
    return np.where(found < 0, NO_EXPIRY, found)


def _commit_columns(rows: pa.Table) -> dict[str, Any]:
    """Columns of `GroupCommits`, but for the topics; of those that are the same, one."""
    columns = {
        "partition": small_numbers_of(rows["partition"]),
        "log_offset": numbers_of(rows["log_offset"]),
        "recorded_at_ms": epoch_ms_column(rows["recorded_at"]),
        "applied_log_offset": numbers_of(rows["applied_log_offset"]),
        "applied_at_ms": epoch_ms_column(rows["applied_at"]),
        "committed_offset": numbers_of(rows["committed_offset"]),
        "previous_offset": numbers_of(rows["previous_offset"]),
        "outcome": indices_in(rows["outcome"], OUTCOMES),
        "change": indices_in(rows["change"], CHANGES),
        "is_transactional": rows["is_transactional"].fill_null(False).to_numpy(),
        "expire_at_ms": _expiry_column(rows["expire_time"]),
    }
    for name, other in APPLIED_AS_RECORDED.items():
        if np.array_equal(columns[name], columns[other]):
            columns[name] = columns[other]
    return columns
