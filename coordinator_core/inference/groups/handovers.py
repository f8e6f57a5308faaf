"""How long partitions had no owner in effect, beyond what the log shows: estimates for each rebalance.

The log has assignments, not what members do with them. Before it shows a partition without an owner, its member may
have stopped:

* a member of an eager rebalance revokes everything before it joins, and the join phase is not in the log: it stopped at
  its last commit at the earliest (clients commit what they revoke), at the end of the join phase at the latest;
* a member that died stopped at its last commit at the earliest, and its session timeout before it was dropped. One that
  departed in any other way stopped then or, if it committed when it closed, a little earlier;
* a member of the other protocols that has to revoke stops between its coordinator's word and its own answer.

A join phase lasts no longer than the longest rebalance timeout, and a dead member is dropped one session later, so both
bound what happened, except across a change of the leader, which starts sessions and join phases again. A process that
was only paused, or polled too late, may own its partitions until it learns better: so does a dynamic member whose
client comes back from the same host after it was dropped. A client that was restarted at once is there before that.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.errors import PastTooShort
from coordinator_core.history.rows import LEFT_OR_EXPIRED, GenerationRow, MemberRow
from coordinator_core.inference.commits.last_commit_times import Membership, Times, last_commit_times
from coordinator_core.inference.facts.configs import Configs
from coordinator_core.inference.facts.life import HEARTBEAT_MS, GroupLife
from coordinator_core.inference.facts.log_facts import WHOLE
from coordinator_core.inference.facts.rows import OwnerRow
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.groups.join_phases import RHYTHMS_MISSED_MAX, There, rhythm_ms
from coordinator_core.inference.groups.leave_reasons import EXPIRED, LeaveReasons, membership_of
from coordinator_core.inference.groups.owners import MembersAt
from coordinator_core.inference.groups.reassignment import EAGER_PROTOCOLS
from coordinator_core.inference.groups.unowned import Window
from schemas.group_types import GroupType

ANSWER_MS: Final = 1_000
"""A member takes its partitions at most this long after the record that gives them to it, and its last commit is at
most this long under way."""
EXTRA_COMMIT_SHARE: Final = 0.9
"""A last interval between commits shorter than this share of the usual one: the last commit was made on revocation or
close."""


REVOKING: Final = "REVOKING"


class Handover(NamedTuple):
    """What is added to the time without an owner that the log shows of one rebalance: partitions x ms."""

    likely_ms: int = 0
    most_ms: int = 0
    is_guess: bool = False


class _Stop(NamedTuple):
    """When a member stopped reading: at the earliest, and most likely."""

    earliest_ms: int
    likely_ms: int
    is_guess: bool


def require_no_return(life: GroupLife, place: int, settings: InferenceSettings) -> None:
    """Raises PastTooShort if a client came back since a place whose member had departed before: it lived on."""
    later = _Clients(row for row in life.members if row.from_log_offset >= place)
    for member in life.members:
        if member.to_log_offset is not None and member.to_log_offset < place and later.has_again(member, settings):
            raise PastTooShort("a client that was taken for dead is back")


class Handovers:
    """The handovers of one group from a place in its log on."""

    def __init__(
        self,
        life: GroupLife,
        owners: Sequence[OwnerRow],
        leave_reasons: LeaveReasons,
        settings: InferenceSettings,
        configs: Configs,
        commit_times_before: Mapping[Membership, Times],
        known: Mapping[int, Handover],
        place: int,
    ) -> None:
        """`commit_times_before`: of commits before `place`, where `known` ends: what an earlier audit found, by the
        log offset of the rebalance."""
        self._life, self._owners, self._leave_reasons = life, owners, leave_reasons
        self._settings, self._configs = settings, configs
        self._before, self._known, self._place = commit_times_before, known, place
        self._members, self._there = MembersAt(life.members), There(life.members)
        self._clients = _Clients(life.members)
        self._generations = {row.from_log_offset: row for row in life.generations}
        self._newest_ms: I64 = np.maximum.accumulate(life.commits.recorded_at_ms)
        self._ended: dict[int, list[OwnerRow]] = defaultdict(list)
        """By log offset, what ended there."""
        self._owned: dict[str, list[OwnerRow]] = defaultdict(list)
        """By member."""
        self._taken: dict[int, Counter[str]] = defaultdict(Counter)
        """By log offset, how many partitions that had an owner before each member got."""
        for row in owners:
            self._owned[row.member_id].append(row)
            if row.to_log_offset is not None:
                self._ended[row.to_log_offset].append(row)
            if row.gap_before_ms is not None:
                self._taken[row.from_log_offset][row.member_id] += 1
        self._revoking = {
            (row.topic_id, row.partition, row.member_id, row.to_log_offset): row.valid_from
            for row in life.assignments
            if row.assignment == REVOKING
        }

    def found(self, windows: Sequence[Window]) -> dict[int, Handover]:
        """By the log offset of the rebalance."""
        places = [window.log_offset for window in windows]
        found = defaultdict(Handover, {at: self._known[at] for at in places if at < self._place and at in self._known})
        eager = {place for place, row in self._generations.items() if _is_eager(row)}
        there = There(self._owners)
        for log_offset in sorted({*self._ended, *eager, *self._taken}):
            index = bisect_right(places, log_offset) - 1
            if log_offset < self._place or index < 0 or log_offset in self._life.timeless:
                continue
            place, before = places[index], places[index - 1]
            join_phase_ms = self._join_phase_ms(log_offset)
            if windows[index].has_members:
                rows = there.at(log_offset - 1) if log_offset in eager else self._ended.get(log_offset, ())
                begin_ms = windows[index - 1].begin_ms if index and join_phase_ms else None
                found[place] = self._sum(
                    found[place], self._stopped(log_offset, rows, windows[index], begin_ms, join_phase_ms)
                )
                taken = ANSWER_MS * self._taken[log_offset].total()
                found[place] = self._sum(found[place], [Handover(0, taken)])
            waited_ms = windows[index].begin_ms - windows[index - 1].begin_ms
            if index and log_offset == place and waited_ms <= join_phase_ms and not self._is_eager_at(before):
                waited_ms *= self._taken_late(before)
                found[before] = self._sum(found[before], [Handover(waited_ms, waited_ms)])
        return found

    @staticmethod
    def _sum(first: Handover, others: Iterable[Handover]) -> Handover:
        for one in others:
            likely_ms, most_ms = first.likely_ms + one.likely_ms, first.most_ms + one.most_ms
            first = Handover(likely_ms, most_ms, first.is_guess or one.is_guess)
        return first

    def _taken_late(self, log_offset: int) -> int:
        """How many partitions a cooperative generation gave to members that had to revoke others first, and took the
        new ones when they had joined again."""
        revoked = {row.member_id for row in self._ended.get(log_offset, ()) if row.group_type == GroupType.CLASSIC}
        late = revoked.intersection(self._taken.get(log_offset, ()))
        return sum(self._taken[log_offset][it] for it in late if self._members.at(it, log_offset) is not None)

    def _stopped(
        self, log_offset: int, rows: Sequence[OwnerRow], window: Window, begin_ms: int | None, join_phase_ms: int
    ) -> Iterator[Handover]:
        """What members had stopped reading before the log shows it. `begin_ms`: the generation before, of a classic
        one."""
        is_eager = self._is_eager_at(log_offset)
        owned: dict[str, list[OwnerRow]] = defaultdict(list)
        for row in rows:
            owned[row.member_id].append(row)
        stopping: dict[Membership, tuple[MemberRow, int, int]] = {}
        """Members that stopped, with the earliest time, and the time when the log shows it."""
        for member_id, own in owned.items():
            member = self._members.at(member_id, log_offset - 1)
            end_ms = window.sync_from_ms if is_eager else own[0].valid_to
            if member is None or end_ms is None:
                continue
            has_departed = member.to_log_offset == log_offset
            # static members may be away although the group goes on with them
            may_be_away = member.instance_id is not None and join_phase_ms > 0
            if not has_departed and not is_eager and not may_be_away:
                yield Handover(0, sum(self._revoked_ms(row) + ANSWER_MS for row in own))
                continue
            since_ms = min(row.valid_from for row in own)
            if begin_ms is not None and (is_eager or not may_be_away):
                since_ms = max(since_ms, begin_ms)
            if not self._life.log.has_leader_change(own[0].from_log_offset, log_offset):
                is_bound = has_departed or may_be_away
                timeouts_ms = join_phase_ms + self._session_ms(member, end_ms) * is_bound + ANSWER_MS
                since_ms = max(since_ms, end_ms - timeouts_ms)
            stopping[membership_of(member)] = member, min(since_ms, end_ms), end_ms
        times = self._commit_times(log_offset, stopping)
        for membership, (member, since_ms, end_ms) in stopping.items():
            newest = tuple(time for time in times.get(membership, ()) if since_ms < time <= end_ms)
            stop = self._stop(member, newest, since_ms, end_ms, log_offset)
            begins_ms = [row.valid_from for row in owned[member.member_id]]
            yield Handover(
                sum(max(end_ms - max(stop.likely_ms, begin), 0) for begin in begins_ms),
                sum(max(end_ms - max(stop.earliest_ms, begin), 0) + ANSWER_MS for begin in begins_ms),
                stop.is_guess,
            )

    def _stop(self, member: MemberRow, times: Times, begin_ms: int, end_ms: int, log_offset: int) -> _Stop:
        """`times`: the newest of its commits between the begin and the end."""
        has_departed = member.to_log_offset == log_offset
        may_be_alive = not (has_departed or self._is_eager_at(log_offset))
        may_be_alive |= has_departed and self._clients.has_again(member, self._settings)
        usual_ms = rhythm_ms(times)
        if usual_ms is None:
            reason = self._leave_reasons.get(membership_of(member))
            has_died = has_departed and reason is not None and reason.cause == EXPIRED
            ago_ms = self._session_ms(member, end_ms) if has_died else HEARTBEAT_MS // 2
            earliest_ms = max(times, default=begin_ms)
            likely_ms = (
                end_ms if may_be_alive else max(begin_ms if has_died else (begin_ms + end_ms) // 2, end_ms - ago_ms)
            )
            return _Stop(earliest_ms, times[-1] if times and not may_be_alive else likely_ms, is_guess=True)
        last_ms = times[-1]
        is_silent = end_ms - last_ms > HEARTBEAT_MS + RHYTHMS_MISSED_MAX * usual_ms
        has_closed = last_ms - times[-2] < EXTRA_COMMIT_SHARE * usual_ms
        if may_be_alive and (not has_closed if has_departed else not is_silent):
            return _Stop(last_ms, end_ms, is_guess=is_silent)
        return _Stop(last_ms, last_ms if has_closed else min(last_ms + usual_ms // 2, end_ms), is_guess=False)

    def _commit_times(
        self, log_offset: int, stopping: Mapping[Membership, tuple[MemberRow, int, int]]
    ) -> Mapping[Membership, Times]:
        """When members committed until a place, as far as that matters."""
        if not stopping:
            return {}
        before = {key: self._before[key] for key in stopping if key in self._before}
        commits = self._life.commits
        last = int(np.searchsorted(commits.log_offset, log_offset))
        since_ms = min(begin_ms for _, begin_ms, _ in stopping.values())
        first = int(np.searchsorted(self._newest_ms[:last], since_ms))
        members = [member for member, _, _ in stopping.values()]
        owned = chain.from_iterable(self._owned[member.member_id] for member in members)
        return last_commit_times(commits.taken(slice(first, last)), owned, members, before, self._place)

    def _revoked_ms(self, owner: OwnerRow) -> int:
        """How long a member that stays may have been without a partition before it said so."""
        key = owner.topic_id, owner.partition, owner.member_id, owner.to_log_offset
        return 0 if owner.valid_to is None else owner.valid_to - self._revoking.get(key, owner.valid_to)

    def _is_eager_at(self, log_offset: int) -> bool:
        generation = self._generations.get(log_offset)
        return generation is not None and _is_eager(generation)

    def _join_phase_ms(self, log_offset: int) -> int:
        """How long the join phase of a classic generation may have been; 0 where there was none."""
        generation = self._generations.get(log_offset)
        if generation is None or generation.group_type != GroupType.CLASSIC:
            return 0
        there = chain(self._there.at(log_offset - 1), self._there.begun_at(log_offset))
        return max((row.rebalance_timeout_ms or 0 for row in there), default=0)

    def _session_ms(self, member: MemberRow, end_ms: int) -> int:
        if member.session_timeout_ms:
            return member.session_timeout_ms
        found = self._configs.session_timeout_ms(member.group_type, member.group_id, end_ms)
        return self._settings.modern_session_timeout_ms if found is None else found


def _is_eager(row: GenerationRow) -> bool:
    return row.group_type == GroupType.CLASSIC and row.protocol_name in EAGER_PROTOCOLS


class _Clients:
    """When dynamic members joined, by client id and host."""

    def __init__(self, members: Iterable[MemberRow]) -> None:
        self._stays: dict[tuple[str, str], list[MemberRow]] = defaultdict(list)
        for member in members:
            if member.instance_id is None:
                self._stays[member.client_id, member.client_host].append(member)

    def has_again(self, departed: MemberRow, settings: InferenceSettings) -> bool:
        """Whether the client of a departed member came back after it, and was not there twice before."""
        end, end_ms = departed.to_log_offset, departed.valid_to
        if departed.ended_by != LEFT_OR_EXPIRED or departed.instance_id is not None or end is None or end_ms is None:
            return False
        others = [row for row in self._stays[departed.client_id, departed.client_host] if row != departed]
        if any(row.from_log_offset <= end and (row.to_log_offset or WHOLE) >= end for row in others):
            return False
        return any(row.from_log_offset > end and row.valid_from - end_ms <= settings.rollout_pause_ms for row in others)
