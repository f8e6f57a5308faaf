"""capture: source -> bronze, in one Spark stage.

Each task reads and checks segments of some log partitions and writes their batches as Parquet part files; the bytes of
the log do not pass through the JVM. The driver commits them all in one Delta transaction.

bronze has one batch an offset. Where copies of a log differ, `coordinator_core.log.copies` says which one counts, and a
capture takes the others out in the commit that brings it; `jobs.bronze.copies` keeps what that takes.

Running again adds nothing. The Delta log keeps the first and last offset of every file of bronze.record_batches, and a
file never spans offsets which could still be found elsewhere (it ends at every gap that compaction does not explain),
so the offset ranges of the files are what is captured. They are committed together with the rows, and therefore right
after any crash. Damaged batches have files of their own: what their headers claim binds nobody.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from coordinator_core.coverage import (
    BEFORE_FIRST,
    BETWEEN,
    CoverageKind,
    CoverageRange,
    complete_coverage,
    intersect,
    merge_coverage,
    subtract,
    union,
)
from coordinator_core.errors import TruncatedBatch
from coordinator_core.log.copies import Lineage
from coordinator_core.log.scan import TORN_TAIL
from jobs.bronze import coverage as coverage_rows
from jobs.bronze.admin_snapshots import first_topic_ids
from jobs.bronze.copies import Copies, capture_application, write_rewrites
from jobs.bronze.coverage import LogPartition
from jobs.bronze.identity import check_sources, identities_of, keep_identities, refuse_other_dumps
from jobs.bronze.log_ends import keep_log_partitions
from jobs.bronze.quarantine import OVERLAPPING_BATCH, is_of_capture
from jobs.bronze.retention import dropped_ranges
from jobs.bronze.tasks import run_task
from jobs.bronze.work import OFFSET_BYTES, SETTLED, CaptureTask, LogWork, TaskDone, TopicCount
from jobs.bronze.writer import DAMAGED, CaptureRun, OffsetRange
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.filesystems import delete_folder
from jobs.delta.times import epoch_ms
from jobs.delta.warehouse import OVERWRITE, TableFile, Warehouse
from jobs.errors import SourceError, WarehouseError
from jobs.settings import Settings, require_source
from jobs.sources.segments import PartitionLog, Segment, find_partitions
from jobs.spark.tasks import TASKS_PER_CORE, run_tasks, tapered
from schemas.tables import TABLES
from schemas.tables.declare import Table

if TYPE_CHECKING:
    from jobs.sources.broker_log import BrokerLog
    from jobs.sources.dumps.source import DumpLog, Unpacked

RECORD_BATCHES: Final = TABLES["bronze.record_batches"]
COVERAGE: Final = TABLES["bronze.coverage"]
QUARANTINE: Final = TABLES["bronze.quarantine"]

TRUNCATED_BATCH: Final = "TRUNCATED_BATCH"
"""Also of a segment that Kafka is writing: its torn tail is no fault."""
TASK_BYTES_MIN: Final = 64 << 20
"""As `tasks.TASK_BYTES_MIN`, of what sources hold: bronze is packed."""


@dataclass(frozen=True, slots=True)
class CaptureSummary:
    """What a capture did. `gaps` counts ranges of offsets which are MISSING or CORRUPT in all that is captured."""

    topics: Mapping[str, TopicCount]
    quarantined_count: int
    """Rows of captures in quarantine that are open, torn tails of newest segments aside."""
    gap_count: int
    bronze_version: int
    seconds: float
    notes: tuple[str, ...] = ()
    """What the sources do not tell, in words."""
    faults: tuple[str, ...] = ()
    """Why it is not clean, in words: what was quarantined, which holes there are."""

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
        """Nothing that captures put into quarantine is open, and nothing of the log is missing."""
        return self.quarantined_count == 0 and self.gap_count == 0


class CaptureConflict(WarehouseError):
    """Another capture of the cluster committed meanwhile. Nothing was doubled and nothing is lost: try again."""

    def __init__(self) -> None:
        super().__init__("another capture of this cluster ran at the same time: run this one again")


@dataclass(frozen=True, slots=True)
class Bronze:
    """What bronze has of a cluster, and which captures of it there were: whoever commits after others is refused."""

    cluster_id: str
    known: Mapping[LogPartition, tuple[OffsetRange, ...]]
    """Offsets which the files of bronze.record_batches span; ascending, disjoint."""
    damaged: Mapping[LogPartition, frozenset[int]]
    """Base offsets of damaged batches."""
    coverage: Mapping[LogPartition, Sequence[CoverageRange]]
    versions: Mapping[str, int]
    """Of the last commit by a capture of this cluster, by full name of the table."""
    ends: Mapping[LogPartition, tuple[OffsetRange, ...]] = field(default_factory=dict)
    """First and last offset of the batch at the end of each of those ranges, as they were when this was loaded;
    ascending. There is none where retention took the batch."""
    files: Mapping[LogPartition, tuple[TableFile, ...]] = field(default_factory=dict)
    """Files of bronze.record_batches, as they were when this was loaded."""
    dropped: Mapping[LogPartition, tuple[OffsetRange, ...]] = field(default_factory=dict)
    """Offsets which retention took out of them."""
    copies: Copies = field(default_factory=Copies)

    @classmethod
    def load(cls, warehouse: Warehouse, cluster_id: str) -> Self:
        """As it is now; tables which are not there are made."""
        versions = warehouse.ensure_all((RECORD_BATCHES, COVERAGE, QUARANTINE), application(cluster_id))
        dropped = dropped_ranges(warehouse, cluster_id)
        files = captured_files(warehouse, cluster_id)
        known, ends, damaged = _known_offsets(files, dropped)
        coverage = coverage_rows.from_table(warehouse.read(COVERAGE, where={"cluster_id": cluster_id}))
        copies = Copies.load(warehouse, cluster_id)
        return cls(cluster_id, known, damaged, coverage, versions, ends, files, dropped, copies)

    def settled(self, partition: LogPartition) -> tuple[OffsetRange, ...]:
        """Offsets of a log partition which need not be read again: they are in the files, or compaction left nothing.

        Coverage and files may disagree (a capture crashed, a table was put back to an older version): both must say so.
        """
        captured: list[OffsetRange] = []
        compacted: list[OffsetRange] = []
        for r in self.coverage.get(partition, ()):
            if r.kind in SETTLED:
                (captured if r.kind is CoverageKind.CAPTURED else compacted).append((r.from_offset, r.to_offset))
        return tuple(union([*intersect(captured, self.known.get(partition, ())), *compacted]))

    def looked_at(self, partition: LogPartition) -> tuple[OffsetRange, ...]:
        """Offsets of which more is known than that no capture has come by: settled, damaged, or gone from the log."""
        seen = [
            (r.from_offset, r.to_offset)
            for r in self.coverage.get(partition, ())
            if r.kind is CoverageKind.CORRUPT
            or (r.kind is CoverageKind.MISSING and r.reason not in (BEFORE_FIRST, BETWEEN))
        ]
        return tuple(union([*self.settled(partition), *seen]))

    def after(
        self,
        done: Sequence[TaskDone],
        coverage: Mapping[LogPartition, Sequence[CoverageRange]],
        versions: Mapping[str, int],
    ) -> Self:
        """As it is when what tasks wrote is committed, without reading it again."""
        known, damaged = dict(self.known), dict(self.damaged)
        for result in done:
            for partition, ranges in result.known.items():
                if ranges:
                    known[partition] = tuple(union([*known.get(partition, ()), *ranges]))
            for partition, offsets in result.damaged.items():
                if offsets:
                    damaged[partition] = damaged.get(partition, frozenset()) | offsets
        return replace(self, known=known, damaged=damaged, coverage=coverage, versions=versions)


@dataclass(frozen=True, slots=True)
class Sources:
    """The log partitions of all sources, as they are now."""

    segments: Sequence[PartitionLog] = ()
    live: "Sequence[BrokerLog]" = ()
    pieces_from: Mapping[LogPartition, int] = field(default_factory=dict)
    """Where to read those live logs from of which only a piece is there, up to their `next_offset`."""
    dumps: "Unpacked | None" = None

    @property
    def all_dumps(self) -> "Sequence[DumpLog]":
        """Log partitions of dumps."""
        return self.dumps.logs if self.dumps is not None else ()


def application(cluster_id: str) -> str:
    """The application id of the commits of captures."""
    return capture_application(cluster_id)


def capture(
    session: SparkSession, warehouse: Warehouse, settings: Settings, *, capture_id: str, captured_at: datetime
) -> CaptureSummary:
    """Read all sources and add to bronze what it lacks. `captured_at` is the start of the run, with a time zone.

    Raises SourceError for a source that is not there, CaptureConflict when another capture of the cluster was faster.
    """
    sources = find_sources(settings)
    identities_of(sources)  # two sources that differ are refused before there is a table
    bronze = Bronze.load(warehouse, settings.cluster_id)
    identities = check_sources(warehouse, bronze, sources)
    refuse_other_logs(sources.live, bronze, first_topic_ids(warehouse, settings.cluster_id), is_merged=True)
    run = CaptureRun(settings.cluster_id, capture_id, captured_at)
    summary = _capture_all(session, warehouse, settings, bronze, sources, run)
    keep_identities(warehouse, settings.cluster_id, identities, captured_at)
    keep_log_partitions(
        warehouse,
        settings.cluster_id,
        found=sources.segments,
        live=sources.live,
        said=settings.partition_counts,
        seen_at=captured_at,
    )
    if settings.broker_address is None:
        return summary
    from jobs.bronze.cluster_watch import watch_once  # noqa: PLC0415  (files need not load Kafka's client)

    return replace(summary, notes=(*summary.notes, *watch_once(warehouse, settings, captured_at)))


def _capture_all(
    session: SparkSession, warehouse: Warehouse, settings: Settings, bronze: Bronze, sources: Sources, run: CaptureRun
) -> CaptureSummary:
    """Dumps, too."""
    if not settings.dumps:
        return capture_logs(session, warehouse, settings, bronze, sources, run)[0]
    from jobs.sources.dumps.source import unpack_dumps  # noqa: PLC0415  (a capture without dumps need not load it)

    staging = f"{warehouse.root}/_staging/dumps/{run.capture_id}"
    try:
        unpacked = unpack_dumps(settings, staging=staging, run_all=partial(run_tasks, session))
        sources = replace(sources, dumps=unpacked)
        _refuse_numbered_dumps(warehouse, settings.cluster_id, sources)
        refuse_other_dumps(warehouse, bronze, sources.all_dumps)
        return capture_logs(session, warehouse, settings, bronze, sources, run)[0]
    finally:
        delete_folder(staging)


def find_sources(settings: Settings) -> Sources:
    """Look at all sources. Raises SourceError for one that is not there, SettingsError where none is named."""
    require_source(settings)
    segments = [log for uri in settings.segments for log in find_partitions(uri, settings.topics)]
    address = settings.broker_address
    if address is None:
        return Sources(segments)
    from jobs.sources.broker_log import find_broker_logs  # noqa: PLC0415  (files need not load Kafka's client)

    return Sources(segments, find_broker_logs(address, settings.topics, timeout_ms=settings.request_timeout_ms))


def refuse_other_logs(
    logs: "Sequence[BrokerLog]", bronze: Bronze, ids: Mapping[str, str], *, is_merged: bool = False
) -> None:
    """Raise SourceError where a live log cannot be the one which bronze has: their batches must never mix.

    `ids` are those of the topics when they were first captured live, by name. `is_merged`: a log that is shorter than
    bronze is compared with it, where its topic id proves that it is the same.
    """
    captured = {topic for topic, _ in bronze.known}
    for log in logs:
        known_id = ids.get(log.topic)
        if log.topic in captured and known_id is not None and log.topic_id not in (None, known_id):
            raise SourceError(
                f"topic {log.topic} was deleted and made anew (its id was {known_id} and is {log.topic_id} now): its "
                "offsets began again. Capture it with a --cluster-id of its own"
            )
        known = bronze.known.get((log.topic, log.partition))
        is_same = is_merged and known_id is not None and log.topic_id == known_id
        if known and log.next_offset <= known[-1][1] and not is_same:
            raise SourceError(
                f"{log.topic}-{log.partition} ends at offset {log.next_offset}, and bronze has it up to "
                f"{known[-1][1]}: it was made anew, or an unclean leader election has cut it. What comes now is "
                "another log: capture it with a --cluster-id of its own"
            )


def capture_logs(
    session: SparkSession,
    warehouse: Warehouse,
    settings: Settings,
    bronze: Bronze,
    sources: Sources,
    run: CaptureRun,
    *,
    may_cut: bool = True,
) -> tuple[CaptureSummary, Bronze]:
    """Add to bronze what it lacks of some logs; what was done, and bronze as it is then. `may_cut`: several tasks may
    share the log partition of one source."""
    started = perf_counter()
    core_count = session.sparkContext.defaultParallelism
    work = plan(sources, bronze, settings.task_bytes_max, core_count, may_cut=may_cut)
    bins = tapered(
        [item.size_bytes for item in work],
        core_count,
        new_bytes=sum(item.unread_bytes for item in work),
        new_bytes_min=TASK_BYTES_MIN,
    )
    version = bronze.versions[RECORD_BATCHES.full_name] + 1
    app_id = application(bronze.cluster_id)
    target = warehouse.target(RECORD_BATCHES)
    tasks = [
        CaptureTask(
            target=target,
            run=run,
            work=tuple(work[index] for index in indices),
            request_timeout_ms=settings.request_timeout_ms,
            fetch_bytes_max=settings.fetch_bytes_max,
        )
        for indices in bins
    ]
    done = run_tasks(session, run_task, tasks, "reading the sources")
    for result in done:
        if result.error is not None:
            raise result.error
    removed = {file.path: file for result in done for file in result.removed}
    if len(removed) < sum(len(result.removed) for result in done):
        # two tasks wrote one file of bronze anew, each without what the other took out
        return capture_logs(session, warehouse, settings, bronze, sources, run, may_cut=False)
    if sources.dumps is not None:
        done.append(_unpacking(sources.dumps, run))

    # Quarantine first, coverage last: a crash between leaves rows which the next run finds again and replaces, and a
    # segment is read again until coverage speaks of it.
    versions = dict(bronze.versions)
    copies = _copies_after(bronze, done)
    quarantine = _Quarantine.load(warehouse, bronze, done)
    merged = _merged_coverage(
        bronze, done, copies.lineages, epoch_ms(run.captured_at), quarantine.put_right(bronze.coverage)
    )
    is_written, still_open = _write_quarantine(warehouse, bronze, done, quarantine, merged, run)
    versions[QUARANTINE.full_name] += is_written
    copies.write_lineages(warehouse, bronze.cluster_id, app_id, bronze.copies)
    copies.write_dumped(warehouse, bronze.cluster_id, app_id, bronze.copies)
    changed = _least_changed(done)
    if changed:
        write_rewrites(warehouse, bronze.cluster_id, version, changed, run.captured_at)
    files = [file for result in done for file in result.files]
    bronze_version = warehouse.version(RECORD_BATCHES)
    if files or removed:
        committed = warehouse.commit(
            RECORD_BATCHES, files, app_id=app_id, version=version, removed=tuple(removed.values())
        )
        if committed.skipped:
            raise CaptureConflict
        bronze_version = committed.version
        versions[RECORD_BATCHES.full_name] = version
    versions[COVERAGE.full_name] += _write_coverage(warehouse, bronze, merged)
    copies.write_files(warehouse, bronze.cluster_id, app_id, bronze.copies)
    holes = tuple(coverage_rows.holes(merged))
    # of all that is open, whether its file was read in this run or not
    codes = Counter(row["code"] for row in still_open if not row["message"].endswith(TORN_TAIL))
    summary = CaptureSummary(
        topics=_topic_counts(done),
        quarantined_count=codes.total(),
        gap_count=len(holes),
        bronze_version=bronze_version,
        seconds=perf_counter() - started,
        notes=sources.dumps.notes if sources.dumps is not None else (),
        faults=(
            *(f"quarantined: {count:,} with {code}" for code, count in sorted((+codes).items())),
            *coverage_rows.hole_lines(holes),
        ),
    )
    if removed:
        return summary, Bronze.load(warehouse, bronze.cluster_id)
    return summary, replace(bronze.after(done, merged, versions), copies=copies)


def _copies_after(bronze: Bronze, done: Sequence[TaskDone]) -> Copies:
    """What is known of copies once tasks have read some."""
    copies = bronze.copies
    for result in done:
        copies = copies.after(result.lineages, result.compared, result.dumped)
    for result in done:
        copies = copies.without(result.disproved)
    return copies


def _least_changed(done: Sequence[TaskDone]) -> dict[LogPartition, int]:
    """By log partition, the first offset at which bronze changes below what it had."""
    changed: dict[LogPartition, int] = {}
    for result in done:
        for partition, offset in result.changed.items():
            changed[partition] = min(offset, changed.get(partition, offset))
    return changed


def _unpacking(dumps: "Unpacked", run: CaptureRun) -> TaskDone:
    """What was found while dumps were unpacked."""
    rows = [
        {
            "cluster_id": run.cluster_id,
            "topic": fault.row.topic,
            "partition": fault.row.partition,
            "offset": fault.row.offset,
            "base_offset": None,
            "stage": "FILE",
            "code": fault.row.code,
            "message": fault.row.message,
            "byte_position": fault.row.byte_position,
            "bytes": fault.row.payload,
            "source": fault.source,
            "seen_at": run.captured_at,
        }
        for fault in dumps.faults
    ]
    return TaskDone(quarantine=rows, read_sources=dict.fromkeys(dumps.sources, 0))


def _refuse_numbered_dumps(warehouse: Warehouse, cluster_id: str, sources: Sources) -> None:
    """Raise SourceError where records without offsets would meet others: their numbers are no offsets of the log."""
    numbered = {log.topic: log.uri for log in sources.all_dumps if not log.has_offsets}
    if not numbered:
        return
    others = [(log.topic, log.uri) for log in sources.all_dumps]
    others += [(log.topic, "") for log in sources.segments]
    others += [(log.topic, "") for log in sources.live]
    # Delta's statistics keep the beginning of a text alone, so the column itself is read
    rows = warehouse.read(RECORD_BATCHES, ["topic", "source"], where={"cluster_id": cluster_id})
    captured = rows.group_by(["topic", "source"]).aggregate([])
    others += zip(captured["topic"].to_pylist(), captured["source"].to_pylist(), strict=True)
    for topic, source in others:
        if topic in numbered and source != numbered[topic]:
            raise SourceError(
                f"{numbered[topic]} has records of {topic} without offsets, which cannot be put among those of "
                f"{source or 'another source'}: capture it with a --cluster-id of its own"
            )


def plan(
    sources: Sources, bronze: Bronze, task_bytes_max: int, core_count: int = 1, *, may_cut: bool = True
) -> list[LogWork]:
    """The work of a capture: one item a log partition; large ones which only one source has, cut, unless they are to be
    compared with bronze first.

    Segments are cut between files, and finer where one log partition has most of them, so that no core waits for
    another; a live log at any offset: a batch belongs where its last offset lies.
    """
    segments: dict[LogPartition, list[PartitionLog]] = {}
    for log in sources.segments:
        segments.setdefault((log.topic, log.partition), []).append(log)
    live = {(log.topic, log.partition): log for log in sources.live}
    dumps: dict[LogPartition, list[DumpLog]] = {}
    for dump in sources.all_dumps:
        dumps.setdefault((dump.topic, dump.partition), []).append(dump)
    items = []
    for partition in sorted({*segments, *live, *dumps}):
        item = LogWork(
            *partition,
            segments=tuple(segments.get(partition, ())),
            live=live.get(partition),
            from_offset=sources.pieces_from.get(partition, 0),
            is_piece=partition in sources.pieces_from,
            # rows tell least, so they come last
            dumps=tuple(sorted(dumps.get(partition, ()), key=lambda dump: dump.is_rows)),
            known=tuple(bronze.known.get(partition, ())),
            settled=bronze.settled(partition),
            damaged=bronze.damaged.get(partition, frozenset()),
            ends=tuple(bronze.ends.get(partition, ())),
            files=bronze.files.get(partition, ()),
            dropped=bronze.dropped.get(partition, ()),
            read_files=bronze.copies.files.get(partition, {}),
            lineage=bronze.copies.lineages.get(partition),
            dumped=tuple(bronze.copies.dumped.get(partition, ())),
            left_out=tuple(bronze.copies.left_out.get(partition, ())),
        )
        items.append(item)
    share_bytes = sum(item.size_bytes for item in items) // (TASKS_PER_CORE * core_count)
    segment_bytes_max = min(task_bytes_max, max(share_bytes, TASK_BYTES_MIN))
    work = []
    for item in items:
        bytes_max = segment_bytes_max if item.live is None else task_bytes_max
        is_compared = bool(item.known) and item.has_unread
        if item.source_count > 1 or item.dumps or is_compared or not may_cut or item.size_bytes <= bytes_max:
            work.append(item)
        elif item.live is None:
            parts = _cut(item.segments[0], bytes_max)
            ends = [part.segments[0].base_offset for part in parts[1:]]
            work += [
                replace(item, segments=(part,), offset_end=end) for part, end in zip(parts, [*ends, None], strict=True)
            ]
        else:
            work += _cut_live(item, max(1, task_bytes_max // OFFSET_BYTES))
    return work


def _cut_live(item: LogWork, offsets_max: int) -> list[LogWork]:
    """The same log in parts of at most so many wanted offsets, which lie side by side."""
    cuts: list[int] = []
    left = offsets_max
    for first, last in item.wanted(item.settled):
        start = first
        while last - start + 1 > left:
            start += left
            cuts.append(start)
            left = offsets_max
        left -= last - start + 1
    starts = [item.from_offset, *cuts]
    return [replace(item, from_offset=start, offset_end=end) for start, end in zip(starts, [*cuts, None], strict=True)]


def captured_files(warehouse: Warehouse, cluster_id: str) -> dict[LogPartition, tuple[TableFile, ...]]:
    """Files of bronze.record_batches of a cluster that have rows, by log partition."""
    files: dict[LogPartition, list[TableFile]] = {}
    for file in warehouse.files(RECORD_BATCHES):
        values = file.partition_values
        if values["cluster_id"] == cluster_id and file.row_count:
            files.setdefault((values["topic"], values["partition"]), []).append(file)
    return {partition: tuple(found) for partition, found in files.items()}


def _known_offsets(
    files: Mapping[LogPartition, Sequence[TableFile]], dropped: Mapping[LogPartition, Sequence[OffsetRange]]
) -> tuple[
    dict[LogPartition, tuple[OffsetRange, ...]],
    dict[LogPartition, tuple[OffsetRange, ...]],
    dict[LogPartition, frozenset[int]],
]:
    """Offsets which the files of bronze.record_batches span or spanned, the batches at their ends, and base offsets of
    damaged batches."""
    known: dict[LogPartition, list[OffsetRange]] = {partition: list(ranges) for partition, ranges in dropped.items()}
    last_batches: dict[LogPartition, dict[int, int]] = {}
    damaged: dict[LogPartition, frozenset[int]] = {}
    for partition, of_log in files.items():
        for file in of_log:
            if file.path.rpartition("/")[2].startswith(DAMAGED):
                damaged[partition] = damaged.get(partition, frozenset()) | {file.minimum["base_offset"]}
            else:
                last_offset = file.maximum["last_offset"]
                known.setdefault(partition, []).append((file.minimum["base_offset"], last_offset))
                last_batches.setdefault(partition, {})[last_offset] = file.maximum["base_offset"]
    joined = {partition: tuple(union(ranges)) for partition, ranges in known.items()}
    ends = {
        partition: tuple((batches[last], last) for _, last in joined[partition] if last in batches)
        for partition, batches in last_batches.items()
    }
    return joined, ends, damaged


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


QUARANTINE_COLUMNS: Final = QUARANTINE.column_names


@dataclass(frozen=True, slots=True)
class _Quarantine:
    """Rows of bronze.quarantine by what makes them the same row."""

    rows: pa.Table
    """All that there were."""
    before: Mapping[tuple[str, ...], dict[str, Any]]
    """Open ones of what was read again."""
    others: Mapping[tuple[str, ...], dict[str, Any]]
    """The others that capture wrote."""
    found: Mapping[tuple[str, ...], dict[str, Any]]
    """What this run found."""

    @classmethod
    def load(cls, warehouse: Warehouse, bronze: Bronze, done: Sequence[TaskDone]) -> Self:
        """As it was, and what tasks found."""
        sources = {source: position for result in done for source, position in result.read_sources.items()}
        old = warehouse.read(QUARANTINE, where={"cluster_id": bronze.cluster_id})
        places = zip(old["source"].to_pylist(), old["byte_position"].to_pylist(), strict=True)
        was_read = [source in sources and (at is None or at >= sources[source]) for source, at in places]
        is_old = pc.and_(pa.array(was_read, pa.bool_()), pc.is_null(old["resolved_at"]))
        of_capture = zip(old.to_pylist(), is_old.to_pylist(), is_of_capture(old).to_pylist(), strict=True)
        before: dict[tuple[str, ...], dict[str, Any]] = {}
        others: dict[tuple[str, ...], dict[str, Any]] = {}
        for row, is_again, is_its_own in of_capture:
            if is_its_own:
                (before if is_again else others)[_identity(row)] = row
        return cls(old, before, others, {_identity(row): row for result in done for row in result.quarantine})

    @property
    def of_replay(self) -> pa.Table:
        """Rows that replay wrote."""
        return self.rows.filter(pc.invert(is_of_capture(self.rows)))

    def put_right(
        self, coverage: Mapping[LogPartition, Sequence[CoverageRange]]
    ) -> Mapping[LogPartition, Sequence[OffsetRange]]:
        """Offsets that files which were read again had damaged, and have no more; nothing else that is damaged may
        have held them."""
        right: dict[LogPartition, list[OffsetRange]] = {}
        for it, row in self.before.items():
            if it not in self.found:
                right.setdefault((row["topic"], row["partition"]), []).extend(_damaged_by(row, coverage))
        wrong: dict[LogPartition, list[OffsetRange]] = {}
        for row in (*self.found.values(), *(it for it in self.others.values() if it["resolved_at"] is None)):
            wrong.setdefault((row["topic"], row["partition"]), []).extend(_damaged_by(row, coverage))
        return {place: subtract(ranges, wrong.get(place, ())) for place, ranges in right.items()}


def _damaged_by(
    row: Mapping[str, Any], coverage: Mapping[LogPartition, Sequence[CoverageRange]]
) -> Sequence[OffsetRange]:
    """The offsets that something damaged may have held: those of its bytes, or of the damaged batch in coverage."""
    first, last = row.get("from_offset"), row.get("to_offset")
    if first is not None and last is not None:
        return [(first, last)] if first <= last else []
    offset = row["base_offset"] if row["offset"] is None else row["offset"]
    ranges = coverage.get((row["topic"], row["partition"]), ())
    corrupt = [(r.from_offset, r.to_offset) for r in ranges if r.kind is CoverageKind.CORRUPT]
    return corrupt if offset is None else [(at, to) for at, to in corrupt if at <= offset <= to]


def _write_quarantine(
    warehouse: Warehouse,
    bronze: Bronze,
    done: Sequence[TaskDone],
    quarantine: _Quarantine,
    coverage: Mapping[LogPartition, Sequence[CoverageRange]],
    run: CaptureRun,
) -> tuple[bool, Sequence[dict[str, Any]]]:
    """Put the rows of the files which were read in place of those they had, add those of answers that are new. Those
    of what was put right since stay, and say so.

    Nothing is written if nothing changes; was something? And the rows that are open.
    """
    before, others, found = quarantine.before, quarantine.others, quarantine.found
    torn = {_identity(row) for result in done for row in result.quarantine if row["code"] == TruncatedBatch.code}
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for it, row in found.items():
        if others.get(it, {}).get("resolved_at") is not None and it not in before:
            continue  # the same damage was found before, and good bytes are in bronze
        rows[it] = row | {"seen_at": before.get(it, others.get(it, row))["seen_at"]}
    for it, row in before.items():
        if it not in rows and it not in torn and row["code"] != TruncatedBatch.code:
            rows[it] = row | {
                "resolved_at": run.captured_at,
                "resolved_by": f"{row['source']}, read again, is good there",
            }
    for it, row in others.items():
        rows.setdefault(it, row)
    rows = {it: _resolved(row, coverage, run) for it, row in rows.items()}
    still_open = [row for row in rows.values() if row["resolved_at"] is None]
    if rows == {**others, **before}:
        return False, still_open
    schema = arrow_schema(QUARANTINE)
    table = pa.concat_tables(
        [quarantine.of_replay.cast(schema), pa.Table.from_pylist(list(rows.values()), schema=schema)]
    )
    _replace_cluster(warehouse, QUARANTINE, table, bronze)
    return True, still_open


def _resolved(
    row: dict[str, Any],
    coverage: Mapping[LogPartition, Sequence[CoverageRange]],
    run: CaptureRun,
) -> dict[str, Any]:
    """The same row; where bronze has good records instead of what it is about, it says so."""
    row = {name: row.get(name) for name in QUARANTINE_COLUMNS}
    offset = row["base_offset"] if row["offset"] is None else row["offset"]
    if row["resolved_at"] is not None or row["topic"] is None:
        return row
    ranges = coverage.get((row["topic"], row["partition"]), ())
    if row["from_offset"] is not None and row["to_offset"] is not None:
        is_good = not subtract(
            [(row["from_offset"], row["to_offset"])] if row["from_offset"] <= row["to_offset"] else (),
            ((r.from_offset, r.to_offset) for r in ranges if r.kind in SETTLED),
        )
    elif offset is not None:
        is_good = any(r.kind in SETTLED and r.from_offset <= offset <= r.to_offset for r in ranges)
    else:
        # which offsets the bytes hide is not known: as long as the file is so, they may be some that nothing else has
        is_good = False
    if not is_good or row["code"] == OVERLAPPING_BATCH:
        return row
    return row | {"resolved_at": run.captured_at, "resolved_by": "bronze has these offsets from a good copy"}


def _identity(row: Mapping[str, Any]) -> tuple[str, ...]:
    names = ("topic", "partition", "source", "stage", "code", "base_offset", "byte_position", "message")
    return tuple(str(row[name]) for name in names)


def _merged_coverage(
    bronze: Bronze,
    done: Sequence[TaskDone],
    lineages: Mapping[LogPartition, Lineage],
    observed_at_ms: int,
    put_right: Mapping[LogPartition, Sequence[OffsetRange]],
) -> dict[LogPartition, Sequence[CoverageRange]]:
    """What was seen, merged into the coverage of the cluster; nothing is CORRUPT any more where that was put right."""
    seen: dict[LogPartition, list[CoverageRange]] = {}
    rebuilt: dict[LogPartition, tuple[CoverageRange, ...]] = {}
    for result in done:
        for partition, ranges in result.coverage:
            seen.setdefault(partition, []).extend(ranges)
        rebuilt |= result.rebuilt
    merged: dict[LogPartition, Sequence[CoverageRange]] = dict(bronze.coverage)
    for partition, observed in seen.items():
        together = [*_but_right(bronze.coverage.get(partition, ()), put_right.get(partition, ())), *observed]
        if partition in rebuilt:
            now = _but_untold(rebuilt[partition], together)
            together = [*now, *_left_of(together, now)]
        of_the_log = _but_cut(together, lineages.get(partition, Lineage()))
        merged[partition] = complete_coverage(merge_coverage(of_the_log, ()), observed_at_ms=observed_at_ms)
    return merged


def _but_right(ranges: Sequence[CoverageRange], right: Sequence[OffsetRange]) -> Iterator[CoverageRange]:
    """The same, but for damage that was put right."""
    for r in ranges:
        if r.kind is not CoverageKind.CORRUPT or not right:
            yield r
            continue
        for first, last in subtract([(r.from_offset, r.to_offset)], right):
            yield replace(r, from_offset=first, to_offset=last)


def _but_cut(ranges: Iterable[CoverageRange], lineage: Lineage) -> Iterator[CoverageRange]:
    """The same, but for holes and damage that only a tail shows which the log does not have any more."""
    ends: dict[int, int | None] = {}
    for r in ranges:
        if r.leader_epoch is None:
            yield r
            continue
        if r.leader_epoch not in ends:
            ends[r.leader_epoch] = lineage.end_of(r.leader_epoch)
        end = ends[r.leader_epoch]
        if end is None or r.to_offset < end:
            yield r
        elif r.from_offset < end:
            yield replace(r, to_offset=end - 1)


def _but_untold(now: Sequence[CoverageRange], seen: Iterable[CoverageRange]) -> list[CoverageRange]:
    """The same, but for holes of dumps whose records are not told."""
    untold = [(r.from_offset, r.to_offset) for r in seen if r.reason == coverage_rows.NOT_TOLD]
    return [
        replace(r, from_offset=first, to_offset=last)
        for r in now
        for first, last in subtract(
            [(r.from_offset, r.to_offset)], untold if r.reason == coverage_rows.NOT_IN_DUMP else ()
        )
    ]


def _left_of(before: Iterable[CoverageRange], now: Iterable[CoverageRange]) -> list[CoverageRange]:
    """What holds still of coverage once batches were taken out of bronze: since when records that are there are known,
    and what was said of the others."""
    captured = [(r.from_offset, r.to_offset) for r in now if r.kind is CoverageKind.CAPTURED]
    left = []
    for r in before:
        if r.kind is CoverageKind.CAPTURED:
            for first, last in intersect([(r.from_offset, r.to_offset)], captured):
                left.append(CoverageRange(first, last, r.kind, r.observed_at_ms))
        elif r.kind is not CoverageKind.MISSING or r.reason not in (BEFORE_FIRST, BETWEEN):
            left.append(r)  # gaps are made anew where they still are
    return left


def _write_coverage(
    warehouse: Warehouse, bronze: Bronze, merged: Mapping[LogPartition, Sequence[CoverageRange]]
) -> bool:
    """Nothing is written if nothing changes; was something?"""
    if all(tuple(merged[partition]) == tuple(bronze.coverage.get(partition, ())) for partition in merged):
        return False
    _replace_cluster(warehouse, COVERAGE, coverage_rows.to_table(bronze.cluster_id, merged), bronze)
    return True


def _replace_cluster(warehouse: Warehouse, table: Table, rows: pa.Table, bronze: Bronze) -> None:
    committed = warehouse.write(
        table,
        rows,
        app_id=application(bronze.cluster_id),
        version=bronze.versions[table.full_name] + 1,
        mode=OVERWRITE,
        replace={"cluster_id": bronze.cluster_id},
    )
    if committed.skipped:
        raise CaptureConflict


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
