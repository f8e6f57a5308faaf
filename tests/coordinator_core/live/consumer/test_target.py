"""Tests of the target assignment of a consumer group: when it is computed, by which assignor, in which order."""

from collections import Counter

import pytest
from immutables import Map

from coordinator_core.live.consumer.target import assignor_name, update_target
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.image import Topic, image_of
from coordinator_core.live.coordinator.operation import Context
from coordinator_core.live.coordinator.shard import GroupCoordinator
from coordinator_core.replay.consumer.state import ConsumerGroup, ConsumerMember, ResolvedRegex
from coordinator_core.replay.consumer.subscriptions import (
    SubscriptionType,
    preferred_assignor,
    subscription_type,
    subscriptions_of,
)
from schemas.error_codes import ErrorCode
from tests.coordinator_core.logs import CountingLog

A, B = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
IMAGE = image_of([Topic("a", A, 3), Topic("b", B, 2)])
HOMOGENEOUS, HETEROGENEOUS = SubscriptionType.HOMOGENEOUS, SubscriptionType.HETEROGENEOUS


def group_of(*members: ConsumerMember, **fields: object) -> ConsumerGroup:
    static = Map({member.instance_id: member.member_id for member in members if member.instance_id is not None})
    everybody = Map({member.member_id: member for member in members})
    return ConsumerGroup("g", members=everybody, static_members=static, **fields)  # type: ignore[arg-type]


def context() -> Context:
    return Context(GroupCoordinator((), now_ms=5000, image=IMAGE, log=CountingLog()), 5000)


@pytest.mark.parametrize(
    ("asked", "before", "after", "expected"),
    [
        ("", None, None, "uniform"),
        ("range", None, None, "range"),
        ("range range uniform", None, "uniform", "uniform"),
        ("range range uniform", None, None, "range"),
        ("range range uniform uniform", "range", "uniform", "uniform"),
        ("uniform range", None, None, "uniform"),
        ("uniform range", "range", "range", "range"),
        ("uniform", None, "range", "range"),
        ("range", None, "uniform", "uniform"),
        ("range", "range", None, "uniform"),
    ],
)
def test_assignor_name(asked: str, before: str | None, after: str | None, expected: str) -> None:
    """The most wanted; among equals the first of Kafka's map of counts, where what one asks for goes and comes."""
    members = [ConsumerMember(f"m{place}", server_assignor=name) for place, name in enumerate(asked.split())]
    member, updated = ConsumerMember("m", server_assignor=before), ConsumerMember("m", server_assignor=after)
    assert assignor_name(context(), group_of(*members), member, updated) == expected


def test_the_assignor_of_a_group_described() -> None:
    """Without a member's new wish; none where nobody asks."""
    assert preferred_assignor(Counter()) is None
    assert preferred_assignor(Counter({"range": 1, "uniform": 1})) == "uniform"
    assert preferred_assignor(Counter({"range": 2, "uniform": 1})) == "range"


def test_an_assignor_which_the_broker_does_not_have_is_an_error() -> None:
    """It was asked for under other settings."""
    member = ConsumerMember("m", server_assignor="mine")
    with pytest.raises(Refused) as caught:
        update_target(context(), group_of(member), 2, member, member, None, [])
    assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    ("by_name", "by_regex", "regexes", "member_count", "expected"),
    [
        ({}, {}, {}, 2, HOMOGENEOUS),
        ({"a": 2, "b": 2}, {}, {}, 2, HOMOGENEOUS),
        ({"a": 2, "b": 1}, {}, {}, 2, HETEROGENEOUS),
        ({}, {"a": 1}, {"r": 2}, 2, HOMOGENEOUS),
        ({}, {"a": 1}, {"r": 1}, 2, HETEROGENEOUS),
        ({}, {"a": 1, "b": 2}, {"r": 2}, 2, HETEROGENEOUS),
        ({"a": 2}, {"a": 1}, {"r": 2}, 2, HETEROGENEOUS),
        ({"a": 2}, {}, {"r": 1, "q": 1}, 2, HETEROGENEOUS),
        ({"a": 2, "b": 0}, {}, {"r": 0}, 2, HOMOGENEOUS),
    ],
)
def test_subscription_type(
    by_name: dict[str, int],
    by_regex: dict[str, int],
    regexes: dict[str, int],
    member_count: int,
    expected: SubscriptionType,
) -> None:
    """All name the same topics, or all use one pattern and name none."""
    assert subscription_type(Counter(by_name), Counter(by_regex), Counter(regexes), member_count) == expected


def test_counts_are_made_once_and_belong_to_one_state_of_the_group() -> None:
    """A heartbeat which changes nothing finds them made."""
    group = group_of(
        ConsumerMember("m", subscribed_topic_names=("a",), subscribed_topic_regex="r", server_assignor="x")
    )
    known = subscriptions_of(group)
    assert subscriptions_of(group) is known
    assert (known.by_name, known.regexes, known.assignors) == ({"a": 1}, {"r": 1}, {"x": 1})
    other = group_of(*group.members.values(), resolved_regexes=Map({"r": ResolvedRegex(("b",), 0, 0)}))
    assert subscriptions_of(other).topic_names == {"a", "b"}
    assert other != group
