"""The state of a classic group in its coordinator (ClassicGroup, ClassicGroupMember)."""

from enum import StrEnum

import msgspec
from immutables import Map

from coordinator_core.replay.states import Compared


class ClassicGroupState(StrEnum):
    """States of ClassicGroup. A log contains only EMPTY and STABLE: the others are never written."""

    EMPTY = "Empty"
    """No members; the group exists for its offsets. Join -> PREPARING_REBALANCE; last offset expires -> DEAD."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits for members to rejoin. All joined, or timeout -> COMPLETING_REBALANCE, or EMPTY if no member is left."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """Waits for the leader's SyncGroup. Assignment written -> STABLE; join, leave -> PREPARING_REBALANCE."""
    STABLE = "Stable"
    """All members have an assignment. Join, leave, expiry -> PREPARING_REBALANCE."""
    DEAD = "Dead"


class ClassicMember(Compared, frozen=True, gc=False, array_like=True):
    """A member, as in GroupMetadataValue."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    """Metadata of the chosen protocol: ConsumerProtocolSubscription, Connect metadata, or opaque."""
    assignment: bytes
    """ConsumerProtocolAssignment, Connect assignment, or opaque; empty if the leader's SyncGroup did not include the
    member.
    """
    place: int = 0
    """The member's position in the record: a load fills Kafka's hash map in this order."""


class ClassicGroup(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=True):
    """A classic group after replay. `protocol_type` is None for the empty string, as in Kafka's loader."""

    group_id: str
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    current_state_timestamp_ms: int = -1
    members: Map[str, ClassicMember] = Map()

    @property
    def state(self) -> ClassicGroupState:
        """The state after a load: the log shows only whether there are members (GroupMetadataManager.replay)."""
        return ClassicGroupState.STABLE if self.members else ClassicGroupState.EMPTY

    @property
    def is_simple(self) -> bool:
        """Whether the group has only offsets, so that a modern group may replace it (ClassicGroup.isSimpleGroup)."""
        return self.protocol_type is None and not self.members
