"""sql in DuckDB's dialect: whole runs, values in the forms of JSON and CSV, remedies in errors, and formats."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from jobs.cli import app as cli
from jobs.console.output import CELL_CHARACTERS_MAX, CUT
from jobs.delta.warehouse import Warehouse
from jobs.errors import SqlError, StatementError
from jobs.exit_codes import DONE, FAILED
from jobs.queries.sql import sql
from jobs.queries.sql.sql import run_query, shell
from jobs.queries.sql.sql_duckdb import DuckDb
from schemas.tables import TABLES
from tests.jobs.table_rows import AT, rows

NAMES = ("silver.offset_commits", "silver.group_events", "gold.rebalances")


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Three tables of two layers."""
    made = Warehouse(str(tmp_path_factory.mktemp("shown") / "a'b c"))
    for name in NAMES:
        table = TABLES[name]
        row = {"cluster_id": "c", "log_offset": 7, "group_id": "=1+1", "commit_time": AT, "details": [("k", None)]}
        made.write(table, rows(table, {it: row[it] for it in row if it in table.column_names}), app_id="a", version=1)
    return made


@pytest.fixture
def duckdb(warehouse: Warehouse) -> DuckDb:
    """A session over them."""
    return DuckDb(warehouse)


def printed(duckdb: Any, statement: str, output_format: str = "csv") -> str:
    """What it prints."""
    out = io.StringIO()
    run_query(duckdb, statement, output_format, out)
    return out.getvalue()


def test_values_have_their_forms(duckdb: DuckDb) -> None:
    """Times in ISO 8601 and UTC whether or not they have a zone, sums as integers, maps as objects, bytes as base64."""
    query = """
        select commit_time as a, timestamp '2026-01-02 03:04:05.6' as b, sum(log_offset) as c, 1.50 as d,
            {'t': timestamp '2026-01-02'} as e, [1, null] as f, 'x'::blob as g, null as h, avg(log_offset) as i
        from silver.offset_commits group by all
    """
    assert json.loads(printed(duckdb, query, "json")) == {
        "a": "2023-11-14T22:13:20.123Z",
        "b": "2026-01-02T03:04:05.600Z",
        "c": 7,
        "d": "1.50",
        "e": {"t": "2026-01-02T00:00:00.000Z"},
        "f": [1, None],
        "g": "eA==",
        "h": None,
        "i": 7.0,
    }
    assert json.loads(printed(duckdb, "select details from silver.group_events", "json")) == {"details": {"k": None}}
    assert printed(duckdb, "select group_id, null as n from silver.offset_commits;") == "group_id,n\n'=1+1,\n"


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("select * from gold.rebalance", "rebalances"),
        ("select * from golf.rebalances", "gold.rebalances"),
        ("select * from rebalances", "gold.rebalances"),
        ("select * from current_offset", "current_offsets"),
        ("select * from offset_at('g', now())", "offsets_at"),
        ("select grup_id from gold.rebalances", "group_id"),
        ("select r.grup_id from gold.rebalances r", "group_id"),
        ("select at from silver.group_events", '"at"'),
        ("select topic, offset, 1 from bronze.quarantine", '"offset"'),
        ("selec 1", "selec"),
        (".tabels", ".help"),
    ],
)
def test_a_wrong_name_is_one_line_with_the_nearest_one(duckdb: DuckDb, statement: str, said: str) -> None:
    """Of a table, a schema, a view, a function, a column; and how a column is written that DuckDB reserves."""
    with pytest.raises(StatementError) as caught:
        printed(duckdb, statement)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_wrong_name_needs_no_spark(warehouse: Warehouse) -> None:
    """The command ends with 2 and one line, and imports nothing of Spark."""
    code = "import sys; from jobs.cli.app import main; code = main(sys.argv[1:]); print(code, 'pyspark' in sys.modules)"
    words = ["sql", "--warehouse", warehouse.root, "-e", "select * from gold.rebalanced"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert done.stdout == "2 False\n"
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1 and "gold.rebalances" in done.stderr


def test_tables_of_a_layer_are_listed(duckdb: DuckDb, capsys: pytest.CaptureFixture[str]) -> None:
    """As nightly suggests, and by the shell's own command."""
    assert printed(duckdb, "show tables from silver") == "name\ngroup_events\noffset_commits\n"
    shell(duckdb, "csv", [".tables", "describe gold.rebalances;", ".help", ".exit", "select 1;"])
    out = capsys.readouterr().out
    assert "silver.offset_commits\n" in out and "offsets_at(group STRING, time TIMESTAMP)" in out
    assert "\ngroup_id,VARCHAR," in out and "describe TABLE" in out and "\n1\n" not in out


def test_a_script_with_an_error_fails(warehouse: Warehouse) -> None:
    """The others of its statements are run, and the exit code tells whoever does not read."""
    code = "import sys; from jobs.cli.app import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", code, "sql", "--warehouse", warehouse.root, "--format", "csv"]
    done = subprocess.run(words, input="selec 1;\nselect 2 as two;\n", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (FAILED, "two\n2\n")
    assert done.stderr.startswith("error: ")


def test_what_a_session_makes_stays(duckdb: DuckDb, capsys: pytest.CaptureFixture[str]) -> None:
    """Temporary views and macros of former statements, and results that were not read to their end."""
    lines = [
        "create temp view mine as select group_id from gold.rebalances;",
        "create temp macro twice(x) as 2 * x;",
        "from range(5000);",
        "select twice(21) as n, (select count(*) from mine) as c;",
    ]
    shell(duckdb, "table", lines)
    out, err = capsys.readouterr()
    assert err == "" and "42 │ 1" in out and "more than 1000 rows" in out


def test_parquet_into_a_file(warehouse: Warehouse, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --output; what cannot be written, and a shell of it, are refused in one line."""
    place = ["sql", "--warehouse", warehouse.root]
    query = ["-e", "select group_id, sum(log_offset) as n, max(commit_time) as t from silver.offset_commits group by 1"]
    target = str(tmp_path / "x.parquet")
    assert cli.main([*place, *query, "--format", "parquet", "--output", target]) == DONE
    (row,) = pq.read_table(target).to_pylist()
    assert row["group_id"] == "=1+1" and row["n"] == 7 and row["t"] == AT
    assert cli.main([*place, *query, "--format", "csv", "--output", str(tmp_path / "x.csv")]) == DONE
    assert (tmp_path / "x.csv").read_text() == "group_id,n,t\n'=1+1,7,2023-11-14T22:13:20.123Z\n"
    capsys.readouterr()
    for words in (["--format", "parquet"], [*query, "--output", str(tmp_path)], ["--output", target]):
        assert cli.main([*place, *words]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_the_rows_of_one_cluster(warehouse: Warehouse) -> None:
    """With a cluster id names of tables stand for its rows alone, whatever the id is."""
    count = "select count(*) as n from silver.group_events"
    for cluster_id, shown in (("c", 1), ("it's another", 0)):
        assert printed(DuckDb(warehouse, cluster_id=cluster_id), count) == f"n\n{shown}\n"


def test_names_stand_for_whole_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a run has written some tables, the rows of before are shown, also in a session that goes on."""
    warehouse, table = Warehouse(str(tmp_path)), TABLES["silver.group_events"]
    for number in (1, 2):
        warehouse.write(table, rows(table, {"cluster_id": "c", "log_offset": number}), app_id="a", version=number)
    duckdb, query = DuckDb(warehouse), "select log_offset from silver.group_events order by 1"
    assert printed(duckdb, query) == "log_offset\n1\n2\n"
    with monkeypatch.context() as patch:
        patch.setattr(DuckDb, "_pinned_now", lambda _: {table: {"c": warehouse.version(table) - 1}})
        assert printed(duckdb, query) == "log_offset\n1\n"
    assert printed(duckdb, query) == "log_offset\n1\n2\n"


def test_ctrl_c_ends_a_statement(duckdb: DuckDb) -> None:
    """The session goes on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in several processes ignore it
    try:
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            printed(duckdb, "select count(*) from range(3000000) a, range(3000000) b where a.range + b.range = 7")
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert printed(duckdb, "select 1 as n") == "n\n1\n"


def test_rows_of_a_table_for_people_are_bounded(duckdb: DuckDb, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit it says so; json and csv have all."""
    monkeypatch.setattr(sql, "TABLE_ROWS_MAX", 3)
    assert "more than 3 rows" in printed(duckdb, "from range(10)", "table")
    assert printed(duckdb, "from range(10)").count("\n") == 11


def test_a_time_beyond_python_says_what_to_do(duckdb: DuckDb) -> None:
    """DuckDB has more years."""
    with pytest.raises(SqlError, match="as string"):
        printed(duckdb, "select timestamp '20000-01-01' as t")


def test_tables_for_people_cut_long_cells(warehouse: Warehouse) -> None:
    """As all tables do: a client's id may have 30,000 characters. Other formats have all of them."""
    query = "select repeat('x', 30000) as id, [repeat('y', 30000)] as ids, 'short' as name"
    shown = {}
    for output_format in ("table", "csv", "json"):
        out = io.StringIO()
        run_query(DuckDb(warehouse), query, output_format, out)
        shown[output_format] = out.getvalue()
    assert [len(cell.strip()) for cell in shown["table"].splitlines()[-1].split("│")] == [CELL_CHARACTERS_MAX] * 2 + [5]
    assert shown["table"].count(CUT) == 2
    for output_format in ("csv", "json"):
        assert "x" * 30_000 in shown[output_format] and "y" * 30_000 in shown[output_format]
