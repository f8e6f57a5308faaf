"""A log that is judged in memory has the rows that nights over it make."""

from pathlib import Path
from random import Random

import pytest

from tests.cases.harness import Ledger
from tests.cases.judged import Judged
from tests.cases.test_clock_skew import skewed_logs
from tests.cases.test_times import written
from tests.coordinator_core.inference.group_weeks import weeks_log
from tests.lengths import how_many

TABLES = (
    "silver.group_generations",
    "silver.group_members",
    "silver.group_events",
    "gold.partition_owners",
    "gold.rebalances",
    "gold.commit_anomalies",
    "gold.log_anomalies",
)


def rows_of(judged: Ledger | Judged, name: str) -> list[str]:
    """Rows without what an audit adds."""
    left_out = ("cluster_id", "is_settled")
    return sorted(repr({k: v for k, v in row.items() if k not in left_out}) for row in judged.rows(name))


@pytest.mark.parametrize("seed", range(how_many(2)))
def test_it_has_the_rows_of_nights(ledger: Ledger, tmp_path: Path, seed: int) -> None:
    """Of a random log with clocks that differ, or with transactions; leaders change, the cleaner took something, and
    something was never captured: between the two nights, or before the first one."""
    random = Random(f"judged/{seed}")
    batches = weeks_log(random, ("a", "b"), 60) if seed % 2 else skewed_logs(seed)[1].batches
    # no checksum covers the leader epoch
    epochs = (number // 50 for number in range(len(batches)))
    batches = [it[:12] + epoch.to_bytes(4, "big") + it[16:] for it, epoch in zip(batches, epochs, strict=True)]
    cut = random.randrange(len(batches) // 3, 2 * len(batches) // 3)
    judged = Judged()
    for number, part in enumerate((batches[seed % 2 * 3 : cut], batches[cut + 2 :]), 1):
        left = [batch for batch in part[1:-1] if random.random() < 0.9]
        some = [part[0], *left, part[-1]]
        ledger.night(written(tmp_path / str(number), some), number=number)
        judged.night(some, from_offset=int.from_bytes(some[0][:8], "big"))
    for name in TABLES:
        assert rows_of(judged, name) == rows_of(ledger, name), name
    assert judged.rows("gold.rebalances") and judged.rows("gold.commit_anomalies")
