"""Headers, checksums and the encoder of record batches."""

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.bytes.log.batch import (
    BatchHeader,
    Record,
    build_batch,
    build_marker,
    parse_header,
    verify_crc,
    with_crc,
)
from coordinator_core.bytes.log.compression import Codec
from coordinator_core.bytes.log.records import iter_records
from coordinator_core.errors import (
    BufferUnderflow,
    CrcMismatch,
    DecodeError,
    EncodeError,
    InvalidBatch,
    LengthOutOfBounds,
    TruncatedBatch,
)
from tests.conformance.families.batches import read_vectors, rebuilt, run

VECTORS = Path(__file__).parents[3] / "data" / "vectors" / "batches" / "batches.jsonl"
BATCH = build_batch([Record(7, 1000, b"k", b"v"), Record(9, 900, None, None)], leader_epoch=3)


def test_vectors_of_kafkas_builders() -> None:
    """All batches, markers and legacy sets of Kafka's own builders are read, and written with the same bytes."""
    cases, passed, failures = run(VECTORS)
    assert (cases, failures) == (21, [])
    assert passed == cases


def test_conformance_runner_notices_a_changed_byte(tmp_path: Path) -> None:
    """The judge of the vectors is itself judged: one other byte in a value, checksum repaired, is a failure."""
    vectors = read_vectors(VECTORS)
    batch = vectors["v2-none-small"]
    changed = with_crc(batch[:-1] + b"\x02")
    file = tmp_path / "batches.jsonl"
    file.write_text(
        f'{{"name": "v2-none-small", "hex": "{batch.hex()}"}}\n{{"name": "v2-gzip-small", "hex": "{changed.hex()}"}}\n'
    )
    cases, passed, failures = run(file)
    assert (cases, passed) == (2, 1)
    assert failures[0].startswith("v2-gzip-small")


def test_parse_header() -> None:
    """Every field of a header, by hand."""
    batch = build_batch(
        [Record(100, 5000, b"k", b"v")],
        last_offset=104,
        codec_id=Codec.LZ4,
        leader_epoch=9,
        is_log_append_time=True,
        is_transactional=True,
        base_timestamp_ms=4000,
        max_timestamp_ms=6000,
        producer_id=4711,
        producer_epoch=3,
        base_sequence=12,
    )
    assert parse_header(b"xx" + batch + b"more", 2) == BatchHeader(
        base_offset=100,
        last_offset=104,
        leader_epoch=9,
        magic=2,
        crc=int.from_bytes(batch[17:21], "big"),
        codec_id=3,
        is_log_append_time=True,
        is_transactional=True,
        is_control=False,
        base_timestamp_ms=4000,
        max_timestamp_ms=6000,
        has_delete_horizon=False,
        producer_id=4711,
        producer_epoch=3,
        base_sequence=12,
        record_count=1,
        size=len(batch),
    )


def patched(position: int, layout: str, value: int) -> bytes:
    field = struct.pack(layout, value)
    return BATCH[:position] + field + BATCH[position + len(field) :]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        pytest.param(b"", TruncatedBatch, id="nothing"),
        pytest.param(BATCH[:16], TruncatedBatch, id="magic missing"),
        pytest.param(BATCH[:-1], TruncatedBatch, id="last byte missing"),
        pytest.param(bytes(61), LengthOutOfBounds, id="zeros"),
        pytest.param(patched(8, ">i", 48), LengthOutOfBounds, id="length below a header"),
        pytest.param(patched(8, ">i", -1), LengthOutOfBounds, id="negative length"),
        pytest.param(patched(8, ">i", 2**31 - 1), LengthOutOfBounds, id="absurd length"),
        pytest.param(patched(16, ">b", 3), InvalidBatch, id="magic 3"),
        pytest.param(patched(16, ">b", -1), InvalidBatch, id="magic 255"),
        pytest.param(patched(0, ">q", -1), InvalidBatch, id="negative base offset"),
        pytest.param(patched(0, ">q", 2**63 - 1), InvalidBatch, id="offsets overflow"),
        pytest.param(patched(23, ">i", -1), InvalidBatch, id="negative last offset delta"),
        pytest.param(patched(57, ">i", -1), InvalidBatch, id="negative record count"),
        pytest.param(patched(57, ">i", 4), InvalidBatch, id="more records than offsets"),
    ],
)
def test_parse_header_refuses(data: bytes, kind: type[DecodeError]) -> None:
    """A header which cannot be true raises the error of its kind."""
    with pytest.raises(kind):
        parse_header(data)


def test_every_flipped_bit_after_the_checksum_is_found() -> None:
    """The checksum covers all but base offset, length, leader epoch and magic."""
    verify_crc(BATCH)
    for position in range(17, len(BATCH)):
        with pytest.raises(CrcMismatch):
            verify_crc(BATCH[:position] + bytes((BATCH[position] ^ 1,)) + BATCH[position + 1 :])
    verify_crc(patched(12, ">i", 77))
    for size in (0, 16, 60):
        with pytest.raises(BufferUnderflow):
            verify_crc(BATCH[:size])


def test_marker() -> None:
    """A marker is 78 bytes, transactional and control, and survives a delete horizon in 81."""
    marker = build_marker(
        offset=5, timestamp_ms=1_700_000_000_000, producer_id=1, producer_epoch=2, is_commit=True, coordinator_epoch=7
    )
    assert len(marker) == 78
    header = parse_header(marker)
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    assert [(r.key, r.value) for r in iter_records(marker)] == [(b"\0\0\0\1", b"\0\0\0\0\0\7")]
    cleaned = build_batch(
        list(iter_records(marker)),
        is_transactional=True,
        is_control=True,
        delete_horizon_ms=1_700_000_090_000,
        producer_id=1,
        producer_epoch=2,
    )
    assert len(cleaned) > len(marker)
    assert list(iter_records(cleaned)) == list(iter_records(marker))
    assert parse_header(cleaned).base_timestamp_ms == 1_700_000_090_000


RECORDS = st.lists(
    st.tuples(
        st.integers(1, 5),
        st.integers(-(2**40), 2**40),
        st.none() | st.binary(max_size=40),
        st.none() | st.binary(max_size=40),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
    ),
    max_size=12,
)


@given(rows=RECORDS, base=st.integers(0, 2**62), codec_id=st.sampled_from(list(Codec)), tail=st.integers(0, 5))
def test_batches_round_trip(rows: list[Any], base: int, codec_id: int, tail: int) -> None:
    """Records written are the records read, and writing what was read gives the same bytes."""
    records = []
    offset = base
    for step, timestamp_ms, key, value, headers in rows:
        offset += step
        records.append(Record(offset, timestamp_ms, key, value, tuple(headers)))
    batch = build_batch(records, base_offset=base, last_offset=offset + tail, codec_id=codec_id)
    verify_crc(batch)
    assert list(iter_records(batch)) == records
    assert rebuilt(batch, records) == batch


def test_build_batch_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no reader would believe is not written."""
    monkeypatch.setattr("coordinator_core.bytes.log.batch.BATCH_BYTES_MAX", 1000)
    assert len(build_batch([Record(0, 0, None, bytes(900))])) < 1012
    with pytest.raises(EncodeError):
        build_batch([Record(0, 0, None, bytes(1000))])


@pytest.mark.parametrize(
    "arguments",
    [
        {"records": []},
        {"records": [], "base_offset": 4, "last_offset": 3},
        {"records": [Record(3, 0, None, None), Record(3, 0, None, None)]},
        {"records": [Record(3, 0, None, None)], "base_offset": 4},
        {"records": [Record(3, 0, None, None)], "last_offset": 2},
        {"records": [Record(3, 0, None, None)], "codec_id": 5},
        {"records": [Record(3, 0, None, None)], "producer_epoch": 2**15},
        {"records": [Record(2**63, 0, None, None)]},
        {"records": [Record(0, 0, None, None)], "last_offset": 2**31},
    ],
)
def test_build_batch_refuses(arguments: dict[str, Any]) -> None:
    """What the format cannot hold raises EncodeError."""
    with pytest.raises(EncodeError):
        build_batch(**arguments)
