"""The state of committed offsets in their coordinator (OffsetMetadataManager, OffsetAndMetadata)."""

from dataclasses import dataclass, field
from typing import NamedTuple

from immutables import Map


class OffsetKey(NamedTuple):
    """The key of a committed offset. The group need not exist: offsets are independent of it."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """One offset commit (OffsetAndMetadata). Missing values are None here, whatever represents them in the record."""

    record_offset: int
    """Log offset of the record with the commit. Decides between a transactional and a plain commit."""
    committed_offset: int
    leader_epoch: int | None
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None
    """Only value version 1 has one; otherwise the retention of the group's offsets decides."""
    topic_id: str | None
    """Kafka's 22-character text. Plain commits of value version 4 only: transactional ones never have it."""


@dataclass(frozen=True, slots=True)
class OffsetsState:
    """Committed and pending offsets of one `__consumer_offsets` partition.

    A producer is in `open_producers[key]` exactly as long as `pending[producer_id]` contains the key.
    """

    offsets: Map[OffsetKey, CommittedOffset] = field(default_factory=Map)
    pending: Map[int, Map[OffsetKey, CommittedOffset]] = field(default_factory=Map)
    """Producer id -> the offsets that its open transaction would commit. Producers with no pending offsets are not in
    it.
    """
    open_producers: Map[OffsetKey, frozenset[int]] = field(default_factory=Map)
    """Key -> the producers with a pending offset for it: a tombstone must remove it for all of them."""
