"""The share side of gold: redeliveries, archived records and days of the share partitions of one log partition.

Everything here is columns: there may be millions of records. Rows of silver come in any order and are sorted by log
offset; in one partition of `__share_group_state` a log offset names one record of one share partition.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple, Self, TypeVar

import numpy as np

from coordinator_core.inference.archived import ArchivedColumns, archived_records
from coordinator_core.inference.columns import distinct, taken
from coordinator_core.inference.configs import Configs
from coordinator_core.inference.evidence import Evidence
from coordinator_core.inference.redeliveries import RedeliveryColumns, redeliveries
from coordinator_core.inference.rows import ShareGroupDayRow
from coordinator_core.inference.settings import InferenceSettings
from coordinator_core.inference.share_log import ShareKeys, ShareLog, ShareMembers
from coordinator_core.log.chunk import I64
from coordinator_core.log.fast import compiled
from coordinator_core.share_state.lane import TRANSITION_KINDS

SHARE: Final = "SHARE"
DAY_MS: Final = 24 * 60 * 60 * 1000
INT64_MAX: Final = 2**63 - 1

_ACKNOWLEDGED: Final = TRANSITION_KINDS.index("ACKNOWLEDGED")
_PLACE: Final = attrgetter("place")


class ShareDay(NamedTuple):
    """What one log partition knows of a group and day, towards gold.share_group_summary."""

    group_id: str
    day: int
    """Its first instant in UTC, epoch ms."""
    acknowledged_count: int
    redelivered_count: int
    archived_count: int
    worst: tuple[int, str, int] | None
    """Of the share partition with most offsets given up: how many, less than 0; topic; partition."""


class PlaceCounts(NamedTuple):
    """What was counted of one share partition on one day."""

    group_id: str
    topic_id: str
    topic: str | None
    partition: int
    day: int
    """Its number since 1970."""
    acknowledged_count: int
    redelivered_count: int
    archived_count: int

    @property
    def place(self) -> tuple[str, str, int, int]:
        """What it is of."""
        return self.group_id, self.topic_id, self.partition, self.day


class ShareAudit(NamedTuple):
    """What is to be said of the share partitions of one log partition."""

    redeliveries: RedeliveryColumns
    archived: ArchivedColumns
    counted: "Counted"
    """Of the rows above, and of what was acknowledged."""
    evidence: Evidence

    @property
    def days(self) -> list[ShareDay]:
        """The counts by group and day."""
        return days_of(self.counted.counts())


def audit_share_log(log: ShareLog, configs: Configs, members: ShareMembers, settings: InferenceSettings) -> ShareAudit:
    """Redeliveries, archived records and what there is to count, from `log.past.from_log_offset` on."""
    evidence = Evidence.of(log, configs, members, settings)
    given_again = _judged(redeliveries(log, evidence), log)
    given_up = _judged(archived_records(log, evidence, configs), log)
    return ShareAudit(given_again, given_up, Counted.of(log, given_again, given_up), evidence)


Judged = TypeVar("Judged", RedeliveryColumns, ArchivedColumns)


def _judged(rows: Judged, log: ShareLog) -> Judged:
    if not log.past.from_log_offset:
        return rows
    return taken(rows, np.flatnonzero(rows.log_offset >= log.past.from_log_offset))


@dataclass(frozen=True, slots=True)
class Counted:
    """Offsets that are acknowledged, given again and given up, to be counted by share partition and day."""

    keys: ShareKeys
    places: list[tuple[int, int]]
    """Share partition and day."""
    ranges: "list[_Ranges]"
    """Those acknowledged, given again, and given up."""
    place: list[I64]
    """Of each of them: index into `places`."""

    @classmethod
    def of(cls, log: ShareLog, given_again: RedeliveryColumns, given_up: ArchivedColumns) -> Self:
        """Of all that a log and what was said of it hold."""
        changes, states = log.transitions, log.states
        rows = np.flatnonzero((changes.kind == _ACKNOWLEDGED) & (changes.released < 0))
        state = log.state_of_transition[rows]
        ranges = [
            _Ranges.of(
                states.key[state],
                states.at_ms[state],
                changes.log_offset[rows],
                changes.first_offset[rows],
                changes.last_offset[rows],
            ),
            *(
                _Ranges.of(rows.key, rows.at_ms, rows.log_offset, rows.first_offset, rows.last_offset)
                for rows in (given_again, given_up)
            ),
        ]
        places, place = _distinct([(one.key, one.day) for one in ranges])
        return cls(log.keys, places, ranges, place)

    def counts(self, to_log_offset: int = INT64_MAX) -> list[PlaceCounts]:
        """Of records before a log offset."""
        sums = [np.zeros(len(self.places), np.int64) for _ in self.ranges]
        for one, place, added in zip(self.ranges, self.place, sums, strict=True):
            _add_up(place, one.offset_count, one.log_offset, to_log_offset, added)
        keys = self.keys
        return [
            PlaceCounts(
                keys.group_ids[keys.group[key]],
                keys.topic_ids[key],
                keys.topics[key],
                int(keys.partition[key]),
                day,
                *counts,
            )
            for (key, day), *counts in zip(self.places, *(added.tolist() for added in sums), strict=True)
            if any(counts)
        ]


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Offset ranges in records; those whose records bear no time are of no day."""

    key: I64
    day: I64
    log_offset: I64
    offset_count: I64

    @classmethod
    def of(cls, key: I64, at_ms: I64, log_offset: I64, first_offset: I64, last_offset: I64) -> Self:
        length = last_offset - first_offset + 1
        # a range of all offsets is one longer than an int64 holds
        offset_count = np.where(length > 0, length, INT64_MAX)
        columns = cls(key, at_ms // DAY_MS, log_offset, offset_count)
        return columns if not len(at_ms) or at_ms.min() >= 0 else taken(columns, np.flatnonzero(at_ms >= 0))


def added_counts(before: Sequence[PlaceCounts], more: Sequence[PlaceCounts]) -> list[PlaceCounts]:
    """Counts of two stretches of a log together, by place, as those `before` are; `more` names a place once. The name
    of a topic is that of the later stretch, if it has one.

    What is old is not looked at one by one: each day of the log adds to it.
    """
    if not before:
        return sorted(more, key=_PLACE)
    found = list(before)
    for counts in more:
        at = bisect_left(found, counts.place, key=_PLACE)
        if at < len(found) and found[at].place == counts.place:
            found[at] = _sum_of_counts(found[at], counts)
        else:
            found.insert(at, counts)
    return found


def _sum_of_counts(one: PlaceCounts, other: PlaceCounts) -> PlaceCounts:
    return other._replace(
        topic=one.topic if other.topic is None else other.topic,
        acknowledged_count=min(one.acknowledged_count + other.acknowledged_count, INT64_MAX),
        redelivered_count=min(one.redelivered_count + other.redelivered_count, INT64_MAX),
        archived_count=min(one.archived_count + other.archived_count, INT64_MAX),
    )


def days_of(counts: Iterable[PlaceCounts]) -> list[ShareDay]:
    """By group and day."""
    found: dict[tuple[str, int], ShareDay] = {}
    for one in counts:
        worst = None
        if one.archived_count:
            worst = -one.archived_count, one.topic or "", one.partition
        group_day = one.group_id, one.day
        before = found.get(group_day, ShareDay(*group_day, 0, 0, 0, None))
        found[group_day] = ShareDay(
            one.group_id,
            one.day * DAY_MS,
            min(before.acknowledged_count + one.acknowledged_count, INT64_MAX),
            min(before.redelivered_count + one.redelivered_count, INT64_MAX),
            min(before.archived_count + one.archived_count, INT64_MAX),
            min((it for it in (before.worst, worst) if it is not None), default=None),
        )
    return [found[place] for place in sorted(found)]


def merged_days(days: Iterable[ShareDay], group_days: Iterable[ShareGroupDayRow]) -> list[ShareGroupDayRow]:
    """Rows of gold.share_group_summary, by group and day, from what the logs of both coordinator topics know.

    `group_days`: generations and members, the rest 0. The worst partition is the first by topic and number of those
    with most offsets given up.
    """
    found: dict[tuple[str, int], ShareGroupDayRow] = {}
    worst: dict[tuple[str, int], tuple[int, str, int]] = {}
    for group_day in group_days:
        place = group_day.group_id, group_day.day
        found[place] = _added(found.get(place), group_day)
    for day in days:
        place = day.group_id, day.day
        counts = day.acknowledged_count, day.redelivered_count, day.archived_count
        found[place] = _added(
            found.get(place), ShareGroupDayRow(day.group_id, SHARE, day.day, *counts, 0, 0, None, None)
        )
        if day.worst is not None:
            worst[place] = min(worst.get(place, day.worst), day.worst)
    return [
        found[place]._replace(worst_topic=worst[place][1] or None, worst_partition=worst[place][2])
        if place in worst
        else found[place]
        for place in sorted(found)
    ]


def _added(so_far: ShareGroupDayRow | None, more: ShareGroupDayRow) -> ShareGroupDayRow:
    if so_far is None:
        return more
    return so_far._replace(
        acknowledged_count=min(so_far.acknowledged_count + more.acknowledged_count, INT64_MAX),
        redelivered_count=min(so_far.redelivered_count + more.redelivered_count, INT64_MAX),
        archived_count=min(so_far.archived_count + more.archived_count, INT64_MAX),
        generation_count=so_far.generation_count + more.generation_count,
        member_count_max=max(so_far.member_count_max, more.member_count_max),
    )


def _distinct(columns: Sequence[tuple[I64, I64]]) -> tuple[list[tuple[int, int]], list[I64]]:
    """The distinct pairs, in order, and for each of the columns the indices into them."""
    first = np.concatenate([pair[0] for pair in columns])
    second = np.concatenate([pair[1] for pair in columns])
    if not len(first):
        return [], [first for _ in columns]
    # days and share partitions are few: one number for a pair spares a sort by two columns
    lowest = int(second.min())
    span = int(second.max()) - lowest + 1
    codes, index = distinct(first * span + (second - lowest))
    places = [(int(code) // span, int(code) % span + lowest) for code in codes.tolist()]
    return places, np.split(index, np.cumsum([len(pair[0]) for pair in columns])[:-1])


@compiled
def _add_up(place: I64, offset_count: I64, log_offset: I64, to_log_offset: int, sums: I64) -> None:
    """Add the counts of records before a log offset to the sums of their places, up to the greatest number."""
    for row in range(len(place)):
        if log_offset[row] < to_log_offset:
            left = INT64_MAX - sums[place[row]]
            sums[place[row]] += min(offset_count[row], left)
