"""Timers of members of consumer groups: their keys, which are Kafka's, and the names of the commands they run.

Every member has a session. A member of the consumer protocol also has a rebalance timeout, from the time when it is
asked to revoke partitions until it has done so. A member of the classic protocol has timeouts for JoinGroup and
SyncGroup instead. Whichever expires, the member is removed.
"""

from typing import Final

from coordinator_core.coordinator.member_timers import rebalance_key, schedule, session_key
from coordinator_core.coordinator.operation import Context

FENCE_MEMBER: Final = "consumer_fence_member"
EXPIRE_REBALANCE: Final = "consumer_expire_rebalance"


def join_key(group_id: str, member_id: str) -> str:
    """Key of the timer for a classic member that has to rejoin."""
    return f"join-{group_id}-{member_id}"


def sync_key(group_id: str, member_id: str) -> str:
    """Key of the timer for a classic member that has to sync."""
    return f"sync-{group_id}-{member_id}"


def schedule_session(context: Context, group_id: str, member_id: str, delay_ms: int | None = None) -> None:
    """Restart the session of a member. The default delay is the setting of the group or the broker."""
    delay_ms = context.group_setting(group_id, "consumer_session_timeout_ms") if delay_ms is None else delay_ms
    schedule(context, session_key, delay_ms, FENCE_MEMBER, group_id, member_id)


def schedule_rebalance(context: Context, group_id: str, member_id: str, member_epoch: int, delay_ms: int) -> None:
    """Set the time within which a member has to leave this epoch."""
    schedule(context, rebalance_key, delay_ms, EXPIRE_REBALANCE, group_id, member_id, member_epoch)


def schedule_join_if_absent(context: Context, group_id: str, member_id: str, delay_ms: int) -> None:
    """Set the time within which a classic member has to rejoin, unless it is set already."""
    if context.coordinator.timers.get(join_key(group_id, member_id)) is None:
        schedule(context, join_key, delay_ms, FENCE_MEMBER, group_id, member_id)


def schedule_sync(context: Context, group_id: str, member_id: str, delay_ms: int) -> None:
    """Set the time within which a classic member has to sync."""
    schedule(context, sync_key, delay_ms, FENCE_MEMBER, group_id, member_id)


def cancel_all(context: Context, group_id: str, member_id: str) -> None:
    for key in (session_key, rebalance_key, join_key, sync_key):
        context.cancel(key(group_id, member_id))
