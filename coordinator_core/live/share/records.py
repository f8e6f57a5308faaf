"""Records that a share group writes, types 10 to 15 (GroupCoordinatorRecordHelpers). All values have version 0.

Topics are in the order in which the caller gives them, partitions in that of a HashSet, topic names are sorted, as in
Kafka.
"""

from collections.abc import Iterable, Mapping

from coordinator_core.bytes.codec import Declaration, Struct, make
from coordinator_core.live.coordinator.records import CoordinatorRecord, record_of
from coordinator_core.replay.java.hash_codes import string_order
from coordinator_core.replay.java.ordered import set_of
from coordinator_core.replay.record_families import SHARE
from coordinator_core.replay.share.state import ShareGroupStatePartitions, ShareMember
from schemas.consumer_offsets import RecordType
from schemas.consumer_offsets import share as messages


def member_metadata_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """ShareGroupMemberMetadata (10): a member and its subscription."""
    key = {"group_id": group_id, "member_id": member.member_id}
    names = sorted(set(member.subscribed_topic_names), key=string_order)
    return record_of(SHARE.member, key, member, subscribed_topic_names=names)


def epoch_record(group_id: str, group_epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """ShareGroupMetadata (11): the group's epoch."""
    return record_of(SHARE.metadata, {"group_id": group_id}, epoch=group_epoch, metadata_hash=metadata_hash)


def target_record(group_id: str, member_id: str, target: Mapping[str, Iterable[int]]) -> CoordinatorRecord:
    """ShareGroupTargetAssignmentMember (13): the whole target of a member."""
    topics = _topics(messages.TOPIC_PARTITION, target)
    return record_of(SHARE.target, {"group_id": group_id, "member_id": member_id}, topic_partitions=topics)


def current_assignment_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """ShareGroupCurrentMemberAssignment (14): epochs and partitions of a member."""
    key = {"group_id": group_id, "member_id": member.member_id}
    assigned = _topics(messages.TOPIC_PARTITIONS, member.assigned)
    return record_of(SHARE.current, key, member, assigned_partitions=assigned)


def state_partitions_record(group_id: str, partitions: ShareGroupStatePartitions) -> CoordinatorRecord:
    """ShareGroupStatePartitionMetadata (15): the states of all share partitions of the group."""
    return record_of(
        RecordType.SHARE_GROUP_STATE_PARTITION_METADATA,
        {"group_id": group_id},
        initializing_topics=_named_topics(partitions.initializing),
        initialized_topics=_named_topics(partitions.initialized),
        deleting_topics=[
            make(messages.TOPIC_INFO, topic_id=topic_id, topic_name=name)
            for topic_id, name in partitions.deleting.items()
        ],
    )


def _topics(declared: Declaration, partitions: Mapping[str, Iterable[int]]) -> list[Struct]:
    return [make(declared, topic_id=topic_id, partitions=set_of(numbers)) for topic_id, numbers in partitions.items()]


def _named_topics(topics: Mapping[str, tuple[str, tuple[int, ...]]]) -> list[Struct]:
    return [
        make(messages.TOPIC_PARTITIONS_INFO, topic_id=topic_id, topic_name=name, partitions=list(numbers))
        for topic_id, (name, numbers) in topics.items()
    ]
