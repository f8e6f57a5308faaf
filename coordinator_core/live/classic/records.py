"""The record that a classic group writes: GroupMetadata, type 2 (GroupCoordinatorRecordHelpers)."""

from collections.abc import Mapping
from typing import Final

from coordinator_core.bytes.codec import Struct, make
from coordinator_core.live.classic.live import LiveClassicGroup
from coordinator_core.live.coordinator.records import CoordinatorRecord
from schemas.consumer_offsets import RecordType
from schemas.consumer_offsets.classic import GROUP_METADATA_KEY, GROUP_METADATA_VALUE, MEMBER_METADATA

GROUP_METADATA_VALUE_VERSION: Final = 3
"""The version that Kafka 4.3 writes."""


def group_metadata_record(group: LiveClassicGroup, assignment: Mapping[str, bytes]) -> CoordinatorRecord:
    """The whole group, with each member's assignment; members without one get none."""
    value = make(
        GROUP_METADATA_VALUE,
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader,
        current_state_timestamp=-1 if group.current_state_timestamp_ms is None else group.current_state_timestamp_ms,
        members=[
            make(
                MEMBER_METADATA,
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name),
                assignment=assignment.get(member.member_id, b""),
            )
            for member in group.members_in_hash_order()
        ],
    )
    return _record(group.group_id, value)


def empty_group_metadata_record(group: LiveClassicGroup, now_ms: int) -> CoordinatorRecord:
    """A new group: generation 0, without members and protocol."""
    return _record(
        group.group_id, make(GROUP_METADATA_VALUE, protocol=None, leader=None, current_state_timestamp=now_ms)
    )


def group_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    return _record(group_id, None)


def _record(group_id: str, value: Struct | None) -> CoordinatorRecord:
    key = make(GROUP_METADATA_KEY, group=group_id)
    return CoordinatorRecord(RecordType.GROUP_METADATA, key, value, GROUP_METADATA_VALUE_VERSION)
