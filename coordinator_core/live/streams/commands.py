"""Commands of streams groups, and the timers of members and groups.

Timers, by key: `session-timeout-<group>-<member>`, `rebalance-timeout-<group>-<member>`,
`initial-rebalance-timeout-<group>`.
"""

from typing import Any, Final

from coordinator_core.live.coordinator.group_module import GroupModule
from coordinator_core.live.coordinator.member_timers import start_timers, timers_of
from coordinator_core.live.coordinator.operation import NOTHING, Context, Coordinator, Result
from coordinator_core.live.coordinator.records import CoordinatorRecord
from coordinator_core.live.streams.heartbeat import streams_group_heartbeat
from coordinator_core.live.streams.live import LiveStreamsGroups
from coordinator_core.live.streams.membership import fence
from coordinator_core.live.streams.rules import StreamsGroupRules
from coordinator_core.live.streams.target import update_target
from coordinator_core.live.streams.timers import END_INITIAL_DELAY, TYPE_NAME
from coordinator_core.replay.streams.state import UNREVOKED_TASKS, StreamsGroup


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
    start_timers(context, TYPE_NAME, StreamsGroup, UNREVOKED_TASKS)


def _add_to_dump(coordinator: Coordinator, dumps: dict[str, Any]) -> None:
    for group_id, epoch in coordinator.live(LiveStreamsGroups).endpoint_information_epochs().items():
        if isinstance(coordinator.group(group_id), StreamsGroup):
            dumps[group_id]["group"]["endpointInformationEpoch"] = epoch


def _on_metadata(context: Context, changed_topics: frozenset[str]) -> None:
    context.live(LiveStreamsGroups).request_metadata_refresh(context.shard.groups.groups, changed_topics)


MODULE: Final = GroupModule(
    "streams",
    commands={
        "streams_group_heartbeat": streams_group_heartbeat,
    },
    timers={**timers_of(TYPE_NAME, StreamsGroup, fence), END_INITIAL_DELAY: _end_initial_delay},
    on_loaded=_on_loaded,
    on_metadata=_on_metadata,
    rules={StreamsGroup: StreamsGroupRules()},
    add_to_dump=_add_to_dump,
)
