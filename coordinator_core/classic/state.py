"""What a coordinator knows of a classic group (ClassicGroup, ClassicGroupMember)."""

from dataclasses import dataclass, field
from enum import StrEnum

from immutables import Map

from coordinator_core.frozen import quickly_made


class ClassicGroupState(StrEnum):
    """States of ClassicGroup. A log holds only EMPTY and STABLE: the others are never written."""

    EMPTY = "Empty"
    """No members; lives on for its offsets. Join -> PREPARING_REBALANCE; last offset expires -> DEAD."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits for members to rejoin. All joined or time-out -> COMPLETING_REBALANCE, or EMPTY if nobody is
    left."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """Waits for the leader's SyncGroup. Assignment written -> STABLE; join, leave -> PREPARING_REBALANCE."""
    STABLE = "Stable"
    """Everybody has an assignment. Join, leave, expiry -> PREPARING_REBALANCE."""
    DEAD = "Dead"
    """Removed."""


@quickly_made
@dataclass(frozen=True, slots=True)
class ClassicMember:
    """A member as GroupMetadataValue tells it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    """Metadata of the chosen protocol: ConsumerProtocolSubscription, Connect metadata, or opaque."""
    assignment: bytes
    """ConsumerProtocolAssignment, Connect assignment, or opaque; empty = missing from the leader's answer."""
    place: int = field(default=0, compare=False)
    """Where the record has it: after a load, Kafka's hash map was filled in this order."""


@quickly_made
@dataclass(frozen=True, slots=True)
class ClassicGroup:
    """A classic group after replay. `protocol_type` is None for the empty string, as in Kafka's loader."""

    group_id: str
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    current_state_timestamp_ms: int = -1
    members: Map[str, ClassicMember] = field(default_factory=Map)

    @property
    def state(self) -> ClassicGroupState:
        """Loaded state: a log tells no more than whether there are members (GroupMetadataManager.replay)."""
        return ClassicGroupState.STABLE if self.members else ClassicGroupState.EMPTY

    @property
    def is_simple(self) -> bool:
        """A group of offsets only, which a modern group may replace (ClassicGroup.isSimpleGroup)."""
        return self.protocol_type is None and not self.members
