"""Finds the coordinators of a process's keys: FindCoordinator, sent to the least loaded broker, with backoff.

The states and the rules are those of `coordinator_core.live.find_coordinator.client`; this module connects them to the
virtual clock. A request whose coordinator is not known waits until it is; requests for one key share one lookup.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from coordinator_core.live.find_coordinator.broker import Coordinator, CoordinatorType, FindCoordinatorRequest
from coordinator_core.live.find_coordinator.client import (
    Answered,
    AskBroker,
    Event,
    Lookup,
    LookupState,
    Lost,
    NodeLoad,
    Poll,
    PollAt,
    Restarted,
    Unanswered,
    step,
)
from schemas.error_codes import ErrorCode
from simulator.simulation.clients.machine import Service
from simulator.simulation.clock import EventLoop

KEY_TYPES: Final = {Service.GROUP: CoordinatorType.GROUP, Service.TRANSACTION: CoordinatorType.TRANSACTION}
"""The type of coordinator of a service's keys; leaders of data are in the metadata."""
RECONNECT_BACKOFF_MS: Final = 50
"""`reconnect.backoff.ms`: a broker that did not answer is not asked again for so long."""

Key = tuple[Service, str]
Found = Callable[[int], None]
"""Called with the broker that coordinates the key."""
Failed = Callable[[ErrorCode], None]
"""Called with an error after which a retry is useless."""


class Brokers(Protocol):
    """The cluster, as the lookup of coordinators sees it."""

    def nodes(self) -> Sequence[int]:
        """The brokers in the current metadata."""
        ...

    def find_coordinators(
        self, broker_id: int, request: FindCoordinatorRequest, group_id: str, sender: str
    ) -> Sequence[Coordinator] | None:
        """A broker's answer; None if the broker is down."""
        ...


class Lookups:
    """The coordinators that one process knows or is looking up."""

    def __init__(
        self,
        group_id: str,
        client_id: str,
        latency_ms: int,
        loop: EventLoop,
        brokers: Brokers,
        draws: random.Random,
    ) -> None:
        self._group_id = group_id
        self._client_id = client_id
        self._latency_ms = latency_ms
        self._loop = loop
        self._brokers = brokers
        self._draws = draws
        self._life = 0
        """Incremented by `clear`: answers to an earlier client are ignored."""
        self._nodes: Sequence[int] = ()
        self._lookups: dict[Key, Lookup] = {}
        self._waiting: dict[Key, list[tuple[Found, Failed]]] = {}
        self._in_flight: Counter[int] = Counter()
        self._unanswered_ms: dict[int, int] = {}
        """Broker -> the time at which it was found to be down."""

    def clear(self) -> None:
        """Forget everything: the client is gone."""
        self._life += 1
        self._nodes = ()
        for known in (self._lookups, self._waiting, self._in_flight, self._unanswered_ms):
            known.clear()

    def known(self, service: Service, key: str) -> int | None:
        """The broker that the client believes to be the coordinator."""
        lookup = self._lookups.get((service, key))
        return None if lookup is None or lookup.coordinator is None else lookup.coordinator.node_id

    def find(self, service: Service, key: str, on_found: Found, on_failed: Failed) -> None:
        """Call `on_found` once the coordinator is known: at once, if it is known already."""
        broker_id = self.known(service, key)
        if broker_id is not None:
            on_found(broker_id)
            return
        self._waiting.setdefault((service, key), []).append((on_found, on_failed))
        self._poll((service, key), self._life)

    def lost(self, service: Service, key: str) -> None:
        """The coordinator said that it is not the coordinator, or did not answer."""
        lookup = self._lookups.get((service, key))
        if lookup is not None:
            self._lookups[service, key] = step(lookup, Lost(self._loop.now_ms)).lookup

    def _poll(self, key: Key, life: int) -> None:
        if life != self._life or key not in self._waiting:
            return
        if not self._nodes:
            self._nodes = self._brokers.nodes()
        now_ms = self._loop.now_ms
        self._step(key, Poll(now_ms, [self._load(node_id, now_ms) for node_id in self._nodes], self._draws.random()))

    def _load(self, node_id: int, now_ms: int) -> NodeLoad:
        unanswered_ms = self._unanswered_ms.get(node_id)
        if unanswered_ms is None:
            return NodeLoad(node_id, self._in_flight[node_id])
        may_connect = now_ms - unanswered_ms >= RECONNECT_BACKOFF_MS
        return NodeLoad(node_id, is_ready=False, may_connect=may_connect, last_attempt_ms=unanswered_ms)

    def _step(self, key: Key, event: Event) -> None:
        service, name = key
        lookup, actions = step(self._lookups.get(key) or Lookup(KEY_TYPES[service], name), event)
        self._lookups[key] = lookup
        for action in actions:
            if isinstance(action, AskBroker):
                self._in_flight[action.node_id] += 1
                self._loop.after(self._latency_ms, self._reach, key, action, self._life)
            elif isinstance(action, PollAt):
                self._loop.at(max(action.at_ms, self._loop.now_ms), self._poll, key, self._life)
            else:
                self._nodes = self._brokers.nodes()
        if lookup.state is LookupState.KNOWN:
            assert lookup.coordinator is not None
            for on_found, _ in self._waiting.pop(key, ()):
                on_found(lookup.coordinator.node_id)
        elif lookup.state is LookupState.FAILED:
            self._lookups[key] = step(lookup, Restarted(self._loop.now_ms)).lookup
            for _, on_failed in self._waiting.pop(key, ()):
                on_failed(lookup.error_code)

    def _reach(self, key: Key, asked: AskBroker, life: int) -> None:
        answers = self._brokers.find_coordinators(asked.node_id, asked.request, self._group_id, self._client_id)
        self._loop.after(self._latency_ms, self._answered, key, asked.node_id, answers, life)

    def _answered(self, key: Key, node_id: int, answers: Sequence[Coordinator] | None, life: int) -> None:
        if life != self._life:
            return
        now_ms = self._loop.now_ms
        self._in_flight[node_id] -= 1
        if answers is None:
            self._unanswered_ms[node_id] = now_ms
            self._step(key, Unanswered(now_ms, self._draws.random()))
        else:
            self._unanswered_ms.pop(node_id, None)
            self._step(key, Answered(now_ms, answers, self._draws.random()))
