"""What a question says about the log that it is answered from."""

import io
from pathlib import Path

import pytest

from jobs import exit_codes
from jobs.cli import app as cli
from tests.cases.harness import Ledger
from tests.cases.small_logs import NOON_MS, SmallLog


def test_what_is_in_no_source_is_said_after_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five log partitions one was read: who asks for an owner, a group or all groups has that first."""
    log = SmallLog()
    log.generation("orders", 1, {"orders-1": (0, 1)}, NOON_MS)
    Ledger(tmp_path / "warehouse").night(log.write(tmp_path / "logs"), partitions=("__consumer_offsets=5",))
    monkeypatch.chdir(tmp_path)
    for question, answer in (
        ("owner --topic in --partition 0", "orders "),
        ("describe", "orders "),
        ("groups", "orders "),
        ("history --group orders", "2026-"),
    ):
        shown = io.StringIO()
        monkeypatch.setattr("sys.stdout", shown)
        monkeypatch.setattr("sys.stderr", shown)
        assert cli.main(question.split()) == exit_codes.DONE
        text = shown.getvalue()
        assert 0 <= text.find(answer) < text.find("in no source"), text
