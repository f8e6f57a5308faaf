"""Silver: the state and events of the coordinators over time."""

from functools import partial

from schemas.tables.common import (
    CLIENT_HOST,
    CLIENT_ID,
    CLUSTER_ID,
    FROM_GENERATION,
    FROM_LOG_OFFSET,
    GROUP_ID,
    GROUP_TYPE,
    INCARNATION,
    INSTANCE_ID,
    IS_COMPLETE,
    IS_SETTLED,
    LOG_PARTITION,
    MEMBER_ID,
    SETTLED_APART,
    SHARE_KEY,
    SHARE_PARTITION_OR_GROUP,
    TO_GENERATION,
    TO_LOG_OFFSET,
    TOPIC_OF_ID,
    VALID_FROM,
    VALID_TO,
    as_key,
    key,
)
from schemas.tables.declare import BIGINT, BOOLEAN, INT, STRING, TIMESTAMP, ArrayOf, Column, MapOf, StructOf, Table

silver_table = partial(Table, "silver")
settling_table = partial(silver_table, partition_by=SETTLED_APART)

LOG_OFFSET = key("log_offset", BIGINT, "Offset in the log partition.")

OFFSET_COMMITS = settling_table(
    name="offset_commits",
    comment="One row per offset-commit record or tombstone, with its outcome; and one at the first offset of a leader "
    "epoch for each committed offset that the new leader did not load, since the log start had moved.",
    columns=(
        CLUSTER_ID,
        as_key(LOG_PARTITION),
        LOG_OFFSET,
        key("group_id", STRING, "The group that committed."),
        key("topic", STRING, "Topic of the committed offset."),
        Column("topic_id", STRING, "Its id; null before value version 4 and in transactional commits."),
        key("partition", INT, "Partition of the committed offset."),
        Column("committed_offset", BIGINT, "Next offset to read; null in a tombstone."),
        Column("leader_epoch", INT, "Leader epoch of the last consumed record; null for none."),
        Column("metadata", STRING, "The client's metadata string; null in a tombstone.", is_personal=True),
        Column("commit_time", TIMESTAMP, "Commit time by the coordinator; null in a tombstone."),
        Column("expire_time", TIMESTAMP, "Explicit expiry (value version 1); null for none."),
        Column("recorded_at", TIMESTAMP, "The record's own timestamp."),
        Column("producer_id", BIGINT, "Transactional producer, -1 for none; null if a dump does not contain it."),
        Column("is_transactional", BOOLEAN, "Written in a transactional batch; null if a dump does not contain it."),
        Column(
            "outcome",
            STRING,
            "APPLIED; ABORTED; PENDING: no marker yet; SUPERSEDED: committed, but a newer record was already "
            "applied, or it was replaced, deleted or forgotten before the marker.",
        ),
        Column(
            "applied_log_offset",
            BIGINT,
            "Where it took effect: the marker's offset in a transaction; null unless APPLIED.",
        ),
        Column(
            "applied_at",
            TIMESTAMP,
            "When it took effect; commit_time if a plain record has no timestamp; null unless APPLIED.",
        ),
        Column(
            "change",
            STRING,
            "FIRST ADVANCE REPEAT REWIND DELETE; FORGOTTEN: a new leader did not load it; null unless APPLIED.",
        ),
        Column("previous_offset", BIGINT, "Offset in force before it was applied; null if there was none."),
        Column("delta", BIGINT, "committed_offset minus previous_offset; null if either is null."),
        IS_SETTLED,
    ),
)

GROUP_GENERATIONS = settling_table(
    name="group_generations",
    comment="One row per generation (classic) or group epoch (consumer, share, streams).",
    columns=(
        CLUSTER_ID,
        GROUP_ID,
        GROUP_TYPE,
        as_key(INCARNATION),
        key("generation", INT, "Generation of a classic group, group epoch of other groups."),
        LOG_PARTITION,
        FROM_LOG_OFFSET,
        TO_LOG_OFFSET,
        VALID_FROM,
        VALID_TO,
        Column("state", STRING, "Group state at the end of the interval, as Kafka spells it."),
        Column("protocol_type", STRING, "Classic: consumer, connect, ...; others: null."),
        Column(
            "protocol_name",
            STRING,
            "Classic: the voted protocol (`range` `roundrobin` `sticky` `cooperative-sticky`; of Connect `eager` "
            "`compatible` `sessioned`); others: the assignor, if members name one (`uniform` `range`).",
        ),
        Column("leader_member_id", STRING, "Classic: the leader.", is_personal=True),
        Column("member_count", INT, "Members at the end of the interval."),
        Column("assignment_epoch", INT, "Epoch of the target assignment; null for classic."),
        Column("topology_epoch", INT, "Streams: epoch of the topology."),
        Column("metadata_hash", BIGINT, "Hash of the subscribed topics' metadata; null for classic."),
        Column(
            "previous_generation",
            INT,
            "The generation before, null for the first; the same one where a new leader loaded only a part of the "
            "group.",
        ),
        Column("is_contiguous", BOOLEAN, "False if generations before this one are not in the log."),
        Column(
            "current_state_at",
            TIMESTAMP,
            "Classic: when the group entered the state in which the generation was written (with members: the "
            "end of the join phase); null for others.",
        ),
        Column(
            "unread_members",
            ArrayOf(STRING),
            "Classic: members whose assignment cannot be read, sorted. What they own is unknown.",
            is_personal=True,
        ),
        IS_SETTLED,
    ),
)

MEMBER_COLUMNS = (
    CLUSTER_ID,
    GROUP_ID,
    GROUP_TYPE,
    MEMBER_ID,
    as_key(FROM_LOG_OFFSET),
    LOG_PARTITION,
    TO_LOG_OFFSET,
    VALID_FROM,
    VALID_TO,
    INCARNATION,
    INSTANCE_ID,
    CLIENT_ID,
    CLIENT_HOST,
    Column("rack_id", STRING, "The member's rack.", is_personal=True),
    Column("subscribed_topics", ArrayOf(STRING), "Topic names it subscribed to, sorted; null if unknown."),
    Column("subscribed_regex", STRING, "Its subscription pattern; null for none."),
    Column("server_assignor", STRING, "The server assignor it asked for; null for none."),
    Column("rebalance_timeout_ms", INT, "Its rebalance timeout; null for share groups."),
    Column("session_timeout_ms", INT, "Its session timeout; null if it is not in the log."),
    Column("process_id", STRING, "Streams: the process that it is part of.", is_personal=True),
    FROM_GENERATION,
    TO_GENERATION,
)
"""A member's interval and its attributes."""

GROUP_MEMBERS = settling_table(
    name="group_members",
    comment="One row per interval of membership, with the member's fields at its end.",
    columns=(
        *MEMBER_COLUMNS,
        Column(
            "ended_by",
            STRING,
            "LEFT_OR_EXPIRED REPLACED_STATIC GROUP_DELETED CONVERTED; FORGOTTEN: a new leader did not load it, since "
            "the log start had moved; null while open.",
        ),
        Column("member_epoch", INT, "Member epoch at the end of the interval; null for classic groups."),
        Column("uses_classic_protocol", BOOLEAN, "A classic-protocol member inside a consumer group."),
        IS_SETTLED,
    ),
)

MEMBER_ATTRIBUTES = settling_table(
    name="member_attributes",
    comment="One row per interval in which a member had the same attributes; silver.group_members has those at "
    "the end of its membership.",
    columns=(
        *MEMBER_COLUMNS,
        Column("uses_classic_protocol", BOOLEAN, "A classic-protocol member inside a consumer group."),
        IS_SETTLED,
    ),
)

MEMBER_ASSIGNMENTS = settling_table(
    name="member_assignments",
    comment="One row per interval in which a member had a partition: as target, as current assignment, or to be "
    "revoked.",
    columns=(
        CLUSTER_ID,
        GROUP_ID,
        GROUP_TYPE,
        MEMBER_ID,
        key("topic_id", STRING, "Topic id; null for classic and streams groups."),
        key("topic", STRING, "Topic; subtopology id for streams; connector for Connect; null while no name is known."),
        key("partition", INT, "Partition; task for streams and Connect (-1: the connector itself)."),
        key("assignment", STRING, "TARGET CURRENT REVOKING; classic groups: CURRENT only."),
        key("task_type", STRING, "Streams: ACTIVE STANDBY WARMUP; else null."),
        as_key(FROM_LOG_OFFSET),
        LOG_PARTITION,
        TO_LOG_OFFSET,
        VALID_FROM,
        VALID_TO,
        INCARNATION,
        FROM_GENERATION,
        TO_GENERATION,
        IS_SETTLED,
    ),
)

GROUP_EVENTS = settling_table(
    name="group_events",
    comment="Every change of a group, in words.",
    columns=(
        CLUSTER_ID,
        as_key(LOG_PARTITION),
        LOG_OFFSET,
        key(
            "event_index",
            INT,
            "Number of the event within one record, from 0; at a marker, from its group's commit; "
            "FORGOTTEN: a high one.",
        ),
        Column("group_id", STRING, "The group."),
        Column("group_type", STRING, "CLASSIC CONSUMER SHARE STREAMS, after the event; null if unknown."),
        Column("event_type", STRING, "GROUP_CREATED, MEMBER_JOINED, ... ANOMALY."),
        Column("at", TIMESTAMP, "The record's timestamp."),
        Column("generation", INT, "Generation or group epoch after it; MEMBER_RECONCILED: the member epoch."),
        Column("member_id", STRING, "The member concerned, if any.", is_personal=True),
        Column("topic", STRING, "The topic concerned, if any."),
        Column("partition", INT, "The partition concerned, if any."),
        Column(
            "details",
            MapOf(STRING, STRING),
            "Further details, by name: `from` `to` `topics_before` `topics_after` `regex_before` `regex_after` "
            "`previous_member_epoch`; `online`: members stayed in the conversion; `patterns_new` "
            "`patterns_changed` `replaced_member_id` `subtopologies`; of Connect: `config_offset` `revoked_count` "
            "`delay_ms`.",
            is_personal=True,
        ),
        IS_SETTLED,
    ),
)

SHARE_PARTITION_STATES = settling_table(
    name="share_partition_states",
    comment="One row per ShareSnapshot, ShareUpdate or tombstone, with the merged state after it.",
    columns=(
        *SHARE_KEY,
        LOG_OFFSET,
        LOG_PARTITION,
        TOPIC_OF_ID,
        Column("record_kind", STRING, "SNAPSHOT COLD_SNAPSHOT UPDATE TOMBSTONE RESET."),
        VALID_FROM,
        VALID_TO,
        Column("to_log_offset", BIGINT, "Offset of the next record of the share partition; null while open."),
        Column("snapshot_epoch", INT, "Snapshot epoch in force; null in a tombstone."),
        Column("state_epoch", INT, "State epoch in force; null in a tombstone."),
        Column("leader_epoch", INT, "Leader epoch in force; null in a tombstone."),
        Column("start_offset", BIGINT, "Start offset as persisted; -1: not yet set."),
        Column(
            "effective_start_offset",
            BIGINT,
            "The start offset, moved over the terminal batches that follow it: a lower bound of the true one.",
        ),
        Column("delivery_complete_count", INT, "Terminal offsets from the start offset on; null for -1."),
        Column("create_time", TIMESTAMP, "Create time of the snapshot in force; null if unknown."),
        Column("write_time", TIMESTAMP, "Write time of the snapshot in force; null if unknown."),
        Column(
            "changed_batches",
            ArrayOf(
                StructOf(
                    (
                        ("first_offset", BIGINT),
                        ("last_offset", BIGINT),
                        ("delivery_state", STRING),
                        ("delivery_count", INT),
                    )
                )
            ),
            "The batches in this record, combined; AVAILABLE ACKNOWLEDGED ARCHIVING ARCHIVED.",
        ),
        Column("batch_count", INT, "Batches in the merged state."),
        Column("available_count", BIGINT, "Offsets AVAILABLE in the merged state."),
        Column("acknowledged_count", BIGINT, "Offsets ACKNOWLEDGED in the merged state."),
        Column("archived_count", BIGINT, "Offsets ARCHIVED in the merged state."),
        IS_COMPLETE,
        IS_SETTLED,
        Column(
            "archiving_count",
            BIGINT,
            "Offsets ARCHIVING in the merged state: given up, and being copied to a dead letter topic (Kafka 4.4).",
        ),
    ),
)

SHARE_STATE_BATCHES = settling_table(
    name="share_state_batches",
    comment="The in-flight batches as intervals: the open rows at a log position are the merged state.",
    columns=(
        *SHARE_KEY,
        key("first_offset", BIGINT, "First offset of the batch."),
        as_key(FROM_LOG_OFFSET),
        LOG_PARTITION,
        TOPIC_OF_ID,
        Column("last_offset", BIGINT, "Last offset of the batch, inclusive."),
        Column("delivery_state", STRING, "AVAILABLE ACKNOWLEDGED ARCHIVING ARCHIVED."),
        Column("delivery_state_code", INT, "Kafka's code for the delivery state: 0 2 3 4."),
        Column("delivery_count", INT, "Delivery count."),
        VALID_FROM,
        VALID_TO,
        TO_LOG_OFFSET,
        IS_COMPLETE,
        IS_SETTLED,
    ),
)

SHARE_BATCH_TRANSITIONS = settling_table(
    name="share_batch_transitions",
    comment="How an offset range of a share partition went from one state to the next.",
    columns=(
        *SHARE_KEY,
        LOG_OFFSET,
        key("first_offset", BIGINT, "First offset of the range."),
        LOG_PARTITION,
        TOPIC_OF_ID,
        Column("last_offset", BIGINT, "Last offset of the range, inclusive."),
        Column("at", TIMESTAMP, "The record's timestamp."),
        Column("from_state", STRING, "Delivery state before; null if no batch was known."),
        Column("from_delivery_count", INT, "Delivery count before; null if no batch was known."),
        Column("to_state", STRING, "Delivery state after; null if no batch is known."),
        Column("to_delivery_count", INT, "Delivery count after; null if no batch is known."),
        Column("leader_changed", BOOLEAN, "This record has another leader epoch."),
        Column(
            "kind",
            STRING,
            "FIRST_SEEN REDELIVERABLE RETRIED RETURNED ACKNOWLEDGED ARCHIVING ARCHIVED PASSED RESET. RETURNED: an "
            "update names the state and count that the range has: one more delivery and hand-back, not counted. "
            "ARCHIVING: the broker first copies it to a dead letter topic; ARCHIVED follows.",
        ),
        IS_SETTLED,
    ),
)

TOPICS = silver_table(
    name="topics",
    comment="Names of topic ids over time.",
    columns=(
        CLUSTER_ID,
        key("topic_id", STRING, "Topic id."),
        Column("topic", STRING, "Its name."),
        Column("valid_from", TIMESTAMP, "Earliest time at which the name is known; null if no time is known."),
        Column("valid_to", TIMESTAMP, "When the topic was deleted; null if no deletion is known."),
        Column(
            "learned_from", STRING, "CLUSTER_METADATA SHARE_PARTITIONS OFFSET_COMMIT SUBSCRIPTION REGEX TOPOLOGY ADMIN."
        ),
    ),
)

PARTITION_COUNTS = silver_table(
    name="partition_counts",
    comment="How many partitions topics had over time, including internal ones: one row per number of "
    "partitions, if the metadata log or the Admin API gives it.",
    columns=(
        CLUSTER_ID,
        key("topic_id", STRING, "Topic id."),
        Column("topic", STRING, "Its name; null while no name is known."),
        key("partition_count", INT, "Number of its partitions."),
        Column(
            "valid_from", TIMESTAMP, "Earliest time at which it is known to have this number; null if no time is known."
        ),
        Column("valid_to", TIMESTAMP, "When it got more, or was deleted; null if neither is known."),
        Column(
            "learned_from", STRING, "CLUSTER_METADATA: PartitionRecords of the metadata log; ADMIN: a live cluster."
        ),
    ),
)

COORDINATOR_PARTITIONS = silver_table(
    name="coordinator_partitions",
    comment="In which partition of its coordinator topic Kafka looked for a group or a share partition, and "
    "when: one row per interval, only for those with records in several partitions of the topic, "
    "because it got more partitions.",
    columns=(
        CLUSTER_ID,
        key("log_topic", STRING, "The coordinator topic: __consumer_offsets for groups, __share_group_state."),
        GROUP_ID,
        *SHARE_PARTITION_OR_GROUP,
        key("valid_from", TIMESTAMP, "Since when (inclusive); null: from the beginning."),
        Column("valid_to", TIMESTAMP, "Until when (exclusive); null: Kafka looks for it there now."),
        Column("log_partition", INT, "Partition of the coordinator topic where Kafka looked for it."),
        Column(
            "former_log_partitions",
            ArrayOf(INT),
            "Partitions of the coordinator topic with older records of it, which do not apply to this interval.",
        ),
        Column("partition_count", INT, "The number of partitions that puts it there; null for BEGAN_LAST."),
        Column(
            "learned_from",
            STRING,
            "Where that number comes from: CLUSTER_METADATA; ADMIN; SETTING: --partitions, or the partitions "
            "that a live capture read; HIGHEST_SEEN: the highest partition found; EARLIER_COUNT: the newest "
            "number gives a partition without records of it, so an earlier number is used. BEGAN_LAST: no "
            "number explains it, and its records there begin last.",
        ),
    ),
)

CONFIGS = silver_table(
    name="configs",
    comment="How groups, topics and brokers were configured, if the metadata log or the Admin API gives it: one "
    "row per interval of a value. Only configs of groups, offsets and retention are kept, and levels of "
    "the cluster's features.",
    columns=(
        CLUSTER_ID,
        key(
            "resource_type",
            STRING,
            "GROUP TOPIC BROKER; FEATURE: a level of a feature, such as metadata.version; TRANSACTION: a topic that "
            "transactions write to, as __transaction_state shows (isTransactional).",
        ),
        key(
            "resource_name",
            STRING,
            "Group id, topic or broker id; empty for the default of all brokers and for features.",
        ),
        key("name", STRING, "Name of the config or feature."),
        as_key(FROM_LOG_OFFSET),
        Column("value", STRING, "The value that was set."),
        TO_LOG_OFFSET,
        as_key(VALID_FROM),
        VALID_TO,
    ),
)

SILVER_TABLES = (
    OFFSET_COMMITS,
    GROUP_GENERATIONS,
    GROUP_MEMBERS,
    MEMBER_ATTRIBUTES,
    MEMBER_ASSIGNMENTS,
    GROUP_EVENTS,
    SHARE_PARTITION_STATES,
    SHARE_STATE_BATCHES,
    SHARE_BATCH_TRANSITIONS,
    TOPICS,
    PARTITION_COUNTS,
    COORDINATOR_PARTITIONS,
    CONFIGS,
)
