"""bronze -> silver: replay what is new of every captured log partition, and write the state and events of coordinators.

One Spark task replays a few log partitions, one after another: it reads their batches from bronze's files, passes them
to the core chunk by chunk, and writes part files of the silver tables. A log partition is never shuffled: it is the
unit of order, and a group or share partition is entirely in one. A disproportionately large one is read by several
tasks, each of which replays its own keys (`jobs.silver.hot_logs`). The driver commits.

A run continues where the last one stopped (`jobs.silver.checkpoints`). Rows that a later run may still change have
`is_settled` false: each run replaces the unsettled rows of the last one, in the same Delta transaction that adds the
settled rows.

There are two rounds, because the name of a topic id may be in another log partition than the one that needs it: first
`__consumer_offsets` and the logs that contain names, then `__share_group_state` and those assignments of the first
round whose task lacked a name that another task found.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.history.ledger import LedgerCounts
from coordinator_core.text import counted
from jobs.bronze.admin_snapshots import admin_configs, admin_snapshot_versions, admin_topics
from jobs.bronze.copies import Rewrites, last_capture, read_lineages
from jobs.bronze.partition_counts import observed_counts, partition_count_rows
from jobs.bronze.quarantine import is_of_capture, open_count
from jobs.bronze.retention import deleted_ranges
from jobs.console.command_name import command
from jobs.console.names import some_of
from jobs.delta.arrow_schemas import TIMESTAMP_TYPE, arrow_schema, timestamps
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.commits import OVERWRITE, Committed
from jobs.delta.filesystems import delete_file
from jobs.delta.last_release import carry_over
from jobs.delta.locks import only_one
from jobs.delta.other_writers import SOURCE_TABLES, lacks_run, later_writes
from jobs.delta.part_files import WrittenFile, write_parts
from jobs.delta.pinned_versions import OF_REPLAY
from jobs.delta.replay_runs import Start, WholeRun, broken_off, earlier_runs, ended
from jobs.delta.silver_format import SILVER_FORMAT, other_version, silver_format
from jobs.delta.table_files import TableFile
from jobs.delta.times import epoch_ms
from jobs.delta.warehouse import Warehouse
from jobs.errors import WarehouseError
from jobs.silver.checkpoints import ReplayMode, log_name, read_watermarks, saved_logs, watermark_rows
from jobs.silver.configs import config_rows, logged_changes
from jobs.silver.coordinator_keys import TABLE_COLUMNS, merged_keys, of_log, without_logs
from jobs.silver.former_rows import FormerFiles, carried_rows, former_files, rewritten_files, take_misnamed, task_bins
from jobs.silver.homes import coordinator_partitions, counts_of, is_same, partition_counts
from jobs.silver.hot_logs import CutRule, cut_hot_logs
from jobs.silver.plan import REMADE, REPLAY_TABLES, Plan, captured_files, make_plan
from jobs.silver.privacy import HostPseudonyms
from jobs.silver.reader import SilverFiles
from jobs.silver.replay_failures import ReplayFailure, failure_rows, read_failures
from jobs.silver.tasks import (
    Carried,
    LogFiles,
    ReplayDone,
    ReplayWork,
    replay_logs,
)
from jobs.silver.topic_names import (
    Names,
    name_by_id,
    name_rows,
    read_names,
    topic_rows,
    transactional_topics,
    with_learned,
)
from jobs.spark.executors import Executor
from jobs.spark.tasks import run_tasks
from schemas.cluster_metadata import TOPIC as METADATA_TOPIC
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables.bronze import QUARANTINE, RECORD_BATCHES
from schemas.tables.declare import Table
from schemas.tables.silver import (
    CONFIGS,
    COORDINATOR_PARTITIONS,
    MEMBER_ASSIGNMENTS,
    PARTITION_COUNTS,
    SILVER_TABLES,
    TOPICS,
)
from schemas.tables.state import ALL_LOGS, CHECKPOINTS, RUN_STARTS, RUNS, Checkpoint
from schemas.transaction_state import TOPIC as TRANSACTION_TOPIC

FIRST_ROUND: Final = (OFFSETS_TOPIC, TRANSACTION_TOPIC, METADATA_TOPIC)
ALL_TABLES: Final = (RUN_STARTS, *OF_REPLAY, QUARANTINE, RUNS)
"""All tables that a run writes: state.run_starts first, state.runs last."""


@dataclass(frozen=True, slots=True)
class ReplaySummary:
    """The result of a replay, by topic and by table."""

    counts: Mapping[str, LedgerCounts]
    row_counts: Mapping[str, int]
    quarantined_row_count: int
    bronze_version: int
    skipped: bool
    """Nothing was new: the tables already reflect this version of bronze."""
    failures: tuple[ReplayFailure, ...] = ()
    """What could not be replayed."""
    replaced_version: str | None = None
    """The other version whose silver was replaced, in words; None: silver was of this version."""


def replay(
    executor: Executor,
    warehouse: Warehouse,
    *,
    cluster_id: str,
    run_id: str,
    started_at: datetime,
    batch_decompressed_bytes_max: int,
    cut_records_min: int,
    rebuild: bool = False,
    hosts: HostPseudonyms | None = None,
    is_audited_next: bool = False,
) -> ReplaySummary:
    """Replay what bronze has of a cluster and silver does not, and commit the silver tables.

    A run with nothing new to read writes nothing. With `rebuild`, and where silver or the state has another version's
    format, it replays everything from the beginning. A run that failed is repeated first. The row in state.runs is
    written last. `cut_records_min`: log partitions with at least this many new records may be replayed by several tasks
    (`jobs.silver.hot_logs`). `hosts`: how silver shows clients' hosts, as they are by default. `is_audited_next`:
    readers see the result together with that of the next audit.

    Raises WarehouseError when another replay of the cluster is running.
    """
    with only_one(warehouse, "replay", cluster_id, since=started_at):
        tables = ClusterTables(warehouse, cluster_id)
        job = _Job(executor, tables, batch_decompressed_bytes_max, cut_records_min, hosts, is_audited_next)
        return _replay(job, run_id, started_at, rebuild=rebuild)


@dataclass(frozen=True, slots=True)
class _Job:
    """The context that all steps of a replay share."""

    executor: Executor
    tables: ClusterTables
    batch_decompressed_bytes_max: int
    cut_records_min: int
    hosts: HostPseudonyms | None
    is_audited_next: bool

    @property
    def app_id(self) -> str:
        return replay_application(self.tables.cluster_id)

    def newest_run(self) -> WholeRun:
        return WholeRun.newest(self.tables, is_writer=True)


def _replay(job: _Job, run_id: str, started_at: datetime, *, rebuild: bool) -> ReplaySummary:
    warehouse, cluster_id, whole = job.tables.warehouse, job.tables.cluster_id, job.newest_run()
    other = other_version(silver_format(job.tables), SILVER_FORMAT)
    broken = broken_off(job.tables, whole)
    # a version with other tables of state saved none that this one reads
    lacks_keys = CHECKPOINTS.full_name not in whole.left_versions
    # a table that was restored from an older copy lacks what runs added since
    is_back = lacks_run(warehouse, whole.left_versions, job.app_id, whole.replay_version)
    is_rebuild = rebuild or other is not None or not whole.is_known or lacks_keys or is_back
    repeated = None
    if broken is not None:
        if rebuild or not broken.is_repeatable or not warehouse.has_version(RECORD_BATCHES, broken.bronze_version):
            # some tables may have parts of that run: only a rebuild is sure to replace them
            is_rebuild = True
        else:
            repeated, whole, is_rebuild = _repeat(job, broken, whole), job.newest_run(), False
    if is_rebuild:
        carry_over(warehouse)
    # read before the version of bronze, so that version includes the changes of this capture
    capture_version = last_capture(job.tables)
    bronze_version = warehouse.version(RECORD_BATCHES)
    observed = admin_snapshot_versions(warehouse)
    has_new_snapshot = sum(observed) != whole.admin_version
    going_on = None if is_rebuild else _plan(job, bronze_version, whole, capture_version, is_rebuild=False)
    if going_on is not None and not (going_on.logs or has_new_snapshot or _is_elsewhere(job.tables, whole)):
        if repeated is not None:
            return dataclasses.replace(repeated, replaced_version=other)
        counts = _counts_of(job.tables)
        failures = tuple(chain.from_iterable(read_failures(whole).values()))
        quarantined = _quarantined_row_count(job.tables)
        return ReplaySummary(counts, {}, quarantined, bronze_version, skipped=True, failures=failures)
    versions = warehouse.ensure_all(ALL_TABLES, job.app_id)
    if max(versions.values()) > max(versions[RUN_STARTS.full_name], whole.replay_version):
        # state is older than tables that a later run wrote
        is_rebuild, going_on = True, None
    plan = going_on or _plan(job, bronze_version, whole, capture_version, is_rebuild=True)
    if not plan.steps:
        return ReplaySummary({}, {}, _quarantined_row_count(job.tables), bronze_version, skipped=True)
    if not rebuild:
        _refuse_to_forget(job.tables, plan)
    version = 1 + max(versions.values())
    start = Start(version, run_id, started_at, bronze_version, *observed, is_rebuild, capture_version=capture_version)
    if job.tables.write(RUN_STARTS, [dataclasses.asdict(start)], app_id=job.app_id, version=version).skipped:
        raise WarehouseError(f"another replay of cluster {cluster_id!r} began at the same time: run this one again")
    return dataclasses.replace(_run(job, start, whole, plan), replaced_version=other)


def _repeat(job: _Job, broken: Start, whole: WholeRun) -> ReplaySummary:
    """Repeat a run that failed."""
    capture_version = -1 if broken.capture_version is None else broken.capture_version
    plan = _plan(job, broken.bronze_version, whole, capture_version, is_rebuild=broken.is_rebuild)
    _refuse_to_forget(job.tables, plan)
    return _run(job, broken, whole, plan)


def _is_elsewhere(tables: ClusterTables, whole: WholeRun) -> bool:
    """Does the log partition of any group or share partition differ from silver's, by the partition counts known
    now?"""
    counts = partition_counts(tables)
    now = coordinator_partitions(_read_keys(whole), counts, tables.cluster_id)
    return not is_same(now, whole.read(COORDINATOR_PARTITIONS))


def _refuse_to_forget(tables: ClusterTables, plan: Plan) -> None:
    """Raise WarehouseError where a log partition would be replayed from its beginning, which retention deleted from
    bronze."""
    dropped = deleted_ranges(tables)
    lost = sorted(log_name(*log) for log, step in plan.steps.items() if step is ReplayMode.AFRESH and log in dropped)
    if lost:
        raise WarehouseError(
            f"{counted(len(lost), 'log partition')} ({some_of(lost)}) would be replayed from their beginning, and "
            "retention took "
            f"that out of {RECORD_BATCHES.full_name}: silver would forget what it has of it. If that may be, run "
            + command("replay --rebuild" + tables.place_words)
        )


def _plan(job: _Job, bronze_version: int, whole: WholeRun, capture_version: int, *, is_rebuild: bool) -> Plan:
    return make_plan(
        captured_files(job.tables, bronze_version),
        {} if is_rebuild else read_watermarks(whole),
        {} if is_rebuild else saved_logs(whole),
        deleted_ranges(job.tables),
        earlier_runs(job.tables, whole),
        Rewrites.load(job.tables, capture_version),
        {} if is_rebuild else read_failures(whole),
        {log: lineage.loads for log, lineage in read_lineages(job.tables).items() if lineage.log_starts},
    )


@dataclass(frozen=True, slots=True)
class _Results:
    """The results of a run's tasks, and the names of topic ids as known after them."""

    done: list[ReplayDone]
    before: Names
    names: Names
    topics: list[dict[str, Any]]
    name_of: Mapping[str, str]
    """Topic id -> topic."""
    is_renamed: bool
    """A topic id has another name than in silver so far."""
    rewritten: Mapping[str, tuple[TableFile, ...]]
    """By table, the files of settled rows that were rewritten."""


def _run(job: _Job, start: Start, whole: WholeRun, plan: Plan) -> ReplaySummary:
    """Execute or repeat a run. What it writes follows from its start, that version of bronze, and the last whole
    run; tables that already have this run are skipped. `plan`: made from the same inputs."""
    former = {} if plan.is_afresh else former_files(whole)
    results = _run_tasks(job, start, whole, plan, former)
    committed = _commit(job, start, plan, former, results, _driver_rows(job, start, whole, plan, results))
    quarantined = _commit_quarantine(
        job.tables.warehouse, results.done, job.tables.cluster_id, job.app_id, start.replay_version, plan
    )
    counts = dict.fromkeys(sorted({topic for topic, _ in plan.steps}), LedgerCounts())
    counts |= _summed(task.counts for task in results.done)
    _commit_run(job, start, whole, plan, results, counts, {name: item.version for name, item in committed.items()})
    row_counts = {table.full_name: committed[table.full_name].row_count for table in SILVER_TABLES}
    failures = (*plan.failures, *chain.from_iterable(task.failures for task in results.done))
    return ReplaySummary(counts, row_counts, quarantined, start.bronze_version, skipped=False, failures=failures)


def _run_tasks(job: _Job, start: Start, whole: WholeRun, plan: Plan, former: FormerFiles) -> _Results:
    """Run both rounds: first groups and logs with topic names, then share states and rows whose names were found
    meanwhile."""
    executor, warehouse = job.executor, job.tables.warehouse
    targets = {table.full_name: warehouse.target(table) for table in (*REPLAY_TABLES, QUARANTINE, CHECKPOINTS)}
    before = Names() if plan.is_afresh else read_names(whole)
    observed = admin_topics(job.tables, start.topics_version)
    work = ReplayWork(
        cluster_id=job.tables.cluster_id,
        number=0,
        logs=(),
        targets=targets,
        seen_at_ms=epoch_ms(start.started_at),
        batch_decompressed_bytes_max=job.batch_decompressed_bytes_max,
        names=name_by_id(topic_rows(before, *observed)),
        unsettled=SilverFiles({name: files[False] for name, files in former.items()}),
        replay_version=start.replay_version,
        hosts=job.hosts,
    )

    def round_of(*topics: str) -> list[LogFiles]:
        rule = CutRule(job.cut_records_min, job.batch_decompressed_bytes_max)
        return cut_hot_logs(executor, [log for log in plan.logs if log.topic in topics], rule)

    first = round_of(*FIRST_ROUND)
    second = round_of(SHARE_TOPIC)

    done = run_tasks(executor, replay_logs, _works(executor, work, first), "groups, offsets and transactions")
    names = with_learned(before, done)
    topics = topic_rows(names, *observed)
    name_of = name_by_id(topics)
    is_renamed = any(name_of.get(topic_id) != name for topic_id, name in before.in_use.items())
    rewritten = {} if plan.is_afresh else rewritten_files(warehouse, plan, former, is_renamed=is_renamed)
    naming = dataclasses.replace(work, names=name_of, number=len(done), unsettled=SilverFiles({}))
    works = _works(executor, naming, second)
    misnamed = take_misnamed(done, name_of, targets[MEMBER_ASSIGNMENTS.full_name].folder)
    carried = carried_rows(executor, plan, former, rewritten)
    if misnamed:
        carried.append(Carried(misnamed))
    works += [dataclasses.replace(naming, carried=rows) for rows in carried]
    works = [dataclasses.replace(item, number=len(done) + index) for index, item in enumerate(works)]
    done += run_tasks(executor, replay_logs, works, "share state")
    for _, _, file in misnamed:
        delete_file(file.path)
    return _Results(done, before, names, topics, name_of, is_renamed, rewritten)


def _driver_rows(
    job: _Job, start: Start, whole: WholeRun, plan: Plan, results: _Results
) -> dict[Table, Sequence[pa.Table]]:
    """All rows that the driver writes, by table."""
    cluster_id, done = job.tables.cluster_id, results.done
    changes = logged_changes(done, whole, plan)
    deleted = ((results.name_of[id_], at) for id_, at in results.names.deleted.items() if id_ in results.name_of)
    observed = [*admin_configs(job.tables, start.configs_version), *transactional_topics(results.names)]
    configs = config_rows(changes, observed, deleted)
    counts_over_time = partition_count_rows(
        results.names.partition_counts,
        observed_counts(job.tables, start.topics_version),
        results.name_of,
        {row["topic_id"]: row["valid_to"] for row in results.topics if row["valid_to"] is not None},
    )
    keys = _keys(done, whole, plan)
    partition_counts_now = counts_of(job.tables, counts_over_time, start.topics_version)
    in_use = dict.fromkeys(
        chain(results.before.in_use, (topic_id for task in done for topic_id, _ in task.names_given))
    )
    saved = {
        Checkpoint.WATERMARK: watermark_rows(plan.watermarks),
        Checkpoint.TOPIC_ID: name_rows(results.names, {id_: results.name_of.get(id_) for id_ in in_use}),
        Checkpoint.COORDINATOR_KEY: keys,
        Checkpoint.CONFIG_CHANGE: list(map(dataclasses.asdict, changes)),
        Checkpoint.FAILURE: failure_rows([*plan.failures, *chain.from_iterable(task.failures for task in done)]),
    }
    return {
        TOPICS: [_driver_table(TOPICS, results.topics, cluster_id)],
        PARTITION_COUNTS: [_driver_table(PARTITION_COUNTS, counts_over_time, cluster_id)],
        COORDINATOR_PARTITIONS: [coordinator_partitions(keys, partition_counts_now, cluster_id)],
        CONFIGS: [_driver_table(CONFIGS, configs, cluster_id)],
        CHECKPOINTS: [_checkpoint(kind, rows, cluster_id) for kind, rows in saved.items()],
    }


def _commit(
    job: _Job,
    start: Start,
    plan: Plan,
    former: FormerFiles,
    results: _Results,
    driver_rows: Mapping[Table, Sequence[pa.Table]],
) -> dict[str, Committed]:
    """Commit the files of tasks and the rows of the driver, each table in one transaction. Returns the commits by
    table."""
    of_cluster: dict[str, Any] = {"cluster_id": job.tables.cluster_id}
    of_logs = of_cluster if plan.is_afresh else of_cluster | {"log": (ALL_LOGS, *(log.name for log in plan.logs))}
    warehouse = job.tables.warehouse

    def put(table: Table) -> Committed:
        removed = results.rewritten.get(table.full_name, ())
        is_whole = plan.is_afresh or (bool(removed) and len(removed) == len(former[table.full_name][True]))
        of_rows = of_cluster if is_whole or table in driver_rows else of_cluster | {"is_settled": False}
        parts = (write_parts(warehouse.target(table), rows) for rows in driver_rows.get(table, ()))
        return warehouse.commit(
            table,
            [*_files_of(results.done, table), *chain.from_iterable(parts)],
            app_id=job.app_id,
            version=start.replay_version,
            mode=OVERWRITE,
            replace=of_logs if table is CHECKPOINTS else of_rows,
            removed=() if is_whole else removed,
        )

    tables = (*REPLAY_TABLES, *driver_rows)
    return dict(zip((table.full_name for table in tables), warehouse.at_once(put, tables), strict=True))


def _commit_run(
    job: _Job,
    start: Start,
    whole: WholeRun,
    plan: Plan,
    results: _Results,
    counts: Mapping[str, LedgerCounts],
    table_versions: dict[str, int],
) -> None:
    """Write the row in state.runs: from now on, readers see this run, or will once it is audited."""
    batch_counts = _summed(task.batch_counts for task in results.done)
    bronze_versions = {table.full_name: job.tables.warehouse.version(table) for table in SOURCE_TABLES}
    foreign_versions: Mapping[str, int] = {}
    if not plan.is_afresh:
        left = dict(whole.left_versions) | whole.bronze_versions
        foreign_versions = later_writes(
            job.tables.warehouse, whole.foreign_versions, left, table_versions | bronze_versions
        )
    others = {
        "is_renamed": results.is_renamed or plan.is_afresh,
        "is_audited_next": job.is_audited_next,
        "bronze_versions": list(bronze_versions.items()),
        "foreign_versions": list(foreign_versions.items()),
    }
    rows = _runs_table(counts, batch_counts, job.tables.cluster_id, start, table_versions, others)
    job.tables.warehouse.write(RUNS, rows, app_id=job.app_id, version=start.replay_version)


def replay_application(cluster_id: str) -> str:
    """The application id of replay's commits; their version is the number of the replay."""
    return f"groupledger/replay/{cluster_id}"


def _counts_of(tables: ClusterTables) -> dict[str, LedgerCounts]:
    """The ledger of the newest run."""
    rows = ended(tables, "replay_version", RUNS.column_names)
    newest = max(row["replay_version"] for row in rows)
    names = [item.name for item in dataclasses.fields(LedgerCounts)]
    return {
        row["topic"]: LedgerCounts(**{name: row[name] or 0 for name in names})  # older runs lack some columns
        for row in rows
        if row["replay_version"] == newest
    }


def _files_of(done: Iterable[ReplayDone], table: Table) -> list[WrittenFile]:
    return list(chain.from_iterable(task.files.get(table.full_name, ()) for task in done))


def _works(executor: Executor, work: ReplayWork, logs: Sequence[LogFiles]) -> list[ReplayWork]:
    weights = [log.size_bytes for log in logs]
    return [
        dataclasses.replace(work, number=work.number + number, logs=tuple(logs[index] for index in indices))
        for number, indices in enumerate(task_bins(executor, weights))
    ]


def _read_keys(run: WholeRun) -> pa.Table:
    """The groups and share partitions of all log partitions after a run."""
    return run.read(CHECKPOINTS, TABLE_COLUMNS, kind=Checkpoint.COORDINATOR_KEY)


def _keys(done: Iterable[ReplayDone], whole: WholeRun, plan: Plan) -> pa.Table:
    """Groups and share partitions of all log partitions: from earlier runs and from the tasks."""
    found = list(chain.from_iterable(task.keys for task in done))
    if plan.is_afresh:
        return merged_keys(found)
    former = without_logs(_read_keys(whole), plan.made(*REMADE))
    earlier = [of_log(_read_keys(checkpoint.run), *log) for log, checkpoint in plan.earlier.items()]
    return merged_keys([former, *earlier, *found])


def _driver_table(table: Table, rows: Sequence[Mapping[str, Any]], cluster_id: str) -> pa.Table:
    """The columns that the rows have; times are epoch ms."""
    made = [{**row, "cluster_id": cluster_id} for row in rows]
    schema = [item for item in arrow_schema(table) if made and item.name in made[0]]
    columns = {
        item.name: timestamps(np.array([-1 if row[item.name] is None else row[item.name] for row in made], np.int64))
        if item.type == TIMESTAMP_TYPE
        else pa.array([row[item.name] for row in made], item.type)
        for item in schema
    }
    return pa.table(columns)


def _checkpoint(kind: Checkpoint, rows: Sequence[Mapping[str, Any]] | pa.Table, cluster_id: str) -> pa.Table:
    """Rows of state.checkpoints of one kind, with the columns of this kind."""
    made = rows if isinstance(rows, pa.Table) else _driver_table(CHECKPOINTS, rows, cluster_id)
    for name, value in {"cluster_id": cluster_id, "kind": str(kind), "log": ALL_LOGS}.items():
        if name not in made.column_names:
            made = made.append_column(name, pa.array([value] * made.num_rows, pa.string()))
    return made


def _runs_table(
    counts: Mapping[str, LedgerCounts],
    batch_counts: Mapping[str, int],
    cluster_id: str,
    start: Start,
    table_versions: Mapping[str, int],
    others: Mapping[str, Any],
) -> pa.Table:
    rows = [
        {
            "cluster_id": cluster_id,
            "run_id": start.run_id,
            "topic": topic,
            "started_at": start.started_at,
            "bronze_version": start.bronze_version,
            "batch_count": batch_counts.get(topic, 0),
            **dataclasses.asdict(counts[topic]),
            "silver_format": SILVER_FORMAT,
            "admin_version": start.topics_version + start.configs_version,
            "replay_version": start.replay_version,
            "table_versions": list(table_versions.items()),
            **others,
        }
        for topic in sorted(counts)
    ]
    return pa.Table.from_pylist(rows, schema=arrow_schema(RUNS))


def _commit_quarantine(
    warehouse: Warehouse, done: Iterable[ReplayDone], cluster_id: str, app_id: str, version: int, plan: Plan
) -> int:
    """Add this run's findings; where a log partition is replayed again, they replace those of earlier runs. Findings
    of captures stay. Returns the number of open rows."""
    rows = warehouse.read(QUARANTINE, where={"cluster_id": cluster_id})
    is_kept = is_of_capture(rows)
    if not plan.is_afresh:
        names = pc.binary_join_element_wise(rows["topic"], rows["partition"].cast(pa.string()), "-")
        afresh = [log_name(*log) for log, step in plan.steps.items() if step is ReplayMode.AFRESH]
        is_again = pc.is_in(names, value_set=pa.array(afresh, pa.string()))
        for log, checkpoint in plan.earlier.items():
            is_behind = pc.greater_equal(
                pc.coalesce(rows["offset"], rows["base_offset"]), checkpoint.watermark.next_offset
            )
            is_again = pc.or_(is_again, pc.and_(pc.equal(names, log_name(*log)), pc.fill_null(is_behind, True)))
        is_kept = pc.or_(is_kept, pc.invert(is_again))
    kept = rows.filter(is_kept).cast(arrow_schema(QUARANTINE))
    files = _files_of(done, QUARANTINE)
    if not files and kept.num_rows == rows.num_rows:
        return open_count(rows)
    target = warehouse.target(QUARANTINE)
    files += write_parts(target, kept, "kept")
    committed = warehouse.commit(
        QUARANTINE, files, app_id=app_id, version=version, mode=OVERWRITE, replace={"cluster_id": cluster_id}
    )
    return int(committed.row_count - (kept.num_rows - open_count(kept)))


def _quarantined_row_count(tables: ClusterTables) -> int:
    return open_count(tables.read(QUARANTINE, ["resolved_at", "message"]))


def _summed(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total[name] + value if name in total else value
    return total
