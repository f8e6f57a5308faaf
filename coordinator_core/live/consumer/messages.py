"""Requests and responses of ConsumerGroupHeartbeat.

Field names and defaults are Kafka's (ConsumerGroupHeartbeatRequest.json). Times in milliseconds.
"""

from dataclasses import dataclass

from coordinator_core.live.coordinator.modern_messages import TopicPartitions


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
