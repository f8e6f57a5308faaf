"""Packs records of which key, value, offset and time are known into batches of magic 2.

Where a dump shows the base offsets of the broker's batches, its batches are cut there; a producer, a transaction and a
marker are in their headers. Keys and values alone do not show batches. Replay treats consecutive records of one batch,
one timestamp and one group as one operation of the coordinator (CoordinatorRuntime.append gives all records of an
operation the same timestamp).
So a batch made here is never cut between two records of one timestamp, unless offsets are missing between them or it
would exceed BATCH_BYTES_MAX. Two operations that Kafka wrote into two batches in the same millisecond thus become
neighbours in one batch; nothing else about them changes. A record without a timestamp gets a batch of its own, since
its operation is unknown.

The cuts depend only on the records, not on how they are fed in.
"""

from dataclasses import dataclass
from typing import Any, Final

import google_crc32c
import numpy as np

from coordinator_core.bytes.log.batch import CRC_START_V2, IS_CONTROL, IS_LOG_APPEND_TIME, IS_TRANSACTIONAL
from coordinator_core.bytes.log.chunk import I32, I64, U8, BoolArray, Columns
from coordinator_core.bytes.log.kernels import HEADER_BYTES_V2, LOG_OVERHEAD_BYTES, compiled, read_only

BATCH_BYTES_TARGET: Final = 64 * 1024
"""A batch of this size ends at the next change of the timestamp: small enough to read, large enough to be few."""

BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""A batch ends here even between records of one timestamp. One operation of a coordinator is one batch of at most
max.message.bytes (1 MiB by default)."""

RECORD_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bound on key, value and headers of one record together; far above what a broker accepts."""

NO_HEADERS: Final = b"\x00"
"""The headers of a record without headers, in wire format: a count of 0."""


@dataclass(frozen=True, slots=True)
class PackableRecords(Columns):
    """Records of one log partition, ascending by offset, as columns of equal length. Times are epoch milliseconds.

    Keys, values and headers are byte ranges of three buffers; a length of -1 is null. Headers are in wire format,
    including their count, and never null. No record exceeds RECORD_BYTES_MAX.
    """

    offset: I64
    timestamp_ms: I64
    """-1: none."""
    is_log_append_time: BoolArray
    is_transactional: BoolArray
    is_control: BoolArray
    producer_id: I64
    """-1: none, or not known."""
    base_offset: I64
    """Of the record's batch; -1: not known."""
    key_data: U8
    key_start: I64
    key_length: I32
    value_data: U8
    value_start: I64
    value_length: I32
    header_data: U8
    header_start: I64
    header_length: I32


def pack_records(records: PackableRecords, *, is_end: bool = True) -> tuple[U8, int]:
    """Concatenated batches, and their number of records.

    Unless `is_end`, the last batch may continue with records that are not here yet: it is left out, and its records
    have to be fed again, before the following ones. Leader epoch, producer epoch and sequence are -1 in the batches.
    """
    parts = [_frozen(getattr(records, name)) for name in records.__slots__[OF_RECORD_COUNT:]]
    buffers, starts, lengths = parts[0::3], parts[1::3], parts[2::3]
    attributes = np.int64(IS_LOG_APPEND_TIME) * records.is_log_append_time + IS_TRANSACTIONAL * records.is_transactional
    attributes = _frozen(attributes + IS_CONTROL * records.is_control)
    columns = (_frozen(records.offset), _frozen(records.timestamp_ms), attributes, *lengths)
    bounds, sizes = _cuts(*columns, *map(_frozen, _known_bounds(records, attributes)))
    if not is_end:
        bounds, sizes = bounds[:-1], sizes[:-1]
    positions = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=positions[1:])
    data = np.empty(int(positions[-1]), np.uint8)
    _write_batches(data, positions, bounds, _frozen(records.producer_id), *columns, *starts, *buffers)
    for start, end in zip(positions[:-1].tolist(), positions[1:].tolist(), strict=True):
        crc = google_crc32c.value(data[start + CRC_START_V2 : end])
        data[start + CRC_POSITION : start + CRC_START_V2] = np.frombuffer(crc.to_bytes(4, "big"), np.uint8)
    return data, int(bounds[-1]) if len(bounds) else 0


CRC_POSITION: Final = 17
OF_RECORD_COUNT: Final = PackableRecords.__slots__.index("key_data")
"""Columns of records that are no byte ranges come first."""


def _known_bounds(records: PackableRecords, attributes: I64) -> tuple[BoolArray, BoolArray]:
    """Two arrays of one bool a record: does a batch begin with it, or is it of the batch of the record before? Neither:
    the dump does not show it."""
    begins, goes_on = np.zeros(len(attributes), np.bool_), np.zeros(len(attributes), np.bool_)
    base_offset = records.base_offset
    is_same = base_offset[1:] == base_offset[:-1]
    is_marker = records.is_control[1:] | records.is_control[:-1]
    begins[1:] = ~is_same | is_marker | (records.producer_id[1:] != records.producer_id[:-1])
    begins[1:] |= attributes[1:] != attributes[:-1]
    goes_on[1:] = is_same & (base_offset[1:] >= 0) & ~begins[1:]
    return begins, goes_on


def _frozen(column: Any) -> Any:
    """A contiguous, read-only view: Arrow's columns are read-only, and each loop is compiled once if the others are
    too.
    """
    return read_only(np.ascontiguousarray(column))


@compiled
def _zigzag(value: int) -> np.uint64:
    return np.uint64((np.int64(value) << np.int64(1)) ^ (np.int64(value) >> np.int64(63)))


@compiled
def _varint_size(value: int) -> int:
    """Bytes of a zigzag varint or varlong."""
    rest = _zigzag(value)
    size = 1
    while rest >= np.uint64(128):
        rest >>= np.uint64(7)
        size += 1
    return size


@compiled
def _body_size(timestamp_delta: int, offset_delta: int, key_length: int, value_length: int, header_length: int) -> int:
    """Bytes of a record after its length field; null takes only its length."""
    return (
        1
        + _varint_size(timestamp_delta)
        + _varint_size(offset_delta)
        + _varint_size(key_length)
        + max(key_length, 0)
        + _varint_size(value_length)
        + max(value_length, 0)
        + header_length
    )


@compiled
def _cuts(
    offset: I64,
    timestamp: I64,
    attributes: I64,
    key_length: I32,
    value_length: I32,
    header_length: I32,
    begins: BoolArray,
    goes_on: BoolArray,
) -> tuple[I64, I64]:
    """First row of each batch, plus the end of the last one; and the batch sizes in bytes. The last two arrays:
    `_known_bounds`."""
    count = len(offset)
    bounds = np.empty(count + 1, np.int64)
    sizes = np.empty(count, np.int64)
    batch = -1
    base_offset = np.int64(0)
    base_timestamp = np.int64(0)
    for row in range(count):
        is_cut = batch < 0
        body = 0
        if not is_cut:
            is_new_time = timestamp[row] != timestamp[row - 1]
            is_append_time = attributes[row] & IS_LOG_APPEND_TIME != 0
            is_cut = begins[row] or (
                not goes_on[row]
                and (
                    offset[row] != offset[row - 1] + 1
                    or timestamp[row] == -1
                    or timestamp[row - 1] == -1
                    or (is_new_time and (is_append_time or sizes[batch] >= BATCH_BYTES_TARGET))
                )
            )
            body = _body_size(
                int(timestamp[row] - base_timestamp),
                int(offset[row] - base_offset),
                int(key_length[row]),
                int(value_length[row]),
                int(header_length[row]),
            )
            is_cut = is_cut or sizes[batch] + body + _varint_size(body) > BATCH_BYTES_MAX
        if is_cut:
            batch += 1
            bounds[batch] = row
            sizes[batch] = HEADER_BYTES_V2
            base_offset, base_timestamp = offset[row], timestamp[row]
            body = _body_size(
                0,
                0,
                int(key_length[row]),
                int(value_length[row]),
                int(header_length[row]),
            )
        sizes[batch] += body + _varint_size(body)
    bounds[batch + 1] = count
    return bounds[: batch + 2], sizes[: batch + 1]


@compiled
def _put(data: U8, position: int, value: int, size: int) -> int:
    """Write a big-endian integer. Returns the position after it."""
    for index in range(size):
        shift = np.int64(8 * (size - 1 - index))
        data[position + index] = np.uint8((np.int64(value) >> shift) & np.int64(255))
    return position + size


@compiled
def _put_varint(data: U8, position: int, value: int) -> int:
    rest = _zigzag(value)
    while rest >= np.uint64(128):
        data[position] = np.uint8((rest & np.uint64(127)) | np.uint64(128))
        rest >>= np.uint64(7)
        position += 1
    data[position] = np.uint8(rest)
    return position + 1


@compiled
def _put_sized(data: U8, position: int, source: U8, start: int, length: int) -> int:
    position = _put_varint(data, position, length)
    if length > 0:
        data[position : position + length] = source[start : start + length]
        position += length
    return position


@compiled
def _write_batches(
    data: U8,
    positions: I64,
    bounds: I64,
    producer_id: I64,
    offset: I64,
    timestamp: I64,
    attributes: I64,
    key_length: I32,
    value_length: I32,
    header_length: I32,
    key_start: I64,
    value_start: I64,
    header_start: I64,
    key_data: U8,
    value_data: U8,
    header_data: U8,
) -> None:
    """Write complete batches, except for their checksums."""
    for batch in range(len(positions) - 1):
        first, end = bounds[batch], bounds[batch + 1]
        base_offset, base_timestamp = offset[first], timestamp[first]
        max_timestamp = base_timestamp
        for row in range(first + 1, end):
            max_timestamp = max(max_timestamp, timestamp[row])
        place = positions[batch]
        place = _put(data, place, base_offset, 8)
        place = _put(data, place, positions[batch + 1] - positions[batch] - LOG_OVERHEAD_BYTES, 4)
        place = _put(data, place, -1, 4)  # leader epoch
        place = _put(data, place, 2, 1)  # magic
        place = _put(data, place, 0, 4)  # checksum
        place = _put(data, place, attributes[first], 2)
        place = _put(data, place, offset[end - 1] - base_offset, 4)
        place = _put(data, place, base_timestamp, 8)
        place = _put(data, place, max_timestamp, 8)
        place = _put(data, place, producer_id[first], 8)
        place = _put(data, place, -1, 2)  # producer epoch
        place = _put(data, place, -1, 4)  # base sequence
        place = _put(data, place, end - first, 4)
        for row in range(first, end):
            body = _body_size(
                int(timestamp[row] - base_timestamp),
                int(offset[row] - base_offset),
                int(key_length[row]),
                int(value_length[row]),
                int(header_length[row]),
            )
            place = _put_varint(data, place, body)
            data[place] = 0  # attributes
            place = _put_varint(data, place + 1, timestamp[row] - base_timestamp)
            place = _put_varint(data, place, offset[row] - base_offset)
            place = _put_sized(data, place, key_data, key_start[row], int(key_length[row]))
            place = _put_sized(data, place, value_data, value_start[row], int(value_length[row]))
            start, length = header_start[row], int(header_length[row])
            data[place : place + length] = header_data[start : start + length]
            place += length
