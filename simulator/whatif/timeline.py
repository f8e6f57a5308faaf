"""A group's timeline in the log: the lifetimes of its members, its rebalances, and the causes of each.

Consumers commit before they join again, so the last commits before a new generation show when the other members found
out.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from coordinator_core.errors import WhatIfError
from coordinator_core.history.rows import GenerationRow, MemberRow
from coordinator_core.inference.audit.groups import audit_group
from coordinator_core.inference.commits.last_commit_times import last_commit_times
from coordinator_core.inference.facts.configs import NO_CONFIGS, SESSION_TIMEOUTS, Configs
from coordinator_core.inference.facts.life import GroupLife
from coordinator_core.inference.facts.rows import RebalanceRow
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.groups.join_phases import JoinPhases
from coordinator_core.inference.groups.leave_reasons import UNKNOWN, LeaveReasons, find_leave_reasons
from coordinator_core.inference.groups.owners import partition_owners
from coordinator_core.inference.groups.rebalances import is_unwritten
from coordinator_core.inference.groups.rollouts import FOLLOW_UPS, by_others, find_rollouts
from coordinator_core.live.assignors import CLIENT_ASSIGNORS
from schemas.group_types import GroupType
from simulator.whatif.lifetimes import POLL_MS, End, Lifetime, lifetimes_of, session_timeout_ms
from simulator.whatif.release import UNKNOWN_RELEASE, PlayedRelease, played_release
from simulator.whatif.settings import SERVER_ASSIGNORS, Changes, Recorded
from simulator.whatif.verdicts import Measures, exactly, measures_sum

CONSUMER_SESSION_TIMEOUT: Final = SESSION_TIMEOUTS[GroupType.CONSUMER]
"""The group config; the broker config is `group.consumer.session.timeout.ms`."""
HEARTBEAT_MS: Final = 3000
"""heartbeat.interval.ms by default."""
CONSUMER_HEARTBEAT_MS: Final = 5000
"""group.consumer.heartbeat.interval.ms by default."""
DEFAULT_INITIAL_DELAY_MS: Final = 3000


class Mark(NamedTuple):
    """A fact that causes a rebalance: `what` is BEGAN, ENDED (for the life with this number), SILENT, BACK (for what
    was unseen with this number), or GREW."""

    what: str
    number: int


BEGAN: Final = "BEGAN"
ENDED: Final = "ENDED"
GREW: Final = "GREW"
SILENT: Final = "SILENT"
BACK: Final = "BACK"


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A recorded generation or group epoch, with the marks that caused it; without marks its cause is none that can be
    played. Follow-ups belong to the rebalance before.
    """

    generation: int
    at_ms: int
    began_ms: int
    """The time of its cause, as far as the commits show it."""
    marks: frozenset[Mark]
    member_count: int
    is_first: bool
    """The group was empty before."""
    created_ms: int | None
    """When the group was created, if this generation is its first and the log has it."""
    previous_ms: int
    cause: str
    """By gold, with its method."""
    measured: Measures
    """By gold, with its follow-ups; `not_served_ms` is not there."""
    is_played: bool
    """Its members did not join before the log or the time span."""


@dataclass(frozen=True, slots=True)
class Growth:
    """A topic had this many partitions from a rebalance on."""

    number: int
    topic: str
    partition_count: int


class Unseen(NamedTuple):
    """What may have happened to a member in some time, although nothing came of it under the recorded settings."""

    what: str
    life: int
    from_ms: int
    to_ms: int


PAUSED: Final = "PAUSED"
"""It neither polled nor sent heartbeats."""
SLOW: Final = "SLOW"
"""It sent heartbeats, but did not poll."""
REFUSED: Final = "REFUSED"
"""It had died and came back, and was refused, since the group still had its group.instance.id."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Everything that the log shows about a group's members in a window of time."""

    group_id: str
    group_type: str
    from_ms: int
    to_ms: int
    protocol_name: str | None
    lifetimes: tuple[Lifetime, ...]
    rebalances: tuple[Rebalance, ...]
    topics: dict[str, int]
    """Topic -> number of partitions at the beginning."""
    growths: tuple[Growth, ...]
    initial_rebalance_delay_ms: int
    heartbeat_interval_ms: int
    session_timeout_ms: int
    """consumer.session.timeout.ms of the group, else group.consumer.session.timeout.ms; for the consumer protocol."""
    is_session_known: bool
    """The log shows it for the whole time; otherwise the given value, or the default, was assumed."""
    release: PlayedRelease = UNKNOWN_RELEASE
    """The release whose rules the coordinator follows."""
    unseen: tuple[Unseen, ...] = ()
    """What of that would matter under the changed settings."""
    is_blind: bool = False
    """Members that seldom commit may have been silent at any time."""

    @property
    def partition_count(self) -> int:
        """Of all topics, at the end."""
        return sum({**self.topics, **{growth.topic: growth.partition_count for growth in self.growths}}.values())

    @property
    def protocol(self) -> str:
        """group.protocol of its members."""
        return "classic" if self.group_type == GroupType.CLASSIC else "consumer"

    def protocol_under(self, changes: Changes) -> str:
        return changes.protocol or self.protocol

    def life_of(self, mark: Mark) -> Lifetime:
        """The lifetime that a mark is about; it is not the topics that grew."""
        return self.lifetimes[self.unseen[mark.number].life if mark.what in {SILENT, BACK} else mark.number]


def timeline_of(
    life: GroupLife,
    recorded: Recorded,
    configs: Configs = NO_CONFIGS,
    *,
    from_ms: int | None = None,
    to_ms: int | None = None,
) -> Timeline:
    """The timeline of a classic or consumer group. Raises WhatIfError for groups whose timeline cannot be played."""
    generations = _generations(life, from_ms, to_ms)
    group_type = generations[0].group_type
    first_ms = generations[0].valid_from if from_ms is None else from_ms
    last_ms = _last_ms(life) if to_ms is None else to_ms
    members = [row for row in life.members if row.group_type == group_type and _overlaps(row, first_ms, last_ms)]
    if not members:
        raise WhatIfError(f"group {life.group_id} had no members then: there is nothing to play")
    heartbeat_ms = (
        _heartbeat_interval_ms(members, recorded) if group_type == GroupType.CLASSIC else CONSUMER_HEARTBEAT_MS
    )
    session_ms, is_session_known = _consumer_session(life.group_id, group_type, members, recorded, configs, last_ms)
    if group_type == GroupType.CONSUMER:
        members = [row._replace(session_timeout_ms=session_ms) for row in members]
    leave_reasons = _departed(life, recorded, configs)
    lifetimes = lifetimes_of(life, members, generations[0], first_ms, heartbeat_ms, leave_reasons)
    topics, growths = _topics(life, generations, first_ms)
    if not topics:
        raise WhatIfError(f"group {life.group_id} was never assigned a partition: there is nothing to compare")
    settings = InferenceSettings(modern_session_timeout_ms=recorded.consumer_session_timeout_ms)
    in_gold = {(row.incarnation, row.to_generation): row for row in audit_group(life, settings, configs).rebalances}
    rebalances = _rebalances(generations, lifetimes, growths, first_ms, heartbeat_ms, in_gold)
    return Timeline(
        life.group_id,
        group_type,
        first_ms,
        last_ms,
        _protocol(life.group_id, generations, group_type),
        lifetimes,
        rebalances,
        topics,
        tuple(growth for _, growth in growths),
        _initial_delay_ms(rebalances, recorded),
        heartbeat_ms,
        session_ms,
        is_session_known,
        played_release(life, generations, recorded.kafka_version, configs, first_ms, last_ms),
    )


def _departed(life: GroupLife, recorded: Recorded, configs: Configs) -> LeaveReasons:
    """Why members departed, according to gold."""
    settings = InferenceSettings(modern_session_timeout_ms=recorded.consumer_session_timeout_ms)
    owners = partition_owners(life)
    commit_times = last_commit_times(life.commits, owners, life.members, {})
    leave_reasons = find_leave_reasons(life, commit_times, JoinPhases(life, owners, {}), settings, configs)
    return {**leave_reasons, **by_others(find_rollouts(life.members, leave_reasons, settings), leave_reasons)}


def _generations(life: GroupLife, from_ms: int | None, to_ms: int | None) -> list[GenerationRow]:
    rows = [
        row
        for row in life.generations
        if (from_ms is None or row.valid_to is None or row.valid_to > from_ms)
        and (to_ms is None or row.valid_from < to_ms)
    ]
    if not rows:
        raise WhatIfError(f"group {life.group_id} has no generation in the log then: choose another time or group")
    types = {row.group_type for row in rows if row.member_count or row.group_type != GroupType.CLASSIC}
    if len(types) > 1:
        raise WhatIfError(
            f"group {life.group_id} was converted ({' and '.join(sorted(types))}): ask with --from and --to for a time "
            "in which it had one type"
        )
    kind = next(iter(types), GroupType.CLASSIC)
    if kind not in {GroupType.CLASSIC, GroupType.CONSUMER}:
        raise WhatIfError(f"group {life.group_id} is a {kind.lower()} group: its members cannot be played")
    return [row for row in rows if row.group_type == kind]


def _heartbeat_interval_ms(members: Sequence[MemberRow], recorded: Recorded) -> int:
    """The given value; otherwise Kafka's default, or a third of the session (Kafka's recommendation) if that is
    less."""
    if recorded.heartbeat_interval_ms is not None:
        return recorded.heartbeat_interval_ms
    shortest_ms = min(map(session_timeout_ms, members))
    return max(1, min(HEARTBEAT_MS, shortest_ms // 3))


def _consumer_session(
    group_id: str, group_type: str, members: Sequence[MemberRow], recorded: Recorded, configs: Configs, last_ms: int
) -> tuple[int, bool]:
    """The session timeout of the consumer protocol, in ms, and whether the log shows it for the whole time.

    It is checked whenever a member joined or departed, and at the end: a play has only one value.
    """
    times = {row.valid_from for row in members} | {row.valid_to for row in members if row.valid_to is not None}
    at_ms = np.array(sorted({time_ms for time_ms in times if time_ms < last_ms} | {last_ms - 1}), np.int64)
    group = np.zeros(len(at_ms), np.int64)
    default_ms = recorded.consumer_session_timeout_ms
    found = configs.numbers(CONSUMER_SESSION_TIMEOUT, (group_id,), group, at_ms, default_ms)
    values: list[int] = np.unique(found.values).tolist()
    if len(values) > 1 and group_type == GroupType.CONSUMER:
        raise WhatIfError(
            f"group {group_id} had {CONSUMER_SESSION_TIMEOUT} {' and '.join(map(str, values))}: ask with --from and "
            "--to for a time in which it had one, or tell with --recorded what it was where the log does not"
        )
    return int(found.values[-1]), len(values) == 1 and bool(found.is_known.all())


def _protocol(group_id: str, generations: Sequence[GenerationRow], group_type: str) -> str | None:
    types = {row.protocol_type for row in generations if row.member_count and row.protocol_type}
    if group_type == GroupType.CLASSIC and types - {"consumer"}:
        raise WhatIfError(
            f"group {group_id} is no group of consumers ({', '.join(sorted(types))}): it cannot be played"
        )
    names = dict.fromkeys(row.protocol_name for row in generations if row.protocol_name)
    if group_type == GroupType.CLASSIC and len(names) > 1:
        raise WhatIfError(
            f"group {group_id} changed its assignor ({', '.join(names)}): ask with --from and --to for a time in which "
            "it had one"
        )
    name = next(iter(names), None)
    known = CLIENT_ASSIGNORS if group_type == GroupType.CLASSIC else SERVER_ASSIGNORS
    if name is not None and name not in known:
        raise WhatIfError(
            f"group {group_id} has the assignor {name}, which is none of Kafka's own: it cannot be played"
        )
    return name


def _overlaps(row: MemberRow, from_ms: int, to_ms: int) -> bool:
    return row.valid_from < to_ms and (row.valid_to is None or row.valid_to > from_ms)


def _last_ms(life: GroupLife) -> int:
    """Just after the last record of the group, so that the record is in the window."""
    times = [row.valid_from for row in life.generations]
    times += [row.valid_to for row in life.members if row.valid_to is not None]
    if len(life.commits):
        times.append(int(life.commits.recorded_at_ms.max()))
    return max(times) + 1


# --- topics ---


def _topics(
    life: GroupLife, generations: Sequence[GenerationRow], first_ms: int
) -> tuple[dict[str, int], list[tuple[int, Growth]]]:
    """Partition count of each topic at the beginning, and (log offset, growth).

    The first assignment of a topic has all its partitions, since every group assigns all partitions that it reads.
    """
    first: dict[str, int] = {}
    known: dict[str, tuple[int, int]] = {}
    """Topic -> (partitions, log offset of the assignment that showed them)."""
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
    generations: Sequence[GenerationRow],
    lifetimes: Sequence[Lifetime],
    growths: Sequence[tuple[int, Growth]],
    first_ms: int,
    heartbeat_ms: int,
    in_gold: Mapping[tuple[int, int], RebalanceRow],
) -> tuple[Rebalance, ...]:
    found: list[Rebalance] = []
    was_empty, previous_ms, created_ms = True, first_ms, None
    for row in generations:
        if row.generation == 0:
            created_ms, was_empty = row.valid_from, True
        if row.generation == 0 or is_unwritten(row):
            continue
        marks = _marks(row, lifetimes, growths)
        gold = in_gold[row.incarnation, row.generation]
        is_follow_up = not marks and FOLLOW_UPS.issuperset(gold.cause_methods)
        if row.valid_from >= first_ms and is_follow_up and found:
            found[-1] = replace(found[-1], measured=measures_sum([found[-1].measured, _measured(gold)]))
        elif row.valid_from >= first_ms:
            began_ms = _began_ms(row, lifetimes, previous_ms, heartbeat_ms)
            began_before = any(one.was_there_before and _is_of(one, row) for one in lifetimes)
            found.append(
                Rebalance(
                    row.generation,
                    row.valid_from,
                    began_ms,
                    marks,
                    row.member_count,
                    was_empty and row.member_count > 0,
                    created_ms if was_empty else None,
                    previous_ms,
                    UNKNOWN if gold.cause == UNKNOWN else f"{gold.cause} ({gold.method})",
                    _measured(gold),
                    is_played=not began_before and not is_follow_up,
                )
            )
        was_empty, previous_ms, created_ms = row.member_count == 0, row.valid_from, None
    return tuple(found)


def _measured(gold: RebalanceRow) -> Measures:
    return Measures(exactly(1), exactly(gold.partitions_moved), exactly(gold.unowned_partition_ms))


def _is_of(life: Lifetime, row: GenerationRow) -> bool:
    """Whether it is the window's first generation, with members that joined before it."""
    return life.member.from_log_offset == row.from_log_offset


def _marks(row: GenerationRow, lifetimes: Sequence[Lifetime], growths: Sequence[tuple[int, Growth]]) -> frozenset[Mark]:
    """The marks of this generation: its operation is where lifetimes begin and end in the log."""
    place, next_place = row.from_log_offset, row.to_log_offset
    marks = [Mark(BEGAN, life.number) for life in lifetimes if life.member.from_log_offset == place]
    marks += [
        Mark(ENDED, life.number)
        for life in lifetimes
        if life.member.to_log_offset == place and life.end not in {End.REPLACED, End.STILL}
    ]
    marks += [
        Mark(GREW, growth.number)
        for offset, growth in growths
        if place <= offset and (next_place is None or offset < next_place)
    ]
    return frozenset(marks)


def _began_ms(row: GenerationRow, lifetimes: Sequence[Lifetime], previous_ms: int, heartbeat_ms: int) -> int:
    """When the other members found out, less the half heartbeat interval that this takes on average; epochs begin when
    written.
    """
    if row.group_type == GroupType.CONSUMER:
        return row.valid_from
    others = [
        life
        for life in lifetimes
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
    """The given value; otherwise what the first generation after the group's creation shows; otherwise Kafka's default.

    A single member waits for the delay once, several wait twice: the first of the others restarts the wait.
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
