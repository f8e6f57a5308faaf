"""gold.hanging_transactions, made on the driver: only pending commits are read, and these are few."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.coverage import IN_BATCH
from coordinator_core.inference.audit.log_anomalies import LogAnomalyRow, not_judged
from coordinator_core.inference.commits.hanging import HangingRow, OpenCommits, hanging
from jobs.bronze.coverage import COMPACTION, HOLES
from jobs.delta.arrow_schemas import DAY, arrow_schema
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.core_tables import rows_table
from jobs.delta.replay_runs import WholeRun
from jobs.delta.times import epoch_ms
from jobs.errors import OUTSIDE
from jobs.silver.checkpoints import Watermark, read_watermarks
from jobs.silver.replay_failures import groups_left_out, read_failures
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.tables.bronze import COVERAGE
from schemas.tables.gold import HANGING_TRANSACTIONS
from schemas.tables.silver import OFFSET_COMMITS

COLUMNS: Final = ("group_id", "log_partition", "producer_id", "log_offset", "recorded_at", "commit_time")
CLEANED: Final = (COMPACTION, IN_BATCH)
"""Reasons of holes that the log cleaner left."""


def hanging_transactions(tables: ClusterTables, run: WholeRun, failed: list[LogAnomalyRow]) -> pa.Table:
    """Rows of gold.hanging_transactions of a cluster. Groups that fail are added to `failed`."""
    found = _hanging(tables, run, failed)
    rows = sorted(found, key=lambda row: (row.log_partition, row.first_log_offset))
    schema = arrow_schema(HANGING_TRANSACTIONS)
    if not rows:
        return schema.empty_table()
    names = pa.repeat(pa.scalar(tables.cluster_id, pa.string()), len(rows))
    return hanging_table(rows).add_column(0, schema.field("cluster_id"), names).cast(schema)


def hanging_table(rows: Sequence[HangingRow]) -> pa.Table:
    """Rows of gold.hanging_transactions, at least one, without the cluster. All of them are open."""
    return rows_table(HANGING_TRANSACTIONS, rows, {DAY: None})


def _hanging(tables: ClusterTables, run: WholeRun, failed: list[LogAnomalyRow]) -> Iterator[HangingRow]:
    pending = run.read(OFFSET_COMMITS, COLUMNS, is_settled=False, outcome="PENDING")
    found = open_commits(pending)
    if not found:
        return
    watermarks = read_watermarks(run, of_any_format=True)
    coverage = tables.read(COVERAGE, topic=OFFSETS_TOPIC).to_pylist()
    failures = read_failures(run)
    for commits in found:
        left_out = groups_left_out(failures.get((OFFSETS_TOPIC, commits.log_partition), ()))
        if left_out is None or commits.group_id in left_out:
            continue  # silver may lack the transaction marker
        ranges = [it for it in coverage if it["partition"] == commits.log_partition]
        try:
            row = _judged(commits, ranges, watermarks.get((OFFSETS_TOPIC, commits.log_partition)))
            if row is not None:
                hanging_table([row])
        except OUTSIDE:
            raise
        except Exception as error:
            failed.append(not_judged(error, commits.group_id, None, commits.log_partition, commits.first_log_offset))
        else:
            if row is not None:
                yield row


def _judged(
    commits: OpenCommits, ranges: Sequence[Mapping[str, Any]], watermark: Watermark | None
) -> HangingRow | None:
    """The row for the open commits of one group and producer; None: no finding. `ranges`: coverage of their log
    partition."""
    if any(it["reason"] in CLEANED and it["to_offset"] > commits.first_log_offset for it in ranges):
        return None  # the cleaner stops before an open transaction: it was ended, and its marker removed
    captured = [it for it in ranges if it["kind"] == "CAPTURED"]
    next_offset = max((it["to_offset"] + 1 for it in captured), default=0)
    if watermark is None or watermark.next_offset < next_offset:
        return None  # captured records that are not replayed yet may include the marker
    ends = [epoch_ms(it["last_timestamp"]) for it in captured if it["last_timestamp"] is not None]
    return hanging(
        commits,
        max(ends, default=None),
        next_offset,
        has_hole_behind=any(it["kind"] in HOLES and it["to_offset"] > commits.first_log_offset for it in ranges),
    )


def open_commits(pending: pa.Table) -> list[OpenCommits]:
    """Group pending commits (`COLUMNS`) by group, log partition and producer."""
    pending = pending.filter(pc.greater_equal(pending["producer_id"], 0))
    # where a record has no timestamp, its value has one in most versions
    pending = pending.append_column("since", pc.coalesce(pending["recorded_at"], pending["commit_time"]))
    key = ["group_id", "log_partition", "producer_id"]
    counts = [("since", "min"), ("log_offset", "min"), ("log_offset", "max"), ("log_offset", "count")]
    return [
        OpenCommits(
            row["group_id"],
            row["log_partition"],
            row["producer_id"],
            None if row["since_min"] is None else epoch_ms(row["since_min"]),
            row["log_offset_min"],
            row["log_offset_max"],
            row["log_offset_count"],
        )
        for row in pending.group_by(key, use_threads=False).aggregate(counts).to_pylist()
    ]
