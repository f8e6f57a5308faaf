"""Dead letter topics: since Kafka 4.4 brokers copy there the records that a share group gives up (KIP-1191).

Each broker has one `DeadLetterSender`. It has at most one request under way to the leader of a dead letter partition;
copies requested in the meantime go into the next request, in the same batch. A copy that the broker refuses, or that
failed too often, fails, and its records are archived all the same. Copies have headers alone: there are no payloads
here, as if errors.deadletterqueue.copy.record.enable were false.

Source: ShareGroupDLQStateManager of Kafka 4.4.0.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from coordinator_core.bytes.log.batch import Record, build_batch
from coordinator_core.live.assignors.client_group import TopicPartition
from coordinator_core.live.runtime.partition import PartitionLog
from coordinator_core.live.share_partition.dead_letters import headers_of
from coordinator_core.live.share_partition.state import DeadLetterCopy
from schemas.dead_letters import DeadLetterOrigin
from schemas.error_codes import ErrorCode
from simulator.simulation.clock import EventLoop
from simulator.simulation.cluster import INTERNAL_MS, Cluster
from simulator.simulation.topics import Topics
from simulator.simulation.truth import Truth

BROKER_ID: Final = 1
"""Dead letter logs are on one broker that never fails."""
ATTEMPTS_MAX: Final = 5
BACKOFF_MS: Final = 1000
BACKOFF_MAX_MS: Final = 30_000
BACKOFF_JITTER: Final = 0.2
BATCH_RECORDS_MAX: Final = 1000
"""The limit of one request: the headers of so many records stay below max.message.bytes, whatever the names."""
NOT_ENABLED: Final = "DLQ is not enabled on configured DLQ topic for share group: {group_id}, topic: {topic}."
NO_TOPIC: Final = (
    "DLQ topic does not exist and auto create is disabled on cluster for share group: {group_id}, topic: {topic}."
)
UNKNOWN_TOPIC_ID: Final = "This server does not host this topic ID."
EXHAUSTED: Final = "Exhausted max retries to produce to DLQ topic without success."

OnCopied = Callable[[], None]


class DeadLetterLogs:
    """The logs of the dead letter topics, shared by all brokers."""

    def __init__(self, topics: Topics, loop: EventLoop, on_append: Callable[[TopicPartition], None]) -> None:
        self._topics = topics
        self._loop = loop
        self._on_append = on_append
        self._logs: dict[tuple[str, int], PartitionLog] = {}
        """(topic id, partition) -> log."""

    def logs(self) -> Iterator[tuple[PartitionLog, str]]:
        """The logs of all dead letter topics, each with its topic's id."""
        for at in self._topics.partitions():
            if self._topics.are_dead_letters_enabled(at.topic):
                yield self._log(at), self._topics.topic_id(at.topic)

    def append(self, at: TopicPartition, headers: list[tuple[tuple[str, bytes], ...]]) -> int:
        """Append records with these headers in one batch; returns the offset of the first."""
        log, now_ms = self._log(at), self._loop.now_ms
        first_offset = log.end_offset
        records = [Record(first_offset + index, now_ms, None, None, it) for index, it in enumerate(headers)]
        log.append(BROKER_ID, build_batch(records))
        self._topics.add_records(at, len(records), now_ms)
        self._on_append(at)
        return first_offset

    def _log(self, at: TopicPartition) -> PartitionLog:
        place = (self._topics.topic_id(at.topic), at.partition)
        if place not in self._logs:
            self._logs[place] = PartitionLog(at.topic, at.partition, (BROKER_ID,))
        return self._logs[place]


@dataclass(slots=True)
class _Letter:
    """A copy that a broker has to make."""

    topic: str
    group_id: str
    origin: TopicPartition
    copy: DeadLetterCopy
    on_done: OnCopied
    next_offset: int
    """The first offset of the source that is not copied yet."""
    failed_count: int = 0


@dataclass(eq=False)
class DeadLetterSender:
    """Makes the copies of one broker. `stop` it when the broker fails: what it had not sent is not sent."""

    cluster: Cluster
    loop: EventLoop
    topics: Topics
    letter_logs: DeadLetterLogs
    truth: Truth
    draws: random.Random
    _waiting: dict[TopicPartition, list[_Letter]] = field(default_factory=dict)
    """Dead letter partition -> the copies to send there."""
    _in_flight: set[TopicPartition] = field(default_factory=set)
    _is_stopped: bool = False

    def stop(self) -> None:
        """Stop sending: the broker is down."""
        self._is_stopped = True

    def copy(self, topic: str, group_id: str, origin: TopicPartition, copy: DeadLetterCopy, on_done: OnCopied) -> None:
        """Copy records of a partition to the dead letter topic of a group; `on_done` is called once, whatever the
        result, possibly at once."""
        self._enqueue(_Letter(topic, group_id, origin, copy, on_done, copy.first_offset))

    def _enqueue(self, letter: _Letter) -> None:
        partition_count = self.topics.partition_count(letter.topic)
        if not partition_count or not self.topics.are_dead_letters_enabled(letter.topic):
            refusal = NOT_ENABLED if partition_count else NO_TOPIC
            self._fail(letter, refusal.format(group_id=letter.group_id, topic=letter.topic))
            return
        at = TopicPartition(letter.topic, letter.origin.partition % partition_count)
        self._waiting.setdefault(at, []).append(letter)
        self._send(at)

    def _send(self, at: TopicPartition) -> None:
        if self._is_stopped or at in self._in_flight or at not in self._waiting:
            return
        letters: list[tuple[_Letter, int]] = []
        """The copies of this request, each with the source offset after its last record in it."""
        left = BATCH_RECORDS_MAX
        waiting = self._waiting.pop(at)
        while waiting and left:
            letter = waiting.pop(0)
            next_offset = min(letter.copy.last_offset + 1, letter.next_offset + left)
            left -= next_offset - letter.next_offset
            letters.append((letter, next_offset))
        if waiting:
            self._waiting[at] = waiting
        self._in_flight.add(at)
        self.loop.after(INTERNAL_MS, self._arrive, at, self.cluster.data_leader(at), letters)

    def _arrive(self, at: TopicPartition, leader: int | None, letters: list[tuple[_Letter, int]]) -> None:
        """A request reaches the leader of a dead letter partition, unless that broker is down."""
        if leader not in self.cluster.alive:
            self.loop.after(INTERNAL_MS, self._on_response, at, letters, ErrorCode.NETWORK_EXCEPTION)
            return
        if not self.topics.exists(at):
            self.loop.after(INTERNAL_MS, self._on_response, at, letters, ErrorCode.UNKNOWN_TOPIC_ID)
            return
        headers = [
            headers_of(DeadLetterOrigin(letter.group_id, *letter.origin, offset), letter.copy)
            for letter, next_offset in letters
            for offset in range(letter.next_offset, next_offset)
        ]
        log_offset = self.letter_logs.append(at, headers)
        for letter, next_offset in letters:
            self._record(letter, letter.next_offset, next_offset - 1, log=[at.partition, log_offset], error=None)
            log_offset += next_offset - letter.next_offset
        self.loop.after(INTERNAL_MS, self._on_response, at, letters, None)

    def _on_response(self, at: TopicPartition, letters: list[tuple[_Letter, int]], error: ErrorCode | None) -> None:
        if self._is_stopped:
            return
        self._in_flight.discard(at)
        for letter, next_offset in letters:
            if error is ErrorCode.UNKNOWN_TOPIC_ID:
                self._fail(letter, UNKNOWN_TOPIC_ID)
                continue
            if error is not None:
                self._try_again(letter)
                continue
            letter.failed_count, letter.next_offset = 0, next_offset
            if next_offset > letter.copy.last_offset:
                letter.on_done()
            else:
                self._enqueue(letter)
        self._send(at)

    def _try_again(self, letter: _Letter) -> None:
        """Retry with growing backoff, up to `ATTEMPTS_MAX` times (ExponentialBackoffManager)."""
        letter.failed_count += 1
        if letter.failed_count >= ATTEMPTS_MAX:
            self._fail(letter, EXHAUSTED)
            return
        backoff_ms = min(BACKOFF_MS * 2 ** (letter.failed_count - 1), BACKOFF_MAX_MS)
        backoff_ms = int(backoff_ms * self.draws.uniform(1 - BACKOFF_JITTER, 1 + BACKOFF_JITTER))
        self.loop.after(backoff_ms, self._retry, letter)

    def _retry(self, letter: _Letter) -> None:
        if not self._is_stopped:
            self._enqueue(letter)

    def _fail(self, letter: _Letter, error: str) -> None:
        self._record(letter, letter.next_offset, letter.copy.last_offset, log=None, error=error)
        letter.on_done()

    def _record(self, letter: _Letter, first_offset: int, last_offset: int, **facts: Any) -> None:
        line = {
            "group": letter.group_id,
            "topic": letter.origin.topic,
            "partition": letter.origin.partition,
            "first_offset": first_offset,
            "last_offset": last_offset,
            "delivery_count": letter.copy.delivery_count,
            "message": letter.copy.cause.value,
            "dead_letter_topic": letter.topic,
        }
        self.truth.record("dead_letters", self.loop.now_ms, {**line, **facts})
