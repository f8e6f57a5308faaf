"""Compiled loops of the columnar replay of offset commits: parse the records of a chunk, replay them, gather metadata.

There are two passes over a chunk. `parse_records` reads keys and values into rows, one for each record of type 0 or 1;
a record in any other layout than the few that Kafka writes is only flagged, and the columnar replay passes it to the
codec. `replay_records` then decides, in log order, what each row did to the offset in force. For any bytes, nothing
here raises or reads outside a record's own key and value.
"""

from typing import Final, NamedTuple

import numpy as np

from coordinator_core.bytes.interning import NO_ROOM, NOT_FOUND, InternTable, find_in, inlined, intern
from coordinator_core.bytes.log.chunk import I8, I32, I64, U8, BoolArray
from coordinator_core.bytes.log.kernels import be16, be32, be64, compiled

KIND_OTHER: Final = 0
"""A record in a data batch that is not an offset commit."""
KIND_GROUP_TOMBSTONE: Final = 1
"""Like OTHER; it may remove the group, so that the next offset commit creates a new one."""
KIND_CONTROL: Final = 2
KIND_VALUE: Final = 3
KIND_TOMBSTONE: Final = 4
KIND_FLAGGED: Final = 5
"""An offset commit in an unusual layout, or an invalid one: the codec decides."""
KIND_QUARANTINED: Final = 6
"""The codec could not read it. Its row stays and is ignored."""

NO_GROUP: Final = -1
"""The record belongs to no operation: an unknown type, or a key without a group."""
GROUP_NOT_UTF8: Final = -2
"""The codec reads the group."""

OUTCOME_APPLIED: Final = 0
OUTCOME_ABORTED: Final = 1
OUTCOME_PENDING: Final = 2
OUTCOME_SUPERSEDED: Final = 3
OUTCOME_NONE: Final = -1
"""Not an offset commit after all (quarantined)."""

CHANGE_NONE: Final = -1
"""Nothing was applied."""
CHANGE_FIRST: Final = 0
CHANGE_ADVANCE: Final = 1
CHANGE_REPEAT: Final = 2
CHANGE_REWIND: Final = 3
CHANGE_DELETE: Final = 4
CHANGE_FORGOTTEN: Final = 5

NOTHING: Final = -1
"""End of a list of rows; an unknown leader epoch, topic id or time."""

UUID_BYTES: Final = np.int64(16)
"""A plain number would have a type of its own in numba, and compile the functions called with it once more."""
TYPE_LEGACY_OFFSET_COMMIT: Final = 0
TYPE_OFFSET_COMMIT: Final = 1
TYPE_LAST: Final = 23
_CONTROL_ABORT: Final = 0
_CONTROL_COMMIT: Final = 1

ParsedValue = tuple[bool, int, int, int, int, int, int, int, int]
"""Whether the layout is known, committed offset, leader epoch, metadata position and length, commit time, expire time,
topic id position, version. The last three and the leader epoch may be NOTHING."""
_NO_VALUE: Final[ParsedValue] = (False, 0, NOTHING, 0, 0, 0, NOTHING, NOTHING, NOTHING)
"""The row of a tombstone."""
_UNUSUAL: Final = _NO_VALUE
"""Not a known layout: the codec reads it, starting from the row of a tombstone."""


class RecordArrays(NamedTuple):
    """The columns of a RecordChunk's records that the loops need."""

    batch_index: I32
    offset: I64
    timestamp_ms: I64
    key_position: I64
    key_length: I32
    value_position: I64
    value_length: I32


class BatchArrays(NamedTuple):
    """The columns of a RecordChunk's batches that the loops need."""

    is_control: BoolArray
    control_type: I8
    is_transactional: BoolArray
    producer_id: I64
    producer: I32
    """Number of the producer in this chunk; -1 for a batch without one."""


class KeyArrays(NamedTuple):
    """For each interned key (group, topic, partition): its parts, and the offset in force."""

    group: I32
    """GROUP_NOT_UTF8: a key that only the codec may read."""
    topic: I32
    partition: I32
    has_offset: BoolArray
    committed_offset: I64
    record_offset: I64
    pending_head: I32
    """First pending row of the key. Rows are numbered from 0 in every chunk, so this is unused between chunks."""


class RowArrays(NamedTuple):
    """One row for each offset-commit record: first those carried from earlier chunks, then those of this one."""

    key: I32
    group: I32
    topic: I32
    topic_id: I32
    partition: I32
    log_offset: I64
    recorded_at_ms: I64
    producer_id: I64
    is_transactional: BoolArray
    is_value: BoolArray
    committed_offset: I64
    leader_epoch: I32
    metadata_position: I64
    """In the chunk's data; if negative, `~position` in the columnar replay's own pool."""
    metadata_length: I32
    commit_time_ms: I64
    expire_time_ms: I64
    value_version: I8
    outcome: I8
    applied_log_offset: I64
    applied_at_ms: I64
    change: I8
    has_previous: BoolArray
    previous_offset: I64
    has_delta: BoolArray
    delta: I64
    producer: I32
    next_of_producer: I32
    next_of_key: I32
    previous_of_key: I32


class TouchArrays(NamedTuple):
    """Offset-commit values that create a group if there is none."""

    log_offset: I64
    group: I32
    operation: I32
    timestamp_ms: I64


@compiled
def is_utf8(data: U8, position: int, length: int) -> bool:
    """Whether the bytes are well-formed UTF-8 (RFC 3629: no surrogates, nothing overlong)."""
    end = position + length
    while position < end:
        lead = data[position]
        if lead < 0x80:
            position += 1
            continue
        lowest, highest = 0x80, 0xBF
        if 0xC2 <= lead <= 0xDF:
            more = 1
        elif 0xE0 <= lead <= 0xEF:
            more = 2
            if lead == 0xE0:
                lowest = 0xA0
            elif lead == 0xED:
                highest = 0x9F
        elif 0xF0 <= lead <= 0xF4:
            more = 3
            if lead == 0xF0:
                lowest = 0x90
            elif lead == 0xF4:
                highest = 0x8F
        else:
            return False
        if position + more >= end or not lowest <= data[position + 1] <= highest:
            return False
        for at in range(position + 2, position + more + 1):
            if not 0x80 <= data[at] <= 0xBF:
                return False
        position += more + 1
    return True


@compiled
def _intern(table: InternTable, data: U8, position: int, length: int) -> int:
    """`intern`, not inlined: new keys are rare, and it is compiled only once."""
    return int(intern(table, data, position, length))


@inlined
def _parse_value(data: U8, position: int, length: int, record_type: int) -> ParsedValue:  # noqa: C901  (one pass over bytes or rows, compiled: calls would cost as much as the work)
    """Read a value in exactly one of the known layouts."""
    end = position + length
    if length < 2 + 8 + 1:
        return _UNUSUAL
    version = be16(data, position)
    if version < 0 or version > 4 or (record_type == TYPE_LEGACY_OFFSET_COMMIT and version != 0):
        return _UNUSUAL
    committed_offset = be64(data, position + 2)
    at = position + 10
    leader_epoch = NOTHING
    if version >= 3:
        if at + 4 > end:
            return _UNUSUAL
        leader_epoch = be32(data, at)
        at += 4
    if at + 2 > end:
        return _UNUSUAL
    if version >= 4:
        # A length below 2^14 takes one or two bytes; the codec reads longer ones.
        metadata_length = int(data[at]) - 1
        at += 1
        if metadata_length >= 127:
            if data[at] >= 128:
                return _UNUSUAL
            metadata_length = (metadata_length - 128) + (int(data[at]) << 7)
            at += 1
    else:
        metadata_length = be16(data, at)
        at += 2
    if metadata_length < 0 or at + metadata_length + 8 > end:
        return _UNUSUAL
    if metadata_length > 0 and not is_utf8(data, at, metadata_length):
        return _UNUSUAL
    metadata_position = at
    at += metadata_length
    commit_time_ms = be64(data, at)
    at += 8
    expire_time_ms = NOTHING
    if version == 1:
        if at + 8 > end:
            return _UNUSUAL
        expire_time_ms = be64(data, at)
        at += 8
    topic_id_position = NOTHING
    if version >= 4:
        if at >= end:
            return _UNUSUAL
        if data[at] == 0:
            at += 1
        elif at + 19 == end and data[at] == 1 and data[at + 1] == 0 and data[at + 2] == 16:
            if (be64(data, at + 3) | be64(data, at + 11)) != 0:
                topic_id_position = at + 3
            at += 19
    if at != end:
        return _UNUSUAL
    return (
        True,
        committed_offset,
        leader_epoch,
        metadata_position,
        metadata_length,
        commit_time_ms,
        expire_time_ms,
        topic_id_position,
        version,
    )


@compiled
def _is_group_type(record_type: int) -> bool:
    """GroupMetadata, ConsumerGroupMetadata, ShareGroupMetadata, StreamsGroupMetadata: their tombstones remove a
    group."""
    return record_type in (2, 3, 11, 17)


@compiled
def _intern_key(
    data: U8,
    position: int,
    group_length: int,
    topic_length: int,
    tables: tuple[InternTable, InternTable, InternTable, InternTable],
    keys: KeyArrays,
) -> int:
    """The id of a new key, given all bytes after its type; NO_ROOM if a table is full."""
    key_table, group_table, topic_table, _ = tables
    topic_position = position + 2 + group_length + 2
    group, topic = GROUP_NOT_UTF8, GROUP_NOT_UTF8
    if is_utf8(data, position + 2, group_length) and is_utf8(data, topic_position, topic_length):
        group = _intern(group_table, data, position + 2, group_length)
        topic = _intern(topic_table, data, topic_position, topic_length)
        if NO_ROOM in (group, topic):
            return NO_ROOM
    key_id = _intern(key_table, data, position, 2 + group_length + 2 + topic_length + 4)
    if key_id != NO_ROOM:
        keys.group[key_id] = group
        keys.topic[key_id] = topic
        keys.partition[key_id] = be32(data, topic_position + topic_length)
    return int(key_id)


@compiled
def _intern_group(table: InternTable, data: U8, position: int, length: int) -> int:
    """The id of a new group, GROUP_NOT_UTF8, or NO_ROOM."""
    return _intern(table, data, position, length) if is_utf8(data, position, length) else GROUP_NOT_UTF8


@compiled
def parse_records(  # noqa: C901  (one pass over bytes or rows, compiled: calls would cost as much as the work)
    data: U8,
    records: RecordArrays,
    batches: BatchArrays,
    tables: tuple[InternTable, InternTable, InternTable, InternTable],
    keys: KeyArrays,
    rows: RowArrays,
    kinds: I8,
    groups: I32,
    record: int,
    row: int,
) -> tuple[int, int]:
    """Read records from `record` on into `kinds` and `groups` (one element for each record) and `rows` (from `row` on).

    `tables` are those of keys, groups, topics and topic ids. Returns (next record, next row); if the first is not the
    end, a table is full: grow all four and call again from there.
    """
    # All arrays used in the loop are taken out of their tuples here: see find_in.
    key_table, group_table, _, topic_id_table = tables
    key_slots, key_hashes, key_starts, key_pool, _ = key_table
    group_slots, group_hashes, group_starts, group_pool, _ = group_table
    id_slots, id_hashes, id_starts, id_pool, _ = topic_id_table
    key_group, key_topic, key_partition = keys.group, keys.topic, keys.partition
    batch_index, offset, timestamp_ms, key_position, key_length, value_position, value_length = records
    is_control, _, batch_is_transactional, batch_producer_id, batch_producer = batches
    row_key, row_group, row_topic, row_topic_id = rows.key, rows.group, rows.topic, rows.topic_id
    row_partition, log_offset, recorded_at_ms = rows.partition, rows.log_offset, rows.recorded_at_ms
    producer_id, producer, is_transactional = rows.producer_id, rows.producer, rows.is_transactional
    is_value, committed_offset, leader_epoch = rows.is_value, rows.committed_offset, rows.leader_epoch
    metadata_position, metadata_length = rows.metadata_position, rows.metadata_length
    commit_time_ms, expire_time_ms, value_version = rows.commit_time_ms, rows.expire_time_ms, rows.value_version

    for i in range(record, len(offset)):
        batch = batch_index[i]
        groups[i] = NO_GROUP
        if is_control[batch]:
            kinds[i] = KIND_CONTROL
            continue
        kinds[i] = KIND_OTHER
        position = key_position[i]
        length = int(key_length[i])
        if length < 2:
            continue
        record_type = be16(data, position)
        if record_type < 0 or record_type > TYPE_LAST or record_type in (9, 18):
            continue
        is_commit = record_type <= TYPE_OFFSET_COMMIT
        group_length = be16(data, position + 2) if length >= 4 else -1
        has_group = 0 <= group_length <= length - 4
        topic_length = -1
        if is_commit and has_group and group_length + 6 <= length:
            topic_length = be16(data, position + 4 + group_length)

        if topic_length < 0 or group_length + topic_length + 10 != length:
            # Not an offset commit, or in an unusual layout. The group alone identifies the operation.
            if has_group:
                group = find_in(group_slots, group_hashes, group_starts, group_pool, data, position + 4, group_length)
                if group == NOT_FOUND:
                    group = _intern_group(group_table, data, position + 4, group_length)
                    if group == NO_ROOM:
                        return i, row
                groups[i] = group
            if not is_commit:
                if has_group and value_length[i] < 0 and _is_group_type(record_type):
                    kinds[i] = KIND_GROUP_TOMBSTONE
                continue
            key_id = -1
        else:
            key_id = find_in(key_slots, key_hashes, key_starts, key_pool, data, position + 2, length - 2)
            if key_id == NOT_FOUND:
                key_id = _intern_key(data, position + 2, group_length, topic_length, tables, keys)
                if key_id == NO_ROOM:
                    return i, row
            groups[i] = key_group[key_id]

        kind = KIND_FLAGGED
        topic_id = NOTHING
        value = _UNUSUAL
        if key_id >= 0 and groups[i] >= 0:
            if value_length[i] < 0:
                kind = KIND_TOMBSTONE
                value = _NO_VALUE
            else:
                value = _parse_value(data, value_position[i], int(value_length[i]), record_type)
                if value[0]:
                    kind = KIND_VALUE
                    if value[7] >= 0:
                        topic_id = find_in(id_slots, id_hashes, id_starts, id_pool, data, value[7], UUID_BYTES)
                        if topic_id == NOT_FOUND:
                            topic_id = _intern(topic_id_table, data, value[7], int(UUID_BYTES))
                            if topic_id == NO_ROOM:
                                return i, row
            row_key[row] = key_id
            row_group[row] = key_group[key_id]
            row_topic[row] = key_topic[key_id]
            row_partition[row] = key_partition[key_id]
        kinds[i] = kind
        row_topic_id[row] = topic_id
        is_value[row] = value[0]
        committed_offset[row] = value[1]
        leader_epoch[row] = value[2]
        metadata_position[row] = value[3]
        metadata_length[row] = value[4]
        commit_time_ms[row] = value[5]
        expire_time_ms[row] = value[6]
        value_version[row] = value[8]
        log_offset[row] = offset[i]
        recorded_at_ms[row] = timestamp_ms[i]
        producer_id[row] = batch_producer_id[batch]
        producer[row] = batch_producer[batch]
        is_transactional[row] = batch_is_transactional[batch]
        row += 1
    return len(offset), row


@inlined
def _unlink(row: int, key: int, pending_head: I32, next_of_key: I32, previous_of_key: I32) -> None:
    """Remove a pending row from its key's list. It stays in its producer's list until the marker, which skips it."""
    after, before = next_of_key[row], previous_of_key[row]
    if before == NOTHING:
        pending_head[key] = after
    else:
        next_of_key[before] = after
    if after != NOTHING:
        previous_of_key[after] = before


@inlined
def _link(row: int, key: int, pending_head: I32, next_of_key: I32, previous_of_key: I32) -> None:
    """Insert a pending row into its key's list."""
    head = pending_head[key]
    next_of_key[row] = head
    previous_of_key[row] = NOTHING
    if head != NOTHING:
        previous_of_key[head] = row
    pending_head[key] = row


@compiled
def replay_records(  # noqa: C901  (one pass over bytes or rows, compiled: calls would cost as much as the work)
    records: RecordArrays,
    batches: BatchArrays,
    keys: KeyArrays,
    rows: RowArrays,
    carried: int,
    kinds: I8,
    groups: I32,
    is_after_others: BoolArray,
    group_touched: BoolArray,
    producer_heads: I32,
    operations: I32,
    operation_last_offset: I64,
    touches: TouchArrays,
) -> tuple[int, int]:
    """Replay in log order: outcome and change of each row, operation of each record, touches of groups.

    Rows before `carried` are pending from earlier chunks; `producer_heads` is empty at the call. Returns the numbers of
    (operations, touches) written.
    """
    # All arrays used for every record are taken out of their tuples here: see find_in.
    batch_index, offsets, timestamps = records.batch_index, records.offset, records.timestamp_ms
    row_key, row_producer, row_offset, is_value = rows.key, rows.producer, rows.log_offset, rows.is_value
    committed_offset, outcome, change = rows.committed_offset, rows.outcome, rows.change
    applied_log_offset, applied_at_ms = rows.applied_log_offset, rows.applied_at_ms
    has_previous, previous_offset = rows.has_previous, rows.previous_offset
    has_delta, row_delta, next_of_producer = rows.has_delta, rows.delta, rows.next_of_producer
    pending_head, has_offset = keys.pending_head, keys.has_offset
    offset_in_force, record_offset = keys.committed_offset, keys.record_offset
    next_of_key, previous_of_key = rows.next_of_key, rows.previous_of_key

    for row in range(carried):
        _link(row, row_key[row], pending_head, next_of_key, previous_of_key)
        next_of_producer[row] = producer_heads[row_producer[row]]
        producer_heads[row_producer[row]] = row
    row = carried
    operation_count = 0
    touch_count = 0
    last_batch, last_group, last_timestamp_ms = -1, NO_GROUP, 0
    for i in range(len(offsets)):
        batch = batch_index[i]
        offset = offsets[i]
        timestamp_ms = timestamps[i]
        group = groups[i]
        if group < 0:
            operations[i] = -1
        else:
            is_other = group != last_group or batch != last_batch or timestamp_ms != last_timestamp_ms
            if is_other or is_after_others[i]:
                operation_count += 1
            operations[i] = operation_count - 1
            operation_last_offset[operation_count - 1] = offset
        last_batch, last_group, last_timestamp_ms = batch, group, timestamp_ms

        # Rows that this record may put in force: its own, or those of the transaction that it ends.
        candidate = NOTHING
        is_abort = False
        kind = kinds[i]
        if kind >= KIND_VALUE:
            # the fields of its row that `parse_records` does not set
            outcome[row] = OUTCOME_NONE
            applied_log_offset[row] = NOTHING
            applied_at_ms[row] = NOTHING
            change[row] = CHANGE_NONE
            has_previous[row] = False
            previous_offset[row] = 0
            has_delta[row] = False
            row_delta[row] = 0
        if kind == KIND_TOMBSTONE:
            pending = pending_head[row_key[row]]
            while pending != NOTHING:
                outcome[pending] = OUTCOME_SUPERSEDED
                pending = next_of_key[pending]
            pending_head[row_key[row]] = NOTHING
            next_of_producer[row] = NOTHING
            candidate = row
            row += 1
        elif kind == KIND_VALUE:
            if not group_touched[group]:
                group_touched[group] = True
                touches.log_offset[touch_count] = offset
                touches.group[touch_count] = group
                touches.operation[touch_count] = operations[i]
                touches.timestamp_ms[touch_count] = timestamp_ms
                touch_count += 1
            producer = row_producer[row]
            if producer == NOTHING:
                next_of_producer[row] = NOTHING
                candidate = row
            else:
                earlier = pending_head[row_key[row]]
                while earlier != NOTHING and row_producer[earlier] != producer:
                    earlier = next_of_key[earlier]
                if earlier != NOTHING:
                    _unlink(earlier, row_key[row], pending_head, next_of_key, previous_of_key)
                    outcome[earlier] = OUTCOME_SUPERSEDED
                _link(row, row_key[row], pending_head, next_of_key, previous_of_key)
                next_of_producer[row] = producer_heads[producer]
                producer_heads[producer] = row
                outcome[row] = OUTCOME_PENDING
            row += 1
        elif kind == KIND_QUARANTINED:
            row += 1
        elif kind == KIND_GROUP_TOMBSTONE:
            if group >= 0:
                group_touched[group] = False
        elif kind == KIND_CONTROL:
            control_type = batches.control_type[batch]
            producer = batches.producer[batch]
            if producer != NOTHING and control_type in (_CONTROL_ABORT, _CONTROL_COMMIT):
                is_abort = control_type == _CONTROL_ABORT
                candidate = producer_heads[producer]
                producer_heads[producer] = NOTHING

        while candidate != NOTHING:
            current = candidate
            candidate = next_of_producer[current]
            key = row_key[current]
            had_offset = has_offset[key]
            if kind == KIND_CONTROL:
                if outcome[current] != OUTCOME_PENDING:
                    continue  # replaced or deleted in the meantime
                _unlink(current, key, pending_head, next_of_key, previous_of_key)
                if is_abort:
                    outcome[current] = OUTCOME_ABORTED
                    continue
                if had_offset and record_offset[key] >= row_offset[current]:
                    outcome[current] = OUTCOME_SUPERSEDED
                    continue
            outcome[current] = OUTCOME_APPLIED
            applied_log_offset[current] = offset
            applied_at_ms[current] = timestamp_ms
            previous = offset_in_force[key]
            if had_offset:
                has_previous[current] = True
                previous_offset[current] = previous
            if not is_value[current]:
                change[current] = CHANGE_DELETE
                has_offset[key] = False
                continue
            committed = committed_offset[current]
            if not had_offset:
                change[current] = CHANGE_FIRST
            else:
                delta = committed - previous
                # The difference of extreme offsets overflows; it is null then.
                if ((committed ^ previous) & (committed ^ delta)) >= 0:
                    has_delta[current] = True
                    row_delta[current] = delta
                if committed > previous:
                    change[current] = CHANGE_ADVANCE
                elif committed == previous:
                    change[current] = CHANGE_REPEAT
                else:
                    change[current] = CHANGE_REWIND
            has_offset[key] = True
            offset_in_force[key] = committed
            record_offset[key] = row_offset[current]
    return operation_count, touch_count


@compiled
def gather_bytes(data: U8, pool: U8, positions: I64, starts: I64, out: U8) -> None:
    """Copy piece `i`, of `starts[i + 1] - starts[i]` bytes, from `data` or `pool` to `out[starts[i]:]`."""
    for i in range(len(positions)):
        start, end = starts[i], starts[i + 1]
        position = positions[i]
        if position >= 0:
            for at in range(end - start):
                out[start + at] = data[position + at]
        else:
            position = ~position
            for at in range(end - start):
                out[start + at] = pool[position + at]


@compiled
def ranges_inside(positions: I64, lengths: I32, size: int) -> bool:
    """Whether each range (a negative length is null) lies inside a buffer of `size` bytes."""
    for i in range(len(positions)):
        length = int(lengths[i])
        if length > 0 and (positions[i] < 0 or positions[i] > size - length):
            return False
    return True
