"""Assignors, client and server, against what Kafka's classes answered.

Every case must come out exactly, also those whose answer hangs on the order of Java's hash collections: the assignors
walk theirs in the same order. A client assignor's lists must have Kafka's order too. What the trace says of other
orders (partitions by member, pairs kept) is checked on Kafka's answer and on ours alike, so that a case is judged by
more than one number. One thing is left out: topics without partitions, which the traces do not show.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from coordinator_core.assignors import CLIENT_ASSIGNORS, CONSUMER_GROUP_ASSIGNORS, SHARE_GROUP_ASSIGNORS
from coordinator_core.assignors.client_group import Assignment, ClientAssignor, Subscription, Topic, TopicPartition
from coordinator_core.assignors.errors import AssignorError, NoMemberLeft
from coordinator_core.assignors.server_group import (
    GroupSpec,
    MemberSpec,
    ServerAssignor,
    SubscriptionType,
    in_broker_order,
)

SERVER_ASSIGNORS: Final = {**CONSUMER_GROUP_ASSIGNORS, **SHARE_GROUP_ASSIGNORS}
USER_DATA_ONLY: Final = "sticky"
"""This one's subscriptions own nothing: what they had is in the user data."""
EXCEPTIONS: Final[dict[str, type[AssignorError]]] = {"java.util.NoSuchElementException": NoMemberLeft}
"""What Kafka throws -> what we raise."""

Case = dict[str, Any]


def run(path: str | Path) -> tuple[int, int, list[str]]:
    """Judge every case of a file: (cases, passed, failures). The file's name says which assignor it is about."""
    _, side, name = Path(path).name.removesuffix(".jsonl.gz").split("_")
    cases = 0
    failures = []
    for case in read_cases(path):
        cases += 1
        is_server = side == "server"
        fault = server_fault(case, SERVER_ASSIGNORS[name]) if is_server else client_fault(case, CLIENT_ASSIGNORS[name])
        if fault:
            failures.append(f"case {case['id']} round {case['round']}: {fault}")
    return cases, cases - len(failures), failures


def read_cases(path: str | Path) -> Iterator[Case]:
    """The lines of a trace."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


# --- server ---


def server_spec(case: Case) -> GroupSpec:
    """The group of a case. Subscriptions are listed in the order of the set that the assignor saw."""
    return GroupSpec(
        members={member_id: _member_spec(case["members"][member_id]) for member_id in case["memberIterationOrder"]},
        partition_counts={topic["topicId"]: topic["partitions"] for topic in case["topics"]},
        subscription_type=SubscriptionType(case["subscriptionType"]),
        assignable=case["assignable"] and {topic: frozenset(numbers) for topic, numbers in case["assignable"].items()},
    )


def _member_spec(member: Case) -> MemberSpec:
    return MemberSpec(tuple(member["subscribedTopicIds"]), in_broker_order(member["previous"]), member["instanceId"])


def server_fault(case: Case, assign: ServerAssignor) -> str | None:
    """What is wrong with our answer; None when nothing is."""
    spec = server_spec(case)
    try:
        answer = assign(spec)
    except AssignorError as error:
        expected_error = EXCEPTIONS.get(case["exception"])
        return None if type(error) is expected_error else f"raises {type(error).__name__}: {error}"
    if case["exception"] is not None:
        return f"answers where Kafka throws {case['exception']}"
    found = {member_id: _with_partitions(answer.get(member_id, {})) for member_id in spec.members}
    expected = {member_id: _with_partitions(topics) for member_id, topics in case["assignment"].items()}
    if found != expected:
        return f"assigns {found}, not {expected}"
    counts = sorted(sum(map(len, topics.values())) for topics in found.values())
    kept = sum(
        len(set(numbers) & set(member.assigned_partitions.get(topic_id, ())))
        for member_id, member in spec.members.items()
        for topic_id, numbers in found[member_id].items()
    )
    kept_min, kept_max = case["retainedRange"]
    if counts != case["countsSorted"] or kept != case["retained"] or not kept_min <= kept <= kept_max:
        return f"{counts} partitions, {kept} kept"
    return None


def _with_partitions(topics: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    return {topic_id: tuple(numbers) for topic_id, numbers in topics.items() if numbers}


# --- client ---


def client_group(case: Case) -> tuple[dict[str, Topic], dict[str, Subscription]]:
    """Topics and subscriptions of a case, members in the order in which the assignor saw them."""
    topics = {
        topic["name"]: Topic(topic["partitions"], tuple(map(frozenset, topic["replicaRacks"] or ())))
        for topic in case["topics"]
    }
    in_user_data = case["assignor"] == USER_DATA_ONLY
    subscriptions = {
        member_id: _subscription(case["members"][member_id], in_user_data=in_user_data)
        for member_id in case["memberIterationOrder"]
    }
    return topics, subscriptions


def _subscription(member: Case, *, in_user_data: bool) -> Subscription:
    return Subscription(
        topics=tuple(member["topics"]),
        user_data=None if member["userData"] is None else bytes.fromhex(member["userData"]),
        owned_partitions=() if in_user_data else _partitions(member["owned"]),
        generation_id=member["generation"] if member["generation"] >= 0 else None,
        rack_id=member["rackId"],
        group_instance_id=member["instanceId"],
    )


def _partitions(pairs: list[list[Any]]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, partition) for topic, partition in pairs)


def client_fault(case: Case, assign: ClientAssignor) -> str | None:
    """What is wrong with our answer; None when nothing is."""
    topics, subscriptions = client_group(case)
    try:
        found = assign(topics, subscriptions)
    except AssignorError as error:
        return f"raises {type(error).__name__}: {error}"
    expected: Assignment = {member_id: _partitions(pairs) for member_id, pairs in case["assignment"].items()}
    if found != expected:
        return f"assigns {found}, not {expected}"
    counts = sorted(map(len, found.values()))
    kept = sum(len(set(found[m]) & set(_partitions(case["members"][m]["owned"]))) for m in found)
    if counts != case["countsSorted"] or kept != case["retained"]:
        return f"{counts} partitions, {kept} kept"
    return None
