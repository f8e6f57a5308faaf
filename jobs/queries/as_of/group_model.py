"""A group at one time, as the queries show it: members, offsets, share partitions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coordinator_core.replay.lookup import SharePartitionKey

Row = Mapping[str, Any]


def share_key(row: Row) -> SharePartitionKey:
    return SharePartitionKey(row["group_id"], row["topic_id"], row["partition"])


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class SampledEnd(NamedTuple):
    """The end offset of a topic partition at the time of the sample, and its log start offset."""

    end_offset: int
    sampled_at_ms: int
    log_start_offset: int


class Untimed(NamedTuple):
    """Records of a log partition without a timestamp that cannot be placed before or after a time."""

    first_offset: int
    last_offset: int
    record_count: int


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset in force. `topic_id` None: the record has none."""

    offset: int
    leader_epoch: int | None
    topic_id: str | None
    committed_at_ms: int | None
    """None where its record has no timestamp."""
    log_partition: int = -1
    """Log partition of `__consumer_offsets`."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group. Partitions ascend. Members of streams groups have `tasks` instead of partitions."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    member_epoch: int | None
    """None for classic groups."""
    uses_classic_protocol: bool | None
    """For consumer groups, else None."""
    assigned: tuple[TopicPartition, ...]
    """Current assignment, including partitions that the member has yet to revoke, as in Admin."""
    target: tuple[TopicPartition, ...]
    is_unread: bool = False
    """The assignment cannot be decoded: what the member has is unknown."""
    process_id: str | None = None
    """For streams groups, else None."""
    tasks: Mapping[str, tuple[TopicPartition, ...]] = field(default_factory=dict)
    """For streams groups: by kind (ACTIVE, STANDBY, TARGET-WARMUP, ...); the "topic" is the subtopology. Without
    tasks that the member has yet to give up, as in Admin."""


@dataclass(frozen=True, slots=True)
class ShareStart:
    """The share coordinator's state of one share partition. None where no offset is set yet."""

    start_offset: int | None
    leader_epoch: int | None
    delivery_complete_count: int | None


@dataclass(frozen=True, slots=True)
class Group:
    group_id: str
    group_type: str
    state: str
    """In Kafka's spelling."""
    protocol_type: str | None
    assignor: str | None
    group_epoch: int | None
    """None for classic groups, as `assignment_epoch`."""
    assignment_epoch: int | None
    members: tuple[Member, ...] = ()
    """By member id."""
    offsets: Mapping[TopicPartition, CommittedOffset] = field(default_factory=dict)
    share_starts: Mapping[TopicPartition, ShareStart] = field(default_factory=dict)
    log_partition: int = -1
    """Log partition of `__consumer_offsets`."""
    topology_epoch: int | None = None
    """For streams groups, else None."""
    inputs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """For streams groups: by subtopology the topics that it reads, and their partition counts (infinite: unknown)."""
