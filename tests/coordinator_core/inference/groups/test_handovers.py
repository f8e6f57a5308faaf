"""Time without an owner that the log does not show: when members stopped, at the earliest and most likely."""

import pytest

from coordinator_core.inference.audit.groups import audit_group
from coordinator_core.inference.facts.rows import RebalanceRow
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.groups.handovers import ANSWER_MS
from tests.coordinator_core.group_records import Record
from tests.coordinator_core.inference.group_lives import classic, epoch, goes, joins, life_of, reconciled, target

EVERY_5_S = range(1_000, 61_000, 5_000)
BOTH = {"a": (0,), "b": (1,)}
ALONE = {"a": (0, 1)}


def second(operations: list[tuple[int, list[Record]]], commits: list[tuple[int, int, int]]) -> RebalanceRow:
    """The second rebalance of a group."""
    return audit_group(life_of(operations, commits), InferenceSettings()).rebalances[1]


def commits(partition: int, *more: int, until_ms: int = 61_000) -> list[tuple[int, int, int]]:
    """Every five seconds, and at some moments."""
    return [(at, partition, at) for at in (*EVERY_5_S, *more) if at < until_ms]


def test_eager_members_stop_at_their_last_commit() -> None:
    """They commit what they revoke: the join phase was 1.5 and 0.3 s long for them, the sync phase is in the log."""
    operations = [(0, classic(1, BOTH)), (59_900, classic(2, ALONE | {"b": ()}, state_at=59_800))]
    row = second(operations, [*commits(0, 58_300, until_ms=59_000), *commits(1, 59_500, until_ms=59_600)])
    assert (row.unowned_partition_ms, row.unowned_likely_ms) == (200, 200 + 1_500 + 300)
    assert (row.unowned_most_ms, row.unowned_confidence) == (2_000 + 3 * ANSWER_MS, "LIKELY")


def test_members_that_did_not_commit_are_bound_by_the_rebalance_timeout() -> None:
    """A join phase lasts no longer; where it began is a guess."""
    operations = [
        (0, classic(1, BOTH, rebalance_ms=20_000)),
        (60_000, classic(2, BOTH, rebalance_ms=20_000, state_at=60_000)),
    ]
    row = second(operations, [])
    assert (row.unowned_partition_ms, row.unowned_most_ms) == (0, 2 * (20_000 + 2 * ANSWER_MS))
    assert (row.unowned_likely_ms, row.unowned_confidence) == (2 * 1_500, "GUESS")


@pytest.mark.parametrize(("is_back", "likely_ms"), [(False, 60_000 - 31_000 - 2_500), (True, 0)])
def test_a_member_that_died_stopped_before_its_next_commit(is_back: bool, likely_ms: int) -> None:
    """Unless its client is there again later, from the same host: it was paused, and believed that it owned them."""
    kind = "cooperative-sticky"
    operations = [(0, classic(1, BOTH, protocol=kind)), (60_000, classic(2, ALONE, protocol=kind, state_at=60_000))]
    later = (70_000, classic(3, {"a": (0, 1), "c": ()}, protocol=kind, state_at=70_000))
    life = life_of([*operations, later], [*commits(0), *commits(1, until_ms=32_000)])
    clients = {"c": "client-b"} if is_back else {}
    members = (row._replace(client_id=clients.get(row.member_id, row.client_id)) for row in life.members)
    row = audit_group(life._replace(members=tuple(members)), InferenceSettings()).rebalances[1]
    assert (row.unowned_partition_ms, row.unowned_likely_ms) == (0, likely_ms)
    assert row.unowned_most_ms == 60_000 - 31_000 + 2 * ANSWER_MS
    assert row.unowned_confidence == ("GUESS" if is_back else "LIKELY")


def test_a_member_of_a_consumer_group_died_one_session_before_at_most() -> None:
    """Its coordinator says when it was dropped; and one that has to revoke stopped after that was in the log."""
    operations = [
        (0, [*joins("a"), *joins("b"), *epoch(2), *target(2, BOTH), *reconciled("a", 2, (0,))]),
        (100, reconciled("b", 2, (1,))),
        (90_000, [*goes("b"), *epoch(3), *target(3, ALONE)]),
        (90_000, reconciled("a", 3, (0, 1))),
        (100_000, [*joins("c"), *epoch(4), *target(4, {"a": (0,), "c": (1,)})]),
        (101_000, reconciled("a", 3, (0,), revoking=(1,), state=1)),
        (103_000, reconciled("a", 4, (0,))),
        (103_000, reconciled("c", 4, (1,))),
    ]
    first, died, revoked = audit_group(life_of(operations), InferenceSettings()).rebalances
    assert (first.unowned_likely_ms, first.unowned_most_ms) == (0, 0)
    assert (died.unowned_partition_ms, died.unowned_most_ms) == (0, 45_000 + 3 * ANSWER_MS)
    assert (revoked.unowned_likely_ms, revoked.unowned_most_ms) == (0, 2_000 + 2 * ANSWER_MS)
