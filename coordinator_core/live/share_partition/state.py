"""The state of a share partition in memory, and the types of its commands and their results.

Times are epoch milliseconds; each command carries the time. A command that must persist a change returns a
`WriteState`; the result of the write is passed to `complete_write` later. The order of commands and results is the
whole input: the same order gives the same state.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion, Since
from coordinator_core.live.share_partition.in_flight import CachedState, InFlightState, LockTimers
from coordinator_core.live.share_partition.states import SharePartitionState
from coordinator_core.replay.share_state.combine import StateBatch, StateBatches
from schemas.dead_letters import DeadLetterCause

IN_FLIGHT_RECORDS_MAX_DEFAULT: Final = 2000
"""share.partition.max.record.locks, Kafka's default."""
DELIVERY_COUNT_LIMIT_DEFAULT: Final = 5
"""share.delivery.count.limit, Kafka's default."""
RECORD_LOCK_DURATION_MS_DEFAULT: Final = 30_000
"""share.record.lock.duration.ms, Kafka's default."""
DELIVERY_COUNT_MAX: Final = 32_767
"""The count is persisted as an int16."""
THROTTLE_DELIVERY_COUNT_MIN: Final = 2
"""Throttling begins with the third delivery at the earliest (MINIMUM_THROTTLE_RECORDS_DELIVERY_LIMIT)."""
BATCH_OFFSETS_MAX: Final = 2**22
"""The most offsets of one batch, from the log or persisted. A batch may be split into one state per offset, so a batch
with a wrong last offset must be refused; this many of the smallest records take 28 MiB, and brokers accept 1 MiB by
default."""
NO_PRODUCER_ID: Final = -1
"""The producer id of a batch whose producer is neither idempotent nor transactional."""


class AcquireMode(StrEnum):
    """How strictly a fetch observes its number of records (ShareAcquireMode)."""

    BATCH_OPTIMIZED = "batch_optimized"
    """Whole log batches: more records than requested if the last batch is longer."""
    RECORD_LIMIT = "record_limit"
    """Never more than requested: the rest of the last log batch stays AVAILABLE."""


class IsolationLevel(StrEnum):
    """Which transactional records a share group reads (share.isolation.level)."""

    READ_UNCOMMITTED = "READ_UNCOMMITTED"
    READ_COMMITTED = "READ_COMMITTED"


class PersisterError(StrEnum):
    """The errors with which a write of share state can fail, under Kafka's names
    (SharePartition.fetchPersisterError)."""

    NOT_COORDINATOR = "NOT_COORDINATOR"
    COORDINATOR_NOT_AVAILABLE = "COORDINATOR_NOT_AVAILABLE"
    COORDINATOR_LOAD_IN_PROGRESS = "COORDINATOR_LOAD_IN_PROGRESS"
    GROUP_ID_NOT_FOUND = "GROUP_ID_NOT_FOUND"
    UNKNOWN_TOPIC_OR_PARTITION = "UNKNOWN_TOPIC_OR_PARTITION"
    FENCED_LEADER_EPOCH = "FENCED_LEADER_EPOCH"
    FENCED_STATE_EPOCH = "FENCED_STATE_EPOCH"
    INVALID_REQUEST = "INVALID_REQUEST"
    NETWORK_EXCEPTION = "NETWORK_EXCEPTION"
    UNKNOWN_SERVER_ERROR = "UNKNOWN_SERVER_ERROR"

    @property
    def error_class(self) -> str:
        """Kafka's exception class with which the waiting request is answered."""
        return _ERROR_CLASS.get(self, "UnknownServerException")


_ERROR_CLASS: Final = {
    PersisterError.NOT_COORDINATOR: "CoordinatorNotAvailableException",
    PersisterError.COORDINATOR_NOT_AVAILABLE: "CoordinatorNotAvailableException",
    PersisterError.COORDINATOR_LOAD_IN_PROGRESS: "CoordinatorNotAvailableException",
    PersisterError.GROUP_ID_NOT_FOUND: "GroupIdNotFoundException",
    PersisterError.UNKNOWN_TOPIC_OR_PARTITION: "UnknownTopicOrPartitionException",
    PersisterError.FENCED_LEADER_EPOCH: "NotLeaderOrFollowerException",
    PersisterError.FENCED_STATE_EPOCH: "NotLeaderOrFollowerException",
}


@dataclass(frozen=True, slots=True)
class SharePartitionConfig:
    """The configuration of a share partition. Raises ValueError for invalid values."""

    leader_epoch: int = 0
    """The leader epoch of the data partition, from when this broker became its leader."""
    in_flight_records_max: int = IN_FLIGHT_RECORDS_MAX_DEFAULT
    delivery_count_limit: int = DELIVERY_COUNT_LIMIT_DEFAULT
    record_lock_duration_ms: int = RECORD_LOCK_DURATION_MS_DEFAULT
    is_renew_acknowledge_enabled: bool = True
    """share.renew.acknowledge.enable: a group may forbid RENEW."""
    kafka_version: KafkaVersion = DEFAULT_VERSION
    """The release whose behaviour the broker has."""
    has_dead_letter_topic: bool = False
    """errors.deadletterqueue.topic.name of the group is set, and share.version is 2: since Kafka 4.4."""

    def __post_init__(self) -> None:
        if self.leader_epoch < 0:
            raise ValueError(f"leader epoch {self.leader_epoch} is negative")
        if not 1 <= self.delivery_count_limit <= DELIVERY_COUNT_MAX:
            raise ValueError(f"delivery count limit {self.delivery_count_limit} is not in 1..{DELIVERY_COUNT_MAX}")
        if self.in_flight_records_max < 1 or self.record_lock_duration_ms < 1:
            raise ValueError("the in-flight limit and the lock duration are at least 1")
        if self.has_dead_letter_topic and not self.knows_archiving:
            raise ValueError(f"Kafka {self.kafka_version} has no dead letter topics")

    @property
    def knows_archiving(self) -> bool:
        """Whether records can have the state ARCHIVING."""
        return Since.ARCHIVING_IS_A_STATE.holds_in(self.kafka_version)

    @property
    def throttle_delivery_count(self) -> int:
        """From this delivery count on, a batch is delivered in smaller and smaller parts
        (throttleRecordsDeliveryLimit).
        """
        return max(THROTTLE_DELIVERY_COUNT_MIN, (self.delivery_count_limit + 1) // 2)


@dataclass(frozen=True, slots=True)
class ReadState:
    """The state of the share partition from the share coordinator (ReadShareGroupState)."""

    start_offset: int
    """-1: never written; then the group's share.auto.offset.reset decides."""
    state_epoch: int
    state_batches: StateBatches = ()


@dataclass(frozen=True, slots=True)
class LogBatch:
    """A record batch read from the log, `last_offset` inclusive. Raises ValueError for an invalid range."""

    first_offset: int
    last_offset: int
    producer_id: int = NO_PRODUCER_ID
    is_transactional: bool = False
    is_abort_marker: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.first_offset <= self.last_offset < self.first_offset + BATCH_OFFSETS_MAX:
            raise ValueError(f"{self.first_offset}..{self.last_offset} is no range of offsets of a batch")


class AbortedTransaction(NamedTuple):
    """An aborted transaction, with the offset from which on its records may be."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """The result of a read of the log at `fetch_offset`.

    The first batch may begin before the fetch offset, or after it if the log has a hole. Batches are in ascending
    order.
    """

    fetch_offset: int
    log_batches: Sequence[LogBatch]
    aborted_transactions: Sequence[AbortedTransaction] = ()


class AcquiredRecords(NamedTuple):
    """Records delivered to a member, `last_offset` inclusive, all with the same delivery count."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Acquired(NamedTuple):
    """The result of an acquire, for the member (ShareAcquiredRecords)."""

    records: tuple[AcquiredRecords, ...]
    record_count: int


class AcknowledgementBatch(NamedTuple):
    """A member's acknowledgement of a range of offsets, `last_offset` inclusive (ShareAcknowledgementBatch)."""

    first_offset: int
    last_offset: int
    acknowledge_types: tuple[int, ...]
    """One type for the whole range, or one for each offset."""


class WriteCause(StrEnum):
    """Why state is written. After a lock timeout no request waits for the result, and a failure changes nothing."""

    ACKNOWLEDGE = "ACKNOWLEDGE"
    RELEASE = "RELEASE"
    LOCK_TIMEOUT = "LOCK_TIMEOUT"
    DEAD_LETTER = "DEAD_LETTER"
    """The copy to the dead letter topic has ended. No request waits for the result, and a failure changes nothing."""


@dataclass(frozen=True, slots=True)
class WriteState:
    """State that the share coordinator must persist (WriteShareGroupState). `write_id` counts from 0."""

    write_id: int
    cause: WriteCause
    start_offset: int
    """The start offset before the changes of this write."""
    state_epoch: int
    leader_epoch: int
    delivery_complete_count: int
    """The count after the changes of this write."""
    state_batches: StateBatches


@dataclass(slots=True)
class GapWindow:
    """Offsets below the last persisted one without a known state: the former leader fetched them, and their state was
    lost with it.

    In force as long as the share partition's end offset is `end_offset`. Source: SharePartition.GapWindow.
    """

    end_offset: int
    """The last persisted offset, inclusive."""
    gap_start_offset: int


class Change(NamedTuple):
    """A change of state that is under way, and the batch that persists it (SharePartition.PersisterBatch)."""

    state: InFlightState
    state_batch: StateBatch
    cause: DeadLetterCause = DeadLetterCause.DELIVERY_LIMIT
    """The cause of a change to ARCHIVING."""


@dataclass(frozen=True, slots=True)
class DeadLetterCopy:
    """Records that the broker must copy to the dead letter topic, `last_offset` inclusive. Ids count from 0."""

    copy_id: int
    first_offset: int
    last_offset: int
    delivery_count: int
    cause: DeadLetterCause


@dataclass(slots=True, eq=False)
class SharePartition:
    """The records of a partition that a share group has in flight, from `start_offset` to `end_offset`.

    Change it through the commands of this package only.
    """

    config: SharePartitionConfig
    partition_state: SharePartitionState = SharePartitionState.EMPTY
    start_offset: int = 0
    """The first offset that is not completed yet (SPSO)."""
    end_offset: int = 0
    """The last offset in flight, inclusive (SPEO); the next offset to fetch while nothing is in flight."""
    state_epoch: int = 0
    delivery_complete_count: int = 0
    """The number of offsets in a terminal state from `start_offset` on."""
    find_next_fetch_offset: bool = False
    """Records between start and end offset may have become fetchable."""
    gap_window: GapWindow | None = None
    cached: CachedState = field(default_factory=CachedState)
    locks: LockTimers = field(default_factory=LockTimers)
    writes_under_way: dict[int, tuple[WriteCause, tuple[Change, ...]]] = field(default_factory=dict)
    next_write_id: int = 0
    copies_due: list[DeadLetterCopy] = field(default_factory=list)
    """Copies for the broker to take (`dead_letters.take_copies`)."""
    copies_under_way: dict[int, tuple[DeadLetterCopy, InFlightState]] = field(default_factory=dict)
    """Copy id -> copy that has not ended, due ones included."""
    next_copy_id: int = 0

    @property
    def is_active(self) -> bool:
        return self.partition_state is SharePartitionState.ACTIVE

    @property
    def is_gap_window_active(self) -> bool:
        """isPersisterReadGapWindowActive."""
        return self.gap_window is not None and self.gap_window.end_offset == self.end_offset

    @property
    def in_flight_record_count(self) -> int:
        """The number of offsets from start to end, natural gaps included (numInFlightRecords)."""
        return self.end_offset - self.start_offset + 1 if len(self.cached) else 0

    def record_count_from_start(self, first_offset: int, last_offset: int) -> int:
        """How many offsets of the range are not below the start offset (numInFlightRecordsInBatch)."""
        # Comparisons, as this runs for each offset acknowledged, and max() costs a call.
        first_offset = first_offset if first_offset > self.start_offset else self.start_offset
        return last_offset - first_offset + 1 if last_offset >= first_offset else 0

    def is_start_inside(self, first_offset: int, last_offset: int) -> bool:
        """Whether the start offset has moved into the range (checkForStartOffsetWithinBatch)."""
        return first_offset < self.start_offset <= last_offset
