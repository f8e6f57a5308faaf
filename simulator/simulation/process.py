"""A process: one client, restarted after a crash or a deploy, with its timers, its requests and its network
connections.
"""

import random
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import Any, Protocol

from schemas.error_codes import ErrorCode
from simulator.simulation.clients.machine import (
    Action,
    Answered,
    CancelTimer,
    Closed,
    Event,
    Gave,
    Heartbeat,
    Send,
    Service,
    SetTimer,
    Started,
    Stop,
    TimerFired,
    Took,
)
from simulator.simulation.clients.member import FAILED, Member
from simulator.simulation.clock import EventLoop
from simulator.simulation.exchange import CLIENT, Exchange
from simulator.simulation.heartbeats import Heartbeats
from simulator.simulation.lookups import Brokers, Lookups
from simulator.simulation.truth import Truth

HEARTBEAT = "heartbeat"
LOST_BROKER = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT})
"""Errors after which a client looks up its coordinator again."""


class Network(Brokers, Protocol):
    """What a process knows of its cluster."""

    def deliver(self, process: "Process", broker_id: int, send: Send) -> None:
        """A request arrives at a broker."""

    def disconnected(self, process: "Process", member_id: str) -> None:
        """All connections of the process break."""


@dataclass(eq=False, kw_only=True)
class Process:
    """Runs one client after another, all with the same client id."""

    rank: int
    group_id: str
    client_id: str
    host: str
    latency_ms: int
    uuids: random.Random
    """Random numbers for the ends of the member ids that coordinators generate for it."""
    lookup_draws: InitVar[random.Random]
    make: Callable[[random.Random], Member]
    draws: Callable[[int], random.Random]
    loop: EventLoop
    network: Network
    heartbeats: Heartbeats
    truth: Truth
    exchange: Exchange
    client: Member | None = None
    fault: int | None = None
    """The index of the last fault that hit it, in faults.jsonl."""
    incarnation: int = 0
    repeats_after_ms: int = 0
    repeats_until_ms: int = 0
    """What it sends until then comes to the broker once more, so much later."""
    _timers: dict[str, int] = field(default_factory=dict)
    """Timer -> its token; a firing with another one is void."""
    _token: int = 0
    _late: Send | None = None
    """A heartbeat that waited for its coordinator, and whose arrival time is not known in advance."""
    _unanswered: dict[int, Send] = field(default_factory=dict)
    """Requests under way that have a timeout, by `id`."""
    _is_paused: bool = False
    _buffered: list[Event] = field(default_factory=list)
    _overdue: list[Send] = field(default_factory=list)
    """Requests that timed out while the process was paused."""
    _paused_interval_ms: int = 0
    _is_closing: bool = False
    _when_gone: list[Callable[[], None]] = field(default_factory=list)
    """Callbacks for the end of the client, however it ends."""

    def __post_init__(self, lookup_draws: random.Random) -> None:
        self._lookups = Lookups(self.group_id, self.client_id, self.latency_ms, self.loop, self.network, lookup_draws)

    # --- life ---

    @property
    def is_alive(self) -> bool:
        return self.client is not None

    def start(self) -> None:
        if self.client is None:
            self.incarnation += 1
            self.client = self.make(self.draws(self.incarnation))
            self.deliver(Started())

    def stop(self, on_closed: Callable[[], None] | None = None) -> None:
        """Let the client close; then call `on_closed`."""
        if on_closed is not None:
            self._when_gone.append(on_closed)
        self.resume()
        if self.client is None:
            self._gone()
        elif not self._is_closing:
            self._is_closing = True
            self.deliver(Stop())

    def crash(self) -> None:
        """Kill the client without a close. The requests that it had sent are still under way."""
        if self.client is not None:
            self.truth.gave(
                self.group_id, self.client_id, self.client.positions(self.loop.now_ms), "CRASHED", self.loop.now_ms
            )
            self._end()
            self._gone()

    def pause(self) -> None:
        if self.client is not None and not self._is_paused:
            self._is_paused = True
            self._paused_interval_ms = self.heartbeats.stop(self)

    def resume(self) -> None:
        """Continue the process: it now handles the events of the pause."""
        if not self._is_paused:
            return
        self._is_paused = False
        if self._paused_interval_ms:
            self.heartbeats.start(self, self._paused_interval_ms, self.loop.now_ms)
        buffered, self._buffered = self._buffered, []
        for event in buffered:
            self.deliver(event)
        # clients handle received responses before overdue timers (NetworkClient.poll)
        overdue, self._overdue = self._overdue, []
        for send in overdue:
            self._give_up(send, self.incarnation)

    def _end(self) -> None:
        self.heartbeats.stop(self)
        if self.client is not None:
            self.network.disconnected(self, self.client.member_id)
            self.exchange.moved(self.group_id, CLIENT, self.client_id, None, "its end")
        self.client = None
        self._is_closing = self._is_paused = False
        self._buffered.clear()
        self._overdue.clear()
        self._unanswered.clear()
        self._timers.clear()
        self._lookups.clear()

    # --- events and actions ---

    def deliver(self, event: Event) -> None:
        """Pass an event to the client, and perform its actions."""
        if self.client is None:
            return
        if self._is_paused:
            self._buffered.append(event)
            return
        before = None if isinstance(event, Started) else self.client.state
        actions = self.client.handle(event, self.loop.now_ms)
        if self.exchange.is_watching and self.client.state != before:
            why = self.client.failure if self.client.state is FAILED else why_of(event)
            self.exchange.moved(self.group_id, CLIENT, self.client_id, self.client.state, why)
        for action in actions:
            PERFORM[type(action)](self, action)

    def _go(self, send: Send, incarnation: int) -> None:
        """Send a request to the leader of the data, or to the coordinator, once that is known."""
        if self.client is None or incarnation != self.incarnation:
            return
        if send.service is Service.DATA:
            self._reach(send, incarnation, send.key)
            return
        self._lookups.find(
            send.service,
            send.key,
            partial(self._reach, send, incarnation),
            lambda error: self.answered(incarnation, send, None, error),
        )

    def _reach(self, send: Send, incarnation: int, broker_id: int) -> None:
        if incarnation == self.incarnation:
            self.loop.after(self.latency_ms, self.network.deliver, self, broker_id, send)
            if send.timeout_ms is not None:
                self._unanswered[id(send)] = send
                self.loop.after(send.timeout_ms, self._give_up, send, incarnation)

    def _give_up(self, send: Send, incarnation: int) -> None:
        """The request timed out: the client closes the connection, and accepts no answer any more."""
        if incarnation != self.incarnation or id(send) not in self._unanswered:
            return
        if self._is_paused:
            self._overdue.append(send)
            return
        facts = {"group": self.group_id, "client_id": self.client_id, "operation": send.operation}
        self.truth.record("request_timeouts", self.loop.now_ms, {**facts, "waited_ms": send.timeout_ms})
        self.answered(incarnation, send, None, ErrorCode.REQUEST_TIMED_OUT)

    def heartbeat(self) -> Send:
        assert self.client is not None
        return self.client.heartbeat()

    def session_key(self) -> str:
        """Key of the member's session timer in its coordinator."""
        assert self.client is not None
        return self.client.session_key()

    def heartbeats_skipped(self, send: Send, times_ms: range) -> None:
        """Heartbeats would have reached the broker at these times, and changed nothing."""
        if not self.exchange.is_watching:
            return
        broker_id = self._lookups.known(send.service, send.key)
        self.exchange.skipped(self.group_id, self.client_id, broker_id, send.request, times_ms)

    def heartbeat_arrives(self, send: Send) -> None:
        """A heartbeat reaches the broker that the client believes to be its coordinator."""
        known = self._lookups.known(send.service, send.key)
        if known is None:
            self._late = send
            self._go(send, self.incarnation)
        else:
            self.network.deliver(self, known, send)

    def answered(self, incarnation: int, send: Send, response: Any, error: ErrorCode | None) -> None:
        """Pass an answer to the client, if this is still the one that sent the request."""
        if incarnation != self.incarnation or self.client is None:
            return
        if send.timeout_ms is not None and self._unanswered.pop(id(send), None) is None:
            return
        answer = Answered(send.tag, response, error, send.request)
        code = answer.code
        if code in LOST_BROKER:
            self._lookups.lost(send.service, send.key)
        self.deliver(answer)
        if send.tag == HEARTBEAT and code is ErrorCode.NONE and send is not self._late:
            self.heartbeats.answered(self)

    def _set_timer(self, timer: SetTimer) -> None:
        self._token += 1
        self._timers[timer.name] = self._token
        self.loop.after(timer.delay_ms, self._fire, timer.name, self._token)

    def _fire(self, name: str, token: int) -> None:
        if self._timers.get(name) == token:
            del self._timers[name]
            self.deliver(TimerFired(name))

    def _closed(self, closed: Closed) -> None:
        assert self.client is not None
        now_ms = self.loop.now_ms
        self.truth.gave(self.group_id, self.client_id, self.client.positions(now_ms), closed.reason, now_ms)
        self._end()
        self._gone()

    def _gone(self) -> None:
        waiting, self._when_gone = self._when_gone, []
        for call in waiting:
            call()


def why_of(event: Event) -> str:
    """An event in the words of `states.jsonl`."""
    match event:
        case Answered(tag):
            return f"answer to {tag}" if event.code is ErrorCode.NONE else f"answer to {tag}: {event.code.name}"
        case TimerFired(name):
            return f"timer {name}"
    return type(event).__name__


PERFORM: dict[type[Action], Callable[[Process, Any], object]] = {
    Send: lambda process, send: process._go(send, process.incarnation),
    SetTimer: Process._set_timer,
    CancelTimer: lambda process, timer: process._timers.pop(timer.name, None),
    Heartbeat: lambda process, heartbeat: process.heartbeats.start(process, heartbeat.interval_ms),
    Took: lambda process, took: process.truth.took(
        process.group_id, process.client_id, took.positions, took.generation, process.loop.now_ms
    ),
    Gave: lambda process, gave: process.truth.gave(
        process.group_id, process.client_id, gave.positions, gave.ended_by, process.loop.now_ms
    ),
    Closed: Process._closed,
}
"""Action of the client -> how its process performs it."""
