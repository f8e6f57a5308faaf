"""The events a client gets and the actions it asks for: the contract is the docstring of the package."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from coordinator_core.assignors.client_group import TopicPartition
from coordinator_core.coordinator.errors import ErrorCode


class Service(StrEnum):
    """Which coordinator, or which leader, serves a request."""

    GROUP = "group"
    """The coordinator of the group `Send.key`."""
    TRANSACTION = "transaction"
    """The coordinator of the transactional id `Send.key`."""
    DATA = "data"
    """The leader of the data partition `Send.key`, a TopicPartition."""


RETRIABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""Errors after which a client asks again, of the coordinator which it then finds."""

RETRY_BACKOFF_MS: Final = 100
"""retry.backoff.ms of all clients."""


# --- events ---


@dataclass(frozen=True, slots=True)
class Started:
    """The process is up."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to the request of this tag; `error` in its place where the request as a whole was refused.

    REQUEST_TIMED_OUT also means an answer that never came.
    """

    tag: str
    response: Any
    error: ErrorCode | None = None
    request: Any = None
    """What was asked."""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer of the client is due."""

    name: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Close, as a good client does: the world waits until the client says `Closed`."""


@dataclass(frozen=True, slots=True)
class SlowPoll:
    """What the last poll gave takes `duration_ms` to process: the client's own thread is busy until then."""

    duration_ms: int


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """The client's metadata shows that topics were made or deleted, or have grown."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """The application subscribes to these topics from now on."""

    topics: tuple[str, ...]


Event = Started | Answered | TimerFired | Stop | SlowPoll | TopicsChanged | Subscribe


# --- actions ---


@dataclass(frozen=True, slots=True)
class Send:
    """A request. `api_version` is that of the request's kind."""

    service: Service
    key: Any
    operation: str
    request: Any
    tag: str
    api_version: int
    timeout_ms: int | None = None
    """The client gives the answer up after so long, which it then takes for a broken connection. None: of requests that
    wait for nobody and are answered, or lost with their broker, in less."""


@dataclass(frozen=True, slots=True)
class SetTimer:
    """`TimerFired(name)` in `delay_ms`; a timer of this name which runs is replaced."""

    name: str
    delay_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Forget the timer of this name. Absence is fine."""

    name: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """From now on a heartbeat (`Client.heartbeat`) every `interval_ms`, the first in `interval_ms`; 0: no more."""

    interval_ms: int


@dataclass(frozen=True, slots=True)
class Took:
    """The client believes from now on that it owns these partitions, and reads on from these offsets."""

    positions: Sequence[tuple[TopicPartition, int]]
    generation: int


@dataclass(frozen=True, slots=True)
class Gave:
    """It no longer does; each with the next offset that it would have read. `ended_by`: REVOKED, LOST or CLOSED."""

    positions: Sequence[tuple[TopicPartition, int]]
    ended_by: str


@dataclass(frozen=True, slots=True)
class Tell:
    """A line of the truth which only the client knows: `file` without its ending."""

    file: str
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Closed:
    """The client is gone for good: after `Stop`, or because of an error from which clients do not recover."""

    reason: str = "STOPPED"


Action = Send | SetTimer | CancelTimer | Heartbeat | Took | Gave | Tell | Closed
Actions = list[Action]


class Topics(Protocol):
    """What a client can find out about the data."""

    def partition_count(self, topic: str, now_ms: int) -> int:
        """Partitions of a topic; 0 where it does not exist."""
        ...

    def topic_id(self, topic: str) -> str:
        """The id of a topic; of one that was deleted, the last that it had."""
        ...

    def replica_racks(self, topic: str) -> tuple[frozenset[str], ...]:
        """The racks of each partition's replicas, "" for that of a fenced broker; empty where brokers have none."""
        ...

    def exists(self, at: TopicPartition) -> bool:
        """Whether the partition is there."""
        ...

    def made_since(self, topic: str, since_ms: int) -> bool:
        """Whether this topic was made after a time."""
        ...

    def start_offset(self, at: TopicPartition, now_ms: int) -> int:
        """The first offset that is still there."""
        ...

    def has_markers(self, at: TopicPartition) -> bool:
        """Whether its records are of transactions."""
        ...

    def is_marker(self, at: TopicPartition, offset: int) -> bool:
        """Whether it is the marker of a transaction, which clients never see."""
        ...

    def end_offset(self, at: TopicPartition, now_ms: int) -> int:
        """The offset which the next record gets."""
        ...

    def next_poison_offset(self, at: TopicPartition, from_offset: int, to_offset: int) -> int | None:
        """The first poison record from one offset to another (exclusive), or None."""
        ...


class Client(Protocol):
    """A client of any kind."""

    member_id: str
    """Empty while it has none."""

    def handle(self, event: Event, now_ms: int) -> Actions:
        """Take an event; what to do."""
        ...

    def heartbeat(self) -> Send:
        """The heartbeat request as the client would send it now, tagged "heartbeat"."""
        ...

    def session_key(self) -> str:
        """Key of its session timer in the coordinator."""
        ...

    def positions(self, now_ms: int) -> list[tuple[TopicPartition, int]]:
        """What it owns, and its positions, for a client which is about to die."""
        ...


@dataclass(slots=True)
class Progress:
    """How far a consumer is in each partition it owns.

    Each partition gets an even share of what the consumer can handle, and is read as far as there is data. Where data
    went away (retention) it goes on at the first offset that is left. A poison record ends a partition's progress where
    the consumer cannot pass it. Where the topic is deleted there is no progress; where it was made again the position
    is out of range (OFFSET_OUT_OF_RANGE), and the consumer begins at the start of the new log.
    """

    topics: Topics
    records_per_second: float
    stops_at_poison: bool
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    """The next offset to read."""
    since_ms: int = 0

    def advance(self, now_ms: int) -> None:
        """Read on until now."""
        since_ms, self.since_ms = self.since_ms, now_ms
        elapsed_ms = now_ms - since_ms
        if not self.offsets or elapsed_ms <= 0:
            return
        share = int(self.records_per_second * elapsed_ms / 1000 / len(self.offsets))
        for at, offset in self.offsets.items():
            if not self.topics.exists(at):
                continue
            position = 0 if self.topics.made_since(at.topic, since_ms) else offset
            first = max(position, self.topics.start_offset(at, now_ms))
            following = max(first, min(first + share, self.topics.end_offset(at, now_ms)))
            if self.stops_at_poison and following > first:
                poison = self.topics.next_poison_offset(at, first, following)
                following = following if poison is None else poison
            self.offsets[at] = following

    def take(self, positions: Sequence[tuple[TopicPartition, int]], now_ms: int) -> None:
        """Own these partitions, too, from these offsets on."""
        self.advance(now_ms)
        self.offsets.update(positions)

    def give(self, partitions: Sequence[TopicPartition], now_ms: int) -> list[tuple[TopicPartition, int]]:
        """Own these no longer: returns their positions. Those which are not owned are passed over."""
        self.advance(now_ms)
        return [(at, self.offsets.pop(at)) for at in partitions if at in self.offsets]

    def stay_until(self, now_ms: int) -> None:
        """Nothing was read since the last look: the consumer's thread was busy."""
        self.since_ms = now_ms
