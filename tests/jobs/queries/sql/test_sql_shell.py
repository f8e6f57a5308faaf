"""What sql does without Spark: statements that register the tables, and Ctrl-C in its shell."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.cli_enums import Engine
from jobs.queries.sql import sql
from jobs.queries.sql.interrupts import interruptible
from jobs.queries.sql.sql import ddl, shell
from jobs.queries.sql.sql_spark import Catalogue
from schemas.tables import TABLES
from tests.cases.harness import CASES, Ledger


def test_ddl_names_every_table_where_it_is(tmp_path: Path) -> None:
    """And the views and functions that can be made of those that are there; of an empty place there is none."""
    ledger = Ledger(tmp_path / "it's here")
    assert list(ddl(ledger.warehouse)) == []
    ledger.night(CASES / "D2a" / "logs")
    found = list(ddl(ledger.warehouse))
    there = {name for name, table in TABLES.items() if ledger.warehouse.exists(table)}
    place = str(tmp_path).replace("'", "\\'")
    for name in there:
        location = f"{place}/it\\'s here/{name.replace('.', '/')}"
        assert f"CREATE TABLE IF NOT EXISTS {name} USING DELTA LOCATION '{location}';" in found
    assert {line.split()[-1] for line in found if " SCHEMA " in line} >= {"bronze;", "silver;", "gold;", "state;"}
    assert sum(line.startswith("CREATE OR REPLACE VIEW current_groups ") for line in found) == 1
    assert all(line.endswith(";") and "TEMPORARY" not in line for line in found)


def test_ctrl_c_ends_a_statement_and_not_the_shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the prompt it forgets what was typed; while a statement runs it ends that."""
    typed: list[Any] = ["select 1", KeyboardInterrupt(), "slow;", "select 2;", EOFError()]
    ran: list[str] = []

    def line(_: str) -> str:
        said = typed.pop(0)
        if isinstance(said, BaseException):
            raise said
        return str(said)

    def run(_: Catalogue, query: str, __: str) -> None:
        ran.append(query)
        if query == "slow;":
            raise KeyboardInterrupt

    monkeypatch.setattr("builtins.input", line)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(sql, "run_query", run)
    shell(cast("Catalogue", SimpleNamespace(engine=Engine.SPARK)), "table")
    assert ran == ["slow;", "select 2;"] and "interrupted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("select 1; select 2;", ["select 1;", "select 2;"]),
        ("select 1; -- one\nselect 2;", ["select 1;", "select 2;"]),
        ("select 1; /* one; */\n.tables\nselect\n2", ["select 1;", ".tables", "select\n2"]),
        ("select 'a;\nb' as a;", ["select 'a;\nb' as a;"]),
        ("select 1 as \"a;\nb\"; select 'it''s; ' ;", ['select 1 as "a;\nb";', "select 'it''s; ' ;"]),
        ("select 1 -- no end;\n, 2;", ["select 1 -- no end;\n, 2;"]),
        ("select /* a\n;b */ 2;;\n;", ["select /* a\n;b */ 2;"]),
        ("-- nothing;\n/* at all; */", []),
    ],
)
@pytest.mark.parametrize("engine", Engine)
def test_a_semicolon_ends_a_statement(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, typed: str, expected: list[str]
) -> None:
    """Wherever it is on a line, but not in a text, a name or a comment."""
    ran: list[str] = []
    monkeypatch.setattr(sql, "run_query", lambda _, query, __: ran.append(query))
    shell(cast("Catalogue", SimpleNamespace(engine=engine)), "csv", typed.split("\n"))
    assert ran == expected


@pytest.mark.parametrize(
    ("engine", "typed"),
    [
        (Engine.DUCKDB, "select '\\';"),
        (Engine.DUCKDB, "select $a$;'$a$;"),
        (Engine.SPARK, "select 'it\\'s;', \"a\\\";\";"),
    ],
)
def test_a_text_ends_as_in_its_dialect(monkeypatch: pytest.MonkeyPatch, engine: Engine, typed: str) -> None:
    """A backslash escapes in Spark SQL, not in DuckDB, which has texts between dollars."""
    ran: list[str] = []
    monkeypatch.setattr(sql, "run_query", lambda _, query, __: ran.append(query))
    shell(cast("Catalogue", SimpleNamespace(engine=engine)), "csv", [typed, "select 2;"])
    assert ran == [typed, "select 2;"]


@pytest.mark.parametrize("output_format", ["table", "csv", "json"])
def test_a_time_that_python_cannot_show_ends_a_statement_alone(
    capsys: pytest.CaptureFixture[str], output_format: str
) -> None:
    """Spark has more years than Python: the error says what to do, and the next statement is run."""

    class Result:
        """What a statement gives."""

        columns = ("at",)

        def rows(self) -> Any:
            raise ValueError("year 0 is out of range")

        def head(self, _: int) -> Any:
            return self.rows()

    class Tables:
        """Gives it for each statement."""

        engine = Engine.SPARK
        table_names: tuple[str, ...] = ()

        count = 0

        def answer(self, _: str) -> Any:
            self.count += 1
            return Result()

    tables = Tables()
    shell(tables, output_format, ["select timestamp'0001-01-01';", "select 1;"])
    said = capsys.readouterr().err
    assert tables.count == 2 and said.count("year 0 is out of range") == 2 and "as string" in said


def test_the_main_thread_is_free_for_ctrl_c() -> None:
    """PySpark cancels jobs by its connection: a statement is asked by another thread, whose errors come back."""
    assert interruptible(threading.current_thread) is not threading.main_thread()
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 / 0)
