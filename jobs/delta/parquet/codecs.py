"""Compression codecs of pages, by their name in the settings."""

from collections.abc import Callable
from typing import Final, NamedTuple

import cramjam
import numpy as np

from coordinator_core.bytes.log.chunk import U8

ZSTD_LEVEL: Final = 1


class Codec(NamedTuple):
    """`number`: CompressionCodec in parquet.thrift."""

    number: int
    bytes_max: Callable[[U8], int]
    """Upper bound of the compressed size."""
    compress_into: Callable[[U8, U8], int]
    """Compress the first array into the second; returns the number of bytes written."""
    is_quick: bool
    """True: gains only a tenth on delta-packed numbers, and takes as long for that as the packing."""


CODECS: Final[dict[str, Codec | None]] = {
    "none": None,
    "snappy": Codec(1, cramjam.snappy.compress_raw_max_len, cramjam.snappy.compress_raw_into, is_quick=True),
    "zstd": Codec(
        6,
        lambda data: len(data) + (len(data) >> 8) + (1 << 10),  # ZSTD_COMPRESSBOUND, plus the frame header
        lambda data, into: cramjam.zstd.compress_into(data, into, level=ZSTD_LEVEL),
        is_quick=False,
    ),
    # LZ4_RAW: a block without framing
    "lz4": Codec(
        7,
        cramjam.lz4.compress_block_bound,
        lambda data, into: cramjam.lz4.compress_block_into(data, into, store_size=False),
        is_quick=True,
    ),
}


class Compressor:
    """Compresses into a reused buffer, since the first access to new memory is slow."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self._buffer: U8 = np.empty(0, np.uint8)

    def compressed(self, data: U8) -> U8:
        """The compressed bytes; valid until the next call."""
        size_max = self.codec.bytes_max(data)
        if size_max > len(self._buffer):
            self._buffer = np.empty(size_max, np.uint8)
        return self._buffer[: self.codec.compress_into(data, self._buffer)]
