"""The codecs of record batches: bounded decompression, and compression to the same bytes as Kafka.

Names and ids are those of Kafka's CompressionType. The output size is checked before it is allocated: a compression
bomb raises DecompressedTooLarge and uses no more memory than the limit.
"""

import struct
import zlib
from enum import IntEnum
from typing import Final, NoReturn

import cramjam
import numpy as np

from coordinator_core.bytes.log.kernels import xxh32
from coordinator_core.errors import DecompressedTooLarge, DecompressionFailed, UnknownCodec
from coordinator_core.limits import BATCH_DECOMPRESSED_BYTES_MAX


class Codec(IntEnum):
    """CompressionType: the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
"""Magic of snappy-java's stream format, which Kafka's "snappy" uses (SnappyOutputStream)."""
XERIAL_HEADER: Final = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES: Final = 32 * 1024

LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
LZ4_BLOCK_BYTES: Final = 64 * 1024
LZ4_BLOCK_BYTES_MAX: Final = {4: 64 * 1024, 5: 256 * 1024, 6: 1024 * 1024, 7: 4 * 1024 * 1024}
"""Block maximum size ids of the LZ4 frame descriptor."""
LZ4_STORED: Final = 0x80000000

ZSTD_MAGIC: Final = 0xFD2FB528
ZSTD_SKIPPABLE_MAGIC: Final = 0x184D2A50
ZSTD_BLOCK_BYTES_MAX: Final = 128 * 1024
ZSTD_LEVEL: Final = 3
"""ZstdCompression's default level, zstd's own default."""

GZIP_HEADER: Final = bytes.fromhex("1f8b08000000000000ff")
"""As GZIPOutputStream writes it: no name, no time, unknown operating system."""


def decompress(codec_id: int, data: bytes, *, magic: int = 2, bytes_max: int = BATCH_DECOMPRESSED_BYTES_MAX) -> bytes:
    """Decompress `data`, including all concatenated members or frames.

    `magic` is that of the batch or message: the LZ4 header checksum of a v0 message is wrong because of a Kafka bug,
    and is not checked (KafkaLZ4BlockInputStream). Raises UnknownCodec, DecompressionFailed (also for bytes after the
    end of the stream), or DecompressedTooLarge if the result would exceed `bytes_max`.
    """
    if codec_id == Codec.NONE:
        if len(data) > bytes_max:
            _raise_too_large(bytes_max)
        return data
    if codec_id == Codec.GZIP:
        return _gunzip(data, bytes_max)
    if codec_id == Codec.SNAPPY:
        return _unsnappy(data, bytes_max)
    if codec_id == Codec.LZ4:
        return _unlz4(data, bytes_max, is_header_checked=magic > 0)
    if codec_id == Codec.ZSTD:
        return _unzstd(data, bytes_max)
    raise UnknownCodec(f"codec id {codec_id}")


def compress(codec_id: int, data: bytes) -> bytes:
    """The bytes that a 4.3 broker or Java producer writes for `data` at its default level, byte for byte."""
    if codec_id == Codec.NONE:
        return data
    if codec_id == Codec.GZIP:
        deflate = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, -zlib.MAX_WBITS)
        return b"".join(
            (
                GZIP_HEADER,
                deflate.compress(data),
                deflate.flush(),
                struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF),
            )
        )
    if codec_id == Codec.SNAPPY:
        return _snappy(data)
    if codec_id == Codec.LZ4:
        return _lz4(data)
    if codec_id == Codec.ZSTD:
        # zstd-jni's stream is flushed and then closed: the last block is always an empty one
        stream = cramjam.zstd.Compressor(level=ZSTD_LEVEL)
        stream.compress(data)
        return bytes(stream.flush()) + bytes(stream.finish())
    raise UnknownCodec(f"codec id {codec_id}")


def _raise_too_large(bytes_max: int) -> NoReturn:
    raise DecompressedTooLarge(f"decompresses to more than {bytes_max} bytes")


def _gunzip(data: bytes, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    bytes_left = bytes_max
    rest = data
    while True:
        inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            part = inflate.decompress(rest, bytes_left + 1)
        except zlib.error:
            raise DecompressionFailed("not a gzip stream", byte_position=len(data) - len(rest)) from None
        if len(part) > bytes_left:
            _raise_too_large(bytes_max)
        if not inflate.eof:
            raise DecompressionFailed("the gzip stream ends inside a member", byte_position=len(data))
        parts.append(part)
        bytes_left -= len(part)
        rest = inflate.unused_data
        if not rest:
            return b"".join(parts)


def _snappy(data: bytes) -> bytes:
    parts = [XERIAL_HEADER]
    for position in range(0, len(data), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[position : position + XERIAL_BLOCK_BYTES]))
        parts.append(struct.pack(">i", len(block)))
        parts.append(block)
    return b"".join(parts)


def _unsnappy(data: bytes, bytes_max: int) -> bytes:
    if not data.startswith(XERIAL_MAGIC):
        # producers not written in Java send one raw block; snappy-java's reader takes that too
        return _unsnappy_block(data, bytes_max, bytes_max, byte_position=0)
    parts: list[bytes] = []
    bytes_left = bytes_max
    position = 0
    while position < len(data):
        if data.startswith(XERIAL_MAGIC, position):  # streams may be concatenated
            position += len(XERIAL_HEADER)
            if position > len(data):
                raise DecompressionFailed("the snappy stream ends inside its header", byte_position=len(data))
            continue
        if len(data) - position < 4:
            raise DecompressionFailed("the snappy stream ends inside a block length", byte_position=position)
        block_bytes = int.from_bytes(data[position : position + 4], "big")
        position += 4
        if block_bytes > len(data) - position:
            raise DecompressionFailed("a snappy block runs past the end", byte_position=position - 4)
        part = _unsnappy_block(data[position : position + block_bytes], bytes_left, bytes_max, byte_position=position)
        parts.append(part)
        bytes_left -= len(part)
        position += block_bytes
    return b"".join(parts)


def _unsnappy_block(block: bytes, bytes_left: int, bytes_max: int, *, byte_position: int) -> bytes:
    try:
        size = int(cramjam.snappy.decompress_raw_len(block))
        # an element of three bytes makes at most 64: a larger promise is a lie, and is not allocated for
        if size > 64 * len(block):
            raise DecompressionFailed("a snappy block of impossible size", byte_position=byte_position)
        if size > bytes_left:
            _raise_too_large(bytes_max)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError:
        raise DecompressionFailed("not a snappy block", byte_position=byte_position) from None


def _lz4(data: bytes) -> bytes:
    """Like Lz4BlockOutputStream: version 1, independent blocks of 64 KiB, no checksums except the header's."""
    descriptor = bytes((0x60, 0x40))
    parts = [LZ4_MAGIC, descriptor, bytes(((xxh32(descriptor) >> 8) & 0xFF,))]
    for position in range(0, len(data), LZ4_BLOCK_BYTES):
        block = data[position : position + LZ4_BLOCK_BYTES]
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            parts.append(struct.pack("<I", len(packed)))
            parts.append(packed)
        else:
            parts.append(struct.pack("<I", len(block) | LZ4_STORED))
            parts.append(block)
    parts.append(bytes(4))
    return b"".join(parts)


def _unlz4(data: bytes, bytes_max: int, *, is_header_checked: bool) -> bytes:
    parts: list[bytes] = []
    bytes_left = bytes_max
    position = 0
    while True:
        position, bytes_left = _unlz4_frame(data, position, bytes_left, bytes_max, is_header_checked, parts)
        if position == len(data):
            return b"".join(parts)


def _unlz4_frame(  # noqa: C901  (one pass over bytes or rows, compiled: calls would cost as much as the work)
    data: bytes, position: int, bytes_left: int, bytes_max: int, is_header_checked: bool, parts: list[bytes]
) -> tuple[int, int]:
    """Append one frame's blocks to `parts`. Returns (next position, bytes left)."""
    start = position
    if not data.startswith(LZ4_MAGIC, position) or len(data) - position < 7:
        raise DecompressionFailed("not an LZ4 frame", byte_position=position)
    flags, block_id = data[position + 4], data[position + 5]
    block_bytes_max = LZ4_BLOCK_BYTES_MAX.get(block_id >> 4)
    # bits: version 01, independence, block checksum, content size, content checksum, reserved, dictionary id
    if flags >> 6 != 1 or flags & 0x03 or block_id & 0x8F or block_bytes_max is None:
        raise DecompressionFailed("unsupported LZ4 frame descriptor", byte_position=position + 4)
    if not flags & 0x20:
        # Kafka's reader rejects these too (KafkaLZ4BlockInputStream: "Dependent block stream is unsupported")
        raise DecompressionFailed("LZ4 blocks that depend on each other", byte_position=position + 4)
    has_block_checksum, has_content_checksum = bool(flags & 0x10), bool(flags & 0x04)
    position += 6 + (8 if flags & 0x08 else 0)
    if position >= len(data):
        raise DecompressionFailed("the LZ4 stream ends inside a frame header", byte_position=len(data))
    if is_header_checked and data[position] != (xxh32(data[start + 4 : position]) >> 8) & 0xFF:
        raise DecompressionFailed("wrong LZ4 header checksum", byte_position=position)
    position += 1
    part_first = len(parts)
    while True:
        if len(data) - position < 4:
            raise DecompressionFailed("the LZ4 stream ends without end mark", byte_position=position)
        block_head = int.from_bytes(data[position : position + 4], "little")
        position += 4
        if block_head == 0:
            break
        block_bytes = block_head & ~LZ4_STORED
        if block_bytes > block_bytes_max or block_bytes > len(data) - position:
            raise DecompressionFailed("an LZ4 block of impossible size", byte_position=position - 4)
        block = data[position : position + block_bytes]
        position += block_bytes
        if has_block_checksum:
            if data[position : position + 4] != xxh32(block).to_bytes(4, "little"):
                raise DecompressionFailed("wrong LZ4 block checksum", byte_position=position)
            position += 4
        if not block_head & LZ4_STORED:
            block = _unlz4_block(block, block_bytes_max, byte_position=position)
        if len(block) > bytes_left:
            _raise_too_large(bytes_max)
        parts.append(block)
        bytes_left -= len(block)
    if has_content_checksum:
        content = b"".join(parts[part_first:])
        if data[position : position + 4] != xxh32(content).to_bytes(4, "little"):
            raise DecompressionFailed("wrong LZ4 content checksum", byte_position=position)
        position += 4
    return position, bytes_left


def _unlz4_block(block: bytes, block_bytes_max: int, *, byte_position: int) -> bytes:
    buffer = np.empty(block_bytes_max, np.uint8)
    try:
        size = int(cramjam.lz4.decompress_block_into(block, buffer, output_len=block_bytes_max))
    except cramjam.DecompressionError:
        raise DecompressionFailed("not an LZ4 block", byte_position=byte_position) from None
    return buffer[:size].tobytes()


def _unzstd(data: bytes, bytes_max: int) -> bytes:
    bound = _zstd_bound(data)
    # np.empty maps memory without touching it: a bound far too high costs only address space
    buffer = np.empty(min(bound, bytes_max), np.uint8)
    try:
        size = int(cramjam.zstd.decompress_into(data, buffer))
    except cramjam.DecompressionError as error:
        if bound > bytes_max and "whole buffer" in str(error):
            _raise_too_large(bytes_max)
        raise DecompressionFailed("not a zstd stream") from None
    return buffer[:size].tobytes()


def _zstd_bound(data: bytes) -> int:
    """Upper bound of the decompressed size of `data`, from frame and block headers alone (RFC 8878, 3.1.1)."""
    bound = 0
    position = 0
    while position < len(data):
        try:
            position, frame_bound = _zstd_frame_bound(data, position)
        except (IndexError, struct.error):
            raise DecompressionFailed("the zstd stream ends inside a frame", byte_position=len(data)) from None
        bound += frame_bound
    return bound


def _zstd_frame_bound(data: bytes, position: int) -> tuple[int, int]:
    """(next position, bound) of one frame. Raises IndexError or struct.error if the data end."""
    (magic,) = struct.unpack_from("<I", data, position)
    if magic & 0xFFFFFFF0 == ZSTD_SKIPPABLE_MAGIC:
        (size,) = struct.unpack_from("<I", data, position + 4)
        if size > len(data) - position - 8:
            raise IndexError
        return position + 8 + size, 0
    if magic != ZSTD_MAGIC:
        raise DecompressionFailed("not a zstd frame", byte_position=position)
    descriptor = data[position + 4]
    is_single_segment = descriptor >> 5 & 1
    size_code = descriptor >> 6
    size_bytes = (is_single_segment, 2, 4, 8)[size_code]
    has_checksum = descriptor >> 2 & 1
    dictionary_bytes = (0, 1, 2, 4)[descriptor & 3]
    position += 5 + (1 - is_single_segment) + dictionary_bytes + size_bytes
    bound = 0
    while True:
        if position + 3 > len(data):
            raise IndexError
        block_head = int.from_bytes(data[position : position + 3], "little")
        size = block_head >> 3
        kind = block_head >> 1 & 3
        if kind == 3:
            raise DecompressionFailed("a zstd block of a reserved kind", byte_position=position)
        # 0 stored, 1 one byte repeated, 2 compressed
        bound += size if kind < 2 else ZSTD_BLOCK_BYTES_MAX
        position += 3 + (1 if kind == 1 else size)
        if block_head & 1:
            break
    position += 4 * has_checksum
    if position > len(data):
        raise IndexError
    return position, bound
