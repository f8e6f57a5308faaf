"""What brokers answer to the questions of an admin client, as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from coordinator_core.codec import Struct
from jobs.sources.broker import error_name


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error in an answer's place. `name` is Kafka's constant, GROUP_AUTHORIZATION_FAILED say."""

    code: int
    name: str
    detail: str = field(default="", compare=False)
    """In words, where there is more to say than the name."""

    @property
    def why(self) -> str:
        """For people."""
        return f"{self.name}: {self.detail}" if self.detail else self.name

    @classmethod
    def of(cls, code: int) -> "Refusal":
        """By Kafka's error code."""
        return cls(code, error_name(code))


UNANSWERED: Final = Refusal(-1, "UNANSWERED")
"""Of what a response leaves out."""
NEGATIVE_EPOCH: Final = Refusal(-2, "LEADER_EPOCH_NOT_KNOWN")
"""The share coordinator reads no state without a leader epoch, and did not tell its own: Kafka 4.4 refuses -1."""
UNREADABLE: Final = Refusal(-3, "UNREADABLE_ANSWER")
"""There is an answer, in a form that cannot be read."""
UNSUPPORTED: Final = Refusal(35, "UNSUPPORTED_VERSION")
"""What is said of a question which the broker does not know; `detail` says which request it is."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster's metadata has it now."""

    topic: str
    topic_id: str | None
    """22 characters of URL-safe base64; None from brokers before 2.8, and of topics that got none yet."""
    partition_count: int


@dataclass(frozen=True, slots=True)
class Config:
    """A config as it is in force. `value` None: a secret, or not set."""

    resource_type: str
    """GROUP, TOPIC or BROKER."""
    resource_name: str
    name: str
    value: str | None
    source: str
    """Where the value comes from: a name of `CONFIG_SOURCES`."""


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
    """A line of the list of groups."""

    group_id: str
    group_type: str
    """CLASSIC CONSUMER SHARE STREAMS; empty where a broker before 4.0 does not tell."""
    protocol_type: str
    state: str


class AssignedPartition(NamedTuple):
    """A partition or task which a member has: by the names that silver.member_assignments uses."""

    topic_id: str | None
    topic: str
    """Subtopology of a streams group, connector of Connect."""
    partition: int
    task_type: str | None


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group. What its type of groups has not is None."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rack_id: str | None = None
    member_epoch: int | None = None
    uses_classic_protocol: bool | None = None
    assigned: frozenset[AssignedPartition] = frozenset()
    """What it has, with what it has still to give up."""
    target: frozenset[AssignedPartition] | None = None
    is_unread: bool = False
    """Its assignment is in a form that cannot be read, and `assigned` is empty."""


class TopologyStatus(IntEnum):
    """What became of the question for the description of a topology (StreamsGroupTopologyDescriptionStatus)."""

    NOT_REQUESTED = 0
    NOT_STORED = 1
    ERROR = 2
    """The broker has one, and its plugin does not give it."""
    AVAILABLE = 3

    @classmethod
    def _missing_(cls, _value: object) -> "TopologyStatus":
        # of a newer release
        return cls.NOT_REQUESTED


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as its coordinator describes it. What its type of groups has not is None."""

    group_id: str
    group_type: str
    state: str
    members: tuple[GroupMember, ...]
    protocol_type: str | None = None
    protocol_name: str | None = None
    """Classic: the voted protocol, empty where members are not in step; others: the assignor."""
    group_epoch: int | None = None
    assignment_epoch: int | None = None
    topology_epoch: int | None = None
    topology_status: TopologyStatus = TopologyStatus.NOT_REQUESTED
    """Of the description of a streams group's topology; NOT_REQUESTED also from brokers before 4.4."""
    topology_description: Struct | None = None
    """`schemas.admin_protocol.TOPOLOGY_DESCRIPTION`, where the status is AVAILABLE."""


class CommittedOffset(NamedTuple):
    """A committed offset. `leader_epoch` None for none."""

    offset: int
    leader_epoch: int | None
    metadata: str


class TopicPartitionId(NamedTuple):
    """A partition of a topic, by its id and its name."""

    topic_id: str
    topic: str
    partition: int


class ShareOffset(NamedTuple):
    """A share partition as DescribeShareGroupOffsets tells it. `start_offset` -1: not set yet."""

    start_offset: int
    leader_epoch: int


class StateBatch(NamedTuple):
    """A range of offsets in one delivery state; `last_offset` is inclusive, the state is Kafka's code."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class ShareState:
    """A share partition as its coordinator keeps it. `start_offset` -1: not set yet."""

    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]
