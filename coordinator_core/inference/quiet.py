"""Groups of which more commits change nothing but counts.

Most of what is new in a night is commits that move on, as all before. An audit has no need to look at such a group
again: what it said of owners, rebalances and odd commits stays, and the commits are added to the counts of their days.
A commit is looked at, with all of its group, where

* it is not applied, is of a transaction, repeats an offset, goes back, deletes, or jumps by `skip_offset_count`;
* it may be the first one to a partition again after the group was deleted (`broken_rules`);
* anything before makes every commit to the group count: members that all went, commits without any member, jumps by
  which later ones are measured, transactions that had not ended (`Quiet.is_watched`).
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from coordinator_core.inference.commit_anomalies import (
    ADVANCE,
    APPLIED,
    DELETE,
    FIRST,
    GenerationsAt,
)
from coordinator_core.inference.days import DAY_MS, UNKNOWN_TYPE
from coordinator_core.inference.life import GroupCommits, GroupLife
from coordinator_core.inference.rows import GroupDayRow
from coordinator_core.inference.settings import InferenceSettings
from coordinator_core.log.chunk import I64, BoolArray
from coordinator_core.offsets.lane import OUTCOMES

PENDING: Final = OUTCOMES.index("PENDING")


class Quiet(NamedTuple):
    """What decides whether a further commit of a group changes more than counts."""

    has_pending: bool
    """A transaction had not ended: what it did is told by a later record of its own."""
    is_watched: bool
    """Every commit does."""
    was_deleted: bool
    """The group was deleted at some time."""
    changed_ms: int
    """When a member came or went last; -1: never."""
    member_count: int
    """Members since."""
    typed_ms: int
    """When its newest generation began; -1: it has none."""
    group_type: str
    """Its type since."""

    @classmethod
    def of(cls, life: GroupLife, settings: InferenceSettings) -> "Quiet":
        """After all that is known of a group."""
        changes = [row.valid_from for row in life.members]
        changes += [row.valid_to for row in life.members if row.valid_to is not None]
        newest = max(
            life.generations, key=lambda row: (row.from_log_offset, row.incarnation, row.generation), default=None
        )
        return cls(
            has_pending=bool((life.commits.outcome == PENDING).any()),
            is_watched=_is_watched(life, settings),
            was_deleted=any(event.event_type == "GROUP_DELETED" for event in life.events),
            changed_ms=max(changes, default=-1),
            member_count=sum(row.valid_to is None for row in life.members),
            typed_ms=max((row.valid_from for row in life.generations), default=-1),
            group_type=UNKNOWN_TYPE if newest is None else newest.group_type,
        )

    def day(self, group_id: str, day: int, commit_count: int) -> GroupDayRow | None:
        """A day of which nothing else is known than commits; None: it may have been before something else."""
        if day < self.changed_ms or day + DAY_MS <= self.typed_ms:
            return None
        return GroupDayRow(
            group_id=group_id,
            group_type=self.group_type,
            day=day,
            generation_count=0,
            rebalance_count=0,
            member_count_max=self.member_count,
            commit_count=commit_count,
            commit_anomaly_count=0,
            not_stable_ms=0,
            storm_rebalance_count=0,
            unowned_partition_ms=0,
            worst_topic=None,
            worst_partition=None,
        )


def _is_watched(life: GroupLife, settings: InferenceSettings) -> bool:
    commits = life.commits
    delta = commits.committed_offset - commits.previous_offset
    if ((commits.change == ADVANCE) & (delta >= settings.skip_offset_count)).any():
        return True
    is_plain = (commits.outcome == APPLIED) & ~commits.is_transactional
    if (is_plain & (commits.change == FIRST))[commits.change != DELETE].all():
        # put there once and never moved: while that holds, what it means may turn with the next commit
        return True
    end = np.array([np.iinfo(np.int64).max - 1], np.int64)
    is_emptied, _ = GenerationsAt(life.generations, life.events).emptied(end)
    return bool(is_emptied[0])


def is_noted(
    commits: GroupCommits, group: I64, quiet: Sequence[Quiet | None], settings: InferenceSettings
) -> BoolArray:
    """Which of some new commits, `group[i]` the index of each one's group, change more than counts."""
    watched = np.array([one is None or one.is_watched for one in quiet], np.bool_)
    deleted = np.array([one is None or one.was_deleted for one in quiet], np.bool_)
    delta = commits.committed_offset - commits.previous_offset
    is_usual = (commits.outcome == APPLIED) & ~commits.is_transactional
    is_advance = (commits.change == ADVANCE) & (delta >= 0) & (delta < settings.skip_offset_count)
    is_usual &= is_advance | ((commits.change == FIRST) & ~deleted[group])
    noted: BoolArray = ~is_usual | watched[group]
    return noted


def commit_counts(commits: GroupCommits, group: I64, group_ids: Sequence[str]) -> Mapping[tuple[str, int], int]:
    """How many commits were applied, by group and first instant of the day; those without a time are of no day."""
    has_day = commits.applied_at_ms >= 0
    pairs = np.stack((group[has_day], commits.applied_at_ms[has_day] // DAY_MS))
    places, counts = np.unique(pairs, axis=1, return_counts=True)
    return {
        (group_ids[code], day * DAY_MS): count
        for (code, day), count in zip(places.T.tolist(), counts.tolist(), strict=True)
    }
