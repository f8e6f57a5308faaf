"""Classes for message declarations: field kinds, fields, structs and messages.

A declaration reads like Kafka's own message definition (the JSON files of its generator) and does not say how bytes are
read; `coordinator_core.bytes.codec` interprets it. A test compares every declaration with Kafka's, field by field.

Version ranges are written as in Kafka: "0", "1-3", "2+" (from 2 to the message's highest), "none".

Field names are Kafka's camelCase names in snake_case: each upper-case letter becomes an underscore and the lower-case
letter, so `kafka_field_name` can convert them back without a table. The few names that Kafka itself does not write in
camelCase (Connect, the sticky assignor) have a `kafka_name`.

Declarations compare by identity, not by value: there is one object for each message, and codecs are looked up by it.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum, StrEnum
from typing import Final


@dataclass(frozen=True, slots=True, eq=False)
class Primitive:
    """A kind without inner kinds. `name`: as in Kafka's message definitions."""

    name: str
    format: str | None
    """Letter of the `struct` module, big-endian, if the size is fixed."""
    default: object


Bool: Final = Primitive("bool", "?", False)
Int8: Final = Primitive("int8", "b", 0)
Int16: Final = Primitive("int16", "h", 0)
UInt16: Final = Primitive("uint16", "H", 0)
Int32: Final = Primitive("int32", "i", 0)
Int64: Final = Primitive("int64", "q", 0)
Uuid: Final = Primitive("uuid", None, "AAAAAAAAAAAAAAAAAAAAAA")
"""16 bytes; as text Kafka's URL-safe base64 of 22 characters. All zeros: no id."""
String: Final = Primitive("string", None, "")
"""UTF-8, at most 32767 bytes."""
Bytes: Final = Primitive("bytes", None, b"")
Records: Final = Primitive("records", None, b"")
"""Record batches. Decoded as a view of the buffer, since they are large: keeping them keeps the buffer."""


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """Any number of elements of one kind."""

    element: "Primitive | Struct"


class Default(Enum):
    """Marks a field that has no default of its own."""

    OF_KIND = "of kind"
    """Zero, the empty string, no bytes, no elements, or a struct whose fields all have their default. Kafka's
    generator does the same if a definition has no default, or a literal `null` (it looks for "null")."""


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """One field of a struct or message."""

    name: str
    kind: "Kind"
    versions: str = "0+"
    """Versions in which the field is on the wire. In other versions it has its default."""
    nullable: str = "none"
    """Versions in which it may be null."""
    tag: int | None = None
    """If it has one, the field is only in the tag section, and only if it differs from its default."""
    default: object = Default.OF_KIND
    ignorable: bool = False
    """Whether a value which the version cannot hold is dropped when encoding; else it is an error."""
    missing_ok: bool = False
    """Whether a buffer that ends before the field gives the default (Connect's schemas)."""
    kafka_name: str | None = None
    about: str = ""

    @property
    def tagged(self) -> str:
        """Versions in which the field is in the tag section: wherever it is on the wire, if it has a tag."""
        return "none" if self.tag is None else self.versions


@dataclass(frozen=True, slots=True, eq=False)
class Struct:
    """A named group of fields, inside a message or an array."""

    name: str
    fields: tuple[Field, ...]


Kind = Primitive | Array | Struct


class Role(StrEnum):
    """Where a message is stored or sent."""

    KEY = "key"
    VALUE = "value"
    EMBEDDED = "embedded"
    """Inside a bytes field of another message: the client protocols."""
    CONTROL_KEY = "control-key"
    CONTROL_VALUE = "control-value"
    METADATA = "metadata"
    """A record of the KRaft metadata log; `record_type` is Kafka's apiKey."""
    REQUEST = "request"
    RESPONSE = "response"
    """Of the network protocol; `api_key` says which."""


class Prefix(StrEnum):
    """What precedes the fields."""

    RECORD_TYPE = "record type"
    """int16 record type; the fields follow in version 0, the only one a key has."""
    VERSION = "version"
    """int16 version of the fields."""
    METADATA_FRAME = "metadata frame"
    """uvarint frame version (1), uvarint apiKey, uvarint version."""
    NONE = "none"


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """A whole key, value or embedded message in all its versions."""

    name: str
    role: Role
    prefix: Prefix
    versions: str
    fields: tuple[Field, ...]
    flexible: str = "none"
    """Versions with compact lengths and tag sections (KIP-482)."""
    topic: str | None = None
    record_type: int | None = None
    api_key: int | None = None


def message_name(type_: IntEnum) -> str:
    """Kafka's name for the messages of a record type: SHARE_UPDATE -> ShareUpdate."""
    return "".join(map(str.capitalize, type_.name.split("_")))


def record_key(topic: str, type_: IntEnum, *fields: Field) -> Message:
    """The key of a record type."""
    name = f"{message_name(type_)}Key"
    return Message(name, Role.KEY, Prefix.RECORD_TYPE, "0", fields, topic=topic, record_type=type_)


def record_value(topic: str, type_: IntEnum, *fields: Field, versions: str = "0", flexible: str = "0+") -> Message:
    """The value of a record type."""
    name = f"{message_name(type_)}Value"
    return Message(name, Role.VALUE, Prefix.VERSION, versions, fields, flexible, topic, type_)


def embedded(name: str, versions: str, *fields: Field, prefix: Prefix = Prefix.VERSION) -> Message:
    """A message inside a bytes field of another one."""
    return Message(name, Role.EMBEDDED, prefix, versions, fields)


def api(
    name: str,
    api_key: int,
    versions: str,
    asked: tuple[Field, ...],
    answered: tuple[Field, ...],
    flexible: str = "0+",
) -> tuple[Message, Message]:
    """The request and the response of an API of the network protocol."""
    return (
        Message(f"{name}Request", Role.REQUEST, Prefix.NONE, versions, asked, flexible, api_key=api_key),
        Message(f"{name}Response", Role.RESPONSE, Prefix.NONE, versions, answered, flexible, api_key=api_key),
    )


def version_range(text: str, highest: int) -> range:
    """Versions named by `text`, none of them above `highest`."""
    first, _, last = text.removesuffix("+").partition("-")
    ends = {True: str(highest), False: last or first}
    return range(0) if text == "none" else range(int(first), min(int(ends[text.endswith("+")]), highest) + 1)


def message_versions(message: Message) -> range:
    """All versions of a message, lowest first."""
    first, _, last = message.versions.partition("-")
    return range(int(first), int(last or first) + 1)


def kafka_field_name(field: Field) -> str:
    """The name in Kafka's definition: `commit_timestamp` -> `commitTimestamp`."""
    return field.kafka_name or camel_case(field.name)


def camel_case(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(map(str.capitalize, tail))
