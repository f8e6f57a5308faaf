"""The state of a share group in the group coordinator (ShareGroup, ShareGroupMember)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from immutables import Map

from coordinator_core.frozen import quickly_made
from coordinator_core.java.timeline import TIMELINE_MIN_CAPACITY, in_timeline_order


class ShareGroupState(StrEnum):
    """States of ShareGroup (maybeUpdateGroupState): derived from the members, never set."""

    EMPTY = "Empty"
    """No members. A member joins -> STABLE. Only now the group may be deleted, and its offsets altered or deleted."""
    STABLE = "Stable"
    """At least one member. The last one leaves, or its session expires -> EMPTY."""


@quickly_made
@dataclass(frozen=True, slots=True)
class ShareMember:
    """A member. `assigned`: topic id -> partitions, ascending."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    state: int = 0
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    place: int = field(default=0, compare=False)
    """How many members were added before it; see `ShareGroup.members_in_table_order`."""


@quickly_made
@dataclass(frozen=True, slots=True)
class ShareGroup:
    """A share group. A new object has group epoch 1 and assignment epoch 1 (ModernGroup, 4.3)."""

    group_id: str
    group_epoch: int = 1
    metadata_hash: int = 0
    assignment_epoch: int = 1
    assignment_timestamp_ms: int = 0
    members: Map[str, ShareMember] = field(default_factory=Map)
    target_assignment: Map[str, Mapping[str, tuple[int, ...]]] = field(default_factory=Map)
    name_counts: Map[str, int] = field(default_factory=Map, compare=False)
    """Topic name -> how many members subscribe to it, as the replay counts them (subscribedTopicNames)."""
    members_ever: int = field(default=0, compare=False)
    """How many members were ever added: the place of the next one."""
    table_capacity: int = field(default=TIMELINE_MIN_CAPACITY, compare=False)
    """The number of slots of Kafka's hash table of members, which determines its order."""

    def members_in_table_order(self) -> list[ShareMember]:
        """The members in the order of Kafka's TimelineHashMap, in which the assignor gets them."""
        return in_timeline_order(self.members, self.table_capacity)

    @property
    def state(self) -> ShareGroupState:
        """ShareGroup.maybeUpdateGroupState."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY


@dataclass(frozen=True, slots=True)
class ShareGroupStatePartitions:
    """Record type 15: the states of the share partitions of a group. It is independent: the group need not exist.

    `initializing` and `initialized`: topic id -> (topic name, partitions ascending); `deleting`: topic id -> topic
    name.
    """

    initializing: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    initialized: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    deleting: Mapping[str, str] = field(default_factory=dict)
