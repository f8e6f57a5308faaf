"""Tests of how a client finds its coordinator."""

import itertools
from typing import NamedTuple

import pytest

from coordinator_core.errors import IllegalEvent
from coordinator_core.live.find_coordinator.broker import NO_NODE, Coordinator, Node
from coordinator_core.live.find_coordinator.client import (
    Answered,
    AskBroker,
    Event,
    ExponentialBackoff,
    Lookup,
    LookupState,
    Lost,
    NodeLoad,
    Poll,
    PollAt,
    RefreshMetadata,
    Restarted,
    Unanswered,
    least_loaded_node,
    step,
)
from schemas.error_codes import ErrorCode

NODES = (NodeLoad(1, 2), NodeLoad(2, 1), NodeLoad(3, 3))
HALF = 0.5
LOOKUP = Lookup(0, "g")
FOUND = Coordinator("g", Node(2, "b2", 9092))


def refused(code: ErrorCode) -> Answered:
    """An answer with an error, at 1000."""
    return Answered(1000, (Coordinator("g", NO_NODE, code),), HALF)


def after(*events: Event) -> Lookup:
    """The state after these events."""
    lookup = LOOKUP
    for event in events:
        lookup = step(lookup, event).lookup
    return lookup


def test_the_least_loaded_broker_is_asked_for_the_one_key() -> None:
    """And only it: while it is asked nothing more is sent."""
    lookup, (ask,) = step(LOOKUP, Poll(0, NODES, HALF))
    assert isinstance(ask, AskBroker)
    assert (ask.node_id, ask.request.key_type, ask.request.keys) == (2, 0, ("g",))
    assert lookup.state is LookupState.FINDING
    assert step(lookup, Poll(1, NODES, HALF)) == (lookup, ())


def test_a_coordinator_is_kept_until_it_is_lost() -> None:
    """Then the search begins at once, without back-off."""
    known = after(Poll(0, NODES, HALF), Answered(5, (FOUND,), HALF))
    assert (known.state, known.coordinator) == (LookupState.KNOWN, FOUND.node)
    assert step(known, Poll(6, NODES, HALF)) == (known, ())
    lookup, actions = step(known, Lost(50))
    assert (lookup.state, lookup.coordinator, actions) == (LookupState.UNKNOWN, None, (PollAt(50),))
    assert step(lookup, Poll(50, NODES, HALF)).lookup.state is LookupState.FINDING


@pytest.mark.parametrize(
    "code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]
)
def test_after_an_error_that_may_pass_the_client_waits_and_refreshes_metadata(code: ErrorCode) -> None:
    """The waits double up to a second; half the jitter is none."""
    lookup, waits = LOOKUP, []
    for _ in range(6):
        lookup = step(lookup, Poll(lookup.not_before_ms, NODES, HALF)).lookup
        lookup, actions = step(lookup, Answered(1000, (Coordinator("g", NO_NODE, code),), HALF))
        assert actions == (RefreshMetadata(), PollAt(lookup.not_before_ms))
        assert lookup.error_code == code
        waits.append(lookup.not_before_ms - 1000)
    assert waits == [100, 200, 400, 800, 1000, 1000]


def test_before_the_back_off_is_over_nobody_is_asked() -> None:
    """A poll which comes early learns when to come."""
    lookup = after(Poll(0, NODES, HALF), refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert step(lookup, Poll(1099, NODES, HALF)) == (lookup, (PollAt(1100),))
    assert step(lookup, Poll(1100, NODES, HALF)).lookup.state is LookupState.FINDING


def test_the_back_off_begins_again_once_a_coordinator_was_found() -> None:
    """What failed before does not count in the next search."""
    lookup = after(
        Poll(0, NODES, HALF),
        refused(ErrorCode.COORDINATOR_NOT_AVAILABLE),
        Poll(2000, NODES, HALF),
        Answered(2001, (FOUND,), HALF),
        Lost(3000),
        Poll(3000, NODES, HALF),
        Unanswered(3001, HALF),
    )
    assert (lookup.not_before_ms, lookup.error_code) == (3101, ErrorCode.REQUEST_TIMED_OUT)


@pytest.mark.parametrize(
    "answer",
    [refused(ErrorCode.INVALID_REQUEST), refused(ErrorCode.UNSUPPORTED_VERSION), Answered(1, (), HALF)],
    ids=["bad key", "old broker", "no answer for the key"],
)
def test_other_errors_end_the_search(answer: Answered) -> None:
    """Until the client's user restarts it."""
    lookup = after(Poll(0, NODES, HALF), answer)
    assert lookup.state is LookupState.FAILED
    assert lookup.error_code != ErrorCode.NONE
    assert step(lookup, Poll(9, NODES, HALF)) == (lookup, ())
    assert step(lookup, Restarted(9)).lookup.state is LookupState.UNKNOWN


def test_without_a_broker_to_ask_the_client_backs_off() -> None:
    """As after an error which may pass."""
    lookup, actions = step(LOOKUP, Poll(10, (), HALF))
    assert (lookup.state, actions) == (LookupState.UNKNOWN, (RefreshMetadata(), PollAt(110)))


def test_events_which_cannot_come_change_nothing() -> None:
    """An answer without a question, or news of what is not known, is a fault of the driver."""
    events: tuple[Event, ...] = (Answered(5, (FOUND,), HALF), Unanswered(5, HALF), Restarted(5))
    known = after(Poll(0, NODES, HALF), Answered(5, (FOUND,), HALF))
    for lookup, event in itertools.product((LOOKUP, known), events):
        with pytest.raises(IllegalEvent):
            step(lookup, event)


class LoadCase(NamedTuple):
    """Connections of a client, and whom it asks."""

    name: str
    nodes: tuple[NodeLoad, ...]
    random: float
    expected: int | None


READY = NodeLoad(1, 5)
IDLE = NodeLoad(2, 0)


@pytest.mark.parametrize(
    "case",
    [
        LoadCase("nobody", (), 0.9, None),
        LoadCase("an idle one before a busy one", (READY, IDLE), 0.0, 2),
        LoadCase("the first idle one from the start on", (NodeLoad(1), NodeLoad(2), NodeLoad(3)), 0.4, 2),
        LoadCase("the first of equally busy ones, going round", (NodeLoad(1, 4), NodeLoad(2, 4)), 0.5, 2),
        LoadCase(
            "a busy one before one that is connecting",
            (NodeLoad(1, is_ready=False, is_connecting=True), NodeLoad(2, 9)),
            0.0,
            2,
        ),
        LoadCase(
            "the last that is connecting",
            tuple(NodeLoad(number, is_ready=False, is_connecting=True) for number in (1, 2)),
            0.0,
            2,
        ),
        LoadCase(
            "the longest untried",
            (
                NodeLoad(1, is_ready=False, last_attempt_ms=9),
                NodeLoad(2, is_ready=False, last_attempt_ms=3),
                NodeLoad(3, is_ready=False, may_connect=False),
            ),
            0.0,
            2,
        ),
        LoadCase("none of those in back-off", (NodeLoad(1, is_ready=False, may_connect=False),), 0.0, None),
    ],
    ids=lambda case: case.name,
)
def test_least_loaded_node(case: LoadCase) -> None:
    """Idle, then least busy, then connecting, then the longest untried."""
    assert least_loaded_node(case.nodes, case.random) == case.expected


@pytest.mark.parametrize(
    ("attempts", "random", "expected_ms"),
    [(0, 0.0, 80), (0, 0.5, 100), (0, 0.999999, 119), (1, 0.5, 200), (3, 0.0, 640), (4, 0.0, 800), (90, 0.999, 1000)],
)
def test_exponential_backoff(attempts: int, random: float, expected_ms: int) -> None:
    """A fifth more or less than 100 ms doubled for each try, and never above a second."""
    assert ExponentialBackoff().backoff_ms(attempts, random) == expected_ms


def test_a_back_off_that_cannot_grow_has_no_jitter() -> None:
    """Kafka gives the initial wait as it is, bounded by the largest one."""
    assert ExponentialBackoff(500, 500).backoff_ms(7, 0.9) == 500
    assert ExponentialBackoff(500, 200).backoff_ms(7, 0.9) == 200
