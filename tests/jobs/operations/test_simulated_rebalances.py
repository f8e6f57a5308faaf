"""Causes of rebalances, from simulated logs through nightly to gold, against what truly happened in the simulation."""

from collections import Counter
from typing import Any, Final

import pytest

from tests.made_once import MadeOnce
from tests.scenarios import Scenario, scenario_of

pytestmark = pytest.mark.simulator

CAUSES_OF: Final = {
    "MEMBER_JOINED": {"MEMBER_JOINED", "FIRST"},
    "STATIC_MEMBER_BACK": {"MEMBER_JOINED", "FIRST", "STATIC_MEMBER_REPLACED"},
    "MEMBER_LEFT": {"MEMBER_LEFT"},
    "SESSION_EXPIRED": {"MEMBER_EXPIRED"},
    "POLL_EXPIRED": {"MEMBER_LEFT"},
    "TOPIC_CHANGED": {"PARTITIONS_CHANGED"},
    "PARTITIONS_CHANGED": {"PARTITIONS_CHANGED"},
}
"""What truly happened -> what gold may call it. A client that no longer polls leaves in its own name."""
Generation = tuple[str, int]
"""Group id and number."""
FOLLOW_UP: Final = "REVOKED_PARTITIONS"
LIKELY_MIN: Final = 0.9


def gold_and_truth(
    scenario: Scenario,
) -> tuple[list[dict[str, Any]], dict[Generation, set[str]], set[Generation]]:
    """gold.rebalances of a scenario, the true reasons by generation, and the generations that deployments made."""
    kinds = [line["fault"] for line in scenario.truth("faults")]
    reasons: dict[Generation, set[str]] = {}
    deployed: set[Generation] = set()
    for line in scenario.truth("generations"):
        known = reasons.setdefault((line["group"], line["generation"]), set())
        known.update(cause["reason"] for cause in line["causes"])
        # static members that come back make no generation
        faults = {c["fault"] for c in line["causes"] if c["reason"] != "STATIC_MEMBER_BACK"} - {None}
        if any(kinds[fault] == "rolling_deploy" for fault in faults):
            deployed.add((line["group"], line["generation"]))
    return scenario.rows("gold.rebalances"), reasons, deployed


@pytest.mark.parametrize("scenario", ["bad-day", "consumer-protocol", "rolling-deploy"])
def test_causes_are_the_true_ones(made_once: MadeOnce, scenario: str) -> None:
    """CERTAIN causes are true without exception, LIKELY ones in nine of ten, and every generation has its row; those
    of rolling deployments are marked, and no others are."""
    rows, reasons, deployed = gold_and_truth(scenario_of(made_once, scenario))
    right: Counter[str] = Counter()
    wrong: dict[str, list[str]] = {"CERTAIN": [], "LIKELY": [], "GUESS": []}
    for row in rows:
        true = reasons[row["group_id"], row["to_generation"]]
        for cause, method, confidence in zip(
            row["causes"], row["cause_methods"], row["cause_confidences"], strict=True
        ):
            if cause in {"GROUP_EMPTIED", "UNKNOWN"} or not true:
                continue
            allowed = set().union(*(CAUSES_OF.get(reason, set()) for reason in true))
            is_right = method == "COOPERATIVE_FOLLOW_UP" if true == {FOLLOW_UP} else cause in allowed
            right[confidence] += is_right
            if not is_right:
                wrong[confidence].append(f"{row['group_id']} {row['to_generation']}: {cause} by {method}, not {true}")
    assert not wrong["CERTAIN"]
    assert right["LIKELY"] >= LIKELY_MIN * (right["LIKELY"] + len(wrong["LIKELY"])), wrong["LIKELY"]
    assert right["CERTAIN"] > 0
    with_members = {key for key, true in reasons.items() if true}
    assert with_members <= {(row["group_id"], row["to_generation"]) for row in rows}
    marked = {
        (row["group_id"], row["to_generation"])
        for row in rows
        if row["rollout_id"] is not None and row["method"] != "COOPERATIVE_FOLLOW_UP"
    }
    # a deployment whose first or last replacement is alone in the log may not be found; none is made up
    assert marked <= deployed
    assert bool(marked) == bool(deployed)
