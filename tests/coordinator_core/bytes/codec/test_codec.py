"""The codec: golden vectors of Kafka's classes, round trips, and what it does with bytes that are wrong."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.bytes import codec
from coordinator_core.errors import (
    BufferUnderflow,
    CoreError,
    DecodeError,
    EncodeError,
    InvalidRecord,
    LengthOutOfBounds,
    NullNotAllowed,
    UnknownRecordType,
    UnknownValueVersion,
    VarintTooLong,
)
from coordinator_core.limits import NESTING_DEPTH_MAX
from schemas import cluster_metadata, consumer_offsets, share_group_state, transaction_state, wire
from schemas.consumer_offsets import RecordType, classic, consumer, offsets, streams
from schemas.registry import MESSAGES
from tests.conformance.families import vectors
from tests.strategies import structs, versioned_messages

VECTORS = Path(__file__).parents[3] / "data" / "vectors" / "open"
OFFSETS_TOPIC = consumer_offsets.TOPIC
UUID = "SEYvEF84R66PYzlH5qbKYg"


def simple(*fields: wire.Field, flexible: str = "none", versions: str = "0") -> wire.Message:
    """A message of no topic."""
    return wire.Message("Simple", wire.Role.EMBEDDED, wire.Prefix.NONE, versions, fields, flexible=flexible)


# --- golden vectors ---


@pytest.mark.parametrize("file", sorted(VECTORS.glob("*.jsonl")), ids=lambda file: file.stem)
def test_vectors_of_kafka_decode_and_encode(file: Path) -> None:
    """Kafka's bytes give Kafka's fields, and the fields give the bytes back."""
    faults = [vectors.fault_of(json.loads(line)) for line in file.read_text(encoding="utf-8").split("\n") if line]
    assert len(faults) >= 10
    assert [fault for fault in faults if fault] == []


def test_vectors_cover_every_version_of_every_message() -> None:
    """No version of a message of Kafka's topics and protocols is without a vector."""
    seen = {(vector["message"], vector["version"]) for _, vector in vectors.read_vectors(VECTORS)}
    declared = {
        (message.name, version)
        for message in MESSAGES.values()
        if message.role is not wire.Role.METADATA
        for version in wire.message_versions(message)
    }
    assert seen == declared


def test_vectors_of_a_folder_are_counted(tmp_path: Path) -> None:
    """The runner counts cases, and names the vector whose bytes do not fit its fields: the canary of this file."""
    first = (VECTORS / "OffsetCommitKey.jsonl").read_text(encoding="utf-8").split("\n")[0]
    vector = json.loads(first)
    wrong = {**vector, "hex": vector["hex"][:-1] + ("0" if vector["hex"][-1] != "0" else "1")}
    short = {**vector, "hex": vector["hex"][:-2]}
    unknown = {**vector, "fields": {**vector["fields"], "more": 1}}
    other = {**vector, "hex": "0000" + vector["hex"][4:]}
    later = {**vector, "message": "OrderKey"}
    folder = tmp_path / "vectors"
    folder.mkdir()
    (folder / "a.jsonl").write_text(
        "\n".join(json.dumps(case) for case in (vector, wrong, short, unknown, other, later)) + "\n", encoding="utf-8"
    )
    cases, passed, failures = vectors.run(tmp_path)
    assert (cases, passed) == (6, 1)
    assert [failure.split(" ", 1)[0] for failure in failures] == [f"a.jsonl:{line}" for line in range(2, 7)]


def test_vectors_decode_from_a_memoryview() -> None:
    """Bytes and a view into a larger buffer read the same."""
    for _, vector in vectors.read_vectors(VECTORS):
        message = MESSAGES[vector["message"]]
        if message.role is wire.Role.VALUE:
            data = bytes.fromhex(vector["hex"])
            view = memoryview(b"\xff" * 3 + data)[3:]
            topic, record_type = message.topic or "", message.record_type or 0
            assert codec.decode_value(topic, record_type, view) == codec.decode_value(topic, record_type, data)


def test_vectors_cut_anywhere_underflow() -> None:
    """A prefix of a value is an error of ours at each cut, unless the rest may be missing."""
    for _, vector in vectors.read_vectors(VECTORS):
        message, data = MESSAGES[vector["message"]], bytes.fromhex(vector["hex"])
        if message.role is wire.Role.VALUE and len(data) < 300:
            for size in range(len(data)):
                with pytest.raises(DecodeError):
                    codec.decode_value(message.topic or "", message.record_type or 0, data[:size])


# --- properties ---


@given(st.data())
def test_round_trip(data: st.DataObject) -> None:
    """Any struct which a version can hold comes back from its bytes, which end where the struct ends."""
    message, version = data.draw(versioned_messages)
    struct = data.draw(structs(message, version))
    encoded = codec.encode(message, struct, version)
    assert codec.decode_from(message, b"\x01\x02" + encoded + b"\x03", version, 2) == (struct, len(encoded) + 2)
    assert codec.encode(message, codec.decode(message, encoded, version), version) == encoded


@given(versioned_messages, st.binary(max_size=200))
def test_any_bytes_decode_or_raise_a_decode_error(message_version: tuple[wire.Message, int], data: bytes) -> None:
    """Whatever the bytes, a struct or a DecodeError comes out; and a struct can be written again."""
    message, version = message_version
    try:
        struct = codec.decode(message, data, version)
    except DecodeError as error:
        assert error.byte_position is not None
    else:
        again = codec.decode(message, codec.encode(message, struct, version), version)
        assert again == struct


@given(st.data())
def test_flipped_bytes_decode_or_raise_a_decode_error(data: st.DataObject) -> None:
    """Bytes which are nearly right are where lengths and counts lie."""
    message, version = data.draw(versioned_messages)
    encoded = bytearray(codec.encode(message, data.draw(structs(message, version)), version))
    if encoded:
        for _ in range(data.draw(st.integers(1, 3))):
            encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        codec.decode(message, bytes(encoded), version)
    except DecodeError as error:
        assert error.byte_position is not None and 0 <= error.byte_position <= len(encoded)


TOPICS = st.sampled_from([consumer_offsets.TOPIC, share_group_state.TOPIC, transaction_state.TOPIC])


@given(TOPICS, st.integers(-1, 24), st.binary(max_size=60))
def test_any_record_decodes_or_raises_a_decode_error(topic: str, record_type: int, data: bytes) -> None:
    """The same for whole keys, values and records of the metadata log, prefix included."""
    for attempt in (
        lambda: codec.decode_key(topic, data),
        lambda: codec.decode_key(topic, bytes([0, record_type & 0xFF]) + data),
        lambda: codec.decode_value(topic, record_type, data),
        lambda: codec.decode_value(topic, record_type, b"\0\0" + data),
        lambda: codec.decode_metadata(data),
        lambda: codec.decode_metadata(bytes([1, record_type & 0x7F, 0]) + data),
    ):
        try:
            attempt()
        except DecodeError as error:
            assert type(error) is not DecodeError


# --- traps of the format, one by one ---


def test_absent_tag_of_a_nullable_struct_is_not_null() -> None:
    """A literal null default is ignored by Kafka's generator: the default is an empty struct, and null is written
    as tag 0 of one byte 00."""
    value = codec.make(consumer.CONSUMER_GROUP_MEMBER_METADATA_VALUE)
    assert value.classic_member_metadata == codec.make(consumer.CLASSIC_MEMBER_METADATA)
    absent = codec.encode(consumer.CONSUMER_GROUP_MEMBER_METADATA_VALUE, value, 0)
    assert absent.endswith(b"\x00")
    null = codec.make(consumer.CONSUMER_GROUP_MEMBER_METADATA_VALUE, classic_member_metadata=None)
    assert codec.encode(consumer.CONSUMER_GROUP_MEMBER_METADATA_VALUE, null, 0) == absent[:-1] + b"\x01\x00\x01\x00"


def test_absent_tag_of_a_nullable_array_is_empty() -> None:
    """AssignmentEpochs: absent is empty, null is a payload of 00."""
    empty = codec.make(consumer.TOPIC_PARTITIONS, topic_id=UUID, partitions=(1,))
    assert empty.assignment_epochs == ()
    for epochs, tags in (((), b"\0"), (None, b"\1\0\1\0"), ((5,), b"\1\0\5\2\0\0\0\5")):
        value = codec.make(
            consumer.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
            assigned_partitions=[
                codec.make(consumer.TOPIC_PARTITIONS, topic_id=UUID, partitions=(1,), assignment_epochs=epochs)
            ],
        )
        data = codec.encode(consumer.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE, value, 0)
        assert data.endswith(b"\2\0\0\0\1" + tags + b"\1\0")


@pytest.mark.parametrize(
    ("tags", "unknown"),
    [
        (b"\1\0\5\2\0\0\0\5", ()),
        (b"\1\0\x85\0\2\0\0\0\5", ()),
        (b"\x81\0\0\5\2\0\0\0\5", ()),
        (b"\2\0\5\2\0\0\0\5\x63\1x", ((0x63, b"x"),)),
    ],
    ids=["alone", "size of two bytes", "count of two bytes", "next to an unknown one"],
)
def test_a_known_tag_is_read_however_its_section_is_written(
    tags: bytes, unknown: tuple[tuple[int, bytes], ...]
) -> None:
    """One tag that is known and short is read on a way of its own, to the same effect as on that of all others."""
    epochs, rest = b"\0\0\0\1" * 2 + b"\0", b"\1\0"
    topic = codec.uuid_bytes(UUID) + b"\2\0\0\0\1" + tags
    value = codec.decode(
        consumer.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE, epochs + b"\3" + topic + topic + rest, 0
    )
    assert [(item.partitions, item.assignment_epochs, item.unknown_tags) for item in value.assigned_partitions] == [
        ((1,), (5,), unknown)
    ] * 2
    assert value.partitions_pending_revocation == ()


def test_nullable_struct_among_the_fields_has_a_signed_byte() -> None:
    """UserEndpoint of a streams member: FF is null, 01 is there; any negative byte is null, any other is not."""
    none = codec.make(streams.STREAMS_GROUP_MEMBER_METADATA_VALUE)
    assert none.user_endpoint is None
    data = codec.encode(streams.STREAMS_GROUP_MEMBER_METADATA_VALUE, none, 0)
    assert data[-3:] == b"\xff\x01\x00"
    assert codec.decode(streams.STREAMS_GROUP_MEMBER_METADATA_VALUE, data[:-3] + b"\x80\x01\x00", 0) == none
    some = codec.decode(streams.STREAMS_GROUP_MEMBER_METADATA_VALUE, data[:-3] + b"\x00\x02h\xff\xff\x00\x01\x00", 0)
    assert some.user_endpoint == codec.make(streams.ENDPOINT, host="h", port=65535)


def test_legacy_offset_commit_has_its_own_value() -> None:
    """Type 0 carries LegacyOffsetCommitValue in version 0 only; type 1 carries versions 0 to 4."""
    data = b"\0\0" + b"\0" * 7 + b"\x05" + b"\0\1m" + b"\0" * 7 + b"\x09"
    for record_type, message in (
        (RecordType.LEGACY_OFFSET_COMMIT, offsets.LEGACY_OFFSET_COMMIT_VALUE),
        (RecordType.OFFSET_COMMIT, offsets.OFFSET_COMMIT_VALUE),
    ):
        value = codec.decode_value(OFFSETS_TOPIC, record_type, data)
        assert (value.version, value.message) == (0, message)
        assert (value.fields.offset, value.fields.metadata, value.fields.commit_timestamp) == (5, "m", 9)
    with pytest.raises(UnknownValueVersion):
        codec.decode_value(OFFSETS_TOPIC, RecordType.LEGACY_OFFSET_COMMIT, b"\0\1" + data[2:] + b"\0" * 8)


def test_absent_fields_read_as_their_default() -> None:
    """What a version does not have reads as its default."""
    value = codec.decode(offsets.OFFSET_COMMIT_VALUE, b"\0" * 18, 0)
    assert (value.leader_epoch, value.expire_timestamp, value.topic_id) == (-1, -1, "A" * 22)
    member = codec.make(classic.MEMBER_METADATA, member_id="m")
    group = codec.make(classic.GROUP_METADATA_VALUE, members=[member])
    read = codec.decode(classic.GROUP_METADATA_VALUE, codec.encode(classic.GROUP_METADATA_VALUE, group, 0), 0)
    assert read.members[0].group_instance_id is None
    assert read.members[0].rebalance_timeout == -1


def test_ignorable_fields_are_dropped_and_others_are_not() -> None:
    """A version which lacks a field drops it where Kafka calls it ignorable."""
    value = codec.make(offsets.OFFSET_COMMIT_VALUE, leader_epoch=3, topic_id=UUID)
    assert codec.encode(offsets.OFFSET_COMMIT_VALUE, value, 0) == b"\0" * 18
    of_version_1 = codec.make(transaction_state.TRANSACTION_LOG_VALUE, next_producer_epoch=4)
    with pytest.raises(EncodeError):
        codec.encode(transaction_state.TRANSACTION_LOG_VALUE, of_version_1, 0)


def test_negative_lengths_are_null() -> None:
    """Kafka asks for less than zero, not for -1."""
    data = b"\0\1c" + b"\0\0\0\1" + b"\xff\xff" + b"\x80\x00" + b"\0\0\0\0"
    group = codec.decode(classic.GROUP_METADATA_VALUE, data, 0)
    assert (group.protocol_type, group.generation, group.protocol, group.leader) == ("c", 1, None, None)


def test_known_tags_are_read_by_type_in_any_order_and_size() -> None:
    """The size of a known tag is not compared, and tags need not ascend: Kafka checks neither when reading."""
    tags = b"\3" + b"\2\2\0\2" + b"\3\x63\0\4" + b"\0\0" + b"\0" * 7 + b"\5"
    value = codec.decode(transaction_state.TRANSACTION_LOG_VALUE, b"\0" * 8 + b"\0" * 7 + b"\1" + b"\0" * 16 + tags, 1)
    assert (value.client_transaction_version, value.next_producer_epoch, value.previous_producer_id) == (2, 4, 5)
    assert value.unknown_tags == ()


def test_bytes_after_the_fields_are_ignored() -> None:
    """A key or value may be longer than its declaration, as a later Kafka might write it."""
    key = codec.encode_key(OFFSETS_TOPIC, 3, codec.make(consumer.CONSUMER_GROUP_METADATA_KEY, group_id="g"))
    assert codec.decode_key(OFFSETS_TOPIC, key + b"more").fields.group_id == "g"
    value = codec.encode_value(OFFSETS_TOPIC, 3, 0, codec.make(consumer.CONSUMER_GROUP_METADATA_VALUE, epoch=4))
    assert codec.decode_value(OFFSETS_TOPIC, 3, value + b"more").fields.epoch == 4


MALFORMED_TEXTS = [
    (b"a\xffb", "a\ufffdb"),
    (b"\xc3", "\ufffd"),
    (b"\xe2\x82", "\ufffd"),
    (b"\xe2\x82A", "\ufffdA"),
    (b"\xe0\x80\x80", "\ufffd\ufffd\ufffd"),
    (b"\xf0\x90\x80", "\ufffd"),
    (b"\xf5\x80", "\ufffd\ufffd"),
    (b"\xed\xa0\x80", "\ufffd"),
    (b"\xed\xa0\x80\xed\xb0\x80!", "\ufffd\ufffd!"),
    (b"\xed\xa0", "\ufffd"),
    (b"\xed\xbfA", "\ufffdA"),
    (b"\xed", "\ufffd"),
    (b"\xed\x80", "\ufffd"),
]


@pytest.mark.parametrize(("data", "text"), MALFORMED_TEXTS, ids=[data.hex() for data, _ in MALFORMED_TEXTS])
def test_malformed_text_is_repaired_as_java_does(data: bytes, text: str) -> None:
    """As many U+FFFD as Java's `new String(bytes, UTF_8)` gives; an encoded surrogate is one fault."""
    key = bytes([0, 3, 0, len(data)]) + data
    assert codec.decode_key(OFFSETS_TOPIC, key).fields.group_id == text


# --- errors ---


BAD_KEYS: list[tuple[str, bytes, type[DecodeError], int]] = [
    ("empty", b"", BufferUnderflow, 0),
    ("half a type", b"\0", BufferUnderflow, 1),
    ("type 9", b"\0\x09\0\0", UnknownRecordType, 0),
    ("type 18", b"\0\x12\0\0", UnknownRecordType, 0),
    ("negative type", b"\xff\xff\0\0", UnknownRecordType, 0),
    ("no length", b"\0\3", BufferUnderflow, 2),
    ("length beyond the end", b"\0\3\x7f\xffabc", LengthOutOfBounds, 2),
    ("null group", b"\0\3\xff\xff", NullNotAllowed, 2),
    ("half a partition", b"\0\1\0\0\0\0\0\0", BufferUnderflow, 8),
]


@pytest.mark.parametrize(
    ("data", "error", "byte_position"), [case[1:] for case in BAD_KEYS], ids=[case[0] for case in BAD_KEYS]
)
def test_bad_keys_say_what_and_where(data: bytes, error: type[DecodeError], byte_position: int) -> None:
    """Each fault of a key has its error and its place."""
    with pytest.raises(error) as caught:
        codec.decode_key(OFFSETS_TOPIC, data)
    assert caught.value.byte_position == byte_position


BAD_VALUES: list[tuple[str, int, bytes, type[DecodeError]]] = [
    ("empty", 1, b"", BufferUnderflow),
    ("version 5", 1, b"\0\5" + b"\0" * 40, UnknownValueVersion),
    ("version -1", 1, b"\xff\xff" + b"\0" * 40, UnknownValueVersion),
    ("type 9", 9, b"\0\0", UnknownRecordType),
    ("short", 1, b"\0\0" + b"\0" * 7, BufferUnderflow),
    ("two billion members", 2, b"\0\0\0\0\0\0\0\0\xff\xff\xff\xff\x7f\xff\xff\xff", LengthOutOfBounds),
    ("null members", 2, b"\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", NullNotAllowed),
    ("null compact array", 7, b"\0\0\0\0", NullNotAllowed),
    ("compact count beyond the end", 7, b"\0\0\xff\xff\xff\xff\7", LengthOutOfBounds),
    ("partitions beyond the end", 7, b"\0\0\2" + b"\0" * 16 + b"\3" + b"\0" * 7, LengthOutOfBounds),
    ("half a uuid", 7, b"\0\0\2" + b"\0" * 10, LengthOutOfBounds),
    ("endless varint", 7, b"\0\0" + b"\x80" * 5 + b"\0", VarintTooLong),
    ("endless tag", 7, b"\0\0\1\1" + b"\xff" * 6, VarintTooLong),
    ("tag beyond the end", 7, b"\0\0\1\1\x63\5abc", LengthOutOfBounds),
    ("tag of negative size", 7, b"\0\0\1\1\x63\xff\xff\xff\xff\x0f", LengthOutOfBounds),
    ("no tag section", 7, b"\0\0\1", BufferUnderflow),
    ("fewer tags than said", 7, b"\0\0\1\2\x63\0", BufferUnderflow),
    ("string of 32768", 5, b"\0\0\x81\x80\2" + b"a" * 32768, LengthOutOfBounds),
]


@pytest.mark.parametrize(
    ("record_type", "data", "error"), [case[1:] for case in BAD_VALUES], ids=[case[0] for case in BAD_VALUES]
)
def test_bad_values_say_what(record_type: int, data: bytes, error: type[DecodeError]) -> None:
    """Each fault of a value has its error; counts are refused before anything is allocated."""
    with pytest.raises(error):
        codec.decode_value(OFFSETS_TOPIC, record_type, data)


def test_longest_string_is_read() -> None:
    """32767 bytes are a string still."""
    value = codec.make(consumer.CONSUMER_GROUP_MEMBER_METADATA_VALUE, client_id="a" * 32767)
    data = codec.encode(consumer.CONSUMER_GROUP_MEMBER_METADATA_VALUE, value, 0)
    assert codec.decode(consumer.CONSUMER_GROUP_MEMBER_METADATA_VALUE, data, 0) == value


BAD_FIELDS: list[tuple[str, dict[str, Any]]] = [
    ("null", {"group": None}),
    ("not text", {"group": 5}),
    ("too long", {"group": "x" * 32768}),
    ("lone surrogate", {"group": "\ud800"}),
    ("out of range", {"partition": 2**31}),
    ("not a number", {"partition": "1"}),
    ("tags in a version without", {"unknown_tags": ((9, b""),)}),
]


@pytest.mark.parametrize("fields", [case[1] for case in BAD_FIELDS], ids=[case[0] for case in BAD_FIELDS])
def test_bad_fields_do_not_encode(fields: dict[str, Any]) -> None:
    """What the wire format cannot hold is the caller's error."""
    with pytest.raises(EncodeError):
        codec.encode(offsets.OFFSET_COMMIT_KEY, codec.make(offsets.OFFSET_COMMIT_KEY, **fields), 0)


def test_bad_structs_do_not_encode() -> None:
    """A struct of another message, null for an array, a text that is no uuid, and a known tag among the unknown."""
    key = codec.make(offsets.OFFSET_COMMIT_KEY)
    with pytest.raises(EncodeError, match="LegacyOffsetCommitKey expected"):
        codec.encode(offsets.LEGACY_OFFSET_COMMIT_KEY, key, 0)
    with pytest.raises(EncodeError, match="cannot be null"):
        group = codec.make(classic.GROUP_METADATA_VALUE, members=None)
        codec.encode(classic.GROUP_METADATA_VALUE, group, 3)
    for text in ("", "A" * 21, "A" * 21 + "B", "A" * 21 + "+", "é" * 22, 5):
        with pytest.raises(EncodeError):
            share_key = codec.make(share_group_state.SHARE_SNAPSHOT_KEY, topic_id=text)
            codec.encode(share_group_state.SHARE_SNAPSHOT_KEY, share_key, 0)
    with pytest.raises(EncodeError, match="tag 0 of ShareUpdateValue is known"):
        update = codec.make(share_group_state.SHARE_UPDATE_VALUE, unknown_tags=((0, b"\0\0\0\1"),))
        codec.encode(share_group_state.SHARE_UPDATE_VALUE, update, 0)


def test_callers_mistakes_are_not_decode_errors() -> None:
    """A topic, record type or version that does not exist, asked for by the caller, is not a fault of bytes."""
    for attempt in (
        lambda: codec.decode_key("orders", b"\0\0"),
        lambda: codec.decode(offsets.OFFSET_COMMIT_VALUE, b"", 5),
        lambda: codec.decode(classic.MEMBER_METADATA, b"", 0),
        lambda: codec.encode_key(OFFSETS_TOPIC, 9, codec.make(offsets.OFFSET_COMMIT_KEY)),
        lambda: codec.make(offsets.OFFSET_COMMIT_KEY, offset=1),
    ):
        with pytest.raises(CoreError) as caught:
            attempt()
        assert not isinstance(caught.value, DecodeError)


def test_nesting_is_bounded() -> None:
    """A declaration nested beyond the limit is refused when it is compiled."""
    struct = wire.Struct("Leaf", (wire.Field("x", wire.Int8),))
    for _ in range(NESTING_DEPTH_MAX):
        struct = wire.Struct("Nest", (wire.Field("inner", struct),))
    with pytest.raises(CoreError, match="nests deeper"):
        codec.decode(simple(wire.Field("inner", struct)), b"\0", 0)


# --- structs ---


def test_structs_are_values() -> None:
    """Equal by fields, hashable, immutable, slotted, one class a declaration, and they show their fields."""
    first = codec.make(offsets.OFFSET_COMMIT_KEY, group="g", topic="t", partition=1)
    second = codec.make(offsets.OFFSET_COMMIT_KEY, group="g", topic="t", partition=1)
    assert first == second and hash(first) == hash(second) and type(first) is type(second)
    assert first != codec.make(offsets.OFFSET_COMMIT_KEY, group="g", topic="t", partition=2)
    assert first != codec.make(offsets.LEGACY_OFFSET_COMMIT_KEY, group="g", topic="t", partition=1)
    assert repr(first) == "OffsetCommitKey(group='g', topic='t', partition=1, unknown_tags=())"
    assert isinstance(first, codec.Struct) and not hasattr(first, "__dict__")
    assert type(first) is codec.struct_class(offsets.OFFSET_COMMIT_KEY)
    unchecked: Any = first
    with pytest.raises(AttributeError):
        unchecked.group = "h"


def test_make_takes_lists_for_arrays() -> None:
    """Arrays are tuples, however they were given."""
    value = codec.make(consumer.CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE, topics=["a", "b"])
    assert value.topics == ("a", "b")
    assert codec.make(consumer.CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE).topics == ()


def test_plain_nested_structs_and_booleans() -> None:
    """A struct which cannot be null comes among the fields without a marker; a boolean is one byte, not zero for
    true."""
    inner = wire.Struct("Inner", (wire.Field("flag", wire.Bool), wire.Field("n", wire.Int16)))
    message = simple(wire.Field("inner", inner), wire.Field("flags", wire.Array(wire.Bool)))
    struct = codec.decode(message, b"\2\0\7" + b"\0\0\0\2\0\xff", 0)
    assert struct == codec.make(message, inner=codec.make(inner, flag=True, n=7), flags=(False, True))
    assert codec.encode(message, struct, 0) == b"\1\0\7" + b"\0\0\0\2\0\1"


@given(st.binary(min_size=16, max_size=16))
def test_uuid_text_is_kafkas(data: bytes) -> None:
    """22 characters of URL-safe base64, and back."""
    text = codec.uuid_text(data)
    assert text == base64.urlsafe_b64encode(data).decode().rstrip("=")
    assert codec.uuid_bytes(text) == data


VARINTS = [
    (0, b"\0"),
    (127, b"\x7f"),
    (128, b"\x80\1"),
    (2**31 - 1, b"\xff\xff\xff\xff\7"),
    (-1, b"\xff\xff\xff\xff\x0f"),
]


@pytest.mark.parametrize(("number", "data"), VARINTS, ids=[str(number) for number, _ in VARINTS])
def test_uvarint_is_kafkas(number: int, data: bytes) -> None:
    """Seven bits a byte, lowest first, no zigzag; five bytes overflow into the sign, as an int does in Java."""
    out = bytearray()
    codec.write_uvarint(out, number)
    assert bytes(out) == data
    assert codec.read_uvarint(b"x" + data, 1) == (number, 1 + len(data))


# --- the metadata log ---


def test_topic_record_of_a_broker() -> None:
    """A TOPIC_RECORD as a 4.3.1 controller wrote it."""
    data = bytes.fromhex("01020007") + b"warmup" + codec.uuid_bytes("tmyj-FEYST-VyJ_du8dc1w") + b"\0"
    record = codec.decode_metadata(data)
    assert (record.version, record.message) == (0, cluster_metadata.TOPIC_RECORD)
    assert (record.fields.name, record.fields.topic_id) == ("warmup", "tmyj-FEYST-VyJ_du8dc1w")
    assert codec.encode_metadata(record.message, record.fields, 0) == data


BAD_METADATA: list[tuple[str, bytes, type[DecodeError]]] = [
    ("empty", b"", BufferUnderflow),
    ("frame 0", b"\0\2\0\1", InvalidRecord),
    ("partition change record", b"\1\5\2\0", UnknownRecordType),
    ("partition record v3", b"\1\3\3\0", UnknownRecordType),
    ("partition record cut", b"\1\3\2\0", BufferUnderflow),
    ("topic record v1", b"\1\2\1\1", UnknownValueVersion),
    ("short", b"\1\2\0\7warm", LengthOutOfBounds),
]


@pytest.mark.parametrize(("data", "error"), [case[1:] for case in BAD_METADATA], ids=[case[0] for case in BAD_METADATA])
def test_bad_metadata_records_say_what(data: bytes, error: type[DecodeError]) -> None:
    """Each fault of a metadata record has its error; types which are not declared are recognized and skipped."""
    with pytest.raises(error):
        codec.decode_metadata(data)
