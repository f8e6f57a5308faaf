"""Conformance of the share coordinator's replay with Kafka's own ShareCoordinatorShard.

Replay only: each step's records are folded, and the state, the fences, the counter of updates and the
redundant offset after the step are compared. The answers to requests are not judged.
"""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coordinator_core.share_state.combine import StateBatch
from coordinator_core.share_state.replay import replay_share_snapshot, replay_share_update
from coordinator_core.share_state.state import SharePartitionKey, ShareShard, ShareSnapshot, ShareUpdate

SHARE_SNAPSHOT = 0


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
    named = record["keyJson"]
    key = SharePartitionKey(named["groupId"], named["topicId"], named["partition"])
    value = record["valueJson"]
    if record["type"] != SHARE_SNAPSHOT:
        update = ShareUpdate(
            snapshot_epoch=value["snapshotEpoch"],
            leader_epoch=value["leaderEpoch"],
            start_offset=value["startOffset"],
            delivery_complete_count=value.get("deliveryCompleteCount", -1),
            state_batches=_batches(value),
        )
        return replay_share_update(shard, key, update)
    if value is None:
        return replay_share_snapshot(shard, key, None, record["offset"])
    snapshot = ShareSnapshot(
        snapshot_epoch=value["snapshotEpoch"],
        state_epoch=value["stateEpoch"],
        leader_epoch=value["leaderEpoch"],
        start_offset=value["startOffset"],
        delivery_complete_count=value.get("deliveryCompleteCount", -1),
        create_timestamp_ms=value["createTimestamp"],
        write_timestamp_ms=value["writeTimestamp"],
        state_batches=_batches(value),
    )
    return replay_share_snapshot(shard, key, snapshot, record["offset"])


def _batches(value: Mapping[str, Any]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(b["firstOffset"], b["lastOffset"], b["deliveryState"], b["deliveryCount"])
        for b in value["stateBatches"]
    )


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
                [b.first_offset, b.last_offset, b.delivery_state, b.delivery_count]
                for b in state.state_batches
            ],
        }
        for key, state in shard.share_partitions.items()
    }
