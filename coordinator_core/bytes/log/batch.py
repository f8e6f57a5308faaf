"""The record batch: its header, its checksum, and an encoder that writes the same bytes as Kafka.

Layout of magic 2: DefaultRecordBatch and DefaultRecord (KIP-98). For magic 0 and 1 see legacy.py.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import google_crc32c

from coordinator_core.bytes.log.compression import Codec, compress
from coordinator_core.bytes.log.kernels import (
    HEADER_BYTES_MIN,
    HEADER_BYTES_V2,
    LENGTH_MIN_V0,
    LENGTH_MIN_V1,
    LENGTH_MIN_V2,
    LOG_OVERHEAD_BYTES,
)
from coordinator_core.errors import (
    BufferUnderflow,
    CrcMismatch,
    EncodeError,
    InvalidBatch,
    LengthOutOfBounds,
    TruncatedBatch,
)
from coordinator_core.limits import BATCH_BYTES_MAX

HEADER_V2: Final = struct.Struct(">qiibIhiqqqhii")
"""base offset, length, leader epoch, magic, crc, attributes, last offset delta, base and max timestamp, producer id and
epoch, base sequence, record count."""
AFTER_CRC_V2: Final = struct.Struct(">hiqqqhii")
CRC_START_V2: Final = 21
"""The checksum of magic 2 covers everything from the attributes on; base offset and leader epoch are outside of it."""
CRC_START_LEGACY: Final = 16

IS_LOG_APPEND_TIME: Final = 0x08
IS_TRANSACTIONAL: Final = 0x10
IS_CONTROL: Final = 0x20
HAS_DELETE_HORIZON: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1


@dataclass(frozen=True, slots=True)
class Record:
    """One record with absolute offset and timestamp. Times are epoch milliseconds; a value of None is a tombstone."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """Header of one batch, or of one v0/v1 message, where missing fields are -1 or False."""

    base_offset: int
    """For a legacy message its own offset; for a compressed wrapper the offset of the last message inside."""
    last_offset: int
    """Inclusive."""
    leader_epoch: int
    magic: int
    crc: int
    """Unsigned."""
    codec_id: int
    is_log_append_time: bool
    is_transactional: bool
    is_control: bool
    base_timestamp_ms: int
    """Where `has_delete_horizon`, the delete horizon instead (KIP-534)."""
    max_timestamp_ms: int
    has_delete_horizon: bool
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    size: int
    """Bytes of the whole batch, header included."""


def parse_header(data: bytes | memoryview, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`. Checks that the batch is complete, not its checksum.

    Raises TruncatedBatch if the data end inside the batch, LengthOutOfBounds for a length that no batch can have,
    and InvalidBatch for an unknown magic or contradictory fields.
    """
    left = len(data) - position
    if left < HEADER_BYTES_MIN:
        raise TruncatedBatch(f"{left} bytes cannot hold a batch header", byte_position=position)
    offset, length = struct.unpack_from(">qi", data, position)
    magic = data[position + 16]
    if magic > 2:
        raise InvalidBatch(f"magic {magic}", byte_position=position + 16)
    length_min = (LENGTH_MIN_V0, LENGTH_MIN_V1, LENGTH_MIN_V2)[magic]
    if not length_min <= length <= BATCH_BYTES_MAX:
        raise LengthOutOfBounds(f"batch length {length}", byte_position=position + 8)
    size = LOG_OVERHEAD_BYTES + length
    if size > left:
        raise TruncatedBatch(f"a batch of {size} bytes in {left} bytes", byte_position=position)
    if offset < 0:
        raise InvalidBatch("negative base offset", byte_position=position)
    if magic < 2:
        return _legacy_header(data, position, magic, offset, size)
    (
        base_offset,
        _,
        leader_epoch,
        _,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = HEADER_V2.unpack_from(data, position)
    if last_offset_delta < 0 or base_offset + last_offset_delta >= 2**63:
        raise InvalidBatch(f"last offset delta {last_offset_delta}", byte_position=position + 23)
    if not 0 <= record_count <= last_offset_delta + 1:
        raise InvalidBatch(f"{record_count} records in {last_offset_delta + 1} offsets", byte_position=position + 57)
    return BatchHeader(
        base_offset=base_offset,
        last_offset=base_offset + last_offset_delta,
        leader_epoch=leader_epoch,
        magic=magic,
        crc=crc,
        codec_id=attributes & 7,
        is_log_append_time=bool(attributes & IS_LOG_APPEND_TIME),
        is_transactional=bool(attributes & IS_TRANSACTIONAL),
        is_control=bool(attributes & IS_CONTROL),
        base_timestamp_ms=base_timestamp,
        max_timestamp_ms=max_timestamp,
        has_delete_horizon=bool(attributes & HAS_DELETE_HORIZON),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=record_count,
        size=size,
    )


def _legacy_header(data: bytes | memoryview, position: int, magic: int, offset: int, size: int) -> BatchHeader:
    (crc,) = struct.unpack_from(">I", data, position + 12)
    attributes = data[position + 17]
    timestamp = struct.unpack_from(">q", data, position + 18)[0] if magic == 1 else NO_TIMESTAMP
    return BatchHeader(
        base_offset=offset,
        last_offset=offset,
        leader_epoch=-1,
        magic=magic,
        crc=crc,
        codec_id=attributes & 7,
        is_log_append_time=magic == 1 and bool(attributes & IS_LOG_APPEND_TIME),
        is_transactional=False,
        is_control=False,
        base_timestamp_ms=timestamp,
        max_timestamp_ms=timestamp,
        has_delete_horizon=False,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=1,
        size=size,
    )


def batch_crc(batch: bytes) -> int:
    """The checksum that the header of this whole batch should have: CRC-32C for magic 2, CRC-32 for 0 and 1."""
    if batch[16] == 2:
        return int(google_crc32c.value(batch[CRC_START_V2:]))
    return zlib.crc32(batch[CRC_START_LEGACY:])


def stored_crc(batch: bytes) -> int:
    """The checksum in the header; unsigned."""
    position = 17 if batch[16] == 2 else 12
    return int.from_bytes(batch[position : position + 4], "big")


def verify_crc(batch: bytes) -> None:
    """Raises CrcMismatch unless the checksum in the header of this whole batch is that of its bytes."""
    if len(batch) < HEADER_BYTES_MIN or (batch[16] == 2 and len(batch) < HEADER_BYTES_V2):
        raise BufferUnderflow(f"{len(batch)} bytes cannot hold a batch header", byte_position=len(batch))
    expected, actual = stored_crc(batch), batch_crc(batch)
    if expected != actual:
        raise CrcMismatch(f"header has {expected:08x}, bytes have {actual:08x}", byte_position=CRC_START_LEGACY)


def with_crc(batch: bytes) -> bytes:
    """The same batch with the correct checksum in its header."""
    position = 17 if batch[16] == 2 else 12
    return batch[:position] + batch_crc(batch).to_bytes(4, "big") + batch[position + 4 :]


def _varint(value: int) -> bytes:
    """Zigzag, base 128, low groups first (ByteUtils.writeVarint and writeVarlong)."""
    rest = (value << 1) ^ (value >> 63)
    if rest < 0x80:
        return bytes((rest,))
    out = bytearray()
    while rest >= 0x80:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _sized(value: bytes | None) -> bytes:
    return _varint(-1) if value is None else _varint(len(value)) + value


def encode_record(record: Record, base_offset: int, base_timestamp_ms: int) -> bytes:
    parts = [
        b"\x00",
        _varint(record.timestamp_ms - base_timestamp_ms),
        _varint(record.offset - base_offset),
        _sized(record.key),
        _sized(record.value),
        encode_headers(record.headers),
    ]
    body = b"".join(parts)
    return _varint(len(body)) + body


def encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """The headers of a record in wire format: their count, then names and values."""
    return _varint(len(headers)) + b"".join(_sized(name.encode()) + _sized(value) for name, value in headers)


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    codec_id: int = Codec.NONE,
    leader_epoch: int = 0,
    is_log_append_time: bool = False,
    is_transactional: bool = False,
    is_control: bool = False,
    base_timestamp_ms: int | None = None,
    max_timestamp_ms: int | None = None,
    delete_horizon_ms: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """A batch of magic 2 as MemoryRecordsBuilder writes it. Offsets are inclusive, times epoch milliseconds.

    Omitted arguments come from the records: offsets and base timestamp from the first and last record, the max
    timestamp as the largest. Without records `base_offset` and `last_offset` are required and times are -1, as in a
    batch that compaction has emptied (DefaultRecordBatch.writeEmptyHeader). A `delete_horizon_ms` replaces the base
    timestamp, and timestamp deltas are relative to it (KIP-534). Kafka's coordinators write base sequence 0 even
    without a producer id, its markers -1. Raises EncodeError for what the format cannot represent.
    """
    if records:
        base_offset = records[0].offset if base_offset is None else base_offset
        last_offset = records[-1].offset if last_offset is None else last_offset
        base_timestamp_ms = records[0].timestamp_ms if base_timestamp_ms is None else base_timestamp_ms
        if max_timestamp_ms is None:
            max_timestamp_ms = max(record.timestamp_ms for record in records)
    if base_offset is None or last_offset is None:
        raise EncodeError("a batch without records needs its offsets")
    offsets = [base_offset - 1, *(record.offset for record in records), last_offset + 1]
    if any(later <= earlier for earlier, later in pairwise(offsets)) or last_offset < base_offset:
        raise EncodeError("record offsets must increase inside the batch's offsets")
    base_timestamp_ms = NO_TIMESTAMP if base_timestamp_ms is None else base_timestamp_ms
    max_timestamp_ms = NO_TIMESTAMP if max_timestamp_ms is None else max_timestamp_ms
    attributes = int(codec_id)
    if not Codec.NONE <= codec_id <= Codec.ZSTD:
        raise EncodeError(f"codec id {codec_id}")
    if delete_horizon_ms is not None:
        base_timestamp_ms = delete_horizon_ms
        attributes |= HAS_DELETE_HORIZON
    if is_log_append_time:
        attributes |= IS_LOG_APPEND_TIME
    if is_transactional:
        attributes |= IS_TRANSACTIONAL
    if is_control:
        attributes |= IS_CONTROL
    section = b"".join(encode_record(record, base_offset, base_timestamp_ms) for record in records)
    if records:
        section = compress(codec_id, section)
    try:
        covered = (
            AFTER_CRC_V2.pack(
                attributes,
                last_offset - base_offset,
                base_timestamp_ms,
                max_timestamp_ms,
                producer_id,
                producer_epoch,
                base_sequence,
                len(records),
            )
            + section
        )
        length = HEADER_BYTES_V2 - LOG_OVERHEAD_BYTES + len(section)
        if length > BATCH_BYTES_MAX:
            raise EncodeError(f"a batch of {length} bytes")
        head = struct.pack(">qiibI", base_offset, length, leader_epoch, 2, google_crc32c.value(covered))
    except struct.error as error:
        raise EncodeError(f"a header field does not fit: {error}") from None
    return head + covered


def build_marker(
    *,
    offset: int,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    is_commit: bool,
    coordinator_epoch: int,
    leader_epoch: int = 0,
) -> bytes:
    """The control batch that ends a transaction (MemoryRecords.withEndTransactionMarker, EndTransactionMarker).

    Key: int16 version 0, int16 type (0 ABORT, 1 COMMIT). Value: int16 version 0, int32 coordinator epoch.
    """
    marker = Record(
        offset=offset,
        timestamp_ms=timestamp_ms,
        key=struct.pack(">hh", 0, int(is_commit)),
        value=struct.pack(">hi", 0, coordinator_epoch),
    )
    return build_batch(
        (marker,),
        leader_epoch=leader_epoch,
        is_transactional=True,
        is_control=True,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
