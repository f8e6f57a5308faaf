"""State: bookkeeping of the runs."""

from schemas.tables.common import CLUSTER_ID, key
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

RUNS = Table(
    layer="state",
    name="runs",
    comment="One row a finished run and internal topic, written last: the ledger of the ledger.",
    partition_by=("cluster_id",),
    columns=(
        CLUSTER_ID,
        key("run_id", STRING, "The run."),
        key("topic", STRING, "Internal topic."),
        Column("started_at", TIMESTAMP, "Start of the run."),
        Column("bronze_version", BIGINT, "Version of bronze.record_batches that was replayed."),
        Column("batch_count", BIGINT, "Record batches replayed."),
        Column("record_count", BIGINT, "Records in them."),
        Column("decoded_count", BIGINT, "Values decoded."),
        Column("tombstone_count", BIGINT, "Tombstones."),
        Column("control_count", BIGINT, "Control records."),
        Column("unknown_type_count", BIGINT, "Records of a type no declaration knows: skipped, as Kafka does."),
        Column("quarantined_count", BIGINT, "Records which could not be read."),
        Column("silver_format", INT, "Format of the silver tables that the run made; null: older than any number."),
        Column(
            "admin_version",
            BIGINT,
            "Versions of bronze.topics and bronze.configs together; null: none was there.",
            former_name="told_version",
        ),
        Column("replay_version", BIGINT, "Number of the run: the version of its commits."),
        Column(
            "table_versions",
            MapOf(STRING, BIGINT),
            "Delta version of each table of silver and state as the run left it: read at these, they fit together.",
        ),
        Column(
            "is_renamed",
            BOOLEAN,
            "Rows of earlier runs were rewritten, under names of topic ids learned since, or because everything was "
            "replayed.",
        ),
        Column(
            "not_used_count",
            BIGINT,
            "Records of a known type that tells nothing of what is kept: most of __cluster_metadata. Null: counted as "
            "of an unknown type.",
        ),
        Column("bronze_versions", MapOf(STRING, BIGINT), "Delta version of tables of bronze when the run ended."),
        Column(
            "unknown_field_count",
            BIGINT,
            "Of the values decoded: those with tagged fields that no declaration knows, as a later release of Kafka "
            "writes them. Bronze has them byte for byte. Null: not counted yet.",
        ),
        Column(
            "foreign_versions",
            MapOf(STRING, BIGINT),
            "Tables that somebody else than the project's jobs wrote into since the last rebuild, each with the Delta "
            "version of the last such write.",
        ),
    ),
)

AUDITS = Table(
    layer="state",
    name="audits",
    comment="One row a finished audit, written last: from which replay, and by which settings, gold was made.",
    partition_by=("cluster_id",),
    columns=(
        CLUSTER_ID,
        key("run_id", STRING, "The run."),
        Column("started_at", TIMESTAMP, "Start of the run."),
        Column("replay_version", BIGINT, "The replay whose silver tables were audited: version of its commits."),
        Column("settings", STRING, "What inference went by, as JSON."),
        Column("row_count", BIGINT, "Rows of all gold tables."),
        Column("audit_version", BIGINT, "Number of the audit: the version of its commits."),
        Column(
            "table_versions",
            MapOf(STRING, BIGINT),
            "Delta version of each table of gold as the audit left it: read at these, they fit together.",
        ),
        Column(
            "foreign_versions",
            MapOf(STRING, BIGINT),
            "Tables that somebody else than the project's jobs wrote into since the last rebuild, each with the Delta "
            "version of the last such write.",
        ),
    ),
)

AUDIT_STARTS = Table(
    layer="state",
    name="audit_starts",
    comment="One row an audit, written before all else: one without a row in state.audits broke off.",
    partition_by=("cluster_id",),
    columns=(
        CLUSTER_ID,
        key("audit_version", BIGINT, "Number of the audit: the version of its commits."),
        Column("run_id", STRING, "The run."),
        Column("started_at", TIMESTAMP, "Start of the run."),
        Column("replay_version", BIGINT, "The replay whose silver tables it reads."),
    ),
)

AUDITED_LOGS = Table(
    layer="state",
    name="audited_logs",
    comment="One row a log partition, or a bucket of its groups where several tasks audited it: how far gold is of it, "
    "and what the next audit needs of what it was made from.",
    partition_by=("cluster_id",),
    columns=(
        CLUSTER_ID,
        key("topic", STRING, "Internal topic."),
        key("log_partition", INT, "Partition of the internal topic."),
        key("bucket", INT, "Number of the bucket; 0 where one task audited all groups."),
        Column("next_offset", BIGINT, "The first offset which is not audited."),
        Column(
            "replayed",
            ArrayOf(StructOf((("first_offset", BIGINT), ("last_offset", BIGINT)))),
            "Ranges of offsets of bronze which had been replayed, both ends inclusive.",
        ),
        Column("state", BINARY, "What an audit left for the next one of the same version.", is_personal=True),
        Column("capture_version", BIGINT, "As in state.watermarks, of the silver that was audited."),
    ),
)

REPLAY_STARTS = Table(
    layer="state",
    name="replay_starts",
    former_name="starts",
    comment="One row a run of replay, written before all else: what a run that broke off is repeated with.",
    partition_by=("cluster_id",),
    columns=(
        CLUSTER_ID,
        key("replay_version", BIGINT, "Number of the run: the version of its commits."),
        Column("run_id", STRING, "The run."),
        Column("started_at", TIMESTAMP, "Start of the run."),
        Column("bronze_version", BIGINT, "Version of bronze.record_batches that it reads."),
        Column(
            "topics_version",
            BIGINT,
            "Version of bronze.topics that it reads; -1: there is none.",
            former_name="told_topics_version",
        ),
        Column(
            "configs_version",
            BIGINT,
            "Version of bronze.configs that it reads; -1: there is none.",
            former_name="told_configs_version",
        ),
        Column("is_rebuild", BOOLEAN, "It replays everything from the beginning."),
        Column("silver_format", INT, "Format of the silver tables that it makes."),
        Column("state_format", INT, "Format of the state that it leaves."),
        Column(
            "capture_version",
            BIGINT,
            "Number of the last capture whose changes of bronze (state.rewrites) it takes in; null: of none.",
        ),
    ),
)

WATERMARKS = Table(
    layer="state",
    name="watermarks",
    comment="One row a log partition: how far it is replayed.",
    partition_by=("cluster_id",),
    columns=(
        CLUSTER_ID,
        key("topic", STRING, "Internal topic."),
        key("partition", INT, "Partition of the internal topic."),
        Column("next_offset", BIGINT, "The first offset which is not replayed."),
        Column(
            "replayed",
            ArrayOf(StructOf((("first_offset", BIGINT), ("last_offset", BIGINT)))),
            "Ranges of offsets of bronze which were replayed, both ends inclusive.",
        ),
        Column("state_format", INT, "Format of the state in state.log_checkpoints and state.group_checkpoints."),
        Column(
            "capture_version",
            BIGINT,
            "Number of the last capture whose changes of bronze (state.rewrites) are in it; null: of none.",
        ),
    ),
)

LOG_CHECKPOINTS = Table(
    layer="state",
    name="log_checkpoints",
    former_name="logs",
    takes_former_rows=False,
    comment="One row a log partition, or a bucket of its keys where several tasks replayed it: the "
    "state of its replay, groups aside.",
    partition_by=("cluster_id", "log"),
    columns=(
        CLUSTER_ID,
        key("log", STRING, "The log partition, as its folder is named: topic-partition."),
        key("bucket", INT, "Number of the bucket; 0 where one task replayed all keys."),
        Column("state", BINARY, "The state of its replay; read by the replay of one version only.", is_personal=True),
    ),
)

GROUP_CHECKPOINTS = Table(
    layer="state",
    name="group_checkpoints",
    former_name="groups",
    takes_former_rows=False,
    comment="One row a group id of a log partition, deleted groups too: the state of its replay.",
    partition_by=("cluster_id", "log"),
    columns=(
        CLUSTER_ID,
        key("log", STRING, "The log partition, as its folder is named: topic-partition."),
        key("group_id", STRING, "The group."),
        Column("state", BINARY, "The state of its replay; read by the replay of one version only.", is_personal=True),
        Column("changed_version", BIGINT, "Number of the run that changed it last."),
    ),
)

TOPIC_NAMES = Table(
    layer="state",
    name="topic_names",
    former_name="names",
    comment="What was learned of topic ids: their names, from where and when; deletions; numbers of partitions; which "
    "ids rows carry.",
    partition_by=("cluster_id",),
    columns=(
        CLUSTER_ID,
        key("topic_id", STRING, "Topic id, 22 characters as Kafka prints it."),
        key("topic", STRING, "A name that it had; null in rows that tell no name."),
        key(
            "learned_from",
            STRING,
            "Where the name was read; DELETED: when its topic went; IN_USE: silver has rows of it; PARTITIONS: its "
            "partitions became so many.",
        ),
        Column("at", TIMESTAMP, "The earliest time it was learned there."),
        key("partition_count", INT, "Number of partitions from then on, in rows of PARTITIONS; null in all others."),
    ),
)

COORDINATOR_KEYS = Table(
    layer="state",
    name="coordinator_keys",
    comment="One row a group or share partition and log partition that has records of it, deleted ones too: what "
    "silver.coordinator_partitions is made of.",
    partition_by=("cluster_id",),
    columns=(
        CLUSTER_ID,
        key("log_topic", STRING, "The coordinator topic."),
        key("log_partition", INT, "Partition of it."),
        key("group_id", STRING, "The group."),
        key("topic_id", STRING, "Of a share partition, the id of its topic; null for a group."),
        key("partition", INT, "Of a share partition, the partition of its topic; null for a group."),
        Column(
            "began_at",
            TIMESTAMP,
            "The earliest time of a generation, a committed offset in force or a share state there; null where one of "
            "these has no time.",
        ),
    ),
)

CONFIG_CHANGES = Table(
    layer="state",
    name="config_changes",
    comment="Changes of configs in the metadata log: silver.configs is made of these and of bronze.configs.",
    partition_by=("cluster_id",),
    columns=(
        CLUSTER_ID,
        key("log_offset", BIGINT, "Offset of the record in the metadata log."),
        Column("resource_type", STRING, "GROUP, TOPIC or BROKER."),
        Column("resource_name", STRING, "Group id, topic, or broker id; empty for the default of all brokers."),
        Column("name", STRING, "The config."),
        Column("value", STRING, "The value that was set; null: back to its default."),
        Column("at", TIMESTAMP, "When."),
    ),
)

DELETED_RANGES = Table(
    layer="state",
    name="deleted_ranges",
    former_name="dropped",
    comment="Ranges of offsets that retention deleted from bronze.record_batches, after they were replayed. They are "
    "not captured again, and replay --rebuild cannot restore what silver has of them.",
    partition_by=("cluster_id",),
    columns=(
        CLUSTER_ID,
        key("topic", STRING, "Internal topic."),
        key("partition", INT, "Partition of the internal topic."),
        key("from_offset", BIGINT, "First offset of the range."),
        Column("to_offset", BIGINT, "Last offset of the range, inclusive."),
        Column("max_timestamp", TIMESTAMP, "Time of its newest batch."),
        Column(
            "deleted_at",
            TIMESTAMP,
            "Start of the run of maintain that deleted it from bronze.record_batches.",
            former_name="dropped_at",
        ),
    ),
)

RUN_METRICS = Table(
    layer="state",
    name="run_metrics",
    comment="One row a job of a run, failed ones too: how long it took, and what it did.",
    partition_by=("cluster_id",),
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
        Column("gap_count", BIGINT, "Ranges of the log which are missing or damaged, in all that is captured."),
        Column("quarantined_row_count", BIGINT, "Rows in bronze.quarantine."),
        Column("deleted_file_count", BIGINT, "Files deleted."),
        Column("row_counts", MapOf(STRING, BIGINT), "Rows written, by table."),
        Column("ledger", MapOf(STRING, BIGINT), "Records replayed, by what became of them."),
        Column("lag_records", MapOf(STRING, BIGINT), "Records not captured yet at the end, by topic; live logs only."),
    ),
)

LEADER_EPOCHS = Table(
    layer="state",
    name="leader_epochs",
    comment="At which offset each leader epoch of a log partition begins, as the copies of it that were read show it.",
    partition_by=("cluster_id",),
    columns=(
        CLUSTER_ID,
        key("topic", STRING, "Internal topic."),
        key("partition", INT, "Partition of the internal topic."),
        key("leader_epoch", INT, "The leader epoch."),
        key("is_checkpoint", BOOLEAN, "From the leader-epoch-checkpoint of a replica; false: from record batches."),
        Column("start_offset", BIGINT, "The first offset of the epoch, or of its first batch that was seen."),
    ),
)

DUMP_OFFSETS = Table(
    layer="state",
    name="dump_offsets",
    comment="At which offsets dumps of rows had records: such a record stays in bronze where other batches replace the "
    "one that has it.",
    partition_by=("cluster_id",),
    columns=(
        CLUSTER_ID,
        key("topic", STRING, "Internal topic."),
        key("partition", INT, "Partition of the internal topic."),
        key("from_offset", BIGINT, "First offset of a range with a record at each."),
        Column("to_offset", BIGINT, "Last offset of the range, inclusive."),
        Column("source", STRING, "The dump that had them first."),
    ),
)

READ_FILES = Table(
    layer="state",
    name="read_files",
    comment="One row a file of a source that was read and compared with bronze: while it is the same, it is not again.",
    partition_by=("cluster_id",),
    columns=(
        CLUSTER_ID,
        key("topic", STRING, "Internal topic."),
        key("partition", INT, "Partition of the internal topic."),
        key("path", STRING, "The file."),
        Column("size_bytes", BIGINT, "Its size then."),
        Column("modified_at_ns", BIGINT, "When it was last changed, epoch nanoseconds; null where the store has none."),
        Column("base_offset", BIGINT, "Base offset of its last batch; null where it has none."),
        Column("last_offset", BIGINT, "Last offset of its last batch."),
        Column("end_position", BIGINT, "Byte position behind its last batch."),
    ),
)

REWRITES = Table(
    layer="state",
    name="rewrites",
    comment="Offsets whose record batches a capture changed in bronze, where they had been captured before: what was "
    "replayed of them is replayed again.",
    partition_by=("cluster_id",),
    columns=(
        CLUSTER_ID,
        key("topic", STRING, "Internal topic."),
        key("partition", INT, "Partition of the internal topic."),
        key("capture_version", BIGINT, "Number of the capture: the version of its commit of bronze.record_batches."),
        Column("from_offset", BIGINT, "The first offset that changed."),
        Column("written_at", TIMESTAMP, "Start of the run."),
    ),
)

REPLAY_FAILURES = Table(
    layer="state",
    name="replay_failures",
    comment="One row a group, share partition or log partition that the last run could not replay, through a fault of "
    "our own: the next run tries again.",
    partition_by=("cluster_id",),
    columns=(
        CLUSTER_ID,
        key("log_topic", STRING, "Internal topic."),
        key("log_partition", INT, "Partition of the internal topic."),
        key("group_id", STRING, "The group; null: all of the log partition."),
        key("topic_id", STRING, "Of a share partition, the id of its topic; null for a group."),
        key("partition", INT, "Of a share partition, the partition of its topic; null for a group."),
        Column("from_offset", BIGINT, "From this offset of the log partition on, silver has nothing of it."),
        Column("log_offset", BIGINT, "The record at which it failed; null: at none."),
        Column("error", STRING, "The exception, and where in the code it came up.", is_personal=True),
    ),
)

STATE_TABLES = (
    RUNS,
    AUDITS,
    REPLAY_STARTS,
    AUDIT_STARTS,
    WATERMARKS,
    LOG_CHECKPOINTS,
    GROUP_CHECKPOINTS,
    TOPIC_NAMES,
    COORDINATOR_KEYS,
    CONFIG_CHANGES,
    AUDITED_LOGS,
    DELETED_RANGES,
    LEADER_EPOCHS,
    DUMP_OFFSETS,
    READ_FILES,
    REWRITES,
    REPLAY_FAILURES,
    RUN_METRICS,
)
