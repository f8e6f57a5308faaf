"""Share groups (KIP-932): record types 10 to 15."""

from typing import Final

from schemas.consumer_offsets import TOPIC, RecordType
from schemas.wire import Array, Field, Int8, Int32, Int64, Message, Prefix, Role, String, Struct, Uuid

SHARE_GROUP_MEMBER_METADATA_KEY: Final = Message(
    "ShareGroupMemberMetadataKey",
    Role.KEY,
    Prefix.RECORD_TYPE,
    versions="0",
    topic=TOPIC,
    record_type=RecordType.SHARE_GROUP_MEMBER_METADATA,
    fields=(Field("group_id", String, about="The group."), Field("member_id", String, about="The member.")),
)

SHARE_GROUP_MEMBER_METADATA_VALUE: Final = Message(
    "ShareGroupMemberMetadataValue",
    Role.VALUE,
    Prefix.VERSION,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=RecordType.SHARE_GROUP_MEMBER_METADATA,
    fields=(
        Field("rack_id", String, nullable="0+", about="client.rack, null for none."),
        Field("client_id", String, about="client.id of the client."),
        Field("client_host", String, about="Address the client connected from."),
        Field("subscribed_topic_names", Array(String), about="Topics named one by one."),
    ),
)

SHARE_GROUP_METADATA_KEY: Final = Message(
    "ShareGroupMetadataKey",
    Role.KEY,
    Prefix.RECORD_TYPE,
    versions="0",
    topic=TOPIC,
    record_type=RecordType.SHARE_GROUP_METADATA,
    fields=(Field("group_id", String, about="The group."),),
)

SHARE_GROUP_METADATA_VALUE: Final = Message(
    "ShareGroupMetadataValue",
    Role.VALUE,
    Prefix.VERSION,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=RecordType.SHARE_GROUP_METADATA,
    fields=(
        Field("epoch", Int32, about="Group epoch."),
        Field("metadata_hash", Int64, about="Hash of the subscribed topics' metadata."),
    ),
)

SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_KEY: Final = Message(
    "ShareGroupTargetAssignmentMetadataKey",
    Role.KEY,
    Prefix.RECORD_TYPE,
    versions="0",
    topic=TOPIC,
    record_type=RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA,
    fields=(Field("group_id", String, about="The group."),),
)

SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE: Final = Message(
    "ShareGroupTargetAssignmentMetadataValue",
    Role.VALUE,
    Prefix.VERSION,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA,
    fields=(
        Field("assignment_epoch", Int32, about="Group epoch the target assignment was made for."),
        Field(
            "assignment_timestamp",
            Int64,
            tag=0,
            tagged="0+",
            ignorable=True,
            about="When it was made, epoch milliseconds; 0 unknown.",
        ),
    ),
)

SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY: Final = Message(
    "ShareGroupTargetAssignmentMemberKey",
    Role.KEY,
    Prefix.RECORD_TYPE,
    versions="0",
    topic=TOPIC,
    record_type=RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER,
    fields=(Field("group_id", String, about="The group."), Field("member_id", String, about="The member.")),
)

TOPIC_PARTITION: Final = Struct(
    "TopicPartition",
    (Field("topic_id", Uuid, about="Id of the topic."), Field("partitions", Array(Int32), about="Partitions of it.")),
)

SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE: Final = Message(
    "ShareGroupTargetAssignmentMemberValue",
    Role.VALUE,
    Prefix.VERSION,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER,
    fields=(Field("topic_partitions", Array(TOPIC_PARTITION), about="Partitions the member shall fetch from."),),
)

SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY: Final = Message(
    "ShareGroupCurrentMemberAssignmentKey",
    Role.KEY,
    Prefix.RECORD_TYPE,
    versions="0",
    topic=TOPIC,
    record_type=RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    fields=(Field("group_id", String, about="The group."), Field("member_id", String, about="The member.")),
)

TOPIC_PARTITIONS: Final = Struct(
    "TopicPartitions",
    (Field("topic_id", Uuid, about="Id of the topic."), Field("partitions", Array(Int32), about="Partitions of it.")),
)

SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE: Final = Message(
    "ShareGroupCurrentMemberAssignmentValue",
    Role.VALUE,
    Prefix.VERSION,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    fields=(
        Field("member_epoch", Int32, about="Current epoch of the member; -1 leaving, -2 a static member away."),
        Field("previous_member_epoch", Int32, about="Epoch before the last one; -1 for none."),
        Field("state", Int8, about="MemberState; a share member is always stable (0)."),
        Field("assigned_partitions", Array(TOPIC_PARTITIONS), about="Partitions the member may fetch from."),
    ),
)

SHARE_GROUP_STATE_PARTITION_METADATA_KEY: Final = Message(
    "ShareGroupStatePartitionMetadataKey",
    Role.KEY,
    Prefix.RECORD_TYPE,
    versions="0",
    topic=TOPIC,
    record_type=RecordType.SHARE_GROUP_STATE_PARTITION_METADATA,
    fields=(Field("group_id", String, about="The group."),),
)

TOPIC_PARTITIONS_INFO: Final = Struct(
    "TopicPartitionsInfo",
    (
        Field("topic_id", Uuid, about="Id of the topic."),
        Field("topic_name", String, about="Name of the topic."),
        Field("partitions", Array(Int32), about="Partitions of it."),
    ),
)

TOPIC_INFO: Final = Struct(
    "TopicInfo",
    (Field("topic_id", Uuid, about="Id of the topic."), Field("topic_name", String, about="Name of the topic.")),
)

SHARE_GROUP_STATE_PARTITION_METADATA_VALUE: Final = Message(
    "ShareGroupStatePartitionMetadataValue",
    Role.VALUE,
    Prefix.VERSION,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=RecordType.SHARE_GROUP_STATE_PARTITION_METADATA,
    fields=(
        Field("initializing_topics", Array(TOPIC_PARTITIONS_INFO), about="Topics whose share state is being set up."),
        Field("initialized_topics", Array(TOPIC_PARTITIONS_INFO), about="Topics whose share state is ready."),
        Field("deleting_topics", Array(TOPIC_INFO), about="Topics whose share state is being deleted."),
    ),
)
