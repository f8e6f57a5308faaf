"""Read log partitions from their leaders: raw record batches from Fetch, framed like segment files.

Fetch returns the bytes of the log as they are on the broker's disk. With isolation level 0 it reads up to the high
watermark, including control batches and records of open transactions. One response becomes one `SegmentRead`, so all
later code is that for segment files.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from coordinator_core.bytes.log.scan import SegmentScan, scan_segment
from jobs.errors import BrokerError, JobError
from jobs.settings import BrokerAddress
from jobs.sources.broker import (
    NO_ERROR,
    OFFSET_OUT_OF_RANGE,
    RETRIABLE,
    TIMEOUT_MS,
    Broker,
    Deadline,
    Leader,
    OffsetSpec,
    error_name,
)
from jobs.sources.fetch import LogRange, answered_partitions, fetch_request, frame_answer
from jobs.sources.segments import KAFKA, Segment, SegmentRead

FETCH_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum bytes of one response; a single larger batch is still returned. Larger responses are slower and need more
memory."""
OF_CONTROLLERS: Final = frozenset({"__cluster_metadata"})
"""Brokers do not serve these topics to clients: their content comes from Admin requests."""
FETCH_WAIT_MS: Final = 500
"""How long a broker waits for the first byte. The requested data exists, except at a leader that was just elected."""


@dataclass(frozen=True, slots=True)
class BrokerLog:
    """One log partition of a cluster, as of its inspection."""

    address: BrokerAddress
    topic: str
    partition: int
    topic_id: str | None
    log_start_offset: int
    next_offset: int
    """The high watermark: where the next read begins."""
    kafka_cluster_id: str | None = None
    """The cluster's own id, if it was asked for."""

    def range(self, from_offset: int | None = None, to_offset: int | None = None) -> LogRange:
        """A range of its offsets, `to_offset` exclusive; None: from its start, up to its end."""
        return LogRange(
            self.topic,
            self.partition,
            self.topic_id,
            self.log_start_offset if from_offset is None else from_offset,
            self.next_offset if to_offset is None else to_offset,
        )


def find_broker_logs(address: BrokerAddress, topics: Sequence[str], *, timeout_ms: int = TIMEOUT_MS) -> list[BrokerLog]:
    """The log partitions of some topics, by topic and partition; topics that the cluster does not have are left out.

    Raises BrokerError when the cluster cannot be reached, when it has none of the topics, or when one may not be read.
    """
    with Broker.connect(address, timeout_ms=timeout_ms) as broker:
        return list_broker_logs(broker, topics)


def list_broker_logs(broker: Broker, topics: Sequence[str], *, is_any_needed: bool = True) -> list[BrokerLog]:
    """As `find_broker_logs`, over an existing connection.

    `is_any_needed` False: having none of the topics is no error.
    """
    found = broker.topics([topic for topic in topics if topic not in OF_CONTROLLERS])
    if not found and not is_any_needed:
        return []
    if not found:
        raise BrokerError(
            f"nothing to read: {broker.address.bootstrap_servers} has none of the topics {', '.join(topics)}",
            code="NO_TOPIC",
        )
    places = [(info.topic, partition) for info in found.values() for partition in range(info.partition_count)]
    starts = broker.offsets(places, OffsetSpec.EARLIEST)
    ends = broker.offsets(places, OffsetSpec.LATEST)
    return [
        BrokerLog(
            broker.address,
            topic,
            partition,
            found[topic].topic_id,
            starts[topic, partition],
            ends[topic, partition],
            broker.kafka_cluster_id,
        )
        for topic, partition in sorted(places)
    ]


def read_ranges(
    broker: Broker, ranges: Iterable[LogRange], *, fetch_bytes_max: int = FETCH_BYTES_MAX
) -> Iterator[tuple[LogRange, SegmentRead]]:
    """Yield the batches of several ranges: range by range, those of one leader together; within a range by offset.

    One fetch requests all ranges of a leader in order, so many small logs cost one request. The next response is in
    flight while the last one is processed; at most about three responses are in memory.

    A read without batches reports a higher log start offset (`log_start_offset`). Offsets of a range that no read
    covers are holes: compacted, or deleted if they are below the log start offset. Raises BrokerError when a broker
    does not respond within the connection's time-out, when reading is not allowed, or when the log was truncated or
    recreated.
    """
    reader = _Reader(broker, [it for it in ranges if it.from_offset < it.to_offset], fetch_bytes_max)
    return reader.read()


@dataclass(slots=True, eq=False)
class _Progress:
    """How far a range has been read."""

    range: LogRange
    next_offset: int
    buffered: deque[SegmentRead] = field(default_factory=deque)
    is_done: bool = False

    @property
    def place(self) -> str:
        return f"{self.range.topic}-{self.range.partition}"


@dataclass(slots=True, eq=False)
class _Flight:
    leader: Leader
    asked: list[_Progress]
    """In the order of the request, in which the broker fills its response."""
    request: Any
    answer: "Future[Any]"


class _Reader:
    """Fetches ranges one after another, and frames the responses."""

    def __init__(self, broker: Broker, ranges: Sequence[LogRange], fetch_bytes_max: int) -> None:
        self._broker = broker
        self._fetch_bytes_max = fetch_bytes_max
        self._deadline = Deadline(broker.timeout_ms)
        self._was_diagnosed = False
        self._has_progressed = False
        self._resume_at = 0.0
        self._open = deque(_Progress(it, it.from_offset) for it in ranges)

    def read(self) -> Iterator[tuple[LogRange, SegmentRead]]:
        """Yield everything, range by range."""
        self._open = deque(sorted(self._open, key=lambda it: self._leader(it).node_id))
        flight: _Flight | None = None
        while self._open:
            first = self._open[0]
            if first.buffered:
                yield first.range, first.buffered.popleft()
            elif first.is_done:
                self._open.popleft()
            else:
                self._land(flight or self._start())
                # a broker that throttles us is asked again only when there is nothing else to do
                is_waiting = time.monotonic() < self._resume_at
                flight = None if is_waiting or all(it.is_done for it in self._open) else self._start()

    def _leader(self, progress: _Progress) -> Leader:
        return self._broker.leader(progress.range.topic, progress.range.partition, deadline=self._deadline)

    def _start(self) -> _Flight:
        """Send a fetch to the leader of the first unfinished range, for this and other ranges that it leads."""
        wait_s = self._resume_at - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        missing = [it for it in self._open if not it.is_done]
        leader = self._leader(missing[0])
        buffered_bytes = sum(read.data.size for it in self._open for read in it.buffered)
        if buffered_bytes >= self._fetch_bytes_max:
            missing = missing[:1]
        # a response contains a partition once: if several ranges are of one partition, only the first is requested now
        first_of = {(it.range.topic, it.range.partition): it for it in reversed(missing)}
        missing = [it for it in missing if first_of[it.range.topic, it.range.partition] is it]
        asked = [(it, it_leader) for it in missing if (it_leader := self._leader(it)).node_id == leader.node_id]
        request = fetch_request(
            [(it.range, it_leader.leader_epoch, it.next_offset) for it, it_leader in asked],
            bytes_max=self._fetch_bytes_max,
            wait_ms=min(FETCH_WAIT_MS, self._deadline.left_ms),
        )
        answer = self._broker.start(request, leader.node_id, self._deadline.try_ms)
        return _Flight(leader, [it for it, _ in asked], request, answer)

    def _land(self, flight: _Flight) -> None:
        """Wait for the response and distribute it; after a failure, prepare a retry."""
        try:
            answer = flight.answer.result(self._deadline.try_ms / 1000)
        except JobError:
            raise
        except Exception as error:
            self._recover(flight, error)
            return
        first = flight.asked[0]
        self._was_throttled(answer.throttle_time_ms)
        self._has_progressed = False
        code = answer.error_code
        if code != NO_ERROR:
            self._check(first, code)
        found = answered_partitions(answer, [it.range for it in flight.asked])
        for it in flight.asked:
            partition = found.get((it.range.topic, it.range.partition))
            if partition is None:
                continue
            if partition.error_code == NO_ERROR:
                self._take(it, partition, flight.leader, is_first=it is first)
            elif partition.error_code == OFFSET_OUT_OF_RANGE:
                self._move_to_log_start(it, flight.leader)
            else:
                code = partition.error_code
                self._check(it, code)
        if not self._has_progressed and not self._deadline.back_off():
            reason = f": {error_name(code)}" if code != NO_ERROR else ""
            raise BrokerError(
                f"{first.place} could not be read on from offset {first.next_offset} for"
                f" {self._broker.timeout_ms} ms{reason}",
                code="TIMEOUT",
            )

    def _take(self, progress: _Progress, found: Any, leader: Leader, *, is_first: bool) -> None:
        """Frame the bytes of one log partition."""
        chosen = progress.range
        data = pa.py_buffer(found.records or b"")
        if data.size == 0:
            # The first partition of a request always gets a batch if it has one below the high watermark: so compaction
            # left none. For later partitions the response may be full.
            if is_first and found.high_watermark >= chosen.to_offset:
                progress.is_done = True
                self._progressed()
            return
        framed = frame_answer(data, progress.next_offset, chosen.to_offset)
        if not framed.is_end and framed.scan.next_offset <= progress.next_offset:
            if is_first:
                raise BrokerError(
                    f"{progress.place} cannot be read at offset {progress.next_offset}: what {leader.host_port} has"
                    " there is no record batch. Its disk may be damaged: read its segment files with --segments",
                    code="DAMAGED_LOG",
                )
            return  # a truncated batch: it is complete when its partition is the first of a request
        if len(framed.scan.batches) or framed.scan.findings:
            progress.buffered.append(_as_read(progress, leader, framed.data, framed.scan, found.log_start_offset))
        progress.next_offset = max(progress.next_offset, framed.scan.next_offset)
        progress.is_done = framed.is_end or progress.next_offset >= chosen.to_offset
        self._progressed()

    def _progressed(self) -> None:
        self._deadline.restart()
        self._has_progressed = True
        self._was_diagnosed = False

    def _move_to_log_start(self, progress: _Progress, leader: Leader) -> None:
        """Kafka deleted the next offsets: continue at the new log start offset, and report it."""
        place = progress.range.topic, progress.range.partition
        start = self._broker.offsets([place], OffsetSpec.EARLIEST)[place]
        if start > progress.next_offset:
            progress.buffered.append(_as_read(progress, leader, NOTHING, scan_segment(b"", base_offset=start), start))
            progress.next_offset = min(start, progress.range.to_offset)
            progress.is_done = progress.next_offset >= progress.range.to_offset
            self._progressed()
            return
        end = self._broker.offsets([place], OffsetSpec.LATEST)[place]
        if end < progress.next_offset:
            raise BrokerError(
                f"{progress.place} now ends at offset {end}, and was to be read from {progress.next_offset}: an unclean"
                " leader election has cut it",
                code="LOG_CUT",
            )

    def _check(self, progress: _Progress, code: int) -> None:
        """Refresh the topic after a retriable error code; raise other codes."""
        chosen = progress.range
        if code not in RETRIABLE:
            raise self._broker.refused(code, f"to read {progress.place}", chosen.topic)
        self._broker.forget_leaders(chosen.topic)
        topic = self._broker.topics([chosen.topic]).get(chosen.topic)
        if topic is not None and topic.topic_id != chosen.topic_id:
            raise BrokerError(
                f"topic {chosen.topic} was deleted and recreated while it was read", code="TOPIC_RECREATED"
            )

    def _recover(self, flight: _Flight, error: BaseException) -> None:
        """After a missing response: look up the current leaders, and retry."""
        first = flight.asked[0]
        if isinstance(error, TimeoutError):
            self._broker.drop_connection(flight.leader.node_id)
        try:
            if not self._was_diagnosed:
                self._broker.raise_if_final(flight.leader.node_id, error, self._deadline, flight.request)
                self._was_diagnosed = True
            if not self._deadline.back_off():
                raise self._broker.failure(flight.leader.node_id, error)
        except BrokerError as failure:
            raise BrokerError(f"{first.place} at offset {first.next_offset}: {failure}", code=failure.code) from None
        for topic in {it.range.topic for it in flight.asked}:
            self._broker.forget_leaders(topic)
        self._broker.refresh_brokers(self._deadline)

    def _was_throttled(self, throttle_time_ms: int) -> None:
        """A quota: until then kafka-python sends nothing."""
        if throttle_time_ms:
            self._resume_at = time.monotonic() + throttle_time_ms / 1000
            self._deadline.extend(throttle_time_ms)


NOTHING: Final = pa.py_buffer(b"")


def _as_read(
    progress: _Progress, leader: Leader, data: pa.Buffer, scan: SegmentScan, log_start_offset: int
) -> SegmentRead:
    segment = Segment(
        path=f"kafka://{leader.host_port}",
        name=f"{progress.place}@{progress.next_offset}",
        base_offset=progress.next_offset,
        size_bytes=data.size,
        is_last=False,
        source_kind=KAFKA,
    )
    return SegmentRead(segment, data, scan, log_start_offset)
