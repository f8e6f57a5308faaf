"""Substitutes for missing timestamps.

Records of Kafka before 0.10 have no timestamp, nor do many dumps, and a damaged record may have an impossible one.
Inference compares times, and needs them in log order. So a row without a time gets one just after the last known time
(`with_times`); `GroupLife.timeless` has the log offsets of such rows. No result depends on a substitute: it is not
evidence of why a member departed, it gives no duration and counts for no day, and rows of gold have null instead
(`shown_at`).

The value of a classic generation has its own timestamp, the end of the join phase. If it cannot come from the clock
that dated the record, it counts as missing, too.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import chain
from operator import attrgetter
from typing import Final, TypeGuard, TypeVar

from coordinator_core.history.rows import AssignmentRow, EventRow, GenerationRow, MemberRow
from coordinator_core.inference.facts.life import GroupLife
from coordinator_core.inference.facts.log_facts import NONE_MS

_VALID_FROM: Final = attrgetter("valid_from")
_BEGINS: Final = attrgetter("from_log_offset", "valid_from")
_ENDS: Final = attrgetter("to_log_offset", "valid_to")
_AT: Final = attrgetter("at")

_NO_TIMES: Final = frozenset({None, NONE_MS})
"""The values for which `is_time` is false, as a set, to check many at once."""

SYNC_PHASE_MS_MAX: Final = 3_600_000
"""From the end of a join phase to the record: no leader takes longer to assign."""
CLOCK_MS: Final = 1_000
"""By how much a clock may be set back in between."""

Interval = TypeVar("Interval", GenerationRow, MemberRow, AssignmentRow)


def is_time(at_ms: int | None) -> TypeGuard[int]:
    """Whether it is a time: null in silver and Kafka's -1 are not."""
    return at_ms is not None and at_ms != NONE_MS


def lacks_times(life: GroupLife) -> bool:
    """Whether any row of a group lacks a time. Commits are not checked: they are columns."""
    rows = (*life.generations, *life.members, *life.assignments)
    return (
        not _NO_TIMES.isdisjoint(chain(map(_AT, life.events), map(_VALID_FROM, rows)))
        or any(valid_to in _NO_TIMES and to is not None for to, valid_to in map(_ENDS, rows))
        or not all(map(_has_credible_state, life.generations))
    )


def with_times(life: GroupLife) -> GroupLife:
    """The same rows, each with a time, and the log offsets of those that had none."""
    if not lacks_times(life):
        return life
    clock = _Clock(life)

    def event_at(event: EventRow) -> EventRow:
        return event if is_time(event.at) else event._replace(at=clock.at(event.log_offset))

    return life._replace(
        generations=tuple(
            clock.filled(row if _has_credible_state(row) else row._replace(current_state_at=None))
            for row in life.generations
        ),
        members=tuple(map(clock.filled, life.members)),
        assignments=tuple(map(clock.filled, life.assignments)),
        events=tuple(map(event_at, life.events)),
        timeless=clock.timeless,
    )


def shown_at(life: GroupLife, log_offset: int | None, at_ms: int) -> int:
    """The time of a log offset as gold shows it; NONE_MS if the log has none."""
    return NONE_MS if log_offset in life.timeless else at_ms


def _has_credible_state(row: GenerationRow) -> bool:
    """Whether the time of its state is missing, or a sync phase before the record."""
    at_ms = row.current_state_at
    if at_ms is None or (at_ms != NONE_MS and not is_time(row.valid_from)):
        return True
    return at_ms != NONE_MS and -CLOCK_MS <= row.valid_from - at_ms <= SYNC_PHASE_MS_MAX


class _Clock:
    """Assigns a time to each operation of one group. An operation is identified by its last record, as intervals
    are."""

    def __init__(self, life: GroupLife) -> None:
        times = list(_timed_places(life))
        self._ends = sorted({place for place, _, is_end in times if is_end})
        known: dict[int, int] = {}
        timeless: set[int] = set()
        for place, at_ms, _ in times:
            if is_time(at_ms):
                known[self._operation(place)] = at_ms
            else:
                timeless.add(place)
        self.timeless = frozenset(timeless)
        self._known = sorted(known.items())
        self._places = [place for place, _ in self._known]
        self._lacking = sorted({self._operation(place) for place in timeless} - known.keys())
        self._times = known

    def _operation(self, place: int) -> int:
        """The last record of the operation that contains a log offset, as far as it is known."""
        index = bisect_left(self._ends, place)
        return self._ends[index] if index < len(self._ends) else place

    def at(self, place: int) -> int:
        """The time of the operation. Operations without one get the last known time plus 1 ms each, in log order."""
        operation = self._operation(place)
        if operation in self._times:
            return self._times[operation]
        index = bisect_right(self._places, operation)
        before, base_ms = self._known[index - 1] if index else (-1, self._first_ms())
        return base_ms + bisect_right(self._lacking, operation) - bisect_right(self._lacking, before)

    def _first_ms(self) -> int:
        """The base before the first known time: earlier by 1 ms for each operation without a time before it."""
        if not self._known:
            return 0
        place, at_ms = self._known[0]
        return max(at_ms - 1 - bisect_right(self._lacking, place), 0)

    def filled(self, row: Interval) -> Interval:
        if not is_time(row.valid_from):
            row = row._replace(valid_from=self.at(row.from_log_offset))
        if row.to_log_offset is not None and not is_time(row.valid_to):
            row = row._replace(valid_to=self.at(row.to_log_offset))
        return row


def _timed_places(life: GroupLife) -> Iterator[tuple[int, int | None, bool]]:
    """Log offset, time, and whether the offset is the end of an operation."""
    for begin, begin_ms in map(_BEGINS, chain(life.generations, life.members, life.assignments)):
        yield begin, begin_ms, True
    for end, end_ms in map(_ENDS, chain(life.generations, life.members, life.assignments)):
        if end is not None:
            yield end, end_ms, True
    for event in life.events:
        yield event.log_offset, event.at, False
