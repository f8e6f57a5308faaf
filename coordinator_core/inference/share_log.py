"""What silver holds of the share partitions of one log partition, as columns in log order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from coordinator_core.log.chunk import I8, I32, I64, BoolArray
from coordinator_core.share_state.lane import DELIVERY_STATES, RECORD_KINDS

NONE: Final = -1
"""Stands for a number or state which is null in silver."""

AVAILABLE: Final = DELIVERY_STATES.index("AVAILABLE")
ACKNOWLEDGED: Final = DELIVERY_STATES.index("ACKNOWLEDGED")
ARCHIVING: Final = DELIVERY_STATES.index("ARCHIVING")
ARCHIVED: Final = DELIVERY_STATES.index("ARCHIVED")

_TOMBSTONE: Final = RECORD_KINDS.index("TOMBSTONE")
_RESET: Final = RECORD_KINDS.index("RESET")


@dataclass(frozen=True, slots=True)
class ShareKeys:
    """Share partitions by number."""

    group_ids: Sequence[str]
    """The groups, in order of id."""
    group: I64
    """Index into `group_ids`."""
    topic_ids: Sequence[str]
    topics: Sequence[str | None]
    partition: I64


@dataclass(frozen=True, slots=True)
class ShareStates:
    """silver.share_partition_states by share partition, then log offset."""

    key: I64
    """Index into `ShareKeys`."""
    log_offset: I64
    at_ms: I64
    record_kind: I8
    """Index into `RECORD_KINDS`."""
    leader_epoch: I64
    start_offset: I64
    delivery_complete_count: I64
    terminal_count: I64
    """Offsets seen terminal from the start offset on: acknowledged_count and archived_count."""
    is_complete: BoolArray

    def __len__(self) -> int:
        return len(self.key)

    def begins(self) -> BoolArray:
        """Whether a state begins here with nothing before it: the first record, a reset, after a tombstone."""
        begins = np.ones(len(self), np.bool_)
        begins[1:] = (self.key[1:] != self.key[:-1]) | (self.record_kind[:-1] == _TOMBSTONE)
        found: BoolArray = begins | (self.record_kind == _RESET) | (self.record_kind == _TOMBSTONE)
        return found


@dataclass(frozen=True, slots=True)
class ShareTransitions:
    """silver.share_batch_transitions. States are Kafka's codes, `NONE` where null or none of Kafka's."""

    log_offset: I64
    first_offset: I64
    last_offset: I64
    """Inclusive."""
    from_state: I8
    from_delivery_count: I32
    to_state: I8
    to_delivery_count: I32
    kind: I8
    """Index into `TRANSITION_KINDS`."""

    def __len__(self) -> int:
        return len(self.log_offset)


@dataclass(frozen=True, slots=True)
class ShareLog:
    """States and transitions, sorted by share partition, log offset and first offset (see `sorted_share_log`)."""

    keys: ShareKeys
    states: ShareStates
    transitions: ShareTransitions
    state_of_transition: I64
    """The row of `states` which is of the same record."""


def sorted_share_log(keys: ShareKeys, states: ShareStates, transitions: ShareTransitions) -> ShareLog:
    """The same rows in the order in which inference wants them, whatever order they came in.

    Raises ValueError where a transition is of a record which is not among the states.
    """
    states = _taken(states, _order(states.log_offset))
    states = _taken(states, np.argsort(states.key, kind="stable"))
    # in log order first: a search for neighbour after neighbour is several times as fast as one at random
    transitions = _taken(transitions, _order(transitions.log_offset, transitions.first_offset))
    rows = _rows_of(states.log_offset, transitions.log_offset)
    order = np.argsort(rows, kind="stable")
    return ShareLog(keys, states, _taken(transitions, order), rows[order])


def _order(major: I64, minor: I64 | None = None) -> I64:
    """Sorts by one column, then another. Mostly they are sorted: silver is written in the order of the log."""
    ties = np.zeros(max(len(major) - 1, 0), np.bool_) if minor is None else minor[1:] > minor[:-1]
    if np.all((major[1:] > major[:-1]) | ((major[1:] == major[:-1]) & ties)):
        return np.arange(len(major))
    return np.argsort(major, kind="stable") if minor is None else np.lexsort((minor, major))


Columns = TypeVar("Columns", ShareStates, ShareTransitions)


def _rows_of(log_offsets: I64, wanted: I64) -> I64:
    """Index of each wanted log offset, which is there once."""
    order = np.argsort(log_offsets, kind="stable")
    place = np.searchsorted(log_offsets, wanted, sorter=order)
    if len(wanted) and (not len(order) or place.max() >= len(order) or np.any(log_offsets[order[place]] != wanted)):
        raise ValueError("a transition is of a record which silver.share_partition_states does not have")
    rows: I64 = order[place]
    return rows


def _taken(columns: Columns, order: I64) -> Columns:
    if np.all(order[1:] > order[:-1]):
        return columns
    taken = {name: getattr(columns, name)[order] for name in columns.__slots__}
    return type(columns)(**taken)


@dataclass(frozen=True, slots=True)
class GroupStays:
    """Stretches of membership in one share group, by the time they began. Epoch ms; `left_ms` of who stays is huge."""

    joined_ms: I64
    left_ms: I64


ShareMembers = Mapping[str, GroupStays]
"""By group id. A group of which nothing is known is not in it."""
