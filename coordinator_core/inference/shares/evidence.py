"""Evidence for the causes of returned and archived ranges, for each transition of a share partition.

The record itself has the current state of an offset range, but no cause. Other evidence is:

* the other ranges of the same record: one record is one operation (WriteShareGroupState), so ranges returned together
  with acknowledged or rejected ranges were released by the same request of one member;
* time: an acquisition lock runs for `share.record.lock.duration.ms`. A range that is returned sooner after it was last
  free had no lock timeout; one returned just that long after it most probably did;
* members: nobody can release or reject a record in an empty group, and a session does not close while its member
  stays;
* the leader: when a share partition is loaded again, its acquisitions are lost (SharePartition.maybeInitialize).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from coordinator_core.bytes.log.chunk import I8, I32, I64, BoolArray
from coordinator_core.bytes.log.kernels import compiled
from coordinator_core.inference.facts.columns import taken
from coordinator_core.inference.facts.configs import (
    DELIVERY_COUNT_LIMIT,
    RECORD_LOCK_DURATION,
    SHARE_SESSION_TIMEOUT,
    Configs,
    KnownNumbers,
)
from coordinator_core.inference.facts.ordering import stable_order
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.shares.share_log import (
    ACKNOWLEDGED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    FIRST_SEEN,
    NONE,
    GroupPast,
    GroupStays,
    ShareLog,
    ShareMembers,
    ShareTransitions,
)
from coordinator_core.inference.shares.share_log import RESET as RESET_RECORD
from coordinator_core.replay.columnar.share_state_rows import RECORD_KINDS, TRANSITION_KINDS

PASSED: Final = TRANSITION_KINDS.index("PASSED")
RESET: Final = TRANSITION_KINDS.index("RESET")
_UPDATE: Final = RECORD_KINDS.index("UPDATE")

DELIVERY_COUNT_LIMIT_MIN: Final = 2
"""group.share.min.delivery.count.limit cannot be lower, so no limit applies to a first delivery."""
LAST_TRIES_MIN: Final = 3
"""How many offsets must have ended at the same count before it is taken for the limit."""
TIMER_SLACK_MS: Final = 250
"""How long after its time a lock may end: the ticks of the timer, and the write (SystemTimerReaper, 1 to 200 ms)."""
CLOCK_SLACK_MS: Final = 50
"""By how much timestamps of two brokers may differ, where their order decides."""
CLOSE_MS: Final = 2_000
"""A session that closes with its member returns its ranges within this time of the member's record."""
NOTHING_SHOWN: Final = GroupPast(0, False)
"""For a group without returned ranges."""
OFFSET_COUNT_MAX: Final = 2**40
"""Range lengths are capped to this for sums: no partition has more offsets, and sums cannot overflow."""


@dataclass(frozen=True, slots=True)
class Records:
    """Properties of the records that contain the transitions; one element for each transition."""

    is_update: BoolArray
    """A ShareUpdate. A snapshot may combine several records that were not captured."""
    has_acknowledged: BoolArray
    """Some range became ACKNOWLEDGED."""
    has_rejected: BoolArray
    """Some range became ARCHIVED below the delivery limit, where the limit is in the log."""
    may_have_rejected: BoolArray
    """Some range became ARCHIVED below the known or assumed delivery limit."""
    has_returned: BoolArray
    """Some range became AVAILABLE."""
    is_single_offset: BoolArray

    @property
    def is_request(self) -> BoolArray:
        """Only a member's acknowledgement acknowledges or rejects."""
        return self.has_acknowledged | self.has_rejected


@dataclass(frozen=True, slots=True)
class Evidence:
    """One element for each transition, in the order of `ShareLog.transitions`."""

    limit: KnownNumbers
    """The delivery limit in force."""
    is_behind_hole: BoolArray
    """Records of the share partition may be missing before this one."""
    is_first_shown: BoolArray
    """By a snapshot that shows what earlier records wrote, at unknown times: they were not captured, or are missing."""
    is_below_limit: BoolArray
    is_limit_shown: BoolArray
    """Where the delivery count is below the limit, whether that is proven: by a known limit, or because the group
    returned ranges with such a count.
    """
    records: Records
    is_released: BoolArray
    """Returned by a request: an update that also acknowledges or rejects."""
    previous: I64
    """The newest transition that had made a part of the range AVAILABLE; -1 if none is known."""
    was_released: BoolArray
    """The whole range had been returned by requests, so a client has seen these records."""
    leader_changed: BoolArray
    """Another leader has loaded the share partition since; for a range without a batch: while it was a hole."""
    lost_to: I64
    """Last offset of the part of the range that was such a hole; less than the first offset if there is none."""
    is_lock_timeout: BoolArray
    """Returned when a lock that began at the last known moment would end."""
    is_too_soon_for_lock: BoolArray
    """No lock that began after the last known moment can have ended yet."""
    is_group_empty: BoolArray
    """The last member had left, not long before."""
    is_settled: BoolArray
    """There were members, and none left before a session that closed then would have expired."""
    is_session_known: BoolArray
    """The session timeout used for that is in the log; else it is the setting."""
    is_alone: BoolArray
    """Returned by a record that is no member's acknowledgement, as far as it shows."""
    alone_since: I64
    """`GroupPast.alone_since` of the group: from there on what is returned alone need not have timed out."""
    until_ms: I64
    """The latest time on which the result for this transition may depend."""

    @classmethod
    def of(
        cls,
        log: ShareLog,
        pasts: Sequence[GroupPast],
        configs: Configs,
        members: ShareMembers,
        settings: InferenceSettings,
    ) -> Self:
        """Collect all evidence. `pasts`: the `group_pasts` of the log."""
        changes, states, row = log.transitions, log.states, log.state_of_transition
        group = log.keys.group[states.key]

        def config(name: str, default: int) -> KnownNumbers:
            """The value in force at each state. Computed by state, because there are fewer states than transitions."""
            return configs.numbers(name, log.keys.group_ids, group, states.at_ms, default)

        is_single_offset = is_single_offset_of(log)
        highest = np.array([past.highest for past in pasts], np.int64)
        limit_of_state = config(DELIVERY_COUNT_LIMIT, settings.delivery_count_limit)
        limit = taken(_corrected(limit_of_state, group, pasts), row)
        # a change after a hole happened at some time since the previous record, under the limit of that time
        is_behind_hole = log.behind_holes()[row]
        limit = KnownNumbers(limit.values, limit.is_known & ~is_behind_hole)
        lock = config(RECORD_LOCK_DURATION, settings.record_lock_duration_ms)
        session = config(SHARE_SESSION_TIMEOUT, settings.modern_session_timeout_ms)
        is_below_limit = changes.to_delivery_count < np.maximum(limit.values, DELIVERY_COUNT_LIMIT_MIN)
        surely_below = is_below_limit & (limit.is_known | (changes.to_delivery_count < DELIVERY_COUNT_LIMIT_MIN))
        records = _records(log, surely_below, is_below_limit, is_single_offset)
        is_released = (changes.to_state == AVAILABLE) & records.is_request & records.is_update
        is_released = np.where(changes.released < 0, is_released, changes.released == 1)
        previous, was_released = _previous(log, is_released)
        changed_row = reloads(log)
        leader_changed, lost_to = _reloaded(log, previous, changed_row)
        is_group_empty, is_settled = _membership(log, group, members, session.values)
        is_too_soon = _is_too_soon(log, previous, lock)
        is_first_shown = (changes.kind == FIRST_SEEN) | (log.unlisted()[row] & ~records.is_update)
        is_alone = (changes.to_state == AVAILABLE) & ~is_first_shown & ~records.is_request
        alone_since = np.array([past.alone_since for past in pasts], np.int64)
        early = np.flatnonzero(is_alone & is_too_soon & is_settled[row] & (changes.released < 0))
        np.minimum.at(alone_since, group[row[early]], changes.log_offset[early])
        return cls(
            limit=limit,
            is_behind_hole=is_behind_hole,
            is_first_shown=is_first_shown,
            is_below_limit=is_below_limit,
            is_limit_shown=limit.is_known | (changes.to_delivery_count <= np.maximum(highest, 1)[group][row]),
            records=records,
            is_released=is_released,
            previous=previous,
            was_released=was_released,
            leader_changed=leader_changed,
            lost_to=lost_to,
            is_lock_timeout=_is_lock_timeout(log, previous, lock.values),
            is_too_soon_for_lock=is_too_soon,
            is_group_empty=is_group_empty[row],
            is_settled=is_settled[row],
            is_session_known=session.is_known[row],
            is_alone=is_alone,
            alone_since=alone_since[group[row]],
            until_ms=(states.at_ms + session.values + CLOSE_MS)[row],
        )


def group_pasts(log: ShareLog, to_log_offset: int | None = None) -> list[GroupPast]:
    """For each group, what all its transitions show about its delivery limit. Tries are counted up to a log offset."""
    changes, row = log.transitions, log.state_of_transition
    group = log.keys.group[log.states.key]
    group_ids = log.keys.group_ids
    befores = [log.past.groups.get(group_id, NOTHING_SHOWN) for group_id in group_ids]
    shown = befores if log.shown is None else [log.shown[group_id] for group_id in group_ids]
    highest = np.array([it.highest for it in shown], np.int64)
    _raise_to(highest, group, row, changes.to_state == AVAILABLE, changes.to_delivery_count)
    came_back = np.flatnonzero((changes.from_state == AVAILABLE) & _is_written(changes) & (changes.released < 0))
    group_of = group[row[came_back]]
    # a delivery at the limit may well be accepted; those that were not show what ends there
    is_try = (changes.from_delivery_count[came_back] == highest[group_of]) & given_up(changes)[came_back]
    tried, group_of = came_back[is_try], group_of[is_try]
    is_last = is_single_offset_of(log)[row[tried]] & given_up(changes)[tried]
    is_last &= changes.to_delivery_count[tried] == highest[group_of] + 1
    is_any = np.ones(len(tried), np.bool_)
    is_counted = is_any if to_log_offset is None else changes.log_offset[tried] < to_log_offset
    highest_before, _, tries_before, last_tries_before, lowest_assumed, alone_since = (
        np.array(befores, np.int64).reshape(-1, len(GroupPast._fields)).T
    )
    is_as_before = highest_before == highest

    def counted(before: I64, chosen: BoolArray) -> I64:
        return np.where(is_as_before, before, 0) + np.bincount(group_of[chosen], minlength=len(befores))

    tries, last_tries = counted(tries_before, is_counted), counted(last_tries_before, is_last & is_counted)
    if log.shown is None:
        all_tries, all_last_tries = counted(tries_before, is_any), counted(last_tries_before, is_last)
        ends_there = (all_tries == all_last_tries) & (all_tries >= LAST_TRIES_MIN)
        ends_there &= highest >= DELIVERY_COUNT_LIMIT_MIN
    else:
        ends_there = np.array([it.ends_there for it in shown], np.bool_)
    columns = (highest, ends_there, tries, last_tries, lowest_assumed, alone_since)
    return list(map(GroupPast._make, zip(*(column.tolist() for column in columns), strict=True)))


@compiled
def _raise_to(highest: I64, group: I64, row: I64, chosen: BoolArray, count: I32) -> None:
    """The highest count of each group's chosen transitions, and at least the value already in `highest`."""
    for index in range(len(row)):
        if chosen[index]:
            code = group[row[index]]
            highest[code] = max(highest[code], count[index])


def _corrected(limit: KnownNumbers, group: I64, pasts: Sequence[GroupPast]) -> KnownNumbers:
    """The limit; where no log has it, what the groups show about it (`GroupPast.assumed_limit`)."""
    shown = np.array([past.highest + 1 for past in pasts], np.int64)[group]
    ends_there = np.array([past.ends_there for past in pasts], np.bool_)[group]
    assumed = np.where(ends_there, shown, np.maximum(limit.values, shown))
    return KnownNumbers(np.where(limit.is_known, limit.values, assumed), limit.is_known)


def _is_written(changes: ShareTransitions) -> BoolArray:
    """Transitions that the record itself made: not ranges that it passed, or that were in this state when first
    seen."""
    is_written: BoolArray = (changes.to_state != NONE) & (changes.kind != FIRST_SEEN)
    return is_written


def given_up(changes: ShareTransitions) -> BoolArray:
    """Ranges that a record gives up, or first shows as given up: ARCHIVED, or ARCHIVING before that. The end of
    ARCHIVING does not count: an earlier record gave the range up."""
    is_up = (changes.to_state == ARCHIVED) | (changes.to_state == ARCHIVING)
    is_new: BoolArray = is_up & (changes.from_state != ARCHIVED) & (changes.from_state != ARCHIVING)
    return is_new


def offset_counts(changes: ShareTransitions) -> I64:
    """Number of offsets of each range, capped so that sums are exact."""
    length = changes.last_offset - changes.first_offset + 1
    counts: I64 = np.where((length > 0) & (length < OFFSET_COUNT_MAX), length, OFFSET_COUNT_MAX)
    return counts


def is_single_offset_of(log: ShareLog) -> BoolArray:
    """For each state, whether its record has one offset only."""
    changes = log.transitions
    found = np.zeros(len(log.states), np.bool_)
    _find_single_offsets(
        log.state_of_transition, _is_written(changes), changes.first_offset, changes.last_offset, found
    )
    return found


@compiled
def _find_single_offsets(
    row: I64, is_written: BoolArray, first_offset: I64, last_offset: I64, found: BoolArray
) -> None:
    """Relies on the transitions of one record being consecutive."""
    newest, range_count = -1, 0
    for index in range(len(row)):
        if is_written[index]:
            range_count = range_count + 1 if row[index] == newest else 1
            newest = row[index]
            found[newest] = range_count == 1 and first_offset[index] == last_offset[index]


def _records(log: ShareLog, surely_below: BoolArray, is_below_limit: BoolArray, is_single_offset: BoolArray) -> Records:
    changes, row = log.transitions, log.state_of_transition
    tells = _is_written(changes)
    is_archived = tells & given_up(changes)
    chosen = (
        tells & (changes.to_state == ACKNOWLEDGED),
        is_archived & surely_below,
        is_archived & is_below_limit,
        tells & (changes.to_state == AVAILABLE),
    )
    has = np.zeros(len(log.states), np.int8)
    for bit, is_one in enumerate(chosen):
        _mark(has, row, is_one, 1 << bit)
    has = has[row]
    acknowledged, rejected, may_have_rejected, returned = ((has & (1 << bit)) != 0 for bit in range(len(chosen)))
    return Records(
        is_update=(log.states.record_kind == _UPDATE)[row],
        has_acknowledged=acknowledged,
        has_rejected=rejected,
        may_have_rejected=may_have_rejected,
        has_returned=returned,
        is_single_offset=is_single_offset[row],
    )


@compiled
def _mark(marks: I8, row: I64, chosen: BoolArray, mark: int) -> None:
    """Set a bit of the states that have a chosen transition."""
    for index in range(len(row)):
        if chosen[index]:
            marks[row[index]] |= mark


def _previous(log: ShareLog, is_released: BoolArray) -> tuple[I64, BoolArray]:
    changes = log.transitions
    previous = np.full(len(changes), -1, np.int64)
    was_released = np.zeros(len(changes), np.bool_)
    key = log.states.key[log.state_of_transition]
    is_available = changes.to_state == AVAILABLE
    trace_available(key, changes.first_offset, changes.last_offset, is_available, is_released, previous, was_released)
    return previous, was_released


@compiled
def _with_pieces(left: I64, left_count: int, pieces: I64, count: int) -> I64:
    """`left` with pieces appended, in a larger array if necessary."""
    if left_count + count > len(left):
        larger = np.empty((2 * (left_count + count), 3), np.int64)
        larger[:left_count] = left[:left_count]
        left = larger
    left[left_count : left_count + count] = pieces[:count]
    return left


@compiled
def trace_available(  # noqa: C901  (one pass over bytes or rows, compiled: calls would cost as much as the work)
    key: I64,
    first_offset: I64,
    last_offset: I64,
    is_available: BoolArray,
    is_released: BoolArray,
    previous: I64,
    was_released: BoolArray,
) -> I64:
    """For each transition, the newest one that made a part of its range AVAILABLE, and whether all of these are
    `is_released` and cover the whole range. Maintains the AVAILABLE ranges of one share partition, sorted and disjoint.

    Returns the ranges that are AVAILABLE at the end: first offset, last offset, row of the transition that made it so.
    """
    pieces = np.empty((64, 3), np.int64)
    left = np.empty((64, 3), np.int64)
    count = left_count = 0
    for row in range(len(key)):
        if row > 0 and key[row] != key[row - 1]:
            left = _with_pieces(left, left_count, pieces, count)
            left_count += count
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
    left = _with_pieces(left, left_count, pieces, count)
    return left[: left_count + count].copy()


def reloads(log: ShareLog) -> I64:
    """For each state, the newest state up to it whose record brought a new leader epoch; -1 if there is none."""
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

    A range without a batch below the last persisted offset had been fetched before (or is a gap in the log), so after a
    load by another leader it is delivered from count 1 again (row L of the inference rules).
    """
    changes, states, row = log.transitions, log.states, log.state_of_transition
    leader_changed = np.zeros(len(changes), np.bool_)
    lost_to = changes.first_offset - 1
    # most logs have hardly any reload
    reloaded = np.flatnonzero((changed_row >= 0)[row]) if np.any(changed_row >= 0) else np.zeros(0, np.int64)
    if not len(reloaded):
        return leader_changed, lost_to
    reload, previous = changed_row[row[reloaded]], previous[reloaded]
    has_previous = previous >= 0
    since = has_previous & (reload > row[previous])
    # a hole is known to be a hole only where a snapshot has listed all batches
    is_hole = ~has_previous & (changes.from_state[reloaded] == NONE) & (changes.kind[reloaded] != FIRST_SEEN)
    is_hole &= states.is_complete[reload] & (changes.to_state[reloaded] != NONE)
    holes = reloaded[is_hole]
    lost_to[holes] = np.minimum(changes.last_offset[holes], last_persisted(log)[reload[is_hole]])
    leader_changed[reloaded] = since
    return leader_changed | (lost_to >= changes.first_offset), lost_to


def last_persisted(log: ShareLog) -> I64:
    """For each state, the last offset of any batch in the records before it, since the state began."""
    last = _last_seen_state(log)
    before = np.full(len(last), -1, np.int64)
    _running_last(log.states.begins(), last, before)
    return before


def last_persisted_with(log: ShareLog) -> I64:
    """`last_persisted`, including the state's own record."""
    return np.maximum(last_persisted(log), _last_seen_state(log))


def _last_seen_state(log: ShareLog) -> I64:
    """For each state, the last offset of any batch in its record."""
    changes = log.transitions
    last = log.states.last_persisted.copy()
    tells = changes.to_state != NONE
    np.maximum.at(last, log.state_of_transition[tells], changes.last_offset[tells])
    return last


@compiled
def _running_last(begins: BoolArray, last: I64, before: I64) -> None:
    """The maximum of `last` over the rows before each, back to where its state begins."""
    newest = np.int64(-1)
    for row in range(len(last)):
        if begins[row]:
            newest = np.int64(-1)
        before[row] = newest
        newest = max(newest, last[row])


def _is_too_soon(log: ShareLog, previous: I64, lock: KnownNumbers) -> BoolArray:
    """Whether no lock can have ended yet that began after the latest time known to lie before the acquisition: when the
    range was returned before, else when the state began. Where earlier records of the state are gone, as pruning
    leaves it, its first one is no beginning."""
    states, row = log.states, log.state_of_transition
    found = np.zeros(len(row), np.bool_)
    if not lock.is_known.any():
        return found
    began = states.began()
    moment = np.where(previous >= 0, states.at_ms[row[previous]], states.at_ms[began][row])
    # a state begins with no start offset, or is reset to one
    is_beginning = (states.start_offset[began] < 0) | (states.record_kind[began] == RESET_RECORD)
    found[:] = lock.is_known[row] & (states.at_ms[row] - moment < lock.values[row] - CLOCK_SLACK_MS)
    found &= (previous >= 0) | is_beginning[row]
    return found


def _is_lock_timeout(log: ShareLog, previous: I64, lock_ms: I64) -> BoolArray:
    """Whether a range was returned one lock duration after it was returned before, or after the previous record (an
    acknowledgement comes with the fetch that acquires more).

    A record may be written a little later than the event: a lock timeout needs no write before the range is acquired
    again (SharePartition.releaseAcquisitionLockOnTimeout). So the next lock may end sooner after the record.
    """
    states, row = log.states, log.state_of_transition

    def fits(waited_ms: I64, lock_ms: I64) -> BoolArray:
        return (waited_ms >= lock_ms - CLOCK_SLACK_MS) & (waited_ms <= lock_ms + TIMER_SLACK_MS)

    after_record = np.diff(states.at_ms, prepend=states.at_ms[:1])
    found: BoolArray = (~states.begins() & fits(after_record, lock_ms))[row]
    returned = np.flatnonzero(previous >= 0)
    state = row[returned]
    after_return = states.at_ms[state] - states.at_ms[row[previous[returned]]]
    found[returned] = fits(after_return, lock_ms[state])
    return found


def _membership(
    log: ShareLog, group: I64, members: ShareMembers, session_timeout_ms: I64
) -> tuple[BoolArray, BoolArray]:
    """`Evidence.is_group_empty` and `Evidence.is_settled`, for each state."""
    at_ms = log.states.at_ms
    is_empty = np.zeros(len(group), np.bool_)
    is_settled = np.zeros(len(group), np.bool_)
    observed_ms = int(at_ms.max(initial=log.past.observed_ms))
    order = stable_order(group, len(log.keys.group_ids), np.arange(len(group)))
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
    """At each time: the number of members, when the last one before left, and when the next one did."""
    joined, left = np.sort(stays.joined_ms), np.sort(stays.left_ms)
    gone = np.searchsorted(left, at_ms, side="right")
    present = np.searchsorted(joined, at_ms, side="right") - gone
    bounded = np.concatenate(([np.iinfo(np.int64).min // 2], left, [np.iinfo(np.int64).max]))
    return present, bounded[gone], bounded[gone + 1]
