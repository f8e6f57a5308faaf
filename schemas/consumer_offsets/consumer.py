"""Consumer groups (KIP-848): record types 3 to 8 and 16."""

from typing import Final

from schemas.consumer_offsets import TOPIC, RecordType
from schemas.wire import Array, Bytes, Field, Int8, Int32, Int64, Message, Prefix, Role, String, Struct, Uuid

CONSUMER_GROUP_METADATA_KEY: Final = Message(
    "ConsumerGroupMetadataKey",
    Role.KEY,
    Prefix.RECORD_TYPE,
    versions="0",
    topic=TOPIC,
    record_type=RecordType.CONSUMER_GROUP_METADATA,
    fields=(Field("group_id", String, about="The group."),),
)

CONSUMER_GROUP_METADATA_VALUE: Final = Message(
    "ConsumerGroupMetadataValue",
    Role.VALUE,
    Prefix.VERSION,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=RecordType.CONSUMER_GROUP_METADATA,
    fields=(
        Field("epoch", Int32, about="Group epoch."),
        Field(
            "metadata_hash",
            Int64,
            tag=0,
            tagged="0+",
            about="Hash of the subscribed topics' metadata; 0 asks for a new one. Tagged here only.",
        ),
    ),
)

CONSUMER_GROUP_PARTITION_METADATA_KEY: Final = Message(
    "ConsumerGroupPartitionMetadataKey",
    Role.KEY,
    Prefix.RECORD_TYPE,
    versions="0",
    topic=TOPIC,
    record_type=RecordType.CONSUMER_GROUP_PARTITION_METADATA,
    fields=(Field("group_id", String, about="The group."),),
)

PARTITION_METADATA: Final = Struct(
    "PartitionMetadata",
    (
        Field("partition", Int32, about="Partition number."),
        Field("racks", Array(String), about="Racks of its replicas."),
    ),
)

TOPIC_METADATA: Final = Struct(
    "TopicMetadata",
    (
        Field("topic_id", Uuid, about="Id of the topic."),
        Field("topic_name", String, about="Name of the topic."),
        Field("num_partitions", Int32, about="Number of its partitions."),
        Field(
            "partition_metadata", Array(PARTITION_METADATA), about="Racks of its partitions, where racks are in use."
        ),
    ),
)

CONSUMER_GROUP_PARTITION_METADATA_VALUE: Final = Message(
    "ConsumerGroupPartitionMetadataValue",
    Role.VALUE,
    Prefix.VERSION,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=RecordType.CONSUMER_GROUP_PARTITION_METADATA,
    fields=(Field("topics", Array(TOPIC_METADATA), about="Subscribed topics as last seen. Not written by 4.1+."),),
)

CONSUMER_GROUP_MEMBER_METADATA_KEY: Final = Message(
    "ConsumerGroupMemberMetadataKey",
    Role.KEY,
    Prefix.RECORD_TYPE,
    versions="0",
    topic=TOPIC,
    record_type=RecordType.CONSUMER_GROUP_MEMBER_METADATA,
    fields=(Field("group_id", String, about="The group."), Field("member_id", String, about="The member.")),
)

CLASSIC_PROTOCOL: Final = Struct(
    "ClassicProtocol",
    (
        Field("name", String, about="Assignor name, such as range."),
        Field("metadata", Bytes, about="A ConsumerProtocolSubscription."),
    ),
)

CLASSIC_MEMBER_METADATA: Final = Struct(
    "ClassicMemberMetadata",
    (
        Field("session_timeout_ms", Int32, about="Session timeout of the classic protocol, in milliseconds."),
        Field(
            "supported_protocols",
            Array(CLASSIC_PROTOCOL),
            about="Protocols the member listed in JoinGroup, in its order of preference.",
        ),
    ),
)

CONSUMER_GROUP_MEMBER_METADATA_VALUE: Final = Message(
    "ConsumerGroupMemberMetadataValue",
    Role.VALUE,
    Prefix.VERSION,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=RecordType.CONSUMER_GROUP_MEMBER_METADATA,
    fields=(
        Field("instance_id", String, nullable="0+", about="group.instance.id, null for a dynamic member."),
        Field("rack_id", String, nullable="0+", about="client.rack, null for none."),
        Field("client_id", String, about="client.id of the client."),
        Field("client_host", String, about="Address the client connected from."),
        Field("subscribed_topic_names", Array(String), about="Topics named one by one."),
        Field("subscribed_topic_regex", String, nullable="0+", about="Subscription pattern (RE2/J)."),
        Field(
            "rebalance_timeout_ms",
            Int32,
            default=-1,
            about="How long the member may take to rebalance, in milliseconds.",
        ),
        Field(
            "server_assignor",
            String,
            nullable="0+",
            about="Assignor the member asks for, null for the group's default.",
        ),
        Field(
            "classic_member_metadata",
            CLASSIC_MEMBER_METADATA,
            nullable="0+",
            tag=0,
            tagged="0+",
            about="Of a member of the classic protocol; null for the consumer protocol. Absent is not null.",
        ),
    ),
)

CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_KEY: Final = Message(
    "ConsumerGroupTargetAssignmentMetadataKey",
    Role.KEY,
    Prefix.RECORD_TYPE,
    versions="0",
    topic=TOPIC,
    record_type=RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
    fields=(Field("group_id", String, about="The group."),),
)

CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE: Final = Message(
    "ConsumerGroupTargetAssignmentMetadataValue",
    Role.VALUE,
    Prefix.VERSION,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
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

CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY: Final = Message(
    "ConsumerGroupTargetAssignmentMemberKey",
    Role.KEY,
    Prefix.RECORD_TYPE,
    versions="0",
    topic=TOPIC,
    record_type=RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
    fields=(Field("group_id", String, about="The group."), Field("member_id", String, about="The member.")),
)

TOPIC_PARTITION: Final = Struct(
    "TopicPartition",
    (Field("topic_id", Uuid, about="Id of the topic."), Field("partitions", Array(Int32), about="Partitions of it.")),
)

CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE: Final = Message(
    "ConsumerGroupTargetAssignmentMemberValue",
    Role.VALUE,
    Prefix.VERSION,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
    fields=(Field("topic_partitions", Array(TOPIC_PARTITION), about="Partitions the member shall own."),),
)

CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY: Final = Message(
    "ConsumerGroupCurrentMemberAssignmentKey",
    Role.KEY,
    Prefix.RECORD_TYPE,
    versions="0",
    topic=TOPIC,
    record_type=RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    fields=(Field("group_id", String, about="The group."), Field("member_id", String, about="The member.")),
)

TOPIC_PARTITIONS: Final = Struct(
    "TopicPartitions",
    (
        Field("topic_id", Uuid, about="Id of the topic."),
        Field("partitions", Array(Int32), about="Partitions of it."),
        Field(
            "assignment_epochs",
            Array(Int32),
            nullable="0+",
            tag=0,
            tagged="0+",
            about="Epoch in which each of `partitions` was assigned; null or empty: the member epoch.",
        ),
    ),
)

CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE: Final = Message(
    "ConsumerGroupCurrentMemberAssignmentValue",
    Role.VALUE,
    Prefix.VERSION,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    fields=(
        Field("member_epoch", Int32, about="Current epoch of the member; -1 leaving, -2 a static member away."),
        Field("previous_member_epoch", Int32, about="Epoch before the last one; -1 for none."),
        Field("state", Int8, about="0 stable, 1 unrevoked partitions, 2 unreleased partitions, 127 unknown."),
        Field("assigned_partitions", Array(TOPIC_PARTITIONS), about="Partitions the member owns."),
        Field(
            "partitions_pending_revocation",
            Array(TOPIC_PARTITIONS),
            about="Partitions the member still owns and must give up.",
        ),
    ),
)

CONSUMER_GROUP_REGULAR_EXPRESSION_KEY: Final = Message(
    "ConsumerGroupRegularExpressionKey",
    Role.KEY,
    Prefix.RECORD_TYPE,
    versions="0",
    topic=TOPIC,
    record_type=RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION,
    fields=(
        Field("group_id", String, about="The group."),
        Field("regular_expression", String, about="The subscription pattern."),
    ),
)

CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE: Final = Message(
    "ConsumerGroupRegularExpressionValue",
    Role.VALUE,
    Prefix.VERSION,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION,
    fields=(
        Field("topics", Array(String), about="Topics which match."),
        Field("version", Int64, about="Metadata image offset the pattern was resolved against."),
        Field("timestamp", Int64, about="When the pattern was resolved, epoch milliseconds."),
    ),
)
