"""Bytes in Arrow columns, and the batches that they hold."""

from typing import Any

import numpy as np
import pyarrow as pa

from coordinator_core.bytes.log import kernels
from coordinator_core.bytes.log.chunk import I64, U8, BatchColumns
from coordinator_core.bytes.log.records import crc_valid_batches


def byte_ranges(array: pa.Array) -> tuple[U8, Any, Any]:
    """The bytes of a binary array, and start and length of each value; length -1 is null."""
    _, positions, data = array.buffers()
    starts = np.frombuffer(positions, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    lengths = np.diff(starts).astype(np.int32)
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = -1
    return (np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)), starts[:-1], lengths


def framed(batches: pa.Array) -> tuple[I64, I64]:
    """Base and last offset of each batch; -1 for a value that is not one whole batch of message format 2 with the right
    checksum."""
    if not len(batches):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    data, starts, sizes = byte_ranges(batches)
    columns, is_consistent, _, stop = kernels.frame_batches(data, int(starts[0]), int(starts[-1] + max(sizes[-1], 0)))
    found = BatchColumns(*columns)
    if stop == kernels.STOP_END and np.array_equal(found.position, starts) and np.array_equal(found.size, sizes):
        is_good = is_consistent & (found.magic == 2) & crc_valid_batches(data, found)
        return np.where(is_good, found.base_offset, -1), np.where(is_good, found.last_offset, -1)
    if len(batches) == 1:
        return np.full(1, -1), np.full(1, -1)
    # a value that is no batch hides those behind it
    half = len(batches) // 2
    parts = framed(batches.slice(0, half)), framed(batches.slice(half))
    return np.concatenate([it for it, _ in parts]), np.concatenate([it for _, it in parts])
