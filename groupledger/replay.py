"""Raw records in, a DataFrame a silver table out: replay grouped by group id and by share partition key.

Each table is a plan of its own: records get their key, are brought together and sorted once, and Spark hands those of
one key to one call of the core, as a stream. Nothing runs before an action does, and who wants one table does not pay
for another: commits alone need no history of groups. To use several tables of one replay, `persist` the records.

The core is the one of the jobs: the columnar replay of commits, the history of groups, the columnar replay of share
states. A key's records are replayed from the first that is given, so a day alone is as a log that begins there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as Spark's own documentation has it)
from pyspark.sql.types import StructType

from coordinator_core.history.offsets_log import OffsetsLogOutput, OffsetsLogReplay
from coordinator_core.log.chunk import Finding
from coordinator_core.offsets.columnar import OUTCOMES, ColumnarOffsetReplay, CommitColumns
from coordinator_core.offsets.replay import NO_PRODUCER_ID
from coordinator_core.share_state.columnar import ColumnarOutput, ColumnarShareReplay
from groupledger.chunks import KeyChunk, key_chunks
from groupledger.records import OPENED_TYPES, ColumnNames, Records, RecordsError, batch_findings, read_records
from jobs.delta.arrow_schemas import arrow_schema, delta_struct, spark_schema
from jobs.delta.core_tables import (
    ROWS_OF_GROUPS,
    ShareKeys,
    assignments_table,
    commits_table,
    quarantine_table,
    rows_table,
    share_batches_table,
    share_states_table,
    share_transitions_table,
)
from jobs.silver.tasks import METADATA_TOPIC, OFFSETS_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC
from jobs.silver.topic_names import LEARNED_FROM
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
UNDECIDED: Final = "UNDECIDED"
"""Outcome of a transactional commit where the records hold no markers: nobody can say what became of it."""

INTERNAL_TOPICS: Final = (OFFSETS_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC, METADATA_TOPIC)
OTHER_TOPIC, BAD_ROW, CONFLICTING_COPIES = "OTHER_TOPIC", "BAD_ROW", "CONFLICTING_COPIES"
"""Codes of errors, beside those of bronze.quarantine."""

KEY_TYPES: Final = {
    "cluster_id": pa.string(),
    "group_id": pa.string(),
    "topic_id": pa.string(),
    "partition": pa.int64(),
}
"""Of columns that records get when they are brought together."""

Batches = Iterator[pa.RecordBatch]
ReplayKey = Callable[[Batches], Iterator[pa.Table]]
"""What becomes of the records of one key."""


class GroupReplay:
    """Silver of `__consumer_offsets`: a DataFrame a table, with the columns and types of the table in the warehouse."""

    def __init__(self, keyed: "Keyed", names: DataFrame | None) -> None:
        self.keyed = keyed
        self._names = names

    @property
    def commits(self) -> DataFrame:
        """silver.offset_commits. An outcome UNDECIDED: a commit of a transaction, where the records have no markers."""
        has_markers = self.keyed.records.has_markers
        return self.keyed.table(OFFSET_COMMITS, _Commits(has_markers))

    @property
    def generations(self) -> DataFrame:
        """silver.group_generations."""
        return self.keyed.table(GROUP_GENERATIONS, _Groups(GROUP_GENERATIONS))

    @property
    def members(self) -> DataFrame:
        """silver.group_members."""
        return self.keyed.table(GROUP_MEMBERS, _Groups(GROUP_MEMBERS))

    @property
    def member_attributes(self) -> DataFrame:
        """silver.member_attributes."""
        return self.keyed.table(MEMBER_ATTRIBUTES, _Groups(MEMBER_ATTRIBUTES))

    @property
    def assignments(self) -> DataFrame:
        """silver.member_assignments; `topic` of an id by the `topics` given."""
        return self.keyed.table(MEMBER_ASSIGNMENTS, _Groups(MEMBER_ASSIGNMENTS), self._names)

    @property
    def events(self) -> DataFrame:
        """silver.group_events."""
        return self.keyed.table(GROUP_EVENTS, _Groups(GROUP_EVENTS))

    @property
    def topics(self) -> DataFrame:
        """silver.topics, as far as the records name topic ids: to be handed to the replay as `topics`. When a topic was
        deleted they do not tell."""
        return _topics(self.keyed)

    @property
    def errors(self) -> DataFrame:
        """What could not be read or replayed, with its place and reason: columns of bronze.quarantine."""
        return self.keyed.errors(_group_findings)

    @property
    def tables(self) -> dict[str, DataFrame]:
        """All of it by the tables' full names, as `silver.group_members`."""
        return {
            OFFSET_COMMITS.full_name: self.commits,
            GROUP_GENERATIONS.full_name: self.generations,
            GROUP_MEMBERS.full_name: self.members,
            MEMBER_ATTRIBUTES.full_name: self.member_attributes,
            MEMBER_ASSIGNMENTS.full_name: self.assignments,
            GROUP_EVENTS.full_name: self.events,
        }


class ShareReplay:
    """Silver of `__share_group_state`: a DataFrame a table, with columns and types of the table in the warehouse."""

    def __init__(self, keyed: "Keyed", names: DataFrame | None) -> None:
        self.keyed = keyed
        self._names = names

    @property
    def partition_states(self) -> DataFrame:
        """silver.share_partition_states."""
        return self._table(SHARE_PARTITION_STATES)

    @property
    def state_batches(self) -> DataFrame:
        """silver.share_state_batches."""
        return self._table(SHARE_STATE_BATCHES)

    @property
    def transitions(self) -> DataFrame:
        """silver.share_batch_transitions."""
        return self._table(SHARE_BATCH_TRANSITIONS)

    @property
    def errors(self) -> DataFrame:
        """What could not be read or replayed, with its place and reason: columns of bronze.quarantine."""
        return self.keyed.errors(_share_findings)

    @property
    def tables(self) -> dict[str, DataFrame]:
        """All of it by the tables' full names, as `silver.share_state_batches`."""
        return {table.full_name: self._table(table) for table in _ROWS_OF_SHARE_STATE}

    def _table(self, table: Table) -> DataFrame:
        return self.keyed.table(table, _ShareState(table), self._names)


def replay_groups(
    records: DataFrame,
    *,
    columns: ColumnNames | None = None,
    cluster_id: str = DEFAULT_CLUSTER,
    topics: DataFrame | None = None,
    as_pandas: bool = False,
) -> GroupReplay:
    """Replay records of `__consumer_offsets`, grouped by group id.

    `records`: raw records (`key`, `value`, `partition`, `offset`, `timestamp`, and where there are `topic`,
    `base_offset`, `producer_id`, `is_transactional`, `is_control`, `control_type`), in any order; or record batches as
    `kafka_log` and bronze.record_batches have them, which tell transactions and operations. `columns`: own names or
    expressions for those. `cluster_id`: of all rows, unless the records have such a column. `topics`: topic ids and
    names (`topic_id`, `topic`), such as `.topics` of a replay. `as_pandas`: by applyInPandas, which holds a whole
    group in memory.

    Raises RecordsError before any job runs where a column is missing or of another type.
    """
    read = read_records(records, columns)
    return GroupReplay(Keyed(read, OFFSETS_TOPIC, cluster_id, as_pandas, _group_key), _names(topics))


def replay_share_partitions(
    records: DataFrame,
    *,
    columns: ColumnNames | None = None,
    cluster_id: str = DEFAULT_CLUSTER,
    topics: DataFrame | None = None,
    as_pandas: bool = False,
) -> ShareReplay:
    """Replay records of `__share_group_state`, grouped by share partition (group id, topic id, partition).

    Arguments and errors as of `replay_groups`.
    """
    read = read_records(records, columns)
    return ShareReplay(Keyed(read, SHARE_TOPIC, cluster_id, as_pandas, _share_key), _names(topics))


# --- the plan


def _int16(key: Column, position: int | Column) -> Column:
    return F.conv(F.hex(F.substring(key, position, 2)), 16, 10).cast("int")


def _group_key(key: Column) -> dict[str, Column]:
    """The group of a record, which every key names first, behind its type; null where a key is none.

    In the JVM: by a Python function every key and value would go there and back, 5 s of processor for 10 million.
    """
    length = _int16(key, 3)
    is_whole = (length <= 32767) & (F.length(key) >= length + 4)
    return {"group_id": F.when(is_whole, _text(F.substring(key, F.lit(5), length)))}


def _share_key(key: Column) -> dict[str, Column]:
    """Group id, topic id and partition of a record of share state; null where a key is none."""
    length = _int16(key, 3)
    is_whole = (length <= 32767) & (F.length(key) == length + 24)
    topic_id = F.base64(F.substring(key, length + 5, F.lit(16)))
    return {
        "group_id": F.when(is_whole, _text(F.substring(key, F.lit(5), length))),
        "topic_id": F.when(is_whole, F.translate(F.substring(topic_id, 1, 22), "+/", "-_")),
        "partition": F.when(is_whole, F.conv(F.hex(F.substring(key, length + 21, F.lit(4))), 16, 10).cast("bigint")),
    }


def _nullable(text: str) -> Column:
    """A text in a column that may be null, as all columns of the tables may."""
    return F.nullif(F.lit(text), F.lit(None).cast("string"))


def _text(value: Column) -> Column:
    return F.make_valid_utf8(value.cast("string"))


@dataclass(frozen=True, slots=True)
class Keyed:
    """Records of one internal topic, and how they are brought together by key."""

    records: Records
    topic: str
    cluster_id: str
    as_pandas: bool
    key_of: Callable[[Column], dict[str, Column]]

    def table(self, table: Table, replay: ReplayKey, names: DataFrame | None = None) -> DataFrame:
        """The rows of a table."""
        found = self.apply(table, [name for name in table.column_names if name != "cluster_id"], replay)
        if names is not None:
            topic = F.coalesce(F.col("name_of_topic"), F.col("topic"))
            found = found.join(F.broadcast(names), "topic_id", how="left").withColumn("topic", topic)
        return found.select(
            *(F.col(column.name).alias(column.name, metadata={"comment": column.comment}) for column in table.columns)
        )

    def apply(self, table: Table, names: Sequence[str], replay: ReplayKey) -> DataFrame:
        """What a function makes of the records of each key: columns of a table, and the cluster."""
        has_cluster = self.records.has_cluster
        schema = pa.schema([arrow_schema(table).field(name).remove_metadata() for name in names])
        declared = StructType.fromJson(delta_struct([column for column in table.columns if column.name in names]))
        if has_cluster:
            schema = schema.append(pa.field("cluster_id", pa.string()))
            declared = declared.add("cluster_id", "string")
        sorted_, keys = self.sorted()
        grouped = sorted_.groupBy(*keys)
        if self.as_pandas:
            given = pa.schema([(name, KEY_TYPES.get(name) or OPENED_TYPES[name]) for name in sorted_.columns])
            made = grouped.applyInPandas(_pandas_function(replay, schema, given), declared)
        else:
            made = grouped.applyInArrow(_arrow_function(replay, schema), declared)
        return made if has_cluster else made.withColumn("cluster_id", _nullable(self.cluster_id))

    def sorted(self) -> tuple[DataFrame, list[str]]:
        """Records with their keys, brought together by key and sorted by offset: what groupBy asks of its input, so
        Spark sorts once. The names of the key columns."""
        frame = self.data()
        of_key = self.key_of(F.col("key"))
        keys = [*(["cluster_id"] if self.records.has_cluster else []), "log_partition", *of_key]
        frame = frame.select("*", *(column.alias(name) for name, column in of_key.items()))
        if self.records.has_markers and self.topic == OFFSETS_TOPIC:
            frame = _with_markers(frame, keys)
        frame = frame.select(*keys, *(name for name in self.records.columns if name not in keys))
        return frame.repartition(*keys).sortWithinPartitions(*keys, "log_offset"), keys

    def data(self) -> DataFrame:
        """Records of the topic that have a place in it."""
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

    def errors(self, findings: ReplayKey) -> DataFrame:
        """What of the records cannot be read or replayed, and what is wrong with the rows themselves."""
        columns = [name for name in QUARANTINE.column_names if name != "cluster_id"]
        found = self.apply(QUARANTINE, columns, findings).select(*QUARANTINE.column_names)
        parts = [found, *self._bad_rows()]
        if self.records.batches is not None:
            batches = self.records.batches.where(F.col("topic") == F.lit(self.topic))
            unread = batches.mapInArrow(_unread_batches, spark_schema(QUARANTINE))
            cluster_id = F.coalesce(F.col("cluster_id"), F.lit(self.cluster_id))
            parts.append(unread.withColumn("cluster_id", cluster_id))
        return reduce(lambda some, others: some.unionByName(others), parts)

    def _bad_rows(self) -> Iterator[DataFrame]:
        frame = self.records.frame
        where = {"topic": F.col("topic") if self.records.has_topic else F.lit(self.topic)}
        where["cluster_id"] = self.cluster()
        is_lost = F.expr(f"not coalesce({_HAS_PLACE}, false)")
        if self.records.has_topic:
            is_other = ~F.col("topic").isin(*INTERNAL_TOPICS) | F.col("topic").isNull()
            yield _quarantined(frame.where(is_other), where, OTHER_TOPIC, "a record of no coordinator's topic")
            is_lost &= F.col("topic") == F.lit(self.topic)
        yield _quarantined(
            frame.where(is_lost), where, BAD_ROW, "a record without partition or offset, or with one below 0"
        )
        content = F.xxhash64("key", "value", "timestamp_ms")
        places = ["log_partition", "log_offset", *(["cluster_id"] if self.records.has_cluster else [])]
        copies = self.data().groupBy(*places).agg(F.min(content).alias("least"), F.max(content).alias("most"))
        where["topic"] = F.lit(self.topic)
        yield _quarantined(
            copies.where(F.col("least") != F.col("most")),
            where,
            CONFLICTING_COPIES,
            "records of different content have this offset: the one with the least bytes was replayed",
            payload=F.lit(None).cast("binary"),
        )


_HAS_PLACE: Final = "log_partition >= 0 and log_offset >= 0"


def _quarantined(
    rows: DataFrame, where: Mapping[str, Column], code: str, message: str, payload: Column | None = None
) -> DataFrame:
    """Rows as those of bronze.quarantine."""
    values = {
        **where,
        "partition": F.col("log_partition"),
        "offset": F.col("log_offset"),
        "stage": F.lit("RECORD"),
        "code": F.lit(code),
        "message": F.lit(message),
        "bytes": F.coalesce(F.col("value"), F.col("key")) if payload is None else payload,
    }
    fields = StructType.fromJson(delta_struct(QUARANTINE.columns))
    return rows.select(*(values.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in fields))


def _with_markers(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Each marker once for each group with commits of its producer, as those are all that it acts on.

    A second look at the records, at transactional ones alone: mostly there are few, so groups are broadcast.
    """
    places = [name for name in keys if name != "group_id"]
    is_marker = F.col("control_type") >= 0
    data = frame.where(~is_marker)
    producers = data.where(F.col("producer_id") >= 0).select(*keys, "producer_id").distinct()
    markers = frame.where(is_marker).drop("group_id")
    return data.unionByName(markers.join(producers, [*places, "producer_id"], how="inner"))


def _names(topics: DataFrame | None) -> DataFrame | None:
    """Topic ids with one name each."""
    if topics is None:
        return None
    if missing := [name for name in ("topic_id", "topic") if name not in topics.columns]:
        raise RecordsError(f"topics have no column {missing[0]!r}: they are the rows of silver.topics, or of .topics")
    return topics.groupBy("topic_id").agg(F.min("topic").alias("name_of_topic"))


def _topics(keyed: Keyed) -> DataFrame:
    """One row a topic id: the name from the surest source, since any source gives it."""
    learned = keyed.apply(TOPICS, ["topic_id", "topic", "valid_from", "learned_from"], _learned_topics)
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


# --- what happens to the records of one key, in a worker


def _arrow_function(replay: ReplayKey, schema: pa.Schema) -> Callable[[Any], Any]:
    def apply(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _as_declared(replay, schema, batches)

    return apply


def _pandas_function(replay: ReplayKey, schema: pa.Schema, given: pa.Schema) -> Callable[[Any], Any]:
    def apply(rows: Any) -> Any:
        batches = pa.Table.from_pandas(rows, schema=given, preserve_index=False).to_batches()
        made = pa.Table.from_batches(_as_declared(replay, schema, iter(batches)), schema=schema)
        pandas = import_module("pandas")  # no dependency: whoever asks for it has it
        nullable = {
            pa.int64(): pandas.Int64Dtype(),
            pa.int32(): pandas.Int32Dtype(),
            pa.int8(): pandas.Int8Dtype(),
            pa.bool_(): pandas.BooleanDtype(),
        }
        return made.to_pandas(types_mapper=nullable.get, maps_as_pydicts="strict")

    return apply


def _as_declared(replay: ReplayKey, schema: pa.Schema, batches: Batches) -> Batches:
    """The rows of one key with the columns of a schema."""
    cluster_id: list[str | None] = [None]

    def noted() -> Batches:
        for batch in batches:
            if "cluster_id" in batch.schema.names:
                cluster_id[0] = batch["cluster_id"][0].as_py()
            yield batch

    for rows in replay(noted()):
        if rows.num_rows:
            columns = {name: rows[name] for name in rows.column_names}
            if "cluster_id" in schema.names:
                columns["cluster_id"] = pa.repeat(pa.scalar(cluster_id[0], pa.string()), rows.num_rows)
            arrays = [columns[field.name].cast(field.type) for field in schema]
            yield from pa.Table.from_arrays(arrays, schema=schema).to_batches(max_chunksize=ROWS_MAX)


ROWS_MAX: Final = 1 << 16
"""Of an Arrow batch that goes back to Spark."""


def _settled(rows: pa.Table, is_settled: bool) -> pa.Table:
    return rows.append_column("is_settled", pa.array(np.full(rows.num_rows, is_settled)))


@dataclass(frozen=True, slots=True)
class _Commits:
    """Commits of one group: no history of it is made."""

    has_markers: bool

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        columnar, partition = ColumnarOffsetReplay(), 0
        for chunk in key_chunks(batches, keeps_operations=False):
            partition = chunk.log_partition
            commits = columnar.feed(chunk.records).commits
            reported = chunk.are_known(commits.log_offset)
            yield _settled(self._decided(commits, commits_table(commits, partition, reported)), True)
        commits = columnar.finish()
        if len(commits):
            yield _settled(self._decided(commits, commits_table(commits, partition)), False)

    def _decided(self, commits: CommitColumns, rows: pa.Table) -> pa.Table:
        """Without markers nothing is known of a transaction, also where the same producer commits again."""
        if self.has_markers or not len(commits):
            return rows
        is_open = (commits.producer_id != NO_PRODUCER_ID) & commits.is_value
        is_open &= commits.outcome != OUTCOMES.index("APPLIED")
        if not is_open.any():
            return rows
        outcome = pc.if_else(pa.array(is_open), UNDECIDED, rows["outcome"].cast(pa.string()))
        return rows.set_column(rows.column_names.index("outcome"), "outcome", outcome)


def _outputs(batches: Batches) -> Iterator[tuple[KeyChunk, OffsetsLogOutput, bool]]:
    """What the history of a group comes to: chunk by chunk, and at last what is open. The last flag: is it settled?"""
    replay, chunk = OffsetsLogReplay(), None
    for chunk in key_chunks(batches, keeps_operations=True):
        yield chunk, replay.feed(chunk.records), True
    if chunk is not None:
        yield chunk, replay.finish(), False


@dataclass(frozen=True, slots=True)
class _Groups:
    """Rows of one table of groups."""

    table: Table

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        for chunk, output, is_settled in _outputs(batches):
            if self.table == MEMBER_ASSIGNMENTS:
                if output.groups.assignments:
                    yield _settled(assignments_table(output.groups.assignments, chunk.log_partition), is_settled)
            elif rows := ROWS_OF_GROUPS[self.table](output.groups):
                yield _settled(rows_table(self.table, rows, {"log_partition": chunk.log_partition}), is_settled)


class _Learned(NamedTuple):
    """A name of a topic id, in columns of silver.topics."""

    topic_id: str
    topic: str
    valid_from: int
    learned_from: str


def _learned_topics(batches: Batches) -> Iterator[pa.Table]:
    for _, output, _ in _outputs(batches):
        if output.groups.topics:
            yield rows_table(TOPICS, [_Learned(*name) for name in output.groups.topics], {"valid_to": None})


def _group_findings(batches: Batches) -> Iterator[pa.Table]:
    for chunk, output, _ in _outputs(batches):
        yield from _findings(chunk, output.findings, OFFSETS_TOPIC)


def _findings(chunk: KeyChunk, findings: Sequence[Finding], topic: str) -> Iterator[pa.Table]:
    if findings:
        yield _quarantine(findings, topic, chunk.log_partition)


def _quarantine(findings: Sequence[Finding], topic: str, partition: int) -> pa.Table:
    """Rows of bronze.quarantine. No run met them, so they bear no time."""
    made = quarantine_table([(finding, None) for finding in findings], topic=topic, partition=partition, seen_at_ms=0)
    return made.set_column(made.column_names.index("seen_at"), "seen_at", pa.nulls(made.num_rows, made["seen_at"].type))


def _unread_batches(rows: Batches) -> Batches:
    schema = pa.schema([field.remove_metadata() for field in arrow_schema(QUARANTINE)])
    for place, findings in batch_findings(rows):
        made = _quarantine(findings, place["topic"], place["partition"])
        cluster_id = pa.repeat(pa.scalar(place.get("cluster_id"), pa.string()), made.num_rows)
        yield from made.append_column("cluster_id", cluster_id).select(schema.names).cast(schema).to_batches()


_ROWS_OF_SHARE_STATE: Final[Mapping[Table, Callable[[ColumnarOutput, ShareKeys, int], pa.Table]]] = {
    SHARE_PARTITION_STATES: lambda output, keys, partition: share_states_table(
        output.partition_states, keys, partition
    ),
    SHARE_STATE_BATCHES: lambda output, keys, partition: share_batches_table(output.state_batches, keys, partition),
    SHARE_BATCH_TRANSITIONS: lambda output, keys, partition: share_transitions_table(
        output.transitions, keys, partition
    ),
}


@dataclass(frozen=True, slots=True)
class _ShareState:
    """Rows of one table of a share partition."""

    table: Table

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        for chunk, output, is_settled in _share_outputs(batches):
            rows = _ROWS_OF_SHARE_STATE[self.table](output, ShareKeys(output.keys, {}), chunk.log_partition)
            yield _settled(rows, is_settled)


def _share_outputs(batches: Batches) -> Iterator[tuple[KeyChunk, ColumnarOutput, bool]]:
    columnar, chunk = ColumnarShareReplay(), None
    for chunk in key_chunks(batches, keeps_operations=False):
        yield chunk, columnar.feed(chunk.records), True
    if chunk is not None:
        yield chunk, columnar.finish(), False


def _share_findings(batches: Batches) -> Iterator[pa.Table]:
    for chunk, output, _ in _share_outputs(batches):
        yield from _findings(chunk, output.findings, SHARE_TOPIC)


def replay_of(name: str, *, has_markers: bool) -> ReplayKey | None:
    """What makes the rows of a table of silver from the records of one key; None: no replay makes them."""
    if name == OFFSET_COMMITS.full_name:
        return _Commits(has_markers)
    for table in (*ROWS_OF_GROUPS, MEMBER_ASSIGNMENTS):
        if table.full_name == name:
            return _Groups(table)
    for table in _ROWS_OF_SHARE_STATE:
        if table.full_name == name:
            return _ShareState(table)
    return None
