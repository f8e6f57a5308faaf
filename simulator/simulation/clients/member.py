"""What the clients of a simulation do alike as members of a group.

`Member`: an event goes to the method of its kind. `ReadingMember`: consumers of both protocols, which have a `Reader`.
`HeartbeatMember`: members of the consumer, streams and share protocols, which join and subscribe by heartbeats.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Final

from coordinator_core.live.assignors.client_group import TopicPartition
from coordinator_core.live.coordinator.member_timers import session_key
from coordinator_core.replay.member_epochs import JOIN_GROUP_MEMBER_EPOCH
from schemas.error_codes import ErrorCode
from simulator.simulation.clients.machine import (
    RETRIABLE,
    RETRY,
    RETRY_BACKOFF_MS,
    Actions,
    Answered,
    Closed,
    Event,
    Heartbeat,
    MemberConfig,
    Send,
    Service,
    SetTimer,
    SlowPoll,
    Started,
    Stop,
    Subscribe,
    TimerFired,
    TopicsChanged,
)
from simulator.simulation.clients.producer import END_TRANSACTION, RETRY_TRANSACTION, TAGS
from simulator.simulation.clients.producer import FENCED as FENCED_PRODUCER
from simulator.simulation.clients.reader import Reader
from simulator.simulation.random_streams import kafka_uuid
from simulator.simulation.topics import Topics

FENCED: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
"""Errors after which a member joins again with epoch 0."""


class MemberState(StrEnum):
    """The states of members; the module of each kind says which of them it has, and what they mean there."""

    UNJOINED = "UNJOINED"
    LEAVING_OLD = "LEAVING_OLD"
    JOINING = "JOINING"
    SYNCING = "SYNCING"
    STABLE = "STABLE"
    RECONCILING = "RECONCILING"
    STALE = "STALE"
    FAILED = "FAILED"
    CLOSING = "CLOSING"
    LEAVING = "LEAVING"
    CLOSED = "CLOSED"


UNJOINED, LEAVING_OLD, JOINING, SYNCING, STABLE, RECONCILING, STALE, FAILED, CLOSING, LEAVING, CLOSED = MemberState


@dataclass(slots=True)
class Member(ABC):
    """A member of any kind; the tables have the methods of the kind."""

    config: MemberConfig
    topics: Topics
    draws: random.Random
    state: MemberState = field(init=False)
    member_id: str = field(default="", init=False)
    """Empty while the member has none."""
    subscribed: tuple[str, ...] = field(init=False)
    """The current subscription of the application."""
    failure: str = field(default="", init=False)
    """FAILED: the exception that ended the application's loop."""

    ANSWERS: ClassVar[Mapping[str, Callable[..., Actions]]]
    """Tag of a request -> the method for its answer."""
    TIMERS: ClassVar[Mapping[str, Callable[..., Actions]]]

    def __post_init__(self) -> None:
        self.subscribed = self.config.topics

    def handle(self, event: Event, now_ms: int) -> Actions:
        if self.state is CLOSED:
            return []
        match event:
            case Started():
                return self._start(now_ms)
            case Answered():
                return self._on_answer(event, now_ms)
            case TimerFired(name):
                return self.TIMERS[name](self, now_ms)
            case Stop():
                return self._close(now_ms)
            case SlowPoll(duration_ms):
                return self._work(duration_ms, now_ms)
            case TopicsChanged():
                return self._on_topics_changed(now_ms)
            case Subscribe(topics):
                self.subscribed = topics
                return self._on_subscription()

    @abstractmethod
    def heartbeat(self) -> Send:
        """The heartbeat request as the member would send it now, tagged "heartbeat"."""

    @abstractmethod
    def session_key(self) -> str: ...

    @abstractmethod
    def positions(self, now_ms: int) -> list[tuple[TopicPartition, int]]:
        """The partitions that it owns, with its positions, for a member that is about to die."""

    @abstractmethod
    def _start(self, now_ms: int) -> Actions: ...

    @abstractmethod
    def _close(self, now_ms: int) -> Actions: ...

    @abstractmethod
    def _work(self, duration_ms: int, now_ms: int) -> Actions: ...

    @abstractmethod
    def _on_subscription(self) -> Actions: ...

    def _on_topics_changed(self, now_ms: int) -> Actions:
        return []  # the coordinator learns of it by itself

    def _on_answer(self, answer: Answered, now_ms: int) -> Actions:
        return self.ANSWERS[answer.tag](self, answer, now_ms)

    def _send(self, operation: str, request: Any, tag: str, api_version: int, timeout_ms: int | None = None) -> Send:
        return Send(Service.GROUP, self.config.group_id, operation, request, tag, api_version, timeout_ms)

    def _ignore(self, answer: Answered, now_ms: int) -> Actions:
        return []

    def _on_leave(self, answer: Answered, now_ms: int) -> Actions:
        return self._gone("STOPPED")

    def _gone(self, reason: str) -> Actions:
        self.state = CLOSED
        return [Closed(reason)]


class ReadingMember(Member):
    """A consumer of the classic or the consumer protocol, or a member of the streams protocol."""

    __slots__ = ()
    reader: Reader

    def positions(self, now_ms: int) -> list[tuple[TopicPartition, int]]:
        return self.reader.positions(now_ms)

    def _on_answer(self, answer: Answered, now_ms: int) -> Actions:
        """An answer to the transactional producer may end a commit. A member whose producer is fenced stops."""
        if answer.tag not in TAGS:
            return self.ANSWERS[answer.tag](self, answer, now_ms)
        actions, done = self.reader.on_producer(answer, now_ms)
        if done is None:
            return actions
        if done.error in FENCED_PRODUCER:
            return self._gone(done.error.name)
        return [*actions, *self.ANSWERS[done.tag](self, done, now_ms)]

    def _retry_transaction(self, now_ms: int) -> Actions:
        return [] if self.reader.producer is None else self.reader.producer.retry()

    def _end_transaction(self, now_ms: int) -> Actions:
        return [] if self.reader.producer is None else self.reader.producer.end()

    PRODUCER_TIMERS: ClassVar = {RETRY_TRANSACTION: _retry_transaction, END_TRANSACTION: _end_transaction}


@dataclass(slots=True)
class HeartbeatMember(Member):
    """A member whose group requests are all heartbeats; it generates its member id."""

    names: Mapping[str, str]
    """Topic id -> name."""
    state: MemberState = field(default=JOINING, init=False)
    member_epoch: int = field(default=JOIN_GROUP_MEMBER_EPOCH, init=False)
    interval_ms: int = field(default=0, init=False)
    sent: tuple[str, ...] = field(default=(), init=False)
    """The subscription that it last sent in a heartbeat."""

    def __post_init__(self) -> None:
        Member.__post_init__(self)
        self.member_id = kafka_uuid(self.draws)

    def heartbeat(self) -> Send:
        return self._heartbeat("heartbeat", self.member_epoch)

    def session_key(self) -> str:
        return session_key(self.config.group_id, self.member_id)

    @abstractmethod
    def _heartbeat(self, tag: str, member_epoch: int, **fields: Any) -> Send:
        """A heartbeat with the epoch, and these fields."""

    @abstractmethod
    def _on_response(self, response: Any, now_ms: int) -> Actions:
        """Take over the epoch and the assignment of a response."""

    @abstractmethod
    def _fenced(self, now_ms: int) -> Actions:
        """The coordinator does not know the member any more: it joins again."""

    def _rejoin(self, now_ms: int) -> Actions:
        return self._start(now_ms) if self.state is JOINING else []

    def _on_join(self, answer: Answered, now_ms: int) -> Actions:
        if self.state is not JOINING:
            return []
        code = answer.code
        if code is ErrorCode.NONE:
            self.state = STABLE
            self.interval_ms = answer.response.heartbeat_interval_ms
            return [Heartbeat(self.interval_ms), *self._joined(answer.response, now_ms), *self._send_topics()]
        if code in RETRIABLE or code in FENCED:
            return [SetTimer(RETRY, RETRY_BACKOFF_MS)]
        return self._gone(code.name)

    def _joined(self, response: Any, now_ms: int) -> Actions:
        return self._on_response(response, now_ms)

    def _on_subscription(self) -> Actions:
        """If the member is in the group, a heartbeat reports the subscription at once."""
        return self._send_topics() if self.state in {STABLE, RECONCILING} else []

    def _send_topics(self) -> Actions:
        if self.sent == self.subscribed:
            return []
        self.sent = self.subscribed
        names = tuple(sorted(self.subscribed))
        heartbeat = self._heartbeat("heartbeat", self.member_epoch, subscribed_topic_names=names)
        return [Heartbeat(self.interval_ms), heartbeat]

    def _on_heartbeat(self, answer: Answered, now_ms: int) -> Actions:
        if self.state not in {STABLE, RECONCILING, FAILED}:
            return []
        code = answer.code
        if code is ErrorCode.NONE:
            interval_ms = answer.response.heartbeat_interval_ms
            is_new = interval_ms not in {0, self.interval_ms}
            self.interval_ms = interval_ms or self.interval_ms
            return [*([Heartbeat(interval_ms)] if is_new else []), *self._on_response(answer.response, now_ms)]
        if answer.request is not None and answer.request.member_epoch != self.member_epoch:
            return []  # the epoch has moved on since
        if code in FENCED:
            return self._fenced(now_ms)
        return [] if code in RETRIABLE else self._gone(code.name)

    def _partitions(self, assignment: Any) -> tuple[TopicPartition, ...]:
        return tuple(
            sorted(
                TopicPartition(self.names[entry.topic_id], number)
                for entry in assignment.topic_partitions
                for number in entry.partitions
            )
        )
