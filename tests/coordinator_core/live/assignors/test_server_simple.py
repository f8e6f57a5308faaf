"""The server assignor "simple" of share groups."""

from dataclasses import replace

import pytest
from hypothesis import given

from coordinator_core.live.assignors.errors import AssignorError, NoMemberLeft
from coordinator_core.live.assignors.server_group import GroupSpec, MemberSpec
from coordinator_core.live.assignors.server_simple import assign_simple
from tests.coordinator_core.live.assignors.groups import (
    A,
    owners,
    server_groups,
    sizes,
    small_group,
    subscribed_partitions,
    with_assignment,
)


def test_kafka_s_bug_is_an_error_of_its_own() -> None:
    """Partitions which are not assignable any more take places, and Kafka then looks for a member in vain."""
    members = {"m0": MemberSpec((A,), {A: (0,)}), "m1": MemberSpec((A,))}
    spec = replace(small_group("a", "a"), members=members, assignable={A: frozenset({1})})
    with pytest.raises(NoMemberLeft):
        assign_simple(spec)


@pytest.mark.parametrize("subscriptions", [["ab"], ["a", "ab"]])
def test_a_topic_must_exist(subscriptions: list[str]) -> None:
    """Kafka throws PartitionAssignorException."""
    with pytest.raises(AssignorError):
        assign_simple(replace(small_group(*subscriptions), partition_counts={A: 3}))


@given(server_groups() | server_groups(is_same_for_all=True))
def test_every_partition_has_a_member(spec: GroupSpec) -> None:
    """All that is subscribed has a subscriber, and nothing else has."""
    answer = assign_simple(spec)
    assert owners(answer).keys() == subscribed_partitions(spec)
    for member_id, topics in answer.items():
        assert topics.keys() <= set(spec.members[member_id].subscribed_topic_ids)


@given(server_groups(is_same_for_all=True))
def test_no_member_has_more_than_its_part(spec: GroupSpec) -> None:
    """Nobody has more than the places of the partitions, divided by the members and rounded up."""
    answer = assign_simple(spec)
    partition_count, member_count = len(subscribed_partitions(spec)), len(spec.members)
    sharing = -(-member_count // partition_count)
    assert max(sizes(answer)) <= -(-sharing * partition_count // member_count)
    assert max(owners(answer).values()) <= sharing


@given(server_groups() | server_groups(is_same_for_all=True))
def test_nothing_is_taken_where_nothing_changed(spec: GroupSpec) -> None:
    """Who has its part keeps it; where a place was left open it may be filled now."""
    answer = assign_simple(spec)
    again = assign_simple(with_assignment(spec, answer))
    for member_id, topics in answer.items():
        for topic_id, partitions in topics.items():
            assert set(partitions) <= set(again[member_id][topic_id])
