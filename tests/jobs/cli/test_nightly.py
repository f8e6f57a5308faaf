"""nightly: how much it prints, and whom it notifies."""

import json
from pathlib import Path
from typing import Any

import pytest

from jobs import exit_codes
from jobs.cli import app as cli
from jobs.cli import session
from jobs.console.progress import Steps
from jobs.delta.warehouse import Warehouse
from jobs.settings import Settings
from jobs.spark.executors import Executor
from tests.cases.harness import CASES
from tests.jobs.in_process import in_process

pytestmark = pytest.mark.nights

LOGS = CASES / "classic-stories" / "logs"


def open_session(_: str, settings: Settings, **__: Any) -> tuple[Executor, Warehouse, Steps]:
    """Without Spark."""
    executor = in_process()
    return executor, Warehouse(settings.warehouse), Steps(executor)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "open_session", open_session)


def night(*options: str, logs: Path = LOGS) -> int:
    """The exit code of a night into ./w."""
    return cli.main(["nightly", "--segments", str(logs), "--warehouse", "w", "--cluster-id", "c", *options])


@pytest.mark.parametrize(
    ("options", "has_answer", "has_steps", "has_tables"),
    [
        ([], True, True, False),
        (["--verbose"], True, True, True),
        (["--quiet"], False, False, False),
    ],
)
def test_as_much_is_printed_as_was_asked_for(
    capsys: pytest.CaptureFixture[str], options: list[str], has_answer: bool, has_steps: bool, has_tables: bool
) -> None:
    """The answer on stdout; steps and tables of counts on stderr."""
    assert night(*options) == exit_codes.DONE
    out, err = capsys.readouterr()
    assert (bool(out), out.startswith("Night of ")) == (has_answer, has_answer)
    assert ("capture: " in err, "silver.group_generations" in err) == (has_steps, has_tables)
    assert bool(err) == has_steps


def test_a_quiet_night_prints_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In one line on stderr, as any other; and facts for another program are no chatter."""
    assert night("--quiet", logs=tmp_path / "nowhere") == exit_codes.FAILED
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1
    assert night("--quiet", "--format", "json") == exit_codes.DONE
    out, err = capsys.readouterr()
    assert json.loads(out)["exit_code"] == exit_codes.DONE and err == ""


def test_a_night_with_nothing_new_notifies_only_whom_it_always_does(capsys: pytest.CaptureFixture[str]) -> None:
    """The first night has news; of the second, --notify is silent, and --notify-always says so."""
    target = Path("alerts/night.json")
    assert night("--notify", str(target)) == exit_codes.DONE
    assert json.loads(target.read_text())["found"]["new"]
    target.unlink()
    assert night("--notify", str(target)) == exit_codes.DONE
    assert not target.exists()
    assert night("--notify", str(target), "--notify-always") == exit_codes.DONE
    assert json.loads(target.read_text())["found"]["new"] == {}
    assert "Groupledger, cluster `c`: done" in target.with_suffix(".md").read_text()
    assert "Nothing new tonight" in capsys.readouterr().out
