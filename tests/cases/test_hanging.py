"""Transactions that committed offsets and that nobody ended."""

from pathlib import Path

import pytest

from jobs.errors import NoSuchGroupError
from tests.cases.harness import Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.cases.test_answers import restored

MINUTE = 60_000


def open_log(minutes: int) -> SmallLog:
    """Producer 7 commits twice and never ends it; producer 8 does; the log goes on for some minutes."""
    log = SmallLog()
    log.commit("g", 0, 5, NOON_MS)
    log.commit("g", 0, 10, NOON_MS + MINUTE, producer_id=7)
    log.commit("g", 1, 3, NOON_MS + 2 * MINUTE, producer_id=7)
    log.commit("h", 0, 1, NOON_MS + 2 * MINUTE, producer_id=8)
    log.marker(NOON_MS + 3 * MINUTE, 8)
    log.commit("g", 2, 1, NOON_MS + (1 + minutes) * MINUTE)
    return log


def test_a_transaction_without_a_marker_hangs(ledger: Ledger, tmp_path: Path) -> None:
    """Since when, whose, and what it holds back; the night speaks of it."""
    night = ledger.night(open_log(16).write(tmp_path / "logs"))
    (row,) = ledger.rows("gold.hanging_transactions")
    assert (row["group_id"], row["log_partition"], row["producer_id"]) == ("g", 0, 7)
    assert row["since"].timestamp() * 1000 == NOON_MS + MINUTE
    assert (row["first_log_offset"], row["last_log_offset"], row["commit_count"]) == (1, 2, 2)
    assert (row["open_ms"], row["uncleanable_count"]) == (16 * MINUTE, 5)
    assert (row["method"], row["confidence"]) == ("NO_MARKER_FOR_LONG", "LIKELY")
    assert night.facts["found"]["new"]["hanging"] == {"g": 1}
    assert "1 group with a hanging transaction: g" in night.text


def test_a_transaction_that_may_still_end_does_not_hang(ledger: Ledger, tmp_path: Path) -> None:
    """15 minutes are what a transaction may take."""
    ledger.night(open_log(15).write(tmp_path / "logs"))
    assert ledger.rows("gold.hanging_transactions") == []


def test_a_marker_of_a_later_night_ends_it(ledger: Ledger, tmp_path: Path) -> None:
    """What is said of the end of the log changes with the log."""
    log = open_log(16)
    ledger.night(log.write(tmp_path / "logs"))
    log.marker(NOON_MS + 20 * MINUTE, 7, is_commit=False)
    night = ledger.night(log.write(tmp_path / "logs"), number=2)
    assert ledger.rows("gold.hanging_transactions") == []
    assert (night.facts["found"]["lasting"], night.facts["found"]["over"]) == ({}, {"hanging": {"g": 1}})
    assert "OVER: 1 group with a hanging transaction: g" in night.lines


def test_a_hole_may_hold_the_marker(ledger: Ledger, tmp_path: Path) -> None:
    """Where a batch behind the commits is damaged, that it hangs is a guess."""
    log = open_log(16)
    log.commit("g", 2, 2, NOON_MS + 18 * MINUTE)
    log.commit("g", 2, 3, NOON_MS + 19 * MINUTE)
    log.batches[-2] = log.batches[-2][:-1] + bytes([log.batches[-2][-1] ^ 0xFF])
    ledger.night(log.write(tmp_path / "logs"))
    assert [row["confidence"] for row in ledger.rows("gold.hanging_transactions")] == ["GUESS"]


def test_a_transaction_of_two_groups_is_one(ledger: Ledger, tmp_path: Path) -> None:
    """Groups are counted; and an answer of no offsets says what is pending."""
    log = SmallLog()
    for group_id in ("g", "h"):
        log.commit(group_id, 0, 5, NOON_MS, producer_id=7)
    log.commit("x", 0, 1, NOON_MS + 60 * MINUTE)
    night = ledger.night(log.write(tmp_path / "logs"))
    assert "2 groups with a hanging transaction: g, h" in night.text
    with pytest.raises(NoSuchGroupError, match=r"g had no committed offsets then; 1 commit of a transaction has no"):
        restored(ledger, "g", "2100-01-01T00:00:00Z")


def test_a_transaction_without_times_is_known_by_its_place(ledger: Ledger, tmp_path: Path) -> None:
    """Since when is unknown, which is a guess; at the end of the log nothing is said. A time in the value is as good as
    one of the record."""
    log = SmallLog()
    log.commit("g", 0, 5, NOON_MS)
    log.commit("g", 0, 10, None, producer_id=7)
    log.commit("v", 0, 10, None, producer_id=8, commit_ms=NOON_MS + MINUTE)
    log.commit("x", 0, 1, NOON_MS + 60 * MINUTE)
    log.commit("last", 0, 1, None, producer_id=9)
    night = ledger.night(log.write(tmp_path / "logs"))
    rows = {row["group_id"]: row for row in ledger.rows("gold.hanging_transactions")}
    assert set(rows) == {"g", "v"}
    (unknown, known) = rows["g"], rows["v"]
    assert (unknown["since"], unknown["open_ms"], unknown["first_log_offset"]) == (None, None, 1)
    assert (unknown["method"], unknown["confidence"]) == ("NO_MARKER_BEHIND", "GUESS")
    assert "records have no time" in unknown["meaning"] and unknown["uncleanable_count"] == 4
    assert (known["since"].timestamp() * 1000, known["open_ms"]) == (NOON_MS + MINUTE, 59 * MINUTE)
    assert (known["method"], known["confidence"]) == ("NO_MARKER_FOR_LONG", "LIKELY")
    assert night.facts["found"]["new"]["hanging"] == {"g": 1, "v": 1}


def test_a_log_without_any_time_has_hanging_transactions(ledger: Ledger, tmp_path: Path) -> None:
    """The end of the log has no time either."""
    log = SmallLog()
    log.commit("g", 0, 10, None, producer_id=7, commit_ms=NOON_MS)
    log.commit("g", 1, 1, None)
    ledger.night(log.write(tmp_path / "logs"))
    (row,) = ledger.rows("gold.hanging_transactions")
    assert (row["log_end_at"], row["open_ms"], row["confidence"]) == (None, None, "GUESS")
    assert row["since"].timestamp() * 1000 == NOON_MS
