"""Silver as DataFrames given by a caller, and the results of the judges for the rows of each key."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from typing import Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as Spark's own documentation has it)

from coordinator_core.inference.audit.log_anomalies import LogAnomalyRow, time_went_back
from coordinator_core.inference.facts.log_facts import LEADERLESS_LOG, NONE_MS, UNKNOWN_LEADERS, LogFacts
from groupledger.facts import (
    FACT_COLUMNS,
    UNKNOWN_END,
    UNKNOWN_LOG,
    Columns,
    Facts,
    LogEnd,
    LogPlace,
    clock_steps,
    ends_of_coverage,
    ends_of_records,
    leaders_of,
)
from groupledger.judges import SHARE_LIFE_COLUMNS, TABLE, Judge
from groupledger.records import RecordsError, named_columns
from groupledger.sparks import STREAMS, Batches, collected, for_each_key, in_one_pass, sorted_by_key
from jobs.delta.arrow_columns import columns_read
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.core_tables import rows_table
from jobs.delta.part_files import LOG_PARTITION
from jobs.delta.spark_schemas import described, spark_schema
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables.bronze import COVERAGE, END_OFFSETS, QUARANTINE, RECORD_BATCHES
from schemas.tables.declare import Table
from schemas.tables.gold import LOG_ANOMALIES
from schemas.tables.silver import CONFIGS, PARTITION_COUNTS, SHARE_PARTITION_STATES, TOPICS

Leaders = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]
"""`LogFacts.leader_changes` and `LogFacts.leaderless`."""


class Log(Protocol):
    """What is known of log partitions, besides silver: `Keyed`, or what a ledger keeps of it."""

    @property
    def before(self) -> Mapping[LogPlace, tuple[int, int]]: ...

    def data(self) -> DataFrame: ...

    def cluster(self) -> Column: ...

    def findings(self) -> DataFrame: ...


class Replayed(Protocol):
    """The result of a replay."""

    @property
    def keyed(self) -> Log: ...

    @property
    def tables(self) -> Mapping[str, DataFrame]: ...


Silver = Replayed | Mapping[str, DataFrame]
"""The result of a replay, or DataFrames by full table name, such as `silver.group_members`."""


class SilverFrames:
    """DataFrames of silver, and of further inputs."""

    def __init__(self, topic: str, frames: Mapping[str, DataFrame], log: Log | None) -> None:
        self._topic = topic
        self._frames = frames
        self._log = log

    @classmethod
    def of(
        cls, silver: Silver, topic: str, columns: Columns, given: Mapping[Table, DataFrame | None]
    ) -> "SilverFrames":
        """From the caller's silver. Raises RecordsError for missing tables or columns."""
        log: Log | None = None
        if isinstance(silver, Mapping):
            frames = dict(silver)
        elif hasattr(silver, "keyed"):
            frames, log = dict(silver.tables), silver.keyed
        else:
            replay = "replay_groups" if topic == OFFSETS_TOPIC else "replay_share_partitions"
            raise RecordsError(
                f"silver is a {type(silver).__name__}: give what {replay} gave, of raw records {replay}(records); or "
                "DataFrames by the tables' names"
            )
        frames |= {table.full_name: frame for table, frame in given.items() if frame is not None}
        for table in columns:
            if table.full_name not in frames:
                raise RecordsError(
                    f"silver has no {table.full_name}: give what a replay gave, or DataFrames by the tables' names; "
                    f"these have {', '.join(frames) or 'nothing'}"
                )
        for table, names in {**SHARE_LIFE_COLUMNS, **columns, **FACT_COLUMNS}.items():
            if table.full_name in frames:
                frames[table.full_name] = named_columns(frames[table.full_name], table, names)
        return cls(topic, frames, log)

    def has(self, table: Table) -> bool:
        return table.full_name in self._frames

    def require(self, columns: Columns) -> None:
        """Raise RecordsError for missing columns."""
        for table, names in columns.items():
            named_columns(self._frames[table.full_name], table, names)

    @property
    def knows_ends(self) -> bool:
        return self._log is not None or self.has(COVERAGE)

    def judged(
        self,
        tables: Sequence[Table],
        columns: Columns,
        keys: Sequence[str],
        judge: "Judge",
        *,
        where: Mapping[Table, str] | None = None,
        others: DataFrame | None = None,
    ) -> DataFrame:
        """The judge's results for the rows of each key: rows of a gold table, or of several as `STREAMS`. `others`:
        further rows of silver."""
        rows = self.under_one_another(columns, where or {})
        if others is not None:
            rows = rows.unionByName(others, allowMissingColumns=True)
        function, sorted_ = for_each_key(_declared_function(judge), keys), sorted_by_key(rows, keys)
        if len(tables) > 1:
            return sorted_.mapInArrow(in_one_pass(function), STREAMS)
        made = sorted_.mapInArrow(_of_one_table(function), spark_schema(tables[0].columns))
        return described(made, tables[0])

    def under_one_another(self, columns: Columns, where: Mapping[Table, str]) -> DataFrame:
        """Columns of several tables combined in one DataFrame; columns of the same name are shared."""
        parts = []
        for table, names in columns.items():
            frame = self._frames[table.full_name]
            frame = frame.where(where[table]) if table in where else frame
            parts.append(frame.select(F.lit(table.full_name).alias(TABLE), *dict.fromkeys(("cluster_id", *names))))
        return reduce(lambda some, more: some.unionByName(more, allowMissingColumns=True), parts)

    @cached_property
    def facts(self) -> "Facts":
        """Facts about logs and clusters."""
        tables = {
            table.full_name: self._collected(self._frames[table.full_name].select("cluster_id", *names), table)
            for table, names in FACT_COLUMNS.items()
            if table in (TOPICS, CONFIGS, END_OFFSETS, PARTITION_COUNTS) and self.has(table)
        }
        ends, steps = self._log_ends(), self._steps()
        others = UNKNOWN_LOG if ends is None else LEADERLESS_LOG
        return Facts(self._topic, tables, ends or {}, steps, self._logs(ends or {}, steps, others), others)

    def _collected(self, frame: DataFrame, table: Table) -> pa.Table:
        rows = collected(frame)
        return rows.cast(columns_read(table, rows.column_names))

    def _log_ends(self) -> "dict[LogPlace, LogEnd] | None":
        """How far each log partition is known; None: unknown."""
        if self.has(COVERAGE):
            rows = ends_of_coverage(self._frames[COVERAGE.full_name].where(F.col("topic") == F.lit(self._topic)))
        elif self._log is not None:
            rows = ends_of_records(self._log.data(), self._log.cluster(), self._log.before)
        elif self._topic == SHARE_TOPIC:  # every record of that log is a state, and none of them is compacted
            states = self._frames[SHARE_PARTITION_STATES.full_name]
            states = states.withColumn("timestamp_ms", F.unix_millis("valid_from"))
            rows = ends_of_records(states, F.col("cluster_id"))
        else:
            return None
        return {
            (row["cluster_id"], row["log_partition"]): LogEnd(*(row[name] for name in LogEnd._fields))
            for row in collected(rows).to_pylist()
        }

    def _logs(
        self, ends: Mapping[LogPlace, LogEnd], steps: Mapping[LogPlace, Sequence[LogAnomalyRow]], others: LogFacts
    ) -> dict[LogPlace, LogFacts]:
        """What is known of each log partition. `others`: of those of which nothing else is."""
        leaders, unread = self._leaders(), self._unread()
        found: dict[LogPlace, LogFacts] = {}
        for place in {*ends, *steps, *leaders, *unread}:
            end, (changes, leaderless) = ends.get(place, UNKNOWN_END), leaders.get(place, ((), UNKNOWN_LEADERS))
            found[place] = LogFacts(
                whole_to=end.holes[0] if end.holes else others.whole_to,
                clock_steps=tuple(row.log_offset for row in steps.get(place, ())),
                leader_changes=changes,
                leaderless=leaderless,
                gaps=tuple(end.gaps),
                are_gaps_known=self.has(COVERAGE),  # records do not show it
                holes=tuple(end.holes),
                hole_ends=tuple(NONE_MS if it is None else it for it in end.hole_ends),
                unread=unread.get(place, {}),
            )
        return found

    def _leaders(self) -> "dict[LogPlace, Leaders]":
        """Who wrote each log partition, from batches; records do not show it."""
        if not self.has(RECORD_BATCHES):
            return {}
        frame = self._frames[RECORD_BATCHES.full_name].where(F.col("topic") == F.lit(self._topic))
        changes: dict[LogPlace, list[int]] = {}
        leaderless: dict[LogPlace, list[tuple[int, int]]] = {}
        for row in collected(leaders_of(frame)).to_pylist():
            log = row["cluster_id"], row[LOG_PARTITION]
            if row["leader_epoch"] is None or row["leader_epoch"] < 0:
                leaderless.setdefault(log, []).append((row["first"], row["last"]))
            else:
                changes.setdefault(log, []).append(row["first"])
        return {
            log: (tuple(sorted(offsets)), ((0, min(offsets) - 1), *leaderless.get(log, ())))
            for log, offsets in changes.items()
        }

    def _unread(self) -> "dict[LogPlace, dict[str, int]]":
        """By group, the offset of its first record that cannot be read."""
        if self.has(QUARANTINE):
            frame = self._frames[QUARANTINE.full_name]
        elif self._log is not None and self._topic == OFFSETS_TOPIC:
            frame = self._log.findings()
        else:
            return {}
        frame = frame.where((F.col("topic") == F.lit(self._topic)) & F.col("resolved_at").isNull())
        rows = frame.where(F.col("group_id").isNotNull()).groupBy("cluster_id", "partition", "group_id")
        found: dict[LogPlace, dict[str, int]] = {}
        for row in collected(rows.agg(F.min("offset").alias("offset"))).to_pylist():
            if row["offset"] is not None:
                found.setdefault((row["cluster_id"], row["partition"]), {})[row["group_id"]] = row["offset"]
        return found

    def _steps(self) -> "dict[LogPlace, list[LogAnomalyRow]]":
        """The clock steps of log partitions."""
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
            frame = self._log.data().withColumn("cluster_id", self._log.cluster())
        else:
            return {}
        steps: dict[LogPlace, list[LogAnomalyRow]] = {}
        found = collected(clock_steps(frame)).to_pylist()
        for row in sorted(found, key=lambda row: row["log_offset"]):
            offsets, times = pa.array([row["offset_before"], row["log_offset"]]), [row["before_ms"], row["now_ms"]]
            log_partition = row[LOG_PARTITION]
            made = time_went_back(log_partition, offsets.to_numpy(), pa.array(times).to_numpy(), 0)
            steps.setdefault((row["cluster_id"], log_partition), []).extend(made)
        return steps

    @property
    def clock_steps(self) -> DataFrame:
        """Rows of gold.log_anomalies without a group: clock steps of log partitions."""
        schema = arrow_schema(LOG_ANOMALIES)
        parts = [
            as_declared(rows_table(LOG_ANOMALIES, rows, {"log_topic": self._topic}), schema, cluster_id)
            for (cluster_id, _), rows in self.facts.steps.items()
        ]
        rows = pa.concat_tables(parts) if parts else schema.empty_table()
        spark = next(iter(self._frames.values())).sparkSession
        declared = spark_schema(LOG_ANOMALIES.columns)
        values = [tuple(row.values()) for row in rows.to_pylist()]
        return described(spark.createDataFrame(values, declared), LOG_ANOMALIES)


def _declared_function(judge: Judge) -> Callable[[Batches], Iterator[tuple[Table, pa.Table]]]:
    def apply(batches: Batches) -> Iterator[tuple[Table, pa.Table]]:
        rows = pa.Table.from_batches(batches)
        cluster_id = rows["cluster_id"][0].as_py()
        for table, made in judge(rows):
            yield table, as_declared(made, arrow_schema(table), cluster_id)

    return apply


def _of_one_table(function: Callable[[Batches], Iterator[tuple[Table, pa.Table]]]) -> Callable[[Batches], Batches]:
    def apply(batches: Batches) -> Batches:
        for _, rows in function(batches):
            yield from rows.to_batches()

    return apply


def as_declared(rows: pa.Table, schema: pa.Schema, cluster_id: str | None) -> pa.Table:
    """Rows of gold with all columns of their table, including the partition columns of its files."""
    of_files = {
        "cluster_id": pa.repeat(pa.scalar(cluster_id, pa.string()), rows.num_rows),
        "is_settled": pa.repeat(pa.scalar(False), rows.num_rows),
    }
    arrays = [(rows[item.name] if item.name in rows.column_names else of_files[item.name]) for item in schema]
    return pa.Table.from_arrays([it.cast(item.type) for it, item in zip(arrays, schema, strict=True)], schema=schema)
