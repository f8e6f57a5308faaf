"""Conformance of the share coordinator with Kafka's own ShareCoordinatorShard, both ways.

Replay: each step's records are decoded from their bytes and folded. Live: the step's request goes to a
`ShareCoordinator`, whose answer and records, byte for byte, must be Kafka's. Both ways the state, the fences, the
counter of updates and the redundant offset after the step are compared, and a third shard which replays the whole log
at the end must agree. Where one step writes for several share partitions their order is that of Kafka's hash map.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion
from coordinator_core.live.coordinator.image import Topic, image_of
from coordinator_core.live.share_state.config import ShareCoordinatorConfig
from coordinator_core.live.share_state.coordinator import Outcome, ShareCoordinator
from coordinator_core.live.share_state.messages import (
    DeletePartition,
    InitializePartition,
    ReadPartition,
    Response,
    StateRequest,
    StateTopic,
    WritePartition,
)
from coordinator_core.live.share_state.records import (
    AppendedRecord,
    ShareStateRecord,
    decode_record,
    encode_record,
    replay_record,
)
from coordinator_core.replay.share_state.state import ShareShard
from tests.conformance.families.cases import judge_cases
from tests.coordinator_core.live.share_state.exchange import served
from tests.coordinator_core.logs import MemoryLog
from tests.message_json import json_of, message_of

Json = Mapping[str, Any]


class Request(NamedTuple):
    """How a step of the trace is put to the coordinator."""

    operation: str
    partition: type


REQUESTS: Final[dict[str, Request]] = {
    "initializeState": Request("initialize_state", InitializePartition),
    "writeState": Request("write_state", WritePartition),
    "readState": Request("read_state", ReadPartition),
    "readStateSummary": Request("read_state_summary", ReadPartition),
    "deleteState": Request("delete_state", DeletePartition),
}

JOBS: Final[dict[str, Callable[[ShareCoordinator, Json, int], Outcome]]] = {
    "advanceTime": lambda coordinator, request, now_ms: Outcome(),
    "snapshotColdPartitions": lambda coordinator, request, now_ms: coordinator.snapshot_cold_partitions(now_ms=now_ms),
    "cleanupDeletedTopics": lambda coordinator, request, now_ms: coordinator.clean_up_deleted_topics(
        request["topicIds"], now_ms=now_ms
    ),
}


def run(path: str | Path, version: KafkaVersion = DEFAULT_VERSION) -> tuple[int, int, list[str]]:
    """Judge every case of the trace: (cases, passed, failures). A case passes if every step is right, both ways."""
    return judge_cases(path, partial(judge, version=version))


def judge(case: Json, version: KafkaVersion = DEFAULT_VERSION) -> str | None:
    """What is wrong first, None if nothing is."""
    live = _Live(case, version)
    shard = _empty_shard(case, version)
    for number, step in enumerate(case["steps"]):
        for record in step["records"]:
            shard = replay_record(shard, _decoded(record), record["offset"])
        failure = _wrong_state(shard, step) or live.play(step)
        if failure is not None:
            return f"step {number} ({step['op']}): {failure}"
    return live.wrong_reload(_empty_shard(case, version))


def _empty_shard(case: Json, version: KafkaVersion) -> ShareShard:
    return ShareShard(updates_per_snapshot=case["config"]["snapshotUpdateRecordsPerSnapshot"], kafka_version=version)


def _wrong_state(shard: ShareShard, step: Json) -> str | None:
    state = dump(shard)
    if state != step["state"]:
        return f"state {state} is not {step['state']}"
    if shard.last_redundant_offset != step["lastRedundantOffset"]:
        return f"redundant offset {shard.last_redundant_offset} is not {step['lastRedundantOffset']}"
    return None


class _Live:
    """One share coordinator, to which the requests of a case are put."""

    def __init__(self, case: Json, version: KafkaVersion) -> None:
        self.now_ms: int = case["startTimeMs"]
        self.log = MemoryLog(case["startLogOffset"])
        config = case["config"]
        self.coordinator = ShareCoordinator(
            now_ms=self.now_ms,
            config=ShareCoordinatorConfig(
                updates_per_snapshot=config["snapshotUpdateRecordsPerSnapshot"],
                cold_partition_snapshot_interval_ms=config["coldPartitionSnapshotIntervalMs"],
                kafka_version=version,
            ),
            image=image_of(Topic(topic["name"], topic["topicId"], topic["partitions"]) for topic in case["topics"]),
            log=self.log,
        )

    def play(self, step: Json) -> str | None:
        """Do the step: what is wrong, None if nothing is."""
        if step["op"] == "advanceTime":
            self.now_ms += step["request"]["ms"]
        answer, written = self._done(step)
        response = None if answer is None else json_of(answer)
        if response != step["response"]:
            return f"answer {response} is not {step['response']}"
        records = [_bytes(entry.record) for entry in written]
        expected = [(record["key"], record["value"] or "") for record in step["records"]]
        if records != expected:
            return f"records {records} are not {expected}"
        offsets = [entry.offset for entry in written]
        if offsets != [record["offset"] for record in step["records"]]:
            return f"records at {offsets}"
        return _wrong_state(self.coordinator.shard, step)

    def _done(self, step: Json) -> tuple[Response | None, tuple[AppendedRecord, ...]]:
        request = REQUESTS.get(step["op"])
        if request is None:
            return None, JOBS[step["op"]](self.coordinator, step["request"], self.now_ms).records
        topics = tuple(
            StateTopic(topic["topicId"], tuple(message_of(request.partition, it) for it in topic["partitions"]))
            for topic in step["request"]["topics"]
        )
        message = StateRequest(step["request"]["groupId"], topics)
        return served(self.coordinator, request.operation, message, self.now_ms)

    def wrong_reload(self, shard: ShareShard) -> str | None:
        """Whoever replays this coordinator's own log has its state."""
        for entry in self.log.entries:
            shard = replay_record(shard, entry.record, entry.offset)
        return None if shard == self.coordinator.shard else "the log gives another state than the coordinator has"


def _bytes(record: ShareStateRecord) -> tuple[str, str]:
    key, value = encode_record(record)
    return key.hex(), (value or b"").hex()


def _decoded(record: Json) -> ShareStateRecord:
    """The record's own bytes, decoded; Kafka's JSON of them is not looked at."""
    value = record["value"]
    return decode_record(bytes.fromhex(record["key"]), None if value is None else bytes.fromhex(value))


def dump(shard: ShareShard) -> dict[str, dict[str, Any]]:
    """The state in the form of the traces: `group:topicId:partition` -> fields."""
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
