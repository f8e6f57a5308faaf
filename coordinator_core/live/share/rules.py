"""The rules of a share group for operations on all group types: offsets, deletion (ShareGroup)."""

from coordinator_core.live.coordinator.modern_rules import ModernGroupRules, other_type
from coordinator_core.live.coordinator.operation import BaseTimestamp, CheckPartition, Context, OffsetCommitter
from coordinator_core.live.coordinator.records import CoordinatorRecord, group_tombstones, tombstone
from coordinator_core.live.share.live import ShareLive
from coordinator_core.replay.record_families import SHARE
from coordinator_core.replay.share.state import ShareGroup
from schemas.consumer_offsets import RecordType


class ShareGroupRules(ModernGroupRules):
    """See GroupRules. A share group has no committed offsets."""

    type_name = "share"

    def validate_offset_commit(
        self, context: Context, group: ShareGroup, committer: OffsetCommitter
    ) -> CheckPartition | None:
        raise other_type(group.group_id, "consumer")

    def validate_offset_fetch(self, group: ShareGroup, member_id: str | None, member_epoch: int) -> None:
        """Refused: there are no offsets."""
        raise other_type(group.group_id, "consumer")

    def validate_offset_delete(self, group: ShareGroup) -> None:
        raise other_type(group.group_id, "consumer")

    def tombstones(self, context: Context, group: ShareGroup) -> tuple[CoordinatorRecord, ...]:
        """From the leaves up (ShareGroup.createGroupTombstoneRecords), including its share partitions: before, the
        broker has asked the share coordinator to delete their state.
        """
        context.live(ShareLive).forget(group.group_id)
        group_id = group.group_id
        return group_tombstones(
            SHARE,
            group_id,
            sorted(group.members),
            sorted(group.target_assignment),
            tombstone(RecordType.SHARE_GROUP_STATE_PARTITION_METADATA, group_id=group_id),
            tombstone(SHARE.metadata, group_id=group_id),
        )

    def is_subscribed_to(self, group: ShareGroup, topic: str) -> bool:
        """Whether a member is subscribed by name."""
        return any(topic in member.subscribed_topic_names for member in group.members.values())

    def should_expire(self, group: ShareGroup) -> bool:
        """Never: a share group stays until it is deleted."""
        return False

    def expiration_base(self, group: ShareGroup) -> BaseTimestamp | None:
        """Nothing expires."""
        return None
