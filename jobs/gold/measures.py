"""What is counted of gold, and how: `groups`, metrics, the report and what a night found add up the same rows."""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.confidence import LIKELY
from coordinator_core.inference.commits.commit_anomalies import NOT_APPLIED, TOPIC_RECREATED
from coordinator_core.inference.shares.archived import NOT_GIVEN_UP
from schemas.tables.declare import Table
from schemas.tables.gold import ARCHIVED_RECORDS, COMMIT_ANOMALIES, REBALANCES, REDELIVERIES, SHARE_OFFSET_CHANGES

OFFSETS: Final = "last_offset - first_offset + 1"
EXTRA: Final = (
    f"({OFFSETS}) * case when cause in ('COUNT_LOST', 'RETURNED') then 1 "
    "else greatest(to_delivery_count - greatest(coalesce(from_delivery_count, 1), 1), 0) end"
)
"""As `RedeliveryColumns.extra_deliveries`."""


def _texts(rows: pa.Table, name: str) -> pa.ChunkedArray:
    return rows[name].cast(pa.string())  # they may be coded


def _went_back(rows: pa.Table) -> pa.ChunkedArray:
    is_less = pc.fill_null(pc.less(rows["to_offset"], rows["from_offset"]), False)
    is_new = pc.is_in(_texts(rows, "likely_cause"), pa.array([TOPIC_RECREATED]))
    return pc.and_not(is_less, pc.or_(is_new, pc.equal(_texts(rows, "kind"), NOT_APPLIED)))


WITHOUT_OWNER_MS: Final = 60_000
"""A rebalance that leaves its partitions without an owner for so long, on average, took longer than members need."""


def _without_owner(rows: pa.Table) -> pa.ChunkedArray:
    total = rows["partitions_total"]
    is_long = pc.greater_equal(rows["unowned_likely_ms"], pc.multiply(WITHOUT_OWNER_MS, total.cast(pa.int64())))
    is_likely = pc.equal(_texts(rows, "unowned_confidence"), LIKELY)
    return pc.fill_null(pc.and_(pc.and_(is_long, is_likely), pc.greater(total, 0)), False)


def _offsets(rows: pa.Table) -> pa.ChunkedArray:
    return pc.add(pc.subtract(rows["last_offset"], rows["first_offset"]), 1)


def _extra(rows: pa.Table) -> pa.ChunkedArray:
    before = pc.max_element_wise(rows["from_delivery_count"], 1)
    more = pc.max_element_wise(pc.subtract(rows["to_delivery_count"], before), 0)
    is_uncounted = pc.is_in(_texts(rows, "cause"), pa.array(["COUNT_LOST", "RETURNED"]))
    return pc.multiply(_offsets(rows), pc.if_else(is_uncounted, 1, more))


class Measure(NamedTuple):
    """A number: the rows of a table that count, and how much each of them does."""

    table: Table
    time: str
    cause: str
    """The column that says why."""
    amount_sql: str = "1"
    condition_sql: str = "true"
    reads: tuple[str, ...] = ()
    """Columns for the condition and the amount."""
    amount: Callable[[pa.Table], pa.ChunkedArray] = lambda rows: pa.chunked_array([pa.repeat(1, rows.num_rows)])
    counts: Callable[[pa.Table], pa.ChunkedArray] = lambda rows: pa.chunked_array([pa.repeat(True, rows.num_rows)])
    """As `amount_sql` and `condition_sql`."""

    @property
    def columns(self) -> tuple[str, ...]:
        """What `counted` needs, but the time."""
        return ("group_id", "group_type", self.cause, *self.reads)

    def counted(self, rows: pa.Table) -> pa.Table:
        """Of rows of the table, those that count: group_id, group_type, at, cause and amount."""
        rows = rows.filter(self.counts(rows))
        found = {"group_type": rows["group_type"], "at": rows[self.time], "cause": rows[self.cause]}
        return pa.table({"group_id": rows["group_id"], **found, "amount": self.amount(rows)})


_RANGE: Final = ("first_offset", "last_offset")
MEASURES: Final[Mapping[str, Measure]] = {
    "rebalances": Measure(REBALANCES, "started_at", "cause"),
    "storm_rebalances": Measure(
        *(REBALANCES, "started_at", "cause"),
        condition_sql="in_storm",
        counts=lambda rows: rows["in_storm"],
        reads=("in_storm",),
    ),
    "unowned_ms": Measure(
        *(REBALANCES, "started_at", "cause"),
        amount_sql="unowned_likely_ms",
        amount=lambda rows: pc.fill_null(rows["unowned_likely_ms"], 0),
        reads=("unowned_likely_ms",),
    ),
    "without_owner": Measure(
        *(REBALANCES, "started_at", "cause"),
        condition_sql=f"unowned_confidence = '{LIKELY}' and partitions_total > 0 "
        f"and unowned_likely_ms >= {WITHOUT_OWNER_MS} * partitions_total",
        counts=_without_owner,
        reads=("unowned_confidence", "unowned_likely_ms", "partitions_total"),
    ),
    "rewinds": Measure(  # as `went_back`
        *(COMMIT_ANOMALIES, "at", "kind"),
        condition_sql=f"to_offset < from_offset and kind <> '{NOT_APPLIED}' "
        f"and coalesce(likely_cause, '') <> '{TOPIC_RECREATED}'",
        counts=_went_back,
        reads=("from_offset", "to_offset", "likely_cause"),
    ),
    "redelivered": Measure(  # as `RedeliveryColumns.is_first`
        *(REDELIVERIES, "at", "cause"),
        amount_sql=OFFSETS,
        amount=_offsets,
        condition_sql="from_delivery_count is null",
        counts=lambda rows: rows["from_delivery_count"].is_null(),
        reads=(*_RANGE, "from_delivery_count"),
    ),
    "extra_deliveries": Measure(
        *(REDELIVERIES, "at", "cause"),
        amount_sql=EXTRA,
        amount=_extra,
        reads=(*_RANGE, "from_delivery_count", "to_delivery_count"),
    ),
    "archived": Measure(  # as `ArchivedColumns.is_record`
        *(ARCHIVED_RECORDS, "at", "cause"),
        amount_sql=OFFSETS,
        amount=_offsets,
        condition_sql=f"coalesce(likely_cause, '') not in {NOT_GIVEN_UP}",
        counts=lambda rows: pc.invert(pc.is_in(_texts(rows, "likely_cause"), pa.array(NOT_GIVEN_UP))),
        reads=(*_RANGE, "likely_cause"),
    ),
    "offset_changes": Measure(SHARE_OFFSET_CHANGES, "at", "kind"),
    **{
        name: Measure(
            *(SHARE_OFFSET_CHANGES, "at", "kind"),
            amount_sql=f"coalesce({name}_count, 0)",
            amount=lambda rows, column=f"{name}_count": pc.fill_null(rows[column], 0),  # type: ignore[misc]
            reads=(f"{name}_count",),
        )
        for name in ("never_delivered", "delivered_again")
    },
}
"""By name: the columns of gold.group_summary and gold.share_group_summary with their causes, at any time.

`without_owner`: rebalances that no column counts; `rewinds`: went_back_count; `redelivered`: records_redelivered;
`archived`: records_given_up; `offset_changes`: offset_change_count."""


def counted(read: Callable[[Table, Sequence[str], str], pa.Table]) -> dict[str, pa.Table]:
    """The rows of every measure. `read` gets a table, columns of it, and the one with the time; it is read once."""
    found: dict[str, pa.Table] = {}
    for (table, time), some in groupby(MEASURES.items(), lambda it: (it[1].table, it[1].time)):
        measures = dict(some)
        rows = read(table, sorted({name for it in measures.values() for name in it.columns}), time)
        found |= {name: measure.counted(rows) for name, measure in measures.items()}
    return found
