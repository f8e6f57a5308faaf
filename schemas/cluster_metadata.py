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
    Kind,
    Message,
    Prefix,
    Role,
    String,
    Struct,
    UInt16,
    Uuid,
    message_name,
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


def metadata_record(type_: IntEnum, *fields: Field, versions: str = "0") -> Message:
    """A record of this topic."""
    name = f"{message_name(type_)}Record"
    return Message(name, Role.METADATA, Prefix.METADATA_FRAME, versions, fields, "0+", TOPIC, type_)


TOPIC_RECORD: Final = metadata_record(
    MetadataRecordType.TOPIC,
    Field("name", String, about="Name of the topic."),
    Field("topic_id", Uuid, about="Id of the topic."),
)

PARTITION_RECORD: Final = metadata_record(
    MetadataRecordType.PARTITION,
    Field("partition_id", Int32, default=-1, about="The partition; written once, when it is made."),
    Field("topic_id", Uuid, about="Id of its topic."),
    Field("replicas", Array(Int32), about="Broker ids of its replicas."),
    Field("isr", Array(Int32), about="Broker ids of those in sync."),
    Field("removing_replicas", Array(Int32), about="Replicas that are being taken away."),
    Field("adding_replicas", Array(Int32), about="Replicas that are being added."),
    Field("leader", Int32, default=-1, about="Broker id of the leader; -1 where there is none."),
    Field("leader_recovery_state", Int8, tag=0, about="1 after an unclean leader election."),
    Field("leader_epoch", Int32, default=-1, about="Epoch of the leader."),
    Field("partition_epoch", Int32, default=-1, about="Raised by each change of the partition."),
    Field("directories", Array(Uuid), versions="1+", about="Log directories of the replicas, in their order."),
    Field(
        "eligible_leader_replicas",
        Array(Int32),
        versions="2+",
        nullable="2+",
        tag=1,
        default=None,
        about="Replicas out of sync that may lead all the same (KIP-966).",
    ),
    Field(
        "last_known_elr",
        Array(Int32),
        versions="2+",
        nullable="2+",
        tag=2,
        default=None,
        about="The last of them before all were lost.",
    ),
    versions="0-2",
)

CONFIG_RECORD: Final = metadata_record(
    MetadataRecordType.CONFIG,
    Field("resource_type", Int8, about="ConfigResourceType."),
    Field("resource_name", String, about="Topic, group or broker id; empty for the default of all brokers."),
    Field("name", String, about="Config name."),
    Field("value", String, nullable="0+", about="Config value; null takes the config back to its default."),
)

REMOVE_TOPIC_RECORD: Final = metadata_record(
    MetadataRecordType.REMOVE_TOPIC,
    Field("topic_id", Uuid, about="Id of the topic, whose partitions and configs go with it."),
)

FEATURE_LEVEL_RECORD: Final = metadata_record(
    MetadataRecordType.FEATURE_LEVEL,
    Field("name", String, about="Feature, such as share.version."),
    Field("feature_level", Int16, about="Finalized level; 0 takes the feature away."),
)

BEGIN_TRANSACTION_RECORD: Final = metadata_record(
    MetadataRecordType.BEGIN_TRANSACTION,
    Field("name", String, nullable="0+", tag=0, default=None, about="What it is for (KIP-868)."),
)

END_TRANSACTION_RECORD: Final = metadata_record(MetadataRecordType.END_TRANSACTION)

ABORT_TRANSACTION_RECORD: Final = metadata_record(
    MetadataRecordType.ABORT_TRANSACTION,
    Field("reason", String, nullable="0+", tag=0, default=None, about="Why it was aborted."),
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

REGISTER_BROKER_RECORD: Final = metadata_record(
    LeaderRecordType.REGISTER_BROKER,
    Field("broker_id", Int32, about="Broker id."),
    Field("is_migrating_zk_broker", Bool, versions="2+", about="It comes from a cluster with ZooKeeper."),
    Field("incarnation_id", Uuid, about="Another one at each start of the broker."),
    Field("broker_epoch", Int64, about="Epoch that the controller gives it."),
    Field("end_points", Array(BROKER_ENDPOINT), about="Where clients and brokers reach it."),
    Field("features", Array(BROKER_FEATURE), about="What it supports."),
    Field("rack", String, nullable="0+", default=None, about="Its rack."),
    Field("fenced", Bool, about="Nobody is sent to it yet."),
    Field("in_controlled_shutdown", Bool, versions="1+", about="It is about to stop."),
    Field("log_dirs", Array(Uuid), versions="3+", tag=0, about="Its log directories."),
    Field(
        "cordoned_log_dirs",
        Array(Uuid),
        versions="4+",
        nullable="4+",
        tag=1,
        default=None,
        about="Log directories that take no new replicas.",
    ),
    versions="0-4",
)

LEADER_UNCHANGED: Final = -2
NO_LEADER: Final = -1


def change(name: str, kind: Kind, tag: int, about: str, versions: str = "0+") -> Field:
    """A field that is null where it did not change."""
    about = f"{about}; null: as before."
    return Field(name, kind, versions=versions, nullable=versions, tag=tag, default=None, about=about)


PARTITION_CHANGE_RECORD: Final = metadata_record(
    LeaderRecordType.PARTITION_CHANGE,
    Field("partition_id", Int32, default=-1, about="The partition."),
    Field("topic_id", Uuid, about="Id of its topic."),
    change("isr", Array(Int32), 0, "Those in sync"),
    Field(
        "leader",
        Int32,
        tag=1,
        default=LEADER_UNCHANGED,
        about="Broker id of the leader; -1 where there is none now, -2: as before.",
    ),
    change("replicas", Array(Int32), 2, "Replicas"),
    change("removing_replicas", Array(Int32), 3, "Replicas that are being taken away"),
    change("adding_replicas", Array(Int32), 4, "Replicas that are being added"),
    Field(
        "leader_recovery_state",
        Int8,
        tag=5,
        default=-1,
        about="1 after an unclean leader election, 0 when that is over; -1: as before.",
    ),
    change("directories", Array(Uuid), 8, "Log directories of the replicas", "1+"),
    change("eligible_leader_replicas", Array(Int32), 6, "Replicas out of sync that may lead all the same", "2+"),
    change("last_known_elr", Array(Int32), 7, "The last of them before all were lost", "2+"),
    versions="0-2",
)

LEADER_MESSAGES: Final = (REGISTER_BROKER_RECORD, PARTITION_CHANGE_RECORD)
"""Read in addition to `MESSAGES` to find the leader of a partition and its address."""
