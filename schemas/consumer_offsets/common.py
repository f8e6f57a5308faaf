"""What records of several group types share: their topic and fields."""

from functools import partial
from typing import Final

from schemas import wire
from schemas.consumer_offsets import TOPIC
from schemas.wire import Array, Field, Int32, Int64, String, Uuid

record_key = partial(wire.record_key, TOPIC)
record_value = partial(wire.record_value, TOPIC)

GROUP_ID: Final = Field("group_id", String, about="The group.")
MEMBER_ID: Final = Field("member_id", String, about="The member.")
TOPIC_ID: Final = Field("topic_id", Uuid, about="Id of the topic.")
TOPIC_NAME: Final = Field("topic_name", String, about="Name of the topic.")
PARTITIONS: Final = Field("partitions", Array(Int32), about="Partitions of it.")
INSTANCE_ID: Final = Field("instance_id", String, nullable="0+", about="group.instance.id, null for a dynamic member.")
RACK_ID: Final = Field("rack_id", String, nullable="0+", about="client.rack, null for none.")
CLIENT_ID: Final = Field("client_id", String, about="client.id of the client.")
CLIENT_HOST: Final = Field("client_host", String, about="Address the client connected from.")
SUBSCRIBED_TOPIC_NAMES: Final = Field("subscribed_topic_names", Array(String), about="Topics named one by one.")
REBALANCE_TIMEOUT_MS: Final = Field(
    "rebalance_timeout_ms", Int32, default=-1, about="How long the member may take to rebalance, in milliseconds."
)
EPOCH: Final = Field("epoch", Int32, about="Group epoch.")
METADATA_HASH: Final = Field("metadata_hash", Int64, about="Hash of the subscribed topics' metadata.")
MEMBER_EPOCH: Final = Field(
    "member_epoch", Int32, about="Current epoch of the member; -1 leaving, -2 a static member away."
)
PREVIOUS_MEMBER_EPOCH: Final = Field("previous_member_epoch", Int32, about="Epoch before the last one; -1 for none.")
ASSIGNMENT_EPOCH: Final = Field("assignment_epoch", Int32, about="Group epoch the target assignment was made for.")
ASSIGNMENT_TIMESTAMP: Final = Field(
    "assignment_timestamp", Int64, tag=0, ignorable=True, about="When it was made, epoch milliseconds; 0 unknown."
)
ASSIGNMENT_EPOCHS: Final = Field(
    "assignment_epochs",
    Array(Int32),
    nullable="0+",
    tag=0,
    about="Epoch in which each of `partitions` was assigned; null or empty: the member epoch.",
)
