"""Offset ranges that retention deleted from bronze after they were captured and replayed.

Capture treats them as captured, so it does not read them again if a source still has them. Replay treats them as
replayed, so it continues from its checkpoints.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import pyarrow as pa

from coordinator_core.bytes.coverage import union
from coordinator_core.bytes.log_partitions import LogPartition, OffsetRange
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.table_files import TableFile
from jobs.delta.warehouse import MAINTAIN_APPLICATION, Warehouse
from schemas.tables.state import OFFSET_RANGES, Ranges


def deleted_ranges(tables: ClusterTables) -> dict[LogPartition, tuple[OffsetRange, ...]]:
    """By log partition, ascending and disjoint; empty where retention deleted nothing."""
    ranges: dict[LogPartition, list[OffsetRange]] = {}
    for row in tables.read(
        OFFSET_RANGES, ["topic", "partition", "from_offset", "to_offset"], kind=Ranges.DELETED
    ).to_pylist():
        ranges.setdefault((row["topic"], row["partition"]), []).append((row["from_offset"], row["to_offset"]))
    return {log: tuple(union(found)) for log, found in ranges.items()}


def record_deletions(warehouse: Warehouse, files: Iterable[TableFile], *, at: datetime) -> None:
    """Record the offset ranges of files that are about to be removed from bronze.record_batches, unless recorded
    already.
    """
    names = ("cluster_id", "topic", "partition", "from_offset")
    known = {
        tuple(row.values()) for row in warehouse.read(OFFSET_RANGES, names, where={"kind": Ranges.DELETED}).to_pylist()
    }
    rows: list[dict[str, Any]] = [
        {
            **file.partition_values,
            "kind": Ranges.DELETED,
            "from_offset": file.minimum["base_offset"],
            "to_offset": file.maximum["last_offset"],
            "max_timestamp": file.maximum["max_timestamp"],
            "deleted_at": at,
        }
        for file in files
    ]
    new = [row for row in rows if tuple(row[name] for name in names) not in known]
    if new:
        version = 1 + warehouse.last_version(OFFSET_RANGES, MAINTAIN_APPLICATION)
        table = pa.Table.from_pylist(new, schema=arrow_schema(OFFSET_RANGES))
        warehouse.write(OFFSET_RANGES, table, app_id=MAINTAIN_APPLICATION, version=version)
