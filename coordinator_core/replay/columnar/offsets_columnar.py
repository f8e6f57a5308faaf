"""The columnar replay of offset commits: the bulk of a `__consumer_offsets` partition, decoded and replayed in compiled
loops.

A `ColumnarOffsetReplay` for each log partition is fed its chunks in log order. For each chunk it returns the rows of
silver.offset_commits whose outcome is now known, and which records are left for other replays. It decides like
`replay.py` (OffsetMetadataManager); a property test compares the two. Rows of open transactions wait for their marker
and are returned with a later chunk, or by `finish`. The rows do not depend on how the log is cut into chunks.

Compiled code reads only the layouts that Kafka writes. The codec reads any other key or value again: it may be valid (a
tag of a later Kafka, bytes after the last field); otherwise it becomes a `Finding`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coordinator_core.bytes.codec import decode_key, decode_value, has_unknown_tags, uuid_bytes, uuid_text
from coordinator_core.bytes.interning import NO_KEYS, Interned, Interner, InternTable
from coordinator_core.bytes.log.chunk import (
    I8,
    I32,
    I64,
    U8,
    BoolArray,
    Finding,
    RecordChunk,
    empty_columns,
)
from coordinator_core.bytes.log.kernels import read_only
from coordinator_core.errors import CoreError, DecodeError
from coordinator_core.replay.columnar import offsets_kernels as kernels
from coordinator_core.replay.columnar.offsets_kernels import (
    BatchArrays,
    KeyArrays,
    RecordArrays,
    RowArrays,
    TouchArrays,
)
from coordinator_core.replay.faults import Faults
from coordinator_core.replay.offsets.replay import NO_PRODUCER_ID, committed_offset_of
from coordinator_core.replay.offsets.state import OffsetKey
from coordinator_core.replay.record_findings import RecordFindings
from schemas.consumer_offsets import TOPIC, RecordType

OUTCOMES: Final = ("APPLIED", "ABORTED", "PENDING", "SUPERSEDED")
"""`CommitColumns.outcome` is an index into this."""
CHANGES: Final = ("FIRST", "ADVANCE", "REPEAT", "REWIND", "DELETE", "FORGOTTEN")
"""`CommitColumns.change` is an index into this, or -1. After DELETE and those behind it no offset is in force."""

_INT32_MAX: Final = 2**31 - 1
_NO_BYTES: Final[U8] = np.frombuffer(b"", np.uint8)
NO_WRITER: Final = -1
_GROUP_KEY_PREFIX: Final = int(RecordType.GROUP_METADATA).to_bytes(2, "big")
"""Prefix that makes a group's bytes a key with only the group, so that the codec can read a group alone."""


@dataclass(frozen=True, slots=True)
class CommitColumns:
    """Rows of silver.offset_commits as arrays of equal length, in log order. Times are epoch milliseconds.

    A `..._valid` array is False if its column is null; the value there has no meaning. `group`, `topic` and
    `topic_id` are indexes into `groups`, `topics` and `topic_ids`, which belong to the columnar replay and only grow at
    their end.
    """

    groups: Sequence[str]
    topics: Sequence[str]
    topic_ids: Sequence[str]
    """Kafka's 22-character text."""
    log_offset: I64
    group: I32
    topic: I32
    topic_id: I32
    """-1: null."""
    partition: I32
    is_value: BoolArray
    """False for a tombstone, whose committed offset, metadata and commit time are null."""
    committed_offset: I64
    leader_epoch: I32
    leader_epoch_valid: BoolArray
    metadata_offsets: I32 | I64
    """One more than there are rows: row `i` is `metadata_data[metadata_offsets[i]:metadata_offsets[i + 1]]`, UTF-8.
    int32 like Arrow's strings, int64 like its large strings from 2 GiB on."""
    metadata_data: U8
    commit_time_ms: I64
    expire_time_ms: I64
    expire_time_valid: BoolArray
    value_version: I8
    """Version of OffsetCommitValue; -1 for a tombstone."""
    recorded_at_ms: I64
    """The record's own timestamp; -1 if it has none."""
    producer_id: I64
    """That of the batch; -1 if it has none."""
    is_transactional: BoolArray
    """The batch's transactional bit, which decides nothing: the producer id does."""
    outcome: I8
    applied_valid: BoolArray
    """Validity of the next two columns: the outcome is APPLIED."""
    applied_log_offset: I64
    """For a commit with a producer id the marker's offset, else the record's own."""
    applied_at_ms: I64
    change: I8
    """-1: null."""
    previous_offset: I64
    previous_offset_valid: BoolArray
    delta: I64
    delta_valid: BoolArray
    """Also False if the difference overflows an int64."""

    def __len__(self) -> int:
        return len(self.log_offset)


@dataclass(frozen=True, slots=True)
class Touches:
    """Offset-commit values that create a simple classic group if the group map has none, in log order.

    These are the first of each group, and the first after each tombstone that may remove the group (types 2, 3, 11,
    17).
    """

    log_offset: I64
    group: I32
    operation_last_offset: I64
    """Last offset, inclusive, of the operation that contains the record."""
    timestamp_ms: I64

    def __len__(self) -> int:
        return len(self.log_offset)


@dataclass(frozen=True, slots=True)
class ColumnarCounts:
    """The records of a chunk by kind. The first is the sum of the others."""

    record_count: int
    decoded_count: int
    """Offset-commit values."""
    tombstone_count: int
    """Tombstones of offset commits."""
    control_count: int
    quarantined_count: int
    other_count: int
    """Records of other types, known or not; the reader of `others` counts them in detail."""
    unknown_field_count: int = 0
    """Values with tagged fields that no declaration has."""


@dataclass(frozen=True, slots=True)
class ColumnarOutput:
    commits: CommitColumns
    others: I64
    """Rows of the chunk's records in data batches that are not offset commits, ascending."""
    other_operations: I32
    """For each element of `others`: index into `operation_last_offset`, or -1 for an unknown type or a key without a
    group."""
    operation_last_offset: I64
    """For each operation of the chunk, its last offset. An operation is a maximal run of records in one batch with one
    timestamp and one group, including offset commits. Operations are numbered in log order, from 0 in each chunk."""
    touches: Touches
    findings: tuple[Finding, ...]
    counts: ColumnarCounts


@dataclass(frozen=True, slots=True)
class ColumnarState:
    """The state of a columnar replay between two chunks, from which a later one continues."""

    keys: Interned
    groups: Interned
    topics: Interned
    topic_ids: Interned
    key_arrays: KeyArrays
    group_touched: BoolArray
    carried: RowArrays
    """The rows of open transactions."""
    carried_metadata: U8
    writer: int = NO_WRITER
    """Which coordinator wrote last, as determined by `history.last_offsets`."""


class Forgotten(NamedTuple):
    """What a new leader did not load."""

    rows: RowArrays
    """One row for each offset that was in force, in the order of their records, at the leader's first offset."""
    record_offset: I64
    """The log offsets of their records."""
    lost: RowArrays
    """Rows of transactions that were open."""
    lost_metadata: U8


class ColumnarOffsetReplay:
    """Replays offset commits of one log partition. It keeps the offset in force for each key, and the rows of open
    transactions.

    It must not be used after `feed` raised an exception, which no bytes can cause. What the codec reads for it is in
    `faults` if that fails because of a bug.
    """

    def __init__(self, state: ColumnarState | None = None, *, faults: Faults | None = None) -> None:
        """Begin at the start of a log, or where another columnar replay's `export_state` was taken."""
        self.faults = Faults() if faults is None else faults
        start = _AT_START if state is None else state
        self._keys = Interner.of(start.keys)
        self._groups = Interner.of(start.groups)
        self._topics = Interner.of(start.topics)
        self._topic_ids = Interner.of(start.topic_ids)
        self._key_arrays = KeyArrays._make(column.copy() for column in start.key_arrays)
        self._group_touched = start.group_touched.copy()
        self._unknown_field_count = 0
        self._group_names: list[str] = []
        self._topic_names: list[str] = []
        self._topic_id_texts: list[str] = []
        self._carried = RowArrays._make(column.copy() for column in start.carried)
        self._carried_metadata = start.carried_metadata
        self.writer = start.writer
        """Kept for the reader of the batches."""
        self._fit()
        self._name()

    def export_state(self) -> ColumnarState:
        """The state from which a new columnar replay continues here. Call it between two feeds."""
        count = len(self._keys)
        return ColumnarState(
            keys=self._keys.export(),
            groups=self._groups.export(),
            topics=self._topics.export(),
            topic_ids=self._topic_ids.export(),
            key_arrays=KeyArrays._make(column[:count].copy() for column in self._key_arrays),
            group_touched=self._group_touched[: len(self._groups)].copy(),
            carried=RowArrays._make(column.copy() for column in self._carried),
            carried_metadata=self._carried_metadata,
            writer=self.writer,
        )

    def offset_counts(self, groups: I32) -> I64:
        """How many offsets are in force in some groups (indexes as in `CommitColumns.group`), between two feeds."""
        count = len(self._keys)
        is_in_force = self._key_arrays.has_offset[:count] & (self._key_arrays.group[:count] >= 0)
        counts = np.bincount(self._key_arrays.group[:count][is_in_force], minlength=len(self._groups))
        found: I64 = counts[groups].astype(np.int64)
        return found

    def pending_of(self, group: int) -> tuple[I64, I64]:
        """Log offset and time (-1: none) of a group's commits in open transactions, between two feeds."""
        rows = np.flatnonzero((self._carried.group == group) & self._carried.is_value)
        return self._carried.log_offset[rows], self._carried.recorded_at_ms[rows]

    def forget_touch(self, group: int) -> None:
        """Let the group's next commit create a simple group again if there is none, like the first one did."""
        self._group_touched[group] = False

    def forget(self, before_offset: int, log_offset: int, at_ms: int) -> Forgotten:
        """Forget what only records before an offset had: the leader that begins at `log_offset` did not load them. A
        group's next commit may create it again, and markers of lost transactions will find nothing."""
        count = len(self._keys)
        keys = KeyArrays._make(column[:count] for column in self._key_arrays)
        gone = np.flatnonzero(keys.has_offset & (keys.record_offset < before_offset) & (keys.group >= 0))
        gone = gone[np.argsort(keys.record_offset[gone], kind="stable")]
        record_offset, previous_offset = keys.record_offset[gone], keys.committed_offset[gone]
        self._key_arrays.has_offset[gone] = False
        self._group_touched[:] = False
        rows = RowArrays._make(np.zeros(len(gone), column.dtype) for column in self._carried)
        rows.key[:], rows.group[:], rows.topic[:] = gone, keys.group[gone], keys.topic[gone]
        rows.partition[:], rows.previous_offset[:], rows.has_previous[:] = keys.partition[gone], previous_offset, True
        for column in (rows.topic_id, rows.leader_epoch, rows.expire_time_ms, rows.value_version, rows.producer_id):
            column[:] = kernels.NOTHING
        rows.log_offset[:] = rows.applied_log_offset[:] = log_offset
        rows.recorded_at_ms[:] = rows.applied_at_ms[:] = at_ms
        rows.outcome[:], rows.change[:] = kernels.OUTCOME_APPLIED, kernels.CHANGE_FORGOTTEN
        is_lost = self._carried.log_offset < before_offset
        lost, pool = RowArrays._make(column[is_lost] for column in self._carried), self._carried_metadata
        lost.outcome[:] = kernels.OUTCOME_SUPERSEDED
        self._carried, self._carried_metadata = alone(
            RowArrays._make(column[~is_lost] for column in self._carried), pool
        )
        return Forgotten(rows, record_offset, *alone(lost, pool))

    def rows_of(self, forgotten: Forgotten, is_shown: BoolArray) -> CommitColumns:
        """The rows of transactions that were lost, and those of forgotten offsets that are shown."""
        shown = RowArrays._make(column[is_shown] for column in forgotten.rows)
        parts = [forgotten.lost, shown]
        rows = RowArrays._make(np.concatenate(column) for column in zip(*parts, strict=True))
        return self._columns(_NO_BYTES, forgotten.lost_metadata, rows)

    def feed(self, chunk: RecordChunk) -> ColumnarOutput:
        """Replay the next chunk of the log. Raises CoreError if its positions lie outside its data."""
        data = read_only(chunk.data)
        records = _record_arrays(chunk)
        batches = self._batch_arrays(chunk)
        carried_count = len(self._carried.key)
        rows = self._rows_for(carried_count + len(records.offset))
        kinds = np.empty(len(records.offset), np.int8)
        groups = np.empty(len(records.offset), np.int32)

        row_count = self._parse(data, records, batches, rows, kinds, groups, carried_count)
        pool = bytearray(self._carried_metadata)
        findings = self._resolve(chunk, rows, kinds, groups, carried_count, pool)
        self._fit()
        self._name()

        operations = np.empty(len(records.offset), np.int32)
        operation_last_offset = np.empty(len(records.offset), np.int64)
        touches = empty_columns(TouchArrays, len(records.offset))
        operation_count, touch_count = kernels.replay_records(
            records,
            batches,
            self._key_arrays,
            rows,
            carried_count,
            kinds,
            groups,
            np.zeros(len(records.offset), np.bool_) if chunk.is_after_others is None else chunk.is_after_others,
            self._group_touched,
            np.full(len(chunk.batches) + carried_count, kernels.NOTHING, np.int32),
            operations,
            operation_last_offset,
            touches,
        )
        operation_last_offset = operation_last_offset[:operation_count].copy()
        others = np.flatnonzero(kinds <= kernels.KIND_GROUP_TOMBSTONE)
        unknown_field_count, self._unknown_field_count = self._unknown_field_count, 0
        return ColumnarOutput(
            commits=self._emit(data, np.frombuffer(bytes(pool), np.uint8), rows, row_count),
            others=others,
            other_operations=operations[others],
            operation_last_offset=operation_last_offset,
            touches=Touches(
                log_offset=touches.log_offset[:touch_count].copy(),
                group=touches.group[:touch_count].copy(),
                operation_last_offset=operation_last_offset[touches.operation[:touch_count]],
                timestamp_ms=touches.timestamp_ms[:touch_count].copy(),
            ),
            findings=findings,
            counts=_counts(kinds, unknown_field_count),
        )

    def finish(self) -> CommitColumns:
        """The rows of transactions still open at the end of the log, as PENDING. It changes nothing: the replay can
        continue."""
        return self._columns(_NO_BYTES, self._carried_metadata, self._carried)

    def _batch_arrays(self, chunk: RecordChunk) -> BatchArrays:
        """The batches for compiled code. Producers are numbered for this chunk only: those of its batches and of the
        carried rows."""
        producer_ids, inverse = np.unique(
            np.concatenate([chunk.batches.producer_id, self._carried.producer_id]), return_inverse=True
        )
        producers: I32 = inverse.astype(np.int32)
        producers[producer_ids[producers] == NO_PRODUCER_ID] = kernels.NOTHING
        self._carried.producer[:] = producers[len(chunk.batches) :]
        return BatchArrays(
            is_control=chunk.batches.is_control,
            control_type=chunk.batches.control_type,
            is_transactional=chunk.batches.is_transactional,
            producer_id=chunk.batches.producer_id,
            producer=producers[: len(chunk.batches)].copy(),
        )

    def _rows_for(self, count: int) -> RowArrays:
        """Rows with room for `count`, beginning with the carried ones."""
        rows = empty_columns(RowArrays, count)
        for name in RowArrays._fields:
            carried: NDArray[Any] = getattr(self._carried, name)
            getattr(rows, name)[: len(carried)] = carried
        return rows

    def _parse(
        self,
        data: U8,
        records: RecordArrays,
        batches: BatchArrays,
        rows: RowArrays,
        kinds: I8,
        groups: I32,
        row: int,
    ) -> int:
        """Run `parse_records` to the end of the chunk, and grow the tables where it stops. Returns the row count."""
        record = 0
        while True:
            record, row = kernels.parse_records(
                data, records, batches, self._tables(), self._key_arrays, rows, kinds, groups, record, row
            )
            if record == len(records.offset):
                return row
            byte_count = int(records.key_length[record]) + 16
            for interner in (self._keys, self._groups, self._topics, self._topic_ids):
                interner.grow(byte_count)
            self._fit()

    def _tables(self) -> tuple[InternTable, InternTable, InternTable, InternTable]:
        return self._keys.table, self._groups.table, self._topics.table, self._topic_ids.table

    def _fit(self) -> None:
        """Grow the arrays to the capacity of their tables."""
        key_capacity = len(self._keys.table.hashes)
        longer = KeyArrays._make(_longer(column, key_capacity) for column in self._key_arrays)
        self._key_arrays = longer._replace(
            pending_head=_longer(self._key_arrays.pending_head, key_capacity, kernels.NOTHING)
        )
        self._group_touched = _longer(self._group_touched, len(self._groups.table.hashes))

    def _name(self) -> None:
        """Decode newly interned bytes to text. They are UTF-8: nothing else is interned."""
        self._group_names += [name.decode() for name in self._groups.keys(len(self._group_names))]
        self._topic_names += [name.decode() for name in self._topics.keys(len(self._topic_names))]
        self._topic_id_texts += [uuid_text(raw) for raw in self._topic_ids.keys(len(self._topic_id_texts))]

    def _resolve(
        self, chunk: RecordChunk, rows: RowArrays, kinds: I8, groups: I32, first_row: int, pool: bytearray
    ) -> tuple[Finding, ...]:
        """Let the codec read records that the compiled loop only flagged. Their metadata is appended to `pool`."""
        for record in np.flatnonzero(groups == kernels.GROUP_NOT_UTF8).tolist():
            position = int(chunk.records.key_position[record]) + 2
            size = 2 + int.from_bytes(chunk.data[position : position + 2].tobytes(), "big")
            key = decode_key(TOPIC, _GROUP_KEY_PREFIX + chunk.data[position : position + size].tobytes())
            groups[record] = self._groups.intern(key.fields.group.encode())
        flagged = np.flatnonzero(kinds == kernels.KIND_FLAGGED)
        if not len(flagged):
            return ()
        found = RecordFindings()
        is_commit = (kinds >= kernels.KIND_VALUE) & (kinds <= kernels.KIND_FLAGGED)
        flagged_rows = first_row + np.cumsum(is_commit)[flagged] - 1
        for record, row in zip(flagged.tolist(), flagged_rows.tolist(), strict=True):
            if not self._resolve_commit(chunk, record, rows, row, kinds, pool, found):
                kinds[record] = kernels.KIND_QUARANTINED
        return found.taken()

    def _resolve_commit(
        self,
        chunk: RecordChunk,
        record: int,
        rows: RowArrays,
        row: int,
        kinds: I8,
        pool: bytearray,
        found: RecordFindings,
    ) -> bool:
        """Fill the row of one flagged offset commit. False: it cannot be read, and is `found`."""
        value_length = int(chunk.records.value_length[record])
        payload = _bytes_at(chunk.data, chunk.records.key_position[record], chunk.records.key_length[record])
        group_id: str | None = None
        try:
            key = decode_key(TOPIC, payload)
            group_id = key.fields.group
            if value_length >= 0:
                payload = _bytes_at(chunk.data, chunk.records.value_position[record], value_length)
                decoded = decode_value(TOPIC, key.record_type, payload)
                value = decoded.fields
                self._unknown_field_count += has_unknown_tags(decoded)
        except DecodeError as error:
            found.add(chunk, record, error, payload, group_id)
            return False
        except Exception as error:
            if group_id is None:
                raise
            self.faults.note(error, group_id, int(chunk.records.offset[record]))
            found.add(chunk, record, DecodeError(str(error)), payload, group_id)
            return False
        self._set_key(rows, row, OffsetKey(key.fields.group, key.fields.topic, key.fields.partition))
        if value_length < 0:
            kinds[record] = kernels.KIND_TOMBSTONE
            return True
        kinds[record] = kernels.KIND_VALUE
        committed = committed_offset_of(value, offset=int(chunk.records.offset[record]))
        metadata = committed.metadata.encode()
        rows.is_value[row] = True
        rows.value_version[row] = decoded.version
        rows.committed_offset[row] = committed.committed_offset
        rows.metadata_position[row] = ~len(pool)
        rows.metadata_length[row] = len(metadata)
        rows.commit_time_ms[row] = committed.commit_timestamp_ms
        if committed.leader_epoch is not None:
            rows.leader_epoch[row] = committed.leader_epoch
        if committed.expire_timestamp_ms is not None:
            rows.expire_time_ms[row] = committed.expire_timestamp_ms
        if committed.topic_id is not None:
            rows.topic_id[row] = self._topic_ids.intern(uuid_bytes(committed.topic_id))
        pool += metadata
        return True

    def _set_key(self, rows: RowArrays, row: int, key: OffsetKey) -> None:
        """Intern a key given as text. Repaired text may be longer than the wire format allows, so the length of each
        string is encoded such that the two kinds cannot be confused."""
        group, topic = key.group.encode(), key.topic.encode()
        known = len(self._keys)
        key_id = self._keys.intern(
            b"".join((_counted(group), _counted(topic), key.partition.to_bytes(4, "big", signed=True)))
        )
        group_index, topic_index = self._groups.intern(group), self._topics.intern(topic)
        if key_id == known:
            self._fit()
            self._key_arrays.group[key_id] = group_index
            self._key_arrays.topic[key_id] = topic_index
            self._key_arrays.partition[key_id] = key.partition
        rows.key[row] = key_id
        rows.group[row] = group_index
        rows.topic[row] = topic_index
        rows.partition[row] = key.partition

    def _emit(self, data: U8, pool: U8, rows: RowArrays, row_count: int) -> CommitColumns:
        """Columns of the decided rows; the others are carried, with their metadata."""
        outcome = rows.outcome[:row_count]
        is_pending = outcome == kernels.OUTCOME_PENDING
        is_decided = outcome >= 0
        is_decided &= ~is_pending
        pending = np.flatnonzero(is_pending)
        carried = RowArrays._make(column[pending] for column in rows)
        self._key_arrays.pending_head[carried.key] = kernels.NOTHING
        self._carried, self._carried_metadata = alone(carried, pool, data)
        if is_decided.all():
            return self._columns(data, pool, RowArrays._make(column[:row_count] for column in rows))
        decided = np.flatnonzero(is_decided)
        return self._columns(data, pool, RowArrays._make(column[decided] for column in rows))

    def _columns(self, data: U8, pool: U8, rows: RowArrays) -> CommitColumns:
        metadata_offsets, metadata_data = _gather(data, pool, rows)
        same: dict[str, Any] = {name: getattr(rows, name) for name in _SAME_COLUMNS}
        return CommitColumns(
            groups=self._group_names,
            topics=self._topic_names,
            topic_ids=self._topic_id_texts,
            leader_epoch_valid=rows.leader_epoch != kernels.NOTHING,
            metadata_offsets=metadata_offsets,
            metadata_data=metadata_data,
            expire_time_valid=rows.expire_time_ms != kernels.NOTHING,
            applied_valid=rows.outcome == kernels.OUTCOME_APPLIED,
            previous_offset_valid=rows.has_previous,
            delta_valid=rows.has_delta,
            **same,
        )


_SAME_COLUMNS: Final = tuple(field.name for field in fields(CommitColumns) if field.name in RowArrays._fields)
"""The columns that rows have as they are returned."""


def _record_arrays(chunk: RecordChunk) -> RecordArrays:
    """The chunk's records for compiled code. Compiled code trusts their positions, so they are checked here."""
    records = chunk.records
    size = len(chunk.data)
    if not (
        kernels.ranges_inside(records.key_position, records.key_length, size)
        and kernels.ranges_inside(records.value_position, records.value_length, size)
        and (len(records) == 0 or 0 <= records.batch_index.min() <= records.batch_index.max() < len(chunk.batches))
    ):
        raise CoreError("a record of the chunk lies outside its data or its batches")
    return RecordArrays(*(getattr(records, name) for name in RecordArrays._fields))


def alone(rows: RowArrays, pool: U8, data: U8 = _NO_BYTES) -> tuple[RowArrays, U8]:
    """Rows with a pool of only their own metadata. `data`: that of their chunk, if they are from one."""
    _, metadata = _gather(data, pool, rows)
    ends = np.cumsum(rows.metadata_length, dtype=np.int64)
    rows.metadata_position[:] = ~(ends - rows.metadata_length)
    return rows, metadata


def _gather(data: U8, pool: U8, rows: RowArrays) -> tuple[I32 | I64, U8]:
    """Offsets and bytes of the rows' metadata."""
    starts = np.zeros(len(rows.key) + 1, np.int64)
    np.cumsum(rows.metadata_length, out=starts[1:])
    out = np.empty(int(starts[-1]), np.uint8)
    kernels.gather_bytes(data, pool, rows.metadata_position, starts, out)
    out.flags.writeable = False
    return starts.astype(np.int32) if starts[-1] <= _INT32_MAX else starts, out


def _counts(kinds: I8, unknown_field_count: int) -> ColumnarCounts:
    by_kind = np.bincount(kinds, minlength=kernels.KIND_QUARANTINED + 1).tolist()
    return ColumnarCounts(
        record_count=len(kinds),
        decoded_count=by_kind[kernels.KIND_VALUE],
        tombstone_count=by_kind[kernels.KIND_TOMBSTONE],
        control_count=by_kind[kernels.KIND_CONTROL],
        quarantined_count=by_kind[kernels.KIND_QUARANTINED],
        other_count=by_kind[kernels.KIND_OTHER] + by_kind[kernels.KIND_GROUP_TOMBSTONE],
        unknown_field_count=unknown_field_count,
    )


def _longer(column: NDArray[Any], count: int, fill: int = 0) -> NDArray[Any]:
    """The column with room for `count`, with `fill` in the new elements."""
    if len(column) >= count:
        return column
    longer = np.full(count, fill, column.dtype)
    longer[: len(column)] = column
    return longer


_AT_START: Final = ColumnarState(
    keys=NO_KEYS,
    groups=NO_KEYS,
    topics=NO_KEYS,
    topic_ids=NO_KEYS,
    key_arrays=empty_columns(KeyArrays, 0),
    group_touched=np.zeros(0, np.bool_),
    carried=empty_columns(RowArrays, 0),
    carried_metadata=_NO_BYTES,
)


def _counted(text: bytes) -> bytes:
    """Length-prefixed as in a key; beyond int16, which no key on the wire reaches, -1 and a length of four bytes."""
    if len(text) <= 32767:
        return len(text).to_bytes(2, "big") + text
    return b"\xff\xff" + len(text).to_bytes(4, "big") + text


def _bytes_at(data: U8, position: int, length: int) -> bytes:
    return bytes(data[position : position + length])
