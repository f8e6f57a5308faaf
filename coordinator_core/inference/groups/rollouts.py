"""Rolling deployments: all members of a group, or all of one kind of client in it, are replaced one after the other.

No record marks a deployment. It is recognized, among members whose client ids are of one family (`client_family`), by
these conditions from some moment on:

* all current members depart, and as many join, under new member ids; a replaced static member does both at once;
* no member departs that joined in the meantime, and none joins again under its old member id: that is a crash loop, or
  a client that was removed and is still the same process;
* they depart one after the other: never is more than half of them away, and no step replaces more than half. A restart
  of all at once takes all of them away;
* old and new ones mix: the first new one joins before the last old one departs. The first old one also departs before
  the last new one joins, unless the new ones take the exact places of the old ones. Otherwise a group was scaled out,
  and then in;
* all keep their names or none does, if each member has a name of its own (`_have_some_same`);
* there is never more than `rollout_pause_ms` between two steps.

The result is LIKELY at best, and a GUESS if only two were replaced and one of them seems to have expired. It is no
deployment if half of them had stopped polling: their clients left on their behalf, and joined again.

The members of a deployment stop in the same way. So if other evidence shows that some of them left (or expired), and
none shows the opposite, the same holds for those without evidence.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from coordinator_core.confidence import GUESS, LIKELY
from coordinator_core.history.client_families import client_family
from coordinator_core.history.rows import CONVERTED, MemberRow
from coordinator_core.inference.commits.last_commit_times import Membership
from coordinator_core.inference.facts.claims import Claim
from coordinator_core.inference.facts.rows import RebalanceRow
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.groups.causes import (
    CONNECT_DELAY_OVER,
    CONVERSION_FOLLOW_UP,
    COOPERATIVE_FOLLOW_UP,
    METADATA_FOLLOW_UP,
    PATTERN_RESOLVED,
)
from coordinator_core.inference.groups.leave_reasons import (
    EXPIRED,
    SILENT_FOR_POLL_INTERVAL,
    UNKNOWN,
    LeaveReasons,
    membership_of,
)

ROLLING_DEPLOYMENT: Final = "ROLLING_DEPLOYMENT"
"""Method: the reason is that of the other members of the deployment."""
FOLLOW_UPS: Final = frozenset(
    {COOPERATIVE_FOLLOW_UP, CONVERSION_FOLLOW_UP, CONNECT_DELAY_OVER, METADATA_FOLLOW_UP, PATTERN_RESOLVED}
)
"""Methods of causes that only complete the rebalance before."""
MEMBERS_MIN: Final = 2
"""A single member that is replaced is a restart, whatever the reason."""
SURE_MEMBERS_MIN: Final = 3
"""That this many are replaced in turn is hardly chance."""


class Rollout(NamedTuple):
    """A rolling deployment of one group."""

    log_offsets: tuple[int, ...]
    """The log offsets of the operations in which a member departed or joined, in order."""
    old: frozenset[Membership]
    new: frozenset[Membership]
    confidence: str

    @property
    def member_ids(self) -> frozenset[str]:
        return frozenset(member_id for member_id, _ in self.old | self.new)


def find_rollouts(
    members: Iterable[MemberRow], leave_reasons: LeaveReasons, settings: InferenceSettings
) -> list[Rollout]:
    """All rolling deployments of one group, in log order."""
    families: dict[tuple[str, ...], list[MemberRow]] = {}
    for member in members:
        families.setdefault(client_family(member.client_id), []).append(member)
    found = [
        rollout
        for family in families.values()
        if len(family) >= 2 * MEMBERS_MIN
        for rollout in _rollouts_of(_family_steps(family), leave_reasons, settings)
    ]
    return sorted(found, key=lambda rollout: rollout.log_offsets)


def by_others(rollouts: Iterable[Rollout], leave_reasons: LeaveReasons) -> dict[Membership, Claim]:
    """Reasons for unexplained departures, taken from the other members of their deployment: never more than a guess."""
    reasons: dict[Membership, Claim] = {}
    for rollout in rollouts:
        of_rollout = {
            membership: leave_reasons[membership] for membership in rollout.old if membership in leave_reasons
        }
        causes = {reason.cause for reason in of_rollout.values() if reason.confidence != GUESS}
        if len(causes) == 1:
            reason = Claim(causes.pop(), ROLLING_DEPLOYMENT, GUESS)
            reasons |= {membership: reason for membership, own in of_rollout.items() if own.cause == UNKNOWN}
    return reasons


def with_rollouts(
    rebalances: Sequence[RebalanceRow], log_offsets: Sequence[int], rollouts: Iterable[Rollout]
) -> list[RebalanceRow]:
    """The rebalances of one group, in order, marked if they belong to a rolling deployment.

    `log_offsets`: of the operations that began them. A follow-up of such a rebalance belongs to the deployment too.
    """
    rollout_at = {place: rollout for rollout in reversed(list(rollouts)) for place in rollout.log_offsets}
    ids: dict[Rollout, str] = {}
    marked = []
    before: Rollout | None = None
    for row, place in zip(rebalances, log_offsets, strict=True):
        rollout = before if FOLLOW_UPS.issuperset(row.cause_methods) else rollout_at.get(place)
        if rollout is not None:
            rollout_id = ids.setdefault(rollout, f"{row.incarnation}/{row.to_generation}")
            marked.append(row._replace(rollout_id=rollout_id, rollout_confidence=rollout.confidence))
        else:
            marked.append(row)
        before = rollout
    return marked


@dataclass(slots=True)
class _FamilyChange:
    """The members of a family that joined and departed in one operation."""

    log_offset: int
    at_ms: int
    came: list[MemberRow] = field(default_factory=list)
    went: list[MemberRow] = field(default_factory=list)


def _family_steps(members: Iterable[MemberRow]) -> list[_FamilyChange]:
    """The operations that changed the members of a family, in order; a conversion of the group does not."""
    steps: dict[int, _FamilyChange] = {}
    ordered = sorted(members, key=lambda row: (row.from_log_offset, row.member_id))
    converted = {(row.member_id, row.to_log_offset) for row in ordered if row.ended_by == CONVERTED}
    for row in ordered:
        if (row.member_id, row.from_log_offset) not in converted:
            steps.setdefault(row.from_log_offset, _FamilyChange(row.from_log_offset, row.valid_from)).came.append(row)
        if row.to_log_offset is not None and row.valid_to is not None and row.ended_by != CONVERTED:
            steps.setdefault(row.to_log_offset, _FamilyChange(row.to_log_offset, row.valid_to)).went.append(row)
    return [steps[log_offset] for log_offset in sorted(steps)]


def _rollouts_of(
    steps: Sequence[_FamilyChange], leave_reasons: LeaveReasons, settings: InferenceSettings
) -> Iterator[Rollout]:
    present: set[str] = set()
    index = 0
    while index < len(steps):
        exchange = _Exchange(present)
        end = exchange.end(steps, index, settings.rollout_pause_ms)
        if end > index:
            # members that joined before any departed may belong to it, or may be additions: then it begins later
            later = next(place for place in range(index, end) if steps[place].went)
            came = {member.member_id for step in steps[index:later] for member in step.came}
            if later > index and _Exchange(present | came).end(steps, later, settings.rollout_pause_ms) > later:
                end = later
            elif not _stopped_polling(exchange.old, leave_reasons):
                yield exchange.rollout(tuple(step.log_offset for step in steps[index:end]), leave_reasons)
        next_index = max(end, index + 1)
        for step in steps[index:next_index]:
            present.difference_update(member.member_id for member in step.went)
            present.update(member.member_id for member in step.came)
        index = next_index


class _Exchange:
    """The replacement of all members, followed step by step."""

    def __init__(self, present: Iterable[str]) -> None:
        self._waiting = set(present)
        """The old members that have not departed yet."""
        self._size = len(self._waiting)
        self._half = self._size // 2
        self.old: list[MemberRow] = []
        """The old members that departed."""
        self.new: list[MemberRow] = []
        self._went: list[int] = []
        """The steps in which members departed."""
        self._came: list[int] = []

    def end(self, steps: Sequence[_FamilyChange], first: int, pause_ms: int) -> int:
        """The step after its last one; `first` if no rolling deployment begins there."""
        if self._size < MEMBERS_MIN:
            return first
        for index in range(first, len(steps)):
            step = steps[index]
            if index > first and step.at_ms - steps[index - 1].at_ms > pause_ms:
                break
            if not self._take(index, step):
                break
            if not self._waiting and len(self.new) == self._size:
                return index + 1 if self._is_mixed() else first
        return first

    def _take(self, index: int, step: _FamilyChange) -> bool:
        """Add a step. Returns False if the replacement is then not a deployment."""
        went = {member.member_id for member in step.went}
        if not went <= self._waiting or max(len(went), len(step.came)) > self._half:
            return False
        self._waiting -= went
        self.old += step.went
        self.new += step.came
        if step.went:
            self._went.append(index)
        if step.came:
            self._came.append(index)
        gone = {member.member_id for member in self.old}
        is_again = any(member.member_id in gone for member in step.came)
        here_count = len(self._waiting) + len(self.new)
        return not is_again and len(self.new) <= self._size and here_count >= self._size - self._half

    def _is_mixed(self) -> bool:
        if self._came[0] >= self._went[-1] or any(map(self._have_some_same, NAMES)):
            return False
        return self._went[0] < self._came[-1] or any(map(self._have_same, (*NAMES, *PLACES)))

    def _have_same(self, place: Callable[[MemberRow], Hashable]) -> bool:
        """Whether the new members take the exact places of the old ones, one each."""
        old, new = ({place(member) for member in members} for members in (self.old, self.new))
        return old == new and len(old) == self._size and None not in old

    def _have_some_same(self, name: Callable[[MemberRow], Hashable]) -> bool:
        """Whether only some of the new members have names of old ones, where each has a name of its own.

        A deployment either keeps all names or changes all. Here one process was restarted, another was added, and a
        third one left.
        """
        old, new = ({name(member) for member in members} for members in (self.old, self.new))
        is_own = len(old) == len(new) == self._size and None not in old | new
        return is_own and bool(old & new) and old != new

    def rollout(self, log_offsets: tuple[int, ...], leave_reasons: LeaveReasons) -> Rollout:
        """The deployment that was found."""
        old, new = (frozenset(map(membership_of, members)) for members in (self.old, self.new))
        has_expired = any(
            membership in leave_reasons and leave_reasons[membership].cause == EXPIRED for membership in old
        )
        confidence = GUESS if has_expired and self._size < SURE_MEMBERS_MIN else LIKELY
        return Rollout(log_offsets, old, new, confidence)


NAMES: Final[Sequence[Callable[[MemberRow], Hashable]]] = (
    lambda member: member.instance_id,
    lambda member: member.client_id,
)
PLACES: Final[Sequence[Callable[[MemberRow], Hashable]]] = (
    lambda member: member.client_host,
    lambda member: (member.client_id, member.client_host),
)
"""What stays the same where a process is restarted in its place, depending on the set-up: its names, or its host."""


def _stopped_polling(old: Sequence[MemberRow], leave_reasons: LeaveReasons) -> bool:
    """Whether the clients of half of the old members left because they had stopped polling."""
    methods = [
        leave_reasons[membership].method for membership in map(membership_of, old) if membership in leave_reasons
    ]
    return 2 * methods.count(SILENT_FOR_POLL_INTERVAL) >= len(old)
