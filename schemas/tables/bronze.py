"""Bronze: the log itself, byte for byte, and its coverage."""

from functools import partial

from schemas.tables.common import CLUSTER_ID, LOG_KEY, key
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

bronze_table = partial(Table, "bronze")

RECORD_BATCHES = bronze_table(
    name="record_batches",
    comment="One row per record batch of a coordinator topic, as Kafka wrote it; concatenated in offset order, "
    "they are a segment.",
    partition_by=("cluster_id", "topic", "partition"),
    age_column="max_timestamp",
    columns=(
        CLUSTER_ID,
        key("topic", STRING, "Internal topic: __consumer_offsets, __share_group_state, ..."),
        key("partition", INT, "Partition of the internal topic."),
        key("base_offset", BIGINT, "Offset of the batch's first record as first written."),
        Column("last_offset", BIGINT, "Offset of its last record, inclusive; compaction keeps it."),
        Column(
            "leader_epoch",
            INT,
            "Leader epoch of the log partition; for a batch without one (message formats 0 and 1), the one in "
            "its replica's leader-epoch-checkpoint for the offset; null if neither has it.",
        ),
        Column("record_count", INT, "Records left in the batch; 0 for a batch that compaction emptied."),
        Column("magic", TINYINT, "Message format: 2, or 0 and 1 from before Kafka 0.11."),
        Column("codec", STRING, "NONE GZIP SNAPPY LZ4 ZSTD."),
        Column("timestamp_type", STRING, "CREATE_TIME or LOG_APPEND_TIME; null for magic 0."),
        Column("base_timestamp", TIMESTAMP, "Timestamp of the first record; the delete horizon if compaction set one."),
        Column("max_timestamp", TIMESTAMP, "Highest timestamp of a record; null if there is none."),
        Column("producer_id", BIGINT, "Producer id, -1 for none; null if a dump does not contain it."),
        Column("producer_epoch", SMALLINT, "Producer epoch, -1 for none; null as above."),
        Column("base_sequence", INT, "First sequence number; coordinators write 0, markers -1; null as above."),
        Column("is_transactional", BOOLEAN, "Written in a transaction, including markers; null as above."),
        Column("is_control", BOOLEAN, "Contains a control record; null as above."),
        Column("control_type", STRING, "COMMIT or ABORT for an end-transaction marker, else null."),
        Column(
            "batch",
            BINARY,
            "The whole batch as on disk, including its header; only an erasure changes it. For a dump, it is "
            "made from the dump's records.",
        ),
        Column("source", STRING, "Where it was read: file, broker or dump."),
        Column("source_kind", STRING, "SEGMENT KAFKA DUMP."),
        Column("captured_at", TIMESTAMP, "Start of the run that captured it."),
        Column("capture_id", STRING, "The run that captured it."),
        Column(
            "crc_valid",
            BOOLEAN,
            "False if the checksum does not match, or if the leader epoch, which it does not cover, cannot be "
            "right. Such a batch is kept, quarantined, and never replayed.",
        ),
        Column("redacted_at", TIMESTAMP, "When an erasure changed the batch; null: its bytes are Kafka's."),
        Column(
            "filled_offsets",
            ArrayOf(BIGINT),
            "Offsets of records that compaction removed from this copy and a dump of rows put back; null: none.",
        ),
    ),
)

COVERAGE = bronze_table(
    name="coverage",
    comment="Which parts of the log were seen and which were not: disjoint offset ranges of each log partition.",
    columns=(
        *LOG_KEY,
        key("from_offset", BIGINT, "First offset of the range."),
        Column("to_offset", BIGINT, "Last offset of the range, inclusive."),
        Column("kind", STRING, "CAPTURED MISSING COMPACTED CORRUPT."),
        Column("reason", STRING, "Why, in words; null for CAPTURED."),
        Column(
            "first_timestamp",
            TIMESTAMP,
            "CAPTURED: timestamp of its earliest batch; MISSING, CORRUPT: of the last captured batch before; "
            "null if there is none.",
        ),
        Column(
            "last_timestamp",
            TIMESTAMP,
            "CAPTURED: timestamp of its latest batch; MISSING, CORRUPT: of the first captured batch after; null "
            "if there is none.",
        ),
        Column("observed_at", TIMESTAMP, "Start of the run that first saw the range like this."),
        Column(
            "leader_epoch",
            INT,
            "COMPACTED, CORRUPT: leader epoch of the batch after it in the copy that shows it; null if unknown.",
        ),
    ),
)

QUARANTINE = bronze_table(
    name="quarantine",
    comment="What could not be read or replayed; the batch itself stays in bronze.record_batches.",
    columns=(
        Column("cluster_id", STRING, "The Kafka cluster."),
        Column("topic", STRING, "Internal topic."),
        Column("partition", INT, "Partition of the internal topic."),
        Column("offset", BIGINT, "Offset of the record; null if unknown."),
        Column("base_offset", BIGINT, "Base offset of its batch; null if unknown."),
        Column("stage", STRING, "FILE BATCH RECORD VALUE REPLAY."),
        Column("code", STRING, "What is wrong, as a code: CRC_MISMATCH, LENGTH_OUT_OF_BOUNDS, ..."),
        Column(
            "message",
            STRING,
            "What is wrong; in huge batches, of how many records.",
            is_personal=True,
        ),
        Column("byte_position", BIGINT, "Byte position: in the file for stage FILE and BATCH, else in the value."),
        Column("bytes", BINARY, "The bytes, at most 64 KiB; 1 MiB where copies diverge.", is_personal=True),
        Column("source", STRING, "File or broker."),
        Column("seen_at", TIMESTAMP, "Start of the run that found it."),
        Column(
            "resolved_at", TIMESTAMP, "Start of the run since which it is not a gap any more; null: it still is one."
        ),
        Column("resolved_by", STRING, "What resolved it, in words: a good copy of the file, another source, ..."),
        Column(
            "from_offset", BIGINT, "Stage FILE: the first offset that the bytes may have contained; null if unknown."
        ),
        Column(
            "to_offset",
            BIGINT,
            "Stage FILE: the last such offset, inclusive; lower than from_offset: none; null as above.",
        ),
        Column(
            "group_id",
            STRING,
            "The group of the record, if its key can be read: stage VALUE, and records that a dump does not print.",
        ),
    ),
)

END_OFFSETS = bronze_table(
    name="end_offsets",
    comment="Samples of the log end offsets of source topics, for lag.",
    age_column="sampled_at",
    columns=(
        CLUSTER_ID,
        key("topic", STRING, "Source topic."),
        key("partition", INT, "Partition of this topic."),
        key("sampled_at", TIMESTAMP, "When the cluster was asked."),
        Column("log_start_offset", BIGINT, "Log start offset at that time."),
        Column("end_offset", BIGINT, "Log end offset at that time: the next offset to be written."),
    ),
)

TOPICS = bronze_table(
    name="topics",
    comment="Topics as a live cluster's Admin API listed them: a row when a topic is first listed, when its "
    "number of partitions changed, and when it is not listed any more.",
    columns=(
        CLUSTER_ID,
        key("topic_id", STRING, "Topic id."),
        key("observed_at", TIMESTAMP, "When the cluster was asked."),
        Column("topic", STRING, "Its name."),
        Column("partition_count", INT, "Its number of partitions at that time; null if it is not listed any more."),
        Column("is_deleted", BOOLEAN, "Listed before, and not any more: deleted in between."),
    ),
)

CONFIGS = bronze_table(
    name="configs",
    comment="Configs of groups, topics and brokers in force, as a live cluster's Admin API reported them: a row "
    "when a value is first reported, and when it changed: those of groups, offsets and retention.",
    columns=(
        CLUSTER_ID,
        key("resource_type", STRING, "GROUP TOPIC BROKER."),
        key("resource_name", STRING, "Group id, topic or broker id."),
        key("name", STRING, "Name of the config."),
        key("observed_at", TIMESTAMP, "When the cluster was asked."),
        Column("value", STRING, "The value in force; null: reported before, and no longer."),
        Column("source", STRING, "Where Kafka has the value from: GROUP_CONFIG, DEFAULT_CONFIG, ..."),
    ),
)

IDENTITIES = bronze_table(
    name="identities",
    comment="Ids of the Kafka cluster and the internal topics that the logs belong to, as they were first "
    "captured. Logs with another id are refused.",
    columns=(
        CLUSTER_ID,
        key("kind", STRING, "CLUSTER: the cluster's own id; TOPIC: the id of an internal topic."),
        key("topic", STRING, "Internal topic; empty for the cluster."),
        Column("id", STRING, "The id as Kafka prints it."),
        Column("source", STRING, "Where it was first found: folder of a broker's log directory, or live cluster."),
        Column("seen_at", TIMESTAMP, "Start of the run that first captured it."),
    ),
)

LOG_PARTITIONS = bronze_table(
    name="log_partitions",
    comment="Log partitions of internal topics that captures found, including empty ones, and up to when each "
    "was read.",
    columns=(
        *LOG_KEY,
        Column("first_seen_at", TIMESTAMP, "Start of the run that first found it."),
        Column(
            "read_until",
            TIMESTAMP,
            "Everything that a live cluster had by then was read, or a copy that was made then (--copied-at); "
            "null: it was read only from files or dumps, which prove nothing after their last record.",
        ),
        Column(
            "partition_count",
            INT,
            "Number of partitions of the topic: the highest that a live cluster or --partitions gave; null if "
            "neither gave one.",
        ),
    ),
)

BRONZE_TABLES = (RECORD_BATCHES, COVERAGE, QUARANTINE, END_OFFSETS, TOPICS, CONFIGS, IDENTITIES, LOG_PARTITIONS)
