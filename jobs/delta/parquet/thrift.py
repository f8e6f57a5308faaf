"""Thrift's compact protocol, the part that headers and footer of a Parquet file need.

A struct is a sequence of fields in the order of their ids; a field is its id, its type code and its bytes.
"""

from collections.abc import Iterable, Sequence
from typing import Final

TRUE: Final = 1
FALSE: Final = 2
I8: Final = 3
I32: Final = 5
I64: Final = 6
BINARY: Final = 8
LIST: Final = 9
STRUCT: Final = 12
SHORT_LIST_MAX: Final = 14
"""Longest list whose length fits into the byte with the element type."""


Field = tuple[int, int, bytes]
"""One field of a struct: its id, its type code, its bytes. A plain tuple, since a small file has thousands."""

_ONE_BYTE: Final = tuple(bytes([value]) for value in range(128))


def uvarint(value: int) -> bytes:
    """ULEB128: seven bits per byte, lowest first."""
    # most values are this short
    if value < 1 << 7:
        return _ONE_BYTE[value]
    if value < 1 << 14:
        return bytes((value & 127 | 128, value >> 7))
    if value < 1 << 21:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    made = bytearray()
    while value >= 128:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)


def zigzag(value: int) -> bytes:
    """Zigzag varint: small numbers are short, whatever their sign."""
    return uvarint(value << 1 ^ value >> 63)


def i32(number: int, value: int) -> Field:
    """A 32-bit field; enums are 32-bit fields."""
    return number, I32, zigzag(value)


def i64(number: int, value: int) -> Field:
    return number, I64, zigzag(value)


def binary(number: int, value: bytes) -> Field:
    """A binary field, also for UTF-8 strings."""
    return number, BINARY, uvarint(len(value)) + value


def boolean(number: int, *, value: bool) -> Field:
    """A boolean field; its value is in its type code."""
    return number, TRUE if value else FALSE, b""


def list_of(number: int, type_: int, items: Sequence[bytes]) -> Field:
    """A list field. `items`: the bytes of each element; binary elements include their length."""
    count = len(items)
    head = bytes([count << 4 | type_]) if count <= SHORT_LIST_MAX else bytes([0xF0 | type_]) + uvarint(count)
    return number, LIST, head + b"".join(items)


def nested(number: int, fields: Iterable[Field]) -> Field:
    return number, STRUCT, struct(fields)


def struct(fields: Iterable[Field], behind: bytes = b"", before: int = 0) -> bytes:
    """A struct with its stop byte. `behind`: encoded fields that come first; `before`: the id of the last of them."""
    return open_struct(fields, behind, before) + STOP


def open_struct(fields: Iterable[Field], behind: bytes = b"", before: int = 0) -> bytes:
    """Fields of a struct without a stop byte, so that others may follow."""
    made = [behind]
    for number, type_, data in fields:
        made.append(_HEADS[number - before][type_])
        made.append(data)
        before = number
    return b"".join(made)


STOP: Final = b"\0"
_HEADS: Final = tuple(tuple(bytes([step << 4 | type_]) for type_ in range(16)) for step in range(16))
"""Field headers by id delta and type code."""
