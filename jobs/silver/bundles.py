"""Read the groups of one log partition in bundles that fit into memory."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from coordinator_core.history.rows import AssignmentRow, EventRow, GenerationRow, MemberRow
from coordinator_core.inference.audit.group_past import GroupedCommits
from coordinator_core.inference.facts.life import GroupCommits, GroupLife
from jobs.delta.arrow_columns import (
    codes_of,
    columns_read,
    ordered_codes,
    together,
)
from jobs.delta.arrow_schemas import text_columns
from jobs.silver.commits import commits_by_group
from jobs.silver.needed import NO_WATERMARKS, AuditWatermarks, all_ended_by, events_from
from jobs.silver.reader import SilverFiles
from jobs.silver.row_groups import LOG_OFFSET
from jobs.silver.rows import Row, rows_of, sortable
from jobs.spark.tasks import give_back
from schemas.tables.declare import Table
from schemas.tables.silver import GROUP_EVENTS, GROUP_GENERATIONS, GROUP_MEMBERS, MEMBER_ASSIGNMENTS, OFFSET_COMMITS

GROUP_ROWS: Final[Mapping[Table, type[NamedTuple]]] = {
    GROUP_GENERATIONS: GenerationRow,
    GROUP_MEMBERS: MemberRow,
    MEMBER_ASSIGNMENTS: AssignmentRow,
    GROUP_EVENTS: EventRow,
}
"""The tables with rows of groups, other than commits."""


@dataclass(slots=True)
class GroupBundle:
    """Silver's rows of some groups of one log partition of `__consumer_offsets`."""

    log_partition: int
    commits: GroupedCommits
    rows: Mapping[Table, pa.Table]
    """By the tables of `GROUP_ROWS`, unordered. `lives` drops these rows and the commits, since they may be many."""

    def lives(self, also: Set[str] = frozenset()) -> Iterator[GroupLife]:
        """Yield each group that has rows, by group id; and each of `also`, with or without rows."""
        generations = _by_group(self.rows, GROUP_GENERATIONS, GenerationRow)
        members = _by_group(self.rows, GROUP_MEMBERS, MemberRow)
        assignments = _by_group(self.rows, MEMBER_ASSIGNMENTS, AssignmentRow)
        events = _by_group(self.rows, GROUP_EVENTS, EventRow)
        commits, slices = self.commits.commits, self.commits.slices()
        self.commits, self.rows = GroupedCommits.of(()), {}
        with_commits = {group_id for group_id, rows in slices.items() if rows.start < rows.stop}
        for group_id in sorted({*generations, *members, *assignments, *events, *with_commits, *also}):
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
    """All groups of one log partition of `__consumer_offsets`, sorted."""
    return sorted({group_id for table in GROUP_WEIGHTS for group_id in files.group_ids(table, log_partition)})


def group_lives(files: SilverFiles, log_partition: int, only: Set[str] | None = None) -> Iterator[GroupLife]:
    """Yield the groups of one log partition of `__consumer_offsets`, all or `only` some, by group id."""
    for bundle in group_bundles(files, log_partition, only):
        yield from bundle.lives()


def group_bundles(
    files: SilverFiles, log_partition: int, only: Set[str] | None = None, *, from_log_offset: int = 0
) -> Iterator[GroupBundle]:
    """Yield the groups of one log partition of `__consumer_offsets`, all or `only` some, in bundles.

    A bundle has as many groups as fit into memory; a larger group has a bundle of its own. `from_log_offset`: the
    groups have no commits before it.
    """
    if only is not None and not only:
        return
    for some in bundles(files, log_partition, only, GROUP_WEIGHTS, from_log_offset=from_log_offset):
        commits = commits_by_group(files, log_partition, some, from_log_offset)
        if len(commits.group) > BUNDLE_WEIGHT_MAX:
            give_back()
        rows = _group_rows(files, log_partition, some)
        yield GroupBundle(log_partition, commits, rows)
        del commits, rows  # before more is read


def bundles_with(
    files: SilverFiles, log_partition: int, only: Set[str], commits: GroupedCommits, watermarks: AuditWatermarks
) -> Iterator[tuple[Set[str], GroupBundle]]:
    """As `group_bundles`, for commits that are already read.

    Yields the groups of each bundle too, with or without rows. Rows that a group does not need, by `watermarks`, are
    left out.
    """
    weights = {table: weight for table, weight in GROUP_WEIGHTS.items() if table is not OFFSET_COMMITS}
    for some in bundles(files, log_partition, only, weights, watermarks=watermarks) if only else ():
        wanted = some or set()
        rows = _group_rows(files, log_partition, some, watermarks)
        yield wanted, GroupBundle(log_partition, commits.of_some(wanted), rows)


def _group_rows(
    files: SilverFiles, log_partition: int, only: Set[str] | None, watermarks: AuditWatermarks = NO_WATERMARKS
) -> Mapping[Table, pa.Table]:
    return {
        table: _rows_of_groups(files, table, row._fields, log_partition, only, watermarks)
        for table, row in GROUP_ROWS.items()
    }


ROW_WEIGHT: Final = 16
"""A row as Python objects takes as much memory as this many commits as columns."""
GROUP_WEIGHTS: Final = {
    GROUP_GENERATIONS: ROW_WEIGHT,
    GROUP_MEMBERS: ROW_WEIGHT,
    MEMBER_ASSIGNMENTS: ROW_WEIGHT,
    GROUP_EVENTS: ROW_WEIGHT,
    OFFSET_COMMITS: 1,
}
BUNDLE_WEIGHT_MAX: Final = 4_000_000
"""Total weight of the groups in a bundle: about 250 MB."""


def bundles(
    files: SilverFiles,
    log_partition: int,
    only: Set[str] | None,
    weights: Mapping[Table, int],
    *,
    from_log_offset: int = 0,
    watermarks: AuditWatermarks = NO_WATERMARKS,
) -> Iterator[Set[str] | None]:
    """Divide groups into bundles, by group id; yields None where all groups are wanted and fit into one bundle.

    `weights`: weight of a row, for each table to be read. `from_log_offset`: where commits begin. `watermarks`: which
    rows groups of `only` need, where not all.
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
        begin = max(begins[table], events_from(table, only, watermarks))
        if only is None:
            counts = _row_counts(files, table, log_partition, begin)
        else:
            ended_after = all_ended_by(table, only, watermarks)
            counts = files.needed_counts(
                table, log_partition, only, watermarks, from_log_offset=begin, ended_after=ended_after
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
    """Number of rows of each group."""
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
    watermarks: AuditWatermarks,
) -> pa.Table:
    """The needed rows of a table, unordered; strings as they are stored."""
    texts = text_columns(table, columns)
    begin, ended_after = events_from(table, only, watermarks), all_ended_by(table, only, watermarks)
    pieces = files.iterate(
        table,
        columns,
        log_partition,
        texts,
        from_log_offset=begin,
        ended_after=ended_after,
        only=only,
        watermarks=watermarks,
    )
    parts = list(pieces)
    return together(parts) if parts else columns_read(table, columns, texts).empty_table()


def _by_group(of_tables: Mapping[Table, pa.Table], table: Table, row_class: type[Row]) -> dict[str, list[Row]]:
    """Rows of a table by group id; the rows of a group are sorted by log offset, then by the table's key."""
    columns, rows = row_class._fields, of_tables[table]
    if not rows.num_rows:
        return {}
    place = "log_offset" if "log_offset" in columns else "from_log_offset"
    key = [column.name for column in table.columns if column.is_key and column.name in columns]
    names = dict.fromkeys(("group_id", place, *key))
    group, group_ids = ordered_codes(rows["group_id"])
    order = np.lexsort([sortable(rows[name]) for name in names][::-1])
    bounds = np.searchsorted(group[order], np.arange(len(group_ids) + 1)).tolist()
    found = list(rows_of(rows, row_class, order))
    # after a filter the dictionary still has the strings of all rows
    return {
        group_id: found[begin:end]
        for group_id, (begin, end) in zip(group_ids, pairwise(bounds), strict=True)
        if end > begin
    }
