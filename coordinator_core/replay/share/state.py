"""The state of a share group in the group coordinator (ShareGroup, ShareGroupMember)."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec
from immutables import Map

from coordinator_core.replay.java.timeline import TIMELINE_MIN_CAPACITY, in_timeline_order
from coordinator_core.replay.states import Compared


class ShareGroupState(StrEnum):
    """States of ShareGroup (maybeUpdateGroupState): derived from the members, never set."""

    EMPTY = "Empty"
    """No members. A member joins -> STABLE. Only now the group may be deleted, and its offsets altered or deleted."""
    STABLE = "Stable"
    """At least one member. The last one leaves, or its session expires -> EMPTY."""


class ShareMember(Compared, frozen=True, gc=False, array_like=True):
    """A member. `assigned`: topic id -> partitions, ascending."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    state: int = 0
    assigned: Mapping[str, tuple[int, ...]] = {}
    place: int = 0
    """How many members were added before it; see `ShareGroup.members_in_table_order`."""


class ShareGroup(Compared, frozen=True, gc=False, array_like=True, tag=True):
    """A share group. A new object has group epoch 1 and assignment epoch 1 (ModernGroup, 4.3)."""

    group_id: str
    group_epoch: int = 1
    metadata_hash: int = 0
    assignment_epoch: int = 1
    assignment_timestamp_ms: int = 0
    members: Map[str, ShareMember] = Map()
    target_assignment: Map[str, Mapping[str, tuple[int, ...]]] = Map()
    name_counts: Map[str, int] = Map()
    """Topic name -> how many members subscribe to it, as the replay counts them (subscribedTopicNames)."""
    members_ever: int = 0
    """How many members were ever added: the place of the next one."""
    table_capacity: int = TIMELINE_MIN_CAPACITY
    """The number of slots of Kafka's hash table of members, which determines its order."""

    def members_in_table_order(self) -> list[ShareMember]:
        """The members in the order of Kafka's TimelineHashMap, in which the assignor gets them."""
        return in_timeline_order(self.members, self.table_capacity)

    @property
    def state(self) -> ShareGroupState:
        """ShareGroup.maybeUpdateGroupState."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY


class ShareGroupStatePartitions(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Record type 15: the states of the share partitions of a group. It is independent: the group need not exist.

    `initializing` and `initialized`: topic id -> (topic name, partitions ascending); `deleting`: topic id -> topic
    name.
    """

    initializing: Mapping[str, tuple[str, tuple[int, ...]]] = {}
    initialized: Mapping[str, tuple[str, tuple[int, ...]]] = {}
    deleting: Mapping[str, str] = {}
