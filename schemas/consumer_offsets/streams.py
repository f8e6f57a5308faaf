"""Streams groups (KIP-1071): record types 17 and 19 to 23."""

from typing import Final

from schemas.consumer_offsets import TOPIC, RecordType
from schemas.wire import Array, Field, Int8, Int16, Int32, Int64, Message, Prefix, Role, String, Struct, UInt16

STREAMS_GROUP_METADATA_KEY: Final = Message(
    "StreamsGroupMetadataKey",
    Role.KEY,
    Prefix.RECORD_TYPE,
    versions="0",
    topic=TOPIC,
    record_type=RecordType.STREAMS_GROUP_METADATA,
    fields=(Field("group_id", String, about="The group."),),
)

LAST_ASSIGNMENT_CONFIG: Final = Struct(
    "LastAssignmentConfig", (Field("key", String, about="Config name."), Field("value", String, about="Config value."))
)

STREAMS_GROUP_METADATA_VALUE: Final = Message(
    "StreamsGroupMetadataValue",
    Role.VALUE,
    Prefix.VERSION,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=RecordType.STREAMS_GROUP_METADATA,
    fields=(
        Field("epoch", Int32, about="Group epoch."),
        Field("metadata_hash", Int64, about="Hash of the subscribed topics' metadata."),
        Field(
            "validated_topology_epoch",
            Int32,
            tag=0,
            tagged="0+",
            default=-1,
            about="Topology epoch whose topics were checked, -1 none.",
        ),
        Field(
            "last_assignment_configs",
            Array(LAST_ASSIGNMENT_CONFIG),
            nullable="0+",
            tag=1,
            tagged="0+",
            about="Assignor configs of the last assignment; null unknown.",
        ),
        Field(
            "stored_description_topology_epoch",
            Int32,
            tag=2,
            tagged="0+",
            default=-1,
            about="Topology epoch that the description plugin has, -1 none, -2 uncertain (KIP-1331).",
        ),
        Field(
            "failed_description_topology_epoch",
            Int32,
            tag=3,
            tagged="0+",
            default=-1,
            about="Topology epoch whose description the plugin refused for good, -1 none.",
        ),
    ),
)

STREAMS_GROUP_MEMBER_METADATA_KEY: Final = Message(
    "StreamsGroupMemberMetadataKey",
    Role.KEY,
    Prefix.RECORD_TYPE,
    versions="0",
    topic=TOPIC,
    record_type=RecordType.STREAMS_GROUP_MEMBER_METADATA,
    fields=(Field("group_id", String, about="The group."), Field("member_id", String, about="The member.")),
)

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

STREAMS_GROUP_MEMBER_METADATA_VALUE: Final = Message(
    "StreamsGroupMemberMetadataValue",
    Role.VALUE,
    Prefix.VERSION,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=RecordType.STREAMS_GROUP_MEMBER_METADATA,
    fields=(
        Field("instance_id", String, nullable="0+", about="group.instance.id, null for a dynamic member."),
        Field("rack_id", String, nullable="0+", about="client.rack, null for none."),
        Field("client_id", String, about="client.id of the client."),
        Field("client_host", String, about="Address the client connected from."),
        Field(
            "rebalance_timeout_ms",
            Int32,
            default=-1,
            about="How long the member may take to rebalance, in milliseconds.",
        ),
        Field("topology_epoch", Int32, about="Epoch of the topology the member runs."),
        Field(
            "process_id", String, about="The process the member lives in; members of one process share state on disk."
        ),
        Field(
            "user_endpoint",
            ENDPOINT,
            nullable="0+",
            default=None,
            about="Where interactive queries reach the member, null for nowhere.",
        ),
        Field("client_tags", Array(KEY_VALUE), about="client.tag.* of the application, for rack-aware standbys."),
    ),
)

STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA_KEY: Final = Message(
    "StreamsGroupTargetAssignmentMetadataKey",
    Role.KEY,
    Prefix.RECORD_TYPE,
    versions="0",
    topic=TOPIC,
    record_type=RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA,
    fields=(Field("group_id", String, about="The group."),),
)

STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE: Final = Message(
    "StreamsGroupTargetAssignmentMetadataValue",
    Role.VALUE,
    Prefix.VERSION,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA,
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

STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY: Final = Message(
    "StreamsGroupTargetAssignmentMemberKey",
    Role.KEY,
    Prefix.RECORD_TYPE,
    versions="0",
    topic=TOPIC,
    record_type=RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER,
    fields=(Field("group_id", String, about="The group."), Field("member_id", String, about="The member.")),
)

TASK_IDS: Final = Struct(
    "TaskIds",
    (
        Field("subtopology_id", String, about="Subtopology of the tasks."),
        Field("partitions", Array(Int32), about="Partition numbers: one task each."),
    ),
)

STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE: Final = Message(
    "StreamsGroupTargetAssignmentMemberValue",
    Role.VALUE,
    Prefix.VERSION,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER,
    fields=(
        Field("active_tasks", Array(TASK_IDS), about="Tasks the member shall process."),
        Field("standby_tasks", Array(TASK_IDS), about="Tasks it shall keep a replica of."),
        Field("warmup_tasks", Array(TASK_IDS), about="Tasks it shall build up state for."),
    ),
)

STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY: Final = Message(
    "StreamsGroupCurrentMemberAssignmentKey",
    Role.KEY,
    Prefix.RECORD_TYPE,
    versions="0",
    topic=TOPIC,
    record_type=RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    fields=(Field("group_id", String, about="The group."), Field("member_id", String, about="The member.")),
)

STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_TASK_IDS: Final = Struct(
    "TaskIds",
    (
        Field("subtopology_id", String, about="Subtopology of the tasks."),
        Field("partitions", Array(Int32), about="Partition numbers: one task each."),
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

STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE: Final = Message(
    "StreamsGroupCurrentMemberAssignmentValue",
    Role.VALUE,
    Prefix.VERSION,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    fields=(
        Field("member_epoch", Int32, about="Current epoch of the member; -1 leaving, -2 a static member away."),
        Field("previous_member_epoch", Int32, about="Epoch before the last one; -1 for none."),
        Field("state", Int8, about="0 stable, 1 unrevoked tasks, 2 unreleased tasks, 127 unknown."),
        Field(
            "active_tasks", Array(STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_TASK_IDS), about="Tasks the member processes."
        ),
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
    ),
)

STREAMS_GROUP_TOPOLOGY_KEY: Final = Message(
    "StreamsGroupTopologyKey",
    Role.KEY,
    Prefix.RECORD_TYPE,
    versions="0",
    topic=TOPIC,
    record_type=RecordType.STREAMS_GROUP_TOPOLOGY,
    fields=(Field("group_id", String, about="The group."),),
)

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

STREAMS_GROUP_TOPOLOGY_VALUE: Final = Message(
    "StreamsGroupTopologyValue",
    Role.VALUE,
    Prefix.VERSION,
    versions="0",
    flexible="0+",
    topic=TOPIC,
    record_type=RecordType.STREAMS_GROUP_TOPOLOGY,
    fields=(
        Field("epoch", Int32, about="Topology epoch."),
        Field("subtopologies", Array(SUBTOPOLOGY), about="Parts of the topology which are assigned on their own."),
    ),
)
