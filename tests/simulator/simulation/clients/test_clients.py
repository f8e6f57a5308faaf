"""Clients as pure state machines: events in, actions out."""

import random
from typing import Any

import pytest

from coordinator_core.bytes.client_protocols import Assignment, decode_subscription, encode_assignment
from coordinator_core.errors import IllegalClientState
from coordinator_core.live.assignors.client_group import TopicPartition
from coordinator_core.live.classic.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupResponse,
)
from coordinator_core.live.coordinator.records import Producer
from coordinator_core.live.offsets.messages import (
    OffsetCommitResponse,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    TxnOffsetCommitRequest,
)
from schemas.error_codes import ErrorCode
from simulator.simulation.clients.classic import ClassicConsumer
from simulator.simulation.clients.machine import (
    BUSY,
    Action,
    Answered,
    Closed,
    Gave,
    Heartbeat,
    MemberConfig,
    Send,
    SetTimer,
    SlowPoll,
    Started,
    Stop,
    TimerFired,
    Took,
)
from simulator.simulation.clients.member import MemberState
from simulator.simulation.clients.producer import EndTxnRequest, InitProducerIdRequest, ProducerResponse
from simulator.simulation.clock import EventLoop
from simulator.simulation.other_logs import TRANSACTION_TIMEOUT_MS
from simulator.simulation.scenario import GroupSpec, TopicSpec
from simulator.simulation.topics import Topics
from simulator.simulation.transactions import Transactions

NOW_MS = 1_000_000
OURS = (TopicPartition("t", 0), TopicPartition("t", 1))


def consumer(**fields: Any) -> ClassicConsumer:
    """A consumer which has not started."""
    topics = Topics((TopicSpec("t", 4, 40.0),), start_ms=NOW_MS, retention_check_interval_ms=1000, seed=1)
    fields = {"assignors": ("range", "cooperative-sticky")} | fields
    config = MemberConfig(GroupSpec("g", ("t",)), "g", "c", ("t",), **fields)
    return ClassicConsumer(config, topics, random.Random(1))


def sent(actions: list[Action], operation: str) -> list[Any]:
    """Requests of one operation among actions."""
    return [action.request for action in actions if isinstance(action, Send) and action.operation == operation]


def joined(client: ClassicConsumer) -> list[Action]:
    """Let it join as a follower in generation 1 and get two partitions; what it did last."""
    client.handle(Started(), NOW_MS)
    client.handle(Answered("join", JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m")), NOW_MS)
    response = JoinGroupResponse(generation_id=1, protocol_name="range", leader="other", member_id="m")
    client.handle(Answered("join", response), NOW_MS)
    assignment = encode_assignment(Assignment(3, (("t", (0, 1)),)))
    client.handle(Answered("sync", SyncGroupResponse(assignment=assignment)), NOW_MS)
    partitions = tuple(OffsetFetchResponsePartition(number) for number in (0, 1))
    fetched = OffsetFetchResponse("g", (OffsetFetchResponseTopic("t", partitions),))
    return client.handle(Answered("fetch", fetched), NOW_MS)


def test_a_new_member_joins_with_the_id_it_is_given() -> None:
    """First without an id, then with it; the partitions count once their positions are known."""
    client = consumer()
    (join,) = sent(client.handle(Started(), NOW_MS), "classic_join")
    assert join.member_id == ""
    refused = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m")
    (again,) = sent(client.handle(Answered("join", refused), NOW_MS), "classic_join")
    assert again.member_id == "m"
    took = [action for action in joined(consumer()) if isinstance(action, Took)]
    assert took == [Took([(at, 0) for at in OURS], 1)]


@pytest.mark.parametrize(("assignors", "given_up"), [(("range",), True), (("cooperative-sticky",), False)])
def test_eager_members_give_up_all_before_they_rejoin(assignors: tuple[str, ...], given_up: bool) -> None:
    """Cooperative ones keep what they have, and say so in their subscription. Both commit first."""
    client = consumer(assignors=assignors)
    joined(client)
    rebalancing = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    (poll,) = client.handle(Answered("heartbeat", rebalancing, None, HeartbeatRequest("g", 1, "m")), NOW_MS)
    assert isinstance(poll, SetTimer)
    assert sent(client.handle(TimerFired(poll.name), NOW_MS + 500), "commit_offset")
    actions = client.handle(Answered("commit-before-join", OffsetCommitResponse()), NOW_MS + 510)
    assert any(isinstance(action, Gave) for action in actions) is given_up
    (join,) = sent(actions, "classic_join")
    owned = decode_subscription(join.protocols[0].metadata).owned_partitions
    assert owned == (() if given_up else (("t", (0, 1)),))


def test_what_an_older_generation_is_reported_is_old_news() -> None:
    """ILLEGAL_GENERATION for a heartbeat of the generation before changes nothing; of the present one, it is lost."""
    client = consumer()
    joined(client)
    error = ErrorCode.ILLEGAL_GENERATION
    assert client.handle(Answered("heartbeat", None, error, HeartbeatRequest("g", 0, "m")), NOW_MS) == []
    actions = client.handle(Answered("heartbeat", None, error, HeartbeatRequest("g", 1, "m")), NOW_MS)
    assert Heartbeat(0) in actions
    assert client.member_id == ""


def test_the_leader_assigns_for_all() -> None:
    """Its SyncGroup has an assignment for every member of the JoinGroup response."""
    client = consumer()
    (join,) = sent(client.handle(Started(), NOW_MS), "classic_join")
    metadata = join.protocols[0].metadata
    members = tuple(JoinGroupResponseMember(name, None, metadata) for name in ("m", "n"))
    response = JoinGroupResponse(0, 0, 1, "consumer", "range", "m", False, "m", members)
    (sync,) = sent(client.handle(Answered("join", response), NOW_MS), "classic_sync")
    assert [assignment.member_id for assignment in sync.assignments] == ["m", "n"]


@pytest.mark.parametrize(("instance_id", "leaves"), [(None, True), ("i", False)])
def test_only_dynamic_members_leave_when_they_close(instance_id: str | None, leaves: bool) -> None:
    """Static members commit, and go without a word."""
    client = consumer(instance_id=instance_id)
    joined(client)
    assert sent(client.handle(Stop(), NOW_MS + 1000), "commit_offset")
    actions = client.handle(Answered("commit-before-close", OffsetCommitResponse()), NOW_MS + 1010)
    assert bool(sent(actions, "classic_leave")) is leaves
    assert any(isinstance(action, Closed) for action in actions) is not leaves


def test_a_slow_poll_leaves_the_group_after_the_poll_interval_and_not_before() -> None:
    """No timer for it where the poll ends in time."""
    quick, slow = consumer(max_poll_interval_ms=60_000), consumer(max_poll_interval_ms=60_000)
    joined(quick)
    joined(slow)
    assert len(quick.handle(SlowPoll(50_000), NOW_MS)) == 1
    (_, expiry) = slow.handle(SlowPoll(70_000), NOW_MS)
    assert isinstance(expiry, SetTimer)
    assert expiry.delay_ms == 60_000
    assert sent(slow.handle(TimerFired(expiry.name), NOW_MS + 60_000), "classic_leave")


@pytest.mark.parametrize("is_rebalancing", [False, True])
def test_after_a_slow_poll_within_the_interval_only_who_was_asked_to_joins_again(is_rebalancing: bool) -> None:
    """The join before was done with when SyncGroup succeeded: why it was is no reason to join once more."""
    client = consumer(max_poll_interval_ms=60_000)
    joined(client)
    assert client.rejoin_reason == ""
    client.handle(SlowPoll(20_000), NOW_MS)
    if is_rebalancing:
        reported = Answered("heartbeat", None, ErrorCode.REBALANCE_IN_PROGRESS, HeartbeatRequest("g", 1, "m"))
        client.handle(reported, NOW_MS + 3000)
    actions = client.handle(TimerFired(BUSY), NOW_MS + 20_000)
    assert sent(actions, "commit_offset")
    assert client.state is (MemberState.LEAVING_OLD if is_rebalancing else MemberState.STABLE)


def test_a_fenced_static_member_ends() -> None:
    """FENCED_INSTANCE_ID is an error which the application does not survive; nothing follows."""
    client = consumer(instance_id="i")
    joined(client)
    fenced = Answered("heartbeat", None, ErrorCode.FENCED_INSTANCE_ID, HeartbeatRequest("g", 1, "m", "i"))
    assert client.handle(fenced, NOW_MS) == [Closed("FENCED_INSTANCE_ID")]
    assert client.handle(TimerFired("commit"), NOW_MS) == []


def test_an_illegal_transition_raises_and_changes_nothing() -> None:
    """A member which has not joined cannot be stable."""
    client = consumer()
    with pytest.raises(IllegalClientState, match="STABLE may not follow UNJOINED"):
        client._enter(MemberState.STABLE)
    assert client.state is MemberState.UNJOINED


# --- the transaction coordinator ---


class Markers:
    """A transaction coordinator whose markers are written at once, and what it answered."""

    def __init__(self, transaction_version: int = 2) -> None:
        self.loop = EventLoop(0)
        self.written: list[tuple[Producer, bool]] = []
        self.answers: list[ProducerResponse] = []
        self.coordinator = Transactions(self.loop, self._write, transaction_version=transaction_version)

    def _write(self, group_id: str, producer: Producer, is_commit: bool, on_done: Any) -> None:
        self.written.append((producer, is_commit))
        on_done()

    def init(self) -> ProducerResponse:
        self.coordinator.init_producer_id(InitProducerIdRequest("x"), self.answers.append)
        return self.answers[-1]

    def offsets(self, epoch: int) -> ErrorCode | None:
        return self.coordinator.refusal(TxnOffsetCommitRequest("g", 1000, epoch, (), "x"))

    def end(self, epoch: int, *, committed: bool = True) -> ProducerResponse:
        self.coordinator.end_txn(EndTxnRequest("x", 1000, epoch, committed), self.answers.append)
        return self.answers[-1]


@pytest.mark.parametrize(("transaction_version", "epoch_after"), [(1, 0), (2, 1)])
def test_the_epoch_of_a_marker_goes_by_the_transaction_version(transaction_version: int, epoch_after: int) -> None:
    """Version 2: one above that of the records, and the producer goes on with it."""
    markers = Markers(transaction_version)
    assert markers.init() == ProducerResponse(1000, 0)
    assert markers.offsets(0) is None
    assert markers.end(0) == ProducerResponse(1000, epoch_after)
    assert markers.written == [(Producer(1000, epoch_after), True)]


def test_a_new_incarnation_aborts_and_fences_the_one_before() -> None:
    """Its marker has a new epoch, its own is newer still, and the old producer is refused."""
    markers = Markers()
    markers.init()
    assert markers.offsets(0) is None
    assert markers.init().producer_epoch == 2
    assert markers.written == [(Producer(1000, 1), False)]
    assert markers.offsets(0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert markers.end(0).error_code == ErrorCode.PRODUCER_FENCED


def test_a_transaction_which_nobody_ends_times_out() -> None:
    """It is aborted after its time-out, once; one that was ended in time is not."""
    markers = Markers()
    markers.init()
    markers.offsets(0)
    markers.end(0)
    markers.loop.run_until(TRANSACTION_TIMEOUT_MS - 1)
    markers.offsets(1)
    markers.loop.run_until(TRANSACTION_TIMEOUT_MS + 1)
    assert [is_commit for _, is_commit in markers.written] == [True]
    markers.loop.run_until(3 * TRANSACTION_TIMEOUT_MS)
    assert [is_commit for _, is_commit in markers.written] == [True, False]
