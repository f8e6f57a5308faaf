"""What is counted of gold, and how: groups, metrics, the report, dbt and a night's findings add up its columns."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from coordinator_core.confidence import GUESS, LIKELY
from coordinator_core.history.rows import FORGOTTEN
from coordinator_core.inference.commits.commit_anomalies import NOT_APPLIED, TOPIC_RECREATED
from coordinator_core.inference.commits.deletions import EXPIRED, GROUP_DELETED, TOPIC_DELETED
from coordinator_core.inference.shares.archived import NOT_GIVEN_UP
from jobs.queries.views.declare import Definition, Kind
from schemas.tables.common import CLUSTER_ID, GROUP_ID, GROUP_TYPE
from schemas.tables.declare import BIGINT, STRING, Column, Table
from schemas.tables.gold import (
    ARCHIVED_RECORDS,
    AT,
    COMMIT_ANOMALIES,
    REBALANCES,
    REDELIVERIES,
    SHARE_OFFSET_CHANGES,
)

WITHOUT_OWNER_MS: Final = 60_000
"""A rebalance that leaves its partitions without an owner for so long, on average, took longer than members need."""
OFFSETS: Final = "last_offset - first_offset + 1"
IS_BACK: Final = (
    f"to_offset < from_offset AND kind <> '{NOT_APPLIED}' AND coalesce(likely_cause, '') <> '{TOPIC_RECREATED}'"
)
IS_WITHOUT_OWNER: Final = (
    f"unowned_confidence = '{LIKELY}' AND partitions_total > 0 "
    f"AND unowned_likely_ms >= {WITHOUT_OWNER_MS} * partitions_total"
)
IS_NO_RECORD: Final = f"coalesce(likely_cause, '') IN {NOT_GIVEN_UP}"
EXPLAINED: Final = (TOPIC_DELETED, GROUP_DELETED, EXPIRED)
"""Why offsets go without anybody having deleted them."""
IS_DELETED: Final = f"kind = 'DELETED' AND coalesce(likely_cause, '') NOT IN {EXPLAINED}"


class Number(NamedTuple):
    """A column that counts: what a row counts for, unless a condition does not hold; null counts as 0."""

    name: str
    comment: str
    amount: str = "1"
    condition: str = "true"

    @property
    def expression(self) -> str:
        return f"CASE WHEN {self.condition} THEN coalesce({self.amount}, 0) ELSE 0 END"


class Source(NamedTuple):
    """A table whose rows count. `cause`: the expression that says why."""

    table: Table
    time: str
    cause: str
    numbers: tuple[Number, ...]


SOURCES: Final = (
    Source(
        REBALANCES,
        "started_at",
        "cause",
        (
            Number("rebalance_count", "1 for a rebalance."),
            Number("storm_rebalance_count", "1 for a rebalance in a storm.", condition="in_storm"),
            Number(
                "without_owner_count",
                "1 for a rebalance that likely left partitions without an owner for a minute or longer, on average.",
                condition=IS_WITHOUT_OWNER,
            ),
            Number(
                "unowned_likely_ms",
                "Sum over partitions of the time in which most likely nobody read them, in ms.",
                "unowned_likely_ms",
            ),
        ),
    ),
    Source(
        COMMIT_ANOMALIES,
        "at",
        f"CASE WHEN likely_cause = '{TOPIC_RECREATED}' THEN likely_cause ELSE kind END",  # that is no rewind
        (
            Number(
                "went_back_count",
                "1 for a commit of a lower offset than before, by a member or reset by a tool, but for ABORTED and "
                "TOPIC_RECREATED ones.",
                condition=IS_BACK,
            ),
            Number(
                "odd_commit_count",
                "1 for a commit anomaly that is more than a guess.",
                condition=f"coalesce(confidence, '') <> '{GUESS}'",
            ),
            Number(
                "guessed_odd_commit_count",
                "1 for what may be a commit anomaly: a guess.",
                condition=f"confidence = '{GUESS}'",
            ),
            Number(
                "offset_deleted_count",
                "1 for a committed offset that was deleted: not by age, nor with its group or topic.",
                condition=IS_DELETED,
            ),
            Number(
                "deleted_with_group_count",
                "1 for a committed offset that was deleted with its group.",
                condition=f"likely_cause = '{GROUP_DELETED}'",
            ),
            Number(
                "offset_forgotten_count",
                "1 for a committed offset that a new leader did not load.",
                condition=f"kind = '{FORGOTTEN}'",
            ),
        ),
    ),
    Source(
        REDELIVERIES,
        "at",
        "cause",
        (
            Number(
                "records_redelivered",
                "Records that were handed back or given out again, each counted once: in its first event, and again "
                "after a reset.",
                OFFSETS,
                "from_delivery_count IS NULL",  # as `RedeliveryColumns.is_first`
            ),
            Number(
                "extra_deliveries",
                "Deliveries beyond each record's first that delivery counts show; a lower bound.",
                f"({OFFSETS}) * CASE WHEN cause IN ('COUNT_LOST', 'RETURNED') THEN 1 ELSE "
                "greatest(to_delivery_count - greatest(coalesce(from_delivery_count, 1), 1), 0) END",
            ),
        ),
    ),
    Source(
        ARCHIVED_RECORDS,
        "at",
        f"CASE WHEN {IS_NO_RECORD} THEN likely_cause ELSE cause END",
        (
            Number(  # as `ArchivedColumns.is_record`
                "records_given_up",
                "Records given up: without offsets that are likely no records (gaps, markers), and records of aborted "
                "transactions.",
                OFFSETS,
                f"NOT ({IS_NO_RECORD})",
            ),
            Number("no_record_count", "Archived offsets that are likely no such records.", OFFSETS, IS_NO_RECORD),
        ),
    ),
    Source(
        SHARE_OFFSET_CHANGES,
        "at",
        "kind",
        (
            Number("offset_change_count", "1 for a share partition whose offset a tool, or the group's end, changed."),
            Number(
                "never_delivered_count", "Records that it skipped, as far as the log tells.", "never_delivered_count"
            ),
            Number(
                "delivered_again_count",
                "Records that it delivers again, as far as the log tells.",
                "delivered_again_count",
            ),
        ),
    ),
)
NUMBERS: Final = tuple(Column(number.name, BIGINT, number.comment) for source in SOURCES for number in source.numbers)


def _rows(source: Source) -> str:
    amounts = {it.name: "0" for it in NUMBERS} | {it.name: it.expression for it in source.numbers}
    numbers = ", ".join(f"CAST({amount} AS BIGINT) AS {name}" for name, amount in amounts.items())
    what = f"cluster_id, '{source.table.name}' AS table_name, group_id, group_type, e.{source.time} AS at"
    return f"SELECT {what}, {source.cause} AS cause, {numbers} FROM {source.table.full_name} AS e"


COUNTED_EVENTS: Final = Definition(
    Kind.VIEW,
    "counted_events",
    "Every event of gold, and what it counts for: sums of these columns are the numbers that all else shows.",
    "",
    tuple(source.table for source in SOURCES),
    "\n    UNION ALL ".join(map(_rows, SOURCES)),
    (
        CLUSTER_ID,
        Column("table_name", STRING, "The table of gold that has it."),
        *(GROUP_ID, GROUP_TYPE, AT),
        Column(
            "cause",
            STRING,
            "Why: the cause, or the kind of a commit anomaly or of a change of share offsets; the likely cause of "
            "TOPIC_RECREATED, and of archived offsets that are likely no records.",
        ),
        *NUMBERS,
    ),
)


def number_named(name: str) -> Number:
    return next(it for source in SOURCES for it in source.numbers if it.name == name)


def sums(names: Iterable[str]) -> str:
    """The selection of the sums of columns of counted_events, under their names."""
    return ", ".join(f"CAST(sum({name}) AS BIGINT) AS {name}" for name in names)
