"""The conversation of a group by its recorded log: what is solid was said, what is dashed is inferred."""

import json
from typing import Any

import pytest

from jobs.console.conversation import Change, Message
from jobs.errors import ArgumentError
from jobs.laboratory.simulate import simulate
from jobs.queries.answers.group_diagram import COORDINATOR, MEMBERS_MAX, conversation_of
from tests.cases.harness import Ledger
from tests.jobs.conftest import LedgerOf

LATER_MS = 10
"""A record is appended a little before the answer that it lets the coordinator give."""


@pytest.fixture(scope="module", params=["slow-member", "rolling-deploy", "consumer-protocol"])
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Ledger, list[Any]]:
    """The night of a simulated log, and what was truly said."""
    folder = tmp_path_factory.mktemp("shown")
    simulate(f"scenarios/{request.param}.toml", str(folder / "cluster"), exchange=["*"])
    ledger = Ledger(folder / "warehouse")
    ledger.night(folder / "cluster" / "logs")
    lines = (folder / "cluster" / "truth" / "requests.jsonl").read_text(encoding="utf-8").splitlines()
    return ledger, list(map(json.loads, lines))


@pytest.mark.nights
def test_what_is_solid_was_said(shown: tuple[Ledger, list[Any]]) -> None:
    """Each request of a client had been asked by then, and each answer of the coordinator was given by then."""
    ledger, requests = shown
    solid = 0
    for group_id in {row["group_id"] for row in ledger.rows("gold.rebalances")}:
        asked = [line for line in requests if line["group"] == group_id]
        for event in conversation_of(ledger.tables, group_id, None, None).events:
            if not isinstance(event, Message) or event.confidence is not None:
                continue
            client, at = (event.receiver, "ts_ms") if event.is_answer else (event.sender, "asked_ms")
            said = (line for line in asked if line["api"] == event.api and _is_of(client, line["client_id"]))
            assert any(line[at] <= event.at_ms + LATER_MS for line in said), event
            solid += 1
    assert solid > 20


def _is_of(name: str, client_id: str) -> bool:
    """A client by its name in the diagram: a static member's is its group instance id."""
    return name.partition(" ..")[0] in (client_id, "-instance-".join(client_id.rsplit("-", 1)))


@pytest.fixture(scope="module")
def ledger(ledger_of: LedgerOf) -> Ledger:
    """A night of a recording of real brokers."""
    return ledger_of("full-a")


def test_what_is_inferred_has_a_confidence(ledger: Ledger) -> None:
    """A member that went silent is no message, one that left sent one; when a join phase began is in no log."""
    events = conversation_of(ledger.tables, "t02-classic-streams", None, None).events
    gone = [event for event in events if isinstance(event, Change) and event.after == "gone"]
    assert [(event.why, event.confidence) for event in gone] == [
        ("MEMBER_EXPIRED", "LIKELY"),
        ("MEMBER_EXPIRED", "GUESS"),
    ]
    begun = [event for event in events if isinstance(event, Change) and event.after == "PreparingRebalance"]
    assert begun
    assert all(event.confidence for event in begun)
    left = [event for event in conversation_of(ledger.tables, "k01-uniform", None, None).events if _leaves(event)]
    assert {event.confidence for event in left} == {"LIKELY"}
    assert {event.receiver for event in left if isinstance(event, Message)} == {COORDINATOR}


def _leaves(event: Any) -> bool:
    return isinstance(event, Message) and event.text == "leaves"


def test_every_group_with_a_rebalance_has_a_picture(ledger: Ledger) -> None:
    """Its events are in order of time, and between lines that are drawn."""
    groups = {row["group_id"] for row in ledger.rows("gold.rebalances")}
    for group_id in groups:
        story = conversation_of(ledger.tables, group_id, None, None)
        times = [event.at_ms for event in story.events]
        assert times == sorted(times)
        drawn = {*story.clients, *story.brokers}
        assert all({event.sender, event.receiver} <= drawn for event in story.events if isinstance(event, Message))
        assert len(story.clients) <= MEMBERS_MAX
    assert len(groups) > 30


def test_a_time_without_a_rebalance_is_an_error(ledger: Ledger) -> None:
    """It says so, and what to do."""
    with pytest.raises(ArgumentError, match="no rebalance in that time: give others with --from, --to"):
        conversation_of(ledger.tables, "c01-range", 0, 1)
    with pytest.raises(ArgumentError, match="has no rebalance: there is nothing to draw"):
        conversation_of(ledger.tables, "c08-simple", None, None)
