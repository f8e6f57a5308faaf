"""Tests of members of the classic protocol inside consumer groups, by named cases."""

from collections.abc import Iterable
from typing import Any

import pytest
from immutables import Map
from msgspec.structs import replace

from coordinator_core.bytes.client_protocols import Subscription, decode_assignment, encode_subscription
from coordinator_core.live.classic.messages import HeartbeatRequest, JoinGroupRequest, JoinProtocol, SyncGroupRequest
from coordinator_core.live.consumer.messages import ConsumerGroupHeartbeatRequest
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.image import Topic, image_of
from coordinator_core.live.coordinator.operation import Outcome
from coordinator_core.replay.consumer.state import ConsumerGroup, ConsumerMember
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.coordinator.clients import GROUP, REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS, Clients

FOO, BAR = "Zm9vZm9vZm9vZm9vZm9vZg", "YmFyYmFyYmFyYmFyYmFyYg"
IMAGE = image_of([Topic("foo", FOO, 4), Topic("bar", BAR, 2)])
Owned = tuple[tuple[str, tuple[int, ...]], ...]


class MixedClients(Clients):
    """Clients of both protocols; targets are computed at once unless configured otherwise."""

    def __init__(self, **config: Any) -> None:
        defaults: dict[str, Any] = {"group_consumer_assignment_interval_ms": 0, "group_initial_rebalance_delay_ms": 0}
        super().__init__(**(defaults | config))
        self.coordinator.image = IMAGE

    @property
    def consumer_group(self) -> ConsumerGroup:
        group = self.coordinator.group(GROUP)
        assert isinstance(group, ConsumerGroup)
        return group

    def member(self, member_id: str) -> ConsumerMember:
        return self.consumer_group.members[member_id]

    def consume(self, member_id: str, epoch: int = 0, **fields: Any) -> Outcome:
        """ConsumerGroupHeartbeat; a full one by default."""
        defaults: dict[str, Any] = {
            "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
            "subscribed_topic_names": ("foo",),
            "topic_partitions": (),
        }
        request = ConsumerGroupHeartbeatRequest(GROUP, member_id, epoch, **(defaults | fields))
        return self.ask("consumer_group_heartbeat", request, api_version=1)

    def enter(
        self,
        member_id: str = "",
        *,
        topics: tuple[str, ...] = ("foo",),
        owned: Owned = (),
        protocols: Iterable[str] = ("range",),
        api_version: int = 3,
        **fields: Any,
    ) -> Outcome:
        """JoinGroup of a member which says what it owns."""
        metadata = fields.pop("metadata", encode_subscription(Subscription(3, topics, None, owned, 1)))
        request = JoinGroupRequest(
            GROUP,
            SESSION_TIMEOUT_MS,
            fields.pop("rebalance_timeout_ms", REBALANCE_TIMEOUT_MS),
            member_id,
            fields.pop("protocol_type", "consumer"),
            tuple(JoinProtocol(name, metadata) for name in protocols),
            fields.pop("instance", None),
        )
        return self.ask("classic_join", request, api_version=api_version)

    def entered(self, member_id: str = "", **fields: Any) -> str:
        """JoinGroup which is answered without error; the member id."""
        outcome = self.enter(member_id, **fields)
        assert outcome.error is None
        answer = self.answers[self.request_count]
        assert answer.error_code == ErrorCode.NONE
        joined: str = answer.member_id
        return joined

    def fetch_assignment(self, member_id: str, **fields: Any) -> dict[str, tuple[int, ...]]:
        """SyncGroup which is answered without error; topic -> partitions."""
        outcome = self.ask("classic_sync", self.sync_request(member_id, **fields))
        assert outcome.error is None
        assignment = decode_assignment(self.answers[self.request_count].assignment)
        assert assignment is not None
        return dict(assignment.assigned_partitions)

    def sync_request(self, member_id: str, **fields: Any) -> SyncGroupRequest:
        epoch = self.consumer_group.members[member_id].member_epoch if member_id in self.consumer_group.members else 1
        return SyncGroupRequest(GROUP, fields.pop("generation_id", epoch), member_id, **fields)

    def heartbeat(self, member_id: str, **fields: Any) -> Outcome:
        """Heartbeat of a classic member, by default at its epoch."""
        epoch = self.consumer_group.members[member_id].member_epoch if member_id in self.consumer_group.members else 1
        return self.ask("classic_heartbeat", HeartbeatRequest(GROUP, fields.pop("epoch", epoch), member_id, **fields))

    def deadline_ms(self, key: str) -> int | None:
        """In how many milliseconds a timer is due, or None where there is none of this key."""
        timer = self.coordinator.timers.get(key)
        return None if timer is None else timer.deadline_ms - self.now_ms

    def change_member(self, member_id: str, **fields: Any) -> None:
        """Have the member in another state than requests would bring about with few words."""
        shard = self.coordinator.shard
        group = self.consumer_group
        group = replace(group, members=group.members.set(member_id, replace(group.members[member_id], **fields)))
        self.coordinator.shard = replace(shard, groups=replace(shard.groups, groups=Map({GROUP: group})))


def mixed(**config: Any) -> tuple[MixedClients, str]:
    """A consumer group of C, of the consumer protocol, and a classic member, which has synced. Both are stable."""
    clients = MixedClients(**config)
    clients.consume("C")
    classic = clients.entered()
    clients.consume("C", 2)
    clients.consume("C", 2, topic_partitions=())
    clients.entered(classic)
    clients.fetch_assignment(classic)
    assert clients.consumer_group.state == "Stable"
    return clients, classic


def refused(outcome: Outcome) -> Refused:
    assert outcome.error is not None
    return outcome.error


# --- migration as a whole ---


# --- JoinGroup ---


def test_a_log_which_refuses_the_join_leaves_all_as_it_was() -> None:
    """The member gets the error; no timer was started."""
    clients = MixedClients()
    clients.consume("C")
    before = clients.consumer_group
    clients.log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
    clients.enter()
    assert clients.answers[clients.request_count].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert clients.consumer_group is before
    assert clients.deadline_ms(f"sync-g-uuid{clients.request_count}") is None


# --- static members across protocols ---


def test_a_log_which_refuses_the_last_consumers_heir() -> None:
    """The group stays a consumer group, with the member that was to be replaced."""
    clients = MixedClients()
    clients.consume("C", instance_id="i")
    clients.log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
    clients.enter(instance="i")
    assert clients.answers[clients.request_count].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert set(clients.consumer_group.members) == {"C"}


def test_a_consumer_takes_the_place_of_a_static_classic_member_at_once() -> None:
    """It need not wait until that one has left."""
    clients = MixedClients()
    clients.consume("D")
    joined = clients.entered(instance="i")
    assert clients.consume("C", instance_id="i").error is None
    assert set(clients.consumer_group.members) == {"C", "D"}
    assert joined not in clients.consumer_group.members
    assert clients.member("C").classic_member_metadata is None


# --- SyncGroup ---


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"member_id": "X"}, ErrorCode.UNKNOWN_MEMBER_ID, "Member X is not a member of group g."),
        (
            {"group_instance_id": "i"},
            ErrorCode.UNKNOWN_MEMBER_ID,
            "Member with instance id i is not a member of group g.",
        ),
        ({"member_id": "C"}, ErrorCode.UNKNOWN_MEMBER_ID, "Member C does not use the classic protocol."),
        (
            {"generation_id": 77},
            ErrorCode.ILLEGAL_GENERATION,
            "The request generation id 77 is not equal to the member epoch 3 of member uuid2.",
        ),
        (
            {"protocol_type": "connect"},
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "The protocol type connect from member uuid2 request is not equal to the group protocol type consumer.",
        ),
        (
            {"protocol_name": "sticky"},
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "The protocol name sticky from member uuid2 request is not equal to the protocol name range returned in "
            "the join response.",
        ),
    ],
)
def test_who_may_not_sync(fields: dict[str, Any], code: ErrorCode, text: str) -> None:
    """Kafka's errors, in its words."""
    clients, classic = mixed()
    request = clients.sync_request(fields.pop("member_id", classic), **fields)
    error = refused(clients.ask("classic_sync", request))
    assert (error.code, error.message) == (code, text)


def test_a_sync_waits_for_what_was_written_before() -> None:
    """Where records are replicated, the member is answered once they are committed, or gets an error once lost."""
    clients, classic = mixed()
    clients.coordinator.is_deferring = True
    for error, code in ((None, ErrorCode.NONE), (Refused(ErrorCode.NOT_COORDINATOR), ErrorCode.NOT_COORDINATOR)):
        outcome = clients.ask("classic_sync", clients.sync_request(classic))
        assert outcome.completed == ()
        (parked,) = outcome.parked
        (done,) = clients.coordinator.resume(parked, error, now_ms=clients.now_ms).completed
        assert (done.request_id, done.response.error_code) == (clients.request_count, code)


def test_an_assignment_whose_version_is_unknown() -> None:
    """A converted member's first protocol need not be the one which was looked at."""
    clients, classic = mixed()
    metadata = clients.member(classic).classic_member_metadata
    assert metadata is not None
    clients.change_member(classic, classic_member_metadata=replace(metadata, supported_protocols=(("range", b""),)))
    error = refused(clients.ask("classic_sync", clients.sync_request(classic)))
    assert error.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert error.message == "Malformed embedded consumer protocol in version deserialization."


# --- Heartbeat ---


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member_id": "X"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "C"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"epoch": 77}, ErrorCode.ILLEGAL_GENERATION),
        ({"group_instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_whose_heartbeat_is_refused(fields: dict[str, Any], code: ErrorCode) -> None:
    """Who is none, who is of the other protocol, who is at another epoch."""
    clients, classic = mixed()
    assert refused(clients.heartbeat(fields.pop("member_id", classic), **fields)).code == code


# --- time-outs ---


# --- LeaveGroup ---
