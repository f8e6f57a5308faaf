"""Bronze: the log itself, byte for byte, and its coverage."""

from schemas.tables.common import CLUSTER_ID, key
from schemas.tables.declare import (
    BIGINT,
    BINARY,
    BOOLEAN,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    ArrayOf,
    Column,
    Table,
)

RECORD_BATCHES = Table(
    layer="bronze",
    name="record_batches",
    comment="One row a record batch of a coordinator topic as Kafka wrote it; joined by offset, a segment.",
    partition_by=("cluster_id", "topic", "partition"),
    age_column="max_timestamp",
    columns=(
        CLUSTER_ID,
        key("topic", STRING, "Internal topic: __consumer_offsets, __share_group_state, ..."),
        key("partition", INT, "Partition of the internal topic."),
        key("base_offset", BIGINT, "Offset of the batch's first record as first written."),
        Column("last_offset", BIGINT, "Offset of its last record, inclusive; kept through compaction."),
        Column(
            "leader_epoch",
            INT,
            "Leader epoch of the log partition; of a batch without one (message formats 0 and 1) the one that its "
            "replica's leader-epoch-checkpoint has for the offset; null where neither says it.",
        ),
        Column("record_count", INT, "Records left in the batch; 0 for a batch which compaction emptied."),
        Column("magic", TINYINT, "Message format: 2, or 0 and 1 from before Kafka 0.11."),
        Column("codec", STRING, "NONE GZIP SNAPPY LZ4 ZSTD."),
        Column("timestamp_type", STRING, "CREATE_TIME or LOG_APPEND_TIME; null for magic 0."),
        Column("base_timestamp", TIMESTAMP, "First record's time; the delete horizon where compaction set one."),
        Column("max_timestamp", TIMESTAMP, "Latest record's time; null where none."),
        Column("producer_id", BIGINT, "Producer id, -1 where none; null where a dump does not tell."),
        Column("producer_epoch", SMALLINT, "Producer epoch, -1 where none; null as above."),
        Column("base_sequence", INT, "First sequence number; coordinators write 0, markers -1; null as above."),
        Column("is_transactional", BOOLEAN, "Written inside a transaction, markers included; null as above."),
        Column("is_control", BOOLEAN, "Holds a control record; null as above."),
        Column("control_type", STRING, "COMMIT or ABORT for an end-transaction marker, else null."),
        Column(
            "batch",
            BINARY,
            "The whole batch as on disk, header included; changed by an erasure alone. Of a dump, made of its records.",
        ),
        Column("source", STRING, "Where it was read: file, broker or dump."),
        Column("source_kind", STRING, "SEGMENT KAFKA DUMP."),
        Column("captured_at", TIMESTAMP, "Start of the run that captured it."),
        Column("capture_id", STRING, "The run that captured it."),
        Column(
            "crc_valid",
            BOOLEAN,
            "False where the checksum does not fit, or the leader epoch, which it does not cover, cannot be true. "
            "Such a batch is kept, quarantined, and never replayed.",
        ),
        Column("redacted_at", TIMESTAMP, "When an erasure changed the batch; null: its bytes are Kafka's."),
        Column(
            "filled_offsets",
            ArrayOf(BIGINT),
            "Offsets of records that compaction took out of this copy and a dump of rows put back; null: none.",
        ),
    ),
)

COVERAGE = Table(
    layer="bronze",
    name="coverage",
    comment="What of the log was seen and what was not: disjoint offset ranges of each log partition.",
    partition_by=("cluster_id",),
    columns=(
        CLUSTER_ID,
        key("topic", STRING, "Internal topic."),
        key("partition", INT, "Partition of the internal topic."),
        key("from_offset", BIGINT, "First offset of the range."),
        Column("to_offset", BIGINT, "Last offset of the range, inclusive."),
        Column("kind", STRING, "CAPTURED MISSING COMPACTED CORRUPT."),
        Column("reason", STRING, "Why, in words; null for CAPTURED."),
        Column(
            "first_timestamp",
            TIMESTAMP,
            "CAPTURED: of its earliest batch; MISSING, CORRUPT: of the last captured batch before; null where none.",
        ),
        Column(
            "last_timestamp",
            TIMESTAMP,
            "CAPTURED: of its latest batch; MISSING, CORRUPT: of the first captured batch after; null where none.",
        ),
        Column("observed_at", TIMESTAMP, "Start of the run that first saw the range so."),
        Column(
            "leader_epoch",
            INT,
            "COMPACTED, CORRUPT: leader epoch of the batch behind it in the copy that shows it; null where not known.",
        ),
    ),
)

QUARANTINE = Table(
    layer="bronze",
    name="quarantine",
    comment="What could not be read or replayed; the batch itself stays in bronze.record_batches.",
    partition_by=("cluster_id",),
    columns=(
        Column("cluster_id", STRING, "The Kafka cluster."),
        Column("topic", STRING, "Internal topic."),
        Column("partition", INT, "Partition of the internal topic."),
        Column("offset", BIGINT, "Offset of the record; null when not known."),
        Column("base_offset", BIGINT, "Base offset of its batch; null when not known."),
        Column("stage", STRING, "FILE BATCH RECORD VALUE REPLAY."),
        Column("code", STRING, "What is wrong, as a code: CRC_MISMATCH, LENGTH_OUT_OF_BOUNDS, ..."),
        Column("message", STRING, "What is wrong, in words.", is_personal=True),
        Column("byte_position", BIGINT, "Where: in the file for stage FILE and BATCH, else in the value."),
        Column("bytes", BINARY, "The bytes, at most 64 KiB; where copies part ways 1 MiB.", is_personal=True),
        Column("source", STRING, "File or broker."),
        Column("seen_at", TIMESTAMP, "Start of the run that met it."),
        Column("resolved_at", TIMESTAMP, "Start of the run since which it is no gap any more; null: it is one."),
        Column("resolved_by", STRING, "What put it right, in words: a good copy of the file, another source, ..."),
        Column(
            "from_offset",
            BIGINT,
            "Stage FILE: the first offset that the bytes may have contained; null where not known.",
        ),
        Column("to_offset", BIGINT, "Stage FILE: the last one, inclusive, less than the first: none; null as above."),
        Column(
            "group_id",
            STRING,
            "The group whose record it is, where its key can be read: stage VALUE, and records not printed by a dump.",
        ),
    ),
)

END_OFFSETS = Table(
    layer="bronze",
    name="end_offsets",
    comment="Samples of source topics' log ends, for lag.",
    partition_by=("cluster_id",),
    age_column="sampled_at",
    columns=(
        CLUSTER_ID,
        key("topic", STRING, "Source topic."),
        key("partition", INT, "Partition of it."),
        key("sampled_at", TIMESTAMP, "When it was asked."),
        Column("log_start_offset", BIGINT, "Log start offset then."),
        Column("end_offset", BIGINT, "Next offset to be written then."),
    ),
)

TOPICS = Table(
    layer="bronze",
    name="topics",
    comment="Topics as a live cluster's Admin named them: a row when a topic is first named, when its number of "
    "partitions changed, and when it is not named any more.",
    partition_by=("cluster_id",),
    columns=(
        CLUSTER_ID,
        key("topic_id", STRING, "Topic id, 22 characters as Kafka prints it."),
        key("observed_at", TIMESTAMP, "When the cluster was asked.", former_name="told_at"),
        Column("topic", STRING, "Its name."),
        Column("partition_count", INT, "Its partitions then; null where it is not named any more."),
        Column("is_deleted", BOOLEAN, "Named before, and not any more: deleted between the two."),
    ),
)

CONFIGS = Table(
    layer="bronze",
    name="configs",
    comment="Configs of groups, topics and brokers in force, as a live cluster's Admin reported them: a row when a "
    "value is first reported, and when it changed. Only configs of groups, offsets and retention are kept.",
    partition_by=("cluster_id",),
    columns=(
        CLUSTER_ID,
        key("resource_type", STRING, "GROUP TOPIC BROKER."),
        key("resource_name", STRING, "Group id, topic or broker id."),
        key("name", STRING, "Name of the config."),
        key("observed_at", TIMESTAMP, "When the cluster was asked.", former_name="told_at"),
        Column("value", STRING, "The value in force; null: reported before, and no longer."),
        Column("source", STRING, "Where Kafka has the value from: GROUP_CONFIG, DEFAULT_CONFIG, ..."),
    ),
)

IDENTITIES = Table(
    layer="bronze",
    name="identities",
    comment="Which Kafka cluster and which internal topics the logs are of: ids as they were first captured. Logs with "
    "another id are refused.",
    partition_by=("cluster_id",),
    columns=(
        CLUSTER_ID,
        key("kind", STRING, "CLUSTER: the cluster's own id; TOPIC: the id of an internal topic."),
        key("topic", STRING, "Internal topic; empty for the cluster."),
        Column("id", STRING, "The id as Kafka prints it."),
        Column("source", STRING, "Where it was first found: folder of a broker's log directory, or live cluster."),
        Column("seen_at", TIMESTAMP, "Start of the run that first captured it."),
    ),
)

LOG_PARTITIONS = Table(
    layer="bronze",
    name="log_partitions",
    comment="Log partitions of internal topics that captures found, empty ones too, and up to when each was read.",
    partition_by=("cluster_id",),
    columns=(
        CLUSTER_ID,
        key("topic", STRING, "Internal topic."),
        key("partition", INT, "Partition of the internal topic."),
        Column("first_seen_at", TIMESTAMP, "Start of the run that first found it."),
        Column(
            "read_until",
            TIMESTAMP,
            "All that a live cluster had until then was read, or a copy that was made then (--copied-at); null: it was "
            "read from files or dumps alone, which prove nothing behind their last record.",
        ),
        Column(
            "partition_count",
            INT,
            "How many partitions the topic has, by a live cluster or by --partitions, the most that was said; null "
            "where neither said it.",
        ),
    ),
)

BRONZE_TABLES = (RECORD_BATCHES, COVERAGE, QUARANTINE, END_OFFSETS, TOPICS, CONFIGS, IDENTITIES, LOG_PARTITIONS)
