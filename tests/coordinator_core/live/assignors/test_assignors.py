"""All assignors against the traces of Kafka's own, and a judge that finds a fault when there is one."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.live.assignors import CLIENT_ASSIGNORS, CONSUMER_GROUP_ASSIGNORS, SHARE_GROUP_ASSIGNORS
from coordinator_core.live.assignors.client_group import Assignment, Subscription, Topic, TopicPartition
from coordinator_core.live.assignors.errors import AssignorError
from coordinator_core.live.assignors.server_group import GroupAssignment, GroupSpec
from tests.conformance.families import assignors
from tests.conformance.families.cases import read_cases

TRACES = Path(__file__).parents[3] / "data" / "traces"
SERVER_CASES = 750
CLIENT_CASES = 500


@pytest.mark.parametrize("name", [*CONSUMER_GROUP_ASSIGNORS, *SHARE_GROUP_ASSIGNORS])
def test_server_assignors_agree_with_kafka(name: str) -> None:
    """Every traced answer, or exception, is ours too: exactly, whatever order it hangs on."""
    path = TRACES / f"assignor_server_{name}.jsonl.gz"
    assert assignors.run(path, exact=True) == (SERVER_CASES, SERVER_CASES, [])
    assert assignors.run(path) == (SERVER_CASES, SERVER_CASES, [])


@pytest.mark.parametrize("name", CLIENT_ASSIGNORS)
def test_client_assignors_agree_with_kafka(name: str) -> None:
    """Every traced answer is ours too, with the order of its lists."""
    path = TRACES / f"assignor_client_{name}.jsonl.gz"
    assert assignors.run(path, exact=True) == (CLIENT_CASES, CLIENT_CASES, [])
    assert assignors.run(path) == (CLIENT_CASES, CLIENT_CASES, [])


def lose_a_partition(answer: GroupAssignment) -> GroupAssignment:
    """The first partition of the first member who has one is gone."""
    done = False
    changed: GroupAssignment = {}
    for member_id, topics in answer.items():
        changed[member_id] = {}
        for topic_id, partitions in topics.items():
            changed[member_id][topic_id] = partitions if done else partitions[1:]
            done = done or bool(partitions)
    return changed


def share_a_partition(answer: GroupAssignment) -> GroupAssignment:
    """The last member has all that the first has."""
    first, last = next(iter(answer)), list(answer)[-1]
    return answer | {last: answer[last] | answer[first]}


def rotate_members(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Everybody has what the next one should have."""
    members = list(answer)
    return {member_id: answer[members[place - 1]] for place, member_id in enumerate(members)}


@pytest.mark.parametrize("damage", [lose_a_partition, share_a_partition, rotate_members])
@pytest.mark.parametrize("name", [*CONSUMER_GROUP_ASSIGNORS, *SHARE_GROUP_ASSIGNORS])
def test_a_damaged_server_assignor_is_found(monkeypatch: pytest.MonkeyPatch, name: str, damage: Any) -> None:
    """Also where the judge allows for other orders, most cases of a wrong assignor fail."""
    right = assignors.SERVER_ASSIGNORS[name]

    def wrong(spec: GroupSpec) -> GroupAssignment:
        return damage(answer) if (answer := right(spec)) else answer

    monkeypatch.setitem(assignors.SERVER_ASSIGNORS, name, wrong)
    cases, passed, failures = assignors.run(TRACES / f"assignor_server_{name}.jsonl.gz")
    assert (cases, len(failures)) == (SERVER_CASES, SERVER_CASES - passed)
    assert passed < SERVER_CASES / 2


@pytest.mark.parametrize("name", CLIENT_ASSIGNORS)
def test_a_damaged_client_assignor_is_found(name: str) -> None:
    """A member who has another's partitions is a fault in all cases where the two differ."""
    right = CLIENT_ASSIGNORS[name]

    def wrong(topics: Mapping[str, Topic], subscriptions: Mapping[str, Subscription]) -> Assignment:
        return rotate_members(right(topics, subscriptions))

    for case in read_cases(TRACES / f"assignor_client_{name}.jsonl.gz"):
        answer = right(*assignors.client_group(case))
        if rotate_members(answer) != answer and not case["orderSensitive"]:
            assert assignors.client_fault(case, wrong) is not None


SENSITIVE = {
    "id": 1,
    "assignor": "uniform",
    "round": 0,
    "subscriptionType": "HOMOGENEOUS",
    "topics": [{"topicId": "aphBLT6cwzX5gtVuaW0eHw", "name": "t", "partitions": 3}],
    "members": {
        "m1": {"instanceId": None, "subscribedTopicIds": ["aphBLT6cwzX5gtVuaW0eHw"], "previous": {}},
        "m2": {"instanceId": None, "subscribedTopicIds": ["aphBLT6cwzX5gtVuaW0eHw"], "previous": {}},
    },
    "assignable": None,
    "memberIterationOrder": ["m1", "m2"],
    "assignment": {"m1": {"aphBLT6cwzX5gtVuaW0eHw": [1]}, "m2": {"aphBLT6cwzX5gtVuaW0eHw": [0, 2]}},
    "exception": None,
    "orderSensitive": True,
    "countsOrderInvariant": True,
    "retained": 0,
    "retainedRange": [0, 0],
    "countsSorted": [1, 2],
}


def test_another_order_passes_only_where_order_matters(tmp_path: Path) -> None:
    """An answer that Kafka gives in another order passes if the case is sensitive to it, but never as exact."""
    path = tmp_path / "assignor_server_uniform.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as lines:
        lines.write(json.dumps(SENSITIVE) + "\n")
        lines.write(json.dumps(SENSITIVE | {"orderSensitive": False}) + "\n")
        lines.write(json.dumps(SENSITIVE | {"countsSorted": [0, 3]}) + "\n")
        lines.write(json.dumps(SENSITIVE | {"retainedRange": [1, 2]}) + "\n")
    assert assignors.run(path)[:2] == (4, 1)
    assert assignors.run(path, exact=True)[:2] == (4, 0)


def raises(spec: GroupSpec) -> GroupAssignment:
    """An assignor that fails, but not as Kafka's may."""
    raise AssignorError("no")


def test_exceptions_are_part_of_the_answer() -> None:
    """An error where Kafka answers, an answer where it throws, and another error than Kafka's are all faults."""
    thrown = SENSITIVE | {"exception": "java.util.NoSuchElementException", "assignment": None}
    assert assignors.server_fault(SENSITIVE, raises) == "raises AssignorError: no"
    assert assignors.server_fault(thrown, raises) == "raises AssignorError: no"
    assert assignors.server_fault(thrown, CONSUMER_GROUP_ASSIGNORS["uniform"]) == (
        "answers where Kafka throws java.util.NoSuchElementException"
    )


def test_answers_which_no_order_gives_are_faults() -> None:
    """A case that is sensitive to order fails where an answer gives a member what it may not have, or what another
    has.
    """
    topic_id = "aphBLT6cwzX5gtVuaW0eHw"
    answers: list[GroupAssignment] = [
        {"m1": {topic_id: (0,)}, "m2": {topic_id: (1, 3)}},
        {"m1": {topic_id: (0,)}, "m2": {topic_id: (0, 1)}},
        {"m1": {topic_id: (0,)}, "m2": {"JlI6asN9z1uWnzr0ld53Ug": (1, 2)}},
    ]
    for answer in answers:

        def answers_so(_spec: object, answer: GroupAssignment = answer) -> GroupAssignment:
            return answer

        assert assignors.server_fault(SENSITIVE, answers_so) is not None
    assert assignors.server_fault(SENSITIVE, lambda _spec: {"m1": {topic_id: (0, 2)}, "m2": {topic_id: (1,)}}) is None


CLIENT_CASE = {
    "id": 1,
    "assignor": "range",
    "round": 0,
    "topics": [{"name": "t", "partitions": 3, "replicaRacks": None}],
    "members": {
        name: {"topics": ["t"], "owned": [], "generation": -1, "instanceId": None, "rackId": None, "userData": None}
        for name in ("m1", "m2")
    },
    "memberIterationOrder": ["m1", "m2"],
    "assignment": {"m1": [["t", 0], ["t", 1]], "m2": [["t", 2]]},
    "orderSensitive": False,
    "listOrderSensitive": False,
    "retained": 0,
    "countsSorted": [1, 2],
}


@pytest.mark.parametrize(
    ("answer", "of_lists", "of_answers"),
    [
        ({"m1": [0, 1], "m2": [2]}, True, True),
        ({"m1": [1, 0], "m2": [2]}, True, True),
        ({"m1": [0], "m2": [2, 1]}, False, True),
        ({"m1": [0], "m2": [1]}, False, False),
        ({"m1": [0, 1], "m2": [1]}, False, False),
    ],
)
def test_what_order_excuses(answer: dict[str, list[int]], of_lists: bool, of_answers: bool) -> None:
    """Lists in another order pass where lists are sensitive, other owners where answers are, nothing as exact."""

    def assign(_topics: Mapping[str, Topic], _subscriptions: Mapping[str, Subscription]) -> Assignment:
        return {m: tuple(TopicPartition("t", number) for number in numbers) for m, numbers in answer.items()}

    is_same = answer == {"m1": [0, 1], "m2": [2]}
    assert (assignors.client_fault(CLIENT_CASE, assign) is None) == is_same
    lists = CLIENT_CASE | {"listOrderSensitive": True}
    assert (assignors.client_fault(lists, assign) is None) == of_lists
    answers = lists | {"orderSensitive": True}
    assert (assignors.client_fault(answers, assign) is None) == of_answers
    assert (assignors.client_fault(answers, assign, exact=True) is None) == is_same


def test_a_client_assignor_which_fails_or_strays() -> None:
    """An error is a fault, and so is a topic that the member is not subscribed to."""

    def fails(_topics: Mapping[str, Topic], _subscriptions: Mapping[str, Subscription]) -> Assignment:
        raise AssignorError("no")

    def strays(_topics: Mapping[str, Topic], _subscriptions: Mapping[str, Subscription]) -> Assignment:
        return {"m1": (TopicPartition("u", 0), TopicPartition("t", 0)), "m2": (TopicPartition("t", 1),)}

    sensitive = CLIENT_CASE | {"orderSensitive": True, "listOrderSensitive": True}
    assert assignors.client_fault(sensitive, fails) == "raises AssignorError: no"
    assert assignors.client_fault(sensitive, strays) == "a member has what it is not subscribed to"
    retained = CLIENT_CASE | {"retained": 1}
    assert assignors.client_fault(retained, CLIENT_ASSIGNORS["range"]) == "[1, 2] partitions, 0 kept"
