"""Finds which records of a chunk are one operation of the group coordinator, before the records are split by group.

An operation is a maximal run of records in one batch with one timestamp and one group. After a split by group, the
records of other groups between two operations are no longer visible, so the runs are numbered before.
"""

import numpy as np

from coordinator_core.bytes.log.chunk import I32, I64, U8, RecordChunk
from coordinator_core.bytes.log.kernels import be16, compiled, read_only
from coordinator_core.replay.columnar.offsets_kernels import TYPE_LAST


def operation_first_offsets(chunk: RecordChunk) -> I64:
    """For each record, the offset of the first record of its operation; its own offset if its key has no group."""
    records = chunk.records
    return _first_offsets(
        read_only(chunk.data),
        records.batch_index,
        records.offset,
        records.timestamp_ms,
        records.key_position,
        records.key_length,
    )


@compiled
def _first_offsets(
    data: U8, batch_index: I32, offset: I64, timestamp_ms: I64, key_position: I64, key_length: I32
) -> I64:
    first = np.empty(len(offset), np.int64)
    last_length = -1
    for i in range(len(offset)):
        first[i] = offset[i]
        length = -1
        if key_length[i] >= 4:
            record_type = be16(data, key_position[i])
            length = be16(data, key_position[i] + 2)
            if record_type < 0 or record_type > TYPE_LAST or record_type in (9, 18) or length > key_length[i] - 4:
                length = -1
        if (
            length >= 0
            and length == last_length
            and batch_index[i] == batch_index[i - 1]
            and timestamp_ms[i] == timestamp_ms[i - 1]
        ):
            at, before = key_position[i] + 4, key_position[i - 1] + 4
            is_same = True
            for byte in range(length):
                if data[at + byte] != data[before + byte]:
                    is_same = False
                    break
            if is_same:
                first[i] = first[i - 1]
        last_length = length
    return first
