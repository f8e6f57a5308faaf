"""Records of the KRaft metadata log which say what topics are called and how they and groups are configured.

The topic `__cluster_metadata` holds far more types; whoever reads it skips those which are not declared here.
A record's value is a frame: uvarint frame version (1), uvarint apiKey, uvarint version of the fields, the
fields. Keys are null.
"""

from enum import IntEnum
from typing import Final

from schemas.wire import Field, Int8, Int16, Message, Prefix, Role, String, Uuid

TOPIC: Final = "__cluster_metadata"

FRAME_VERSION: Final = 1


class MetadataRecordType(IntEnum):
    """Kafka's apiKey of the declared records (MetadataRecordType)."""

    TOPIC = 2
    CONFIG = 4
    REMOVE_TOPIC = 9
    FEATURE_LEVEL = 12
    BEGIN_TRANSACTION = 23
    END_TRANSACTION = 24
    ABORT_TRANSACTION = 25


class ConfigResourceType(IntEnum):
    """`resource_type` of a ConfigRecord (ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


TOPIC_RECORD: Final = Message(
    "TopicRecord",
    Role.METADATA,
    Prefix.METADATA_FRAME,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=MetadataRecordType.TOPIC,
    fields=(
        Field("name", String, about="Name of the topic."),
        Field("topic_id", Uuid, about="Id of the topic."),
    ),
)

CONFIG_RECORD: Final = Message(
    "ConfigRecord",
    Role.METADATA,
    Prefix.METADATA_FRAME,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=MetadataRecordType.CONFIG,
    fields=(
        Field("resource_type", Int8, about="ConfigResourceType."),
        Field("resource_name", String, about="Topic, group or broker id; empty for the default of all brokers."),
        Field("name", String, about="Config name."),
        Field("value", String, nullable="0+", about="Config value; null takes the config back to its default."),
    ),
)

REMOVE_TOPIC_RECORD: Final = Message(
    "RemoveTopicRecord",
    Role.METADATA,
    Prefix.METADATA_FRAME,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=MetadataRecordType.REMOVE_TOPIC,
    fields=(Field("topic_id", Uuid, about="Id of the topic, whose partitions and configs go with it."),),
)

FEATURE_LEVEL_RECORD: Final = Message(
    "FeatureLevelRecord",
    Role.METADATA,
    Prefix.METADATA_FRAME,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=MetadataRecordType.FEATURE_LEVEL,
    fields=(
        Field("name", String, about="Feature, such as share.version."),
        Field("feature_level", Int16, about="Finalized level; 0 takes the feature away."),
    ),
)

BEGIN_TRANSACTION_RECORD: Final = Message(
    "BeginTransactionRecord",
    Role.METADATA,
    Prefix.METADATA_FRAME,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=MetadataRecordType.BEGIN_TRANSACTION,
    fields=(Field("name", String, nullable="0+", tag=0, tagged="0+", default=None, about="What it is for (KIP-868)."),),
)

END_TRANSACTION_RECORD: Final = Message(
    "EndTransactionRecord",
    Role.METADATA,
    Prefix.METADATA_FRAME,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=MetadataRecordType.END_TRANSACTION,
    fields=(),
)

ABORT_TRANSACTION_RECORD: Final = Message(
    "AbortTransactionRecord",
    Role.METADATA,
    Prefix.METADATA_FRAME,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=MetadataRecordType.ABORT_TRANSACTION,
    fields=(Field("reason", String, nullable="0+", tag=0, tagged="0+", default=None, about="Why it was aborted."),),
)

MESSAGES: Final = (
    TOPIC_RECORD,
    CONFIG_RECORD,
    REMOVE_TOPIC_RECORD,
    FEATURE_LEVEL_RECORD,
    BEGIN_TRANSACTION_RECORD,
    END_TRANSACTION_RECORD,
    ABORT_TRANSACTION_RECORD,
)
