"""What speaks for one cause or another of a hand-back or an archive, for each transition of a share partition.

The record itself says how an offset range stands now, never why. What is known besides:

* the other ranges of the same record: one record is one operation (WriteShareGroupState), so ranges handed back beside
  ranges acknowledged or rejected were released by the same request of one member;
* time: an acquisition lock runs `share.record.lock.duration.ms`, so a hand-back sooner than that after the range was
  last free is no lock time-out, and one just so long after it hardly anything else;
* members: nobody can release or reject a record in an empty group, and a session does not close while its member
  stays;
* the leader: what was acquired when a share partition was loaded anew is forgotten (SharePartition.maybeInitialize).
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from coordinator_core.inference.configs import (
    DELIVERY_COUNT_LIMIT,
    RECORD_LOCK_DURATION,
    SHARE_SESSION_TIMEOUT,
    Configs,
    KnownNumbers,
)
from coordinator_core.inference.settings import InferenceSettings
from coordinator_core.inference.share_log import (
    ACKNOWLEDGED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    NONE,
    GroupStays,
    ShareLog,
    ShareMembers,
    ShareTransitions,
)
from coordinator_core.log.chunk import I64, BoolArray
from coordinator_core.log.fast import compiled
from coordinator_core.share_state.lane import RECORD_KINDS, TRANSITION_KINDS

FIRST_SEEN: Final = TRANSITION_KINDS.index("FIRST_SEEN")
PASSED: Final = TRANSITION_KINDS.index("PASSED")
RESET: Final = TRANSITION_KINDS.index("RESET")
_UPDATE: Final = RECORD_KINDS.index("UPDATE")

DELIVERY_COUNT_LIMIT_MIN: Final = 2
"""group.share.min.delivery.count.limit cannot be set lower, so no limit acts on a first delivery."""
LAST_TRIES_MIN: Final = 3
"""So many offsets must have ended alike before it counts as the limit."""
TIMER_SLACK_MS: Final = 250
"""A lock ends at most so long after its time: the timer's ticks, and the write (SystemTimerReaper, 1 to 200 ms)."""
CLOCK_SLACK_MS: Final = 50
"""Timestamps of two brokers may be so far apart where their order decides."""
CLOSE_MS: Final = 2_000
"""A session which closes with its member hands back within this time of the member's record."""
OFFSET_COUNT_MAX: Final = 2**40
"""Ranges are taken to be no longer where they are summed up: no partition has more, and sums cannot wrap."""


@dataclass(frozen=True, slots=True)
class Records:
    """What the records of the transitions say as a whole; one element a transition."""

    is_update: BoolArray
    """A ShareUpdate. A snapshot may sum up what other records said that nobody captured."""
    has_acknowledged: BoolArray
    """Some range became ACKNOWLEDGED."""
    has_rejected: BoolArray
    """Some range became ARCHIVED below what the log tells of the delivery limit."""
    may_have_rejected: BoolArray
    """The same below the limit that is assumed, where the log does not tell."""
    has_returned: BoolArray
    """Some range became AVAILABLE."""
    is_single_offset: BoolArray
    """The record tells of one offset only."""

    @property
    def is_request(self) -> BoolArray:
        """Only a member's acknowledgement acknowledges or rejects."""
        return self.has_acknowledged | self.has_rejected


@dataclass(frozen=True, slots=True)
class Evidence:
    """One element a transition, in the order of `ShareLog.transitions`."""

    limit: KnownNumbers
    """The delivery limit in force."""
    is_below_limit: BoolArray
    is_limit_shown: BoolArray
    """Where the delivery count is below the limit: something shows it, be it that the group handed back as often."""
    records: Records
    previous: I64
    """The newest transition which had made some of the range AVAILABLE; -1: none is known."""
    was_released: BoolArray
    """All of the range had been handed back by requests, so a client has seen these records."""
    leader_changed: BoolArray
    """The share partition was loaded by another leader since; for a range without a batch, while it was a hole."""
    lost_to: I64
    """Last offset of the range that was such a hole; less than its first where none is."""
    is_lock_timeout: BoolArray
    """Handed back when a lock that began at the last known moment would end."""
    is_too_soon_for_lock: BoolArray
    """No lock that began after the last known moment can have ended yet."""
    is_group_empty: BoolArray
    """The last member had left, not long before."""
    is_settled: BoolArray
    """There were members, and none left before a session that closed then would have expired."""
    is_session_known: BoolArray
    """The log tells the session time-out which that goes by; else it is the setting."""

    @classmethod
    def of(cls, log: ShareLog, configs: Configs, members: ShareMembers, settings: InferenceSettings) -> Self:
        """Gather all of it."""
        changes, states, row = log.transitions, log.states, log.state_of_transition
        group, at_ms = log.keys.group[states.key[row]], states.at_ms[row]
        limit = configs.numbers(DELIVERY_COUNT_LIMIT, log.keys.group_ids, group, at_ms, settings.delivery_count_limit)
        highest = _highest_returned(log, group)
        limit = _corrected(log, limit, group, highest)
        lock = configs.numbers(RECORD_LOCK_DURATION, log.keys.group_ids, group, at_ms, settings.record_lock_duration_ms)
        session_ms = settings.modern_session_timeout_ms
        session = configs.numbers(SHARE_SESSION_TIMEOUT, log.keys.group_ids, group, at_ms, session_ms)
        is_below_limit = changes.to_delivery_count < np.maximum(limit.values, DELIVERY_COUNT_LIMIT_MIN)
        surely_below = is_below_limit & (limit.is_known | (changes.to_delivery_count < DELIVERY_COUNT_LIMIT_MIN))
        records = _records(log, surely_below, is_below_limit)
        is_released = (changes.to_state == AVAILABLE) & records.is_request & records.is_update
        previous, was_released = _previous(log, is_released)
        changed_row = _reloads(log)
        leader_changed, lost_to = _reloaded(log, previous, changed_row)
        waited_ms = at_ms - _last_moment(log, previous)
        is_group_empty, is_settled = _membership(log, group, at_ms, members, session.values)
        return cls(
            limit=limit,
            is_below_limit=is_below_limit,
            is_limit_shown=limit.is_known | (changes.to_delivery_count <= np.maximum(highest, 1)),
            records=records,
            previous=previous,
            was_released=was_released,
            leader_changed=leader_changed,
            lost_to=lost_to,
            is_lock_timeout=_is_lock_timeout(log, previous, lock.values),
            is_too_soon_for_lock=lock.is_known & (waited_ms < lock.values - CLOCK_SLACK_MS),
            is_group_empty=is_group_empty,
            is_settled=is_settled,
            is_session_known=session.is_known,
        )


def _highest_returned(log: ShareLog, group: I64) -> I64:
    """The highest delivery count at which each transition's group ever handed back: the limit lies above it."""
    changes = log.transitions
    highest = np.zeros(len(log.keys.group_ids), np.int64)
    is_returned = changes.to_state == AVAILABLE
    np.maximum.at(highest, group[is_returned], changes.to_delivery_count[is_returned])
    counts: I64 = highest[group]
    return counts


def _corrected(log: ShareLog, limit: KnownNumbers, group: I64, highest: I64) -> KnownNumbers:
    """The limit, where no log tells it and what the group did says that it is another than the default.

    It lies above what was ever handed back. And where all that had come back most often was archived at the very next
    delivery, `LAST_TRIES_MIN` times or more and each offset in a record of its own, that was the limit: so brokers give
    out what is at its last try (SharePartition, since 4.3), while rejects go with the rest of a fetch.
    """
    changes, row, size = log.transitions, log.state_of_transition, len(log.keys.group_ids)
    tells = (changes.to_state != NONE) & (changes.kind != FIRST_SEEN)
    is_alone = np.bincount(row[tells], offset_counts(changes)[tells], len(log.states))[row] == 1
    is_try = tells & (changes.from_state == AVAILABLE) & (changes.from_delivery_count == highest)
    is_last = is_try & is_alone & (changes.to_state == ARCHIVED) & (changes.to_delivery_count == highest + 1)
    tries, last_tries = np.bincount(group[is_try], minlength=size), np.bincount(group[is_last], minlength=size)
    ends_there = ((tries == last_tries) & (last_tries >= LAST_TRIES_MIN))[group] & (highest >= DELIVERY_COUNT_LIMIT_MIN)
    assumed = np.where(ends_there, highest + 1, np.maximum(limit.values, highest + 1))
    return KnownNumbers(np.where(limit.is_known, limit.values, assumed), limit.is_known)


def offset_counts(changes: ShareTransitions) -> I64:
    """Offsets of each range, so bounded that sums of them are exact."""
    length = changes.last_offset - changes.first_offset + 1
    counts: I64 = np.where((length > 0) & (length < OFFSET_COUNT_MAX), length, OFFSET_COUNT_MAX)
    return counts


def _records(log: ShareLog, surely_below: BoolArray, is_below_limit: BoolArray) -> Records:
    changes, row = log.transitions, log.state_of_transition
    size = len(log.states)

    def has(is_one: BoolArray) -> BoolArray:
        found = np.zeros(size, np.bool_)
        found[row[is_one]] = True
        return found[row]

    tells = (changes.to_state != NONE) & (changes.kind != FIRST_SEEN)
    is_archived = tells & np.isin(changes.to_state, (ARCHIVED, ARCHIVING))
    offset_count = np.bincount(row[tells], offset_counts(changes)[tells].astype(np.float64), size)
    return Records(
        is_update=log.states.record_kind[row] == _UPDATE,
        has_acknowledged=has(tells & (changes.to_state == ACKNOWLEDGED)),
        has_rejected=has(is_archived & surely_below),
        may_have_rejected=has(is_archived & is_below_limit),
        has_returned=has(tells & (changes.to_state == AVAILABLE)),
        is_single_offset=offset_count[row] == 1,
    )


def _previous(log: ShareLog, is_released: BoolArray) -> tuple[I64, BoolArray]:
    changes = log.transitions
    previous = np.full(len(changes), -1, np.int64)
    was_released = np.zeros(len(changes), np.bool_)
    key = log.states.key[log.state_of_transition]
    is_available = changes.to_state == AVAILABLE
    _trace_available(key, changes.first_offset, changes.last_offset, is_available, is_released, previous, was_released)
    return previous, was_released


@compiled
def _trace_available(
    key: I64,
    first_offset: I64,
    last_offset: I64,
    is_available: BoolArray,
    is_released: BoolArray,
    previous: I64,
    was_released: BoolArray,
) -> None:
    """For each transition, the newest of those which made a part of its range AVAILABLE, and whether all of them are
    `is_released` and leave no part out. Keeps the AVAILABLE ranges of one share partition, sorted and disjoint."""
    pieces = np.empty((64, 3), np.int64)
    count = 0
    for row in range(len(key)):
        if row == 0 or key[row] != key[row - 1]:
            count = 0
        first, last = first_offset[row], last_offset[row]
        low, high = 0, count
        while low < high:
            middle = (low + high) >> 1
            if pieces[middle, 1] < first:
                low = middle + 1
            else:
                high = middle
        end = low
        is_all_released = True
        next_offset = first
        while end < count and pieces[end, 0] <= last:
            previous[row] = max(previous[row], pieces[end, 2])
            is_all_released = is_all_released and is_released[pieces[end, 2]] and pieces[end, 0] <= next_offset
            next_offset = pieces[end, 1] + 1
            end += 1
        was_released[row] = end > low and is_all_released and pieces[end - 1, 1] >= last
        if end == low and not is_available[row]:
            continue
        if count + 2 > len(pieces):
            larger = np.empty((2 * len(pieces), 3), np.int64)
            larger[:count] = pieces[:count]
            pieces = larger
        left_first, left_row = first, -1
        right_last, right_row = last, -1
        if end > low and pieces[low, 0] < first:
            left_first, left_row = pieces[low, 0], pieces[low, 2]
        if end > low and pieces[end - 1, 1] > last:
            right_last, right_row = pieces[end - 1, 1], pieces[end - 1, 2]
        kept = (1 if left_row >= 0 else 0) + (1 if is_available[row] else 0) + (1 if right_row >= 0 else 0)
        shift = kept - (end - low)
        if shift > 0:
            for piece in range(count - 1, end - 1, -1):
                for column in range(3):
                    pieces[piece + shift, column] = pieces[piece, column]
        elif shift < 0:
            for piece in range(end, count):
                for column in range(3):
                    pieces[piece + shift, column] = pieces[piece, column]
        count += shift
        if left_row >= 0:
            pieces[low, 0] = left_first
            pieces[low, 1] = first - 1
            pieces[low, 2] = left_row
            low += 1
        if is_available[row]:
            pieces[low, 0] = first
            pieces[low, 1] = last
            pieces[low, 2] = row
            low += 1
        if right_row >= 0:
            pieces[low, 0] = last + 1
            pieces[low, 1] = right_last
            pieces[low, 2] = right_row


def _reloads(log: ShareLog) -> I64:
    """For each state, the newest one up to it whose record brought another leader epoch to the same state; -1: none."""
    states = log.states
    begins = states.begins()
    changed = np.zeros(len(states), np.bool_)
    changed[1:] = ~begins[1:] & (states.leader_epoch[1:] != states.leader_epoch[:-1])
    rows = np.arange(len(states))
    newest = np.maximum.accumulate(np.where(changed, rows, -1)) if len(states) else rows
    began = np.maximum.accumulate(np.where(begins, rows, 0)) if len(states) else rows
    return np.where(newest >= began, newest, -1)


def _reloaded(log: ShareLog, previous: I64, changed_row: I64) -> tuple[BoolArray, I64]:
    """`Evidence.leader_changed` and `Evidence.lost_to`.

    A range without a batch below the last one persisted had been fetched before (or is a gap in the log), so a load by
    another leader makes it be delivered from count 1 again (row L of the inference rules).
    """
    changes, states, row = log.transitions, log.states, log.state_of_transition
    reload = changed_row[row]
    has_previous = previous >= 0
    since = has_previous & (reload > row[previous])
    # a hole is known to be one only where a snapshot has told all batches
    is_hole = ~has_previous & (changes.from_state == NONE) & (changes.kind != FIRST_SEEN) & (reload >= 0)
    is_hole &= states.is_complete[reload] & (changes.to_state != NONE)
    window_last = _last_persisted(log)[reload]
    lost_to: I64 = np.where(is_hole, np.minimum(changes.last_offset, window_last), changes.first_offset - 1)
    return since | (lost_to >= changes.first_offset), lost_to


def _last_persisted(log: ShareLog) -> I64:
    """For each state, the last offset of any batch that the records before it told of, since the state began."""
    changes = log.transitions
    last = np.full(len(log.states), -1, np.int64)
    tells = changes.to_state != NONE
    np.maximum.at(last, log.state_of_transition[tells], changes.last_offset[tells])
    before = np.full(len(last), -1, np.int64)
    _running_last(log.states.begins(), last, before)
    return before


@compiled
def _running_last(begins: BoolArray, last: I64, before: I64) -> None:
    """The maximum of `last` over the rows before each, back to where its state begins."""
    newest = np.int64(-1)
    for row in range(len(last)):
        if begins[row]:
            newest = np.int64(-1)
        before[row] = newest
        newest = max(newest, last[row])


def _last_moment(log: ShareLog, previous: I64) -> I64:
    """The latest time (ms) known to lie before the acquisition that ended here: when the range was handed back before,
    else when the state began."""
    states, row = log.states, log.state_of_transition
    rows = np.arange(len(states))
    began = np.maximum.accumulate(np.where(states.begins(), rows, 0)) if len(states) else rows
    moment: I64 = np.where(previous >= 0, states.at_ms[row[previous]], states.at_ms[began[row]])
    return moment


def _is_lock_timeout(log: ShareLog, previous: I64, lock_ms: I64) -> BoolArray:
    """Just a lock's duration after the range was handed back before, or after the record before this one (an
    acknowledgement goes with the fetch that acquires more)."""
    states, row = log.states, log.state_of_transition
    has_before = ~states.begins()[row]
    after_record = states.at_ms[row] - states.at_ms[np.maximum(row - 1, 0)]
    after_return = states.at_ms[row] - states.at_ms[row[previous]]

    def fits(waited_ms: I64) -> BoolArray:
        return (waited_ms >= lock_ms) & (waited_ms <= lock_ms + TIMER_SLACK_MS)

    found: BoolArray = np.where(previous >= 0, fits(after_return), has_before & fits(after_record))
    return found


def _membership(
    log: ShareLog, group: I64, at_ms: I64, members: ShareMembers, session_timeout_ms: I64
) -> tuple[BoolArray, BoolArray]:
    """`Evidence.is_group_empty` and `Evidence.is_settled`."""
    is_empty = np.zeros(len(group), np.bool_)
    is_settled = np.zeros(len(group), np.bool_)
    observed_ms = int(log.states.at_ms.max(initial=0))
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(len(log.keys.group_ids) + 1))
    for code, group_id in enumerate(log.keys.group_ids):
        rows = order[bounds[code] : bounds[code + 1]]
        stays = members.get(group_id)
        if stays is None or not len(rows):
            continue
        times = at_ms[rows]
        present, newest_left_ms, next_left_ms = _presence(stays, times)
        is_empty[rows] = (present == 0) & (times - newest_left_ms <= CLOSE_MS)
        until_ms = times + session_timeout_ms[rows] + CLOSE_MS
        nobody_left = (newest_left_ms < times - CLOSE_MS) & (next_left_ms > until_ms)
        is_settled[rows] = (present > 0) & nobody_left & (until_ms <= observed_ms)
    return is_empty, is_settled


def _presence(stays: GroupStays, at_ms: I64) -> tuple[I64, I64, I64]:
    """At each time: how many members there were, when the last one before left, and when the next one did."""
    joined, left = np.sort(stays.joined_ms), np.sort(stays.left_ms)
    gone = np.searchsorted(left, at_ms, side="right")
    present = np.searchsorted(joined, at_ms, side="right") - gone
    bounded = np.concatenate(([np.iinfo(np.int64).min // 2], left, [np.iinfo(np.int64).max]))
    return present, bounded[gone], bounded[gone + 1]
