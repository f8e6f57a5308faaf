"""Replay of recorded brokers' logs, compared with what the brokers' own Admin answered while they ran.

`truth/snapshots.jsonl` holds describe answers with the log end offsets before and after each. A snapshot is met when
the replayed state at one of the offsets in between says the same: members with epochs and partitions, epochs of the
group, committed offsets. States of classic groups between rebalances are never in the log and are not compared.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from coordinator_core.bytes.client_protocols import decode_assignment
from coordinator_core.bytes.codec import decode_key, decode_metadata, decode_value, struct_class
from coordinator_core.bytes.log.chunk import RecordChunk
from coordinator_core.bytes.log.records import decode_chunk
from coordinator_core.errors import UnknownRecordType
from coordinator_core.replay.anomalies import Anomaly
from coordinator_core.replay.classic.state import ClassicGroup
from coordinator_core.replay.consumer.state import ConsumerGroup
from coordinator_core.replay.dispatch import CoordinatorShard, replay_end_transaction_marker, replay_record
from coordinator_core.replay.lookup import group_partition
from coordinator_core.replay.share.state import ShareGroup
from schemas.cluster_metadata import TOPIC_RECORD
from schemas.consumer_offsets import TOPIC

Json = dict[str, Any]

ABORT, COMMIT = 0, 1
INT64_MAX = 2**63 - 1
BETWEEN_REBALANCES = {"PreparingRebalance", "CompletingRebalance"}


class Outcome(NamedTuple):
    """What replaying a recording gave."""

    record_count: int
    anomalies: list[Anomaly]
    snapshots: int
    failures: list[str]


def run(recording: Path, *, logs: str = "logs", labels: Callable[[str], bool] = lambda _: True) -> Outcome:
    """Replay every `__consumer_offsets` partition of a recording and compare it with the recorded answers.

    `labels` chooses snapshots: a compacted log keeps the last ones only.
    """
    partitions = sorted((recording / logs).glob(f"{TOPIC}-*"))
    topic_names = _topic_names(recording)
    wanted = _snapshots(recording, len(partitions), labels)
    anomalies: list[Anomaly] = []
    record_count = snapshot_count = 0
    failures: list[str] = []
    for folder in partitions:
        partition = int(folder.name.rpartition("-")[2])
        unmet = dict(enumerate(wanted[partition]))
        snapshot_count += len(unmet)
        states = list(_states(folder, anomalies))
        record_count += len(states) - 1
        next_offsets = [next_offset for next_offset, _ in states[1:]] + [INT64_MAX]
        for (first, shard), following in zip(states, next_offsets, strict=True):
            for number, snapshot in list(unmet.items()):
                # A state holds from its offset until the next record's: compaction takes records out in between.
                is_due = first <= snapshot.leo_after and snapshot.leo_before < following
                if is_due and answer(shard, snapshot.group_id, topic_names) == snapshot.answer:
                    del unmet[number]
        failures += [f"{recording.name} {s.label}: {s.answer}" for s in unmet.values()]
    return Outcome(record_count, anomalies, snapshot_count, failures)


class Snapshot(NamedTuple):
    """One group's answer, which was true somewhere between two log end offsets of its partition."""

    label: str
    group_id: str
    leo_before: int
    leo_after: int
    answer: Json


def _snapshots(recording: Path, partition_count: int, labels: Callable[[str], bool]) -> dict[int, list[Snapshot]]:
    found: dict[int, list[Snapshot]] = defaultdict(list)
    for line in (recording / "truth" / "snapshots.jsonl").read_text(encoding="utf-8").splitlines():
        snapshot = json.loads(line)
        if not labels(snapshot["label"]):
            continue
        for group_id, reported in snapshot["groups"].items():
            if reported.get("state") in BETWEEN_REBALANCES or reported.get("type") not in (
                "Classic",
                "Consumer",
                "Share",
            ):
                continue
            partition = group_partition(group_id, partition_count)
            leo = f"{TOPIC}-{partition}"
            found[partition].append(
                Snapshot(
                    f"{snapshot['scenario']} {snapshot['label']}",
                    group_id,
                    snapshot["leo_before"][leo],
                    snapshot["leo_after"][leo],
                    _reported(reported),
                )
            )
    return found


def _reported(reported: Json) -> Json:
    """The comparable part of an Admin's answer."""
    answered: Json = {
        "type": reported["type"],
        "state": reported["state"],
        "members": {m["member_id"]: sorted(m["assignment"]) for m in reported["members"]},
    }
    if reported["type"] != "Share":
        answered["offsets"] = {place: offset["offset"] for place, offset in reported.get("offsets", {}).items()}
    if reported["type"] == "Consumer":
        answered["epochs"] = (reported["group_epoch"], reported["target_epoch"])
        answered["member_epochs"] = {m["member_id"]: m["member_epoch"] for m in reported["members"]}
    return answered


def answer(shard: CoordinatorShard, group_id: str, topic_names: dict[str, str]) -> Json | None:
    """What an Admin would learn of a group, in the form of `_reported`."""
    group = shard.groups.groups.get(group_id)
    offsets = {
        f"{key.topic}-{key.partition}": committed.committed_offset
        for key, committed in shard.offsets.offsets.items()
        if key.group == group_id
    }
    match group:
        case ClassicGroup():
            members = {m.member_id: _classic_partitions(m.assignment, group) for m in group.members.values()}
            return {"type": "Classic", "state": str(group.state), "members": members, "offsets": offsets}
        case ConsumerGroup():
            partition_epochs = {
                member.member_id: sorted(
                    f"{topic_names.get(topic_id, topic_id)}-{partition}"
                    for topics in (member.assigned, member.pending_revocation)
                    for topic_id, partitions in topics.items()
                    for partition in partitions
                )
                for member in group.members.values()
            }
            return {
                "type": "Consumer",
                "state": str(group.state),
                "members": partition_epochs,
                "offsets": offsets,
                "epochs": (group.group_epoch, group.assignment_epoch),
                "member_epochs": {m.member_id: m.member_epoch for m in group.members.values()},
            }
        case ShareGroup():
            assigned = {
                member.member_id: sorted(
                    f"{topic_names.get(topic_id, topic_id)}-{partition}"
                    for topic_id, partitions in member.assigned.items()
                    for partition in partitions
                )
                for member in group.members.values()
            }
            return {"type": "Share", "state": str(group.state), "members": assigned}
        case _:
            return None


def _classic_partitions(assignment: bytes, group: ClassicGroup) -> list[str]:
    decoded = decode_assignment(assignment) if group.protocol_type == "consumer" else None
    if decoded is None:
        return []
    return sorted(f"{topic}-{p}" for topic, partitions in decoded.assigned_partitions for p in partitions)


def _topic_names(recording: Path) -> dict[str, str]:
    """Topic id -> name, of deleted topics too, from the broker's own metadata log."""
    names: dict[str, str] = {}
    for segment in sorted((recording / "logs" / "__cluster_metadata-0").glob("*.log")):
        chunk = decode_chunk(segment.read_bytes())
        for position, length, batch in zip(
            chunk.records.value_position.tolist(),
            chunk.records.value_length.tolist(),
            chunk.records.batch_index.tolist(),
            strict=True,
        ):
            if chunk.batches.is_control[batch] or length < 0:
                continue
            try:
                fields = decode_metadata(_slice(chunk, position, length)).fields
            except UnknownRecordType:
                continue
            if type(fields) is struct_class(TOPIC_RECORD):
                names[fields.topic_id] = fields.name
    return names


def _states(folder: Path, anomalies: list[Anomaly]) -> Iterator[tuple[int, CoordinatorShard]]:
    """(next offset, state) before the first record and after each."""
    shard = CoordinatorShard()
    yield 0, shard
    for segment in sorted(folder.glob("*.log")):
        chunk = decode_chunk(segment.read_bytes())
        assert not chunk.findings, chunk.findings
        for row, offset in enumerate(chunk.records.offset.tolist()):
            shard = _apply(shard, chunk, row, anomalies)
            yield offset + 1, shard


def _apply(shard: CoordinatorShard, chunk: RecordChunk, row: int, anomalies: list[Anomaly]) -> CoordinatorShard:
    records, batches = chunk.records, chunk.batches
    batch = int(records.batch_index[row])
    producer_id = int(batches.producer_id[batch])
    if batches.is_control[batch]:
        control_type = int(batches.control_type[batch])
        if control_type not in (ABORT, COMMIT):
            return shard
        return replay_end_transaction_marker(shard, producer_id, committed=control_type == COMMIT)
    key = decode_key(TOPIC, _slice(chunk, int(records.key_position[row]), int(records.key_length[row])))
    value = None
    if records.value_length[row] >= 0:
        data = _slice(chunk, int(records.value_position[row]), int(records.value_length[row]))
        value = decode_value(TOPIC, key.record_type, data).fields
    return replay_record(
        shard,
        key.record_type,
        key.fields,
        value,
        offset=int(records.offset[row]),
        producer_id=producer_id,
        report=anomalies.append,
    )


def _slice(chunk: RecordChunk, position: int, length: int) -> bytes:
    return chunk.data[position : position + length].tobytes()
