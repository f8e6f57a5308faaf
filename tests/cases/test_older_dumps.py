"""Nights over what kafka-dump-log of an older release printed: it is refused by name, and a newer tool's output puts it
right."""

import shutil
from pathlib import Path

from tests.cases.harness import Ledger
from tests.conftest import PROJECT_ROOT

PRINTED = PROJECT_ROOT / "tests" / "data" / "older_dumps"


def dumped(folder: Path, name: str) -> str:
    """A folder with the output of one tool."""
    folder.mkdir()
    shutil.copy(PRINTED / name, folder)
    return str(folder)


def test_a_newer_tool_puts_right_what_an_older_one_left_out(ledger: Ledger, tmp_path: Path) -> None:
    """The first night ends with 3 and one row in quarantine, with file, line and remedy; after the second none is open,
    and the groups are there."""
    night = ledger.night(dumps=(dumped(tmp_path / "older", "2.8.2-magic-2.txt"),))
    (row,) = ledger.rows("bronze.quarantine")
    assert (night.exit_code, row["stage"], row["code"]) == (3, "FILE", "RECORD_NOT_PRINTED")
    assert row["source"].endswith("2.8.2-magic-2.txt")
    assert "run kafka-dump-log of Kafka 4.0 or later on the same segment files" in row["message"]
    assert row["message"].partition(": ")[2] in night.text
    assert ledger.rows("silver.offset_commits") == []
    again = ledger.night(dumps=(dumped(tmp_path / "newer", "3.8.1-magic-2.txt"),), number=2)
    assert [row for row in ledger.rows("bronze.quarantine") if row["resolved_at"] is None] == []
    assert again.exit_code == 0
    assert {row["group_id"] for row in ledger.rows("silver.offset_commits")} >= {"g", "h", "tx", "z"}
