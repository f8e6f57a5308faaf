"""A share consumer (KIP-932): heartbeats to the coordinator, fetches and acknowledgements to the leaders of the data.

* JOINING: the heartbeat of epoch 0 is under way.
* STABLE: it polls every `poll_interval_ms`; a poll is one ShareFetch to each broker that leads partitions of its
  assignment, and carries the acknowledgements for the records of the poll before.
* STALE: it left because the application did not poll within `max_poll_interval_ms`; it joins again at the next poll.
  The records that it had fetched stay acquired until then, or until the locks expire.
* FAILED: its application stopped with an exception and did not close it: it heartbeats until `max_poll_interval_ms`.
* LEAVING: it releases the records that it has (a ShareAcknowledge of session epoch -1), then leaves.
* CLOSED: it has left.

Implicit acknowledgement: the next poll accepts all records of the one before. Explicit: the application accepts,
releases or rejects each record, and polls only when it has acknowledged all (KafkaShareConsumer.poll refuses else).
It may work on a poison record until the lock expires: it commits the acknowledgements of the others before, in a
ShareAcknowledge, and accepts that record at the poll after it, too late. Or it forgets the record, and stops.

RENEW: if a record takes longer than one poll, its lock is renewed, in a ShareAcknowledge: a request that renews locks
fetches nothing.

Sessions: one with each broker. A broker that does not know the session, or that restarted without it, reports this: the
member opens a new one, and the records that it had acquired there are lost to it.

Source: ShareConsumerImpl, ShareConsumeRequestManager, ShareSessionHandler, ShareMembershipManager.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from coordinator_core.live.assignors.client_group import TopicPartition
from coordinator_core.live.share.messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from coordinator_core.live.share_partition.state import AcknowledgementBatch, AcquiredRecords
from coordinator_core.live.share_partition.states import AcknowledgeType
from coordinator_core.replay.member_epochs import JOIN_GROUP_MEMBER_EPOCH, LEAVE_GROUP_MEMBER_EPOCH
from schemas.error_codes import ErrorCode
from simulator.simulation.clients.machine import (
    BUSY,
    POLL,
    POLL_EXPIRED,
    RETRY,
    Actions,
    Answered,
    CancelTimer,
    Heartbeat,
    Send,
    Service,
    SetTimer,
)
from simulator.simulation.clients.member import (
    FAILED,
    JOINING,
    LEAVING,
    STABLE,
    STALE,
    HeartbeatMember,
    Member,
)
from simulator.simulation.clients.share_messages import (
    CLOSE_EPOCH,
    OPEN_EPOCH,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    SHARE_FETCH_VERSION,
    ShareFetchRequest,
    ShareFetchResponse,
)

HEARTBEAT_VERSION: Final = 1

POISON_TYPES: Final = {"reject": AcknowledgeType.REJECT, "release": AcknowledgeType.RELEASE}
"""`on_poison` -> the acknowledgement of a poison record; of the others none is looked up."""
TIME_OUT, FORGET = "time_out", "forget"
"""`on_poison`: the application works on the record until its lock has expired, or polls on without having acknowledged
it."""
NOT_ACKNOWLEDGED: Final = "IllegalStateException: All records must be acknowledged in explicit acknowledgement mode."
OPEN: Final = ()
"""The type of records that the application has not acknowledged yet."""


@dataclass(slots=True)
class Session:
    """The session with one broker, and the records fetched in it that are not acknowledged yet."""

    epoch: int = OPEN_EPOCH
    partitions: tuple[TopicPartition, ...] = ()
    """The partitions of the session on the broker, once the request under way is answered."""
    request: ShareFetchRequest | None = None
    """The request under way; an answer to any other request, from an earlier session, is too late."""
    owned: dict[TopicPartition, tuple[AcquiredRecords, ...]] = field(default_factory=dict)
    kept: dict[TopicPartition, tuple[AcquiredRecords, ...]] = field(default_factory=dict)
    """The records whose locks the request under way renews, or that it leaves out: they are acknowledged at the next
    poll."""
    is_kept: bool = False
    """The records that it has now are the kept ones."""


@dataclass(slots=True)
class ShareConsumer(HeartbeatMember):
    data_leader: Callable[[TopicPartition], int | None]
    """The leader of a data partition, according to the metadata."""
    assigned: tuple[TopicPartition, ...] = field(default=(), init=False)
    sessions: dict[int, Session] = field(default_factory=dict, init=False)
    """Broker id -> session."""
    is_busy: bool = field(default=False, init=False)
    lock_timeout_ms: int = field(default=0, init=False)
    """How long records stay acquired, according to the newest answer."""
    works_until_ms: int = field(default=0, init=False)
    """The application works on a poison record until then."""

    def positions(self, now_ms: int) -> list[tuple[TopicPartition, int]]:
        """Members of share groups own nothing."""
        return []

    # --- membership ---

    def _heartbeat(self, tag: str, member_epoch: int, **fields: Any) -> Send:
        request = ShareGroupHeartbeatRequest(self.config.group_id, self.member_id, member_epoch, **fields)
        return self._send("share_group_heartbeat", request, tag, HEARTBEAT_VERSION)

    def _start(self, now_ms: int) -> Actions:
        self.state, self.member_epoch, self.assigned = JOINING, JOIN_GROUP_MEMBER_EPOCH, ()
        self.sent = self.subscribed
        names = tuple(sorted(self.subscribed))
        join = self._heartbeat("join", self.member_epoch, rack_id=self.config.rack_id, subscribed_topic_names=names)
        return [Heartbeat(0), CancelTimer(POLL), join]

    def _fenced(self, now_ms: int) -> Actions:
        """The member loses the records that it had acquired."""
        self.sessions.clear()
        if self.state is FAILED:
            return [Heartbeat(0)]
        return self._start(now_ms)

    def _joined(self, response: ShareGroupHeartbeatResponse, now_ms: int) -> Actions:
        first_poll_ms = self.draws.randrange(self.config.spec.poll_interval_ms)
        return [*self._on_response(response, now_ms), SetTimer(POLL, first_poll_ms)]

    def _on_answer(self, answer: Answered, now_ms: int) -> Actions:
        if answer.tag.startswith(SHARE_FETCH):
            return self._on_fetch(answer, int(answer.tag.rpartition(":")[2]))
        return self.ANSWERS[answer.tag](self, answer, now_ms)

    def _on_response(self, response: ShareGroupHeartbeatResponse, now_ms: int) -> Actions:
        self.member_epoch = response.member_epoch
        if response.assignment is not None:
            self.assigned = self._partitions(response.assignment)
        return []

    # --- polling ---

    def _poll(self, now_ms: int) -> Actions:
        """Send a request to each broker that leads assigned partitions, or with which the member has a session to
        settle.
        """
        if self.state is not STABLE:
            return []
        actions: Actions = [SetTimer(POLL, self.config.spec.poll_interval_ms)]
        if self.is_busy or now_ms < self.works_until_ms:
            return actions
        holds = any(self._holds(session) for session in self.sessions.values())
        if holds and self.config.spec.on_poison == FORGET:
            return self._fail()
        if holds:
            self.works_until_ms = now_ms + self.lock_timeout_ms
        by_broker: dict[int, list[TopicPartition]] = {broker_id: [] for broker_id in sorted(self.sessions)}
        for at in self.assigned:
            leader = self.data_leader(at)
            if leader is not None:
                by_broker.setdefault(leader, []).append(at)
        for broker_id, partitions in sorted(by_broker.items()):
            session = self.sessions.setdefault(broker_id, Session())
            if session.request is None and (session.owned or (partitions and not holds)):
                actions += self._fetch(broker_id, session, tuple(partitions), session.epoch, fetches=not holds)
        return actions

    def _fail(self) -> Actions:
        """The poll ends the application's loop with an exception.

        What it acknowledged would have gone with the next request, so the locks of all its records expire together.
        Heartbeats go on until the poll interval is over. Source: KafkaShareConsumer.poll (KAFKA-20458).
        """
        self.state, self.failure = FAILED, NOT_ACKNOWLEDGED
        return [SetTimer(POLL_EXPIRED, self.config.max_poll_interval_ms)]

    def _holds(self, session: Session) -> bool:
        """Whether the application has just got a poison record that it does not acknowledge in time."""
        if session.is_kept or self.config.spec.on_poison not in {TIME_OUT, FORGET}:
            return False
        said = (self._acknowledge(at, acquired, session) for at, acquired in session.owned.items())
        return any(batch.acknowledge_types == OPEN for batches in said for batch in batches)

    def _fetch(
        self,
        broker_id: int,
        session: Session,
        partitions: tuple[TopicPartition, ...],
        epoch: int,
        *,
        fetches: bool = True,
    ) -> Actions:
        is_last = epoch == CLOSE_EPOCH
        said = {at: self._acknowledge(at, acquired, session, is_last) for at, acquired in session.owned.items()}
        given = {at: tuple(it for it in batches if it.acknowledge_types != OPEN) for at, batches in said.items()}
        acknowledgements = {at: batches for at, batches in given.items() if batches}
        kept = {} if is_last else _kept(said, session.owned)
        operation = SHARE_FETCH if fetches and not (kept or is_last) else SHARE_ACKNOWLEDGE
        if operation == SHARE_ACKNOWLEDGE and not (acknowledgements or is_last):
            session.is_kept = True
            return []
        session.owned, session.kept = {}, kept
        added: tuple[TopicPartition, ...] = ()
        forgotten: tuple[TopicPartition, ...] = ()
        if operation == SHARE_FETCH:
            added = tuple(at for at in partitions if at not in session.partitions)
            forgotten = tuple(at for at in session.partitions if at not in partitions)
            session.partitions = partitions
        spec, is_fetch = self.config.spec, operation == SHARE_FETCH
        request = ShareFetchRequest(
            self.config.group_id,
            self.member_id,
            epoch,
            added,
            acknowledgements,
            spec.max_poll_records if is_fetch else 0,
            forgotten,
            spec.acquire_mode == "record_limit",
            spec.fetch_max_wait_ms if is_fetch else 0,
            spec.fetch_min_bytes,
            spec.fetch_max_bytes,
        )
        session.request = request
        tag = f"{SHARE_FETCH}:{broker_id}"
        return [Send(Service.DATA, broker_id, operation, request, tag, SHARE_FETCH_VERSION)]

    def _acknowledge(
        self, at: TopicPartition, acquired: tuple[AcquiredRecords, ...], session: Session, is_last: bool = False
    ) -> tuple[AcknowledgementBatch, ...]:
        """The application's acknowledgement of the records, in runs of one type each. `is_last`: it closes."""
        if self.config.spec.acknowledge == "implicit" and not self.topics.partition(at).has_markers:
            accept = (int(AcknowledgeType.ACCEPT),)
            return tuple(
                AcknowledgementBatch(records.first_offset, records.last_offset, accept) for records in acquired
            )
        batches: list[AcknowledgementBatch] = []
        for records in acquired:
            for offset in range(records.first_offset, records.last_offset + 1):
                kind = self._verdict(at, offset, records.delivery_count, session.is_kept, is_last)
                types = OPEN if kind is None else (int(kind),)
                last = batches[-1] if batches else None
                if last is not None and last.last_offset == offset - 1 and last.acknowledge_types == types:
                    batches[-1] = last._replace(last_offset=offset)
                else:
                    batches.append(AcknowledgementBatch(offset, offset, types))
        return tuple(batches)

    def _verdict(
        self, at: TopicPartition, offset: int, delivery_count: int, is_kept: bool, is_last: bool
    ) -> AcknowledgeType | None:
        """None: the record stays unacknowledged."""
        if self.topics.partition(at).is_marker(offset):
            return AcknowledgeType.GAP
        if self.config.spec.acknowledge == "implicit":
            return AcknowledgeType.ACCEPT
        is_poison = self.topics.partition(at).next_poison_offset(offset, offset + 1) is not None
        if is_poison and self.config.spec.on_poison == FORGET:
            return None
        if is_poison and self.config.spec.on_poison == TIME_OUT:
            return AcknowledgeType.ACCEPT if is_kept and not is_last else None
        if is_poison and self.config.spec.on_poison != "skip":
            return POISON_TYPES[self.config.spec.on_poison]
        renew_every = self.config.spec.renew_every
        if not (is_kept or is_last) and renew_every and offset % renew_every == renew_every - 1:
            return AcknowledgeType.RENEW
        every = self.config.spec.release_every
        if every and delivery_count == 1 and offset % every == every - 1:
            return AcknowledgeType.RELEASE
        return AcknowledgeType.ACCEPT

    def _on_fetch(self, answer: Answered, broker_id: int) -> Actions:
        session = self.sessions.get(broker_id)
        if session is None or session.request is None or answer.request is not session.request:
            return []
        request, session.request = session.request, None
        if self.state is LEAVING:
            if request.session_epoch != CLOSE_EPOCH and answer.code is ErrorCode.NONE:
                # A fetch was under way when the application closed: its records are released with the session.
                return self._fetch(broker_id, session, (), CLOSE_EPOCH)
            del self.sessions[broker_id]
            return self._leave_if_done()
        if answer.code is not ErrorCode.NONE:
            del self.sessions[broker_id]
            return []
        session.epoch += 1
        response: ShareFetchResponse = answer.response
        self.lock_timeout_ms = response.lock_timeout_ms
        session.is_kept = bool(session.kept)
        session.owned, session.kept = dict(session.kept), {}
        session.owned |= {at: acquired for at, acquired in response.acquired.items() if acquired}
        return []

    # --- the end ---

    def _close(self, now_ms: int) -> Actions:
        """Acknowledge the processed records, release the rest, then leave."""
        was_joined = self.state is STABLE
        self.state = LEAVING
        actions: Actions = [CancelTimer(POLL)]
        if not was_joined:
            return [*actions, *self._leave()]
        for broker_id in sorted(self.sessions):
            session = self.sessions[broker_id]
            if session.epoch == OPEN_EPOCH and session.request is None:
                # Not opened: the broker has no records to release.
                del self.sessions[broker_id]
            elif session.request is None:
                actions += self._fetch(broker_id, session, (), CLOSE_EPOCH)
        return [*actions, *self._leave_if_done()]

    def _leave_if_done(self) -> Actions:
        return [] if self.sessions else self._leave()

    def _leave(self) -> Actions:
        return [Heartbeat(0), self._heartbeat("leave", LEAVE_GROUP_MEMBER_EPOCH)]

    def _work(self, duration_ms: int, now_ms: int) -> Actions:
        """Make the application busy with its records."""
        if self.is_busy or self.state is not STABLE:
            return []
        self.is_busy = True
        return [*self.config.busy_for(duration_ms)]

    def _poll_expired(self, now_ms: int) -> Actions:
        """Leave the group because the application did not poll (ShareMembershipManager.transitionToStale).

        The sessions with the brokers are not closed: the records fetched stay acquired.
        """
        if self.state is not FAILED and not (self.is_busy and self.state is STABLE):
            return []
        self.state, self.assigned = STALE, ()
        return [Heartbeat(0), CancelTimer(POLL), self._heartbeat("leave-poll-expired", LEAVE_GROUP_MEMBER_EPOCH)]

    def _busy_no_more(self, now_ms: int) -> Actions:
        self.is_busy = False
        return self._start(now_ms) if self.state is STALE else []

    ANSWERS: ClassVar = {
        "join": HeartbeatMember._on_join,
        "heartbeat": HeartbeatMember._on_heartbeat,
        "leave": Member._on_leave,
        "leave-poll-expired": Member._ignore,
    }
    TIMERS: ClassVar = {POLL: _poll, RETRY: HeartbeatMember._rejoin, BUSY: _busy_no_more, POLL_EXPIRED: _poll_expired}


def _kept(
    said: Mapping[TopicPartition, tuple[AcknowledgementBatch, ...]],
    owned: Mapping[TopicPartition, tuple[AcquiredRecords, ...]],
) -> dict[TopicPartition, tuple[AcquiredRecords, ...]]:
    """The records that the application keeps, with the delivery count with which each was acquired."""
    found: dict[TopicPartition, tuple[AcquiredRecords, ...]] = {}
    for at, batches in said.items():
        kept = [batch for batch in batches if batch.acknowledge_types in (OPEN, (AcknowledgeType.RENEW,))]
        if kept:
            found[at] = tuple(
                AcquiredRecords(batch.first_offset, batch.last_offset, records.delivery_count)
                for batch in kept
                for records in owned[at]
                if records.first_offset <= batch.first_offset <= records.last_offset
            )
    return found
