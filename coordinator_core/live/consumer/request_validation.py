"""Checks of a heartbeat before it reaches a coordinator partition (GroupCoordinatorService).

Problems are checked in Kafka's order; the first one is reported.
"""

from collections.abc import Iterator
from typing import Final

from coordinator_core.live.consumer.messages import ConsumerGroupHeartbeatRequest
from coordinator_core.live.coordinator.modern_messages import HeartbeatResponse, Problem, empty_ids, first_text
from coordinator_core.replay.member_epochs import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
)
from schemas.error_codes import ErrorCode

MEMBER_ID_REQUIRED_FROM_VERSION: Final = 1
"""Members generate their own ids from this version on (KIP-1082)."""


def refused_heartbeat(
    request: ConsumerGroupHeartbeatRequest, assignors: tuple[str, ...], api_version: int
) -> HeartbeatResponse | None:
    """The response to an invalid heartbeat, or None (throwIfConsumerGroupHeartbeatRequestIsInvalid).

    `assignors`: those of group.consumer.assignors. `api_version`: that of the request.
    """
    for problems in (_of_ids(request, api_version), _of_epoch(request)):
        text = first_text(problems)
        if text is not None:
            return HeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=text)
    if request.server_assignor is None or request.server_assignor in assignors:
        return None
    text = f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}."
    return HeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_ASSIGNOR, error_message=text)


def _of_ids(request: ConsumerGroupHeartbeatRequest, api_version: int) -> Iterator[Problem]:
    needs_member_id = (
        api_version >= MEMBER_ID_REQUIRED_FROM_VERSION
        or request.member_epoch > JOIN_GROUP_MEMBER_EPOCH
        or request.member_epoch == LEAVE_GROUP_MEMBER_EPOCH
    )
    yield needs_member_id and not request.member_id.strip(), "MemberId can't be empty."
    yield from empty_ids(GroupId=request.group_id, InstanceId=request.instance_id, RackId=request.rack_id)


def _of_epoch(request: ConsumerGroupHeartbeatRequest) -> Iterator[Problem]:
    """A joining member has to send all fields. An empty list of names or an empty pattern is valid: a member may read
    nothing.
    """
    is_joining = request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
    has_subscription = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    yield is_joining and request.rebalance_timeout_ms == -1, "RebalanceTimeoutMs must be provided in first request."
    yield is_joining and request.topic_partitions != (), "TopicPartitions must be empty when (re-)joining."
    yield (
        is_joining and not has_subscription,
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    )
    yield (
        request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH and request.instance_id is None,
        "InstanceId can't be null.",
    )
    yield request.member_epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH, "MemberEpoch is invalid."
