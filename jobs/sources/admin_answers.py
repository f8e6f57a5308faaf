"""Answers of brokers to Admin requests, as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from coordinator_core.bytes.codec import Struct
from jobs.sources.broker import error_name


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error instead of an answer. `name`: Kafka's constant, such as GROUP_AUTHORIZATION_FAILED."""

    code: int
    name: str
    detail: str = field(default="", compare=False)
    """A sentence, where there is more to say than the name."""

    @property
    def why(self) -> str:
        """The reason in words."""
        return f"{self.name}: {self.detail}" if self.detail else self.name

    @classmethod
    def of(cls, code: int) -> "Refusal":
        """From Kafka's error code."""
        return cls(code, error_name(code))


UNANSWERED: Final = Refusal(-1, "UNANSWERED")
"""For items that are missing in a response."""
NEGATIVE_EPOCH: Final = Refusal(-2, "LEADER_EPOCH_NOT_KNOWN")
"""The share coordinator needs a leader epoch to read a state, and did not return its own: Kafka 4.4 refuses -1."""
UNREADABLE: Final = Refusal(-3, "UNREADABLE_ANSWER")
"""The answer cannot be decoded."""
UNSUPPORTED: Final = Refusal(35, "UNSUPPORTED_VERSION")
"""The broker does not support the request; `detail` names the request."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic according to the cluster's current metadata."""

    topic: str
    topic_id: str | None
    """22 characters of URL-safe base64; None from brokers before 2.8, and for topics without an id."""
    partition_count: int


@dataclass(frozen=True, slots=True)
class Config:
    """An effective config. `value` None: a secret, or not set."""

    resource_type: str
    """GROUP, TOPIC or BROKER."""
    resource_name: str
    name: str
    value: str | None
    source: str
    """The origin of the value: a name in `CONFIG_SOURCES`."""


CONFIG_SOURCES: Final[Mapping[int, str]] = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    8: "GROUP_CONFIG",
}
"""DescribeConfigsResponse.ConfigSource."""


@dataclass(frozen=True, slots=True)
class ListedGroup:
    group_id: str
    group_type: str
    """CLASSIC, CONSUMER, SHARE or STREAMS; empty from a broker before 4.0."""
    protocol_type: str
    state: str


class AssignedPartition(NamedTuple):
    """A partition or task that is assigned to a member, in the terms of silver.member_assignments."""

    topic_id: str | None
    topic: str
    """Topic; subtopology of a streams group; connector of Connect."""
    partition: int
    task_type: str | None


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group. Fields that its group type does not have are None."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rack_id: str | None = None
    member_epoch: int | None = None
    uses_classic_protocol: bool | None = None
    assigned: frozenset[AssignedPartition] = frozenset()
    """Current assignment, including what the member has yet to revoke."""
    target: frozenset[AssignedPartition] | None = None
    is_unread: bool = False
    """The assignment is in a format that cannot be decoded, and `assigned` is empty."""


class TopologyStatus(IntEnum):
    """Whether the description of a topology was returned (StreamsGroupTopologyDescriptionStatus)."""

    NOT_REQUESTED = 0
    NOT_STORED = 1
    ERROR = 2
    """The broker has a description, but its plugin failed to return it."""
    AVAILABLE = 3

    @classmethod
    def _missing_(cls, _value: object) -> "TopologyStatus":
        # a status of a newer release
        return cls.NOT_REQUESTED


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as its coordinator describes it. Fields that its group type does not have are None."""

    group_id: str
    group_type: str
    state: str
    members: tuple[GroupMember, ...]
    protocol_type: str | None = None
    protocol_name: str | None = None
    """Classic groups: the selected protocol, empty unless the group is Stable; others: the assignor."""
    group_epoch: int | None = None
    assignment_epoch: int | None = None
    topology_epoch: int | None = None
    topology_status: TopologyStatus = TopologyStatus.NOT_REQUESTED
    """For a streams group's topology description; NOT_REQUESTED also from brokers before 4.4."""
    topology_description: Struct | None = None
    """`schemas.admin_protocol.TOPOLOGY_DESCRIPTION`; set if the status is AVAILABLE."""


class CommittedOffset(NamedTuple):
    """A committed offset. `leader_epoch` None for none."""

    offset: int
    leader_epoch: int | None
    metadata: str


class TopicPartitionId(NamedTuple):
    topic_id: str
    topic: str
    partition: int


class ShareOffset(NamedTuple):
    """A share partition in DescribeShareGroupOffsets. `start_offset` -1: not set yet."""

    start_offset: int
    leader_epoch: int


class StateBatch(NamedTuple):
    """A range of offsets in one delivery state. `last_offset` is inclusive; the state is Kafka's code."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class ShareState:
    """The state of a share partition at its coordinator. `start_offset` -1: not set yet."""

    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]
