"""Commands of streams groups: StreamsGroupHeartbeat, StreamsGroupDescribe, and the timers of members and groups.

A heartbeat goes through the steps of GroupMetadataManager.streamsGroupHeartbeat. Each reads the group as it is, and
adds to the records; nothing of the group changes before these are replayed:

1. the member, or a new one; epochs and owned tasks are held against it;
2. what it says of itself (record 19); the first one brings the topology (23);
3. the topology is held against the cluster, where that has to be done anew (`topology`);
4. the group epoch (17): up, where one of these changed;
5. the target assignment (20, 21), where it is behind (`target`);
6. the member's step towards its target (22; `reconciliation`).

Static members are refused: Kafka 4.3 has none in streams groups yet.

Timers, by key: `session-timeout-<group>-<member>`, `rebalance-timeout-<group>-<member>`,
`initial-rebalance-timeout-<group>`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from coordinator_core.classic.live import EMPTY, LiveClassicGroup
from coordinator_core.coordinator.errors import ErrorCode, Refused
from coordinator_core.coordinator.group_module import GroupModule
from coordinator_core.coordinator.operation import NOTHING, Context, Coordinator, Result
from coordinator_core.coordinator.records import CoordinatorRecord
from coordinator_core.member_epochs import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
)
from coordinator_core.streams.describe import describe_streams_groups
from coordinator_core.streams.endpoints import endpoints_of
from coordinator_core.streams.live import LiveStreamsGroup, LiveStreamsGroups
from coordinator_core.streams.messages import (
    Status,
    StatusCode,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
)
from coordinator_core.streams.reconciliation import reconcile
from coordinator_core.streams.records import (
    current_assignment_record,
    group_metadata_record,
    member_metadata_record,
    tombstone,
    topology_record,
    topology_value,
)
from coordinator_core.streams.replay import topology_of
from coordinator_core.streams.rules import StreamsGroupRules, member_of
from coordinator_core.streams.state import (
    STABLE_MEMBER,
    UNREVOKED_TASKS,
    StreamsGroup,
    StreamsMember,
    TaskAssignment,
    Tasks,
    Topology,
)
from coordinator_core.streams.sticky_assignor import NUM_STANDBY_REPLICAS
from coordinator_core.streams.target import Target, update_target
from coordinator_core.streams.timers import (
    END_INITIAL_DELAY,
    EXPIRE_REBALANCE,
    EXPIRE_SESSION,
    cancel_member,
    cancel_rebalance,
    schedule_rebalance,
    schedule_session,
    start_initial_delay,
)
from coordinator_core.streams.topology import ConfiguredSubtopology, ConfiguredTopology, configure_topology
from schemas.consumer_offsets import RecordType

NOT_VALIDATED: Final = -1
"""Validated topology epoch of a group whose topology does not fit the cluster."""

Owned = tuple[TaskIds, ...] | None


@dataclass(slots=True)
class _Heartbeat:
    """One heartbeat on its way through the steps."""

    context: Context
    request: StreamsGroupHeartbeatRequest
    group: StreamsGroup
    live: LiveStreamsGroup
    is_persisted: bool
    """Whether the records of the group are in the log; `live` is of this request alone where they are not."""
    records: list[CoordinatorRecord] = field(default_factory=list)
    status: list[Status] = field(default_factory=list)

    @property
    def is_joining(self) -> bool:
        return self.request.member_epoch == JOIN_GROUP_MEMBER_EPOCH


def streams_group_heartbeat(context: Context, request: StreamsGroupHeartbeatRequest) -> Result:
    """StreamsGroupHeartbeat: a StreamsGroupHeartbeatResponse."""
    if request.member_epoch in {LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH}:
        return _leave(context, request)
    beat = _begin(context, request)
    group, live = beat.group, beat.live
    if request.instance_id is not None:
        # Kafka throws UnsupportedOperationException.
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "Static members are not supported yet.")
    member = _member(beat)
    updated = _updated_member(beat, member)
    if updated is not member:
        beat.records.append(member_metadata_record(group.group_id, updated))
    topology = _topology(beat)
    _tell_stale_topology(beat, updated)
    metadata_hash, configured = _configure(beat, topology)
    validated_epoch = _validate_tasks(beat, topology, configured)
    configs = _assignment_configs(context, group.group_id)
    group_epoch = group.group_epoch
    if (
        updated is not member
        or metadata_hash != group.metadata_hash
        or validated_epoch != group.validated_topology_epoch
        or configs != group.last_assignment_configs
    ):
        group_epoch += 1
        beat.records.append(group_metadata_record(group.group_id, group_epoch, metadata_hash, validated_epoch, configs))
        live.trust_metadata(context.now_ms, group_epoch)
    if not group.members:
        start_initial_delay(context, group.group_id)
    target = update_target(context, group, group_epoch, updated, configured, beat.records, configs)
    if target.status is not None:
        beat.status.append(target.status)
    updated = _reconcile(beat, updated, target)
    schedule_session(context, group.group_id, request.member_id)
    if request.shutdown_application:
        live.request_shutdown(group, request.member_id)
    return Result(tuple(beat.records), _response(beat, member, updated, configured))


# --- the member ---


def _begin(context: Context, request: StreamsGroupHeartbeatRequest) -> _Heartbeat:
    """The group: who joins makes it, in the place of an empty classic one if need be."""
    group_id, groups = request.group_id, context.live(LiveStreamsGroups)
    group = context.group(group_id)
    if isinstance(group, StreamsGroup):
        if request.member_epoch == JOIN_GROUP_MEMBER_EPOCH:
            _check_not_full(context, group)
        return _Heartbeat(context, request, group, groups.get(group), is_persisted=True)
    is_joining = request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
    if group is None and not is_joining:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {group_id} not found.")
    records: tuple[CoordinatorRecord, ...] = ()
    if group is not None:
        if not is_joining or not isinstance(group, LiveClassicGroup) or group.state != EMPTY:
            raise _not_a_streams_group(group_id)
        records = context.coordinator.rules_of(group).tombstones(context, group)
    groups.drop(group_id)
    new_group = StreamsGroup(group_id)
    _check_not_full(context, new_group)
    return _Heartbeat(context, request, new_group, LiveStreamsGroup(), is_persisted=False, records=[*records])


def _check_not_full(context: Context, group: StreamsGroup) -> None:
    """Also members which are there already find no room when they join again."""
    size_max = context.config.group_streams_max_size
    if len(group.members) >= size_max:
        text = f"The streams group has reached its maximum capacity of {size_max} members."
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, text)


def _member(beat: _Heartbeat) -> StreamsMember:
    """The member as it is, or a new one. An epoch before the last one passes where the answer to it may be lost."""
    request = beat.request
    if beat.is_joining:
        known = beat.group.members.get(request.member_id)
        return _new_member(request.member_id) if known is None else known
    member = member_of(beat.group, request.member_id)
    if request.member_epoch == member.member_epoch:
        return member
    size = "greater"
    if request.member_epoch < member.member_epoch:
        if (
            request.member_epoch == member.previous_member_epoch
            and _has_all(member.active, request.active_tasks)
            and _has_all(member.standby, request.standby_tasks)
            and _has_all(member.warmup, request.warmup_tasks)
        ):
            return member
        size = "smaller"
    raise Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {size} member epoch ({request.member_epoch}) than the one known by the group "
        f"coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def _new_member(member_id: str) -> StreamsMember:
    """StreamsGroupMember.Builder.withDefaults."""
    return StreamsMember(
        member_id, member_epoch=0, previous_member_epoch=0, state=STABLE_MEMBER, process_id="", topology_epoch=-1
    )


def _has_all(tasks: Mapping[str, Iterable[int]], owned: Owned) -> bool:
    """Whether the member was given all that it reports; who reports nothing may have anything."""
    return owned is not None and all(
        found.subtopology_id in tasks and set(found.partitions) <= set(tasks[found.subtopology_id]) for found in owned
    )


def _updated_member(beat: _Heartbeat, member: StreamsMember) -> StreamsMember:
    """The member with what it says of itself; the same object where that is nothing new."""
    request, client = beat.request, beat.context.client
    said: dict[str, Any] = {
        "client_id": client.client_id,
        "client_host": client.client_host,
        "rack_id": request.rack_id,
        "rebalance_timeout_ms": None if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
        "topology_epoch": None if request.topology is None else request.topology.epoch,
        "process_id": request.process_id,
        "client_tags": None if request.client_tags is None else {tag.key: tag.value for tag in request.client_tags},
        "user_endpoint": None
        if request.user_endpoint is None
        else (request.user_endpoint.host, request.user_endpoint.port),
    }
    changes = {name: value for name, value in said.items() if value is not None and value != getattr(member, name)}
    return replace(member, **changes) if changes else member


# --- the topology ---


def _topology(beat: _Heartbeat) -> Topology:
    """The group's topology. Who joins first brings it; others must bring the same, or an older one."""
    request, known = beat.request, beat.group.topology
    if request.topology is None:
        if known is None:
            # The service in front of the coordinator does not let such a request through.
            text = "The topology is null and the group topology is also null."
            raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, text)
        return known
    value = topology_value(request.topology)
    brought = topology_of(value)
    if known is None:
        beat.records.append(topology_record(beat.group.group_id, value))
        return brought
    if brought.epoch >= known.epoch and not known.is_same_as(brought):
        raise Refused(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    return known


def _tell_stale_topology(beat: _Heartbeat, member: StreamsMember) -> None:
    known = beat.group.topology
    if known is not None and member.topology_epoch < known.epoch:
        detail = (
            f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch {known.epoch}."
        )
        beat.status.append(Status(StatusCode.STALE_TOPOLOGY, detail))


def _configure(beat: _Heartbeat, topology: Topology) -> tuple[int, ConfiguredTopology]:
    """Hash of the topics, and what the topology is in this cluster; looked at again where topics may have changed."""
    group, live, image = beat.group, beat.live, beat.context.image
    is_new = group.topology is None
    configured = live.configured_topology
    if configured is not None and not is_new and not live.has_metadata_expired(beat.context.now_ms, group.group_epoch):
        return group.metadata_hash, configured
    metadata_hash = live.metadata_hash(image, topology)
    if configured is None or is_new or metadata_hash != group.metadata_hash:
        configured = configure_topology(topology, image)
        live.set_configured_topology(configured)
    return metadata_hash, configured


def _validate_tasks(beat: _Heartbeat, topology: Topology, configured: ConfiguredTopology) -> int:
    """Epoch of the topology once it is known to fit the cluster; owned tasks must be of it."""
    if not configured.is_ready or configured.subtopologies is None:
        return NOT_VALIDATED
    request = beat.request
    for owned in (request.active_tasks, request.standby_tasks, request.warmup_tasks):
        for tasks in owned or ():
            _check_tasks(tasks, configured.subtopologies.get(tasks.subtopology_id))
    return topology.epoch


def _check_tasks(tasks: TaskIds, subtopology: ConfiguredSubtopology | None) -> None:
    if subtopology is None:
        text = f"Subtopology {tasks.subtopology_id} does not exist in the topology."
        raise Refused(ErrorCode.INVALID_REQUEST, text)
    for partition in tasks.partitions:
        if not 0 <= partition < subtopology.task_count:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"Task {partition} for subtopology {tasks.subtopology_id} is invalid. Number of tasks for this "
                f"subtopology: {subtopology.task_count}",
            )


def _assignment_configs(context: Context, group_id: str) -> dict[str, str]:
    return {NUM_STANDBY_REPLICAS: str(context.group_setting(group_id, "streams_num_standby_replicas"))}


# --- the member's step, and the answer ---


def _reconcile(beat: _Heartbeat, member: StreamsMember, target: Target) -> StreamsMember:
    """Move the member towards its target; who has to give up tasks has its rebalance time-out for that."""
    if member.is_reconciled_to(target.assignment_epoch):
        return member
    group_id = beat.group.group_id
    moved = reconcile(member, target.assignment_epoch, target.tasks, beat.group.processes, _owned(beat.request))
    if moved == member:
        return member
    beat.records.append(current_assignment_record(group_id, moved))
    if moved.state == UNREVOKED_TASKS:
        schedule_rebalance(beat.context, group_id, moved)
    else:
        cancel_rebalance(beat.context, group_id, moved.member_id)
    return moved


def _owned(request: StreamsGroupHeartbeatRequest) -> TaskAssignment | None:
    """What the member reports to have; None where it leaves out one of the kinds."""
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return TaskAssignment(*map(_tasks, (request.active_tasks, request.standby_tasks, request.warmup_tasks)))


def _tasks(owned: tuple[TaskIds, ...]) -> Tasks:
    return {tasks.subtopology_id: tasks.partitions for tasks in owned}


def _response(
    beat: _Heartbeat, member: StreamsMember, updated: StreamsMember, configured: ConfiguredTopology
) -> StreamsGroupHeartbeatResponse:
    request, group, live = beat.request, beat.group, beat.live
    has_new_tasks = (
        updated.active != member.active or updated.standby != member.standby or updated.warmup != member.warmup
    )
    active = standby = warmup = None
    if beat.is_joining or has_new_tasks:
        active, standby, warmup = map(_task_ids, (updated.active, updated.standby, updated.warmup))
        live.endpoints.pop(updated.member_id, None)
        live.endpoint_information_epoch += updated.user_endpoint is not None
    endpoints = None
    if live.endpoint_information_epoch != request.endpoint_information_epoch:
        endpoints = endpoints_of(group, live, updated, beat.context.image)
    if configured.problem is not None:
        beat.status.append(configured.problem)
    if live.shutdown_request_member_id is not None:
        detail = (
            f"Streams group member {live.shutdown_request_member_id} encountered a fatal error and requested a "
            "shutdown for the entire application."
        )
        beat.status.append(Status(StatusCode.SHUTDOWN_APPLICATION, detail))
    is_known = beat.is_persisted or beat.context.group(group.group_id) is not None
    return StreamsGroupHeartbeatResponse(
        member_id=updated.member_id,
        member_epoch=updated.member_epoch,
        heartbeat_interval_ms=beat.context.group_setting(group.group_id, "streams_heartbeat_interval_ms"),
        status=tuple(beat.status),
        active_tasks=active,
        standby_tasks=standby,
        warmup_tasks=warmup,
        endpoint_information_epoch=live.endpoint_information_epoch if is_known else 0,
        partitions_by_user_endpoint=endpoints,
        creatable_topics=configured.creatable_topics,
    )


def _task_ids(tasks: Mapping[str, Iterable[int]]) -> tuple[TaskIds, ...]:
    return tuple(TaskIds(subtopology_id, tuple(sorted(tasks[subtopology_id]))) for subtopology_id in tasks)


# --- leaving, and being fenced ---


def _leave(context: Context, request: StreamsGroupHeartbeatRequest) -> Result:
    group = context.group(request.group_id)
    if group is None:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
    if not isinstance(group, StreamsGroup):
        raise _not_a_streams_group(request.group_id)
    if request.shutdown_application:
        context.live(LiveStreamsGroups).get(group).request_shutdown(group, request.member_id)
    if request.instance_id is not None:
        # Kafka throws UnsupportedOperationException.
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "Static members are not supported in streams groups.")
    member = member_of(group, request.member_id)
    response = StreamsGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    return _fence(context, group, member, response)


def _fence(
    context: Context, group: StreamsGroup, member: StreamsMember, response: StreamsGroupHeartbeatResponse | None = None
) -> Result:
    """A member goes, and the others get its tasks (streamsGroupFenceMember)."""
    group_id, key = group.group_id, {"group_id": group.group_id, "member_id": member.member_id}
    records = (
        tombstone(RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT, **key),
        tombstone(RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER, **key),
        tombstone(RecordType.STREAMS_GROUP_MEMBER_METADATA, **key),
        group_metadata_record(
            group_id,
            group.group_epoch + 1,
            group.metadata_hash,
            group.validated_topology_epoch,
            group.last_assignment_configs,
        ),
    )
    cancel_member(context, group_id, member.member_id)
    return Result(records, response)


def _expire_session(context: Context, group_id: str, member_id: str) -> Result:
    """No heartbeat came: the member is out."""
    group = context.group(group_id)
    member = group.members.get(member_id) if isinstance(group, StreamsGroup) else None
    return NOTHING if member is None else _fence(context, group, member)


def _expire_rebalance(context: Context, group_id: str, member_id: str, member_epoch: int) -> Result:
    """The member was to give up tasks, and is still in the same epoch: it is out."""
    group = context.group(group_id)
    member = group.members.get(member_id) if isinstance(group, StreamsGroup) else None
    if member is None or member.member_epoch != member_epoch:
        return NOTHING
    return _fence(context, group, member)


def _end_initial_delay(context: Context, group_id: str) -> Result:
    """The wait for the first members is over (computeDelayedTargetAssignment).

    A group which sent one heartbeat only has no configured topology yet: its next heartbeat gets it the assignment.
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


def _not_a_streams_group(group_id: str) -> Refused:
    return Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")


# --- loading, changes of topics ---


def _on_loaded(context: Context) -> None:
    """Members of loaded groups get a session, and who was to give up tasks its rebalance time-out."""
    groups = context.shard.groups.groups
    for group_id in sorted(groups):
        group = groups[group_id]
        if isinstance(group, StreamsGroup):
            for member in group.members_in_table_order():
                schedule_session(context, group_id, member.member_id)
                if member.state == UNREVOKED_TASKS:
                    schedule_rebalance(context, group_id, member)


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
        "streams_group_describe": describe_streams_groups,
    },
    timers={
        EXPIRE_SESSION: _expire_session,
        EXPIRE_REBALANCE: _expire_rebalance,
        END_INITIAL_DELAY: _end_initial_delay,
    },
    on_loaded=_on_loaded,
    on_metadata=_on_metadata,
    rules={StreamsGroup: StreamsGroupRules()},
    add_to_dump=_add_to_dump,
)
