"""Clients of a live coordinator, for tests: requests with few words, and a clock which the test moves."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from coordinator_core.bytes.client_protocols import Subscription, encode_subscription
from coordinator_core.live.classic.live import LiveClassicGroup
from coordinator_core.live.classic.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from coordinator_core.live.coordinator.config import GroupCoordinatorConfig
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.modules import MODULES
from coordinator_core.live.coordinator.operation import Outcome
from coordinator_core.live.coordinator.records import AppendedRecord, CoordinatorRecord, Producer
from coordinator_core.live.coordinator.shard import GroupCoordinator
from coordinator_core.live.offsets.messages import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from coordinator_core.replay.classic.state import ClassicGroupState
from schemas.error_codes import ErrorCode
from tests.coordinator_core.logs import CountingLog

GROUP = "g"
SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 60_000
START_MS = 1_000_000


class FailingLog(CountingLog):
    """A log which refuses the next append with `next_error`, once."""

    def __init__(self) -> None:
        super().__init__()
        self.next_error: ErrorCode | None = None

    def append(self, records: Sequence[CoordinatorRecord], producer: Producer, timestamp_ms: int) -> int:
        code, self.next_error = self.next_error, None
        if code is not None:
            raise Refused(code)
        return super().append(records, producer, timestamp_ms)


class Clients:
    """Clients of one coordinator. Requests are numbered; `answers` has what was completed, by number."""

    def __init__(self, **config: Any) -> None:
        self.log = FailingLog()
        self.now_ms = START_MS
        self.coordinator = GroupCoordinator(
            MODULES, now_ms=START_MS, config=GroupCoordinatorConfig(**config), log=self.log
        )
        self.answers: dict[int, Any] = {}
        self.records: list[AppendedRecord] = []
        self.fired: list[str] = []
        self.request_count = 0

    @property
    def group(self) -> LiveClassicGroup:
        """The group of these tests."""
        return self.coordinator.classic_groups[GROUP]

    def ask(self, operation: str, request: Any, *, api_version: int = 9) -> Outcome:
        """Send a request. Its number is `request_count` afterwards."""
        self.request_count += 1
        outcome = self.coordinator.handle(
            operation,
            request,
            now_ms=self.now_ms,
            api_version=api_version,
            request_id=self.request_count,
            new_uuid=f"uuid{self.request_count}",
        )
        self._note(outcome)
        return outcome

    def wait(self, delay_ms: int) -> None:
        """Let time pass."""
        self.now_ms += delay_ms
        self._note(self.coordinator.advance(self.now_ms))

    def _note(self, outcome: Outcome) -> None:
        for done in outcome.completed:
            assert done.request_id not in self.answers, "answered twice"
            self.answers[done.request_id] = done.response
        self.records.extend(outcome.records)
        self.fired.extend(fired.key for fired in outcome.fired)

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: Iterable[str] = ("range",),
        topics: tuple[str, ...] = ("t",),
        protocol_type: str = "consumer",
        api_version: int = 3,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS,
    ) -> int:
        """JoinGroup; the number of the request. By default of a version which takes new members at once."""
        metadata = (
            encode_subscription(Subscription(version=0, topics=topics)) if protocol_type == "consumer" else b"opaque"
        )
        request = JoinGroupRequest(
            GROUP,
            session_timeout_ms,
            rebalance_timeout_ms,
            member_id,
            protocol_type,
            tuple(JoinProtocol(name, metadata) for name in protocols),
            instance,
        )
        self.ask("classic_join", request, api_version=api_version)
        return self.request_count

    def sync(
        self,
        member_id: str,
        assignments: Mapping[str, bytes] | None = None,
        *,
        generation_id: int | None = None,
        instance: str | None = None,
        protocol_name: str | None = None,
    ) -> int:
        """SyncGroup, of the present generation by default; the number of the request."""
        given = tuple(SyncGroupRequestAssignment(name, data) for name, data in (assignments or {}).items())
        generation_id = self.group.generation_id if generation_id is None else generation_id
        request = SyncGroupRequest(
            GROUP, generation_id, member_id, instance, protocol_name=protocol_name, assignments=given
        )
        self.ask("classic_sync", request)
        return self.request_count

    def heartbeat(self, member_id: str, *, generation_id: int | None = None, instance: str | None = None) -> Any:
        """Heartbeat, of the present generation by default; the error code, of either kind."""
        generation_id = self.group.generation_id if generation_id is None else generation_id
        outcome = self.ask("classic_heartbeat", HeartbeatRequest(GROUP, generation_id, member_id, instance))
        return outcome.response.error_code if outcome.error is None else outcome.error.code

    def leave(self, *members: tuple[str, str | None]) -> list[int]:
        """LeaveGroup of (member id, group instance id); the error code of each."""
        identities = tuple(MemberIdentity(member_id, instance) for member_id, instance in members)
        outcome = self.ask("classic_leave", LeaveGroupRequest(GROUP, identities))
        return [member.error_code for member in outcome.response.members]

    def commit(self, topic: str = "t", offset: int = 7, **fields: Any) -> Outcome:
        """OffsetCommit of partition 0, version 9."""
        partition = OffsetCommitPartition(0, offset, -1, fields.pop("metadata", None))
        topics = (OffsetCommitTopic((partition,), topic, fields.pop("topic_id", "A" * 22)),)
        api_version = fields.pop("api_version", 9)
        return self.ask("commit_offset", OffsetCommitRequest(GROUP, topics, **fields), api_version=api_version)

    def stable_members(self, count: int = 2, **fields: Any) -> list[str]:
        """Let so many members join and sync; their ids, the leader's first. The initial delay has to be 0."""
        numbers = [self.join(**fields) for _ in range(count)]
        self.wait(0)
        members: list[str] = [self.answers[number].member_id for number in numbers]
        leader = self.group.leader
        assert leader is not None
        for member_id in members:
            self.sync(member_id, {name: name.encode() for name in members} if member_id == leader else None)
        return sorted(members, key=lambda member_id: member_id != leader)


def state_of(clients: Clients) -> ClassicGroupState:
    """The state of their group: asked each time, since what was true of it need not be true after the next request."""
    return clients.group.state
