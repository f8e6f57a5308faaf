"""Facts about a whole log or cluster rather than a single group: small, collected once, sent to every task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (as Spark's own documentation has it)

from coordinator_core.inference.audit.log_anomalies import CLOCK_STEP_MS_MIN, LogAnomalyRow
from coordinator_core.inference.commits.deletions import Removed
from coordinator_core.inference.commits.lag import Samples
from coordinator_core.inference.facts.configs import Configs
from coordinator_core.inference.facts.life import PartitionCounts
from coordinator_core.inference.facts.log_facts import LEADERLESS_LOG, UNKNOWN_LEADERS, LogFacts
from coordinator_core.inference.facts.settings import InferenceSettings
from groupledger.silver import SilverRows
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.part_files import LOG_PARTITION
from jobs.gold.audit_lag import end_samples
from jobs.gold.hanging_transactions import CLEANED
from jobs.gold.share_reader import configs, counts_by_id, removed_topics, topic_growth, topic_partition_counts
from jobs.gold.task import AuditWork
from schemas.tables.bronze import COVERAGE, END_OFFSETS, QUARANTINE, RECORD_BATCHES
from schemas.tables.declare import Table
from schemas.tables.silver import CONFIGS, PARTITION_COUNTS, TOPICS

Columns = Mapping[Table, tuple[str, ...]]

FACT_COLUMNS: Final[Columns] = {
    TOPICS: ("topic", "topic_id", "valid_to", "learned_from"),
    CONFIGS: tuple(name for name in CONFIGS.column_names if name not in ("cluster_id", "to_log_offset")),
    COVERAGE: ("topic", "partition", "from_offset", "to_offset", "kind", "reason", "first_timestamp", "last_timestamp"),
    END_OFFSETS: ("topic", "partition", "sampled_at", "end_offset"),
    RECORD_BATCHES: ("topic", "partition", "base_offset", "last_offset", "max_timestamp", "leader_epoch", "magic"),
    QUARANTINE: ("topic", "partition", "offset", "group_id", "resolved_at"),
    PARTITION_COUNTS: ("topic_id", "topic", "partition_count", "valid_from", "learned_from"),
}

TOPICS_READ: Final = pa.schema([arrow_schema(TOPICS).field(name) for name in ("cluster_id", *FACT_COLUMNS[TOPICS])])

LogPlace = tuple[str | None, int]
"""Cluster and log partition."""


class LogEnd(NamedTuple):
    """How far a log partition is known."""

    last_missing: int | None
    """Last offset that was never read, or could not be read."""
    next_offset: int | None
    end_ms: int | None
    """Timestamp of its newest record."""
    last_cleaned: int | None = None
    """Last offset that the log cleaner is known to have removed."""
    gaps: Sequence[int] = ()
    """The first offset of each range that was never read, or could not be read, ascending."""
    holes: Sequence[int] = ()
    """The first offset of each missing range, for any reason, ascending."""
    hole_ends: Sequence[int | None] = ()
    """For each of `holes`, the time (ms) of a record behind it."""


UNKNOWN_END: Final = LogEnd(None, None, None)
UNKNOWN_LOG: Final = LogFacts(whole_to=-1, leaderless=UNKNOWN_LEADERS, are_gaps_known=False)
"""Nothing can be concluded from what it lacks."""


def ends_of_coverage(coverage: DataFrame) -> DataFrame:
    is_captured = F.col("kind") == F.lit("CAPTURED")
    is_hole = F.col("kind").isin("MISSING", "CORRUPT")
    begin_ms = F.when(is_captured, F.unix_millis("first_timestamp"))
    behind = (
        Window.partitionBy("cluster_id", "partition").orderBy("from_offset").rowsBetween(1, Window.unboundedFollowing)
    )
    coverage = coverage.withColumn("behind_ms", F.first(begin_ms, ignorenulls=True).over(behind))
    holes = F.sort_array(F.collect_list(F.when(~is_captured, F.struct("from_offset", "behind_ms"))))
    return coverage.groupBy("cluster_id", F.col("partition").alias(LOG_PARTITION)).agg(
        F.max(F.when(is_hole, F.col("to_offset"))).alias("last_missing"),
        F.max(F.when(is_captured, F.col("to_offset") + 1)).alias("next_offset"),
        F.max(F.when(is_captured, F.unix_millis("last_timestamp"))).alias("end_ms"),
        F.max(F.when(F.col("reason").isin(*CLEANED), F.col("to_offset"))).alias("last_cleaned"),
        F.sort_array(F.collect_list(F.when(is_hole, F.col("from_offset")))).alias("gaps"),
        holes["from_offset"].alias("holes"),
        holes["behind_ms"].alias("hole_ends"),
    )


def as_ranges(rows: DataFrame) -> DataFrame:
    """Ranges of records: first offset and its time, last offset and its time. A record is one, too."""
    if "from_offset" not in rows.columns:
        rows = rows.withColumns({"from_offset": F.col("log_offset"), "from_ms": F.col("timestamp_ms")})
    return rows.select("cluster_id", LOG_PARTITION, "from_offset", "from_ms", "log_offset", "timestamp_ms")


def last_before(before: Mapping[LogPlace, tuple[int, int]]) -> Column:
    """Last offset of earlier records of a row's log partition; -1: there are none."""
    found: Any = F
    for (cluster, partition), (_, offset) in before.items():  # side by side: Connect bounds how deep one is in another
        is_it = F.col("cluster_id").eqNullSafe(F.lit(cluster)) & (F.col(LOG_PARTITION) == F.lit(partition))
        found = found.when(is_it, F.lit(offset))
    last: Column = found.otherwise(F.lit(-1)) if before else F.lit(-1)
    return last.cast("bigint")


def ends_of_records(
    records: DataFrame, cluster_id: Any, before: Mapping[LogPlace, tuple[int, int]] = MappingProxyType({})
) -> DataFrame:
    """Log ends from records alone: every offset without a record is missing, for any reason. `before`: first and last
    offset of earlier records, of which nothing else is known."""
    rows = as_ranges(records.withColumn("cluster_id", cluster_id))
    offset_before = F.lag("log_offset").over(Window.partitionBy("cluster_id", LOG_PARTITION).orderBy("log_offset"))
    rows = rows.withColumn("offset_before", F.coalesce(offset_before, last_before(before)))
    is_gap = F.col("from_offset") - F.col("offset_before") > 1
    behind_ms = F.when(F.col("from_ms") >= 0, F.col("from_ms"))
    place = F.struct((F.col("offset_before") + 1).alias("from_offset"), behind_ms.alias("behind_ms"))
    holes = F.sort_array(F.collect_list(F.when(is_gap, place)))
    return rows.groupBy("cluster_id", LOG_PARTITION).agg(
        F.max(F.when(is_gap, F.col("from_offset") - 1)).alias("last_missing"),
        (F.max("log_offset") + 1).alias("next_offset"),
        F.max(F.when(F.col("timestamp_ms") >= 0, F.col("timestamp_ms"))).alias("end_ms"),
        F.lit(None).cast("bigint").alias("last_cleaned"),
        # records do not show which ones were made by compaction: see `LogFacts.are_gaps_known`
        F.array().cast("array<bigint>").alias("gaps"),
        holes["from_offset"].alias("holes"),
        holes["behind_ms"].alias("hole_ends"),
    )


def leaders_of(batches: DataFrame) -> DataFrame:
    """By leader epoch, its first offset; without one, also its last. Before message format 2 a batch has none: what a
    checkpoint of its replica says is no proof."""
    epoch = F.when(F.col("magic") >= F.lit(2), F.col("leader_epoch"))
    by_epoch = batches.groupBy("cluster_id", F.col("partition").alias(LOG_PARTITION), epoch.alias("leader_epoch"))
    return by_epoch.agg(F.min("base_offset").alias("first"), F.max("last_offset").alias("last"))


def clock_steps(rows: DataFrame) -> DataFrame:
    """Records, or batches, with an earlier timestamp than the one before them."""
    in_order = Window.partitionBy("cluster_id", LOG_PARTITION).orderBy("log_offset")
    timed = (
        as_ranges(rows)
        .where(F.col("from_ms") >= 0)
        .select(
            "cluster_id",
            LOG_PARTITION,
            F.col("from_offset").alias("log_offset"),
            F.col("from_ms").alias("now_ms"),
            F.lag("log_offset").over(in_order).alias("offset_before"),
            F.lag("timestamp_ms").over(in_order).alias("before_ms"),
        )
    )
    return timed.where(F.col("before_ms") - F.col("now_ms") >= F.lit(CLOCK_STEP_MS_MIN))


class OfCluster(NamedTuple):
    """Facts about one cluster."""

    configs: Configs
    removed: Removed
    samples: Samples
    topics: pa.Table
    """silver.topics, for names that several topic ids had."""
    topic_growth: Mapping[str, Sequence[int]]
    partition_counts: PartitionCounts


@dataclass(frozen=True)
class Facts:
    """Facts about logs and clusters, sent to every task."""

    topic: str
    tables: Mapping[str, pa.Table]
    ends: Mapping[LogPlace, LogEnd]
    steps: Mapping[LogPlace, Sequence[LogAnomalyRow]]
    logs: Mapping[LogPlace, LogFacts]
    other_logs: LogFacts = LEADERLESS_LOG
    """Of a log partition that is not among `logs`."""
    _found: dict[str | None, OfCluster] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_found": {}}

    def of(self, cluster_id: str | None) -> OfCluster:
        """The facts of one cluster, computed once in a task."""
        if cluster_id not in self._found:
            rows = {
                name: table.filter(pc.equal(table["cluster_id"], pa.scalar(cluster_id, pa.string())))
                for name, table in self.tables.items()
            }
            files = SilverRows(rows)
            named = rows.get(TOPICS.full_name, TOPICS_READ.empty_table())
            names = named["topic"].value_counts().to_pylist()
            counts = counts_by_id(files) if PARTITION_COUNTS.full_name in rows else {}
            several = pa.array([it["values"] for it in names if it["counts"] > 1], pa.string())
            self._found[cluster_id] = OfCluster(
                configs(files) if CONFIGS.full_name in rows else Configs(()),
                removed_topics(files),
                end_samples(files),
                named.filter(pc.is_in(named["topic"], value_set=several)),
                topic_growth(counts),
                topic_partition_counts(counts),
            )
        return self._found[cluster_id]

    def work(self, cluster_id: str | None, files: SilverRows, inference: InferenceSettings, at: int) -> AuditWork:
        """The audit input for one log partition."""
        return AuditWork(
            cluster_id=cluster_id or "",
            number=0,
            topic=self.topic,
            log_partitions=(at,),
            files=files,
            targets={},
            inference=inference,
            logs={at: self.logs.get((cluster_id, at), self.other_logs)},
            finds_clock_steps=False,
            removed_topics=self.of(cluster_id).removed,
            topic_growth=self.of(cluster_id).topic_growth,
            partition_counts=self.of(cluster_id).partition_counts,
        )
