"""Records of the KRaft metadata log about topic names, partitions, and configs of topics and groups.

The topic `__cluster_metadata` has many more record types. They are known by number and skipped; a record with any other
number is of an unknown type. A record's value is a frame: uvarint frame version (1), uvarint apiKey, uvarint version of
the fields, the fields. Keys are null.
"""

from enum import IntEnum
from typing import Final

from schemas.wire import (
    Array,
    Bool,
    Field,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Prefix,
    Role,
    String,
    Struct,
    UInt16,
    Uuid,
)

TOPIC: Final = "__cluster_metadata"

FRAME_VERSION: Final = 1


class MetadataRecordType(IntEnum):
    """Kafka's apiKey of the declared records (MetadataRecordType)."""

    TOPIC = 2
    PARTITION = 3
    CONFIG = 4
    REMOVE_TOPIC = 9
    FEATURE_LEVEL = 12
    BEGIN_TRANSACTION = 23
    END_TRANSACTION = 24
    ABORT_TRANSACTION = 25


NOT_USED: Final = frozenset({0, 1, 5, 7, 8, 10, 11, 14, 15, *range(17, 23), 26, 27, 28})
"""apiKeys of known records without topic names, partitions or configs: brokers and controllers, replicas, tokens,
credentials, quotas, producer ids, access control, no-ops, the migration from ZooKeeper. A replay skips them;
`describe` reads those about leaders (`LEADER_MESSAGES`)."""


class LeaderRecordType(IntEnum):
    """Kafka's apiKey of records that only describe leaders and brokers (`LEADER_MESSAGES`)."""

    REGISTER_BROKER = 0
    PARTITION_CHANGE = 5


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
    fields=(Field("name", String, about="Name of the topic."), Field("topic_id", Uuid, about="Id of the topic.")),
)

PARTITION_RECORD: Final = Message(
    "PartitionRecord",
    Role.METADATA,
    Prefix.METADATA_FRAME,
    versions="0-2",
    flexible="0+",
    topic=TOPIC,
    record_type=MetadataRecordType.PARTITION,
    fields=(
        Field("partition_id", Int32, default=-1, about="The partition; written once, when it is made."),
        Field("topic_id", Uuid, about="Id of its topic."),
        Field("replicas", Array(Int32), about="Broker ids of its replicas."),
        Field("isr", Array(Int32), about="Broker ids of those in sync."),
        Field("removing_replicas", Array(Int32), about="Replicas that are being taken away."),
        Field("adding_replicas", Array(Int32), about="Replicas that are being added."),
        Field("leader", Int32, default=-1, about="Broker id of the leader; -1 where there is none."),
        Field("leader_recovery_state", Int8, tag=0, tagged="0+", about="1 after an unclean leader election."),
        Field("leader_epoch", Int32, default=-1, about="Epoch of the leader."),
        Field("partition_epoch", Int32, default=-1, about="Raised by each change of the partition."),
        Field("directories", Array(Uuid), versions="1+", about="Log directories of the replicas, in their order."),
        Field(
            "eligible_leader_replicas",
            Array(Int32),
            versions="2+",
            nullable="2+",
            tag=1,
            tagged="2+",
            default=None,
            about="Replicas out of sync that may lead all the same (KIP-966).",
        ),
        Field(
            "last_known_elr",
            Array(Int32),
            versions="2+",
            nullable="2+",
            tag=2,
            tagged="2+",
            default=None,
            about="The last of them before all were lost.",
        ),
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
    PARTITION_RECORD,
    CONFIG_RECORD,
    REMOVE_TOPIC_RECORD,
    FEATURE_LEVEL_RECORD,
    BEGIN_TRANSACTION_RECORD,
    END_TRANSACTION_RECORD,
    ABORT_TRANSACTION_RECORD,
)

BROKER_ENDPOINT: Final = Struct(
    "BrokerEndpoint",
    (
        Field("name", String, about="Name of the listener."),
        Field("host", String, about="Its host, as the broker advertises it."),
        Field("port", UInt16, about="Its port."),
        Field("security_protocol", Int16, about="0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."),
    ),
)

BROKER_FEATURE: Final = Struct(
    "BrokerFeature",
    (
        Field("name", String, about="Feature."),
        Field("min_supported_version", Int16, about="Lowest level that the broker supports."),
        Field("max_supported_version", Int16, about="Highest one."),
    ),
)

REGISTER_BROKER_RECORD: Final = Message(
    "RegisterBrokerRecord",
    Role.METADATA,
    Prefix.METADATA_FRAME,
    versions="0-4",
    flexible="0+",
    topic=TOPIC,
    record_type=LeaderRecordType.REGISTER_BROKER,
    fields=(
        Field("broker_id", Int32, about="Broker id."),
        Field("is_migrating_zk_broker", Bool, versions="2+", about="It comes from a cluster with ZooKeeper."),
        Field("incarnation_id", Uuid, about="Another one at each start of the broker."),
        Field("broker_epoch", Int64, about="Epoch that the controller gives it."),
        Field("end_points", Array(BROKER_ENDPOINT), about="Where clients and brokers reach it."),
        Field("features", Array(BROKER_FEATURE), about="What it supports."),
        Field("rack", String, nullable="0+", default=None, about="Its rack."),
        Field("fenced", Bool, about="Nobody is sent to it yet."),
        Field("in_controlled_shutdown", Bool, versions="1+", about="It is about to stop."),
        Field("log_dirs", Array(Uuid), versions="3+", tag=0, tagged="3+", about="Its log directories."),
        Field(
            "cordoned_log_dirs",
            Array(Uuid),
            versions="4+",
            nullable="4+",
            tag=1,
            tagged="4+",
            default=None,
            about="Log directories that take no new replicas.",
        ),
    ),
)

LEADER_UNCHANGED: Final = -2
NO_LEADER: Final = -1

PARTITION_CHANGE_RECORD: Final = Message(
    "PartitionChangeRecord",
    Role.METADATA,
    Prefix.METADATA_FRAME,
    versions="0-2",
    flexible="0+",
    topic=TOPIC,
    record_type=LeaderRecordType.PARTITION_CHANGE,
    fields=(
        Field("partition_id", Int32, default=-1, about="The partition."),
        Field("topic_id", Uuid, about="Id of its topic."),
        Field(
            "isr",
            Array(Int32),
            nullable="0+",
            tag=0,
            tagged="0+",
            default=None,
            about="Those in sync; null: as before.",
        ),
        Field(
            "leader",
            Int32,
            tag=1,
            tagged="0+",
            default=LEADER_UNCHANGED,
            about="Broker id of the leader; -1 where there is none now, -2: as before.",
        ),
        Field(
            "replicas",
            Array(Int32),
            nullable="0+",
            tag=2,
            tagged="0+",
            default=None,
            about="Replicas; null: as before.",
        ),
        Field(
            "removing_replicas",
            Array(Int32),
            nullable="0+",
            tag=3,
            tagged="0+",
            default=None,
            about="Replicas that are being taken away; null: as before.",
        ),
        Field(
            "adding_replicas",
            Array(Int32),
            nullable="0+",
            tag=4,
            tagged="0+",
            default=None,
            about="Replicas that are being added; null: as before.",
        ),
        Field(
            "leader_recovery_state",
            Int8,
            tag=5,
            tagged="0+",
            default=-1,
            about="1 after an unclean leader election, 0 when that is over; -1: as before.",
        ),
        Field(
            "directories",
            Array(Uuid),
            versions="1+",
            nullable="1+",
            tag=8,
            tagged="1+",
            default=None,
            about="Log directories of the replicas; null: as before.",
        ),
        Field(
            "eligible_leader_replicas",
            Array(Int32),
            versions="2+",
            nullable="2+",
            tag=6,
            tagged="2+",
            default=None,
            about="Replicas out of sync that may lead all the same; null: as before.",
        ),
        Field(
            "last_known_elr",
            Array(Int32),
            versions="2+",
            nullable="2+",
            tag=7,
            tagged="2+",
            default=None,
            about="The last of them before all were lost; null: as before.",
        ),
    ),
)

LEADER_MESSAGES: Final = (REGISTER_BROKER_RECORD, PARTITION_CHANGE_RECORD)
"""Read in addition to `MESSAGES` to find the leader of a partition and its address."""
