"""Table declarations as Spark's schemas: apart from those of Arrow and Delta, which need no Spark."""

from collections.abc import Iterable

from pyspark.sql.types import StructType

from jobs.delta.arrow_schemas import delta_struct
from schemas.tables.declare import Column


def spark_schema(columns: Iterable[Column]) -> StructType:
    """Spark's StructType of the columns of a table, with their comments."""
    return StructType.fromJson(delta_struct(columns))
