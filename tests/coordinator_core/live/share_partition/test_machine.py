"""Random lives of a share partition, Kafka's own traces, and faults which one of the two must find."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from coordinator_core.live.share_partition import acknowledge, acquire
from coordinator_core.live.share_partition.errors import InvalidRecordState, SharePartitionError
from coordinator_core.live.share_partition.in_flight import (
    ACQUIRED,
    AcquisitionLock,
    InFlightBatch,
    InFlightState,
    LockTimers,
)
from coordinator_core.live.share_partition.state import SharePartition
from coordinator_core.live.share_partition.states import TERMINAL
from tests.conformance.families import share_partition
from tests.coordinator_core.live.share_partition.machine import SharePartitionMachine
from tests.lengths import takes_minutes

TRACE = Path(__file__).parents[3] / "data" / "traces" / "share_partition.jsonl.gz"

Patch = pytest.MonkeyPatch

STEP_COUNT = 50


def live_at_random(base: settings, **more: Any) -> None:
    """Random lives by the profile of hypothesis; the first fault ends them."""
    run_state_machine_as_test(
        SharePartitionMachine,
        settings=settings(
            base,
            stateful_step_count=STEP_COUNT,
            database=None,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            **more,
        ),
    )


def test_share_partition_agrees_with_kafka() -> None:
    """Every step of Kafka's own trace gives the same result, writes, answers and state."""
    assert share_partition.run(TRACE) == (250, 250, [])


def test_invariants_hold_at_random() -> None:
    """What `machine.py` lists holds after every command, whatever comes."""
    live_at_random(settings())


# --- faults ---


def forget_the_delivery_limit(patch: Patch) -> None:
    right = InFlightState.transition_to
    patch.setattr(InFlightState, "transition_to", lambda state, asked, limit, up: right(state, asked, limit + 1, up))


def forget_the_member(patch: Patch) -> None:
    def check(state: InFlightState, member_id: str) -> None:
        if state.state is not ACQUIRED:
            raise InvalidRecordState("not acquired")

    patch.setattr(acknowledge, "_check_holder", check)


def do_not_look_for_what_a_lock_gave_back(patch: Patch) -> None:
    right: Callable[..., None] = acknowledge._time_out

    def time_out(partition: SharePartition, *rest: Any) -> None:
        before = partition.find_next_fetch_offset
        right(partition, *rest)
        partition.find_next_fetch_offset = before

    patch.setattr(acknowledge, "_time_out", time_out)


def forget_the_in_flight_limit(patch: Patch) -> None:
    patch.setattr(acquire._Acquisition, "_set_limits", lambda request, most: setattr(request, "limit", most))


def leave_locks_running(patch: Patch) -> None:
    patch.setattr(LockTimers, "cancel", lambda timers, lock: None)


def keep_the_count_of_what_is_rolled_back(patch: Patch) -> None:
    right: Callable[..., None] = acknowledge._roll_back

    def roll_back(partition: SharePartition, changes: Any) -> None:
        before = partition.delivery_complete_count
        right(partition, changes)
        partition.delivery_complete_count = before

    patch.setattr(acknowledge, "_roll_back", roll_back)


def settle_before_the_write_has_its_result(patch: Patch) -> None:
    patch.setattr(InFlightState, "is_settled", property(lambda state: state.state in TERMINAL))


def lose_changes_which_are_under_way_in_a_split(patch: Patch) -> None:
    """What Kafka 4.3.1 does."""
    right = InFlightBatch.split

    def split(batch: InFlightBatch, timers: LockTimers) -> list[InFlightState]:
        is_new = batch.offsets is None
        offsets = right(batch, timers)
        for state in offsets if is_new else ():
            state.rollback = None
        return offsets

    patch.setattr(InFlightBatch, "split", split)


def give_back_to_a_member_whose_lock_ran_out(patch: Patch) -> None:
    def roll_back(state: InFlightState, limit: int, timers: LockTimers) -> None:
        before, state.rollback = state.rollback, None
        if before is not None and not state.is_archived_silently:
            state.state, state.member_id = before

    patch.setattr(InFlightState, "roll_back", roll_back)


def bring_back_what_was_archived(patch: Patch) -> None:
    right = InFlightState.archive

    def archive(state: InFlightState, timers: LockTimers) -> None:
        right(state, timers)
        state.is_archived_silently = False

    patch.setattr(InFlightState, "archive", archive)


def leave_the_gap_window_as_it_is(patch: Patch) -> None:
    patch.setattr(acquire._Acquisition, "_move_gap_window", lambda request, offset: None)


def never_throttle(patch: Patch) -> None:
    patch.setattr(acquire._Acquisition, "_is_throttled", lambda request, batch: False)


def let_the_youngest_lock_run_out_first(patch: Patch) -> None:
    right = LockTimers.start

    def start(timers: LockTimers, member_id: str, first: int, last: int, deadline_ms: int) -> AcquisitionLock:
        timers._created_count -= 2
        return right(timers, member_id, first, last, deadline_ms)

    patch.setattr(LockTimers, "start", start)


BY_INVARIANTS = [
    forget_the_delivery_limit,
    do_not_look_for_what_a_lock_gave_back,
    forget_the_in_flight_limit,
    leave_locks_running,
    keep_the_count_of_what_is_rolled_back,
    settle_before_the_write_has_its_result,
    give_back_to_a_member_whose_lock_ran_out,
    # Kafka's trace holds nothing of these two: the first is Kafka's own fault.
    lose_changes_which_are_under_way_in_a_split,
    bring_back_what_was_archived,
]
BY_TRACES = [
    *BY_INVARIANTS[:-2],
    forget_the_member,
    leave_the_gap_window_as_it_is,
    never_throttle,
    let_the_youngest_lock_run_out_first,
]


@pytest.mark.nights
@pytest.mark.parametrize(
    "fault",
    [*BY_INVARIANTS[:-1], pytest.param(BY_INVARIANTS[-1], marks=takes_minutes)],
    ids=lambda fault: fault.__name__,
)
def test_invariants_find_the_fault(fault: Callable[[Patch], None], monkeypatch: Patch) -> None:
    """A share partition with the fault breaks an invariant, or cannot go on."""
    fault(monkeypatch)
    with pytest.raises((AssertionError, SharePartitionError)):
        live_at_random(settings.get_profile("deterministic"), max_examples=2_000, phases=[Phase.generate])


@pytest.mark.parametrize("fault", BY_TRACES, ids=lambda fault: fault.__name__)
def test_traces_find_the_fault(fault: Callable[[Patch], None], monkeypatch: Patch) -> None:
    """A share partition with the fault differs from Kafka's somewhere in the trace."""
    fault(monkeypatch)
    cases, passed, failures = share_partition.run(TRACE)
    assert cases == 250
    assert passed < cases
    assert len(failures) == cases - passed
