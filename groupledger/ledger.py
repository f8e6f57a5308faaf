"""A ledger in a user's own lake: silver and gold of records as they come, in tables of a format with MERGE.

The states of keys are written last, so a batch that failed is added again from the same states, with the same number.
Of keys with new records, all rows are replaced that were not final, or that an earlier attempt had written.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial, reduce
from itertools import chain
from operator import and_
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as Spark's own documentation has it)

from coordinator_core.inference.facts.settings import InferenceSettings
from groupledger.audit import GROUP_TABLES, SHARE_TABLES, audit_groups, audit_share_partitions
from groupledger.key_state import KEY_STATES, LogPlace
from groupledger.records import ColumnNames, RecordsError, require_time
from groupledger.replay import (
    DEFAULT_CLUSTER,
    Keyed,
    best_names,
    made_part,
    names_of,
    replay_groups,
    replay_share_partitions,
    with_names,
)
from groupledger.sparks import as_streams, of_streams
from groupledger.states import ranges_in
from jobs.delta.spark_schemas import described, spark_schema
from jobs.silver.tasks import NAMED_TABLES, TABLES_OF_TOPIC
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables import TABLES
from schemas.tables.bronze import QUARANTINE
from schemas.tables.declare import BIGINT, BINARY, BOOLEAN, STRING, Column, Table
from schemas.tables.gold import HANGING_TRANSACTIONS, LOG_ANOMALIES, SHARE_GROUP_SUMMARY
from schemas.tables.silver import OFFSET_COMMITS, TOPICS

_IS_FINAL: Final = Column("is_final", BOOLEAN, "False: new records of its key may replace the row.")
_BATCH: Final = Column("batch", BIGINT, "Number of the batch that wrote the row.")
_SILVER: Final = frozenset(chain.from_iterable(TABLES_OF_TOPIC.values()))
KEYS_OF: Final = {
    OFFSETS_TOPIC: ("cluster_id", "log_partition", "group_id"),
    SHARE_TOPIC: ("cluster_id", "log_partition", "group_id", "topic_id", "partition"),
}
"""The key of a state, by internal topic."""
_OF_GROUP: Final = ["cluster_id", "group_id"]
_ERROR: Final = ["cluster_id", "topic", "partition", "offset", "base_offset", "code", "group_id", "message"]
"""What tells rows of bronze.quarantine apart."""
_PLACES: Final = ("log_offset", "applied_log_offset", "from_log_offset", "to_log_offset")
_MADE: Final = Table(
    layer="api",
    name="made",
    comment="What the batch that is being added makes, before it is in the tables.",
    columns=(
        Column("log_topic", STRING, "Internal topic; null: gold."),
        Column("of_table", STRING, "Table of the rows."),
        Column("stream", BINARY, "Rows as an Arrow stream."),
    ),
)
MERGES_AT_ONCE: Final = 4


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

        Records that the ledger has are skipped, so a batch may come again, whole or in part; those that come late,
        behind later ones of their key, are skipped with a row LATE in bronze.quarantine. Gold is judged for the groups
        that have new rows, or transactions that may hang, with all their rows.
        """
        spark = records.sparkSession
        with ExitStack() as kept:
            records = _kept(records, kept)
            states = self._table(spark, KEY_STATES)
            batch = 1 + (states.agg(F.max("batch")).collect()[0][0] or 0)
            replays = [
                replay(records, columns=self._columns, cluster_id=self._cluster_id, state=states).keyed
                for replay in (replay_groups, replay_share_partitions)
            ]
            made = self._staged(reduce(DataFrame.union, chain.from_iterable(map(self._made, replays))), "overwrite")
            there = {row["of_table"] for row in made.select("of_table").distinct().collect()}
            merges: list[Callable[[], None]] = []
            if QUARANTINE.full_name in there:
                rows = of_streams(made, QUARANTINE, spark_schema(QUARANTINE.columns)).dropDuplicates(_ERROR)
                merges.append(partial(self._merge, rows, QUARANTINE, keys=_ERROR))
            if TOPICS.full_name in there:
                learned = made_part(made, TOPICS).withColumn("valid_to", F.lit(None).cast("timestamp"))
                names = best_names(learned.unionByName(self._table(spark, TOPICS)))
                merges.append(partial(self._merge, names, TOPICS))
            following, changed = [], {}
            for keyed in replays:
                of_topic = made.where(F.col("log_topic") == F.lit(keyed.topic))
                following.append(_kept(keyed.state_after(made_part(of_topic, KEY_STATES)), kept))
                changed[keyed.topic] = _kept(_changed(states, following[-1], keyed.topic), kept)
                if not changed[keyed.topic].isEmpty():
                    for table in TABLES_OF_TOPIC[keyed.topic]:
                        rows = described(made_part(of_topic, table), table)
                        merges.append(partial(self._replace, rows, table, changed[keyed.topic], keyed.topic, batch))
            _at_once(merges)
            states = reduce(DataFrame.unionByName, following)
            self._judge(spark, changed, states, kept)
            self._merge(states.withColumn("batch", F.lit(batch)), KEY_STATES)

    def read(self, name: str, *, at: datetime | None = None) -> DataFrame:
        """A table such as `silver.group_members`, or `bronze.quarantine`. `at`: as it was then, of Delta."""
        table = TABLES.get(name)
        if table is None or not (table is QUARANTINE or table.layer in ("silver", "gold")):
            raise RecordsError(f"there is no table {name!r} of silver or gold")
        return self._read(self._spark, table, at)

    def _read(self, spark: SparkSession, table: Table, at: datetime | None = None) -> DataFrame:
        frame = self._table(spark, table)
        if at is not None:
            require_time(at)
            # timestampAsOf refuses times after the last version
            versions = spark.sql(f"describe history {self._name(table)}").where(F.col("timestamp") <= F.lit(at))
            version = versions.agg(F.max("version")).collect()[0][0]
            frame = frame.limit(0) if version is None else self._version(spark, table, version)
        if table in NAMED_TABLES:
            frame = with_names(frame, names_of(self._table(spark, TOPICS)))
        return described(frame, table)

    def _version(self, spark: SparkSession, table: Table, version: int) -> DataFrame:
        return spark.read.option("versionAsOf", version).table(self._name(table))

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

    def _replace(self, made: DataFrame, table: Table, changed: DataFrame, topic: str, batch: int) -> None:
        """Put rows of silver in place of those of the same keys that were not final."""
        keys = KEYS_OF[topic]
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

    def _made(self, keyed: Keyed) -> Iterator[DataFrame]:
        """What the records of a topic make: rows of all tables, as `STREAMS`, and the topic."""
        for frame in (keyed.in_one_pass(), as_streams(keyed.other_errors(), QUARANTINE)):
            yield frame.select(F.lit(keyed.topic).alias("log_topic"), "of_table", "stream")

    def _staged(self, streams: DataFrame, mode: str) -> DataFrame:
        """Rows of `_MADE`, written once: what is made of them has a short plan."""
        name = self._name(_MADE)
        streams.write.format(self._using).mode(mode).saveAsTable(name)
        return streams.sparkSession.table(name)

    def _judge(self, spark: SparkSession, changed: Mapping[str, DataFrame], states: DataFrame, kept: ExitStack) -> None:
        """Gold of the groups with new rows, and of those with open transactions, which hang by the end of the log."""
        pending = self._table(spark, OFFSET_COMMITS).where("not is_final and outcome = 'PENDING'")
        parts = [rows.select(*_OF_GROUP) for rows in (*changed.values(), pending)]
        groups = _kept(reduce(DataFrame.union, parts).distinct(), kept)
        if groups.isEmpty():
            return
        silver = {
            topic: _Silver(
                {table.full_name: self._read(spark, table).join(groups, _OF_GROUP, "left_semi") for table in tables},
                _ReadLogs(ranges_in(states, topic)),
            )
            for topic, tables in TABLES_OF_TOPIC.items()
        }
        topics, unread = self._table(spark, TOPICS), self._table(spark, QUARANTINE)
        of_groups = audit_groups(silver[OFFSETS_TOPIC], topics=topics, quarantine=unread, inference=self._inference)
        of_shares = audit_share_partitions(
            silver[SHARE_TOPIC], groups=silver[OFFSETS_TOPIC], topics=topics, inference=self._inference
        )
        others = (
            (HANGING_TRANSACTIONS, of_groups.hanging_transactions),
            (SHARE_GROUP_SUMMARY, of_shares.share_group_summary),
            (LOG_ANOMALIES, of_groups.clock_steps.unionByName(of_shares.clock_steps)),
        )
        streams = [
            of_groups.judged(*GROUP_TABLES),
            of_shares.judged(*(it for it in SHARE_TABLES if it is not SHARE_GROUP_SUMMARY)),
        ]
        streams += [as_streams(frame, table) for table, frame in others]
        none = F.lit(None).cast("string").alias("log_topic")
        judged = self._staged(reduce(DataFrame.union, streams).select(none, "of_table", "stream"), "append")
        merges = [
            partial(self._merge, of_streams(judged, table, spark_schema(table.columns)), table, _those_of(groups))
            for table in {*GROUP_TABLES, *SHARE_TABLES, HANGING_TRANSACTIONS}
        ]
        _at_once(merges)

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
        before = None if replaced is None else replaced(spark.table(name))
        rows = rows.persist()
        try:
            if rows.isEmpty() and (before is None or before.isEmpty()):
                return
            given = rows.withColumn("is_gone", F.lit(False))
            if before is not None:
                is_same = [F.col(f"before.{key}").eqNullSafe(F.col(f"given.{key}")) for key in keys]
                gone = before.alias("before").join(rows.alias("given"), reduce(and_, is_same), "left_anti")
                given = given.unionByName(gone.withColumn("is_gone", F.lit(True)))
            view = f"groupledger_given_{table.layer}_{table.name}"
            given.createOrReplaceTempView(view)
            is_same_key = " and ".join(f"t.`{key}` <=> s.`{key}`" for key in keys)
            spark.sql(
                f"merge into {name} t using {view} s on {where} and {is_same_key} "
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
    is_new = "group_id is not null and (last_before is null or last_offset > last_before)"
    return after.where(is_new).select(*keys, "settled_offset")


def _those_of(groups: DataFrame) -> Callable[[DataFrame], DataFrame]:
    return lambda there: there.join(groups, _OF_GROUP, "left_semi")


def _at_once(merges: Sequence[Callable[[], None]]) -> None:
    """A merge of few rows mostly waits: for plans, for files, for the table's log."""
    with ThreadPoolExecutor(MERGES_AT_ONCE) as pool:
        for merge in [pool.submit(it) for it in merges]:
            merge.result()


def _kept(frame: DataFrame, kept: ExitStack) -> DataFrame:
    """A DataFrame that Spark keeps until the end."""
    kept.callback(frame.unpersist)
    return frame.persist()
