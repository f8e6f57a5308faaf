"""Replay of a classic group's record (GroupMetadataManager.replay of GroupMetadata): type 2."""

from immutables import Map

from coordinator_core.bytes.codec import Struct
from coordinator_core.replay.anomalies import CLASSIC_MEMBER_REPEATED, Anomaly, Report
from coordinator_core.replay.classic.state import ClassicGroup, ClassicMember

NO_TIMEOUT_MS = -1
"""Rebalance timeout in a value of version 0, which has no such field."""


def classic_group(group_id: str, value: Struct, report: Report) -> ClassicGroup:
    """The group in a GroupMetadataValue. The value is complete: members that are not in it are gone.

    A member without rebalance timeout gets its session timeout instead; an empty protocol type becomes None; the first
    member leads where the record has no leader (ClassicGroup.add). A repeated member id or group instance id makes
    Kafka throw; best effort keeps the last one.
    """
    members: dict[str, ClassicMember] = {}
    instance_ids: set[str] = set()
    for place, member in enumerate(value.members):
        instance_id = member.group_instance_id
        if member.member_id in members or instance_id in instance_ids:
            report(Anomaly(CLASSIC_MEMBER_REPEATED, f"member {member.member_id!r} is not the only one of its id"))
        if instance_id is not None:
            instance_ids.add(instance_id)
        members[member.member_id] = _member(member, place)
    leader = value.leader
    if leader is None and members:
        leader = value.members[0].member_id
    return ClassicGroup(
        group_id,
        value.generation,
        value.protocol_type or None,
        value.protocol,
        leader,
        value.current_state_timestamp,
        Map(members),
    )


def _member(member: Struct, place: int) -> ClassicMember:
    no_rebalance_timeout = member.rebalance_timeout == NO_TIMEOUT_MS
    return ClassicMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.session_timeout if no_rebalance_timeout else member.rebalance_timeout,
        member.session_timeout,
        member.subscription,
        member.assignment,
        place,
    )
