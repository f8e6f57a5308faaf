"""The rules of a consumer group for operations on all group types: offsets, deletion (ConsumerGroup)."""

from coordinator_core.bytes.kafka_versions import Since
from coordinator_core.live.consumer.records import group_tombstones
from coordinator_core.live.coordinator.modern_rules import ModernGroupRules
from coordinator_core.live.coordinator.operation import CheckPartition, Context, OffsetCommitter
from coordinator_core.live.coordinator.records import CoordinatorRecord
from coordinator_core.replay.consumer.state import ConsumerGroup, ConsumerMember
from coordinator_core.replay.consumer.subscriptions import subscriptions_of


class ConsumerGroupRules(ModernGroupRules):
    """See GroupRules."""

    type_name = "consumer"

    def validate_offset_commit(
        self, context: Context, group: ConsumerGroup, committer: OffsetCommitter
    ) -> CheckPartition | None:
        """ConsumerGroup.validateOffsetCommit.

        With the member's epoch, any partition may be committed. With an older epoch, only partitions that the member
        has owned since then or longer: a commit may be in flight while the member moves on (KIP-1251).
        """
        epoch, member = committer.generation_id_or_member_epoch, self.member_behind(group, committer)
        if member is None:
            return None
        what = f"Received {self.epoch_name(member)} {epoch}"

        def check_partition(topic: str, topic_id: str, partition: int) -> None:
            # TxnOffsetCommit had only names; so has OffsetCommit before version 10, but there Kafka does not look them
            # up
            has_name_only = committer.is_transactional and not Since.TXN_COMMITS_HAVE_TOPIC_IDS.holds_in(
                context.config.kafka_version
            )
            known = context.image.topics.get(topic) if has_name_only else None
            current_epoch = _assignment_epoch(member, topic_id if known is None else known.topic_id, partition)
            where = f"{topic}-{partition}"
            if current_epoch is None:
                raise self.stale(member, f"Partition {where} is not assigned or pending revocation for member.")
            if epoch < current_epoch:
                raise self.stale(
                    member, f"{what} is older than assignment epoch {current_epoch} for partition {where}."
                )

        return check_partition

    def epoch_name(self, member: ConsumerMember) -> str:
        """A member of the classic protocol knows its epoch as its generation."""
        return super().epoch_name(member) if member.classic_member_metadata is None else "generation id"

    def tombstones(self, context: Context, group: ConsumerGroup) -> tuple[CoordinatorRecord, ...]:
        """From the leaves up, as replay requires; the legacy record is deleted whether or not it exists."""
        targets = sorted({*group.members, *group.target_assignment})
        return group_tombstones(group.group_id, sorted(group.members), targets, group.resolved_regexes)

    def is_subscribed_to(self, group: ConsumerGroup, topic: str) -> bool:
        """Whether a member is subscribed by name, or by a pattern that was resolved to the topic."""
        return topic in subscriptions_of(group).topic_names


def _assignment_epoch(member: ConsumerMember, topic_id: str, partition: int) -> int | None:
    """The epoch since which the member has the partition, or None if it does not have it."""
    partition_epochs = member.assigned.get(topic_id, {}).get(partition)
    return member.pending_revocation.get(topic_id, {}).get(partition) if partition_epochs is None else partition_epochs
