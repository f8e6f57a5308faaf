"""Loads the state of a coordinator from its log (CoordinatorLoaderImpl)."""

import struct
from collections import deque
from typing import Any, Final, NamedTuple

from coordinator_core.bytes.log.batch import BatchHeader, parse_header
from coordinator_core.bytes.log.records import iter_records
from coordinator_core.live.runtime.machines import MachineKind
from coordinator_core.live.runtime.partition import PartitionLog

ABORT: Final = 0
COMMIT: Final = 1


class Snapshot(NamedTuple):
    """The state after all records below an offset."""

    end_offset: int
    state: Any


class Loaded(NamedTuple):
    """The result of loading a log."""

    state: Any
    end_offset: int
    committed: Snapshot
    """The latest state that is committed in the log."""
    uncommitted: deque[Snapshot]
    """States above the high watermark, one for each batch: any of them may become the committed one."""
    record_count: int


def load(kind: MachineKind, log: PartitionLog) -> Loaded:
    """Replay a whole log to its end: records that are not committed yet count, as in Kafka.

    Raises DecodeError for unreadable records and CoreError for contradictory ones; unknown record types are skipped.
    """
    state = kind.empty_state()
    committed = Snapshot(log.log_start_offset, state)
    uncommitted: deque[Snapshot] = deque()
    record_count = 0
    for batch in log.batches():
        header = parse_header(batch.data)
        for record in iter_records(batch.data):
            record_count += 1
            if header.is_control:
                state = _replay_marker(kind, state, header, record.key or b"")
            else:  # including records of a batch from before the log start offset: Kafka replays whole batches
                state = kind.replay(state, record, header.producer_id)
        snapshot = Snapshot(batch.next_offset, state)
        if batch.next_offset <= log.high_watermark:
            committed = snapshot
        else:
            uncommitted.append(snapshot)
    return Loaded(state, log.end_offset, committed, uncommitted, record_count)


def _replay_marker(kind: MachineKind, state: Any, header: BatchHeader, key: bytes) -> Any:
    """Apply a marker. Control records other than ABORT and COMMIT change nothing."""
    (_, control_type) = struct.unpack_from(">hh", key)
    if control_type not in (ABORT, COMMIT):
        return state
    return kind.replay_marker(state, header.producer_id, is_commit=control_type == COMMIT)
