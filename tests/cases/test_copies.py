"""Sources that disagree: whatever the order of copies and nights, the same tables, and coverage that is true."""

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from schemas.tables import TABLES
from tests.cases.harness import CASES, Ledger

COMPACTION = CASES / "X-compaction"
DIVERGED = CASES / "I-diverged"


def nights(ledger: Ledger, *sources: tuple[Path, ...], **values: Any) -> list[int]:
    """One night for each tuple of sources; exit codes."""
    return [ledger.night(*each, number=number, **values).exit_code for number, each in enumerate(sources, start=1)]


def coverage(ledger: Ledger) -> list[tuple[int, int, str]]:
    """What coverage says, by offset."""
    rows = [(row["from_offset"], row["to_offset"], row["kind"]) for row in ledger.rows("bronze.coverage")]
    return sorted(rows)


def bronze(ledger: Ledger) -> list[tuple[int, int, int, int]]:
    """Batches of bronze by offset: first and last offset, leader epoch, records."""
    names = ("base_offset", "last_offset", "leader_epoch", "record_count")
    return sorted(tuple(row[name] for name in names) for row in ledger.rows("bronze.record_batches"))


def commits(ledger: Ledger) -> list[tuple[Any, ...]]:
    """Commits of silver."""
    names = ("log_offset", "group_id", "topic", "partition", "committed_offset")
    return sorted(tuple(row[name] for name in names) for row in ledger.rows("silver.offset_commits"))


ORDERS = [*permutations(("cleaned", "full")), ("full", "cleaned", "full")]


@pytest.mark.parametrize("is_one_run", [True, False])
@pytest.mark.parametrize("order", ORDERS, ids="+".join)
def test_a_batch_with_more_records_replaces_a_cleaned_one(
    ledger: Ledger, order: tuple[str, ...], is_one_run: bool
) -> None:
    """Every record that any replica has left is in bronze and silver, and coverage says so, in any order."""
    folders = tuple(COMPACTION / name for name in order)
    codes = nights(ledger, folders[:2]) if is_one_run else nights(ledger, *((folder,) for folder in folders))
    assert codes[-1] == 0
    assert bronze(ledger) == [(0, 4, 0, 5), (5, 9, 0, 5), (10, 10, 0, 1)]
    assert len(commits(ledger)) == 11
    assert coverage(ledger) == [(0, 10, "CAPTURED")]


@pytest.mark.parametrize("is_one_run", [True, False])
@pytest.mark.parametrize("order", [("broker1", "broker2"), ("broker2", "broker1"), ("broker1", "broker2", "broker1")])
def test_the_tail_that_a_newer_leader_never_had_is_cut_away(
    ledger: Ledger, order: tuple[str, ...], is_one_run: bool
) -> None:
    """The higher leader epoch counts, in any order; where the copies part ways is said, and is no gap."""
    folders = tuple(DIVERGED / name for name in order)
    codes = nights(ledger, folders[:2]) if is_one_run else nights(ledger, *((folder,) for folder in folders))
    assert codes[-1] == 0
    epochs = [(first, epoch) for first, _, epoch, _ in bronze(ledger)]
    assert epochs == [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1)]
    assert coverage(ledger) == [(0, 7, "CAPTURED")]
    assert not [row for row in ledger.rows("gold.commit_anomalies") if row["kind"] == "REWIND"]
    (found,) = ledger.rows("bronze.quarantine")
    assert (found["code"], found["offset"]) == ("COPIES_PART", 3)
    assert found["resolved_at"] is not None
    text = found["message"]
    assert "offset 3" in text
    assert "leader epoch 0" in text
    assert "leader epoch 1" in text
    assert "broker1" in text
    assert "broker2" in text


def test_silver_and_gold_are_the_same_in_every_order(tmp_path: Path) -> None:
    """Batches that other ones replace leave nothing behind in silver and gold."""
    for case, names in ((COMPACTION, ("cleaned", "full")), (DIVERGED, ("broker1", "broker2"))):
        tables = []
        for number, order in enumerate(permutations(names)):
            ledger = Ledger(tmp_path / f"{case.name}-{number}")
            nights(ledger, *((case / name,) for name in order))
            tables.append(contents(ledger))
        assert tables[0] == tables[1]


UNLIKE = frozenset({"run_id", "source", "seen_at", "audited_at"})
"""Columns of silver and gold which tell of the run or the file."""


def contents(ledger: Ledger) -> dict[str, list[str]]:
    """All rows of silver and gold, but for columns that tell of the run."""
    found = {}
    for name in TABLES:
        if name.startswith(("silver.", "gold.")):
            rows = ledger.rows(name)
            found[name] = sorted(str([(k, v) for k, v in row.items() if k not in UNLIKE]) for row in rows)
    return found
