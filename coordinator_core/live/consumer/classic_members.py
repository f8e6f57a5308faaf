"""Members of the classic protocol inside a consumer group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (KIP-848).

To its client such a member is in a classic group whose generation is the member epoch; to the coordinator it is a
member like any other. Three requests share what a heartbeat does for a member of the consumer protocol:

| request   | does                                                                                            |
| --------- | ----------------------------------------------------------------------------------------------- |
| JoinGroup | says what the member reads and owns, and moves it towards its target; the answer is its epoch   |
| SyncGroup | fetches what it is assigned                                                                     |
| Heartbeat | keeps it alive, and tells it to rejoin when it can make a step                                  |

    (none)          JoinGroup                                            -> has to sync
    has to sync     SyncGroup                                            -> at work
    at work         Heartbeat or SyncGroup finds that it can make a step -> has to rejoin
    has to rejoin   JoinGroup                                            -> has to sync
    any             LeaveGroup, or its time is up                        -> gone

A member has its rebalance timeout to sync, and the same time to rejoin after it was first asked to. Its session is as
long as it requested. Only JoinGroup, LeaveGroup and timeouts write records.

Source: GroupMetadataManager.classicGroupJoinToConsumerGroup, classicGroupSyncToConsumerGroup,
classicGroupHeartbeatToConsumerGroup, classicGroupLeaveToConsumerGroup.
"""

from typing import Final

from msgspec.structs import replace

from coordinator_core.bytes.client_protocols import Subscription, decode_subscription
from coordinator_core.bytes.kafka_versions import Since
from coordinator_core.errors import DecodeError
from coordinator_core.live.classic.commands import (
    HEARTBEAT_CONSUMER_GROUP,
    JOIN_CONSUMER_GROUP,
    LEAVE_CONSUMER_GROUP,
    MEMBER_ID_REQUIRED_FROM_VERSION,
    SYNC_CONSUMER_GROUP,
    UNKNOWN_MEMBER_ID,
)
from coordinator_core.live.classic.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from coordinator_core.live.consumer import conversion, timers
from coordinator_core.live.consumer.membership import check_not_full, dynamic_member, fence_members, static_member
from coordinator_core.live.consumer.reconciliation import reconcile
from coordinator_core.live.consumer.regexes import update_regexes
from coordinator_core.live.consumer.target import last_target, update_target
from coordinator_core.live.consumer.update import is_metadata_expired, member_changed, update_metadata
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.image import MetadataImage
from coordinator_core.live.coordinator.modern_messages import TopicPartitions
from coordinator_core.live.coordinator.modern_rules import member_of, static_member_of
from coordinator_core.live.coordinator.operation import NOTHING, Command, Context, Result
from coordinator_core.live.coordinator.records import CoordinatorRecord
from coordinator_core.live.state_dump import CONSUMER_PROTOCOL_TYPE
from coordinator_core.replay.consumer.state import ClassicMemberMetadata, ConsumerGroup, ConsumerMember, MemberState
from coordinator_core.replay.consumer.subscriptions import subscriptions_of
from coordinator_core.replay.java.hash_codes import string_order
from schemas.error_codes import ErrorCode

NO_EPOCH: Final = -1
"""JoinGroup has no member epoch, so none is checked."""

NO_REGEX: Final = ""
"""Classic members subscribe by name only."""

NO_REBALANCE_TIMEOUT_MS: Final = -1
"""JoinGroup of version 0 has no rebalance timeout."""


# --- JoinGroup ---


def join_group(context: Context, request: JoinGroupRequest) -> Result:
    """JoinGroup of a consumer group with members. The response is sent by `Context.complete`; errors are raised."""
    group: ConsumerGroup = context.group(request.group_id)
    member_id = request.member_id or context.new_uuid
    _check_may_join(context, group, request, member_id)
    if _requires_known_member_id(context, request):
        code = ErrorCode.MEMBER_ID_REQUIRED
        context.complete(context.request_id, JoinGroupResponse(error_code=code, member_id=member_id))
        return NOTHING
    records: list[CoordinatorRecord] = []
    member = _member_that_joins(group, request, member_id, records)
    subscription = _subscription(context, request)
    updated = _updated_member(context, request, member, subscription)
    has_changed = member_changed(group.group_id, member, updated, records)
    regex_change = update_regexes(context, group, member, updated, records)
    must_bump = has_changed or regex_change.is_change
    group_epoch, subscription_type = group.group_epoch, subscriptions_of(group).subscription_type
    if must_bump or is_metadata_expired(context, group):
        group_epoch, subscription_type = update_metadata(context, group, member, updated, records, bump=must_bump)
    is_downgrade = _takes_the_last_place(context, group, request)
    if is_downgrade:
        target = last_target(group, updated)
    else:
        target = update_target(context, group, group_epoch, member, updated, subscription_type, records)
    must_rebalance = is_downgrade and target.epoch < group_epoch
    if not must_rebalance:
        owned = _owned(subscription, context.image)
        updated = reconcile(context, group, updated, target, owned, records, subscription_changed=must_bump)
    if is_downgrade:
        return _join_classic_group(context, group, updated, records, must_rebalance=must_rebalance)
    response = _join_response(updated)

    def on_append(later: Context, error: Refused | None) -> None:
        if error is not None:
            later.complete(context.request_id, JoinGroupResponse(error_code=error.code))
            return
        later.cancel(timers.join_key(group.group_id, updated.member_id))
        timers.schedule_session(later, group.group_id, updated.member_id, request.session_timeout_ms)
        timers.schedule_sync(later, group.group_id, updated.member_id, request.rebalance_timeout_ms)
        later.complete(context.request_id, response)

    return Result(tuple(records), on_append=on_append)


def _join_classic_group(
    context: Context,
    group: ConsumerGroup,
    member: ConsumerMember,
    records: list[CoordinatorRecord],
    *,
    must_rebalance: bool,
) -> Result:
    """The member takes the place of the last member of the consumer protocol: the group is classic from now on."""
    response = _join_response(member)
    classic = conversion.downgrade_with_replacement(context, group, member, records)
    conversion.put_in_place(context, classic, must_rebalance=must_rebalance)

    def on_append(later: Context, error: Refused | None) -> None:
        if error is not None:
            conversion.put_back(later, classic)
            later.complete(context.request_id, JoinGroupResponse(error_code=error.code))
            return
        later.cancel(timers.join_key(group.group_id, member.member_id))
        later.complete(context.request_id, response)

    return Result(tuple(records), on_append=on_append)


def _check_may_join(context: Context, group: ConsumerGroup, request: JoinGroupRequest, member_id: str) -> None:
    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if conversion.policy_of(context.config) == conversion.DISABLED:
        text = (
            f"Cannot join the consumer group {group.group_id} with the classic protocol because the group migration "
            "is disabled."
        )
        raise Refused(code, text)
    check_not_full(context, group, member_id, request.group_instance_id)
    if not _supports_protocols(group, request):
        raise Refused(code, f"Member {member_id}'s protocols are not supported.")


def _supports_protocols(group: ConsumerGroup, request: JoinGroupRequest) -> bool:
    """Whether all classic members share one of the protocols; if there are no classic members yet, any protocol will
    do.
    """
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return False
    subscriptions = subscriptions_of(group)
    count = subscriptions.classic_member_count
    return any(subscriptions.classic_protocols.get(protocol.name, 0) == count for protocol in request.protocols)


def _requires_known_member_id(context: Context, request: JoinGroupRequest) -> bool:
    """Whether a new member gets its id first, and joins with it (KIP-394)."""
    is_new = request.group_instance_id is None and request.member_id == UNKNOWN_MEMBER_ID
    return is_new and context.api_version >= MEMBER_ID_REQUIRED_FROM_VERSION


def _member_that_joins(
    group: ConsumerGroup, request: JoinGroupRequest, member_id: str, records: list[CoordinatorRecord]
) -> ConsumerMember:
    instance_id = request.group_instance_id
    if instance_id is None:
        return dynamic_member(group, member_id, NO_EPOCH, (), create=True, is_classic=True)
    is_new = request.member_id == UNKNOWN_MEMBER_ID
    return static_member(group, member_id, NO_EPOCH, instance_id, (), records, create=is_new, is_classic=True)


def _takes_the_last_place(context: Context, group: ConsumerGroup, request: JoinGroupRequest) -> bool:
    """Whether the member takes the place of a static one, so that the group becomes classic."""
    replaced_id = group.static_members.get(request.group_instance_id or "")
    if request.group_instance_id is None or replaced_id is None:
        return False
    return conversion.can_downgrade_with_replacement(context, group, group.members[replaced_id])


def _subscription(context: Context, request: JoinGroupRequest) -> Subscription:
    """The member's subscription. It is the same in all its protocols, so the first one is read."""
    try:
        return decode_subscription(request.protocols[0].metadata)
    except DecodeError as error:
        is_inconsistent = Since.MALFORMED_SUBSCRIPTION_IS_INCONSISTENT.holds_in(context.config.kafka_version)
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL if is_inconsistent else ErrorCode.UNKNOWN_SERVER_ERROR
        text = "Malformed embedded consumer protocol in subscription deserialization."
        raise Refused(code, text) from error


def _updated_member(
    context: Context, request: JoinGroupRequest, member: ConsumerMember, subscription: Subscription
) -> ConsumerMember:
    protocols = tuple((protocol.name, protocol.metadata) for protocol in request.protocols)
    has_timeout = request.rebalance_timeout_ms != NO_REBALANCE_TIMEOUT_MS
    return replace(
        member,
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_timeout else member.rebalance_timeout_ms,
        subscribed_topic_names=tuple(sorted(set(subscription.topics), key=string_order)),
        subscribed_topic_regex=NO_REGEX,
        client_id=context.client.client_id,
        client_host=context.client.client_host,
        classic_member_metadata=ClassicMemberMetadata(request.session_timeout_ms, protocols),
    )


def _owned(subscription: Subscription, image: MetadataImage) -> tuple[TopicPartitions, ...]:
    """What the member owns according to its subscription, restricted to existing topics."""
    known = [(image.topics.get(name), partitions) for name, partitions in subscription.owned_partitions]
    return tuple(TopicPartitions(topic.topic_id, partitions) for topic, partitions in known if topic is not None)


def _join_response(member: ConsumerMember) -> JoinGroupResponse:
    """The response names no leader: the coordinator assigns."""
    return JoinGroupResponse(
        generation_id=member.member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=_classic(member).supported_protocols[0][0],
        member_id=member.member_id,
    )


# --- SyncGroup ---


def sync_group(context: Context, request: SyncGroupRequest) -> Result:
    """SyncGroup: the member's assignment. The response is sent by `Context.complete`; errors are raised."""
    group: ConsumerGroup = context.group(request.group_id)
    member = _validate_member(group, request.member_id, request.group_instance_id)
    classic = _validate_classic(member, request.generation_id)
    _check_protocol(request, member)
    _check_no_rebalance(context, group, member)
    response = SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=_assignment_bytes(context, member, classic),
    )

    def on_append(later: Context, error: Refused | None) -> None:
        if error is not None:
            later.complete(context.request_id, SyncGroupResponse(error_code=error.code))
            return
        later.cancel(timers.sync_key(group.group_id, member.member_id))
        timers.schedule_session(later, group.group_id, member.member_id, classic.session_timeout_ms)
        later.complete(context.request_id, response)

    # Nothing is written, but the response waits for earlier records: the member must not get an assignment that the log
    # may still lose.
    return Result(on_append=on_append)


def _check_protocol(request: SyncGroupRequest, member: ConsumerMember) -> None:
    """Check that the protocol is the one in the response to JoinGroup. It is not checked if the request names none."""
    code, who = ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"from member {member.member_id} request is not equal to the"
    protocol_name = _classic(member).supported_protocols[0][0]
    if request.protocol_type not in {None, CONSUMER_PROTOCOL_TYPE}:
        text = f"The protocol type {request.protocol_type} {who} group protocol type {CONSUMER_PROTOCOL_TYPE}."
        raise Refused(code, text)
    if request.protocol_name not in {None, protocol_name}:
        text = f"The protocol name {request.protocol_name} {who} protocol name {protocol_name} returned in the join "
        raise Refused(code, text + "response.")


def _check_no_rebalance(context: Context, group: ConsumerGroup, member: ConsumerMember) -> None:
    """A member behind the target has to rejoin, unless it already did and is revoking partitions."""
    if group.assignment_epoch > member.member_epoch and member.state != MemberState.UNREVOKED_PARTITIONS:
        timers.schedule_join_if_absent(context, group.group_id, member.member_id, member.rebalance_timeout_ms)
        text = f"A new rebalance is triggered in group {group.group_id} and member {member.member_id} should rejoin to "
        raise Refused(ErrorCode.REBALANCE_IN_PROGRESS, text + "catch up.")


def _assignment_bytes(context: Context, member: ConsumerMember, classic: ClassicMemberMetadata) -> bytes:
    """The member's assignment, in the version of its subscription. Partitions to revoke are already left out."""
    try:
        return conversion.assignment_bytes(member.assigned, classic.supported_protocols[0][1], context.image)
    except DecodeError as error:
        text = "Malformed embedded consumer protocol in version deserialization."
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, text) from error


# --- Heartbeat ---


def heartbeat(context: Context, request: HeartbeatRequest) -> Result:
    """Heartbeat: restarts the session. Returns REBALANCE_IN_PROGRESS to ask the member to rejoin, when it can make a
    step.
    """
    group: ConsumerGroup = context.group(request.group_id)
    member = _validate_member(group, request.member_id, request.group_instance_id)
    classic = _validate_classic(member, request.generation_id)
    timers.schedule_session(context, group.group_id, request.member_id, classic.session_timeout_ms)
    if not _should_rejoin(group, member):
        return Result(response=HeartbeatResponse())
    timers.schedule_join_if_absent(context, group.group_id, request.member_id, member.rebalance_timeout_ms)
    return Result(response=HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))


def _should_rejoin(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether there is a newer target, there are partitions to revoke, or the partitions that the member waited for are
    free.
    """
    if member.member_epoch < group.assignment_epoch or member.state == MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state == MemberState.UNRELEASED_PARTITIONS and not _is_waiting(group, member)


def _is_waiting(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether others own partitions in the member's target (ConsumerGroup.waitingOnUnreleasedPartition)."""
    for topic_id, partitions in group.target_assignment.get(member.member_id, {}).items():
        assigned = member.assigned.get(topic_id, {})
        if any(number not in assigned and (topic_id, number) in group.owners for number in partitions):
            return True
    return False


# --- LeaveGroup ---


def leave_group(context: Context, request: LeaveGroupRequest) -> Result:
    """LeaveGroup: members of either protocol are removed at once; each id that is not a member gets an error of its
    own.
    """
    group: ConsumerGroup = context.group(request.group_id)
    leaving: dict[str, ConsumerMember] = {}
    answers = []
    for identity in request.members:
        code = ErrorCode.NONE
        try:
            member = _member_that_leaves(group, identity)
            leaving[member.member_id] = member
        except Refused as refused:
            code = refused.code
        answers.append(MemberResponse(identity.member_id, identity.group_instance_id, code))
    response = LeaveGroupResponse(members=tuple(answers))
    if not leaving:
        return Result(response=response)
    return fence_members(context, group, tuple(leaving.values()), response)


def _member_that_leaves(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    """The member that leaves. An admin removes a static member by its instance id, without a member id."""
    instance_id = identity.group_instance_id
    if instance_id is None:
        return member_of(group, identity.member_id)
    member_id = identity.member_id or group.static_members.get(instance_id, UNKNOWN_MEMBER_ID)
    return static_member_of(group, member_id, instance_id)


# --- the identity of the member ---


def _validate_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """The member; Refused unless the instance id, where given, is its own."""
    if instance_id is None:
        return member_of(group, member_id)
    if instance_id not in group.static_members:
        text = f"Member with instance id {instance_id} is not a member of group {group.group_id}."
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, text)
    return static_member_of(group, member_id, instance_id)


def _validate_classic(member: ConsumerMember, generation_id: int) -> ClassicMemberMetadata:
    """The member's metadata of the classic protocol. Raises Refused unless it has some and its epoch is the
    generation."""
    metadata = member.classic_member_metadata
    if metadata is None:
        text = f"Member {member.member_id} does not use the classic protocol."
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, text)
    if generation_id != member.member_epoch:
        text = (
            f"The request generation id {generation_id} is not equal to the member epoch {member.member_epoch} of "
            f"member {member.member_id}."
        )
        raise Refused(ErrorCode.ILLEGAL_GENERATION, text)
    return metadata


def _classic(member: ConsumerMember) -> ClassicMemberMetadata:
    metadata = member.classic_member_metadata
    assert metadata is not None
    return metadata


COMMANDS: Final[dict[str, Command]] = {
    JOIN_CONSUMER_GROUP: join_group,
    SYNC_CONSUMER_GROUP: sync_group,
    HEARTBEAT_CONSUMER_GROUP: heartbeat,
    LEAVE_CONSUMER_GROUP: leave_group,
}
