"""The recorded rebalances beside those of the plays: what would have become of each."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

from coordinator_core.errors import WhatIfError
from coordinator_core.simulate.clients.offsets import COOPERATIVE
from coordinator_core.whatif.hypotheses import Hypothesis, hypotheses_of, open_facts
from coordinator_core.whatif.lifetimes import POLL_MS, End, Lifetime
from coordinator_core.whatif.runner import Play, Played, play
from coordinator_core.whatif.settings import SERVER_ASSIGNORS, Changes
from coordinator_core.whatif.timeline import ENDED, Mark, Rebalance, Timeline
from schemas.group_types import GroupType


class Verdict(StrEnum):
    """What would have become of a recorded rebalance."""

    KEPT = "KEPT"
    """It would have been, at about the same time."""
    MOVED = "MOVED"
    """It would have been at another time."""
    AVOIDED = "AVOIDED"
    MERGED = "MERGED"
    """It and others would have been one."""
    SPLIT = "SPLIT"
    """Several would have been in its place."""
    ADDED = "ADDED"
    """Not recorded, but it would have been."""
    MAY_BE_ADDED = "MAY_BE_ADDED"
    """A member committed nothing for longer than the new session: whether it sent heartbeats the log does not say."""
    CANNOT_TELL = "CANNOT_TELL"
    """The log can be read in several ways, and they differ here: see `possible`."""
    NOT_REPRODUCED = "NOT_REPRODUCED"
    """Under the recorded settings no hypothesis of the log gives it: mostly its cause is not in the log. Left out."""


LIKELY: Final = "LIKELY"
GUESS: Final = "GUESS"
"""As in the gold tables. Nothing which was only played is CERTAIN."""

ASSUMPTIONS: Final[Mapping[str, str]] = {
    "CLIENTS_AS_KAFKAS": "Members are Kafka's consumers: they join, sync, poll and send heartbeats as those do.",
    "SAME_APPLICATION": "Deploys, crashes, pauses and slow polls would have been the same under the other settings.",
    "HEARTBEAT_INTERVAL": "heartbeat.interval.ms, which no log holds, was as told, or 3000, or a third of the session.",
    "INITIAL_DELAY": "group.initial.rebalance.delay.ms was as told, as the log shows, or Kafka's default of 3000.",
    "JOINS_WITHIN_DELAY": "The log does not tell when, during the delay, the members of a first generation came.",
    "PAUSED_OR_CRASHED": "A member which expired and came back later stood still, or died and was started anew.",
    "LEFT_OR_EXPIRED": "The commits do not tell whether a member left or expired.",
    "SAME_CLIENT": "A member of the client id and host of one that went is the same process, come back.",
    "ASSIGNOR_DEFAULT": "Under the other protocol members ask for its default assignor.",
    "CONSUMER_SESSION": "consumer.session.timeout.ms, where the log does not tell it, was as told, or 45000.",
}
"""Name of an assumption -> what it says."""

ALWAYS: Final = frozenset({"CLIENTS_AS_KAFKAS", "SAME_APPLICATION"})


class Range(NamedTuple):
    """From the least to the most that any hypothesis gives."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class RebalanceAnswer:
    """A recorded rebalance, or one that would have been added. Times in epoch ms, ranges over the hypotheses."""

    verdict: Verdict
    at_ms: int
    """As recorded; of one which is not, when it would have been at the earliest."""
    generation: int | None
    causes: tuple[str, ...]
    possible: tuple[str, ...]
    """All verdicts of the hypotheses which reproduce it."""
    shift_ms: Range | None
    """How much later it would have been; None where it would not have been, or may not."""
    rebalances: Range
    """Generations in its place, follow-ups included."""
    recorded_rebalances: Range
    """The same under the recorded settings."""
    moved: Range
    recorded_moved: Range
    """Partitions that changed owner, as gold.rebalances counts them."""
    unowned_ms: Range
    recorded_unowned_ms: Range
    """Sum over partitions of the time without an owner, as gold.rebalances counts it."""
    not_served_ms: Range
    recorded_not_served_ms: Range
    """Sum over partitions of the time without a living owner: also until the coordinator found out that one died."""
    confidence: str | None
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the window, as played under the recorded settings (`recorded_`) and under the changed ones."""

    recorded_count: int
    """Generations or epochs in the log."""
    reproduced_count: int
    recorded_rebalances: Range
    rebalances: Range
    recorded_moved: Range
    moved: Range
    recorded_unowned_ms: Range
    unowned_ms: Range
    recorded_not_served_ms: Range
    not_served_ms: Range
    hypotheses: int


@dataclass(frozen=True, slots=True)
class _Pair:
    """Both plays of one hypothesis."""

    hypothesis: Hypothesis
    baseline: Play
    changed: Play


def compare(timeline: Timeline, changes: Changes) -> tuple[list[RebalanceAnswer], Totals]:
    """What would have become of each rebalance, in the order of time, and the sums.

    Raises WhatIfError where the change has no meaning for the group.
    """
    check(timeline, changes)
    pairs = [
        _Pair(hypothesis, play(timeline, hypothesis, Changes()), play(timeline, hypothesis, changes))
        for hypothesis in hypotheses_of(timeline)
    ]
    tolerance_ms = 2 * (timeline.heartbeat_interval_ms + POLL_MS)
    answers: list[RebalanceAnswer] = []
    reproduced_count = 0
    follow_ups_left = 0
    for rebalance in timeline.rebalances:
        if rebalance.marks:
            ways = [way for pair in pairs if (way := _way(rebalance, pair, tolerance_ms)) is not None]
            follow_ups_left = max((way.before.follow_up_count for way in ways), default=0)
            answers.append(_answer(timeline, changes, rebalance, ways))
            reproduced_count += bool(ways)
        elif follow_ups_left:
            follow_ups_left -= 1
            reproduced_count += 1
        else:
            answers.append(_not_reproduced(rebalance))
    answers += _added(timeline, changes, pairs)
    may_be_added = _may_be_added(timeline, changes)
    answers = sorted([*answers, *may_be_added], key=lambda answer: (answer.at_ms, answer.generation or 0))
    return answers, _totals(timeline, pairs, reproduced_count, sum(one.rebalances.most for one in may_be_added))


def check(timeline: Timeline, changes: Changes) -> None:
    """Whether the change means something for this group. Raises WhatIfError, which says what to ask instead."""
    kind = "classic" if timeline.group_type == GroupType.CLASSIC else "consumer"
    protocol = changes.protocol or kind
    if changes.protocol == kind:
        raise WhatIfError(f"group {timeline.group_id} had group.protocol={kind} already")
    if changes.session_timeout_ms is not None and protocol == "consumer":
        raise WhatIfError("members of the consumer protocol go by group.consumer.session.timeout.ms: set that")
    if changes.consumer_session_timeout_ms is not None and protocol == "classic":
        raise WhatIfError("members of the classic protocol go by session.timeout.ms: set that")
    if changes.session_timeout_ms is not None and changes.session_timeout_ms <= timeline.heartbeat_interval_ms:
        raise WhatIfError(f"session.timeout.ms must be above heartbeat.interval.ms, {timeline.heartbeat_interval_ms}")
    if changes.initial_rebalance_delay_ms is not None and protocol == "consumer":
        raise WhatIfError("group.initial.rebalance.delay.ms is for the classic protocol: consumer groups do not wait")
    is_server_side = changes.assignor in SERVER_ASSIGNORS
    if changes.assignor is not None and protocol == "consumer" and not is_server_side:
        raise WhatIfError(f"assignor must be one of the broker's under this protocol: {', '.join(SERVER_ASSIGNORS)}")
    if changes.assignor == "uniform" and protocol == "classic":
        raise WhatIfError("assignor uniform is the broker's: set group.protocol=consumer as well")


# --- one rebalance in one hypothesis ---


class _Way(NamedTuple):
    """What became of a recorded rebalance in one hypothesis."""

    verdict: Verdict
    before: Played
    after: tuple[Played, ...]
    shift_ms: int | None


def _way(rebalance: Rebalance, pair: _Pair, tolerance_ms: int) -> _Way | None:
    """None where the hypothesis does not reproduce what was recorded."""
    baseline = [one for one in pair.baseline.rebalances if one.marks & rebalance.marks]
    if len(baseline) != 1 or baseline[0].marks != rebalance.marks:
        return None
    before = baseline[0]
    if abs(before.at_ms - rebalance.at_ms) > tolerance_ms:
        return None
    after = tuple(one for one in pair.changed.rebalances if one.marks & rebalance.marks)
    if not after:
        return _Way(Verdict.AVOIDED, before, after, None)
    shift_ms = after[0].at_ms - before.at_ms
    if len(after) > 1:
        return _Way(Verdict.SPLIT, before, after, shift_ms)
    if after[0].marks - rebalance.marks & _marks(pair.baseline.rebalances):
        return _Way(Verdict.MERGED, before, after, shift_ms)
    return _Way(Verdict.KEPT if abs(shift_ms) <= tolerance_ms else Verdict.MOVED, before, after, shift_ms)


def _marks(played: Iterable[Played]) -> frozenset[Mark]:
    return frozenset(mark for one in played for mark in one.marks)


# --- all hypotheses ---


def _answer(timeline: Timeline, changes: Changes, rebalance: Rebalance, ways: Sequence[_Way]) -> RebalanceAnswer:
    if not ways:
        return _not_reproduced(rebalance, timeline)
    possible = tuple(sorted({way.verdict.value for way in ways}))
    verdict = Verdict(possible[0]) if len(possible) == 1 else _joined(frozenset(possible))
    shifts = [way.shift_ms for way in ways if way.shift_ms is not None]
    facts = frozenset().union(*(open_facts(timeline, mark) for mark in rebalance.marks))
    confidence = None if verdict is Verdict.CANNOT_TELL else GUESS if facts - {"PAUSED_OR_CRASHED"} else LIKELY
    return RebalanceAnswer(
        verdict,
        rebalance.at_ms,
        rebalance.generation,
        causes_of(timeline, rebalance.marks),
        possible,
        _range(shifts) if len(shifts) == len(ways) else None,
        _range([_count(way.after) for way in ways]),
        _range([1 + way.before.follow_up_count for way in ways]),
        _range([sum(one.moved_count for one in way.after) for way in ways]),
        _range([way.before.moved_count for way in ways]),
        _range([sum(one.unowned_ms for one in way.after) for way in ways]),
        _range([way.before.unowned_ms for way in ways]),
        _range([sum(one.not_served_ms for one in way.after) for way in ways]),
        _range([way.before.not_served_ms for way in ways]),
        confidence,
        _assumptions(timeline, changes, facts, rebalance.is_first),
    )


def _joined(possible: frozenset[str]) -> Verdict:
    """Hypotheses which differ only in whether a move is worth the name say that it moved."""
    return Verdict.MOVED if possible == {Verdict.KEPT, Verdict.MOVED} else Verdict.CANNOT_TELL


NOTHING: Final = Range(0, 0)


def _not_reproduced(rebalance: Rebalance, timeline: Timeline | None = None) -> RebalanceAnswer:
    causes = () if timeline is None else causes_of(timeline, rebalance.marks)
    return RebalanceAnswer(
        Verdict.NOT_REPRODUCED,
        rebalance.at_ms,
        rebalance.generation,
        causes,
        (),
        None,
        NOTHING,
        Range(1, 1),
        NOTHING,
        NOTHING,
        NOTHING,
        NOTHING,
        NOTHING,
        NOTHING,
        None,
        (),
    )


def _added(timeline: Timeline, changes: Changes, pairs: Sequence[_Pair]) -> list[RebalanceAnswer]:
    """Rebalances of marks which made none before: a static member that stayed away for too long."""
    by_marks: dict[frozenset[Mark], list[Played]] = {}
    for pair in pairs:
        known = _marks(pair.baseline.rebalances)
        for one in pair.changed.rebalances:
            if one.marks and not one.marks & known:
                by_marks.setdefault(one.marks, []).append(one)
    answers = []
    for marks, found in by_marks.items():
        is_in_all = len(found) >= len(pairs)
        facts = frozenset().union(*(open_facts(timeline, mark) for mark in marks))
        count = Range(1 if is_in_all else 0, 1 + max(one.follow_up_count for one in found))
        answers.append(
            RebalanceAnswer(
                Verdict.ADDED if is_in_all else Verdict.CANNOT_TELL,
                min(one.at_ms for one in found),
                None,
                causes_of(timeline, marks),
                (Verdict.ADDED.value,) if is_in_all else (Verdict.ADDED.value, Verdict.KEPT.value),
                None,
                count,
                NOTHING,
                _range([one.moved_count for one in found]),
                NOTHING,
                _range([one.unowned_ms for one in found]),
                NOTHING,
                _range([one.not_served_ms for one in found]),
                NOTHING,
                LIKELY if is_in_all else None,
                _assumptions(timeline, changes, facts, is_first=False),
            )
        )
    return answers


def _may_be_added(timeline: Timeline, changes: Changes) -> list[RebalanceAnswer]:
    """Silent stretches of members, longer than the new session and shorter than the old one."""
    session_ms = changes.session_timeout_ms or changes.consumer_session_timeout_ms
    if session_ms is None:
        return []
    return [
        RebalanceAnswer(
            Verdict.MAY_BE_ADDED,
            silent_from_ms + session_ms,
            None,
            (f"SESSION_EXPIRED of {life.member.client_id}",),
            (Verdict.ADDED.value, Verdict.KEPT.value),
            None,
            Range(0, ADDED_MAX[timeline.protocol_name == COOPERATIVE]),
            NOTHING,
            NOTHING,
            NOTHING,
            NOTHING,
            NOTHING,
            NOTHING,
            NOTHING,
            None,
            tuple(sorted(ALWAYS)),
        )
        for life in timeline.lifetimes
        for silent_from_ms in _silences(timeline, life, session_ms)
    ]


def _silences(timeline: Timeline, life: Lifetime, session_ms: int) -> list[int]:
    """Commits which were followed by none for longer than a session, and for longer than commits are apart.

    Where the group rebalanced meanwhile, the member may have had nothing to commit.
    """
    times = [time_ms for time_ms in life.commits_ms if timeline.from_ms <= time_ms < timeline.to_ms]
    gaps = sorted(later - earlier for earlier, later in pairwise(times))
    if len(gaps) < 3:
        return []
    longest_ms = max(session_ms, 3 * gaps[len(gaps) // 2] // 2)
    return [
        earlier
        for earlier, later in pairwise(times)
        if later - earlier > longest_ms and not any(earlier < one.at_ms <= later for one in timeline.rebalances)
    ]


ADDED_MAX: Final = {False: 2, True: 4}
"""Rebalances of a member which goes and comes back; twice as many where it is cooperative."""

CAUSES: Final[Mapping[End, str]] = {
    End.LEFT: "MEMBER_LEFT",
    End.EXPIRED: "MEMBER_EXPIRED",
    End.POLL_EXPIRED: "POLL_EXPIRED",
    End.UNKNOWN: "LEFT_OR_EXPIRED",
    End.REPLACED: "MEMBER_EXPIRED",
    End.STILL: "MEMBER_LEFT",
}


def causes_of(timeline: Timeline, marks: Iterable[Mark]) -> tuple[str, ...]:
    """What made a rebalance, in words: `MEMBER_LEFT of client`."""
    return tuple(_cause(timeline, mark) for mark in sorted(marks, key=lambda mark: (mark.number, mark.what)))


def _cause(timeline: Timeline, mark: Mark) -> str:
    if mark.what == "GREW":
        growth = timeline.growths[mark.number]
        return f"PARTITIONS_CHANGED of {growth.topic}"
    life = timeline.lifetimes[mark.number]
    return f"{CAUSES[life.end] if mark.what == ENDED else 'MEMBER_JOINED'} of {life.member.client_id}"


def _assumptions(timeline: Timeline, changes: Changes, facts: frozenset[str], is_first: bool) -> tuple[str, ...]:
    names = set(ALWAYS | facts)
    if timeline.group_type == GroupType.CLASSIC:
        names.add("HEARTBEAT_INTERVAL")
    is_of_consumer_protocol = timeline.group_type == GroupType.CONSUMER or changes.protocol == "consumer"
    if is_of_consumer_protocol and not timeline.is_session_known:
        names.add("CONSUMER_SESSION")
    if is_first and timeline.group_type == GroupType.CLASSIC:
        names |= {"INITIAL_DELAY", "JOINS_WITHIN_DELAY"}
    if changes.is_static is not None:
        names.add("SAME_CLIENT")
    if changes.protocol is not None and changes.assignor is None:
        names.add("ASSIGNOR_DEFAULT")
    return tuple(sorted(names))


def _totals(timeline: Timeline, pairs: Sequence[_Pair], reproduced_count: int, may_be_added_count: int) -> Totals:
    before, after = [pair.baseline for pair in pairs], [pair.changed for pair in pairs]
    rebalances = _range([_count(one.rebalances) for one in after])
    return Totals(
        len(timeline.rebalances),
        reproduced_count,
        _range([_count(one.rebalances) for one in before]),
        rebalances._replace(most=rebalances.most + may_be_added_count),
        _range([one.moved_count for one in before]),
        _range([one.moved_count for one in after]),
        _range([one.unowned_ms for one in before]),
        _range([one.unowned_ms for one in after]),
        _range([one.not_served_ms for one in before]),
        _range([one.not_served_ms for one in after]),
        len(pairs),
    )


def _count(played: Iterable[Played]) -> int:
    """Generations, follow-ups included."""
    return sum(1 + one.follow_up_count for one in played)


def _range(values: Sequence[int]) -> Range:
    return Range(min(values), max(values)) if values else NOTHING
