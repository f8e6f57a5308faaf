"""Heartbeats of streams groups: named cases of the rules, in addition to the traces of Kafka's own."""

import pytest
from immutables import Map

from coordinator_core.live.coordinator.image import image_of
from coordinator_core.live.streams.messages import Endpoint, StatusCode, TaskIds
from schemas.consumer_offsets import RecordType as T
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.coordinator.clients import GROUP
from tests.coordinator_core.live.streams.streams_clients import (
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    TOPOLOGY,
    StreamsClients,
    commit,
    error_of,
    response_of,
    statuses,
    two_members,
)


def types(clients: StreamsClients, since: int = 0) -> list[T]:
    return [entry.record.record_type for entry in clients.records[since:]]


def test_the_first_heartbeat_writes_the_whole_group() -> None:
    """Member, topology, group epoch, target and its epoch, current assignment; the member has all tasks at once."""
    clients = StreamsClients()
    response = response_of(clients.enter("a"))
    assert types(clients) == [
        T.STREAMS_GROUP_MEMBER_METADATA,
        T.STREAMS_GROUP_TOPOLOGY,
        T.STREAMS_GROUP_METADATA,
        T.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER,
        T.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA,
        T.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    ]
    assert (response.member_epoch, response.active_tasks) == (2, (TaskIds("0", (0, 1, 2, 3)),))
    assert clients.streams.state == "Stable"


def test_epochs() -> None:
    """The present one passes; the one before only while the member owns no more than it was given."""
    clients = two_members()
    clients.owning("a", 0, 1, 2, 3)
    clients.owning("a", *clients.tasks("a"))
    before, now = clients.streams.members["a"].previous_member_epoch, clients.streams.members["a"].member_epoch
    owned = {"active_tasks": (TaskIds("0", tuple(clients.tasks("a"))),), "standby_tasks": (), "warmup_tasks": ()}
    assert response_of(clients.heartbeat("a", before, **owned)).member_epoch == now
    assert error_of(clients.heartbeat("a", before))[0] == ErrorCode.FENCED_MEMBER_EPOCH
    too_much = {**owned, "active_tasks": (TaskIds("0", (0, 1, 2, 3)),)}
    assert error_of(clients.heartbeat("a", before, **too_much))[0] == ErrorCode.FENCED_MEMBER_EPOCH
    assert "greater member epoch" in error_of(clients.heartbeat("a", now + 1))[1]
    assert "smaller member epoch" in error_of(clients.heartbeat("a", before - 1, **owned))[1]
    assert error_of(clients.heartbeat("nobody", 1))[0] == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_delay_ends_with_the_group() -> None:
    """Deleted during the delay: its timer does not hit the next group of this id."""
    clients = StreamsClients(group_streams_initial_rebalance_delay_ms=3000)
    clients.enter("a")
    clients.heartbeat("a", -1)
    clients.ask("delete_groups", (GROUP,))
    clients.wait(3000)
    assert clients.fired == []


@pytest.mark.parametrize("tasks", [TaskIds("0", (4,)), TaskIds("0", (-1,)), TaskIds("9", (0,))])
def test_tasks_which_the_topology_does_not_have(tasks: TaskIds) -> None:
    """A member cannot own them."""
    clients = StreamsClients()
    clients.enter("a")
    outcome = clients.heartbeat("a", active_tasks=(tasks,), standby_tasks=(), warmup_tasks=())
    assert error_of(outcome)[0] == ErrorCode.INVALID_REQUEST


def test_a_member_asks_all_to_shut_down() -> None:
    """Everybody learns who, until the last member is gone."""
    clients = StreamsClients()
    clients.enter("a")
    clients.enter("b")
    clients.heartbeat("a", shutdown_application=True)
    clients.heartbeat("b", shutdown_application=True)
    outcome = clients.heartbeat("b")
    assert statuses(outcome) == [StatusCode.SHUTDOWN_APPLICATION]
    assert "member a encountered" in (response_of(outcome).status or ())[0].status_detail
    clients.heartbeat("a", -1)
    assert StatusCode.SHUTDOWN_APPLICATION in statuses(clients.heartbeat("b"))
    clients.heartbeat("b", -1)
    assert statuses(clients.enter("c")) == []


def test_leaving_may_ask_all_to_shut_down() -> None:
    """The last word of a member."""
    clients = two_members()
    clients.heartbeat("a", -1, shutdown_application=True)
    assert statuses(clients.heartbeat("b")) == [StatusCode.SHUTDOWN_APPLICATION]


def test_endpoints_without_topics_are_not_reported() -> None:
    """Kafka fails here; a member can do nothing about it."""
    clients = StreamsClients()
    clients.coordinator.image = image_of([])
    assert response_of(clients.enter("a", user_endpoint=Endpoint("h", 1))).partitions_by_user_endpoint == ()


def test_static_members_are_not_there_yet() -> None:
    """Neither to come nor to leave."""
    clients = StreamsClients()
    clients.enter("a")
    assert error_of(clients.enter("b", instance_id="i"))[0] == ErrorCode.UNKNOWN_SERVER_ERROR
    assert error_of(clients.heartbeat("a", -2, instance_id="i"))[0] == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "a" in clients.streams.members


def test_groups_of_other_types() -> None:
    """A classic group with members is none of ours; an empty one gives way to who joins; what is not there is not."""
    clients = StreamsClients()
    assert error_of(clients.heartbeat("a", 1)) == (ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {GROUP} not found.")
    assert error_of(clients.heartbeat("a", -1)) == (ErrorCode.GROUP_ID_NOT_FOUND, f"Group {GROUP} not found.")
    clients.join()
    for epoch in (-1, 0, 1):
        refused = clients.heartbeat("a", epoch, topology=TOPOLOGY)
        assert error_of(refused) == (ErrorCode.GROUP_ID_NOT_FOUND, f"Group {GROUP} is not a streams group.")
    other = StreamsClients()
    other.ask("commit_offset", commit(epoch=-1, member_id=""))
    since = len(other.records)
    other.enter("a")
    assert types(other, since)[:2] == [T.GROUP_METADATA, T.STREAMS_GROUP_MEMBER_METADATA]
    assert other.streams.members


def test_what_a_reload_keeps() -> None:
    """Members have a session again, who has tasks to give up its time-out; what the cluster has is looked up again."""
    clients = two_members()
    clients.owning("a", 0, 1, 2, 3)
    clients.coordinator.reload(now_ms=clients.now_ms)
    clients.wait(REBALANCE_TIMEOUT_MS)
    assert clients.fired == [f"rebalance-timeout-{GROUP}-a"]
    clients.wait(SESSION_TIMEOUT_MS)
    assert clients.fired[1:] == [f"session-timeout-{GROUP}-b"]
    assert clients.streams.state == "Empty"


def test_a_refused_write_changes_nothing() -> None:
    """The member is not there, the group neither, and the next try does all of it."""
    clients = StreamsClients()
    clients.log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert error_of(clients.enter("a"))[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert clients.coordinator.group(GROUP) is None
    clients.enter("a")
    clients.log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
    clients.enter("b")
    assert list(clients.streams.members) == ["a"]
    clients.enter("b")
    assert len(clients.streams.target_assignment) == 2


def test_a_member_which_could_not_be_fenced_is_tried_again() -> None:
    """Half a second later."""
    clients = StreamsClients()
    clients.enter("a")
    clients.log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
    clients.wait(SESSION_TIMEOUT_MS)
    assert "a" in clients.streams.members
    clients.wait(500)
    assert clients.streams.members == Map()


def test_a_group_which_was_forgotten_begins_again() -> None:
    """What was known of the one before does not count for the next of its id."""
    clients = StreamsClients()
    for _ in range(3):
        clients.enter("a", user_endpoint=Endpoint("h", 1))
    assert clients.coordinator.dump()[GROUP]["group"]["endpointInformationEpoch"] == 2
    clients.heartbeat("a", -1)
    clients.coordinator.forget_group(GROUP)
    clients.enter("a", user_endpoint=Endpoint("h", 1))
    assert clients.coordinator.dump()[GROUP]["group"]["endpointInformationEpoch"] == 0


def test_endpoints_of_a_group_that_became_classic_are_gone() -> None:
    """The dump tells of streams groups only what they are."""
    clients = StreamsClients()
    clients.enter("a", user_endpoint=Endpoint("h", 1))
    clients.enter("a")
    clients.heartbeat("a", -1)
    clients.coordinator.forget_group(GROUP)
    assert GROUP not in clients.coordinator.dump()
