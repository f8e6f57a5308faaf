"""What a task of capture gets and what it gives back."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from coordinator_core.coverage import CoverageKind, CoverageRange, subtract
from coordinator_core.log.copies import Lineage
from coordinator_core.log.scan import LOOK_BACK_BYTES
from coordinator_core.log_partitions import LogPartition, OffsetRange
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
"""About what an offset takes in a coordinator's log: the bytes of a live log are not known before they are read."""
SETTLED_READ_MAX: Final = 10_000
"""So many settled offsets are sooner read again than left out by a request of their own."""
SETTLED: Final = frozenset({CoverageKind.CAPTURED, CoverageKind.COMPACTED})
"""What is so need not be read again, from any source."""


@dataclass(frozen=True, slots=True)
class LogWork:
    """One log partition, or a part of a large one, as far as it is not known yet.

    It is read from each source that has it, segment files first, then the broker, then dumps, which tell least.
    """

    topic: str
    partition: int
    segments: tuple[PartitionLog, ...] = ()
    live: "BrokerLog | None" = None
    dumps: "tuple[DumpLog, ...]" = ()
    from_offset: int = 0
    """Where the live log is read from."""
    is_piece: bool = False
    """The live log goes on behind what is read of it: that may end in the middle of a batch."""
    offset_end: int | None = None
    """Where the next part of the same log begins, exclusive; None at its end."""
    known: tuple[OffsetRange, ...] = ()
    """Offsets which bronze has already; ascending, disjoint."""
    settled: tuple[OffsetRange, ...] = ()
    """Offsets which need not be read: bronze has them, or compaction left nothing there."""
    damaged: frozenset[int] = frozenset()
    """Base offsets of damaged batches which bronze has already."""
    ends: tuple[OffsetRange, ...] = ()
    """First and last offset of the batches behind which bronze lacks something; ascending."""
    files: tuple[TableFile, ...] = ()
    """Bronze's, damaged batches too: read where a source has offsets that they have."""
    read_files: Mapping[str, ReadFile] = field(default_factory=dict)
    """Files of sources which were read and compared before, by path."""
    dropped: tuple[OffsetRange, ...] = ()
    """Offsets which retention took out of bronze; ascending, disjoint."""
    lineage: Lineage | None = None
    """Where leader epochs begin, as far as it is known; None: bronze was never asked."""
    dumped: tuple[DumpedRange, ...] = ()
    """At which offsets dumps of rows had records; ascending, disjoint."""
    left_out: tuple[bytes, ...] = ()
    """Records of dumps in place of which others count, each as a batch."""
    parted: tuple[LeftOut, ...] = ()
    """Batches without a leader epoch in place of which those of other copies count."""

    @property
    def has_unread(self) -> bool:
        """Is there a file which was never compared with what bronze has?"""
        return any(
            (read := self.read_files.get(segment.path)) is None
            or not (read.is_still(segment) or read.may_have_grown(segment))
            for log in self.segments
            for segment in log.segments
        )

    @property
    def source_count(self) -> int:
        """How many sources have it."""
        return len(self.segments) + (self.live is not None) + len(self.dumps)

    @property
    def size_bytes(self) -> int:
        """Bytes to read, as far as they are known before."""
        live_bytes = OFFSET_BYTES * sum(last - first + 1 for first, last in self.wanted(self.settled))
        dump_bytes = sum(dump.size_bytes for dump in self.dumps)
        return live_bytes + dump_bytes + sum(log.size_bytes for log in self.segments)

    @property
    def unread_bytes(self) -> int:
        """The same, less what is known of segments; of one that may have grown its end, whatever that comes to."""
        newest = self.ends[-1][0] if self.ends else -1
        known_bytes = 0
        for log in self.segments:
            known = [segment.size_bytes for segment in log.segments if segment.base_offset <= newest]
            known_bytes += sum(known) - min(known[-1], LOOK_BACK_BYTES) if known else 0
        return self.size_bytes - known_bytes

    def end_within(self, first: int, last: int) -> OffsetRange | None:
        """The last of the `ends` that lies between two offsets."""
        index = bisect_right(self.ends, last, key=itemgetter(1)) - 1
        return self.ends[index] if index >= 0 and self.ends[index][0] >= first else None

    def wanted(self, settled: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Offsets to ask the broker for: what is not settled, small pieces of settled ones between them included."""
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
    """What one Spark task does."""

    target: PartTarget
    run: CaptureRun
    work: tuple[LogWork, ...]
    request_timeout_ms: int
    fetch_bytes_max: int

    @property
    def size_bytes(self) -> int:
        """How much there is to read."""
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
    """What one Spark task did."""

    files: list[WrittenFile] = field(default_factory=list)
    coverage: list[tuple[LogPartition, tuple[CoverageRange, ...]]] = field(default_factory=list)
    quarantine: list[dict[str, Any]] = field(default_factory=list)
    read_sources: dict[str, int] = field(default_factory=dict)
    """Files which were read, and from which byte on: their former quarantine rows from there on are replaced."""
    topics: dict[str, TopicCount] = field(default_factory=dict)
    known: dict[LogPartition, list[OffsetRange]] = field(default_factory=dict)
    """Offsets which the files span, damaged batches aside."""
    damaged: dict[LogPartition, set[int]] = field(default_factory=dict)
    """Base offsets of damaged batches written."""
    replaced: dict[LogPartition, list[OffsetRange]] = field(default_factory=dict)
    """Offsets that headers of damaged batches claim in place of which good ones are in bronze now."""
    removed: list[TableFile] = field(default_factory=list)
    """Files of bronze that go: what is left of them is in `files`."""
    changed: dict[LogPartition, int] = field(default_factory=dict)
    """The first offset at which bronze has other batches now, or more between those that it had."""
    rebuilt: dict[LogPartition, tuple[CoverageRange, ...]] = field(default_factory=dict)
    """Of log partitions from which batches were taken out: what all files cover then."""
    lineages: dict[LogPartition, Lineage] = field(default_factory=dict)
    compared: dict[LogPartition, list[ReadFile]] = field(default_factory=dict)
    """Files of sources that were read."""
    disproved: dict[LogPartition, set[tuple[int, int]]] = field(default_factory=dict)
    """(leader epoch, base offset) of batches that were in bronze and whose epochs are damaged."""
    dumped: dict[LogPartition, tuple[DumpedRange, ...]] = field(default_factory=dict)
    """At which offsets dumps of rows had records, those of before included."""
    error: JobError | None = None
    """Why the task could not be done: no use to try it again, as Spark would if it were raised."""
