"""Locks, batches and the cache of batches, on their own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.live.share_partition.in_flight import (
    ACQUIRED,
    AVAILABLE,
    CANCELLED_LOCKS_MIN,
    NO_MEMBER,
    CachedState,
    InFlightBatch,
    InFlightState,
    LockTimers,
)
from coordinator_core.live.share_partition.states import RecordState


def batch_of(first_offset: int, last_offset: int, state: RecordState = AVAILABLE) -> InFlightBatch:
    return InFlightBatch(first_offset, last_offset, InFlightState(state, 1, NO_MEMBER))


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=300))
def test_locks_run_out_by_deadline_and_then_by_age(entries: list[tuple[int, bool]]) -> None:
    """Whatever is cancelled in between, the others come out sorted, and only they are counted."""
    timers = LockTimers()
    locks = [(timers.start("m", number, number, deadline), ends) for number, (deadline, ends) in enumerate(entries)]
    for lock, is_cancelled in locks:
        if is_cancelled:
            timers.cancel(lock)
            timers.cancel(lock)
    kept = sorted((lock.deadline_ms, lock.first_offset) for lock, is_cancelled in locks if not is_cancelled)
    assert len(timers) == len(kept)
    out = []
    while (due := timers.pop_due(20)) is not None:
        assert due.has_expired
        out.append((due.deadline_ms, due.first_offset))
    assert out == kept
    assert timers.next_deadline_ms() is None


def test_a_lock_is_not_due_before_its_deadline() -> None:
    """At the deadline, not a millisecond before."""
    timers = LockTimers()
    lock = timers.start("m", 0, 9, 100)
    assert timers.pop_due(99) is None
    assert not lock.has_expired
    assert timers.pop_due(100) is lock


def test_cancelled_locks_do_not_pile_up() -> None:
    """A member which acknowledges at once leaves a bounded heap behind, however long its locks would run."""
    timers = LockTimers()
    for number in range(10_000):
        timers.cancel(timers.start("m", number, number, 30_000))
    assert len(timers) == 0
    assert len(timers._heap) <= CANCELLED_LOCKS_MIN + 1


def test_a_lock_which_ran_out_can_be_cancelled() -> None:
    """It is gone from the timers by then, and the count of the others stays right."""
    timers = LockTimers()
    first, _ = timers.start("m", 0, 0, 1), timers.start("m", 1, 1, 2)
    assert timers.pop_due(1) is first
    timers.cancel(first)
    assert len(timers) == 1
    assert timers.next_deadline_ms() == 2


def test_split_gives_each_offset_the_lock_of_the_batch() -> None:
    """Same state, count, member and deadline; the lock of the batch has ended."""
    timers = LockTimers()
    batch = batch_of(10, 12, ACQUIRED)
    assert batch.whole is not None
    batch.whole.member_id = "m"
    batch.whole.lock = lock = timers.start("m", 10, 12, 500)
    offsets = batch.split(timers)
    assert [(state.state, state.delivery_count, state.member_id) for state in offsets] == [(ACQUIRED, 1, "m")] * 3
    assert [state.lock and (state.lock.first_offset, state.lock.deadline_ms) for state in offsets] == [
        (10, 500),
        (11, 500),
        (12, 500),
    ]
    assert lock.is_cancelled
    assert len(timers) == 3
    assert batch.split(timers) is offsets
    assert batch.whole is None


@pytest.mark.parametrize("is_split", [False, True])
def test_settled_offsets_are_counted_from_the_first_on(is_split: bool) -> None:
    """Final ones whose write is done; the first other ends the count."""
    timers = LockTimers()
    batch = batch_of(0, 2, ACQUIRED)
    if not is_split:
        assert batch.whole is not None
        assert batch.settled_count() == 0
        batch.whole.start_transition(RecordState.ACKNOWLEDGED, 5)
        assert batch.settled_count() == 0
        batch.whole.commit(timers)
        assert batch.settled_count() == 3
        return
    first, second, third = batch.split(timers)
    third.transition_to(RecordState.ARCHIVED, 5)
    assert batch.settled_count() == 0
    first.transition_to(RecordState.ACKNOWLEDGED, 5)
    assert batch.settled_count() == 1
    second.start_transition(RecordState.ACKNOWLEDGED, 5)
    assert batch.settled_count() == 1
    second.commit(timers)
    assert batch.settled_count() == 3


@given(
    st.sets(st.integers(0, 40)),
    st.integers(-1, 42),
    st.integers(-1, 42),
    st.randoms(use_true_random=False),
)
def test_cache_answers_as_a_sorted_list(tens: set[int], low: int, high: int, order: object) -> None:
    """Floor, next, range and removal agree with a plain search, in whatever order the batches came."""
    arrivals = sorted(tens)
    order.shuffle(arrivals)  # type: ignore[attr-defined]
    cached = CachedState()
    for ten in arrivals:
        cached.add(batch_of(ten * 10, ten * 10 + 4))
    offsets = [ten * 10 for ten in sorted(tens)]
    low, high = low * 10 + 3, high * 10 + 3
    assert [batch.first_offset for batch in cached] == offsets
    assert len(cached) == len(offsets)
    floor = cached.floor(low)
    assert (floor and floor.first_offset) == max((o for o in offsets if o <= low), default=None)
    assert cached.next_first_offset(low) == min((o for o in offsets if o > low), default=None)
    assert [b.first_offset for b in cached.between(low, high)] == [o for o in offsets if low <= o <= high]
    cached.drop_before(low)
    assert [batch.first_offset for batch in cached] == [o for o in offsets if o >= low]
    cached.clear()
    assert len(cached) == 0
