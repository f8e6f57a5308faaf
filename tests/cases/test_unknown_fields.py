"""Tagged fields that a later release of Kafka writes: their records are read, counted, and kept byte for byte."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from coordinator_core.bytes.codec import decode_value, encode_key, encode_value, has_unknown_tags, make
from jobs.bronze.export_segments import export_segments
from schemas import transaction_state, wire
from schemas.consumer_offsets import TOPIC, RecordType
from schemas.registry import REGISTRY
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from tests.cases.harness import CLUSTER_ID, Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.coordinator_core.bytes.codec.test_unknown_tags import PLACES, with_tags
from tests.coordinator_core.group_records import T1, record
from tests.jobs.in_process import in_process

TAG = ((9999, b"later"),)
GROUP_RECORDS: list[tuple[RecordType, dict[str, Any], dict[str, Any], int]] = [
    (RecordType.OFFSET_COMMIT, {"group": "g", "topic": "in", "partition": 0}, {"offset": 7}, 4),
    (RecordType.CONSUMER_GROUP_METADATA, {"group_id": "g"}, {"epoch": 2}, 0),
    (RecordType.STREAMS_GROUP_METADATA, {"group_id": "s"}, {"epoch": 2}, 0),
]


def with_tag(topic: str, record_type: int, value: Any, version: int) -> bytes:
    """The value with a tag that no declaration knows."""
    return encode_value(topic, record_type, version, replace(value, unknown_tags=TAG))


def with_nested_tag() -> bytes:
    """A target assignment in which a topic has the tag."""
    kind = RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER
    _, _, value = record(kind, {}, {"topic_partitions": [{"topic_id": T1, "partitions": (0,)}]})
    assert value is not None
    [topic] = value.topic_partitions
    return encode_value(TOPIC, kind, 0, replace(value, topic_partitions=(replace(topic, unknown_tags=TAG),)))


@pytest.mark.parametrize("nights", [1, 2])
def test_records_with_unknown_fields_are_read_and_counted(ledger: Ledger, tmp_path: Path, nights: int) -> None:
    """Offsets, groups, nested structs, share states and transactions: a line says how many, JSON has each topic's."""
    offsets, shares, transactions = SmallLog(), SmallLog(topic=SHARE_TOPIC), SmallLog(topic=transaction_state.TOPIC)
    for kind, key, fields, version in GROUP_RECORDS:
        _, made_key, value = record(kind, key, fields)
        offsets.put(encode_key(TOPIC, kind, made_key), with_tag(TOPIC, kind, value, version), NOON_MS)
    kind = RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER
    _, made_key, _ = record(kind, {"group_id": "g", "member_id": "m"}, None)
    offsets.put(encode_key(TOPIC, kind, made_key), with_nested_tag(), NOON_MS)
    for log, topic in ((shares, SHARE_TOPIC), (transactions, transaction_state.TOPIC)):
        key_message, value_message = REGISTRY[topic][0]
        raw = with_tag(topic, 0, make(value_message), 0 if topic == SHARE_TOPIC else 1)
        log.put(encode_key(topic, 0, make(key_message)), raw, NOON_MS)
    logs = tmp_path / "logs"
    for log in (offsets, shares, transactions):
        log.write(logs)
    night = ledger.night(logs)
    if nights == 2:
        night = ledger.night(logs, number=2)
    counted = {topic: counts["unknown_field_count"] for topic, counts in night.facts["ledger"].items()}
    assert counted == {TOPIC: 4, SHARE_TOPIC: 1, transaction_state.TOPIC: 1, "total": 6}
    assert "6 records with fields that this version does not know" in night.text
    assert [row["committed_offset"] for row in ledger.rows("silver.offset_commits")] == [7]
    kept = b"".join(row["batch"] for row in ledger.rows("bronze.record_batches") if row["topic"] == TOPIC)
    assert kept == b"".join(offsets.batches)


def test_unknown_fields_are_counted_wherever_they_are(ledger: Ledger, tmp_path: Path) -> None:
    """In each struct of each value: none is lost on its way through the compiled loops, nor in an export."""
    logs = {topic: SmallLog(topic=topic) for topic in REGISTRY}
    for number, place in enumerate(PLACES):
        key_message, _ = REGISTRY[place.topic][place.record_type]
        texts = {field.name: f"k{number}" for field in key_message.fields if field.kind is wire.String}
        raw = with_tags(make(place.message), place.message, place.path)
        key = encode_key(place.topic, place.record_type, make(key_message, **texts))
        logs[place.topic].put(key, encode_value(place.topic, place.record_type, place.version, raw), NOON_MS)
    for log in logs.values():
        log.write(tmp_path / "logs")
    night = ledger.night(tmp_path / "logs")
    counted = {topic: counts["unknown_field_count"] for topic, counts in night.facts["ledger"].items()}
    assert counted == {**Counter(place.topic for place in PLACES), "total": len(PLACES)}
    assert not ledger.rows("bronze.quarantine")
    export_segments(in_process(), ledger.warehouse, cluster_id=CLUSTER_ID, output=str(tmp_path / "exported"))
    for topic, log in logs.items():
        [exported] = (tmp_path / "exported" / f"{topic}-0").glob("*.log")
        assert exported.read_bytes() == b"".join(log.batches)


def test_a_log_that_is_known_whole_says_nothing(ledger: Ledger, tmp_path: Path) -> None:
    """No line, and 0."""
    log = SmallLog()
    log.commit("g", 0, 5, NOON_MS)
    night = ledger.night(log.write(tmp_path / "logs"))
    assert night.facts["ledger"]["total"]["unknown_field_count"] == 0
    assert "does not know" not in night.text


def test_a_version_without_tags_has_none() -> None:
    """GroupMetadata of version 3 has no room for any."""
    _, _, value = record(RecordType.GROUP_METADATA, {"group": "g"}, {"protocol_type": "consumer"})
    assert value is not None
    decoded = decode_value(TOPIC, 2, encode_value(TOPIC, 2, 3, value))
    assert not has_unknown_tags(decoded)
