"""Causes of rebalances, from simulated logs through nightly to gold, against what truly happened in the simulation."""

import json
from collections import Counter
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from jobs.console.progress import Steps
from jobs.delta.warehouse import Warehouse
from jobs.operations.nightly import run_nightly
from jobs.operations.run_context import RunContext
from jobs.operations.simulate import simulate
from jobs.settings import load_settings
from schemas.tables.gold import REBALANCES
from tests.conftest import PROJECT_ROOT

CAUSES_OF: Final = {
    "MEMBER_JOINED": {"MEMBER_JOINED", "FIRST"},
    "STATIC_MEMBER_BACK": {"MEMBER_JOINED", "FIRST", "STATIC_MEMBER_REPLACED"},
    "MEMBER_LEFT": {"MEMBER_LEFT"},
    "SESSION_EXPIRED": {"MEMBER_EXPIRED"},
    "POLL_EXPIRED": {"MEMBER_LEFT"},
    "TOPIC_CHANGED": {"PARTITIONS_CHANGED"},
    "PARTITIONS_CHANGED": {"PARTITIONS_CHANGED"},
}
"""What truly happened -> what gold may call it. A client that no longer polls leaves in its own name."""
Generation = tuple[str, int]
"""Group id and number."""
FOLLOW_UP: Final = "REVOKED_PARTITIONS"
LIKELY_MIN: Final = 0.9


def gold_and_truth(
    session: SparkSession, scenario: str, root: Path
) -> tuple[list[dict[str, Any]], dict[Generation, set[str]], set[Generation]]:
    """gold.rebalances of a scenario, the true reasons by generation, and the generations that deployments made."""
    simulate(str(PROJECT_ROOT / "scenarios" / f"{scenario}.toml"), str(root / "out"))
    settings = load_settings(
        {"warehouse": str(root / "warehouse"), "cluster_id": "test", "segments": (str(root / "out" / "logs"),)},
        environment={},
    )
    warehouse = Warehouse(settings.warehouse)
    steps = Steps(session, Console(file=StringIO(), width=200))
    run_nightly(
        RunContext(session, warehouse, settings, run_id="r1", started_at=datetime(2026, 1, 1, tzinfo=UTC), steps=steps)
    )
    with (root / "out" / "truth" / "faults.jsonl").open(encoding="utf-8") as lines:
        kinds = [json.loads(line)["fault"] for line in lines]
    reasons: dict[Generation, set[str]] = {}
    deployed: set[Generation] = set()
    with (root / "out" / "truth" / "generations.jsonl").open(encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            known = reasons.setdefault((line["group"], line["generation"]), set())
            known.update(cause["reason"] for cause in line["causes"])
            # static members that come back make no generation
            faults = {c["fault"] for c in line["causes"] if c["reason"] != "STATIC_MEMBER_BACK"} - {None}
            if any(kinds[fault] == "rolling_deploy" for fault in faults):
                deployed.add((line["group"], line["generation"]))
    rows: list[dict[str, Any]] = warehouse.read(REBALANCES).to_pylist()
    return rows, reasons, deployed


@pytest.mark.parametrize("scenario", ["bad-day", "consumer-protocol", "rolling-deploy"])
def test_causes_are_the_true_ones(no_spark: SparkSession, tmp_path: Path, scenario: str) -> None:
    """CERTAIN causes are true without exception, LIKELY ones in nine of ten, and every generation has its row; those
    of rolling deployments are marked, and no others are."""
    rows, reasons, deployed = gold_and_truth(no_spark, scenario, tmp_path)
    right: Counter[str] = Counter()
    wrong: dict[str, list[str]] = {"CERTAIN": [], "LIKELY": [], "GUESS": []}
    for row in rows:
        true = reasons[row["group_id"], row["to_generation"]]
        for cause, method, confidence in zip(
            row["causes"], row["cause_methods"], row["cause_confidences"], strict=True
        ):
            if cause in {"GROUP_EMPTIED", "UNKNOWN"} or not true:
                continue
            allowed = set().union(*(CAUSES_OF.get(reason, set()) for reason in true))
            is_right = method == "COOPERATIVE_FOLLOW_UP" if true == {FOLLOW_UP} else cause in allowed
            right[confidence] += is_right
            if not is_right:
                wrong[confidence].append(f"{row['group_id']} {row['to_generation']}: {cause} by {method}, not {true}")
    assert not wrong["CERTAIN"]
    assert right["LIKELY"] >= LIKELY_MIN * (right["LIKELY"] + len(wrong["LIKELY"])), wrong["LIKELY"]
    assert right["CERTAIN"] > 0
    with_members = {key for key, true in reasons.items() if true}
    assert with_members <= {(row["group_id"], row["to_generation"]) for row in rows}
    marked = {
        (row["group_id"], row["to_generation"])
        for row in rows
        if row["rollout_id"] is not None and row["method"] != "COOPERATIVE_FOLLOW_UP"
    }
    # a deployment whose first or last replacement is alone in the log may not be found; none is made up
    assert marked <= deployed
    assert bool(marked) == bool(deployed)
