"""The log to which a coordinator appends its records."""

from collections.abc import Sequence
from typing import Protocol

from coordinator_core.coordinator.records import NO_PRODUCER, AppendedRecord, CoordinatorRecord, Producer


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


class CountingLog:
    """A log in memory that counts offsets. `next_offset` is the offset of the next record."""

    def __init__(self, next_offset: int = 0) -> None:
        self.next_offset = next_offset
        self.entries: list[AppendedRecord | tuple[int, bool]] = []
        """The records, and (producer id, committed) for each marker."""

    def append(self, records: Sequence[CoordinatorRecord], producer: Producer, timestamp_ms: int) -> int:
        first_offset = self.next_offset
        for record in records:
            self.entries.append(AppendedRecord(self.next_offset, timestamp_ms, record, producer))
            self.next_offset += 1
        return first_offset

    def append_one(self, record: CoordinatorRecord, timestamp_ms: int) -> int:
        return self.append((record,), NO_PRODUCER, timestamp_ms)

    def append_marker(self, producer: Producer, timestamp_ms: int, *, committed: bool) -> int:
        self.entries.append((producer.producer_id, committed))
        self.next_offset += 1
        return self.next_offset - 1
