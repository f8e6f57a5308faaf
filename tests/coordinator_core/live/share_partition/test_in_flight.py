"""Locks, batches and the cache of batches, on their own."""

from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.live.share_partition.in_flight import (
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


def test_cancelled_locks_do_not_pile_up() -> None:
    """A member which acknowledges at once leaves a bounded heap behind, however long its locks would run."""
    timers = LockTimers()
    for number in range(10_000):
        timers.cancel(timers.start("m", number, number, 30_000))
    assert len(timers) == 0
    assert len(timers._heap) <= CANCELLED_LOCKS_MIN + 1


@given(st.sets(st.integers(0, 40)), st.integers(-1, 42), st.integers(-1, 42), st.randoms(use_true_random=False))
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
