"""Golden vectors of Kafka's generated message classes: bytes and fields must say the same, both ways.

A folder holds `vectors/*.jsonl`, one JSON object a line: `message` (Kafka's name), `version`, `case`, `hex` (prefix
included) and `fields`, which are all fields of the version, also tagged ones at their default, and `_unknownTags`.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from coordinator_core.bytes.codec import (
    Struct,
    decode_from,
    decode_key,
    decode_value,
    default_of,
    encode,
    encode_key,
    encode_value,
)
from coordinator_core.bytes.printed.kafka_json import from_json, to_json
from coordinator_core.errors import CoreError
from schemas import wire
from schemas.registry import MESSAGES, REGISTRY


def run(path: Path) -> tuple[int, int, list[str]]:
    """Check all vectors of a folder. Gives the number of cases, of those which passed, and a line for each other."""
    cases = 0
    failures: list[str] = []
    for place, vector in read_vectors(path / "vectors"):
        cases += 1
        fault = fault_of(vector)
        if fault:
            failures.append(f"{place} {vector['message']} v{vector['version']} {vector['case']}: {fault}")
    return cases, cases - len(failures), failures


def read_vectors(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every vector of a folder with its place, file:line."""
    for file in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), start=1):
            if line:
                yield f"{file.name}:{number}", json.loads(line)


def fault_of(vector: Mapping[str, Any]) -> str | None:
    """What is wrong with the codec's reading or writing of one vector; None when nothing is."""
    if vector["message"] not in MESSAGES:
        return "the message is not declared"
    message, version = MESSAGES[vector["message"]], vector["version"]
    data = bytes.fromhex(vector["hex"])
    try:
        decoded = _decode(message, version, data)
        fields = without_later_fields(full_json(decoded, message, version), vector["fields"], message)
        if fields != vector["fields"]:
            return f"decodes to {fields}"
        if _encode(message, version, decoded) != data:
            return "decoded fields encode to other bytes"
        made = from_json(vector["fields"], message, version)
        if made != decoded:
            return f"fields make {made}"
        if _encode(message, version, made) != data:
            return "fields encode to other bytes"
        plain = to_json(decoded, message, version, with_unknown_tags=True)
        if from_json(plain, message, version) != decoded:
            return "Kafka's JSON loses something"
    except (CoreError, AssertionError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _decode(message: wire.Message, version: int, data: bytes) -> Struct:
    """Through the way that record keys and values take, where the message is one."""
    if message.role is wire.Role.KEY:
        key = decode_key(message.topic or "", data)
        assert key.message is message and key.record_type == message.record_type
        return key.fields
    if message.role is wire.Role.VALUE:
        value = decode_value(message.topic or "", message.record_type or 0, data)
        assert value.message is message and value.version == version
        return value.fields
    start = 0
    if message.prefix is wire.Prefix.VERSION:
        assert int.from_bytes(data[:2], "big", signed=True) == version
        start = 2
    fields, end = decode_from(message, data, version, start)
    assert end == len(data)
    return fields


def _encode(message: wire.Message, version: int, fields: Struct) -> bytes:
    topic, record_type = message.topic or "", message.record_type or 0
    if message.role is wire.Role.KEY:
        assert message is REGISTRY[topic][record_type][0]
        return encode_key(topic, record_type, fields)
    if message.role is wire.Role.VALUE:
        assert message is REGISTRY[topic][record_type][1]
        return encode_value(topic, record_type, version, fields)
    prefix = version.to_bytes(2, "big", signed=True) if message.prefix is wire.Prefix.VERSION else b""
    return prefix + encode(message, fields, version)


def full_json(fields: Struct, message: wire.Message, version: int) -> dict[str, Any]:
    """Kafka's JSON of the struct, with the tagged fields which it leaves out at their default."""
    node = to_json(fields, message, version, with_unknown_tags=True)
    _fill(node, message.fields, version, wire.message_versions(message)[-1])
    return node


def without_later_fields(
    node: dict[str, Any], vector_fields: Mapping[str, Any], message: wire.Message
) -> dict[str, Any]:
    """The JSON without tagged fields that the release of the vector did not have yet: it names all fields that it has.

    Only at their default, which is what a record of that release says of them.
    """
    later = {
        name: field
        for field in message.fields
        if field.tag is not None and (name := wire.kafka_field_name(field)) not in vector_fields
    }
    return {name: value for name, value in node.items() if name not in later or value != default_of(later[name])}


def _fill(node: dict[str, Any], fields: tuple[wire.Field, ...], version: int, highest: int) -> None:
    for field in fields:
        name = wire.kafka_field_name(field)
        if version not in wire.version_range(field.versions, highest):
            continue
        if name not in node:
            node[name] = _default_json(field, version, highest)
        struct = field.kind.element if isinstance(field.kind, wire.Array) else field.kind
        if isinstance(struct, wire.Struct) and node[name] is not None:
            for item in node[name] if isinstance(field.kind, wire.Array) else [node[name]]:
                _fill(item, struct.fields, version, highest)


def _default_json(field: wire.Field, version: int, highest: int) -> Any:
    default = default_of(field)
    if isinstance(field.kind, wire.Array) and default is not None:
        return []
    if isinstance(field.kind, wire.Struct) and default is not None:
        return {}
    return default.decode() if isinstance(default, bytes) else default
