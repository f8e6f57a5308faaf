"""The server assignor "range"."""

from dataclasses import replace

import pytest
from hypothesis import given

from coordinator_core.live.assignors.errors import AssignorError
from coordinator_core.live.assignors.server_group import GroupSpec
from coordinator_core.live.assignors.server_range import assign_range
from coordinator_core.replay.consumer.subscriptions import SubscriptionType
from tests.coordinator_core.live.assignors.groups import (
    A,
    owners,
    server_groups,
    shown,
    small_group,
    subscribed_partitions,
)


@pytest.mark.parametrize(
    ("subscriptions", "expected"),
    [
        (["ab"], "a0 a1 a2 b0 b1"),
        (["ab"] * 2, "a0 a1 b0 | a2 b1"),
        (["ab"] * 3, "a0 b0 | a1 b1 | a2"),
        (["ab"] * 4, "a0 b0 | a1 b1 | a2 | -"),
        (["a", "b", "ab"], "a0 a1 | b0 | a2 b1"),
        (["", "b"], "- | b0 b1"),
    ],
)
def test_assign_range(subscriptions: list[str], expected: str) -> None:
    """What a broker of 4.3.1 answered."""
    assert shown(assign_range(small_group(*subscriptions))) == expected


def test_the_first_represents_all_where_the_group_is_said_to_be_homogeneous() -> None:
    """What a broker of 4.3.1 does between the resolution of a pattern and the next change of a member."""
    spec = replace(small_group("b", "ab"), subscription_type=SubscriptionType.HOMOGENEOUS)
    assert shown(assign_range(spec)) == "b0 | b1"
    spec = replace(small_group("", "ab"), subscription_type=SubscriptionType.HOMOGENEOUS)
    assert shown(assign_range(spec)) == "- | -"


def test_an_empty_group_has_an_empty_answer() -> None:
    """Nobody is there to get anything."""
    assert assign_range(small_group()) == {}


def test_a_topic_must_exist() -> None:
    """Kafka throws PartitionAssignorException."""
    with pytest.raises(AssignorError):
        assign_range(replace(small_group("ab"), partition_counts={A: 3}))


@given(server_groups())
def test_pieces_are_contiguous_and_even(spec: GroupSpec) -> None:
    """Each partition has one owner, a member's partitions of a topic are neighbours, and pieces differ by one."""
    answer = assign_range(spec)
    assert answer.keys() == spec.members.keys()
    assert owners(answer) == dict.fromkeys(subscribed_partitions(spec), 1)
    for topic_id in spec.partition_counts:
        pieces = [
            answer[member_id].get(topic_id, ())
            for member_id, member in spec.members.items()
            if topic_id in member.subscribed_topic_ids
        ]
        assert all(piece == tuple(range(piece[0], piece[-1] + 1)) for piece in pieces if piece)
        assert not pieces or max(map(len, pieces)) - min(map(len, pieces)) <= 1
