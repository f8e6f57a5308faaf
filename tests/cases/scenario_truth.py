"""What truly happened in a simulation, and what gold may call it."""

import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from functools import partial
from typing import Any, Final

import pytest

from tests.claims import Claim, below, hand_over
from tests.conftest import REPORT_LINE
from tests.lengths import first_seed, how_many
from tests.scenarios import Scenario

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
ABORTED: Final = "ABORTED_TRANSACTION"
GIVEN_UP_BY: Final[Mapping[str, frozenset[str]]] = {
    "REJECT_OR_GAP": frozenset({"REJECTED", "GAP", "RETENTION"}),
    "START_OFFSET_MOVED": frozenset({"RETENTION"}),
}
"""What gold has as the cause -> why the records were truly given up. Any other cause is open."""
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


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def distance(one_ms: int, other_ms: int) -> int:
    return abs(one_ms - other_ms)


def places(facts: Mapping[str, Any], group: str) -> Iterator[Place]:
    for offset in range(facts["first_offset"], facts["last_offset"] + 1):
        yield group, facts["topic"], facts["partition"], offset


def true_ends(judged: Scenario) -> dict[Place, str]:
    """Why each record was given up."""
    return {place: line["why"] for line in judged.truth("archived") for place in places(line, line["group"])}


def aborted(judged: Scenario) -> Callable[[Place], bool]:
    """Which offsets the truth leaves out, since they are of aborted transactions."""
    text = (judged.root / "scenario.toml").read_text(encoding="utf-8")
    specs = {topic["name"]: topic for topic in tomllib.loads(text)["topic"]}

    def is_aborted(place: Place) -> bool:
        spec = specs[place[1]]
        every: int = spec.get("abort_every", 0)
        return bool(every and place[3] // (spec["transaction_records"] + 1) % every == every - 1)

    return is_aborted


def claimed_end(row: Mapping[str, Any], place: Place, why: str) -> Iterator[Claim]:
    """What gold says about a record that was given up."""
    claim = row["method"], row["confidence"], place
    if row["cause"] in GIVEN_UP_BY:
        yield Claim(row["cause"], *claim, why in GIVEN_UP_BY[row["cause"]])
    if row["likely_cause"] is not None:
        names = {ARCHIVED_AS.get(why, why)} | ({"TRANSACTION_MARKER"} if why == "GAP" else set())
        yield Claim(row["likely_cause"], *claim, row["likely_cause"] in names)


def claimed_ends(judged: Scenario) -> Iterator[Claim]:
    """Why share groups gave records up, by a whole log: each one that the state shows was, once."""
    why, is_aborted = true_ends(judged), aborted(judged)
    written: dict[tuple[str, str, int], int] = defaultdict(int)
    for line in judged.truth("share_writes"):
        share_partition = line["group"], line["topic"], line["partition"]
        written[share_partition] = max(written[share_partition], line["start_offset"])
    found = set[Place]()
    for row in judged.rows("gold.archived_records"):
        for place in places(row, row["group_id"]):
            assert place not in found, (place, row)
            assert place in why or row["cause"] in UNWRITTEN, (place, row)
            found.add(place)
            if place in why or row["likely_cause"] is not None:
                yield from claimed_end(row, place, why.get(place, ABORTED if is_aborted(place) else ""))
    unwritten = {place for place, reason in why.items() if reason == "RETENTION" and place[3] >= written[place[:3]]}
    assert why.keys() - found == unwritten - found


def claimed_causes(
    row: Mapping[str, Any], place: tuple[object, ...], reasons: Set[str], less_sure: Set[str] = frozenset()
) -> Iterator[Claim]:
    """What gold says of why a group rebalanced. `less_sure`: reasons that only CERTAIN must not name."""
    joined = {"MEMBER_JOINED"} if row["members_joined"] else set()  # while others did, as the log shows
    for cause, method, confidence in zip(row["causes"], row["cause_methods"], row["cause_confidences"], strict=True):
        true = reasons if confidence == "CERTAIN" else reasons | less_sure
        is_follow_up = method == "COOPERATIVE_FOLLOW_UP" and FOLLOW_UP in true
        if cause not in NO_CLAIM:
            yield Claim(cause, method, confidence, place, is_follow_up or cause in allowed_causes(true) | joined)


def claimed_hand_backs(
    judged: Scenario, rows: Iterable[Mapping[str, Any]], *, is_whole: bool = True
) -> Iterator[Claim]:
    """How deliveries ended. By a whole log each redelivery that the state shows was."""
    true = true_redeliveries(judged)
    times, timeouts = redelivery_times(true), lock_timeouts(judged)
    seen: set[tuple[Place, int]] = set()
    for row in rows:
        at, cause = ms(row["at"]), row["likely_cause"]
        for place in places(row, row["group_id"]):
            near = [it for it in sorted(times[place], key=partial(distance, at))[:1] if distance(at, it) <= RETRIED_MS]
            seen |= {(place, at_ms) for at_ms in near}
            if not near:
                assert row["cause"] == COUNT_LOST or not is_whole, (place, row)
                yield Claim(row["cause"], row["method"], row["confidence"], place, row["cause"] == COUNT_LOST)
            elif cause is not None:
                is_late = cause == "LOCK_TIMEOUT" and any(at_ms <= at for at_ms in timeouts[place])
                is_true = is_late or cause in {times[place][at_ms] for at_ms in near}
                yield Claim(cause, row["method"], row["confidence"], place, is_true)
    assert true.keys() == seen or not is_whole


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


def found_owners(judged: Scenario) -> set[tuple[str, str, int, str, int]]:
    """The same as gold has it."""
    return {
        (row["group_id"], row["topic"], row["partition"], row["member_id"], ms(row["valid_from"]))
        for row in judged.rows("gold.partition_owners")
        if row["group_type"] != "STREAMS"  # the truth has their tasks
    }


def true_reasons(judged: Scenario) -> tuple[dict[tuple[str, int], set[str]], set[tuple[str, int]]]:
    """Why each generation came, and who was thrown out as it did; and in which ones a topic changed unseen."""
    reasons: dict[tuple[str, int], set[str]] = defaultdict(set)
    hidden = set()
    before: dict[str, Mapping[str, Any]] = defaultdict(dict)
    faults = [line["fault"] for line in judged.truth("faults")]
    for line in judged.truth("generations"):
        group, key = line["group"], (line["group"], line["generation"])
        reasons[key].update(cause["reason"] for cause in line["causes"])
        # a busy client says why it wanted to join first, and joins with the topics that it was given since
        struck = (cause["fault"] for cause in line["causes"] if cause["fault"] is not None)
        reasons[key].update("SUBSCRIPTION_CHANGED" for fault in struck if faults[fault] == "subscribe")
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


def allowed_causes(true: Iterable[str]) -> set[str]:
    """What gold may call the true reasons of a rebalance."""
    return set().union(*(CAUSES_OF.get(reason, frozenset({reason})) for reason in true))


def redelivery_times(true: Mapping[tuple[Place, int], str]) -> dict[Place, dict[int, str]]:
    """The same by place."""
    times: dict[Place, dict[int, str]] = defaultdict(dict)
    for (place, at_ms), why in true.items():
        times[place][at_ms] = why
    return times


def lock_timeouts(judged: Scenario) -> dict[Place, list[int]]:
    """When the locks of records timed out."""
    timeouts: dict[Place, list[int]] = defaultdict(list)
    for line in judged.truth("lock_timeouts"):
        for place in places(line, line["group"]):
            timeouts[place].append(line["ts_ms"])
    return timeouts


SEEDS: Final = range(first_seed(), first_seed() + how_many(1))
"""Of random clusters. `make fuzz` tries 300."""
UNWRITTEN: Final = frozenset({"UNSEEN"})
"""Causes of what was given up and is in no record: aborted transactions too, which the truth does not list."""
COUNT_LOST: Final = "COUNT_LOST"
"""Delivered before another leader loaded the share partition, and once more after it: no write of state counts both."""


def assert_right(
    claims: Callable[[int], Iterable[Claim]], seeds: Sequence[int], what: str, proven: Sequence[str], test: pytest.Item
) -> None:
    """Print how many claims about the clusters of some seeds are right, by confidence. Of `proven` confidences all must
    be, and of each method as many as its confidence says."""
    made = [(seed, claim) for seed in seeds for claim in claims(seed)]
    counts = Counter((claim.confidence, claim.is_true) for _, claim in made)
    wrong = [(seed, claim) for seed, claim in made if not claim.is_true]
    for confidence in (*proven, "LIKELY", "GUESS"):
        right = counts[confidence, True]
        line = f"{len(seeds)} {what}: {confidence} {right} of {right + counts[confidence, False]} right"
        test.user_properties.append((REPORT_LINE, line))
    lines = hand_over((claim for _, claim in made), test)
    assert [(seed, claim) for seed, claim in wrong if claim.confidence in proven] == []
    for method, cause, confidence, *_ in below(lines):
        ways = [(seed, it) for seed, it in wrong if (it.method, it.cause, it.confidence) == (method, cause, confidence)]
        pytest.fail(f"{ways}")
