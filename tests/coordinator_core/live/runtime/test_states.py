"""Tests of the states of a coordinator."""

import itertools

import pytest

from coordinator_core.errors import IllegalTransition
from coordinator_core.live.runtime.states import REFUSAL, CoordinatorState, check_transition
from schemas.error_codes import ErrorCode

LEGAL = {
    ("INITIAL", "LOADING"),
    ("FAILED", "LOADING"),
    ("LOADING", "ACTIVE"),
    ("ACTIVE", "ACTIVE"),
    ("LOADING", "FAILED"),
    ("ACTIVE", "FAILED"),
    *((state.value, "CLOSED") for state in CoordinatorState),
}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(CoordinatorState, CoordinatorState)))
def test_transitions(before: CoordinatorState, after: CoordinatorState) -> None:
    """Those of Kafka's canTransitionFrom, and no others."""
    if (before.value, after.value) in LEGAL:
        check_transition(before, after)
    else:
        with pytest.raises(IllegalTransition):
            check_transition(before, after)


def test_every_state_but_active_refuses_requests() -> None:
    """Loading asks for patience, all others send the client to look for the coordinator again."""
    assert REFUSAL.keys() == set(CoordinatorState) - {CoordinatorState.ACTIVE}
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert {state for state, code in REFUSAL.items() if code is loading} == {CoordinatorState.LOADING}
    assert set(REFUSAL.values()) == {loading, ErrorCode.NOT_COORDINATOR}
