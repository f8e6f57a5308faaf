"""Sources that disagree: whatever the order of copies and nights, the same tables, and coverage that is true."""

from pathlib import Path
from typing import Any

import pytest

from jobs.bronze.export_segments import export_segments
from jobs.cli_enums import Listing
from jobs.queries.answers.findings import findings
from schemas.tables import TABLES
from tests.cases.harness import CASES, Ledger, Night
from tests.jobs.in_process import in_process

COMPACTION = CASES / "X-compaction"
DIVERGED = CASES / "I-diverged"


def nights(ledger: Ledger, *sources: tuple[Path, ...], **values: Any) -> list[bool]:
    """One night for each tuple of sources; whether each found all it read in order."""
    return [is_clean(ledger.night(*each, number=number, **values)) for number, each in enumerate(sources, start=1)]


def is_clean(night: Night) -> bool:
    """Is nothing quarantined, and no hole? (The other log partitions of the topic are not there: that is no matter.)"""
    captured, replayed = night.facts["captured"], night.facts["replayed"]
    counts = [captured["quarantined_count"], captured["hole_count"], replayed["quarantined_count"]]
    return counts == [0, 0, 0]


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


def runs_of(one: str, other: str) -> list[tuple[tuple[str, ...], bool]]:
    """In one run, in a night each, and with a copy that comes again."""
    return [((one, other), True), ((other, one), False), ((one, other, one), False)]


@pytest.mark.parametrize(("order", "is_one_run"), runs_of("full", "cleaned"))
def test_a_batch_with_more_records_replaces_a_cleaned_one(
    ledger: Ledger, order: tuple[str, ...], is_one_run: bool
) -> None:
    """Every record that any replica has left is in bronze, and coverage says so, in any order: none is taken for
    another log."""
    folders = tuple(COMPACTION / name for name in order)
    for number, sources in enumerate((folders,) if is_one_run else ((folder,) for folder in folders), 1):
        summary = ledger.capture(*sources, number=number)
    assert summary.is_clean
    assert bronze(ledger) == [(0, 4, 0, 5), (5, 9, 0, 5), (10, 10, 0, 1)]
    assert coverage(ledger) == [(0, 10, "CAPTURED")]


@pytest.mark.parametrize(("order", "is_one_run"), runs_of("broker1", "broker2"))
def test_the_tail_that_a_newer_leader_never_had_is_cut_away(
    ledger: Ledger, order: tuple[str, ...], is_one_run: bool
) -> None:
    """The higher leader epoch counts, in any order; where the copies part ways is said, and is no gap. None is taken
    for another log."""
    folders = tuple(DIVERGED / name for name in order)
    are_clean = nights(ledger, folders) if is_one_run else nights(ledger, *((folder,) for folder in folders))
    assert are_clean[-1]
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


def test_a_night_says_that_copies_part_ways(ledger: Ledger) -> None:
    """What an unclean election lost is not in the ledger's silence: the night that sees it says so, and its list has
    it ever after."""
    night = ledger.night(DIVERGED / "broker1", DIVERGED / "broker2")
    assert night.facts["found"]["new"]["copies"] == {"__consumer_offsets-12": 1}
    assert "1 place where copies part ways: __consumer_offsets-12" in night.text
    night = ledger.night(DIVERGED / "broker2", number=2)
    assert "copies" not in night.facts["found"]["new"]
    assert findings(ledger.tables).new(Listing.COPIES) == {"__consumer_offsets-12": 1}


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


@pytest.mark.parametrize("first", ["0-deep.txt", "1-no-decoder.txt"])
def test_what_a_dump_does_not_tell_is_missing_until_it_comes(ledger: Ledger, first: str) -> None:
    """A dump without decoder gives no records: its offsets are MISSING, and the right dump is taken afterwards."""
    folder = CASES / "N-advice"
    assert not is_clean(ledger.night(dumps=(str(folder / first),)))
    assert bronze(ledger) == []
    assert coverage(ledger) == [(0, 2, "MISSING")]
    assert is_clean(ledger.night(dumps=(str(folder / "2-right.txt"),), number=2))
    assert coverage(ledger) == [(0, 2, "CAPTURED")]
    assert [row["log_offset"] for row in ledger.rows("silver.offset_commits")] == [1, 2]
    assert {row["resolved_by"] for row in ledger.rows("bronze.quarantine")} == {
        "bronze has these offsets from a good copy"
    }


def test_segments_bring_what_a_dump_did_not_tell(ledger: Ledger, tmp_path: Path) -> None:
    """The log's own files are taken after a dump that tells too little, one that tells a part of a batch too."""
    folder = CASES / "N-advice"
    right = Ledger(tmp_path / "right")
    right.night(dumps=(str(folder / "2-right.txt"),))
    exported = tmp_path / "exported"
    export_segments(in_process(), right.warehouse, cluster_id=right.cluster_id, output=str(exported))
    lines = (folder / "2-right.txt").read_text().splitlines()
    headers_alone = tmp_path / "__consumer_offsets-12.txt"
    headers_alone.write_text("\n".join(line for line in lines if not line.startswith("| offset: 1 ")) + "\n")
    assert not is_clean(ledger.night(dumps=(str(headers_alone),)))
    assert coverage(ledger) == [(0, 0, "CAPTURED"), (1, 1, "MISSING"), (2, 2, "CAPTURED")]
    assert is_clean(ledger.night(exported, number=2))
    assert coverage(ledger) == [(0, 2, "CAPTURED")]
    assert contents(ledger) == contents(right)
