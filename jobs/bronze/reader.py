"""Read bronze.record_batches as a log: whole batches of one log partition, in offset order.

Files are read directly, without Spark. The batches of a file are in offset order. The offsets of files from several
captures may interleave (an older range captured later), so row groups that overlap are read together and sorted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.log.chunk import I64, U8, BoolArray
from jobs.delta.scanner import Scanner
from jobs.delta.table_files import TableFile
from jobs.sources.segments import CHUNK_BYTES_MAX

COLUMNS: Final = ("base_offset", "batch", "source", "crc_valid", "is_transactional")


@dataclass(frozen=True, slots=True)
class BronzeChunk:
    """Consecutive batches. `data`: their bytes back to back; `sources`: where each was read."""

    data: U8
    base_offsets: I64
    sources: pa.ChunkedArray
    has_header: BoolArray
    """One bool a batch. False: the batch was built from keys and values, so its header says nothing about producers."""

    def have_headers(self, offsets: I64) -> BoolArray:
        """For each offset: is the header of its batch original? True for offsets before the chunk."""
        if self.has_header.all():
            return np.ones(len(offsets), np.bool_)  # always, except for batches from dumps
        rows = np.searchsorted(self.base_offsets, offsets, side="right") - 1
        found: BoolArray = self.has_header[rows] | (rows < 0)
        return found

    def source_of(self, base_offset: int) -> str | None:
        """The source of the batch with this base offset."""
        row = int(np.searchsorted(self.base_offsets, base_offset, side="right")) - 1
        return self.sources[row].as_py() if row >= 0 else None


class _RowGroup(NamedTuple):
    first_offset: int
    last_offset: int
    """Base offset of the last batch in the row group; `first_offset` is that of the first."""
    path: str
    number: int
    metadata: Any
    """Footer of the file, so that it is read once."""


def read_log(files: Sequence[TableFile], from_offset: int = 0, to_offset: int | None = None) -> Iterator[BronzeChunk]:
    """Chunks of one log partition in offset order, without damaged batches (crc_valid false).

    `from_offset`: base offset of a batch; `to_offset`: that of the first one that is left out. Files and row groups
    outside are not read.
    """
    newer = [file for file in files if file.maximum.get("last_offset", from_offset) >= from_offset]
    for rows in rows_in_order(newer, COLUMNS, from_offset, to_offset):
        yield from _chunks(rows, from_offset, to_offset)


def batch_with(files: Sequence[TableFile], offset: int) -> int:
    """The base offset of the batch that spans an offset; the offset itself where none does."""
    spanning = [file for file in files if file.minimum["base_offset"] <= offset <= file.maximum["last_offset"]]
    for rows in rows_in_order(spanning, ("base_offset", "last_offset")):
        firsts, lasts = rows["base_offset"].to_numpy(), rows["last_offset"].to_numpy()
        row = int(np.searchsorted(firsts, offset, side="right")) - 1
        if row >= 0 and lasts[row] >= offset:
            return int(firsts[row])
    return offset


def rows_in_order(
    files: Sequence[TableFile], columns: Sequence[str], from_offset: int = 0, to_offset: int | None = None
) -> Iterator[pa.Table]:
    """Rows of bronze.record_batches in order of `base_offset`, which must be one of the columns.

    Row groups with overlapping offsets are returned together, sorted. Row groups that end before `from_offset`, or
    begin at `to_offset` or later, are not read.
    """
    groups = sorted(
        (
            group
            for file in files
            for group in _row_groups(file)
            if group.last_offset >= from_offset and (to_offset is None or group.first_offset < to_offset)
        ),
        key=itemgetter(slice(4)),
    )
    together: list[_RowGroup] = []
    last_offset = -1
    for group in groups:
        if together and group.first_offset > last_offset:
            yield _sorted(together, columns)
            together = []
        together.append(group)
        last_offset = max(last_offset, group.last_offset)
    if together:
        yield _sorted(together, columns)


def _row_groups(file: TableFile) -> Iterator[_RowGroup]:
    with Scanner(file.path) as scanner:
        for number, bounds in enumerate(scanner.bounds("base_offset")):
            if bounds is not None:
                yield _RowGroup(*bounds, file.path, number, scanner.metadata)
            elif scanner.row_counts[number]:
                offsets = scanner.read_row_group(number, ["base_offset"])["base_offset"].to_numpy()
                yield _RowGroup(int(offsets.min()), int(offsets.max()), file.path, number, scanner.metadata)


def _sorted(groups: Sequence[_RowGroup], columns: Sequence[str]) -> pa.Table:
    parts = []
    for group in groups:
        with Scanner(group.path, metadata=group.metadata) as scanner:
            parts.append(scanner.read_row_group(group.number, columns))
    rows = pa.concat_tables(parts)
    base_offsets = rows["base_offset"].to_numpy()
    return rows.sort_by("base_offset") if np.any(base_offsets[1:] <= base_offsets[:-1]) else rows


def _chunks(rows: pa.Table, from_offset: int, to_offset: int | None) -> Iterator[BronzeChunk]:
    base_offsets = rows["base_offset"].to_numpy()
    if to_offset is not None and len(base_offsets) and base_offsets[-1] >= to_offset:
        rows = rows.slice(0, int(np.searchsorted(base_offsets, to_offset)))
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
    has_header = ~rows["is_transactional"].is_null().to_numpy()
    first, position = 0, 0
    while first < len(base_offsets):
        after = max(first + 1, int(np.searchsorted(ends, position + CHUNK_BYTES_MAX, side="right")))
        end = int(ends[after - 1])
        part = slice(first, after)
        sources = rows["source"].slice(first, after - first)
        yield BronzeChunk(data[position:end], base_offsets[part], sources, has_header[part])
        first, position = after, end


def _joined(batches: pa.ChunkedArray) -> U8:
    """The bytes of a binary column back to back, without a copy if Arrow stores them so already."""
    parts = [_bytes_of(chunk) for chunk in batches.chunks if len(chunk)]
    if not parts:
        return np.zeros(0, np.uint8)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _bytes_of(array: Any) -> U8:
    buffers = array.buffers()
    offsets = np.frombuffer(buffers[1], np.int32)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(buffers[2], np.uint8) if buffers[2] is not None else np.zeros(0, np.uint8)
    return data[offsets[0] : offsets[-1]]
