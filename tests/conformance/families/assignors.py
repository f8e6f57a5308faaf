"""Assignors, client and server, against what Kafka's classes answered.

Where a case does not hang on the order of Java's hash collections the answer must be the same: whole, and for client
assignors with its lists' order. The assignors walk their collections in Java's order, so the same is to be expected of
all others; yet what decides between colliding hash codes (in which order a set was filled) is not in the traces. So a
case that Kafka's harness found sensitive to order may also pass by what it found to hold in any order: partitions by
member, how many of them were kept, and that the answer is one that the assignor may give. `run(path, exact=True)` does
without that. Topics without partitions, which the traces do not show, are left out.
"""

from pathlib import Path
from typing import Any, Final

from coordinator_core.live.assignors import CLIENT_ASSIGNORS, CONSUMER_GROUP_ASSIGNORS, SHARE_GROUP_ASSIGNORS
from coordinator_core.live.assignors.client_group import Assignment, ClientAssignor, Subscription, Topic, TopicPartition
from coordinator_core.live.assignors.errors import AssignorError, NoMemberLeft
from coordinator_core.live.assignors.server_group import GroupSpec, MemberSpec, ServerAssignor
from coordinator_core.replay.consumer.subscriptions import SubscriptionType
from coordinator_core.replay.java.ordered import partitions_of_record
from tests.conformance.families.cases import Json, judge_cases

SERVER_ASSIGNORS: Final = {**CONSUMER_GROUP_ASSIGNORS, **SHARE_GROUP_ASSIGNORS}
USER_DATA_ONLY: Final = "sticky"
"""This one's subscriptions own nothing: what they had is in the user data."""
EXCEPTIONS: Final[dict[str, type[AssignorError]]] = {"java.util.NoSuchElementException": NoMemberLeft}
"""What Kafka throws -> what we raise."""

Case = Json


def run(path: str | Path, *, exact: bool = False) -> tuple[int, int, list[str]]:
    """Judge every case of a file: (cases, passed, failures). The file's name says which assignor it is about."""
    _, side, name = Path(path).name.removesuffix(".jsonl.gz").split("_")

    def judge(case: Case) -> str | None:
        if side == "server":
            fault = server_fault(case, SERVER_ASSIGNORS[name], exact=exact)
        else:
            fault = client_fault(case, CLIENT_ASSIGNORS[name], exact=exact)
        return f"round {case['round']}: {fault}" if fault else None

    return judge_cases(path, judge)


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
    return MemberSpec(
        tuple(member["subscribedTopicIds"]), partitions_of_record(member["previous"]), member["instanceId"]
    )


def server_fault(case: Case, assign: ServerAssignor, *, exact: bool = False) -> str | None:
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
    counts = sorted(sum(map(len, topics.values())) for topics in found.values())
    kept = sum(
        len(set(numbers) & set(member.assigned_partitions.get(topic_id, ())))
        for member_id, member in spec.members.items()
        for topic_id, numbers in found[member_id].items()
    )
    if found == expected:
        is_same = counts == case["countsSorted"] and kept == case["retained"]
        return None if is_same else f"{counts} partitions, {kept} kept"
    if exact or not case["orderSensitive"]:
        return f"assigns {found}, not {expected}"
    if case["countsOrderInvariant"] and counts != case["countsSorted"]:
        return f"{counts} partitions, not {case['countsSorted']}"
    kept_min, kept_max = case["retainedRange"]
    if not kept_min <= kept <= kept_max:
        return f"{kept} kept, not {kept_min} to {kept_max}"
    return _invalid_server_answer(spec, found, is_exclusive=case["assignor"] in CONSUMER_GROUP_ASSIGNORS)


def _invalid_server_answer(
    spec: GroupSpec, found: dict[str, dict[str, tuple[int, ...]]], *, is_exclusive: bool
) -> str | None:
    """Members have what they are subscribed to (or had before, in share groups); in consumer groups one has it."""
    given: list[tuple[str, int]] = []
    for member_id, topics in found.items():
        member = spec.members[member_id]
        for topic_id, numbers in topics.items():
            had = set() if is_exclusive else set(member.assigned_partitions.get(topic_id, ()))
            is_subscribed = topic_id in member.subscribed_topic_ids
            may_have = {n for n in range(spec.partition_counts.get(topic_id, 0)) if spec.is_assignable(topic_id, n)}
            if not set(numbers) <= had | (may_have if is_subscribed else set()):
                return f"{member_id} may not have {topic_id} {numbers}"
            given += [(topic_id, number) for number in numbers]
    wanted = {
        (topic_id, number)
        for member in spec.members.values()
        for topic_id in member.subscribed_topic_ids
        for number in range(spec.partition_counts[topic_id])
    }
    if is_exclusive and (len(given) != len(set(given)) or set(given) != wanted):
        return "a partition has not one owner"
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


def client_fault(case: Case, assign: ClientAssignor, *, exact: bool = False) -> str | None:
    """What is wrong with our answer; None when nothing is."""
    topics, subscriptions = client_group(case)
    try:
        found = assign(topics, subscriptions)
    except AssignorError as error:
        return f"raises {type(error).__name__}: {error}"
    expected: Assignment = {member_id: _partitions(pairs) for member_id, pairs in case["assignment"].items()}
    counts = sorted(map(len, found.values()))
    kept = sum(len(set(found[m]) & set(_partitions(case["members"][m]["owned"]))) for m in found)
    if found == expected:
        is_same = counts == case["countsSorted"] and kept == case["retained"]
        return None if is_same else f"{counts} partitions, {kept} kept"
    if not exact and case["listOrderSensitive"] and _sorted(found) == _sorted(expected):
        return None
    if exact or not case["orderSensitive"]:
        return f"assigns {found}, not {expected}"
    given = [partition for partitions in found.values() for partition in partitions]
    if found.keys() != expected.keys() or counts != case["countsSorted"] or len(given) != len(set(given)):
        return f"{counts} partitions, not {case['countsSorted']}, or one of them twice"
    if any(p.topic not in subscriptions[m].topics for m, partitions in found.items() for p in partitions):
        return "a member has what it is not subscribed to"
    return None


def _sorted(assignment: Assignment) -> Assignment:
    return {member_id: tuple(sorted(partitions)) for member_id, partitions in assignment.items()}
