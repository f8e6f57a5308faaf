"""A ledger in a user's own lake: silver and gold of records as they come, in tables of a format with MERGE.

The states of keys are written last, so a batch that failed is added again from the same states, with the same number.
Of keys with new records, all rows are replaced that were not final, or that an earlier attempt had written.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce
from itertools import chain
from operator import and_
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  (as Spark's own documentation has it)

from coordinator_core.inference.facts.settings import InferenceSettings
from groupledger.audit import audit_groups, audit_share_partitions
from groupledger.facts import last_before
from groupledger.key_state import KEY_STATES, LogPlace
from groupledger.records import ColumnNames, RecordsError, require_time
from groupledger.replay import (
    DEFAULT_CLUSTER,
    GroupReplay,
    Keyed,
    ShareReplay,
    best_names,
    names_of,
    replay_groups,
    replay_share_partitions,
    with_names,
)
from jobs.delta.spark_schemas import described, spark_schema
from jobs.silver.tasks import NAMED_TABLES, TABLES_OF_TOPIC
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables import TABLES
from schemas.tables.bronze import QUARANTINE
from schemas.tables.common import CLUSTER_ID, LOG_PARTITION, as_key, key
from schemas.tables.declare import BIGINT, BOOLEAN, STRING, Column, Table
from schemas.tables.silver import OFFSET_COMMITS, TOPICS

_LOG_RANGES: Final = Table(
    layer="api",
    name="log_ranges",
    comment="One row a range of records that were read without a gap and whose times do not go back.",
    columns=(
        CLUSTER_ID,
        key("log_topic", STRING, "Internal topic."),
        as_key(LOG_PARTITION),
        key("from_offset", BIGINT, "Offset of its first record."),
        Column("from_ms", BIGINT, "Time of this record, in epoch milliseconds; -1: none."),
        Column("log_offset", BIGINT, "Offset of its last record."),
        Column("timestamp_ms", BIGINT, "Time of this record."),
    ),
)
_NEXT_STATES: Final = replace(KEY_STATES, name="next_key_states")
_IS_FINAL: Final = Column("is_final", BOOLEAN, "False: new records of its key may replace the row.")
_BATCH: Final = Column("batch", BIGINT, "Number of the batch that wrote the row.")
_SILVER: Final = frozenset(chain.from_iterable(TABLES_OF_TOPIC.values()))
KEYS_OF: Final = {
    OFFSETS_TOPIC: ("cluster_id", "log_partition", "group_id"),
    SHARE_TOPIC: ("cluster_id", "log_partition", "group_id", "topic_id", "partition"),
}
"""The key of a state, by internal topic."""
_OF_GROUP: Final = ["cluster_id", "group_id"]
_KEY_OF_ERROR: Final = ["cluster_id", "topic", "partition", "offset", "base_offset", "code", "group_id", "message"]
_PLACES: Final = ("log_offset", "applied_log_offset", "from_log_offset", "to_log_offset")
_GIVEN: Final = "groupledger_given_rows"


@dataclass(frozen=True)
class _ReadLogs:
    """What is known of the logs of a topic, in place of their records: `silver_frames.Log`."""

    ranges: DataFrame
    before: Mapping[LogPlace, tuple[int, int]] = field(default_factory=dict)

    def data(self) -> DataFrame:
        return self.ranges

    def cluster(self) -> SparkColumn:
        return F.col("cluster_id")

    def findings(self) -> DataFrame:
        raise AssertionError("a ledger keeps them")


@dataclass(frozen=True)
class _Silver:
    """Rows of some groups: `silver_frames.Replayed`."""

    tables: Mapping[str, DataFrame]
    keyed: _ReadLogs


class Ledger:
    """Tables of silver and gold in a schema of a catalog, which grow by `add`."""

    def __init__(
        self,
        spark: SparkSession,
        schema: str,
        *,
        using: str = "delta",
        columns: ColumnNames | None = None,
        cluster_id: str = DEFAULT_CLUSTER,
        inference: InferenceSettings | None = None,
    ) -> None:
        """`schema`: such as `catalog.schema`; it exists. `using`: format of its tables. Others: as for
        `replay_groups` and `audit_groups`."""
        self._spark = spark
        self._schema = schema
        self._using = using
        self._columns = columns
        self._cluster_id = cluster_id
        self._inference = inference

    def add(self, records: DataFrame, batch_id: int | None = None) -> None:
        """Replay records of both topics, and bring silver and gold up to date: `foreachBatch(ledger.add)` for a stream.

        Records that the ledger has are skipped, so a batch may come again, whole or in part. Gold is judged for the
        groups that have new rows, with all their rows.
        """
        spark, records = records.sparkSession, records.persist()
        try:
            states = self._table(spark, KEY_STATES)
            batch = 1 + (states.agg(F.max("batch")).collect()[0][0] or 0)
            groups = replay_groups(records, columns=self._columns, cluster_id=self._cluster_id, state=states)
            shares = replay_share_partitions(records, columns=self._columns, cluster_id=self._cluster_id, state=states)
            following = groups.state.unionByName(shares.state)
            following.write.format(self._using).mode("overwrite").saveAsTable(self._name(_NEXT_STATES))
            following = spark.table(self._name(_NEXT_STATES))
            of_topic: dict[str, GroupReplay | ShareReplay] = {OFFSETS_TOPIC: groups, SHARE_TOPIC: shares}
            changed = {topic: _changed(states, following, topic) for topic in of_topic}
            learned = groups.topics.unionByName(self._table(spark, TOPICS))
            self._merge(best_names(learned), TOPICS)
            for topic, replay in of_topic.items():
                self._merge(_ranges(replay.keyed), _LOG_RANGES)
                self._merge(replay.errors.dropDuplicates(_KEY_OF_ERROR), QUARANTINE, keys=_KEY_OF_ERROR)
                for name, made in replay.tables.items():
                    self._replace(made, TABLES[name], changed[topic], KEYS_OF[topic], batch)
            self._judge(spark, changed)
            self._merge(following.withColumn("batch", F.lit(batch)), KEY_STATES)
        finally:
            records.unpersist()

    def read(self, name: str, *, at: datetime | None = None) -> DataFrame:
        """A table such as `silver.group_members`. `at`: as it was then."""
        table = TABLES.get(name)
        if table is None or table.layer not in ("silver", "gold"):
            raise RecordsError(f"there is no table {name!r} of silver or gold")
        return self._read(self._spark, table, at)

    def _read(self, spark: SparkSession, table: Table, at: datetime | None = None) -> DataFrame:
        frame = self._table(spark, table)
        if at is not None:
            require_time(at)
            frame = spark.read.option("timestampAsOf", at.isoformat(sep=" ")).table(self._name(table))
        if table in NAMED_TABLES:
            frame = with_names(frame, names_of(self._table(spark, TOPICS)))
        return described(frame, table)

    def _name(self, table: Table) -> str:
        return f"{self._schema}.{table.layer}_{table.name}"

    def _table(self, spark: SparkSession, table: Table) -> DataFrame:
        """A table, made where it does not exist."""
        name = self._name(table)
        if not spark.catalog.tableExists(name):
            own = (_IS_FINAL, _BATCH) if table in _SILVER else (_BATCH,) if table is KEY_STATES else ()
            empty = spark.createDataFrame([], spark_schema([*own, *table.columns])).write.format(self._using)
            (empty.partitionBy(_IS_FINAL.name) if _IS_FINAL in own else empty).saveAsTable(name)
        return spark.table(name)

    def _replace(self, made: DataFrame, table: Table, changed: DataFrame, keys: Sequence[str], batch: int) -> None:
        """Put rows of silver in place of those of the same keys that were not final."""
        places = [F.coalesce(F.col(name), F.lit(-1)) for name in _PLACES if name in table.column_names]
        is_open = F.lit(False)
        if table is OFFSET_COMMITS:  # of others it is not known which record decided them
            is_open = F.col("outcome") != F.lit("APPLIED")
        elif "to_log_offset" in table.column_names:
            is_open = F.col("to_log_offset").isNull()
        is_final = ~is_open & (F.greatest(F.lit(-1), *places) <= F.col("settled_offset"))
        rows = made.join(changed, list(keys), "left").withColumn("is_final", F.coalesce(is_final, F.lit(False)))
        rows = rows.drop("settled_offset").withColumn("batch", F.lit(batch))
        may_change = f"(not t.is_final or t.batch = {batch})"

        def replaced(there: DataFrame) -> DataFrame:
            return there.alias("t").where(may_change).join(changed, list(keys), "left_semi")

        # of commits each record has its row, which never goes away
        self._merge(rows, table, None if table is OFFSET_COMMITS else replaced, where=may_change)

    def _judge(self, spark: SparkSession, changed: Mapping[str, DataFrame]) -> None:
        """Gold of the groups with new rows."""
        groups = reduce(DataFrame.union, (rows.select(*_OF_GROUP) for rows in changed.values())).distinct().persist()
        silver = {
            topic: _Silver(
                {table.full_name: self._read(spark, table).join(groups, _OF_GROUP, "left_semi") for table in tables},
                _ReadLogs(self._table(spark, _LOG_RANGES).where(F.col("log_topic") == F.lit(topic))),
            )
            for topic, tables in TABLES_OF_TOPIC.items()
        }
        topics, unread = self._table(spark, TOPICS), self._table(spark, QUARANTINE)
        of_groups = audit_groups(silver[OFFSETS_TOPIC], topics=topics, quarantine=unread, inference=self._inference)
        of_shares = audit_share_partitions(
            silver[SHARE_TOPIC], groups=silver[OFFSETS_TOPIC], topics=topics, inference=self._inference
        )
        made: dict[str, list[DataFrame]] = {}
        for name, frame in (*of_groups.tables.items(), *of_shares.tables.items()):
            made.setdefault(name, []).append(frame)
        for name, frames in made.items():
            rows = reduce(DataFrame.unionByName, frames)
            self._merge(rows, TABLES[name], lambda there: there.join(groups, _OF_GROUP, "left_semi"))
        groups.unpersist()

    def _merge(
        self,
        rows: DataFrame,
        table: Table,
        replaced: Callable[[DataFrame], DataFrame] | None = None,
        *,
        keys: Sequence[str] = (),
        where: str = "true",
    ) -> None:
        """Put rows in place of those with the same key, and delete those of `replaced` that have no new row."""
        spark, name = rows.sparkSession, self._name(table)
        if not spark.catalog.tableExists(name):
            self._table(spark, table)
            rows.write.format(self._using).mode("append").saveAsTable(name)
            return
        keys = keys or [column.name for column in table.columns if column.is_key]
        rows = rows.persist()
        try:
            given = rows.withColumn("is_gone", F.lit(False))
            if replaced is not None:
                before = replaced(spark.table(name))
                is_same = [F.col(f"before.{key}").eqNullSafe(F.col(f"given.{key}")) for key in keys]
                gone = before.alias("before").join(rows.alias("given"), reduce(and_, is_same), "left_anti")
                given = given.unionByName(gone.withColumn("is_gone", F.lit(True)))
            given.createOrReplaceTempView(_GIVEN)
            is_same_key = " and ".join(f"t.`{key}` <=> s.`{key}`" for key in keys)
            spark.sql(
                f"merge into {name} t using {_GIVEN} s on {where} and {is_same_key} "
                "when matched and s.is_gone then delete when matched then update set * "
                "when not matched and not s.is_gone then insert *"
            )
        finally:
            rows.unpersist()


def _changed(states: DataFrame, following: DataFrame, topic: str) -> DataFrame:
    """Keys with new records, and the offset up to which their rows are final."""
    keys = list(KEYS_OF[topic])
    is_of_topic = F.col("log_topic") == F.lit(topic)
    before = states.where(is_of_topic).select(*keys, F.col("last_offset").alias("last_before"))
    after = following.where(is_of_topic).join(before, keys, "left")
    return after.where("last_before is null or last_offset > last_before").select(*keys, "settled_offset")


def _ranges(keyed: Keyed) -> DataFrame:
    """Rows of `_LOG_RANGES`: of records behind all that are known."""
    rows = keyed.data().withColumn("cluster_id", keyed.cluster())
    rows = rows.where(F.col("log_offset") > last_before(keyed.before))
    in_order = Window.partitionBy("cluster_id", "log_partition").orderBy("log_offset")
    time = F.coalesce(F.col("timestamp_ms"), F.lit(-1))
    offset_before, time_before = F.lag("log_offset").over(in_order), F.lag(time).over(in_order)
    goes_on = (F.col("log_offset") - offset_before <= 1) & (time >= time_before) & ((time < 0) == (time_before < 0))
    begins = F.when(F.coalesce(goes_on, F.lit(False)), F.lit(0)).otherwise(F.lit(1))
    numbered = rows.select("cluster_id", "log_partition", "log_offset", time.alias("ms"), begins.alias("begins"))
    numbered = numbered.withColumn("number", F.sum("begins").over(in_order))
    place = F.struct("log_offset", "ms")
    found = numbered.groupBy("cluster_id", "log_partition", "number").agg(
        F.min(place).alias("a"), F.max(place).alias("z")
    )
    return found.select(
        "cluster_id",
        F.lit(keyed.topic).alias("log_topic"),
        "log_partition",
        F.col("a.log_offset").alias("from_offset"),
        F.col("a.ms").alias("from_ms"),
        F.col("z.log_offset").alias("log_offset"),
        F.col("z.ms").alias("timestamp_ms"),
    )
