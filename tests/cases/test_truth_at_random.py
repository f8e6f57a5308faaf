"""simulate, nightly, and the truth, for clusters at random: owners, redeliveries and archived records are the true
ones; of what gold claims, CERTAIN is never wrong, and LIKELY at least 19 times in 20.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases.random_clusters import scenario_text
from tests.cases.scenario_truth import (
    SEEDS,
    assert_right,
    claimed_causes,
    claimed_ends,
    claimed_hand_backs,
    found_owners,
    true_owners,
    true_reasons,
)
from tests.claims import Claim
from tests.scenarios import Scenario, lived


def causes(life: Scenario) -> Iterator[Claim]:
    """Why groups rebalanced. Several operations of a group in one batch and one millisecond are one to the log."""
    reasons, _ = true_reasons(life)
    merged: dict[tuple[str, int], set[str]] = {}
    last: dict[tuple[str, int], set[str]] = {}
    for line in life.truth("generations"):
        key, moment = (line["group"], line["generation"]), (line["group"], line["ts_ms"])
        merged[key] = last[moment] = last.get(moment, set()) | reasons[key]
    for row in life.rows("gold.rebalances"):
        key = row["group_id"], row["to_generation"]
        true = merged.get(key, set())
        yield from claimed_causes(row, (*key, *true), true)


def test_gold_is_true(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """All that its tables list, and nothing else; and the reasons it gives."""

    def claims(seed: int) -> Iterator[Claim]:
        life = lived(scenario_text(seed), tmp_path / f"story-{seed}")
        assert life.night.exit_code == 0, life.name
        assert found_owners(life) == true_owners(life), life.name
        yield from causes(life)
        yield from claimed_ends(life)
        yield from claimed_hand_backs(life, life.rows("gold.redeliveries"))

    assert_right(claims, SEEDS, "random clusters", ("CERTAIN",), request.node)
