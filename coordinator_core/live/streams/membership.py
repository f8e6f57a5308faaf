"""Members of streams groups that leave, or that the coordinator removes."""

from typing import Final

from msgspec.structs import replace

from coordinator_core.bytes.kafka_versions import Since
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.member_timers import cancel_member
from coordinator_core.live.coordinator.modern_rules import group_of, last_epoch, member_of, static_member_of
from coordinator_core.live.coordinator.operation import Context, Result
from coordinator_core.live.coordinator.records import member_tombstones
from coordinator_core.live.streams.live import LiveStreamsGroups
from coordinator_core.live.streams.messages import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from coordinator_core.live.streams.records import current_assignment_record, group_metadata_record
from coordinator_core.replay.member_epochs import LEAVE_GROUP_STATIC_MEMBER_EPOCH
from coordinator_core.replay.record_families import STREAMS
from coordinator_core.replay.streams.state import StreamsGroup, StreamsMember
from schemas.error_codes import ErrorCode

LAG_FROM_VERSION: Final = 1
"""StreamsGroupHeartbeat: from this version on it has an acceptable recovery lag that is used, and
MISSING_CLIENT_TAGS."""

NO_LAG: Final = -1
"""Acceptable recovery lag in a response to a leaving member."""


def leave(context: Context, request: StreamsGroupHeartbeatRequest) -> Result:
    """The heartbeat of a member that leaves, permanently or temporarily."""
    group = group_of(context, request.group_id, StreamsGroup, "streams")
    if request.shutdown_application:
        context.live(LiveStreamsGroups).get(group).request_shutdown(group, request.member_id)
    has_lag = Since.STREAMS_TASK_OFFSETS.holds_in(context.config.kafka_version)
    response = StreamsGroupHeartbeatResponse(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        acceptable_recovery_lag=NO_LAG if has_lag and context.api_version >= LAG_FROM_VERSION else 0,
    )
    if request.instance_id is None:
        return fence(context, group, member_of(group, request.member_id), response)
    if not Since.STREAMS_HAVE_STATIC_MEMBERS.holds_in(context.config.kafka_version):
        # Kafka throws UnsupportedOperationException.
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "Static members are not supported in streams groups.")
    member = static_member_of(group, request.member_id, request.instance_id)
    if request.member_epoch != LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        return fence(context, group, member, response)
    away = replace(
        member,
        member_epoch=LEAVE_GROUP_STATIC_MEMBER_EPOCH,
        active={subtopology_id: dict.fromkeys(epochs, 0) for subtopology_id, epochs in member.active.items()},
        active_pending_revocation={},
        standby_pending_revocation={},
        warmup_pending_revocation={},
    )
    return Result((current_assignment_record(group.group_id, away),), response)


def fence(
    context: Context, group: StreamsGroup, member: StreamsMember, response: StreamsGroupHeartbeatResponse | None = None
) -> Result:
    """Remove a member, so that others get its tasks (streamsGroupFenceMember)."""
    group_id, group_epoch = group.group_id, group.group_epoch + 1
    records = [
        *member_tombstones(STREAMS.of_member, group_id, [member.member_id]),
        group_metadata_record(
            group,
            group_epoch,
            group.metadata_hash,
            group.validated_topology_epoch,
            group.last_assignment_configs,
        ),
        *last_epoch(context, STREAMS, group, group_epoch, leaving_count=1),
    ]
    cancel_member(context, group_id, member.member_id)
    context.live(LiveStreamsGroups).get(group).task_offsets.pop(member.member_id, None)
    return Result(tuple(records), response)
