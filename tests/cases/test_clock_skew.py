"""Leaders' clocks differ: times of a log may go back, places in it never do."""

from pathlib import Path

from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables import TABLES
from tests.cases.harness import CASES, Ledger
from tests.cases.small_logs import NOON_MS, SmallLog

HOUR_MS = 3_600_000


def assert_in_order(ledger: Ledger) -> None:
    """No interval of any table ends before it begins, in time or in the log; no duration is negative."""
    pairs = (("valid_from", "valid_to"), ("started_at", "completed_at"), ("from_log_offset", "to_log_offset"))
    for name, table in TABLES.items():
        if table.layer not in {"silver", "gold"}:
            continue
        rows = ledger.rows(name)
        for begin, end in pairs:
            if {begin, end} <= set(table.column_names):
                assert all(row[begin] <= row[end] for row in rows if row[begin] is not None and row[end] is not None), (
                    name
                )
        for column in ("duration_ms", "gap_before_ms", "unowned_partition_ms", "not_stable_ms"):
            if column in table.column_names:
                assert all(row[column] is None or row[column] >= 0 for row in rows), (name, column)


def test_no_interval_ends_before_it_begins(ledger: Ledger) -> None:
    """The coordinator moved to a broker an hour behind, and back; where silver says when, it says so in order, and the
    places in the log are what they were."""
    assert ledger.night(CASES / "S-skew" / "logs").exit_code in {0, 3}
    assert_in_order(ledger)
    rows = sorted(ledger.rows("silver.group_generations"), key=lambda row: row["generation"])
    assert [(row["from_log_offset"], row["to_log_offset"]) for row in rows] == [
        (0, 2),
        (2, 4),
        (4, 6),
        (6, 9),
        (9, None),
    ]
    assert rows[1]["valid_to"] == rows[1]["valid_from"]


def test_no_interval_of_a_share_group_ends_before_it_begins(ledger: Ledger, tmp_path: Path) -> None:
    """So it is with the states and batches of share partitions, over a night's end too."""
    log = SmallLog(0, SHARE_TOPIC)
    for number, at_ms in enumerate((NOON_MS, NOON_MS - HOUR_MS, NOON_MS + 1_000, NOON_MS - HOUR_MS)):
        log.snapshot("g", at_ms, ((0, 9, 4 if number % 2 else 0, 1 + number // 2),), snapshot_epoch=number)
        ledger.night(log.write(tmp_path / "logs"), number=number + 1)
    assert len(ledger.rows("silver.share_partition_states")) == 4
    assert_in_order(ledger)
