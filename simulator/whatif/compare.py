"""Compares the recorded rebalances with those of the plays."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Final

from coordinator_core.confidence import GUESS, LIKELY
from coordinator_core.errors import WhatIfError
from schemas.group_types import GroupType
from simulator.whatif.bands import Bands, Pair, Way
from simulator.whatif.hypotheses import hypotheses_of, open_facts
from simulator.whatif.lifetimes import POLL_MS, End
from simulator.whatif.runner import Played, play
from simulator.whatif.settings import SERVER_ASSIGNORS, Changes
from simulator.whatif.timeline import ENDED, GREW, REFUSED, SILENT, SLOW, Mark, Timeline
from simulator.whatif.unseen import with_unseen
from simulator.whatif.verdicts import (
    ALWAYS,
    NO_MEASURES,
    Bounds,
    Measures,
    Range,
    RebalanceAnswer,
    Totals,
    Verdict,
    measures_sum,
    measures_union,
    sum_of,
)


def compare(timeline: Timeline, changes: Changes) -> tuple[list[RebalanceAnswer], Totals]:
    """The answer for each rebalance, in order of time, and the sums.

    Raises WhatIfError if the change does not apply to the group.
    """
    check(timeline, changes)
    timeline = with_unseen(timeline, changes)
    pairs = [
        Pair(hypothesis, play(timeline, hypothesis, Changes()), play(timeline, hypothesis, changes))
        for hypothesis in hypotheses_of(timeline)
    ]
    refused = frozenset().union(*(pair.changed.refused for pair in pairs))
    places = {mark: index for index, rebalance in enumerate(timeline.rebalances) for mark in rebalance.marks}
    bands = Bands(timeline, changes)
    answers = [
        _answer_of(
            timeline,
            changes,
            bands,
            refused,
            index,
            [way for pair in pairs if (way := _way(timeline, places, index, pair))],
        )
        for index in range(len(timeline.rebalances))
    ]
    answers = _opened(timeline, changes, answers + _added(timeline, changes, bands, places, pairs))
    if timeline.is_blind:  # a rebalance that nobody can foresee moves those after it
        answers = [replace(one, confidence=one.confidence and GUESS) for one in answers]
    answers.sort(key=lambda answer: (answer.at_ms, answer.generation or 0))
    return answers, _totals(timeline, bands, pairs, answers)


def check(timeline: Timeline, changes: Changes) -> None:
    """Check that the change applies to this group. Raises WhatIfError, with what to ask instead."""
    protocol = timeline.protocol_under(changes)
    if changes.protocol == timeline.protocol:
        raise WhatIfError(f"group {timeline.group_id} had group.protocol={timeline.protocol} already")
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


def _way(timeline: Timeline, places: Mapping[Mark, int], index: int, pair: Pair) -> Way | None:
    """None if the hypothesis does not reproduce the recorded rebalance."""
    rebalance = timeline.rebalances[index]
    tolerance_ms = 2 * (timeline.heartbeat_interval_ms + POLL_MS)
    baseline = [one for one in pair.baseline.rebalances if one.marks & rebalance.marks]
    if len(baseline) != 1 or baseline[0].marks != rebalance.marks:
        return None
    before = baseline[0]
    if abs(before.at_ms - rebalance.at_ms) > tolerance_ms:
        return None
    after = tuple(one for one in pair.changed.rebalances if one.marks & rebalance.marks)
    own = tuple(one for one in after if min(places[mark] for mark in one.marks & places.keys()) == index)
    was_same = min(one.at_ms for one in (before, *after)) <= pair.same_until_ms
    if not after:
        return Way(Verdict.AVOIDED, before, after, own, None, was_same)
    shift_ms = after[0].at_ms - before.at_ms
    verdict = Verdict.KEPT if abs(shift_ms) <= tolerance_ms else Verdict.MOVED
    if len(after) > 1:
        verdict = Verdict.SPLIT
    elif after[0].marks & places.keys() > rebalance.marks:
        verdict = Verdict.MERGED
    return Way(verdict, before, after, own, shift_ms, was_same)


# --- all hypotheses ---


def _answer_of(
    timeline: Timeline, changes: Changes, bands: Bands, refused: Set[Mark], index: int, ways: Sequence[Way]
) -> RebalanceAnswer:
    """The answer for a recorded rebalance. `ways`: of the hypotheses that reproduce it. `refused`: whose client was
    refused under the changed settings; it may have tried again."""
    rebalance = timeline.rebalances[index]
    answer = RebalanceAnswer(
        Verdict.NOT_PLAYED,
        rebalance.at_ms,
        rebalance.generation,
        causes_of(timeline, rebalance.marks),
        before=rebalance.measured,
        after=rebalance.measured,
    )
    if not rebalance.is_played:
        return answer
    if not ways:
        before = rebalance.measured._replace(not_served_ms=None)
        return replace(answer, verdict=Verdict.NOT_REPRODUCED, before=before, after=UNKNOWN_MEASURES)
    possible = tuple(sorted({way.verdict.value for way in ways}))
    verdict = Verdict(possible[0]) if len(possible) == 1 else _joined(frozenset(possible))
    shifts = [way.shift_ms for way in ways if way.shift_ms is not None]
    facts = _open_facts(timeline, rebalance.marks, rebalance.at_ms)
    before, after = bands.of_recorded(rebalance.measured, ways)
    if verdict is Verdict.AVOIDED and rebalance.marks & refused:
        verdict, possible = Verdict.CANNOT_TELL, (Verdict.AVOIDED.value, Verdict.MOVED.value)
        after = bands.with_one_more(after)
    return bands.widened(
        index,
        replace(
            answer,
            verdict=verdict,
            possible=possible,
            shift_ms=Range(min(shifts), max(shifts)) if len(shifts) == len(ways) else None,
            before=before,
            after=after,
            confidence=None if verdict is Verdict.CANNOT_TELL else _confidence(facts),
            assumptions=_assumptions(timeline, changes, facts, rebalance.is_first),
        ),
        ways,
    )


UNKNOWN_MEASURES: Final = Measures(None, None, None, None)


def _confidence(facts: frozenset[str]) -> str:
    """The confidence of a verdict on which all hypotheses agree. They include a pause and a crash, so that this open
    fact does not lower it.
    """
    return GUESS if facts - {"PAUSED_OR_CRASHED"} else LIKELY


def _open_facts(timeline: Timeline, marks: Iterable[Mark], at_ms: int) -> frozenset[str]:
    """Names of the facts that the log leaves open about a rebalance with these causes at this time."""
    facts = frozenset().union(*(open_facts(timeline, mark) for mark in marks))
    # now it would join
    refused_ms = [one.from_ms for one in timeline.unseen if one.what == REFUSED]
    return facts | {"INSTANCE_REFUSED"} if refused_ms and min(refused_ms) <= at_ms else facts


def _opened(timeline: Timeline, changes: Changes, answers: Sequence[RebalanceAnswer]) -> list[RebalanceAnswer]:
    """Where no hypothesis reproduces a rebalance, all of them are wrong about a member: within a session of it, what
    would be different is not bounded by them."""
    wrong_ms = [one.at_ms for one in answers if one.verdict is Verdict.NOT_REPRODUCED and one.causes]
    session_ms = max(life.session_timeout_ms for life in timeline.lifetimes)
    near_ms = max(session_ms, changes.session_timeout_ms or changes.consumer_session_timeout_ms or 0)
    return [
        _open(one)
        if one.after not in {one.before, UNKNOWN_MEASURES} and any(abs(one.at_ms - at) <= near_ms for at in wrong_ms)
        else one
        for one in answers
    ]


def _open(answer: RebalanceAnswer) -> RebalanceAnswer:
    """The answer for a rebalance of which nothing is known but that the other settings would have mattered."""
    is_recorded = answer.generation is not None
    verdicts = (Verdict.AVOIDED, Verdict.KEPT, Verdict.MERGED, Verdict.MOVED, Verdict.SPLIT)
    return replace(
        answer,
        verdict=Verdict.CANNOT_TELL if is_recorded else Verdict.MAY_BE_ADDED,
        possible=tuple(one.value for one in verdicts) if is_recorded else answer.possible,
        shift_ms=None,
        after=ANY_MEASURES,
        confidence=None,
    )


ANY_MEASURES: Final = Measures(*[Bounds(0, None)] * len(Measures._fields))


def _joined(possible: frozenset[str]) -> Verdict:
    """The verdict for several: MOVED, if hypotheses differ only in whether the shift is significant."""
    return Verdict.MOVED if possible == {Verdict.KEPT, Verdict.MOVED} else Verdict.CANNOT_TELL


def _added(
    timeline: Timeline, changes: Changes, bands: Bands, places: Mapping[Mark, int], pairs: Sequence[Pair]
) -> list[RebalanceAnswer]:
    """Rebalances with none of the recorded causes, such as a static member that stayed away too long: one answer for
    each first cause."""
    by_mark: dict[Mark, dict[int, list[Played]]] = {}
    for pair in pairs:
        known = {mark for one in pair.baseline.rebalances for mark in one.marks} | places.keys()
        for one in pair.changed.rebalances:
            if one.marks and not one.marks & known:
                by_mark.setdefault(min(one.marks), {}).setdefault(pair.hypothesis.number, []).append(one)
    answers = []
    for mark, found in by_mark.items():
        is_in_all = len(found) == len(pairs)
        at_ms = min(one.at_ms for of_pair in found.values() for one in of_pair)
        facts = _open_facts(timeline, [mark], at_ms)
        measures = [bands.of_played(of_pair) for of_pair in found.values()]
        answers.append(
            RebalanceAnswer(
                Verdict.ADDED if is_in_all else Verdict.MAY_BE_ADDED,
                at_ms,
                None,
                causes_of(timeline, [mark]),
                (Verdict.ADDED.value,) if is_in_all else (Verdict.ADDED.value, Verdict.KEPT.value),
                after=measures_union(measures if is_in_all else [*measures, NO_MEASURES]),
                confidence=_confidence(facts) if is_in_all else None,
                assumptions=_assumptions(timeline, changes, facts, is_first=False),
            )
        )
    return answers


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
    if mark.what == GREW:
        growth = timeline.growths[mark.number]
        return f"PARTITIONS_CHANGED of {growth.topic}"
    life = timeline.life_of(mark)
    cause = "MEMBER_JOINED"
    if mark.what == ENDED:
        cause = CAUSES[life.end]
    elif mark.what == SILENT:
        cause = "POLL_EXPIRED" if timeline.unseen[mark.number].what == SLOW else "MEMBER_EXPIRED"
    return f"{cause} of {life.member.client_id}"


def _assumptions(timeline: Timeline, changes: Changes, facts: frozenset[str], is_first: bool) -> tuple[str, ...]:
    names = set(ALWAYS | facts)
    if timeline.group_type == GroupType.CLASSIC:
        names.add("HEARTBEAT_INTERVAL")
    if "consumer" in {timeline.protocol, changes.protocol} and not timeline.is_session_known:
        names.add("CONSUMER_SESSION")
    if is_first and timeline.group_type == GroupType.CLASSIC:
        names |= {"INITIAL_DELAY", "JOINS_WITHIN_DELAY"}
    if changes.is_static is not None:
        names.add("SAME_CLIENT")
    if changes.protocol is not None and changes.assignor is None:
        names.add("ASSIGNOR_DEFAULT")
    return tuple(sorted(names))


def _totals(timeline: Timeline, bands: Bands, pairs: Sequence[Pair], answers: Sequence[RebalanceAnswer]) -> Totals:
    """The sums of the answers. Partitions may go unserved between rebalances, too."""
    before = measures_sum(
        [*(one.before for one in answers), Measures(not_served_ms=bands.between(pair.baseline for pair in pairs))]
    )
    after = measures_sum(
        [*(one.after for one in answers), Measures(not_served_ms=bands.between(pair.changed for pair in pairs))]
    )
    if timeline.is_blind:
        after = Measures(*(None if one is None else Bounds(one.least, None) for one in after))
    names = {name for answer in answers for name in answer.assumptions}
    is_whole = all(one.confidence == LIKELY or one.verdict is Verdict.NOT_PLAYED for one in answers)
    return Totals(
        sum_of(one.before.rebalances for one in answers).least,
        sum_of(one.before.rebalances for one in answers if one.verdict not in LEFT_OUT).least,
        before,
        after,
        len(pairs),
        is_whole and not timeline.is_blind,
        tuple(sorted(names | ({"SILENCE_NOT_IN_LOG"} if timeline.is_blind else set()))),
    )


LEFT_OUT: Final = frozenset({Verdict.NOT_REPRODUCED, Verdict.NOT_PLAYED})
