"""States of one coordinator of a broker, and every transition between them (CoordinatorRuntime.CoordinatorState)."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from coordinator_core.errors import IllegalTransition
from schemas.error_codes import ErrorCode


class CoordinatorState(StrEnum):
    """How a coordinator treats requests."""

    INITIAL = "INITIAL"
    """Created, nothing loaded yet. The broker became leader -> LOADING."""
    LOADING = "LOADING"
    """The log is being replayed; requests are answered with COORDINATOR_LOAD_IN_PROGRESS.

    Replay is complete -> ACTIVE; a record is unreadable or contradicts the state -> FAILED.
    """
    ACTIVE = "ACTIVE"
    """Serves requests. State and log disagree on the next offset -> FAILED, and immediately -> LOADING."""
    FAILED = "FAILED"
    """Loading failed; requests are answered with NOT_COORDINATOR. Leader again in a later epoch -> LOADING."""
    CLOSED = "CLOSED"
    """Another broker is leader, or the topic was deleted. Final: a later leadership creates a new coordinator."""


VALID_PREVIOUS: Final[Mapping[CoordinatorState, frozenset[CoordinatorState]]] = {
    CoordinatorState.INITIAL: frozenset(),
    CoordinatorState.LOADING: frozenset({CoordinatorState.INITIAL, CoordinatorState.FAILED}),
    CoordinatorState.ACTIVE: frozenset({CoordinatorState.ACTIVE, CoordinatorState.LOADING}),
    CoordinatorState.FAILED: frozenset({CoordinatorState.LOADING, CoordinatorState.ACTIVE}),
    CoordinatorState.CLOSED: frozenset(CoordinatorState),
}
"""New state -> the states that it may follow."""

REFUSAL: Final[Mapping[CoordinatorState, ErrorCode]] = {
    CoordinatorState.INITIAL: ErrorCode.NOT_COORDINATOR,
    CoordinatorState.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    CoordinatorState.FAILED: ErrorCode.NOT_COORDINATOR,
    CoordinatorState.CLOSED: ErrorCode.NOT_COORDINATOR,
}
"""The error for a request in each state but ACTIVE (withActiveContextOrThrow)."""


def check_transition(before: CoordinatorState, after: CoordinatorState) -> None:
    """Raises IllegalTransition unless `after` may follow `before`."""
    if before not in VALID_PREVIOUS[after]:
        raise IllegalTransition(f"{before} -> {after}")
