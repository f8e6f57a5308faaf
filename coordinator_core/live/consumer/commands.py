"""Commands of consumer groups: ConsumerGroupHeartbeat, and the module of their timers and tasks.

Each heartbeat takes three steps (GroupMetadataManager.consumerGroupHeartbeat): the member is created or updated, and
the group epoch is bumped if that changes the subscription; the target is computed if it is behind; the member moves
towards it. The package's docstring lists the functions of each step.

A member:

    (unknown)     epoch 0 -> joins, and is reconciled at once
    any state     -> see `reconciliation`
    any state     epoch -1, session timeout, rebalance timeout -> gone; the group epoch goes up
    any state     epoch -2, static members only -> away: its partitions stay with the instance id
    away          epoch 0 under any member id -> back, with all it had; session timeout -> gone
"""

from typing import Final, TypeVar

from msgspec.structs import replace

from coordinator_core.live.classic.live import EMPTY, LiveClassicGroup
from coordinator_core.live.consumer import classic_members
from coordinator_core.live.consumer.conversion import upgrade
from coordinator_core.live.consumer.membership import (
    check_not_full,
    dynamic_member,
    fence_members,
    leave_for_a_while,
    static_member,
)
from coordinator_core.live.consumer.messages import (
    ConsumerGroupHeartbeatRequest,
)
from coordinator_core.live.consumer.reconciliation import PartitionEpochs, reconcile
from coordinator_core.live.consumer.regexes import RESOLVE_REGEXES, RegexChange, resolve_regexes, update_regexes
from coordinator_core.live.consumer.rules import ConsumerGroupRules
from coordinator_core.live.consumer.target import preferred_assignor_changed, update_target
from coordinator_core.live.consumer.timers import TYPE_NAME, schedule_session
from coordinator_core.live.consumer.update import (
    MetadataWatch,
    forget_metadata,
    is_metadata_expired,
    member_changed,
    update_metadata,
    watch_metadata,
)
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.group_module import GroupModule
from coordinator_core.live.coordinator.member_timers import start_timers, timers_of
from coordinator_core.live.coordinator.modern_messages import (
    Assignment,
    HeartbeatResponse,
    TopicPartitions,
)
from coordinator_core.live.coordinator.modern_rules import (
    group_of,
    member_of,
    other_type,
    static_member_of,
)
from coordinator_core.live.coordinator.operation import Context, Result
from coordinator_core.live.coordinator.records import CoordinatorRecord
from coordinator_core.replay.consumer.state import ConsumerGroup, ConsumerMember, MemberState
from coordinator_core.replay.member_epochs import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
)
from coordinator_core.replay.modern import fresh_group
from schemas.error_codes import ErrorCode

T = TypeVar("T")

NO_REBALANCE_TIMEOUT_MS: Final = -1
"""ConsumerGroupHeartbeat: the timeout has not changed."""


# --- ConsumerGroupHeartbeat ---


def heartbeat(context: Context, request: ConsumerGroupHeartbeatRequest) -> Result:
    """ConsumerGroupHeartbeat: a HeartbeatResponse."""
    if request.member_epoch in {LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH}:
        return _leave(context, request)
    records: list[CoordinatorRecord] = []
    group = _group_for(context, request, records)
    check_not_full(context, group, request.member_id, request.instance_id)
    member = _member_for(group, request, request.member_id or context.new_uuid, records)
    updated = _with_request(context, member, request)
    names_changed = updated is not member and member_changed(group.group_id, member, updated, records)
    regex_change = update_regexes(context, group, member, updated, records)
    must_bump = (
        names_changed
        or regex_change == RegexChange.UPDATED_AND_RESOLVED
        or preferred_assignor_changed(context, group, member, updated)
    )
    group_epoch, subscription_type = group.group_epoch, None
    if must_bump or is_metadata_expired(context, group):
        group_epoch, subscription_type = update_metadata(context, group, member, updated, records, bump=must_bump)
    target = update_target(context, group, group_epoch, member, updated, subscription_type, records)
    reconciled = reconcile(
        context,
        group,
        updated,
        target,
        request.topic_partitions,
        records,
        subscription_changed=names_changed or regex_change.is_change,
    )
    schedule_session(context, group.group_id, member.member_id)
    return Result(tuple(records), _response(context, request, member, reconciled))


def _group_for(
    context: Context, request: ConsumerGroupHeartbeatRequest, records: list[CoordinatorRecord]
) -> ConsumerGroup:
    """The group, created if the member joins; an empty classic one is replaced, any other classic one is converted.

    Raises Refused (GROUP_ID_NOT_FOUND).
    """
    group_id, is_joining = request.group_id, request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
    group = context.group(group_id)
    if isinstance(group, ConsumerGroup):
        return group
    if group is None and not is_joining:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
    if group is not None and not (is_joining and isinstance(group, LiveClassicGroup)):
        raise other_type(group_id, "consumer")
    forget_metadata(context, group_id)
    if group is not None and group.state != EMPTY:
        return upgrade(context, group, records)
    if group is not None:
        records += context.coordinator.rules_of(group).tombstones(context, group)
    return fresh_group(ConsumerGroup, group_id, context.config.kafka_version)


def _member_for(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, member_id: str, records: list[CoordinatorRecord]
) -> ConsumerMember:
    epoch, instance_id, owned = request.member_epoch, request.instance_id, request.topic_partitions
    is_joining = epoch == JOIN_GROUP_MEMBER_EPOCH
    if instance_id is None:
        return dynamic_member(group, member_id, epoch, owned, create=is_joining, is_classic=False)
    return static_member(group, member_id, epoch, instance_id, owned, records, create=is_joining, is_classic=False)


def _with_request(context: Context, member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
    """The member updated with the fields of the request; the same object if nothing is new."""
    client = context.client
    names = request.subscribed_topic_names
    if names is None or set(names) == set(member.subscribed_topic_names):
        names = member.subscribed_topic_names
    instance_id = _given(request.instance_id, member.instance_id)
    rack_id = _given(request.rack_id, member.rack_id)
    timeout_ms = _given(_rebalance_timeout_ms(request), member.rebalance_timeout_ms)
    assignor = _given(request.server_assignor, member.server_assignor)
    regex = _given(request.subscribed_topic_regex, member.subscribed_topic_regex)
    if (
        names is member.subscribed_topic_names
        and instance_id == member.instance_id
        and rack_id == member.rack_id
        and timeout_ms == member.rebalance_timeout_ms
        and assignor == member.server_assignor
        and regex == member.subscribed_topic_regex
        and client.client_id == member.client_id
        and client.client_host == member.client_host
        and member.classic_member_metadata is None
    ):
        return member
    return replace(
        member,
        instance_id=instance_id,
        rack_id=rack_id,
        rebalance_timeout_ms=timeout_ms,
        server_assignor=assignor,
        subscribed_topic_names=tuple(dict.fromkeys(names)),
        subscribed_topic_regex=regex,
        client_id=client.client_id,
        client_host=client.client_host,
        classic_member_metadata=None,
    )


def _given(value: T | None, known: T) -> T:
    """The value in the request; null means unchanged."""
    return known if value is None else value


def _rebalance_timeout_ms(request: ConsumerGroupHeartbeatRequest) -> int | None:
    timeout_ms = request.rebalance_timeout_ms
    return None if timeout_ms == NO_REBALANCE_TIMEOUT_MS else timeout_ms


def _response(
    context: Context, request: ConsumerGroupHeartbeatRequest, member: ConsumerMember, updated: ConsumerMember
) -> HeartbeatResponse:
    """The response; it has the assignment if that changed, or if the request has all fields of the member."""
    has_subscription = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    is_full = _rebalance_timeout_ms(request) is not None and request.topic_partitions is not None and has_subscription
    is_sent = request.member_epoch == JOIN_GROUP_MEMBER_EPOCH or is_full or member.assigned != updated.assigned
    return HeartbeatResponse(
        member_id=updated.member_id,
        member_epoch=updated.member_epoch,
        heartbeat_interval_ms=context.group_setting(request.group_id, "consumer_heartbeat_interval_ms"),
        assignment=_assignment(updated.assigned) if is_sent else None,
    )


def _assignment(assigned: PartitionEpochs) -> Assignment:
    return Assignment(tuple(TopicPartitions(topic_id, tuple(epochs)) for topic_id, epochs in assigned.items()))


def _leave(context: Context, request: ConsumerGroupHeartbeatRequest) -> Result:
    """Remove a member; a static one may leave temporarily instead (consumerGroupLeave)."""
    group = group_of(context, request.group_id, ConsumerGroup, "consumer")
    response = HeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    if request.instance_id is None:
        return fence_members(context, group, (member_of(group, request.member_id),), response)
    member = static_member_of(group, request.member_id, request.instance_id)
    if request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        return Result((leave_for_a_while(group, member),), response)
    return fence_members(context, group, (member,), response)


# --- load ---


def on_loaded(context: Context) -> None:
    watch = context.live(MetadataWatch)
    watch.image, watch.version_with_new_topics = context.image, context.image.version
    start_timers(context, TYPE_NAME, ConsumerGroup, MemberState.UNREVOKED_PARTITIONS)


MODULE: Final = GroupModule(
    "consumer",
    commands={
        "consumer_group_heartbeat": heartbeat,
        **classic_members.COMMANDS,
    },
    timers=timers_of(
        TYPE_NAME, ConsumerGroup, lambda context, group, member: fence_members(context, group, (member,), None)
    ),
    tasks={RESOLVE_REGEXES: resolve_regexes},
    on_loaded=on_loaded,
    on_metadata=watch_metadata,
    rules={ConsumerGroup: ConsumerGroupRules()},
)
