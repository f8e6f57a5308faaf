"""The topic `__share_group_state` (KIP-932): delivery states of each share partition."""

from enum import IntEnum
from typing import Final

from schemas.wire import Array, Field, Int8, Int16, Int32, Int64, String, Struct, Uuid, record_key, record_value

TOPIC: Final = "__share_group_state"


class ShareStateRecordType(IntEnum):
    """The first two bytes of a key (the share coordinator's CoordinatorRecordType)."""

    SHARE_SNAPSHOT = 0
    SHARE_UPDATE = 1


SHARE_PARTITION: Final = (
    Field("group_id", String, about="The group."),
    Field("topic_id", Uuid, about="Id of the topic."),
    Field("partition", Int32, about="Partition of that topic."),
)
LEADER_EPOCH: Final = Field("leader_epoch", Int32, about="Leader epoch of the share partition's leader.")
DELIVERY_COMPLETE_COUNT: Final = Field(
    "delivery_complete_count",
    Int32,
    tag=0,
    default=-1,
    about="Records at or above the start offset whose delivery is over; -1 unknown.",
)

SHARE_SNAPSHOT_KEY: Final = record_key(TOPIC, ShareStateRecordType.SHARE_SNAPSHOT, *SHARE_PARTITION)

STATE_BATCH: Final = Struct(
    "StateBatch",
    (
        Field("first_offset", Int64, about="First offset of the batch."),
        Field("last_offset", Int64, about="Last offset of the batch, inclusive."),
        Field("delivery_state", Int8, about="0 available, 1 acquired, 2 acknowledged, 4 archived."),
        Field("delivery_count", Int16, about="How many times the records were delivered."),
    ),
)

SHARE_SNAPSHOT_VALUE: Final = record_value(
    TOPIC,
    ShareStateRecordType.SHARE_SNAPSHOT,
    Field("snapshot_epoch", Int32, about="Number of this snapshot, one up with each."),
    Field("state_epoch", Int32, about="Raised with each initialization, which fences older writers."),
    LEADER_EPOCH,
    Field("start_offset", Int64, about="First offset in flight (SPSO), -1 not initialized."),
    DELIVERY_COMPLETE_COUNT,
    Field(
        "create_timestamp", Int64, about="When the first snapshot of the share partition was made, epoch milliseconds."
    ),
    Field("write_timestamp", Int64, about="When this snapshot was made, epoch milliseconds."),
    Field("state_batches", Array(STATE_BATCH), about="State of all offsets in flight."),
)

SHARE_UPDATE_KEY: Final = record_key(TOPIC, ShareStateRecordType.SHARE_UPDATE, *SHARE_PARTITION)

SHARE_UPDATE_VALUE: Final = record_value(
    TOPIC,
    ShareStateRecordType.SHARE_UPDATE,
    Field("snapshot_epoch", Int32, about="The snapshot which this updates."),
    LEADER_EPOCH,
    Field("start_offset", Int64, about="First offset in flight (SPSO), -1 when unchanged."),
    DELIVERY_COMPLETE_COUNT,
    Field("state_batches", Array(STATE_BATCH), about="Batches which changed since the record before."),
)
