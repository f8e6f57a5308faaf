"""What whatif says, against a simulation of the same story with the other setting: bands hold what comes."""

import random
from pathlib import Path
from typing import Final

import pytest

from jobs.errors import WhatIfJobError
from jobs.laboratory.whatif import asked, whatif
from simulator.simulation.scenario import Scenario
from tests.cases.harness import Ledger
from tests.cases.simulated import write_logs
from tests.cases.whatif_stories import Asked, Figures, asked_of, judge, random_scenario
from tests.lengths import first_seed, how_many
from tests.simulator.whatif.recorded import Simulated

STORIES: Final = how_many(10)
"""Groups, each with a setting to be changed; `make fuzz` tries 200."""
FIRST_SEED: Final = first_seed()
"""Other worlds: those of make fuzz are 0 to 19."""
GROUPS: Final = 10
"""Of one world: as many stories share a run and a night."""
PROTOCOLS: Final = ("classic", "consumer", "share", "consumer", "classic") * 2
LIKELY_LEAST: Final = 0.95


def night(world: Simulated, ledger: Ledger, folder: Path) -> None:
    """The logs of a world, through a nightly."""
    write_logs(folder / "logs", world.simulation)
    done = ledger.night(folder / "logs")
    assert done.exit_code == 0, done.text


def ask(scenario: Scenario, number: int) -> tuple[str, Asked]:
    """A group and what is asked of it: each setting in its turn."""
    group = scenario.groups[number % GROUPS]
    questions = asked_of(scenario, group)
    names = sorted({one.text.partition("=")[0] for one in questions})
    name = names[number // GROUPS % len(names)]
    of_name = [one for one in questions if one.text.startswith(f"{name}=")]
    return group.name, random.Random(number).choice(of_name)


def test_bands_hold_what_a_simulation_gives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CERTAIN is never wrong, each band holds at least 19 times in 20, and totals are sums, for each setting."""
    figures = Figures()
    refused = 0
    for seed in range(FIRST_SEED, FIRST_SEED + (STORIES + GROUPS - 1) // GROUPS):
        scenario = random_scenario(seed, PROTOCOLS)
        world = Simulated(scenario)
        ledger = Ledger(tmp_path / f"warehouse-{seed}")
        night(world, ledger, tmp_path / f"world-{seed}")
        for index in range(GROUPS):
            group, question = ask(scenario, seed * GROUPS + index)
            try:
                rows = whatif(
                    ledger.tables,
                    group_id=group,
                    question=asked([question.text], recorded_of(scenario), ledger.settings()),
                )
            except WhatIfJobError:
                refused += 1
                continue
            judge(figures, world, group, question, rows)
    with capsys.disabled():
        print(f"\nwhatif, {STORIES} stories, {refused} refused: {figures}")
    wrong = "\n".join(figures.misses)
    for what, count in figures.all.items():
        if what.startswith("GUESS"):
            continue
        least = count if what.startswith(("CERTAIN", "sums")) else min(LIKELY_LEAST * count, count - 1)
        assert figures.owned[what] >= least, f"{what}:\n{wrong}"
    assert sum(count for what, count in figures.all.items() if what.startswith("LIKELY")) > STORIES, figures
    assert refused <= STORIES // 10


def recorded_of(scenario: Scenario) -> list[str]:
    """What no log tells of the brokers."""
    settings = scenario.cluster.settings
    return [f"group.initial.rebalance.delay.ms={settings.group_initial_rebalance_delay_ms}"]
