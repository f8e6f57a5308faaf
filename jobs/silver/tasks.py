"""The tasks of a replay: replay log partitions, and carry over rows of earlier runs.

A task reads the files of bronze and silver itself. It writes part files of the silver tables and of the state, and
returns their names and what the driver needs to know.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set, Sized
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.log.chunk import Finding, RecordChunk, unreadable_record_count
from coordinator_core.bytes.log.copies import Load
from coordinator_core.bytes.log.records import decode_chunk
from coordinator_core.errors import StateUnreadable
from coordinator_core.history.ledger import LedgerCounts
from coordinator_core.history.log_checkpoint import (
    pack_metadata,
    pack_offset_state,
    pack_share_state,
    unpack_metadata,
    unpack_share_state,
)
from coordinator_core.history.offsets_log import Loaded, OffsetsLogReplay
from coordinator_core.history.rows import GroupRows, TopicName
from coordinator_core.history.simple_log import ClusterMetadataReplay, ConfigChanged, TransactionStateReplay
from coordinator_core.replay.columnar.share_state_columnar import ColumnarOutput, ColumnarShareReplay
from coordinator_core.replay.columnar.share_state_columnar_states import columnar_state_of
from coordinator_core.replay.faults import Faults
from coordinator_core.replay.key_buckets import KeyBucket, without_keys
from coordinator_core.replay.lookup import Key
from jobs.bronze.reader import BronzeChunk, batch_with, read_log
from jobs.delta.arrow_schemas import file_schema
from jobs.delta.core_tables import (
    ROWS_OF_GROUPS,
    ShareKeys,
    assignments_table,
    commits_table,
    quarantine_table,
    rows_table,
    share_batches_table,
    share_states_table,
    share_transitions_table,
    with_names,
)
from jobs.delta.filesystems import delete_file
from jobs.delta.part_files import PartTarget, PartWriter, WrittenFile, write_part
from jobs.delta.row_groups import stored_rows
from jobs.delta.table_files import TableFile
from jobs.errors import OUTSIDE
from jobs.silver.checkpoints import SavedLog, log_name
from jobs.silver.coordinator_keys import GroupKeys, ShareStateKeys
from jobs.silver.privacy import HostPseudonyms
from jobs.silver.reader import SilverFiles
from jobs.silver.replay_failures import NOTHING_LEFT_OUT, Fault, LeftOut, ReplayFailure
from jobs.silver.rows import is_of_groups
from schemas.cluster_metadata import TOPIC as METADATA_TOPIC
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables import TABLES
from schemas.tables.bronze import QUARANTINE
from schemas.tables.declare import Table
from schemas.tables.silver import (
    GROUP_EVENTS,
    GROUP_GENERATIONS,
    GROUP_MEMBERS,
    MEMBER_ASSIGNMENTS,
    MEMBER_ATTRIBUTES,
    OFFSET_COMMITS,
    SHARE_BATCH_TRANSITIONS,
    SHARE_PARTITION_STATES,
    SHARE_STATE_BATCHES,
)
from schemas.tables.state import CHECKPOINTS, Checkpoint
from schemas.transaction_state import TOPIC as TRANSACTION_TOPIC

BUFFERED_ROWS_MAX: Final = 100_000
"""Rows of the group tables that a task buffers before it writes a row group."""
GROUP_ROWS_MAX: Final = 1 << 13
"""Rows per row group in tables of group history. Rows are in order of their ends, and an audit mostly needs the
newest ones: it skips the other row groups."""
ROW_GROUP_ROWS_MIN: Final = 1 << 13
"""A row group has overhead even with few rows, so log partitions with fewer rows share one."""
CHUNK_DECOMPRESSED_BYTES_MAX: Final = 512 * 1024 * 1024
"""Decompressed bytes of one chunk: limits a worker's memory for any compression ratio."""

TABLES_OF_TOPIC: Final[Mapping[str, tuple[Table, ...]]] = {
    OFFSETS_TOPIC: (
        OFFSET_COMMITS,
        GROUP_GENERATIONS,
        GROUP_MEMBERS,
        MEMBER_ATTRIBUTES,
        MEMBER_ASSIGNMENTS,
        GROUP_EVENTS,
    ),
    SHARE_TOPIC: (SHARE_PARTITION_STATES, SHARE_STATE_BATCHES, SHARE_BATCH_TRANSITIONS),
}
"""The silver tables whose rows come from each topic."""

NAMED_TABLES: Final = (MEMBER_ASSIGNMENTS, *TABLES_OF_TOPIC[SHARE_TOPIC])
"""Tables whose `topic` is the name of `topic_id`, where one is known."""

INTERVAL_TABLES: Final = (GROUP_GENERATIONS, GROUP_MEMBERS, MEMBER_ATTRIBUTES, MEMBER_ASSIGNMENTS)
"""Tables of groups that have open rows."""


@dataclass(frozen=True, slots=True)
class LogFiles:
    """A captured log partition: its files in bronze, and the offset to replay from."""

    topic: str
    partition: int
    files: tuple[TableFile, ...]
    from_offset: int = 0
    saved: SavedLog | None = None
    """The checkpoint of its replay; None: it has none yet."""
    bucket: KeyBucket | None = None
    """The keys that are replayed; None: all."""
    bucket_count: int = 1
    left_out: LeftOut = NOTHING_LEFT_OUT
    """The parts that are not replayed."""
    to_offset: int | None = None
    """The base offset of the first batch that is not replayed; None: all are."""
    loads: tuple[Load, ...] = ()
    """Where leaders loaded it from a start that had moved, ascending."""

    @property
    def size_bytes(self) -> int:
        """Estimated size of what is to be replayed."""
        new = sum(file.size_bytes for file in self.files if file.maximum.get("last_offset", 0) >= self.from_offset)
        return new // self.bucket_count

    @property
    def name(self) -> str:
        """The name of its folder."""
        return log_name(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Carried:
    """Rows of some log partitions that are rewritten: of earlier runs, or because topic names changed."""

    files: tuple[tuple[str, bool, TableFile], ...]
    """Table, whether its rows are settled, file."""
    left_out: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """By internal topic, log partitions whose rows this run makes itself."""
    only: Mapping[str, frozenset[int]] | None = None
    """By internal topic, the log partitions whose rows are carried; None: all others."""


@dataclass(frozen=True, slots=True)
class ReplayWork:
    """The input of one task. `names`: known names of topic ids."""

    cluster_id: str
    number: int
    logs: tuple[LogFiles, ...]
    targets: Mapping[str, PartTarget]
    seen_at_ms: int
    batch_decompressed_bytes_max: int
    names: Mapping[str, str]
    unsettled: SilverFiles = field(default_factory=lambda: SilverFiles({}))
    """The files of the last run's unsettled rows."""
    carried: Carried | None = None
    replay_version: int = -1
    """Number of the run."""
    hosts: HostPseudonyms | None = None
    """How silver shows clients' hosts; None: as they are."""

    @property
    def size_bytes(self) -> int:
        return sum(log.size_bytes for log in self.logs)


@dataclass(slots=True)
class ReplayDone:
    """The result of one task."""

    files: dict[str, list[WrittenFile]] = field(default_factory=dict)
    counts: dict[str, LedgerCounts] = field(default_factory=dict)
    batch_counts: dict[str, int] = field(default_factory=dict)
    topics: list[TopicName] = field(default_factory=list)
    deleted: dict[str, int] = field(default_factory=dict)
    """Topic id -> when its topic was deleted (epoch ms)."""
    configs: list[ConfigChanged] = field(default_factory=list)
    """In the order of the metadata log."""
    partition_counts: dict[tuple[str, int], int] = field(default_factory=dict)
    """Topic id and time (epoch ms) -> least number of partitions that the topic had, after all records of that time."""
    keys: list[pa.Table] = field(default_factory=list)
    """Groups and share partitions with records in the replayed parts of log partitions: rows of
    state.checkpoints of kind COORDINATOR_KEY."""
    names_given: set[tuple[str, str | None]] = field(default_factory=set)
    """Topic ids of written rows, each with the name in those rows, if any."""
    failures: list[ReplayFailure] = field(default_factory=list)
    """What could not be replayed and was left out."""


NOT_ISOLATED: Final = (*OUTSIDE, StateUnreadable)


class _NotReplayed(Exception):
    """Not all could be replayed."""


def replay_logs(work: ReplayWork) -> ReplayDone:
    """Replay some log partitions, and carry rows over. Runs in a Spark task.

    If groups, share partitions or log partitions cannot be replayed, the task starts again without them.
    """
    with suppress(_NotReplayed), _Parts(work) as parts:
        for log in work.logs:
            try:
                _REPLAY_LOG[log.topic](log, work, parts)
            except NOT_ISOLATED:
                raise
            except Exception as error:
                parts.columnar_share = None
                parts.leave_out(log, None, Fault.of(error, parts.reached_offset))
            parts.done.failures.extend(log.left_out.failures)
        parts.write_groups()
        if parts.failures:
            raise _NotReplayed
        if parts.serialized:
            _carry_serialized(work, parts)
        if work.carried is not None:
            _carry(work.carried, parts)
        return parts.done
    logs = (
        replace(log, left_out=LeftOut((*log.left_out.failures, *parts.failures.get(index, {}).values())))
        for index, log in enumerate(work.logs)
    )
    return replay_logs(replace(work, logs=tuple(logs)))


class _Parts:
    """The part files of one task, opened when first needed, and its other results."""

    def __init__(self, work: ReplayWork) -> None:
        self._work = work
        self.failures: dict[int, dict[Key | None, ReplayFailure]] = {}
        """By log partition (index in `work.logs`), what could not be replayed: nothing that is written is kept."""
        self.reached_offset: int | None = None
        """Offset of the first record in the chunk that is being replayed."""
        self._writers: dict[tuple[str, bool], PartWriter] = {}
        self._stack = ExitStack()
        self.done = ReplayDone()
        self._names = dict(work.names)
        """Known names of topic ids, including those that this task found."""
        self.hosts = work.hosts
        self.serialized: dict[int, Set[str]] = {}
        """By log partition, groups without records in this run: their state stays serialized."""
        self._groups: dict[bool, list[tuple[LogFiles, GroupRows]]] = {True: [], False: []}
        """Rows of the group tables with their log partition, by whether they are settled."""
        self._group_row_count = 0
        self.columnar_share: ColumnarShareReplay | None = None
        """The columnar replay of the previous log partition, whose buffers the next one reuses."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._stack.__exit__(kind, error, trace)
        if error is None:
            for (name, _), writer in self._writers.items():
                self.done.files.setdefault(name, []).append(writer.close())
            return
        for file in self.done.files.get(CHECKPOINTS.full_name, ()):
            # ignore errors of the deletion: the original error is raised
            with suppress(Exception):
                delete_file(f"{self._work.targets[CHECKPOINTS.full_name].folder}/{file.path}")

    def leave_out(self, log: LogFiles, key: Key | None, fault: Fault) -> None:
        """Note what cannot be replayed; None: the log partition."""
        if key in log.left_out.keys or log.left_out.is_all:
            raise RuntimeError(f"{log.name} cannot be replayed without {key or 'all its records'}: {fault.text}")
        index = next(index for index, it in enumerate(self._work.logs) if it is log)
        failure = ReplayFailure(log.topic, log.partition, key, fault, log.from_offset)
        self.failures.setdefault(index, {}).setdefault(key, failure)

    def leave_out_all(self, log: LogFiles, faults: Faults) -> None:
        """Note all keys that cannot be replayed."""
        for key, fault in faults.items():
            self.leave_out(log, key, Fault.of(fault, None))

    def write(self, name: str, rows: pa.Table, *, is_settled: bool = True) -> None:
        """Append rows to a part file of a table."""
        if not rows.num_rows:
            return
        writer = self._writers.get((name, is_settled))
        if writer is None:
            target = self._work.targets[name]
            values = {"cluster_id": self._work.cluster_id, "is_settled": is_settled}
            kept = {column: values[column] for column in target.table.partition_by}
            is_of_groups = target.table in (*INTERVAL_TABLES, GROUP_EVENTS)
            part = PartWriter(
                target,
                f"part-{self._work.number:05d}",
                kept,
                row_group_rows_min=ROW_GROUP_ROWS_MIN,
                row_group_rows_max=GROUP_ROWS_MAX if is_of_groups else None,
            )
            writer = self._writers[name, is_settled] = self._stack.enter_context(part)
        writer.write(rows)

    def write_named(self, table: Table, rows: pa.Table, *, is_settled: bool = True) -> None:
        """Append rows to a part file of a table, with the topic names known now."""
        if not rows.num_rows:
            return
        topic_ids = pc.unique(rows["topic_id"].drop_null()).to_pylist()
        self.done.names_given.update((topic_id, self._names.get(topic_id)) for topic_id in topic_ids)
        self.write(table.full_name, with_names(rows, self._names), is_settled=is_settled)

    def learn(self, topics: Iterable[TopicName]) -> None:
        """Add names that a log partition contains."""
        for name in topics:
            self.done.topics.append(name)
            self._names.setdefault(name.topic_id, name.topic)

    def add_groups(self, rows: GroupRows, log: LogFiles, *, is_settled: bool) -> None:
        """Buffer rows of the group tables. They are written together, since creating a table costs more than the few
        rows that most log partitions have."""
        self.learn(rows.topics)
        self._groups[is_settled].append((log, rows))
        self._group_row_count += len(rows)
        if self._group_row_count > BUFFERED_ROWS_MAX:
            self.write_groups()

    def write_groups(self) -> None:
        self._group_row_count = 0
        for is_settled, groups in self._groups.items():
            try:
                made = list(_group_tables(groups))
            except NOT_ISOLATED:
                raise
            except Exception as error:
                self._leave_out_rows(groups, error)
                made = []
            for table, rows in made:
                if table in NAMED_TABLES:
                    self.write_named(table, rows, is_settled=is_settled)
                else:
                    self.write(
                        table.full_name, rows if self.hosts is None else self.hosts.of(rows), is_settled=is_settled
                    )
            groups.clear()

    def _leave_out_rows(self, groups: Sequence[tuple[LogFiles, GroupRows]], error: Exception) -> None:
        """Leave out the groups whose rows cannot be written as columns; if it is none of them, the log partitions."""
        is_found = False
        for log, rows in groups:
            faults = Faults()
            for table, rows_of in ROWS_OF_GROUPS.items():
                for row in rows_of(rows):
                    with faults.guard(attrgetter("group_id")(row)):
                        rows_table(table, [row], {"log_partition": log.partition})
            self.leave_out_all(log, faults)
            is_found |= bool(faults)
        for log, _ in () if is_found else groups:
            self.leave_out(log, None, Fault.of(error, None))

    def count(self, log: LogFiles, chunk: RecordChunk, counts: LedgerCounts) -> None:
        """Add to the ledger of a topic."""
        done = self.done
        done.counts[log.topic] = done.counts.get(log.topic, LedgerCounts()) + counts
        self.reached_offset = None
        if log.bucket is None or log.bucket.is_first:
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

    def save(
        self,
        log: LogFiles,
        state: bytes,
        groups: Mapping[str, bytes] | None = None,
        unchanged: Mapping[str, int | None] | None = None,
    ) -> None:
        """Write the checkpoint of a log partition. `unchanged`: for groups whose state did not change, the run that
        last changed it."""
        bucket = 0 if log.bucket is None else log.bucket.number
        row = {"bucket": pa.array([bucket], pa.int32()), "state": pa.array([state], pa.binary())}
        self._save(log, Checkpoint.LOG, pa.table(row))
        if groups:
            changed: dict[str, int | None] = dict.fromkeys(groups, self._work.replay_version)
            changed |= unchanged or {}
            rows = {
                "group_id": list(groups),
                "state": pa.array(groups.values(), pa.binary()),
                "changed_version": pa.array(changed.values(), pa.int64()),
            }
            self._save(log, Checkpoint.GROUP, pa.table(rows))

    def _save(self, log: LogFiles, kind: Checkpoint, rows: pa.Table) -> None:
        values = {"cluster_id": self._work.cluster_id, "kind": kind, "log": log.name}
        written = write_part(self._work.targets[CHECKPOINTS.full_name], rows, "state", values)
        self.done.files.setdefault(CHECKPOINTS.full_name, []).append(written)


def _chunks(log: LogFiles, work: ReplayWork, parts: _Parts) -> Iterator[tuple[BronzeChunk, RecordChunk]]:
    """The decoded chunks of a log partition, or of one bucket. Records that cannot be replayed are left out and
    count as quarantined."""
    for bronze, chunk, left_out_count in _decoded(log, work):
        if left_out_count:
            left_out = LedgerCounts(record_count=left_out_count, quarantined_count=left_out_count)
            parts.done.counts[log.topic] = parts.done.counts.get(log.topic, LedgerCounts()) + left_out
        offsets = chunk.records.offset
        parts.reached_offset = int(offsets[0]) if len(offsets) else None
        yield bronze, chunk


def _decoded(log: LogFiles, work: ReplayWork) -> Iterator[tuple[BronzeChunk, RecordChunk, int]]:
    """The decoded chunks, with the number of records left out. The capture verified the CRCs."""
    if log.left_out.is_all:
        return
    left_out = log.left_out.keys
    for bronze in read_log(log.files, log.from_offset, log.to_offset):
        chunk = decode_chunk(
            bronze.data,
            bytes_max=work.batch_decompressed_bytes_max,
            chunk_bytes_max=CHUNK_DECOMPRESSED_BYTES_MAX,
            crc="skip",
        )
        if log.bucket is not None:
            chunk = log.bucket.own_records(chunk)
        count = 0
        if left_out:
            chunk, offsets = without_keys(chunk, left_out, is_share=log.topic == SHARE_TOPIC)
            count = len(offsets)
        yield bronze, chunk, count


def _replay_offsets(log: LogFiles, work: ReplayWork, parts: _Parts) -> None:
    saved, versions = (None, {}) if log.saved is None else log.saved.offsets_log(log.bucket)
    replayer = OffsetsLogReplay(saved, bucket=log.bucket)
    keys = GroupKeys()
    for bronze, chunk, loaded in _with_loads(log, work, parts):
        output = replayer.feed(chunk, loaded)
        if output.forgotten is not None:
            parts.write(OFFSET_COMMITS.full_name, commits_table(output.forgotten, log.partition))
        has_header = bronze.have_headers(output.commits.log_offset)
        parts.write(OFFSET_COMMITS.full_name, commits_table(output.commits, log.partition, has_header))
        parts.quarantine(log, bronze, output.findings)
        parts.count(log, chunk, output.counts)
        keys.add(output.commits, output.groups.generations)
        parts.add_groups(output.groups, log, is_settled=True)
    state = replayer.export_state()
    unchanged = {group_id: versions[group_id] for group_id in replayer.serialized}
    parts.save(log, pack_offset_state(state.columnar), state.groups, unchanged)
    output = replayer.finish()
    keys.add(output.commits, output.groups.generations)
    parts.done.keys.append(keys.table(log.partition))
    parts.write(OFFSET_COMMITS.full_name, commits_table(output.commits, log.partition), is_settled=False)
    parts.add_groups(output.groups, log, is_settled=False)
    parts.leave_out_all(log, replayer.faults)
    if replayer.serialized:
        parts.serialized[log.partition] = parts.serialized.get(log.partition, set()) | replayer.serialized


def _with_loads(
    log: LogFiles, work: ReplayWork, parts: _Parts
) -> Iterator[tuple[BronzeChunk, RecordChunk, Loaded | None]]:
    """The decoded chunks, cut where a leader loaded a log whose start had moved: that chunk comes with what was
    loaded."""
    loads = [load for load in log.loads if load.log_offset >= log.from_offset]
    starts = [log.from_offset, *(load.log_offset for load in loads)]
    ends = [*starts[1:], None]
    for load, from_offset, to_offset in zip([None, *loads], starts, ends, strict=True):
        for bronze, chunk in _chunks(replace(log, from_offset=from_offset, to_offset=to_offset), work, parts):
            yield bronze, chunk, None if load is None else _loaded(log, load, work, parts)
            load = None  # noqa: PLW2901  (the first chunk has it)


def _loaded(log: LogFiles, load: Load, work: ReplayWork, parts: _Parts) -> Loaded:
    """What a leader loads: all batches from the one with the log start offset up to its own first one."""
    start = batch_with(log.files, load.log_start_offset)
    replayer = OffsetsLogReplay(bucket=log.bucket)
    for _, chunk, _ in _decoded(replace(log, from_offset=start, to_offset=load.log_offset), work):
        replayer.feed(chunk)
    parts.leave_out_all(log, replayer.faults)
    return Loaded(load, start, replayer.groups)


def _group_tables(groups: Sequence[tuple[LogFiles, GroupRows]]) -> Iterator[tuple[Table, pa.Table]]:
    """Rows of the group tables."""
    together = GroupRows()
    for _, rows in groups:
        together.extend(rows)
    for table, rows_of in ROWS_OF_GROUPS.items():
        if made := rows_of(together):
            yield table, rows_table(table, made, {"log_partition": _log_partitions(groups, rows_of)})
    if together.assignments:
        partitions = _log_partitions(groups, attrgetter("assignments"))
        yield MEMBER_ASSIGNMENTS, assignments_table(together.assignments, partitions)


def _log_partitions(groups: Sequence[tuple[LogFiles, GroupRows]], rows_of: Callable[[GroupRows], Sized]) -> pa.Array:
    """The log partition of each row of one table."""
    partitions = np.array([log.partition for log, _ in groups], np.int32)
    return pa.array(np.repeat(partitions, [len(rows_of(rows)) for _, rows in groups]))


def _carry_serialized(work: ReplayWork, parts: _Parts) -> None:
    """Write the open rows of groups whose state stayed serialized again, as they were."""
    for table in INTERVAL_TABLES:
        write = partial(parts.write_named, table) if table in NAMED_TABLES else partial(parts.write, table.full_name)
        for rows in work.unsettled.iterate_some(table, file_schema(table).names, parts.serialized):
            is_serialized = is_of_groups(rows, parts.serialized)
            write(rows if is_serialized.all() else rows.filter(pa.array(is_serialized)), is_settled=False)


def _replay_share_state(log: LogFiles, work: ReplayWork, parts: _Parts) -> None:
    state = None
    if log.saved is not None:
        state = columnar_state_of([unpack_share_state(state) for state in log.saved.states()], log.bucket)
    columnar = parts.columnar_share = ColumnarShareReplay(state, after=parts.columnar_share)
    found = ShareStateKeys()

    def write(output: ColumnarOutput, *, is_settled: bool) -> None:
        found.add(output.keys, output.partition_states)
        keys = ShareKeys(output.keys, work.names)
        for table, rows in (
            (SHARE_PARTITION_STATES, share_states_table(output.partition_states, keys, log.partition)),
            (SHARE_STATE_BATCHES, share_batches_table(output.state_batches, keys, log.partition)),
            (SHARE_BATCH_TRANSITIONS, share_transitions_table(output.transitions, keys, log.partition)),
        ):
            parts.write(table.full_name, rows, is_settled=is_settled)

    for bronze, chunk in _chunks(log, work, parts):
        output = columnar.feed(chunk)
        write(output, is_settled=True)
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
                unknown_field_count=output.counts.unknown_field,
                quarantined_count=output.counts.quarantined + unreadable_record_count(chunk),
            ),
        )
    parts.save(log, pack_share_state(columnar.export_state()))
    output = columnar.finish()
    write(output, is_settled=False)
    parts.leave_out_all(log, columnar.faults)
    parts.done.keys.append(found.table(log.partition))
    parts.done.names_given.update((topic_id, work.names.get(topic_id)) for topic_id in output.keys.topic_ids)


def _replay_simple(log: LogFiles, work: ReplayWork, parts: _Parts) -> None:
    replayer: ClusterMetadataReplay | TransactionStateReplay = TransactionStateReplay()
    if log.topic == METADATA_TOPIC:
        replayer = ClusterMetadataReplay(None if log.saved is None else unpack_metadata(log.saved.state()))
    for bronze, chunk in _chunks(log, work, parts):
        output = replayer.feed(chunk)
        parts.quarantine(log, bronze, output.findings)
        parts.count(log, chunk, output.counts)
        parts.learn(output.topics)
        parts.done.deleted |= {item.topic_id: item.at for item in output.deleted}
        parts.done.configs.extend(output.configs)
        for made in output.partitions:
            place = made.topic_id, made.at
            counts = parts.done.partition_counts
            counts[place] = max(counts.get(place, 0), made.partition + 1)
    parts.save(log, pack_metadata(replayer.pending) if isinstance(replayer, ClusterMetadataReplay) else b"")


def _carry(carried: Carried, parts: _Parts) -> None:
    """Rewrite rows with the topic names known now."""
    named = carried.left_out if carried.only is None else carried.only
    partitions = {
        table.full_name: pa.array(sorted(named.get(topic, ())), pa.int32())
        for topic, tables in TABLES_OF_TOPIC.items()
        for table in tables
    }
    for name, is_settled, file in carried.files:
        table = TABLES[name]
        for rows in stored_rows(file, table):
            is_named = pc.is_in(rows["log_partition"], value_set=partitions[name])
            kept = rows.filter(pc.invert(is_named) if carried.only is None else is_named)
            if table in NAMED_TABLES:
                parts.write_named(table, kept, is_settled=is_settled)
            else:
                parts.write(name, kept, is_settled=is_settled)


ReplayLog = Callable[[LogFiles, ReplayWork, _Parts], None]

_REPLAY_LOG: Final[Mapping[str, ReplayLog]] = {
    OFFSETS_TOPIC: _replay_offsets,
    SHARE_TOPIC: _replay_share_state,
    METADATA_TOPIC: _replay_simple,
    TRANSACTION_TOPIC: _replay_simple,
}
