"""Requests and responses about offsets: OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete, DeleteGroups.

Field names and defaults are Kafka's (OffsetCommitRequest.json and similar files).
"""

from dataclasses import dataclass

from coordinator_core.replay.offsets.replay import ZERO_UUID

NO_RETENTION_TIME_MS = -1
INVALID_OFFSET = -1


@dataclass(frozen=True, slots=True)
class OffsetCommitPartition:
    """An offset to commit. `committed_leader_epoch` -1: unknown."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int = -1
    committed_metadata: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetCommitTopic:
    """Up to version 9 clients send the name, from 10 on the id; the broker resolves the other one if it can."""

    partitions: tuple[OffsetCommitPartition, ...]
    name: str = ""
    topic_id: str = ZERO_UUID


@dataclass(frozen=True, slots=True)
class OffsetCommitRequest:
    """`generation_id_or_member_epoch` is negative if the sender is not a member. `retention_time_ms`: versions 2 to 4
    only.
    """

    group_id: str
    topics: tuple[OffsetCommitTopic, ...]
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    retention_time_ms: int = NO_RETENTION_TIME_MS


@dataclass(frozen=True, slots=True)
class TxnOffsetCommitRequest:
    """A commit that takes effect with the marker of the producer's transaction."""

    group_id: str
    producer_id: int
    producer_epoch: int
    topics: tuple[OffsetCommitTopic, ...]
    transactional_id: str = ""
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionError:
    partition_index: int
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class OffsetCommitResponseTopic:
    """The topic as the request names it."""

    name: str
    topic_id: str
    partitions: tuple[PartitionError, ...]


@dataclass(frozen=True, slots=True)
class OffsetCommitResponse:
    """One entry for each partition, in the order of the request. It answers transactional commits, too."""

    throttle_time_ms: int = 0
    topics: tuple[OffsetCommitResponseTopic, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetFetchTopic:
    name: str
    partition_indexes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OffsetFetchRequest:
    """`topics` None: all. Offsets that an open transaction may change are withheld: consumers require stable ones."""

    group_id: str
    topics: tuple[OffsetFetchTopic, ...] | None = None
    member_id: str | None = None
    member_epoch: int = -1


@dataclass(frozen=True, slots=True)
class OffsetFetchResponsePartition:
    """`committed_offset` -1: there is none, or it is withheld."""

    partition_index: int
    committed_offset: int = INVALID_OFFSET
    committed_leader_epoch: int = -1
    metadata: str = ""
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class OffsetFetchResponseTopic:
    name: str
    partitions: tuple[OffsetFetchResponsePartition, ...]


@dataclass(frozen=True, slots=True)
class OffsetFetchResponse:
    """Topics in the order of the request, or all topics with offsets."""

    group_id: str
    topics: tuple[OffsetFetchResponseTopic, ...]
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class OffsetDeletePartition:
    partition_index: int


@dataclass(frozen=True, slots=True)
class OffsetDeleteTopic:
    name: str
    partitions: tuple[OffsetDeletePartition, ...]


@dataclass(frozen=True, slots=True)
class OffsetDeleteRequest:
    group_id: str
    topics: tuple[OffsetDeleteTopic, ...]


@dataclass(frozen=True, slots=True)
class OffsetDeleteResponseTopic:
    name: str
    partitions: tuple[PartitionError, ...]


@dataclass(frozen=True, slots=True)
class OffsetDeleteResponse:
    """Deleting an offset that does not exist is not an error."""

    error_code: int = 0
    throttle_time_ms: int = 0
    topics: tuple[OffsetDeleteResponseTopic, ...] = ()


@dataclass(frozen=True, slots=True)
class DeletableGroupResult:
    group_id: str
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    topic: str
    topic_id: str
