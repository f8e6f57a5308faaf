"""A consumer of the classic protocol: join, assign as leader, sync, heartbeat, poll interval; eager or cooperative.

States, as in AbstractCoordinator.MemberState:

* UNJOINED: no generation. A join follows at the next poll.
* LEAVING_OLD: before it joins again it commits its positions (onJoinPrepare); eager members then give up all
  partitions. A commit that may still succeed is tried again, for the rebalance timeout at most.
* JOINING: JoinGroup is under way.
* SYNCING: SyncGroup is under way.
* STABLE: it has its assignment, and reads.
* CLOSING: the last commit, then LeaveGroup.
* CLOSED: it has left.

The client's own thread may be busy (`SlowPoll`): it then neither commits nor rejoins, while its heartbeats continue,
until `max_poll_interval_ms` after the last poll, when the heartbeat thread leaves the group on its behalf (dynamic
members).

Source: ConsumerCoordinator and AbstractCoordinator of Kafka's clients.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from coordinator_core.errors import IllegalClientState
from coordinator_core.live.assignors.client_group import TopicPartition
from coordinator_core.live.classic.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from coordinator_core.live.classic.timers import heartbeat_key
from schemas.error_codes import ErrorCode
from simulator.simulation.clients.machine import (
    BUSY,
    POLL,
    POLL_EXPIRED,
    RETRIABLE,
    RETRY,
    RETRY_BACKOFF_MS,
    Actions,
    Answered,
    CancelTimer,
    Heartbeat,
    Send,
    SetTimer,
)
from simulator.simulation.clients.member import (
    CLOSED,
    CLOSING,
    JOINING,
    LEAVING_OLD,
    STABLE,
    SYNCING,
    UNJOINED,
    Member,
    MemberState,
    ReadingMember,
)
from simulator.simulation.clients.reader import COMMIT, FETCH, Reader
from simulator.simulation.clients.subscriptions import (
    Snapshot,
    assign_as_leader,
    assigned_partitions,
    metadata_snapshot,
    subscription_bytes,
    topics_of_group,
)

JOIN_VERSION: Final = 9
SYNC_VERSION: Final = 5
HEARTBEAT_VERSION: Final = 4
LEAVE_VERSION: Final = 5
"""The request versions on which 4.3 clients and brokers agree."""

PROTOCOL_TYPE: Final = "consumer"
NO_MEMBER_EPOCH: Final = -1

FATAL: Final = frozenset(
    {ErrorCode.FENCED_INSTANCE_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_MAX_SIZE_REACHED}
)
"""Errors that the application sees, and that end it."""
FORGOTTEN: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
"""Errors that mean: the group continued without this member."""

SUBSCRIPTION_CHANGED: Final = "group subscription has changed"
"""The reason of a join, in the words of Kafka's consumers."""

METADATA_CHANGED: Final = "cached metadata has changed"

JOIN_GROUP_TIMEOUT_LAPSE_MS: Final = 5000
"""A JoinGroup may take the rebalance timeout and this time (AbstractCoordinator.JOIN_GROUP_TIMEOUT_LAPSE)."""
CLOSE_TIMEOUT_MS: Final = 30_000
"""The most time that Consumer.close() takes (DEFAULT_CLOSE_TIMEOUT_MS)."""
COMMITTED_AGAIN: Final = RETRIABLE | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""Errors after which a commit is tried again before the member joins or leaves. The error of a deleted topic is one of
them, so the member then stays until its time is up (onJoinPrepare, maybeAutoCommitOffsetsSync)."""

RETRY_COMMIT: Final = "retry-commit"
"""A timer, besides those of all members and of the reader."""

VALID_PREVIOUS: Final[Mapping[MemberState, frozenset[MemberState]]] = {
    UNJOINED: frozenset({JOINING, SYNCING, STABLE, LEAVING_OLD, UNJOINED}),
    LEAVING_OLD: frozenset({STABLE, UNJOINED, SYNCING}),
    JOINING: frozenset({UNJOINED, LEAVING_OLD, JOINING, STABLE}),
    SYNCING: frozenset({JOINING}),
    STABLE: frozenset({SYNCING}),
    CLOSING: frozenset({UNJOINED, LEAVING_OLD, JOINING, SYNCING, STABLE}),
    CLOSED: frozenset({UNJOINED, LEAVING_OLD, JOINING, SYNCING, STABLE, CLOSING}),
}
"""New state -> the states that it may follow."""


@dataclass(slots=True)
class ClassicConsumer(ReadingMember):
    state: MemberState = field(default=UNJOINED, init=False)
    generation_id: int = field(default=-1, init=False)
    is_leader: bool = field(default=False, init=False)
    protocol_name: str | None = field(default=None, init=False)
    assigned: tuple[TopicPartition, ...] = field(default=(), init=False)
    """Its assignment, sorted; it reads those partitions whose positions it knows."""
    reader: Reader = field(init=False)
    sticky_assignment: tuple[TopicPartition, ...] | None = field(default=None, init=False)
    """The last assignment, as the sticky assignor remembers it."""
    is_lost: bool = field(default=False, init=False)
    """The group continued without it, and its thread has not noticed."""
    rejoin_reason: str = field(default="", init=False)
    """The reason why it has to join again; empty after a successful SyncGroup, like Kafka's rejoinReason and
    rejoinNeeded.
    """

    joined_with: tuple[str, ...] = field(default=(), init=False)
    """The subscription of its last JoinGroup (joinedSubscription)."""
    commit_until_ms: int = field(default=0, init=False)
    """Until when the commit before a join or leave is tried again."""
    group_topics: frozenset[str] = field(default=frozenset(), init=False)
    """As leader: all topics of the group."""
    snapshot: Snapshot = field(default_factory=dict, init=False)
    """As leader: the metadata from which it computed the assignment (assignmentSnapshot)."""
    has_new_metadata: bool = field(default=False, init=False)
    """Its metadata has changed since it last compared it with `snapshot`."""

    def __post_init__(self) -> None:
        Member.__post_init__(self)
        self.reader = Reader(self.config, self.topics)

    def heartbeat(self) -> Send:
        request = HeartbeatRequest(self.config.group_id, self.generation_id, self.member_id, self.config.instance_id)
        return self._send("classic_heartbeat", request, "heartbeat", HEARTBEAT_VERSION)

    def session_key(self) -> str:
        return heartbeat_key(self.config.group_id, self.member_id)

    # --- joining ---

    def _start(self, now_ms: int) -> Actions:
        return self._rejoin("", now_ms)

    def _rejoin(self, reason: str, now_ms: int) -> Actions:
        """Join at the current poll: first commit the positions; eager members then give up their partitions."""
        if self.reader.is_busy:
            self.rejoin_reason = reason
            return []
        self.rejoin_reason = reason
        if self.is_lost:
            actions = self.reader.give(self.assigned, "LOST", now_ms)
            self.is_lost, self.assigned = False, ()
            return [*actions, *self._join(now_ms)]
        if self.reader.commits_by_itself:
            self._enter(LEAVING_OLD)
            self.commit_until_ms = now_ms + self.config.max_poll_interval_ms
            commit = self._commit("commit-before-join", now_ms)
            self.reader.is_pending_revocation = not self.config.is_cooperative
            return [CancelTimer(POLL), CancelTimer(COMMIT), *commit]
        return self._prepare_and_join(now_ms)

    def _prepare_and_join(self, now_ms: int) -> Actions:
        actions: Actions = []
        if not self.config.is_cooperative:
            actions = self.reader.give(self.assigned, "REVOKED", now_ms)
            self.assigned = ()
        self.reader.is_pending_revocation = False
        return [*actions, *self._join(now_ms)]

    def _join(self, now_ms: int) -> Actions:
        self._enter(JOINING)
        self.joined_with = self.subscribed
        config = self.config
        request = JoinGroupRequest(
            config.group_id,
            config.spec.session_ms,
            config.max_poll_interval_ms,
            self.member_id,
            PROTOCOL_TYPE,
            tuple(JoinProtocol(name, self._subscription(name)) for name in config.assignors),
            config.instance_id,
            self.rejoin_reason,
        )
        timeout_ms = max(config.spec.request_timeout_ms, config.max_poll_interval_ms + JOIN_GROUP_TIMEOUT_LAPSE_MS)
        join = self._send("classic_join", request, "join", JOIN_VERSION, timeout_ms)
        return [Heartbeat(0), CancelTimer(POLL), CancelTimer(COMMIT), join]

    def _subscription(self, assignor: str) -> bytes:
        return subscription_bytes(
            assignor,
            self.subscribed,
            self.assigned,
            self.generation_id,
            self.sticky_assignment,
            self.config.rack_id,
        )

    def _on_join(self, answer: Answered, now_ms: int) -> Actions:
        if self.state is not JOINING:
            return []
        code = answer.code
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.response.member_id
            self.rejoin_reason = f"need to re-join with the given member-id: {self.member_id}"
            return self._join(now_ms)
        if code is not ErrorCode.NONE:
            return self._on_join_refused(code)
        response = answer.response
        self.member_id, self.generation_id = response.member_id, response.generation_id
        self.protocol_name, self.is_leader = response.protocol_name, response.leader == response.member_id
        self._enter(SYNCING)
        assignments: tuple[SyncGroupRequestAssignment, ...] = ()
        if self.is_leader:
            self.group_topics, self.has_new_metadata = topics_of_group(response), False
            self.snapshot = self._metadata(now_ms)
            if not response.skip_assignment:
                assignments = assign_as_leader(response, self.topics, now_ms)
        request = SyncGroupRequest(
            self.config.group_id,
            self.generation_id,
            self.member_id,
            self.config.instance_id,
            PROTOCOL_TYPE,
            self.protocol_name,
            assignments,
        )
        sync = self._send("classic_sync", request, "sync", SYNC_VERSION, self.config.spec.request_timeout_ms)
        return [Heartbeat(self.config.spec.heartbeat_ms), sync]

    def _on_join_refused(self, code: ErrorCode) -> Actions:
        if code in FATAL:
            return self._gone(code.name)
        if code in FORGOTTEN:
            self._forget_generation()
        self._enter(UNJOINED)
        return [Heartbeat(0), SetTimer(RETRY, RETRY_BACKOFF_MS)]

    def _on_sync(self, answer: Answered, now_ms: int) -> Actions:
        if self.state is not SYNCING:
            return []
        code = answer.code
        if code is not ErrorCode.NONE:
            if code in FATAL:
                return self._gone(code.name)
            if code in FORGOTTEN:
                self._forget_generation()
                self.is_lost = True
            self._enter(UNJOINED)
            delay_ms = 0 if code is ErrorCode.REBALANCE_IN_PROGRESS else RETRY_BACKOFF_MS
            return [Heartbeat(0), SetTimer(RETRY, delay_ms)]
        self._enter(STABLE)
        self.rejoin_reason = ""
        actions = self._take_assignment(assigned_partitions(answer.response.assignment), now_ms)
        if self.joined_with != self.subscribed:
            actions += self._at_next_poll(SUBSCRIPTION_CHANGED)
        return [*actions, *self._compare_metadata(now_ms)]

    def _take_assignment(self, assigned: tuple[TopicPartition, ...], now_ms: int) -> Actions:
        revoked = tuple(at for at in self.assigned if at not in set(assigned))
        self.assigned = self.sticky_assignment = assigned
        actions = self.reader.give(revoked, "REVOKED", now_ms)
        if revoked and self.config.is_cooperative:
            # Another member may get the partitions that this one has just given up only in the next generation.
            self.rejoin_reason = "need to revoke partitions and re-join"
            actions.append(SetTimer(POLL, 0))
        added = self.reader.missing(assigned)
        return [*actions, *([self._fetch(added)] if added else self.reader.commit_later())]

    def _fetch(self, partitions: Sequence[TopicPartition]) -> Send:
        return self.reader.fetch(partitions, self.member_id, NO_MEMBER_EPOCH)

    def _on_fetch(self, answer: Answered, now_ms: int) -> Actions:
        if self.state is not STABLE:
            return []
        return self.reader.on_fetch(answer, self.assigned, self.generation_id, now_ms)

    def _fetch_again(self, now_ms: int) -> Actions:
        missing = self.reader.missing(self.assigned)
        return [self._fetch(missing)] if self.state is STABLE and missing else []

    # --- reading and committing ---

    def _commit(self, tag: str, now_ms: int) -> Actions:
        return self.reader.commit(tag, self.generation_id, self.member_id, now_ms)

    def _commit_in_time(self, now_ms: int) -> Actions:
        if self.state is not STABLE or self.reader.is_busy or self.config.auto_commit_interval_ms is None:
            return []
        commit = self._commit("commit", now_ms) if self.reader.has_positions else []
        return [*commit, *self.reader.commit_later()]

    def _on_commit(self, answer: Answered, now_ms: int) -> Actions:
        if self.state is not STABLE or not self._is_of_present(answer):
            return []
        return self._on_group_error(_commit_error(answer), now_ms)

    def _on_commit_before_join(self, answer: Answered, now_ms: int) -> Actions:
        if self.state is not LEAVING_OLD:
            return []
        code = _commit_error(answer)
        if code in COMMITTED_AGAIN and now_ms < self.commit_until_ms:
            return [SetTimer(RETRY_COMMIT, RETRY_BACKOFF_MS)]
        if code in FORGOTTEN and self._is_of_present(answer):
            self._forget_generation()
            self.reader.is_pending_revocation = False
            self.is_lost = True
            self._enter(UNJOINED)
            return self._rejoin(self.rejoin_reason, now_ms)
        return self._prepare_and_join(now_ms)

    def _commit_again(self, now_ms: int) -> Actions:
        tag = {LEAVING_OLD: "commit-before-join", CLOSING: "commit-before-close"}.get(self.state)
        return [] if tag is None else self._commit(tag, now_ms)

    def _on_heartbeat(self, answer: Answered, now_ms: int) -> Actions:
        code = answer.code
        if code is ErrorCode.NONE or self.state not in {STABLE, SYNCING} or not self._is_of_present(answer):
            return []
        return self._on_group_error(code, now_ms)

    def _is_of_present(self, answer: Answered) -> bool:
        """Whether a request was sent in the current generation: answers to older ones are ignored."""
        request = answer.request
        generation_id = getattr(request, "generation_id", None)
        if generation_id is None:
            generation_id = getattr(request, "generation_id_or_member_epoch", self.generation_id)
        return bool(generation_id == self.generation_id)

    def _on_group_error(self, code: ErrorCode, now_ms: int) -> Actions:
        """Handle an error of the group in the answer to a heartbeat or a commit."""
        if code in FATAL:
            return self._gone(code.name)
        if code in FORGOTTEN:
            self._forget_generation()
            self._enter(UNJOINED)
            self.is_lost = True
            return [Heartbeat(0), CancelTimer(COMMIT), *self._at_next_poll(f"group forgot the member: {code.name}")]
        if code is ErrorCode.REBALANCE_IN_PROGRESS and self.state is STABLE:
            return self._at_next_poll("group is already rebalancing")
        return []

    def _at_next_poll(self, reason: str) -> Actions:
        """Rejoin at the next poll: polls are `poll_interval_ms` apart, and the current one began at a random time."""
        self.rejoin_reason = reason
        return [SetTimer(POLL, self.draws.randrange(self.config.spec.poll_interval_ms))]

    def _poll(self, now_ms: int) -> Actions:
        """Poll, and join the group again."""
        if self.state not in {STABLE, UNJOINED} or self.reader.is_busy:
            return []
        return self._rejoin(self.rejoin_reason, now_ms)

    # --- events of the scenario ---

    def _on_topics_changed(self, now_ms: int) -> Actions:
        self.has_new_metadata = True
        return self._compare_metadata(now_ms)

    def _compare_metadata(self, now_ms: int) -> Actions:
        """As leader, join again if the metadata shows other partitions than those that it assigned.

        It looks at a poll, as rejoinNeededOrPending does: once it is stable, and its thread is free.
        """
        if not self.has_new_metadata or self.state is not STABLE or self.reader.is_busy:
            return []
        self.has_new_metadata = False
        if not self.is_leader or self.rejoin_reason or self._metadata(now_ms) == self.snapshot:
            return []
        return self._at_next_poll(METADATA_CHANGED)

    def _metadata(self, now_ms: int) -> Snapshot:
        has_rack = self.config.rack_id is not None
        return metadata_snapshot(self.group_topics, self.topics, now_ms, has_rack=has_rack)

    def _on_subscription(self) -> Actions:
        """The next poll finds that it joined with other topics (ConsumerCoordinator.rejoinNeededOrPending)."""
        if self.state is not STABLE or self.joined_with == self.subscribed:
            return []
        if self.reader.is_busy:
            self.rejoin_reason = SUBSCRIPTION_CHANGED
            return []
        return self._at_next_poll(SUBSCRIPTION_CHANGED)

    def _work(self, duration_ms: int, now_ms: int) -> Actions:
        if self.reader.is_busy or self.state not in {STABLE, UNJOINED}:
            return []
        return self.reader.work(duration_ms, now_ms)

    def _poll_expired(self, now_ms: int) -> Actions:
        """The heartbeat thread leaves the group because the application did not poll (maybeLeaveGroup). Static members
        only stop their heartbeats.
        """
        if not self.reader.is_busy or self.state is not STABLE:
            return []
        actions: Actions = [Heartbeat(0), CancelTimer(COMMIT)]
        if self.config.instance_id is None:
            actions.append(self._leave("consumer poll timeout has expired.", "leave-poll-expired"))
        self._forget_generation()
        self._enter(UNJOINED)
        self.is_lost = True
        self.rejoin_reason = "consumer poll timeout has expired."
        return actions

    def _busy_no_more(self, now_ms: int) -> Actions:
        self.reader.work_no_more(now_ms)
        if self.is_lost or self.state is UNJOINED or self.rejoin_reason:
            return self._rejoin(self.rejoin_reason, now_ms) if self.state in {STABLE, UNJOINED} else []
        return [*self._commit_in_time(now_ms), *self._compare_metadata(now_ms)]

    def _close(self, now_ms: int) -> Actions:
        self.reader.is_busy = False
        before = self.state
        self._enter(CLOSING)
        if before is STABLE and self.reader.commits_by_itself:
            self.commit_until_ms = now_ms + CLOSE_TIMEOUT_MS
            return self._commit("commit-before-close", now_ms)
        return self._leave_for_good(now_ms)

    def _on_commit_before_close(self, answer: Answered, now_ms: int) -> Actions:
        if _commit_error(answer) in COMMITTED_AGAIN and now_ms < self.commit_until_ms:
            return [SetTimer(RETRY_COMMIT, RETRY_BACKOFF_MS)]
        return self._leave_for_good(now_ms)

    def _leave_for_good(self, now_ms: int) -> Actions:
        actions = [*self.reader.give(self.assigned, "CLOSED", now_ms), Heartbeat(0)]
        if self.member_id and self.config.instance_id is None:
            return [*actions, self._leave("the consumer is being closed", "leave")]
        return [*actions, *self._gone("STOPPED")]

    def _leave(self, reason: str, tag: str) -> Send:
        member = MemberIdentity(self.member_id, self.config.instance_id, reason)
        return self._send("classic_leave", LeaveGroupRequest(self.config.group_id, (member,)), tag, LEAVE_VERSION)

    # --- helpers ---

    def _enter(self, state: MemberState) -> None:
        if self.state not in VALID_PREVIOUS[state]:
            raise IllegalClientState(f"{state} may not follow {self.state}")
        self.state = state

    def _forget_generation(self) -> None:
        self.member_id, self.generation_id, self.is_leader = "", -1, False

    def _retry(self, now_ms: int) -> Actions:
        return self._rejoin(self.rejoin_reason, now_ms) if self.state is UNJOINED else []

    ANSWERS: ClassVar = {
        "join": _on_join,
        "sync": _on_sync,
        "heartbeat": _on_heartbeat,
        "fetch": _on_fetch,
        "commit": _on_commit,
        "commit-before-join": _on_commit_before_join,
        "commit-before-close": _on_commit_before_close,
        "leave": Member._on_leave,
        "leave-poll-expired": Member._ignore,
    }
    TIMERS: ClassVar = {
        **ReadingMember.PRODUCER_TIMERS,
        POLL: _poll,
        RETRY: _retry,
        RETRY_COMMIT: _commit_again,
        COMMIT: _commit_in_time,
        BUSY: _busy_no_more,
        POLL_EXPIRED: _poll_expired,
        FETCH: _fetch_again,
    }


def _commit_error(answer: Answered) -> ErrorCode:
    """The error of a commit: that of the whole request, or the first error of a partition that concerns the group."""
    if answer.error is not None:
        return answer.error
    codes = (partition.error_code for topic in answer.response.topics for partition in topic.partitions)
    return ErrorCode(next((code for code in codes if code in FATAL | FORGOTTEN | COMMITTED_AGAIN), 0))
