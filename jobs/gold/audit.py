"""silver -> gold: answers inferred from the state and events that silver has.

As in replay, the log partition is the unit of work: a task reads silver's rows of a few log partitions, passes them to
`coordinator_core.inference`, and writes part files of the gold tables; the driver commits. Records of share groups are
audited by the log partitions of `__share_group_state`, their epochs and members by those of `__consumer_offsets`. The
driver joins both into the days of share groups.

An audit processes what is new since the last audit. For share partitions that is everything after the last audit's
watermark (`inference.share_past`): settled rows stay, the others are rebuilt. For groups it is the new commits, and the
other new records of groups that have any (`inference.commits_only`). Gold rows of all other groups stay, except counts
of days; files of days whose rows all stay are left as they are (`jobs.gold.former_rows`). `state.runs` records the
silver that the gold tables belong to, and the settings they were made with. Where neither has changed, an audit does
nothing.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, Final

from coordinator_core.errors import CoreError, PastDiffers
from coordinator_core.inference.audit.log_anomalies import LogAnomalyRow, log_not_judged, not_replayed
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.replay.lookup import SharePartitionKey
from jobs.delta.audit_runs import audit_application
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.commits import APPEND, OVERWRITE, Committed
from jobs.delta.locks import AUDIT, only_one
from jobs.delta.other_writers import later_writes
from jobs.delta.part_files import write_parts
from jobs.delta.silver_format import other_version
from jobs.delta.warehouse import Warehouse
from jobs.errors import OUTSIDE, WarehouseError
from jobs.gold.audit_groups import group_audit
from jobs.gold.audit_shares import share_audit, share_days
from jobs.gold.former_rows import Change, changed_days, former_changes
from jobs.gold.hanging_transactions import hanging_transactions
from jobs.gold.isolation import Lack
from jobs.gold.log_anomalies import write_log_anomalies
from jobs.gold.plan import AuditPlan, make_plan, removed_since_ms, unread_logs, works
from jobs.gold.snapshot import FORMER_GROUPS, IS_WHOLE, READ_TOGETHER, Basis, Snapshot
from jobs.gold.task import AuditDone, AuditParts, AuditWork
from jobs.silver.checkpoints import ReplayMode
from jobs.silver.hot_logs import CutRule, cut_hot_logs
from jobs.silver.reader import SilverFiles
from jobs.silver.replay_failures import FailuresByLog, ReplayFailure, failure_text
from jobs.spark.executors import Executor
from jobs.spark.tasks import run_tasks
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.group_types import GroupType
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables.bronze import END_OFFSETS
from schemas.tables.declare import Table
from schemas.tables.gold import GOLD_TABLES, GROUP_SUMMARY, HANGING_TRANSACTIONS, LOG_ANOMALIES, SHARE_GROUP_SUMMARY
from schemas.tables.silver import SILVER_TABLES
from schemas.tables.state import AUDITED_LOGS, RUN_STARTS, RUNS

DRIVER_TABLES: Final = (HANGING_TRANSACTIONS, SHARE_GROUP_SUMMARY)
"""Small tables that the driver writes."""
DRIVER_NUMBER: Final = 10**9
"""Number in the names of the driver's files; task numbers are lower."""
TASK_TABLES: Final = tuple(table for table in GOLD_TABLES if table not in DRIVER_TABLES)
FORMER_TABLES: Final = (LOG_ANOMALIES, GROUP_SUMMARY, AUDITED_LOGS)
"""Tables of which tasks read what the last audit wrote."""
ALL_TABLES: Final = (RUN_STARTS, *GOLD_TABLES, AUDITED_LOGS, RUNS)
"""All tables that an audit writes: state.run_starts first, state.runs last."""
LABEL: Final = "owners, causes, anomalies"
"""Label of the tasks in the progress output."""


@dataclass(frozen=True, slots=True)
class AuditSummary:
    """What an audit did. `skipped`: gold already belongs to this silver and these settings."""

    row_counts: Mapping[str, int]
    skipped: bool
    replaced_version: str | None = None
    """The other version whose gold was replaced, in words; None: gold was of this version."""


@dataclass(frozen=True, slots=True)
class _Audit:
    """One audit: its version numbers and its inputs."""

    snapshot: Snapshot
    app_id: str
    version: int
    run_id: str
    started_at: datetime

    @property
    def start(self) -> dict[str, Any]:
        """Columns that the audit's rows in state.run_starts and state.runs share."""
        return {
            "audit_version": self.version,
            "run_id": self.run_id,
            "started_at": self.started_at,
        }


def audit(
    executor: Executor,
    warehouse: Warehouse,
    *,
    cluster_id: str,
    inference: InferenceSettings,
    run_id: str,
    started_at: datetime,
    cut: CutRule,
    rebuild: bool = False,
    waits: bool = False,
) -> AuditSummary:
    """Make the gold tables of a cluster from its silver tables; the row in state.runs is written last.

    Audits what is new in silver since the last audit. Audits all of silver with `rebuild`, where settings or formats
    changed, and after an audit that failed. `cut`: which log partitions several tasks may audit. `waits`: for another
    audit of the cluster to end.

    Raises WarehouseError where silver is of another version (replay rebuilds it), and when another audit of the cluster
    is running.
    """
    with only_one(warehouse, AUDIT, cluster_id, since=started_at, waits=waits):
        basis = Basis.load(ClusterTables(warehouse, cluster_id), inference)
        if basis.is_audited and not rebuild:
            return AuditSummary({}, skipped=True)
        app_id = audit_application(cluster_id)
        versions = warehouse.ensure_all(ALL_TABLES, app_id)
        # state may be older than tables that a later audit wrote
        rebuild |= max(versions.values()) > max(versions[RUN_STARTS.full_name], basis.newest.audit_version)
        version = 1 + max(versions.values())
        this = _Audit(Snapshot.load(basis), app_id, version, run_id, started_at)
        plan = make_plan(this.snapshot, rebuild=rebuild)
        if basis.tables.write(RUN_STARTS, [this.start], app_id=app_id, version=version).skipped:
            raise WarehouseError(f"another audit of cluster {cluster_id!r} began at the same time: run this one again")
        work = _work(warehouse, this.snapshot, plan)
        plan, done = _infer(executor, this.snapshot, plan, work, cut)
        return _commit(executor, warehouse, this, plan, work, done)


def is_audited(tables: ClusterTables, inference: InferenceSettings) -> bool:
    """Does gold belong to this silver and these settings, so that an audit would change nothing? Needs no Spark.

    Raises WarehouseError where silver is of another version.
    """
    return Basis.load(tables, inference).is_audited


def _work(warehouse: Warehouse, snapshot: Snapshot, plan: AuditPlan) -> AuditWork:
    """The input that all tasks share."""
    basis, newest = snapshot.basis, snapshot.basis.newest
    files = {table.full_name: basis.run.files(table) for table in (*SILVER_TABLES, END_OFFSETS)}
    return AuditWork(
        cluster_id=basis.tables.cluster_id,
        number=0,
        topic="",
        log_partitions=(),
        files=SilverFiles(files),
        targets={table.full_name: warehouse.target(table) for table in (*TASK_TABLES, AUDITED_LOGS)},
        inference=basis.inference,
        lags_since_ms=basis.lags_since_ms,
        audited_version=newest.replay_version,
        removed_since_ms=removed_since_ms(basis.removals, newest.settings),
        group_files=snapshot.group_files,
        places=basis.places,
        has_moved_groups=FORMER_GROUPS not in basis.unchanged,
        topic_growth=basis.growth,
        partition_counts=basis.counts,
        former=SilverFiles({table.full_name: newest.files(table) for table in FORMER_TABLES}),
    )


def _infer(
    executor: Executor, snapshot: Snapshot, plan: AuditPlan, work: AuditWork, cut: CutRule
) -> tuple[AuditPlan, list[AuditDone]]:
    """Run the tasks. Returns the plan as executed, and the results. Where what an earlier audit left turns out not to
    suffice for a topic, all its log partitions are audited from their beginning."""

    def tasks(plan: AuditPlan, number: int, *topics: str) -> list[AuditWork]:
        found: list[AuditWork] = []
        for topic in topics:
            unread = unread_logs(plan, topic) if topic == OFFSETS_TOPIC else []
            hot = [log for log in cut_hot_logs(executor, unread, cut) if log.bucket is not None] if unread else []
            numbered = dataclasses.replace(work, number=number + len(found))
            found += works(snapshot, plan, numbered, topic, hot, executor.core_count)
        return found

    first = tasks(plan, 0, OFFSETS_TOPIC, SHARE_TOPIC)
    done = run_tasks(executor, audit_logs, first, LABEL)
    differing = [topic for topic in _AUDIT if any(task.topic == topic and task.has_differing for task in done)]
    if differing:
        for topic in differing:
            plan = plan.afresh(topic)
        done = [task for task in done if task.topic not in differing]
        done += run_tasks(executor, audit_logs, tasks(plan, len(first), *differing), LABEL)
    return plan, done


def _commit(
    executor: Executor, warehouse: Warehouse, this: _Audit, plan: AuditPlan, work: AuditWork, done: list[AuditDone]
) -> AuditSummary:
    """Write the driver's own tables and commit all tables; the row in state.runs is last."""
    basis, newest, app_id, version = this.snapshot.basis, this.snapshot.basis.newest, this.app_id, this.version
    cluster_id, lacks = basis.tables.cluster_id, list(basis.lacks)
    failed: list[LogAnomalyRow] = []
    driver_rows = {
        HANGING_TRANSACTIONS: hanging_transactions(basis.tables, basis.run, failed),
        SHARE_GROUP_SUMMARY: share_days(done, cluster_id, failed),
    }
    lacks += chain.from_iterable(task.lacks for task in done)
    if failed or lacks or basis.failures:
        done.append(_said_of(failed, lacks, basis.failures, dataclasses.replace(work, number=DRIVER_NUMBER)))
    is_afresh = all(step is ReplayMode.AFRESH for step in plan.steps.values())
    keeps_settled = bool(plan.partitions(SHARE_TOPIC, ReplayMode.REST, ReplayMode.GO_ON))
    changes = (
        {}
        if is_afresh
        else former_changes(executor, warehouse, newest, [task.outdated for task in done], keeps_settled=keeps_settled)
    )

    def put(table: Table) -> Committed:
        change = changes.get(table, Change())
        written = list(chain.from_iterable(task.files.get(table.full_name, ()) for task in done))
        if table in driver_rows:
            rows = driver_rows[table]
            if not is_afresh:
                rows, change = changed_days(table, rows, newest.files(table))
            written = write_parts(warehouse.target(table), rows)
        is_whole = is_afresh or table is AUDITED_LOGS
        return warehouse.commit(
            table,
            [*written, *change.added],
            app_id=app_id,
            version=version,
            mode=OVERWRITE if is_whole else APPEND,
            replace={"cluster_id": cluster_id} if is_whole else None,
            removed=change.removed,
        )

    tables = (*TASK_TABLES, *DRIVER_TABLES, AUDITED_LOGS)
    committed = dict(zip((table.full_name for table in tables), warehouse.at_once(put, tables), strict=True))
    row_counts = {
        table.full_name: sum(file.row_count or 0 for file in basis.tables.files(table)) for table in GOLD_TABLES
    }
    table_versions = {name: item.version for name, item in committed.items()}
    foreign_versions = (
        {} if is_afresh else later_writes(warehouse, newest.foreign_versions, newest.left_versions, table_versions)
    )
    together = basis.read_together(set().union(*(task.read_together for task in done)))
    row = this.start | {
        "audited_version": basis.run.replay_version,
        "settings": json.dumps({**basis.settings, READ_TOGETHER: together, IS_WHOLE: not lacks}, sort_keys=True),
        "row_count": sum(row_counts.values()),
        "table_versions": list(table_versions.items()),
        "foreign_versions": list(foreign_versions.items()),
    }
    basis.tables.write(RUNS, [row], app_id=app_id, version=version)
    other = other_version(newest.settings.get("format", 0), basis.settings["format"]) if newest.is_known else None
    return AuditSummary(row_counts, skipped=False, replaced_version=other)


def _said_of(
    failed: Sequence[LogAnomalyRow], lacks: Sequence[Lack], failures: FailuresByLog, work: AuditWork
) -> AuditDone:
    """Write one file of gold.log_anomalies: groups that the driver could not judge, inputs that were missing, and
    what silver lacks."""
    of_topics = {True: SHARE_TOPIC, False: OFFSETS_TOPIC}
    with AuditParts(work) as parts:
        for is_share, topic in of_topics.items():
            write_log_anomalies(
                [row for row in failed if (row.group_type == GroupType.SHARE) == is_share], topic, parts
            )
        # many tasks lack the same input
        for number, lack in enumerate(dict.fromkeys(lacks)):
            write_log_anomalies([lack.row._replace(ordinal=number)], lack.log_topic, parts)
        for (topic, _), found in failures.items():
            rows = [_not_replayed(failure)._replace(ordinal=number) for number, failure in enumerate(found)]
            write_log_anomalies(rows, topic, parts)
    return parts.done


def _not_replayed(failure: ReplayFailure) -> LogAnomalyRow:
    share = failure.key if isinstance(failure.key, SharePartitionKey) else None
    return not_replayed(
        failure_text(failure),
        failure.log_partition,
        failure.from_offset if failure.fault.log_offset is None else failure.fault.log_offset,
        group_id=failure.group_id,
        group_type=None if share is None else GroupType.SHARE,
        topic_id=None if share is None else share.topic_id,
        partition=None if share is None else share.partition,
    )


class _NotAudited(Exception):
    """Not all log partitions could be audited."""


def audit_logs(work: AuditWork) -> AuditDone:
    """Audit some log partitions. Runs in a Spark task.

    Each group has a guard of its own. If code for many groups at once fails, the files of this attempt are dropped, and
    the log partition is audited from its beginning, then group by group, then left out.
    """
    faults: dict[int, Exception] = {}
    try:
        with AuditParts(work) as parts:
            audit = _AUDIT[work.topic](work, parts)
            for log_partition in work.log_partitions:
                if (left_out := work.left_out.get(log_partition)) is not None:
                    parts.leave_out(log_partition, left_out)
                    continue
                try:
                    audit(log_partition)
                    if log_partition in work.by_group:
                        parts.make_columns()
                except (*OUTSIDE, CoreError):
                    raise
                except Exception as error:
                    faults[log_partition] = error
            if faults:
                raise _NotAudited
            return parts.done
    except PastDiffers:
        return AuditDone(topic=work.topic, has_differing=True)
    except (*OUTSIDE, CoreError):
        raise
    except Exception as error:
        if not faults and work.by_group.issuperset(work.log_partitions):
            raise
        faults = faults or dict.fromkeys(work.log_partitions, error)
    if not work.going_on.isdisjoint(faults):  # earlier audits left rows of the same groups
        return AuditDone(topic=work.topic, has_differing=True)
    again = {log: log_not_judged(error, log) for log, error in faults.items() if log in work.by_group}
    return audit_logs(
        dataclasses.replace(work, by_group=work.by_group | faults.keys(), left_out={**work.left_out, **again})
    )


_AUDIT: Final[Mapping[str, Callable[[AuditWork, AuditParts], Callable[[int], None]]]] = {
    OFFSETS_TOPIC: group_audit,
    SHARE_TOPIC: share_audit,
}
"""By coordinator topic, what audits a log partition into the parts of a task."""
