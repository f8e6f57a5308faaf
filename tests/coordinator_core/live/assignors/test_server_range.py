"""The server assignor "range"."""

from dataclasses import replace

import pytest
from hypothesis import given

from coordinator_core.live.assignors.errors import AssignorError
from coordinator_core.live.assignors.server_group import GroupSpec
from coordinator_core.live.assignors.server_range import assign_range
from tests.coordinator_core.live.assignors.groups import (
    A,
    owners,
    server_groups,
    small_group,
    subscribed_partitions,
)


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
