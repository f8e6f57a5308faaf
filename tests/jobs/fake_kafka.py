"""Brokers of 127.0.0.1 which speak as much of Kafka's protocol as reading a log takes, and misbehave as planned.

    with FakeKafka(leaders=[1, 2]) as kafka:      # partitions of TOPIC by leader; every broker a port of its own
        kafka.logs[0] = [batch(0), batch(1)]
        kafka.on_fetch.append(code(6))            # what happens to the next fetches; then they are served

Requests are decoded and responses encoded by kafka-python's own declarations.
"""

import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock, Thread
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID

from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest, SaslHandshakeResponse

TOPIC: Final = "__consumer_offsets"
TOPIC_ID: Final = UUID(int=7)
OTHER_ID: Final = UUID(int=8)
CLOSE: Final = object()
"""As an answer: the connection is closed instead."""
SILENT: Final = object()
"""As an answer: there is none, and the connection stays open."""

VERSIONS: Final = {
    ApiVersionsRequest: 0,
    FetchRequest: 16,
    FindCoordinatorRequest: 4,
    ListOffsetsRequest: 7,
    MetadataRequest: 12,
    SaslAuthenticateRequest: 1,
    SaslHandshakeRequest: 1,
}
APIS: Final = {request.API_KEY: request for request in VERSIONS}
MAX_VERSIONS: Final = {request.API_KEY: version for request, version in VERSIONS.items()}
ILLEGAL_SASL_STATE: Final = 34

Answer = Callable[["FakeKafka", int, Any], Any]
"""(cluster, node id, request) -> response, CLOSE, SILENT, or None: serve it."""


class FakeKafka:
    """A cluster of fake brokers, with node ids from 1."""

    def __init__(self, leaders: Sequence[int] = (1,), *, node_count: int = 0) -> None:
        self.leaders = list(leaders)
        """Node id by partition; -1 for none."""
        self.logs: dict[int, list[bytes]] = {partition: [] for partition in range(len(leaders))}
        """Batches by partition."""
        self.log_starts = dict.fromkeys(self.logs, 0)
        self.high_watermarks: dict[int, int] = {}
        """Where they are not the end of the log."""
        self.topic_id = TOPIC_ID
        self.cluster_id = "fake"
        self.topics = {TOPIC}
        self.topic_error = 0
        self.on_fetch: list[Answer] = []
        self.on_any: dict[int, list[Answer]] = {}
        """By API key."""
        self.fetches: list[tuple[int, list[tuple[int, int]]]] = []
        """Node id and (partition, offset) of each fetch."""
        self.advertised: dict[int, tuple[str, int]] = {}
        self._lock = Lock()
        self._nodes = {node_id: _Node(self, node_id) for node_id in range(1, max(node_count, *leaders, 1) + 1)}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self._nodes.values():
            node.stop()

    @property
    def address(self) -> str:
        """Of the first broker."""
        return self.address_of(1)

    def address_of(self, node_id: int) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._nodes[node_id].port}"

    def stop(self, node_id: int) -> None:
        """A broker dies: its connections close, and its port refuses new ones."""
        self._nodes[node_id].stop()

    def next_offset(self, partition: int) -> int:
        """The high watermark."""
        if partition in self.high_watermarks:
            return self.high_watermarks[partition]
        return max((last_offset(it) + 1 for it in self.logs[partition]), default=self.log_starts[partition])

    def answer(self, node_id: int, request: Any) -> Any:
        """What a broker answers; one at a time, as tests read better for it."""
        with self._lock:
            planned = self.on_fetch if isinstance(request, FetchRequest) else self.on_any.get(request.API_KEY, [])
            answer = planned.pop(0)(self, node_id, request) if planned else None
            return self._served(node_id, request) if answer is None else answer

    def _served(self, node_id: int, request: Any) -> Any:
        match request:
            case ApiVersionsRequest():
                entry = ApiVersionsResponse.ApiVersion
                keys = [entry(api_key=key, min_version=0, max_version=most) for key, most in MAX_VERSIONS.items()]
                return ApiVersionsResponse(error_code=0, api_keys=keys)
            case MetadataRequest():
                return self._metadata(request)
            case ListOffsetsRequest():
                return self._offsets(node_id, request)
            case FindCoordinatorRequest():
                entry = FindCoordinatorResponse.Coordinator
                found = [
                    entry(key=key, node_id=self.leaders[0], host="", port=0, error_code=0, error_message=None)
                    for key in request.coordinator_keys
                ]
                return FindCoordinatorResponse(throttle_time_ms=0, coordinators=found)
            case FetchRequest():
                return self._fetched(node_id, request)
            case SaslHandshakeRequest():
                return SaslHandshakeResponse(error_code=ILLEGAL_SASL_STATE, mechanisms=[])
        raise AssertionError(f"no answer to {request}")

    def _metadata(self, request: Any) -> Any:
        topic_of = MetadataResponse.MetadataResponseTopic
        brokers = []
        for node_id, node in self._nodes.items():
            host, port = self.advertised.get(node_id, ("127.0.0.1", node.port))
            brokers.append(MetadataResponse.MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=None))
        topics = []
        for it in request.topics or ():
            is_there = it.name in self.topics
            partitions = [
                topic_of.MetadataResponsePartition(
                    error_code=0 if leader > 0 else 5,
                    partition_index=partition,
                    leader_id=leader,
                    leader_epoch=3,
                    replica_nodes=[],
                    isr_nodes=[],
                    offline_replicas=[],
                )
                for partition, leader in enumerate(self.leaders)
            ]
            topics.append(
                topic_of(
                    error_code=self.topic_error if is_there else 3,
                    name=it.name,
                    topic_id=self.topic_id if is_there else None,
                    is_internal=True,
                    partitions=partitions if is_there and not self.topic_error else [],
                )
            )
        return MetadataResponse(
            throttle_time_ms=0, brokers=brokers, cluster_id=self.cluster_id, controller_id=1, topics=topics
        )

    def _offsets(self, node_id: int, request: Any) -> Any:
        topic_of = ListOffsetsResponse.ListOffsetsTopicResponse
        answers = []
        for topic in request.topics:
            partitions = []
            for it in topic.partitions:
                number = it.partition_index
                is_leader = self.leaders[number] == node_id
                offset = self.log_starts[number] if it.timestamp == -2 else self.next_offset(number)
                partitions.append(
                    topic_of.ListOffsetsPartitionResponse(
                        partition_index=number,
                        error_code=0 if is_leader else 6,
                        timestamp=-1,
                        offset=offset if is_leader else -1,
                        leader_epoch=3,
                    )
                )
            answers.append(topic_of(name=topic.name, partitions=partitions))
        return ListOffsetsResponse(throttle_time_ms=0, topics=answers)

    def _fetched(self, node_id: int, request: Any) -> Any:
        room = request.max_bytes
        topics = []
        for topic in request.topics:
            partitions = []
            for it in topic.partitions:
                error, records = self._read(node_id, it, room, is_first=room == request.max_bytes)
                if topic.topic_id != self.topic_id:
                    error, records = 100, b""
                room = max(0, room - len(records))
                partitions.append(fetched_partition(self, it.partition, records, error))
            topics.append(fetched_topic(topic.topic_id, partitions))
        return fetched(topics)

    def _read(self, node_id: int, asked: Any, room: int, *, is_first: bool) -> tuple[int, bytes]:
        if self.leaders[asked.partition] != node_id:
            return 6, b""
        ends = [last_offset(it) for it in self.logs[asked.partition]]
        log_end = max(ends, default=self.log_starts[asked.partition] - 1) + 1
        if not self.log_starts[asked.partition] <= asked.fetch_offset <= log_end:
            return 1, b""
        batches = [it for it, last in zip(self.logs[asked.partition], ends, strict=True) if last >= asked.fetch_offset]
        batches = [it for it in batches if last_offset(it) < self.next_offset(asked.partition)]
        size = min(room, asked.partition_max_bytes)
        if batches and is_first:
            size = max(size, len(batches[0]))
        return 0, b"".join(batches)[:size]


def code(error: int) -> Answer:
    """Every partition of a fetch is answered with an error code."""

    def answer(kafka: FakeKafka, node_id: int, request: Any) -> Any:
        return fetched(
            [
                fetched_topic(it.topic_id, [fetched_partition(kafka, p.partition, b"", error) for p in it.partitions])
                for it in request.topics
            ]
        )

    return answer


def then(change: Callable[[FakeKafka], object], answer: Any = None) -> Answer:
    """Something happens to the cluster before the answer."""

    def answered(kafka: FakeKafka, node_id: int, request: Any) -> Any:
        change(kafka)
        return answer(kafka, node_id, request) if callable(answer) else answer

    return answered


def fetched(topics: list[Any], *, throttle_time_ms: int = 0, error_code: int = 0) -> Any:
    """A response."""
    return FetchResponse(throttle_time_ms=throttle_time_ms, error_code=error_code, session_id=0, responses=topics)


def fetched_topic(topic_id: UUID | None, partitions: list[Any]) -> Any:
    """The part of a topic."""
    return FetchResponse.FetchableTopicResponse(topic_id=topic_id, partitions=partitions)


def fetched_partition(kafka: FakeKafka, partition: int, records: bytes, error: int = 0) -> Any:
    """The part of a log partition."""
    return FetchResponse.FetchableTopicResponse.PartitionData(
        partition_index=partition,
        error_code=error,
        high_watermark=kafka.next_offset(partition) if error == 0 else -1,
        last_stable_offset=-1,
        log_start_offset=kafka.log_starts[partition] if error == 0 else -1,
        aborted_transactions=None,
        preferred_read_replica=-1,
        records=records,
    )


def last_offset(batch: bytes) -> int:
    """Of a magic 2 batch."""
    base_offset: int = struct.unpack_from(">q", batch)[0]
    delta: int = struct.unpack_from(">i", batch, 23)[0]
    return base_offset + delta


class _Node:
    """One broker: a listening socket, and a thread a connection."""

    def __init__(self, kafka: FakeKafka, node_id: int) -> None:
        self._kafka, self._node_id = kafka, node_id
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._connections: list[socket.socket] = []
        Thread(target=self._accept, daemon=True).start()

    def stop(self) -> None:
        """Close everything."""
        for it in (self._server, *self._connections):
            with suppress(OSError):  # of one that the client has closed
                it.shutdown(socket.SHUT_RDWR)
            it.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._connections.append(connection)
            Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            while head := _received(connection, 4):
                data = _received(connection, int.from_bytes(head, "big"))
                if not data:
                    break
                key, version, correlation_id = struct.unpack_from(">hhi", data)
                kind = APIS[key]
                if version > MAX_VERSIONS[key]:
                    # as a broker does it: version 0 says what it knows
                    version, unsupported = 0, 35
                    request = ApiVersionsRequest(version=0)
                else:
                    unsupported = 0
                    request = kind.decode(data, version=version, header=True)
                if isinstance(request, FetchRequest):
                    asked = [(it.partition, it.fetch_offset) for topic in request.topics for it in topic.partitions]
                    self._kafka.fetches.append((self._node_id, asked))
                answer = self._kafka.answer(self._node_id, request)
                if answer is CLOSE:
                    connection.close()
                    return
                if answer is SILENT:
                    continue
                if unsupported:
                    answer.error_code = unsupported
                answer.API_VERSION = version
                answer.with_header(correlation_id=correlation_id)
                connection.sendall(answer.encode(header=True, framed=True))
        except OSError:
            connection.close()


def _received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            return b""
        data += part
    return data
