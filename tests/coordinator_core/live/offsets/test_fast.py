"""Leaves of the compiled loops."""

from itertools import product

import numpy as np
import pytest

from coordinator_core.replay.columnar.offsets_kernels import gather_bytes, is_utf8

BORDERS = bytes.fromhex("00 41 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff")
"""First and last byte of every row in the table of well-formed UTF-8 (RFC 3629), and their neighbours."""


def is_python_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("size", range(4))
def test_is_utf8_agrees_with_python(size: int) -> None:
    """Every string of border bytes, alone and inside other bytes which are not part of it."""
    for letters in product(BORDERS, repeat=size):
        data = bytes(letters)
        assert is_utf8(np.frombuffer(b"\xc3" + data + b"\x80", np.uint8), 1, size) == is_python_utf8(data), data


@pytest.mark.parametrize("lead", [0xF0, 0xF1, 0xF3, 0xF4, 0xF5])
def test_is_utf8_agrees_with_python_on_four_bytes(lead: int) -> None:
    """Characters beyond the basic plane, whole and broken, with something behind them."""
    for letters in product(BORDERS, repeat=3):
        data = bytes((lead, *letters, 0x41))
        assert is_utf8(np.frombuffer(data, np.uint8), 0, 5) == is_python_utf8(data), data


def test_gather_bytes_takes_from_data_and_pool() -> None:
    """Negative positions are the pool's."""
    data, pool = np.frombuffer(b"0123456789", np.uint8), np.frombuffer(b"abcdef", np.uint8)
    out = np.zeros(7, np.uint8)
    gather_bytes(data, pool, np.array([3, ~0, 9, ~4]), np.array([0, 2, 5, 5, 7]), out)
    assert out.tobytes() == b"34abcef"
