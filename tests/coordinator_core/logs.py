"""Logs in memory, for coordinators without a runtime."""

from collections.abc import Sequence

from coordinator_core.live.coordinator.records import NO_PRODUCER, AppendedRecord, CoordinatorRecord, Producer
from coordinator_core.live.share_state.records import AppendedRecord as AppendedShareRecord
from coordinator_core.live.share_state.records import ShareStateRecord


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


class MemoryLog:
    """A log in memory. `next_offset` is the offset of the next record, `start_offset` where the log begins."""

    def __init__(self, next_offset: int = 0) -> None:
        self.start_offset = next_offset
        self.next_offset = next_offset
        self.entries: list[AppendedShareRecord] = []

    def append(self, records: Sequence[ShareStateRecord], timestamp_ms: int) -> int:
        first_offset = self.next_offset
        for offset, record in enumerate(records, first_offset):
            self.entries.append(AppendedShareRecord(offset, timestamp_ms, record))
        self.next_offset += len(records)
        return first_offset

    def delete_records(self, before_offset: int) -> None:
        self.start_offset = max(self.start_offset, min(before_offset, self.next_offset))
        self.entries = [entry for entry in self.entries if entry.offset >= self.start_offset]
