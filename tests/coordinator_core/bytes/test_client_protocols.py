"""The clients' own formats: Kafka's vectors, bytes of real clients, versions above ours, and bytes that are wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.bytes.client_protocols import (
    Assignment,
    ConnectAssignment,
    ConnectMetadata,
    StickyUserData,
    Subscription,
    decode_assignment,
    decode_connect_assignment,
    decode_connect_metadata,
    decode_cooperative_sticky_user_data,
    decode_sticky_user_data,
    decode_subscription,
    encode_assignment,
    encode_cooperative_sticky_user_data,
    encode_sticky_user_data,
    encode_subscription,
)
from coordinator_core.errors import BufferUnderflow, DecodeError, EncodeError, LengthOutOfBounds, UnknownValueVersion
from tests.connect_bytes import encode_connect_assignment, encode_connect_metadata
from tests.strategies import texts

VECTORS = Path(__file__).parents[2] / "data" / "vectors" / "open"


def vectors_of(name: str) -> list[dict[str, Any]]:
    """All golden vectors of a message."""
    return [json.loads(line) for line in (VECTORS / f"{name}.jsonl").read_text(encoding="utf-8").split("\n") if line]


def pairs(nodes: Any, name: str, numbers: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """JSON of an array of (name, numbers)."""
    return tuple((node[name], tuple(node[numbers])) for node in nodes or ())


# --- consumers ---


def test_subscription_vectors() -> None:
    """Kafka's subscriptions of all versions, both ways."""
    for vector in vectors_of("ConsumerProtocolSubscription"):
        data, fields = bytes.fromhex(vector["hex"]), vector["fields"]
        subscription = decode_subscription(data)
        assert subscription.version == vector["version"]
        assert list(subscription.topics) == fields["topics"]
        assert subscription.owned_partitions == pairs(fields.get("ownedPartitions"), "topic", "partitions")
        assert subscription.generation_id == fields.get("generationId", -1)
        assert subscription.rack_id == fields.get("rackId")
        assert encode_subscription(subscription) == data


def test_assignment_vectors() -> None:
    """Kafka's assignments of all versions, both ways."""
    for vector in vectors_of("ConsumerProtocolAssignment"):
        data, fields = bytes.fromhex(vector["hex"]), vector["fields"]
        assignment = decode_assignment(data)
        assert assignment is not None and assignment.version == vector["version"]
        assert assignment.assigned_partitions == pairs(fields["assignedPartitions"], "topic", "partitions")
        assert (assignment.user_data is None) == (fields["userData"] is None)
        assert encode_assignment(assignment) == data


SUBSCRIPTION_V3 = Subscription(3, ("a", "b"), b"\1", (("a", (0, 2)),), 7, "rack")
SUBSCRIPTION_V3_HEX = "0003000000020001610001620000000101000000010001610000000200000000"
SUBSCRIPTION_V3_HEX += "000000020000000700047261636b"


def test_subscription_of_a_later_version_is_read_as_version_3() -> None:
    """What a later version appends is ignored; the version itself is kept."""
    data = bytes.fromhex(SUBSCRIPTION_V3_HEX)
    assert decode_subscription(data) == SUBSCRIPTION_V3
    assert encode_subscription(SUBSCRIPTION_V3) == data
    later = decode_subscription(b"\0\x09" + data[2:] + b"more")
    assert later == Subscription(9, ("a", "b"), b"\1", (("a", (0, 2)),), 7, "rack")
    assert decode_assignment(b"\0\x04" + b"\0" * 4 + b"\xff" * 4 + b"more") == Assignment(4)


def test_empty_assignment_is_none() -> None:
    """A member which the leader left out has an assignment of no bytes; one without partitions has some."""
    assert decode_assignment(b"") is None
    assert decode_connect_assignment(b"") is None
    assert decode_assignment(bytes.fromhex("000000000000ffffffff")) == Assignment(0)


STICKY = StickyUserData((("t", (0, 3)),), 5)
STICKY_HEX = "00000001000174000000020000000000000003"


def test_sticky_user_data_is_version_1_then_version_0() -> None:
    """Nothing says the version: without a generation at the end it is version 0."""
    assert decode_sticky_user_data(bytes.fromhex(STICKY_HEX + "00000005")) == STICKY
    assert encode_sticky_user_data(STICKY).hex() == STICKY_HEX + "00000005"
    eager = StickyUserData(STICKY.previous_assignment)
    assert decode_sticky_user_data(bytes.fromhex(STICKY_HEX)) == eager
    assert encode_sticky_user_data(eager).hex() == STICKY_HEX
    with pytest.raises(LengthOutOfBounds):
        decode_sticky_user_data(bytes.fromhex(STICKY_HEX[:-2]))


def test_sticky_user_data_vectors() -> None:
    """Kafka's user data of both versions and of the cooperative assignor, both ways."""
    for vector in vectors_of("StickyAssignorUserData"):
        data, fields = bytes.fromhex(vector["hex"]), vector["fields"]
        user_data = decode_sticky_user_data(data)
        assert user_data.previous_assignment == pairs(fields["previous_assignment"], "topic", "partitions")
        assert user_data.generation == fields.get("generation")
        assert encode_sticky_user_data(user_data) == data
    for vector in vectors_of("CooperativeStickyAssignorUserData"):
        data = bytes.fromhex(vector["hex"])
        assert decode_cooperative_sticky_user_data(data) == vector["fields"]["generation"]
        assert encode_cooperative_sticky_user_data(vector["fields"]["generation"]) == data


# --- Connect ---


def test_connect_assignment_vectors() -> None:
    """Kafka's Connect assignments of all versions; null and no connectors read the same."""
    for vector in vectors_of("ConnectProtocolAssignment"):
        data, fields = bytes.fromhex(vector["hex"]), vector["fields"]
        assignment = decode_connect_assignment(data)
        assert assignment == ConnectAssignment(
            vector["version"],
            fields["error"],
            fields["leader"],
            fields["leader-url"],
            fields["config-offset"],
            pairs(fields["assignment"], "connector", "tasks"),
            pairs(fields.get("revoked"), "connector", "tasks"),
            fields.get("delay", 0),
        )
        again = encode_connect_assignment(assignment)
        assert decode_connect_assignment(again) == assignment
        if fields["assignment"] is not None and fields.get("revoked", []) is not None:
            assert again == data


# A worker of Connect 4.3.1 joining with what it runs, as a broker stored it.
WORKER = "0002001668747470" + "3a2f2f3132372e302e302e313a393134332f"
ALLOCATION = "0002000000027731000175000000000000000200000001000373726300000002ffffffff00000000"
ALLOCATION += "0000000000000000"


def test_connect_metadata_holds_the_allocation() -> None:
    """From version 1 a worker says what it runs, as an assignment inside; task -1 is the connector itself."""
    allocation = ConnectAssignment(2, 0, "w1", "u", 2, (("src", (-1, 0)),))
    assert encode_connect_assignment(allocation).hex() == ALLOCATION
    metadata = ConnectMetadata(2, "http://127.0.0.1:9143/", 4, allocation)
    data = bytes.fromhex(WORKER + "0000000000000004" + f"{len(ALLOCATION) // 2:08x}" + ALLOCATION)
    assert decode_connect_metadata(data) == metadata
    assert encode_connect_metadata(metadata) == data


def test_connect_fields_missing_at_the_end_have_their_default() -> None:
    """Metadata may end before the allocation, an assignment before each of its last three fields."""
    assert decode_connect_metadata(bytes.fromhex("00010001750000000000000004")) == ConnectMetadata(1, "u", 4)
    head = bytes.fromhex("00010000000000000000000000000004")
    whole = head + bytes.fromhex("0000000100016300000000000000010001640000000000000009")
    assert decode_connect_assignment(head) == ConnectAssignment(1, config_offset=4)
    assigned = ConnectAssignment(1, config_offset=4, assigned=(("c", ()),))
    assert decode_connect_assignment(head + whole[16:27]) == assigned
    both = ConnectAssignment(1, config_offset=4, assigned=(("c", ()),), revoked=(("d", ()),))
    assert decode_connect_assignment(whole[:-4]) == both
    full = ConnectAssignment(1, 0, "", "", 4, (("c", ()),), (("d", ()),), 9)
    assert decode_connect_assignment(whole) == full
    with pytest.raises(BufferUnderflow):
        decode_connect_assignment(whole[:-1])
    with pytest.raises(BufferUnderflow):
        decode_connect_assignment(head[:-1])


def test_eager_connect_has_neither_allocation_nor_revocation() -> None:
    """Version 0 (eager) cannot say what incremental rebalancing needs."""
    metadata = ConnectMetadata(0, "u", 4)
    assert encode_connect_metadata(metadata).hex() == "00000001750000000000000004"
    assert decode_connect_metadata(encode_connect_metadata(metadata)) == metadata
    assignment = ConnectAssignment(0, 1, "w", "u", 4, (("c", (0,)),))
    assert decode_connect_assignment(encode_connect_assignment(assignment)) == assignment
    with pytest.raises(EncodeError):
        encode_connect_assignment(ConnectAssignment(0, revoked=(("c", (0,)),)))
    with pytest.raises(EncodeError):
        encode_connect_metadata(ConnectMetadata(0, "u", 4, assignment))


def test_empty_allocation_is_none() -> None:
    """A worker which runs nothing may send null or no bytes."""
    head = bytes.fromhex("00010001750000000000000004")
    assert decode_connect_metadata(head + b"\xff\xff\xff\xff").allocation is None
    assert decode_connect_metadata(head + b"\0\0\0\0").allocation is None


# --- any bytes ---

Decoder = Callable[[bytes], object]
DECODERS: list[Decoder] = [
    decode_subscription,
    decode_assignment,
    decode_sticky_user_data,
    decode_cooperative_sticky_user_data,
    decode_connect_metadata,
    decode_connect_assignment,
]
VERSIONED = [decode_subscription, decode_assignment, decode_connect_metadata, decode_connect_assignment]


@pytest.mark.parametrize("decode", VERSIONED, ids=lambda decode: decode.__name__)
def test_negative_versions_are_refused(decode: Decoder) -> None:
    """A version below 0 is an error, as in Kafka's readers; so are bytes too short for one."""
    with pytest.raises(UnknownValueVersion):
        decode(b"\xff\xff" + b"\0" * 30)
    with pytest.raises(BufferUnderflow):
        decode(b"\0")


@given(st.sampled_from(DECODERS), st.integers(0, 4), st.binary(max_size=100))
def test_any_bytes_decode_or_raise_a_decode_error(decode: Decoder, version: int, data: bytes) -> None:
    """Whatever a client wrote, a value or a DecodeError comes out."""
    for attempt in (data, bytes([0, version]) + data):
        try:
            decode(attempt)
        except DecodeError as error:
            assert error.byte_position is not None


partitions = st.lists(st.integers(-1, 2**31 - 1), max_size=4).map(tuple)
topic_partitions = st.lists(st.tuples(texts, partitions), max_size=3).map(tuple)
epochs = st.integers(-1, 2**31 - 1)


@given(
    st.builds(
        Subscription,
        st.just(3),
        st.lists(texts, max_size=3).map(tuple),
        st.none() | st.binary(max_size=9),
        topic_partitions,
        epochs,
        st.none() | texts,
    )
)
def test_subscription_round_trip(subscription: Subscription) -> None:
    """Any subscription comes back from its bytes."""
    assert decode_subscription(encode_subscription(subscription)) == subscription


@given(
    st.builds(
        ConnectMetadata,
        st.integers(1, 2),
        texts,
        epochs,
        st.none()
        | st.builds(
            ConnectAssignment,
            st.integers(1, 2),
            st.integers(0, 1),
            texts,
            texts,
            epochs,
            topic_partitions,
            topic_partitions,
            epochs,
        ),
    )
)
def test_connect_metadata_round_trip(metadata: ConnectMetadata) -> None:
    """Any worker's metadata comes back from its bytes, allocation included."""
    assert decode_connect_metadata(encode_connect_metadata(metadata)) == metadata
