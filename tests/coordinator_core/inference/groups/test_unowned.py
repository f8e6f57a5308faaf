"""Time without an owner: counted once, and divided by what caused it."""

from collections import Counter

import pytest

from coordinator_core.inference.audit.groups import GroupGold, audit_group
from coordinator_core.inference.facts.settings import InferenceSettings
from tests.coordinator_core.inference.group_lives import (
    TOPIC,
    classic,
    epoch,
    joins,
    life_of,
    reconciled,
    target,
    unowned_ms,
)

SETTINGS = InferenceSettings()


def sums(gold: GroupGold) -> list[int]:
    """The time without an owner as intervals, rebalances and days have it."""
    return [sum(milliseconds for _, milliseconds in rows) for rows in unowned_ms(gold)]


EAGER = [
    (0, classic(1, {"a": (0, 1, 2)})),
    (10_000, classic(2, {"a": (0,), "b": (1,)}, state_at=9_800)),
    (20_000, classic(3, {"a": (0,), "b": (1, 2)}, state_at=19_900)),
    (30_000, classic(4, {})),
    (90_000, classic(5, {"a": (0, 1, 2)}, state_at=89_000)),
]


def test_eager_members_own_nothing_in_the_sync_phase() -> None:
    """A sync phase counts for every partition that was owned before and after it, and not twice where there is a gap;
    while the group is empty nothing counts."""
    gold = audit_group(life_of(EAGER), SETTINGS)
    assert [row.unowned_partition_ms for row in gold.rebalances] == [0, 2 * 200 + 10_000, 2 * 100, 0, 0]
    assert sums(gold) == [10_600] * 3
    assert {(row.partition, row.from_log_offset): row.gap_before_ms for row in gold.owners if row.partition == 2} == {
        (2, 0): None,
        (2, 2): 10_000,
        (2, 4): 60_000,
    }


def test_cooperative_members_keep_theirs() -> None:
    """Only what was handed over had no owner meanwhile."""
    operations = [
        (0, classic(1, {"a": (0, 1)}, protocol="cooperative-sticky")),
        (1_000, classic(2, {"a": (0,), "b": ()}, protocol="cooperative-sticky", state_at=900)),
        (1_300, classic(3, {"a": (0,), "b": (1,)}, protocol="cooperative-sticky", state_at=1_200)),
    ]
    gold = audit_group(life_of(operations), SETTINGS)
    assert [row.unowned_partition_ms for row in gold.rebalances] == [0, 300, 0]
    assert sums(gold) == [300] * 3


@pytest.mark.parametrize("is_target_changed", [False, True])
def test_a_revocation_within_an_epoch_is_no_rebalance(is_target_changed: bool) -> None:
    """A member gives up what its target still has: that is marked. What a new target takes from it is a rebalance."""
    life = life_of(
        [
            (0, [*joins("a"), *joins("b"), *epoch(2), *target(2, {"a": (0,), "b": (1,)}), *reconciled("a", 2, (0,))]),
            (100, reconciled("b", 2, (1,))),
            (5_000, target(2, {"a": ()}) if is_target_changed else joins("a", regex="other")),
            (5_000, reconciled("a", 2, ())),
            (6_500, [*epoch(3), *target(3, {"b": (0, 1)}), *reconciled("b", 3, (0, 1))]),
        ]
    )
    gold = audit_group(life, SETTINGS)
    (row,) = [row for row in gold.owners if row.gap_before_ms]
    assert (row.partition, row.gap_before_ms, row.gap_cause) == (
        0,
        1_500,
        "NOT_ASSIGNED" if is_target_changed else "REVOKED_IN_EPOCH",
    )
    assert [(row.unowned_partition_ms, row.revoked_partition_ms) for row in gold.rebalances] == [
        (1_500, 0 if is_target_changed else 1_500),
        (0, 0),
    ]
    assert Counter(row.topic for row in gold.owners) == {TOPIC: 3}
