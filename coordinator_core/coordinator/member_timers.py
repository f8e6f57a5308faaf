"""Timers of members of all modern groups: their keys, which are Kafka's (GroupMetadataManager), and the backoff."""

from typing import Final

RETRY_BACKOFF_MS: Final = 500
"""If the log refused to fence a member, it is retried after this time (CoordinatorTimerImpl)."""


def session_key(group_id: str, member_id: str) -> str:
    """Key of the timer for a member's session."""
    return f"session-timeout-{group_id}-{member_id}"


def rebalance_key(group_id: str, member_id: str) -> str:
    """Key of the timer for a member that has to revoke partitions or tasks."""
    return f"rebalance-timeout-{group_id}-{member_id}"
