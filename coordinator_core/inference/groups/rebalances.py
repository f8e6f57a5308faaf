"""gold.rebalances: one row for each generation or group epoch that has, or once had, members.

Classic groups write a generation when the leader has synced: then all members have joined, and the only known time of
its beginning is the end of the join phase. Other groups write the group epoch first, compute a target for it and
reconcile their members one by one.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple

from coordinator_core.confidence import GUESS, LIKELY
from coordinator_core.history.rows import LEFT_OR_EXPIRED, REPLACED_STATIC, EventRow, GenerationRow, MemberRow
from coordinator_core.inference.facts.claims import Claim
from coordinator_core.inference.facts.configs import NO_CONFIGS, Configs
from coordinator_core.inference.facts.life import GroupLife
from coordinator_core.inference.facts.log_facts import NONE_MS
from coordinator_core.inference.facts.rows import OwnerRow, RebalanceRow
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.groups.causes import (
    LATE_METADATA_MS,
    GenerationStart,
    find_causes,
    is_first_seen,
    is_unread,
)
from coordinator_core.inference.groups.handovers import Handover
from coordinator_core.inference.groups.leave_reasons import REBALANCE_TIMEOUT, UNSEEN, LeaveReasons, membership_of
from coordinator_core.inference.groups.owners import OwnerPlace
from coordinator_core.inference.groups.reassignment import EAGER_PROTOCOLS, Lost, Plans, identity_of, sync_phase_ms
from coordinator_core.inference.groups.rebalance_completion import completion_times
from coordinator_core.inference.groups.rollouts import by_others, find_rollouts, with_rollouts
from coordinator_core.inference.groups.storms import with_storms
from coordinator_core.inference.groups.unowned import UnownedTime, Window, unowned_time
from schemas.group_types import GroupType

SUBSCRIPTION_CHANGED: Final = "SUBSCRIPTION_CHANGED"
UNWRITTEN_GENERATION_MAX: Final = 1
"""A group that other records created has at most this number before its first generation is written."""


def is_unwritten(row: GenerationRow) -> bool:
    """Whether a group is only just there, or a new leader loaded a part of it: no rebalance of gold's."""
    is_first = row.previous_generation is None and row.generation <= UNWRITTEN_GENERATION_MAX
    # a group that was converted with its members keeps its generation, too, and has lost none
    is_loaded = row.previous_generation == row.generation and not row.is_contiguous
    return (is_first and not row.member_count) or is_loaded


class Rebalances(NamedTuple):
    """Rebalances of one group, in log order."""

    rows: Sequence[RebalanceRow]
    log_offsets: Sequence[int]
    """`from_log_offset` of each one's generation."""
    windows: Sequence[Window]
    """The time that each one covers."""
    unowned: UnownedTime
    """How long partitions had no owner, during and between all of them."""

    def with_handovers(self, handovers: Mapping[int, Handover]) -> "Rebalances":
        """With the estimates of the time without an owner. `handovers`: by log offset; those without one have nothing
        to add to what the log shows."""
        rows = []
        for row, log_offset in zip(self.rows, self.log_offsets, strict=True):
            found, least_ms = handovers.get(log_offset, Handover()), row.unowned_partition_ms
            estimated = row._replace(
                unowned_likely_ms=(least_ms or 0) + found.likely_ms,
                unowned_most_ms=(least_ms or 0) + found.most_ms,
                unowned_confidence=GUESS if found.is_guess else LIKELY,
            )
            rows.append(row if least_ms is None else estimated)
        return self._replace(rows=rows)

    def after(self, log_offset: int) -> "Rebalances":
        """Those after a log offset."""
        first = bisect_right(self.log_offsets, log_offset)
        return self._replace(rows=self.rows[first:], log_offsets=self.log_offsets[first:], windows=self.windows[first:])


NONE_REPLACED: Final[LeaveReasons] = {}


def find_rebalances(
    life: GroupLife,
    owners: Sequence[OwnerRow],
    leave_reasons: LeaveReasons,
    settings: InferenceSettings,
    unowned_before: Mapping[OwnerPlace, int] | None = None,
    settled_to: int = -1,
    configs: Configs = NO_CONFIGS,
    replaced: LeaveReasons = NONE_REPLACED,
) -> Rebalances:
    """All rebalances of one group. `leave_reasons`: the result of `find_leave_reasons`; `replaced`: of `find_replaced`.
    `unowned_before` and `settled_to`: `past` and `past_end` of `unowned_time`."""
    rollouts = [
        rollout
        for rollout in find_rollouts(life.members, leave_reasons, settings)
        if life.timeless.isdisjoint(rollout.log_offsets)
    ]
    leave_reasons = {**leave_reasons, **by_others(rollouts, leave_reasons)}
    completed = completion_times(life.events)
    filled_ms = {event.at for event in life.events if event.log_offset in life.timeless}
    rows: list[RebalanceRow] = []
    log_offsets: list[int] = []
    windows: list[Window] = []
    causes: list[Claim] = []
    for step, left in _steps(life, leave_reasons, configs, replaced):
        if is_unwritten(step.row):
            continue
        causes = find_causes(step, causes)
        causes = [claim.weighed(bool(step.row.unread_members)) for claim in causes]
        row = _row(step, left, causes, _completed_at(step, completed))
        rows.append(_with_known_times(row, step, life.timeless, filled_ms))
        log_offsets.append(step.row.from_log_offset)
        is_timeless = step.row.from_log_offset in life.timeless
        windows.append(_window(step, windows[-1].begin_ms if windows else 0, is_timeless=is_timeless))
    unowned = unowned_time(owners, windows, unowned_before, settled_to)
    rows = [
        # without a time there is no duration
        row if row.started_at == NONE_MS else row._replace(unowned_partition_ms=ms, revoked_partition_ms=revoked_ms)
        for row, ms, revoked_ms in zip(rows, unowned.by_rebalance, unowned.revoked_by_rebalance, strict=True)
    ]
    rows = with_rollouts(rows, log_offsets, rollouts)
    explained = {place: rollout.member_ids for rollout in rollouts for place in rollout.log_offsets}
    known = [explained.get(place, frozenset()) for place in log_offsets]
    rows = with_storms(rows, log_offsets, known, life.members, settings)
    return Rebalances(rows, log_offsets, windows, unowned)


def _steps(
    life: GroupLife, leave_reasons: LeaveReasons, configs: Configs, replaced: LeaveReasons
) -> Iterator[tuple[GenerationStart, list[MemberRow]]]:
    """Each generation with its context, and the members that departed."""
    plans = Plans(life)
    offsets = [event.log_offset for event in life.events]
    present = _Present(life.members)
    before: GenerationRow | None = None
    revoked = False
    for row in life.generations:
        previous = before if before is not None and before.incarnation == row.incarnation else None
        begin = bisect_right(offsets, -1 if before is None else before.from_log_offset)
        between = life.events[begin : bisect_right(offsets, row.from_log_offset)]
        ended = present.ended_at(row.from_log_offset)
        left = [m for m in ended if m.ended_by == LEFT_OR_EXPIRED]
        had_members = present.count > 0
        present.move_to(row.from_log_offset)
        reassignment = plans.reassignment(row, is_empty=not present.count)
        places = [it.from_log_offset for it in (previous, row) if it is not None]
        has_times = life.timeless.isdisjoint(places)
        has_revoked = revoked and previous is not None
        gone = {identity_of(member) for member in left}
        # a member that unsubscribes from a topic revokes its partitions before it joins, and does not join again for
        # that
        is_wanted = all(event.event_type != SUBSCRIPTION_CHANGED for event in between)
        revoked = (
            row.group_type == GroupType.CLASSIC and is_wanted and any(it.owners - gone for it in reassignment.lost)
        )
        reasons = tuple(leave_reasons[membership_of(member)] for member in left)
        since = 0 if previous is None else bisect_left(offsets, begin_of(life.events, offsets, previous))
        # a classic generation is a single record
        is_timeless = row.group_type != GroupType.CLASSIC and row.from_log_offset in life.timeless
        yield (
            GenerationStart(
                row=row,
                previous=previous,
                events=tuple(_of_operation(between, row, is_timeless=is_timeless)),
                since_previous=life.events[since : bisect_right(offsets, row.from_log_offset)],
                leave_reasons=reasons,
                member_count=present.count,
                has_pattern=present.pattern_count > 0,
                reassignment=reassignment,
                had_members=had_members,
                is_timeless=is_timeless,
                has_unread=present.unread_count > 0,
                has_gap=previous is not None and life.log.may_have_gap(previous.from_log_offset, row.from_log_offset),
                has_gap_before=life.log.may_have_gap(-1, row.from_log_offset),
                has_hole=before is not None and life.log.has_hole(before.from_log_offset, row.from_log_offset),
                may_have_others=row.from_log_offset >= life.log.unread_from,
                has_grown=_has_grown(life, reassignment.grown_topics, previous, row),
                is_soon=has_times and _is_soon(life, previous, row),
                has_vanished=any(reason.method == REBALANCE_TIMEOUT for reason in reasons)
                and _has_vanished(life.members, reassignment.lost, gone, row),
                has_revoked=has_revoked,
                is_late=has_times and bool(reassignment.came_back or has_revoked) and _is_late(life, previous, row),
                before_return=frozenset(
                    replaced.get(membership_of(member), UNSEEN)
                    for member in ended
                    if member.ended_by == REPLACED_STATIC
                ),
                least_release=configs.least_release(row.valid_from) if has_times else None,
                previous_least_release=configs.least_release(previous.valid_from) if has_times and previous else None,
            ),
            left,
        )
        before = row


def _of_operation(events: Iterable[EventRow], row: GenerationRow, *, is_timeless: bool) -> list[EventRow]:
    """Of the events since the previous generation, those of the operation that began a generation.

    Without times nothing shows which records are of one operation. Those of members come before that of the epoch,
    those of its target behind it.
    """
    if not is_timeless:
        return [event for event in events if event.at == row.valid_from]
    return [it for it in events if it.event_type != "TARGET_COMPUTED" or it.log_offset == row.from_log_offset]


def _has_grown(life: GroupLife, topics: Iterable[str], previous: GenerationRow | None, row: GenerationRow) -> bool:
    """Whether one of these topics got more partitions after a generation was written and before the next one."""
    if previous is None or life.log.has_clock_step(previous.from_log_offset, row.from_log_offset):
        return False
    if not life.timeless.isdisjoint((previous.from_log_offset, row.from_log_offset)):
        return False
    return any(
        previous.valid_from < at_ms <= row.valid_from for topic in topics for at_ms in life.topic_growth.get(topic, ())
    )


def _has_vanished(members: Iterable[MemberRow], lost: Iterable[Lost], gone: Set[str], row: GenerationRow) -> bool:
    """Whether a generation lost partitions that its members would have been assigned if they existed. A cooperative
    generation may leave out partitions that these members had."""
    is_whole = row.protocol_name in EAGER_PROTOCOLS
    topics = {it.key[0] for it in lost if is_whole or it.owners <= gone}
    return any(
        not topics.isdisjoint(member.subscribed_topics or ())
        for member in members
        if topics and _is_there(member, row.from_log_offset)
    )


def _is_soon(life: GroupLife, previous: GenerationRow | None, row: GenerationRow) -> bool:
    """Whether the join phase of a classic generation ended just after the previous generation."""
    if previous is None or {row.group_type, previous.group_type} != {GroupType.CLASSIC}:
        return False
    if life.log.has_clock_step(previous.from_log_offset, row.from_log_offset):
        return False
    began_ms = row.valid_from if row.current_state_at is None else row.current_state_at
    return began_ms - previous.valid_from <= LATE_METADATA_MS


def _is_late(life: GroupLife, previous: GenerationRow | None, row: GenerationRow) -> bool:
    """Whether the join phase of a classic generation ended so late that all members of the previous one had had time to
    join again.
    """
    if previous is None or {row.group_type, previous.group_type} != {GroupType.CLASSIC}:
        return False
    at, began_ms = previous.from_log_offset, row.valid_from if row.current_state_at is None else row.current_state_at
    if life.log.has_clock_step(at, row.from_log_offset) or life.log.has_leader_change(at, row.from_log_offset):
        return False
    timeouts = [member.rebalance_timeout_ms or 0 for member in life.members if _is_there(member, at)]
    return bool(timeouts) and began_ms - previous.valid_from > max(timeouts) > 0


def _is_there(member: MemberRow, log_offset: int) -> bool:
    return member.from_log_offset <= log_offset and (member.to_log_offset is None or member.to_log_offset > log_offset)


def begin_of(events: Sequence[EventRow], offsets: Sequence[int], row: GenerationRow) -> int:
    """Log offset of the first event of the operation that began a generation. `offsets`: those of the events,
    ascending.
    """
    index = bisect_right(offsets, row.from_log_offset)
    while index and events[index - 1].at == row.valid_from:
        index -= 1
    return offsets[index] if index < len(offsets) else row.from_log_offset


class _Present:
    """Counts the current members while moving along the log."""

    def __init__(self, members: Sequence[MemberRow]) -> None:
        self._begun = sorted(members, key=lambda row: (row.from_log_offset, row.member_id))
        self._ended: dict[int, list[MemberRow]] = {}
        for member in self._begun:
            if member.to_log_offset is not None:
                self._ended.setdefault(member.to_log_offset, []).append(member)
        self._ends = sorted(self._ended)
        self._next_begin = 0
        self._next_end = 0
        self.count = 0
        self.pattern_count = 0
        self.unread_count = 0

    def ended_at(self, log_offset: int) -> list[MemberRow]:
        """Members whose interval ended with the operation at this log offset."""
        return self._ended.get(log_offset, [])

    def move_to(self, log_offset: int) -> None:
        """Count the members after the operation whose last record has this offset."""
        while self._next_begin < len(self._begun) and self._begun[self._next_begin].from_log_offset <= log_offset:
            self._count(self._begun[self._next_begin], +1)
            self._next_begin += 1
        while self._next_end < len(self._ends) and self._ends[self._next_end] <= log_offset:
            for member in self._ended[self._ends[self._next_end]]:
                self._count(member, -1)
            self._next_end += 1

    def _count(self, member: MemberRow, change: int) -> None:
        self.count += change
        self.pattern_count += change * bool(member.subscribed_regex)
        self.unread_count += change * (member.subscribed_topics is None)


def _completed_at(step: GenerationStart, completed: Mapping[int, int]) -> int | None:
    if step.row.group_type == GroupType.CLASSIC:
        return step.row.valid_from
    started = (event.log_offset for event in step.events if event.event_type == "GENERATION_STARTED")
    return next((completed[offset] for offset in started if offset in completed), None)


def _row(
    step: GenerationStart, left: Sequence[MemberRow], causes: Sequence[Claim], completed_at: int | None
) -> RebalanceRow:
    row, reassignment = step.row, step.reassignment
    started_at = row.valid_from
    if row.group_type == GroupType.CLASSIC and row.current_state_at is not None:
        started_at = min(row.valid_from, row.current_state_at)
    joined = [event.member_id for event in step.events if event.event_type == "MEMBER_JOINED" and event.member_id]
    return RebalanceRow(
        group_id=row.group_id,
        group_type=row.group_type,
        to_generation=row.generation,
        incarnation=row.incarnation,
        from_generation=row.previous_generation,
        started_at=started_at,
        completed_at=None if completed_at is None else max(started_at, completed_at),
        duration_ms=None if completed_at is None else max(completed_at - started_at, 0),
        cause=causes[0].cause,
        causes=tuple(cause.cause for cause in causes),
        method=causes[0].method,
        confidence=causes[0].confidence,
        members_joined=() if joined and is_first_seen(step) else tuple(sorted(joined)),
        members_left=tuple(sorted(member.member_id for member in left)),
        member_count=step.member_count,
        partitions_total=None if row.unread_members else reassignment.total,
        partitions_moved=None if is_unread(step) else reassignment.moved,
        stickiness=None if is_unread(step) else reassignment.stickiness,
        unowned_partition_ms=None,
        revoked_partition_ms=None,
        in_storm=False,
        flapping_members=(),
        cause_methods=tuple(cause.method for cause in causes),
        cause_confidences=tuple(cause.confidence for cause in causes),
        rollout_id=None,
        rollout_confidence=None,
    )


def _window(step: GenerationStart, begin_ms_min: int, *, is_timeless: bool) -> Window:
    row = step.row
    return Window(
        log_offset=row.from_log_offset,
        begin_ms=max(row.valid_from, begin_ms_min),
        has_members=step.member_count > 0,
        sync_from_ms=row.valid_from - (0 if is_timeless else sync_phase_ms(row)),
        sync_to_ms=row.valid_from,
    )


def _with_known_times(
    row: RebalanceRow, step: GenerationStart, timeless: Set[int], filled_ms: Set[int]
) -> RebalanceRow:
    """The row with only the times that are in records. A classic group's record may contain when its generation
    began."""
    is_timeless = step.row.from_log_offset in timeless
    if is_timeless:
        state_at = step.row.current_state_at if step.row.group_type == GroupType.CLASSIC else None
        row = row._replace(started_at=NONE_MS if state_at is None else state_at)
    if is_timeless or row.completed_at in filled_ms:
        row = row._replace(completed_at=None, duration_ms=None)
    return row
