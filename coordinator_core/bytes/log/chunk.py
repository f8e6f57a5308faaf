"""A chunk: the records of consecutive batches of one log partition, as columns.

This is the contract between the log layer and replay. Framing fills it in compiled loops; the columnar replays for
offset commits and share state read it in compiled loops; all other records are read from it one by one. Nothing is
copied: keys and values are positions in `data`.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from typing import Any, Self, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

U8 = NDArray[np.uint8]
I8 = NDArray[np.int8]
I16 = NDArray[np.int16]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

CONTROL_NONE = -1
"""`control_types` of a data batch, and of a control batch whose record compaction has removed. Otherwise Kafka's
ControlRecordType id: 0 ABORT, 1 COMMIT, 2 and above are not transactional."""

CONTROL_UNKNOWN = 127
"""A control record whose key has an unknown type or cannot be read (ControlRecordType.UNKNOWN)."""


class Columns:
    """Base of dataclasses whose fields are columns of one length."""

    __slots__: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(getattr(self, type(self).__slots__[0]))

    def take(self, rows: I64 | BoolArray) -> Self:
        """Some of the rows."""
        return type(self)(*(getattr(self, name)[rows] for name in type(self).__slots__))


@dataclass(frozen=True, slots=True)
class BatchColumns(Columns):
    """One row for each batch, in log order. All arrays have the same length. Times are epoch milliseconds, -1 if
    missing.
    """

    base_offset: I64
    last_offset: I64
    """Inclusive: base offset + last offset delta. Compaction does not change it."""
    leader_epoch: I32
    magic: I8
    codec: I8
    """Kafka's CompressionType id: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
    is_log_append_time: BoolArray
    is_transactional: BoolArray
    is_control: BoolArray
    control_type: I8
    base_timestamp_ms: I64
    """Where `has_delete_horizon`, the delete horizon instead."""
    max_timestamp_ms: I64
    has_delete_horizon: BoolArray
    producer_id: I64
    producer_epoch: I16
    base_sequence: I32
    record_count: I32
    position: I64
    """Byte position of the batch in the buffer in which it was framed."""
    size: I64
    """Bytes of the whole batch, header included."""


@dataclass(frozen=True, slots=True)
class RecordColumns(Columns):
    """One row for each record of a readable batch (data and control), in offset order. All arrays have the same
    length."""

    batch_index: I32
    """Row of the record's batch in `BatchColumns`."""
    offset: I64
    timestamp_ms: I64
    """The record's own timestamp; with LogAppendTime the batch's max timestamp; -1 in a v0 message."""
    key_position: I64
    key_length: I32
    """-1: null."""
    value_position: I64
    value_length: I32
    """-1: null (a tombstone); 0 is an empty value, not a tombstone."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Bytes that could not be read, with their position. Each becomes one quarantine row."""

    stage: str
    """FILE BATCH RECORD VALUE REPLAY, as in bronze.quarantine."""
    code: str
    message: str
    base_offset: int | None = None
    offset: int | None = None
    byte_position: int | None = None
    payload: bytes = b""
    """The bytes themselves, at most `limits.QUARANTINE_BYTES_MAX`."""
    group_id: str | None = None
    """At stage VALUE: the group of the record, where its key can be read."""


@dataclass(frozen=True, slots=True)
class RecordChunk:
    """Records of consecutive batches. `data` has all keys and values: the batches' own bytes if they are not
    compressed, otherwise the decompressed sections."""

    data: U8
    batches: BatchColumns
    records: RecordColumns
    findings: tuple[Finding, ...]
    """Batches and records that could not be read; their records are not in `records`."""
    is_after_others: BoolArray | None = None
    """One bool for each record: whether records that are left out here directly precede it in the log (see
    `key_buckets`), so that it begins an operation. None: no records are left out."""


Kind = TypeVar("Kind")


def empty_columns(of: type[Kind], count: int, **given: Any) -> Kind:
    """Uninitialized columns with `count` rows: an array for each field of a NamedTuple, but for the given ones."""
    kind: Any = of
    columns = {name: np.empty(count, dtype) for name, dtype in _dtypes_of(kind) if name not in given}
    return of(**columns, **given)


@cache
def _dtypes_of(of: Hashable) -> tuple[tuple[str, type[np.generic]], ...]:
    dtypes: dict[object, type[np.generic]] = {I8: np.int8, I32: np.int32, I64: np.int64, BoolArray: np.bool_}
    return tuple((name, dtypes[hint]) for name, hint in get_type_hints(of).items() if hint in dtypes)


def unreadable_record_count(chunk: RecordChunk) -> int:
    """The number of records, by the batch headers, in batches without any readable record."""
    if int(chunk.batches.record_count.sum()) == len(chunk.records.batch_index):
        return 0
    readable = np.bincount(chunk.records.batch_index, minlength=len(chunk.batches))
    return int(chunk.batches.record_count[readable == 0].sum())
