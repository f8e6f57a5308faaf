"""The reader of a report: rows of a cluster's tables in a time span, without Spark."""

from collections.abc import Sequence
from copy import copy
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.bronze.coverage import HOLES, from_table
from jobs.delta.arrow_columns import codes_of, epoch_ms_column, texts_of
from jobs.delta.arrow_schemas import NO_TIMESTAMP_MS, timestamps
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.queries.answers.audit_report import Hole, Span, holes_of, overlapping, within
from jobs.queries.as_of.as_of import GROUPS_LOG, SHARES_LOG, SilverAt
from jobs.queries.sql.sql_duckdb import DuckDb
from jobs.report.sql_text import Scope
from schemas.tables.bronze import COVERAGE
from schemas.tables.declare import Table

LOGS: Final = (GROUPS_LOG, SHARES_LOG)
INTERVAL: Final = ("valid_from", "valid_to")
NO_CODE: Final = -2
"""A code without a string, not even null."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of detail in one file. Totals over all groups are divided by need (`shared_out`)."""

    group_count: int = 8
    """Groups with pictures of owners, commits and members; share groups are counted separately."""
    share_group_count: int = 4
    share_partition_count: int = 12
    """Share partitions of one share group."""
    interval_count: int = 400_000
    """Intervals of ownership of all groups; above this, shorter ones are merged."""
    batch_count: int = 200_000
    """Intervals of delivery states of all share partitions; above this, they are merged."""
    mark_count: int = 60_000
    """Rebalances, commit anomalies, redeliveries and archived ranges of all groups, each; above this, they are
    merged."""
    row_count: int = 1_000
    """Rows of one table."""
    rebalance_count: int = 40_000
    """Rows in the rebalance tables of all groups."""
    overview_count: int = 10_000
    """Groups in the overview table."""
    directory_count: int = 20_000
    """Groups in the directory (search by name, type and verdict)."""

    def lowered(self) -> "Limits":
        """Half the detail, for three quarters of the groups."""
        groups = {"group_count", "share_group_count", "share_partition_count"}
        return Limits(
            **{name: max(most * 3 // 4 if name in groups else most // 2, 1) for name, most in asdict(self).items()}
        )


def shared_out(total: int, needs: Sequence[int]) -> list[int]:
    """Divide a total: small needs are met, and the others get equal shares of the rest."""
    shares = [0] * len(needs)
    for served, index in enumerate(sorted(range(len(needs)), key=needs.__getitem__)):
        shares[index] = min(needs[index], total // (len(needs) - served))
        total -= shares[index]
    return shares


def by_group(rows: pa.Table, group_ids: Sequence[str]) -> dict[str, pa.Table]:
    codes, texts = codes_of(rows["group_id"])
    places = {text: code for code, text in enumerate(texts)}
    of_group = {group_id: codes == places.get(group_id, NO_CODE) for group_id in group_ids}
    # mostly all rows are of one group: then they are not copied
    return {group_id: rows if is_own.all() else rows.filter(pa.array(is_own)) for group_id, is_own in of_group.items()}


class Reader:
    """Rows of a cluster in the span of a scope."""

    def __init__(self, warehouse: Warehouse, scope: Scope) -> None:
        self.tables = ClusterTables(warehouse, scope.cluster_id)
        self.ledger = DuckDb(warehouse, cluster_id=scope.cluster_id, has_all=True)
        self.scope = scope
        self.span = Span(scope.from_ms, scope.to_ms)
        self.silver = SilverAt(self.tables, group_ids=scope.group_ids)

    def of_groups(self, group_ids: Sequence[str]) -> "Reader":
        """The same span for some groups."""
        those = copy(self)
        those.scope = self.scope._replace(group_ids=tuple(group_ids))
        those.silver = self.silver.of_groups(group_ids)
        return those

    def moments(self, table: Table, names: Sequence[str], time_column: str, *conditions: Any) -> pa.Table:
        """Rows whose time is in the span, unordered; strings are dictionary-encoded."""
        return self.silver.coded_rows(table, (*names, time_column), *within(time_column, self.span), *conditions)

    def intervals(self, table: Table, names: Sequence[str], *conditions: Any) -> pa.Table:
        """Rows whose interval overlaps with the span, unordered; strings are dictionary-encoded."""
        return self.silver.coded_rows(table, (*names, *INTERVAL), *overlapping(self.span), *conditions)

    def as_owned(self, rows: pa.Table) -> pa.Table:
        """Intervals of groups for a picture: those still open in a former log partition end when the group left it.

        Lists show them as in the tables, with a mark.
        """
        is_open = rows["valid_to"].is_null().to_numpy()
        left = self.silver.left_at() if is_open.any() else {}
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
        """Rows of any time, unordered; strings are dictionary-encoded."""
        return self.silver.coded_rows(table, names, *conditions)

    def coverage(self) -> pa.Table:
        """Coverage of the coordinators' logs, without compacted ranges."""
        rows = self.tables.read(COVERAGE)
        is_shown = pc.and_(
            pc.is_in(rows["topic"], pa.array(LOGS)), pc.is_in(rows["kind"], pa.array(["CAPTURED", *HOLES]))
        )
        return rows.filter(is_shown)

    def holes(self) -> list[Hole]:
        """Ranges of the coordinators' logs that were not read."""
        coverage = from_table(self.tables.read(COVERAGE))
        found = [(place[0], hole) for place, ranges in sorted(coverage.items()) for hole in holes_of(*place, ranges)]
        return [hole for topic, hole in found if topic in LOGS and hole.kind in HOLES and hole.touches(self.span)]
