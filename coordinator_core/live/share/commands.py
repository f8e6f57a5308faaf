"""The operations of share groups, as the live group coordinator serves them (KIP-932)."""

from typing import Final

from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.group_module import GroupModule
from coordinator_core.live.coordinator.image import MetadataImage
from coordinator_core.live.coordinator.member_timers import timers_of
from coordinator_core.live.coordinator.modern_messages import DescribedGroup
from coordinator_core.live.coordinator.modern_rules import described_assignment, group_of
from coordinator_core.live.coordinator.operation import Context, Result
from coordinator_core.live.share.heartbeat import TYPE_NAME, fence, on_loaded, share_group_heartbeat
from coordinator_core.live.share.live import on_metadata
from coordinator_core.live.share.messages import DescribedShareMember
from coordinator_core.live.share.offsets import (
    alter_share_group_offsets,
    complete_delete_share_group_offsets,
    initiate_delete_share_group_offsets,
)
from coordinator_core.live.share.partitions import (
    initialize_share_group_state,
    initialized_share_group_partitions,
    maybe_cleanup_share_group_state,
    share_partition_delete_requests,
    uninitialize_share_group_state,
)
from coordinator_core.live.share.rules import ShareGroupRules
from coordinator_core.replay.share.state import ShareGroup, ShareMember
from schemas.error_codes import ErrorCode

ASSIGNOR_NAME: Final = "simple"
"""The only assignor of share groups; `group.share.assignors` may name another one, which is unknown here."""


def share_group_describe(context: Context, group_ids: tuple[str, ...]) -> Result:
    """ShareGroupDescribe: a tuple of DescribedGroup. Groups of other types are not found."""
    return Result(response=tuple(_described(context, group_id) for group_id in group_ids))


def _described(context: Context, group_id: str) -> DescribedGroup:
    try:
        group = group_of(context, group_id, ShareGroup, "share")
    except Refused as refused:
        return DescribedGroup(group_id, ErrorCode.GROUP_ID_NOT_FOUND, refused.message)
    return DescribedGroup(
        group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR_NAME,
        members=tuple(_described_member(context.image, member) for member in group.members_in_table_order()),
    )


def _described_member(image: MetadataImage, member: ShareMember) -> DescribedShareMember:
    return DescribedShareMember(
        member.member_id,
        member.rack_id,
        member.member_epoch,
        member.client_id,
        member.client_host,
        member.subscribed_topic_names,
        described_assignment(image, (member.assigned,)),
    )


MODULE: Final = GroupModule(
    "share",
    commands={
        "share_group_heartbeat": share_group_heartbeat,
        "share_group_describe": share_group_describe,
        "initialize_share_group_state": initialize_share_group_state,
        "uninitialize_share_group_state": uninitialize_share_group_state,
        "initialized_share_group_partitions": initialized_share_group_partitions,
        "share_partition_delete_requests": share_partition_delete_requests,
        "maybe_cleanup_share_group_state": maybe_cleanup_share_group_state,
        "alter_share_group_offsets": alter_share_group_offsets,
        "initiate_delete_share_group_offsets": initiate_delete_share_group_offsets,
        "complete_delete_share_group_offsets": complete_delete_share_group_offsets,
    },
    timers=timers_of(TYPE_NAME, ShareGroup, fence),
    on_loaded=on_loaded,
    on_metadata=on_metadata,
    rules={ShareGroup: ShareGroupRules()},
)
