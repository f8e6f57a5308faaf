"""A connection to a Kafka cluster: topics, offsets, and any request of Kafka's protocol, sent until it is answered.

    with Broker.connect(BrokerAddress("localhost:9092")) as broker:
        broker.topics(["__consumer_offsets"])
        broker.send(request, Coordinator("my-group"))

kafka-python's connection manager keeps the connections (TLS, SASL, API versions, back-off); it runs in a thread of its
own. What it tells of a failure is a time-out and little else, so after a failure `jobs.sources.diagnosis` goes the way
to the broker step by step and says at which one it ends. Nothing waits longer than its time-out. What went wrong in a
library is never shown nor chained to an error of ours: its text may hold what the client was configured with.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from types import TracebackType
from typing import Any, Final, Self

from kafka import errors as kafka_errors
from kafka.net.selector import NetworkSelector
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from coordinator_core.codec import uuid_text
from coordinator_core.coordinator.errors import ErrorCode
from coordinator_core.limits import BATCH_BYTES_MAX
from coordinator_core.log_partitions import LogPartition
from jobs.errors import BrokerError, JobError
from jobs.settings import BrokerAddress
from jobs.sources.client_properties import load_client_properties
from jobs.sources.connections import ConnectionManager
from jobs.sources.diagnosis import Diagnosis, Reached, diagnose, split_server

TIMEOUT_MS: Final = 30_000
"""request.timeout.ms of Kafka's clients."""

ANSWER_BYTES_MAX: Final = BATCH_BYTES_MAX + 64 * 1024 * 1024
"""The largest answer that is believed: one batch of the largest size, or many which fill a fetch."""

BACK_OFF_MS: Final = (50, 1_000)
"""Wait before the second try, and the longest one; doubled from try to try."""
TRY_MS_MIN: Final = 100
"""With less time left nothing more is tried: it would only hide what hindered the tries before."""
FIRST_BOOTSTRAP_MS: Final = 1_000
"""A cluster that has not let us in by then is looked at: what cannot get better is said at once."""
LOOK_MS_MIN: Final = 500
"""For a look at a broker when the time is over."""
CLOSE_TIMEOUT_MS: Final = 1_000

LATER_ERRORS: Final[Mapping[int, str]] = {int(code): code.name for code in ErrorCode}
"""Names of errors, for those that kafka-python does not know: it calls all of them UNKNOWN."""
NO_ERROR: Final = 0
OFFSET_OUT_OF_RANGE: Final = 1
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
TOPIC_AUTHORIZATION_FAILED: Final = 29

RETRIABLE: Final = frozenset(
    code for code, error in kafka_errors.kafka_errors.items() if issubclass(error, kafka_errors.RetriableError)
)
"""Codes which Kafka calls retriable: a leader or coordinator moved, or is not ready yet."""

UNREAD_ANSWER: Final = "UNREAD_ANSWER"
"""Code of the BrokerError of an answer that cannot be decoded."""
OLD_BROKER: Final = "OLD_BROKER"
"""Code of the BrokerError of a request that the broker does not know, or not in a version that we can send."""


class OffsetSpec(IntEnum):
    """Which offset of a log partition to ask for: the special timestamps of ListOffsets."""

    MAX_TIMESTAMP = -3
    EARLIEST = -2
    """Log start offset."""
    LATEST = -1
    """High watermark: next offset that consumers may read, open transactions or not."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the cluster describes it."""

    topic: str
    topic_id: str | None
    """As Kafka prints it; None from brokers before 2.8."""
    partition_count: int
    is_internal: bool


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a log partition."""

    node_id: int
    leader_epoch: int
    host_port: str
    """As the broker advertises it."""


@dataclass(frozen=True, slots=True)
class _Topic:
    info: TopicInfo
    leaders: Mapping[int, Leader]
    """By partition; those without a leader are missing."""


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
    """0 a group, 1 a transaction, 2 a share partition (FindCoordinator's key type)."""


Receiver = int | LeaderOf | Coordinator | None
"""A broker's node id, who leads, who coordinates, or any broker."""


class Deadline:
    """How long to go on trying."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self.restart()

    def restart(self) -> None:
        """There was progress: the whole time from now on."""
        self._end = time.monotonic() + self._timeout_ms / 1000
        self._back_off_ms = BACK_OFF_MS[0]

    def extend(self, by_ms: int) -> None:
        """The broker itself asked to wait."""
        self._end += by_ms / 1000

    @property
    def left_ms(self) -> int:
        """At least 1, so that it can be a time-out."""
        return max(1, int((self._end - time.monotonic()) * 1000))

    @property
    def try_ms(self) -> int:
        """For one try: half of the whole time, so that a broker which hangs leaves time for another one."""
        return min(self.left_ms, self._timeout_ms // 2 + 1)

    def back_off(self) -> bool:
        """Wait before the next try; False when there is no time for one."""
        wait_ms = min(self._back_off_ms, self.left_ms - TRY_MS_MIN)
        if wait_ms <= 0:
            return False
        time.sleep(wait_ms / 1000)
        self._back_off_ms = min(2 * self._back_off_ms, BACK_OFF_MS[1])
        return True


def _client_config(address: BrokerAddress) -> dict[str, Any]:
    """Keyword arguments for kafka-python; they hold the secrets of the file. Raises ClientPropertiesError."""
    properties = load_client_properties(address.command_config)
    return {**properties.kafka_python(), "bootstrap_servers": address.servers}


class Broker:
    """Connections to the brokers of one cluster. Use it as a context manager, from one thread, in one process."""

    def __init__(self, config: Mapping[str, Any], timeout_ms: int) -> None:
        """For `connect`."""
        self._config = {
            **config,
            "receive_message_max_bytes": ANSWER_BYTES_MAX,
            "request_timeout_ms": timeout_ms,
        }
        self.timeout_ms = timeout_ms
        self.kafka_cluster_id: str | None = None
        """The cluster's own id, once it has described topics; None where it has none."""
        self._topics: dict[str, _Topic] = {}
        self._coordinators: dict[Coordinator, int] = {}
        self._net: Any = None
        self._manager: Any = None

    @classmethod
    def connect(cls, address: BrokerAddress, *, timeout_ms: int = TIMEOUT_MS) -> Self:
        """Connect and log in. Raises BrokerError, which says what hinders it, and ClientPropertiesError."""
        # it logs each failure in several lines; we say it in one
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        broker = cls(_client_config(address), timeout_ms)
        try:
            broker._bootstrap(address.servers)
        except BaseException:
            broker.close()
            raise
        return broker

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; what is in flight is dropped."""
        net, manager = self._net, self._manager
        self._net = self._manager = None
        if net is None:
            return
        with suppress(TimeoutError):
            self._result(net, manager.close, timeout_ms=CLOSE_TIMEOUT_MS)
        thread = net._io_thread
        net.stop(timeout_ms=CLOSE_TIMEOUT_MS)
        if thread is None or not thread.is_alive():  # else it hangs in a name look-up, and ends with that
            net.close()

    def topics(self, names: Collection[str]) -> dict[str, TopicInfo]:
        """Those of the named topics which exist. Raises BrokerError for one which may not be described."""
        self._describe(names, Deadline(self.timeout_ms))
        return {name: self._topics[name].info for name in names if name in self._topics}

    def leader(self, topic: str, partition: int, *, deadline: Deadline | None = None) -> Leader:
        """The leader of a log partition as last known. Waits for an election; raises BrokerError when there is none."""
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
        """An offset of each log partition, asked of its leader; open transactions do not hold LATEST back."""
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
        """The answer to a request which changes nothing, so that it may be sent again.

        It is sent again while brokers cannot be reached, and while `error_code` finds a code in the answer which Kafka
        calls retriable. Other codes are the caller's. Raises BrokerError when the time is over, or at once where trying
        again is no use.
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

    def start(self, request: Any, node_id: int, timeout_ms: int) -> "Future[Any]":
        """Send a request now; the answer, or kafka-python's error, comes while the caller does something else."""
        manager = self._manager

        async def ask() -> Any:
            return await manager.send(request, node_id, request_timeout_ms=timeout_ms)

        return _started(self._net, ask)

    def drop_connection(self, node_id: int) -> None:
        """Close the connection to a broker which does not answer; the next request makes a new one."""
        with suppress(TimeoutError):
            self._result(self._net, self._manager.close, node_id, timeout_ms=CLOSE_TIMEOUT_MS)

    def refresh_brokers(self, deadline: Deadline) -> None:
        """Ask any broker that answers who the brokers are. Silent when none does: the next request shows it."""
        cluster = self._manager.cluster
        with suppress(kafka_errors.KafkaError, TimeoutError):
            self._result(self._net, cluster.refresh_metadata, timeout_ms=deadline.try_ms)

    def failure(self, node_id: int | None, error: BaseException) -> BrokerError:
        """The error of a broker that could not be reached until the time was over."""
        found = self._look(node_id, LOOK_MS_MIN)
        if found.step is Reached.DONE:
            text = f"{found.server} does not answer within {self.timeout_ms} ms: {_short(error)}"
            return BrokerError(text, code="TIMEOUT")
        return BrokerError(f"{found} (tried for {self.timeout_ms} ms)", code=found.step.name)

    def api_versions(self, api_key: int) -> range:
        """Versions of a request that the bootstrap broker knows; empty where it does not know the request."""
        known = self._manager.broker_version_data
        first, last = (known.api_versions if known is not None else {}).get(api_key, (0, -1))
        return range(first, last + 1)

    def raise_if_final(self, node_id: int | None, error: BaseException, deadline: Deadline, request: Any) -> None:
        """Look at the way to a broker after a first failure of a request, and raise what waiting cannot heal."""
        if isinstance(error, kafka_errors.IncompatibleBrokerVersion):
            raise BrokerError(_too_old(request, self.api_versions(request.API_KEY)), code=OLD_BROKER) from None
        if isinstance(error, kafka_errors.InvalidReceiveError):
            raise BrokerError(f"an answer above {ANSWER_BYTES_MAX} bytes is not believed", code="ANSWER") from None
        if type(error) is kafka_errors.KafkaProtocolError:  # its subclasses pass, or are handled above
            raise BrokerError(
                f"the broker answers {_name_of(request)} version {request.API_VERSION} in a form that cannot be read, "
                "as early access releases do",
                code=UNREAD_ANSWER,
            ) from None
        found = self._look(node_id, deadline.left_ms)
        if found.is_final:
            raise BrokerError(str(found), code=found.step.name) from None

    def refused(self, code: int, what: str, topic: str) -> BrokerError:
        """The error of an answer which refuses something of a topic."""
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
        manager = self._manager

        async def ask() -> Any:
            return await manager.send(request, node_id, request_timeout_ms=timeout_ms)

        try:
            return self._result(self._net, ask, timeout_ms=timeout_ms)
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
            self.kafka_cluster_id = getattr(answer, "cluster_id", None) or self.kafka_cluster_id
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

    def _look(self, node_id: int | None, timeout_ms: int) -> Diagnosis:
        """Go the way to a broker; without one, to all that are known, until a way ends."""
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
        """What a function, run in the thread of the connections, gives. Raises TimeoutError."""
        return _started(net, function, *arguments).result(timeout_ms / 1000)


def topic_id_of(topic_id: Any) -> str | None:
    """kafka-python's uuid as Kafka prints it; None where the broker gives none, as before 2.8."""
    return uuid_text(topic_id.bytes) if topic_id is not None and topic_id.int else None


def error_name(code: int) -> str:
    """Kafka's name of an error code."""
    message = getattr(kafka_errors.for_code(code), "message", None)
    if message == kafka_errors.UnknownError.message and code != kafka_errors.UnknownError.errno:
        message = LATER_ERRORS.get(code)
    return str(message or f"error {code}")


def _too_old(request: Any, known: range) -> str:
    """Which request, and which version of it, a broker does not know."""
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
    """May the same request succeed a little later?"""
    if isinstance(error, TimeoutError | kafka_errors.UnknownBrokerIdError):
        return True
    return isinstance(error, kafka_errors.RetriableError)


def _started(net: Any, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
    """Run a function, or a coroutine, in the thread of the connections."""
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
    """What kind of error it was. Its text may hold what a client was configured with."""
    return type(error).__name__
