"""Tests of what the frame brings along: messages, settings, topics, errors, hash order."""

import pickle
from typing import Any

import pytest

from coordinator_core.errors import UnknownSetting
from coordinator_core.live.classic.messages import JoinGroupRequest, JoinGroupResponse, JoinProtocol
from coordinator_core.live.coordinator.config import GroupCoordinatorConfig, config_of
from coordinator_core.live.coordinator.errors import Refused, answer_for_append_error
from schemas.error_codes import ErrorCode
from tests.message_json import InvalidMessage, camel_case, json_of, message_of

JOIN: dict[str, Any] = {
    "groupId": "g",
    "sessionTimeoutMs": 1,
    "rebalanceTimeoutMs": 2,
    "memberId": "",
    "protocolType": "consumer",
    "protocols": [{"name": "range", "metadata": "AAE="}],
    "aFieldOfALaterVersion": 5,
}


def test_requests_are_read_from_kafkas_json() -> None:
    """Nested structs, bytes as base64, defaults for what is absent; what is not known is passed over."""
    request = message_of(JoinGroupRequest, JOIN)
    assert request.protocols == (JoinProtocol("range", b"\x00\x01"),)
    assert request.group_instance_id is None
    assert message_of(JoinGroupRequest, {**JOIN, "groupInstanceId": "i"}).group_instance_id == "i"
    assert message_of(JoinGroupRequest, {**JOIN, "groupInstanceId": None}).group_instance_id is None


@pytest.mark.parametrize(
    "change",
    [{"protocols": 5}, {"protocols": None}, {"protocols": [{"name": "x", "metadata": "?"}]}, {"protocols": [{}]}],
)
def test_what_is_not_the_messages_json_is_an_error(change: dict[str, Any]) -> None:
    """Wrong kinds, nulls, broken base64, fields that are missing."""
    with pytest.raises(InvalidMessage):
        message_of(JoinGroupRequest, {**JOIN, **change})


def test_responses_are_written_as_kafkas_json() -> None:
    """With all fields, in camel case."""
    node = json_of(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    assert node["errorCode"] == 25
    assert type(node["errorCode"]) is int
    assert node["skipAssignment"] is False
    assert json_of((b"\x00\x01", {5: None})) == ["AAE=", {"5": None}]
    assert camel_case("current_state_timestamp_ms") == "currentStateTimestampMs"


def test_settings_are_kafkas_properties() -> None:
    """Text or JSON; all others are at Kafka's defaults."""
    config = config_of(
        {
            "group.max.size": "7",
            "group.consumer.assignor.offload.enable": False,
            "group.consumer.assignors": "range, uniform",
            "group.consumer.migration.policy": "disabled",
            "offsets.retention.minutes": 2,
        }
    )
    assert config.group_max_size == 7
    assert config.group_consumer_assignor_offload_enable is False
    assert config.group_consumer_assignors == ("range", "uniform")
    assert config.group_consumer_migration_policy == "disabled"
    assert config.offsets_retention_ms == 120_000
    assert config_of({"group.share.assignors": ["simple"]}) == GroupCoordinatorConfig()


@pytest.mark.parametrize(
    "properties", [{"no.such.setting": 1}, {"group.max.size": "many"}, {"group.share.assignor.offload.enable": "maybe"}]
)
def test_wrong_settings_are_refused(properties: dict[str, Any]) -> None:
    """A name that nobody reads may be a slip of the pen."""
    with pytest.raises(UnknownSetting):
        config_of(properties)


def test_errors_travel() -> None:
    """Refusals keep code and message; the log's errors are translated, all others stay as they are."""
    refused = pickle.loads(pickle.dumps(Refused(ErrorCode.ILLEGAL_GENERATION)))
    assert (refused.code, refused.message) == (
        ErrorCode.ILLEGAL_GENERATION,
        "Specified group generation id is not valid.",
    )
    assert answer_for_append_error(ErrorCode.KAFKA_STORAGE_ERROR) == ErrorCode.NOT_COORDINATOR
    assert answer_for_append_error(ErrorCode.INVALID_RECORD) == ErrorCode.INVALID_RECORD
