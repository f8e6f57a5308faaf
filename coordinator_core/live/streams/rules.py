"""The rules of a streams group for operations on all group types: offsets, deletion (StreamsGroup)."""

from coordinator_core.live.coordinator.modern_rules import ModernGroupRules
from coordinator_core.live.coordinator.operation import CheckPartition, Context, OffsetCommitter
from coordinator_core.live.coordinator.records import CoordinatorRecord, group_tombstones, tombstone
from coordinator_core.live.streams.live import LiveStreamsGroups
from coordinator_core.live.streams.timers import cancel_group
from coordinator_core.replay.record_families import STREAMS
from coordinator_core.replay.streams.state import StreamsGroup, StreamsMember, Topology
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
        member, topology = self.member_behind(group, committer), group.topology
        if member is None:
            return None
        if topology is None:
            raise self.stale(member, "Topology is not available for offset commit validation.")

        def check_partition(topic: str, topic_id: str, partition: int) -> None:
            problem = _problem(topology, member, committer.generation_id_or_member_epoch, topic, partition)
            if problem is not None:
                raise self.stale(member, problem)

        return check_partition

    def tombstones(self, context: Context, group: StreamsGroup) -> tuple[CoordinatorRecord, ...]:
        """From the leaves up, with the topology last; a running initial delay is cancelled."""
        cancel_group(context, group.group_id)
        context.live(LiveStreamsGroups).drop(group.group_id)
        group_id, members = group.group_id, sorted(group.members)
        return group_tombstones(
            STREAMS,
            group_id,
            members,
            members,
            tombstone(STREAMS.metadata, group_id=group_id),
            tombstone(RecordType.STREAMS_GROUP_TOPOLOGY, group_id=group_id),
        )

    def is_subscribed_to(self, group: StreamsGroup, topic: str) -> bool:
        """Whether the topology reads the topic, if there are members."""
        return bool(group.members) and group.topology is not None and group.topology.subtopology_of(topic) is not None


def _problem(topology: Topology, member: StreamsMember, epoch: int, topic: str, partition: int) -> str | None:
    """Why a commit at an older epoch is not for an active task that the member has had since then or longer."""
    subtopology_id = topology.subtopology_of(topic)
    if subtopology_id is None:
        return f"Topic {topic} is not in the topology."
    task = f"{subtopology_id}-{partition}"
    current_epoch = member.active.get(subtopology_id, {}).get(partition)
    if current_epoch is None:
        current_epoch = member.active_pending_revocation.get(subtopology_id, {}).get(partition)
    if current_epoch is None:
        return f"Task {task} is not assigned or pending revocation for member."
    if epoch < current_epoch:
        return f"Received member epoch {epoch} is older than assignment epoch {current_epoch} for task {task}."
    return None
