"""silver -> gold: the answers, inferred from what the coordinators knew.

As in replay, a log partition is the unit of work: a task reads silver's rows of a few log partitions, hands them to
`coordinator_core.inference`, and writes part files of the gold tables; the driver commits. Share groups' records are
audited by the log partitions of `__share_group_state`, their epochs and members by those of `__consumer_offsets`: what
both know of a group's days meets on the driver.

What is new since the last audit is audited. Of share partitions that is what lies behind where the last audit settled
(`inference.share_past`): settled rows stay, the others are made anew. Of groups it is the commits since, and of those
which did more than commit on (`inference.quiet`) what else there is; of the others gold stays, but for counts of days.
`state.audits` says which silver gold is of, and by which settings it was made; where neither has changed, there is
nothing to do.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from hashlib import blake2b
from itertools import chain
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from coordinator_core.coverage import CoverageKind
from coordinator_core.errors import CoreError
from coordinator_core.history.simple_log import CLUSTER_METADATA
from coordinator_core.inference.broken_rules import LogAnomalyRow
from coordinator_core.inference.configs import SESSION_TIMEOUTS
from coordinator_core.inference.settings import InferenceSettings
from coordinator_core.kafka_versions import METADATA_VERSION
from coordinator_core.log_partitions import LogPartition
from jobs.bronze.copies import Rewrites
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.audit_runs import WholeAudit
from jobs.delta.locks import only_one
from jobs.delta.other_writers import later_writes
from jobs.delta.replay_runs import WholeRun, is_renamed_since
from jobs.delta.silver_format import SILVER_FORMAT, other_version, require_current_silver
from jobs.delta.times import epoch_ms
from jobs.delta.warehouse import OVERWRITE, Committed, TableFile, Warehouse
from jobs.errors import JobError, WarehouseError
from jobs.gold.audit_groups import audit_groups, audit_groups_apart
from jobs.gold.audit_log import write_broken_rules
from jobs.gold.audit_shares import audit_shares, audit_shares_apart, share_days
from jobs.gold.hanging_transactions import hanging_transactions
from jobs.gold.isolation import Lack, read_or
from jobs.gold.share_reader import topic_growth
from jobs.gold.task import NEVER_MS, AuditDone, AuditParts, AuditWork
from jobs.silver.checkpoints import WATERMARK_COLUMNS, Step, Watermark, read_watermarks, step_of, watermark_from
from jobs.silver.homes import CoordinatorPartitions
from jobs.silver.hot_logs import CutRule, cut_hot_logs
from jobs.silver.plan import captured_files
from jobs.silver.reader import SilverFiles
from jobs.silver.tasks import OFFSETS_TOPIC, SHARE_TOPIC, LogFiles
from jobs.spark.tasks import run_tasks, tapered
from schemas.group_types import GroupType
from schemas.tables.bronze import COVERAGE, END_OFFSETS
from schemas.tables.declare import Table
from schemas.tables.gold import GOLD_TABLES, HANGING_TRANSACTIONS, LOG_ANOMALIES, SHARE_GROUP_SUMMARY
from schemas.tables.silver import CONFIGS, COORDINATOR_PARTITIONS, PARTITION_COUNTS, SILVER_TABLES, TOPICS
from schemas.tables.state import AUDIT_STARTS, AUDITED_LOGS, AUDITS, GROUPS, LEADER_EPOCHS

AUDIT_FORMAT: Final = 12
"""Raised when the rules of inference change, or what is left for the next audit: gold of an older format is made
anew."""

LOG_BYTES: Final = 400_000
"""A log partition costs as much as so much of bronze, however little is new of it."""

DRIVER_TABLES: Final = (HANGING_TRANSACTIONS, SHARE_GROUP_SUMMARY)
"""Small ones, which the driver writes."""
DRIVER_NUMBER: Final = 10**9
"""In the names of its files; no task has so high a number."""
TASK_TABLES: Final = tuple(table for table in GOLD_TABLES if table not in DRIVER_TABLES)
"""Written by tasks."""
ALL_TABLES: Final = (AUDIT_STARTS, *GOLD_TABLES, AUDITED_LOGS, AUDITS)
"""What an audit writes: state.audit_starts first, state.audits last."""
LABEL: Final = "owners, causes, anomalies"
"""What the tasks are called while they run."""
END_OFFSETS_VERSION: Final = "end_offsets_version"
SESSION_CONFIGS: Final = "session_configs"
GROWN_TOPICS: Final = "grown_topics"
SOURCES: Final = frozenset({END_OFFSETS_VERSION, SESSION_CONFIGS, GROWN_TOPICS})
"""In `settings` of state.audits: what came from tables. The rest are settings and formats."""
REMOVED_TOPICS: Final = "removed_topics"
REMOVED_UNTIL: Final = "removed_until_ms"
FORMER_SHARES: Final = "former_share_logs"
REMOVALS: Final = frozenset({REMOVED_TOPICS, REMOVED_UNTIL, FORMER_SHARES})
"""The same, of the topics that the metadata log shows removed: groups that lost offsets since the first one that is new
are audited from their beginning, others not. And of share partitions that are in another log partition now: settled
rows say so, too."""


IS_WHOLE: Final = "is_whole"
"""The same: was nothing lacking? Gold that was made without an input is made anew by the next audit."""


@dataclass(frozen=True, slots=True)
class AuditSummary:
    """What an audit did. `skipped`: gold is of this silver and these settings already."""

    row_counts: Mapping[str, int]
    skipped: bool
    replaced_version: str | None = None
    """Whose gold was made anew, in words: an older version's, say. None: it was of this version."""


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """From where each log partition is audited."""

    logs: tuple[LogFiles, ...]
    steps: Mapping[LogPartition, Step]
    is_resting: bool
    """Log partitions of groups of which nothing is new are left as they are."""
    next_offsets: Mapping[LogPartition, int] = dataclasses.field(default_factory=dict)
    """The first offset of each log partition which is not audited."""

    def afresh(self, topic: str) -> "AuditPlan":
        """The same, but all log partitions of a topic from their beginning."""
        steps = {log: Step.AFRESH if log[0] == topic else step for log, step in self.steps.items()}
        return dataclasses.replace(self, steps=steps)

    def partitions(self, topic: str, *steps: Step) -> frozenset[int]:
        """The log partitions of a topic with which one of some steps is done."""
        return frozenset(partition for (name, partition), step in self.steps.items() if name == topic and step in steps)


def audit(
    session: SparkSession,
    warehouse: Warehouse,
    *,
    cluster_id: str,
    inference: InferenceSettings,
    run_id: str,
    started_at: datetime,
    cut: CutRule,
    rebuild: bool = False,
) -> AuditSummary:
    """Make the gold tables of a cluster from its silver tables; the row in state.audits is written last.

    What is new in silver since the last audit is audited. With `rebuild`, where settings or formats changed, and after
    an audit that broke off, all of it is. `cut`: which log partitions several tasks may audit.

    Raises WarehouseError where silver is of another version (replay makes it anew), and when another audit of the
    cluster is at work.
    """
    with only_one(warehouse, "audit", cluster_id, since=started_at):
        return _audit(session, warehouse, cluster_id, inference, run_id, started_at, cut, rebuild)


def is_audited(warehouse: Warehouse, cluster_id: str, inference: InferenceSettings) -> bool:
    """Is gold of this silver and these settings, so that an audit would change nothing? Asked without Spark.

    Raises WarehouseError where silver is of another version.
    """
    return _Basis.load(warehouse, cluster_id, inference).is_audited


@dataclass(frozen=True, slots=True)
class _Basis:
    """What gold follows from: silver as the last whole run left it, and settings."""

    run: WholeRun
    newest: WholeAudit
    growth: Mapping[str, Sequence[int]]
    removals: Sequence[tuple[int, str]]
    places: Mapping[str, Mapping[str, int]]
    settings: Mapping[str, Any]
    lacks: tuple[Lack, ...]
    """Inputs that could not be read."""

    @classmethod
    def load(cls, warehouse: Warehouse, cluster_id: str, inference: InferenceSettings) -> "_Basis":
        """As it is now. Raises WarehouseError where silver is of another version."""
        require_current_silver(warehouse, cluster_id)
        run = WholeRun.newest(warehouse, cluster_id)
        lacks: list[Lack] = []
        counts = SilverFiles({PARTITION_COUNTS.full_name: run.files(PARTITION_COUNTS)})
        nothing: Mapping[str, Sequence[int]] = {}
        growth = read_or(nothing, "when topics got more partitions", partial(topic_growth, counts), lacks)
        no_removals: list[tuple[int, str]] = []
        removals = read_or(no_removals, "when topics were removed", partial(_removals, run), lacks)
        nowhere: Mapping[str, Mapping[str, int]] = {}
        places = read_or(nowhere, "which groups are in several log partitions", partial(_places, run), lacks)
        settings = {
            "format": AUDIT_FORMAT,
            "silver_format": SILVER_FORMAT,
            END_OFFSETS_VERSION: warehouse.version(END_OFFSETS),
            SESSION_CONFIGS: read_or("", "configs of sessions", partial(_session_configs, run), lacks),
            GROWN_TOPICS: blake2b(json.dumps(growth, sort_keys=True).encode(), digest_size=16).hexdigest(),
            REMOVED_TOPICS: _sum_of(removals),
            REMOVED_UNTIL: max((at_ms for at_ms, _ in removals), default=-1),
            FORMER_SHARES: _sum_of(sorted(places.get(SHARE_TOPIC, {}).items())),
        } | dataclasses.asdict(inference)
        newest = WholeAudit.newest(warehouse, cluster_id, is_writer=True)
        return cls(run, newest, growth, removals, places, settings | {IS_WHOLE: True}, tuple(lacks))

    @property
    def is_audited(self) -> bool:
        """Did the newest audit, which ended, go by the same? So it is where nothing was replayed yet."""
        if self.run.replay_version < 0:
            return True
        is_same = self.newest.replay_version == self.run.replay_version and self.newest.settings == self.settings
        return is_same and not self.newest.has_broken_off


def _audit(
    session: SparkSession,
    warehouse: Warehouse,
    cluster_id: str,
    inference: InferenceSettings,
    run_id: str,
    started_at: datetime,
    cut: CutRule,
    rebuild: bool,
) -> AuditSummary:
    basis = _Basis.load(warehouse, cluster_id, inference)
    if basis.is_audited and not rebuild:
        return AuditSummary({}, skipped=True)
    run, newest, growth = basis.run, basis.newest, basis.growth
    removals, settings, lacks = basis.removals, basis.settings, list(basis.lacks)
    app_id = audit_application(cluster_id)
    version = 1 + max(warehouse.ensure_all(ALL_TABLES, app_id).values())
    plan = _plan(warehouse, cluster_id, run, newest, settings, rebuild=rebuild)
    start = {
        "cluster_id": cluster_id,
        "audit_version": version,
        "run_id": run_id,
        "started_at": started_at,
        "replay_version": run.replay_version,
    }
    if warehouse.write(AUDIT_STARTS, _one_row(AUDIT_STARTS, start), app_id=app_id, version=version).skipped:
        raise WarehouseError(f"another audit of cluster {cluster_id!r} began at the same time: run this one again")
    files = {table.full_name: run.files(table) for table in (*SILVER_TABLES, END_OFFSETS)}
    work = AuditWork(
        cluster_id=cluster_id,
        number=0,
        topic="",
        log_partitions=(),
        files=SilverFiles(files),
        targets={table.full_name: warehouse.target(table) for table in (*TASK_TABLES, AUDITED_LOGS)},
        inference=inference,
        # where ends of topics were sampled, every commit has a row in gold.lag_history
        keeps_groups=plan.is_resting and not files[END_OFFSETS.full_name],
        audited_version=newest.replay_version,
        removed_since_ms=_removed_since_ms(removals, newest.settings),
        group_files=_group_files(run),
        places=basis.places,
        topic_growth=growth,
        former=SilverFiles({table.full_name: newest.files(table) for table in (*TASK_TABLES, AUDITED_LOGS)}),
    )
    watermarks = read_watermarks(run, of_any_format=True)
    seen = _LogsSeen.load(warehouse, cluster_id)
    done = run_tasks(session, audit_logs, _works(session, plan, work, watermarks, seen, cut), LABEL)
    if any(task.has_differing for task in done):
        plan = plan.afresh(SHARE_TOPIC)
        done = [task for task in done if task.topic != SHARE_TOPIC]
        work = dataclasses.replace(work, number=len(plan.logs))
        again = _works(session, plan, work, watermarks, seen, cut, (SHARE_TOPIC,))
        done += run_tasks(session, audit_logs, again, LABEL)
    of_cluster: dict[str, Any] = {"cluster_id": cluster_id}
    keeps_settled = bool(plan.partitions(SHARE_TOPIC, Step.REST, Step.GO_ON))

    failed: list[LogAnomalyRow] = []
    driver_rows = {
        HANGING_TRANSACTIONS: hanging_transactions(warehouse, run, cluster_id, failed),
        SHARE_GROUP_SUMMARY: share_days(done, cluster_id, failed),
    }
    lacks += chain.from_iterable(task.lacks for task in done)
    if failed or lacks:
        done.append(_said_of(failed, lacks, dataclasses.replace(work, number=DRIVER_NUMBER)))

    def put(table: Table) -> Committed:
        if table in driver_rows:
            rows = driver_rows[table]
            return warehouse.write(table, rows, app_id=app_id, version=version, mode=OVERWRITE, replace=of_cluster)
        is_kept = keeps_settled and "is_settled" in table.partition_by
        return warehouse.commit(
            table,
            list(chain.from_iterable(task.files.get(table.full_name, ()) for task in done)),
            app_id=app_id,
            version=version,
            mode=OVERWRITE,
            replace=of_cluster | {"is_settled": False} if is_kept else of_cluster,
        )

    tables = (*TASK_TABLES, *DRIVER_TABLES, AUDITED_LOGS)
    committed = dict(zip((table.full_name for table in tables), warehouse.at_once(put, tables), strict=True))
    row_counts = {table.full_name: committed[table.full_name].row_count for table in GOLD_TABLES}
    table_versions = {name: item.version for name, item in committed.items()}
    is_afresh = all(step is Step.AFRESH for step in plan.steps.values())
    foreign_versions = (
        {} if is_afresh else later_writes(warehouse, newest.foreign_versions, newest.left_versions, table_versions)
    )
    row = start | {
        "settings": json.dumps({**settings, IS_WHOLE: not lacks}, sort_keys=True),
        "row_count": sum(row_counts.values()),
        "table_versions": list(table_versions.items()),
        "foreign_versions": list(foreign_versions.items()),
    }
    warehouse.write(AUDITS, _one_row(AUDITS, row), app_id=app_id, version=version)
    other = other_version(newest.settings.get("format", 0), AUDIT_FORMAT) if newest.is_known else None
    return AuditSummary(row_counts, skipped=False, replaced_version=other)


def _places(run: WholeRun) -> dict[str, dict[str, int]]:
    """By coordinator topic, groups and share partitions with records in several log partitions, and the one where Kafka
    looks for each."""
    found = CoordinatorPartitions(run.read(COORDINATOR_PARTITIONS))
    return {
        topic: {key: move.log_partition for key, move in found.left_behind(topic, None).moves.items()}
        for topic in (OFFSETS_TOPIC, SHARE_TOPIC)
    }


def _said_of(failed: Sequence[LogAnomalyRow], lacks: Sequence[Lack], work: AuditWork) -> AuditDone:
    """Groups that the driver could not judge, and what all tasks lacked, in a file of their own of
    gold.log_anomalies."""
    of_topics = {True: SHARE_TOPIC, False: OFFSETS_TOPIC}
    with AuditParts(work) as parts:
        for is_share, topic in of_topics.items():
            write_broken_rules([row for row in failed if (row.group_type == GroupType.SHARE) == is_share], topic, parts)
        # many tasks lack the same
        for number, lack in enumerate(dict.fromkeys(lacks)):
            write_broken_rules([lack.row._replace(ordinal=number)], lack.log_topic, parts)
    return parts.done


@dataclass(frozen=True, slots=True)
class _LogsSeen:
    """How whole log partitions are, and who wrote them."""

    whole_to: Mapping[LogPartition, int]
    """The first offset of each that is not there, whatever the reason."""
    gaps: Mapping[LogPartition, tuple[int, ...]]
    """Where parts begin that were never captured or cannot be read."""
    leader_changes: Mapping[LogPartition, tuple[int, ...]]
    """Where leader epochs begin, as the batches that were read show it."""

    @classmethod
    def load(cls, warehouse: Warehouse, cluster_id: str) -> "_LogsSeen":
        """As captures left it."""
        of_cluster = {"cluster_id": cluster_id}
        rows = warehouse.read(COVERAGE, ["topic", "partition", "from_offset", "kind"], where=of_cluster)
        missing: dict[LogPartition, list[int]] = {}
        gaps: dict[LogPartition, list[int]] = {}
        for row in rows.to_pylist():
            place = row["topic"], row["partition"]
            if row["kind"] != CoverageKind.CAPTURED.name:
                missing.setdefault(place, []).append(row["from_offset"])
            if row["kind"] in _GAP_KINDS:
                gaps.setdefault(place, []).append(row["from_offset"])
        changes: dict[LogPartition, list[int]] = {}
        for row in warehouse.read(LEADER_EPOCHS, where=of_cluster).to_pylist():
            if not row["is_checkpoint"] and row["leader_epoch"] >= 0:
                changes.setdefault((row["topic"], row["partition"]), []).append(row["start_offset"])
        return cls(
            {log: min(offsets) for log, offsets in missing.items()},
            {log: tuple(sorted(offsets)) for log, offsets in gaps.items()},
            {log: tuple(sorted(offsets)) for log, offsets in changes.items()},
        )


_GAP_KINDS: Final = frozenset({CoverageKind.MISSING.name, CoverageKind.CORRUPT.name})
"""What compaction took is not among them: it leaves the newest record of each key."""

_OfLog = TypeVar("_OfLog")


def _of_topic(of_logs: Mapping[LogPartition, _OfLog], topic: str) -> dict[int, _OfLog]:
    return {partition: value for (name, partition), value in of_logs.items() if name == topic}


def audit_application(cluster_id: str) -> str:
    """The application id of the audit's commits."""
    return f"groupledger/audit/{cluster_id}"


def _one_row(table: Table, row: Mapping[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([dict(row)], schema=arrow_schema(table))


def _group_files(run: WholeRun) -> dict[int, tuple[TableFile, ...]]:
    """Of state.groups, by partition of `__consumer_offsets`."""
    files: dict[int, tuple[TableFile, ...]] = {}
    for file in run.files(GROUPS):
        topic, _, partition = file.partition_values["log"].rpartition("-")
        if topic == OFFSETS_TOPIC:
            files[int(partition)] = (*files.get(int(partition), ()), file)
    return files


def _session_configs(run: WholeRun) -> str:
    """What departures of members and causes of rebalances go by, as a sum: where it changed, all groups are audited."""
    names = {METADATA_VERSION, *SESSION_TIMEOUTS.values(), *(f"group.{name}" for name in SESSION_TIMEOUTS.values())}
    rows = [row for row in run.read(CONFIGS).to_pylist() if row["name"] in names]
    told = sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)
    return blake2b("\n".join(told).encode(), digest_size=16).hexdigest()


def _removals(run: WholeRun) -> list[tuple[int, str]]:
    """When topics were removed (ms), as the metadata log tells it, and their ids; in the order of time."""
    rows = run.read(TOPICS).to_pylist()
    removed = (row for row in rows if row["valid_to"] is not None and row["learned_from"] == CLUSTER_METADATA)
    return sorted((epoch_ms(row["valid_to"]), row["topic_id"]) for row in removed)


def _sum_of(values: Sequence[tuple[int, str]] | Sequence[tuple[str, int]]) -> str:
    return blake2b(json.dumps(values).encode(), digest_size=16).hexdigest()


def _removed_since_ms(removals: Sequence[tuple[int, str]], before: Mapping[str, Any]) -> int:
    """The time of the first removal that an audit did not know: `before` are its settings."""
    until_ms = before.get(REMOVED_UNTIL, -1)
    known = [removal for removal in removals if removal[0] <= until_ms]
    new = removals if before.get(REMOVED_TOPICS) != _sum_of(known) else removals[len(known) :]
    return min((at_ms for at_ms, _ in new), default=NEVER_MS)


def _plan(
    warehouse: Warehouse,
    cluster_id: str,
    run: WholeRun,
    newest: WholeAudit,
    settings: Mapping[str, Any],
    *,
    rebuild: bool,
) -> AuditPlan:
    logs = tuple(
        LogFiles(*log, files) for log, files in captured_files(warehouse, cluster_id).items() if log[0] in _AUDIT
    )
    same = {name for name in settings if newest.settings.get(name) == settings[name]}
    if (
        rebuild
        or not newest.is_known
        or newest.has_broken_off
        or not same >= settings.keys() - SOURCES - REMOVALS
        or is_renamed_since(warehouse, cluster_id, newest.replay_version)
    ):
        return AuditPlan(logs, {(log.topic, log.partition): Step.AFRESH for log in logs}, is_resting=False)
    now = read_watermarks(run, of_any_format=True)
    silver_captured = max((mark.capture_version for mark in now.values()), default=-1)
    rewrites = Rewrites.load(warehouse, cluster_id, silver_captured)
    before = {
        (row["topic"], row["log_partition"]): watermark_from(row)
        for row in newest.read(AUDITED_LOGS, [*WATERMARK_COLUMNS, "topic", "log_partition"]).to_pylist()
    }
    steps = {}
    for log in logs:
        place = log.topic, log.partition
        changed_from = rewrites.since(place, before[place].capture_version) if place in before else None
        steps[place] = step_of(now[place].replayed if place in now else (), before.get(place), changed_from)
    next_offsets = {log: watermark.next_offset for log, watermark in before.items()}
    plan = AuditPlan(logs, steps, same >= SOURCES, next_offsets)
    # rows of a log partition which is audited again from its beginning are among the settled ones of all
    is_again = any(step is Step.AFRESH and log in before and log[0] == SHARE_TOPIC for log, step in steps.items())
    is_again = is_again or newest.settings.get(FORMER_SHARES) != settings[FORMER_SHARES]
    return plan.afresh(SHARE_TOPIC) if is_again else plan


def _works(
    session: SparkSession,
    plan: AuditPlan,
    work: AuditWork,
    watermarks: Mapping[LogPartition, Watermark],
    seen: "_LogsSeen",
    cut: CutRule,
    topics: Sequence[str] = (OFFSETS_TOPIC, SHARE_TOPIC),
) -> list[AuditWork]:
    """Tasks, the heaviest of a topic first, none with log partitions of both topics."""
    works: list[AuditWork] = []
    for topic in topics:
        former = work.former.having(AUDITED_LOGS, "topic", topic).having(LOG_ANOMALIES, "log_topic", topic)
        of_topic, hot = _cut(session, plan, topic, cut)
        new = [new_bytes(log, plan, watermarks) for log in of_topic]
        bins = tapered(
            [LOG_BYTES + size_bytes for size_bytes in new],
            session.sparkContext.defaultParallelism,
            new_bytes=sum(new),
        )
        for logs in (*([log] for log in hot), *([of_topic[index] for index in indices] for indices in bins)):
            works.append(
                dataclasses.replace(
                    work,
                    number=work.number + len(works),
                    topic=topic,
                    former=former,
                    log_partitions=tuple(log.partition for log in logs),
                    bucket=logs[0].bucket,
                    whole_to=_of_topic(seen.whole_to, topic),
                    gaps=_of_topic(seen.gaps, topic),
                    leader_changes=_of_topic(seen.leader_changes, topic),
                    batch_files={log.partition: log.files for log in logs},
                    going_on=plan.partitions(topic, Step.GO_ON, Step.REST),
                    resting=plan.partitions(topic, Step.REST) if plan.is_resting else frozenset(),
                    watermarks={log[1]: place for log, place in watermarks.items() if log[0] == topic},
                    next_offsets={log[1]: offset for log, offset in plan.next_offsets.items() if log[0] == topic},
                )
            )
    return works


def _cut(session: SparkSession, plan: AuditPlan, topic: str, cut: CutRule) -> tuple[list[LogFiles], list[LogFiles]]:
    """The log partitions of a topic, and apart from them the buckets of those that are cut by group, as much of them is
    to be audited."""
    logs = [log for log in plan.logs if log.topic == topic]
    if topic != OFFSETS_TOPIC:
        return logs, []
    new = [
        log
        if plan.steps[log.topic, log.partition] is Step.AFRESH
        else dataclasses.replace(log, from_offset=plan.next_offsets.get((log.topic, log.partition), 0))
        for log in logs
    ]
    hot = [log for log in cut_hot_logs(session, new, cut) if log.bucket is not None]
    are_cut = {log.partition for log in hot}
    return [log for log in logs if log.partition not in are_cut], hot


def new_bytes(log: LogFiles, plan: AuditPlan, watermarks: Mapping[LogPartition, Watermark]) -> int:
    """What is to be audited of a log partition: so much of bronze as the new offsets are of all, or all."""
    place = log.topic, log.partition
    if plan.steps[place] is Step.AFRESH or place not in watermarks:
        return log.size_bytes
    next_offset = watermarks[place].next_offset
    return log.size_bytes * (next_offset - plan.next_offsets.get(place, 0)) // max(next_offset, 1)


def audit_logs(work: AuditWork) -> AuditDone:
    """Audit some log partitions. Runs in a Spark task."""
    try:
        with AuditParts(work) as parts:
            _AUDIT[work.topic](work, parts)
            return parts.done
    except (MemoryError, OSError, CoreError, JobError):
        raise
    except Exception:
        if work.topic not in _AUDIT_APART:
            raise
    # a fault in what is done for many groups at once: its files are gone, and all is judged without those that cause it
    with AuditParts(work) as parts:
        _AUDIT_APART[work.topic](work, parts)
        return parts.done


_AUDIT: Final[Mapping[str, Callable[[AuditWork, AuditParts], None]]] = {
    OFFSETS_TOPIC: audit_groups,
    SHARE_TOPIC: audit_shares,
}
_AUDIT_APART: Final[Mapping[str, Callable[[AuditWork, AuditParts], None]]] = {
    OFFSETS_TOPIC: audit_groups_apart,
    SHARE_TOPIC: audit_shares_apart,
}
