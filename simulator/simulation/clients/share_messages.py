"""ShareFetch, as far as a simulation needs it: the fetch, the acknowledgements of records fetched before, and the
session.

Names are those of ShareFetchRequest.json. A session belongs to one member of one group, on one broker. Its epoch is 0
in the request that opens it, then increases by one with every request; -1 closes it, and releases the acquired records.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from coordinator_core.live.assignors.client_group import TopicPartition
from coordinator_core.live.share_partition.state import AcknowledgementBatch, AcquiredRecords
from schemas.error_codes import ErrorCode

OPEN_EPOCH: Final = 0
CLOSE_EPOCH: Final = -1
SHARE_FETCH: Final = "share_fetch"
SHARE_FETCH_VERSION: Final = 2
SHARE_ACKNOWLEDGE: Final = "share_acknowledge"
"""The same request without a fetch."""

Acknowledgements = Mapping[TopicPartition, tuple[AcknowledgementBatch, ...]]


@dataclass(frozen=True, slots=True)
class ShareFetchRequest:
    """A fetch: it adds `partitions` to the session and removes `forgotten` from it; the broker keeps the others
    (incremental fetches). The request that opens a session has all partitions."""

    group_id: str
    member_id: str
    session_epoch: int
    partitions: tuple[TopicPartition, ...] = ()
    acknowledgements: Acknowledgements = field(default_factory=dict)
    max_records: int = 500
    forgotten: tuple[TopicPartition, ...] = ()
    is_record_limit: bool = False
    """ShareAcquireMode RECORD_LIMIT: no more than `max_records`, even if that splits a batch of the log."""
    max_wait_ms: int = 0
    """How long it waits on the broker while there are less than `min_bytes` to fetch."""
    min_bytes: int = 1
    max_bytes: int = 52_428_800
    """The partitions that it reads have equal parts of it."""


@dataclass(frozen=True, slots=True)
class ShareFetchResponse:
    """The answer: the `error_code` of the whole, or the acquired records and the errors of acknowledgements (Kafka's
    class, or None).
    """

    error_code: int = ErrorCode.NONE
    acquired: Mapping[TopicPartition, tuple[AcquiredRecords, ...]] = field(default_factory=dict)
    acknowledge_errors: Mapping[TopicPartition, str | None] = field(default_factory=dict)
    lock_timeout_ms: int = 0
    """AcquisitionLockTimeoutMs: how long records stay acquired."""
