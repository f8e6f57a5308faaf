"""Message sets of magic 0 and 1, which 4.x brokers still read but no longer write. They are written here only to
rebuild a dump of such a log.

An entry is one message. With a codec in its attributes it is a wrapper, whose value is a compressed message set
(AbstractLegacyRecordBatch, LegacyRecord). Entries have no producer, no control records and no headers.
"""

import struct
from dataclasses import dataclass
from itertools import pairwise

from coordinator_core.bytes.log.batch import IS_LOG_APPEND_TIME, Record, batch_crc, parse_header, stored_crc, with_crc
from coordinator_core.bytes.log.compression import decompress
from coordinator_core.errors import (
    BufferUnderflow,
    CrcMismatch,
    EncodeError,
    InvalidBatch,
    InvalidRecord,
    LengthOutOfBounds,
)
from coordinator_core.limits import BATCH_DECOMPRESSED_BYTES_MAX


@dataclass(frozen=True, slots=True)
class LegacyMessage:
    """One message of an entry. Positions count from the start of `LegacyEntry.data`; lengths are -1 for null."""

    offset: int
    timestamp_ms: int
    key_position: int
    key_length: int
    value_position: int
    value_length: int


@dataclass(frozen=True, slots=True)
class LegacyEntry:
    """The messages of one entry, and the bytes that contain them: the entry's own, or the decompressed wrapper's."""

    data: bytes
    messages: tuple[LegacyMessage, ...]


def decode_entry(entry: bytes, *, bytes_max: int = BATCH_DECOMPRESSED_BYTES_MAX) -> LegacyEntry:
    """The messages of one complete entry of magic 0 or 1, in offset order. Its own checksum is the caller's to check.

    Offsets inside a v0 wrapper are absolute; inside a v1 wrapper they count from 0 and the wrapper has the offset of
    the last. A wrapper with LogAppendTime applies its timestamp to all messages. Raises subclasses of DecodeError,
    including UnknownCodec, DecompressionFailed and DecompressedTooLarge.
    """
    header = parse_header(entry)
    if header.magic > 1 or header.size != len(entry):
        raise InvalidBatch("not one entry of magic 0 or 1", byte_position=0)
    if header.codec_id == 0:
        return LegacyEntry(entry, (_message(entry, 0, len(entry), header.base_offset, header.base_timestamp_ms),))
    wrapper = _message(entry, 0, len(entry), header.base_offset, header.base_timestamp_ms)
    if wrapper.value_length < 0:
        raise InvalidRecord("a compressed message without value", byte_position=wrapper.value_position)
    packed = entry[wrapper.value_position : wrapper.value_position + wrapper.value_length]
    inner = decompress(header.codec_id, packed, magic=header.magic, bytes_max=bytes_max)
    messages = _inner_messages(inner, header.magic)
    if not messages:
        raise InvalidRecord("a compressed message set without messages", byte_position=wrapper.value_position)
    # a v1 wrapper's offset is that of its last message (KIP-31)
    shift = header.base_offset - messages[-1].offset if header.magic == 1 else 0
    messages = [
        LegacyMessage(
            message.offset + shift,
            header.max_timestamp_ms if header.is_log_append_time else message.timestamp_ms,
            message.key_position,
            message.key_length,
            message.value_position,
            message.value_length,
        )
        for message in messages
    ]
    offsets = [message.offset for message in messages]
    if offsets[0] < 0 or any(later <= earlier for earlier, later in pairwise(offsets)):
        raise InvalidRecord("offsets in a wrapper go back", byte_position=wrapper.value_position)
    if offsets[-1] > header.base_offset:
        raise InvalidRecord("a wrapper's message lies behind the wrapper", byte_position=wrapper.value_position)
    return LegacyEntry(inner, tuple(messages))


def build_message(record: Record, magic: int, *, is_log_append_time: bool = False) -> bytes:
    """An uncompressed message of magic 0 or 1 as LegacyRecord writes it; magic 0 has no timestamp."""
    if magic not in (0, 1):
        raise EncodeError(f"magic {magic} is none of a message")
    if record.headers:
        raise EncodeError("a message of magic 0 or 1 has no headers")
    attributes = IS_LOG_APPEND_TIME if is_log_append_time and magic else 0
    parts = [struct.pack(">bb", magic, attributes)]
    try:
        if magic:
            parts.append(struct.pack(">q", record.timestamp_ms))
        for part in (record.key, record.value):
            parts += [struct.pack(">i", -1 if part is None else len(part)), part or b""]
        body = b"".join(parts)
        return with_crc(struct.pack(">qiI", record.offset, len(body) + 4, 0) + body)
    except struct.error as error:
        raise EncodeError(f"a field does not fit: {error}") from None


def records_of(entry: LegacyEntry) -> tuple[Record, ...]:
    return tuple(
        Record(
            message.offset,
            message.timestamp_ms,
            _slice(entry.data, message.key_position, message.key_length),
            _slice(entry.data, message.value_position, message.value_length),
        )
        for message in entry.messages
    )


def _slice(data: bytes, position: int, length: int) -> bytes | None:
    return None if length < 0 else data[position : position + length]


def _inner_messages(inner: bytes, magic: int) -> list[LegacyMessage]:
    messages: list[LegacyMessage] = []
    position = 0
    while position < len(inner):
        header = parse_header(inner, position)
        # Kafka rejects both as well (AbstractLegacyRecordBatch.DeepRecordsIterator)
        if header.magic != magic or header.codec_id != 0:
            raise InvalidRecord("a message in a wrapper which cannot be there", byte_position=position)
        message = inner[position : position + header.size]
        if stored_crc(message) != batch_crc(message):
            raise CrcMismatch("checksum of a legacy message", byte_position=position + 12)
        messages.append(_message(inner, position, position + header.size, header.base_offset, header.base_timestamp_ms))
        position += header.size
    return messages


def _message(data: bytes, position: int, end: int, offset: int, timestamp_ms: int) -> LegacyMessage:
    key_length_position = position + (26 if data[position + 16] == 1 else 18)
    key_position, key_length = _sized(data, key_length_position, end)
    value_position, value_length = _sized(data, key_position + max(key_length, 0), end)
    if value_position + max(value_length, 0) != end:
        raise InvalidRecord("bytes remain behind a legacy message", byte_position=value_position)
    return LegacyMessage(offset, timestamp_ms, key_position, key_length, value_position, value_length)


def _sized(data: bytes, position: int, end: int) -> tuple[int, int]:
    if end - position < 4:
        raise BufferUnderflow("a legacy message ends inside a length", byte_position=position)
    (length,) = struct.unpack_from(">i", data, position)
    if length > end - position - 4:
        raise LengthOutOfBounds(f"length {length}", byte_position=position)
    return position + 4, max(length, -1)
