"""State: bookkeeping of the runs."""

from enum import StrEnum
from functools import partial
from typing import Final

from schemas.tables.common import CLUSTER_ID, LOG_KEY, key
from schemas.tables.declare import (
    BIGINT,
    BINARY,
    BOOLEAN,
    INT,
    STRING,
    TIMESTAMP,
    ArrayOf,
    Column,
    MapOf,
    StructOf,
    Table,
)

state_table = partial(Table, "state")

FOREIGN_VERSIONS = Column(
    "foreign_versions",
    MapOf(STRING, BIGINT),
    "Tables that anyone other than the project's jobs has written to since the last rebuild, with the "
    "Delta version of the last such write.",
)


class Checkpoint(StrEnum):
    """Kinds of rows in state.checkpoints."""

    WATERMARK = "WATERMARK"
    LOG = "LOG"
    GROUP = "GROUP"
    TOPIC_ID = "TOPIC_ID"
    COORDINATOR_KEY = "COORDINATOR_KEY"
    CONFIG_CHANGE = "CONFIG_CHANGE"
    FAILURE = "FAILURE"


ALL_LOGS: Final = "all"
"""`log` of the rows that each run of replay replaces."""
REPLAYED = Column(
    "replayed",
    ArrayOf(StructOf((("first_offset", BIGINT), ("last_offset", BIGINT)))),
    "Ranges of offsets of bronze that were replayed, both ends inclusive.",
)

RUNS = state_table(
    name="runs",
    comment="One row per finished replay and internal topic, and per finished audit, written last: the ledger of "
    "each run.",
    columns=(
        CLUSTER_ID,
        key("run_id", STRING, "The run."),
        key("topic", STRING, "Internal topic; null: the row is of an audit."),
        Column("started_at", TIMESTAMP, "Start of the run."),
        Column("bronze_version", BIGINT, "Version of bronze.record_batches that was replayed."),
        Column("batch_count", BIGINT, "Record batches replayed."),
        Column("record_count", BIGINT, "Records in them."),
        Column("decoded_count", BIGINT, "Values decoded."),
        Column("tombstone_count", BIGINT, "Tombstones."),
        Column("control_count", BIGINT, "Control records."),
        Column("unknown_type_count", BIGINT, "Records of an undeclared type: skipped, as Kafka does."),
        Column("quarantined_count", BIGINT, "Records that could not be read."),
        Column(
            "silver_format",
            INT,
            "Format of the silver tables that the run wrote; null: from before formats had numbers.",
        ),
        Column(
            "admin_version",
            BIGINT,
            "Versions of bronze.topics and bronze.configs together; null: neither existed.",
        ),
        Column("replay_version", BIGINT, "Number of the replay: the version of its commits; null: an audit."),
        key("audit_version", BIGINT, "Number of the audit: the version of its commits; null: a replay."),
        Column(
            "table_versions",
            MapOf(STRING, BIGINT),
            "Delta version of each table of silver and state, or of gold, after the run: at these versions the tables "
            "are consistent.",
        ),
        Column(
            "is_renamed",
            BOOLEAN,
            "Rows of earlier runs were rewritten, with names of topic ids learned since, or because everything "
            "was replayed.",
        ),
        Column(
            "is_audited_next",
            BOOLEAN,
            "The night of this replay audits it next: readers see the run before until that audit has ended. Null: no.",
        ),
        Column(
            "not_used_count",
            BIGINT,
            "Records of a known type that the ledger does not use: most of __cluster_metadata. Null: counted as "
            "unknown type.",
        ),
        Column("bronze_versions", MapOf(STRING, BIGINT), "Delta version of tables of bronze when the run ended."),
        Column(
            "unknown_field_count",
            BIGINT,
            "Decoded values with undeclared tagged fields, as a later release of Kafka writes them. Bronze has "
            "them byte for byte. Null: not counted yet.",
        ),
        Column("audited_version", BIGINT, "Of an audit: number of the replay whose silver tables were audited."),
        Column("settings", STRING, "Of an audit: the settings of inference, as JSON."),
        Column("row_count", BIGINT, "Of an audit: rows of all gold tables."),
        FOREIGN_VERSIONS,
    ),
)

AUDITED_LOGS = state_table(
    name="audited_logs",
    comment="One row per log partition, or per bucket of its groups if several tasks audited it: how far it is "
    "audited, and what the next audit needs to continue.",
    columns=(
        CLUSTER_ID,
        key("topic", STRING, "Internal topic."),
        key("log_partition", INT, "Partition of the internal topic."),
        key("bucket", INT, "Number of the bucket; 0 if one task audited all groups."),
        Column("next_offset", BIGINT, "The first offset that is not audited."),
        REPLAYED,
        Column("state", BINARY, "What an audit saved for the next one of the same version.", is_personal=True),
        Column("capture_version", BIGINT, "As in state.checkpoints, for the silver that was audited."),
    ),
)

RUN_STARTS = state_table(
    name="run_starts",
    comment="One row per replay and audit, written first: one without a row in state.runs was interrupted. The inputs "
    "with which an interrupted replay is repeated.",
    columns=(
        CLUSTER_ID,
        key("replay_version", BIGINT, "Number of the replay: the version of its commits; null: an audit."),
        key("audit_version", BIGINT, "Number of the audit: the version of its commits; null: a replay."),
        Column("run_id", STRING, "The run."),
        Column("started_at", TIMESTAMP, "Start of the run."),
        Column("bronze_version", BIGINT, "Version of bronze.record_batches that it reads."),
        Column(
            "topics_version",
            BIGINT,
            "Version of bronze.topics that it reads; -1: there is none.",
        ),
        Column(
            "configs_version",
            BIGINT,
            "Version of bronze.configs that it reads; -1: there is none.",
        ),
        Column("is_rebuild", BOOLEAN, "It replays everything from the beginning."),
        Column("silver_format", INT, "Format of the silver tables that it writes."),
        Column("state_format", INT, "Format of the state that it saves."),
        Column(
            "capture_version",
            BIGINT,
            "Number of the last capture whose changes to bronze (state.rewrites) it includes; null: none.",
        ),
    ),
)

CHECKPOINTS = state_table(
    name="checkpoints",
    comment="What a run of replay saves for the next one. A file has rows of one kind, and only the columns of this "
    "kind; all others are null.",
    partition_by=("cluster_id", "kind", "log"),
    columns=(
        CLUSTER_ID,
        key(
            "kind",
            STRING,
            "WATERMARK: how far a log partition is replayed. LOG: the state of its replay, except groups; one row per "
            "bucket of its keys if several tasks replayed it. GROUP: the state of the replay of a group, which may be "
            "deleted. TOPIC_ID: what is known about a topic id. COORDINATOR_KEY: a group or share partition, which may "
            "be deleted, and a log partition that has records of it: the input of silver.coordinator_partitions. "
            "CONFIG_CHANGE: a change of a config in the metadata log: silver.configs is made from these and from "
            "bronze.configs. FAILURE: a group, share partition or log partition that the run could not replay, because "
            "of a fault in Groupledger: the next run tries again.",
        ),
        key(
            "log",
            STRING,
            "Of LOG and GROUP, the log partition, as its folder is named: topic-partition. Of all others: all.",
        ),
        key("log_topic", STRING, "Internal topic, of WATERMARK, COORDINATOR_KEY and FAILURE."),
        key("log_partition", INT, "Partition of the internal topic."),
        key("bucket", INT, "Number of the bucket; 0 if one task replayed all keys."),
        key("group_id", STRING, "The group; null in FAILURE: all of the log partition."),
        key(
            "topic_id",
            STRING,
            "Topic id, 22 characters as Kafka prints it; of a share partition, that of its topic; null for a group.",
        ),
        key("partition", INT, "For a share partition, the partition of its topic; null for a group."),
        Column(
            "state", BINARY, "The state of the replay; only the replay of the same version reads it.", is_personal=True
        ),
        Column("changed_version", BIGINT, "Number of the run that last changed the state of the group."),
        Column("next_offset", BIGINT, "The first offset that is not replayed."),
        REPLAYED,
        Column("state_format", INT, "Format of the state."),
        Column(
            "capture_version",
            BIGINT,
            "Number of the last capture whose changes to bronze (state.rewrites) are included; null: none.",
        ),
        key("topic", STRING, "A name that the topic id had; null in rows without a name."),
        key(
            "learned_from",
            STRING,
            "Where the name was read; DELETED: its topic was deleted; IN_USE: silver has rows with it; PARTITIONS: its "
            "number of partitions changed; TRANSACTION: transactions write to the topic, and the topic id is empty.",
        ),
        key("partition_count", INT, "Number of partitions from then on, in rows of PARTITIONS; null in all others."),
        Column(
            "at",
            TIMESTAMP,
            "The earliest time it was learned there; when the config changed; or the earliest time of a generation, a "
            "committed offset in force or a share state of the group or share partition, null if one has no time.",
        ),
        key("log_offset", BIGINT, "Offset of the change, or of the record at which the replay failed; null: at none."),
        Column("resource_type", STRING, "GROUP, TOPIC or BROKER."),
        Column("resource_name", STRING, "Group id, topic, or broker id; empty for the default of all brokers."),
        Column("name", STRING, "The config."),
        Column("value", STRING, "The value that was set; null: back to its default."),
        Column("from_offset", BIGINT, "From this offset of the log partition on, silver has no rows of what failed."),
        Column("error", STRING, "The exception, and where in the code it was raised.", is_personal=True),
    ),
)


class Ranges(StrEnum):
    """Kinds of rows in state.offset_ranges."""

    DELETED = "DELETED"
    DUMPED = "DUMPED"
    LEADER_EPOCH = "LEADER_EPOCH"


OFFSET_RANGES = state_table(
    name="offset_ranges",
    comment="What is known of offsets of log partitions, and no other table has: nothing can make these rows again.",
    partition_by=("cluster_id", "kind"),
    columns=(
        *LOG_KEY,
        key(
            "kind",
            STRING,
            "DELETED: retention deleted the range from bronze.record_batches after it was replayed: it is not captured "
            "again, and replay --rebuild cannot restore its rows in silver. DUMPED: dumps of rows had a record at each "
            "offset: such a record stays in bronze if other batches replace the one that contains it. LEADER_EPOCH: "
            "where a leader epoch begins, or a log start offset that moved, according to the copies that were read.",
        ),
        key(
            "from_offset",
            BIGINT,
            "First offset of the range; the start offset of the epoch, or the offset of its first batch that was seen; "
            "or the log start offset.",
        ),
        Column("to_offset", BIGINT, "Last offset of the range, inclusive; null for LEADER_EPOCH."),
        Column("max_timestamp", TIMESTAMP, "Of DELETED: time of the newest batch of the range."),
        Column(
            "deleted_at",
            TIMESTAMP,
            "Of DELETED: start of the run of maintain that deleted it from bronze.record_batches.",
        ),
        Column("source", STRING, "Of DUMPED: the dump that had the records first."),
        key("leader_epoch", INT, "Of LEADER_EPOCH: the leader epoch; -1: the row is a log start offset."),
        key("is_checkpoint", BOOLEAN, "From the leader-epoch-checkpoint of a replica; false: from record batches."),
        Column("least_end_offset", BIGINT, "The least end offset of copies with this log start offset; else null."),
        Column(
            "greatest_end_offset",
            BIGINT,
            "The greatest one, kept until a higher log start offset is seen; else null.",
        ),
    ),
)

RUN_METRICS = state_table(
    name="run_metrics",
    comment="One row per job of a run, including failed ones: how long it took, and what it did.",
    age_column="started_at",
    columns=(
        CLUSTER_ID,
        key("run_id", STRING, "The run."),
        key("job", STRING, "capture, replay, audit or maintain."),
        Column("started_at", TIMESTAMP, "When the job began."),
        Column("ended_at", TIMESTAMP, "When it ended."),
        Column("exit_code", INT, "0 done, 1 failed, 3 done but something is missing or was quarantined."),
        Column("batch_count", BIGINT, "Record batches captured or replayed."),
        Column("record_count", BIGINT, "Records in them."),
        Column("size_bytes", BIGINT, "Bytes captured, as on Kafka's disk."),
        Column("row_count", BIGINT, "Rows written, all tables together."),
        Column("gap_count", BIGINT, "Missing or damaged ranges of the log, in everything that is captured."),
        Column("quarantined_row_count", BIGINT, "Rows in bronze.quarantine."),
        Column("deleted_file_count", BIGINT, "Files deleted."),
        Column("row_counts", MapOf(STRING, BIGINT), "Rows written, by table."),
        Column("ledger", MapOf(STRING, BIGINT), "Records replayed, by outcome."),
        Column("lag_records", MapOf(STRING, BIGINT), "Records not captured yet at the end, by topic; live logs only."),
    ),
)

READ_FILES = state_table(
    name="read_files",
    comment="One row per source file that was read and compared with bronze. "
    "Files of rows have records of several log partitions: topic is empty, partition -1.",
    columns=(
        *LOG_KEY,
        key("path", STRING, "The file."),
        Column("size_bytes", BIGINT, "Its size then."),
        Column("modified_at_ns", BIGINT, "Modification time, in epoch nanoseconds; null if the store has none."),
        Column("base_offset", BIGINT, "Base offset of its last batch; null if it has none."),
        Column("last_offset", BIGINT, "Last offset of its last batch."),
        Column("end_position", BIGINT, "Byte position after its last batch."),
        Column("read_as", STRING, "Files of rows: the settings that said how to read them; others: null."),
    ),
)

REWRITES = state_table(
    name="rewrites",
    comment="Offsets whose record batches a capture changed in bronze after they had been captured: they are "
    "replayed again.",
    columns=(
        *LOG_KEY,
        key("capture_version", BIGINT, "Number of the capture: the version of its commit of bronze.record_batches."),
        Column("from_offset", BIGINT, "The first offset that changed."),
        Column("written_at", TIMESTAMP, "Start of the run."),
    ),
)

STATE_TABLES = (
    RUNS,
    RUN_STARTS,
    CHECKPOINTS,
    AUDITED_LOGS,
    OFFSET_RANGES,
    READ_FILES,
    REWRITES,
    RUN_METRICS,
)
