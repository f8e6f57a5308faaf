"""What a coordinator knows of a streams group (StreamsGroup, StreamsGroupMember)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from immutables import Map


class StreamsGroupState(StrEnum):
    """States of StreamsGroup, derived (StreamsGroup.maybeUpdateGroupState)."""

    EMPTY = "Empty"
    """No members."""
    NOT_READY = "NotReady"
    """The topology is missing or not validated."""
    ASSIGNING = "Assigning"
    """The group epoch is ahead of the assignment epoch."""
    RECONCILING = "Reconciling"
    """A member has not reached the target yet."""
    STABLE = "Stable"
    """All members stable at the assignment epoch."""


Tasks = Mapping[str, tuple[int, ...]]
"""Subtopology id -> partitions, ascending."""


@dataclass(frozen=True, slots=True)
class TaskAssignment:
    """Target tasks of a member."""

    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)


STABLE_MEMBER: Final = 1
"""MemberState STABLE of streams, which counts from 1 where consumer groups count from 0."""

NO_MEMBER_STATE: Final = -1
"""State of a member without a current assignment value: Kafka holds null until the first one."""


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """A member. Current active tasks carry assignment epochs: subtopology id -> partition -> epoch."""

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
    client_tags: Mapping[str, str] = field(default_factory=dict)
    active: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)
    active_pending_revocation: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    standby_pending_revocation: Tasks = field(default_factory=dict)
    warmup_pending_revocation: Tasks = field(default_factory=dict)
    has_current_assignment: bool = False
    """A current assignment record was seen; without one Kafka knows no epochs and no tasks."""


@dataclass(frozen=True, slots=True)
class Subtopology:
    """One subtopology as the group's topology record tells it; topic names, with regexes apart."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[str, ...] = ()
    state_changelog_topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Topology:
    """StreamsGroupTopologyValue."""

    epoch: int
    subtopologies: tuple[Subtopology, ...]


@dataclass(frozen=True, slots=True)
class StreamsGroup:
    """A streams group. A fresh object starts at epoch 1, assignment epoch 1, validated topology epoch 0."""

    group_id: str
    group_epoch: int = 1
    metadata_hash: int = 0
    validated_topology_epoch: int = 0
    assignment_epoch: int = 1
    assignment_timestamp_ms: int = 0
    topology: Topology | None = None
    last_assignment_configs: Mapping[str, str] = field(default_factory=dict)
    members: Map[str, StreamsMember] = field(default_factory=Map)
    static_members: Map[str, str] = field(default_factory=Map)
    target_assignment: Map[str, TaskAssignment] = field(default_factory=Map)

    @property
    def state(self) -> StreamsGroupState:
        """StreamsGroup.maybeUpdateGroupState."""
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.group_epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        for member in self.members.values():
            if member.state != STABLE_MEMBER or member.member_epoch != self.assignment_epoch:
                return StreamsGroupState.RECONCILING
        return StreamsGroupState.STABLE
