"""Whether two copies of a log partition are copies of one log, or one of them belongs to a recreated topic.

Kafka guarantees for one log: a leader epoch has one leader, which writes each offset once, and epochs follow one
another in time. The cleaner removes records; a record that it keeps has the same offset, key, value and time as before.

So a record in both copies proves one log. Where no record is in both, the first offset with two records decides. Two
records of one leader epoch belong to two logs. So do two records of which the one with the lower epoch was written
later: in one log, the tail of a dead leader is older than what its successor wrote there. Where the epochs of a copy
are unknown, records that both copies wrote at the same time belong to two logs for the same reason, if by its own clock
each wrote for longer than a leader that lost its leadership can: the clock of that leader may be wrong by any time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from coordinator_core.bytes.log.chunk import BatchColumns, BoolArray, RecordChunk

CLOCKS_APART_MS_MAX: Final = 60_000
"""By how much the clocks of two leaders may differ, and how long a leader that lost its leadership may still write."""
RECORDS_COMPARED_MAX: Final = 1_000
"""How many offsets with two records are compared. A record in both copies counts wherever it is."""


@dataclass(frozen=True, slots=True)
class OtherLog:
    """Two records at one offset that cannot belong to one log."""

    offset: int
    known_epoch: int | None
    found_epoch: int | None
    known_ms: int
    found_ms: int


def share_a_batch(known: BatchColumns, found: BatchColumns) -> bool:
    """Whether the headers of two copies agree in a batch: offsets, leader epoch, number of records and max
    timestamp."""
    of_known = {key for key in _headers(known) if key is not None}
    return any(key in of_known for key in _headers(found))


def _headers(batches: BatchColumns) -> list[tuple[int, ...] | None]:
    columns = (
        batches.base_offset,
        batches.last_offset,
        batches.leader_epoch,
        batches.record_count,
        batches.max_timestamp_ms,
    )
    rows = zip(*(column[: 10 * RECORDS_COMPARED_MAX].tolist() for column in columns), strict=True)
    # an emptied batch and one without a timestamp prove too little
    return [row if row[3] > 0 and row[4] >= 0 else None for row in rows]


def other_log(
    known: RecordChunk,
    found: RecordChunk,
    *,
    known_has_epoch: BoolArray | None = None,
    found_has_epoch: BoolArray | None = None,
) -> OtherLog | None:
    """The first offset at which two copies turn out to be of two logs; None if they do not.

    `known_has_epoch`, `found_has_epoch`: one bool for each batch, False where its header was made up. Without an epoch
    only the beginning of a log decides, or that both copies were written at the same time.
    """
    offsets, of_known, of_found = np.intersect1d(
        known.records.offset, found.records.offset, assume_unique=False, return_indices=True
    )
    differing: list[OtherLog] = []
    for offset, known_row, found_row in zip(offsets.tolist(), of_known.tolist(), of_found.tolist(), strict=True):
        known_ms = int(known.records.timestamp_ms[known_row])
        found_ms = int(found.records.timestamp_ms[found_row])
        if _key_and_value(known, known_row) == _key_and_value(found, found_row):
            if known_ms == found_ms:
                return None
        elif len(differing) < RECORDS_COMPARED_MAX:
            differing.append(
                OtherLog(
                    offset,
                    _epoch(known, known_row, known_has_epoch),
                    _epoch(found, found_row, found_has_epoch),
                    known_ms,
                    found_ms,
                )
            )
    if not differing:
        return None
    return differing[0] if _is_proof(differing[0]) or _is_at_once(differing) else None


def _is_proof(it: OtherLog) -> bool:
    """Whether no leader's lost tail can explain the two records."""
    if it.known_epoch is None or it.found_epoch is None:
        is_apart = abs(it.known_ms - it.found_ms) > CLOCKS_APART_MS_MAX
        return it.offset == 0 and min(it.known_ms, it.found_ms) >= 0 and is_apart
    if it.known_epoch == it.found_epoch:
        return True
    if it.found_epoch < it.known_epoch:
        return it.known_ms >= 0 and it.found_ms - it.known_ms > CLOCKS_APART_MS_MAX
    return it.found_ms >= 0 and it.known_ms - it.found_ms > CLOCKS_APART_MS_MAX


def _is_at_once(differing: Sequence[OtherLog]) -> bool:
    """Whether two leaders whose epochs are unknown wrote at the same time, and neither of them a lost tail."""
    if differing[0].known_epoch is not None and differing[0].found_epoch is not None:
        return False
    known = [it.known_ms for it in differing if it.known_ms >= 0]
    found = [it.found_ms for it in differing if it.found_ms >= 0]
    if not known or not found:
        return False
    overlap_ms = min(max(known) - min(found), max(found) - min(known))
    return min(overlap_ms, max(known) - min(known), max(found) - min(found)) > CLOCKS_APART_MS_MAX


def _epoch(chunk: RecordChunk, row: int, has_epoch: BoolArray | None) -> int | None:
    batch = int(chunk.records.batch_index[row])
    if chunk.batches.magic[batch] < 2 or (has_epoch is not None and not has_epoch[batch]):
        return None
    epoch = int(chunk.batches.leader_epoch[batch])
    return epoch if epoch >= 0 else None


def _key_and_value(chunk: RecordChunk, row: int) -> tuple[bytes | None, bytes | None]:
    records, data = chunk.records, chunk.data

    def part(position: int, length: int) -> bytes | None:
        return None if length < 0 else data[position : position + length].tobytes()

    return (
        part(int(records.key_position[row]), int(records.key_length[row])),
        part(int(records.value_position[row]), int(records.value_length[row])),
    )
