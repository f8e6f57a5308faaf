"""What README.md and docs show is what comes out: their commands and queries run on the recording, answers compared."""

import ast
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from jobs import exit_codes
from jobs.cli import app as cli
from jobs.cli import outcome, session
from jobs.cli.help_texts import SUMMARIES
from jobs.console.progress import Steps
from jobs.delta.warehouse import Warehouse
from jobs.laboratory.whatif import PRINTED_NAMES
from jobs.queries.verify import verify
from jobs.report.run import Written
from jobs.settings import Settings
from jobs.spark.executors import Executor
from schemas.tables import TABLES
from schemas.tables.gold import GOLD_TABLES
from simulator.whatif.verdicts import WhatIfRow
from tests.conftest import PROJECT_ROOT
from tests.documents import LEFT_OUT, Example, commands, documents, examples, is_shown, our_jobs
from tests.groupledger.raw import as_spark_gives, raw_records
from tools import reference

pytestmark = pytest.mark.first

PAGES: Final = {
    path.relative_to(PROJECT_ROOT).as_posix().removeprefix("docs/"): path.read_text(encoding="utf-8")
    for path in documents()
}
README: Final = PAGES["README.md"]
CAPTURED_AT: Final = datetime(2026, 12, 1, tzinfo=UTC)
"""After the recording, whatever this machine's clock says: the audit asks for a span of it."""
JOBS_SHOWN: Final = {"nightly", "owner", "sql", "describe", "audit", "restore", "whatif", "groups", "history"}
"""In README and docs/recipes.md, with their answers."""
README_LINES_MAX: Final = 200
IN_A_ROW: Final = {"audit_runs.py", "replay.py", "columnar.py"}
"""In the folder of the file that is named before them."""

Printed = Callable[[Example], str]
"""Gives what an example prints."""


class Reported(NamedTuple):
    """What nightly printed, and gave on stdout for another program."""

    text: str
    facts: str


def job(*words: str) -> str:
    """Run a job in this process; what it printed."""
    with redirect_stdout(io.StringIO()) as out:
        assert cli.main(words) == exit_codes.DONE
    return out.getvalue()


@pytest.fixture(scope="module")
def reported(no_spark: Executor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reported]:
    """In a folder with the warehouse of the recording, made without Spark: what nightly printed."""
    text = io.StringIO()

    def open_session(_: str, settings: Settings, **__: Any) -> tuple[Executor, Warehouse, Steps]:
        return no_spark, Warehouse(settings.warehouse), Steps(no_spark, Console(file=text, width=200))

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("documents"))
        patch.setenv("COLUMNS", "100")
        patch.setattr(session, "open_session", open_session)
        patch.setattr(session.Run, "start", lambda: session.Run("r1", CAPTURED_AT))
        facts = job("nightly", "--format", "json")
        Path("raw").mkdir()
        pq.write_table(as_spark_gives(raw_records(Warehouse("warehouse"))), "raw/records.parquet")
        pq.write_table(raw_records(Warehouse("warehouse")), "log.parquet")
        yield Reported(text.getvalue().replace(str(Path.cwd()), "."), facts)


@pytest.fixture(scope="module")
def printed(reported: Reported) -> Printed:
    """Runs an example once, however often it is asked for; nightly has run."""

    def run(example: Example) -> str:
        if example.language == "sql":
            return job("sql", "-e", example.code)
        if example.language == "sh":
            [words] = our_jobs(example.code)
            return reported.text if words == ["nightly"] else job(*words)
        with redirect_stdout(io.StringIO()) as out:
            # the JVM was started in another folder
            code = example.code.replace('.parquet("', f'.parquet("{Path.cwd()}/')
            exec(compile(code, "a document", "exec"), {"__name__": "__main__"})
        return out.getvalue()

    return cache(run)


def in_session(example: Example) -> bool:
    """Does it need Spark?"""
    return "SparkSession" in example.code


def shown_in(page: str) -> list[Example]:
    """The examples of a page that have an answer, but for those that need Spark."""
    return [it for it in examples(PAGES[page]) if it.shown is not None and not in_session(it)]


@pytest.mark.parametrize("page", [page for page in PAGES if shown_in(page)])
def test_answers_are_as_shown(printed: Printed, page: str) -> None:
    """Every command and query of the page prints the block below it, line by line."""
    for example in shown_in(page):
        assert example.shown is not None
        assert is_shown(example.shown, printed(example)), f"{example.code}\nprints\n{printed(example)}"


@pytest.mark.parametrize("page", ["README.md", pytest.param("spark.md", marks=pytest.mark.spark)])
def test_answers_of_a_session_are_as_shown(printed: Printed, own_session: SparkSession, page: str) -> None:
    """So does every piece of code that works in one."""
    assert own_session
    code = [example for example in examples(PAGES[page]) if example.shown is not None and in_session(example)]
    assert code
    for example in code:
        assert example.shown is not None
        assert is_shown(example.shown, printed(example)), f"{example.code}\nprints\n{printed(example)}"


@pytest.mark.parametrize("page", PAGES)
def test_every_block_has_its_answer_or_a_reason(page: str) -> None:
    """What is neither run nor says why would be believed and never checked."""
    for example in examples(PAGES[page]):
        assert example.shown is not None or example.not_run, f"neither an answer nor a reason: {example.code}"


@pytest.mark.parametrize("page", PAGES)
def test_every_command_is_one(page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands that are not run here are parsed by the command line itself; targets of make are there."""
    monkeypatch.setenv(outcome.PARSE_ONLY, "1")
    makefile = (PROJECT_ROOT / "Makefile").read_text()
    for example in examples(PAGES[page]):
        if example.language != "sh":
            continue
        for words in our_jobs(example.code):
            if words[:1] != ["--set-up"]:
                assert cli.main(words) in (outcome.PARSED, exit_codes.DONE), f"{words}: {capsys.readouterr().err}"
        for words in commands(example.code):
            if words[0] == "make":
                assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), words


def test_commands_in_the_text_are_ones(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`./spark-submit.sh JOB ...` inside a sentence is parsed, too."""
    monkeypatch.setenv(outcome.PARSE_ONLY, "1")
    for page, text in PAGES.items():
        for line in re.findall(r"`(\./spark-submit\.sh [a-z][^`]*)`", text):
            for words in our_jobs(line):
                assert cli.main(words) in (outcome.PARSED, exit_codes.DONE), (
                    f"{page}: {line}: {capsys.readouterr().err}"
                )


def test_a_spoilt_answer_is_found(printed: Printed) -> None:
    """One other letter or figure in any line shown on a page, or a line gone, is found."""
    for example in shown_in("README.md"):
        assert example.shown is not None
        for line in example.shown.splitlines():
            spoilt = re.sub(r"\w(?=\W*$)", lambda match: "8" if match[0] == "7" else "7", line)
            if spoilt != line:
                assert not is_shown(example.shown.replace(f"{line}\n", f"{spoilt}\n", 1), printed(example)), spoilt
                if LEFT_OUT not in example.shown.splitlines():
                    assert not is_shown(example.shown.replace(f"{line}\n", "", 1), printed(example)), line


@pytest.mark.parametrize(
    ("page", "asked", "otherwise"),
    [
        ("README.md", "--topic c01-range --partition 1", "--topic c01-range --partition 5"),
        ("recipes.md", "--set session.timeout.ms=60000", "--set session.timeout.ms=50000"),
        ("README.md", "--from 2026-11-21T02:58:15Z --to 2026-11-21T02:58:20Z", "--from 2026-11-21T02:58:16Z"),
    ],
)
def test_a_spoilt_question_is_found(printed: Printed, page: str, asked: str, otherwise: str) -> None:
    """Another question has another answer."""
    [example] = [example for example in shown_in(page) if asked in example.code]
    assert example.shown is not None
    other = example._replace(code=example.code.replace(asked, otherwise))
    assert not is_shown(example.shown, printed(other))


@pytest.mark.parametrize(
    "text",
    [
        "```\nan answer to nothing\n```\n",
        "```sh\n./spark-submit.sh owner\n```\n\n```\nnot right below\n```\n",
        "<!-- not run: no broker -->\n```sh\n./spark-submit.sh owner\n```\n```\nan answer all the same\n```\n",
        "```toml\na = 1\n```\n```\nan answer to settings\n```\n",
    ],
)
def test_an_answer_belongs_to_what_is_run(text: str) -> None:
    """A block without a language is no decoration."""
    with pytest.raises(AssertionError, match="an answer to"):
        examples(text)


def test_blocks_are_read_as_they_are_meant() -> None:
    """Comments, words over lines, Spark's options and what is left out."""
    text = (
        "<!-- not run: a cluster -->\n```sh\n# why\n./spark-submit.sh --master 'local[2]' --conf=a=b sql -e \""
        '\n  select 1"'
        " # one\nkafka-acls --add \\\n  --topic '*'\n```\n\n```python\nprint(1)\n```\n```\n1\n...\n```\n"
    )
    shell, python = examples(text)
    assert shell.not_run == "a cluster"
    assert our_jobs(shell.code) == [["sql", "-e", "\n  select 1"]]
    assert commands(shell.code)[1] == ["kafka-acls", "--add", "--topic", "*"]
    assert python == Example("python", "print(1)\n", "1\n...\n")
    assert is_shown("1\n...\n", "1\n2\n3\n") and not is_shown("1\n...\n", "1\n")


def test_names_in_json_are_documented() -> None:
    """Of the jobs whose columns are those of no table: others go by them."""
    names = {PRINTED_NAMES.get(name, name) for name in WhatIfRow._fields} | {
        *verify.COLUMNS,
        *Written._fields,
        "output",
    }
    assert {name for name in names if f"`{name}`" not in PAGES["internals/json.md"]} == set()


def test_every_job_is_documented() -> None:
    """docs/index.md has each in its table."""
    jobs = SUMMARIES.keys() - {"completion"}
    assert set(re.findall(r"^\| `([a-z][\w-]+)` \|", PAGES["index.md"], re.MULTILINE)) == jobs


def test_every_kind_of_question_is_asked() -> None:
    """All jobs that answer: the comparison has something to compare."""
    shown = [*shown_in("README.md"), *shown_in("recipes.md")]
    assert {words[0] for example in shown for words in our_jobs(example.code)} == JOBS_SHOWN


def test_readme_is_short() -> None:
    """Whoever wants more finds it in docs."""
    assert README.count("\n") <= README_LINES_MAX


def test_the_map_names_files_that_are_there() -> None:
    """Each path of ARCHITECTURE.md, as it is or in the package that the line is of; each room of jobs and table of gold
    is on it."""
    text = (PROJECT_ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    packages = [PROJECT_ROOT / name for name in ("coordinator_core", "simulator", "jobs")]
    roots = [PROJECT_ROOT, *packages, *(path for package in packages for path in package.rglob("*") if path.is_dir())]
    paths = re.findall(r"`((?:[a-z_]+/)*[a-z_]+(?:\.py|\.toml|\.md|/))`", text)
    assert len(paths) > 30
    lost = [path for path in paths if not any((root / path).exists() for root in roots) and path not in IN_A_ROW]
    assert lost == []
    rooms = {path.name for path in (PROJECT_ROOT / "jobs").iterdir() if (path / "__init__.py").is_file()}
    first_cells = re.findall(r"^\| (`[a-z]+`(?:, `[a-z]+`)*)[^|]*\|", text, re.MULTILINE)
    assert rooms <= {name for cell in first_cells for name in re.findall(r"`([a-z]+)`", cell)}
    assert {table.full_name for table in GOLD_TABLES} <= set(re.findall(r"`(gold\.\w+)`", text))


def test_the_command_of_a_job_is_where_the_map_says() -> None:
    """In the module of its name, or in one that ARCHITECTURE.md names."""
    text = (PROJECT_ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = dict(re.findall(r"`(\w+)` is in `jobs/cli/(\w+)\.py`", text))
    modules = {name: function.__module__ for name, function in cli.COMMANDS.items()}
    assert modules == {name: f"jobs.cli.{named.get(name, name.replace('-', '_'))}" for name in cli.COMMANDS}


def test_the_restore_file_is_what_the_dry_run_said(printed: Printed) -> None:
    """The file has the offsets of the dry run, and the command shown for Kafka's tool is the one that the job gives."""
    [(dry, wet)] = [pair for pair in pairwise(examples(README)) if "--output offsets.csv" in pair[1].code]
    [words], tool = our_jobs(wet.code), commands(wet.code)[1]
    with redirect_stderr(io.StringIO()) as remarks:
        assert job(*words) == printed(dry)
    rows = [line.split() for line in printed(dry).splitlines()[1:]]
    offsets = Path(words[words.index("--output") + 1]).read_text()
    assert offsets.splitlines() == [f"{topic},{partition},{restored}" for _, topic, partition, _, restored, *_ in rows]
    _, _, reported = remarks.getvalue().partition("restore with: ")
    assert tool == shlex.split(reported.splitlines()[0])


def test_nightly_tells_another_program_all_of_it(reported: Reported) -> None:
    """One JSON object on stdout, with the keys that docs/internals/json.md names and the numbers of the text."""
    facts = json.loads(reported.facts)
    assert reported.facts.count("\n") == 1
    assert list(facts) == [
        "job", "run_id", "started_at", "exit_code", "captured", "replayed", "ledger", "inferred", "found"
    ]  # fmt: skip
    counts = facts["ledger"]["total"]
    assert f"{counts['record_count']:,} records in = {counts['decoded_count']:,} decoded" in reported.text
    assert facts["found"]["headline"] in reported.text
    names = {name for part in ("captured", "replayed", "inferred", "found") for name in facts[part]}
    for name in {*facts, *names, *counts}:
        assert f"`{name}`" in PAGES["internals/json.md"], name


def test_the_notebook_runs_from_top_to_bottom(reported: Reported) -> None:
    """Each cell in turn, in the folder with the warehouse; every one that shows something shows rows."""
    assert reported
    notebook = json.loads((PROJECT_ROOT / "examples" / "first-look.ipynb").read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            *statements, last = ast.parse("".join(cell["source"])).body
            assert isinstance(last, ast.Expr), "a cell that shows nothing teaches nothing"
            exec(compile(ast.Module(statements, []), "notebook", "exec"), names)
            shown = eval(compile(ast.Expression(last.value), "notebook", "eval"), names)
            assert len(getattr(shown, "data", shown) if not hasattr(shown, "index") else shown), "".join(cell["source"])
            assert cell["outputs"] == [], "outputs are not kept: they would not be compared"


@pytest.mark.parametrize("name", reference.PAGES)
def test_generated_pages_are_up_to_date(name: str) -> None:
    """`make reference` would change nothing."""
    assert PAGES[name] == reference.PAGES[name]()


@pytest.mark.parametrize("name", reference.OUTSIDE)
def test_generated_files_are_up_to_date(name: str) -> None:
    """So are those that lie outside of the documentation."""
    assert (reference.DOCS / name).read_text(encoding="utf-8") == reference.OUTSIDE[name]()


PAGES_OF_LAYERS = {"state": "internals/state-tables.md", "simulation": "internals/scenarios.md"}
"""For tables that are on another page than tables.md."""


def test_every_table_is_explained() -> None:
    """Each table and column has a comment, and the page names all of them."""
    for table in TABLES.values():
        page = PAGES_OF_LAYERS.get(table.layer, "tables.md")
        assert f"### {table.full_name}\n" in PAGES[page]
        assert table.comment and all(column.comment for column in table.columns), table.full_name


def test_the_site_builds(tmp_path: Path) -> None:
    """Strictly: every link and anchor leads somewhere, every page is in the navigation; nothing is from elsewhere."""
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=PROJECT_ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(list((PROJECT_ROOT / "docs").rglob("*.md")))
    fetched = re.compile(r'<(?:script|link|img|iframe)[^>]*\s(?:src|href)="(?:https?:)?//[^"]*"')
    for page in pages:
        others = [tag for tag in fetched.findall(page.read_text(encoding="utf-8")) if 'rel="canonical"' not in tag]
        assert others == [], page


def test_every_method_is_explained(printed: Printed) -> None:
    """Each that gold of the recording has is on the page of methods."""
    tables = [table.full_name for table in GOLD_TABLES if "method" in table.column_names]
    queries = [
        "select unnest(cause_methods) as method from gold.rebalances",
        *(f"select method from {it}" for it in tables),
    ]
    answer = printed(Example("sql", " union ".join(queries)))
    methods = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", answer))
    assert len(methods) > 30
    assert {method for method in methods if f"`{method}`" not in PAGES["internals/methods.md"]} == set()
