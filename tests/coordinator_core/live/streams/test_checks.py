"""What is wrong with a heartbeat whatever the state of the group."""

from dataclasses import replace
from typing import Any

import pytest

from coordinator_core.live.coordinator.config import GroupCoordinatorConfig
from coordinator_core.live.coordinator.service import refusal
from coordinator_core.live.streams.messages import (
    RequestSubtopology,
    RequestTopology,
    StreamsGroupHeartbeatRequest,
    TaskIds,
    TaskOffset,
    TopicInfo,
)
from schemas.error_codes import ErrorCode

OWNED = (TaskIds("0", (0,)),)
JOINING = StreamsGroupHeartbeatRequest(
    "g",
    "m",
    0,
    rebalance_timeout_ms=1,
    topology=RequestTopology(0, (RequestSubtopology("0", ("in",)),)),
    active_tasks=(),
    standby_tasks=(),
    warmup_tasks=(),
)
STEADY = StreamsGroupHeartbeatRequest("g", "m", 3)
FIXED_CHANGELOG = RequestSubtopology("0", ("in",), state_changelog_topics=(TopicInfo("log", 2),))


def test_good_heartbeats_pass() -> None:
    """Joining, beating with and without tasks, leaving."""
    owning = replace(STEADY, active_tasks=OWNED, standby_tasks=(), warmup_tasks=())
    for request in (JOINING, STEADY, owning, replace(STEADY, member_epoch=-1)):
        assert refusal(request, GroupCoordinatorConfig()) is None


@pytest.mark.parametrize(
    ("request_", "changes", "text"),
    [
        (STEADY, {"instance_id": "i"}, "Static membership is not yet supported."),
        (STEADY, {"task_offsets": (TaskOffset("0", 0, 1),)}, "TaskOffsets are not supported yet."),
        (STEADY, {"task_end_offsets": ()}, "TaskEndOffsets are not supported yet."),
        (STEADY, {"warmup_tasks": OWNED}, "WarmupTasks are not supported yet."),
        (
            JOINING,
            {"topology": RequestTopology(0, (RequestSubtopology("0", source_topic_regex=("i.*",)),))},
            "Regular expressions for source topics are not supported yet.",
        ),
        (STEADY, {"member_id": " "}, "MemberId can't be empty."),
        (STEADY, {"group_id": ""}, "GroupId can't be empty."),
        (STEADY, {"rack_id": ""}, "RackId can't be empty."),
        (JOINING, {"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        (JOINING, {"active_tasks": None}, "ActiveTasks must be empty when (re-)joining."),
        (JOINING, {"standby_tasks": OWNED}, "StandbyTasks must be empty when (re-)joining."),
        (JOINING, {"warmup_tasks": None}, "WarmupTasks must be empty when (re-)joining."),
        (JOINING, {"topology": None}, "Topology must be non-null when (re-)joining."),
        (
            JOINING,
            {"topology": RequestTopology(0, (FIXED_CHANGELOG,))},
            "Changelog topic log must have an undefined partition count, but it is set to 2.",
        ),
        (STEADY, {"member_epoch": -2}, "InstanceId can't be null."),
        (STEADY, {"member_epoch": -3}, "MemberEpoch is -3, but must be greater than or equal to -2."),
        (STEADY, {"active_tasks": OWNED}, "If one task-type is non-null, all must be non-null."),
        (STEADY, {"topology": RequestTopology()}, "Topology can only be provided when (re-)joining."),
    ],
)
def test_what_is_wrong_is_reported(request_: StreamsGroupHeartbeatRequest, changes: dict[str, Any], text: str) -> None:
    """Word for word as Kafka does; a topology has an error of its own."""
    response = refusal(replace(request_, **changes), GroupCoordinatorConfig())
    is_of_topology = text.startswith("Changelog")
    code = ErrorCode.STREAMS_INVALID_TOPOLOGY if is_of_topology else ErrorCode.INVALID_REQUEST
    assert (response.error_code, response.error_message) == (code, text)


def test_the_first_problem_is_reported() -> None:
    """In Kafka's order: what is not supported, ids, what joining needs."""
    request = replace(JOINING, member_id="", rebalance_timeout_ms=-1)
    assert refusal(request, GroupCoordinatorConfig()).error_message == "MemberId can't be empty."
