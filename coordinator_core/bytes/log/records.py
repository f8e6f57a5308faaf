"""From whole batches to record columns; also a plain reference reader that the compiled one is tested against.

`decode_chunk` reads consecutive batches of one log partition as bronze stores them; gaps in offsets are allowed. Each
batch that cannot be read becomes a finding, and the others are read.
"""

import struct
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Final, Literal

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from coordinator_core.bytes.log import kernels
from coordinator_core.bytes.log.batch import CRC_START_V2, BatchHeader, Record, batch_crc, parse_header, verify_crc
from coordinator_core.bytes.log.chunk import (
    CONTROL_NONE,
    CONTROL_UNKNOWN,
    I64,
    U8,
    BatchColumns,
    BoolArray,
    Finding,
    RecordChunk,
    RecordColumns,
)
from coordinator_core.bytes.log.compression import decompress
from coordinator_core.bytes.log.crc32c import HAS_INSTRUCTION, crc32c
from coordinator_core.bytes.log.kernels import HEADER_BYTES_V2
from coordinator_core.bytes.log.legacy import decode_entry, records_of
from coordinator_core.errors import (
    BufferUnderflow,
    DecodeError,
    InvalidBatch,
    InvalidRecord,
    LengthOutOfBounds,
    TruncatedBatch,
    VarintTooLong,
)
from coordinator_core.limits import BATCH_DECOMPRESSED_BYTES_MAX, QUARANTINE_BYTES_MAX

CHUNK_DECOMPRESSED_BYTES_MAX: Final = 2 * 1024 * 1024 * 1024
"""Bound on all decompressed sections of one chunk: a chunk of 64 MiB at a ratio of 32, far above what logs reach.
Without it, many small bombs, each below the limit of a batch, would have the effect of a large one."""

_RECORD_ERRORS: Final[dict[int, tuple[type[DecodeError], str]]] = {
    kernels.RECORDS_UNDERFLOW: (BufferUnderflow, "a record ends inside a field"),
    kernels.RECORDS_VARINT: (VarintTooLong, "a variable-length integer in a record is too long"),
    kernels.RECORDS_LENGTH: (LengthOutOfBounds, "a length in a record passes what is left"),
    kernels.RECORDS_FIELDS: (InvalidRecord, "a record's offset or size cannot be true"),
    kernels.RECORDS_REMAIN: (InvalidRecord, "bytes remain behind the last record"),
    kernels.RECORDS_COUNT: (LengthOutOfBounds, "more records than bytes can hold"),
}

_STOP_ERRORS: Final[dict[int, tuple[type[DecodeError], str]]] = {
    kernels.STOP_TRUNCATED: (TruncatedBatch, "the bytes end inside a batch"),
    kernels.STOP_LENGTH: (InvalidBatch, "a length which no batch can have"),
    kernels.STOP_MAGIC: (InvalidBatch, "an unknown magic"),
}


def as_u8(data: bytes | bytearray | memoryview | U8) -> U8:
    """The buffer as a one-dimensional uint8 array, without a copy."""
    if isinstance(data, np.ndarray):
        return data
    return np.frombuffer(data, np.uint8)


def crc_valid_batches(data: U8, batches: BatchColumns) -> BoolArray:
    """Whether each batch's checksum matches its bytes: CRC-32C for magic 2, CRC-32 for 0 and 1."""
    data = kernels.read_only(data)
    is_v2 = batches.magic == 2
    if HAS_INSTRUCTION and is_v2.all():
        return _are_crcs_valid(data, batches.position, batches.size)
    expected = checksums_at(data, batches.position, batches.magic)
    positions, ends = batches.position.tolist(), (batches.position + batches.size).tolist()
    if is_v2.all():
        value = google_crc32c.value
        actual = [value(data[start + CRC_START_V2 : end]) for start, end in zip(positions, ends, strict=True)]
    else:
        actual = [batch_crc(data[start:end].tobytes()) for start, end in zip(positions, ends, strict=True)]
    result: BoolArray = np.array(actual, np.int64) == expected
    return result


@kernels.compiled
def _are_crcs_valid(data: U8, positions: I64, sizes: I64) -> BoolArray:
    """`crc_valid_batches` for batches of magic 2."""
    is_valid = np.empty(len(positions), np.bool_)
    for row in range(len(positions)):
        position = positions[row]
        stored = kernels.be32(data, position + 17) & 0xFFFFFFFF
        is_valid[row] = crc32c(data, position + CRC_START_V2, position + sizes[row]) == stored
    return is_valid


def checksums_at(data: U8, positions: I64, magic: NDArray[np.int8]) -> I64:
    """The checksums in the headers of batches."""
    written = np.zeros(len(positions), np.int64)
    at = positions + np.where(magic >= 2, 17, 12)
    for shift in range(4):
        written = (written << 8) | data[at + shift]
    return written


def frame_chunk(data: bytes | bytearray | memoryview | U8) -> tuple[BatchColumns, tuple[Finding, ...]]:
    """Headers only: the batch columns of consecutive complete batches, and at most one finding where they stop."""
    array = as_u8(data)
    columns, _, stop_position, stop = kernels.frame_batches(array, 0, len(array))
    return BatchColumns(*columns), _stop_findings(array, stop_position, stop)


def decode_chunk(
    data: bytes | bytearray | memoryview | U8,
    *,
    bytes_max: int = BATCH_DECOMPRESSED_BYTES_MAX,
    chunk_bytes_max: int = CHUNK_DECOMPRESSED_BYTES_MAX,
    crc: Literal["verify", "skip"] = "verify",
) -> RecordChunk:
    """The records of complete consecutive batches of one log partition, as columns.

    No bytes make it raise: a batch that cannot be read is in `batches` without records and has a finding (stage BATCH
    for header, checksum and compression, RECORD for errors inside), and bytes that are not a batch end the chunk with a
    finding of stage FILE. Without compressed batches the chunk's `data` is `data` itself. `bytes_max` bounds one batch
    after decompression, `chunk_bytes_max` the whole of `data`.
    """
    array = as_u8(data)
    columns, is_true, stop_position, stop = kernels.frame_batches(array, 0, len(array))
    batches = BatchColumns(*columns)
    findings: list[Finding] = []
    is_readable = is_true.copy()
    for row in np.flatnonzero(~is_true).tolist():
        findings.append(_header_finding(array, batches, row))
    if crc == "verify" and len(batches):
        is_crc_valid = crc_valid_batches(array, batches)
        for row in np.flatnonzero(is_true & ~is_crc_valid).tolist():
            findings.append(crc_finding(array, batches, row))
        is_readable &= is_crc_valid
    sections = _Sections(array, batches, is_readable, bytes_max, chunk_bytes_max, findings)
    arrays, statuses, fault_positions = kernels.frame_records(
        kernels.read_only(sections.data),
        sections.rows,
        sections.starts,
        sections.ends,
        batches.base_offset,
        batches.last_offset,
        batches.base_timestamp_ms,
        batches.max_timestamp_ms,
        batches.is_log_append_time,
        batches.record_count,
    )
    for item in np.flatnonzero(statuses).tolist():
        row = int(sections.rows[item])
        kind, message = _RECORD_ERRORS[int(statuses[item])]
        place = int(fault_positions[item] - sections.starts[item])
        findings.append(
            batch_finding(array, batches, row, "RECORD", kind(f"{message}, at byte {place} of the records"))
        )
    records = RecordColumns(*arrays)
    if sections.legacy:
        records = _with_legacy(records, sections)
    records = _with_control_types(array, sections.data, batches, records, findings)
    findings.sort(key=_finding_position)
    findings.extend(_stop_findings(array, stop_position, stop))
    return RecordChunk(sections.data, batches, records, tuple(findings))


def _finding_position(finding: Finding) -> int:
    return -1 if finding.byte_position is None else finding.byte_position


class _Sections:
    """The record sections of readable batches in one buffer: the input itself, or decompressed sections and copies."""

    def __init__(
        self,
        array: U8,
        batches: BatchColumns,
        is_readable: BoolArray,
        bytes_max: int,
        chunk_bytes_max: int,
        findings: list[Finding],
    ) -> None:
        self.data = array
        self.legacy: list[tuple[int, int, int, int, int, int, int]] = []
        """The rows of `RecordColumns` from batches of magic 0 and 1."""
        is_v2 = batches.magic == 2
        rows = np.flatnonzero(is_readable & is_v2)
        needs_work = is_readable & ((is_v2 & (batches.codec != 0) & (batches.record_count > 0)) | ~is_v2)
        if not needs_work.any():
            self.rows: I64 = rows
            self.starts: I64 = batches.position[rows] + HEADER_BYTES_V2
            self.ends: I64 = (batches.position + batches.size)[rows]
            return
        pieces: list[U8] = []
        used: list[tuple[int, int, int]] = []
        position = 0
        for row in np.flatnonzero(is_readable).tolist():
            start = int(batches.position[row])
            end = start + int(batches.size[row])
            try:
                bytes_left = max(min(bytes_max, chunk_bytes_max - position), 0)
                if batches.magic[row] < 2:
                    piece = self._legacy_piece(array[start:end].tobytes(), batches, row, position, bytes_left)
                elif needs_work[row]:
                    section = array[start + HEADER_BYTES_V2 : end].tobytes()
                    piece = as_u8(decompress(int(batches.codec[row]), section, bytes_max=bytes_left))
                    used.append((row, position, position + len(piece)))
                else:
                    piece = array[start + HEADER_BYTES_V2 : end]
                    used.append((row, position, position + len(piece)))
            except DecodeError as error:
                stage = "RECORD" if isinstance(error, InvalidRecord) else "BATCH"
                findings.append(batch_finding(array, batches, row, stage, error))
                continue
            pieces.append(piece)
            position += len(piece)
        self.data = np.concatenate(pieces) if pieces else np.empty(0, np.uint8)
        self.rows = np.array([row for row, _, _ in used], np.int64)
        self.starts = np.array([start for _, start, _ in used], np.int64)
        self.ends = np.array([end for _, _, end in used], np.int64)

    def _legacy_piece(self, entry_bytes: bytes, batches: BatchColumns, row: int, position: int, bytes_max: int) -> U8:
        entry = decode_entry(entry_bytes, bytes_max=bytes_max)
        # fields that the header of a wrapper does not have
        batches.base_offset[row] = entry.messages[0].offset
        batches.record_count[row] = len(entry.messages)
        for message in entry.messages:
            self.legacy.append(
                (
                    row,
                    message.offset,
                    message.timestamp_ms,
                    position + message.key_position,
                    message.key_length,
                    position + message.value_position,
                    message.value_length,
                )
            )
        return as_u8(entry.data)


def _with_legacy(records: RecordColumns, sections: _Sections) -> RecordColumns:
    table = np.array(sections.legacy, np.int64).T
    columns: list[Any] = [getattr(records, field.name) for field in fields(RecordColumns)]
    both = RecordColumns(
        *(np.concatenate((of, more.astype(of.dtype))) for of, more in zip(columns, table, strict=True))
    )
    return both.take(np.argsort(both.batch_index, kind="stable"))


def _with_control_types(
    array: U8, data: U8, batches: BatchColumns, records: RecordColumns, findings: list[Finding]
) -> RecordColumns:
    """Set the control type from each control batch's first key. Kafka rejects keys below 4 bytes, and so does this."""
    control_rows = np.flatnonzero(batches.is_control)
    if not len(control_rows):
        return records
    firsts = np.searchsorted(records.batch_index, control_rows)
    unreadable: list[int] = []
    for row, first in zip(control_rows.tolist(), firsts.tolist(), strict=True):
        if first == len(records) or records.batch_index[first] != row:
            if batches.record_count[row] == 0:
                batches.control_type[row] = CONTROL_NONE
            continue
        key_start = int(records.key_position[first])
        key = data[key_start : key_start + 4].tobytes()
        if records.key_length[first] < 4 or key[0] & 0x80:
            unreadable.append(row)
            batches.control_type[row] = CONTROL_UNKNOWN
            error = InvalidRecord("a control record's key names no type")
            findings.append(batch_finding(array, batches, row, "RECORD", error))
            continue
        (control_type,) = struct.unpack_from(">h", key, 2)
        batches.control_type[row] = control_type if 0 <= control_type < CONTROL_UNKNOWN else CONTROL_UNKNOWN
    if not unreadable:
        return records
    is_kept = ~np.isin(records.batch_index, unreadable)
    return records.take(is_kept)


def batch_finding(array: U8, batches: BatchColumns, row: int, stage: str, error: DecodeError) -> Finding:
    """A finding for one framed batch, with its first bytes."""
    position = int(batches.position[row])
    size = min(int(batches.size[row]), QUARANTINE_BYTES_MAX)
    return Finding(
        stage=stage,
        code=error.code,
        message=f"{error.message} (batch of {int(batches.size[row])} bytes)",
        base_offset=int(batches.base_offset[row]),
        byte_position=position,
        payload=array[position : position + size].tobytes(),
    )


def crc_finding(array: U8, batches: BatchColumns, row: int) -> Finding:
    """A finding for a batch whose checksum does not match its bytes."""
    position = int(batches.position[row])
    batch = array[position : position + int(batches.size[row])].tobytes()
    try:
        verify_crc(batch)
    except DecodeError as error:
        return batch_finding(array, batches, row, "BATCH", error)
    raise AssertionError("the checksum is valid")


def _header_finding(array: U8, batches: BatchColumns, row: int) -> Finding:
    position = int(batches.position[row])
    batch = array[position : position + int(batches.size[row])].tobytes()
    try:
        parse_header(batch)
    except DecodeError as error:
        return batch_finding(array, batches, row, "BATCH", error)
    raise AssertionError("the header can be true")


def _stop_findings(array: U8, stop_position: int, stop: int) -> tuple[Finding, ...]:
    if stop == kernels.STOP_END:
        return ()
    kind, message = _STOP_ERRORS[stop]
    size = len(array) - stop_position
    return (
        Finding(
            stage="FILE",
            code=kind.code,
            message=f"{message}; {size} bytes from byte {stop_position} on are no whole batch",
            byte_position=stop_position,
            payload=array[stop_position : stop_position + min(size, QUARANTINE_BYTES_MAX)].tobytes(),
        ),
    )


# The reference reader reads the format field by field. Tests compare the compiled loops with it.


class _Cursor:
    def __init__(self, data: bytes, position: int, end: int) -> None:
        self.data = data
        self.position = position
        self.end = end

    def _base_128(self, bytes_max: int, bits: int) -> int:
        start = self.position
        value = 0
        for index in range(bytes_max):
            if self.position >= self.end:
                raise BufferUnderflow("a record ends inside a field", byte_position=start)
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                value &= (1 << bits) - 1
                return (value >> 1) ^ -(value & 1)
        raise VarintTooLong("a variable-length integer in a record is too long", byte_position=start)

    def varint(self) -> int:
        return self._base_128(5, 32)

    def varlong(self) -> int:
        return self._base_128(10, 64)

    def sized(self) -> bytes | None:
        start = self.position
        length = self.varint()
        if length < 0:
            return None
        if length > self.end - self.position:
            raise LengthOutOfBounds("a length in a record passes what is left", byte_position=start)
        value = self.data[self.position : self.position + length]
        self.position += length
        return value


def iter_records(
    batch: bytes, *, bytes_max: int = BATCH_DECOMPRESSED_BYTES_MAX, is_crc_checked: bool = True
) -> Iterator[Record]:
    """The records of one complete batch of any magic, including control batches, read field by field in plain Python.

    Raises subclasses of DecodeError, always before the first record is yielded. Byte positions of errors inside the
    records count from the start of the (decompressed) record section.
    """
    header = parse_header(batch)
    if header.size != len(batch):
        raise InvalidBatch("bytes remain behind the batch", byte_position=header.size)
    if is_crc_checked:
        verify_crc(batch)
    if header.magic < 2:
        yield from records_of(decode_entry(batch, bytes_max=bytes_max))
        return
    section = batch[HEADER_BYTES_V2:]
    if header.record_count > 0:
        section = decompress(header.codec_id, section, bytes_max=bytes_max)
    records = list(_section_records(header, section))
    if header.is_control and records:
        key = records[0].key
        if key is None or len(key) < 4 or key[0] & 0x80:
            raise InvalidRecord("a control record's key names no type")
    yield from records


def _section_records(header: BatchHeader, section: bytes) -> Iterator[Record]:
    if header.record_count > len(section) // kernels.RECORD_BYTES_MIN:
        raise LengthOutOfBounds("more records than bytes can hold", byte_position=0)
    cursor = _Cursor(section, 0, len(section))
    delta_min = 0
    for _ in range(header.record_count):
        start = cursor.position
        length = cursor.varint()
        if not kernels.RECORD_BYTES_MIN - 1 <= length <= len(section) - cursor.position:
            raise LengthOutOfBounds("a length in a record passes what is left", byte_position=start)
        body = _Cursor(section, cursor.position + 1, cursor.position + length)
        timestamp_delta = body.varlong()
        start = body.position
        offset_delta = body.varint()
        if not delta_min <= offset_delta <= header.last_offset - header.base_offset:
            raise InvalidRecord("a record's offset or size cannot be true", byte_position=start)
        delta_min = offset_delta + 1
        key = body.sized()
        value = body.sized()
        start = body.position
        header_count = body.varint()
        if not 0 <= header_count <= body.end - body.position:
            raise LengthOutOfBounds("a length in a record passes what is left", byte_position=start)
        headers: list[tuple[str, bytes | None]] = []
        for _ in range(header_count):
            start = body.position
            name = body.sized()
            if name is None:
                raise LengthOutOfBounds("a length in a record passes what is left", byte_position=start)
            headers.append((name.decode(errors="replace"), body.sized()))
        if body.position != body.end:
            raise InvalidRecord("a record's offset or size cannot be true", byte_position=body.position)
        cursor.position = body.end
        timestamp_ms = header.max_timestamp_ms
        if not header.is_log_append_time:
            # the sum overflows at 64 bits, in Java and in the compiled loop
            timestamp_ms = (header.base_timestamp_ms + timestamp_delta + 2**63) % 2**64 - 2**63
        yield Record(header.base_offset + offset_delta, timestamp_ms, key, value, tuple(headers))
    if cursor.position != len(section):
        raise InvalidRecord("bytes remain behind the last record", byte_position=cursor.position)


def missing_offsets(batch: bytes) -> tuple[tuple[int, int], ...]:
    """Ranges of offsets, both ends inclusive, that a batch of magic 2 spans without records.

    Compaction and aborted transactions leave them. Raises subclasses of DecodeError for a batch that cannot be read.
    """
    header = parse_header(batch)
    offset_count = header.last_offset - header.base_offset + 1
    if header.magic == 2 and header.record_count == offset_count:
        return ()
    holes: list[tuple[int, int]] = []
    next_offset = header.base_offset
    for record in iter_records(batch):
        if record.offset > next_offset:
            holes.append((next_offset, record.offset - 1))
        next_offset = record.offset + 1
    if next_offset <= header.last_offset:
        holes.append((next_offset, header.last_offset))
    return tuple(holes)
