"""StreamsGroupHeartbeat, with Kafka's field names in snake case.

Defaults are those of Kafka's generated classes.
"""

from dataclasses import dataclass
from enum import IntEnum

from coordinator_core.live.coordinator.modern_messages import ModernResponse
from coordinator_core.replay.streams.state import CopartitionGroup


class StatusCode(IntEnum):
    """Status codes about the group for its members (StreamsGroupHeartbeatResponse.Status)."""

    STALE_TOPOLOGY = 0
    """The member runs an older topology than the group's."""
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    """The broker that serves the heartbeat creates them; see `StreamsGroupHeartbeatResponse.creatable_topics`."""
    SHUTDOWN_APPLICATION = 4
    """A member asked all others to shut down."""
    ASSIGNMENT_DELAYED = 5
    """The group waits for other members, or for the assignment interval."""
    MISSING_CLIENT_TAGS = 6
    """The member lacks tags by which standby tasks are distributed (version 1 of the heartbeat)."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A setting of a topic, or a client tag."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """An internal topic. Partitions and replication factor 0: unspecified."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    topic_configs: tuple[KeyValue, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestSubtopology:
    """A part of the topology with tasks of its own."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    state_changelog_topics: tuple[TopicInfo, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[TopicInfo, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestTopology:
    epoch: int = 0
    subtopologies: tuple[RequestSubtopology, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskIds:
    subtopology_id: str
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskOffset:
    """Offset of a member's copy of a task's state."""

    subtopology_id: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a member for interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StreamsGroupHeartbeatRequest:
    """None, and -1 for the rebalance timeout: unchanged since the previous heartbeat."""

    group_id: str
    member_id: str
    member_epoch: int = 0
    endpoint_information_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: RequestTopology | None = None
    active_tasks: tuple[TaskIds, ...] | None = None
    standby_tasks: tuple[TaskIds, ...] | None = None
    warmup_tasks: tuple[TaskIds, ...] | None = None
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: tuple[KeyValue, ...] | None = None
    task_offsets: tuple[TaskOffset, ...] | None = None
    task_end_offsets: tuple[TaskOffset, ...] | None = None
    """Both are for warm-up tasks, which Kafka 4.3 does not have yet: it refuses a request with them."""
    shutdown_application: bool = False


@dataclass(frozen=True, slots=True)
class Status:
    status_code: int
    status_detail: str


@dataclass(frozen=True, slots=True)
class EndpointTopicPartition:
    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EndpointToPartitions:
    user_endpoint: Endpoint
    active_partitions: tuple[EndpointTopicPartition, ...]
    standby_partitions: tuple[EndpointTopicPartition, ...]


@dataclass(frozen=True, slots=True)
class CreatableTopicConfig:
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class CreatableTopic:
    """A topic of a CreateTopics request. Replication factor -1: the broker's default."""

    name: str
    num_partitions: int
    replication_factor: int = -1
    assignments: tuple[int, ...] = ()
    """Always empty: the creator of the topic chooses brokers."""
    configs: tuple[CreatableTopicConfig, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamsGroupHeartbeatResponse(ModernResponse):
    """Tasks and endpoints are None if they are unchanged.

    `creatable_topics` is only for the broker that serves the heartbeat: it creates these internal topics for the group.
    """

    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    acceptable_recovery_lag: int = 0
    """Version 0 has an unused field with this name."""
    task_offset_interval_ms: int = 0
    status: tuple[Status, ...] | None = ()
    active_tasks: tuple[TaskIds, ...] | None = None
    standby_tasks: tuple[TaskIds, ...] | None = None
    warmup_tasks: tuple[TaskIds, ...] | None = None
    endpoint_information_epoch: int = 0
    partitions_by_user_endpoint: tuple[EndpointToPartitions, ...] | None = None
    creatable_topics: tuple[CreatableTopic, ...] = ()
