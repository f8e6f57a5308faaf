"""Conversion between classic and consumer groups with members (KIP-848, online migration).

    classic, Empty           a consumer joins                            -> deleted; a new consumer group
    classic, anything else   a consumer joins                            -> consumer: `upgrade`
    consumer, no members     a classic member joins                      -> deleted; a new classic group
    consumer                 the last consumer goes, others are left     -> classic, PREPARING_REBALANCE: `downgrade`
    consumer                 the last consumer gives way to a classic    -> classic, STABLE, or PREPARING_REBALANCE if
                             member with its instance id                    the targets are stale

"Consumer" here means a member of the consumer protocol. The second, fourth and fifth conversions can be disabled
(group.consumer.migration.policy, group sizes); the first and third are in `commands` and `classic.commands`.

The generation continues as the group epoch, and vice versa. In an upgrade, each member keeps its last assignment and is
STABLE with it. In a downgrade, each member's target becomes its assignment, and a rebalance follows unless the member
that replaced the last consumer changed nothing.

Source: GroupMetadataManager.convertToConsumerGroup, convertToClassicGroup and the validations next to them;
ConsumerGroup.fromClassicGroup; ClassicGroup.fromConsumerGroup.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from immutables import Map
from msgspec.structs import replace

from coordinator_core.bytes.client_protocols import (
    Assignment,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from coordinator_core.errors import BufferUnderflow, DecodeError, UnknownValueVersion
from coordinator_core.live.classic.commands import answer_all, prepare_rebalance
from coordinator_core.live.classic.live import STABLE, LiveClassicGroup, LiveMember
from coordinator_core.live.classic.records import group_metadata_record, group_metadata_tombstone
from coordinator_core.live.classic.timers import schedule_heartbeat
from coordinator_core.live.consumer import records as consumer_records
from coordinator_core.live.consumer.timers import schedule_session
from coordinator_core.live.coordinator.config import GroupCoordinatorConfig
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.image import MetadataImage
from coordinator_core.live.coordinator.metadata_hash import metadata_hash
from coordinator_core.live.coordinator.operation import Context, Result
from coordinator_core.live.coordinator.records import CoordinatorRecord, target_epoch_record
from coordinator_core.live.state_dump import CONSUMER_PROTOCOL_TYPE, VERSION_BYTES
from coordinator_core.replay.consumer.state import ClassicMemberMetadata, ConsumerGroup, ConsumerMember, MemberState
from coordinator_core.replay.java.hash_codes import string_order
from coordinator_core.replay.java.ordered import map_of, set_of
from coordinator_core.replay.java.timeline import grown_timeline_capacity
from coordinator_core.replay.record_families import CONSUMER
from schemas.error_codes import ErrorCode

ASSIGNMENT_VERSION_MAX: Final = 3
"""ConsumerProtocolAssignment: a member that asks for a later version gets this one."""

CUSTOM_ASSIGNOR: Final = (
    "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor "
    "before re-attempting the upgrade."
)
"""The user data of a custom assignor would be lost."""

Partitions = Mapping[str, tuple[int, ...]]


# --- what is allowed ---


@dataclass(frozen=True, slots=True)
class MigrationPolicy:
    """What `group.consumer.migration.policy` allows (ConsumerGroupMigrationPolicy)."""

    is_upgrade_enabled: bool
    is_downgrade_enabled: bool


DISABLED: Final = MigrationPolicy(is_upgrade_enabled=False, is_downgrade_enabled=False)
POLICIES: Final[Mapping[str, MigrationPolicy]] = {
    "bidirectional": MigrationPolicy(is_upgrade_enabled=True, is_downgrade_enabled=True),
    "upgrade": MigrationPolicy(is_upgrade_enabled=True, is_downgrade_enabled=False),
    "downgrade": MigrationPolicy(is_upgrade_enabled=False, is_downgrade_enabled=True),
    "disabled": DISABLED,
}


def policy_of(config: GroupCoordinatorConfig) -> MigrationPolicy:
    """The policy in force. Names are case-insensitive; an unknown name allows nothing."""
    return POLICIES.get(config.group_consumer_migration_policy.lower(), DISABLED)


def check_upgrade(config: GroupCoordinatorConfig, group: LiveClassicGroup) -> None:
    """Raise Refused (GROUP_ID_NOT_FOUND) if the classic group may not be converted (validateOnlineUpgrade)."""
    if not policy_of(config).is_upgrade_enabled:
        raise _not_upgraded(group, "online upgrade is disabled.")
    if not group.uses_consumer_protocol:
        raise _not_upgraded(group, "the group does not use the consumer embedded protocol.")
    if len(group.members) > config.group_consumer_max_size:
        raise _not_upgraded(group, "the group size exceeds the consumer group maximum size.")


def can_downgrade(context: Context, group: ConsumerGroup, leaving: Collection[ConsumerMember]) -> bool:
    """Whether the group becomes classic when these members leave: there are members left, and all of them are
    classic."""
    leaving_ids = {member.member_id for member in leaving}
    remaining = [member for member_id, member in group.members.items() if member_id not in leaving_ids]
    return bool(remaining) and _may_be_classic(context.config, remaining, len(remaining))


def can_downgrade_with_replacement(context: Context, group: ConsumerGroup, replaced: ConsumerMember) -> bool:
    """Whether the group becomes classic when a classic member replaces this member of the consumer protocol."""
    if replaced.classic_member_metadata is not None:
        return False
    remaining = [member for member_id, member in group.members.items() if member_id != replaced.member_id]
    return _may_be_classic(context.config, remaining, len(group.members))


def _may_be_classic(config: GroupCoordinatorConfig, members: Iterable[ConsumerMember], size: int) -> bool:
    if not policy_of(config).is_downgrade_enabled or size > config.group_max_size:
        return False
    return all(member.classic_member_metadata is not None for member in members)


def _not_upgraded(group: LiveClassicGroup, why: str) -> Refused:
    text = f"Cannot upgrade classic group {group.group_id} to consumer group because {why}"
    return Refused(ErrorCode.GROUP_ID_NOT_FOUND, text)


# --- classic to consumer ---


def upgrade(context: Context, group: LiveClassicGroup, records: list[CoordinatorRecord]) -> ConsumerGroup:
    """Convert a classic group with members to a consumer group, during a join.

    Appends the records of the conversion, and returns the group after them. Waiting members are asked to rejoin, even
    if the conversion is then refused (GROUP_ID_NOT_FOUND): the group then stays classic, and the session timers already
    started find no consumer group.
    """
    check_upgrade(context.config, group)
    answer_all(context, group, ErrorCode.REBALANCE_IN_PROGRESS)
    converted = consumer_group_of(group, context.image)
    records.append(group_metadata_tombstone(group.group_id))
    records.extend(_upgrade_records(converted))
    for member in converted.members_in_table_order():
        session_timeout_ms = group.members[member.member_id].session_timeout_ms
        schedule_session(context, group.group_id, member.member_id, session_timeout_ms)
    return converted


def consumer_group_of(group: LiveClassicGroup, image: MetadataImage) -> ConsumerGroup:
    """The consumer group equivalent to a classic one (ConsumerGroup.fromClassicGroup).

    Kafka 4.3.1 fails if the first rebalance has not chosen a protocol yet. Here the protocol that it would choose is
    used: all members have to rejoin anyway.
    """
    protocol_name = group.protocol_name
    if protocol_name is None and group.members:
        protocol_name = group.select_protocol()
    converted = ConsumerGroup(
        group.group_id,
        group_epoch=group.generation_id,
        assignment_epoch=group.generation_id,
    )
    members, static_members, targets = converted.members.mutate(), {}, {}
    owners: dict[tuple[str, int], str] = {}
    capacity = converted.table_capacity
    for place, live in enumerate(group.members_in_hash_order()):
        capacity = grown_timeline_capacity(capacity, place)
        member, target = _consumer_member(group, live, protocol_name, image)
        members[member.member_id] = replace(member, place=place)
        targets[member.member_id] = target
        if member.instance_id is not None:
            static_members[member.instance_id] = member.member_id
        for topic_id, partitions in target.items():
            for partition in partitions:
                _own(owners, topic_id, partition, member)
    converted = replace(
        converted,
        members=members.finish(),
        static_members=Map(static_members),
        target_assignment=Map(targets),
        owners=Map(owners),
        members_ever=len(group.members),
        table_capacity=capacity,
    )
    topics = {name for member in converted.members.values() for name in member.subscribed_topic_names}
    return replace(converted, metadata_hash=metadata_hash(image, topics))


def _own(owners: dict[tuple[str, int], str], topic_id: str, partition: int, member: ConsumerMember) -> None:
    """Record an owner. A leader that assigned a partition to two members leaves a state that a consumer group cannot
    have.

    Kafka fails with this message; as in Kafka, the group can be converted after a rebalance that assigns it only once.
    """
    if owners.setdefault((topic_id, partition), member.member_id) != member.member_id:
        epoch = member.member_epoch
        raise Refused(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Cannot set the epoch of {topic_id}-{partition} to {epoch} because the partition is still owned at epoch "
            f"{epoch}",
        )


def _consumer_member(
    group: LiveClassicGroup, live: LiveMember, protocol_name: str | None, image: MetadataImage
) -> tuple[ConsumerMember, Partitions]:
    """A member, STABLE at the generation with its last assignment, which is also its target."""
    generation_id = group.generation_id
    try:
        assignment = decode_assignment(live.assignment)
        if assignment is not None and assignment.user_data:
            raise _not_upgraded(group, CUSTOM_ASSIGNOR)
        subscription = decode_subscription(live.metadata(protocol_name))
    except DecodeError as error:
        raise _not_upgraded(group, "the embedded consumer protocol is malformed.") from error
    target = {} if assignment is None else _by_topic_id(assignment, image)
    member = ConsumerMember(
        live.member_id,
        member_epoch=generation_id,
        previous_member_epoch=generation_id,
        state=MemberState.STABLE,
        instance_id=live.group_instance_id,
        rack_id=subscription.rack_id or None,
        client_id=live.client_id,
        client_host=live.client_host,
        subscribed_topic_names=tuple(sorted(set(subscription.topics), key=string_order)),
        rebalance_timeout_ms=live.rebalance_timeout_ms,
        classic_member_metadata=ClassicMemberMetadata(live.session_timeout_ms, live.protocols),
        assigned={topic_id: dict.fromkeys(partitions, generation_id) for topic_id, partitions in target.items()},
    )
    return member, target


def _by_topic_id(assignment: Assignment, image: MetadataImage) -> Partitions:
    """The partitions of topics that still exist, in the order of Kafka's hash maps."""
    partitions: dict[str, tuple[int, ...]] = {}
    for topic_name, numbers in assignment.assigned_partitions:
        topic = image.topics.get(topic_name)
        if topic is not None:
            partitions[topic.topic_id] = set_of(numbers)
    return map_of(partitions)


def _upgrade_records(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """Records of the whole group, from the root down (ConsumerGroup.createConsumerGroupRecords)."""
    group_id, members = group.group_id, group.members_in_table_order()
    return [
        *(consumer_records.member_metadata_record(group_id, member) for member in members),
        consumer_records.group_metadata_record(group_id, group.group_epoch, group.metadata_hash),
        *(
            consumer_records.target_record(group_id, member.member_id, group.target_assignment[member.member_id])
            for member in members
        ),
        target_epoch_record(CONSUMER, group_id, group.assignment_epoch, group.assignment_timestamp_ms),
        *(consumer_records.current_assignment_record(group_id, member) for member in members),
    ]


# --- consumer to classic ---


def downgrade(context: Context, group: ConsumerGroup, leaving: Collection[ConsumerMember], response: Any) -> Result:
    """Make a classic group of the members that stay when these leave, and rebalance it. See `can_downgrade`."""
    leaving_ids = frozenset(member.member_id for member in leaving)
    remaining = [member for member in group.members_in_table_order() if member.member_id not in leaving_ids]
    classic = classic_group_of(group, remaining, {}, context.image, context.now_ms)
    deleted = consumer_records.group_tombstones(group.group_id, group.members, group.members, group.resolved_regexes)
    records = (*deleted, _whole_group_record(classic))
    put_in_place(context, classic, must_rebalance=True)

    def on_append(later: Context, error: Refused | None) -> None:
        if error is not None:
            put_back(later, classic)

    return Result(records, response, on_append=on_append)


def downgrade_with_replacement(
    context: Context, group: ConsumerGroup, joining: ConsumerMember, records: list[CoordinatorRecord]
) -> LiveClassicGroup:
    """The classic group in which `joining` replaces the static member with its instance id.

    It takes over that member's target. The records that add `joining` to the consumer group are in `records` already,
    so the records appended here delete `joining` from it. See `put_in_place`.
    """
    replaced_id = group.static_members[joining.instance_id or ""]
    members = [member for member in group.members_in_table_order() if member.instance_id != joining.instance_id]
    heirs = {joining.member_id: replaced_id}
    classic = classic_group_of(group, [*members, joining], heirs, context.image, context.now_ms)
    member_ids = [joining.member_id if member_id == replaced_id else member_id for member_id in group.members]
    records.extend(consumer_records.group_tombstones(group.group_id, member_ids, member_ids, group.resolved_regexes))
    records.append(_whole_group_record(classic))
    return classic


def put_in_place(context: Context, classic: LiveClassicGroup, *, must_rebalance: bool) -> None:
    """Register the classic group under its id, before its records are replayed, and start its timers.

    The timers of the consumer group stay, and will not find that group. If the log refuses the records, call
    `put_back`.
    """
    context.coordinator.classic_groups[classic.group_id] = classic
    for member in classic.members_in_hash_order():
        schedule_heartbeat(context, classic, member.member_id)
    if must_rebalance:
        # no member has joined yet, so this starts the join phase and writes nothing
        prepare_rebalance(context, classic)


def put_back(context: Context, classic: LiveClassicGroup) -> None:
    """The group stays a consumer group. The timers stay, and will not find the classic group."""
    groups = context.coordinator.classic_groups
    if groups.get(classic.group_id) is classic:
        del groups[classic.group_id]


def classic_group_of(
    group: ConsumerGroup,
    members: Iterable[ConsumerMember],
    heirs: Mapping[str, str],
    image: MetadataImage,
    now_ms: int,
) -> LiveClassicGroup:
    """The Stable classic group of these members of the classic protocol; the first one is the leader.

    Each is assigned its target, or that of the member it replaces (`heirs`: member id -> id of the replaced member).
    Raises Refused (GROUP_ID_NOT_FOUND) if a member's metadata has no version for its assignment.
    """
    classic = LiveClassicGroup(
        group.group_id,
        state=STABLE,
        current_state_timestamp_ms=now_ms,
        generation_id=group.group_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
    )
    for member in members:
        metadata = member.classic_member_metadata
        assert metadata is not None
        classic.add(
            LiveMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                metadata.session_timeout_ms,
                CONSUMER_PROTOCOL_TYPE,
                metadata.supported_protocols,
            )
        )
    classic.protocol_name = classic.select_protocol()
    classic.subscribed_topics = classic.compute_subscribed_topics()
    for live in classic.members.values():
        target = group.target_assignment.get(heirs.get(live.member_id, live.member_id), {})
        try:
            live.assignment = assignment_bytes(target, live.metadata(classic.protocol_name), image)
        except DecodeError as error:
            text = f"Cannot downgrade the classic group {group.group_id}: {error}."
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, text) from error
    return classic


def assignment_bytes(partitions: Mapping[str, Collection[int]], subscription: bytes, image: MetadataImage) -> bytes:
    """ConsumerProtocolAssignment of topic id -> partitions, in the version of the member's subscription.

    Deleted topics are left out. Raises DecodeError if the subscription does not begin with a version.
    """
    version = _assignment_version(subscription)
    by_name = []
    for topic_id, numbers in map_of(partitions).items():
        topic = image.topic_of_id(topic_id)
        if topic is not None:
            by_name.append((topic.name, set_of(numbers)))
    return encode_assignment(Assignment(version, tuple(by_name)))


def _assignment_version(subscription: bytes) -> int:
    if len(subscription) < VERSION_BYTES:
        raise BufferUnderflow("Buffer underflow while parsing consumer protocol's header")
    version = int.from_bytes(subscription[:VERSION_BYTES], "big", signed=True)
    if version < 0:
        raise UnknownValueVersion(f"Unsupported assignment version: {version}")
    return min(version, ASSIGNMENT_VERSION_MAX)


def _whole_group_record(classic: LiveClassicGroup) -> CoordinatorRecord:
    return group_metadata_record(classic, {member.member_id: member.assignment for member in classic.members.values()})
