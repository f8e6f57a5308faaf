"""What nightly says it found against the faults that a scenario planted: nothing that was not, and all that shows.

A fault shows if a coordinator did something for it: a crash that is over before the session is leaves nothing in the
log, and neither do records that were never produced.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conftest import REPORT_LINE
from tests.lengths import takes_minutes
from tests.made_once import MadeOnce
from tests.scenarios import scenario_of

SCENARIOS: Final = (
    "bad-day",
    *(pytest.param(name, marks=takes_minutes) for name in ("consumer-protocol", "exactly-once", "rolling-deploy")),
)
PLANTED: Final = {"SESSION_EXPIRED": "thrown out", "POLL_EXPIRED": "thrown out", "TOPIC_CHANGED": "grown"}
"""Why coordinators rebalanced, by the truth, and what a night should say."""
EXCUSES: Final = frozenset({"MEMBER_LEFT", "STATIC_MEMBER_BACK"})
Item = tuple[str, str]
"""What was found or planted, and of which group."""


def planted_items(truth: Path) -> Iterator[Item]:
    """What coordinators did for faults, and which groups nobody is in at the end."""
    members: dict[str, Mapping[str, Any]] = {}
    crashed = {fault["client_id"] for fault in _lines(truth / "faults.jsonl") if fault["fault"] == "crash"}
    for generation in _lines(truth / "generations.jsonl"):
        group = generation["group"]
        yield from ((PLANTED[it["reason"]], group) for it in generation["causes"] if it["reason"] in PLANTED)
        # one that is started again joins as another, and the rebalance of that takes the first one out
        gone = members.get(group, {}).keys() - generation["members"].keys()
        excused = {it["client_id"] for it in generation["causes"] if it["reason"] in EXCUSES}
        ids = {members[group][member_id]["client_id"] for member_id in gone} - excused
        yield from (("thrown out", group) for _ in ids & crashed)
        if generation["members"] or members.get(group):
            members[group] = generation["members"]
    yield from (("emptied", group) for group, left in members.items() if not left)
    if any(fault["fault"] == "broker_failover" for fault in _lines(truth / "faults.jsonl")):
        yield "failover", "cluster"


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def found_items(found: Mapping[str, Any]) -> set[Item]:
    """What the facts of a night say."""
    kinds = {
        "thrown out": found["new"].get("expired", ()),
        "grown": found["new"].get("grown", ()),
        "emptied": found["new"].get("emptied", ()),
    }
    failovers = {("failover", "cluster")} if "leaders" in found["new"] else set()
    return {(kind, group) for kind, groups in kinds.items() for group in groups} | failovers


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_is_found_is_what_was_planted(name: str, made_once: MadeOnce, request: pytest.FixtureRequest) -> None:
    """Members thrown out, topics grown, groups left by all, brokers that failed: each is found, and nothing else."""
    scenario = scenario_of(made_once, name)
    night = scenario.night
    found, planted = found_items(night.facts["found"]), set(planted_items(scenario.folder / "truth"))
    right = len(found & planted)
    line = f"{name} findings: precision {right} of {len(found)}, recall {right} of {len(planted)} ({sorted(planted)})"
    request.node.user_properties.append((REPORT_LINE, line))
    assert found == planted
    if name == "bad-day":
        assert "thrown out" in night.facts["found"]["summary"]
