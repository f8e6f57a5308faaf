"""Readers and writers of single fields: fixed-size fields, uuids, and length-prefixed fields."""

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from coordinator_core.bytes.codec.primitives import (
    UUID_BYTES,
    Buffer,
    read_uvarint,
    uuid_bytes,
    uuid_text,
    write_uvarint,
)
from coordinator_core.bytes.codegen import Source
from coordinator_core.errors import BufferUnderflow, EncodeError, LengthOutOfBounds, NullNotAllowed
from schemas import wire

STRING_BYTES_MAX: Final = 32767
"""Maximum length of Kafka's strings, even where the length field allows more."""

BYTES_MAX: Final = 0x7FFFFFFF

Read = Callable[[Buffer, int], tuple[Any, int]]
Write = Callable[[bytearray, Any], None]
ReadInto = Callable[[Source, str], None]
"""(source, target): add the lines that read the value in `data` at `position` into `target` and advance `position`.
They may use `size`, the length of `data`, and five reserved names: `length`, `start`, `end`, `items` and `item`; the
lines of a flat struct must not use `items` and `item`."""


class Codec(NamedTuple):
    read_into: ReadInto
    write: Write
    bytes_min: int
    """The smallest size of a value; array counts are checked with it."""


class Version(NamedTuple):
    """The properties of a version that readers and writers are compiled for."""

    number: int
    highest: int
    is_flexible: bool

    def has(self, text: str) -> bool:
        return self.number in wire.version_range(text, self.highest)


def primitive_codec(name: str, kind: wire.Primitive, version: Version, *, is_nullable: bool) -> Codec:
    if kind.format is not None:
        return _fixed_codec(kind.format)
    if kind is wire.Uuid:
        return _UUID_CODEC
    if kind is wire.String:
        return _bounded(
            name,
            version,
            is_nullable=is_nullable,
            letter="h",
            content='str(data[start:end], "utf-8", "groupledger-java")',
            encode_content=_encode_text,
            length_max=STRING_BYTES_MAX,
        )
    assert kind in (wire.Bytes, wire.Records)
    return _bounded(
        name,
        version,
        is_nullable=is_nullable,
        letter="i",
        content="bytes(data[start:end])" if kind is wire.Bytes else "memoryview(data)[start:end]",
        encode_content=_encode_bytes,
        length_max=BYTES_MAX,
    )


def _fixed_codec(letter: str) -> Codec:
    layout = struct.Struct(">" + letter)
    pack = layout.pack

    def read_into(source: Source, target: str) -> None:
        unpack = source.name("unpack", layout.unpack_from)
        source.add(f"({target},) = {unpack}(data, position)", f"position += {layout.size}")

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return Codec(read_into, write, layout.size)


def _read_uuid_into(source: Source, target: str) -> None:
    source.add(
        f"end = position + {UUID_BYTES}",
        "if end > size:",
        f"    raise {source.name('underflow', _inside_a_uuid)}(position)",
        f"{target} = {source.name('uuid_text', uuid_text)}(bytes(data[position:end]))",
        "position = end",
    )


def _inside_a_uuid(position: int) -> BufferUnderflow:
    return BufferUnderflow("the bytes end inside a uuid", byte_position=position)


def _write_uuid(out: bytearray, value: Any) -> None:
    out += uuid_bytes(value)


_UUID_CODEC: Final = Codec(_read_uuid_into, _write_uuid, UUID_BYTES)


def _encode_text(value: str) -> bytes:
    return value.encode("utf-8")


def _encode_bytes(value: bytes) -> bytes:
    return memoryview(value).tobytes()


class _LengthCodec(NamedTuple):
    """Lengths and counts: -1 is null. Flexible versions write the value + 1 as a varint, so that 0 is null."""

    read_into: Callable[[Source], None]
    """Add the lines that read a length into `length` and the position after it into `start`; `position` stays before
    it.
    """
    write: Callable[[bytearray, int], None]
    bytes_min: int


def length_codec(letter: str, version: Version) -> _LengthCodec:
    if not version.is_flexible:
        layout = struct.Struct(">" + letter)
        pack = layout.pack

        def read_fixed(source: Source) -> None:
            unpack = source.name("unpack", layout.unpack_from)
            source.add(f"(length,) = {unpack}(data, position)", f"start = position + {layout.size}")

        def write_fixed(out: bytearray, length: int) -> None:
            out += pack(length)

        return _LengthCodec(read_fixed, write_fixed, layout.size)

    def read_varint(source: Source) -> None:
        source.add(
            "length, start = data[position], position + 1",
            "if length > 0x7F:",
            f"    length, start = {source.name('read_uvarint', read_uvarint)}(data, position)",
            "length -= 1",
        )

    def write_varint(out: bytearray, length: int) -> None:
        write_uvarint(out, length + 1)

    return _LengthCodec(read_varint, write_varint, 1)


def read_null(source: Source, target: str, name: str, *, is_nullable: bool) -> None:
    """Add the lines for a negative length; the caller continues with `el` or `else` for the other case."""
    source.add("if length < 0:")
    if is_nullable:
        source.add(f"{target} = None", "position = start", depth=1)
    else:
        source.add(f"raise {source.name('null', _null_not_allowed)}({name!r}, position)", depth=1)


def null_writer(
    name: str, version: Version, write_length: Callable[[bytearray, int], None], *, is_nullable: bool
) -> Callable[[bytearray], None]:
    """Returns a function that writes the length of null, or raises if the field cannot be null."""

    def write_null(out: bytearray) -> None:
        if not is_nullable:
            raise EncodeError(f"{name} cannot be null in version {version.number}")
        write_length(out, -1)

    return write_null


def _null_not_allowed(name: str, position: int) -> NullNotAllowed:
    return NullNotAllowed(f"{name} is null", byte_position=position)


def out_of_bounds(name: str, said: str, left: str, position: int) -> LengthOutOfBounds:
    return LengthOutOfBounds(f"{name} says {said}, {left} are left", byte_position=position)


def _bounded(
    name: str,
    version: Version,
    *,
    is_nullable: bool,
    letter: str,
    content: str,
    encode_content: Callable[[Any], bytes],
    length_max: int,
) -> Codec:
    """A length, then that many bytes. `content`: the expression that makes a value of `data` from `start` to `end`."""
    read_length_into, write_length, bytes_min = length_codec(letter, version)
    write_null = null_writer(name, version, write_length, is_nullable=is_nullable)

    def read_into(source: Source, target: str) -> None:
        read_length_into(source)
        read_null(source, target, name, is_nullable=is_nullable)
        bounds = source.name("bounds", out_of_bounds)
        source.add(
            "else:",
            "    end = start + length",
            f"    if end > size or length > {length_max}:",
            f"        raise {bounds}({name!r}, f'{{length}} bytes', f'{{size - start}}', position)",
            f"    {target} = {content}",
            "    position = end",
        )

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            write_null(out)
            return
        content = encode_content(value)
        if len(content) > length_max:
            raise EncodeError(f"{name} has {len(content)} bytes, {length_max} are allowed")
        write_length(out, len(content))
        out += content

    return Codec(read_into, write, bytes_min)
