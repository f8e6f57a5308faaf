"""maintain: keep tables fast to read and no larger than necessary.

OPTIMIZE merges small files (`jobs.operations.compaction`); VACUUM deletes files of versions that no reader may still
use, and leftovers of failed runs. It can run during a capture, which only adds files. It blocks replay and audit, and
does not start while one is running. Every change of a table is one Delta transaction, so a run that fails has processed
some tables and not others: run it again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Final

from pyarrow import fs

from coordinator_core.bytes.coverage import CoverageKind, subtract
from coordinator_core.bytes.log_partitions import LogPartition, OffsetRange
from coordinator_core.text import counted
from jobs.bronze import coverage as coverage_rows
from jobs.bronze.retention import record_deletions
from jobs.bronze.writer import is_damaged, offsets_of
from jobs.console.names import or_some
from jobs.console.progress import Steps, size_text, summary_table
from jobs.delta.arrow_schemas import DAY
from jobs.delta.audit_runs import WholeAudit, audit_application
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.filesystems import delete_folder, filesystem_of
from jobs.delta.last_release import carry_over
from jobs.delta.locks import is_at_work, only_one
from jobs.delta.replay_runs import WholeRun, broken_off
from jobs.delta.table_files import TableFile
from jobs.delta.warehouse import Warehouse
from jobs.errors import SettingsError, WarehouseError
from jobs.operations.compaction import MergeWork, log_of, merge_files, merge_plan
from jobs.operations.metrics import Metrics, job_of
from jobs.settings import MaintainSettings, Settings
from jobs.silver.checkpoints import read_watermarks
from jobs.silver.replay import replay_application
from jobs.spark.executors import Executor
from jobs.spark.tasks import run_tasks
from schemas.tables import TABLES
from schemas.tables.bronze import CONFIGS, COVERAGE, RECORD_BATCHES, TOPICS
from schemas.tables.declare import Table
from schemas.tables.gold import GOLD_TABLES
from schemas.tables.state import RUN_STARTS, RUNS

HOUR_MS: Final = 3_600_000
READERS_MS: Final = 7 * 24 * HOUR_MS
"""Default time that VACUUM leaves files for readers, as in Delta itself: a query may run for days."""
PINNED_JOBS: Final = ("replay", "audit")
"""Jobs that remove rows from tables: never at the same time as this one."""
STAGING: Final = "_staging"
MAINTAIN: Final = "maintain"
MANY_FILES: Final = 25
"""So many small files of a partition are merged by a night; fewer are left to maintain."""
SMALL_BYTES: Final = 16 << 20
"""Up to this size a night merges files."""


@dataclass(frozen=True, slots=True)
class OldFiles:
    """The rows of a table that are older than its retention."""

    before: datetime
    dropped: tuple[TableFile, ...] = ()
    """Files without any younger row."""
    cut: tuple[TableFile, ...] = ()
    """Files whose older rows are removed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The input that the maintenance of all tables shares."""

    settings: MaintainSettings
    clusters: tuple[str, ...]
    holes: Mapping[tuple[str, LogPartition], Sequence[OffsetRange]]
    """Compacted offsets: no capture will ever bring them."""
    replayed: Mapping[tuple[str, LogPartition], Sequence[OffsetRange]]
    """Offsets whose replay is in silver and in the state."""
    pinned: Mapping[str, frozenset[int]]
    retention_hours: int
    at: datetime
    dry_run: bool

    def keep(self, table: Table) -> list[int]:
        """Versions of a table whose files VACUUM keeps."""
        return sorted(self.pinned.get(table.full_name, ()))

    def old_files(self, table: Table, files: Sequence[TableFile]) -> OldFiles:
        """Files of a table with rows older than its retention.

        Of bronze.record_batches only whole files are dropped, after their replay, and the newest one of a log partition
        stays: it shows up to where the log is known. Of tables by day whole days are dropped.
        """
        days = self.settings.retention_days.get(table.full_name)
        if days is None:
            return OldFiles(self.at)
        before = self.at - timedelta(days=days)
        if DAY in table.partition_by:
            return OldFiles(before, tuple(file for file in files if _is_of_day_before(file, before.date())))
        assert table.age_column is not None
        age = table.age_column
        dropped = [file for file in files if age in file.maximum and file.maximum[age] < before]
        if table is not RECORD_BATCHES:
            cut = [file for file in files if file not in dropped and age in file.minimum and file.minimum[age] < before]
            return OldFiles(before, tuple(dropped), tuple(cut))
        newest: dict[tuple[str, LogPartition], TableFile] = {}
        for file in sorted(files, key=lambda file: file.maximum.get("last_offset", -1)):
            if not is_damaged(file):
                newest[log_of(file)] = file
        return OldFiles(
            before,
            tuple(
                file
                for file in dropped
                if not is_damaged(file)
                and file is not newest[log_of(file)]
                and not subtract([offsets_of(file)], self.replayed.get(log_of(file), ()))
            ),
        )


def _is_of_day_before(file: TableFile, first: date) -> bool:
    day = file.partition_values[DAY]
    return day is not None and day < first


@dataclass(frozen=True, slots=True)
class TableDone:
    """What was done to one table."""

    name: str
    file_count_before: int
    file_count: int
    size_bytes: int
    left_out_count: int = 0
    """Number of rows removed because of the table's retention; in a dry run a lower bound."""
    deleted_count: int = 0
    """Files that VACUUM deleted, or would delete."""
    orphan_count: int = 0
    """Remaining files in the folder that no commit names: of running or recently failed jobs."""


@dataclass(frozen=True, slots=True)
class MaintainSummary:
    """What maintain did, or would do."""

    tables: tuple[TableDone, ...]
    staging: tuple[str, ...] = field(default=())
    """Folders of failed runs under `_staging` that were deleted."""


def vacuum_retention_ms(
    settings: Settings, tables: Sequence[str], vacuum_after_ms: int | None, *, allows_short: bool
) -> int:
    """How long VACUUM keeps removed files. Raises SettingsError as `maintain`."""
    unknown = [name for name in tables if name not in TABLES]
    if unknown:
        raise SettingsError(f"there is no table {or_some(unknown[0], TABLES)}")
    retention_ms = settings.maintain.vacuum_after_ms if vacuum_after_ms is None else vacuum_after_ms
    if retention_ms < READERS_MS and not allows_short:
        raise SettingsError(
            f"VACUUM would delete files that a reader may still need: {retention_ms / HOUR_MS:g} hours is less than "
            f"{READERS_MS / HOUR_MS:g}. Give a longer one, or --allow-short-retention while no reader is running"
        )
    return retention_ms


def maintain(
    executor: Executor,
    warehouse: Warehouse,
    settings: Settings,
    *,
    started_at: datetime,
    tables: Sequence[str] = (),
    vacuum_after_ms: int | None = None,
    allows_short_retention: bool = False,
    dry_run: bool = False,
    metrics: Metrics | None = None,
) -> MaintainSummary:
    """Merge small files of tables, and delete files that nobody can read any more. `tables`: full names; none: all.

    `vacuum_after_ms`: how long VACUUM keeps removed files; by default from the settings. `dry_run`: only report what
    would be done. Raises SettingsError for an unknown table, or a retention below what readers need; WarehouseError
    while replay or audit is running.
    """
    retention_ms = vacuum_retention_ms(settings, tables, vacuum_after_ms, allows_short=allows_short_retention)
    clusters = clusters_of(warehouse)
    with nobody_else(warehouse, clusters, since=started_at), job_of(None if dry_run else metrics, "maintain") as job:
        if not dry_run:
            carry_over(warehouse)
        plan = Plan(
            settings=settings.maintain,
            clusters=clusters,
            holes=_compacted(warehouse, clusters),
            replayed=_replayed(warehouse, clusters),
            pinned=pinned_versions(warehouse, clusters),
            retention_hours=retention_ms // HOUR_MS,
            at=started_at,
            dry_run=dry_run,
        )
        done = [
            _maintain_table(executor, warehouse, table, plan)
            for table in TABLES.values()
            if (not tables or table.full_name in tables) and warehouse.exists(table)
        ]
        staging = old_staging(warehouse, started_at - timedelta(milliseconds=retention_ms))
        if not dry_run:
            for folder in staging:
                delete_folder(folder)
        job.deleted_file_count = sum(table.deleted_count for table in done)
    return MaintainSummary(tuple(done), tuple(staging))


def merge_many(executor: Executor, warehouse: Warehouse, settings: Settings, *, started_at: datetime) -> list[str]:
    """Merge the files of tables that have many small ones, as Delta's auto compaction does: each night adds some, and
    what reads a table opens all. Returns what could not be merged, in words.
    """
    if is_at_work(warehouse, MAINTAIN, ""):
        return []
    clusters = clusters_of(warehouse)
    few = replace(
        settings.maintain, merge_file_count_min=MANY_FILES, file_bytes=min(settings.maintain.file_bytes, SMALL_BYTES)
    )
    plan = Plan(few, clusters, _compacted(warehouse, clusters), {}, {}, 0, started_at, dry_run=False)
    left: list[str] = []
    for table in filter(warehouse.exists, TABLES.values()):
        version = warehouse.version(table)
        if works := _merges(warehouse, table, warehouse.files(table, version), plan):
            try:
                _swap(executor, warehouse, table, works, OldFiles(started_at), version, plan)
            except WarehouseError as error:
                left.append(str(error))
    return left


@contextmanager
def nobody_else(warehouse: Warehouse, clusters: Iterable[str], *, since: datetime) -> Iterator[None]:
    """Context in which nobody replays or audits a cluster of the warehouse, or maintains it.

    Raises WarehouseError, which names the running job. On object stores, each table's transaction detects conflicts.
    """
    with ExitStack() as stack:
        stack.enter_context(only_one(warehouse, MAINTAIN, "", since=since))
        for cluster_id in clusters:
            for job in PINNED_JOBS:
                stack.enter_context(only_one(warehouse, job, cluster_id, since=since, holder=MAINTAIN))
        yield


def clusters_of(warehouse: Warehouse) -> tuple[str, ...]:
    """Clusters with any data in the warehouse."""
    return tuple(
        sorted(
            {
                file.partition_values["cluster_id"]
                for t in (RECORD_BATCHES, RUN_STARTS, RUNS)
                for file in warehouse.files(t)
            }
        )
    )


def writers_of(clusters: Iterable[str]) -> list[str]:
    """Application ids of writers that remove rows from tables, and that a swap of files must not conflict with."""
    return [name(cluster_id) for cluster_id in clusters for name in (replay_application, audit_application)]


def pinned_versions(warehouse: Warehouse, clusters: Iterable[str]) -> Mapping[str, frozenset[int]]:
    """By table, versions that readers are pinned to, or that the repetition of a failed replay needs."""
    pinned: dict[str, set[int]] = {}
    for cluster_id in clusters:
        tables = ClusterTables(warehouse, cluster_id)
        silver = WholeRun.newest(tables)
        gold = WholeAudit.newest(tables)
        versions = {
            name: (gold if table in GOLD_TABLES else silver).version_of(table) for name, table in TABLES.items()
        }
        start = broken_off(tables, WholeRun.newest(tables, with_unaudited=True))
        if start is not None:
            versions |= {
                RECORD_BATCHES.full_name: start.bronze_version,
                TOPICS.full_name: start.topics_version,
                CONFIGS.full_name: start.configs_version,
            }
        for name, version in versions.items():
            # a version that can no longer be read need not be kept
            if version is not None and version >= 0 and warehouse.has_version(TABLES[name], version):
                pinned.setdefault(name, set()).add(version)
    return {name: frozenset(versions) for name, versions in pinned.items()}


def _replayed(warehouse: Warehouse, clusters: Iterable[str]) -> dict[tuple[str, LogPartition], Sequence[OffsetRange]]:
    """Nothing for a cluster whose last replay failed: its inputs are still needed."""
    replayed: dict[tuple[str, LogPartition], Sequence[OffsetRange]] = {}
    for cluster_id in clusters:
        tables = ClusterTables(warehouse, cluster_id)
        whole = WholeRun.newest(tables, with_unaudited=True)
        if broken_off(tables, whole) is None:
            for log, watermark in read_watermarks(whole).items():
                replayed[cluster_id, log] = watermark.replayed
    return replayed


def _compacted(warehouse: Warehouse, clusters: Iterable[str]) -> dict[tuple[str, LogPartition], list[OffsetRange]]:
    """Compacted offsets: no capture will ever bring them."""
    holes = {}
    for cluster_id in clusters:
        coverage = coverage_rows.from_table(warehouse.read(COVERAGE, where={"cluster_id": cluster_id}))
        for log, ranges in coverage.items():
            holes[cluster_id, log] = [(r.from_offset, r.to_offset) for r in ranges if r.kind is CoverageKind.COMPACTED]
    return holes


def _merges(warehouse: Warehouse, table: Table, files: Sequence[TableFile], plan: Plan) -> list[MergeWork]:
    return merge_plan(
        files,
        warehouse.target(table),
        file_bytes=plan.settings.file_bytes,
        file_count_min=plan.settings.merge_file_count_min,
        holes=plan.holes,
    )


def _maintain_table(executor: Executor, warehouse: Warehouse, table: Table, plan: Plan) -> TableDone:
    version = warehouse.version(table)
    files = warehouse.files(table, version)
    old = plan.old_files(table, files)
    kept = [file for file in files if file not in old.dropped and file not in old.cut]
    works = _merges(warehouse, table, kept, plan)
    works += [MergeWork(warehouse.target(table), (file,), old.before) for file in old.cut]
    deleted = warehouse.unreferenced(table, retention_hours=plan.retention_hours, keep_versions=plan.keep(table))
    left_out_count = sum(file.row_count or 0 for file in old.dropped)
    if not plan.dry_run:
        if works or old.dropped:
            left_out_count += _swap(executor, warehouse, table, works, old, version, plan)
        warehouse.vacuum(table, retention_hours=plan.retention_hours, keep_versions=plan.keep(table))
        if works or old.dropped or deleted:
            warehouse.checkpoint(table)
    orphans = warehouse.unreferenced(table, retention_hours=0, orphans_only=True)
    left = files if plan.dry_run else warehouse.files(table)
    return TableDone(
        table.full_name,
        file_count_before=len(files),
        file_count=len(files) - len(old.dropped) - sum(len(work.files) - 1 for work in works),
        size_bytes=sum(file.size_bytes for file in left),
        left_out_count=left_out_count,
        deleted_count=len(deleted),
        orphan_count=len(set(orphans) - set(deleted)),
    )


def _swap(
    executor: Executor,
    warehouse: Warehouse,
    table: Table,
    works: Sequence[MergeWork],
    old: OldFiles,
    version: int,
    plan: Plan,
) -> int:
    """Replace small files by merged ones, and remove old files. Returns the number of rows removed from rewritten
    files."""
    done = run_tasks(executor, merge_files, works, f"files of {table.full_name}")
    for work, merged in zip(works, done, strict=True):
        if work.keep_from is None and merged.left_out_count:
            raise WarehouseError(
                f"{table.full_name}: merged files lack {counted(merged.left_out_count, 'row')}: left as they were"
            )
    if old.dropped and table is RECORD_BATCHES:
        # recorded first: a recorded range that still exists does no harm, but a removed one without a record would be
        # captured again
        record_deletions(warehouse, old.dropped, at=plan.at)
    left_out_count = sum(merged.left_out_count for merged in done)
    warehouse.swap(
        table,
        [*old.dropped, *(file for merged in done for file in merged.removed)],
        [file for merged in done for file in merged.added],
        version=version,
        at=plan.at,
        writers=writers_of(plan.clusters),
        changes_rows=bool(old.dropped or left_out_count),
    )
    return left_out_count


def old_staging(warehouse: Warehouse, before: datetime) -> list[str]:
    """Folders under `_staging` with no newer file: leftovers of failed runs."""
    filesystem, path = filesystem_of(f"{warehouse.root}/{STAGING}")
    if filesystem.get_file_info(path).type != fs.FileType.Directory:
        return []
    newest: dict[str, datetime] = {}
    for info in filesystem.get_file_info(fs.FileSelector(path, recursive=True)):
        parts = info.path[len(path) :].strip("/").split("/")
        if len(parts) > 2 and info.type == fs.FileType.File:  # _staging/<purpose>/<run>/...
            folder = "/".join(parts[:2])
            # without file times (HDFS, as delta-rs lists it), nothing is certain to be old
            at = info.mtime or datetime.max.replace(tzinfo=before.tzinfo)
            newest[folder] = max(newest.get(folder, at), at)
    return sorted(f"{warehouse.root}/{STAGING}/{folder}" for folder, at in newest.items() if at < before)


def print_maintain(summary: MaintainSummary, steps: Steps, *, dry_run: bool) -> None:
    """Print the tables, and what is left over."""
    steps.facts["maintained"] = {
        "is_dry_run": dry_run,
        "tables": {
            done.name: {name: value for name, value in asdict(done).items() if name != "name"}
            for done in summary.tables
        },
        "staging": list(summary.staging),
    }
    rows = [
        (
            done.name,
            done.file_count_before,
            done.file_count,
            size_text(done.size_bytes),
            done.left_out_count,
            done.deleted_count,
            done.orphan_count,
        )
        for done in summary.tables
    ]
    columns = ("table", "files before", "files", "size", "rows too old", "deleted", "of no commit")
    steps.table(summary_table("would be maintained" if dry_run else "maintained", columns, rows))
    orphan_count = sum(done.orphan_count for done in summary.tables)
    if orphan_count:
        steps.say(
            f"{counted(orphan_count, 'file')} in no commit: running jobs write such files, and interrupted runs leave "
            "them behind; maintain deletes them once they are older than the retention"
        )
    for folder in summary.staging:
        steps.say(f"{'would delete' if dry_run else 'deleted'} {folder}: an interrupted run left it")
