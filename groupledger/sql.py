"""The API as SQL: functions that decode records, and a table function that replays one key."""

import warnings
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from operator import itemgetter
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Row, SparkSession, udtf
from pyspark.sql import functions as F  # noqa: N812  (as Spark's own documentation has it)

from coordinator_core.bytes.log.chunk import CONTROL_NONE, CONTROL_UNKNOWN
from groupledger.decoding import Decoded, decode_record
from groupledger.key_replay import replay_of, topic_of
from groupledger.records import EXPECTED, OPENED_TYPES, RecordsError, require_together, types_of
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.spark_schemas import spark_schema
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.tables import TABLES
from schemas.tables.silver import GROUP_EVENTS

KEY_TYPE: Final = (
    "record_type INT, record_name STRING, group_id STRING, topic_id STRING, partition INT, fields STRING, error STRING"
)
VALUE_TYPE: Final = "record_name STRING, version INT, fields STRING, error STRING"

_MARKERS: Final = {"ABORT": 0, "0000": 0, "COMMIT": 1, "0001": 1}
"""Kafka's numbers of markers, by name and by what their key says."""


def register(spark: SparkSession) -> None:
    """Register the data source `kafka_log` (from Spark 4.0 on), and these functions of SQL:

    - `coordinator_key(key [, topic])`: the decoded key as a STRUCT; default topic: __consumer_offsets.
    - `coordinator_value(key, value [, topic])`: the decoded value as a STRUCT; null for a tombstone.
    - `replay_group([name => 'silver.offset_commits', records =>] TABLE(records) PARTITION BY (...) ORDER BY offset)`:
      the rows of a silver table (default: silver.group_events) for the one key of each partition. It takes `key`,
      `value`, `partition`, `offset`, `timestamp` and the optional columns of `replay_groups`, under these names only,
      and has the records of a key in memory: for keys with many records, use `replay_groups`. It leaves out rows
      without a position in the log and records of another topic. Spark has what it needs from 4.0 on.
    """
    spark.udf.register("coordinator_key", F.udf(coordinator_key, KEY_TYPE, useArrow=True))
    spark.udf.register("coordinator_value", F.udf(coordinator_value, VALUE_TYPE, useArrow=True))
    if not hasattr(udtf, "AnalyzeResult"):
        warnings.warn(
            "replay_group needs Spark 4.0 or newer, so only coordinator_key and coordinator_value are registered: "
            "replay DataFrames by replay_groups",
            stacklevel=2,
        )
        return
    if find_spec("kafka") is not None:  # the library with which it asks brokers
        from jobs.sources.kafka_log import KafkaLogDataSource  # noqa: PLC0415  (Spark has what it needs from 4.0 on)

        try:
            spark.dataSource.register(KafkaLogDataSource)
        except AnalysisException as error:  # in some Sparks all sessions share one, in which it is registered
            if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
                raise
    spark.udtf.register("replay_group", cast(udtf.UserDefinedTableFunction, F.udtf(ReplayGroup)))


def _decoded(topic: str, key: Any, value: Any) -> Decoded:
    """Spark passes whatever type a query has."""
    for name, it in (("key", key), ("value", value)):
        if it is not None and not isinstance(it, bytes):
            kind = type(it).__name__
            return Decoded(error=f"a {name} is BINARY, and this is a{'n' if kind == 'int' else ''} {kind}")
    return decode_record(topic, key, value)


def coordinator_key(key: bytes | None, topic: str = OFFSETS_TOPIC) -> tuple[Any, ...] | None:
    """The decoded key: columns of `KEY_TYPE`."""
    if key is None:
        return None
    made = _decoded(topic, key, None)
    return (
        *(made.record_type, made.record_name, made.group_id, made.topic_id, made.partition),
        *(made.key, made.error),
    )


def coordinator_value(key: bytes | None, value: bytes | None, topic: str = OFFSETS_TOPIC) -> tuple[Any, ...] | None:
    """The decoded value: columns of `VALUE_TYPE`."""
    if value is None:
        return None
    made = _decoded(topic, key, value)
    return made.record_name, made.value_version, made.value, made.error


def _has_place(row: Mapping[str, Any], topic: str) -> bool:
    """Is it a record of the topic, with a place in it?"""
    partition: int | None = row["partition"]
    offset: int | None = row["offset"]
    if partition is None or offset is None or row.get("topic", topic) != topic:
        return False
    return 0 <= partition < 1 << 31 and offset >= 0


class ReplayGroup:
    """The table function `replay_group`. Spark calls it once for each partition of its input table."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._table = ""

    @staticmethod
    def analyze(records: "udtf.AnalyzeArgument", name: "udtf.AnalyzeArgument | None" = None) -> "udtf.AnalyzeResult":
        """The columns of the named table; raises RecordsError for columns that the records lack."""
        table = GROUP_EVENTS.full_name if name is None else str(name.value)
        if not records.isTable:
            raise RecordsError("replay_group takes a table of records: TABLE(SELECT ...) PARTITION BY ... ORDER BY ...")
        fields: Any = records.dataType
        there = [(field.name.lower(), field.dataType.simpleString()) for field in fields]
        for column, expected in EXPECTED.items():
            types = [type_ for name, type_ in there if name == column]
            if not types and expected.is_required:
                raise RecordsError(f"records have no column {column!r}: {expected.meaning}. Select it under this name")
            if len(types) > 1:
                raise RecordsError(f"records have column {column!r} {len(types)} times: select one of them")
            if types and types[0] not in expected.types:
                of_text = ", by unbase64 or unhex where it is a text" if expected.types == ("binary",) else ""
                raise RecordsError(
                    f"column {column!r} of records is {types[0].upper()}, and {expected.meaning} is "
                    f"{types_of(expected)}: select it so{of_text}"
                )
        require_together([name for name, _ in there], decides=True)
        if topic_of(table) is None:
            raise RecordsError(f"no table {table!r} is made by replay: name one, as silver.offset_commits")
        columns = [column for column in TABLES[table].columns if column.name != "cluster_id"]
        return udtf.AnalyzeResult(spark_schema(columns))

    def eval(self, records: Row, name: str = GROUP_EVENTS.full_name) -> None:
        """Buffer a record."""
        self._table = name
        row = {name.lower(): it for name, it in records.asDict().items()}
        if not _has_place(row, topic_of(name) or OFFSETS_TOPIC):
            return
        at = row["timestamp"]
        made = {
            "log_partition": row["partition"],
            "log_offset": row["offset"],
            "timestamp_ms": at if at is None or isinstance(at, int) else round(at.timestamp() * 1000),
            "key": None if row["key"] is None else bytes(row["key"]),
            "value": None if row["value"] is None else bytes(row["value"]),
        }
        if "base_offset" in row:
            made["operation"] = row["base_offset"]
        if "producer_id" in row:
            producer_id = row["producer_id"]
            made["producer_id"] = producer_id
            made["is_transactional"] = row.get("is_transactional", producer_id is not None and producer_id >= 0)
        if "is_control" in row:
            of_key = _MARKERS.get((row["key"] or b"")[2:4].hex(), CONTROL_UNKNOWN)
            kind = _MARKERS.get(str(row.get("control_type")).upper(), of_key)
            made["control_type"] = kind if row["is_control"] else CONTROL_NONE
        self._rows.append(made)

    def terminate(self) -> Iterator[tuple[Any, ...]]:
        """Replay the buffered records."""
        if not self._rows:
            return
        schema = pa.schema([(name, OPENED_TYPES[name]) for name in self._rows[0]])
        has_markers = {"producer_id", "control_type"} <= set(schema.names)
        self._rows.sort(key=itemgetter("log_offset"))  # ORDER BY may be missing
        replay = replay_of(TABLES[self._table], topic_of(self._table) or OFFSETS_TOPIC, has_markers=has_markers)
        fields = [field for field in arrow_schema(TABLES[self._table]) if field.name != "cluster_id"]
        maps = [field.name for field in fields if pa.types.is_map(field.type)]
        for _, made in replay(iter(pa.Table.from_pylist(self._rows, schema=schema).to_batches())):
            for row in made.select([field.name for field in fields]).to_pylist():
                for name in maps:  # a map is its pairs in Python, and Spark takes a dict
                    row[name] = None if row[name] is None else dict(row[name])
                yield tuple(row.values())
