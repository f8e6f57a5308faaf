"""Last commit times: when members committed last, and so were known to be alive.

A commit to a partition counts for the member that owned it then. Only the newest times of each member are kept: they
show when it last committed and in which rhythm. A commit within a transaction counts by the heartbeat before it. The
times of two parts of a log can be merged into those of both.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import numpy as np

from coordinator_core.history.rows import MemberRow
from coordinator_core.inference.life import NONE_MS, GroupCommits
from coordinator_core.inference.partitions import ByPartition, by_partition
from coordinator_core.inference.rows import OwnerRow
from coordinator_core.log.chunk import I32, I64
from coordinator_core.log.kernels import compiled

TIMES_MAX: Final = 11
"""How many distinct times are kept of a member: the ends of its last ten intervals."""
END_OF_LOG: Final = (1 << 63) - 1

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
        add_commit_times(
            np.where(commits.is_tombstone, NONE_MS, commits.sign_of_life_ms),
            commits.log_offset,
            rows,
            starts,
            found[is_there],
            begins[is_there],
            ends[is_there],
            member_of[is_there],
            latest,
        )
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
def add_owner_commit_times(times: I64, place: I64, starts: I64, member: I64, latest: I64) -> None:
    """Add commits at `times[i]` to a place owned by `member[starts[place[i]] : starts[place[i] + 1]]`; -1: no owner."""
    for index in range(len(times)):
        if place[index] < 0:
            continue
        for holder in range(starts[place[index]], starts[place[index] + 1]):
            take_time(latest[member[holder]], times[index])


@compiled
def add_commit_times(
    recorded_at_ms: I64,
    log_offset: I64,
    rows: I32,
    starts: I64,
    place: I64,
    begins: I64,
    ends: I64,
    member: I64,
    latest: I64,
) -> None:
    """Add the commits to places, `rows[starts[place] : starts[place + 1]]` in log order, made while a member owned
    them.

    Each ownership interval has its place, the log offsets of its begin and (exclusive) end, and its member.
    """
    for index in range(len(place)):
        first, last = starts[place[index]], starts[place[index] + 1]
        while first < last:
            middle = (first + last) // 2
            if log_offset[rows[middle]] < begins[index]:
                first = middle + 1
            else:
                last = middle
        for at in range(first, starts[place[index] + 1]):
            if log_offset[rows[at]] >= ends[index]:
                break
            take_time(latest[member[index]], recorded_at_ms[rows[at]])
