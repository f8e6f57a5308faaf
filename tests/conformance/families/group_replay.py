"""Conformance of replay with GroupCoordinatorShard's own, on synthetic records of every type, version and order.

A case is a log. After every entry the state must be Kafka's, and an entry must be refused by us (an anomaly, or an
error of the codec) exactly where Kafka throws. At any exception but the two which mean "skip this record" Kafka's
loader stops, and so does the case.
"""

from functools import partial
from pathlib import Path
from typing import Any

from coordinator_core.bytes.codec import decode_key, decode_value
from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion
from coordinator_core.errors import DecodeError, UnknownRecordType, UnknownValueVersion
from coordinator_core.live.state_dump import dump_shard
from coordinator_core.replay.anomalies import Anomaly
from coordinator_core.replay.dispatch import CoordinatorShard, replay_end_transaction_marker, replay_record
from schemas.consumer_offsets import TOPIC
from tests.conformance.families.cases import Json, judge_cases

SKIPPED = {
    UnknownRecordType.code: "UnknownRecordTypeException",
    UnknownValueVersion.code: "UnknownRecordVersionException",
}
"""Errors of the codec, and what Kafka throws there; neither ends a case."""


def run(path: str | Path, version: KafkaVersion = DEFAULT_VERSION) -> tuple[int, int, list[str]]:
    """Judge every case of the trace: (cases, passed, failures)."""
    return judge_cases(path, partial(judge, version=version))


def judge(case: Json, version: KafkaVersion = DEFAULT_VERSION) -> str | None:
    """What is wrong in one case, or None."""
    shard = CoordinatorShard()
    expected: dict[str, Json] = {}
    for number, entry in enumerate(case["entries"]):
        shard, refusals = _apply(shard, entry, version)
        thrown = (entry.get("exception") or "").rpartition(".")[2]
        if refusals != ([thrown] if thrown else []):
            return f"entry {number}: refused with {refusals}, Kafka with {thrown!r}"
        if thrown and thrown not in SKIPPED.values():
            return None if number == len(case["entries"]) - 1 else f"entries after the exception of {number}"
        fold(expected, entry["stateChanges"])
        difference = differs(dump_shard(shard), expected)
        if difference is not None:
            return f"entry {number}: {difference}"
    difference = differs(dump_shard(shard), case["finalState"])
    return None if difference is None else f"final state: {difference}"


def fold(state: dict[str, Json], changes: dict[str, Json | None]) -> None:
    """Apply `stateChanges`: the new dump of each changed group, null for one that vanished."""
    for group_id, dump in changes.items():
        if dump is None:
            state.pop(group_id, None)
        else:
            state[group_id] = dump


def differs(ours: dict[str, Json], kafkas: dict[str, Json]) -> str | None:
    """The first difference between two dumps, or None. A null `group` is no group."""
    for group_id in sorted(ours.keys() | kafkas.keys()):
        mine, theirs = ours.get(group_id, {}), _without_nulls(kafkas.get(group_id) or {})
        if mine != theirs:
            return f"group {group_id}: {_first_difference(mine, theirs)}"
    return None


def _without_nulls(dump: Json) -> Json:
    return {name: part for name, part in dump.items() if part is not None}


def _first_difference(mine: Any, theirs: Any, path: str = "") -> str:
    if isinstance(mine, dict) and isinstance(theirs, dict):
        for name in sorted(mine.keys() | theirs.keys()):
            if name not in mine or name not in theirs or mine[name] != theirs[name]:
                return _first_difference(mine.get(name), theirs.get(name), f"{path}/{name}")
    return f"{path}: {mine!r} is not {theirs!r}"


def _apply(shard: CoordinatorShard, entry: Json, version: KafkaVersion) -> tuple[CoordinatorShard, list[str]]:
    """The shard after one entry, and the names of the exceptions with which Kafka would have refused it."""
    if entry["kind"] == "marker":
        committed = entry["result"] == "COMMIT"
        return replay_end_transaction_marker(shard, entry["producerId"], committed=committed), []
    anomalies: list[Anomaly] = []
    try:
        key = decode_key(TOPIC, bytes.fromhex(entry["key"]))
        value = entry["value"]
        fields = None if value is None else decode_value(TOPIC, key.record_type, bytes.fromhex(value)).fields
    except DecodeError as error:
        return shard, [SKIPPED.get(error.code, error.code)]
    shard = replay_record(
        shard,
        key.record_type,
        key.fields,
        fields,
        offset=entry["offset"],
        producer_id=entry["producerId"],
        report=anomalies.append,
        version=version,
    )
    return shard, [anomaly.kafka_exception for anomaly in anomalies]
