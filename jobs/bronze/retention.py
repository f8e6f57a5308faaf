"""What retention took out of bronze: ranges of offsets which were captured and replayed, and are not there any more.

Capture takes them for captured, so that it does not read them again where the source still has them; replay takes them
for replayed, so that it goes on from its state.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import pyarrow as pa

from coordinator_core.coverage import union
from coordinator_core.log_partitions import LogPartition, OffsetRange
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.warehouse import MAINTAIN_APPLICATION, TableFile, Warehouse
from schemas.tables.state import DROPPED


def dropped_ranges(warehouse: Warehouse, cluster_id: str) -> dict[LogPartition, tuple[OffsetRange, ...]]:
    """By topic and partition, ascending and disjoint; nothing where retention never took anything."""
    ranges: dict[LogPartition, list[OffsetRange]] = {}
    for row in warehouse.read(DROPPED, where={"cluster_id": cluster_id}).to_pylist():
        ranges.setdefault((row["topic"], row["partition"]), []).append((row["from_offset"], row["to_offset"]))
    return {log: tuple(union(found)) for log, found in ranges.items()}


def tell_dropped(warehouse: Warehouse, files: Iterable[TableFile], *, at: datetime) -> None:
    """Write down that files of bronze.record_batches are about to go; those which were told before are left out."""
    known = {
        (row["cluster_id"], row["topic"], row["partition"], row["from_offset"])
        for row in warehouse.read(DROPPED, ["cluster_id", "topic", "partition", "from_offset"]).to_pylist()
    }
    rows: list[dict[str, Any]] = [
        {
            **file.partition_values,
            "from_offset": file.minimum["base_offset"],
            "to_offset": file.maximum["last_offset"],
            "max_timestamp": file.maximum["max_timestamp"],
            "dropped_at": at,
        }
        for file in files
    ]
    names = ("cluster_id", "topic", "partition", "from_offset")
    new = [row for row in rows if tuple(row[name] for name in names) not in known]
    if new:
        version = 1 + warehouse.last_version(DROPPED, MAINTAIN_APPLICATION)
        table = pa.Table.from_pylist(new, schema=arrow_schema(DROPPED))
        warehouse.write(DROPPED, table, app_id=MAINTAIN_APPLICATION, version=version)
