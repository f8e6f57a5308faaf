"""The input and the result of an audit task, and its part files."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import repeat
from types import TracebackType
from typing import Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.errors import StateUnreadable
from coordinator_core.inference.audit.log_anomalies import NOT_JUDGED, NOT_REPLAYED
from coordinator_core.inference.commits.deletions import Removed
from coordinator_core.inference.facts.life import PartitionCounts
from coordinator_core.inference.facts.log_facts import LEADERLESS_LOG, LogFacts
from coordinator_core.inference.facts.rows import ShareGroupDayRow
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.shares.share_days import ShareCounts
from coordinator_core.replay.key_buckets import KeyBucket
from coordinator_core.replay.lookup import SharePartitionKey
from jobs.delta.arrow_columns import codes_of, numbers_of
from jobs.delta.arrow_schemas import arrow_schema, file_schema, text_columns
from jobs.delta.core_tables import rows_table
from jobs.delta.part_files import LOG_PARTITION, PartTarget, PartWriter, WrittenFile
from jobs.delta.table_files import TableFile
from jobs.gold.group_tables import EVERY_PLACE, GROUP_TABLES
from jobs.gold.isolation import Lack
from jobs.silver.checkpoints import Watermark, watermark_row
from jobs.silver.reader import SilverFiles
from jobs.silver.row_groups import END_OF_LOG
from jobs.silver.rows import numbers_by_group
from schemas.tables.common import IS_FORMER_LOG_PARTITION
from schemas.tables.declare import Table
from schemas.tables.gold import ARCHIVED_RECORDS, LOG_ANOMALIES, REDELIVERIES, SHARE_OFFSET_CHANGES
from schemas.tables.state import AUDITED_LOGS

ROW_GROUP_ROWS_MIN: Final = 1 << 15
"""Many tables have few rows per log partition, and each row group has overhead, so rows of several log partitions
share one."""
NEVER_MS: Final = 2**62
"""Later than any timestamp."""
WAITING_ROWS_MAX: Final = 10_000
"""Turning rows into columns has overhead, so rows of several log partitions are converted together."""


@dataclass(frozen=True, slots=True)
class AuditWork:
    """Some log partitions of one coordinator topic."""

    cluster_id: str
    number: int
    topic: str
    log_partitions: tuple[int, ...]
    files: SilverFiles
    targets: Mapping[str, PartTarget]
    inference: InferenceSettings
    former: SilverFiles = field(default_factory=lambda: SilverFiles({}))
    """Gold and state.audited_logs as of the last audit."""
    going_on: frozenset[int] = frozenset()
    """Log partitions that are audited incrementally; the others are audited from their beginning."""
    resting: frozenset[int] = frozenset()
    """Log partitions without new records."""
    keeps_groups: bool = False
    """Groups without new records need not be audited."""
    next_offsets: Mapping[int, int] = field(default_factory=dict)
    """By log partition, the first offset that is not audited."""
    audited_version: int = -1
    """Number of the replay whose silver the last audit used."""
    group_files: Mapping[int, tuple[TableFile, ...]] = field(default_factory=dict)
    """By log partition, the files with the state of groups."""

    removed_since_ms: int = NEVER_MS
    """The least time of the removals of topics that the metadata log shows since the last audit."""
    logs: Mapping[int, LogFacts] = field(default_factory=dict)
    """By log partition, what is known of it."""
    finds_clock_steps: bool = True
    """Find the clock steps in `batch_files`; False: `logs` has them, and they are recorded elsewhere."""
    shortened: frozenset[int] = frozenset()
    """Log partitions of which retention deleted batches from bronze."""
    removed_topics: Removed | None = None
    """By topic, the times (ms) of its removals, where they are known; None: find them in `files`."""
    topic_growth: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """By topic, the times (ms) at which its partition count grew."""
    partition_counts: PartitionCounts = field(default_factory=dict)
    batch_files: Mapping[int, tuple[TableFile, ...]] = field(default_factory=dict)
    """By log partition, bronze's files."""
    places: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Groups with records in several log partitions, and the log partition that Kafka uses for each."""
    watermarks: Mapping[int, Watermark] = field(default_factory=dict)
    """By log partition, how far silver has replayed it."""
    not_replayed: Mapping[int, frozenset[str] | None] = field(default_factory=dict)
    """By log partition, the groups of which silver lacks something, so that they are not judged; None: all groups."""
    bucket: KeyBucket | None = None
    """The groups of the one log partition that this task audits; None: all groups of all log partitions."""

    @property
    def is_first(self) -> bool:
        """Does this task report what belongs to no group?"""
        return self.bucket is None or self.bucket.is_first

    def log(self, log_partition: int) -> LogFacts:
        """What is known of a log partition."""
        return self.logs.get(log_partition, LEADERLESS_LOG)

    def judged_of(self, log_partition: int, group_ids: Iterable[str]) -> frozenset[str]:
        """The groups of which silver lacks nothing."""
        left_out = self.not_replayed.get(log_partition, frozenset())
        return frozenset() if left_out is None else frozenset(group_ids) - left_out

    def saved(self, log_partition: int) -> bytes | None:
        """The state that the last audit kept of a log partition that one task audited; None: audit it from its
        beginning.
        """
        states = self.all_saved(log_partition)
        if states is None:
            return None
        if len(states) != 1:
            raise StateUnreadable(f"{len(states)} states of {self.topic}-{log_partition}")
        return states[0]

    def all_saved(self, log_partition: int) -> list[bytes] | None:
        """The states that all tasks of the last audit kept of a log partition; None: audit it from its beginning."""
        if log_partition not in self.going_on:
            return None
        states: list[bytes] = [
            state
            for rows in self.former.iterate(AUDITED_LOGS, ("topic", "state"), log_partition)
            for topic, state in zip(rows["topic"].to_pylist(), rows["state"].to_pylist(), strict=True)
            if topic == self.topic
        ]
        if not states:
            raise StateUnreadable(f"no state of {self.topic}-{log_partition}")
        return states


@dataclass(slots=True)
class AuditDone:
    """The result of one task.

    `days` and `share_counts`: the parts of gold.share_group_summary that each coordinator topic has.
    """

    files: dict[str, list[WrittenFile]] = field(default_factory=dict)
    days: list[ShareGroupDayRow] = field(default_factory=list)
    share_counts: list[ShareCounts] = field(default_factory=list)
    has_differing: bool = False
    """Settled rows would differ: all log partitions of this topic must be audited from their beginning, and this
    result is dropped."""
    topic: str = ""
    lacks: list[Lack] = field(default_factory=list)
    """Inputs that were missing for all of it."""
    read_together: set[str] = field(default_factory=set)
    """Topics that a subtopology of a streams group reads with others."""


class AuditParts:
    """The part files of one task, opened when first needed."""

    def __init__(self, work: AuditWork) -> None:
        self._work = work
        self._writers: dict[tuple[str, bool], PartWriter] = {}
        self._waiting: dict[Table, list[tuple[NamedTuple, int]]] = {}
        """Rows of the core that are not written yet, with the log partition of each."""
        self._stack = ExitStack()
        self.done = AuditDone(topic=work.topic)
        self.row_count = 0
        """Number of rows written or waiting."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            for table in list(self._waiting):
                self._write_waiting(table)
        self._stack.__exit__(kind, error, trace)
        if error is None:
            for (name, _), writer in self._writers.items():
                self.done.files.setdefault(name, []).append(writer.close())

    def write_rows(self, table: Table, rows: Sequence[NamedTuple], log_partition: int) -> None:
        """Append rows of the core to the part file of a gold table, possibly later."""
        self.row_count += len(rows)
        waiting = self._waiting.setdefault(table, [])
        waiting += zip(rows, repeat(log_partition))
        if len(waiting) >= WAITING_ROWS_MAX:
            self._write_waiting(table)

    def _write_waiting(self, table: Table) -> None:
        waiting = self._waiting.pop(table, [])
        if waiting:
            rows, log_partitions = zip(*waiting, strict=True)
            self.write(table, _rows_table(table, rows, log_partitions))

    def write(self, table: Table, rows: pa.Table, *, is_settled: bool = True) -> None:
        """Append rows, without partition columns, to the part file of a gold table."""
        if not rows.num_rows:
            return
        self.row_count += rows.num_rows
        self._write_waiting(table)
        writer = self._writers.get((table.full_name, is_settled))
        if writer is None:
            target = self._work.targets[table.full_name]
            values = {"cluster_id": self._work.cluster_id, "is_settled": is_settled}
            kept = {column: values[column] for column in table.partition_by}
            name = f"part-{self._work.number:05d}"
            # states are read one by one
            rows_min = 0 if table is AUDITED_LOGS else ROW_GROUP_ROWS_MIN
            part = PartWriter(target, name, kept, row_group_rows_min=rows_min)
            writer = self._writers[table.full_name, is_settled] = self._stack.enter_context(part)
        writer.write(_coded(with_former_log_partitions(table, rows, self._work.places.get(self._work.topic, {}))))

    def keep(self, log_partition: int, state: bytes) -> None:
        """Write the state of a log partition for the next audit."""
        topic, watermark = self._work.topic, self._work.watermarks.get(log_partition, Watermark(0, ()))
        bucket = 0 if self._work.bucket is None else self._work.bucket.number
        row = watermark_row(watermark) | {"topic": topic, "log_partition": log_partition, "bucket": bucket}
        row |= {"state": state}
        self.write(AUDITED_LOGS, pa.Table.from_pylist([row], schema=arrow_schema(AUDITED_LOGS)))

    def carry(self, table: Table, rebuilt: Mapping[int, Mapping[str, int]]) -> None:
        """Write the last audit's rows of some log partitions.

        `rebuilt`: by log partition, groups whose rows were rebuilt, with the position after which they were; only rows
        up to that position (`GroupTable.places`) are written. NO_PLACE: none.
        """
        columns = file_schema(table).names
        texts = text_columns(table, columns)
        former = self._work.former.iterate_some(table, columns, rebuilt, texts) if rebuilt else ()
        for rows in map(self._own, former):
            kept = rows
            if any(rebuilt.values()):
                is_kept = GROUP_TABLES[table].places(rows) <= numbers_by_group(rows, rebuilt, EVERY_PLACE)
                kept = rows if is_kept.all() else rows.filter(pa.array(is_kept))
            self.write(table, kept)

    def carry_log_anomalies(
        self, log_partition: int, to_log_offset: int = END_OF_LOG, left_out: Set[str] = frozenset()
    ) -> None:
        """Write the last audit's rows of gold.log_anomalies, for records before a log offset."""
        for rows in self.former_log_anomalies(log_partition, left_out):
            is_kept = pc.and_(pc.equal(rows["log_topic"], self._work.topic), pc.less(rows["log_offset"], to_log_offset))
            # a group that could not be judged is judged again in each audit
            not_judged = pc.is_in(rows["rule"], value_set=pa.array([NOT_JUDGED, NOT_REPLAYED]))
            is_kept = pc.and_(is_kept, pc.invert(not_judged))
            self.write(LOG_ANOMALIES, rows.filter(is_kept))

    def former(self, table: Table, log_partition: int) -> pa.Table:
        """The last audit's rows of a log partition, without partition columns; strings as they are stored."""
        columns = file_schema(table).names
        return self._own(self._work.former.read(table, columns, log_partition, text_columns(table, columns)))

    def former_log_anomalies(
        self, log_partition: int, left_out: Set[str] = frozenset(), *, of_all_tasks: bool = False
    ) -> Iterator[pa.Table]:
        """The last audit's rows of a log partition, row group by row group, without those of some groups.

        `of_all_tasks`: include groups of other tasks.
        """
        others = pa.array(sorted(left_out), pa.string())
        former = self._work.former.iterate(LOG_ANOMALIES, file_schema(LOG_ANOMALIES).names, log_partition)
        for rows in former if of_all_tasks else map(self._own, former):
            yield rows.filter(pc.invert(pc.is_in(rows["group_id"], value_set=others))) if left_out else rows

    def _own(self, rows: pa.Table) -> pa.Table:
        """Only the rows of this task's groups; rows without a group belong to the first task."""
        bucket = self._work.bucket
        if bucket is None or not rows.num_rows:
            return rows
        group, group_ids = codes_of(rows["group_id"])
        return rows.filter(pa.array(np.append(bucket.has_groups(group_ids), bucket.is_first)[group]))


class TrialParts(AuditParts):
    """A dry run: makes the rows of gold, but writes none."""

    def write_rows(self, table: Table, rows: Sequence[NamedTuple], log_partition: int) -> None:
        """Only convert the rows to columns."""
        if rows:
            self.write(table, _rows_table(table, rows, [log_partition] * len(rows)))

    def write(self, table: Table, rows: pa.Table, *, is_settled: bool = True) -> None:
        """Only make the columns of a file."""
        _coded(rows)


def _rows_table(table: Table, rows: Sequence[NamedTuple], log_partitions: Sequence[int]) -> pa.Table:
    """Convert rows of the core. `is_former_log_partition` is set when they are written."""
    constants = {LOG_PARTITION: pa.array(log_partitions, pa.int32()), IS_FORMER_LOG_PARTITION.name: False}
    return rows_table(table, rows, constants)


def with_former_log_partitions(table: Table, rows: pa.Table, places: Mapping[str, int]) -> pa.Table:
    """Set `is_former_log_partition`: is the group now in another log partition (`places`)?

    Also for rows of the last audit.
    """
    name = IS_FORMER_LOG_PARTITION.name
    if name not in table.column_names:
        return rows
    is_former = np.zeros(rows.num_rows, np.bool_)
    if places:
        now = _log_partitions_now(table, rows, places)
        is_former = (now != NOWHERE) & (now != numbers_of(rows[LOG_PARTITION]))
    return rows.set_column(rows.schema.get_field_index(name), name, pa.array(is_former))


def _log_partitions_now(table: Table, rows: pa.Table, places: Mapping[str, int]) -> I64:
    """The log partition that Kafka uses for the group or share partition of each row; NOWHERE where it never
    changed."""
    group, group_ids = codes_of(rows["group_id"])
    if table not in (REDELIVERIES, ARCHIVED_RECORDS, SHARE_OFFSET_CHANGES):
        return np.array([places.get(group_id, NOWHERE) for group_id in group_ids], np.int64)[group]
    topic, topic_ids = codes_of(rows["topic_id"])
    partition = numbers_of(rows["partition"])
    keys = np.stack([group, topic, partition])
    distinct, row_of = np.unique(keys, axis=1, return_inverse=True)
    now = [
        places.get(SharePartitionKey(group_ids[of], topic_ids[at], number).as_coordinator_key(), NOWHERE)
        for of, at, number in distinct.T.tolist()
    ]
    return np.array(now, np.int64)[row_of.reshape(-1)]


NOWHERE: Final = -1


def _coded(rows: pa.Table) -> pa.Table:
    """Dictionary-encode strings: rows of the last audit are read so, and a file has one type per column."""
    for index, column in enumerate(rows.schema):
        if pa.types.is_string(column.type):
            rows = rows.set_column(index, column.name, rows[column.name].dictionary_encode())
    return rows
