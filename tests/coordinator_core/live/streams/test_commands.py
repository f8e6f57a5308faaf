"""Heartbeats of streams groups: named cases of the rules, in addition to the traces of Kafka's own."""

import pytest
from immutables import Map
from msgspec.structs import replace

from coordinator_core.live.coordinator.image import Topic, image_of
from coordinator_core.live.streams.messages import (
    Endpoint,
    EndpointTopicPartition,
    RequestSubtopology,
    RequestTopology,
    StatusCode,
    TaskIds,
    TopicInfo,
)
from coordinator_core.replay.streams.state import UNRELEASED_TASKS, UNREVOKED_TASKS
from schemas.consumer_offsets import RecordType as T
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.coordinator.clients import GROUP
from tests.coordinator_core.live.streams.streams_clients import (
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    TOPIC_ID,
    TOPOLOGY,
    StreamsClients,
    commit,
    error_of,
    put,
    response_of,
    statuses,
    two_members,
)

OTHER_ID = "A" * 21 + "g"


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


def test_a_heartbeat_with_nothing_new_writes_nothing() -> None:
    """And has no tasks which the member knows; only the session restarts."""
    clients = StreamsClients()
    clients.enter("a")
    clients.owning("a", 0, 1, 2, 3)
    clients.wait(SESSION_TIMEOUT_MS - 1)
    written = len(clients.records)
    response = response_of(clients.heartbeat("a"))
    assert (response.active_tasks, response.status) == (None, ())
    clients.wait(SESSION_TIMEOUT_MS - 1)
    assert len(clients.records) == written
    assert "a" in clients.streams.members


def test_tasks_move_only_after_they_were_given_up() -> None:
    """Who has tasks is asked first; the other gets them when the first reports that it has none of them any more."""
    clients = two_members()
    assert clients.streams.members["b"].state == UNRELEASED_TASKS
    clients.owning("a", 0, 1, 2, 3)
    assert clients.streams.members["a"].state == UNREVOKED_TASKS
    kept = clients.tasks("a")
    assert len(kept) == 2
    response = response_of(clients.heartbeat("b"))
    assert (clients.tasks("b"), response.member_epoch) == ([], 3)
    clients.owning("a", *kept)
    clients.heartbeat("b")
    assert sorted(clients.tasks("a") + clients.tasks("b")) == [0, 1, 2, 3]
    assert clients.streams.state == "Stable"


def test_members_of_one_process_give_tasks_to_each_other_as_others_do() -> None:
    """A process may have an active task once: the second member of it waits as well."""
    clients = StreamsClients()
    clients.enter("a", process_id="p")
    clients.enter("b", process_id="p")
    assert clients.streams.members["b"].state == UNRELEASED_TASKS


def test_who_does_not_give_up_tasks_in_time_is_out() -> None:
    """The rebalance time-out runs from when the member is asked, heartbeats or not."""
    clients = two_members()
    clients.owning("a", 0, 1, 2, 3)
    clients.wait(REBALANCE_TIMEOUT_MS - 1)
    clients.owning("a", 0, 1, 2, 3)
    clients.heartbeat("b")
    assert "a" in clients.streams.members
    clients.wait(1)
    assert clients.fired == [f"rebalance-timeout-{GROUP}-a"]
    assert list(clients.streams.members) == ["b"]
    clients.heartbeat("b")
    assert clients.tasks("b") == [0, 1, 2, 3]


def test_giving_up_tasks_ends_the_rebalance_timeout() -> None:
    """A member which did so is not fenced later."""
    clients = two_members()
    clients.owning("a", 0, 1, 2, 3)
    clients.owning("a", *clients.tasks("a"))
    clients.wait(REBALANCE_TIMEOUT_MS)
    assert clients.fired == []


def test_a_rebalance_timeout_of_an_epoch_that_is_over_does_nothing() -> None:
    """The timer knows the epoch which it was set for."""
    clients = two_members()
    clients.owning("a", 0, 1, 2, 3)
    members = clients.streams.members
    put(clients, replace(clients.streams, members=members.set("a", replace(members["a"], member_epoch=7))))
    clients.wait(REBALANCE_TIMEOUT_MS)
    assert clients.fired == [f"rebalance-timeout-{GROUP}-a"]
    assert "a" in clients.streams.members


def test_a_silent_member_is_out_after_its_session() -> None:
    """With tombstones from the leaves up, and a new group epoch for the others."""
    clients = StreamsClients()
    clients.enter("a")
    since = len(clients.records)
    clients.wait(SESSION_TIMEOUT_MS)
    assert types(clients, since) == [
        T.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        T.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER,
        T.STREAMS_GROUP_MEMBER_METADATA,
        T.STREAMS_GROUP_METADATA,
    ]
    assert clients.streams.state == "Empty"


@pytest.mark.parametrize("epoch", [-1, -2])
def test_leaving(epoch: int) -> None:
    """The answer is the epoch that came; the member and its timers are gone."""
    clients = StreamsClients()
    clients.enter("a")
    response = response_of(clients.heartbeat("a", epoch))
    assert (response.member_epoch, response.status, response.heartbeat_interval_ms) == (epoch, (), 0)
    clients.wait(SESSION_TIMEOUT_MS)
    assert clients.fired == []
    assert error_of(clients.heartbeat("a", -1))[0] == ErrorCode.UNKNOWN_MEMBER_ID


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


def test_first_members_wait_for_others() -> None:
    """With a delay nobody has tasks before it is over; a second heartbeat makes the group fit for its end."""
    clients = StreamsClients(group_streams_initial_rebalance_delay_ms=3000)
    assert statuses(clients.enter("a")) == [StatusCode.ASSIGNMENT_DELAYED]
    clients.wait(2000)
    assert statuses(clients.enter("b")) == [StatusCode.ASSIGNMENT_DELAYED]
    assert clients.streams.target_assignment == Map()
    clients.wait(1000)
    assert clients.fired == [f"initial-rebalance-timeout-{GROUP}"]
    assert {len(target.active["0"]) for target in clients.streams.target_assignment.values()} == {2}


def test_a_group_of_one_heartbeat_gets_its_target_by_the_next() -> None:
    """At the end of the delay nothing is known of the topics yet."""
    clients = StreamsClients(group_streams_initial_rebalance_delay_ms=3000)
    clients.enter("a")
    clients.wait(3000)
    assert clients.streams.target_assignment == Map()
    clients.heartbeat("a")
    assert clients.tasks("a") == [0, 1, 2, 3]


def test_a_delay_ends_with_the_group() -> None:
    """Deleted during the delay: its timer does not hit the next group of this id."""
    clients = StreamsClients(group_streams_initial_rebalance_delay_ms=3000)
    clients.enter("a")
    clients.heartbeat("a", -1)
    clients.ask("delete_groups", (GROUP,))
    clients.wait(3000)
    assert clients.fired == []


def test_an_empty_group_at_the_end_of_the_delay_is_left_alone() -> None:
    """The member left meanwhile."""
    clients = StreamsClients(group_streams_initial_rebalance_delay_ms=3000)
    clients.enter("a")
    clients.heartbeat("a", -1)
    since = len(clients.records)
    clients.wait(3000)
    assert clients.fired == [f"initial-rebalance-timeout-{GROUP}"]
    assert len(clients.records) == since


def test_targets_wait_for_the_assignment_interval() -> None:
    """The group is Assigning meanwhile, and members get the reason."""
    clients = two_members(group_streams_assignment_interval_ms=1000)
    assert clients.streams.state == "Assigning"
    assert statuses(clients.heartbeat("a")) == [StatusCode.ASSIGNMENT_DELAYED]
    clients.wait(1000)
    assert statuses(clients.heartbeat("a")) == []
    assert clients.streams.assignment_epoch == clients.streams.group_epoch


def test_topics_which_come_and_grow() -> None:
    """Without its source topic the group is NotReady; members get tasks as the topic comes, and more as it grows."""
    clients = StreamsClients()
    clients.coordinator.image = image_of([])
    assert statuses(clients.enter("a")) == [StatusCode.MISSING_SOURCE_TOPICS]
    assert (clients.streams.state, clients.streams.validated_topology_epoch) == ("NotReady", -1)
    for count in (1, 3):
        image = image_of([Topic("in", TOPIC_ID, count)])
        clients.coordinator.update_metadata(image, ["in"], now_ms=clients.now_ms)
        clients.heartbeat("a")
        assert clients.tasks("a") == list(range(count))
    epoch = clients.streams.group_epoch
    clients.coordinator.update_metadata(image_of([Topic("in", TOPIC_ID, 9)]), ["other"], now_ms=clients.now_ms)
    clients.heartbeat("a")
    assert clients.streams.group_epoch == epoch


def test_internal_topics_are_to_be_made() -> None:
    """The answer names them for the broker; the changelog is as wide as the topic that is read."""
    changelog = TopicInfo("store-changelog")
    topology = RequestTopology(0, (RequestSubtopology("0", ("in",), state_changelog_topics=(changelog,)),))
    clients = StreamsClients()
    outcome = clients.enter("a", topology=topology)
    assert statuses(outcome) == [StatusCode.MISSING_INTERNAL_TOPICS]
    (created,) = response_of(outcome).creatable_topics
    assert (created.name, created.num_partitions, created.replication_factor) == ("store-changelog", 4, -1)


def test_another_topology_is_refused_an_older_one_is_reported() -> None:
    """Topologies cannot be updated yet; the order of subtopologies is no difference."""
    parts = (RequestSubtopology("0", ("in",)), RequestSubtopology("1", ("in",)))
    clients = StreamsClients()
    clients.enter("a", topology=RequestTopology(1, parts))
    assert response_of(clients.enter("b", topology=RequestTopology(1, parts[::-1]))).status == ()
    refused = clients.enter("c", topology=RequestTopology(2, parts))
    assert error_of(refused) == (ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    assert error_of(clients.enter("c", topology=RequestTopology(1, parts[:1])))[0] == ErrorCode.INVALID_REQUEST
    assert statuses(clients.enter("d", topology=TOPOLOGY))[0] == StatusCode.STALE_TOPOLOGY


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


def test_who_is_no_member_may_ask_an_empty_group() -> None:
    """Kafka keeps it for the next member, as long as no other was there meanwhile."""
    clients = StreamsClients()
    clients.enter("a")
    clients.heartbeat("a", -1)
    assert error_of(clients.heartbeat("x", -1, shutdown_application=True))[0] == ErrorCode.UNKNOWN_MEMBER_ID
    assert statuses(clients.enter("b")) == [StatusCode.SHUTDOWN_APPLICATION]
    clients.heartbeat("b", -1)
    assert statuses(clients.enter("c")) == []


def test_endpoints_are_reported_when_they_change() -> None:
    """Who knows an older epoch of them gets all; the second heartbeat of a group begins to count."""
    clients = StreamsClients()
    clients.enter("a", user_endpoint=Endpoint("h", 1))
    first = response_of(clients.heartbeat("a"))
    assert (first.endpoint_information_epoch, first.partitions_by_user_endpoint) == (0, None)
    clients.enter("b", user_endpoint=Endpoint("h", 2))
    clients.owning("a", 0, 1, 2, 3)
    response = response_of(clients.heartbeat("b"))
    epoch = response.endpoint_information_epoch
    assert epoch > 0
    reported = {
        found.user_endpoint.port: found.active_partitions for found in response.partitions_by_user_endpoint or ()
    }
    assert reported == {1: (EndpointTopicPartition("in", tuple(clients.tasks("a"))),), 2: ()}
    assert response_of(clients.heartbeat("b", endpoint_information_epoch=epoch)).partitions_by_user_endpoint is None
    assert clients.coordinator.dump()[GROUP]["group"]["endpointInformationEpoch"] == epoch


def test_endpoints_are_reported_again_when_topics_change() -> None:
    """Of a topic with fewer partitions than the member has tasks only so many are named; then it grows."""
    clients = StreamsClients()
    topology = RequestTopology(0, (RequestSubtopology("0", ("in", "other")),))
    named = []
    for count in (2, 3):
        image = image_of([Topic("in", TOPIC_ID, 4), Topic("other", OTHER_ID, count)])
        clients.coordinator.update_metadata(image, ["other"], now_ms=clients.now_ms)
        if count == 2:
            clients.enter("a", topology=topology, user_endpoint=Endpoint("h", 1), process_id="p")
            clients.enter("a", topology=topology)
        response = response_of(clients.enter("b", topology=topology, process_id="p"))
        (reported,) = response.partitions_by_user_endpoint or ()
        named.append({found.topic: len(found.partitions) for found in reported.active_partitions})
    assert named == [{"in": 4, "other": 2}, {"in": 4, "other": 3}]


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


def test_a_full_group() -> None:
    """Takes nobody, not even a member which joins again."""
    clients = StreamsClients(group_streams_max_size=1)
    clients.enter("a")
    for member_id in ("a", "b"):
        code, text = error_of(clients.enter(member_id))
        assert code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert text == "The streams group has reached its maximum capacity of 1 members."


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


def test_a_classic_member_may_have_an_empty_streams_group() -> None:
    """The group is deleted, all of it; one with members keeps its id."""
    clients = StreamsClients()
    clients.enter("a")
    request = clients.join()
    assert clients.answers[request].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    clients.heartbeat("a", -1)
    since = len(clients.records)
    clients.join()
    assert types(clients, since) == [
        T.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA,
        T.STREAMS_GROUP_METADATA,
        T.STREAMS_GROUP_TOPOLOGY,
        T.GROUP_METADATA,
    ]


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


def test_other_groups_are_left_alone_by_a_reload() -> None:
    """Only members of streams groups have timers of streams groups."""
    clients = StreamsClients()
    clients.join()
    clients.coordinator.reload(now_ms=clients.now_ms)
    assert clients.coordinator.timers.get(f"session-timeout-{GROUP}-a") is None


def test_endpoints_of_a_group_that_became_classic_are_gone() -> None:
    """The dump tells of streams groups only what they are."""
    clients = StreamsClients()
    clients.enter("a", user_endpoint=Endpoint("h", 1))
    clients.enter("a")
    clients.heartbeat("a", -1)
    clients.coordinator.forget_group(GROUP)
    assert GROUP not in clients.coordinator.dump()
