"""Streams applications of a scenario, through a night, against what truly happened."""

import shutil
from pathlib import Path
from typing import Final

import pytest

from jobs.queries.answers.owner import find_owners
from simulator.simulation.scenario_file import parse_scenario
from simulator.simulation.truth import MemorySink
from tests.cases.harness import Ledger
from tests.cases.simulated import simulate_into
from tests.conftest import PROJECT_ROOT

SCENARIO: Final = PROJECT_ROOT / "scenarios" / "streams.toml"
CAUSES_OF: Final = {
    "MEMBER_JOINED": {"MEMBER_JOINED", "FIRST"},
    "MEMBER_LEFT": {"MEMBER_LEFT"},
    "SESSION_EXPIRED": {"MEMBER_EXPIRED"},
    "TOPIC_CHANGED": {"PARTITIONS_CHANGED"},
}
"""What truly happened -> what gold may call it."""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[MemorySink, Path]:
    """The truth of the scenario, and its logs."""
    scenario = parse_scenario(SCENARIO.read_text(encoding="utf-8"), SCENARIO.name)
    logs = tmp_path_factory.mktemp("streams")
    return simulate_into(logs, scenario), logs


def test_counts_may_be_learned_later(ledger: Ledger, simulated: tuple[MemorySink, Path], tmp_path: Path) -> None:
    """A task of a subtopology that reads two topics is a partition of those that have so many. Where the metadata log
    comes later, all owners are inferred again, and are those of one night."""
    _, logs = simulated
    whole = Ledger(tmp_path / "whole")
    whole.night(logs)
    copied = tmp_path / "logs"
    shutil.copytree(logs, copied, ignore=shutil.ignore_patterns("__cluster_metadata-0"))
    ledger.night(copied)
    wide = "refunds", 3
    assert wide in _partitions(ledger), "nothing tells how many partitions it has"
    ledger.night(logs, number=2)
    one_night, two_nights = (sorted(map(str, it.rows("gold.partition_owners"))) for it in (whole, ledger))
    assert two_nights == one_night
    assert wide not in _partitions(ledger)
    assert ("refunds", 1) in _partitions(ledger)
    for partition, owner_count in ((3, 0), (1, 1)):
        found = find_owners(ledger.tables, topic="refunds", partition=partition, at_ms=None)
        assert len({it.row.group_id for it in found.owners if it.row.group_id == "router"}) == owner_count


def _partitions(ledger: Ledger) -> set[tuple[str, int]]:
    return {(row["topic"], row["partition"]) for row in ledger.rows("gold.partition_owners")}


def test_rebalances_and_owners_are_the_true_ones(ledger: Ledger, simulated: tuple[MemorySink, Path]) -> None:
    """Each epoch has its row, whose causes are all true, and the owners in the end are the clients that believe so."""
    sink, logs = simulated
    night = ledger.night(logs)
    assert night.exit_code == 0, night.text
    true = {
        (line["group"], line["generation"]): set().union(*(CAUSES_OF[cause["reason"]] for cause in line["causes"]))
        for line in sink.lines["generations"]
    }
    rows = {(row["group_id"], row["to_generation"]): row for row in ledger.rows("gold.rebalances")}
    assert rows.keys() == true.keys()
    for place, row in rows.items():
        assert row["causes"], row
        assert set(row["causes"]) <= true[place], (row, true[place])
    owners = {
        (row["group_id"], row["topic"], row["partition"], row["client_id"])
        for row in ledger.rows("gold.partition_owners")
        if row["valid_to"] is None
    }
    assert owners == {
        (line["group"], line["topic"], line["partition"], line["client_id"])
        for line in sink.lines["owners"]
        if line["to_ms"] is None or line["ended_by"] == "STILL"
    }
    assert ledger.rows("gold.log_anomalies") == []
