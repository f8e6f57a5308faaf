"""Reports of whole nights: what the page says of logs that hold less than all."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from jobs.report.run import make_report
from jobs.report.sql_text import Scope
from tests.cases.harness import CASES, CLUSTER_ID, Ledger
from tests.recorded import RECORDINGS

MADE_AT: Final = datetime(2026, 1, 2, tzinfo=UTC)


def test_a_cluster_without_share_groups_lacks_nothing_of_their_log(tmp_path: Path) -> None:
    """The page says that the log was not read, and not that anything is missing."""
    ledger = Ledger(tmp_path / "warehouse")
    ledger.night(CASES / "D2a" / "logs")
    text, _ = make_report(ledger.warehouse, Scope(CLUSTER_ID), made_at=MADE_AT)
    assert "of __share_group_state was captured" not in text
    assert "__share_group_state was not read: no share group is known here" in text


def test_a_share_group_whose_log_is_not_there_is_reported(tmp_path: Path) -> None:
    """The groups' log names it."""
    logs = tmp_path / "logs"
    logs.mkdir()
    for folder in (RECORDINGS / "full-a" / "logs").iterdir():
        if "__share_group_state" not in folder.name:
            (logs / folder.name).symlink_to(folder)
    ledger = Ledger(tmp_path / "warehouse")
    ledger.night(logs)
    text, _ = make_report(ledger.warehouse, Scope(CLUSTER_ID), made_at=MADE_AT)
    assert "NOT COMPLETE: nothing of __share_group_state was captured" in text
