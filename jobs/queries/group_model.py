"""A group at one time, as the queries show it: members, offsets, share partitions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Row = Mapping[str, Any]


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class SampledEnd(NamedTuple):
    """The end of a source topic's log when it was asked."""

    end_offset: int
    sampled_at_ms: int


class Untimed(NamedTuple):
    """Records of a log partition that have no time, and nothing that places them before or after a moment."""

    first_offset: int
    last_offset: int
    record_count: int


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset in force. `topic_id` is None where the record holds none."""

    offset: int
    leader_epoch: int | None
    topic_id: str | None
    committed_at_ms: int | None
    """None where its record has no time."""
    log_partition: int = -1
    """Of `__consumer_offsets`."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group. Partitions ascend; of streams groups, the "topic" is the subtopology."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    member_epoch: int | None
    """None in classic groups."""
    uses_classic_protocol: bool | None
    """Of consumer groups alone, else None."""
    assigned: tuple[TopicPartition, ...]
    """What it holds, what it must still give up included, as Admin shows it."""
    target: tuple[TopicPartition, ...]
    is_unread: bool = False
    """Its assignment cannot be read: nobody can say what it holds."""


@dataclass(frozen=True, slots=True)
class ShareStart:
    """What the share coordinator stores of one share partition: None where no offset is set yet."""

    start_offset: int | None
    leader_epoch: int | None
    delivery_complete_count: int | None


@dataclass(frozen=True, slots=True)
class Group:
    """A group at a time."""

    group_id: str
    group_type: str
    state: str
    """As Kafka spells it."""
    protocol_type: str | None
    assignor: str | None
    group_epoch: int | None
    """None in classic groups, as `assignment_epoch`."""
    assignment_epoch: int | None
    members: tuple[Member, ...] = ()
    """By member id."""
    offsets: Mapping[TopicPartition, CommittedOffset] = field(default_factory=dict)
    share_starts: Mapping[TopicPartition, ShareStart] = field(default_factory=dict)
    log_partition: int = -1
    """Of `__consumer_offsets`."""
