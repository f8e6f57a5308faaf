"""What a coordinator knows about streams groups in addition to their records; lost at a reload (fields of
StreamsGroup).

Kafka's group object is created by the group's first record. What the heartbeat that writes this record computed was
stored in another object, which is discarded: the group's second heartbeat computes it again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from immutables import Map

from coordinator_core.live.coordinator.image import MetadataImage
from coordinator_core.live.coordinator.metadata_hash import metadata_hash
from coordinator_core.live.streams.messages import EndpointToPartitions
from coordinator_core.live.streams.topology import ConfiguredTopology
from coordinator_core.replay.streams.state import StreamsGroup, StreamsMember, TaskAssignment, TaskId, Topology

METADATA_REFRESH_INTERVAL_MS = 2**31 - 1
"""How long a hash of topic metadata is valid; a change of one of the topics invalidates it immediately."""


Targets = Mapping[str, TaskAssignment]
"""Member id -> tasks."""
OffsetsOfTasks = Mapping[TaskId, int]


@dataclass(frozen=True, slots=True)
class ReportedOffsets:
    """A member's last reported task offsets (MemberTaskOffsets)."""

    positions: OffsetsOfTasks = field(default_factory=dict)
    ends: OffsetsOfTasks = field(default_factory=dict)


NO_OFFSETS: Final = ReportedOffsets()


@dataclass(slots=True)
class LiveStreamsGroup:
    configured_topology: ConfiguredTopology | None = None
    metadata_refresh_deadline_ms: int = 0
    metadata_refresh_epoch: int = 0
    """The deadline is invalid if the group never reached this epoch, because the log refused the record."""
    shutdown_request_member_id: str | None = None
    """The first member that asked all members to shut down; cleared when the group becomes empty."""
    shutdown_requested_while_empty_at: int = -1
    """`members_ever` of the group, if the requester was not a member and there were none; else -1."""
    endpoint_information_epoch: int = 0
    endpoints: dict[str, tuple[StreamsMember, EndpointToPartitions]] = field(default_factory=dict)
    """Member id -> (member, its endpoint); valid while the member is the same object."""
    refined: tuple[int, Targets] = (-1, {})
    """Assignment epoch, and the assignment that members move to in it (StreamsGroup.RefinedAssignment)."""
    task_offsets: dict[str, ReportedOffsets] = field(default_factory=dict)
    """Member id -> reported offsets."""
    required_topics: tuple[Topology | None, frozenset[str]] = (None, frozenset())
    hash_of: tuple[MetadataImage | None, Topology | None, int] = (None, None, 0)

    def set_configured_topology(self, configured: ConfiguredTopology) -> None:
        """Store a topology that was checked against the cluster."""
        self.configured_topology = configured
        self.endpoints.clear()

    def relabel_refined(self, old_id: str, new_id: str) -> None:
        """Move a static member's assignment to its new id. Kafka does so before it knows whether the member may
        join."""
        epoch, targets = self.refined
        if old_id in targets:
            others = {member_id: target for member_id, target in targets.items() if member_id != old_id}
            self.refined = (epoch, {**others, new_id: targets[old_id]})

    def has_metadata_expired(self, now_ms: int, group_epoch: int) -> bool:
        """Whether topics have to be checked again."""
        return now_ms >= self.metadata_refresh_deadline_ms or group_epoch < self.metadata_refresh_epoch

    def trust_metadata(self, now_ms: int, group_epoch: int) -> None:
        """Note that the topics were checked for this group epoch."""
        self.metadata_refresh_deadline_ms = now_ms + METADATA_REFRESH_INTERVAL_MS
        self.metadata_refresh_epoch = group_epoch

    def request_metadata_refresh(self) -> None:
        """Note that a topic changed."""
        self.metadata_refresh_deadline_ms = 0
        self.metadata_refresh_epoch = 0

    def request_shutdown(self, group: StreamsGroup, member_id: str) -> None:
        """Store the requesting member, unless there is an earlier one."""
        if self.shutdown_request_member_id is None:
            self.shutdown_request_member_id = member_id
            self.shutdown_requested_while_empty_at = -1 if group.members else group.members_ever

    def forget_shutdown_if_all_are_gone(self, group: StreamsGroup) -> None:
        """Clear the request if the group is empty now. Called first, before anything else is read."""
        if not group.members and self.shutdown_requested_while_empty_at != group.members_ever:
            self.shutdown_request_member_id = None

    def topics_of(self, topology: Topology) -> frozenset[str]:
        """Topology.required_topics, cached by the identity of the topology."""
        if self.required_topics[0] is not topology:
            self.required_topics = (topology, topology.required_topics())
        return self.required_topics[1]

    def metadata_hash(self, image: MetadataImage, topology: Topology) -> int:
        """Hash of the topics of a topology, cached by the identity of both objects."""
        if self.hash_of[0] is not image or self.hash_of[1] is not topology:
            self.hash_of = (image, topology, metadata_hash(image, self.topics_of(topology)))
        return self.hash_of[2]


class LiveStreamsGroups:
    """Live states of a coordinator's groups, created on demand. That of a deleted group is dropped when the group is
    created again."""

    def __init__(self) -> None:
        self._groups: dict[str, LiveStreamsGroup] = {}

    def get(self, group: StreamsGroup) -> LiveStreamsGroup:
        live = self._groups.get(group.group_id)
        if live is None:
            live = self._groups[group.group_id] = LiveStreamsGroup()
        live.forget_shutdown_if_all_are_gone(group)
        return live

    def drop(self, group_id: str) -> None:
        """The group was deleted, or is about to be created."""
        self._groups.pop(group_id, None)

    def request_metadata_refresh(self, groups: Map[str, object], changed_topics: frozenset[str]) -> None:
        """Topics were created, enlarged or deleted: groups that need one of them check again at their next
        heartbeat."""
        for group_id, live in self._groups.items():
            group = groups.get(group_id)
            topology = group.topology if isinstance(group, StreamsGroup) else None
            if topology is not None and not changed_topics.isdisjoint(live.topics_of(topology)):
                live.request_metadata_refresh()

    def endpoint_information_epochs(self) -> dict[str, int]:
        """Group id -> epoch, if it is not 0."""
        return {
            group_id: live.endpoint_information_epoch
            for group_id, live in self._groups.items()
            if live.endpoint_information_epoch
        }
