"""Loads the state of a coordinator from its log (CoordinatorLoaderImpl)."""

import struct
from typing import Any, Final

from coordinator_core.bytes.log.batch import BatchHeader, parse_header
from coordinator_core.bytes.log.records import iter_records
from coordinator_core.live.runtime.machines import MachineKind
from coordinator_core.live.runtime.partition import PartitionLog

ABORT: Final = 0
COMMIT: Final = 1


def load(kind: MachineKind, log: PartitionLog) -> Any:
    """The state after a whole log: records that are not committed yet count, as in Kafka.

    Raises DecodeError for unreadable records and CoreError for contradictory ones; unknown record types are skipped.
    """
    state = kind.empty_state()
    for batch in log.batches():
        header = parse_header(batch.data)
        for record in iter_records(batch.data):
            if header.is_control:
                state = _replay_marker(kind, state, header, record.key or b"")
            else:  # including records of a batch from before the log start offset: Kafka replays whole batches
                state = kind.replay(state, record, header.producer_id)
    return state


def _replay_marker(kind: MachineKind, state: Any, header: BatchHeader, key: bytes) -> Any:
    """Apply a marker. Control records other than ABORT and COMMIT change nothing."""
    (_, control_type) = struct.unpack_from(">hh", key)
    if control_type not in (ABORT, COMMIT):
        return state
    return kind.replay_marker(state, header.producer_id, is_commit=control_type == COMMIT)
