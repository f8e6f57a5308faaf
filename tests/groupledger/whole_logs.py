"""Logs that begin behind record 0, because compaction removed what was before: nothing else was, which records alone do
not tell."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from groupledger.key_state import KEY_STATES
from jobs.delta.spark_schemas import spark_schema


def whole_logs(records: DataFrame, cluster_id: str | None = None) -> DataFrame:
    """A state without a key: each log partition was read from record 0 on. `cluster_id`: None, the records have it."""
    cluster = F.col("cluster_id") if cluster_id is None else F.lit(cluster_id)
    values = {
        "cluster_id": cluster,
        "log_topic": F.col("topic"),
        "log_partition": F.col("partition"),
        "log_first_offset": F.lit(0),
        "log_last_offset": F.lit(-1),
    }
    fields = spark_schema(KEY_STATES.columns)
    made = (values.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in fields)
    return records.select(*made).distinct()
