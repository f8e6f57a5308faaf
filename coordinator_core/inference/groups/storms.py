"""Storms: a group that rebalances again and again without progress; and its flapping members.

A rebalance is restless if

* a member joined or departed in it that joined and departed before or afterwards: under one name (group instance id,
  else client id) `CHANGES_MIN` times within `storm_window_ms`, or under changing names (pods that crash) that often for
  each member that the family of client ids has at most;
* or a member expired in it, with more than a GUESS;
* or no member joined or departed, and no topic grew: members only joined again.

`storm_generation_count` restless rebalances within `storm_window_ms` are a storm. Not restless, however many rebalances
they take, are members that join or depart one after the other, rolling deployments, restarts of a whole group, and
follow-ups.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence, Set
from typing import Final

from coordinator_core.confidence import GUESS
from coordinator_core.history.client_families import client_family
from coordinator_core.history.rows import MemberRow
from coordinator_core.inference.facts.clock import is_time
from coordinator_core.inference.facts.rows import RebalanceRow
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.groups.causes import PROBING_REBALANCE
from coordinator_core.inference.groups.leave_reasons import EXPIRED
from coordinator_core.inference.groups.rollouts import FOLLOW_UPS

CHANGES_MIN: Final = 4
"""To join, depart and join again is a restart; to depart once more is flapping."""
EXPLAINED: Final = frozenset({"FIRST", "PARTITIONS_CHANGED", "GROUP_CONVERTED", "GROUP_EMPTIED", PROBING_REBALANCE})
"""Causes of rebalances in which members do not join or depart by themselves."""

Name = str | tuple[str, ...]
"""The name of a member, or the family of its client id."""


def with_storms(
    rebalances: Sequence[RebalanceRow],
    log_offsets: Sequence[int],
    explained: Sequence[Set[str]],
    members: Iterable[MemberRow],
    settings: InferenceSettings,
) -> list[RebalanceRow]:
    """The rebalances of one group, in order, marked if they belong to a storm, including the follow-ups within it.

    `log_offsets`: of the generations that they led to. `explained`: for each rebalance, ids of members that joined or
    departed in a rolling deployment.
    """
    marked = list(rebalances)
    timed = [index for index, row in enumerate(rebalances) if is_time(row.started_at)]
    if len(timed) < len(rebalances):
        # rebalances without a known beginning belong to no storm
        rows, places = [rebalances[index] for index in timed], [log_offsets[index] for index in timed]
        stormy = with_storms(rows, places, [explained[index] for index in timed], members, settings)
        for index, row in zip(timed, stormy, strict=True):
            marked[index] = row
        return marked
    changes = _Changes(rebalances, log_offsets, explained, _Names(members), settings.storm_window_ms)
    restless = [index for index, row in enumerate(rebalances) if _is_restless(row) or changes.is_flapping(index)]
    starts_ms = [rebalances[index].started_at for index in restless]
    of_storm = set(restless) | {index for index, row in enumerate(rebalances) if row.cause_methods[0] in FOLLOW_UPS}
    for first, last in _storms(starts_ms, settings):
        storm = [index for index in range(restless[first], restless[last] + 1) if index in of_storm]
        flapping = changes.flapping(storm)
        for index in storm:
            marked[index] = marked[index]._replace(in_storm=True, flapping_members=flapping)
    return marked


def _is_restless(row: RebalanceRow) -> bool:
    """Whether the row alone shows that it is restless."""
    causes = zip(row.causes, row.cause_confidences, strict=True)
    if any(cause == EXPIRED and confidence != GUESS for cause, confidence in causes):
        return True
    if row.members_joined or row.members_left or not row.member_count:
        return False
    return EXPLAINED.isdisjoint(row.causes) and FOLLOW_UPS.isdisjoint(row.cause_methods)


def _storms(starts_ms: Sequence[int], settings: InferenceSettings) -> list[tuple[int, int]]:
    """First and last index of each storm; overlapping storms are merged."""
    storms: list[tuple[int, int]] = []
    count = max(settings.storm_generation_count, 1)
    for last in range(count - 1, len(starts_ms)):
        first = last - count + 1
        # the clocks of different leaders may differ by more
        if abs(starts_ms[last] - starts_ms[first]) > settings.storm_window_ms:
            continue
        if storms and first <= storms[-1][1]:
            storms[-1] = storms[-1][0], last
        else:
            storms.append((first, last))
    return storms


class _Changes:
    """The members that joined and departed in the rebalances of one group, except in rolling deployments."""

    def __init__(
        self,
        rebalances: Sequence[RebalanceRow],
        log_offsets: Sequence[int],
        explained: Sequence[Set[str]],
        names: "_Names",
        window_ms: int,
    ) -> None:
        self._window_ms = window_ms
        self._names = names
        self._starts_ms = [row.started_at for row in rebalances]
        self._by_time = sorted(zip(self._starts_ms, log_offsets, strict=True))
        self._of: list[list[tuple[str, tuple[str, ...]]]] = []
        """For each rebalance, name and family of each member that joined or departed."""
        self._times: dict[Name, list[int]] = defaultdict(list)
        for row, place, known in zip(rebalances, log_offsets, explained, strict=True):
            changed = [names.at(member_id, place + 1) for member_id in row.members_joined if member_id not in known]
            changed += [names.at(member_id, place) for member_id in row.members_left if member_id not in known]
            self._of.append(changed)
            for name, family in changed:
                self._times[name].append(row.started_at)
                self._times[family].append(row.started_at)
        for times in self._times.values():
            times.sort()

    def is_flapping(self, index: int) -> bool:
        """Whether a member joined or departed in a rebalance that did so again and again around it."""
        at_ms = self._starts_ms[index]
        if any(self._is_often(name, CHANGES_MIN, at_ms) for name, _ in self._of[index]):
            return True
        return any(
            self._is_often(family, CHANGES_MIN, at_ms)
            and self._is_often(family, CHANGES_MIN * self._most(family, index), at_ms)
            for family in {family for _, family in self._of[index]}
        )

    def _most(self, family: tuple[str, ...], index: int) -> int:
        """The largest number of members of a family in the window around a rebalance."""
        at_ms = self._starts_ms[index]
        first = bisect_left(self._by_time, (at_ms - self._window_ms,))
        end = bisect_left(self._by_time, (at_ms + self._window_ms + 1,))
        return max(self._names.most_around(family, place) for _, place in self._by_time[first:end])

    def _is_often(self, name: Name, count: int, at_ms: int) -> bool:
        """Whether a change at a time is one of `count` within the window."""
        times = self._times[name]
        if len(times) < count:
            return False
        first, end = bisect_left(times, at_ms), bisect_right(times, at_ms)
        return any(
            times[start + count - 1] - times[start] <= self._window_ms
            for start in range(max(first - count + 1, 0), min(end, len(times) - count + 1))
        )

    def flapping(self, storm: Iterable[int]) -> tuple[str, ...]:
        """The names that joined and departed `CHANGES_MIN` times or more in some rebalances."""
        counts = Counter(name for index in storm for name, _ in self._of[index])
        return tuple(sorted(name for name, count in counts.items() if name and count >= CHANGES_MIN))


class _Names:
    """Group instance ids, or client ids, of members, and their families. A member id may return under another name."""

    def __init__(self, members: Iterable[MemberRow]) -> None:
        self._begins: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self._came: dict[tuple[str, ...], list[int]] = defaultdict(list)
        self._went: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for member in members:
            name = member.instance_id or member.client_id
            self._begins[member.member_id].append((member.from_log_offset, name))
            family = client_family(name)
            self._came[family].append(member.from_log_offset)
            if member.to_log_offset is not None:
                self._went[family].append(member.to_log_offset)
        for begins in self._begins.values():
            begins.sort()
        for places in (*self._came.values(), *self._went.values()):
            places.sort()

    def at(self, member_id: str, log_offset: int) -> tuple[str, tuple[str, ...]]:
        """The name of the member that began last before a log offset, and its family; empty if there is none."""
        begins = self._begins.get(member_id, ())
        index = bisect_left(begins, (log_offset, "")) - 1
        name = begins[index][1] if index >= 0 else ""
        return name, client_family(name)

    def most_around(self, family: tuple[str, ...], log_offset: int) -> int:
        """The number of members of a family before or after the operation that ends at a log offset, whichever is
        greater.
        """
        came, went = self._came.get(family, []), self._went.get(family, [])
        before = bisect_left(came, log_offset) - bisect_left(went, log_offset)
        after = bisect_right(came, log_offset) - bisect_right(went, log_offset)
        return max(before, after, 1)
