"""Conformance of replay with GroupCoordinatorShard's own, on the logs of live coordinators.

A case is the life of one coordinator: what it wrote, and after which number of log entries Kafka replayed the log into
a fresh shard. We fold the same entries and compare the whole state. Everything is judged up to `kafkaBugFromStep`; the
state after `onLoaded` is not: it belongs to the live side, which no record tells.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from coordinator_core.bytes.codec import decode_key, decode_value
from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion
from coordinator_core.live.state_dump import dump_shard
from coordinator_core.replay.anomalies import Anomaly
from coordinator_core.replay.dispatch import CoordinatorShard, replay_end_transaction_marker, replay_record
from schemas.consumer_offsets import TOPIC
from tests.conformance.families.cases import Json, judge_cases
from tests.conformance.families.group_replay import differs

NO_PRODUCER_ID = -1


class Entry(NamedTuple):
    """One log entry: a record, or (key is None) a transaction marker."""

    offset: int
    key: str | None
    value: str | None
    producer_id: int
    committed: bool


def run(path: str | Path, version: KafkaVersion = DEFAULT_VERSION) -> tuple[int, int, list[str]]:
    """Judge every case of the trace: (cases, passed, failures)."""
    return judge_cases(path, partial(judge, version=version))


def judge(case: Json, version: KafkaVersion = DEFAULT_VERSION) -> str | None:
    """What is wrong in one case, or None."""
    entries = sorted(_entries(case["steps"]), key=lambda entry: entry.offset)
    if len(entries) != case["entries"]:
        return f"{len(entries)} entries, {case['entries']} announced"
    judged_entries = _judged_entries(case)
    dumps = {dump["entries"]: dump for dump in case["replay"]}
    shard = CoordinatorShard()
    anomalies: list[Anomaly] = []
    for count in range(judged_entries + 1):
        if count:
            shard = _apply(shard, entries[count - 1], anomalies, version)
        if anomalies:
            return f"entry {count}: {anomalies[0]}"
        if count in dumps:
            difference = differs(dump_shard(shard), dumps[count]["state"])
            if difference is not None:
                return f"after {count} entries: {difference}"
    return None


def judged_dumps(case: Json) -> int:
    """How many dumps of a case `judge` compares."""
    return sum(dump["entries"] <= _judged_entries(case) for dump in case["replay"])


def _judged_entries(case: Json) -> int:
    first_bug = case["kafkaBugFromStep"]
    steps = case["steps"]
    return sum(1 for _ in _entries(steps if first_bug < 0 else steps[:first_bug]))


def _entries(steps: list[Json]) -> Iterator[Entry]:
    for step in steps:
        for record in step["records"]:
            producer_id = record.get("producerId", NO_PRODUCER_ID)
            yield Entry(record["offset"], record["key"], record["value"], producer_id, committed=False)
        if step["op"] == "endTransactionMarker":
            marker = step["request"]
            committed = marker["result"] == "COMMIT"
            yield Entry(marker["offset"], None, None, marker["producerId"], committed)


def _apply(shard: CoordinatorShard, entry: Entry, anomalies: list[Anomaly], version: KafkaVersion) -> CoordinatorShard:
    if entry.key is None:
        return replay_end_transaction_marker(shard, entry.producer_id, committed=entry.committed)
    key = decode_key(TOPIC, bytes.fromhex(entry.key))
    fields = None
    if entry.value is not None:
        fields = decode_value(TOPIC, key.record_type, bytes.fromhex(entry.value)).fields
    return replay_record(
        shard,
        key.record_type,
        key.fields,
        fields,
        offset=entry.offset,
        producer_id=entry.producer_id,
        report=anomalies.append,
        version=version,
    )
