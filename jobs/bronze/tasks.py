"""What a task of capture does: read, check and write what bronze lacks of some log partitions.

A log partition is read from each source that has it. Where several have an offset, `coordinator_core.log.copies` says
which batch counts, whatever their order; what it replaces is taken out of bronze. Reads come one by one and none is
kept: memory is bounded by one read, and by the headers of what two sources both have.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from coordinator_core.coverage import CoverageKind, CoverageRange, subtract, union
from coordinator_core.errors import TruncatedBatch
from coordinator_core.limits import QUARANTINE_BYTES_MAX
from coordinator_core.log.batch import build_batch
from coordinator_core.log.chunk import BatchColumns, Finding
from coordinator_core.log.copies import UNKNOWN_EPOCH, BatchRows, Lineage, Origin, choose, out_of_order
from coordinator_core.log.fill import is_same_but_for_latest_time, uncompressed
from coordinator_core.log.records import crc_valid_batches, frame_chunk
from coordinator_core.log.scan import LOOK_BACK_BYTES
from jobs.bronze.batches import BronzeBatches, Difference, covered_by, written_as_table_file
from jobs.bronze.copies import DumpedRange, ReadFile, with_dumped
from jobs.bronze.coverage import COMPACTED_TOPICS, NOT_IN_DUMP, CoverageScan, LogPartition
from jobs.bronze.quarantine import COPIES_DIFFER, COPIES_PART, EPOCH_OUT_OF_ORDER, OVERLAPPING_BATCH
from jobs.bronze.writer import CaptureRun, LogWriter, OffsetRange
from jobs.delta.filesystems import delete_file
from jobs.delta.part_files import PartTarget, WrittenFile
from jobs.delta.times import epoch_ms
from jobs.delta.warehouse import TableFile
from jobs.errors import JobError
from jobs.sources.segments import (
    DUMP,
    SEGMENT,
    UNREADABLE_FILE,
    PartitionLog,
    Segment,
    SegmentRead,
    as_array,
    read_first_epoch,
    read_leader_epochs,
    read_segment,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.sources.broker import Broker
    from jobs.sources.broker_log import BrokerLog
    from jobs.sources.dumps.source import DumpLog
    from jobs.sources.fetch import LogRange


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


MISPLACED_MAX: Final = 1_000
"""So many batches out of their place are compared with those of bronze; where there are more, they count as others."""
TORN: Final = TruncatedBatch.code
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
    known: dict[LogPartition, list[OffsetRange]] = field(default_factory=dict)
    """Offsets which the files span, damaged batches aside."""
    damaged: dict[LogPartition, set[int]] = field(default_factory=dict)
    """Base offsets of damaged batches written."""
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
    """The segments which are not wholly settled, or were never compared, mapped and framed. One that cannot be read is
    quarantined by name.

    Where the beginning of one is settled and was compared, since it has grown or offsets are missing behind it, what
    follows the last batch of that is read alone.
    """
    settled_from = _Ranges(capture.settled).last_from
    capture.begin(log.log_start_offset)
    if log.leader_epochs is not None and not capture.was_read(log.leader_epochs):
        capture.learn(read_leader_epochs(log.leader_epochs))
        capture.note_read(log.leader_epochs)
    next_offset_min = 0
    for index, segment in enumerate(log.segments):
        end = log.segments[index + 1].base_offset if index + 1 < len(log.segments) else capture.work.offset_end
        follower = log.segments[index + 1] if index + 1 < len(log.segments) else None
        capture.expect(end, None if follower is None else read_first_epoch(follower))
        settled_to = settled_from(segment.base_offset)
        was_read = capture.was_read(segment)
        if was_read and end is not None and settled_to >= end - 1:
            capture.end(segment.base_offset)
            capture.begin(log.log_start_offset)
            continue
        done.read_sources[segment.path] = 0
        try:
            read = _read_segment(capture, segment, settled_to, next_offset_min)
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
        capture.note_read(segment, read)
    capture.end(capture.work.offset_end)
    capture.end_source()


def _read_segment(capture: "_LogCapture", segment: Segment, settled_to: int, next_offset_min: int) -> SegmentRead:
    """The whole segment; its end where the rest was compared before and did not change since. Raises OSError."""
    before = capture.work.read_files.get(segment.path)
    known: OffsetRange | None = None
    if before is not None and before.is_still(segment):
        known = capture.work.end_within(segment.base_offset, settled_to)
    elif before is not None and before.may_have_grown(segment):
        assert before.base_offset is not None
        assert before.last_offset is not None
        if before.last_offset <= settled_to:
            known = before.base_offset, before.last_offset
    read = read_segment(segment, next_offset_min=next_offset_min, known=known)
    if read.is_end and before is not None and not before.is_still(segment):
        batches = read.scan.batches
        if int(batches.position[0] + batches.size[0]) != before.end_position:
            # not the file that grew, but another in its place
            return read_segment(segment, next_offset_min=next_offset_min)
    return read


def _capture_dump(capture: "_LogCapture", log: "DumpLog") -> None:
    """Rows of a dump at offsets that no batch spans are packed into batches, so none of them overlaps. The others are
    put into the batches that span them, where these lack them."""
    from jobs.sources.dumps.source import read_dump_log  # noqa: PLC0415  (a capture without dumps need not load it)

    capture.begin(None)
    capture.leave_out(log.untold)
    known = capture.covered
    for read in read_dump_log(log, known=known, met=capture.meet if log.is_rows else None):
        capture.add(read)
    capture.end(None)
    if log.is_rows:
        capture.end_rows(log.uri)
    capture.end_source()


def _capture_live(task: CaptureTask, captures: Sequence["_LogCapture"]) -> None:
    """What the broker has of several log partitions, over one connection."""
    from jobs.sources.broker import Broker  # noqa: PLC0415  (a capture of files need not load Kafka's client)

    waiting = [(it, it.work.live, it.wanted_live()) for it in captures if it.work.live is not None]
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
        # where the last batch of bronze is not in the live log, the copies part ways before: all of it is compared
        apart = {it.work.live.range(): it for it in captures if it.parts_ways and it.work.live is not None}
        if apart:
            _capture_ranges(broker, apart, task.fetch_bytes_max)
            for it in apart.values():
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
        self._dropped = _Ranges(work.dropped)
        self.settled = list(work.settled)
        self._damaged = set(work.damaged)
        self._observed: list[CoverageRange] = []
        self._writer = LogWriter(task.target, work, task.run)
        self._there = BronzeBatches(work.files)
        self._lineage = Lineage() if work.lineage is None else work.lineage
        self._lineage_before = self._lineage
        self._probe: OffsetRange | None = None
        self.parts_ways = False
        """The last batch of bronze is not in the live log."""
        self._added_count = 0
        """Files of this run that are among those which are there."""
        self._changed_from: int | None = None
        self._epoch_before = UNKNOWN_EPOCH
        """The highest leader epoch that was read of the source."""
        self._epoch_after: int | None = None
        """That with which the next segment begins."""
        self._disproved: set[tuple[int, int]] = set()
        """(leader epoch, base offset) of batches of bronze whose headers are damaged."""
        self._misplaced: list[tuple[dict[str, Any], dict[str, int], dict[OffsetRange, bytes]]] = []
        """Of whole batches out of their place: their row of quarantine, what they may hide, and their bytes."""
        self._end: int | None = None
        """Where the next segment of the source begins."""
        self._noted: set[tuple[int, str]] = set()
        """Offsets and dumps whose difference from the log is said."""
        self._intact: list[OffsetRange] = []
        """Offsets of good batches that were read: damaged ones at these go."""
        self._dumped = work.dumped
        self._dump_ranges: list[OffsetRange] = []
        """Of the dump that is being read."""
        self._written: list[WrittenFile] = []
        self._ranges: list[OffsetRange] = []
        self._damaged_written: dict[int, WrittenFile] = {}
        self._scan: CoverageScan | None = None
        self._count = done.topics.setdefault(work.topic, TopicCount())
        self._count.partition_count += work.offset_end is None
        if work.lineage is None and work.known:
            # bronze of a release that kept no epochs
            self._there.load()
            self._lineage = self._lineage_before = self._lineage.with_batches(self._there.rows)

    @property
    def covered(self) -> list[OffsetRange]:
        """Offsets of all batches that are there, and those which retention took out."""
        return union([*self._there.ranges, *self.work.dropped])

    def wanted_live(self) -> list[OffsetRange]:
        """Offsets to ask the broker for. Where the log goes on behind bronze, the last batch there is asked for, too:
        if it is another one, copies part ways. Where the log is shorter than bronze, all of it."""
        wanted, live = self.work.wanted(self.settled), self.work.live
        if live is None or not self.known:
            return wanted
        self._lineage_before = self._lineage
        if live.next_offset <= self.known[-1][1]:
            return [(live.log_start_offset, live.next_offset - 1)] if live.log_start_offset < live.next_offset else []
        ends = [*self.work.ends[-1:]]
        if self._added_count:
            ends.append((int(self._there.rows.base_offset[-1]), int(self._there.rows.last_offset[-1])))
        base_offset, last_offset = max(ends, key=itemgetter(1), default=(-1, -1))
        if wanted and wanted[-1][0] == last_offset + 1 and base_offset >= live.log_start_offset:
            self._probe = base_offset, last_offset
            wanted[-1] = base_offset, wanted[-1][1]
        return wanted

    def _is_probed(self, batches: BatchColumns, crc_valid: NDArray[np.bool_]) -> int | None:
        """Look for the last batch of bronze in what a broker answers; its row, where it is the same batch."""
        if self._probe is None or not len(batches) or batches.last_offset[-1] < self._probe[0]:
            return None
        (base_offset, last_offset), self._probe = self._probe, None
        row = int(np.searchsorted(batches.base_offset, base_offset))
        if row < len(batches) and crc_valid[row]:
            found = int(batches.base_offset[row]), int(batches.last_offset[row])
            newest = max(self._lineage_before.seen, default=UNKNOWN_EPOCH)
            epoch = int(batches.leader_epoch[row]) if batches.magic[row] >= 2 else UNKNOWN_EPOCH
            if found == (base_offset, last_offset) and epoch == newest:
                return row
        self.parts_ways = True
        return None

    def was_read(self, file: Segment) -> bool:
        """Was a file read and compared before, and is it still the same?"""
        before = self.work.read_files.get(file.path)
        return before is not None and before.is_still(file)

    def note_read(self, file: Segment, read: SegmentRead | None = None) -> None:
        """A file was read to its end."""
        last: tuple[int | None, int | None, int] = (None, None, 0)
        if read is not None and len(batches := read.scan.batches):
            end = int(batches.position[-1] + batches.size[-1])
            last = int(batches.base_offset[-1]), int(batches.last_offset[-1]), end
        size_bytes = file.size_bytes if read is None else len(read.data)
        place = self.work.topic, self.work.partition
        self._done.compared.setdefault(place, []).append(ReadFile(file.path, size_bytes, file.modified_ns, *last))

    def learn(self, entries: Iterable[tuple[int, int]]) -> None:
        """Leader epochs of a replica, from its checkpoint."""
        self._follow(self._lineage.with_checkpoint(entries), "leader-epoch-checkpoint")

    def begin(self, log_start_offset: int | None, from_offset: int | None = None) -> None:
        """A stretch begins: offsets are looked at one after another."""
        self._scan = CoverageScan(
            self.work.topic,
            log_start_offset=log_start_offset,
            observed_at_ms=epoch_ms(self._task.run.captured_at),
            from_offset=from_offset,
        )

    def expect(self, offset_end: int | None, leader_epoch: int | None) -> None:
        """The segment that is read next ends before this offset, and goes on with this epoch; None: not known."""
        self._end, self._epoch_after = offset_end, leader_epoch

    def leave_out(self, untold: Sequence[OffsetRange]) -> None:
        """Offsets that a dump has and does not tell."""
        assert self._scan is not None
        self._scan.leave_out(untold)

    def meet(self, rows: "pa.Table", left_out: "pa.Table") -> None:
        """Rows of a dump, and those of them at offsets which batches span."""
        from jobs.sources.dumps.source import key_values, record_at  # noqa: PLC0415

        offset = np.unique(rows["offset"].to_numpy())
        starts = np.concatenate([[0], np.flatnonzero(np.diff(offset) != 1) + 1])
        ends = np.append(starts[1:], len(offset)) - 1
        if len(offset):
            self._dump_ranges += zip(offset[starts].tolist(), offset[ends].tolist(), strict=True)
        if left_out.num_rows:
            _, firsts = np.unique(left_out["offset"].to_numpy(), return_index=True)
            distinct = left_out.take(firsts).combine_chunks()
            self._there.meet(key_values(distinct), lambda row: record_at(distinct, row))

    def end_rows(self, source: str) -> None:
        """All rows of a dump were met."""
        ranges = union(self._dump_ranges)
        self._dump_ranges = []
        differences = self._there.differences()
        same = subtract(ranges, [(it.record.offset, it.record.offset) for it in differences if it.is_log])
        self._dumped = with_dumped(self._dumped, same, source)
        if ranges:
            # rows that were met are not packed: what lies between two of them is a hole of the dump all the same
            self._say_holes(ranges, ranges)
        for it in differences:
            self._note_difference(it, source)
        if (changed := self._there.changed_from()) is not None:
            self._change(changed)

    def _say_holes(self, of_dump: Sequence[OffsetRange], known: Iterable[OffsetRange]) -> None:
        """What lies between the rows of a dump, and not among those of others, has no record."""
        kind = CoverageKind.COMPACTED if self.work.topic in COMPACTED_TOPICS else CoverageKind.MISSING
        at_ms = epoch_ms(self._task.run.captured_at)
        between = subtract([(of_dump[0][0], of_dump[-1][1])], known)
        self._observed += [CoverageRange(first, last, kind, at_ms, NOT_IN_DUMP) for first, last in between]

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
        """Write the batches of the next read that count."""
        assert self._scan is not None
        read = self._with_true_epochs(read)
        chosen, rejected, silent = self._choose(read)
        self._writer.write(read, chosen)
        self._scan.add(read, rejected, silent)
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
        self._epoch_before, self._epoch_after, self._end = UNKNOWN_EPOCH, None, None
        writer = self._writer
        self._damaged_written |= writer.damaged_files
        self._written += writer.files
        self._ranges += writer.ranges
        self._damaged |= writer.damaged
        if self.work.source_count > 1 or self.parts_ways:
            self._add_written()
        self._writer = LogWriter(self._task.target, self.work, self._task.run)
        self.known = union([*self.known, *writer.ranges])
        self._known_ranges = _Ranges(self.known)
        gave = ((r.from_offset, r.to_offset) for r in self._observed if r.kind in SETTLED)
        self.settled = union([*self.settled, *gave])

    def _compare_misplaced(self) -> None:
        """Whole batches out of their place hide nothing where bronze has the same ones."""
        if not self._misplaced:
            return
        self._add_written()
        for row, hidden, batches in self._misplaced:
            if len(batches) > MISPLACED_MAX:
                continue
            self._there.load(hidden["from_offset"], hidden["to_offset"])
            there = self._there.rows
            places = {
                span: index
                for index, span in enumerate(zip(there.base_offset.tolist(), there.last_offset.tolist(), strict=True))
                if span in batches
            }
            if all(
                span in places and self._there.content(places[span])[16:] == content[16:]
                for span, content in batches.items()
            ):
                row.update(hidden)

    def finish(self) -> None:
        """Write again what other batches replaced or dumps filled; say what was written and seen."""
        self._compare_misplaced()
        place = self.work.topic, self.work.partition
        done, target = self._done, self._task.target
        bad = [offset for offset in self._damaged - self._damaged_written.keys() if _is_in(offset, self._intact)]
        for offset in [offset for offset in self._damaged_written if _is_in(offset, self._intact)]:
            delete_file(f"{target.folder}/{self._damaged_written.pop(offset).path}")
            self._count.batch_count -= 1
        files = self._written
        if self._there.has_changes:
            self._add_written()
        if self._there.has_changes or bad:
            # dumps of this run came after all that took batches out: their rows are there already
            dumped = [(first, last) for first, last, _ in self.work.dumped]
            removed, rest, discarded, now = self._there.finish(target, bad, dumped, self.work.left_out)
            differences = self._there.differences()
            for it in differences:
                self._note_difference(it, self._source_of(it.record.offset))
            others = [(it.record.offset, it.record.offset) for it in differences if it.is_log]
            if others:
                self._dumped = tuple(
                    (*part, source)
                    for first, last, source in self._dumped
                    for part in subtract([(first, last)], others)
                )
            gone = {file.path.removeprefix(f"{target.folder}/") for file in discarded}
            files = [file for file in files if file.path not in gone] + rest
            done.removed += removed
            if self._there.has_changes:
                at_ms = epoch_ms(self._task.run.captured_at)
                done.rebuilt[place] = covered_by(now, at_ms)
                # what was said of batches that went hides what others say of their offsets
                self._observed = [r for r in self._observed if r.kind is not CoverageKind.CAPTURED]
                # and what dumps say: it was hidden by batches that went
                known = [(first, last) for first, last, _ in self._dumped]
                for uri in dict.fromkeys(source for _, _, source in self._dumped):
                    self._say_holes([(first, last) for first, last, source in self._dumped if source == uri], known)
            for file in discarded:
                delete_file(file.path)
        done.files += [*files, *self._damaged_written.values()]
        # not merged yet: what a tail shows that was cut away must not hide what the log shows
        done.coverage.append((place, tuple(self._observed)))
        done.known.setdefault(place, []).extend(self._ranges)
        done.damaged.setdefault(place, set()).update(self._damaged_written)
        if self._changed_from is not None and any(last >= self._changed_from for _, last in self.work.known):
            done.changed[place] = min(self._changed_from, done.changed.get(place, self._changed_from))
        if self._disproved:
            done.disproved[place] = done.disproved.get(place, set()) | self._disproved
        if self._dumped != self.work.dumped:
            done.dumped[place] = self._dumped
        if self._lineage != self.work.lineage:
            before = done.lineages.get(place)
            done.lineages[place] = self._lineage if before is None else before.merged(self._lineage)

    def _add_written(self) -> None:
        """Files of this run are among those which are there."""
        new, self._added_count = self._written[self._added_count :], len(self._written)
        self._there.add(written_as_table_file(file, self._task.target, self._like()) for file in new)

    def _like(self) -> TableFile:
        run = self._task.run
        values = {"cluster_id": run.cluster_id, "topic": self.work.topic, "partition": self.work.partition}
        return TableFile("", 0, None, values)

    def quarantine(self, segment: Segment, *, stage: str, code: str, message: str, **place: Any) -> None:
        """Add a row to bronze.quarantine."""
        row = dict.fromkeys(("offset", "base_offset", "byte_position", "bytes", "from_offset", "to_offset"))
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

    def _with_true_epochs(self, read: SegmentRead) -> SegmentRead:
        """The same; a batch whose leader epoch cannot be its own is damaged like one whose checksum does not fit."""
        batches, crc_valid = read.scan.batches, read.scan.crc_valid
        if not read.segment.is_header_told or not len(batches):
            return read
        rows = np.flatnonzero(crc_valid & (batches.magic >= 2))
        epochs = batches.leader_epoch[rows].astype(np.int64)
        is_odd = np.zeros(len(batches), np.bool_)
        is_odd[rows[out_of_order(epochs, self._epoch_before, self._epoch_after)]] = True
        for row in rows[self._is_damaged_twin(read, rows)].tolist():
            is_odd[row] = True
        known = batches.leader_epoch[rows[~is_odd[rows]]]
        self._epoch_before = max(self._epoch_before, int(known.max(initial=UNKNOWN_EPOCH)))
        if not is_odd.any():
            return read
        findings = [self._odd_epoch(read, row) for row in np.flatnonzero(is_odd).tolist()]
        together = sorted([*read.scan.findings, *findings], key=lambda it: it.byte_position or 0)
        scan = replace(read.scan, crc_valid=crc_valid & ~is_odd, findings=tuple(together))
        return replace(read, scan=scan)

    def _is_damaged_twin(self, read: SegmentRead, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which batches are those of bronze but for a damaged leader epoch? A leader wrote them once: one of both
        epochs is damaged. Where that is the one in bronze, its batch is taken out, and what it showed of epochs
        forgotten."""
        batches = read.scan.batches
        is_twin = np.zeros(len(rows), np.bool_)
        within, partly = self._known_ranges.compared(batches)
        met = (within | partly)[rows]
        if not met.any():
            return is_twin
        self._there.load(int(batches.base_offset[rows[met][0]]), int(batches.last_offset[rows[met][-1]]))
        there = self._there.rows
        at = np.searchsorted(there.base_offset, batches.base_offset[rows])
        is_in = met & (at < len(there))
        at = np.where(is_in, at, 0)
        if is_in.any():
            epochs = batches.leader_epoch[rows]
            is_in &= (there.base_offset[at] == batches.base_offset[rows]) & (epochs != there.leader_epoch[at])
            is_in &= (there.origin[at] == Origin.LOG) & (there.last_offset[at] == batches.last_offset[rows])
            is_in &= there.leader_epoch[at] != UNKNOWN_EPOCH
        is_out = np.zeros(len(there), np.bool_)
        for index in np.flatnonzero(is_in).tolist():
            start, size = int(batches.position[rows[index]]), int(batches.size[rows[index]])
            row = int(at[index])
            coming, kept = read.data.slice(start, size).to_pybytes(), self._there.content(row)
            if coming[16:] != kept[16:]:
                continue
            # the epoch that a neighbour has, too, is the right one; else a high one does the greater harm
            come_is_alone = not _has_neighbour(batches.leader_epoch[rows], index)
            there_is_alone = not _has_neighbour(there.leader_epoch, row)
            is_higher = bool(batches.leader_epoch[rows[index]] > there.leader_epoch[row])
            if come_is_alone if come_is_alone != there_is_alone else is_higher:
                is_twin[index] = True
            else:
                is_out[row] = True
        if is_out.any():
            gone = there.take(is_out)
            self._disproved |= set(zip(gone.leader_epoch.tolist(), gone.base_offset.tolist(), strict=True))
            self._lineage = self._lineage.without(self._disproved)
            self._change(int(gone.base_offset.min()))
            for row in np.flatnonzero(is_out).tolist():
                self._note_disproved(row, read)
            self._there.take_out(is_out)
            self._forget(zip(gone.base_offset.tolist(), gone.last_offset.tolist(), strict=True))
        return is_twin

    def _forget(self, ranges: Iterable[OffsetRange]) -> None:
        """Bronze has some offsets no more: what is read next may bring them."""
        self.known = subtract(self.known, ranges)
        self._known_ranges = _Ranges(self.known)

    def _odd_epoch(self, read: SegmentRead, row: int) -> Finding:
        batches = read.scan.batches
        start = int(batches.position[row])
        size_bytes = min(int(batches.size[row]), QUARANTINE_BYTES_MAX)
        return Finding(
            stage="BATCH",
            code=EPOCH_OUT_OF_ORDER,
            message=f"leader epoch {int(batches.leader_epoch[row])} cannot be that of its place in the log: the header "
            "is damaged, where no checksum covers it",
            base_offset=int(batches.base_offset[row]),
            byte_position=start,
            payload=read.data.slice(start, size_bytes).to_pybytes(),
        )

    def _note_disproved(self, row: int, read: SegmentRead) -> None:
        """One row of bronze.quarantine, put right already."""
        there = self._there.rows
        base_offset, epoch = int(there.base_offset[row]), int(there.leader_epoch[row])
        source = self._there.source(row)
        self._done.quarantine.append(
            {
                "cluster_id": self._task.run.cluster_id,
                "topic": self.work.topic,
                "partition": self.work.partition,
                "offset": None,
                "base_offset": base_offset,
                "stage": "BATCH",
                "code": EPOCH_OUT_OF_ORDER,
                "message": f"{source} has leader epoch {epoch} in the batch at offset {base_offset}, which "
                f"{read.segment.path} has with another one: the header is damaged, where no checksum covers it",
                "byte_position": None,
                "bytes": self._there.content(row)[:QUARANTINE_BYTES_MAX],
                "source": source,
                "seen_at": self._task.run.captured_at,
                "resolved_at": self._task.run.captured_at,
                "resolved_by": f"{read.segment.path} has the same batch with the epoch of its place",
            }
        )

    def _choose(self, read: SegmentRead) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
        """(batches which are taken; good ones which bronze has in part and does not take; those of which nothing is
        said, since what bronze has decides, or since the log does not have them any more), one bool each."""
        batches, crc_valid = read.scan.batches, read.scan.crc_valid
        count = len(batches)
        nothing = np.zeros(count, np.bool_)
        origin = Origin.LOG
        if read.segment.source_kind == DUMP:
            origin = Origin.PRINTED if read.segment.is_header_told else Origin.ROWS
        come = BatchRows.of(batches, origin)
        self._follow(self._lineage.with_batches(come.take(crc_valid)), read.segment.path)
        is_cut = self._lineage.is_cut(come) & crc_valid
        if is_cut.any():
            self._note_tails(read, come, is_cut)
        is_here = np.ones(count, np.bool_)
        if self.work.offset_end is not None and read.segment.source_kind == SEGMENT:
            is_here = batches.last_offset < self.work.offset_end
        is_known, is_partial = self._known_ranges.compared(batches)
        meets = (is_known | is_partial) & crc_valid & ~is_cut
        silent = is_cut.copy()
        if self.work.dropped:
            # retention took them out: they are not captured again
            is_dropped = np.logical_or(*self._dropped.compared(batches))
            meets &= ~is_dropped
            silent |= is_dropped
        is_bad_here = np.isin(batches.base_offset, sorted(self._damaged)) if self._damaged else nothing
        taken_damaged = ~crc_valid & ~is_known & ~is_partial & ~is_bad_here & is_here
        self._note_intact(batches, crc_valid & ~is_cut)
        probed = self._is_probed(batches, crc_valid)
        if probed is None and read.is_end and count:
            probed = 0
        if probed is not None and not is_known[probed]:
            probed = None  # that of bronze had a damaged leader epoch, and was taken out
        if probed is not None:
            # it was looked for and found: the batch that bronze has
            meets[probed] = False
        if probed is not None:
            silent[probed] = True
        chosen = crc_valid & ~is_cut & ~meets & ~silent
        overlaps = nothing.copy()
        if meets.any():
            rows = np.flatnonzero(meets)
            self._there.load(int(batches.base_offset[rows[0]]), int(batches.last_offset[rows[-1]]))
            there = self._there.rows

            def content(row: int) -> tuple[bytes, bytes]:
                start = int(batches.position[rows[row]])
                coming = read.data.slice(start, int(batches.size[rows[row]])).to_pybytes()
                first = int(batches.base_offset[rows[row]])
                kept, is_filled = self._there.without_fills(int(np.searchsorted(there.base_offset, first)))
                if is_filled:
                    coming = uncompressed(coming)
                    kept = coming if is_same_but_for_latest_time(coming, kept) else kept
                return coming, kept

            made = choose(there, come.take(rows), content)
            is_taken = made.is_taken
            chosen[rows] = is_taken
            silent[rows] = ~is_taken & ~made.is_same
            overlaps[rows] = made.overlaps
            if made.is_replaced.any():
                self._change(int(there.base_offset[made.is_replaced].min()))
                self._there.take_out(made.is_replaced)
            between = rows[is_taken]
            if len(between):
                self._change(int(batches.base_offset[between[0]]))
        rejected = (overlaps | (~is_here & ~is_known)) & crc_valid & ~is_cut
        chosen = (chosen & is_here) | taken_damaged
        silent &= ~rejected
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
        return chosen, rejected, silent

    def _change(self, offset: int) -> None:
        """Bronze has other batches from an offset on than it had."""
        self._changed_from = offset if self._changed_from is None else min(self._changed_from, offset)

    def _note_intact(self, batches: BatchColumns, is_good: NDArray[np.bool_]) -> None:
        """Remember good batches where damaged ones are in bronze."""
        for offset in self._damaged:
            row = int(np.searchsorted(batches.last_offset, offset, side="left"))
            if row < len(batches) and is_good[row] and batches.base_offset[row] <= offset:
                self._intact.append((int(batches.base_offset[row]), int(batches.last_offset[row])))

    def _follow(self, lineage: Lineage, source: str) -> None:
        """More is known of leader epochs: what is in bronze of a tail that they cut away goes."""
        if lineage is self._lineage:
            return
        starts, self._lineage = self._lineage.starts, lineage
        new = [offset for epoch, offset in lineage.starts.items() if offset < starts.get(epoch, offset + 1)]
        new += [offset for epoch, offset in starts.items() if lineage.starts.get(epoch) != offset]
        if not new or not any(last >= min(new) for _, last in self.known):
            return
        # an older epoch reaches behind the beginning of a newer one only where copies part ways
        self._there.load()
        for tail, path, content in self._there.cut_away(lineage):
            first, epoch = int(tail.base_offset[0]), int(tail.leader_epoch[0])
            payload = content[:QUARANTINE_BYTES_MAX]
            self._note_tail(first, int(tail.last_offset[0]), epoch, path, source, payload)
            self._change(first)

    def _note_tails(self, read: SegmentRead, come: BatchRows, is_cut: NDArray[np.bool_]) -> None:
        """Say where a source that is read parts ways with the log."""
        epochs = come.leader_epoch
        for row in np.flatnonzero(is_cut).tolist():
            if row and is_cut[row - 1] and epochs[row - 1] == epochs[row]:
                continue
            start = int(read.scan.batches.position[row])
            size_bytes = min(int(read.scan.batches.size[row]), QUARANTINE_BYTES_MAX)
            payload = read.data.slice(start, size_bytes).to_pybytes()
            first, last = int(come.base_offset[row]), int(come.last_offset[row])
            self._note_tail(first, last, int(epochs[row]), read.segment.path, None, payload)

    def _note_tail(self, first: int, last: int, epoch: int, path: str, newer_path: str | None, payload: bytes) -> None:
        """One row of bronze.quarantine, put right already: the newer epoch counts."""
        newer, start = self._lineage.cut_by(epoch, last)
        if newer_path is None:
            self._there.load(start)
            row = int(np.searchsorted(self._there.rows.last_offset, start, side="left"))
            newer_path = self._there.source(row) if row < len(self._there.rows) else "another source"
        self._done.quarantine.append(
            {
                "cluster_id": self._task.run.cluster_id,
                "topic": self.work.topic,
                "partition": self.work.partition,
                "offset": first,
                "base_offset": first,
                "stage": "BATCH",
                "code": COPIES_PART,
                "message": (
                    f"copies of the log part ways at offset {first}: {path} goes on with leader epoch {epoch}, and "
                    f"leader epoch {newer} begins at offset {start} in {newer_path}"
                ),
                "byte_position": None,
                "bytes": payload,
                "source": path,
                "seen_at": self._task.run.captured_at,
                "resolved_at": self._task.run.captured_at,
                "resolved_by": f"the newer leader epoch, {newer}, counts: what is older from there on was left out",
            }
        )

    def _source_of(self, offset: int) -> str:
        """The dump that had a record at an offset."""
        return next((source for first, last, source in self._dumped if first <= offset <= last), "a dump")

    def _note_difference(self, it: Difference, dump: str) -> None:
        """One row of bronze.quarantine, put right already: one of the two records counts."""
        record, source = it.record, self._source_of(it.record.offset) if not it.is_log else it.source
        counts = f"that of {it.source} counts, whose batch is of the log" if it.is_log else "the later one counts"
        row = {
            "cluster_id": self._task.run.cluster_id,
            "topic": self.work.topic,
            "partition": self.work.partition,
            "offset": record.offset,
            "base_offset": it.base_offset,
            "stage": "BATCH",
            "code": COPIES_DIFFER,
            "message": f"copies of the log have different records at offset {record.offset}: {dump} has another than "
            f"{source}",
            "byte_position": None,
            "bytes": build_batch([record], leader_epoch=UNKNOWN_EPOCH)[:QUARANTINE_BYTES_MAX],
            "source": dump,
            "seen_at": self._task.run.captured_at,
            "resolved_at": self._task.run.captured_at,
            "resolved_by": f"{counts}: the other one was left out",
        }
        if (record.offset, dump) not in self._noted:
            self._noted.add((record.offset, dump))
            self._done.quarantine.append(row)

    def _quarantine_findings(self, read: SegmentRead) -> None:
        is_file = read.segment.source_kind == SEGMENT
        for finding in read.scan.findings:
            if not is_file and finding.base_offset in self._damaged:
                continue  # it was found before; a position in an answer says nothing by which to know it again
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
            if is_file and finding.stage == "FILE":
                self._done.quarantine[-1].update(self._hidden_by(read, finding.byte_position))

    def _hidden_by(self, read: SegmentRead, byte_position: int | None) -> dict[str, int]:
        """The offsets that bytes which are no batches in their place may have held: those between the batches around
        them, and those of whole batches among the bytes. Nothing where that is not known."""
        scan, batches = read.scan, read.scan.batches
        end_position = next((end for start, end in scan.skipped if start == byte_position), None)
        if byte_position is None or end_position is None:
            return {}
        row = int(np.searchsorted(batches.position, byte_position))
        first = int(batches.last_offset[row - 1]) + 1 if row else read.segment.base_offset
        skipped = as_array(read.data)[byte_position:end_position]
        found, _ = frame_chunk(skipped)
        is_whole = len(found) > 0 and int(found.position[-1] + found.size[-1]) == len(skipped)
        if is_whole and (crc_valid_batches(skipped, found).all() or int(found.base_offset[0]) == first):
            # whole batches, in another place than theirs or damaged: what no checksum covers is the base offset
            firsts, lasts = [int(found.base_offset.min())], [int(found.last_offset.max())]
            after = int(batches.base_offset[row]) if row < len(batches) else self._end
            if after is not None and first < after:
                firsts, lasts = [first, *firsts], [after - 1, *lasts]
            hidden = {"from_offset": min(firsts), "to_offset": max(lasts)}
            if not crc_valid_batches(skipped, found).all():
                return hidden
            # at these offsets bronze may have others: of another log, or with fewer records
            spans = zip(found.base_offset.tolist(), found.last_offset.tolist(), strict=True)
            parts = zip(found.position.tolist(), (found.position + found.size).tolist(), strict=True)
            contents = [skipped[start:end].tobytes() for start, end in parts]
            self._misplaced.append((self._done.quarantine[-1], hidden, dict(zip(spans, contents, strict=True))))
            return {}
        if row < len(batches):
            last = int(batches.base_offset[row]) - 1
        elif self._end is not None:
            last = self._end - 1
        elif read.segment.is_last and scan.findings[-1].code == TORN:
            last = first  # of a torn batch
        else:
            return {}
        return {"from_offset": first, "to_offset": last}


def _has_neighbour(epochs: NDArray[Any], row: int) -> bool:
    """Has the batch before or behind one the same leader epoch?"""
    return (row > 0 and epochs[row - 1] == epochs[row]) or (row + 1 < len(epochs) and epochs[row + 1] == epochs[row])


def _is_in(offset: int, ranges: Iterable[OffsetRange]) -> bool:
    return any(first <= offset <= last for first, last in ranges)
