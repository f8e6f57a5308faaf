"""Reading bronze.record_batches as the log it is: whole batches of one log partition, in offset order.

Files are read directly, without Spark. A file holds batches in offset order; files of several captures may interleave
(an older stretch captured later), so row groups whose offsets overlap are read together and sorted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coordinator_core.log.chunk import I64, U8, BoolArray
from jobs.delta.filesystems import filesystem_of
from jobs.delta.warehouse import TableFile
from jobs.sources.segments import CHUNK_BYTES_MAX

COLUMNS: Final = ("base_offset", "batch", "source", "crc_valid", "is_transactional")


@dataclass(frozen=True, slots=True)
class BronzeChunk:
    """Consecutive batches. `data` is their bytes back to back; `sources` says where each was read."""

    data: U8
    base_offsets: I64
    sources: pa.ChunkedArray
    is_header_told: BoolArray
    """One bool a batch. False: it was made of bare keys and values, and its header says nothing about producers."""

    def are_headers_told(self, offsets: I64) -> BoolArray:
        """Is the header told of the batch that has each offset? Yes for offsets before the chunk."""
        if self.is_header_told.all():
            return np.ones(len(offsets), np.bool_)  # but for what comes of dumps it is so
        rows = np.searchsorted(self.base_offsets, offsets, side="right") - 1
        told: BoolArray = self.is_header_told[rows] | (rows < 0)
        return told

    def source_of(self, base_offset: int) -> str | None:
        """Where the batch with this base offset was read."""
        row = int(np.searchsorted(self.base_offsets, base_offset, side="right")) - 1
        return self.sources[row].as_py() if row >= 0 else None


@dataclass(frozen=True, slots=True)
class _RowGroup:
    file: TableFile
    index: int
    first_offset: int
    last_offset: int
    """Base offsets of its first and last batch."""
    metadata: Any
    """Of the file: a footer is read once."""


def read_log(files: Sequence[TableFile], from_offset: int = 0) -> Iterator[BronzeChunk]:
    """Chunks of one log partition in offset order, damaged batches (crc_valid false) left out.

    `from_offset`: where a batch begins. Files and row groups which end before it are not read.
    """
    newer = [file for file in files if file.maximum.get("last_offset", from_offset) >= from_offset]
    row_groups = sorted(
        (group for group in _row_groups(newer) if group.last_offset >= from_offset),
        key=lambda group: (group.first_offset, group.file.path, group.index),
    )
    together: list[_RowGroup] = []
    last_offset = -1
    for group in row_groups:
        if together and group.first_offset > last_offset:
            yield from _chunks(together, from_offset)
            together = []
        together.append(group)
        last_offset = max(last_offset, group.last_offset)
    if together:
        yield from _chunks(together, from_offset)


def _row_groups(files: Sequence[TableFile]) -> Iterator[_RowGroup]:
    for file in files:
        filesystem, path = filesystem_of(file.path)
        with filesystem.open_input_file(path) as source:
            metadata = pq.ParquetFile(source).metadata
            column = metadata.schema.to_arrow_schema().get_field_index("base_offset")
            for index in range(metadata.num_row_groups):
                group = metadata.row_group(index)
                if group.num_rows == 0:
                    continue
                statistics = group.column(column).statistics
                if statistics is None or not statistics.has_min_max:
                    offsets = pq.ParquetFile(source).read_row_group(index, columns=["base_offset"])["base_offset"]
                    values = offsets.to_numpy()
                    yield _RowGroup(file, index, int(values.min()), int(values.max()), metadata)
                else:
                    yield _RowGroup(file, index, statistics.min, statistics.max, metadata)


def _chunks(groups: Sequence[_RowGroup], from_offset: int) -> Iterator[BronzeChunk]:
    rows = pa.concat_tables([_read(group) for group in groups])
    base_offsets = rows["base_offset"].to_numpy()
    if np.any(base_offsets[1:] <= base_offsets[:-1]):
        rows = rows.sort_by("base_offset")
        base_offsets = rows["base_offset"].to_numpy()
    if len(base_offsets) and base_offsets[0] < from_offset:
        rows = rows.slice(int(np.searchsorted(base_offsets, from_offset)))
        base_offsets = rows["base_offset"].to_numpy()
    crc_valid = rows["crc_valid"].to_numpy(zero_copy_only=False)
    if not crc_valid.all():
        rows = rows.filter(pa.array(crc_valid))
        base_offsets = rows["base_offset"].to_numpy()
    ends = np.cumsum(pc.binary_length(rows["batch"]).to_numpy(), dtype=np.int64)
    data = _joined(rows["batch"])
    is_header_told = ~rows["is_transactional"].is_null().to_numpy()
    first, position = 0, 0
    while first < len(base_offsets):
        after = max(first + 1, int(np.searchsorted(ends, position + CHUNK_BYTES_MAX, side="right")))
        end = int(ends[after - 1])
        part = slice(first, after)
        sources = rows["source"].slice(first, after - first)
        yield BronzeChunk(data[position:end], base_offsets[part], sources, is_header_told[part])
        first, position = after, end


def _read(group: _RowGroup) -> pa.Table:
    filesystem, path = filesystem_of(group.file.path)
    with filesystem.open_input_file(path) as source:
        parquet = pq.ParquetFile(source, metadata=group.metadata)
        return parquet.read_row_group(group.index, columns=list(COLUMNS), use_threads=False)


def _joined(batches: pa.ChunkedArray) -> U8:
    """The bytes of a binary column back to back; no copy where Arrow holds them so already."""
    parts = [_bytes_of(chunk) for chunk in batches.chunks if len(chunk)]
    if not parts:
        return np.zeros(0, np.uint8)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _bytes_of(array: Any) -> U8:
    buffers = array.buffers()
    offsets = np.frombuffer(buffers[1], np.int32)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(buffers[2], np.uint8) if buffers[2] is not None else np.zeros(0, np.uint8)
    return data[offsets[0] : offsets[-1]]
