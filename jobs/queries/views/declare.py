"""What a view or a table function is: a query that Spark and DuckDB both read, and what its columns mean.

`{word}` is the place of a parameter, and of what the dialects say differently (`WORDS`). Definitions are constants: no
id, path or time is put into their text. Arguments reach an engine as values of the function call.

In Spark's in-memory catalogue and in DuckDB they end with the session; with a metastore they are persistent like the
tables, and visible to other sessions.
"""

import re
from collections.abc import Collection, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from jobs.cli_enums import Engine
from schemas.tables.declare import Column, Table
from schemas.tables.gold import LOG_ANOMALIES
from schemas.tables.silver import COORDINATOR_PARTITIONS


class Kind(StrEnum):
    VIEW = "VIEW"
    FUNCTION = "FUNCTION"


WORDS: Final = {
    Engine.SPARK: {
        "from_millis": "timestamp_millis(",
        "steps": "collect_list(struct(from_time, to_time))",
        "is_twice": "exists(k.steps, s -> {time} BETWEEN s.from_time AND s.to_time)",
        "batches": "sort_array(collect_list(struct(first_offset, last_offset, delivery_state, delivery_count)))",
        "no_batches": "array()",
    },
    Engine.DUCKDB: {
        "from_millis": "make_timestamptz(1000 * ",
        "steps": "list(struct_pack(from_time := from_time, to_time := to_time))",
        "is_twice": "len(list_filter(k.steps, lambda s: {time} BETWEEN s.from_time AND s.to_time)) > 0",
        "batches": "list_sort(list(struct_pack(first_offset := first_offset, last_offset := last_offset, "
        "delivery_state := delivery_state, delivery_count := delivery_count)))",
        "no_batches": "[]",
    },
}
"""The text of a word in each engine's dialect."""

CLOCK_STEPS: Final = """(
            SELECT cluster_id, log_topic, log_partition, from_time, before + (before - from_time) AS to_time FROM (
                SELECT a.cluster_id, a.log_topic, a.log_partition, a.at AS from_time,
                    {from_millis}CAST(regexp_extract(a.details, '^from (-?[0-9]+) to', 1) AS BIGINT)) AS before
                FROM gold.log_anomalies AS a WHERE a.rule = 'TIME_WENT_BACK'
            )
        )"""
"""The time spans that a log passes twice: between the timestamps of the two records at a clock step, extended by the
same length, since it is unknown how much time passed before the clock went back."""
NO_CLOCK_STEPS: Final = """(
            SELECT CAST(NULL AS STRING) AS cluster_id, CAST(NULL AS STRING) AS log_topic,
                CAST(NULL AS INT) AS log_partition, CAST(NULL AS TIMESTAMP) AS from_time,
                CAST(NULL AS TIMESTAMP) AS to_time WHERE false
        )"""
COORDINATOR_ROWS: Final = "(SELECT * FROM silver.coordinator_partitions)"
"""When Kafka used which log partition for groups and share partitions with records in several. Others are where
their records are."""
NO_COORDINATOR_ROWS: Final = """(
        SELECT CAST(NULL AS STRING) AS cluster_id, CAST(NULL AS STRING) AS log_topic, CAST(NULL AS STRING) AS group_id,
            CAST(NULL AS STRING) AS topic_id, CAST(NULL AS INT) AS partition, CAST(NULL AS TIMESTAMP) AS valid_from,
            CAST(NULL AS TIMESTAMP) AS valid_to, CAST(NULL AS INT) AS log_partition WHERE false
    )"""
"""As `COORDINATOR_ROWS`, for a warehouse without that table."""


class Definition(NamedTuple):
    """A view or a table function. `signature`: the parameters of a function."""

    kind: Kind
    name: str
    about: str
    signature: str
    tables: tuple[Table, ...]
    """The tables that its query reads."""
    query: str
    columns: tuple[Column, ...]

    @property
    def parameters(self) -> list[str]:
        return re.findall(r"\w+(?=`? [A-Z])", self.signature)

    def statement(self, there: Collection[str], engine: Engine, *, is_persistent: bool = False) -> str | None:
        """The DDL; None where a table that it needs is not `there`."""
        if not all(table.full_name in there for table in self.tables):
            return None
        query = self.query
        if LOG_ANOMALIES.full_name not in there:
            query = query.replace(CLOCK_STEPS, NO_CLOCK_STEPS)
        if COORDINATOR_PARTITIONS.full_name not in there:
            query = query.replace(COORDINATOR_ROWS, NO_COORDINATOR_ROWS)
        is_spark = engine is Engine.SPARK
        names = {name: f"{self.name}.`{name}`" if is_spark else f'"{name}"' for name in self.parameters}
        for word, text in (WORDS[engine] | names).items():
            query = query.replace(f"{{{word}}}", text)
        create = f"CREATE OR REPLACE {'' if is_persistent else 'TEMPORARY '}"
        if self.kind is Kind.VIEW:
            return f"{create}VIEW {self.name} AS {query}"
        if is_spark:
            return f"{create}FUNCTION {self.name}{self.signature} RETURNS TABLE RETURN {query}"
        return f"{create}MACRO {self.name}({', '.join(names.values())}) AS TABLE {query}"


def columns_of(table: Table, names: str) -> Iterator[Column]:
    """Columns of a view that are those of a table; `names` may have the table's alias before them."""
    columns = {column.name: column for column in table.columns}
    return (columns[name.strip().rpartition(".")[2]] for name in names.split(","))
