"""Timers of members of consumer, share and streams groups. Their keys are Kafka's (GroupMetadataManager).

Every member has a session. A member also has a rebalance timeout, from the time when it is asked to revoke partitions
or tasks until it has done so. Whichever expires, the member is removed.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from coordinator_core.live.coordinator.operation import NOTHING, Context, Function, Result

RETRY_BACKOFF_MS: Final = 500
"""If the log refused to fence a member, it is retried after this time (CoordinatorTimerImpl)."""


def session_key(group_id: str, member_id: str) -> str:
    return f"session-timeout-{group_id}-{member_id}"


def rebalance_key(group_id: str, member_id: str) -> str:
    """Key of the timer for a member that has to revoke partitions or tasks."""
    return f"rebalance-timeout-{group_id}-{member_id}"


def schedule(
    context: Context,
    type_name: str,
    key_of: Callable[[str, str], str],
    delay_ms: int,
    group_id: str,
    member_id: str,
    *member_epoch: int,
) -> None:
    """Remove a member in `delay_ms`, or with `member_epoch`, if it is still at that epoch then. Replaces the timer with
    the same key.
    """
    name, key = f"{type_name}_fence_member", key_of(group_id, member_id)
    context.schedule(key, delay_ms, name, group_id, member_id, *member_epoch, retry_backoff_ms=RETRY_BACKOFF_MS)


def schedule_session(
    context: Context, type_name: str, group_id: str, member_id: str, delay_ms: int | None = None
) -> None:
    """Restart the session of a member. The default delay is the setting of the group or the broker."""
    delay_ms = context.group_setting(group_id, f"{type_name}_session_timeout_ms") if delay_ms is None else delay_ms
    schedule(context, type_name, session_key, delay_ms, group_id, member_id)


def follow_revocation(context: Context, type_name: str, group_id: str, member: Any, *, is_revoking: bool) -> None:
    """While a member has partitions or tasks to revoke, the time runs within which it has to leave its epoch."""
    if is_revoking:
        delay_ms = member.rebalance_timeout_ms
        schedule(context, type_name, rebalance_key, delay_ms, group_id, member.member_id, member.member_epoch)
    else:
        context.cancel(rebalance_key(group_id, member.member_id))


def cancel_member(context: Context, group_id: str, member_id: str) -> None:
    context.cancel(session_key(group_id, member_id))
    context.cancel(rebalance_key(group_id, member_id))


def timers_of(type_name: str, kind: type[Any], fence: Callable[[Context, Any, Any], Result]) -> Mapping[str, Function]:
    """The timer of members of a group type; `fence` removes a member from a group of this class."""

    def fence_member(context: Context, group_id: str, member_id: str, member_epoch: int | None = None) -> Result:
        group = context.group(group_id)
        member = group.members.get(member_id) if isinstance(group, kind) else None
        if member is None or member_epoch not in {None, member.member_epoch}:
            return NOTHING
        return fence(context, group, member)

    return {f"{type_name}_fence_member": fence_member}


def start_timers(context: Context, type_name: str, kind: type[Any], revoking_state: int | None = None) -> None:
    """Start the sessions of the members of loaded groups, and the rebalance timeouts of those in `revoking_state`."""
    groups: Mapping[str, Any] = context.shard.groups.groups
    for group_id in sorted(groups):
        if isinstance(groups[group_id], kind):
            for member in groups[group_id].members_in_table_order():
                schedule_session(context, type_name, group_id, member.member_id)
                if member.state == revoking_state:
                    follow_revocation(context, type_name, group_id, member, is_revoking=True)
