"""What README.md shows is what comes out: its commands and queries run on the recording, and their answers compared."""

import io
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from jobs import cli
from jobs.progress import Steps
from jobs.settings import Settings
from jobs.sinks import Warehouse
from jobs.views import DEFINITIONS, Kind
from schemas.tables import TABLES
from tests.conftest import PROJECT_ROOT, RECORDINGS

README: Final = (PROJECT_ROOT / "README.md").read_text()
SECTIONS: Final = ("Questions it answers", "The same tables elsewhere")
ENTRY: Final = "./spark-submit.sh"
LEFT_OUT: Final = "..."
"""As a line of an answer: lines left out."""
JOBS: Final = {"owner", "sql", "describe", "audit", "restore", "whatif"}
CAPTURED_AT: Final = datetime(2026, 12, 1, tzinfo=UTC)
"""After the recording, whatever this machine's clock says: the audit asks for a span of it."""

Printed = Callable[[str], str]
"""Gives what a block of code prints."""


class Example(NamedTuple):
    """A block of commands or code, and the answer shown right below it, if any."""

    language: str
    code: str
    shown: str | None


def section(readme: str, title: str) -> str:
    """The text below a heading, up to the next."""
    _, _, after = readme.partition(f"\n## {title}\n")
    return after.partition("\n## ")[0]


def examples(text: str) -> list[Example]:
    """The examples of a section. A block without a language that follows no code is an answer to nothing: an error."""
    found: list[Example] = []
    code_end = -1
    for block in re.finditer(r"^```(\w*)\n(.*?)^```\n", text, re.MULTILINE | re.DOTALL):
        language, body = block.groups()
        if language:
            found.append(Example(language, body, None))
            code_end = block.end()
        else:
            assert block.start() == code_end, f"an answer to nothing: {body}"
            found[-1] = found[-1]._replace(shown=body)
    return found


def commands(code: str) -> list[list[str]]:
    """The commands of a block, each as its words; one may go on over lines inside quotes."""
    return [shlex.split(command) for command in re.split(r"\n(?=\./|\w)", code.strip())]


def lines_of(text: str) -> list[str]:
    """Lines without the blanks at their ends and without empty ones around them."""
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def is_shown(shown: str, printed: str) -> bool:
    """Is the answer shown what was printed, but for the lines left out?"""
    expected = (r"(?:.*\n)+" if line == LEFT_OUT else re.escape(line) + r"\n" for line in lines_of(shown))
    return re.fullmatch("".join(expected), "".join(f"{line}\n" for line in lines_of(printed))) is not None


def faults(readme: str, printed: Printed) -> list[str]:
    """Examples whose answer is another than the one shown, or that show none though they print one."""
    found = []
    for title in SECTIONS:
        for example in examples(section(readme, title)):
            if example.shown is None:
                if "--output" not in example.code:
                    found.append(f"no answer is shown: {example.code}")
            elif not is_shown(example.shown, printed(example.code)):
                found.append(f"{example.code}\nprints\n{printed(example.code)}")
    return found


def forget(spark: SparkSession) -> None:
    """Take the tables, views and functions of a warehouse out of the session which all tests share."""
    for table in TABLES.values():
        if spark.catalog.tableExists(table.full_name):
            spark.sql(f"DROP TABLE {table.full_name}")
    for definition in DEFINITIONS:
        if definition.kind is Kind.VIEW:
            spark.catalog.dropTempView(definition.name)
        else:
            spark.sql(f"DROP TEMPORARY FUNCTION IF EXISTS {definition.name}")


def job(*words: str) -> str:
    """Run a job in this process; what it printed."""
    with redirect_stdout(io.StringIO()) as out:
        assert cli.main([*words, "--warehouse", "warehouse"]) == cli.DONE
    return out.getvalue()


def run(code: str) -> str:
    """Run a block of Python, or of one command; what it printed."""
    if code.startswith(ENTRY):
        [[_, *words]] = commands(code)
        return job(*words)
    with redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
    return out.getvalue()


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """In a folder with the warehouse of the recording, jobs share the session of the tests: what nightly told."""
    text = io.StringIO()

    def open_session(_: str, settings: Settings, **__: Any) -> tuple[SparkSession, Warehouse, Steps]:
        return spark, Warehouse(settings.warehouse, session=spark), Steps(spark, Console(file=text, width=200))

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("readme"))
        patch.setattr(cli, "open_session", open_session)
        patch.setattr(cli.Run, "start", lambda: cli.Run("r1", CAPTURED_AT))
        forget(spark)
        job("nightly", "--segments", str(RECORDINGS / "full-a" / "logs"))
        yield text.getvalue()
        forget(spark)


@pytest.fixture(scope="module")
def printed(told: str) -> Printed:
    """Runs a block once, however often it is asked for."""
    assert told
    return cache(run)


@pytest.mark.spark
def test_the_ledger_is_as_shown(told: str) -> None:
    """The line with which nightly ends."""
    [shown] = re.findall(r"^[\d,]+ records in = .*$", section(README, "Start"), re.MULTILINE)
    assert shown in told.splitlines()


@pytest.mark.spark
def test_answers_are_as_shown(printed: Printed) -> None:
    """Every command and query of the sections, line by line."""
    assert faults(README, printed) == []


def test_every_kind_of_question_is_there() -> None:
    """All jobs that answer, and the tables without any: the comparison has something to compare."""
    questions, elsewhere = (examples(section(README, title)) for title in SECTIONS)
    ours = [words for example in questions for words in commands(example.code) if words[0] == ENTRY]
    assert {words[1] for words in ours} == JOBS
    assert [example.language for example in elsewhere] == ["python", "python", "sh"]
    assert [re.findall(r"^import (\w+)", example.code) for example in elsewhere] == [["duckdb"], ["pyarrow"], []]
    assert "offsets_at(" in elsewhere[-1].code and "owner_at(" in elsewhere[-1].code


@pytest.mark.spark
def test_a_spoilt_answer_is_found(printed: Printed) -> None:
    """One other letter or figure in any line shown, or an answer gone, is one fault."""
    shown = [example.shown for title in SECTIONS for example in examples(section(README, title)) if example.shown]
    for answer in shown:
        assert len(faults(README.replace(f"```\n{answer}```\n", ""), printed)) == 1
        for line in answer.splitlines():
            spoilt = re.sub(r"\w(?=\W*$)", lambda match: "8" if match[0] == "7" else "7", line)
            if spoilt != line:
                broken = answer.replace(f"{line}\n", f"{spoilt}\n", 1)
                assert len(faults(README.replace(answer, broken), printed)) == 1, spoilt


@pytest.mark.spark
@pytest.mark.parametrize(
    ("asked", "otherwise"),
    [
        ("--topic c01-range --partition 1", "--topic c01-range --partition 5"),
        ("--set session.timeout.ms=60000", "--set session.timeout.ms=50000"),
        ("between 4 and 7", "between 4 and 6"),
        ("moved desc, group_id limit", "moved, group_id limit"),
        ("02:58:17Z') as offset", "02:58:15Z') as offset"),
    ],
)
def test_a_spoilt_question_is_found(printed: Printed, asked: str, otherwise: str) -> None:
    """Another question has another answer."""
    assert README.count(asked) == 1
    assert len(faults(README.replace(asked, otherwise), printed)) == 1


@pytest.mark.spark
def test_the_restore_file_is_what_the_dry_run_said(printed: Printed) -> None:
    """The file has the offsets of the dry run, and the command shown for Kafka's tool is the one that the job gives."""
    found = examples(section(README, SECTIONS[0]))
    [(dry, wet)] = [pair for pair in pairwise(found) if "--output" in pair[1].code]
    [_, *words], tool = commands(wet.code)
    with redirect_stderr(io.StringIO()) as remarks:
        assert job(*words) == printed(dry.code)
    rows = [line.split() for line in printed(dry.code).splitlines()[1:]]
    offsets = Path(words[words.index("--output") + 1]).read_text()
    assert offsets.splitlines() == [f"{topic},{partition},{restored}" for _, topic, partition, _, restored, *_ in rows]
    _, _, told = remarks.getvalue().partition("restore with: ")
    assert sorted(tool) == sorted([*shlex.split(told), "--bootstrap-server", "HOST:PORT"])
