"""sql reads: whatever would change a table, or reach beyond the tables, is refused, unless --write allows it."""

import io
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from jobs.delta.warehouse import Warehouse
from jobs.errors import SqlError
from jobs.queries.sql.sql import run_query, shell
from jobs.queries.sql.sql_duckdb import DuckDb
from jobs.queries.sql.sql_spark import Catalogue
from schemas.tables import TABLES
from tests.cases.harness import CASES
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
    "explain delete from silver.group_events",
    "describe detail delta.`{path}`",
    "describe history '{path}'",
    "select * from delta.`{path}`",
    "select * from parquet.`{path}/*.parquet`",
    "select * from identifier('text.`/etc/hostname`')",
    "select * from identifier('csv.' || '`/etc/hostname`')",
    "select (select max(value) from text.`/etc/hostname`) as x",
    "with x as (select * from text.`/etc/hostname`) select * from x",
    "create temporary view t as select * from text.`/etc/hostname`",
    "create temporary function t() returns table(a string) return select value from text.`/etc/hostname`",
    "create global temporary view g as select 1 as x",
    "create or replace temporary view files using parquet options (path '{path}/*.parquet')",
    "create temporary view f using text options (path '/etc/hostname')",
    "create temporary table f using text options (path '/etc/hostname')",
    "set spark.sql.runSQLOnFiles = true",
    "reset spark.sql.runSQLOnFiles",
    "reset",
    "set spark.sql.warehouse.dir = /tmp",
    "set spark.sql.streaming.checkpointLocation = /tmp",
    "set fs.s3a.endpoint = http://localhost:1",
    "set `spark.sql.variable.substitute` = true",
    "refresh '{path}'",
    "list jars",
    "create temporary view w as with x as (select transform(1) using 'touch {path}/x' as (a)) select * from x",
    "select * from values (1) as v(a), lateral (select transform(v.a) using 'touch {path}/x' as (b))",
    "select map(1, (select first(a) from (select transform(1) using 'touch {path}/x' as (a)))) as m",
    "select 1 order by (select first(a) from (select transform(1) using 'touch {path}/x' as (a)))",
    "select 1 group by all having exists (select transform(1) using 'touch {path}/x' as (a))",
    "from silver.group_events |> extend (select max(a) from (select transform(1) using 'touch {path}/x' as (a))) as z",
    "with recursive r as (select 1 as n union all select n + 1 from r where n < 2) select transform(n) using 'touch "
    "{path}/x' as (a) from r",
    "from silver.group_events map log_offset using 'touch {path}/x' as a",
    "from silver.group_events reduce log_offset using 'touch {path}/x' as a",
    "describe query select transform(1) using 'touch {path}/x' as (a)",
    "cache lazy table z as select transform(1) using 'touch {path}/x' as (a)",
)
UNKNOWN: Final = (
    "select * from table_changes('silver.group_events', 0)",
    "select * from table_changes_by_path('{path}', 0)",
    "select * from text.`/etc/shadow`",
    "select system.builtin.reflect('java.lang.System', 'setProperty', 'sql.reads', 'no')",
    "explain select reflect('java.lang.System', 'setProperty', 'sql.reads', 'no') from values (1)",
)
"""Spark's own words for these: it knows no such function or table, or not what it needs."""
READS: Final = (
    "select count(*) as n from silver.group_events",
    "with x as (select 1 as n) select * from x",
    "table silver.group_events",
    "values (1), (2)",
    "from silver.group_events |> select log_offset",
    "from silver.group_events |> where log_offset > 0 |> order by log_offset |> limit 1",
    "select * from silver.group_events version as of 1",
    "explain select 1",
    "show tables in silver",
    "show tblproperties silver.group_events",
    "describe extended silver.group_events",
    "describe history silver.group_events",
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
)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """One table, with a row each of two clusters."""
    warehouse = Warehouse(str(tmp_path_factory.mktemp("read-only") / "w"))
    made = rows(EVENTS, {"cluster_id": "a", "log_offset": 1}, {"cluster_id": "it's b", "log_offset": 2})
    warehouse.write(EVENTS, made, app_id="x", version=1)
    return warehouse


@pytest.fixture(scope="module")
def duckdb(warehouse: Warehouse) -> DuckDb:
    """What one statement does to it, the next ones find."""
    return DuckDb(warehouse)


def answer(catalogue: Any, statement: str, path: str) -> str:
    """What a statement prints."""
    out = io.StringIO()
    run_query(catalogue, statement.replace("{path}", path), "csv", out)
    return out.getvalue()


def test_every_way_to_write_is_refused(own_session: SparkSession, warehouse: Warehouse) -> None:
    """By name and by path, in any disguise: the table, its log and its folder are as they were."""
    catalogue = Catalogue(own_session, warehouse)
    folder = Path(warehouse.path(EVENTS))
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    for statement in WRITES:
        with pytest.raises(SqlError) as caught:
            answer(catalogue, statement, str(folder))
        is_parsers = "PARSE_SYNTAX_ERROR" in str(caught.value)
        is_unknown = "TABLE_OR_VIEW_NOT_FOUND" in str(caught.value) and "`/etc/" in statement + "`/etc/"
        assert is_parsers or is_unknown or "the ledger is read-only here" in str(caught.value), (
            statement,
            caught.value,
        )
        assert own_session._jvm.java.lang.System.getProperty("sql.reads") is None, statement  # type: ignore[union-attr]
    for statement in UNKNOWN:
        with suppress(SqlError):
            assert "UNRESOLVED_ROUTINE" in answer(catalogue, statement, str(folder)), statement
        assert own_session._jvm.java.lang.System.getProperty("sql.reads") is None, statement  # type: ignore[union-attr]
    shell(catalogue, "csv", ["delete from silver.group_events;", "drop table", "silver.group_events;"])
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert answer(catalogue, READS[0], "") == "n\n2\n"


STATEMENTS: Final = (CASES / "sql" / "statements.txt").read_text(encoding="utf-8").splitlines()
"""Tried by strangers: commands, classes, files, tables. PWN is a folder, WAREHOUSE that of the tables."""
READ_OF_STATEMENTS: Final = [
    "declare variable r string",
    "describe history gold.rebalances",
    "refresh table gold.rebalances",
    "cache table gold.rebalances",
]
"""Those that read, or change only the session."""
DUCKDB_STATEMENTS: Final = (
    "copy (select 1) to 'PWN/a.csv'",
    "copy silver.group_events to 'WAREHOUSE/x.parquet' (format parquet)",
    "copy silver.group_events from '/etc/passwd'",
    "/* a */ -- b\n copy (select 1) to 'PWN/b.csv'",
    "explain copy (select 1) to 'PWN/c.csv'",
    "explain analyze copy (select 1) to 'PWN/c.csv'",
    "explain (analyze, format json) copy (select 1) to 'PWN/c.csv'",
    "explain /* x */ analyze copy (select 1) to 'PWN/c.csv'",
    "select 1; copy (select 1) to 'PWN/d.csv'",
    "with x as (select 1) copy (select * from x) to 'PWN/e.csv'",
    "export database 'PWN/f'",
    "import database 'PWN/f'",
    "attach 'PWN/g.db'",
    "attach 'PWN/g.db' as g (type sqlite)",
    "detach memory",
    "install httpfs",
    "force install httpfs from 'http://localhost:1'",
    "load httpfs",
    "load 'PWN/x.duckdb_extension'",
    "set enable_external_access = true",
    "set global lock_configuration = false",
    "set temp_directory = 'PWN'",
    "set variable x = 1",
    "reset lock_configuration",
    "pragma enable_profiling",
    "pragma profiling_output = 'PWN/h.json'",
    "pragma database_list",
    "call enable_logging(storage = 'file', storage_config = {'path': 'PWN'})",
    "select * from enable_logging(storage = 'file', storage_config = {'path': 'PWN'})",
    "call pragma_version()",
    "checkpoint",
    "create secret s (type http)",
    "create persistent secret s (type http)",
    "create table t as select 1",
    "create temporary table t as select * from read_text('/etc/passwd')",
    "create view v as select 1",
    "create macro m() as table select 1",
    "create schema s",
    "create or replace view silver.group_events as select 1",
    "create temporary view v as select * from read_csv('/etc/passwd')",
    "create temporary macro m() as table select * from read_text('/etc/passwd'); select * from m()",
    "drop view silver.group_events",
    "delete from silver.group_events",
    "insert into silver.group_events select * from silver.group_events",
    "truncate silver.group_events",
    "prepare p as select 1",
    "execute p",
    "begin",
    "use silver",
    "vacuum",
    "comment on view silver.group_events is 'x'",
    "select * from read_text('/etc/passwd')",
    "select * from read_blob('/etc/hostname')",
    "select * from read_csv('/etc/passwd')",
    "select * from read_csv_auto(['/etc/passwd'])",
    "select * from sniff_csv('/etc/passwd')",
    "select * from read_json('/etc/passwd')",
    "select * from read_parquet('WAREHOUSE/*.parquet')",
    "select * from parquet_metadata('WAREHOUSE/*.parquet')",
    "select * from glob('/etc/*')",
    "select * from '/etc/passwd'",
    "select * from '/etc/passwd.csv'",
    "select * from 'WAREHOUSE/x.parquet'",
    "from 'http://localhost:1/x.parquet'",
    "select * from query('select * from read_text(''/etc/passwd'')')",
    "select * from query_table('/etc/passwd.csv')",
    "select (select content from read_text('/etc/passwd'))",
    "select 1 where exists (from read_text('/etc/passwd'))",
    "select getenv('HOME')",
    "select * from statement",
    "select * from pandas_scan(1)",
    "select * from delta_scan('WAREHOUSE')",
    "select * from sqlite_scan('PWN/x', 't')",
    "select * from json_execute_serialized_sql(json_serialize_sql('select * from read_text(''/etc/passwd'')'))",
    "pivot silver.group_events on event_type using count(*)",
    "\u00a0copy (select 1) to 'PWN/i.csv'",
    "\ufeffcopy (select 1) to 'PWN/i.csv'",
    "c\u043epy (select 1) to 'PWN/i.csv'",
    "copy (select 1) to 'PWN/j.csv';",
    "",
    ";",
)
"""DuckDB's own ways to files, other programs, settings and more than one statement."""


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("statement", (*DUCKDB_STATEMENTS, *STATEMENTS))
def test_duckdb_reaches_no_file_and_no_setting(
    warehouse: Warehouse, duckdb: DuckDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """One line that says so, nothing in the folder, the warehouse as it was, and the next query is answered."""
    monkeypatch.chdir(tmp_path)
    before = contents(Path(warehouse.root))
    with pytest.raises(SqlError) as caught:
        answer(duckdb, statement.replace("PWN", str(tmp_path)).replace("WAREHOUSE", warehouse.root), "")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [] and contents(Path(warehouse.root)) == before
    assert answer(duckdb, READS[0], "") == "n\n2\n"


@pytest.mark.parametrize(
    "statement",
    [
        "explain select 1",
        "/* a */ explain analyze select count(*) from silver.group_events",
        "-- a\nselect 1",
        "describe silver.group_events",
        "summarize silver.group_events",
        "show tables from silver",
        "create temporary view mine as select * from silver.group_events",
        "-- a\ncreate or replace temp macro twice(x) as 2 * x",
        "from silver.group_events",
        "table silver.group_events",
        "values (1)",
        "with x as (select 1) from x",
        "select 'copy (select 1) to ''x' as text",
    ],
)
def test_what_reads_in_duckdb_is_run(warehouse: Warehouse, statement: str) -> None:
    """Queries, explanations, descriptions, and what lives in the session alone."""
    answer(DuckDb(warehouse), statement, "")


def test_statements_of_strangers_do_nothing_in_spark(
    own_session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No command is run, no class or jar is loaded, and no file outside of the tables is read or written."""
    pwn, root = tmp_path / "pwn", tmp_path / "w"
    pwn.mkdir()
    monkeypatch.chdir(pwn)
    warehouse = Warehouse(str(root))
    table = TABLES["gold.rebalances"]
    warehouse.write(table, rows(table, {"cluster_id": "a"}), app_id="x", version=1)
    before = contents(root)
    catalogue = Catalogue(own_session, warehouse)
    ran = []
    for statement in STATEMENTS:
        with suppress(SqlError):
            answer(catalogue, statement.replace("PWN", str(pwn)).replace("WAREHOUSE", str(root)), "")
            ran.append(statement)
        assert list(pwn.iterdir()) == [] and contents(root) == before, statement
    assert ran == READ_OF_STATEMENTS
    own_session.catalog.clearCache()


def test_what_reads_is_run(own_session: SparkSession, warehouse: Warehouse) -> None:
    """Queries, explanations, and what lives in the session alone."""
    catalogue = Catalogue(own_session, warehouse)
    for statement in READS:
        answer(catalogue, statement, warehouse.path(EVENTS))


def test_the_rows_of_one_cluster(own_session: SparkSession, warehouse: Warehouse) -> None:
    """With a cluster id names of tables stand for its rows alone."""
    query = "select cluster_id, log_offset from silver.group_events"
    for cluster_id, shown in (("a", "a,1\n"), ("it's b", "it's b,2\n"), ("c", "")):
        catalogue = Catalogue(own_session, warehouse, cluster_id=cluster_id)
        assert answer(catalogue, query, "") == f"cluster_id,log_offset\n{shown}"
    assert answer(Catalogue(own_session, warehouse), "select count(*) as n from silver.group_events", "") == "n\n2\n"


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
