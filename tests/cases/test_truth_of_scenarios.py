"""simulate, nightly, and the truth, for each shipped scenario, with nothing in the environment: causes, owners,
redeliveries and archived records of gold are the true ones, and all of them that the log can show.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

import pytest

from jobs.settings import PROJECT_ROOT
from tests.conftest import REPORT_LINE, takes_minutes
from tests.made_once import MadeOnce
from tests.scenarios import Scenario, scenario_of

SHORT: Final = frozenset({"share-admin", "slow-member", "two-applications"})
"""A second or two each; all others with `make test-live`."""
TOO_LONG: Final = frozenset({"busy-day"})
"""A day of a thousand groups takes minutes to simulate alone: tests/jobs/operations/test_simulate.py has it."""
SCENARIOS: Final = [
    pytest.param(path.stem, marks=() if path.stem in SHORT else takes_minutes, id=path.stem)
    for path in sorted((PROJECT_ROOT / "scenarios").glob("*.toml"))
    if path.stem not in TOO_LONG
]
CAUSES_OF: Final[Mapping[str, frozenset[str]]] = {
    "MEMBER_JOINED": frozenset({"MEMBER_JOINED", "FIRST"}),
    "STATIC_MEMBER_BACK": frozenset({"MEMBER_JOINED", "FIRST", "STATIC_MEMBER_REPLACED"}),
    "STATIC_MEMBER_AWAY": frozenset({"STATIC_MEMBER_AWAY"}),
    "MEMBER_LEFT": frozenset({"MEMBER_LEFT"}),
    "POLL_EXPIRED": frozenset({"MEMBER_LEFT"}),  # it leaves in its own name
    "SESSION_EXPIRED": frozenset({"MEMBER_EXPIRED"}),
    "REBALANCE_EXPIRED": frozenset({"MEMBER_EXPIRED"}),
    "TOPIC_CHANGED": frozenset({"PARTITIONS_CHANGED"}),
    "PARTITIONS_CHANGED": frozenset({"PARTITIONS_CHANGED"}),
    "SUBSCRIPTION_CHANGED": frozenset({"SUBSCRIPTION_CHANGED"}),
}
"""What truly happened -> what gold may call it."""
LEAVING: Final = frozenset({"MEMBER_LEFT", "POLL_EXPIRED", "SESSION_EXPIRED", "REBALANCE_EXPIRED"})
"""Of these the log may not show which it was: then gold says UNKNOWN."""
FOLLOW_UP: Final = "REVOKED_PARTITIONS"
NO_CLAIM: Final = frozenset({"UNKNOWN", "GROUP_EMPTIED"})
"""They say that members went, and not why."""
ARCHIVED_AS: Final = {
    "RETENTION": "AGED_OUT",
    "REJECTED": "REJECTED",
    "DELIVERY_LIMIT": "DELIVERY_LIMIT",
    "GAP": "GAP",
}
HAND_BACKS: Final = {
    "ACKNOWLEDGE": "RELEASED",
    "LOCK_TIMEOUT": "LOCK_TIMEOUT",
    "RELEASE": "SESSION_CLOSED",
}
"""What a share partition's leader did -> how gold names a hand-back."""
RETRIED_MS: Final = 10_000
"""From the truth's time of a write to that of its record: a write is tried again while its leader is away."""

Place = tuple[str, str, int, int]
"""Group, topic, partition and offset."""


@pytest.fixture(scope="module", params=SCENARIOS)
def judged(request: pytest.FixtureRequest, made_once: MadeOnce) -> Scenario:
    """One scenario after another."""
    return scenario_of(made_once, request.param)


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def distance(one_ms: int, other_ms: int) -> int:
    return abs(one_ms - other_ms)


def places(facts: Mapping[str, Any], group: str) -> Iterator[Place]:
    for offset in range(facts["first_offset"], facts["last_offset"] + 1):
        yield group, facts["topic"], facts["partition"], offset


def reported(request: pytest.FixtureRequest, judged: Scenario, what: str, right: int, said: int, all_true: int) -> None:
    line = f"{judged.name}: {what}: precision {right} of {said}, recall {right} of {all_true}"
    request.node.user_properties.append((REPORT_LINE, line))


def true_owners(judged: Scenario) -> set[tuple[str, str, int, str, int]]:
    """Group, topic, partition, member id, and from when, as coordinators wrote it."""
    found = set()
    by_group: dict[str, dict[tuple[str, int], str]] = defaultdict(dict)
    others = {line["group"] for line in judged.truth("tasks")}
    for line in judged.truth("generations"):
        if line["group_type"] == "SHARE":
            others.add(line["group"])
        if line["group_type"] != "CLASSIC":
            continue
        owners = {
            (topic, number): member_id
            for member_id, member in line["members"].items()
            for topic, numbers in member["assignment"]
            for number in numbers
        }
        for at, member_id in owners.items():
            if by_group[line["group"]].get(at) != member_id:
                found.add((line["group"], *at, member_id, line["ts_ms"]))
        by_group[line["group"]] = owners
    names = {line["topic_id"]: line["topic"] for line in judged.truth("topics")}
    by_member: dict[tuple[str, str], set[tuple[str, int]]] = defaultdict(set)
    for line in judged.truth("assignments"):
        if line["group"] in others:  # a share partition has no single owner
            continue
        key = (line["group"], line["member_id"])
        is_there = line["member_epoch"] is not None
        assigned = (
            {(names[topic_id], it) for topic_id, numbers in line["assigned"] for it in numbers} if is_there else set()
        )
        found |= {(line["group"], *at, line["member_id"], line["ts_ms"]) for at in assigned - by_member[key]}
        by_member[key] = assigned
    return found


def test_owners_are_the_true_ones(judged: Scenario, request: pytest.FixtureRequest) -> None:
    """Each partition's owners, and since when, by their coordinators; and no other is made up."""
    assert judged.night.exit_code == 0
    true = true_owners(judged)
    found = {
        (row["group_id"], row["topic"], row["partition"], row["member_id"], ms(row["valid_from"]))
        for row in judged.rows("gold.partition_owners")
        if row["group_type"] != "STREAMS"  # the truth has their tasks
    }
    reported(request, judged, "owners", len(found & true), len(found), len(true))
    assert found == true


def true_reasons(judged: Scenario) -> tuple[dict[tuple[str, int], set[str]], set[tuple[str, int]]]:
    """Why each generation came, and who was thrown out as it did; and in which ones a topic changed unseen."""
    reasons: dict[tuple[str, int], set[str]] = defaultdict(set)
    hidden = set()
    before: dict[str, Mapping[str, Any]] = defaultdict(dict)
    for line in judged.truth("generations"):
        group, key = line["group"], (line["group"], line["generation"])
        reasons[key].update(cause["reason"] for cause in line["causes"])
        excused = {cause["client_id"] for cause in line["causes"] if cause["reason"] in LEAVING}
        gone = [member for member_id, member in before[group].items() if member_id not in line["members"]]
        if line["group_type"] == "CLASSIC":
            if any(member["client_id"] not in excused and member["instance_id"] is None for member in gone):
                reasons[key].add("SESSION_EXPIRED")  # or it did not join again: both are an expiry
            if _assigned(before[group]) == _assigned(line["members"]):
                hidden.add(key)  # as where only racks changed
        before[group] = line["members"]
    return reasons, hidden


def _assigned(members: Mapping[str, Any]) -> set[tuple[str, int]]:
    return {
        (topic, number) for member in members.values() for topic, numbers in member["assignment"] for number in numbers
    }


def test_causes_are_the_true_ones(judged: Scenario, request: pytest.FixtureRequest) -> None:
    """Each generation has its row; what is CERTAIN or LIKELY is true; and a true reason is named, or was one of those
    that look alike in the log."""
    reasons, hidden = true_reasons(judged)
    rows = judged.rows("gold.rebalances")
    assert {key for key, true in reasons.items() if true} <= {(row["group_id"], row["to_generation"]) for row in rows}
    wrong, missed, right, true_count = [], [], 0, 0
    for row in rows:
        true = reasons[row["group_id"], row["to_generation"]]
        allowed = set().union(*(CAUSES_OF.get(reason, frozenset({reason})) for reason in true))
        named = set()
        for cause, method, confidence in zip(
            row["causes"], row["cause_methods"], row["cause_confidences"], strict=True
        ):
            is_follow_up = method == "COOPERATIVE_FOLLOW_UP" and FOLLOW_UP in true
            named |= {FOLLOW_UP} if is_follow_up else {cause}
            if cause in NO_CLAIM or confidence == "GUESS":
                continue
            is_true = is_follow_up or cause in allowed
            right += is_true
            if not is_true:
                wrong.append((row["group_id"], row["to_generation"], cause, method, confidence, true))
        true_count += len(true)
        missed += [
            (row["group_id"], row["to_generation"], reason, row["causes"])
            for reason in true
            if not CAUSES_OF.get(reason, frozenset({reason})) & named
            and not (reason in LEAVING and named & NO_CLAIM)
            and not (reason == "TOPIC_CHANGED" and (row["group_id"], row["to_generation"]) in hidden)
        ]
    reported(request, judged, "causes", right, right + len(wrong), right + len(missed))
    assert wrong == []
    assert missed == []


def true_redeliveries(judged: Scenario) -> dict[tuple[Place, int], str]:
    """Writes of share state in which an offset was available again, or counted more deliveries than the write before:
    (place, time) -> what gold may name it."""
    found = {}
    counts: dict[Place, int] = {}
    for line in judged.truth("share_writes"):
        for first, last, state, count in line["state_batches"]:
            for offset in range(first, last + 1):
                place = (line["group"], line["topic"], line["partition"], offset)
                known = counts.get(place, 0)
                if state == "AVAILABLE" and count:
                    found[place, line["ts_ms"]] = HAND_BACKS.get(line["cause"], line["cause"])
                elif count > max(known, 1):
                    found[place, line["ts_ms"]] = ""
                counts[place] = count
    return found


def test_redeliveries_are_the_true_ones(judged: Scenario, request: pytest.FixtureRequest) -> None:
    """Each record that was handed back or given out again, as often as the log counts it, with its true cause where one
    is named."""
    true = true_redeliveries(judged)
    times: dict[Place, dict[int, str]] = defaultdict(dict)
    for (place, at_ms), why in true.items():
        times[place][at_ms] = why
    timeouts: dict[Place, list[int]] = defaultdict(list)
    for line in judged.truth("lock_timeouts"):
        for place in places(line, line["group"]):
            timeouts[place].append(line["ts_ms"])
    seen: set[tuple[Place, int]] = set()
    made_up, misnamed, said = [], [], 0
    for row in judged.rows("gold.redeliveries"):
        for place in places(row, row["group_id"]):
            said += 1
            at = ms(row["at"])
            near = sorted(times[place], key=partial(distance, at))[:1]
            near = [at_ms for at_ms in near if distance(at, at_ms) <= RETRIED_MS]
            seen |= {(place, at_ms) for at_ms in near}
            if not near:
                made_up.append((place, row["at"], row["cause"], row["method"]))
            causes = {times[place][at_ms] for at_ms in near}
            is_true = row["likely_cause"] in {None, *causes} or (
                row["likely_cause"] == "LOCK_TIMEOUT" and any(at_ms <= ms(row["at"]) for at_ms in timeouts[place])
            )
            if not is_true:
                misnamed.append((place, row["at"], row["likely_cause"], row["method"], row["confidence"], causes))
    reported(request, judged, "redeliveries", said - len(made_up) - len(misnamed), said, len(true))
    assert made_up == []
    assert true.keys() - seen == set()
    assert misnamed == []


def test_archived_records_are_the_true_ones(judged: Scenario, request: pytest.FixtureRequest) -> None:
    """Each offset that was given up, once, and with its true cause where one is named."""
    why = {place: line["why"] for line in judged.truth("archived") for place in places(line, line["group"])}
    rows = [(place, row) for row in judged.rows("gold.archived_records") for place in places(row, row["group_id"])]
    found = dict(rows)
    reported(request, judged, "archived records", len(found.keys() & why.keys()), len(found), len(why))
    assert len(rows) == len(found)
    assert found.keys() == why.keys()
    wrong = Counter(
        (why[place], row["likely_cause"], row["method"], row["confidence"])
        for place, row in found.items()
        if row["likely_cause"] not in {None, ARCHIVED_AS.get(why[place], why[place])}
    )
    assert wrong == {}
