"""Read silver by log partition in tasks, without Spark.

The log partition is the unit of work, as in replay: all rows of a group are in one. Row groups whose statistics exclude
the wanted log partitions are not read.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from itertools import compress
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.replay.key_buckets import KeyBucket
from jobs.delta.arrow_columns import as_read, codes_of, columns_read, numbers_of
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.part_files import LOG_PARTITION
from jobs.delta.replay_runs import WholeRun
from jobs.delta.scanner import Scanner
from jobs.delta.table_files import TableFile
from jobs.delta.times import epoch_ms
from jobs.silver.needed import NO_WATERMARKS, AuditWatermarks, SharedGroups, place_column
from jobs.silver.row_groups import END_OF_LOG, LOG_OFFSET, Footer, Newest, OpenFile, SharedRows, shared_place
from schemas.tables.declare import Table

SHARED_BYTES_MAX: Final = 64 << 20
"""Cache size, in bytes, for row groups with rows of several log partitions."""
GROUPS_BYTES_MAX: Final = 16 << 20
"""Cache size, in bytes, for `SharedGroups` of such row groups."""


class SilverFiles:
    """The files of some silver tables, of one cluster. Small and picklable: every task gets it."""

    def __init__(self, files: Mapping[str, tuple[TableFile, ...]]) -> None:
        self._files = dict(files)
        self._forget()

    def _forget(self) -> None:
        """Clear the caches."""
        self._footers: dict[str, Footer] = {}
        self._shared: Newest[SharedRows] = Newest(SHARED_BYTES_MAX)
        self._groups: Newest[SharedGroups] = Newest(GROUPS_BYTES_MAX)

    def __getstate__(self) -> dict[str, tuple[TableFile, ...]]:
        return self._files

    def __setstate__(self, files: dict[str, tuple[TableFile, ...]]) -> None:
        self._files = files
        self._forget()

    @classmethod
    def of(cls, tables: ClusterTables, those: Iterable[Table]) -> "SilverFiles":
        """The files as of the newest whole replay."""
        whole = WholeRun.newest(tables)
        return cls({table.full_name: whole.files(table) for table in those})

    def files(self, table: Table) -> tuple[TableFile, ...]:
        return self._files.get(table.full_name, ())

    def having(self, table: Table, column: str, value: str) -> Self:
        """Without those files of one table that, by their statistics, have no row with this value."""

        def may_have(file: TableFile) -> bool:
            return bool(file.minimum.get(column, value) <= value <= file.maximum.get(column, value))

        of_table = tuple(filter(may_have, self._files.get(table.full_name, ())))
        return type(self)({**self._files, table.full_name: of_table})

    def since(self, table: Table, column: str, at_ms: int) -> Self:
        """Only one table, without those files whose times in a column, by their statistics, are all before one."""

        def may_have(file: TableFile) -> bool:
            newest = file.maximum.get(column)
            return newest is None or epoch_ms(newest) >= at_ms

        return type(self)({table.full_name: tuple(filter(may_have, self.files(table)))})

    def of_bucket(self, tables: Iterable[Table], log_partition: int, bucket: KeyBucket) -> tuple[Self, Set[str] | None]:
        """Without the files of some tables that have no groups of a bucket in a log partition.

        Returns also the groups of the bucket that the remaining files have; None where all their groups are in the
        bucket. A replay in buckets leaves files with the groups of one bucket each.
        """
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
        """The groups of a log partition with rows of a table, from a log offset on, sorted."""
        found: set[str] = set()
        columns = ["group_id", LOG_OFFSET] if from_log_offset else ["group_id"]
        for rows in self.iterate(table, columns, log_partition, ["group_id"], from_log_offset=from_log_offset):
            group, texts = codes_of(rows["group_id"])
            # after a filter the dictionary still has the strings of all rows
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
        """The rows of one log partition, unordered. Columns in `coded` have the type `CODED`.

        Only rows with `from_log_offset` <= `log_offset` < `to_log_offset`.
        """
        parts = list(
            self.iterate(
                table, columns, log_partition, coded, from_log_offset=from_log_offset, to_log_offset=to_log_offset
            )
        )
        return pa.concat_tables(parts) if parts else columns_read(table, columns, coded).empty_table()

    def scan(self, table: Table, columns: Sequence[str], coded: Collection[str] = ()) -> pa.Table:
        """Some columns of all rows, unordered; for small tables, and those without log partitions."""
        schema = columns_read(table, columns, coded)
        parts = []
        for file in self._files[table.full_name]:
            with Scanner(file.path, coded) as scanner:
                parts.append(as_read(scanner.read(columns), schema))
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def row_count_max(self, table: Table, log_partition: int, *, from_log_offset: int = 0) -> int:
        """Upper bound of a log partition's rows from a log offset on, from the footers of the files."""
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
        watermarks: "AuditWatermarks | None" = None,
    ) -> Iterator[pa.Table]:
        """As `read`, row group by row group.

        `only`: just these groups; of those with `watermarks`, just the needed rows. Of row groups that have none, no
        more is read than shows that. Row groups in which all rows ended up to `ended_after` are skipped.
        """
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
                    log_partition, only, watermarks or NO_WATERMARKS
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
        watermarks: "AuditWatermarks",
        *,
        from_log_offset: int = 0,
        ended_after: int = -1,
    ) -> Counter[str]:
        """Number of rows of some groups that `iterate` yields, by group; the data read for that is cached."""
        counts: Counter[str] = Counter()
        for source, index in self._row_groups(
            table, log_partition, ("group_id",), from_log_offset=from_log_offset, ended_after=ended_after
        ):
            counts.update(self._groups_of(source, index, table).needed_counts(log_partition, only, watermarks))
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
    ) -> Iterator[tuple["OpenFile", int]]:
        """The row groups that may have rows for `iterate`, by file and index."""
        for file in self._files.get(table.full_name, ()):
            if from_log_offset and file.maximum.get(LOG_OFFSET, from_log_offset) < from_log_offset:
                continue
            footer = self._footer(file)
            with OpenFile(file, footer, tuple(coded)) as source:
                for index in footer.wanted(log_partition, from_log_offset, to_log_offset, ended_after):
                    yield source, index

    def iterate_some(
        self, table: Table, columns: Sequence[str], log_partitions: Collection[int], coded: Collection[str] = ()
    ) -> Iterator[pa.Table]:
        """The rows of some log partitions, row group by row group. `columns` must include LOG_PARTITION."""
        schema = columns_read(table, columns, coded)
        wanted_of = np.array(sorted(log_partitions), np.int64)
        for file in self._files.get(table.full_name, ()):
            footer = self._footer(file)
            with OpenFile(file, footer, tuple(coded)) as source:
                for index, bounds in enumerate(footer.bounds):
                    if bounds is not None and not ((wanted_of >= bounds[0]) & (wanted_of <= bounds[1])).any():
                        continue
                    shared = self._shared.get(shared_place(source, index, schema))
                    rows = (
                        as_read(source.read_row_group(index, schema.names), schema) if shared is None else shared.rows
                    )
                    is_wanted = np.isin(numbers_of(rows[LOG_PARTITION]), wanted_of)
                    yield rows if is_wanted.all() else rows.filter(pa.array(is_wanted))

    def _groups_of(self, source: "OpenFile", index: int, table: Table) -> "SharedGroups":
        """Which groups the rows of a row group belong to: a small part of it, cached like rows."""
        place = source.path, index
        groups = self._groups.get(place)
        if groups is None:
            schema = columns_read(table, ("group_id", place_column(table), LOG_PARTITION), source.coded)
            groups = SharedGroups(table, as_read(source.read_row_group(index, schema.names), schema))
            self._groups.put(place, groups)
        return groups

    def _rows_of(self, source: "OpenFile", index: int, schema: pa.Schema, log_partition: int) -> pa.Table:
        """The rows of one log partition in a row group. A row group that several log partitions share is cached."""
        if source.footer.bounds[index] == (log_partition, log_partition):
            return as_read(source.read_row_group(index, schema.names), schema)
        place = shared_place(source, index, schema)
        shared = self._shared.get(place)
        if shared is None:
            rows = source.read_row_group(index, list(dict.fromkeys((*schema.names, LOG_PARTITION))))
            shared = SharedRows(as_read(rows, schema), numbers_of(rows[LOG_PARTITION]))
            self._shared.put(place, shared)
        return shared.of(log_partition)

    def _footer(self, file: TableFile) -> Footer:
        footer = self._footers.get(file.path)
        if footer is None:
            with Scanner(file.path) as scanner:
                footer = self._footers[file.path] = Footer.of(scanner)
        return footer
