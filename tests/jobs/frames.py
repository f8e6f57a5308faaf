"""Tables of a warehouse as Spark's own Delta reader gives them."""

from pyspark.sql import DataFrame, SparkSession

from jobs.delta.filesystems import spark_uri
from jobs.delta.warehouse import Warehouse
from schemas.tables.declare import Table


def frame(spark: SparkSession, warehouse: Warehouse, table: Table) -> DataFrame:
    """A table as a DataFrame."""
    return spark.read.format("delta").load(spark_uri(warehouse.path(table)))
