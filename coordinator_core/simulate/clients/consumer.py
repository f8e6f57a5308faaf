"""A member of the consumer protocol (KIP-848): all group requests are heartbeats, and the broker assigns.

States, after MemberState of Kafka's client:

* JOINING: the heartbeat of epoch 0 is under way.
* STABLE: it owns its target assignment.
* RECONCILING: its target assignment is another one. At the next poll it commits, gives up the revoked partitions,
  takes the new ones, and reports this at once in a heartbeat with all partitions that it owns.
* STALE: it left because the application did not poll in time.
* LEAVING: the last commit, then the last heartbeat.
* CLOSED: it has left.

An error that fences the member (FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID) makes it give up all partitions and join again
with the same member id, which it generated itself. Source: ConsumerMembershipManager, ConsumerHeartbeatRequestManager
of Kafka's clients.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from coordinator_core.assignors.client_group import TopicPartition
from coordinator_core.consumer.messages import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from coordinator_core.coordinator.errors import ErrorCode
from coordinator_core.coordinator.member_timers import session_key
from coordinator_core.member_epochs import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
)
from coordinator_core.simulate.clients.machine import (
    RETRIABLE,
    RETRY_BACKOFF_MS,
    Actions,
    Answered,
    CancelTimer,
    Closed,
    Event,
    Heartbeat,
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
from coordinator_core.simulate.clients.offsets import ConsumerConfig
from coordinator_core.simulate.clients.producer import END_TRANSACTION, RETRY_TRANSACTION, TAGS
from coordinator_core.simulate.clients.producer import FENCED as FENCED_PRODUCER
from coordinator_core.simulate.clients.reader import BUSY, COMMIT, FETCH, POLL_EXPIRED, Reader
from coordinator_core.simulate.random_streams import kafka_uuid
from coordinator_core.simulate.topics import Topics

HEARTBEAT_VERSION: Final = 1

FENCED: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})

POLL, RETRY = "poll", "retry"
"""The timers, besides those of the reader."""


class MemberState(StrEnum):
    """See the docstring of the module."""

    JOINING = "JOINING"
    STABLE = "STABLE"
    RECONCILING = "RECONCILING"
    STALE = "STALE"
    LEAVING = "LEAVING"
    CLOSED = "CLOSED"


JOINING, STABLE, RECONCILING = MemberState.JOINING, MemberState.STABLE, MemberState.RECONCILING
STALE, LEAVING, CLOSED = MemberState.STALE, MemberState.LEAVING, MemberState.CLOSED


@dataclass(slots=True)
class ConsumerMember:
    """See the docstring of the module."""

    config: ConsumerConfig
    topics: Topics
    draws: random.Random
    names: Mapping[str, str]
    """Topic id -> name."""
    state: MemberState = JOINING
    member_id: str = ""
    member_epoch: int = JOIN_GROUP_MEMBER_EPOCH
    interval_ms: int = 0
    owned: tuple[TopicPartition, ...] = ()
    target: tuple[TopicPartition, ...] = ()
    """Its target assignment: what the coordinator assigned to it."""
    target_ids: tuple[TopicPartitions, ...] = ()
    """The target assignment by topic id."""
    reader: Reader = field(init=False)
    is_committing: bool = False
    """The commit before a revocation is under way."""

    subscribed: tuple[str, ...] = field(init=False)
    """The current subscription of the application."""
    sent: tuple[str, ...] = ()
    """The subscription that it last sent in a heartbeat."""

    def __post_init__(self) -> None:
        self.subscribed = self.config.topics
        self.reader = Reader(self.config, self.topics)
        self.member_id = kafka_uuid(self.draws)

    @property
    def client_id(self) -> str:
        return self.config.client_id

    # --- the contract ---

    def handle(self, event: Event, now_ms: int) -> Actions:
        if self.state is CLOSED:
            return []
        match event:
            case Started():
                return self._join()
            case Answered(tag) if tag in TAGS:
                return self._on_producer(event, now_ms)
            case Answered():
                return ANSWERS[event.tag](self, event, now_ms)
            case TimerFired(name):
                return TIMERS[name](self, now_ms)
            case Stop():
                return self._close(now_ms)
            case SlowPoll(duration_ms):
                return self._work(duration_ms, now_ms)
            case TopicsChanged():
                return []  # the coordinator learns of it by itself
            case Subscribe(topics):
                return self._subscribe(topics)

    def heartbeat(self) -> Send:
        """A heartbeat without news."""
        return self._plain_beat("heartbeat", self.member_epoch)

    def session_key(self) -> str:
        """The key of its session timer in the coordinator."""
        return session_key(self.config.group_id, self.member_id)

    def positions(self, now_ms: int) -> list[tuple[TopicPartition, int]]:
        return self.reader.positions(now_ms)

    # --- heartbeats ---

    def _beat(self, tag: str, member_epoch: int, **fields: Any) -> Send:
        request = ConsumerGroupHeartbeatRequest(
            self.config.group_id, self.member_id, member_epoch, self.config.instance_id, **fields
        )
        return self._send("consumer_group_heartbeat", request, tag, HEARTBEAT_VERSION)

    def _plain_beat(self, tag: str, member_epoch: int) -> Send:
        """A heartbeat with the epoch alone."""
        return self._beat(tag, member_epoch)

    def _full_beat(self, tag: str) -> Send:
        """A heartbeat with all fields: when the member joins, and after an error."""
        assignor = self.config.assignors[0] if self.config.assignors else None
        self.sent = self.subscribed
        return self._beat(
            tag,
            self.member_epoch,
            rack_id=self.config.rack_id,
            rebalance_timeout_ms=self.config.max_poll_interval_ms,
            subscribed_topic_names=tuple(sorted(self.subscribed)),
            server_assignor=assignor,
            topic_partitions=(),
        )

    def _join(self) -> Actions:
        self.state, self.member_epoch, self.owned, self.target = JOINING, JOIN_GROUP_MEMBER_EPOCH, (), ()
        self.is_committing = False
        return [Heartbeat(0), CancelTimer(COMMIT), CancelTimer(POLL), self._full_beat("join")]

    def _on_join(self, answer: Answered, now_ms: int) -> Actions:
        if self.state is not JOINING:
            return []
        code = _error_of(answer)
        if code is ErrorCode.NONE:
            self.state = STABLE
            self.interval_ms = answer.response.heartbeat_interval_ms
            return [Heartbeat(self.interval_ms), *self._on_response(answer.response, now_ms), *self._say_topics()]
        if code in RETRIABLE or code in FENCED:
            return [SetTimer(RETRY, RETRY_BACKOFF_MS)]
        return self._gone(code.name)

    def _subscribe(self, topics: tuple[str, ...]) -> Actions:
        """Change the subscription: if the member is in the group, a heartbeat reports it at once."""
        self.subscribed = topics
        return self._say_topics() if self.state in {STABLE, RECONCILING} else []

    def _say_topics(self) -> Actions:
        if self.sent == self.subscribed:
            return []
        self.sent = self.subscribed
        names = tuple(sorted(self.subscribed))
        beat = self._beat("heartbeat", self.member_epoch, subscribed_topic_names=names)
        return [Heartbeat(self.interval_ms), beat]

    def _on_heartbeat(self, answer: Answered, now_ms: int) -> Actions:
        if self.state not in {STABLE, RECONCILING}:
            return []
        code = _error_of(answer)
        if code is ErrorCode.NONE:
            return self._on_response(answer.response, now_ms)
        if answer.request is not None and answer.request.member_epoch != self.member_epoch:
            return []  # the epoch has moved on since
        if code in FENCED:
            return [*self.reader.give(self.owned, "LOST", now_ms), *self._join()]
        return [] if code in RETRIABLE else self._gone(code.name)

    def _on_response(self, response: Any, now_ms: int) -> Actions:
        self.member_epoch = response.member_epoch
        target = self._target_of(response)
        if target is None:
            return []
        self.target = target
        if self.state is RECONCILING:
            return []
        self.state = RECONCILING
        return [SetTimer(POLL, self.draws.randrange(self.config.poll_interval_ms))]

    def _target_of(self, response: Any) -> tuple[TopicPartition, ...] | None:
        """The target assignment in a response; None if it is unchanged."""
        if response.assignment is None:
            return None
        self.target_ids = response.assignment.topic_partitions
        return self._partitions(response.assignment)

    # --- reconciling ---

    def _poll(self, now_ms: int) -> Actions:
        """Reconcile at a poll: commit first if partitions are revoked."""
        if self.state is not RECONCILING or self.reader.is_busy or self.is_committing:
            return []
        revoked = [at for at in self.owned if at not in set(self.target)]
        if revoked and self.reader.commits_by_itself:
            self.is_committing = True
            return [CancelTimer(COMMIT), *self._commit("commit-before-revoke", now_ms)]
        return self._take_over(now_ms)

    def _on_commit_before_revoke(self, answer: Answered, now_ms: int) -> Actions:
        if self.state is not RECONCILING or not self.is_committing:
            return []
        self.is_committing = False
        return self._take_over(now_ms)

    def _take_over(self, now_ms: int) -> Actions:
        wanted = set(self.target)
        actions = self.reader.give([at for at in self.owned if at not in wanted], "REVOKED", now_ms)
        self.owned = self.target
        self.state = STABLE
        actions += [Heartbeat(self.interval_ms), self._acknowledgement()]
        return [*actions, *self._fetch_missing(now_ms)]

    def _acknowledgement(self) -> Send:
        """The heartbeat with all partitions that the member owns now."""
        return self._beat(
            "heartbeat",
            self.member_epoch,
            topic_partitions=self.target_ids,
            rebalance_timeout_ms=self.config.max_poll_interval_ms,
        )

    def _fetch_missing(self, now_ms: int) -> Actions:
        missing = self.reader.missing(self.owned)
        if missing and self.state in {STABLE, RECONCILING}:
            return [self.reader.fetch(missing, self.member_id, self.member_epoch)]
        return self.reader.commit_later()

    def _on_fetch(self, answer: Answered, now_ms: int) -> Actions:
        if self.state not in {STABLE, RECONCILING}:
            return []
        return self.reader.on_fetch(answer, self.owned, self.member_epoch, now_ms)

    # --- reading and committing ---

    def _commit(self, tag: str, now_ms: int) -> Actions:
        return self.reader.commit(tag, self.member_epoch, self.member_id, now_ms)

    def _on_producer(self, answer: Answered, now_ms: int) -> Actions:
        """Handle an answer to the transactional producer, which may end a commit. A member whose producer is fenced
        stops.
        """
        actions, done = self.reader.on_producer(answer, now_ms)
        if done is None:
            return actions
        if done.error in FENCED_PRODUCER:
            return self._gone(done.error.name)
        return [*actions, *ANSWERS[done.tag](self, done, now_ms)]

    def _retry_transaction(self, now_ms: int) -> Actions:
        return self.reader.committer.retry()

    def _end_transaction(self, now_ms: int) -> Actions:
        return self.reader.committer.end()

    def _commit_in_time(self, now_ms: int) -> Actions:
        if self.state not in {STABLE, RECONCILING} or self.reader.is_busy or self.is_committing:
            return []
        commit = self._commit("commit", now_ms) if self.reader.has_positions else []
        return [*commit, *self.reader.commit_later()]

    def _ignore(self, answer: Answered, now_ms: int) -> Actions:
        """Ignore a failed commit: the next one follows, and heartbeats report worse errors."""
        return []

    # --- events of the scenario ---

    def _work(self, duration_ms: int, now_ms: int) -> Actions:
        if self.reader.is_busy or self.state not in {STABLE, RECONCILING}:
            return []
        return self.reader.work(duration_ms, now_ms)

    def _poll_expired(self, now_ms: int) -> Actions:
        """Leave the group because the application did not poll."""
        if not self.reader.is_busy or self.state not in {STABLE, RECONCILING}:
            return []
        self.state = STALE
        return [Heartbeat(0), CancelTimer(COMMIT), self._plain_beat("leave-poll-expired", self._leave_epoch)]

    def _busy_no_more(self, now_ms: int) -> Actions:
        self.reader.work_no_more(now_ms)
        if self.state is STALE:
            return [*self.reader.give(self.owned, "LOST", now_ms), *self._join()]
        return self._poll(now_ms) if self.state is RECONCILING else self._commit_in_time(now_ms)

    def _close(self, now_ms: int) -> Actions:
        self.reader.is_busy = False
        before, self.state = self.state, LEAVING
        if before in {STABLE, RECONCILING} and self.reader.commits_by_itself:
            return self._commit("commit-before-close", now_ms)
        return self._leave(now_ms)

    def _on_commit_before_close(self, answer: Answered, now_ms: int) -> Actions:
        return self._leave(now_ms)

    def _leave(self, now_ms: int) -> Actions:
        actions = [*self.reader.give(self.owned, "CLOSED", now_ms), Heartbeat(0)]
        return [*actions, self._plain_beat("leave", self._leave_epoch)]

    def _on_leave(self, answer: Answered, now_ms: int) -> Actions:
        return self._gone("STOPPED")

    @property
    def _leave_epoch(self) -> int:
        """The epoch for leaving: static members leave temporarily."""
        return LEAVE_GROUP_MEMBER_EPOCH if self.config.instance_id is None else LEAVE_GROUP_STATIC_MEMBER_EPOCH

    def _gone(self, reason: str) -> Actions:
        self.state = CLOSED
        return [Closed(reason)]

    # --- helpers ---

    def _rejoin(self, now_ms: int) -> Actions:
        return [self._full_beat("join")] if self.state is JOINING else []

    def _send(self, operation: str, request: Any, tag: str, api_version: int) -> Send:
        return Send(Service.GROUP, self.config.group_id, operation, request, tag, api_version)

    def _partitions(self, assignment: Assignment) -> tuple[TopicPartition, ...]:
        return tuple(
            sorted(
                TopicPartition(self.names[entry.topic_id], number)
                for entry in assignment.topic_partitions
                for number in entry.partitions
            )
        )


def _error_of(answer: Answered) -> ErrorCode:
    return ErrorCode(answer.response.error_code) if answer.error is None else answer.error


ANSWERS: Final = {
    "join": ConsumerMember._on_join,
    "heartbeat": ConsumerMember._on_heartbeat,
    "fetch": ConsumerMember._on_fetch,
    "commit": ConsumerMember._ignore,
    "commit-before-revoke": ConsumerMember._on_commit_before_revoke,
    "commit-before-close": ConsumerMember._on_commit_before_close,
    "leave": ConsumerMember._on_leave,
    "leave-poll-expired": ConsumerMember._ignore,
}
"""Tag of a request -> the method for its answer."""

TIMERS: Final = {
    POLL: ConsumerMember._poll,
    RETRY: ConsumerMember._rejoin,
    COMMIT: ConsumerMember._commit_in_time,
    BUSY: ConsumerMember._busy_no_more,
    POLL_EXPIRED: ConsumerMember._poll_expired,
    RETRY_TRANSACTION: ConsumerMember._retry_transaction,
    END_TRANSACTION: ConsumerMember._end_transaction,
    FETCH: ConsumerMember._fetch_missing,
}
"""Timer -> its method."""
