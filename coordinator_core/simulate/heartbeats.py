"""Heartbeats, and how to leave out those that change nothing.

A member whose last heartbeat was answered without error, in a group that is quiet, is *parked*: its heartbeats are
known to arrive at `first_ms + k * interval_ms + latency_ms`, and each would only restart its session. So its session
timer is taken out of the coordinator (parked), and no heartbeat is sent. Before any request reads or changes the group,
and before the member itself changes, it is unparked: the timer is restored with the deadline that the last heartbeat
gave it, heartbeats under way arrive, and later ones are sent.

Heartbeats that arrive at the same time do so in the order of the clients, and after all other actions of that time:
otherwise a run that leaves them out could not know the order in a run that does not.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coordinator_core.coordinator.timers import Timer
from coordinator_core.simulate.clock import EventLoop

if TYPE_CHECKING:
    from coordinator_core.simulate.cluster import Cluster
    from coordinator_core.simulate.process import Process


@dataclass(slots=True)
class Heartbeat:
    """The heartbeats of one process. `next_ms`: when the next one is due to be sent."""

    process: "Process"
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
    def __init__(self, loop: EventLoop, sessions: "Cluster", *, skips: bool) -> None:
        self._loop = loop
        self._sessions = sessions
        self._skips = skips
        self._heartbeats: dict[int, Heartbeat] = {}
        """Rank of the process -> its heartbeats."""
        self._parked: dict[str, dict[int, Heartbeat]] = {}
        """Group id -> parked heartbeats by rank."""
        self.sent_count = 0
        self.skipped_count = 0

    def start(self, process: "Process", interval_ms: int, first_ms: int | None = None) -> None:
        """Send a heartbeat every `interval_ms` from now on, the first at `first_ms`; interval 0: none."""
        self.stop(process)
        if interval_ms:
            first_ms = self._loop.now_ms + interval_ms if first_ms is None else first_ms
            beat = Heartbeat(process, interval_ms, first_ms)
            self._heartbeats[process.rank] = beat
            self._schedule(beat)

    def stop(self, process: "Process") -> int:
        """Send no more heartbeats; returns the interval so far, 0 if there was none."""
        self.wake_one(process)
        beat = self._heartbeats.pop(process.rank, None)
        if beat is None:
            return 0
        beat.token += 1
        return beat.interval_ms

    def answered(self, process: "Process") -> None:
        """The answer to a heartbeat had no error: the process may be parked."""
        beat = self._heartbeats.get(process.rank)
        if beat is None or not self._skips or beat.parked is not None:
            return
        if not self._sessions.is_quiet(process.group_id):
            return
        timer = self._sessions.park_session(process.group_id, process.session_key())
        if timer is None:
            return
        beat.parked = timer
        beat.request = process.heartbeat()
        beat.signed_ms = beat.next_ms - beat.interval_ms + process.latency_ms
        beat.token += 1
        self._parked.setdefault(process.group_id, {})[process.rank] = beat

    def signed(self, process: "Process") -> None:
        """The commit of a parked process has set its session timer: park that timer now."""
        beat = self._heartbeats.get(process.rank)
        if beat is None or beat.parked is None:
            return
        timer = self._sessions.park_session(process.group_id, beat.parked.key)
        if timer is not None:
            beat.signed_ms += timer.deadline_ms - beat.parked.deadline_ms
            beat.parked = timer

    def wake(self, group_id: str) -> None:
        """A request is about to use the group: its parked members send heartbeats again."""
        sleepers = self._parked.pop(group_id, None)
        if sleepers is not None:
            for beat in sorted(sleepers.values(), key=lambda beat: (self._last_sign_ms(beat), beat.process.rank)):
                self._rouse(beat)

    def wake_one(self, process: "Process") -> None:
        """The process itself is about to change."""
        beat = self._heartbeats.get(process.rank)
        if beat is None or beat.parked is None:
            return
        sleepers = self._parked[process.group_id]
        del sleepers[process.rank]
        if not sleepers:
            del self._parked[process.group_id]
        self._rouse(beat)

    def wake_where(self, is_wanted: Callable[[str], bool]) -> None:
        """Wake the wanted groups, in the order of their ids."""
        for group_id in self.sleeping_groups(is_wanted):
            self.wake(group_id)

    def sleeping_groups(self, is_wanted: Callable[[str], bool]) -> Iterable[str]:
        """The wanted groups that have parked members, by id."""
        return sorted(group_id for group_id in self._parked if is_wanted(group_id))

    def _last_sign_ms(self, beat: Heartbeat) -> int:
        """The arrival time of the last heartbeat before now, or of a commit after it."""
        first_arrival_ms = beat.next_ms + beat.process.latency_ms
        if first_arrival_ms >= self._loop.now_ms:
            return beat.signed_ms
        elapsed_ms = self._loop.now_ms - 1 - first_arrival_ms
        return max(beat.signed_ms, first_arrival_ms + elapsed_ms // beat.interval_ms * beat.interval_ms)

    def _rouse(self, beat: Heartbeat) -> None:
        """Restore the member's session timer, and its heartbeats that are under way or due later."""
        process, now_ms = beat.process, self._loop.now_ms
        parked, beat.parked = beat.parked, None
        assert parked is not None
        deadline_ms = parked.deadline_ms + self._last_sign_ms(beat) - beat.signed_ms
        self._sessions.restore_session(process.group_id, parked, deadline_ms)
        while beat.next_ms < now_ms:
            missed_count = max(1, (now_ms - process.latency_ms - beat.next_ms) // beat.interval_ms)
            if beat.next_ms + process.latency_ms >= now_ms:
                self._loop.at(
                    beat.next_ms + process.latency_ms,
                    process.heartbeat_arrives,
                    beat.request,
                    rank=process.rank,
                )
                missed_count = 1
            else:
                self.skipped_count += missed_count
            beat.next_ms += missed_count * beat.interval_ms
        self._schedule(beat)

    def _schedule(self, beat: Heartbeat) -> None:
        self._loop.at(beat.next_ms, self._send, beat, beat.token, rank=beat.process.rank)

    def _send(self, beat: Heartbeat, token: int) -> None:
        if token != beat.token:
            return
        beat.next_ms += beat.interval_ms
        self.sent_count += 1
        self._schedule(beat)
        process = beat.process
        self._loop.after(process.latency_ms, process.heartbeat_arrives, process.heartbeat(), rank=process.rank)
