"""Messages that clients write into bytes fields of group records: subscriptions, assignments, user data.

No version is flexible. Sources: Kafka's ConsumerProtocol, StickyAssignor, CooperativeStickyAssignor, ConnectProtocol
and IncrementalCooperativeConnectProtocol.
"""

from typing import Final

from schemas.wire import Array, Bytes, Field, Int16, Int32, Int64, Prefix, String, Struct, embedded

TOPIC_PARTITION: Final = Struct(
    "TopicPartition",
    (Field("topic", String, about="Topic."), Field("partitions", Array(Int32), about="Partitions of it.")),
)

CONSUMER_PROTOCOL_SUBSCRIPTION: Final = embedded(
    "ConsumerProtocolSubscription",
    "0-3",
    Field("topics", Array(String), about="Subscribed topics."),
    Field(
        "user_data",
        Bytes,
        nullable="0+",
        default=None,
        about="For the assignor; sticky assignors keep their last assignment here.",
    ),
    Field(
        "owned_partitions",
        Array(TOPIC_PARTITION),
        versions="1+",
        ignorable=True,
        about="Partitions the member owned when it joined.",
    ),
    Field(
        "generation_id",
        Int32,
        versions="2+",
        default=-1,
        ignorable=True,
        about="Generation the owned partitions come from, -1 for none.",
    ),
    Field(
        "rack_id",
        String,
        versions="3+",
        nullable="3+",
        default=None,
        ignorable=True,
        about="client.rack, null for none.",
    ),
)

CONSUMER_PROTOCOL_ASSIGNMENT: Final = embedded(
    "ConsumerProtocolAssignment",
    "0-3",
    Field("assigned_partitions", Array(TOPIC_PARTITION), about="Partitions the member owns from now on."),
    Field("user_data", Bytes, nullable="0+", default=None, about="For the assignor."),
)

TOPIC_ASSIGNMENT: Final = Struct(
    "TopicAssignment",
    (Field("topic", String, about="Topic."), Field("partitions", Array(Int32), about="Partitions of it.")),
)

STICKY_ASSIGNOR_USER_DATA: Final = embedded(
    "StickyAssignorUserData",
    "0-1",
    Field(
        "previous_assignment",
        Array(TOPIC_ASSIGNMENT),
        kafka_name="previous_assignment",
        about="Partitions of the member's last assignment.",
    ),
    Field("generation", Int32, versions="1+", default=-1, about="Generation of that assignment."),
    prefix=Prefix.NONE,
)

COOPERATIVE_STICKY_ASSIGNOR_USER_DATA: Final = embedded(
    "CooperativeStickyAssignorUserData",
    "0",
    Field("generation", Int32, about="Generation of the owned partitions."),
    prefix=Prefix.NONE,
)

CONFIG_OFFSET: Final = Field(
    "config_offset",
    Int64,
    kafka_name="config-offset",
    about="Offset of the config topic the worker (or the assignment) is based on.",
)

CONNECT_PROTOCOL_METADATA: Final = embedded(
    "ConnectProtocolMetadata",
    "0-2",
    Field("url", String, about="REST URL of the worker."),
    CONFIG_OFFSET,
    Field(
        "allocation",
        Bytes,
        versions="1+",
        nullable="1+",
        default=None,
        missing_ok=True,
        about="What the worker runs now: a version-prefixed ConnectProtocolAssignment.",
    ),
)

CONNECTOR_ASSIGNMENT: Final = Struct(
    "ConnectorAssignment",
    (
        Field("connector", String, about="Connector name."),
        Field("tasks", Array(Int32), about="Task numbers; -1 is the connector itself."),
    ),
)

CONNECT_PROTOCOL_ASSIGNMENT: Final = embedded(
    "ConnectProtocolAssignment",
    "0-2",
    Field("error", Int16, about="0 none, 1 config mismatch."),
    Field("leader", String, about="Member id of the leading worker."),
    Field("leader_url", String, kafka_name="leader-url", about="REST URL of the leading worker."),
    CONFIG_OFFSET,
    Field(
        "assignment",
        Array(CONNECTOR_ASSIGNMENT),
        nullable="1+",
        missing_ok=True,
        about="Connectors and tasks given to the worker, or newly given in v1+.",
    ),
    Field(
        "revoked",
        Array(CONNECTOR_ASSIGNMENT),
        versions="1+",
        nullable="1+",
        default=None,
        missing_ok=True,
        about="Connectors and tasks the worker must give up.",
    ),
    Field(
        "delay",
        Int32,
        versions="1+",
        missing_ok=True,
        about="Milliseconds until lost tasks are given away (scheduled.rebalance.max.delay.ms).",
    ),
)
