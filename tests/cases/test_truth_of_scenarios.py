"""simulate, nightly, and the truth, for each shipped scenario, with nothing in the environment: causes, owners,
redeliveries and archived records of gold are the true ones, and all of them that the log can show.
"""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from jobs.settings import PROJECT_ROOT
from tests.cases.scenario_truth import (
    CAUSES_OF,
    FOLLOW_UP,
    LEAVING,
    NO_CLAIM,
    claimed_causes,
    claimed_ends,
    claimed_hand_backs,
    found_owners,
    true_owners,
    true_reasons,
)
from tests.lengths import takes_minutes
from tests.made_once import MadeOnce
from tests.scenarios import Scenario, scenario_of

SHORT: Final = frozenset({"share-admin", "slow-member", "two-applications"})
"""A second or two each; all others with `make test-live`."""
TOO_LONG: Final = frozenset({"busy-day"})
"""A day of a thousand groups takes minutes to simulate alone: tests/jobs/laboratory/test_simulate.py has it."""
SCENARIOS: Final = [
    pytest.param(path.stem, marks=() if path.stem in SHORT else takes_minutes, id=path.stem)
    for path in sorted((PROJECT_ROOT / "scenarios").glob("*.toml"))
    if path.stem not in TOO_LONG
]


@pytest.fixture(scope="module", params=SCENARIOS)
def judged(request: pytest.FixtureRequest, made_once: MadeOnce) -> Scenario:
    """One scenario after another."""
    return scenario_of(made_once, request.param)


def test_owners_are_the_true_ones(judged: Scenario) -> None:
    """Each partition's owners, and since when, by their coordinators; and no other is made up."""
    assert judged.night.exit_code == 0
    assert found_owners(judged) == true_owners(judged)


def test_causes_are_the_true_ones(judged: Scenario) -> None:
    """Each generation has its row; what is CERTAIN or LIKELY is true; and a true reason is named, or was one of those
    that look alike in the log."""
    reasons, hidden = true_reasons(judged)
    rows = {(row["group_id"], row["to_generation"]): row for row in judged.rows("gold.rebalances")}
    assert {key for key, true in reasons.items() if true} <= rows.keys()
    claims = [claim for key, row in rows.items() for claim in claimed_causes(row, key, reasons[key])]
    assert [claim for claim in claims if not claim.is_true and claim.confidence != "GUESS"] == []
    missed = [
        (key, reason, row["causes"])
        for key, row in rows.items()
        for reason in reasons[key]
        if not CAUSES_OF.get(reason, frozenset({reason})) & _named(row, reasons[key])
        and not (reason in LEAVING and NO_CLAIM & set(row["causes"]))
        and not (reason == "TOPIC_CHANGED" and key in hidden)
    ]
    assert missed == []


def _named(row: Mapping[str, Any], true: set[str]) -> set[str]:
    """The causes of a rebalance; a follow-up by the name that the truth has for it."""
    ways = zip(row["causes"], row["cause_methods"], strict=True)
    return {FOLLOW_UP if method == "COOPERATIVE_FOLLOW_UP" and FOLLOW_UP in true else cause for cause, method in ways}


def test_rollouts_are_the_true_ones(judged: Scenario) -> None:
    """Rebalances of rolling deployments are marked, and no others are: one whose first or last replacement is alone in
    the log may not be found."""
    kinds = [line["fault"] for line in judged.truth("faults")]
    deployed = {
        (line["group"], line["generation"])
        for line in judged.truth("generations")
        for cause in line["causes"]
        # static members that come back make no generation
        if cause["reason"] != "STATIC_MEMBER_BACK"
        and cause["fault"] is not None
        and kinds[cause["fault"]] == "rolling_deploy"
    }
    marked = {
        (row["group_id"], row["to_generation"])
        for row in judged.rows("gold.rebalances")
        if row["rollout_id"] is not None and row["method"] != "COOPERATIVE_FOLLOW_UP"
    }
    assert marked <= deployed
    assert bool(marked) == bool(deployed)


def test_redeliveries_are_the_true_ones(judged: Scenario) -> None:
    """Each record that was handed back or given out again, as often as the log counts it, with its true cause where one
    is named."""
    assert [it for it in claimed_hand_backs(judged, judged.rows("gold.redeliveries")) if not it.is_true] == []


def test_archived_records_are_the_true_ones(judged: Scenario) -> None:
    """Each offset that was given up, once, and with its true cause where one is named."""
    assert [it for it in claimed_ends(judged) if not it.is_true] == []
