"""The state of a streams group in its coordinator (StreamsGroup, StreamsGroupMember)."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec
from immutables import Map

from coordinator_core.replay.java.hash_codes import string_hash_code
from coordinator_core.replay.java.hash_map import in_hash_order
from coordinator_core.replay.java.timeline import TIMELINE_MIN_CAPACITY, in_timeline_order
from coordinator_core.replay.states import Compared


class StreamsGroupState(StrEnum):
    """States of StreamsGroup, all derived (StreamsGroup.maybeUpdateGroupState)."""

    EMPTY = "Empty"
    """No members."""
    NOT_READY = "NotReady"
    """The topology is missing or not validated."""
    ASSIGNING = "Assigning"
    """The group epoch is ahead of the assignment epoch."""
    RECONCILING = "Reconciling"
    """A member has not reached its target assignment yet."""
    STABLE = "Stable"
    """All members stable at the assignment epoch."""


Tasks = Mapping[str, tuple[int, ...]]
"""Subtopology id -> partitions, ascending."""


class TaskAssignment(msgspec.Struct, frozen=True, gc=False, array_like=True):
    active: Tasks = {}
    standby: Tasks = {}
    warmup: Tasks = {}


TaskId = tuple[str, int]
"""(subtopology id, partition)."""


STABLE_MEMBER: Final = 1
"""MemberState STABLE of streams groups, which number from 1 (consumer groups number from 0)."""

UNREVOKED_TASKS: Final = 2
"""The member must revoke tasks before its epoch can advance."""

UNRELEASED_TASKS: Final = 3
"""The member is at the epoch of the target assignment, but others still have some of its tasks."""

UNKNOWN_STATE: Final = 127
"""Written by a later release of Kafka."""

NO_MEMBER_STATE: Final = -1
"""The state of a member without a current assignment value: Kafka has null until the first one."""


class StreamsMember(Compared, frozen=True, gc=False, array_like=True):
    """A member. Current active tasks have assignment epochs: subtopology id -> partition -> epoch."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: int = NO_MEMBER_STATE
    """STABLE_MEMBER, 2 UNREVOKED_TASKS, 3 UNRELEASED_TASKS, 127 unknown, or NO_MEMBER_STATE."""
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str | None = None
    user_endpoint: tuple[str, int] | None = None
    client_tags: Mapping[str, str] = {}
    active: Mapping[str, Mapping[int, int]] = {}
    standby: Tasks = msgspec.field(default_factory=dict)
    warmup: Tasks = msgspec.field(default_factory=dict)
    active_pending_revocation: Mapping[str, Mapping[int, int]] = {}
    standby_pending_revocation: Tasks = msgspec.field(default_factory=dict)
    warmup_pending_revocation: Tasks = msgspec.field(default_factory=dict)
    has_current_assignment: bool = False
    """Whether there was a current assignment record; without one Kafka knows no epochs and no tasks."""
    place: int = 0
    """How many members were added before it; see `StreamsGroup.members_in_table_order`."""

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether the member has reached the target assignment of this epoch."""
        return self.state == STABLE_MEMBER and self.member_epoch == assignment_epoch


class InternalTopic(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An internal topic of the application: it is created if it is missing."""

    name: str
    partition_count: int = 0
    """0: derived from the topics that feed it."""
    replication_factor: int = 0
    """0: the broker's default."""
    configs: tuple[tuple[str, str], ...] = ()


class CopartitionGroup(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Topics that must have the same number of partitions; indices into the lists of the subtopology."""

    source_topics: tuple[int, ...] = ()
    source_topic_regex: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


class Subtopology(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One subtopology, as in the group's topology record."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[InternalTopic, ...] = ()
    state_changelog_topics: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    @property
    def input_topics(self) -> tuple[str, ...]:
        """The topics that its tasks read: the source topics, then the repartition topics."""
        return (*self.source_topics, *(topic.name for topic in self.repartition_source_topics))


class Topology(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """StreamsGroupTopologyValue; subtopologies in the order of the record."""

    epoch: int
    subtopologies: tuple[Subtopology, ...]

    def is_same_as(self, other: "Topology") -> bool:
        """StreamsTopology.equals: the order of subtopologies does not count, that of their topics does."""
        mine = {subtopology.subtopology_id: subtopology for subtopology in self.subtopologies}
        theirs = {subtopology.subtopology_id: subtopology for subtopology in other.subtopologies}
        return self.epoch == other.epoch and mine == theirs

    def in_hash_order(self) -> list[Subtopology]:
        """The subtopologies in the order of Kafka's HashMap: the result for one may depend on those before it."""
        by_id = {subtopology.subtopology_id: subtopology for subtopology in self.subtopologies}
        return [by_id[subtopology_id] for subtopology_id in in_hash_order(by_id, string_hash_code)]

    def required_topics(self) -> frozenset[str]:
        """All topics but repartition sinks, which are sources of another subtopology."""
        return frozenset(
            topic
            for subtopology in self.subtopologies
            for topic in (*subtopology.input_topics, *(log.name for log in subtopology.state_changelog_topics))
        )

    def subtopology_of(self, topic: str) -> str | None:
        """The id of the subtopology that reads a topic, or None; the last one if there are several."""
        found = None
        for subtopology in self.in_hash_order():
            if topic in subtopology.input_topics:
                found = subtopology.subtopology_id
        return found


class TaskProcesses(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The processes of each task, with tasks that are pending revocation (StreamsGroup.current*TaskToProcessId*).

    Members of one process share the state on its disk, so a process may have a task only once.
    """

    active: Map[TaskId, str] = Map()
    standby: Map[TaskId, frozenset[str]] = Map()
    warmup: Map[TaskId, frozenset[str]] = Map()


class StreamsGroup(Compared, frozen=True, gc=False, array_like=True, tag=True):
    """A streams group. A new object has group epoch 1, assignment epoch 1, validated topology epoch 0."""

    group_id: str
    group_epoch: int = 1
    metadata_hash: int = 0
    validated_topology_epoch: int = 0
    assignment_epoch: int = 1
    assignment_timestamp_ms: int = 0
    topology: Topology | None = None
    last_assignment_configs: Mapping[str, str] = {}
    stored_description_topology_epoch: int = -1
    """The topology epoch that the description plugin has (KIP-1331); -1 none, -2 uncertain."""
    failed_description_topology_epoch: int = -1
    """The topology epoch whose description the plugin refused permanently; -1 none."""
    members: Map[str, StreamsMember] = Map()
    static_members: Map[str, str] = Map()
    target_assignment: Map[str, TaskAssignment] = Map()
    processes: TaskProcesses = TaskProcesses()
    members_ever: int = 0
    """How many members were ever added: the place of the next one."""
    table_capacity: int = TIMELINE_MIN_CAPACITY
    """The number of slots of Kafka's hash table of members, which determines its order."""

    def members_in_table_order(self) -> list[StreamsMember]:
        """The members in the order of Kafka's TimelineHashMap; assignors use this order if members are equal."""
        return in_timeline_order(self.members, self.table_capacity)

    @property
    def state(self) -> StreamsGroupState:
        """StreamsGroup.maybeUpdateGroupState."""
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.group_epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING
