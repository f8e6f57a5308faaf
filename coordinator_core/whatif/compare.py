"""Compares the recorded rebalances with those of the plays."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from coordinator_core.confidence import GUESS, LIKELY
from coordinator_core.errors import WhatIfError
from coordinator_core.simulate.clients.offsets import COOPERATIVE
from coordinator_core.whatif.bands import Bands, Pair, Way
from coordinator_core.whatif.hypotheses import hypotheses_of, open_facts
from coordinator_core.whatif.lifetimes import POLL_MS, End, Lifetime
from coordinator_core.whatif.runner import Played, play
from coordinator_core.whatif.settings import SERVER_ASSIGNORS, Changes
from coordinator_core.whatif.timeline import ENDED, Mark, Rebalance, Timeline
from coordinator_core.whatif.verdicts import ALWAYS, Measures, Range, RebalanceAnswer, Totals, Verdict, range_of
from schemas.group_types import GroupType


def compare(timeline: Timeline, changes: Changes) -> tuple[list[RebalanceAnswer], Totals]:
    """The answer for each rebalance, in order of time, and the sums.

    Raises WhatIfError if the change does not apply to the group.
    """
    check(timeline, changes)
    pairs = [
        Pair(hypothesis, play(timeline, hypothesis, Changes()), play(timeline, hypothesis, changes))
        for hypothesis in hypotheses_of(timeline)
    ]
    tolerance_ms = 2 * (timeline.heartbeat_interval_ms + POLL_MS)
    bands = Bands(timeline, changes)
    answers: list[RebalanceAnswer] = []
    reproduced_count = 0
    follow_ups_left = 0
    for index, rebalance in enumerate(timeline.rebalances):
        if rebalance.marks:
            ways = [way for pair in pairs if (way := _way(rebalance, pair, tolerance_ms)) is not None]
            follow_ups_left = max((way.before.follow_up_count for way in ways), default=0)
            answers.append(bands.widened(index, _answer(timeline, changes, rebalance, ways), ways))
            reproduced_count += bool(ways)
        elif follow_ups_left:
            follow_ups_left -= 1
            reproduced_count += 1
        else:
            answers.append(_not_reproduced(rebalance))
    answers += _added(timeline, changes, pairs)
    may_be_added = _may_be_added(timeline, changes)
    answers = sorted([*answers, *may_be_added], key=lambda answer: (answer.at_ms, answer.generation or 0))
    totals = _totals(timeline, pairs, reproduced_count, sum(one.after.rebalances.most for one in may_be_added))
    return answers, bands.of_totals(totals, pairs, answers)


def check(timeline: Timeline, changes: Changes) -> None:
    """Check that the change applies to this group. Raises WhatIfError, with what to ask instead."""
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
    if changes.max_poll_interval_ms is not None and all(
        life.poll_timeout_ms == changes.max_poll_interval_ms for life in timeline.lifetimes
    ):
        raise WhatIfError(
            f"members of group {timeline.group_id} had max.poll.interval.ms={changes.max_poll_interval_ms} already"
        )
    if changes.initial_rebalance_delay_ms is not None and protocol == "consumer":
        raise WhatIfError("group.initial.rebalance.delay.ms is for the classic protocol: consumer groups do not wait")
    is_server_side = changes.assignor in SERVER_ASSIGNORS
    if changes.assignor is not None and protocol == "consumer" and not is_server_side:
        raise WhatIfError(f"assignor must be one of the broker's under this protocol: {', '.join(SERVER_ASSIGNORS)}")
    if changes.assignor == "uniform" and protocol == "classic":
        raise WhatIfError("assignor uniform is the broker's: set group.protocol=consumer as well")


# --- one rebalance in one hypothesis ---


def _way(rebalance: Rebalance, pair: Pair, tolerance_ms: int) -> Way | None:
    """None if the hypothesis does not reproduce the recorded rebalance."""
    baseline = [one for one in pair.baseline.rebalances if one.marks & rebalance.marks]
    if len(baseline) != 1 or baseline[0].marks != rebalance.marks:
        return None
    before = baseline[0]
    if abs(before.at_ms - rebalance.at_ms) > tolerance_ms:
        return None
    after = tuple(one for one in pair.changed.rebalances if one.marks & rebalance.marks)
    was_same = min(one.at_ms for one in (before, *after)) <= pair.same_until_ms
    if not after:
        return Way(Verdict.AVOIDED, before, after, None, was_same)
    shift_ms = after[0].at_ms - before.at_ms
    if len(after) > 1:
        return Way(Verdict.SPLIT, before, after, shift_ms, was_same)
    if after[0].marks - rebalance.marks & _marks(pair.baseline.rebalances):
        return Way(Verdict.MERGED, before, after, shift_ms, was_same)
    verdict = Verdict.KEPT if abs(shift_ms) <= tolerance_ms else Verdict.MOVED
    return Way(verdict, before, after, shift_ms, was_same)


def _marks(played: Iterable[Played]) -> frozenset[Mark]:
    return frozenset(mark for one in played for mark in one.marks)


# --- all hypotheses ---


def _answer(timeline: Timeline, changes: Changes, rebalance: Rebalance, ways: Sequence[Way]) -> RebalanceAnswer:
    if not ways:
        return _not_reproduced(rebalance, timeline)
    possible = tuple(sorted({way.verdict.value for way in ways}))
    verdict = Verdict(possible[0]) if len(possible) == 1 else _joined(frozenset(possible))
    shifts = [way.shift_ms for way in ways if way.shift_ms is not None]
    facts = _open_facts(timeline, changes, rebalance.marks, rebalance.at_ms)
    confidence = None if verdict is Verdict.CANNOT_TELL else _confidence(facts)
    return RebalanceAnswer(
        verdict,
        rebalance.at_ms,
        rebalance.generation,
        causes_of(timeline, rebalance.marks),
        possible,
        range_of(shifts) if len(shifts) == len(ways) else None,
        _measures([[way.before] for way in ways]),
        _measures([way.after for way in ways]),
        confidence,
        _assumptions(timeline, changes, facts, rebalance.is_first),
    )


def _confidence(facts: frozenset[str]) -> str:
    """The confidence of a verdict on which all hypotheses agree. They include a pause and a crash, so that this open
    fact does not lower it.
    """
    return GUESS if facts - {"PAUSED_OR_CRASHED"} else LIKELY


def _open_facts(timeline: Timeline, changes: Changes, marks: Iterable[Mark], at_ms: int) -> frozenset[str]:
    """Names of the facts that the log leaves open about a rebalance with these causes at this time."""
    facts = frozenset().union(*(open_facts(timeline, mark) for mark in marks))
    if timeline.group_type != GroupType.CONSUMER or not (changes.is_static is False or changes.protocol == "classic"):
        return facts
    # A static member that expired may have tried to return before, which is not in the log; now it would join.
    refused_ms = [
        (life.member.valid_to or 0) - life.session_timeout_ms
        for life in timeline.lifetimes
        if life.member.instance_id is not None and life.end is End.EXPIRED
    ]
    return facts | {"INSTANCE_REFUSED"} if refused_ms and min(refused_ms) <= at_ms else facts


def _joined(possible: frozenset[str]) -> Verdict:
    """The verdict for several: MOVED, if hypotheses differ only in whether the shift is significant."""
    return Verdict.MOVED if possible == {Verdict.KEPT, Verdict.MOVED} else Verdict.CANNOT_TELL


def _not_reproduced(rebalance: Rebalance, timeline: Timeline | None = None) -> RebalanceAnswer:
    causes = () if timeline is None else causes_of(timeline, rebalance.marks)
    return RebalanceAnswer(
        Verdict.NOT_REPRODUCED, rebalance.at_ms, rebalance.generation, causes, before=Measures(Range(1, 1))
    )


def _added(timeline: Timeline, changes: Changes, pairs: Sequence[Pair]) -> list[RebalanceAnswer]:
    """Rebalances whose marks caused none before, such as a static member that stayed away too long."""
    by_marks: dict[frozenset[Mark], list[Played]] = {}
    for pair in pairs:
        known = _marks(pair.baseline.rebalances)
        for one in pair.changed.rebalances:
            if one.marks and not one.marks & known:
                by_marks.setdefault(one.marks, []).append(one)
    answers = []
    for marks, found in by_marks.items():
        is_in_all = len(found) >= len(pairs)
        at_ms = min(one.at_ms for one in found)
        facts = _open_facts(timeline, changes, marks, at_ms)
        count = Range(1 if is_in_all else 0, 1 + max(one.follow_up_count for one in found))
        answers.append(
            RebalanceAnswer(
                Verdict.ADDED if is_in_all else Verdict.CANNOT_TELL,
                at_ms,
                None,
                causes_of(timeline, marks),
                (Verdict.ADDED.value,) if is_in_all else (Verdict.ADDED.value, Verdict.KEPT.value),
                after=replace(_measures([[one] for one in found]), rebalances=count),
                confidence=_confidence(facts) if is_in_all else None,
                assumptions=_assumptions(timeline, changes, facts, is_first=False),
            )
        )
    return answers


def _may_be_added(timeline: Timeline, changes: Changes) -> list[RebalanceAnswer]:
    """Silences of members that are longer than the new session and shorter than the old one."""
    session_ms = changes.session_timeout_ms or changes.consumer_session_timeout_ms
    answers = [] if session_ms is None else _silent(timeline, session_ms, "SESSION_EXPIRED", _silences)
    poll_ms = changes.max_poll_interval_ms
    return answers if poll_ms is None else answers + _silent(timeline, poll_ms, "POLL_EXPIRED", _late_polls)


def _silent(
    timeline: Timeline, timeout_ms: int, cause: str, silences: Callable[[Timeline, Lifetime, int], list[int]]
) -> list[RebalanceAnswer]:
    return [
        RebalanceAnswer(
            Verdict.MAY_BE_ADDED,
            silent_from_ms + timeout_ms,
            None,
            (f"{cause} of {life.member.client_id}",),
            (Verdict.ADDED.value, Verdict.KEPT.value),
            after=Measures(Range(0, ADDED_MAX[timeline.protocol_name == COOPERATIVE])),
            assumptions=tuple(sorted(ALWAYS)),
        )
        for life in timeline.lifetimes
        for silent_from_ms in silences(timeline, life, timeout_ms)
    ]


def _late_polls(timeline: Timeline, life: Lifetime, interval_ms: int) -> list[int]:
    """Commits with no next commit within the new interval: a consumer commits when it polls.

    A rebalance in between is no explanation, because it waits for a member that does not poll.
    """
    if life.poll_timeout_ms <= interval_ms:
        return []
    times = [time_ms for time_ms in life.commits_ms if timeline.from_ms <= time_ms < timeline.to_ms]
    last_ms = timeline.to_ms if life.member.valid_to is None else life.member.valid_to
    return [earlier for earlier, later in pairwise([*times, last_ms]) if later - earlier > interval_ms]


def _silences(timeline: Timeline, life: Lifetime, session_ms: int) -> list[int]:
    """Commits with no next commit within a session, nor within the usual interval between commits.

    If the group rebalanced in between, the member may have had nothing to commit.
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
"""Rebalances of a member that departs and returns; twice as many if it is cooperative."""

CAUSES: Final[Mapping[End, str]] = {
    End.LEFT: "MEMBER_LEFT",
    End.EXPIRED: "MEMBER_EXPIRED",
    End.POLL_EXPIRED: "POLL_EXPIRED",
    End.UNKNOWN: "LEFT_OR_EXPIRED",
    End.REPLACED: "MEMBER_EXPIRED",
    End.STILL: "MEMBER_LEFT",
}


def causes_of(timeline: Timeline, marks: Iterable[Mark]) -> tuple[str, ...]:
    """The causes of a rebalance as text: `MEMBER_LEFT of client`."""
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


def _totals(timeline: Timeline, pairs: Sequence[Pair], reproduced_count: int, may_be_added_count: int) -> Totals:
    before, after = (
        replace(
            _measures([one.rebalances for one in plays]), not_served_ms=range_of([one.not_served_ms for one in plays])
        )
        for plays in ([pair.baseline for pair in pairs], [pair.changed for pair in pairs])
    )
    rebalances = after.rebalances._replace(most=after.rebalances.most + may_be_added_count)
    after = replace(after, rebalances=rebalances)
    return Totals(len(timeline.rebalances), reproduced_count, before, after, len(pairs))


def _measures(hypotheses: Sequence[Sequence[Played]]) -> Measures:
    """The measures of some rebalances of each hypothesis."""
    return Measures(
        range_of([sum(1 + one.follow_up_count for one in played) for played in hypotheses]),
        range_of([sum(one.moved_count for one in played) for played in hypotheses]),
        range_of([sum(one.unowned_ms for one in played) for played in hypotheses]),
        range_of([sum(one.not_served_ms for one in played) for played in hypotheses]),
    )
