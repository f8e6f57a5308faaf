"""The persister of a broker: how share-partition leaders reach the share coordinators (DefaultStatePersister).

How it works
------------
A pure state machine: no sockets, no clock, no random numbers of its own.

* A *call* concerns one share partition: `call`, or `read_into` and `write_of`, which serve a `SharePartition`. Its
  result is passed to the call's callback.
* If the metadata do not have the coordinator of a call, it is looked up first.
* While a request of an operation to a broker is in flight, further calls of that operation to that broker wait; then
  they are sent together, as one request for each group.
* After a transient error (`RETRIABLE`) the call is retried, including the lookup, after a backoff that doubles; after
  `ATTEMPTS_MAX` the error is the result. So calls for one share partition may overtake one another, as in Kafka.

The owner of a persister takes `requests()` and sends them, and passes responses to `on_lookup` and `on_response`; it
calls `advance` at `next_deadline_ms`. Source: PersisterStateManager.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

from coordinator_core.errors import UnknownRequest
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.share_partition.acknowledge import complete_write
from coordinator_core.live.share_partition.errors import InvalidReadState
from coordinator_core.live.share_partition.initialize import (
    begin_initialization,
    complete_initialization,
    fail_initialization,
)
from coordinator_core.live.share_partition.state import PersisterError, ReadState, SharePartition, WriteState
from coordinator_core.live.share_partition.states import SharePartitionState
from coordinator_core.live.share_state.messages import (
    PartitionData,
    PartitionResult,
    ReadPartition,
    ReadResult,
    Response,
    Result,
    StateRequest,
    StateTopic,
    SummaryResult,
    WritePartition,
)
from coordinator_core.replay.lookup import SharePartitionKey
from schemas.error_codes import ErrorCode

BACKOFF_MS: Final = 1000
"""REQUEST_BACKOFF_MS."""
BACKOFF_MAX_MS: Final = 30_000
"""REQUEST_BACKOFF_MAX_MS."""
BACKOFF_JITTER: Final = 0.2
"""RETRY_BACKOFF_JITTER: a backoff is randomly longer or shorter by up to this share."""
ATTEMPTS_MAX: Final = 5
"""MAX_FIND_COORD_ATTEMPTS, which also bounds the attempts of a request."""

RETRIABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors after which a lookup or a request is retried. The last two are used where no response arrived."""


class Rpc(NamedTuple):
    """An operation: its name in error messages, and its result for an error."""

    name: str
    result: Callable[..., Result]
    """Makes the result for an error: (partition, error code, error message)."""


RPCS: Final[Mapping[str, Rpc]] = {
    "initialize_state": Rpc("initialize state", PartitionResult),
    "write_state": Rpc("write state", PartitionResult),
    "read_state": Rpc("read state", ReadResult),
    "read_state_summary": Rpc("read state summary", SummaryResult),
    "delete_state": Rpc("delete state", PartitionResult),
}

OnResult = Callable[[Any], None]
OnDone = Callable[[str | None], None]
"""Called with Kafka's exception class, without its package, or with None on success."""


def ignore(error_class: str | None) -> None:
    """Ignore the result."""


@dataclass(slots=True, eq=False)
class Call:
    """One operation in flight on one share partition (PersisterStateManagerHandler)."""

    operation: str
    key: SharePartitionKey
    data: Any
    """The partition's part of the request."""
    on_result: OnResult
    lookup_attempts: int = 0
    attempts: int = 0


class Lookup(NamedTuple):
    """FindCoordinator for a share partition, to be sent to any broker."""

    request_id: int
    key: SharePartitionKey


class Send(NamedTuple):
    """A request to the broker that coordinates its share partitions."""

    request_id: int
    node_id: int
    operation: str
    request: StateRequest


class _Pending(NamedTuple):
    """Calls that wait for one response. `node_id` is None for a lookup."""

    node_id: int | None
    operation: str
    calls: tuple[Call, ...]


class Persister:
    """All calls of one broker. `coordinator_node`: the broker that coordinates a key according to the metadata, or
    None.
    """

    def __init__(
        self, coordinator_node: Callable[[SharePartitionKey], int | None], random: Callable[[], float]
    ) -> None:
        self._coordinator_node = coordinator_node
        self._random = random
        """Returns numbers from 0 to below 1, for the jitter of backoffs."""
        self._queue: list[Call] = []
        self._gathered: dict[tuple[int, str], dict[str, list[Call]]] = {}
        """(broker, operation) -> group -> calls to send."""
        self._in_flight: set[tuple[int, str]] = set()
        self._pending: dict[int, _Pending] = {}
        self._backing_off: list[tuple[int, int, Call]] = []
        self._created_count = 0

    # --- calls ---

    def call(self, operation: str, key: SharePartitionKey, data: Any, on_result: OnResult) -> None:
        """Begin a call; `on_result` receives the partition's result. Operations are those of the share coordinator."""
        self._queue.append(Call(operation, key, data, on_result))

    def write_of(
        self, partition: SharePartition, key: SharePartitionKey, write: WriteState, on_done: OnDone = ignore
    ) -> None:
        """Persist the result of a share partition's command, then complete it (SharePartition.writeShareGroupState)."""
        data = WritePartition(
            key.partition,
            write.state_epoch,
            write.leader_epoch,
            write.start_offset,
            write.delivery_complete_count,
            write.state_batches,
        )

        def on_result(result: PartitionResult) -> None:
            error = _persister_error(result.error_code)
            complete_write(partition, write.write_id, error)
            on_done(None if error is None else error.error_class)

        self._queue.append(Call("write_state", key, data, on_result))

    def read_into(
        self,
        partition: SharePartition,
        key: SharePartitionKey,
        reset_offset: Callable[[], int],
        on_done: OnDone = ignore,
    ) -> None:
        """Start a share partition from its persisted state; nothing if it is active.

        `reset_offset` returns the offset to begin at if nothing was ever written. Raises NotInitialized while it is
        being started, and after it failed or was fenced. Source: SharePartition.maybeInitialize.
        """
        if not begin_initialization(partition):
            on_done(None)
            return

        def on_result(result: ReadResult) -> None:
            on_done(_start_up(partition, result, reset_offset))

        self.call("read_state", key, ReadPartition(key.partition, partition.config.leader_epoch), on_result)

    # --- the network ---

    def requests(self) -> list[Lookup | Send]:
        """The requests to send now, with calls in their order (SendThread.generateRequests)."""
        sent: list[Lookup | Send] = []
        calls, self._queue = self._queue, []
        for call in calls:
            node_id = self._coordinator_node(call.key)
            if node_id is None:
                sent.append(Lookup(self._new_request(_Pending(None, call.operation, (call,))), call.key))
            else:
                self._gather(node_id, call)
                # At once: the first call is sent alone, and later ones gather while it is in flight.
                self._send_gathered(sent)
        self._send_gathered(sent)
        return sent

    def _send_gathered(self, sent: list[Lookup | Send]) -> None:
        if not self._gathered:
            return
        for destination in [waiting for waiting in self._gathered if waiting not in self._in_flight]:
            node_id, operation = destination
            self._in_flight.add(destination)
            for group_id, gathered in self._gathered.pop(destination).items():
                request_id = self._new_request(_Pending(node_id, operation, tuple(gathered)))
                sent.append(Send(request_id, node_id, operation, _request(group_id, gathered)))

    def on_lookup(self, request_id: int, answer: int | ErrorCode, now_ms: int) -> None:
        """FindCoordinator was answered with the broker's id, or with an error. Raises UnknownRequest."""
        call = self._take(request_id).calls[0]
        call.lookup_attempts += 1
        if not isinstance(answer, ErrorCode):
            call.lookup_attempts = 0
            self._gather(answer, call)
            return
        text = "Error in find coordinator. "
        if answer not in RETRIABLE:
            _fail(call, answer, text + Refused(answer).message)
        elif call.lookup_attempts >= ATTEMPTS_MAX:
            _fail(call, answer, text + "Exhausted max retries to find coordinator without success.")
        else:
            self._back_off(call, call.lookup_attempts, now_ms)

    def on_response(self, request_id: int, answer: Response | ErrorCode, now_ms: int) -> None:
        """A request was answered, or (with an ErrorCode) failed. Raises UnknownRequest.

        If the response lacks a requested partition, that partition's result is UNKNOWN_SERVER_ERROR.
        """
        pending = self._take(request_id)
        assert pending.node_id is not None
        self._in_flight.discard((pending.node_id, pending.operation))
        for call in pending.calls:
            result = _result_of(call, answer)
            call.attempts += 1
            if result.error_code == ErrorCode.NONE:
                call.on_result(result)
            elif result.error_code in RETRIABLE and call.attempts < ATTEMPTS_MAX:
                self._back_off(call, call.attempts, now_ms)
            else:
                name = RPCS[call.operation].name
                is_exhausted = result.error_code in RETRIABLE
                text = f"Exhausted max retries to complete {name} RPC without success." if is_exhausted else None
                _fail(call, result.error_code, f"Error in {name} RPC. {text or result.error_message}")

    def next_deadline_ms(self) -> int | None:
        """When the next call is retried; None if no call waits for that."""
        return self._backing_off[0][0] if self._backing_off else None

    def advance(self, now_ms: int) -> None:
        """Retry the calls whose backoff is over: `requests()` then has their requests."""
        while self._backing_off and self._backing_off[0][0] <= now_ms:
            self._queue.append(heappop(self._backing_off)[2])

    def _back_off(self, call: Call, attempts: int, now_ms: int) -> None:
        self._created_count += 1
        deadline_ms = now_ms + backoff_ms(attempts, self._random())
        heappush(self._backing_off, (deadline_ms, self._created_count, call))

    def _gather(self, node_id: int, call: Call) -> None:
        groups = self._gathered.setdefault((node_id, call.operation), {})
        groups.setdefault(call.key.group_id, []).append(call)

    def _new_request(self, pending: _Pending) -> int:
        self._created_count += 1
        self._pending[self._created_count] = pending
        return self._created_count

    def _take(self, request_id: int) -> _Pending:
        pending = self._pending.pop(request_id, None)
        if pending is None:
            raise UnknownRequest(f"request {request_id} is not under way")
        return pending


def backoff_ms(attempts: int, random: float) -> int:
    """The wait after this many attempts; `random` is 0 to below 1 (ExponentialBackoff)."""
    exponent = min(attempts, math.log2(BACKOFF_MAX_MS / BACKOFF_MS))
    factor = 1 - BACKOFF_JITTER + 2 * BACKOFF_JITTER * random
    return min(int(factor * BACKOFF_MS * 2**exponent), BACKOFF_MAX_MS)


def _request(group_id: str, calls: list[Call]) -> StateRequest:
    """One request for several calls (RequestCoalescerHelper)."""
    topics: dict[str, list[PartitionData]] = {}
    for call in calls:
        topics.setdefault(call.key.topic_id, []).append(call.data)
    return StateRequest(group_id, tuple(StateTopic(topic_id, tuple(data)) for topic_id, data in topics.items()))


def _result_of(call: Call, answer: Response | ErrorCode) -> Result:
    """The result for the call's share partition in the response."""
    partition = call.key.partition
    if isinstance(answer, ErrorCode):
        return RPCS[call.operation].result(partition, answer, Refused(answer).message)
    for topic in answer.results:
        if topic.topic_id == call.key.topic_id:
            for result in topic.partitions:
                if result.partition == partition:
                    return result
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    return RPCS[call.operation].result(partition, code, "the response says nothing of the share partition")


def _fail(call: Call, code: int, message: str) -> None:
    call.on_result(RPCS[call.operation].result(call.key.partition, code, message))


def _persister_error(code: int) -> PersisterError | None:
    """The error of a share partition's read or write; unknown codes become UNKNOWN_SERVER_ERROR."""
    if code == ErrorCode.NONE:
        return None
    return PersisterError.__members__.get(ErrorCode(code).name, PersisterError.UNKNOWN_SERVER_ERROR)


def _start_up(partition: SharePartition, result: ReadResult, reset_offset: Callable[[], int]) -> str | None:
    if partition.partition_state is not SharePartitionState.INITIALIZING:
        # It was fenced while its state was being read, and stays fenced.
        return "FencedStateEpochException"
    error = _persister_error(result.error_code)
    if error is not None:
        fail_initialization(partition)
        return error.error_class
    read = ReadState(result.start_offset, result.state_epoch, result.state_batches)
    try:
        complete_initialization(partition, read, reset_offset() if read.start_offset < 0 else read.start_offset)
    except InvalidReadState:
        return "IllegalStateException"
    return None
