"""The records that a consumer group writes: types 3 to 8 and 16 (GroupCoordinatorRecordHelpers).

There is one function for each record type, and one for its tombstone. Values have version 0.
"""

from collections.abc import Iterable, Mapping

from coordinator_core.codec import Struct, make
from coordinator_core.consumer.state import ConsumerMember, ResolvedRegex
from coordinator_core.coordinator.records import CoordinatorRecord
from coordinator_core.java.hash_codes import string_order
from schemas.consumer_offsets import TOPIC, RecordType
from schemas.consumer_offsets.consumer import (
    CLASSIC_MEMBER_METADATA,
    CLASSIC_PROTOCOL,
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
    CONSUMER_GROUP_MEMBER_METADATA_VALUE,
    CONSUMER_GROUP_METADATA_VALUE,
    CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE,
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE,
    TOPIC_PARTITION,
    TOPIC_PARTITIONS,
)
from schemas.registry import REGISTRY


def group_metadata_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """ConsumerGroupMetadata (3): the group epoch."""
    value = make(CONSUMER_GROUP_METADATA_VALUE, epoch=epoch, metadata_hash=metadata_hash)
    return _record(RecordType.CONSUMER_GROUP_METADATA, value, group_id=group_id)


def group_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Tombstone of the group."""
    return _record(RecordType.CONSUMER_GROUP_METADATA, None, group_id=group_id)


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Tombstone of ConsumerGroupPartitionMetadata (4), which only brokers before 4.1 wrote."""
    return _record(RecordType.CONSUMER_GROUP_PARTITION_METADATA, None, group_id=group_id)


def member_metadata_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """ConsumerGroupMemberMetadata (5): a member's subscription and other attributes."""
    classic = member.classic_member_metadata
    value = make(
        CONSUMER_GROUP_MEMBER_METADATA_VALUE,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(set(member.subscribed_topic_names), key=string_order),
        subscribed_topic_regex=member.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=None
        if classic is None
        else make(
            CLASSIC_MEMBER_METADATA,
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                make(CLASSIC_PROTOCOL, name=name, metadata=metadata) for name, metadata in classic.supported_protocols
            ],
        ),
    )
    return _member_record(RecordType.CONSUMER_GROUP_MEMBER_METADATA, group_id, member.member_id, value)


def member_metadata_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Tombstone of a member."""
    return _member_record(RecordType.CONSUMER_GROUP_MEMBER_METADATA, group_id, member_id, None)


def target_metadata_record(group_id: str, assignment_epoch: int, assignment_timestamp_ms: int) -> CoordinatorRecord:
    """ConsumerGroupTargetAssignmentMetadata (6): the group epoch for which the targets were computed."""
    value = make(
        CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE,
        assignment_epoch=assignment_epoch,
        assignment_timestamp=assignment_timestamp_ms,
    )
    return _record(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, value, group_id=group_id)


def target_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Tombstone of the assignment epoch."""
    return _record(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, None, group_id=group_id)


def target_record(group_id: str, member_id: str, partitions: Mapping[str, Iterable[int]]) -> CoordinatorRecord:
    """ConsumerGroupTargetAssignmentMember (7): topic id -> partitions, written in the order given."""
    value = make(
        CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
        topic_partitions=[
            make(TOPIC_PARTITION, topic_id=topic_id, partitions=list(numbers))
            for topic_id, numbers in partitions.items()
        ],
    )
    return _member_record(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, group_id, member_id, value)


def target_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Tombstone of a member's target."""
    return _member_record(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, group_id, member_id, None)


def current_assignment_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """ConsumerGroupCurrentMemberAssignment (8): epoch, state and partitions of a member."""
    value = make(
        CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state.value,
        assigned_partitions=_topic_partitions(member.assigned),
        partitions_pending_revocation=_topic_partitions(member.pending_revocation),
    )
    return _member_record(RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, group_id, member.member_id, value)


def current_assignment_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Tombstone of a member's current assignment."""
    return _member_record(RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, group_id, member_id, None)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """All tombstones of a member, in the order that replay requires (GroupMetadataManager.removeMember)."""
    return [
        current_assignment_tombstone(group_id, member_id),
        target_tombstone(group_id, member_id),
        member_metadata_tombstone(group_id, member_id),
    ]


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    """ConsumerGroupRegularExpression (16): the topics to which a pattern was resolved."""
    value = make(
        CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE,
        topics=sorted(resolved.topics, key=string_order),
        version=resolved.version,
        timestamp=resolved.timestamp_ms,
    )
    return _record(RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION, value, group_id=group_id, regular_expression=regex)


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    """Tombstone of a pattern that no member uses any more."""
    return _record(RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION, None, group_id=group_id, regular_expression=regex)


def _topic_partitions(partition_epochs: Mapping[str, Mapping[int, int]]) -> list[Struct]:
    return [
        make(TOPIC_PARTITIONS, topic_id=topic_id, partitions=list(epochs), assignment_epochs=list(epochs.values()))
        for topic_id, epochs in partition_epochs.items()
    ]


def _member_record(record_type: RecordType, group_id: str, member_id: str, value: Struct | None) -> CoordinatorRecord:
    return _record(record_type, value, group_id=group_id, member_id=member_id)


def _record(record_type: RecordType, value: Struct | None, **key: str) -> CoordinatorRecord:
    return CoordinatorRecord(record_type, make(REGISTRY[TOPIC][record_type][0], **key), value)
