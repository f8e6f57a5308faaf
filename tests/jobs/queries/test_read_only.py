"""sql reads: whatever would change a table is refused by what Spark's parser makes of it, unless --write allows it."""

import io
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from jobs.delta.warehouse import Warehouse
from jobs.errors import SqlError
from jobs.queries.sql import Catalogue, run_query, shell
from schemas.tables import TABLES
from tests.jobs.table_rows import rows

EVENTS: Final = TABLES["silver.group_events"]
WRITES: Final = (
    "delete from silver.group_events",
    "DELETE FROM delta.`{path}` where log_offset = 1",
    "/* a */ -- b\n delete from silver.group_events where true",
    "update silver.group_events set event = 'x'",
    "insert into silver.group_events select * from silver.group_events",
    "insert overwrite silver.group_events select * from silver.group_events",
    "insert into delta.`{path}` select * from delta.`{path}`",
    "insert into silver.group_events replace where true select * from silver.group_events",
    "from silver.group_events insert into silver.group_events select *",
    "with x as (select * from silver.group_events) insert into silver.group_events select * from x",
    "merge into silver.group_events a using silver.group_events b on a.at = b.at when matched then delete",
    "truncate table silver.group_events",
    "drop table silver.group_events",
    "drop database silver cascade",
    "drop view silver.group_events",
    "alter table silver.group_events add columns (x int)",
    "alter table silver.group_events set tblproperties ('delta.appendOnly' = 'true')",
    "comment on table silver.group_events is 'x'",
    "create table silver.mine (x int) using delta",
    "create or replace table silver.group_events using delta as select 1 as x",
    "create table silver.copy shallow clone silver.group_events",
    "create view silver.mine as select 1 as x",
    "create database mine",
    "optimize silver.group_events",
    "optimize delta.`{path}`",
    "vacuum silver.group_events",
    "restore table silver.group_events to version as of 0",
    "restore table delta.`{path}` to version as of 0",
    "reorg table silver.group_events apply (purge)",
    "analyze table silver.group_events compute statistics",
    "insert overwrite directory '{path}' using parquet select 1 as x",
    "execute immediate 'delete from silver.group_events'",
    "begin delete from silver.group_events; end",
    "declare x string; delete from silver.group_events",
    "select transform(a) using 'touch {path}/x' as (b string) from (select 1 as a)",
    "add jar '/x.jar'",
    "create temporary function f as 'java.lang.String'",
    "select reflect('java.lang.System', 'setProperty', 'sql.reads', 'no')",
    "select java_method('java.lang.System', 'setProperty', 'sql.reads', 'no') from values (1)",
    "select TRY_REFLECT('java.lang.System', 'setProperty', 'sql.reads', 'no')",
    "select `reflect`('java.lang.System', 'setProperty', 'sql.reads', 'no')",
    "select 1 where exists (select reflect('java.lang.System', 'setProperty', 'sql.reads', 'no'))",
    "select identifier('ref' || 'lect')('java.lang.System', 'setProperty', 'sql.reads', 'no')",
    "select builtin.reflect('java.lang.System', 'setProperty', 'sql.reads', 'no')",
    "set variable v = reflect('java.lang.System', 'setProperty', 'sql.reads', 'no')",
    "declare or replace variable w string default reflect('java.lang.System', 'setProperty', 'sql.reads', 'no')",
    "cache table c as select reflect('java.lang.System', 'setProperty', 'sql.reads', 'no')",
    "create temporary view r as select reflect('java.lang.System', 'setProperty', 'sql.reads', 'no')",
    "create temporary function f() returns string return reflect('java.lang.System', 'setProperty', 'sql.reads', 'no')",
    "create temporary view j using jdbc options (url 'jdbc:derby:{path}/j;create=true', dbtable 'sysibm.sysdummy1')",
    "create temporary view j using org.apache.spark.sql.execution.datasources.jdbc"
    " options (url 'jdbc:derby:{path}/j;create=true', dbtable 'sysibm.sysdummy1')",
    "set spark.sql.catalog.j = org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
    "set spark.sql.catalog.spark_catalog = org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
    "create function silver.f as 'java.lang.String' using jar '/x.jar'",
    "create or replace temporary function f as 'java.lang.String' using jar '/x.jar'",
    "insert overwrite local directory '{path}' using csv select 1 as x",
    "insert into parquet.`{path}` select 1 as x",
    "create table parquet.`{path}` as select 1 as x",
    "create table silver.mine using parquet location '{path}' as select 1 as x",
    "copy into silver.group_events from '{path}' fileformat = parquet",
    "load data inpath '{path}' into table silver.group_events",
    "msck repair table silver.group_events",
    "refresh function silver.f",
    "add file '/x'",
    "add archive '/x.zip'",
    "call system.vacuum('silver.group_events')",
)
UNKNOWN: Final = (
    "select system.builtin.reflect('java.lang.System', 'setProperty', 'sql.reads', 'no')",
    "explain select reflect('java.lang.System', 'setProperty', 'sql.reads', 'no') from values (1)",
)
"""Spark's own words for these: it knows no such function."""
READS: Final = (
    "select count(*) as n from silver.group_events",
    "with x as (select 1 as n) select * from x",
    "table silver.group_events",
    "values (1), (2)",
    "from silver.group_events |> select log_offset",
    "select * from silver.group_events version as of 1",
    "explain delete from silver.group_events",
    "explain select 1",
    "show tables in silver",
    "show tblproperties silver.group_events",
    "describe extended silver.group_events",
    "describe history silver.group_events",
    "describe detail delta.`{path}`",
    "describe query select 1 as x",
    "create or replace temporary view mine as select * from silver.group_events",
    "select * from mine",
    "cache table mine",
    "uncache table mine",
    "drop view mine",
    "create temporary function twice(x int) returns int return 2 * x",
    "select twice(2) as four",
    "drop temporary function twice",
    "declare or replace variable v int default 1",
    "set variable v = 2",
    "drop temporary variable v",
    "set spark.sql.ansi.enabled = true",
    "use silver",
    "use default",
    "select 'delete from silver.group_events' as text",
    "select 'reflect(1)' as java_method",
    "set spark.sql.shuffle.partitions = 3",
    "create or replace temporary view files using parquet options (path '{path}/*.parquet')",
    "drop view files",
)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """One table, with a row each of two clusters."""
    warehouse = Warehouse(str(tmp_path_factory.mktemp("read-only") / "w"))
    made = rows(EVENTS, {"cluster_id": "a", "log_offset": 1}, {"cluster_id": "it's b", "log_offset": 2})
    warehouse.write(EVENTS, made, app_id="x", version=1)
    return warehouse


def answer(catalogue: Catalogue, statement: str, path: str) -> str:
    """What a statement prints."""
    out = io.StringIO()
    run_query(catalogue, statement.replace("{path}", path), "csv", out)
    return out.getvalue()


@pytest.mark.spark
def test_every_way_to_write_is_refused(own_session: SparkSession, warehouse: Warehouse) -> None:
    """By name and by path, in any disguise: the table, its log and its folder are as they were."""
    catalogue = Catalogue(own_session, warehouse)
    folder = Path(warehouse.path(EVENTS))
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    for statement in WRITES:
        with pytest.raises(SqlError) as caught:
            answer(catalogue, statement, str(folder))
        is_parsers = "PARSE_SYNTAX_ERROR" in str(caught.value)
        assert is_parsers or "the ledger is read-only here" in str(caught.value), statement
        assert is_parsers == statement.startswith(("declare x", "copy into")), statement
        assert own_session._jvm.java.lang.System.getProperty("sql.reads") is None, statement  # type: ignore[union-attr]
    for statement in UNKNOWN:
        with suppress(SqlError):
            assert "UNRESOLVED_ROUTINE" in answer(catalogue, statement, ""), statement
        assert own_session._jvm.java.lang.System.getProperty("sql.reads") is None, statement  # type: ignore[union-attr]
    shell(catalogue, "csv", ["delete from silver.group_events;", "drop table", "silver.group_events;"])
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert answer(catalogue, READS[0], "") == "n\n2\n"


@pytest.mark.spark
def test_what_reads_is_run(own_session: SparkSession, warehouse: Warehouse) -> None:
    """Queries, explanations, and what lives in the session alone."""
    catalogue = Catalogue(own_session, warehouse)
    for statement in READS:
        answer(catalogue, statement, warehouse.path(EVENTS))


@pytest.mark.spark
def test_the_rows_of_one_cluster(own_session: SparkSession, warehouse: Warehouse) -> None:
    """With a cluster id names of tables stand for its rows alone."""
    query = "select cluster_id, log_offset from silver.group_events"
    for cluster_id, shown in (("a", "a,1\n"), ("it's b", "it's b,2\n"), ("c", "")):
        catalogue = Catalogue(own_session, warehouse, cluster_id=cluster_id)
        assert answer(catalogue, query, "") == f"cluster_id,log_offset\n{shown}"
    assert answer(Catalogue(own_session, warehouse), "select count(*) as n from silver.group_events", "") == "n\n2\n"


@pytest.mark.spark
def test_writing_is_there_for_whoever_asks(own_session: SparkSession, tmp_path: Path) -> None:
    """--write runs it."""
    warehouse = Warehouse(str(tmp_path / "w"))
    warehouse.write(EVENTS, rows(EVENTS, {"cluster_id": "a", "log_offset": 1}), app_id="x", version=1)
    catalogue = Catalogue(own_session, warehouse, may_write=True)
    answer(catalogue, "delete from silver.group_events", "")
    call = "select reflect('java.lang.Math', 'max', 1, 2) as most"
    with pytest.raises(SqlError, match="read-only"):
        answer(Catalogue(own_session, warehouse), call, "")
    assert answer(catalogue, call, "") == "most\n2\n"
    assert answer(catalogue, READS[0], "") == "n\n0\n"
