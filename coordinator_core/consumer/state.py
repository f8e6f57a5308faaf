"""The state of a consumer group in its coordinator (ConsumerGroup, ConsumerGroupMember)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from immutables import Map

from coordinator_core.frozen import quickly_made
from coordinator_core.java.timeline import TIMELINE_MIN_CAPACITY, in_timeline_order


class ConsumerGroupState(StrEnum):
    """States of ConsumerGroup, all derived from members and epochs (ConsumerGroup.maybeUpdateGroupState)."""

    EMPTY = "Empty"
    """No members."""
    ASSIGNING = "Assigning"
    """The group epoch is ahead of the assignment epoch: a new target assignment is due."""
    RECONCILING = "Reconciling"
    """A member has not reached its target assignment yet."""
    STABLE = "Stable"
    """All members stable at the assignment epoch."""


class MemberState(IntEnum):
    """MemberState of a consumer group member, as stored in ConsumerGroupCurrentMemberAssignmentValue."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@quickly_made
@dataclass(frozen=True, slots=True)
class ClassicMemberMetadata:
    """The additional state of a member of a consumer group that uses the classic protocol."""

    session_timeout_ms: int = 0
    supported_protocols: tuple[tuple[str, bytes], ...] = ()


@quickly_made
@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member. `assigned` and `pending_revocation`: topic id -> partition -> assignment epoch."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str | None = ""
    """None and the empty string both mean no pattern; Kafka writes either."""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic_member_metadata: ClassicMemberMetadata | None = None
    """None for a member of the consumer protocol."""
    assigned: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    pending_revocation: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    place: int = field(default=0, compare=False)
    """How many members were added before it; see `ConsumerGroup.members_in_table_order`."""


@quickly_made
@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a subscription pattern matched."""

    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


@quickly_made
@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """A consumer group. A new object has group epoch 1 and assignment epoch 1 (ModernGroup, 4.3)."""

    group_id: str
    group_epoch: int = 1
    metadata_hash: int = 0
    assignment_epoch: int = 1
    assignment_timestamp_ms: int = 0
    has_legacy_partition_metadata: bool = False
    members: Map[str, ConsumerMember] = field(default_factory=Map)
    static_members: Map[str, str] = field(default_factory=Map)
    """Group instance id -> member id."""
    target_assignment: Map[str, Mapping[str, tuple[int, ...]]] = field(default_factory=Map)
    """Member id -> topic id -> partitions, ascending."""
    resolved_regexes: Map[str, ResolvedRegex] = field(default_factory=Map)
    subscription_regexes: Map[str, ResolvedRegex] = field(default_factory=Map)
    """`resolved_regexes` as they were when a member last changed: Kafka infers its subscription type only then."""
    owners: Map[tuple[str, int], str] = field(default_factory=Map)
    """(topic id, partition) -> id of the member that owns it, or still has to revoke it (currentPartitionEpoch)."""
    members_ever: int = field(default=0, compare=False)
    """How many members were ever added: the place of the next one."""
    table_capacity: int = field(default=TIMELINE_MIN_CAPACITY, compare=False)
    """The number of slots of Kafka's hash table of members, which determines its order."""
    subscriptions: object = field(default=None, init=False, compare=False, repr=False)
    """Counts over the members, computed when first needed (`subscriptions.subscriptions_of`)."""

    def members_in_table_order(self) -> list[ConsumerMember]:
        """The members in the order of Kafka's TimelineHashMap: after a downgrade, the first one leads the classic
        group.
        """
        return in_timeline_order(self.members, self.table_capacity)

    @property
    def state(self) -> ConsumerGroupState:
        """ConsumerGroup.maybeUpdateGroupState. It iterates over the members: use it per interval, not per record."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        for member in self.members.values():
            if member.state != MemberState.STABLE or member.member_epoch != self.assignment_epoch:
                return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE
