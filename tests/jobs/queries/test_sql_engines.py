"""sql without Spark: what DuckDB answers is what Spark answers, to the letter, and all else is Spark's."""

import gc
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from jobs.cli_enums import Engine
from jobs.delta.warehouse import Warehouse
from jobs.errors import SqlError
from jobs.queries import findings, sql
from jobs.queries.sql import Catalogue, run_query
from jobs.queries.sql_duckdb import DuckDb
from jobs.queries.sql_engines import Engines
from jobs.queries.sql_subset import OutsideSubset
from jobs.queries.views import DEFINITIONS
from jobs.queries.views import Kind as DefinitionKind
from jobs.spark.settings import own_sql_settings
from schemas.tables import TABLES
from tests.cases.harness import CASES, Ledger
from tests.conftest import IS_TEST_LIVE, takes_minutes
from tests.documents import documents, examples, our_jobs
from tests.jobs.conftest import Recorded
from tests.jobs.queries.test_views import DATA, at
from tests.jobs.table_rows import rows

AT = "timestamp '2026-11-21T02:58:17Z'"
SPARK_ALONE = ("lateral owner_at", "describe table", "arrays_overlap", "version as of")
"""Of the queries that documents and findings show: what is left to Spark."""
CASES_OF_SQL = (
    "select * from gold.group_summary",
    "select * from silver.group_events",
    "select group_id, details from silver.group_events where event_type = 'MEMBER_JOINED'",
    "select * from bronze.record_batches where partition = 0 and base_offset < 5",
    "select * from current_groups",
    "select * from current_offsets",
    "select * from current_share_partitions",
    f"select * from group_at({AT})",
    f"select * from owner_at('c01-range', 1, {AT})",
    f"select * from offsets_at('c01-range', {AT})",
    "select * from share_partition_at('s05-limit', 's05-limit', 0, timestamp '2026-11-21 02:57:46')",
    "select count(*), count(1), count(stickiness), count(distinct cause), min(started_at), max(unowned_partition_ms), "
    "sum(partitions_moved), avg(partitions_moved), min(in_storm) from gold.rebalances",
    "select count(*), sum(partitions_moved), max(cause) from gold.rebalances where group_id = 'nobody'",
    "select distinct cause, in_storm from gold.rebalances where not in_storm or cause like '%MEMBER\\_%'".replace(
        "\\", ""
    ),
    "select group_id, partitions_moved / member_count as moved from gold.rebalances where member_count > 0",
    "select group_id, stickiness from gold.rebalances order by stickiness, group_id, to_generation, started_at",
    "select group_id, stickiness from gold.rebalances order by stickiness desc, group_id desc, "
    "to_generation desc, started_at desc limit 40",
    "select group_id as name, date_trunc('minute', started_at) as minute, count(*) as n from gold.rebalances "
    "group by name, minute having count(*) > 1 order by n desc, name, minute",
    "select group_id, sum(case when in_storm then 1 else 0 end) as storms from gold.rebalances group by "
    "1 order by 2 desc, 1",
    "select r.group_id, s.day, r.to_generation from gold.rebalances r left join gold.group_summary as s "
    "on r.group_id = s.group_id and s.rebalance_count > 4 where r.started_at between '2026-11-21T02:58:00Z' "
    "and '2026-11-21 02:59:00' order by r.group_id, r.to_generation, r.started_at, s.day",
    "with odd as (select group_id, kind from gold.commit_anomalies where kind <> 'ABORTED'), "
    "counted as (select group_id, count(*) as n from odd group by group_id) "
    "select c.*, coalesce(g.state, 'gone') as now from counted c left join current_groups g on "
    "c.group_id = g.group_id",
    "select group_id from silver.group_generations where group_id not in (select group_id from gold.rebalances)",
    "select x.n, x.n * 2 - 1 as m from (select count(*) as n from gold.rebalances group by group_id) as "
    "x where x.n in (1, 2, 3)",
    "select max(size(members_joined)) as joined from gold.rebalances where array_contains(causes, 'MEMBER_JOINED')",
    "select at, group_id from gold.commit_anomalies where at > '2026-11-21' and is_former_log_partition = false",
)
LEFT_TO_SPARK = (
    "select 1",
    "select * from gold.rebalances -- all of them",
    "select /*+ coalesce(1) */ * from gold.rebalances",
    'select * from gold.rebalances where group_id = "c01-range"',
    "select * from gold.rebalances where group_id = 'it\\'s'",
    "select * from gold.rebalances where group_id = 'it''s'",
    "select * from gold.rebalances where group_id = 7",
    "select * from gold.rebalances where started_at > '2026'",
    "select * from gold.rebalances where started_at > 'now'",
    "select * from gold.rebalances where started_at > '2026-02-30'",
    "select GROUP_ID from gold.rebalances",
    "select cause as group_id from gold.rebalances order by group_id",
    "select group_id as g from gold.rebalances where g = 'c01-range'",
    "select a.group_id from gold.rebalances a cross join gold.group_summary b on a.group_id = b.group_id",
    "select a.group_id from gold.rebalances a anti join gold.group_summary b on a.group_id = b.group_id",
    "select group_id from gold.rebalances union all select group_id from gold.group_summary",
    "select group_id from gold.rebalances a join gold.group_summary b on a.group_id = b.group_id",
    "select sum(in_storm) from gold.rebalances",
    "select upper(group_id) as g from gold.rebalances",
    "select count(*) over () as n from gold.rebalances",
    "select sum(partitions_moved) + 1 from gold.rebalances",
    "select stickiness from gold.rebalances where stickiness > 0.5",
    "select group_id, count(*) from gold.rebalances group by all",
    "select distinct cause from gold.rebalances order by group_id",
    "select * from gold.nothing",
    "select * from rebalances",
    "select * from spark_catalog.gold.rebalances",
    "select * from gold.rebalances version as of 1",
    "select group_id from gold.rebalances where group_id in (select group_id, cause from gold.rebalances)",
    f"select * from owner_at(concat('a', 'b'), 1, {AT})",
    f"select * from owner_at('c01-range', '1', {AT})",
    "select sum(partitions_moved * 9000000000000000000) as n from gold.rebalances",
    "select partitions_moved / partitions_total as n from gold.rebalances",
    # what sqlglot reads, and Spark not, or not so
    "select from gold.rebalances",
    "select group_id, from gold.rebalances",
    "select count(group_id,) as n from gold.rebalances",
    "from gold.rebalances select group_id",
    "select group_id from gold.rebalances limit 5 order by group_id",
    "select count(*) as n from gold.rebalances group by",
    "as select group_id from gold.rebalances",
    "select group_id is from gold.rebalances",
    "select group_id from gold.. rebalances rebalances",
    "select group_id from gold.rebalances(group_id in ('a'))",
    "select group_id from gold.rebalances where in_storm = in_storm is null",
    "select group_id from gold.rebalances where in_storm = partitions_moved < 3",
    "select group_id from gold.rebalances where in_storm = not in_storm",
    "select group_id from gold.rebalances where in_storm is true",
    "select group_id from gold.rebalances where null",
    "select group_id from gold.rebalances where group_id = 'a' 'b'",
    "select group_id as 'g' from gold.rebalances",
    "select - - 1 as n from gold.rebalances",
    "select partitions_moved as n from gold.rebalances group by -1",
    "select group_id from gold.rebalances, gold.group_summary",
    "select group_id from (gold.rebalances)",
    "select group_id from gold.rebalances x(a, b)",
    "select count(distinct) as n from gold.rebalances",
    "select count(distinct group_id, cause) as n from gold.rebalances",
    "select try_cast(group_id as int) as n from gold.rebalances",
    "select group_id::int as n from gold.rebalances",
    "select 5L as n from gold.rebalances",
    "select 1e3 as n from gold.rebalances",
    "select if(in_storm, 1, 2) as n from gold.rebalances",
    "select size(causes) filter (where in_storm) as n from gold.rebalances",
    "select nvl(group_id, 'a') as n from gold.rebalances",
    "select mean(partitions_moved) as n from gold.rebalances",
    "select char_length(group_id) as n from gold.rebalances",
    "select causes[0] as n from gold.rebalances",
    "select group_id from gold.rebalances where started_at > date '2026-11-21'",
    "select group_id from gold.rebalances where group_id like 'a' escape '!'",
    "select group_id from gold.rebalances where partitions_moved % 2 = 0",
    "select group_id from gold.rebalances where group_id = cause collate utf8_binary",
    "select group_id\u00a0from gold.rebalances",
    "select " + "(" * 3000 + "1" + ")" * 3000 + " as n from gold.rebalances",
    "",
    "select",
    "select group_id from gold.rebalances; select 1",
    "use gold",
    "show tables in gold",
    "set spark.sql.session.timeZone = Europe/Berlin",
    "delete from gold.rebalances",
    "create temporary view x as select * from gold.rebalances",
)


def shown_queries() -> list[str]:
    """The statements of all pages and of the findings."""
    found = []
    for page in documents():
        for example in examples(page.read_text(encoding="utf-8")):
            if example.language == "sql":
                found.append(example.code)
            elif example.language == "sh":
                found += [
                    words[words.index("-e") + 1]
                    for words in our_jobs(example.code)
                    if "-e" in words and words[0] == "sql"
                ]
    source = Path(findings.__file__).read_text(encoding="utf-8")
    named = [value for value in vars(findings).values() if isinstance(value, str) and value.startswith("select ")]
    lines = re.findall(r'^\s+(?:query = |f?)"(select [^"{]*)"\)?$', source, re.MULTILINE)
    found += [*named, *(line for line in lines if not any(query.startswith(line) for query in named))]
    return list(dict.fromkeys(query.strip() for query in found))


class Both:
    """A warehouse, and what both engines print of it."""

    def __init__(self, session: SparkSession, warehouse: Warehouse, cluster_id: str | None = None) -> None:
        self.spark = Catalogue(session, warehouse, cluster_id=cluster_id)
        self.duckdb = DuckDb(warehouse, cluster_id=cluster_id)

    def agree(self, query: str, output_format: str = "json", *, is_total: bool = True) -> None:
        """What DuckDB prints is what Spark prints; in its order, where it has one that is total."""
        texts = []
        for engine in (self.duckdb, self.spark):
            out = io.StringIO()
            run_query(engine, query, output_format, out)
            lines = out.getvalue().splitlines()
            # the keys of a map have no order in Spark
            rows = (
                [json.dumps(json.loads(line), sort_keys=True) for line in lines] if output_format == "json" else lines
            )
            texts.append(rows if is_total and "order by" in query else sorted(rows))
        assert texts[0] == texts[1], query


@pytest.fixture(scope="module")
def recording(own_session: SparkSession, recorded: Recorded) -> Both:
    """Of the recording that comes with the project."""
    return Both(own_session, recorded("full-a"))


@pytest.mark.spark
@pytest.mark.parametrize(
    "query",
    [query if index % 2 else pytest.param(query, marks=takes_minutes) for index, query in enumerate(CASES_OF_SQL)],
)
def test_both_engines_give_the_same(recording: Both, query: str) -> None:
    """Names, values, types as JSON shows them, nulls in their place."""
    recording.agree(query)


@pytest.mark.spark
def test_what_pages_and_findings_show_is_the_same(recording: Both) -> None:
    """Every statement is answered without Spark, as Spark answers it, but for those that need it."""
    asked = shown_queries()
    assert len(asked) > 20
    for query in asked:
        if any(part in query for part in SPARK_ALONE):
            with pytest.raises(OutsideSubset):
                recording.duckdb.answer(query)
        else:
            recording.agree(query.rstrip(";"))


@pytest.mark.spark
def test_formats_are_the_same(recording: Both) -> None:
    """As a table and as CSV, too."""
    columns = "group_id, started_at, causes, stickiness, in_storm"
    query = f"select {columns} from gold.rebalances order by group_id, log_partition, started_at, to_generation"
    for output_format in ("table", "csv"):
        recording.agree(query, output_format)


@pytest.mark.spark
def test_random_queries_give_the_same(recording: Both) -> None:
    """SQL_QUERIES of them: conditions, groups, sums and orders over the columns of any table."""
    draw = random.Random(7)
    for _ in range(int(os.environ.get("SQL_QUERIES", "3"))):
        recording.agree(random_query(draw))


@pytest.mark.spark
def test_broken_queries_are_left_to_spark_or_give_the_same(recording: Both) -> None:
    """SQL_QUERIES queries with words put in, left out, twice or elsewhere, which DuckDB answers even so."""
    draw = random.Random(11)
    answered = 0
    while answered < int(os.environ.get("SQL_QUERIES", "3")):
        query = broken(random_query(draw).split(" limit ", maxsplit=1)[0], draw)
        try:
            recording.duckdb.answer(query)
        except OutsideSubset:
            continue
        answered += 1
        recording.agree(query, is_total=False)


def broken(query: str, draw: random.Random) -> str:
    """A query with up to two of its words, or others, where they may not belong."""
    words = re.findall(r"'[^']*'|[\w.]+|[<>!=]=|<>|\S", query)
    for _ in range(draw.randint(1, 2)):
        place, other = draw.randrange(len(words)), draw.randrange(len(words))
        match draw.randrange(4):
            case 0:
                words.insert(place, draw.choice((*WORDS, words[other])))
            case 1:
                words[place] = draw.choice((*WORDS, words[other]))
            case 2:
                del words[place]
            case 3:
                words[place], words[other] = words[other], words[place]
    return " ".join(words)


WORDS = re.findall(
    r"\S+",
    "select distinct from where group by having order with as ( ) , . * + - / = == <> < >= and or not is null in "
    "between like case when then else end true false join left inner outer on asc desc nulls first last timestamp 'x' "
    "1 a count sum coalesce all any union values 1.5 5L :: || ! [ ] ` tablesample pivot window over filter within if "
    "cast exists escape ilike offset for date isnull div current_date array row table only final sample natural cross "
    "full semi sort",
)


def random_query(draw: random.Random) -> str:
    """A query of the subset, with a total order."""
    table = draw.choice([table for table in TABLES.values() if table.layer in ("silver", "gold")])
    columns = {kind: [c.name for c in table.columns if str(c.type) in kinds] for kind, kinds in KINDS.items()}
    if not columns["int"]:
        return random_query(draw)
    plain = [name for names in columns.values() for name in names]

    def condition(depth: int) -> str:
        if depth and draw.random() < 0.6:
            joined = f"{condition(depth - 1)} {draw.choice(('and', 'or'))} {condition(depth - 1)}"
            return f"not ({joined})" if draw.random() < 0.3 else f"({joined})"
        kind = draw.choice([kind for kind, names in columns.items() if names])
        name, value = draw.choice(columns[kind]), draw.choice(VALUES[kind])
        return draw.choice(
            (
                f"{name} {draw.choice(('=', '<>', '<', '>=', '!='))} {value}",
                f"{name} is {draw.choice(('', 'not '))}null",
                f"{name} {draw.choice(('', 'not '))}in ({value}, {draw.choice(VALUES[kind])})",
                f"{name} between {value} and {draw.choice(VALUES[kind])}",
            )
        )

    where = f"where {condition(2)}" if draw.random() < 0.8 else ""
    if draw.random() < 0.5:
        keys = draw.sample(plain, min(2, len(plain)))
        sums = [f"count({draw.choice(plain)}) as n"]
        sums += [f"{draw.choice(('sum', 'min', 'max', 'avg'))}({draw.choice(columns['int'])}) as s"]
        sums += [f"{draw.choice(('min', 'max'))}({draw.choice(plain)}) as m"]
        order = ", ".join(f"{name} {draw.choice(('', 'desc', 'nulls last'))}" for name in (*keys, "n", "s", "m"))
        given, grouped = ", ".join([*keys, *sums]), ", ".join(keys)
        return f"select {given} from {table.full_name} {where} group by {grouped} order by {order}"
    names = draw.sample(plain, min(4, len(plain)))
    order = ", ".join(f"{name} {draw.choice(('', 'desc', 'desc nulls first'))}" for name in names)
    given = draw.choice(("", "distinct ")) + ", ".join(names)
    return f"select {given} from {table.full_name} {where} order by {order} limit {draw.randint(1, 50)}"


KINDS = {
    "int": ("Scalar.INT", "Scalar.BIGINT", "Scalar.SMALLINT", "Scalar.TINYINT"),
    "text": ("Scalar.STRING",),
    "time": ("Scalar.TIMESTAMP",),
    "bool": ("Scalar.BOOLEAN",),
}
VALUES = {
    "int": ("0", "1", "-1", "5", "100", "3000000000"),
    "text": ("'c01-range'", "'CERTAIN'", "''", "'k'", "'größe'"),
    "time": (AT, "timestamp '2026-11-21 02:57:46.5'", "timestamp '2026-11-21'"),
    "bool": ("true", "false"),
}


@pytest.mark.spark
def test_views_of_moved_groups_and_repeated_times_are_the_same(own_session: SparkSession, tmp_path: Path) -> None:
    """Where a group went to another log partition and a clock went back: every view and function, at many moments."""
    warehouse = Warehouse(str(tmp_path))
    for name, data in DATA.items():
        table = TABLES[name]
        warehouse.write(table, rows(table, *({"cluster_id": "c"} | row for row in data)), app_id="a", version=1)
    both = Both(own_session, warehouse)
    values = {"topic": "'t'", "partition": "0", "`group`": "'g'"}
    for definition in DEFINITIONS:
        if definition.kind is DefinitionKind.VIEW:
            both.agree(f"select * from {definition.name}")
            continue
        for minute in (10, 25) if IS_TEST_LIVE else (25,):
            time = f"timestamp '{at(minute):%Y-%m-%dT%H:%M:%S}Z'"
            arguments = ", ".join(values.get(name, time) for name, _ in definition.parameters)
            if "'g'" in arguments and "share" in definition.name:
                arguments = arguments.replace("'g'", "'s'")
            both.agree(f"select * from {definition.name}({arguments})")


@pytest.fixture(scope="module")
def duckdb(recorded: Recorded) -> DuckDb:
    """DuckDB over the recording."""
    return DuckDb(recorded("full-a"))


@pytest.mark.parametrize("query", LEFT_TO_SPARK)
def test_all_else_is_left_to_spark(duckdb: DuckDb, query: str) -> None:
    """What reads otherwise in the other dialect, what a session may have changed, what is no query, what fails."""
    with pytest.raises(OutsideSubset):
        duckdb.answer(query)


def test_only_a_statement_imports_sqlglot() -> None:
    """Jobs that ask DuckDB nothing, or statements of their own, do not wait for it."""
    code = "import sys, jobs.cli.app, jobs.queries.changes, jobs.queries.sql_engines; print('sqlglot' in sys.modules)"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert asked.stdout.strip() == "False"


class Spark:
    """A stub of Spark: notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.columns = ("n",)

    def answer(self, statement: str) -> "Spark":
        """Notes it."""
        self.asked.append(statement)
        return self

    def rows(self) -> Any:
        """None."""
        return iter(())


def engines(duckdb: DuckDb, engine: Engine = Engine.AUTO) -> tuple[Engines, Spark, list[str]]:
    """With a stand-in for Spark; what was said."""
    spark = Spark()
    said: list[str] = []

    def start() -> Catalogue:
        said.append("started")
        return cast("Catalogue", spark)

    return Engines(duckdb, start, engine=engine, say=said.append), spark, said


SIMPLE = "select count(*) as n from gold.rebalances"


def test_spark_starts_for_the_first_statement_that_needs_it(duckdb: DuckDb) -> None:
    """It is said why, once; statements that DuckDB knows stay with it."""
    auto, spark, said = engines(duckdb)
    out = io.StringIO()
    for statement in (SIMPLE, "select upper('a') as x", SIMPLE, "select lower('a') as x"):
        run_query(auto, statement, "json", out)
    assert out.getvalue() == '{"n": 257}\n' * 2 and len(spark.asked) == 2
    assert said[1:] == ["started"] and said[0].startswith("Spark answers this (")


@pytest.mark.parametrize("statement", ["use gold", "set a = 1", "create temporary view current_groups as select 1"])
def test_what_may_change_later_statements_leaves_them_to_spark(duckdb: DuckDb, statement: str) -> None:
    """After it DuckDB, which knows nothing of it, answers no more."""
    auto, spark, _ = engines(duckdb)
    for one in (statement, SIMPLE):
        auto.answer(one)
    assert spark.asked == [statement, SIMPLE]


def test_an_engine_may_be_asked_for(duckdb: DuckDb) -> None:
    """Spark answers all then; DuckDB what it can, and says why not the rest."""
    only_spark, spark, _ = engines(duckdb, Engine.SPARK)
    only_spark.answer(SIMPLE)
    assert spark.asked == [SIMPLE]
    only_duckdb, spark, _ = engines(duckdb, Engine.DUCKDB)
    assert list(only_duckdb.answer(SIMPLE).rows()) == [[257]]
    with pytest.raises(SqlError, match="upper of such arguments"):
        only_duckdb.answer("select upper(group_id) as x from gold.rebalances")
    assert spark.asked == []


def test_ctrl_c_ends_a_statement_of_duckdb(duckdb: DuckDb) -> None:
    """As it ends one of Spark: the shell goes on."""
    joined = "".join(f" join gold.rebalances {name} on a.log_partition <= {name}.log_partition" for name in "bcd")
    # where tests run in several processes, these ignore it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    # an interrupt in a finalizer of py4j's, which the collector calls, would be lost
    gc.collect()
    gc.disable()
    try:
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            list(duckdb.answer(f"select count(*) as n from gold.rebalances a{joined}").rows())
        timer.join()
    finally:
        gc.enable()
        signal.signal(signal.SIGINT, before)
    assert list(duckdb.answer(SIMPLE).rows()) == [[257]]


def test_names_stand_for_whole_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a replay has written some tables, DuckDB shows those of before, and one cluster's rows where asked to."""
    ledger = Ledger(tmp_path)
    ledger.night(CASES / "D2a" / "logs")
    count = "select cluster_id, count(*) as n from silver.group_generations group by cluster_id"
    before = list(DuckDb(ledger.warehouse).answer(count).rows())
    assert len(before) == 1 and before[0][0] == "case" and before[0][1] > 0
    assert list(DuckDb(ledger.warehouse, cluster_id="case").answer(count).rows()) == before
    assert list(DuckDb(ledger.warehouse, cluster_id="it's another").answer(count).rows()) == []
    version = ledger.warehouse.version(TABLES["silver.group_generations"])
    table = TABLES["silver.group_generations"]
    more = ledger.table("silver.group_generations")
    ledger.warehouse.write(table, more, app_id="half a run", version=1)
    pinned = {table: {"case": version}}
    assert list(DuckDb(ledger.warehouse).answer(count).rows()) == [["case", 2 * before[0][1]]]
    monkeypatch.setattr("jobs.queries.sql_duckdb.pinned_versions", lambda _: pinned)
    assert list(DuckDb(ledger.warehouse).answer(count).rows()) == before


def test_own_settings_of_sql_leave_all_to_spark() -> None:
    """A metastore, another time zone, another machine's master: none of them is DuckDB's."""
    assert own_sql_settings({}) == []
    usual = "--properties-file x --conf spark.driver.extraJavaOptions=-Xa --conf spark.jars.packages= --jars a shell"
    assert own_sql_settings({"PYSPARK_SUBMIT_ARGS": usual}) == []
    for option, name in (
        ("--conf spark.sql.catalogImplementation=hive", "spark.sql.catalogImplementation"),
        ("--conf=spark.sql.session.timeZone=Asia/Tokyo", "spark.sql.session.timeZone"),
        ("--conf spark.sql.ansi.enabled=false", "spark.sql.ansi.enabled"),
        ("--master yarn", "spark.master"),
        ("--master=spark://host:7077", "spark.master"),
    ):
        assert own_sql_settings({"PYSPARK_SUBMIT_ARGS": f"{option} {usual}"}) == [name]


def test_rows_of_a_table_for_people_are_bounded(duckdb: DuckDb, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Spark's are."""
    monkeypatch.setattr(sql, "TABLE_ROWS_MAX", 3)
    out = io.StringIO()
    run_query(duckdb, "select group_id from gold.rebalances", "table", out)
    assert "more than 3 rows" in out.getvalue()
