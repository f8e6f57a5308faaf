"""What kafka-dump-log prints of segments, back to record batches.

    kafka-dump-log --files .../__consumer_offsets-0/00000000000000000000.log --print-data-log --offsets-decoder

A header line tells everything of a batch but the base timestamp, which is the first record's (or the delete horizon,
which the line has); markers are printed in full. So a batch that was not compressed comes back to the byte, and the
checksum in its header line proves it: `DumpedBatch.is_exact`. A batch that was compressed is packed without
compression. What the tool does not tell is said: records which it could not decode, or printed without a decoder.

Source: DumpLogSegments (dumpLog, printBatchLevel, printRecordMetadata, printRecordContents, printControlRecord).
"""

import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from coordinator_core.codec import encode
from coordinator_core.errors import CrcMismatch, EncodeError, InvalidBatch, TruncatedBatch, UnreadMetadataType
from coordinator_core.formatter_output import (
    ASSIGNMENT_VERSIONS,
    METADATA_TOPIC,
    encode_formatter_json,
    encode_metadata_json,
    has_client_protocols,
    parse_json_at,
)
from coordinator_core.kafka_json import from_json
from coordinator_core.log.batch import Record, build_batch, stored_crc
from coordinator_core.log.segment import parse_partition_folder
from schemas.control_records import LEADER_CHANGE_MESSAGE
from schemas.registry import REGISTRY

DUMPED_BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
"""Text of the record lines of one batch. A batch has at most max.message.bytes (1 MiB), and JSON takes a few times the
bytes it tells; far above that a dump is no dump."""

NOT_TOLD: Final = "RECORD_NOT_TOLD"
"""Code of a record whose line does not tell its key and value."""
UNKNOWN_LINE: Final = "UNKNOWN_LINE"
"""Code of a line which kafka-dump-log does not print."""

PRINT_DATA: Final = "run kafka-dump-log with --print-data-log and the decoder of the topic"


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """A batch, rebuilt."""

    topic: str
    partition: int
    base_offset: int
    last_offset: int
    data: bytes
    is_exact: bool
    """The batch itself, to the byte: its checksum is the one which the tool printed."""
    record_count: int
    """Records that were rebuilt."""
    unread_count: int
    """Records of the metadata log left out, because this project does not read their types."""
    left_out: tuple[tuple[str, int], ...] = ()
    """Names of fields of a later Kafka that are left out, and of how many records."""


@dataclass(frozen=True, slots=True)
class DumpedFault:
    """Something of a dump which is in no batch."""

    code: str
    message: str
    line_number: int
    """From 1."""
    topic: str | None
    partition: int | None
    offset: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class DumpedGap:
    """Offsets of a batch whose records are not told: another dump, or the log itself, may have them."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int


Dumped = DumpedBatch | DumpedFault | DumpedGap


def read_dump_log_output(lines: Iterable[tuple[int, str]], *, log: tuple[str, int] | None = None) -> Iterator[Dumped]:
    """Batches and faults of the lines of a dump, each with its number.

    `log`: topic and partition of what comes before the first line `Dumping .../<topic>-<partition>/...`, or where that
    line names a file without its folder.
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
    """Each with the printed key and value it was made of."""
    text_bytes: int = 0
    unread_offsets: list[int] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """Fields of a later Kafka, and how many records have them."""
    fault_count: int = 0
    """Record lines that do not tell their record."""
    has_next_lines: bool = True
    """False after a fault that makes the rest of the batch unusable."""


_PAIR: Final = re.compile(r"(\w+): (\S+)")
_DUMPING: Final = "Dumping "
_HEADER: Final = "baseOffset: "
_LEGACY_HEADER: Final = re.compile(r"offset: -?[0-9]+ position: [0-9]+ \w+: -?[0-9]+ size: ", re.ASCII)
_LOG_SUFFIX: Final = ".log"
_IGNORED: Final = ("Log starting offset: ", "KRaft bootstrap snapshot", "Snapshot end offset: ")
_INVALID_BYTES: Final = re.compile(r"Found [0-9]+ invalid bytes at the end of ", re.ASCII)
_RECORD: Final = re.compile(
    r"\| offset: (?P<offset>-?[0-9]+) (?P<kind>CreateTime|LogAppendTime|NoTimestampType): (?P<timestamp>-?[0-9]+)"
    r" keySize: (?P<key_size>-?[0-9]+) valueSize: (?P<value_size>-?[0-9]+)"
    r"(?: sequence: -?[0-9]+ headerKeys: \[(?P<headers>[^]]*)\])?(?: isValid: \w+ crc: [0-9]+)?",
    re.ASCII,
)
_MARKER: Final = re.compile(r" endTxnMarker: (COMMIT|ABORT) coordinatorEpoch: (-?[0-9]{1,10})", re.ASCII)
_LEADER_CHANGE: Final = " LeaderChange: "
_HORIZON: Final = re.compile(r"OptionalLong\[([0-9]+)\]", re.ASCII)
_KEY: Final = " key: "
_PAYLOAD: Final = " payload: "
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

    def feed(self, line_number: int, line: str) -> Iterator[Dumped]:
        """Read one line."""
        if line.startswith("|"):
            if self._is_log_file:
                yield from self._record(line_number, line)
            return
        yield from self.flush()
        if line.startswith(_DUMPING):
            yield from self._dumping(line_number, line)
        elif not self._is_log_file or not line or line.startswith(_IGNORED):
            return
        elif line.startswith(_HEADER) or _LEGACY_HEADER.match(line):
            self._batch = _Batch(line_number, dict(_PAIR.findall(line)))
            if self._log is None:
                self._batch.has_next_lines = False
                message = "which log partition this is of is not told: dump files in their folders, <topic>-<partition>"
                yield self._fault(NOT_TOLD, message, line_number, line)
        elif _INVALID_BYTES.match(line):
            yield self._fault(TruncatedBatch.code, line, line_number, line)
        else:
            yield self._fault(UNKNOWN_LINE, "not a line of kafka-dump-log", line_number, line)

    def flush(self) -> Iterator[Dumped]:
        """The batch whose lines have all been read."""
        batch, self._batch = self._batch, None
        if batch is None or not batch.has_next_lines:
            return
        try:
            built = self._built(batch)
            unprinted_count = self._unprinted_count(batch)
            if unprinted_count:
                yield from self._unreported(batch, unprinted_count)
            if batch.records or not unprinted_count:
                yield built
        except (EncodeError, ValueError, KeyError) as error:
            reason = str(error) if isinstance(error, EncodeError) else "fields of its header are missing or no numbers"
            yield self._fault(InvalidBatch.code, f"a batch that cannot be: {reason}", batch.line_number)

    def _unprinted_count(self, batch: _Batch) -> int:
        """How many records of a batch are not told: as its header counts them, else as lines say."""
        if batch.header.get("isvalid") != "true":
            return 0  # none of it is to be trusted
        printed_count = len(batch.records) + len(batch.unread_offsets)
        count = batch.header.get("count")
        return batch.fault_count if count is None else max(batch.fault_count, int(count[:11]) - printed_count)

    def _unreported(self, batch: _Batch, count: int) -> Iterator[Dumped]:
        """Offsets of a batch that nothing is told of; and a fault, where no line said so."""
        assert self._log is not None
        first = int(batch.header.get("baseOffset", batch.header.get("offset", "")))
        last = int(batch.header.get("lastOffset", batch.header.get("offset", "")))
        if not 0 <= first <= last <= _OFFSET_MAX:
            raise EncodeError("offsets which no batch can have")
        if count > batch.fault_count:
            message = f"{count - batch.fault_count} records of the batch are not printed: {PRINT_DATA}"
            yield self._fault(NOT_TOLD, message, batch.line_number, offset=first)
        for known in sorted((*(record.offset for record, _, _ in batch.records), *batch.unread_offsets, last + 1)):
            if first < known:
                yield DumpedGap(*self._log, first, known - 1)
            first = known + 1

    def _dumping(self, line_number: int, line: str) -> Iterator[Dumped]:
        path = line.removeprefix(_DUMPING).strip().replace("\\", "/")
        self._is_log_file = path.endswith(_LOG_SUFFIX)
        folder, _, _ = path.rpartition("/")
        self._log = parse_partition_folder(folder.rpartition("/")[2]) or self._default_log
        if not self._is_log_file and path.endswith(".checkpoint"):
            yield self._fault(
                UNKNOWN_LINE, "snapshots of the metadata log are not read, only its segments", line_number
            )

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
        match = _RECORD.match(line)
        if match is None:
            batch.fault_count += 1
            message = "offset and time of the record are not told: dump without --skip-record-metadata"
            yield self._fault(NOT_TOLD, message, line_number, line)
            return
        offset = int(match["offset"][:20])
        assert self._log is not None
        try:
            if batch.header.get("isControl") == "true":
                record, printed = _control_record(line, match.end()), _NOT_PRINTED
            else:
                left_out: set[str] = set()
                record, printed = _data_record(self._log[0], line, match, left_out)
                batch.left_out.update(left_out)
        except UnreadMetadataType:
            batch.unread_offsets.append(offset)
            return
        except EncodeError as error:
            batch.fault_count += 1
            yield self._fault(NOT_TOLD, f"{error}: {PRINT_DATA}", line_number, line, offset)
            return
        timestamp_ms = int(match["timestamp"][:20])
        batch.records.append((Record(offset, timestamp_ms, *record), *printed))

    def _built(self, batch: _Batch) -> Dumped:
        header = batch.header
        if header["isvalid"] != "true":
            return self._fault(CrcMismatch.code, "the checksum of the batch does not fit its bytes", batch.line_number)
        assert self._log is not None
        topic, partition = self._log
        records = [record for record, _, _ in batch.records]
        data = _build(records, header)
        is_exact = stored_crc(data) == int(header["crc"])
        if not is_exact and any(has_client_protocols(topic, key, value) for _, key, value in batch.records):
            for version in islice(ASSIGNMENT_VERSIONS, 1, None):
                other = _build([_again(topic, *record, version) for record in batch.records], header)
                if stored_crc(other) == int(header["crc"]):
                    data, is_exact = other, True
        base_offset = int(header.get("baseOffset", header.get("offset", "")))
        return DumpedBatch(
            topic=topic,
            partition=partition,
            base_offset=records[0].offset if "baseOffset" not in header and records else base_offset,
            last_offset=int(header.get("lastOffset", header.get("offset", ""))),
            data=data,
            is_exact=is_exact,
            record_count=len(records),
            unread_count=len(batch.unread_offsets),
            left_out=tuple(sorted(batch.left_out.items())),
        )

    def _fault(
        self, code: str, message: str, line_number: int, text: str = "", offset: int | None = None
    ) -> DumpedFault:
        topic, partition = self._log or (None, None)
        return DumpedFault(code, message, line_number, topic, partition, offset, text)


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
    topic: str, line: str, match: re.Match[str], left_out: set[str]
) -> tuple[tuple[bytes | None, bytes | None], tuple[Any, Any]]:
    """Key and value, and the two as printed."""
    if match["headers"]:
        raise EncodeError("headers are printed without their values")
    position = match.end()
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
    """The batch of a header line; of a legacy one, whose fields are fewer, a batch of magic 2 like it."""
    if "baseOffset" not in header:
        return build_batch(records, leader_epoch=-1, is_log_append_time="LogAppendTime" in header)
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
        is_control=header["isControl"] == "true",
        max_timestamp_ms=int(header[time_name]),
        delete_horizon_ms=int(horizon[1]) if horizon else None,
        producer_id=int(header["producerId"]),
        producer_epoch=int(header["producerEpoch"]),
        base_sequence=int(header["baseSequence"]),
    )
