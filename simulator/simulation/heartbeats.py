"""Heartbeats, and how to leave out those that change nothing.

A member whose last heartbeat was answered without error, in a group that is quiet, is *parked*: its heartbeats are
known to arrive at `first_ms + k * interval_ms + latency_ms`, and each would only restart its session. So its session
timer is taken out of the coordinator (parked), and no heartbeat is sent. Before any request reads or changes the group,
and before the member itself changes, it is unparked: the timer is restored with the deadline that the last heartbeat
gave it, heartbeats under way arrive, and later ones are sent.

Heartbeats that arrive at the same time do so in the order of the clients, and after all other actions of that time:
otherwise a run that leaves them out could not know the order in a run that does not.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from coordinator_core.live.coordinator.operation import Context
from coordinator_core.live.coordinator.shard import GroupCoordinator
from coordinator_core.live.coordinator.timers import Timer
from coordinator_core.live.share.heartbeat import is_settled
from coordinator_core.replay.share.state import ShareGroup
from simulator.simulation.clock import EventLoop

STABLE: Final = "Stable"
"""The state of a classic, consumer or streams group in which nobody joins or reconciles."""


class Sender(Protocol):
    """A process that sends heartbeats."""

    rank: int
    group_id: str
    latency_ms: int
    repeats_until_ms: int
    """Until then its heartbeats count, since they are repeated."""

    def session_key(self) -> str:
        """The key of its session timer."""

    def heartbeat(self) -> Any:
        """The heartbeat that it would send now."""

    def heartbeat_arrives(self, send: Any) -> None:
        """A heartbeat arrives at its coordinator."""

    def heartbeats_skipped(self, send: Any, times_ms: range) -> None:
        """Heartbeats that would have arrived at these times were not sent."""


def is_quiet(coordinator: GroupCoordinator, group_id: str) -> bool:
    """Whether heartbeats without news from members change nothing."""
    group = coordinator.group(group_id)
    if isinstance(group, ShareGroup):
        return is_settled(Context(coordinator, 0), group)
    return group is not None and group.state == STABLE


@dataclass(slots=True)
class Heartbeat:
    """The heartbeats of one process. `next_ms`: when the next one is due to be sent."""

    process: Sender
    interval_ms: int
    next_ms: int
    token: int = 0
    """Incremented when the scheduled sending becomes void."""
    parked: Timer | None = None
    """The session timer, while the member is parked."""
    signed_ms: int = 0
    """The arrival time of the request that set the parked timer."""
    request: Any = None
    """The heartbeat that it would send while it is parked."""


class Heartbeats:
    def __init__(
        self,
        loop: EventLoop,
        coordinator_of: Callable[[str], GroupCoordinator | None],
        on_timer_set: Callable[[str], None],
        *,
        skips: bool,
    ) -> None:
        """`on_timer_set` is called with the group whose coordinator got a timer back."""
        self._loop = loop
        self._coordinator_of = coordinator_of
        self._on_timer_set = on_timer_set
        self._skips = skips
        self._heartbeats: dict[int, Heartbeat] = {}
        """Rank of the process -> its heartbeats."""
        self._parked: dict[str, dict[int, Heartbeat]] = {}
        """Group id -> parked heartbeats by rank."""
        self.sent_count = 0
        self.skipped_count = 0

    def start(self, process: Sender, interval_ms: int, first_ms: int | None = None) -> None:
        """Send a heartbeat every `interval_ms` from now on, the first at `first_ms`; interval 0: none."""
        self.stop(process)
        if interval_ms:
            first_ms = self._loop.now_ms + interval_ms if first_ms is None else first_ms
            heartbeat = Heartbeat(process, interval_ms, first_ms)
            self._heartbeats[process.rank] = heartbeat
            self._schedule(heartbeat)

    def stop(self, process: Sender) -> int:
        """Send no more heartbeats; returns the interval so far, 0 if there was none."""
        self.wake_one(process)
        heartbeat = self._heartbeats.pop(process.rank, None)
        if heartbeat is None:
            return 0
        heartbeat.token += 1
        return heartbeat.interval_ms

    def answered(self, process: Sender) -> None:
        """The answer to a heartbeat had no error: the process may be parked."""
        heartbeat = self._heartbeats.get(process.rank)
        if heartbeat is None or not self._skips or heartbeat.parked is not None:
            return
        if self._loop.now_ms < process.repeats_until_ms:
            return
        if heartbeat.next_ms - heartbeat.interval_ms == self._loop.now_ms and process.latency_ms:
            return  # its interval is new with this answer
        coordinator = self._coordinator_of(process.group_id)
        if coordinator is None or not is_quiet(coordinator, process.group_id):
            return
        timer = self._take(process.group_id, process.session_key())
        if timer is None:
            return
        heartbeat.parked = timer
        heartbeat.request = process.heartbeat()
        heartbeat.signed_ms = heartbeat.next_ms - heartbeat.interval_ms + process.latency_ms
        heartbeat.token += 1
        self._parked.setdefault(process.group_id, {})[process.rank] = heartbeat

    def _take(self, group_id: str, key: str) -> Timer | None:
        """Take a session timer out of its coordinator."""
        coordinator = self._coordinator_of(group_id)
        if coordinator is None:
            return None
        timer = coordinator.timers.get(key)
        coordinator.timers.cancel(key)
        return timer

    def signed(self, process: Sender) -> None:
        """The commit of a parked process has set its session timer: park that timer now."""
        heartbeat = self._heartbeats.get(process.rank)
        if heartbeat is None or heartbeat.parked is None:
            return
        timer = self._take(process.group_id, heartbeat.parked.key)
        if timer is not None:
            heartbeat.signed_ms += timer.deadline_ms - heartbeat.parked.deadline_ms
            heartbeat.parked = timer

    def wake(self, group_id: str) -> None:
        """A request is about to use the group: its parked members send heartbeats again."""
        sleepers = self._parked.pop(group_id, None)
        if sleepers is not None:
            for heartbeat in sorted(
                sleepers.values(), key=lambda heartbeat: (self._last_sign_ms(heartbeat), heartbeat.process.rank)
            ):
                self._rouse(heartbeat)

    def wake_one(self, process: Sender) -> None:
        """The process itself is about to change."""
        heartbeat = self._heartbeats.get(process.rank)
        if heartbeat is None or heartbeat.parked is None:
            return
        sleepers = self._parked[process.group_id]
        del sleepers[process.rank]
        if not sleepers:
            del self._parked[process.group_id]
        self._rouse(heartbeat)

    def wake_where(self, is_wanted: Callable[[str], bool]) -> None:
        """Wake the wanted groups, in the order of their ids."""
        for group_id in sorted(filter(is_wanted, self._parked)):
            self.wake(group_id)

    def _last_sign_ms(self, heartbeat: Heartbeat) -> int:
        """The arrival time of the last heartbeat before now, or of a commit after it."""
        first_arrival_ms = heartbeat.next_ms + heartbeat.process.latency_ms
        if first_arrival_ms >= self._loop.now_ms:
            return heartbeat.signed_ms
        elapsed_ms = self._loop.now_ms - 1 - first_arrival_ms
        return max(heartbeat.signed_ms, first_arrival_ms + elapsed_ms // heartbeat.interval_ms * heartbeat.interval_ms)

    def _rouse(self, heartbeat: Heartbeat) -> None:
        """Restore the member's session timer, and its heartbeats that are under way or due later."""
        process, now_ms = heartbeat.process, self._loop.now_ms
        parked, heartbeat.parked = heartbeat.parked, None
        assert parked is not None
        deadline_ms = parked.deadline_ms + self._last_sign_ms(heartbeat) - heartbeat.signed_ms
        coordinator = self._coordinator_of(process.group_id)
        if coordinator is not None:  # else the session is gone with it
            coordinator.timers.schedule(
                parked.key, deadline_ms, parked.name, parked.arguments, retry_backoff_ms=parked.retry_backoff_ms
            )
            self._on_timer_set(process.group_id)
        while heartbeat.next_ms < now_ms:
            missed_count = max(1, (now_ms - process.latency_ms - heartbeat.next_ms) // heartbeat.interval_ms)
            if heartbeat.next_ms + process.latency_ms >= now_ms:
                self._loop.at(
                    heartbeat.next_ms + process.latency_ms,
                    process.heartbeat_arrives,
                    heartbeat.request,
                    rank=process.rank,
                )
                missed_count = 1
            else:
                self.skipped_count += missed_count
                first_ms = heartbeat.next_ms + process.latency_ms
                missed_ms = missed_count * heartbeat.interval_ms
                process.heartbeats_skipped(
                    heartbeat.request, range(first_ms, first_ms + missed_ms, heartbeat.interval_ms)
                )
            heartbeat.next_ms += missed_count * heartbeat.interval_ms
        self._schedule(heartbeat)

    def _schedule(self, heartbeat: Heartbeat) -> None:
        self._loop.at(heartbeat.next_ms, self._send, heartbeat, heartbeat.token, rank=heartbeat.process.rank)

    def _send(self, heartbeat: Heartbeat, token: int) -> None:
        if token != heartbeat.token:
            return
        heartbeat.next_ms += heartbeat.interval_ms
        self.sent_count += 1
        self._schedule(heartbeat)
        process = heartbeat.process
        self._loop.after(process.latency_ms, process.heartbeat_arrives, process.heartbeat(), rank=process.rank)
