"""The group part of gold: owners, rebalances, commit anomalies and days of one group."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.errors import PastTooShort
from coordinator_core.history.rows import AssignmentRow
from coordinator_core.inference.audit.audit_watermark import (
    AuditWatermark,
    newest_watermark,
    since,
    unowned_before,
    with_past,
)
from coordinator_core.inference.audit.days import (
    NO_DAY,
    NOTHING_BEFORE,
    DayCounts,
    commit_days,
    group_days,
    late_counts,
    share_group_days,
)
from coordinator_core.inference.audit.group_past import GroupBefore, GroupFacts, group_facts, kept_commits
from coordinator_core.inference.commits.commit_anomalies import applied_by_partition, find_anomalies
from coordinator_core.inference.commits.deletions import NOTHING_REMOVED, Removed
from coordinator_core.inference.commits.last_commit_times import Membership, Times, last_commit_times
from coordinator_core.inference.facts.clock import shown_at, with_times
from coordinator_core.inference.facts.configs import NO_CONFIGS, Configs
from coordinator_core.inference.facts.life import GroupLife
from coordinator_core.inference.facts.rows import AnomalyRow, GroupDayRow, OwnerRow, RebalanceRow, ShareGroupDayRow
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.groups.handovers import Handovers, require_no_return
from coordinator_core.inference.groups.join_phases import JoinPhases
from coordinator_core.inference.groups.leave_reasons import LeaveReasons, find_leave_reasons, find_replaced
from coordinator_core.inference.groups.owners import partition_owners, unread_places
from coordinator_core.inference.groups.rebalances import find_rebalances
from schemas.group_types import GroupType


@dataclass(slots=True)
class GroupGold:
    """Gold rows of groups. `share_days` has what `__consumer_offsets` shows of the days of share groups."""

    owners: list[OwnerRow] = field(default_factory=list)
    rebalances: list[RebalanceRow] = field(default_factory=list)
    anomalies: list[AnomalyRow] = field(default_factory=list)
    days: list[GroupDayRow] = field(default_factory=list)
    share_days: list[ShareGroupDayRow] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(len(getattr(self, name)) for name in KINDS_OF_GOLD)

    def extend(self, other: "GroupGold") -> None:
        for name in KINDS_OF_GOLD:
            getattr(self, name).extend(getattr(other, name))


KINDS_OF_GOLD: Final = tuple(item.name for item in fields(GroupGold))


@dataclass(frozen=True, slots=True)
class Judged:
    """What is inferred for one group, and what to keep of it."""

    life: GroupLife
    """Its rows in log order, as far as they were needed."""
    gold: GroupGold
    past: GroupFacts
    commit_times: Mapping[Membership, Times]
    kept: I64
    """Which of its commits to keep."""
    late: Mapping[int, DayCounts] = field(default_factory=dict)
    """What to add to its days until then."""
    watermark: AuditWatermark | None = None
    """From where the next audit may continue."""


def audit_group(life: GroupLife, settings: InferenceSettings, configs: Configs = NO_CONFIGS) -> GroupGold:
    """Everything that is inferred for one group. A function of the set of rows: their order does not matter."""
    return judge_group(in_order(life), settings, configs).gold


def judge_group(
    life: GroupLife,
    settings: InferenceSettings,
    configs: Configs = NO_CONFIGS,
    before: GroupBefore | None = None,
    removed: Removed = NOTHING_REMOVED,
) -> Judged:
    """Everything that is inferred for one group, given its rows in log order (`in_order`).

    `before`: what the last audit kept of it. Then the anomalies are only those of new commits. Raises PastTooShort
    if the group has to be judged from its beginning. `removed`: topics that were removed according to the metadata
    log.
    """
    life = with_times(life)
    if before is not None and life.timeless:
        raise PastTooShort("records without a time are judged with those around them")
    came_from = None if before is None else before.watermark
    is_new, place, commit_times_before, days = None, 0, NO_TIMES, NOTHING_BEFORE
    departed_before: LeaveReasons = {}
    if before is not None:
        life = life if came_from is None else since(life, came_from)
        before.require_enough(life, settings)
        require_no_return(life, before.from_log_offset, settings)
        place, commit_times_before, days, departed_before = (
            before.from_log_offset,
            before.commit_times,
            before.days,
            before.leave_reasons(life),
        )
        # for a group that never committed, all commits are present
        is_new = before.is_new if before.past.first_log_offset >= 0 else None
    owners = partition_owners(life)
    if came_from is not None:
        owners = with_past(owners, came_from, unread_places(life))
    applied = applied_by_partition(life.commits)
    commit_times = last_commit_times(life.commits, owners, life.members, commit_times_before, place, applied)
    join_phases = JoinPhases(life, owners, commit_times_before)
    leave_reasons = find_leave_reasons(life, commit_times, join_phases, settings, configs, departed_before)
    replaced = find_replaced(life, commit_times, departed_before)
    rebalances = find_rebalances(life, owners, leave_reasons, settings, *unowned_before(came_from), configs, replaced)
    known = {} if before is None else before.past.handovers
    handovers = Handovers(life, owners, leave_reasons, settings, configs, commit_times_before, known, place).found(
        rebalances.windows
    )
    rebalances = rebalances.with_handovers(handovers)
    owners = [
        row if row.unowned_partition_ms == ms else row._replace(unowned_partition_ms=ms)
        for row, ms in zip(owners, rebalances.unowned.by_owner, strict=True)
    ]
    if came_from is not None:
        rebalances = rebalances.after(came_from.generation_at)
    anomalies = find_anomalies(life, owners, settings, is_new, removed, applied)
    watermark = None if life.timeless else newest_watermark(life, owners, rebalances, settings, came_from)
    past = group_facts(life, leave_reasons | replaced, before, watermark, handovers)
    kept = kept_commits(life.commits, applied, past.emptied_since)
    del applied  # one number for each commit
    types = {row.group_type for row in life.generations} | {row.group_type for row in life.members}
    committed = commit_days(life.commits, is_new)
    settled_day, late = NO_DAY, dict[int, DayCounts]()
    if came_from is not None and before is not None:
        had_days = before.past.first_log_offset >= 0 or bool(came_from.group_types - {GroupType.SHARE})
        types |= came_from.group_types
        settled_day = came_from.day
        late = late_counts(committed, anomalies, settled_day)
        has_days = past.first_log_offset >= 0 or bool(types - {GroupType.SHARE})
        if not late.keys() <= days.keys() or has_days > had_days:
            raise PastTooShort("settled days have no rows")
    gold = GroupGold(
        owners=_as_shown(owners, life),
        rebalances=list(rebalances.rows),
        anomalies=anomalies,
        days=group_days(life, rebalances.unowned.by_day, rebalances.rows, anomalies, committed, days, settled_day)
        if types - {GroupType.SHARE} or past.first_log_offset >= 0
        else [],
        share_days=share_group_days(life, settled_day) if GroupType.SHARE in types else [],
    )
    return Judged(life, gold, past, commit_times, kept, late, watermark)


def _as_shown(owners: list[OwnerRow], life: GroupLife) -> list[OwnerRow]:
    if not life.timeless:
        return owners
    return [
        row._replace(
            valid_from=shown_at(life, row.from_log_offset, row.valid_from),
            valid_to=None if row.valid_to is None else shown_at(life, row.to_log_offset, row.valid_to),
        )
        for row in owners
    ]


NO_TIMES: Final[Mapping[Membership, Times]] = {}


def in_order(life: GroupLife) -> GroupLife:
    """Rows in log order, as silver's reader returns them; commits are columns, and already in order."""
    return life._replace(
        generations=tuple(
            sorted(life.generations, key=lambda row: (row.from_log_offset, row.incarnation, row.generation))
        ),
        members=tuple(sorted(life.members, key=lambda row: (row.from_log_offset, row.member_id))),
        assignments=tuple(sorted(life.assignments, key=_assignment_order)),
        events=tuple(sorted(life.events, key=lambda row: (row.log_offset, row.event_index))),
    )


def _assignment_order(row: AssignmentRow) -> tuple[int, str, str, str, int, str, str]:
    return (
        row.from_log_offset,
        row.member_id,
        row.topic_id or "",
        row.topic or "",
        row.partition,
        row.assignment,
        row.task_type or "",
    )
