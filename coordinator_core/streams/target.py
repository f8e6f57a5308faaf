"""The target assignment of a streams group: when it is computed, and what it is (TargetAssignmentBuilder)."""

from typing import NamedTuple

from coordinator_core.coordinator.operation import Context
from coordinator_core.coordinator.records import CoordinatorRecord
from coordinator_core.java.hash_codes import string_hash_code
from coordinator_core.java.hash_map import HashMap
from coordinator_core.streams.messages import Status, StatusCode
from coordinator_core.streams.records import target_assignment_metadata_record, target_assignment_record
from coordinator_core.streams.state import StreamsGroup, StreamsMember, TaskAssignment
from coordinator_core.streams.sticky_assignor import NUM_STANDBY_REPLICAS, MemberSpec, SubtopologySpec, assign_tasks
from coordinator_core.streams.timers import is_initial_delay_running
from coordinator_core.streams.topology import ConfiguredTopology

NO_TASKS = TaskAssignment()


class Target(NamedTuple):
    """The target of one member, the epoch which it is for, and why there is no newer one."""

    assignment_epoch: int
    tasks: TaskAssignment
    status: Status | None = None


def update_target(
    context: Context,
    group: StreamsGroup,
    group_epoch: int,
    updated: StreamsMember | None,
    topology: ConfiguredTopology,
    records: list[CoordinatorRecord],
    configs: dict[str, str],
) -> Target:
    """Bring the targets up to the group epoch, where they are behind it and it is time to.

    `updated` is the member which sends a heartbeat, as it is going to be; None where the initial delay is over. The
    target is that member's.
    """
    if is_initial_delay_running(context, group.group_id):
        return Target(group.assignment_epoch, NO_TASKS, _delayed("initial rebalance delay"))
    last = Target(group.assignment_epoch, _target_of(group, updated))
    if group.assignment_epoch >= group_epoch:
        return last
    if not _is_time(context, group):
        return last._replace(status=_delayed("assignment interval"))
    targets = _compute(group, updated, topology, configs)
    for member_id, target in targets.items():
        if group.target_assignment.get(member_id) != target:
            records.append(target_assignment_record(group.group_id, member_id, target))
    records.append(target_assignment_metadata_record(group.group_id, group_epoch, context.now_ms))
    return Target(group_epoch, NO_TASKS if updated is None else targets[updated.member_id])


def _delayed(why: str) -> Status:
    return Status(StatusCode.ASSIGNMENT_DELAYED, f"Assignment delayed due to the configured {why}.")


def _target_of(group: StreamsGroup, member: StreamsMember | None) -> TaskAssignment:
    return NO_TASKS if member is None else group.target_assignment.get(member.member_id, NO_TASKS)


def _is_time(context: Context, group: StreamsGroup) -> bool:
    """GroupMetadataManager.canComputeNextTargetAssignment: not before the interval since the last time is over."""
    interval_ms = context.group_setting(group.group_id, "streams_assignment_interval_ms")
    since_ms = group.assignment_timestamp_ms
    return since_ms == 0 or interval_ms == 0 or context.now_ms >= since_ms + interval_ms


def _compute(
    group: StreamsGroup, updated: StreamsMember | None, topology: ConfiguredTopology, configs: dict[str, str]
) -> dict[str, TaskAssignment]:
    """Targets by member id, in the order of Kafka's map of members. Without a ready topology nobody has tasks."""
    members: HashMap[str, StreamsMember] = HashMap(string_hash_code)
    for member in group.members_in_table_order():
        members[member.member_id] = member
    if updated is not None:
        members[updated.member_id] = updated
    if not topology.is_ready or topology.subtopologies is None:
        return dict.fromkeys(members, NO_TASKS)
    subtopologies = {
        subtopology_id: SubtopologySpec(configured.task_count, configured.is_stateful)
        for subtopology_id, configured in topology.subtopologies.items()
    }
    specs = [
        MemberSpec(member_id, member.process_id or "", _target_of(group, member))
        for member_id, member in members.items()
    ]
    return assign_tasks(specs, subtopologies, int(configs.get(NUM_STANDBY_REPLICAS, 0)))
