"""Reads and writes structs as JSON, like Kafka's generated XxxJsonConverter classes.

Names are Kafka's; bytes are base64; uuids are text. Fields that the version does not have are left out, and so are
tagged fields with their default. Kafka's own tools (kafka-dump-log, the console formatters) print records like this.
"""

import binascii
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from coordinator_core.bytes.codec import Struct, default_of, make
from coordinator_core.errors import EncodeError
from schemas import wire

UNKNOWN_TAGS: Final = "_unknownTags"
"""Not Kafka's: fields of a later Kafka, tag -> base64. They are read, and written on request, so that nothing is
lost."""

Json = Any


def to_json(fields: Struct, message: wire.Message, version: int, *, with_unknown_tags: bool = False) -> dict[str, Json]:
    """The object that the message's JsonConverter.write(fields, version) returns."""
    return _struct_json(fields, message.fields, version, _highest(message), with_unknown_tags)


def from_json(
    node: Mapping[str, Json], message: wire.Message, version: int, *, left_out: set[str] | None = None
) -> Struct:
    """The struct of an object in the format of `to_json`. Absent fields have their default.

    Raises EncodeError for names that the version does not have and for values of the wrong type. With `left_out`, names
    that a flexible version does not have are added to it instead: a later Kafka may add tagged fields there.
    """
    highest = _highest(message)
    is_flexible = version in wire.version_range(message.flexible, highest)
    try:
        return _struct_of(node, message, version, highest, left_out if is_flexible else None)
    except (TypeError, AttributeError, ValueError) as error:
        raise EncodeError(f"not the JSON of {message.name}: {type(error).__name__}") from error


def _highest(message: wire.Message) -> int:
    return wire.message_versions(message)[-1]


def _struct_json(
    struct: Struct, fields: tuple[wire.Field, ...], version: int, highest: int, with_unknown_tags: bool
) -> dict[str, Json]:
    node: dict[str, Json] = {}
    for field in fields:
        value = getattr(struct, field.name)
        if version not in wire.version_range(field.versions, highest):
            continue
        if version in wire.version_range(field.tagged, highest) and value == default_of(field):
            continue
        node[wire.kafka_field_name(field)] = _value_json(value, field.kind, version, highest, with_unknown_tags)
    if with_unknown_tags and struct.unknown_tags:
        node[UNKNOWN_TAGS] = {str(tag): _base64(payload) for tag, payload in struct.unknown_tags}
    return node


def _value_json(value: Any, kind: wire.Kind, version: int, highest: int, with_unknown_tags: bool) -> Json:
    if value is None:
        return None
    if isinstance(kind, wire.Array):
        return [_value_json(item, kind.element, version, highest, with_unknown_tags) for item in value]
    if isinstance(kind, wire.Struct):
        return _struct_json(value, kind.fields, version, highest, with_unknown_tags)
    return _base64(value) if kind is wire.Bytes else value


def _struct_of(
    node: Mapping[str, Json],
    message: wire.Message | wire.Struct,
    version: int,
    highest: int,
    left_out: set[str] | None,
) -> Struct:
    fields = _fields_of(message, version, highest)
    values: dict[str, Any] = {}
    for kafka_name, value in node.items():
        if kafka_name in fields:
            name, kind = fields[kafka_name]
            values[name] = _value_of(value, kind, version, highest, left_out)
        elif kafka_name == UNKNOWN_TAGS:
            tags = {int(tag): binascii.a2b_base64(text) for tag, text in value.items()}
            values["unknown_tags"] = tuple(sorted(tags.items()))
        elif left_out is not None:
            left_out.add(kafka_name)
        else:
            unknown = ", ".join(sorted(node.keys() - fields.keys() - {UNKNOWN_TAGS}))
            raise EncodeError(f"{message.name} has no {unknown} in version {version}")
    return make(message, **values)


@cache
def _fields_of(message: wire.Message | wire.Struct, version: int, highest: int) -> Mapping[str, tuple[str, wire.Kind]]:
    """Attribute name and kind of each field that a version has, by Kafka's name."""
    return {
        wire.kafka_field_name(field): (field.name, field.kind)
        for field in message.fields
        if version in wire.version_range(field.versions, highest)
    }


def _value_of(node: Json, kind: wire.Kind, version: int, highest: int, left_out: set[str] | None) -> Any:
    if node is None:
        return None
    if isinstance(kind, wire.Array):
        return tuple(_value_of(item, kind.element, version, highest, left_out) for item in node)
    if isinstance(kind, wire.Struct):
        return _struct_of(node, kind, version, highest, left_out)
    return binascii.a2b_base64(node, strict_mode=True) if kind is wire.Bytes else node


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")
