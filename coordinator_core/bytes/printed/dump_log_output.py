"""Rebuilds record batches from what kafka-dump-log prints of segments.

  kafka-dump-log --files .../__consumer_offsets-0/00000000000000000000.log --print-data-log --offsets-decoder

A header line has all fields of a batch but the base timestamp. That is the first record's (or the delete horizon, which
the line has); markers are printed in full. So a batch that was not compressed is rebuilt byte for byte, and the
checksum in its header line proves it: `DumpedBatch.is_exact`. A batch that was compressed is rebuilt without
compression. Records that the tool could not decode, or printed without a decoder, are reported as faults.

Before 3.8 (transactions: before 4.0) keys and values were printed as text that lacks some fields. Such a file is
refused with one fault: a newer tool reads the same segments and prints all of it.

Source: DumpLogSegments (dumpLog, printBatchLevel, printRecordMetadata, printRecordContents, printControlRecord), and
the output of the tools of 3.8.1 and later.
"""

import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, NamedTuple

from coordinator_core.bytes.codec import encode
from coordinator_core.bytes.log.batch import NO_TIMESTAMP, Record, build_batch, stored_crc
from coordinator_core.bytes.log.legacy import build_message
from coordinator_core.bytes.log.segment import parse_partition_folder
from coordinator_core.bytes.printed.formatter_output import (
    ASSIGNMENT_VERSIONS,
    METADATA_TOPIC,
    encode_formatter_json,
    encode_metadata_json,
    has_client_protocols,
    parse_json_at,
)
from coordinator_core.bytes.printed.kafka_json import from_json
from coordinator_core.errors import (
    CrcMismatch,
    EncodeError,
    InvalidBatch,
    LaterKafka,
    TruncatedBatch,
    UnprintedRecord,
    UnreadMetadataType,
)
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
OLDER_TOOL: Final = f"printed by a kafka-dump-log that leaves out fields: {PRINT_ALL}"


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
_OLDER_LINE: Final = re.compile(r"offset: -?[0-9]+ position: [0-9]+ ", re.ASCII)
"""A record line before Kafka 2.2, which has no header line before it."""
_OLDER_KEY: Final = re.compile(
    r" key: (?:offset(?:_commit)?::|(?:group_)?metadata::|\{\"metadata\"|(?:transaction_metadata::)?transactionalId=)"
)
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
_NOT_COMPRESSED: Final = ("none", "nocompressioncodec")
_NO_CRC: Final = -1
_DELETE: Final = "<DELETE>"

_OFFSET_MAX: Final = 2**63 - 1
_NOT_PRINTED: Final = (None, None)
_LEADER_CHANGE_KEY: Final = struct.pack(">hh", 0, 2)


class _Reader:
    def __init__(self, log: tuple[str, int] | None) -> None:
        self._default_log = log
        self._log = log
        self._is_log_file = True
        self._batch: _Batch | None = None
        self._next_offset: int | None = None
        """The offset after the last one printed from the file."""

    def feed(self, line_number: int, line: str) -> Iterator[Dumped]:
        if line.startswith("|"):
            if self._is_log_file:
                yield from self._record(line_number, line)
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
        elif _OLDER_LINE.match(line):
            yield self._refused(line_number, line, _fields_of(line))
        else:
            yield self._fault(UNKNOWN_LINE, "not a line of kafka-dump-log", line_number, line)

    def flush(self) -> Iterator[Dumped]:
        """Finish the batch whose lines have all been read."""
        batch, self._batch = self._batch, None
        if batch is None or not batch.has_next_lines:
            return
        try:
            unprinted_count = self._unprinted_count(batch)
            # a message of magic 0 or 1 cannot be built without its record
            built = [self._built(it) for it in _parts(batch)] if batch.records or "baseOffset" in batch.header else []
            if unprinted_count:
                yield from self._unreported(batch, unprinted_count)
            if batch.records or not unprinted_count:
                yield from built
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
        if batch.header.get("isvalid") != "true":
            return 0  # its header cannot be trusted
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
            message = f"{count - batch.fault_count} records of the batch are not printed: {PRINT_DATA}"
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

    def _refused(self, line_number: int, line: str, fields: _Fields | None) -> DumpedFault:
        """The fault of a file that an older tool printed; the rest of the file is skipped."""
        self._batch, self._is_log_file = None, False
        return self._fault(NOT_PRINTED, OLDER_TOOL, line_number, line, None if fields is None else fields.offset)

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
            elif _OLDER_KEY.match(line, fields.end):
                yield self._refused(line_number, line, fields)
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

    def _unread(self, batch: _Batch, error: EncodeError, line_number: int, line: str, offset: int) -> Iterator[Dumped]:
        """Count and report a record line from which no record could be made."""
        batch.fault_count += 1
        message = f"{error}: {KEEP_BYTES if isinstance(error, LaterKafka) else PRINT_DATA}"
        group_id = error.group_id if isinstance(error, UnprintedRecord) else None
        yield self._fault(NOT_PRINTED, message, line_number, line, offset, group_id)

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
    first, *others = (replace(batch, records=[it], left_out=Counter[str]()) for it in batch.records)
    return [replace(first, left_out=batch.left_out), *others]


def _is_header(line: str) -> bool:
    return line.startswith(_HEADER) or bool(_LEGACY_HEADER.match(line))


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
    value_node = None if line[position:] == _DELETE else parse_json_at(line, position)[0]
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
    """Encode a batch from its header line."""
    magic = header.get("magic")
    if magic in _LEGACY_MAGIC:
        if len(records) != 1:
            raise EncodeError("a message has one record")
        return build_message(records[0], int(magic), is_log_append_time="LogAppendTime" in header)
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
