"""The target of a share group, by the simple assignor (TargetAssignmentBuilder.ShareTargetAssignmentBuilder).

Only partitions with an initialized share state are assigned. The target is computed immediately, within the heartbeat:
Kafka 4.3 does not read `share.assignor.offload.enable`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from coordinator_core.live.assignors.errors import AssignorError, NoMemberLeft
from coordinator_core.live.assignors.server_group import GroupAssignment, GroupSpec, MemberSpec
from coordinator_core.live.assignors.server_simple import assign_simple
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.image import MetadataImage
from coordinator_core.live.coordinator.modern_rules import can_update_target
from coordinator_core.live.coordinator.operation import Context
from coordinator_core.live.coordinator.records import CoordinatorRecord, target_epoch_record
from coordinator_core.live.share import records as share_records
from coordinator_core.replay.consumer.subscriptions import SubscriptionType
from coordinator_core.replay.java.hash_codes import string_hash_code
from coordinator_core.replay.java.hash_map import in_hash_order
from coordinator_core.replay.java.ordered import map_of, names_in_set_order, partitions_of_record
from coordinator_core.replay.record_families import SHARE
from coordinator_core.replay.share.state import ShareGroup, ShareMember
from schemas.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class Target:
    """What a member should have, and the assignment epoch. `partitions`: topic id -> partitions, ascending."""

    group_id: str
    epoch: int
    partitions: Mapping[str, tuple[int, ...]]


def last_target(group: ShareGroup, member_id: str) -> Target:
    """The target in the records; empty for a member without one."""
    partitions = group.target_assignment.get(member_id)
    if not partitions:
        return Target(group.group_id, group.assignment_epoch, {})
    return Target(group.group_id, group.assignment_epoch, map_of(partitions))


def update_target(
    context: Context,
    group: ShareGroup,
    group_epoch: int,
    updated: ShareMember,
    name_counts: Mapping[str, int],
    records: list[CoordinatorRecord],
) -> Target:
    """The target of the member at the new group epoch; the records of all changed targets are appended.

    Within `share.assignment.interval.ms` of the last computation the last target stays. `name_counts`: topic name ->
    subscribers. Raises Refused, UNKNOWN_SERVER_ERROR, if the assignor fails.
    """
    interval_ms = context.group_setting(group.group_id, "share_assignment_interval_ms")
    if not can_update_target(group.assignment_timestamp_ms, interval_ms, context.now_ms):
        return last_target(group, updated.member_id)
    spec = _spec(context, group, updated, name_counts)
    try:
        assignment = _assign(spec)
    except AssignorError as error:
        text = f"Failed to compute a new target assignment for epoch {group_epoch}: {error}"
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, text) from error
    for member_id in spec.members:
        target = assignment.get(member_id, {})
        if target != group.target_assignment.get(member_id):
            records.append(share_records.target_record(group.group_id, member_id, target))
    records.append(target_epoch_record(SHARE, group.group_id, group_epoch, context.now_ms))
    return Target(group.group_id, group_epoch, assignment.get(updated.member_id, {}))


def _assign(spec: GroupSpec) -> GroupAssignment:
    """The assignor's result; if partitions are no longer assignable, the assignor gets the group without them.

    Kafka 4.3.1 fails there with NoSuchElementException, at each heartbeat, for as long as the group exists.
    """
    try:
        return assign_simple(spec)
    except NoMemberLeft:
        members = {
            member_id: replace(member, assigned_partitions=_assignable_part(spec, member))
            for member_id, member in spec.members.items()
        }
        return assign_simple(replace(spec, members=members))


def _assignable_part(spec: GroupSpec, member: MemberSpec) -> Mapping[str, tuple[int, ...]]:
    return {
        topic_id: tuple(number for number in numbers if spec.is_assignable(topic_id, number))
        for topic_id, numbers in member.assigned_partitions.items()
    }


def _spec(context: Context, group: ShareGroup, updated: ShareMember, name_counts: Mapping[str, int]) -> GroupSpec:
    """The input of the assignor, with members in the order of a HashMap filled from that of the group."""
    members = {member.member_id: member for member in group.members_in_table_order()}
    members[updated.member_id] = updated
    order = in_hash_order(members, string_hash_code)
    state_partitions = context.shard.groups.share_partitions.get(group.group_id)
    initialized = {} if state_partitions is None else state_partitions.initialized
    topics = [topic for name in name_counts if (topic := context.image.topics.get(name)) is not None]
    is_homogeneous = all(count == len(members) for count in name_counts.values())
    return GroupSpec(
        {
            member_id: MemberSpec(
                _subscribed_topic_ids(context.image, members[member_id]),
                partitions_of_record(group.target_assignment.get(member_id, {})),
            )
            for member_id in order
        },
        {topic.topic_id: topic.partition_count for topic in topics},
        SubscriptionType.HOMOGENEOUS if is_homogeneous else SubscriptionType.HETEROGENEOUS,
        {topic_id: frozenset(partitions) for topic_id, (_, partitions) in initialized.items()},
    )


def _subscribed_topic_ids(image: MetadataImage, member: ShareMember) -> tuple[str, ...]:
    """Ids of the topics that exist, in the order of the HashSet of names (TopicIds)."""
    names = names_in_set_order(member.subscribed_topic_names)
    return tuple(topic.topic_id for name in names if (topic := image.topics.get(name)) is not None)
