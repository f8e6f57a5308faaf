"""The rules of a classic group for operations on all group types: offsets, deletion (ClassicGroup)."""

from coordinator_core.live.classic.live import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    LiveClassicGroup,
)
from coordinator_core.live.classic.records import group_metadata_tombstone
from coordinator_core.live.classic.timers import schedule_heartbeat
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.operation import (
    BaseTimestamp,
    CheckPartition,
    Context,
    GroupRules,
    OffsetCommitter,
    commit_timestamp,
)
from coordinator_core.live.coordinator.records import CoordinatorRecord
from schemas.error_codes import ErrorCode


class ClassicGroupRules(GroupRules):
    """See GroupRules."""

    def validate_offset_commit(
        self, context: Context, group: LiveClassicGroup, committer: OffsetCommitter
    ) -> CheckPartition | None:
        """ClassicGroup.validateOffsetCommit. A transactional commit depends on the generation, not on the state."""
        generation_id = committer.generation_id_or_member_epoch
        if group.state == DEAD:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation_id < 0 and group.state == EMPTY:
            return None
        if generation_id >= 0 or committer.member_id or committer.group_instance_id is not None:
            group.validate_member(committer.member_id, committer.group_instance_id)
            if generation_id != group.generation_id:
                raise Refused(ErrorCode.ILLEGAL_GENERATION)
        elif not committer.is_transactional and group.state != EMPTY:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
        if not committer.is_transactional and group.state == COMPLETING_REBALANCE:
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)
        return None

    def validate_offset_fetch(self, group: LiveClassicGroup, member_id: str | None, member_epoch: int) -> None:
        """Any request may read, unless the group is Dead."""
        self._check_alive(group)

    def validate_offset_delete(self, group: LiveClassicGroup) -> None:
        """Refused for a group with members whose topics are unreadable."""
        self._check_alive(group)
        if group.state != EMPTY and not group.uses_consumer_protocol:
            raise Refused(ErrorCode.NON_EMPTY_GROUP)

    def validate_delete_group(self, group: LiveClassicGroup) -> None:
        self._check_alive(group)
        if group.state != EMPTY:
            raise Refused(ErrorCode.NON_EMPTY_GROUP)

    def tombstones(self, context: Context, group: LiveClassicGroup) -> tuple[CoordinatorRecord, ...]:
        """A single record is the whole group."""
        return (group_metadata_tombstone(group.group_id),)

    def is_subscribed_to(self, group: LiveClassicGroup, topic: str) -> bool:
        return group.is_subscribed_to(topic)

    def is_empty(self, group: LiveClassicGroup) -> bool:
        """By state: a group whose last members just left is not Empty before the join phase has ended."""
        return group.state == EMPTY

    def expiration_base(self, group: LiveClassicGroup) -> BaseTimestamp | None:
        """ClassicGroup.offsetExpirationCondition: since the group became Empty, otherwise since the commit.

        With members, offsets expire only while the group is Stable and its topics are known.
        """
        if group.protocol_type is None:
            return commit_timestamp
        if group.state == EMPTY:
            empty_since_ms = group.current_state_timestamp_ms
            return commit_timestamp if empty_since_ms is None else lambda _: empty_since_ms
        is_known = group.uses_consumer_protocol and group.subscribed_topics is not None
        return commit_timestamp if is_known and group.state == STABLE else None

    def refresh_on_commit(self, context: Context, group: LiveClassicGroup, member_id: str) -> None:
        """A commit restarts the session of a member."""
        if member_id in group.members and group.state in {STABLE, PREPARING_REBALANCE}:
            schedule_heartbeat(context, group, member_id)

    def _check_alive(self, group: LiveClassicGroup) -> None:
        if group.state == DEAD:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is in dead state.")
