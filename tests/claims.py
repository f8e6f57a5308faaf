"""What gold claims with a confidence, judged by what truly happened: how often each method is right.

Judges (random clusters, recordings) hand over their claims, and the end of a run prints one table of all. `make
methods` runs the judges alone. CERTAIN is always right, LIKELY 19 times in 20, a GUESS 7 times in 10: a rule that is
right less often has to say that it does not know.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import pytest

LEAST: Final = {"CERTAIN": 1.0, "LIKELY": 0.95, "GUESS": 0.7}
COUNT_LEAST: Final = {"CERTAIN": 1, "LIKELY": 40, "GUESS": 20}
"""Fewer claims say nothing about a share."""
CLAIMS: Final = "claims"
"""Name of the property by which a test hands over its counts, from whichever process it ran in."""

Counted = tuple[str, str, str, int, int]
"""Method, cause, confidence, how many were right, and of how many."""


class Claim(NamedTuple):
    """What a row of gold says was the reason of something."""

    cause: str
    method: str
    confidence: str
    place: tuple[object, ...]
    is_true: bool


def counted(claims: Iterable[Claim]) -> list[Counted]:
    """By method, cause and confidence."""
    right, of = Counter[tuple[str, str, str]](), Counter[tuple[str, str, str]]()
    for claim in claims:
        way = claim.method, claim.cause, claim.confidence
        of[way] += 1
        right[way] += claim.is_true
    return [(*way, right[way], of[way]) for way in sorted(of)]


def hand_over(claims: Iterable[Claim], test: pytest.Item) -> list[Counted]:
    """Count claims, also for the table at the end of the run."""
    lines = counted(claims)
    test.user_properties.append((CLAIMS, lines))
    return lines


def below(lines: Iterable[Counted]) -> list[Counted]:
    """The lines that are right less often than their confidence says, of enough claims to tell."""
    return [
        line
        for line in lines
        if line[2] in LEAST and line[4] >= COUNT_LEAST[line[2]] and line[3] < LEAST[line[2]] * line[4]
    ]


def table(handed_over: Iterable[Sequence[Counted]]) -> Iterator[str]:
    """All lines of a run as one table."""
    right, of = Counter[tuple[str, str, str]](), Counter[tuple[str, str, str]]()
    for lines in handed_over:
        for method, cause, confidence, right_count, count in lines:
            right[method, cause, confidence] += right_count
            of[method, cause, confidence] += count
    if not of:
        return
    yield f"{'METHOD':<34}{'CAUSE':<26}{'CONFIDENCE':<15}{'RIGHT':>9}{'OF':>9}"
    for way in sorted(of):
        note = "  below" if below([(*way, right[way], of[way])]) else ""
        yield f"{way[0]:<34}{way[1]:<26}{way[2]:<15}{right[way]:>9,}{of[way]:>9,}{note}"
