"""The command behind what was found shows the rows that were counted."""

import json
from pathlib import Path

import pytest

from jobs.cli import app as cli
from tests.cases.harness import Ledger
from tests.cases.small_logs import NOON_MS, SmallLog

MINUTE = 60_000


def test_groups_whose_members_came_back_are_not_among_those_that_were_left(
    ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One group is empty at the end, another was for a minute: one is counted, and the same one is shown."""
    log = SmallLog()
    for group_id in ("back", "gone"):
        log.generation(group_id, 1, {"m": (0,)}, NOON_MS)
        log.generation(group_id, 2, {}, NOON_MS + MINUTE)
    log.generation("back", 3, {"m": (0,)}, NOON_MS + 2 * MINUTE)
    night = ledger.night(log.write(tmp_path / "logs"))
    assert night.facts["found"]["new"]["emptied"] == {"gone": 1}
    words = ["audit", "--list", "emptied", "--warehouse", str(ledger.root), "--cluster-id", ledger.cluster_id]
    assert cli.main([*words, "--format", "json"]) == 3  # how many log partitions there are is not known
    _, row = map(json.loads, capsys.readouterr().out.splitlines())
    assert (row["group_id"], row["since"]) == ("gone", "2026-05-28T20:27:40.000Z")
