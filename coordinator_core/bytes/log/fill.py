"""Puts records that compaction removed from a batch back into it, from a copy that has only keys and values.

The cleaner does not change the offsets of a batch: a record at one of them was in that batch, with its leader epoch,
its producer and its transaction. So a dump's row at such an offset needs no batch of its own. Where the cleaned copy
has a record at an offset, it counts, whatever the dump has there.

  filled = with_records(cleaned, rows)
  without_records(filled, offsets) == cleaned    # if `cleaned` is not compressed
"""

import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from coordinator_core.bytes.log import kernels
from coordinator_core.bytes.log.batch import (
    AFTER_CRC_V2,
    HEADER_V2,
    BatchHeader,
    Record,
    build_batch,
    encode_record,
    parse_header,
    with_crc,
)
from coordinator_core.bytes.log.chunk import I32, I64, U8, BoolArray, RecordChunk
from coordinator_core.bytes.log.compression import Codec, decompress
from coordinator_core.bytes.log.copies import UNKNOWN_EPOCH
from coordinator_core.bytes.log.records import iter_records
from coordinator_core.errors import InvalidBatch
from coordinator_core.limits import BATCH_DECOMPRESSED_BYTES_MAX

CODEC_BITS: Final = 7
"""Bits of a batch's attributes."""


def uncompressed(batch: bytes) -> bytes:
    """The same batch without compression; a batch of message format 0 or 1 is converted to format 2."""
    header = parse_header(batch)
    if header.magic < 2:
        records = tuple(iter_records(batch))
        return build_batch(records, leader_epoch=UNKNOWN_EPOCH, is_log_append_time=header.is_log_append_time)
    if header.codec_id == Codec.NONE:
        return batch
    return _rebuilt(batch, header, dict(_raw_records(batch, header)), header.max_timestamp_ms)


def with_records(batch: bytes, records: Iterable[Record]) -> bytes:
    """Add records to a batch; they replace those at the same offsets. The result is not compressed.

    Raises subclasses of DecodeError for a batch that cannot be read, ValueError for offsets that it does not span.
    """
    batch = uncompressed(batch)
    header = parse_header(batch)
    found = dict(_raw_records(batch, header))
    max_timestamp_ms = header.max_timestamp_ms
    for record in records:
        if not header.base_offset <= record.offset <= header.last_offset:
            raise ValueError(f"offset {record.offset} is not in {header.base_offset} to {header.last_offset}")
        found[record.offset] = encode_record(record, header.base_offset, header.base_timestamp_ms)
        if not header.is_log_append_time:
            max_timestamp_ms = max(max_timestamp_ms, record.timestamp_ms)
    return _rebuilt(batch, header, found, max_timestamp_ms)


def without_records(batch: bytes, offsets: Collection[int]) -> bytes:
    """Remove the records at some offsets. The max timestamp becomes that of the remaining records, as after the
    cleaner.
    """
    batch = uncompressed(batch)
    header = parse_header(batch)
    gone = frozenset(offsets)
    found = {offset: raw for offset, raw in _raw_records(batch, header) if offset not in gone}
    max_timestamp_ms = header.max_timestamp_ms
    if not header.is_log_append_time:
        times = [record.timestamp_ms for record in iter_records(batch) if record.offset not in gone]
        max_timestamp_ms = max(times, default=-1)
    return _rebuilt(batch, header, found, max_timestamp_ms)


def is_same_but_for_latest_time(one: bytes, other: bytes) -> bool:
    """Whether two uncompressed batches are equal except for the header's max timestamp, which may be that of a removed
    record.
    """
    at = struct.calcsize(">qiibIhiq")
    return one[:17] + one[21:at] + one[at + 8 :] == other[:17] + other[21:at] + other[at + 8 :]


def _raw_records(batch: bytes, header: BatchHeader) -> Iterator[tuple[int, bytes]]:
    """Each record's offset and bytes, including its length, of a batch of message format 2."""
    section = batch[kernels.HEADER_BYTES_V2 :]
    if header.record_count > 0:
        section = decompress(header.codec_id, section, bytes_max=BATCH_DECOMPRESSED_BYTES_MAX)
    position = 0
    for record in iter_records(batch):
        length, start = _varint_at(section, position)
        yield record.offset, section[position : start + length]
        position = start + length


def _varint_at(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint, and the position after it. The bytes were validated before, so it is complete."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7


def decode_headers(data: bytes) -> tuple[tuple[str, bytes | None], ...]:
    """Headers of a record in the format of `encode_headers`."""
    count, position = _varint_at(data, 0)
    headers = []
    for _ in range(count):
        parts: list[bytes | None] = []
        for _ in range(2):
            length, position = _varint_at(data, position)
            parts.append(None if length < 0 else data[position : position + length])
            position += max(length, 0)
        headers.append(((parts[0] or b"").decode(errors="replace"), parts[1]))
    return tuple(headers)


def _rebuilt(batch: bytes, header: BatchHeader, raw: Mapping[int, bytes], max_timestamp_ms: int) -> bytes:
    section = b"".join(raw[offset] for offset in sorted(raw))
    attributes, delta, base_ms, _, producer_id, producer_epoch, base_sequence, _ = AFTER_CRC_V2.unpack_from(batch, 21)
    if header.is_control and len(raw) > header.record_count:
        raise InvalidBatch("a marker's batch has no other record")
    covered = AFTER_CRC_V2.pack(
        attributes & ~CODEC_BITS,
        delta,
        base_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        len(raw),
    )
    length = HEADER_V2.size - kernels.LOG_OVERHEAD_BYTES + len(section)
    head = struct.pack(">qiibI", header.base_offset, length, header.leader_epoch, 2, 0)
    return with_crc(head + covered + section)


@dataclass(frozen=True, slots=True)
class KeyValues:
    """Keys and values of records, ascending by offset, as byte ranges of two buffers; a length of -1 is null."""

    offset: I64
    key_data: U8
    key_start: I64
    key_length: I32
    value_data: U8
    value_start: I64
    value_length: I32

    def take(self, rows: I64) -> Self:
        return type(self)(
            self.offset[rows],
            self.key_data,
            self.key_start[rows],
            self.key_length[rows],
            self.value_data,
            self.value_start[rows],
            self.value_length[rows],
        )

    @classmethod
    def of_records(cls, records: Sequence[Record]) -> Self:
        parts: list[Any] = []
        for values in ([it.key for it in records], [it.value for it in records]):
            lengths = np.array([-1 if value is None else len(value) for value in values], np.int32)
            starts = np.zeros(len(values), np.int64)
            np.cumsum(np.maximum(lengths[:-1], 0), out=starts[1:])
            data = np.frombuffer(b"".join(value or b"" for value in values), np.uint8)
            parts += [data, starts, lengths]
        return cls(np.array([it.offset for it in records], np.int64), *parts)

    @classmethod
    def of(cls, chunk: RecordChunk) -> Self:
        """From decoded batches."""
        records, data = chunk.records, chunk.data
        return cls(
            records.offset,
            data,
            records.key_position,
            records.key_length,
            data,
            records.value_position,
            records.value_length,
        )


def compare(there: KeyValues, come: KeyValues) -> tuple[BoolArray, BoolArray]:
    """For each record in `come`: (whether `there` has no record at its offset, whether `there` has a different one)."""
    row = np.searchsorted(there.offset, come.offset)
    is_missing = np.ones(len(come.offset), np.bool_)
    is_in = row < len(there.offset)
    is_missing[is_in] = there.offset[row[is_in]] != come.offset[is_in]
    differs = np.zeros(len(come.offset), np.bool_)
    both = np.flatnonzero(~is_missing)
    if len(both):
        columns: list[Any] = []
        for copy, rows in ((there, row[both]), (come, both)):
            parts: list[Any] = [*(getattr(copy, name) for name in KeyValues.__slots__[1:]), rows]
            columns += [kernels.read_only(np.ascontiguousarray(part)) for part in parts]
        differs[both] = _differ(*columns)
    return is_missing, differs


@kernels.compiled
def _differ(
    keys: U8,
    key_start: I64,
    key_length: I32,
    values: U8,
    value_start: I64,
    value_length: I32,
    rows: I64,
    other_keys: U8,
    other_key_start: I64,
    other_key_length: I32,
    other_values: U8,
    other_value_start: I64,
    other_value_length: I32,
    other_rows: I64,
) -> BoolArray:
    differs = np.zeros(len(rows), np.bool_)
    for index in range(len(rows)):
        row, other = rows[index], other_rows[index]
        if key_length[row] != other_key_length[other] or value_length[row] != other_value_length[other]:
            differs[index] = True
            continue
        for place in range(max(key_length[row], 0)):
            if keys[key_start[row] + place] != other_keys[other_key_start[other] + place]:
                differs[index] = True
                break
        if differs[index]:
            continue
        for place in range(max(value_length[row], 0)):
            if values[value_start[row] + place] != other_values[other_value_start[other] + place]:
                differs[index] = True
                break
    return differs
