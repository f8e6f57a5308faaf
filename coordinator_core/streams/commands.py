"""Commands of streams groups, and the timers of members and groups.

Timers, by key: `session-timeout-<group>-<member>`, `rebalance-timeout-<group>-<member>`,
`initial-rebalance-timeout-<group>`.
"""

from typing import TYPE_CHECKING, Any, Final

from coordinator_core.coordinator.group_module import GroupModule
from coordinator_core.coordinator.operation import NOTHING, Context, Result
from coordinator_core.coordinator.records import CoordinatorRecord
from coordinator_core.streams.describe import describe_streams_groups
from coordinator_core.streams.heartbeat import streams_group_heartbeat
from coordinator_core.streams.live import LiveStreamsGroups
from coordinator_core.streams.membership import expire_rebalance, expire_session
from coordinator_core.streams.rules import StreamsGroupRules
from coordinator_core.streams.state import UNREVOKED_TASKS, StreamsGroup
from coordinator_core.streams.target import update_target
from coordinator_core.streams.timers import (
    END_INITIAL_DELAY,
    EXPIRE_REBALANCE,
    EXPIRE_SESSION,
    schedule_rebalance,
    schedule_session,
)

if TYPE_CHECKING:
    from coordinator_core.coordinator.shard import GroupCoordinator


def _end_initial_delay(context: Context, group_id: str) -> Result:
    """Timer: the initial rebalance delay is over (computeDelayedTargetAssignment).

    A group with a single heartbeat so far has no configured topology yet: its next heartbeat computes the assignment.
    """
    group = context.group(group_id)
    if not isinstance(group, StreamsGroup) or not group.members or group.group_epoch <= group.assignment_epoch:
        return NOTHING
    configured = context.live(LiveStreamsGroups).get(group).configured_topology
    if configured is None:
        return NOTHING
    records: list[CoordinatorRecord] = []
    update_target(context, group, group.group_epoch, None, configured, records, dict(group.last_assignment_configs))
    return Result(tuple(records))


def _on_loaded(context: Context) -> None:
    """Start a session for members of loaded groups, and the rebalance timeout of those that have tasks to revoke."""
    groups = context.shard.groups.groups
    for group_id in sorted(groups):
        group = groups[group_id]
        if isinstance(group, StreamsGroup):
            for member in group.members_in_table_order():
                schedule_session(context, group_id, member.member_id)
                if member.state == UNREVOKED_TASKS:
                    schedule_rebalance(context, group_id, member)


def _add_to_dump(coordinator: "GroupCoordinator", dumps: dict[str, Any]) -> None:
    for group_id, epoch in coordinator.live(LiveStreamsGroups).endpoint_information_epochs().items():
        if isinstance(coordinator.group(group_id), StreamsGroup):
            dumps[group_id]["group"]["endpointInformationEpoch"] = epoch


def _on_metadata(context: Context, changed_topics: frozenset[str]) -> None:
    context.live(LiveStreamsGroups).request_metadata_refresh(context.shard.groups.groups, changed_topics)


MODULE: Final = GroupModule(
    "streams",
    commands={
        "streams_group_heartbeat": streams_group_heartbeat,
        "streams_group_describe": describe_streams_groups,
    },
    timers={
        EXPIRE_SESSION: expire_session,
        EXPIRE_REBALANCE: expire_rebalance,
        END_INITIAL_DELAY: _end_initial_delay,
    },
    on_loaded=_on_loaded,
    on_metadata=_on_metadata,
    rules={StreamsGroup: StreamsGroupRules()},
    add_to_dump=_add_to_dump,
)
