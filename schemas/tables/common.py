"""Columns that many tables share, so that a name means the same everywhere."""

from dataclasses import replace

from schemas.tables.declare import BIGINT, BOOLEAN, INT, STRING, TIMESTAMP, Column, Type


def key(name: str, type_: Type, comment: str, *, is_personal: bool = False) -> Column:
    """A column of the natural key."""
    return Column(name, type_, comment, is_key=True, is_personal=is_personal)


CLUSTER_ID = key("cluster_id", STRING, "The Kafka cluster, as named by --cluster-id.")
GROUP_ID = key("group_id", STRING, "The group.")
GROUP_TYPE = key("group_type", STRING, "CLASSIC, CONSUMER, SHARE or STREAMS.")
MEMBER_ID = key("member_id", STRING, "The member.", is_personal=True)
INSTANCE_ID = Column("instance_id", STRING, "Static member's group.instance.id, else null.", is_personal=True)
CLIENT_ID = Column("client_id", STRING, "The member's client.id.", is_personal=True)
CLIENT_HOST = Column("client_host", STRING, "The member's host, as the broker saw it.", is_personal=True)
LOG_PARTITION = Column("log_partition", INT, "Partition of the coordinator topic.")
IS_FORMER_LOG_PARTITION = Column(
    "is_former_log_partition",
    BOOLEAN,
    "Its records are in another log partition now, since __consumer_offsets grew; an open interval ended.",
)
IS_FORMER_SHARE_LOG_PARTITION = Column(
    "is_former_log_partition",
    BOOLEAN,
    "Its records are in another log partition now, since __share_group_state grew.",
)
FROM_LOG_OFFSET = Column("from_log_offset", BIGINT, "Offset of the record that began it.")
TO_LOG_OFFSET = Column("to_log_offset", BIGINT, "Offset of the record that ended it; null while open.")
VALID_FROM = Column("valid_from", TIMESTAMP, "When it began (inclusive).")
VALID_TO = Column("valid_to", TIMESTAMP, "When it ended (exclusive).")
INCARNATION = Column("incarnation", INT, "How often the group id was created again before.")
FROM_GENERATION = Column("from_generation", INT, "Generation or epoch in which it began, inclusive.")
TO_GENERATION = Column("to_generation", INT, "Its last generation or epoch, inclusive; while open the newest.")
IS_SETTLED = Column("is_settled", BOOLEAN, "False: it may still change.")
IS_COMPLETE = Column("is_complete", BOOLEAN, "False until a snapshot of the share partition has been seen.")

SETTLED_APART = ("cluster_id", "is_settled")
"""`partition_by` of tables with `is_settled`: a run replaces only the files of rows that are not settled."""
LOG_KEY = (
    CLUSTER_ID,
    key("topic", STRING, "Internal topic."),
    key("partition", INT, "Partition of the internal topic."),
)
SHARE_KEY = (
    CLUSTER_ID,
    GROUP_ID,
    key("topic_id", STRING, "Topic id."),
    key("partition", INT, "Partition of the topic."),
)
SHARE_PARTITION_OR_GROUP = (
    key("topic_id", STRING, "For a share partition, the id of its topic; null for a group."),
    key("partition", INT, "For a share partition, the partition of its topic; null for a group."),
)
TOPIC_OF_ID = Column("topic", STRING, "Name of the topic; null while unknown.")


def as_key(column: Column) -> Column:
    """The same column as part of the natural key."""
    return replace(column, is_key=True)
