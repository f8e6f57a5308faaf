"""The target assignment of a streams group: when and how it is computed (TargetAssignmentBuilder)."""

from typing import NamedTuple

from coordinator_core.bytes.kafka_versions import Since
from coordinator_core.live.coordinator.modern_rules import can_update_target
from coordinator_core.live.coordinator.operation import Context
from coordinator_core.live.coordinator.records import CoordinatorRecord, target_epoch_record
from coordinator_core.live.streams.live import NO_OFFSETS, LiveStreamsGroups, Targets
from coordinator_core.live.streams.messages import Status, StatusCode
from coordinator_core.live.streams.records import target_assignment_record
from coordinator_core.live.streams.sticky_assignor import (
    NUM_STANDBY_REPLICAS,
    MemberSpec,
    SubtopologySpec,
    assign_tasks,
)
from coordinator_core.live.streams.timers import is_initial_delay_running
from coordinator_core.live.streams.topology import ConfiguredTopology
from coordinator_core.replay.java.hash_codes import string_hash_code
from coordinator_core.replay.java.hash_map import HashMap
from coordinator_core.replay.record_families import STREAMS
from coordinator_core.replay.streams.state import StreamsGroup, StreamsMember, TaskAssignment

NO_TASKS = TaskAssignment()


class Target(NamedTuple):
    """The targets of all members, their epoch, and why there are no newer ones."""

    assignment_epoch: int
    targets: Targets
    status: Status | None = None

    def of(self, member_id: str) -> TaskAssignment:
        return self.targets.get(member_id, NO_TASKS)


def update_target(
    context: Context,
    group: StreamsGroup,
    group_epoch: int,
    updated: StreamsMember | None,
    topology: ConfiguredTopology,
    records: list[CoordinatorRecord],
    configs: dict[str, str],
    *,
    replaced_id: str | None = None,
    keep_targets: bool = False,
) -> Target:
    """Bring the targets up to the group epoch, if they are behind and it is time to.

    `updated`: the updated member that sent the heartbeat; None after the initial delay. `replaced_id`: the static
    member that it replaces. `keep_targets`: the epoch is raised, the targets stay.
    """
    if is_initial_delay_running(context, group.group_id):
        return Target(group.assignment_epoch, {}, _delayed("initial rebalance delay"))
    written = _with_replaced(group.target_assignment, updated, replaced_id)
    last = Target(group.assignment_epoch, written)
    if group.assignment_epoch >= group_epoch:
        return last
    if keep_targets and group.assignment_epoch >= group.group_epoch:
        timestamp_ms = group.assignment_timestamp_ms
        records.append(target_epoch_record(STREAMS, group.group_id, group_epoch, timestamp_ms))
        return Target(group_epoch, written)
    interval_ms = context.group_setting(group.group_id, "streams_assignment_interval_ms")
    if not can_update_target(group.assignment_timestamp_ms, interval_ms, context.now_ms):
        return last._replace(status=_delayed("assignment interval"))
    targets = _compute(context, group, updated, replaced_id, topology, configs)
    for member_id, target in targets.items():
        if written.get(member_id) != target:
            records.append(target_assignment_record(group.group_id, member_id, target))
    records.append(target_epoch_record(STREAMS, group.group_id, group_epoch, context.now_ms))
    return Target(group_epoch, targets)


def _with_replaced(targets: Targets, updated: StreamsMember | None, replaced_id: str | None) -> Targets:
    """The targets, with that of a static member under its new id: its record is written together with the member's."""
    if updated is None or replaced_id is None:
        return targets
    others = {member_id: target for member_id, target in targets.items() if member_id != replaced_id}
    return {**others, updated.member_id: targets[replaced_id]} if replaced_id in targets else others


def _delayed(why: str) -> Status:
    return Status(StatusCode.ASSIGNMENT_DELAYED, f"Assignment delayed due to the configured {why}.")


def _compute(
    context: Context,
    group: StreamsGroup,
    updated: StreamsMember | None,
    replaced_id: str | None,
    topology: ConfiguredTopology,
    configs: dict[str, str],
) -> dict[str, TaskAssignment]:
    """Targets by member id, in the order of Kafka's map of members. If the topology is not ready, no member has
    tasks."""
    members: HashMap[str, StreamsMember] = HashMap(string_hash_code)
    for member in group.members_in_table_order():
        if member.member_id != replaced_id:
            members[member.member_id] = member
    if updated is not None:
        members[updated.member_id] = updated
    if not topology.is_ready or topology.subtopologies is None:
        return dict.fromkeys(members, NO_TASKS)
    subtopologies = {
        subtopology_id: SubtopologySpec(configured.task_count, configured.is_stateful)
        for subtopology_id, configured in topology.subtopologies.items()
    }
    version, standby_count = context.config.kafka_version, int(configs.get(NUM_STANDBY_REPLICAS, 0))
    if not Since.STREAMS_STICKY_TO_CURRENT_TASKS.holds_in(version):
        targets = group.target_assignment
        specs = [
            MemberSpec(member_id, member.process_id or "", targets.get(member_id, NO_TASKS))
            for member_id, member in members.items()
        ]
        return assign_tasks(specs, subtopologies, standby_count, version)
    offsets = context.live(LiveStreamsGroups).get(group).task_offsets
    specs = [
        MemberSpec(
            member_id, member.process_id or "", current_tasks(member), offsets.get(member_id, NO_OFFSETS).positions
        )
        for member_id, member in members.items()
    ]
    return assign_tasks(specs, subtopologies, standby_count, version)


def current_tasks(member: StreamsMember) -> TaskAssignment:
    """A member's tasks, without epochs."""
    active = {subtopology_id: tuple(sorted(epochs)) for subtopology_id, epochs in member.active.items()}
    return TaskAssignment(active, member.standby, member.warmup)
