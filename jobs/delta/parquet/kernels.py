"""Compiled loops that encode values into the bytes of Parquet pages.

Each function writes into `out` from a position on and returns the position after its output. The caller provides enough
room: see `bytes_max`. The encodings are those of Parquet's Encodings.md.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from coordinator_core.bytes.interning import equal_bytes
from coordinator_core.bytes.log.chunk import I32, U8
from coordinator_core.bytes.log.kernels import compiled

Numbers = NDArray[Any]
"""int32 or int64."""

BLOCK_VALUES: Final = 128
MINIBLOCK_VALUES: Final = 32
MINIBLOCKS: Final = BLOCK_VALUES // MINIBLOCK_VALUES
"""The sizes that other writers use; the format requires multiples of 128 and 32."""
BLOCK_BYTES_MAX: Final = 10 + MINIBLOCKS
"""Maximum size of a block header: the minimum delta and the bit widths of the miniblocks."""
SLACK_BYTES: Final = 8 * BLOCK_VALUES
"""Headers, padding of the last block, and the excess of an 8-byte store."""
BUFFERED_BITS_MAX: Final = 56
"""Maximum number of bits that can be added to an incomplete byte and stored as one 8-byte number."""
RUN_MIN: Final = 8
"""Minimum length of a run of equal values: bit packing works on groups of eight values."""


def bytes_max(count: int) -> int:
    """Upper bound of the output of any of these functions, for `count` values of up to 8 bytes."""
    return 8 * count + BLOCK_BYTES_MAX * (count // BLOCK_VALUES + 1) + SLACK_BYTES


@compiled
def _put_le64(out: U8, place: np.uint64, value: np.uint64) -> None:
    """Store 8 bytes, little-endian; compiles to one store."""
    out[place] = np.uint8(value & np.uint64(0xFF))
    out[place + np.uint64(1)] = np.uint8(value >> np.uint64(8) & np.uint64(0xFF))
    out[place + np.uint64(2)] = np.uint8(value >> np.uint64(16) & np.uint64(0xFF))
    out[place + np.uint64(3)] = np.uint8(value >> np.uint64(24) & np.uint64(0xFF))
    out[place + np.uint64(4)] = np.uint8(value >> np.uint64(32) & np.uint64(0xFF))
    out[place + np.uint64(5)] = np.uint8(value >> np.uint64(40) & np.uint64(0xFF))
    out[place + np.uint64(6)] = np.uint8(value >> np.uint64(48) & np.uint64(0xFF))
    out[place + np.uint64(7)] = np.uint8(value >> np.uint64(56))


@compiled
def _put_le32(out: U8, at: int, value: int) -> None:
    """Store 4 bytes, little-endian."""
    for index in range(4):
        out[at + index] = np.uint8(value >> (8 * index) & 0xFF)


@compiled
def _put_uvarint(out: U8, at: int, value: np.uint64) -> int:
    left = np.uint64(value)
    while left >= np.uint64(128):
        out[at] = np.uint8(left & np.uint64(127) | np.uint64(128))
        left >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(left)
    return at + 1


@compiled
def _put_zigzag(out: U8, at: int, value: np.int64) -> int:
    return _put_uvarint(out, at, np.uint64(value << np.int64(1) ^ value >> np.int64(63)))


@compiled
def _bit_length(value: np.uint64) -> np.uint64:
    left, width = np.uint64(value), np.uint64(0)
    for step in (32, 16, 8, 4, 2, 1):
        if left >> np.uint64(step):
            left >>= np.uint64(step)
            width += np.uint64(step)
    return width + left


@compiled
def _pack(values: Numbers, width: np.uint64, out: U8, at: int) -> int:
    """Pack unsigned values of `width` bits each, lowest bit first. `at` advances to the next whole byte. Up to 8
    bytes more than needed are written."""
    place, buffered, bits = np.uint64(at), np.uint64(0), np.uint64(0)
    count = len(values)
    index = 0
    twice = width + width
    # as many values at once as fit: fewer dependent steps are faster
    if twice + twice <= np.uint64(BUFFERED_BITS_MAX):
        for index in range(0, count - 3, 4):
            first = np.uint64(values[index]) | np.uint64(values[index + 1]) << width
            second = np.uint64(values[index + 2]) | np.uint64(values[index + 3]) << width
            buffered |= (first | second << twice) << bits
            _put_le64(out, place, buffered)
            bits += twice + twice
            place += bits >> np.uint64(3)
            buffered >>= bits & ~np.uint64(7)
            bits &= np.uint64(7)
        index = count // 4 * 4
    elif twice <= np.uint64(BUFFERED_BITS_MAX):
        for index in range(0, count - 1, 2):
            buffered |= (np.uint64(values[index]) | np.uint64(values[index + 1]) << width) << bits
            _put_le64(out, place, buffered)
            bits += twice
            place += bits >> np.uint64(3)
            buffered >>= bits & ~np.uint64(7)
            bits &= np.uint64(7)
        index = count // 2 * 2
    low_width = min(width, np.uint64(32))
    low_mask = (np.uint64(1) << low_width) - np.uint64(1)
    for rest in range(index, count):
        value = np.uint64(values[rest])
        # a value of up to 64 bits in two parts
        for part, part_width in ((value & low_mask, low_width), (value >> low_width, width - low_width)):
            buffered |= part << bits
            _put_le64(out, place, buffered)
            bits += part_width
            place += bits >> np.uint64(3)
            buffered >>= bits & ~np.uint64(7)
            bits &= np.uint64(7)
    return int(np.int64(place)) + (1 if bits else 0)


@compiled
def put_deltas(values: Numbers, out: U8, at: int) -> tuple[int, int, int]:
    """DELTA_BINARY_PACKED of at least one value: blocks of differences between neighbours, minus the block's minimum
    difference. Returns the position after them, the minimum and the maximum of the values.
    """
    count = len(values)
    at = _put_uvarint(out, at, np.uint64(BLOCK_VALUES))
    at = _put_uvarint(out, at, np.uint64(MINIBLOCKS))
    at = _put_uvarint(out, at, np.uint64(count))
    at = _put_zigzag(out, at, np.int64(values[0]))
    lowest = highest = values[0]
    # same type as the values: an overflowing difference wraps around, and back again when it is added
    deltas = np.empty(BLOCK_VALUES, values.dtype)
    packed = np.empty(BLOCK_VALUES, np.uint64)
    for start in range(1, count, BLOCK_VALUES):
        size = min(BLOCK_VALUES, count - start)
        block, before = values[start : start + size], values[start - 1 : start - 1 + size]
        for index in range(size):
            lowest = min(lowest, block[index])
            highest = max(highest, block[index])
            deltas[index] = block[index] - before[index]
        for index in range(size, BLOCK_VALUES):
            deltas[index] = deltas[0]
        least = greatest = deltas[0]
        for index in range(BLOCK_VALUES):
            least = min(least, deltas[index])
            greatest = max(greatest, deltas[index])
        at = _put_zigzag(out, at, np.int64(least))
        widths_at = at
        at += MINIBLOCKS
        out[widths_at:at] = 0
        if least == greatest:
            continue
        for index in range(BLOCK_VALUES):
            packed[index] = np.uint64(np.int64(deltas[index]) - np.int64(least))
        packed[size:] = 0
        for miniblock in range((size + MINIBLOCK_VALUES - 1) // MINIBLOCK_VALUES):
            own = packed[miniblock * MINIBLOCK_VALUES : (miniblock + 1) * MINIBLOCK_VALUES]
            together = np.uint64(0)
            for index in range(MINIBLOCK_VALUES):
                together |= own[index]
            width = _bit_length(together)
            out[widths_at + miniblock] = np.uint8(width)
            if width:
                at = _pack(own, width, out, at)
    return at, int(np.int64(lowest)), int(np.int64(highest))


@compiled
def put_runs(values: Numbers, width: int, out: U8, at: int) -> int:
    """RLE/bit-packing hybrid: unsigned values of `width` bits, as runs of equal values or as bit-packed groups of
    eight.
    """
    count = len(values)
    packed_from = index = 0
    while index < count:
        value = values[index]
        end = index + 1
        while end < count and values[end] == value:
            end += 1
        if end - index >= RUN_MIN:
            if index > packed_from:
                at = _put_packed(values, packed_from, index, width, out, at)
            at = _put_uvarint(out, at, np.uint64(end - index) << np.uint64(1))
            for byte in range((width + 7) // 8):
                out[at] = np.uint8(np.uint64(value) >> np.uint64(8 * byte) & np.uint64(0xFF))
                at += 1
            packed_from = index = end
        else:
            # values before a run complete a group of eight: bit-packed groups are always full, except the last one
            index = max(index + 1, packed_from + (end - packed_from) // RUN_MIN * RUN_MIN)
            index = packed_from + (index - packed_from + RUN_MIN - 1) // RUN_MIN * RUN_MIN
    if count > packed_from:
        at = _put_packed(values, packed_from, count, width, out, at)
    return at


@compiled
def _put_packed(values: Numbers, start: int, end: int, width: int, out: U8, at: int) -> int:
    groups = (end - start + 7) // 8
    at = _put_uvarint(out, at, np.uint64(groups) << np.uint64(1) | np.uint64(1))
    behind = at + groups * width
    at = _pack(values[start:end], np.uint64(width), out, at)
    while at < behind:
        out[at] = 0
        at += 1
    return behind


@compiled
def put_bits(bits: U8, count: int, out: U8, at: int) -> int:
    """RLE of one bit per value, from an Arrow bitmap (eight per byte, lowest bit first)."""
    whole = count // 8
    packed_from = index = 0
    while index < whole:
        byte = bits[index]
        end = index + 1
        if byte in (0, 255):
            while end < whole and bits[end] == byte:
                end += 1
        # a run costs two bytes, and the header of the next bit-packed group one
        if byte in (0, 255) and end - index > 3:
            if index > packed_from:
                at = _put_packed_bits(bits, packed_from, index, out, at)
            at = _put_uvarint(out, at, np.uint64(end - index) * np.uint64(8) << np.uint64(1))
            out[at] = byte & 1
            at += 1
            packed_from = end
        index = end
    if count > 8 * packed_from:
        at = _put_packed_bits(bits, packed_from, (count + 7) // 8, out, at)
    return at


@compiled
def _put_packed_bits(bits: U8, start: int, end: int, out: U8, at: int) -> int:
    at = _put_uvarint(out, at, np.uint64(end - start) << np.uint64(1) | np.uint64(1))
    for index in range(start, end):
        out[at] = bits[index]
        at += 1
    return at


@compiled
def dense(values: Numbers, valid: U8, into: Numbers) -> int:
    """Copy the values whose validity bit is set; returns their number."""
    at = 0
    for index in range(len(values)):
        into[at] = values[index]
        at += valid[index >> 3] >> (index & 7) & 1
    return at


@compiled
def dense_bits(bits: U8, valid: U8, count: int, out: U8, at: int) -> int:
    """Pack those of `count` bits whose validity bit is set."""
    buffered = filled = 0
    for index in range(count):
        if valid[index >> 3] >> (index & 7) & 1:
            buffered |= int(bits[index >> 3] >> (index & 7) & 1) << filled
            filled += 1
            if filled == 8:
                out[at] = np.uint8(buffered)
                at += 1
                buffered = filled = 0
    if filled:
        out[at] = np.uint8(buffered)
        at += 1
    return at


@compiled
def put_texts(offsets: I32, data: U8, valid: U8, out: U8, at: int) -> int:
    """PLAIN strings: each preceded by its length.

    Strings whose validity bit is not set are left out; an empty `valid` means that none is null.
    """
    for index in range(len(offsets) - 1):
        if len(valid) and not valid[index >> 3] >> (index & 7) & 1:
            continue
        text = data[offsets[index] : offsets[index + 1]]
        into = out[at + 4 : at + 4 + len(text)]
        _put_le32(out, at, len(text))
        for byte in range(len(text)):
            into[byte] = text[byte]
        at += 4 + len(text)
    return at


@compiled
def text_runs(offsets: I32, data: U8, valid: U8, heads: I32, lengths: I32) -> int:
    """Runs of equal strings, ignoring nulls: writes the first index and the length of each, and returns their
    number.
    """
    count = 0
    head, head_length = 0, -1
    for index in range(len(offsets) - 1):
        if len(valid) and not valid[index >> 3] >> (index & 7) & 1:
            continue
        start = offsets[index]
        length = offsets[index + 1] - start
        if length == head_length and equal_bytes(data, start, data, head, length):
            lengths[count - 1] += 1
            continue
        head, head_length = start, length
        heads[count] = index
        lengths[count] = 1
        count += 1
    return count


@compiled
def list_levels(offsets: I32, valid: U8, of_empty: int, of_element: int, repetition: U8, definition: U8) -> int:
    """Repetition and definition levels of a list column; returns their number.

    Repetition: 0 starts a row, 1 continues it. Definition: element present, list empty, or list null (one less than
    empty). `valid` is empty if no list is null.
    """
    at = 0
    for row in range(len(offsets) - 1):
        length = offsets[row + 1] - offsets[row]
        is_null = len(valid) and not valid[row >> 3] >> (row & 7) & 1
        if is_null or not length:
            repetition[at] = 0
            definition[at] = of_empty - 1 if is_null else of_empty
            at += 1
            continue
        for index in range(at, at + length):
            repetition[index] = 1
            definition[index] = of_element
        repetition[at] = 0
        at += length
    return at


@compiled
def less_of_nulls(definition: U8, of_element: int, valid: U8) -> None:
    """Lower the definition level of null elements by one."""
    element = 0
    for index in range(len(definition)):
        if definition[index] == of_element:
            if not valid[element >> 3] >> (element & 7) & 1:
                definition[index] = of_element - 1
            element += 1
