"""The records that a consumer group writes: types 3 to 8 and 16 (GroupCoordinatorRecordHelpers).

Values have version 0.
"""

from collections.abc import Collection, Iterable, Mapping

from coordinator_core.bytes.codec import Struct, make
from coordinator_core.live.coordinator import records
from coordinator_core.live.coordinator.records import CoordinatorRecord, record_of, tombstone
from coordinator_core.replay.consumer.state import ConsumerMember, ResolvedRegex
from coordinator_core.replay.java.hash_codes import string_order
from coordinator_core.replay.record_families import CONSUMER
from schemas.consumer_offsets import RecordType
from schemas.consumer_offsets.consumer import (
    CLASSIC_MEMBER_METADATA,
    CLASSIC_PROTOCOL,
    TOPIC_PARTITION,
    TOPIC_PARTITIONS,
)


def group_metadata_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """ConsumerGroupMetadata (3): the group epoch."""
    return record_of(CONSUMER.metadata, {"group_id": group_id}, epoch=epoch, metadata_hash=metadata_hash)


def member_metadata_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """ConsumerGroupMemberMetadata (5): a member's subscription and other attributes."""
    classic = member.classic_member_metadata
    return record_of(
        CONSUMER.member,
        {"group_id": group_id, "member_id": member.member_id},
        member,
        subscribed_topic_names=sorted(set(member.subscribed_topic_names), key=string_order),
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


def target_record(group_id: str, member_id: str, partitions: Mapping[str, Iterable[int]]) -> CoordinatorRecord:
    """ConsumerGroupTargetAssignmentMember (7): topic id -> partitions, written in the order given."""
    topics = [
        make(TOPIC_PARTITION, topic_id=topic_id, partitions=list(numbers)) for topic_id, numbers in partitions.items()
    ]
    return record_of(CONSUMER.target, {"group_id": group_id, "member_id": member_id}, topic_partitions=topics)


def current_assignment_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """ConsumerGroupCurrentMemberAssignment (8): epoch, state and partitions of a member."""
    return record_of(
        CONSUMER.current,
        {"group_id": group_id, "member_id": member.member_id},
        member,
        state=member.state.value,
        assigned_partitions=_topic_partitions(member.assigned),
        partitions_pending_revocation=_topic_partitions(member.pending_revocation),
    )


def group_tombstones(
    group_id: str, member_ids: Collection[str], target_ids: Collection[str], regexes: Iterable[str]
) -> tuple[CoordinatorRecord, ...]:
    """Tombstones of a group, from the leaves up (ConsumerGroup.createGroupTombstoneRecords).

    That of the partition metadata, which only brokers before 4.1 wrote, is always among them.
    """
    return records.group_tombstones(
        CONSUMER,
        group_id,
        member_ids,
        target_ids,
        *(regex_tombstone(group_id, regex) for regex in sorted(regexes)),
        tombstone(RecordType.CONSUMER_GROUP_PARTITION_METADATA, group_id=group_id),
        tombstone(CONSUMER.metadata, group_id=group_id),
    )


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    """Tombstone of a pattern that no member uses any more."""
    return tombstone(RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION, group_id=group_id, regular_expression=regex)


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    """ConsumerGroupRegularExpression (16): the topics to which a pattern was resolved."""
    return record_of(
        RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION,
        {"group_id": group_id, "regular_expression": regex},
        topics=sorted(resolved.topics, key=string_order),
        version=resolved.version,
        timestamp=resolved.timestamp_ms,
    )


def _topic_partitions(partition_epochs: Mapping[str, Mapping[int, int]]) -> list[Struct]:
    return [
        make(TOPIC_PARTITIONS, topic_id=topic_id, partitions=list(epochs), assignment_epochs=list(epochs.values()))
        for topic_id, epochs in partition_epochs.items()
    ]
