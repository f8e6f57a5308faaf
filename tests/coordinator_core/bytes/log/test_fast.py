"""Compiled readers of integers, against Python's own."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.bytes.log import kernels
from coordinator_core.bytes.log.batch import Record, build_batch
from coordinator_core.bytes.log.chunk import U8


def array(data: bytes) -> U8:
    return np.frombuffer(data, np.uint8)


def varint(value: int) -> bytes:
    """Zigzag and base 128, as the format says it."""
    rest = 2 * value if value >= 0 else -2 * value - 1
    out = bytearray()
    while True:
        out.append((rest & 0x7F) | (0x80 if rest > 0x7F else 0))
        rest >>= 7
        if not rest:
            return bytes(out)


@given(st.integers(-(2**15), 2**15 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
def test_big_endian(short: int, middle: int, long: int) -> None:
    """Signed integers of two, four and eight bytes."""
    data = array(struct.pack(">xhiq", short, middle, long))
    assert (kernels.be16(data, 1), kernels.be32(data, 3), kernels.be64(data, 7)) == (short, middle, long)


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
def test_varints(middle: int, long: int) -> None:
    """Zigzag integers of up to 5 and 10 bytes, read exactly to their end, and refused when cut."""
    for read, value in ((kernels.read_varint, middle), (kernels.read_varlong, long)):
        data = varint(value)
        assert read(array(b"x" + data + b"rest"), 1, 1 + len(data) + 4) == (value, 1 + len(data))
        for end in range(len(data)):
            assert read(array(data), 0, end) == (0, -1)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\x00", (0, 1)),
        (b"\x7f", (127, 1)),
        (b"\x80\x01", (128, 2)),
        (b"\xff\xff\xff\xff\x0f", (2**32 - 1, 5)),
        (b"\xff\xff\xff\xff\x7f", (2**32 - 1, 5)),
        (b"\x80\x80\x80\x80\x80\x00", (0, -1)),
        (b"\x80", (0, -1)),
        (b"", (0, -1)),
    ],
)
def test_uvarint(data: bytes, expected: tuple[int, int]) -> None:
    """Five bytes at most; bits above the 32nd are dropped, as ByteUtils does."""
    assert kernels.read_uvarint(array(data), 0, len(data)) == expected


def test_varlong_of_eleven_bytes() -> None:
    """Ten bytes at most."""
    assert kernels.read_varlong(array(b"\x80" * 9 + b"\x01"), 0, 10) == (2**62, 10)
    assert kernels.read_varlong(array(b"\x80" * 10 + b"\x00"), 0, 11) == (0, -1)


def test_framing_is_the_same_for_views() -> None:
    """A writable buffer, a read-only one and a part of a larger one give the same columns."""
    batches = b"".join(build_batch([Record(offset, 1, b"k", b"v")]) for offset in range(5))
    writable = np.frombuffer(bytearray(b"??" + batches + b"!"), np.uint8)
    for data, start, end in ((array(batches), 0, len(batches)), (writable, 2, 2 + len(batches))):
        columns, is_true, stop_position, stop = kernels.frame_batches(data, start, end)
        assert columns[0].tolist() == [0, 1, 2, 3, 4]
        assert is_true.all()
        assert (stop_position, stop) == (end, kernels.STOP_END)
    assert writable.flags.writeable


@given(st.integers(0, 61))
def test_framing_stops_inside_a_batch(cut: int) -> None:
    """Where the bytes end inside a batch, framing says so, and counts only whole batches."""
    batch = build_batch([Record(0, 1, b"k", b"v")])
    data = array(batch + batch[:cut])
    columns, _, stop_position, stop = kernels.frame_batches(data, 0, len(data))
    assert len(columns[0]) == 1
    assert (stop_position, stop) == (len(batch), kernels.STOP_TRUNCATED if cut else kernels.STOP_END)
