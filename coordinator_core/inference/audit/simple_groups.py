"""Judges groups that only committed, many at a time.

A log may have hundreds of thousands of groups with a few commits each: of consumers that assign their partitions
themselves, or groups of which compaction left nothing else. If a log has only a group's commits and its beginning at
the first of them, and no commit is significant (`commits_only.may_change_more`), gold has the group's days; and if its
offsets were set once and never moved, that they may come from a tool. Columns then give for all such groups at once
what `groups.judge_group` would give for each.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from coordinator_core.bytes.log.chunk import BoolArray
from coordinator_core.inference.audit.commits_only import commit_counts, day_of_commits, may_change_more
from coordinator_core.inference.audit.days import UNKNOWN_TYPE, DayCounts
from coordinator_core.inference.audit.group_past import GroupedCommits, GroupFacts, kept_commits
from coordinator_core.inference.commits.commit_anomalies import APPLIED, FIRST, SET_ONCE, applied_by_partition
from coordinator_core.inference.facts.calendar import DAY_MS
from coordinator_core.inference.facts.clock import is_time
from coordinator_core.inference.facts.log_facts import NONE_MS, WHOLE
from coordinator_core.inference.facts.rows import AnomalyRow, GroupDayRow
from coordinator_core.inference.facts.settings import InferenceSettings

SIMPLE_GROUP_COMMITS_MAX: Final = 1 << 12
"""A group with more commits is judged alone, which takes less memory and no more time."""


BEGINNING_EVENTS: Final = ("GROUP_CREATED", "GENERATION_STARTED")


class Beginning(NamedTuple):
    """The only generation (0) of a classic group that never had members, begun by the events in `BEGINNING_EVENTS` and
    not ended."""

    created_at: int
    """Log offset of the first record."""
    from_log_offset: int
    valid_from: int
    event_ms: int
    """When the last of these events was; -1: there are none."""


UNKNOWN: Final = Beginning(-1, -1, -1, -1)
"""Only commits are known."""


@dataclass(frozen=True, slots=True)
class SimpleGroups:
    """What is inferred for simple groups, and what to keep of them."""

    pasts: dict[str, GroupFacts]
    anomalies: list[AnomalyRow]
    days: list[GroupDayRow]
    kept: GroupedCommits


def judge_simple_groups(
    grouped: GroupedCommits,
    beginnings: Mapping[str, Beginning],
    known: Set[str],
    settings: InferenceSettings,
    whole_to: int = WHOLE,
) -> SimpleGroups:
    """Judge the simple groups among some groups; the others are not in `pasts`.

    `grouped`: all commits of these groups. `known`: groups with other rows in silver; `beginnings`: of those among them
    whose only other rows are the beginning.
    """
    counts = np.bincount(grouped.group, minlength=len(grouped.group_ids))
    is_plain = (counts > 0) & (counts <= SIMPLE_GROUP_COMMITS_MAX)
    is_plain &= np.array([text in beginnings or text not in known for text in grouped.group_ids], np.bool_)
    grouped = _of(grouped, is_plain)
    commits, group = grouped.commits, grouped.group
    applied = applied_by_partition(commits, group)
    is_plain[group[may_change_more(commits, applied, settings)]] = False
    is_plain &= _is_like(grouped, beginnings)
    kept = kept_commits(commits, applied, group)
    kept = kept[is_plain[group[kept]]]
    plain = _of(grouped, is_plain)
    pasts = _facts(plain, beginnings)
    anomalies = _set_once(plain, pasts, whole_to)
    return SimpleGroups(pasts, anomalies, _days(plain, pasts, anomalies), grouped.taken(kept))


def _is_like(grouped: GroupedCommits, beginnings: Mapping[str, Beginning]) -> BoolArray:
    """For each group, whether it began before its commits, and all commits that took effect have a time."""
    commits, group = grouped.commits, grouped.group
    created_at = np.array([beginnings.get(text, UNKNOWN).created_at for text in grouped.group_ids], np.int64)
    is_like = np.ones(len(created_at), np.bool_)
    is_like[group[commits.log_offset < created_at[group]]] = False
    is_like[group[(commits.outcome == APPLIED) & (commits.applied_at_ms == NONE_MS)]] = False
    return is_like


def _set_once(plain: GroupedCommits, pasts: Mapping[str, GroupFacts], whole_to: int) -> list[AnomalyRow]:
    """Like `commit_anomalies.find_anomalies`, for commits to groups that are known to be empty."""
    is_found = np.zeros(len(plain.group_ids), np.bool_)
    for code in np.unique(plain.group).tolist():
        past = pasts[plain.group_ids[code]]
        is_found[code] = past.is_set_once and past.is_memberless
    is_found[plain.group[plain.commits.log_offset > whole_to]] = False
    found = plain.taken(is_found[plain.group])
    commits = found.commits
    columns = commits.topic, commits.partition, commits.log_offset, commits.applied_at_ms, commits.committed_offset
    return [
        AnomalyRow(
            group_id=found.group_ids[code],
            group_type=UNKNOWN_TYPE,
            topic=commits.topics[topic],
            partition=partition,
            log_offset=log_offset,
            at=at_ms,
            kind=SET_ONCE.kind,
            from_offset=None,
            to_offset=committed_offset,
            delta=None,
            owner_member_id=None,
            owner_client_host=None,
            was_group_empty=True,
            likely_cause=None,
            method=SET_ONCE.claim.method,
            confidence=SET_ONCE.claim.confidence,
        )
        for code, topic, partition, log_offset, at_ms, committed_offset in zip(
            found.group.tolist(), *(column.tolist() for column in columns), strict=True
        )
    ]


def _days(plain: GroupedCommits, pasts: Mapping[str, GroupFacts], anomalies: Iterable[AnomalyRow]) -> list[GroupDayRow]:
    """Like `days.group_days`."""
    counts = commit_counts(plain.commits, plain.group, plain.group_ids)
    begun = {
        (group_id, past.typed_ms // DAY_MS * DAY_MS)
        for group_id, past in pasts.items()
        if past.is_memberless and is_time(past.typed_ms)
    }
    odd = Counter((row.group_id, row.at // DAY_MS * DAY_MS) for row in anomalies if is_time(row.at))
    return [
        day_of_commits(
            *place,
            DayCounts(counts.get(place, 0), odd[place]),
            UNKNOWN_TYPE,
            generation_count=int(place in begun),
        )
        for place in counts.keys() | begun
    ]


def _of(grouped: GroupedCommits, is_wanted: BoolArray) -> GroupedCommits:
    return grouped if is_wanted.all() else grouped.taken(is_wanted[grouped.group])


def _facts(plain: GroupedCommits, beginnings: Mapping[str, Beginning]) -> dict[str, GroupFacts]:
    """Like `group_past.group_facts`, for groups with commits."""
    commits = plain.commits
    is_first = (commits.outcome == APPLIED) & (commits.change == FIRST) & ~commits.is_transactional
    has_others = np.bincount(plain.group[~is_first], minlength=len(plain.group_ids)) > 0
    begins = np.flatnonzero(np.diff(plain.group, prepend=-1))
    codes = plain.group[begins]
    columns = codes.tolist(), commits.log_offset[begins].tolist(), (~has_others[codes]).tolist()
    return {
        plain.group_ids[code]: _facts_of(beginnings.get(plain.group_ids[code], UNKNOWN), first_log_offset, is_set_once)
        for code, first_log_offset, is_set_once in zip(*columns, strict=True)
    }


def _facts_of(beginning: Beginning, first_log_offset: int, is_set_once: bool) -> GroupFacts:
    return GroupFacts(
        first_log_offset=first_log_offset,
        is_set_once=is_set_once,
        newest_since=beginning.from_log_offset,
        is_memberless=beginning is not UNKNOWN,
        event_ms=beginning.event_ms,
        typed_ms=beginning.valid_from,
    )
