"""Checks of a share group's request before it reaches a coordinator partition (GroupCoordinatorService)."""

from coordinator_core.live.coordinator.modern_messages import empty_ids, first_text
from coordinator_core.live.share.messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from coordinator_core.replay.member_epochs import JOIN_GROUP_MEMBER_EPOCH, LEAVE_GROUP_MEMBER_EPOCH
from schemas.error_codes import ErrorCode


def refused_heartbeat(request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse | None:
    """The response to an invalid heartbeat, or None (throwIfShareGroupHeartbeatRequestIsInvalid)."""
    is_joining = request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
    text = first_text(
        [
            *empty_ids(MemberId=request.member_id, GroupId=request.group_id, RackId=request.rack_id),
            (is_joining and not request.subscribed_topic_names, "SubscribedTopicNames must be set in first request."),
            (request.member_epoch < LEAVE_GROUP_MEMBER_EPOCH, "MemberEpoch is invalid."),
        ]
    )
    if text is None:
        return None
    return ShareGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=text)
