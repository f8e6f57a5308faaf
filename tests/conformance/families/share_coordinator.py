"""Conformance of the share coordinator's replay with Kafka's own ShareCoordinatorShard.

Replay only: each step's records are folded, and the state, the fences, the counter of updates and the
redundant offset after the step are compared. The answers to requests are not judged.
"""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coordinator_core import codec
from coordinator_core.share_state.replay import (
    replay_share_snapshot,
    replay_share_update,
    share_snapshot,
    share_update,
)
from coordinator_core.share_state.state import SharePartitionKey, ShareShard
from schemas.share_group_state import TOPIC, ShareStateRecordType


def run(path_to_jsonl_gz: str | Path) -> tuple[int, int, list[str]]:
    """Judge every case of the trace: (cases, passed, failures). A case passes if every step's state is right."""
    cases = passed = 0
    failures: list[str] = []
    with gzip.open(path_to_jsonl_gz, "rt", encoding="utf-8") as lines:
        for line in lines:
            case = json.loads(line)
            cases += 1
            failure = _judge(case)
            if failure is None:
                passed += 1
            else:
                failures.append(f"case {case['id']}: {failure}")
    return cases, passed, failures


def _judge(case: Mapping[str, Any]) -> str | None:
    shard = ShareShard(updates_per_snapshot=case["config"]["snapshotUpdateRecordsPerSnapshot"])
    for number, step in enumerate(case["steps"]):
        for record in step["records"]:
            shard = _replayed(shard, record)
        state = _dump(shard)
        if state != step["state"]:
            return f"step {number} ({step['op']}): state {state} is not {step['state']}"
        if shard.last_redundant_offset != step["lastRedundantOffset"]:
            return (
                f"step {number} ({step['op']}): redundant offset {shard.last_redundant_offset} "
                f"is not {step['lastRedundantOffset']}"
            )
    return None


def _replayed(shard: ShareShard, record: Mapping[str, Any]) -> ShareShard:
    """The record's own bytes, decoded and replayed; Kafka's JSON of them is not looked at."""
    decoded = codec.decode_key(TOPIC, bytes.fromhex(record["key"]))
    key = SharePartitionKey(decoded.fields.group_id, decoded.fields.topic_id, decoded.fields.partition)
    if record["value"] is None:
        return replay_share_snapshot(shard, key, None, record["offset"])
    value = codec.decode_value(TOPIC, decoded.record_type, bytes.fromhex(record["value"])).fields
    if decoded.record_type == ShareStateRecordType.SHARE_SNAPSHOT:
        return replay_share_snapshot(shard, key, share_snapshot(value), record["offset"])
    return replay_share_update(shard, key, share_update(value))


def _dump(shard: ShareShard) -> dict[str, dict[str, Any]]:
    return {
        key.as_coordinator_key(): {
            "snapshotEpoch": state.snapshot_epoch,
            "stateEpoch": state.state_epoch,
            "leaderEpoch": state.leader_epoch,
            "startOffset": state.start_offset,
            "deliveryCompleteCount": state.delivery_complete_count,
            "createTimestamp": state.create_timestamp_ms,
            "writeTimestamp": state.write_timestamp_ms,
            "fenceLeaderEpoch": shard.leader_epochs.get(key),
            "fenceStateEpoch": shard.state_epochs.get(key),
            "updatesSinceSnapshot": shard.update_counts.get(key, 0),
            "stateBatches": [
                [b.first_offset, b.last_offset, b.delivery_state, b.delivery_count] for b in state.state_batches
            ],
        }
        for key, state in shard.share_partitions.items()
    }
