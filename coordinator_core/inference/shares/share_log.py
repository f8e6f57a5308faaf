"""Silver rows of the share partitions of one log partition, as columns in log order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeVar

import numpy as np

from coordinator_core.bytes.log.chunk import I8, I32, I64, BoolArray, Columns
from coordinator_core.bytes.log.kernels import compiled
from coordinator_core.inference.facts.columns import taken
from coordinator_core.inference.facts.ordering import is_ascending, stable_order
from coordinator_core.replay.columnar.share_state_columnar import DELIVERY_STATES
from coordinator_core.replay.columnar.share_state_rows import RECORD_KINDS, TRANSITION_KINDS

NONE: Final = -1
"""A number or state that is null in silver."""

AVAILABLE: Final = DELIVERY_STATES.index("AVAILABLE")
ACKNOWLEDGED: Final = DELIVERY_STATES.index("ACKNOWLEDGED")
ARCHIVING: Final = DELIVERY_STATES.index("ARCHIVING")
ARCHIVED: Final = DELIVERY_STATES.index("ARCHIVED")
FIRST_SEEN: Final = TRANSITION_KINDS.index("FIRST_SEEN")

_SNAPSHOTS: Final = tuple(map(RECORD_KINDS.index, ("SNAPSHOT", "COLD_SNAPSHOT")))
TOMBSTONE: Final = RECORD_KINDS.index("TOMBSTONE")
RESET: Final = RECORD_KINDS.index("RESET")


@dataclass(frozen=True, slots=True)
class ShareKeys:
    """Share partitions by number, in the order of group, topic id and partition."""

    group_ids: Sequence[str]
    """The groups, sorted by id."""
    group: I64
    """Index into `group_ids`."""
    topic_ids: Sequence[str]
    topics: Sequence[str | None]
    partition: I64


@dataclass(frozen=True, slots=True)
class ShareStates(Columns):
    """silver.share_partition_states, sorted by share partition, then log offset."""

    key: I64
    """Index into `ShareKeys`."""
    log_offset: I64
    at_ms: I64
    record_kind: I8
    """Index into `RECORD_KINDS`."""
    leader_epoch: I64
    start_offset: I64
    effective_start_offset: I64
    delivery_complete_count: I64
    terminal_count: I64
    """Offsets known to be terminal from the start offset on: acknowledged_count and archived_count."""
    is_complete: BoolArray
    last_persisted: I64
    """In rows kept of the past (`share_past`), the last offset of any batch so far; -1 in all others."""

    def last_listed(self) -> I64:
        """For each state, the last row up to it that lists all batches: a snapshot, or where the state began."""
        lists = self.begins() | np.isin(self.record_kind, _SNAPSHOTS)
        return np.maximum.accumulate(np.where(lists, np.arange(len(self)), 0))

    def first_complete(self) -> BoolArray:
        """Whether a snapshot is behind updates alone. It shows what earlier records wrote that are not in the log."""
        is_first: BoolArray = self.is_complete & ~self.begins()
        is_first[1:] &= ~self.is_complete[:-1]
        return is_first

    def began(self) -> I64:
        """For each state, the row where it began."""
        return np.maximum.accumulate(np.where(self.begins(), np.arange(len(self)), 0))

    def started(self) -> I64:
        """For each state, the newest row up to it that was the first of its state with a start offset; 0 if none."""
        has_start = self.start_offset >= 0
        count = np.cumsum(has_start)
        is_first = has_start & (count - (count - has_start)[self.began()] == 1)
        return np.maximum.accumulate(np.where(is_first, np.arange(len(self)), 0))

    def begins(self) -> BoolArray:
        """Whether a state begins here, with nothing before it: the first record, a reset, or after a tombstone."""
        begins = np.ones(len(self), np.bool_)
        begins[1:] = (self.key[1:] != self.key[:-1]) | (self.record_kind[:-1] == TOMBSTONE)
        found: BoolArray = begins | (self.record_kind == RESET) | (self.record_kind == TOMBSTONE)
        return found


@dataclass(frozen=True, slots=True)
class ShareTransitions(Columns):
    """silver.share_batch_transitions. States are Kafka's codes, `NONE` for null and for unknown codes."""

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
    released: I8
    """In rows kept of the past (`share_past`): 1 if a request had returned the range, else 0; -1 in all others."""


NO_COUNT: Final = 2**31 - 1
"""Higher than any delivery count."""
NO_PLACE: Final = 2**62
"""Behind all log offsets."""


class GroupPast(NamedTuple):
    """What the past of a group shows about its delivery limit."""

    highest: int
    """The highest delivery count at which it ever returned a range."""
    ends_there: bool
    """All ranges returned at that count and then given up were so at the next delivery, in records of their own."""
    tries: int = 0
    """How often a range returned at that count was given up later, before `SharePast.from_log_offset`."""
    last_tries: int = 0
    """How often that was at the next delivery, in a record of its own."""
    lowest_assumed: int = NO_COUNT
    """The lowest delivery count at which a range was archived below a limit that was only assumed; before
    `SharePast.from_log_offset`."""
    alone_since: int = NO_PLACE
    """The log offset at which a member first returned a range with nothing else, sooner than its lock could end."""

    def assumed_limit(self, default: int) -> int:
        """The delivery limit, where no log has it.

        It is above the highest count at which a range was returned. If all ranges returned at that count that were
        given up were so at the very next delivery, `LAST_TRIES_MIN` times or more and each offset in a record of its
        own, that delivery was the limit, whatever else was accepted at it: brokers deliver records one by one at their
        last try (SharePartition, since 4.3), while rejects are stored with the rest of a fetch.
        """
        return self.highest + 1 if self.ends_there else max(default, self.highest + 1)


@dataclass(frozen=True, slots=True)
class SharePast:
    """What lies before the rows of a log: it was judged already, and is not judged again."""

    from_log_offset: int = 0
    """Rows before it are kept of the past, and are only evidence for later ones."""
    observed_ms: int = 0
    """The latest time of any earlier record."""
    groups: Mapping[str, GroupPast] = field(default_factory=dict)
    until_ms: int = -1
    """The latest time on which earlier results depend."""


NO_PAST: Final = SharePast()


@dataclass(frozen=True, slots=True)
class ShareLog:
    """States and transitions, sorted by share partition, log offset and first offset (`sorted_share_log`), or, where
    the order within share partitions is not needed, by log offset and first offset (`ordered_share_log`)."""

    keys: ShareKeys
    states: ShareStates
    transitions: ShareTransitions
    state_of_transition: I64
    """The row in `states` of the same record."""
    past: SharePast = NO_PAST
    shown: Mapping[str, GroupPast] | None = None
    """What the whole log shows about each group's delivery limit, where these rows are only a slice of it."""
    holes: tuple[int, ...] = ()
    """Log offsets at which unread parts begin, for whatever reason; ascending."""

    def behind_holes(self) -> BoolArray:
        """For each state, whether records of the share partition may be missing before it, so that the time of the
        change is unknown.
        """
        before = np.searchsorted(np.array(self.holes, np.int64), self.states.log_offset, side="right")
        behind = np.zeros(len(self.states), np.bool_)
        behind[1:] = (before[1:] > before[:-1]) & ~self.states.begins()[1:]
        return behind

    def unlisted(self) -> BoolArray:
        """For each state, whether records may be missing between it and the last snapshot before it, which listed all
        batches: they may have changed some that no later record has."""
        rows = np.arange(len(self.states))
        holes = np.maximum.accumulate(np.where(self.behind_holes(), rows, -1))
        found = np.zeros(len(rows), np.bool_)
        found[1:] = (holes[1:] > self.states.last_listed()[:-1]) & ~self.states.begins()[1:]
        return found

    def of_transitions(self, rows: I64) -> "ShareLog":
        """The same states with some of the transitions."""
        return replace(
            self, transitions=taken(self.transitions, rows), state_of_transition=self.state_of_transition[rows]
        )


def of_groups(log: ShareLog, codes: Sequence[int]) -> ShareLog:
    """The states and transitions of some groups, given by their index into `ShareKeys.group_ids`; the keys stay."""
    is_state = np.isin(log.keys.group[log.states.key], codes)
    rows = np.flatnonzero(is_state[log.state_of_transition])
    places = np.cumsum(is_state) - 1
    return replace(
        log,
        states=taken(log.states, np.flatnonzero(is_state)),
        transitions=taken(log.transitions, rows),
        state_of_transition=places[log.state_of_transition[rows]],
    )


def sorted_share_log(
    keys: ShareKeys, states: ShareStates, transitions: ShareTransitions, past: SharePast = NO_PAST
) -> ShareLog:
    """The rows in the order that inference needs, from any order. What a snapshot is the first to show has the kind
    FIRST_SEEN also behind updates.

    Raises ValueError if a transition belongs to a record that is not among the states.
    """
    log = ordered_share_log(keys, states, transitions, past)
    states, transitions, record = log.states, log.transitions, log.state_of_transition
    key_count = len(keys.partition)
    order = stable_order(states.key, key_count, np.arange(len(states)))
    row_of_record = np.empty(len(states), np.int64)
    row_of_record[order] = np.arange(len(states))
    transition_order = stable_order(states.key[record], key_count, np.arange(len(transitions)))
    rows = row_of_record[record[transition_order]]
    states, transitions = taken(states, order), taken(transitions, transition_order)
    is_first = states.first_complete()
    if is_first.any():
        is_shown = is_first[rows] & (transitions.from_state == NONE) & (transitions.to_state != NONE)
        transitions = replace(transitions, kind=np.where(is_shown, np.int8(FIRST_SEEN), transitions.kind))
    return ShareLog(keys, states, transitions, rows, past)


def ordered_share_log(
    keys: ShareKeys, states: ShareStates, transitions: ShareTransitions, past: SharePast = NO_PAST
) -> ShareLog:
    """The rows in log order, with the share partitions interleaved.

    Raises ValueError if a transition belongs to a record that is not among the states.
    """
    states = _taken(states, _log_order(states.log_offset))
    transitions = _taken(transitions, _log_order(transitions.log_offset, transitions.first_offset))
    # both are in log order: a single pass finds the record of each transition
    record = np.empty(len(transitions), np.int64)
    if not _find_records(states.log_offset, transitions.log_offset, record):
        raise ValueError("a transition is of a record which silver.share_partition_states does not have")
    return ShareLog(keys, states, transitions, record, past)


def _log_order(log_offset: I64, first_offset: I64 | None = None) -> I64 | None:
    """The order by log offset; None if the rows have it already, as silver is written."""
    if first_offset is None:
        return None if is_ascending(log_offset) else np.argsort(log_offset, kind="stable")
    if _are_in_order(log_offset, first_offset):
        return None
    return np.lexsort((first_offset, log_offset))


Kind = TypeVar("Kind", ShareStates, ShareTransitions)


def _taken(columns: Kind, order: I64 | None) -> Kind:
    return columns if order is None else taken(columns, order)


@compiled
def _are_in_order(major: I64, minor: I64) -> bool:
    for index in range(1, len(major)):
        before = index - 1
        if major[index] < major[before] or (major[index] == major[before] and minor[index] <= minor[before]):
            return False
    return True


@compiled
def _find_records(log_offset: I64, wanted: I64, found: I64) -> bool:
    """The index of each wanted log offset among those of the states, both ascending. Returns False if one is
    missing."""
    place = 0
    for index in range(len(wanted)):
        while place < len(log_offset) and log_offset[place] < wanted[index]:
            place += 1
        if place == len(log_offset) or log_offset[place] != wanted[index]:
            return False
        found[index] = place
    return True


@dataclass(frozen=True, slots=True)
class GroupStays:
    """Membership intervals in one share group, sorted by beginning. Epoch ms; `left_ms` is huge for current members."""

    joined_ms: I64
    left_ms: I64


ShareMembers = Mapping[str, GroupStays]
"""By group id. Groups without known members are missing."""
