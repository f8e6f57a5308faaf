"""The one codec of messages: bytes to structs and back, as `schemas.wire` declares them.

Each (message, version) is compiled once: for reading into one Python function a struct, written field by field as
source, in which neighbouring fields of fixed size are read by one `struct.unpack_from`; for writing,
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

from coordinator_core.codec.messages import (
    CoordinatorKey,
    CoordinatorValue,
    decode,
    decode_from,
    decode_key,
    decode_metadata,
    decode_value,
    encode,
    encode_key,
    encode_metadata,
    encode_value,
    has_unknown_tags,
    metadata_record_type,
)
from coordinator_core.codec.primitives import Buffer, read_uvarint, uuid_bytes, uuid_text, write_uvarint
from coordinator_core.codec.structs import Declaration, Struct, default_of, make, struct_class

__all__ = [
    "Buffer",
    "CoordinatorKey",
    "CoordinatorValue",
    "Declaration",
    "Struct",
    "decode",
    "decode_from",
    "decode_key",
    "decode_metadata",
    "decode_value",
    "default_of",
    "encode",
    "encode_key",
    "encode_metadata",
    "encode_value",
    "has_unknown_tags",
    "make",
    "metadata_record_type",
    "read_uvarint",
    "struct_class",
    "uuid_bytes",
    "uuid_text",
    "write_uvarint",
]
