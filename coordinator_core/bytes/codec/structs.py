"""Decoded structs: an immutable class for each declared struct or message."""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from coordinator_core.errors import EncodeError
from schemas import wire

Declaration = wire.Message | wire.Struct


class Struct(msgspec.Struct, frozen=True, gc=False):
    """Base of all decoded structs: one immutable class for each declared struct or message.

    Attributes are the declared fields in snake_case, all of them in every version, and `unknown_tags`: the tagged
    fields of a later Kafka as (tag, payload), which encoding writes back.
    """

    if TYPE_CHECKING:
        unknown_tags: tuple[tuple[int, bytes], ...]

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...


def make(message: Declaration, **fields: Any) -> Struct:
    """A struct with the given fields, and defaults for the others, like a new object of Kafka's class.

    Arrays may be given as lists. Raises EncodeError for a field that is not declared.
    """
    maker = _maker(message)
    unknown = fields.keys() - maker.defaults.keys()
    if unknown:
        raise EncodeError(f"{message.name} has no field {', '.join(sorted(unknown))}")
    values = {**maker.defaults, **fields}
    for name in maker.arrays:
        if isinstance(values[name], list):
            values[name] = tuple(values[name])
    return maker.new(**values)


def make_from(message: Declaration, source: object, **given: Any) -> Struct:
    """A struct whose fields are the attributes of the same names of `source`, except the given ones."""
    names = [field.name for field in message.fields if field.name not in given]
    return make(message, **{name: getattr(source, name) for name in names}, **given)


def struct_class(message: Declaration) -> type[Struct]:
    """The class of the structs of a message: its fields in declared order, then `unknown_tags`."""
    return _maker(message).new


class _Maker(NamedTuple):
    new: type[Struct]
    defaults: Mapping[str, Any]
    arrays: tuple[str, ...]


@cache
def _maker(message: Declaration) -> _Maker:
    defaults = {field.name: default_of(field) for field in message.fields}
    new: Any = msgspec.defstruct(
        message.name, [*defaults, ("unknown_tags", tuple, ())], bases=(Struct,), module=__name__, frozen=True, gc=False
    )
    arrays = tuple(field.name for field in message.fields if isinstance(field.kind, wire.Array))
    return _Maker(new, {**defaults, "unknown_tags": ()}, arrays)


def default_of(field: wire.Field) -> Any:
    """The value of a field that is not on the wire."""
    if field.default is not wire.Default.OF_KIND:
        return field.default
    if isinstance(field.kind, wire.Primitive):
        return field.kind.default
    if isinstance(field.kind, wire.Array):
        return ()
    return make(field.kind)
