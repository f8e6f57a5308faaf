"""capture: source -> bronze, in one Spark stage.

Each task reads and checks segments of some log partitions and writes their batches as Parquet part files; the bytes of
the log do not pass through the JVM. The driver commits all files in one Delta transaction.

bronze has one batch for each offset. Where copies of a log differ, `coordinator_core.bytes.log.copies` decides which
batch counts. One commit adds that batch and removes the others. `jobs.bronze.copies` keeps the state that this needs.

A repeated run adds nothing. The Delta log keeps the first and last offset of every file of bronze.record_batches. A
file ends at every gap that compaction does not explain, so it never spans offsets that another source could still have.
Therefore the offset ranges of the files are what is captured. They are committed with the rows, so they are right after
any crash. Damaged batches have files of their own, since the offsets in a damaged header cannot be trusted.
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final

from coordinator_core.bytes.log.copies import Lineage
from coordinator_core.bytes.log.scan import TORN_TAIL
from coordinator_core.bytes.log_partitions import LogPartition
from jobs.bronze import coverage as coverage_rows
from jobs.bronze.admin_snapshots import first_topic_ids
from jobs.bronze.copies import ROW_FILES, Copies, ReadFile, capture_application, write_rewrites
from jobs.bronze.coverage_merge import merged_coverage, write_coverage
from jobs.bronze.identity import check_sources, identities_of, keep_identities, other_names, refuse_other_dumps
from jobs.bronze.log_ends import keep_log_partitions, require_copied_behind_records
from jobs.bronze.plan import Sources, plan
from jobs.bronze.quarantine_merge import QuarantineMerge, write_quarantine
from jobs.bronze.snapshot import QUARANTINE, Bronze
from jobs.bronze.tasks import run_task
from jobs.bronze.work import CaptureTask, TaskDone, TopicCount
from jobs.bronze.writer import CaptureRun
from jobs.console.output import time_text
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.filesystems import delete_folder
from jobs.delta.last_release import carry_over
from jobs.delta.other_writers import refuse_older_bronze
from jobs.delta.times import epoch_ms, to_datetime
from jobs.delta.warehouse import Warehouse
from jobs.errors import ArgumentError, CaptureConflict, SourceError
from jobs.settings import Settings, is_table_name, require_source
from jobs.sources.segments import UNREADABLE_FILE, LogPlace, find_partitions
from jobs.spark.executors import Executor
from jobs.spark.tasks import run_tasks, tapered
from schemas.tables.bronze import COVERAGE, RECORD_BATCHES

if TYPE_CHECKING:
    from jobs.sources.broker_log import BrokerLog
    from jobs.sources.dumps.files import DumpFile
    from jobs.sources.dumps.source import Unpacked


@dataclass(frozen=True, slots=True)
class CaptureSummary:
    """What a capture did.

    `gaps`: the number of MISSING or CORRUPT offset ranges in everything captured of the cluster.
    """

    topics: Mapping[str, TopicCount]
    quarantined_count: int
    """Open rows in quarantine that captures wrote, without torn tails of newest segments."""
    gap_count: int
    bronze_version: int
    seconds: float
    notes: tuple[str, ...] = ()
    """Sentences about what the sources do not show."""
    faults: tuple[str, ...] = ()
    """Sentences that say why the capture is not clean: what was quarantined, which gaps there are."""

    @property
    def batch_count(self) -> int:
        return sum(topic.batch_count for topic in self.topics.values())

    @property
    def record_count(self) -> int:
        """Number of records in the batches written."""
        return sum(topic.record_count for topic in self.topics.values())

    @property
    def size_bytes(self) -> int:
        """Size of the batches written, as on Kafka's disk."""
        return sum(topic.size_bytes for topic in self.topics.values())

    @property
    def is_clean(self) -> bool:
        """True: no row that captures wrote to quarantine is open, and no part of the log is missing."""
        return self.quarantined_count == 0 and self.gap_count == 0


def capture(
    executor: Executor, warehouse: Warehouse, settings: Settings, *, capture_id: str, captured_at: datetime
) -> CaptureSummary:
    """Read all sources and add to bronze what it lacks. `captured_at` is the start of the run, with a time zone.

    Raises SourceError for a source that is not there, CaptureConflict when another capture of the cluster was faster.
    """
    began = perf_counter()
    if settings.copied_at_ms is not None and settings.copied_at_ms > epoch_ms(captured_at):
        raise ArgumentError(
            f"--copied-at {time_text(settings.copied_at_ms)} lies ahead of this run, which began at "
            f"{time_text(epoch_ms(captured_at))}: give the time at which copying began"
        )
    sources = find_sources(settings)
    identities_of(sources)  # sources that contradict each other are refused before a table is created
    tables = ClusterTables(warehouse, settings.cluster_id)
    refuse_older_bronze(tables)
    carry_over(warehouse)
    bronze = Bronze.load(tables)
    identities = check_sources(warehouse, bronze, sources)
    refuse_other_logs(sources.live, bronze, first_topic_ids(tables))
    run = CaptureRun(settings.cluster_id, capture_id, captured_at)
    summary, dumped = _capture_all(executor, warehouse, settings, bronze, sources, run)
    summary = replace(summary, notes=(*summary.notes, *other_names(warehouse, bronze, identities)))
    keep_identities(tables, identities, captured_at)
    copied: list[LogPlace] = [*sources.segments, *dumped] if settings.copied_at_ms is not None else []
    if settings.copied_at_ms is not None:
        require_copied_behind_records(tables, copied, settings.copied_at_ms)
    keep_log_partitions(
        tables,
        copied=copied,
        copied_at=None if settings.copied_at_ms is None else to_datetime(settings.copied_at_ms),
        found=[*sources.segments, *dumped],
        live=sources.live,
        said=settings.partition_counts,
        seen_at=captured_at,
    )
    if settings.broker_address is None:
        return summary
    from jobs.bronze.cluster_watch import watch_once  # noqa: PLC0415  (files need not load Kafka's client)

    # reading the logs may have taken long
    asked_at = captured_at + timedelta(seconds=perf_counter() - began)
    return replace(summary, notes=(*summary.notes, *watch_once(warehouse, settings, asked_at)))


def _capture_all(
    executor: Executor, warehouse: Warehouse, settings: Settings, bronze: Bronze, sources: Sources, run: CaptureRun
) -> tuple[CaptureSummary, Sequence[LogPlace]]:
    """Capture all sources, dumps included; returns the log partitions of dumps, too."""
    if not settings.dumps:
        return capture_logs(executor, warehouse, settings, bronze, sources, run)[0], ()
    from jobs.sources.dumps.catalog import located  # noqa: PLC0415
    from jobs.sources.dumps.source import unpack_dumps  # noqa: PLC0415  (a capture without dumps need not load it)

    staging = f"{warehouse.root}/_staging/dumps/{run.capture_id}"
    try:
        read_as = _read_as(settings)
        known = {
            path: (file.size_bytes, file.modified_at_ns)
            for path, file in bronze.copies.files.get(ROW_FILES, {}).items()
            # with --copied-at, each log partition of a dump is complete up to then: all rows say which there are
            if settings.copied_at_ms is None and file.read_as == read_as
        }
        named = {uri: located(executor, uri) for uri in settings.dumps if is_table_name(uri)}
        settings = replace(settings, dumps=tuple(named.get(uri, uri) for uri in settings.dumps))
        run_all = partial(run_tasks, executor)
        unpacked = unpack_dumps(settings, staging=staging, run_all=run_all, known=known)
        gone = _gone(ClusterTables(warehouse, settings.cluster_id), settings.dumps, unpacked.listed)
        sources = replace(sources, dumps=replace(unpacked, sources=(*unpacked.sources, *gone)))
        _refuse_numbered_dumps(ClusterTables(warehouse, settings.cluster_id), sources)
        refuse_other_dumps(warehouse, bronze, sources)
        return capture_logs(executor, warehouse, settings, bronze, sources, run)[0], sources.all_dumps
    finally:
        delete_folder(staging)


def find_sources(settings: Settings) -> Sources:
    """Inspect all sources. Raises SourceError for one that does not exist, SettingsError where none is configured."""
    require_source(settings)
    notes: list[str] = []
    segments = [log for uri in settings.segments for log in find_partitions(uri, settings.topics, None, notes)]
    address = settings.broker_address
    if address is None:
        return Sources(segments, notes=tuple(notes))
    from jobs.sources.broker_log import find_broker_logs  # noqa: PLC0415  (files need not load Kafka's client)

    live = find_broker_logs(address, settings.topics, timeout_ms=settings.request_timeout_ms)
    return Sources(segments, live, notes=tuple(notes))


def refuse_other_logs(logs: "Sequence[BrokerLog]", bronze: Bronze, ids: Mapping[str, str]) -> None:
    """Raise SourceError where a live log cannot be the log in bronze: their batches must never mix.

    `ids`: topic ids by name, from the first live capture. A live log shorter than bronze is compared with it if its
    topic id proves that it is the same log.
    """
    captured = {topic for topic, _ in bronze.known}
    for log in logs:
        known_id = ids.get(log.topic)
        if log.topic in captured and known_id is not None and log.topic_id not in (None, known_id):
            raise SourceError(
                f"topic {log.topic} was deleted and recreated (its id was {known_id} and is {log.topic_id} now): its "
                "offsets began again. Capture it with a --cluster-id of its own"
            )
        known = bronze.known.get((log.topic, log.partition))
        is_same = known_id is not None and log.topic_id == known_id
        if known and log.next_offset <= known[-1][1] and not is_same:
            raise SourceError(
                f"{log.topic}-{log.partition} ends at offset {log.next_offset}, and bronze has it up to "
                f"{known[-1][1]}: it was recreated, or an unclean leader election has cut it. What comes now is "
                "another log: capture it with a --cluster-id of its own"
            )


def capture_logs(
    executor: Executor,
    warehouse: Warehouse,
    settings: Settings,
    bronze: Bronze,
    sources: Sources,
    run: CaptureRun,
    *,
    may_cut: bool = True,
) -> tuple[CaptureSummary, Bronze]:
    """Capture what bronze lacks of some logs. Returns the summary, and bronze after the commit.

    `may_cut`: several tasks may share a log partition that only one source has.
    """
    started = perf_counter()
    core_count = executor.core_count
    work = plan(sources, bronze, settings.task_bytes_max, core_count, may_cut=may_cut)
    bins = tapered([item.size_bytes for item in work], core_count, new_bytes=sum(item.unread_bytes for item in work))
    version = bronze.versions[RECORD_BATCHES.full_name] + 1
    app_id = capture_application(bronze.cluster_id)
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
    done = run_tasks(executor, run_task, tasks, "reading the sources")
    for result in done:
        if result.error is not None:
            raise result.error
    removed = {file.path: file for result in done for file in result.removed}
    if len(removed) < sum(len(result.removed) for result in done) or any(result.has_moved for result in done):
        # two tasks rewrote the same file of bronze, each without the batches that the other removed; or a broker
        # replaced segments, and the new ones may hold offsets of several tasks
        return capture_logs(executor, warehouse, settings, bronze, sources, run, may_cut=False)
    if sources.dumps is not None:
        done.append(_unpacking(sources.dumps, settings, run))

    # Quarantine is committed first and coverage last. After a crash between them the next run finds the same rows again
    # and replaces them, and a segment is read again until coverage contains it.
    versions = dict(bronze.versions)
    tables = ClusterTables(warehouse, bronze.cluster_id)
    copies = _copies_after(bronze, done)
    quarantine = QuarantineMerge.load(warehouse, bronze, done)
    merged = merged_coverage(
        bronze, done, copies.lineages, epoch_ms(run.captured_at), quarantine.put_right(bronze.coverage)
    )
    is_written, still_open = write_quarantine(warehouse, bronze, done, quarantine, merged, run)
    versions[QUARANTINE.full_name] += is_written
    copies.write_lineages(tables, app_id, bronze.copies)
    copies.write_dumped(tables, app_id, bronze.copies)
    changed = _least_changed(done, bronze, copies)
    if changed:
        write_rewrites(tables, version, changed, run.captured_at)
    files = [file for result in done for file in result.files]
    bronze_version = warehouse.version(RECORD_BATCHES)
    if files or removed or changed:
        committed = warehouse.commit(
            RECORD_BATCHES, files, app_id=app_id, version=version, removed=tuple(removed.values())
        )
        if committed.skipped:
            raise CaptureConflict
        bronze_version = committed.version
        versions[RECORD_BATCHES.full_name] = version
    versions[COVERAGE.full_name] += write_coverage(warehouse, bronze, merged)
    copies.write_files(tables, app_id, bronze.copies)
    holes = tuple(coverage_rows.holes(merged))
    # count all open rows, also those of files that this run did not read
    codes = Counter(row["code"] for row in still_open if not row["message"].endswith(TORN_TAIL))
    summary = CaptureSummary(
        topics=_topic_counts(done),
        quarantined_count=codes.total(),
        gap_count=len(holes),
        bronze_version=bronze_version,
        seconds=perf_counter() - started,
        notes=(*sources.notes, *(sources.dumps.notes if sources.dumps is not None else ())),
        faults=(
            *(f"quarantined: {count:,} with {code}" for code, count in sorted((+codes).items())),
            *coverage_rows.hole_lines(holes),
        ),
    )
    if removed:
        return summary, Bronze.load(tables)
    return summary, replace(bronze.after(done, merged, versions), copies=copies)


def _copies_after(bronze: Bronze, done: Sequence[TaskDone]) -> Copies:
    """The state about copies after some tasks."""
    copies = bronze.copies
    for result in done:
        copies = copies.after(result.lineages, result.compared, result.dumped)
    for result in done:
        copies = copies.without(result.disproved)
    return copies


def _least_changed(done: Sequence[TaskDone], bronze: Bronze, copies: Copies) -> dict[LogPartition, int]:
    """By log partition: the first offset below the end of bronze at which this capture changes it, or what is known of
    a leader that loaded it."""
    changed: dict[LogPartition, int] = {}
    for log in (log for result in done for log in result.lineages):
        before = bronze.copies.lineages.get(log, Lineage())
        loads = [load.log_offset for load in {*before.loads} ^ {*copies.lineages[log].loads}]
        if loads and min(loads) <= bronze.known.get(log, ((-1, -1),))[-1][1]:
            changed[log] = min(loads)
    for result in done:
        for partition, offset in result.changed.items():
            changed[partition] = min(offset, changed.get(partition, offset))
    return changed


ROW_OF_FAULT: Final = ("topic", "partition", "offset", "code", "message", "byte_position", "group_id")
"""Columns of bronze.quarantine that a bad row of a dump has."""


def _read_as(settings: Settings) -> str:
    """The settings that say how to read a file of rows."""
    return json.dumps([settings.topics, asdict(settings.dump)], sort_keys=True)


def _read_file(file: "DumpFile", read_as: str) -> ReadFile:
    return ReadFile(file.path, file.size_bytes, file.modified_at_ns, read_as=read_as)


def _unpacking(dumps: "Unpacked", settings: Settings, run: CaptureRun) -> TaskDone:
    rows = [
        {
            **{name: getattr(fault.row, name) for name in ROW_OF_FAULT},
            "cluster_id": run.cluster_id,
            "base_offset": None,
            "stage": "FILE",
            "bytes": fault.row.payload,
            "source": fault.source,
            "seen_at": run.captured_at,
        }
        for fault in dumps.faults
    ]
    read_as = _read_as(settings)
    return TaskDone(
        quarantine=rows,
        read_sources=dict.fromkeys(dumps.sources, 0),
        compared={ROW_FILES: [_read_file(file, read_as) for file in dumps.files_read]},
    )


def _gone(tables: ClusterTables, dumps: Sequence[str], listed: Collection[str]) -> list[str]:
    """Files that could not be read and that a dump has no more: another file has their rows, or coverage a hole."""
    from jobs.sources.dumps.source import UNKNOWN_FORMAT  # noqa: PLC0415

    rows = tables.read(QUARANTINE, ["source", "code", "resolved_at"]).to_pylist()
    codes = (UNREADABLE_FILE, UNKNOWN_FORMAT)
    unread = {row["source"] for row in rows if row["code"] in codes and row["resolved_at"] is None}
    folders = tuple(f"{uri.rstrip('/')}/" for uri in dumps)
    return sorted(source for source in unread - {*listed} if source.startswith(folders))


def _refuse_numbered_dumps(tables: ClusterTables, sources: Sources) -> None:
    """Raise SourceError where records without offsets would meet other records: their numbers are not offsets of the
    log."""
    numbered = {log.topic: log.uri for log in sources.all_dumps if not log.has_offsets}
    if not numbered:
        return
    others = [(log.topic, log.uri) for log in sources.all_dumps]
    others += [(log.topic, "") for log in sources.segments]
    others += [(log.topic, "") for log in sources.live]
    # Delta's statistics keep only a prefix of a string, so the column itself is read
    rows = tables.read(RECORD_BATCHES, ["topic", "source"])
    captured = rows.group_by(["topic", "source"], use_threads=False).aggregate([])
    others += zip(captured["topic"].to_pylist(), captured["source"].to_pylist(), strict=True)
    for topic, source in others:
        if topic in numbered and source != numbered[topic]:
            raise SourceError(
                f"{numbered[topic]} has records of {topic} without offsets, which cannot be put among those of "
                f"{source or 'another source'}: capture it with a --cluster-id of its own"
            )


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
