"""Replay of a streams group's records (GroupMetadataManager.replay of StreamsGroup*, KIP-1071): types 17, 19 to 23.

Each function takes the group and one record, and returns the group after it, or None if the record deletes it. A value
of None is a tombstone. Types 9 and 18 belonged to early-access releases and are unknown to Kafka 4.3.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from coordinator_core.bytes.codec import Struct
from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion
from coordinator_core.replay.anomalies import MEMBER_TOMBSTONE_TOO_EARLY, Anomaly, Report
from coordinator_core.replay.java.timeline import grown_timeline_capacity
from coordinator_core.replay.member_epochs import LEAVE_GROUP_MEMBER_EPOCH
from coordinator_core.replay.modern import (
    check_group_tombstone,
    check_member_tombstone,
    partition_epochs,
    without,
    without_former_instance_id,
    without_static_member,
)
from coordinator_core.replay.streams.processes import replaced
from coordinator_core.replay.streams.state import (
    STABLE_MEMBER,
    UNKNOWN_STATE,
    UNRELEASED_TASKS,
    UNREVOKED_TASKS,
    CopartitionGroup,
    InternalTopic,
    StreamsGroup,
    StreamsMember,
    Subtopology,
    TaskAssignment,
    Tasks,
    Topology,
)

KNOWN_MEMBER_STATES: Final = frozenset({STABLE_MEMBER, UNREVOKED_TASKS, UNRELEASED_TASKS})
"""Any other code is read as unknown (MemberState.fromValue)."""


def replay_metadata(group: StreamsGroup, _key: Struct, value: Struct | None, report: Report) -> StreamsGroup | None:
    """StreamsGroupMetadata (17): epochs, metadata hash, assignment configs; a tombstone deletes the group."""
    if value is None:
        check_group_tombstone(group, report)
        return None
    return replace(
        group,
        group_epoch=value.epoch,
        metadata_hash=value.metadata_hash,
        validated_topology_epoch=value.validated_topology_epoch,
        last_assignment_configs={c.key: c.value for c in value.last_assignment_configs or ()},
        stored_description_topology_epoch=value.stored_description_topology_epoch,
        failed_description_topology_epoch=value.failed_description_topology_epoch,
    )


def replay_member_metadata(
    group: StreamsGroup, key: Struct, value: Struct | None, report: Report, version: KafkaVersion = DEFAULT_VERSION
) -> StreamsGroup | None:
    """StreamsGroupMemberMetadata (19): a member joins or changes; a tombstone removes it."""
    member = group.members.get(key.member_id)
    if value is None:
        return group if member is None else _remove_member(group, member, report)
    former = None if member is None else member.instance_id
    endpoint = value.user_endpoint
    member = replace(
        StreamsMember(key.member_id, place=group.members_ever) if member is None else member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        user_endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
        client_tags={tag.key: tag.value for tag in value.client_tags},
    )
    static_members = without_former_instance_id(group.static_members, former, member.instance_id, version)
    if static_members is not group.static_members:
        group = replace(group, static_members=static_members)
    return _set_member(group, member)


def replay_target_assignment_member(
    group: StreamsGroup, key: Struct, value: Struct | None, _report: Report
) -> StreamsGroup | None:
    """StreamsGroupTargetAssignmentMember (21): the whole target of one member."""
    if value is None:
        return replace(group, target_assignment=without(group.target_assignment, key.member_id))
    target = TaskAssignment(
        active=_tasks(value.active_tasks),
        standby=_tasks(value.standby_tasks),
        warmup=_tasks(value.warmup_tasks),
    )
    return replace(group, target_assignment=group.target_assignment.set(key.member_id, target))


def replay_current_assignment(
    group: StreamsGroup, key: Struct, value: Struct | None, _report: Report
) -> StreamsGroup | None:
    """StreamsGroupCurrentMemberAssignment (22): epoch, state and tasks of one member; a tombstone removes them."""
    member = group.members.get(key.member_id)
    if value is None:
        if member is None:
            return group
        return _set_member(
            group,
            replace(
                member,
                member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
                previous_member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
                active={},
                standby={},
                warmup={},
                active_pending_revocation={},
                standby_pending_revocation={},
                warmup_pending_revocation={},
                has_current_assignment=True,
            ),
        )
    epoch = value.member_epoch
    return _set_member(
        group,
        replace(
            StreamsMember(key.member_id, place=group.members_ever) if member is None else member,
            member_epoch=epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=value.state if value.state in KNOWN_MEMBER_STATES else UNKNOWN_STATE,
            active=_active_tasks(value.active_tasks, epoch),
            standby=_tasks(value.standby_tasks),
            warmup=_tasks(value.warmup_tasks),
            active_pending_revocation=_active_tasks(value.active_tasks_pending_revocation, epoch),
            standby_pending_revocation=_tasks(value.standby_tasks_pending_revocation),
            warmup_pending_revocation=_tasks(value.warmup_tasks_pending_revocation),
            has_current_assignment=True,
        ),
    )


def replay_topology(group: StreamsGroup, _key: Struct, value: Struct | None, _report: Report) -> StreamsGroup | None:
    """StreamsGroupTopology (23): the topology from the members."""
    if value is None:
        return replace(group, topology=None)
    return replace(group, topology=topology_of(value))


def topology_of(value: Struct) -> Topology:
    """The topology of a record's value."""
    subtopologies = tuple(
        Subtopology(
            subtopology_id=s.subtopology_id,
            source_topics=tuple(s.source_topics),
            source_topic_regex=tuple(s.source_topic_regex),
            repartition_sink_topics=tuple(s.repartition_sink_topics),
            repartition_source_topics=_internal_topics(s.repartition_source_topics),
            state_changelog_topics=_internal_topics(s.state_changelog_topics),
            copartition_groups=tuple(
                CopartitionGroup(g.source_topics, g.source_topic_regex, g.repartition_source_topics)
                for g in s.copartition_groups
            ),
        )
        for s in value.subtopologies
    )
    return Topology(value.epoch, subtopologies)


def _internal_topics(topics: Iterable[Struct]) -> tuple[InternalTopic, ...]:
    return tuple(
        InternalTopic(
            topic.name,
            topic.partitions,
            topic.replication_factor,
            tuple((config.key, config.value) for config in topic.topic_configs),
        )
        for topic in topics
    )


def _tasks(task_ids: Iterable[Struct]) -> Tasks:
    return {task.subtopology_id: tuple(sorted(set(task.partitions))) for task in task_ids}


def _active_tasks(task_ids: Iterable[Struct], member_epoch: int) -> Mapping[str, Mapping[int, int]]:
    return {
        task.subtopology_id: partition_epochs(task.partitions, task.assignment_epochs, member_epoch)
        for task in task_ids
    }


def _set_member(group: StreamsGroup, member: StreamsMember) -> StreamsGroup:
    static_members = group.static_members
    if member.instance_id is not None:
        static_members = static_members.set(member.instance_id, member.member_id)
    before = group.members.get(member.member_id)
    return replace(
        group,
        members=group.members.set(member.member_id, member),
        static_members=static_members,
        processes=replaced(group.processes, before, member),
        members_ever=group.members_ever + (before is None),
        table_capacity=grown_timeline_capacity(group.table_capacity, len(group.members)),
    )


def _remove_member(group: StreamsGroup, member: StreamsMember, report: Report) -> StreamsGroup:
    member_id = member.member_id
    if member.has_current_assignment:
        check_member_tombstone(group, member_id, member.member_epoch, report)
    else:
        # Kafka compares an epoch that was never set.
        message = f"member {member_id!r} deleted, it never had a current assignment"
        report(Anomaly(MEMBER_TOMBSTONE_TOO_EARLY, message, kafka_exception="NullPointerException"))
    return replace(
        group,
        members=group.members.delete(member_id),
        static_members=without_static_member(group.static_members, member.instance_id, member_id),
        processes=replaced(group.processes, member, None),
    )
