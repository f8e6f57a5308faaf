"""bronze -> silver: replay every captured log partition and write down what the coordinators knew.

One Spark task replays a few log partitions, one after another: it reads their batches from bronze's files, hands them
to the core chunk by chunk, and writes part files of the silver tables. A log partition is never split and never
shuffled: it is the unit of order, and a group or share partition lives wholly in one. The driver commits.

Two rounds, because a topic id's name may be known in another log partition than the one that needs it: first
`__consumer_offsets` and the logs which teach names, then `__share_group_state` and the naming of assignments.
"""

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from coordinator_core.history.groups import GroupRows
from coordinator_core.history.offsets_log import OffsetsLogReplay
from coordinator_core.history.rows import TopicName
from coordinator_core.history.simple_log import ClusterMetadataReplay, ConfigChanged, TransactionStateReplay
from coordinator_core.ledger import LedgerCounts
from coordinator_core.log.chunk import Finding, RecordChunk, unreadable_record_count
from coordinator_core.log.records import decode_chunk
from coordinator_core.share_state.lane import LaneOutput, ShareStateLane
from jobs.arrow_schemas import TIMESTAMP_TYPE, arrow_schema, file_schema, timestamps
from jobs.bronze_reader import BronzeChunk, read_log
from jobs.quarantine import is_of_capture
from jobs.silver_format import SILVER_FORMAT, other_version, silver_format
from jobs.silver_rows import (
    ShareKeys,
    commits_table,
    quarantine_table,
    rows_table,
    share_batches_table,
    share_states_table,
    share_transitions_table,
    with_names,
)
from jobs.sinks import (
    OVERWRITE,
    PartTarget,
    PartWriter,
    TableFile,
    Warehouse,
    WrittenFile,
    delete_folder,
    filesystem_of,
    write_parts,
)
from jobs.tasks import balanced, run_tasks
from jobs.times import epoch_ms
from jobs.told import ADMIN, NOTHING_TOLD, ToldConfig, told_configs, told_topics, told_version
from schemas.tables.bronze import QUARANTINE, RECORD_BATCHES
from schemas.tables.declare import Table
from schemas.tables.silver import (
    CONFIGS,
    GROUP_EVENTS,
    GROUP_GENERATIONS,
    GROUP_MEMBERS,
    MEMBER_ASSIGNMENTS,
    OFFSET_COMMITS,
    SHARE_BATCH_TRANSITIONS,
    SHARE_PARTITION_STATES,
    SHARE_STATE_BATCHES,
    SILVER_TABLES,
    TOPICS,
)
from schemas.tables.state import RUNS

OFFSETS_TOPIC: Final = "__consumer_offsets"
SHARE_TOPIC: Final = "__share_group_state"
TRANSACTION_TOPIC: Final = "__transaction_state"
METADATA_TOPIC: Final = "__cluster_metadata"

FIRST_ROUND: Final = (OFFSETS_TOPIC, TRANSACTION_TOPIC, METADATA_TOPIC)
TASK_BYTES_MAX: Final = 128 * 1024 * 1024
"""Log partitions of one task together; a larger one has a task of its own."""
TASKS_PER_CORE: Final = 2
"""Enough tasks that the cores end together, few enough that part files stay large."""
BUFFERED_ROWS_MAX: Final = 100_000
"""Rows of the group tables which a task holds before it writes a row group."""
CHUNK_DECOMPRESSED_BYTES_MAX: Final = 512 * 1024 * 1024
"""Decompressed bytes of one chunk: what keeps a worker below its memory however well a log compresses."""

LEARNED_FROM: Final = ("CLUSTER_METADATA", ADMIN, "SHARE_PARTITIONS", "OFFSET_COMMIT", "SUBSCRIPTION", "REGEX")
"""Sources of a topic id's name, the surest first."""

DRIVER_TABLES: Final = (TOPICS, CONFIGS)
"""Small ones, which the driver writes from what all tasks found."""
REPLAY_TABLES: Final = (*(table for table in SILVER_TABLES if table not in DRIVER_TABLES),)


@dataclass(frozen=True, slots=True)
class LogFiles:
    """One captured log partition: bronze's files of it."""

    topic: str
    partition: int
    files: tuple[TableFile, ...]

    @property
    def size_bytes(self) -> int:
        """Of its files."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class ReplayWork:
    """What one task does. `names`: topic id -> topic, for the second round."""

    cluster_id: str
    number: int
    logs: tuple[LogFiles, ...]
    targets: Mapping[str, PartTarget]
    seen_at_ms: int
    batch_decompressed_bytes_max: int
    names: Mapping[str, str]
    unnamed: tuple[WrittenFile, ...] = ()
    """Staged part files of silver.member_assignments that want names."""
    staging: PartTarget | None = None


@dataclass(slots=True)
class ReplayDone:
    """What one task did."""

    files: dict[str, list[WrittenFile]] = field(default_factory=dict)
    counts: dict[str, LedgerCounts] = field(default_factory=dict)
    batch_counts: dict[str, int] = field(default_factory=dict)
    topics: list[TopicName] = field(default_factory=list)
    deleted: dict[str, int] = field(default_factory=dict)
    """Topic id -> when its topic was deleted (epoch ms)."""
    configs: list[ConfigChanged] = field(default_factory=list)
    """In the order of the metadata log."""


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
    rebuild: bool = False,
) -> ReplaySummary:
    """Replay all that bronze holds of a cluster, and put the silver tables of the cluster in place.

    A run which has nothing new to read writes nothing, unless `rebuild` or silver is of another version's format. The
    row in state.runs is written last.
    """
    bronze_version = warehouse.version(RECORD_BATCHES)
    last_run = _last_run(warehouse, cluster_id)
    other = other_version(silver_format(warehouse, cluster_id), SILVER_FORMAT)
    told = told_version(warehouse)
    if last_run == (bronze_version, told) and not rebuild and other is None:
        counts = _counts_of(warehouse, cluster_id, bronze_version)
        return ReplaySummary(counts, {}, _quarantined_row_count(warehouse, cluster_id), bronze_version, skipped=True)
    app_id = replay_application(cluster_id)
    tables = (*REPLAY_TABLES, *DRIVER_TABLES, QUARANTINE, RUNS)
    for table in tables:
        warehouse.ensure(table)
    version = 1 + max(warehouse.last_version(table, app_id) for table in tables)
    targets = {
        table.full_name: warehouse.target(table, app_id=app_id, version=version)
        for table in (*REPLAY_TABLES, QUARANTINE)
    }
    staging = dataclasses.replace(
        targets[MEMBER_ASSIGNMENTS.full_name],
        folder=f"{warehouse.root}/_staging/unnamed/{run_id}",
        with_partition_columns=False,
    )
    work = ReplayWork(
        cluster_id=cluster_id,
        number=0,
        logs=(),
        targets=targets,
        seen_at_ms=epoch_ms(started_at),
        batch_decompressed_bytes_max=batch_decompressed_bytes_max,
        names={},
        staging=staging,
    )
    logs = captured_logs(warehouse, cluster_id)
    first = [log for log in logs if log.topic in FIRST_ROUND]
    second = [log for log in logs if log.topic == SHARE_TOPIC]

    done = run_tasks(session, replay_logs, _works(session, work, first))
    topics = _topic_rows(done, *told_topics(warehouse, cluster_id))
    unnamed = tuple(chain.from_iterable(task.files.pop(_UNNAMED, ()) for task in done))
    naming = dataclasses.replace(
        work, names={row["topic_id"]: row["topic"] for row in topics}, number=len(done), unnamed=()
    )
    second_works = _works(session, naming, second)
    if unnamed:
        second_works.append(dataclasses.replace(naming, unnamed=unnamed, number=len(done) + len(second_works)))
    done += run_tasks(session, replay_logs, second_works)
    delete_folder(staging.folder)

    row_counts = {}
    for table in REPLAY_TABLES:
        files = list(chain.from_iterable(task.files.get(table.full_name, ()) for task in done))
        committed = warehouse.commit(
            table, files, app_id=app_id, version=version, mode=OVERWRITE, replace={"cluster_id": cluster_id}
        )
        row_counts[table.full_name] = committed.row_count
    for table, rows in ((TOPICS, topics), (CONFIGS, _config_rows(done, told_configs(warehouse, cluster_id)))):
        row_counts[table.full_name] = warehouse.write(
            table,
            _driver_table(table, rows, cluster_id),
            app_id=app_id,
            version=version,
            mode=OVERWRITE,
            replace={"cluster_id": cluster_id},
        ).row_count
    quarantined = _commit_quarantine(warehouse, done, cluster_id, app_id, version)
    counts = _summed(task.counts for task in done)
    batch_counts = _summed(task.batch_counts for task in done)
    warehouse.write(
        RUNS,
        _runs_table(counts, batch_counts, cluster_id, run_id, started_at, bronze_version, told),
        app_id=app_id,
        version=version,
    )
    return ReplaySummary(counts, row_counts, quarantined, bronze_version, skipped=False, replaced_version=other)


def replay_application(cluster_id: str) -> str:
    """The application id of replay's commits; their version says which replay the silver tables are of."""
    return f"groupledger/replay/{cluster_id}"


# --- on the driver


def _last_run(warehouse: Warehouse, cluster_id: str) -> tuple[int, int] | None:
    """The version of bronze which the newest finished run replayed, and of what it was told beside."""
    rows = warehouse.read(RUNS, ["bronze_version", "told_version"], where={"cluster_id": cluster_id}).to_pylist()
    runs = [
        (row["bronze_version"], NOTHING_TOLD if row["told_version"] is None else row["told_version"]) for row in rows
    ]
    return max(runs, default=None)


def _counts_of(warehouse: Warehouse, cluster_id: str, bronze_version: int) -> dict[str, LedgerCounts]:
    rows = warehouse.read(RUNS, where={"cluster_id": cluster_id, "bronze_version": bronze_version}).to_pylist()
    names = [item.name for item in dataclasses.fields(LedgerCounts)]
    return {row["topic"]: LedgerCounts(**{name: row[name] for name in names}) for row in rows}


def captured_logs(warehouse: Warehouse, cluster_id: str) -> list[LogFiles]:
    """The log partitions of a cluster which bronze holds, by topic and partition."""
    by_log: dict[tuple[str, int], list[TableFile]] = {}
    for file in warehouse.files(RECORD_BATCHES):
        values = file.partition_values
        if values["cluster_id"] == cluster_id:
            by_log.setdefault((values["topic"], int(values["partition"])), []).append(file)
    return [LogFiles(topic, partition, tuple(by_log[topic, partition])) for topic, partition in sorted(by_log)]


def _works(session: SparkSession, work: ReplayWork, logs: Sequence[LogFiles]) -> list[ReplayWork]:
    weights = [log.size_bytes for log in logs]
    tasks_max = max(TASKS_PER_CORE * session.sparkContext.defaultParallelism, sum(weights) // TASK_BYTES_MAX)
    return [
        dataclasses.replace(work, number=work.number + number, logs=tuple(logs[index] for index in indices))
        for number, indices in enumerate(balanced(weights, tasks_max))
    ]


def _topic_rows(
    done: Iterable[ReplayDone], told: Iterable[TopicName], told_deleted: Mapping[str, int]
) -> list[dict[str, Any]]:
    """One row a topic id: the name from the surest source, from the earliest time at which any source gives it.

    `told`, `told_deleted`: what Admin told beside the logs; the metadata log knows best when a topic was deleted.
    """
    names: dict[str, TopicName] = {}
    earliest: dict[tuple[str, str], int] = {}
    deleted = dict(told_deleted)
    for task in done:
        deleted |= task.deleted
    for name in chain(told, *(task.topics for task in done)):
        known = names.get(name.topic_id)
        if known is None or _sureness(name) < _sureness(known):
            names[name.topic_id] = name
        place = name.topic_id, name.topic
        earliest[place] = min(earliest.get(place, name.at), name.at)
    return [
        {
            "topic_id": topic_id,
            "topic": name.topic,
            "valid_from": earliest[topic_id, name.topic],
            "valid_to": deleted.get(topic_id),
            "learned_from": name.learned_from,
        }
        for topic_id, name in sorted(names.items())
    ]


def _sureness(name: TopicName) -> tuple[int, int, str]:
    return LEARNED_FROM.index(name.learned_from), name.at, name.topic


def _config_rows(done: Iterable[ReplayDone], told: Iterable[ToldConfig]) -> list[dict[str, Any]]:
    """One row a stretch in which a config had a value.

    The metadata log tells every change. What Admin told, in the order of time, adds a change wherever it is not what
    the log says of that time: the log was not captured, or brokers have it from their files.
    """
    by_place: dict[tuple[str, str, str], tuple[list[ConfigChanged], list[ToldConfig]]] = {}
    for change in sorted(chain.from_iterable(task.configs for task in done), key=lambda change: change.log_offset):
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
                yield in_force | {"to_log_offset": change.log_offset, "valid_to": change.at}
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
    run_id: str,
    started_at: datetime,
    bronze_version: int,
    told: int,
) -> pa.Table:
    rows = [
        {
            "cluster_id": cluster_id,
            "run_id": run_id,
            "topic": topic,
            "started_at": started_at,
            "bronze_version": bronze_version,
            "batch_count": batch_counts[topic],
            **dataclasses.asdict(counts[topic]),
            "silver_format": SILVER_FORMAT,
            "told_version": told,
        }
        for topic in sorted(counts)
    ]
    return pa.Table.from_pylist(rows, schema=arrow_schema(RUNS))


def _commit_quarantine(
    warehouse: Warehouse, done: Iterable[ReplayDone], cluster_id: str, app_id: str, version: int
) -> int:
    """Put this run's findings in place of the last run's; what capture found stays. Rows there then, in all."""
    rows = warehouse.read(QUARANTINE, where={"cluster_id": cluster_id})
    kept = rows.filter(is_of_capture(rows)).cast(arrow_schema(QUARANTINE))
    files = list(chain.from_iterable(task.files.get(QUARANTINE.full_name, ()) for task in done))
    if not files and kept.num_rows == rows.num_rows:
        return int(rows.num_rows)
    target = warehouse.target(QUARANTINE, app_id=app_id, version=version)
    files += write_parts(target, kept, "kept")
    committed = warehouse.commit(
        QUARANTINE, files, app_id=app_id, version=version, mode=OVERWRITE, replace={"cluster_id": cluster_id}
    )
    return committed.row_count


def _quarantined_row_count(warehouse: Warehouse, cluster_id: str) -> int:
    return int(warehouse.read(QUARANTINE, ["stage"], where={"cluster_id": cluster_id}).num_rows)


def _summed(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total[name] + value if name in total else value
    return total


# --- in a task

_UNNAMED: Final = "unnamed"


def replay_logs(work: ReplayWork) -> ReplayDone:
    """Replay some log partitions, name some assignments. Runs in a Spark task."""
    with _Parts(work) as parts:
        for log in work.logs:
            _REPLAY_LOG[log.topic](log, work, parts)
        if work.unnamed:
            _name_assignments(work, parts)
        return parts.done


class _Parts:
    """The part files of one task, opened when first needed, and what else it has to tell."""

    def __init__(self, work: ReplayWork) -> None:
        self._work = work
        self._writers: dict[str, PartWriter] = {}
        self._stack = ExitStack()
        self.done = ReplayDone()
        self.share_lane: ShareStateLane | None = None
        """The lane of the log partition before, whose buffers the next one takes over."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._stack.__exit__(kind, error, trace)
        if error is None:
            for name, writer in self._writers.items():
                self.done.files[name] = [writer.close()]

    def write(self, name: str, rows: pa.Table) -> None:
        """Append rows to the part file of a table; `_UNNAMED` is the staging of assignments."""
        if not rows.num_rows:
            return
        writer = self._writers.get(name)
        if writer is None:
            target = self._work.staging if name == _UNNAMED else self._work.targets[name]
            assert target is not None
            part = PartWriter(target, f"part-{self._work.number:05d}", {"cluster_id": self._work.cluster_id})
            writer = self._writers[name] = self._stack.enter_context(part)
        writer.write(rows)

    def count(self, log: LogFiles, chunk: RecordChunk, counts: LedgerCounts) -> None:
        """Add to the ledger of a topic."""
        done = self.done
        done.counts[log.topic] = done.counts.get(log.topic, LedgerCounts()) + counts
        done.batch_counts[log.topic] = done.batch_counts.get(log.topic, 0) + len(chunk.batches)

    def quarantine(self, log: LogFiles, bronze: BronzeChunk, findings: Iterable[Finding]) -> None:
        """Write findings, each with the source of its batch."""
        rows = []
        for finding in findings:
            place = finding.base_offset if finding.base_offset is not None else finding.offset
            rows.append((finding, None if place is None else bronze.source_of(place)))
        if rows:
            table = quarantine_table(rows, topic=log.topic, partition=log.partition, seen_at_ms=self._work.seen_at_ms)
            self.write(QUARANTINE.full_name, table)


def _chunks(log: LogFiles, work: ReplayWork) -> Iterator[tuple[BronzeChunk, RecordChunk]]:
    """The log, decoded. Checksums were verified when it was captured."""
    for bronze in read_log(log.files):
        yield (
            bronze,
            decode_chunk(
                bronze.data,
                bytes_max=work.batch_decompressed_bytes_max,
                chunk_bytes_max=CHUNK_DECOMPRESSED_BYTES_MAX,
                crc="skip",
            ),
        )


def _replay_offsets(log: LogFiles, work: ReplayWork, parts: _Parts) -> None:
    replayer = OffsetsLogReplay()
    rows = GroupRows()
    for bronze, chunk in _chunks(log, work):
        output = replayer.feed(chunk)
        told = bronze.are_headers_told(output.commits.log_offset)
        parts.write(OFFSET_COMMITS.full_name, commits_table(output.commits, log.partition, told))
        parts.quarantine(log, bronze, output.findings)
        parts.count(log, chunk, output.counts)
        rows.extend(output.groups)
        if len(rows) > BUFFERED_ROWS_MAX:
            _write_groups(rows, log, parts)
            rows = GroupRows()
    output = replayer.finish()
    parts.write(OFFSET_COMMITS.full_name, commits_table(output.commits, log.partition))
    rows.extend(output.groups)
    _write_groups(rows, log, parts)


def _write_groups(rows: GroupRows, log: LogFiles, parts: _Parts) -> None:
    constants = {"log_partition": log.partition}
    for table, name, made in (
        (GROUP_GENERATIONS, GROUP_GENERATIONS.full_name, rows.generations),
        (GROUP_MEMBERS, GROUP_MEMBERS.full_name, rows.members),
        (MEMBER_ASSIGNMENTS, _UNNAMED, rows.assignments),
        (GROUP_EVENTS, GROUP_EVENTS.full_name, rows.events),
    ):
        if made:
            parts.write(name, rows_table(table, made, constants))
    parts.done.topics.extend(rows.topics)


def _replay_share_state(log: LogFiles, work: ReplayWork, parts: _Parts) -> None:
    lane = parts.share_lane = ShareStateLane(after=parts.share_lane)

    def write(output: LaneOutput) -> None:
        keys = ShareKeys(output.keys, work.names)
        parts.write(SHARE_PARTITION_STATES.full_name, share_states_table(output.partition_states, keys, log.partition))
        parts.write(SHARE_STATE_BATCHES.full_name, share_batches_table(output.state_batches, keys, log.partition))
        parts.write(SHARE_BATCH_TRANSITIONS.full_name, share_transitions_table(output.transitions, keys, log.partition))

    for bronze, chunk in _chunks(log, work):
        output = lane.feed(chunk)
        write(output)
        parts.quarantine(log, bronze, (*chunk.findings, *output.findings))
        parts.count(
            log,
            chunk,
            LedgerCounts(
                record_count=int(chunk.batches.record_count.sum()),
                decoded_count=output.counts.decoded,
                tombstone_count=output.counts.tombstones,
                control_count=output.counts.control,
                unknown_type_count=output.counts.unknown_type,
                quarantined_count=output.counts.quarantined + unreadable_record_count(chunk),
            ),
        )
    write(lane.finish())


def _replay_simple(log: LogFiles, work: ReplayWork, parts: _Parts) -> None:
    replayer = ClusterMetadataReplay() if log.topic == METADATA_TOPIC else TransactionStateReplay()
    for bronze, chunk in _chunks(log, work):
        output = replayer.feed(chunk)
        parts.quarantine(log, bronze, output.findings)
        parts.count(log, chunk, output.counts)
        parts.done.topics.extend(output.topics)
        parts.done.deleted |= {item.topic_id: item.at for item in output.deleted}
        parts.done.configs.extend(output.configs)


def _name_assignments(work: ReplayWork, parts: _Parts) -> None:
    """Give the staged assignments their topics' names."""
    assert work.staging is not None
    filesystem, folder = filesystem_of(work.staging.folder)
    for file in work.unnamed:
        with filesystem.open_input_file(f"{folder}/{file.path}") as source:
            staged = pq.ParquetFile(source)
            for index in range(staged.metadata.num_row_groups):
                rows = staged.read_row_group(index, use_threads=False)
                schema = file_schema(MEMBER_ASSIGNMENTS)
                parts.write(MEMBER_ASSIGNMENTS.full_name, with_names(rows.cast(schema), work.names))


ReplayLog = Callable[[LogFiles, ReplayWork, _Parts], None]

_REPLAY_LOG: Final[Mapping[str, ReplayLog]] = {
    OFFSETS_TOPIC: _replay_offsets,
    SHARE_TOPIC: _replay_share_state,
    METADATA_TOPIC: _replay_simple,
    TRANSACTION_TOPIC: _replay_simple,
}
