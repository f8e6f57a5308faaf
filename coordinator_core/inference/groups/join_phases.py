"""Join phases of classic groups that ended at the rebalance timeout, because a member did not join again.

A join phase ends when all members have joined again, and at the latest at the rebalance timeout, the longest of its
members; then the coordinator drops the others (GroupMetadataManager.completeClassicGroupJoin). The log does not show
where a join phase begins. But clients commit nothing while they wait for an assignment, so of members that stay and
commit often, the first one stops committing when it joins: one rebalance timeout before the end.

A member that departed although it had committed in the meantime, more than a heartbeat after the beginning, was alive
and was asked to join. A client that stopped polling would have left by itself before the end, because its last poll was
before it was asked. One that closed just then looks the same.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from statistics import median
from typing import Final, Generic, TypeVar

import numpy as np

from coordinator_core.confidence import GUESS, LIKELY
from coordinator_core.history.rows import GenerationRow, MemberRow
from coordinator_core.inference.commits.last_commit_times import Membership, Times, last_commit_times
from coordinator_core.inference.facts.life import HEARTBEAT_MS, GroupLife
from coordinator_core.inference.facts.rows import OwnerRow

SILENT_FACTOR: Final = 3
"""A member is silent if it has not committed for this many of its usual intervals."""
RHYTHMS_MISSED_MAX: Final = 2
"""A member that stops has made its last commit at most this many intervals ago."""
INTERVALS_MIN: Final = 2
"""A member's rhythm is the median of its last intervals between commits; it needs at least this many."""


Row = TypeVar("Row", MemberRow, OwnerRow)


def rhythm_ms(times: Times) -> int | None:
    """Median of the intervals between the times; None if there are too few."""
    intervals = [later - time for time, later in pairwise(times)]
    return int(median(intervals)) if len(intervals) >= INTERVALS_MIN else None


class JoinPhases:
    """The join phases of one group. Call it in log order."""

    def __init__(
        self, life: GroupLife, owners: Iterable[OwnerRow], commit_times_before: Mapping[Membership, Times]
    ) -> None:
        """`commit_times_before`: of commits that `life` does not have (`last_commit_times`)."""
        self._commits = life.commits
        self._before = commit_times_before
        self._members = There(life.members)
        self._owners = There(owners)

    def ran_out(
        self, member: MemberRow, previous: GenerationRow, now: GenerationRow, last_commit_ms: int, ended_at_ms: int
    ) -> str | None:
        """Whether the join phase of `now` ended at the rebalance timeout, while a member that then departed kept
        committing: LIKELY, GUESS where the others commit too seldom for the timeout to show it, or None.
        """
        committed_ago_ms = ended_at_ms - last_commit_ms + HEARTBEAT_MS
        if not committed_ago_ms < (member.rebalance_timeout_ms or 0) <= ended_at_ms - previous.valid_from:
            return None
        there = self._members.at(previous.from_log_offset)
        begun = self._members.begun_at(now.from_log_offset)
        timeouts_ms = {max(row.rebalance_timeout_ms or 0 for row in rows) for rows in (there, [*there, *begun])}
        silences = self._silences(there, previous, now, ended_at_ms)
        if not silences or any(silent_ms <= rhythm for silent_ms, rhythm in silences):
            return None
        longest_ms, its_rhythm_ms = max(silences)
        has_run_out = any(
            committed_ago_ms < timeout_ms <= ended_at_ms - previous.valid_from
            and timeout_ms - HEARTBEAT_MS <= longest_ms <= timeout_ms + RHYTHMS_MISSED_MAX * its_rhythm_ms
            for timeout_ms in timeouts_ms
        )
        if not has_run_out:
            return None
        return LIKELY if all(silent_ms > SILENT_FACTOR * rhythm for silent_ms, rhythm in silences) else GUESS

    def _silences(
        self, there: Iterable[MemberRow], previous: GenerationRow, now: GenerationRow, ended_at_ms: int
    ) -> list[tuple[int, int]]:
        """For each member that stays and had committed often: how long it was silent then, and its rhythm."""
        place, end = previous.from_log_offset, now.from_log_offset
        staying = [row for row in there if row.to_log_offset is None or row.to_log_offset > end]
        first, last = np.searchsorted(self._commits.log_offset, (place, end), "right")
        times = last_commit_times(
            self._commits.taken(slice(first, last)), self._owners.at(place), staying, self._before, place
        )
        silences = []
        for own in times.values():
            since = tuple(time for time in own if previous.valid_from < time <= ended_at_ms)
            rhythm = rhythm_ms(since)
            if rhythm is not None:
                silences.append((ended_at_ms - since[-1], rhythm))
        return silences


class There(Generic[Row]):
    """The intervals that are open at a log offset. Call it with ascending offsets."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows: Iterable[Row] = rows
        self._open: list[Row] = []

    @cached_property
    def _next(self) -> deque[Row]:
        return deque(sorted(self._rows, key=lambda row: (row.from_log_offset, row.member_id)))

    def at(self, log_offset: int) -> list[Row]:
        """Those that began there or earlier, and continue."""
        while self._next and self._next[0].from_log_offset <= log_offset:
            self._open.append(self._next.popleft())
        self._open = [row for row in self._open if row.to_log_offset is None or row.to_log_offset > log_offset]
        return self._open

    def begun_at(self, log_offset: int) -> Iterator[Row]:
        for row in self._next:
            if row.from_log_offset > log_offset:
                return
            if row.from_log_offset == log_offset:
                yield row
