"""Requests to the share coordinator and its responses, with Kafka's field names in snake case (KIP-932).

All five requests have the same form, group -> topics -> partitions, and so have the responses. State batches are
`combine.StateBatch`.
"""

from dataclasses import dataclass

from coordinator_core.replay.share_state.combine import StateBatches
from coordinator_core.replay.share_state.state import UNKNOWN_COUNT
from schemas.error_codes import ErrorCode

NO_CHECK = -1
"""A leader or state epoch in a request that asks for no check."""


@dataclass(frozen=True, slots=True)
class InitializePartition:
    """One partition of an InitializeShareGroupState request."""

    partition: int
    state_epoch: int = 0
    """The group's epoch; -1 for any."""
    start_offset: int = 0
    """-1: the leader of the share partition determines it (share.auto.offset.reset)."""


@dataclass(frozen=True, slots=True)
class WritePartition:
    """One partition of a WriteShareGroupState request."""

    partition: int
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = UNKNOWN_COUNT
    state_batches: StateBatches = ()


@dataclass(frozen=True, slots=True)
class ReadPartition:
    """One partition of a ReadShareGroupState or ReadShareGroupStateSummary request."""

    partition: int
    leader_epoch: int = 0


@dataclass(frozen=True, slots=True)
class DeletePartition:
    """One partition of a DeleteShareGroupState request."""

    partition: int


PartitionData = InitializePartition | WritePartition | ReadPartition | DeletePartition


@dataclass(frozen=True, slots=True)
class StateTopic:
    """One topic of a request; its partitions are all of the class that belongs to the request."""

    topic_id: str
    partitions: tuple[PartitionData, ...] = ()


@dataclass(frozen=True, slots=True)
class StateRequest:
    """InitializeShareGroupState, WriteShareGroupState, ReadShareGroupState, ReadShareGroupStateSummary or
    DeleteShareGroupState: the operation says which."""

    group_id: str
    topics: tuple[StateTopic, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """The result for one partition that was initialized, written or deleted."""

    partition: int
    error_code: int = ErrorCode.NONE
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class ReadResult(PartitionResult):
    """The state of one partition (ReadShareGroupState)."""

    state_epoch: int = 0
    start_offset: int = 0
    state_batches: StateBatches = ()


@dataclass(frozen=True, slots=True)
class SummaryResult(PartitionResult):
    """The state of one partition without its batches (ReadShareGroupStateSummary)."""

    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = UNKNOWN_COUNT


Result = PartitionResult | ReadResult | SummaryResult


@dataclass(frozen=True, slots=True)
class TopicResult:
    topic_id: str
    partitions: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class Response:
    results: tuple[TopicResult, ...] = ()
