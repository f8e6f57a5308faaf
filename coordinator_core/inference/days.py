"""gold.group_summary: the days of a group, in UTC. A day without any events has no row."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple

import numpy as np

from coordinator_core.history.rows import MemberRow
from coordinator_core.inference.calendar import DAY_MS, cut_by_day
from coordinator_core.inference.clock import is_time
from coordinator_core.inference.life import GroupCommits, GroupLife
from coordinator_core.inference.rows import AnomalyRow, GroupDayRow, RebalanceRow, ShareGroupDayRow
from coordinator_core.log.chunk import I64, BoolArray
from coordinator_core.offsets.columnar import OUTCOMES
from schemas.group_types import GroupType

COUNTED_AT_ONCE: Final = 1 << 20
"""How many commits of a group are counted at once."""
COUNTED_DAYS_MAX: Final = 1 << 16
"""Commits within this many days are counted in one pass; a log with more scattered times is sorted."""
UNKNOWN_TYPE: Final = GroupType.CLASSIC
"""A group with nothing but commits in the log is a simple group, which Kafka counts as classic."""
APPLIED: Final = OUTCOMES.index("APPLIED")


class DayCounts(NamedTuple):
    commit_count: int
    commit_anomaly_count: int

    def plus(self, other: "DayCounts") -> "DayCounts":
        return DayCounts(self.commit_count + other.commit_count, self.commit_anomaly_count + other.commit_anomaly_count)


NO_COUNTS: Final = DayCounts(0, 0)
NO_DAY: Final = -(2**62)
NOTHING_BEFORE: Final[Mapping[int, DayCounts]] = {}


def group_days(
    life: GroupLife,
    unowned: Mapping[int, Counter[tuple[str, int]]],
    rebalances: Sequence[RebalanceRow],
    anomalies: Iterable[AnomalyRow],
    committed: Counter[int],
    before: Mapping[int, DayCounts] = NOTHING_BEFORE,
    settled_day: int = NO_DAY,
) -> list[GroupDayRow]:
    """The days of one group. A day with two group types counts for the later one.

    `unowned`: `UnownedTime.by_day`. `committed`: `commit_days` of the commits that count. `before`: counts from earlier
    audits, by first instant of the day.
    `settled_day`: days up to this one, inclusive, are left out (`late_counts`).
    """
    rebalances = [row for row in rebalances if is_time(row.started_at)]
    generations = Counter(_day(row.valid_from) for row in life.generations if row.from_log_offset not in life.timeless)
    begun = Counter(_day(row.started_at) for row in rebalances)
    storms = Counter(_day(row.started_at) for row in rebalances if row.in_storm)
    commits = committed + Counter({day: counts.commit_count for day, counts in before.items()})
    odd = odd_days(anomalies)
    odd += Counter({day: counts.commit_anomaly_count for day, counts in before.items()})
    not_stable = _not_stable_ms(life, rebalances)
    members = _MembersAt(life.members)
    types = _TypesAt(life)
    rows = []
    for day in sorted({*generations, *begun, *commits, *odd, *not_stable, *unowned}):
        if day <= settled_day:
            continue
        worst = min(unowned.get(day, {}).items(), key=lambda item: (-item[1], item[0]), default=None)
        rows.append(
            GroupDayRow(
                group_id=life.group_id,
                group_type=types.at(day + DAY_MS - 1),
                day=day,
                generation_count=generations[day],
                rebalance_count=begun[day],
                member_count_max=members.most(day),
                commit_count=commits[day],
                commit_anomaly_count=odd[day],
                not_stable_ms=not_stable[day],
                storm_rebalance_count=storms[day],
                unowned_partition_ms=sum(unowned.get(day, {}).values()),
                worst_topic=worst[0][0] if worst else None,
                worst_partition=worst[0][1] if worst else None,
            )
        )
    return rows


def late_counts(committed: Counter[int], anomalies: Iterable[AnomalyRow], settled_day: int) -> dict[int, DayCounts]:
    """What is added to the counts of the days of one group up to `settled_day`, inclusive: commits that count, and
    anomalies.
    """
    odd = odd_days(anomalies)
    return {day: DayCounts(committed[day], odd[day]) for day in {*committed, *odd} if day <= settled_day}


def odd_days(anomalies: Iterable[AnomalyRow]) -> Counter[int]:
    """Number of anomalies, by first instant of the day."""
    return Counter(_day(row.at) for row in anomalies if is_time(row.at))


def share_group_days(life: GroupLife, settled_day: int = NO_DAY) -> list[ShareGroupDayRow]:
    """The days of a share group after `settled_day`, as far as `__consumer_offsets` shows them: epochs and members."""
    generations = Counter(
        _day(row.valid_from)
        for row in life.generations
        if row.group_type == GroupType.SHARE and row.from_log_offset not in life.timeless
    )
    stays = [member for member in life.members if member.group_type == GroupType.SHARE]
    members = _MembersAt(stays)
    return [
        ShareGroupDayRow(
            group_id=life.group_id,
            group_type=GroupType.SHARE,
            day=day,
            generation_count=generations[day],
            member_count_max=members.most(day),
        )
        for day in sorted({*generations, *_days_of(stays, life.timeless)})
        if day > settled_day
    ]


def _day(at_ms: int) -> int:
    return at_ms // DAY_MS * DAY_MS


def commit_days(commits: GroupCommits, is_new: BoolArray | None) -> Counter[int]:
    """Applied commits by day, all or only the new ones. Commits whose records have no time count for no day."""
    counts: Counter[int] = Counter()
    for first in range(0, len(commits), COUNTED_AT_ONCE):
        part = slice(first, first + COUNTED_AT_ONCE)
        at_ms = commits.applied_at_ms[part]
        is_counted = (commits.outcome[part] == APPLIED) & (at_ms >= 0)
        if is_new is not None:
            is_counted &= is_new[part]
        counts.update(_counted_days(at_ms[is_counted] // DAY_MS))
    return counts


def _counted_days(days: I64) -> dict[int, int]:
    if not len(days):
        return {}
    first, last = int(days.min()), int(days.max())
    if last - first < COUNTED_DAYS_MAX:
        counts = np.bincount(days - first, minlength=last - first + 1)
        return {(first + index) * DAY_MS: int(counts[index]) for index in np.flatnonzero(counts).tolist()}
    distinct, counts = np.unique(days, return_counts=True)
    return {day * DAY_MS: count for day, count in zip(distinct.tolist(), counts.tolist(), strict=True)}


def _not_stable_ms(life: GroupLife, rebalances: Sequence[RebalanceRow]) -> Counter[int]:
    """Time in rebalances, by day; overlapping ones count once. Share groups have only the states Stable and Empty."""
    newest_ms = max((event.at for event in life.events), default=0)
    days: Counter[int] = Counter()
    counted_to_ms = 0
    for row in rebalances:
        if row.group_type == GroupType.SHARE:
            continue
        from_ms = max(row.started_at, counted_to_ms)
        to_ms = newest_ms if row.completed_at is None else row.completed_at
        if row.completed_at is None and row.group_type == GroupType.CLASSIC:
            continue  # it is over, but its end is unknown
        for day, ms in cut_by_day(from_ms, to_ms):
            days[day] += ms
        counted_to_ms = max(counted_to_ms, to_ms)
    return days


def _days_of(members: Iterable[MemberRow], timeless: Set[int]) -> Iterator[int]:
    for member in members:
        if member.from_log_offset not in timeless:
            yield _day(member.valid_from)
        if member.valid_to is not None and member.to_log_offset not in timeless:
            yield _day(member.valid_to)


class _MembersAt:
    def __init__(self, members: Sequence[MemberRow]) -> None:
        changes: Counter[int] = Counter()
        for member in members:
            changes[member.valid_from] += 1
            if member.valid_to is not None:
                changes[member.valid_to] -= 1
        self._times = sorted(changes)
        counts: Any = np.cumsum([changes[time] for time in self._times], dtype=np.int64)
        self._counts: list[int] = counts.tolist()

    def most(self, day: int) -> int:
        """The largest number of members at one time on a day."""
        first = max(bisect_right(self._times, day) - 1, 0)
        last = bisect_right(self._times, day + DAY_MS - 1)
        return max(self._counts[first:last], default=0)


class _TypesAt:
    def __init__(self, life: GroupLife) -> None:
        self._generations = sorted(life.generations, key=lambda row: row.from_log_offset)
        self._times = np.maximum.accumulate([0, *(row.valid_from for row in self._generations)]).tolist()[1:]

    def at(self, time_ms: int) -> str:
        index = max(bisect_right(self._times, time_ms) - 1, 0)
        return self._generations[index].group_type if self._generations else UNKNOWN_TYPE
