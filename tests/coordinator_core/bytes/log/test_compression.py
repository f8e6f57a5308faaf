"""Codecs: round trips, what other producers write, refusals, and bounds."""

import gzip
import struct
import tracemalloc
import zlib
from contextlib import suppress
from random import Random

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.bytes.log.compression import XERIAL_HEADER, Codec, compress, decompress
from coordinator_core.bytes.log.kernels import xxh32
from coordinator_core.errors import DecodeError, DecompressedTooLarge, DecompressionFailed, UnknownCodec

CODECS = list(Codec)
PACKING = [codec for codec in Codec if codec != Codec.NONE]
TEXT = b"the ledger of every group, " * 8000
NOISE = Random(1).randbytes(200_000)
LIMIT = 1024 * 1024


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "data", [b"", b"x", TEXT, NOISE, TEXT + NOISE + TEXT], ids=["empty", "x", "text", "noise", "mix"]
)
def test_round_trip(codec: Codec, data: bytes) -> None:
    """What is compressed comes back, also in several blocks."""
    assert decompress(codec, compress(codec, data)) == data


@given(data=st.binary(max_size=5000), repeat=st.integers(1, 40), codec=st.sampled_from(CODECS))
def test_round_trip_of_anything(data: bytes, repeat: int, codec: Codec) -> None:
    """The same for any bytes."""
    assert decompress(codec, compress(codec, data * repeat)) == data * repeat


@pytest.mark.parametrize("codec", PACKING)
def test_streams_one_after_the_other(codec: Codec) -> None:
    """Members and frames are joined."""
    assert decompress(codec, compress(codec, b"first ") + compress(codec, TEXT)) == b"first " + TEXT


@pytest.mark.parametrize("codec", PACKING)
def test_limit_is_exact(codec: Codec) -> None:
    """A result of just the limit passes, one byte more does not."""
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, bytes_max=len(TEXT)) == TEXT
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, packed, bytes_max=len(TEXT) - 1)
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, packed, bytes_max=0)


def test_limit_without_codec() -> None:
    """The limit holds for what is not compressed too."""
    assert decompress(Codec.NONE, b"abc", bytes_max=3) == b"abc"
    with pytest.raises(DecompressedTooLarge):
        decompress(Codec.NONE, b"abc", bytes_max=2)


@pytest.mark.parametrize("codec", PACKING)
def test_bomb_costs_no_more_than_the_limit(codec: Codec) -> None:
    """64 MiB of zeros in a few bytes: refused, with little memory used on the way."""
    bomb = compress(codec, bytes(64 * 1024 * 1024))
    tracemalloc.start()
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, bomb, bytes_max=LIMIT)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * LIMIT + len(bomb)


def test_gzip_bomb_of_many_members() -> None:
    """The limit holds for all members together."""
    member = gzip.compress(bytes(1000))
    with pytest.raises(DecompressedTooLarge):
        decompress(Codec.GZIP, member * 1100, bytes_max=LIMIT)


def test_snappy_promise_is_not_believed() -> None:
    """A block which promises more than its bytes can hold is refused before anything is allocated."""
    promise = b"\xff\xff\xff\xff\x0f" + b"\x00a"
    for data in (promise, XERIAL_HEADER + struct.pack(">i", len(promise)) + promise):
        with pytest.raises(DecompressionFailed):
            decompress(Codec.SNAPPY, data, bytes_max=2**40)


def test_raw_snappy_block() -> None:
    """Producers not written in Java send one raw block; snappy-java's reader takes it too."""
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Codec.SNAPPY, raw) == TEXT
    with pytest.raises(DecompressedTooLarge):
        decompress(Codec.SNAPPY, raw, bytes_max=len(TEXT) - 1)


def test_zstd_with_content_size_and_checksum() -> None:
    """Frames of other writers: content size known, skippable frame between."""
    frame = bytes(cramjam.zstd.compress(TEXT, level=19))
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"abcde"
    assert decompress(Codec.ZSTD, skippable + frame + skippable + frame) == TEXT + TEXT


def test_lz4_frames_of_other_writers() -> None:
    """Independent blocks with all checksums and content size; dependent blocks are refused, as Kafka refuses them."""
    independent = lz4_frame(TEXT, flags=0x60 | 0x10 | 0x08 | 0x04)
    assert decompress(Codec.LZ4, independent) == TEXT
    dependent = bytearray(independent)
    dependent[4] &= ~0x20
    with pytest.raises(DecompressionFailed, match="depend"):
        decompress(Codec.LZ4, bytes(dependent))


def lz4_frame(data: bytes, *, flags: int) -> bytes:
    """An LZ4 frame with what the flags ask for, blocks of 64 KiB."""
    head = bytes((flags, 0x40)) + (struct.pack("<Q", len(data)) if flags & 0x08 else b"")
    out = b"\x04\x22\x4d\x18" + head + bytes((xxh32(head) >> 8 & 0xFF,))
    for position in range(0, len(data), 65536):
        block = bytes(cramjam.lz4.compress_block(data[position : position + 65536], store_size=False))
        out += struct.pack("<I", len(block)) + block
        out += struct.pack("<I", xxh32(block)) if flags & 0x10 else b""
    out += bytes(4)
    return out + (struct.pack("<I", xxh32(data)) if flags & 0x04 else b"")


@pytest.mark.parametrize("what", ["header", "block", "content"])
def test_lz4_checksums_are_checked(what: str) -> None:
    """A wrong checksum of header, block or content is refused; that of a v0 header is not looked at."""
    frame = bytearray(lz4_frame(b"abc" * 100, flags=0x60 | 0x10 | 0x04))
    place = {"header": 6, "block": len(frame) - 9, "content": len(frame) - 1}[what]
    frame[place] ^= 0x40
    with pytest.raises(DecompressionFailed, match=what):
        decompress(Codec.LZ4, bytes(frame), magic=1)
    if what == "header":
        assert decompress(Codec.LZ4, bytes(frame), magic=0) == b"abc" * 100


@pytest.mark.parametrize("codec", PACKING)
def test_every_cut_is_refused(codec: Codec) -> None:
    """A stream which ends too early raises, wherever it is cut; an empty snappy stream is one."""
    packed = compress(codec, b"offsets and share state " * 20)
    for size in range(len(packed)):
        if codec == Codec.SNAPPY and size == len(XERIAL_HEADER):
            assert decompress(codec, packed[:size]) == b""
            continue
        with pytest.raises(DecompressionFailed):
            decompress(codec, packed[:size])


@pytest.mark.parametrize("codec", PACKING)
def test_bytes_behind_the_stream_are_refused(codec: Codec) -> None:
    """What is not another stream is not ignored."""
    with pytest.raises(DecompressionFailed):
        decompress(codec, compress(codec, TEXT) + b"\x01rest")


@given(codec=st.sampled_from(PACKING), data=st.binary(max_size=300), magic=st.sampled_from([0, 1, 2]), at=st.data())
def test_any_bytes_decompress_or_raise(codec: Codec, data: bytes, magic: int, at: st.DataObject) -> None:
    """Nothing but DecodeError comes out, for noise and for streams with changed bytes."""
    packed = bytearray(compress(codec, data))
    for _ in range(at.draw(st.integers(1, 3))):
        packed[at.draw(st.integers(0, len(packed) - 1))] = at.draw(st.integers(0, 255))
    for stream in (data, bytes(packed)):
        with suppress(DecodeError):
            assert len(decompress(codec, stream, magic=magic, bytes_max=4096)) <= 4096


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        pytest.param(Codec.LZ4, b"\x04\x22\x4d\x18\x68\x40\x00", id="header ends inside content size"),
        pytest.param(Codec.LZ4, compress(Codec.LZ4, b"")[:7] + b"\x02\0\0\0\xf0\xff" + bytes(4), id="broken block"),
        pytest.param(
            Codec.LZ4, compress(Codec.LZ4, b"")[:7] + b"\x01\0\x01\0" + bytes(70_000), id="block above 64 KiB"
        ),
        pytest.param(Codec.LZ4, b"\x04\x22\x4d\x18\x60\x30\x00" + bytes(4), id="unknown block size"),
        pytest.param(Codec.ZSTD, struct.pack("<II", 0x184D2A50, 9) + b"short", id="skippable frame cut"),
        pytest.param(Codec.ZSTD, bytes.fromhex("28b52ffd0058" + "070000"), id="reserved kind of block"),
        pytest.param(Codec.ZSTD, bytes.fromhex("28b52ffd0458" + "010000"), id="checksum missing"),
        pytest.param(Codec.SNAPPY, XERIAL_HEADER[:12], id="header cut"),
        pytest.param(Codec.SNAPPY, XERIAL_HEADER + b"\xff\xff\xff\xff", id="block of 4 GiB"),
    ],
)
def test_broken_streams(codec: Codec, data: bytes) -> None:
    """Places where a stream can be wrong, one by one."""
    with pytest.raises(DecompressionFailed):
        decompress(codec, data)


@pytest.mark.parametrize("codec_id", [5, 6, 7, -1])
def test_unknown_codec(codec_id: int) -> None:
    """Ids which CompressionType does not have."""
    with pytest.raises(UnknownCodec):
        decompress(codec_id, b"")
    with pytest.raises(UnknownCodec):
        compress(codec_id, b"")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0x02CC5D05),
        (b"a", 0x550D7456),
        (b"abc", 0x32D153FF),
        (b"Nobody inspects the spammish repetition", 0xE2293B2F),
    ],
)
def test_xxh32(data: bytes, expected: int) -> None:
    """Published values of xxHash-32 with seed 0, short and above one stripe."""
    assert xxh32(data) == expected


def test_gzip_is_what_zlib_reads() -> None:
    """The hand-made gzip frame is a proper member with the header GZIPOutputStream writes."""
    packed = compress(Codec.GZIP, TEXT)
    assert packed[:10] == bytes.fromhex("1f8b08000000000000ff")
    assert zlib.decompress(packed, zlib.MAX_WBITS | 16) == TEXT
