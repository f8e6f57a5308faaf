"""`audit` starts Spark only where gold has to be made."""

from pathlib import Path
from typing import NoReturn

import pytest

from jobs.cli import app, audit
from jobs.gold.audit import is_audited
from tests.cases.harness import CASES, CLUSTER_ID, Ledger


class SparkStartedError(Exception):
    """In place of a JVM."""


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """Of one night; Spark cannot be started."""

    def started(*_: object, **__: object) -> NoReturn:
        raise SparkStartedError

    monkeypatch.setattr(audit, "start_run", started)
    ledger = Ledger(tmp_path / "warehouse")
    ledger.night(CASES / "C-expiry" / "logs")
    return ledger


def run_audit(ledger: Ledger, *words: str) -> int:
    """By the command line."""
    where = ("--warehouse", str(ledger.root), "--cluster-id", CLUSTER_ID, "--list", "rebalances", "--debug")
    return app.main(["audit", *where, *words])


def test_a_list_of_gold_that_is_up_to_date_needs_no_spark(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    """It is the list that an audit would have made; --rebuild makes gold all the same."""
    run_audit(ledger)
    assert "kip211-1" in capsys.readouterr().out
    with pytest.raises(SparkStartedError):
        run_audit(ledger, "--rebuild")


def test_gold_of_an_older_replay_or_of_other_settings_is_made(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is where no audit ever ended."""
    settings = ledger.settings()
    assert is_audited(ledger.tables, settings.inference)
    with monkeypatch.context() as patch:
        patch.setenv("GROUPLEDGER_INFERENCE_STORM_GENERATION_COUNT", "2")
        with pytest.raises(SparkStartedError):
            run_audit(ledger)
    ledger.forget_audits()
    with pytest.raises(SparkStartedError):
        run_audit(ledger)
