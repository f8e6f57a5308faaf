"""The input and the result of a capture task."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from coordinator_core.bytes.coverage import CoverageKind, CoverageRange, subtract
from coordinator_core.bytes.log.copies import Lineage
from coordinator_core.bytes.log.scan import LOOK_BACK_BYTES
from coordinator_core.bytes.log_partitions import LogPartition, OffsetRange
from jobs.bronze.copies import DumpedRange, LeftOut, ReadFile
from jobs.bronze.writer import CaptureRun
from jobs.delta.part_files import PartTarget, WrittenFile
from jobs.delta.table_files import TableFile
from jobs.errors import JobError
from jobs.sources.segments import PartitionLog

if TYPE_CHECKING:
    from jobs.sources.broker_log import BrokerLog
    from jobs.sources.dumps.dump_log import DumpLog

OFFSET_BYTES: Final = 100
"""Estimated bytes per offset of a coordinator's log; the size of a live log is not known before it is read."""
SETTLED_READ_MAX: Final = 10_000
"""Up to this many settled offsets are read again to avoid an additional request."""
SETTLED: Final = frozenset({CoverageKind.CAPTURED, CoverageKind.COMPACTED})
"""Ranges of these kinds need not be read again, from any source."""


@dataclass(frozen=True, slots=True)
class LogWork:
    """The work on one log partition, or on a part of a large one.

    It is read from each source that has it: segment files first, then the broker, then dumps, which know least of
    batches.
    """

    topic: str
    partition: int
    segments: tuple[PartitionLog, ...] = ()
    live: "BrokerLog | None" = None
    dumps: "tuple[DumpLog, ...]" = ()
    from_offset: int = 0
    """Offset from which the live log is read."""
    is_piece: bool = False
    """The live log continues after what is read, so the read may end in the middle of a batch."""
    offset_end: int | None = None
    """Where the next part of the same log begins, exclusive; None at its end."""
    is_part: bool = False
    """Other items have other segments of the same log."""
    known: tuple[OffsetRange, ...] = ()
    """Offsets that bronze has already; ascending, disjoint."""
    settled: tuple[OffsetRange, ...] = ()
    """Offsets that need not be read: bronze has them, or compaction removed all their records."""
    damaged: frozenset[int] = frozenset()
    """Base offsets of damaged batches that bronze has already."""
    ends: tuple[OffsetRange, ...] = ()
    """First and last offset of the batches after which bronze has a gap; ascending."""
    files: tuple[TableFile, ...] = ()
    """Files of bronze, those of damaged batches too; opened where a source has overlapping offsets."""
    read_files: Mapping[str, ReadFile] = field(default_factory=dict)
    """Files of sources that were read and compared before, by path."""
    dropped: tuple[OffsetRange, ...] = ()
    """Offsets that retention deleted from bronze; ascending, disjoint."""
    lineage: Lineage | None = None
    """Known start offsets of leader epochs; None: not read from bronze yet."""
    dumped: tuple[DumpedRange, ...] = ()
    """Offsets at which dumps of rows had records; ascending, disjoint."""
    left_out: tuple[bytes, ...] = ()
    """Records of dumps that others replaced, each as a batch."""
    parted: tuple[LeftOut, ...] = ()
    """Batches without a leader epoch that batches of other copies replaced."""

    @property
    def has_unread(self) -> bool:
        """Is there a file that was never compared with bronze?"""
        return any(
            (read := self.read_files.get(segment.path)) is None
            or not (read.is_still(segment) or read.may_have_grown(segment))
            for log in self.segments
            for segment in log.segments
        )

    @property
    def source_count(self) -> int:
        """Number of sources that have the log partition."""
        return len(self.segments) + (self.live is not None) + len(self.dumps)

    @property
    def size_bytes(self) -> int:
        """Bytes to read, estimated where they are not known."""
        live_bytes = OFFSET_BYTES * sum(last - first + 1 for first, last in self.wanted(self.settled))
        dump_bytes = sum(dump.size_bytes for dump in self.dumps)
        return live_bytes + dump_bytes + sum(log.size_bytes for log in self.segments)

    @property
    def unread_bytes(self) -> int:
        """`size_bytes` without the parts of segments that bronze has; of the newest one, at least its end counts."""
        newest = self.ends[-1][0] if self.ends else -1
        known_bytes = 0
        for log in self.segments:
            known = [segment.size_bytes for segment in log.segments if segment.base_offset <= newest]
            known_bytes += sum(known) - min(known[-1], LOOK_BACK_BYTES) if known else 0
        return self.size_bytes - known_bytes

    def end_within(self, first: int, last: int) -> OffsetRange | None:
        index = bisect_right(self.ends, last, key=itemgetter(1)) - 1
        return self.ends[index] if index >= 0 and self.ends[index][0] >= first else None

    def wanted(self, settled: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Offsets to fetch from the broker: those that are not settled, and short settled ranges between them."""
        if self.live is None:
            return []
        first = max(self.from_offset, self.live.log_start_offset)
        last = (self.live.next_offset if self.offset_end is None else self.offset_end) - 1
        wanted: list[OffsetRange] = []
        for start, stop in subtract([(first, last)], settled) if first <= last else ():
            if wanted and start - wanted[-1][1] <= SETTLED_READ_MAX:
                wanted[-1] = wanted[-1][0], stop
            else:
                wanted.append((start, stop))
        return wanted


@dataclass(frozen=True, slots=True)
class CaptureTask:
    """The input of one Spark task."""

    target: PartTarget
    run: CaptureRun
    work: tuple[LogWork, ...]
    request_timeout_ms: int
    fetch_bytes_max: int

    @property
    def size_bytes(self) -> int:
        return sum(item.size_bytes for item in self.work)


@dataclass(slots=True)
class TopicCount:
    """What was captured of one topic."""

    partition_count: int = 0
    batch_count: int = 0
    record_count: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class TaskDone:
    """The result of one Spark task."""

    files: list[WrittenFile] = field(default_factory=list)
    coverage: list[tuple[LogPartition, tuple[CoverageRange, ...]]] = field(default_factory=list)
    quarantine: list[dict[str, Any]] = field(default_factory=list)
    read_sources: dict[str, int] = field(default_factory=dict)
    """Files that were read, and from which byte: their former quarantine rows from there on are replaced."""
    topics: dict[str, TopicCount] = field(default_factory=dict)
    known: dict[LogPartition, list[OffsetRange]] = field(default_factory=dict)
    """Offsets that the files span, without damaged batches."""
    damaged: dict[LogPartition, set[int]] = field(default_factory=dict)
    """Base offsets of damaged batches written."""
    replaced: dict[LogPartition, list[OffsetRange]] = field(default_factory=dict)
    """Offsets that only headers of damaged batches claim, where bronze now has intact batches."""
    removed: list[TableFile] = field(default_factory=list)
    """Files to be removed from bronze; the batches that remain of them are in `files`."""
    changed: dict[LogPartition, int] = field(default_factory=dict)
    """The first offset at which bronze has replaced or additional batches now."""
    rebuilt: dict[LogPartition, tuple[CoverageRange, ...]] = field(default_factory=dict)
    """For log partitions from which batches were removed: coverage of all remaining files."""
    lineages: dict[LogPartition, Lineage] = field(default_factory=dict)
    compared: dict[LogPartition, list[ReadFile]] = field(default_factory=dict)
    """Files of sources that were read."""
    disproved: dict[LogPartition, set[tuple[int, int]]] = field(default_factory=dict)
    """(leader epoch, base offset) of batches in bronze whose leader epochs proved to be damaged."""
    dumped: dict[LogPartition, tuple[DumpedRange, ...]] = field(default_factory=dict)
    """Offsets at which dumps of rows had records, including earlier dumps."""
    has_moved: bool = False
    """Files of a part of a log were replaced before they were opened: its parts may no longer be those planned."""
    error: JobError | None = None
    """Why the task failed. Not raised: Spark would retry the task, in vain."""
