"""The server assignor "uniform"."""

from dataclasses import replace

import pytest

from coordinator_core.live.assignors.errors import AssignorError
from coordinator_core.live.assignors.server_group import MemberSpec
from coordinator_core.live.assignors.server_uniform import assign_uniform
from tests.coordinator_core.live.assignors.groups import (
    A,
    B,
    small_group,
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
