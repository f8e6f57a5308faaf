"""The same tables whatever the order of bronze's rows and files, the seed of Python's hashes and Spark's shuffles."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.conftest import PROJECT_ROOT
from tests.faults.determinism import ORDERS
from tests.lengths import takes_minutes
from tests.recorded import RECORDINGS

LOGS: Final = RECORDINGS / "codec-gzip" / "logs"
SEEDS: Final = ("0", "1", "random")
PARTITIONS: Final = ("1", "2", "7", "200")


def tables(folder: Path, orders: Sequence[str], seed: str, partitions: Sequence[str] = ()) -> list[dict[str, Any]]:
    """What a process of its own makes of the logs, by number of partitions and order."""
    folder.mkdir()
    command = [sys.executable, "-m", "tests.faults.determinism", str(LOGS), str(folder), ",".join(orders)]
    environment = os.environ | {
        "PYTHONHASHSEED": seed,  # Spark gives it to the workers, too
        "PYTHONPATH": str(PROJECT_ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [*command, ",".join(partitions)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_order_and_hash_seed_play_no_part(tmp_path: Path) -> None:
    """Three processes without Spark, each with another order of bronze and another seed."""
    found = [tables(tmp_path / order, [order], seed)[0] for order, seed in zip(ORDERS, SEEDS, strict=True)]
    assert found[0] == found[1] == found[2]
    assert sum(rows for rows, _ in found[0].values()) > 500


@takes_minutes
def test_all_of_36_are_equal(tmp_path: Path) -> None:
    """1, 2, 7 and 200 partitions, three hash seeds, three orders."""
    cases = [(partitions, order) for partitions in PARTITIONS for order in ORDERS]
    found = {
        (seed, *case): made
        for seed in SEEDS
        for case, made in zip(cases, tables(tmp_path / seed, ORDERS, seed, PARTITIONS), strict=True)
    }
    expected = tables(tmp_path / "alone", ORDERS[:1], SEEDS[0])[0]
    assert [case for case, made in found.items() if made != expected] == []
    assert len(found) == 36
