"""Requests and responses, to and from the JSON of Kafka's generated XxxJsonConverter classes.

A message is a frozen dataclass or msgspec struct with Kafka's field names in snake case; arrays are tuples, `bytes` are
base64 in JSON. One converter serves all of them, so a message needs no code of its own.
"""

import binascii
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec


class InvalidMessage(Exception):
    """JSON that does not fit the message's declaration."""


M = TypeVar("M")


def message_of(kind: type[M], node: Mapping[str, Any]) -> M:
    """The message of Kafka's JSON. Absent fields have their default; unknown ones are ignored, as in old code.

    Raises InvalidMessage if a field without a default is absent or a value has the wrong type.
    """
    try:
        return kind(**_values(kind, node))
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidMessage(f"not the JSON of {kind.__name__}: {type(error).__name__}") from error


def json_of(message: Any) -> Any:
    """Kafka's JSON of a message, of several, or of a plain value."""
    kind: Any = type(message)
    if _is_message(kind):
        return {name: json_of(getattr(message, attribute)) for attribute, name, _, _ in _plan(kind)}
    if isinstance(message, bytes):
        return binascii.b2a_base64(message, newline=False).decode("ascii")
    if isinstance(message, tuple | list):
        return [json_of(item) for item in message]
    if isinstance(message, Mapping):
        return {str(name): json_of(value) for name, value in message.items()}
    return int(message) if isinstance(message, int) and not isinstance(message, bool) else message


@cache
def camel_case(name: str) -> str:
    """`member_id` -> `memberId`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _is_message(kind: Any) -> bool:
    return isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, msgspec.Struct))


@cache
def _plan(kind: Any) -> tuple[tuple[str, str, Any, bool], ...]:
    """(attribute, name in JSON, type, has a default) of each field."""
    hints = get_type_hints(kind)
    every: Any = msgspec.structs.fields(kind) if issubclass(kind, msgspec.Struct) else fields(kind)
    return tuple(
        (
            field.name,
            camel_case(field.name),
            hints[field.name],
            not {MISSING, msgspec.NODEFAULT}.issuperset((field.default, field.default_factory)),
        )
        for field in every
    )


def _values(kind: Any, node: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    for attribute, name, hint, has_default in _plan(kind):
        if name in node:
            values[attribute] = _value(hint, node[name])
        elif not has_default:
            raise InvalidMessage(f"{kind.__name__} needs {name}")
    return values


def _value(hint: Any, value: Any) -> Any:
    origin = get_origin(hint)
    if origin in {Union, types.UnionType}:
        if value is None:
            return None
        return _value(next(part for part in get_args(hint) if part is not type(None)), value)
    if value is None:
        raise ValueError(hint)
    if origin is tuple:
        return tuple(_value(get_args(hint)[0], item) for item in value)
    if hint is bytes:
        return binascii.a2b_base64(value, strict_mode=True)
    return message_of(hint, value) if _is_message(hint) else value
