"""What offsets, and deletion ask of a streams group."""

import pytest
from msgspec.structs import replace

from coordinator_core.live.offsets.messages import (
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
)
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.coordinator.clients import GROUP
from tests.coordinator_core.live.streams.streams_clients import (
    StreamsClients,
    commit,
    error_of,
    put,
    two_members,
)

LOG_ID = "A" * 21 + "g"


def committing() -> StreamsClients:
    """a is at epoch 4 or so with two tasks since epoch 2, and has given up two."""
    clients = two_members()
    clients.owning("a", 0, 1, 2, 3)
    clients.owning("a", *clients.tasks("a"))
    return clients


@pytest.mark.parametrize(
    ("past", "topic", "is_own", "text"),
    [
        (0, "in", True, None),
        (0, "in", False, None),
        (1, "in", True, None),
        (1, "in", False, "is not assigned or pending revocation for member."),
        (1, "other", True, "Topic other is not in the topology."),
        (2, "in", True, "is older than assignment epoch 2 for task 0-"),
        (-1, "in", True, "is newer than current member epoch"),
    ],
)
def test_offset_commits_of_members(past: int, topic: str, is_own: bool, text: str | None) -> None:
    """At its epoch a member commits anything; at an older one for tasks which it has had since."""
    clients = committing()
    own = clients.tasks("a")
    partition = own[0] if is_own else next(number for number in range(4) if number not in own)
    epoch = clients.streams.members["a"].member_epoch - past
    outcome = clients.ask("commit_offset", commit(epoch, topic=topic, partition=partition))
    if text is None:
        assert outcome.error is None
    else:
        code, message = error_of(outcome)
        assert code == ErrorCode.STALE_MEMBER_EPOCH
        assert text in message


def test_a_group_without_topology() -> None:
    """Compaction or a cut log may leave one: nothing is read, an older epoch cannot be looked at, no task assigned."""
    clients = committing()
    put(clients, replace(clients.streams, topology=None))
    epoch = clients.streams.members["a"].member_epoch
    code, text = error_of(clients.ask("commit_offset", commit(epoch - 1)))
    assert (code, text) == (ErrorCode.STALE_MEMBER_EPOCH, "Topology is not available for offset commit validation.")
    delete = OffsetDeleteRequest(GROUP, (OffsetDeleteTopic("in", (OffsetDeletePartition(0),)),))
    answer = clients.ask("delete_offsets", delete).response
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert error_of(clients.heartbeat("a"))[0] == ErrorCode.UNKNOWN_SERVER_ERROR
    assert clients.streams.state.value == "NotReady"
