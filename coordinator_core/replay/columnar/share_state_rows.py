"""Columns of the three silver tables of share states, extracted from the rows that the compiled loops wrote."""

from typing import Final, NamedTuple

import numpy as np

from coordinator_core.bytes.log.chunk import I8, I32, I64, BoolArray, empty_columns
from coordinator_core.replay.columnar.share_state_kernels import KIND_TOMBSTONE, OPEN, borrowing, count_of, state_of
from coordinator_core.replay.columnar.share_state_layouts import Rows

RECORD_KINDS: Final = ("SNAPSHOT", "COLD_SNAPSHOT", "UPDATE", "TOMBSTONE", "RESET")
"""By code of `PartitionStateRows.record_kind`."""
TRANSITION_KINDS: Final = (
    "FIRST_SEEN",
    "REDELIVERABLE",
    "RETRIED",
    "ACKNOWLEDGED",
    "ARCHIVED",
    "PASSED",
    "RESET",
    "ARCHIVING",
    "RETURNED",
)
"""By code of `TransitionRows.kind`."""


class StateBatchLists(NamedTuple):
    """A list of state batches for each row: row i has the elements `offsets[i]` to `offsets[i + 1]`, exclusive."""

    offsets: I32
    first_offset: I64
    last_offset: I64
    delivery_state: I8
    delivery_count: I32


class PartitionStateRows(NamedTuple):
    """Rows of silver.share_partition_states, in log order. Times are epoch milliseconds.

    Where `has_...` is false, the columns named by it are null.
    """

    key: I32
    log_offset: I64
    record_kind: I8
    valid_from_ms: I64
    valid_to_ms: I64
    to_log_offset: I64
    has_end: BoolArray
    """False: the row is open; `valid_to_ms` and `to_log_offset` are null."""
    has_state: BoolArray
    """False in a TOMBSTONE: all columns of the state are null, down to `write_time_ms`."""
    snapshot_epoch: I32
    state_epoch: I32
    leader_epoch: I32
    start_offset: I64
    effective_start_offset: I64
    delivery_complete_count: I32
    has_delivery_complete_count: BoolArray
    create_time_ms: I64
    has_create_time: BoolArray
    write_time_ms: I64
    has_write_time: BoolArray
    batch_count: I32
    available_count: I64
    acknowledged_count: I64
    archiving_count: I64
    archived_count: I64
    is_complete: BoolArray
    changed_batches: StateBatchLists


class StateBatchRows(NamedTuple):
    """Rows of silver.share_state_batches, in the order in which they ended."""

    key: I32
    first_offset: I64
    last_offset: I64
    """Inclusive."""
    delivery_state: I8
    delivery_count: I32
    from_log_offset: I64
    valid_from_ms: I64
    to_log_offset: I64
    valid_to_ms: I64
    has_end: BoolArray
    is_complete: BoolArray


class TransitionRows(NamedTuple):
    """Rows of silver.share_batch_transitions, in log order."""

    key: I32
    log_offset: I64
    at_ms: I64
    first_offset: I64
    last_offset: I64
    """Inclusive."""
    has_from: BoolArray
    from_state: I8
    from_delivery_count: I32
    has_to: BoolArray
    to_state: I8
    to_delivery_count: I32
    kind: I8
    leader_changed: BoolArray


def state_rows(states: Rows, places: I64, changed: Rows) -> PartitionStateRows:
    """The columns of some STATE rows, whose changed batches are in `changed`."""
    counts = states["changed_count"][places]
    lists = empty_columns(StateBatchLists, int(counts.sum()))._replace(offsets=np.zeros(len(places) + 1, np.int32))
    np.cumsum(counts, out=lists.offsets[1:])
    columns = empty_columns(PartitionStateRows, len(places), changed_batches=lists)
    _cut_states(states, places, changed, columns)
    return columns


def batch_rows(rows: Rows) -> StateBatchRows:
    columns = empty_columns(StateBatchRows, len(rows))
    _cut_batches(rows, columns)
    return columns


def transition_rows(rows: Rows) -> TransitionRows:
    columns = empty_columns(TransitionRows, len(rows))
    _cut_transitions(rows, columns)
    return columns


@borrowing
def _cut_states(states: Rows, places: I64, changed: Rows, to: PartitionStateRows) -> None:
    lists = to.changed_batches
    for i in range(len(places)):
        row = states[places[i]]
        to.key[i] = row.key
        to.log_offset[i] = row.offset
        to.record_kind[i] = row.kind
        to.valid_from_ms[i] = row.at
        to.valid_to_ms[i] = row.to_at
        to.to_log_offset[i] = row.to_offset
        to.has_end[i] = row.to_offset != OPEN
        to.has_state[i] = row.kind != KIND_TOMBSTONE
        to.snapshot_epoch[i] = row.snapshot_epoch
        to.state_epoch[i] = row.state_epoch
        to.leader_epoch[i] = row.leader_epoch
        to.start_offset[i] = row.start
        to.effective_start_offset[i] = row.effective_start
        to.delivery_complete_count[i] = row.complete_count
        to.has_delivery_complete_count[i] = row.kind != KIND_TOMBSTONE and row.complete_count != -1
        to.create_time_ms[i] = row.created
        to.has_create_time[i] = row.created > 0
        to.write_time_ms[i] = row.written
        to.has_write_time[i] = row.written > 0
        to.batch_count[i] = row.batch_count
        to.available_count[i] = row.available
        to.acknowledged_count[i] = row.acknowledged
        to.archiving_count[i] = row.archiving
        to.archived_count[i] = row.archived
        to.is_complete[i] = row.is_complete != 0
        out = lists.offsets[i]
        for place in range(row.changed, row.changed + row.changed_count):
            batch = changed[place]
            lists.first_offset[out] = batch.first
            lists.last_offset[out] = batch.last
            lists.delivery_state[out] = state_of(batch.rank)
            lists.delivery_count[out] = count_of(batch.rank)
            out += 1


@borrowing
def _cut_batches(rows: Rows, to: StateBatchRows) -> None:
    for i in range(len(rows)):
        row = rows[i]
        to.key[i] = row.key
        to.first_offset[i] = row.first
        to.last_offset[i] = row.last
        to.delivery_state[i] = row.delivery_state
        to.delivery_count[i] = row.delivery_count
        to.from_log_offset[i] = row.from_offset
        to.valid_from_ms[i] = row.from_at
        to.to_log_offset[i] = row.to_offset
        to.valid_to_ms[i] = row.to_at
        to.has_end[i] = row.to_offset != OPEN
        to.is_complete[i] = row.is_complete


@borrowing
def _cut_transitions(rows: Rows, to: TransitionRows) -> None:
    for i in range(len(rows)):
        row = rows[i]
        to.key[i] = row.key
        to.log_offset[i] = row.offset
        to.at_ms[i] = row.at
        to.first_offset[i] = row.first
        to.last_offset[i] = row.last
        to.has_from[i] = row.has_from
        to.from_state[i] = row.from_state
        to.from_delivery_count[i] = row.from_count
        to.has_to[i] = row.has_to
        to.to_state[i] = row.to_state
        to.to_delivery_count[i] = row.to_count
        to.kind[i] = row.kind
        to.leader_changed[i] = row.leader_changed


def ranges(starts: I64, lengths: I64) -> I64:
    """The numbers of all ranges `start .. start + length`, concatenated."""
    total = int(lengths.sum())
    shifts = starts - (np.cumsum(lengths) - lengths)
    numbers: I64 = np.arange(total, dtype=np.int64) + np.repeat(shifts, lengths)
    return numbers
