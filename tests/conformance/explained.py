"""Where a broker's answer cannot be in its log, by name, and how often that is so in the recordings that come with the
project. Anything else that differs is a failure.

Each reason rests on a sentence of the recordings' README, which stands beside it.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from tests.conformance.truth import GroupAnswer, Path_

CLASSIC_REBALANCING: Final = "CLASSIC_REBALANCING"
"""Fact 8: "Group state (PreparingRebalance...) is not in the log". While a classic group rebalances the broker shows
the members that are joining; the log still shows the last synchronised generation."""

CONNECT_ASSIGNMENT: Final = "CONNECT_ASSIGNMENT"
"""Scenario n01-connect, "classic protocol type connect": Admin reads assignments of protocol type consumer only and
shows none, where the log (and so silver) has Connect's connectors and tasks."""

REBALANCING_STATES: Final = frozenset({"PreparingRebalance", "CompletingRebalance"})
OF_A_GENERATION: Final = frozenset({"state", "member count", "member", "assigned", "protocol_name"})


def _is_rebalancing(answer: GroupAnswer, path: Path_, expected: Any, got: Any) -> bool:
    told = answer.answer
    return told is not None and told["state"] in REBALANCING_STATES and path[0] in OF_A_GENERATION


def _is_connect_assignment(answer: GroupAnswer, path: Path_, expected: Any, got: Any) -> bool:
    told = answer.answer
    return (
        told is not None
        and told.get("protocol_type") == "connect"
        and path[0] == "assigned"
        and expected is None
        and got is True
    )


RULES: Final[Mapping[str, Callable[[GroupAnswer, Path_, Any, Any], bool]]] = MappingProxyType(
    {CLASSIC_REBALANCING: _is_rebalancing, CONNECT_ASSIGNMENT: _is_connect_assignment}
)

EXPECTED_ANSWERS: Final[Mapping[str, Mapping[str, int]]] = MappingProxyType(
    {
        "full-a": {CONNECT_ASSIGNMENT: 2},
        "p50": {CLASSIC_REBALANCING: 2},
        "old-40": {CLASSIC_REBALANCING: 2},
    }
)
"""Answers of each recording which a reason explains; recordings which are not here have none."""


def explanation(answer: GroupAnswer, differences: list[tuple[Path_, Any, Any]]) -> str | None:
    """The one reason that explains every difference of an answer; None where there is none."""
    for name, rule in RULES.items():
        if all(rule(answer, path, expected, got) for path, expected, got in differences):
            return name
    return None
