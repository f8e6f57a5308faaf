"""Commands of classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and the timers between them.

A rebalance has two phases. In the join phase (PREPARING_REBALANCE) JoinGroup requests wait until all members have
joined, or the time is up; then a new generation begins and all are answered at once. In the sync phase
(COMPLETING_REBALANCE) SyncGroup requests wait until the leader's brings the assignment and it is in the log.

Timers, by key: `heartbeat-<group>-<member>` (the member is dead), `join-<group>` (the join phase ends), `sync-<group>`
(members that have not synced are removed).

Source: GroupMetadataManager.classicGroupJoin, classicGroupSync, classicGroupHeartbeat, classicGroupLeave and the
methods that they call. Names here follow those methods.
"""

from dataclasses import replace
from typing import Final

from coordinator_core.live.classic.live import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    LiveClassicGroup,
    LiveMember,
    Protocols,
)
from coordinator_core.live.classic.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from coordinator_core.live.classic.records import empty_group_metadata_record, group_metadata_record
from coordinator_core.live.classic.rules import ClassicGroupRules
from coordinator_core.live.classic.timers import (
    COMPLETE_INITIAL_JOIN,
    COMPLETE_JOIN,
    EXPIRE_HEARTBEAT,
    EXPIRE_SYNC,
    heartbeat_key,
    join_key,
    schedule_heartbeat,
    sync_key,
)
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.group_module import GroupModule
from coordinator_core.live.coordinator.operation import NOTHING, Context, Result
from coordinator_core.replay.consumer.state import ConsumerGroup
from coordinator_core.replay.share.state import ShareGroup
from coordinator_core.replay.streams.state import StreamsGroup
from schemas.error_codes import ErrorCode

UNKNOWN_MEMBER_ID: Final = ""
"""The member id in requests of a member that has none yet."""

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""How long a new member's JoinGroup may wait; fixed in Kafka (classicGroupNewMemberJoinTimeoutMs)."""

MEMBER_ID_REQUIRED_FROM_VERSION: Final = 4
"""JoinGroup: from this version on a new member first gets its id, and then joins with it."""

SKIP_ASSIGNMENT_FROM_VERSION: Final = 9
"""JoinGroup: from this version on the response may say to a returning leader that the assignment is unchanged."""

JOIN_CONSUMER_GROUP: Final = "classic_join_consumer_group"
SYNC_CONSUMER_GROUP: Final = "classic_sync_consumer_group"
HEARTBEAT_CONSUMER_GROUP: Final = "classic_heartbeat_consumer_group"
LEAVE_CONSUMER_GROUP: Final = "classic_leave_consumer_group"
"""Commands of the module of consumer groups, for members of the classic protocol."""


# --- JoinGroup ---


def join_group(context: Context, request: JoinGroupRequest) -> Result:
    """JoinGroup. The response, also for errors, is sent by `Context.complete` (a JoinGroupResponse)."""
    existing = context.group(request.group_id)
    if isinstance(existing, ConsumerGroup) and existing.members:
        return context.command(JOIN_CONSUMER_GROUP)(context, request)
    if isinstance(existing, ShareGroup) or (isinstance(existing, StreamsGroup) and existing.members):
        return _refuse_join(context, UNKNOWN_MEMBER_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if isinstance(existing, LiveClassicGroup):
        return _join_classic_group(context, request, existing)
    if request.member_id != UNKNOWN_MEMBER_ID:
        if existing is not None:
            context.coordinator.forget_group(request.group_id)
        return _refuse_join(context, request.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
    return _join_new_group(context, request)


def _join_new_group(context: Context, request: JoinGroupRequest) -> Result:
    """Create the group, replacing an empty one of another type if necessary, and write its record."""
    groups = context.coordinator.classic_groups
    replaced = context.group(request.group_id)
    tombstones = () if replaced is None else context.coordinator.rules_of(replaced).tombstones(context, replaced)
    group = LiveClassicGroup(request.group_id, current_state_timestamp_ms=context.now_ms)
    groups[request.group_id] = group
    _join_classic_group(context, request, group)

    def on_append(later: Context, error: Refused | None) -> None:
        if error is None:
            return
        if groups.get(request.group_id) is group:
            del groups[request.group_id]
        # Kafka leaves the timers, which may then affect the next group with this id.
        later.cancel(join_key(group.group_id))
        for member_id in (*group.members, *group.pending_join_members):
            later.cancel(heartbeat_key(group.group_id, member_id))
        for member in group.members.values():
            _complete_join(later, member, JoinGroupResponse(error_code=error.code))

    records = (*tombstones, empty_group_metadata_record(group, context.now_ms))
    return Result(records, on_append=on_append)


def _join_classic_group(context: Context, request: JoinGroupRequest, group: LiveClassicGroup) -> Result:
    if not _accepts_joining_member(context, group, request.member_id):
        group.remove(request.member_id)
        return _refuse_join(context, UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED)
    if group.state == DEAD:
        return _refuse_join(context, request.member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if not group.supports_protocols(request.protocol_type, [protocol.name for protocol in request.protocols]):
        return _refuse_join(context, request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if request.member_id == UNKNOWN_MEMBER_ID:
        return _join_new_member(context, request, group)
    return _join_existing_member(context, request, group)


def _accepts_joining_member(context: Context, group: LiveClassicGroup, member_id: str) -> bool:
    """Whether there is room. While members rejoin, only waiting members count, so the last to rejoin may find no
    room."""
    size_max = context.config.group_max_size
    if group.state in {EMPTY, DEAD}:
        return True
    member = group.members.get(member_id)
    if group.state == PREPARING_REBALANCE:
        return (member is not None and member.awaiting_join is not None) or group.awaiting_join_count < size_max
    return member is not None or len(group.members) < size_max


def _join_new_member(context: Context, request: JoinGroupRequest, group: LiveClassicGroup) -> Result:
    instance_id = request.group_instance_id
    name = context.client.client_id if instance_id is None else instance_id
    member_id = f"{name}-{context.new_uuid}"
    if instance_id is not None:
        old_member_id = group.static_members.get(instance_id)
        if old_member_id is not None:
            return _replace_static_member(context, request, group, old_member_id, member_id)
    elif context.api_version >= MEMBER_ID_REQUIRED_FROM_VERSION:
        group.pending_join_members.add(member_id)
        schedule_heartbeat(context, group, member_id, request.session_timeout_ms)
        return _refuse_join(context, member_id, ErrorCode.MEMBER_ID_REQUIRED)
    return _add_member(context, request, group, member_id)


def _join_existing_member(context: Context, request: JoinGroupRequest, group: LiveClassicGroup) -> Result:
    member_id = request.member_id
    if member_id in group.pending_join_members:
        if request.group_instance_id is not None:
            # Only dynamic members get an id with which to join again; Kafka fails here.
            return _refuse_join(context, member_id, ErrorCode.UNKNOWN_SERVER_ERROR)
        return _add_member(context, request, group, member_id)
    try:
        group.validate_member(member_id, request.group_instance_id)
    except Refused as refused:
        response = JoinGroupResponse(error_code=refused.code, member_id=member_id, protocol_name=None)
        context.complete(context.request_id, response)
        return NOTHING
    member = group.members[member_id]
    is_unchanged = member.protocols == _protocols(request)
    is_leader = group.leader == member_id
    must_rebalance = group.state == PREPARING_REBALANCE or not is_unchanged or (group.state == STABLE and is_leader)
    if must_rebalance:
        group.update_member(member, _protocols(request), request.rebalance_timeout_ms, request.session_timeout_ms)
        member.awaiting_join = context.request_id
        return _prepare_rebalance_or_complete_join(context, group)
    # The answer to its JoinGroup may have been lost: tell the member again what holds.
    context.complete(context.request_id, _join_response(group, member_id, is_leader=is_leader))
    return NOTHING


def _add_member(context: Context, request: JoinGroupRequest, group: LiveClassicGroup, member_id: str) -> Result:
    """Add a new member and start a rebalance for it."""
    member = LiveMember(
        member_id,
        request.group_instance_id,
        context.client.client_id,
        context.client.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        request.protocol_type,
        _protocols(request),
        is_new=True,
        awaiting_join=context.request_id,
    )
    if group.state == PREPARING_REBALANCE and group.previous_state == EMPTY:
        group.new_member_added = True
    group.add(member)
    # It cannot send heartbeats before it has its id, so its JoinGroup itself has a timeout.
    schedule_heartbeat(context, group, member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
    return _prepare_rebalance_or_complete_join(context, group)


def _replace_static_member(
    context: Context, request: JoinGroupRequest, group: LiveClassicGroup, old_member_id: str, member_id: str
) -> Result:
    """A static member is back under a new id. A Stable group whose protocol stays the same need not rebalance."""
    instance_id = group.members[old_member_id].group_instance_id
    assert instance_id is not None
    old_leader = group.leader
    old = group.members[old_member_id]
    fenced = ErrorCode.FENCED_INSTANCE_ID
    _complete_join(context, old, JoinGroupResponse(error_code=fenced, member_id=old_member_id, protocol_name=None))
    _complete_sync(context, old, SyncGroupResponse(error_code=fenced))
    member = group.replace_static_member(instance_id, old_member_id, member_id)
    schedule_heartbeat(context, group, member_id)
    before = replace(member)
    group.update_member(member, _protocols(request), request.rebalance_timeout_ms, request.session_timeout_ms)
    member.awaiting_join = context.request_id
    if group.state == COMPLETING_REBALANCE:
        # The leader may be computing an assignment for the old id.
        return prepare_rebalance(context, group)
    if group.state != STABLE:
        return _complete_join_phase_if_all_joined(context, group)
    if group.select_protocol() != group.protocol_name:
        return _prepare_rebalance_or_complete_join(context, group)
    api_version = context.api_version

    def on_append(later: Context, error: Refused | None) -> None:
        if error is not None:
            group.update_member(member, before.protocols, before.rebalance_timeout_ms, before.session_timeout_ms)
            member.awaiting_join = None
            group.replace_static_member(instance_id, member_id, old_member_id)
            schedule_heartbeat(later, group, old_member_id)
            response = _join_response(group, UNKNOWN_MEMBER_ID, is_leader=False)
            later.complete(context.request_id, replace(response, leader=old_leader, error_code=error.code))
        elif api_version >= SKIP_ASSIGNMENT_FROM_VERSION:
            is_leader = group.leader == member_id
            response = _join_response(group, member_id, is_leader=is_leader)
            _complete_join(later, member, replace(response, skip_assignment=is_leader))
        else:
            # An old client that is the leader would assign, so it gets the leader's old id.
            response = _join_response(group, member_id, is_leader=False)
            _complete_join(later, member, replace(response, leader=old_leader))

    assignment = {other.member_id: other.assignment for other in group.members.values()}
    return Result((group_metadata_record(group, assignment),), on_append=on_append)


# --- the join phase ---


def _prepare_rebalance_or_complete_join(context: Context, group: LiveClassicGroup) -> Result:
    if group.can_rebalance:
        return prepare_rebalance(context, group)
    return _complete_join_phase_if_all_joined(context, group)


def prepare_rebalance(context: Context, group: LiveClassicGroup) -> Result:
    """Start the join phase. A group's first one waits some time for others; any other ends once all members have
    joined.
    """
    if group.state == COMPLETING_REBALANCE:
        _reset_assignment(context, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync_members.clear()
    context.cancel(sync_key(group.group_id))
    is_initial = group.state == EMPTY
    group.transition_to(PREPARING_REBALANCE, context.now_ms)
    if is_initial:
        delay_ms = context.config.group_initial_rebalance_delay_ms
        remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        context.schedule(
            join_key(group.group_id), delay_ms, COMPLETE_INITIAL_JOIN, group.group_id, delay_ms, remaining_ms
        )
        return NOTHING
    if group.has_all_members_joined:
        return _complete_join_phase(context, group)
    context.schedule(join_key(group.group_id), group.rebalance_timeout_ms, COMPLETE_JOIN, group.group_id)
    return NOTHING


def _complete_join_phase_if_all_joined(context: Context, group: LiveClassicGroup) -> Result:
    is_initial = group.previous_state == EMPTY
    if group.state != PREPARING_REBALANCE or is_initial or not group.has_all_members_joined:
        return NOTHING
    return _complete_join_phase(context, group)


def _complete_initial_join(context: Context, group_id: str, delay_ms: int, remaining_ms: int) -> Result:
    """The delay of the first rebalance is over: wait again if members joined meanwhile and time is left."""
    group = _rebalancing_group(context, group_id)
    if group is None:
        return NOTHING
    if not group.new_member_added or remaining_ms == 0:
        return _complete_join_phase(context, group)
    group.new_member_added = False
    next_delay_ms = min(context.config.group_initial_rebalance_delay_ms, remaining_ms)
    next_remaining_ms = max(remaining_ms - delay_ms, 0)
    context.schedule(
        join_key(group_id), next_delay_ms, COMPLETE_INITIAL_JOIN, group_id, next_delay_ms, next_remaining_ms
    )
    return NOTHING


def _complete_join(context: Context, member: LiveMember, response: JoinGroupResponse) -> None:
    """Answer the member's JoinGroup, if one is waiting."""
    if member.awaiting_join is not None:
        waiting, member.awaiting_join = member.awaiting_join, None
        context.complete(waiting, response)


def _complete_join_timer(context: Context, group_id: str) -> Result:
    """Timer: end the join phase."""
    group = _rebalancing_group(context, group_id)
    return NOTHING if group is None else _complete_join_phase(context, group)


def _rebalancing_group(context: Context, group_id: str) -> LiveClassicGroup | None:
    """The group whose join phase a timer ends; None if it has another type by now, or was created again."""
    group = context.group(group_id)
    return group if isinstance(group, LiveClassicGroup) and group.state == PREPARING_REBALANCE else None


def _complete_join_phase(context: Context, group: LiveClassicGroup) -> Result:
    """End the join phase: members that have not joined are removed, except static ones, and a new generation begins."""
    context.cancel(join_key(group.group_id))
    for member in group.members_in_hash_order():
        if member.awaiting_join is None and member.group_instance_id is None:
            group.remove(member.member_id)
            context.cancel(heartbeat_key(group.group_id, member.member_id))
    if not group.elect_joined_leader() and group.members:
        # Only static members are left, and none has joined: wait until they join or their sessions expire.
        context.schedule(join_key(group.group_id), group.rebalance_timeout_ms, COMPLETE_JOIN, group.group_id)
        return NOTHING
    group.init_next_generation(context.now_ms)
    if group.state == EMPTY:
        return Result((group_metadata_record(group, {}),))
    for member in group.members_in_hash_order():
        response = _join_response(group, member.member_id, is_leader=group.leader == member.member_id)
        _complete_join(context, member, response)
        schedule_heartbeat(context, group, member.member_id)
        member.is_new = False
        group.pending_sync_members.add(member.member_id)
    context.schedule(
        sync_key(group.group_id), group.rebalance_timeout_ms, EXPIRE_SYNC, group.group_id, group.generation_id
    )
    return NOTHING


def _join_response(group: LiveClassicGroup, member_id: str, *, is_leader: bool) -> JoinGroupResponse:
    """The response for this generation; the leader gets all members."""
    members: tuple[JoinGroupResponseMember, ...] = ()
    if is_leader:
        members = tuple(
            JoinGroupResponseMember(member.member_id, member.group_instance_id, member.metadata(group.protocol_name))
            for member in group.members_in_hash_order()
        )
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader,
        member_id=member_id,
        members=members,
    )


def answer_all(context: Context, group: LiveClassicGroup, code: ErrorCode) -> None:
    """Answer all waiting requests with an error: the group is about to change its type."""
    for member in group.members_in_hash_order():
        _complete_join(context, member, JoinGroupResponse(error_code=code, member_id=member.member_id))
        _complete_sync(context, member, SyncGroupResponse(error_code=code))


def _refuse_join(context: Context, member_id: str, code: ErrorCode) -> Result:
    context.complete(context.request_id, JoinGroupResponse(error_code=code, member_id=member_id))
    return NOTHING


def _protocols(request: JoinGroupRequest) -> Protocols:
    return tuple((protocol.name, protocol.metadata) for protocol in request.protocols)


# --- SyncGroup ---


def sync_group(context: Context, request: SyncGroupRequest) -> Result:
    """SyncGroup. The response, also for errors, is sent by `Context.complete` (a SyncGroupResponse)."""
    group = context.group(request.group_id)
    if isinstance(group, ConsumerGroup) and group.members:
        return context.command(SYNC_CONSUMER_GROUP)(context, request)
    if not isinstance(group, LiveClassicGroup) or group.state == EMPTY:
        return _refuse_sync(context, ErrorCode.UNKNOWN_MEMBER_ID)
    try:
        _validate_sync(group, request)
    except Refused as refused:
        return _refuse_sync(context, refused.code)
    member = group.members[request.member_id]
    if group.state == PREPARING_REBALANCE:
        return _refuse_sync(context, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync_members.discard(member.member_id)
    if not group.pending_sync_members:
        context.cancel(sync_key(group.group_id))
    if group.state == STABLE:
        context.complete(context.request_id, _sync_response(group, member))
        return NOTHING
    member.awaiting_sync = context.request_id
    return _store_assignment(context, request, group) if group.leader == member.member_id else NOTHING


def _store_assignment(context: Context, request: SyncGroupRequest, group: LiveClassicGroup) -> Result:
    """Write the leader's assignment. Once it is in the log, the group is Stable and all waiting members are
    answered."""
    given = {assignment.member_id: assignment.assignment for assignment in request.assignments}
    assignment = {member_id: given.get(member_id, b"") for member_id in group.members}

    def on_append(later: Context, error: Refused | None) -> None:
        if group.state != COMPLETING_REBALANCE or group.generation_id != request.generation_id:
            return  # another rebalance began before the record was written, and answered the waiting members
        if error is not None:
            _reset_assignment(later, group, error.code)
            later.apply(_prepare_rebalance_or_complete_join(later, group))
            return
        for member in group.members.values():
            member.assignment = assignment.get(member.member_id, b"")
        _propagate_assignment(later, group, ErrorCode.NONE)
        group.transition_to(STABLE, later.now_ms)

    return Result((group_metadata_record(group, assignment),), on_append=on_append)


def _validate_sync(group: LiveClassicGroup, request: SyncGroupRequest) -> None:
    if group.state == DEAD:
        raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    group.validate_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation_id:
        raise Refused(ErrorCode.ILLEGAL_GENERATION)
    for asked, chosen in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if asked is not None and chosen is not None and asked != chosen:
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _refuse_sync(context: Context, code: ErrorCode) -> Result:
    context.complete(context.request_id, SyncGroupResponse(error_code=code))
    return NOTHING


def _sync_response(group: LiveClassicGroup, member: LiveMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def _complete_sync(context: Context, member: LiveMember, response: SyncGroupResponse) -> bool:
    """Answer the member's SyncGroup, if one is waiting. Returns whether it was."""
    if member.awaiting_sync is None:
        return False
    waiting, member.awaiting_sync = member.awaiting_sync, None
    context.complete(waiting, response)
    return True


def _reset_assignment(context: Context, group: LiveClassicGroup, code: ErrorCode) -> None:
    """Clear all assignments; members waiting for an assignment get the error."""
    for member in group.members.values():
        member.assignment = b""
    _propagate_assignment(context, group, code)


def _propagate_assignment(context: Context, group: LiveClassicGroup, code: ErrorCode) -> None:
    """Answer all requests waiting in the sync phase. Sessions restart: none expired while they waited."""
    for member in group.members_in_hash_order():
        response = _sync_response(group, member) if code == ErrorCode.NONE else SyncGroupResponse(error_code=code)
        if _complete_sync(context, member, response):
            schedule_heartbeat(context, group, member.member_id)


def _expire_sync(context: Context, group_id: str, generation_id: int) -> Result:
    """Timer: the sync phase is over. Members that have not synced are removed, and the rest rebalances."""
    group = context.group(group_id)
    if not isinstance(group, LiveClassicGroup) or group.generation_id != generation_id:
        # The group had another type meanwhile.
        return NOTHING
    for member_id in sorted(group.pending_sync_members):
        group.remove(member_id)
        context.cancel(heartbeat_key(group_id, member_id))
    return prepare_rebalance(context, group)


# --- Heartbeat ---


def heartbeat(context: Context, request: HeartbeatRequest) -> Result:
    """Heartbeat: restarts the session; the response says whether the member has to rejoin. Writes nothing."""
    group = context.group(request.group_id)
    if isinstance(group, ConsumerGroup):
        return context.command(HEARTBEAT_CONSUMER_GROUP)(context, request)
    if not isinstance(group, LiveClassicGroup):
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {request.group_id} not found.")
    if group.state == DEAD:
        raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    group.validate_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation_id:
        raise Refused(ErrorCode.ILLEGAL_GENERATION)
    schedule_heartbeat(context, group, request.member_id)
    is_rebalancing = group.state == PREPARING_REBALANCE
    code = ErrorCode.REBALANCE_IN_PROGRESS if is_rebalancing else ErrorCode.NONE
    return Result(response=HeartbeatResponse(error_code=code))


def _expire_heartbeat(context: Context, group_id: str, member_id: str) -> Result:
    """Timer: the member sent no heartbeat. It is removed, unless it is waiting for a response."""
    group = context.group(group_id)
    if not isinstance(group, LiveClassicGroup):
        return NOTHING
    if member_id in group.pending_join_members:
        group.remove(member_id)
        is_over = group.state == PREPARING_REBALANCE and group.has_all_members_joined
        return _complete_join_phase(context, group) if is_over else NOTHING
    member = group.members.get(member_id)
    if member is None or member.has_satisfied_heartbeat:
        return NOTHING
    _remove_member(context, group, member)
    if group.state in {STABLE, COMPLETING_REBALANCE}:
        return _prepare_rebalance_or_complete_join(context, group)
    is_over = group.state == PREPARING_REBALANCE and group.has_all_members_joined
    return _complete_join_phase(context, group) if is_over else NOTHING


def _remove_member(context: Context, group: LiveClassicGroup, member: LiveMember) -> None:
    """Remove a member. If it is still alive, the response to its JoinGroup lets it try again."""
    _complete_join(context, member, JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member.member_id)


# --- LeaveGroup ---


def leave_group(context: Context, request: LeaveGroupRequest) -> Result:
    """LeaveGroup: members are removed at once, and the others rebalance. A record is written only if no member is
    left."""
    group = context.group(request.group_id)
    if isinstance(group, ConsumerGroup):
        return context.command(LEAVE_CONSUMER_GROUP)(context, request)
    if not isinstance(group, LiveClassicGroup):
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {request.group_id} not found.")
    if group.state == DEAD:
        return Result(response=LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
    members = []
    for identity in request.members:
        code = ErrorCode.NONE
        try:
            _leave(context, group, identity.member_id, identity.group_instance_id)
        except Refused as refused:
            code = refused.code
        members.append(MemberResponse(identity.member_id, identity.group_instance_id, code))
    result = NOTHING
    if any(member.error_code == ErrorCode.NONE for member in members):
        if group.state in {STABLE, COMPLETING_REBALANCE}:
            result = _prepare_rebalance_or_complete_join(context, group)
        elif group.state == PREPARING_REBALANCE:
            result = _complete_join_phase_if_all_joined(context, group)
    return replace(result, response=LeaveGroupResponse(members=tuple(members)))


def _leave(context: Context, group: LiveClassicGroup, member_id: str, group_instance_id: str | None) -> None:
    if member_id == UNKNOWN_MEMBER_ID:
        # An admin removes a static member by its instance id.
        holder = None if group_instance_id is None else group.static_members.get(group_instance_id)
        if holder is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
        member_id = holder
    elif member_id in group.pending_join_members:
        group.remove(member_id)
        context.cancel(heartbeat_key(group.group_id, member_id))
        return
    else:
        group.validate_member(member_id, group_instance_id)
    context.cancel(heartbeat_key(group.group_id, member_id))
    _remove_member(context, group, group.members[member_id])


# --- loading ---


def on_loaded(context: Context) -> None:
    """Start a session for the members of loaded groups; rebalance a group that is too large now."""
    for group_id in sorted(context.coordinator.classic_groups):
        group = context.coordinator.classic_groups[group_id]
        for member in group.members_in_hash_order():
            schedule_heartbeat(context, group, member.member_id)
        if len(group.members) > context.config.group_max_size:
            context.apply(prepare_rebalance(context, group))


def on_unloaded(context: Context) -> None:
    """All groups become Dead, and waiting members have to find the new coordinator
    (GroupMetadataManager.onUnloaded)."""
    for group_id in sorted(context.coordinator.classic_groups):
        group = context.coordinator.classic_groups[group_id]
        group.transition_to(DEAD, context.now_ms)
        answer_all(context, group, ErrorCode.NOT_COORDINATOR)


MODULE: Final = GroupModule(
    "classic",
    commands={
        "classic_join": join_group,
        "classic_sync": sync_group,
        "classic_heartbeat": heartbeat,
        "classic_leave": leave_group,
    },
    timers={
        COMPLETE_JOIN: _complete_join_timer,
        COMPLETE_INITIAL_JOIN: _complete_initial_join,
        EXPIRE_SYNC: _expire_sync,
        EXPIRE_HEARTBEAT: _expire_heartbeat,
    },
    on_loaded=on_loaded,
    on_unloaded=on_unloaded,
    rules={LiveClassicGroup: ClassicGroupRules()},
)
