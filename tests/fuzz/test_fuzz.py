"""The fuzzer runs, finds nothing in the real decoders, and finds what is planted."""

from collections.abc import Iterator
from typing import Any

import pytest

from coordinator_core.bytes import codec
from coordinator_core.bytes.log import records, scan
from coordinator_core.bytes.log.batch import Record
from tests.fuzz.check import Target, fuzz

SEED = 20_260
MUTANTS = 20_000


@pytest.mark.nights
def test_mutants_give_findings_or_decode_errors() -> None:
    """20,000 mutants of real batches and segments: nothing but findings and DecodeError, and both readers agree."""
    summary = fuzz(SEED, range(MUTANTS))
    assert summary.failures == []
    assert summary.mutants == MUTANTS
    # and they are neither all refused at the door nor all harmless
    assert summary.accepted > MUTANTS // 10
    assert summary.findings > MUTANTS // 4
    assert summary.records > MUTANTS
    assert summary.values_refused > MUTANTS // 100


def test_canary_unchecked_read() -> None:
    """A planted bug, a string in a key whose length is believed, is found: IndexError is not ours to raise."""

    def decode_key(topic: str, data: bytes) -> Any:
        key = codec.decode_key(topic, data[:2] + b"\0\0" + bytes(64))
        _ = data[3 + int.from_bytes(data[2:4], "big")]
        return key

    assert found_by(Target(decode_key=decode_key)).startswith("IndexError")


def test_canary_lost_record() -> None:
    """A planted bug, a plain reader which forgets the last record of damaged headers, is found by the other reader."""

    def iter_records(batch: bytes, *, bytes_max: int) -> Iterator[Record]:
        found = list(records.iter_records(batch, bytes_max=bytes_max))
        return iter(found[:-1] if batch[51] else found)

    assert "differ" in found_by(Target(iter_records=iter_records))


def test_canary_lost_bytes() -> None:
    """A planted bug, a scan which says nothing of what it skips, is found."""

    def scan_segment(data: bytes, **arguments: Any) -> scan.SegmentScan:
        found = scan.scan_segment(data, **arguments)
        return scan.SegmentScan(found.batches, found.crc_valid, (), (), found.next_offset, found.end_position)

    assert "nowhere" in found_by(Target(scan_segment=scan_segment))


def found_by(target: Target) -> str:
    """What the first failure says; the run must need few mutants for it."""
    failures = fuzz(SEED, range(3000), target, failures_max=1).failures
    assert failures
    return failures[0].what
