"""A share partition whose state a live share coordinator persists: leaders change, the log refuses, jobs run, and the
coordinator is loaded again.

It is the machine of `share_partition.machine`, with its invariants, and with a `ShareCoordinator` in the place of the
persister. In addition to those, by the names of their methods:

- `log_tells_the_state`: the coordinator's state is what the bytes of its log give.
- `persisted_epochs_never_fall`: snapshot epoch, state epoch and leader epoch.
- `persisted_batches_are_consistent`: they ascend, are disjoint and in the window, and nothing is ACQUIRED.
- `what_was_final_stays_final`: what was persisted as ACKNOWLEDGED or ARCHIVED is so until it leaves the window.
"""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.image import Topic, image_of
from coordinator_core.live.share_partition.acknowledge import complete_write
from coordinator_core.live.share_partition.initialize import begin_initialization, complete_initialization
from coordinator_core.live.share_partition.state import PersisterError, ReadState, SharePartition, WriteState
from coordinator_core.live.share_partition.states import TERMINAL, RecordState
from coordinator_core.live.share_state.config import ShareCoordinatorConfig
from coordinator_core.live.share_state.coordinator import ShareCoordinator, empty_shard
from coordinator_core.live.share_state.messages import (
    InitializePartition,
    PartitionResult,
    ReadPartition,
    WritePartition,
)
from coordinator_core.live.share_state.messages import ReadResult as ReadAnswer
from coordinator_core.live.share_state.records import ShareStateRecord, decode_record, encode_record, replay_record
from coordinator_core.replay.lookup import SharePartitionKey
from coordinator_core.replay.share_state.state import SharePartition as PersistedState
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.share_partition.machine import SharePartitionMachine
from tests.coordinator_core.logs import MemoryLog

TOPIC = Topic("t", "T" * 21 + "A", 1)
KEY = SharePartitionKey("g", TOPIC.topic_id, 0)
CONFIG = ShareCoordinatorConfig(
    updates_per_snapshot=2, cold_partition_snapshot_interval_ms=1000, prune_interval_ms=3000
)
JOBS_MS = 1000


class RefusingLog(MemoryLog):
    """A log which can be set to refuse the next append."""

    is_refusing = False

    def append(self, records: Sequence[ShareStateRecord], timestamp_ms: int) -> int:
        is_refusing, self.is_refusing = self.is_refusing, False
        if is_refusing:
            raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS)
        return super().append(records, timestamp_ms)


class PersistedSharePartitionMachine(SharePartitionMachine):
    """Members, leaders, and the share coordinator of one share partition."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator_ms = 1_000_000
        self.state_log = RefusingLog()
        self.coordinator = ShareCoordinator(
            now_ms=self.coordinator_ms, config=CONFIG, image=image_of([TOPIC]), log=self.state_log
        )
        self.log_shard, self.log_offset = empty_shard(CONFIG), 0
        self.leader_epoch, self.state_epoch = 0, 1
        self.stale_writes: list[WriteState] = []
        self.highest = (0, 0, 0)
        self.final: dict[int, int] = {}
        self.run_state("initialize_state", InitializePartition(0, self.state_epoch, -1))

    @property
    def persisted_state(self) -> PersistedState:
        return self.coordinator.shard.share_partitions[KEY]

    def run_state(self, operation: str, request: object) -> object:
        self.coordinator_ms += 1
        result, _ = self.coordinator.run(operation, KEY, request, now_ms=self.coordinator_ms)
        return result

    def write(self, write: WriteState) -> ErrorCode:
        result = self.run_state(
            "write_state",
            WritePartition(
                0,
                write.state_epoch,
                write.leader_epoch,
                write.start_offset,
                write.delivery_complete_count,
                write.state_batches,
            ),
        )
        assert isinstance(result, PartitionResult)
        return ErrorCode(result.error_code)

    # --- commands ---

    @precondition(lambda self: self.is_quiet)
    @rule()
    def restart(self) -> None:
        """Another leader, which reads what is persisted; what the one before wrote may still be on its way."""
        self.acquired_count = 0
        self.acquired_now = []
        self.stale_writes += getattr(self, "writes", [])
        self.writes: list[WriteState] = []
        self.leader_epoch += 1
        self.config = replace(self.config, leader_epoch=self.leader_epoch)
        self.partition = SharePartition(self.config)
        begin_initialization(self.partition)
        self.state_log.is_refusing = False
        answer = self.run_state("read_state", ReadPartition(0, self.leader_epoch))
        assert isinstance(answer, ReadAnswer)
        assert answer.error_code == ErrorCode.NONE
        complete_initialization(
            self.partition, ReadState(answer.start_offset, answer.state_epoch, answer.state_batches)
        )
        self.take_persisted()
        self.settled: dict[int, tuple[RecordState, int]] = {}
        self.start_offset = self.partition.start_offset
        self.undealt_offset = self.start_offset
        self.has_fallen = False

    def take_persisted(self) -> None:
        """What the invariants of the share partition hold it against."""
        self.persisted = self.persisted_state.state_batches
        self.persisted_start_offset = self.persisted_state.start_offset

    @precondition(lambda self: self.writes)
    @rule(is_refused=st.sampled_from([False, False, False, True]))
    def complete_write(self, is_refused: bool) -> None:
        """The share coordinator persists the next write of the leader, or its log refuses.

        One after the other: a write which is overtaken takes the persisted start offset back, in Kafka too, to where
        batches were dropped already; their records are then delivered again.
        """
        write = self.writes.pop(0)
        before = self.coordinator.shard
        self.state_log.is_refusing = is_refused
        code = self.write(write)
        assert code == (ErrorCode.COORDINATOR_NOT_AVAILABLE if is_refused else ErrorCode.NONE)
        assert not is_refused or self.coordinator.shard is before
        complete_write(self.partition, write.write_id, PersisterError(code.name) if is_refused else None)
        self.take_persisted()

    @precondition(lambda self: self.stale_writes)
    @rule()
    def write_of_an_old_leader(self) -> None:
        """Who leads no more is fenced, or was before the state began again."""
        before = self.coordinator.shard
        assert self.write(self.stale_writes.pop()) in {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH}
        assert self.coordinator.shard is before

    @precondition(lambda self: self.is_quiet)
    @rule()
    def reinitialize(self) -> None:
        """An administrator alters the offsets: the state begins again where the members are; old epochs are fenced."""
        start_offset = self.persisted_state.start_offset
        self.state_epoch += 1
        result = self.run_state("initialize_state", InitializePartition(0, self.state_epoch, start_offset))
        assert isinstance(result, PartitionResult)
        assert result.error_code == ErrorCode.NONE
        late = self.run_state("initialize_state", InitializePartition(0, self.state_epoch - 1, 0))
        assert isinstance(late, PartitionResult)
        assert late.error_code == ErrorCode.FENCED_STATE_EPOCH
        self.final.clear()
        self.restart()

    @rule()
    def run_jobs(self) -> None:
        """Snapshots of cold share partitions, and pruning: neither changes what the state says."""
        before = self.persisted_state
        self.coordinator_ms += JOBS_MS
        outcome = self.coordinator.advance(self.coordinator_ms)
        after = self.persisted_state
        assert (
            replace(after, snapshot_epoch=before.snapshot_epoch, write_timestamp_ms=before.write_timestamp_ms) == before
        )
        if outcome.delete_before_offset is not None:
            self.log_tells_the_state()
            self.state_log.delete_records(outcome.delete_before_offset)
            self.coordinator.records_deleted(outcome.delete_before_offset)

    @rule()
    def reload_coordinator(self) -> None:
        """Another share coordinator has the same state, be the log pruned or not."""
        shard = empty_shard(CONFIG)
        for entry in self.state_log.entries:
            shard = replay_record(shard, entry.record, entry.offset)
        assert shard.share_partitions == self.coordinator.shard.share_partitions
        assert shard.leader_epochs == self.coordinator.shard.leader_epochs
        assert shard.state_epochs == self.coordinator.shard.state_epochs
        assert shard.snapshot_offsets == self.coordinator.shard.snapshot_offsets

    # --- what must hold ---

    @invariant()
    def log_tells_the_state(self) -> None:
        for entry in self.state_log.entries:
            if entry.offset >= self.log_offset:
                record = decode_record(*encode_record(entry.record))
                self.log_shard = replay_record(self.log_shard, record, entry.offset)
        self.log_offset = self.state_log.next_offset
        assert self.log_shard == self.coordinator.shard

    @invariant()
    def persisted_epochs_never_fall(self) -> None:
        state = self.persisted_state
        epochs = (state.snapshot_epoch, state.state_epoch, state.leader_epoch)
        assert all(now >= before for now, before in zip(epochs, self.highest, strict=True))
        self.highest = epochs

    @invariant()
    def persisted_batches_are_consistent(self) -> None:
        previous_offset = self.persisted_state.start_offset - 1
        for batch in self.persisted_state.state_batches:
            assert previous_offset < batch.first_offset <= batch.last_offset
            assert batch.delivery_state != RecordState.ACQUIRED
            assert 0 <= batch.delivery_count <= self.config.delivery_count_limit
            previous_offset = batch.last_offset

    @invariant()
    def what_was_final_stays_final(self) -> None:
        state = self.persisted_state
        states = {
            offset: batch.delivery_state
            for batch in state.state_batches
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        for offset, delivery_state in self.final.items():
            assert offset < state.start_offset or states.get(offset) == delivery_state, offset
        self.final = {offset: code for offset, code in states.items() if code in TERMINAL}
