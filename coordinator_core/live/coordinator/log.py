"""The log to which a coordinator appends its records."""

from collections.abc import Sequence
from typing import Protocol

from coordinator_core.live.coordinator.records import CoordinatorRecord, Producer


class Log(Protocol):
    """Where records are appended. `append` returns the offset of the first one, or raises Refused: then nothing was
    written.
    """

    def append(self, records: Sequence[CoordinatorRecord], producer: Producer, timestamp_ms: int) -> int: ...

    def append_one(self, record: CoordinatorRecord, timestamp_ms: int) -> int:
        """Like `append`, for one record of an operation whose records need not be in one batch."""
        ...

    def append_marker(self, producer: Producer, timestamp_ms: int, *, committed: bool) -> int:
        """Like `append`, for a transaction marker, which takes one offset."""
        ...
