"""Where a broker's answer cannot be in its log, by name, and how often that is so in the recordings that come with the
project. Anything else that differs is a failure.

Each reason rests on a sentence of the recordings' README, which is quoted with it.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from coordinator_core.history.comparison_with_broker import OF_A_GENERATION, REBALANCING_STATES, Reason
from tests.conformance.truth import Facts, GroupAnswer, Path_, ShareAnswer

CLASSIC_REBALANCING: Final = Reason.CLASSIC_REBALANCING.value
"""Fact 8: "Group state (PreparingRebalance...) is not in the log". While a classic group rebalances the broker shows
the members that are joining; the log still shows the last synchronised generation."""

CONNECT_ASSIGNMENT: Final = "CONNECT_ASSIGNMENT"
"""Scenario n01-connect, "classic protocol type connect": Admin reads assignments of protocol type consumer only and
shows none, where the log (and so silver) has Connect's connectors and tasks."""

SHARE_INITIALIZING: Final = Reason.SHARE_INITIALIZING.value
"""Fact 9: "initial ShareSnapshot has snapshotEpoch 0 ... startOffset -1". The share coordinator has written it, but the
group's log does not yet say that the partition is initialised, and until then the broker does not list it."""


def _is_rebalancing(answer: GroupAnswer, path: Path_, expected: Any, got: Any) -> bool:
    reported = answer.answer
    return reported is not None and reported["state"] in REBALANCING_STATES and path[0] in OF_A_GENERATION


def _is_connect_assignment(answer: GroupAnswer, path: Path_, expected: Any, got: Any) -> bool:
    reported = answer.answer
    return (
        reported is not None
        and reported.get("protocol_type") == "connect"
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
        "codec-gzip": {SHARE_INITIALIZING: 1},
        "compact-partial/logs-before": {SHARE_INITIALIZING: 1},
    }
)
"""Answers of each recording which a reason explains; recordings which are not here have none."""


def explanation(answer: GroupAnswer, differences: list[tuple[Path_, Any, Any]]) -> str | None:
    """The one reason that explains every difference of an answer; None where there is none."""
    for name, rule in RULES.items():
        if all(rule(answer, path, expected, got) for path, expected, got in differences):
            return name
    return None


def is_initializing(answer: ShareAnswer, state: Facts, group_events: Iterable[Mapping[str, Any]]) -> bool:
    """Does the broker not list a share partition, because its group has not noted that it was initialised?

    `state` are the tables' facts of the share partition, `group_events` the group's events.
    """
    is_initial = state["start offset",] == -1 and not any(path[0] == "delivery" for path in state)
    was_noted = any(
        event["event_type"] == "SHARE_PARTITIONS_INITIALIZED"
        and event["details"]["topic_id"] == answer.topic_id
        and str(answer.partition) in event["details"]["partitions"].split(",")
        and event["log_offset"] < answer.group_log_end
        for event in group_events
    )
    return answer.state is None and is_initial and not was_noted
