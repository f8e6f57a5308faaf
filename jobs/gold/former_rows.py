"""Rows of the last audit that are no longer true: files of gold without them.

Files are immutable, and one of a day has rows of many groups. A night says which rows are no longer true (`Outdated`);
the files that have any are written again without them, all others stay. So the cost of a night depends on the days in
which it changes rows, not on the age of the tables.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.log.chunk import BoolArray
from coordinator_core.inference.audit.log_anomalies import NOT_JUDGED, NOT_REPLAYED
from jobs.delta.arrow_columns import numbers_of
from jobs.delta.arrow_schemas import DAY, arrow_schema
from jobs.delta.audit_runs import WholeAudit
from jobs.delta.part_files import LOG_PARTITION, PartTarget, WrittenFile, write_part
from jobs.delta.table_files import TableFile, read_file
from jobs.gold.group_tables import EVERY_PLACE, GROUP_TABLES, NO_PLACE
from jobs.silver.rows import numbers_by_group
from jobs.spark.executors import Executor
from jobs.spark.tasks import run_tasks, tapered
from schemas.tables.declare import Table
from schemas.tables.gold import ARCHIVED_RECORDS, LOG_ANOMALIES, REDELIVERIES, SHARE_OFFSET_CHANGES

if TYPE_CHECKING:
    from jobs.delta.warehouse import Warehouse

DRIVER_BYTES_MAX: Final = 4 << 20
"""Less is written again on the driver, in less time than it takes to start tasks."""
NOT_SHOWN: Final = pa.array([NOT_JUDGED, NOT_REPLAYED])
"""Rules of gold.log_anomalies about what could not be judged: each audit finds them again."""
PLACES: Final = ("log_topic", LOG_PARTITION, "group_id", "rule", "log_offset", DAY)
"""Columns that say which rows are removed."""


@dataclass(frozen=True, slots=True)
class Outdated:
    """Rows of one log partition, in one table. A position is what `GroupTable.places` returns, and in
    gold.log_anomalies the log offset."""

    topic: str
    log_partition: int
    after: int = EVERY_PLACE
    """All rows behind this position; NO_PLACE: all."""
    groups: Mapping[str, int] = field(default_factory=dict)
    """Likewise those of some groups."""
    from_day: date | None = None
    """All of them are of this day or later ones, or of none; None: that is not known."""

    def may_be_in(self, file: TableFile) -> bool:
        """Whether a file may have such rows."""
        if self.after == EVERY_PLACE and not self.groups:  # of gold.log_anomalies, what each audit finds again
            rules = NOT_SHOWN.to_pylist()
            return any(file.minimum.get("rule", rule) <= rule <= file.maximum.get("rule", rule) for rule in rules)
        day, number = file.partition_values[DAY], self.log_partition
        if self.from_day is not None and day is not None and day < self.from_day:
            return False
        return bool(file.minimum.get(LOG_PARTITION, number) <= number <= file.maximum.get(LOG_PARTITION, number))


def day_of(at_ms: int) -> date | None:
    """The UTC day of a time; None: it is not in the calendar."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).date()
    except (OSError, OverflowError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Change:
    """Files of a table that go, and those that come in their place; new rows are in other files."""

    removed: tuple[TableFile, ...] = ()
    added: tuple[WrittenFile, ...] = ()


@dataclass(frozen=True, slots=True)
class FormerFile:
    """A file of the last audit, and what may have to be removed from it. Small and picklable: a task gets it."""

    file: TableFile
    target: PartTarget
    outdated: tuple[Outdated, ...]


def former_changes(
    executor: Executor,
    warehouse: "Warehouse",
    newest: WholeAudit,
    outdated: Sequence[Mapping[str, Sequence[Outdated]]],
    *,
    keeps_settled: bool,
) -> dict[Table, Change]:
    """What becomes of the last audit's files of the tables that tasks write. `keeps_settled`: settled rows of share
    partitions stay."""
    changes: dict[Table, Change] = {}
    works: list[FormerFile] = []
    for table in (REDELIVERIES, ARCHIVED_RECORDS, SHARE_OFFSET_CHANGES):
        files = newest.files(table)
        kept = keeps_settled and "is_settled" in table.partition_by
        changes[table] = Change(tuple(it for it in files if not (kept and it.partition_values["is_settled"])))
    for table in (*GROUP_TABLES, LOG_ANOMALIES):
        of_table = [rows for task in outdated for rows in task.get(table.full_name, ())]
        for file in newest.files(table):
            if own := tuple(rows for rows in of_table if rows.may_be_in(file)):
                works.append(FormerFile(file, warehouse.target(table), own))
    sizes = [work.file.size_bytes for work in works]
    if sum(sizes) <= DRIVER_BYTES_MAX:
        found = without_outdated(works)
    else:
        bins = [[works[index] for index in indices] for indices in tapered(sizes, executor.core_count)]
        found = list(chain.from_iterable(run_tasks(executor, without_outdated, bins, "rows that are no longer true")))
        works = list(chain.from_iterable(bins))
    for work, (is_changed, written) in zip(works, found, strict=True):
        if is_changed:
            table = work.target.table
            change = changes.get(table, Change())
            added = change.added if written is None else (*change.added, written)
            changes[table] = Change((*change.removed, work.file), added)
    return changes


def changed_days(table: Table, rows: pa.Table, files: Sequence[TableFile]) -> tuple[pa.Table, Change]:
    """Of the rows of a small table, those of days that differ from the last audit's; and the files of these days."""
    schema = arrow_schema(table)
    former = pa.concat_tables([schema.empty_table(), *(read_file(file, table, schema.names) for file in files)])
    order = [(name, "ascending") for name in dict.fromkeys((DAY, *table.key))]
    before, now = (_by_day(some.sort_by(order)) for some in (former, rows))
    changed = {day for day in {*before, *now} if day not in before or day not in now or before[day] != now[day]}
    parts = [now[day] for day in now if day in changed]
    removed = tuple(file for file in files if file.partition_values[DAY] in changed)
    return pa.concat_tables([schema.empty_table(), *parts]), Change(removed)


def _by_day(rows: pa.Table) -> dict[date | None, pa.Table]:
    """Rows in the order of their days, cut by day."""
    if not rows.num_rows:
        return {}
    runs = pc.run_end_encode(rows[DAY].combine_chunks())
    bounds = pairwise([0, *runs.run_ends.to_pylist()])
    return {
        day: rows.slice(start, end - start) for day, (start, end) in zip(runs.values.to_pylist(), bounds, strict=True)
    }


def without_outdated(works: Sequence[FormerFile]) -> list[tuple[bool, WrittenFile | None]]:
    """For each file, whether it has rows to be removed, and the file without them; None: there are no others."""
    return list(map(_without_outdated, works))


def _without_outdated(work: FormerFile) -> tuple[bool, WrittenFile | None]:
    table = work.target.table
    names = [name for name in PLACES if name in table.column_names]
    is_kept = ~_is_outdated(read_file(work.file, table, names), table, work.outdated)
    if is_kept.all():
        return False, None
    if not is_kept.any():
        return True, None
    rows = read_file(work.file, table, table.column_names).filter(pa.array(is_kept))
    return True, write_part(work.target, rows, "part", work.file.partition_values)


def _is_outdated(rows: pa.Table, table: Table, outdated: Sequence[Outdated]) -> BoolArray:
    log_partition = numbers_of(rows[LOG_PARTITION])
    after = np.full(rows.num_rows, EVERY_PLACE, np.int64)
    if table == LOG_ANOMALIES:
        places = numbers_of(rows["log_offset"])
        for own in outdated:
            is_own = (log_partition == own.log_partition) & pc.equal(rows["log_topic"], own.topic).to_numpy()
            groups = pa.array(sorted(own.groups), pa.string())
            is_again = pc.or_(pc.is_in(rows["group_id"], groups), pc.is_in(rows["rule"], NOT_SHOWN)).to_numpy()
            after[is_own] = np.minimum(after[is_own], np.where(is_again[is_own], NO_PLACE, own.after))
        return places > after
    of_groups: dict[int, dict[str, int]] = {}
    for own in outdated:
        is_own = log_partition == own.log_partition
        after[is_own] = np.minimum(after[is_own], own.after)
        of_groups.setdefault(own.log_partition, {}).update(own.groups)
    found: BoolArray = GROUP_TABLES[table].places(rows) > np.minimum(
        after, numbers_by_group(rows, of_groups, EVERY_PLACE)
    )
    return found
