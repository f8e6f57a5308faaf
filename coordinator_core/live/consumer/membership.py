"""Membership of a consumer group: the members, the conditions for joining, and how members leave."""

from collections import Counter
from typing import Any

from msgspec.structs import replace

from coordinator_core.bytes.kafka_versions import Since
from coordinator_core.live.consumer.conversion import can_downgrade, downgrade
from coordinator_core.live.consumer.records import (
    current_assignment_record,
    group_metadata_record,
    member_metadata_record,
    regex_tombstone,
    target_record,
)
from coordinator_core.live.consumer.timers import cancel_all
from coordinator_core.live.coordinator import modern_rules
from coordinator_core.live.coordinator.metadata_hash import metadata_hash
from coordinator_core.live.coordinator.modern_messages import TopicPartitions
from coordinator_core.live.coordinator.modern_rules import (
    fenced_epoch,
    last_epoch,
    member_of,
    static_member_of,
    unreleased,
)
from coordinator_core.live.coordinator.operation import Context, Result
from coordinator_core.live.coordinator.records import CoordinatorRecord, member_tombstones
from coordinator_core.replay.consumer.state import ConsumerGroup, ConsumerMember
from coordinator_core.replay.consumer.subscriptions import count_names, count_resolved, subscriptions_of
from coordinator_core.replay.java.ordered import map_of
from coordinator_core.replay.member_epochs import JOIN_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH
from coordinator_core.replay.record_families import CONSUMER

Owned = tuple[TopicPartitions, ...] | None


# --- joining ---


def check_not_full(context: Context, group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
    """Raise Refused (GROUP_MAX_SIZE_REACHED) unless there is room, or the member is in the group already."""
    size_max = context.config.group_consumer_max_size
    is_static_fit = Since.STATIC_REJOIN_FITS_A_FULL_GROUP.holds_in(context.config.kafka_version)
    is_known = member_id in group.members or (is_static_fit and instance_id in group.static_members)
    modern_rules.check_not_full(group, "consumer", size_max, is_known=is_known)


def dynamic_member(
    group: ConsumerGroup, member_id: str, epoch: int, owned: Owned, *, create: bool, is_classic: bool
) -> ConsumerMember:
    """The member, or a new one with `create`. Raises Refused: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH.

    The epoch of a classic member is not checked: it has none.
    """
    member = group.members.get(member_id)
    if member is None:
        member = ConsumerMember(member_id) if create else member_of(group, member_id)
    if not is_classic:
        check_epoch(member, epoch, owned)
    return member


def static_member(
    group: ConsumerGroup,
    member_id: str,
    epoch: int,
    instance_id: str,
    owned: Owned,
    records: list[CoordinatorRecord],
    *,
    create: bool,
    is_classic: bool,
) -> ConsumerMember:
    """The member with this instance id, or a new one with `create`, which may replace the current one.

    Raises Refused: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH, or UNRELEASED_INSTANCE_ID if both use
    the consumer protocol and the current one has not left.
    """
    if not create:
        member = static_member_of(group, member_id, instance_id)
        if not is_classic:
            check_epoch(member, epoch, owned)
        return member
    existing_id = group.static_members.get(instance_id)
    if existing_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    existing = group.members[existing_id]
    uses_classic = is_classic or existing.classic_member_metadata is not None
    if not uses_classic and existing.member_epoch != LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        raise unreleased(member_id, instance_id, existing_id)
    member = replace(
        existing,
        member_id=member_id,
        member_epoch=JOIN_GROUP_MEMBER_EPOCH,
        previous_member_epoch=JOIN_GROUP_MEMBER_EPOCH,
    )
    replace_member(records, group, existing, member)
    return member


def replace_member(
    records: list[CoordinatorRecord], group: ConsumerGroup, old: ConsumerMember, new: ConsumerMember
) -> None:
    """Move what a static member has to the same member under a new id.

    The timers of the old id keep running: they are needed if the log refuses these records; otherwise they find no
    member.
    """
    group_id = group.group_id
    records += member_tombstones(CONSUMER.of_member, group_id, [old.member_id])
    records.append(member_metadata_record(group_id, new))
    target = group.target_assignment.get(old.member_id, {})
    records.append(target_record(group_id, new.member_id, map_of(target)))
    records.append(current_assignment_record(group_id, new))


def check_epoch(member: ConsumerMember, epoch: int, owned: Owned) -> None:
    """Raise Refused (FENCED_MEMBER_EPOCH) unless the member may be at this epoch.

    It may be at its own epoch, or at the previous one if it owns only partitions assigned to it: it may not have
    received the newer epoch yet.
    """
    if epoch in {JOIN_GROUP_MEMBER_EPOCH, member.member_epoch}:
        return
    is_behind = epoch < member.member_epoch
    if not (is_behind and epoch == member.previous_member_epoch and _is_subset(owned, member)):
        raise fenced_epoch("consumer", epoch, member.member_epoch)


def _is_subset(owned: Owned, member: ConsumerMember) -> bool:
    if owned is None:
        return False
    return all(
        topic.topic_id in member.assigned and member.assigned[topic.topic_id].keys() >= set(topic.partitions)
        for topic in owned
    )


# --- leaving ---


def fence_members(context: Context, group: ConsumerGroup, members: tuple[ConsumerMember, ...], response: Any) -> Result:
    """Remove members, whether they left or timed out; the group may become classic (consumerGroupFenceMembers)."""
    if not members:
        return Result(response=response)
    if can_downgrade(context, group, members):
        return downgrade(context, group, members, response)
    group_id = group.group_id
    records = [record for it in members for record in member_tombstones(CONSUMER.of_member, group_id, [it.member_id])]
    known = subscriptions_of(group)
    used = Counter(member.subscribed_topic_regex for member in members if member.subscribed_topic_regex)
    deleted = [regex for regex, count in used.items() if known.regexes[regex] == count]
    records += [regex_tombstone(group_id, regex) for regex in deleted]
    resolved = [group.resolved_regexes[regex] for regex in deleted if regex in group.resolved_regexes]
    left = (known.by_name - count_names(members)).keys() | (known.by_regex - count_resolved(resolved)).keys()
    group_epoch = group.group_epoch + 1
    records.append(group_metadata_record(group_id, group_epoch, metadata_hash(context.image, left)))
    records += last_epoch(context, CONSUMER, group, group_epoch, leaving_count=len(members))
    for member in members:
        cancel_all(context, group_id, member.member_id)
    return Result(tuple(records), response)


def leave_for_a_while(group: ConsumerGroup, member: ConsumerMember) -> CoordinatorRecord:
    """A static member leaves temporarily and keeps its partitions for the next member with its instance id. All of them
    then count as assigned at epoch 0."""
    assigned = {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned.items()}
    away = replace(member, member_epoch=LEAVE_GROUP_STATIC_MEMBER_EPOCH, assigned=assigned, pending_revocation={})
    return current_assignment_record(group.group_id, away)
