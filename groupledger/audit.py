"""Silver in, a DataFrame a gold table out: inference grouped by group id, in the workers of whoever asks.

Rows of the tables of silver that say something of a group are put under one another, brought together by key, and
handed to the audit that nightly runs (`jobs.gold.audit_groups`, `jobs.gold.audit_shares`); here its tables are Arrow
rows instead of files. Groups of `__consumer_offsets` have one log partition each, so they are grouped by it and their
id. What is said of a share partition goes by what others of its group show of the delivery limit, and by the group's
members, so share partitions are judged by group as well.

What is known of a whole log or cluster and of no single group (`_Facts`) is small. It is collected once, when the first
table is asked for; all else runs when an action does.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (as Spark's own documentation has it)
from pyspark.sql.types import StructType

from coordinator_core.inference.broken_rules import CLOCK_STEP_MS_MIN, LogAnomalyRow, time_went_back
from coordinator_core.inference.clock import with_times
from coordinator_core.inference.configs import Configs
from coordinator_core.inference.days import SHARE, share_group_days
from coordinator_core.inference.deletions import Removed
from coordinator_core.inference.groups import in_order
from coordinator_core.inference.hanging import hanging
from coordinator_core.inference.life import WHOLE
from coordinator_core.inference.rows import ShareGroupDayRow
from coordinator_core.inference.settings import InferenceSettings
from coordinator_core.inference.share_days import merged_days
from groupledger.records import RecordsError
from groupledger.replay import GroupReplay, Keyed, ShareReplay
from groupledger.silver import SilverRows
from jobs.delta.arrow_schemas import arrow_schema, delta_struct, sql_type
from jobs.delta.core_tables import rows_table
from jobs.delta.part_files import LOG_PARTITION
from jobs.gold.audit_groups import audit_whole_log
from jobs.gold.audit_log import LagWriter, Samples, end_samples
from jobs.gold.audit_shares import audit_by_group, audit_log
from jobs.gold.hanging_transactions import COLUMNS as PENDING_COLUMNS
from jobs.gold.hanging_transactions import open_commits
from jobs.gold.share_reader import (
    MEMBER_COLUMNS,
    STATE_COLUMNS,
    TRANSITION_COLUMNS,
    configs,
    removed_topics,
    share_members,
    topic_growth,
)
from jobs.gold.task import AuditParts, AuditWork
from jobs.silver.bundles import GROUP_ROWS, group_lives
from jobs.silver.commits import COMMIT_COLUMNS
from jobs.silver.tasks import OFFSETS_TOPIC, SHARE_TOPIC
from schemas.tables.bronze import COVERAGE, END_OFFSETS, RECORD_BATCHES
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
)
from schemas.tables.silver import (
    CONFIGS,
    GROUP_MEMBERS,
    OFFSET_COMMITS,
    PARTITION_COUNTS,
    SHARE_BATCH_TRANSITIONS,
    SHARE_PARTITION_STATES,
    TOPICS,
)

Silver = GroupReplay | ShareReplay | Mapping[str, DataFrame]
"""What a replay gave, or DataFrames by the tables' full names, as `silver.group_members`."""
Columns = Mapping[Table, tuple[str, ...]]

TABLE: Final = "of_table"
"""Of which table of silver a row is, where rows of several are under one another."""
OF_GROUPS: Final = ("cluster_id", LOG_PARTITION, "group_id")
OF_SHARE_GROUPS: Final = ("cluster_id", "group_id")
"""The keys that rows are brought together by."""

GROUP_COLUMNS: Final[Columns] = {
    **{table: (LOG_PARTITION, *row._fields) for table, row in GROUP_ROWS.items()},
    OFFSET_COMMITS: (LOG_PARTITION, *COMMIT_COLUMNS, "topic_id"),
}
PENDING: Final[Columns] = {OFFSET_COMMITS: (*PENDING_COLUMNS, "outcome")}
SHARE_COLUMNS: Final[Columns] = {
    SHARE_PARTITION_STATES: (LOG_PARTITION, *STATE_COLUMNS),
    SHARE_BATCH_TRANSITIONS: (LOG_PARTITION, "group_id", *TRANSITION_COLUMNS),
}
SHARE_MEMBER_COLUMNS: Final[Columns] = {GROUP_MEMBERS: (LOG_PARTITION, *MEMBER_COLUMNS)}
SHARE_LIFE_COLUMNS: Final[Columns] = {table: GROUP_COLUMNS[table] for table in GROUP_ROWS}

BEFORE_ALL: Final = -1
"""First missing offset of a log partition of which nobody says what is missing: nothing is proven by what it lacks."""


def audit_groups(
    silver: Silver,
    *,
    topics: DataFrame | None = None,
    configs: DataFrame | None = None,
    coverage: DataFrame | None = None,
    end_offsets: DataFrame | None = None,
    batches: DataFrame | None = None,
    inference: InferenceSettings | None = None,
) -> "GroupAudit":
    """Gold of `__consumer_offsets`: who owned what, why groups rebalanced, which commits are odd.

    `silver`: what `replay_groups` gave; or DataFrames by name, as `silver.group_members`, and then what else they have
    of the following is taken, too. What silver alone does not tell: `topics` (silver.topics: when topics were deleted),
    `configs` (silver.configs: session time-outs), `coverage` (bronze.coverage: what is missing of the log, and where it
    ends), `end_offsets` (bronze.end_offsets: lag), `batches` (bronze.record_batches: where clocks of leaders differ).
    A replay's own records tell coverage and clocks. `inference`: thresholds.

    Raises RecordsError before any job runs where a table or column is missing or of another type.
    """
    given = {TOPICS: topics, CONFIGS: configs, COVERAGE: coverage, END_OFFSETS: end_offsets, RECORD_BATCHES: batches}
    return GroupAudit(_Silver.of(silver, OFFSETS_TOPIC, GROUP_COLUMNS, given), inference or InferenceSettings())


def audit_share_partitions(
    silver: Silver,
    *,
    groups: Silver | None = None,
    configs: DataFrame | None = None,
    batches: DataFrame | None = None,
    inference: InferenceSettings | None = None,
) -> "ShareAudit":
    """Gold of `__share_group_state`: what was handed back, given out again and given up.

    `silver`: what `replay_share_partitions` gave, or DataFrames by name. `groups`: what `replay_groups` gave of the
    same cluster, which tells members: whether anybody was there to release or reject. `configs`: silver.configs, which
    tells delivery limits and locks. `batches` and `inference`: as for `audit_groups`.

    Raises RecordsError before any job runs where a table or column is missing or of another type.
    """
    given = {CONFIGS: configs, RECORD_BATCHES: batches}
    made = _Silver.of(silver, SHARE_TOPIC, SHARE_COLUMNS, given)
    of_groups = made if groups is None else _Silver.of(groups, OFFSETS_TOPIC, SHARE_LIFE_COLUMNS, {})
    return ShareAudit(made, of_groups, inference or InferenceSettings())


class GroupAudit:
    """Gold of `__consumer_offsets`: a DataFrame a table, with the columns and types of the table in the warehouse."""

    def __init__(self, silver: "_Silver", inference: InferenceSettings) -> None:
        self._silver = silver
        self._inference = inference

    @property
    def partition_owners(self) -> DataFrame:
        """gold.partition_owners."""
        return self._table(PARTITION_OWNERS)

    @property
    def rebalances(self) -> DataFrame:
        """gold.rebalances."""
        return self._table(REBALANCES)

    @property
    def commit_anomalies(self) -> DataFrame:
        """gold.commit_anomalies."""
        return self._table(COMMIT_ANOMALIES)

    @property
    def lag_history(self) -> DataFrame:
        """gold.lag_history; no rows where no ends of topics are given."""
        return self._table(LAG_HISTORY)

    @property
    def group_summary(self) -> DataFrame:
        """gold.group_summary."""
        return self._table(GROUP_SUMMARY)

    @property
    def log_anomalies(self) -> DataFrame:
        """gold.log_anomalies of `__consumer_offsets`."""
        return self._table(LOG_ANOMALIES).unionByName(self._silver.clock_steps)

    @property
    def hanging_transactions(self) -> DataFrame:
        """gold.hanging_transactions. Raises RecordsError where nothing tells where the log ends."""
        if not self._silver.knows_ends:
            raise RecordsError(
                "where the log ends is known from its records alone: give coverage=, the rows of bronze.coverage, or "
                "what replay_groups gave as silver"
            )
        judge = _Hanging(self._silver.facts)
        return self._silver.judged(HANGING_TRANSACTIONS, PENDING, OF_GROUPS, judge, where={OFFSET_COMMITS: _IS_PENDING})

    @property
    def tables(self) -> dict[str, DataFrame]:
        """All of it by the tables' full names, as `gold.rebalances`."""
        found = {
            PARTITION_OWNERS.full_name: self.partition_owners,
            REBALANCES.full_name: self.rebalances,
            COMMIT_ANOMALIES.full_name: self.commit_anomalies,
            LAG_HISTORY.full_name: self.lag_history,
            LOG_ANOMALIES.full_name: self.log_anomalies,
            GROUP_SUMMARY.full_name: self.group_summary,
        }
        if self._silver.knows_ends:
            found[HANGING_TRANSACTIONS.full_name] = self.hanging_transactions
        return found

    def _table(self, table: Table) -> DataFrame:
        judge = _JudgeGroup(table, self._silver.facts, self._inference)
        return self._silver.judged(table, GROUP_COLUMNS, OF_GROUPS, judge)


class ShareAudit:
    """Gold of `__share_group_state`: a DataFrame a table, with columns and types of the table in the warehouse."""

    def __init__(self, silver: "_Silver", groups: "_Silver", inference: InferenceSettings) -> None:
        self._silver = silver
        self._groups = groups
        self._inference = inference

    @property
    def redeliveries(self) -> DataFrame:
        """gold.redeliveries; `is_settled` is false in all rows."""
        return self._table(REDELIVERIES)

    @property
    def archived_records(self) -> DataFrame:
        """gold.archived_records; `is_settled` is false in all rows."""
        return self._table(ARCHIVED_RECORDS)

    @property
    def log_anomalies(self) -> DataFrame:
        """gold.log_anomalies of `__share_group_state`."""
        return self._table(LOG_ANOMALIES).unionByName(self._silver.clock_steps)

    @property
    def share_group_summary(self) -> DataFrame:
        """gold.share_group_summary; epochs and members are 0 where no silver of groups is given."""
        return self._table(SHARE_GROUP_SUMMARY)

    @property
    def tables(self) -> dict[str, DataFrame]:
        """All of it by the tables' full names, as `gold.redeliveries`."""
        return {
            REDELIVERIES.full_name: self.redeliveries,
            ARCHIVED_RECORDS.full_name: self.archived_records,
            LOG_ANOMALIES.full_name: self.log_anomalies,
            SHARE_GROUP_SUMMARY.full_name: self.share_group_summary,
        }

    def _table(self, table: Table) -> DataFrame:
        is_summary = table is SHARE_GROUP_SUMMARY
        of_groups = SHARE_LIFE_COLUMNS if is_summary else SHARE_MEMBER_COLUMNS
        there = {it: names for it, names in of_groups.items() if self._groups.has(it)}
        where = {} if is_summary else {GROUP_MEMBERS: "group_type = 'SHARE'"}
        judge = _JudgeShareGroup(table, self._silver.facts, self._inference)
        others = self._groups.under_one_another(there, where) if there else None
        return self._silver.judged(table, SHARE_COLUMNS, OF_SHARE_GROUPS, judge, others=others)


_IS_PENDING: Final = "outcome = 'PENDING' and producer_id >= 0"


# --- silver as it is given


class _Silver:
    """DataFrames of silver, and of what else is known."""

    def __init__(self, topic: str, frames: Mapping[str, DataFrame], log: "Keyed | None") -> None:
        self._topic = topic
        self._frames = frames
        self._log = log

    @classmethod
    def of(cls, silver: Silver, topic: str, columns: Columns, given: Mapping[Table, DataFrame | None]) -> "_Silver":
        """Silver as a caller gave it. Raises RecordsError for what it lacks."""
        is_replay = isinstance(silver, GroupReplay | ShareReplay)
        frames = dict(silver.tables if isinstance(silver, GroupReplay | ShareReplay) else silver)
        frames |= {table.full_name: frame for table, frame in given.items() if frame is not None}
        for table in columns:
            if table.full_name not in frames:
                raise RecordsError(
                    f"silver has no {table.full_name}: give what a replay gave, or DataFrames by the tables' names; "
                    f"these have {', '.join(frames) or 'nothing'}"
                )
        for table, names in {**columns, **FACT_COLUMNS}.items():
            if table.full_name in frames:
                _require(frames[table.full_name], table, ("cluster_id", *names))
        return cls(topic, frames, silver.keyed if is_replay and not isinstance(silver, Mapping) else None)

    def has(self, table: Table) -> bool:
        """Is there a DataFrame of a table?"""
        return table.full_name in self._frames

    @property
    def knows_ends(self) -> bool:
        """Is it known where the log ends?"""
        return self._log is not None or self.has(COVERAGE)

    def judged(
        self,
        table: Table,
        columns: Columns,
        keys: Sequence[str],
        judge: "Judge",
        *,
        where: Mapping[Table, str] | None = None,
        others: DataFrame | None = None,
    ) -> DataFrame:
        """Rows of a table of gold: what is made of the rows of each key. `others`: more rows of silver."""
        rows = self.under_one_another(columns, where or {})
        if others is not None:
            rows = rows.unionByName(others, allowMissingColumns=True)
        schema = pa.schema([item.remove_metadata() for item in arrow_schema(table)])
        declared = StructType.fromJson(delta_struct(table.columns))
        made = rows.groupBy(*keys).applyInArrow(_arrow_function(judge, table, schema), declared)
        return _described(made, table)

    def under_one_another(self, columns: Columns, where: Mapping[Table, str]) -> DataFrame:
        """Columns of several tables as one DataFrame; a column that several have is the same one."""
        parts = []
        for table, names in columns.items():
            frame = self._frames[table.full_name]
            frame = frame.where(where[table]) if table in where else frame
            parts.append(frame.select(F.lit(table.full_name).alias(TABLE), *dict.fromkeys(("cluster_id", *names))))
        return reduce(lambda some, more: some.unionByName(more, allowMissingColumns=True), parts)

    @cached_property
    def facts(self) -> "_Facts":
        """What no single group tells."""
        tables = {
            table.full_name: self._collected(self._frames[table.full_name].select("cluster_id", *names), table)
            for table, names in FACT_COLUMNS.items()
            if table in (TOPICS, CONFIGS, END_OFFSETS, PARTITION_COUNTS) and self.has(table)
        }
        return _Facts(self._topic, tables, self._log_ends(), self._steps(), self._leader_changes())

    def _collected(self, frame: DataFrame, table: Table) -> pa.Table:
        schema = arrow_schema(table)
        rows = frame.toArrow()
        return rows.cast(pa.schema([schema.field(name).remove_metadata() for name in rows.column_names]))

    def _log_ends(self) -> "dict[LogPlace, _LogEnd] | None":
        """How far each log partition is known; None: nobody says so."""
        if self.has(COVERAGE):
            rows = _ends_of_coverage(self._frames[COVERAGE.full_name].where(F.col("topic") == F.lit(self._topic)))
        elif self._log is not None:
            rows = _ends_of_records(self._log.data(), self._log.cluster())
        else:
            return None
        return {
            (row["cluster_id"], row["log_partition"]): _LogEnd(*(row[name] for name in _LogEnd._fields))
            for row in rows.toArrow().to_pylist()
        }

    def _leader_changes(self) -> "dict[LogPlace, tuple[int, ...]]":
        """Where leader epochs of log partitions begin, as batches show it; records do not."""
        if not self.has(RECORD_BATCHES):
            return {}
        frame = self._frames[RECORD_BATCHES.full_name]
        frame = frame.where((F.col("topic") == F.lit(self._topic)) & F.col("leader_epoch").isNotNull())
        epochs = frame.groupBy("cluster_id", F.col("partition").alias(LOG_PARTITION), "leader_epoch")
        changes: dict[LogPlace, list[int]] = {}
        for row in epochs.agg(F.min("base_offset").alias("log_offset")).toArrow().to_pylist():
            changes.setdefault((row["cluster_id"], row[LOG_PARTITION]), []).append(row["log_offset"])
        return {log: tuple(sorted(offsets)) for log, offsets in changes.items()}

    def _steps(self) -> "dict[LogPlace, list[LogAnomalyRow]]":
        """Where the time of log partitions goes back."""
        if self.has(RECORD_BATCHES):
            frame = self._frames[RECORD_BATCHES.full_name].where(F.col("topic") == F.lit(self._topic))
            at_ms = F.unix_millis("max_timestamp")
            frame = frame.select(
                "cluster_id",
                F.col("partition").alias(LOG_PARTITION),
                F.col("base_offset").alias("log_offset"),
                at_ms.alias("timestamp_ms"),
            )
        elif self._log is not None:
            frame = self._log.data().select(
                self._log.cluster().alias("cluster_id"), LOG_PARTITION, "log_offset", "timestamp_ms"
            )
        else:
            return {}
        steps: dict[LogPlace, list[LogAnomalyRow]] = {}
        found = _clock_steps(frame).toArrow().to_pylist()
        for row in sorted(found, key=lambda row: row["log_offset"]):
            offsets, times = pa.array([row["offset_before"], row["log_offset"]]), [row["before_ms"], row["now_ms"]]
            log_partition = row[LOG_PARTITION]
            made = time_went_back(log_partition, offsets.to_numpy(), pa.array(times).to_numpy(), 0)
            steps.setdefault((row["cluster_id"], log_partition), []).extend(made)
        return steps

    @property
    def clock_steps(self) -> DataFrame:
        """Rows of gold.log_anomalies of no group: where the time of log partitions goes back."""
        schema = pa.schema([item.remove_metadata() for item in arrow_schema(LOG_ANOMALIES)])
        parts = [
            _as_declared(rows_table(LOG_ANOMALIES, rows, {"log_topic": self._topic}), schema, cluster_id)
            for (cluster_id, _), rows in self.facts.steps.items()
        ]
        rows = pa.concat_tables(parts) if parts else schema.empty_table()
        spark = next(iter(self._frames.values())).sparkSession
        declared = StructType.fromJson(delta_struct(LOG_ANOMALIES.columns))
        return _described(spark.createDataFrame(rows, declared), LOG_ANOMALIES)


FACT_COLUMNS: Final[Columns] = {
    TOPICS: ("topic", "topic_id", "valid_to", "learned_from"),
    CONFIGS: tuple(name for name in CONFIGS.column_names if name not in ("cluster_id", "to_log_offset")),
    COVERAGE: ("topic", "partition", "from_offset", "to_offset", "kind", "last_timestamp"),
    END_OFFSETS: ("topic", "partition", "sampled_at", "end_offset"),
    RECORD_BATCHES: ("topic", "partition", "base_offset", "max_timestamp", "leader_epoch"),
    PARTITION_COUNTS: ("topic_id", "topic", "partition_count", "valid_from", "learned_from"),
}


def _require(frame: DataFrame, table: Table, names: Iterable[str]) -> None:
    """Raises RecordsError where a DataFrame lacks a column of a table, or has another type."""
    types = {item.name: item.dataType.simpleString() for item in frame.schema}
    declared = {column.name: sql_type(column.type).replace(": ", ":").lower() for column in table.columns}
    for name in dict.fromkeys(names):
        if name not in types:
            raise RecordsError(
                f"{table.full_name} has no column {name!r}: give the table as a replay or a warehouse has it; this one "
                f"has {', '.join(types) or 'no columns'}"
            )
        if types[name] != declared[name].replace(", ", ","):
            raise RecordsError(
                f"column {name!r} of {table.full_name} is {types[name].upper()}: cast it to {declared[name].upper()}"
            )


def _described(frame: DataFrame, table: Table) -> DataFrame:
    return frame.select(
        *(F.col(column.name).alias(column.name, metadata={"comment": column.comment}) for column in table.columns)
    )


# --- what no single group tells

LogPlace = tuple[str | None, int]
"""Cluster and log partition."""


class _LogEnd(NamedTuple):
    """How far a log partition is known."""

    first_missing: int | None
    """None: nothing is."""
    last_missing: int | None
    """Last offset that was never read, or could not be."""
    next_offset: int | None
    end_ms: int | None
    """When its newest record was written."""
    gaps: Sequence[int] = ()
    """Where parts of it begin that were never read, or could not be, ascending."""


def _ends_of_coverage(coverage: DataFrame) -> DataFrame:
    is_captured = F.col("kind") == F.lit("CAPTURED")
    is_hole = F.col("kind").isin("MISSING", "CORRUPT")
    return coverage.groupBy("cluster_id", F.col("partition").alias(LOG_PARTITION)).agg(
        F.min(F.when(~is_captured, F.col("from_offset"))).alias("first_missing"),
        F.max(F.when(is_hole, F.col("to_offset"))).alias("last_missing"),
        F.max(F.when(is_captured, F.col("to_offset") + 1)).alias("next_offset"),
        F.max(F.when(is_captured, F.unix_millis("last_timestamp"))).alias("end_ms"),
        F.sort_array(F.collect_list(F.when(is_hole, F.col("from_offset")))).alias("gaps"),
    )


def _ends_of_records(records: DataFrame, cluster_id: Any) -> DataFrame:
    """The same as records alone show it: an offset that none of them has is missing, whatever the reason."""
    rows = records.select(cluster_id.alias("cluster_id"), LOG_PARTITION, "log_offset", "timestamp_ms")
    before = F.lag("log_offset", 1, -1).over(Window.partitionBy("cluster_id", LOG_PARTITION).orderBy("log_offset"))
    rows = rows.withColumn("offset_before", before)
    is_gap = F.col("log_offset") - F.col("offset_before") > 1
    return rows.groupBy("cluster_id", LOG_PARTITION).agg(
        F.min(F.when(is_gap, F.col("offset_before") + 1)).alias("first_missing"),
        F.max(F.when(is_gap, F.col("log_offset") - 1)).alias("last_missing"),
        (F.max("log_offset") + 1).alias("next_offset"),
        F.max(F.when(F.col("timestamp_ms") >= 0, F.col("timestamp_ms"))).alias("end_ms"),
        # compaction left them, as far as records show
        F.array().cast("array<bigint>").alias("gaps"),
    )


def _clock_steps(rows: DataFrame) -> DataFrame:
    """Records, or batches, that are older than the one before them."""
    in_order = Window.partitionBy("cluster_id", LOG_PARTITION).orderBy("log_offset")
    timed = rows.where(F.col("timestamp_ms") >= 0).select(
        "cluster_id",
        LOG_PARTITION,
        "log_offset",
        F.col("timestamp_ms").alias("now_ms"),
        F.lag("log_offset").over(in_order).alias("offset_before"),
        F.lag("timestamp_ms").over(in_order).alias("before_ms"),
    )
    return timed.where(F.col("before_ms") - F.col("now_ms") >= F.lit(CLOCK_STEP_MS_MIN))


class _OfCluster(NamedTuple):
    """What is known of one cluster."""

    configs: Configs
    removed: Removed
    samples: Samples
    topics: pa.Table
    """silver.topics, of names that several topic ids had."""
    topic_growth: Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class _Facts:
    """What no single group tells. It goes to every task."""

    topic: str
    tables: Mapping[str, pa.Table]
    ends: Mapping[LogPlace, _LogEnd] | None
    steps: Mapping[LogPlace, Sequence[LogAnomalyRow]]
    leader_changes: Mapping[LogPlace, tuple[int, ...]]
    _found: dict[str | None, _OfCluster] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_found": {}}

    def of(self, cluster_id: str | None) -> _OfCluster:
        """Of one cluster, made once in a task."""
        if cluster_id not in self._found:
            rows = {
                name: table.filter(pc.equal(table["cluster_id"], pa.scalar(cluster_id, pa.string())))
                for name, table in self.tables.items()
            }
            files = SilverRows(rows)
            named = rows.get(TOPICS.full_name, TOPICS_READ.empty_table())
            names = named["topic"].value_counts().to_pylist()
            several = pa.array([it["values"] for it in names if it["counts"] > 1], pa.string())
            self._found[cluster_id] = _OfCluster(
                configs(files) if CONFIGS.full_name in rows else Configs(()),
                removed_topics(files),
                end_samples(files),
                named.filter(pc.is_in(named["topic"], value_set=several)),
                topic_growth(files) if PARTITION_COUNTS.full_name in rows else {},
            )
        return self._found[cluster_id]

    def end(self, cluster_id: str | None, log_partition: int) -> _LogEnd | None:
        """How far a log partition is known."""
        return None if self.ends is None else self.ends.get((cluster_id, log_partition))

    def whole_to(self, cluster_id: str | None, log_partition: int) -> int:
        """The first offset that is missing."""
        end = self.end(cluster_id, log_partition)
        if end is None:
            return BEFORE_ALL if self.ends is None else WHOLE
        return WHOLE if end.first_missing is None else end.first_missing

    def work(self, cluster_id: str | None, files: SilverRows, inference: InferenceSettings, at: int) -> AuditWork:
        """The audit of one log partition."""
        end = self.end(cluster_id, at)
        return AuditWork(
            cluster_id=cluster_id or "",
            number=0,
            topic=self.topic,
            log_partitions=(at,),
            files=files,
            targets={},
            inference=inference,
            whole_to={at: self.whole_to(cluster_id, at)},
            gaps={at: () if end is None else tuple(end.gaps)},
            leader_changes={at: self.leader_changes.get((cluster_id, at), ())},
            topic_growth=self.of(cluster_id).topic_growth,
            clock_steps={at: tuple(row.log_offset for row in self.steps.get((cluster_id, at), ()))},
        )


TOPICS_READ: Final = pa.schema([arrow_schema(TOPICS).field(name) for name in ("cluster_id", *FACT_COLUMNS[TOPICS])])


# --- what happens to the rows of one key, in a worker

Judge = Callable[[pa.Table], Iterator[pa.Table]]
"""What becomes of the rows of one key: rows of gold, the cluster left out."""


class Gathered(AuditParts):
    """Rows of one table of gold, kept; those of others are dropped."""

    def __init__(self, work: AuditWork, table: Table) -> None:
        super().__init__(work)
        self._table = table
        self.rows: list[pa.Table] = []

    def write_rows(self, table: Table, rows: Sequence[NamedTuple], log_partition: int) -> None:
        """Keep rows of the core."""
        if table == self._table:
            super().write_rows(table, rows, log_partition)

    def write(self, table: Table, rows: pa.Table, *, is_settled: bool = True) -> None:
        """Keep rows."""
        self.row_count += rows.num_rows
        if table == self._table and rows.num_rows:
            self.rows.append(rows)


@dataclass(frozen=True, slots=True)
class _JudgeGroup:
    """Rows of one table, of one group of `__consumer_offsets`."""

    table: Table
    facts: _Facts
    inference: InferenceSettings

    def __call__(self, rows: pa.Table) -> Iterator[pa.Table]:
        cluster_id, log_partition = rows["cluster_id"][0].as_py(), rows[LOG_PARTITION][0].as_py()
        known = self.facts.of(cluster_id)
        files = SilverRows({**_apart(rows, GROUP_COLUMNS), TOPICS.full_name: known.topics})
        work = self.facts.work(cluster_id, files, self.inference, log_partition)
        with Gathered(work, self.table) as parts:
            lags = LagWriter(known.samples if self.table == LAG_HISTORY else {}, self.inference, parts)
            audit_whole_log(log_partition, work, parts, known.configs, known.removed, lags)
        yield from parts.rows


@dataclass(frozen=True, slots=True)
class _JudgeShareGroup:
    """Rows of one table, of the share partitions of one group: one log partition after another."""

    table: Table
    facts: _Facts
    inference: InferenceSettings

    def __call__(self, rows: pa.Table) -> Iterator[pa.Table]:
        cluster_id = rows["cluster_id"][0].as_py()
        known = self.facts.of(cluster_id)
        found = _apart(rows, {**SHARE_COLUMNS, **SHARE_MEMBER_COLUMNS})
        files = SilverRows(found)
        members = share_members(files)
        states = found[SHARE_PARTITION_STATES.full_name]
        counts = []
        for log_partition in sorted(states[LOG_PARTITION].unique().to_pylist()):
            work = self.facts.work(cluster_id, files, self.inference, log_partition)
            try:
                with Gathered(work, self.table) as parts:
                    audit_log(log_partition, work, parts, known.configs, members)
            except MemoryError:
                raise
            except Exception:  # what was gathered is gone: what can be judged is judged, and of what cannot is a row
                with Gathered(work, self.table) as parts:
                    audit_by_group(log_partition, work, parts, known.configs, members)
            yield from parts.rows
            counts += parts.done.share_counts
        if self.table == SHARE_GROUP_SUMMARY and (days := merged_days(counts, self._days(rows))):
            yield rows_table(SHARE_GROUP_SUMMARY, days, {})

    def _days(self, rows: pa.Table) -> Iterator[ShareGroupDayRow]:
        """Epochs and members, as the log of groups has them."""
        files = SilverRows(_apart(rows, SHARE_LIFE_COLUMNS))
        places = rows.filter(pc.is_in(rows[TABLE], value_set=pa.array([it.full_name for it in SHARE_LIFE_COLUMNS])))
        for log_partition in sorted(places[LOG_PARTITION].unique().to_pylist()):
            for life in group_lives(files, log_partition):
                types = {row.group_type for row in life.generations} | {row.group_type for row in life.members}
                if SHARE in types:
                    yield from share_group_days(with_times(in_order(life)))


@dataclass(frozen=True, slots=True)
class _Hanging:
    """Rows of gold.hanging_transactions, of one group."""

    facts: _Facts

    def __call__(self, rows: pa.Table) -> Iterator[pa.Table]:
        cluster_id, log_partition = rows["cluster_id"][0].as_py(), rows[LOG_PARTITION][0].as_py()
        end = self.facts.end(cluster_id, log_partition)
        if end is None or end.next_offset is None:
            return
        hole = BEFORE_ALL if end.last_missing is None else end.last_missing
        found = [
            hanging(commits, end.end_ms, end.next_offset, has_hole_behind=hole > commits.first_log_offset)
            for commits in open_commits(rows.select(PENDING_COLUMNS))
        ]
        if made := sorted((row for row in found if row is not None), key=lambda row: row.first_log_offset):
            yield rows_table(HANGING_TRANSACTIONS, made, {})


def _apart(rows: pa.Table, columns: Columns) -> dict[str, pa.Table]:
    """Rows of several tables under one another, by table; columns that Spark did not bring are left out."""
    found, there = {}, set(rows.column_names)
    for table, names in columns.items():
        own = [name for name in dict.fromkeys(names) if name in there]
        found[table.full_name] = rows.filter(pc.equal(rows[TABLE], table.full_name)).select(own)
    return found


def _arrow_function(judge: Judge, table: Table, schema: pa.Schema) -> Callable[[Any], Any]:
    def apply(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(batches)
        cluster_id = rows["cluster_id"][0].as_py()
        for made in judge(rows):
            yield from _as_declared(made, schema, cluster_id).to_batches()

    return apply


def _as_declared(rows: pa.Table, schema: pa.Schema, cluster_id: str | None) -> pa.Table:
    """Rows of gold with all columns of their table: partition columns of files are in no row."""
    of_files = {
        "cluster_id": pa.repeat(pa.scalar(cluster_id, pa.string()), rows.num_rows),
        "is_settled": pa.repeat(pa.scalar(False), rows.num_rows),
    }
    arrays = [(rows[item.name] if item.name in rows.column_names else of_files[item.name]) for item in schema]
    return pa.Table.from_arrays([it.cast(item.type) for it, item in zip(arrays, schema, strict=True)], schema=schema)
