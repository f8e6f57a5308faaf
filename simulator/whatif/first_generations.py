"""When the first generation of a classic group would have begun under another group.initial.rebalance.delay.ms: bounds.

A group without members waits after the first join: one delay, then another one as long as each delay brought a new
member, and no longer than the first member's rebalance timeout (GenericGroupCoordinator's initial delayed join). The
log shows how long it waited, so in how many delays a member joined, but not when within a delay. So each member has a
window of time in which it joined, and the bounds are what all possible joins within these windows give.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from schemas.group_types import GroupType
from simulator.whatif.lifetimes import POLL_MS
from simulator.whatif.settings import Changes
from simulator.whatif.timeline import BEGAN, Rebalance, Timeline

LATENCY_MS: Final = 100
"""Longest time from a client's join to the coordinator's timer and the record, under normal conditions."""


class Window(NamedTuple):
    """A member joined after `from_ms` and at `to_ms` at the latest, relative to the first join."""

    from_ms: int
    to_ms: int


@dataclass(frozen=True, slots=True)
class FirstGeneration:
    """Bounds of a first generation under the changed settings, in epoch ms."""

    earliest_ms: int
    latest_ms: int
    late_count: int
    """How many of its recorded members may have joined after it: each may cause a rebalance of its own."""
    is_late_certain: bool
    """Whether at least one of them must have."""
    merged: frozenset[int]
    """Later recorded generations whose members must be part of it."""
    open: frozenset[int]
    """Later recorded generations whose members may be part of it."""


def waits(windows: Sequence[Window], delay_ms: int, rebalance_timeout_ms: int) -> tuple[int, int]:
    """The shortest and the longest wait that these joins allow."""
    if delay_ms == 0:
        return 0, 0
    start_ms, end_ms = 0, delay_ms
    remaining_ms = max(rebalance_timeout_ms - delay_ms, 0)
    shortest_ms: int | None = None
    last_ms = delay_ms
    while True:
        may_go_on = remaining_ms > 0 and any(
            one.from_ms < end_ms + LATENCY_MS and one.to_ms > start_ms - LATENCY_MS for one in windows
        )
        after_ms = start_ms + LATENCY_MS if start_ms else 0
        must_go_on = may_go_on and any(one.from_ms >= after_ms and one.to_ms < end_ms - LATENCY_MS for one in windows)
        if shortest_ms is None and not must_go_on:
            shortest_ms = end_ms
        if not may_go_on:
            return (end_ms if shortest_ms is None else shortest_ms), end_ms
        next_ms = min(delay_ms, remaining_ms)
        remaining_ms = max(remaining_ms - last_ms, 0)
        start_ms, end_ms, last_ms = end_ms, end_ms + next_ms, next_ms


def first_generations(timeline: Timeline, changes: Changes) -> Mapping[int, FirstGeneration]:
    """Index of a recorded rebalance -> its first generation under the changed settings, where its wait would differ."""
    protocol = timeline.protocol_under(changes)
    if protocol != "classic" or (changes.initial_rebalance_delay_ms is None and changes.protocol is None):
        return {}
    delay_ms = changes.initial_rebalance_delay_ms
    delay_ms = timeline.initial_rebalance_delay_ms if delay_ms is None else delay_ms
    return {
        index: _first_generation(timeline, index, delay_ms)
        for index, rebalance in enumerate(timeline.rebalances)
        if rebalance.is_first and any(mark.what == BEGAN for mark in rebalance.marks)
    }


def _first_generation(timeline: Timeline, index: int, delay_ms: int) -> FirstGeneration:
    rebalance = timeline.rebalances[index]
    lifetimes = [timeline.lifetimes[mark.number] for mark in rebalance.marks if mark.what == BEGAN]
    timeout_ms = min(life.poll_timeout_ms for life in lifetimes)
    bounds: list[tuple[int, int]] = []
    late_counts: list[int] = []
    must_be_late: list[bool] = []
    possible = list(_recorded_waits(timeline, rebalance, len(lifetimes)))
    for waited_ms, rounds in possible:
        began_ms = rebalance.at_ms - waited_ms
        own = _own_windows(len(lifetimes) - 1, rounds, timeline.initial_rebalance_delay_ms)
        later = [window for _, window in _later_windows(timeline, index, began_ms)]
        shortest_ms, longest_ms = waits([*own, *later], delay_ms, timeout_ms)
        bounds.append((began_ms + shortest_ms, began_ms + longest_ms))
        late_counts.append(min(len(lifetimes) - 1, sum(window.to_ms >= shortest_ms for window in own)))
        must_be_late.append(any(window.from_ms >= longest_ms for window in own))
    earliest_ms = min(first for first, _ in bounds) - LATENCY_MS
    latest_ms = max(last for _, last in bounds) + LATENCY_MS
    merged, still_open = set(), set()
    for generation, window in _later_windows(timeline, index, 0):
        if window.to_ms < earliest_ms:
            merged.add(generation)
        elif window.from_ms <= latest_ms:
            still_open.add(generation)
    return FirstGeneration(
        earliest_ms, latest_ms, max(late_counts), all(must_be_late), frozenset(merged), frozenset(still_open)
    )


def _recorded_waits(timeline: Timeline, rebalance: Rebalance, member_count: int) -> Iterator[tuple[int, int]]:
    """(how long the group may have waited, in how many delays): exact where the log has the group's creation."""
    delay_ms = timeline.initial_rebalance_delay_ms
    if timeline.group_type != GroupType.CLASSIC or delay_ms == 0:
        yield 0, 1
    elif rebalance.created_ms is not None:
        waited_ms = rebalance.at_ms - rebalance.created_ms
        yield waited_ms, max(1, round(waited_ms / delay_ms))
    else:
        yield from ((rounds * delay_ms, rounds) for rounds in range(min(member_count, 2), member_count + 1))


def _own_windows(newcomer_count: int, rounds: int, delay_ms: int) -> list[Window]:
    """Windows of the members of the first generation except the first one: each delay before the last one brought a
    member.
    """
    filled = [Window(number * delay_ms, (number + 1) * delay_ms) for number in range(rounds - 1)]
    if newcomer_count <= len(filled):
        return filled[:newcomer_count] if newcomer_count else []
    return [*filled, *[Window(0, (rounds - 1) * delay_ms or LATENCY_MS)] * (newcomer_count - len(filled))]


def _later_windows(timeline: Timeline, index: int, began_ms: int) -> Iterator[tuple[int, Window]]:
    """(generation, window of the members that joined in it) for each later generation, until the group is empty."""
    found_out_ms = (
        timeline.heartbeat_interval_ms + 2 * POLL_MS if timeline.group_type == GroupType.CLASSIC else LATENCY_MS
    )
    for rebalance in timeline.rebalances[index + 1 :]:
        if rebalance.is_first:
            return
        if any(mark.what == BEGAN for mark in rebalance.marks):
            from_ms = max(rebalance.previous_ms, rebalance.at_ms - found_out_ms)
            yield rebalance.generation, Window(from_ms - began_ms, rebalance.at_ms - began_ms)
