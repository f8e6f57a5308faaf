"""Requests and responses of ConsumerGroupHeartbeat and ConsumerGroupDescribe.

Field names and defaults are Kafka's (ConsumerGroupHeartbeatRequest.json and similar files). Times in milliseconds.
"""

from dataclasses import dataclass

from coordinator_core.live.coordinator.modern_messages import DescribedAssignment, TopicPartitions

CLASSIC_MEMBER_TYPE = 0
CONSUMER_MEMBER_TYPE = 1
"""Kinds of members in ConsumerGroupDescribe, from version 1."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupHeartbeatRequest:
    """A member's heartbeat. None, and -1 for the rebalance timeout, mean unchanged.

    `member_epoch`: 0 joins, -1 leaves, -2 leaves temporarily (static members).
    """

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: tuple[TopicPartitions, ...] | None = None
    """Partitions that the member owns."""


@dataclass(frozen=True, slots=True)
class DescribedConsumerMember:
    """A member. `assignment` includes partitions that it still has to revoke."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    assignment: DescribedAssignment
    target_assignment: DescribedAssignment
    member_type: int
