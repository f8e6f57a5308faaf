"""Checks before a request reaches a coordinator partition (GroupCoordinatorService).

The checks need only the settings. Kafka makes them on the broker that receives the request; commands rely on them.
"""

from typing import Any, Final

from coordinator_core.live.classic.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from coordinator_core.live.consumer.messages import ConsumerGroupHeartbeatRequest
from coordinator_core.live.consumer.request_validation import refused_heartbeat as refused_consumer_heartbeat
from coordinator_core.live.coordinator.config import GroupCoordinatorConfig
from coordinator_core.live.share.messages import ShareGroupHeartbeatRequest
from coordinator_core.live.share.request_validation import refused_heartbeat as refused_share_heartbeat
from coordinator_core.live.streams.messages import StreamsGroupHeartbeatRequest
from coordinator_core.live.streams.request_validation import refused_heartbeat as refused_streams_heartbeat
from schemas.error_codes import ErrorCode

CLASSIC_RESPONSES: Final[dict[type, Any]] = {
    SyncGroupRequest: SyncGroupResponse,
    HeartbeatRequest: HeartbeatResponse,
    LeaveGroupRequest: LeaveGroupResponse,
}


def refusal(request: Any, config: GroupCoordinatorConfig, *, api_version: int = -1) -> Any:
    """The response to an invalid request, which must not reach a coordinator, or None.

    Requests of members need a group id: the empty one is for stand-alone consumers that only commit. A session timeout
    must be within the broker's bounds.
    """
    if isinstance(request, JoinGroupRequest):
        code = _join_code(request, config)
        return None if code is None else JoinGroupResponse(error_code=code, member_id=request.member_id)
    if isinstance(request, ConsumerGroupHeartbeatRequest):
        return refused_consumer_heartbeat(request, config.group_consumer_assignors, api_version)
    if isinstance(request, ShareGroupHeartbeatRequest):
        return refused_share_heartbeat(request)
    if isinstance(request, StreamsGroupHeartbeatRequest):
        return refused_streams_heartbeat(request, config.kafka_version)
    response = CLASSIC_RESPONSES.get(type(request))
    if response is None or request.group_id:
        return None
    return response(error_code=ErrorCode.INVALID_GROUP_ID)


def _join_code(request: JoinGroupRequest, config: GroupCoordinatorConfig) -> ErrorCode | None:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    longest_ms, shortest_ms = config.group_max_session_timeout_ms, config.group_min_session_timeout_ms
    is_allowed = shortest_ms <= request.session_timeout_ms <= longest_ms
    return None if is_allowed else ErrorCode.INVALID_SESSION_TIMEOUT
