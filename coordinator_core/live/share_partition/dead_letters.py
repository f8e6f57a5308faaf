"""Copies of records for the dead letter topic of a share group, since Kafka 4.4 (KIP-1191).

A record that is rejected, or has reached the delivery limit, becomes ARCHIVING. Once that is persisted the broker
copies it; when the copy is done, or has failed permanently, the record is ARCHIVED in memory, counts as complete, and
that is persisted. A gap becomes ARCHIVED immediately: there is nothing to copy. A new leader copies records that it
finds ARCHIVING.

    complete_write(partition, write_id, None)
    for copy in take_copies(partition):
        ...                                      # produce to the dead letter topic
        write = complete_copy(partition, copy.copy_id)

Source: SharePartition.initiateDLQAndArchive, maybeResumeDlqArchiving of Kafka 4.4.0.
"""

from collections.abc import Sequence

from coordinator_core.live.share_partition.errors import UnknownWrite
from coordinator_core.live.share_partition.in_flight import ARCHIVED, InFlightBatch, InFlightState
from coordinator_core.live.share_partition.state import Change, DeadLetterCopy, SharePartition, WriteCause, WriteState
from coordinator_core.live.share_partition.states import TERMINAL, RecordState
from coordinator_core.replay.share_state.combine import StateBatch
from schemas.dead_letters import (
    HEADER_DELIVERY_COUNT,
    HEADER_GROUP,
    HEADER_MESSAGE,
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_TOPIC,
    DeadLetterCause,
    DeadLetterOrigin,
)


def headers_of(origin: DeadLetterOrigin, copy: DeadLetterCopy) -> tuple[tuple[str, bytes], ...]:
    """The headers of the copy of one record."""
    headers = {
        HEADER_TOPIC: origin.topic,
        HEADER_PARTITION: str(origin.partition),
        HEADER_OFFSET: str(origin.offset),
        HEADER_GROUP: origin.group_id,
        HEADER_DELIVERY_COUNT: str(copy.delivery_count),
        HEADER_MESSAGE: copy.cause.value,
    }
    return tuple((name, value.encode()) for name, value in headers.items())


def start_copies(partition: SharePartition, changes: Sequence[Change]) -> None:
    """Queue copies of records that became ARCHIVING."""
    for state, state_batch, cause in changes:
        if state_batch.delivery_state == RecordState.ARCHIVING:
            first, last = state_batch.first_offset, state_batch.last_offset
            _add(partition, state, first, last, state_batch.delivery_count, cause)


def resume_copy(partition: SharePartition, batch: InFlightBatch) -> None:
    """Queue the copy of a batch that another leader left ARCHIVING. Only its delivery count shows why it was
    archived."""
    assert batch.whole is not None
    is_limit = batch.whole.delivery_count >= partition.config.delivery_count_limit
    cause = DeadLetterCause.DELIVERY_LIMIT if is_limit else DeadLetterCause.REJECTED
    _add(partition, batch.whole, batch.first_offset, batch.last_offset, batch.whole.delivery_count, cause)


def take_copies(partition: SharePartition) -> tuple[DeadLetterCopy, ...]:
    """Remove and return the copies that the broker should make now, each once."""
    due, partition.copies_due = tuple(partition.copies_due), []
    return due


def complete_copy(partition: SharePartition, copy_id: int) -> WriteState:
    """A copy is done, or has failed permanently: its records are ARCHIVED. Returns the state to persist.

    Raises UnknownWrite if the copy is not in progress.
    """
    if copy_id not in partition.copies_under_way:
        raise UnknownWrite(f"copy {copy_id} is not under way")
    copy, whole = partition.copies_under_way.pop(copy_id)
    for state in whole.parts or (whole,):
        if state.state not in TERMINAL:
            state.archive(partition.locks)
    partition.delivery_complete_count += partition.record_count_from_start(copy.first_offset, copy.last_offset)
    write_id = partition.next_write_id
    partition.next_write_id += 1
    partition.writes_under_way[write_id] = (WriteCause.DEAD_LETTER, ())
    return WriteState(
        write_id=write_id,
        cause=WriteCause.DEAD_LETTER,
        start_offset=partition.start_offset,
        state_epoch=partition.state_epoch,
        leader_epoch=partition.config.leader_epoch,
        delivery_complete_count=partition.delivery_complete_count,
        state_batches=(StateBatch(copy.first_offset, copy.last_offset, ARCHIVED, copy.delivery_count),),
    )


def _add(
    partition: SharePartition,
    state: InFlightState,
    first_offset: int,
    last_offset: int,
    delivery_count: int,
    cause: DeadLetterCause,
) -> None:
    copy = DeadLetterCopy(partition.next_copy_id, first_offset, last_offset, delivery_count, cause)
    partition.next_copy_id += 1
    partition.copies_under_way[copy.copy_id] = (copy, state)
    partition.copies_due.append(copy)
