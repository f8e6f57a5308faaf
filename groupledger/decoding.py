"""Decode records of coordinator topics, one row each: record type, group or other subject, and content as JSON."""

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as Spark's own documentation has it)

from coordinator_core.bytes import codec
from coordinator_core.bytes.printed.kafka_json import to_json
from coordinator_core.errors import DecodeError
from groupledger.records import ColumnNames, read_records
from jobs.delta.arrow_schemas import arrow_schema, timestamps
from jobs.delta.spark_schemas import spark_schema
from schemas import registry
from schemas.cluster_metadata import TOPIC as METADATA_TOPIC
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.tables.declare import BIGINT, INT, STRING, TIMESTAMP, Column, Table

DECODED: Final = Table(
    layer="api",
    name="decoded_records",
    comment="One row a record of a coordinator topic, decoded.",
    columns=(
        Column("topic", STRING, "Internal topic."),
        Column("log_partition", INT, "Partition of it."),
        Column("log_offset", BIGINT, "Offset of the record."),
        Column("recorded_at", TIMESTAMP, "The record's own timestamp; null where it has none."),
        Column("record_type", INT, "First number of the key; of __cluster_metadata, of the value. Null in a marker."),
        Column("record_name", STRING, "What Kafka calls the type's value, as OffsetCommitValue; null where not known."),
        Column("value_version", INT, "Version of the value; null in a tombstone."),
        Column("group_id", STRING, "The group that the key names; null where it names none."),
        Column("topic_id", STRING, "Share state: topic id of the share partition, 22 characters."),
        Column("partition", INT, "Share state: partition of that topic."),
        Column("key", STRING, "The key's fields as JSON, as Kafka's own tools print them; null where not readable."),
        Column("value", STRING, "The value's fields likewise; null in a tombstone and where not readable."),
        Column("error_code", STRING, "Why key or value could not be read, as a code of bronze.quarantine."),
        Column("error", STRING, "The same in words; null: all was read."),
    ),
)
"""The schema of `decode`."""


def decode(records: DataFrame, *, columns: ColumnNames | None = None, topic: str = OFFSETS_TOPIC) -> DataFrame:
    """One row for each record: `DECODED.columns`. A record that cannot be decoded gives a row with `error`, never an
    exception.

    `records`: as for `replay_groups`. `topic`: of all records, unless they have such a column; the topic cannot be
    derived from a key. Transaction markers have neither key nor value here, and no error.

    Raises RecordsError before any job runs where a column is missing or of another type.
    """
    read = read_records(records, columns)
    names = ["log_partition", "log_offset", "timestamp_ms", "key", "value"]
    of_topic = F.col("topic") if read.has_topic else F.lit(topic)
    marker = F.col("control_type") >= 0 if "control_type" in read.frame.columns else F.lit(False)
    rows = read.frame.select(of_topic.alias("topic"), marker.alias("is_marker"), *names)
    return rows.mapInArrow(_decode_rows, spark_schema(DECODED.columns))


class Decoded(NamedTuple):
    """Columns of `DECODED`, without position and time."""

    record_type: int | None = None
    record_name: str | None = None
    value_version: int | None = None
    group_id: str | None = None
    topic_id: str | None = None
    partition: int | None = None
    key: str | None = None
    value: str | None = None
    error_code: str | None = None
    error: str | None = None


NOT_READ: Final = "OTHER_TOPIC"
"""Code for records of topics that no coordinator writes."""


def _decode_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(DECODED)
    for batch in batches:
        columns = (batch[name].to_pylist() for name in ("topic", "is_marker", "key", "value"))
        made = [
            Decoded() if is_marker else decode_record(topic, key, value)
            for topic, is_marker, key, value in zip(*columns, strict=True)
        ]
        times = batch["timestamp_ms"].fill_null(-1).to_numpy()
        arrays = [batch["topic"], batch["log_partition"], batch["log_offset"], timestamps(np.asarray(times))]
        values = zip(*made, strict=True) if made else [()] * len(Decoded._fields)
        for field, some in zip(list(schema)[4:], values, strict=True):
            arrays.append(pa.array(some, field.type))
        yield pa.RecordBatch.from_arrays([a.cast(f.type) for a, f in zip(arrays, schema, strict=True)], schema=schema)


def decode_record(topic: str | None, key: bytes | None, value: bytes | None) -> Decoded:
    """Decode a record. Never raises, whatever the bytes."""
    if topic == METADATA_TOPIC:
        return _decode_metadata(value)
    if topic is None or topic not in registry.REGISTRY:
        known = ", ".join(sorted((*registry.REGISTRY, METADATA_TOPIC)))
        return Decoded(error_code=NOT_READ, error=f"a record of {topic!r}: only those of {known} are decoded")
    decoded = Decoded()
    try:
        if key is None:
            return decoded._replace(error_code="NULL_NOT_ALLOWED", error="a record of a coordinator's log has a key")
        of_key = codec.decode_key(topic, key)
        fields: Any = of_key.fields
        _, of_value = registry.REGISTRY[topic][of_key.record_type]
        decoded = Decoded(
            record_type=of_key.record_type,
            record_name=of_value.name,
            group_id=getattr(fields, "group_id", getattr(fields, "group", None)),
            topic_id=getattr(fields, "topic_id", None),
            partition=fields.partition if hasattr(fields, "topic_id") else None,
            key=_json(to_json(fields, of_key.message, 0, with_unknown_tags=True)),
        )
        if value is None:
            return decoded
        read = codec.decode_value(topic, of_key.record_type, value)
        return decoded._replace(
            value_version=read.version,
            value=_json(to_json(read.fields, read.message, read.version, with_unknown_tags=True)),
        )
    except DecodeError as error:
        return decoded._replace(error_code=error.code, error=_in_words(error))


def _decode_metadata(value: bytes | None) -> Decoded:
    if value is None:
        return Decoded()
    decoded = Decoded()
    try:
        decoded = decoded._replace(record_type=codec.metadata_record_type(value))
        read = codec.decode_metadata(value)
        fields = _json(to_json(read.fields, read.message, read.version, with_unknown_tags=True))
        return decoded._replace(record_name=read.message.name, value_version=read.version, value=fields)
    except DecodeError as error:
        return decoded._replace(error_code=error.code, error=_in_words(error))


def _in_words(error: DecodeError) -> str:
    place = "" if error.byte_position is None else f", at byte {error.byte_position}"
    return f"{error.message}{place}"


def _json(node: Any) -> str:
    return json.dumps(node, ensure_ascii=False, separators=(",", ":"))
