"""States of one coordinator of a broker, and every transition between them (CoordinatorRuntime.CoordinatorState)."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from coordinator_core.coordinator.errors import ErrorCode
from coordinator_core.errors import IllegalTransition


class CoordinatorState(StrEnum):
    """What a coordinator does with requests."""

    INITIAL = "INITIAL"
    """Made, nothing loaded yet. The broker became leader -> LOADING."""
    LOADING = "LOADING"
    """The log is read and replayed; requests are answered COORDINATOR_LOAD_IN_PROGRESS.

    All is replayed -> ACTIVE; a record cannot be read or contradicts the state -> FAILED.
    """
    ACTIVE = "ACTIVE"
    """Serves requests. State and log disagree on the next offset -> FAILED, and at once -> LOADING."""
    FAILED = "FAILED"
    """Loading failed; requests are answered NOT_COORDINATOR. Leader again in a later epoch -> LOADING."""
    CLOSED = "CLOSED"
    """Another broker is leader, or the topic is gone. Nothing follows: a later leadership makes a new coordinator."""


VALID_PREVIOUS: Final[Mapping[CoordinatorState, frozenset[CoordinatorState]]] = {
    CoordinatorState.INITIAL: frozenset(),
    CoordinatorState.LOADING: frozenset({CoordinatorState.INITIAL, CoordinatorState.FAILED}),
    CoordinatorState.ACTIVE: frozenset({CoordinatorState.ACTIVE, CoordinatorState.LOADING}),
    CoordinatorState.FAILED: frozenset({CoordinatorState.LOADING, CoordinatorState.ACTIVE}),
    CoordinatorState.CLOSED: frozenset(CoordinatorState),
}
"""New state -> the states it may follow."""

REFUSAL: Final[Mapping[CoordinatorState, ErrorCode]] = {
    CoordinatorState.INITIAL: ErrorCode.NOT_COORDINATOR,
    CoordinatorState.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    CoordinatorState.FAILED: ErrorCode.NOT_COORDINATOR,
    CoordinatorState.CLOSED: ErrorCode.NOT_COORDINATOR,
}
"""What a request is answered in each state but ACTIVE (withActiveContextOrThrow)."""


def check_transition(before: CoordinatorState, after: CoordinatorState) -> None:
    """Raises IllegalTransition unless `after` may follow `before`."""
    if before not in VALID_PREVIOUS[after]:
        raise IllegalTransition(f"{before} -> {after}")
