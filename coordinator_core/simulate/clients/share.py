"""A share consumer (KIP-932): heartbeats to the coordinator, fetches and acknowledgements to the leaders of the data.

* JOINING: the heartbeat of epoch 0 is under way.
* STABLE: it polls every `poll_interval_ms`; a poll is one ShareFetch to each broker that leads partitions of its
  assignment, and carries the acknowledgements for the records of the poll before.
* STALE: it left because the application did not poll within `max_poll_interval_ms`; it joins again at the next poll.
  The records that it had fetched stay acquired until then, or until the locks expire.
* CLOSING: it releases the records that it has (session epoch -1), then leaves.
* CLOSED: it has left.

Implicit acknowledgement: the next poll accepts all records of the one before. Explicit: the application accepts,
releases or rejects each record; it may leave a poison record unacknowledged, until the lock expires.

RENEW: if a record takes longer than one poll, its lock is renewed, in a ShareAcknowledge: a request that renews locks
fetches nothing.

Sessions: one with each broker. A broker that does not know the session, or that restarted without it, reports this: the
member opens a new one, and the records that it had acquired there are lost to it.

Source: ShareConsumerImpl, ShareConsumeRequestManager, ShareSessionHandler, ShareMembershipManager.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from coordinator_core.assignors.client_group import TopicPartition
from coordinator_core.coordinator.errors import ErrorCode
from coordinator_core.coordinator.member_timers import session_key
from coordinator_core.member_epochs import JOIN_GROUP_MEMBER_EPOCH, LEAVE_GROUP_MEMBER_EPOCH
from coordinator_core.share.messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from coordinator_core.share_partition.state import AcknowledgementBatch, AcquiredRecords
from coordinator_core.share_partition.states import AcknowledgeType
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
from coordinator_core.simulate.clients.share_messages import (
    CLOSE_EPOCH,
    OPEN_EPOCH,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    SHARE_FETCH_VERSION,
    ShareFetchRequest,
    ShareFetchResponse,
)
from coordinator_core.simulate.random_streams import kafka_uuid
from coordinator_core.simulate.topics import Topics

HEARTBEAT_VERSION: Final = 1
FENCED: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})

POLL, RETRY, BUSY, POLL_EXPIRED = "poll", "retry", "busy", "poll-expired"
"""The timers."""

POISON_TYPES: Final = {"reject": AcknowledgeType.REJECT, "release": AcknowledgeType.RELEASE}
"""`on_poison` -> the acknowledgement of a poison record; "skip" is not looked up, "time_out" has none."""


class MemberState(StrEnum):
    """See the docstring of the module."""

    JOINING = "JOINING"
    STABLE = "STABLE"
    STALE = "STALE"
    CLOSING = "CLOSING"
    CLOSED = "CLOSED"


JOINING, STABLE, STALE = MemberState.JOINING, MemberState.STABLE, MemberState.STALE
CLOSING, CLOSED = MemberState.CLOSING, MemberState.CLOSED


@dataclass(frozen=True, slots=True)
class ShareConfig:
    """A share consumer's settings. `on_poison`: skip (accept it all the same), reject, release or time_out."""

    group_id: str
    client_id: str
    topics: tuple[str, ...]
    poll_interval_ms: int = 1000
    max_poll_records: int = 500
    is_explicit: bool = False
    on_poison: str = "skip"
    release_every: int = 0
    """Every n-th record is released once; 0: none."""
    max_poll_interval_ms: int = 300_000
    renew_every: int = 0
    """Every n-th record takes two polls, and its lock is renewed; 0: none."""
    is_record_limit: bool = False
    """share.acquire.mode=record_limit."""
    rack_id: str | None = None
    """client.rack."""
    fetch_max_wait_ms: int = 500
    """fetch.max.wait.ms."""


@dataclass(slots=True)
class Session:
    """The session with one broker, and the records fetched in it that are not acknowledged yet."""

    epoch: int = OPEN_EPOCH
    partitions: tuple[TopicPartition, ...] = ()
    """The partitions of the session on the broker, once the request under way is answered."""
    request: ShareFetchRequest | None = None
    """The request under way; an answer to any other request, from an earlier session, is too late."""
    owned: dict[TopicPartition, tuple[AcquiredRecords, ...]] = field(default_factory=dict)
    renewed: dict[TopicPartition, tuple[AcquiredRecords, ...]] = field(default_factory=dict)
    """The records whose locks the request under way renews: they are acknowledged at the poll after it."""
    is_renewed: bool = False
    """The records that it has now are the renewed ones."""


@dataclass(slots=True)
class ShareConsumer:
    """See the docstring of the module."""

    config: ShareConfig
    topics: Topics
    draws: random.Random
    names: Mapping[str, str]
    """Topic id -> name."""
    data_leader: Callable[[TopicPartition], int | None]
    """The leader of a data partition, according to the metadata."""
    state: MemberState = JOINING
    member_id: str = ""
    member_epoch: int = JOIN_GROUP_MEMBER_EPOCH
    assigned: tuple[TopicPartition, ...] = ()
    sessions: dict[int, Session] = field(default_factory=dict)
    """Broker id -> session."""
    is_busy: bool = False
    interval_ms: int = 0
    subscribed: tuple[str, ...] = field(init=False)
    """The current subscription of the application."""
    sent: tuple[str, ...] = ()
    """The subscription that it last sent in a heartbeat."""

    def __post_init__(self) -> None:
        self.subscribed = self.config.topics
        self.member_id = kafka_uuid(self.draws)

    # --- the contract ---

    def handle(self, event: Event, now_ms: int) -> Actions:
        if self.state is CLOSED:
            return []
        match event:
            case Started():
                return self._join()
            case Answered():
                return self._on_answer(event)
            case TimerFired(name):
                return TIMERS[name](self)
            case Stop():
                return self._close()
            case SlowPoll(duration_ms):
                return self._work(duration_ms)
            case TopicsChanged():
                return []
            case Subscribe(topics):
                return self._subscribe(topics)

    def heartbeat(self) -> Send:
        """A heartbeat without news."""
        return self._beat("heartbeat", self.member_epoch, None)

    def session_key(self) -> str:
        """The key of its session timer in the coordinator."""
        return session_key(self.config.group_id, self.member_id)

    def positions(self, now_ms: int) -> list[tuple[TopicPartition, int]]:
        """Members of share groups own nothing."""
        return []

    # --- membership ---

    def _beat(self, tag: str, member_epoch: int, names: tuple[str, ...] | None, rack_id: str | None = None) -> Send:
        request = ShareGroupHeartbeatRequest(
            self.config.group_id, self.member_id, member_epoch, rack_id, subscribed_topic_names=names
        )
        return Send(Service.GROUP, self.config.group_id, "share_group_heartbeat", request, tag, HEARTBEAT_VERSION)

    def _fenced(self) -> Actions:
        """The coordinator does not know the member any more: it joins again, and loses the records that it had
        acquired.
        """
        self.sessions.clear()
        return self._join()

    def _join(self) -> Actions:
        self.state, self.member_epoch, self.assigned = JOINING, JOIN_GROUP_MEMBER_EPOCH, ()
        self.sent = self.subscribed
        names = tuple(sorted(self.subscribed))
        return [Heartbeat(0), CancelTimer(POLL), self._beat("join", self.member_epoch, names, self.config.rack_id)]

    def _on_answer(self, answer: Answered) -> Actions:
        if answer.tag.startswith(SHARE_FETCH):
            return self._on_fetch(answer, int(answer.tag.rpartition(":")[2]))
        return ANSWERS[answer.tag](self, answer)

    def _on_join(self, answer: Answered) -> Actions:
        if self.state is not JOINING:
            return []
        code = _error_of(answer)
        if code is ErrorCode.NONE:
            self.state = STABLE
            self._take(answer.response)
            self.interval_ms = answer.response.heartbeat_interval_ms
            first_poll_ms = self.draws.randrange(self.config.poll_interval_ms)
            return [Heartbeat(self.interval_ms), SetTimer(POLL, first_poll_ms), *self._say_topics()]
        if code in RETRIABLE or code in FENCED:
            return [SetTimer(RETRY, RETRY_BACKOFF_MS)]
        return self._gone(code.name)

    def _subscribe(self, topics: tuple[str, ...]) -> Actions:
        """Change the subscription: if the member is in the group, a heartbeat reports it at once."""
        self.subscribed = topics
        return self._say_topics() if self.state is STABLE else []

    def _say_topics(self) -> Actions:
        if self.sent == self.subscribed:
            return []
        self.sent = self.subscribed
        names = tuple(sorted(self.subscribed))
        return [Heartbeat(self.interval_ms), self._beat("heartbeat", self.member_epoch, names)]

    def _on_heartbeat(self, answer: Answered) -> Actions:
        if self.state is not STABLE:
            return []
        code = _error_of(answer)
        if code is ErrorCode.NONE:
            self._take(answer.response)
            return []
        if code in FENCED:
            return self._fenced()
        return [] if code in RETRIABLE else self._gone(code.name)

    def _take(self, response: ShareGroupHeartbeatResponse) -> None:
        self.member_epoch = response.member_epoch
        if response.assignment is not None:
            self.assigned = tuple(
                sorted(
                    TopicPartition(self.names[entry.topic_id], number)
                    for entry in response.assignment.topic_partitions
                    for number in entry.partitions
                )
            )

    # --- polling ---

    def _poll(self) -> Actions:
        """Send a request to each broker that leads assigned partitions, or with which the member has a session to
        settle.
        """
        if self.state is not STABLE:
            return []
        actions: Actions = [SetTimer(POLL, self.config.poll_interval_ms)]
        if self.is_busy:
            return actions
        by_broker: dict[int, list[TopicPartition]] = {broker_id: [] for broker_id in sorted(self.sessions)}
        for at in self.assigned:
            leader = self.data_leader(at)
            if leader is not None:
                by_broker.setdefault(leader, []).append(at)
        for broker_id, partitions in sorted(by_broker.items()):
            session = self.sessions.setdefault(broker_id, Session())
            if session.request is None and (partitions or session.owned):
                actions.append(self._fetch(broker_id, session, tuple(partitions), session.epoch))
        return actions

    def _fetch(self, broker_id: int, session: Session, partitions: tuple[TopicPartition, ...], epoch: int) -> Send:
        acknowledgements = {}
        if epoch != OPEN_EPOCH:
            may_renew = epoch != CLOSE_EPOCH and not session.is_renewed
            said = {at: self._acknowledge(at, acquired, may_renew) for at, acquired in session.owned.items()}
            acknowledgements = {at: batches for at, batches in said.items() if batches}
        session.renewed = _renewed(acknowledgements, session.owned)
        session.owned = {}
        operation = SHARE_ACKNOWLEDGE if session.renewed else SHARE_FETCH
        added: tuple[TopicPartition, ...] = ()
        forgotten: tuple[TopicPartition, ...] = ()
        if operation == SHARE_FETCH and epoch != CLOSE_EPOCH:
            added = tuple(at for at in partitions if at not in session.partitions)
            forgotten = tuple(at for at in session.partitions if at not in partitions)
            session.partitions = partitions
        request = ShareFetchRequest(
            self.config.group_id,
            self.member_id,
            epoch,
            added,
            acknowledgements,
            self.config.max_poll_records if operation == SHARE_FETCH else 0,
            forgotten,
            self.config.is_record_limit,
            self.config.fetch_max_wait_ms if operation == SHARE_FETCH else 0,
        )
        session.request = request
        tag = f"{SHARE_FETCH}:{broker_id}"
        return Send(Service.DATA, broker_id, operation, request, tag, SHARE_FETCH_VERSION)

    def _acknowledge(
        self, at: TopicPartition, acquired: tuple[AcquiredRecords, ...], may_renew: bool
    ) -> tuple[AcknowledgementBatch, ...]:
        """The application's acknowledgement of the records, in runs of one type each."""
        if not self.config.is_explicit and not self.topics.has_markers(at):
            accept = (int(AcknowledgeType.ACCEPT),)
            return tuple(
                AcknowledgementBatch(records.first_offset, records.last_offset, accept) for records in acquired
            )
        batches: list[AcknowledgementBatch] = []
        for records in acquired:
            for offset in range(records.first_offset, records.last_offset + 1):
                kind = self._verdict(at, offset, records.delivery_count, may_renew)
                if kind is None:
                    continue
                last = batches[-1] if batches else None
                if last is not None and last.last_offset == offset - 1 and last.acknowledge_types == (int(kind),):
                    batches[-1] = last._replace(last_offset=offset)
                else:
                    batches.append(AcknowledgementBatch(offset, offset, (int(kind),)))
        return tuple(batches)

    def _verdict(self, at: TopicPartition, offset: int, delivery_count: int, may_renew: bool) -> AcknowledgeType | None:
        if self.topics.is_marker(at, offset):
            return AcknowledgeType.GAP
        if not self.config.is_explicit:
            return AcknowledgeType.ACCEPT
        is_poison = self.topics.next_poison_offset(at, offset, offset + 1) is not None
        if is_poison and self.config.on_poison != "skip":
            return POISON_TYPES.get(self.config.on_poison)
        renew_every = self.config.renew_every
        if may_renew and renew_every and offset % renew_every == renew_every - 1:
            return AcknowledgeType.RENEW
        every = self.config.release_every
        if every and delivery_count == 1 and offset % every == every - 1:
            return AcknowledgeType.RELEASE
        return AcknowledgeType.ACCEPT

    def _on_fetch(self, answer: Answered, broker_id: int) -> Actions:
        session = self.sessions.get(broker_id)
        if session is None or session.request is None or answer.request is not session.request:
            return []
        request, session.request = session.request, None
        if self.state is CLOSING:
            if request.session_epoch != CLOSE_EPOCH and _error_of(answer) is ErrorCode.NONE:
                # A fetch was under way when the application closed: its records are released with the session.
                return [self._fetch(broker_id, session, (), CLOSE_EPOCH)]
            del self.sessions[broker_id]
            return self._leave_if_done()
        if _error_of(answer) is not ErrorCode.NONE:
            del self.sessions[broker_id]
            return []
        session.epoch += 1
        response: ShareFetchResponse = answer.response
        session.is_renewed = bool(session.renewed)
        session.owned, session.renewed = dict(session.renewed), {}
        session.owned |= {at: acquired for at, acquired in response.acquired.items() if acquired}
        return []

    # --- the end ---

    def _close(self) -> Actions:
        """Acknowledge the processed records, release the rest, then leave."""
        was_joined = self.state is STABLE
        self.state = CLOSING
        actions: Actions = [CancelTimer(POLL)]
        if not was_joined:
            return [*actions, *self._leave()]
        for broker_id in sorted(self.sessions):
            session = self.sessions[broker_id]
            if session.epoch == OPEN_EPOCH and session.request is None:
                # Not opened: the broker has no records to release.
                del self.sessions[broker_id]
            elif session.request is None:
                actions.append(self._fetch(broker_id, session, (), CLOSE_EPOCH))
        return [*actions, *self._leave_if_done()]

    def _leave_if_done(self) -> Actions:
        return [] if self.sessions else self._leave()

    def _leave(self) -> Actions:
        return [Heartbeat(0), self._beat("leave", LEAVE_GROUP_MEMBER_EPOCH, None)]

    def _on_leave(self, answer: Answered) -> Actions:
        return self._gone("STOPPED")

    def _gone(self, reason: str) -> Actions:
        self.state = CLOSED
        return [Closed(reason)]

    # --- helpers ---

    def _rejoin(self) -> Actions:
        return self._join() if self.state is JOINING else []

    def _work(self, duration_ms: int) -> Actions:
        """Make the application busy with its records; the heartbeat thread watches the poll interval."""
        if self.is_busy or self.state is not STABLE:
            return []
        self.is_busy = True
        actions: Actions = [SetTimer(BUSY, duration_ms)]
        if duration_ms > self.config.max_poll_interval_ms:
            actions.append(SetTimer(POLL_EXPIRED, self.config.max_poll_interval_ms))
        return actions

    def _poll_expired(self) -> Actions:
        """Leave the group because the application did not poll (ShareMembershipManager.transitionToStale).

        The sessions with the brokers are not closed: the records fetched stay acquired.
        """
        if not self.is_busy or self.state is not STABLE:
            return []
        self.state, self.assigned = STALE, ()
        return [Heartbeat(0), CancelTimer(POLL), self._beat("leave-poll-expired", LEAVE_GROUP_MEMBER_EPOCH, None)]

    def _busy_no_more(self) -> Actions:
        self.is_busy = False
        return self._join() if self.state is STALE else []

    def _ignore(self, answer: Answered) -> Actions:
        return []


def _renewed(
    said: Mapping[TopicPartition, tuple[AcknowledgementBatch, ...]],
    owned: Mapping[TopicPartition, tuple[AcquiredRecords, ...]],
) -> dict[TopicPartition, tuple[AcquiredRecords, ...]]:
    """The records whose locks are renewed, with the delivery count with which each was acquired."""
    found: dict[TopicPartition, tuple[AcquiredRecords, ...]] = {}
    for at, batches in said.items():
        renewals = [batch for batch in batches if batch.acknowledge_types == (AcknowledgeType.RENEW,)]
        if renewals:
            found[at] = tuple(
                AcquiredRecords(batch.first_offset, batch.last_offset, records.delivery_count)
                for batch in renewals
                for records in owned[at]
                if records.first_offset <= batch.first_offset <= records.last_offset
            )
    return found


def _error_of(answer: Answered) -> ErrorCode:
    return ErrorCode(answer.response.error_code) if answer.error is None else answer.error


ANSWERS: Final[dict[str, Callable[[ShareConsumer, Answered], Actions]]] = {
    "join": ShareConsumer._on_join,
    "heartbeat": ShareConsumer._on_heartbeat,
    "leave": ShareConsumer._on_leave,
    "leave-poll-expired": ShareConsumer._ignore,
}
"""Tag of a request -> the method for its answer."""

TIMERS: Final[dict[str, Callable[[ShareConsumer], Actions]]] = {
    POLL: ShareConsumer._poll,
    RETRY: ShareConsumer._rejoin,
    BUSY: ShareConsumer._busy_no_more,
    POLL_EXPIRED: ShareConsumer._poll_expired,
}
"""Timer -> its method."""
