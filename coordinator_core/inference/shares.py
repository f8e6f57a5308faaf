"""The share side of gold: redeliveries, archived records and days of the share partitions of one log partition.

Everything here is columns: there may be millions of records. Rows of silver come in any order and are sorted by log
offset; in one partition of `__share_group_state` a log offset names one record of one share partition.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np

from coordinator_core.inference.archived import ArchivedColumns, archived_records
from coordinator_core.inference.columns import distinct
from coordinator_core.inference.configs import Configs
from coordinator_core.inference.evidence import Evidence
from coordinator_core.inference.redeliveries import RedeliveryColumns, redeliveries
from coordinator_core.inference.rows import ShareGroupDayRow
from coordinator_core.inference.settings import InferenceSettings
from coordinator_core.inference.share_log import ShareKeys, ShareLog, ShareMembers
from coordinator_core.log.chunk import I64
from coordinator_core.share_state.lane import TRANSITION_KINDS

SHARE: Final = "SHARE"
DAY_MS: Final = 24 * 60 * 60 * 1000
INT64_MAX: Final = 2**63 - 1

_ACKNOWLEDGED: Final = TRANSITION_KINDS.index("ACKNOWLEDGED")


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


class ShareAudit(NamedTuple):
    """What is to be said of the share partitions of one log partition."""

    redeliveries: RedeliveryColumns
    archived: ArchivedColumns
    days: list[ShareDay]


def audit_share_log(log: ShareLog, configs: Configs, members: ShareMembers, settings: InferenceSettings) -> ShareAudit:
    """Redeliveries, archived records and days."""
    evidence = Evidence.of(log, configs, members, settings)
    given_again = redeliveries(log, evidence)
    given_up = archived_records(log, evidence, configs)
    return ShareAudit(given_again, given_up, _days(log, given_again, given_up))


@dataclass(frozen=True, slots=True)
class _Counted:
    """Offset ranges to be counted by group, day and share partition."""

    key: I64
    day: I64
    offset_count: I64

    @classmethod
    def of(cls, key: I64, at_ms: I64, first_offset: I64, last_offset: I64) -> Self:
        length = last_offset - first_offset + 1
        has_day = at_ms >= 0
        # a range of all offsets is one longer than an int64 holds
        offset_count = np.where(length > 0, length, INT64_MAX)
        return cls(key[has_day], at_ms[has_day] // DAY_MS, offset_count[has_day])


def _days(log: ShareLog, given_again: RedeliveryColumns, given_up: ArchivedColumns) -> list[ShareDay]:
    changes = log.transitions
    is_acknowledged = changes.kind == _ACKNOWLEDGED
    row = log.state_of_transition[is_acknowledged]
    counted = (
        _Counted.of(
            log.states.key[row],
            log.states.at_ms[row],
            changes.first_offset[is_acknowledged],
            changes.last_offset[is_acknowledged],
        ),
        _Counted.of(given_again.key, given_again.at_ms, given_again.first_offset, given_again.last_offset),
        _Counted.of(given_up.key, given_up.at_ms, given_up.first_offset, given_up.last_offset),
    )
    places, index = _distinct([(log.keys.group[one.key], one.day) for one in counted])
    sums = [_sums(indices, one.offset_count, len(places)) for one, indices in zip(counted, index, strict=True)]
    worst = _worst_partitions(log.keys, counted[2])
    return [
        ShareDay(log.keys.group_ids[code], day * DAY_MS, acknowledged, redelivered, archived, worst.get((code, day)))
        for (code, day), acknowledged, redelivered, archived in zip(places, *sums, strict=True)
    ]


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


def _sums(index: I64, offset_count: I64, size: int) -> list[int]:
    """Sums by index; floating point until here, so that absurd ranges cannot wrap."""
    sums = np.bincount(index, offset_count.astype(np.float64), size)
    return [min(int(value), INT64_MAX) for value in sums.tolist()]


def _worst_partitions(keys: ShareKeys, given_up: _Counted) -> dict[tuple[int, int], tuple[int, str, int]]:
    """`ShareDay.worst` by group and day number."""
    places, (index,) = _distinct([(given_up.key, given_up.day)])
    worst: dict[tuple[int, int], tuple[int, str, int]] = {}
    for (key, day), offset_count in zip(places, _sums(index, given_up.offset_count, len(places)), strict=True):
        place = int(keys.group[key]), day
        one = -offset_count, keys.topics[key] or "", int(keys.partition[key])
        worst[place] = min(worst.get(place, one), one)
    return worst
