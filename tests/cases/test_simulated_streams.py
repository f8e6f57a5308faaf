"""Streams applications of a scenario, through a night, against what truly happened."""

from pathlib import Path
from typing import Final

from coordinator_core.simulate.scenario_file import parse_scenario
from coordinator_core.simulate.simulation import Simulation
from coordinator_core.simulate.truth import MemorySink
from jobs.operations.simulate import write_log
from tests.cases.harness import Ledger
from tests.conftest import PROJECT_ROOT

SCENARIO: Final = PROJECT_ROOT / "scenarios" / "streams.toml"
CAUSES_OF: Final = {
    "MEMBER_JOINED": {"MEMBER_JOINED", "FIRST"},
    "MEMBER_LEFT": {"MEMBER_LEFT"},
    "SESSION_EXPIRED": {"MEMBER_EXPIRED"},
    "TOPIC_CHANGED": {"PARTITIONS_CHANGED"},
}
"""What truly happened -> what gold may call it."""


def test_rebalances_and_owners_are_the_true_ones(ledger: Ledger, tmp_path: Path) -> None:
    """Each epoch has its row, whose causes are all true, and the owners in the end are the clients that believe so."""
    scenario = parse_scenario(SCENARIO.read_text(encoding="utf-8"), SCENARIO.name)
    sink = MemorySink()
    simulation = Simulation(scenario, sink)
    simulation.run()
    for log, topic_id in simulation.logs():
        write_log(tmp_path / "logs", log, topic_id, scenario.cluster.segment_bytes)
    night = ledger.night(tmp_path / "logs")
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
    counts = {line["topic"]: line["partition_count"] for line in sink.lines["topics"]}
    owners = {
        (row["group_id"], row["topic"], row["partition"], row["client_id"])
        for row in ledger.rows("gold.partition_owners")
        if row["valid_to"] is None and row["partition"] < counts[row["topic"]]
    }
    assert owners == {
        (line["group"], line["topic"], line["partition"], line["client_id"])
        for line in sink.lines["owners"]
        if line["to_ms"] is None or line["ended_by"] == "STILL"
    }
    assert ledger.rows("gold.log_anomalies") == []
