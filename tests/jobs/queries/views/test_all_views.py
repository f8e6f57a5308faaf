"""Every view over the recording that comes with the project: what it declares, in both engines, and the commands."""

import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs.delta.cluster_tables import ClusterTables
from jobs.queries.answers.group_history import run_groups
from jobs.queries.sql.sql import run_query
from jobs.queries.sql.sql_duckdb import DuckDb
from jobs.queries.sql.sql_spark import Catalogue
from jobs.queries.views.all_views import DEFINITIONS
from jobs.queries.views.declare import Definition
from tests.answers import printed
from tests.jobs.conftest import Recorded
from tests.jobs.silver.test_replay import CLUSTER

VALUES = {
    "time": "timestamp '2026-11-21T02:58:20Z'",
    "topic": "'s05-limit'",
    "partition": "0",
    "group": "'s05-limit'",
}


def query_of(definition: Definition) -> str:
    """A statement of all its rows."""
    arguments = ", ".join(VALUES[name] for name in definition.parameters)
    return f"select * from {definition.name}" + (f"({arguments})" if arguments else "")


def lines_of(engine: Any, query: str) -> list[str]:
    """The rows as JSON, in one order."""
    out = io.StringIO()
    run_query(engine, query, "json", out)
    return sorted(out.getvalue().splitlines())


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda it: it.name)
def test_a_view_has_the_columns_that_it_declares(recorded: Recorded, definition: Definition) -> None:
    """In their order, each with its meaning."""
    answer = DuckDb(recorded("full-a")).answer(query_of(definition))
    assert list(answer.columns) == [column.name for column in definition.columns]
    assert all(column.comment for column in definition.columns)


def test_both_engines_give_the_same_rows(recorded: Recorded, own_session: SparkSession) -> None:
    """Of every view and function."""
    warehouse = recorded("full-a")
    spark, duckdb = Catalogue(own_session, warehouse), DuckDb(warehouse)
    row_counts = {}
    for query in map(query_of, DEFINITIONS):
        rows = lines_of(duckdb, query)
        assert rows == lines_of(spark, query), query
        row_counts[query] = len(rows)
    assert sum(count > 0 for count in row_counts.values()) >= len(row_counts) - 2, row_counts


@pytest.mark.parametrize("at", [None, datetime(2026, 11, 21, 2, 58, tzinfo=UTC)])
def test_groups_prints_sums_of_the_views(recorded: Recorded, at: datetime | None) -> None:
    """All groups, and each number, of the last day and from a time on."""
    warehouse = recorded("full-a")
    from_ms = None if at is None else round(at.timestamp() * 1000)
    text, _ = printed(run_groups, ClusterTables(warehouse, CLUSTER), "json", from_ms=from_ms)
    numbers = {
        "rebalances": "rebalance_count",
        "storms": "storm_rebalance_count",
        "unowned_ms": "unowned_likely_ms",
        "given_up": "records_given_up",
        "redelivered": "records_redelivered",
        "extra_deliveries": "extra_deliveries",
        "rewinds": "went_back_count",
    }
    since = "true" if at is None else f"\"at\" >= timestamp '{at:%Y-%m-%d %H:%M:%S}Z'"  # the log is of one day
    sums = ", ".join(f"coalesce(sum({column}) filter ({since}), 0) as {name}" for name, column in numbers.items())
    query = f"""
        select g.group_id as "group", g.group_type as type, g.state, g.member_count as members, {sums}
        from current_groups as g left join counted_events as e on e.group_id = g.group_id group by all
    """
    answer = DuckDb(warehouse).answer(query)
    expected = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows()]
    shown = [json.loads(line) for line in text.splitlines()]
    there = {row["group"]: {name: row[name] for name in answer.columns} for row in shown if row["state"] != "Dead"}
    assert there == {row["group"]: row for row in expected} and len(there) > 50
    assert 0 < sum(row["rebalances"] for row in shown) <= (300 if at is None else 200)
