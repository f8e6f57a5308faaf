"""Timers of the members of consumer groups. Those of the classic protocol also have to rejoin, and to sync, in time."""

from coordinator_core.live.coordinator import member_timers
from coordinator_core.live.coordinator.member_timers import schedule
from coordinator_core.live.coordinator.operation import Context

TYPE_NAME = "consumer"


def join_key(group_id: str, member_id: str) -> str:
    """Key of the timer for a classic member that has to rejoin."""
    return f"join-{group_id}-{member_id}"


def sync_key(group_id: str, member_id: str) -> str:
    """Key of the timer for a classic member that has to sync."""
    return f"sync-{group_id}-{member_id}"


def schedule_session(context: Context, group_id: str, member_id: str, delay_ms: int | None = None) -> None:
    member_timers.schedule_session(context, TYPE_NAME, group_id, member_id, delay_ms)


def schedule_join_if_absent(context: Context, group_id: str, member_id: str, delay_ms: int) -> None:
    """Set the time within which a classic member has to rejoin, unless it is set already."""
    if context.coordinator.timers.get(join_key(group_id, member_id)) is None:
        schedule(context, TYPE_NAME, join_key, delay_ms, group_id, member_id)


def schedule_sync(context: Context, group_id: str, member_id: str, delay_ms: int) -> None:
    """Set the time within which a classic member has to sync."""
    schedule(context, TYPE_NAME, sync_key, delay_ms, group_id, member_id)


def cancel_all(context: Context, group_id: str, member_id: str) -> None:
    member_timers.cancel_member(context, group_id, member_id)
    for key in (join_key, sync_key):
        context.cancel(key(group_id, member_id))
