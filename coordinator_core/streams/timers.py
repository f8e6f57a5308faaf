"""Timers of streams groups: their keys, which are Kafka's, and the names of what they run.

A member has a session, and a rebalance time-out from when it is asked to give up tasks until it has. A group whose
first member comes waits a while for others, so that not every one of them moves all tasks.
"""

from typing import Final

from coordinator_core.coordinator.member_timers import RETRY_BACKOFF_MS, rebalance_key, session_key
from coordinator_core.coordinator.operation import Context
from coordinator_core.streams.state import StreamsMember

EXPIRE_SESSION: Final = "streams_expire_session"
EXPIRE_REBALANCE: Final = "streams_expire_rebalance"
END_INITIAL_DELAY: Final = "streams_end_initial_delay"


def initial_delay_key(group_id: str) -> str:
    """Key of the timer which ends the wait for the first members."""
    return f"initial-rebalance-timeout-{group_id}"


def schedule_session(context: Context, group_id: str, member_id: str) -> None:
    """Restart the session of a member."""
    context.schedule(
        session_key(group_id, member_id),
        context.group_setting(group_id, "streams_session_timeout_ms"),
        EXPIRE_SESSION,
        group_id,
        member_id,
        retry_backoff_ms=RETRY_BACKOFF_MS,
    )


def schedule_rebalance(context: Context, group_id: str, member: StreamsMember) -> None:
    """Give a member its rebalance time-out to leave the epoch it is in."""
    context.schedule(
        rebalance_key(group_id, member.member_id),
        member.rebalance_timeout_ms,
        EXPIRE_REBALANCE,
        group_id,
        member.member_id,
        member.member_epoch,
        retry_backoff_ms=RETRY_BACKOFF_MS,
    )


def cancel_rebalance(context: Context, group_id: str, member_id: str) -> None:
    """The member has given up its tasks."""
    context.cancel(rebalance_key(group_id, member_id))


def cancel_member(context: Context, group_id: str, member_id: str) -> None:
    """The member goes."""
    context.cancel(session_key(group_id, member_id))
    context.cancel(rebalance_key(group_id, member_id))


def is_initial_delay_running(context: Context, group_id: str) -> bool:
    """Whether the group waits for its first members."""
    return context.coordinator.timers.get(initial_delay_key(group_id)) is not None


def start_initial_delay(context: Context, group_id: str) -> None:
    """Wait for others, unless the group waits already or the setting says not to."""
    delay_ms = context.group_setting(group_id, "streams_initial_rebalance_delay_ms")
    if delay_ms > 0 and not is_initial_delay_running(context, group_id):
        context.schedule(initial_delay_key(group_id), delay_ms, END_INITIAL_DELAY, group_id)


def cancel_group(context: Context, group_id: str) -> None:
    """The group goes."""
    context.cancel(initial_delay_key(group_id))
