"""Timers of members of all modern groups: keys, which are Kafka's (GroupMetadataManager), and back-off."""

from typing import Final

RETRY_BACKOFF_MS: Final = 500
"""A member which could not be fenced, for the log refused, is tried again (CoordinatorTimerImpl)."""


def session_key(group_id: str, member_id: str) -> str:
    """Key of the timer which finds a member dead."""
    return f"session-timeout-{group_id}-{member_id}"


def rebalance_key(group_id: str, member_id: str) -> str:
    """Key of the timer which finds that a member has not given up its partitions or tasks."""
    return f"rebalance-timeout-{group_id}-{member_id}"
