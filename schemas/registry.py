"""The messages of each record type, by topic: the same number has different meanings in different topics."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from schemas import (
    client_protocols,
    cluster_metadata,
    consumer_offsets,
    control_records,
    share_group_state,
    transaction_state,
)
from schemas.consumer_offsets import RecordType, classic, consumer, offsets, share, streams
from schemas.share_group_state import ShareStateRecordType
from schemas.wire import Message

CONSUMER_OFFSETS: Final[Mapping[int, tuple[Message, Message]]] = MappingProxyType(
    {
        RecordType.LEGACY_OFFSET_COMMIT: (offsets.LEGACY_OFFSET_COMMIT_KEY, offsets.LEGACY_OFFSET_COMMIT_VALUE),
        RecordType.OFFSET_COMMIT: (offsets.OFFSET_COMMIT_KEY, offsets.OFFSET_COMMIT_VALUE),
        RecordType.GROUP_METADATA: (classic.GROUP_METADATA_KEY, classic.GROUP_METADATA_VALUE),
        RecordType.CONSUMER_GROUP_METADATA: (
            consumer.CONSUMER_GROUP_METADATA_KEY,
            consumer.CONSUMER_GROUP_METADATA_VALUE,
        ),
        RecordType.CONSUMER_GROUP_PARTITION_METADATA: (
            consumer.CONSUMER_GROUP_PARTITION_METADATA_KEY,
            consumer.CONSUMER_GROUP_PARTITION_METADATA_VALUE,
        ),
        RecordType.CONSUMER_GROUP_MEMBER_METADATA: (
            consumer.CONSUMER_GROUP_MEMBER_METADATA_KEY,
            consumer.CONSUMER_GROUP_MEMBER_METADATA_VALUE,
        ),
        RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: (
            consumer.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_KEY,
            consumer.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE,
        ),
        RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: (
            consumer.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY,
            consumer.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
        ),
        RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: (
            consumer.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY,
            consumer.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
        ),
        RecordType.SHARE_GROUP_MEMBER_METADATA: (
            share.SHARE_GROUP_MEMBER_METADATA_KEY,
            share.SHARE_GROUP_MEMBER_METADATA_VALUE,
        ),
        RecordType.SHARE_GROUP_METADATA: (share.SHARE_GROUP_METADATA_KEY, share.SHARE_GROUP_METADATA_VALUE),
        RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA: (
            share.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_KEY,
            share.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE,
        ),
        RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER: (
            share.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY,
            share.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
        ),
        RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT: (
            share.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY,
            share.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
        ),
        RecordType.SHARE_GROUP_STATE_PARTITION_METADATA: (
            share.SHARE_GROUP_STATE_PARTITION_METADATA_KEY,
            share.SHARE_GROUP_STATE_PARTITION_METADATA_VALUE,
        ),
        RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION: (
            consumer.CONSUMER_GROUP_REGULAR_EXPRESSION_KEY,
            consumer.CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE,
        ),
        RecordType.STREAMS_GROUP_METADATA: (streams.STREAMS_GROUP_METADATA_KEY, streams.STREAMS_GROUP_METADATA_VALUE),
        RecordType.STREAMS_GROUP_MEMBER_METADATA: (
            streams.STREAMS_GROUP_MEMBER_METADATA_KEY,
            streams.STREAMS_GROUP_MEMBER_METADATA_VALUE,
        ),
        RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA: (
            streams.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA_KEY,
            streams.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE,
        ),
        RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER: (
            streams.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY,
            streams.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
        ),
        RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT: (
            streams.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY,
            streams.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
        ),
        RecordType.STREAMS_GROUP_TOPOLOGY: (streams.STREAMS_GROUP_TOPOLOGY_KEY, streams.STREAMS_GROUP_TOPOLOGY_VALUE),
    }
)
"""Record type -> (key, value)."""

SHARE_GROUP_STATE: Final[Mapping[int, tuple[Message, Message]]] = MappingProxyType(
    {
        ShareStateRecordType.SHARE_SNAPSHOT: (
            share_group_state.SHARE_SNAPSHOT_KEY,
            share_group_state.SHARE_SNAPSHOT_VALUE,
        ),
        ShareStateRecordType.SHARE_UPDATE: (share_group_state.SHARE_UPDATE_KEY, share_group_state.SHARE_UPDATE_VALUE),
    }
)

TRANSACTION_STATE: Final[Mapping[int, tuple[Message, Message]]] = MappingProxyType(
    {
        transaction_state.TRANSACTION_LOG: (
            transaction_state.TRANSACTION_LOG_KEY,
            transaction_state.TRANSACTION_LOG_VALUE,
        )
    }
)

REGISTRY: Final[Mapping[str, Mapping[int, tuple[Message, Message]]]] = MappingProxyType(
    {
        consumer_offsets.TOPIC: CONSUMER_OFFSETS,
        share_group_state.TOPIC: SHARE_GROUP_STATE,
        transaction_state.TOPIC: TRANSACTION_STATE,
    }
)
"""Topic -> record type -> (key, value)."""

METADATA: Final[Mapping[int, Message]] = MappingProxyType(
    {message.record_type: message for message in cluster_metadata.MESSAGES if message.record_type is not None}
)
"""apiKey -> record of the metadata log."""

EMBEDDED: Final = (
    client_protocols.CONSUMER_PROTOCOL_SUBSCRIPTION,
    client_protocols.CONSUMER_PROTOCOL_ASSIGNMENT,
    control_records.CONTROL_RECORD_TYPE_SCHEMA,
    control_records.END_TXN_MARKER,
    control_records.LEADER_CHANGE_MESSAGE,
    client_protocols.CONNECT_PROTOCOL_METADATA,
    client_protocols.CONNECT_PROTOCOL_ASSIGNMENT,
    client_protocols.STICKY_ASSIGNOR_USER_DATA,
    client_protocols.COOPERATIVE_STICKY_ASSIGNOR_USER_DATA,
)
"""Messages inside other fields, and control records."""

MESSAGES: Final[Mapping[str, Message]] = MappingProxyType(
    {
        message.name: message
        for message in (
            *(message for topic in REGISTRY.values() for pair in topic.values() for message in pair),
            *cluster_metadata.MESSAGES,
            *EMBEDDED,
        )
    }
)
"""Every declared message, by Kafka's name."""
