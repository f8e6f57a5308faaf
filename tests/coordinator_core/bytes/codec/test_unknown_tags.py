"""Tagged fields of a later Kafka, in each struct of each value of each version that has room for them."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest
from msgspec.structs import replace

from coordinator_core.bytes.codec import decode_value, encode_value, has_unknown_tags, make
from schemas import wire
from schemas.registry import REGISTRY

TAGS: Final = ((9_999, b"later"),)


class Place(NamedTuple):
    """A struct of a value, by the attributes that lead to it."""

    topic: str
    record_type: int
    message: wire.Message
    version: int
    path: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.message.name}-v{self.version}-{'.'.join(self.path) or 'itself'}"


def kind_of(field: wire.Field) -> tuple[Any, bool]:
    """Its kind, or that of its elements; is it an array?"""
    if isinstance(field.kind, wire.Array):
        return field.kind.element, True
    return field.kind, False


def paths(declaration: wire.Message | wire.Struct, version: int, last: int) -> Iterator[tuple[str, ...]]:
    """To the declaration itself, and to all structs in it."""
    yield ()
    for field in declaration.fields:
        kind, _ = kind_of(field)
        if isinstance(kind, wire.Struct) and version in wire.version_range(field.versions or "0+", last):
            yield from ((field.name, *rest) for rest in paths(kind, version, last))


def places() -> Iterator[Place]:
    """Of all topics of coordinators."""
    for topic, messages in REGISTRY.items():
        for record_type, (_, message) in messages.items():
            last = wire.message_versions(message)[-1]
            for version in wire.version_range(message.flexible, last):
                for path in paths(message, version, last):
                    yield Place(topic, record_type, message, version, path)


PLACES: Final = list(places())


def with_tags(value: Any, declaration: wire.Message | wire.Struct, path: tuple[str, ...]) -> Any:
    """The value with tags in the struct at the end of a path, where there is one of each on the way."""
    if not path:
        return replace(value, unknown_tags=TAGS)
    [field] = [field for field in declaration.fields if field.name == path[0]]
    kind, is_array = kind_of(field)
    inner = with_tags(make(kind), kind, path[1:])
    return replace(value, **{field.name: (inner,) if is_array else inner})


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_unknown_tags_are_kept_and_seen(place: Place) -> None:
    """Wherever they are: the value is read, says that it has some, and is written as it was."""
    value = with_tags(make(place.message), place.message, place.path)
    raw = encode_value(place.topic, place.record_type, place.version, value)
    decoded = decode_value(place.topic, place.record_type, raw)
    assert has_unknown_tags(decoded)
    assert encode_value(place.topic, place.record_type, place.version, decoded.fields) == raw
    assert raw.count(TAGS[0][1]) == 1


def test_the_places_are_those_of_all_families() -> None:
    """Structs within structs are among them."""
    assert {place.topic for place in PLACES} == REGISTRY.keys()
    assert max(len(place.path) for place in PLACES) >= 2
    assert len({place.message.name for place in PLACES}) > 20
