"""Classic groups (JoinGroup, SyncGroup): record type 2, the whole group in one record."""

from typing import Final

from schemas.consumer_offsets import RecordType
from schemas.consumer_offsets.common import record_key, record_value
from schemas.wire import Array, Bytes, Field, Int32, Int64, String, Struct

GROUP_METADATA_KEY: Final = record_key(RecordType.GROUP_METADATA, Field("group", String, about="The group."))

MEMBER_METADATA: Final = Struct(
    "MemberMetadata",
    (
        Field("member_id", String, about="The member."),
        Field(
            "group_instance_id",
            String,
            versions="3+",
            nullable="3+",
            default=None,
            ignorable=True,
            about="group.instance.id, null for a dynamic member.",
        ),
        Field("client_id", String, about="client.id of the client."),
        Field("client_host", String, about="Address the client connected from."),
        Field(
            "rebalance_timeout",
            Int32,
            versions="1+",
            default=-1,
            ignorable=True,
            about="How long the member may take to rejoin, in milliseconds; -1: its session timeout.",
        ),
        Field("session_timeout", Int32, about="In milliseconds."),
        Field("subscription", Bytes, about="Its JoinGroup metadata for the chosen protocol."),
        Field("assignment", Bytes, about="What SyncGroup gave the member, in the format of its protocol type."),
    ),
)

GROUP_METADATA_VALUE: Final = record_value(
    RecordType.GROUP_METADATA,
    Field("protocol_type", String, about="consumer, connect, or empty for a group without members so far."),
    Field("generation", Int32, about="Generation id."),
    Field("protocol", String, nullable="0+", about="Chosen protocol, null while there is none."),
    Field("leader", String, nullable="0+", about="Member id of the leader."),
    Field(
        "current_state_timestamp",
        Int64,
        versions="2+",
        default=-1,
        ignorable=True,
        about="When the group entered its state, epoch milliseconds.",
    ),
    Field("members", Array(MEMBER_METADATA), about="All members; none means Empty."),
    versions="0-4",
    flexible="4+",
)
