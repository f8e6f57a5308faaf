"""Groups for which new commits change nothing but counts.

Most of what is new in a night is commits that advance as usual, or stay. An audit need not judge such a group again:
its owners, rebalances and commit anomalies stay, and the commits are added to the counts of their days. A commit is
judged, with its group, where

* it is aborted, goes back, deletes, skips, or has stayed for `stalled_ms`;
* it may be the first one to a partition after the group was deleted (`log_anomalies`), or after a topic of it was;
* it may go on with an operation that was judged without it (`goes_on`);
* the past makes every commit to the group significant (`GroupFacts.is_watched`).
"""

from collections.abc import Mapping, Sequence

import numpy as np

from coordinator_core.bytes.log.chunk import I64, BoolArray
from coordinator_core.inference.audit.days import DayCounts
from coordinator_core.inference.audit.group_past import GroupedCommits, GroupFacts, goes_on
from coordinator_core.inference.commits.commit_anomalies import (
    ABORTED,
    FIRST,
    REWIND,
    applied_by_partition,
    skips,
    stalled,
)
from coordinator_core.inference.facts.calendar import DAY_MS
from coordinator_core.inference.facts.columns import distinct
from coordinator_core.inference.facts.life import GroupCommits
from coordinator_core.inference.facts.rows import GroupDayRow
from coordinator_core.inference.facts.settings import InferenceSettings


def is_noted(
    grouped: GroupedCommits, is_new: BoolArray, pasts: Mapping[str, GroupFacts], settings: InferenceSettings
) -> BoolArray:
    """Which of the commits (`is_new` and kept earlier ones) may change more than counts."""
    commits, group = grouped.commits, grouped.group
    known = [pasts.get(group_id) for group_id in grouped.group_ids]
    watched = np.array([past is None or past.is_watched for past in known], np.bool_)
    deleted = np.array([past is None or past.deleted_at >= 0 for past in known], np.bool_)
    noted: BoolArray = (commits.outcome == ABORTED) | (commits.change == REWIND) | commits.is_tombstone
    applied = applied_by_partition(commits, group)
    for rows in (skips(commits, applied, settings), stalled(commits, applied, settings)):
        noted[list(rows)] = True
    noted |= ((commits.change == FIRST) & deleted[group]) | watched[group] | goes_on(commits, is_new, group)
    return noted & is_new


def day_of_commits_only(past: GroupFacts, group_id: str, day: int, counts: DayCounts) -> GroupDayRow | None:
    """A day about which only commits are known; None if it may be earlier than some other change."""
    if day < past.changed_ms or day + DAY_MS <= past.typed_ms:
        return None
    return GroupDayRow(
        group_id=group_id,
        group_type=past.group_type,
        day=day,
        member_count_max=past.member_count,
        **counts._asdict(),
    )


def commit_counts(commits: GroupCommits, group: I64, group_ids: Sequence[str]) -> Mapping[tuple[str, int], int]:
    """How many commits were applied, by group and first instant of the day. Commits without a time count for no day."""
    has_day = commits.applied_at_ms >= 0
    group, day = group[has_day], commits.applied_at_ms[has_day] // DAY_MS
    if not len(day):
        return {}
    # the product cannot overflow: no two days are far enough apart
    lowest, span = int(day.min()), int(day.max()) - int(day.min()) + 1
    pairs, pair = distinct(group * span + (day - lowest))
    codes, days = np.divmod(pairs, span)
    counts = np.bincount(pair, minlength=len(pairs))
    places = zip(codes.tolist(), ((days + lowest) * DAY_MS).tolist(), strict=True)
    return {(group_ids[code], day): count for (code, day), count in zip(places, counts.tolist(), strict=True)}
