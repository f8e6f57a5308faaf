"""Tests of what is checked of a consumer group's heartbeat before it reaches a coordinator."""

from dataclasses import replace
from typing import Any

import pytest

from coordinator_core.live.consumer.messages import ConsumerGroupHeartbeatRequest
from coordinator_core.live.coordinator.config import GroupCoordinatorConfig
from coordinator_core.live.coordinator.modern_messages import TopicPartitions
from coordinator_core.live.coordinator.service import refusal
from schemas.error_codes import ErrorCode

CONFIG = GroupCoordinatorConfig()
JOIN = ConsumerGroupHeartbeatRequest(
    "g", "m", 0, rebalance_timeout_ms=1000, subscribed_topic_names=(), topic_partitions=()
)
OWNED = (TopicPartitions("A" * 22, (0,)),)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"member_id": " ", "member_epoch": 3}, "MemberId can't be empty."),
        ({"member_id": "", "member_epoch": -1}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"instance_id": " "}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"topic_partitions": OWNED}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
    ],
)
def test_invalid_heartbeats_are_reported_what_is_wrong(changes: dict[str, Any], text: str) -> None:
    """In Kafka's words, as INVALID_REQUEST."""
    response = refusal(replace(JOIN, **changes), CONFIG)
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, text)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"member_id": ""},
        {"subscribed_topic_names": None, "subscribed_topic_regex": ""},
        {"server_assignor": "range"},
        {"member_epoch": 3, "topic_partitions": OWNED, "rebalance_timeout_ms": -1, "subscribed_topic_names": None},
        {"member_epoch": -1, "topic_partitions": None},
        {"member_epoch": -2, "instance_id": "i"},
    ],
)
def test_everything_else_passes(changes: dict[str, Any]) -> None:
    """An old version's member has no id yet; who reads nothing may join."""
    assert refusal(replace(JOIN, **changes), CONFIG) is None


def test_members_make_their_ids_from_version_1() -> None:
    """KIP-1082: joining without a member id is for version 0 only."""
    assert refusal(replace(JOIN, member_id=""), CONFIG, api_version=0) is None
    response = refusal(replace(JOIN, member_id=""), CONFIG, api_version=1)
    assert response.error_message == "MemberId can't be empty."


def test_assignors_are_those_of_the_broker() -> None:
    """One which the broker does not have is refused with those which it has."""
    response = refusal(replace(JOIN, server_assignor="x"), CONFIG)
    assert response.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert response.error_message == "ServerAssignor x is not supported. Supported assignors: uniform, range."
