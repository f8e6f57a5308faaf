"""What the project declares of Kafka's network protocol, field by field with the definitions in Kafka's own jar."""

import json
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from schemas import admin_protocol, wire
from tests.lengths import is_long
from tests.live.kafka_home import KafkaHome
from tests.live.release import ReleaseHome, release_home
from tests.maven import Unavailable

MESSAGES = {
    message.name: message
    for api in vars(admin_protocol).values()
    if isinstance(api, tuple)
    for message in api
    if isinstance(message, wire.Message)
}


DEFAULTS = {"null": "None", "false": "False", "true": "True"}
NEWEST = "4.4.0"
NEW_IN_NEWEST = {
    "DeleteGroupsRequest",
    "DeleteGroupsResponse",
    "StreamsGroupDescribeRequest",
    "StreamsGroupDescribeResponse",
}
"""Those that have a version which the release before does not know."""


@pytest.fixture(scope="module")
def newest() -> ReleaseHome:
    """The newest release that is followed."""
    try:
        return release_home(NEWEST)
    except Unavailable as error:
        if is_long():
            raise
        pytest.skip(str(error))


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_a_declaration_is_kafkas(home: KafkaHome, name: str) -> None:
    """Name, API, versions, and of each field name, type, versions, nullable versions and default, in Kafka's order."""
    compare(definition(home.jars, name), MESSAGES[name], is_whole=name not in NEW_IN_NEWEST)


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_a_declaration_is_that_of_the_newest_kafka(newest: ReleaseHome, name: str) -> None:
    """The same, in every declared version."""
    compare(definition(newest.jars, name), MESSAGES[name], is_whole=True)


def compare(kafka: Mapping[str, Any], message: wire.Message, *, is_whole: bool) -> None:
    """A declaration with Kafka's definition; unless `is_whole` in the versions that the definition has."""
    assert message.api_key == kafka["apiKey"]
    assert message.role == kafka["type"]
    declared = list(wire.message_versions(message))
    versions = [it for it in declared if it in _range(kafka["validVersions"], declared[-1])]
    assert (versions == declared) is is_whole
    assert _range(message.flexible, versions[-1]) == _range(kafka["flexibleVersions"], versions[-1])
    structs = {struct["name"]: struct["fields"] for struct in kafka.get("commonStructs", ())}
    ours = [it for it in _our_fields(message.fields, versions, "") if it[2]]
    assert ours == list(_kafka_fields(kafka["fields"], structs, versions, ""))


def definition(jars: Path, name: str) -> Mapping[str, Any]:
    """Kafka's own definition: JSON with comments."""
    jar = next(it for it in jars.glob("kafka-clients-*.jar") if not it.stem.endswith("-test"))
    with zipfile.ZipFile(jar) as archive:
        text = archive.read(f"common/message/{name}.json").decode()
    found: Mapping[str, Any] = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
    return found


def _our_fields(fields: Sequence[wire.Field], versions: list[int], path: str) -> Iterator[tuple[Any, ...]]:
    for field in fields:
        kind = field.kind
        element = kind.element if isinstance(kind, wire.Array) else kind
        present = [version for version in _range(field.versions, versions[-1]) if version in versions]
        nullable = [version for version in _range(field.nullable, versions[-1]) if version in present]
        type_ = ("[]" if isinstance(kind, wire.Array) else "") + element.name
        default = None if field.default is wire.Default.OF_KIND else str(field.default)
        yield path + field.name.replace("_", ""), type_, present, nullable, default
        if isinstance(element, wire.Struct):
            yield from _our_fields(element.fields, versions, f"{path}{field.name}.")


def _kafka_fields(
    fields: Sequence[Mapping[str, Any]], structs: Mapping[str, Any], versions: list[int], path: str
) -> Iterator[tuple[Any, ...]]:
    for field in fields:
        present = [version for version in _range(field["versions"], versions[-1]) if version in versions]
        if not present:
            continue
        nullable = [v for v in _range(field.get("nullableVersions", "none"), versions[-1]) if v in present]
        default = DEFAULTS.get(str(field["default"]), str(field["default"])) if "default" in field else None
        yield path + field["name"].lower(), field["type"], present, nullable, default
        inner = field.get("fields") or structs.get(field["type"].removeprefix("[]"))
        if inner:
            name = re.sub(r"(?<!^)(?=[A-Z])", "_", field["name"]).lower()
            yield from _kafka_fields(inner, structs, versions, f"{path}{name}.")


def _range(text: str, highest: int) -> list[int]:
    return list(wire.version_range(text, highest))
