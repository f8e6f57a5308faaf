"""The server assignor "simple" of share groups."""

from dataclasses import replace

import pytest

from coordinator_core.live.assignors.errors import AssignorError
from coordinator_core.live.assignors.server_simple import assign_simple
from tests.coordinator_core.live.assignors.groups import (
    A,
    small_group,
)


@pytest.mark.parametrize("subscriptions", [["ab"], ["a", "ab"]])
def test_a_topic_must_exist(subscriptions: list[str]) -> None:
    """Kafka throws PartitionAssignorException."""
    with pytest.raises(AssignorError):
        assign_simple(replace(small_group(*subscriptions), partition_counts={A: 3}))
