"""Share groups (KIP-932): record types 10 to 15."""

from typing import Final

from schemas.consumer_offsets import RecordType
from schemas.consumer_offsets.common import (
    ASSIGNMENT_EPOCH,
    ASSIGNMENT_TIMESTAMP,
    CLIENT_HOST,
    CLIENT_ID,
    EPOCH,
    GROUP_ID,
    MEMBER_EPOCH,
    MEMBER_ID,
    METADATA_HASH,
    PARTITIONS,
    PREVIOUS_MEMBER_EPOCH,
    RACK_ID,
    SUBSCRIBED_TOPIC_NAMES,
    TOPIC_ID,
    TOPIC_NAME,
    record_key,
    record_value,
)
from schemas.wire import Array, Field, Int8, Struct

SHARE_GROUP_MEMBER_METADATA_KEY: Final = record_key(RecordType.SHARE_GROUP_MEMBER_METADATA, GROUP_ID, MEMBER_ID)

SHARE_GROUP_MEMBER_METADATA_VALUE: Final = record_value(
    RecordType.SHARE_GROUP_MEMBER_METADATA, RACK_ID, CLIENT_ID, CLIENT_HOST, SUBSCRIBED_TOPIC_NAMES
)

SHARE_GROUP_METADATA_KEY: Final = record_key(RecordType.SHARE_GROUP_METADATA, GROUP_ID)

SHARE_GROUP_METADATA_VALUE: Final = record_value(RecordType.SHARE_GROUP_METADATA, EPOCH, METADATA_HASH)

SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_KEY: Final = record_key(
    RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA, GROUP_ID
)

SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE: Final = record_value(
    RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA, ASSIGNMENT_EPOCH, ASSIGNMENT_TIMESTAMP
)

SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY: Final = record_key(
    RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER, GROUP_ID, MEMBER_ID
)

TOPIC_PARTITION: Final = Struct("TopicPartition", (TOPIC_ID, PARTITIONS))

SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE: Final = record_value(
    RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER,
    Field("topic_partitions", Array(TOPIC_PARTITION), about="Partitions the member shall fetch from."),
)

SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY: Final = record_key(
    RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT, GROUP_ID, MEMBER_ID
)

TOPIC_PARTITIONS: Final = Struct("TopicPartitions", (TOPIC_ID, PARTITIONS))

SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE: Final = record_value(
    RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    MEMBER_EPOCH,
    PREVIOUS_MEMBER_EPOCH,
    Field("state", Int8, about="MemberState; a share member is always stable (0)."),
    Field("assigned_partitions", Array(TOPIC_PARTITIONS), about="Partitions the member may fetch from."),
)

SHARE_GROUP_STATE_PARTITION_METADATA_KEY: Final = record_key(RecordType.SHARE_GROUP_STATE_PARTITION_METADATA, GROUP_ID)

TOPIC_PARTITIONS_INFO: Final = Struct("TopicPartitionsInfo", (TOPIC_ID, TOPIC_NAME, PARTITIONS))

TOPIC_INFO: Final = Struct("TopicInfo", (TOPIC_ID, TOPIC_NAME))

SHARE_GROUP_STATE_PARTITION_METADATA_VALUE: Final = record_value(
    RecordType.SHARE_GROUP_STATE_PARTITION_METADATA,
    Field("initializing_topics", Array(TOPIC_PARTITIONS_INFO), about="Topics whose share state is being set up."),
    Field("initialized_topics", Array(TOPIC_PARTITIONS_INFO), about="Topics whose share state is ready."),
    Field("deleting_topics", Array(TOPIC_INFO), about="Topics whose share state is being deleted."),
)
