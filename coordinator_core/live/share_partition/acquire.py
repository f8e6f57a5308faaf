"""Acquiring: which of the fetched records a member gets, and which of them were in flight before.

Nothing is persisted. Each acquired record has its delivery count raised by one, and a lock.
"""

from itertools import pairwise

from coordinator_core.live.share_partition.archive import archive_between, archive_stale_batches
from coordinator_core.live.share_partition.in_flight import ACQUIRED, AVAILABLE, NO_MEMBER, InFlightBatch, InFlightState
from coordinator_core.live.share_partition.state import (
    Acquired,
    AcquiredRecords,
    AcquireMode,
    FetchedBatches,
    IsolationLevel,
    SharePartition,
)
from coordinator_core.live.share_partition.transactions import aborted_batches, without_batches

NOTHING = Acquired((), 0)
DELIVERY_COUNT_TO_ISOLATE_MIN = 3
"""A record on its last delivery is delivered alone, unless the limit is so low that this would apply to every retry."""


def acquire(
    partition: SharePartition,
    member_id: str,
    fetched: FetchedBatches,
    now_ms: int,
    *,
    batch_size: int,
    fetch_records_max: int,
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> Acquired:
    """Acquire records of a fetch for a member: ranges in ascending order, each with its delivery count.

    `batch_size`: minimum number of records in a batch of new ones; log batches are not split. `fetch_records_max`: how
    many records the member requests; BATCH_OPTIMIZED also returns the rest of the last log batch. Nothing is acquired
    while the share partition is not active, and nothing new beyond the in-flight limit.

    It continues where Kafka 4.3.1 fails: a limit that ends before the first fetched batch acquires nothing, and of an
    aborted batch that begins below everything in flight, the part in flight is archived. Source:
    SharePartition.acquire.
    """
    if not partition.is_active or fetch_records_max <= 0 or not fetched.log_batches:
        return NOTHING
    if fetched.log_batches[-1].last_offset < partition.start_offset:
        # The gap window may request offsets that the log start offset has passed meanwhile.
        return NOTHING
    request = _Acquisition(partition, member_id, fetched, now_ms, batch_size, mode is AcquireMode.RECORD_LIMIT)
    records = request.run(fetch_records_max)
    if isolation is IsolationLevel.READ_COMMITTED and fetched.aborted_transactions and records:
        records = _without_aborted(partition, fetched, records)
    return Acquired(tuple(records), sum(last - first + 1 for first, last, _ in records))


def _without_aborted(
    partition: SharePartition, fetched: FetchedBatches, records: list[AcquiredRecords]
) -> list[AcquiredRecords]:
    """Archive the records of aborted transactions (SharePartition.filterAbortedTransactionalAcquiredRecords)."""
    aborted = aborted_batches(fetched.log_batches, fetched.aborted_transactions)
    for log_batch in aborted:
        floor = partition.cached.floor(log_batch.first_offset)
        from_offset = log_batch.first_offset if floor is None else floor.first_offset
        batches = partition.cached.between(from_offset, log_batch.last_offset)
        partition.delivery_complete_count += archive_between(
            partition, log_batch.first_offset, log_batch.last_offset, batches, ACQUIRED
        )
    return without_batches(records, aborted)


class _Acquisition:
    """One acquire: its arguments, and what is acquired so far."""

    __slots__ = (
        "acquired_count",
        "batch_size",
        "deadline_ms",
        "fetched",
        "first_offset",
        "is_record_limit",
        "last_offset",
        "limit",
        "member_id",
        "partition",
        "records",
    )

    def __init__(
        self,
        partition: SharePartition,
        member_id: str,
        fetched: FetchedBatches,
        now_ms: int,
        batch_size: int,
        is_record_limit: bool,
    ) -> None:
        self.partition = partition
        self.member_id = member_id
        self.fetched = fetched
        self.deadline_ms = now_ms + partition.config.record_lock_duration_ms
        self.batch_size = batch_size
        self.is_record_limit = is_record_limit
        self.first_offset = fetched.log_batches[0].first_offset
        self.last_offset = fetched.log_batches[-1].last_offset
        self.limit = 0
        """The most records to acquire; with BATCH_OPTIMIZED, the number after which it stops."""
        self.records: list[AcquiredRecords] = []
        self.acquired_count = 0

    @property
    def remaining_count(self) -> int:
        return self.limit - self.acquired_count

    def run(self, fetch_records_max: int) -> list[AcquiredRecords]:
        self._set_limits(fetch_records_max)
        if self.limit <= 0:
            return []
        partition = self.partition
        cached = partition.cached
        archive_stale_batches(partition, self.fetched.fetch_offset, self.first_offset)
        from_offset = self.first_offset
        floor = cached.floor(from_offset)
        if floor is None:
            # The start offset is inside the first log batch, or after it: offsets below it were finished before the
            # start-up. If a batch in flight begins even lower, Kafka uses the whole log batch.
            from_offset = max(from_offset, partition.start_offset)
        elif floor.last_offset >= from_offset:
            from_offset = floor.first_offset
        # Batches in flight between the log batch's first offset and the start offset are included, and holes after them
        # are acquired although they are below the start offset, as in Kafka.
        batches = cached.between(min(self.first_offset, from_offset), self.last_offset)
        if not batches:
            if from_offset <= self.last_offset:
                self._acquire_new(from_offset, self.last_offset)
            return self.records
        last_cached_offset = batches[-1].last_offset
        self._acquire_cached(batches, from_offset)
        if self.remaining_count > 0 and last_cached_offset < self.last_offset:
            self._acquire_new(last_cached_offset + 1, self.last_offset)
        if self.records:
            self._move_gap_window(self.records[-1].last_offset + 1)
        return self.records

    def _set_limits(self, fetch_records_max: int) -> None:
        """How many records, and up to which offset (SharePartition.lastOffsetAndMaxRecordsToAcquire)."""
        partition, fetch_offset = self.partition, self.fetched.fetch_offset
        room = partition.config.in_flight_records_max - partition.in_flight_record_count
        self.limit = min(fetch_records_max, room)
        if room <= 0 and fetch_offset <= partition.end_offset:
            # Full, but released records inside the window may be delivered again, and nothing after it.
            self.limit = min(fetch_records_max, partition.end_offset - fetch_offset + 1)
            self.last_offset = min(self.last_offset, partition.end_offset)

    def _acquire_cached(self, batches: list[InFlightBatch], from_offset: int) -> None:
        """Acquire available records in flight, and new records in the holes of the gap window."""
        gap_start_offset = from_offset
        for batch in batches:
            if self.remaining_count <= 0:
                return
            if self.partition.is_gap_window_active:
                if gap_start_offset < batch.first_offset:
                    self._acquire_new(gap_start_offset, batch.first_offset - 1)
                gap_start_offset = batch.last_offset + 1
                if self.remaining_count <= 0:
                    return
            is_throttled = self._is_throttled(batch)
            if is_throttled and self.acquired_count > 0:
                # Deliver it alone, so that a poison record does not use up the deliveries of others.
                self.limit = 0
                return
            is_part = (
                is_throttled
                or not batch.is_within(self.first_offset, self.last_offset)
                or (self.is_record_limit and batch.record_count > self.remaining_count)
            )
            if batch.whole is not None:
                if batch.whole.state is not AVAILABLE or batch.whole.rollback is not None:
                    continue
                if not is_part:
                    self._acquire_whole(batch, batch.whole)
                    continue
                batch.split(self.partition.locks)
            if self._acquire_offsets(batch) and is_throttled:
                self.limit = 0
                return

    def _is_throttled(self, batch: InFlightBatch) -> bool:
        """Whether it was delivered so often that it is delivered in parts
        (SharePartition.shouldThrottleRecordsDelivery).
        """
        threshold = self.partition.config.throttle_delivery_count
        if batch.whole is not None:
            whole = batch.whole
            return whole.delivery_count >= threshold and whole.state is AVAILABLE and whole.rollback is None
        return any(
            state.delivery_count >= threshold and state.state is AVAILABLE and state.rollback is None
            for _, state in batch.states_between(self.first_offset, self.last_offset)
        )

    def _acquire_whole(self, batch: InFlightBatch, whole: InFlightState) -> None:
        whole.acquire(self.member_id)
        whole.lock = self.partition.locks.start(self.member_id, batch.first_offset, batch.last_offset, self.deadline_ms)
        self._add(batch.first_offset, batch.last_offset, whole.delivery_count)

    def _add(self, first_offset: int, last_offset: int, delivery_count: int) -> None:
        self.records.append(AcquiredRecords(first_offset, last_offset, delivery_count))
        self.acquired_count += last_offset - first_offset + 1

    def _acquire_offsets(self, batch: InFlightBatch) -> int:
        """Acquire available offsets of a split batch one by one. Returns their number
        (SharePartition.acquireSubsetBatchRecords).
        """
        config, locks = self.partition.config, self.partition.locks
        delivery_count_limit = config.delivery_count_limit
        threshold = config.throttle_delivery_count
        isolates_last = delivery_count_limit >= DELIVERY_COUNT_TO_ISOLATE_MIN
        count_max = self.remaining_count if self.is_record_limit else None
        throttled_count_max = None
        ranges: list[AcquiredRecords] = []
        count = 0
        for offset, state in batch.states_between(self.first_offset, self.last_offset):
            if state.state is not AVAILABLE or state.rollback is not None:
                continue
            delivery_count = state.delivery_count
            is_last_delivery = isolates_last and delivery_count == delivery_count_limit - 1
            if is_last_delivery and count > 0:
                break
            if throttled_count_max is None and delivery_count >= threshold:
                # Half the batch at the threshold, and half of that with each further delivery.
                throttled_count_max = max(1, batch.record_count >> (delivery_count - threshold + 1))
            state.acquire(self.member_id)
            state.lock = locks.start(self.member_id, offset, offset, self.deadline_ms)
            if count > 0 and ranges[-1].last_offset == offset - 1 and ranges[-1].delivery_count == state.delivery_count:
                ranges[-1] = ranges[-1]._replace(last_offset=offset)
            else:
                ranges.append(AcquiredRecords(offset, offset, state.delivery_count))
            count += 1
            if is_last_delivery or count in (count_max, throttled_count_max):
                break
        for records in ranges:
            self._add(*records)
        return count

    def _acquire_new(self, first_offset: int, last_offset: int) -> None:
        """Acquire fetched offsets that were not in flight before (SharePartition.acquireNewBatchRecords)."""
        partition, cached = self.partition, self.partition.cached
        limit = self.remaining_count
        if not len(cached):
            # Offsets that the window has passed are fetched again with the rest of their log batch.
            first_offset = max(first_offset, partition.end_offset)
        if limit < last_offset - first_offset + 1:
            batch_last_offset = self._log_batch_last_offset(first_offset + limit - 1)
            # In a gap the log batch may continue over its persisted part.
            last_offset = min(batch_last_offset, last_offset) if partition.is_gap_window_active else batch_last_offset
        new = self._add_batches(first_offset, last_offset, limit)
        if cached.first.first_offset == first_offset:
            partition.start_offset = first_offset
        partition.end_offset = max(partition.end_offset, last_offset)
        for records in new:
            self._add(*records)
        self._move_gap_window(new[-1].last_offset + 1)

    def _log_batch_last_offset(self, offset: int) -> int:
        """Last offset of the log batch that contains the offset; the offset itself if it lies between two.

        Source: SharePartition.lastOffsetFromBatchWithRequestOffset.
        """
        last_offset = offset
        for log_batch in self.fetched.log_batches:
            if log_batch.first_offset > offset:
                break
            last_offset = log_batch.last_offset
        return max(last_offset, offset)

    def _add_batches(self, first_offset: int, last_offset: int, limit: int) -> list[AcquiredRecords]:
        """Batches of new records, on the boundaries of log batches (SharePartition.createBatches, addBatches)."""
        partition = self.partition
        if self.is_record_limit:
            acquired_last_offset = min(last_offset, first_offset + limit - 1)
            batch = self._add_batch(first_offset, last_offset, acquired_last_offset)
            if batch.offsets is not None:
                partition.find_next_fetch_offset = True
            return [AcquiredRecords(first_offset, acquired_last_offset, 1)]
        boundaries = [first_offset]
        if last_offset - first_offset + 1 > self.batch_size:
            for log_batch in self.fetched.log_batches:
                if log_batch.first_offset > last_offset:
                    break
                if log_batch.first_offset - boundaries[-1] >= self.batch_size:
                    boundaries.append(log_batch.first_offset)
        boundaries.append(last_offset + 1)
        new = []
        for first, following in pairwise(boundaries):
            self._add_batch(first, following - 1, following - 1)
            new.append(AcquiredRecords(first, following - 1, 1))
        return new

    def _add_batch(self, first_offset: int, last_offset: int, acquired_last_offset: int) -> InFlightBatch:
        """A batch in which the offsets up to `acquired_last_offset` are acquired, and the others are new."""
        locks = self.partition.locks
        whole = InFlightState(ACQUIRED, 1, self.member_id)
        batch = InFlightBatch(first_offset, last_offset, whole)
        if acquired_last_offset == last_offset:
            whole.lock = locks.start(self.member_id, first_offset, last_offset, self.deadline_ms)
        else:
            for offset, state in enumerate(batch.split(locks), first_offset):
                if offset <= acquired_last_offset:
                    state.lock = locks.start(self.member_id, offset, offset, self.deadline_ms)
                else:
                    state.state, state.delivery_count, state.member_id = AVAILABLE, 0, NO_MEMBER
        self.partition.cached.add(batch)
        return batch

    def _move_gap_window(self, offset: int) -> None:
        """Let the gap begin at `offset`, or end it (SharePartition.maybeUpdatePersisterGapWindowStartOffset)."""
        partition = self.partition
        gap_window = partition.gap_window
        if gap_window is None:
            return
        if partition.is_gap_window_active and offset <= gap_window.end_offset:
            gap_window.gap_start_offset = offset
        else:
            partition.gap_window = None
