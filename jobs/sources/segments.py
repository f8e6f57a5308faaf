"""Segment files of coordinator topics: find, map and frame them, and convert them to Arrow rows of
bronze.record_batches.

The capture job and the `kafka_log` data source share this reader. A source is a folder with
`<topic>-<partition>/*.log`, like a broker's log directory: a local path, or any URI that pyarrow.fs opens. Local files
are memory-mapped, and the `batch` column of the rows points into the mapping: no byte of the log is copied. Pages of a
large mapping are released after use and loaded again on access: a segment of 2 GiB needs no more memory than one of 100
MB.
"""

import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import fs

from coordinator_core.bytes.log.batch import HAS_DELETE_HORIZON
from coordinator_core.bytes.log.chunk import U8
from coordinator_core.bytes.log.copies import has_no_epoch
from coordinator_core.bytes.log.kernels import HEADER_BYTES_V2
from coordinator_core.bytes.log.scan import LOOK_BACK_BYTES, WINDOW_BYTES, SegmentScan, keep, scan_end, scan_segment
from coordinator_core.bytes.log.segment import (
    lost_segments,
    parse_checkpoint,
    parse_kafka_cluster_id,
    parse_leader_epochs,
    parse_partition_folder,
    parse_topic_id,
    select_segments,
    unread_files,
)
from coordinator_core.errors import InvalidCheckpoint
from coordinator_core.text import counted
from jobs.delta.arrow_schemas import arrow_schema, timestamps
from jobs.delta.filesystems import filesystem_of
from jobs.errors import NoSuchSource, SourceError
from jobs.sources.right_folder import nothing_to_read
from schemas.tables import TABLES

SEGMENT: Final = "SEGMENT"
"""Source kind of a broker's own files."""
KAFKA: Final = "KAFKA"
"""Source kind of a broker's fetch responses."""
DUMP: Final = "DUMP"
"""Source kind of batches made from a dump."""

CHUNK_BYTES_MAX: Final = 8 * 1024 * 1024
"""Size of the batches in one Arrow record batch, which is a row group of bronze: the unit of writing, reading and
decoding. Small enough for its results to stay in memory that is in use already: twice the size takes a twentieth
longer, most of it in the kernel, eight times the size a quarter. A single larger batch is a record batch of its own."""

KEPT_BYTES_MAX: Final = WINDOW_BYTES
"""A segment up to this size stays in memory until it is written, as does a part of a larger one: loading its pages
again takes a fifteenth of a capture."""

ADDED_BY_CAPTURE: Final = frozenset({"cluster_id", "captured_at", "capture_id", "redacted_at", "filled_offsets"})

SOURCE_SCHEMA: Final = pa.schema(
    [field for field in arrow_schema(TABLES["bronze.record_batches"]) if field.name not in ADDED_BY_CAPTURE]
)
"""Columns of this source: bronze.record_batches without those that a capture adds."""

PRODUCER_COLUMNS: Final = ("producer_id", "is_transactional", "is_control", "control_type")
"""Columns that rows of a dump may have, too: null where they have not."""
HEADER_COLUMNS: Final = ("leader_epoch", "producer_epoch", "base_sequence", *PRODUCER_COLUMNS)
"""Columns that only a batch header provides: null for a dump of rows."""

UNREADABLE_FILE: Final = "UNREADABLE_FILE"
"""Code for a file that cannot be opened or read to its end."""
LOG_START_CHECKPOINT: Final = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
"""The offset of each compacted log partition up to which the broker's log cleaner has come."""
CLEANING: Final = (".log.cleaned", ".log.swap", ".log.deleted")
"""Endings of files that are in a folder while segments are replaced, and up to `file.delete.delay.ms` after it."""
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
IDS_BYTES_MAX: Final = 64 * 1024
"""Files with ids have a few lines: of a larger one only the beginning is read."""

UNREAD_SHOWN_MAX: Final = 3

CODEC_NAMES: Final = pa.array(["NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD"])
TIMESTAMP_TYPES: Final = pa.array(["CREATE_TIME", "LOG_APPEND_TIME"])
CONTROL_TYPES: Final = pa.array(["ABORT", "COMMIT"])


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment file, or another piece of a log in this form."""

    path: str
    """Of a file: a path or URI for `jobs.delta.filesystems.filesystem_of`. Of a fetch response: `kafka://HOST:PORT`."""
    name: str
    base_offset: int
    """Offset from which it was read: offsets between this and the first batch are a hole."""
    size_bytes: int
    is_last: bool
    """The newest segment of its partition: Kafka may still be writing it."""
    source_kind: str = SEGMENT
    has_header: bool = True
    """False: the batches were made of rows, so their headers are not the log's."""
    knows_producers: bool = True
    """False: nor do they say anything about producers."""
    modified_ns: int | None = None
    """Modification time of a file, epoch nanoseconds; None where the store has none."""
    is_uncleaned: bool = False
    """The broker's log cleaner has not come to this segment, and it is not the last: the next one begins where it ends.
    """
    lost_from: int | None = None
    """Base offset of a file that is missing after this one: only its index is in the folder."""


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """The segments of one log partition in one source, ascending by base offset."""

    topic: str
    partition: int
    segments: tuple[Segment, ...]
    log_start_offset: int | None
    """From the source's log-start-offset-checkpoint; None where it has no entry."""
    uri: str = ""
    """The folder with the folders of log partitions."""
    topic_id: str | None = None
    """From partition.metadata in the folder of the segments; None without that file."""
    kafka_cluster_id: str | None = None
    """The cluster's own id, from meta.properties of the log directory or of the folder above it; None without one."""
    leader_epochs: Segment | None = None
    """The leader-epoch-checkpoint in the folder of the segments; None where there is none."""

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)


class LogPlace(Protocol):
    """Base of classes that belong to a log partition."""

    @property
    def topic(self) -> str:
        """The internal topic."""

    @property
    def partition(self) -> int:
        """Its partition."""


@dataclass(frozen=True, slots=True)
class SegmentRead:
    segment: Segment
    data: pa.Buffer
    scan: SegmentScan
    log_start_offset: int | None = None
    """Log start offset at the time of the read, where the source reports it: Kafka deleted what is below."""
    let_go: Callable[[], object] = keep
    """Releases pages of a mapped file from memory; the bytes stay valid."""
    is_end: bool = False
    """The read starts at a batch in the segment, not at its beginning."""

    def content(self, row: int) -> bytes:
        batches = self.scan.batches
        data: bytes = self.data.slice(int(batches.position[row]), int(batches.size[row])).to_pybytes()
        return data


def find_partitions(
    uri: str, topics: Sequence[str], partitions: Sequence[int] | None = None, notes: list[str] | None = None
) -> list[PartitionLog]:
    """The log partitions of some topics under a folder or URI, by topic and partition; those without segments are left
    out. `notes` gets sentences that name files which look like segments and are not read.

    Raises SourceError when the folder does not exist, or has nothing of these topics.
    """
    try:
        filesystem, root = filesystem_of(uri.rstrip("/") or "/")
        entries = filesystem.get_file_info(fs.FileSelector(root, recursive=False))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NoSuchSource(nothing_to_read(uri, topics)) from error
    except (OSError, pa.ArrowInvalid) as error:
        raise SourceError(f"cannot read the folder {uri}: {_reason(error)}") from error
    starts = _checkpoint(filesystem, root, uri, LOG_START_CHECKPOINT) or {}
    cleaned = _checkpoint(filesystem, root, uri, CLEANER_CHECKPOINT)
    kafka_cluster_id = _kafka_cluster_id(filesystem, root)
    found: list[PartitionLog] = []
    notes = [] if notes is None else notes
    for entry in entries:
        parsed = parse_partition_folder(entry.base_name) if entry.type == fs.FileType.Directory else None
        if parsed is None or parsed[0] not in topics or (partitions is not None and parsed[1] not in partitions):
            continue
        cleaned_to = None if cleaned is None else cleaned.get(parsed, 0)
        folder_uri = f"{uri.rstrip('/')}/{entry.base_name}"
        segments, topic_id, epochs = _segments(filesystem, entry.path, folder_uri, cleaned_to, notes)
        if segments:
            found.append(PartitionLog(*parsed, segments, starts.get(parsed), uri, topic_id, kafka_cluster_id, epochs))
    if not found:
        raise NoSuchSource("; ".join([nothing_to_read(uri, topics), *notes]))
    return sorted(found, key=lambda log: (log.topic, log.partition))


def listed_again(log: PartitionLog) -> PartitionLog:
    """A log partition as its folder is now; as it was where the folder is gone."""
    try:
        return find_partitions(log.uri, (log.topic,), (log.partition,))[0]
    except SourceError:
        return log


def map_segment(segment: Segment) -> mmap.mmap | None:
    """Map a local file whole; None for an empty one, and one that is not local. A mapping keeps its bytes when the
    broker renames or deletes the file. Raises OSError when the file cannot be opened."""
    filesystem, path = filesystem_of(segment.path)
    if not isinstance(filesystem, fs.LocalFileSystem):
        return None
    with Path(path).open("rb") as file:
        is_empty = not os.fstat(file.fileno()).st_size  # an empty file cannot be mapped
        return None if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def read_segment(
    segment: Segment,
    *,
    next_offset_min: int = 0,
    known: tuple[int, int] | None = None,
    mapped: mmap.mmap | None = None,
) -> SegmentRead:
    """Map and frame a whole segment. Raises OSError when the file cannot be read, never because of its content.

    `known`: first and last offset of a batch; if it is found near the end, only the part from that batch on is
    returned. `mapped`: the file, if it was mapped before.

    A mapping stays valid when Kafka deletes or compacts the segment meanwhile. If the broker truncates the mapped file,
    the process is killed and Spark retries the task.
    """
    let_go: Callable[[], object] = keep
    mapped = map_segment(segment) if mapped is None else mapped
    if mapped is not None:
        data, let_go = _data_of(mapped, ahead_bytes=0 if known is None else LOOK_BACK_BYTES)
    else:
        filesystem, path = filesystem_of(segment.path)
        with filesystem.open_input_file(path) as source:
            data = source.read_buffer()
    if known is not None:
        scan = scan_end(as_array(data), known, base_offset=segment.base_offset, is_last=segment.is_last, let_go=let_go)
        if scan is not None:
            return SegmentRead(segment, data, scan, let_go=let_go, is_end=True)
    scan = scan_segment(
        as_array(data),
        base_offset=segment.base_offset,
        is_last=segment.is_last,
        next_offset_min=next_offset_min,
        let_go=let_go,
    )
    return SegmentRead(segment, data, scan, let_go=let_go)


def _data_of(mapped: mmap.mmap, *, ahead_bytes: int = 0) -> tuple[pa.Buffer, Callable[[], object]]:
    """The bytes of a mapped file, and a function that releases its pages from memory. `ahead_bytes`: this many bytes
    at the end are loaded at once."""
    if ahead_bytes:
        # otherwise the first access to a page loads megabytes around it
        begin = max(0, len(mapped) - ahead_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
        mapped.madvise(mmap.MADV_WILLNEED, begin, len(mapped) - begin)
    let_go = partial(mapped.madvise, mmap.MADV_DONTNEED) if len(mapped) > KEPT_BYTES_MAX else keep
    return pa.py_buffer(mapped), let_go


def as_array(data: pa.Buffer) -> U8:
    """A buffer as a numpy array, without a copy."""
    return np.frombuffer(data, np.uint8)


def to_record_batches(
    read: SegmentRead, log: LogPlace, rows: NDArray[np.bool_] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a segment as rows of SOURCE_SCHEMA, in log order, at most CHUNK_BYTES_MAX at a time.

    `rows` selects batches, one bool each.
    """
    for first, last in _runs(read.scan, rows):
        yield _rows(read, log, first, last)
        read.let_go()


def _runs(scan: SegmentScan, rows: NDArray[np.bool_] | None) -> Iterator[tuple[int, int]]:
    """Yield runs [first, last) of selected batches that are contiguous in the file and not too large together."""
    batches = scan.batches
    count = len(batches)
    if count == 0:
        return
    ends = batches.position + batches.size
    is_chosen = np.ones(count, np.bool_) if rows is None else rows
    is_break = np.ones(count, np.bool_)
    is_break[1:] = (batches.position[1:] != ends[:-1]) | (is_chosen[1:] != is_chosen[:-1])
    starts = np.flatnonzero(is_break)
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), count], strict=True):
        if not is_chosen[start]:
            continue
        first = start
        while first < stop:
            limit = int(batches.position[first]) + CHUNK_BYTES_MAX
            last = first + int(np.searchsorted(ends[first:stop], limit, side="right"))
            last = max(last, first + 1)
            yield first, last
            first = last


def _rows(read: SegmentRead, log: LogPlace, first: int, last: int) -> pa.RecordBatch:
    batches = read.scan.batches
    part = slice(first, last)
    count = last - first
    magic = batches.magic[part]
    start = int(batches.position[first])
    end = int(batches.position[last - 1] + batches.size[last - 1])
    positions = np.empty(count + 1, np.int32)
    positions[:count] = batches.position[part] - start
    positions[count] = end - start
    control_type = batches.control_type[part]
    codec = batches.codec[part]
    columns: dict[str, pa.Array] = {
        "topic": pa.repeat(pa.scalar(log.topic), count),
        "partition": pa.repeat(pa.scalar(log.partition, pa.int32()), count),
        "base_offset": pa.array(batches.base_offset[part]),
        "last_offset": pa.array(batches.last_offset[part]),
        "leader_epoch": pa.array(batches.leader_epoch[part], mask=batches.leader_epoch[part] < 0),
        "record_count": pa.array(batches.record_count[part]),
        "magic": pa.array(magic),
        "codec": _names(CODEC_NAMES, codec, is_known=(codec >= 0) & (codec < len(CODEC_NAMES))),
        "timestamp_type": _names(TIMESTAMP_TYPES, batches.is_log_append_time[part], is_known=magic > 0),
        "base_timestamp": timestamps(batches.base_timestamp_ms[part]),
        "max_timestamp": timestamps(batches.max_timestamp_ms[part]),
        "producer_id": pa.array(batches.producer_id[part]),
        "producer_epoch": pa.array(batches.producer_epoch[part]),
        "base_sequence": pa.array(batches.base_sequence[part]),
        "is_transactional": pa.array(batches.is_transactional[part]),
        "is_control": pa.array(batches.is_control[part]),
        "control_type": _names(CONTROL_TYPES, control_type, is_known=(control_type == 0) | (control_type == 1)),
        "batch": pa.Array.from_buffers(
            pa.binary(), count, [None, pa.py_buffer(positions), read.data.slice(start, end - start)]
        ),
        "source": pa.repeat(pa.scalar(read.segment.path), count),
        "source_kind": pa.repeat(pa.scalar(read.segment.source_kind), count),
        "crc_valid": pa.array(read.scan.crc_valid[part]),
    }
    if not read.segment.has_header:
        known = PRODUCER_COLUMNS if read.segment.knows_producers else ()
        unknown = (name for name in HEADER_COLUMNS if name not in known)
        columns |= {name: pa.nulls(count, SOURCE_SCHEMA.field(name).type) for name in unknown}
    return pa.RecordBatch.from_arrays([columns[field.name] for field in SOURCE_SCHEMA], schema=SOURCE_SCHEMA)


def _names(names: pa.Array, codes: NDArray[np.int8] | NDArray[np.bool_], is_known: NDArray[np.bool_]) -> pa.Array:
    """Codes as names; null where the code has none."""
    return names.take(pa.array(np.where(is_known, codes, 0).astype(np.int8), mask=~is_known))


def _segments(
    filesystem: fs.FileSystem, folder: str, uri: str, cleaned_to: int | None, notes: list[str]
) -> tuple[tuple[Segment, ...], str | None, Segment | None]:
    """The segments of one folder; the topic id and the leader-epoch-checkpoint, if the folder has them. `cleaned_to`:
    the offset up to which the log cleaner has come; None: unknown."""
    try:
        entries = filesystem.get_file_info(fs.FileSelector(folder, recursive=False))
    except OSError as error:
        raise SourceError(f"cannot read the folder {uri}: {_reason(error)}") from error
    sizes = {entry.base_name: entry.size for entry in entries if entry.type == fs.FileType.File}
    modified = {entry.base_name: entry.mtime_ns for entry in entries}
    files = select_segments(sizes)
    if unread := unread_files(sizes):
        shown = ", ".join(unread[:UNREAD_SHOWN_MAX]) + (", ..." if len(unread) > UNREAD_SHOWN_MAX else "")
        notes.append(
            f"{uri}: not read: {shown} ({counted(len(unread), 'file')}). A segment has the name that Kafka gave it, 20 "
            "digits and .log, and is not compressed as a file"
        )
    if any(name.endswith(CLEANING) for name in sizes):
        cleaned_to = None  # the cleaner writes its checkpoint after it has replaced segments
    bases = [file.base_offset for file in files]
    # of several missing files in a row, the first counts
    lost_after = {max(base for base in bases if base < lost): lost for lost in reversed(lost_segments(sizes))}
    segments = tuple(
        Segment(
            path=f"{uri}/{file.name}",
            name=file.name,
            base_offset=file.base_offset,
            size_bytes=sizes[file.name],
            is_last=file is files[-1],
            modified_ns=modified[file.name],
            is_uncleaned=cleaned_to is not None and file.base_offset >= cleaned_to and file is not files[-1],
            lost_from=lost_after.get(file.base_offset),
        )
        for file in files
    )
    has_id = bool(segments) and PARTITION_METADATA in sizes
    topic_id = parse_topic_id(_small_text(filesystem, f"{folder}/{PARTITION_METADATA}")) if has_id else None
    epochs = None
    if LEADER_EPOCHS in sizes:
        size_bytes, at = sizes[LEADER_EPOCHS], modified[LEADER_EPOCHS]
        epochs = Segment(f"{uri}/{LEADER_EPOCHS}", LEADER_EPOCHS, 0, size_bytes, is_last=False, modified_ns=at)
    return segments, topic_id, epochs


def read_leader_epochs(file: Segment) -> tuple[tuple[int, int], ...]:
    """The entries of a leader-epoch-checkpoint; none where it cannot be read: then only batches show leader epochs."""
    filesystem, path = filesystem_of(file.path)
    try:
        return parse_leader_epochs(_small_text(filesystem, path))
    except InvalidCheckpoint:
        return ()


class FirstBatch(NamedTuple):
    """Fields of a segment's first batch header. None: not set, or unreadable."""

    leader_epoch: int | None = None
    timestamp_ms: int | None = None
    """Timestamp of its first record."""


def read_first_batch(segment: Segment) -> FirstBatch:
    """Read the header of a segment's first batch, if its message format has leader epochs."""
    header = _first_header(segment)
    if len(header) < HEADER_BYTES_V2 or header[16] != 2:
        return FirstBatch()
    epoch = int.from_bytes(header[12:16], "big", signed=True)
    timestamp_ms = int.from_bytes(header[27:35], "big", signed=True)
    is_horizon = header[22] & HAS_DELETE_HORIZON
    return FirstBatch(epoch if epoch >= 0 else None, None if is_horizon or timestamp_ms < 0 else timestamp_ms)


def begins_without_epoch(segment: Segment) -> bool:
    """Does a segment's first batch lack a leader epoch? Then its replica's checkpoint provides it."""
    header = _first_header(segment)
    return len(header) > 16 and has_no_epoch(header)


def _first_header(segment: Segment) -> bytes:
    """The first bytes of a segment; empty where it cannot be read."""
    try:
        filesystem, path = filesystem_of(segment.path)
        with filesystem.open_input_file(path) as source:
            header: bytes = source.read(HEADER_BYTES_V2)
    except OSError:
        return b""
    return header


def kafka_cluster_id_of(uri: str) -> str | None:
    """The id of the cluster that a folder is of, as far as `meta.properties` says it."""
    try:
        return _kafka_cluster_id(*filesystem_of(uri.rstrip("/") or "/"))
    except (OSError, pa.ArrowInvalid):
        return None  # whoever reads the folder reports it


def _kafka_cluster_id(filesystem: fs.FileSystem, root: str) -> str | None:
    """The cluster id in a broker's log directory, or for a folder within a copy, in the folder above."""
    root = root.rstrip("/")
    for folder in (root, root.rpartition("/")[0]):
        path = f"{folder}/{META_PROPERTIES}"
        with suppress(OSError):  # the id is only evidence: the source is read without it
            if folder and filesystem.get_file_info(path).type == fs.FileType.File:
                return parse_kafka_cluster_id(_small_text(filesystem, path))
    return None


def _small_text(filesystem: fs.FileSystem, path: str) -> str:
    """The text of a small file; empty where it cannot be read."""
    try:
        with filesystem.open_input_file(path) as source:
            return str(source.read(IDS_BYTES_MAX).decode("utf-8", errors="replace"))
    except OSError:
        return ""


def _checkpoint(filesystem: fs.FileSystem, root: str, uri: str, name: str) -> dict[tuple[str, int], int] | None:
    """Offsets by log partition from a checkpoint of a log directory; None without a readable one."""
    path = f"{root.rstrip('/')}/{name}"
    if filesystem.get_file_info(path).type != fs.FileType.File:
        return None
    try:
        with filesystem.open_input_file(path) as source:
            return parse_checkpoint(source.read().decode("utf-8", errors="replace"))
    except InvalidCheckpoint:
        # it only explains a gap: the source is read without it
        return None
    except OSError as error:
        raise SourceError(f"cannot read {uri}/{name}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The operating system's message; pyarrow's repeats the path."""
    strerror = getattr(error, "strerror", None)
    if isinstance(error, FileNotFoundError):
        return "no such folder"
    if isinstance(error, PermissionError):
        return "permission denied"
    return str(strerror or error).splitlines()[0]
