"""Messages and records: bytes to structs and back, by a record's topic and type."""

import struct
from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

from coordinator_core.bytes.codec.compiler import codec_of, read_checked, write_fields
from coordinator_core.bytes.codec.primitives import Buffer, read_uvarint, write_uvarint
from coordinator_core.bytes.codec.structs import Declaration, Struct
from coordinator_core.bytes.named_tuples import maker_of
from coordinator_core.errors import (
    BufferUnderflow,
    CoreError,
    EncodeError,
    InvalidRecord,
    UnknownRecordType,
    UnknownValueVersion,
)
from schemas import wire
from schemas.cluster_metadata import FRAME_VERSION, PARTITION_RECORD
from schemas.registry import METADATA, REGISTRY

_INT16: Final = struct.Struct(">h")


class CoordinatorKey(NamedTuple):
    """The key of a coordinator record."""

    record_type: int
    message: wire.Message
    fields: Struct


class CoordinatorValue(NamedTuple):
    """The value of a coordinator record, or of a record of the metadata log."""

    version: int
    message: wire.Message
    fields: Struct


_make_value: Final = maker_of(CoordinatorValue)


def decode(message: Declaration, data: Buffer, version: int, *, position: int = 0) -> Struct:
    """Decode the fields of `message` in `version`, which start at `position`. Raises DecodeError only."""
    return decode_from(message, data, version, position)[0]


def decode_from(message: Declaration, data: Buffer, version: int, position: int) -> tuple[Struct, int]:
    """Like `decode`, with the position after the last byte read."""
    return read_checked(codec_of(message, version).read, data, position)


def encode(message: Declaration, fields: Struct, version: int) -> bytes:
    """Encode `fields` in `version`, without a prefix. Raises EncodeError if that version cannot represent them."""
    out = bytearray()
    write_fields(codec_of(message, version), out, fields)
    return bytes(out)


def decode_key(topic: str, data: Buffer) -> CoordinatorKey:
    """Decode a record's key. Raises UnknownRecordType for a type that is not declared for the topic, otherwise
    DecodeError. Kafka's loader warns and skips an unknown type."""
    try:
        (record_type,) = _INT16.unpack_from(data)
    except struct.error:
        raise BufferUnderflow("key is too short for a record type", byte_position=len(data)) from None
    plan = _topic(topic).get(record_type)
    if plan is None:
        raise UnknownRecordType(f"record type {record_type} is not one of {topic}", byte_position=0)
    return CoordinatorKey(record_type, plan.key, read_checked(codec_of(plan.key, 0).read, data, 2)[0])


def decode_value(topic: str, record_type: int, data: Buffer) -> CoordinatorValue:
    """Decode the value that belongs to a key of `record_type`. `data` is not null, because tombstones have no value.

    Raises UnknownRecordType, UnknownValueVersion (Kafka's loader fails there), otherwise DecodeError.
    """
    plan = _topic(topic).get(record_type)
    if plan is None:
        raise UnknownRecordType(f"record type {record_type} is not one of {topic}")
    try:
        (version,) = _INT16.unpack_from(data)
    except struct.error:
        raise BufferUnderflow("value is too short for a version", byte_position=len(data)) from None
    if version not in plan.versions:
        raise UnknownValueVersion(f"{plan.value.name} has no version {version}", byte_position=0)
    return _make_value((version, plan.value, read_checked(codec_of(plan.value, version).read, data, 2)[0]))


def has_unknown_tags(value: CoordinatorValue) -> bool:
    """Whether a value, or a struct in it, has tagged fields that its declaration does not have."""
    return _is_flexible(value.message, value.version) and _has_unknown_tags(value.fields, value.message)


@cache
def _is_flexible(message: wire.Message, version: int) -> bool:
    return version in wire.version_range(message.flexible, wire.message_versions(message)[-1])


def _has_unknown_tags(fields: Struct, declaration: wire.Message | wire.Struct) -> bool:
    if fields.unknown_tags:
        return True
    for name, kind, is_array, is_leaf in _nested(declaration):
        inner = getattr(fields, name)
        if not inner:
            continue
        for each in inner if is_array else (inner,):
            if each.unknown_tags or (not is_leaf and _has_unknown_tags(each, kind)):
                return True
    return False


@cache
def _nested(declaration: wire.Message | wire.Struct) -> tuple[tuple[str, wire.Struct, bool, bool], ...]:
    """(attribute, declaration, whether it is an array, whether it has no structs itself) of the structs in a struct."""
    found = []
    for field in declaration.fields:
        is_array = isinstance(field.kind, wire.Array)
        kind = field.kind.element if isinstance(field.kind, wire.Array) else field.kind
        if isinstance(kind, wire.Struct):
            found.append((field.name, kind, is_array, not _nested(kind)))
    return tuple(found)


def encode_key(topic: str, record_type: int, fields: Struct) -> bytes:
    """The key of a record: its type, and its fields in version 0, the only version of keys."""
    key, _ = _messages(topic, record_type)
    return _INT16.pack(record_type) + encode(key, fields, 0)


def encode_value(topic: str, record_type: int, version: int, fields: Struct) -> bytes:
    """The value of a record: its version and its fields."""
    _, value = _messages(topic, record_type)
    return _INT16.pack(version) + encode(value, fields, version)


def decode_metadata(data: Buffer, messages: Mapping[int, wire.Message] = METADATA) -> CoordinatorValue:
    """Decode the value of a record of `__cluster_metadata` (MetadataRecordSerde).

    Raises UnknownRecordType for the many types that are not declared; a caller skips those. So a caller may skip
    partition records, of which there are many, in a later version: the number of a topic's partitions is known from
    elsewhere too.
    """
    (frame_version, api_key, version), position = read_checked(_read_metadata_frame, data, 0)
    if frame_version != FRAME_VERSION:
        raise InvalidRecord(f"frame version {frame_version} of a metadata record", byte_position=0)
    message = messages.get(api_key)
    if message is None:
        raise UnknownRecordType(f"metadata record type {api_key} is not declared", byte_position=0)
    if version not in wire.message_versions(message):
        if message is PARTITION_RECORD:
            raise UnknownRecordType(
                f"metadata record type {api_key} is not declared in version {version}", byte_position=0
            )
        raise UnknownValueVersion(f"{message.name} has no version {version}", byte_position=0)
    return CoordinatorValue(version, message, decode(message, data, version, position=position))


def metadata_record_type(data: Buffer) -> int | None:
    """The type of a record of `__cluster_metadata`, declared or not; None if its frame has a later version."""
    (frame_version, api_key, _), _ = read_checked(_read_metadata_frame, data, 0)
    return int(api_key) if frame_version == FRAME_VERSION else None


def encode_metadata(message: wire.Message, fields: Struct, version: int) -> bytes:
    """The value of a record of `__cluster_metadata`. The opposite of `decode_metadata`."""
    out = bytearray()
    for number in (FRAME_VERSION, message.record_type or 0, version):
        write_uvarint(out, number)
    return bytes(out) + encode(message, fields, version)


def _read_metadata_frame(data: Buffer, position: int) -> tuple[tuple[int, int, int], int]:
    frame_version, position = read_uvarint(data, position)
    api_key, position = read_uvarint(data, position)
    version, position = read_uvarint(data, position)
    return (frame_version, api_key, version), position


class _RecordPlan(NamedTuple):
    key: wire.Message
    value: wire.Message
    versions: range
    """Versions of the value."""


@cache
def _topic(topic: str) -> Mapping[int, _RecordPlan]:
    """Record type -> declaration, for all types of a topic."""
    if topic not in REGISTRY:
        raise CoreError(f"no records are declared for topic {topic}")
    return {
        int(record_type): _RecordPlan(key, value, wire.message_versions(value))
        for record_type, (key, value) in REGISTRY[topic].items()
    }


def _messages(topic: str, record_type: int) -> tuple[wire.Message, wire.Message]:
    try:
        return REGISTRY[topic][record_type]
    except KeyError:
        raise EncodeError(f"no record type {record_type} in topic {topic}") from None
