"""Every command that a job prints runs as it is printed, with and without --warehouse and --cluster-id."""

import ast
import re
import shlex
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path
from subprocess import run
from typing import Any, Final

import pytest
from rich.console import Console

from jobs import exit_codes
from jobs.cli import app as cli
from jobs.cli import outcome, session
from jobs.cli.help_texts import EXAMPLES
from jobs.cli_enums import Listing
from jobs.console import command_name
from jobs.console.progress import Steps
from jobs.delta.other_writers import ForeignWrite
from jobs.delta.other_writers import lines as lines_of_others
from jobs.delta.warehouse import Warehouse
from jobs.queries.answers.findings import Findings, Found, lines
from jobs.queries.answers.lists import FINDINGS
from jobs.settings import Settings, first_night, load_settings, place_words
from jobs.spark.executors import Executor
from tests.cases.harness import CASES, CLUSTER_ID, Ledger
from tests.conftest import PROJECT_ROOT
from tests.jobs.in_process import in_process
from tests.lengths import takes_minutes

pytestmark = pytest.mark.nights

OWN: Final = ("--warehouse", "/a b/it's", "--cluster-id", "the cluster's")
PLACES: Final = ((), OWN[:2], OWN[2:], OWN)
NO_JOB: Final = frozenset({"JOB", "--master local[2] nightly"})
"""Words of hints that name no single job, or Spark's options before it."""


def parses(words: list[str], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Does the command line take these words?"""
    with monkeypatch.context() as patch:
        patch.setenv(outcome.PARSE_ONLY, "1")
        return cli.main(words) in (outcome.PARSED, exit_codes.DONE)


def commands_in(text: str) -> Iterator[list[str]]:
    """The words behind `./spark-submit.sh` in a line, as a shell reads them."""
    for part in text.split(f"{command_name.ENTRY} ")[1:]:
        yield shlex.split(part)


def texts_of(node: ast.expr) -> str:
    """A text in the code, with what it puts in left out (those are options) or standing for a name."""
    match node:
        case ast.Constant(value=str()):
            return str(node.value)
        case ast.JoinedStr():
            return "".join(texts_of(part) for part in node.values)
        case ast.FormattedValue(value=ast.Attribute(attr="place_words") | ast.Name(id="place")):
            return ""
        case ast.FormattedValue(value=ast.Attribute(attr="listing") | ast.Name(id="listing")):
            return Listing.EXPIRED
        case ast.FormattedValue(value=ast.Attribute(value=ast.Name(id="Listing"), attr=name)):
            return Listing[name]
        case ast.FormattedValue():
            return "X"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return texts_of(left) + texts_of(right)
    return ""


def printed_in_code() -> Iterator[tuple[str, str]]:
    """(place, words) of each call of `command` whose words stand in the code."""
    for path in sorted((PROJECT_ROOT / "jobs").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if path.name == "help_texts.py":
                continue  # its examples are data, and have a test of their own
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "command"
            if is_call and isinstance(node, ast.Call) and node.args:
                words = texts_of(node.args[0])
                if words.strip() and words not in NO_JOB and words != "X":
                    yield f"{path.name}:{node.lineno}", words


def all_findings() -> Findings:
    """Something of everything."""
    writes = (ForeignWrite("gold.rebalances", 4, "DELETE"), ForeignWrite("bronze.coverage", 5))
    items = tuple(Found(listing, {"it's": 2}) for listing in FINDINGS)
    return Findings(items=items, missing_log_partitions={"t": 1}, foreign_writes=writes)


def printed_of(found: Findings, place: Sequence[str]) -> list[list[str]]:
    """The words of the commands of lines, each kind of finding by itself, with what the last line adds to each."""
    words = "".join(f" {shlex.quote(word)}" for word in place)
    parts = (Findings(items=(it,), missing_log_partitions={}) for it in found.items)
    said = [list(lines(part, words, attention=["it's"])) for part in parts]
    return [
        [*shown, *(place if each[-1] == f"Each command needs{words}" else ())]
        for each in said
        for line in each
        for shown in commands_in(line)
    ]


@pytest.mark.parametrize("place", PLACES, ids=["nothing", "warehouse", "cluster", "both"])
def test_commands_of_findings_parse(monkeypatch: pytest.MonkeyPatch, place: tuple[str, ...]) -> None:
    """Of a night in which everything was found."""
    commands = printed_of(all_findings(), place)
    assert len(commands) >= 10
    for words in commands:
        assert words[len(words) - len(place) :] == list(place)
        assert parses(words, monkeypatch), words
    for line in lines_of_others(all_findings().foreign_writes, "".join(f" {shlex.quote(it)}" for it in place)):
        for words in commands_in(line):
            assert parses(words, monkeypatch), words


def test_commands_in_the_code_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of errors, hints and summaries: each as it is, and with where the ledger is."""
    found = list(printed_in_code())
    assert len(found) >= 8
    for place, words in found:
        shown = shlex.split(words)
        assert parses(shown, monkeypatch), f"{place}: {words}"
        if shown[0] not in ("completion", "explain", "simulate", "owner") and "--help" not in shown:
            assert parses([*shown, *OWN[2:]], monkeypatch), f"{place}: {words}"


HINT: Final = re.compile(r"\b(?:[Ss]ee|[Rr]un) (?:audit|replay|groups|restore|nightly|capture|history) --[a-z]")
"""A command that a text would name by itself, where nobody can paste it."""


def test_no_hint_is_written_without_the_entry() -> None:
    """A wheel's user types another word than a checkout's: no text of a job names the shell itself, nor a command that
    is not made by `command`, which a user could not paste."""
    for path in sorted((PROJECT_ROOT / "jobs").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documented = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
                assert "./spark-submit.sh" not in node.value, f"{path}:{node.lineno}"
                assert not HINT.search(node.value), f"{path}:{node.lineno}"


def test_examples_of_help_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    """What --help shows."""
    for job, examples in EXAMPLES.items():
        for _, words in examples:
            shown = shlex.split(words.partition(" | ")[0])
            assert parses(shown, monkeypatch), f"{job}: {words}"


def test_words_of_a_place() -> None:
    """Nothing where another job would ask the same tables by itself; else options as a shell takes them."""
    usual = load_settings()
    assert place_words(usual.warehouse, usual.cluster_id) == usual.place_words == ""
    assert shlex.split(place_words("/a b/it's", "the cluster's")) == list(OWN)
    assert place_words("/w") == " --warehouse /w"
    assert first_night(usual.warehouse) == "nightly"
    assert first_night("/w", "k") == "nightly --segments DIR --warehouse /w --cluster-id k"


IDS: Final = (
    "g",
    "a b",
    "it's",
    "$HOME",
    "back`tick",
    "-x",
    "",
    "*",
    "new\nline",
    "\u00fc'\\\x85\x1b[0m",
    "caf\u00e9\u202e\U000e0001",
)


@pytest.mark.parametrize("text", IDS)
def test_a_shell_reads_a_word_as_it_is(text: str) -> None:
    """Ids are whatever clients sent; a terminal is shown none of its controls."""
    word = command_name.shell_word(text)
    assert word.isprintable()
    answer = run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"})
    assert answer.stdout.decode() == text


def test_printed_commands_run(ledger_of_a_night: Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those of a real night are ones of the command line, and name its ledger."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # else the ledger would be the usual one, ./warehouse
    night = ledger_of_a_night.night(CASES / "X-compaction" / "full", number=2)
    commands = [words for line in night.lines for words in commands_in(line)]
    assert {"audit", "sql"} <= {words[0] for words in commands}
    for words in commands:
        assert words[-4:] == ["--warehouse", str(ledger_of_a_night.root), "--cluster-id", CLUSTER_ID]
        assert parses(words, monkeypatch), words
    with monkeypatch.context() as patch:
        patch.setenv("GROUPLEDGER_WAREHOUSE", str(ledger_of_a_night.root))
        assert cli.main(["describe", "--cluster-id", CLUSTER_ID]) == exit_codes.DONE


RUN_AS_IT_IS: Final = frozenset({"audit", "groups", "replay", "report"})


@pytest.mark.parametrize(
    "place", ["nothing", *(pytest.param(place, marks=takes_minutes) for place in ("warehouse", "cluster", "both"))]
)
def test_every_printed_command_runs(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    place: str,
) -> None:
    """Whatever a night may find, and whatever an error says to do: as printed, on a ledger at the usual place or at one
    of its own, without Spark. One command of each kind: tests of `findings` ask for the others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GROUPLEDGER_WAREHOUSE", str(tmp_path / "usual"))
    root = tmp_path / "it's mine" if place in ("warehouse", "both") else tmp_path / "usual"
    cluster_id = "the cluster's" if place in ("cluster", "both") else load_settings().cluster_id
    night = Ledger(root, cluster_id).night(CASES / "G-first" / "logs")
    options = shlex.split(place_words(str(root), cluster_id))
    assert len(options) == {"nothing": 0, "warehouse": 2, "cluster": 2, "both": 4}[place]
    printed = list(night.lines)
    printed += lines_of_others(all_findings().foreign_writes, "".join(f" {shlex.quote(it)}" for it in options))
    commands = [words for line in printed for words in commands_in(line)]
    commands += printed_of(all_findings(), options)
    commands += [[*shlex.split(words), *options] for _, words in printed_in_code() if "X" not in shlex.split(words)]
    commands = list({tuple(words[:2]): words for words in commands if words[0] in RUN_AS_IT_IS}.values())
    assert {words[0] for words in commands} == RUN_AS_IT_IS

    def open_session(_: str, settings: Settings, **__: Any) -> tuple[Executor, Warehouse, Steps]:
        """No command needs Spark: tasks run here."""
        return in_process(), Warehouse(settings.warehouse), Steps(console=Console(file=StringIO()))

    monkeypatch.setattr(session, "open_session", open_session)
    for words in commands:
        assert words[len(words) - len(options) :] == options
        assert cli.main(words) in (exit_codes.DONE, exit_codes.INCOMPLETE), (words, capsys.readouterr().err)
        assert "Traceback" not in capsys.readouterr().err


@pytest.fixture
def ledger_of_a_night(tmp_path: Path) -> Ledger:
    """A ledger with one night."""
    ledger = Ledger(tmp_path / "warehouse")
    ledger.night(CASES / "G-first" / "logs")
    return ledger
