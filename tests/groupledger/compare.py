"""DataFrames compared with tables of nightly."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from jobs.delta.spark_schemas import spark_schema
from schemas.tables import TABLES
from tests.cases.harness import Ledger


def stored(spark: SparkSession, ledger: Ledger, name: str) -> DataFrame:
    """A table of a warehouse."""
    return spark.read.format("delta").load(ledger.folder(name))


def assert_same(
    made: DataFrame, ledger: Ledger, name: str, *, log_topic: str | None = None, left_out: Sequence[str] = ()
) -> None:
    """The rows and types of a table of nightly, in its columns' order. `log_topic`: of its rows of one; `left_out`:
    columns that are not compared.

    Spark makes the rows of the DataFrame, and has no part in how they are compared.
    """
    assert made.schema == spark_schema(TABLES[name].columns)
    expected = ledger.table(name)
    if log_topic is not None:
        expected = expected.filter(pa.compute.equal(expected["log_topic"], log_topic))
    found = made.toArrow().cast(pa.schema([field.with_nullable(True) for field in expected.schema]))
    compared = [field.name for field in expected.schema if field.name not in left_out]
    assert texts(found.select(compared)) == texts(expected.select(compared)), name


def texts(rows: pa.Table) -> list[str]:
    """Each row as text, in one order; maps have none."""

    def sorted_maps(row: dict[str, Any]) -> list[Any]:
        return [
            sorted(row[field.name] or ()) if pa.types.is_map(field.type) else row[field.name] for field in rows.schema
        ]

    return sorted(repr(sorted_maps(row)) for row in rows.to_pylist())
