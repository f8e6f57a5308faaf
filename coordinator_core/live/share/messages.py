"""Requests and responses about share groups (KIP-932), and what the broker requests from the share coordinator for
them.

Field names and defaults are Kafka's (ShareGroupHeartbeatRequest.json and similar files). Topic ids are Kafka's text of
22 characters, partitions ascending.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from coordinator_core.live.coordinator.modern_messages import HeartbeatResponse, ModernResponse
from coordinator_core.replay.member_epochs import JOIN_GROUP_MEMBER_EPOCH
from coordinator_core.replay.offsets.replay import ZERO_UUID

UNINITIALIZED_START_OFFSET: Final = -1
"""PartitionFactory.UNINITIALIZED_START_OFFSET: `share.auto.offset.reset` decides where the partition starts."""

TopicPartitionMap = Mapping[str, tuple[int, ...]]


# --- ShareGroupHeartbeat ---


@dataclass(frozen=True, slots=True)
class ShareGroupHeartbeatRequest:
    """`member_epoch` 0 joins, -1 leaves. `subscribed_topic_names` None: unchanged."""

    group_id: str
    member_id: str
    member_epoch: int = JOIN_GROUP_MEMBER_EPOCH
    rack_id: str | None = None
    subscribed_topic_names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class InitializeShareState:
    """What the broker sends to the share coordinator after a heartbeat (InitializeShareGroupStateParameters)."""

    partitions: TopicPartitionMap
    state_epoch: int
    start_offsets: Mapping[str, int]
    """Topic id -> start offset of its partitions; UNINITIALIZED_START_OFFSET: the share partition determines it."""


@dataclass(frozen=True, slots=True)
class ShareGroupHeartbeatResponse(HeartbeatResponse):
    """`initialize_share_state` is for the broker only: it is not part of the response."""

    initialize_share_state: InitializeShareState | None = None


# --- state of share partitions ---


@dataclass(frozen=True, slots=True)
class ShareStatePartitions:
    """Share partitions that the share coordinator initialized, or failed to initialize."""

    group_id: str
    partitions: TopicPartitionMap


@dataclass(frozen=True, slots=True)
class DeleteShareState:
    """The broker's request to the share coordinator (DeleteShareGroupStateParameters), or an error.

    `error_code` NON_EMPTY_GROUP: the group has members, so nothing is sent.
    """

    group_id: str
    partitions: TopicPartitionMap = field(default_factory=dict)
    error_code: int = 0


# --- AlterShareGroupOffsets ---


@dataclass(frozen=True, slots=True)
class AlterOffsetsPartition:
    partition_index: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class AlterOffsetsTopic:
    topic_name: str
    partitions: tuple[AlterOffsetsPartition, ...]


@dataclass(frozen=True, slots=True)
class AlterShareGroupOffsetsRequest:
    """New start offsets for a group without members."""

    group_id: str
    topics: tuple[AlterOffsetsTopic, ...]


@dataclass(frozen=True, slots=True)
class AlterOffsetsResponsePartition:
    partition_index: int
    error_code: int = 0
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class AlterOffsetsResponseTopic:
    """`topic_id` is zero for a topic that does not exist."""

    topic_name: str
    topic_id: str = ZERO_UUID
    partitions: tuple[AlterOffsetsResponsePartition, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterShareGroupOffsetsResponse(ModernResponse):
    """One entry for each partition of the request."""

    responses: tuple[AlterOffsetsResponseTopic, ...] = ()


@dataclass(frozen=True, slots=True)
class AlteredOffsets:
    """The group coordinator's part of an alteration: the response for the case that the share coordinator succeeds."""

    response: AlterShareGroupOffsetsResponse
    state_epoch: int
    start_offsets: Mapping[str, Mapping[int, int]]
    """Topic id -> partition -> start offset to initialize."""


# --- DeleteShareGroupOffsets ---


@dataclass(frozen=True, slots=True)
class DeleteOffsetsTopic:
    topic_name: str


@dataclass(frozen=True, slots=True)
class DeleteShareGroupOffsetsRequest:
    """Offsets to delete for a group without members."""

    group_id: str
    topics: tuple[DeleteOffsetsTopic, ...]


@dataclass(frozen=True, slots=True)
class DeleteOffsetsResponseTopic:
    topic_name: str | None
    topic_id: str = ZERO_UUID
    error_code: int = 0
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteShareGroupOffsetsResponse(ModernResponse):
    """One entry for each topic."""

    responses: tuple[DeleteOffsetsResponseTopic, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetDeletion:
    """The group coordinator's first part of a deletion (DeleteShareGroupOffsetsResultHolder).

    `partitions` empty: nothing is sent to the share coordinator. `topics`: the refused ones. `topic_names`: id -> name
    of the others.
    """

    partitions: TopicPartitionMap = field(default_factory=dict)
    topic_names: Mapping[str, str] = field(default_factory=dict)
    topics: tuple[DeleteOffsetsResponseTopic, ...] = ()
    error_code: int = 0
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class CompleteOffsetDeletion:
    """The second part: `topics` (topic id -> name, None if it no longer exists) are deleted, `refused` are not."""

    group_id: str
    topics: Mapping[str, str | None]
    refused: tuple[DeleteOffsetsResponseTopic, ...] = ()
