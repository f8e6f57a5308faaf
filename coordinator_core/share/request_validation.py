"""Checks of a share group's request before it reaches a coordinator partition (GroupCoordinatorService)."""

from coordinator_core.coordinator.errors import ErrorCode
from coordinator_core.member_epochs import JOIN_GROUP_MEMBER_EPOCH, LEAVE_GROUP_MEMBER_EPOCH
from coordinator_core.share.messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


def refused_heartbeat(request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse | None:
    """The response to an invalid heartbeat, or None (throwIfShareGroupHeartbeatRequestIsInvalid)."""
    is_joining = request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
    problems = {
        "MemberId can't be empty.": not request.member_id.strip(),
        "GroupId can't be empty.": not request.group_id.strip(),
        "RackId can't be empty.": request.rack_id is not None and not request.rack_id.strip(),
        "SubscribedTopicNames must be set in first request.": is_joining and not request.subscribed_topic_names,
        "MemberEpoch is invalid.": request.member_epoch < LEAVE_GROUP_MEMBER_EPOCH,
    }
    text = next((text for text, is_there in problems.items() if is_there), None)
    if text is None:
        return None
    return ShareGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=text)
