"""A share partition under random commands, with what must hold after each of them written down.

The log is contiguous but for what compaction removes, and some of its transactions are aborted. The persister merges
what it is given as the share coordinator does, and answers whenever it likes, with success or an error.

Invariants, by the names of their methods:

- `batches_are_disjoint`: batches ascend, do not overlap, and end at or before the end offset.
- `start_offset_never_falls`, but for one case which Kafka has: after the log start has moved it, it may fall back, and
  not below where it was before that.
- `delivery_counts_are_within_the_limit`: 0 to the limit; at least 1 where a member holds the record.
- `final_states_are_final`: a settled record stays what it is until it leaves the window.
- `in_flight_records_are_bounded`: by the limit and one log batch.
- `complete_count_is_right`: it is the number of terminal records from the start offset on.
- `locks_are_taken`: a lock runs exactly for what a member holds or is being given up, and no other.
- `what_is_available_is_found`: the next fetch begins at the first available record, or before it in a gap.
- `acknowledged_is_persisted`: what memory has as acknowledged, the persister has, too.
"""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coordinator_core.live.share_partition.acknowledge import acknowledge, complete_write, expire_lock, release
from coordinator_core.live.share_partition.acquire import acquire
from coordinator_core.live.share_partition.archive import update_log_start_offset
from coordinator_core.live.share_partition.errors import RefusedRequest
from coordinator_core.live.share_partition.in_flight import NO_MEMBER, InFlightState
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
from coordinator_core.live.share_partition.states import TERMINAL, RecordState
from coordinator_core.live.share_partition.window import can_acquire_records, next_fetch_offset
from coordinator_core.replay.share_state.combine import StateBatch, combine_state_batches

MEMBERS = st.sampled_from(["a", "b", "c"])
LOG_BATCH_RECORDS_MAX = 8
LOG_BATCH_COUNT = 40
ABORTED_PRODUCER = 9
LOCK_MS = 100
FETCHED_BATCHES_MAX = 3
DISTURBANCE_ACQUIRED_COUNT = 3


class SharePartitionMachine(RuleBasedStateMachine):
    """Members, a log and a persister around one share partition."""

    @initialize(
        sizes=st.lists(st.integers(1, LOG_BATCH_RECORDS_MAX), min_size=LOG_BATCH_COUNT, max_size=LOG_BATCH_COUNT),
        aborted=st.sets(st.integers(0, LOG_BATCH_COUNT - 1), max_size=4),
        limit=st.integers(1, 6),
        in_flight_max=st.integers(4, 40),
    )
    def begin(self, sizes: list[int], aborted: set[int], limit: int, in_flight_max: int) -> None:
        self.log: list[LogBatch] = []
        offset = 0
        for number, size in enumerate(sizes):
            producer_id, is_transactional = (ABORTED_PRODUCER, True) if number in aborted else (-1, False)
            self.log.append(LogBatch(offset, offset + size - 1, producer_id, is_transactional))
            offset += size
        self.log_start_offset = 0
        self.config = SharePartitionConfig(
            leader_epoch=1,
            delivery_count_limit=limit,
            in_flight_records_max=in_flight_max,
            record_lock_duration_ms=LOCK_MS,
        )
        self.now_ms = 0
        self.persisted: tuple[StateBatch, ...] = ()
        self.persisted_start_offset = 0
        self.restart()

    @property
    def is_quiet(self) -> bool:
        """Time for another restart, or for the log to change: rare enough that records get far in between."""
        return self.acquired_count >= DISTURBANCE_ACQUIRED_COUNT

    # --- commands ---

    @precondition(lambda self: self.is_quiet)
    @rule()
    def restart(self) -> None:
        """Another leader: all that is not persisted is forgotten."""
        self.acquired_count = 0
        self.acquired_now: list[tuple[str, int, int]] = []
        self.writes: list[WriteState] = []
        self.partition = SharePartition(self.config)
        begin_initialization(self.partition)
        complete_initialization(self.partition, ReadState(self.persisted_start_offset, 1, self.persisted))
        self.settled: dict[int, tuple[RecordState, int]] = {}
        self.start_offset = self.partition.start_offset
        self.undealt_offset = self.start_offset
        self.has_fallen = False

    @rule(
        member_id=MEMBERS,
        records_max=st.integers(1, 12),
        batch_size=st.sampled_from([1, 4, 100]),
        mode=st.sampled_from(AcquireMode),
        isolation=st.sampled_from(IsolationLevel),
        batch_count=st.integers(1, FETCHED_BATCHES_MAX),
    )
    def acquire(
        self,
        member_id: str,
        records_max: int,
        batch_size: int,
        mode: AcquireMode,
        isolation: IsolationLevel,
        batch_count: int,
    ) -> None:
        if not can_acquire_records(self.partition):
            return
        fetch_offset = next_fetch_offset(self.partition)
        if fetch_offset < self.log_start_offset:
            update_log_start_offset(self.partition, self.log_start_offset)
            fetch_offset = next_fetch_offset(self.partition)
        log_batches = [batch for batch in self.log if batch.last_offset >= fetch_offset][:batch_count]
        if not log_batches or fetch_offset < self.log_start_offset:
            return
        if log_batches[0].first_offset < self.partition.start_offset:
            # Kafka counts what it archives below the start offset as complete, too.
            isolation = IsolationLevel.READ_UNCOMMITTED
        acquired = acquire(
            self.partition,
            member_id,
            FetchedBatches(fetch_offset, log_batches, [AbortedTransaction(ABORTED_PRODUCER, 0)]),
            self.now_ms,
            batch_size=batch_size,
            fetch_records_max=records_max,
            mode=mode,
            isolation=isolation,
        )
        offsets = [offset for first, last, _ in acquired.records for offset in range(first, last + 1)]
        assert acquired.record_count == len(offsets)
        assert offsets == sorted(set(offsets)), "acquired twice, or out of order"
        assert mode is not AcquireMode.RECORD_LIMIT or len(offsets) <= records_max, "more than asked"
        states = dict(self.states())
        self.acquired_count += bool(offsets)
        for first, last, delivery_count in acquired.records:
            self.acquired_now.append((member_id, first, last))
            for offset in range(first, last + 1):
                state = states[offset]
                assert (state.state, state.member_id) == (RecordState.ACQUIRED, member_id)
                assert state.delivery_count == delivery_count

    @precondition(lambda self: self.acquired_now)
    @rule(data=st.data(), kind=st.sampled_from([0, 1, 1, 1, 2, 3, 4]), part=st.booleans())
    def acknowledge_acquired(self, data: st.DataObject, kind: int, part: bool) -> None:
        """What a member got it acknowledges, once, the whole or its first record; it may have lost it meanwhile."""
        member_id, first, last = self.acquired_now.pop(data.draw(st.integers(0, len(self.acquired_now) - 1)))
        if part and first < last:
            self.acquired_now.append((member_id, first + 1, last))
            last = first
        self.try_to_acknowledge(member_id, first, last, (kind,))

    @precondition(lambda self: bool(self.partition.cached))
    @rule(data=st.data(), member_id=MEMBERS)
    def acknowledge_anything(self, data: st.DataObject, member_id: str) -> None:
        batches = list(self.partition.cached)
        first = data.draw(st.integers(batches[0].first_offset, batches[-1].last_offset))
        acquired_now = [batch for batch in batches if batch.first_offset <= first <= batch.last_offset]
        is_whole_batch = bool(acquired_now) and data.draw(st.booleans())
        if is_whole_batch:
            first, last = acquired_now[0].first_offset, acquired_now[0].last_offset
        else:
            last = min(batches[-1].last_offset, first + data.draw(st.integers(0, 5)))
        types = st.sampled_from([0, 1, 1, 2, 2, 3, 4])
        count = last - first + 1
        drawn = (data.draw(types),) if data.draw(st.booleans()) else tuple(data.draw(types) for _ in range(count))
        is_of_its_member = bool(acquired_now) and bool(data.draw(st.integers(0, 4)))
        if is_of_its_member:
            # Mostly the member is the one which holds the records: otherwise all is refused.
            state = (
                acquired_now[0].whole or (acquired_now[0].offsets or [])[max(0, first - acquired_now[0].first_offset)]
            )
            member_id = state.member_id or member_id
        self.try_to_acknowledge(member_id, first, last, drawn)

    def try_to_acknowledge(self, member_id: str, first: int, last: int, types: tuple[int, ...]) -> None:
        before = self.picture()
        batch = AcknowledgementBatch(first, last, types)
        try:
            self.issue(acknowledge(self.partition, member_id, [batch], self.now_ms))
        except RefusedRequest:
            assert self.picture() == before, "a refused request has changed something"

    @precondition(lambda self: self.acquired_now)
    @rule(member_id=MEMBERS)
    def release(self, member_id: str) -> None:
        self.issue(release(self.partition, member_id))
        self.acquired_now = [one for one in self.acquired_now if one[0] != member_id]
        assert all(state.member_id != member_id for _, state in self.states()), "something is still acquired"

    @precondition(lambda self: self.acquired_now)
    @rule(duration_ms=st.sampled_from([1, LOCK_MS // 10, LOCK_MS // 4, LOCK_MS]))
    def advance(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        while (expired := expire_lock(self.partition, self.now_ms)) is not None:
            self.issue(expired[1])

    @precondition(lambda self: self.writes)
    @rule(data=st.data(), error=st.sampled_from([None, None, None, PersisterError.NOT_COORDINATOR]))
    def complete_write(self, data: st.DataObject, error: PersisterError | None) -> None:
        write = self.writes.pop(data.draw(st.integers(0, len(self.writes) - 1)))
        if error is None:
            self.persisted_start_offset = max(self.persisted_start_offset, write.start_offset)
            self.persisted = combine_state_batches(self.persisted, write.state_batches, self.persisted_start_offset)
        complete_write(self.partition, write.write_id, error)

    @precondition(lambda self: self.is_quiet)
    @rule(record_count=st.integers(1, 12))
    def move_log_start(self, record_count: int) -> None:
        self.acquired_count = 0
        self.log_start_offset = min(self.log_start_offset + record_count, self.log[-1].last_offset)
        update_log_start_offset(self.partition, self.log_start_offset)

    @precondition(lambda self: self.is_quiet)
    @rule(number=st.integers(0, LOG_BATCH_COUNT - 1))
    def compact(self, number: int) -> None:
        """Remove a batch from the log, but for the last."""
        self.acquired_count = 0
        if number < len(self.log) - 1:
            del self.log[number]

    def issue(self, write: WriteState | None) -> None:
        if write is not None:
            assert write.state_batches
            assert all(batch.delivery_state != RecordState.ACQUIRED for batch in write.state_batches)
            self.writes.append(write)

    # --- what must hold ---

    def states(self) -> list[tuple[int, InFlightState]]:
        """(offset, state) of all in flight."""
        states = []
        for batch in self.partition.cached:
            for at in range(batch.record_count):
                states.append((batch.first_offset + at, batch.whole or (batch.offsets or [])[at]))
        return states

    def picture(self) -> list[Any]:
        counts = [self.partition.delivery_complete_count, self.partition.start_offset, self.partition.end_offset]
        states = [(o, s.state, s.delivery_count, s.member_id, s.is_under_way) for o, s in self.states()]
        return [counts, states]

    @invariant()
    def batches_are_disjoint(self) -> None:
        previous_offset = -1
        for batch in self.partition.cached:
            assert previous_offset < batch.first_offset <= batch.last_offset
            assert (batch.whole is None) != (batch.offsets is None)
            assert batch.offsets is None or len(batch.offsets) == batch.record_count
            previous_offset = batch.last_offset
        assert previous_offset <= self.partition.end_offset
        assert self.partition.start_offset <= self.partition.end_offset

    @invariant()
    def start_offset_never_falls(self) -> None:
        start_offset = self.partition.start_offset
        if start_offset > self.log_start_offset:
            self.undealt_offset = max(self.undealt_offset, start_offset)
        if start_offset < self.start_offset:
            assert self.start_offset <= self.log_start_offset, "not the log start which moved it"
            self.has_fallen = True
        assert start_offset >= self.undealt_offset
        self.start_offset = start_offset

    @invariant()
    def delivery_counts_are_within_the_limit(self) -> None:
        for offset, state in self.states():
            assert 0 <= state.delivery_count <= self.config.delivery_count_limit, offset
            assert state.state is not RecordState.ACQUIRED or state.delivery_count >= 1
            is_last = state.delivery_count == self.config.delivery_count_limit
            assert not (is_last and state.state is RecordState.AVAILABLE), "one delivery too many is to come"

    @invariant()
    def final_states_are_final(self) -> None:
        settled = {o: (s.state, s.delivery_count) for o, s in self.states() if s.is_settled}
        for offset, state in self.states():
            if offset in self.settled:
                assert (state.state, state.delivery_count) == self.settled[offset], offset
        self.settled = settled

    @invariant()
    def in_flight_records_are_bounded(self) -> None:
        tracked = sum(
            self.partition.record_count_from_start(batch.first_offset, batch.last_offset)
            for batch in self.partition.cached
        )
        # Batches of a fetch may have holes between them, as long as what compaction removed.
        assert tracked <= self.config.in_flight_records_max + LOG_BATCH_RECORDS_MAX - 1

    @invariant()
    def complete_count_is_right(self) -> None:
        if self.has_fallen:
            return
        start_offset = self.partition.start_offset
        terminal_count = sum(state.state in TERMINAL for offset, state in self.states() if offset >= start_offset)
        assert self.partition.delivery_complete_count == terminal_count

    @invariant()
    def locks_are_taken(self) -> None:
        running = set()
        for offset, state in self.states():
            if state.lock is not None and not state.lock.has_expired:
                running.add(state.lock)
                assert not state.lock.is_cancelled
                assert state.lock.deadline_ms > self.now_ms or state.lock.first_offset <= offset
            is_locked = state.state is RecordState.ACQUIRED
            assert is_locked == (state.member_id != NO_MEMBER), offset
            if is_locked:
                assert state.lock is not None, offset
                assert not state.lock.has_expired, offset
            elif not state.is_under_way:
                assert state.lock is None, offset
        assert len(running) == len(self.partition.locks)

    @invariant()
    def what_is_available_is_found(self) -> None:
        available = [o for o, s in self.states() if s.state is RecordState.AVAILABLE and not s.is_under_way]
        if self.partition.start_offset > max((o for o, _ in self.states()), default=-1):
            return
        finds_next = self.partition.find_next_fetch_offset
        if available:
            assert finds_next
            assert next_fetch_offset(self.partition) <= available[0]
        elif not self.partition.is_gap_window_active:
            assert next_fetch_offset(self.partition) == self.partition.end_offset + 1
        self.partition.find_next_fetch_offset = finds_next

    @invariant()
    def acknowledged_is_persisted(self) -> None:
        persisted = {
            offset: (batch.delivery_state, batch.delivery_count)
            for batch in self.persisted
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        for offset, state in self.states():
            if offset >= self.persisted_start_offset and state.is_settled and state.state == RecordState.ACKNOWLEDGED:
                assert persisted.get(offset) == (RecordState.ACKNOWLEDGED, state.delivery_count), offset
