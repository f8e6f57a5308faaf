"""Structs as Kafka's JSON, against values and JSON which Kafka 4.3.1 itself wrote."""

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.bytes.codec import decode_value, make
from coordinator_core.bytes.printed.kafka_json import from_json, to_json
from coordinator_core.errors import EncodeError
from schemas import consumer_offsets, share_group_state, wire
from schemas.consumer_offsets import RecordType, classic, offsets
from schemas.share_group_state import ShareStateRecordType
from tests.strategies import structs, versioned_messages


class JsonCase(NamedTuple):
    """The bytes of a value, and what Kafka's JsonConverter makes of them."""

    name: str
    topic: str
    record_type: int
    value: str
    json: dict[str, Any]


JSON_CASES = [
    JsonCase(
        "tagged topic id at its default is left out, as is a field of version 1",
        consumer_offsets.TOPIC,
        RecordType.OFFSET_COMMIT,
        "00040000000000000382ffffffff01000001977422c82b00",
        {"offset": 898, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 1750000125995},
    ),
    JsonCase(
        "tagged topic id",
        consumer_offsets.TOPIC,
        RecordType.OFFSET_COMMIT,
        "000400000000000001d9000000030100000197742294380100101b824bbe1b7f597f62684e3189c4bb5d",
        {
            "offset": 473,
            "leaderEpoch": 3,
            "metadata": "",
            "commitTimestamp": 1750000112696,
            "topicId": "G4JLvht_WX9iaE4xicS7XQ",
        },
    ),
    JsonCase(
        "one tag of two",
        consumer_offsets.TOPIC,
        RecordType.STREAMS_GROUP_METADATA,
        "0000000000041ed2d77fc3b5be4601011902156e756d2e7374616e6462792e7265706c69636173023000",
        {
            "epoch": 4,
            "metadataHash": 2221074509991362118,
            "lastAssignmentConfigs": [{"key": "num.standby.replicas", "value": "0"}],
        },
    ),
    JsonCase(
        "null struct among the fields",
        consumer_offsets.TOPIC,
        RecordType.STREAMS_GROUP_MEMBER_METADATA,
        "0000000007636c69656e740b2f3132372e302e302e3100007530000000000770726f632d30ff0100",
        {
            "instanceId": None,
            "rackId": None,
            "clientId": "client",
            "clientHost": "/127.0.0.1",
            "rebalanceTimeoutMs": 30000,
            "topologyEpoch": 0,
            "processId": "proc-0",
            "userEndpoint": None,
            "clientTags": [],
        },
    ),
    JsonCase(
        "null struct in a tag is written, for it is not the default",
        consumer_offsets.TOPIC,
        RecordType.CONSUMER_GROUP_MEMBER_METADATA,
        "0000000007636c69656e740b2f3132372e302e302e3101010000afc80001000100",
        {
            "instanceId": None,
            "rackId": None,
            "clientId": "client",
            "clientHost": "/127.0.0.1",
            "subscribedTopicNames": [],
            "subscribedTopicRegex": "",
            "rebalanceTimeoutMs": 45000,
            "serverAssignor": None,
            "classicMemberMetadata": None,
        },
    ),
    JsonCase(
        "delivery-complete count 0",
        share_group_state.TOPIC,
        ShareStateRecordType.SHARE_UPDATE,
        "000000000000000000000000000000000038010100040000000f",
        {"snapshotEpoch": 0, "leaderEpoch": 0, "startOffset": 56, "deliveryCompleteCount": 15, "stateBatches": []},
    ),
    JsonCase(
        "delivery-complete count unknown",
        share_group_state.TOPIC,
        ShareStateRecordType.SHARE_UPDATE,
        "0000000000000000000100000000000000040100",
        {"snapshotEpoch": 0, "leaderEpoch": 1, "startOffset": 4, "stateBatches": []},
    ),
]


@pytest.mark.parametrize("case", JSON_CASES, ids=[case.name for case in JSON_CASES])
def test_json_is_kafkas(case: JsonCase) -> None:
    """Names, values, what is left out, and the order of fields are Kafka's; and the JSON gives the struct back."""
    value = decode_value(case.topic, case.record_type, bytes.fromhex(case.value))
    assert json.dumps(to_json(value.fields, value.message, value.version)) == json.dumps(case.json)
    assert from_json(case.json, value.message, value.version) == value.fields


def test_bytes_are_base64() -> None:
    """Bytes fields are base64 with padding, also inside arrays of structs."""
    member = make(classic.MEMBER_METADATA, member_id="m", subscription=b"\xff\xff\xff\xff", assignment=b"")
    group = make(classic.GROUP_METADATA_VALUE, members=[member])
    assert to_json(group, classic.GROUP_METADATA_VALUE, 3)["members"] == [
        {
            "memberId": "m",
            "groupInstanceId": None,
            "clientId": "",
            "clientHost": "",
            "rebalanceTimeout": -1,
            "sessionTimeout": 0,
            "subscription": "/////w==",
            "assignment": "",
        }
    ]


def test_fields_outside_the_version_are_left_out() -> None:
    """Version 1 has an expire timestamp, version 2 has not, and a leader epoch comes with version 3."""
    value = make(offsets.OFFSET_COMMIT_VALUE, offset=1)
    names = {v: list(to_json(value, offsets.OFFSET_COMMIT_VALUE, v)) for v in range(5)}
    assert names == {
        0: ["offset", "metadata", "commitTimestamp"],
        1: ["offset", "metadata", "commitTimestamp", "expireTimestamp"],
        2: ["offset", "metadata", "commitTimestamp"],
        3: ["offset", "leaderEpoch", "metadata", "commitTimestamp"],
        4: ["offset", "leaderEpoch", "metadata", "commitTimestamp"],
    }


def test_unknown_tags_are_kept_on_demand() -> None:
    """Kafka's JSON has no place for tags of a later Kafka; ours has, when asked."""
    value = make(offsets.OFFSET_COMMIT_VALUE, unknown_tags=((5, b"ab"), (128, b"")))
    assert "_unknownTags" not in to_json(value, offsets.OFFSET_COMMIT_VALUE, 4)
    node = to_json(value, offsets.OFFSET_COMMIT_VALUE, 4, with_unknown_tags=True)
    assert node["_unknownTags"] == {"5": "YWI=", "128": ""}
    assert from_json(node, offsets.OFFSET_COMMIT_VALUE, 4) == value


@given(st.data())
def test_json_round_trip(data: st.DataObject) -> None:
    """Any struct comes back from its JSON, through text."""
    message, version = data.draw(versioned_messages)
    struct = data.draw(structs(message, version))
    text = json.dumps(to_json(struct, message, version, with_unknown_tags=True))
    assert from_json(json.loads(text), message, version) == struct


BAD_JSON: list[tuple[str, wire.Message, dict[str, Any]]] = [
    ("a name of another version", offsets.OFFSET_COMMIT_VALUE, {"expireTimestamp": 1}),
    ("an unknown name", offsets.OFFSET_COMMIT_VALUE, {"offsett": 1}),
    ("not an array", classic.GROUP_METADATA_VALUE, {"members": 1}),
    ("not an object", classic.GROUP_METADATA_VALUE, {"members": [1]}),
    ("not base64", classic.GROUP_METADATA_VALUE, {"members": [{"assignment": "?"}]}),
]


@pytest.mark.parametrize(("message", "node"), [case[1:] for case in BAD_JSON], ids=[case[0] for case in BAD_JSON])
def test_bad_json_is_refused(message: wire.Message, node: dict[str, Any]) -> None:
    """JSON which is not the message's is the caller's error."""
    with pytest.raises(EncodeError):
        from_json(node, message, 4)
