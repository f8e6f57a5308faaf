"""StreamsGroupHeartbeat.

A heartbeat goes through the steps of GroupMetadataManager.streamsGroupHeartbeat. Each reads the group and appends
records; the group does not change before these are replayed:

1. the member, or a new one; epochs and owned tasks are checked against it;
2. the fields of the request (record 19); the first member brings the topology (23);
3. the topology is checked against the cluster, if that is necessary again (`topology`);
4. the group epoch (17) is bumped if one of these changed;
5. the target assignment (20, 21) is computed if it is behind (`target`);
6. the member moves towards its target (22; `reconciliation`).

Up to 4.3 static members are refused, because streams groups have none yet. In 4.4 members move to a *refined*
assignment, which equals the target as long as no warm-up tasks are assigned.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from coordinator_core.bytes.kafka_versions import Since
from coordinator_core.live.classic.live import EMPTY, LiveClassicGroup
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.member_timers import follow_revocation, schedule_session
from coordinator_core.live.coordinator.modern_rules import (
    check_not_full,
    fenced_epoch,
    member_of,
    other_type,
    static_member_of,
    unreleased,
)
from coordinator_core.live.coordinator.operation import Context, Result
from coordinator_core.live.coordinator.records import CoordinatorRecord, member_tombstones
from coordinator_core.live.streams.endpoints import endpoints_of
from coordinator_core.live.streams.live import NO_OFFSETS, LiveStreamsGroup, LiveStreamsGroups, ReportedOffsets, Targets
from coordinator_core.live.streams.membership import LAG_FROM_VERSION, leave
from coordinator_core.live.streams.messages import (
    Status,
    StatusCode,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TaskOffset,
)
from coordinator_core.live.streams.reconciliation import reconcile
from coordinator_core.live.streams.records import (
    current_assignment_record,
    group_metadata_record,
    member_metadata_record,
    target_assignment_record,
    topology_record,
    topology_value,
)
from coordinator_core.live.streams.sticky_assignor import NUM_STANDBY_REPLICAS
from coordinator_core.live.streams.target import NO_TASKS, Target, current_tasks, update_target
from coordinator_core.live.streams.timers import TYPE_NAME, start_initial_delay
from coordinator_core.live.streams.topology import ConfiguredSubtopology, ConfiguredTopology, configure_topology
from coordinator_core.replay.member_epochs import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
)
from coordinator_core.replay.modern import NOT_VALIDATED, fresh_group
from coordinator_core.replay.record_families import STREAMS
from coordinator_core.replay.streams.replay import topology_of
from coordinator_core.replay.streams.state import (
    STABLE_MEMBER,
    UNREVOKED_TASKS,
    StreamsGroup,
    StreamsGroupState,
    StreamsMember,
    TaskAssignment,
    TaskId,
    Tasks,
    Topology,
)
from schemas.error_codes import ErrorCode

RACK_AWARE_TAGS: Final = "rack.aware.assignment.tags"
"""Name of the assignment config with the tags by which standby tasks are distributed."""

Owned = tuple[TaskIds, ...] | None


@dataclass(slots=True)
class _Heartbeat:
    context: Context
    request: StreamsGroupHeartbeatRequest
    group: StreamsGroup
    live: LiveStreamsGroup
    is_persisted: bool
    """Whether the group's records are in the log; otherwise `live` is for this request only."""
    records: list[CoordinatorRecord] = field(default_factory=list)
    status: list[Status] = field(default_factory=list)
    replaced_id: str | None = None
    """The static member that the member replaces."""

    def follows(self, rule: Since) -> bool:
        """Whether the coordinator's release has this rule."""
        return rule.holds_in(self.context.config.kafka_version)

    @property
    def is_joining(self) -> bool:
        return self.request.member_epoch == JOIN_GROUP_MEMBER_EPOCH


def streams_group_heartbeat(context: Context, request: StreamsGroupHeartbeatRequest) -> Result:
    """StreamsGroupHeartbeat: a StreamsGroupHeartbeatResponse."""
    if request.member_epoch in {LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH}:
        return leave(context, request)
    heartbeat = _begin(context, request)
    group, live = heartbeat.group, heartbeat.live
    member = _member(heartbeat) if request.instance_id is None else _static_member(heartbeat, request.instance_id)
    updated = _updated_member(heartbeat, member)
    if updated is not member:
        heartbeat.records.append(member_metadata_record(group.group_id, updated))
    is_member_news = updated is not member and (request.instance_id is None or _is_other_for_tasks(member, updated))
    topology = _topology(heartbeat)
    _report_stale_topology(heartbeat, updated)
    metadata_hash, configured = _configure(heartbeat, topology)
    validated_epoch = _validate_tasks(heartbeat, topology, configured)
    _keep_task_offsets(heartbeat)
    configs = _assignment_configs(context, group.group_id)
    group_epoch = group.group_epoch
    must_assign = (
        is_member_news
        or metadata_hash != group.metadata_hash
        or validated_epoch != group.validated_topology_epoch
        or configs != group.last_assignment_configs
    )
    refined = None
    if (
        not must_assign
        and heartbeat.follows(Since.STREAMS_REFINED_ASSIGNMENT)
        and group.state == StreamsGroupState.STABLE
    ):
        refined = _refined(group.target_assignment)
    is_refined_again = refined is not None and refined.get(member.member_id, NO_TASKS) != current_tasks(updated)
    if must_assign or is_refined_again:
        group_epoch += 1
        heartbeat.records.append(group_metadata_record(group, group_epoch, metadata_hash, validated_epoch, configs))
        live.trust_metadata(context.now_ms, group_epoch)
    if not group.members:
        start_initial_delay(context, group.group_id)
    target = update_target(
        context,
        group,
        group_epoch,
        updated,
        configured,
        heartbeat.records,
        configs,
        replaced_id=heartbeat.replaced_id,
        keep_targets=is_refined_again,
    )
    if target.status is not None:
        heartbeat.status.append(target.status)
    if heartbeat.follows(Since.STREAMS_REFINED_ASSIGNMENT):
        target = target._replace(targets=_refined_of_epoch(heartbeat, target, refined))
    updated = _reconcile(heartbeat, updated, target)
    schedule_session(context, TYPE_NAME, group.group_id, request.member_id)
    if request.shutdown_application:
        live.request_shutdown(group, request.member_id)
    return Result(tuple(heartbeat.records), _response(heartbeat, member, updated, configured))


def _refined(targets: Targets) -> Targets:
    """The assignment that members move to on their way to the target (AssignmentRefiner.refine).

    Kafka 4.4 prepares for warm-up tasks here but assigns none: it is the target.
    """
    return targets


def _refined_of_epoch(heartbeat: _Heartbeat, target: Target, refined: Targets | None) -> Targets:
    """The refined assignment. It is computed once for each epoch, unless a new one is given as `refined`."""
    epoch, kept = heartbeat.live.refined
    if refined is None and epoch == target.assignment_epoch:
        return kept
    made = _refined(target.targets) if refined is None else refined
    if heartbeat.context.group_setting(heartbeat.group.group_id, "streams_num_warmup_replicas") > 0:
        heartbeat.live.refined = (target.assignment_epoch, made)
    return made


def _keep_task_offsets(heartbeat: _Heartbeat) -> None:
    """Store the task offsets that the member reports; an omitted list is unchanged (MemberTaskOffsets.update)."""
    request, known = heartbeat.request, heartbeat.live.task_offsets
    if request.task_offsets is None and request.task_end_offsets is None:
        return
    if not heartbeat.follows(Since.STREAMS_TASK_OFFSETS):
        return
    before = known.get(request.member_id, NO_OFFSETS)
    known[request.member_id] = ReportedOffsets(
        before.positions if request.task_offsets is None else _offsets_by_task(request.task_offsets),
        before.ends if request.task_end_offsets is None else _offsets_by_task(request.task_end_offsets),
    )


def _offsets_by_task(offsets: tuple[TaskOffset, ...]) -> dict[TaskId, int]:
    by_task: dict[TaskId, int] = {}
    for reported in offsets:
        task = (reported.subtopology_id, reported.partition)
        if task in by_task:
            text = (
                f"Task offsets contain a duplicate entry for subtopology {reported.subtopology_id} and partition "
                f"{reported.partition}."
            )
            raise Refused(ErrorCode.INVALID_REQUEST, text)
        by_task[task] = reported.offset
    return by_task


# --- the member ---


def _begin(context: Context, request: StreamsGroupHeartbeatRequest) -> _Heartbeat:
    """Begin with the group. A joining member creates it, replacing an empty classic one if necessary."""
    group_id, groups = request.group_id, context.live(LiveStreamsGroups)
    group = context.group(group_id)
    if isinstance(group, StreamsGroup):
        if request.member_epoch == JOIN_GROUP_MEMBER_EPOCH:
            _check_not_full(context, group, request)
        return _Heartbeat(context, request, group, groups.get(group), is_persisted=True)
    is_joining = request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
    if group is None and not is_joining:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {group_id} not found.")
    records: tuple[CoordinatorRecord, ...] = ()
    if group is not None:
        if not is_joining or not isinstance(group, LiveClassicGroup) or group.state != EMPTY:
            raise other_type(group_id, "streams")
        records = context.coordinator.rules_of(group).tombstones(context, group)
    groups.drop(group_id)
    new_group = fresh_group(StreamsGroup, group_id, context.config.kafka_version)
    _check_not_full(context, new_group, request)
    return _Heartbeat(context, request, new_group, LiveStreamsGroup(), is_persisted=False, records=[*records])


def _check_not_full(context: Context, group: StreamsGroup, request: StreamsGroupHeartbeatRequest) -> None:
    """Raise Refused if the group is full; up to 4.3 also for known members that join again."""
    size_max = context.config.group_streams_max_size
    is_known = Since.STREAMS_HAVE_STATIC_MEMBERS.holds_in(context.config.kafka_version) and (
        request.instance_id in group.static_members or request.member_id in group.members
    )
    check_not_full(group, "streams", size_max, is_known=is_known)


def _member(heartbeat: _Heartbeat) -> StreamsMember:
    """The existing member, or a new one. The previous epoch is accepted if the response to it may have been lost."""
    request = heartbeat.request
    if heartbeat.is_joining:
        return _known_or_new_member(heartbeat)
    member = member_of(heartbeat.group, request.member_id)
    _check_member_epoch(request, member)
    return member


def _known_or_new_member(heartbeat: _Heartbeat) -> StreamsMember:
    known = heartbeat.group.members.get(heartbeat.request.member_id)
    return _new_member(heartbeat.request.member_id) if known is None else known


def _static_member(heartbeat: _Heartbeat, instance_id: str) -> StreamsMember:
    """The member with this instance id, or a new one; a joining member replaces one that is away."""
    if not heartbeat.follows(Since.STREAMS_HAVE_STATIC_MEMBERS):
        # Kafka throws UnsupportedOperationException.
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "Static members are not supported yet.")
    group, member_id = heartbeat.group, heartbeat.request.member_id
    existing_id = group.static_members.get(instance_id)
    if existing_id is not None and existing_id != member_id:
        heartbeat.replaced_id = existing_id
        heartbeat.live.relabel_refined(existing_id, member_id)
    if not heartbeat.is_joining:
        member = static_member_of(group, member_id, instance_id)
        _check_member_epoch(heartbeat.request, member)
        return member
    if existing_id is None:
        return _known_or_new_member(heartbeat)
    existing = group.members[existing_id]
    if existing.member_epoch != LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        raise unreleased(member_id, instance_id, existing_id)
    member = replace(
        existing,
        member_id=member_id,
        member_epoch=JOIN_GROUP_MEMBER_EPOCH,
        previous_member_epoch=JOIN_GROUP_MEMBER_EPOCH,
    )
    group_id, target = group.group_id, group.target_assignment.get(existing_id, NO_TASKS)
    heartbeat.records += member_tombstones(STREAMS.of_member, group_id, [existing_id])
    heartbeat.records.append(member_metadata_record(group_id, member))
    heartbeat.records.append(target_assignment_record(group_id, member_id, target))
    heartbeat.records.append(current_assignment_record(group_id, member))
    return member


def _is_other_for_tasks(member: StreamsMember, updated: StreamsMember) -> bool:
    """Whether a static member changed in attributes that its tasks depend on (hasEpochRelevantMemberConfigChanged)."""
    return (
        member.topology_epoch != updated.topology_epoch
        or member.rack_id != updated.rack_id
        or member.client_tags != updated.client_tags
        or member.process_id != updated.process_id
    )


def _check_member_epoch(request: StreamsGroupHeartbeatRequest, member: StreamsMember) -> None:
    """Raise Refused (FENCED_MEMBER_EPOCH) unless the member may be at this epoch."""
    epoch = request.member_epoch
    is_late = (
        member.previous_member_epoch == epoch < member.member_epoch
        and _has_all(member.active, request.active_tasks)
        and _has_all(member.standby, request.standby_tasks)
        and _has_all(member.warmup, request.warmup_tasks)
    )
    if epoch != member.member_epoch and not is_late:
        raise fenced_epoch("streams", epoch, member.member_epoch)


def _new_member(member_id: str) -> StreamsMember:
    """StreamsGroupMember.Builder.withDefaults."""
    return StreamsMember(
        member_id, member_epoch=0, previous_member_epoch=0, state=STABLE_MEMBER, process_id="", topology_epoch=-1
    )


def _has_all(tasks: Mapping[str, Iterable[int]], owned: Owned) -> bool:
    """Whether all tasks that the member reports were assigned to it. False if it does not report any."""
    return owned is not None and all(
        found.subtopology_id in tasks and set(found.partitions) <= set(tasks[found.subtopology_id]) for found in owned
    )


def _updated_member(heartbeat: _Heartbeat, member: StreamsMember) -> StreamsMember:
    """The member updated with the request; the same object if nothing is new."""
    request, client = heartbeat.request, heartbeat.context.client
    said: dict[str, Any] = {
        "instance_id": request.instance_id,
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
    endpoint = said["user_endpoint"]
    changes = {name: value for name, value in said.items() if value is not None and value != getattr(member, name)}
    if (
        heartbeat.is_joining
        and endpoint is None
        and member.user_endpoint
        and heartbeat.follows(Since.STREAMS_JOIN_SETS_ENDPOINT)
    ):
        changes["user_endpoint"] = None
    return replace(member, **changes) if changes else member


# --- the topology ---


def _topology(heartbeat: _Heartbeat) -> Topology:
    """The group's topology. The first member brings it; later ones must bring the same, or an older one."""
    request, known = heartbeat.request, heartbeat.group.topology
    if request.topology is None:
        if known is None:
            # The service in front of the coordinator rejects such a request.
            text = "The topology is null and the group topology is also null."
            raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, text)
        return known
    value = topology_value(request.topology)
    brought = topology_of(value)
    if known is None:
        heartbeat.records.append(topology_record(heartbeat.group.group_id, value))
        return brought
    if brought.epoch >= known.epoch and not known.is_same_as(brought):
        raise Refused(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    return known


def _report_stale_topology(heartbeat: _Heartbeat, member: StreamsMember) -> None:
    known = heartbeat.group.topology
    if known is not None and member.topology_epoch < known.epoch:
        detail = (
            f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch {known.epoch}."
        )
        heartbeat.status.append(Status(StatusCode.STALE_TOPOLOGY, detail))


def _configure(heartbeat: _Heartbeat, topology: Topology) -> tuple[int, ConfiguredTopology]:
    """(hash of the topics, configured topology); checked again where topics may have changed."""
    group, live, image = heartbeat.group, heartbeat.live, heartbeat.context.image
    is_new = group.topology is None
    configured = live.configured_topology
    if (
        configured is not None
        and not is_new
        and not live.has_metadata_expired(heartbeat.context.now_ms, group.group_epoch)
    ):
        return group.metadata_hash, configured
    metadata_hash = live.metadata_hash(image, topology)
    if configured is None or is_new or metadata_hash != group.metadata_hash:
        configured = configure_topology(topology, image)
        live.set_configured_topology(configured)
    return metadata_hash, configured


def _validate_tasks(heartbeat: _Heartbeat, topology: Topology, configured: ConfiguredTopology) -> int:
    """Epoch of the topology once it is known to fit the cluster. Checks that owned tasks belong to it."""
    if not configured.is_ready or configured.subtopologies is None:
        return NOT_VALIDATED
    request = heartbeat.request
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
    configs = {NUM_STANDBY_REPLICAS: str(context.group_setting(group_id, "streams_num_standby_replicas"))}
    tags = context.config.group_streams_rack_aware_assignment_tags
    if tags and Since.STREAMS_TASK_OFFSETS.holds_in(context.config.kafka_version):
        configs[RACK_AWARE_TAGS] = ",".join(tags)
    return configs


# --- the member's step, and the answer ---


def _reconcile(heartbeat: _Heartbeat, member: StreamsMember, target: Target) -> StreamsMember:
    """Move the member towards its target; while it has tasks to revoke, its rebalance timeout runs."""
    if member.is_reconciled_to(target.assignment_epoch):
        return member
    group_id = heartbeat.group.group_id
    moved = reconcile(
        member,
        target.assignment_epoch,
        target.of(member.member_id),
        heartbeat.group.processes,
        _owned(heartbeat.request),
        heartbeat.context.config.kafka_version,
    )
    if moved == member:
        return member
    heartbeat.records.append(current_assignment_record(group_id, moved))
    follow_revocation(heartbeat.context, TYPE_NAME, group_id, moved, is_revoking=moved.state == UNREVOKED_TASKS)
    return moved


def _owned(request: StreamsGroupHeartbeatRequest) -> TaskAssignment | None:
    """The tasks that the member reports; None if it omits one of the kinds."""
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return TaskAssignment(*map(_tasks, (request.active_tasks, request.standby_tasks, request.warmup_tasks)))


def _tasks(owned: tuple[TaskIds, ...]) -> Tasks:
    return {tasks.subtopology_id: tasks.partitions for tasks in owned}


def _response(
    heartbeat: _Heartbeat, member: StreamsMember, updated: StreamsMember, configured: ConfiguredTopology
) -> StreamsGroupHeartbeatResponse:
    request, group, live = heartbeat.request, heartbeat.group, heartbeat.live
    has_new_tasks = (
        updated.active != member.active or updated.standby != member.standby or updated.warmup != member.warmup
    )
    active = standby = warmup = None
    has_endpoint = updated.user_endpoint is not None
    has_endpoint_news = (heartbeat.is_joining or has_new_tasks) and has_endpoint
    if heartbeat.follows(Since.STREAMS_JOIN_SETS_ENDPOINT):
        has_endpoint_news = updated.user_endpoint != member.user_endpoint or (has_new_tasks and has_endpoint)
    if heartbeat.is_joining or has_new_tasks:
        active, standby, warmup = map(_task_ids, (updated.active, updated.standby, updated.warmup))
    if heartbeat.is_joining or has_new_tasks or has_endpoint_news:
        live.endpoints.pop(updated.member_id, None)
    live.endpoint_information_epoch += has_endpoint_news
    endpoints = None
    if live.endpoint_information_epoch != request.endpoint_information_epoch:
        endpoints = endpoints_of(
            group,
            live,
            updated,
            heartbeat.context.image,
            replaced_id=heartbeat.replaced_id,
            version=heartbeat.context.config.kafka_version,
        )
    if configured.problem is not None:
        heartbeat.status.append(configured.problem)
    if live.shutdown_request_member_id is not None:
        detail = (
            f"Streams group member {live.shutdown_request_member_id} encountered a fatal error and requested a "
            "shutdown for the entire application."
        )
        heartbeat.status.append(Status(StatusCode.SHUTDOWN_APPLICATION, detail))
    missing_tags = _missing_tags(heartbeat, updated)
    if missing_tags:
        detail = (
            f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing_tags)}]. Configure "
            "them via 'client.tag.<tagKey>' in your Streams config."
        )
        heartbeat.status.append(Status(StatusCode.MISSING_CLIENT_TAGS, detail))
    lag, interval_ms = _task_offset_settings(heartbeat)
    is_known = heartbeat.is_persisted or heartbeat.context.group(group.group_id) is not None
    return StreamsGroupHeartbeatResponse(
        member_id=updated.member_id,
        member_epoch=updated.member_epoch,
        heartbeat_interval_ms=heartbeat.context.group_setting(group.group_id, "streams_heartbeat_interval_ms"),
        acceptable_recovery_lag=lag,
        task_offset_interval_ms=interval_ms,
        status=tuple(heartbeat.status),
        active_tasks=active,
        standby_tasks=standby,
        warmup_tasks=warmup,
        endpoint_information_epoch=live.endpoint_information_epoch if is_known else 0,
        partitions_by_user_endpoint=endpoints,
        creatable_topics=configured.creatable_topics,
    )


def _missing_tags(heartbeat: _Heartbeat, member: StreamsMember) -> list[str]:
    """Tags by which standby tasks are distributed and which the member lacks; version 0 has no status for that."""
    if heartbeat.context.api_version < LAG_FROM_VERSION:
        return []
    wanted = _assignment_configs(heartbeat.context, heartbeat.group.group_id).get(RACK_AWARE_TAGS, "")
    return [tag for tag in wanted.split(",") if tag and tag not in member.client_tags]


def _task_offset_settings(heartbeat: _Heartbeat) -> tuple[int, int]:
    """(acceptable recovery lag, interval at which members report task offsets)."""
    if not heartbeat.follows(Since.STREAMS_TASK_OFFSETS):
        return 0, 0
    context, group_id = heartbeat.context, heartbeat.group.group_id
    lag = context.group_setting(group_id, "streams_acceptable_recovery_lag")
    interval_ms = context.group_setting(group_id, "streams_task_offset_interval_ms")
    return (lag if context.api_version >= LAG_FROM_VERSION else 0), interval_ms


def _task_ids(tasks: Mapping[str, Iterable[int]]) -> tuple[TaskIds, ...]:
    return tuple(TaskIds(subtopology_id, tuple(sorted(tasks[subtopology_id]))) for subtopology_id in tasks)
