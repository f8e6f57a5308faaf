"""The one codec of messages: bytes to structs and back, as `schemas.wire` declares them.

Each (message, version) is compiled once. For reading, each struct becomes one Python function, generated as source
field by field, in which adjacent fields of fixed size are read by one `struct.unpack_from`. For writing, which is rare,
it becomes a list of writers. Decoded values are immutable: a slotted class for each struct, tuples for arrays, `bytes`
for bytes, `str` for strings, and Kafka's 22-character text for uuids.

The codec accepts what Kafka's generated classes accept, so that replay sees what a coordinator would have seen:

- bytes after the last field are ignored;
- any negative length is null;
- known tags are read by their type, in any order; their declared size is not compared with the bytes read;
- a nullable struct is preceded by a signed byte among the fields, by an unsigned varint in the tag section;
- strings that are not UTF-8 are repaired like Java's `new String(bytes, UTF_8)`.

Every length and count is checked against the remaining bytes before it is used. For any bytes, a decoder raises only
`DecodeError`.

Sources: MessageDataGenerator (read, write), ByteBufferAccessor, RawTaggedFieldWriter, CoordinatorRecordSerde.
"""

from coordinator_core.bytes.codec.messages import (
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
from coordinator_core.bytes.codec.primitives import Buffer, read_uvarint, uuid_bytes, uuid_text, write_uvarint
from coordinator_core.bytes.codec.structs import Declaration, Struct, default_of, make, make_from, struct_class

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
    "make_from",
    "metadata_record_type",
    "read_uvarint",
    "struct_class",
    "uuid_bytes",
    "uuid_text",
    "write_uvarint",
]
