"""Last commit times: when members committed last, and so were known to be alive.

The log does not show who committed. Kafka checks on a commit that the member is one, not that it owns the partition
(ClassicGroup.validateOffsetCommit). So the commits of one time one after the other, an operation, count for a member if
it owned all of their partitions then. If others owned some, or nobody did, somebody may have committed what it does not
own: it does not read that, so its offset does not move on. Only partitions whose offset did count for their owner.

Only the newest times of each member are kept: they show when it last committed and in which rhythm. A commit within a
transaction counts by the heartbeat before it. The times of two parts of a log can be merged into those of both.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import numpy as np

from coordinator_core.bytes.log.chunk import I32, I64, BoolArray
from coordinator_core.bytes.log.kernels import compiled
from coordinator_core.history.rows import MemberRow
from coordinator_core.inference.facts.life import GroupCommits
from coordinator_core.inference.facts.log_facts import NONE_MS
from coordinator_core.inference.facts.partitions import ByPartition, by_partition
from coordinator_core.inference.facts.rows import OwnerRow

TIMES_MAX: Final = 11
"""How many distinct times are kept of a member: the ends of its last ten intervals."""
END_OF_LOG: Final = (1 << 63) - 1
NOBODY: Final = -1
ONE_GROUP: Final = np.zeros(0, np.int64)

Membership = tuple[str, int]
"""Member id and `from_log_offset`: identifies a row of silver.group_members within its group."""
Times = tuple[int, ...]
"""The newest distinct times (ms), ascending."""


def last_commit_times(
    commits: GroupCommits,
    owners: Iterable[OwnerRow],
    members: Iterable[MemberRow],
    before: Mapping[Membership, Times],
    from_log_offset: int = 0,
    applied: ByPartition | None = None,
) -> dict[Membership, Times]:
    """The commit times of each member of one group; members without any are left out.

    `before`: the times up to `from_log_offset`; `commits` need not include earlier commits. `applied`: those that took
    effect, by partition, if known.
    """
    numbers = _numbers_of(commits.topics)
    memberships: dict[str, list[MemberRow]] = {}
    for member in members:
        # a member that was removed by the first record from there on had committed before, too
        if member.to_log_offset is None or member.to_log_offset >= from_log_offset:
            memberships.setdefault(member.member_id, []).append(member)
    owned: list[tuple[int, int, int, int, int]] = []
    places: dict[Membership, int] = {}
    for owner in owners:
        topic = numbers.get(owner.topic or "")
        to = END_OF_LOG if owner.to_log_offset is None else owner.to_log_offset
        if topic is None or owner.partition < 0 or to <= from_log_offset:
            continue
        for member in memberships.get(owner.member_id, ()):
            begin = max(owner.from_log_offset + 1, member.from_log_offset)
            end = to if member.to_log_offset is None else min(to, member.to_log_offset)
            if begin < end:
                place = places.setdefault((member.member_id, member.from_log_offset), len(places))
                owned.append((topic, owner.partition, begin, end, place))
    commit_times = {membership: times for membership, times in before.items() if membership[0] in memberships}
    if not owned:
        return commit_times
    latest = latest_of([before.get(membership, ()) for membership in places])
    if applied is not None and len(applied[0]) == len(commits) and not commits.is_transactional.any():
        rows, starts = applied  # in log order
    else:
        rows, starts = by_partition(commits, np.ones(len(commits), np.bool_), is_in_log_order=True)
    if len(rows):
        topics, partitions, begins, ends, member_of = np.array(owned, np.int64).T
        width = 1 + max(int(commits.partition.max()), int(partitions.max()))
        firsts = rows[starts[:-1]]
        committed = commits.topic[firsts].astype(np.int64) * width + commits.partition[firsts]
        wanted = topics * width + partitions
        found = np.minimum(np.searchsorted(committed, wanted), len(committed) - 1)
        is_there = committed[found] == wanted
        owned_by = owners_of_commits(
            commits.log_offset, rows, starts, found[is_there], begins[is_there], ends[is_there], member_of[is_there]
        )
        times = np.where(commits.is_tombstone, NONE_MS, commits.sign_of_life_ms)
        # of earlier operations only a part may be here
        since = slice(int(np.searchsorted(commits.log_offset, from_log_offset)), None)
        has_moved = commits.has_moved
        add_commit_times(times[since], commits.log_offset[since], ONE_GROUP, owned_by[since], has_moved[since], latest)
    return commit_times | {
        membership: times for membership, times in zip(places, times_of(latest), strict=True) if times
    }


@lru_cache(maxsize=1)
def _numbers_of(topics: tuple[str, ...]) -> Mapping[str, int]:
    """The index of each topic. Groups that are read together have the same topics: all that any of them commits to."""
    return {topic: number for number, topic in enumerate(topics)}


def latest_of(commit_times: Iterable[Times]) -> I64:
    """Times as rows of equal length, ascending, padded with -1 at the front."""
    rows = [(*[-1] * (TIMES_MAX - len(times)), *times) for times in commit_times]
    return np.array(rows, np.int64).reshape(-1, TIMES_MAX)


def times_of(latest: I64) -> list[Times]:
    """The times in the rows of `latest_of`."""
    return [tuple(time for time in row if time >= 0) for row in latest.tolist()]


@compiled
def take_time(latest: I64, time: int) -> None:
    """Insert a time into a row of the newest distinct ones. -1, no time, is ignored."""
    place = len(latest) - 1
    while place >= 0 and latest[place] > time:
        place -= 1
    if place < 0 or latest[place] == time:
        return
    for index in range(place):
        latest[index] = latest[index + 1]
    latest[place] = time


@compiled
def owners_of_commits(log_offset: I64, rows: I32, starts: I64, place: I64, begins: I64, ends: I64, member: I64) -> I32:
    """Which member owned the partition of each commit; NOBODY, also where several did.

    Each ownership interval has its place, the log offsets of its begin and (exclusive) end, and its member; the commits
    to a place are `rows[starts[place] : starts[place + 1]]`, in log order.
    """
    owner = np.full(len(log_offset), NOBODY, np.int32)
    is_taken = np.zeros(len(log_offset), np.bool_)
    for index in range(len(place)):
        first, last = starts[place[index]], starts[place[index] + 1]
        while first < last:
            middle = (first + last) // 2
            if log_offset[rows[middle]] < begins[index]:
                first = middle + 1
            else:
                last = middle
        for at in range(first, starts[place[index] + 1]):
            row = rows[at]
            if log_offset[row] >= ends[index]:
                break
            owner[row] = NOBODY if is_taken[row] else member[index]
            is_taken[row] = True
    return owner


@compiled
def add_commit_times(
    times: I64, log_offset: I64, group: I64, owner: I32 | I64, has_moved: BoolArray, latest: I64
) -> None:
    """Add the times of operations to the rows of `latest` of their members. `group`: of each commit; empty: all are of
    one group. `owner`: a member each, or NOBODY."""
    first = 0
    while first < len(times):
        end, is_one = first + 1, True
        while end < len(times) and times[end] == times[first] and log_offset[end] == log_offset[end - 1] + 1:
            if len(group) and group[end] != group[first]:
                break
            is_one = is_one and owner[end] == owner[first]
            end += 1
        for row in range(first, end):
            if owner[row] >= 0 and (is_one or has_moved[row]):
                take_time(latest[owner[row]], times[row])
        first = end
