"""Rules that consumer, share and streams groups share."""

from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeVar

from coordinator_core.bytes.kafka_versions import Since
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.operation import Context, GroupRules, OffsetCommitter
from coordinator_core.live.coordinator.records import CoordinatorRecord, target_epoch_record
from coordinator_core.replay.record_families import RecordFamily
from schemas.error_codes import ErrorCode

M_co = TypeVar("M_co", covariant=True)


class GroupOf(Protocol[M_co]):
    @property
    def group_id(self) -> str: ...

    @property
    def members(self) -> Mapping[str, M_co]: ...


class StaticGroupOf(GroupOf[M_co], Protocol[M_co]):
    @property
    def static_members(self) -> Mapping[str, str]: ...


G = TypeVar("G")


def group_of(context: Context, group_id: str, kind: type[G], type_name: str) -> G:
    """The group; raises Refused (GROUP_ID_NOT_FOUND)."""
    group = context.group(group_id)
    if group is None:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not isinstance(group, kind):
        raise other_type(group_id, type_name)
    return group


def other_type(group_id: str, type_name: str) -> Refused:
    """The error for a group of another type."""
    return Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {type_name} group.")


def check_not_full(group: GroupOf[object], type_name: str, size_max: int, *, is_known: bool) -> None:
    """Raise Refused (GROUP_MAX_SIZE_REACHED) if there is no room; `is_known`: the member needs none."""
    if len(group.members) >= size_max and not is_known:
        text = f"The {type_name} group has reached its maximum capacity of {size_max} members."
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, text)


def fenced_epoch(type_name: str, epoch: int, member_epoch: int, more: str = "") -> Refused:
    """The error for a member at another epoch than the one known (FENCED_MEMBER_EPOCH)."""
    size = "greater" if epoch > member_epoch else "smaller"
    text = (
        f"The {type_name} group member has a {size} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member_epoch}){more}. The member must abandon all its partitions and rejoin."
    )
    return Refused(ErrorCode.FENCED_MEMBER_EPOCH, text)


def unreleased(member_id: str, instance_id: str, existing_id: str) -> Refused:
    """The error for a static member whose instance id is in use (UNRELEASED_INSTANCE_ID)."""
    text = (
        f"Static member {member_id} with instance id {instance_id} cannot join the group "
        f"because the instance id is owned by {existing_id} member."
    )
    return Refused(ErrorCode.UNRELEASED_INSTANCE_ID, text)


def member_of(group: GroupOf[M_co], member_id: str) -> M_co:
    """The member; raises Refused (UNKNOWN_MEMBER_ID)."""
    member = group.members.get(member_id)
    if member is None:
        text = f"Member {member_id} is not a member of group {group.group_id}."
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, text)
    return member


def static_member_of(group: StaticGroupOf[M_co], member_id: str, instance_id: str) -> M_co:
    """The member with both ids; raises Refused (UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID)."""
    existing_id = group.static_members.get(instance_id)
    if existing_id is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if existing_id != member_id:
        text = f"Static member {member_id} with instance id {instance_id} was fenced by member {existing_id}."
        raise Refused(ErrorCode.FENCED_INSTANCE_ID, text)
    return group.members[existing_id]


def last_epoch(
    context: Context, family: RecordFamily, group: GroupOf[object], group_epoch: int, *, leaving_count: int
) -> list[CoordinatorRecord]:
    """The assignment epoch of a group whose last members leave: it is at its group epoch."""
    is_written = Since.LAST_MEMBER_WRITES_ASSIGNMENT_EPOCH.holds_in(context.config.kafka_version)
    is_empty = leaving_count == len(group.members)
    return [target_epoch_record(family, group.group_id, group_epoch, 0)] if is_written and is_empty else []


def can_update_target(assignment_timestamp_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Whether the next target may be computed (canComputeNextTargetAssignment). Timestamp 0: unknown.

    Without an interval it always may, which is the remedy after a clock was set back far.
    """
    return assignment_timestamp_ms == 0 or interval_ms == 0 or now_ms >= assignment_timestamp_ms + interval_ms


MEMBER_EPOCH: Final = "member epoch"

OFFSET_COMMIT_FROM_VERSION: Final = 9
"""OffsetCommit: members of the consumer and streams protocols need at least this version, which has the member
epoch."""


class ModernGroupRules(GroupRules):
    """See GroupRules. Offsets expire by the time of the commit."""

    type_name: str
    """In Kafka's messages: consumer, share, streams."""

    def committing_member(self, group: GroupOf[M_co], committer: OffsetCommitter) -> M_co | None:
        """The member that commits; None for an admin client or a stand-alone consumer, which may commit anything.

        Raises Refused (UNKNOWN_MEMBER_ID).
        """
        epoch = committer.generation_id_or_member_epoch
        if epoch < 0 and not group.members:
            return None
        is_nobody = epoch == -1 and not committer.member_id and committer.group_instance_id is None
        return None if committer.is_transactional and is_nobody else member_of(group, committer.member_id)

    def member_behind(self, group: GroupOf[M_co], committer: OffsetCommitter) -> M_co | None:
        """The member that commits at an older epoch, so that its partitions are checked; None: it may commit any.

        Raises Refused (UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, and `stale` for a newer epoch).
        """
        epoch, member = committer.generation_id_or_member_epoch, self.committing_member(group, committer)
        if member is None:
            return None
        is_old_version = not committer.is_transactional and committer.api_version < OFFSET_COMMIT_FROM_VERSION
        if is_old_version and self.epoch_name(member) == MEMBER_EPOCH:
            text = f"OffsetCommit version 9 or above must be used by members using the {self.type_name} group protocol"
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, text)
        current: int = member.member_epoch  # type: ignore[attr-defined]
        if epoch > current:
            what = f"Received {self.epoch_name(member)} {epoch}"
            raise self.stale(member, f"{what} is newer than current member epoch {current}.")
        return member if epoch < current else None

    def validate_offset_fetch(self, group: Any, member_id: str | None, member_epoch: int) -> None:
        """A request with a member id must have the member's epoch."""
        if member_id is None and member_epoch < 0:
            return
        member = member_of(group, member_id or "")
        if member_epoch != member.member_epoch:
            expected = f"the expected member epoch {member.member_epoch}"
            raise self.stale(
                member, f"The received {self.epoch_name(member)} {member_epoch} does not match {expected}."
            )

    def epoch_name(self, member: Any) -> str:
        """What the member's client calls its epoch."""
        return MEMBER_EPOCH

    def stale(self, member: Any, text: str) -> Refused:
        """The error for another epoch than the member's."""
        is_epoch = self.epoch_name(member) == MEMBER_EPOCH
        return Refused(ErrorCode.STALE_MEMBER_EPOCH if is_epoch else ErrorCode.ILLEGAL_GENERATION, text)

    def validate_offset_delete(self, group: Any) -> None:
        """Always allowed: topics that the group reads are checked one by one."""

    def validate_delete_group(self, group: Any) -> None:
        """Allowed only without members."""
        if group.members:
            raise Refused(ErrorCode.NON_EMPTY_GROUP)

    def refresh_on_commit(self, context: Context, group: Any, member_id: str) -> None:
        """Nothing: a commit is not a heartbeat."""
