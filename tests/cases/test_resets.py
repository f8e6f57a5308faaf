"""An admin resets all offsets of a classic group while it is empty: no face says that all is well."""

from pathlib import Path

import pytest

from jobs.cli_enums import Listing
from jobs.operations.group_metrics import samples
from jobs.queries.answers.findings import findings
from jobs.queries.answers.group_history import run_history
from jobs.queries.answers.group_verdicts import group_verdicts
from jobs.report.cluster import group_lines
from jobs.report.reader import Reader
from jobs.report.sql_text import Scope
from tests.answers import printed
from tests.cases.harness import Ledger
from tests.cases.small_logs import NOON_MS, SmallLog

pytestmark = pytest.mark.first

SECOND = 1_000


@pytest.mark.parametrize("to_offset", [0, 300])
def test_a_reset_of_a_whole_group_is_said_everywhere(ledger: Ledger, tmp_path: Path, to_offset: int) -> None:
    """By a tool, with partitions and records, back or ahead; what no log has, who did it, is said with it."""
    log = SmallLog()
    log.generation("orders", 1, {"m": (0, 1, 2)}, NOON_MS)
    for partition in range(3):
        log.commit("orders", partition, 100 + partition, NOON_MS + SECOND)
    log.generation("orders", 2, {}, NOON_MS + 2 * SECOND)
    for partition in range(3):
        log.commit("orders", partition, to_offset, NOON_MS + 60 * SECOND)
    ledger.night(log.write(tmp_path / "logs"))
    moved = "303 records back" if to_offset == 0 else "597 records ahead"
    back = 3 if to_offset == 0 else 0
    (verdict,) = group_verdicts(ledger.tables)
    assert (verdict.verdict, verdict.rewind_count) == ("WARN", back)
    assert verdict.why == f"reset by a tool: 3 partitions, {moved}, group was empty (who did it is in no log)"
    found = findings(ledger.tables)
    assert (found.new(Listing.RESETS), found.new(Listing.REWINDS)) == ({"orders": 3}, {})
    assert "3 offsets reset by a tool" in found.summary
    assert sum(row["went_back_count"] for row in ledger.rows("gold.group_summary")) == back
    (line,) = group_lines(Reader(ledger.warehouse, Scope(ledger.cluster_id)), ledger.table("bronze.coverage"))
    assert line.rewinds == back
    gauges = {it.gauge: (it.value, it.labels.get("rule")) for it in samples([verdict], 0, 9)}
    assert gauges["group_rewinds"][0] == back
    assert gauges["group_verdict"][1] == "OFFSETS_RESET"
    text, _ = printed(run_history, ledger.tables, "table", group_id="orders")
    assert text.count("commit EMPTY_GROUP_RESET (CERTAIN)") == 3
    assert text.count(" back") == back
