"""Streams groups as Kafka 4.4 has them: named cases of the rules that 4.3 does not follow."""

from typing import Any

import pytest

from coordinator_core.bytes.kafka_versions import KafkaVersion
from coordinator_core.live.coordinator.image import Topic, image_of
from coordinator_core.live.streams.live import LiveStreamsGroups
from coordinator_core.live.streams.messages import (
    Endpoint,
    KeyValue,
    RequestSubtopology,
    RequestTopology,
    StatusCode,
    StreamsGroupHeartbeatRequest,
    TaskIds,
    TaskOffset,
)
from coordinator_core.live.streams.reconciliation import reconcile
from coordinator_core.live.streams.request_validation import refused_heartbeat
from coordinator_core.live.streams.sticky_assignor import MemberSpec, SubtopologySpec, assign_tasks
from coordinator_core.replay.streams.state import (
    STABLE_MEMBER,
    UNRELEASED_TASKS,
    UNREVOKED_TASKS,
    StreamsMember,
    TaskAssignment,
    TaskProcesses,
)
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.coordinator.clients import GROUP
from tests.coordinator_core.live.streams.streams_clients import (
    TOPIC_ID,
    StreamsClients,
    error_of,
    response_of,
    statuses,
)

V43, V44 = KafkaVersion(4, 3), KafkaVersion(4, 4)
AWAY = -2


def clients_of(version: KafkaVersion = V44, **config: Any) -> StreamsClients:
    return StreamsClients(kafka_version=version, **config)


def static_member(clients: StreamsClients, member_id: str = "a", **fields: Any) -> None:
    """Comes with instance id `i`, as process `p`."""
    clients.enter(member_id, instance_id="i", process_id="p", **fields)


def test_a_static_member_that_comes_back_as_another_process_gets_an_epoch() -> None:
    """Process, rack, tags and topology epoch count; the client's name does not."""
    clients = clients_of()
    static_member(clients)
    clients.heartbeat("a", AWAY, instance_id="i")
    epoch = clients.streams.group_epoch
    clients.enter("b", instance_id="i", process_id="another")
    assert clients.streams.group_epoch == epoch + 1


def test_an_instance_id_has_one_member() -> None:
    """While it is there nobody else gets its instance id, and who was replaced gets an error."""
    clients = clients_of()
    static_member(clients)
    assert error_of(clients.enter("b", instance_id="i")) == (
        ErrorCode.UNRELEASED_INSTANCE_ID,
        "Static member b with instance id i cannot join the group because the instance id is owned by a member.",
    )
    clients.heartbeat("a", AWAY, instance_id="i")
    static_member(clients, "b")
    assert error_of(clients.heartbeat("a", 2, instance_id="i"))[0] is ErrorCode.FENCED_INSTANCE_ID
    assert error_of(clients.heartbeat("a", 2, instance_id="other"))[0] is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_refused_join_takes_the_tasks_of_the_true_owner() -> None:
    """Kafka 4.4.0 relabels the refined assignment before it refuses: the owner moves to nothing at its next step."""
    clients = clients_of()
    static_member(clients)
    clients.enter("b")
    assert error_of(clients.enter("c", instance_id="i"))[0] is ErrorCode.UNRELEASED_INSTANCE_ID
    clients.heartbeat(
        "a", instance_id="i", active_tasks=(TaskIds("0", (0, 1, 2, 3)),), standby_tasks=(), warmup_tasks=()
    )
    assert clients.streams.members["a"].state == UNREVOKED_TASKS
    assert clients.tasks("a") == []


def test_a_join_without_an_endpoint_takes_it_away() -> None:
    """In 4.4 who joins says all of itself, and others learn that the endpoint is gone."""
    clients = clients_of()
    clients.enter("a", user_endpoint=Endpoint("h", 1))
    epoch = response_of(clients.heartbeat("a")).endpoint_information_epoch
    clients.enter("a")
    assert clients.streams.members["a"].user_endpoint is None
    response = response_of(clients.heartbeat("a", endpoint_information_epoch=epoch))
    assert response.endpoint_information_epoch == epoch + 1
    assert response.partitions_by_user_endpoint == ()


def test_a_task_offset_that_comes_twice_is_refused() -> None:
    """Kafka's words; one of each is kept for the assignor."""
    clients = clients_of()
    clients.enter("a")
    once = TaskOffset("0", 1, 5)
    clients.heartbeat("a", task_offsets=(once,))
    offsets = clients.coordinator.live(LiveStreamsGroups).get(clients.streams).task_offsets
    assert offsets["a"].positions == {("0", 1): 5}
    assert error_of(clients.heartbeat("a", task_offsets=(once, once))) == (
        ErrorCode.INVALID_REQUEST,
        "Task offsets contain a duplicate entry for subtopology 0 and partition 1.",
    )


def test_a_member_without_the_tags_is_reported() -> None:
    """Tags by which standby tasks are spread are an assignment config, and each member needs all of them."""
    clients = clients_of(group_streams_rack_aware_assignment_tags=("zone", "cell"))
    outcome = clients.enter("a", client_tags=(KeyValue("zone", "z"),))
    assert statuses(outcome) == [StatusCode.MISSING_CLIENT_TAGS]
    assert "[cell]" in (response_of(outcome).status or ())[0].status_detail
    assert clients.streams.last_assignment_configs == {
        "num.standby.replicas": "0",
        "rack.aware.assignment.tags": "zone,cell",
    }


@pytest.mark.parametrize(
    "fields",
    [{"instance_id": "i"}, {"task_offsets": ()}, {"task_end_offsets": ()}, {"warmup_tasks": (TaskIds("0", (1,)),)}],
)
def test_what_43_does_not_support_passes_in_44(fields: dict[str, Any]) -> None:
    """The service in front of the coordinator no longer refuses it."""
    request = StreamsGroupHeartbeatRequest(GROUP, "a", 3, **{"active_tasks": (), "standby_tasks": (), **fields})
    if "warmup_tasks" not in fields:
        request = StreamsGroupHeartbeatRequest(GROUP, "a", 3, **fields)
    refused = refused_heartbeat(request, V43)
    assert refused is not None
    assert (refused.error_message or "").endswith("supported yet.") or fields == {"instance_id": "i"}
    assert refused_heartbeat(request, V44) is None


def member_with(**fields: Any) -> StreamsMember:
    return StreamsMember("a", 1, 0, STABLE_MEMBER, process_id="p", has_current_assignment=True, **fields)


NOTHING = TaskAssignment()


def test_an_active_task_becomes_a_standby_at_once() -> None:
    """The member keeps its state on disk; nobody else has to give it up. In 4.3 it waits for itself."""
    member = member_with(active={"0": {0: 1, 1: 1}})
    processes = TaskProcesses(active=TaskProcesses().active.update({("0", 0): "p", ("0", 1): "p"}))
    target = TaskAssignment({"0": (0,)}, {"0": (1,)})
    after = reconcile(member, 2, target, processes, NOTHING, V44)
    assert (after.state, after.active, after.standby) == (STABLE_MEMBER, {"0": {0: 1}}, {"0": (1,)})
    before = reconcile(member, 2, target, processes, NOTHING, V43)
    assert (before.state, before.standby) == (UNRELEASED_TASKS, {})


def test_a_standby_that_becomes_active_is_kept_until_it_is() -> None:
    """While another process has the active task, the copy is not given up; 4.3 revokes it first."""
    member = member_with(standby={"0": (0,)})
    empty = TaskProcesses()
    processes = TaskProcesses(empty.active.set(("0", 0), "other"), empty.standby.set(("0", 0), frozenset({"p"})))
    target = TaskAssignment({"0": (0,)})
    owned = TaskAssignment({}, {"0": (0,)})
    waiting = reconcile(member, 2, target, processes, owned, V44)
    assert (waiting.state, waiting.standby, waiting.active) == (UNRELEASED_TASKS, {"0": (0,)}, {})
    assert reconcile(member, 2, target, processes, owned, V43).state == UNREVOKED_TASKS
    released = TaskProcesses(empty.active, processes.standby)
    promoted = reconcile(waiting, 2, target, released, owned, V44)
    assert (promoted.state, promoted.standby, promoted.active) == (STABLE_MEMBER, {}, {"0": {0: 2}})


def test_standby_and_warmup_change_places() -> None:
    """Both are copies on the same disk."""
    member = member_with(standby={"0": (0,)}, warmup={"0": (1,)})
    empty = TaskProcesses()
    holders = frozenset({"p"})
    processes = TaskProcesses(empty.active, empty.standby.set(("0", 0), holders), empty.warmup.set(("0", 1), holders))
    after = reconcile(member, 2, TaskAssignment({}, {"0": (1,)}, {"0": (0,)}), processes, NOTHING, V44)
    assert (after.state, after.standby, after.warmup) == (STABLE_MEMBER, {"0": (1,)}, {"0": (0,)})


def test_the_standby_goes_to_who_is_further() -> None:
    """Of members that are no standby of the task the one that reported more of its state comes first."""
    members = [
        MemberSpec("a", "p", TaskAssignment({"0": (0,)})),
        MemberSpec("b", "q", NOTHING, {("0", 0): 5}),
        MemberSpec("c", "r", NOTHING, {("0", 0): 9}),
    ]
    targets = assign_tasks(members, {"0": SubtopologySpec(1, True)}, 1, V44)
    assert [member_id for member_id, target in targets.items() if target.standby] == ["c"]
    members[1] = MemberSpec("b", "q", TaskAssignment({}, {"0": (0,)}))
    targets = assign_tasks(members, {"0": SubtopologySpec(1, True)}, 1, V44)
    assert [member_id for member_id, target in targets.items() if target.standby] == ["b"]


@pytest.mark.parametrize(("version", "are_own"), [(V43, False), (V44, True)], ids=["4.3", "4.4"])
def test_endpoints_name_partitions_that_the_topic_has(version: KafkaVersion, are_own: bool) -> None:
    """Of two members that share four tasks over a topic with two partitions."""
    clients = clients_of(version)
    image = image_of([Topic("in", TOPIC_ID, 4), Topic("few", "AAAAAAAAAAAAAAAAAAAAAw", 2)])
    clients.coordinator.update_metadata(image, ["few"], now_ms=clients.now_ms)
    topology = RequestTopology(0, (RequestSubtopology("0", ("in", "few")),))
    clients.enter("a", topology=topology, user_endpoint=Endpoint("h", 1))
    clients.enter("b", topology=topology, user_endpoint=Endpoint("h", 2))
    clients.heartbeat("a")
    clients.owning("a", *clients.tasks("a"))
    clients.heartbeat("b")
    assert sorted(len(clients.tasks(member_id)) for member_id in "ab") == [2, 2]
    response = response_of(clients.enter("c", topology=topology))
    named = [
        partition
        for endpoint in response.partitions_by_user_endpoint or ()
        for found in endpoint.active_partitions
        if found.topic == "few"
        for partition in found.partitions
    ]
    assert (sorted(named) == [0, 1]) == are_own
    assert are_own or max(named) > 1
