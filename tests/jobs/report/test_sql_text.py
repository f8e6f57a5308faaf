"""The SQL below a table of the report: DuckDB makes the same rows of it, whatever the names in it are."""

from datetime import UTC, datetime
from typing import Any, Final

import pytest

from jobs.delta.times import epoch_ms
from jobs.delta.warehouse import Warehouse
from jobs.queries.sql.sql_duckdb import DuckDb
from jobs.report.run import make_report
from jobs.report.sql_text import Scope, literal, time_literal
from tests.jobs.conftest import Recorded
from tests.jobs.hostile import HOSTILE
from tests.jobs.report.tables import tables_of
from tests.jobs.silver.test_replay import CLUSTER
from tests.lengths import takes_minutes

MADE_AT: Final = datetime(2026, 1, 2, tzinfo=UTC)
GROUPS: Final = ("c01-range", "k06-migrate", "s05-limit")
"""Classic, changed to consumer midway, share."""
SCOPES: Final = (
    Scope(CLUSTER, GROUPS[:1], 1_795_229_894_000, 1_795_229_900_000),
    pytest.param(
        Scope(CLUSTER, GROUPS),
        marks=takes_minutes,
    ),
)


@pytest.fixture(scope="module")
def warehouse(recorded: Recorded) -> Warehouse:
    """The tables of the recording that comes with the project."""
    return recorded("full-a")


@pytest.fixture(scope="module")
def duckdb(warehouse: Warehouse) -> DuckDb:
    """These tables."""
    return DuckDb(warehouse)


def answer(duckdb: DuckDb, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Columns and rows that DuckDB gives; times as epoch milliseconds."""
    found = duckdb.answer(sql)
    rows = [tuple(epoch_ms(value) if isinstance(value, datetime) else value for value in row) for row in found.rows()]
    return list(found.columns), rows


@pytest.mark.parametrize("scope", SCOPES)
def test_each_table_is_what_its_sql_gives(duckdb: DuckDb, warehouse: Warehouse, scope: Scope) -> None:
    """Read back from the file: DuckDB gives these columns, these rows first, and as many rows as the page says."""
    text, _ = make_report(warehouse, scope, made_at=MADE_AT)
    shown = list(tables_of(text))
    assert len(shown) >= 8 and sum(table.row_count > 0 for table in shown) >= 5
    for table in shown:
        columns, rows = answer(duckdb, table.sql)
        assert columns == table.columns, table.sql
        assert rows[: len(table.rows)] == table.rows, table.sql
        assert len(rows) == table.row_count, table.sql


@pytest.mark.nights
def test_literals_are_read_back(duckdb: DuckDb) -> None:
    """200 hostile texts as literals are themselves to DuckDB, and so is a moment."""
    for text in HOSTILE:
        assert answer(duckdb, f"select {literal(text)}")[1] == [(text,)]
    assert answer(duckdb, f"select {time_literal(1_795_230_000_123)}")[1] == [(1_795_230_000_123,)]
