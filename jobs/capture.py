"""capture: source -> bronze, in one Spark stage.

Each task reads and checks segments of some log partitions and writes their batches as Parquet part files; the bytes of
the log do not pass through the JVM. The driver commits them all in one Delta transaction.

Running again adds nothing. The Delta log keeps the first and last offset of every file of bronze.record_batches, and a
file never spans offsets which could still be found elsewhere (it ends at every gap that compaction does not explain),
so the offset ranges of the files are what is captured. They are committed together with the rows, and therefore right
after any crash. Damaged batches have files of their own: what their headers claim binds nobody.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from time import perf_counter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from coordinator_core.coverage import CoverageKind, CoverageRange, complete_coverage, merge_coverage, union
from coordinator_core.limits import QUARANTINE_BYTES_MAX
from jobs import coverage as coverage_rows
from jobs.arrow_schemas import TIMESTAMP_TYPE, arrow_schema
from jobs.coverage import COMPACTED_TOPICS, LogPartition, epoch_ms, scanned_coverage
from jobs.errors import WarehouseError
from jobs.quarantine import OVERLAPPING_BATCH, is_of_capture
from jobs.settings import Settings
from jobs.sinks import OVERWRITE, PartTarget, PartWriter, Warehouse, WrittenFile
from jobs.sources.segments import PartitionLog, Segment, SegmentRead, find_partitions, read_segment, to_record_batches
from jobs.tasks import balanced, run_tasks
from schemas.tables import TABLES

RECORD_BATCHES: Final = TABLES["bronze.record_batches"]
COVERAGE: Final = TABLES["bronze.coverage"]
QUARANTINE: Final = TABLES["bronze.quarantine"]

TASKS_PER_CORE: Final = 2
"""So that the last tasks end at about one time, without paying for many small tasks."""

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
    covered: tuple[OffsetRange, ...]
    """Offsets of which bronze.coverage speaks; what is known and covered need not be read."""
    damaged: frozenset[int]
    """Base offsets of damaged batches which bronze has already."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
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
class CaptureSummary:
    """What a capture did. `gaps` counts ranges of offsets which are MISSING or CORRUPT in all that is captured."""

    topics: Mapping[str, TopicCount]
    quarantined_count: int
    """Rows which this capture put into quarantine, torn tails of newest segments aside."""
    gap_count: int
    bronze_version: int
    seconds: float

    @property
    def batch_count(self) -> int:
        """Batches written."""
        return sum(topic.batch_count for topic in self.topics.values())

    @property
    def record_count(self) -> int:
        """Records in them."""
        return sum(topic.record_count for topic in self.topics.values())

    @property
    def size_bytes(self) -> int:
        """Bytes of them, as on Kafka's disk."""
        return sum(topic.size_bytes for topic in self.topics.values())

    @property
    def is_clean(self) -> bool:
        """Nothing was quarantined by this capture, and nothing of the log is missing."""
        return self.quarantined_count == 0 and self.gap_count == 0


def capture(
    session: SparkSession, warehouse: Warehouse, settings: Settings, *, capture_id: str, captured_at: datetime
) -> CaptureSummary:
    """Read all sources and add to bronze what it lacks. `captured_at` is the start of the run, with a time zone.

    Raises SourceError for a source that is not there, WarehouseError when another capture of the cluster ran meanwhile.
    """
    started = perf_counter()
    found = [find_partitions(uri, settings.topics) for uri in settings.segments]
    for table in (RECORD_BATCHES, COVERAGE, QUARANTINE):
        warehouse.ensure(table)
    app_id = f"capture/{settings.cluster_id}"
    version = warehouse.last_version(RECORD_BATCHES, app_id) + 1
    known, damaged = _known_offsets(warehouse, settings.cluster_id)
    old_coverage = coverage_rows.from_table(warehouse.read(COVERAGE, where={"cluster_id": settings.cluster_id}))
    work = plan([log for logs in found for log in logs], known, damaged, old_coverage, settings.task_bytes_max)
    bins = balanced([item.size_bytes for item in work], session.sparkContext.defaultParallelism * TASKS_PER_CORE)
    target = warehouse.target(RECORD_BATCHES, app_id=app_id, version=version)
    tasks = [
        CaptureTask(target, settings.cluster_id, capture_id, captured_at, tuple(work[index] for index in indices))
        for indices in bins
    ]
    done = run_tasks(session, run_task, tasks)

    # Quarantine first, coverage last: a crash between leaves rows which the next run finds again and replaces, and a
    # segment is read again until coverage speaks of it.
    _write_quarantine(warehouse, settings.cluster_id, done)
    files = [file for result in done for file in result.files]
    bronze_version = warehouse.version(RECORD_BATCHES)
    if files:
        committed = warehouse.commit(RECORD_BATCHES, files, app_id=app_id, version=version)
        if committed.skipped:
            raise WarehouseError("another capture of this cluster ran at the same time: run this one again")
        bronze_version = committed.version
    merged = _write_coverage(warehouse, settings.cluster_id, old_coverage, done, epoch_ms(captured_at))
    gaps = (CoverageKind.MISSING, CoverageKind.CORRUPT)
    return CaptureSummary(
        topics=_topic_counts(done),
        quarantined_count=sum(len(result.quarantine) - result.torn_count for result in done),
        gap_count=sum(r.kind in gaps for ranges in merged.values() for r in ranges),
        bronze_version=bronze_version,
        seconds=perf_counter() - started,
    )


def plan(
    logs: Iterable[PartitionLog],
    known: Mapping[LogPartition, Sequence[OffsetRange]],
    damaged: Mapping[LogPartition, frozenset[int]],
    coverage: Mapping[LogPartition, Sequence[CoverageRange]],
    task_bytes_max: int,
) -> list[LogWork]:
    """The work of a capture: one item a log partition; large ones which only one source has, cut between segments."""
    by_partition: dict[LogPartition, list[PartitionLog]] = {}
    for log in logs:
        by_partition.setdefault((log.topic, log.partition), []).append(log)
    work = []
    for partition, sources in sorted(by_partition.items()):
        spoken_of = (r for r in coverage.get(partition, ()) if r.kind is not CoverageKind.MISSING)
        item = LogWork(
            logs=tuple(sources),
            offset_end=None,
            known=tuple(union(known.get(partition, ()))),
            covered=tuple(union((r.from_offset, r.to_offset) for r in spoken_of)),
            damaged=damaged.get(partition, frozenset()),
        )
        if len(sources) > 1 or item.size_bytes <= task_bytes_max:
            work.append(item)
            continue
        parts = _cut(sources[0], task_bytes_max)
        ends = [part.segments[0].base_offset for part in parts[1:]]
        work += [replace(item, logs=(part,), offset_end=end) for part, end in zip(parts, [*ends, None], strict=True)]
    return work


def run_task(task: CaptureTask) -> TaskDone:
    """Read, check and write the log partitions of one task."""
    done = TaskDone()
    for work in task.work:
        _capture_log(task, work, done)
    return done


def _capture_log(task: CaptureTask, work: LogWork, done: TaskDone) -> None:
    topic, partition = work.logs[0].topic, work.logs[0].partition
    count = done.topics.setdefault(topic, TopicCount())
    count.partition_count += work.offset_end is None
    known = list(work.known)
    damaged = set(work.damaged)
    for log in work.logs:
        reads = _read(task, work, log, done)
        writer = _LogWriter(task, log, done)
        for read in reads:
            chosen = _choose(task, log, read, known, damaged, work.offset_end, done)
            writer.write(read, chosen)
            batches = read.scan.batches
            count.batch_count += int(chosen.sum())
            count.record_count += int(batches.record_count[chosen].sum())
            count.size_bytes += int(batches.size[chosen].sum())
            done.read_sources.append(read.segment.path)
            _quarantine_findings(task, log, read, done)
        writer.close()
        known = union([*known, *writer.ranges])
        damaged |= writer.damaged
        observed = scanned_coverage(
            reads,
            topic=topic,
            offset_end=work.offset_end,
            log_start_offset=log.log_start_offset,
            observed_at_ms=epoch_ms(task.captured_at),
        )
        done.coverage.append(((topic, partition), observed))


def _read(task: CaptureTask, work: LogWork, log: PartitionLog, done: TaskDone) -> list[SegmentRead]:
    """The segments which are not wholly known, mapped and framed. A file that cannot be read is quarantined by name."""
    reads: list[SegmentRead] = []
    next_offset_min = 0
    for index, segment in enumerate(log.segments):
        end = log.segments[index + 1].base_offset if index + 1 < len(log.segments) else work.offset_end
        if end is not None and _contains(work.known, segment, end) and _contains(work.covered, segment, end):
            continue
        try:
            read = read_segment(segment, next_offset_min=next_offset_min)
        except OSError as error:
            message = f"{segment.path} cannot be read: {error.strerror or type(error).__name__}"
            done.quarantine.append(
                _quarantine_row(task, log, segment, stage="FILE", code=UNREADABLE_FILE, message=message)
            )
            done.read_sources.append(segment.path)
            continue
        next_offset_min = read.scan.next_offset
        reads.append(read)
    return reads


def _contains(ranges: Sequence[OffsetRange], segment: Segment, end: int) -> bool:
    return any(first <= segment.base_offset and end - 1 <= last for first, last in ranges)


def _choose(
    task: CaptureTask,
    log: PartitionLog,
    read: SegmentRead,
    known: Sequence[OffsetRange],
    damaged: Set[int],
    offset_end: int | None,
    done: TaskDone,
) -> NDArray[np.bool_]:
    """Which batches bronze lacks. One which it has in part goes into quarantine: two rows may not overlap."""
    batches, crc_valid = read.scan.batches, read.scan.crc_valid
    is_known, is_partial = _compared(batches.base_offset, batches.last_offset, known)
    if offset_end is not None:
        is_partial |= batches.last_offset >= offset_end
    if damaged:
        is_known |= np.isin(batches.base_offset, sorted(damaged))
    for row in np.flatnonzero(is_partial & crc_valid & ~is_known).tolist():
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
    return ~is_known & ~is_partial


def _compared(
    base_offset: NDArray[np.int64], last_offset: NDArray[np.int64], known: Sequence[OffsetRange]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(is within one known range, overlaps with known ranges without being within one), one bool a batch."""
    nothing = np.zeros(len(base_offset), np.bool_)
    if not known:
        return nothing, nothing.copy()
    firsts = np.array([first for first, _ in known], np.int64)
    lasts = np.array([last for _, last in known], np.int64)
    nearest = np.searchsorted(firsts, last_offset, side="right") - 1
    overlaps = (nearest >= 0) & (lasts[nearest] >= base_offset)
    within = overlaps & (firsts[nearest] <= base_offset) & (lasts[nearest] >= last_offset)
    return within, overlaps & ~within


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


def _known_offsets(
    warehouse: Warehouse, cluster_id: str
) -> tuple[dict[LogPartition, list[OffsetRange]], dict[LogPartition, frozenset[int]]]:
    """Offsets which the files of bronze.record_batches span, and base offsets of damaged batches."""
    known: dict[LogPartition, list[OffsetRange]] = {}
    damaged: dict[LogPartition, frozenset[int]] = {}
    for file in warehouse.files(RECORD_BATCHES):
        if file.partition_values["cluster_id"] != cluster_id or not file.row_count:
            continue
        partition = file.partition_values["topic"], file.partition_values["partition"]
        if file.path.rpartition("/")[2].startswith(DAMAGED):
            damaged[partition] = damaged.get(partition, frozenset()) | {file.minimum["base_offset"]}
        else:
            known.setdefault(partition, []).append((file.minimum["base_offset"], file.maximum["last_offset"]))
    return known, damaged


def _cut(log: PartitionLog, bytes_max: int) -> list[PartitionLog]:
    """Consecutive segments of at most `bytes_max` together; a larger segment alone."""
    parts: list[list[Segment]] = []
    size_bytes = 0
    for segment in log.segments:
        if not parts or size_bytes + segment.size_bytes > bytes_max:
            parts.append([])
            size_bytes = 0
        parts[-1].append(segment)
        size_bytes += segment.size_bytes
    return [replace(log, segments=tuple(part)) for part in parts]


def _write_quarantine(warehouse: Warehouse, cluster_id: str, done: Sequence[TaskDone]) -> None:
    """Put the rows of the files which were read in place of those they had; nothing is written if nothing changes."""
    sources = {source for result in done for source in result.read_sources}
    old = warehouse.read(QUARANTINE, where={"cluster_id": cluster_id})
    is_old = pc.and_(
        pc.is_in(old["source"], value_set=pa.array(sorted(sources), pa.string())),
        is_of_capture(old),
    )
    replaced = old.filter(is_old).to_pylist()
    first_seen = {_identity(row): row["seen_at"] for row in replaced}
    new = [
        row | {"seen_at": first_seen.get(_identity(row), row["seen_at"])}
        for result in done
        for row in result.quarantine
    ]
    if sorted(map(_identity, new)) == sorted(map(_identity, replaced)):
        return
    schema = arrow_schema(QUARANTINE)
    kept = old.filter(pc.invert(is_old)).cast(schema)
    rows = pa.concat_tables([kept, pa.Table.from_pylist(new, schema=schema)])
    _replace_cluster(warehouse, QUARANTINE.full_name, rows, cluster_id)


def _identity(row: Mapping[str, Any]) -> tuple[str, ...]:
    names = ("topic", "partition", "source", "stage", "code", "base_offset", "byte_position", "message")
    return tuple(str(row[name]) for name in names)


def _write_coverage(
    warehouse: Warehouse,
    cluster_id: str,
    old: Mapping[LogPartition, Sequence[CoverageRange]],
    done: Sequence[TaskDone],
    observed_at_ms: int,
) -> dict[LogPartition, Sequence[CoverageRange]]:
    """Merge what was seen into the coverage of the cluster; nothing is written if nothing changes."""
    seen: dict[LogPartition, list[CoverageRange]] = {}
    for result in done:
        for partition, ranges in result.coverage:
            seen.setdefault(partition, []).extend(ranges)
    merged: dict[LogPartition, Sequence[CoverageRange]] = dict(old)
    for partition, observed in seen.items():
        together = merge_coverage(old.get(partition, ()), observed)
        merged[partition] = complete_coverage(together, observed_at_ms=observed_at_ms)
    if any(tuple(merged[partition]) != tuple(old.get(partition, ())) for partition in merged):
        rows = coverage_rows.to_table(cluster_id, merged)
        _replace_cluster(warehouse, COVERAGE.full_name, rows, cluster_id)
    return merged


def _replace_cluster(warehouse: Warehouse, table_name: str, rows: pa.Table, cluster_id: str) -> None:
    table = TABLES[table_name]
    app_id = f"capture/{cluster_id}"
    version = warehouse.last_version(table, app_id) + 1
    committed = warehouse.write(
        table, rows, app_id=app_id, version=version, mode=OVERWRITE, replace={"cluster_id": cluster_id}
    )
    if committed.skipped:
        raise WarehouseError("another capture of this cluster ran at the same time: run this one again")


def _topic_counts(done: Sequence[TaskDone]) -> dict[str, TopicCount]:
    totals: dict[str, TopicCount] = {}
    for result in done:
        for topic, count in result.topics.items():
            total = totals.setdefault(topic, TopicCount())
            total.partition_count += count.partition_count
            total.batch_count += count.batch_count
            total.record_count += count.record_count
            total.size_bytes += count.size_bytes
    return dict(sorted(totals.items()))
