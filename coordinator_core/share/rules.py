"""The rules of a share group for operations on all group types: offsets, deletion, lists (ShareGroup)."""

from coordinator_core.coordinator.modern_rules import ModernGroupRules, other_type
from coordinator_core.coordinator.operation import Context
from coordinator_core.coordinator.records import CoordinatorRecord
from coordinator_core.coordinator.rules import BaseTimestamp, CheckPartition, OffsetCommitter
from coordinator_core.share.live import ShareLive
from coordinator_core.share.records import group_tombstones
from coordinator_core.share.state import ShareGroup


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
        """From the leaves up, including the remaining states of its share partitions."""
        context.live(ShareLive).forget(group.group_id)
        return tuple(group_tombstones(group.group_id, group.members, group.target_assignment))

    def is_subscribed_to(self, group: ShareGroup, topic: str) -> bool:
        """Whether a member is subscribed by name."""
        return any(topic in member.subscribed_topic_names for member in group.members.values())

    def should_expire(self, group: ShareGroup) -> bool:
        """Never: a share group stays until it is deleted."""
        return False

    def expiration_base(self, group: ShareGroup) -> BaseTimestamp | None:
        """Nothing expires."""
        return None
