"""Tests of the compiled CRC-32C."""

import google_crc32c
import numpy as np
import pytest

from coordinator_core.bytes.log import kernels, records
from coordinator_core.bytes.log.batch import Record, build_batch
from coordinator_core.bytes.log.crc32c import HAS_INSTRUCTION, crc32c
from coordinator_core.bytes.log.records import crc_valid_batches, frame_chunk


@pytest.mark.skipif(not HAS_INSTRUCTION, reason="the processor has no such instruction")
def test_compiled_checksum_is_that_of_the_library() -> None:
    """Of every length up to a few words, from any place on, and of a long range."""
    data = kernels.read_only(np.random.default_rng(1).integers(0, 256, 5000, np.uint8))
    for start in range(9):
        for length in (*range(40), 4001):
            assert crc32c(data, start, start + length) == google_crc32c.value(data[start : start + length])


@pytest.mark.parametrize("has_instruction", [HAS_INSTRUCTION, False])
def test_checksums_of_batches(monkeypatch: pytest.MonkeyPatch, has_instruction: bool) -> None:
    """A flipped bit is seen in its batch alone, with the processor's instruction and without."""
    monkeypatch.setattr(records, "HAS_INSTRUCTION", has_instruction)
    batches = [build_batch([Record(offset, 0, b"k", b"v" * offset, ())]) for offset in range(20)]
    data = np.frombuffer(b"".join(batches), np.uint8).copy()
    framed, _ = frame_chunk(data)
    data[int(framed.position[7]) + 70] ^= 1
    assert np.flatnonzero(~crc_valid_batches(data, framed)).tolist() == [7]
