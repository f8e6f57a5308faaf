"""Declarations against the definitions of Kafka 4.4.0, field by field and version by version."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas import cluster_metadata, control_records, share_group_state, transaction_state, wire
from schemas.consumer_offsets import RecordType
from schemas.registry import CONSUMER_OFFSETS, MESSAGES, METADATA, REGISTRY

KAFKA: dict[str, Any] = {
    message["name"]: message
    for message in json.loads((Path(__file__).parents[1] / "data" / "messages.json").read_text())["messages"]
}
DECLARED = {name: message for name, message in MESSAGES.items() if message.role is not wire.Role.METADATA}

PREFIXES = {
    "record-type-id(int16)": wire.Prefix.RECORD_TYPE,
    "value-version(int16)": wire.Prefix.VERSION,
    "message-version(int16)": wire.Prefix.VERSION,
}
ROLES = {
    "key": wire.Role.KEY,
    "value": wire.Role.VALUE,
    "embedded": wire.Role.EMBEDDED,
    "control-key": wire.Role.CONTROL_KEY,
    "control-value": wire.Role.CONTROL_VALUE,
    "control-value-noprefix": wire.Role.CONTROL_VALUE,
}


def test_every_message_is_declared() -> None:
    """Kafka's messages and ours are the same by name."""
    assert DECLARED.keys() == KAFKA.keys()
    assert len(DECLARED) == 59


@pytest.mark.parametrize("name", sorted(KAFKA))
def test_message_is_kafkas(name: str) -> None:
    """Role, prefix, topic, record type, versions and flexible versions are those of Kafka."""
    kafka, message = KAFKA[name], DECLARED[name]
    assert message.role is ROLES[kafka["kind"]]
    assert message.prefix is PREFIXES.get(kafka["prefix"], wire.Prefix.NONE)
    assert message.record_type == kafka["id"]
    assert message.topic == (kafka["topic"] if kafka["id"] is not None else None)
    assert list(wire.message_versions(message)) == _versions(kafka["validVersions"])
    assert _range(message.flexible, kafka) == _versions(kafka["flexibleVersions"])


@pytest.mark.parametrize("name", sorted(KAFKA))
def test_fields_are_kafkas(name: str) -> None:
    """Every field has Kafka's name, type, versions, nullable and tagged versions, tag, default and ignorability,
    in Kafka's order."""
    kafka, message = KAFKA[name], DECLARED[name]
    ours = list(_our_fields(message.fields, kafka, _versions(kafka["validVersions"]), ""))
    assert ours == list(_kafka_fields(kafka["fields"], ""))


def _our_fields(fields: tuple[wire.Field, ...], kafka: Any, parent: list[int], path: str) -> Iterator[dict[str, Any]]:
    """A nested field exists in no version in which its parent does not."""
    for field in fields:
        versions = [version for version in _range(field.versions, kafka) if version in parent]
        name = path + wire.kafka_field_name(field)
        struct = field.kind.element if isinstance(field.kind, wire.Array) else field.kind
        yield {
            "name": name,
            "type": "[]" + struct.name if isinstance(field.kind, wire.Array) else struct.name,
            "versions": versions,
            "nullable": _range(field.nullable, kafka),
            "tagged": _range(field.tagged, kafka),
            "tag": field.tag,
            "default": _default(field),
            "ignorable": field.ignorable,
            "missing_ok": field.missing_ok,
        }
        if isinstance(struct, wire.Struct):
            yield from _our_fields(struct.fields, kafka, versions, name + ".")


def _kafka_fields(fields: list[Any], path: str) -> Iterator[dict[str, Any]]:
    for field in fields:
        name = path + field["name"]
        yield {
            "name": name,
            "type": field["type"],
            "versions": _versions(field["versions"]),
            "nullable": _versions(field.get("nullableVersions")),
            "tagged": _versions(field.get("taggedVersions")),
            "tag": field.get("tag"),
            "default": field["default"],
            "ignorable": field.get("ignorable", False),
            "missing_ok": field.get("missingOk", False),
        }
        if "struct" in field:
            assert field["type"].removeprefix("[]") == field["struct"]["name"]
            yield from _kafka_fields(field["struct"]["fields"], name + ".")


def _default(field: wire.Field) -> Any:
    if field.default is not wire.Default.OF_KIND:
        return field.default
    if isinstance(field.kind, wire.Array):
        return []
    if isinstance(field.kind, wire.Struct):
        return {"$struct-default": True}
    default = field.kind.default
    return base64.b64encode(default).decode() if isinstance(default, bytes) else default


def _range(text: str, kafka: Any) -> list[int]:
    return list(wire.version_range(text, kafka["validVersions"][1]))


def _versions(bounds: list[int] | None) -> list[int]:
    return [] if bounds is None else list(range(bounds[0], bounds[1] + 1))


def _all_fields(fields: tuple[wire.Field, ...]) -> Iterator[wire.Field]:
    for field in fields:
        yield field
        struct = field.kind.element if isinstance(field.kind, wire.Array) else field.kind
        if isinstance(struct, wire.Struct):
            yield from _all_fields(struct.fields)


def test_every_field_says_what_it_is() -> None:
    """A declaration reads like documentation: no field without a sentence."""
    silent = [
        f"{message.name}.{field.name}"
        for message in MESSAGES.values()
        for field in _all_fields(message.fields)
        if not field.about.endswith(".")
    ]
    assert silent == []


def test_registry_goes_by_record_type() -> None:
    """Each record type leads to the key and the value which carry its number, in their own topic."""
    for topic, types in REGISTRY.items():
        for record_type, (key, value) in types.items():
            assert (key.role, value.role) == (wire.Role.KEY, wire.Role.VALUE)
            assert key.name.removesuffix("Key") == value.name.removesuffix("Value")
            assert {key.record_type, value.record_type} == {record_type}
            assert {key.topic, value.topic} == {topic}
    assert {topic: sorted(types) for topic, types in REGISTRY.items()} == {
        "__consumer_offsets": [*range(9), *range(10, 18), *range(19, 24)],
        share_group_state.TOPIC: [0, 1],
        transaction_state.TOPIC: [0],
    }


def test_record_type_names_are_the_messages_names() -> None:
    """CONSUMER_GROUP_METADATA is the type of ConsumerGroupMetadataKey, and so on for all."""
    for record_type in RecordType:
        words = "".join(map(str.capitalize, record_type.name.split("_")))
        assert CONSUMER_OFFSETS[record_type][0].name == words + "Key"


def test_metadata_goes_by_api_key() -> None:
    """The metadata log's records are found by their apiKey."""
    assert METADATA[2] is cluster_metadata.TOPIC_RECORD
    assert METADATA[3] is cluster_metadata.PARTITION_RECORD
    assert METADATA[4] is cluster_metadata.CONFIG_RECORD
    assert METADATA[9] is cluster_metadata.REMOVE_TOPIC_RECORD
    assert METADATA[12] is cluster_metadata.FEATURE_LEVEL_RECORD
    assert sorted(METADATA) == [2, 3, 4, 9, 12, 23, 24, 25]


def test_control_records_have_no_topic() -> None:
    """Control records stand in every topic."""
    assert control_records.END_TXN_MARKER.topic is None
    assert control_records.CONTROL_RECORD_TYPE_SCHEMA.prefix is wire.Prefix.VERSION
