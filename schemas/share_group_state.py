"""The topic `__share_group_state` (KIP-932): delivery states of each share partition."""

from enum import IntEnum
from typing import Final

from schemas.wire import Array, Field, Int8, Int16, Int32, Int64, Message, Prefix, Role, String, Struct, Uuid

TOPIC: Final = "__share_group_state"


class ShareStateRecordType(IntEnum):
    """The first two bytes of a key (the share coordinator's CoordinatorRecordType)."""

    SHARE_SNAPSHOT = 0
    SHARE_UPDATE = 1


SHARE_SNAPSHOT_KEY: Final = Message(
    "ShareSnapshotKey",
    Role.KEY,
    Prefix.RECORD_TYPE,
    versions="0",
    topic=TOPIC,
    record_type=ShareStateRecordType.SHARE_SNAPSHOT,
    fields=(
        Field("group_id", String, about="The group."),
        Field("topic_id", Uuid, about="Id of the topic."),
        Field("partition", Int32, about="Partition of that topic."),
    ),
)

STATE_BATCH: Final = Struct(
    "StateBatch",
    (
        Field("first_offset", Int64, about="First offset of the batch."),
        Field("last_offset", Int64, about="Last offset of the batch, inclusive."),
        Field("delivery_state", Int8, about="0 available, 1 acquired, 2 acknowledged, 4 archived."),
        Field("delivery_count", Int16, about="How many times the records were delivered."),
    ),
)

SHARE_SNAPSHOT_VALUE: Final = Message(
    "ShareSnapshotValue",
    Role.VALUE,
    Prefix.VERSION,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=ShareStateRecordType.SHARE_SNAPSHOT,
    fields=(
        Field("snapshot_epoch", Int32, about="Number of this snapshot, one up with each."),
        Field("state_epoch", Int32, about="Raised with each initialization, which fences older writers."),
        Field("leader_epoch", Int32, about="Leader epoch of the share partition's leader."),
        Field("start_offset", Int64, about="First offset in flight (SPSO), -1 not initialized."),
        Field(
            "delivery_complete_count",
            Int32,
            tag=0,
            tagged="0+",
            default=-1,
            about="Records at or above the start offset whose delivery is over; -1 unknown.",
        ),
        Field(
            "create_timestamp",
            Int64,
            about="When the first snapshot of the share partition was made, epoch milliseconds.",
        ),
        Field("write_timestamp", Int64, about="When this snapshot was made, epoch milliseconds."),
        Field("state_batches", Array(STATE_BATCH), about="State of all offsets in flight."),
    ),
)

SHARE_UPDATE_KEY: Final = Message(
    "ShareUpdateKey",
    Role.KEY,
    Prefix.RECORD_TYPE,
    versions="0",
    topic=TOPIC,
    record_type=ShareStateRecordType.SHARE_UPDATE,
    fields=(
        Field("group_id", String, about="The group."),
        Field("topic_id", Uuid, about="Id of the topic."),
        Field("partition", Int32, about="Partition of that topic."),
    ),
)

SHARE_UPDATE_VALUE: Final = Message(
    "ShareUpdateValue",
    Role.VALUE,
    Prefix.VERSION,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=ShareStateRecordType.SHARE_UPDATE,
    fields=(
        Field("snapshot_epoch", Int32, about="The snapshot which this updates."),
        Field("leader_epoch", Int32, about="Leader epoch of the share partition's leader."),
        Field("start_offset", Int64, about="First offset in flight (SPSO), -1 when unchanged."),
        Field(
            "delivery_complete_count",
            Int32,
            tag=0,
            tagged="0+",
            default=-1,
            about="Records at or above the start offset whose delivery is over; -1 unknown.",
        ),
        Field("state_batches", Array(STATE_BATCH), about="Batches which changed since the record before."),
    ),
)
