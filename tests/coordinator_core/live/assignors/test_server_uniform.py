"""The server assignor "uniform"."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.live.assignors.errors import AssignorError
from coordinator_core.live.assignors.server_group import GroupSpec, MemberSpec
from coordinator_core.live.assignors.server_uniform import assign_uniform
from tests.coordinator_core.live.assignors.groups import (
    A,
    B,
    owners,
    server_groups,
    sizes,
    small_group,
    subscribed_partitions,
    with_assignment,
)


@pytest.mark.parametrize("subscriptions", [["ab"], ["a", "ab"]])
def test_a_topic_must_exist(subscriptions: list[str]) -> None:
    """Kafka throws PartitionAssignorException."""
    with pytest.raises(AssignorError):
        assign_uniform(replace(small_group(*subscriptions), partition_counts={A: 3}))


def test_a_partition_must_exist() -> None:
    """Where members differ, Kafka fails on a partition which the topic does not have."""
    members = {"m0": MemberSpec((A,), {A: (3,)}), "m1": MemberSpec((A, B))}
    with pytest.raises(AssignorError):
        assign_uniform(replace(small_group("a", "ab"), members=members))


def test_what_two_have_is_too_much() -> None:
    """Where partitions that do not exist fill quotas, others are left over: Kafka throws."""
    members = {"m0": MemberSpec((A,), {A: (5, 6)}), "m1": MemberSpec((A,))}
    with pytest.raises(AssignorError):
        assign_uniform(replace(small_group("a", "a"), members=members))


@given(server_groups())
def test_every_partition_has_one_owner(spec: GroupSpec) -> None:
    """All that is subscribed is given out once, to a subscriber."""
    answer = assign_uniform(spec)
    assert owners(answer) == dict.fromkeys(subscribed_partitions(spec), 1)
    for member_id, topics in answer.items():
        assert topics.keys() <= set(spec.members[member_id].subscribed_topic_ids)


@given(server_groups(is_same_for_all=True))
def test_same_subscriptions_make_even_sizes(spec: GroupSpec) -> None:
    """Sizes differ by one at most."""
    answer = assign_uniform(spec)
    assert max(sizes(answer)) - min(sizes(answer)) <= 1


@given(server_groups() | server_groups(is_same_for_all=True))
def test_nothing_changes_where_nothing_changed(spec: GroupSpec) -> None:
    """An answer which was taken up is given again."""
    answer = assign_uniform(spec)
    assert assign_uniform(with_assignment(spec, answer)) == answer


@given(server_groups(is_same_for_all=True), st.data())
def test_who_stays_keeps_what_it_has(spec: GroupSpec, data: st.DataObject) -> None:
    """When a member leaves, its partitions go to the others, who lose none of theirs."""
    answer = assign_uniform(spec)
    gone = data.draw(st.sampled_from(list(spec.members)))
    after = assign_uniform(with_assignment(spec, answer, without=gone))
    for member_id, topics in after.items():
        for topic_id, partitions in answer[member_id].items():
            assert set(partitions) <= set(topics[topic_id])
