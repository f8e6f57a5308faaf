"""Records of several operations in one batch (CoordinatorRuntime.CoordinatorBatch): which ones share a batch, and when
it is written.

A batch is written when it is full, before and after a transactional operation, before a marker, and otherwise

* with `linger_ms` None, once all operations that were queued when it began have run (adaptive, Kafka's default -1);
* with `linger_ms` 0, after every operation; with a greater value, that long after it began.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from coordinator_core.bytes.log.batch import Record, build_batch, build_marker, encode_record
from coordinator_core.bytes.log.compression import Codec
from coordinator_core.bytes.log.kernels import HEADER_BYTES_V2
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.records import NO_PRODUCER, Producer

Encode = Callable[[Any], tuple[bytes, bytes | None]]
"""A record's key and value as bytes in the log."""

COORDINATOR_BASE_SEQUENCE: Final = 0
"""Coordinators write 0 even without a producer id (MemoryRecordsBuilder gets 0)."""

COMPRESSION_ESTIMATION_FACTOR: Final = np.float32(1.05)
"""MemoryRecordsBuilder.COMPRESSION_RATE_ESTIMATION_FACTOR, with its estimated ratio of 1."""


def record_size(key: bytes, value: bytes | None, offset_delta: int, timestamp_delta_ms: int) -> int:
    """Bytes of a record without headers inside a batch (DefaultRecord.sizeInBytes)."""
    return len(encode_record(Record(offset_delta, timestamp_delta_ms, key, value), 0, 0))


@dataclass(slots=True)
class PendingBatch:
    """A batch that is not written yet. `base_state` is the state of the coordinator before its first record."""

    base_offset: int
    base_state: Any
    created_ms: int
    producer: Producer
    epoch: int
    records: list[Record] = field(default_factory=list)
    record_bytes: int = 0
    waiting: list[Any] = field(default_factory=list)
    """Operations to answer once it is committed, or lost."""

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.records)

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction, and so has only that transaction's records."""
        return self.producer != NO_PRODUCER


@dataclass(kw_only=True)
class Batcher:
    """Collects the records of one coordinator. A `GroupCoordinator` uses it as its log."""

    partition: int
    """Of its log."""
    write: Callable[[bytes], int]
    """Appends a batch and returns the log's end offset, or raises Refused; then an `on_` function is called."""
    delete_records: Callable[[int], int]
    """Moves the log start offset up; returns the new one."""
    encode: Encode
    state: Callable[[], Any]
    next_offset: int
    """The offset of the next batch."""
    on_begun: Callable[[PendingBatch], None]
    on_written: Callable[[PendingBatch, int], None]
    on_lost: Callable[[PendingBatch, Refused], None]
    batch_bytes_max: int
    linger_ms: int | None = None
    codec_id: int = Codec.NONE
    batch: PendingBatch | None = None
    coordinator_epoch: int = 0
    """The epoch of the transaction coordinator whose marker is written next."""
    _epoch: int = 0

    def append(self, records: Sequence[Any], producer: Producer, timestamp_ms: int) -> int:
        """Add the records of one operation, all to one batch. Returns the offset of the first one.

        Raises Refused if a batch had to be written before, and the log refused it.
        """
        if producer != NO_PRODUCER:
            self.flush()
        encoded = [self.encode(record) for record in records]
        if self.batch is not None:
            size = sum(record_size(key, value, index, 0) for index, (key, value) in enumerate(encoded))
            if not self._has_room(self.batch, HEADER_BYTES_V2 + size):
                self.flush()
        batch = self.batch or self._begin(producer, timestamp_ms)
        first_offset = batch.next_offset
        for key, value in encoded:
            self._add(batch, key, value, timestamp_ms)
        return first_offset

    def append_one(self, record: Any, timestamp_ms: int) -> int:
        """Add a record of an operation whose records may be in several batches. Returns its offset.

        Raises Refused if a batch had to be written before, and the log refused it.
        """
        key, value = self.encode(record)
        if self.batch is not None:
            delta_ms = timestamp_ms - self.batch.created_ms
            if not self._has_room(self.batch, record_size(key, value, len(self.batch.records), delta_ms)):
                self.flush()
        batch = self.batch or self._begin(NO_PRODUCER, timestamp_ms)
        return self._add(batch, key, value, timestamp_ms)

    def append_marker(self, producer: Producer, timestamp_ms: int, *, committed: bool) -> int:
        """Write a transaction marker immediately. Returns its offset. Raises Refused if the log does."""
        self.flush()
        marker = build_marker(
            offset=self.next_offset,
            timestamp_ms=timestamp_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            is_commit=committed,
            coordinator_epoch=self.coordinator_epoch,
        )
        self.next_offset = self.write(marker)
        return self.next_offset - 1

    def flush_if_due(self, now_ms: int) -> None:
        """After an operation: write the batch if it is transactional, has lingered, or is full."""
        batch = self.batch
        if batch is None:
            return
        has_lingered = self.linger_ms is not None and now_ms - batch.created_ms >= self.linger_ms
        if has_lingered or batch.is_transactional or not self._has_room(batch, 0):
            self.flush()

    def deadline_ms(self) -> int | None:
        """When the linger time of the batch is over, or None."""
        if self.batch is None or self.linger_ms is None:
            return None
        return self.batch.created_ms + self.linger_ms

    def flush(self) -> None:
        """Write the batch, if there is one. If the log refuses it, it is lost, and Refused is raised."""
        batch = self.batch
        if batch is None:
            return
        data = build_batch(
            batch.records,
            codec_id=self.codec_id,
            is_transactional=batch.is_transactional,
            producer_id=batch.producer.producer_id,
            producer_epoch=batch.producer.producer_epoch,
            base_sequence=COORDINATOR_BASE_SEQUENCE,
        )
        try:
            end_offset = self.write(data)
        except Refused as refused:
            self.lose(refused)
            raise
        self.batch = None
        self.next_offset = end_offset
        self.on_written(batch, end_offset)

    def lose(self, error: Refused) -> None:
        batch, self.batch = self.batch, None
        if batch is not None:
            self.on_lost(batch, error)

    def _begin(self, producer: Producer, now_ms: int) -> PendingBatch:
        self._epoch += 1
        self.batch = PendingBatch(self.next_offset, self.state(), now_ms, producer, self._epoch)
        self.on_begun(self.batch)
        return self.batch

    def _add(self, batch: PendingBatch, key: bytes, value: bytes | None, timestamp_ms: int) -> int:
        offset = batch.next_offset
        batch.records.append(Record(offset, timestamp_ms, key, value))
        delta_ms = timestamp_ms - batch.created_ms
        batch.record_bytes += record_size(key, value, offset - batch.base_offset, delta_ms)
        return offset

    def _has_room(self, batch: PendingBatch, size: int) -> bool:
        """Whether the batch would stay below the limit by Kafka's estimate (MemoryRecordsBuilder.hasRoomFor)."""
        record_bytes = batch.record_bytes
        if self.codec_id != Codec.NONE:
            record_bytes = int(np.float32(record_bytes) * COMPRESSION_ESTIMATION_FACTOR)
        estimated = HEADER_BYTES_V2 + record_bytes
        return estimated < self.batch_bytes_max and estimated + size <= self.batch_bytes_max
