"""The lives of a group's members, as far as the log tells them, and the rebalances which they made.

What is evidence of what:

* A member is in the log from the generation (or the epoch) which first had it until the one which had it no more.
* Commits of the partitions it owned are signs of life. A commit sets the session anew (classic groups), and a client
  which commits also sends heartbeats. So a member which committed less than a session time-out before it went has left;
  one whose last commit lies a session time-out back has most likely expired, one whose last commit lies
  max.poll.interval.ms back (rebalance_timeout_ms) has most likely been too slow.
* Consumers commit before they join again, so the last commits before a new generation tell when the others found out.
* Members of one group instance id, else of one client id and host, which follow one another are one process.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np

from coordinator_core.assignors import CLIENT_ASSIGNORS
from coordinator_core.history.rows import GenerationRow, MemberRow
from coordinator_core.inference.life import GroupCommits, GroupLife
from coordinator_core.inference.owners import partition_owners
from coordinator_core.whatif.settings import SERVER_ASSIGNORS, Recorded, WhatIfError

CLASSIC: Final = "CLASSIC"
CONSUMER: Final = "CONSUMER"

DEFAULT_SESSION_TIMEOUT_MS: Final = 45_000
DEFAULT_REBALANCE_TIMEOUT_MS: Final = 300_000
HEARTBEAT_MS: Final = 3000
"""heartbeat.interval.ms by default."""
CONSUMER_HEARTBEAT_MS: Final = 5000
"""group.consumer.heartbeat.interval.ms by default."""
COMMIT_INTERVAL_MS: Final = 5000
"""auto.commit.interval.ms by default, where too few commits tell it."""
POLL_MS: Final = 1000
"""How long a client may take to act on what a heartbeat told it."""
DEFAULT_INITIAL_DELAY_MS: Final = 3000


class End(StrEnum):
    """How a life ended, as far as the log tells."""

    STILL = "STILL"
    LEFT = "LEFT"
    EXPIRED = "EXPIRED"
    POLL_EXPIRED = "POLL_EXPIRED"
    REPLACED = "REPLACED"
    """A static member came back under another member id; no rebalance."""
    UNKNOWN = "UNKNOWN"


class Mark(NamedTuple):
    """A fact that makes a group rebalance: `what` is BEGAN, ENDED (of the life of this number) or GREW."""

    what: str
    number: int


BEGAN: Final = "BEGAN"
ENDED: Final = "ENDED"
GREW: Final = "GREW"


@dataclass(frozen=True, slots=True)
class Life:
    """One membership. `slot` is the process which lived it."""

    number: int
    slot: int
    member: MemberRow
    end: End
    commits_ms: tuple[int, ...]
    """Times of its commits, sorted and without repeats."""
    was_there_before: bool
    """It was a member when the window began."""
    has_twin: bool
    """Another member had the same client id and host then: which process lived it is not certain."""
    away_ms: int | None = None
    """When a static member of a consumer group said that it goes for a while."""

    @property
    def session_timeout_ms(self) -> int:
        """Its own, or Kafka's default."""
        return self.member.session_timeout_ms or DEFAULT_SESSION_TIMEOUT_MS

    @property
    def poll_timeout_ms(self) -> int:
        """max.poll.interval.ms, which consumers give as their rebalance time-out."""
        return self.member.rebalance_timeout_ms or DEFAULT_REBALANCE_TIMEOUT_MS


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A recorded generation or group epoch, with the marks which made it; none: a follow-up, or a cause not seen."""

    generation: int
    incarnation: int
    at_ms: int
    began_ms: int
    """When its cause struck, as well as the commits tell."""
    marks: frozenset[Mark]
    member_count: int
    is_first: bool
    """The group was empty before."""
    created_ms: int | None
    """When the group was made, where this generation is its first and the log has it."""
    previous_ms: int


@dataclass(frozen=True, slots=True)
class Growth:
    """A topic had so many partitions from a rebalance on."""

    number: int
    topic: str
    partition_count: int


@dataclass(frozen=True, slots=True)
class Story:
    """All that the log tells of a group's members in a window of time."""

    group_id: str
    group_type: str
    from_ms: int
    to_ms: int
    protocol_name: str | None
    lives: tuple[Life, ...]
    rebalances: tuple[Rebalance, ...]
    topics: dict[str, int]
    """Topic -> partitions at the beginning."""
    growths: tuple[Growth, ...]
    initial_rebalance_delay_ms: int
    heartbeat_interval_ms: int
    session_timeout_ms: int
    """group.consumer.session.timeout.ms, for consumer groups."""


def story_of(life: GroupLife, recorded: Recorded, *, from_ms: int | None = None, to_ms: int | None = None) -> Story:
    """The story of a classic or consumer group. Raises WhatIfError for groups whose story cannot be played."""
    generations = _generations(life, from_ms, to_ms)
    group_type = generations[0].group_type
    first_ms = generations[0].valid_from if from_ms is None else from_ms
    last_ms = _last_ms(life) if to_ms is None else to_ms
    members = [row for row in life.members if row.group_type == group_type and _overlaps(row, first_ms, last_ms)]
    if not members:
        raise WhatIfError(f"group {life.group_id} had no members then: there is nothing to play")
    heartbeat_ms = _heartbeat_interval_ms(members, recorded) if group_type == CLASSIC else CONSUMER_HEARTBEAT_MS
    lives = _lives(life, members, generations[0], first_ms, recorded, heartbeat_ms)
    topics, growths = _topics(life, generations, first_ms)
    if not topics:
        raise WhatIfError(f"group {life.group_id} was never assigned a partition: there is nothing to compare")
    rebalances = _rebalances(life, generations, lives, growths, first_ms, heartbeat_ms)
    return Story(
        life.group_id,
        group_type,
        first_ms,
        last_ms,
        _protocol(life.group_id, generations, group_type),
        lives,
        rebalances,
        topics,
        tuple(growth for _, growth in growths),
        _initial_delay_ms(rebalances, recorded),
        heartbeat_ms,
        recorded.consumer_session_timeout_ms,
    )


def _generations(life: GroupLife, from_ms: int | None, to_ms: int | None) -> list[GenerationRow]:
    rows = [
        row
        for row in life.generations
        if (from_ms is None or row.valid_to is None or row.valid_to > from_ms)
        and (to_ms is None or row.valid_from < to_ms)
    ]
    if not rows:
        raise WhatIfError(f"group {life.group_id} has no generation in the log then: choose another time or group")
    types = {row.group_type for row in rows if row.member_count or row.group_type != CLASSIC}
    if len(types) > 1:
        raise WhatIfError(
            f"group {life.group_id} was converted ({' and '.join(sorted(types))}): ask with --from and --to for a time "
            "in which it had one type"
        )
    kind = next(iter(types), CLASSIC)
    if kind not in {CLASSIC, CONSUMER}:
        raise WhatIfError(f"group {life.group_id} is a {kind.lower()} group: its members cannot be played")
    return [row for row in rows if row.group_type == kind]


def _heartbeat_interval_ms(members: Sequence[MemberRow], recorded: Recorded) -> int:
    """As told; else Kafka's default, or the third of the session which Kafka recommends where that is less."""
    if recorded.heartbeat_interval_ms is not None:
        return recorded.heartbeat_interval_ms
    shortest_ms = min(row.session_timeout_ms or DEFAULT_SESSION_TIMEOUT_MS for row in members)
    return max(1, min(HEARTBEAT_MS, shortest_ms // 3))


def _protocol(group_id: str, generations: Sequence[GenerationRow], group_type: str) -> str | None:
    types = {row.protocol_type for row in generations if row.member_count and row.protocol_type}
    if group_type == CLASSIC and types - {"consumer"}:
        raise WhatIfError(
            f"group {group_id} is no group of consumers ({', '.join(sorted(types))}): it cannot be played"
        )
    names = dict.fromkeys(row.protocol_name for row in generations if row.protocol_name)
    if group_type == CLASSIC and len(names) > 1:
        raise WhatIfError(
            f"group {group_id} changed its assignor ({', '.join(names)}): ask with --from and --to for a time in which "
            "it had one"
        )
    name = next(iter(names), None)
    known = CLIENT_ASSIGNORS if group_type == CLASSIC else SERVER_ASSIGNORS
    if name is not None and name not in known:
        raise WhatIfError(
            f"group {group_id} has the assignor {name}, which is none of Kafka's own: it cannot be played"
        )
    return name


def _overlaps(row: MemberRow, from_ms: int, to_ms: int) -> bool:
    return row.valid_from < to_ms and (row.valid_to is None or row.valid_to > from_ms)


def _last_ms(life: GroupLife) -> int:
    """The last thing that the log tells of the group, and a little more, so that it still is in the window."""
    times = [row.valid_from for row in life.generations]
    times += [row.valid_to for row in life.members if row.valid_to is not None]
    if len(life.commits):
        times.append(int(life.commits.recorded_at_ms.max()))
    return max(times) + 1


# --- lives ---


def _lives(
    life: GroupLife,
    members: Sequence[MemberRow],
    first: GenerationRow,
    first_ms: int,
    recorded: Recorded,
    heartbeat_ms: int,
) -> tuple[Life, ...]:
    is_cut = (first.previous_generation is None and first.generation > 2) or not first.is_contiguous
    commits = _commits_by_member(life)
    slots, twins = _slots(members, commits)
    lives = []
    for number, row in enumerate(members):
        times = commits.get((row.member_id, row.from_log_offset), ())
        member = row
        if row.group_type == CONSUMER:
            member = row._replace(session_timeout_ms=recorded.consumer_session_timeout_ms)
        there_before = member.valid_from < max(first.valid_from, first_ms) or (
            is_cut and member.from_log_offset <= first.from_log_offset
        )
        end = _end_of(member, times, heartbeat_ms)
        away_ms = _away_ms(life, member)
        lives.append(Life(number, slots[number], member, end, times, there_before, number in twins, away_ms))
    return tuple(lives)


def _away_ms(life: GroupLife, member: MemberRow) -> int | None:
    times = [
        event.at
        for event in life.events
        if event.event_type == "STATIC_MEMBER_LEFT" and event.member_id == member.member_id
    ]
    return times[-1] if times and member.valid_to is not None else None


def _commits_by_member(life: GroupLife) -> dict[tuple[str, int], tuple[int, ...]]:
    """Times of the commits of what each stretch of membership owned."""
    commits: GroupCommits = life.commits
    places: dict[tuple[str, int], np.ndarray] = {}
    for topic in range(len(commits.topics)):
        of_topic = np.flatnonzero((commits.topic == topic) & (commits.committed_offset >= 0))
        for partition in np.unique(commits.partition[of_topic]).tolist():
            places[commits.topics[topic], partition] = of_topic[commits.partition[of_topic] == partition]
    stretches: dict[str, list[MemberRow]] = defaultdict(list)
    for row in life.members:
        stretches[row.member_id].append(row)
    times: dict[tuple[str, int], set[int]] = defaultdict(set)
    for owner in partition_owners(life):
        place = places.get((owner.topic or "", owner.partition))
        if place is None:
            continue
        offsets = commits.log_offset[place]
        first = int(np.searchsorted(offsets, owner.from_log_offset, "right"))
        last = len(offsets) if owner.to_log_offset is None else int(np.searchsorted(offsets, owner.to_log_offset))
        rows = stretches[owner.member_id]
        index = max(bisect_left([row.from_log_offset for row in rows], owner.from_log_offset + 1) - 1, 0)
        if rows:
            times[owner.member_id, rows[index].from_log_offset].update(
                commits.recorded_at_ms[place[first:last]].tolist()
            )
    return {key: tuple(sorted(found)) for key, found in times.items()}


def _end_of(member: MemberRow, commits_ms: Sequence[int], heartbeat_ms: int) -> End:
    """How it went. See the docstring of the module."""
    if member.valid_to is None:
        return End.STILL
    if member.ended_by == "REPLACED_STATIC":
        return End.REPLACED
    if member.instance_id is not None:
        return End.EXPIRED  # static members do not leave when they are closed
    if not commits_ms:
        return End.UNKNOWN
    silent_ms = member.valid_to - commits_ms[-1]
    session_ms = member.session_timeout_ms or DEFAULT_SESSION_TIMEOUT_MS
    poll_ms = member.rebalance_timeout_ms or DEFAULT_REBALANCE_TIMEOUT_MS
    if silent_ms < min(session_ms, poll_ms) - heartbeat_ms:
        return End.LEFT
    slack_ms = _commit_interval_ms(commits_ms) + 2 * heartbeat_ms + 2 * POLL_MS
    fits = [
        end
        for end, timeout_ms in ((End.EXPIRED, session_ms), (End.POLL_EXPIRED, poll_ms))
        if timeout_ms - heartbeat_ms <= silent_ms <= timeout_ms + slack_ms
    ]
    return fits[0] if len(fits) == 1 else End.UNKNOWN


def _commit_interval_ms(commits_ms: Sequence[int]) -> int:
    if len(commits_ms) < 3:
        return COMMIT_INTERVAL_MS
    return int(np.median(np.diff(np.array(commits_ms, np.int64))))


def _slots(
    members: Sequence[MemberRow], commits: dict[tuple[str, int], tuple[int, ...]]
) -> tuple[dict[int, int], set[int]]:
    """Number of a life -> its process; and the lives for which that was not certain.

    A process is free again once its life is over, or where it has been silent since before the new member came: it
    died then, and the coordinator did not know yet.
    """
    slots: dict[int, int] = {}
    twins: set[int] = set()
    running: dict[tuple[object, ...], list[int]] = defaultdict(list)
    """Identity -> the last life of each of its slots."""
    for number, member in sorted(enumerate(members), key=lambda item: item[1].from_log_offset):
        by_name = (member.client_id, member.client_host)
        identity = (member.instance_id,) if member.instance_id is not None else by_name
        same_id = [last for last in running[identity] if members[last].member_id == member.member_id]
        free = same_id or [last for last in running[identity] if _is_over(members[last], member)]
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


def _is_over(old: MemberRow, new: MemberRow) -> bool:
    return old.to_log_offset is not None and old.to_log_offset <= new.from_log_offset


def _is_dead(old: MemberRow, new: MemberRow, commits: dict[tuple[str, int], tuple[int, ...]]) -> bool:
    """Never heard of again since the new one came, and it expired: who leaves is heard of until then."""
    times = commits.get((old.member_id, old.from_log_offset), ())
    if old.valid_to is None or not times or times[-1] >= new.valid_from:
        return False
    return old.valid_to - times[-1] > (old.session_timeout_ms or DEFAULT_SESSION_TIMEOUT_MS) - 2 * COMMIT_INTERVAL_MS


# --- topics ---


def _topics(
    life: GroupLife, generations: Sequence[GenerationRow], first_ms: int
) -> tuple[dict[str, int], list[tuple[int, Growth]]]:
    """Partitions of each topic at first, and (log offset, growth).

    The first assignment of a topic holds all its partitions, since every group assigns all of what it reads.
    """
    first: dict[str, int] = {}
    known: dict[str, tuple[int, int]] = {}
    """Topic -> (partitions, log offset of the assignment which showed them)."""
    growths: list[tuple[int, Growth]] = []
    for row in sorted(life.assignments, key=lambda row: (row.from_log_offset, -row.partition)):
        topic = row.topic or row.topic_id
        if row.group_type != generations[0].group_type or topic is None or row.partition < 0:
            continue
        count, place = known.get(topic, (0, row.from_log_offset))
        if row.partition < count:
            continue
        known[topic] = row.partition + 1, row.from_log_offset
        if row.valid_from <= first_ms or place == row.from_log_offset:
            first[topic] = row.partition + 1
        else:
            growths.append((row.from_log_offset, Growth(len(growths), topic, row.partition + 1)))
    return first, growths


# --- rebalances ---


def _rebalances(
    life: GroupLife,
    generations: Sequence[GenerationRow],
    lives: Sequence[Life],
    growths: Sequence[tuple[int, Growth]],
    first_ms: int,
    heartbeat_ms: int,
) -> tuple[Rebalance, ...]:
    found: list[Rebalance] = []
    was_empty, previous_ms, created_ms = True, first_ms, None
    for row in generations:
        if row.generation == 0:
            created_ms, was_empty = row.valid_from, True
            continue
        marks = _marks(row, lives, growths)
        if row.valid_from >= first_ms and not any(one.was_there_before and _is_of(one, row) for one in lives):
            began_ms = _began_ms(row, lives, previous_ms, heartbeat_ms)
            found.append(
                Rebalance(
                    row.generation,
                    row.incarnation,
                    row.valid_from,
                    began_ms,
                    marks,
                    row.member_count,
                    was_empty and row.member_count > 0,
                    created_ms if was_empty else None,
                    previous_ms,
                )
            )
        was_empty, previous_ms, created_ms = row.member_count == 0, row.valid_from, None
    return tuple(found)


def _is_of(life: Life, row: GenerationRow) -> bool:
    """Whether it is the window's first generation, which has members that came before it."""
    return life.member.from_log_offset == row.from_log_offset


def _marks(row: GenerationRow, lives: Sequence[Life], growths: Sequence[tuple[int, Growth]]) -> frozenset[Mark]:
    """What is new in this generation: its operation is where lives begin and end in the log."""
    place, next_place = row.from_log_offset, row.to_log_offset
    marks = [Mark(BEGAN, life.number) for life in lives if life.member.from_log_offset == place]
    marks += [
        Mark(ENDED, life.number)
        for life in lives
        if life.member.to_log_offset == place and life.end not in {End.REPLACED, End.STILL}
    ]
    marks += [
        Mark(GREW, growth.number)
        for offset, growth in growths
        if place <= offset and (next_place is None or offset < next_place)
    ]
    return frozenset(marks)


def _began_ms(row: GenerationRow, lives: Sequence[Life], previous_ms: int, heartbeat_ms: int) -> int:
    """When the others found out, less the half of a heartbeat interval which that takes; epochs begin as written."""
    if row.group_type == CONSUMER:
        return row.valid_from
    others = [
        life
        for life in lives
        if life.member.from_log_offset < row.from_log_offset
        and (life.member.to_log_offset is None or life.member.to_log_offset > row.from_log_offset)
    ]
    if not others:
        return row.valid_from
    last_signs = []
    for life in others:
        index = bisect_left(life.commits_ms, row.valid_from)
        if index and life.commits_ms[index - 1] > previous_ms:
            last_signs.append(life.commits_ms[index - 1])
    if len(last_signs) == len(others):
        return max(min(last_signs) - POLL_MS // 2 - heartbeat_ms // (len(others) + 1), previous_ms + 1)
    return max(row.valid_from - POLL_MS // 2 - heartbeat_ms * len(others) // (len(others) + 1), previous_ms + 1)


def _initial_delay_ms(rebalances: Iterable[Rebalance], recorded: Recorded) -> int:
    """What was told; else what the first generation after the group was made shows; else Kafka's default.

    One member waits for the delay once, several twice: the first of the others makes it wait again.
    """
    if recorded.initial_rebalance_delay_ms is not None:
        return recorded.initial_rebalance_delay_ms
    for rebalance in rebalances:
        if rebalance.created_ms is not None:
            waited_ms = rebalance.at_ms - rebalance.created_ms
            seen_ms = waited_ms if rebalance.member_count == 1 else waited_ms // 2
            if seen_ms < DEFAULT_INITIAL_DELAY_MS - POLL_MS // 2:
                return 0 if seen_ms < POLL_MS // 2 else round(seen_ms, -2)
    return DEFAULT_INITIAL_DELAY_MS
