"""Tests of what is checked before a request reaches a coordinator."""

from typing import Any

import pytest

from coordinator_core.live.classic.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from coordinator_core.live.coordinator.config import GroupCoordinatorConfig
from coordinator_core.live.coordinator.service import refusal
from schemas.error_codes import ErrorCode

CONFIG = GroupCoordinatorConfig()


def join(group_id: str = "g", session_timeout_ms: int = 6000) -> JoinGroupRequest:
    return JoinGroupRequest(group_id, session_timeout_ms, 1, "m", "consumer", ())


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (join(group_id=""), ErrorCode.INVALID_GROUP_ID),
        (join(session_timeout_ms=5999), ErrorCode.INVALID_SESSION_TIMEOUT),
        (join(session_timeout_ms=1_800_001), ErrorCode.INVALID_SESSION_TIMEOUT),
        (SyncGroupRequest("", 1, "m"), ErrorCode.INVALID_GROUP_ID),
        (HeartbeatRequest("", 1, "m"), ErrorCode.INVALID_GROUP_ID),
        (LeaveGroupRequest("", ()), ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_what_no_coordinator_is_to_see(request_: Any, code: ErrorCode) -> None:
    """It is answered at once, in the response of its kind."""
    assert refusal(request_, CONFIG).error_code == code
