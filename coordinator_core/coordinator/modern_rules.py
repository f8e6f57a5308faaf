"""What the operations of all group types (offsets, deletion, lists) ask of a consumer group.

Source: ConsumerGroup. Records are tombstones only; the commands which write values are the group types'.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from coordinator_core.codec import make
from coordinator_core.consumer.state import ConsumerGroup, ConsumerMember
from coordinator_core.coordinator.errors import ErrorCode, Refused
from coordinator_core.coordinator.records import CoordinatorRecord
from coordinator_core.coordinator.rules import BaseTimestamp, CheckPartition, ListedGroup, OffsetCommitter
from coordinator_core.coordinator.shard import Context, GroupModule
from coordinator_core.offsets.replay import ZERO_UUID
from coordinator_core.offsets.state import CommittedOffset
from schemas.consumer_offsets import TOPIC, RecordType
from schemas.registry import REGISTRY

OFFSET_COMMIT_FROM_VERSION: Final = 9
"""OffsetCommit: members of the consumer protocol need this version at least; it has the member epoch."""


class ConsumerGroupRules:
    """See GroupRules."""

    type_name = "consumer"

    def validate_offset_commit(
        self, context: Context, group: ConsumerGroup, committer: OffsetCommitter
    ) -> CheckPartition | None:
        """ConsumerGroup.validateOffsetCommit.

        The member's epoch commits everything. An older one commits what the member has held since then or before: a
        commit may be on its way while the member moves on (KIP-1251).
        """
        epoch = committer.generation_id_or_member_epoch
        if epoch < 0 and not group.members:
            return None
        is_nobody = epoch == -1 and not committer.member_id and committer.group_instance_id is None
        if committer.is_transactional and is_nobody:
            return None
        member = _member(group, committer.member_id)
        is_classic = member.classic_member_metadata is not None
        if not committer.is_transactional and not is_classic and committer.api_version < OFFSET_COMMIT_FROM_VERSION:
            raise Refused(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            )
        if epoch == member.member_epoch:
            return None
        what = f"Received {'generation id' if is_classic else 'member epoch'} {epoch}"
        if epoch > member.member_epoch:
            raise _stale(member, f"{what} is newer than current member epoch {member.member_epoch}.")

        def check_partition(topic: str, topic_id: str, partition: int) -> None:
            known = context.image.topics.get(topic)
            held_id = known.topic_id if topic_id == ZERO_UUID and known is not None else topic_id
            held_epoch = _assignment_epoch(member, held_id, partition)
            where = f"partition {topic}-{partition}"
            if held_epoch is None:
                raise _stale(member, f"{where.capitalize()} is not assigned or pending revocation for member.")
            if epoch < held_epoch:
                raise _stale(member, f"{what} is older than assignment epoch {held_epoch} for {where}.")

        return check_partition

    def validate_offset_fetch(self, group: ConsumerGroup, member_id: str | None, member_epoch: int) -> None:
        """Who gives a member id reads at the member's epoch only."""
        if member_id is None and member_epoch < 0:
            return
        member = _member(group, member_id or "")
        if member_epoch != member.member_epoch:
            expected = member.member_epoch
            text = f"The received member epoch {member_epoch} does not match the expected member epoch {expected}."
            raise _stale(member, text)

    def validate_offset_delete(self, group: ConsumerGroup) -> None:
        """Always: topics which members read are looked at one by one."""

    def validate_delete_group(self, group: ConsumerGroup) -> None:
        """Only without members."""
        _check_empty(group)

    def tombstones(self, context: Context, group: ConsumerGroup) -> tuple[CoordinatorRecord, ...]:
        """From the leaves up, as replay wants them; the legacy record is deleted whether it is there or not."""
        return (
            *_of_members(RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, group.group_id, group.members),
            *_of_members(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, group.group_id, group.target_assignment),
            _tombstone(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, group_id=group.group_id),
            *_of_members(RecordType.CONSUMER_GROUP_MEMBER_METADATA, group.group_id, group.members),
            *(
                _tombstone(
                    RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION, group_id=group.group_id, regular_expression=regex
                )
                for regex in sorted(group.resolved_regexes)
            ),
            _tombstone(RecordType.CONSUMER_GROUP_PARTITION_METADATA, group_id=group.group_id),
            _tombstone(RecordType.CONSUMER_GROUP_METADATA, group_id=group.group_id),
        )

    def is_subscribed_to(self, group: ConsumerGroup, topic: str) -> bool:
        """By name or by a pattern which was resolved to it."""
        by_name = any(topic in member.subscribed_topic_names for member in group.members.values())
        return by_name or any(topic in resolved.topics for resolved in group.resolved_regexes.values())

    def is_empty(self, group: ConsumerGroup) -> bool:
        """Without members."""
        return not group.members

    def should_expire(self, group: ConsumerGroup) -> bool:
        """Always."""
        return True

    def expiration_base(self, group: ConsumerGroup) -> BaseTimestamp | None:
        """Since the commit."""
        return _commit_timestamp

    def refresh_on_commit(self, context: Context, group: ConsumerGroup, member_id: str) -> None:
        """A commit is no heartbeat."""

    def listed(self, group: ConsumerGroup) -> ListedGroup:
        """The line of ListGroups."""
        return ListedGroup(group.group_id, "consumer", group.state.value, self.type_name)


def _member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    member = group.members.get(member_id)
    if member is None:
        text = f"Member {member_id} is not a member of group {group.group_id}."
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, text)
    return member


def _assignment_epoch(member: ConsumerMember, topic_id: str, partition: int) -> int | None:
    """Since which epoch the member holds the partition, or None where it does not."""
    held = member.assigned.get(topic_id, {}).get(partition)
    return member.pending_revocation.get(topic_id, {}).get(partition) if held is None else held


def _stale(member: ConsumerMember, text: str) -> Refused:
    """A member of the classic protocol knows its epoch as its generation."""
    is_classic = member.classic_member_metadata is not None
    return Refused(ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH, text)


def _check_empty(group: ConsumerGroup) -> None:
    if group.members:
        raise Refused(ErrorCode.NON_EMPTY_GROUP)


def _of_members(record_type: RecordType, group_id: str, members: Mapping[str, object]) -> Iterable[CoordinatorRecord]:
    return [_tombstone(record_type, group_id=group_id, member_id=member_id) for member_id in sorted(members)]


def _tombstone(record_type: RecordType, **key: str) -> CoordinatorRecord:
    return CoordinatorRecord(record_type, make(REGISTRY[TOPIC][record_type][0], **key), None)


def _commit_timestamp(committed: CommittedOffset) -> int:
    return committed.commit_timestamp_ms


MODULE: Final = GroupModule("modern", rules={ConsumerGroup: ConsumerGroupRules()})
