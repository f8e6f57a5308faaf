"""Pack the rows of a dump into batches, in the form of segment reads."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from coordinator_core.bytes.log import kernels
from coordinator_core.bytes.log.batch import NO_PRODUCER_ID, Record
from coordinator_core.bytes.log.chunk import U8, BatchColumns, BoolArray, Finding
from coordinator_core.bytes.log.fill import KeyValues, decode_headers
from coordinator_core.bytes.log.pack import PackableRecords, pack_records
from coordinator_core.bytes.log.scan import SegmentScan
from coordinator_core.limits import QUARANTINE_BYTES_MAX
from jobs.sources.dumps.dump_log import BATCHES, DumpLog
from jobs.sources.dumps.framing import byte_ranges
from jobs.sources.dumps.rows import NO_BATCH
from jobs.sources.dumps.staging import merged
from jobs.sources.segments import DUMP, Segment, SegmentRead

DUPLICATE_OFFSET: Final = "DUPLICATE_OFFSET"
"""Code for a record that has the offset of an earlier record of the dump, but differs from it."""
READ_BYTES_MAX: Final = 16 * 1024 * 1024
"""Size of the rows packed at a time."""


def read_dump_log(
    log: DumpLog, *, known: Sequence[tuple[int, int]] = (), met: Callable[[pa.Table, pa.Table], object] | None = None
) -> Iterator[SegmentRead]:
    """Yield the batches of a log partition in offset order, some megabytes at a time.

    `known`: captured offset ranges, ascending, disjoint, both ends inclusive. Rows at these offsets are not packed, so
    that no batch overlaps captured ones. `met` is called with the next rows, and with those of them that are not
    packed. Findings of the read: records with the same offset and different content.
    """
    packer = _BatchPacker(log) if log.kind == BATCHES else _RowPacker(log)
    column = "base_offset" if log.kind == BATCHES else "offset"
    for rows in merged(log.runs, column):
        if log.kind == BATCHES:
            yield from packer.feed(rows)
            continue
        is_new = _is_new(rows, column, known)
        if met is not None:
            met(rows, rows.filter(pa.array(~is_new)))
        yield from packer.feed(rows if is_new.all() else rows.filter(pa.array(is_new)))
    yield from packer.finish()


def _is_new(rows: pa.Table, column: str, known: Sequence[tuple[int, int]]) -> BoolArray:
    if not known:
        return np.ones(rows.num_rows, np.bool_)
    offset = rows[column].to_numpy()
    nearest = np.searchsorted(np.array([first for first, _ in known], np.int64), offset, side="right") - 1
    lasts = np.array([last for _, last in known], np.int64)
    is_new: BoolArray = (nearest < 0) | (lasts[nearest] < offset)
    return is_new


class _Packer(ABC):
    """Base of both packers: buffers rows until they fill a read."""

    def __init__(self, log: DumpLog) -> None:
        self._log = log
        self._waiting: list[pa.Table] = []
        self._bytes = 0
        self._findings: list[Finding] = []
        self._next_offset = -1
        self._knows_producers = log.kind == BATCHES

    def feed(self, rows: pa.Table) -> Iterator[SegmentRead]:
        """Add rows, ascending by offset."""
        if rows.num_rows:
            self._waiting.append(rows)
            self._bytes += rows.nbytes
        if self._bytes >= READ_BYTES_MAX:
            yield from self._flush(is_end=False)

    def finish(self) -> Iterator[SegmentRead]:
        """End the input."""
        yield from self._flush(is_end=True)

    @abstractmethod
    def _flush(self, *, is_end: bool) -> Iterator[SegmentRead]:
        """Read the buffered rows, at the end all of them."""

    def _read(self, data: U8, base_offset: int) -> SegmentRead:
        columns, _, end_position, stop = kernels.frame_batches(data, 0, len(data))
        assert stop == kernels.STOP_END, "packed batches are whole"
        batches = BatchColumns(*columns)
        first = base_offset if self._next_offset < 0 else self._next_offset
        self._next_offset = int(batches.last_offset[-1]) + 1 if len(batches) else first
        findings, self._findings = tuple(self._findings), []
        return SegmentRead(
            Segment(
                path=self._log.uri,
                name=f"{first:020d}",
                base_offset=first,
                size_bytes=len(data),
                is_last=False,
                source_kind=DUMP,
                has_header=self._log.kind == BATCHES,
                knows_producers=self._knows_producers,
            ),
            pa.py_buffer(data),
            SegmentScan(batches, np.ones(len(batches), np.bool_), findings, (), self._next_offset, end_position),
        )


class _RowPacker(_Packer):
    """Packs rows of keys and values."""

    def __init__(self, log: DumpLog) -> None:
        super().__init__(log)
        self._last: dict[str, Any] | None = None
        """The last record, to be compared if the next rows begin with its offset."""

    def feed(self, rows: pa.Table) -> Iterator[SegmentRead]:
        """Add rows; of records with the same offset the first counts. A read has rows of known producers, or of unknown
        ones."""
        rows = self._distinct(rows)
        knows = rows["producer_id"].is_valid().to_numpy()
        bounds = [0, *(np.flatnonzero(knows[1:] != knows[:-1]) + 1).tolist(), rows.num_rows]
        for first, end in pairwise(bounds):
            if first < end and knows[first] != self._knows_producers:
                yield from self._flush(is_end=True)
                self._knows_producers = bool(knows[first])
            yield from super().feed(rows.slice(first, end - first))

    def _distinct(self, rows: pa.Table) -> pa.Table:
        if not rows.num_rows:
            return rows
        offset = rows["offset"].to_numpy()
        is_again = np.zeros(len(offset), np.bool_)
        is_again[1:] = offset[1:] == offset[:-1]
        is_again[0] = self._last is not None and self._last["offset"] == offset[0]
        for row in np.flatnonzero(is_again).tolist():
            record = _content(rows, row)
            if row == 0 or not is_again[row - 1]:
                first = self._last if row == 0 else _content(rows, row - 1)
            if record != first:
                self._findings.append(_duplicate(record["offset"], record["value"] or b"", "another record"))
        kept = rows.filter(pa.array(~is_again)) if is_again.any() else rows
        if kept.num_rows:
            self._last = _content(kept, kept.num_rows - 1)
        return kept

    def _flush(self, *, is_end: bool) -> Iterator[SegmentRead]:
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting).combine_chunks()
        data, count = pack_records(_packable(rows), is_end=is_end)
        rest = rows.slice(count)
        self._waiting = [rest] if rest.num_rows else []
        self._bytes = rest.nbytes if rest.num_rows else 0
        if count:
            yield self._read(data, int(rows["offset"][0].as_py()))


def _content(rows: pa.Table, row: int) -> dict[str, Any]:
    """A record without what copies need not tell of its batch."""
    found: dict[str, Any] = rows.slice(row, 1).drop_columns(list(NO_BATCH)).to_pylist()[0]
    return found


class _BatchPacker(_Packer):
    """Joins whole batches."""

    def __init__(self, log: DumpLog) -> None:
        super().__init__(log)
        self._last_offset = -1
        self._last_batch = b""

    def _flush(self, *, is_end: bool) -> Iterator[SegmentRead]:
        parts: list[bytes] = []
        base_offset = -1
        for rows in self._waiting:
            columns = (rows[name].to_pylist() for name in ("base_offset", "last_offset", "batch"))
            for first, last, batch in zip(*columns, strict=True):
                if first <= self._last_offset:
                    if batch != self._last_batch:
                        self._findings.append(_duplicate(first, batch, "another batch"))
                    continue
                base_offset = first if base_offset < 0 else base_offset
                self._last_offset, self._last_batch = last, batch
                parts.append(batch)
        self._waiting, self._bytes = [], 0
        if parts or self._findings:
            yield self._read(np.frombuffer(b"".join(parts), np.uint8), max(base_offset, 0))


def _duplicate(offset: int, payload: bytes, what: str) -> Finding:
    return Finding(
        stage="FILE",
        code=DUPLICATE_OFFSET,
        message=f"{what} of the dump has its offsets, and differs: the first is taken",
        offset=offset,
        payload=payload[:QUARANTINE_BYTES_MAX],
    )


def key_values(rows: pa.Table) -> KeyValues:
    """Rows of ROWS_SCHEMA as keys and values for comparison."""
    key, value = (byte_ranges(rows[name].combine_chunks()) for name in ("key", "value"))
    return KeyValues(rows["offset"].to_numpy(), *key, *value)


def record_at(rows: pa.Table, row: int) -> Record:
    found = rows.slice(row, 1).to_pylist()[0]
    headers = decode_headers(found["headers"])
    return Record(found["offset"], found["timestamp_ms"], found["key"], found["value"], headers)


def _packable(rows: pa.Table) -> PackableRecords:
    key_data, key_start, key_length = byte_ranges(rows["key"].combine_chunks())
    value_data, value_start, value_length = byte_ranges(rows["value"].combine_chunks())
    header_data, header_start, header_length = byte_ranges(rows["headers"].combine_chunks())
    return PackableRecords(
        offset=rows["offset"].to_numpy(),
        timestamp_ms=rows["timestamp_ms"].to_numpy(),
        is_log_append_time=rows["is_log_append_time"].to_numpy(),
        is_transactional=rows["is_transactional"].to_numpy(),
        is_control=rows["is_control"].to_numpy(),
        producer_id=rows["producer_id"].fill_null(NO_PRODUCER_ID).to_numpy(),
        base_offset=rows["base_offset"].to_numpy(),
        key_data=key_data,
        key_start=key_start,
        key_length=key_length,
        value_data=value_data,
        value_start=value_start,
        value_length=value_length,
        header_data=header_data,
        header_start=header_start,
        header_length=header_length,
    )
