"""What counts as equal when a broker's answer is compared with the ledger's states of the same time."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.history.comparison_with_broker import (
    Difference,
    Facts,
    Path,
    Reason,
    changes_between,
    differences,
    explain_group,
)

A: Path = ("offset", "a", 0)
B: Path = ("offset", "b", 0)


class Case(NamedTuple):
    """An answer, the ledger's states, and the facts that differ from the nearest of them: (asked, known, has moved)."""

    name: str
    described: Facts
    states: list[Facts]
    unlike: dict[Path, tuple[Any, Any, bool]]


CASES = [
    Case("the one state", {A: 1}, [{A: 1}], {}),
    Case("nothing on either side", {}, [{}], {}),
    Case("the first of two", {A: 1}, [{A: 1}, {A: 2}], {}),
    Case("the last of two", {A: 2}, [{A: 1}, {A: 2}], {}),
    Case("one in the middle", {A: 2}, [{A: 1}, {A: 2}, {A: 3}], {}),
    Case("gone meanwhile", {}, [{A: 1}, {}], {}),
    Case("None is as good as nothing", {A: None}, [{}], {}),
    Case("another value", {A: 1}, [{A: 2}], {A: (1, 2, False)}),
    Case("only the broker has it", {A: 1}, [{}], {A: (1, None, False)}),
    Case("only the ledger has it", {}, [{A: 1}], {A: (None, 1, False)}),
    Case("moved, and no state is the answer", {A: 9}, [{A: 1}, {A: 2}], {A: (9, 1, True)}),
    Case(
        "what does not move is different though others move",
        {A: 9, B: 2},
        [{A: 1, B: 1}, {A: 1, B: 2}],
        {A: (9, 1, False)},
    ),
    Case("of two times at once", {A: 2, B: 1}, [{A: 1, B: 1}, {A: 2, B: 1}, {A: 2, B: 2}], {}),
    Case("no one state has both", {A: 1, B: 2}, [{A: 1, B: 1}, {A: 2, B: 2}], {B: (2, 1, True)}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_answer_and_the_states_of_its_time(case: Case) -> None:
    """An answer is right if it is one of the states; else the nearest state tells in what it is not."""
    found = differences(case.described, case.states[0], changes_between(case.states))
    assert {it.path: (it.described, it.known, it.has_moved) for it in found} == case.unlike


FACTS = st.dictionaries(st.sampled_from([("offset", name, 0) for name in "abc"]), st.integers(0, 2))


@given(FACTS, st.lists(FACTS, min_size=1, max_size=6))
def test_the_nearest_state_is_found_by_changes(described: dict[Path, int], states: list[dict[Path, int]]) -> None:
    """Walking from change to change finds as few differences as comparing with each state, and right ones."""

    def unlike(state: Mapping[Path, int]) -> int:
        return sum(described.get(path) != state.get(path) for path in {**described, **state})

    found = differences(described, states[0], changes_between(states))
    assert len(found) == min(map(unlike, states))
    for it in found:
        values = {state.get(it.path) for state in states}
        assert (it.described, it.known in values, it.has_moved) == (described.get(it.path), True, len(values) > 1)


ASSIGNED: Path = ("assigned", "m", "t-0")
REASONS = [
    (Difference(("state",), "PreparingRebalance", "Stable", False), "PreparingRebalance", Reason.CLASSIC_REBALANCING),
    (Difference(("member", "m", "client_id"), None, "c", False), "CompletingRebalance", Reason.CLASSIC_REBALANCING),
    (Difference(("protocol_type",), "connect", "consumer", False), "PreparingRebalance", None),
    (Difference(("state",), "Empty", "Stable", False), "Empty", None),
    (Difference(("member", "m", "client_id"), None, "c", False), "Stable", None),
    (Difference(("state",), "NotReady", "Stable", False), "NotReady", Reason.STREAMS_NOT_READY),
    (Difference(("state",), "Stable", "NotReady", False), "Stable", None),
    (Difference(ASSIGNED, None, "deleted", False), "Stable", Reason.TOPIC_DELETED),
    (Difference(ASSIGNED, None, "live", False), "Stable", None),
    (Difference(ASSIGNED, None, True, False), "Stable", None),
    (Difference(ASSIGNED, "live", "deleted", False), "Stable", None),
    (Difference(ASSIGNED, "live", None, False), "Stable", None),
]


@pytest.mark.parametrize(("difference", "state", "reason"), REASONS)
def test_what_no_log_holds_has_a_name(difference: Difference, state: str, reason: Reason | None) -> None:
    """A classic group in a rebalance, topics that are gone, streams groups that are not ready; nothing else."""
    assert explain_group(difference, state, frozenset({"live"})) is reason
