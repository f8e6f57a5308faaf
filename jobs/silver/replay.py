"""bronze -> silver: replay what is new of every captured log partition, and write down what the coordinators knew.

One Spark task replays a few log partitions, one after another: it reads their batches from bronze's files, hands them
to the core chunk by chunk, and writes part files of the silver tables. A log partition is never shuffled: it is the
unit of order, and a group or share partition lives wholly in one. One out of proportion is read by several tasks, each
of which replays its own keys (`jobs.silver.hot_logs`). The driver commits.

A run goes on from where the last one stopped (`jobs.silver.checkpoints`). Rows that a later run may still change are
kept apart, `is_settled` false: each run takes those of the last one out and puts its own in, in the same Delta
transaction that adds the settled ones.

Two rounds, because a topic id's name may be known in another log partition than the one that needs it: first
`__consumer_offsets` and the logs which teach names, then `__share_group_state` and those assignments of the first round
whose task did not know a name that another one learned.
"""

import dataclasses
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from coordinator_core.coverage import union
from coordinator_core.history.rows import TopicName
from coordinator_core.history.simple_log import ConfigChanged
from coordinator_core.ledger import LedgerCounts
from jobs.bronze.admin_snapshots import ADMIN, ToldConfig, told_configs, told_topics, told_versions
from jobs.bronze.copies import NO_REWRITES, Rewrites, last_capture
from jobs.bronze.partition_counts import merged, partition_count_rows, told_counts
from jobs.bronze.quarantine import is_of_capture, open_count
from jobs.bronze.retention import dropped_ranges
from jobs.console.command_name import command
from jobs.delta.arrow_schemas import NO_TIMESTAMP_MS, TIMESTAMP_MS_MAX, TIMESTAMP_TYPE, arrow_schema, timestamps
from jobs.delta.filesystems import delete_file
from jobs.delta.locks import only_one
from jobs.delta.other_writers import later_writes, source_versions
from jobs.delta.part_files import WrittenFile, write_parts
from jobs.delta.replay_runs import Start, WholeRun, broken_off, earlier_runs
from jobs.delta.silver_format import SILVER_FORMAT, other_version, silver_format
from jobs.delta.times import epoch_ms
from jobs.delta.warehouse import OVERWRITE, Committed, TableFile, Warehouse
from jobs.errors import WarehouseError
from jobs.settings import place_words
from jobs.silver.checkpoints import (
    EarlierStand,
    LogPartition,
    OffsetRange,
    SavedLog,
    Step,
    Watermark,
    bronze_ranges,
    earlier_stands,
    log_name,
    read_watermarks,
    saved_logs,
    step_of,
    watermark_of,
    watermarks_table,
)
from jobs.silver.coordinator_keys import merged_keys, of_log, without_logs
from jobs.silver.homes import coordinator_partitions, counts_of, is_same, partition_counts
from jobs.silver.hot_logs import CutRule, cut_hot_logs
from jobs.silver.privacy import HostPseudonyms
from jobs.silver.reader import SilverFiles
from jobs.silver.tasks import (
    METADATA_TOPIC,
    NAMED_TABLES,
    OFFSETS_TOPIC,
    SHARE_TOPIC,
    TABLES_OF_TOPIC,
    TRANSACTION_TOPIC,
    Carried,
    LogFiles,
    ReplayDone,
    ReplayWork,
    replay_logs,
)
from jobs.spark.tasks import run_tasks, tapered
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
from schemas.tables.state import CONFIG_CHANGES, COORDINATOR_KEYS, GROUPS, LOGS, NAMES, RUNS, STARTS, WATERMARKS

FIRST_ROUND: Final = (OFFSETS_TOPIC, TRANSACTION_TOPIC, METADATA_TOPIC)
TASK_BYTES_MAX: Final = 128 * 1024 * 1024
"""Log partitions of one task together; a larger one has a task of its own."""

MADE_ANEW: Final = frozenset({Step.AFRESH, Step.GO_BACK})
"""Where rows of runs before are made anew."""

LEARNED_FROM: Final = ("CLUSTER_METADATA", ADMIN, "SHARE_PARTITIONS", "OFFSET_COMMIT", "SUBSCRIPTION", "REGEX")
"""Sources of a topic id's name, the surest first."""
DELETED: Final = "DELETED"
IN_USE: Final = "IN_USE"
PARTITIONS: Final = "PARTITIONS"
"""In state.names: rows that tell when a topic was deleted, under which name silver has rows of its id, and how many
partitions it got."""

DRIVER_TABLES: Final = (TOPICS, PARTITION_COUNTS, COORDINATOR_PARTITIONS, CONFIGS)
"""Small ones, which the driver writes from what all tasks found."""
REPLAY_TABLES: Final = (*(table for table in SILVER_TABLES if table not in DRIVER_TABLES),)
ALL_TABLES: Final = (
    STARTS,
    *REPLAY_TABLES,
    *DRIVER_TABLES,
    QUARANTINE,
    NAMES,
    COORDINATOR_KEYS,
    CONFIG_CHANGES,
    LOGS,
    GROUPS,
    WATERMARKS,
    RUNS,
)
"""What a run writes: state.starts first, state.runs last."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does: with each log partition, and with the rows of the runs before."""

    steps: Mapping[LogPartition, Step]
    logs: tuple[LogFiles, ...]
    """Those to be replayed, by topic and partition."""
    watermarks: Mapping[LogPartition, Watermark]
    """Of all log partitions, once the run is done."""
    again: frozenset[LogPartition] = frozenset()
    """Those of which runs before made rows that this one makes anew."""
    earlier: Mapping[LogPartition, EarlierStand] = dataclasses.field(default_factory=dict)
    """From where those go on that go back."""

    @property
    def is_afresh(self) -> bool:
        """Nothing of the runs before is kept."""
        return all(step is Step.AFRESH for step in self.steps.values())

    def made(self, *steps: Step) -> dict[str, frozenset[int]]:
        """By topic, the log partitions with which one of some steps is done."""
        of_topic: dict[str, set[int]] = {}
        for (topic, partition), step in self.steps.items():
            if step in steps:
                of_topic.setdefault(topic, set()).add(partition)
        return {topic: frozenset(partitions) for topic, partitions in of_topic.items()}


@dataclass(frozen=True, slots=True)
class Names:
    """What is known of topic ids."""

    learned: tuple[TopicName, ...] = ()
    """Each name of an id from each source, at its earliest time."""
    deleted: Mapping[str, int] = dataclasses.field(default_factory=dict)
    in_use: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    """Topic id -> the name under which silver has its rows."""
    partition_counts: Mapping[tuple[str, int], int] = dataclasses.field(default_factory=dict)
    """Topic id and time (epoch ms) -> number of partitions by the metadata log."""


@dataclass(frozen=True, slots=True)
class ReplaySummary:
    """What a run of replay did, by topic and by table."""

    counts: Mapping[str, LedgerCounts]
    row_counts: Mapping[str, int]
    quarantined_row_count: int
    bronze_version: int
    skipped: bool
    """Nothing was new: the tables hold this version of bronze already."""
    replaced_version: str | None = None
    """Whose silver was made anew, in words: an older version's, say. None: it was of this version."""


def replay(
    session: SparkSession,
    warehouse: Warehouse,
    *,
    cluster_id: str,
    run_id: str,
    started_at: datetime,
    batch_decompressed_bytes_max: int,
    cut_records_min: int,
    rebuild: bool = False,
    hosts: HostPseudonyms | None = None,
) -> ReplaySummary:
    """Replay what bronze holds of a cluster and silver does not have yet, and put the silver tables in place.

    A run which has nothing new to read writes nothing. With `rebuild`, and where silver or the state is of another
    version's format, all is replayed from the beginning. A run that broke off is repeated first. The row in state.runs
    is written last. `cut_records_min`: new records of a log partition from which on several tasks may replay it
    (`jobs.silver.hot_logs`). `hosts`: how silver shows clients' hosts, as they are by default.

    Raises WarehouseError when another replay of the cluster is at work.
    """
    with only_one(warehouse, "replay", cluster_id, since=started_at):
        return _replay(
            session,
            warehouse,
            cluster_id,
            run_id,
            started_at,
            batch_decompressed_bytes_max,
            cut_records_min,
            rebuild,
            hosts,
        )


def _replay(
    session: SparkSession,
    warehouse: Warehouse,
    cluster_id: str,
    run_id: str,
    started_at: datetime,
    batch_decompressed_bytes_max: int,
    cut_records_min: int,
    rebuild: bool,
    hosts: HostPseudonyms | None,
) -> ReplaySummary:
    whole = WholeRun.newest(warehouse, cluster_id, is_writer=True)
    other = other_version(silver_format(warehouse, cluster_id), SILVER_FORMAT)
    broken = broken_off(warehouse, cluster_id, whole)
    # silver of a version that kept no keys cannot say where they are
    lacks_keys = COORDINATOR_KEYS.full_name not in whole.left_versions
    is_rebuild = rebuild or other is not None or not whole.is_known or lacks_keys
    repeated = None
    if broken is not None:
        if rebuild or not broken.is_repeatable or not warehouse.has_version(RECORD_BATCHES, broken.bronze_version):
            # parts of it may be there: only what replaces everything is sure to put them right
            is_rebuild = True
        else:
            plan = _plan(
                warehouse,
                cluster_id,
                broken.bronze_version,
                whole,
                -1 if broken.capture_version is None else broken.capture_version,
                is_rebuild=broken.is_rebuild,
            )
            _refuse_to_forget(warehouse, cluster_id, plan)
            repeated = _run(
                session,
                warehouse,
                cluster_id,
                broken,
                whole,
                plan,
                batch_decompressed_bytes_max,
                cut_records_min,
                hosts,
            )
            whole = WholeRun.newest(warehouse, cluster_id, is_writer=True)
            is_rebuild = False
    # before the version of bronze: what this capture changed is in that one, too
    capture_version = last_capture(warehouse, cluster_id)
    bronze_version = warehouse.version(RECORD_BATCHES)
    told = told_versions(warehouse)
    is_told_more = sum(told) != whole.told_version
    going_on = (
        None if is_rebuild else _plan(warehouse, cluster_id, bronze_version, whole, capture_version, is_rebuild=False)
    )
    if going_on is not None and not (going_on.logs or is_told_more or _is_elsewhere(warehouse, cluster_id, whole)):
        if repeated is not None:
            return dataclasses.replace(repeated, replaced_version=other)
        counts = _counts_of(warehouse, cluster_id)
        return ReplaySummary(counts, {}, _quarantined_row_count(warehouse, cluster_id), bronze_version, skipped=True)
    app_id = replay_application(cluster_id)
    versions = warehouse.ensure_all(ALL_TABLES, app_id)
    plan = going_on or _plan(warehouse, cluster_id, bronze_version, whole, capture_version, is_rebuild=True)
    if not plan.steps:
        return ReplaySummary({}, {}, _quarantined_row_count(warehouse, cluster_id), bronze_version, skipped=True)
    if not rebuild:
        _refuse_to_forget(warehouse, cluster_id, plan)
    version = 1 + max(versions.values())
    start = Start(version, run_id, started_at, bronze_version, *told, is_rebuild, capture_version=capture_version)
    if warehouse.write(STARTS, start.table(cluster_id), app_id=app_id, version=version).skipped:
        raise WarehouseError(f"another replay of cluster {cluster_id!r} began at the same time: run this one again")
    summary = _run(
        session, warehouse, cluster_id, start, whole, plan, batch_decompressed_bytes_max, cut_records_min, hosts
    )
    return dataclasses.replace(summary, replaced_version=other)


def _is_elsewhere(warehouse: Warehouse, cluster_id: str, whole: WholeRun) -> bool:
    """Does Kafka look elsewhere for a group or share partition than silver says, by what is known now of the numbers of
    partitions?"""
    counts = partition_counts(warehouse, cluster_id)
    now = coordinator_partitions(whole.read(COORDINATOR_KEYS), counts, cluster_id)
    return not is_same(now, whole.read(COORDINATOR_PARTITIONS))


def _refuse_to_forget(warehouse: Warehouse, cluster_id: str, plan: Plan) -> None:
    """Raise WarehouseError where a log partition would be replayed from its beginning that bronze has not any more."""
    dropped = dropped_ranges(warehouse, cluster_id)
    lost = sorted(log_name(*log) for log, step in plan.steps.items() if step is Step.AFRESH and log in dropped)
    if lost:
        raise WarehouseError(
            f"{len(lost)} log partitions ({lost[0]}, ...) would be replayed from their beginning, and retention took "
            f"that out of {RECORD_BATCHES.full_name}: silver would forget what it has of it. If that may be, run "
            + command("replay --rebuild" + place_words(warehouse.root, cluster_id))
        )


def _plan(
    warehouse: Warehouse,
    cluster_id: str,
    bronze_version: int,
    whole: WholeRun,
    capture_version: int,
    *,
    is_rebuild: bool,
) -> Plan:
    files = captured_files(warehouse, cluster_id, bronze_version)
    return make_plan(
        files,
        {} if is_rebuild else read_watermarks(whole),
        {} if is_rebuild else saved_logs(whole),
        dropped_ranges(warehouse, cluster_id),
        earlier_runs(warehouse, cluster_id, whole),
        Rewrites.load(warehouse, cluster_id, capture_version),
    )


def _run(
    session: SparkSession,
    warehouse: Warehouse,
    cluster_id: str,
    start: Start,
    whole: WholeRun,
    plan: Plan,
    batch_decompressed_bytes_max: int,
    cut_records_min: int,
    hosts: HostPseudonyms | None,
) -> ReplaySummary:
    """Do, or repeat, one run. What it writes follows from its start, bronze at that version, and the last whole run:
    a table that has this run already is left alone. `plan`: what follows from them."""
    app_id, version = replay_application(cluster_id), start.replay_version
    targets = {table.full_name: warehouse.target(table) for table in (*REPLAY_TABLES, QUARANTINE, LOGS, GROUPS)}
    former = {} if plan.is_afresh else _former_files(whole)
    before = Names() if plan.is_afresh else _read_names(whole)
    told = told_topics(warehouse, cluster_id, start.told_topics_version)
    work = ReplayWork(
        cluster_id=cluster_id,
        number=0,
        logs=(),
        targets=targets,
        seen_at_ms=epoch_ms(start.started_at),
        batch_decompressed_bytes_max=batch_decompressed_bytes_max,
        names=_name_of(_topic_rows(before, *told)),
        unsettled=SilverFiles({name: files[False] for name, files in former.items()}),
        replay_version=version,
        hosts=hosts,
    )

    def round_of(*topics: str) -> list[LogFiles]:
        rule = CutRule(cut_records_min, batch_decompressed_bytes_max)
        return cut_hot_logs(session, [log for log in plan.logs if log.topic in topics], rule)

    first = round_of(*FIRST_ROUND)
    second = round_of(SHARE_TOPIC)

    done = run_tasks(session, replay_logs, _works(session, work, first), "groups, offsets and transactions")
    names = _with_learned(before, done)
    topics = _topic_rows(names, *told)
    name_of = _name_of(topics)
    is_renamed = any(name_of.get(topic_id) != name for topic_id, name in before.in_use.items())
    rewritten = {} if plan.is_afresh else _rewritten(warehouse, plan, former, is_renamed=is_renamed)
    naming = dataclasses.replace(work, names=name_of, number=len(done), unsettled=SilverFiles({}))
    works = _works(session, naming, second)
    misnamed = _take_misnamed(done, name_of, targets[MEMBER_ASSIGNMENTS.full_name].folder)
    carried = _carried(session, plan, former, rewritten)
    if misnamed:
        carried.append(Carried(misnamed))
    works += [dataclasses.replace(naming, carried=rows) for rows in carried]
    works = [dataclasses.replace(item, number=len(done) + index) for index, item in enumerate(works)]
    done += run_tasks(session, replay_logs, works, "share state")
    for _, _, file in misnamed:
        delete_file(file.path)

    changes = _logged_changes(done, whole, plan)
    configs = _config_rows(changes, told_configs(warehouse, cluster_id, start.told_configs_version))
    counts_over_time = partition_count_rows(
        names.partition_counts,
        told_counts(warehouse, cluster_id, start.told_topics_version),
        name_of,
        {row["topic_id"]: row["valid_to"] for row in topics if row["valid_to"] is not None},
    )
    keys = _keys(done, whole, plan)
    partition_counts_now = counts_of(warehouse, cluster_id, counts_over_time, start.told_topics_version)
    in_use = dict.fromkeys(chain(before.in_use, (topic_id for task in done for topic_id, _ in task.names_given)))
    driver_rows = {
        TOPICS: _driver_table(TOPICS, topics, cluster_id),
        PARTITION_COUNTS: _driver_table(PARTITION_COUNTS, counts_over_time, cluster_id),
        COORDINATOR_PARTITIONS: coordinator_partitions(keys, partition_counts_now, cluster_id),
        CONFIGS: _driver_table(CONFIGS, configs, cluster_id),
        NAMES: _driver_table(NAMES, _name_rows(names, {id_: name_of.get(id_) for id_ in in_use}), cluster_id),
        COORDINATOR_KEYS: keys.append_column("cluster_id", pa.array([cluster_id] * keys.num_rows, pa.string())),
        CONFIG_CHANGES: _driver_table(CONFIG_CHANGES, list(map(dataclasses.asdict, changes)), cluster_id),
        WATERMARKS: watermarks_table(cluster_id, plan.watermarks),
    }
    of_cluster: dict[str, Any] = {"cluster_id": cluster_id}
    of_logs = of_cluster if plan.is_afresh else of_cluster | {"log": tuple(log.name for log in plan.logs)}

    def put(table: Table) -> Committed:
        if table in driver_rows:
            rows = driver_rows[table]
            return warehouse.write(table, rows, app_id=app_id, version=version, mode=OVERWRITE, replace=of_cluster)
        removed = rewritten.get(table.full_name, ())
        is_whole = plan.is_afresh or (bool(removed) and len(removed) == len(former[table.full_name][True]))
        of_rows = of_cluster if is_whole else of_cluster | {"is_settled": False}
        return warehouse.commit(
            table,
            _files_of(done, table),
            app_id=app_id,
            version=version,
            mode=OVERWRITE,
            replace=of_rows if table in REPLAY_TABLES else of_logs,
            removed=() if is_whole else removed,
        )

    tables = (*REPLAY_TABLES, LOGS, GROUPS, *driver_rows)
    committed = dict(zip((table.full_name for table in tables), warehouse.at_once(put, tables), strict=True))
    quarantined = _commit_quarantine(warehouse, done, cluster_id, app_id, version, plan)
    counts = dict.fromkeys(sorted({topic for topic, _ in plan.steps}), LedgerCounts())
    counts |= _summed(task.counts for task in done)
    batch_counts = _summed(task.batch_counts for task in done)
    table_versions = {name: item.version for name, item in committed.items()}
    bronze_versions = source_versions(warehouse)
    foreign_versions: Mapping[str, int] = {}
    if not plan.is_afresh:
        left = dict(whole.left_versions) | whole.bronze_versions
        foreign_versions = later_writes(warehouse, whole.foreign_versions, left, table_versions | bronze_versions)
    others = {"bronze_versions": list(bronze_versions.items()), "foreign_versions": list(foreign_versions.items())}
    warehouse.write(
        RUNS,
        _runs_table(counts, batch_counts, cluster_id, start, table_versions, is_renamed or plan.is_afresh, others),
        app_id=app_id,
        version=version,
    )
    row_counts = {table.full_name: committed[table.full_name].row_count for table in SILVER_TABLES}
    return ReplaySummary(counts, row_counts, quarantined, start.bronze_version, skipped=False)


def replay_application(cluster_id: str) -> str:
    """The application id of replay's commits; their version says which replay the silver tables are of."""
    return f"groupledger/replay/{cluster_id}"


# --- on the driver


def _counts_of(warehouse: Warehouse, cluster_id: str) -> dict[str, LedgerCounts]:
    """The ledger of the newest run."""
    rows = warehouse.read(RUNS, where={"cluster_id": cluster_id}).to_pylist()
    newest = max(row["replay_version"] for row in rows)
    names = [item.name for item in dataclasses.fields(LedgerCounts)]
    return {
        row["topic"]: LedgerCounts(**{name: row[name] or 0 for name in names})  # older runs lack some
        for row in rows
        if row["replay_version"] == newest
    }


def captured_files(
    warehouse: Warehouse, cluster_id: str, version: int | None = None
) -> dict[LogPartition, tuple[TableFile, ...]]:
    """Bronze's files of the log partitions of a cluster, by topic and partition; `version`: of bronze, the newest."""
    by_log: dict[LogPartition, list[TableFile]] = {}
    for file in warehouse.files(RECORD_BATCHES, version):
        values = file.partition_values
        if values["cluster_id"] == cluster_id:
            by_log.setdefault((values["topic"], int(values["partition"])), []).append(file)
    return {log: tuple(by_log[log]) for log in sorted(by_log)}


def make_plan(
    files: Mapping[LogPartition, tuple[TableFile, ...]],
    watermarks: Mapping[LogPartition, Watermark],
    saved: Mapping[str, SavedLog],
    dropped: Mapping[LogPartition, tuple[OffsetRange, ...]] = MappingProxyType({}),
    runs_before: Iterable[WholeRun] = (),
    rewrites: Rewrites = NO_REWRITES,
) -> Plan:
    """What to do with each log partition that bronze holds. `watermarks` and `saved` are the last run's, `runs_before`
    the runs before that, the newest first; `dropped` is what retention took out of bronze, which they had replayed;
    `rewrites` is where captures changed what they had replayed.
    """
    now = {log: tuple(union([*bronze_ranges(log_files), *dropped.get(log, ())])) for log, log_files in files.items()}
    known = {log: watermarks[log] for log in now if log in watermarks and log_name(*log) in saved}
    steps = {
        log: step_of(ranges, known.get(log), rewrites.since(log, known[log].capture_version) if log in known else None)
        for log, ranges in now.items()
    }
    late = {log: now[log] for log, step in steps.items() if step is Step.AFRESH and log in known}
    earlier = earlier_stands(runs_before, late, _tables_of, rewrites)
    steps |= dict.fromkeys(earlier, Step.GO_BACK)
    logs = []
    for log, step in steps.items():
        match step:
            case Step.AFRESH:
                logs.append(LogFiles(*log, files[log]))
            case Step.GO_BACK:
                logs.append(LogFiles(*log, files[log], earlier[log].watermark.next_offset, earlier[log].saved))
            case Step.GO_ON:
                logs.append(LogFiles(*log, files[log], known[log].next_offset, saved[log_name(*log)]))
    again = frozenset(log for log, step in steps.items() if step in MADE_ANEW and log in watermarks)
    after = {log: watermark_of(ranges, rewrites.capture_version) for log, ranges in now.items()}
    return Plan(steps, tuple(logs), after, again, earlier)


def _tables_of(log: LogPartition) -> tuple[Table, ...]:
    """What a run that goes back reads of the earlier one beside the state: settled rows, and changes of configs."""
    if log[0] == METADATA_TOPIC:
        return (CONFIG_CHANGES,)
    return (*TABLES_OF_TOPIC[log[0]], COORDINATOR_KEYS) if log[0] in TABLES_OF_TOPIC else ()


FormerFiles = Mapping[str, Mapping[bool, tuple[TableFile, ...]]]
"""By table, the files of settled and of unsettled rows."""


def _former_files(whole: WholeRun) -> FormerFiles:
    former: dict[str, dict[bool, tuple[TableFile, ...]]] = {}
    for table in REPLAY_TABLES:
        former[table.full_name] = {
            is_settled: tuple(file for file in whole.files(table) if file.partition_values["is_settled"] is is_settled)
            for is_settled in (True, False)
        }
    return former


def _rewritten(
    warehouse: Warehouse, plan: Plan, former: FormerFiles, *, is_renamed: bool
) -> dict[str, tuple[TableFile, ...]]:
    """By table, the files of settled rows which go, and whose rows are written anew: those of rows which this run makes
    itself, and, where a name was learned, all that carry names."""
    rewritten = {}
    for topic, tables in TABLES_OF_TOPIC.items():
        partitions = [partition for name, partition in plan.again if name == topic]
        for table in tables:
            settled = former[table.full_name][True]
            files = tuple(file for file in settled if any(_may_hold(file, partition) for partition in partitions))
            is_all = (is_renamed and table in NAMED_TABLES) or (bool(files) and not _stand(warehouse, table, settled))
            rewritten[table.full_name] = settled if is_all else files
    return rewritten


def _stand(warehouse: Warehouse, table: Table, files: Iterable[TableFile]) -> bool:
    """Can single ones of these files be taken out of a table? Not where maintain put others in their place after a run
    that broke off."""
    return {file.path for file in files} <= {file.path for file in warehouse.files(table)}


def _carried(
    session: SparkSession, plan: Plan, former: FormerFiles, rewritten: Mapping[str, tuple[TableFile, ...]]
) -> list[Carried]:
    """Rows of the runs before which this run writes anew: unsettled ones of log partitions which it does not touch,
    and the settled ones of the files in `rewritten`, but for those which it makes itself. Of a log partition that goes
    back, those that the earlier run had."""
    carried = []
    touched = plan.made(*MADE_ANEW, Step.GO_ON)
    resting = plan.made(Step.REST)
    unsettled = tuple(
        (table.full_name, False, file)
        for topic, tables in TABLES_OF_TOPIC.items()
        if resting.get(topic)
        for table in tables
        for file in former.get(table.full_name, {}).get(False, ())
    )
    if unsettled:
        carried.append(Carried(unsettled, touched))
    settled = [(name, True, file) for name, files in rewritten.items() for file in files]
    weights = [file.size_bytes for *_, file in settled]
    carried += [
        Carried(tuple(settled[index] for index in indices), plan.made(*MADE_ANEW))
        for indices in _bins(session, weights)
    ]
    for (topic, partition), stand in plan.earlier.items():
        files = tuple(
            (table.full_name, True, file)
            for table in TABLES_OF_TOPIC.get(topic, ())
            for file in stand.run.files(table)
            if file.partition_values["is_settled"] and _may_hold(file, partition)
        )
        if files:
            carried.append(Carried(files, only={topic: frozenset({partition})}))
    return carried


def _may_hold(file: TableFile, log_partition: int) -> bool:
    """May rows of a log partition be in a file of silver?"""
    name = "log_partition"
    return bool(file.minimum.get(name, log_partition) <= log_partition <= file.maximum.get(name, log_partition))


def _take_misnamed(
    done: Iterable[ReplayDone], name_of: Mapping[str, str], folder: str
) -> tuple[tuple[str, bool, TableFile], ...]:
    """Take out of what tasks did, and give, the part files in which assignments have another name than `name_of`'s."""
    name = MEMBER_ASSIGNMENTS.full_name
    misnamed = []
    for task in done:
        if any(name_of.get(topic_id) != given for topic_id, given in task.names_given):
            for file in task.files.pop(name, ()):
                is_settled = dict(file.partition_values)["is_settled"] == "true"
                misnamed.append((name, is_settled, TableFile(f"{folder}/{file.path}", file.size_bytes, None, {})))
    return tuple(misnamed)


def _files_of(done: Iterable[ReplayDone], table: Table) -> list[WrittenFile]:
    return list(chain.from_iterable(task.files.get(table.full_name, ()) for task in done))


def _works(session: SparkSession, work: ReplayWork, logs: Sequence[LogFiles]) -> list[ReplayWork]:
    weights = [log.size_bytes for log in logs]
    return [
        dataclasses.replace(work, number=work.number + number, logs=tuple(logs[index] for index in indices))
        for number, indices in enumerate(_bins(session, weights))
    ]


def _bins(session: SparkSession, weights: Sequence[int]) -> list[list[int]]:
    return tapered(weights, session.sparkContext.defaultParallelism, weight_max=TASK_BYTES_MAX)


def _read_names(whole: WholeRun) -> Names:
    rows = whole.read(NAMES).to_pylist()
    return Names(
        tuple(
            TopicName(row["topic_id"], row["topic"], _at_ms(row["at"]), row["learned_from"])
            for row in rows
            if row["learned_from"] in LEARNED_FROM
        ),
        {row["topic_id"]: _at_ms(row["at"]) for row in rows if row["learned_from"] == DELETED},
        {row["topic_id"]: row["topic"] for row in rows if row["learned_from"] == IN_USE},
        {
            (row["topic_id"], -1 if row["at"] is None else epoch_ms(row["at"])): row["partition_count"]
            for row in rows
            if row["learned_from"] == PARTITIONS
        },
    )


def _with_learned(before: Names, done: Collection[ReplayDone]) -> Names:
    """What was known, and what the tasks found."""
    earliest: dict[tuple[str, str, str], TopicName] = {}
    deleted = dict(before.deleted)
    for name in chain(before.learned, *(task.topics for task in done)):
        place = name.topic_id, name.topic, name.learned_from
        if place not in earliest or _is_sooner(name.at, earliest[place].at):
            earliest[place] = name
    for task in done:
        deleted |= task.deleted
    counts = merged(before.partition_counts, *(task.partition_counts for task in done))
    return Names(tuple(earliest[place] for place in sorted(earliest)), deleted, before.in_use, counts)


def _name_rows(names: Names, in_use: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """Rows of state.names."""
    no_count = {"partition_count": None}
    rows: list[dict[str, Any]] = [name._asdict() | no_count for name in names.learned]
    for topic_id, at in sorted(names.deleted.items()):
        rows.append({"topic_id": topic_id, "topic": None, "learned_from": DELETED, "at": at} | no_count)
    for topic_id, topic in sorted(in_use.items()):
        rows.append({"topic_id": topic_id, "topic": topic, "learned_from": IN_USE, "at": None} | no_count)
    for (topic_id, at), count in sorted(names.partition_counts.items()):
        row = {"topic_id": topic_id, "topic": None, "learned_from": PARTITIONS, "at": at, "partition_count": count}
        rows.append(row)
    return rows


def _topic_rows(known: Names, told: Iterable[TopicName], told_deleted: Mapping[str, int]) -> list[dict[str, Any]]:
    """One row a topic id: the name from the surest source, from the earliest time at which any source gives it.

    `told`, `told_deleted`: what Admin told beside the logs; the metadata log knows best when a topic was deleted.
    """
    names: dict[str, TopicName] = {}
    earliest: dict[tuple[str, str], int] = {}
    deleted = {**told_deleted, **known.deleted}
    for name in chain(told, known.learned):
        best = names.get(name.topic_id)
        if best is None or _sureness(name) < _sureness(best):
            names[name.topic_id] = name
        place = name.topic_id, name.topic
        if place not in earliest or _is_sooner(name.at, earliest[place]):
            earliest[place] = name.at
    return [
        {
            "topic_id": topic_id,
            "topic": name.topic,
            "valid_from": earliest[topic_id, name.topic],
            "valid_to": _deleted_at(earliest[topic_id, name.topic], deleted.get(topic_id)),
            "learned_from": name.learned_from,
        }
        for topic_id, name in sorted(names.items())
    ]


def _name_of(topics: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Topic id -> topic."""
    return {row["topic_id"]: row["topic"] for row in topics}


def _sureness(name: TopicName) -> tuple[int, int, str]:
    return LEARNED_FROM.index(name.learned_from), name.at if _is_shown(name.at) else TIMESTAMP_MS_MAX + 1, name.topic


def _at_ms(at: datetime | None) -> int:
    """As epoch milliseconds; -1: the record that tells it bears no time."""
    return NO_TIMESTAMP_MS if at is None else epoch_ms(at)


def _deleted_at(named_ms: int, deleted_ms: int | None) -> int | None:
    """When a topic was deleted: not before it was named, though the clock of the controller that says so be behind."""
    return None if deleted_ms is None or not _is_shown(deleted_ms) else max(named_ms, deleted_ms)


def _is_shown(at_ms: int) -> bool:
    """Is it a time that tables show? What they do not show is not known after a run, so it must not count before."""
    return 0 <= at_ms <= TIMESTAMP_MS_MAX


def _is_sooner(at_ms: int, other_ms: int) -> bool:
    """Is a time sooner than another one? One that is none is later than all."""
    return _is_shown(at_ms) and (not _is_shown(other_ms) or at_ms < other_ms)


def _logged_changes(done: Iterable[ReplayDone], whole: WholeRun, plan: Plan) -> list[ConfigChanged]:
    """All changes of configs which the metadata log told so far."""
    changes = list(chain.from_iterable(task.configs for task in done))
    if plan.is_afresh or METADATA_TOPIC in plan.made(Step.AFRESH):
        return changes
    names = [field.name for field in dataclasses.fields(ConfigChanged)]
    run = next((stand.run for (topic, _), stand in plan.earlier.items() if topic == METADATA_TOPIC), whole)
    former = run.read(CONFIG_CHANGES, names).to_pylist()
    return [*(ConfigChanged(**row | {"at": _at_ms(row["at"])}) for row in former), *changes]


def _keys(done: Iterable[ReplayDone], whole: WholeRun, plan: Plan) -> pa.Table:
    """Groups and share partitions of all log partitions: what the runs before found, and what the tasks did."""
    found = list(chain.from_iterable(task.keys for task in done))
    if plan.is_afresh:
        return merged_keys(found)
    former = without_logs(whole.read(COORDINATOR_KEYS), plan.made(*MADE_ANEW))
    earlier = [of_log(stand.run.read(COORDINATOR_KEYS), *log) for log, stand in plan.earlier.items()]
    return merged_keys([former, *earlier, *found])


def _config_rows(logged: Iterable[ConfigChanged], told: Iterable[ToldConfig]) -> list[dict[str, Any]]:
    """One row a stretch in which a config had a value.

    The metadata log tells every change. What Admin told, in the order of time, adds a change wherever it is not what
    the log says of that time: the log was not captured, or brokers have it from their files.
    """
    by_place: dict[tuple[str, str, str], tuple[list[ConfigChanged], list[ToldConfig]]] = {}
    for change in sorted(logged, key=lambda change: change.log_offset):
        place = change.resource_type, change.resource_name, change.name
        by_place.setdefault(place, ([], []))[0].append(change)
    for it in told:
        by_place.setdefault((it.resource_type, it.resource_name, it.name), ([], []))[1].append(it)
    return list(chain.from_iterable(_config_stretches(*changes) for _, changes in sorted(by_place.items())))


def _config_stretches(logged: Sequence[ConfigChanged], told: Sequence[ToldConfig]) -> Iterator[dict[str, Any]]:
    """Of one config. A logged change goes before what was told at its time."""
    in_force: dict[str, Any] | None = None
    waiting = deque(told)
    for change in (*logged, None):
        while waiting and (change is None or waiting[0].at < change.at):
            it = waiting.popleft()
            if it.value == (None if in_force is None else in_force["value"]):
                continue
            if in_force is not None:
                yield in_force | {"valid_to": it.at}
            in_force = _stretch(it, it.value, None) if it.value is not None else None
        if change is not None:
            if in_force is not None:
                ended_at = max(change.at, in_force["valid_from"]) if _is_shown(change.at) else change.at
                yield in_force | {"to_log_offset": change.log_offset, "valid_to": ended_at}
            in_force = _stretch(change, change.value, change.log_offset) if change.value is not None else None
    if in_force is not None:
        yield in_force


def _stretch(change: ConfigChanged | ToldConfig, value: str, log_offset: int | None) -> dict[str, Any]:
    return {
        "resource_type": change.resource_type,
        "resource_name": change.resource_name,
        "name": change.name,
        "value": value,
        "from_log_offset": log_offset,
        "to_log_offset": None,
        "valid_from": change.at,
        "valid_to": None,
    }


def _driver_table(table: Table, rows: Sequence[Mapping[str, Any]], cluster_id: str) -> pa.Table:
    schema = arrow_schema(table)
    made = [{**row, "cluster_id": cluster_id} for row in rows]
    columns = {
        item.name: timestamps(np.array([-1 if row[item.name] is None else row[item.name] for row in made], np.int64))
        if item.type == TIMESTAMP_TYPE
        else pa.array([row[item.name] for row in made], item.type)
        for item in schema
    }
    return pa.table(columns)


def _runs_table(
    counts: Mapping[str, LedgerCounts],
    batch_counts: Mapping[str, int],
    cluster_id: str,
    start: Start,
    table_versions: Mapping[str, int],
    is_renamed: bool,
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
            "told_version": start.told_topics_version + start.told_configs_version,
            "replay_version": start.replay_version,
            "table_versions": list(table_versions.items()),
            "is_renamed": is_renamed,
            **others,
        }
        for topic in sorted(counts)
    ]
    return pa.Table.from_pylist(rows, schema=arrow_schema(RUNS))


def _commit_quarantine(
    warehouse: Warehouse, done: Iterable[ReplayDone], cluster_id: str, app_id: str, version: int, plan: Plan
) -> int:
    """Add this run's findings; where a log partition is replayed again, they come in place of those of the runs before.
    What capture found stays. Rows there then, in all."""
    rows = warehouse.read(QUARANTINE, where={"cluster_id": cluster_id})
    is_kept = is_of_capture(rows)
    if not plan.is_afresh:
        names = pc.binary_join_element_wise(rows["topic"], rows["partition"].cast(pa.string()), "-")
        afresh = [log_name(*log) for log, step in plan.steps.items() if step is Step.AFRESH]
        is_again = pc.is_in(names, value_set=pa.array(afresh, pa.string()))
        for log, stand in plan.earlier.items():
            is_behind = pc.greater_equal(pc.coalesce(rows["offset"], rows["base_offset"]), stand.watermark.next_offset)
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


def _quarantined_row_count(warehouse: Warehouse, cluster_id: str) -> int:
    return open_count(warehouse.read(QUARANTINE, ["resolved_at"], where={"cluster_id": cluster_id}))


def _summed(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total[name] + value if name in total else value
    return total
