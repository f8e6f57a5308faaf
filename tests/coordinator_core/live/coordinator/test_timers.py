"""Tests of the timers of a coordinator."""

from coordinator_core.live.coordinator.timers import STALE_ENTRIES_MAX, Timers


def due_keys(timers: Timers, now_ms: int) -> list[str]:
    """Keys of the timers which run by then, in order."""
    keys = []
    while (timer := timers.pop_due(now_ms)) is not None:
        keys.append(timer.key)
    return keys


def test_a_key_has_one_timer() -> None:
    """Scheduling again replaces the deadline, the arguments and the place in the order."""
    timers = Timers()
    timers.schedule("k", 10, "run", (1,))
    timers.schedule("other", 20, "run")
    timers.schedule("k", 20, "run", (2,))
    assert len(timers) == 2
    assert timers.pop_due(10) is None
    first, second = timers.pop_due(20), timers.pop_due(20)
    assert first is not None
    assert second is not None
    assert (first.key, second.key, second.arguments) == ("other", "k", (2,))


def test_replaced_timers_do_not_pile_up() -> None:
    """A heartbeat replaces a timer; memory goes by timers, not by heartbeats."""
    timers = Timers()
    for number in range(10 * STALE_ENTRIES_MAX):
        timers.schedule(f"k{number % 3}", 1_000_000 - number, "run")
    assert len(timers._heap) <= 2 * 3 + STALE_ENTRIES_MAX
    assert len(due_keys(timers, 1_000_000)) == 3
    assert len(timers._heap) == 0
