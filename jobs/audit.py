"""silver -> gold: the answers, inferred from what the coordinators knew.

As in replay, a log partition is the unit of work: a task reads silver's rows of a few log partitions, hands them to
`coordinator_core.inference`, and writes part files of the gold tables; the driver commits. Share groups' records are
audited by the log partitions of `__share_group_state`, their epochs and members by those of `__consumer_offsets`: what
both know of a group's days meets on the driver.

Gold is made anew as a whole from the silver of one replay. `state.audits` says from which, and under which settings;
where neither has changed, there is nothing to do.
"""

import dataclasses
import gc
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from coordinator_core.inference.settings import InferenceSettings
from jobs.arrow_schemas import arrow_schema
from jobs.audit_groups import audit_groups
from jobs.audit_shares import audit_shares, share_days
from jobs.audit_work import AuditDone, AuditParts, AuditWork
from jobs.replay import captured_files, replay_application
from jobs.replay_tasks import OFFSETS_TOPIC, SHARE_TOPIC, LogFiles
from jobs.silver_format import other_version, require_current_silver
from jobs.silver_reader import SilverFiles
from jobs.sinks import OVERWRITE, Warehouse
from jobs.tasks import balanced, run_tasks
from schemas.tables.bronze import END_OFFSETS
from schemas.tables.gold import GOLD_TABLES, SHARE_GROUP_SUMMARY
from schemas.tables.silver import SILVER_TABLES
from schemas.tables.state import AUDITS

AUDIT_FORMAT: Final = 2
"""Raised when the rules of inference change: gold of an older format is made anew."""
TASKS_PER_CORE: Final = 2

TASK_TABLES: Final = tuple(table for table in GOLD_TABLES if table is not SHARE_GROUP_SUMMARY)
"""Written by tasks; the driver writes the days of share groups."""


@dataclass(frozen=True, slots=True)
class AuditSummary:
    """What an audit did. `skipped`: gold is of this silver and these settings already."""

    row_counts: Mapping[str, int]
    skipped: bool
    replaced_version: str | None = None
    """Whose gold was made anew, in words: an older version's, say. None: it was of this version."""


def audit(
    session: SparkSession,
    warehouse: Warehouse,
    *,
    cluster_id: str,
    inference: InferenceSettings,
    run_id: str,
    started_at: datetime,
    rebuild: bool = False,
) -> AuditSummary:
    """Make the gold tables of a cluster from its silver tables. The row in state.audits is written last.

    Raises WarehouseError where silver is of another version: replay makes it anew.
    """
    require_current_silver(warehouse, cluster_id)
    replay_version = min(warehouse.last_version(table, replay_application(cluster_id)) for table in SILVER_TABLES)
    sources = {"format": AUDIT_FORMAT, "end_offsets_version": warehouse.version(END_OFFSETS)}
    settings = json.dumps({**sources, **dataclasses.asdict(inference)}, sort_keys=True)
    newest = _newest_audit(warehouse, cluster_id)
    is_done = newest is not None and (newest["replay_version"], newest["settings"]) == (replay_version, settings)
    if replay_version < 0 or (is_done and not rebuild):
        return AuditSummary({}, skipped=True)
    app_id = audit_application(cluster_id)
    for table in (*GOLD_TABLES, AUDITS):
        warehouse.ensure(table)
    version = 1 + max(warehouse.last_version(table, app_id) for table in (*GOLD_TABLES, AUDITS))
    work = AuditWork(
        cluster_id=cluster_id,
        number=0,
        topic="",
        log_partitions=(),
        files=SilverFiles.of(warehouse, (*SILVER_TABLES, END_OFFSETS), cluster_id),
        targets={table.full_name: warehouse.target(table, app_id=app_id, version=version) for table in TASK_TABLES},
        inference=inference,
    )
    done = run_tasks(session, audit_logs, _works(session, warehouse, work), "owners, causes, anomalies")
    row_counts = {}
    for table in TASK_TABLES:
        files = list(chain.from_iterable(task.files.get(table.full_name, ()) for task in done))
        row_counts[table.full_name] = warehouse.commit(
            table, files, app_id=app_id, version=version, mode=OVERWRITE, replace={"cluster_id": cluster_id}
        ).row_count
    row_counts[SHARE_GROUP_SUMMARY.full_name] = warehouse.write(
        SHARE_GROUP_SUMMARY,
        share_days(done, cluster_id),
        app_id=app_id,
        version=version,
        mode=OVERWRITE,
        replace={"cluster_id": cluster_id},
    ).row_count
    row = {
        "cluster_id": cluster_id,
        "run_id": run_id,
        "started_at": started_at,
        "replay_version": replay_version,
        "settings": settings,
        "row_count": sum(row_counts.values()),
    }
    warehouse.write(AUDITS, pa.Table.from_pylist([row], schema=arrow_schema(AUDITS)), app_id=app_id, version=version)
    other = None if newest is None else other_version(json.loads(newest["settings"]).get("format", 0), AUDIT_FORMAT)
    return AuditSummary(row_counts, skipped=False, replaced_version=other)


def audit_application(cluster_id: str) -> str:
    """The application id of the audit's commits."""
    return f"groupledger/audit/{cluster_id}"


def _newest_audit(warehouse: Warehouse, cluster_id: str) -> dict[str, Any] | None:
    rows = warehouse.read(AUDITS, ["started_at", "replay_version", "settings"], where={"cluster_id": cluster_id})
    return max(rows.to_pylist(), key=lambda row: row["started_at"], default=None)


def _works(session: SparkSession, warehouse: Warehouse, work: AuditWork) -> list[AuditWork]:
    """Tasks of about one weight, none with log partitions of both topics."""
    tasks_max = TASKS_PER_CORE * session.sparkContext.defaultParallelism
    works: list[AuditWork] = []
    logs = [LogFiles(*log, files) for log, files in captured_files(warehouse, work.cluster_id).items()]
    for topic in (OFFSETS_TOPIC, SHARE_TOPIC):
        of_topic = [log for log in logs if log.topic == topic]
        for indices in balanced([log.size_bytes for log in of_topic], tasks_max):
            partitions = tuple(of_topic[index].partition for index in indices)
            works.append(dataclasses.replace(work, number=len(works), topic=topic, log_partitions=partitions))
    return works


def audit_logs(work: AuditWork) -> AuditDone:
    """Audit some log partitions. Runs in a Spark task."""
    with _without_garbage_collection(), AuditParts(work) as parts:
        _AUDIT[work.topic](work, parts)
        return parts.done


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Rows hold no cycles, and there are so many that to look for some again and again takes a sixth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_AUDIT: Final[Mapping[str, Callable[[AuditWork, AuditParts], None]]] = {
    OFFSETS_TOPIC: audit_groups,
    SHARE_TOPIC: audit_shares,
}
