"""Hypotheses about the log: possible events, as acts on a clock, where the log shows only their effects."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import Final

from schemas.group_types import GroupType
from simulator.simulation.random_streams import stream
from simulator.whatif.lifetimes import POLL_MS, End, Lifetime
from simulator.whatif.timeline import (
    BACK,
    BEGAN,
    ENDED,
    GREW,
    REFUSED,
    SILENT,
    SLOW,
    Mark,
    Rebalance,
    Timeline,
    Unseen,
)

WARM_UP_MS: Final = 15 * 60_000
"""Members from before the window start this much before it, so that the group is stable when it begins."""
JUST_MS: Final = 50
"""Just after, or just before."""


class What(StrEnum):
    """What a process does, or what happens to it."""

    START = "START"
    STOP = "STOP"
    CRASH = "CRASH"
    PAUSE = "PAUSE"
    RESUME = "RESUME"
    SLOW_POLL = "SLOW_POLL"
    GROW = "GROW"


HYPOTHESES_MIN: Final = 8
"""The phases of heartbeats are always open: even an unambiguous timeline is played this often, with different
phases."""

STARTING: Final = frozenset({What.START, What.RESUME})
ENDING: Final = frozenset({What.STOP, What.CRASH, What.PAUSE, What.SLOW_POLL})


@dataclass(frozen=True, slots=True)
class Act:
    """An event at a time. `mark`: its effect on the group; `slot` -1: it concerns the topics."""

    at_ms: int
    what: What
    slot: int
    mark: Mark
    duration_ms: int = 0


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One reading of what the log leaves open. `number` seeds the random draws of the clients."""

    number: int
    silence_is_a_pause: bool
    """A member that expired and returned was paused; otherwise it died and was restarted."""
    unknown_end_is_expiry: bool
    """A member whose end is unknown expired; otherwise it left."""
    joins_late: bool
    """Members of a first generation joined late within each delay; otherwise early."""
    falls_silent_late: bool
    """The last heartbeat of an expired member was just before it died; otherwise the next one was due."""
    takes_other_end: bool = False
    """A member whose silence fits both of its timeouts ended by the other one."""
    is_unseen: bool = False
    """All that may have happened unseen did."""
    is_spread: bool = False
    """Joins, and other causes of rebalances in classic groups, happened at any time that the log allows; otherwise as
    the flags above say, or in the middle."""


def hypotheses_of(timeline: Timeline) -> tuple[Hypothesis, ...]:
    """All combinations of what is open in this timeline."""
    pauses = (False, True) if any(_may_be_paused(timeline, life) for life in timeline.lifetimes) else (False,)
    ends = (False, True) if any(life.end is End.UNKNOWN for life in timeline.lifetimes) else (False,)
    joins = (False, True) if any(one.is_first and one.member_count > 1 for one in timeline.rebalances) else (False,)
    others = (False, True) if any(life.other_end is not None for life in timeline.lifetimes) else (False,)
    unseen = (False, True) if timeline.unseen else (False,)
    choices = list(product(pauses, ends, joins, (False, True), others, unseen))
    copies = max(1, HYPOTHESES_MIN // len(choices))
    return tuple(
        Hypothesis(number, *choice, is_spread=copy > 0 or (copies == 1 and bool(number.bit_count() % 2)))
        for copy in range(copies)
        for number, choice in enumerate(choices, copy * len(choices))
    )


def next_lifetime(timeline: Timeline, life: Lifetime) -> Lifetime | None:
    """The next lifetime of the same process."""
    later = [
        other
        for other in timeline.lifetimes
        if other.slot == life.slot and other.member.from_log_offset > life.member.from_log_offset
    ]
    return min(later, key=lambda other: other.member.from_log_offset, default=None)


def _may_be_paused(timeline: Timeline, life: Lifetime) -> bool:
    """Whether it expired, and the same process joined only after that: then it was paused, or restarted."""
    if not {life.end, life.other_end} & {End.EXPIRED, End.UNKNOWN}:
        return False
    following = next_lifetime(timeline, life)
    return following is not None and _comes_after(following, life)


def _comes_after(following: Lifetime, life: Lifetime) -> bool:
    place = life.member.to_log_offset
    return place is not None and following.member.from_log_offset > place


def open_facts(timeline: Timeline, mark: Mark) -> frozenset[str]:
    """Names of the facts that the log leaves open about a mark (`answer.ASSUMPTIONS`)."""
    if mark.what == GREW:
        return frozenset()
    life = timeline.life_of(mark)
    names = {"SAME_CLIENT"} if life.has_twin else set()
    if mark.what == ENDED:
        names |= {"LEFT_OR_EXPIRED"} if life.end is End.UNKNOWN else set()
        names |= {"EXPIRED_OR_TOO_SLOW"} if life.other_end is not None else set()
        names |= {"PAUSED_OR_CRASHED"} if _may_be_paused(timeline, life) else set()
    else:
        before = [other for other in timeline.lifetimes if next_lifetime(timeline, other) is life]
        names |= {"PAUSED_OR_CRASHED"} if any(_may_be_paused(timeline, other) for other in before) else set()
    return frozenset(names)


def acts_of(timeline: Timeline, hypothesis: Hypothesis) -> tuple[Act, ...]:
    """All events, in order of time."""
    by_mark = {mark: rebalance for rebalance in timeline.rebalances for mark in rebalance.marks}
    acts = [
        Act(_began_ms(timeline, hypothesis, rebalance), What.GROW, -1, mark)
        for mark, rebalance in by_mark.items()
        if mark.what == GREW
    ]
    resumed: set[int] = set()
    for life in timeline.lifetimes:
        acts.extend(_end_acts(timeline, hypothesis, life, by_mark, resumed))
    for life in timeline.lifetimes:
        if life.number not in resumed:
            acts.append(_start(timeline, hypothesis, life, by_mark))
    if hypothesis.is_unseen:
        for number, unseen in enumerate(timeline.unseen):
            acts.extend(_unseen_acts(timeline, hypothesis, unseen, number))
    return tuple(sorted(_in_order(timeline, acts), key=lambda act: (act.at_ms, act.slot)))


def _unseen_acts(timeline: Timeline, hypothesis: Hypothesis, unseen: Unseen, number: int) -> Iterator[Act]:
    slot = timeline.lifetimes[unseen.life].slot
    gone, back = Mark(SILENT, number), Mark(BACK, number)
    if unseen.what == REFUSED:
        at_ms = stream(hypothesis.number, "refused", number).randint(unseen.from_ms, unseen.to_ms)
        yield Act(at_ms, What.START, slot, back)
        return
    what = What.SLOW_POLL if unseen.what == SLOW else What.PAUSE
    yield Act(unseen.from_ms, what, slot, gone, unseen.to_ms - unseen.from_ms)
    yield Act(unseen.to_ms, What.RESUME, slot, back)


def _began_ms(timeline: Timeline, hypothesis: Hypothesis, rebalance: Rebalance) -> int:
    """The time of its cause: members of a classic group find out at their next heartbeats and polls."""
    if timeline.group_type != GroupType.CLASSIC or not hypothesis.is_spread:
        return rebalance.began_ms
    found_out_ms = timeline.heartbeat_interval_ms + POLL_MS
    earliest_ms = max(min(rebalance.began_ms, rebalance.at_ms - found_out_ms), rebalance.previous_ms + 1)
    latest_ms = max(min(rebalance.at_ms, rebalance.began_ms + found_out_ms) - JUST_MS, earliest_ms)
    return stream(hypothesis.number, "began", rebalance.generation).randint(earliest_ms, latest_ms)


def _start(timeline: Timeline, hypothesis: Hypothesis, life: Lifetime, by_mark: dict[Mark, Rebalance]) -> Act:
    mark = Mark(BEGAN, life.number)
    rebalance = by_mark.get(mark)
    if life.was_there_before:
        at_ms = timeline.from_ms - WARM_UP_MS + 100 * life.slot
    elif rebalance is None:
        at_ms = life.member.valid_from - JUST_MS  # a static member returned: no rebalance
    elif rebalance.is_first:
        at_ms = _first_join_ms(timeline, hypothesis, life, rebalance)
    else:
        at_ms = _began_ms(timeline, hypothesis, rebalance)
    return Act(at_ms, What.START, life.slot, mark)


def _first_join_ms(timeline: Timeline, hypothesis: Hypothesis, life: Lifetime, rebalance: Rebalance) -> int:
    """When a member of a first generation joined: each round of the delay except the last had a newcomer."""
    if timeline.group_type != GroupType.CLASSIC:
        return rebalance.at_ms - JUST_MS
    delay_ms = timeline.initial_rebalance_delay_ms
    joined = sorted(mark.number for mark in rebalance.marks if mark.what == BEGAN)
    index = joined.index(life.number)
    rounds = 1 if len(joined) == 1 else 2
    if rebalance.created_ms is not None and delay_ms:
        rounds = max(rounds, round((rebalance.at_ms - rebalance.created_ms) / delay_ms))
    began_ms = rebalance.created_ms if rebalance.created_ms is not None else rebalance.at_ms - rounds * delay_ms
    if index == 0:
        return began_ms - JUST_MS
    number = (index - 1) * (rounds - 1) // max(len(joined) - 1, 1)
    if hypothesis.is_spread and delay_ms:
        return began_ms + number * delay_ms + stream(hypothesis.number, "join", life.number).randrange(delay_ms)
    within_ms = delay_ms * (index + 1) // (len(joined) + 1) if hypothesis.joins_late else JUST_MS
    return began_ms + number * delay_ms + within_ms


def _end_acts(
    timeline: Timeline, hypothesis: Hypothesis, life: Lifetime, by_mark: dict[Mark, Rebalance], resumed: set[int]
) -> Iterator[Act]:
    """How a life ended, and what then happened to its process, if both are part of one timeline."""
    if life.end is End.STILL:
        return
    mark = Mark(ENDED, life.number)
    following = next_lifetime(timeline, life)
    end: End = life.end
    if hypothesis.takes_other_end and life.other_end is not None:
        end = life.other_end
    if end is End.UNKNOWN:
        end = End.EXPIRED if hypothesis.unknown_end_is_expiry else End.LEFT
    gone_ms = _gone_ms(timeline, hypothesis, life, by_mark.get(mark), end)
    back_ms = None if following is None else _start(timeline, hypothesis, following, by_mark).at_ms
    if back_ms is not None:
        gone_ms = min(gone_ms, back_ms - JUST_MS)
    is_back_later = following is not None and _comes_after(following, life)
    if end is End.EXPIRED and is_back_later and hypothesis.silence_is_a_pause:
        assert following is not None and back_ms is not None
        resumed.add(following.number)
        yield Act(gone_ms, What.PAUSE, life.slot, mark)
        yield Act(back_ms, What.RESUME, life.slot, Mark(BEGAN, following.number))
    elif end is End.POLL_EXPIRED:
        until_ms = timeline.to_ms + 1 if back_ms is None else back_ms
        if following is not None:
            resumed.add(following.number)
            yield Act(until_ms, What.RESUME, life.slot, Mark(BEGAN, following.number))
        yield Act(gone_ms, What.SLOW_POLL, life.slot, mark, max(until_ms - gone_ms, 1))
    elif end is End.EXPIRED or (end is End.REPLACED and life.away_ms is None):
        yield Act(gone_ms, What.CRASH, life.slot, mark)
    else:
        yield Act(gone_ms, What.STOP, life.slot, mark)


def _gone_ms(timeline: Timeline, hypothesis: Hypothesis, life: Lifetime, rebalance: Rebalance | None, end: End) -> int:
    """When the process left by itself, or stopped sending heartbeats."""
    ended_ms = life.member.valid_to
    assert ended_ms is not None
    last_ms = life.commits_ms[-1] if life.commits_ms else None
    heartbeat_ms = timeline.heartbeat_interval_ms
    if life.away_ms is not None:
        return life.away_ms - JUST_MS
    if rebalance is not None:
        ended_ms = _struck_ms(timeline, hypothesis, rebalance, end)
    if end is End.EXPIRED:
        since_ms = 0 if hypothesis.falls_silent_late else heartbeat_ms - JUST_MS
        if hypothesis.is_spread:
            since_ms = stream(hypothesis.number, "silent", life.number).randrange(heartbeat_ms)
        silent_ms = ended_ms - life.session_timeout_ms + since_ms
        return silent_ms if last_ms is None else max(silent_ms, last_ms)
    if end is End.POLL_EXPIRED:
        return ended_ms - life.poll_timeout_ms
    if end is End.REPLACED and last_ms is not None:
        return last_ms
    if last_ms is not None and ended_ms - heartbeat_ms - POLL_MS <= last_ms:
        return last_ms  # consumers commit when they are closed
    return ended_ms - JUST_MS


def _struck_ms(timeline: Timeline, hypothesis: Hypothesis, rebalance: Rebalance, end: End) -> int:
    """The time of an end's effect. An expired session ended the wait of a rebalance that others had begun, or began
    one.
    """
    waited_ms = rebalance.at_ms - rebalance.began_ms
    is_long = waited_ms > 2 * timeline.heartbeat_interval_ms + 2 * POLL_MS
    return rebalance.at_ms if end is End.EXPIRED and is_long else _began_ms(timeline, hypothesis, rebalance)


def _in_order(timeline: Timeline, acts: Sequence[Act]) -> Iterator[Act]:
    """A process ends one life before it begins the next: acts of one slot are kept in the order of its lifetimes."""

    def place(act: Act) -> tuple[int, int, int]:
        """Of a life its beginning, what was unseen in order of time, and its end; a return comes after that."""
        is_unseen = act.mark.what in {SILENT, BACK}
        rank = 2 * (act.mark.what == ENDED)
        if is_unseen:
            rank = 3 if timeline.unseen[act.mark.number].what == REFUSED else 1
        return timeline.life_of(act.mark).number, rank, act.at_ms if is_unseen else 0

    by_slot: dict[int, list[Act]] = {}
    for act in acts:
        by_slot.setdefault(act.slot, []).append(act)
    for slot, of_slot in by_slot.items():
        if slot < 0:
            yield from of_slot
            continue
        of_slot.sort(key=place)
        at_ms = 0
        for act in of_slot:
            at_ms = max(act.at_ms, at_ms)
            yield Act(at_ms, act.what, act.slot, act.mark, act.duration_ms)
            at_ms += JUST_MS
