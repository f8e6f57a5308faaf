"""The operations of share groups, as the live group coordinator serves them (KIP-932)."""

from typing import Final

from coordinator_core.live.coordinator.group_module import GroupModule
from coordinator_core.live.coordinator.member_timers import timers_of
from coordinator_core.live.share.heartbeat import TYPE_NAME, fence, on_loaded, share_group_heartbeat
from coordinator_core.live.share.live import on_metadata
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
from coordinator_core.replay.share.state import ShareGroup

MODULE: Final = GroupModule(
    "share",
    commands={
        "share_group_heartbeat": share_group_heartbeat,
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
