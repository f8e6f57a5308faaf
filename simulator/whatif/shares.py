"""Records of share groups under another delivery limit or lock duration, from their state changes alone.

The log has each time a range was returned (AVAILABLE, with its delivery count), acknowledged or archived. It does not
have when a range was delivered, why it was returned, or how a consumer would have handled one more delivery. So a lower
limit is answered with certainty, a higher one and another lock duration with bounds.

Both settings may change over time: the value in force at each change is the one in the metadata log (`InForce`),
otherwise the given one. The limit applies when a range is returned, the lock duration when it is delivered.

Sources: SharePartition (a returned range with `deliveryCount >= group.share.delivery.count.limit` is archived instead),
its acquisition lock timeout, and ShareGroupConfigProvider (the group's own config overrides the brokers').
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.confidence import CERTAIN, GUESS, LIKELY
from coordinator_core.errors import WhatIfError
from coordinator_core.inference.facts.configs import DELIVERY_COUNT_LIMIT, RECORD_LOCK_DURATION, Configs, KnownNumbers
from coordinator_core.inference.shares.evidence import CLOCK_SLACK_MS
from coordinator_core.text import counted
from schemas.group_types import GroupType
from simulator.whatif.settings import LOCK_DURATIONS_MS, SHARE_FIELDS, Changes, Recorded
from simulator.whatif.verdicts import RECORDS, WhatIfRow

AVAILABLE: Final = "AVAILABLE"
ACKNOWLEDGED: Final = "ACKNOWLEDGED"
ARCHIVED: Final = "ARCHIVED"
GIVEN_UP: Final = frozenset({"ARCHIVING", ARCHIVED})
"""ARCHIVING: the broker copies the record to a dead letter topic before it is ARCHIVED."""

RECORD_LOCK_COUNT: Final = "share.partition.max.record.locks"
LAST_MS: Final = 2**62
"""Later than any time."""
LOCK_SLACK_MS: Final = 10_000
"""A range returned this long after the lock could first expire may still have been returned by the lock: delivery waits
for the next poll.
"""


class Transition(NamedTuple):
    """A row of silver.share_batch_transitions. Offsets are inclusive, times epoch ms."""

    topic_id: str
    topic: str | None
    partition: int
    log_offset: int
    first_offset: int
    last_offset: int
    at: int
    to_state: str | None
    to_delivery_count: int | None
    leader_changed: bool
    kind: str


class RecordVerdict(StrEnum):
    """The outcome for a range of records."""

    ARCHIVED_EARLIER = "ARCHIVED_EARLIER"
    """It was archived anyway, and would have been at an earlier return, with fewer deliveries."""
    ARCHIVED_INSTEAD = "ARCHIVED_INSTEAD"
    """It was acknowledged at a later delivery, or was still available: it would have been archived before."""
    MORE_TRIES = "MORE_TRIES"
    """It was archived at the limit and might have had more deliveries, whose outcome is unknown."""
    KEPT = "KEPT"
    """The same change would have happened at the same time."""
    MOVED = "MOVED"
    """The lock expired, and would have expired at another time."""
    CANNOT_TELL = "CANNOT_TELL"


SHARE_ASSUMPTIONS: Final[Mapping[str, str]] = {
    "SAME_DELIVERIES": "The deliveries up to then, and how they ended, would have been the same.",
    "LIMIT_NOT_REJECTED": "It was archived because of the limit: a rejected last delivery looks the same in the log.",
    "OUTCOME_UNKNOWN": "How a further delivery would have ended, the log cannot tell.",
    "LOCK_BY_TIMING": "A hand-back one lock duration or little more after the one before is one of the lock.",
    "DELIVERY_NOT_IN_LOG": "The log does not show when records were delivered, so not for how long they were acquired.",
    "IN_FLIGHT_NOT_IN_LOG": "The log does not tell how many records were acquired, only what came of them.",
    "LOCKS_RECORDED": "share.partition.max.record.locks, where the log does not show it, was as given, or 2000.",
    "LIMIT_RECORDED": "The delivery limit, where the log does not show it, was as given, or Kafka's default of 5.",
    "LOCK_RECORDED": "The lock duration, where the log does not show it, was as given, or Kafka's default of 30000.",
}
"""Name of an assumption -> its text."""


class Acquired(NamedTuple):
    """The value of the setting in question when a change was written."""

    value: int
    before: int
    """For a limit the same value; for a lock duration, the one in force when the longest lock that may have expired was
    taken."""
    is_known: bool
    """The log has both; otherwise the given value, or the default, is assumed."""


@dataclass(frozen=True, slots=True)
class InForce:
    """The value in force for a group over time: from its configs, otherwise the given one."""

    group_id: str
    recorded: Recorded
    configs: Configs = field(default_factory=Configs)

    def values(self, name: str, at_ms: I64, default: int) -> list[Acquired]:
        """The value of a setting at each time."""
        found = self._numbers(name, at_ms, default)
        return list(map(Acquired, found.values.tolist(), found.values.tolist(), found.is_known.tolist()))

    def locks(self, at_ms: I64) -> list[Acquired]:
        """The lock duration at each time, in ms."""
        default_ms = self.recorded.record_lock_duration_ms
        found = self._numbers(RECORD_LOCK_DURATION, at_ms, default_ms)
        before = self._numbers(RECORD_LOCK_DURATION, at_ms - np.maximum(found.values, LOCK_DURATIONS_MS[1]), default_ms)
        is_known = found.is_known & before.is_known
        return list(map(Acquired, found.values.tolist(), before.values.tolist(), is_known.tolist()))

    def _numbers(self, name: str, at_ms: I64, default: int) -> KnownNumbers:
        return self.configs.numbers(name, (self.group_id,), np.zeros(len(at_ms), np.int64), at_ms, default)


@dataclass(frozen=True, slots=True)
class _Change:
    """One change of a range of offsets with a common history."""

    at_ms: int
    state: str | None
    delivery_count: int
    kind: str
    acquired: Acquired


@dataclass(frozen=True, slots=True)
class _Interval:
    topic_id: str
    topic: str | None
    partition: int
    first_offset: int
    last_offset: int
    changes: tuple[_Change, ...]


def answer_shares(transitions: Iterable[Transition], changes: Changes, in_force: InForce) -> list[WhatIfRow]:
    """The outcome for the records, by partition and offset, without group and question. Raises WhatIfError if nothing
    would change."""
    limit, lock_ms, lock_count = (getattr(changes, name) for name in SHARE_FIELDS)
    if [limit, lock_ms, lock_count].count(None) < 2:
        raise WhatIfError("delivery limit, lock duration and record locks bear on one another: ask for one at a time")
    rows = list(transitions)
    # Without a change, the last value in force is the one to compare with.
    at_ms = np.array([row.at for row in rows] or [LAST_MS], np.int64)
    if limit is not None:
        acquired = in_force.values(DELIVERY_COUNT_LIMIT, at_ms, in_force.recorded.delivery_count_limit)
        _refuse_the_same("delivery limit", "", limit, acquired)
        intervals = list(_intervals(rows, acquired))
        same_until_ms = _same_until_ms(intervals, limit)
        return [answer for one in intervals for answer in _under_limit(one, limit, same_until_ms)]
    if lock_count is not None:
        acquired = in_force.values(RECORD_LOCK_COUNT, at_ms, in_force.recorded.record_lock_count)
        _refuse_the_same("number of record locks", "", lock_count, acquired)
        return _under_lock_count(rows, acquired, lock_count)
    assert lock_ms is not None
    acquired = in_force.locks(at_ms)
    _refuse_the_same("lock duration", " ms", lock_ms, acquired)
    return _under_lock(_intervals(rows, acquired), lock_ms)


def _refuse_the_same(name: str, unit: str, asked: int, acquired: Sequence[Acquired]) -> None:
    if any(one.value != asked or one.before != asked for one in acquired):
        return
    hint = "" if all(one.is_known for one in acquired) else "; if it was not, tell what it was with --recorded"
    raise WhatIfError(f"the {name} was {asked}{unit} already{hint}")


def _intervals(transitions: Sequence[Transition], acquired: Sequence[Acquired]) -> Iterable[_Interval]:
    """Offsets cut where changes begin and end, so that each range has one history; neighbours with equal histories are
    joined.
    """
    acquired_at = {row.at: one for row, one in zip(transitions, acquired, strict=False)}
    by_partition: dict[tuple[str, int], list[Transition]] = defaultdict(list)
    for row in transitions:
        by_partition[row.topic_id, row.partition].append(row)
    for (topic_id, partition), rows in sorted(by_partition.items()):
        topic = next((row.topic for row in rows if row.topic is not None), None)
        open_rows: dict[int, list[Transition]] = defaultdict(list)
        close_rows: dict[int, list[Transition]] = defaultdict(list)
        for row in rows:
            open_rows[row.first_offset].append(row)
            close_rows[row.last_offset + 1].append(row)
        edges = sorted({*open_rows, *close_rows})
        current: dict[int, Transition] = {}
        joined: _Interval | None = None
        for first, following in pairwise(edges):
            for row in close_rows.get(first, ()):
                current.pop(id(row), None)
            for row in open_rows.get(first, ()):
                current[id(row)] = row
            timeline = tuple(
                _Change(row.at, row.to_state, row.to_delivery_count or 0, row.kind, acquired_at[row.at])
                for row in sorted(current.values(), key=lambda row: row.log_offset)
            )
            if joined is not None and (joined.changes != timeline or joined.last_offset + 1 != first):
                yield joined
                joined = None
            if not timeline:
                continue
            start = first if joined is None else joined.first_offset
            joined = _Interval(topic_id, topic, partition, start, following - 1, timeline)
        if joined is not None:
            yield joined


def _answer(interval: _Interval, verdict: RecordVerdict, change: _Change, would_be: str, **fields: Any) -> WhatIfRow:
    recorded = f"{change.state or 'UNKNOWN'} at delivery {change.delivery_count}"
    return _of_partition([interval], verdict, change.at_ms, recorded, would_be, **fields)


def _of_partition(
    ranges: Sequence[_Interval] | Sequence[Transition],
    verdict: RecordVerdict,
    at_ms: int,
    recorded: str,
    would_be: str,
    *,
    shift_ms: int | None = None,
    deliveries: tuple[int, int] = (0, 0),
    confidence: str | None = None,
    assumptions: tuple[str, ...] = (),
) -> WhatIfRow:
    """One answer for ranges of a share partition, from the first offset to the last. `recorded`: the recorded change;
    `confidence` is of the verdict and the deliveries."""
    return WhatIfRow(
        "",
        GroupType.SHARE,
        RECORDS,
        "",
        at_ms,
        topic=ranges[0].topic or ranges[0].topic_id,
        partition=ranges[0].partition,
        first_offset=min(one.first_offset for one in ranges),
        last_offset=max(one.last_offset for one in ranges),
        recorded=recorded,
        verdict=verdict.value,
        would_be=would_be,
        shift_ms_min=shift_ms,
        shift_ms_max=shift_ms,
        deliveries_min=deliveries[0],
        deliveries_max=deliveries[1],
        confidence=confidence,
        assumptions=assumptions,
    )


# --- the delivery limit ---


def _under_limit(interval: _Interval, limit: int, same_until_ms: int) -> list[WhatIfRow]:
    changes = _since_reset(interval.changes)
    if not changes:
        return []
    last = changes[-1]
    return _under_lower_limit(interval, changes, last, limit, same_until_ms) or _under_higher_limit(
        interval, changes, last, limit
    )


def _same_until_ms(intervals: Iterable[_Interval], limit: int) -> int:
    """Until when the deliveries of the group's members equal the recorded ones, whatever the limit.

    A record that is archived makes room in the next fetch for another one, of any partition of the group: from then on
    every delivery may happen at another time.
    """
    return min((_first_other_ms(changes, limit) for one in intervals for changes in _stories(one)), default=LAST_MS)


def _stories(interval: _Interval) -> Iterable[Sequence[_Change]]:
    """Changes between resets: after each reset deliveries are counted from 0."""
    for is_reset, changes in groupby(interval.changes, key=lambda change: change.kind == "RESET"):
        if not is_reset:
            yield [change for change in changes if change.kind != "PASSED"]


def _first_other_ms(changes: Sequence[_Change], limit: int) -> int:
    """When a record would have been archived under a lower limit; the earliest possible time if the log lacks it."""
    earlier_ms = -LAST_MS
    for change in changes:
        if change.delivery_count == limit and change.state == AVAILABLE:
            return change.at_ms
        if change.delivery_count > limit:
            return earlier_ms
        earlier_ms = change.at_ms
    return LAST_MS


def _under_higher_limit(interval: _Interval, changes: Sequence[_Change], last: _Change, limit: int) -> list[WhatIfRow]:
    """The answer for a range archived at the limit in force, if the other limit would not have been reached."""
    more = limit - last.delivery_count
    if last.state not in GIVEN_UP or last.delivery_count < last.acquired.value or more <= 0:
        return []
    tries = {change.delivery_count for change in changes if change.state == AVAILABLE}
    was_handed_back = tries == set(range(1, last.delivery_count))
    return [
        _answer(
            interval,
            RecordVerdict.MORE_TRIES,
            last,
            f"AVAILABLE at delivery {last.delivery_count}, {more} more at most",
            deliveries=(1 if was_handed_back else 0, more),
            confidence=LIKELY if was_handed_back else GUESS,
            assumptions=_assumed(
                last.acquired, "LIMIT_RECORDED", "LIMIT_NOT_REJECTED", "OUTCOME_UNKNOWN", "SAME_DELIVERIES"
            ),
        )
    ]


def _under_lower_limit(
    interval: _Interval, changes: Sequence[_Change], last: _Change, limit: int, same_until_ms: int
) -> list[WhatIfRow]:
    handed_back = next(
        (change for change in changes if change.state == AVAILABLE and change.delivery_count >= limit), None
    )
    is_beyond = last.state in {ACKNOWLEDGED, *GIVEN_UP} and last.delivery_count > limit
    if handed_back is None and not is_beyond:
        return []
    verdict = RecordVerdict.ARCHIVED_EARLIER if last.state in GIVEN_UP else RecordVerdict.ARCHIVED_INSTEAD
    # A return above the limit came after the one at the limit, which is then missing in the log with its time. And once
    # a record was archived, later deliveries happen at other times.
    is_exact = handed_back is not None and handed_back.delivery_count == limit and handed_back.at_ms <= same_until_ms
    assert handed_back is None or handed_back.at_ms <= last.at_ms
    fewer = max(last.delivery_count - limit, 0)
    return [
        _answer(
            interval,
            verdict,
            last,
            f"ARCHIVED at delivery {limit}",
            shift_ms=handed_back.at_ms - last.at_ms if is_exact and handed_back is not None else None,
            # an available record may have been delivered once more: that is in no log before it ends
            deliveries=(-fewer - (last.state == AVAILABLE), -fewer),
            confidence=CERTAIN,
            assumptions=("SAME_DELIVERIES",),
        )
    ]


def _assumed(acquired: Acquired, recorded: str, *names: str) -> tuple[str, ...]:
    """These assumptions, and that the setting was as given, unless the log shows it."""
    return tuple(sorted(names if acquired.is_known else (recorded, *names)))


def _since_reset(changes: Sequence[_Change]) -> Sequence[_Change]:
    """The changes since an admin's last reset, without ranges that the start offset passed: those had no deliveries."""
    resets = [index for index, change in enumerate(changes) if change.kind == "RESET"]
    return [change for change in changes[resets[-1] + 1 if resets else 0 :] if change.kind != "PASSED"]


# --- the lock duration ---


def _under_lock(intervals: Iterable[_Interval], lock_ms: int) -> list[WhatIfRow]:
    """An answer for every return; and for other ends, under a shorter lock, one answer for each partition."""
    answers: list[WhatIfRow] = []
    unknown: dict[tuple[str, int], list[tuple[_Interval, _Change]]] = defaultdict(list)
    for interval in intervals:
        changes = _since_reset(interval.changes)
        for index, change in enumerate(changes):
            acquired_ms_max = _acquired_ms_max(changes[index - 1] if index else None, change)
            if change.state == AVAILABLE:
                answers.append(_handed_back(interval, change, acquired_ms_max, lock_ms))
            elif lock_ms < max(change.acquired.value, change.acquired.before) and (
                acquired_ms_max is None or acquired_ms_max + CLOCK_SLACK_MS >= lock_ms
            ):
                unknown[interval.topic_id, interval.partition].append((interval, change))
    answers += [_ended(found) for found in unknown.values()]
    return answers


def _acquired_ms_max(earlier: _Change | None, change: _Change) -> int | None:
    """Longest time for which the range can have been acquired: since the previous return, if that is the previous
    delivery.
    """
    if earlier is None or earlier.state != AVAILABLE or change.delivery_count != earlier.delivery_count + 1:
        return None
    return change.at_ms - earlier.at_ms


def _handed_back(interval: _Interval, change: _Change, acquired_ms_max: int | None, lock_ms: int) -> WhatIfRow:
    """The answer for a return. The lock may have caused it only if the range may have been acquired as long as the lock
    lasts.
    """
    acquired = change.acquired
    recorded_ms = acquired.value
    is_steady = acquired.value == acquired.before

    def answer(verdict: RecordVerdict, would_be: str, *assumed: str, **fields: Any) -> WhatIfRow:
        assumptions = _assumed(acquired, "LOCK_RECORDED", *assumed)
        return _answer(interval, verdict, change, would_be, assumptions=assumptions, **fields)

    # A record may be written a little later than the event, and the previous one later than this one.
    longest_ms = None if acquired_ms_max is None else acquired_ms_max + CLOCK_SLACK_MS
    is_short = longest_ms is not None and longest_ms < min(lock_ms, acquired.value, acquired.before)
    if is_short or (is_steady and recorded_ms == lock_ms):
        # Not certain: ranges that another lock returns sooner or later are delivered in place of other records.
        return answer(RecordVerdict.KEPT, "the same", "SAME_DELIVERIES", shift_ms=0, confidence=LIKELY)
    is_timed_out = (
        is_steady
        and acquired_ms_max is not None
        and recorded_ms - CLOCK_SLACK_MS <= acquired_ms_max <= recorded_ms + LOCK_SLACK_MS
    )
    timed_out = "LOCK_BY_TIMING", "SAME_DELIVERIES"
    later_ms = lock_ms - recorded_ms
    if is_timed_out and later_ms < 0:
        would_be = "AVAILABLE earlier: the lock runs out sooner"
        return answer(RecordVerdict.MOVED, would_be, *timed_out, shift_ms=later_ms, confidence=LIKELY)
    if is_timed_out:
        would_be = f"ACKNOWLEDGED within the longer lock, or AVAILABLE {later_ms} ms later"
        return answer(RecordVerdict.CANNOT_TELL, would_be, *timed_out, "OUTCOME_UNKNOWN", deliveries=(-1, 0))
    would_be = "the same unless the lock had run out"
    return answer(RecordVerdict.CANNOT_TELL, would_be, "DELIVERY_NOT_IN_LOG", "OUTCOME_UNKNOWN", deliveries=(-1, 1))


def _ended(found: Sequence[tuple[_Interval, _Change]]) -> WhatIfRow:
    """The answer for ranges in a partition that were acknowledged or archived, and may have been acquired for longer
    than the shorter lock.
    """
    intervals = [interval for interval, _ in found]
    count = sum(interval.last_offset - interval.first_offset + 1 for interval in intervals)
    first = min(change.at_ms for _, change in found)
    return _of_partition(
        intervals,
        RecordVerdict.CANNOT_TELL,
        first,
        f"{counted(count, 'offset')} acknowledged or archived",
        "the same, but for those which were acquired for longer than the lock",
        deliveries=(0, 1),
        assumptions=("DELIVERY_NOT_IN_LOG", "OUTCOME_UNKNOWN"),
    )


# --- how many records may be in flight ---


def _under_lock_count(rows: Sequence[Transition], acquired: Sequence[Acquired], count: int) -> list[WhatIfRow]:
    """One answer for each share partition: from its first available record to the last settled one there were at most
    this many records.
    """
    by_partition: dict[tuple[str, int], list[tuple[Transition, Acquired]]] = defaultdict(list)
    for row, value in zip(rows, acquired, strict=True):
        by_partition[row.topic_id, row.partition].append((row, value))
    return [_in_flight(found, count) for _, found in sorted(by_partition.items())]


def _in_flight(found: Sequence[tuple[Transition, Acquired]], count: int) -> WhatIfRow:
    rows = [row for row, _ in found]
    most, at_ms = _most_in_flight(rows)
    is_below = most > count
    return _of_partition(
        rows,
        RecordVerdict.CANNOT_TELL if is_below else RecordVerdict.KEPT,
        at_ms,
        f"at least {most} records in flight at one time",
        f"no more than {count} in flight: later ones would have waited" if is_below else "the same",
        deliveries=(-MORE_DELIVERIES, MORE_DELIVERIES) if is_below else (0, 0),
        confidence=None if is_below else GUESS,
        assumptions=_assumed(found[-1][1], "LOCKS_RECORDED", "IN_FLIGHT_NOT_IN_LOG"),
    )


MORE_DELIVERIES: Final = 1
"""Waiting records are delivered at another time: once more or less, if a lock or a session ends meanwhile."""


def _most_in_flight(rows: Sequence[Transition]) -> tuple[int, int]:
    """The longest span in flight that the log proves, and when it was written.

    The ranges that one record of the log settles or returns were in flight together, with all returned ranges that are
    not settled yet.
    """
    most, most_at_ms = 0, rows[0].at
    available: dict[int, int] = {}
    """First offset of a range that was returned and is not settled -> its last offset."""
    for _, together in groupby(sorted(rows, key=attrgetter("log_offset")), key=attrgetter("log_offset")):
        changes = [row for row in together if row.kind not in {"RESET", "PASSED"} and row.to_state is not None]
        if not changes:
            available.clear()
            continue
        first = min(row.first_offset for row in changes)
        last = max(row.last_offset for row in changes)
        first = min([first, *(offset for offset, end in available.items() if end < last)])
        if last - first + 1 > most:
            most, most_at_ms = last - first + 1, changes[0].at
        for row in changes:
            for offset in [
                offset for offset, end in available.items() if offset <= row.last_offset and end >= row.first_offset
            ]:
                del available[offset]
            if row.to_state == AVAILABLE:
                available[row.first_offset] = row.last_offset
    return most, most_at_ms
