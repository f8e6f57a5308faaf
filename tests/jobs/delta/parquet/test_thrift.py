"""The bytes of Thrift's compact protocol, as its specification writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.delta.parquet.thrift import (
    BINARY,
    I32,
    binary,
    boolean,
    i32,
    i64,
    list_of,
    nested,
    open_struct,
    struct,
    uvarint,
    zigzag,
)


def decoded(data: bytes) -> int:
    """An unsigned number of seven bits a byte, all of `data`."""
    assert all(byte & 128 for byte in data[:-1])
    assert not data[-1] & 128
    return sum((byte & 127) << 7 * place for place, byte in enumerate(data))


@given(st.integers(0, 63).flatmap(lambda bits: st.integers(0, 2**bits)))
def test_numbers_are_as_short_as_can_be(value: int) -> None:
    """Seven bits a byte, and no byte more than needed, whichever way a number is written."""
    data = uvarint(value)
    assert decoded(data) == value
    assert len(data) == max(1, -(-value.bit_length() // 7))


@given(st.integers(-(2**63), 2**63 - 1))
def test_signs_stand_in_the_lowest_bit(value: int) -> None:
    """So small numbers are short, whatever their sign."""
    number = decoded(zigzag(value))
    assert (number >> 1) ^ -(number & 1) == value


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (struct([]), "00"),
        (struct([i32(1, 1), i32(2, -1)]), "15 02 15 01 00"),
        (struct([i64(3, 64), binary(4, b"ab")]), "36 80 01 18 02 61 62 00"),
        (struct([boolean(1, value=True), boolean(2, value=False)]), "11 12 00"),
        (struct([nested(5, [i32(1, 0)])]), "5c 15 00 00 00"),
        (struct([list_of(1, I32, [zigzag(1), zigzag(2)])]), "19 25 02 04 00"),
        (struct([list_of(1, BINARY, [b"\x01a"] * 15)]), "19 f8 0f" + " 01 61" * 15 + " 00"),
        (struct([i32(4, 1)], open_struct([i32(1, 1)]), 1), "15 02 35 02 00"),
    ],
)
def test_structs_are_as_specified(made: bytes, expected: str) -> None:
    """A field is how far its number is from the one before, its type, its value; a struct ends with a zero."""
    assert made == bytes.fromhex(expected)
