"""Racks of a scenario in the tables of a night, and what a night says where they moved partitions."""

from pathlib import Path
from typing import Final

from simulator.simulation.scenario_file import parse_scenario
from tests.cases.harness import Ledger
from tests.cases.simulated import simulate_into
from tests.conftest import PROJECT_ROOT

SCENARIO: Final = PROJECT_ROOT / "scenarios" / "racks.toml"
RACKS: Final = {
    "range-near-0": "south",
    "range-near-1": "north",
    "sticky-near-0": "north",
    "sticky-near-1": "south",
    "anywhere-0": None,
    "anywhere-1": None,
    "consumer-racks-0": "north",
    "consumer-racks-1": "south",
    "consumer-racks-2": "north",
    "share-racks-0": "south",
    "share-racks-1": "south",
}
"""Client id -> its client.rack."""


def test_members_have_their_racks_in_silver(ledger: Ledger, tmp_path: Path) -> None:
    """In groups of each protocol; and no rebalance of a group that only racks moved has a cause for CERTAIN."""
    scenario = parse_scenario(SCENARIO.read_text(encoding="utf-8"), SCENARIO.name)
    simulate_into(tmp_path / "logs", scenario)
    night = ledger.night(tmp_path / "logs")
    assert night.exit_code == 0, night.text
    found = {(row["client_id"], row["rack_id"]) for row in ledger.rows("silver.member_attributes")}
    assert found == set(RACKS.items())
    moved = [
        row
        for row in ledger.rows("gold.rebalances")
        if row["group_id"].endswith("-near") and row["to_generation"] in {2, 3}
    ]
    assert len(moved) == 4
    assert not [row for row in moved if "CERTAIN" in row["cause_confidences"]], moved
