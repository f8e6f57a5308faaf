"""Compiled loops over batch headers and records.

Each function is plain Python that numba compiles. Nothing here raises, allocates by an unchecked length, or reads
outside `[position, end)`. Faults are returned as codes, and the callers in this package turn codes into errors and
findings. The layouts are Kafka's DefaultRecordBatch, DefaultRecord and LegacyRecord.
"""

from collections.abc import Callable
from typing import Final, TypeVar

import numpy as np
from numba import njit

from coordinator_core.bytes.log.chunk import CONTROL_NONE, CONTROL_UNKNOWN, I8, I16, I32, I64, U8, BoolArray
from coordinator_core.limits import BATCH_BYTES_MAX

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """numba's njit with the options for every loop of this project: a cache on disk, and no GIL while it runs.

    Constants are compiled in, and numba invalidates the cache by the modification time of the file with the loop: after
    a change of a constant in another file, the file that uses it must be touched too.
    """
    result: F = njit(cache=True, nogil=True)(function)
    return result


HEADER_BYTES_V2: Final = 61
"""DefaultRecordBatch.RECORD_BATCH_OVERHEAD."""
LOG_OVERHEAD_BYTES: Final = 12
"""Records.LOG_OVERHEAD: base offset and length, which are not part of the length."""
HEADER_BYTES_MIN: Final = 17
"""Records.HEADER_SIZE_UP_TO_MAGIC: FileLogInputStream needs this many bytes to find the magic."""
LENGTH_MIN_V2: Final = HEADER_BYTES_V2 - LOG_OVERHEAD_BYTES
LENGTH_MIN_V0: Final = 14
"""LegacyRecord.RECORD_OVERHEAD_V0."""
LENGTH_MIN_V1: Final = 22
"""LegacyRecord.RECORD_OVERHEAD_V1."""
RECORD_BYTES_MIN: Final = 7
"""One byte each: length, attributes, timestamp delta, offset delta, key length, value length, header count."""
INT64_MAX: Final = 2**63 - 1

STOP_END: Final = 0
"""Everything was framed, up to the end or the requested limit."""
STOP_TRUNCATED: Final = 1
"""The buffer ends inside a batch."""
STOP_LENGTH: Final = 2
"""A length that no batch can have."""
STOP_MAGIC: Final = 3
"""A magic other than 0, 1 and 2."""
STOP_OFFSET: Final = 4
"""Offsets go back, or jump further than is possible within a segment."""
STOP_HEADER: Final = 5
"""Contradictory header fields."""

RECORDS_FINE: Final = 0
RECORDS_UNDERFLOW: Final = 1
RECORDS_VARINT: Final = 2
RECORDS_LENGTH: Final = 3
RECORDS_FIELDS: Final = 4
RECORDS_REMAIN: Final = 5
RECORDS_COUNT: Final = 6


@compiled
def be16(data: U8, position: int) -> int:
    """Signed big-endian int16. The caller has checked the bounds.

    Here and below positions are unsigned: without a check for negative indexes the compiler merges the bytes into one
    load.
    """
    at = np.uint64(position)
    value = np.uint16(data[at]) << np.uint16(8) | np.uint16(data[at + np.uint64(1)])
    return int(np.int16(value))


@compiled
def be32(data: U8, position: int) -> int:
    """Signed big-endian int32. The caller has checked the bounds."""
    at = np.uint64(position)
    value = (
        np.uint32(data[at]) << np.uint32(24)
        | np.uint32(data[at + np.uint64(1)]) << np.uint32(16)
        | np.uint32(data[at + np.uint64(2)]) << np.uint32(8)
        | np.uint32(data[at + np.uint64(3)])
    )
    return int(np.int32(value))


@compiled
def be64(data: U8, position: int) -> int:
    """Signed big-endian int64. The caller has checked the bounds."""
    at = np.uint64(position)
    value = (
        np.uint64(data[at]) << np.uint64(56)
        | np.uint64(data[at + np.uint64(1)]) << np.uint64(48)
        | np.uint64(data[at + np.uint64(2)]) << np.uint64(40)
        | np.uint64(data[at + np.uint64(3)]) << np.uint64(32)
        | np.uint64(data[at + np.uint64(4)]) << np.uint64(24)
        | np.uint64(data[at + np.uint64(5)]) << np.uint64(16)
        | np.uint64(data[at + np.uint64(6)]) << np.uint64(8)
        | np.uint64(data[at + np.uint64(7)])
    )
    return int(np.int64(value))


@compiled
def le64(data: U8, at: np.uint64) -> np.uint64:
    """Eight bytes as a little-endian number. The caller has checked the bounds."""
    return np.uint64(
        np.uint64(data[at])
        | np.uint64(data[at + np.uint64(1)]) << np.uint64(8)
        | np.uint64(data[at + np.uint64(2)]) << np.uint64(16)
        | np.uint64(data[at + np.uint64(3)]) << np.uint64(24)
        | np.uint64(data[at + np.uint64(4)]) << np.uint64(32)
        | np.uint64(data[at + np.uint64(5)]) << np.uint64(40)
        | np.uint64(data[at + np.uint64(6)]) << np.uint64(48)
        | np.uint64(data[at + np.uint64(7)]) << np.uint64(56)
    )


@compiled
def read_uvarint(data: U8, position: int, end: int) -> tuple[int, int]:
    """Unsigned int32 of at most 5 bytes (ByteUtils.readUnsignedVarint): (value, next position), or (0, -1)."""
    value = np.int64(0)
    shift = 0
    while shift < 35:
        if position >= end:
            return 0, -1
        byte = np.int64(data[np.uint64(position)])
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return int(value & 0xFFFFFFFF), position
        shift += 7
    return 0, -1


@compiled
def read_varint(data: U8, position: int, end: int) -> tuple[int, int]:
    """Zigzag int32 of at most 5 bytes (ByteUtils.readVarint): (value, next position), or (0, -1)."""
    value, next_position = read_uvarint(data, position, end)
    return (value >> 1) ^ -(value & 1), next_position


@compiled
def read_varlong(data: U8, position: int, end: int) -> tuple[int, int]:
    """Zigzag int64 of at most 10 bytes (ByteUtils.readVarlong): (value, next position), or (0, -1)."""
    value = np.uint64(0)
    shift = 0
    while shift < 70:
        if position >= end:
            return 0, -1
        byte = np.uint64(data[np.uint64(position)])
        position += 1
        value |= (byte & np.uint64(127)) << np.uint64(shift)
        if byte < np.uint64(128):
            return int(np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))), position
        shift += 7
    return 0, -1


@compiled
def _framing(data: U8, position: int, end: int) -> tuple[int, int]:
    """(stop code, batch size) of the header at `position`: it reads only what is needed to find the next one."""
    if end - position < HEADER_BYTES_MIN:
        return STOP_TRUNCATED, 0
    magic = data[position + 16]
    if magic > 2:
        return STOP_MAGIC, 0
    length = be32(data, position + 8)
    length_min = LENGTH_MIN_V2 if magic == 2 else (LENGTH_MIN_V1 if magic == 1 else LENGTH_MIN_V0)
    if length < length_min or length > BATCH_BYTES_MAX:
        return STOP_LENGTH, 0
    size = LOG_OVERHEAD_BYTES + length
    if size > end - position:
        return STOP_TRUNCATED, size
    return STOP_END, size


@compiled
def _is_header_true(data: U8, position: int) -> bool:
    """Whether the fields of this whole batch are consistent. Offsets are checked first, since the checksum does not
    cover the base offset.
    """
    base_offset = be64(data, position)
    if base_offset < 0:
        return False
    if data[position + 16] < 2:
        return True
    last_offset_delta = be32(data, position + 23)
    record_count = be32(data, position + 57)
    # a compacted batch keeps its last offset delta, so it may have fewer records than offsets but never more
    if last_offset_delta < 0 or base_offset > INT64_MAX - last_offset_delta:
        return False
    return 0 <= record_count <= last_offset_delta + 1


@compiled
def _last_offset(data: U8, position: int) -> int:
    """Last offset of a batch with a consistent header. A legacy message, wrapper or not, has its last offset in the
    header.
    """
    if data[position + 16] < 2:
        return be64(data, position)
    return be64(data, position) + be32(data, position + 23)


@compiled
def _is_out_of_order(data: U8, position: int, size: int, end: int, offset_min: int, offset_max: int) -> bool:
    """Whether the batch at `position` itself breaks the offset order of the log, and not a damaged neighbour.

    The checksum does not cover the base offset, so a flipped bit there shows only by comparison with the neighbours. Of
    two overlapping batches, the first is right if it continues exactly where the log was, or if it would not fit in
    before the second; otherwise it is wrong, unless the second would fit in after it.
    """
    base_offset = be64(data, position)
    last_offset = _last_offset(data, position)
    if base_offset < offset_min or last_offset > offset_max:
        return True
    if base_offset == offset_min:
        return False
    second = position + size
    stop, second_size = _framing(data, second, end)
    if stop != STOP_END:
        return False
    second_offset = be64(data, second)
    if second_offset > last_offset or second_offset - offset_min <= last_offset - base_offset:
        return False
    third = second + second_size
    stop, _ = _framing(data, third, end)
    return stop != STOP_END or be64(data, third) - last_offset - 1 <= _last_offset(data, second) - second_offset


@compiled
def _control_type(data: U8, position: int, end: int) -> int:
    """ControlRecordType id from the key of the record at `position`, or CONTROL_UNKNOWN."""
    _, position = read_varint(data, position, end)
    if position < 0:
        return CONTROL_UNKNOWN
    _, position = read_varlong(data, position + 1, end)
    if position < 0:
        return CONTROL_UNKNOWN
    _, position = read_varint(data, position, end)
    if position < 0:
        return CONTROL_UNKNOWN
    key_length, position = read_varint(data, position, end)
    if position < 0 or key_length < 4 or key_length > end - position or be16(data, position) < 0:
        return CONTROL_UNKNOWN
    control_type = be16(data, position + 2)
    return control_type if 0 <= control_type < CONTROL_UNKNOWN else CONTROL_UNKNOWN


@compiled
def _count_batches(
    data: U8, position: int, next_start: int, end: int, is_ordered: bool, offset_min: int, offset_max: int
) -> tuple[int, int, int]:
    """First pass: (number of batches, where it stopped, stop code)."""
    count = 0
    while position < next_start:
        stop, size = _framing(data, position, end)
        if stop != STOP_END:
            return count, position, stop
        if is_ordered:
            if not _is_header_true(data, position):
                return count, position, STOP_HEADER
            if _is_out_of_order(data, position, size, end, offset_min, offset_max):
                return count, position, STOP_OFFSET
            offset_min = _last_offset(data, position) + 1
        position += size
        count += 1
    return count, position, STOP_END


BatchArrays = tuple[
    I64, I64, I32, I8, I8, BoolArray, BoolArray, BoolArray, I8, I64, I64, BoolArray, I64, I16, I32, I32, I64, I64
]


@compiled
def _frame_batches(
    data: U8, position: int, next_start: int, end: int, is_ordered: bool, offset_min: int, offset_max: int
) -> tuple[BatchArrays, BoolArray, int, int]:
    count, stop_position, stop = _count_batches(data, position, next_start, end, is_ordered, offset_min, offset_max)
    base_offset = np.empty(count, np.int64)
    last_offset = np.empty(count, np.int64)
    leader_epoch = np.full(count, -1, np.int32)
    magic = np.empty(count, np.int8)
    codec = np.empty(count, np.int8)
    is_log_append_time = np.zeros(count, np.bool_)
    is_transactional = np.zeros(count, np.bool_)
    is_control = np.zeros(count, np.bool_)
    control_type = np.full(count, CONTROL_NONE, np.int8)
    base_timestamp = np.full(count, -1, np.int64)
    max_timestamp = np.full(count, -1, np.int64)
    has_delete_horizon = np.zeros(count, np.bool_)
    producer_id = np.full(count, -1, np.int64)
    producer_epoch = np.full(count, -1, np.int16)
    base_sequence = np.full(count, -1, np.int32)
    record_count = np.ones(count, np.int32)
    positions = np.empty(count, np.int64)
    sizes = np.empty(count, np.int64)
    is_true = np.empty(count, np.bool_)
    for row in range(count):
        size = LOG_OVERHEAD_BYTES + be32(data, position + 8)
        positions[row] = position
        sizes[row] = size
        magic[row] = data[position + 16]
        base_offset[row] = be64(data, position)
        is_true[row] = _is_header_true(data, position)
        if magic[row] < 2:
            attributes = np.int64(data[position + 17])
            last_offset[row] = base_offset[row]
            codec[row] = attributes & 7
            if magic[row] == 1:
                is_log_append_time[row] = attributes & 8 != 0
                base_timestamp[row] = be64(data, position + 18)
                max_timestamp[row] = base_timestamp[row]
        else:
            attributes = np.int64(be16(data, position + 21))
            last_offset[row] = base_offset[row] + be32(data, position + 23)
            leader_epoch[row] = be32(data, position + 12)
            codec[row] = attributes & 7
            is_log_append_time[row] = attributes & 8 != 0
            is_transactional[row] = attributes & 16 != 0
            is_control[row] = attributes & 32 != 0
            has_delete_horizon[row] = attributes & 64 != 0
            base_timestamp[row] = be64(data, position + 27)
            max_timestamp[row] = be64(data, position + 35)
            producer_id[row] = be64(data, position + 43)
            producer_epoch[row] = be16(data, position + 51)
            base_sequence[row] = be32(data, position + 53)
            record_count[row] = be32(data, position + 57)
            if is_control[row] and codec[row] == 0 and record_count[row] > 0:
                control_type[row] = _control_type(data, position + HEADER_BYTES_V2, position + size)
        position += size
    return (
        (
            base_offset,
            last_offset,
            leader_epoch,
            magic,
            codec,
            is_log_append_time,
            is_transactional,
            is_control,
            control_type,
            base_timestamp,
            max_timestamp,
            has_delete_horizon,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
            positions,
            sizes,
        ),
        is_true,
        stop_position,
        stop,
    )


def frame_batches(data: U8, position: int, end: int) -> tuple[BatchArrays, BoolArray, int, int]:
    """Walk the headers of consecutive batches in `data[position:end]`, in any offset order.

    Returns the columns of `BatchColumns` in their order, whether each header is consistent (one that is not is still
    framed), where the walk stopped and its STOP_ code. A compressed legacy wrapper counts as one record and has its
    last offset.
    """
    return _frame_batches(read_only(data), position, end, end, False, 0, INT64_MAX)


def frame_ordered_batches(
    data: U8, position: int, end: int, offset_min: int, offset_max: int, *, next_start: int | None = None
) -> tuple[BatchArrays, BoolArray, int, int]:
    """`frame_batches` for a segment: it also stops at inconsistent headers and at offsets outside the order of the log.

    `next_start`: batches that start there or later are not framed, but are read to judge the others.
    """
    next_start = end if next_start is None else min(next_start, end)
    return _frame_batches(read_only(data), position, next_start, end, True, offset_min, offset_max)


@compiled
def next_header(data: U8, position: int, end: int, offset_min: int, offset_max: int) -> int:
    """The first position from `position` on where a complete batch with a plausible header starts; -1 if there is
    none. `data` is read-only."""
    while end - position >= HEADER_BYTES_MIN:
        if data[position + 16] <= 2 and offset_min <= be64(data, position) <= offset_max:
            stop, _ = _framing(data, position, end)
            if stop == STOP_END and _is_header_true(data, position) and _last_offset(data, position) <= offset_max:
                return position
        position += 1
    return -1


@compiled
def skip_zeros(data: U8, position: int, end: int) -> int:
    """The position of the first non-zero byte from `position` on, or `end`. `data` is read-only."""
    while position < end and data[position] == 0:
        position += 1
    return position


RecordArrays = tuple[I32, I64, I64, I64, I32, I64, I32]


@compiled
def frame_records(  # noqa: C901  (one pass over bytes or rows, compiled: calls would cost as much as the work)
    data: U8,
    rows: I64,
    starts: I64,
    ends: I64,
    base_offsets: I64,
    last_offsets: I64,
    base_timestamps: I64,
    max_timestamps: I64,
    is_log_append_time: BoolArray,
    record_counts: I32,
) -> tuple[RecordArrays, I8, I64]:
    """Walk the records of v2 batches in read-only bytes. Returns the columns of `RecordColumns` in their order, and a
    status and a fault position for each batch.

    `rows` are batch rows, `starts` and `ends` the positions of their (decompressed) record sections in `data`; the
    other arrays are whole batch columns. A batch whose status is not RECORDS_FINE has no records in the result; its
    fault position is where reading failed. Declared counts are only allocated if the bytes can contain so many records.
    """
    capacity = 0
    for item in range(len(rows)):
        count = int(record_counts[rows[item]])
        if 0 < count <= (ends[item] - starts[item]) // RECORD_BYTES_MIN:
            capacity += count
    batch_index = np.empty(capacity, np.int32)
    offsets = np.empty(capacity, np.int64)
    timestamps = np.empty(capacity, np.int64)
    key_positions = np.empty(capacity, np.int64)
    key_lengths = np.empty(capacity, np.int32)
    value_positions = np.empty(capacity, np.int64)
    value_lengths = np.empty(capacity, np.int32)
    statuses = np.zeros(len(rows), np.int8)
    fault_positions = np.zeros(len(rows), np.int64)
    filled = 0
    for item in range(len(rows)):
        row = rows[item]
        position = starts[item]
        end = ends[item]
        count = int(record_counts[row])
        base_offset = base_offsets[row]
        delta_max = last_offsets[row] - base_offset
        delta_min = 0
        base_timestamp = base_timestamps[row]
        max_timestamp = max_timestamps[row]
        is_max_timestamp = is_log_append_time[row]
        status = RECORDS_FINE
        if count < 0 or count > (end - position) // RECORD_BYTES_MIN:
            status = RECORDS_COUNT
            count = 0
        cursor = filled
        for _ in range(count):
            fault = position
            length, position = read_varint(data, position, end)
            if position < 0:
                status = RECORDS_VARINT if end - fault >= 5 else RECORDS_UNDERFLOW
                position = fault
                break
            if length < RECORD_BYTES_MIN - 1 or length > end - position:
                status = RECORDS_LENGTH
                position = fault
                break
            record_end = position + length
            position += 1  # skip the attributes, which have no used bits (DefaultRecord)
            fault = position
            timestamp_delta, position = read_varlong(data, position, record_end)
            if position < 0:
                status = RECORDS_VARINT if record_end - fault >= 10 else RECORDS_UNDERFLOW
                position = fault
                break
            fault = position
            offset_delta, position = read_varint(data, position, record_end)
            if position < 0:
                status = RECORDS_VARINT if record_end - fault >= 5 else RECORDS_UNDERFLOW
                position = fault
                break
            if offset_delta < delta_min or offset_delta > delta_max:
                status = RECORDS_FIELDS
                position = fault
                break
            delta_min = offset_delta + 1
            fault = position
            key_length, position = read_varint(data, position, record_end)
            if position < 0:
                status = RECORDS_VARINT if record_end - fault >= 5 else RECORDS_UNDERFLOW
                position = fault
                break
            key_position = position
            if key_length > 0:
                if key_length > record_end - position:
                    status = RECORDS_LENGTH
                    position = fault
                    break
                position += key_length
            fault = position
            value_length, position = read_varint(data, position, record_end)
            if position < 0:
                status = RECORDS_VARINT if record_end - fault >= 5 else RECORDS_UNDERFLOW
                position = fault
                break
            value_position = position
            if value_length > 0:
                if value_length > record_end - position:
                    status = RECORDS_LENGTH
                    position = fault
                    break
                position += value_length
            fault = position
            header_count, position = read_varint(data, position, record_end)
            if position < 0:
                status = RECORDS_VARINT if record_end - fault >= 5 else RECORDS_UNDERFLOW
                position = fault
                break
            if header_count < 0 or header_count > record_end - position:
                status = RECORDS_LENGTH
                position = fault
                break
            # a header key is never null, a header value may be: keys have the even indexes
            for part in range(2 * header_count):
                fault = position
                part_length, position = read_varint(data, position, record_end)
                if position < 0:
                    status = RECORDS_VARINT if record_end - fault >= 5 else RECORDS_UNDERFLOW
                    break
                if part_length > record_end - position or (part_length < 0 and part % 2 == 0):
                    status = RECORDS_LENGTH
                    break
                if part_length > 0:
                    position += part_length
            if status != RECORDS_FINE:
                position = fault
                break
            if position != record_end:
                status = RECORDS_FIELDS
                break
            batch_index[cursor] = row
            offsets[cursor] = base_offset + offset_delta
            timestamps[cursor] = max_timestamp if is_max_timestamp else base_timestamp + timestamp_delta
            key_positions[cursor] = key_position
            key_lengths[cursor] = max(key_length, -1)
            value_positions[cursor] = value_position
            value_lengths[cursor] = max(value_length, -1)
            cursor += 1
        if status == RECORDS_FINE and position != end:
            status = RECORDS_REMAIN
        if status == RECORDS_FINE:
            filled = cursor
        statuses[item] = status
        fault_positions[item] = position
    return (
        (
            batch_index[:filled],
            offsets[:filled],
            timestamps[:filled],
            key_positions[:filled],
            key_lengths[:filled],
            value_positions[:filled],
            value_lengths[:filled],
        ),
        statuses,
        fault_positions,
    )


@compiled
def _xxh32(data: U8, position: int, end: int) -> int:
    mask = 0xFFFFFFFF
    prime1 = 2654435761
    prime2 = 2246822519
    prime3 = 3266489917
    prime4 = 668265263
    prime5 = 374761393
    size = end - position
    if size >= 16:
        lane1 = (prime1 + prime2) & mask
        lane2 = prime2
        lane3 = 0
        lane4 = (-prime1) & mask
        while end - position >= 16:
            lane1 = _xxh32_round(lane1, data, position)
            lane2 = _xxh32_round(lane2, data, position + 4)
            lane3 = _xxh32_round(lane3, data, position + 8)
            lane4 = _xxh32_round(lane4, data, position + 12)
            position += 16
        value = _rotated(lane1, 1) + _rotated(lane2, 7) + _rotated(lane3, 12) + _rotated(lane4, 18)
    else:
        value = prime5
    value = (value + size) & mask
    while end - position >= 4:
        value = (value + _le32(data, position) * prime3) & mask
        value = (_rotated(value, 17) * prime4) & mask
        position += 4
    while position < end:
        value = (value + int(data[position]) * prime5) & mask
        value = (_rotated(value, 11) * prime1) & mask
        position += 1
    value = ((value ^ (value >> 15)) * prime2) & mask
    value = ((value ^ (value >> 13)) * prime3) & mask
    return value ^ (value >> 16)


@compiled
def _le32(data: U8, position: int) -> int:
    return int(
        np.int64(data[position])
        | (np.int64(data[position + 1]) << 8)
        | (np.int64(data[position + 2]) << 16)
        | (np.int64(data[position + 3]) << 24)
    )


@compiled
def _rotated(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & 0xFFFFFFFF


@compiled
def _xxh32_round(lane: int, data: U8, position: int) -> int:
    lane = (lane + _le32(data, position) * 2246822519) & 0xFFFFFFFF
    return (_rotated(lane, 13) * 2654435761) & 0xFFFFFFFF


def xxh32(data: bytes) -> int:
    """xxHash-32 with seed 0, the checksum of the LZ4 frame format."""
    return int(_xxh32(np.frombuffer(data, np.uint8), 0, len(data)))


def read_only(data: U8) -> U8:
    """The same bytes as a read-only view, so that each loop is compiled once, for mapped files and buffers alike."""
    if data.flags.writeable:
        data = data.view()
        data.flags.writeable = False
    return data
