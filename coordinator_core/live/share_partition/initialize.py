"""Start-up from persisted state, and fencing (SharePartition.maybeInitialize, markFenced)."""

from coordinator_core.live.share_partition.dead_letters import resume_copy
from coordinator_core.live.share_partition.errors import InvalidReadState, NotInitialized
from coordinator_core.live.share_partition.in_flight import NO_MEMBER, InFlightBatch, InFlightState
from coordinator_core.live.share_partition.state import (
    BATCH_OFFSETS_MAX,
    GapWindow,
    ReadState,
    SharePartition,
    SharePartitionConfig,
)
from coordinator_core.live.share_partition.states import (
    TERMINAL,
    VALID_PREVIOUS_PARTITION,
    RecordState,
    SharePartitionState,
)
from coordinator_core.live.share_partition.window import advance_start_offset
from coordinator_core.replay.share_state.combine import UNSET_OFFSET

EMPTY, ACTIVE = SharePartitionState.EMPTY, SharePartitionState.ACTIVE


def begin_initialization(partition: SharePartition) -> bool:
    """True: read the persisted state and pass it to `complete_initialization`, or call `fail_initialization`. False:
    the share partition is active.

    Raises NotInitialized while the state is being read, and permanently after start-up failed or the partition was
    fenced. Source: SharePartition.maybeInitialize, initializedOrThrowException.
    """
    if partition.is_active:
        return False
    if partition.partition_state is not EMPTY:
        raise NotInitialized(f"the share partition is {partition.partition_state}")
    _move_to(partition, SharePartitionState.INITIALIZING)
    return True


def fail_initialization(partition: SharePartition) -> None:
    """The state could not be read: FAILED. Raises NotInitialized unless it is being read."""
    _move_to(partition, SharePartitionState.FAILED)


def complete_initialization(partition: SharePartition, read: ReadState, reset_offset: int = 0) -> None:
    """Apply the persisted state: ACTIVE.

    `reset_offset`: where to begin if nothing was ever written, by share.auto.offset.reset and the data log. Offsets
    without a persisted batch below a persisted one form the gap window. Batches that are ARCHIVING are copied to the
    dead letter topic again: how far the previous leader came is unknown. Raises InvalidReadState, and leaves the share
    partition FAILED, if a batch begins below the start offset, overlaps another, is too long, or has an unknown state;
    Kafka checks the first and the last of these, and its share coordinator writes none. Raises NotInitialized unless
    the state is being read. Source: SharePartition.maybeInitialize.
    """
    if partition.partition_state is not SharePartitionState.INITIALIZING:
        raise NotInitialized(f"the share partition is {partition.partition_state}")
    start_offset = reset_offset if read.start_offset == UNSET_OFFSET else read.start_offset
    try:
        batches = _checked_batches(read, start_offset, partition.config)
    except InvalidReadState:
        fail_initialization(partition)
        raise
    partition.start_offset = start_offset
    partition.state_epoch = read.state_epoch
    partition.end_offset = start_offset
    expected_offset, gap_start_offset = start_offset, None
    for batch in batches:
        assert batch.whole is not None
        if gap_start_offset is None and batch.first_offset > expected_offset:
            gap_start_offset = expected_offset
        expected_offset = batch.last_offset + 1
        partition.cached.add(batch)
        if batch.whole.state in TERMINAL:
            partition.delivery_complete_count += batch.record_count
        elif batch.whole.state is RecordState.ARCHIVING:
            resume_copy(partition, batch)
    if batches:
        partition.find_next_fetch_offset = True
        partition.end_offset = partition.cached.last.last_offset
        if gap_start_offset is not None:
            partition.gap_window = GapWindow(partition.end_offset, gap_start_offset)
        advance_start_offset(partition)
    _move_to(partition, ACTIVE)


def _checked_batches(read: ReadState, start_offset: int, config: SharePartitionConfig) -> list[InFlightBatch]:
    batches = []
    expected_offset = start_offset
    for persisted in read.state_batches:
        if not expected_offset <= persisted.first_offset <= persisted.last_offset:
            raise InvalidReadState(
                f"batch {persisted.first_offset}..{persisted.last_offset} where {expected_offset} or later is expected"
            )
        if persisted.last_offset - persisted.first_offset >= BATCH_OFFSETS_MAX:
            raise InvalidReadState(f"batch {persisted.first_offset}..{persisted.last_offset} is too long")
        try:
            state = RecordState(persisted.delivery_state)
        except ValueError:
            raise InvalidReadState(f"delivery state {persisted.delivery_state} is unknown") from None
        if state is RecordState.ARCHIVING and not config.knows_archiving:
            raise InvalidReadState(f"Kafka {config.kafka_version} does not know the delivery state ARCHIVING")
        whole = InFlightState(state, persisted.delivery_count, NO_MEMBER)
        batches.append(InFlightBatch(persisted.first_offset, persisted.last_offset, whole))
        expected_offset = persisted.last_offset + 1
    return batches


def fence(partition: SharePartition) -> None:
    """Another broker leads, or the state was deleted: nothing is acquired any more (markFenced).

    Acquisitions are dropped without a write. Locks that expire later do write.
    """
    _move_to(partition, SharePartitionState.FENCED)


def _move_to(partition: SharePartition, following: SharePartitionState) -> None:
    if partition.partition_state not in VALID_PREVIOUS_PARTITION[following]:
        raise NotInitialized(f"no transition {partition.partition_state} -> {following}")
    partition.partition_state = following
