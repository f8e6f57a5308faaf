"""One declaration, four forms: Arrow, Spark, Delta and SQL say the same of every table."""

import json
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from jobs.delta.arrow_schemas import (
    TIMESTAMP_MS_MAX,
    arrow_schema,
    file_schema,
    statistics_columns,
    timestamps,
)
from jobs.delta.spark_schemas import spark_schema
from jobs.delta.warehouse import Warehouse, delta_schema
from schemas.tables import TABLES, Table
from schemas.tables.declare import Scalar
from tests.jobs.frames import frame

all_tables = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)


@all_tables
def test_arrow_and_delta_agree(table: Table) -> None:
    """delta-rs makes the same Arrow schema of its own, and has the comments."""
    schema = pa.schema(delta_schema(table).to_arrow())
    assert schema.equals(arrow_schema(table))
    assert [field.metadata[b"comment"].decode() for field in schema] == [column.comment for column in table.columns]


@all_tables
def test_spark_and_delta_agree(table: Table) -> None:
    """Delta's log holds Spark's own JSON of the schema."""
    assert json.loads(delta_schema(table).to_json()) == json.loads(spark_schema(table.columns).json())


def test_spark_shows_the_comments(spark: SparkSession, tmp_path: object) -> None:
    """DESCRIBE gives each column's comment; the table has its own."""
    warehouse = Warehouse(f"{tmp_path}/w")
    for table in (TABLES["bronze.record_batches"], TABLES["silver.share_partition_states"]):
        warehouse.ensure(table)
        assert {f.name: f.metadata["comment"] for f in frame(spark, warehouse, table).schema} == {
            column.name: column.comment for column in table.columns
        }
        name = f"comments.{table.name}"
        spark.sql("CREATE DATABASE IF NOT EXISTS comments")
        spark.catalog.createTable(name, path=warehouse.path(table), source="delta")
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
        shown = {row["col_name"]: row["comment"] for row in rows[: len(table.columns)]}
        assert shown == {column.name: column.comment for column in table.columns}
        assert table.comment in {row["data_type"] for row in rows if row["col_name"] == "Comment"}


@all_tables
def test_personal_and_binary_columns_have_no_statistics(table: Table) -> None:
    """What may name a person stays out of Delta's log, which an erasure does not reach."""
    columns = {column.name: column for column in table.columns}
    for name in statistics_columns(table):
        assert not columns[name].is_personal
        assert columns[name].type is not Scalar.BINARY
        assert name not in table.partition_by


def test_data_files_have_no_partition_columns() -> None:
    """Partition values are in Delta's log alone."""
    names = file_schema(TABLES["bronze.record_batches"]).names
    assert "cluster_id" not in names and "partition" not in names and "batch" in names


def test_timestamps_are_null_where_no_calendar_has_them() -> None:
    """Negative times are none; what Spark and Python cannot show is null, not an overflow; the edges are kept."""
    given = [0, -1, 1_700_000_000_123, -5, TIMESTAMP_MS_MAX, 2**63 - 1, -(2**63)]
    shown = timestamps(np.array(given, np.int64))
    assert shown.type == pa.timestamp("us", "UTC")
    micros = shown.cast(pa.int64()).to_pylist()
    assert micros == [0, None, 1_700_000_000_123_000, None, TIMESTAMP_MS_MAX * 1000, None, None]


def test_every_time_of_a_table_can_be_shown_in_every_zone() -> None:
    """Spark gives times to Python in the zone of the machine: the last one is within Python's years in all."""
    for zone in ("UTC", "Asia/Tokyo", "Pacific/Kiritimati", "Etc/GMT+12"):
        given = timestamps(np.array([0, TIMESTAMP_MS_MAX], np.int64)).to_pylist()
        assert [at.astimezone(ZoneInfo(zone)).year for at in given][1] == 9999
