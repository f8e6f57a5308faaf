"""The lifetimes of a group's members, as far as the log shows them.

Evidence:

* A member is in the log from the first generation (or epoch) that had it to the first that no longer had it.
* Why a member departed is taken from gold (`inference.leave_reasons`). For members without a result in gold, whose
  group was deleted or converted, commits of their partitions are signs of life: a member that committed less than a
  session timeout before it went has left; one whose last commit is a session timeout back has most likely expired; one
  whose last commit is max.poll.interval.ms back (rebalance_timeout_ms) has most likely been too slow.
* Consecutive members with one group instance id, else with one client id and host, are one process.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from coordinator_core.history.rows import GenerationRow, MemberRow
from coordinator_core.inference.facts.claims import Claim
from coordinator_core.inference.facts.life import GroupCommits, GroupLife
from coordinator_core.inference.groups.leave_reasons import (
    EXPIRED,
    LEFT,
    SILENT_FOR_POLL_INTERVAL,
    LeaveReasons,
    membership_of,
)
from coordinator_core.inference.groups.owners import partition_owners

DEFAULT_SESSION_TIMEOUT_MS: Final = 45_000
DEFAULT_REBALANCE_TIMEOUT_MS: Final = 300_000
COMMIT_INTERVAL_MS: Final = 5000
"""auto.commit.interval.ms by default, if there are too few commits to measure it."""
POLL_MS: Final = 1000
"""How long a client may take to react to the response to a heartbeat."""


class End(StrEnum):
    """How a life ended, as far as the log shows it."""

    STILL = "STILL"
    LEFT = "LEFT"
    EXPIRED = "EXPIRED"
    POLL_EXPIRED = "POLL_EXPIRED"
    REPLACED = "REPLACED"
    """A static member returned under another member id, without a rebalance."""
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Lifetime:
    """One membership. `slot` is its process."""

    number: int
    slot: int
    member: MemberRow
    end: End
    commits_ms: tuple[int, ...]
    """Times of its commits, sorted and distinct."""
    was_there_before: bool
    """It was a member when the window began."""
    has_twin: bool
    """Another member had the same client id and host at that time: the process is not certain."""
    away_ms: int | None = None
    """When a static member of a consumer group left temporarily."""
    other_end: End | None = None
    """How else it may have ended: its silence fits both its session and its poll interval."""

    @property
    def session_timeout_ms(self) -> int:
        return session_timeout_ms(self.member)

    @property
    def poll_timeout_ms(self) -> int:
        return poll_timeout_ms(self.member)


def session_timeout_ms(member: MemberRow) -> int:
    """Its own session timeout, or Kafka's default."""
    return member.session_timeout_ms or DEFAULT_SESSION_TIMEOUT_MS


def poll_timeout_ms(member: MemberRow) -> int:
    """max.poll.interval.ms, which consumers send as their rebalance timeout."""
    return member.rebalance_timeout_ms or DEFAULT_REBALANCE_TIMEOUT_MS


def lifetimes_of(
    life: GroupLife,
    members: Sequence[MemberRow],
    first: GenerationRow,
    first_ms: int,
    heartbeat_ms: int,
    leave_reasons: LeaveReasons,
) -> tuple[Lifetime, ...]:
    """The lifetimes of these members, in their order, from the generation `first` or the time `first_ms` on.

    `leave_reasons`: why members departed, according to gold.

    Members have the session timeout that was in force for them; None: Kafka's default.
    """
    is_cut = (first.previous_generation is None and first.generation > 2) or not first.is_contiguous
    commits = _commits_by_member(life)
    slots, twins = _slots(members, commits)
    lifetimes = []
    for number, member in enumerate(members):
        times = commits.get((member.member_id, member.from_log_offset), ())
        there_before = member.valid_from < max(first.valid_from, first_ms) or (
            is_cut and member.from_log_offset <= first.from_log_offset
        )
        leave_reason = leave_reasons.get(membership_of(member))
        end = _end_of(member, times, heartbeat_ms) if leave_reason is None else _end_by_gold(leave_reason)
        away_ms = _away_ms(life, member)
        other = _other_end(member, times, heartbeat_ms, end)
        lifetimes.append(
            Lifetime(number, slots[number], member, end, times, there_before, number in twins, away_ms, other)
        )
    return tuple(lifetimes)


def _away_ms(life: GroupLife, member: MemberRow) -> int | None:
    times = [
        event.at
        for event in life.events
        if event.event_type == "STATIC_MEMBER_LEFT" and event.member_id == member.member_id
    ]
    return times[-1] if times and member.valid_to is not None else None


def _commits_by_member(life: GroupLife) -> dict[tuple[str, int], tuple[int, ...]]:
    """Commit times of the partitions that each membership owned."""
    commits: GroupCommits = life.commits
    places: dict[tuple[str, int], np.ndarray] = {}
    for topic in range(len(commits.topics)):
        of_topic = np.flatnonzero((commits.topic == topic) & (commits.committed_offset >= 0))
        for partition in np.unique(commits.partition[of_topic]).tolist():
            places[commits.topics[topic], partition] = of_topic[commits.partition[of_topic] == partition]
    intervals: dict[str, list[MemberRow]] = defaultdict(list)
    for row in life.members:
        intervals[row.member_id].append(row)
    times: dict[tuple[str, int], set[int]] = defaultdict(set)
    for owner in partition_owners(life):
        place = places.get((owner.topic or "", owner.partition))
        if place is None:
            continue
        offsets = commits.log_offset[place]
        first = int(np.searchsorted(offsets, owner.from_log_offset, "right"))
        last = len(offsets) if owner.to_log_offset is None else int(np.searchsorted(offsets, owner.to_log_offset))
        rows = intervals[owner.member_id]
        index = max(bisect_left([row.from_log_offset for row in rows], owner.from_log_offset + 1) - 1, 0)
        if rows:
            times[owner.member_id, rows[index].from_log_offset].update(
                commits.recorded_at_ms[place[first:last]].tolist()
            )
    return {key: tuple(sorted(found)) for key, found in times.items()}


def _end_by_gold(leave_reason: Claim) -> End:
    if leave_reason.method == SILENT_FOR_POLL_INTERVAL:
        return End.POLL_EXPIRED
    return {LEFT: End.LEFT, EXPIRED: End.EXPIRED}.get(leave_reason.cause, End.UNKNOWN)


def _end_of(member: MemberRow, commits_ms: Sequence[int], heartbeat_ms: int) -> End:
    """How a member departed. See the docstring of the module."""
    if member.valid_to is None:
        return End.STILL
    if member.ended_by == "REPLACED_STATIC":
        return End.REPLACED
    if member.instance_id is not None:
        return End.EXPIRED  # static members do not leave when they are closed
    if not commits_ms:
        return End.UNKNOWN
    silent_ms = member.valid_to - commits_ms[-1]
    if silent_ms < min(session_timeout_ms(member), poll_timeout_ms(member)) - heartbeat_ms:
        return End.LEFT
    fits = _fitting_ends(member, commits_ms, heartbeat_ms)
    return fits[0] if len(fits) == 1 else End.UNKNOWN


def _fitting_ends(member: MemberRow, commits_ms: Sequence[int], heartbeat_ms: int) -> list[End]:
    """Which of the two timeouts the silence fits."""
    assert member.valid_to is not None
    silent_ms = member.valid_to - commits_ms[-1]
    slack_ms = _commit_interval_ms(commits_ms) + 2 * heartbeat_ms + 2 * POLL_MS
    return [
        end
        for end, timeout_ms in ((End.EXPIRED, session_timeout_ms(member)), (End.POLL_EXPIRED, poll_timeout_ms(member)))
        if timeout_ms - heartbeat_ms <= silent_ms <= timeout_ms + slack_ms
    ]


def _other_end(member: MemberRow, commits_ms: Sequence[int], heartbeat_ms: int, end: End) -> End | None:
    """The other timeout, if the silence fits it as well; static members do not leave when a poll is late."""
    if end not in {End.EXPIRED, End.POLL_EXPIRED} or not commits_ms or member.instance_id is not None:
        return None
    fits = _fitting_ends(member, commits_ms, heartbeat_ms)
    return next((other for other in fits if other is not end), None)


def _commit_interval_ms(commits_ms: Sequence[int]) -> int:
    if len(commits_ms) < 3:
        return COMMIT_INTERVAL_MS
    return int(np.median(np.diff(np.array(commits_ms, np.int64))))


def _slots(
    members: Sequence[MemberRow], commits: dict[tuple[str, int], tuple[int, ...]]
) -> tuple[dict[int, int], set[int]]:
    """Number of a life -> its process; and the lifetimes for which that was not certain.

    A process can be reused once its life is over, or if it has been silent since before the new member joined: it died
    then, and the coordinator had not noticed yet.
    """
    slots: dict[int, int] = {}
    twins: set[int] = set()
    running: dict[tuple[object, ...], list[int]] = defaultdict(list)
    """Identity -> the last lifetime in each of its slots."""
    for number, member in sorted(enumerate(members), key=lambda item: item[1].from_log_offset):
        by_name = (member.client_id, member.client_host)
        identity = (member.instance_id,) if member.instance_id is not None else by_name
        same_id = [last for last in running[identity] if members[last].member_id == member.member_id]
        ends = {last: members[last].to_log_offset for last in running[identity]}
        free = same_id or [last for last, end in ends.items() if end is not None and end <= member.from_log_offset]
        if not free:
            free = [last for last in running[identity] if _is_dead(members[last], member, commits)]
        if free:
            last = min(free, key=lambda index: members[index].valid_to or 0)
            running[identity].remove(last)
            slots[number] = slots[last]
        else:
            slots[number] = number
        if running[identity] and not same_id:
            twins.update((number, *running[identity]))
        running[identity].append(number)
    order = {slot: index for index, slot in enumerate(sorted(set(slots.values())))}
    return {number: order[slot] for number, slot in slots.items()}, twins


def _is_dead(old: MemberRow, new: MemberRow, commits: dict[tuple[str, int], tuple[int, ...]]) -> bool:
    """Whether it showed no sign of life after the new one joined, and expired: a member that leaves commits until
    then."""
    times = commits.get((old.member_id, old.from_log_offset), ())
    if old.valid_to is None or not times or times[-1] >= new.valid_from:
        return False
    return old.valid_to - times[-1] > session_timeout_ms(old) - 2 * COMMIT_INTERVAL_MS
