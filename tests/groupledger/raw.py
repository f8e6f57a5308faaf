"""Raw records of recordings, read by the plain reader of batches: what a table of a user's lake would hold."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from coordinator_core.bytes.log.batch import parse_header
from coordinator_core.bytes.log.records import iter_records
from jobs.delta.warehouse import Warehouse
from schemas.tables.bronze import RECORD_BATCHES
from tests import recorded

RECORDINGS = (
    "full-a",
    "codec-gzip",
    "codec-lz4",
    "codec-snappy",
    "codec-zstd",
    "compact",
    "compact-partial",
    "old-40",
    "p50",
)

SPARK_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
)
"""As Spark's Kafka source gives records."""
LOG_SCHEMA = pa.schema(
    [
        *SPARK_SCHEMA,
        ("base_offset", pa.int64()),
        ("producer_id", pa.int64()),
        ("is_transactional", pa.bool_()),
        ("is_control", pa.bool_()),
        ("control_type", pa.string()),
    ]
)
"""The same with what the batches tell."""


def raw_records(warehouse: Warehouse) -> pa.Table:
    """All records of bronze, markers included: LOG_SCHEMA."""
    return pa.Table.from_pylist(list(_rows(warehouse)), schema=LOG_SCHEMA)


def as_spark_gives(records: pa.Table) -> pa.Table:
    """The same as Spark's Kafka source would give them: no markers, and nothing of batches."""
    data = records.filter(pa.compute.invert(records["is_control"]))
    return data.select(SPARK_SCHEMA.names)


def _rows(warehouse: Warehouse) -> Iterator[dict[str, Any]]:
    columns = ["topic", "partition", "base_offset", "batch", "is_control", "control_type"]
    for row in warehouse.read(RECORD_BATCHES).select(columns).to_pylist():
        header = parse_header(row["batch"])
        for record in iter_records(row["batch"]):
            yield {
                "key": record.key,
                "value": record.value,
                "topic": row["topic"],
                "partition": row["partition"],
                "offset": record.offset,
                "timestamp": None if record.timestamp_ms < 0 else record.timestamp_ms * 1000,
                "timestampType": 0,
                "base_offset": row["base_offset"],
                "producer_id": header.producer_id,
                "is_transactional": header.is_transactional,
                "is_control": row["is_control"],
                "control_type": row["control_type"],
            }


def recording(name: str) -> Path:
    """The logs of a recording."""
    return recorded.RECORDINGS / name / "logs"
