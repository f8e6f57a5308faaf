"""Timers of members of all modern groups: their keys, which are Kafka's (GroupMetadataManager), and the backoff."""

from collections.abc import Callable
from typing import Final

from coordinator_core.coordinator.operation import Context

RETRY_BACKOFF_MS: Final = 500
"""If the log refused to fence a member, it is retried after this time (CoordinatorTimerImpl)."""


def session_key(group_id: str, member_id: str) -> str:
    return f"session-timeout-{group_id}-{member_id}"


def rebalance_key(group_id: str, member_id: str) -> str:
    """Key of the timer for a member that has to revoke partitions or tasks."""
    return f"rebalance-timeout-{group_id}-{member_id}"


def schedule(
    context: Context,
    key_of: Callable[[str, str], str],
    delay_ms: int,
    command: str,
    group_id: str,
    member_id: str,
    *more: object,
) -> None:
    """Run a command for a member in `delay_ms`; it replaces the timer with the same key."""
    context.schedule(
        key_of(group_id, member_id), delay_ms, command, group_id, member_id, *more, retry_backoff_ms=RETRY_BACKOFF_MS
    )


def cancel_rebalance(context: Context, group_id: str, member_id: str) -> None:
    """Cancel the timer: the member has revoked its partitions or tasks."""
    context.cancel(rebalance_key(group_id, member_id))
