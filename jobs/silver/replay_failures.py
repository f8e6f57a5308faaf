"""state.replay_failures: what the last run could not replay, for the next run, the audit and queries."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from coordinator_core.bytes.log_partitions import LogPartition
from coordinator_core.replay.key_buckets import Key
from coordinator_core.replay.lookup import SharePartitionKey
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.replay_runs import WholeRun
from jobs.silver.checkpoints import log_name
from jobs.silver.isolation import Fault, ReplayFailure
from schemas.tables.state import REPLAY_FAILURES

FailuresByLog = Mapping[LogPartition, tuple[ReplayFailure, ...]]


def read_failures(run: WholeRun) -> dict[LogPartition, tuple[ReplayFailure, ...]]:
    """What a run could not replay, by log partition."""
    failures: dict[LogPartition, tuple[ReplayFailure, ...]] = {}
    for row in run.read(REPLAY_FAILURES).to_pylist():
        log = row["log_topic"], row["log_partition"]
        key = row["group_id"]
        if row["topic_id"] is not None:
            key = SharePartitionKey(key, row["topic_id"], row["partition"])
        fault = Fault(row["error"], row["group_id"], row["log_offset"])
        failures[log] = (*failures.get(log, ()), ReplayFailure(*log, key, fault, row["from_offset"]))
    return failures


def failures_table(cluster_id: str, failures: Iterable[ReplayFailure]) -> pa.Table:
    """Rows of state.replay_failures; failures that several tasks report become one row."""
    rows: dict[tuple[str, int, Key | None], Mapping[str, Any]] = {}
    for failure in failures:
        key = failure.key
        share = key if isinstance(key, SharePartitionKey) else None
        row = {
            "cluster_id": cluster_id,
            "log_topic": failure.log_topic,
            "log_partition": failure.log_partition,
            "group_id": failure.group_id,
            "topic_id": None if share is None else share.topic_id,
            "partition": None if share is None else share.partition,
            "from_offset": failure.from_offset,
            "log_offset": failure.fault.log_offset,
            "error": failure.fault.text,
        }
        rows.setdefault((failure.log_topic, failure.log_partition, key), row)
    return pa.Table.from_pylist(list(rows.values()), schema=arrow_schema(REPLAY_FAILURES))


def groups_left_out(failures: Iterable[ReplayFailure]) -> frozenset[str] | None:
    """The groups of which silver lacks something; None: all groups."""
    group_ids = [failure.group_id for failure in failures]
    return None if None in group_ids else frozenset(group_id for group_id in group_ids if group_id is not None)


def failure_text(failure: ReplayFailure) -> str:
    """A failure in words: what failed, where, and what silver lacks."""
    log = log_name(failure.log_topic, failure.log_partition)
    share = (
        f" of share partition {failure.key.as_coordinator_key()}" if isinstance(failure.key, SharePartitionKey) else ""
    )
    at = "" if failure.fault.log_offset is None else f" at offset {failure.fault.log_offset}"
    return f"{failure.fault.text}{share}; {log}{at}; silver lacks it from offset {failure.from_offset} on"
