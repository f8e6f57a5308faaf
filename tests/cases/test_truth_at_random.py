"""simulate, nightly, and the truth, for clusters at random: owners, redeliveries and archived records are the true
ones; of what gold claims, CERTAIN is never wrong, and LIKELY at least 19 times in 20.
"""

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cases.random_clusters import scenario_text
from tests.cases.scenario_truth import (
    ABORTED,
    COUNT_LOST,
    FOLLOW_UP,
    NO_CLAIM,
    RETRIED_MS,
    SEEDS,
    UNWRITTEN,
    Place,
    aborted,
    allowed_causes,
    assert_right,
    claimed_end,
    distance,
    found_owners,
    lock_timeouts,
    ms,
    places,
    redelivery_times,
    true_ends,
    true_owners,
    true_reasons,
    true_redeliveries,
)
from tests.claims import Claim
from tests.scenarios import Scenario, lived


def claimed_causes(life: Scenario) -> Iterator[Claim]:
    """Why groups rebalanced. Several operations of a group in one batch and one millisecond are one to the log."""
    reasons, _ = true_reasons(life)
    merged: dict[tuple[str, int], set[str]] = {}
    last: dict[tuple[str, int], set[str]] = {}
    for line in life.truth("generations"):
        key, moment = (line["group"], line["generation"]), (line["group"], line["ts_ms"])
        merged[key] = last[moment] = last.get(moment, set()) | reasons[key]
    for row in life.rows("gold.rebalances"):
        true = merged.get((row["group_id"], row["to_generation"]), set())
        allowed = allowed_causes(true)
        ways = zip(row["causes"], row["cause_methods"], row["cause_confidences"], strict=True)
        joined = {"MEMBER_JOINED"} if row["members_joined"] else set()  # while others did, as the log shows
        for cause, method, confidence in ways:
            is_follow_up = method == "COOPERATIVE_FOLLOW_UP" and FOLLOW_UP in true
            if cause not in NO_CLAIM:
                is_true = is_follow_up or cause in allowed | joined
                yield Claim(cause, method, confidence, (row["group_id"], row["to_generation"], *true), is_true)


def claimed_ends(life: Scenario) -> Iterator[Claim]:
    """Why share groups gave records up. Each one that the state shows was."""
    why, is_aborted = true_ends(life), aborted(life)
    written: dict[tuple[str, str, int], int] = defaultdict(int)
    for line in life.truth("share_writes"):
        share_partition = line["group"], line["topic"], line["partition"]
        written[share_partition] = max(written[share_partition], line["start_offset"])
    found = set[Place]()
    for row in life.rows("gold.archived_records"):
        for place in places(row, row["group_id"]):
            found.add(place)
            assert place in why or row["cause"] in UNWRITTEN, (place, row)
            if place in why or row["likely_cause"] is not None:
                yield from claimed_end(row, place, why.get(place, ABORTED if is_aborted(place) else ""))
    unwritten = {place for place, reason in why.items() if reason == "RETENTION" and place[3] >= written[place[:3]]}
    assert why.keys() - found == unwritten - found


def claimed_hand_backs(life: Scenario) -> Iterator[Claim]:
    """How deliveries ended. Each redelivery that the state shows was."""
    true = true_redeliveries(life)
    times, timeouts = redelivery_times(true), lock_timeouts(life)
    seen: set[tuple[Place, int]] = set()
    for row in life.rows("gold.redeliveries"):
        at = ms(row["at"])
        for place in places(row, row["group_id"]):
            near = [it for it in sorted(times[place], key=partial(distance, at))[:1] if distance(at, it) <= RETRIED_MS]
            assert near or row["cause"] == COUNT_LOST, (place, row)
            seen |= {(place, at_ms) for at_ms in near}
            if row["likely_cause"] is not None:
                is_late = row["likely_cause"] == "LOCK_TIMEOUT" and any(at_ms <= at for at_ms in timeouts[place])
                is_true = is_late or row["likely_cause"] in {times[place][at_ms] for at_ms in near}
                yield Claim(row["likely_cause"], row["method"], row["confidence"], place, is_true)
    assert true.keys() == seen


def test_gold_is_true(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """All that its tables list, and nothing else; and the reasons it gives."""

    def claims(seed: int) -> Iterator[Claim]:
        life = lived(scenario_text(seed), tmp_path / f"story-{seed}")
        assert life.night.exit_code == 0, life.name
        assert found_owners(life) == true_owners(life), life.name
        yield from claimed_causes(life)
        yield from claimed_ends(life)
        yield from claimed_hand_backs(life)

    assert_right(claims, SEEDS, "random clusters", ("CERTAIN",), request.node)
