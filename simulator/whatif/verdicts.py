"""Answers: for a recorded rebalance its verdict, its bands, and its assumptions; and the row of every answer."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple


class Verdict(StrEnum):
    """What would have happened to a recorded rebalance."""

    KEPT = "KEPT"
    """It would have happened at about the same time."""
    MOVED = "MOVED"
    """It would have happened at another time."""
    AVOIDED = "AVOIDED"
    MERGED = "MERGED"
    """It would have been merged with others."""
    SPLIT = "SPLIT"
    """Several would have happened instead."""
    ADDED = "ADDED"
    """Not recorded, but it would have happened."""
    MAY_BE_ADDED = "MAY_BE_ADDED"
    """Not recorded, and it would have happened by some hypotheses only: mostly a member that did not commit for longer
    than the new session, while the log does not show whether it sent heartbeats."""
    CANNOT_TELL = "CANNOT_TELL"
    """The log can be read in several ways that differ here: see `possible`."""
    NOT_REPRODUCED = "NOT_REPRODUCED"
    """No hypothesis reproduces it under the recorded settings: what would have come of it is unknown."""
    NOT_PLAYED = "NOT_PLAYED"
    """Its members joined before the log or the time span: it is where plays begin."""


ASSUMPTIONS: Final[Mapping[str, str]] = {
    "CLIENTS_AS_KAFKAS": "Members are Kafka's consumers: they join, sync, poll and send heartbeats as those do.",
    "SAME_APPLICATION": "Deploys, crashes, pauses and slow polls would have been the same under the other settings.",
    "HEARTBEAT_INTERVAL": "heartbeat.interval.ms, which no log has, was as given, or 3000, or a third of the session.",
    "INITIAL_DELAY": "group.initial.rebalance.delay.ms was as given, as the log shows, or Kafka's default of 3000.",
    "JOINS_WITHIN_DELAY": "The log does not tell when, during the delay, the members of a first generation came.",
    "PAUSED_OR_CRASHED": "A member which expired and came back later was paused, or died and was restarted.",
    "LEFT_OR_EXPIRED": "The commits do not tell whether a member left or expired.",
    "EXPIRED_OR_TOO_SLOW": "A member was silent as long as its session and max.poll.interval.ms: either ended it.",
    "INSTANCE_REFUSED": "Who came back while the group still had its instance was refused, which is in no log.",
    "SAME_CLIENT": "A member of the client id and host of one that went is the same process, come back.",
    "ASSIGNOR_DEFAULT": "Under the other protocol members ask for its default assignor.",
    "SILENCE_NOT_IN_LOG": "Of a member that commits seldom or never, the log does not show how long it was silent.",
    "CONSUMER_SESSION": "consumer.session.timeout.ms, where the log does not show it, was as given, or 45000.",
}
"""Name of an assumption -> its text."""

ALWAYS: Final = frozenset({"CLIENTS_AS_KAFKAS", "SAME_APPLICATION"})


class Range(NamedTuple):
    """From the least to the greatest value of any hypothesis."""

    least: int
    most: int


class Bounds(NamedTuple):
    """The same of a measure; `most` None: there is no upper bound."""

    least: int
    most: int | None


NOTHING: Final = Bounds(0, 0)


def exactly(number: int | None) -> Bounds | None:
    """The range of one value; None: unknown."""
    return None if number is None else Bounds(number, number)


def union_of(ranges: Iterable[Bounds | None]) -> Bounds | None:
    """The range that has the values of all; None if one is unknown."""
    found = list(ranges)
    known = [one for one in found if one is not None]
    if len(known) < len(found) or not known:
        return None
    bounds = [one.most for one in known if one.most is not None]
    return Bounds(min(one.least for one in known), max(bounds) if len(bounds) == len(known) else None)


def sum_of(ranges: Iterable[Bounds | None]) -> Bounds:
    """The range of the sum. None: nothing is known of it."""
    least, most = 0, 0
    is_bounded = True
    for one in ranges:
        if one is not None:
            least += one.least
        if one is None or one.most is None:
            is_bounded = False
        else:
            most += one.most
    return Bounds(least, most if is_bounded else None)


class Measures(NamedTuple):
    """What a recorded rebalance was, or plays did in its place, or the sums. None: unknown."""

    rebalances: Bounds | None = NOTHING
    """Number of generations, including follow-ups."""
    moved: Bounds | None = NOTHING
    """Partitions that changed owner, as gold.rebalances counts them."""
    unowned_ms: Bounds | None = NOTHING
    """Sum over partitions of the time without an owner, as gold.rebalances counts it."""
    not_served_ms: Bounds | None = NOTHING
    """Sum over partitions of the time without a living owner, including the time until the coordinator noticed that one
    died.
    """


NO_MEASURES: Final = Measures()


def measures_sum(all_of: Iterable[Measures]) -> Measures:
    """The sum of each measure."""
    found = list(all_of)
    return Measures(*map(sum_of, zip(*found, strict=True))) if found else NO_MEASURES


def measures_union(all_of: Iterable[Measures]) -> Measures:
    """What holds each of some possible measures."""
    found = list(all_of)
    return Measures(*map(union_of, zip(*found, strict=True))) if found else NO_MEASURES


@dataclass(frozen=True, slots=True)
class RebalanceAnswer:
    """A recorded rebalance, or one that would have been added. Times in epoch ms, ranges over the hypotheses."""

    verdict: Verdict
    at_ms: int
    """As recorded; if it is not recorded, the earliest time at which it would have happened."""
    generation: int | None
    causes: tuple[str, ...]
    possible: tuple[str, ...] = ()
    """All verdicts of the hypotheses that reproduce it."""
    shift_ms: Range | None = None
    """How much later it would have happened; None if it would not, or may not, have happened."""
    before: Measures = NO_MEASURES
    """As recorded."""
    after: Measures = NO_MEASURES
    confidence: str | None = None
    assumptions: tuple[str, ...] = ()
    would_be: str = ""
    """In words, where the verdict does not say it."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the window."""

    recorded_count: int
    """Generations or epochs in the log."""
    reproduced_count: int
    before: Measures
    """As recorded."""
    after: Measures
    hypotheses: int
    is_whole: bool
    """Nothing was left out or open."""
    assumptions: tuple[str, ...]


REBALANCE: Final = "REBALANCE"
RECORDS: Final = "RECORDS"
TOTAL: Final = "TOTAL"


class WhatIfRow(NamedTuple):
    """One answer, or (kind TOTAL) the sum of all answers for a group.

    Pairs ending in `_min` and `_max` are the least and the greatest value of any hypothesis, null where there is no
    bound. `before` is what gold.rebalances has (`not_served_ms`: what plays under the recorded settings have), `after`
    what would be under the changed ones. A total is the sum of the rows. `at_ms` is the recorded time; for a rebalance
    that is not recorded, when it would have happened.
    """

    group_id: str
    group_type: str
    kind: str
    asked: str
    at_ms: int | None = None
    generation: int | None = None
    topic: str | None = None
    partition: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    recorded: str = ""
    verdict: str | None = None
    would_be: str = ""
    shift_ms_min: int | None = None
    shift_ms_max: int | None = None
    rebalances_before_min: int | None = None
    rebalances_before_max: int | None = None
    rebalances_after_min: int | None = None
    rebalances_after_max: int | None = None
    moved_before_min: int | None = None
    moved_before_max: int | None = None
    moved_after_min: int | None = None
    moved_after_max: int | None = None
    unowned_ms_before_min: int | None = None
    unowned_ms_before_max: int | None = None
    unowned_ms_after_min: int | None = None
    unowned_ms_after_max: int | None = None
    not_served_ms_before_min: int | None = None
    not_served_ms_before_max: int | None = None
    not_served_ms_after_min: int | None = None
    not_served_ms_after_max: int | None = None
    deliveries_min: int | None = None
    deliveries_max: int | None = None
    """How many more deliveries (negative: fewer): for each offset of a range; for all records in a total."""
    confidence: str | None = None
    assumptions: tuple[str, ...] = ()
    kafka_version: str | None = None
    """The release whose rules were played; null without plays, as for records of share groups."""
    kafka_version_source: str | None = None
    """ASKED FEATURE_LEVEL RECORDS DEFAULT: see `release`."""
