"""gold.share_group_summary: the days of share groups, from the logs of both coordinator topics.

Counts are kept by share partition and day. The kept part grows, and a night adds a few rows, so they are columns.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, NamedTuple, Self

import numpy as np

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.bytes.log.kernels import compiled
from coordinator_core.inference.facts.calendar import DAY_MS
from coordinator_core.inference.facts.columns import distinct_pairs
from coordinator_core.inference.facts.rows import ShareGroupDayRow
from schemas.group_types import GroupType

INT64_MAX: Final = 2**63 - 1


class SharePlace(NamedTuple):
    group_id: str
    topic_id: str
    partition: int
    topic: str | None
    """The name of the topic, if known."""


_KEY: Final = itemgetter(slice(3))
"""Identifies a share partition."""


COUNTED: Final = (
    "acknowledged_count",
    "redelivered_count",
    "records_redelivered",
    "extra_deliveries",
    "archived_count",
    "records_given_up",
    "offset_change_count",
    "never_delivered_count",
    "delivered_again_count",
)
"""The columns of gold.share_group_summary that are sums over share partitions."""
ARCHIVED: Final = COUNTED.index("archived_count")


@dataclass(frozen=True, slots=True)
class ShareCounts:
    """What `COUNTED` names, by share partition and day: one row for each pair, sorted. No sum exceeds INT64_MAX."""

    places: tuple[SharePlace, ...]
    """Sorted."""
    place: I64
    day: I64
    """Days since 1970, in UTC."""
    numbers: I64
    """A row for each of `COUNTED`, with an element for each pair."""

    def __len__(self) -> int:
        return len(self.place)

    @classmethod
    def together(cls, parts: Sequence["ShareCounts"]) -> Self:
        """The sums of all parts. A topic's name is taken from the last part that has one."""
        named: dict[tuple[str, str, int], SharePlace] = {}
        for part in parts:
            for one in part.places:
                before = named.get(_KEY(one))
                named[_KEY(one)] = one if before is None or one.topic is not None else before
        places = tuple(named[key] for key in sorted(named))
        numbers = {_KEY(one): number for number, one in enumerate(places)}
        codes = [np.array([numbers[_KEY(one)] for one in part.places], np.int64)[part.place] for part in parts]
        days = np.concatenate([_NONE, *(part.day for part in parts)])
        place, day, row = distinct_pairs(np.concatenate([_NONE, *codes]), days)
        counts = np.concatenate([NO_COUNTS.numbers, *(part.numbers for part in parts)], axis=1)
        return cls(places, place, day, np.array([sums(row, of_name, len(place)) for of_name in counts]))

    def of_groups(self, group_ids: Set[str]) -> "ShareCounts":
        is_kept = np.array([one.group_id in group_ids for one in self.places], np.bool_)
        number, rows = np.cumsum(is_kept) - 1, is_kept[self.place]
        places = tuple(one for one in self.places if one.group_id in group_ids)
        return ShareCounts(places, number[self.place[rows]], self.day[rows], self.numbers[:, rows])


_NONE: Final = np.zeros(0, np.int64)
NO_COUNTS: Final = ShareCounts((), _NONE, _NONE, np.zeros((len(COUNTED), 0), np.int64))


@compiled
def sums(code: I64, numbers: I64, code_count: int) -> I64:
    """Sums of non-negative numbers by code, capped at INT64_MAX."""
    found = np.zeros(code_count, np.int64)
    for row in range(len(code)):
        found[code[row]] += min(numbers[row], INT64_MAX - found[code[row]])
    return found


def merged_days(counts: Sequence[ShareCounts], group_days: Iterable[ShareGroupDayRow]) -> list[ShareGroupDayRow]:
    """Rows of gold.share_group_summary, by group and day, from the logs of both coordinator topics.

    `group_days`: generations and members, the other columns 0. The worst partition is the one with the most archived
    offsets, on a tie the first by topic and number.
    """
    found = {(row.group_id, row.day): row for row in _of_share_partitions(ShareCounts.together(counts))}
    for row in group_days:
        so_far = found.get((row.group_id, row.day))
        found[row.group_id, row.day] = row if so_far is None else _with_members(so_far, row)
    return [found[place] for place in sorted(found)]


def _with_members(so_far: ShareGroupDayRow, more: ShareGroupDayRow) -> ShareGroupDayRow:
    return so_far._replace(
        generation_count=so_far.generation_count + more.generation_count,
        rebalance_count=so_far.rebalance_count + more.rebalance_count,
        member_count_max=max(so_far.member_count_max, more.member_count_max),
    )


def _of_share_partitions(counts: ShareCounts) -> list[ShareGroupDayRow]:
    """The rows from share partitions only."""
    group_ids = sorted({one.group_id for one in counts.places})
    numbers = {group_id: number for number, group_id in enumerate(group_ids)}
    group = np.array([numbers[one.group_id] for one in counts.places], np.int64)[counts.place]
    of_pairs, days, pair = distinct_pairs(group, counts.day)
    columns = (sums(pair, column, len(days)) for column in counts.numbers)
    worst = _worst(counts, pair, len(days))
    rows = zip(*(column.tolist() for column in (of_pairs, days, worst, *columns)), strict=True)
    return [
        ShareGroupDayRow(
            group_ids[number], GroupType.SHARE, day * DAY_MS, **dict(zip(COUNTED, sums_of_day, strict=True))
        )._replace(worst_topic=topic, worst_partition=partition)
        for number, day, place, *sums_of_day in rows
        for topic, partition in [_named(counts, place)]
    ]


def _worst(counts: ShareCounts, pair: I64, pair_count: int) -> I64:
    """For each group and day, the share partition with the most archived offsets; -1 if none has any."""
    names = [(one.topic or "", one.partition) for one in counts.places]
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    archived = counts.numbers[ARCHIVED]
    rows = np.flatnonzero(archived)
    rows = rows[np.lexsort((rank[counts.place[rows]], -archived[rows], pair[rows]))]
    found = np.full(pair_count, -1, np.int64)
    found[pair[rows[::-1]]] = counts.place[rows[::-1]]
    return found


def _named(counts: ShareCounts, place: int) -> tuple[str | None, int | None]:
    """Topic and partition; both None for -1."""
    return (None, None) if place < 0 else (counts.places[place].topic or None, counts.places[place].partition)
