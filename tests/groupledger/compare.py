"""DataFrames compared with tables of nightly."""

from collections.abc import Sequence

from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.cases.harness import Ledger


def stored(spark: SparkSession, ledger: Ledger, name: str) -> DataFrame:
    """A table of a warehouse."""
    return spark.read.format("delta").load(ledger.folder(name))


def assert_same(
    spark: SparkSession,
    made: DataFrame,
    ledger: Ledger,
    name: str,
    *,
    where: str = "true",
    left_out: Sequence[str] = (),
) -> None:
    """The rows and types of a table of nightly, in its columns' order. `where`: of some of its rows; `left_out`:
    columns that are not compared."""
    expected = stored(spark, ledger, name).where(where)
    assert made.schema == expected.select(made.columns).schema
    assert made.columns == expected.columns
    made, expected = made.drop(*left_out), expected.drop(*left_out)
    assert_df_equality(made, expected, ignore_row_order=True, transforms=[without_maps])


def without_maps(frame: DataFrame) -> DataFrame:
    """Maps as sorted entries: Spark neither sorts nor hashes maps."""
    maps = [field.name for field in frame.schema if field.dataType.typeName() == "map"]
    return frame.withColumns({name: F.array_sort(F.map_entries(name)) for name in maps}) if maps else frame
