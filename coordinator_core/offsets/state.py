"""What a coordinator knows of committed offsets (OffsetMetadataManager, OffsetAndMetadata)."""

from dataclasses import dataclass, field
from typing import NamedTuple

from immutables import Map


class OffsetKey(NamedTuple):
    """What an offset is committed for. Groups need not exist: offsets have a life of their own."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """One offset commit (OffsetAndMetadata). Absent is None here, whatever marks it in the record."""

    record_offset: int
    """Log offset of the record that carried it. Decides between a transactional and a plain commit."""
    committed_offset: int
    leader_epoch: int | None
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None
    """Only value version 1 has one; else the group's retention decides."""
    topic_id: str | None
    """Kafka's 22-character text. Plain commits of value version 4 only: transactional ones never carry it."""


@dataclass(frozen=True, slots=True)
class OffsetsState:
    """Committed and pending offsets of one `__consumer_offsets` partition.

    A producer is in `open_producers[key]` exactly as long as `pending[producer_id]` holds the key.
    """

    offsets: Map[OffsetKey, CommittedOffset] = field(default_factory=Map)
    pending: Map[int, Map[OffsetKey, CommittedOffset]] = field(default_factory=Map)
    """Producer id -> what its open transaction would commit. Producers with nothing pending are not in it."""
    open_producers: Map[OffsetKey, frozenset[int]] = field(default_factory=Map)
    """Who has something pending for the key: a tombstone must forget it for all of them."""
