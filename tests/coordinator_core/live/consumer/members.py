"""Members of a live consumer group, for tests: a heartbeat in few words, and a clock which the test moves."""

from collections.abc import Mapping
from typing import Any

from coordinator_core.live.consumer.messages import ConsumerGroupHeartbeatRequest
from coordinator_core.live.coordinator.config import GroupCoordinatorConfig
from coordinator_core.live.coordinator.image import Topic, image_of
from coordinator_core.live.coordinator.modern_messages import HeartbeatResponse, TopicPartitions
from coordinator_core.live.coordinator.modules import MODULES
from coordinator_core.live.coordinator.records import AppendedRecord
from coordinator_core.live.coordinator.shard import GroupCoordinator
from coordinator_core.replay.consumer.state import ConsumerGroup, ConsumerMember
from schemas.consumer_offsets import RecordType
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.coordinator.clients import FailingLog

START_MS = 1_000_000
A, B, C = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg", "AAAAAAAAAAAAAAAAAAAAAw"
"""Ids of the topics a (3 partitions) and b (2 partitions), and of one which is not there at first."""

MEMBER = RecordType.CONSUMER_GROUP_MEMBER_METADATA
GROUP = RecordType.CONSUMER_GROUP_METADATA
LEGACY = RecordType.CONSUMER_GROUP_PARTITION_METADATA
TARGET = RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER
TARGET_EPOCH = RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA
CURRENT = RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT
REGEX = RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION


class Members:
    """Members of one group. A member answers with what it was assigned last, unless the test says otherwise."""

    def __init__(self, **config: Any) -> None:
        config = {"group_consumer_assignment_interval_ms": 0, **config}
        self.now_ms = START_MS
        self.log = FailingLog()
        self.coordinator = GroupCoordinator(
            MODULES,
            now_ms=START_MS,
            config=GroupCoordinatorConfig(**config),
            image=image_of([Topic("a", A, 3), Topic("b", B, 2)]),
            log=self.log,
        )
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, tuple[TopicPartitions, ...]] = {}
        self.records: list[AppendedRecord] = []
        self.fired: list[str] = []

    @property
    def group(self) -> ConsumerGroup:
        """The group of these tests."""
        group: ConsumerGroup = self.coordinator.group("g")
        return group

    def member(self, member_id: str) -> ConsumerMember:
        """A member of it."""
        return self.group.members[member_id]

    def join(
        self, member_id: str, *topics: str, regex: str | None = None, **fields: Any
    ) -> HeartbeatResponse | ErrorCode:
        """Join by names and by pattern, owning nothing."""
        self.owned[member_id] = ()
        fields = {"rebalance_timeout_ms": 5000, "subscribed_topic_names": topics, **fields}
        return self.heartbeat(member_id, epoch=0, subscribed_topic_regex=regex, **fields)

    def heartbeat(self, member_id: str, *, epoch: int | None = None, **fields: Any) -> HeartbeatResponse | ErrorCode:
        """A heartbeat with what the member knows; its answer, or the error."""
        epoch = self.epochs.get(member_id, 0) if epoch is None else epoch
        fields = {"topic_partitions": self.owned.get(member_id, ()), **fields}
        request = ConsumerGroupHeartbeatRequest("g", member_id, epoch, **fields)
        outcome = self.coordinator.handle("consumer_group_heartbeat", request, now_ms=self.now_ms, api_version=1)
        self.records = list(outcome.records)
        if outcome.error is not None:
            return outcome.error.code
        response: HeartbeatResponse = outcome.response
        self.epochs[member_id] = response.member_epoch
        if response.assignment is not None:
            self.owned[member_id] = response.assignment.topic_partitions
        return response

    def converge(self, *member_ids: str) -> None:
        """Heartbeats until nothing is written any more."""
        for _ in range(10):
            written = 0
            for member_id in member_ids:
                self.heartbeat(member_id)
                written += len(self.records)
            if not written:
                return
        raise AssertionError("no end to the rebalance")

    def wait(self, duration_ms: int) -> None:
        """Let time pass."""
        self.now_ms += duration_ms
        outcome = self.coordinator.advance(self.now_ms)
        self.records = list(outcome.records)
        self.fired += [fired.key for fired in outcome.fired]

    def run_tasks(self) -> tuple[str, ...]:
        """Run the background tasks; their keys."""
        outcome = self.coordinator.run_tasks(self.now_ms)
        self.records = list(outcome.records)
        return outcome.tasks

    def set_topic(self, name: str, topic_id: str, partition_count: int) -> None:
        """Make a topic or change it."""
        image = self.coordinator.image.with_topic(Topic(name, topic_id, partition_count))
        self.coordinator.update_metadata(image, [name], now_ms=self.now_ms)

    def kinds(self) -> list[RecordType]:
        """Types of the records which the last step wrote."""
        return [entry.record.record_type for entry in self.records]


def shown(partition_epochs: Mapping[str, Any]) -> str:
    """Partitions of topics on one line: `a0 a1 b0`."""
    names = {A: "a", B: "b", C: "c"}
    return " ".join(
        sorted(f"{names[topic_id]}{number}" for topic_id, numbers in partition_epochs.items() for number in numbers)
    )


def reported(response: HeartbeatResponse | ErrorCode) -> str | None:
    """The assignment of an answer on one line; None where it has none."""
    assert isinstance(response, HeartbeatResponse)
    if response.assignment is None:
        return None
    return shown({topic.topic_id: topic.partitions for topic in response.assignment.topic_partitions})
