"""Grouped functions of the audit, which run in workers."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.inference.audit.days import share_group_days
from coordinator_core.inference.audit.groups import in_order
from coordinator_core.inference.commits.hanging import hanging
from coordinator_core.inference.facts.clock import with_times
from coordinator_core.inference.facts.rows import ShareGroupDayRow
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.shares.share_days import merged_days
from groupledger.facts import Columns, Facts
from groupledger.silver import SilverRows
from jobs.delta.core_tables import rows_table
from jobs.delta.part_files import LOG_PARTITION
from jobs.gold.audit_groups import audit_whole_log
from jobs.gold.audit_lag import Lags
from jobs.gold.audit_shares import audit_by_group, audit_log
from jobs.gold.hanging_transactions import COLUMNS as PENDING_COLUMNS
from jobs.gold.hanging_transactions import hanging_table, open_commits
from jobs.gold.share_reader import (
    ENDING_COLUMNS,
    MEMBER_COLUMNS,
    STATE_COLUMNS,
    TRANSITION_COLUMNS,
    share_members,
)
from jobs.gold.task import AuditParts, AuditWork
from jobs.silver.bundles import GROUP_ROWS, group_lives
from jobs.silver.commits import COMMIT_COLUMNS
from schemas.group_types import GroupType
from schemas.tables.declare import Table
from schemas.tables.gold import HANGING_TRANSACTIONS, LAG_HISTORY, SHARE_GROUP_SUMMARY
from schemas.tables.silver import (
    GROUP_EVENTS,
    GROUP_MEMBERS,
    OFFSET_COMMITS,
    SHARE_BATCH_TRANSITIONS,
    SHARE_PARTITION_STATES,
    TOPICS,
)

TABLE: Final = "of_table"
"""Column with the silver table of a row, where rows of several tables are combined."""

GROUP_COLUMNS: Final[Columns] = {
    **{table: (LOG_PARTITION, *row._fields) for table, row in GROUP_ROWS.items()},
    OFFSET_COMMITS: (LOG_PARTITION, *COMMIT_COLUMNS, "topic_id"),
}
PENDING: Final[Columns] = {OFFSET_COMMITS: (*PENDING_COLUMNS, "outcome")}
SHARE_COLUMNS: Final[Columns] = {
    SHARE_PARTITION_STATES: (LOG_PARTITION, *STATE_COLUMNS),
    SHARE_BATCH_TRANSITIONS: (LOG_PARTITION, "group_id", *TRANSITION_COLUMNS),
}
SHARE_MEMBER_COLUMNS: Final[Columns] = {
    GROUP_MEMBERS: (LOG_PARTITION, *MEMBER_COLUMNS),
    GROUP_EVENTS: (LOG_PARTITION, *ENDING_COLUMNS),
}
SHARE_LIFE_COLUMNS: Final[Columns] = {table: GROUP_COLUMNS[table] for table in GROUP_ROWS}

Judge = Callable[[pa.Table], Iterator[tuple[Table, pa.Table]]]
"""From the rows of one key, rows of gold tables without the cluster."""


class Gathered(AuditParts):
    """Collects rows of some gold tables, and drops those of others."""

    def __init__(self, work: AuditWork, tables: Collection[Table]) -> None:
        super().__init__(work)
        self._tables = tables
        self.rows: list[tuple[Table, pa.Table]] = []

    def write_rows(self, table: Table, rows: Sequence[NamedTuple], log_partition: int) -> None:
        """Collect rows of the core."""
        if table in self._tables:
            super().write_rows(table, rows, log_partition)

    def write(self, table: Table, rows: pa.Table, *, is_settled: bool = True) -> None:
        if table in self._tables and rows.num_rows:
            self.rows.append((table, rows))


@dataclass(frozen=True, slots=True)
class JudgeGroup:
    """Rows of some gold tables, for one group of `__consumer_offsets`."""

    tables: tuple[Table, ...]
    facts: Facts
    inference: InferenceSettings

    def __call__(self, rows: pa.Table) -> Iterator[tuple[Table, pa.Table]]:
        cluster_id, log_partition = rows["cluster_id"][0].as_py(), rows[LOG_PARTITION][0].as_py()
        known = self.facts.of(cluster_id)
        files = SilverRows({**apart(rows, GROUP_COLUMNS), TOPICS.full_name: known.topics})
        work = self.facts.work(cluster_id, files, self.inference, log_partition)
        with Gathered(work, self.tables) as parts:
            log = work.log(log_partition)
            audit_whole_log(log_partition, work, parts, known.configs, known.removed, log)
            if known.samples and LAG_HISTORY in self.tables:
                Lags(work, parts, known.samples).write(log_partition, log)
        yield from parts.rows


@dataclass(frozen=True, slots=True)
class JudgeShareGroup:
    """Rows of some gold tables, for the share partitions of one group, log partition by log partition."""

    tables: tuple[Table, ...]
    facts: Facts
    inference: InferenceSettings

    def __call__(self, rows: pa.Table) -> Iterator[tuple[Table, pa.Table]]:
        cluster_id = rows["cluster_id"][0].as_py()
        known = self.facts.of(cluster_id)
        found = apart(rows, {**SHARE_COLUMNS, **SHARE_MEMBER_COLUMNS})
        files = SilverRows(found)
        members = share_members(files)
        states = found[SHARE_PARTITION_STATES.full_name]
        counts = []
        for log_partition in sorted(states[LOG_PARTITION].unique().to_pylist()):
            work = self.facts.work(cluster_id, files, self.inference, log_partition)
            try:
                with Gathered(work, self.tables) as parts:
                    audit_log(log_partition, work, parts, known.configs, members)
            except MemoryError:
                raise
            except Exception:  # drop what was collected, and judge group by group: failures become rows
                with Gathered(work, self.tables) as parts:
                    audit_by_group(log_partition, work, parts, known.configs, members)
            yield from parts.rows
            counts += parts.done.share_counts
        if SHARE_GROUP_SUMMARY in self.tables and (days := merged_days(counts, self._days(rows))):
            yield SHARE_GROUP_SUMMARY, rows_table(SHARE_GROUP_SUMMARY, days, {})

    def _days(self, rows: pa.Table) -> Iterator[ShareGroupDayRow]:
        """Epochs and members, from the log of groups."""
        files = SilverRows(apart(rows, SHARE_LIFE_COLUMNS))
        places = rows.filter(pc.is_in(rows[TABLE], value_set=pa.array([it.full_name for it in SHARE_LIFE_COLUMNS])))
        for log_partition in sorted(places[LOG_PARTITION].unique().to_pylist()):
            for life in group_lives(files, log_partition):
                types = {row.group_type for row in life.generations} | {row.group_type for row in life.members}
                if GroupType.SHARE in types:
                    yield from share_group_days(with_times(in_order(life)))


@dataclass(frozen=True, slots=True)
class JudgeHanging:
    """Rows of gold.hanging_transactions, for one group."""

    facts: Facts

    def __call__(self, rows: pa.Table) -> Iterator[tuple[Table, pa.Table]]:
        cluster_id, log_partition = rows["cluster_id"][0].as_py(), rows[LOG_PARTITION][0].as_py()
        end = self.facts.ends.get((cluster_id, log_partition))
        if end is None or end.next_offset is None:
            return
        hole = -1 if end.last_missing is None else end.last_missing
        cleaned = -1 if end.last_cleaned is None else end.last_cleaned
        found = [
            hanging(commits, end.end_ms, end.next_offset, has_hole_behind=hole > commits.first_log_offset)
            for commits in open_commits(rows.select(PENDING_COLUMNS))
            if cleaned <= commits.first_log_offset
        ]
        if made := sorted((row for row in found if row is not None), key=lambda row: row.first_log_offset):
            yield HANGING_TRANSACTIONS, hanging_table(made)


def apart(rows: pa.Table, columns: Columns) -> dict[str, pa.Table]:
    """Separate combined rows by table; columns that Spark did not deliver are left out."""
    found, there = {}, set(rows.column_names)
    for table, names in columns.items():
        own = [name for name in dict.fromkeys(names) if name in there]
        found[table.full_name] = rows.filter(pc.equal(rows[TABLE], table.full_name)).select(own)
    return found
