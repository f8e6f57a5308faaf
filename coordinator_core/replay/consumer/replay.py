"""Replay of a consumer group's records (GroupMetadataManager.replay of ConsumerGroup*, KIP-848): types 3 to 8, 16.

Each function takes the group and one record, and returns the group after it, or None if the record deletes it. A value
of None is a tombstone. Tombstones for unknown members, targets or patterns change nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from immutables import Map
from msgspec.structs import replace

from coordinator_core.bytes.codec import Struct
from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion
from coordinator_core.replay.anomalies import DOUBLE_OWNER, Anomaly, Report
from coordinator_core.replay.consumer.state import (
    ClassicMemberMetadata,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    ResolvedRegex,
)
from coordinator_core.replay.java.timeline import grown_timeline_capacity
from coordinator_core.replay.member_epochs import LEAVE_GROUP_MEMBER_EPOCH
from coordinator_core.replay.modern import (
    check_member_tombstone,
    partition_epochs,
    without,
    without_former_instance_id,
    without_static_member,
)

_MEMBER_STATES: Final[Mapping[int, MemberState]] = {state.value: state for state in MemberState}


def replay_partition_metadata(
    group: ConsumerGroup, _key: Struct, value: Struct | None, _report: Report
) -> ConsumerGroup | None:
    """ConsumerGroupPartitionMetadata (4), of brokers before 4.1: only its presence is kept."""
    return replace(group, has_legacy_partition_metadata=value is not None)


def replay_member_metadata(
    group: ConsumerGroup, key: Struct, value: Struct | None, report: Report, version: KafkaVersion = DEFAULT_VERSION
) -> ConsumerGroup | None:
    """ConsumerGroupMemberMetadata (5): a member joins or changes its subscription; a tombstone removes it."""
    member = group.members.get(key.member_id)
    if value is None:
        return group if member is None else _remove_member(group, member, report)
    former = None if member is None else member.instance_id
    if member is None:
        member = ConsumerMember(key.member_id, place=group.members_ever)
    classic = value.classic_member_metadata
    member = replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=tuple(value.subscribed_topic_names),
        subscribed_topic_regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic_member_metadata=None if classic is None else _classic_member_metadata(classic),
    )
    static_members = without_former_instance_id(group.static_members, former, member.instance_id, version)
    if static_members is not group.static_members:
        group = replace(group, static_members=static_members)
    return _set_member(group, member)


def replay_current_assignment(
    group: ConsumerGroup, key: Struct, value: Struct | None, report: Report
) -> ConsumerGroup | None:
    """ConsumerGroupCurrentMemberAssignment (8): epoch, state and partitions of one member.

    It is an anomaly if another member still owns a partition (ConsumerGroup.addPartitionEpochs throws); best effort
    applies the new record and leaves the other member's as it is. A tombstone removes all partitions from the member,
    which stays until its metadata is deleted.
    """
    member = group.members.get(key.member_id)
    if value is None:
        if member is None:
            return group
        left = replace(
            member,
            member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
            previous_member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
            assigned={},
            pending_revocation={},
        )
        return _set_member(group, left, owners=_release(group.owners, member))
    if member is None:
        member = ConsumerMember(key.member_id, place=group.members_ever)
    epoch = value.member_epoch
    updated = replace(
        member,
        member_epoch=epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=_MEMBER_STATES.get(value.state, MemberState.UNKNOWN),
        assigned=_assigned(value.assigned_partitions, epoch),
        pending_revocation=_assigned(value.partitions_pending_revocation, epoch),
    )
    return _set_member(group, updated, owners=_moved(group.owners, member, updated, report))


def replay_regular_expression(
    group: ConsumerGroup, key: Struct, value: Struct | None, _report: Report
) -> ConsumerGroup | None:
    """ConsumerGroupRegularExpression (16): the topics to which a pattern was resolved."""
    if value is None:
        return replace(group, resolved_regexes=without(group.resolved_regexes, key.regular_expression))
    resolved = ResolvedRegex(tuple(value.topics), value.version, value.timestamp)
    return replace(group, resolved_regexes=group.resolved_regexes.set(key.regular_expression, resolved))


def _classic_member_metadata(classic: Struct) -> ClassicMemberMetadata:
    return ClassicMemberMetadata(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=tuple((p.name, p.metadata) for p in classic.supported_protocols),
    )


def _assigned(topics: Iterable[Struct], member_epoch: int) -> Mapping[str, Mapping[int, int]]:
    assigned: dict[str, dict[int, int]] = {}
    for topic in topics:
        epochs = partition_epochs(topic.partitions, topic.assignment_epochs, member_epoch)
        so_far = assigned.get(topic.topic_id)
        assigned[topic.topic_id] = epochs if so_far is None else so_far | epochs
    return assigned


def _assigned_to(member: ConsumerMember) -> list[tuple[str, int]]:
    """Partitions that a member has or is revoking; a partition that is both is in the list twice."""
    return [
        (topic_id, partition)
        for topics in (member.assigned, member.pending_revocation)
        for topic_id, partitions in topics.items()
        for partition in partitions
    ]


def _release(owners: Map[tuple[str, int], str], member: ConsumerMember) -> Map[tuple[str, int], str]:
    """Owners without the member's partitions; those that another member took over meanwhile stay with it."""
    released = owners.mutate()
    for place in _assigned_to(member):
        if released.get(place) == member.member_id:
            del released[place]
    return released.finish()


def _moved(
    owners: Map[tuple[str, int], str], before: ConsumerMember, after: ConsumerMember, report: Report
) -> Map[tuple[str, int], str]:
    """Owners after a member's assignment changed. Usually nothing changed, and the same map is returned."""
    member_id = after.member_id
    had, has_now = _assigned_to(before), _assigned_to(after)
    holders = [*map(owners.get, has_now)]
    taken: dict[tuple[str, int], None] = {}
    if holders.count(member_id) < len(holders):
        taken = dict.fromkeys([place for place, holder in zip(has_now, holders, strict=True) if holder != member_id])
    given_up: list[tuple[str, int]] = []
    if had != has_now:
        still = frozenset(has_now)
        given_up = [place for place in had if place not in still and owners.get(place) == member_id]
    if not given_up and not taken:
        return owners
    moved = owners.mutate()
    for place in given_up:
        moved.pop(place, None)  # a partition that was being revoked may be listed twice
    for place in taken:
        owner = moved.get(place)
        if owner is not None:
            topic_id, partition = place
            message = f"{topic_id}-{partition} given to member {member_id!r}, still owned by {owner!r}"
            report(Anomaly(DOUBLE_OWNER, message))
        moved[place] = member_id
    return moved.finish()


def _set_member(
    group: ConsumerGroup, member: ConsumerMember, *, owners: Map[tuple[str, int], str] | None = None
) -> ConsumerGroup:
    """Put a member into the group, with changed owners if given. Every update also maps its instance id again, like
    ConsumerGroup.updateMember."""
    static_members = group.static_members
    if member.instance_id is not None:
        static_members = static_members.set(member.instance_id, member.member_id)
    return replace(
        group,
        members=group.members.set(member.member_id, member),
        static_members=static_members,
        subscription_regexes=group.resolved_regexes,
        owners=group.owners if owners is None else owners,
        members_ever=group.members_ever + (member.member_id not in group.members),
        table_capacity=grown_timeline_capacity(group.table_capacity, len(group.members)),
    )


def _remove_member(group: ConsumerGroup, member: ConsumerMember, report: Report) -> ConsumerGroup:
    member_id = member.member_id
    check_member_tombstone(group, member_id, member.member_epoch, report)
    return replace(
        group,
        members=group.members.delete(member_id),
        static_members=without_static_member(group.static_members, member.instance_id, member_id),
        subscription_regexes=group.resolved_regexes,
        owners=_release(group.owners, member),
    )
