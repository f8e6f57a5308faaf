"""The scenarios that a broker is given: each is one that `simulate` takes, in every run already."""

import pytest

from simulator.simulation.scenario_file import parse_scenario
from tests.live.conftest import SHORT, VARIATIONS
from tests.live.simulated import Case


@pytest.mark.parametrize("case", [Case(SHORT), *(Case(SHORT, values) for values in VARIATIONS)], ids=lambda it: it.name)
def test_a_shorter_story_has_the_faults_that_strike_before_its_end(case: Case) -> None:
    """No other is taken, and none that strikes is left out."""
    whole, scenario = (parse_scenario(text, SHORT.name) for text in (SHORT.read_text("utf-8"), case.text()))
    assert scenario.faults == tuple(fault for fault in whole.faults if fault.at_ms < scenario.duration_ms)
    assert scenario.duration_ms == whole.duration_ms or len(scenario.faults) < len(whole.faults)
