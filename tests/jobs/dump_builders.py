"""Dumps of recorded logs, in the shapes in which users have them."""

import base64
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from coordinator_core.bytes.log.records import iter_records
from coordinator_core.bytes.log.scan import scan_segment
from coordinator_core.bytes.log.segment import parse_partition_folder
from jobs.settings import load_settings
from jobs.sources.dumps.pack import read_dump_log
from jobs.sources.dumps.source import Unpacked, unpack_dumps
from jobs.sources.segments import SegmentRead

KAFKA_SCHEMA = pa.schema(
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
"""Columns of Spark's Kafka source."""


def unpacked(staging: Path, *uris: Path | str, **options: Any) -> Unpacked:
    """Dumps unpacked in this process."""
    settings = load_settings({"dumps": tuple(map(str, uris)), **options}, environment={})

    def run_all(function: Callable[[Any], Any], works: Sequence[Any]) -> list[Any]:
        return [function(work) for work in works]

    return unpack_dumps(settings, staging=str(staging), run_all=run_all)


def reads_of(dumps: Unpacked) -> dict[tuple[str, int], list[SegmentRead]]:
    """What each log partition gives."""
    reads: dict[tuple[str, int], list[SegmentRead]] = {}
    for log in dumps.logs:
        reads.setdefault((log.topic, log.partition), []).extend(read_dump_log(log))
    return reads


def batches_of(dumps: Unpacked) -> dict[tuple[str, int], bytes]:
    """All batches of each log partition, back to back."""
    return {place: b"".join(read.data.to_pybytes() for read in reads) for place, reads in reads_of(dumps).items()}


def kafka_rows(logs: Path, topics: Sequence[str] | None = None) -> pa.Table:
    """What `spark.read.format("kafka")` gives of the logs: data records of all partitions, without markers."""
    rows: list[dict[str, Any]] = []
    for path in sorted(logs.glob("*/*.log")):
        place = parse_partition_folder(path.parent.name)
        if place is None or (topics is not None and place[0] not in topics):
            continue
        data = path.read_bytes()
        batches = scan_segment(data, base_offset=int(path.stem)).batches
        for row in range(len(batches)):
            start = int(batches.position[row])
            if batches.is_control[row]:
                continue
            rows += [
                {
                    "key": record.key,
                    "value": record.value,
                    "topic": place[0],
                    "partition": place[1],
                    "offset": record.offset,
                    "timestamp": record.timestamp_ms * 1000,
                    "timestampType": int(batches.is_log_append_time[row]),
                }
                for record in iter_records(data[start : start + int(batches.size[row])])
            ]
    return pa.Table.from_pylist(rows, schema=KAFKA_SCHEMA)


def write_json_lines(rows: pa.Table, path: Path, *, encoding: str = "base64") -> Path:
    """As `df.write.json` writes them (nulls left out, bytes in base64), or in hex with times in ms."""
    with path.open("w", encoding="utf-8") as lines:
        for row in rows.to_pylist():
            at = row.pop("timestamp")
            as_text = bytes.hex if encoding == "hex" else lambda data: base64.b64encode(data).decode()
            node = {name: as_text(value) if isinstance(value, bytes) else value for name, value in row.items()}
            node["timestamp"] = at.isoformat() if encoding == "base64" else int(at.timestamp() * 1000 + 0.5)
            lines.write(json.dumps({name: value for name, value in node.items() if value is not None}) + "\n")
    return path
