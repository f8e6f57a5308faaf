"""Sort rows of a dump by log partition and offset in pieces, and merge the pieces into one ascending stream.

A dump is unordered: rows of all log partitions are mixed over many files. A task buffers a bounded number of rows,
sorts them, and writes them as one piece: an Arrow file with separate blocks for each log partition. A later task merges
the blocks of one log partition from all pieces, with one block of each in memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from coordinator_core.bytes.log.chunk import I64
from jobs.delta.filesystems import filesystem_of
from jobs.errors import writing

PIECE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Buffer size at which a task writes a piece."""
BLOCK_BYTES_MAX: Final = 2 * 1024 * 1024
"""Size of a block, except for a single larger row: a merge keeps one block of each piece in memory."""


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive blocks of a piece: its rows of one log partition, ascending by offset."""

    path: str
    """Path or URI for `filesystem_of`."""
    first_block: int
    block_count: int
    first_offset: int
    last_offset: int
    """Offset of its last row; at least that of the first one."""
    row_count: int
    size_bytes: int


class PieceWriter:
    """Buffers rows with topic, partition and offset, and writes them in pieces."""

    def __init__(self, folder: str, name: str, offset_column: str) -> None:
        self._folder = folder
        self._name = name
        self._offset_column = offset_column
        self._tables: list[pa.Table] = []
        self._bytes = 0
        self._piece_count = 0
        self.runs: list[tuple[str, int, Run]] = []
        """(topic, partition, run), in the order of the rows."""

    def write(self, rows: pa.Table) -> None:
        """Add rows in the dump's order."""
        if rows.num_rows:
            self._tables.append(rows)
            self._bytes += rows.nbytes
        if self._bytes >= PIECE_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows."""
        if not self._tables:
            return
        rows = pa.concat_tables(self._tables).combine_chunks()
        self._tables, self._bytes = [], 0
        topics = pc.dictionary_encode(rows["topic"].combine_chunks())
        partition = rows["partition"].to_numpy()
        offset = rows[self._offset_column].to_numpy()
        keys = (offset, partition, topics.indices.to_numpy())
        order = np.lexsort(keys)
        if np.any(order[1:] < order[:-1]):
            rows = rows.take(pa.array(order))
        offset, partition, topic = (values[order] for values in keys)
        is_new = np.ones(len(offset), np.bool_)
        is_new[1:] = (topic[1:] != topic[:-1]) | (partition[1:] != partition[:-1])
        starts = np.flatnonzero(is_new).tolist()
        path = f"{self._folder}/{self._name}-{self._piece_count:05d}.arrow"
        self._piece_count += 1
        filesystem, place = filesystem_of(path)
        with writing("what a dump holds, sorted,", self._folder):
            filesystem.create_dir(place.rpartition("/")[0], recursive=True)
            block = 0
            with filesystem.open_output_stream(place) as sink, pa.ipc.new_file(sink, rows.schema) as writer:
                for start, end in zip(starts, [*starts[1:], len(offset)], strict=True):
                    part = rows.slice(start, end - start)
                    blocks = _blocks(part)
                    for piece in blocks:
                        writer.write_batch(piece)
                    run = Run(
                        path, block, len(blocks), int(offset[start]), int(offset[end - 1]), end - start, part.nbytes
                    )
                    self.runs.append((topics.dictionary[int(topic[start])].as_py(), int(partition[start]), run))
                    block += len(blocks)


def _blocks(rows: pa.Table) -> list[pa.RecordBatch]:
    row_bytes = max(rows.nbytes // max(rows.num_rows, 1), 1)
    blocks: list[pa.RecordBatch] = rows.to_batches(max_chunksize=max(BLOCK_BYTES_MAX // row_bytes, 1))
    return blocks


class _Cursor:
    """The remaining rows of a run, one block of them in memory."""

    def __init__(self, run: Run, offset_column: str) -> None:
        filesystem, place = filesystem_of(run.path)
        is_local = isinstance(filesystem, fs.LocalFileSystem)
        self._source = pa.memory_map(place) if is_local else filesystem.open_input_file(place)
        self._reader = pa.ipc.open_file(self._source)
        self._next_block = run.first_block
        self._end_block = run.first_block + run.block_count
        self._offset_column = offset_column
        self._rows: pa.RecordBatch | None = None
        self._offsets: I64 = np.empty(0, np.int64)

    def fill(self) -> bool:
        """Read the next block once the current one is consumed. False: there is none, and the run is closed."""
        while not len(self._offsets):
            if self._next_block == self._end_block:
                self.close()
                return False
            self._rows = self._reader.get_batch(self._next_block)
            self._offsets = self._rows.column(self._offset_column).to_numpy()
            self._next_block += 1
        return True

    @property
    def has_more_blocks(self) -> bool:
        """Are there blocks after the rows in memory?"""
        return self._next_block < self._end_block

    @property
    def last_offset(self) -> int:
        return int(self._offsets[-1])

    def take_until(self, offset: int) -> pa.RecordBatch:
        """Remove and return the rows in memory up to an offset, inclusive."""
        assert self._rows is not None
        count = int(np.searchsorted(self._offsets, offset, side="right"))
        taken = self._rows.slice(0, count)
        self._rows, self._offsets = self._rows.slice(count), self._offsets[count:]
        return taken

    def close(self) -> None:
        """Close the file; returned rows stay valid."""
        self._source.close()


def merged(runs: Sequence[Run], offset_column: str) -> Iterator[pa.Table]:
    """Yield the rows of several runs of one log partition, ascending by offset; at equal offsets in the order of the
    runs.

    A run is opened when its first offset is reached: if the files of a dump are consecutive, a block or two are in
    memory.
    """
    waiting = sorted(enumerate(runs), key=lambda item: (-item[1].first_offset, -item[0]))
    cursors: list[tuple[int, _Cursor]] = []
    try:
        while True:
            cursors = [item for item in cursors if item[1].fill()]
            # up to this offset no block outside memory can have rows
            ends = [cursor.last_offset for _, cursor in cursors if cursor.has_more_blocks]
            until = min(ends) if ends else max((cursor.last_offset for _, cursor in cursors), default=-1)
            if waiting and (not cursors or waiting[-1][1].first_offset <= until):
                index, run = waiting.pop()
                cursors.append((index, _Cursor(run, offset_column)))
                continue
            if not cursors:
                return
            cursors.sort(key=lambda item: item[0])
            parts = [part for _, cursor in cursors if (part := cursor.take_until(until)).num_rows]
            rows = pa.Table.from_batches(parts)
            if len(parts) > 1:
                order = np.argsort(rows[offset_column].to_numpy(), kind="stable")
                rows = rows.take(pa.array(order))
            yield rows
    finally:
        for _, cursor in cursors:
            cursor.close()
