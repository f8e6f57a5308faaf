"""Finishing deliveries: acknowledgements of members, the end of a member's session, and expired locks.

Acknowledgements and releases are pending until they are persisted, and are rolled back if that fails. An expired lock
takes effect immediately, whatever the result of the write.
"""

from collections.abc import Sequence

from coordinator_core.live.share_partition.dead_letters import start_copies
from coordinator_core.live.share_partition.errors import (
    InvalidRecordState,
    InvalidRequest,
    RefusedRequest,
    UnknownWrite,
)
from coordinator_core.live.share_partition.in_flight import (
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    AcquisitionLock,
    InFlightBatch,
    InFlightState,
)
from coordinator_core.live.share_partition.state import (
    AcknowledgementBatch,
    Change,
    PersisterError,
    SharePartition,
    WriteCause,
    WriteState,
)
from coordinator_core.live.share_partition.states import ACKNOWLEDGED_STATE, TERMINAL, AcknowledgeType, RecordState
from coordinator_core.live.share_partition.window import advance_start_offset
from coordinator_core.replay.share_state.combine import StateBatch
from schemas.dead_letters import DeadLetterCause

RENEW = AcknowledgeType.RENEW
REJECT = AcknowledgeType.REJECT
ARCHIVING = RecordState.ARCHIVING
ENDS_ANYHOW = frozenset({WriteCause.LOCK_TIMEOUT, WriteCause.DEAD_LETTER})
"""If one of these writes fails, nothing changes."""
ACKNOWLEDGE_TYPES = frozenset(AcknowledgeType)
"""Looking up an int in it costs a tenth of creating an AcknowledgeType."""


def acknowledge(
    partition: SharePartition, member_id: str, batches: Sequence[AcknowledgementBatch], now_ms: int
) -> WriteState | None:
    """Apply a member's acknowledgements. Returns the state to persist, or None if nothing changes.

    The changes are pending until `complete_write`. Offsets below the start offset are skipped. Raises
    InvalidRecordState if the member may not acknowledge a record, and InvalidRequest for an impossible range or type;
    then no batch of the request has an effect, except for renewed locks. Source: SharePartition.acknowledge,
    rollbackOrProcessStateUpdates.
    """
    changes: list[Change] = []
    try:
        for batch in batches:
            _acknowledge_batch(partition, member_id, batch, now_ms, changes)
    except RefusedRequest:
        _roll_back(partition, changes)
        raise
    return _write(partition, WriteCause.ACKNOWLEDGE, changes)


def _acknowledge_batch(
    partition: SharePartition, member_id: str, acknowledged: AcknowledgementBatch, now_ms: int, changes: list[Change]
) -> None:
    first_offset, last_offset, types = acknowledged
    if first_offset > last_offset or len(types) not in (1, last_offset - first_offset + 1):
        raise InvalidRequest("an acknowledgement has one type, or one for each offset")
    if not ACKNOWLEDGE_TYPES.issuperset(types):
        raise InvalidRequest("unknown acknowledge type")
    if last_offset < partition.start_offset:
        return
    is_renewal_refused = not partition.config.is_renew_acknowledge_enabled and RENEW in types
    for batch in _batches_of(partition, first_offset, last_offset):
        if batch.last_offset < partition.start_offset:
            continue
        whole = batch.whole
        if whole is not None:
            _check_holder(whole, member_id)
            if (
                len(types) == 1
                and batch.is_within(first_offset, last_offset)
                and batch.first_offset >= partition.start_offset
            ):
                if is_renewal_refused:
                    raise InvalidRecordState("renewal is not enabled")
                _acknowledge_state(partition, whole, types[0], batch.first_offset, batch.last_offset, now_ms, changes)
                continue
            batch.split(partition.locks)
        from_offset = max(first_offset, partition.start_offset)
        type_of_all = types[0] if len(types) == 1 else None
        for offset, state in batch.states_between(from_offset, last_offset):
            _check_holder(state, member_id)
            acknowledge_type = types[offset - first_offset] if type_of_all is None else type_of_all
            if is_renewal_refused and acknowledge_type == RENEW:
                raise InvalidRecordState("renewal is not enabled")
            _acknowledge_state(partition, state, acknowledge_type, offset, offset, now_ms, changes)


def _batches_of(partition: SharePartition, first_offset: int, last_offset: int) -> list[InFlightBatch]:
    """The batches in flight within a range (SharePartition.fetchSubMapForAcknowledgementBatch)."""
    cached = partition.cached
    floor = cached.floor(first_offset)
    if floor is None and partition.is_start_inside(first_offset, last_offset):
        floor = cached.floor(partition.start_offset)
    if floor is None:
        # Kafka fails if the start offset lies in the range, but in a hole before everything in flight.
        raise InvalidRecordState("no such offsets are in flight")
    batches = cached.between(floor.first_offset, last_offset)
    if batches[-1].last_offset < last_offset:
        raise InvalidRequest("the range goes beyond what was acquired")
    return batches


def _check_holder(state: InFlightState, member_id: str) -> None:
    """Raise InvalidRecordState unless the member has acquired the records and no change of them is pending."""
    if state.state is not ACQUIRED:
        raise InvalidRecordState("the records are not acquired, or an acknowledgement is under way")
    if state.member_id != member_id:
        raise InvalidRecordState("another member holds the records")


def _acknowledge_state(
    partition: SharePartition,
    state: InFlightState,
    acknowledge_type: int,
    first_offset: int,
    last_offset: int,
    now_ms: int,
    changes: list[Change],
) -> None:
    if acknowledge_type == RENEW:
        state.release_lock(partition.locks)
        deadline_ms = now_ms + partition.config.record_lock_duration_ms
        state.lock = partition.locks.start(state.member_id, first_offset, last_offset, deadline_ms)
        return
    asked = ACKNOWLEDGED_STATE[acknowledge_type]  # type: ignore[index]
    cause = DeadLetterCause.DELIVERY_LIMIT
    if acknowledge_type == REJECT and partition.config.has_dead_letter_topic:
        asked, cause = ARCHIVING, DeadLetterCause.REJECTED
    _start_change(partition, state, asked, first_offset, last_offset, changes, cause)


def _start_change(
    partition: SharePartition,
    state: InFlightState,
    asked: RecordState,
    first_offset: int,
    last_offset: int,
    changes: list[Change],
    cause: DeadLetterCause = DeadLetterCause.DELIVERY_LIMIT,
) -> None:
    """Begin to finish the delivery of the records, and count them as complete if they become terminal."""
    config = partition.config
    given_up = ARCHIVING if config.has_dead_letter_topic else ARCHIVED
    following = state.start_transition(asked, config.delivery_count_limit, given_up)
    state_batch = StateBatch(first_offset, last_offset, following, state.delivery_count)
    changes.append(Change(state, state_batch, cause))
    if following in TERMINAL:
        partition.delivery_complete_count += partition.record_count_from_start(first_offset, last_offset)


def release(partition: SharePartition, member_id: str) -> WriteState | None:
    """Release everything that the member has acquired, because its session ended. Returns the state to persist, or
    None.

    The records become AVAILABLE, or ARCHIVED at the delivery limit or below the start offset; their delivery count
    stays. The changes are pending until `complete_write`. Source: SharePartition.releaseAcquiredRecords.
    """
    changes: list[Change] = []
    for batch in partition.cached:
        if batch.whole is not None:
            whole = batch.whole
            if whole.state is not ACQUIRED or whole.member_id != member_id:
                continue
            if not partition.is_start_inside(batch.first_offset, batch.last_offset):
                asked = ARCHIVED if batch.last_offset < partition.start_offset else AVAILABLE
                _start_change(partition, whole, asked, batch.first_offset, batch.last_offset, changes)
                continue
        _release_offsets(partition, batch, member_id, changes)
    return _write(partition, WriteCause.RELEASE, changes)


def _release_offsets(partition: SharePartition, batch: InFlightBatch, member_id: str, changes: list[Change]) -> None:
    for offset, state in enumerate(batch.split(partition.locks), batch.first_offset):
        if state.state is ACQUIRED and state.member_id == member_id:
            asked = ARCHIVED if offset < partition.start_offset else AVAILABLE
            _start_change(partition, state, asked, offset, offset, changes)


def _write(partition: SharePartition, cause: WriteCause, changes: list[Change]) -> WriteState | None:
    if not changes:
        return None
    write = _new_write(partition, cause, tuple(change.state_batch for change in changes))
    partition.writes_under_way[write.write_id] = (cause, tuple(changes))
    return write


def _new_write(partition: SharePartition, cause: WriteCause, state_batches: tuple[StateBatch, ...]) -> WriteState:
    """The next write, with the current start offset (SharePartition.writeShareGroupState)."""
    write_id = partition.next_write_id
    partition.next_write_id += 1
    return WriteState(
        write_id=write_id,
        cause=cause,
        start_offset=partition.start_offset,
        state_epoch=partition.state_epoch,
        leader_epoch=partition.config.leader_epoch,
        delivery_complete_count=partition.delivery_complete_count,
        state_batches=state_batches,
    )


def complete_write(partition: SharePartition, write_id: int, error: PersisterError | None) -> WriteCause:
    """The share coordinator has answered a write: commit its changes or roll them back. Returns the cause of the write.

    A request that waits for it is answered with success, or with `error.error_class`. A record whose lock expired while
    the write was in flight becomes AVAILABLE if it is rolled back. After a lock timeout there is nothing to roll back,
    and the start offset moves whatever the result. Raises UnknownWrite if the write is not in flight. Source:
    SharePartition.rollbackOrProcessStateUpdates, releaseAcquisitionLockOnTimeout. Records that became ARCHIVING are
    then queued to be copied to the dead letter topic (`dead_letters`).
    """
    if write_id not in partition.writes_under_way:
        raise UnknownWrite(f"write {write_id} is not under way")
    cause, changes = partition.writes_under_way.pop(write_id)
    if cause in ENDS_ANYHOW:
        advance_start_offset(partition)
        start_copies(partition, changes)
        return cause
    if error is not None:
        _roll_back(partition, changes)
        return cause
    for change in changes:
        for state in change.state.parts or (change.state,):
            state.commit(partition.locks)
            if state.state is AVAILABLE:
                partition.find_next_fetch_offset = True
    advance_start_offset(partition)
    start_copies(partition, changes)
    return cause


def _roll_back(partition: SharePartition, changes: Sequence[Change]) -> None:
    for change in changes:
        first_offset, last_offset = change.state_batch.first_offset, change.state_batch.last_offset
        was_complete = change.state_batch.delivery_state in TERMINAL
        if change.state.parts is None:
            parts = [(change.state, first_offset, last_offset)]
        else:
            parts = [(state, offset, offset) for offset, state in enumerate(change.state.parts, first_offset)]
        for state, first, last in parts:
            state.roll_back(partition.config.delivery_count_limit, partition.locks)
            if state.state is AVAILABLE:
                partition.find_next_fetch_offset = True
            if was_complete and state.state not in TERMINAL:
                partition.delivery_complete_count -= partition.record_count_from_start(first, last)


def next_deadline_ms(partition: SharePartition) -> int | None:
    """When the next lock expires, epoch milliseconds; None if there are no locks."""
    return partition.locks.next_deadline_ms()


def expire_lock(partition: SharePartition, now_ms: int) -> tuple[AcquisitionLock, WriteState | None] | None:
    """Expire the next lock that is due at `now_ms`, one for each call. Returns the lock and the state to persist; None
    if none is due.

    Its records become AVAILABLE, or ARCHIVED at the delivery limit or below the start offset, immediately. Records that
    were acknowledged or released meanwhile stay unchanged. Locks expire by deadline, on a tie the oldest first. Source:
    SharePartition.releaseAcquisitionLockOnTimeout.
    """
    lock = partition.locks.pop_due(now_ms)
    if lock is None:
        return None
    changes: list[Change] = []
    floor = partition.cached.floor(lock.first_offset)
    batches = [] if floor is None else partition.cached.between(floor.first_offset, lock.last_offset)
    for batch in batches:
        whole = batch.whole
        if whole is not None:
            if whole.state is not ACQUIRED:
                continue
            if not partition.is_start_inside(batch.first_offset, batch.last_offset):
                _time_out(partition, whole, batch.first_offset, batch.last_offset, changes)
                continue
            batch.split(partition.locks)
        for offset, state in batch.states_between(lock.first_offset, lock.last_offset):
            if state.state is ACQUIRED:
                _time_out(partition, state, offset, offset, changes)
    return lock, _write(partition, WriteCause.LOCK_TIMEOUT, changes)


def _time_out(
    partition: SharePartition,
    state: InFlightState,
    first_offset: int,
    last_offset: int,
    changes: list[Change],
) -> None:
    config = partition.config
    asked = ARCHIVED if last_offset < partition.start_offset else AVAILABLE
    given_up = ARCHIVING if config.has_dead_letter_topic else ARCHIVED
    following = state.transition_to(asked, config.delivery_count_limit, given_up)
    state.release_lock(partition.locks)
    changes.append(Change(state, StateBatch(first_offset, last_offset, following, state.delivery_count)))
    if following is not ARCHIVED:
        partition.find_next_fetch_offset = True
    else:
        partition.delivery_complete_count += partition.record_count_from_start(first_offset, last_offset)
