"""Table declarations as schemas of Arrow, Delta and SQL: derived, never written twice.

A column's comment is part of each schema, as field metadata `comment`, which Spark and Delta show in DESCRIBE. Every
column is nullable: Delta's NOT NULL would bind every later writer, and the natural keys of some tables contain nulls by
design (silver.member_assignments.task_type). Elements of arrays and keys of maps are never null.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.tables.declare import ArrayOf, Column, MapOf, Scalar, StructOf, Table, Type

DAY: Final = "day"
"""The partition column of tables by day."""
TIMESTAMP_TYPE: Final = pa.timestamp("us", tz="UTC")
"""Delta and Spark store microseconds; Kafka's milliseconds fit."""

ARROW_SCALARS: Final = {
    Scalar.STRING: pa.string(),
    Scalar.BINARY: pa.binary(),
    Scalar.BOOLEAN: pa.bool_(),
    Scalar.TINYINT: pa.int8(),
    Scalar.SMALLINT: pa.int16(),
    Scalar.INT: pa.int32(),
    Scalar.BIGINT: pa.int64(),
    Scalar.DOUBLE: pa.float64(),
    Scalar.TIMESTAMP: TIMESTAMP_TYPE,
    Scalar.DATE: pa.date32(),
}

DELTA_SCALARS: Final = {
    Scalar.STRING: "string",
    Scalar.BINARY: "binary",
    Scalar.BOOLEAN: "boolean",
    Scalar.TINYINT: "byte",
    Scalar.SMALLINT: "short",
    Scalar.INT: "integer",
    Scalar.BIGINT: "long",
    Scalar.DOUBLE: "double",
    Scalar.TIMESTAMP: "timestamp",
    Scalar.DATE: "date",
}
"""Names in Delta's schema string, which is Spark's JSON form of a StructType."""

WITH_STATISTICS: Final = frozenset(
    {Scalar.STRING, Scalar.TINYINT, Scalar.SMALLINT, Scalar.INT, Scalar.BIGINT, Scalar.DOUBLE, Scalar.TIMESTAMP}
)
"""Types whose minimum and maximum Delta uses to skip files."""


def arrow_type(type_: Type) -> pa.DataType:
    match type_:
        case Scalar():
            return ARROW_SCALARS[type_]
        case ArrayOf():
            return pa.list_(pa.field("element", arrow_type(type_.element), nullable=False))
        case MapOf():
            return pa.map_(arrow_type(type_.key), arrow_type(type_.value))
        case StructOf():
            return pa.struct([pa.field(name, arrow_type(field)) for name, field in type_.fields])


@cache
def arrow_schema(table: Table) -> pa.Schema:
    """The Arrow schema of all columns."""
    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in table.columns])


@cache
def file_schema(table: Table) -> pa.Schema:
    """The Arrow schema of a data file: without partition columns, which are only in Delta's log."""
    return pa.schema([field for field in arrow_schema(table) if field.name not in table.partition_by])


@cache
def made_schema(table: Table) -> pa.Schema:
    """The Arrow schema of rows as a task makes them: those of a data file, and the day."""
    fields = arrow_schema(table)
    return pa.schema([field for field in fields if field.name == DAY or field.name not in table.partition_by])


def text_columns(table: Table, columns: Iterable[str]) -> list[str]:
    schema = arrow_schema(table)
    return [name for name in columns if pa.types.is_string(schema.field(name).type)]


def stored_column(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    """A column of a data file in its declared type; nulls where the file lacks the column."""
    place = rows.schema.get_field_index(field.name)
    if place >= 0:
        column = rows.column(place)
        return column if column.type == field.type else column.cast(field.type)
    return pa.chunked_array([pa.nulls(rows.num_rows, field.type)])


def delta_struct(columns: Iterable[Column]) -> dict[str, Any]:
    """The schema as Delta's log and Spark's JSON represent it."""
    return {
        "type": "struct",
        "fields": [
            {
                "name": column.name,
                "type": _delta_type(column.type),
                "nullable": True,
                "metadata": {"comment": column.comment},
            }
            for column in columns
        ],
    }


def _delta_type(type_: Type) -> Any:
    match type_:
        case Scalar():
            return DELTA_SCALARS[type_]
        case ArrayOf():
            return {"type": "array", "elementType": _delta_type(type_.element), "containsNull": False}
        case MapOf():
            return {
                "type": "map",
                "keyType": _delta_type(type_.key),
                "valueType": _delta_type(type_.value),
                "valueContainsNull": True,
            }
        case StructOf():
            fields = [
                {"name": name, "type": _delta_type(field), "nullable": True, "metadata": {}}
                for name, field in type_.fields
            ]
            return {"type": "struct", "fields": fields}


def sql_type(type_: Type) -> str:
    match type_:
        case Scalar():
            return type_.value
        case ArrayOf():
            return f"ARRAY<{sql_type(type_.element)}>"
        case MapOf():
            return f"MAP<{sql_type(type_.key)}, {sql_type(type_.value)}>"
        case StructOf():
            return "STRUCT<" + ", ".join(f"{name}: {sql_type(field)}" for name, field in type_.fields) + ">"


STATISTICS_PROPERTY: Final = "delta.dataSkippingStatsColumns"


def statistics_columns(table: Table) -> tuple[str, ...]:
    """Columns whose minimum and maximum go into Delta's log.

    Personal columns are left out, since statistics outlive an erasure. So are binary ones: they cost more than the
    write.
    """
    return tuple(
        column.name
        for column in table.columns
        if column.type in WITH_STATISTICS and not column.is_personal and column.name not in table.partition_by
    )


def table_properties(table: Table) -> dict[str, str]:
    """Delta properties that every reader (Spark, delta-rs, DuckDB) supports.

    No deletion vectors (DuckDB's read_parquet would return deleted rows), no column mapping (delta-rs would read
    nulls). Ten commits from checkpoint to checkpoint, as in Spark: delta-rs reads them for each commit, and for each
    application that it is asked for.
    """
    return {
        "delta.enableDeletionVectors": "false",
        "delta.columnMapping.mode": "none",
        "delta.checkpointInterval": "10",
        STATISTICS_PROPERTY: ",".join(statistics_columns(table)),
    }


TIMESTAMP_MS_MAX: Final = 253_402_214_399_999
"""9999-12-30T23:59:59.999Z: the last time that Python, to which Spark passes local times, can show in every time
zone."""
NO_TIMESTAMP_MS: Final = -1
"""Kafka's RecordBatch.NO_TIMESTAMP."""


def timestamps(timestamp_ms: NDArray[np.int64]) -> pa.Array:
    """Epoch milliseconds as Arrow timestamps. Null for negative ones (-1 is NO_TIMESTAMP, others are invalid) and for
    those beyond the calendar of Spark and Python.

    The log is not trusted: a batch header may have any 64 bits as its timestamp. The batch itself keeps them.
    """
    if len(timestamp_ms) and timestamp_ms.min() >= 0 and timestamp_ms.max() <= TIMESTAMP_MS_MAX:
        return pa.array(timestamp_ms * 1000, type=pa.int64()).view(TIMESTAMP_TYPE)  # the usual case, in one pass
    shown = (timestamp_ms >= 0) & (timestamp_ms <= TIMESTAMP_MS_MAX)
    micros = np.where(shown, timestamp_ms, 0) * 1000
    return pa.array(micros, type=pa.int64(), mask=None if shown.all() else ~shown).cast(TIMESTAMP_TYPE)
