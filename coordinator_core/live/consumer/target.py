"""The target assignment of a consumer group: which member should own which partitions (TargetAssignmentBuilder).

It is computed in the first heartbeat after the group epoch was bumped, and not more often than the assignment interval
allows: until then the group stays Assigning and members use the old target. The assignor runs in the heartbeat itself:
Kafka 4.3 reads `group.consumer.assignor.offload.enable` but does not offload yet.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion, Since
from coordinator_core.live.assignors import CONSUMER_GROUP_ASSIGNORS
from coordinator_core.live.assignors.errors import AssignorError
from coordinator_core.live.assignors.server_group import GroupSpec, MemberSpec
from coordinator_core.live.consumer.records import target_record
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.image import MetadataImage
from coordinator_core.live.coordinator.modern_rules import can_update_target
from coordinator_core.live.coordinator.operation import Context
from coordinator_core.live.coordinator.records import CoordinatorRecord, target_epoch_record
from coordinator_core.replay.consumer.state import ConsumerGroup, ConsumerMember
from coordinator_core.replay.consumer.subscriptions import (
    SubscriptionType,
    asked_order,
    preferred_assignor,
    subscriptions_of,
)
from coordinator_core.replay.java.hash_codes import string_hash_code, uuid_hash_code
from coordinator_core.replay.java.hash_map import LOAD_FACTOR, HashMap, HashSet, capacity_of_copy, capacity_of_map_copy
from coordinator_core.replay.java.ordered import partitions_of_record
from coordinator_core.replay.record_families import CONSUMER
from schemas.error_codes import ErrorCode

Partitions = Mapping[str, tuple[int, ...]]
"""Topic id -> partitions, ascending."""


RANGE: Final = "range"


@dataclass(frozen=True, slots=True)
class Target:
    """What one member should own, and the group epoch of this target."""

    epoch: int
    partitions: Partitions


def last_target(group: ConsumerGroup, member: ConsumerMember) -> Target:
    """The existing target; for a static member, that of the current member with its instance id."""
    member_id: str | None = member.member_id
    if member.instance_id is not None:
        member_id = group.static_members.get(member.instance_id)
    partitions = group.target_assignment.get(member_id, {}) if member_id is not None else {}
    return Target(group.assignment_epoch, partitions)


def update_target(
    context: Context,
    group: ConsumerGroup,
    group_epoch: int,
    member: ConsumerMember,
    updated: ConsumerMember,
    subscription_type: SubscriptionType | None,
    records: list[CoordinatorRecord],
) -> Target:
    """The member's target. If it is computed, the targets that changed and then their epoch are appended to `records`.

    `member` is the member before, `updated` after the request; neither has to be in the group yet. `subscription_type`
    None: that of the group. Raises Refused (UNKNOWN_SERVER_ERROR) if the assignor fails.
    """
    interval_ms = context.group_setting(group.group_id, "consumer_assignment_interval_ms")
    is_behind = group.assignment_epoch < group_epoch
    if not is_behind or not can_update_target(group.assignment_timestamp_ms, interval_ms, context.now_ms):
        return last_target(group, updated)
    name = assignor_name(context, group, member, updated)
    if name not in CONSUMER_GROUP_ASSIGNORS:
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR)  # set under earlier settings; requests are checked before
    kind = subscription_type or subscriptions_of(group).subscription_type
    spec = group_spec(context.image, group, updated, kind, context.config.kafka_version)
    try:
        assignment = CONSUMER_GROUP_ASSIGNORS[name](spec)
    except AssignorError as error:
        text = f"Failed to compute a new target assignment for epoch {group_epoch}: {error}"
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, text) from error
    ordered: dict[str, Partitions] = {}
    for member_id, member_spec in spec.members.items():
        topic_count = len(member_spec.subscribed_topic_ids)
        if name == RANGE and spec.subscription_type == SubscriptionType.HETEROGENEOUS:
            # sized by the number of names, whether or not the topics exist
            topic_count = len(
                subscribed_names(group, updated if member_id == updated.member_id else group.members[member_id])
            )
        ordered[member_id] = in_assignor_order(name, member_spec, assignment.get(member_id, {}), topic_count)
        if _written_target(context, group, updated, member_id) != ordered[member_id]:
            records.append(target_record(group.group_id, member_id, ordered[member_id]))
    records.append(target_epoch_record(CONSUMER, group.group_id, group_epoch, context.now_ms))
    return Target(group_epoch, ordered[updated.member_id])


def _written_target(
    context: Context, group: ConsumerGroup, updated: ConsumerMember, member_id: str
) -> Partitions | None:
    """The target of a member in the log. For a member that replaces a static one, it is written in the same
    heartbeat."""
    if (
        member_id == updated.member_id
        and updated.instance_id is not None
        and Since.STATIC_MEMBER_KEEPS_TARGET.holds_in(context.config.kafka_version)
    ):
        member_id = group.static_members.get(updated.instance_id, member_id)
    return group.target_assignment.get(member_id)


def preferred_assignor_changed(
    context: Context, group: ConsumerGroup, member: ConsumerMember, updated: ConsumerMember
) -> bool:
    """Whether this member's update changes the preferred assignor, in a release where that matters."""
    if not Since.PREFERRED_ASSIGNOR_BUMPS_EPOCH.holds_in(context.config.kafka_version):
        return False
    before = preferred_assignor(subscriptions_of(group).assignors) or context.config.group_consumer_assignors[0]
    return before != assignor_name(context, group, member, updated)


def assignor_name(context: Context, group: ConsumerGroup, member: ConsumerMember, updated: ConsumerMember) -> str:
    """The assignor that most members ask for, with this member's new choice; otherwise the first of the broker's.

    On a tie it is the first in a HashMap copied just large enough, in which an assignor that no other member asked for
    comes first, even if this member only repeats its choice (ConsumerGroup.computePreferredServerAssignor).
    """
    asked = subscriptions_of(group).assignors
    counts: HashMap[str, int] = HashMap(string_hash_code, capacity_of_map_copy(len(asked)))
    for name in asked_order(asked):
        counts[name] = asked[name]
    before, after = member.server_assignor, updated.server_assignor
    if before is not None and before in counts:
        if counts[before] == 1:
            del counts[before]
        else:
            counts[before] -= 1
    if after is not None:
        counts[after] = counts.compute_if_absent(after, int) + 1
    return max(counts, key=counts.__getitem__, default=context.config.group_consumer_assignors[0])


def group_spec(
    image: MetadataImage,
    group: ConsumerGroup,
    updated: ConsumerMember,
    subscription_type: SubscriptionType,
    version: KafkaVersion = DEFAULT_VERSION,
) -> GroupSpec:
    """The group with the updated member, and without the one that it replaces, in the order of Kafka's maps.

    Up to 4.3 the replaced one is in the map temporarily, which may enlarge the map.
    """
    replaced_id = None if updated.instance_id is None else group.static_members.get(updated.instance_id)
    members: HashMap[str, MemberSpec] = HashMap(string_hash_code)
    never_has_it = Since.STATIC_MEMBER_KEEPS_TARGET.holds_in(version)
    for other in group.members_in_table_order():
        if never_has_it and other.member_id == replaced_id != updated.member_id:
            continue
        members[other.member_id] = _member_spec(image, group, other, other.member_id)
    members[updated.member_id] = _member_spec(image, group, updated, replaced_id or updated.member_id)
    if replaced_id is not None and replaced_id != updated.member_id and replaced_id in members:
        del members[replaced_id]
    counts = {topic.topic_id: topic.partition_count for topic in image.topics.values()}
    return GroupSpec(dict(members.items()), counts, subscription_type)


def _member_spec(image: MetadataImage, group: ConsumerGroup, member: ConsumerMember, target_of: str) -> MemberSpec:
    topics = (image.topics.get(name) for name in subscribed_names(group, member))
    return MemberSpec(
        tuple(topic.topic_id for topic in topics if topic is not None),
        partitions_of_record(group.target_assignment.get(target_of, {})),
        member.instance_id,
    )


def subscribed_names(group: ConsumerGroup, member: ConsumerMember) -> list[str]:
    """All topics of a member, by name and by pattern, in Kafka's order: the larger of the two sets first (UnionSet)."""
    names = _set_of(member.subscribed_topic_names)
    regex = member.subscribed_topic_regex
    resolved = group.resolved_regexes.get(regex) if regex else None
    by_regex = _set_of(() if resolved is None else resolved.topics)
    larger, smaller = (names, by_regex) if len(names) > len(by_regex) else (by_regex, names)
    return [*larger, *(name for name in smaller if name not in larger)]


def _set_of(names: tuple[str, ...]) -> HashSet[str]:
    return HashSet(string_hash_code, names, initial_capacity=capacity_of_copy(len(names)))


def in_assignor_order(name: str, spec: MemberSpec, partitions: Partitions, topic_count: int) -> Partitions:
    """A new target in the order in which Kafka's assignor leaves it: records have this order.

    The uniform assignor modifies a copy of what the member had; range starts with an empty map sized for `topic_count`
    topics.
    """
    if name == RANGE:
        fresh: HashMap[str, tuple[int, ...]] = HashMap(uuid_hash_code, int(topic_count / LOAD_FACTOR + 1))
        for topic_id, numbers in partitions.items():
            fresh[topic_id] = numbers
        return dict(fresh.items())
    had = spec.assigned_partitions
    if partitions == {topic_id: tuple(sorted(numbers)) for topic_id, numbers in had.items()}:
        return had
    copy: HashMap[str, tuple[int, ...]] = HashMap(uuid_hash_code, len(had))
    for topic_id, numbers in had.items():
        copy[topic_id] = numbers
    for topic_id in had:
        if topic_id not in partitions:
            del copy[topic_id]
    for topic_id, numbers in partitions.items():
        for _ in set(numbers).difference(had.get(topic_id, ())):
            copy.compute_if_absent(topic_id, tuple)  # called once for each partition: the table may grow each time
        copy[topic_id] = numbers
    return dict(copy.items())
