"""Share fetches on the broker: the partitions that a fetch may read, and its time in the purgatory (DelayedShareFetch).

Theory of operation
-------------------
A ShareFetch reads share partitions whose **fetch lock** it has: one fetch at a time reads a share partition, so that
two members do not receive the same records. It takes the lock of each share partition that is active, that no other
fetch reads and that has room for records in flight (acquirablePartitions). If the logs of these have `fetch.min.bytes`
together, the fetch reads of each an equal part of `fetch.max.bytes`, acquires what it read, releases the locks, and is
answered. Otherwise it releases the locks and is **parked** in the purgatory, and tries again each time when something
may have changed:

* records are appended to the log of one of its partitions (the high watermark moves, or for read_committed the last
  stable offset);
* another fetch releases the fetch lock of one of them;
* records of one of them are acknowledged, released or rejected, their lock expires, or the write of such a change
  moved the start offset;
* a share partition has read its state and is active.

After `fetch.max.wait.ms` it tries for the last time, and is answered even if it acquired nothing. It waits for the
share partitions that it found on its arrival: one that was fenced since gives it nothing.

A parked fetch outlives its member, as in Kafka: if the member dies in the meantime, the fetch still acquires records,
and they stay acquired until their lock expires.

Source: DelayedShareFetch, SharePartitionManager.processShareFetch, ShareFetchUtils.processFetchResponse.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator_core.live.assignors.client_group import TopicPartition
from coordinator_core.live.share_partition.acquire import acquire
from coordinator_core.live.share_partition.state import (
    AcquiredRecords,
    AcquireMode,
    FetchedBatches,
    IsolationLevel,
    LogBatch,
    SharePartition,
)
from coordinator_core.live.share_partition.window import can_acquire_records, next_fetch_offset
from coordinator_core.live.share_state.persister import Persister
from coordinator_core.replay.lookup import SharePartitionKey
from simulator.simulation.clients.share_messages import OPEN_EPOCH, ShareFetchRequest
from simulator.simulation.clock import EventLoop
from simulator.simulation.dead_letters import DeadLetterSender
from simulator.simulation.process import Process
from simulator.simulation.topics import Topics


@dataclass(slots=True)
class Served:
    """A share partition on its leader."""

    group_id: str
    at: TopicPartition
    key: SharePartitionKey
    partition: SharePartition
    deadline_ms: int | None = None
    """The time of the next scheduled check of its locks."""
    fetch_lock: "DelayedShareFetch | None" = None
    """The fetch that reads it now; other fetches must wait (SharePartition.fetchLock)."""
    seen_start_offset: int = 0
    """Its start offset after the last command: when a write ends, this shows whether the write moved it."""


Acquired = dict[TopicPartition, tuple[AcquiredRecords, ...]]


@dataclass(slots=True, eq=False)
class DelayedShareFetch:
    """One fetch, from its arrival to its answer."""

    process: Process
    request: ShareFetchRequest
    is_committed: bool
    """share.isolation.level is read_committed."""
    share_partitions: tuple[Served, ...]
    deadline_ms: int
    on_done: Callable[[Acquired], None]
    wake_ms: int = 0
    """The time of its next try, unless an event triggers one earlier."""
    is_parked: bool = True


@dataclass(slots=True)
class ShareSession:
    epoch: int = OPEN_EPOCH
    """The epoch that the next request must have."""
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    """In the order in which the member added them."""


@dataclass(slots=True)
class DataBroker:
    """The state of share groups on one broker."""

    broker_id: int
    persister: Persister
    draws: random.Random
    """Random numbers for the choice of the broker to ask."""
    letters: DeadLetterSender
    sessions: dict[tuple[str, str], ShareSession] = field(default_factory=dict)
    """(group id, member id) -> session."""
    served: dict[tuple[str, TopicPartition], Served] = field(default_factory=dict)
    retry_ms: int | None = None
    """The next time to check the persister."""
    parked: dict[tuple[str, TopicPartition], dict[DelayedShareFetch, None]] = field(default_factory=dict)
    """The fetches that wait for a share partition, in the order of their arrival (DelayedOperationPurgatory)."""
    on_lost: dict[int, Callable[[], None]] = field(default_factory=dict)
    """Request without a response yet -> what to do if the broker fails."""
    is_gone: bool = False


class ShareFetches:
    def __init__(
        self,
        loop: EventLoop,
        topics: Topics,
        read_ms: int,
        keep_up: Callable[[Served], None],
        on_acquired: Callable[[DataBroker, Served, Process, AcquiredRecords], None],
    ) -> None:
        """`read_ms`: how long a broker reads the log of one partition. `keep_up`: is called because the start offset of
        the log may have moved.
        """
        self._loop = loop
        self._topics = topics
        self._read_ms = read_ms
        self._keep_up = keep_up
        self._on_acquired = on_acquired

    def fetch(self, broker: DataBroker, fetch: DelayedShareFetch) -> None:
        """A fetch has arrived: answer it now, or once it can acquire records, or at its deadline."""
        if not fetch.share_partitions or not fetch.request.max_records:
            fetch.on_done({})
            return
        for served in fetch.share_partitions:
            broker.parked.setdefault((served.group_id, served.at), {})[fetch] = None
        self._try(broker, fetch)

    def check(self, broker: DataBroker, group_id: str, at: TopicPartition) -> None:
        """A share partition has changed: the fetches that wait for it try again."""
        for fetch in tuple(broker.parked.get((group_id, at), ())):
            if fetch.is_parked:
                self._try(broker, fetch)

    def check_all(self, broker: DataBroker, at: TopicPartition | None = None) -> None:
        """Records were appended to a partition, or (None) come at another rate."""
        for group_id, parked in tuple(broker.parked):
            if at is None or parked == at:
                self.check(broker, group_id, parked)

    def _try(self, broker: DataBroker, fetch: DelayedShareFetch) -> None:
        now_ms, request = self._loop.now_ms, fetch.request
        readable: list[tuple[Served, int]] = []
        found: list[int] = []
        """Bytes from the fetch offset to the end, of each of these."""
        is_refused = False
        for served in fetch.share_partitions:
            partition = served.partition
            if not partition.is_active or served.fetch_lock is not None:
                continue
            self._keep_up(served)
            if not can_acquire_records(partition):
                continue
            fetch_offset = next_fetch_offset(partition)
            readable.append((served, fetch_offset))
            # A fetch from an offset beyond the end is answered at once, too: the log refuses it.
            data = self._topics.partition(served.at)
            end_offset = data.readable_end_offset(now_ms, is_committed=fetch.is_committed)
            is_refused = is_refused or fetch_offset > end_offset
            found.append((end_offset - fetch_offset) * data.spec.record_bytes)
        bytes_max = request.max_bytes // max(len(readable), 1)
        has_bytes = bool(readable) and sum(min(size, bytes_max) for size in found) >= request.min_bytes
        if has_bytes or is_refused or now_ms >= fetch.deadline_ms:
            self._read(broker, fetch, readable)
        else:
            self._wait(broker, fetch, readable)

    def _wait(self, broker: DataBroker, fetch: DelayedShareFetch, readable: list[tuple[Served, int]]) -> None:
        """Wait until records are appended to what it could read now, or until the deadline; other changes call
        `check`."""
        now_ms, is_committed, wake_ms = self._loop.now_ms, fetch.is_committed, fetch.deadline_ms
        for served, _ in readable:
            data = self._topics.partition(served.at)
            end_offset = data.readable_end_offset(now_ms, is_committed=is_committed)
            wake_ms = data.growth_ms(end_offset, now_ms, wake_ms, is_committed=is_committed)
        if wake_ms != fetch.wake_ms:
            fetch.wake_ms = wake_ms
            self._loop.at(wake_ms, self._wake, broker, fetch, wake_ms)

    def _wake(self, broker: DataBroker, fetch: DelayedShareFetch, wake_ms: int) -> None:
        if fetch.is_parked and fetch.wake_ms == wake_ms and not broker.is_gone:
            self._try(broker, fetch)

    def _read(self, broker: DataBroker, fetch: DelayedShareFetch, readable: list[tuple[Served, int]]) -> None:
        fetch.is_parked = False
        for served in fetch.share_partitions:
            place = served.group_id, served.at
            waiting = broker.parked[place]
            del waiting[fetch]
            if not waiting:
                del broker.parked[place]
        now_ms = self._loop.now_ms
        fetched = []
        left = bytes_max = fetch.request.max_bytes
        for served, fetch_offset in readable:
            served.fetch_lock = fetch
            data = self._topics.partition(served.at)
            batches = data.log_batches(fetch_offset, fetch.request.max_records, now_ms, is_committed=fetch.is_committed)
            batches, size = _within(
                batches,
                data.spec.record_bytes,
                min(bytes_max // len(readable), left),
                has_one=left == bytes_max,
            )
            left = max(0, left - size)
            aborted = data.aborted_transactions(batches) if fetch.is_committed else ()
            fetched.append((served, FetchedBatches(fetch_offset, batches, aborted)))
        if self._read_ms and fetched:
            self._loop.after(self._read_ms * len(fetched), self._acquire, broker, fetch, fetched)
        else:
            self._acquire(broker, fetch, fetched)

    def _acquire(
        self, broker: DataBroker, fetch: DelayedShareFetch, fetched: list[tuple[Served, FetchedBatches]]
    ) -> None:
        """Acquire what was read, and release the fetch locks."""
        if broker.is_gone:
            return
        acquired: Acquired = {}
        left = fetch.request.max_records
        for served, batches in fetched:
            given = acquire(
                served.partition,
                fetch.request.member_id,
                batches,
                self._loop.now_ms,
                batch_size=fetch.request.max_records,  # max.poll.records is both (ShareFetchRequest.batchSize)
                fetch_records_max=left,
                mode=AcquireMode.RECORD_LIMIT if fetch.request.is_record_limit else AcquireMode.BATCH_OPTIMIZED,
                isolation=IsolationLevel.READ_COMMITTED if fetch.is_committed else IsolationLevel.READ_UNCOMMITTED,
            )
            served.seen_start_offset = served.partition.start_offset
            left -= given.record_count
            if given.records:
                acquired[served.at] = given.records
            for records in given.records:
                self._on_acquired(broker, served, fetch.process, records)
        fetch.on_done(acquired)
        for served, _ in fetched:
            served.fetch_lock = None
            if (served.group_id, served.at) in broker.parked:
                # Scheduled, as with Kafka's action queue: no fetch is tried from within another.
                self._loop.after(0, self.check, broker, served.group_id, served.at)


def _within(batches: list[LogBatch], record_bytes: int, bytes_max: int, *, has_one: bool) -> tuple[list[LogBatch], int]:
    """The batches that are at most so large together, and their size; with `has_one` the first one in any case.

    Source: ReplicaManager.readFromLog (KIP-74), PartitionMaxBytesStrategy.
    """
    kept, size = 0, 0
    for batch in batches:
        following = size + (batch.last_offset - batch.first_offset + 1) * record_bytes
        if following > bytes_max and not (has_one and kept == 0):
            break
        kept, size = kept + 1, following
    return batches[:kept], size


def rotated(partitions: tuple[TopicPartition, ...], session_epoch: int) -> tuple[TopicPartition, ...]:
    """The partitions in the order in which a fetch serves them: each is first in turn.

    Source: PartitionRotateStrategy.rotateRoundRobin.
    """
    if len(partitions) < 2 or session_epoch < 1:
        return partitions
    first = session_epoch % len(partitions)
    return partitions[first:] + partitions[:first]
