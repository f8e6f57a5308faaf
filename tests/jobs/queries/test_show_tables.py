"""show tables in LAYER: what a night tells to ask first is answered without Spark, as Spark answers it."""

import io
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from jobs.cli_enums import Engine
from jobs.delta.warehouse import Warehouse
from jobs.queries.sql import Catalogue, run_query
from jobs.queries.sql_duckdb import DuckDb
from jobs.queries.sql_engines import Engines
from schemas.tables import TABLES
from tests.jobs.table_rows import rows

NAMES = ("silver.offset_commits", "silver.group_events", "gold.rebalances")


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Three tables of two layers."""
    made = Warehouse(str(tmp_path_factory.mktemp("shown")))
    for name in NAMES:
        table = TABLES[name]
        made.write(table, rows(table, {"cluster_id": "c"}), app_id="a", version=1)
    return made


def printed(answering: Any, statement: str) -> str:
    """What it prints."""
    out = io.StringIO()
    run_query(answering, statement, "csv", out)
    return out.getvalue()


def no_spark(*_: object) -> Catalogue:
    """Is not to be started."""
    raise AssertionError("Spark started")


@pytest.mark.parametrize("statement", ["show tables in silver", "SHOW TABLES FROM Silver;", " show\ntables in silver "])
def test_tables_of_a_layer_are_listed_without_spark(warehouse: Warehouse, statement: str) -> None:
    """By name, with Spark's columns."""
    engines = Engines(DuckDb(warehouse), no_spark, engine=Engine.AUTO, say=lambda _: None)
    assert printed(engines, statement).splitlines() == [
        "namespace,tableName,isTemporary",
        "silver,group_events,False",
        "silver,offset_commits,False",
    ]


@pytest.mark.parametrize("statement", ["show tables", "show tables in nowhere", "show tables in silver like 'x'"])
def test_other_lists_are_sparks(warehouse: Warehouse, statement: str) -> None:
    """Of what may be a name of the session, or is none."""
    engines = Engines(DuckDb(warehouse), no_spark, engine=Engine.AUTO, say=lambda _: None)
    with pytest.raises(AssertionError, match="Spark started"):
        engines.answer(statement)


@pytest.mark.spark
def test_spark_lists_the_same(own_session: SparkSession, warehouse: Warehouse) -> None:
    """To the letter."""
    engines = Engines(DuckDb(warehouse), no_spark, engine=Engine.AUTO, say=lambda _: None)
    for layer in ("silver", "gold"):
        statement = f"show tables in {layer}"
        assert printed(engines, statement) == printed(cast("Any", Catalogue(own_session, warehouse)), statement)
