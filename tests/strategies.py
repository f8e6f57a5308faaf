"""Hypothesis strategies built from declarations: any value which a version of a message can hold."""

import base64
from typing import Any

from hypothesis import strategies as st

from coordinator_core.bytes.codec import Struct, make
from schemas import wire
from schemas.registry import MESSAGES

INTEGERS = {
    wire.Int8: st.integers(-(2**7), 2**7 - 1),
    wire.Int16: st.integers(-(2**15), 2**15 - 1),
    wire.UInt16: st.integers(0, 2**16 - 1),
    wire.Int32: st.integers(-(2**31), 2**31 - 1),
    wire.Int64: st.integers(-(2**63), 2**63 - 1),
}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
"""Any text which UTF-8 can hold."""

uuids = st.binary(min_size=16, max_size=16).map(lambda data: base64.urlsafe_b64encode(data)[:22].decode())

versioned_messages = st.sampled_from(
    [(message, version) for message in MESSAGES.values() for version in wire.message_versions(message)]
)
"""(message, version) for every version of every declared message."""


@st.composite
def structs(draw: st.DrawFn, message: wire.Message, version: int) -> Struct:
    """Any struct of a message which `version` can hold, tags of a later Kafka included where it is flexible."""
    highest = wire.message_versions(message)[-1]
    is_flexible = version in wire.version_range(message.flexible, highest)
    return draw(_structs(message, version, highest, is_flexible))


@st.composite
def _structs(
    draw: st.DrawFn, declaration: wire.Message | wire.Struct, version: int, highest: int, is_flexible: bool
) -> Struct:
    values: dict[str, Any] = {}
    for field in declaration.fields:
        if version in wire.version_range(field.versions, highest):
            content = _values(field.kind, version, highest, is_flexible)
            if version in wire.version_range(field.nullable, highest):
                content = st.none() | content
            values[field.name] = draw(content)
    if is_flexible:
        known = {field.tag for field in declaration.fields}
        tags = st.integers(0, 2**31 - 1).filter(lambda tag: tag not in known)
        unknown = draw(st.dictionaries(tags, st.binary(max_size=8), max_size=2))
        values["unknown_tags"] = tuple(sorted(unknown.items()))
    return make(declaration, **values)


def _values(kind: wire.Kind, version: int, highest: int, is_flexible: bool) -> st.SearchStrategy[Any]:
    if isinstance(kind, wire.Struct):
        return _structs(kind, version, highest, is_flexible)
    if isinstance(kind, wire.Array):
        return st.lists(_values(kind.element, version, highest, is_flexible), max_size=3).map(tuple)
    if kind in INTEGERS:
        return INTEGERS[kind]
    return {
        wire.Bool: st.booleans(),
        wire.String: texts,
        wire.Bytes: st.binary(max_size=20),
        wire.Uuid: uuids,
    }[kind]
