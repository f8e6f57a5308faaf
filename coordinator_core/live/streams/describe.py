"""StreamsGroupDescribe: the description of a streams group (StreamsGroup.asDescribedGroup)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from coordinator_core.live.classic.messages import AUTHORIZED_OPERATIONS_OMITTED
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.modern_rules import group_of
from coordinator_core.live.coordinator.operation import Context, Result
from coordinator_core.live.streams.live import LiveStreamsGroups
from coordinator_core.live.streams.messages import Endpoint, KeyValue, TaskIds, TopicInfo
from coordinator_core.live.streams.topology import ConfiguredTopology
from coordinator_core.replay.java.hash_codes import string_order
from coordinator_core.replay.streams.state import (
    InternalTopic,
    StreamsGroup,
    StreamsMember,
    Subtopology,
    TaskAssignment,
)

NO_TASKS = TaskAssignment()


@dataclass(frozen=True, slots=True)
class DescribedSubtopology:
    """All lists are sorted by topic."""

    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    state_changelog_topics: tuple[TopicInfo, ...]
    repartition_source_topics: tuple[TopicInfo, ...]


@dataclass(frozen=True, slots=True)
class DescribedTopology:
    """Internal topics have partition counts once the topology fits the cluster."""

    epoch: int
    subtopologies: tuple[DescribedSubtopology, ...] | None


@dataclass(frozen=True, slots=True)
class DescribedAssignment:
    """Tasks by subtopology, sorted."""

    active_tasks: tuple[TaskIds, ...] = ()
    standby_tasks: tuple[TaskIds, ...] = ()
    warmup_tasks: tuple[TaskIds, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """A member with its current and its target assignment."""

    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topology_epoch: int
    process_id: str
    user_endpoint: Endpoint | None
    client_tags: tuple[KeyValue, ...]
    assignment: DescribedAssignment
    target_assignment: DescribedAssignment
    task_offsets: tuple[int, ...] = ()
    task_end_offsets: tuple[int, ...] = ()
    """Both are always empty: Kafka 4.3 keeps no task offsets."""
    is_classic: bool = False


@dataclass(frozen=True, slots=True)
class DescribedStreamsGroup:
    """One group, or the error if there is none."""

    group_id: str
    error_code: int = 0
    error_message: str | None = None
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    topology: DescribedTopology | None = None
    members: tuple[DescribedMember, ...] = ()
    authorized_operations: int = AUTHORIZED_OPERATIONS_OMITTED


def describe_streams_groups(context: Context, group_ids: tuple[str, ...]) -> Result:
    """StreamsGroupDescribe: a tuple of DescribedStreamsGroup. Groups of other types are not found."""
    return Result(response=tuple(_described(context, group_id) for group_id in group_ids))


def _described(context: Context, group_id: str) -> DescribedStreamsGroup:
    try:
        group = group_of(context, group_id, StreamsGroup, "streams")
    except Refused as refused:
        return DescribedStreamsGroup(group_id, refused.code, refused.message)
    configured = context.live(LiveStreamsGroups).get(group).configured_topology
    return DescribedStreamsGroup(
        group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_topology(group, configured if configured is not None and configured.is_ready else None),
        members=tuple(
            _member(member, group.target_assignment.get(member.member_id, NO_TASKS))
            for member in group.members_in_table_order()
        ),
    )


def _topology(group: StreamsGroup, configured: ConfiguredTopology | None) -> DescribedTopology | None:
    if group.topology is None:
        return None
    subtopologies = sorted(group.topology.subtopologies, key=lambda found: string_order(found.subtopology_id))
    described = tuple(_subtopology(subtopology, configured) for subtopology in subtopologies)
    return DescribedTopology(group.topology.epoch, described)


def _subtopology(subtopology: Subtopology, configured: ConfiguredTopology | None) -> DescribedSubtopology:
    changelogs = {topic.name: topic for topic in subtopology.state_changelog_topics}
    repartition = {topic.name: topic for topic in subtopology.repartition_source_topics}
    if configured is not None and configured.subtopologies is not None:
        found = configured.subtopologies[subtopology.subtopology_id]
        changelogs, repartition = dict(found.state_changelog_topics), dict(found.repartition_source_topics)
    return DescribedSubtopology(
        subtopology.subtopology_id,
        tuple(sorted(subtopology.source_topics, key=string_order)),
        tuple(sorted(subtopology.repartition_sink_topics, key=string_order)),
        _topics(changelogs),
        _topics(repartition),
    )


def _topics(topics: Mapping[str, InternalTopic]) -> tuple[TopicInfo, ...]:
    return tuple(
        TopicInfo(
            name,
            topics[name].partition_count,
            topics[name].replication_factor,
            tuple(KeyValue(key, value) for key, value in topics[name].configs),
        )
        for name in sorted(topics, key=string_order)
    )


def _member(member: StreamsMember, target: TaskAssignment) -> DescribedMember:
    endpoint = member.user_endpoint
    return DescribedMember(
        member.member_id,
        member.member_epoch,
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.topology_epoch,
        member.process_id or "",
        None if endpoint is None else Endpoint(*endpoint),
        tuple(KeyValue(key, value) for key, value in member.client_tags.items()),
        DescribedAssignment(_tasks(member.active), _tasks(member.standby), _tasks(member.warmup)),
        DescribedAssignment(_tasks(target.active), _tasks(target.standby), _tasks(target.warmup)),
    )


def _tasks(tasks: Mapping[str, Iterable[int]]) -> tuple[TaskIds, ...]:
    return tuple(TaskIds(name, tuple(sorted(tasks[name]))) for name in sorted(tasks, key=string_order))
