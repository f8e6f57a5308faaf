"""Rebuilds record batches from what kafka-dump-log prints of segments.

  kafka-dump-log --files .../__consumer_offsets-0/00000000000000000000.log --print-data-log --offsets-decoder

A header line has all fields of a batch but the base timestamp. That is the first record's (or the delete horizon, which
the line has); markers are printed in full. So a batch that was not compressed is rebuilt byte for byte, and the
checksum in its header line proves it: `DumpedBatch.is_exact`. A batch that was compressed is rebuilt without
compression. Records that the tool could not decode, or printed without a decoder, are reported as faults.

Older tools print less. Before 3.8 keys and values are text (`dump_log_text.py`), for transactions before 4.0. A text
with a line break continues on the next line. Before 2.4 tombstones are printed without their key. Before 2.2 record
lines have no header line before them: the lines of one position are one batch, whose leader epoch is unknown.

Source: DumpLogSegments (dumpLog, printBatchLevel, printRecordMetadata, printRecordContents, printControlRecord), and
the output of the tools of 0.9.0.1, 0.10.2.2, 0.11.0.3, 1.1.1, 2.0.1 to 2.4.1, 2.8.2, 3.5.2, 3.8.1 and later.
"""

import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, NamedTuple

from coordinator_core.codec import encode
from coordinator_core.dump_log_text import DELETE, text_record
from coordinator_core.errors import (
    CrcMismatch,
    EncodeError,
    InvalidBatch,
    LaterKafka,
    TruncatedBatch,
    UnprintedFields,
    UnprintedRecord,
    UnreadMetadataType,
)
from coordinator_core.formatter_output import (
    ASSIGNMENT_VERSIONS,
    METADATA_TOPIC,
    encode_formatter_json,
    encode_metadata_json,
    has_client_protocols,
    parse_json_at,
)
from coordinator_core.kafka_json import from_json
from coordinator_core.log.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, Record, build_batch, stored_crc
from coordinator_core.log.legacy import build_message
from coordinator_core.log.segment import parse_partition_folder
from schemas.control_records import LEADER_CHANGE_MESSAGE
from schemas.registry import REGISTRY

DUMPED_BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bound on the text of one batch's record lines. A batch has at most max.message.bytes (1 MiB), and JSON takes a few
times as many bytes; a text far above that is not from kafka-dump-log."""

NOT_PRINTED: Final = "RECORD_NOT_PRINTED"
"""Code of a record whose line has no readable key and value."""
NO_PARTITION: Final = "no line says which log partition this is"
NO_OFFSET_AND_TIME: Final = "the record is printed without offset and time"
UNKNOWN_LINE: Final = "UNKNOWN_LINE"
"""Code of a line that kafka-dump-log does not print."""

PRINT_DATA: Final = "run kafka-dump-log with --print-data-log and the decoder of the topic"
KEEP_BYTES: Final = (
    "a later Kafka wrote it: read the segment files themselves (--segments), which keeps its bytes, and upgrade "
    "Groupledger"
)
PRINT_ALL: Final = (
    "run kafka-dump-log of Kafka 4.0 or later on the same segment files, which prints all of it, or read the files "
    "themselves (--segments)"
)
PRINT_DEEP: Final = (
    "kafka-dump-log before Kafka 2.2 prints records with --deep-iteration and --print-data-log alone; better, "
    + PRINT_ALL
)


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """A batch, rebuilt from its lines."""

    topic: str
    partition: int
    base_offset: int
    last_offset: int
    data: bytes
    is_exact: bool
    """The batch equals the original byte for byte: its checksum is the one that the tool printed."""
    record_count: int
    """Records that were rebuilt."""
    unread_count: int
    """Records of the metadata log that are left out, because this project does not read their types."""
    left_out: tuple[tuple[str, int], ...] = ()
    """Fields of a later Kafka that are left out: name, and number of records that have it."""
    text_count: int = 0
    """Records that were printed as text, which lacks some fields."""


@dataclass(frozen=True, slots=True)
class DumpedFault:
    """A part of a dump that could not become part of a batch."""

    code: str
    message: str
    line_number: int
    """Counts from 1."""
    topic: str | None
    partition: int | None
    offset: int | None = None
    text: str = ""
    group_id: str | None = None
    """The group of the record, where the line names it."""


@dataclass(frozen=True, slots=True)
class DumpedGap:
    """Offsets of a batch whose records are not printed. Another dump, or the log itself, may have them."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int


Dumped = DumpedBatch | DumpedFault | DumpedGap


def read_dump_log_output(lines: Iterable[tuple[int, str]], *, log: tuple[str, int] | None = None) -> Iterator[Dumped]:
    """Batches and faults from the numbered lines of a dump.

    `log`: topic and partition of the lines before the first `Dumping .../<topic>-<partition>/...`, or of a file that
    such a line names without its folder.
    """
    reader = _Reader(log)
    for line_number, line in lines:
        yield from reader.feed(line_number, line)
    yield from reader.flush()


@dataclass(slots=True)
class _Batch:
    """A batch whose lines are being read."""

    line_number: int
    header: Mapping[str, str]
    records: list[tuple[Record, Any, Any]] = field(default_factory=list)
    """Each record, with the printed key and value it was made from."""
    text_bytes: int = 0
    unread_offsets: list[int] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """Fields of a later Kafka, and how many records have each."""
    fault_count: int = 0
    """Record lines from which no record could be made."""
    has_next_lines: bool = True
    """False after a fault that makes the rest of the batch unusable."""
    is_of_lines: bool = False
    """The batch has record lines only, no header line: `header` comes from the first record line."""
    text_count: int = 0
    """Records that were printed as text."""


@dataclass(slots=True)
class _RecordLine:
    """A record line whose text may continue on the next lines."""

    fields: "_Fields"
    line_number: int
    text: str
    more: list[tuple[int, str]] = field(default_factory=list)
    """The lines that may belong to it."""
    more_bytes: int = 0

    def takes(self, line_number: int, line: str) -> bool:
        """Add a line that may belong to the record. False if it would exceed the bound."""
        self.more_bytes += len(line) + 1
        if self.more_bytes > DUMPED_BATCH_BYTES_MAX:
            return False
        self.more.append((line_number, line))
        return True

    def whole(self) -> str:
        """All lines as one text. The reader skips empty lines, so they are restored from the line numbers."""
        parts, last = [self.text], self.line_number
        for line_number, line in self.more:
            parts += ["\n" * (line_number - last), line]
            last = line_number
        return "".join(parts)


class _Fields(NamedTuple):
    offset: int
    timestamp_ms: int
    key_size: int
    value_size: int
    header_keys: str
    end: int
    """Where the rest of the line begins: key and payload, or a marker."""


_PAIR: Final = re.compile(r"(\w+): (\S+)")
_DUMPING: Final = "Dumping "
_HEADER: Final = "baseOffset: "
_LEGACY_HEADER: Final = re.compile(r"offset: -?[0-9]+ position: [0-9]+ \w+: -?[0-9]+ size: ", re.ASCII)
_RECORD_ALONE: Final = re.compile(
    r"offset: -?[0-9]+ position: [0-9]+ (?:\w+: -?[0-9]+ )?isvalid: \w+ (?:keysize|payloadsize): ", re.ASCII
)
"""A record line of tools that print no header line before it."""
_SHALLOW_HEADER: Final = re.compile(r"offset: -?[0-9]+ position: [0-9]+ \w+: -?[0-9]+ isvalid: \w+ size: ", re.ASCII)
"""A batch of magic 0 or 1, as printed by tools that print no records with it."""
_LOG_SUFFIX: Final = ".log"
_IGNORED: Final = (
    "Log starting offset: ",
    "Starting offset: ",
    "KRaft bootstrap snapshot",
    "Snapshot end offset: ",
    "Non-consecutive offsets in ",
)
_NON_CONSECUTIVE: Final = re.compile(r"  [0-9]+ is followed by [0-9]+", re.ASCII)
_INVALID_BYTES: Final = re.compile(r"Found [0-9]+ invalid bytes at the end of ", re.ASCII)
_RECORD: Final = re.compile(
    r"\| offset: (?P<offset>-?[0-9]+) (?P<kind>CreateTime|LogAppendTime|NoTimestampType): (?P<timestamp>-?[0-9]+)"
    r" keySize: (?P<key_size>-?[0-9]+) valueSize: (?P<value_size>-?[0-9]+)"
    r"(?: sequence: -?[0-9]+ headerKeys: \[(?P<headers>[^]]*)\])?(?: isValid: \w+ crc: [0-9]+)?",
    re.ASCII,
)
_FIELD: Final = re.compile(r" ?(\w+): (\[[^]]*\]|\S+)", re.ASCII)
_CONTENTS: Final = frozenset(
    {"key", "payload", "endTxnMarker", "controlType", "LeaderChange", "SnapshotHeader", "SnapshotFooter"}
)
_TIMESTAMP_TYPES: Final = ("createtime", "logappendtime", "notimestamptype")
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_MARKER: Final = re.compile(r" endTxnMarker: (COMMIT|ABORT) coordinatorEpoch: (-?[0-9]{1,10})", re.ASCII)
_LEADER_CHANGE: Final = " LeaderChange: "
_HORIZON: Final = re.compile(r"OptionalLong\[([0-9]+)\]", re.ASCII)
_KEY: Final = " key: "
_PAYLOAD: Final = " payload: "
_LEGACY_MAGIC: Final = ("0", "1")
_BASE_OFFSET: Final = re.compile(r"[0-9]{20}", re.ASCII)
_CONTROL: Final = (" endTxnMarker: ", " controlType: ")
_NOT_COMPRESSED: Final = ("none", "nocompressioncodec")
_NO_CRC: Final = -1
_TYPED_KEY: Final = ' key: {"type":'
"""How keys begin where the tool prints JSON."""

_OFFSET_MAX: Final = 2**63 - 1
_NOT_PRINTED: Final = (None, None)
_LEADER_CHANGE_KEY: Final = struct.pack(">hh", 0, 2)


class _Reader:
    def __init__(self, log: tuple[str, int] | None) -> None:
        self._default_log = log
        self._log = log
        self._is_log_file = True
        self._batch: _Batch | None = None
        self._open: _RecordLine | None = None
        self._next_offset: int | None = None
        """The offset after the last one printed from the file."""

    def feed(self, line_number: int, line: str) -> Iterator[Dumped]:
        if line.startswith("|"):
            yield from self._close_record()
            if self._is_log_file:
                yield from self._record(line_number, line)
            return
        if self._is_log_file and _RECORD_ALONE.match(line):
            yield from self._close_record()
            yield from self._record_alone(line_number, line)
            return
        if self._open is not None and not _is_known(line) and self._open.takes(line_number, line):
            return
        yield from self.flush()
        if line.startswith(_DUMPING):
            yield from self._dumping(line_number, line)
        elif not self._is_log_file or not line or line.startswith(_IGNORED) or _NON_CONSECUTIVE.fullmatch(line):
            return
        elif _is_header(line):
            yield from self._begin(_Batch(line_number, dict(_PAIR.findall(line))), line)
        elif _INVALID_BYTES.match(line):
            yield self._fault(TruncatedBatch.code, line, line_number, line)
        else:
            yield self._fault(UNKNOWN_LINE, "not a line of kafka-dump-log", line_number, line)

    def flush(self) -> Iterator[Dumped]:
        """Finish the batch whose lines have all been read."""
        yield from self._close_record()
        batch, self._batch = self._batch, None
        if batch is None or not batch.has_next_lines or (batch.is_of_lines and not batch.records):
            return
        try:
            unprinted_count = self._unprinted_count(batch)
            # a message of magic 0 or 1 cannot be built without its record
            built = [self._built(it) for it in _parts(batch)] if batch.records or "baseOffset" in batch.header else []
            if unprinted_count:
                yield from self._unreported(batch, unprinted_count)
            if batch.records or not unprinted_count:
                yield from built
            if not batch.is_of_lines:
                self._next_offset = int(batch.header.get("lastOffset", batch.header.get("offset", ""))) + 1
        except (EncodeError, ValueError, KeyError) as error:
            reason = str(error) if isinstance(error, EncodeError) else "fields of its header are missing or no numbers"
            yield self._fault(InvalidBatch.code, f"a batch that cannot be: {reason}", batch.line_number)

    def _begin(self, batch: _Batch, line: str) -> Iterator[Dumped]:
        self._batch = batch
        if self._log is None:
            batch.has_next_lines = False
            message = f"{NO_PARTITION}: dump files in their folders, <topic>-<partition>"
            yield self._fault(NOT_PRINTED, message, batch.line_number, line)

    def _unprinted_count(self, batch: _Batch) -> int:
        """How many records of a batch are not printed: by the count in its header, else by the faults of its lines."""
        if batch.header.get("isvalid") != "true" or batch.is_of_lines:
            return 0  # its header cannot be trusted; each of its lines is a record or a fault
        printed_count = len(batch.records) + len(batch.unread_offsets)
        count = batch.header.get("count")
        if count is None:
            return batch.fault_count or int(not printed_count)
        return max(batch.fault_count, int(count[:11]) - printed_count)

    def _unreported(self, batch: _Batch, count: int) -> Iterator[Dumped]:
        """Report the offsets of a batch that are not printed, and a fault if no line has reported them."""
        assert self._log is not None
        header = batch.header
        last = int(header.get("lastOffset", header.get("offset", "")))
        first = int(header["baseOffset"]) if "baseOffset" in header else self._first_inside(batch, last)
        if not 0 <= first <= last <= _OFFSET_MAX:
            raise EncodeError("offsets which no batch can have")
        if count > batch.fault_count:
            message = (
                f"{count - batch.fault_count} records of the batch are not printed: {PRINT_DATA}"
                if "count" in header or _has_own_line(header)
                else f"records of the batch are not printed: {PRINT_DEEP}"
            )
            yield self._fault(NOT_PRINTED, message, batch.line_number, offset=first)
        for known in sorted((*(record.offset for record, _, _ in batch.records), *batch.unread_offsets, last + 1)):
            if first < known:
                yield DumpedGap(*self._log, first, known - 1)
            first = known + 1

    def _first_inside(self, batch: _Batch, last: int) -> int:
        """The first offset that a message of magic 0 or 1 may contain: a compressed one contains all up to its own."""
        if batch.header.get("compresscodec", "").lower() in _NOT_COMPRESSED or self._next_offset is None:
            return last
        return min(self._next_offset, last)

    def _dumping(self, line_number: int, line: str) -> Iterator[Dumped]:
        path = line.removeprefix(_DUMPING).strip().replace("\\", "/")
        self._is_log_file = path.endswith(_LOG_SUFFIX)
        folder, _, name = path.rpartition("/")
        self._log = parse_partition_folder(folder.rpartition("/")[2]) or self._default_log
        stem = name.removesuffix(_LOG_SUFFIX)
        self._next_offset = int(stem) if _BASE_OFFSET.fullmatch(stem) else None
        if not self._is_log_file and path.endswith(".checkpoint"):
            yield self._fault(
                UNKNOWN_LINE, "snapshots of the metadata log are not read, only its segments", line_number
            )

    def _record_alone(self, line_number: int, line: str) -> Iterator[Dumped]:
        """A record line without a header line: the record lines of one position are one batch."""
        fields = _fields_of(line)
        if fields is None:
            yield from self.flush()
            yield self._fault(NOT_PRINTED, NO_OFFSET_AND_TIME, line_number, line)
            return
        header = dict(_PAIR.findall(line[: fields.end]))
        if self._batch is None or not self._batch.is_of_lines or self._batch.header["position"] != header["position"]:
            yield from self.flush()
            is_control = str(line.startswith(_CONTROL, fields.end)).lower()
            of_batch = {**header, "isControl": is_control, "isvalid": "true"}  # each line has its own validity
            yield from self._begin(_Batch(line_number, of_batch, is_of_lines=True), line)
        if self._log is None:
            return
        if header["isvalid"] != "true":
            yield self._fault(CrcMismatch.code, "the checksum does not fit the bytes", line_number, line, fields.offset)
            yield from self._gap(fields.offset, fields.offset)
        elif "payloadsize" in header and header["compresscodec"].lower() not in _NOT_COMPRESSED:
            message = f"records of the compressed message are not printed: {PRINT_DEEP}"
            yield self._fault(NOT_PRINTED, message, line_number, line, fields.offset)
            yield from self._gap(min(self._next_offset or fields.offset, fields.offset), fields.offset)
        else:
            yield from self._record(line_number, line)
        self._next_offset = fields.offset + 1

    def _gap(self, first: int, last: int) -> Iterator[DumpedGap]:
        if self._log is not None and 0 <= first <= last <= _OFFSET_MAX:
            yield DumpedGap(*self._log, first, last)

    def _record(self, line_number: int, line: str) -> Iterator[Dumped]:
        batch = self._batch
        if batch is None:
            yield self._fault(UNKNOWN_LINE, "a record line without a batch line before it", line_number, line)
            return
        if not batch.has_next_lines:
            return
        batch.text_bytes += len(line)
        if batch.text_bytes > DUMPED_BATCH_BYTES_MAX:
            batch.has_next_lines = False
            batch.records.clear()
            yield self._fault(InvalidBatch.code, "more lines than a batch can have", batch.line_number)
            return
        fields = _fields_of(line)
        if fields is None:
            batch.fault_count += 1
            message = f"{NO_OFFSET_AND_TIME}: dump without --skip-record-metadata"
            yield self._fault(NOT_PRINTED, message, line_number, line)
            return
        assert self._log is not None
        try:
            if batch.header.get("isControl") == "true":
                record, printed = _control_record(line, fields.end), _NOT_PRINTED
            elif self._log[0] != METADATA_TOPIC and not line.startswith(_TYPED_KEY, fields.end):
                self._open = _RecordLine(fields, line_number, line)
                return
            else:
                left_out: set[str] = set()
                record, printed = _data_record(self._log[0], line, fields, left_out)
                batch.left_out.update(left_out)
        except UnreadMetadataType:
            batch.unread_offsets.append(fields.offset)
            return
        except EncodeError as error:
            yield from self._unread(batch, error, line_number, line, fields.offset)
            return
        batch.records.append((Record(fields.offset, fields.timestamp_ms, *record), *printed))

    def _close_record(self) -> Iterator[Dumped]:
        """Finish the record whose text may have continued: it ends with the last line that was kept, else with its
        first line.
        """
        line, self._open = self._open, None
        batch = self._batch
        if line is None or batch is None:
            return
        try:
            record, others = self._text_record(line, line.whole()), line.more[:0]
        except EncodeError as error:
            try:
                if not line.more:
                    raise
                record, others = self._text_record(line, line.text), line.more
            except EncodeError:
                yield from self._unread(batch, error, line.line_number, line.whole(), line.fields.offset)
                return
        batch.records.append((Record(line.fields.offset, line.fields.timestamp_ms, *record), *_NOT_PRINTED))
        batch.text_count += 1
        for line_number, text in others:
            yield self._fault(UNKNOWN_LINE, "not a line of kafka-dump-log", line_number, text)

    def _text_record(self, line: _RecordLine, text: str) -> tuple[bytes, bytes | None]:
        assert self._log is not None
        _check_headers(line.fields)
        return text_record(self._log[0], text[line.fields.end :], line.fields.key_size, line.fields.value_size)

    def _unread(self, batch: _Batch, error: EncodeError, line_number: int, line: str, offset: int) -> Iterator[Dumped]:
        """Count and report a record line from which no record could be made."""
        batch.fault_count += 1
        message = f"{error}: {KEEP_BYTES if isinstance(error, LaterKafka) else PRINT_DATA}"
        if isinstance(error, UnprintedFields):
            message = f"{error} by the kafka-dump-log of {_tool(batch)}: {PRINT_ALL}"
        group_id = error.group_id if isinstance(error, UnprintedRecord) else None
        yield self._fault(NOT_PRINTED, message, line_number, line, offset, group_id)
        if batch.is_of_lines:
            yield from self._gap(offset, offset)

    def _built(self, batch: _Batch) -> Dumped:
        header = batch.header
        if header["isvalid"] != "true":
            return self._fault(CrcMismatch.code, "the checksum of the batch does not fit its bytes", batch.line_number)
        assert self._log is not None
        topic, partition = self._log
        records = [record for record, _, _ in batch.records]
        data = _build(records, header)
        crc = int(header.get("crc", _NO_CRC))
        is_exact = stored_crc(data) == crc
        if not is_exact and any(has_client_protocols(topic, key, value) for _, key, value in batch.records):
            for version in islice(ASSIGNMENT_VERSIONS, 1, None):
                other = _build([_again(topic, *record, version) for record in batch.records], header)
                if stored_crc(other) == crc:
                    data, is_exact = other, True
        base_offset = int(header.get("baseOffset", header.get("offset", "")))
        last_offset = int(header.get("lastOffset", header.get("offset", "")))
        has_span = "baseOffset" in header or not records
        return DumpedBatch(
            topic=topic,
            partition=partition,
            base_offset=base_offset if has_span else records[0].offset,
            last_offset=last_offset if has_span else records[-1].offset,
            data=data,
            is_exact=is_exact,
            record_count=len(records),
            unread_count=len(batch.unread_offsets),
            left_out=tuple(sorted(batch.left_out.items())),
            text_count=batch.text_count,
        )

    def _fault(
        self,
        code: str,
        message: str,
        line_number: int,
        text: str = "",
        offset: int | None = None,
        group_id: str | None = None,
    ) -> DumpedFault:
        topic, partition = self._log or (None, None)
        return DumpedFault(code, message, line_number, topic, partition, offset, text, group_id)


def _parts(batch: _Batch) -> Sequence[_Batch]:
    """The batch itself; messages of magic 0 or 1 that were compressed together become one batch each."""
    if batch.header.get("magic") not in _LEGACY_MAGIC or len(batch.records) < 2:
        return [batch]
    is_text = batch.text_count > 0
    first, *others = (replace(batch, records=[it], left_out=Counter[str](), text_count=is_text) for it in batch.records)
    return [replace(first, left_out=batch.left_out), *others]


def _is_known(line: str) -> bool:
    """Whether a line is one that the tool prints, rather than the continuation of a text."""
    return (
        line.startswith((_DUMPING, *_IGNORED))
        or _is_header(line)
        or bool(_INVALID_BYTES.match(line) or _NON_CONSECUTIVE.fullmatch(line))
    )


def _is_header(line: str) -> bool:
    return line.startswith(_HEADER) or bool(_LEGACY_HEADER.match(line) or _SHALLOW_HEADER.match(line))


def _has_own_line(header: Mapping[str, str]) -> bool:
    """Whether the tool prints both batches and records. Before 2.2 it prints one of the two, with validity before
    sizes.
    """
    names = list(header)
    return names.index("isvalid") > names.index("size") if {"isvalid", "size"} <= header.keys() else False


def _tool(batch: _Batch) -> str:
    """The releases whose tool prints such lines."""
    if not batch.is_of_lines:
        return "Kafka 2.2 to 3.7"
    return "Kafka 0.10 or before" if "payloadsize" in batch.header else "Kafka 0.11 to 2.1"


def _fields_of(line: str) -> _Fields | None:
    match = _RECORD.match(line)
    if match and line[match.end() : match.end() + 1] in ("", " "):
        return _Fields(
            int(match["offset"][:20]),
            int(match["timestamp"][:20]),
            int(match["key_size"][:11]),
            int(match["value_size"][:11]),
            match["headers"] or "",
            match.end(),
        )
    position, found = int(line.startswith("|")), dict[str, str]()
    while (pair := _FIELD.match(line, position)) and pair[1] not in _CONTENTS:
        found[pair[1].lower()] = pair[2]
        position = pair.end()
    timestamp = next((found[name] for name in _TIMESTAMP_TYPES if name in found), str(NO_TIMESTAMP))
    sizes = found.get("keysize", "-1"), found.get("valuesize", found.get("payloadsize", ""))
    numbers = (found.get("offset", ""), timestamp, *sizes)
    if not all(map(_INTEGER.fullmatch, numbers)):
        return None
    offset, timestamp_ms, key_size, value_size = map(int, numbers)
    return _Fields(offset, timestamp_ms, key_size, value_size, found.get("headerkeys", "[]")[1:-1], position)


def _check_headers(fields: _Fields) -> None:
    if fields.header_keys:
        raise EncodeError("headers are printed without their values")


def _control_record(line: str, position: int) -> tuple[bytes | None, bytes | None]:
    """Key and value of a record of a control batch."""
    marker = _MARKER.match(line, position)
    if marker:
        return struct.pack(">hh", 0, marker[1] == "COMMIT"), struct.pack(">hi", 0, int(marker[2]))
    if line.startswith(_LEADER_CHANGE, position):
        node, _ = parse_json_at(line, position + len(_LEADER_CHANGE))
        version = node.get("version") if isinstance(node, dict) else None
        if version in (0, 1):
            return _LEADER_CHANGE_KEY, encode(
                LEADER_CHANGE_MESSAGE, from_json(node, LEADER_CHANGE_MESSAGE, version), version
            )
    raise EncodeError("a control record which is no marker")


def _data_record(
    topic: str, line: str, fields: _Fields, left_out: set[str]
) -> tuple[tuple[bytes | None, bytes | None], tuple[Any, Any]]:
    """Decode the record. Returns (key, value) as bytes, and (key, value) as printed."""
    _check_headers(fields)
    position = fields.end
    if topic == METADATA_TOPIC:
        if not line.startswith(_PAYLOAD, position):
            raise EncodeError("no payload is printed")
        node, _ = parse_json_at(line, position + len(_PAYLOAD))
        return (None, encode_metadata_json(node, left_out)), (None, node)
    if topic not in REGISTRY:
        raise EncodeError(f"records of {topic} are not read")
    if not line.startswith(_KEY, position):
        raise EncodeError("no key is printed")
    key_node, position = parse_json_at(line, position + len(_KEY))
    if not line.startswith(_PAYLOAD, position):
        raise EncodeError("no payload is printed")
    position += len(_PAYLOAD)
    value_node = None if line[position:] == DELETE else parse_json_at(line, position)[0]
    record = encode_formatter_json(
        topic, key_node, value_node, assignment_version=ASSIGNMENT_VERSIONS[0], left_out=left_out
    )
    return record, (key_node, value_node)


def _again(topic: str, record: Record, key_node: Any, value_node: Any, assignment_version: int) -> Record:
    if not has_client_protocols(topic, key_node, value_node):
        return record
    key, value = encode_formatter_json(
        topic, key_node, value_node, assignment_version=assignment_version, left_out=set()
    )
    return Record(record.offset, record.timestamp_ms, key, value)


def _build(records: list[Record], header: Mapping[str, str]) -> bytes:
    """Encode a batch from its header line. From record lines alone, which have fewer fields, the batch is an
    approximation.
    """
    magic = header.get("magic")
    if magic in _LEGACY_MAGIC:
        if len(records) != 1:
            raise EncodeError("a message has one record")
        return build_message(records[0], int(magic), is_log_append_time="LogAppendTime" in header)
    if "baseOffset" not in header:
        return build_batch(
            records,
            leader_epoch=-1,
            is_log_append_time="LogAppendTime" in header,
            is_transactional=header.get("isTransactional") == "true",
            is_control=header.get("isControl") == "true",
            producer_id=int(header.get("producerId", NO_PRODUCER_ID)),
            producer_epoch=int(header.get("producerEpoch", NO_PRODUCER_EPOCH)),
        )
    time_name = next(
        name for name in ("CreateTime", "LogAppendTime", "NoTimestampType", "") if name in header or not name
    )
    horizon = _HORIZON.fullmatch(header.get("deleteHorizonMs", ""))
    return build_batch(
        records,
        base_offset=int(header["baseOffset"]),
        last_offset=int(header["lastOffset"]),
        leader_epoch=int(header["partitionLeaderEpoch"]),
        is_log_append_time=time_name == "LogAppendTime",
        is_transactional=header["isTransactional"] == "true",
        is_control=header.get("isControl") == "true",
        max_timestamp_ms=int(header[time_name]),
        delete_horizon_ms=int(horizon[1]) if horizon else None,
        producer_id=int(header["producerId"]),
        producer_epoch=int(header["producerEpoch"]),
        base_sequence=int(header["baseSequence"]),
    )
