"""Compiled replay of share-partition state, record by record, from bytes to the rows of three tables.

The merged state of a share partition is kept canonical: batches sorted, disjoint, at or above the start offset,
neighbours of equal state and count joined. By offset it equals the result of PersisterStateBatchCombiner. An update
touches few neighbouring batches, so only that window is merged and spliced; the batches around it stay untouched.

A loop here cannot grow an array. Before a record changes anything, `replay_records` checks that there is room for the
most that the record can produce. If not, it stops there with `NEED_ROOM` (or `NEED_KEY`, or `UNUSUAL` for a record that
the codec must read), and the caller resumes at the same record. So a record is replayed wholly or not at all, and no
index leaves its array, whatever the bytes.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numba import njit

from coordinator_core.bytes.interning import NO_ROOM, InternTable, find, intern
from coordinator_core.bytes.log.chunk import I32, I64, U8, BoolArray
from coordinator_core.bytes.log.kernels import be16, be32, be64, read_uvarint
from coordinator_core.replay.columnar.share_state_layouts import Row, Rows

F = TypeVar("F", bound=Callable[..., object])


def borrowing(function: F) -> F:
    """Like `compiled`, without reference counting: such loops allocate no arrays, and their caller keeps the arrays
    that it passes alive. Counting would cost a fifth of the replay."""
    result: F = njit(cache=True, nogil=True, _nrt=False)(function)
    return result


def inlined(function: F) -> F:
    """Like `borrowing`, and inlined into its caller: passing so many arrays costs more than most of the functions."""
    result: F = njit(cache=True, nogil=True, _nrt=False, forceinline=True)(function)
    return result


INT64_MAX: Final = 2**63 - 1
NO_RANK: Final = -(2**31)
"""In place of a rank where no batch is known."""
OPEN: Final = -(2**63)
"""In place of the offset of the record that ends a row: the row is open."""

# Why `replay_records` returned.
DONE: Final = 0
NEED_KEY: Final = 1
NEED_ROOM: Final = 2
UNUSUAL: Final = 3

SEEN: Final = 1
"""A record of the key was seen."""
HAS_STATE: Final = 2
HAS_SNAPSHOT: Final = 4
"""The state is based on a snapshot, so it is complete."""
ORPHAN_REPORTED: Final = 8

FINDINGS_PER_RECORD_MAX: Final = 4

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
"""Not archived yet: the broker first tries to copy the record to a dead letter topic (KIP-1191)."""
RETURNED: Final = 8
"""An update names the state and count that the range has. Updates name only what changed: the range was delivered and
handed back, and the delivery was not counted (KAFKA-17541, brokers 4.1 where a share session closes)."""

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
"""Bytes of a key without its type and group id: length of the group id, topic id, partition."""
SNAPSHOT_BYTES_FIXED: Final = 2 + 3 * 4 + 3 * 8
UPDATE_BYTES_FIXED: Final = 2 + 2 * 4 + 8
WINDOW_GAP: Final = 4
"""Up to this many rows of the state between two batches of an update, both are merged in one window: it costs less than
a splice.
"""
STATE_BATCH_BYTES: Final = 8 + 8 + 1 + 2 + 1
"""The last one is the tag count, 0."""


class ColumnarArrays(NamedTuple):
    """All arrays of a columnar replay of share states, for compiled code: rows of `layouts`."""

    key_ids: I64
    """Id in the intern table -> row of `keys`: several byte strings may decode to one key (malformed UTF-8)."""
    keys: Rows
    pool: Rows
    """The current batches of all keys (BATCH), each key's in its own region."""
    states: Rows
    changed: Rows
    """The batches of the records of `states` (RANGE)."""
    batches: Rows
    """Rows of share_state_batches that have ended."""
    transitions: Rows
    findings: Rows
    counts: Rows
    own: Rows
    """The batches of the current record (RANGE)."""
    merged: Rows
    """The current window, merged (BATCH)."""
    fields: Rows
    """The fields of the current record: one row, a KEY."""


class Records(NamedTuple):
    """The columns of a chunk that the loop reads."""

    data: U8
    is_control: BoolArray
    """One element for each batch."""
    batch_index: I32
    offset: I64
    timestamp_ms: I64
    key_position: I64
    key_length: I32
    value_position: I64
    value_length: I32


class RecordContext(NamedTuple):
    """The current record, with the values that all rows from it share."""

    key: int
    offset: int
    at: int
    leader_changed: bool
    is_complete: bool
    """Its state is based on a snapshot."""


@inlined
def rank_of(state: int, count: int) -> int:
    """(delivery count, delivery state) as one number with the same order."""
    return count * 256 + state + 128


@inlined
def state_of(rank: int) -> int:
    return (rank & 255) - 128


@inlined
def count_of(rank: int) -> int:
    return rank >> 8


@inlined
def _is_terminal(rank: int) -> bool:
    state = state_of(rank)
    return state in (STATE_ACKNOWLEDGED, STATE_ARCHIVED)


@inlined
def _kind_of(from_rank: int, to_rank: int) -> int:
    state = state_of(to_rank)
    if state == STATE_ACKNOWLEDGED:
        return ACKNOWLEDGED
    if state == STATE_ARCHIVED:
        return ARCHIVED
    if state == STATE_ARCHIVING:
        return ARCHIVING
    is_available = state == STATE_AVAILABLE and from_rank != NO_RANK
    if is_available and state_of(from_rank) == STATE_AVAILABLE and to_rank > from_rank:
        return RETRIED
    return REDELIVERABLE


@inlined
def _count_offsets(key: Row, first: int, last: int, rank: int, sign: int) -> None:
    """Add a batch's offsets to the key's counts, or subtract them. Sums may overflow and return; see `_saturated`."""
    state = state_of(rank)
    offsets = sign * (last - first + 1)
    if state == STATE_AVAILABLE:
        key.available += offsets
    elif state == STATE_ACKNOWLEDGED:
        key.acknowledged += offsets
    elif state == STATE_ARCHIVING:
        key.archiving += offsets
    elif state == STATE_ARCHIVED:
        key.archived += offsets


@borrowing
def _saturated(count: int) -> int:
    """The count of all offsets overflows an int64 by one."""
    return INT64_MAX if count < 0 else count


@borrowing
def _report(findings: Rows, counts: Rows, key: int, code: int, offset: int, before: int, after: int) -> None:
    finding = findings[counts[0].findings]
    finding.key = key
    finding.code = code
    finding.offset = offset
    finding.before = before
    finding.after = after
    counts[0].findings += 1


@inlined
def _transition(
    arrays: ColumnarArrays, context: RecordContext, first: int, last: int, from_rank: int, to_rank: int, kind: int
) -> None:
    row = arrays.transitions[arrays.counts[0].transitions]
    row.offset = context.offset
    row.at = context.at
    row.first = first
    row.last = last
    row.key = context.key
    row.has_from = from_rank != NO_RANK
    row.from_state = state_of(from_rank) if from_rank != NO_RANK else 0
    row.from_count = count_of(from_rank) if from_rank != NO_RANK else 0
    row.has_to = to_rank != NO_RANK
    row.to_state = state_of(to_rank) if to_rank != NO_RANK else 0
    row.to_count = count_of(to_rank) if to_rank != NO_RANK else 0
    row.kind = kind
    row.leader_changed = context.leader_changed
    arrays.counts[0].transitions += 1


@inlined
def _batch_row(row: Row, key: int, batch: Row, to_offset: int, to_at: int) -> None:
    """Fill a row of share_state_batches."""
    row.key = key
    row.first = batch.first
    row.last = batch.last
    row.delivery_state = state_of(batch.rank)
    row.delivery_count = count_of(batch.rank)
    row.from_offset = batch.from_offset
    row.from_at = batch.from_at
    row.to_offset = to_offset
    row.to_at = to_at
    row.is_complete = batch.is_complete != 0


@inlined
def _open(batch: Row, context: RecordContext) -> None:
    batch.from_offset = context.offset
    batch.from_at = context.at
    batch.is_complete = context.is_complete


@inlined
def _close(arrays: ColumnarArrays, context: RecordContext, batch: Row) -> None:
    """End the row of a batch. A row that this very record opened was never visible, and is dropped."""
    _count_offsets(arrays.keys[context.key], batch.first, batch.last, batch.rank, -1)
    if batch.from_offset == context.offset:
        return
    _batch_row(arrays.batches[arrays.counts[0].batches], context.key, batch, context.offset, context.at)
    arrays.counts[0].batches += 1


@njit(cache=True, nogil=True, _nrt=True)
def _normalise(own: Rows, count: int) -> int:
    """Make a record's batches canonical where they are unsorted or overlap, which Kafka never writes.

    A sweep over the offsets with a heap of the batches that cover the position, the highest rank on top. `own` has room
    for two pieces for each batch, the most that can result. Returns the number of pieces.
    """
    order = np.argsort(own["first"][:count], kind="mergesort")
    batches = own[:count][order]
    heap = np.empty(count, np.int64)
    heap_size = 0
    taken = 0
    out = 0
    position = np.int64(0)
    while taken < count or heap_size > 0:
        if heap_size == 0:
            position = batches[taken].first
        while taken < count and batches[taken].first <= position:
            child = heap_size
            heap_size += 1
            while child > 0 and batches[heap[(child - 1) >> 1]].rank < batches[taken].rank:
                heap[child] = heap[(child - 1) >> 1]
                child = (child - 1) >> 1
            heap[child] = taken
            taken += 1
        top = batches[heap[0]]
        end = top.last
        if end >= position:
            if taken < count and batches[taken].first <= end:
                end = batches[taken].first - 1
            out = _append(own, out, int(position), end, top.rank)
            if end == INT64_MAX:
                return out
            position = end + 1
        if top.last < position:
            heap_size -= 1
            moved = heap[heap_size]
            parent = 0
            while True:
                child = 2 * parent + 1
                if child >= heap_size:
                    break
                if child + 1 < heap_size and batches[heap[child + 1]].rank > batches[heap[child]].rank:
                    child += 1
                if batches[heap[child]].rank <= batches[moved].rank:
                    break
                heap[parent] = heap[child]
                parent = child
            heap[parent] = moved
    return out


@inlined
def _append(batches: Rows, count: int, first: int, last: int, rank: int) -> int:
    """Append a batch, or extend the last one by it. Returns the number of batches."""
    if count > 0:
        before = batches[count - 1]
        if before.rank == rank and before.last + 1 == first:
            before.last = last
            return count
    batch = batches[count]
    batch.first = first
    batch.last = last
    batch.rank = rank
    return count + 1


@inlined
def _passed(arrays: ColumnarArrays, context: RecordContext, first: int, last: int, own_count: int) -> None:
    """The start offset moves over `first..last`: add a transition for each range that was never seen terminal."""
    key, pool = arrays.keys[context.key], arrays.pool
    row = key.region + key.head
    end_row = row + key.length
    while row < end_row and pool[row].last < first:
        row += 1
    look_from = 0
    position = first
    while position <= last:
        rank = NO_RANK
        end = last
        if row < end_row:
            batch = pool[row]
            if batch.first <= position:
                rank = batch.rank
                end = min(last, batch.last)
                row += 1
            else:
                end = min(last, batch.first - 1)
        if rank == NO_RANK or not _is_terminal(rank):
            look_from = _passed_piece(arrays, context, position, end, rank, look_from, own_count)
        position = end + 1


@inlined
def _passed_piece(
    arrays: ColumnarArrays, context: RecordContext, first: int, last: int, rank: int, look_from: int, own_count: int
) -> int:
    """The piece without what the record itself marks as terminal. Returns the index of the record's batch to continue
    from.
    """
    own = arrays.own
    while look_from < own_count and own[look_from].last < first:
        look_from += 1
    position = first
    look = look_from
    while look < own_count and own[look].first <= last:
        batch = own[look]
        if _is_terminal(batch.rank):
            if batch.first > position:
                _transition(arrays, context, position, batch.first - 1, rank, NO_RANK, PASSED)
            if batch.last >= last:
                return look_from
            position = batch.last + 1
        look += 1
    _transition(arrays, context, position, last, rank, NO_RANK, PASSED)
    return look_from


@inlined
def _trim(arrays: ColumnarArrays, context: RecordContext, start: int) -> None:
    """Drop offsets below the start offset."""
    key = arrays.keys[context.key]
    while key.length > 0:
        batch = arrays.pool[key.region + key.head]
        if batch.first >= start:
            return
        _close(arrays, context, batch)
        if batch.last >= start:
            batch.first = start
            _open(batch, context)
            _count_offsets(key, start, batch.last, batch.rank, 1)
            return
        key.head += 1
        key.length -= 1
    key.head = 0


@inlined
def _row_ending_at(pool: Rows, region: int, low: int, high: int, offset: int) -> int:
    """The first of the rows `low..high` whose batch ends at `offset` or later; `high` if there is none."""
    while low < high:
        middle = (low + high) >> 1
        if pool[region + middle].last < offset:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _merge_update(arrays: ColumnarArrays, context: RecordContext, own_from: int, own_count: int) -> None:
    """Merge an update's batches: each run of adjacent ones in a window of its own.

    A window has the rows that the run covers, and the neighbours on both sides, which may join.
    """
    key, pool, own = arrays.keys[context.key], arrays.pool, arrays.own
    low = 0
    while own_from < own_count:
        region = key.region + key.head
        length = key.length
        low = _row_ending_at(pool, region, low, length, own[own_from].first - 1)
        high = low
        own_end = own_from
        while own_end < own_count:
            next_row = high + WINDOW_GAP
            if own_end > own_from and next_row < length and pool[region + next_row].last < own[own_end].first - 1:
                break
            while high < length and pool[region + high].first - 1 <= own[own_end].last:
                high += 1
            own_end += 1
        _merge(arrays, context, low, high, own_from, own_end, False, False)
        low = high + key.length - length
        own_from = own_end


@inlined
def _merge(
    arrays: ColumnarArrays,
    context: RecordContext,
    low: int,
    high: int,
    own_from: int,
    own_count: int,
    is_snapshot: bool,
    is_first: bool,
) -> bool:
    """Merge the record's batches `own_from..own_count` into the rows `low..high`, or replace the rows by them.

    Each offset whose state changes becomes part of a transition. Returns whether a snapshot lowered or lost a state,
    which no coordinator does.
    """
    pool, own, merged = arrays.pool, arrays.own, arrays.merged
    region = arrays.keys[context.key].region + arrays.keys[context.key].head
    went_back = False
    count = 0
    row, other = low, own_from
    first = pool[region + row].first if row < high else 0
    other_first = own[other].first if other < own_count else 0
    while row < high or other < own_count:
        if other >= own_count or (row < high and first < other_first):
            # Only the state covers the offset.
            batch = pool[region + row]
            is_whole = other >= own_count or batch.last < other_first
            end = batch.last if is_whole else other_first - 1
            if is_snapshot:
                _transition(arrays, context, first, end, batch.rank, NO_RANK, RESET)
                went_back = True
            else:
                count = _append(merged, count, first, end, batch.rank)
            if is_whole:
                row += 1
                first = pool[region + row].first if row < high else 0
            else:
                first = other_first
        elif row >= high or other_first < first:
            # Only the record covers the offset.
            given = own[other]
            is_whole = row >= high or given.last < first
            end = given.last if is_whole else first - 1
            kind = FIRST_SEEN if is_first else _kind_of(NO_RANK, given.rank)
            _transition(arrays, context, other_first, end, NO_RANK, given.rank, kind)
            count = _append(merged, count, other_first, end, given.rank)
            if is_whole:
                other += 1
                other_first = own[other].first if other < own_count else 0
            else:
                other_first = first
        else:
            # Both cover it, from the same offset on.
            batch, given = pool[region + row], own[other]
            rank, last, other_last = batch.rank, batch.last, given.last
            end = min(last, other_last)
            if given.rank > rank or (is_snapshot and given.rank != rank):
                went_back = went_back or given.rank < rank
                _transition(arrays, context, first, end, rank, given.rank, _kind_of(rank, given.rank))
                rank = given.rank
            elif given.rank == rank and not is_snapshot and state_of(rank) == STATE_AVAILABLE:
                _transition(arrays, context, first, end, rank, rank, RETURNED)
            count = _append(merged, count, first, end, rank)
            if end == last:
                row += 1
                first = pool[region + row].first if row < high else 0
            else:
                first = end + 1
            if end == other_last:
                other += 1
                other_first = own[other].first if other < own_count else 0
            else:
                other_first = end + 1
    _open_and_close(arrays, context, region, low, high, count)
    _splice(arrays, arrays.keys[context.key], low, high, count)
    return went_back


@inlined
def _open_and_close(
    arrays: ColumnarArrays, context: RecordContext, region: int, low: int, high: int, count: int
) -> None:
    """Unchanged batches keep their open row; the others end theirs or begin one."""
    key, pool, merged = arrays.keys[context.key], arrays.pool, arrays.merged
    row = low
    for place in range(count):
        new = merged[place]
        while row < high and pool[region + row].first < new.first:
            _close(arrays, context, pool[region + row])
            row += 1
        if row < high and pool[region + row].first == new.first:
            old = pool[region + row]
            row += 1
            if old.last == new.last and old.rank == new.rank:
                new.from_offset = old.from_offset
                new.from_at = old.from_at
                new.is_complete = old.is_complete
                continue
            _close(arrays, context, old)
        _open(new, context)
        _count_offsets(key, new.first, new.last, new.rank, 1)
    while row < high:
        _close(arrays, context, pool[region + row])
        row += 1


@inlined
def _move(pool: Rows, source: int, target: int, count: int) -> None:
    """Move rows within the pool; the ranges may overlap."""
    if target < source:
        for row in range(count):
            pool[np.uint64(target + row)] = pool[np.uint64(source + row)]
    elif target > source:
        for row in range(count - 1, -1, -1):
            pool[np.uint64(target + row)] = pool[np.uint64(source + row)]


@inlined
def _splice(arrays: ColumnarArrays, key: Row, low: int, high: int, count: int) -> None:
    """Replace the rows `low..high` by `merged[:count]`, moving the shorter side if there is room."""
    pool, merged = arrays.pool, arrays.merged
    region, head, length = key.region, key.head, key.length
    growth = count - (high - low)
    behind = length - high
    fits_behind = head + length + growth <= key.capacity
    if growth != 0:
        if head - growth >= 0 and (low < behind or not fits_behind):
            _move(pool, region + head, region + head - growth, low)
            head -= growth
        else:
            # It fits: if not in front, then head < growth <= 2 rows for each batch of the record, and `_has_room`
            # reserved 4 for each behind the existing rows.
            _move(pool, region + head + high, region + head + high + growth, behind)
    for row in range(count):
        pool[np.uint64(region + head + low + row)] = merged[np.uint64(row)]
    key.head = head
    key.length = length + growth


@borrowing
def _forget(arrays: ColumnarArrays, context: RecordContext) -> None:
    """Drop all batches: the offsets were reset, or the state was deleted."""
    key = arrays.keys[context.key]
    region = key.region + key.head
    for row in range(region, region + key.length):
        batch = arrays.pool[row]
        _transition(arrays, context, batch.first, batch.last, batch.rank, NO_RANK, RESET)
        _close(arrays, context, batch)
    key.head = 0
    key.length = 0


@inlined
def _effective_start(key: Row, pool: Rows) -> int:
    """The start offset, advanced over the terminal batches that follow it without a gap."""
    start = int(key.start)
    if start < 0:
        return start
    region = key.region + key.head
    for row in range(region, region + key.length):
        batch = pool[row]
        if batch.first != start or not _is_terminal(batch.rank):
            break
        if batch.last == INT64_MAX:
            return INT64_MAX
        start = int(batch.last) + 1
    return start


@inlined
def _state_row(arrays: ColumnarArrays, context: RecordContext, kind: int, changed_from: int) -> None:
    """Add a row of share_partition_states; the key's previous row ends here."""
    key, states, counts = arrays.keys[context.key], arrays.states, arrays.counts[0]
    if key.row >= 0:
        states[key.row].to_offset = context.offset
        states[key.row].to_at = context.at
    row = states[counts.states]
    row.key = context.key
    row.offset = context.offset
    row.at = context.at
    row.to_offset = OPEN
    row.to_at = 0
    row.kind = kind
    row.snapshot_epoch = key.snapshot_epoch
    row.state_epoch = key.state_epoch
    row.leader_epoch = key.leader_epoch
    row.start = key.start
    row.effective_start = _effective_start(key, arrays.pool)
    row.complete_count = key.complete_count
    row.created = key.created
    row.written = key.written
    row.changed = changed_from
    row.changed_count = counts.changed - changed_from
    row.batch_count = key.length
    row.available = _saturated(key.available)
    row.acknowledged = _saturated(key.acknowledged)
    row.archiving = _saturated(key.archiving)
    row.archived = _saturated(key.archived)
    row.is_complete = kind == KIND_TOMBSTONE or key.flags & HAS_SNAPSHOT != 0
    key.row = counts.states
    counts.states += 1


@inlined
def _set_fields(key: Row, fields: Row) -> None:
    key.snapshot_epoch = fields.snapshot_epoch
    key.state_epoch = fields.state_epoch
    key.leader_epoch = fields.leader_epoch
    key.start = fields.start
    key.complete_count = fields.complete_count
    key.created = fields.created
    key.written = fields.written


@borrowing
def _replay_tombstone(arrays: ColumnarArrays, key_row: int, offset: int, at: int) -> None:
    context = RecordContext(key_row, offset, at, False, False)
    _forget(arrays, context)
    key = arrays.keys[key_row]
    key.flags = SEEN
    key.passed = -1
    key.snapshot_epoch = 0
    key.state_epoch = 0
    key.leader_epoch = 0
    key.start = 0
    key.complete_count = 0
    key.created = 0
    key.written = 0
    _state_row(arrays, context, KIND_TOMBSTONE, arrays.counts[0].changed)


@inlined
def _keep_changed(arrays: ColumnarArrays, own_count: int) -> int:
    start = int(arrays.counts[0].changed)
    for row in range(own_count):
        arrays.changed[start + row] = arrays.own[row]
    arrays.counts[0].changed = start + own_count
    return start


@inlined
def _own_from(own: Rows, own_count: int, start: int) -> int:
    """Trim the record's batches at the start offset. Returns the index of the first one that is left."""
    row = 0
    while row < own_count and own[row].last < start:
        row += 1
    if row < own_count and own[row].first < start:
        own[row].first = start
    return row


@inlined
def _replay_update(arrays: ColumnarArrays, key_row: int, offset: int, at: int, own_count: int) -> None:
    """Like ShareCoordinatorShard.merge: the update's start offset and leader epoch unless -1, its count always."""
    key, fields = arrays.keys[key_row], arrays.fields[0]
    findings, counts = arrays.findings, arrays.counts
    flags = key.flags
    changed_from = _keep_changed(arrays, own_count)
    is_complete = flags & HAS_STATE != 0 and flags & HAS_SNAPSHOT != 0
    leader_changed = False
    if flags & HAS_STATE == 0:
        _set_fields(key, fields)
        key.flags = SEEN | HAS_STATE
        key.passed = fields.start
    else:
        if is_complete and fields.snapshot_epoch != key.snapshot_epoch and not flags & ORPHAN_REPORTED:
            _report(findings, counts, key_row, ORPHAN_UPDATE, offset, key.snapshot_epoch, fields.snapshot_epoch)
            key.flags = flags | ORPHAN_REPORTED
        if fields.leader_epoch not in (UNCHANGED, key.leader_epoch):
            leader_changed = True
            key.leader_epoch = fields.leader_epoch
        if fields.start != UNCHANGED:
            if fields.start < key.start:
                _report(findings, counts, key_row, STALE_WRITER, offset, key.start, fields.start)
            key.start = fields.start
        key.complete_count = fields.complete_count
    context = RecordContext(key_row, offset, at, leader_changed, is_complete)
    if flags & HAS_STATE:
        _move_start(arrays, context, own_count)
    own_from = 0
    if key.start != UNCHANGED:
        _trim(arrays, context, key.start)
        own_from = _own_from(arrays.own, own_count, key.start)
    if own_from < own_count:
        _merge_update(arrays, context, own_from, own_count)
    _state_row(arrays, context, KIND_UPDATE, changed_from)


@inlined
def _move_start(arrays: ColumnarArrays, context: RecordContext, own_count: int) -> None:
    """Add transitions for what the start offset passes now. What it passed before a stale writer set it back is not
    passed again."""
    key = arrays.keys[context.key]
    passed, start = key.passed, key.start
    if start > passed:
        if passed >= 0:
            _passed(arrays, context, passed, start - 1, own_count)
        key.passed = start


@inlined
def _replay_snapshot(arrays: ColumnarArrays, key_row: int, offset: int, at: int, own_count: int) -> None:
    key, fields = arrays.keys[key_row], arrays.fields[0]
    findings, counts = arrays.findings, arrays.counts
    flags = key.flags
    had_state = flags & HAS_STATE != 0
    was_complete = flags & HAS_SNAPSHOT != 0
    changed_from = _keep_changed(arrays, own_count)
    is_warm = fields.created == fields.written
    is_reset = False
    if had_state and own_count == 0:
        is_initial = is_warm and fields.leader_epoch == 0 and -1 <= fields.complete_count <= 0
        is_reset = is_initial or (was_complete and fields.state_epoch != key.state_epoch)
    context = RecordContext(key_row, offset, at, had_state and fields.leader_epoch != key.leader_epoch, True)
    if was_complete and fields.snapshot_epoch < key.snapshot_epoch:
        _report(findings, counts, key_row, SNAPSHOT_EPOCH_WENT_BACK, offset, key.snapshot_epoch, fields.snapshot_epoch)
    if is_reset:
        _forget(arrays, context)
    _set_fields(key, fields)
    key.flags = SEEN | HAS_STATE | HAS_SNAPSHOT | (flags & ORPHAN_REPORTED)
    if is_reset or not had_state:
        key.passed = fields.start
    else:
        _move_start(arrays, context, own_count)
    own_from = 0
    if fields.start != UNCHANGED:
        _trim(arrays, context, fields.start)
        own_from = _own_from(arrays.own, own_count, fields.start)
    if _merge(arrays, context, 0, key.length, own_from, own_count, True, flags & SEEN == 0):
        _report(findings, counts, key_row, STATE_WENT_BACK, offset, 0, 0)
    kind = KIND_SNAPSHOT
    if is_reset:
        kind = KIND_RESET
    elif not is_warm:
        kind = KIND_COLD_SNAPSHOT
    _state_row(arrays, context, kind, changed_from)


@inlined
def _read_fields(data: U8, position: int, end: int, is_snapshot: bool, fields: Row) -> tuple[int, int]:
    """Read the fields before the batches. Returns (number of batches, where they begin), or (-1, 0) for an unusual
    value.
    """
    if end - position < (SNAPSHOT_BYTES_FIXED if is_snapshot else UPDATE_BYTES_FIXED):
        return -1, 0
    if be16(data, position) != 0:
        return -1, 0
    fields.snapshot_epoch = be32(data, position + 2)
    position += 6
    fields.state_epoch = 0
    fields.created = 0
    fields.written = 0
    if is_snapshot:
        fields.state_epoch = be32(data, position)
        position += 4
    fields.leader_epoch = be32(data, position)
    fields.start = be64(data, position + 4)
    position += 12
    if is_snapshot:
        fields.created = be64(data, position)
        fields.written = be64(data, position + 8)
        position += 16
    count, position = read_uvarint(data, position, end)
    if position < 0 or count < 1 or (count - 1) * STATE_BATCH_BYTES > end - position:
        return -1, 0
    return count - 1, position


@inlined
def _read_tags(data: U8, position: int, end: int, fields: Row) -> bool:
    """Read the tags of the value: none, or only the delivery complete count. False for anything else."""
    fields.complete_count = -1
    tag_count, position = read_uvarint(data, position, end)
    if position < 0:
        return False
    if tag_count == 0:
        return True
    if tag_count != 1 or end - position < 6 or data[position] != 0 or data[position + 1] != 4:
        return False
    fields.complete_count = be32(data, position + 2)
    return True


@inlined
def _read_batches(data: U8, position: int, count: int, own: Rows) -> tuple[int, bool]:
    """Read the record's batches and make them canonical. Returns (their number, whether one of them is not a range of
    offsets), or (-1, False) if one has tags. The bounds were checked together with the count.
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
        if kept > 0 and first <= own[kept - 1].last:
            is_sorted = False
            own[kept].first, own[kept].last, own[kept].rank = first, last, rank
            kept += 1
        else:
            kept = _append(own, kept, first, last, rank)
    if not is_sorted:
        kept = _normalise(own, kept)
    return kept, has_invalid


@inlined
def _has_room(arrays: ColumnarArrays, key: Row, count: int) -> bool:
    """Whether there is room for the most that a record of `count` batches can produce; `ColumnarShareReplay` makes
    it.
    """
    counts = arrays.counts[0]
    pieces = key.length + 4 * count + 2
    if pieces > key.capacity and counts.pool + 2 * pieces <= counts.pool_max:
        _move_region(arrays.pool, key, counts.pool, 2 * pieces)
        counts.pool += 2 * pieces
    return bool(
        pieces <= key.capacity
        and counts.states < counts.states_max
        and counts.changed + 2 * count <= counts.changed_max
        and counts.batches + key.length <= counts.batches_max
        and counts.transitions + 4 * pieces <= counts.transitions_max
        and counts.findings + FINDINGS_PER_RECORD_MAX <= counts.findings_max
        and 2 * count <= counts.own_max
        and 2 * pieces <= counts.merged_max
    )


@borrowing
def _move_region(pool: Rows, key: Row, region: int, capacity: int) -> None:
    """Move the key's batches to a larger region at the end of the pool. The old region is unused until the pool is
    packed.
    """
    _move(pool, key.region + key.head, region, key.length)
    key.region = region
    key.capacity = capacity
    key.head = 0


@borrowing
def pack_pool(columnar: ColumnarArrays, pool: Rows, key_count: int) -> None:
    """Copy every key's region into a new pool, one after another. The new pool must be large enough."""
    end = 0
    for place in range(key_count):
        key = columnar.keys[place]
        source = key.region + key.head
        for row in range(key.length):
            pool[np.uint64(end + row)] = columnar.pool[np.uint64(source + row)]
        key.region = end
        key.head = 0
        end += key.capacity
    columnar.counts[0].pool = end


@borrowing
def open_batches(keys: Rows, pool: Rows, key_count: int, batches: Rows) -> None:
    """The batches of all keys, key by key, as rows of `ColumnarArrays.batches` without an end. `batches` has exactly
    that many rows."""
    to = 0
    for place in range(key_count):
        region = keys[place].region + keys[place].head
        for row in range(region, region + keys[place].length):
            _batch_row(batches[to], place, pool[row], OPEN, 0)
            to += 1


@inlined
def _key_bytes(data: U8, position: int, length: int) -> int:
    """How many bytes of a key identify the share partition: all but the type and trailing bytes; -1 if it is not a
    key.
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
    """Intern the keys of all records from `start` on. Returns the record at which there was no room, or the number of
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
    """Replay the records from `start` on. Returns (why it stopped, at which record).

    DONE: all are replayed. In the other cases the record was not touched. NEED_KEY: its key is new; NEED_ROOM: for
    `needed_batches` of key `needed_key` (see `layouts.COUNTS`); UNUSUAL: the codec must read it.
    """
    data, is_control, batch_index = records.data, records.is_control, records.batch_index
    offsets, timestamps = records.offset, records.timestamp_ms
    key_positions, key_lengths = records.key_position, records.key_length
    value_positions, value_lengths = records.value_position, records.value_length
    counts, fields = arrays.counts[0], arrays.fields[0]
    for record in range(start, len(offsets)):
        if is_control[batch_index[record]]:
            counts.control += 1
            continue
        position = key_positions[record]
        key_length = int(key_lengths[record])
        if key_length < 2:
            return UNUSUAL, record
        if not _is_share_state(data, position):
            counts.unknown_type += 1
            continue
        key_bytes = _key_bytes(data, position, key_length)
        if key_bytes < 0:
            return UNUSUAL, record
        is_snapshot = be16(data, position) == RECORD_SNAPSHOT
        interned = find(table, data, position + 2, key_bytes)
        if interned < 0:
            return NEED_KEY, record
        key = arrays.key_ids[interned]
        offset, at = offsets[record], timestamps[record]
        count = 0
        if value_lengths[record] >= 0:
            position = value_positions[record]
            end = position + value_lengths[record]
            count, position = _read_fields(data, position, end, is_snapshot, fields)
            if count < 0 or not _read_tags(data, position + count * STATE_BATCH_BYTES, end, fields):
                return UNUSUAL, record
        if not _has_room(arrays, arrays.keys[key], count):
            counts.needed_key, counts.needed_batches = key, count
            return NEED_ROOM, record
        if value_lengths[record] < 0:
            counts.tombstones += 1
            if is_snapshot:
                _replay_tombstone(arrays, key, offset, at)
            else:
                _report(arrays.findings, arrays.counts, key, UPDATE_TOMBSTONE, offset, 0, 0)
            continue
        own_count, has_invalid = _read_batches(data, position, count, arrays.own)
        if own_count < 0:
            return UNUSUAL, record
        if has_invalid:
            _report(arrays.findings, arrays.counts, key, INVALID_STATE_BATCH, offset, 0, 0)
        counts.decoded += 1
        if is_snapshot:
            _replay_snapshot(arrays, key, offset, at, own_count)
        else:
            _replay_update(arrays, key, offset, at, own_count)
    return DONE, len(offsets)
