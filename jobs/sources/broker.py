"""A connection to a Kafka cluster: topics, offsets, and any other request, retried until it is answered.

    with Broker.connect(BrokerAddress("localhost:9092")) as broker:
        broker.topics(["__consumer_offsets"])
        broker.send(request, Coordinator("my-group"))

kafka-python's connection manager keeps the connections (TLS, SASL, API versions, back-off); it runs in its own thread.
It reports most failures as time-outs. So after a failure `jobs.sources.diagnosis` connects to the broker step by step
and reports the step that fails. Nothing waits longer than its time-out. Errors of libraries are never shown nor chained
to our errors: their text may contain client configs.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Self

from kafka import errors as kafka_errors
from kafka.net.selector import NetworkSelector
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from coordinator_core.bytes.codec import uuid_text
from coordinator_core.bytes.log_partitions import LogPartition
from coordinator_core.limits import BATCH_BYTES_MAX
from jobs.errors import BrokerError, JobError
from jobs.settings import BrokerAddress
from jobs.sources.client_properties import load_client_properties
from jobs.sources.connections import ConnectionManager
from jobs.sources.diagnosis import Diagnosis, Reached, diagnose, split_server
from schemas.error_codes import ErrorCode

TIMEOUT_MS: Final = 30_000
"""request.timeout.ms of Kafka's clients."""

ANSWER_BYTES_MAX: Final = BATCH_BYTES_MAX + 64 * 1024 * 1024
"""Maximum size of a response: one batch of the largest size, or many that fill a fetch."""

BACK_OFF_MS: Final = (50, 1_000)
"""Wait before the second attempt, and maximum wait; doubled after each attempt."""
TRY_MS_MIN: Final = 100
"""With less time left no attempt is made: its failure would only hide the cause of earlier ones."""
FIRST_BOOTSTRAP_MS: Final = 1_000
"""A cluster that has not accepted us by then is diagnosed: permanent errors are reported at once."""
LOOK_MS_MIN: Final = 500
"""Minimum time for a diagnosis after the time-out."""
CLOSE_TIMEOUT_MS: Final = 1_000

LATER_ERRORS: Final[Mapping[int, str]] = {int(code): code.name for code in ErrorCode}
"""Names of error codes that kafka-python does not know: it calls all of them UNKNOWN."""
NO_ERROR: Final = 0
OFFSET_OUT_OF_RANGE: Final = 1
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
TOPIC_AUTHORIZATION_FAILED: Final = 29

RETRIABLE: Final = frozenset(
    code for code, error in kafka_errors.kafka_errors.items() if issubclass(error, kafka_errors.RetriableError)
)
"""Codes that Kafka calls retriable: a leader or coordinator moved, or is not ready yet."""

UNREAD_ANSWER: Final = "UNREAD_ANSWER"
"""Code of the BrokerError for a response that cannot be decoded."""
OTHER_CLUSTER: Final = "OTHER_CLUSTER"
"""Code of the BrokerError for an address at which another cluster answers than before."""
OLD_BROKER: Final = "OLD_BROKER"
"""Code of the BrokerError for a request that the broker does not support, or not in a version that we can send."""


class OffsetSpec(IntEnum):
    """Special timestamps of ListOffsets."""

    MAX_TIMESTAMP = -3
    EARLIEST = -2
    """Log start offset."""
    LATEST = -1
    """High watermark: the next offset that consumers can read, regardless of open transactions."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    topic: str
    topic_id: str | None
    """As Kafka prints it; None from brokers before 2.8."""
    partition_count: int
    is_internal: bool


@dataclass(frozen=True, slots=True)
class Leader:
    node_id: int
    leader_epoch: int
    host_port: str
    """The advertised address."""


@dataclass(frozen=True, slots=True)
class _Topic:
    info: TopicInfo
    leaders: Mapping[int, Leader]
    """By partition; partitions without a leader are missing."""


@dataclass(frozen=True, slots=True)
class LeaderOf:
    """Send to the leader of a log partition."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Coordinator:
    """Send to the coordinator of a key."""

    key: str
    """Group id, transactional id, or `group:topic id:partition` of a share partition."""
    key_type: int = 0
    """FindCoordinator's key type: 0 group, 1 transaction, 2 share partition."""


Receiver = int | LeaderOf | Coordinator | None
"""A broker's node id, the leader, the coordinator, or (None) any broker."""


class Deadline:
    """The time left for retries."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self.restart()

    def restart(self) -> None:
        """Progress was made: start the full time-out again."""
        self._end = time.monotonic() + self._timeout_ms / 1000
        self._back_off_ms = BACK_OFF_MS[0]

    def extend(self, by_ms: int) -> None:
        """Add a delay that the broker itself requested."""
        self._end += by_ms / 1000

    @property
    def left_ms(self) -> int:
        """At least 1, so that it is a valid time-out."""
        return max(1, int((self._end - time.monotonic()) * 1000))

    @property
    def try_ms(self) -> int:
        """Time for one attempt: half of the time-out, so that a hanging broker leaves time for another one."""
        return min(self.left_ms, self._timeout_ms // 2 + 1)

    def back_off(self) -> bool:
        """Wait before the next attempt; False when there is no time for one."""
        wait_ms = min(self._back_off_ms, self.left_ms - TRY_MS_MIN)
        if wait_ms <= 0:
            return False
        time.sleep(wait_ms / 1000)
        self._back_off_ms = min(2 * self._back_off_ms, BACK_OFF_MS[1])
        return True


class Broker:
    """Connections to the brokers of one cluster. A context manager, for one thread of one process."""

    def __init__(self, address: BrokerAddress, config: Mapping[str, Any], timeout_ms: int) -> None:
        """Called by `connect`."""
        self.address = address
        self._config = {**config, "receive_message_max_bytes": ANSWER_BYTES_MAX, "request_timeout_ms": timeout_ms}
        self.timeout_ms = timeout_ms
        self.kafka_cluster_id: str | None = None
        """The cluster's own id, set by the first description of topics; None where it has none (before 0.10.1). If
        another cluster answers later, that is an error."""
        self._topics: dict[str, _Topic] = {}
        self._coordinators: dict[Coordinator, int] = {}
        self._net: Any = None
        self._manager: Any = None

    @classmethod
    def connect(cls, address: BrokerAddress, *, timeout_ms: int = TIMEOUT_MS) -> Self:
        """Connect and authenticate. Raises BrokerError, which names the cause, and ClientPropertiesError."""
        # it logs several lines for each failure; our error is one line
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        config = load_client_properties(address.command_config).kafka_python()
        broker = cls(address, {**config, "bootstrap_servers": address.servers}, timeout_ms)
        try:
            broker._bootstrap(address.servers)
        except BaseException:
            broker.close()
            raise
        return broker

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; requests in flight are dropped."""
        net, manager = self._net, self._manager
        self._net = self._manager = None
        if net is None:
            return
        with suppress(TimeoutError):
            self._result(net, manager.close, timeout_ms=CLOSE_TIMEOUT_MS)
        thread = net._io_thread
        net.stop(timeout_ms=CLOSE_TIMEOUT_MS)
        if thread is None or not thread.is_alive():  # else it hangs in a name look-up, and ends with it
            net.close()

    def topics(self, names: Collection[str]) -> dict[str, TopicInfo]:
        """Those of the named topics that exist. Raises BrokerError for a topic that may not be described."""
        self._describe(names, Deadline(self.timeout_ms))
        return {name: self._topics[name].info for name in names if name in self._topics}

    def current_cluster_id(self) -> str | None:
        """The cluster's own id. Raises BrokerError if another cluster than before answers."""
        self._describe((), Deadline(self.timeout_ms))
        return self.kafka_cluster_id

    def leader(self, topic: str, partition: int, *, deadline: Deadline | None = None) -> Leader:
        """The last known leader of a log partition. Waits for an election; raises BrokerError when there is none."""
        deadline = deadline or Deadline(self.timeout_ms)
        while True:
            if topic not in self._topics:
                self._describe([topic], deadline)
            found = self._topics.get(topic)
            if found is not None and partition in found.leaders:
                return found.leaders[partition]
            self.forget_leaders(topic)
            if not deadline.back_off():
                if found is None:
                    raise BrokerError(f"there is no topic {topic} (any more)", code="UNKNOWN_TOPIC")
                raise BrokerError(
                    f"{topic}-{partition} has no leader: its brokers are down, or an election is under way",
                    code="NO_LEADER",
                )

    def forget_leaders(self, topic: str) -> None:
        """Look up the leaders of the topic's partitions again."""
        self._topics.pop(topic, None)

    def offsets(
        self, partitions: Iterable[LogPartition], which: OffsetSpec = OffsetSpec.LATEST
    ) -> dict[LogPartition, int]:
        """The requested offset of each log partition, from its leader. LATEST does not depend on open transactions."""
        deadline = Deadline(self.timeout_ms)
        found: dict[LogPartition, int] = {}
        missing = set(partitions)
        while missing:
            by_leader: dict[int, dict[str, list[tuple[int, int]]]] = {}
            for topic, partition in sorted(missing):
                leader = self.leader(topic, partition, deadline=deadline)
                topics = by_leader.setdefault(leader.node_id, {})
                topics.setdefault(topic, []).append((partition, leader.leader_epoch))
            failed: dict[LogPartition, int] = {}
            for node_id, topics in by_leader.items():
                answer = self.send(_list_offsets(topics, which, self.timeout_ms), node_id, deadline=deadline)
                for topic in answer.topics:
                    for it in topic.partitions:
                        place = topic.name, it.partition_index
                        if it.error_code == NO_ERROR:
                            found[place] = it.offset
                            missing.discard(place)
                        else:
                            failed[place] = it.error_code
            for (topic, partition), code in sorted(failed.items()):
                if code not in RETRIABLE:
                    raise self.refused(code, f"the offsets of {topic}-{partition}", topic)
                self.forget_leaders(topic)
            if missing and not deadline.back_off():
                topic, partition = min(missing)
                raise BrokerError(
                    f"no offset of {topic}-{partition} within {self.timeout_ms} ms:"
                    f" {error_name(failed.get((topic, partition), NO_ERROR))}",
                    code="TIMEOUT",
                )
        return found

    def send(
        self,
        request: Any,
        to: Receiver = None,
        *,
        error_code: Callable[[Any], int] | None = None,
        deadline: Deadline | None = None,
    ) -> Any:
        """The response to a request without side effects, so that it can be retried.

        It is retried while brokers cannot be reached, and while `error_code` finds a retriable code in the response.
        Other codes are left to the caller. Raises BrokerError on time-out, or at once where retries cannot help.
        """
        deadline = deadline or Deadline(self.timeout_ms)
        was_diagnosed = False
        while True:
            node_id: int | None = None
            try:
                node_id = self._node_id(to, deadline)
                answer = self._ask(request, node_id, deadline)
            except JobError:
                raise
            except Exception as error:
                self.forget(to)
                if not is_passing(error) or not was_diagnosed:
                    self.raise_if_final(node_id, error, deadline, request)
                    was_diagnosed = True
                if not deadline.back_off():
                    raise self.failure(node_id, error) from None
                self.refresh_brokers(deadline)
                continue
            code = NO_ERROR if error_code is None else error_code(answer)
            if code not in RETRIABLE:
                return answer
            self.forget(to)
            if not deadline.back_off():
                raise BrokerError(f"no answer within {self.timeout_ms} ms: {error_name(code)}", code="TIMEOUT")

    def forget(self, receiver: Receiver) -> None:
        """Look up the leader or coordinator again."""
        match receiver:
            case LeaderOf(topic):
                self.forget_leaders(topic)
            case Coordinator():
                self._coordinators.pop(receiver, None)

    def start(self, request: Any, node_id: int | None, timeout_ms: int) -> "Future[Any]":
        """Send a request without waiting; the future gets the response, or kafka-python's error."""
        manager = self._manager

        async def ask() -> Any:
            return await manager.send(request, node_id, request_timeout_ms=timeout_ms)

        return _started(self._net, ask)

    def drop_connection(self, node_id: int) -> None:
        """Close the connection to a broker that does not respond; the next request opens a new one."""
        with suppress(TimeoutError):
            self._result(self._net, self._manager.close, node_id, timeout_ms=CLOSE_TIMEOUT_MS)

    def refresh_brokers(self, deadline: Deadline) -> None:
        """Ask any broker for the list of brokers. Failures are ignored: the next request reports them."""
        cluster = self._manager.cluster
        with suppress(kafka_errors.KafkaError, TimeoutError):
            self._result(self._net, cluster.refresh_metadata, timeout_ms=deadline.try_ms)

    def failure(self, node_id: int | None, error: BaseException) -> BrokerError:
        """The error for a broker that could not be reached before the time-out."""
        found = self._look(node_id, LOOK_MS_MIN)
        if found.step is Reached.DONE:
            text = f"{found.server} does not answer within {self.timeout_ms} ms: {_short(error)}"
            return BrokerError(text, code="TIMEOUT")
        return BrokerError(f"{found} (tried for {self.timeout_ms} ms)", code=found.step.name)

    def api_versions(self, api_key: int) -> range:
        """Versions of a request that the bootstrap broker supports; empty if it does not support the request."""
        known = self._manager.broker_version_data
        first, last = (known.api_versions if known is not None else {}).get(api_key, (0, -1))
        return range(first, last + 1)

    def raise_if_final(self, node_id: int | None, error: BaseException, deadline: Deadline, request: Any) -> None:
        """After the first failure of a request, diagnose the connection to the broker, and raise permanent errors."""
        if isinstance(error, kafka_errors.IncompatibleBrokerVersion):
            raise BrokerError(_too_old(request, self.api_versions(request.API_KEY)), code=OLD_BROKER) from None
        if isinstance(error, kafka_errors.InvalidReceiveError):
            raise BrokerError(f"an answer above {ANSWER_BYTES_MAX} bytes is not believed", code="ANSWER") from None
        if type(error) is kafka_errors.KafkaProtocolError:  # its subclasses are temporary, or handled above
            raise BrokerError(
                f"the broker answers {_name_of(request)} version {request.API_VERSION} in a form that cannot be read, "
                "as early access releases do",
                code=UNREAD_ANSWER,
            ) from None
        found = self._look(node_id, deadline.left_ms)
        if found.is_final:
            raise BrokerError(str(found), code=found.step.name) from None

    def refused(self, code: int, what: str, topic: str) -> BrokerError:
        """The error for a response that denies an operation on a topic."""
        if code == TOPIC_AUTHORIZATION_FAILED:
            return BrokerError(
                f"the broker refuses {what}: grant the principal the ACLs Describe and Read on topic {topic}",
                code="TOPIC_AUTHORIZATION_FAILED",
            )
        return BrokerError(f"the broker refuses {what}: {error_name(code)}", code=error_name(code))

    def _bootstrap(self, servers: list[str]) -> None:
        if not servers:
            raise BrokerError("no bootstrap server: HOST:PORT is needed", code="ADDRESS")
        for server in servers:
            split_server(server)
        deadline = Deadline(self.timeout_ms)
        slice_ms = FIRST_BOOTSTRAP_MS
        while True:
            self._open()
            wait_ms = min(slice_ms, deadline.left_ms)
            try:
                self._result(self._net, self._manager.bootstrap_async, wait_ms, timeout_ms=wait_ms)
                return
            except Exception as error:
                last = error
            self.close()
            look_ms = max(LOOK_MS_MIN, deadline.left_ms // len(servers))
            found = [diagnose(server, self._config, timeout_ms=look_ms) for server in servers]
            is_over = not deadline.back_off()
            if is_over or all(it.is_final or it.step is Reached.UNKNOWN_HOST for it in found):
                ends = [it for it in found if it.step is not Reached.DONE]
                if ends:
                    tried = f" (tried for {self.timeout_ms} ms)" if is_over else ""
                    said = "; ".join(dict.fromkeys(map(str, ends)))
                    raise BrokerError(said + tried, code=ends[0].step.name) from None
                if is_over:
                    raise BrokerError(
                        f"no answer from {', '.join(servers)} within {self.timeout_ms} ms: {_short(last)}",
                        code="TIMEOUT",
                    ) from None
            slice_ms *= 2

    def _open(self) -> None:
        self._net = NetworkSelector(**self._config)
        self._manager = ConnectionManager(self._net, **self._config)
        self._manager.cluster.config["allow_auto_create_topics"] = False
        self._net.start()

    def _ask(self, request: Any, node_id: int | None, deadline: Deadline) -> Any:
        timeout_ms = deadline.try_ms
        try:
            return self.start(request, node_id, timeout_ms).result(timeout_ms / 1000)
        except TimeoutError:
            if node_id is not None:
                self.drop_connection(node_id)
            raise

    def _node_id(self, to: Receiver, deadline: Deadline) -> int | None:
        match to:
            case LeaderOf(topic, partition):
                return self.leader(topic, partition, deadline=deadline).node_id
            case Coordinator():
                return self._coordinator(to, deadline)
            case None:
                anybody: int | None = self._manager.least_loaded_node()
                return anybody
        return to

    def _coordinator(self, coordinator: Coordinator, deadline: Deadline) -> int:
        if coordinator not in self._coordinators:
            request = FindCoordinatorRequest(
                key_type=coordinator.key_type, coordinator_keys=[coordinator.key], min_version=4
            )
            answer = self.send(request, error_code=lambda it: it.coordinators[0].error_code, deadline=deadline)
            found = answer.coordinators[0]
            if found.error_code != NO_ERROR:
                name = error_name(found.error_code)
                raise BrokerError(f"the coordinator of {coordinator.key!r} cannot be found: {name}", code=name)
            if self._manager.cluster.broker_metadata(found.node_id) is None:
                self.refresh_brokers(deadline)
            self._coordinators[coordinator] = found.node_id
        return self._coordinators[coordinator]

    def _describe(self, names: Iterable[str], deadline: Deadline) -> None:
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name, topic_id=None) for name in names],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        while True:
            answer = self.send(request, deadline=deadline)
            self._manager.cluster.update_metadata(answer)
            self._check_cluster(getattr(answer, "cluster_id", None))
            nodes = {node.node_id: f"{node.host}:{node.port}" for node in answer.brokers}
            is_unready = False
            for topic in answer.topics:
                code = topic.error_code
                if code == NO_ERROR:
                    self._topics[topic.name] = _topic(topic, nodes)
                elif code == UNKNOWN_TOPIC_OR_PARTITION:
                    self._topics.pop(topic.name, None)
                elif code in RETRIABLE:
                    is_unready = True
                else:
                    raise self.refused(code, f"to describe topic {topic.name}", topic.name)
            if not is_unready or not deadline.back_off():
                return

    def _check_cluster(self, kafka_cluster_id: str | None) -> None:
        """Addresses may move to another cluster while a connection is in use."""
        if kafka_cluster_id is None:
            return
        if self.kafka_cluster_id not in (None, kafka_cluster_id):
            servers: list[str] = self._config["bootstrap_servers"]
            raise BrokerError(
                f"another Kafka cluster answers at {', '.join(servers)}: its cluster id is {kafka_cluster_id}, and it "
                f"was {self.kafka_cluster_id} before. Capture it with a --cluster-id of its own",
                code=OTHER_CLUSTER,
            )
        self.kafka_cluster_id = kafka_cluster_id

    def _look(self, node_id: int | None, timeout_ms: int) -> Diagnosis:
        """Diagnose the connection to a broker; without one, to all known brokers, until one fails."""
        cluster = self._manager.cluster
        nodes = cluster.brokers() if node_id is None else [cluster.broker_metadata(node_id)]
        servers = [f"{node.host}:{node.port}" for node in nodes if node is not None]
        given: list[str] = self._config["bootstrap_servers"]
        found = Diagnosis(given[0], Reached.DONE)
        for server in servers or given:
            found = diagnose(
                server,
                self._config,
                timeout_ms=max(LOOK_MS_MIN, timeout_ms // len(servers or given)),
                is_advertised=server not in given,
            )
            if found.step is not Reached.DONE:
                break
        return found

    @staticmethod
    def _result(net: Any, function: Callable[..., Any], *arguments: Any, timeout_ms: int) -> Any:
        """Run a function in the thread of the connections and return its result. Raises TimeoutError."""
        return _started(net, function, *arguments).result(timeout_ms / 1000)


def topic_id_of(topic_id: Any) -> str | None:
    """kafka-python's uuid in Kafka's text form; None where the broker returns none (before 2.8)."""
    return uuid_text(topic_id.bytes) if topic_id is not None and topic_id.int else None


def error_name(code: int) -> str:
    """Kafka's name of an error code."""
    message = getattr(kafka_errors.for_code(code), "message", None)
    if message == kafka_errors.UnknownError.message and code != kafka_errors.UnknownError.errno:
        message = LATER_ERRORS.get(code)
    return str(message or f"error {code}")


def _too_old(request: Any, known: range) -> str:
    """A sentence: which request, and which version of it, a broker does not support."""
    name = _name_of(request)
    if not known:
        return f"the broker does not know the request {name}"
    lowest = max(request.min_version, request._min_version or 0)
    highest = request.max_version if request._max_version is None else min(request.max_version, request._max_version)
    return (
        f"the broker knows the request {name} in versions {known[0]} to {known[-1]}, "
        f"and is asked in versions {lowest} to {highest}"
    )


def _name_of(request: Any) -> str:
    return str(request.name).removesuffix("Request")


def is_passing(error: BaseException) -> bool:
    """Can a retry succeed?"""
    return isinstance(error, TimeoutError | kafka_errors.UnknownBrokerIdError | kafka_errors.RetriableError)


def _started(net: Any, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
    """Start a function or coroutine in the thread of the connections."""
    done: Future[Any] = Future()

    async def run() -> None:
        try:
            result = function(*arguments)
            while hasattr(result, "__await__"):
                result = await result
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(result)

    net.call_soon_threadsafe(run)
    return done


def _list_offsets(topics: Mapping[str, Iterable[tuple[int, int]]], which: OffsetSpec, timeout_ms: int) -> Any:
    topic_of = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[
            topic_of(
                name=topic,
                partitions=[
                    topic_of.ListOffsetsPartition(
                        partition_index=partition, current_leader_epoch=leader_epoch, timestamp=int(which)
                    )
                    for partition, leader_epoch in partitions
                ],
            )
            for topic, partitions in topics.items()
        ],
        timeout_ms=timeout_ms,
        min_version=7 if which is OffsetSpec.MAX_TIMESTAMP else 1,
    )


def _topic(topic: Any, nodes: Mapping[int, str]) -> _Topic:
    return _Topic(
        TopicInfo(
            topic=topic.name,
            topic_id=topic_id_of(topic.topic_id),
            partition_count=len(topic.partitions),
            is_internal=topic.is_internal,
        ),
        {
            it.partition_index: Leader(it.leader_id, it.leader_epoch, nodes[it.leader_id])
            for it in topic.partitions
            if it.leader_id in nodes
        },
    )


def _short(error: BaseException) -> str:
    """The type of an error. Its text may contain client configs."""
    return type(error).__name__
