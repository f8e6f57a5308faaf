"""Dumps of rows that have the needed columns alone, without a time."""

import base64
import json
from pathlib import Path

from jobs.cli_enums import Listing
from jobs.queries.answers.audit_report import run_audit_report
from jobs.queries.answers.describe import run_describe
from jobs.queries.answers.owner import run_owner
from jobs.queries.answers.restore import run_restore
from tests.answers import printed
from tests.cases.harness import Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.jobs.dump_builders import kafka_rows


def dumped(root: Path) -> Path:
    """A group with two generations and commits, as JSON lines of topic, partition, offset, key and value."""
    log = SmallLog()
    log.generation("g", 1, {"a": (0, 1)}, NOON_MS)
    log.commit("g", 0, 5, NOON_MS + 1_000)
    log.generation("g", 2, {"a": (0,), "b": (1,)}, NOON_MS + 2_000)
    log.commit("g", 0, 3, NOON_MS + 3_000)
    path = root / "rows.json"
    with path.open("w", encoding="utf-8") as lines:
        for row in kafka_rows(log.write(root / "logs")).to_pylist():
            of = {name: row[name] for name in ("topic", "partition", "offset", "key", "value")}
            coded = {k: base64.b64encode(v).decode() if isinstance(v, bytes) else v for k, v in of.items()}
            lines.write(json.dumps(coded) + "\n")
    return path


def test_tables_are_whole_and_times_null(ledger: Ledger, tmp_path: Path) -> None:
    """Silver and gold hold what the rows tell, with no time but those that values carry."""
    ledger.night(dumps=(str(dumped(tmp_path)),))
    commits = sorted(ledger.rows("silver.offset_commits"), key=lambda row: int(row["log_offset"]))
    assert [(row["committed_offset"], row["recorded_at"]) for row in commits] == [(5, None), (3, None)]
    rebalances = sorted(ledger.rows("gold.rebalances"), key=lambda row: int(row["to_generation"]))
    assert [(row["cause"], row["completed_at"]) for row in rebalances] == [("FIRST", None), ("MEMBER_JOINED", None)]
    assert [row["kind"] for row in ledger.rows("gold.commit_anomalies")] == ["REWIND"]
    assert not [row for row in ledger.rows("gold.log_anomalies") if row["rule"] == "NOT_JUDGED"]


def test_answers_go_by_log_position(ledger: Ledger, tmp_path: Path) -> None:
    """Who owns what and what is committed now is what the last records say; every list is given."""
    ledger.night(dumps=(str(dumped(tmp_path)),))
    tables = ledger.tables
    for listing in Listing:
        printed(run_audit_report, tables, listing=listing)
    offsets, _ = printed(run_describe, tables, "json", group_ids=["g"])
    assert '"3"' in offsets or ": 3" in offsets
    assert '"b"' in printed(run_owner, tables, "json", topic="in", partition=1)[0]
    assert "3" in printed(run_restore, tables, "json", group_ids=["g"], at_ms=NOON_MS + 10_000)[0]
