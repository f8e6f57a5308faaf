"""The event loop: order, ranks, and the end."""

from simulator.simulation.clock import EventLoop


def test_events_run_by_time_then_rank_then_order_of_scheduling() -> None:
    """Heartbeats of one millisecond come after all else of it."""
    loop = EventLoop(0)
    ran: list[str] = []
    loop.at(5, ran.append, "heartbeat", rank=3)
    loop.at(5, ran.append, "first")
    loop.at(2, lambda: loop.after(3, ran.append, "last"))
    loop.at(5, ran.append, "other heartbeat", rank=2)
    loop.run_until(6)
    assert ran == ["first", "last", "other heartbeat", "heartbeat"]
    assert loop.now_ms == 6


def test_what_is_past_runs_now_and_what_is_later_does_not() -> None:
    """Time never goes back; the end is exclusive."""
    loop = EventLoop(10)
    ran: list[int] = []
    loop.at(3, lambda: ran.append(loop.now_ms))
    loop.at(20, ran.append, 20)
    loop.run_until(20)
    assert ran == [10]
