"""Printed records: the bytes come back from the lines which Kafka's own formatters printed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.bytes.codec import encode_metadata, make
from coordinator_core.bytes.log.records import iter_records
from coordinator_core.bytes.log.scan import scan_segment
from coordinator_core.bytes.printed.formatter_output import (
    FormatterRecord,
    encode_metadata_json,
    formatter_record,
    is_formatter_object,
    parse_json_at,
)
from coordinator_core.errors import EncodeError, UnreadMetadataType
from schemas.cluster_metadata import TOPIC_RECORD
from tests.recorded import RECORDINGS

FULL_A = RECORDINGS / "full-a"
COMMIT = {
    "key": {"type": 1, "data": {"group": "g", "topic": "t", "partition": 0}},
    "value": {"version": 3, "data": {"offset": 5, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 7}},
}
COMMIT_KEY = bytes.fromhex("0001 0001 67 0001 74 00000000")
COMMIT_VALUE = bytes.fromhex("0003 0000000000000005 ffffffff 0000 0000000000000007")


def segment_records(topic: str) -> dict[bytes | None, list[bytes | None]]:
    """Values of each key, in log order, of all partitions of a topic of the recording."""
    values: dict[bytes | None, list[bytes | None]] = {}
    for path in sorted(FULL_A.glob(f"logs/{topic}-*/*.log")):
        data = path.read_bytes()
        batches = scan_segment(data, base_offset=int(path.stem)).batches
        for row in range(len(batches)):
            start = int(batches.position[row])
            if not batches.is_control[row]:
                for record in iter_records(data[start : start + int(batches.size[row])]):
                    values.setdefault(record.key, []).append(record.value)
    return values


def records_in(text: str) -> Iterator[FormatterRecord]:
    """The records of a line: the formatters write no line breaks, so there may be several."""
    while text := text.lstrip():
        node, position = parse_json_at(text, 0)
        text = text[position:]
        yield formatter_record(node)


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        ("offsets", "__consumer_offsets"),
        ("group-metadata", "__consumer_offsets"),
        ("share", "__share_group_state"),
        ("txn", "__transaction_state"),
    ],
)
def test_formatter_lines_give_the_bytes_of_the_log(name: str, topic: str) -> None:
    """Each printed record is the log's own record, to the byte: the same values of the same keys in the same order."""
    printed: dict[bytes | None, list[bytes | None]] = {}
    text = Path(FULL_A / "truth" / "formatters" / f"{name}.jsonl").read_text(encoding="utf-8")
    for line in text.split("\n"):
        for record in records_in(line):
            assert record.topic == topic
            printed.setdefault(record.key, []).append(record.value)
    logged = segment_records(topic)
    assert printed
    for key, values in printed.items():
        assert logged[key][: len(values)] == values


def test_records_back_to_back_on_one_line() -> None:
    """The formatters end no line: two objects and a tombstone on one line are three records."""
    tombstone = {**COMMIT, "value": None}
    line = json.dumps(COMMIT) + json.dumps(tombstone) + " " + json.dumps(COMMIT)
    records = list(records_in(line))
    assert [(record.key, record.value) for record in records] == [
        (COMMIT_KEY, COMMIT_VALUE),
        (COMMIT_KEY, None),
        (COMMIT_KEY, COMMIT_VALUE),
    ]
    assert {record.coordinator_key for record in records} == {"g"}


STATUS = {
    "key": {"type": 0, "data": {"transactionalId": "x"}},
    "value": {
        "version": 1,
        "data": {
            "producerId": 1,
            "producerEpoch": 0,
            "transactionTimeoutMs": 5,
            "transactionStatus": 0,
            "transactionPartitions": None,
            "transactionLastUpdateTimestampMs": 7,
            "transactionStartTimestampMs": -1,
        },
    },
}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("Empty", 0),
        ("Ongoing", 1),
        ("PrepareCommit", 2),
        ("PrepareAbort", 3),
        ("CompleteCommit", 4),
        ("CompleteAbort", 5),
        ("Dead", 6),
        ("PrepareEpochFence", 7),
    ],
)
def test_a_status_is_read_as_name_and_as_code(name: str, code: int) -> None:
    """Kafka 4.4's tools print the name of a transaction's status, those before its code."""
    as_name, as_code = (json.loads(json.dumps(STATUS)) for _ in range(2))
    as_name["value"]["data"]["transactionStatus"] = name
    as_code["value"]["data"]["transactionStatus"] = code
    assert formatter_record(as_name) == formatter_record(as_code)
    as_name["value"]["data"]["transactionStatus"] = "Open"
    with pytest.raises(EncodeError, match="status"):
        formatter_record(as_name)


def test_a_formatter_of_a_later_kafka_prints_more_fields() -> None:
    """The record is read without them, and they are named; a version without tags cannot have more."""
    node = changed("value/version", 4)
    plain = formatter_record(node)
    node["value"]["data"]["later"] = 5
    assert formatter_record(node) == plain._replace(left_out=frozenset({"later"}))
    with pytest.raises(EncodeError, match="later"):
        formatter_record(changed("value/data/later", 5))


def changed(path: str, value: Any) -> dict[str, Any]:
    """The commit with one field changed."""
    node: dict[str, Any] = json.loads(json.dumps(COMMIT))
    *folders, name = path.split("/")
    place = node
    for folder in folders:
        place = place[folder]
    place[name] = value
    return node


@pytest.mark.parametrize(
    "node",
    [
        changed("key/type", 99),
        changed("key/type", "x"),
        changed("key/type", True),
        changed("key/data", {}) | {"key": {"type": 1}},
        changed("key/data/group", 5),
        changed("key/data/partition", 2**40),
        changed("key/data/unknown", 1),
        changed("value/version", 77),
        changed("value/data/offset", "5"),
        changed("value/data", []),
        changed("value", 5),
        {"key": None, "value": None},
        {"value": {}},
        [],
        5,
    ],
)
def test_what_no_formatter_prints_is_refused(node: Any) -> None:
    """Unknown types and versions, fields of another kind and other shapes raise EncodeError, nothing else."""
    with pytest.raises(EncodeError):
        formatter_record(node)


@given(st.text(max_size=60) | st.builds(lambda depth: "[" * depth, st.sampled_from([10, 100_000])))
def test_any_text_is_records_or_an_error(text: str) -> None:
    """Whatever the text, records come out or EncodeError."""
    try:
        assert all(record.topic for record in records_in(text))
    except EncodeError:
        assert text.strip()


def test_shape_of_formatter_objects() -> None:
    """Raw rows, whose key is a text, are not taken for printed ones."""
    assert is_formatter_object(COMMIT)
    assert not is_formatter_object({"key": "AAE=", "value": None})


def test_records_of_the_metadata_log() -> None:
    """A declared type comes back as its frame; one that is not read says so."""
    node = {"type": "TOPIC_RECORD", "version": 0, "data": {"name": "t", "topicId": "AAAAAAAAAAAAAAAAAAAAAQ"}}
    record = make(TOPIC_RECORD, name="t", topic_id="AAAAAAAAAAAAAAAAAAAAAQ")
    assert encode_metadata_json(node) == encode_metadata(TOPIC_RECORD, record, 0)
    with pytest.raises(UnreadMetadataType):
        encode_metadata_json({"type": "NO_OP_RECORD", "version": 0, "data": {}})
    wrongs: list[Any] = [{}, [], {"type": "TOPIC_RECORD", "version": 9, "data": {}}, {"type": 5}]
    for wrong in wrongs:
        with pytest.raises(EncodeError):
            encode_metadata_json(wrong)
