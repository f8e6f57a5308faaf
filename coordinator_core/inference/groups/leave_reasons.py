"""Left or expired: why a member departed.

The log shows that a member departed, never why (GroupMetadataManager writes the same records for a leave and an expired
session). Other evidence in the log:

* Signs of life. A session expires one full session timeout after the last sign that reached the coordinator. For a
  classic member that is the end of a join phase that it took part in, each plain commit, and the heartbeat before each
  commit within a transaction; for members of the other groups it is the time when they are given an assignment, which
  happens in their own heartbeat. A commit to a partition counts for its owner.
* The timeouts. A classic member's are in its record. Those of other groups are configs of the group, else of the
  brokers: the metadata log has them where they were set at run time, otherwise only settings do. The name of a method
  says which one it used: `..._CONFIGURED_SESSION` the metadata log, `..._USUAL_SESSION` the setting.
* A static member of a consumer or streams group that leaves temporarily says so (member epoch -2). It is dropped when
  its session expires before it returns.

* Epochs. A member of a consumer or streams group takes a new epoch in its next heartbeat. A member that did not for a
  third of a session sent no heartbeat: it expired.

There is only one proof: a classic member cannot have expired sooner than its timeouts allow, so it left, by itself or
by an admin; and that holds only while one leader wrote the log, since two leaders have two clocks. Everything else is
LIKELY at best. Without evidence for either, the cause is UNKNOWN: killed clients are as common in a log as closed ones.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from coordinator_core.confidence import CERTAIN, GUESS, LIKELY
from coordinator_core.history.rows import LEFT_OR_EXPIRED, REPLACED_STATIC, EventRow, GenerationRow, MemberRow
from coordinator_core.inference.commits.last_commit_times import Membership, Times
from coordinator_core.inference.facts.claims import Claim
from coordinator_core.inference.facts.configs import NO_CONFIGS, Configs
from coordinator_core.inference.facts.life import HEARTBEAT_MS, GroupLife
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.groups.join_phases import RHYTHMS_MISSED_MAX, SILENT_FACTOR, JoinPhases, rhythm_ms
from schemas.group_types import GroupType

LEFT: Final = "MEMBER_LEFT"
EXPIRED: Final = "MEMBER_EXPIRED"
UNKNOWN: Final = "UNKNOWN"

SILENT_FOR_POLL_INTERVAL: Final = "SILENT_FOR_POLL_INTERVAL"
"""Method: silent for so long that the client may have left since it no longer polled."""
REBALANCE_TIMEOUT: Final = "REBALANCE_TIMEOUT"
"""Method: the member did not do in time what a rebalance requires."""

UNREVOKED: Final = "UNREVOKED"
STATIC_MEMBER_AWAY_EPOCH: Final = -2
JOINED: Final = "MEMBER_JOINED"
SIGNS_OF_LIFE: Final = frozenset({JOINED, "MEMBER_RECONCILED", "MEMBER_UPDATED", "SUBSCRIPTION_CHANGED"})
"""Events that a member's own request causes, in groups other than classic."""
NO_SIGNS_OF_LIFE: Final = frozenset({"GROUP_CONVERTED", "GROUP_CREATED"})
"""These operations rewrite members that sent no request; their events are not signs of life."""

HEARTBEATS_PER_SESSION: Final = 3
"""Clients send at least three heartbeats in a session timeout, by default and by documented advice. So this much may
pass between a commit and the heartbeat before it, and between an expiry and the end of the join phase that it triggers.
"""
STAMP_MS: Final = 1_000
"""By how much the times of a join phase and of an expiry may be off: a broker takes them before it writes."""
COMMIT_INTERVAL_MS: Final = 5_000
"""How often clients commit by default (auto.commit.interval.ms), if there are too few commits to measure it."""


LeaveReasons = Mapping[Membership, Claim]
"""Why members departed, by membership interval: MEMBER_LEFT, MEMBER_EXPIRED or UNKNOWN."""


class LastSeen(NamedTuple):
    """The last sign of life of a member."""

    at_ms: int | None
    """The last sign of life of any kind; None if there is none."""
    by_record_ms: int | None
    """The last sign that is certainly its own, so not a commit."""
    rhythm_ms: int | None
    """Its usual interval between commits; None if there are too few."""

    @property
    def is_by_commit(self) -> bool:
        return self.at_ms is not None and self.at_ms != self.by_record_ms


def find_leave_reasons(
    life: GroupLife,
    last_seen: Mapping[Membership, Times],
    join_phases: JoinPhases,
    settings: InferenceSettings,
    configs: Configs = NO_CONFIGS,
    known_reasons: LeaveReasons | None = None,
) -> dict[Membership, Claim]:
    """Why each member of one group departed that left or expired with a generation.

    `last_seen`: commit times (`last_commit_times.last_commit_times`); `known_reasons`: the reasons that are already
    known.
    """
    leave_reasons = _LeaveReasons(life, last_seen, join_phases, settings, configs)
    ended: dict[int, list[MemberRow]] = {}
    for member in life.members:
        if member.to_log_offset is not None and member.ended_by == LEFT_OR_EXPIRED:
            ended.setdefault(member.to_log_offset, []).append(member)
    known, found = known_reasons or {}, {}
    before: GenerationRow | None = None
    for row in life.generations:
        previous = before if before is not None and before.incarnation == row.incarnation else None
        for member in ended.get(row.from_log_offset, ()):
            membership = membership_of(member)
            found[membership] = known[membership] if membership in known else leave_reasons.why(member, previous, row)
        before = row
    return found


ALIVE: Final = Claim("STATIC_MEMBER_REPLACED", "SEEN_WITHIN_SESSION", LIKELY)
"""A static member whose session cannot have expired before it came back."""
UNSEEN: Final = Claim("STATIC_MEMBER_REPLACED", "NOT_SEEN_WITHIN_SESSION", GUESS)
"""A static member whose session may have expired before it came back."""
SILENT: Final = Claim(EXPIRED, "SILENT_FOR_SESSION", GUESS)
"""One that had committed regularly, and then not for its session timeout."""


def find_replaced(
    life: GroupLife, last_seen: Mapping[Membership, Times], known_reasons: LeaveReasons
) -> dict[Membership, Claim]:
    """For each static member that came back under another id as a generation began: ALIVE, UNSEEN or SILENT.
    Arguments as of `find_leave_reasons`.
    """
    replaced: dict[int, list[MemberRow]] = {}
    for member in life.members:
        if member.ended_by == REPLACED_STATIC and member.to_log_offset is not None:
            replaced.setdefault(member.to_log_offset, []).append(member)
    found: dict[Membership, Claim] = {}
    before: GenerationRow | None = None
    for row in life.generations if replaced else ():
        previous = before if before is not None and before.incarnation == row.incarnation else None
        for member in replaced.get(row.from_log_offset, ()):
            membership = membership_of(member)
            if membership in known_reasons:
                found[membership] = known_reasons[membership]
            else:
                found[membership] = _before_return(life, member, previous, row, last_seen.get(membership, ()))
        before = row
    return found


def _before_return(
    life: GroupLife, member: MemberRow, previous: GenerationRow | None, row: GenerationRow, commit_times: Times
) -> Claim:
    """Whether less than a member's session timeout passed between its last sign of life and the join phase of a
    classic generation: a join phase that it took part in, or a commit to a partition of its."""
    if row.group_type != GroupType.CLASSIC:
        return ALIVE  # others do not wait for each other: an expiry has an epoch of its own
    places = [it.from_log_offset for it in (previous, row) if it is not None]
    if member.session_timeout_ms is None or not life.timeless.isdisjoint(places):
        return UNSEEN
    if life.log.has_clock_step(-1 if previous is None else previous.from_log_offset, row.from_log_offset):
        return UNSEEN
    seen_ms = list(commit_times[-1:])
    if previous is not None and previous.group_type == GroupType.CLASSIC:
        seen_ms.append(_joined_ms(previous))
    if seen_ms and _joined_ms(row) - max(seen_ms) < member.session_timeout_ms:
        return ALIVE
    return UNSEEN if rhythm_ms(commit_times) is None else SILENT


def _joined_ms(row: GenerationRow) -> int:
    """When the join phase of a classic generation ended."""
    return row.valid_from if row.current_state_at is None else row.current_state_at


def membership_of(member: MemberRow) -> Membership:
    """The key of a membership interval within its group."""
    return member.member_id, member.from_log_offset


class _LeaveReasons:
    """Finds why members of one group departed."""

    def __init__(
        self,
        life: GroupLife,
        last_seen: Mapping[Membership, Times],
        join_phases: JoinPhases,
        settings: InferenceSettings,
        configs: Configs,
    ) -> None:
        self._join_phases = join_phases
        self._settings = settings
        self._configs = configs
        self._commit_times = last_seen
        self._timeless = life.timeless
        self._life = life
        self._events = _events_by_member(life.events)
        self._targets = [
            event
            for event in life.events
            if event.event_type == "TARGET_COMPUTED" and event.log_offset not in life.timeless
        ]

    def why(self, member: MemberRow, previous: GenerationRow | None, now: GenerationRow) -> Claim:
        """Why a member departed that was in generation `previous` (None if the log has none) and is not in `now`."""
        ended_at_ms = self._ended_at_ms(now)
        if ended_at_ms is None:
            return _unknown_reason(member)
        last_seen = self._last_seen(member, previous, now)
        session_ms = member.session_timeout_ms
        if session_ms is not None and session_ms > 0:
            return self._by_own_session(member, previous, now, last_seen, ended_at_ms, session_ms)
        return self._by_group_session(member, last_seen, ended_at_ms)

    def _ended_at_ms(self, now: GenerationRow) -> int | None:
        """The latest time at which the coordinator had dropped a member: the end of the join phase for classic groups.
        None if it is unknown."""
        if now.from_log_offset in self._timeless:
            return now.current_state_at
        return now.valid_from if now.current_state_at is None else min(now.valid_from, now.current_state_at)

    def _last_seen(self, member: MemberRow, previous: GenerationRow | None, now: GenerationRow) -> LastSeen:
        end = now.from_log_offset
        if now.group_type == GroupType.CLASSIC and previous is not None and previous.group_type == GroupType.CLASSIC:
            by_record_ms = previous.current_state_at
        else:
            known_reasons = (event for event in self._of(member, end) if event.log_offset not in self._timeless)
            by_record_ms = max((event.at for event in known_reasons), default=None)
        times = self._commit_times.get(membership_of(member), ())
        last_commit_ms = times[-1] if times else None
        known = [time for time in (by_record_ms, last_commit_ms) if time is not None]
        return LastSeen(max(known, default=None), by_record_ms, rhythm_ms(times))

    def _has_step(self, previous: GenerationRow | None, now: GenerationRow) -> bool:
        """Whether, between two generations, the log's time went back, or another leader took over whose clock may
        differ. Then the duration is unknown."""
        begin, end = -1 if previous is None else previous.from_log_offset, now.from_log_offset
        return self._life.log.has_clock_step(begin, end) or self._life.log.has_leader_change(begin, end)

    def _has_one_clock(self, previous: GenerationRow, now: GenerationRow) -> bool:
        """Whether it is known that one leader wrote the log between two generations."""
        begin, end = previous.from_log_offset, now.from_log_offset
        return not self._has_step(previous, now) and self._life.log.is_of_one_leader(begin, end)

    def _by_own_session(
        self,
        member: MemberRow,
        previous: GenerationRow | None,
        now: GenerationRow,
        last_seen: LastSeen,
        ended_at_ms: int,
        session_ms: int,
    ) -> Claim:
        timeouts = [session_ms]
        if member.rebalance_timeout_ms is not None and member.rebalance_timeout_ms > 0:
            timeouts.append(member.rebalance_timeout_ms)
        is_classic = previous is not None and previous.group_type == GroupType.CLASSIC
        if (
            previous is not None
            and is_classic
            and last_seen.by_record_ms is not None
            and 0 <= ended_at_ms - last_seen.by_record_ms < min(timeouts)
        ):
            return Claim(LEFT, "WITHIN_TIMEOUTS", CERTAIN).weighed(not self._has_one_clock(previous, now))
        if last_seen.at_ms is None:
            return _unknown_reason(member)
        silent_ms = ended_at_ms - last_seen.at_ms
        has_one_clock = is_classic and not self._has_step(previous, now)
        ran_out = None
        if previous is not None and has_one_clock and last_seen.is_by_commit:
            ran_out = self._join_phases.ran_out(member, previous, now, last_seen.at_ms, ended_at_ms)
        if ran_out is not None:
            return Claim(EXPIRED, REBALANCE_TIMEOUT, ran_out)
        # a classic member's session restarts with each commit and each join phase, so it cannot expire sooner; one that
        # was silent for its rebalance timeout may have been dropped because it did not join again
        may_be_dropped = is_classic and silent_ms >= min(timeouts)
        if not may_be_dropped and (has_one_clock or _is_seen_within(session_ms, silent_ms)):
            return Claim(LEFT, "HEARD_WITHIN_SESSION", LIKELY)
        if has_one_clock and silent_ms < session_ms - STAMP_MS:  # it may not have joined again in time
            return _unknown_reason(member)
        return _by_silence(member, last_seen, silent_ms, session_ms, "SILENT_FOR_SESSION")

    def _by_group_session(self, member: MemberRow, last_seen: LastSeen, ended_at_ms: int) -> Claim:
        """The reason where the session timeout is a config of the group or the brokers: from the metadata log, else
        from the settings.
        """
        if self._is_away(member, ended_at_ms):
            return Claim(EXPIRED, "STATIC_MEMBER_AWAY", LIKELY)
        if self._is_overdue(member, ended_at_ms):
            return Claim(EXPIRED, REBALANCE_TIMEOUT, LIKELY)
        session_ms = self._configs.session_timeout_ms(member.group_type, member.group_id, ended_at_ms)
        usual_ms = self._settings.modern_session_timeout_ms
        if self._has_missed_epoch(member, ended_at_ms, usual_ms if session_ms is None else session_ms):
            return Claim(EXPIRED, "EPOCH_NOT_TAKEN", GUESS)
        if last_seen.at_ms is None:
            return _unknown_reason(member)
        silent_ms = ended_at_ms - last_seen.at_ms
        if session_ms is not None:
            if _is_seen_within(session_ms, silent_ms):
                return Claim(LEFT, "HEARD_WITHIN_CONFIGURED_SESSION", GUESS)
            by_silence = _by_silence(member, last_seen, silent_ms, session_ms, "SILENT_FOR_CONFIGURED_SESSION")
            # a guess that it expired was seldom right: such a member's heartbeats are in no log
            is_seldom_right = by_silence.cause == EXPIRED and by_silence.confidence == GUESS
            return _unknown_reason(member) if is_seldom_right else by_silence
        settings = self._settings
        if silent_ms < settings.session_timeout_ms_min // 2:
            return Claim(LEFT, "JUST_HEARD", LIKELY)
        if _is_seen_within(usual_ms, silent_ms):
            # brokers with shorter sessions than the setting are common
            return _unknown_reason(member)
        return _by_silence(member, last_seen, silent_ms, usual_ms, "SILENT_FOR_USUAL_SESSION")

    def _has_missed_epoch(self, member: MemberRow, ended_at_ms: int, session_ms: int) -> bool:
        """Whether a target for a newer epoch than this member's existed for longer than the interval between
        heartbeats.

        A member that has to revoke partitions takes the epoch only when it has done so.
        """
        newest = self._newest_assignment(member, ended_at_ms)
        if newest is None or newest.generation is None or member.uses_classic_protocol or member.to_log_offset is None:
            return False
        if newest.details.get("state", "").startswith(UNREVOKED):
            return False
        first = bisect_right(self._targets, newest.log_offset, key=_place)
        for target in self._targets[first:]:
            if target.log_offset >= member.to_log_offset:
                break
            if target.generation is not None and target.generation > newest.generation:
                return ended_at_ms - target.at >= session_ms // HEARTBEATS_PER_SESSION
        return False

    def _is_away(self, member: MemberRow, ended_at_ms: int) -> bool:
        """Whether this static member left temporarily and did not return."""
        newest = self._newest_assignment(member, ended_at_ms)
        return newest is not None and newest.generation == STATIC_MEMBER_AWAY_EPOCH

    def _is_overdue(self, member: MemberRow, ended_at_ms: int) -> bool:
        """Whether it had to revoke partitions, and did not within its rebalance timeout."""
        newest = self._newest_assignment(member, ended_at_ms)
        if (
            newest is None
            or not newest.details.get("state", "").startswith(UNREVOKED)
            or not member.rebalance_timeout_ms
        ):
            return False
        over_ms = ended_at_ms - newest.at - member.rebalance_timeout_ms
        return 0 <= over_ms <= member.rebalance_timeout_ms // HEARTBEATS_PER_SESSION

    def _newest_assignment(self, member: MemberRow, ended_at_ms: int) -> EventRow | None:
        return next(
            (
                event
                for event in reversed(self._of(member, member.to_log_offset))
                if event.event_type == "MEMBER_RECONCILED"
                and event.at <= ended_at_ms
                and event.log_offset not in self._timeless
            ),
            None,
        )

    def _of(self, member: MemberRow, to_log_offset: int | None) -> Sequence[EventRow]:
        """The events that its requests caused in this membership interval, up to a log offset. The same member id may
        have been in the group before, and may join again."""
        events = self._events.get(member.member_id, ())
        end = len(events) if to_log_offset is None else bisect_right(events, to_log_offset, key=_place)
        begin = bisect_right(events, member.from_log_offset, key=_place, hi=end)
        while begin and events[begin - 1].event_type != JOINED:
            begin -= 1
        return events[max(begin - 1, 0) : end]


def _is_seen_within(session_ms: int, silent_ms: int) -> bool:
    """Whether the last sign of life is so recent that the session cannot have expired, even if it began at the
    heartbeat before.
    """
    return silent_ms < session_ms - session_ms // HEARTBEATS_PER_SESSION


def _by_silence(member: MemberRow, last_seen: LastSeen, silent_ms: int, session_ms: int, method: str) -> Claim:
    """A regular committer that is silent for just a session timeout has most likely expired. A member that has not
    committed since the last join phase is not a regular committer: clients without partitions to read do not commit.

    It may also have stopped polling: then its client leaves for it after max.poll.interval.ms, which Java consumers
    send as their rebalance timeout. And it may have left: then it committed as usual until then, and the others joined
    again with their next heartbeats.
    """
    rhythm_ms = last_seen.rhythm_ms or 0
    slack_ms = session_ms // HEARTBEATS_PER_SESSION
    missed_ms = RHYTHMS_MISSED_MAX * (rhythm_ms or COMMIT_INTERVAL_MS * last_seen.is_by_commit)
    is_just_session = session_ms - slack_ms <= silent_ms <= session_ms + max(slack_ms, HEARTBEAT_MS) + missed_ms
    poll_ms = member.rebalance_timeout_ms or 0
    # clients other than Java's send a rebalance timeout no longer than their session, or unrelated to their poll
    # interval
    is_past_session = silent_ms > session_ms + HEARTBEAT_MS + rhythm_ms
    is_apart = poll_ms > session_ms + slack_ms or (poll_ms > session_ms and is_past_session)
    is_just_poll = is_apart and poll_ms <= silent_ms <= poll_ms + slack_ms + RHYTHMS_MISSED_MAX * rhythm_ms
    if is_just_poll:
        # as many were killed in recordings, or did not join again in time
        return Claim(UNKNOWN, SILENT_FOR_POLL_INTERVAL, GUESS)
    if is_just_session:
        # one heartbeat until the others know, and one before a commit within a transaction
        is_silent = silent_ms > 2 * HEARTBEAT_MS + SILENT_FACTOR * rhythm_ms
        is_regular = last_seen.is_by_commit and last_seen.rhythm_ms is not None
        may_poll_late = 0 < poll_ms <= silent_ms <= poll_ms + max(slack_ms, HEARTBEAT_MS) + missed_ms
        is_sure = is_regular and is_silent and not may_poll_late
        return Claim(EXPIRED, method, LIKELY).weighed(not is_sure, at_most=GUESS)
    return _unknown_reason(member)


def _unknown_reason(member: MemberRow) -> Claim:
    """The reason without evidence. Only static members of classic groups are known to stay when they stop: those of
    other groups announce it."""
    if member.instance_id is not None and member.group_type == GroupType.CLASSIC:
        return Claim(EXPIRED, "STATIC_MEMBER", GUESS)
    return Claim(UNKNOWN, "LEFT_OR_EXPIRED", GUESS)


def _events_by_member(events: Iterable[EventRow]) -> dict[str, list[EventRow]]:
    """The events that each member's own requests caused, in log order."""
    again = {event.at for event in events if event.event_type in NO_SIGNS_OF_LIFE}
    by_member: dict[str, list[EventRow]] = {}
    for event in events:
        if event.member_id is None:
            continue
        if event.event_type in SIGNS_OF_LIFE and event.at not in again:
            by_member.setdefault(event.member_id, []).append(event)
    return by_member


def _place(event: EventRow) -> int:
    return event.log_offset
