"""Members of a streams group on a live coordinator, for tests."""

from typing import Any

from msgspec.structs import replace

from coordinator_core.live.coordinator.config import GroupCoordinatorConfig
from coordinator_core.live.coordinator.image import Topic, image_of
from coordinator_core.live.coordinator.operation import Outcome
from coordinator_core.live.offsets.messages import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from coordinator_core.live.streams.messages import (
    RequestSubtopology,
    RequestTopology,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
)
from coordinator_core.replay.streams.state import StreamsGroup
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.coordinator.clients import GROUP, Clients

TOPIC_ID = "A" * 21 + "Q"
TOPOLOGY = RequestTopology(0, (RequestSubtopology("0", ("in",)),))
REBALANCE_TIMEOUT_MS = 30_000
SESSION_TIMEOUT_MS = 45_000


class StreamsClients(Clients):
    """One group whose topology reads the topic `in` of four partitions. Targets come at once unless said otherwise."""

    def __init__(self, **config: Any) -> None:
        super().__init__()
        settings = {"group_streams_initial_rebalance_delay_ms": 0, "group_streams_assignment_interval_ms": 0, **config}
        self.coordinator.config = GroupCoordinatorConfig(**settings)
        self.coordinator.image = image_of([Topic("in", TOPIC_ID, 4)])
        self.coordinator.reload(now_ms=self.now_ms)

    @property
    def streams(self) -> StreamsGroup:
        """The group."""
        group = self.coordinator.group(GROUP)
        assert isinstance(group, StreamsGroup)
        return group

    def heartbeat(self, member_id: str, epoch: int | None = None, **fields: Any) -> Outcome:
        """A heartbeat at the member's epoch, with nothing new unless given."""
        epoch = self.streams.members[member_id].member_epoch if epoch is None else epoch
        return self.ask("streams_group_heartbeat", StreamsGroupHeartbeatRequest(GROUP, member_id, epoch, **fields))

    def enter(self, member_id: str, **fields: Any) -> Outcome:
        """The first heartbeat of a member, of a process of its own."""
        first: dict[str, Any] = {
            "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
            "topology": TOPOLOGY,
            "active_tasks": (),
            "standby_tasks": (),
            "warmup_tasks": (),
            "process_id": f"process of {member_id}",
        }
        return self.heartbeat(member_id, 0, **{**first, **fields})

    def owning(self, member_id: str, *partitions: int) -> Outcome:
        """A heartbeat which reports these active tasks."""
        active = (TaskIds("0", partitions),) if partitions else ()
        return self.heartbeat(member_id, active_tasks=active, standby_tasks=(), warmup_tasks=())

    def tasks(self, member_id: str) -> list[int]:
        """Active tasks of a member, pending revocation left out."""
        return sorted(self.streams.members[member_id].active.get("0", {}))


def response_of(outcome: Outcome) -> StreamsGroupHeartbeatResponse:
    """The answer; there must be one."""
    assert outcome.error is None, outcome.error
    response = outcome.response
    assert isinstance(response, StreamsGroupHeartbeatResponse)
    return response


def error_of(outcome: Outcome) -> tuple[ErrorCode, str]:
    """The error; there must be one."""
    assert outcome.error is not None
    return outcome.error.code, outcome.error.message


def statuses(outcome: Outcome) -> list[int]:
    """Codes of the statuses that a member gets."""
    return [int(status.status_code) for status in response_of(outcome).status or ()]


def put(clients: StreamsClients, group: StreamsGroup) -> None:
    """Have the group as if its records had said so."""
    shard = clients.coordinator.shard
    groups = replace(shard.groups, groups=shard.groups.groups.set(GROUP, group))
    clients.coordinator.shard = replace(shard, groups=groups)


def two_members(**config: Any) -> StreamsClients:
    """a has all four tasks, b has come and waits for two of them."""
    clients = StreamsClients(**config)
    clients.enter("a")
    clients.owning("a", 0, 1, 2, 3)
    clients.enter("b")
    return clients


def commit(epoch: int, member_id: str = "a", topic: str = "in", partition: int = 0) -> OffsetCommitRequest:
    """OffsetCommit of one partition."""
    topics = (OffsetCommitTopic((OffsetCommitPartition(partition, 7),), topic),)
    return OffsetCommitRequest(GROUP, topics, epoch, member_id)
