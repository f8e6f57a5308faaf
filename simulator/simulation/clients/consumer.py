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

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from coordinator_core.live.assignors.client_group import TopicPartition
from coordinator_core.live.consumer.messages import ConsumerGroupHeartbeatRequest
from coordinator_core.live.coordinator.modern_messages import TopicPartitions
from coordinator_core.replay.member_epochs import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
)
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
    SetTimer,
)
from simulator.simulation.clients.member import (
    JOINING,
    LEAVING,
    RECONCILING,
    STABLE,
    STALE,
    HeartbeatMember,
    Member,
    ReadingMember,
)
from simulator.simulation.clients.reader import COMMIT, FETCH, Reader

HEARTBEAT_VERSION: Final = 1


@dataclass(slots=True)
class ConsumerMember(HeartbeatMember, ReadingMember):
    owned: tuple[TopicPartition, ...] = field(default=(), init=False)
    target: tuple[TopicPartition, ...] = field(default=(), init=False)
    """Its target assignment: what the coordinator assigned to it."""
    target_ids: tuple[TopicPartitions, ...] = field(default=(), init=False)
    """The target assignment by topic id."""
    reader: Reader = field(init=False)
    is_committing: bool = field(default=False, init=False)
    """The commit before a revocation is under way."""

    def __post_init__(self) -> None:
        HeartbeatMember.__post_init__(self)
        self.reader = Reader(self.config, self.topics)

    # --- heartbeats ---

    def _heartbeat(self, tag: str, member_epoch: int, **fields: Any) -> Send:
        request = ConsumerGroupHeartbeatRequest(
            self.config.group_id, self.member_id, member_epoch, self.config.instance_id, **fields
        )
        return self._send("consumer_group_heartbeat", request, tag, HEARTBEAT_VERSION)

    def _full_beat(self, tag: str) -> Send:
        """A heartbeat with all fields: when the member joins, and after an error."""
        assignor = self.config.assignors[0] if self.config.assignors else None
        self.sent = self.subscribed
        return self._heartbeat(
            tag,
            self.member_epoch,
            rack_id=self.config.rack_id,
            rebalance_timeout_ms=self.config.max_poll_interval_ms,
            subscribed_topic_names=tuple(sorted(self.subscribed)),
            server_assignor=assignor,
            topic_partitions=(),
        )

    def _start(self, now_ms: int) -> Actions:
        self.state, self.member_epoch, self.owned, self.target = JOINING, JOIN_GROUP_MEMBER_EPOCH, (), ()
        self.is_committing = False
        return [Heartbeat(0), CancelTimer(COMMIT), CancelTimer(POLL), self._full_beat("join")]

    def _rejoin(self, now_ms: int) -> Actions:
        return [self._full_beat("join")] if self.state is JOINING else []

    def _fenced(self, now_ms: int) -> Actions:
        return [*self.reader.give(self.owned, "LOST", now_ms), *self._start(now_ms)]

    def _on_response(self, response: Any, now_ms: int) -> Actions:
        self.member_epoch = response.member_epoch
        target = self._target_of(response)
        if target is None:
            return []
        self.target = target
        if self.state is RECONCILING:
            return []
        self.state = RECONCILING
        return [SetTimer(POLL, self.draws.randrange(self.config.spec.poll_interval_ms))]

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
        return self._heartbeat(
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

    def _commit_in_time(self, now_ms: int) -> Actions:
        if self.state not in {STABLE, RECONCILING} or self.reader.is_busy or self.is_committing:
            return []
        commit = self._commit("commit", now_ms) if self.reader.has_positions else []
        return [*commit, *self.reader.commit_later()]

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
        return [Heartbeat(0), CancelTimer(COMMIT), self._heartbeat("leave-poll-expired", self._leave_epoch)]

    def _busy_no_more(self, now_ms: int) -> Actions:
        self.reader.work_no_more(now_ms)
        if self.state is STALE:
            return self._fenced(now_ms)
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
        return [*actions, self._heartbeat("leave", self._leave_epoch)]

    @property
    def _leave_epoch(self) -> int:
        """The epoch for leaving: static members leave temporarily."""
        return LEAVE_GROUP_MEMBER_EPOCH if self.config.instance_id is None else LEAVE_GROUP_STATIC_MEMBER_EPOCH

    ANSWERS: ClassVar = {
        "join": HeartbeatMember._on_join,
        "heartbeat": HeartbeatMember._on_heartbeat,
        "fetch": _on_fetch,
        "commit": Member._ignore,
        "commit-before-revoke": _on_commit_before_revoke,
        "commit-before-close": _on_commit_before_close,
        "leave": Member._on_leave,
        "leave-poll-expired": Member._ignore,
    }
    """A failed commit is ignored: the next one follows, and heartbeats report worse errors."""
    TIMERS: ClassVar = {
        **ReadingMember.PRODUCER_TIMERS,
        POLL: _poll,
        RETRY: _rejoin,
        COMMIT: _commit_in_time,
        BUSY: _busy_no_more,
        POLL_EXPIRED: _poll_expired,
        FETCH: _fetch_missing,
    }
