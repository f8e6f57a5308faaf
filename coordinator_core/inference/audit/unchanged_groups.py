"""Groups whose membership is unchanged but which have at least one new commit that may be an anomaly.

An offset went back, was deleted, or stayed for long; members and generations are unchanged, and earlier results about
them stay. What such a commit is depends on the current state of the group, which its open rows in silver show: its
newest generation, its members, and what they own. Where that is not enough, the group is judged like all others with
new records (`may_be_unchanged`), or from its beginning (PastTooShort).
"""

from typing import NamedTuple

import numpy as np

from coordinator_core.bytes.log.chunk import BoolArray
from coordinator_core.errors import PastTooShort
from coordinator_core.inference.audit.group_past import GroupBefore, GroupedCommits, GroupFacts
from coordinator_core.inference.commits.commit_anomalies import APPLIED, DELETE, find_anomalies
from coordinator_core.inference.commits.deletions import NOTHING_REMOVED, Removed
from coordinator_core.inference.facts.clock import lacks_times
from coordinator_core.inference.facts.life import GroupCommits, GroupLife
from coordinator_core.inference.facts.rows import AnomalyRow
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.groups.owners import partition_owners
from schemas.group_types import GroupType


class Unchanged(NamedTuple):
    """What is inferred for the new commits of a group with unchanged membership, and what to keep of it."""

    anomalies: list[AnomalyRow]
    past: GroupFacts


def may_be_unchanged(past: GroupFacts | None) -> bool:
    """Whether the open rows of a group that has only new commits are enough to judge these.

    They are not if the group was deleted or never committed; nor during a rebalance, because it needs the rebalance's
    events. What members of a streams group read depends on rows that have ended.
    """
    return (
        past is not None
        and past.first_log_offset >= 0
        and past.is_over
        and past.newest_since >= past.deleted_at
        and past.group_type != GroupType.STREAMS
    )


def decided_late(new: GroupedCommits, from_log_offset: int) -> set[str]:
    """Groups with new commits from before a log offset, whose transactions were open there: the members of that time
    may be gone."""
    codes = np.unique(new.group[new.commits.log_offset < from_log_offset])
    return {new.group_ids[code] for code in codes.tolist()}


def judge_unchanged(
    life: GroupLife, settings: InferenceSettings, before: GroupBefore, removed: Removed = NOTHING_REMOVED
) -> Unchanged:
    """Judge the new commits of a group. `life`: its open rows, with the kept earlier commits and the
    new ones. `before` needs no watermark.

    Raises PastTooShort if the group has to be judged from its beginning.
    """
    if lacks_times(life):
        raise PastTooShort("records without a time are judged with those around them")
    before.require_enough(life, settings)
    owners = partition_owners(life)
    if any(row.is_double for row in owners):
        raise PastTooShort("which of two owners had a partition first is in rows that have ended")
    anomalies = find_anomalies(life, owners, settings, before.is_new, removed=removed)
    return Unchanged(anomalies, _facts(before.past, life.commits, before.is_new))


def _facts(past: GroupFacts, commits: GroupCommits, is_new: BoolArray) -> GroupFacts:
    """Like `group_past.group_facts`, after the new commits."""
    is_deletion = is_new & commits.is_tombstone
    is_plain = is_new & (commits.outcome == APPLIED) & (commits.change < DELETE) & ~commits.is_transactional
    recorded_at_ms = commits.recorded_at_ms
    return past._replace(
        has_committed_empty=past.has_committed_empty or (past.emptied_since >= 0 and bool(is_plain.any())),
        # each tombstone is an event, whatever its outcome
        event_ms=int(recorded_at_ms[is_deletion][-1]) if is_deletion.any() else past.event_ms,
        tombstone_ms=int(recorded_at_ms[is_deletion][-1]) if is_deletion.any() else past.tombstone_ms,
    )
