"""What a task of capture does: read, check and write what bronze lacks of some log partitions.

A log partition is read from each source that has it, in their order; the first which has an offset gives it. Reads come
one by one and none is kept: memory is bounded by one read, whatever the size of the log.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coordinator_core.coverage import CoverageKind, CoverageRange, union
from coordinator_core.limits import QUARANTINE_BYTES_MAX
from coordinator_core.log.chunk import BatchColumns
from jobs.arrow_schemas import TIMESTAMP_TYPE
from jobs.coverage import COMPACTED_TOPICS, CoverageScan, LogPartition, epoch_ms
from jobs.quarantine import OVERLAPPING_BATCH
from jobs.sinks import PartTarget, PartWriter, WrittenFile
from jobs.sources.segments import PartitionLog, Segment, SegmentRead, read_segment, to_record_batches

DAMAGED: Final = "damaged"
"""Name of the part file of a batch whose checksum does not fit. One batch a file."""

UNREADABLE_FILE: Final = "UNREADABLE_FILE"

OffsetRange = tuple[int, int]
"""Both ends inclusive."""


@dataclass(frozen=True, slots=True)
class LogWork:
    """One log partition, or a part of a large one, as far as it is not known yet."""

    logs: tuple[PartitionLog, ...]
    """The same log partition in each source that has it; the first which has an offset gives it."""
    offset_end: int | None
    """Where the next part of the same log begins, exclusive; None at its end."""
    known: tuple[OffsetRange, ...]
    """Offsets which bronze has already; ascending, disjoint."""
    settled: tuple[OffsetRange, ...]
    """Offsets which need not be read: bronze has them, or compaction left nothing there."""
    damaged: frozenset[int]
    """Base offsets of damaged batches which bronze has already."""

    @property
    def topic(self) -> str:
        """The internal topic."""
        return self.logs[0].topic

    @property
    def partition(self) -> int:
        """Its partition."""
        return self.logs[0].partition

    @property
    def size_bytes(self) -> int:
        """Bytes of all logs, as far as that can be told before they are read."""
        return sum(log.size_bytes for log in self.logs)


@dataclass(frozen=True, slots=True)
class CaptureTask:
    """What one Spark task does."""

    target: PartTarget
    cluster_id: str
    capture_id: str
    captured_at: datetime
    work: tuple[LogWork, ...]


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
    read_sources: list[str] = field(default_factory=list)
    """Files which were read whole: their former quarantine rows are replaced."""
    topics: dict[str, TopicCount] = field(default_factory=dict)
    torn_count: int = 0
    """Torn tails of newest segments: Kafka was writing, the rest comes with the next capture."""


@dataclass(frozen=True, slots=True)
class StretchEnd:
    """What was read ends here, exclusive: the next read does not go on from the one before."""

    offset: int | None
    """None: where its last batch ends."""


class _Ranges:
    """Ascending, disjoint offset ranges, to be asked often."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        self._firsts = np.array([first for first, _ in ranges], np.int64)
        self._lasts = np.array([last for _, last in ranges], np.int64)

    def contain(self, first: int, last: int) -> bool:
        """Are all offsets from `first` to `last` in one of them?"""
        index = int(np.searchsorted(self._firsts, first, side="right")) - 1
        return index >= 0 and bool(self._lasts[index] >= last)

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


def run_task(task: CaptureTask) -> TaskDone:
    """Read, check and write the log partitions of one task."""
    done = TaskDone()
    for work in task.work:
        _capture_log(task, work, done)
    return done


def _capture_log(task: CaptureTask, work: LogWork, done: TaskDone) -> None:
    count = done.topics.setdefault(work.topic, TopicCount())
    count.partition_count += work.offset_end is None
    known, settled, damaged = list(work.known), list(work.settled), set(work.damaged)
    for log in work.logs:
        writer = _LogWriter(task, log, done)
        known_ranges = _Ranges(known)
        scan: CoverageScan | None = None
        observed = list(_new_scan(task, log).finish(None))
        for item in _reads(task, work, log, settled, done):
            if isinstance(item, StretchEnd):
                writer.close()
                if scan is not None:
                    observed += scan.finish(item.offset)
                    scan = None
                continue
            if scan is None:
                scan = _new_scan(task, log)
            chosen, rejected = _choose(task, log, item, known_ranges, damaged, work.offset_end, done)
            writer.write(item, chosen)
            scan.add(item, rejected)
            _count(count, item, chosen)
            _quarantine_findings(task, log, item, done)
        known = union([*known, *writer.ranges])
        settled = union([*settled, *((r.from_offset, r.to_offset) for r in observed if r.kind in SETTLED)])
        damaged |= writer.damaged
        done.coverage.append(((work.topic, work.partition), tuple(observed)))


def _new_scan(task: CaptureTask, log: PartitionLog) -> CoverageScan:
    return CoverageScan(log.topic, log_start_offset=log.log_start_offset, observed_at_ms=epoch_ms(task.captured_at))


SETTLED: Final = frozenset({CoverageKind.CAPTURED, CoverageKind.COMPACTED})
"""What is so need not be read again, from any source."""


def _count(count: TopicCount, read: SegmentRead, chosen: NDArray[np.bool_]) -> None:
    batches = read.scan.batches
    count.batch_count += int(chosen.sum())
    count.record_count += int(batches.record_count[chosen].sum())
    count.size_bytes += int(batches.size[chosen].sum())


def _reads(
    task: CaptureTask, work: LogWork, log: PartitionLog, settled: Sequence[OffsetRange], done: TaskDone
) -> Iterator[SegmentRead | StretchEnd]:
    """The reads of one source, ascending, without what is settled; each stretch of them has its end."""
    yield from _segment_reads(task, work, log, settled, done)


def _segment_reads(
    task: CaptureTask, work: LogWork, log: PartitionLog, settled: Sequence[OffsetRange], done: TaskDone
) -> Iterator[SegmentRead | StretchEnd]:
    """The segments which are not wholly settled, mapped and framed. One that cannot be read is quarantined by name."""
    is_settled = _Ranges(settled).contain
    next_offset_min = 0
    for index, segment in enumerate(log.segments):
        end = log.segments[index + 1].base_offset if index + 1 < len(log.segments) else work.offset_end
        if end is not None and is_settled(segment.base_offset, end - 1):
            yield StretchEnd(segment.base_offset)
            continue
        done.read_sources.append(segment.path)
        try:
            read = read_segment(segment, next_offset_min=next_offset_min)
        except OSError as error:
            message = f"{segment.path} cannot be read: {error.strerror or type(error).__name__}"
            done.quarantine.append(
                _quarantine_row(task, log, segment, stage="FILE", code=UNREADABLE_FILE, message=message)
            )
            yield StretchEnd(segment.base_offset)
            continue
        next_offset_min = read.scan.next_offset
        yield read
    yield StretchEnd(work.offset_end)


def _choose(
    task: CaptureTask,
    log: PartitionLog,
    read: SegmentRead,
    known: _Ranges,
    damaged: Set[int],
    offset_end: int | None,
    done: TaskDone,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(batches which bronze lacks, batches which it has in part), one bool each.

    The latter go into quarantine: two rows may not overlap.
    """
    batches, crc_valid = read.scan.batches, read.scan.crc_valid
    is_known, is_partial = known.compared(batches)
    if offset_end is not None:
        is_partial |= batches.last_offset >= offset_end
    if damaged:
        is_known |= np.isin(batches.base_offset, sorted(damaged))
    rejected = is_partial & crc_valid & ~is_known
    for row in np.flatnonzero(rejected).tolist():
        start = int(batches.position[row])
        size_bytes = int(batches.size[row])
        done.quarantine.append(
            _quarantine_row(
                task,
                log,
                read.segment,
                stage="BATCH",
                code=OVERLAPPING_BATCH,
                message="some of its offsets are in bronze already, some are not",
                base_offset=int(batches.base_offset[row]),
                byte_position=start,
                payload=read.data.slice(start, min(size_bytes, QUARANTINE_BYTES_MAX)).to_pybytes(),
            )
        )
    return ~is_known & ~is_partial, rejected


class _LogWriter:
    """Writes the chosen batches of one log partition of one source, and cuts files where offsets may still be found."""

    def __init__(self, task: CaptureTask, log: PartitionLog, done: TaskDone) -> None:
        self._task = task
        self._log = log
        self._done = done
        self._values = {"cluster_id": task.cluster_id, "topic": log.topic, "partition": log.partition}
        self._writer: PartWriter | None = None
        self._next_offset = -1
        self._first_offset = -1
        self._may_continue = False
        self.ranges: list[OffsetRange] = []
        """Offsets of the files written, damaged batches aside."""
        self.damaged: set[int] = set()
        """Base offsets of the damaged batches written."""

    def write(self, read: SegmentRead, chosen: NDArray[np.bool_]) -> None:
        """Write the chosen batches of the next segment."""
        valid = read.scan.crc_valid
        for rows, is_new_file in self._file_parts(read, chosen & valid):
            if is_new_file:
                self.close()
            self._write_rows(read, rows)
        for row in np.flatnonzero(chosen & ~valid).tolist():
            only = np.zeros(len(chosen), np.bool_)
            only[row] = True
            self.damaged.add(int(read.scan.batches.base_offset[row]))
            with PartWriter(self._task.target, DAMAGED, self._values) as writer:
                for batch in to_record_batches(read, self._log, only):
                    writer.write(self._with_run(batch))
                self._done.files.append(writer.close())
        skips_end = max((end for _, end in read.scan.skipped), default=-1)
        if len(chosen):
            self._may_continue = bool((chosen & valid)[-1]) and skips_end < read.scan.end_position
        else:
            self._may_continue = self._may_continue and skips_end < 0

    def close(self) -> None:
        """Finish the open file."""
        if self._writer is not None:
            self._done.files.append(self._writer.close())
            self._writer = None
            self.ranges.append((self._first_offset, self._next_offset - 1))

    def _file_parts(self, read: SegmentRead, chosen: NDArray[np.bool_]) -> Iterable[tuple[NDArray[np.bool_], bool]]:
        """The chosen rows in parts, each with: does it begin a file?"""
        rows = np.flatnonzero(chosen)
        if not len(rows):
            return
        batches = read.scan.batches
        base_offset = batches.base_offset[rows]
        expected = np.empty(len(rows), np.int64)
        expected[0] = self._next_offset
        expected[1:] = batches.last_offset[rows[:-1]] + 1
        is_gap = base_offset != expected
        if self._log.topic in COMPACTED_TOPICS:
            # compaction explains a hole between two neighbours; not one where batches or bytes were left out
            neighbours = np.empty(len(rows), np.bool_)
            neighbours[0] = rows[0] == 0 and self._may_continue
            neighbours[1:] = rows[1:] == rows[:-1] + 1
            starts = batches.position[rows]
            after_skip = np.isin(starts, [end for _, end in read.scan.skipped])
            is_gap &= ~neighbours | after_skip
        cuts = np.flatnonzero(is_gap[1:]) + 1
        for part_index, part in enumerate(np.split(rows, cuts)):
            mask = np.zeros(len(chosen), np.bool_)
            mask[part] = True
            yield mask, part_index > 0 or bool(is_gap[0])

    def _write_rows(self, read: SegmentRead, rows: NDArray[np.bool_]) -> None:
        if self._writer is None:
            self._writer = PartWriter(self._task.target, "batches", self._values)
            self._first_offset = int(read.scan.batches.base_offset[rows][0])
        for batch in to_record_batches(read, self._log, rows):
            self._writer.write(self._with_run(batch))
        self._next_offset = int(read.scan.batches.last_offset[rows][-1]) + 1

    def _with_run(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        captured_at = pa.scalar(self._task.captured_at, TIMESTAMP_TYPE)
        return batch.append_column("captured_at", pa.repeat(captured_at, batch.num_rows)).append_column(
            "capture_id", pa.repeat(pa.scalar(self._task.capture_id), batch.num_rows)
        )


def _quarantine_findings(task: CaptureTask, log: PartitionLog, read: SegmentRead, done: TaskDone) -> None:
    for finding in read.scan.findings:
        done.torn_count += finding.code == "TRUNCATED_BATCH" and read.segment.is_last
        done.quarantine.append(
            _quarantine_row(
                task,
                log,
                read.segment,
                stage=finding.stage,
                code=finding.code,
                message=finding.message,
                offset=finding.offset,
                base_offset=finding.base_offset,
                byte_position=finding.byte_position,
                payload=finding.payload,
            )
        )


def _quarantine_row(
    task: CaptureTask,
    log: PartitionLog,
    segment: Segment,
    *,
    stage: str,
    code: str,
    message: str,
    offset: int | None = None,
    base_offset: int | None = None,
    byte_position: int | None = None,
    payload: bytes | None = None,
) -> dict[str, Any]:
    return {
        "cluster_id": task.cluster_id,
        "topic": log.topic,
        "partition": log.partition,
        "offset": offset,
        "base_offset": base_offset,
        "stage": stage,
        "code": code,
        "message": message,
        "byte_position": byte_position,
        "bytes": payload,
        "source": segment.path,
        "seen_at": task.captured_at,
    }
