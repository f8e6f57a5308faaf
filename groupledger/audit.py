"""From silver, one DataFrame for each gold table: inference grouped by group id, in the caller's Spark workers.

Rows of all silver tables about groups are combined in one DataFrame (union), grouped by key, and passed to the same
audit as in nightly (`jobs.gold.audit_groups`, `jobs.gold.audit_shares`); here the tables are Arrow rows instead of
files. A group of `__consumer_offsets` is in one log partition, so its rows are grouped by log partition and group id.
Results for a share partition depend on the delivery limit that other share partitions of the group show, and on the
group's members, so share partitions are grouped by group as well.

Facts about a whole log or cluster rather than a single group (`facts`) are small. They are collected once, when the
first table is requested; everything else runs when an action does.
"""

from typing import Final

from pyspark.sql import DataFrame

from coordinator_core.inference.facts.settings import InferenceSettings
from groupledger.judges import (
    GROUP_COLUMNS,
    PENDING,
    SHARE_COLUMNS,
    SHARE_LIFE_COLUMNS,
    SHARE_MEMBER_COLUMNS,
    JudgeGroup,
    JudgeHanging,
    JudgeShareGroup,
)
from groupledger.records import RecordsError
from groupledger.replay import TableFrame
from groupledger.silver_frames import Silver, SilverFrames
from jobs.delta.part_files import LOG_PARTITION
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.group_types import GroupType
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables.bronze import COVERAGE, END_OFFSETS, QUARANTINE, RECORD_BATCHES
from schemas.tables.declare import Table
from schemas.tables.gold import (
    ARCHIVED_RECORDS,
    COMMIT_ANOMALIES,
    GROUP_SUMMARY,
    HANGING_TRANSACTIONS,
    LAG_HISTORY,
    LOG_ANOMALIES,
    PARTITION_OWNERS,
    REBALANCES,
    REDELIVERIES,
    SHARE_GROUP_SUMMARY,
    SHARE_OFFSET_CHANGES,
)
from schemas.tables.silver import CONFIGS, OFFSET_COMMITS, PARTITION_COUNTS, TOPICS

GROUP_TABLES: Final = (PARTITION_OWNERS, REBALANCES, COMMIT_ANOMALIES, LAG_HISTORY, LOG_ANOMALIES, GROUP_SUMMARY)
SHARE_TABLES: Final = (REDELIVERIES, ARCHIVED_RECORDS, SHARE_OFFSET_CHANGES, LOG_ANOMALIES, SHARE_GROUP_SUMMARY)
OF_GROUPS: Final = ("cluster_id", LOG_PARTITION, "group_id")
OF_SHARE_GROUPS: Final = ("cluster_id", "group_id")
"""The grouping keys."""


def audit_groups(
    silver: Silver,
    *,
    topics: DataFrame | None = None,
    configs: DataFrame | None = None,
    partition_counts: DataFrame | None = None,
    coverage: DataFrame | None = None,
    end_offsets: DataFrame | None = None,
    batches: DataFrame | None = None,
    quarantine: DataFrame | None = None,
    inference: InferenceSettings | None = None,
) -> "GroupAudit":
    """Gold of `__consumer_offsets`: who owned what, why groups rebalanced, which commits are anomalies.

    `silver`: the result of `replay_groups`; or DataFrames by name, such as `silver.group_members`, which may include
    the following tables, too. Optional inputs beyond silver's group tables: `topics` (silver.topics: when topics were
    deleted), `configs` (silver.configs: session time-outs), `partition_counts` (silver.partition_counts: when topics
    got more partitions), `coverage` (bronze.coverage: what is missing of the log, and where it ends), `end_offsets`
    (bronze.end_offsets: lag), `batches` (bronze.record_batches: which leaders wrote the log, and where their clocks
    differ), `quarantine` (bronze.quarantine: groups with unreadable records). For the result of a replay, its own
    records provide coverage, clocks and what is unreadable. `inference`: thresholds.

    Raises RecordsError before any job runs where a table or column is missing or of another type.
    """
    given = {
        TOPICS: topics,
        CONFIGS: configs,
        PARTITION_COUNTS: partition_counts,
        COVERAGE: coverage,
        END_OFFSETS: end_offsets,
        RECORD_BATCHES: batches,
        QUARANTINE: quarantine,
    }
    return GroupAudit(SilverFrames.of(silver, OFFSETS_TOPIC, GROUP_COLUMNS, given), inference or InferenceSettings())


def audit_share_partitions(
    silver: Silver,
    *,
    groups: Silver | None = None,
    topics: DataFrame | None = None,
    configs: DataFrame | None = None,
    batches: DataFrame | None = None,
    inference: InferenceSettings | None = None,
) -> "ShareAudit":
    """Gold of `__share_group_state`: what was released, redelivered and archived, and which offsets were moved.

    `silver`: the result of `replay_share_partitions`, or DataFrames by name. `groups`: the result of `replay_groups`
    for the same cluster, which shows whether there were members to release or reject, and who deleted offsets.
    `topics`: silver.topics, which shows when topics were deleted. `configs`: silver.configs, which has delivery limits
    and lock durations. `batches` and `inference`: as for `audit_groups`.

    Raises RecordsError before any job runs where a table or column is missing or of another type.
    """
    given = {TOPICS: topics, CONFIGS: configs, RECORD_BATCHES: batches}
    made = SilverFrames.of(silver, SHARE_TOPIC, SHARE_COLUMNS, given)
    of_groups = made if groups is None else SilverFrames.of(groups, OFFSETS_TOPIC, SHARE_LIFE_COLUMNS, {})
    return ShareAudit(made, of_groups, inference or InferenceSettings())


class GroupAudit:
    """Gold of `__consumer_offsets`: one DataFrame for each table, with the columns and types of the table in the
    warehouse.
    """

    def __init__(self, silver: "SilverFrames", inference: InferenceSettings) -> None:
        self._silver = silver
        self._inference = inference

    partition_owners = TableFrame(PARTITION_OWNERS)
    rebalances = TableFrame(REBALANCES)
    commit_anomalies = TableFrame(COMMIT_ANOMALIES)
    lag_history = TableFrame(LAG_HISTORY, "; empty where no end offsets are given")
    group_summary = TableFrame(GROUP_SUMMARY)
    log_anomalies = TableFrame(LOG_ANOMALIES, " of `__consumer_offsets`")

    @property
    def hanging_transactions(self) -> DataFrame:
        """gold.hanging_transactions. Raises RecordsError where the end of the log is not known."""
        if not self._silver.knows_ends:
            raise RecordsError(
                "where the log ends is known from its records alone: give coverage=, the rows of bronze.coverage, or "
                "what replay_groups gave as silver"
            )
        self._silver.require(PENDING)
        judge = JudgeHanging(self._silver.facts)
        where = {OFFSET_COMMITS: _IS_PENDING}
        return self._silver.judged((HANGING_TRANSACTIONS,), PENDING, OF_GROUPS, judge, where=where)

    @property
    def tables(self) -> dict[str, DataFrame]:
        """All tables by full name, such as `gold.rebalances`."""
        found = {table.full_name: self._table(table) for table in GROUP_TABLES}
        if self._silver.knows_ends:
            found[HANGING_TRANSACTIONS.full_name] = self.hanging_transactions
        return found

    @property
    def clock_steps(self) -> DataFrame:
        """Rows of gold.log_anomalies of no group."""
        return self._silver.clock_steps

    def judged(self, *tables: Table) -> DataFrame:
        """Rows of groups: those of one table, or of several as `STREAMS`."""
        judge = JudgeGroup(tables, self._silver.facts, self._inference)
        return self._silver.judged(tables, GROUP_COLUMNS, OF_GROUPS, judge)

    def _table(self, table: Table) -> DataFrame:
        rows = self.judged(table)
        return rows.unionByName(self.clock_steps) if table is LOG_ANOMALIES else rows


class ShareAudit:
    """Gold of `__share_group_state`: one DataFrame for each table, with the columns and types of the table in the
    warehouse.
    """

    def __init__(self, silver: "SilverFrames", groups: "SilverFrames", inference: InferenceSettings) -> None:
        self._silver = silver
        self._groups = groups
        self._inference = inference

    redeliveries = TableFrame(REDELIVERIES, "; `is_settled` is false in all rows")
    archived_records = TableFrame(ARCHIVED_RECORDS, "; `is_settled` is false in all rows")
    share_offset_changes = TableFrame(
        SHARE_OFFSET_CHANGES, "; why a state was deleted is known only where silver of groups is given"
    )
    log_anomalies = TableFrame(LOG_ANOMALIES, " of `__share_group_state`")
    share_group_summary = TableFrame(
        SHARE_GROUP_SUMMARY, "; epochs and members are 0 where no silver of groups is given"
    )

    @property
    def tables(self) -> dict[str, DataFrame]:
        """All tables by full name, such as `gold.redeliveries`."""
        return {table.full_name: self._table(table) for table in SHARE_TABLES}

    @property
    def clock_steps(self) -> DataFrame:
        """Rows of gold.log_anomalies of no group."""
        return self._silver.clock_steps

    def judged(self, *tables: Table) -> DataFrame:
        """Rows of groups: those of one table, or of several as `STREAMS`; of share_group_summary alone."""
        is_summary = SHARE_GROUP_SUMMARY in tables
        of_groups = SHARE_LIFE_COLUMNS if is_summary else SHARE_MEMBER_COLUMNS
        there = {it: names for it, names in of_groups.items() if self._groups.has(it)}
        where = {} if is_summary else dict.fromkeys(SHARE_MEMBER_COLUMNS, f"group_type = '{GroupType.SHARE}'")
        judge = JudgeShareGroup(tables, self._silver.facts, self._inference)
        others = self._groups.under_one_another(there, where) if there else None
        return self._silver.judged(tables, SHARE_COLUMNS, OF_SHARE_GROUPS, judge, others=others)

    def _table(self, table: Table) -> DataFrame:
        rows = self.judged(table)
        return rows.unionByName(self.clock_steps) if table is LOG_ANOMALIES else rows


_IS_PENDING: Final = "outcome = 'PENDING' and producer_id >= 0"
