"""From raw records, one DataFrame for each silver table: replay grouped by group id and by share partition key.

Each table has its own plan: records get their key, are shuffled and sorted once, and Spark passes the records of one
key to one call of the core, as a stream. Before an action only the first and last offset of each log partition are
read, when the first table is asked for. One table does not require the work of
another: commits need no history of groups. To use several tables of one replay, `persist` the records.

The core is that of the jobs: the columnar replay of commits, the history of groups, the columnar replay of share
states. A key's records are replayed from where the state of an earlier replay ends, else from the first one given.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as Spark's own documentation has it)
from pyspark.sql.types import StructType

from coordinator_core.bytes.log.chunk import CONTROL_NONE
from groupledger.key_replay import (
    MADE_OF,
    ReplayTables,
    arrow_function,
    columns_made,
    declared_function,
    pandas_function,
    replay_of,
    unread_batches,
)
from groupledger.key_state import KEY_STATE_FORMAT, KEY_STATES, STATE_OFFSET, LogPlace
from groupledger.records import (
    OPENED_TYPES,
    ColumnNames,
    Records,
    RecordsError,
    named_columns,
    places_of,
    quoted,
    read_records,
    require_frame,
)
from groupledger.sparks import STREAMS, for_each_key, in_one_pass, of_streams, sorted_by_key, text
from groupledger.states import OF_LOG, Logs, joined, not_read, ranges_in, ranges_of
from jobs.delta.arrow_schemas import NO_TIMESTAMP_MS, TIMESTAMP_MS_MAX
from jobs.delta.spark_schemas import described, spark_schema
from jobs.settings import INTERNAL_TOPICS
from jobs.silver.tasks import TABLES_OF_TOPIC
from jobs.silver.topic_names import LEARNED_FROM
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables.bronze import QUARANTINE
from schemas.tables.declare import Table
from schemas.tables.silver import (
    GROUP_EVENTS,
    GROUP_GENERATIONS,
    GROUP_MEMBERS,
    MEMBER_ASSIGNMENTS,
    MEMBER_ATTRIBUTES,
    OFFSET_COMMITS,
    SHARE_BATCH_TRANSITIONS,
    SHARE_PARTITION_STATES,
    SHARE_STATE_BATCHES,
    TOPICS,
)

DEFAULT_CLUSTER: Final = "kafka"

OTHER_TOPIC, BAD_ROW, CONFLICTING_COPIES, GAP, LATE = "OTHER_TOPIC", "BAD_ROW", "CONFLICTING_COPIES", "GAP", "LATE"
"""Codes of errors, in addition to those of bronze.quarantine."""

KEY_TYPES: Final = {
    "cluster_id": pa.string(),
    "group_id": pa.string(),
    "topic_id": pa.string(),
    "partition": pa.int64(),
}
"""Types of the key columns."""


class TableFrame:
    """An attribute of a replay or an audit: the DataFrame of one table."""

    def __init__(self, table: Table, remark: str = "") -> None:
        self.table = table
        self.__doc__ = f"{table.full_name}{remark}."

    def __get__(self, made: Any, _: type) -> DataFrame:
        return self if made is None else made._table(self.table)  # type: ignore[return-value]


class GroupReplay:
    """Silver of `__consumer_offsets`: one DataFrame for each table, with the columns and types of the table in the
    warehouse.
    """

    def __init__(self, keyed: "Keyed", names: DataFrame | None) -> None:
        self.keyed = keyed
        self._names = names

    commits = TableFrame(
        OFFSET_COMMITS, ". Outcome UNDECIDED: a transactional commit, where the records have no markers"
    )
    generations = TableFrame(GROUP_GENERATIONS)
    members = TableFrame(GROUP_MEMBERS)
    member_attributes = TableFrame(MEMBER_ATTRIBUTES)
    assignments = TableFrame(MEMBER_ASSIGNMENTS, "; `topic` of a topic id comes from the `topics` given")
    events = TableFrame(GROUP_EVENTS)

    @property
    def topics(self) -> DataFrame:
        """silver.topics, from the topic ids in records; can be passed to a replay as `topics`.

        Has no deletion times.
        """
        return best_names(self.keyed.made(TOPICS))

    @property
    def state(self) -> DataFrame:
        """What the replay of later records needs: one row for each group and log partition, to be kept in any table."""
        return self.keyed.state_after(self.keyed.made(KEY_STATES))

    @property
    def errors(self) -> DataFrame:
        """What could not be read or replayed, with position and reason: columns of bronze.quarantine."""
        return self.keyed.errors()

    @property
    def tables(self) -> dict[str, DataFrame]:
        """All tables by full name, such as `silver.group_members`."""
        return {table.full_name: self._table(table) for table in TABLES_OF_TOPIC[OFFSETS_TOPIC]}

    def _table(self, table: Table) -> DataFrame:
        return self.keyed.table(table, self._names if table is MEMBER_ASSIGNMENTS else None)


class ShareReplay:
    """Silver of `__share_group_state`: one DataFrame for each table, with the columns and types of the table in the
    warehouse.
    """

    def __init__(self, keyed: "Keyed", names: DataFrame | None) -> None:
        self.keyed = keyed
        self._names = names

    partition_states = TableFrame(SHARE_PARTITION_STATES)
    state_batches = TableFrame(SHARE_STATE_BATCHES)
    transitions = TableFrame(SHARE_BATCH_TRANSITIONS)

    @property
    def state(self) -> DataFrame:
        """What the replay of later records needs: one row for each share partition and log partition, to be kept in any
        table."""
        return self.keyed.state_after(self.keyed.made(KEY_STATES))

    @property
    def errors(self) -> DataFrame:
        """What could not be read or replayed, with position and reason: columns of bronze.quarantine."""
        return self.keyed.errors()

    @property
    def tables(self) -> dict[str, DataFrame]:
        """All tables by full name, such as `silver.share_state_batches`."""
        return {table.full_name: self._table(table) for table in TABLES_OF_TOPIC[SHARE_TOPIC]}

    def _table(self, table: Table) -> DataFrame:
        return self.keyed.table(table, self._names)


def replay_groups(
    records: DataFrame,
    *,
    columns: ColumnNames | None = None,
    cluster_id: str = DEFAULT_CLUSTER,
    topics: DataFrame | None = None,
    state: DataFrame | None = None,
    on_error: str = "row",
    as_pandas: bool = False,
) -> GroupReplay:
    """Replay records of `__consumer_offsets`, grouped by group id.

    `records`: raw records (`key`, `value`, `partition`, `offset`, `timestamp`, and optionally `topic`, `base_offset`,
    `producer_id`, `is_transactional`, `is_control`, `control_type`), in any order; or record batches from `kafka_log`
    or bronze.record_batches, which include transactions and operations. `columns`: the caller's names or expressions
    for these columns. `cluster_id`: of all rows, unless the records have such a column. `topics`: topic ids and names
    (`topic_id`, `topic`), such as `.topics` of a replay. `state`: `.state` of the replay of earlier records, from a
    table. Records that it has are skipped, and so are others behind later ones of their group, of which `errors` has a
    row LATE each. Of each group with new records all rows that were not final (`settled_offset`) are given again.
    Without it a log partition whose first record is not its record 0 has a past that nobody knows: a warning says so,
    and so do the rows that depend on it. `on_error`: `row`, or `raise`: the first table asked for raises RecordsError
    if `errors` has a row. `as_pandas`: use applyInPandas, which has a whole group
    in memory.

    Raises RecordsError before any job runs where a column is missing or of another type; and, when the first table is
    asked for, where the state is of another version or cluster, or has a key twice.
    """
    read = _at_rest(records, columns, decides=True)
    keyed = _keyed(read, OFFSETS_TOPIC, cluster_id, as_pandas, _group_key, state, on_error)
    return GroupReplay(keyed, None if topics is None else names_of(topics))


def replay_share_partitions(
    records: DataFrame,
    *,
    columns: ColumnNames | None = None,
    cluster_id: str = DEFAULT_CLUSTER,
    topics: DataFrame | None = None,
    state: DataFrame | None = None,
    on_error: str = "row",
    as_pandas: bool = False,
) -> ShareReplay:
    """Replay records of `__share_group_state`, grouped by share partition (group id, topic id, partition).

    Arguments and errors as for `replay_groups`.
    """
    read = _at_rest(records, columns, decides=False)
    keyed = _keyed(read, SHARE_TOPIC, cluster_id, as_pandas, _share_key, state, on_error)
    return ShareReplay(keyed, None if topics is None else names_of(topics))


def _keyed(
    read: Records,
    topic: str,
    cluster_id: str,
    as_pandas: bool,
    key_of: Callable[[Column], dict[str, Column]],
    state: DataFrame | None,
    on_error: str,
) -> "Keyed":
    """Records by key, and the states of their own cluster, of which a table may have several."""
    if state is None:
        return Keyed(read, topic, cluster_id, as_pandas, key_of, None, on_error)
    states = named_columns(state, KEY_STATES, KEY_STATES.column_names)
    return Keyed(read.named(cluster_id), topic, cluster_id, as_pandas, key_of, states, on_error)


def _at_rest(records: DataFrame, columns: ColumnNames | None, *, decides: bool) -> Records:
    require_frame(records, "records")
    if records.isStreaming:
        raise RecordsError(
            "records are a stream, and a key is replayed from its first record to its last: write the stream to a "
            "table and replay that, or take spark.read in place of spark.readStream. decode takes a stream"
        )
    return read_records(records, columns, decides=decides)


# --- the plan


def _int16(key: Column, position: int) -> Column:
    return F.conv(F.hex(F.substring(key, position, 2)), 16, 10).cast("int")


def _group_key(key: Column) -> dict[str, Column]:
    """The group of a record: the first field of every key, after the record type; null for an invalid key.

    Computed in the JVM: with a Python function every key and value would be transferred twice, 5 s of CPU time for 10
    million.
    """
    length = _int16(key, 3)
    is_whole = (length <= 32767) & (F.length(key) >= length + 4)
    return {"group_id": F.when(is_whole, text(key.substr(F.lit(5), length)))}


def _share_key(key: Column) -> dict[str, Column]:
    """Group id, topic id and partition of a share state record; null for an invalid key."""
    length = _int16(key, 3)
    is_whole = (length <= 32767) & (F.length(key) == length + 24)
    topic_id = F.base64(key.substr(length + 5, F.lit(16)))
    return {
        "group_id": F.when(is_whole, text(key.substr(F.lit(5), length))),
        "topic_id": F.when(is_whole, F.translate(F.substring(topic_id, 1, 22), "+/", "-_")),
        "partition": F.when(is_whole, F.conv(F.hex(key.substr(length + 21, F.lit(4))), 16, 10).cast("bigint")),
    }


def _for_pandas(field: pa.Field) -> Column:
    """Whole numbers with nulls as text: pandas gets them as floats, which differ from 2**53 on."""
    is_exact = field.name in KEY_TYPES or field.name == "log_offset" or field.type != pa.int64()
    return F.col(field.name) if is_exact else F.col(field.name).cast("string").alias(field.name)


@dataclass(frozen=True)
class Keyed:
    """Records of one internal topic, and their grouping by key."""

    records: Records
    topic: str
    cluster_id: str
    as_pandas: bool
    key_of: Callable[[Column], dict[str, Column]]
    states: DataFrame | None = None
    """Columns of `KEY_STATES`."""
    on_error: str = "row"

    def __post_init__(self) -> None:
        if self.on_error not in ("row", "raise"):
            raise RecordsError(f"on_error is {self.on_error!r}: give 'row' for rows of errors, or 'raise'")

    @cached_property
    def is_checked(self) -> bool:
        """True. Raises RecordsError for the first row of errors where the caller wants that."""
        if self.on_error == "raise" and (error := self.errors().first()) is not None:
            place = f"{error['topic']}-{error['partition']} at offset {error['offset']}"
            raise RecordsError(
                f"{error['code']} in {place}: {error['message']}. on_error='row' replays the others, and .errors has "
                "a row for each"
            )
        return True

    @cached_property
    def logs(self) -> Logs:
        """How far each log partition is known. Reads the offsets of the records."""
        if self.records.batches is None:
            places, last_offset = self.data(), F.col("log_offset")
        else:
            places, last_offset = places_of(self.records.batches, self.topic)
        found = Logs.of(places.withColumn("cluster_id", self.cluster()), last_offset, self.states, self.topic)
        found.check_clusters()
        found.warn(self.topic)
        return found

    @property
    def before(self) -> Mapping[LogPlace, tuple[int, int]]:
        """First and last offset of earlier records, by log partition."""
        return self.logs.before

    @cached_property
    def later_logs(self) -> frozenset[LogPlace]:
        """Log partitions that are not known from their first record on, as `begun` takes them."""
        places = self.logs.later()
        return places if self.records.has_cluster else frozenset((None, partition) for _, partition in places)

    def table(self, table: Table, names: DataFrame | None = None) -> DataFrame:
        """The rows of a table."""
        assert self.is_checked
        found = self.made(table)
        return described(found if names is None else with_names(found, names), table)

    def made(self, table: Table) -> DataFrame:
        """The rows of one table, with the columns that a worker knows."""
        replay = replay_of(table, self.topic, has_markers=self.records.has_markers)
        sorted_, keys = self.sorted()
        if self.as_pandas:
            given = pa.schema([(name, KEY_TYPES.get(name) or OPENED_TYPES[name]) for name in sorted_.columns])
            grouped = sorted_.select(*map(_for_pandas, given)).groupBy(*keys)
            of_pandas = pandas_function(replay, table, given, self.later_logs, self.cluster_id)
            return grouped.applyInPandas(of_pandas, _declared(table))
        function = for_each_key(arrow_function(replay, self.later_logs, self.cluster_id), keys)
        return sorted_.mapInArrow(function, _declared(table))

    def in_one_pass(self) -> DataFrame:
        """The rows of all tables, as `STREAMS`: `made_part` gives those of one."""
        replay = ReplayTables(self.topic, MADE_OF[self.topic], self.records.has_markers)
        sorted_, keys = self.sorted()
        function = for_each_key(declared_function(replay, self.later_logs, self.cluster_id), keys)
        return sorted_.mapInArrow(in_one_pass(function), STREAMS)

    def by_key(self) -> tuple[DataFrame, list[str]]:
        """Records with their keys, each marker for each of its groups; and the names of the key columns."""
        frame = self.data()
        of_key = self.key_of(F.col("key"))
        keys = [*(["cluster_id"] if self.records.has_cluster else []), "log_partition", *of_key]
        frame = frame.select("*", *(column.alias(name) for name, column in of_key.items()))
        if self.records.has_markers and self.topic == OFFSETS_TOPIC:
            frame = _with_markers(frame, keys, self._states(keys))
        return frame, keys

    def sorted(self) -> tuple[DataFrame, list[str]]:
        """Records with their keys, shuffled by key and sorted by offset, and the names of the key columns."""
        frame, keys = self.by_key()
        states = self._states(keys)
        if states is not None:
            frame = frame.unionByName(states.drop("open_producers"), allowMissingColumns=True)
        frame = frame.select(*keys, *(name for name in self.records.columns if name not in keys))
        return sorted_by_key(frame, keys, "log_offset"), keys

    def _states(self, keys: Sequence[str]) -> DataFrame | None:
        """The states of keys, each as the row before its records."""
        if self.states is None:
            return None
        types = {field.name: field.dataType.simpleString() for field in spark_schema(KEY_STATES.columns)}
        types["partition"] = "bigint"  # as _share_key has it
        rows = self.states.where(F.col("log_topic") == F.lit(self.topic)).where("state is not null")
        return rows.select(
            *(F.col(name).cast(types[name]) for name in keys),
            F.lit(STATE_OFFSET).cast("bigint").alias("log_offset"),
            F.col("state").alias("value"),
            "open_producers",
        )

    def state_after(self, made: DataFrame) -> DataFrame:
        """The states of all keys and log partitions after the records. `made`: as far as a worker knows them."""
        of_log = [column for column in KEY_STATES.columns if column.name in OF_LOG]
        logs = made.sparkSession.createDataFrame(self.logs.known(), spark_schema(of_log))
        made = made.unionByName(joined(self._ranges()), allowMissingColumns=True)
        made = made.join(F.broadcast(logs), ["cluster_id", "log_partition"], how="left")
        for name, value in (("log_topic", self.topic), ("state_format", KEY_STATE_FORMAT)):
            made = made.withColumn(name, _nullable(value))
        return described(made, KEY_STATES)

    def _ranges(self) -> DataFrame:
        """The records that are read now, or were before."""
        rows = self.data().withColumn("cluster_id", self.cluster())
        if self.states is None:
            return ranges_of(rows)
        for late in self._late():
            rows = rows.join(late, ["cluster_id", "log_partition", "log_offset"], how="left_anti")
        return ranges_of(rows).unionByName(ranges_in(self.states, self.topic))

    def _late(self) -> Iterator[DataFrame]:
        """Records that no replay had, of keys whose states have later ones."""
        if self.states is not None and self.logs.overlap:
            keys = ["cluster_id", "log_partition", *self.key_of(F.col("key"))]
            rows = self.by_key()[0].withColumn("cluster_id", self.cluster())
            of_keys = self.states.where(F.col("log_topic") == F.lit(self.topic)).select(*keys, "last_offset")
            rows = rows.join(of_keys, keys, how="inner").where("log_offset <= last_offset")
            yield not_read(rows, ranges_in(self.states, self.topic))

    def data(self) -> DataFrame:
        """Records of the topic with a valid position."""
        frame = self.records.frame
        if self.records.has_topic:
            frame = frame.where(F.col("topic") == F.lit(self.topic))
        if self.records.has_cluster:
            frame = frame.withColumn("cluster_id", self.cluster())
        return frame.where(_HAS_PLACE)

    def cluster(self) -> Column:
        """The cluster of each record."""
        named = F.lit(self.cluster_id)
        return F.coalesce(F.col("cluster_id"), named) if self.records.has_cluster else named

    def errors(self) -> DataFrame:
        """Records that cannot be read or replayed, and invalid rows."""
        return self.other_errors([self.findings()])

    def other_errors(self, parts: Iterable[DataFrame] = ()) -> DataFrame:
        """Those that are not of keys, with others."""
        parts = [*parts, *self._bad_rows(), *self._gaps()]
        where = {"topic": F.lit(self.topic), "cluster_id": F.col("cluster_id"), "group_id": F.col("group_id")}
        parts += [quarantined(late, where, LATE, _LATE) for late in self._late()]
        if self.records.batches is not None:
            batches = self.records.batches.where(F.col("topic") == F.lit(self.topic))
            unread = batches.mapInArrow(unread_batches, spark_schema(QUARANTINE.columns))
            cluster_id = F.coalesce(F.col("cluster_id"), F.lit(self.cluster_id))
            parts.append(unread.withColumn("cluster_id", cluster_id))
        return reduce(lambda some, others: some.unionByName(others), parts)

    def findings(self) -> DataFrame:
        """Records of keys that cannot be read or replayed."""
        return self.made(QUARANTINE).select(*QUARANTINE.column_names)

    def _gaps(self) -> Iterator[DataFrame]:
        """Offsets that are in neither the states nor the records."""
        rows = []
        for (cluster_id, partition), first, last in self.logs.gaps():
            row = {"cluster_id": cluster_id, "topic": self.topic, "partition": partition, "offset": first}
            row |= {"from_offset": first, "to_offset": last, "stage": "RECORD", "code": GAP, "message": _NOT_GIVEN}
            rows.append(tuple(row.get(name) for name in QUARANTINE.column_names))
        if rows:
            yield self.records.frame.sparkSession.createDataFrame(rows, spark_schema(QUARANTINE.columns))

    def _bad_rows(self) -> Iterator[DataFrame]:
        frame = self.records.frame
        where = {"topic": F.col("topic") if self.records.has_topic else F.lit(self.topic)}
        where["cluster_id"] = self.cluster()
        is_lost = F.expr(f"not coalesce({_HAS_PLACE}, false)")
        if self.records.has_topic:
            is_other = ~F.col("topic").isin(*INTERNAL_TOPICS) | F.col("topic").isNull()
            yield quarantined(frame.where(is_other), where, OTHER_TOPIC, "a record of no coordinator's topic")
            is_lost &= F.col("topic") == F.lit(self.topic)
        yield quarantined(
            frame.where(is_lost), where, BAD_ROW, "a record without partition or offset, or with one out of range"
        )
        if self.records.batches is None:
            named = {**where, "topic": F.lit(self.topic)}
            yield quarantined(self.data().where(_HAS_NO_TIME), named, BAD_ROW, _NO_TIME)
            if self.records.has_markers and self.topic == OFFSETS_TOPIC:
                yield quarantined(self.data().where(_DECIDES_NOTHING), named, BAD_ROW, _NO_DECISION)
        content = F.xxhash64("key", "value", "timestamp_ms")
        places = ["log_partition", "log_offset", *(["cluster_id"] if self.records.has_cluster else [])]
        copies = self.data().groupBy(*places).agg(F.min(content).alias("least"), F.max(content).alias("most"))
        where["topic"] = F.lit(self.topic)
        yield quarantined(
            copies.where(F.col("least") != F.col("most")),
            where,
            CONFLICTING_COPIES,
            "records of different content have this offset: of each key's, the one with the least bytes was replayed",
            payload=F.lit(None).cast("binary"),
        )


_HAS_PLACE: Final = "log_partition >= 0 and log_offset >= 0"
_HAS_NO_TIME: Final = f"timestamp_ms not between {NO_TIMESTAMP_MS} and {TIMESTAMP_MS_MAX}"
_NO_TIME: Final = (
    "a record whose time is before 1970 or after the year 9999 was replayed as one without: whole numbers are taken "
    "for epoch milliseconds. Of microseconds give columns={'timestamp': F.timestamp_micros(...)}"
)


_DECIDES_NOTHING: Final = f"control_type <> {CONTROL_NONE} and (control_type > 1 or coalesce(producer_id, -1) < 0)"
_NO_DECISION: Final = (
    "a transaction marker that names no producer, or neither COMMIT nor ABORT by control_type or key, decides nothing"
)


_NOT_GIVEN: Final = (
    "neither the state nor the records have these offsets: the log cleaner removed them, or they are missing"
)


_LATE: Final = "a record that came when later ones of its key had been replayed was skipped: add records in their order"


def _declared(table: Table) -> StructType:
    """Spark's schema of the columns that a worker knows."""
    names = columns_made(table)
    return spark_schema(column for column in table.columns if column.name in names)


def made_part(streams: DataFrame, table: Table) -> DataFrame:
    """As `Keyed.made`, from `Keyed.in_one_pass`."""
    return of_streams(streams, table, _declared(table))


def _nullable(text: str) -> Column:
    """A constant in a nullable column, as all columns of the tables are."""
    return F.nullif(F.lit(text), F.lit(None).cast("string"))


def quarantined(
    rows: DataFrame, where: Mapping[str, Column], code: str, message: str, payload: Column | None = None
) -> DataFrame:
    """Rows in the form of bronze.quarantine."""
    values = {
        **where,
        "partition": F.col("log_partition"),
        "offset": F.col("log_offset"),
        "stage": F.lit("RECORD"),
        "code": F.lit(code),
        "message": F.lit(message),
        "bytes": F.coalesce(F.col("value"), F.col("key")) if payload is None else payload,
    }
    fields = spark_schema(QUARANTINE.columns)
    return rows.select(*(values.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in fields))


def _with_markers(frame: DataFrame, keys: Sequence[str], states: DataFrame | None) -> DataFrame:
    """Each marker once for each group with commits of its producer, since it affects only those. `states`: with the
    producers of transactions that were open before.

    This reads the records again, but only transactional ones: mostly there are few groups, so they are broadcast.
    """
    places = [name for name in keys if name != "group_id"]
    is_marker = F.col("control_type") >= 0
    data = frame.where(~is_marker)
    producers = data.where(F.col("producer_id") >= 0).select(*keys, "producer_id")
    if states is not None:
        producers = producers.unionByName(states.select(*keys, F.explode("open_producers").alias("producer_id")))
    producers = producers.distinct()
    markers = frame.where(is_marker).drop("group_id")
    return data.unionByName(markers.join(producers, [*places, "producer_id"], how="inner"))


def with_names(rows: DataFrame, names: DataFrame) -> DataFrame:
    """Rows with the name of `topic_id` in `topic`, where it is known. `names`: as of `names_of`."""
    topic = F.coalesce(F.col("name_of_topic"), F.col("topic"))
    return rows.join(F.broadcast(names), "topic_id", how="left").withColumn("topic", topic)


def names_of(topics: DataFrame) -> DataFrame:
    """Topic ids with one name each."""
    require_frame(topics, "topics")
    there = {name: [field for field in topics.schema if field.name.lower() == name] for name in ("topic_id", "topic")}
    for name, fields in there.items():
        if [field.dataType.simpleString() for field in fields] != ["string"]:
            raise RecordsError(
                f"topics have not one column {name!r} of STRING: they are the rows of silver.topics, or of .topics"
            )
    topic_id, topic = (topics[quoted(field.name)] for (field,) in there.values())
    return topics.groupBy(topic_id.alias("topic_id")).agg(F.min(topic).alias("name_of_topic"))


def best_names(learned: DataFrame) -> DataFrame:
    """One row for each topic id: the name from the most reliable source, and the first time at which any source
    gives it."""
    sureness = reduce(
        lambda column, rank: column.when(F.col("learned_from") == F.lit(LEARNED_FROM[rank]), F.lit(rank)),
        range(1, len(LEARNED_FROM)),
        F.when(F.col("learned_from") == F.lit(LEARNED_FROM[0]), F.lit(0)),
    )
    never = F.lit("9999-12-31 23:59:59").cast("timestamp")
    best = F.min(F.struct(sureness, F.coalesce(F.col("valid_from"), never), "topic", "learned_from")).alias("best")
    names = learned.groupBy("cluster_id", "topic_id").agg(best)
    names = names.select("cluster_id", "topic_id", "best.topic", "best.learned_from")
    since = learned.groupBy("cluster_id", "topic_id", "topic").agg(F.min("valid_from").alias("valid_from"))
    found = names.join(since, ["cluster_id", "topic_id", "topic"], how="inner")
    return found.withColumn("valid_to", F.lit(None).cast("timestamp")).select(*TOPICS.column_names)
