"""The timer of a streams group: it waits some time after its first member for others, so that not every new member
moves all tasks.
"""

from typing import Final

from coordinator_core.live.coordinator.operation import Context

TYPE_NAME: Final = "streams"
END_INITIAL_DELAY: Final = "streams_end_initial_delay"


def initial_delay_key(group_id: str) -> str:
    """Key of the timer that ends the initial rebalance delay."""
    return f"initial-rebalance-timeout-{group_id}"


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
