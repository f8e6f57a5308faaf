"""Table declarations as Spark's schemas: apart from those of Arrow and Delta, which need no Spark."""

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as Spark's own documentation has it)
from pyspark.sql.types import StructType

from jobs.delta.arrow_schemas import delta_struct
from schemas.tables.declare import Column, Table


def spark_schema(columns: Iterable[Column]) -> StructType:
    """Spark's StructType of the columns of a table, with their comments."""
    return StructType.fromJson(delta_struct(columns))


def described(frame: DataFrame, table: Table) -> DataFrame:
    """The declared columns of a table, with their comments."""
    return frame.select(
        *(F.col(column.name).alias(column.name, metadata={"comment": column.comment}) for column in table.columns)
    )
