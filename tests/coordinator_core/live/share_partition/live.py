"""A share partition with short words for tests: each command says what came of it in plain tuples."""

from collections.abc import Sequence

from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion
from coordinator_core.live.share_partition.acknowledge import acknowledge, complete_write, expire_lock, release
from coordinator_core.live.share_partition.acquire import acquire
from coordinator_core.live.share_partition.in_flight import InFlightState
from coordinator_core.live.share_partition.initialize import begin_initialization, complete_initialization
from coordinator_core.live.share_partition.state import (
    AbortedTransaction,
    AcknowledgementBatch,
    AcquireMode,
    FetchedBatches,
    IsolationLevel,
    LogBatch,
    PersisterError,
    ReadState,
    SharePartition,
    SharePartitionConfig,
    WriteState,
)
from coordinator_core.live.share_partition.window import next_fetch_offset
from coordinator_core.replay.share_state.combine import StateBatch

AV, ACQ, ACK, COPYING, ARC = 0, 1, 2, 3, 4
GAP, ACCEPT, RELEASE, REJECT, RENEW = 0, 1, 2, 3, 4
LOCK_MS = 1000
FAILED = PersisterError.NOT_COORDINATOR

Written = tuple[tuple[int, int, int, int], ...]
"""(first offset, last offset, delivery state, delivery count) of each batch of a write."""


def written(write: WriteState | None) -> Written:
    """The batches of a write; none where nothing is written."""
    if write is None:
        return ()
    return tuple((b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in write.state_batches)


class Live:
    """One share partition, its clock, and its writes."""

    def __init__(
        self,
        start_offset: int = 0,
        persisted: Sequence[tuple[int, int, int, int]] = (),
        *,
        limit: int = 5,
        in_flight_max: int = 200,
        renews: bool = True,
        version: KafkaVersion = DEFAULT_VERSION,
        dead_letters: bool = False,
    ) -> None:
        self.now_ms = 0
        self.partition = SharePartition(
            SharePartitionConfig(
                leader_epoch=7,
                in_flight_records_max=in_flight_max,
                delivery_count_limit=limit,
                record_lock_duration_ms=LOCK_MS,
                is_renew_acknowledge_enabled=renews,
                kafka_version=version,
                has_dead_letter_topic=dead_letters,
            )
        )
        begin_initialization(self.partition)
        complete_initialization(
            self.partition, ReadState(start_offset, 3, tuple(StateBatch(*batch) for batch in persisted))
        )

    def acquire(
        self,
        member_id: str,
        *log_batches: tuple[int, int] | LogBatch,
        at: int | None = None,
        most: int = 500,
        batch_size: int = 500,
        record_limit: bool = False,
        aborted: Sequence[tuple[int, int]] = (),
        committed: bool = False,
    ) -> list[tuple[int, int, int]]:
        """Fetch from `at`, else from where the share partition says, and acquire `most` records."""
        batches = [batch if isinstance(batch, LogBatch) else LogBatch(*batch) for batch in log_batches]
        fetch_offset = next_fetch_offset(self.partition) if at is None else at
        acquired = acquire(
            self.partition,
            member_id,
            FetchedBatches(fetch_offset, batches, [AbortedTransaction(*one) for one in aborted]),
            self.now_ms,
            batch_size=batch_size,
            fetch_records_max=most,
            mode=AcquireMode.RECORD_LIMIT if record_limit else AcquireMode.BATCH_OPTIMIZED,
            isolation=IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED,
        )
        assert acquired.record_count == sum(last - first + 1 for first, last, _ in acquired.records)
        return [(first, last, count) for first, last, count in acquired.records]

    def begin(self, member_id: str, *batches: tuple[int, int, Sequence[int]]) -> WriteState | None:
        """Acknowledge, and leave the write under way."""
        acknowledged = [AcknowledgementBatch(first, last, tuple(types)) for first, last, types in batches]
        return acknowledge(self.partition, member_id, acknowledged, self.now_ms)

    def acknowledge(self, member_id: str, *batches: tuple[int, int, Sequence[int]]) -> Written:
        """Acknowledge, and persist it."""
        return self.finish(self.begin(member_id, *batches))

    def release(self, member_id: str) -> Written:
        """End the member's session, and persist it."""
        return self.finish(release(self.partition, member_id))

    def finish(self, write: WriteState | None, error: PersisterError | None = None) -> Written:
        """Let a write succeed, or fail."""
        if write is not None:
            complete_write(self.partition, write.write_id, error)
        return written(write)

    def advance(self, duration_ms: int, error: PersisterError | None = None) -> list[Written]:
        """Let time pass, and what locks run out write: all of it succeeds, or fails."""
        self.now_ms += duration_ms
        writes = []
        while (expired := expire_lock(self.partition, self.now_ms)) is not None:
            if expired[1] is not None:
                writes.append(self.finish(expired[1], error))
        return writes

    @property
    def window(self) -> tuple[int, int, int, int]:
        """Start offset, end offset, next offset to fetch, delivery complete count."""
        partition = self.partition
        next_offset = next_fetch_offset(partition)
        return partition.start_offset, partition.end_offset, next_offset, partition.delivery_complete_count

    def state_of(self, offset: int) -> InFlightState:
        """The state which holds for the offset."""
        batch = self.partition.cached.floor(offset)
        assert batch is not None
        assert offset <= batch.last_offset
        if batch.whole is not None:
            return batch.whole
        assert batch.offsets is not None
        return batch.offsets[offset - batch.first_offset]

    @property
    def states(self) -> list[tuple[int, int, int]]:
        """(offset, delivery state, delivery count) of all that is in flight."""
        return [
            (offset, int(self.state_of(offset).state), self.state_of(offset).delivery_count)
            for batch in self.partition.cached
            for offset in range(batch.first_offset, batch.last_offset + 1)
        ]
