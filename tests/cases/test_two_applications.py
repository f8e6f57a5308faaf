"""Two applications under one group.id: a finding of its own, in nights over simulated logs, against their truth."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest

from coordinator_core.live.assignors.server_group import GroupSpec, MemberSpec
from coordinator_core.live.assignors.server_simple import assign_simple
from coordinator_core.replay.java.hash_codes import string_hash_code
from coordinator_core.replay.java.hash_map import in_hash_order
from jobs.queries.answers.group_verdicts import SHARED_GROUP, group_verdicts
from simulator.simulation.scenario_file import parse_scenario
from simulator.simulation.truth import Facts
from tests.cases.harness import Ledger, Night
from tests.cases.simulated import simulate_into
from tests.conftest import PROJECT_ROOT
from tests.coordinator_core.live.assignors.groups import subscription_type_of

SCENARIO: Final = PROJECT_ROOT / "scenarios" / "two-applications.toml"
START_MS: Final = 1_768_032_000_000
PROTOCOLS: Final = ("classic", "consumer", "share")


def simulated(folder: Path, duration_s: int) -> dict[str, list[Facts]]:
    """The logs of so much of the story; its truth."""
    scenario = replace(
        parse_scenario(SCENARIO.read_text(encoding="utf-8"), SCENARIO.name), duration_ms=1000 * duration_s
    )
    return simulate_into(folder, scenario).lines


def found(ledger: Ledger) -> list[dict[str, Any]]:
    """The rows about groups, in the order of the log."""
    rows = [row for row in ledger.rows("gold.log_anomalies") if row["category"] == "GROUP"]
    return sorted(rows, key=lambda row: (row["log_partition"], row["log_offset"], row["ordinal"]))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[Facts]]]:
    """The logs of the whole story, and its truth."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, simulated(folder, 240)


@pytest.fixture(scope="module")
def judged(
    whole: tuple[Path, dict[str, list[Facts]]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Ledger, Night]:
    """One night over it."""
    ledger = Ledger(tmp_path_factory.mktemp("judged") / "warehouse")
    return ledger, ledger.night(whole[0])


@pytest.fixture
def lines(whole: tuple[Path, dict[str, list[Facts]]]) -> dict[str, list[Facts]]:
    """The truth of the whole story."""
    return whole[1]


def test_members_whose_topics_do_not_overlap_are_a_finding(
    judged: tuple[Ledger, Night], lines: dict[str, list[Facts]]
) -> None:
    """Which members have which topics, and since when: from the record of the member that shares none with the others;
    a night names the groups that are so now."""
    ledger, night = judged
    assert night.exit_code == 0, night.text
    rows = found(ledger)
    by_group = {group: [row for row in rows if row["group_id"] == group] for group in {row["group_id"] for row in rows}}
    assert set(by_group) == {f"{protocol}-{kind}" for protocol in PROTOCOLS for kind in ("shared", "turns")}
    for protocol in PROTOCOLS:
        (shared,) = by_group[f"{protocol}-shared"]
        assert (shared["rule"], shared["confidence"]) == ("TWO_APPLICATIONS", "LIKELY")
        assert shared["details"] == (
            f"topic mails: 1 member, client {protocol}-shared-2; "
            f"topics orders, refunds: 2 members, clients {protocol}-shared-0, {protocol}-shared-1"
        )
        came = [
            line["ts_ms"]
            for line in lines["generations"]
            if line["group"] == f"{protocol}-shared" and len(line["members"]) == 3
        ]
        assert abs(round(shared["at"].timestamp() * 1000) - came[0]) <= 100
        turns = by_group[f"{protocol}-turns"]
        assert [row["rule"] for row in turns] == ["TWO_APPLICATIONS", "ONE_APPLICATION"]
        after_s = [row["at"].timestamp() - START_MS / 1000 for row in turns]
        assert 90 <= after_s[0] <= 100
        assert 150 <= after_s[1] <= 160
    shared_groups = sorted(f"{protocol}-shared" for protocol in PROTOCOLS)
    assert night.facts["found"]["new"]["shared"] == dict.fromkeys(shared_groups, 1)
    assert "3 group ids of several applications" in night.text
    verdicts = group_verdicts(ledger.tables)
    assert sorted(it.group_id for it in verdicts if SHARED_GROUP in it.rules) == shared_groups


def test_it_does_not_depend_on_where_nights_are_cut(
    judged: tuple[Ledger, Night], tmp_path: Path, whole: tuple[Path, dict[str, list[Facts]]]
) -> None:
    """A night over half of the story and one over the rest find what one night finds."""
    for number, duration_s in enumerate((2, 95), 1):
        simulated(tmp_path / str(number), duration_s)
        assert Ledger(tmp_path / "cut").night(tmp_path / str(number), number=number).exit_code == 0
    assert Ledger(tmp_path / "cut").night(whole[0], number=9).exit_code == 0
    assert found(Ledger(tmp_path / "cut")) == found(judged[0])


def test_members_have_partitions_of_their_own_topics_alone(lines: dict[str, list[Facts]]) -> None:
    """Heterogeneous subscriptions, as SimpleAssignor and the others assign them; after a change of the subscription the
    client reads its new topics, and only these."""
    owned = {
        (line["client_id"], line["topic"])
        for line in lines["owners"]
        if line["to_ms"] is None or line["to_ms"] - line["from_ms"] > 5000
    }
    for protocol in ("classic", "consumer"):
        assert {topic for client, topic in owned if client == f"{protocol}-shared-2"} == {"mails"}
        assert {topic for client, topic in owned if client == f"{protocol}-shared-0"} == {"orders"}
    delivered: dict[str, set[str]] = {}
    for line in lines["deliveries"]:
        delivered.setdefault(line["client_id"], set()).add(line["topic"])
    assert delivered["share-shared-2"] == {"mails"}
    assert delivered["share-shared-0"] | delivered.get("share-shared-1", set()) == {"orders"}
    late = [line for line in lines["deliveries"] if START_MS + 100_000 <= line["ts_ms"] <= START_MS + 150_000]
    turns = {(line["client_id"], line["topic"]) for line in late if line["group"] == "share-turns"}
    assert turns == {("share-turns-0", "orders"), ("share-turns-1", "mails")}
    causes = {
        cause["reason"] for line in lines["generations"] if line["group"].endswith("-turns") for cause in line["causes"]
    }
    assert "SUBSCRIPTION_CHANGED" in causes


Row = dict[str, Any]
Owned = dict[str, dict[str, tuple[int, ...]]]
"""Member id -> topic id -> partitions."""


def owned_at(rows: Iterable[Row], kind: str, at: datetime, *, is_before: bool = False) -> Owned:
    """What members had at a time, from silver: just before its operation, or just after it."""
    found: Owned = {}
    for row in sorted(rows, key=lambda row: (row["topic_id"], row["partition"])):
        begins, ends = row["valid_from"], row["valid_to"]
        is_there = (
            begins < at and (ends is None or ends >= at) if is_before else begins <= at and (ends is None or at < ends)
        )
        if row["assignment"] == kind and is_there:
            topics = found.setdefault(row["member_id"], {})
            topics[row["topic_id"]] = (*topics.get(row["topic_id"], ()), row["partition"])
    return found


def simple(had: Owned, subscribed: Mapping[str, tuple[str, ...]], initialized: Mapping[str, frozenset[int]]) -> Owned:
    """What the core's SimpleAssignor gives them, less what is empty."""
    members = {
        member_id: MemberSpec(subscribed[member_id], had.get(member_id, {}))
        for member_id in in_hash_order(subscribed, string_hash_code)
    }
    counts = {topic_id: len(numbers) for topic_id, numbers in initialized.items()}
    counts |= {topic_id: counts.get(topic_id, 0) for topics in subscribed.values() for topic_id in topics}
    given = assign_simple(GroupSpec(members, counts, subscription_type_of(members), initialized))
    return {
        member_id: kept
        for member_id, topics in given.items()
        if (kept := {topic_id: numbers for topic_id, numbers in topics.items() if numbers})
    }


@pytest.mark.parametrize("group", ["share-shared", "share-one", "share-turns"])
def test_share_partitions_go_as_simple_assignor_gives_them(
    judged: tuple[Ledger, Night], lines: dict[str, list[Facts]], group: str
) -> None:
    """Each target in the log is what SimpleAssignor makes of the members' own topics and the target before; it gives no
    member another topic, leaves out no partition, and is what the truth says that members took."""
    ledger, _ = judged
    ids = {line["topic"]: line["topic_id"] for line in lines["topics"]}
    attributes, assignments, events = (
        [row for row in ledger.rows(f"silver.{name}") if row["group_id"] == group]
        for name in ("member_attributes", "member_assignments", "group_events")
    )
    initialized: dict[str, frozenset[int]] = {}
    kinds = set()
    for event in sorted(events, key=lambda row: (row["log_offset"], row["event_index"])):
        at = event["at"]
        if event["event_type"] == "SHARE_PARTITIONS_INITIALIZED":
            details = dict(event["details"])
            numbers = frozenset(map(int, details["partitions"].split(",")))
            initialized[details["topic_id"]] = initialized.get(details["topic_id"], frozenset()) | numbers
        if event["event_type"] != "TARGET_COMPUTED":
            continue
        subscribed = {
            row["member_id"]: tuple(ids[name] for name in row["subscribed_topics"])
            for row in attributes
            if row["valid_from"] <= at and (row["valid_to"] is None or at < row["valid_to"])
        }
        target = owned_at(assignments, "TARGET", at)
        assert target == simple(owned_at(assignments, "TARGET", at, is_before=True), subscribed, initialized)
        assert all(set(topics) <= set(subscribed[member_id]) for member_id, topics in target.items())
        wanted = {topic_id for topics in subscribed.values() for topic_id in topics}
        assert {
            (topic_id, number) for topics in target.values() for topic_id in topics for number in topics[topic_id]
        } == {(topic_id, number) for topic_id in wanted & initialized.keys() for number in initialized[topic_id]}
        kinds.add(subscription_type_of({it: MemberSpec(topics) for it, topics in subscribed.items()}))
    assert "HETEROGENEOUS" in kinds
    took = [line for line in lines["assignments"] if line["group"] == group and line["assigned"]]
    assert took
    for line in took:
        at = datetime.fromtimestamp(line["ts_ms"] / 1000, attributes[0]["valid_from"].tzinfo)
        owned = owned_at(assignments, "CURRENT", at)[line["member_id"]]
        assert owned == {topic_id: tuple(numbers) for topic_id, numbers in line["assigned"]}
