"""State: what the runs know of themselves."""

from schemas.tables.common import CLUSTER_ID, key
from schemas.tables.declare import BIGINT, INT, STRING, TIMESTAMP, Column, Table

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
        Column("told_version", BIGINT, "Versions of bronze.topics and bronze.configs together; null: none was there."),
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
    ),
)

STATE_TABLES = (RUNS, AUDITS)
