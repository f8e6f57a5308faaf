"""Scans a whole segment file for batches, with a finding for each byte range that is not a batch.

Kafka's own recovery truncates a segment at the first bad byte. A cold copy is read differently: damage is reported, and
the scan continues at the next complete batch with a valid checksum.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np

from coordinator_core.bytes.log import kernels
from coordinator_core.bytes.log.batch import batch_crc, stored_crc
from coordinator_core.bytes.log.chunk import U8, BatchColumns, BoolArray, Finding
from coordinator_core.bytes.log.legacy import decode_entry
from coordinator_core.bytes.log.records import as_u8, crc_finding, crc_valid_batches
from coordinator_core.errors import DecodeError, InvalidBatch, TruncatedBatch
from coordinator_core.limits import QUARANTINE_BYTES_MAX

RELATIVE_OFFSET_MAX: Final = 2**31 - 1
"""A segment's offsets fit into 31 bits above its base offset (LogSegment.canConvertToRelativeOffset), because the index
requires it; a base offset beyond that is damaged."""

RESYNC_CRC_FACTOR: Final = 4
"""How often, on average, a byte of the file may be checksummed in the search for the next batch. Otherwise crafted
headers every few bytes could each claim megabytes, and the search would take forever."""

WINDOW_BYTES: Final = 1 << 25
"""How much of a file is framed and checked at a time. It bounds how much of a mapped file is in memory."""

LOOK_BACK_BYTES: Final = 1 << 20
LOOK_BACK_PART: Final = 8
"""The end of a segment that was read before is searched for in this many bytes, then in twice as many, up to
1/LOOK_BACK_PART of the segment if that is more: framing the rest costs no more than searching further."""
CANDIDATES_MAX: Final = 64
"""How many candidates for a batch are tried: the bytes of an offset may occur anywhere in zeros and in values."""

TORN_TAIL: Final = "a torn tail"
"""End of the message for a batch that Kafka was writing: the next copy will have the rest."""
STOP_UNCONFIRMED: Final = 100
"""An additional code besides the STOP_ codes of the compiled loops."""


@dataclass(frozen=True, slots=True)
class SegmentScan:
    """All batches of a segment in log order, and what lies between them.

    The bytes of the file are exactly: the batches, the findings of stage FILE, and zeros up to the end.
    """

    batches: BatchColumns
    crc_valid: BoolArray
    """One for each batch. A framed batch with a wrong checksum is included, and has a finding of stage BATCH."""
    findings: tuple[Finding, ...]
    """Findings of stage FILE (TRUNCATED_BATCH, INVALID_BATCH) and BATCH (CRC_MISMATCH), ascending by byte position."""
    skipped: tuple[tuple[int, int], ...]
    """Byte ranges [from, to) of the findings of stage FILE."""
    next_offset: int
    """The last batch's last offset + 1; at least the base offset."""
    end_position: int
    """Where the data end, before the trailing zeros of a preallocated file."""


@dataclass(slots=True)
class _Budget:
    bytes_left: int


def keep() -> None:
    """Release nothing."""


def scan_segment(
    data: bytes | memoryview | U8,
    *,
    base_offset: int,
    is_last: bool = False,
    next_offset_min: int = 0,
    from_position: int = 0,
    let_go: Callable[[], object] = keep,
) -> SegmentScan:
    """Frame and check a whole `.log` file, which may be memory-mapped. No bytes make it raise.

    `base_offset` is that of the file's name; `next_offset_min` is the end of the previous segment, below which a batch
    would go back. Findings of stage FILE: TRUNCATED_BATCH for a torn tail, INVALID_BATCH for any other range that is
    not a batch. Zeros up to the end of the file are a preallocated tail, not a finding. `let_go` is called when the
    bytes read so far are hardly needed again: pages of a mapping may be released then. `from_position`: where a batch
    begins; bytes before it are ignored.
    """
    array = kernels.read_only(as_u8(data))
    end = len(array)
    offset_max = min(base_offset + RELATIVE_OFFSET_MAX, kernels.INT64_MAX - 1)
    next_offset = max(base_offset, next_offset_min)
    parts: list[BatchColumns] = []
    crc_parts: list[BoolArray] = []
    skipped: list[tuple[int, int, int]] = []
    budget = _Budget(RESYNC_CRC_FACTOR * end)
    position = from_position
    window_bytes = WINDOW_BYTES
    while position < end:
        columns, _, stop_position, stop = kernels.frame_ordered_batches(
            array, position, end, next_offset, offset_max, next_start=position + window_bytes
        )
        part = BatchColumns(*columns)
        crc_valid = crc_valid_batches(array, part)
        let_go()
        goes_on = stop == kernels.STOP_END and stop_position < end
        if goes_on and not crc_valid[-1]:
            # its neighbour, which may confirm it, is in the next window
            if len(part) == 1:
                window_bytes *= 2
                continue
            stop_position = int(part.position[-1])
            part, crc_valid = _rows(part, len(part) - 1), crc_valid[:-1]
        is_tail = not goes_on and (stop == kernels.STOP_END or kernels.skip_zeros(array, stop_position, end) == end)
        if not goes_on and len(part) and not crc_valid[-1]:
            # only a good neighbour confirms the header of a damaged batch, and the last one of a run has none
            offset_min = int(part.last_offset[-2]) + 1 if len(part) > 1 else next_offset
            last_position, last_offset = int(part.position[-1]), int(part.last_offset[-1])
            if not (is_tail or _is_torn_neighbour(array, stop_position, stop, last_offset + 1, offset_max)) or (
                _resync(array, last_position + 1, stop_position, offset_min, offset_max, budget) < stop_position
            ):
                part, crc_valid = _rows(part, len(part) - 1), crc_valid[:-1]
                stop_position, stop, is_tail = last_position, STOP_UNCONFIRMED, False
        if len(part):
            parts.append(part)
            crc_parts.append(crc_valid)
            next_offset = int(part.last_offset[-1]) + 1
        position = stop_position
        if goes_on:
            continue
        if is_tail:
            break
        resync_position = _resync(array, position + 1, end, next_offset, offset_max, budget)
        if skipped and skipped[-1][1] == position:
            position, _, stop = skipped.pop()
        skipped.append((position, resync_position, stop))
        position = resync_position
    batches = _concatenated(parts)
    crc_valid = np.concatenate(crc_parts) if crc_parts else np.zeros(0, np.bool_)
    _complete_legacy(array, batches, crc_valid)
    findings = [crc_finding(array, batches, row) for row in np.flatnonzero(~crc_valid).tolist()]
    findings += [_range_finding(array, start, stop, reason, is_last) for start, stop, reason in skipped]
    findings.sort(key=lambda finding: finding.byte_position or 0)
    return SegmentScan(
        batches=batches,
        crc_valid=crc_valid,
        findings=tuple(findings),
        skipped=tuple((start, stop) for start, stop, _ in skipped),
        next_offset=next_offset,
        end_position=position,
    )


def without_misplaced_end(
    scan: SegmentScan, data: U8, *, offset_end: int | None, first_timestamp_ms: int | None
) -> SegmentScan:
    """The scan of a segment, given the beginning of the next segment: `offset_end` and the time of its first record. If
    only the last batch reaches beyond that offset, and is older, the base offset in its header is damaged, which no
    checksum covers; it becomes a finding of stage FILE. (Where the cleaner merged segments, and a copy still has the
    later one of them, batches beyond its beginning are not older.)
    """
    batches = scan.batches
    if offset_end is None or first_timestamp_ms is None or not len(batches) or not scan.crc_valid[-1]:
        return scan
    if batches.base_offset[-1] < offset_end:
        return scan
    next_offset = int(batches.last_offset[-2]) + 1 if len(batches) > 1 else min(scan.next_offset, offset_end)
    if next_offset > offset_end or not 0 <= batches.max_timestamp_ms[-1] < first_timestamp_ms:
        return scan
    start, size = int(batches.position[-1]), int(batches.size[-1])
    finding = Finding(
        stage="FILE",
        code=InvalidBatch.code,
        message=f"the batch has offset {int(batches.base_offset[-1])}, and the next segment, whose records are later, "
        f"begins with {offset_end}: the header is damaged, where no checksum covers it; {size} bytes skipped",
        byte_position=start,
        payload=data[start : start + min(size, QUARANTINE_BYTES_MAX)].tobytes(),
    )
    return replace(
        scan,
        batches=_rows(batches, len(batches) - 1),
        crc_valid=scan.crc_valid[:-1],
        findings=tuple(sorted([*scan.findings, finding], key=lambda it: it.byte_position or 0)),
        skipped=(*scan.skipped, (start, start + size)),
        next_offset=next_offset,
    )


def scan_end(
    data: bytes | memoryview | U8,
    known: tuple[int, int],
    *,
    base_offset: int,
    is_last: bool = False,
    let_go: Callable[[], object] = keep,
) -> SegmentScan | None:
    """`scan_segment` for only the end of a segment: from a known batch on, given its first and last offset.

    None if that batch is not found near the end, or if anything but complete batches up to the last byte follows
    it: then the whole segment must be read. (A value may contain the bytes of a batch, but then no batches follow.)
    """
    array = as_u8(data)
    position = _find_batch(array, *known)
    if position < 0:
        return None
    found = scan_segment(
        array,
        base_offset=base_offset,
        is_last=is_last,
        next_offset_min=known[0],
        from_position=position,
        let_go=let_go,
    )
    offsets = found.batches.base_offset
    follows = bool(len(offsets)) and int(offsets[0]) == known[0] and (len(offsets) == 1 or offsets[1] == known[1] + 1)
    return found if follows and not found.findings and found.end_position == len(array) else None


def _find_batch(array: U8, base_offset: int, last_offset: int) -> int:
    """The position near the end of a segment of a batch with these offsets and a valid checksum; -1 if there is
    none."""
    end = len(array)
    farthest = max(0, end - max(LOOK_BACK_BYTES, end // LOOK_BACK_PART))
    sought = base_offset.to_bytes(8, "big")
    lowest, candidate_count = end, 0
    while lowest > farthest:
        # search backwards in steps, so that unneeded parts are not read from the disk
        looked_at, lowest = lowest, max(farthest, end - max(LOOK_BACK_BYTES, 2 * (end - lowest)))
        window = array[lowest:end].tobytes()
        at = looked_at - lowest
        while candidate_count < CANDIDATES_MAX and (at := window.rfind(sought, 0, at + len(sought) - 1)) >= 0:
            candidate_count += 1
            size = kernels.LOG_OVERHEAD_BYTES + int.from_bytes(window[at + 8 : at + 12], "big")
            batch = window[at : at + size]
            if len(batch) == size and _is_batch(batch, base_offset, last_offset):
                return lowest + at
    return -1


def _is_batch(batch: bytes, base_offset: int, last_offset: int) -> bool:
    columns, is_true, *_ = kernels.frame_batches(as_u8(batch), 0, len(batch))
    found = BatchColumns(*columns)
    offsets = list(zip(found.base_offset.tolist(), found.last_offset.tolist(), strict=True))
    return bool(offsets == [(base_offset, last_offset)] and is_true[0] and batch_crc(batch) == stored_crc(batch))


_COLUMN_NAMES: Final = tuple(field.name for field in fields(BatchColumns))


def _rows(batches: BatchColumns, count: int) -> BatchColumns:
    return BatchColumns(*(getattr(batches, name)[:count] for name in _COLUMN_NAMES))


def _concatenated(parts: list[BatchColumns]) -> BatchColumns:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        columns, *_ = kernels.frame_batches(np.empty(0, np.uint8), 0, 0)
        return BatchColumns(*columns)
    return BatchColumns(*(np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMN_NAMES))


def _is_torn_neighbour(array: U8, position: int, stop: int, offset_min: int, offset_max: int) -> bool:
    """Whether the bytes at `position` are the head of a torn batch that continues at the end of the one before."""
    if stop != kernels.STOP_TRUNCATED:
        return False
    head = array[position : position + 8].tobytes()
    return len(head) < 8 or offset_min <= int.from_bytes(head, "big", signed=True) <= offset_max


def _resync(array: U8, position: int, end: int, offset_min: int, offset_max: int, budget: _Budget) -> int:
    """The next position of a batch with a plausible header and a valid checksum, else the end of the file's data."""
    while (position := kernels.next_header(array, position, end, offset_min, offset_max)) >= 0:
        size = kernels.LOG_OVERHEAD_BYTES + int.from_bytes(array[position + 8 : position + 12].tobytes(), "big")
        budget.bytes_left -= size
        if budget.bytes_left < 0:
            break
        batch = array[position : position + size].tobytes()
        if batch_crc(batch) == stored_crc(batch):
            return position
        position += 1
    return end


def _stop_error(array: U8, position: int, next_position: int, stop: int, is_last: bool) -> DecodeError:
    size = next_position - position
    if stop == kernels.STOP_TRUNCATED and next_position == len(array):
        where = f"the last segment: {TORN_TAIL}" if is_last else "a segment which is not the last"
        return TruncatedBatch(f"{size} bytes at the end of {where}")
    if kernels.skip_zeros(array, position, next_position) - position >= kernels.HEADER_BYTES_MIN:
        return InvalidBatch(f"zeros followed by data, {size} bytes")
    reason = {
        kernels.STOP_TRUNCATED: "a length which runs past the end of the file",
        kernels.STOP_LENGTH: "a length which no batch can have",
        kernels.STOP_MAGIC: "an unknown magic",
        kernels.STOP_OFFSET: "offsets out of order",
        kernels.STOP_HEADER: "a header which cannot be true",
        STOP_UNCONFIRMED: "a wrong checksum, and no neighbour agrees with the length",
    }[stop]
    return InvalidBatch(f"{reason}, {size} bytes skipped")


def _range_finding(array: U8, start: int, stop: int, reason: int, is_last: bool) -> Finding:
    error = _stop_error(array, start, stop, reason, is_last)
    return Finding(
        stage="FILE",
        code=error.code,
        message=error.message,
        byte_position=start,
        payload=array[start : min(stop, start + QUARANTINE_BYTES_MAX)].tobytes(),
    )


def _complete_legacy(array: U8, batches: BatchColumns, crc_valid: BoolArray) -> None:
    """Set base offset and record count of compressed legacy wrappers, whose headers do not have them.

    A wrapper whose messages begin before the end of the previous batch keeps its own offset: the columns stay in log
    order.
    """
    for row in np.flatnonzero((batches.magic < 2) & (batches.codec != 0) & crc_valid).tolist():
        start = int(batches.position[row])
        try:
            entry = decode_entry(array[start : start + int(batches.size[row])].tobytes())
        except DecodeError:
            continue  # decode_chunk reports the finding; here the wrapper stays one batch
        first_offset = entry.messages[0].offset
        batches.record_count[row] = len(entry.messages)
        if first_offset > (batches.last_offset[row - 1] if row else -1):
            batches.base_offset[row] = first_offset
