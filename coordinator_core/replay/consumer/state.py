"""The state of a consumer group in its coordinator (ConsumerGroup, ConsumerGroupMember)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum

import msgspec
from immutables import Map

from coordinator_core.replay.java.timeline import TIMELINE_MIN_CAPACITY, in_timeline_order
from coordinator_core.replay.states import Compared


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


class ClassicMemberMetadata(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The additional state of a member of a consumer group that uses the classic protocol."""

    session_timeout_ms: int = 0
    supported_protocols: tuple[tuple[str, bytes], ...] = ()


class ConsumerMember(Compared, frozen=True, gc=False, array_like=True):
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
    assigned: Mapping[str, Mapping[int, int]] = {}
    pending_revocation: Mapping[str, Mapping[int, int]] = {}
    place: int = 0
    """How many members were added before it; see `ConsumerGroup.members_in_table_order`."""


class ResolvedRegex(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The topics that a subscription pattern matched."""

    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


class ConsumerGroup(Compared, frozen=True, dict=True, array_like=True, tag=True):
    """A consumer group. A new object has group epoch 1 and assignment epoch 1 (ModernGroup, 4.3).

    It has a `__dict__` for what is derived from it (`subscriptions.subscriptions_of`).
    """

    group_id: str
    group_epoch: int = 1
    metadata_hash: int = 0
    assignment_epoch: int = 1
    assignment_timestamp_ms: int = 0
    has_legacy_partition_metadata: bool = False
    members: Map[str, ConsumerMember] = Map()
    static_members: Map[str, str] = Map()
    """Group instance id -> member id."""
    target_assignment: Map[str, Mapping[str, tuple[int, ...]]] = Map()
    """Member id -> topic id -> partitions, ascending."""
    resolved_regexes: Map[str, ResolvedRegex] = Map()
    subscription_regexes: Map[str, ResolvedRegex] = Map()
    """`resolved_regexes` as they were when a member last changed: Kafka infers its subscription type only then."""
    owners: Map[tuple[str, int], str] = Map()
    """(topic id, partition) -> id of the member that owns it, or still has to revoke it (currentPartitionEpoch)."""
    members_ever: int = 0
    """How many members were ever added: the place of the next one."""
    table_capacity: int = TIMELINE_MIN_CAPACITY
    """The number of slots of Kafka's hash table of members, which determines its order."""

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
