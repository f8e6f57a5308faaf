"""Replay of groups against Kafka's own coordinators: the state after each record of its traces.

What their live side answered is compared in `tests/conformance`.
"""

from pathlib import Path

import pytest

from tests.conformance.families import group_replay, groups

TRACES = Path(__file__).parents[2] / "data" / "traces"


def test_the_state_after_each_record_is_kafkas() -> None:
    """Records of all types and their tombstones, in any order, those that Kafka's loader refuses, and markers."""
    assert group_replay.run(TRACES / "group_replay.jsonl.gz") == (250, 250, [])


@pytest.mark.parametrize("name", ["classic", "consumer", "share", "streams", "offsets", "migration", "mixed"])
def test_the_log_of_a_live_coordinator_gives_its_state(name: str) -> None:
    """What Kafka's coordinator wrote for its clients, replayed into a fresh one."""
    assert groups.run(TRACES / f"group_{name}.jsonl.gz") == (75, 75, [])
