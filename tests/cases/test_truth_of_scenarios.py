"""simulate, nightly, and the truth, for each shipped scenario, with nothing in the environment: causes, owners,
redeliveries and archived records of gold are the true ones, and all of them that the log can show.
"""

from collections import Counter
from functools import partial
from typing import Final

import pytest

from jobs.settings import PROJECT_ROOT
from tests.cases.scenario_truth import (
    ARCHIVED_AS,
    CAUSES_OF,
    FOLLOW_UP,
    LEAVING,
    NO_CLAIM,
    RETRIED_MS,
    Place,
    allowed_causes,
    distance,
    found_owners,
    lock_timeouts,
    ms,
    places,
    redelivery_times,
    true_owners,
    true_reasons,
    true_redeliveries,
)
from tests.conftest import REPORT_LINE
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


def reported(request: pytest.FixtureRequest, judged: Scenario, what: str, right: int, said: int, all_true: int) -> None:
    line = f"{judged.name}: {what}: precision {right} of {said}, recall {right} of {all_true}"
    request.node.user_properties.append((REPORT_LINE, line))


def test_owners_are_the_true_ones(judged: Scenario, request: pytest.FixtureRequest) -> None:
    """Each partition's owners, and since when, by their coordinators; and no other is made up."""
    assert judged.night.exit_code == 0
    true = true_owners(judged)
    found = found_owners(judged)
    reported(request, judged, "owners", len(found & true), len(found), len(true))
    assert found == true


def test_causes_are_the_true_ones(judged: Scenario, request: pytest.FixtureRequest) -> None:
    """Each generation has its row; what is CERTAIN or LIKELY is true; and a true reason is named, or was one of those
    that look alike in the log."""
    reasons, hidden = true_reasons(judged)
    rows = judged.rows("gold.rebalances")
    assert {key for key, true in reasons.items() if true} <= {(row["group_id"], row["to_generation"]) for row in rows}
    wrong, missed, right, true_count = [], [], 0, 0
    for row in rows:
        true = reasons[row["group_id"], row["to_generation"]]
        allowed = allowed_causes(true)
        named = set()
        for cause, method, confidence in zip(
            row["causes"], row["cause_methods"], row["cause_confidences"], strict=True
        ):
            is_follow_up = method == "COOPERATIVE_FOLLOW_UP" and FOLLOW_UP in true
            named |= {FOLLOW_UP} if is_follow_up else {cause}
            if cause in NO_CLAIM or confidence == "GUESS":
                continue
            is_true = is_follow_up or cause in allowed
            right += is_true
            if not is_true:
                wrong.append((row["group_id"], row["to_generation"], cause, method, confidence, true))
        true_count += len(true)
        missed += [
            (row["group_id"], row["to_generation"], reason, row["causes"])
            for reason in true
            if not CAUSES_OF.get(reason, frozenset({reason})) & named
            and not (reason in LEAVING and named & NO_CLAIM)
            and not (reason == "TOPIC_CHANGED" and (row["group_id"], row["to_generation"]) in hidden)
        ]
    reported(request, judged, "causes", right, right + len(wrong), right + len(missed))
    assert wrong == []
    assert missed == []


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


def test_redeliveries_are_the_true_ones(judged: Scenario, request: pytest.FixtureRequest) -> None:
    """Each record that was handed back or given out again, as often as the log counts it, with its true cause where one
    is named."""
    true = true_redeliveries(judged)
    times, timeouts = redelivery_times(true), lock_timeouts(judged)
    seen: set[tuple[Place, int]] = set()
    made_up, misnamed, said = [], [], 0
    for row in judged.rows("gold.redeliveries"):
        for place in places(row, row["group_id"]):
            said += 1
            at = ms(row["at"])
            near = sorted(times[place], key=partial(distance, at))[:1]
            near = [at_ms for at_ms in near if distance(at, at_ms) <= RETRIED_MS]
            seen |= {(place, at_ms) for at_ms in near}
            if not near:
                made_up.append((place, row["at"], row["cause"], row["method"]))
            causes = {times[place][at_ms] for at_ms in near}
            is_true = row["likely_cause"] in {None, *causes} or (
                row["likely_cause"] == "LOCK_TIMEOUT" and any(at_ms <= ms(row["at"]) for at_ms in timeouts[place])
            )
            if not is_true:
                misnamed.append((place, row["at"], row["likely_cause"], row["method"], row["confidence"], causes))
    reported(request, judged, "redeliveries", said - len(made_up) - len(misnamed), said, len(true))
    assert made_up == []
    assert true.keys() - seen == set()
    assert misnamed == []


def test_archived_records_are_the_true_ones(judged: Scenario, request: pytest.FixtureRequest) -> None:
    """Each offset that was given up, once, and with its true cause where one is named."""
    why = {place: line["why"] for line in judged.truth("archived") for place in places(line, line["group"])}
    rows = [(place, row) for row in judged.rows("gold.archived_records") for place in places(row, row["group_id"])]
    found = dict(rows)
    reported(request, judged, "archived records", len(found.keys() & why.keys()), len(found), len(why))
    assert len(rows) == len(found)
    assert found.keys() == why.keys()
    wrong = Counter(
        (why[place], row["likely_cause"], row["method"], row["confidence"])
        for place, row in found.items()
        if row["likely_cause"] not in {None, ARCHIVED_AS.get(why[place], why[place])}
    )
    assert wrong == {}
