"""Timers of streams groups: their keys, which are Kafka's, and the names of the commands they run.

A member has a session, and a rebalance timeout from when it has to revoke tasks until it has done so. A group waits
some time after its first member for others, so that not every new member moves all tasks.
"""

from typing import Final

from coordinator_core.coordinator.member_timers import rebalance_key, schedule, session_key
from coordinator_core.coordinator.operation import Context
from coordinator_core.streams.state import StreamsMember

EXPIRE_SESSION: Final = "streams_expire_session"
EXPIRE_REBALANCE: Final = "streams_expire_rebalance"
END_INITIAL_DELAY: Final = "streams_end_initial_delay"


def initial_delay_key(group_id: str) -> str:
    """Key of the timer that ends the initial rebalance delay."""
    return f"initial-rebalance-timeout-{group_id}"


def schedule_session(context: Context, group_id: str, member_id: str) -> None:
    delay_ms = context.group_setting(group_id, "streams_session_timeout_ms")
    schedule(context, session_key, delay_ms, EXPIRE_SESSION, group_id, member_id)


def schedule_rebalance(context: Context, group_id: str, member: StreamsMember) -> None:
    """Set the rebalance timeout within which a member has to leave its epoch."""
    delay_ms = member.rebalance_timeout_ms
    schedule(context, rebalance_key, delay_ms, EXPIRE_REBALANCE, group_id, member.member_id, member.member_epoch)


def cancel_member(context: Context, group_id: str, member_id: str) -> None:
    context.cancel(session_key(group_id, member_id))
    context.cancel(rebalance_key(group_id, member_id))


def is_initial_delay_running(context: Context, group_id: str) -> bool:
    return context.coordinator.timers.get(initial_delay_key(group_id)) is not None


def start_initial_delay(context: Context, group_id: str) -> None:
    """Start the initial rebalance delay, unless it is running or disabled."""
    delay_ms = context.group_setting(group_id, "streams_initial_rebalance_delay_ms")
    if delay_ms > 0 and not is_initial_delay_running(context, group_id):
        context.schedule(initial_delay_key(group_id), delay_ms, END_INITIAL_DELAY, group_id)


def cancel_group(context: Context, group_id: str) -> None:
    """Cancel the timer of a deleted group."""
    context.cancel(initial_delay_key(group_id))
