"""Rules that consumer, share and streams groups share."""

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from coordinator_core.coordinator.errors import ErrorCode, Refused
from coordinator_core.coordinator.operation import Context
from coordinator_core.coordinator.rules import BaseTimestamp, ListedGroup, commit_timestamp

M_co = TypeVar("M_co", covariant=True)


class GroupOf(Protocol[M_co]):
    """A group with members of one type."""

    @property
    def group_id(self) -> str: ...

    @property
    def members(self) -> Mapping[str, M_co]: ...


class StaticGroupOf(GroupOf[M_co], Protocol[M_co]):
    """A group that may have static members."""

    @property
    def static_members(self) -> Mapping[str, str]: ...


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


def can_update_target(assignment_timestamp_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Whether the next target may be computed (canComputeNextTargetAssignment). Timestamp 0: unknown.

    Without an interval it always may, which is the remedy after a clock was set back far.
    """
    return assignment_timestamp_ms == 0 or interval_ms == 0 or now_ms >= assignment_timestamp_ms + interval_ms


class ModernGroupRules:
    """See GroupRules."""

    type_name: str

    def validate_offset_delete(self, group: Any) -> None:
        """Always allowed: topics that the group reads are checked one by one."""

    def validate_delete_group(self, group: Any) -> None:
        """Allowed only without members."""
        if group.members:
            raise Refused(ErrorCode.NON_EMPTY_GROUP)

    def is_empty(self, group: Any) -> bool:
        return not group.members

    def should_expire(self, group: Any) -> bool:
        return True

    def expiration_base(self, group: Any) -> BaseTimestamp | None:
        """Offsets expire by the time of the commit."""
        return commit_timestamp

    def refresh_on_commit(self, context: Context, group: Any, member_id: str) -> None:
        """Nothing: a commit is not a heartbeat."""

    def listed(self, group: Any) -> ListedGroup:
        """The group's entry in ListGroups."""
        return ListedGroup(group.group_id, self.type_name, group.state.value, self.type_name)
