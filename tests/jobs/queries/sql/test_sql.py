"""sql: the tables are there by name, values come out as they are, and nothing in them takes effect on a terminal."""

import io
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs.console.output import printable
from jobs.delta.warehouse import Warehouse
from jobs.errors import SqlError, StatementError, TableDamaged
from jobs.queries.sql import sql
from jobs.queries.sql.sql import json_value, one_line, run_query, shell
from jobs.queries.sql.sql_spark import Catalogue
from schemas.tables import TABLES
from tests.jobs.table_rows import AT, rows

COMMITS, EVENTS = TABLES["silver.offset_commits"], TABLES["silver.group_events"]
GROUP_MEMBERS = TABLES["silver.group_members"]


@pytest.fixture(scope="module")
def tables(own_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    """A catalogue which knows the tables of a warehouse in a folder with an awkward name."""
    warehouse = Warehouse(str(tmp_path_factory.mktemp("sql") / "a'b`c d"))
    evil = "\x1b[31m'; drop table x; --[bold]"
    warehouse.write(
        COMMITS,
        rows(COMMITS, {"cluster_id": "c", "log_offset": 1, "group_id": evil, "commit_time": AT}),
        app_id="a",
        version=1,
    )
    warehouse.write(
        EVENTS, rows(EVENTS, {"cluster_id": "c", "log_offset": 2, "details": [("k", None)]}), app_id="a", version=1
    )
    catalogue = Catalogue(own_session, warehouse)
    assert catalogue.table_names == ("silver.offset_commits", "silver.group_events")
    return catalogue


def answer(catalogue: Catalogue, query: str, output_format: str) -> str:
    """What a query prints."""
    out = io.StringIO()
    run_query(catalogue, query, output_format, out)
    return out.getvalue()


def test_json_is_one_object_a_line(tables: Catalogue) -> None:
    """Texts as they are, times in ISO 8601 and UTC, maps as objects."""
    query = "select group_id, commit_time from silver.offset_commits;"
    assert json.loads(answer(tables, query, "json")) == {
        "group_id": "\x1b[31m'; drop table x; --[bold]",
        "commit_time": "2023-11-14T22:13:20.123Z",
    }
    assert json.loads(answer(tables, "select details from silver.group_events", "json")) == {"details": {"k": None}}
    assert answer(tables, "select 1 as n union all select 2", "json") == '{"n": 1}\n{"n": 2}\n'


def test_tables_are_known_when_they_are_named(tables: Catalogue) -> None:
    """By their full names, in any case, after USE, and to SHOW, whichever statement comes first."""
    assert answer(tables, "SHOW TABLES IN silver", "csv").splitlines()[1:] == [
        "silver,group_events,False",
        "silver,offset_commits,False",
    ]
    assert answer(tables, "select count(*) as n from Silver.Group_Events", "json") == '{"n": 1}\n'
    answer(tables, "use silver", "json")
    assert answer(tables, "select count(*) as n from offset_commits", "json") == '{"n": 1}\n'
    answer(tables, "use default", "json")


def test_csv_has_a_header(tables: Catalogue) -> None:
    """Values are quoted where they must be; null is empty."""
    query = (
        "select 'a,b' as x, cast(null as int) as y, array(1, 2) as z, group_id is null as e from silver.group_events"
    )
    assert answer(tables, query.replace("group_id", "group_id"), "csv") == 'x,y,z,e\n"a,b",,"[1, 2]",true\n'.replace(
        "true", "True"
    )


def test_no_cell_of_csv_begins_a_formula(tables: Catalogue) -> None:
    """Whatever clients sent: a spreadsheet shows it, and calculates nothing; numbers below zero stay numbers."""
    query = "select '=1+1' as a, '+x' as b, '-y' as c, '@z' as d, -5 as e"
    assert answer(tables, query, "csv") == "a,b,c,d,e\n'=1+1,'+x,'-y,'@z,-5\n"


def test_table_shows_control_codes_and_markup_as_text(tables: Catalogue) -> None:
    """A group id may hold anything: a terminal obeys none of it, and nothing is cut."""
    shown = answer(tables, "select group_id, producer_id from silver.offset_commits", "table")
    assert "\\x1b[31m'; drop table x; --[bold]" in shown
    assert "\x1b" not in shown
    assert "NULL" in shown


def test_table_says_where_it_ends(tables: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit it says so."""
    monkeypatch.setattr(sql, "TABLE_ROWS_MAX", 3)
    shown = answer(tables, "select id from range(10)", "table")
    assert "more than 3 rows" in shown
    assert shown.count("\n") == 2 + 3 + 1


def test_environment_is_not_read_by_queries(tables: Catalogue) -> None:
    """`${env:HOME}` is text, not the home folder."""
    tables.session.conf.set("spark.sql.variable.substitute", "false")
    assert answer(tables, "select '${env:HOME}' as h", "json") == '{"h": "${env:HOME}"}\n'


@pytest.mark.parametrize(
    "query", ["select * from silver.nope", "selec 1", "select assert_true(false)", "select raise_error('stop')"]
)
def test_a_wrong_query_is_one_line(tables: Catalogue, query: str) -> None:
    """Spark's first words, without its stack."""
    with pytest.raises(SqlError) as caught:
        answer(tables, query, "json")
    assert "\n" not in str(caught.value)
    assert "at org.apache" not in str(caught.value)


@pytest.mark.parametrize(
    ("query", "nearest"),
    [
        ("select 1 from silver.offset_commit", "silver.offset_commits"),
        ("select 1 from (select * from sliver.group_events)", "silver.group_events"),
        ("select 1 from offset_at('g', now())", "offsets_at"),
        ("select grup_id from silver.group_events", "group_id"),
    ],
)
def test_a_wrong_name_is_one_line_with_the_nearest_one(tables: Catalogue, query: str, nearest: str) -> None:
    with pytest.raises(StatementError) as caught:
        answer(tables, query, "csv")
    assert nearest in str(caught.value) and "\n" not in str(caught.value)


def test_shell_runs_statements_and_survives_errors(tables: Catalogue, capsys: pytest.CaptureFixture[str]) -> None:
    """Statements may have several lines and end with `;`; one that fails leaves the shell there; `exit` ends it."""
    lines = ["", "select 1", " as one;", "nonsense;", "select 2 as two;", "exit", "select 3 as three;"]
    shell(tables, "json", lines)
    out, err = capsys.readouterr()
    assert out == '{"one": 1}\n{"two": 2}\n'
    assert err.startswith("error: ") and err.count("\n") == 1
    shell(tables, "json", ["select 4 as four"])
    assert capsys.readouterr().out == '{"four": 4}\n'


def test_an_error_in_a_task_is_reported_by_its_own_words(tables: Catalogue) -> None:
    """What was raised in Python on a worker comes out as that, not as the JVM's stack around it."""

    def fail(_: int) -> int:
        raise ValueError("no such disk")

    with pytest.raises(Exception, match="no such disk") as caught:
        tables.session.sparkContext.parallelize([1], 1).map(fail).collect()
    assert isinstance(caught.value, Exception)
    assert one_line(caught.value) == "ValueError: no such disk"


def test_values_for_json() -> None:
    """What JSON has no form for becomes text."""
    assert json_value(float("nan")) == "nan"
    assert json_value(b"\x00\xff") == "AP8="
    assert json_value(datetime(2024, 1, 1, tzinfo=UTC)) == "2024-01-01T00:00:00.000Z"
    assert json_value(datetime(2024, 1, 1, microsecond=500_000, tzinfo=UTC)) == "2024-01-01T00:00:00.500Z"
    assert json_value(datetime(2024, 1, 1, microsecond=1, tzinfo=UTC)) == "2024-01-01T00:00:00.000001Z"
    assert json_value([1, {"a": b"x"}]) == [1, {"a": "eA=="}]


def test_printable_keeps_letters() -> None:
    """Only what a terminal could obey is changed."""
    assert printable("größe 東京\t\x07\u202e") == "größe 東京\\t\\x07\\u202e"
    assert one_line(ValueError("\n first \nsecond")) == "first"
    assert one_line(ValueError()) == "ValueError"
    assert Path(sql.__file__).name == "sql.py"


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(b"PAR1 is no Parquet file PAR1")])
def test_spark_names_a_damaged_file(own_session: SparkSession, tmp_path: Path, damage: Callable[[Path], Any]) -> None:
    """As the jobs do, when the rows are read; and a damaged log when the table is named. No other
    test of the session finds this table."""
    warehouse = Warehouse(str(tmp_path / "w"))
    warehouse.write(
        GROUP_MEMBERS, rows(GROUP_MEMBERS, {"cluster_id": "c", "from_log_offset": 2}), app_id="a", version=1
    )
    [file] = warehouse.files(GROUP_MEMBERS)
    catalogue = Catalogue(own_session, warehouse)
    damage(Path(file.path))
    for output_format in ("table", "json", "csv"):
        with pytest.raises(TableDamaged, match=f"^silver.group_members is damaged: {re.escape(file.path)}: "):
            answer(catalogue, "select * from silver.group_members", output_format)
    log = tmp_path / "w" / "silver" / "group_members" / "_delta_log" / f"{1:020}.json"
    log.write_bytes(log.read_bytes()[:50])
    with pytest.raises(TableDamaged, match=f"^silver.group_members is damaged: {log}: "):
        answer(Catalogue(own_session, Warehouse(warehouse.root)), "select count(*) from silver.group_members", "json")
    own_session.sql("DROP TABLE silver.group_members")
