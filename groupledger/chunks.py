"""The records of one key, as Spark passes them to a grouped function, as chunks for the core's replay.

They come sorted by offset, in Arrow batches of any size, and are never all in memory: a few batches form a chunk.
Records of one operation, and copies of one record, are never split.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.log.chunk import (
    CONTROL_NONE,
    I32,
    I64,
    U8,
    BatchColumns,
    BoolArray,
    RecordChunk,
    RecordColumns,
)
from coordinator_core.bytes.log.pack import BATCH_BYTES_MAX
from coordinator_core.replay.offsets.replay import NO_PRODUCER_ID

CHUNK_ROWS_MIN: Final = 1 << 16
"""Minimum number of rows in a chunk, if there are so many: each chunk has overhead."""
CHUNK_BYTES_MIN: Final = 8 * 1024 * 1024
"""Minimum size of a chunk: its results then stay in memory that is in use already."""


@dataclass(frozen=True, slots=True)
class KeyChunk:
    """Some records of one key."""

    records: RecordChunk
    log_partition: int
    is_known: BoolArray | None
    """One bool a record: its producer is known. None: no producer is known."""

    def are_known(self, offsets: I64) -> BoolArray:
        """Are the producers of the records at these offsets known?

        True for offsets before the chunk, since only known transactions are decided later.
        """
        if self.is_known is None:
            return np.zeros(len(offsets), np.bool_)
        if self.is_known.all():
            return np.ones(len(offsets), np.bool_)
        place = np.searchsorted(self.records.records.offset, offsets)
        is_here = offsets >= self.records.records.offset[0]
        found: BoolArray = ~is_here | self.is_known[np.minimum(place, len(self.is_known) - 1)]
        return found


def key_rows(batches: Iterator[pa.RecordBatch], *, keeps_operations: bool) -> Iterator[pa.Table]:
    """Yield the records of one key in parts, ascending by offset, each record once.

    `keeps_operations`: do not split an operation, unless it is larger than any batch of Kafka can be. Of several copies
    of a record the one with the least bytes counts, so that their order does not matter.
    """
    rows: list[pa.RecordBatch] = []
    row_count = byte_count = 0
    left: pa.Table | None = None
    for batch in batches:
        rows.append(batch)
        row_count += batch.num_rows
        byte_count += batch.nbytes
        if row_count < CHUNK_ROWS_MIN and byte_count < CHUNK_BYTES_MIN:
            continue
        together, left = cut(_joined(left, rows), keeps_operations=keeps_operations)
        if together.num_rows:
            yield together
        rows, row_count, byte_count = [], 0, 0
    if rows or left is not None:
        together = _joined(left, rows)
        if together.num_rows:
            yield _each_once(together)


def _joined(left: pa.Table | None, rows: list[pa.RecordBatch]) -> pa.Table:
    parts = [] if left is None else [left]
    if rows:
        parts.append(pa.Table.from_batches(rows))
    return pa.concat_tables(parts).combine_chunks()


def cut(rows: pa.Table, *, keeps_operations: bool) -> tuple[pa.Table, pa.Table]:
    """The complete part, and rows that may continue in the next batch: the last operation."""
    rows = _each_once(rows)
    last = rows.num_rows - 1
    if keeps_operations and rows.nbytes < CHUNK_BYTES_MIN + BATCH_BYTES_MAX:
        last = int(np.flatnonzero(_begins_operation(rows))[-1])
    return rows.slice(0, last), rows.slice(last).combine_chunks()


def _each_once(rows: pa.Table) -> pa.Table:
    offset = rows["log_offset"].to_numpy()
    is_copy = np.zeros(len(offset), np.bool_)
    is_copy[1:] = offset[1:] == offset[:-1]
    if not is_copy.any():
        return rows
    copies = np.flatnonzero(is_copy)
    if not _are_same(rows, copies, copies - 1):
        rows = _least_first(rows, offset)
    return rows.filter(pa.array(~is_copy))


def _are_same(rows: pa.Table, some: I64, others: I64) -> bool:
    left, right = rows.take(some), rows.take(others)
    return all(left[name].equals(right[name]) for name in _CONTENT)


_CONTENT: Final = ("key", "value", "timestamp_ms")


def _least_first(rows: pa.Table, offset: I64) -> pa.Table:
    """Of copies with different content the least one comes first, since their order is arbitrary."""
    order = np.arange(len(offset))
    starts = np.flatnonzero(np.diff(offset, prepend=offset[0] - 1))
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(offset)], strict=True):
        if end - start > 1:
            content = list(zip(*(rows[name].slice(start, end - start).to_pylist() for name in _CONTENT), strict=True))
            ranked = sorted(range(end - start), key=lambda index: tuple((v is not None, v) for v in content[index]))
            order[start:end] = start + np.array(ranked)
    return rows.take(pa.array(order))


def _begins_operation(rows: pa.Table) -> BoolArray:
    """One bool a row. Where the source does not show operations, contiguous records with the same timestamp form
    one, as in a dump (`coordinator_core.bytes.log.pack`)."""
    timestamp_ms = _numbers(rows["timestamp_ms"], -1)
    offset = rows["log_offset"].to_numpy()
    goes_on = (offset[1:] == offset[:-1] + 1) & (timestamp_ms[1:] != -1)
    if "operation" in rows.column_names:
        operation, is_known = _numbers(rows["operation"], -1), rows["operation"].is_valid().to_numpy()
        is_same = (operation[1:] == operation[:-1]) & (is_known[1:] == is_known[:-1])
        goes_on = is_same & (is_known[1:] | goes_on)
    begins = np.ones(rows.num_rows, np.bool_)
    begins[1:] = ~(goes_on & (timestamp_ms[1:] == timestamp_ms[:-1]))
    return begins


def chunk_of(rows: pa.Table) -> KeyChunk:
    """Rows of one key for the core."""
    key_data, key_position, key_length = _bytes(rows["key"])
    value_data, value_position, value_length = _bytes(rows["value"])
    offset = rows["log_offset"].to_numpy()
    timestamp_ms = _numbers(rows["timestamp_ms"], -1)
    begins = _begins_operation(rows)
    control_type = np.full(len(offset), CONTROL_NONE, np.int8)
    if "control_type" in rows.column_names:
        control_type = _numbers(rows["control_type"], CONTROL_NONE).astype(np.int8)
        is_marker = control_type != CONTROL_NONE
        begins |= is_marker
        begins[1:] |= is_marker[:-1]
    producer_id = np.full(len(offset), NO_PRODUCER_ID, np.int64)
    is_transactional, is_known = np.zeros(len(offset), np.bool_), None
    if "producer_id" in rows.column_names:
        is_known = rows["producer_id"].is_valid().to_numpy()
        producer_id = _numbers(rows["producer_id"], NO_PRODUCER_ID)
        is_transactional = pc.fill_null(rows["is_transactional"], False).to_numpy()
        differs = (producer_id[1:] != producer_id[:-1]) | (is_transactional[1:] != is_transactional[:-1])
        begins[1:] |= differs
    firsts = np.flatnonzero(begins)
    batches = _batches(
        offset, timestamp_ms, firsts, control_type[firsts], producer_id[firsts], is_transactional[firsts]
    )
    records = RecordColumns(
        batch_index=(np.cumsum(begins) - 1).astype(np.int32),
        offset=offset,
        timestamp_ms=timestamp_ms,
        key_position=key_position,
        key_length=key_length,
        value_position=value_position + len(key_data),
        value_length=value_length,
    )
    data = np.concatenate((key_data, value_data))
    partition = int(rows["log_partition"][0].as_py())
    return KeyChunk(RecordChunk(data, batches, records, ()), partition, is_known)


def _batches(
    offset: I64, timestamp_ms: I64, firsts: I64, control_type: Any, producer_id: I64, is_transactional: BoolArray
) -> BatchColumns:
    """One batch for each operation; unknown header fields have the values of batches built from keys and values."""
    count = len(firsts)
    counts = np.diff(firsts, append=len(offset))
    zeros, none = np.zeros(count, np.int64), np.full(count, -1, np.int64)
    no, small = np.zeros(count, np.bool_), np.zeros(count, np.int8)
    return BatchColumns(
        base_offset=offset[firsts],
        last_offset=offset[firsts + counts - 1],
        leader_epoch=none.astype(np.int32),
        magic=small + np.int8(2),
        codec=small,
        is_log_append_time=no,
        is_transactional=is_transactional,
        is_control=control_type != CONTROL_NONE,
        control_type=control_type,
        base_timestamp_ms=timestamp_ms[firsts],
        max_timestamp_ms=timestamp_ms[firsts],
        has_delete_horizon=no,
        producer_id=producer_id,
        producer_epoch=none.astype(np.int16),
        base_sequence=none.astype(np.int32),
        record_count=counts.astype(np.int32),
        position=zeros,
        size=zeros,
    )


def _numbers(column: pa.ChunkedArray, null: int) -> I64:
    """Integers; `null` for null."""
    filled = pc.fill_null(column, null) if column.null_count else column
    numbers: I64 = filled.to_numpy().astype(np.int64, copy=False)
    return numbers


def _bytes(column: pa.ChunkedArray) -> tuple[U8, I64, I32]:
    """The bytes of a single-chunk column, the start of each value, and its length; -1: null."""
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    _, ends, data = array.buffers()
    kind = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    offsets = np.frombuffer(ends, kind)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    content = content[offsets[0] : offsets[-1]]
    offsets -= offsets[0]
    length = np.diff(offsets).astype(np.int32)
    if array.null_count:
        length[~array.is_valid().to_numpy(zero_copy_only=False)] = -1
    return content, offsets[:-1], length
