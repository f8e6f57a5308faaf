"""Records that a share group writes, types 10 to 15 (GroupCoordinatorRecordHelpers). All values have version 0.

Topics are in the order in which the caller gives them, partitions in that of a HashSet, topic names are sorted, as in
Kafka.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from coordinator_core.codec import Declaration, Struct, make, make_from
from coordinator_core.coordinator.records import CoordinatorRecord, member_tombstones, record_of, tombstone
from coordinator_core.java.hash_codes import string_order
from coordinator_core.java.ordered import set_of
from coordinator_core.share.state import ShareGroupStatePartitions, ShareMember
from schemas.consumer_offsets import RecordType
from schemas.consumer_offsets import share as messages


def member_metadata_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """ShareGroupMemberMetadata (10): a member and its subscription."""
    names = sorted(set(member.subscribed_topic_names), key=string_order)
    value = make_from(messages.SHARE_GROUP_MEMBER_METADATA_VALUE, member, subscribed_topic_names=names)
    return record_of(RecordType.SHARE_GROUP_MEMBER_METADATA, value, group_id=group_id, member_id=member.member_id)


def epoch_record(group_id: str, group_epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """ShareGroupMetadata (11): the group's epoch."""
    value = make(messages.SHARE_GROUP_METADATA_VALUE, epoch=group_epoch, metadata_hash=metadata_hash)
    return record_of(RecordType.SHARE_GROUP_METADATA, value, group_id=group_id)


def target_epoch_record(group_id: str, assignment_epoch: int, now_ms: int) -> CoordinatorRecord:
    """ShareGroupTargetAssignmentMetadata (12): the group epoch of the targets, and when they were computed."""
    value = make(
        messages.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE,
        assignment_epoch=assignment_epoch,
        assignment_timestamp=now_ms,
    )
    return record_of(RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA, value, group_id=group_id)


def target_record(group_id: str, member_id: str, target: Mapping[str, Iterable[int]]) -> CoordinatorRecord:
    """ShareGroupTargetAssignmentMember (13): the whole target of a member."""
    topics = _topics(messages.TOPIC_PARTITION, target)
    value = make(messages.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE, topic_partitions=topics)
    return record_of(RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER, value, group_id=group_id, member_id=member_id)


def current_assignment_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """ShareGroupCurrentMemberAssignment (14): epochs and partitions of a member."""
    assigned = _topics(messages.TOPIC_PARTITIONS, member.assigned)
    value = make_from(messages.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE, member, assigned_partitions=assigned)
    return record_of(
        RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT, value, group_id=group_id, member_id=member.member_id
    )


def state_partitions_record(group_id: str, partitions: ShareGroupStatePartitions) -> CoordinatorRecord:
    """ShareGroupStatePartitionMetadata (15): the states of all share partitions of the group."""
    value = make(
        messages.SHARE_GROUP_STATE_PARTITION_METADATA_VALUE,
        initializing_topics=_named_topics(partitions.initializing),
        initialized_topics=_named_topics(partitions.initialized),
        deleting_topics=[
            make(messages.TOPIC_INFO, topic_id=topic_id, topic_name=name)
            for topic_id, name in partitions.deleting.items()
        ],
    )
    return record_of(RecordType.SHARE_GROUP_STATE_PARTITION_METADATA, value, group_id=group_id)


MEMBER_RECORDS: Final = (
    RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER,
    RecordType.SHARE_GROUP_MEMBER_METADATA,
)
"""All records of a member, from the leaves up."""


def group_tombstones(group_id: str, member_ids: Iterable[str], target_ids: Iterable[str]) -> list[CoordinatorRecord]:
    """Tombstones of a group, from the leaves up (ShareGroup.createGroupTombstoneRecords).

    They include its share partitions: before, the broker has asked the share coordinator to delete their state.
    """
    members, targets = sorted(member_ids), sorted(target_ids)
    return [
        *member_tombstones([RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT], group_id, members),
        *member_tombstones([RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER], group_id, targets),
        tombstone(RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA, group_id=group_id),
        *member_tombstones([RecordType.SHARE_GROUP_MEMBER_METADATA], group_id, members),
        tombstone(RecordType.SHARE_GROUP_STATE_PARTITION_METADATA, group_id=group_id),
        tombstone(RecordType.SHARE_GROUP_METADATA, group_id=group_id),
    ]


def _topics(declared: Declaration, partitions: Mapping[str, Iterable[int]]) -> list[Struct]:
    return [make(declared, topic_id=topic_id, partitions=set_of(numbers)) for topic_id, numbers in partitions.items()]


def _named_topics(topics: Mapping[str, tuple[str, tuple[int, ...]]]) -> list[Struct]:
    return [
        make(messages.TOPIC_PARTITIONS_INFO, topic_id=topic_id, topic_name=name, partitions=list(numbers))
        for topic_id, (name, numbers) in topics.items()
    ]
