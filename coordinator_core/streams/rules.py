"""The rules of a streams group for operations on all group types: offsets, deletion, lists (StreamsGroup)."""

from coordinator_core.coordinator.errors import ErrorCode, Refused
from coordinator_core.coordinator.modern_rules import ModernGroupRules, member_of
from coordinator_core.coordinator.operation import Context
from coordinator_core.coordinator.records import CoordinatorRecord, member_tombstones, tombstone
from coordinator_core.coordinator.rules import CheckPartition, OffsetCommitter
from coordinator_core.streams.live import LiveStreamsGroups
from coordinator_core.streams.state import StreamsGroup, StreamsMember, Topology
from coordinator_core.streams.timers import cancel_group
from schemas.consumer_offsets import RecordType


class StreamsGroupRules(ModernGroupRules):
    """See GroupRules."""

    type_name = "streams"

    def validate_offset_commit(
        self, context: Context, group: StreamsGroup, committer: OffsetCommitter
    ) -> CheckPartition | None:
        """StreamsGroup.validateOffsetCommit.

        With the member's epoch, any partition may be committed. With an older epoch, only partitions of active tasks
        that the member has had since then or longer (KIP-1251).
        """
        epoch, member = committer.generation_id_or_member_epoch, self.committing_member(group, committer)
        if member is None:
            return None
        self.check_commit_version(committer)
        if epoch == member.member_epoch:
            return None
        if epoch > member.member_epoch:
            raise _stale(f"Received member epoch {epoch} is newer than current member epoch {member.member_epoch}.")
        topology = group.topology
        if topology is None:
            raise _stale("Topology is not available for offset commit validation.")

        def check_partition(topic: str, topic_id: str, partition: int) -> None:
            _check_task(topology, member, epoch, topic, partition)

        return check_partition

    def validate_offset_fetch(self, group: StreamsGroup, member_id: str | None, member_epoch: int) -> None:
        """A request with a member id must have the member's epoch."""
        if member_id is None and member_epoch < 0:
            return
        member = member_of(group, member_id or "")
        if member_epoch != member.member_epoch:
            expected = member.member_epoch
            text = f"The received member epoch {member_epoch} does not match the expected member epoch {expected}."
            raise _stale(text)

    def tombstones(self, context: Context, group: StreamsGroup) -> tuple[CoordinatorRecord, ...]:
        """From the leaves up, with the topology last; a running initial delay is cancelled."""
        cancel_group(context, group.group_id)
        context.live(LiveStreamsGroups).drop(group.group_id)
        group_id, members = group.group_id, sorted(group.members)
        return (
            *member_tombstones([RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT], group_id, members),
            *member_tombstones([RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER], group_id, members),
            tombstone(RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA, group_id=group_id),
            *member_tombstones([RecordType.STREAMS_GROUP_MEMBER_METADATA], group_id, members),
            tombstone(RecordType.STREAMS_GROUP_METADATA, group_id=group_id),
            tombstone(RecordType.STREAMS_GROUP_TOPOLOGY, group_id=group_id),
        )

    def is_subscribed_to(self, group: StreamsGroup, topic: str) -> bool:
        """Whether the topology reads the topic, if there are members."""
        return bool(group.members) and group.topology is not None and group.topology.subtopology_of(topic) is not None


def _check_task(topology: Topology, member: StreamsMember, epoch: int, topic: str, partition: int) -> None:
    """Check that a commit at an older epoch is for an active task that the member has had since then or longer."""
    subtopology_id = topology.subtopology_of(topic)
    if subtopology_id is None:
        raise _stale(f"Topic {topic} is not in the topology.")
    task = f"{subtopology_id}-{partition}"
    current_epoch = member.active.get(subtopology_id, {}).get(partition)
    if current_epoch is None:
        current_epoch = member.active_pending_revocation.get(subtopology_id, {}).get(partition)
    if current_epoch is None:
        raise _stale(f"Task {task} is not assigned or pending revocation for member.")
    if epoch < current_epoch:
        raise _stale(f"Received member epoch {epoch} is older than assignment epoch {current_epoch} for task {task}.")


def _stale(text: str) -> Refused:
    return Refused(ErrorCode.STALE_MEMBER_EPOCH, text)
