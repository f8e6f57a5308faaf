"""Compiles each (message, version) once, into a function that reads it and a list of writers."""

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from coordinator_core.bytes.codec.fields import (
    Codec,
    Read,
    ReadInto,
    Version,
    Write,
    length_codec,
    null_writer,
    out_of_bounds,
    primitive_codec,
    read_null,
)
from coordinator_core.bytes.codec.primitives import Buffer, read_uvarint, write_uvarint
from coordinator_core.bytes.codec.structs import Declaration, Struct, default_of, struct_class
from coordinator_core.bytes.codegen import Source
from coordinator_core.errors import BufferUnderflow, CoreError, EncodeError, LengthOutOfBounds
from coordinator_core.limits import NESTING_DEPTH_MAX
from schemas import wire

SHORT_ARRAY_LENGTH: Final = 32
"""Most arrays of fixed-size elements are shorter than this: the layouts for these lengths are cached."""


class StructCodec(NamedTuple):
    read: Read
    fill_into: ReadInto | None
    """For a flat struct, the lines of `read`, to inline them in a loop without a call for each struct. The target is a
    name.
    """
    write: Write
    bytes_min: int

    def as_field(self) -> Codec:
        """The codec of a field with such a struct."""
        return Codec(self.read_into, self.write, self.bytes_min)

    def read_into(self, source: Source, target: str) -> None:
        """Read it by a call of the struct's own function."""
        source.add(f"{target}, position = {source.name('read', self.read)}(data, position)")


def read_checked(read: Read, data: Buffer, position: int) -> tuple[Any, int]:
    """Call a compiled function. Raises only DecodeError."""
    try:
        return read(data, position)
    except (struct.error, IndexError):
        # Fixed-size reads are not checked one by one: running off the end raises one of these two.
        raise BufferUnderflow("the bytes end inside a field", byte_position=len(data)) from None


def write_fields(codec: StructCodec, out: bytearray, fields: Struct) -> None:
    """Write a struct. Raises EncodeError if a field has a value that its type cannot represent."""
    try:
        codec.write(out, fields)
    except (struct.error, TypeError, AttributeError, UnicodeError) as error:
        raise EncodeError(f"a field holds what its kind cannot: {type(error).__name__}") from error


@cache
def codec_of(message: Declaration, version: int) -> StructCodec:
    """The compiled codec of a message in a version."""
    if isinstance(message, wire.Struct):
        raise CoreError(f"{message.name} is part of a message and has no versions of its own")
    versions = wire.message_versions(message)
    if version not in versions:
        raise CoreError(f"{message.name} has no version {version}")
    highest = versions[-1]
    is_flexible = version in wire.version_range(message.flexible, highest)
    return _struct_codec(message, Version(version, highest, is_flexible), depth=1)


def _struct_codec(message: Declaration, version: Version, depth: int) -> StructCodec:
    if depth > NESTING_DEPTH_MAX:
        raise CoreError(f"{message.name} nests deeper than {NESTING_DEPTH_MAX}")
    positional: list[tuple[int, wire.Field, Codec]] = []
    tagged: dict[int, tuple[int, wire.Field, Codec]] = {}
    absent: list[wire.Field] = []
    for index, field in enumerate(message.fields):
        if not version.has(field.versions):
            absent.append(field)
        elif field.tag is not None and version.has(field.tagged):
            tagged[field.tag] = (index, field, _field_codec(field, version, depth, is_tagged=True))
        else:
            positional.append((index, field, _field_codec(field, version, depth, is_tagged=False)))
    bytes_min = sum(codec.bytes_min for _, field, codec in positional if not field.missing_ok)
    may_end_early = any(field.missing_ok for _, field, _ in positional)
    assert not (may_end_early and version.is_flexible), "a tag section cannot be missing"
    fill_into = _struct_filler(message, positional, tagged, absent, version)
    source = Source("read(data, position)")
    source.add("size = len(data)")
    fill_into(source, "new")
    source.add("return new, position")
    return StructCodec(
        source.compiled(f"{message.name} version {version.number}"),
        fill_into if not may_end_early and all(map(_is_flat, message.fields)) else None,
        _struct_writer(message, positional, tagged, absent, version),
        bytes_min + version.is_flexible,
    )


def _is_flat(field: wire.Field) -> bool:
    """Whether a field is read without a loop or another struct."""
    kind = field.kind.element if isinstance(field.kind, wire.Array) else field.kind
    return isinstance(kind, wire.Primitive) and (kind is field.kind or kind.format is not None)


def _struct_filler(
    message: Declaration,
    positional: Sequence[tuple[int, wire.Field, Codec]],
    tagged: Mapping[int, tuple[int, wire.Field, Codec]],
    absent: Sequence[wire.Field],
    version: Version,
) -> ReadInto:
    """Reads the fields into variables, in wire order, then makes the struct of them."""
    may_end_early = any(field.missing_ok for _, field, _ in positional)

    def fill_into(source: Source, new: str) -> None:
        variables = {field.name: f"{new}_{field.name}" for field in message.fields}
        variables |= {field.name: source.name("default", default_of(field)) for field in absent}
        if version.is_flexible:
            variables["unknown_tags"] = f"{new}_unknown_tags"
        made = f"{source.name(message.name, struct_class(message))}({', '.join(variables.values())})"
        for field in (
            *(field for _, field, _ in tagged.values()),
            *(field for _, field, _ in positional if may_end_early),
        ):
            source.add(f"{variables[field.name]} = {source.name('default', default_of(field))}")
        run: list[tuple[str, str]] = []
        for _, field, codec in positional:
            variable = variables[field.name]
            letter = field.kind.format if isinstance(field.kind, wire.Primitive) else None
            if field.missing_ok or letter is None:
                _read_run(source, run)
            if field.missing_ok:
                source.add("if position >= size:", f"    return {made}, position")
            if letter is None:
                codec.read_into(source, variable)
            else:
                run.append((variable, letter))
        _read_run(source, run)
        if version.is_flexible:
            tags = [(tag, variables[field.name], codec) for tag, (_, field, codec) in tagged.items()]
            _read_tags_into(source, message, variables["unknown_tags"], tags)
        source.add(f"{new} = {made}")

    return fill_into


def _read_run(source: Source, run: list[tuple[str, str]]) -> None:
    """Read adjacent fields of fixed size, (variable, letter of `struct`), at once; then clear the run."""
    if run:
        layout = struct.Struct(">" + "".join(letter for _, letter in run))
        targets = "".join(f"{variable}, " for variable, _ in run)
        source.add(f"{targets}= {source.name('unpack', layout.unpack_from)}(data, position)")
        source.add(f"position += {layout.size}")
        run.clear()


def _read_tags_into(
    source: Source, message: Declaration, unknown: str, tagged: Sequence[tuple[int, str, Codec]]
) -> None:
    """Optimized for the common cases: an empty tag section, or a single tag that is known and short. `tagged`: (tag,
    variable, codec); `unknown`: the variable of unknown tags."""
    assert all(tag <= 0x7F for tag, _, _ in tagged), "a number of one byte"
    source.add(f"{unknown} = ()", "if not data[position]:", "    position += 1")
    for tag, variable, codec in tagged:
        source.add(
            f"elif data[position] == 1 and data[position + 1] == {tag} and data[position + 2] <= 0x7F:",
            "    position += 3",
        )
        with source.indented():
            codec.read_into(source, variable)
    variables = ", ".join(["position", unknown, *(variable for _, variable, _ in tagged)])
    read_tags = source.name("read_tags", _tags_reader(message, unknown, tagged, variables))
    source.add("else:", f"    {variables} = {read_tags}(data, {variables})")


def _tags_reader(
    message: Declaration, unknown: str, tagged: Sequence[tuple[int, str, Codec]], variables: str
) -> Callable[..., tuple[Any, ...]]:
    """Compile a function that reads a non-empty tag section. It takes the bytes and `variables`, and returns these."""
    source = Source(f"read_tags(data, {variables})")
    source.add("size = len(data)", "unknown = []")
    _read_uvarint_into(source, "tag_count")
    source.add("for _ in range(tag_count):")
    with source.indented():
        _read_uvarint_into(source, "tag")
        _read_uvarint_into(source, "tag_size")
        for tag, variable, codec in tagged:
            source.add(f"if tag == {tag}:")
            with source.indented():
                codec.read_into(source, variable)
                source.add("continue")
        source.add(
            f"{source.name('check', _check_length)}(tag_size, data, position)",
            "unknown.append((tag, bytes(data[position : position + tag_size])))",
            "position += tag_size",
        )
    source.add(f"{unknown} = tuple(unknown)", f"return {variables}")
    return source.compiled(f"tags of {message.name}")


def _read_uvarint_into(source: Source, target: str) -> None:
    """Optimized for varints of one byte, the common case."""
    source.add(
        f"{target} = data[position]",
        "position += 1",
        f"if {target} > 0x7F:",
        f"    {target}, position = {source.name('read_uvarint', read_uvarint)}(data, position - 1)",
    )


def _struct_writer(
    message: Declaration,
    positional: Sequence[tuple[int, wire.Field, Codec]],
    tagged: Mapping[int, tuple[int, wire.Field, Codec]],
    absent: Sequence[wire.Field],
    version: Version,
) -> Write:
    new = struct_class(message)
    fields = [(field.name, codec.write) for _, field, codec in positional]
    tags = [(tag, f.name, default_of(f), codec.write) for tag, (_, f, codec) in tagged.items()]
    dropped = [(field.name, default_of(field)) for field in absent if not field.ignorable]

    def write(out: bytearray, value: Any) -> None:
        if not isinstance(value, new):
            raise EncodeError(f"a struct of {message.name} expected, not {type(value).__name__}")
        for name, default in dropped:
            if getattr(value, name) != default:
                raise EncodeError(f"{message.name} has no {name} in version {version.number}")
        for name, write_field in fields:
            write_field(out, getattr(value, name))
        if version.is_flexible:
            write_tags(out, value)
        elif value.unknown_tags:
            raise EncodeError(f"{message.name} has no tags in version {version.number}")

    def write_tags(out: bytearray, value: Struct) -> None:
        payloads: list[tuple[int, bytes | bytearray]] = list(value.unknown_tags)
        for tag, name, default, write_field in tags:
            if any(tag == unknown for unknown, _ in value.unknown_tags):
                raise EncodeError(f"tag {tag} of {message.name} is known")
            field_value = getattr(value, name)
            if field_value != default:
                payload = bytearray()
                write_field(payload, field_value)
                payloads.append((tag, payload))
        payloads.sort(key=_tag_of)
        write_uvarint(out, len(payloads))
        for tag, content in payloads:
            write_uvarint(out, tag)
            write_uvarint(out, len(content))
            out += content

    return write


def _tag_of(tagged: tuple[int, bytes | bytearray]) -> int:
    return tagged[0]


def _field_codec(field: wire.Field, version: Version, depth: int, *, is_tagged: bool) -> Codec:
    is_nullable = version.has(field.nullable)
    kind = field.kind
    if isinstance(kind, wire.Struct):
        codec = _struct_codec(kind, version, depth + 1)
        return _nullable_struct(codec, is_tagged=is_tagged) if is_nullable else codec.as_field()
    if isinstance(kind, wire.Array):
        return _array_codec(field.name, kind, version, depth, is_nullable=is_nullable)
    return primitive_codec(field.name, kind, version, is_nullable=is_nullable)


def _nullable_struct(codec: StructCodec, *, is_tagged: bool) -> Codec:
    """A null marker precedes the struct: a signed byte among the fields, a varint in the tag section."""
    write_struct = codec.write

    def read_into(source: Source, target: str) -> None:
        read = source.name("read", codec.read)
        if is_tagged:
            source.add(f"length, position = {source.name('read_uvarint', read_uvarint)}(data, position)")
            source.add("if length <= 0:", f"    {target} = None")
        else:
            source.add("position += 1", "if data[position - 1] >= 0x80:", f"    {target} = None")
        source.add("else:", f"    {target}, position = {read}(data, position)")

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0x00 if is_tagged else 0xFF)
        else:
            out.append(1)
            write_struct(out, value)

    return Codec(read_into, write, 1)


def _array_codec(name: str, kind: wire.Array, version: Version, depth: int, *, is_nullable: bool) -> Codec:
    """A count, then the elements."""
    read_count_into, write_count, bytes_min = length_codec("i", version)
    write_null = null_writer(name, version, write_count, is_nullable=is_nullable)
    element: Codec | StructCodec = (
        _struct_codec(kind.element, version, depth + 1)
        if isinstance(kind.element, wire.Struct)
        else primitive_codec(name, kind.element, version, is_nullable=False)
    )
    write_element = element.write
    element_bytes_min = max(element.bytes_min, 1)
    letter = kind.element.format if isinstance(kind.element, wire.Primitive) else None
    element_into = element.read_into
    if isinstance(element, StructCodec) and element.fill_into is not None:
        element_into = element.fill_into

    def read_into(source: Source, target: str) -> None:
        read_count_into(source)
        read_null(source, target, name, is_nullable=is_nullable)
        bounds = source.name("bounds", out_of_bounds)
        source.add(
            "elif length == 0:",
            f"    {target} = ()",
            "    position = start",
            f"elif length * {element_bytes_min} > size - start:",
            f"    raise {bounds}({name!r}, f'{{length}} elements', f'{{size - start}} bytes', position)",
            "else:",
        )
        if letter is not None:
            short = [struct.Struct(f">{count}{letter}").unpack_from for count in range(SHORT_ARRAY_LENGTH)]
            source.add(
                f"    if length < {SHORT_ARRAY_LENGTH}:",
                f"        {target} = {source.name('short', short)}[length](data, start)",
                "    else:",
                f"        {target} = {source.name('unpack', struct.unpack_from)}(f'>{{length}}{letter}', data, start)",
                f"    position = start + length * {element_bytes_min}",
            )
        else:
            source.add("    items, position = [], start", "    for _ in range(length):")
            with source.indented(), source.indented():
                element_into(source, "item")
                source.add("items.append(item)")
            source.add(f"    {target} = tuple(items)")

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            write_null(out)
            return
        write_count(out, len(value))
        for item in value:
            write_element(out, item)

    return Codec(read_into, write, bytes_min)


def _check_length(length: int, data: Buffer, position: int) -> None:
    if length < 0 or length > len(data) - position:
        left = len(data) - position
        raise LengthOutOfBounds(f"a tag says {length} bytes, {left} are left", byte_position=position)
