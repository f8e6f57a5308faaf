"""Replays one `__consumer_offsets` partition chunk by chunk: commits in the compiled columnar replay, all other records
in GroupHistory.

The columnar replay returns what GroupHistory needs: records of other types, tombstones of offsets, and the commits that
create a simple group. They are put back into log order and cut into operations for the group history.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from heapq import merge
from itertools import compress, pairwise
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple

import numpy as np

from coordinator_core.bytes import codec
from coordinator_core.bytes.codec import Struct
from coordinator_core.bytes.log.chunk import (
    I32,
    I64,
    BoolArray,
    Finding,
    RecordChunk,
    unreadable_record_count,
)
from coordinator_core.bytes.log.copies import Load
from coordinator_core.bytes.log.kernels import compiled
from coordinator_core.bytes.named_tuples import maker_of
from coordinator_core.errors import DecodeError, UnknownRecordType
from coordinator_core.history.groups import NO_OFFSETS, GroupHistory, LostOffsets
from coordinator_core.history.last_offsets import (
    Death,
    GroupTombstone,
    deaths_with_last_offset,
    outlived_by_offsets,
    writer_after,
)
from coordinator_core.history.ledger import LedgerCounts
from coordinator_core.history.operations import LAST_OFFSET_GONE, GroupRecord, OffsetsDeleted, Operation
from coordinator_core.history.rows import GroupRows, TopicName
from coordinator_core.replay.columnar.offsets_columnar import (
    ColumnarOffsetReplay,
    ColumnarOutput,
    ColumnarState,
    CommitColumns,
    Forgotten,
    Touches,
)
from coordinator_core.replay.columnar.offsets_columnar_states import columnar_state_of
from coordinator_core.replay.dispatch import GroupShard
from coordinator_core.replay.faults import Faults
from coordinator_core.replay.key_buckets import KeyBucket
from coordinator_core.replay.offsets.state import OffsetKey
from coordinator_core.replay.record_findings import RecordFindings
from schemas.consumer_offsets import TOPIC, RecordType

_NO_TOPIC_ID: Final = -1
_EVENT_INDEX_MAX: Final = 2**31 - 1
NO_TIME_MS: Final = -1
_NOT_NAMED_MS: Final = 2**63 - 1
KEY_CACHE_SIZE: Final = 16_384
"""Size of the cache of decoded keys: a member's key comes again with each rebalance. Enough for the keys of some
thousands of members, about 10 MiB."""
REMEMBERED_BYTES_MAX: Final = 512
"""A longer key is decoded each time, so that no log can make the cache large."""

_Key = tuple[RecordType, str, Struct]
"""Record type, group id and all fields of a key."""

_RECORD_TYPES: Final = {record_type.value: record_type for record_type in RecordType}


@dataclass(frozen=True, slots=True)
class OffsetsLogOutput:
    commits: CommitColumns
    groups: GroupRows
    findings: tuple[Finding, ...]
    counts: LedgerCounts
    forgotten: CommitColumns | None = None
    """Rows of offsets that a new leader did not load."""


class Loaded(NamedTuple):
    """What a new leader loaded from a log whose start had moved."""

    load: Load
    from_offset: int
    """Base offset of the first batch that it read."""
    groups: GroupShard


class _Operations:
    """The operations of one chunk, collected from records that arrive one kind after another."""

    def __init__(self, last_offsets: I64) -> None:
        """`last_offsets`: last offset of each operation, in log order."""
        self._last_offsets = last_offsets
        self._records: dict[int, list[GroupRecord]] = {}
        self._made: dict[int, Operation | OffsetsDeleted] = {}
        self._between: list[tuple[int, Operation]] = []

    def __contains__(self, number: int) -> bool:
        return number in self._made

    def add(self, number: int, group_id: str, timestamp_ms: int, record: GroupRecord) -> None:
        """Put a record into its operation, sorted by offset."""
        records = self._records.get(number)
        if records is None:
            records = self._records[number] = [record]
            last_offset = int(self._last_offsets[number])
            self._made[number] = Operation(group_id, timestamp_ms, last_offset, records)
        elif record.offset > records[-1].offset:
            records.append(record)
        else:
            insort(records, record, key=_offset)

    def add_deletion(self, number: int, deleted: OffsetsDeleted) -> None:
        """Add an operation that has no other records."""
        self._made[number] = deleted

    def add_between(self, number: int, operation: Operation) -> None:
        """Add the effect of a marker, before the operation with this number."""
        self._between.append((number, operation))

    def in_order(self) -> Iterator[Operation | OffsetsDeleted]:
        made = map(self._made.__getitem__, sorted(self._made))
        if not self._between:
            return made
        between = sorted(self._between, key=lambda it: (it[1].last_offset, it[1].group_id))
        keyed = (((number, 1), self._made[number]) for number in sorted(self._made))
        found = merge((((number, 0), operation) for number, operation in between), keyed, key=itemgetter(0))
        return (operation for _, operation in found)


class _Others(NamedTuple):
    """Results from the records that are not ordinary offset commits."""

    findings: RecordFindings
    decoded_count: int
    tombstone_count: int
    unknown_type_count: int
    unknown_field_count: int
    tombstones: list[GroupTombstone]
    times: dict[int, int]
    """Log offset of a tombstone -> the time at which it was written (epoch ms)."""


@dataclass(frozen=True, slots=True)
class OffsetsLogState:
    """The state of a replay between two chunks, from which a later replay continues."""

    columnar: ColumnarState
    groups: Mapping[str, bytes]
    """Group id -> serialized state."""

    @classmethod
    def of(
        cls, columnar_states: Sequence[ColumnarState], groups: Mapping[str, bytes], bucket: KeyBucket | None = None
    ) -> "OffsetsLogState":
        """The state of all groups, or of those in a bucket, from columnar states of all groups."""
        if bucket is not None:
            is_own = bucket.has_groups(list(groups)).tolist()
            groups = dict(compress(groups.items(), is_own))
        return cls(columnar_state_of(columnar_states, bucket), groups)


class OffsetsLogReplay:
    """Replays one `__consumer_offsets` partition. Feed its chunks in log order, then call `finish`."""

    def __init__(self, state: OffsetsLogState | None = None, *, bucket: KeyBucket | None = None) -> None:
        """Begin at the start of a log, or where another replay's `export_state` was taken.

        `bucket`: the chunks, and the state, have only records of its groups (`KeyBucket.own_records`).
        """
        self._counts_markers = bucket is None or bucket.is_first
        self.faults = Faults()
        """The groups that could not be replayed."""
        self._columnar = ColumnarOffsetReplay(None if state is None else state.columnar, faults=self.faults)
        self._history = GroupHistory(saved=None if state is None else state.groups, faults=self.faults)
        self._named_at_ms = np.zeros(0, np.int64)
        """The time of the earliest commit with each topic id."""
        self._decode_key = lru_cache(KEY_CACHE_SIZE)(_decode_key)

    def export_state(self) -> OffsetsLogState:
        """The state from which a new replay continues here. Call it between two feeds."""
        return OffsetsLogState(self._columnar.export_state(), self._history.save())

    @property
    def serialized(self) -> Set[str]:
        """Groups of the initial state that had no records: their open intervals are unchanged, and `finish` does not
        return them again."""
        return self._history.serialized

    @property
    def groups(self) -> GroupShard:
        """The groups after the last chunk; those that a saved state has, as far as they had records."""
        return self._history.shard

    def feed(self, chunk: RecordChunk, loaded: Loaded | None = None) -> OffsetsLogOutput:
        """Rows that this chunk decided or closed. `loaded`: a new leader begins with the chunk, and had loaded this."""
        place, at_ms = (
            (-1, NO_TIME_MS)
            if loaded is None
            else (int(chunk.batches.base_offset[0]), int(chunk.batches.max_timestamp_ms[0]))
        )
        forgotten = None if loaded is None else self._columnar.forget(loaded.from_offset, place, at_ms)
        columnar = self._columnar.feed(chunk)
        operations = _Operations(columnar.operation_last_offset)
        others = _decode_others(chunk, columnar, operations, self._decode_key, self.faults)
        _add_touches(columnar, operations)
        deaths = _dead_and_made_again(
            deaths_with_last_offset(chunk.batches, columnar.commits, self._columnar), columnar, operations
        )
        _add_deleted_offsets(columnar, operations, {number for number, *_ in deaths})
        self._columnar.writer = writer_after(chunk.batches, self._columnar.writer)
        for added in deaths:
            operations.add(*added)
        for tombstone in outlived_by_offsets(others.tombstones, chunk.batches, columnar.commits, self._columnar):
            number = int(np.searchsorted(columnar.operation_last_offset, tombstone.log_offset))
            record = GroupRecord(tombstone.log_offset, RecordType.OFFSET_COMMIT, None, None)
            operations.add(number, tombstone.group_id, others.times[tombstone.log_offset], record)
        shown = None
        if loaded is not None and forgotten is not None:
            self._history.reload(loaded.groups, loaded.load, place, at_ms, _lost_offsets(forgotten, columnar.commits))
            shown = self._columnar.rows_of(forgotten, _not_committed_at(place, forgotten, columnar.commits))
        self._apply(operations)
        rows = self._history.take()
        rows.topics.extend(self._named_by_commits(columnar.commits))
        counts = LedgerCounts(
            record_count=int(chunk.batches.record_count.sum()),
            decoded_count=columnar.counts.decoded_count + others.decoded_count,
            tombstone_count=columnar.counts.tombstone_count + others.tombstone_count,
            control_count=columnar.counts.control_count if self._counts_markers else 0,
            unknown_type_count=others.unknown_type_count,
            unknown_field_count=columnar.counts.unknown_field_count + others.unknown_field_count,
            quarantined_count=columnar.counts.quarantined_count
            + (len(others.findings) - others.unknown_type_count)
            + unreadable_record_count(chunk),
        )
        return OffsetsLogOutput(
            columnar.commits, rows, (*chunk.findings, *columnar.findings, *others.findings.taken()), counts, shown
        )

    def _apply(self, operations: _Operations) -> None:
        """Apply operations: those of a group up to its first fault."""
        for operation in operations.in_order():
            if operation.group_id in self.faults:
                continue
            try:
                self._history.apply(operation)
            except Exception as error:
                self.faults.note(error, operation.group_id, _first_offset(operation))

    def finish(self) -> OffsetsLogOutput:
        """Rows that are open or pending at the end of the log."""
        return OffsetsLogOutput(self._columnar.finish(), self._history.finish(), (), LedgerCounts())

    def _named_by_commits(self, commits: CommitColumns) -> Iterator[TopicName]:
        """Topic names from commits of value version 4, which have the name next to the topic id: the earliest one by
        time for each id, not the first in the log, since other tasks and other runs begin elsewhere."""
        at_ms = commits.recorded_at_ms
        is_all_named = len(self._named_at_ms) == len(commits.topic_ids)
        if not len(at_ms) or (is_all_named and at_ms.min() >= self._named_at_ms.max(initial=NO_TIME_MS)):
            return
        named_at_ms = np.full(len(commits.topic_ids) + 1, _NOT_NAMED_MS, np.int64)
        named_at_ms[: len(self._named_at_ms)] = self._named_at_ms
        named_at_ms[_NO_TOPIC_ID] = NO_TIME_MS
        row_of_id = np.full(len(commits.topic_ids), -1, np.int64)
        _find_earliest(commits.topic_id, at_ms, named_at_ms, row_of_id)
        topic_ids = np.flatnonzero(row_of_id >= 0)
        for topic_id, row in zip(topic_ids.tolist(), row_of_id[topic_ids].tolist(), strict=True):
            topic = commits.topics[commits.topic[row]]
            yield TopicName(commits.topic_ids[topic_id], topic, int(at_ms[row]), "OFFSET_COMMIT")
        self._named_at_ms = named_at_ms[:-1]


def _lost_offsets(forgotten: Forgotten, commits: CommitColumns) -> dict[str, LostOffsets]:
    """The forgotten offsets of each group."""
    lost: dict[str, LostOffsets] = {}
    for group, record_offset in zip(forgotten.rows.group.tolist(), forgotten.record_offset.tolist(), strict=True):
        group_id = commits.groups[group]
        lost[group_id] = LostOffsets(lost.get(group_id, NO_OFFSETS).offset_count + 1, record_offset)
    return lost


def _not_committed_at(place: int, forgotten: Forgotten, commits: CommitColumns) -> BoolArray:
    """Which forgotten offsets have no commit that takes effect at a place: its row would tie with theirs there."""
    rows = np.flatnonzero(commits.applied_log_offset == place)
    names = ("group", "topic", "partition")
    taken = set(zip(*(getattr(commits, name)[rows].tolist() for name in names), strict=True))
    keys = zip(*(getattr(forgotten.rows, name).tolist() for name in names), strict=True)
    return np.array([key not in taken for key in keys], np.bool_)


@compiled
def _find_earliest(topic_id: I32, at_ms: I64, named_at_ms: I64, row_of_id: I64) -> None:
    """For each topic id, the row with the earliest time, if it is earlier than the known one. Ties go to the first
    row."""
    for row in range(len(at_ms)):
        # a commit without a time counts as later than all others
        time = at_ms[row] if at_ms[row] >= 0 else _NOT_NAMED_MS - 1
        if time < named_at_ms[topic_id[row]]:
            named_at_ms[topic_id[row]] = time
            row_of_id[topic_id[row]] = row


def _decode_others(
    chunk: RecordChunk,
    columnar: ColumnarOutput,
    operations: _Operations,
    remembered_key: Callable[[bytes], _Key],
    faults: Faults,
) -> _Others:
    """Decode records of groups into their operations."""
    findings = RecordFindings()
    tombstones: list[GroupTombstone] = []
    times: dict[int, int] = {}
    decoded_count = tombstone_count = unknown_count = unknown_field_count = 0
    data, records, rows = memoryview(chunk.data), chunk.records, columnar.others  # type: ignore[arg-type]
    for row, operation, offset, timestamp_ms, key_position, key_length, value_position, value_length in zip(
        rows.tolist(),
        columnar.other_operations.tolist(),
        records.offset[rows].tolist(),
        records.timestamp_ms[rows].tolist(),
        records.key_position[rows].tolist(),
        records.key_length[rows].tolist(),
        records.value_position[rows].tolist(),
        records.value_length[rows].tolist(),
        strict=True,
    ):
        payload = data[key_position : key_position + key_length].tobytes() if key_length > 0 else b""
        of_group: str | None = None
        try:
            decode_key = remembered_key if key_length <= REMEMBERED_BYTES_MAX else _decode_key
            record_type, group_id, key = decode_key(payload)
            of_group = group_id
            value: Struct | None = None
            if value_length >= 0:
                payload = data[value_position : value_position + value_length].tobytes()
                decoded = codec.decode_value(TOPIC, record_type, payload)
                value = decoded.fields
                unknown_field_count += codec.has_unknown_tags(decoded)
        except DecodeError as error:
            unknown_count += isinstance(error, UnknownRecordType)
            findings.add(chunk, row, error, payload, of_group)
            continue
        except Exception as error:
            if of_group is None:
                raise
            faults.note(error, of_group, offset)
            continue
        if value is None:
            tombstone_count += 1
            if record_type == RecordType.GROUP_METADATA:
                last_offset = int(columnar.operation_last_offset[operation])
                tombstones.append(GroupTombstone(group_id, offset, last_offset))
                times[offset] = timestamp_ms
        else:
            decoded_count += 1
        operations.add(operation, group_id, timestamp_ms, _make_record((offset, record_type, key, value)))
    return _Others(findings, decoded_count, tombstone_count, unknown_count, unknown_field_count, tombstones, times)


def _decode_key(data: bytes) -> _Key:
    key = codec.decode_key(TOPIC, data)
    record_type = _RECORD_TYPES[key.record_type]
    group_id: str = key.fields.group if record_type == RecordType.GROUP_METADATA else key.fields.group_id
    return record_type, group_id, key.fields


def _add_touches(columnar: ColumnarOutput, operations: _Operations) -> None:
    """Add the commits that create a simple group."""
    touches = columnar.touches
    numbers = np.searchsorted(columnar.operation_last_offset, touches.operation_last_offset)
    times = _times_of(touches, columnar.commits)
    for number, offset, group, timestamp_ms in zip(
        numbers.tolist(),
        touches.log_offset.tolist(),
        touches.group.tolist(),
        times.tolist(),
        strict=True,
    ):
        record = GroupRecord(offset, RecordType.OFFSET_COMMIT, None, None)
        operations.add(number, columnar.commits.groups[group], timestamp_ms, record)


def _times_of(touches: Touches, commits: CommitColumns) -> I64:
    """When commits were written. Where a plain record has no timestamp, the commit time in its value. Transactional
    commits may be decided in another chunk and are skipped."""
    times = touches.timestamp_ms
    lacking = np.flatnonzero(times < 0)
    if not len(lacking):
        return times
    times, plain = times.copy(), np.flatnonzero(~commits.is_transactional)
    plain = plain[np.argsort(commits.log_offset[plain], kind="stable")]
    places = np.searchsorted(commits.log_offset[plain], touches.log_offset[lacking])
    for index, place in zip(lacking.tolist(), places.tolist(), strict=True):
        if place < len(plain) and commits.log_offset[plain[place]] == touches.log_offset[index]:
            times[index] = commits.commit_time_ms[plain[place]]
    return times


def _dead_and_made_again(
    deaths: Iterable[Death], columnar: ColumnarOutput, operations: _Operations
) -> list[tuple[int, str, int, GroupRecord]]:
    """Groups with only offsets that ended with their last one, and the commits that created them again: operation,
    group, time and record. Groups that ended at a marker, which belongs to no operation, are added to `operations`
    here."""
    found = []
    for death in deaths:
        gone = GroupRecord(death.log_offset, RecordType.OFFSET_COMMIT, LAST_OFFSET_GONE, None)
        places = [(death.log_offset, death.at_ms, gone)]
        if death.event_index:
            number = int(np.searchsorted(columnar.operation_last_offset, death.log_offset))
            index = min(death.event_index, _EVENT_INDEX_MAX)
            operations.add_between(
                number, Operation(death.group_id, death.at_ms, death.log_offset, [gone], event_index=index)
            )
            places.clear()
        if death.next_commit is not None:
            offset, at_ms = death.next_commit
            places.append((offset, at_ms, GroupRecord(offset, RecordType.OFFSET_COMMIT, None, None)))
        for offset, at_ms, record in places:
            number = int(np.searchsorted(columnar.operation_last_offset, offset))
            found.append((number, death.group_id, at_ms, record))
    return found


def _add_deleted_offsets(columnar: ColumnarOutput, operations: _Operations, with_deaths: Set[int]) -> None:
    """Add tombstones of offsets. Most of them are operations of their own, and in a large log most operations are.

    `with_deaths`: operations in which a group ends or is created again.
    """
    commits, groups = columnar.commits, columnar.commits.groups
    rows = np.flatnonzero(~commits.is_value)
    numbers = np.searchsorted(columnar.operation_last_offset, commits.log_offset[rows])
    group = commits.group[rows]
    offset = commits.log_offset[rows].tolist()
    topic = [commits.topics[index] for index in commits.topic[rows].tolist()]
    partition = commits.partition[rows].tolist()
    at = commits.recorded_at_ms[rows].tolist()
    starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
    for start, stop in pairwise([*starts, len(rows)]):
        group_id, number = groups[group[start]], int(numbers[start])
        if number not in operations and number not in with_deaths:
            deleted = OffsetsDeleted(group_id, at[start], offset[start:stop], topic[start:stop], partition[start:stop])
            operations.add_deletion(number, deleted)
            continue
        for index in range(start, stop):
            key = OffsetKey(group_id, topic[index], partition[index])
            record = GroupRecord(offset[index], RecordType.OFFSET_COMMIT, key, None)
            operations.add(number, group_id, at[index], record)


def _first_offset(operation: Operation | OffsetsDeleted) -> int:
    """First offset of an operation's records."""
    return operation.offsets[0] if isinstance(operation, OffsetsDeleted) else operation.records[0].offset


_offset: Final = attrgetter("offset")
_make_record: Final = maker_of(GroupRecord)
