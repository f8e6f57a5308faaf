"""The page on scenarios is whole; pictures have every transition; Kafka's words are in docs."""

import re
from dataclasses import fields
from typing import Final

import pytest

from simulator.simulation.scenario import FAULT_KEYS, key_of
from tests.conftest import PROJECT_ROOT
from tests.simulator.simulation.simulations import run_file
from tools import reference, scenarios_page
from tools.state_pictures import PICTURES, arrows, picture

DOCS: Final = PROJECT_ROOT / "docs"
PAGE: Final = (DOCS / "internals" / "scenarios.md").read_text(encoding="utf-8")
KAFKA_WORDS: Final = (
    "renew",
    "implicit",
    "share session",
    "MEMBER_ID_REQUIRED",
    "persister",
    "SimpleAssignor",
    "FindCoordinator",
    "isolation.level",
    "max.record.locks",
    "auto.offset.reset",
    "max.poll.interval",
    "broker.rack",
    "client.rack",
    "request.timeout.ms",
    "num.stream.threads",
    "num.standby.replicas",
    "client.tag.",
    "share.acknowledgement.mode",
    "ShareAcknowledge",
    "share.acquire.mode",
    "batch_optimized",
    "by_duration",
    "group.share.max.share.sessions",
    "DelayedShareFetch",
    "fetch lock",
    "group.share.initialize.retry.interval.ms",
    "AlterShareGroupOffsets",
    "DeleteShareGroupOffsets",
    "DeleteGroups",
    "INCONSISTENT_GROUP_PROTOCOL",
    "JoinGroup",
    "TWO_APPLICATIONS",
)


@pytest.mark.parametrize("kind", scenarios_page.TABLES.values())
def test_every_key_is_on_the_page(kind: type) -> None:
    """With what it may be, and what it means."""
    abouts = scenarios_page.field_docs()
    for spec in fields(kind):
        assert abouts[kind.__name__, spec.name], spec.name
        assert f"| `{key_of(kind, spec.name)}` |" in PAGE


def test_every_fault_is_on_the_page() -> None:
    """With the keys that it needs, and what it does."""
    assert scenarios_page.fault_docs().keys() == FAULT_KEYS.keys()
    for kind, keys in FAULT_KEYS.items():
        assert f"| `{kind}` | {', '.join(f'`{key}`' for key in keys)} |" in PAGE


@pytest.mark.parametrize("name", ["share-poison", "exactly-once"])
def test_every_file_of_the_truth_is_on_the_page(name: str) -> None:
    """What simulations write is there, each file with what its lines hold."""
    written = run_file(name, minutes=2).truth
    assert {f"{file}.jsonl" for file in written} <= scenarios_page.truth_docs().keys()


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_those_of_the_tables(name: str) -> None:
    """An arrow for each transition of the code, and no other; the file is up to date, and a page shows it."""
    title, table = PICTURES[name]
    drawn = (DOCS / "images" / name).read_text(encoding="utf-8")
    assert drawn == picture(title, table)
    assert re.findall(r"<title>(\S+) to (\S+)</title>", drawn) == arrows(table)
    assert f"images/{name}" in (DOCS / "internals" / "protocols.md").read_text(encoding="utf-8")
    assert f"images/{name}" in reference.PICTURES


@pytest.mark.parametrize("word", KAFKA_WORDS)
def test_a_word_of_kafka_is_explained(word: str) -> None:
    """Whoever looks for it in docs/ finds it."""
    assert any(word.lower() in path.read_text(encoding="utf-8").lower() for path in DOCS.rglob("*.md"))
