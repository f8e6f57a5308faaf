"""Streams groups (KIP-1071): record types 17 and 19 to 23."""

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
    METADATA_HASH,
    PREVIOUS_MEMBER_EPOCH,
    RACK_ID,
    REBALANCE_TIMEOUT_MS,
    record_key,
    record_value,
)
from schemas.wire import Array, Field, Int8, Int16, Int32, String, Struct, UInt16

STREAMS_GROUP_METADATA_KEY: Final = record_key(RecordType.STREAMS_GROUP_METADATA, GROUP_ID)

LAST_ASSIGNMENT_CONFIG: Final = Struct(
    "LastAssignmentConfig", (Field("key", String, about="Config name."), Field("value", String, about="Config value."))
)

STREAMS_GROUP_METADATA_VALUE: Final = record_value(
    RecordType.STREAMS_GROUP_METADATA,
    EPOCH,
    METADATA_HASH,
    Field(
        "validated_topology_epoch", Int32, tag=0, default=-1, about="Topology epoch whose topics were checked, -1 none."
    ),
    Field(
        "last_assignment_configs",
        Array(LAST_ASSIGNMENT_CONFIG),
        nullable="0+",
        tag=1,
        about="Assignor configs of the last assignment; null unknown.",
    ),
    Field(
        "stored_description_topology_epoch",
        Int32,
        tag=2,
        default=-1,
        about="Topology epoch that the description plugin has, -1 none, -2 uncertain (KIP-1331).",
    ),
    Field(
        "failed_description_topology_epoch",
        Int32,
        tag=3,
        default=-1,
        about="Topology epoch whose description the plugin refused for good, -1 none.",
    ),
)

STREAMS_GROUP_MEMBER_METADATA_KEY: Final = record_key(RecordType.STREAMS_GROUP_MEMBER_METADATA, GROUP_ID, MEMBER_ID)

ENDPOINT: Final = Struct(
    "Endpoint",
    (
        Field("host", String, about="Host of application.server."),
        Field("port", UInt16, about="Port of application.server."),
    ),
)

KEY_VALUE: Final = Struct(
    "KeyValue", (Field("key", String, about="Tag name."), Field("value", String, about="Tag value."))
)

STREAMS_GROUP_MEMBER_METADATA_VALUE: Final = record_value(
    RecordType.STREAMS_GROUP_MEMBER_METADATA,
    INSTANCE_ID,
    RACK_ID,
    CLIENT_ID,
    CLIENT_HOST,
    REBALANCE_TIMEOUT_MS,
    Field("topology_epoch", Int32, about="Epoch of the topology the member runs."),
    Field("process_id", String, about="The process the member lives in; members of one process share state on disk."),
    Field(
        "user_endpoint",
        ENDPOINT,
        nullable="0+",
        default=None,
        about="Where interactive queries reach the member, null for nowhere.",
    ),
    Field("client_tags", Array(KEY_VALUE), about="client.tag.* of the application, for rack-aware standbys."),
)

STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA_KEY: Final = record_key(
    RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA, GROUP_ID
)

STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE: Final = record_value(
    RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA, ASSIGNMENT_EPOCH, ASSIGNMENT_TIMESTAMP
)

STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY: Final = record_key(
    RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER, GROUP_ID, MEMBER_ID
)

TASK_IDS: Final = Struct(
    "TaskIds",
    (
        Field("subtopology_id", String, about="Subtopology of the tasks."),
        Field("partitions", Array(Int32), about="Partition numbers: one task each."),
    ),
)

STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE: Final = record_value(
    RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER,
    Field("active_tasks", Array(TASK_IDS), about="Tasks the member shall process."),
    Field("standby_tasks", Array(TASK_IDS), about="Tasks it shall keep a replica of."),
    Field("warmup_tasks", Array(TASK_IDS), about="Tasks it shall build up state for."),
)

STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY: Final = record_key(
    RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT, GROUP_ID, MEMBER_ID
)

STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_TASK_IDS: Final = Struct("TaskIds", (*TASK_IDS.fields, ASSIGNMENT_EPOCHS))

STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE: Final = record_value(
    RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    MEMBER_EPOCH,
    PREVIOUS_MEMBER_EPOCH,
    Field("state", Int8, about="0 stable, 1 unrevoked tasks, 2 unreleased tasks, 127 unknown."),
    Field("active_tasks", Array(STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_TASK_IDS), about="Tasks the member processes."),
    Field(
        "standby_tasks",
        Array(STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_TASK_IDS),
        about="Tasks the member keeps a replica of.",
    ),
    Field(
        "warmup_tasks",
        Array(STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_TASK_IDS),
        about="Tasks the member builds up state for.",
    ),
    Field(
        "active_tasks_pending_revocation",
        Array(STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_TASK_IDS),
        about="Active tasks it still has and must give up.",
    ),
    Field(
        "standby_tasks_pending_revocation",
        Array(STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_TASK_IDS),
        about="Standby tasks it still has and must give up.",
    ),
    Field(
        "warmup_tasks_pending_revocation",
        Array(STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_TASK_IDS),
        about="Warm-up tasks it still has and must give up.",
    ),
)

STREAMS_GROUP_TOPOLOGY_KEY: Final = record_key(RecordType.STREAMS_GROUP_TOPOLOGY, GROUP_ID)

TOPIC_CONFIG: Final = Struct(
    "TopicConfig", (Field("key", String, about="Config name."), Field("value", String, about="Config value."))
)

TOPIC_INFO: Final = Struct(
    "TopicInfo",
    (
        Field("name", String, about="Topic."),
        Field("partitions", Int32, about="Number of partitions, 0 for the source topics' number."),
        Field("replication_factor", Int16, about="Replication factor, 0 for the broker's default."),
        Field("topic_configs", Array(TOPIC_CONFIG), about="Configs to create it with."),
    ),
)

COPARTITION_GROUP: Final = Struct(
    "CopartitionGroup",
    (
        Field("source_topics", Array(Int16), about="Indices into its source topics."),
        Field("source_topic_regex", Array(Int16), about="Indices into its source topic patterns."),
        Field(
            "repartition_source_topics", Array(Int16), about="Indices into the subtopology's repartition source topics."
        ),
    ),
)

SUBTOPOLOGY: Final = Struct(
    "Subtopology",
    (
        Field("subtopology_id", String, about="Subtopology, unique in the topology."),
        Field("source_topics", Array(String), about="Topics it reads."),
        Field("source_topic_regex", Array(String), about="Patterns of topics it reads."),
        Field("state_changelog_topics", Array(TOPIC_INFO), about="Changelog topics of its state stores."),
        Field("repartition_sink_topics", Array(String), about="Repartition topics it writes."),
        Field("repartition_source_topics", Array(TOPIC_INFO), about="Repartition topics it reads."),
        Field(
            "copartition_groups",
            Array(COPARTITION_GROUP),
            about="Sets of topics which must have one number of partitions.",
        ),
    ),
)

STREAMS_GROUP_TOPOLOGY_VALUE: Final = record_value(
    RecordType.STREAMS_GROUP_TOPOLOGY,
    Field("epoch", Int32, about="Topology epoch."),
    Field("subtopologies", Array(SUBTOPOLOGY), about="Parts of the topology which are assigned on their own."),
)
