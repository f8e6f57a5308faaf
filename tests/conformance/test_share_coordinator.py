"""The judge of the share coordinator passes Kafka's trace, and can say no."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.families import share_coordinator
from tests.conformance.families.cases import read_cases

TRACE = Path(__file__).parents[1] / "data" / "traces" / "share_coordinator.jsonl.gz"


def case_with(wanted: Callable[[Any], bool]) -> tuple[Any, int]:
    """A case of Kafka's trace which has such a step, and the step's number."""
    for case in read_cases(TRACE):
        for number, step in enumerate(case["steps"]):
            if wanted(step):
                return case, number
    raise AssertionError("the trace has no such step")


SPOILERS: dict[str, tuple[Callable[[Any], bool], Callable[[Any], None]]] = {
    "answer": (
        lambda step: step["op"] == "readState" and bool(step["records"]),
        lambda step: step["response"]["results"][0]["partitions"][0].update(stateEpoch=99),
    ),
    "no-record": (
        lambda step: step["op"] == "writeState" and bool(step["records"]),
        lambda step: step["records"].clear(),
    ),
    "bytes": (
        lambda step: step["op"] == "writeState" and bool(step["records"]),
        lambda step: step["records"][0].update(value=step["records"][0]["value"] + "00"),
    ),
    "state": (lambda step: len(step["state"]) > 1, lambda step: step["state"].popitem()),
    "redundant": (lambda step: bool(step["lastRedundantOffset"]), lambda step: step.update(lastRedundantOffset=1)),
    "job": (
        lambda step: step["op"] == "cleanupDeletedTopics" and bool(step["records"]),
        lambda step: step["records"].pop(),
    ),
}


@pytest.mark.parametrize("name", SPOILERS)
def test_the_judge_sees_what_is_spoilt(name: str) -> None:
    """Whatever is changed in what Kafka gave, the case fails at that step."""
    wanted, spoil = SPOILERS[name]
    case, number = case_with(wanted)
    assert share_coordinator.judge(case) is None
    spoilt = copy.deepcopy(case)
    spoil(spoilt["steps"][number])
    failure = share_coordinator.judge(spoilt)
    assert failure is not None
    assert failure.startswith(f"step {number} ")
