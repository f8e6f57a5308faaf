"""Bands: widen the results of plays to what may have happened.

A play knows neither the phase of a member's heartbeats nor that of its polls. So where a play differs from the
recording, its times are accurate to a heartbeat interval and a poll, and the bands are wider by as much (`Precision`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final, NamedTuple

from coordinator_core.confidence import LIKELY
from coordinator_core.simulate.clients.offsets import COOPERATIVE
from coordinator_core.whatif.first_generations import LATENCY_MS, FirstGeneration, first_generations
from coordinator_core.whatif.hypotheses import Hypothesis
from coordinator_core.whatif.lifetimes import POLL_MS, End
from coordinator_core.whatif.runner import Play, Played
from coordinator_core.whatif.settings import Changes
from coordinator_core.whatif.timeline import CONSUMER_HEARTBEAT_MS, ENDED, Timeline
from coordinator_core.whatif.verdicts import Range, RebalanceAnswer, Totals, Verdict
from schemas.group_types import GroupType


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
    shift_ms: int | None
    was_same: bool
    """Both plays were equal until its cause, and so are the phases of its members."""


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
    kind = "classic" if timeline.group_type == GroupType.CLASSIC else "consumer"
    protocols = {kind, changes.protocol or kind}
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
        if not ways:
            return answer
        first = self._firsts.get(index)
        if first is not None:
            return _of_first(answer, first)
        rebalance = self._timeline.rebalances[index]
        before = [one for number, one in self._firsts.items() if number < index]
        last_first = before[-1] if before else None
        if last_first is not None and rebalance.generation in last_first.merged | last_first.open:
            return _of_merged(answer, last_first, is_open=rebalance.generation in last_first.open)
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

    def of_totals(self, totals: Totals, pairs: Sequence[Pair], answers: Sequence[RebalanceAnswer]) -> Totals:
        """The widened sums; the number of rebalances follows from what the answers leave open."""
        gap_ms, owner_ms = self._precision.gap_ms, self._precision.owner_ms
        before, after = [pair.baseline for pair in pairs], [pair.changed for pair in pairs]
        count = sum(self._timeline.topics.values())
        open_count = sum(len(one.open) for one in self._firsts.values())
        late_count = sum(one.late_count for one in self._firsts.values())
        least, most = totals.after.rebalances
        rebalances = Range(max(least - open_count, 0), max(most, min(least + late_count, most + 1)) + open_count)
        wider_before, wider_after = (
            replace(
                measures,
                unowned_ms=_wider(measures.unowned_ms, _spread(owner_ms, [_moved(one, count) for one in plays])),
                not_served_ms=_wider(measures.not_served_ms, _spread(gap_ms, map(_gaps, plays))),
            )
            for measures, plays in ((totals.before, before), (totals.after, after))
        )
        return replace(
            totals,
            before=wider_before,
            after=replace(wider_after, rebalances=rebalances),
            is_whole=self._is_whole(totals, answers),
        )

    def _is_whole(self, totals: Totals, answers: Sequence[RebalanceAnswer]) -> bool:
        """Whether nothing is left out or open, so that the sums cover all rebalances."""
        are_likely = all(answer.confidence == LIKELY for answer in answers)
        return are_likely and totals.reproduced_count == totals.recorded_count


def _of_first(answer: RebalanceAnswer, first: FirstGeneration) -> RebalanceAnswer:
    """A first generation: its time follows from when its members may have joined, not from the plays."""
    shift_ms = Range(first.earliest_ms - answer.at_ms, first.latest_ms - answer.at_ms)
    most = max(answer.after.rebalances.most, 1 + first.late_count)
    least = answer.after.rebalances.least if first.is_late_certain else 1
    after = replace(answer.after, rebalances=Range(least, most))
    return replace(answer, shift_ms=_union(shift_ms, answer.shift_ms), after=after)


def _of_merged(answer: RebalanceAnswer, first: FirstGeneration, *, is_open: bool) -> RebalanceAnswer:
    """Members that joined soon after a first generation: they are part of it, if it had waited that long."""
    shift_ms = Range(first.earliest_ms - answer.at_ms, first.latest_ms - answer.at_ms)
    if not is_open:
        return replace(answer, shift_ms=_union(shift_ms, answer.shift_ms))
    possible = tuple(sorted({*answer.possible, Verdict.KEPT.value, Verdict.MERGED.value}))
    return replace(
        answer,
        verdict=Verdict.CANNOT_TELL,
        possible=possible,
        shift_ms=_union(shift_ms, answer.shift_ms),
        after=replace(answer.after, rebalances=Range(0, max(answer.after.rebalances.most, 1))),
        confidence=None,
        assumptions=tuple(sorted({*answer.assumptions, "JOINS_WITHIN_DELAY"})),
    )


def _union(one: Range, other: Range | None) -> Range:
    return one if other is None else Range(min(one.least, other.least), max(one.most, other.most))


def _with_phases(band: Range, by_ms: int) -> Range:
    """Shifts from hypotheses that each drew two phases: extended to all possible phases around their middle, and a
    little beyond the drawn values where the hypotheses differ by more than that."""
    half_ms = max(by_ms, (band.most - band.least) // 2 + by_ms // 4)
    middle_ms = (band.least + band.most) // 2
    return Range(middle_ms - half_ms, middle_ms + half_ms)


def _wider(band: Range, by_ms: int) -> Range:
    """The band, widened by the same on both sides, but not below 0."""
    return Range(max(band.least - by_ms, 0), band.most + by_ms)


def _spread(each_ms: int, counts: Iterable[Sequence[int]]) -> int:
    """The possible error of a sum. Partitions that change owners together have the same error; rebalances have
    independent errors, whose squares add up: twice the standard deviation of uniform draws from 0 to `each_ms`."""
    return int(2 * each_ms * max((sum(count * count for count in some) / 3 for some in counts), default=0) ** 0.5)


def _moved(one: Play, partition_count: int) -> list[int]:
    """Number of partitions that may have been without an owner, by rebalance: eager members revoke all of them."""
    return [max(played.moved_count, partition_count if played.unowned_ms else 0) for played in one.rebalances]


def _gaps(one: Play) -> list[int]:
    """Number of unserved partitions, by rebalance; those without a rebalance count separately."""
    counts = [played.gap_count for played in one.rebalances]
    return [*counts, *[1] * (one.gap_count - sum(counts))]
