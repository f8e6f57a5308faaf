"""The server assignor "range"."""

from dataclasses import replace

import pytest

from coordinator_core.live.assignors.errors import AssignorError
from coordinator_core.live.assignors.server_range import assign_range
from tests.coordinator_core.live.assignors.groups import (
    A,
    small_group,
)


def test_a_topic_must_exist() -> None:
    """Kafka throws PartitionAssignorException."""
    with pytest.raises(AssignorError):
        assign_range(replace(small_group("ab"), partition_counts={A: 3}))
