"""Timers of classic groups: their keys, which are Kafka's, and the names of the commands they run."""

from typing import Final

from coordinator_core.live.classic.live import LiveClassicGroup
from coordinator_core.live.coordinator.operation import Context

COMPLETE_JOIN: Final = "classic_complete_join"
COMPLETE_INITIAL_JOIN: Final = "classic_complete_initial_join"
EXPIRE_SYNC: Final = "classic_expire_sync"
EXPIRE_HEARTBEAT: Final = "classic_expire_heartbeat"


def heartbeat_key(group_id: str, member_id: str) -> str:
    return f"heartbeat-{group_id}-{member_id}"


def join_key(group_id: str) -> str:
    """Key of the timer that ends the join phase."""
    return f"join-{group_id}"


def sync_key(group_id: str) -> str:
    """Key of the timer that ends the sync phase."""
    return f"sync-{group_id}"


def schedule_heartbeat(context: Context, group: LiveClassicGroup, member_id: str, delay_ms: int | None = None) -> None:
    """Restart the session of a member, joined or pending. The default delay is the member's session timeout."""
    delay_ms = group.members[member_id].session_timeout_ms if delay_ms is None else delay_ms
    context.schedule(heartbeat_key(group.group_id, member_id), delay_ms, EXPIRE_HEARTBEAT, group.group_id, member_id)
