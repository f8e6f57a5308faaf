"""Consumer groups (KIP-848): record types 3 to 8 and 16."""

from typing import Final

from schemas.consumer_offsets import RecordType
from schemas.consumer_offsets.common import (
    ASSIGNMENT_EPOCH,
    ASSIGNMENT_EPOCHS,
    ASSIGNMENT_TIMESTAMP,
    CLIENT_HOST,
    CLIENT_ID,
    EPOCH,
    GROUP_ID,
    INSTANCE_ID,
    MEMBER_EPOCH,
    MEMBER_ID,
    PARTITIONS,
    PREVIOUS_MEMBER_EPOCH,
    RACK_ID,
    REBALANCE_TIMEOUT_MS,
    SUBSCRIBED_TOPIC_NAMES,
    TOPIC_ID,
    TOPIC_NAME,
    record_key,
    record_value,
)
from schemas.wire import Array, Bytes, Field, Int8, Int32, Int64, String, Struct

CONSUMER_GROUP_METADATA_KEY: Final = record_key(RecordType.CONSUMER_GROUP_METADATA, GROUP_ID)

CONSUMER_GROUP_METADATA_VALUE: Final = record_value(
    RecordType.CONSUMER_GROUP_METADATA,
    EPOCH,
    Field(
        "metadata_hash",
        Int64,
        tag=0,
        about="Hash of the subscribed topics' metadata; 0 asks for a new one. Tagged here only.",
    ),
)

CONSUMER_GROUP_PARTITION_METADATA_KEY: Final = record_key(RecordType.CONSUMER_GROUP_PARTITION_METADATA, GROUP_ID)

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
        TOPIC_ID,
        TOPIC_NAME,
        Field("num_partitions", Int32, about="Number of its partitions."),
        Field(
            "partition_metadata", Array(PARTITION_METADATA), about="Racks of its partitions, where racks are in use."
        ),
    ),
)

CONSUMER_GROUP_PARTITION_METADATA_VALUE: Final = record_value(
    RecordType.CONSUMER_GROUP_PARTITION_METADATA,
    Field("topics", Array(TOPIC_METADATA), about="Subscribed topics as last seen. Not written by 4.1+."),
)

CONSUMER_GROUP_MEMBER_METADATA_KEY: Final = record_key(RecordType.CONSUMER_GROUP_MEMBER_METADATA, GROUP_ID, MEMBER_ID)

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

CONSUMER_GROUP_MEMBER_METADATA_VALUE: Final = record_value(
    RecordType.CONSUMER_GROUP_MEMBER_METADATA,
    INSTANCE_ID,
    RACK_ID,
    CLIENT_ID,
    CLIENT_HOST,
    SUBSCRIBED_TOPIC_NAMES,
    Field("subscribed_topic_regex", String, nullable="0+", about="Subscription pattern (RE2/J)."),
    REBALANCE_TIMEOUT_MS,
    Field(
        "server_assignor", String, nullable="0+", about="Assignor the member asks for, null for the group's default."
    ),
    Field(
        "classic_member_metadata",
        CLASSIC_MEMBER_METADATA,
        nullable="0+",
        tag=0,
        about="Of a member of the classic protocol; null for the consumer protocol. Absent is not null.",
    ),
)

CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_KEY: Final = record_key(
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, GROUP_ID
)

CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE: Final = record_value(
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, ASSIGNMENT_EPOCH, ASSIGNMENT_TIMESTAMP
)

CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY: Final = record_key(
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, GROUP_ID, MEMBER_ID
)

TOPIC_PARTITION: Final = Struct("TopicPartition", (TOPIC_ID, PARTITIONS))

CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE: Final = record_value(
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
    Field("topic_partitions", Array(TOPIC_PARTITION), about="Partitions the member shall own."),
)

CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY: Final = record_key(
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, GROUP_ID, MEMBER_ID
)

TOPIC_PARTITIONS: Final = Struct("TopicPartitions", (TOPIC_ID, PARTITIONS, ASSIGNMENT_EPOCHS))

CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE: Final = record_value(
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    MEMBER_EPOCH,
    PREVIOUS_MEMBER_EPOCH,
    Field("state", Int8, about="0 stable, 1 unrevoked partitions, 2 unreleased partitions, 127 unknown."),
    Field("assigned_partitions", Array(TOPIC_PARTITIONS), about="Partitions the member owns."),
    Field(
        "partitions_pending_revocation",
        Array(TOPIC_PARTITIONS),
        about="Partitions the member still owns and must give up.",
    ),
)

CONSUMER_GROUP_REGULAR_EXPRESSION_KEY: Final = record_key(
    RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION,
    GROUP_ID,
    Field("regular_expression", String, about="The subscription pattern."),
)

CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE: Final = record_value(
    RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION,
    Field("topics", Array(String), about="Topics which match."),
    Field("version", Int64, about="Metadata image offset the pattern was resolved against."),
    Field("timestamp", Int64, about="When the pattern was resolved, epoch milliseconds."),
)
