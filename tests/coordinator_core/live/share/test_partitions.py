"""State of a group's share partitions: initialising, initialised, being deleted; altered and deleted offsets."""

from collections.abc import Mapping

import pytest

from coordinator_core.live.coordinator.operation import Outcome
from coordinator_core.live.offsets.messages import DeletedTopic
from coordinator_core.live.share.messages import (
    AlterOffsetsPartition,
    AlterOffsetsTopic,
    AlterShareGroupOffsetsRequest,
    CompleteOffsetDeletion,
    DeleteOffsetsTopic,
    DeleteShareGroupOffsetsRequest,
    ShareStatePartitions,
)
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.coordinator.clients import GROUP
from tests.coordinator_core.live.share.share_clients import BAR, BAZ, FOO, STATE_RECORD, ShareClients, refusal_of

RETRY_INTERVAL_MS = 30_000


def initializing() -> ShareClients:
    """A group with member a, whose topic foo is being initialised."""
    clients = ShareClients()
    clients.try_heartbeat("a", 0, "foo")
    clients.written()
    return clients


def empty(*topics: str) -> ShareClients:
    """A group without members; the topics are initialised."""
    clients = ShareClients()
    clients.join_share("a", *topics)
    clients.try_heartbeat("a", -1)
    clients.written()
    return clients


def columns(clients: ShareClients) -> tuple[dict[str, object], dict[str, object], dict[str, str]]:
    """The state: initialising, initialised, being deleted."""
    state_partitions = clients.state_partitions
    return dict(state_partitions.initializing), dict(state_partitions.initialized), dict(state_partitions.deleting)


def alter(clients: ShareClients, topic: str, offsets: Mapping[int, int]) -> Outcome:
    partitions = tuple(AlterOffsetsPartition(number, offset) for number, offset in offsets.items())
    request = AlterShareGroupOffsetsRequest(GROUP, (AlterOffsetsTopic(topic, partitions),))
    return clients.ask("alter_share_group_offsets", request)


def delete(clients: ShareClients, *topics: str) -> Outcome:
    names = tuple(DeleteOffsetsTopic(topic) for topic in topics)
    return clients.ask("initiate_delete_share_group_offsets", DeleteShareGroupOffsetsRequest(GROUP, names))


# --- initialisation ---


@pytest.mark.parametrize("partitions", [{}, {BAR: (0,)}])
def test_nothing_to_take_back_writes_nothing(partitions: dict[str, tuple[int, ...]]) -> None:
    """Where nothing is named, or nothing is being initialised."""
    clients = ShareClients()
    clients.join_share("a", "foo")
    clients.written()
    clients.ask("uninitialize_share_group_state", ShareStatePartitions(GROUP, partitions))
    clients.initialized({})
    assert clients.written() == []


def test_a_picture_which_the_log_refused_has_no_time() -> None:
    """The retry interval counts from the last state that was written."""
    clients = initializing()
    clients.wait(RETRY_INTERVAL_MS - 10)
    clients.log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert clients.initialized({FOO: (0,)}).error is not None
    clients.wait(10)
    assert clients.share_heartbeat("a").initialize_share_state is not None


def test_a_group_which_is_gone_is_not_made_by_a_late_initialisation() -> None:
    """Kafka fails on its own there; the answer is the same."""
    clients = ShareClients()
    assert refusal_of(clients.initialized({FOO: (0,)}))[0] == ErrorCode.UNKNOWN_SERVER_ERROR
    assert clients.coordinator.dump() == {}


def test_initialised_partitions_of_a_group() -> None:
    """For DescribeShareGroupOffsets; an unknown group has none."""
    clients = empty("foo", "bar")
    assert clients.ask("initialized_share_group_partitions", GROUP).response == {FOO: (0, 1, 2), BAR: (0, 1)}
    assert clients.ask("initialized_share_group_partitions", "x").response == {}


# --- deletion ---


def test_topics_which_are_gone_leave_every_column() -> None:
    """Of all groups; a group which has nothing to do with them writes nothing."""
    clients = empty("foo", "bar")
    alter(clients, "baz", {0: 1})
    clients.written()
    for topic, topic_id, count in (("x", "X" * 22, 0), ("foo", FOO, 1), ("baz", BAZ, 1)):
        clients.ask("maybe_cleanup_share_group_state", (DeletedTopic(topic, topic_id),))
        assert clients.written() == [STATE_RECORD] * count
    assert columns(clients) == ({}, {BAR: ("bar", (0, 1))}, {})
    delete(clients, "bar")
    clients.ask("maybe_cleanup_share_group_state", (DeletedTopic("bar", BAR),))
    assert columns(clients) == ({}, {}, {})


# --- offsets ---


def test_who_may_alter_and_delete_offsets() -> None:
    """Only groups without members; not those of another type."""
    clients = initializing()
    assert refusal_of(alter(clients, "foo", {0: 1})) == (ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
    deletion = delete(clients, "foo").response
    assert (deletion.error_code, deletion.error_message) == (ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
    others = ShareClients()
    others.commit()
    text = "Group g is not a share group."
    assert refusal_of(alter(others, "foo", {0: 1})) == (ErrorCode.GROUP_ID_NOT_FOUND, text)
    assert delete(others, "foo").response.error_message == text
    assert delete(ShareClients(), "foo").response.error_message == "Group g not found."


def test_offsets_are_deleted_in_two_parts() -> None:
    """Initialised topics are being deleted until the share coordinator has done it."""
    clients = empty("foo", "bar")
    deletion = delete(clients, "foo", "baz", "nothing").response
    assert deletion.partitions == {FOO: (0, 1, 2)}
    assert deletion.topic_names == {FOO: "foo"}
    assert [(topic.topic_name, topic.error_message) for topic in deletion.topics] == [
        ("baz", "There is no offset information to delete."),
        ("nothing", "This server does not host this topic-partition."),
    ]
    assert columns(clients) == ({}, {BAR: ("bar", (0, 1))}, {FOO: "foo"})
    completion = CompleteOffsetDeletion(GROUP, {FOO: "foo"}, deletion.topics)
    response = clients.ask("complete_delete_share_group_offsets", completion).response
    assert [(topic.topic_name, topic.error_code) for topic in response.responses] == [
        ("foo", 0),
        ("baz", 3),
        ("nothing", 3),
    ]
    assert columns(clients) == ({}, {BAR: ("bar", (0, 1))}, {})


def test_a_group_without_a_picture_has_nothing_to_delete() -> None:
    """No record, no topic in the answer, as in Kafka."""
    clients = ShareClients()
    clients.join_share("a", "nothing")
    clients.try_heartbeat("a", -1)
    clients.written()
    deletion = delete(clients, "foo").response
    assert (deletion.partitions, deletion.topics, clients.written()) == ({}, (), [])
    completion = CompleteOffsetDeletion(GROUP, {FOO: "foo"})
    assert clients.ask("complete_delete_share_group_offsets", completion).response.responses == ()
