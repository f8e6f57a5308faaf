"""The command line: wrong arguments cost no Spark, errors are one line, exit codes mean what they say."""

import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from typer.core import TyperGroup

from jobs import __version__, exit_codes
from jobs.cli import app as cli
from jobs.cli import completion, outcome, session
from jobs.cli.help_texts import EXAMPLES, SUMMARIES
from jobs.cli_enums import Listing, Shell
from jobs.console import command_name
from jobs.console.progress import Steps
from jobs.delta.warehouse import Warehouse
from jobs.errors import JobError, SettingsError
from jobs.settings import Settings
from schemas.tables.state import RUN_METRICS
from tests.conftest import PROJECT_ROOT
from tests.lengths import takes_minutes

APP: Final = typer.main.get_command(cli.app)
assert isinstance(APP, TyperGroup)
KNOWN: Final = APP.commands
JOBS: Final = {job: command for job, command in KNOWN.items() if job != "completion"}


def test_help_names_every_job_without_spark() -> None:
    """The list of jobs comes without importing Spark, pyarrow or numba."""
    code = "import sys; from jobs.cli.app import main; main(['--help']); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PROJECT_ROOT)
    shown, _, modules = done.stdout.rpartition("\n[")
    for job in JOBS:
        assert f"  {job} " in shown
    for heavy in ("pyspark", "pyarrow", "numba", "numpy", "deltalake"):
        assert f"'{heavy}'" not in modules


def help_of(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What --help prints."""
    assert cli.main([*words, "--help"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("job", JOBS)
def test_every_job_has_help(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    """--help exits 0, says what the job does and shows examples, each on a line as it is to be typed."""
    shown = help_of(job, capsys=capsys)
    assert "--debug" in shown
    for what, words in EXAMPLES[job]:
        assert f"    {what}\n      ./spark-submit.sh {words}\n" in shown


def test_help_fits_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each job has its line in the list of jobs, whole, at 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = help_of(capsys=capsys)
    assert {*JOBS, "completion"} == SUMMARIES.keys() == EXAMPLES.keys()
    for job, summary in SUMMARIES.items():
        assert f"  {job:<15}  {summary}\n" in shown


@pytest.mark.parametrize("job", EXAMPLES)
def test_every_example_is_a_command(
    job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line takes each as it is."""
    monkeypatch.setenv(outcome.PARSE_ONLY, "1")
    assert EXAMPLES[job]
    for _, words in EXAMPLES[job]:
        assert shlex.split(words)[0] == job
        assert cli.main(shlex.split(words)) in (outcome.PARSED, exit_codes.DONE), capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [["--copied-at", "now"], ["--segments", "."], ["--cluster-id", "c"], ["--notify", "f.json"]],
    ids=lambda it: it[0],
)
def test_all_clusters_have_their_own_sources(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """An option that would have no effect is refused."""
    assert cli.main(["nightly", "--all-clusters", *words]) == exit_codes.WRONG_ARGUMENTS
    assert "--all-clusters takes clusters and their sources from [clusters]" in capsys.readouterr().err


def test_every_job_gives_json() -> None:
    """Whatever prints something, prints it for other programs, too."""
    for job, command in JOBS.items():
        assert "--format" in {name for parameter in command.params for name in parameter.opts}, job


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    """One line."""
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"groupledger {__version__}\n"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["aud"], {"audit"}),
        (["re"], {"replay", "report", "restore"}),
        (["audit", "--list", ""], {listing.value for listing in Listing}),
        (["owner", "--part"], {"--partition"}),
        (["simulate", "--scenario", "no-such"], set()),
        (["changes", "--table", "gold.re"], {"gold.rebalances", "gold.redeliveries"}),
        (["explain", "MEMBER_E"], {"MEMBER_EXPIRED"}),
    ],
)
def test_the_tab_key_completes_in_bash(tmp_path: Path, typed: list[str], offered: set[str]) -> None:
    """The lines for bash, read by bash, ask the command for jobs, options and choices; file names are left to bash."""
    entry = tmp_path / "spark-submit.sh"
    entry.write_text(f'#!/bin/bash\nexec {sys.executable} {PROJECT_ROOT}/jobs/__main__.py "$@"\n')
    entry.chmod(0o755)
    words = " ".join(shlex.quote(word) for word in ("./spark-submit.sh", *typed))
    script = (
        f"{completion.script(Shell.BASH)}COMP_WORDS=({words}); COMP_CWORD={len(typed)}\n"
        "_groupledger ./spark-submit.sh; printf '%s\\n' \"${COMPREPLY[@]}\"; complete -p spark-submit.sh >&2"
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )  # fmt: skip
    assert done.stderr == "complete -o default -F _groupledger spark-submit.sh\n"
    assert set(done.stdout.split()) == offered


@takes_minutes
@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("re", {"replay", "report", "restore"}),
        (
            "audit --list ",
            {"archived", "redeliveries", "rebalances", "commits", "owners", "share-offsets", "without-copy"},
        ),
        ("owner --part", {"--partition"}),
        ("simulate --scenario ent", {"entry.toml"}),
    ],
)
def test_the_tab_key_completes_in_fish(tmp_path: Path, typed: str, offered: set[str]) -> None:
    """The lines for fish, read by fish: jobs, options, choices, and file names where a file is asked for."""
    entry = tmp_path / "spark-submit.sh"
    entry.write_text(f'#!/bin/bash\nexec {sys.executable} {PROJECT_ROOT}/jobs/__main__.py "$@"\n')
    entry.chmod(0o755)
    (tmp_path / "entry.toml").touch()
    script = f"{completion.script(Shell.FISH)}complete -C {shlex.quote(f'./spark-submit.sh {typed}')}"
    done = subprocess.run(
        ["fish", "--no-config", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert {line.split("\t")[0] for line in done.stdout.splitlines()} == offered


@pytest.mark.parametrize("shell", Shell)
def test_each_shell_has_its_lines(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    """They name the command and the variable that spark-submit.sh answers at once."""
    assert cli.main(["completion", shell.value]) == 0
    lines = capsys.readouterr().out
    assert "spark-submit.sh" in lines and f"{command_name.COMPLETE}=complete_{shell.value}" in lines
    assert "@" not in lines.replace("[@]", "")
    assert command_name.COMPLETE in (PROJECT_ROOT / "spark-submit.sh").read_text()


@pytest.mark.parametrize("job", [*KNOWN, "nightli", "--nosuch"])
def test_what_is_not_understood_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], job: str
) -> None:
    """A wrong word for each argument and option of each command, one too many, none where one is needed: exit code 2,
    before anything is started, and one line without a summary of the usage."""
    monkeypatch.setenv(outcome.PARSE_ONLY, "1")
    words = ["--nosuch", "nosuch nosuch nosuch"]
    if job in KNOWN:
        words += [" ".join(option.opts[:1]) for option in KNOWN[job].params]
        words += [f"{word} nosuch" for word in words]
    for given in ("", *words):
        code, shown = cli.main(given_words := [job, *given.split()]), capsys.readouterr()
        assert code in (outcome.PARSED, exit_codes.WRONG_ARGUMENTS, exit_codes.DONE)
        if code == exit_codes.WRONG_ARGUMENTS:
            assert re.fullmatch(r"error: .*[^.]\n", shown.err) and shown.out == "", given_words
        elif "--nosuch" in given or (given == words[1] and job != "explain") or job not in KNOWN:
            raise AssertionError(given_words)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("owner --topic t", "error: owner needs --topic TOPIC and --partition PARTITION"),
        ("completion", "error: completion needs SHELL"),
        ("owner --topic t --partition x", "error: partition: should be a valid integer"),
        (f"owner --topic t --partition {10**20}", "error: partition: should be less than or equal to 2147483647"),
        ("hstory", "error: there is no command 'hstory' (did you mean 'history'?): nightly, demo, "),
        (
            "history --gruop g",
            "error: there is no option 'gruop' (did you mean 'group'?): ./spark-submit.sh history --help",
        ),
        (
            "groups --group g",
            "error: there is no option 'group' (did you mean 'match'?): audit, describe, where, history, ",
        ),
        ("history --match g", "error: there is no option 'match': groups has it; ./spark-submit.sh history --help"),
        ("groups --nosuch g", "error: there is no option 'nosuch': ./spark-submit.sh groups --help"),
        ("history --group", "error: option '--group' requires an argument"),
        (
            "sql 'select 1'",
            "error: 'select 1' has no option before it (did you mean -e 'select 1'?): ./spark-submit.sh",
        ),
        ("nightly logs", "error: 'logs' has no option before it: ./spark-submit.sh nightly --help"),
    ],
)
def test_a_wrong_line_gets_what_it_lacks(capsys: pytest.CaptureFixture[str], words: str, line: str) -> None:
    """What is needed, or the nearest name."""
    assert cli.main(shlex.split(words)) == exit_codes.WRONG_ARGUMENTS
    assert capsys.readouterr().err.startswith(line)


def test_no_command_at_all_is_a_wrong_one() -> None:
    """It gets the help."""
    assert cli.main([]) == exit_codes.WRONG_ARGUMENTS


@pytest.mark.parametrize("words", [["explain"], ["explain", "CERTAIN"]])
def test_a_reader_that_leaves_is_no_error(words: list[str]) -> None:
    """As `head -1` does, here before the first line."""
    command = [sys.executable, "-m", "jobs", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=PROJECT_ROOT
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == ("", exit_codes.DONE)


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["groups", "--help"], ["explain", "CERTAIN"]])
def test_a_full_disk_is_one_sentence(words: list[str]) -> None:
    """Also where the answer is no job's."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "jobs", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            cwd=PROJECT_ROOT,
        )
    assert (done.returncode, len(done.stderr.splitlines())) == (exit_codes.FAILED, 1)
    assert done.stderr.startswith("error: ") and "No space left on device" in done.stderr


@pytest.mark.parametrize("words", [["groups", "--match", "a\udcff"], ["a\udcff"], ["groups", "--warehouse", "\udcff"]])
def test_bytes_that_are_no_text_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """No name of Kafka has them, and no output could show them."""
    assert cli.main(words) == exit_codes.WRONG_ARGUMENTS
    assert (
        capsys.readouterr().err
        == f"error: {words[-1][:-1]}\\udcff is not UTF-8, as names of Kafka and of files have to be\n"
    )


def test_an_unknown_setting_gets_the_nearest_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """In the environment or a file."""
    monkeypatch.setenv("GROUPLEDGER_WAREHOSE", "x")
    assert cli.main(["groups"]) == exit_codes.WRONG_ARGUMENTS
    assert "no setting 'GROUPLEDGER_WAREHOSE' (did you mean 'GROUPLEDGER_WAREHOUSE'?)" in capsys.readouterr().err
    monkeypatch.delenv("GROUPLEDGER_WAREHOSE")
    (tmp_path / "own.toml").write_text("warehose = 'x'")
    monkeypatch.setenv("GROUPLEDGER_CONFIG", str(tmp_path / "own.toml"))
    assert cli.main(["groups"]) == exit_codes.WRONG_ARGUMENTS
    assert "no setting 'warehose' (did you mean 'warehouse'?)" in capsys.readouterr().err


def test_wrong_settings_exit_2() -> None:
    """One line that names the setting, by the process itself."""
    environment = {**os.environ, "GROUPLEDGER_WRITES_CODEC": "fast"}
    words = [sys.executable, "-m", "jobs", "capture"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=PROJECT_ROOT, env=environment)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "error: a Parquet codec must be one of none, snappy, lz4, zstd"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["capture", "--segments", "/nowhere"], outcome.PARSED),
        (["sql", "-e", "--help"], outcome.PARSED),
        (["capture", "--help"], exit_codes.DONE),
        (["capture", "--nope"], exit_codes.WRONG_ARGUMENTS),
    ],
)
def test_parsing_alone_is_distinguished(monkeypatch: pytest.MonkeyPatch, words: list[str], code: int) -> None:
    """spark-submit.sh asks first whether there is a job to run: 64 yes, 0 help was shown, 2 wrong."""
    monkeypatch.setenv(outcome.PARSE_ONLY, "1")
    assert cli.main(words) == code


class Broken(Exception):
    """An error of no kind that is known."""


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (JobError("no such thing"), 1, "error: no such thing"),
        (SettingsError("bad key"), 2, "error: bad key"),
        (Broken("first\nsecond"), 1, "error: Broken: first (--debug shows more)"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (BrokenPipeError(), 0, None),
    ],
)
def test_errors_are_one_line_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    line: str | None,
) -> None:
    """Whatever a job raises, the command says it in one line."""

    def broken(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(session, "open_session", broken)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert cli.main(["capture"]) == code
    assert capsys.readouterr().err == (f"{line}\n" if line else "")


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """With --debug the error comes as it is."""

    def broken(*_: Any, **__: Any) -> Any:
        raise Broken("whole")

    monkeypatch.setattr(session, "open_session", broken)
    with pytest.raises(Broken, match="whole"):
        cli.main(["capture", "--debug"])


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 1), (3, 3)])
def test_the_jobs_code_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, warehouse: Warehouse, code: int, expected: int
) -> None:
    """3 says: done, but something was quarantined or is missing."""
    from jobs.operations import nightly  # noqa: PLC0415

    monkeypatch.setattr(session, "open_session", lambda *_, **__: (None, warehouse, Steps()))
    monkeypatch.setattr(nightly, "run_nightly", lambda *_, **__: code)
    assert cli.main(["nightly"]) == expected


@pytest.mark.parametrize(("quarantined_count", "gap_count", "code"), [(0, 0, 0), (1, 0, 3), (0, 1, 3)])
def test_capture_says_when_something_is_missing(
    monkeypatch: pytest.MonkeyPatch, warehouse: Warehouse, quarantined_count: int, gap_count: int, code: int
) -> None:
    """3 where a batch was quarantined or the log has a gap, 0 where all is there; the run's metrics say so too."""
    from jobs.bronze.capture import CaptureSummary  # noqa: PLC0415
    from jobs.operations import nightly  # noqa: PLC0415

    summary = CaptureSummary({}, quarantined_count, gap_count, 1, 0.1)
    monkeypatch.setattr(session, "open_session", lambda *_, **__: (None, warehouse, Steps()))
    monkeypatch.setattr(nightly, "capture", lambda *_, **__: summary)
    assert cli.main(["capture"]) == code
    (row,) = warehouse.read(RUN_METRICS).to_pylist()
    assert (row["job"], row["exit_code"], row["gap_count"]) == ("capture", code, gap_count)


def test_options_become_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Repeated options come as lists, with spaces and quotes as they were given."""
    from jobs.operations import nightly  # noqa: PLC0415

    seen: list[Settings] = []

    def opened(_: object, settings: Settings, **__: object) -> tuple[None, Warehouse, Steps]:
        seen.append(settings)
        return None, Warehouse(settings.warehouse), Steps()

    monkeypatch.setattr(session, "open_session", opened)
    monkeypatch.setattr(nightly, "run_nightly", lambda *_, **__: 0)
    one, awkward, tables = str(tmp_path / "one"), str(tmp_path / "a 'b\" $c *"), str(tmp_path / "it's here")
    for folder in (one, awkward):
        (Path(folder) / "t-0").mkdir(parents=True)
    arguments = ["--warehouse", tables, "--segments", one, "--segments", awkward, "--topic", "t"]
    assert cli.main(["nightly", *arguments]) == 0
    assert seen[0].warehouse == tables
    assert seen[0].segments == (one, awkward)
    assert seen[0].topics == ("t",)


def test_what_was_done_is_one_object_for_another_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], warehouse: Warehouse
) -> None:
    """With --format json stdout has one line and nothing else; what people read stays on stderr."""
    from jobs.bronze.capture import CaptureSummary  # noqa: PLC0415
    from jobs.bronze.work import TopicCount  # noqa: PLC0415
    from jobs.operations import nightly  # noqa: PLC0415

    counts = {"__consumer_offsets": TopicCount(2, 3, 4, 5)}
    summary = CaptureSummary(counts, 0, 1, 1, 0.1, notes=("no names",))
    monkeypatch.setattr(session, "open_session", lambda *_, **__: (None, warehouse, Steps()))
    monkeypatch.setattr(nightly, "capture", lambda *_, **__: summary)
    assert cli.main(["capture", "--format", "json"]) == exit_codes.INCOMPLETE
    reported = capsys.readouterr()
    facts = json.loads(reported.out)
    assert reported.out.count("\n") == 1
    assert facts["job"] == "capture" and facts["exit_code"] == 3 and facts["run_id"]
    assert facts["captured"] == {
        "topics": {
            "__consumer_offsets": {"log_partition_count": 2, "batch_count": 3, "record_count": 4, "size_bytes": 5}
        },
        "quarantined_count": 0,
        "hole_count": 1,
        "notes": ["no names"],
        "faults": [],
        "missing_log_partitions": {},
    }
    assert "captured" in reported.err and "no names" in reported.err
    assert cli.main(["capture"]) == exit_codes.INCOMPLETE
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "question",
    [
        *("owner --topic t --partition 0", "groups", "describe", "history --group g", "where --group g", "changes"),
        *("restore --group g --at 2026-01-01T00:00:00Z", "report --output r.html", "sql -e 'select 1'", "maintain"),
        *(f"audit --list {listing}" for listing in ("archived", "owners")),
        "whatif --group g --set session.timeout.ms=60000",
    ],
)
def test_a_warehouse_that_is_not_there_is_no_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], question: str
) -> None:
    """Nobody owned it, as far as no table tells: that would be believed. Nothing is made there either."""
    nowhere = tmp_path / "nowhere"
    assert cli.main([*shlex.split(question), "--warehouse", str(nowhere)]) == exit_codes.WRONG_ARGUMENTS
    reported = capsys.readouterr()
    assert (reported.out, reported.err.count("\n")) == ("", 1)
    first = f"no tables in {nowhere}: run ./spark-submit.sh nightly --segments DIR --warehouse {nowhere} first"
    assert first in reported.err and not nowhere.exists()


def test_relative_times_go_by_the_zone_that_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """How they were read is on stderr, with the zone; an unknown zone and a word that is no time end with 2."""
    where = ("--topic", "t", "--partition", "0", "--warehouse", str(tmp_path))
    cli.main(["owner", *where, "--at", "-2h"])
    assert re.search(r"^-2h is \d{4}-\d\d-\d\dT.*Z \(.*, this machine's zone\)$", capsys.readouterr().err, re.MULTILINE)
    cli.main(["owner", *where, "--at", "yesterday 03:12", "--timezone", "Asia/Tokyo"])
    said = capsys.readouterr().err
    assert re.search(r"^yesterday 03:12 is .*T18:12:00.000Z \(Asia/Tokyo\)$", said, re.MULTILINE)
    assert cli.main(["owner", *where, "--at", "now", "--timezone", "Mars"]) == exit_codes.WRONG_ARGUMENTS
    assert cli.main(["owner", *where, "--at", "someday"]) == exit_codes.WRONG_ARGUMENTS


@pytest.mark.parametrize(("parse_only", "said"), [(None, "interrupted\n"), ("1", "")])
def test_ctrl_c_while_the_command_line_is_loaded(tmp_path: Path, parse_only: str | None, said: str) -> None:
    """One line and no traceback; none where bootstrap.py waits for the process, and says it itself."""
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    environment = {"PYTHONPATH": str(tmp_path), **({outcome.PARSE_ONLY: parse_only} if parse_only else {})}
    words = [sys.executable, str(PROJECT_ROOT / "jobs" / "__main__.py"), "owner"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout) == (said, "") and done.returncode in (130, -signal.SIGINT)


def test_ctrl_c_while_bootstrap_is_loaded(tmp_path: Path) -> None:
    """One line; another error is shown as Python shows it."""
    for own in ("bootstrap.py", "set_up.py"):
        shutil.copy(PROJECT_ROOT / own, tmp_path)
    for error, said in (("KeyboardInterrupt", "interrupted\n"), ("ValueError('x')", None)):
        (tmp_path / "hashlib.py").write_text(f"raise {error}")
        words = [sys.executable, "-S", str(tmp_path / "bootstrap.py")]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.stderr == said if said else "ValueError: x" in done.stderr
