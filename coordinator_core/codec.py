"""The one codec of messages: bytes to structs and back, as `schemas.wire` declares them.

Each (message, version) is compiled once: for reading into one Python function a struct, written field by field as
source, in which fields of fixed size that stand next to each other are read by one `struct.unpack_from`; for writing,
which is rare, into a list of writers. Decoded values are immutable: a slotted
class a struct, tuples for arrays, `bytes` for bytes, `str` for strings, and Kafka's 22-character text for
uuids.

What is accepted is what Kafka's generated classes accept, so that replay sees what a coordinator would have
seen:

- bytes after the last field are ignored;
- a negative length is null, whatever its value;
- known tags are read by their type, in any order; their size is not compared with what was read;
- a nullable struct among the fields has a signed byte before it, in the tag section an unsigned varint;
- strings which are not UTF-8 are repaired as Java's `new String(bytes, UTF_8)` does.

Every length and count is compared with the bytes left before it is believed. Whatever the bytes, only
`DecodeError` comes out of a decoder.

Sources: MessageDataGenerator (read, write), ByteBufferAccessor, RawTaggedFieldWriter, CoordinatorRecordSerde.
"""

import binascii
import codecs
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field as dataclass_field
from dataclasses import fields as dataclass_fields
from dataclasses import make_dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from coordinator_core.errors import (
    BufferUnderflow,
    CoreError,
    EncodeError,
    InvalidRecord,
    LengthOutOfBounds,
    NullNotAllowed,
    UnknownRecordType,
    UnknownValueVersion,
    VarintTooLong,
)
from coordinator_core.frozen import maker_of, open_class
from coordinator_core.limits import NESTING_DEPTH_MAX
from coordinator_core.source import Source
from schemas import wire
from schemas.cluster_metadata import FRAME_VERSION, PARTITION_RECORD
from schemas.registry import METADATA, REGISTRY

Buffer = bytes | memoryview
Declaration = wire.Message | wire.Struct

STRING_BYTES_MAX: Final = 32767
"""Kafka's strings are this long at most, also where the length field could hold more."""

BYTES_MAX: Final = 0x7FFFFFFF

SHORT_ARRAY_LENGTH: Final = 32
"""Most arrays of elements of fixed size are shorter than this: those layouts are made once."""

UUID_BYTES: Final = 16
UUID_CACHE_SIZE: Final = 65_536
"""Topic ids repeat in nearly every record; their text is kept for this many."""


class Struct:
    """Base of all decoded structs: one slotted, immutable class a declared struct or message.

    Attributes are the declared fields in snake_case, all of them in every version, and `unknown_tags`, the
    tagged fields of a later Kafka as (tag, payload), which encoding writes back.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        unknown_tags: tuple[tuple[int, bytes], ...]

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...


class CoordinatorKey(NamedTuple):
    """The key of a coordinator record."""

    record_type: int
    message: wire.Message
    fields: Struct


class CoordinatorValue(NamedTuple):
    """The value of a coordinator record, or of a record of the metadata log."""

    version: int
    message: wire.Message
    fields: Struct


_make_value: Final = maker_of(CoordinatorValue)


# --- what callers use ---


def decode(message: Declaration, data: Buffer, version: int, *, position: int = 0) -> Struct:
    """Decode the fields of `message` in `version`, which start at `position`. Raises DecodeError only."""
    return decode_from(message, data, version, position)[0]


def decode_from(message: Declaration, data: Buffer, version: int, position: int) -> tuple[Struct, int]:
    """As `decode`, with the position behind the last byte that was read."""
    return _run(_codec(message, version).read, data, position)


def encode(message: Declaration, fields: Struct, version: int) -> bytes:
    """Encode `fields` in `version`, without a prefix. Raises EncodeError where that version cannot hold
    them."""
    out = bytearray()
    _write(_codec(message, version), out, fields)
    return bytes(out)


def make(message: Declaration, **fields: Any) -> Struct:
    """A struct with the given fields, and all others at their default, as a new object of Kafka's class has
    them.

    Arrays may be given as lists. Raises EncodeError for a field which is not declared.
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


def decode_key(topic: str, data: Buffer) -> CoordinatorKey:
    """Decode a record's key. Raises UnknownRecordType for a type which is not declared for the topic, else
    DecodeError. Kafka's loader warns and skips an unknown type."""
    try:
        (record_type,) = _INT16.unpack_from(data)
    except struct.error:
        raise BufferUnderflow("key is too short for a record type", byte_position=len(data)) from None
    plan = _topic(topic).get(record_type)
    if plan is None:
        raise UnknownRecordType(f"record type {record_type} is not one of {topic}", byte_position=0)
    return CoordinatorKey(record_type, plan.key, _run(_codec(plan.key, 0).read, data, 2)[0])


def decode_value(topic: str, record_type: int, data: Buffer) -> CoordinatorValue:
    """Decode the value that goes with a key of `record_type`; tombstones have none, so `data` is not null.

    Raises UnknownRecordType, UnknownValueVersion (Kafka's loader fails there), else DecodeError.
    """
    plan = _topic(topic).get(record_type)
    if plan is None:
        raise UnknownRecordType(f"record type {record_type} is not one of {topic}")
    try:
        (version,) = _INT16.unpack_from(data)
    except struct.error:
        raise BufferUnderflow("value is too short for a version", byte_position=len(data)) from None
    if version not in plan.versions:
        raise UnknownValueVersion(f"{plan.value.name} has no version {version}", byte_position=0)
    return _make_value((version, plan.value, _run(_codec(plan.value, version).read, data, 2)[0]))


def has_unknown_tags(value: CoordinatorValue) -> bool:
    """Whether a value, or a struct in it, has tagged fields that its declaration does not know."""
    return _is_flexible(value.message, value.version) and _has_unknown_tags(value.fields, value.message)


@cache
def _is_flexible(message: wire.Message, version: int) -> bool:
    return version in wire.version_range(message.flexible, wire.message_versions(message)[-1])


def _has_unknown_tags(fields: Struct, declaration: wire.Message | wire.Struct) -> bool:
    if fields.unknown_tags:
        return True
    for name, kind, is_array, is_leaf in _nested(declaration):
        inner = getattr(fields, name)
        if not inner:
            continue
        for each in inner if is_array else (inner,):
            if each.unknown_tags or (not is_leaf and _has_unknown_tags(each, kind)):
                return True
    return False


@cache
def _nested(declaration: wire.Message | wire.Struct) -> tuple[tuple[str, wire.Struct, bool, bool], ...]:
    """(Attribute, declaration, is it an array, has it no structs itself) of the structs of a struct."""
    found = []
    for field in declaration.fields:
        is_array = isinstance(field.kind, wire.Array)
        kind = field.kind.element if isinstance(field.kind, wire.Array) else field.kind
        if isinstance(kind, wire.Struct):
            found.append((field.name, kind, is_array, not _nested(kind)))
    return tuple(found)


def encode_key(topic: str, record_type: int, fields: Struct) -> bytes:
    """The key of a record: its type and its fields in version 0, the only one keys have."""
    key, _ = _messages(topic, record_type)
    return _INT16.pack(record_type) + encode(key, fields, 0)


def encode_value(topic: str, record_type: int, version: int, fields: Struct) -> bytes:
    """The value of a record: its version and its fields."""
    _, value = _messages(topic, record_type)
    return _INT16.pack(version) + encode(value, fields, version)


def decode_metadata(data: Buffer) -> CoordinatorValue:
    """Decode the value of a record of `__cluster_metadata` (MetadataRecordSerde).

    Raises UnknownRecordType for the many types which are not declared; a caller skips those. So it may skip partitions
    in a version to come, of which there are many: there are other ways to know how many partitions a topic has.
    """
    (frame_version, api_key, version), position = _run(_read_metadata_frame, data, 0)
    if frame_version != FRAME_VERSION:
        raise InvalidRecord(f"frame version {frame_version} of a metadata record", byte_position=0)
    message = METADATA.get(api_key)
    if message is None:
        raise UnknownRecordType(f"metadata record type {api_key} is not declared", byte_position=0)
    if version not in wire.message_versions(message):
        if message is PARTITION_RECORD:
            raise UnknownRecordType(
                f"metadata record type {api_key} is not declared in version {version}", byte_position=0
            )
        raise UnknownValueVersion(f"{message.name} has no version {version}", byte_position=0)
    return CoordinatorValue(version, message, decode(message, data, version, position=position))


def metadata_record_type(data: Buffer) -> int | None:
    """The type of a record of `__cluster_metadata`, declared or not; None where its frame is of a later version."""
    (frame_version, api_key, _), _ = _run(_read_metadata_frame, data, 0)
    return int(api_key) if frame_version == FRAME_VERSION else None


def encode_metadata(message: wire.Message, fields: Struct, version: int) -> bytes:
    """The value of a record of `__cluster_metadata`. The opposite of `decode_metadata`."""
    out = bytearray()
    for number in (FRAME_VERSION, message.record_type or 0, version):
        write_uvarint(out, number)
    return bytes(out) + encode(message, fields, version)


def struct_class(message: Declaration) -> type[Struct]:
    """The class of the structs of a message: its fields in declared order, then `unknown_tags`."""
    return _maker(message).new


# --- varints and text ---


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """An unsigned varint as an int32 (ByteUtils.readUnsignedVarint), and the position behind it."""
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for index in range(1, 5):
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            value &= 0xFFFFFFFF
            return value - ((value & 0x80000000) << 1), position + index + 1
    raise VarintTooLong("varint of more than 5 bytes", byte_position=position)


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint (ByteUtils.writeUnsignedVarint)."""
    value &= 0xFFFFFFFF
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _java_replacement(error: UnicodeError) -> tuple[str, int]:
    """U+FFFD where Java puts one. Java takes an encoded surrogate (ED A0..BF xx) as one fault, Python as
    two or three; for all other faults both follow Unicode's "maximal subpart"."""
    assert isinstance(error, UnicodeDecodeError), "used for decoding only"
    data, start = error.object, error.start
    surrogate = _ENCODED_SURROGATE.match(data, start)
    if surrogate:
        return "\ufffd", surrogate.end()
    return "\ufffd", error.end


codecs.register_error("groupledger-java", _java_replacement)


@lru_cache(maxsize=UUID_CACHE_SIZE)
def uuid_text(data: bytes) -> str:
    """Uuid.toString: URL-safe base64 of the 16 bytes, without padding."""
    return binascii.b2a_base64(data, newline=False)[:22].translate(_TO_URL_SAFE).decode("ascii")


@lru_cache(maxsize=UUID_CACHE_SIZE)
def uuid_bytes(text: str) -> bytes:
    """Uuid.fromString. Raises EncodeError for what is not the text of a uuid."""
    try:
        data = binascii.a2b_base64(text.encode("ascii").translate(_FROM_URL_SAFE) + b"==", strict_mode=True)
    except ValueError:
        data = b""
    if len(data) != UUID_BYTES or uuid_text(data) != text:
        raise EncodeError("not a uuid: 22 characters of URL-safe base64 expected")
    return data


_ENCODED_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_TO_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


# --- structs ---


class _Maker(NamedTuple):
    new: type[Struct]
    defaults: Mapping[str, Any]
    arrays: tuple[str, ...]


@cache
def _maker(message: Declaration) -> _Maker:
    names = [field.name for field in message.fields]
    new: type[Struct] = make_dataclass(
        message.name,
        [*((name, Any) for name in names), ("unknown_tags", tuple, dataclass_field(default=()))],
        bases=(Struct,),
        frozen=True,
        slots=True,
    )
    new.__module__ = __name__
    assert [f.name for f in dataclass_fields(new)] == [*names, "unknown_tags"]  # type: ignore[arg-type]
    defaults = {field.name: default_of(field) for field in message.fields}
    arrays = tuple(field.name for field in message.fields if isinstance(field.kind, wire.Array))
    return _Maker(new, {**defaults, "unknown_tags": ()}, arrays)


def default_of(field: wire.Field) -> Any:
    """What the field is where it is not on the wire."""
    if field.default is not wire.Default.OF_KIND:
        return field.default
    if isinstance(field.kind, wire.Primitive):
        return field.kind.default
    if isinstance(field.kind, wire.Array):
        return ()
    return make(field.kind)


# --- compiling ---

Read = Callable[[Buffer, int], tuple[Any, int]]
Write = Callable[[bytearray, Any], None]
ReadInto = Callable[[Source, str], None]
"""(source, target): add the lines which read the value that stands in `data` at `position` into `target`, and move
`position` behind it. They may use `size`, the length of `data`, and have five names to themselves: `length`, `start`,
`end`, `items` and `item`; of these, a flat struct's leave `items` and `item` alone."""


class _Codec(NamedTuple):
    read_into: ReadInto
    write: Write
    bytes_min: int
    """No value takes fewer bytes: the bound that array counts are checked with."""


class _StructCodec(NamedTuple):
    read: Read
    fill_into: ReadInto | None
    """Of a flat struct, the lines of `read`, for a loop over many: without a call each. The target is a name."""
    write: Write
    bytes_min: int

    def as_field(self) -> _Codec:
        """Of a field that holds such a struct."""
        return _Codec(self.read_into, self.write, self.bytes_min)

    def read_into(self, source: Source, target: str) -> None:
        """The struct's own function reads it."""
        source.add(f"{target}, position = {source.name('read', self.read)}(data, position)")


def _run(read: Read, data: Buffer, position: int) -> tuple[Any, int]:
    try:
        return read(data, position)
    except (struct.error, IndexError):
        # Fixed-size reads are not checked one by one: running off the end is what these two mean.
        raise BufferUnderflow("the bytes end inside a field", byte_position=len(data)) from None


def _write(codec: _StructCodec, out: bytearray, fields: Struct) -> None:
    try:
        codec.write(out, fields)
    except (struct.error, TypeError, AttributeError, UnicodeError) as error:
        raise EncodeError(f"a field holds what its kind cannot: {type(error).__name__}") from error


class _Version(NamedTuple):
    """What every reader and writer needs to know of the version it is compiled for."""

    number: int
    highest: int
    is_flexible: bool

    def has(self, text: str) -> bool:
        return self.number in wire.version_range(text, self.highest)


@cache
def _codec(message: Declaration, version: int) -> _StructCodec:
    if isinstance(message, wire.Struct):
        raise CoreError(f"{message.name} is part of a message and has no versions of its own")
    versions = wire.message_versions(message)
    if version not in versions:
        raise CoreError(f"{message.name} has no version {version}")
    highest = versions[-1]
    is_flexible = version in wire.version_range(message.flexible, highest)
    return _struct_codec(message, _Version(version, highest, is_flexible), depth=1)


def _struct_codec(message: Declaration, version: _Version, depth: int) -> _StructCodec:
    if depth > NESTING_DEPTH_MAX:
        raise CoreError(f"{message.name} nests deeper than {NESTING_DEPTH_MAX}")
    positional: list[tuple[int, wire.Field, _Codec]] = []
    tagged: dict[int, tuple[int, wire.Field, _Codec]] = {}
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
    return _StructCodec(
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
    positional: Sequence[tuple[int, wire.Field, _Codec]],
    tagged: Mapping[int, tuple[int, wire.Field, _Codec]],
    absent: Sequence[wire.Field],
    version: _Version,
) -> ReadInto:
    """Fills in an open struct, field by field in wire order; then it is closed."""
    kind: Any = struct_class(message)
    may_end_early = any(field.missing_ok for _, field, _ in positional)

    def fill_into(source: Source, new: str) -> None:
        made = f"{source.name('make', object.__new__)}({source.name('Open', open_class(kind))})"
        close = f"{new}.__class__ = {source.name(message.name, kind)}"
        source.add(f"{new} = {made}", f"{new}.unknown_tags = ()")
        for field in (
            *absent,
            *(field for _, field, _ in tagged.values()),
            *(field for _, field, _ in positional if may_end_early),
        ):
            source.add(f"{new}.{field.name} = {source.name('default', default_of(field))}")
        run: list[tuple[str, str]] = []
        for _, field, codec in positional:
            letter = field.kind.format if isinstance(field.kind, wire.Primitive) else None
            if field.missing_ok or letter is None:
                _read_run(source, new, run)
            if field.missing_ok:
                source.add("if position >= size:")
                source.add(close, f"return {new}, position", depth=1)
            if letter is None:
                codec.read_into(source, f"{new}.{field.name}")
            else:
                run.append((field.name, letter))
        _read_run(source, new, run)
        if version.is_flexible:
            _read_tags_into(source, new, message, tagged)
        source.add(close)

    return fill_into


def _read_run(source: Source, new: str, run: list[tuple[str, str]]) -> None:
    """Read neighbours of fixed size, (name, letter of `struct`), at once; then the run is empty."""
    if run:
        layout = struct.Struct(">" + "".join(letter for _, letter in run))
        targets = "".join(f"{new}.{name}, " for name, _ in run)
        source.add(f"{targets}= {source.name('unpack', layout.unpack_from)}(data, position)")
        source.add(f"position += {layout.size}")
        run.clear()


def _read_tags_into(
    source: Source, new: str, message: Declaration, tagged: Mapping[int, tuple[int, wire.Field, _Codec]]
) -> None:
    """Most tag sections are empty, and most of the others hold one tag, which is known and short."""
    assert all(tag <= 0x7F for tag in tagged), "a number of one byte"
    source.add("if not data[position]:", "    position += 1")
    for tag, (_, field, codec) in tagged.items():
        source.add(
            f"elif data[position] == 1 and data[position + 1] == {tag} and data[position + 2] <= 0x7F:",
            "    position += 3",
        )
        with source.indented():
            codec.read_into(source, f"{new}.{field.name}")
    read_tags = source.name("read_tags", _tags_reader(message, tagged))
    source.add("else:", f"    position = {read_tags}(data, position, {new})")


def _tags_reader(
    message: Declaration, tagged: Mapping[int, tuple[int, wire.Field, _Codec]]
) -> Callable[[Buffer, int, Any], int]:
    """Reads a tag section that is not empty."""
    source = Source("read_tags(data, position, new)")
    source.add("size = len(data)", "unknown = []")
    _read_uvarint_into(source, "tag_count")
    source.add("for _ in range(tag_count):")
    with source.indented():
        _read_uvarint_into(source, "tag")
        _read_uvarint_into(source, "tag_size")
        for tag, (_, field, codec) in tagged.items():
            source.add(f"if tag == {tag}:")
            with source.indented():
                codec.read_into(source, f"new.{field.name}")
                source.add("continue")
        source.add(
            f"{source.name('check', _check_length)}(tag_size, data, position)",
            "unknown.append((tag, bytes(data[position : position + tag_size])))",
            "position += tag_size",
        )
    source.add("if unknown:", "    new.unknown_tags = tuple(unknown)", "return position")
    return source.compiled(f"tags of {message.name}")


def _read_uvarint_into(source: Source, target: str) -> None:
    """Most are of one byte."""
    source.add(
        f"{target} = data[position]",
        "position += 1",
        f"if {target} > 0x7F:",
        f"    {target}, position = {source.name('read_uvarint', read_uvarint)}(data, position - 1)",
    )


def _struct_writer(
    message: Declaration,
    positional: Sequence[tuple[int, wire.Field, _Codec]],
    tagged: Mapping[int, tuple[int, wire.Field, _Codec]],
    absent: Sequence[wire.Field],
    version: _Version,
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


# --- kinds ---


def _field_codec(field: wire.Field, version: _Version, depth: int, *, is_tagged: bool) -> _Codec:
    is_nullable = version.has(field.nullable)
    kind = field.kind
    if isinstance(kind, wire.Struct):
        codec = _struct_codec(kind, version, depth + 1)
        return _nullable_struct(codec, is_tagged=is_tagged) if is_nullable else codec.as_field()
    if isinstance(kind, wire.Array):
        return _array_codec(field.name, kind, version, depth, is_nullable=is_nullable)
    return _primitive_codec(field.name, kind, version, is_nullable=is_nullable)


def _nullable_struct(codec: _StructCodec, *, is_tagged: bool) -> _Codec:
    """Null or not stands before the struct: as a signed byte among the fields, as a varint in the tag
    section."""
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

    return _Codec(read_into, write, 1)


def _primitive_codec(name: str, kind: wire.Primitive, version: _Version, *, is_nullable: bool) -> _Codec:
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


def _fixed_codec(letter: str) -> _Codec:
    layout = struct.Struct(">" + letter)
    pack = layout.pack

    def read_into(source: Source, target: str) -> None:
        unpack = source.name("unpack", layout.unpack_from)
        source.add(f"({target},) = {unpack}(data, position)", f"position += {layout.size}")

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return _Codec(read_into, write, layout.size)


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


_UUID_CODEC: Final = _Codec(_read_uuid_into, _write_uuid, UUID_BYTES)


def _encode_text(value: str) -> bytes:
    return value.encode("utf-8")


def _encode_bytes(value: bytes) -> bytes:
    return memoryview(value).tobytes()


class _LengthCodec(NamedTuple):
    """Lengths and counts: -1 is null. Flexible versions write one more as a varint, so that 0 is null."""

    read_into: Callable[[Source], None]
    """Add the lines which read one into `length`, and where it ends into `start`; `position` stays before it."""
    write: Callable[[bytearray, int], None]
    bytes_min: int


def _length_codec(letter: str, version: _Version) -> _LengthCodec:
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


def _read_null(source: Source, target: str, name: str, *, is_nullable: bool) -> None:
    """Add the lines for a negative length; those for any other come behind an `el` or `else`."""
    source.add("if length < 0:")
    if is_nullable:
        source.add(f"{target} = None", "position = start", depth=1)
    else:
        source.add(f"raise {source.name('null', _null_not_allowed)}({name!r}, position)", depth=1)


def _null_writer(
    name: str, version: _Version, write_length: Callable[[bytearray, int], None], *, is_nullable: bool
) -> Callable[[bytearray], None]:
    """Writes the length of null, where the field may be that."""

    def write_null(out: bytearray) -> None:
        if not is_nullable:
            raise EncodeError(f"{name} cannot be null in version {version.number}")
        write_length(out, -1)

    return write_null


def _null_not_allowed(name: str, position: int) -> NullNotAllowed:
    return NullNotAllowed(f"{name} is null", byte_position=position)


def _out_of_bounds(name: str, said: str, left: str, position: int) -> LengthOutOfBounds:
    return LengthOutOfBounds(f"{name} says {said}, {left} are left", byte_position=position)


def _bounded(
    name: str,
    version: _Version,
    *,
    is_nullable: bool,
    letter: str,
    content: str,
    encode_content: Callable[[Any], bytes],
    length_max: int,
) -> _Codec:
    """A length, then that many bytes. `content` makes a value of `data` from `start` to `end`."""
    read_length_into, write_length, bytes_min = _length_codec(letter, version)
    write_null = _null_writer(name, version, write_length, is_nullable=is_nullable)

    def read_into(source: Source, target: str) -> None:
        read_length_into(source)
        _read_null(source, target, name, is_nullable=is_nullable)
        bounds = source.name("bounds", _out_of_bounds)
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

    return _Codec(read_into, write, bytes_min)


def _array_codec(name: str, kind: wire.Array, version: _Version, depth: int, *, is_nullable: bool) -> _Codec:
    """A count, then the elements."""
    read_count_into, write_count, bytes_min = _length_codec("i", version)
    write_null = _null_writer(name, version, write_count, is_nullable=is_nullable)
    element: _Codec | _StructCodec = (
        _struct_codec(kind.element, version, depth + 1)
        if isinstance(kind.element, wire.Struct)
        else _primitive_codec(name, kind.element, version, is_nullable=False)
    )
    write_element = element.write
    element_bytes_min = max(element.bytes_min, 1)
    letter = kind.element.format if isinstance(kind.element, wire.Primitive) else None
    element_into = element.read_into
    if isinstance(element, _StructCodec) and element.fill_into is not None:
        element_into = element.fill_into

    def read_into(source: Source, target: str) -> None:
        read_count_into(source)
        _read_null(source, target, name, is_nullable=is_nullable)
        bounds = source.name("bounds", _out_of_bounds)
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

    return _Codec(read_into, write, bytes_min)


def _check_length(length: int, data: Buffer, position: int) -> None:
    if length < 0 or length > len(data) - position:
        left = len(data) - position
        raise LengthOutOfBounds(f"a tag says {length} bytes, {left} are left", byte_position=position)


def _read_metadata_frame(data: Buffer, position: int) -> tuple[tuple[int, int, int], int]:
    frame_version, position = read_uvarint(data, position)
    api_key, position = read_uvarint(data, position)
    version, position = read_uvarint(data, position)
    return (frame_version, api_key, version), position


# --- topics ---


class _RecordPlan(NamedTuple):
    key: wire.Message
    value: wire.Message
    versions: range
    """Of the value."""


@cache
def _topic(topic: str) -> Mapping[int, _RecordPlan]:
    """Record type -> what its records are, for all types of a topic."""
    if topic not in REGISTRY:
        raise CoreError(f"no records are declared for topic {topic}")
    return {
        int(record_type): _RecordPlan(key, value, wire.message_versions(value))
        for record_type, (key, value) in REGISTRY[topic].items()
    }


def _messages(topic: str, record_type: int) -> tuple[wire.Message, wire.Message]:
    try:
        return REGISTRY[topic][record_type]
    except KeyError:
        raise EncodeError(f"no record type {record_type} in topic {topic}") from None
