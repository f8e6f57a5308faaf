"""The same tables whatever the order of bronze's rows and files, the seed of Python's hashes and Spark's shuffles."""

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conftest import PROJECT_ROOT, RECORDINGS
from tests.faults.determinism import ORDERS

LOGS: Final = RECORDINGS / "codec-gzip" / "logs"
SEEDS: Final = ("0", "1", "random")
IS_ALL: Final = os.environ.get("FAULT_TESTS") == "all"


def tables(folder: Path, order: str, seed: str, shuffle_partitions: str = "") -> dict[str, Any]:
    """What a process of its own makes of the logs."""
    folder.mkdir()
    command = [sys.executable, "-m", "tests.faults.determinism", str(LOGS), str(folder), order]
    environment = os.environ | {
        "PYTHONHASHSEED": seed,
        "PYTHONPATH": str(PROJECT_ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [*command, *filter(None, [shuffle_partitions])], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_order_and_hash_seed_play_no_part(tmp_path: Path) -> None:
    """Three processes without Spark, each with another order of bronze and another seed."""
    found = [tables(tmp_path / order, order, seed) for order, seed in zip(ORDERS, SEEDS, strict=True)]
    assert found[0] == found[1] == found[2]
    assert sum(rows for rows, _ in found[0].values()) > 500


@pytest.mark.skipif(not IS_ALL, reason="36 processes with Spark take a quarter of an hour: make faults")
def test_all_of_36_are_equal(tmp_path: Path) -> None:
    """1, 2, 7 and 200 shuffle partitions, three hash seeds, three orders."""
    cases = list(product(("1", "2", "7", "200"), SEEDS, ORDERS))
    found = [
        tables(tmp_path / str(number), order, seed, partitions)
        for number, (partitions, seed, order) in enumerate(cases)
    ]
    assert [case for case, made in zip(cases, found, strict=True) if made != found[0]] == []
