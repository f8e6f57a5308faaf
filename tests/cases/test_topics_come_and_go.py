"""Topics that are made and deleted while groups read them: nights over simulated logs, against their truth."""

from pathlib import Path
from typing import Any, Final

import pytest

from simulator.simulation.scenario_file import parse_scenario
from simulator.simulation.truth import Facts
from tests.cases.harness import Ledger
from tests.cases.simulated import simulate_into
from tests.conftest import PROJECT_ROOT

SCENARIO: Final = PROJECT_ROOT / "scenarios" / "topics-come-and-go.toml"
MINUTE_MS: Final = 60_000
CREATED_MIN: Final = {"campaign": 1, "refunds": 7}
"""Topic -> the minute in which it is made, for good or for the time being."""
Truth = dict[str, list[Facts]]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    """The logs of the whole story, and its truth."""
    folder = tmp_path_factory.mktemp("whole")
    scenario = parse_scenario(SCENARIO.read_text(encoding="utf-8"), SCENARIO.name)
    return folder, simulate_into(folder, scenario).lines


def deleted(ledger: Ledger) -> list[dict[str, Any]]:
    """Rows about offsets that were deleted, in the order of the log."""
    rows = [row for row in ledger.rows("gold.commit_anomalies") if row["kind"] == "DELETED"]
    return sorted(rows, key=lambda row: (row["log_partition"], row["log_offset"]))


def test_offsets_of_deleted_topics_are_named_so(ledger: Ledger, logs: tuple[Path, Truth]) -> None:
    """Each tombstone of a deleted topic is TOPIC_DELETED for CERTAIN, by the metadata log, and nothing else is; a topic
    of the same name that was made at once is another one."""
    night = ledger.night(logs[0])
    assert night.exit_code == 0, night.text
    true = {
        (line["group"], line["topic"], line["partition"], *line["log"]): line["why"]
        for line in logs[1]["deletions"]
        if line["what"] == "OFFSET"
    }
    found = {
        (row["group_id"], row["topic"], row["partition"], row["log_partition"], row["log_offset"]): row
        for row in deleted(ledger)
    }
    assert {place: row["likely_cause"] for place, row in found.items()} == true
    assert {row["confidence"] for row in found.values()} == {"CERTAIN"}
    assert {(group, topic) for group, topic, *_ in true} == {
        ("classic-shop", "campaign"),
        ("cooperative-shop", "campaign"),
        ("consumer-shop", "campaign"),
        ("left-behind", "campaign"),
        ("classic-shop", "refunds"),
        ("consumer-shop", "refunds"),
    }
    topics = [row for row in ledger.rows("silver.topics") if row["topic"] in CREATED_MIN]
    assert {row["topic_id"] for row in topics} == {
        line["topic_id"] for line in logs[1]["topics"] if line["topic"] in CREATED_MIN
    }


def from_start_ms(lines: list[Facts]) -> list[int]:
    """When lines of the truth were written, since the start."""
    start_ms = parse_scenario(SCENARIO.read_text(encoding="utf-8"), SCENARIO.name).start_ms
    return [line["ts_ms"] - start_ms for line in lines]


def changes(truth: Truth, group: str) -> list[tuple[int, frozenset[str]]]:
    """The minute of each generation that a changed topic caused, and the topics of the group's members after it."""
    lines = [
        line
        for line in truth["generations"]
        if line["group"] == group and "TOPIC_CHANGED" in {cause["reason"] for cause in line["causes"]}
    ]
    return [
        (
            at_ms // MINUTE_MS,
            frozenset(topic for member in line["members"].values() for topic, _ in member.get("assignment") or ()),
        )
        for at_ms, line in zip(from_start_ms(lines), lines, strict=True)
    ]


def test_classic_groups_rebalance_when_their_leader_sees_it(logs: tuple[Path, Truth]) -> None:
    """The leader joins again when it has refreshed its metadata. A member that commits by itself is kept by the
    deleted topic until its rebalance time-out, a minute here (KAFKA-13310); one that does not joins at once."""
    everything = frozenset({"orders", "campaign", "refunds"})
    assert changes(logs[1], "classic-shop") == [
        (1, everything),
        (6, everything - {"campaign"}),
        (7, everything - {"campaign"}),
        (10, everything),
    ]
    assert [minute for minute, _ in changes(logs[1], "by-hand")] == [7]
    stuck_ms = from_start_ms([line for line in logs[1]["generations"] if line["group"] == "cooperative-shop"])
    assert not any(4 * MINUTE_MS <= at_ms < 5 * MINUTE_MS for at_ms in stuck_ms)


def test_the_coordinator_itself_sees_it_where_it_assigns(logs: tuple[Path, Truth]) -> None:
    """Consumer groups get a new epoch at the next heartbeat, within 5 s."""
    at_ms = from_start_ms(
        [
            line
            for line in logs[1]["generations"]
            if line["group"] == "consumer-shop" and "TOPIC_CHANGED" in {cause["reason"] for cause in line["causes"]}
        ]
    )
    assert [place // MINUTE_MS for place in at_ms] == [1, 4, 7, 10]
    assert all(place % MINUTE_MS < 5000 for place in at_ms)


def test_no_commit_of_a_deleted_topic_is_taken(logs: tuple[Path, Truth]) -> None:
    """Brokers refuse them (UNKNOWN_TOPIC_OR_PARTITION), and the topic that is made again is read from its start."""
    start_ms = logs[1]["generations"][0]["ts_ms"] // MINUTE_MS * MINUTE_MS
    committed = [
        ((line["ts_ms"] - start_ms) / MINUTE_MS, offset)
        for line in logs[1]["commits"]
        for topic, _, offset, _ in line["offsets"]
        if topic == "campaign"
    ]
    assert not [minute for minute, _ in committed if minute < 1 or 4.01 < minute < 10]
    again = [offset for minute, offset in committed if minute >= 10]
    assert again
    assert max(again) < 2 * 60 * 10 / 2 + 10
    refunds = [
        (line["group"], offset)
        for line in logs[1]["commits"]
        if line["ts_ms"] - start_ms > 7.2 * MINUTE_MS
        for topic, _, offset, _ in line["offsets"]
        if topic == "refunds"
    ]
    assert {group for group, _ in refunds} == {"classic-shop", "consumer-shop"}
    assert max(offset for _, offset in refunds) < 5 * 60 * 5 / 5 + 10


def test_share_groups_forget_a_deleted_topic(logs: tuple[Path, Truth]) -> None:
    """Its share partitions have no state in the end but those of the topic made again, whose records are delivered."""
    ids = [line["topic_id"] for line in logs[1]["topics"] if line["topic"] == "campaign" and line["partition_count"]]
    assert len(ids) == 2
    states = {line["topic_id"] for line in logs[1]["end_share"] if line["group"] == "share-shop"}
    assert ids[1] in states
    assert ids[0] not in states
    delivered = [line for line in logs[1]["deliveries"] if line["topic"] == "campaign"]
    minutes = {at_ms // MINUTE_MS for at_ms in from_start_ms(delivered)}
    assert minutes == {1, 2, 3, 10, 11}
