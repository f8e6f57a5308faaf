"""The tables of transitions: what they allow, and that the rest raises and changes nothing."""

import pytest

from coordinator_core.live.share_partition.errors import IllegalTransition, NotInitialized
from coordinator_core.live.share_partition.in_flight import NO_MEMBER, InFlightState, LockTimers
from coordinator_core.live.share_partition.initialize import (
    begin_initialization,
    complete_initialization,
    fail_initialization,
    fence,
)
from coordinator_core.live.share_partition.state import ReadState, SharePartition, SharePartitionConfig
from coordinator_core.live.share_partition.states import (
    ACKNOWLEDGED_STATE,
    TERMINAL,
    VALID_PREVIOUS,
    AcknowledgeType,
    RecordState,
    SharePartitionState,
    check_transition,
)

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = RecordState
LEGAL = {
    (AVAILABLE, ACQUIRED),
    (ACQUIRED, AVAILABLE),
    (ACQUIRED, ACKNOWLEDGED),
    (ACQUIRED, ARCHIVING),
    (ACQUIRED, ARCHIVED),
    (ARCHIVING, ARCHIVED),
}


@pytest.mark.parametrize("previous", RecordState)
@pytest.mark.parametrize("following", RecordState)
def test_transition_is_legal_only_as_kafka_has_it(previous: RecordState, following: RecordState) -> None:
    """Six transitions are legal and nineteen are not."""
    if (previous, following) in LEGAL:
        check_transition(previous, following)
    else:
        with pytest.raises(IllegalTransition, match=f"{previous.name} -> {following.name}"):
            check_transition(previous, following)


def test_every_acknowledgement_but_renewal_asks_for_a_state_which_may_follow_acquired() -> None:
    """The types map into the table, and RENEW alone asks for no state."""
    assert set(ACKNOWLEDGED_STATE) == set(AcknowledgeType) - {AcknowledgeType.RENEW}
    assert all(ACQUIRED in VALID_PREVIOUS[state] for state in ACKNOWLEDGED_STATE.values())


def picture(state: InFlightState) -> tuple[object, ...]:
    return state.state, state.delivery_count, state.member_id, state.rollback, state.lock, state.is_archived_silently


@pytest.mark.parametrize("before", [AVAILABLE, ACKNOWLEDGED, ARCHIVED])
@pytest.mark.parametrize("asked", [AVAILABLE, ACKNOWLEDGED, ARCHIVED])
def test_only_acquired_records_are_given_up(before: RecordState, asked: RecordState) -> None:
    """Giving up anything else raises and changes nothing, also where the change would be under way."""
    state = InFlightState(before, 1, NO_MEMBER)
    unchanged = picture(state)
    for change in (state.transition_to, state.start_transition):
        with pytest.raises(IllegalTransition):
            change(asked, 5)
        assert picture(state) == unchanged


@pytest.mark.parametrize("asked", [AVAILABLE, ACKNOWLEDGED, ARCHIVED])
def test_no_change_begins_while_another_is_under_way(asked: RecordState) -> None:
    """Neither acquiring nor giving up is possible until the write has its result."""
    state = InFlightState(ACQUIRED, 1, "m")
    state.start_transition(asked, 5)
    unchanged = picture(state)
    with pytest.raises(IllegalTransition):
        state.acquire("other")
    with pytest.raises(IllegalTransition):
        state.transition_to(ACKNOWLEDGED, 5)
    assert picture(state) == unchanged
    assert state.is_under_way


@pytest.mark.parametrize("is_committed", [True, False])
def test_nothing_ends_which_is_not_under_way(is_committed: bool) -> None:
    """Commit and roll-back need a change which is under way."""
    state = InFlightState(ACQUIRED, 1, "m")
    unchanged = picture(state)
    with pytest.raises(IllegalTransition):
        if is_committed:
            state.commit(LockTimers())
        else:
            state.roll_back(5, LockTimers())
    assert picture(state) == unchanged


@pytest.mark.parametrize("before", sorted(TERMINAL))
def test_final_records_are_not_archived(before: RecordState) -> None:
    """Archiving in memory takes records out of delivery; what is final is out already."""
    state = InFlightState(before, 1, NO_MEMBER)
    unchanged = picture(state)
    with pytest.raises(IllegalTransition):
        state.archive(LockTimers())
    assert picture(state) == unchanged


def make(*commands: str) -> SharePartition:
    partition = SharePartition(SharePartitionConfig())
    for command in commands:
        STEPS[command](partition)
    return partition


STEPS = {
    "begin": begin_initialization,
    "start": lambda partition: complete_initialization(partition, ReadState(0, 0)),
    "fail": fail_initialization,
    "fence": fence,
}
STATES = {
    SharePartitionState.EMPTY: (),
    SharePartitionState.INITIALIZING: ("begin",),
    SharePartitionState.ACTIVE: ("begin", "start"),
    SharePartitionState.FAILED: ("begin", "fail"),
    SharePartitionState.FENCED: ("begin", "start", "fence"),
}


@pytest.mark.parametrize("state", SharePartitionState)
@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        ("begin", {SharePartitionState.EMPTY, SharePartitionState.ACTIVE}),
        ("start", {SharePartitionState.INITIALIZING}),
        ("fail", {SharePartitionState.INITIALIZING}),
        ("fence", set(SharePartitionState)),
    ],
)
def test_start_up_happens_once(state: SharePartitionState, command: str, allowed: set[SharePartitionState]) -> None:
    """Each command of the start-up is possible in its states, raises in the others, and changes nothing there."""
    partition = make(*STATES[state])
    assert partition.partition_state is state
    if state in allowed:
        STEPS[command](partition)
    else:
        with pytest.raises(NotInitialized):
            STEPS[command](partition)
        assert partition.partition_state is state
