"""What is exported are the bytes that were captured, whatever times they have."""

from pathlib import Path

from jobs.bronze.export_segments import export_segments
from tests.cases.harness import CLUSTER_ID, Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.jobs.in_process import in_process

YEAR_1_MS = -62_135_596_800_000
LAST_OF_9999_MS = 253_402_300_799_999
TIMES_MS = (YEAR_1_MS, LAST_OF_9999_MS, LAST_OF_9999_MS + 1, 2**63 - 1, -(2**63))


def test_records_with_impossible_times_are_exported_byte_for_byte(ledger: Ledger, tmp_path: Path) -> None:
    """Of the years 1 and 9999, and of times that no calendar has, each between records of today."""
    log = SmallLog()
    for number, at_ms in enumerate(TIMES_MS):
        log.commit("g", 0, 2 * number, NOON_MS + number)
        log.commit("g", 0, 2 * number + 1, at_ms, commit_ms=NOON_MS)
    assert ledger.night(log.write(tmp_path / "logs")).exit_code == 0
    assert len(ledger.rows("silver.offset_commits")) == 2 * len(TIMES_MS)
    export_segments(in_process(), ledger.warehouse, cluster_id=CLUSTER_ID, output=str(tmp_path / "exported"))
    (segment,) = (tmp_path / "exported").rglob("*.log")
    assert segment.read_bytes() == b"".join(log.batches)
