"""One `__consumer_offsets` partition, chunk by chunk: commits by the compiled lane, everything else by GroupHistory.

The lane names what is not its own: records of other types, the tombstones of offsets, and the commits which make a
simple group. Put back in log order and cut into operations, they are what the group history reads.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np

from coordinator_core import codec
from coordinator_core.codec import Struct
from coordinator_core.errors import DecodeError, UnknownRecordType
from coordinator_core.history.groups import GroupHistory, GroupRecord, GroupRows, OffsetsDeleted, Operation
from coordinator_core.history.rows import TopicName
from coordinator_core.ledger import LedgerCounts
from coordinator_core.limits import QUARANTINE_BYTES_MAX
from coordinator_core.log.chunk import I64, Finding, RecordChunk, unreadable_record_count
from coordinator_core.offsets.lane import CommitColumns, LaneOutput, LaneState, OffsetLane
from coordinator_core.offsets.state import OffsetKey
from schemas.consumer_offsets import TOPIC, RecordType

_NO_TOPIC_ID: Final = -1
KEY_CACHE_SIZE: Final = 16_384
"""Keys which are remembered decoded: those of some thousands of members, ten MiB or so."""
REMEMBERED_BYTES_MAX: Final = 512
"""A longer key is decoded each time, so that no log can make the cache large."""

_RECORD_TYPES: Final = {record_type.value: record_type for record_type in RecordType}


@dataclass(frozen=True, slots=True)
class OffsetsLogOutput:
    """What one chunk came to."""

    commits: CommitColumns
    groups: GroupRows
    findings: tuple[Finding, ...]
    counts: LedgerCounts


class _Placed(NamedTuple):
    """A record with its place: which operation it belongs to."""

    offset: int
    operation: int
    group_id: str
    timestamp_ms: int
    record: GroupRecord


@dataclass(frozen=True, slots=True)
class OffsetsLogState:
    """All that a replay knows between two chunks: what a later one needs to go on."""

    lane: LaneState
    groups: Mapping[str, bytes]
    """By group id."""


class OffsetsLogReplay:
    """Replays one `__consumer_offsets` partition. Feed its chunks in log order, then finish."""

    def __init__(self, state: OffsetsLogState | None = None) -> None:
        """Begin at the start of a log, or where another replay's `export_state` was taken."""
        self._lane = OffsetLane(None if state is None else state.lane)
        self._history = GroupHistory(saved=None if state is None else state.groups)
        self._named: set[int] = set()

    def export_state(self) -> OffsetsLogState:
        """What a new replay needs to go on from here. Take it between two feeds."""
        return OffsetsLogState(self._lane.export_state(), self._history.save())

    @property
    def asleep(self) -> Set[str]:
        """Groups of the state begun with which nothing has named: what was open of them is, and `finish` does not give
        it again."""
        return self._history.asleep

    def feed(self, chunk: RecordChunk) -> OffsetsLogOutput:
        """Rows which this chunk decided or closed."""
        lane = self._lane.feed(chunk)
        others, findings, unknown_count, tombstone_count = self._decode_others(chunk, lane)
        placed = [*others, *_touches(lane)]
        deletions, tombstones = _deleted_offsets(lane, {item.operation for item in placed})
        placed += tombstones
        placed.sort(key=_offset)
        operations: list[Operation | OffsetsDeleted] = [*_operations(placed, lane.operation_last_offset), *deletions]
        operations.sort(key=_first_offset)
        for operation in operations:
            self._history.apply(operation)
        rows = self._history.take()
        rows.topics.extend(self._named_by_commits(lane.commits))
        counts = LedgerCounts(
            record_count=int(chunk.batches.record_count.sum()),
            decoded_count=lane.counts.decoded_count + len(others) - tombstone_count,
            tombstone_count=lane.counts.tombstone_count + tombstone_count,
            control_count=lane.counts.control_count,
            unknown_type_count=unknown_count,
            quarantined_count=lane.counts.quarantined_count
            + (len(findings) - unknown_count)
            + unreadable_record_count(chunk),
        )
        return OffsetsLogOutput(lane.commits, rows, (*chunk.findings, *lane.findings, *findings), counts)

    def finish(self) -> OffsetsLogOutput:
        """Rows still open or pending at the end of the log."""
        return OffsetsLogOutput(self._lane.finish(), self._history.finish(), (), LedgerCounts())

    def _decode_others(self, chunk: RecordChunk, lane: LaneOutput) -> tuple[list[_Placed], list[Finding], int, int]:
        """Decoded records of groups, what could not be read, and how many were unknown types and tombstones."""
        placed: list[_Placed] = []
        findings: list[Finding] = []
        unknown_count = tombstone_count = 0
        data, records, rows = memoryview(chunk.data), chunk.records, lane.others  # type: ignore[arg-type]
        for row, operation, offset, timestamp_ms, key_position, key_length, value_position, value_length in zip(
            rows.tolist(),
            lane.other_operations.tolist(),
            records.offset[rows].tolist(),
            records.timestamp_ms[rows].tolist(),
            records.key_position[rows].tolist(),
            records.key_length[rows].tolist(),
            records.value_position[rows].tolist(),
            records.value_length[rows].tolist(),
            strict=True,
        ):
            payload = key_bytes = data[key_position : key_position + max(key_length, 0)].tobytes()
            try:
                decode_key = _remembered_key if key_length <= REMEMBERED_BYTES_MAX else _decode_key
                record_type, group_id, key = decode_key(key_bytes)
                value: Struct | None = None
                if value_length >= 0:
                    payload = data[value_position : value_position + value_length].tobytes()
                    value = codec.decode_value(TOPIC, record_type, payload).fields
                else:
                    tombstone_count += 1
            except DecodeError as error:
                unknown_count += isinstance(error, UnknownRecordType)
                findings.append(
                    Finding(
                        stage="VALUE",
                        code=error.code,
                        message=str(error),
                        base_offset=int(chunk.batches.base_offset[records.batch_index[row]]),
                        offset=offset,
                        byte_position=error.byte_position,
                        payload=payload[:QUARANTINE_BYTES_MAX],
                    )
                )
                continue
            record = GroupRecord(offset, record_type, key, value)
            placed.append(_Placed(offset, operation, group_id, timestamp_ms, record))
        return placed, findings, unknown_count, tombstone_count

    def _named_by_commits(self, commits: CommitColumns) -> Iterator[TopicName]:
        """Names which commits of value version 4 carry beside the topic id: the first one of each id."""
        named = np.zeros(len(commits.topic_ids) + 1, np.bool_)
        named[list(self._named)] = True
        named[_NO_TOPIC_ID] = True
        rows = np.flatnonzero(~named[commits.topic_id])
        first = np.full(len(named), -1, np.int64)
        first[commits.topic_id[rows[::-1]]] = rows[::-1]  # of several, the last one that is set stays
        for topic_id in np.flatnonzero(first >= 0).tolist():
            self._named.add(topic_id)
            row = int(first[topic_id])
            topic = commits.topics[commits.topic[row]]
            yield TopicName(commits.topic_ids[topic_id], topic, int(commits.recorded_at_ms[row]), "OFFSET_COMMIT")


def _decode_key(data: bytes) -> tuple[RecordType, str, Struct]:
    """Record type, group id and all fields of a key."""
    key = codec.decode_key(TOPIC, data)
    record_type = _RECORD_TYPES[key.record_type]
    group_id: str = key.fields.group if record_type == RecordType.GROUP_METADATA else key.fields.group_id
    return record_type, group_id, key.fields


_remembered_key: Final = lru_cache(KEY_CACHE_SIZE)(_decode_key)
"""The key of a member comes again with each rebalance."""


def _touches(lane: LaneOutput) -> Iterator[_Placed]:
    touches = lane.touches
    operations = np.searchsorted(lane.operation_last_offset, touches.operation_last_offset)
    for index, operation in enumerate(operations.tolist()):
        offset = int(touches.log_offset[index])
        yield _Placed(
            offset,
            operation,
            lane.commits.groups[touches.group[index]],
            int(touches.timestamp_ms[index]),
            GroupRecord(offset, RecordType.OFFSET_COMMIT, None, None),
        )


def _deleted_offsets(lane: LaneOutput, others: Set[int]) -> tuple[list[OffsetsDeleted], list[_Placed]]:
    """Operations which delete offsets and do nothing else, most of all operations of a large log; and the tombstones of
    offsets in the `others`, operations which have more to them."""
    commits, groups = lane.commits, lane.commits.groups
    rows = np.flatnonzero(~commits.is_value)
    operations = np.searchsorted(lane.operation_last_offset, commits.log_offset[rows])
    group = commits.group[rows]
    offset = commits.log_offset[rows].tolist()
    topic = [commits.topics[index] for index in commits.topic[rows].tolist()]
    partition = commits.partition[rows].tolist()
    at = commits.recorded_at_ms[rows].tolist()
    deletions: list[OffsetsDeleted] = []
    tombstones: list[_Placed] = []
    starts = np.flatnonzero(np.diff(operations, prepend=-1)).tolist()
    for start, stop in pairwise([*starts, len(rows)]):
        group_id, operation = groups[group[start]], int(operations[start])
        if operation not in others:
            deleted = OffsetsDeleted(group_id, at[start], offset[start:stop], topic[start:stop], partition[start:stop])
            deletions.append(deleted)
            continue
        for index in range(start, stop):
            key = OffsetKey(group_id, topic[index], partition[index])
            record = GroupRecord(offset[index], RecordType.OFFSET_COMMIT, key, None)
            tombstones.append(_Placed(offset[index], operation, group_id, at[index], record))
    return deletions, tombstones


def _operations(placed: list[_Placed], last_offsets: I64) -> Iterator[Operation]:
    """Records in log order, cut where the operation changes."""
    for operation, items in groupby(placed, _operation):
        first, *rest = items
        records = [first.record, *(item.record for item in rest)]
        yield Operation(first.group_id, first.timestamp_ms, int(last_offsets[operation]), records)


_offset: Final = attrgetter("offset")
_operation: Final = attrgetter("operation")
_first_offset: Final = attrgetter("first_offset")
