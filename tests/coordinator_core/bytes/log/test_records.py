"""Chunks of batches to record columns: what is read, what becomes a finding, and that nothing else happens."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.bytes.log.batch import Record, build_batch, build_marker, parse_header, with_crc
from coordinator_core.bytes.log.chunk import CONTROL_NONE, CONTROL_UNKNOWN
from coordinator_core.bytes.log.compression import Codec
from coordinator_core.bytes.log.kernels import HEADER_BYTES_V2
from coordinator_core.bytes.log.records import decode_chunk, frame_chunk, iter_records, missing_offsets
from coordinator_core.errors import DecodeError
from coordinator_core.limits import QUARANTINE_BYTES_MAX
from tests.conformance.families.batches import compiled_records


def records(first: int, count: int) -> list[Record]:
    return [Record(first + index, 1000 + index, b"key%d" % index, b"value" * index) for index in range(count)]


def body_batch(section: bytes, count: int = 1, last_offset_delta: int = 0) -> bytes:
    """A batch with right checksum around any record section."""
    empty = build_batch([], base_offset=100, last_offset=100 + last_offset_delta)
    return with_crc(
        empty[:8] + struct.pack(">i", 49 + len(section)) + empty[12:57] + struct.pack(">i", count) + section
    )


MARKER = build_marker(offset=3, timestamp_ms=5, producer_id=9, producer_epoch=1, is_commit=False, coordinator_epoch=2)
PLAIN = (
    build_batch(records(0, 3)) + MARKER + build_batch([], base_offset=4, last_offset=9) + build_batch(records(12, 2))
)


def test_uncompressed_chunk_is_not_copied() -> None:
    """Without codec the chunk's data are the caller's bytes; empty batches have no records, markers have theirs."""
    buffer = np.frombuffer(PLAIN, np.uint8)
    chunk = decode_chunk(buffer)
    assert chunk.data is buffer
    assert chunk.findings == ()
    assert chunk.records.offset.tolist() == [0, 1, 2, 3, 12, 13]
    assert chunk.records.batch_index.tolist() == [0, 0, 0, 1, 3, 3]
    assert chunk.batches.last_offset.tolist() == [2, 3, 9, 13]
    assert chunk.batches.control_type.tolist() == [CONTROL_NONE, 0, CONTROL_NONE, CONTROL_NONE]
    assert compiled_records(chunk)[:3] == records(0, 3)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_kinds_of_buffers(kind: type) -> None:
    """Any buffer will do."""
    assert compiled_records(decode_chunk(kind(PLAIN))) == compiled_records(decode_chunk(PLAIN))


def test_nothing() -> None:
    """No bytes, no batches, no findings."""
    chunk = decode_chunk(b"")
    assert (len(chunk.batches), len(chunk.records), chunk.findings) == (0, 0, ())


@given(st.lists(st.tuples(st.sampled_from(list(Codec)), st.integers(0, 4)), max_size=8))
def test_codecs_side_by_side(plan: list[tuple[Codec, int]]) -> None:
    """Compressed, plain and empty batches in one chunk give all records in order."""
    log, expected, offset = b"", [], 0
    for codec, count in plan:
        rows = records(offset, count)
        log += build_batch(rows, base_offset=offset, last_offset=offset + 4, codec_id=codec)
        expected += rows
        offset += 5
    chunk = decode_chunk(log)
    assert chunk.findings == ()
    assert compiled_records(chunk) == expected


def test_null_is_not_empty() -> None:
    """A tombstone has length -1, an empty value 0; the same for keys."""
    batch = build_batch([Record(0, 1, None, b""), Record(1, 1, b"", None)])
    columns = decode_chunk(batch).records
    assert columns.key_length.tolist() == [-1, 0]
    assert columns.value_length.tolist() == [0, -1]


def test_timestamps() -> None:
    """Deltas count from the base timestamp, also when that is a delete horizon; with LogAppendTime all have the max."""
    rows = [Record(0, 1000, b"k", b"v"), Record(1, 900, b"k", b"v")]
    horizon = build_batch(rows, delete_horizon_ms=5000)
    assert decode_chunk(horizon).records.timestamp_ms.tolist() == [1000, 900]
    assert decode_chunk(horizon).batches.base_timestamp_ms.tolist() == [5000]
    append = build_batch(rows, is_log_append_time=True, max_timestamp_ms=7777)
    assert decode_chunk(append).records.timestamp_ms.tolist() == [7777, 7777]
    assert [record.timestamp_ms for record in iter_records(append)] == [7777, 7777]


def test_timestamps_wrap_as_in_java() -> None:
    """A sum beyond 64 bits wraps, in both readers."""
    batch = build_batch([Record(0, 2**63 - 1, b"k", b"v")], base_timestamp_ms=0)
    wrapped = with_crc(batch[:27] + struct.pack(">q", 5) + batch[35:])
    assert decode_chunk(wrapped).records.timestamp_ms.tolist() == [-(2**63) + 4]
    assert [record.timestamp_ms for record in iter_records(wrapped)] == [-(2**63) + 4]


def test_one_bad_batch_does_not_cost_the_others() -> None:
    """Each batch that cannot be read is one finding with its place and bytes; all others are read."""
    good = [build_batch(records(offset, 2)) for offset in (0, 10, 20, 30)]
    bad_crc = bytearray(build_batch(records(2, 2)))
    bad_crc[-1] ^= 1
    bad_codec = with_crc(good[1][:22] + b"\x05" + good[1][23:])
    bad_stream = with_crc(build_batch(records(12, 2), codec_id=1)[:-3] + b"xyz")
    bad_header = with_crc(good[2][:57] + struct.pack(">i", 3) + good[2][61:])
    bad_record = with_crc(good[3][:61] + b"\x7f" + good[3][62:])
    parts = [good[0], bytes(bad_crc), bad_codec, bad_stream, bad_header, bad_record, build_batch(records(40, 1))]
    chunk = decode_chunk(b"".join(parts))
    places = np.cumsum([0] + [len(part) for part in parts]).tolist()
    assert [(f.stage, f.code, f.base_offset, f.byte_position) for f in chunk.findings] == [
        ("BATCH", "CRC_MISMATCH", 2, places[1]),
        ("BATCH", "UNKNOWN_CODEC", 10, places[2]),
        ("BATCH", "DECOMPRESSION_FAILED", 12, places[3]),
        ("BATCH", "INVALID_BATCH", 20, places[4]),
        ("RECORD", "LENGTH_OUT_OF_BOUNDS", 30, places[5]),
    ]
    assert [finding.payload for finding in chunk.findings] == [bytes(part) for part in parts[1:6]]
    assert chunk.records.offset.tolist() == [0, 1, 40]
    assert chunk.records.batch_index.tolist() == [0, 0, 6]
    assert len(chunk.batches) == 7


def test_crc_may_be_skipped() -> None:
    """Where bronze has already checked, a wrong checksum is not looked at."""
    batch = bytearray(build_batch(records(0, 2)))
    batch[17] ^= 1
    assert len(decode_chunk(bytes(batch), crc="skip").records) == 2
    assert len(decode_chunk(bytes(batch)).records) == 0


@pytest.mark.parametrize(
    ("rest", "code"),
    [
        (b"x", "TRUNCATED_BATCH"),
        (PLAIN[:60], "TRUNCATED_BATCH"),
        (bytes(100), "INVALID_BATCH"),
        (b"\x00" * 16 + b"\x09" + b"\x00" * 99, "INVALID_BATCH"),
    ],
)
def test_bytes_which_are_no_batch(rest: bytes, code: str) -> None:
    """A chunk of something else than batches ends there, and says so."""
    for chunk in (decode_chunk(PLAIN + rest), frame_chunk(PLAIN + rest)):
        findings = chunk[1] if isinstance(chunk, tuple) else chunk.findings
        assert [(f.stage, f.code, f.byte_position, f.payload) for f in findings] == [("FILE", code, len(PLAIN), rest)]
    assert len(decode_chunk(PLAIN + rest).records) == 6


def test_quarantined_bytes_are_bounded() -> None:
    """Of a large batch only the first bytes go along."""
    batch = bytearray(build_batch([Record(0, 0, None, bytes(3 * QUARANTINE_BYTES_MAX))]))
    batch[-1] ^= 1
    (finding,) = decode_chunk(bytes(batch)).findings
    assert finding.payload == batch[:QUARANTINE_BYTES_MAX]
    assert str(len(batch)) in finding.message


def test_bombs_are_bounded_one_by_one_and_together() -> None:
    """A batch above its limit is a finding, and so is the one which would pass the limit of the chunk."""
    bomb = build_batch([Record(0, 0, None, bytes(100_000))], codec_id=4)
    small = build_batch([Record(0, 0, None, bytes(1000))], codec_id=4)
    assert [f.code for f in decode_chunk(bomb + small, bytes_max=50_000).findings] == ["DECOMPRESSED_TOO_LARGE"]
    together = decode_chunk(bomb * 5, chunk_bytes_max=250_000)
    assert [f.code for f in together.findings] == ["DECOMPRESSED_TOO_LARGE"] * 3
    assert len(together.records) == 2
    assert len(together.data) < 250_000


SECTION = build_batch([Record(100, -1, b"k", b"v", (("h", b"x"), ("i", None)))])[HEADER_BYTES_V2:]


@pytest.mark.parametrize(
    ("section", "count", "code"),
    [
        pytest.param(SECTION, 1, None, id="as written"),
        pytest.param(b"", 0, None, id="no records"),
        pytest.param(SECTION, 0, "INVALID_RECORD", id="more records than declared"),
        pytest.param(SECTION + b"\0", 1, "INVALID_RECORD", id="a byte behind the last"),
        pytest.param(SECTION, 2, "INVALID_BATCH", id="more declared than offsets"),
        pytest.param(SECTION[:6], 1, "LENGTH_OUT_OF_BOUNDS", id="fewer bytes than a record has"),
        pytest.param(SECTION[:-1], 1, "LENGTH_OUT_OF_BOUNDS", id="cut"),
        pytest.param(b"\x80" * 20, 1, "VARINT_TOO_LONG", id="length without end"),
        pytest.param(b"\x0a" + bytes(6), 1, "LENGTH_OUT_OF_BOUNDS", id="a length below the least"),
        pytest.param(b"\x0f" + bytes(8), 1, "LENGTH_OUT_OF_BOUNDS", id="a negative length"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\x00", 1, None, id="null key and value"),
        pytest.param(b"\x0c\x00\x00\x00\x03\x05\x00", 1, None, id="any negative length is null"),
        pytest.param(b"\x0c\x00\x00\x02\x01\x01\x00", 1, "INVALID_RECORD", id="offset above the last"),
        pytest.param(b"\x0c\x00\x00\x01\x01\x01\x00", 1, "INVALID_RECORD", id="offset below the base"),
        pytest.param(b"\x0c\x00\x00\x00\x06\x01\x00", 1, "LENGTH_OUT_OF_BOUNDS", id="key passes the record"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x04\x00", 1, "LENGTH_OUT_OF_BOUNDS", id="value passes the record"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\x02", 1, "LENGTH_OUT_OF_BOUNDS", id="headers pass the record"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\x01", 1, "LENGTH_OUT_OF_BOUNDS", id="negative header count"),
        pytest.param(b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", 1, "LENGTH_OUT_OF_BOUNDS", id="null header key"),
        pytest.param(b"\x10\x00\x00\x00\x01\x01\x02\x00\x01", 1, None, id="null header value"),
        pytest.param(b"\x0e\x00\x00\x00\x01\x01\x00\x00", 1, "INVALID_RECORD", id="a byte inside remains"),
        pytest.param(b"\x0c\x00\x80\x80\x80\x80\x80", 1, "BUFFER_UNDERFLOW", id="ends inside a varlong"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\x80", 1, "BUFFER_UNDERFLOW", id="ends inside a varint"),
        pytest.param(b"\x1a\x00" + b"\x80" * 12, 1, "VARINT_TOO_LONG", id="varlong without end"),
        pytest.param(b"\x0c\x00\x00\x80\x80\x80\x80", 1, "BUFFER_UNDERFLOW", id="ends inside the offset delta"),
        pytest.param(b"\x0c\x00\x00\x00\x80\x80\x80", 1, "BUFFER_UNDERFLOW", id="ends inside the key length"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x80\x80", 1, "BUFFER_UNDERFLOW", id="ends inside the value length"),
        pytest.param(b"\x0e\x00\x00\x00\x01\x01\x02\x80", 1, "BUFFER_UNDERFLOW", id="ends inside a header"),
        pytest.param(b"\x14\x00\x00" + b"\x80" * 8, 1, "VARINT_TOO_LONG", id="offset delta without end"),
        pytest.param(b"\x14\x00\x00\x00" + b"\x80" * 7, 1, "VARINT_TOO_LONG", id="key length without end"),
        pytest.param(b"\x14\x00\x00\x00\x01" + b"\x80" * 6, 1, "VARINT_TOO_LONG", id="value length without end"),
        pytest.param(b"\x14\x00\x00\x00\x01\x01" + b"\x80" * 5, 1, "VARINT_TOO_LONG", id="header count without end"),
        pytest.param(b"\x16\x00\x00\x00\x01\x01\x02" + b"\x80" * 5, 1, "VARINT_TOO_LONG", id="header without end"),
    ],
)
def test_record_sections(section: bytes, count: int, code: str | None) -> None:
    """Both readers accept and refuse the same sections, with the same code."""
    batch = body_batch(section, count)
    chunk = decode_chunk(batch)
    assert [finding.code for finding in chunk.findings] == ([] if code is None else [code])
    if code is None:
        plain = [Record(r.offset, r.timestamp_ms, r.key, r.value) for r in iter_records(batch)]
        assert compiled_records(chunk) == plain
        assert len(plain) == count
    else:
        assert len(chunk.records) == 0
        with pytest.raises(DecodeError) as caught:
            list(iter_records(batch))
        assert caught.value.code == code


def test_offsets_inside_a_batch_must_rise() -> None:
    """Two records with one offset are refused by both readers."""
    batch = body_batch(b"\x0c\x00\x00\x00\x01\x01\x00" * 2, 2, last_offset_delta=1)
    assert [finding.code for finding in decode_chunk(batch).findings] == ["INVALID_RECORD"]
    with pytest.raises(DecodeError, match="offset"):
        list(iter_records(batch))


def test_headers_of_records() -> None:
    """The plain reader gives headers; the columns pass over them."""
    (record,) = iter_records(body_batch(SECTION))
    assert record.headers == (("h", b"x"), ("i", None))
    assert decode_chunk(body_batch(SECTION)).records.value_length.tolist() == [1]


@pytest.mark.parametrize(
    ("key", "control_type"),
    [
        (b"\0\0\0\0", 0),
        (b"\0\0\0\1", 1),
        (b"\0\0\0\6", 6),
        (b"\0\7\0\1more", 1),
        (b"\0\0\0\x7f", CONTROL_UNKNOWN),
        (b"\0\0\x7f\xff", CONTROL_UNKNOWN),
        (b"\0\0\xff\xff", CONTROL_UNKNOWN),
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_control_types(key: bytes, control_type: int, codec: Codec) -> None:
    """The type is the second int16 of the first key, whatever its version; types without name are unknown."""
    batch = build_batch([Record(0, 0, key, b"")], is_control=True, codec_id=codec)
    chunk = decode_chunk(batch)
    assert chunk.batches.control_type.tolist() == [control_type]
    assert len(chunk.records) == 1
    assert frame_chunk(batch)[0].control_type.tolist() == ([control_type] if codec == Codec.NONE else [CONTROL_NONE])


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_control_records_without_type(key: bytes | None) -> None:
    """A control record whose key is too short or has a negative version is refused, as ControlRecordType does."""
    batch = build_batch([Record(5, 0, key, b"")], is_control=True)
    chunk = decode_chunk(PLAIN + batch)
    assert [(f.stage, f.code, f.base_offset) for f in chunk.findings] == [("RECORD", "INVALID_RECORD", 5)]
    assert chunk.batches.control_type[-1] == CONTROL_UNKNOWN
    assert chunk.records.offset.tolist() == [0, 1, 2, 3, 12, 13]
    with pytest.raises(DecodeError):
        list(iter_records(batch))


@pytest.mark.parametrize("section", [b"\x80" * 8, b"\x0c\x00" + b"\x80" * 5, b"\x0c\x00\x00" + b"\x80" * 4, bytes(4)])
def test_control_type_of_an_unreadable_record(section: bytes) -> None:
    """Framing alone gives no type to a control record which it cannot read to its key."""
    batch = body_batch(section)
    batch = with_crc(batch[:22] + b"\x20" + batch[23:])
    assert frame_chunk(batch)[0].control_type.tolist() == [CONTROL_UNKNOWN]
    chunk = decode_chunk(batch)
    assert chunk.batches.control_type.tolist() == [CONTROL_UNKNOWN]
    assert len(chunk.findings) == 1


def test_iter_records_wants_one_batch() -> None:
    """Bytes behind the batch are an error, and so is a wrong checksum."""
    batch = build_batch(records(0, 1))
    assert list(iter_records(batch)) == records(0, 1)
    with pytest.raises(DecodeError, match="behind"):
        list(iter_records(batch + b"x"))
    with pytest.raises(DecodeError, match="header has"):
        list(iter_records(batch[:17] + b"\0\0\0\0" + batch[21:]))


@given(st.sets(st.integers(0, 30)), st.integers(0, 5), st.sampled_from([Codec.NONE, Codec.LZ4]))
def test_missing_offsets(present: set[int], tail: int, codec: Codec) -> None:
    """Holes and records share out the batch's offsets; ranges neither touch nor overlap."""
    rows = [Record(50 + delta, 0, b"k", b"v") for delta in sorted(present)]
    last_offset = (rows[-1].offset if rows else 50) + tail
    batch = build_batch(rows, base_offset=50, last_offset=last_offset, codec_id=codec)
    expected = set(range(50, last_offset + 1)) - {record.offset for record in rows}
    holes = missing_offsets(batch)
    assert {offset for first, last in holes for offset in range(first, last + 1)} == expected
    assert sum(last - first + 1 for first, last in holes) == len(expected)
    assert parse_header(batch).last_offset == last_offset
