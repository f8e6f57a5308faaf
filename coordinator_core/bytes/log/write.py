"""The files of a partition folder, as a broker writes them: segments, indexes, and the two small metadata files.

No file is opened here: each one is returned as a name and its bytes. A broker rebuilds missing indexes, but considers a
folder without `partition.metadata` stray.

Sources: LocalLog.roll, LogSegment (append, shouldRoll, onBecomeInactiveSegment), OffsetIndex, TimeIndex,
LeaderEpochCheckpointFile, PartitionMetadataFile, CheckpointFile.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from coordinator_core.bytes.log.batch import parse_header
from coordinator_core.errors import EncodeError

SEGMENT_BYTES: Final = 100 * 1024 * 1024
"""`segment.bytes` of the coordinator topics."""
SEGMENT_MS: Final = 7 * 24 * 3600 * 1000
"""`segment.ms` by default."""
INDEX_INTERVAL_BYTES: Final = 4096
"""`index.interval.bytes` by default: bytes of log between two index entries."""
INDEX_BYTES_MAX: Final = 10 * 1024 * 1024
"""`segment.index.bytes` by default: a full index ends its segment."""
RELATIVE_OFFSET_MAX: Final = 2**31 - 1
"""Indexes store offsets relative to the segment's base offset."""

OFFSET_ENTRY: Final = struct.Struct(">ii")
"""Relative offset of the last record of a batch, byte position of the batch."""
TIME_ENTRY: Final = struct.Struct(">qi")
"""Largest timestamp so far in epoch ms, relative offset of the last record of its batch."""

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"


class LogFile(NamedTuple):
    """A file of a partition folder."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class SegmentRules:
    """When a segment is rolled; the defaults are those of a coordinator topic."""

    segment_bytes: int = SEGMENT_BYTES
    segment_ms: int = SEGMENT_MS
    index_interval_bytes: int = INDEX_INTERVAL_BYTES
    index_bytes_max: int = INDEX_BYTES_MAX


@dataclass(slots=True)
class _Segment:
    """A segment that is being filled."""

    base_offset: int
    rules: SegmentRules
    log: bytearray = field(default_factory=bytearray)
    offset_index: bytearray = field(default_factory=bytearray)
    time_index: bytearray = field(default_factory=bytearray)
    first_timestamp_ms: int | None = None
    max_timestamp_ms: int = -1
    offset_of_max_timestamp: int = 0
    bytes_since_index_entry: int = 0

    def has_room_for(self, size: int, last_offset: int, max_timestamp_ms: int) -> bool:
        """Whether the next batch still belongs here (LogSegment.shouldRoll)."""
        if not self.log:
            return True
        first_ms = max_timestamp_ms if self.first_timestamp_ms is None else self.first_timestamp_ms
        return (
            len(self.log) + size <= self.rules.segment_bytes
            and max_timestamp_ms - first_ms <= self.rules.segment_ms
            and last_offset - self.base_offset <= RELATIVE_OFFSET_MAX
            and len(self.offset_index) + OFFSET_ENTRY.size <= self.rules.index_bytes_max
            and len(self.time_index) + TIME_ENTRY.size < self.rules.index_bytes_max
        )

    def append(self, batch: bytes, last_offset: int, max_timestamp_ms: int) -> None:
        """Append a batch, and index entries where enough bytes came since the last ones."""
        if self.first_timestamp_ms is None and max_timestamp_ms >= 0:
            self.first_timestamp_ms = max_timestamp_ms
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms, self.offset_of_max_timestamp = max_timestamp_ms, last_offset
        if self.bytes_since_index_entry > self.rules.index_interval_bytes:
            self.offset_index += OFFSET_ENTRY.pack(last_offset - self.base_offset, len(self.log))
            self.index_time()
            self.bytes_since_index_entry = 0
        self.log += batch
        self.bytes_since_index_entry += len(batch)

    def index_time(self) -> None:
        """Add the largest timestamp to the time index, unless the index has it (TimeIndex.maybeAppend)."""
        known_ms = (
            TIME_ENTRY.unpack_from(self.time_index, len(self.time_index) - TIME_ENTRY.size)[0]
            if (self.time_index)
            else -1
        )
        if self.max_timestamp_ms > known_ms:
            self.time_index += TIME_ENTRY.pack(self.max_timestamp_ms, self.offset_of_max_timestamp - self.base_offset)

    def files(self) -> Iterator[LogFile]:
        self.index_time()
        name = f"{self.base_offset:020d}"
        yield LogFile(f"{name}.log", bytes(self.log))
        yield LogFile(f"{name}.index", bytes(self.offset_index))
        yield LogFile(f"{name}.timeindex", bytes(self.time_index))


def segment_files(
    batches: Iterable[bytes], *, start_offset: int = 0, rules: SegmentRules | None = None
) -> Iterator[LogFile]:
    """`.log`, `.index` and `.timeindex` of every segment, in order, for complete batches of magic 2 in log order.

    The name of the first segment is `start_offset`, that of each later one its first batch's base offset; without
    batches there is one empty segment. Raises EncodeError if a batch begins before the end of the previous one.
    """
    rules = rules or SegmentRules()
    segment = _Segment(start_offset, rules)
    next_offset = start_offset
    for batch in batches:
        header = parse_header(batch)
        if header.base_offset < next_offset:
            raise EncodeError(f"a batch at offset {header.base_offset} where {next_offset} is next")
        if not segment.has_room_for(len(batch), header.last_offset, header.max_timestamp_ms):
            yield from segment.files()
            segment = _Segment(header.base_offset, rules)
        segment.append(batch, header.last_offset, header.max_timestamp_ms)
        next_offset = header.last_offset + 1
    yield from segment.files()


def leader_epoch_checkpoint(epochs: Sequence[tuple[int, int]]) -> LogFile:
    """`leader-epoch-checkpoint` of (leader epoch, start offset), both ascending."""
    return LogFile(LEADER_EPOCH_CHECKPOINT, _checkpoint([f"{epoch} {start}" for epoch, start in epochs]))


def partition_metadata(topic_id: str) -> LogFile:
    """`partition.metadata`: the topic id, 22 characters, as in the cluster's metadata."""
    return LogFile(PARTITION_METADATA, f"version: 0\ntopic_id: {topic_id}\n".encode())


def offset_checkpoint(name: str, offsets: Mapping[tuple[str, int], int]) -> LogFile:
    """A checkpoint in the log directory, such as `log-start-offset-checkpoint`: offsets by (topic, partition)."""
    return LogFile(
        name, _checkpoint([f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()])
    )


def _checkpoint(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)).encode()
