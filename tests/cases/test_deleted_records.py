"""Records that DeleteRecords took from share groups: they were not given up, the start of the data log moved."""

from pathlib import Path
from typing import Final

import pytest

from simulator.simulation.scenario_file import parse_scenario
from tests.cases.harness import Ledger
from tests.cases.simulated import simulate_into

SCENARIO: Final = """
name = "deleted"
start = 2026-01-05T08:00:00Z
duration = "6m"
seed = 2
[cluster]
brokers = 1
kafka_version = "{version}"
consumer_offsets_partitions = 1
share_group_state_partitions = 1
[[topic]]
name = "t"
partitions = 1
rate = 8.0
[[group]]
name = "stopped"
protocol = "share"
topics = ["t"]
[[group]]
name = "behind"
protocol = "share"
topics = ["t"]
acknowledge = "explicit"
poll_interval = "3s"
release_every = 7
[[fault]]
kind = "stop"
at = "1m"
group = "stopped"
duration = "3m"
[[fault]]
kind = "stop"
at = "1m"
group = "behind"
duration = "3m"
[[fault]]
kind = "delete_records"
at = "3m"
topic = "t"
partition = 0
offset = 1200
[[fault]]
kind = "delete_records"
at = "5m"
topic = "t"
partition = 0
offset = 2300
"""


@pytest.mark.parametrize(("version", "has_count"), [("4.1", False), ("4.2", True)])
def test_deleted_records_moved_the_start_offset(tmp_path: Path, version: str, has_count: bool) -> None:
    """With a delivery complete count, which Kafka writes since 4.2, and without."""
    sink = simulate_into(tmp_path / "logs", parse_scenario(SCENARIO.format(version=version), "deleted.toml"))
    ledger = Ledger(tmp_path / "warehouse")
    assert ledger.night(tmp_path / "logs").exit_code == 0
    counts = {row["delivery_complete_count"] for row in ledger.rows("silver.share_partition_states")}
    assert (counts != {None}) == has_count
    given_up = {
        (line["group"], offset): line["why"]
        for line in sink.lines["archived"]
        for offset in range(line["first_offset"], line["last_offset"] + 1)
    }
    assert set(given_up.values()) == {"RETENTION"}
    assert {group for group, _ in given_up} == {"stopped", "behind"}
    found = {
        (row["group_id"], offset): row
        for row in ledger.rows("gold.archived_records")
        for offset in range(row["first_offset"], row["last_offset"] + 1)
    }
    assert found.keys() == given_up.keys()
    assert {row["cause"] for row in found.values()} == {"START_OFFSET_MOVED"}
    assert {row["likely_cause"] for row in found.values()} <= {"AGED_OUT", None}
