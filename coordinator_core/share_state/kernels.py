"""Compiled replay of share-partition state: record after record, from bytes to the rows of three tables.

The merged state of a share partition is kept canonical: batches sorted, disjoint, at or above the start offset,
neighbours of equal state and count joined. By offset it is what PersisterStateBatchCombiner gives. An update
touches few neighbouring batches, so only that window is merged and spliced; nothing is done to the batches around it.

A loop here cannot grow an array. Before a record changes anything, `replay_records` makes sure that there is room for
the most it can produce; if not it stops there with `NEED_ROOM` (or `NEED_KEY`, or `UNUSUAL` for a record which it
leaves to the codec), and the caller resumes at the same record. So a record is replayed wholly or not at all, and no
index leaves its array, whatever the bytes say.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numba import njit

from coordinator_core.interning import NO_ROOM, InternTable, find, intern
from coordinator_core.log.chunk import I8, I32, I64, U8, BoolArray
from coordinator_core.log.kernels import be16, be32, be64, compiled, read_uvarint

F = TypeVar("F", bound=Callable[..., object])


def borrowing(function: F) -> F:
    """As `compiled`, without reference counts: such loops make no arrays, and their caller holds those which they are
    given. Counting would cost a fifth of the replay."""
    result: F = njit(cache=True, nogil=True, _nrt=False)(function)
    return result


def inlined(function: F) -> F:
    """As `borrowing`, and made a part of what calls it: so many arrays cost more to hand on than most parts take."""
    result: F = njit(cache=True, nogil=True, _nrt=False, forceinline=True)(function)
    return result


INT64_MAX: Final = 2**63 - 1
NO_RANK: Final = -(2**31)
"""In place of a rank: no batch is known there."""
OPEN: Final = -(2**63)
"""In place of the offset of the record which ends a row: none has yet."""

# Why `replay_records` came back.
DONE: Final = 0
NEED_KEY: Final = 1
NEED_ROOM: Final = 2
UNUSUAL: Final = 3

# Columns of `ColumnarArrays.keys`, one row a share partition.
K_FLAGS: Final = 0
K_SNAPSHOT_EPOCH: Final = 1
K_STATE_EPOCH: Final = 2
K_LEADER_EPOCH: Final = 3
K_START: Final = 4
K_COMPLETE_COUNT: Final = 5
K_CREATED: Final = 6
K_WRITTEN: Final = 7
K_PASSED: Final = 8
"""The furthest start offset since the state was made: what lies below was passed already, though a stale writer may
have set the start offset back."""
K_REGION: Final = 9
"""Where the key's batches lie in the pool: region, its capacity, the first row in use, and how many are."""
K_CAPACITY: Final = 10
K_HEAD: Final = 11
K_LENGTH: Final = 12
K_AVAILABLE: Final = 13
K_ACKNOWLEDGED: Final = 14
K_ARCHIVED: Final = 15
K_ROW: Final = 16
"""The key's open row of share_partition_states, or -1."""
K_ARCHIVING: Final = 17
KEY_COLUMNS: Final = 18

SEEN: Final = 1
"""A record of the key was seen."""
HAS_STATE: Final = 2
HAS_SNAPSHOT: Final = 4
"""The state builds on a snapshot, so it is complete."""
ORPHAN_REPORTED: Final = 8

# Columns of the pool: batches with the record that opened their row.
P_FIRST: Final = 0
P_LAST: Final = 1
P_RANK: Final = 2
P_FROM: Final = 3
P_AT: Final = 4
P_COMPLETE: Final = 5
POOL_COLUMNS: Final = 6

# Columns of `ColumnarArrays.states`, one row a row of share_partition_states. The same for the arrays after it.
S_KEY: Final = 0
S_OFFSET: Final = 1
S_AT: Final = 2
S_TO: Final = 3
S_TO_AT: Final = 4
S_KIND: Final = 5
S_SNAPSHOT_EPOCH: Final = 6
S_STATE_EPOCH: Final = 7
S_LEADER_EPOCH: Final = 8
S_START: Final = 9
S_EFFECTIVE_START: Final = 10
S_COMPLETE_COUNT: Final = 11
S_CREATED: Final = 12
S_WRITTEN: Final = 13
S_CHANGED: Final = 14
"""Where the row's changed batches begin in `ColumnarArrays.changed`."""
S_CHANGED_COUNT: Final = 15
S_BATCH_COUNT: Final = 16
S_AVAILABLE: Final = 17
S_ACKNOWLEDGED: Final = 18
S_ARCHIVED: Final = 19
S_COMPLETE: Final = 20
S_ARCHIVING: Final = 21
STATE_COLUMNS: Final = 22

C_FIRST: Final = 0
C_LAST: Final = 1
C_RANK: Final = 2
CHANGED_COLUMNS: Final = 3

B_FIRST: Final = 0
B_LAST: Final = 1
B_FROM: Final = 2
B_AT: Final = 3
B_TO: Final = 4
B_TO_AT: Final = 5
B_KEY_RANK: Final = 6
"""Key, and twice the rank, one more where the state was complete: see `_pair`."""
BATCH_COLUMNS: Final = 7

T_OFFSET: Final = 0
T_AT: Final = 1
T_FIRST: Final = 2
T_LAST: Final = 3
T_FROM_TO: Final = 4
"""Ranks."""
T_KEY_KIND: Final = 5
"""Key, and twice the kind, one more where the leader changed."""
TRANSITION_COLUMNS: Final = 6

F_KEY: Final = 0
F_CODE: Final = 1
F_OFFSET: Final = 2
F_BEFORE: Final = 3
F_AFTER: Final = 4
FINDING_COLUMNS: Final = 5
FINDINGS_PER_RECORD_MAX: Final = 4

# Elements of `ColumnarArrays.sizes`.
N_STATES: Final = 0
N_CHANGED: Final = 1
N_BATCHES: Final = 2
N_TRANSITIONS: Final = 3
N_FINDINGS: Final = 4
N_POOL: Final = 5
N_DECODED: Final = 6
N_TOMBSTONES: Final = 7
N_CONTROL: Final = 8
N_UNKNOWN_TYPE: Final = 9
N_NEED_KEY: Final = 10
"""With NEED_ROOM: the key and how many batches its record has."""
N_NEED_COUNT: Final = 11
N_CAPACITIES: Final = 12
"""From here on how much there is room for: states, changed, batches, transitions, findings, pool, own, merged."""
SIZE_ELEMENTS: Final = 20

KIND_SNAPSHOT: Final = 0
KIND_COLD_SNAPSHOT: Final = 1
KIND_UPDATE: Final = 2
KIND_TOMBSTONE: Final = 3
KIND_RESET: Final = 4

FIRST_SEEN: Final = 0
REDELIVERABLE: Final = 1
RETRIED: Final = 2
ACKNOWLEDGED: Final = 3
ARCHIVED: Final = 4
PASSED: Final = 5
RESET: Final = 6
ARCHIVING: Final = 7
"""Not yet given up: the broker first tries to copy the record to a dead letter topic (KIP-1191)."""

STALE_WRITER: Final = 0
SNAPSHOT_EPOCH_WENT_BACK: Final = 1
ORPHAN_UPDATE: Final = 2
STATE_WENT_BACK: Final = 3
INVALID_STATE_BATCH: Final = 4
UPDATE_TOMBSTONE: Final = 5

STATE_AVAILABLE: Final = 0
STATE_ACKNOWLEDGED: Final = 2
STATE_ARCHIVING: Final = 3
STATE_ARCHIVED: Final = 4

RECORD_SNAPSHOT: Final = 0
RECORD_UPDATE: Final = 1
UNCHANGED: Final = -1
KEY_BYTES_FIXED: Final = 2 + 16 + 4
"""Of a key without its type: length of the group id, topic id, partition."""
SNAPSHOT_BYTES_FIXED: Final = 2 + 3 * 4 + 3 * 8
UPDATE_BYTES_FIXED: Final = 2 + 2 * 4 + 8
WINDOW_GAP: Final = 4
"""Rows of the state between two batches of an update which are merged in one window: that costs less than a splice."""
STATE_BATCH_BYTES: Final = 8 + 8 + 1 + 2 + 1
"""The last one is the count of its tags, 0."""


class ColumnarArrays(NamedTuple):
    """All arrays of a columnar replay of share states as compiled code sees them."""

    key_ids: I64
    """Id in the intern table to row of `keys`: several byte strings may be one key (malformed UTF-8)."""
    keys: I64
    pool: I64
    states: I64
    changed: I64
    batches: I64
    """Rows of share_state_batches which have ended."""
    transitions: I64
    findings: I64
    sizes: I64
    own: I64
    """The batches of the record at hand: first, last, rank."""
    merged: I64
    """The window at hand, merged: columns of the pool."""
    fields: I64
    """The fields of the record at hand: columns of `keys`."""


class Records(NamedTuple):
    """The columns of a chunk which the loop reads."""

    data: U8
    is_control: BoolArray
    """By batch."""
    batch_index: I32
    offset: I64
    timestamp_ms: I64
    key_position: I64
    key_length: I32
    value_position: I64
    value_length: I32


@inlined
def rank_of(state: int, count: int) -> int:
    """(delivery count, delivery state) as one number of the same order."""
    return count * 256 + state + 128


@inlined
def _pair(high: int, low: int) -> int:
    """Two int32 as one number: what a row takes of memory is what a replay waits for."""
    return (high << 32) | (low & 0xFFFFFFFF)


@inlined
def _high(pair: int) -> int:
    return pair >> 32


@inlined
def _low(pair: int) -> int:
    return int(np.int32(pair & 0xFFFFFFFF))


@inlined
def _state_of(rank: int) -> int:
    return (rank & 255) - 128


@inlined
def _is_terminal(rank: int) -> bool:
    state = _state_of(rank)
    return state in (STATE_ACKNOWLEDGED, STATE_ARCHIVED)


@inlined
def _kind_of(from_rank: int, to_rank: int) -> int:
    state = _state_of(to_rank)
    if state == STATE_ACKNOWLEDGED:
        return ACKNOWLEDGED
    if state == STATE_ARCHIVED:
        return ARCHIVED
    if state == STATE_ARCHIVING:
        return ARCHIVING
    is_available = state == STATE_AVAILABLE and from_rank != NO_RANK
    if is_available and _state_of(from_rank) == STATE_AVAILABLE and to_rank > from_rank:
        return RETRIED
    return REDELIVERABLE


@inlined
def _count_offsets(keys: I64, key: int, first: int, last: int, rank: int, sign: int) -> None:
    """Add a batch's offsets to the key's counts, or take them away. Sums may wrap and wrap back; see `_saturated`."""
    state = _state_of(rank)
    offsets = sign * (last - first + 1)
    if state == STATE_AVAILABLE:
        keys[key, K_AVAILABLE] += offsets
    elif state == STATE_ACKNOWLEDGED:
        keys[key, K_ACKNOWLEDGED] += offsets
    elif state == STATE_ARCHIVING:
        keys[key, K_ARCHIVING] += offsets
    elif state == STATE_ARCHIVED:
        keys[key, K_ARCHIVED] += offsets


@borrowing
def _saturated(count: int) -> int:
    """All offsets together are one more than an int64 holds."""
    return INT64_MAX if count < 0 else count


@borrowing
def _report(findings: I64, sizes: I64, key: int, code: int, offset: int, before: int, after: int) -> None:
    row = sizes[N_FINDINGS]
    findings[row, F_KEY] = key
    findings[row, F_CODE] = code
    findings[row, F_OFFSET] = offset
    findings[row, F_BEFORE] = before
    findings[row, F_AFTER] = after
    sizes[N_FINDINGS] = row + 1


@inlined
def _transition(
    arrays: ColumnarArrays,
    key: int,
    offset: int,
    at: int,
    leader_changed: int,
    first: int,
    last: int,
    from_rank: int,
    to_rank: int,
    kind: int,
) -> None:
    transitions, sizes = arrays.transitions, arrays.sizes
    row = sizes[N_TRANSITIONS]
    transitions[row, T_OFFSET] = offset
    transitions[row, T_AT] = at
    transitions[row, T_FIRST] = first
    transitions[row, T_LAST] = last
    transitions[row, T_FROM_TO] = _pair(from_rank, to_rank)
    transitions[row, T_KEY_KIND] = _pair(key, 2 * kind + leader_changed)
    sizes[N_TRANSITIONS] = row + 1


@inlined
def _close(arrays: ColumnarArrays, key: int, at_row: int, offset: int, at: int) -> None:
    """End the row of a batch. One which this very record opened was never to be seen, and gives no row."""
    keys, pool, batches, sizes = arrays.keys, arrays.pool, arrays.batches, arrays.sizes
    _count_offsets(keys, key, pool[at_row, P_FIRST], pool[at_row, P_LAST], pool[at_row, P_RANK], -1)
    if pool[at_row, P_FROM] == offset:
        return
    row = sizes[N_BATCHES]
    batches[row, B_FIRST] = pool[at_row, P_FIRST]
    batches[row, B_LAST] = pool[at_row, P_LAST]
    batches[row, B_FROM] = pool[at_row, P_FROM]
    batches[row, B_AT] = pool[at_row, P_AT]
    batches[row, B_TO] = offset
    batches[row, B_TO_AT] = at
    batches[row, B_KEY_RANK] = _pair(key, 2 * pool[at_row, P_RANK] + pool[at_row, P_COMPLETE])
    sizes[N_BATCHES] = row + 1


@njit(cache=True, nogil=True, _nrt=True)
def _normalise(own: I64, count: int) -> int:
    """Make a record's batches canonical when they come out of order or overlap, which Kafka never writes.

    A sweep over the offsets with a heap of the batches that cover the place, the highest rank on top. `own` has room
    for two batches a batch, all that can come of it. Returns how many they are.
    """
    order = np.argsort(own[:count, 0], kind="mergesort")
    batches = own[:count][order]
    heap = np.empty(count, np.int64)
    heap_size = 0
    taken = 0
    out = 0
    position = np.int64(0)
    while taken < count or heap_size > 0:
        if heap_size == 0:
            position = batches[taken, 0]
        while taken < count and batches[taken, 0] <= position:
            child = heap_size
            heap_size += 1
            while child > 0 and batches[heap[(child - 1) >> 1], 2] < batches[taken, 2]:
                heap[child] = heap[(child - 1) >> 1]
                child = (child - 1) >> 1
            heap[child] = taken
            taken += 1
        top = heap[0]
        end = batches[top, 1]
        if end >= position:
            if taken < count and batches[taken, 0] <= end:
                end = batches[taken, 0] - 1
            rank = batches[top, 2]
            if out > 0 and own[out - 1, 2] == rank and own[out - 1, 1] + 1 == position:
                own[out - 1, 1] = end
            else:
                own[out, 0] = position
                own[out, 1] = end
                own[out, 2] = rank
                out += 1
            if end == INT64_MAX:
                return out
            position = end + 1
        if batches[top, 1] < position:
            heap_size -= 1
            moved = heap[heap_size]
            parent = 0
            while True:
                child = 2 * parent + 1
                if child >= heap_size:
                    break
                if child + 1 < heap_size and batches[heap[child + 1], 2] > batches[heap[child], 2]:
                    child += 1
                if batches[heap[child], 2] <= batches[moved, 2]:
                    break
                heap[parent] = heap[child]
                parent = child
            heap[parent] = moved
    return out


@inlined
def _passed(
    arrays: ColumnarArrays, key: int, offset: int, at: int, leader_changed: int, first: int, last: int, own_count: int
) -> None:
    """The start offset moves over `first..last`: a row for each range which was never seen terminal."""
    keys, pool = arrays.keys, arrays.pool
    region = keys[key, K_REGION] + keys[key, K_HEAD]
    length = keys[key, K_LENGTH]
    row = 0
    while row < length and pool[region + row, P_LAST] < first:
        row += 1
    look_from = 0
    position = first
    while position <= last:
        rank = NO_RANK
        end = last
        if row < length:
            batch_first = pool[region + row, P_FIRST]
            if batch_first <= position:
                rank = pool[region + row, P_RANK]
                end = min(last, pool[region + row, P_LAST])
                row += 1
            else:
                end = min(last, batch_first - 1)
        if rank == NO_RANK or not _is_terminal(rank):
            look_from = _passed_piece(
                arrays, key, offset, at, leader_changed, position, end, rank, look_from, own_count
            )
        position = end + 1


@inlined
def _passed_piece(
    arrays: ColumnarArrays,
    key: int,
    offset: int,
    at: int,
    leader_changed: int,
    first: int,
    last: int,
    rank: int,
    look_from: int,
    own_count: int,
) -> int:
    """The piece less what the record itself calls terminal. Returns from which of its batches to go on."""
    own = arrays.own
    while look_from < own_count and own[look_from, 1] < first:
        look_from += 1
    position = first
    look = look_from
    while look < own_count and own[look, 0] <= last:
        if _is_terminal(own[look, 2]):
            if own[look, 0] > position:
                _transition(arrays, key, offset, at, leader_changed, position, own[look, 0] - 1, rank, NO_RANK, PASSED)
            if own[look, 1] >= last:
                return look_from
            position = own[look, 1] + 1
        look += 1
    _transition(arrays, key, offset, at, leader_changed, position, last, rank, NO_RANK, PASSED)
    return look_from


@inlined
def _trim(arrays: ColumnarArrays, key: int, offset: int, at: int, complete: int, start: int) -> None:
    """Drop what lies below the start offset."""
    keys, pool = arrays.keys, arrays.pool
    while keys[key, K_LENGTH] > 0:
        row = keys[key, K_REGION] + keys[key, K_HEAD]
        if pool[row, P_FIRST] >= start:
            return
        _close(arrays, key, row, offset, at)
        if pool[row, P_LAST] >= start:
            pool[row, P_FIRST] = start
            pool[row, P_FROM] = offset
            pool[row, P_AT] = at
            pool[row, P_COMPLETE] = complete
            _count_offsets(keys, key, start, pool[row, P_LAST], pool[row, P_RANK], 1)
            return
        keys[key, K_HEAD] += 1
        keys[key, K_LENGTH] -= 1
    keys[key, K_HEAD] = 0


@inlined
def _row_ending_at(pool: I64, region: int, low: int, high: int, offset: int) -> int:
    """The first of the rows `low..high` whose batch ends at `offset` or later; `high` if there is none."""
    while low < high:
        middle = (low + high) >> 1
        if pool[region + middle, P_LAST] < offset:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _append_merged(merged: I64, count: int, first: int, last: int, rank: int) -> int:
    if count > 0 and merged[count - 1, P_RANK] == rank and merged[count - 1, P_LAST] + 1 == first:
        merged[count - 1, P_LAST] = last
        return count
    merged[count, P_FIRST] = first
    merged[count, P_LAST] = last
    merged[count, P_RANK] = rank
    return count + 1


@inlined
def _merge_update(
    arrays: ColumnarArrays,
    key: int,
    offset: int,
    at: int,
    leader_changed: int,
    complete: int,
    own_from: int,
    own_count: int,
) -> None:
    """Merge an update's batches, each run of them which lie close together in a window of its own.

    A window has the rows which the run covers, and the neighbours on both sides, which may join.
    """
    keys, pool, own = arrays.keys, arrays.pool, arrays.own
    low = 0
    while own_from < own_count:
        region = keys[key, K_REGION] + keys[key, K_HEAD]
        length = keys[key, K_LENGTH]
        low = _row_ending_at(pool, region, low, length, own[own_from, 0] - 1)
        high = low
        own_end = own_from
        while own_end < own_count:
            next_row = high + WINDOW_GAP
            if own_end > own_from and next_row < length and pool[region + next_row, P_LAST] < own[own_end, 0] - 1:
                break
            while high < length and pool[region + high, P_FIRST] - 1 <= own[own_end, 1]:
                high += 1
            own_end += 1
        _merge(arrays, key, offset, at, leader_changed, complete, low, high, own_from, own_end, False, False)
        low = high + keys[key, K_LENGTH] - length
        own_from = own_end


@inlined
def _merge(
    arrays: ColumnarArrays,
    key: int,
    offset: int,
    at: int,
    leader_changed: int,
    complete: int,
    low: int,
    high: int,
    own_from: int,
    own_count: int,
    is_snapshot: bool,
    is_first: bool,
) -> bool:
    """Merge the record's batches `own_from..own_count` into the rows `low..high`, or put them in their place.

    Each offset whose state changes goes into a transition. Returns whether a snapshot lowered or lost a state,
    which no coordinator does.
    """
    keys, pool, own, merged = arrays.keys, arrays.pool, arrays.own, arrays.merged
    region = keys[key, K_REGION] + keys[key, K_HEAD]
    went_back = False
    count = 0
    row, other = low, own_from
    first = pool[region + row, P_FIRST] if row < high else 0
    other_first = own[other, 0] if other < own_count else 0
    while row < high or other < own_count:
        if other >= own_count or (row < high and first < other_first):
            # The state alone.
            last = pool[region + row, P_LAST]
            rank = pool[region + row, P_RANK]
            is_whole = other >= own_count or last < other_first
            end = last if is_whole else other_first - 1
            if is_snapshot:
                _transition(arrays, key, offset, at, leader_changed, first, end, rank, NO_RANK, RESET)
                went_back = True
            else:
                count = _append_merged(merged, count, first, end, rank)
            if is_whole:
                row += 1
                first = pool[region + row, P_FIRST] if row < high else 0
            else:
                first = other_first
        elif row >= high or other_first < first:
            # The record alone.
            last = own[other, 1]
            rank = own[other, 2]
            is_whole = row >= high or last < first
            end = last if is_whole else first - 1
            kind = FIRST_SEEN if is_first else _kind_of(NO_RANK, rank)
            _transition(arrays, key, offset, at, leader_changed, other_first, end, NO_RANK, rank, kind)
            count = _append_merged(merged, count, other_first, end, rank)
            if is_whole:
                other += 1
                other_first = own[other, 0] if other < own_count else 0
            else:
                other_first = first
        else:
            # Both, from the same offset on.
            last = pool[region + row, P_LAST]
            rank = pool[region + row, P_RANK]
            other_last = own[other, 1]
            other_rank = own[other, 2]
            end = min(last, other_last)
            if other_rank > rank or (is_snapshot and other_rank != rank):
                went_back = went_back or other_rank < rank
                _transition(
                    arrays, key, offset, at, leader_changed, first, end, rank, other_rank, _kind_of(rank, other_rank)
                )
                count = _append_merged(merged, count, first, end, other_rank)
            else:
                count = _append_merged(merged, count, first, end, rank)
            if end == last:
                row += 1
                first = pool[region + row, P_FIRST] if row < high else 0
            else:
                first = end + 1
            if end == other_last:
                other += 1
                other_first = own[other, 0] if other < own_count else 0
            else:
                other_first = end + 1
    _open_and_close(arrays, key, offset, at, complete, region, low, high, count)
    _splice(arrays, key, low, high, count)
    return went_back


@inlined
def _open_and_close(
    arrays: ColumnarArrays, key: int, offset: int, at: int, complete: int, region: int, low: int, high: int, count: int
) -> None:
    """Batches which stay as they were keep their open row; the others end theirs, or begin one."""
    keys, pool, merged = arrays.keys, arrays.pool, arrays.merged
    row = low
    for new in range(count):
        while row < high and pool[region + row, P_FIRST] < merged[new, P_FIRST]:
            _close(arrays, key, region + row, offset, at)
            row += 1
        if row < high and pool[region + row, P_FIRST] == merged[new, P_FIRST]:
            if pool[region + row, P_LAST] == merged[new, P_LAST] and pool[region + row, P_RANK] == merged[new, P_RANK]:
                merged[new, P_FROM] = pool[region + row, P_FROM]
                merged[new, P_AT] = pool[region + row, P_AT]
                merged[new, P_COMPLETE] = pool[region + row, P_COMPLETE]
                row += 1
                continue
            _close(arrays, key, region + row, offset, at)
            row += 1
        merged[new, P_FROM] = offset
        merged[new, P_AT] = at
        merged[new, P_COMPLETE] = complete
        _count_offsets(keys, key, merged[new, P_FIRST], merged[new, P_LAST], merged[new, P_RANK], 1)
    while row < high:
        _close(arrays, key, region + row, offset, at)
        row += 1


@inlined
def _copy_row(rows: I64, source: int, to_rows: I64, target: int) -> None:
    """A row of the pool, read whole before it is written: so the compiler takes several columns at a time."""
    at, to = np.uint64(source), np.uint64(target)
    first, last, rank = rows[at, P_FIRST], rows[at, P_LAST], rows[at, P_RANK]
    from_offset, from_at, complete = rows[at, P_FROM], rows[at, P_AT], rows[at, P_COMPLETE]
    to_rows[to, P_FIRST] = first
    to_rows[to, P_LAST] = last
    to_rows[to, P_RANK] = rank
    to_rows[to, P_FROM] = from_offset
    to_rows[to, P_AT] = from_at
    to_rows[to, P_COMPLETE] = complete


@inlined
def _move(pool: I64, source: int, target: int, count: int) -> None:
    """Move rows within the pool; the ranges may overlap."""
    if target < source:
        for row in range(count):
            _copy_row(pool, source + row, pool, target + row)
    elif target > source:
        for row in range(count - 1, -1, -1):
            _copy_row(pool, source + row, pool, target + row)


@inlined
def _splice(arrays: ColumnarArrays, key: int, low: int, high: int, count: int) -> None:
    """Put `merged[:count]` in the place of the rows `low..high`, moving the shorter side where there is room."""
    keys, pool, merged = arrays.keys, arrays.pool, arrays.merged
    region, head, length = keys[key, K_REGION], keys[key, K_HEAD], keys[key, K_LENGTH]
    growth = count - (high - low)
    behind = length - high
    fits_behind = head + length + growth <= keys[key, K_CAPACITY]
    if growth != 0:
        if head - growth >= 0 and (low < behind or not fits_behind):
            _move(pool, region + head, region + head - growth, low)
            head -= growth
        else:
            # It fits: if not in front, then head < growth <= 2 batches a batch of the record, and `_has_room` saw to
            # 4 of them behind what there is.
            _move(pool, region + head + high, region + head + high + growth, behind)
    for row in range(count):
        _copy_row(merged, row, pool, region + head + low + row)
    keys[key, K_HEAD] = head
    keys[key, K_LENGTH] = length + growth


@borrowing
def _forget(arrays: ColumnarArrays, key: int, offset: int, at: int, leader_changed: int) -> None:
    """All batches go: the offsets were reset, or the state was deleted."""
    keys, pool = arrays.keys, arrays.pool
    region = keys[key, K_REGION] + keys[key, K_HEAD]
    for row in range(region, region + keys[key, K_LENGTH]):
        _transition(
            arrays,
            key,
            offset,
            at,
            leader_changed,
            pool[row, P_FIRST],
            pool[row, P_LAST],
            pool[row, P_RANK],
            NO_RANK,
            RESET,
        )
        _close(arrays, key, row, offset, at)
    keys[key, K_HEAD] = 0
    keys[key, K_LENGTH] = 0


@inlined
def _effective_start(keys: I64, pool: I64, key: int) -> int:
    """The start offset moved over the terminal batches which follow it without a gap."""
    start = int(keys[key, K_START])
    if start < 0:
        return start
    region = keys[key, K_REGION] + keys[key, K_HEAD]
    for row in range(region, region + keys[key, K_LENGTH]):
        if pool[row, P_FIRST] != start or not _is_terminal(pool[row, P_RANK]):
            break
        if pool[row, P_LAST] == INT64_MAX:
            return INT64_MAX
        start = int(pool[row, P_LAST]) + 1
    return start


@inlined
def _state_row(arrays: ColumnarArrays, key: int, offset: int, at: int, kind: int, changed_from: int) -> None:
    """One row of share_partition_states; the key's row before it ends here."""
    keys, pool, states, sizes = arrays.keys, arrays.pool, arrays.states, arrays.sizes
    before = keys[key, K_ROW]
    if before >= 0:
        states[before, S_TO] = offset
        states[before, S_TO_AT] = at
    row = sizes[N_STATES]
    states[row, S_KEY] = key
    states[row, S_OFFSET] = offset
    states[row, S_AT] = at
    states[row, S_TO] = OPEN
    states[row, S_TO_AT] = 0
    states[row, S_KIND] = kind
    states[row, S_SNAPSHOT_EPOCH] = keys[key, K_SNAPSHOT_EPOCH]
    states[row, S_STATE_EPOCH] = keys[key, K_STATE_EPOCH]
    states[row, S_LEADER_EPOCH] = keys[key, K_LEADER_EPOCH]
    states[row, S_START] = keys[key, K_START]
    states[row, S_EFFECTIVE_START] = _effective_start(keys, pool, key)
    states[row, S_COMPLETE_COUNT] = keys[key, K_COMPLETE_COUNT]
    states[row, S_CREATED] = keys[key, K_CREATED]
    states[row, S_WRITTEN] = keys[key, K_WRITTEN]
    states[row, S_CHANGED] = changed_from
    states[row, S_CHANGED_COUNT] = sizes[N_CHANGED] - changed_from
    states[row, S_BATCH_COUNT] = keys[key, K_LENGTH]
    states[row, S_AVAILABLE] = _saturated(keys[key, K_AVAILABLE])
    states[row, S_ACKNOWLEDGED] = _saturated(keys[key, K_ACKNOWLEDGED])
    states[row, S_ARCHIVING] = _saturated(keys[key, K_ARCHIVING])
    states[row, S_ARCHIVED] = _saturated(keys[key, K_ARCHIVED])
    is_complete = kind == KIND_TOMBSTONE or keys[key, K_FLAGS] & HAS_SNAPSHOT != 0
    states[row, S_COMPLETE] = 1 if is_complete else 0
    keys[key, K_ROW] = row
    sizes[N_STATES] = row + 1


@borrowing
def _replay_tombstone(arrays: ColumnarArrays, key: int, offset: int, at: int) -> None:
    keys, sizes = arrays.keys, arrays.sizes
    _forget(arrays, key, offset, at, 0)
    keys[key, K_FLAGS] = SEEN
    keys[key, K_PASSED] = -1
    for column in range(K_SNAPSHOT_EPOCH, K_PASSED):
        keys[key, column] = 0
    _state_row(arrays, key, offset, at, KIND_TOMBSTONE, sizes[N_CHANGED])


@inlined
def _keep_changed(arrays: ColumnarArrays, own_count: int) -> int:
    changed, sizes, own = arrays.changed, arrays.sizes, arrays.own
    start = int(sizes[N_CHANGED])
    for row in range(own_count):
        changed[start + row, C_FIRST] = own[row, 0]
        changed[start + row, C_LAST] = own[row, 1]
        changed[start + row, C_RANK] = own[row, 2]
    sizes[N_CHANGED] = start + own_count
    return start


@inlined
def _own_from(own: I64, own_count: int, start: int) -> int:
    """Trim the record's row batches at the start offset; from which of them on there is something left."""
    row = 0
    while row < own_count and own[row, 1] < start:
        row += 1
    if row < own_count and own[row, 0] < start:
        own[row, 0] = start
    return row


@inlined
def _replay_update(arrays: ColumnarArrays, key: int, offset: int, at: int, own_count: int) -> None:
    """As ShareCoordinatorShard.merge: the update's start offset and leader epoch unless -1, its count always."""
    keys, findings, sizes, own, fields = arrays.keys, arrays.findings, arrays.sizes, arrays.own, arrays.fields
    flags = keys[key, K_FLAGS]
    changed_from = _keep_changed(arrays, own_count)
    leader_changed = 0
    if flags & HAS_STATE == 0:
        for column in range(K_SNAPSHOT_EPOCH, K_PASSED):
            keys[key, column] = fields[column]
        keys[key, K_FLAGS] = SEEN | HAS_STATE
        keys[key, K_PASSED] = fields[K_START]
        complete = 0
    else:
        complete = 1 if flags & HAS_SNAPSHOT else 0
        if complete and fields[K_SNAPSHOT_EPOCH] != keys[key, K_SNAPSHOT_EPOCH] and not flags & ORPHAN_REPORTED:
            _report(findings, sizes, key, ORPHAN_UPDATE, offset, keys[key, K_SNAPSHOT_EPOCH], fields[K_SNAPSHOT_EPOCH])
            keys[key, K_FLAGS] = flags | ORPHAN_REPORTED
        if fields[K_LEADER_EPOCH] != UNCHANGED and fields[K_LEADER_EPOCH] != keys[key, K_LEADER_EPOCH]:
            leader_changed = 1
            keys[key, K_LEADER_EPOCH] = fields[K_LEADER_EPOCH]
        if fields[K_START] != UNCHANGED:
            if fields[K_START] < keys[key, K_START]:
                _report(findings, sizes, key, STALE_WRITER, offset, keys[key, K_START], fields[K_START])
            keys[key, K_START] = fields[K_START]
        keys[key, K_COMPLETE_COUNT] = fields[K_COMPLETE_COUNT]
        _move_start(arrays, key, offset, at, leader_changed, own_count)
    start = keys[key, K_START]
    own_from = 0
    if start != UNCHANGED:
        _trim(arrays, key, offset, at, complete, start)
        own_from = _own_from(own, own_count, start)
    if own_from < own_count:
        _merge_update(arrays, key, offset, at, leader_changed, complete, own_from, own_count)
    _state_row(arrays, key, offset, at, KIND_UPDATE, changed_from)


@inlined
def _move_start(arrays: ColumnarArrays, key: int, offset: int, at: int, leader_changed: int, own_count: int) -> None:
    """Rows for what the start offset passes now; what it passed before a stale writer set it back it does not
    pass again."""
    keys = arrays.keys
    passed, start = keys[key, K_PASSED], keys[key, K_START]
    if start > passed:
        if passed >= 0:
            _passed(arrays, key, offset, at, leader_changed, passed, start - 1, own_count)
        keys[key, K_PASSED] = start


@inlined
def _replay_snapshot(arrays: ColumnarArrays, key: int, offset: int, at: int, own_count: int) -> None:
    keys, findings, sizes, own, fields = arrays.keys, arrays.findings, arrays.sizes, arrays.own, arrays.fields
    flags = keys[key, K_FLAGS]
    had_state = flags & HAS_STATE != 0
    was_complete = flags & HAS_SNAPSHOT != 0
    changed_from = _keep_changed(arrays, own_count)
    is_warm = fields[K_CREATED] == fields[K_WRITTEN]
    is_reset = False
    if had_state and own_count == 0:
        is_initial = is_warm and fields[K_LEADER_EPOCH] == 0 and -1 <= fields[K_COMPLETE_COUNT] <= 0
        is_reset = is_initial or (was_complete and fields[K_STATE_EPOCH] != keys[key, K_STATE_EPOCH])
    leader_changed = 1 if had_state and fields[K_LEADER_EPOCH] != keys[key, K_LEADER_EPOCH] else 0
    if was_complete and fields[K_SNAPSHOT_EPOCH] < keys[key, K_SNAPSHOT_EPOCH]:
        _report(
            findings,
            sizes,
            key,
            SNAPSHOT_EPOCH_WENT_BACK,
            offset,
            keys[key, K_SNAPSHOT_EPOCH],
            fields[K_SNAPSHOT_EPOCH],
        )
    if is_reset:
        _forget(arrays, key, offset, at, leader_changed)
    for column in range(K_SNAPSHOT_EPOCH, K_PASSED):
        keys[key, column] = fields[column]
    keys[key, K_FLAGS] = SEEN | HAS_STATE | HAS_SNAPSHOT | (flags & ORPHAN_REPORTED)
    if is_reset or not had_state:
        keys[key, K_PASSED] = fields[K_START]
    else:
        _move_start(arrays, key, offset, at, leader_changed, own_count)
    own_from = 0
    if fields[K_START] != UNCHANGED:
        _trim(arrays, key, offset, at, 1, fields[K_START])
        own_from = _own_from(own, own_count, fields[K_START])
    length = keys[key, K_LENGTH]
    is_first = flags & SEEN == 0
    if _merge(arrays, key, offset, at, leader_changed, 1, 0, length, own_from, own_count, True, is_first):
        _report(findings, sizes, key, STATE_WENT_BACK, offset, 0, 0)
    kind = KIND_SNAPSHOT
    if is_reset:
        kind = KIND_RESET
    elif not is_warm:
        kind = KIND_COLD_SNAPSHOT
    _state_row(arrays, key, offset, at, kind, changed_from)


@inlined
def _read_fields(data: U8, position: int, end: int, is_snapshot: bool, fields: I64) -> tuple[int, int]:
    """The fields before the batches: (how many batches, where they begin), or (-1, 0) where it is no usual value."""
    if end - position < (SNAPSHOT_BYTES_FIXED if is_snapshot else UPDATE_BYTES_FIXED):
        return -1, 0
    if be16(data, position) != 0:
        return -1, 0
    fields[K_SNAPSHOT_EPOCH] = be32(data, position + 2)
    position += 6
    fields[K_STATE_EPOCH] = 0
    fields[K_CREATED] = 0
    fields[K_WRITTEN] = 0
    if is_snapshot:
        fields[K_STATE_EPOCH] = be32(data, position)
        position += 4
    fields[K_LEADER_EPOCH] = be32(data, position)
    fields[K_START] = be64(data, position + 4)
    position += 12
    if is_snapshot:
        fields[K_CREATED] = be64(data, position)
        fields[K_WRITTEN] = be64(data, position + 8)
        position += 16
    count, position = read_uvarint(data, position, end)
    if position < 0 or count < 1 or (count - 1) * STATE_BATCH_BYTES > end - position:
        return -1, 0
    return count - 1, position


@inlined
def _read_tags(data: U8, position: int, end: int, fields: I64) -> bool:
    """The tags of the value: none, or the delivery complete count alone. False where it is anything else."""
    fields[K_COMPLETE_COUNT] = -1
    tag_count, position = read_uvarint(data, position, end)
    if position < 0:
        return False
    if tag_count == 0:
        return True
    if tag_count != 1 or end - position < 6 or data[position] != 0 or data[position + 1] != 4:
        return False
    fields[K_COMPLETE_COUNT] = be32(data, position + 2)
    return True


@inlined
def _read_batches(data: U8, position: int, count: int, own: I64) -> tuple[int, bool]:
    """The record's batches, canonical: (how many, whether one of them is no range of offsets).

    (-1, False) where one has tags. The bounds were checked with the count.
    """
    kept = 0
    is_sorted = True
    has_invalid = False
    for _ in range(count):
        if data[position + STATE_BATCH_BYTES - 1] != 0:
            return -1, False
        first = be64(data, position)
        last = be64(data, position + 8)
        state = int(data[position + 16])
        rank = rank_of(state - 256 if state >= 128 else state, be16(data, position + 17))
        position += STATE_BATCH_BYTES
        if first < 0 or last < first:
            has_invalid = True
            continue
        if kept > 0:
            before = own[kept - 1, 1]
            if first <= before:
                is_sorted = False
            elif first - 1 == before and own[kept - 1, 2] == rank:
                own[kept - 1, 1] = last
                continue
        own[kept, 0] = first
        own[kept, 1] = last
        own[kept, 2] = rank
        kept += 1
    if not is_sorted:
        kept = _normalise(own, kept)
    return kept, has_invalid


@inlined
def _has_room(arrays: ColumnarArrays, key: int, count: int) -> bool:
    """Whether there is room for the most that a record of `count` batches can make; `ColumnarShareReplay` makes
    it.
    """
    keys, pool, sizes = arrays.keys, arrays.pool, arrays.sizes
    length = keys[key, K_LENGTH]
    pieces = length + 4 * count + 2
    if pieces > keys[key, K_CAPACITY] and sizes[N_POOL] + 2 * pieces <= sizes[N_CAPACITIES + 5]:
        _move_region(keys, pool, sizes, key, 2 * pieces)
    return bool(
        pieces <= keys[key, K_CAPACITY]
        and sizes[N_STATES] < sizes[N_CAPACITIES]
        and sizes[N_CHANGED] + 2 * count <= sizes[N_CAPACITIES + 1]
        and sizes[N_BATCHES] + length <= sizes[N_CAPACITIES + 2]
        and sizes[N_TRANSITIONS] + 4 * pieces <= sizes[N_CAPACITIES + 3]
        and sizes[N_FINDINGS] + FINDINGS_PER_RECORD_MAX <= sizes[N_CAPACITIES + 4]
        and 2 * count <= sizes[N_CAPACITIES + 6]
        and 2 * pieces <= sizes[N_CAPACITIES + 7]
    )


@borrowing
def _move_region(keys: I64, pool: I64, sizes: I64, key: int, capacity: int) -> None:
    """A larger region for the key's batches at the end of the pool. The old one is waste until the pool is
    packed.
    """
    region = sizes[N_POOL]
    _move(pool, keys[key, K_REGION] + keys[key, K_HEAD], region, keys[key, K_LENGTH])
    keys[key, K_REGION] = region
    keys[key, K_CAPACITY] = capacity
    keys[key, K_HEAD] = 0
    sizes[N_POOL] = region + capacity


@borrowing
def pack_pool(columnar: ColumnarArrays, pool: I64, key_count: int) -> None:
    """Copy every key's region into a new pool, one behind the other. The new pool must hold them."""
    keys = columnar.keys
    end = 0
    for key in range(key_count):
        source = keys[key, K_REGION] + keys[key, K_HEAD]
        for row in range(keys[key, K_LENGTH]):
            _copy_row(columnar.pool, source + row, pool, end + row)
        keys[key, K_REGION] = end
        keys[key, K_HEAD] = 0
        end += keys[key, K_CAPACITY]
    columnar.sizes[N_POOL] = end


@inlined
def _key_bytes(data: U8, position: int, length: int) -> int:
    """How many bytes of a key say which share partition it is: all but the type, and what is behind; -1 where
    it is no key.
    """
    if length < 2 + KEY_BYTES_FIXED:
        return -1
    group_bytes = be16(data, position + 2)
    if group_bytes < 0 or group_bytes > length - 2 - KEY_BYTES_FIXED:
        return -1
    return KEY_BYTES_FIXED + group_bytes


@inlined
def _is_share_state(data: U8, position: int) -> bool:
    record_type = be16(data, position)
    return record_type in (RECORD_SNAPSHOT, RECORD_UPDATE)


@borrowing
def intern_keys(records: Records, table: InternTable, start: int) -> int:
    """Intern the keys of all records from `start` on. Returns at which it had no room, or the number of
    records.
    """
    data = records.data
    for record in range(start, len(records.offset)):
        if records.is_control[records.batch_index[record]]:
            continue
        position, length = records.key_position[record], int(records.key_length[record])
        if length < 2 or not _is_share_state(data, position):
            continue
        key_bytes = _key_bytes(data, position, length)
        if key_bytes >= 0 and intern(table, data, position + 2, key_bytes) == NO_ROOM:
            return record
    return len(records.offset)


@borrowing
def replay_records(records: Records, table: InternTable, arrays: ColumnarArrays, start: int) -> tuple[int, int]:
    """Replay the records from `start` on: (why it came back, at which record).

    DONE: all of them. Else the record was not touched: NEED_KEY, its key is new; NEED_ROOM, for
    `sizes[N_NEED_COUNT]` batches of key `sizes[N_NEED_KEY]`; UNUSUAL, the codec must say what it is.
    """
    data, is_control, batch_index = records.data, records.is_control, records.batch_index
    offsets, timestamps = records.offset, records.timestamp_ms
    key_positions, key_lengths = records.key_position, records.key_length
    value_positions, value_lengths = records.value_position, records.value_length
    key_ids, sizes, findings = arrays.key_ids, arrays.sizes, arrays.findings
    own, fields = arrays.own, arrays.fields
    for record in range(start, len(offsets)):
        if is_control[batch_index[record]]:
            sizes[N_CONTROL] += 1
            continue
        position = key_positions[record]
        key_length = int(key_lengths[record])
        if key_length < 2:
            return UNUSUAL, record
        if not _is_share_state(data, position):
            sizes[N_UNKNOWN_TYPE] += 1
            continue
        key_bytes = _key_bytes(data, position, key_length)
        if key_bytes < 0:
            return UNUSUAL, record
        is_snapshot = be16(data, position) == RECORD_SNAPSHOT
        interned = find(table, data, position + 2, key_bytes)
        if interned < 0:
            return NEED_KEY, record
        key = key_ids[interned]
        offset, at = offsets[record], timestamps[record]
        if value_lengths[record] < 0:
            if not _has_room(arrays, key, 0):
                sizes[N_NEED_KEY], sizes[N_NEED_COUNT] = key, 0
                return NEED_ROOM, record
            sizes[N_TOMBSTONES] += 1
            if is_snapshot:
                _replay_tombstone(arrays, key, offset, at)
            else:
                _report(findings, sizes, key, UPDATE_TOMBSTONE, offset, 0, 0)
            continue
        position = value_positions[record]
        end = position + value_lengths[record]
        count, position = _read_fields(data, position, end, is_snapshot, fields)
        if count < 0 or not _read_tags(data, position + count * STATE_BATCH_BYTES, end, fields):
            return UNUSUAL, record
        if not _has_room(arrays, key, count):
            sizes[N_NEED_KEY], sizes[N_NEED_COUNT] = key, count
            return NEED_ROOM, record
        own_count, has_invalid = _read_batches(data, position, count, own)
        if own_count < 0:
            return UNUSUAL, record
        if has_invalid:
            _report(findings, sizes, key, INVALID_STATE_BATCH, offset, 0, 0)
        sizes[N_DECODED] += 1
        if is_snapshot:
            _replay_snapshot(arrays, key, offset, at, own_count)
        else:
            _replay_update(arrays, key, offset, at, own_count)
    return DONE, len(offsets)


# Rows are written whole, side by side in memory, and cut into columns once there are many of them.

StateArrays = tuple[
    I32,
    I64,
    I8,
    I64,
    I64,
    I64,
    BoolArray,
    BoolArray,
    I32,
    I32,
    I32,
    I64,
    I64,
    I32,
    BoolArray,
    I64,
    BoolArray,
    I64,
    BoolArray,
    I32,
    I64,
    I64,
    I64,
    I64,
    BoolArray,
]
BatchListArrays = tuple[I32, I64, I64, I8, I32]
BatchArrays = tuple[I32, I64, I64, I8, I32, I64, I64, I64, I64, BoolArray, BoolArray]
TransitionArrays = tuple[I32, I64, I64, I64, I64, BoolArray, I8, I32, BoolArray, I8, I32, I8, BoolArray]


@compiled
def cut_states(states: I64, rows: I64) -> StateArrays:
    """Some rows of `ColumnarArrays.states`: the columns of `PartitionStateRows` in their order, less the last."""
    count = len(rows)
    key = np.empty(count, np.int32)
    log_offset = np.empty(count, np.int64)
    record_kind = np.empty(count, np.int8)
    valid_from_ms = np.empty(count, np.int64)
    valid_to_ms = np.empty(count, np.int64)
    to_log_offset = np.empty(count, np.int64)
    has_end = np.empty(count, np.bool_)
    has_state = np.empty(count, np.bool_)
    snapshot_epoch = np.empty(count, np.int32)
    state_epoch = np.empty(count, np.int32)
    leader_epoch = np.empty(count, np.int32)
    start_offset = np.empty(count, np.int64)
    effective_start_offset = np.empty(count, np.int64)
    delivery_complete_count = np.empty(count, np.int32)
    has_delivery_complete_count = np.empty(count, np.bool_)
    create_time_ms = np.empty(count, np.int64)
    has_create_time = np.empty(count, np.bool_)
    write_time_ms = np.empty(count, np.int64)
    has_write_time = np.empty(count, np.bool_)
    batch_count = np.empty(count, np.int32)
    available_count = np.empty(count, np.int64)
    acknowledged_count = np.empty(count, np.int64)
    archiving_count = np.empty(count, np.int64)
    archived_count = np.empty(count, np.int64)
    is_complete = np.empty(count, np.bool_)
    for to in range(count):
        row = rows[to]
        is_state = states[row, S_KIND] != KIND_TOMBSTONE
        key[to] = states[row, S_KEY]
        log_offset[to] = states[row, S_OFFSET]
        record_kind[to] = states[row, S_KIND]
        valid_from_ms[to] = states[row, S_AT]
        valid_to_ms[to] = states[row, S_TO_AT]
        to_log_offset[to] = states[row, S_TO]
        has_end[to] = states[row, S_TO] != OPEN
        has_state[to] = is_state
        snapshot_epoch[to] = states[row, S_SNAPSHOT_EPOCH]
        state_epoch[to] = states[row, S_STATE_EPOCH]
        leader_epoch[to] = states[row, S_LEADER_EPOCH]
        start_offset[to] = states[row, S_START]
        effective_start_offset[to] = states[row, S_EFFECTIVE_START]
        delivery_complete_count[to] = states[row, S_COMPLETE_COUNT]
        has_delivery_complete_count[to] = is_state and states[row, S_COMPLETE_COUNT] != -1
        create_time_ms[to] = states[row, S_CREATED]
        has_create_time[to] = states[row, S_CREATED] > 0
        write_time_ms[to] = states[row, S_WRITTEN]
        has_write_time[to] = states[row, S_WRITTEN] > 0
        batch_count[to] = states[row, S_BATCH_COUNT]
        available_count[to] = states[row, S_AVAILABLE]
        acknowledged_count[to] = states[row, S_ACKNOWLEDGED]
        archiving_count[to] = states[row, S_ARCHIVING]
        archived_count[to] = states[row, S_ARCHIVED]
        is_complete[to] = states[row, S_COMPLETE] != 0
    return (
        key,
        log_offset,
        record_kind,
        valid_from_ms,
        valid_to_ms,
        to_log_offset,
        has_end,
        has_state,
        snapshot_epoch,
        state_epoch,
        leader_epoch,
        start_offset,
        effective_start_offset,
        delivery_complete_count,
        has_delivery_complete_count,
        create_time_ms,
        has_create_time,
        write_time_ms,
        has_write_time,
        batch_count,
        available_count,
        acknowledged_count,
        archiving_count,
        archived_count,
        is_complete,
    )


@compiled
def cut_changed(states: I64, rows: I64, changed: I64) -> BatchListArrays:
    """The changed batches of some rows of `ColumnarArrays.states`: the columns of `StateBatchLists` in their order."""
    offsets = np.zeros(len(rows) + 1, np.int32)
    count = 0
    for place in range(len(rows)):
        count += states[rows[place], S_CHANGED_COUNT]
        offsets[place + 1] = count
    first_offset = np.empty(count, np.int64)
    last_offset = np.empty(count, np.int64)
    delivery_state = np.empty(count, np.int8)
    delivery_count = np.empty(count, np.int32)
    to = 0
    for place in range(len(rows)):
        start = states[rows[place], S_CHANGED]
        for row in range(start, start + states[rows[place], S_CHANGED_COUNT]):
            first_offset[to] = changed[row, C_FIRST]
            last_offset[to] = changed[row, C_LAST]
            delivery_state[to] = _state_of(changed[row, C_RANK])
            delivery_count[to] = changed[row, C_RANK] >> 8
            to += 1
    return offsets, first_offset, last_offset, delivery_state, delivery_count


@borrowing
def open_batches(keys: I64, pool: I64, key_count: int, batches: I64) -> None:
    """The batches of all keys, key by key, as rows of `ColumnarArrays.batches` without an end. The array has as many
    rows."""
    to = 0
    for key in range(key_count):
        region = keys[key, K_REGION] + keys[key, K_HEAD]
        for row in range(region, region + keys[key, K_LENGTH]):
            batches[to, B_FIRST] = pool[row, P_FIRST]
            batches[to, B_LAST] = pool[row, P_LAST]
            batches[to, B_FROM] = pool[row, P_FROM]
            batches[to, B_AT] = pool[row, P_AT]
            batches[to, B_TO] = OPEN
            batches[to, B_TO_AT] = 0
            batches[to, B_KEY_RANK] = _pair(key, 2 * pool[row, P_RANK] + pool[row, P_COMPLETE])
            to += 1


@compiled
def cut_batches(batches: I64, count: int) -> BatchArrays:
    """The first rows of `ColumnarArrays.batches`: the columns of `StateBatchRows` in their order."""
    key = np.empty(count, np.int32)
    first_offset = np.empty(count, np.int64)
    last_offset = np.empty(count, np.int64)
    delivery_state = np.empty(count, np.int8)
    delivery_count = np.empty(count, np.int32)
    from_log_offset = np.empty(count, np.int64)
    valid_from_ms = np.empty(count, np.int64)
    to_log_offset = np.empty(count, np.int64)
    valid_to_ms = np.empty(count, np.int64)
    has_end = np.empty(count, np.bool_)
    is_complete = np.empty(count, np.bool_)
    for row in range(count):
        rank = _low(batches[row, B_KEY_RANK]) >> 1
        key[row] = _high(batches[row, B_KEY_RANK])
        first_offset[row] = batches[row, B_FIRST]
        last_offset[row] = batches[row, B_LAST]
        delivery_state[row] = _state_of(rank)
        delivery_count[row] = rank >> 8
        from_log_offset[row] = batches[row, B_FROM]
        valid_from_ms[row] = batches[row, B_AT]
        to_log_offset[row] = batches[row, B_TO]
        valid_to_ms[row] = batches[row, B_TO_AT]
        has_end[row] = batches[row, B_TO] != OPEN
        is_complete[row] = batches[row, B_KEY_RANK] & 1 != 0
    return (
        key,
        first_offset,
        last_offset,
        delivery_state,
        delivery_count,
        from_log_offset,
        valid_from_ms,
        to_log_offset,
        valid_to_ms,
        has_end,
        is_complete,
    )


@compiled
def cut_transitions(transitions: I64, count: int) -> TransitionArrays:
    """The first rows of `ColumnarArrays.transitions`: the columns of `TransitionRows` in their order."""
    key = np.empty(count, np.int32)
    log_offset = np.empty(count, np.int64)
    at_ms = np.empty(count, np.int64)
    first_offset = np.empty(count, np.int64)
    last_offset = np.empty(count, np.int64)
    has_from = np.empty(count, np.bool_)
    from_state = np.empty(count, np.int8)
    from_delivery_count = np.empty(count, np.int32)
    has_to = np.empty(count, np.bool_)
    to_state = np.empty(count, np.int8)
    to_delivery_count = np.empty(count, np.int32)
    kind = np.empty(count, np.int8)
    leader_changed = np.empty(count, np.bool_)
    for row in range(count):
        from_rank, to_rank = _high(transitions[row, T_FROM_TO]), _low(transitions[row, T_FROM_TO])
        key[row] = _high(transitions[row, T_KEY_KIND])
        log_offset[row] = transitions[row, T_OFFSET]
        at_ms[row] = transitions[row, T_AT]
        first_offset[row] = transitions[row, T_FIRST]
        last_offset[row] = transitions[row, T_LAST]
        has_from[row] = from_rank != NO_RANK
        from_state[row] = _state_of(from_rank) if from_rank != NO_RANK else 0
        from_delivery_count[row] = from_rank >> 8 if from_rank != NO_RANK else 0
        has_to[row] = to_rank != NO_RANK
        to_state[row] = _state_of(to_rank) if to_rank != NO_RANK else 0
        to_delivery_count[row] = to_rank >> 8 if to_rank != NO_RANK else 0
        kind[row] = _low(transitions[row, T_KEY_KIND]) >> 1
        leader_changed[row] = transitions[row, T_KEY_KIND] & 1 != 0
    return (
        key,
        log_offset,
        at_ms,
        first_offset,
        last_offset,
        has_from,
        from_state,
        from_delivery_count,
        has_to,
        to_state,
        to_delivery_count,
        kind,
        leader_changed,
    )
