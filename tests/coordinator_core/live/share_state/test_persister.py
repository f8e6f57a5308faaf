"""The persister: share partitions and their coordinators, and what it does while a coordinator cannot be reached."""

from collections.abc import Callable
from typing import Any

import pytest

from coordinator_core.errors import UnknownRequest
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.image import Topic, image_of
from coordinator_core.live.share_partition.acknowledge import acknowledge
from coordinator_core.live.share_partition.acquire import acquire
from coordinator_core.live.share_partition.errors import NotInitialized
from coordinator_core.live.share_partition.initialize import fence
from coordinator_core.live.share_partition.state import (
    AcknowledgementBatch,
    FetchedBatches,
    LogBatch,
    SharePartition,
    SharePartitionConfig,
)
from coordinator_core.live.share_partition.states import SharePartitionState
from coordinator_core.live.share_state.commands import OPERATIONS
from coordinator_core.live.share_state.coordinator import ShareCoordinator
from coordinator_core.live.share_state.messages import (
    DeletePartition,
    InitializePartition,
    PartitionResult,
    ReadPartition,
    Response,
    TopicResult,
    WritePartition,
)
from coordinator_core.live.share_state.persister import ATTEMPTS_MAX, Lookup, Persister, Send, backoff_ms
from coordinator_core.replay.lookup import SharePartitionKey
from coordinator_core.replay.share_state.combine import StateBatch
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.share_state.exchange import exchange, served
from tests.coordinator_core.logs import MemoryLog

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
KEY = SharePartitionKey("sg", TOPIC_ID, 0)
NODE = 7
MIDDLE = 0.5
"""The random number without jitter."""


class Cluster:
    """A broker which leads a share partition, its persister, and a share coordinator which may be out of reach."""

    def __init__(self, leader_epoch: int = 1, knows_coordinator: bool = True) -> None:
        self.now_ms = 0
        self.fault: ErrorCode | None = None
        """What requests are answered with, if not served."""
        self.is_silent = False
        """The fault is that no response comes."""
        self.requests: list[Send] = []
        self.coordinator = ShareCoordinator(now_ms=0, image=image_of([Topic("orders", TOPIC_ID, 4)]), log=MemoryLog())
        self.coordinator.run("initialize_state", KEY, InitializePartition(0, 3, 0), now_ms=0)
        self.persister = Persister(lambda key: NODE if knows_coordinator else None, lambda: MIDDLE)
        self.partition = SharePartition(SharePartitionConfig(leader_epoch))
        self.done: list[str | None] = []

    def serve(self, request: Send) -> Response | ErrorCode:
        self.requests.append(request)
        if self.fault is None:
            return served(self.coordinator, request.operation, request.request, self.now_ms)[0]
        if self.is_silent:
            return self.fault
        refused, operation = Refused(self.fault), OPERATIONS[request.operation]
        return Response(
            tuple(
                TopicResult(
                    topic.topic_id,
                    tuple(operation.refused(it.partition, refused.code, refused.message) for it in topic.partitions),
                )
                for topic in request.request.topics
            )
        )

    def exchange(self, find: Callable[[SharePartitionKey], int | ErrorCode] = lambda key: NODE) -> None:
        exchange(self.persister, find, self.serve, self.now_ms)

    def wait(self) -> list[int]:
        """Let time pass until nothing is tried again any more: the times of the attempts."""
        times = []
        while (deadline_ms := self.persister.next_deadline_ms()) is not None:
            self.now_ms = deadline_ms
            times.append(deadline_ms)
            self.persister.advance(self.now_ms)
            self.exchange()
        return times

    def start(self, reset_offset: int = 0) -> None:
        self.persister.read_into(self.partition, KEY, lambda: reset_offset, self.done.append)
        self.exchange()

    def acknowledge(self, last_offset: int = 4) -> None:
        """Acquire 0..9, accept up to `last_offset`, and persist it."""
        fetched = FetchedBatches(0, [LogBatch(0, 9)])
        acquire(self.partition, "m", fetched, self.now_ms, batch_size=500, fetch_records_max=500)
        write = acknowledge(self.partition, "m", [AcknowledgementBatch(0, last_offset, (1,))], self.now_ms)
        assert write is not None
        self.persister.write_of(self.partition, KEY, write, self.done.append)
        self.exchange()

    @property
    def persisted(self) -> Any:
        return self.coordinator.shard.share_partitions[KEY]


# --- share partitions ---


def test_what_is_acknowledged_is_there_after_a_failover() -> None:
    """The next leader goes on where the records are which nobody has settled, and the one before is fenced."""
    cluster = Cluster()
    cluster.start()
    cluster.acknowledge()
    assert cluster.partition.start_offset == 5
    assert cluster.persisted.state_batches == (StateBatch(0, 4, 2, 1),)
    old, cluster.partition = cluster.partition, SharePartition(SharePartitionConfig(leader_epoch=2))
    cluster.start()
    assert (cluster.partition.start_offset, cluster.partition.state_epoch) == (5, 3)
    cluster.partition = old
    write = acknowledge(old, "m", [AcknowledgementBatch(5, 9, (1,))], 0)
    assert write is not None
    cluster.persister.write_of(old, KEY, write, cluster.done.append)
    cluster.exchange()
    assert cluster.done == [None, None, None, "NotLeaderOrFollowerException"]
    assert old.start_offset == 5


def test_a_state_never_written_begins_where_the_group_says() -> None:
    """Start offset -1: share.auto.offset.reset decides."""
    cluster = Cluster()
    cluster.coordinator.run("initialize_state", KEY, InitializePartition(0, 3, -1), now_ms=0)
    cluster.start(reset_offset=42)
    assert cluster.partition.start_offset == 42
    cluster.persister.read_into(cluster.partition, KEY, lambda: 99, cluster.done.append)
    assert cluster.done == [None, None]
    assert cluster.partition.start_offset == 42


@pytest.mark.parametrize(
    ("operation", "data", "error_class"),
    [
        ("delete_state", DeletePartition(0), "UnknownServerException"),
        ("read_state", ReadPartition(0, 2), "NotLeaderOrFollowerException"),
        ("write_state", WritePartition(0, 3, 1, 0, 0, (StateBatch(0, 4, 3, 1),)), "IllegalStateException"),
    ],
    ids=["not-initialized", "another-leads", "a-state-nobody-knows"],
)
def test_a_share_partition_which_cannot_start_fails(operation: str, data: Any, error_class: str) -> None:
    """The broker throws it away; it cannot be started again."""
    cluster = Cluster()
    cluster.coordinator.run(operation, KEY, data, now_ms=0)
    cluster.start()
    assert cluster.done == [error_class]
    assert cluster.partition.partition_state is SharePartitionState.FAILED
    with pytest.raises(NotInitialized):
        cluster.persister.read_into(cluster.partition, KEY, lambda: 0)


def test_a_share_partition_fenced_while_it_starts_stays_so() -> None:
    """The answer comes too late: another broker leads."""
    cluster = Cluster()
    cluster.persister.read_into(cluster.partition, KEY, lambda: 0, cluster.done.append)
    fence(cluster.partition)
    cluster.exchange()
    assert cluster.done == ["FencedStateEpochException"]
    assert cluster.partition.partition_state is SharePartitionState.FENCED


def test_a_write_nobody_waits_for_is_completed_all_the_same() -> None:
    """As after a lock has run out."""
    cluster = Cluster()
    cluster.start()
    fetched = FetchedBatches(0, [LogBatch(0, 0)])
    acquire(cluster.partition, "m", fetched, 0, batch_size=1, fetch_records_max=1)
    write = acknowledge(cluster.partition, "m", [AcknowledgementBatch(0, 0, (1,))], 0)
    assert write is not None
    cluster.persister.write_of(cluster.partition, KEY, write)
    cluster.exchange()
    assert cluster.partition.start_offset == 1


# --- trying again ---

RETRIED = [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]


@pytest.mark.parametrize("fault", RETRIED)
def test_a_coordinator_which_cannot_serve_is_asked_again_and_then_no_more(fault: ErrorCode) -> None:
    """Five attempts with 2, 4, 8 and 16 seconds between; then the acknowledgement is rolled back."""
    cluster = Cluster()
    cluster.start()
    cluster.fault = fault
    cluster.acknowledge()
    assert cluster.wait() == [2000, 6000, 14_000, 30_000]
    assert cluster.done == [None, "CoordinatorNotAvailableException"]
    assert len([request for request in cluster.requests if request.operation == "write_state"]) == ATTEMPTS_MAX
    assert cluster.partition.start_offset == 0
    assert cluster.persisted.state_batches == ()


def test_writes_of_one_share_partition_may_overtake_one_another() -> None:
    """The first waits to be tried again; the second arrives before it. Kafka keeps no order here either."""
    cluster = Cluster()
    cluster.start()
    cluster.fault = ErrorCode.NOT_COORDINATOR
    cluster.acknowledge(last_offset=1)
    cluster.fault = None
    write = acknowledge(cluster.partition, "m", [AcknowledgementBatch(2, 3, (1,))], 0)
    assert write is not None
    cluster.persister.write_of(cluster.partition, KEY, write)
    cluster.exchange()
    assert cluster.persisted.state_batches == (StateBatch(2, 3, 2, 1),)
    cluster.wait()
    assert cluster.persisted.state_batches == (StateBatch(0, 3, 2, 1),)
    assert cluster.partition.start_offset == 4


@pytest.mark.parametrize(
    ("attempts", "random", "expected_ms"),
    [
        (0, 0.5, 1000),
        (1, 0.0, 1600),
        (1, 0.5, 2000),
        (1, 1.0, 2400),
        (4, 0.5, 16_000),
        (5, 0.5, 30_000),
        (9, 1.0, 30_000),
    ],
)
def test_a_back_off_doubles_up_to_a_limit(attempts: int, random: float, expected_ms: int) -> None:
    """With a fifth more or less by chance, so that not all come at once; the limit holds whatever the chance."""
    assert backoff_ms(attempts, random) == expected_ms


# --- looking up ---


def test_who_is_not_known_from_the_metadata_is_looked_up() -> None:
    """FindCoordinator goes before the request, again for each attempt."""
    cluster = Cluster(knows_coordinator=False)
    cluster.persister.call("read_state", KEY, ReadPartition(0, -1), lambda result: None)
    (lookup,) = cluster.persister.requests()
    assert isinstance(lookup, Lookup)
    assert lookup.key == KEY
    cluster.persister.on_lookup(lookup.request_id, NODE, 0)
    (send,) = cluster.persister.requests()
    assert isinstance(send, Send)
    assert send.node_id == NODE
    cluster.persister.on_response(send.request_id, ErrorCode.NETWORK_EXCEPTION, 0)
    cluster.persister.advance(2000)
    assert isinstance(cluster.persister.requests()[0], Lookup)


@pytest.mark.parametrize(
    ("error", "attempts", "message"),
    [
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 5, "Exhausted max retries to find coordinator without success."),
        (ErrorCode.NETWORK_EXCEPTION, 5, "Exhausted max retries to find coordinator without success."),
        (ErrorCode.INVALID_REQUEST, 1, "INVALID_REQUEST"),
    ],
)
def test_a_coordinator_which_nobody_finds_is_an_error(error: ErrorCode, attempts: int, message: str) -> None:
    """The internal topic may be made by the first look-up, so the first answers may be errors which pass."""
    results: list[PartitionResult] = []
    found: list[SharePartitionKey] = []

    def find(key: SharePartitionKey) -> ErrorCode:
        found.append(key)
        return error

    persister = Persister(lambda key: None, lambda: MIDDLE)
    persister.call("write_state", KEY, WritePartition(0), results.append)
    now_ms: int | None = 0
    while now_ms is not None:
        persister.advance(now_ms)
        exchange(persister, find, lambda request: Response(), now_ms)
        now_ms = persister.next_deadline_ms()
    assert results == [PartitionResult(0, error, f"Error in find coordinator. {message}")]
    assert len(found) == attempts


def test_look_ups_which_succeed_do_not_count_with_those_which_fail() -> None:
    """Each attempt of the request has look-ups of its own, four of which may fail."""
    persister = Persister(lambda key: None, lambda: MIDDLE)
    results: list[PartitionResult] = []
    persister.call("write_state", KEY, WritePartition(0), results.append)
    answers: list[int | ErrorCode] = [*[ErrorCode.NOT_COORDINATOR] * 4, NODE] * ATTEMPTS_MAX
    now_ms: int | None = 0
    while now_ms is not None:
        persister.advance(now_ms)
        exchange(persister, lambda key: answers.pop(0), lambda request: ErrorCode.NETWORK_EXCEPTION, now_ms)
        now_ms = persister.next_deadline_ms()
    text = "Error in write state RPC. Exhausted max retries to complete write state RPC without success."
    assert results == [PartitionResult(0, ErrorCode.NETWORK_EXCEPTION, text)]
    assert answers == []


# --- gathering ---


def key(group_id: str, partition: int) -> SharePartitionKey:
    return SharePartitionKey(group_id, TOPIC_ID, partition)


def partitions_of(send: Any) -> tuple[str, list[int]]:
    return send.request.group_id, [data.partition for topic in send.request.topics for data in topic.partitions]


def test_calls_gather_while_a_request_of_their_kind_is_under_way() -> None:
    """The first goes at once and alone; then one request for each group, and other operations wait for none."""
    persister = Persister(lambda key: NODE, lambda: MIDDLE)
    results: list[tuple[str, int]] = []

    def write(group_id: str, partition: int) -> None:
        persister.call(
            "write_state",
            key(group_id, partition),
            WritePartition(partition),
            lambda r: results.append((group_id, r.partition)),
        )

    for group_id, partition in [("a", 0), ("a", 1), ("b", 0), ("a", 2)]:
        write(group_id, partition)
    (first,) = persister.requests()
    assert partitions_of(first) == ("a", [0])
    persister.call("read_state", key("a", 0), ReadPartition(0), lambda result: None)
    (read,) = persister.requests()
    assert isinstance(read, Send)
    assert read.operation == "read_state"
    persister.on_response(first.request_id, Response((TopicResult(TOPIC_ID, (PartitionResult(0),)),)), 0)
    assert results == [("a", 0)]
    gathered = persister.requests()
    assert [partitions_of(send) for send in gathered] == [("a", [1, 2]), ("b", [0])]
    both = Response((TopicResult(TOPIC_ID, (PartitionResult(2), PartitionResult(1))),))
    persister.on_response(gathered[0].request_id, both, 0)
    assert results == [("a", 0), ("a", 1), ("a", 2)]


def test_two_writes_of_one_share_partition_in_a_request_share_its_answer() -> None:
    """The answer has one result for a partition, the last: whoever wrote before takes it for its own, as in Kafka."""
    cluster = Cluster()
    results: list[PartitionResult] = []
    for state_epoch in (3, 2, 3):
        cluster.persister.call("write_state", KEY, WritePartition(0, state_epoch, -1), results.append)
    cluster.exchange()
    assert len(cluster.requests) == 2
    assert [result.error_code for result in results] == [ErrorCode.NONE] * 3
    assert cluster.coordinator.shard.update_counts[KEY] == 2


def test_a_response_which_lacks_the_share_partition_is_the_servers_fault() -> None:
    """It is not tried again: nothing says that it would help."""
    persister = Persister(lambda key: NODE, lambda: MIDDLE)
    results: list[PartitionResult] = []
    persister.call("delete_state", KEY, DeletePartition(0), results.append)
    exchange(persister, lambda key: NODE, lambda request: Response(), 0)
    assert [result.error_code for result in results] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert persister.next_deadline_ms() is None


def test_an_answer_comes_once() -> None:
    """The second one is the caller's mistake."""
    persister = Persister(lambda key: NODE, lambda: MIDDLE)
    persister.call("delete_state", KEY, DeletePartition(0), lambda result: None)
    (send,) = persister.requests()
    persister.on_response(send.request_id, Response(), 0)
    with pytest.raises(UnknownRequest):
        persister.on_response(send.request_id, Response(), 0)
    with pytest.raises(UnknownRequest):
        persister.on_lookup(99, NODE, 0)
