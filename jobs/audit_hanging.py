"""gold.hanging_transactions, on the driver: of all commits the pending ones alone are read, which are few."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.inference.hanging import HangingRow, OpenCommits, hanging
from jobs.arrow_schemas import arrow_schema
from jobs.replay_state import read_watermarks
from jobs.replay_tasks import OFFSETS_TOPIC
from jobs.runs import WholeRun
from jobs.silver_rows import rows_table
from jobs.sinks import Warehouse
from jobs.times import epoch_ms
from schemas.tables.bronze import COVERAGE
from schemas.tables.gold import HANGING_TRANSACTIONS
from schemas.tables.silver import OFFSET_COMMITS

COLUMNS: Final = ("group_id", "log_partition", "producer_id", "log_offset", "recorded_at")
HOLES: Final = ("MISSING", "CORRUPT")


def hanging_transactions(warehouse: Warehouse, run: WholeRun, cluster_id: str) -> pa.Table:
    """Rows of gold.hanging_transactions of a cluster."""
    rows = sorted(_hanging(warehouse, run, cluster_id), key=lambda row: (row.log_partition, row.first_log_offset))
    schema = arrow_schema(HANGING_TRANSACTIONS)
    if not rows:
        return schema.empty_table()
    names = pa.repeat(pa.scalar(cluster_id, pa.string()), len(rows))
    table = rows_table(HANGING_TRANSACTIONS, rows, {})
    return table.add_column(0, schema.field("cluster_id"), names).cast(schema)


def _hanging(warehouse: Warehouse, run: WholeRun, cluster_id: str) -> Iterator[HangingRow]:
    pending = run.read(OFFSET_COMMITS, COLUMNS, is_settled=False, outcome="PENDING")
    found = open_commits(pending)
    if not found:
        return
    watermarks = read_watermarks(run, of_any_format=True)
    where = {"cluster_id": cluster_id, "topic": OFFSETS_TOPIC}
    coverage = warehouse.read(COVERAGE, where=where).to_pylist()
    for commits in found:
        ranges = [it for it in coverage if it["partition"] == commits.log_partition]
        captured = [it for it in ranges if it["kind"] == "CAPTURED"]
        watermark = watermarks.get((OFFSETS_TOPIC, commits.log_partition))
        next_offset = max((it["to_offset"] + 1 for it in captured), default=0)
        if watermark is None or watermark.next_offset < next_offset:
            continue  # what was captured since is not replayed yet, and may have the marker
        ends = [epoch_ms(it["last_timestamp"]) for it in captured if it["last_timestamp"] is not None]
        row = hanging(
            commits,
            max(ends, default=None),
            next_offset,
            has_hole_behind=any(it["kind"] in HOLES and it["to_offset"] > commits.first_log_offset for it in ranges),
        )
        if row is not None:
            yield row


def open_commits(pending: pa.Table) -> list[OpenCommits]:
    """Pending commits (`COLUMNS`) by group, log partition and producer."""
    pending = pending.filter(pc.greater_equal(pending["producer_id"], 0))
    key = ["group_id", "log_partition", "producer_id"]
    counts = [("recorded_at", "min"), ("log_offset", "min"), ("log_offset", "max"), ("log_offset", "count")]
    return [
        OpenCommits(
            row["group_id"],
            row["log_partition"],
            row["producer_id"],
            None if row["recorded_at_min"] is None else epoch_ms(row["recorded_at_min"]),
            row["log_offset_min"],
            row["log_offset_max"],
            row["log_offset_count"],
        )
        for row in pending.group_by(key).aggregate(counts).to_pylist()
    ]
