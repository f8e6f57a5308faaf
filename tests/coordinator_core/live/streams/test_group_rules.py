"""What offsets, deletion, lists and descriptions ask of a streams group."""

import pytest
from msgspec.structs import replace

from coordinator_core.live.coordinator.image import Topic, image_of
from coordinator_core.live.offsets.messages import (
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
)
from coordinator_core.live.streams.messages import RequestSubtopology, RequestTopology, TaskIds, TopicInfo
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.coordinator.clients import GROUP
from tests.coordinator_core.live.streams.streams_clients import (
    TOPIC_ID,
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


def test_describing() -> None:
    """Topology, epochs, members with what they have and are to have; others are not found."""
    clients = committing()
    described, unknown = clients.ask("streams_group_describe", (GROUP, "x")).response
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Reconciling", 3, 3)
    assert described.topology.subtopologies[0].source_topics == ("in",)
    tasks = {
        member.member_id: (member.assignment.active_tasks, member.target_assignment.active_tasks)
        for member in described.members
    }
    target = clients.streams.target_assignment
    assert tasks == {
        "a": ((TaskIds("0", target["a"].active["0"]),),) * 2,
        "b": ((), (TaskIds("0", target["b"].active["0"]),)),
    }
    assert (unknown.error_code, unknown.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group x not found.")


def test_internal_topics_are_described_with_their_partitions() -> None:
    """Once they are there."""
    changelog = TopicInfo("log", replication_factor=2)
    topology = RequestTopology(0, (RequestSubtopology("0", ("in",), state_changelog_topics=(changelog,)),))
    clients = StreamsClients()
    clients.enter("a", topology=topology)
    counts = []
    for count in (1, 4):
        image = image_of([Topic("in", TOPIC_ID, 4), Topic("log", LOG_ID, count)])
        clients.coordinator.update_metadata(image, ["log"], now_ms=clients.now_ms)
        clients.heartbeat("a")
        (described,) = clients.ask("streams_group_describe", (GROUP,)).response
        counts.append(described.topology.subtopologies[0].state_changelog_topics[0].partitions)
    assert counts == [0, 4]


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
    (described,) = clients.ask("streams_group_describe", (GROUP,)).response
    assert (described.group_state, described.topology) == ("NotReady", None)
