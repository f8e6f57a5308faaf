"""The command line: wrong arguments cost no Spark, errors are one line, exit codes mean what they say."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs import cli
from jobs.errors import JobError, SettingsError
from jobs.progress import Steps
from jobs.sinks import Warehouse
from schemas.tables.state import RUN_METRICS
from tests.conftest import PROJECT_ROOT

JOBS = (
    "nightly",
    "capture",
    "replay",
    "audit",
    "describe",
    "owner",
    "restore",
    "verify",
    "export-segments",
    "simulate",
    "whatif",
    "sql",
)


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python -m jobs` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "jobs", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=PROJECT_ROOT,
        env={**os.environ, "COLUMNS": "100", **environment},
    )


def test_help_names_every_job_without_spark() -> None:
    """The list of jobs comes without importing Spark, pyarrow or numba."""
    code = "import sys; from jobs.cli import main; main(['--help']); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PROJECT_ROOT)
    shown, _, modules = done.stdout.rpartition("\n[")
    for job in JOBS:
        assert f"  {job} " in shown
    for heavy in ("pyspark", "pyarrow", "numba", "numpy", "deltalake"):
        assert f"'{heavy}'" not in modules


@pytest.mark.parametrize("job", JOBS)
def test_every_job_has_help(job: str) -> None:
    """--help exits 0 and says what the job does."""
    done = run(job, "--help")
    assert done.returncode == 0
    assert "--debug" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nightli",),
        ("capture", "--warehose", "x"),
        ("capture", "extra"),
        ("export-segments",),
        ("sql", "--format", "xml"),
    ],
)
def test_wrong_arguments_exit_2(arguments: tuple[str, ...]) -> None:
    """Before anything is started."""
    assert run(*arguments).returncode == 2


def test_wrong_settings_exit_2() -> None:
    """One line that names the setting."""
    done = run("capture", GROUPLEDGER_WRITES_LANE="fast")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "error: writes.lane must be one of auto, arrow, spark"
    assert "Traceback" not in done.stderr


def test_parsing_alone_is_told_apart() -> None:
    """spark-submit.sh asks first whether there is a job to run: 64 yes, 0 help was shown, 2 wrong."""
    only = {cli.PARSE_ONLY: "1"}
    assert run("capture", "--segments", "/nowhere", **only).returncode == cli.PARSED
    assert run("sql", "-e", "--help", **only).returncode == cli.PARSED
    assert run("capture", "--help", **only).returncode == 0
    assert run("capture", "--nope", **only).returncode == 2


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

    monkeypatch.setattr(cli, "open_session", broken)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert cli.main(["capture", "--segments", "/x"]) == code
    assert capsys.readouterr().err == (f"{line}\n" if line else "")


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """With --debug the error comes as it is."""

    def broken(*_: Any, **__: Any) -> Any:
        raise Broken("whole")

    monkeypatch.setattr(cli, "open_session", broken)
    with pytest.raises(Broken, match="whole"):
        cli.main(["capture", "--debug"])


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 1), (3, 3)])
def test_the_jobs_code_is_the_exit_code(monkeypatch: pytest.MonkeyPatch, code: int, expected: int) -> None:
    """3 says: done, but something was quarantined or is missing."""
    from jobs import nightly  # noqa: PLC0415

    monkeypatch.setattr(cli, "open_session", lambda *_, **__: (None, None, Steps()))
    monkeypatch.setattr(nightly, "run_nightly", lambda *_, **__: code)
    assert cli.main(["nightly"]) == expected


@pytest.mark.parametrize(("quarantined_count", "gap_count", "code"), [(0, 0, 0), (1, 0, 3), (0, 1, 3)])
def test_capture_says_when_something_is_missing(
    monkeypatch: pytest.MonkeyPatch, warehouse: Warehouse, quarantined_count: int, gap_count: int, code: int
) -> None:
    """3 where a batch was quarantined or the log has a gap, 0 where all is there; the run's metrics say so too."""
    from jobs import nightly  # noqa: PLC0415

    summary = nightly.CaptureSummary({}, quarantined_count, gap_count, 1, 0.1)
    monkeypatch.setattr(cli, "open_session", lambda *_, **__: (None, warehouse, Steps()))
    monkeypatch.setattr(nightly, "capture", lambda *_, **__: summary)
    assert cli.main(["capture"]) == code
    (row,) = warehouse.read(RUN_METRICS).to_pylist()
    assert (row["job"], row["exit_code"], row["gap_count"]) == ("capture", code, gap_count)


def test_options_become_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Repeated options come as lists, with spaces and quotes as they were given."""
    from jobs import nightly  # noqa: PLC0415

    seen: list[Any] = []
    monkeypatch.setattr(cli, "open_session", lambda _, settings, **__: (seen.append(settings), None, Steps()))
    monkeypatch.setattr(nightly, "run_nightly", lambda *_, **__: 0)
    awkward = str(tmp_path / "a 'b\" $c *")
    arguments = ["--warehouse", awkward, "--segments", "/one", "--segments", awkward, "--topic", "t"]
    assert cli.main(["nightly", *arguments]) == 0
    assert seen[0].warehouse == awkward
    assert seen[0].segments == ("/one", awkward)
    assert seen[0].topics == ("t",)
