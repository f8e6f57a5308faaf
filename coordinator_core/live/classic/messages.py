"""Requests and responses of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Field names and defaults are Kafka's (JoinGroupRequest.json and similar files). Times in milliseconds.
"""

from dataclasses import dataclass

NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class Response:
    """What most responses begin with."""

    throttle_time_ms: int = 0
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class JoinProtocol:
    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroupRequest:
    """`member_id` is empty if the member has none yet."""

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    protocol_type: str
    protocols: tuple[JoinProtocol, ...]
    group_instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class JoinGroupResponseMember:
    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroupResponse(Response):
    """`members` is only for the leader. `skip_assignment`: the leader need not assign, the current assignment stays."""

    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = ""
    leader: str | None = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: tuple[JoinGroupResponseMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncGroupRequestAssignment:
    member_id: str
    assignment: bytes


@dataclass(frozen=True, slots=True)
class SyncGroupRequest:
    """`protocol_type` and `protocol_name` are checked only if given."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[SyncGroupRequestAssignment, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncGroupResponse(Response):
    """The member's assignment."""

    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """A member's sign of life."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatResponse(Response):
    """`error_code` REBALANCE_IN_PROGRESS asks the member to rejoin."""


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """The member that leaves: by member id, or by group instance id with an empty member id."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroupRequest:
    group_id: str
    members: tuple[MemberIdentity, ...]


@dataclass(frozen=True, slots=True)
class MemberResponse:
    member_id: str
    group_instance_id: str | None
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class LeaveGroupResponse(Response):
    """One entry for each member, in the order of the request."""

    members: tuple[MemberResponse, ...] = ()
