"""Codecs of pages, by the name that settings have for them."""

from collections.abc import Callable
from typing import Final, NamedTuple

import cramjam
import numpy as np

from coordinator_core.log.chunk import U8

ZSTD_LEVEL: Final = 1


class Codec(NamedTuple):
    """`number`: in parquet.thrift."""

    number: int
    bytes_max: Callable[[U8], int]
    """What some bytes may become at most."""
    compress_into: Callable[[U8, U8], int]
    """Compress the first into the second; how many bytes of that are used."""
    is_quick: bool
    """Of numbers packed as deltas it finds a tenth, and takes as long for it as the packing."""


def _zstd_bytes_max(data: U8) -> int:
    # ZSTD_COMPRESSBOUND, and the head of a frame
    return len(data) + (len(data) >> 8) + (1 << 10)


CODECS: Final[dict[str, Codec | None]] = {
    "none": None,
    "snappy": Codec(1, cramjam.snappy.compress_raw_max_len, cramjam.snappy.compress_raw_into, is_quick=True),
    "zstd": Codec(
        6,
        _zstd_bytes_max,
        lambda data, into: cramjam.zstd.compress_into(data, into, level=ZSTD_LEVEL),
        is_quick=False,
    ),
    # LZ4_RAW: a block as it is
    "lz4": Codec(
        7,
        cramjam.lz4.compress_block_bound,
        lambda data, into: cramjam.lz4.compress_block_into(data, into, store_size=False),
        is_quick=True,
    ),
}


class Compressor:
    """Compresses into a buffer that is used again: memory that is touched first has its price."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self._buffer: U8 = np.empty(0, np.uint8)

    def compressed(self, data: U8) -> U8:
        """Some bytes, compressed; valid until the next call."""
        size_max = self.codec.bytes_max(data)
        if size_max > len(self._buffer):
            self._buffer = np.empty(size_max, np.uint8)
        return self._buffer[: self.codec.compress_into(data, self._buffer)]
