"""AlterShareGroupOffsets and DeleteShareGroupOffsets: the group coordinator's part.

The share coordinator has the offsets. These commands return what to send to it, and keep the state of the group's share
partitions; `share.service` combines both. Source: GroupMetadataManager, GroupCoordinatorShard.
"""

from coordinator_core.live.coordinator.errors import DEFAULT_MESSAGE, Refused
from coordinator_core.live.coordinator.image import Topic
from coordinator_core.live.coordinator.modern_rules import group_of
from coordinator_core.live.coordinator.operation import Context, Result
from coordinator_core.live.coordinator.records import CoordinatorRecord
from coordinator_core.live.share.heartbeat import share_group_or_new
from coordinator_core.live.share.messages import (
    AlteredOffsets,
    AlterOffsetsPartition,
    AlterOffsetsResponsePartition,
    AlterOffsetsResponseTopic,
    AlterOffsetsTopic,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    CompleteOffsetDeletion,
    DeleteOffsetsResponseTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    OffsetDeletion,
)
from coordinator_core.live.share.partitions import add_initializing, named, state_partitions_of, written
from coordinator_core.replay.java.ordered import map_of, set_of
from coordinator_core.replay.share.state import ShareGroup, ShareGroupStatePartitions
from schemas.error_codes import ErrorCode

UNKNOWN_PARTITION = DEFAULT_MESSAGE[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
NOTHING_TO_DELETE = "There is no offset information to delete."


# --- AlterShareGroupOffsets ---


def alter_share_group_offsets(context: Context, request: AlterShareGroupOffsetsRequest) -> Result:
    """Initialize partitions again, at given offsets: an AlteredOffsets. A group that does not exist is created.

    Raises Refused: NON_EMPTY_GROUP, and GROUP_ID_NOT_FOUND if the id belongs to a group of another type.
    """
    group = share_group_or_new(context, request.group_id, create=True)
    if group.members:
        raise Refused(ErrorCode.NON_EMPTY_GROUP)
    start_offsets: dict[str, dict[int, int]] = {}
    initializing: dict[str, tuple[str, tuple[int, ...]]] = {}
    answers = []
    for asked in request.topics:
        topic = context.image.topics.get(asked.topic_name)
        answers.append(_altered_topic(asked, topic))
        if topic is None:
            continue
        known = [partition for partition in asked.partitions if _is_there(topic, partition)]
        # Also without any existing partition: Kafka writes the topic nevertheless.
        initializing[topic.topic_id] = (topic.name, set_of(partition.partition_index for partition in known))
        if known:
            start_offsets[topic.topic_id] = {partition.partition_index: partition.start_offset for partition in known}
    records: list[CoordinatorRecord] = []
    add_initializing(context, request.group_id, map_of(initializing), records)
    response = AlterShareGroupOffsetsResponse(responses=tuple(answers))
    return Result(tuple(records), AlteredOffsets(response, group.group_epoch, start_offsets))


def _is_there(topic: Topic, partition: AlterOffsetsPartition) -> bool:
    return partition.partition_index < topic.partition_count


def _altered_topic(asked: AlterOffsetsTopic, topic: Topic | None) -> AlterOffsetsResponseTopic:
    partitions = tuple(
        AlterOffsetsResponsePartition(partition.partition_index)
        if topic is not None and _is_there(topic, partition)
        else AlterOffsetsResponsePartition(
            partition.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_PARTITION
        )
        for partition in asked.partitions
    )
    if topic is None:
        return AlterOffsetsResponseTopic(asked.topic_name, partitions=partitions)
    return AlterOffsetsResponseTopic(asked.topic_name, topic.topic_id, partitions)


# --- DeleteShareGroupOffsets ---


def initiate_delete_share_group_offsets(context: Context, request: DeleteShareGroupOffsetsRequest) -> Result:
    """First part of DeleteShareGroupOffsets: an OffsetDeletion. Initialized topics are `deleting` from now on."""
    try:
        group = group_of(context, request.group_id, ShareGroup, "share")
        if group.members:
            raise Refused(ErrorCode.NON_EMPTY_GROUP)
    except Refused as refused:
        return Result(response=OffsetDeletion(error_code=refused.code, error_message=refused.message))
    state_partitions = state_partitions_of(context, request.group_id)
    if state_partitions is None:
        return Result(response=OffsetDeletion())
    initialized, deleting = map_of(state_partitions.initialized), dict(state_partitions.deleting)
    doomed: dict[str, tuple[int, ...]] = {}
    refused_topics = []
    for asked in request.topics:
        topic = context.image.topics.get(asked.topic_name)
        if topic is None:
            refused_topics.append(_refused(asked.topic_name, UNKNOWN_PARTITION))
        elif topic.topic_id in initialized:
            _, doomed[topic.topic_id] = initialized.pop(topic.topic_id)
            deleting[topic.topic_id] = topic.name
        elif topic.topic_id in deleting:
            doomed[topic.topic_id] = tuple(range(topic.partition_count))
            deleting[topic.topic_id] = topic.name
        else:
            refused_topics.append(_refused(asked.topic_name, NOTHING_TO_DELETE))
    next_picture = ShareGroupStatePartitions(
        state_partitions.initializing, initialized, named(context, map_of(deleting))
    )
    record = written(context, request.group_id, next_picture)
    names = {topic_id: deleting[topic_id] for topic_id in doomed}
    return Result((record,), OffsetDeletion(doomed, names, tuple(refused_topics)))


def _refused(topic_name: str, text: str) -> DeleteOffsetsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DeleteOffsetsResponseTopic(topic_name, error_code=code, error_message=text)


def complete_delete_share_group_offsets(context: Context, request: CompleteOffsetDeletion) -> Result:
    """Second part: the share coordinator has deleted these topics. A DeleteShareGroupOffsetsResponse."""
    state_partitions = state_partitions_of(context, request.group_id)
    if state_partitions is None:
        return Result(response=DeleteShareGroupOffsetsResponse(responses=request.refused))
    deleting = [topic_id for topic_id in state_partitions.deleting if topic_id not in request.topics]
    next_picture = ShareGroupStatePartitions(
        state_partitions.initializing, state_partitions.initialized, named(context, deleting)
    )
    deleted = tuple(DeleteOffsetsResponseTopic(name, topic_id) for topic_id, name in request.topics.items())
    response = DeleteShareGroupOffsetsResponse(responses=(*deleted, *request.refused))
    return Result((written(context, request.group_id, next_picture),), response)
