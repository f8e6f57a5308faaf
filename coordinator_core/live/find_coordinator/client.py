"""How a client finds the coordinator of its key: ask, wait, ask again (AbstractCoordinator.ensureCoordinatorReady).

A pure state machine: `step(lookup, event)` returns the next state and the actions. Time and randomness are part of the
events. The states, with their transitions:

* UNKNOWN: no broker is asked yet, or again after `not_before_ms`. `Poll` -> FINDING.
* FINDING: a broker is asked. It names a coordinator -> KNOWN; it cannot, or does not answer -> UNKNOWN, with backoff
  and new metadata; a fatal error -> FAILED.
* KNOWN: the coordinator serves. It is no longer the coordinator, or the connection breaks (`Lost`) -> UNKNOWN.
* FAILED: an error that retries do not fix. `Restarted` -> UNKNOWN.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from coordinator_core.errors import IllegalEvent
from coordinator_core.live.find_coordinator.broker import Coordinator, FindCoordinatorRequest, Node
from schemas.error_codes import ErrorCode

RETRY_BACKOFF_MS: Final = 100
"""`retry.backoff.ms` of a consumer by default."""
RETRY_BACKOFF_MAX_MS: Final = 1000
"""`retry.backoff.max.ms`."""
RETRY_BACKOFF_BASE: Final = 2
RETRY_BACKOFF_JITTER: Final = 0.2

RETRIABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors of FindCoordinator that are a RetriableException in Kafka's clients."""


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """Waits that grow with each attempt, with jitter (ExponentialBackoff, KIP-580)."""

    initial_ms: int = RETRY_BACKOFF_MS
    max_ms: int = RETRY_BACKOFF_MAX_MS
    base: int = RETRY_BACKOFF_BASE
    jitter: float = RETRY_BACKOFF_JITTER

    def backoff_ms(self, attempts: int, random: float) -> int:
        """The wait after this many earlier failed attempts. `random` is drawn uniformly from [0, 1).

        A wait that cannot grow has no jitter either, as in Kafka.
        """
        initial_ms = min(self.initial_ms, self.max_ms)
        if self.max_ms <= self.initial_ms:
            return initial_ms
        exponent = min(attempts, math.log(self.max_ms / max(self.initial_ms, 1)) / math.log(self.base))
        factor = 1 - self.jitter + 2 * self.jitter * random
        return min(int(factor * initial_ms * self.base**exponent), self.max_ms)


class NodeLoad(NamedTuple):
    """State of a client's connection to a broker."""

    node_id: int
    in_flight_count: int = 0
    is_ready: bool = True
    """Connected, with room for one more request in flight."""
    is_connecting: bool = False
    may_connect: bool = True
    """Not connected, and the backoff after the last attempt is over."""
    last_attempt_ms: int = 0
    """Time of the last connection attempt."""


def least_loaded_node(nodes: Sequence[NodeLoad], random: float) -> int | None:
    """The broker to ask if any will do; None if none is reachable (NetworkClient.leastLoadedNode).

    In a round from a random start: the first idle connection, else the one with the fewest requests, else one that is
    connecting (the last one found), else the broker with the oldest attempt. `random` is drawn from [0, 1).
    """
    start = int(random * len(nodes))
    ready: NodeLoad | None = None
    connecting: NodeLoad | None = None
    connectable: NodeLoad | None = None
    for node in (*nodes[start:], *nodes[:start]):
        if node.is_ready:
            if node.in_flight_count == 0:
                return node.node_id
            if ready is None or node.in_flight_count < ready.in_flight_count:
                ready = node
        elif node.is_connecting:
            connecting = node
        elif node.may_connect and (connectable is None or node.last_attempt_ms < connectable.last_attempt_ms):
            connectable = node
    chosen = ready or connecting or connectable
    return None if chosen is None else chosen.node_id


class LookupState(StrEnum):
    UNKNOWN = "UNKNOWN"
    FINDING = "FINDING"
    KNOWN = "KNOWN"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Lookup:
    """A client's state for the coordinator of one key."""

    key_type: int
    key: str
    state: LookupState = LookupState.UNKNOWN
    coordinator: Node | None = None
    attempts: int = 0
    """Failed attempts since the coordinator was last known."""
    not_before_ms: int = 0
    """Earliest time of the next request."""
    error_code: ErrorCode = ErrorCode.NONE
    backoff: ExponentialBackoff = ExponentialBackoff()


@dataclass(frozen=True, slots=True)
class Poll:
    """The client can send a request. `nodes`: the brokers of its metadata."""

    now_ms: int
    nodes: Sequence[NodeLoad]
    random: float


@dataclass(frozen=True, slots=True)
class Answered:
    """A broker answered FindCoordinator."""

    now_ms: int
    answers: Sequence[Coordinator]
    random: float


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The broker did not answer: a timeout, or a broken connection."""

    now_ms: int
    random: float


@dataclass(frozen=True, slots=True)
class Lost:
    """The coordinator is lost: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, or a broken connection."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class Restarted:
    """The user of the client has seen the failure and continues."""

    now_ms: int


Event = Poll | Answered | Unanswered | Lost | Restarted


@dataclass(frozen=True, slots=True)
class AskBroker:
    node_id: int
    request: FindCoordinatorRequest


@dataclass(frozen=True, slots=True)
class RefreshMetadata:
    """Refresh the cluster's metadata before the next attempt."""


@dataclass(frozen=True, slots=True)
class PollAt:
    """Nothing to do until then; then `Poll`."""

    at_ms: int


Action = AskBroker | RefreshMetadata | PollAt


class LookupTransition(NamedTuple):
    """The next state and the actions for an event."""

    lookup: Lookup
    actions: tuple[Action, ...] = ()


def step(lookup: Lookup, event: Event) -> LookupTransition:
    """The next state, and the client's actions. Raises IllegalEvent for an event that is impossible in this state."""
    function = _TRANSITIONS.get((lookup.state, type(event)))
    if function is None:
        raise IllegalEvent(f"{type(event).__name__} in state {lookup.state}")
    return function(lookup, event)


def _ask(lookup: Lookup, event: Poll) -> LookupTransition:
    if event.now_ms < lookup.not_before_ms:
        return LookupTransition(lookup, (PollAt(lookup.not_before_ms),))
    node_id = least_loaded_node(event.nodes, event.random)
    if node_id is None:
        return _try_again(lookup, ErrorCode.COORDINATOR_NOT_AVAILABLE, event.now_ms, event.random)
    request = FindCoordinatorRequest(lookup.key_type, (lookup.key,))
    return LookupTransition(replace(lookup, state=LookupState.FINDING), (AskBroker(node_id, request),))


def _take_answer(lookup: Lookup, event: Answered) -> LookupTransition:
    answer = next((answer for answer in event.answers if answer.key == lookup.key), None)
    if answer is None:
        return LookupTransition(replace(lookup, state=LookupState.FAILED, error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
    if answer.error_code == ErrorCode.NONE:
        return LookupTransition(
            replace(
                lookup,
                state=LookupState.KNOWN,
                coordinator=answer.node,
                attempts=0,
                error_code=ErrorCode.NONE,
            )
        )
    if answer.error_code in RETRIABLE:
        return _try_again(lookup, answer.error_code, event.now_ms, event.random)
    return LookupTransition(replace(lookup, state=LookupState.FAILED, error_code=answer.error_code))


def _try_again(lookup: Lookup, error_code: ErrorCode, now_ms: int, random: float) -> LookupTransition:
    """Back off, then try again, with new metadata."""
    at_ms = now_ms + lookup.backoff.backoff_ms(lookup.attempts, random)
    lookup = replace(
        lookup,
        state=LookupState.UNKNOWN,
        attempts=lookup.attempts + 1,
        not_before_ms=at_ms,
        error_code=error_code,
    )
    return LookupTransition(lookup, (RefreshMetadata(), PollAt(at_ms)))


def _forget(lookup: Lookup, event: Lost | Restarted) -> LookupTransition:
    """Ask immediately: the backoff restarts with each search."""
    lookup = replace(lookup, state=LookupState.UNKNOWN, coordinator=None, attempts=0, not_before_ms=event.now_ms)
    return LookupTransition(lookup, (PollAt(event.now_ms),))


def _nothing(lookup: Lookup, event: Any) -> LookupTransition:
    return LookupTransition(lookup)


_TRANSITIONS: Final[Mapping[tuple[LookupState, type], Callable[[Lookup, Any], LookupTransition]]] = {
    (LookupState.UNKNOWN, Poll): _ask,
    (LookupState.UNKNOWN, Lost): _nothing,
    (LookupState.FINDING, Poll): _nothing,
    (LookupState.FINDING, Answered): _take_answer,
    (LookupState.FINDING, Unanswered): lambda lookup, event: _try_again(
        lookup, ErrorCode.REQUEST_TIMED_OUT, event.now_ms, event.random
    ),
    (LookupState.FINDING, Lost): _nothing,
    (LookupState.KNOWN, Poll): _nothing,
    (LookupState.KNOWN, Lost): _forget,
    (LookupState.FAILED, Poll): _nothing,
    (LookupState.FAILED, Lost): _nothing,
    (LookupState.FAILED, Restarted): _forget,
}
"""Every possible event in each state."""
