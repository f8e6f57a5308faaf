"""Message sets of magic 0 and 1, built here by hand: the project only reads them."""

import struct

import pytest

from coordinator_core.bytes.log.batch import Record, build_batch, with_crc
from coordinator_core.bytes.log.compression import compress
from coordinator_core.bytes.log.legacy import build_message, decode_entry, records_of
from coordinator_core.bytes.log.records import decode_chunk
from coordinator_core.bytes.log.scan import scan_segment
from coordinator_core.errors import (
    BufferUnderflow,
    CrcMismatch,
    DecodeError,
    DecompressedTooLarge,
    EncodeError,
    InvalidBatch,
    InvalidRecord,
    LengthOutOfBounds,
)
from tests.conformance.families.batches import compiled_records


def message(
    offset: int,
    value: bytes | None,
    *,
    magic: int = 1,
    key: bytes | None = None,
    timestamp_ms: int = 1000,
    attributes: int = 0,
) -> bytes:
    """One message as LegacyRecord writes it."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp_ms) if magic == 1 else b"")
    for part in (key, value):
        body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return with_crc(struct.pack(">qi", offset, len(body) + 4) + bytes(4) + body)


def wrapper(offset: int, inner: bytes, *, magic: int = 1, codec_id: int = 1, attributes: int = 0) -> bytes:
    return message(offset, compress(codec_id, inner), magic=magic, attributes=codec_id | attributes, timestamp_ms=2000)


@pytest.mark.parametrize("codec_id", [1, 2, 3])
def test_relative_offsets(codec_id: int) -> None:
    """Offsets in a v1 wrapper count from 0, and the wrapper has the last one's (KIP-31)."""
    inner = (
        message(0, b"a", timestamp_ms=1) + message(1, None, key=b"k", timestamp_ms=2) + message(4, b"", timestamp_ms=3)
    )
    entry = wrapper(104, inner, codec_id=codec_id)
    expected = (Record(100, 1, None, b"a"), Record(101, 2, b"k", None), Record(104, 3, None, b""))
    assert records_of(decode_entry(entry)) == expected
    chunk = decode_chunk(entry)
    assert compiled_records(chunk) == list(expected)
    assert (chunk.batches.base_offset[0], chunk.batches.last_offset[0], chunk.batches.record_count[0]) == (100, 104, 3)


def test_absolute_offsets() -> None:
    """Offsets in a v0 wrapper are those of the log, and there are no times."""
    inner = message(50, b"a", magic=0) + message(52, b"b", magic=0)
    assert records_of(decode_entry(wrapper(52, inner, magic=0))) == (
        Record(50, -1, None, b"a"),
        Record(52, -1, None, b"b"),
    )


def test_log_append_time() -> None:
    """A wrapper with LogAppendTime gives its own time to all messages."""
    inner = message(0, b"a", timestamp_ms=1) + message(1, b"b", timestamp_ms=2)
    assert [r.timestamp_ms for r in records_of(decode_entry(wrapper(9, inner, attributes=8)))] == [2000, 2000]


def test_legacy_and_new_batches_in_one_chunk() -> None:
    """A log which lived through an upgrade is read in one go, in log order."""
    log = (
        message(0, b"v0", magic=0)
        + wrapper(3, message(0, b"one") + message(1, b"two") + message(2, b"three"))
        + build_batch([Record(4, 5, b"k", b"four")])
        + build_batch([Record(5, 6, b"k", b"five" * 50)], codec_id=4)
        + message(6, b"six")
    )
    chunk = decode_chunk(log)
    assert chunk.findings == ()
    assert [r.offset for r in compiled_records(chunk)] == list(range(7))
    assert [r.value for r in compiled_records(chunk)] == [
        b"v0",
        b"one",
        b"two",
        b"three",
        b"four",
        b"five" * 50,
        b"six",
    ]
    assert chunk.records.batch_index.tolist() == [0, 1, 1, 1, 2, 3, 4]
    found = scan_segment(log, base_offset=0, is_last=True, next_offset_min=0)
    assert found.findings == ()
    assert found.batches.base_offset.tolist() == [0, 1, 4, 5, 6]
    assert found.batches.record_count.tolist() == [1, 3, 1, 1, 1]


INNER = message(0, b"a") + message(1, b"b")


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        pytest.param(with_crc(message(3, None, attributes=1)), InvalidRecord, id="wrapper without value"),
        pytest.param(wrapper(3, b""), InvalidRecord, id="empty wrapper"),
        pytest.param(wrapper(3, wrapper(1, INNER)), InvalidRecord, id="wrapper in a wrapper"),
        pytest.param(wrapper(3, message(1, b"a", magic=0)), InvalidRecord, id="v0 in v1"),
        pytest.param(wrapper(3, message(1, b"b") + message(0, b"a")), InvalidRecord, id="offsets go back"),
        pytest.param(wrapper(0, INNER), InvalidRecord, id="offsets below zero"),
        pytest.param(wrapper(1, message(2, b"a", magic=0), magic=0), InvalidRecord, id="message behind its wrapper"),
        pytest.param(wrapper(3, INNER[:-1] + b"x"), CrcMismatch, id="checksum inside"),
        pytest.param(with_crc(message(3, b"a")[:30] + bytes(4) + b"a"), InvalidRecord, id="bytes remain"),
        pytest.param(
            with_crc(message(3, b"abc")[:26] + struct.pack(">i", 99) + message(3, b"abc")[30:]),
            LengthOutOfBounds,
            id="key passes the end",
        ),
        pytest.param(build_batch([Record(0, 0, None, None)]), InvalidBatch, id="magic 2"),
        pytest.param(
            with_crc(struct.pack(">qiIbbi", 3, 14, 0, 0, 0, 4) + bytes(4)), BufferUnderflow, id="no value length"
        ),
    ],
)
def test_decode_entry_refuses(entry: bytes, kind: type[DecodeError]) -> None:
    """What Kafka's reader would refuse raises the error of its kind."""
    with pytest.raises(kind):
        decode_entry(entry)


def test_decompressed_size_is_bounded() -> None:
    """A wrapper may be a bomb too."""
    with pytest.raises(DecompressedTooLarge):
        decode_entry(wrapper(0, message(0, bytes(100_000))), bytes_max=1000)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("key", [None, b"", b"k"])
def test_a_message_is_built_as_kafka_writes_it(magic: int, key: bytes | None) -> None:
    """With its checksum; what such a message cannot hold is refused."""
    record = Record(5, 1000, key, b"v")
    assert build_message(record, magic) == message(5, b"v", magic=magic, key=key)
    with pytest.raises(EncodeError):
        build_message(record, 2)
    with pytest.raises(EncodeError):
        build_message(Record(5, 1000, key, b"v", (("h", b""),)), magic)
    with pytest.raises(EncodeError):
        build_message(Record(2**63, 1000, key, b"v"), magic)
