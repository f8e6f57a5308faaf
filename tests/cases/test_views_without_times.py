"""SQL views and functions over records without a time, which end intervals at no known time."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from jobs.cli import app as cli
from jobs.queries.answers.group_verdicts import group_verdicts
from schemas import share_group_state
from tests.cases.harness import Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.coordinator_core.group_records import T1

LATER: Final = "timestamp'2100-01-01 00:00:00Z'"


def test_what_a_record_without_a_time_ended_is_not_current(
    ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Views and `groups` have the newest row of a group, and of a share partition with its batches; functions of a
    time mark what may have ended before."""
    log, states = SmallLog(0), SmallLog(0, share_group_state.TOPIC)
    log.generation("g", 1, {"a": (0,)}, NOON_MS)
    log.generation("g", 2, {"b": (0,), "c": (1,)}, None)
    log.generation("h", 1, {"d": (2,)}, NOON_MS + 1)
    states.snapshot("s", NOON_MS, ((0, 9, 0, 1),), start_offset=0)
    states.snapshot("s", None, ((10, 19, 0, 1),), start_offset=10, snapshot_epoch=1)
    states.write(log.write(tmp_path / "logs"))
    ledger.night(tmp_path / "logs")

    def asked(query: str) -> list[dict[str, Any]]:
        place = ["--warehouse", str(ledger.root), "--cluster-id", ledger.cluster_id]
        cli.main(["sql", "-e", query, "--engine", "duckdb", "--format", "json", *place])
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    newest = asked("select group_id, generation from current_groups order by group_id")
    assert [tuple(row.values()) for row in newest] == [("g", 2), ("h", 1)]
    (share,) = asked("select start_offset, batches from current_share_partitions")
    assert share["start_offset"] == 10 and [it["first_offset"] for it in share["batches"]] == [10]
    assert [(it.group_id, it.member_count) for it in group_verdicts(ledger.tables) if it.group_id == "g"] == [("g", 2)]
    for function, is_doubtful in (
        (f"group_at({LATER}) where group_id = 'g'", True),
        (f"group_at({LATER}) where group_id = 'h'", False),
        (f"owner_at('in', 0, {LATER})", True),
        (f"owner_at('in', 2, {LATER})", False),
        (f"share_partition_at('s', '{T1}', 0, {LATER})", True),
    ):
        rows = asked(f"select is_moment_repeated from {function}")
        assert [row["is_moment_repeated"] for row in rows] == [is_doubtful], function
