"""Logs of simulated scenarios, as folders of segments, with what each coordinator knew."""

from pathlib import Path

from jobs.laboratory.simulate import write_log
from simulator.simulation.scenario import Scenario
from simulator.simulation.simulation import Simulation
from simulator.simulation.truth import MemorySink


def simulate_into(folder: Path, scenario: Scenario) -> MemorySink:
    """Run a scenario and write its logs; its truth."""
    sink = MemorySink()
    simulation = Simulation(scenario, sink)
    simulation.run()
    write_logs(folder, simulation)
    return sink


def write_logs(folder: Path, simulation: Simulation) -> None:
    """All logs of a simulation that has run."""
    for log, topic_id in simulation.logs():
        write_log(folder, log, topic_id, simulation.scenario.cluster.segment_bytes)
