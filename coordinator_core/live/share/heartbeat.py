"""ShareGroupHeartbeat (KIP-932): members join, stay and leave, and get the partitions that they may fetch from.

A heartbeat goes through the steps of GroupMetadataManager.shareGroupHeartbeat: the member and its subscription, the
group epoch, the target assignment of the epoch, the member's own assignment, the partitions to initialize. Each step
appends its records; the group does not change before these are replayed.

A share member moves to its target in one step: partitions are shared, so no member has to revoke anything first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.member_timers import cancel_member, schedule_session, start_timers
from coordinator_core.live.coordinator.metadata_hash import metadata_hash
from coordinator_core.live.coordinator.modern_messages import Assignment, TopicPartitions
from coordinator_core.live.coordinator.modern_rules import check_not_full, fenced_epoch, group_of, last_epoch, member_of
from coordinator_core.live.coordinator.operation import Context, Result
from coordinator_core.live.coordinator.records import CoordinatorRecord, member_tombstones
from coordinator_core.live.share import records as share_records
from coordinator_core.live.share.live import METADATA_REFRESH_INTERVAL_MS, Refresh, ShareLive, are_same
from coordinator_core.live.share.messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from coordinator_core.live.share.partitions import initialize_subscribed
from coordinator_core.live.share.target import Target, last_target, update_target
from coordinator_core.replay.java.ordered import copy_of
from coordinator_core.replay.member_epochs import JOIN_GROUP_MEMBER_EPOCH, LEAVE_GROUP_MEMBER_EPOCH
from coordinator_core.replay.modern import fresh_group
from coordinator_core.replay.record_families import SHARE
from coordinator_core.replay.share.replay import counts_after, put_member, without_member
from coordinator_core.replay.share.state import ShareGroup, ShareMember
from schemas.error_codes import ErrorCode

TYPE_NAME: Final = "share"
STABLE_STATE: Final = 0
"""MemberState.STABLE: the only state of a share member."""


def share_group_heartbeat(context: Context, request: ShareGroupHeartbeatRequest) -> Result:
    """ShareGroupHeartbeat: a ShareGroupHeartbeatResponse.

    Raises Refused: GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH.
    """
    if request.member_epoch == LEAVE_GROUP_MEMBER_EPOCH:
        return _leave(context, request)
    is_joining = request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
    group = share_group_or_new(context, request.group_id, create=is_joining)
    is_known = request.member_id in group.members
    check_not_full(group, "share", context.config.group_share_max_size, is_known=is_known)
    group, member = _known_member(group, request.member_id, create=is_joining)
    _check_member_epoch(member, request.member_epoch)

    records: list[CoordinatorRecord] = []
    updated = _updated(context, member, request)
    has_subscription_changed = _member_changed(group.group_id, member, updated, records)
    epoch = _update_epoch(context, group, updated, records, has_subscription_changed=has_subscription_changed)
    if group.assignment_epoch >= epoch.group_epoch:
        target = last_target(group, updated.member_id)
    else:
        target = update_target(context, group, epoch.group_epoch, updated, epoch.name_counts, records)
    updated = _reconciled(context, updated, target, records, force=epoch.is_bumped)
    schedule_session(context, TYPE_NAME, group.group_id, updated.member_id)
    initialize = initialize_subscribed(context, group, epoch.group_epoch, epoch.recounted, records)

    is_full_request = is_joining or request.subscribed_topic_names is not None
    is_sent = is_full_request or (updated is not member and updated.assigned != member.assigned)
    response = ShareGroupHeartbeatResponse(
        member_id=updated.member_id,
        member_epoch=updated.member_epoch,
        heartbeat_interval_ms=context.group_setting(group.group_id, "share_heartbeat_interval_ms"),
        assignment=_assignment(updated) if is_sent else None,
        initialize_share_state=initialize,
    )
    return Result(tuple(records), response)


# --- group and member ---


def share_group_or_new(context: Context, group_id: str, *, create: bool) -> ShareGroup:
    """The share group with this id, or one that is in no record yet. Raises Refused: GROUP_ID_NOT_FOUND."""
    if context.group(group_id) is not None:
        return group_of(context, group_id, ShareGroup, "share")
    if not create:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
    return fresh_group(ShareGroup, group_id, context.config.kafka_version)


def _known_member(group: ShareGroup, member_id: str, *, create: bool) -> tuple[ShareGroup, ShareMember]:
    """The group with the member, which may be new."""
    if member_id not in group.members:
        if not create:
            member_of(group, member_id)
        group = put_member(group, ShareMember(member_id))
    return group, group.members[member_id]


def _check_member_epoch(member: ShareMember, received_epoch: int) -> None:
    """A member may be one epoch behind: it may not have received the last response."""
    if received_epoch in (JOIN_GROUP_MEMBER_EPOCH, member.member_epoch):
        return
    mismatch = ""
    if received_epoch < member.member_epoch:
        if received_epoch == member.previous_member_epoch:
            return
        mismatch = f", and it does not match the previous member epoch ({member.previous_member_epoch})"
    raise fenced_epoch("share", received_epoch, member.member_epoch, mismatch)


def _updated(context: Context, member: ShareMember, request: ShareGroupHeartbeatRequest) -> ShareMember:
    """The member updated with the request; the same object if nothing is new."""
    rack_id = member.rack_id if request.rack_id is None else request.rack_id
    names = member.subscribed_topic_names if request.subscribed_topic_names is None else request.subscribed_topic_names
    client = context.client
    found = (member.rack_id, member.client_id, member.client_host, member.subscribed_topic_names)
    if found == (rack_id, client.client_id, client.client_host, names):
        return member
    return replace(
        member,
        rack_id=rack_id,
        client_id=client.client_id,
        client_host=client.client_host,
        subscribed_topic_names=names,
    )


def _member_changed(group_id: str, member: ShareMember, updated: ShareMember, records: list[CoordinatorRecord]) -> bool:
    """Append the member's record if it changed. Returns whether its subscription did (hasMemberSubscriptionChanged)."""
    if updated is member:
        return False
    is_other_subscription = set(updated.subscribed_topic_names) != set(member.subscribed_topic_names)
    if is_other_subscription or replace(updated, subscribed_topic_names=member.subscribed_topic_names) != member:
        records.append(share_records.member_metadata_record(group_id, updated))
    return is_other_subscription


# --- epoch ---


@dataclass(frozen=True, slots=True)
class Epoch:
    """The group epoch after the heartbeat, and the subscriptions at that time."""

    group_epoch: int
    is_bumped: bool
    name_counts: Mapping[str, int]
    recounted: ShareMember | None
    """The member with which subscriptions were counted again, or None if those of the group are still valid."""


def _update_epoch(
    context: Context,
    group: ShareGroup,
    updated: ShareMember,
    records: list[CoordinatorRecord],
    *,
    has_subscription_changed: bool,
) -> Epoch:
    """Bump the epoch if a subscription, the topics, or the assignable partitions changed."""
    live = context.live(ShareLive)
    is_bumped = has_subscription_changed or (
        group.assignment_epoch >= group.group_epoch and _is_initialized_assignment_pending(context, group)
    )
    if not is_bumped and not live.is_metadata_expired(group, context.now_ms):
        return Epoch(group.group_epoch, False, group.name_counts, None)
    counts = counts_after(group.name_counts, group.members[updated.member_id], updated)
    topics_hash = metadata_hash(context.image, counts)
    is_bumped = is_bumped or topics_hash != group.metadata_hash
    group_epoch = group.group_epoch
    if is_bumped:
        group_epoch += 1
        records.append(share_records.epoch_record(group.group_id, group_epoch, topics_hash))
    if context.group(group.group_id) is not None:
        # Kafka notes it in the group's object; for a new group, replay then makes another object.
        live.refreshes[group.group_id] = Refresh(context.now_ms + METADATA_REFRESH_INTERVAL_MS, group_epoch)
    return Epoch(group_epoch, is_bumped, counts, updated)


def _is_initialized_assignment_pending(context: Context, group: ShareGroup) -> bool:
    """Whether partitions of a subscribed topic are initialized but in no target, or the reverse.

    The subscriptions are those before this heartbeat.
    """
    state_partitions = context.shard.groups.share_partitions.get(group.group_id)
    if state_partitions is None or not state_partitions.initialized:
        return False
    derived = context.live(ShareLive).of(group.group_id)
    if not are_same(derived.pending_of, group.target_assignment, group.name_counts, state_partitions):
        derived.pending_of = (group.target_assignment, group.name_counts, state_partitions)
        assigned: dict[str, set[int]] = {}
        for target in group.target_assignment.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        derived.is_pending = any(
            name in group.name_counts and assigned.get(topic_id) != set(partitions)
            for topic_id, (name, partitions) in state_partitions.initialized.items()
        )
    return derived.is_pending


def is_settled(context: Context, group: ShareGroup) -> bool:
    """Whether heartbeats without new information change nothing, however much later they come.

    They do while partitions are initializing, because a heartbeat retries that after the retry interval, and while
    initialized partitions wait for the assignment interval.
    """
    state_partitions = context.shard.groups.share_partitions.get(group.group_id)
    derived = context.live(ShareLive).of(group.group_id)
    return (
        all(member.member_epoch == group.group_epoch == group.assignment_epoch for member in group.members.values())
        and are_same(derived.settled_with, state_partitions, context.image, group.name_counts)
        and not _is_initialized_assignment_pending(context, group)
    )


# --- the member's assignment ---


def _reconciled(
    context: Context, member: ShareMember, target: Target, records: list[CoordinatorRecord], *, force: bool
) -> ShareMember:
    """The member at its target, restricted to its subscription (ShareGroupAssignmentBuilder).

    `force`: also check a member that has reached the epoch, because subscriptions changed.
    """
    is_behind = target.epoch != member.member_epoch
    if not is_behind and not force:
        return member
    assigned = _subscribed_part(context, target.partitions, member)
    updated = replace(member, assigned=assigned)
    if is_behind:
        updated = replace(
            updated, state=STABLE_STATE, member_epoch=target.epoch, previous_member_epoch=member.member_epoch
        )
    if updated != member:
        records.append(share_records.current_assignment_record(target.group_id, updated))
    return updated


def _subscribed_part(
    context: Context, partitions: Mapping[str, tuple[int, ...]], member: ShareMember
) -> Mapping[str, tuple[int, ...]]:
    names = set(member.subscribed_topic_names)
    unsubscribed = [topic_id for topic_id in partitions if context.image.names.get(topic_id) not in names]
    if not unsubscribed:
        return partitions
    copied = copy_of(partitions)
    for topic_id in unsubscribed:
        del copied[topic_id]
    return copied


def _assignment(member: ShareMember) -> Assignment:
    return Assignment(tuple(TopicPartitions(topic_id, numbers) for topic_id, numbers in member.assigned.items()))


# --- leaving ---


def _leave(context: Context, request: ShareGroupHeartbeatRequest) -> Result:
    group = group_of(context, request.group_id, ShareGroup, "share")
    response = ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    return fence(context, group, member_of(group, request.member_id), response)


def fence(
    context: Context, group: ShareGroup, member: ShareMember, response: ShareGroupHeartbeatResponse | None = None
) -> Result:
    """Remove the member and bump the epoch, so that the others learn of it at their next heartbeat
    (shareGroupFenceMember).
    """
    member_id, group_epoch = member.member_id, group.group_epoch + 1
    topics_hash = metadata_hash(context.image, without_member(group, member_id).name_counts)
    cancel_member(context, group.group_id, member_id)
    records = [
        *member_tombstones(SHARE.of_member, group.group_id, [member_id]),
        share_records.epoch_record(group.group_id, group_epoch, topics_hash),
        *last_epoch(context, SHARE, group, group_epoch, leaving_count=1),
    ]
    return Result(tuple(records), response)


def on_loaded(context: Context) -> None:
    """Start a session for members of loaded groups, and the clock of initializing partitions."""
    context.live(ShareLive).loaded_ms = context.now_ms
    start_timers(context, TYPE_NAME, ShareGroup)
