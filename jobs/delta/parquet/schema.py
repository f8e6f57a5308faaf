"""The columns of a Parquet file: leaves, levels, and their footer entries (Parquet's LogicalTypes.md).

Columns are scalars, lists of scalars or of structs of scalars, and maps of scalars: all types that the tables of this
project use.
"""

from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

import pyarrow as pa

from jobs.delta.parquet.thrift import I8, Field, binary, boolean, i32, nested, struct


class Physical(IntEnum):
    """Physical types: Type in parquet.thrift."""

    BOOLEAN = 0
    INT32 = 1
    INT64 = 2
    DOUBLE = 5
    BYTE_ARRAY = 6


SCHEMAS_MAX: Final = 1_000
"""Cache size, for columns and for files: a night writes hundreds of files of the same few tables."""

REQUIRED: Final = 0
OPTIONAL: Final = 1
REPEATED: Final = 2

UTF8: Final = 0
MAP: Final = 1
LIST: Final = 3
TIMESTAMP_MICROS: Final = 10
INT_8: Final = 15
INT_16: Final = 16
"""ConvertedType in parquet.thrift, for older readers."""

_STRING_TYPE: Final = (i32(6, UTF8), nested(10, [nested(1, [])]))
_MAP_TYPE: Final = (i32(6, MAP), nested(10, [nested(2, [])]))
_LIST_TYPE: Final = (i32(6, LIST), nested(10, [nested(3, [])]))
_TIMESTAMP_TYPE: Final = (
    i32(6, TIMESTAMP_MICROS),
    nested(10, [nested(8, [boolean(1, value=True), nested(2, [nested(2, [])])])]),
)


def _small_type(converted: int, bits: int) -> tuple[Field, ...]:
    return (i32(6, converted), nested(10, [nested(10, [(1, I8, bytes([bits])), boolean(2, value=True)])]))


class _Written(NamedTuple):
    """How values of an Arrow type are written."""

    physical: Physical
    logical: tuple[Field, ...] = ()


_TYPES: Final = {
    pa.string(): _Written(Physical.BYTE_ARRAY, _STRING_TYPE),
    pa.binary(): _Written(Physical.BYTE_ARRAY),
    pa.bool_(): _Written(Physical.BOOLEAN),
    pa.int8(): _Written(Physical.INT32, _small_type(INT_8, 8)),
    pa.int16(): _Written(Physical.INT32, _small_type(INT_16, 16)),
    pa.int32(): _Written(Physical.INT32),
    pa.int64(): _Written(Physical.INT64),
    pa.float64(): _Written(Physical.DOUBLE),
    pa.timestamp("us", tz="UTC"): _Written(Physical.INT64, _TIMESTAMP_TYPE),
}


class Leaf(NamedTuple):
    """A leaf column of Parquet: values of one type."""

    path: tuple[str, ...]
    type: pa.DataType
    physical: Physical
    is_optional: bool
    """May a value be null, regardless of what contains it?"""
    definition_max: int
    """The definition level of a value that is present; a null has one less."""
    empty_level: int = 0
    """The definition level of an empty list; a null list has one less."""


def value_type(type_: pa.DataType) -> pa.DataType:
    """The type of the values, dictionary-encoded or not."""
    return type_.value_type if pa.types.is_dictionary(type_) else type_


@lru_cache(SCHEMAS_MAX)
def leaves_of(field: pa.Field) -> tuple[Leaf, ...]:
    """The leaves of a column, in the order of the file.

    Raises TypeError for a type that this writer does not support.
    """
    return tuple(_leaves(field))


def _leaves(field: pa.Field) -> Iterator[Leaf]:
    optional = int(field.nullable)
    if pa.types.is_list(field.type):
        element = field.type.value_field
        path = (field.name, "list", "element")
        if pa.types.is_struct(element.type):
            level = optional + 1 + int(element.nullable)
            for inner in element.type:
                yield _leaf((*path, inner.name), inner, level, optional)
        else:
            yield _leaf(path, element, optional + 1, optional)
    elif pa.types.is_map(field.type):
        yield _leaf((field.name, "key_value", "key"), field.type.key_field, optional + 1, optional)
        yield _leaf((field.name, "key_value", "value"), field.type.item_field, optional + 1, optional)
    else:
        yield _leaf((field.name,), field, 0)


def _leaf(path: tuple[str, ...], field: pa.Field, level: int, empty_level: int = 0) -> Leaf:
    type_ = value_type(field.type)
    if type_ not in _TYPES:
        raise TypeError(f"{'.'.join(path)}: {field.type} is not written to Parquet here")
    return Leaf(path, type_, _TYPES[type_].physical, field.nullable, level + int(field.nullable), empty_level)


@lru_cache(SCHEMAS_MAX)
def schema_elements(schema: pa.Schema) -> tuple[bytes, ...]:
    """SchemaElements of a file: the root, then all columns, depth-first."""
    root = _element("schema", None, child_count=len(schema))
    return root, *chain.from_iterable(map(_elements, schema))


def _elements(field: pa.Field) -> Iterator[bytes]:
    repetition = OPTIONAL if field.nullable else REQUIRED
    if pa.types.is_list(field.type):
        element = field.type.value_field
        yield _element(field.name, repetition, child_count=1, logical=_LIST_TYPE)
        yield _element("list", REPEATED, child_count=1)
        if pa.types.is_struct(element.type):
            yield _element("element", OPTIONAL if element.nullable else REQUIRED, child_count=len(list(element.type)))
            for inner in element.type:
                yield _scalar(inner.name, inner)
        else:
            yield _scalar("element", element)
    elif pa.types.is_map(field.type):
        yield _element(field.name, repetition, child_count=1, logical=_MAP_TYPE)
        yield _element("key_value", REPEATED, child_count=2)
        yield _scalar("key", field.type.key_field)
        yield _scalar("value", field.type.item_field)
    else:
        yield _scalar(field.name, field)


def _scalar(name: str, field: pa.Field) -> bytes:
    written = _TYPES[value_type(field.type)]
    return _element(name, OPTIONAL if field.nullable else REQUIRED, physical=written.physical, logical=written.logical)


def _element(
    name: str,
    repetition: int | None,
    *,
    physical: Physical | None = None,
    child_count: int | None = None,
    logical: tuple[Field, ...] = (),
) -> bytes:
    fields = [] if physical is None else [i32(1, physical)]
    if repetition is not None:
        fields.append(i32(3, repetition))
    fields.append(binary(4, name.encode()))
    if child_count is not None:
        fields.append(i32(5, child_count))
    return struct([*fields, *logical])
