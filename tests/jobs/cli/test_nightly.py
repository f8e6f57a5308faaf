"""nightly: how much it prints, and whom it notifies."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from unittest.mock import Mock

import pyarrow.parquet as pq
import pytest

from jobs import exit_codes
from jobs.cli import app as cli
from jobs.cli import session
from jobs.console.progress import Steps
from jobs.delta.locks import NIGHTLY, only_one
from jobs.delta.warehouse import Warehouse
from jobs.errors import WarehouseError
from jobs.operations import notify
from jobs.settings import Settings
from jobs.spark.executors import Executor
from tests.cases.harness import CASES
from tests.jobs.dump_builders import kafka_rows
from tests.jobs.in_process import in_process
from tests.recorded import RECORDINGS

pytestmark = pytest.mark.nights

LOGS = CASES / "classic-stories" / "logs"
LOCKS: Final = ExitStack()
"""Locks of another night."""


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
    given = {"--segments": str(logs), "--warehouse": "w", "--cluster-id": "c"}
    own = [word for option, value in given.items() if option not in options for word in (option, value)]
    return cli.main(["nightly", *own, *options])


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
    assert night("--quiet", logs=tmp_path / "nowhere") == exit_codes.WRONG_ARGUMENTS
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1
    assert night("--quiet", "--format", "json") == exit_codes.DONE
    out, err = capsys.readouterr()
    assert json.loads(out)["exit_code"] == exit_codes.DONE and err == ""


def test_a_night_that_read_nothing_ever_is_not_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A lake without rows that match; one with other topics than the coordinators' is read."""
    pq.write_table(kafka_rows(RECORDINGS / "full-a" / "logs"), tmp_path / "rows.parquet")
    lake = ("--lake", str(tmp_path / "rows.parquet"), "--where")
    for condition, code, said in (
        ("topic = 'Prod'", exit_codes.INCOMPLETE, "NOT COMPLETE: nothing was read (0 records"),
        ("topic = '__transaction_state'", exit_codes.DONE, ": COMPLETE "),
        ("topic = '__transaction_state'", exit_codes.DONE, ": COMPLETE "),
    ):
        assert cli.main(["nightly", "--warehouse", "w", "--cluster-id", "c", *lake, condition]) == code
        assert said in capsys.readouterr().out


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


def no_folder(warehouse: Path) -> list[str]:
    """An unmounted disk."""
    return ["--segments", str(warehouse.parent / "unmounted")]


def locked(warehouse: Path) -> list[str]:
    """Another night has the lock as long as this process lives."""
    LOCKS.enter_context(only_one(Warehouse(str(warehouse)), NIGHTLY, "c", since=datetime.now(UTC)))
    return []


def unwritable(warehouse: Path) -> list[str]:
    """A file is where the warehouse should be."""
    return ["--warehouse", str(warehouse.parent / "file" / "w")]


def no_client(_: Path) -> list[str]:
    """The properties of the Kafka client are gone."""
    return ["--bootstrap-server", "127.0.0.1:1", "--command-config", "gone.properties"]


def unread(warehouse: Path) -> list[str]:
    """What was found cannot be read for the notification."""
    return ["--notify-always"]


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        (no_folder, exit_codes.WRONG_ARGUMENTS, "unmounted"),
        (locked, exit_codes.FAILED, "another nightly"),
        (unwritable, exit_codes.FAILED, "file"),
        (no_client, exit_codes.WRONG_ARGUMENTS, "gone.properties"),
        (unread, exit_codes.FAILED, "no groups"),
    ],
)
def test_whatever_a_night_fails_of_is_notified(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fault: Callable[[Path], list[str]],
    code: int,
    said: str,
) -> None:
    """Also before its run begins: the file has the error that stderr has, and the exit code."""
    (tmp_path / "file").touch()
    if fault is unread:
        monkeypatch.setattr(notify, "group_verdicts", Mock(side_effect=WarehouseError("no groups")))
    with LOCKS:
        assert night("--notify", "night.json", *fault(tmp_path / "w")) == code
    facts = json.loads(Path("night.json").read_text())
    assert facts["exit_code"] == code and facts["groups"] == [] and said in facts["error"]
    assert facts["error"] in capsys.readouterr().err.replace("\n", " ")
    shown = Path("night.md").read_text()
    assert "Groupledger, cluster `c`: failed" in shown and said in shown
