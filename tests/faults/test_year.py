"""A month of nights with all that befalls a ledger in a year; `python -m tests.benchmarks.year` lives through 365."""

from pathlib import Path

import pytest

from schemas.tables.gold import GOLD_TABLES
from tests.benchmarks.year import differences, lived

NIGHTS, GROUPS = 32, 4


@pytest.mark.nights
def test_nights_make_what_one_run_over_all_segments_makes(tmp_path: Path) -> None:
    """Segments go from the brokers and rows from the warehouse, nights do not run, ids are erased, brokers upgraded,
    partitions added, and a copy of the warehouse is put back: nothing is lost, and nothing is twice."""
    nights, ledger, whole = lived(tmp_path, "month", GROUPS, NIGHTS)
    assert differences(ledger, whole) == {}
    assert len(nights) == NIGHTS - 7
    found = whole.tables()
    kept = {table.full_name for table in GOLD_TABLES if found[table.full_name]}
    assert kept >= {"gold.rebalances", "gold.partition_owners", "gold.commit_anomalies", "gold.redeliveries"}, kept
    changes = found["silver.configs"]
    assert sum("metadata.version" in row for row in changes) == 2
