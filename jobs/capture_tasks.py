"""What a task of capture does: read, check and write what bronze lacks of some log partitions.

A log partition is read from each source that has it, in their order; the first which has an offset gives it. Reads come
one by one and none is kept: memory is bounded by one read, whatever the size of the log.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from coordinator_core.coverage import CoverageKind, CoverageRange, merge_coverage, subtract, union
from coordinator_core.limits import QUARANTINE_BYTES_MAX
from coordinator_core.log.chunk import BatchColumns
from coordinator_core.log.scan import LOOK_BACK_BYTES
from jobs.capture_writer import CaptureRun, LogWriter, OffsetRange
from jobs.coverage import CoverageScan, LogPartition
from jobs.errors import JobError
from jobs.part_files import PartTarget, WrittenFile
from jobs.quarantine import OVERLAPPING_BATCH, UNREADABLE_FILE
from jobs.sources.segments import SEGMENT, PartitionLog, Segment, SegmentRead, read_segment
from jobs.times import epoch_ms

if TYPE_CHECKING:
    from jobs.sources.broker import Broker
    from jobs.sources.broker_log import BrokerLog
    from jobs.sources.dumps import DumpLog
    from jobs.sources.fetch import LogRange


@dataclass(frozen=True, slots=True)
class LogWork:
    """One log partition, or a part of a large one, as far as it is not known yet.

    It is read from each source that has it, segment files first, then the broker, then dumps, which tell least; the
    first which has an offset gives it.
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

    @property
    def size_bytes(self) -> int:
        """Bytes to read, as far as that can be told before."""
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


OFFSET_BYTES: Final = 100
"""About what an offset takes in a coordinator's log: the bytes of a live log are not known before they are read."""
SETTLED_READ_MAX: Final = 10_000
"""So many settled offsets are sooner read again than left out by a request of their own."""


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
    torn_count: int = 0
    """Torn tails of newest segments: Kafka was writing, the rest comes with the next capture."""
    known: dict[LogPartition, list[OffsetRange]] = field(default_factory=dict)
    """Offsets which the files span, damaged batches aside."""
    damaged: dict[LogPartition, set[int]] = field(default_factory=dict)
    """Base offsets of damaged batches written."""
    error: JobError | None = None
    """Why the task could not be done: no use to try it again, as Spark would if it were raised."""


class _Ranges:
    """Ascending, disjoint offset ranges, to be asked often."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        self._firsts = np.array([first for first, _ in ranges], np.int64)
        self._lasts = np.array([last for _, last in ranges], np.int64)

    def last_from(self, first: int) -> int:
        """The last offset up to which all from `first` on are in one of them; less than `first` where that is not."""
        index = int(np.searchsorted(self._firsts, first, side="right")) - 1
        return int(self._lasts[index]) if index >= 0 else -1

    def compared(self, batches: BatchColumns) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """(is within one range, overlaps with ranges without being within one), one bool a batch."""
        if not len(self._firsts):
            nothing = np.zeros(len(batches), np.bool_)
            return nothing, nothing.copy()
        nearest = np.searchsorted(self._firsts, batches.last_offset, side="right") - 1
        overlaps = (nearest >= 0) & (self._lasts[nearest] >= batches.base_offset)
        within = (
            overlaps & (self._firsts[nearest] <= batches.base_offset) & (self._lasts[nearest] >= batches.last_offset)
        )
        return within, overlaps & ~within


SETTLED: Final = frozenset({CoverageKind.CAPTURED, CoverageKind.COMPACTED})
"""What is so need not be read again, from any source."""


def run_task(task: CaptureTask) -> TaskDone:
    """Read, check and write the log partitions of one task."""
    try:
        return _run(task)
    except JobError as error:
        return TaskDone(error=error)


def _run(task: CaptureTask) -> TaskDone:
    """One kind of source after the other."""
    done = TaskDone()
    captures = [_LogCapture(task, work, done) for work in task.work]
    for it in captures:
        for log in it.work.segments:
            _capture_segments(it, log, done)
    if any(it.work.live is not None for it in captures):
        _capture_live(task, captures)
    for it in captures:
        for dump in it.work.dumps:
            _capture_dump(it, dump)
    for it in captures:
        it.finish()
    return done


def _capture_segments(capture: "_LogCapture", log: PartitionLog, done: TaskDone) -> None:
    """The segments which are not wholly settled, mapped and framed. One that cannot be read is quarantined by name.

    Where the beginning of one is settled, since it has grown or offsets are missing behind it, what follows the last
    batch of that is read alone.
    """
    settled_from = _Ranges(capture.settled).last_from
    capture.begin(log.log_start_offset)
    next_offset_min = 0
    for index, segment in enumerate(log.segments):
        end = log.segments[index + 1].base_offset if index + 1 < len(log.segments) else capture.work.offset_end
        settled_to = settled_from(segment.base_offset)
        if end is not None and settled_to >= end - 1:
            capture.end(segment.base_offset)
            capture.begin(log.log_start_offset)
            continue
        known = capture.work.end_within(segment.base_offset, settled_to)
        done.read_sources[segment.path] = 0
        try:
            read = read_segment(segment, next_offset_min=next_offset_min, known=known)
        except OSError as error:
            message = f"{segment.path} cannot be read: {error.strerror or type(error).__name__}"
            capture.quarantine(segment, stage="FILE", code=UNREADABLE_FILE, message=message)
            capture.end(segment.base_offset)
            capture.begin(log.log_start_offset)
            continue
        if read.is_end:
            capture.end(segment.base_offset)
            capture.begin(log.log_start_offset, int(read.scan.batches.base_offset[0]))
            done.read_sources[segment.path] = int(read.scan.batches.position[0])
        next_offset_min = read.scan.next_offset
        capture.add(read)
    capture.end(capture.work.offset_end)
    capture.end_source()


def _capture_dump(capture: "_LogCapture", log: "DumpLog") -> None:
    """What a dump has beside all that is known: only that is packed into batches, so none of them overlaps."""
    from jobs.sources.dumps import read_dump_log  # noqa: PLC0415  (a capture without dumps need not load it)

    capture.begin(None)
    for read in read_dump_log(log, known=capture.known):
        capture.add(read)
    capture.end(None)
    capture.end_source()


def _capture_live(task: CaptureTask, captures: Sequence["_LogCapture"]) -> None:
    """What the broker has of several log partitions, over one connection."""
    from jobs.sources.broker import Broker  # noqa: PLC0415  (a capture of files need not load Kafka's client)

    waiting = [(it, it.work.live, it.work.wanted(it.settled)) for it in captures if it.work.live is not None]
    for it, log, wanted in waiting:
        if not wanted:
            it.begin(log.log_start_offset)  # what it says of offsets that are deleted
            it.end(None)
    waiting = [it for it in waiting if it[2]]
    if not waiting:
        return
    with Broker.connect(waiting[0][1].address, timeout_ms=task.request_timeout_ms) as broker:
        while waiting:
            # a request names a log partition once
            ranges = {log.range(wanted[0][0], wanted[0][1] + 1): it for it, log, wanted in waiting}
            _capture_ranges(broker, ranges, task.fetch_bytes_max)
            waiting = [(it, log, wanted[1:]) for it, log, wanted in waiting if wanted[1:]]
    for it in captures:
        it.end_source()


def _capture_ranges(broker: "Broker", ranges: "Mapping[LogRange, _LogCapture]", fetch_bytes_max: int) -> None:
    from jobs.sources.broker_log import read_ranges  # noqa: PLC0415

    opened: LogRange | None = None
    unread = dict(ranges)
    for chosen, read in read_ranges(broker, ranges, fetch_bytes_max=fetch_bytes_max):
        if chosen is not opened:
            if opened is not None:
                ranges[opened].end_live(opened)
            opened = chosen
            unread.pop(chosen).begin_live(chosen)
        ranges[chosen].add(read)
    if opened is not None:
        ranges[opened].end_live(opened)
    for chosen, capture in unread.items():
        capture.begin_live(chosen)
        capture.end_live(chosen)


class _LogCapture:
    """One log partition on its way into bronze: takes reads in the order of offsets, stretch by stretch."""

    def __init__(self, task: CaptureTask, work: LogWork, done: TaskDone) -> None:
        self._task = task
        self.work = work
        self._done = done
        self.known = list(work.known)
        self._known_ranges = _Ranges(self.known)
        self.settled = list(work.settled)
        self._damaged = set(work.damaged)
        self._observed: list[CoverageRange] = []
        self._writer = LogWriter(task.target, work, task.run)
        self._scan: CoverageScan | None = None
        self._count = done.topics.setdefault(work.topic, TopicCount())
        self._count.partition_count += work.offset_end is None

    def begin(self, log_start_offset: int | None, from_offset: int | None = None) -> None:
        """A stretch begins: offsets are looked at one after another."""
        self._scan = CoverageScan(
            self.work.topic,
            log_start_offset=log_start_offset,
            observed_at_ms=epoch_ms(self._task.run.captured_at),
            from_offset=from_offset,
        )

    def begin_live(self, chosen: "LogRange") -> None:
        """A range of the live log begins."""
        assert self.work.live is not None
        self.begin(self.work.live.log_start_offset, chosen.from_offset)

    def end_live(self, chosen: "LogRange") -> None:
        """It ends. The last offsets of a piece may be those of a batch which comes with the next."""
        assert self.work.live is not None
        may_cut = self.work.is_piece and chosen.to_offset == self.work.live.next_offset
        self.end(None if may_cut else chosen.to_offset)

    def add(self, read: SegmentRead) -> None:
        """Write what bronze lacks of the next read."""
        assert self._scan is not None
        chosen, rejected = self._choose(read)
        self._writer.write(read, chosen)
        self._scan.add(read, rejected)
        batches = read.scan.batches
        self._count.batch_count += int(chosen.sum())
        self._count.record_count += int(batches.record_count[chosen].sum())
        self._count.size_bytes += int(batches.size[chosen].sum())
        self._quarantine_findings(read)

    def end(self, offset_end: int | None) -> None:
        """The stretch ends; what was looked at ends at `offset_end`, exclusive, or (None) with its last batch."""
        assert self._scan is not None
        self._observed += self._scan.finish(offset_end)
        self._scan = None
        self._writer.close()

    def end_source(self) -> None:
        """The next source need not give what this one gave."""
        self.known = union([*self.known, *self._writer.ranges])
        self._known_ranges = _Ranges(self.known)
        gave = ((r.from_offset, r.to_offset) for r in self._observed if r.kind in SETTLED)
        self.settled = union([*self.settled, *gave])
        self._damaged |= self._writer.damaged

    def finish(self) -> None:
        """Tell what was written and seen."""
        place = self.work.topic, self.work.partition
        self._done.files += self._writer.files
        self._done.coverage.append((place, merge_coverage(self._observed, ())))
        self._done.known.setdefault(place, []).extend(self._writer.ranges)
        self._done.damaged.setdefault(place, set()).update(self._writer.damaged)

    def quarantine(self, segment: Segment, *, stage: str, code: str, message: str, **place: Any) -> None:
        """Add a row to bronze.quarantine."""
        row = dict.fromkeys(("offset", "base_offset", "byte_position", "bytes"))
        self._done.quarantine.append(
            row
            | {
                "cluster_id": self._task.run.cluster_id,
                "topic": self.work.topic,
                "partition": self.work.partition,
                "stage": stage,
                "code": code,
                "message": message,
                "source": segment.path,
                "seen_at": self._task.run.captured_at,
            }
            | place
        )

    def _choose(self, read: SegmentRead) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """(batches which bronze lacks, good ones which it has in part), one bool each.

        The latter go into quarantine: two rows may not overlap.
        """
        batches, crc_valid = read.scan.batches, read.scan.crc_valid
        is_known, is_partial = self._known_ranges.compared(batches)
        if self.work.offset_end is not None and read.segment.source_kind == SEGMENT:
            is_partial |= batches.last_offset >= self.work.offset_end
        if self._damaged:
            is_known |= np.isin(batches.base_offset, sorted(self._damaged))
        rejected = is_partial & crc_valid & ~is_known
        for row in np.flatnonzero(rejected).tolist():
            start = int(batches.position[row])
            size_bytes = min(int(batches.size[row]), QUARANTINE_BYTES_MAX)
            self.quarantine(
                read.segment,
                stage="BATCH",
                code=OVERLAPPING_BATCH,
                message="some of its offsets are in bronze already, some are not",
                base_offset=int(batches.base_offset[row]),
                byte_position=start if read.segment.source_kind == SEGMENT else None,
                bytes=read.data.slice(start, size_bytes).to_pybytes(),
            )
        return ~is_known & ~is_partial, rejected

    def _quarantine_findings(self, read: SegmentRead) -> None:
        is_file = read.segment.source_kind == SEGMENT
        for finding in read.scan.findings:
            if not is_file and finding.base_offset in self._damaged:
                continue  # it was found before; a position in an answer says nothing by which to know it again
            self._done.torn_count += finding.code == "TRUNCATED_BATCH" and read.segment.is_last
            self.quarantine(
                read.segment,
                stage=finding.stage,
                code=finding.code,
                message=finding.message,
                offset=finding.offset,
                base_offset=finding.base_offset,
                byte_position=finding.byte_position if is_file else None,
                bytes=finding.payload,
            )
