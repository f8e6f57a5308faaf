"""What a report reads: rows of a cluster's tables in a span of time, without Spark."""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.bronze.coverage import HOLES, from_table
from jobs.delta.arrow_columns import codes_of, epoch_ms_column, texts_of
from jobs.delta.arrow_schemas import NO_TIMESTAMP_MS, timestamps
from jobs.delta.warehouse import Warehouse
from jobs.queries.as_of import GROUPS_LOG, SHARES_LOG, SilverAt
from jobs.queries.audit_report import Hole, Span, holes_of, overlapping, within
from jobs.report.sql_text import Scope
from schemas.tables.bronze import COVERAGE
from schemas.tables.declare import Table

LOGS: Final = (GROUPS_LOG, SHARES_LOG)
INTERVAL: Final = ("valid_from", "valid_to")
NO_CODE: Final = -2
"""Of no text, null included."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much detail goes into one file. Counts of all groups together are shared out by need (`shared_out`)."""

    group_count: int = 8
    """Groups with owners, commits and members; share groups count apart."""
    share_group_count: int = 4
    share_partition_count: int = 12
    """Of one share group."""
    interval_count: int = 400_000
    """Intervals of ownership, all groups together; shorter ones are put together above this."""
    batch_count: int = 200_000
    """Intervals of delivery states, all share partitions together; likewise."""
    mark_count: int = 60_000
    """Rebalances, odd commits, and what was redelivered or given up, of each all groups together; likewise."""
    row_count: int = 1_000
    """Of one table."""
    rebalance_count: int = 40_000
    """Rows in the tables of rebalances, all groups together."""
    overview_count: int = 10_000
    """Groups in the table of what groups cost."""
    directory_count: int = 20_000
    """Groups that are found by name, type and verdict."""

    def lowered(self) -> "Limits":
        """Half the detail, of three quarters of the groups."""
        return Limits(
            max(self.group_count * 3 // 4, 1),
            max(self.share_group_count * 3 // 4, 1),
            max(self.share_partition_count * 3 // 4, 1),
            self.interval_count // 2,
            self.batch_count // 2,
            max(self.mark_count // 2, 1),
            max(self.row_count // 2, 1),
            max(self.rebalance_count // 2, 1),
            max(self.overview_count // 2, 1),
            max(self.directory_count // 2, 1),
        )


def shared_out(total: int, needs: Sequence[int]) -> list[int]:
    """Shares of a total: who needs little gets it, the others the same each of what is left."""
    shares = [0] * len(needs)
    for served, index in enumerate(sorted(range(len(needs)), key=needs.__getitem__)):
        shares[index] = min(needs[index], total // (len(needs) - served))
        total -= shares[index]
    return shares


def by_group(rows: pa.Table, group_ids: Sequence[str]) -> dict[str, pa.Table]:
    """Rows of each group."""
    codes, texts = codes_of(rows["group_id"])
    places = {text: code for code, text in enumerate(texts)}
    of_group = {group_id: codes == places.get(group_id, NO_CODE) for group_id in group_ids}
    # many rows are of one group, as a rule: they are not copied
    return {group_id: rows if is_own.all() else rows.filter(pa.array(is_own)) for group_id, is_own in of_group.items()}


class Reader:
    """A cluster's rows in the span of a scope."""

    def __init__(self, warehouse: Warehouse, scope: Scope) -> None:
        self.warehouse = warehouse
        self.scope = scope
        self.span = Span(scope.from_ms, scope.to_ms)
        self._silver = SilverAt(warehouse, scope.cluster_id, group_ids=scope.group_ids)

    def of_groups(self, group_ids: Sequence[str]) -> "Reader":
        """The same span of some groups."""
        those = copy(self)
        those.scope = self.scope._replace(group_ids=tuple(group_ids))
        those._silver = self._silver.of_groups(group_ids)
        return those

    def moments(self, table: Table, names: Sequence[str], time_column: str, *conditions: Any) -> pa.Table:
        """Rows whose time is in the span, in no order; texts are coded."""
        return self._silver.coded_rows(table, (*names, time_column), *within(time_column, self.span), *conditions)

    def intervals(self, table: Table, names: Sequence[str], *conditions: Any) -> pa.Table:
        """Rows whose interval has a moment in the span, in no order; texts are coded."""
        return self._silver.coded_rows(table, (*names, *INTERVAL), *overlapping(self.span), *conditions)

    def as_owned(self, rows: pa.Table) -> pa.Table:
        """Intervals of groups, in a picture: those that are open in a former log partition of their group end when the
        group left it. Lists have them as they are in the tables, with a mark."""
        is_open = rows["valid_to"].is_null().to_numpy()
        left = self._silver.left_at() if is_open.any() else {}
        if not left:
            return rows
        starts, ends = epoch_ms_column(rows["valid_from"]), epoch_ms_column(rows["valid_to"])
        at = np.flatnonzero(is_open)
        some = rows.select(["group_id", "log_partition"]).take(pa.array(at))
        is_kept = np.ones(rows.num_rows, np.bool_)
        is_ended = ~is_open
        for row, place in zip(
            at.tolist(), zip(texts_of(some["group_id"]), some["log_partition"].to_pylist(), strict=True), strict=True
        ):
            end = left.get(place)
            if end is not None:
                ends[row], is_ended[row], is_kept[row] = end, True, end > starts[row]
        column = timestamps(np.where(is_ended, ends, NO_TIMESTAMP_MS))
        return rows.set_column(rows.schema.get_field_index("valid_to"), "valid_to", column).filter(pa.array(is_kept))

    def rows(self, table: Table, names: Sequence[str], *conditions: Any) -> pa.Table:
        """Rows of any time, in no order; texts are coded."""
        return self._silver.coded_rows(table, names, *conditions)

    def applied_commits(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Commits that took effect, of any time; texts are coded."""
        return self._silver.applied_commits(names)

    def coverage(self) -> pa.Table:
        """What was read of the coordinators' logs and what was not, but for what the cleaner took away."""
        rows = self.warehouse.read(COVERAGE, where={"cluster_id": self.scope.cluster_id})
        is_shown = pc.and_(
            pc.is_in(rows["topic"], pa.array(LOGS)), pc.is_in(rows["kind"], pa.array(["CAPTURED", *HOLES]))
        )
        return rows.filter(is_shown)

    def holes(self) -> list[Hole]:
        """Ranges of the coordinators' logs that were not read."""
        coverage = from_table(self.warehouse.read(COVERAGE, where={"cluster_id": self.scope.cluster_id}))
        found = [(place[0], hole) for place, ranges in sorted(coverage.items()) for hole in holes_of(*place, ranges)]
        return [hole for topic, hole in found if topic in LOGS and hole.kind in HOLES and hole.touches(self.span)]
