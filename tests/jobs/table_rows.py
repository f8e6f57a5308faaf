"""Rows of tables, as few columns of them as a test is about."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from jobs.delta.arrow_schemas import arrow_schema
from schemas.tables import TABLES, Table

COMMITS = TABLES["silver.offset_commits"]
NAMES = ["plain", "a b:/%=#?&'`\"é", None]
AT = datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)


def rows(table: Table, *values: dict[str, Any]) -> pa.Table:
    """Rows of a table, null where nothing is said."""
    empty: dict[str, Any] = dict.fromkeys(table.column_names)
    return pa.Table.from_pylist([empty | value for value in values], schema=arrow_schema(table))


def commits(*offsets: int, cluster_id: str | None = "c") -> pa.Table:
    """Offset commits at some offsets of one cluster."""
    return rows(
        COMMITS,
        *({"cluster_id": cluster_id, "log_partition": 0, "log_offset": o, "recorded_at": AT} for o in offsets),
    )


def never_null(table: pa.Table, *names: str) -> pa.Table:
    """The same rows, saying of some columns that no row has a null there."""
    fields = [field.with_nullable(field.name not in names) for field in table.schema]
    return pa.Table.from_arrays(table.columns, schema=pa.schema(fields))
