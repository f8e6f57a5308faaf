"""restore of groups in logs of Kafka 0.9, whose tombstone ends the group and not its offsets."""

import csv
from pathlib import Path
from typing import Any

import pytest

from jobs.queries.answers.restore import run_restore
from tests.answers import printed
from tests.cases.harness import Ledger
from tests.cases.small_logs import NOON_MS
from tests.cases.test_offsets_outlive_groups import MINUTE_MS, log_of_09

Rows = list[tuple[str, str, str, str]]


def restored(ledger: Ledger, at_ms: int, folder: Path) -> tuple[Rows, list[list[str]]]:
    """Partition, current and restored offset and what changes; and the rows of the file for Kafka's tool."""
    of: dict[str, Any] = {"group_ids": ["g"], "at_ms": at_ms}
    path = folder / f"offsets-{at_ms}.csv"
    text, _ = printed(run_restore, ledger.tables, **of)
    rows = [
        (row["PARTITION"], row["CURRENT-OFFSET"], row["RESTORED-OFFSET"], row["CHANGE"])
        for row in csv.DictReader(text.splitlines())
    ]
    printed(run_restore, ledger.tables, output=str(path), **of)
    return rows, list(csv.reader(path.read_text().splitlines()))


@pytest.mark.parametrize("magic", [0, 2])
def test_the_offsets_behind_the_tombstone_are_restored(ledger: Ledger, tmp_path: Path, magic: int) -> None:
    """Both partitions are as they were committed, after the tombstone as before it."""
    ledger.night(log_of_09(magic).write(tmp_path / "logs"))
    rows, written = restored(ledger, NOON_MS + 5 * MINUTE_MS, tmp_path)
    assert rows == [("0", "5", "5", "same"), ("1", "6", "6", "same")]
    assert written == [["in", "0", "5"], ["in", "1", "6"]]


def test_offsets_that_expired_since_are_brought_back(ledger: Ledger, tmp_path: Path) -> None:
    """As of a time before, there are no current ones; as of the first commit alone there is one."""
    ledger.night(log_of_09(1, expire=True).write(tmp_path / "logs"))
    rows, written = restored(ledger, NOON_MS + 5 * MINUTE_MS, tmp_path)
    assert [(partition, offset) for partition, _, offset, _ in rows] == [("0", "5"), ("1", "6")]
    assert {current for _, current, _, _ in rows} == {"-"}
    assert written == [["in", "0", "5"], ["in", "1", "6"]]
    assert restored(ledger, NOON_MS + MINUTE_MS // 2, tmp_path)[1] == [["in", "0", "5"]]
