"""Offsets that are being copied to a dead letter topic (delivery state 3, Kafka 4.4) have a count of their own."""

from pathlib import Path

import pytest

from schemas.share_group_state import TOPIC
from tests.cases.harness import Ledger
from tests.cases.small_logs import NOON_MS, SmallLog

AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED = 0, 2, 3, 4
STEPS = (
    ((0, 9, AVAILABLE, 1),),
    ((0, 1, ACKNOWLEDGED, 1), (2, 6, ARCHIVING, 1), (7, 9, AVAILABLE, 1)),
    ((2, 4, ARCHIVED, 1), (5, 6, ARCHIVING, 1), (7, 9, ARCHIVING, 2)),
    ((5, 9, ARCHIVED, 2),),
)
COUNTS = [(10, 0, 0, 0), (3, 2, 5, 0), (0, 0, 5, 3), (0, 0, 0, 5)]
"""Available, acknowledged, archiving and archived, after each step."""


def log() -> SmallLog:
    """A share partition, one snapshot a step; the start offset follows what is done."""
    shares = SmallLog(topic=TOPIC)
    for number, batches in enumerate(STEPS):
        shares.snapshot(
            "g", NOON_MS + number * 1000, batches, snapshot_epoch=number, start_offset=batches[0][0] if number else 0
        )
    return shares


@pytest.mark.parametrize("cut", [None, 2])
def test_each_state_has_a_count_of_its_own(ledger: Ledger, tmp_path: Path, cut: int | None) -> None:
    """All four sum up to what is in flight, wherever the nights are cut."""
    shares = log()
    whole = shares.batches
    if cut is not None:
        shares.batches = whole[:cut]
        ledger.night(shares.write(tmp_path / "first"))
        shares.batches = whole
    ledger.night(shares.write(tmp_path / "logs"), number=2)
    rows = sorted(ledger.rows("silver.share_partition_states"), key=lambda row: row["log_offset"])
    names = ("available_count", "acknowledged_count", "archiving_count", "archived_count")
    assert [tuple(row[name] for name in names) for row in rows] == COUNTS
