"""Requests and responses of Kafka's protocol that kafka-python does not declare: descriptions of the newer group types,
share group states, and version 3 of DeleteGroups.

Source: the definitions of Kafka 4.3.1 and 4.4.0 (kafka-clients, common/message), which a test compares with these.
Version 0 of ShareGroupDescribe was early access and was removed. Version 1 of StreamsGroupDescribe and version 3 of
DeleteGroups are from Kafka 4.4. The project deletes nothing; clients in its tests do.
"""

from functools import partial
from typing import Final

from schemas.wire import Array, Bool, Field, Int8, Int16, Int32, Int64, Message, String, Struct, UInt16, Uuid, api

ALL: Final = "0+"
SINCE_44: Final = "1+"
"""Versions of StreamsGroupDescribe since Kafka 4.4."""
since_44 = partial(Field, versions=SINCE_44)
or_null_since_44 = partial(since_44, nullable=SINCE_44, default=None)
or_null = partial(Field, nullable=ALL, default=None)

GROUP_IDS: Final = (
    Field("group_ids", Array(String), about="The groups to describe."),
    Field("include_authorized_operations", Bool, about="Whether to say what the asker may do with them."),
)
THROTTLE_TIME: Final = Field("throttle_time_ms", Int32, about="How long the broker delayed the response, for a quota.")
ERROR_CODE: Final = Field("error_code", Int16, about="Kafka's error, 0 for none.")
ERROR_MESSAGE: Final = or_null("error_message", String, about="In words, null for none.")
AUTHORIZED_OPERATIONS: Final = Field(
    "authorized_operations", Int32, default=-(2**31), about="Bits of what the asker may do, if asked for."
)
GROUP_ID: Final = Field("group_id", String, about="The group.")
TOPIC_ID: Final = Field("topic_id", Uuid, about="Id of the topic.")
INSTANCE_ID: Final = or_null("instance_id", String, about="group.instance.id, null for none.")
RACK_ID: Final = or_null("rack_id", String, about="client.rack, null for none.")
CLIENT: Final = (
    Field("client_id", String, about="client.id."),
    Field("client_host", String, about="Where it connects from."),
)
DESCRIBED: Final = (
    ERROR_CODE,
    ERROR_MESSAGE,
    GROUP_ID,
    Field("group_state", String, about="Its state."),
    Field("group_epoch", Int32, about="Its epoch."),
    Field("assignment_epoch", Int32, about="Epoch of the target assignment."),
)
"""What every description of a group begins with."""


def _describe(name: str, api_key: int, versions: str, group: Struct, *more: Field) -> tuple[Message, Message]:
    """The request about groups of a type, with its response. `more`: further fields of the request."""
    described = Field("groups", Array(group), about="One for each group that was asked for.")
    return api(name, api_key, versions, (*GROUP_IDS, *more), (THROTTLE_TIME, described))


TOPIC_PARTITIONS: Final = Struct(
    "TopicPartitions",
    (
        TOPIC_ID,
        Field("topic_name", String, about="Its name."),
        Field("partitions", Array(Int32), about="Partitions of it."),
    ),
)
ASSIGNMENT: Final = Struct("Assignment", (Field("topic_partitions", Array(TOPIC_PARTITIONS), about="By topic."),))

# --- consumer groups

CONSUMER_GROUP_MEMBER: Final = Struct(
    "Member",
    (
        Field("member_id", String, about="The member."),
        INSTANCE_ID,
        RACK_ID,
        Field("member_epoch", Int32, about="Epoch the member is reconciled to."),
        *CLIENT,
        Field("subscribed_topic_names", Array(String), about="Topics it subscribes to by name."),
        or_null("subscribed_topic_regex", String, about="Its pattern, null for none."),
        Field("assignment", ASSIGNMENT, about="What it has, with what it has still to give up."),
        Field("target_assignment", ASSIGNMENT, about="What it is to have."),
        Field(
            "member_type",
            Int8,
            versions="1+",
            default=-1,
            ignorable=True,
            about="0 for a member of the classic protocol, 1 for one of the consumer protocol, -1 unknown.",
        ),
    ),
)

CONSUMER_GROUP: Final = Struct(
    "DescribedGroup",
    (
        *DESCRIBED,
        Field("assignor_name", String, about="Assignor which most members ask for."),
        Field("members", Array(CONSUMER_GROUP_MEMBER), about="Its members."),
        AUTHORIZED_OPERATIONS,
    ),
)
CONSUMER_GROUP_DESCRIBE: Final = _describe("ConsumerGroupDescribe", 69, "0-1", CONSUMER_GROUP)

# --- share groups

SHARE_GROUP_MEMBER: Final = Struct(
    "Member",
    (
        Field("member_id", String, about="The member."),
        RACK_ID,
        Field("member_epoch", Int32, about="Epoch the member has."),
        *CLIENT,
        Field("subscribed_topic_names", Array(String), about="Topics it subscribes to."),
        Field("assignment", ASSIGNMENT, about="What it reads from."),
    ),
)

SHARE_GROUP: Final = Struct(
    "DescribedGroup",
    (
        *DESCRIBED,
        Field("assignor_name", String, about="The brokers' assignor."),
        Field("members", Array(SHARE_GROUP_MEMBER), about="Its members."),
        AUTHORIZED_OPERATIONS,
    ),
)
SHARE_GROUP_DESCRIBE: Final = _describe("ShareGroupDescribe", 77, "1", SHARE_GROUP)

SHARE_OFFSETS_TOPIC: Final = Struct(
    "DescribeShareGroupOffsetsRequestTopic",
    (Field("topic_name", String, about="Topic."), Field("partitions", Array(Int32), about="Partitions of it.")),
)
SHARE_OFFSETS_GROUP: Final = Struct(
    "DescribeShareGroupOffsetsRequestGroup",
    (
        GROUP_ID,
        Field(
            "topics",
            Array(SHARE_OFFSETS_TOPIC),
            nullable=ALL,
            about="What to describe, null for all that the group reads.",
        ),
    ),
)
PARTITION_OFFSETS: Final = Struct(
    "DescribeShareGroupOffsetsResponsePartition",
    (
        Field("partition_index", Int32, about="Partition."),
        Field("start_offset", Int64, about="-1: not set yet."),
        Field("leader_epoch", Int32, about="Of its leader."),
        Field("lag", Int64, versions="1+", default=-1, ignorable=True, about="Records not yet done with."),
        ERROR_CODE,
        ERROR_MESSAGE,
    ),
)
TOPIC_OFFSETS: Final = Struct(
    "DescribeShareGroupOffsetsResponseTopic",
    (
        Field("topic_name", String, about="Topic."),
        Field("topic_id", Uuid, about="Its id."),
        Field("partitions", Array(PARTITION_OFFSETS)),
    ),
)
GROUP_OFFSETS: Final = Struct(
    "DescribeShareGroupOffsetsResponseGroup",
    (GROUP_ID, Field("topics", Array(TOPIC_OFFSETS), about="By topic."), ERROR_CODE, ERROR_MESSAGE),
)
DESCRIBE_SHARE_GROUP_OFFSETS: Final = api(
    "DescribeShareGroupOffsets",
    90,
    "0-1",
    (Field("groups", Array(SHARE_OFFSETS_GROUP), about="The groups to describe."),),
    (THROTTLE_TIME, Field("groups", Array(GROUP_OFFSETS), about="One for each group that was asked for.")),
)

# --- the share coordinator

READ_STATE_PARTITION: Final = Struct(
    "PartitionData",
    (
        Field("partition", Int32, about="Partition of it."),
        Field("leader_epoch", Int32, about="A higher one than the coordinator's is written."),
    ),
)
READ_STATE_TOPIC: Final = Struct(
    "ReadStateData",
    (TOPIC_ID, Field("partitions", Array(READ_STATE_PARTITION), about="Partitions to read.")),
)
STATE_BATCH: Final = Struct(
    "StateBatch",
    (
        Field("first_offset", Int64, about="First offset."),
        Field("last_offset", Int64, about="Last offset, inclusive."),
        Field("delivery_state", Int8, about="Code of its state."),
        Field("delivery_count", Int16, about="Its delivery count."),
    ),
)
PARTITION_STATE: Final = Struct(
    "PartitionResult",
    (
        Field("partition", Int32, about="Partition of it."),
        ERROR_CODE,
        ERROR_MESSAGE,
        Field("state_epoch", Int32, about="State epoch."),
        Field("start_offset", Int64, about="-1: not set yet."),
        Field("state_batches", Array(STATE_BATCH), about="What is in flight or done."),
    ),
)
TOPIC_STATE: Final = Struct(
    "ReadStateResult", (TOPIC_ID, Field("partitions", Array(PARTITION_STATE), about="By partition."))
)
READ_SHARE_GROUP_STATE: Final = api(
    "ReadShareGroupState",
    84,
    "0",
    (GROUP_ID, Field("topics", Array(READ_STATE_TOPIC), about="By topic.")),
    (Field("results", Array(TOPIC_STATE), about="By topic."),),
)

# --- streams groups

TOPOLOGY_NODE: Final = Struct(
    "TopologyDescriptionNode",
    (
        since_44("name", String, about="Node."),
        since_44("node_type", Int8, about="1 source, 2 processor, 3 sink."),
        since_44("source_topics", Array(String), about="Topics that a source reads."),
        or_null_since_44(
            "sink_topic",
            String,
            about="Topic that a sink writes; null where it is chosen for each record.",
        ),
        since_44("stores", Array(String), about="State stores that a processor uses."),
        since_44("successors", Array(String), about="Nodes behind it."),
    ),
)
TOPOLOGY_PART: Final = Struct(
    "TopologyDescriptionSubtopology",
    (
        since_44("subtopology_id", String, about="Subtopology."),
        since_44("nodes", Array(TOPOLOGY_NODE), about="Its nodes."),
    ),
)
GLOBAL_STORE: Final = Struct(
    "TopologyDescriptionGlobalStore",
    (
        since_44("source", TOPOLOGY_NODE, about="Where its data come from."),
        since_44("processor", TOPOLOGY_NODE, about="What puts them there."),
    ),
)
TOPOLOGY_DESCRIPTION: Final = Struct(
    "TopologyDescription",
    (
        since_44("subtopologies", Array(TOPOLOGY_PART), about="All of them."),
        since_44("global_stores", Array(GLOBAL_STORE), about="Global state stores."),
    ),
)

KEY_VALUE: Final = Struct(
    "KeyValue", (Field("key", String, about="Name."), Field("value", String, about="What it is set to."))
)
TOPIC_INFO: Final = Struct(
    "TopicInfo",
    (
        Field("name", String, about="Topic."),
        Field("partitions", Int32, about="Number of its partitions, 0 where none is enforced."),
        Field("replication_factor", Int16, about="0 for the brokers' default."),
        Field("topic_configs", Array(KEY_VALUE), about="Configs of the topic."),
    ),
)
TASK_IDS: Final = Struct(
    "TaskIds",
    (
        Field("subtopology_id", String, about="Subtopology."),
        Field("partitions", Array(Int32), about="Partitions of its tasks."),
    ),
)
TASKS: Final = Struct(
    "Assignment",
    (
        Field("active_tasks", Array(TASK_IDS), about="Tasks that process."),
        Field("standby_tasks", Array(TASK_IDS), about="Tasks that keep a copy of state."),
        Field("warmup_tasks", Array(TASK_IDS), about="Tasks that build one up."),
    ),
)
TASK_OFFSET: Final = Struct(
    "TaskOffset",
    (
        Field("subtopology_id", String, about="Subtopology."),
        Field("partition", Int32, about="Partition of the task."),
        Field("offset", Int64, about="Offset in its changelogs, summed up."),
    ),
)

STREAMS_GROUP_MEMBER: Final = Struct(
    "Member",
    (
        Field("member_id", String, about="The member."),
        Field("member_epoch", Int32, about="Epoch the member is reconciled to."),
        INSTANCE_ID,
        RACK_ID,
        *CLIENT,
        Field("topology_epoch", Int32, about="Epoch of the member's topology."),
        Field("process_id", String, about="The Streams instance, which may have several members."),
        Field(
            "user_endpoint",
            Struct("Endpoint", (Field("host", String, about="Host."), Field("port", UInt16, about="Port."))),
            nullable=ALL,
            default=None,
            about="For interactive queries, null for none.",
        ),
        Field("client_tags", Array(KEY_VALUE), about="For assignments which spread copies."),
        Field("task_offsets", Array(TASK_OFFSET), about="How far its tasks are."),
        Field("task_end_offsets", Array(TASK_OFFSET), about="How far they could be."),
        Field("assignment", TASKS, about="What it has."),
        Field("target_assignment", TASKS, about="What it is to have."),
        Field("is_classic", Bool, about="Whether it still speaks the classic protocol."),
    ),
)

SUBTOPOLOGY: Final = Struct(
    "Subtopology",
    (
        Field("subtopology_id", String, about="Subtopology."),
        Field("source_topics", Array(String), about="Topics it reads."),
        Field("repartition_sink_topics", Array(String), about="Repartition topics it writes."),
        Field("state_changelog_topics", Array(TOPIC_INFO), about="Changelogs of its state."),
        Field("repartition_source_topics", Array(TOPIC_INFO), about="Repartition topics it reads."),
    ),
)
TOPOLOGY: Final = Struct(
    "Topology",
    (
        Field("epoch", Int32, about="Epoch of the topology."),
        Field(
            "subtopologies",
            Array(SUBTOPOLOGY),
            nullable=ALL,
            default=None,
            about="Null where its topics are not there or do not fit.",
        ),
    ),
)
STREAMS_GROUP: Final = Struct(
    "DescribedGroup",
    (
        *DESCRIBED,
        or_null("topology", TOPOLOGY, about="What the group runs, null with an error."),
        Field("members", Array(STREAMS_GROUP_MEMBER), about="Its members."),
        AUTHORIZED_OPERATIONS,
        or_null_since_44(
            "topology_description",
            TOPOLOGY_DESCRIPTION,
            about="What the broker's plugin keeps, null unless the status is 3.",
        ),
        since_44(
            "topology_description_status",
            Int8,
            default=0,
            about="0 not asked for, 1 none is kept, 2 the plugin failed, 3 it is there.",
        ),
        or_null_since_44("assignor_name", String, about="Assignor of the next assignment; null with an error."),
    ),
)
STREAMS_GROUP_DESCRIBE: Final = _describe(
    "StreamsGroupDescribe",
    89,
    "0-1",
    STREAMS_GROUP,
    since_44(
        "include_topology_description",
        Bool,
        default=False,
        about="Whether to tell the description that the broker's plugin keeps (KIP-1331).",
    ),
)

# --- deleted groups

DELETED_GROUP: Final = Struct(
    "DeletableGroupResult",
    (
        GROUP_ID,
        ERROR_CODE,
        Field(
            "error_message",
            String,
            versions="3+",
            nullable="3+",
            default=None,
            about="Why it was not deleted, in words; null where it was, or where nothing is said.",
        ),
    ),
)
DELETE_GROUPS: Final = api(
    "DeleteGroups",
    42,
    "0-3",
    (Field("groups_names", Array(String), about="The groups to delete."),),
    (THROTTLE_TIME, Field("results", Array(DELETED_GROUP), about="One for each group.")),
    flexible="2+",
)
