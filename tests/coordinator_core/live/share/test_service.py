"""Flows between the group coordinator and the share coordinators: with real ones, and with persisters that fail."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from coordinator_core.live.coordinator.config import GroupCoordinatorConfig
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.operation import Outcome
from coordinator_core.live.coordinator.service import refusal
from coordinator_core.live.share.messages import (
    AlterOffsetsPartition,
    AlterOffsetsTopic,
    AlterShareGroupOffsetsRequest,
    DeleteOffsetsTopic,
    DeleteShareGroupOffsetsRequest,
    ShareGroupHeartbeatRequest,
)
from coordinator_core.live.share.service import (
    Ask,
    Flow,
    Persist,
    R,
    StateResults,
    alter_offsets,
    delete_groups,
    delete_offsets,
    initialize_after_heartbeat,
    persist,
)
from coordinator_core.live.share_state.messages import InitializePartition, PartitionResult
from coordinator_core.live.share_state.persister import Persister
from coordinator_core.replay.lookup import SharePartitionKey
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.coordinator.clients import GROUP
from tests.coordinator_core.live.share.share_clients import BAR, FOO, ShareClients


def run(flow: Flow[R], ask: Callable[[Ask], Outcome], persist_now: Callable[[Persist], StateResults]) -> R:
    """Execute a flow to its end. A Refused that `persist_now` raises is thrown into the flow."""
    answer: Any = None
    failure: Refused | None = None
    while True:
        try:
            step = flow.send(answer) if failure is None else flow.throw(failure)
        except StopIteration as end:
            result: R = end.value
            return result
        answer, failure = None, None
        if isinstance(step, Ask):
            answer = ask(step)
            continue
        try:
            answer = persist_now(step)
        except Refused as refused:
            failure = refused


ALTER = AlterShareGroupOffsetsRequest(
    GROUP,
    (
        AlterOffsetsTopic("foo", (AlterOffsetsPartition(0, 10), AlterOffsetsPartition(1, 20))),
        AlterOffsetsTopic("bar", (AlterOffsetsPartition(7, 30),)),
    ),
)
DELETE = DeleteShareGroupOffsetsRequest(GROUP, (DeleteOffsetsTopic("foo"), DeleteOffsetsTopic("bar")))


class ShareStates:
    """Share coordinators: what they hold, and which partitions they answer with an error."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, int], tuple[int, int]] = {}
        self.errors: dict[tuple[str, int], ErrorCode] = {}
        self.failure: Refused | None = None

    def __call__(self, step: Persist) -> StateResults:
        if self.failure is not None:
            raise self.failure
        assert step.group_id == GROUP
        return {
            topic_id: tuple(self._serve(topic_id, request) for request in requests)
            for topic_id, requests in step.partitions.items()
        }

    def _serve(self, topic_id: str, request: object) -> PartitionResult:
        key = (topic_id, request.partition)  # type: ignore[attr-defined]
        code = self.errors.get(key, ErrorCode.NONE)
        if code != ErrorCode.NONE:
            return PartitionResult(key[1], code, "no")
        if isinstance(request, InitializePartition):
            self.states[key] = (request.state_epoch, request.start_offset)
        else:
            self.states.pop(key, None)
        return PartitionResult(key[1])


def ask_of(clients: ShareClients) -> Callable[[Ask], Outcome]:
    return lambda step: clients.ask(step.operation, step.request)


def started(states: ShareStates, *topics: str) -> tuple[ShareClients, ErrorCode]:
    """A group with member a, whose first heartbeat's partitions were initialised, or not."""
    clients = ShareClients()
    wanted = clients.try_heartbeat("a", 0, *topics).response.initialize_share_state
    return clients, run(initialize_after_heartbeat(GROUP, wanted), ask_of(clients), states)


def emptied(states: ShareStates, *topics: str) -> ShareClients:
    """The group after its member left."""
    clients, code = started(states, *topics)
    assert code == ErrorCode.NONE
    clients.try_heartbeat("a", -1)
    return clients


# --- after a heartbeat ---


def test_what_a_heartbeat_finds_new_is_initialised() -> None:
    """At the group's epoch, without a start offset."""
    states = ShareStates()
    clients, code = started(states, "foo")
    assert code == ErrorCode.NONE
    assert states.states == {(FOO, number): (2, -1) for number in range(3)}
    assert clients.state_partitions.initialized == {FOO: ("foo", (0, 1, 2))}


@pytest.mark.parametrize("is_whole", [True, False])
def test_what_could_not_be_initialised_is_taken_back(is_whole: bool) -> None:
    """One partition or the whole persister failed: the next heartbeat tries all of them again."""
    states = ShareStates()
    if is_whole:
        states.failure = Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    else:
        states.errors[FOO, 1] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    clients, code = started(states, "foo")
    assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not clients.state_partitions.initializing
    assert not clients.state_partitions.initialized
    wanted = clients.share_heartbeat("a").initialize_share_state
    assert wanted is not None
    assert wanted.partitions == {FOO: (0, 1, 2)}


def test_what_the_group_coordinator_cannot_write_is_taken_back() -> None:
    """The share coordinators have initialised, but the log of the group coordinator refuses to say so."""
    clients = ShareClients()
    wanted = clients.try_heartbeat("a", 0, "foo").response.initialize_share_state
    clients.log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
    code = run(initialize_after_heartbeat(GROUP, wanted), ask_of(clients), ShareStates())
    assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not clients.state_partitions.initializing


# --- AlterShareGroupOffsets ---


def test_offsets_are_altered() -> None:
    """The share coordinators are given them; what is not there is refused in the same answer."""
    states = ShareStates()
    clients = emptied(states, "foo")
    response = run(alter_offsets(ALTER), ask_of(clients), states)
    epoch = clients.share_group.group_epoch
    assert (states.states[FOO, 0], states.states[FOO, 1], states.states[FOO, 2]) == ((epoch, 10), (epoch, 20), (2, -1))
    foo, bar = response.responses
    assert [partition.error_code for partition in foo.partitions] == [0, 0]
    assert [partition.error_code for partition in bar.partitions] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert clients.state_partitions.initialized == {FOO: ("foo", (0, 1, 2))}
    assert clients.state_partitions.initializing == {BAR: ("bar", ())}


def test_partitions_which_could_not_be_altered_are_named() -> None:
    """Each with its error; none of the request counts as initialised then."""
    states = ShareStates()
    clients = emptied(states, "foo")
    states.errors[FOO, 1] = ErrorCode.FENCED_STATE_EPOCH
    response = run(alter_offsets(ALTER), ask_of(clients), states)
    foo, bar = response.responses
    assert [(partition.error_code, partition.error_message) for partition in foo.partitions] == [(0, None), (124, "no")]
    assert bar.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert clients.state_partitions.initializing[FOO] == ("foo", (0, 1))


def test_a_failed_persister_fails_the_alteration() -> None:
    """As a whole, and each partition."""
    states = ShareStates()
    clients = emptied(states, "foo")
    states.failure = Refused(ErrorCode.NOT_COORDINATOR, "away")
    response = run(alter_offsets(ALTER), ask_of(clients), states)
    assert (response.error_code, response.error_message) == (ErrorCode.NOT_COORDINATOR, "away")
    codes = {partition.error_code for topic in response.responses for partition in topic.partitions}
    assert codes == {ErrorCode.NOT_COORDINATOR}


@pytest.mark.parametrize(
    ("group_id", "code", "text"),
    [
        ("", ErrorCode.INVALID_GROUP_ID, "The configured groupId is invalid."),
        (GROUP, ErrorCode.NON_EMPTY_GROUP, "The group is not empty."),
    ],
)
def test_alterations_and_deletions_which_are_refused(group_id: str, code: ErrorCode, text: str) -> None:
    """Without a word to the share coordinators."""
    states = ShareStates()
    clients, _ = started(states, "foo")
    before = dict(states.states)
    altered = run(alter_offsets(replace(ALTER, group_id=group_id)), ask_of(clients), states)
    deleted = run(delete_offsets(replace(DELETE, group_id=group_id)), ask_of(clients), states)
    assert (altered.error_code, altered.error_message) == (code, text)
    assert (deleted.error_code, deleted.error_message) == (code, text)
    assert states.states == before


def test_an_alteration_of_nothing_asks_nobody() -> None:
    """No partition is there."""
    states = ShareStates()
    states.failure = Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    request = replace(ALTER, topics=(AlterOffsetsTopic("nothing", (AlterOffsetsPartition(0, 1),)),))
    response = run(alter_offsets(request), ask_of(ShareClients()), states)
    assert response.error_code == ErrorCode.NONE
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- DeleteShareGroupOffsets, DeleteGroups ---


def test_offsets_are_deleted() -> None:
    """What has none is named in the same answer."""
    states = ShareStates()
    clients = emptied(states, "foo")
    response = run(delete_offsets(DELETE), ask_of(clients), states)
    assert [(topic.topic_name, topic.error_code) for topic in response.responses] == [("foo", 0), ("bar", 3)]
    assert states.states == {}
    assert (clients.state_partitions.initialized, clients.state_partitions.deleting) == ({}, {})


def test_a_deletion_fails_where_all_topics_or_the_persister_fail() -> None:
    """Nothing is completed then."""
    states = ShareStates()
    clients = emptied(states, "foo")
    states.errors[FOO, 0] = ErrorCode.NOT_COORDINATOR
    response = run(delete_offsets(replace(DELETE, topics=DELETE.topics[:1])), ask_of(clients), states)
    assert response.responses[0].error_message == "This is not the correct coordinator."
    states.failure = Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert run(delete_offsets(DELETE), ask_of(clients), states).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert clients.state_partitions.deleting == {FOO: "foo"}


def test_a_group_goes_after_its_state() -> None:
    """Groups of any type in one request; what fails stays."""
    states = ShareStates()
    clients = emptied(states, "foo")
    states.errors[FOO, 1] = ErrorCode.NOT_COORDINATOR
    answers = run(delete_groups((GROUP, "x")), ask_of(clients), states)
    assert [(answer.group_id, answer.error_code) for answer in answers] == [(GROUP, 16), ("x", 69)]
    assert clients.share_group.group_id == GROUP
    states.errors.clear()
    answers = run(delete_groups((GROUP,)), ask_of(clients), states)
    assert [(answer.group_id, answer.error_code) for answer in answers] == [(GROUP, 0)]
    assert (states.states, clients.coordinator.dump()) == ({}, {})


def test_a_group_with_members_or_whose_state_cannot_be_deleted_stays() -> None:
    """The one gets NON_EMPTY_GROUP, the other the persister's error, or the log's."""
    states = ShareStates()
    clients, _ = started(states, "foo")
    (answer,) = run(delete_groups((GROUP,)), ask_of(clients), states)
    assert answer.error_code == ErrorCode.NON_EMPTY_GROUP
    clients.try_heartbeat("a", -1)
    clients.log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
    (answer,) = run(delete_groups((GROUP,)), ask_of(clients), states)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    states.failure = Refused(ErrorCode.NOT_COORDINATOR)
    (answer,) = run(delete_groups((GROUP,)), ask_of(clients), states)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR


# --- persister ---


def test_a_step_is_put_to_the_persister_partition_by_partition() -> None:
    """The results come together once all are there."""
    persister = Persister(lambda key: None, lambda: 0.0)
    called: list[tuple[str, SharePartitionKey, object]] = []
    answers: list[Callable[[PartitionResult], None]] = []

    def call(
        operation: str, key: SharePartitionKey, data: object, on_result: Callable[[PartitionResult], None]
    ) -> None:
        called.append((operation, key, data))
        answers.append(on_result)

    persister.call = call  # type: ignore[method-assign]
    step = Persist(
        "initialize_state",
        GROUP,
        {FOO: (InitializePartition(0), InitializePartition(1)), BAR: (InitializePartition(0),)},
    )
    done: list[StateResults] = []
    persist(persister, step, done.append)
    assert called[2] == ("initialize_state", SharePartitionKey(GROUP, BAR, 0), InitializePartition(0))
    answers[2](PartitionResult(0, ErrorCode.NOT_COORDINATOR))
    answers[0](PartitionResult(0))
    assert done == []
    answers[1](PartitionResult(1))
    assert done == [
        {BAR: (PartitionResult(0, ErrorCode.NOT_COORDINATOR),), FOO: (PartitionResult(0), PartitionResult(1))}
    ]


# --- what no coordinator sees ---


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"subscribed_topic_names": ()}, "SubscribedTopicNames must be set in first request."),
        ({"subscribed_topic_names": None}, "SubscribedTopicNames must be set in first request."),
        ({"member_epoch": -2}, "MemberEpoch is invalid."),
    ],
)
def test_heartbeats_with_which_something_is_wrong(fields: dict[str, object], text: str) -> None:
    """INVALID_REQUEST, with Kafka's words."""
    good = ShareGroupHeartbeatRequest(GROUP, "a", 0, "rack", ("foo",))
    config = GroupCoordinatorConfig()
    assert refusal(good, config) is None
    assert refusal(replace(good, member_epoch=5, subscribed_topic_names=None, rack_id=None), config) is None
    response = refusal(replace(good, **fields), config)  # type: ignore[arg-type]
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, text)
