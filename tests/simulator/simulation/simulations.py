"""Small scenarios for tests, and what came of them."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from simulator.simulation.scenario import Scenario
from simulator.simulation.scenario_file import parse_scenario
from simulator.simulation.simulation import Simulation, Summary
from simulator.simulation.truth import MemorySink
from tests.conftest import PROJECT_ROOT

SCENARIOS = PROJECT_ROOT / "scenarios"

HEAD = """
name = "test"
start = 2026-01-05T08:00:00Z
duration = "{minutes}m"
seed = 1

[cluster]
brokers = 3
consumer_offsets_partitions = 3

[[topic]]
name = "t"
partitions = 4
rate = 40.0
"""


class Run:
    """A simulation that has run."""

    def __init__(self, scenario: Scenario, **options: Any) -> None:
        """`options`: those of `Simulation`."""
        sink = MemorySink()
        self.simulation = Simulation(scenario, sink, **options)
        self.summary: Summary = self.simulation.run()
        self.truth = sink.lines

    def lines(self, file: str, **facts: Any) -> list[dict[str, Any]]:
        """Lines of the truth with these facts."""
        return [line for line in self.truth.get(file, []) if all(line[key] == value for key, value in facts.items())]

    def log_bytes(self) -> dict[str, str]:
        return log_bytes(self.simulation)

    def causes(self, group: str) -> list[list[str]]:
        """Reasons of the rebalances of a group, generation by generation."""
        return [[cause["reason"] for cause in line["causes"]] for line in self.lines("generations", group=group)]


def log_bytes(simulation: Simulation) -> dict[str, str]:
    """Log partition -> digest of all its batches."""
    return {
        f"{log.topic}-{log.partition}": hashlib.sha256(
            b"".join(batch.data for batch in log.stored_batches())
        ).hexdigest()
        for log, _ in simulation.logs()
    }


def run_text(text: str, *, minutes: int = 5, head: Mapping[str, str] | None = None, **options: Any) -> Run:
    """Run a scenario of which the text has all but the head; `head` replaces lines of that."""
    begin = HEAD.format(minutes=minutes)
    for line, other in (head or {}).items():
        begin = begin.replace(line, other)
    return Run(parse_scenario(begin + text, "test.toml"), **options)


def run_file(name: str, *, minutes: int | None = None, **options: Any) -> Run:
    """Run one of the project's scenarios, or its first minutes."""
    path: Path = SCENARIOS / f"{name}.toml"
    scenario = parse_scenario(path.read_text(encoding="utf-8"), path.name)
    if minutes is not None:
        scenario = replace(scenario, duration_ms=minutes * 60_000)
    return Run(scenario, **options)
