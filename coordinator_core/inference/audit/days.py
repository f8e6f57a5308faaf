"""gold.group_summary: the days of a group, in UTC. A day without any events has no row."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from operator import add
from typing import Any, Final, NamedTuple, Self

import numpy as np

from coordinator_core.bytes.log.chunk import I64, BoolArray
from coordinator_core.history.rows import MemberRow
from coordinator_core.inference.commits.commit_anomalies import TOPIC_RECREATED, went_back
from coordinator_core.inference.facts.calendar import DAY_MS, cut_by_day
from coordinator_core.inference.facts.clock import is_time
from coordinator_core.inference.facts.life import GroupCommits, GroupLife
from coordinator_core.inference.facts.rows import AnomalyRow, GroupDayRow, RebalanceRow, ShareGroupDayRow
from coordinator_core.inference.groups.rebalances import is_unwritten
from coordinator_core.replay.columnar.offsets_columnar import OUTCOMES
from schemas.group_types import GroupType

COUNTED_AT_ONCE: Final = 1 << 20
"""How many commits of a group are counted at once."""
COUNTED_DAYS_MAX: Final = 1 << 16
"""Commits within this many days are counted in one pass; a log with more scattered times is sorted."""
UNKNOWN_TYPE: Final = GroupType.CLASSIC
"""A group with nothing but commits in the log is a simple group, which Kafka counts as classic."""
APPLIED: Final = OUTCOMES.index("APPLIED")


class DayCounts(NamedTuple):
    """What is added up of one day: the columns of gold.group_summary with these names."""

    commit_count: int = 0
    commit_anomaly_count: int = 0
    went_back_count: int = 0

    @classmethod
    def of(cls, row: GroupDayRow) -> Self:
        return cls._make(getattr(row, name) for name in cls._fields)

    def plus(self, other: "DayCounts") -> "DayCounts":
        return DayCounts._make(map(add, self, other))


NO_COUNTS: Final = DayCounts()
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
    # those of share groups are in their own summary
    begun = Counter(_day(row.started_at) for row in rebalances if row.group_type != GroupType.SHARE)
    storms = Counter(_day(row.started_at) for row in rebalances if row.in_storm)
    added = day_counts(committed, anomalies)
    counts = {day: before.get(day, NO_COUNTS).plus(added.get(day, NO_COUNTS)) for day in {*before, *added}}
    likely, most = Counter[int](), Counter[int]()
    """What estimates add to the time without an owner that the log shows."""
    for row in rebalances:
        least_ms = row.unowned_partition_ms or 0
        likely[_day(row.started_at)] += (row.unowned_likely_ms or 0) - least_ms
        most[_day(row.started_at)] += (row.unowned_most_ms or 0) - least_ms
    not_stable = _not_stable_ms(life, rebalances)
    members = _MembersAt(life.members)
    types = _TypesAt(life)
    rows = []
    for day in sorted({*generations, *begun, *counts, *not_stable, *unowned}):
        if day <= settled_day:
            continue
        least_ms = sum(unowned.get(day, {}).values())
        worst = min(unowned.get(day, {}).items(), key=lambda item: (-item[1], item[0]), default=None)
        rows.append(
            GroupDayRow(
                group_id=life.group_id,
                group_type=types.at(day + DAY_MS - 1),
                day=day,
                generation_count=generations[day],
                rebalance_count=begun[day],
                member_count_max=members.most(day),
                **counts.get(day, NO_COUNTS)._asdict(),
                not_stable_ms=not_stable[day],
                storm_rebalance_count=storms[day],
                unowned_partition_ms=least_ms,
                worst_topic=worst[0][0] if worst else None,
                worst_partition=worst[0][1] if worst else None,
                unowned_least_ms=least_ms,
                unowned_likely_ms=least_ms + likely[day],
                unowned_most_ms=least_ms + most[day],
            )
        )
    return rows


def late_counts(committed: Counter[int], anomalies: Iterable[AnomalyRow], settled_day: int) -> dict[int, DayCounts]:
    """What is added to the counts of the days of one group up to `settled_day`, inclusive."""
    return {day: counts for day, counts in day_counts(committed, anomalies).items() if day <= settled_day}


def day_counts(committed: Counter[int], anomalies: Iterable[AnomalyRow]) -> dict[int, DayCounts]:
    """Commits that count, anomalies and commits that went back, by first instant of the day."""
    timed = [row for row in anomalies if is_time(row.at)]
    odd, back = (Counter(_day(row.at) for row in rows) for rows in (timed, filter(went_back, timed)))
    return {day: DayCounts(committed[day], odd[day], back[day]) for day in {*committed, *odd}}


def recreated_days(anomalies: Iterable[AnomalyRow]) -> Counter[tuple[str, int]]:
    """Commits to topics that were made again, which `day_counts` counted before that was known, by group and day."""
    rows = (row for row in anomalies if row.likely_cause == TOPIC_RECREATED and is_time(row.at))
    return Counter((row.group_id, _day(row.at)) for row in rows)


def share_group_days(life: GroupLife, settled_day: int = NO_DAY) -> list[ShareGroupDayRow]:
    """The days of a share group after `settled_day`, as far as `__consumer_offsets` shows them: epochs and members."""
    epochs = [
        row
        for row in life.generations
        if row.group_type == GroupType.SHARE and row.from_log_offset not in life.timeless
    ]
    generations = Counter(_day(row.valid_from) for row in epochs)
    rebalances = Counter(_day(row.valid_from) for row in epochs if not is_unwritten(row))
    stays = [member for member in life.members if member.group_type == GroupType.SHARE]
    members = _MembersAt(stays)
    return [
        ShareGroupDayRow(
            group_id=life.group_id,
            group_type=GroupType.SHARE,
            day=day,
            generation_count=generations[day],
            rebalance_count=rebalances[day],
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
