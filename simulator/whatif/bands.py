"""Bands: widen the results of plays to what may have happened.

A play knows neither the phase of a member's heartbeats nor that of its polls. So where a play differs from the
recording, its times are accurate to a heartbeat interval and a poll, and the bands are wider by as much (`Precision`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final, NamedTuple

from simulator.simulation.clients.machine import COOPERATIVE
from simulator.whatif.first_generations import LATENCY_MS, FirstGeneration, first_generations
from simulator.whatif.hypotheses import Hypothesis
from simulator.whatif.lifetimes import POLL_MS, End
from simulator.whatif.runner import Play, Played
from simulator.whatif.settings import Changes
from simulator.whatif.timeline import CONSUMER_HEARTBEAT_MS, ENDED, Timeline
from simulator.whatif.verdicts import (
    NO_MEASURES,
    Bounds,
    Measures,
    Range,
    RebalanceAnswer,
    Verdict,
    exactly,
    measures_union,
    union_of,
)


@dataclass(frozen=True, slots=True)
class Pair:
    """Both plays of one hypothesis."""

    hypothesis: Hypothesis
    baseline: Play
    changed: Play

    @property
    def same_until_ms(self) -> int:
        """When the changed play first differs from its baseline."""
        for before, after in zip_longest(self.baseline.rebalances, self.changed.rebalances):
            if before is None or after is None or before != after:
                return min(one.at_ms for one in (before, after) if one is not None)
        return LAST_MS


LAST_MS: Final = 2**62
"""Later than any time."""


class Way(NamedTuple):
    """What happens to a recorded rebalance in one hypothesis."""

    verdict: Verdict
    before: Played
    after: tuple[Played, ...]
    """All that have one of its causes."""
    own: tuple[Played, ...]
    """Those of `after` that belong to no earlier recorded rebalance: each counts once."""
    shift_ms: int | None
    was_same: bool
    """Both plays were equal until its cause, and so are the phases of its members."""

    @property
    def is_same(self) -> bool:
        """Nothing differs: what was recorded stays."""
        return self.was_same and self.own == (self.before,)


@dataclass(frozen=True, slots=True)
class Precision:
    """By how much a play's times may differ from those of clients with other phases, in ms."""

    found_out_ms: int
    """The time from its cause to the new generation: members of a classic group learn of it by heartbeats and polls."""
    silent_ms: int
    """The time from a member's last heartbeat to its death."""
    gap_ms: int
    """Until another member serves a partition of a member that died or left."""
    owner_ms: int
    """Until a revoked partition has its next owner."""


def precision_of(timeline: Timeline, changes: Changes) -> Precision:
    """The precision of the slower one of the two protocols."""
    protocols = {timeline.protocol, timeline.protocol_under(changes)}
    heartbeats = {"classic": timeline.heartbeat_interval_ms, "consumer": CONSUMER_HEARTBEAT_MS}
    interval_ms = max(heartbeats[one] for one in protocols)
    is_incremental = "consumer" in protocols or COOPERATIVE in {timeline.protocol_name, changes.assignor}
    return Precision(
        interval_ms + POLL_MS if "classic" in protocols else LATENCY_MS,
        interval_ms,
        interval_ms + POLL_MS,
        interval_ms + POLL_MS if is_incremental else LATENCY_MS,
    )


class Bands:
    """Widens the results of the hypotheses to those of clients with other phases, and of joins at other times."""

    def __init__(self, timeline: Timeline, changes: Changes) -> None:
        self._timeline = timeline
        self._precision = precision_of(timeline, changes)
        self._firsts = first_generations(timeline, changes)

    def widened(self, index: int, answer: RebalanceAnswer, ways: Sequence[Way]) -> RebalanceAnswer:
        first = self._firsts.get(index)
        if first is not None:
            return self._of_first(answer, first)
        rebalance = self._timeline.rebalances[index]
        before = [one for number, one in self._firsts.items() if number < index]
        last_first = before[-1] if before else None
        if last_first is not None and rebalance.generation in last_first.merged | last_first.open:
            return self._of_merged(answer, last_first, is_open=rebalance.generation in last_first.open)
        if answer.shift_ms is None:
            return answer
        was_same = all(way.was_same for way in ways)
        if was_same and answer.shift_ms == (0, 0):
            return answer
        is_end = any(
            mark.what == ENDED and self._timeline.lifetimes[mark.number].end is not End.LEFT for mark in rebalance.marks
        )
        found_out_ms = self._precision.found_out_ms if rebalance.member_count else LATENCY_MS
        by_ms = found_out_ms + (self._precision.silent_ms if is_end and not was_same else 0)
        return replace(answer, shift_ms=_with_phases(answer.shift_ms, by_ms))

    def of_recorded(self, measured: Measures, ways: Sequence[Way]) -> tuple[Measures, Measures]:
        """The measures of a recorded rebalance, and of what the plays had in its place."""
        before = measured._replace(not_served_ms=union_of(self.of_played([way.before]).not_served_ms for way in ways))
        found = [before if way.is_same else self.of_played(way.own) for way in ways]
        return before, measures_union(found)

    def of_played(self, played: Sequence[Played]) -> Measures:
        """The measures of some rebalances of one play, with all phases of its members."""
        unowned_count = sum(self._unowned_count(one) for one in played)
        gap_count = sum(one.gap_count for one in played)
        return Measures(
            exactly(sum(1 + one.follow_up_count for one in played)),
            exactly(sum(one.moved_count for one in played)),
            _wider(sum(one.unowned_ms for one in played), unowned_count * self._precision.owner_ms),
            _wider(sum(one.not_served_ms for one in played), gap_count * self._precision.gap_ms),
        )

    def between(self, plays: Iterable[Play]) -> Bounds | None:
        """Time in which partitions were not served that belongs to no rebalance."""
        return union_of(_wider(one.between_ms, one.between_count * self._precision.gap_ms) for one in plays)

    def _unowned_count(self, one: Played) -> int:
        """How many partitions may have been without an owner: eager members revoke all of them."""
        return max(one.moved_count, self._timeline.partition_count if one.unowned_ms else 0)

    def _of_first(self, answer: RebalanceAnswer, first: FirstGeneration) -> RebalanceAnswer:
        """A first generation: its time follows from when its members may have joined, not from the plays."""
        shift_ms = Range(first.earliest_ms - answer.at_ms, first.latest_ms - answer.at_ms)
        after = measures_union([answer.after, self._more(answer.after, first.late_count)])
        if first.late_count:
            least = 1 if after.rebalances is None or not first.is_late_certain else after.rebalances.least
            after = measures_union([after, Measures(Bounds(least, least), not_served_ms=after.not_served_ms)])
        return replace(answer, shift_ms=_union(shift_ms, answer.shift_ms), after=after)

    def _of_merged(self, answer: RebalanceAnswer, first: FirstGeneration, *, is_open: bool) -> RebalanceAnswer:
        """Members that joined soon after a first generation: they are part of it, if it had waited that long."""
        shift_ms = _union(Range(first.earliest_ms - answer.at_ms, first.latest_ms - answer.at_ms), answer.shift_ms)
        if not is_open:
            return replace(answer, shift_ms=shift_ms)
        return replace(
            answer,
            verdict=Verdict.CANNOT_TELL,
            possible=tuple(sorted({*answer.possible, Verdict.KEPT.value, Verdict.MERGED.value})),
            shift_ms=shift_ms,
            after=self.with_one_more(measures_union([answer.after, NO_MEASURES])),
            confidence=None,
            assumptions=tuple(sorted({*answer.assumptions, "JOINS_WITHIN_DELAY"})),
        )

    def with_one_more(self, measures: Measures) -> Measures:
        """With one more rebalance, or none."""
        return measures_union([measures, self._more(measures, 1)])

    def _more(self, measures: Measures, count: int) -> Measures:
        """With as many more rebalances, each of which may move all partitions."""
        partitions = count * self._timeline.partition_count
        by = (count, partitions, partitions * self._precision.owner_ms, partitions * self._precision.gap_ms)
        return Measures(
            *(
                None if one is None else Bounds(one.least, None if one.most is None else one.most + more)
                for one, more in zip(measures, by, strict=True)
            )
        )


def _union(one: Range, other: Range | None) -> Range:
    return one if other is None else Range(min(one.least, other.least), max(one.most, other.most))


def _with_phases(band: Range, by_ms: int) -> Range:
    """Shifts from hypotheses that each drew two phases: extended to all possible phases around their middle, and a
    little beyond the drawn values where the hypotheses differ by more than that."""
    half_ms = max(by_ms, (band.most - band.least) // 2 + by_ms // 4)
    middle_ms = (band.least + band.most) // 2
    return Range(middle_ms - half_ms, middle_ms + half_ms)


def _wider(value: int, by_ms: int) -> Bounds:
    """A time of a play, which may have been as much shorter or longer."""
    return Bounds(max(value - by_ms, 0), value + by_ms)
