"""200 texts in the eight fields that clients fill, through every face but the report's page (which has a test of its
own): no cell of CSV begins a formula, no line of a log becomes two, no file lies where a name wants it."""

import csv
import io
from collections.abc import Iterator
from itertools import dropwhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
import typer
from pyspark.sql import Row
from rich.console import Console

from jobs.bronze.export_segments import export_segments
from jobs.cli import app as cli
from jobs.cli import outcome
from jobs.cli_enums import Listing, View
from jobs.console.output import FORMULA_STARTS, printable, write_csv
from jobs.console.progress import Steps, summary_table
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.errors import ArgumentError, ExportError, JobError
from jobs.queries.answers.audit_report import Span, run_audit_report
from jobs.queries.answers.describe import write_descriptions
from jobs.queries.answers.findings import findings, lines
from jobs.queries.sql.sql import write_rows
from jobs.spark.executors import Executor
from schemas.tables.bronze import RECORD_BATCHES as BATCHES
from simulator.whatif.verdicts import WhatIfRow
from tests.answers import describe
from tests.jobs.hostile import FIELDS, HOSTILE, hostile, write_named
from tests.jobs.report.large import CLUSTER
from tests.jobs.table_rows import rows

pytestmark = pytest.mark.nights

COLUMN_OF: Final = {
    "GROUP": "group_id",
    "TOPIC": "topic",
    "CONSUMER-ID": "member_id",
    "HOST": "client_host",
    "CLIENT-ID": "client_id",
    "GROUP-INSTANCE-ID": "instance_id",
    "owner_member_id": "member_id",
    "owner_client_host": "client_host",
}
"""Field of a column whose name is another one."""


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """All texts in all fields."""
    return write_named(tmp_path_factory.mktemp("hostile") / "warehouse")


def sheet_of(printed: str) -> list[dict[str, str]]:
    """Rows of CSV as a spreadsheet reads them; lines of remarks before the header are none."""
    lines_ = dropwhile(lambda line: line.startswith("# "), printed.split("\n"))
    return list(csv.DictReader(io.StringIO("\n".join(lines_), newline="")))


def seen_in(sheet: list[dict[str, str]]) -> Iterator[str]:
    """Fields of which a sheet has all texts; none of its cells begins a formula."""
    for column in sheet[0] if sheet else ():  # a list may have no rows here: the test says which fields it saw
        cells = {row[column] for row in sheet}
        begins_formula = [cell for cell in cells if cell[:1] in FORMULA_STARTS and cell != "-"]
        assert all(is_number(cell) for cell in begins_formula), (column, begins_formula)
        field = COLUMN_OF.get(column, column)
        if field in FIELDS and {cell.removeprefix("'") for cell in cells} >= set(map(printable, HOSTILE)):
            yield field


def is_number(cell: str) -> bool:
    """A number below zero is no formula."""
    return cell.removeprefix("-").isdecimal()


def test_no_cell_of_csv_begins_a_formula(ledger: Warehouse) -> None:
    """Of no job that writes CSV for people, in any of the eight fields."""
    seen: set[str] = set()
    for view in (View.OFFSETS, View.MEMBERS):
        out = io.StringIO(newline="")
        write_descriptions(describe(ledger, CLUSTER, view=view), "csv", True, out)
        seen |= set(seen_in(sheet_of(out.getvalue())))
    assert seen >= {"group_id", "client_id", "client_host", "member_id", "topic"}
    for listing in Listing:
        out = io.StringIO(newline="")
        run_audit_report(
            ClusterTables(ledger, CLUSTER), listing=listing, span=Span(), group_ids=None, output_format="csv", out=out
        )
        seen |= set(seen_in(sheet_of(out.getvalue())))
    assert seen == {*FIELDS} - {"rack_id", "metadata"}, "the other two are for queries"
    answer: Any = SimpleNamespace(
        columns=list(FIELDS),
        rows=lambda: (Row(*(hostile(field, number) for field in FIELDS)) for number in range(len(HOSTILE))),
    )
    out = io.StringIO(newline="")
    write_rows(answer, "csv", out)
    assert set(seen_in(sheet_of(out.getvalue()))) == set(FIELDS)
    out = io.StringIO(newline="")
    write_csv(WhatIfRow._fields, [dict.fromkeys(WhatIfRow._fields, text) for text in HOSTILE], out)
    assert set(seen_in(sheet_of(out.getvalue()))) == {"group_id", "topic"}


def test_lines_of_a_log_stay_lines(ledger: Warehouse, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What a job says while it runs, what it found, and its errors: a line each, as it was meant."""
    out = io.StringIO()
    steps = Steps(console=Console(file=out, width=40, highlight=False))
    for text in HOSTILE:
        steps.say(f"say {text}.")
    said = out.getvalue().split("\n")
    assert said.pop() == ""
    assert len(said) == len(HOSTILE)
    assert all(line.startswith("say ") and line.endswith(".") and line.isprintable() for line in said)
    assert f"say {HOSTILE[0]}." in said and "say [bold]x[/bold]:cat:." in said

    reported = list(lines(findings(ClusterTables(ledger, CLUSTER))))
    assert len(reported) >= 3 and all(line.isprintable() for line in reported)
    asked = [word for name in HOSTILE for word in ("--group", f"{name}?")]
    options = ["--warehouse", ledger.root, "--cluster-id", CLUSTER]
    for job in (["describe"], ["restore", "--at", "2026-01-01"], ["report", "--output", str(tmp_path / "r.html")]):
        assert cli.main([*job, *options, *asked]) == ArgumentError.exit_code
        [*remarks, error, rest] = capfd.readouterr().err.split("\n")
        assert all(line.startswith("captured and not replayed yet: ") and line.isprintable() for line in remarks)
        assert (error[:7], rest, error.isprintable()) == ("error: ", "", True)


@pytest.mark.parametrize("kind", [JobError, ValueError])
def test_an_error_is_one_line(kind: type[Exception], capfd: pytest.CaptureFixture[str]) -> None:
    """Whatever name it tells of, foreseen or not."""
    texts = HOSTILE[::4]
    for text in texts:

        def fail(name: str = text) -> int:
            raise kind(f"no such group: {name}")

        with pytest.raises(typer.Exit):
            outcome.run_job(fail, debug=False)
    reported = capfd.readouterr().err.split("\n")
    assert reported.pop() == ""
    assert len(reported) == len(texts) and all(line.startswith("error: ") and line.isprintable() for line in reported)


def test_tables_of_what_was_done_show_names_as_they_are() -> None:
    """Neither markup nor control codes take effect."""
    out = io.StringIO()
    steps = Steps(console=Console(file=out, width=40_000))
    steps.table(summary_table("captured", ["topic", "records"], ([text, 1] for text in HOSTILE[:50])))
    assert "[bold]x[/bold]:cat:" in out.getvalue()
    assert out.getvalue().replace("\n", "").isprintable()


def test_files_lie_where_they_belong(no_spark: Executor, tmp_path: Path) -> None:
    """No name becomes part of a path: not a cluster's in its tables, nor a topic's in an export."""
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    names = [text for text in HOSTILE if "\x00" not in text]
    batch = {"partition": 0, "base_offset": 0, "last_offset": 0}
    of_clusters = [{**batch, "cluster_id": name, "topic": name} for name in names]
    warehouse.write(BATCHES, rows(BATCHES, *of_clusters), app_id="hostile", version=1)
    assert sorted(warehouse.read(BATCHES, ["cluster_id"])["cluster_id"].to_pylist()) == sorted(names)
    for name in (name for name in names if "/" in name):
        with pytest.raises(ExportError, match="is not the name of a topic"):
            export_segments(no_spark, warehouse, cluster_id=name, output=str(tmp_path / "a" / "b" / "out"))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(path.is_relative_to(tmp_path / "warehouse") for path in files)
    assert len(files) > len(names)
