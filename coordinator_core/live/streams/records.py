"""The records that a streams group writes: types 17 and 19 to 23 (StreamsCoordinatorRecordHelpers).

Values have version 0; their subtopologies and partitions are sorted.
"""

from collections.abc import Mapping
from typing import Final

from coordinator_core.bytes.codec import Declaration, Struct, make, make_from
from coordinator_core.live.coordinator.records import CoordinatorRecord, record_of
from coordinator_core.live.streams.messages import RequestTopology, TopicInfo
from coordinator_core.replay.java.hash_codes import string_order
from coordinator_core.replay.record_families import STREAMS
from coordinator_core.replay.streams.state import StreamsGroup, StreamsMember, TaskAssignment, Tasks
from schemas.consumer_offsets import RecordType
from schemas.consumer_offsets import streams as schema

CURRENT_TASK_IDS: Final = schema.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_TASK_IDS


def group_metadata_record(
    group: StreamsGroup,
    epoch: int,
    metadata_hash: int,
    validated_topology_epoch: int,
    assignment_configs: Mapping[str, str],
) -> CoordinatorRecord:
    """StreamsGroupMetadata (17): the group epoch, and what it is based on. Description epochs stay those of the
    group."""
    return record_of(
        STREAMS.metadata,
        {"group_id": group.group_id},
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=[
            make(schema.LAST_ASSIGNMENT_CONFIG, key=key, value=assignment_configs[key])
            for key in sorted(assignment_configs, key=string_order)
        ],
        stored_description_topology_epoch=group.stored_description_topology_epoch,
        failed_description_topology_epoch=group.failed_description_topology_epoch,
    )


def member_metadata_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    """StreamsGroupMemberMetadata (19): a member's attributes."""
    endpoint = member.user_endpoint
    return record_of(
        STREAMS.member,
        {"group_id": group_id, "member_id": member.member_id},
        member,
        user_endpoint=None if endpoint is None else make(schema.ENDPOINT, host=endpoint[0], port=endpoint[1]),
        client_tags=[
            make(schema.KEY_VALUE, key=key, value=member.client_tags[key])
            for key in sorted(member.client_tags, key=string_order)
        ],
    )


def target_assignment_record(group_id: str, member_id: str, target: TaskAssignment) -> CoordinatorRecord:
    """StreamsGroupTargetAssignmentMember (21): the whole target of a member."""
    return record_of(
        STREAMS.target,
        {"group_id": group_id, "member_id": member_id},
        active_tasks=_tasks(target.active, schema.TASK_IDS),
        standby_tasks=_tasks(target.standby, schema.TASK_IDS),
        warmup_tasks=_tasks(target.warmup, schema.TASK_IDS),
    )


def current_assignment_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    """StreamsGroupCurrentMemberAssignment (22): epoch, state and tasks of a member."""
    return record_of(
        STREAMS.current,
        {"group_id": group_id, "member_id": member.member_id},
        member,
        active_tasks=_active_tasks(member.active),
        standby_tasks=_tasks(member.standby),
        warmup_tasks=_tasks(member.warmup),
        active_tasks_pending_revocation=_active_tasks(member.active_pending_revocation),
        standby_tasks_pending_revocation=_tasks(member.standby_pending_revocation),
        warmup_tasks_pending_revocation=_tasks(member.warmup_pending_revocation),
    )


def topology_value(topology: RequestTopology) -> Struct:
    """The value of StreamsGroupTopology (23) for a member's topology."""
    return make(
        schema.STREAMS_GROUP_TOPOLOGY_VALUE,
        epoch=topology.epoch,
        subtopologies=[
            make_from(
                schema.SUBTOPOLOGY,
                subtopology,
                state_changelog_topics=[_topic_info(topic) for topic in subtopology.state_changelog_topics],
                repartition_source_topics=[_topic_info(topic) for topic in subtopology.repartition_source_topics],
                copartition_groups=[
                    make_from(schema.COPARTITION_GROUP, group) for group in subtopology.copartition_groups
                ],
            )
            for subtopology in topology.subtopologies
        ],
    )


def topology_record(group_id: str, value: Struct) -> CoordinatorRecord:
    """StreamsGroupTopology (23)."""
    return record_of(RecordType.STREAMS_GROUP_TOPOLOGY, {"group_id": group_id}, value)


def _tasks(tasks: Tasks, declared: Declaration = CURRENT_TASK_IDS) -> list[Struct]:
    return [
        make(declared, subtopology_id=subtopology_id, partitions=list(tasks[subtopology_id]))
        for subtopology_id in sorted(tasks, key=string_order)
    ]


def _active_tasks(tasks: Mapping[str, Mapping[int, int]]) -> list[Struct]:
    structs = _tasks({subtopology_id: tuple(sorted(epochs)) for subtopology_id, epochs in tasks.items()})
    return [
        make_from(
            CURRENT_TASK_IDS,
            struct,
            assignment_epochs=[tasks[struct.subtopology_id][partition] for partition in struct.partitions],
        )
        for struct in structs
    ]


def _topic_info(topic: TopicInfo) -> Struct:
    configs = [make_from(schema.TOPIC_CONFIG, config) for config in topic.topic_configs]
    return make_from(schema.TOPIC_INFO, topic, topic_configs=configs)
