"""The input and the result of an audit task, and its part files."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
from coordinator_core.inference.audit.log_anomalies import LogAnomalyRow
from coordinator_core.inference.commits.deletions import Removed
from coordinator_core.inference.facts.life import PartitionCounts
from coordinator_core.inference.facts.log_facts import LEADERLESS_LOG, LogFacts
from coordinator_core.inference.facts.rows import ShareGroupDayRow
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.shares.share_days import ShareCounts
from coordinator_core.replay.key_buckets import KeyBucket
from coordinator_core.replay.lookup import SharePartitionKey
from jobs.delta.arrow_columns import codes_of, columns_read, numbers_of
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.core_tables import constant, rows_table
from jobs.delta.part_files import LOG_PARTITION, PartTarget, PartWriter, WrittenFile, write_parts
from jobs.delta.table_files import TableFile, read_file
from jobs.gold.days import FormerDays
from jobs.gold.former_rows import Outdated
from jobs.gold.group_tables import GROUP_TABLES, NO_PLACE
from jobs.gold.isolation import Lack
from jobs.silver.checkpoints import Watermark, watermark_row
from jobs.silver.reader import SilverFiles
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.tables.common import IS_FORMER_LOG_PARTITION
from schemas.tables.declare import Table
from schemas.tables.gold import (
    ARCHIVED_RECORDS,
    GROUP_SUMMARY,
    LOG_ANOMALIES,
    REDELIVERIES,
    SHARE_OFFSET_CHANGES,
)
from schemas.tables.state import AUDITED_LOGS

BUFFERED_BYTES_MAX: Final = 96 << 20
"""Rows that a task keeps before it writes those of the largest table: a file of each day has all rows of the task if
they fit."""
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
    lags_since_ms: int = NEVER_MS
    """From when on the lag of commits may be another one than the last audit found."""
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
    """By coordinator topic: groups with records in several log partitions, and the log partition that Kafka uses for
    each."""
    has_moved_groups: bool = False
    """Is `places` another one than the last audit had?"""
    watermarks: Mapping[int, Watermark] = field(default_factory=dict)
    """By log partition, how far silver has replayed it."""
    not_replayed: Mapping[int, frozenset[str] | None] = field(default_factory=dict)
    """By log partition, the groups of which silver lacks something, so that they are not judged; None: all groups."""
    bucket: KeyBucket | None = None
    """The groups of the one log partition that this task audits; None: all groups of all log partitions."""
    by_group: frozenset[int] = frozenset()
    """Log partitions that are audited group by group, where that is not done anyway: an attempt failed for many groups
    at once."""
    left_out: Mapping[int, LogAnomalyRow] = field(default_factory=dict)
    """Log partitions that cannot be audited, and what gold.log_anomalies says of each."""

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
    outdated: dict[str, list[Outdated]] = field(default_factory=dict)
    """By table: rows of the last audit that are no longer true."""


class AuditParts:
    """The rows that one task makes. Files are written at the end, or earlier where there are many rows."""

    def __init__(self, work: AuditWork) -> None:
        self._work = work
        self._waiting: dict[Table, list[tuple[NamedTuple, int]]] = {}
        """Rows of the core that are not columns yet, with the log partition of each."""
        self._buffered: dict[Table, list[pa.Table]] = {}
        self._buffered_bytes: Counter[Table] = Counter()
        self._states: PartWriter | None = None
        self._former_log_anomalies: pa.Table | None = None
        self._former_days: FormerDays | None = None
        self._stack = ExitStack()
        self.done = AuditDone(topic=work.topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.make_columns()
            for table in list(self._buffered):
                self._write_buffered(table)
        self._stack.__exit__(kind, error, trace)
        if error is None and self._states is not None:
            self.done.files[AUDITED_LOGS.full_name] = [self._states.close()]

    def write_rows(self, table: Table, rows: Sequence[NamedTuple], log_partition: int) -> None:
        """Append rows of the core to a gold table, possibly later."""
        waiting = self._waiting.setdefault(table, [])
        waiting += zip(rows, repeat(log_partition))
        if len(waiting) >= WAITING_ROWS_MAX:
            self._write_waiting(table)

    def make_columns(self) -> None:
        """Make columns of all rows that wait for that."""
        for table in list(self._waiting):
            self._write_waiting(table)

    def leave_out(self, log_partition: int, why: LogAnomalyRow) -> None:
        """Leave no rows of a log partition, and say why."""
        self.remove_all(log_partition, *(GROUP_TABLES if self._work.topic == OFFSETS_TOPIC else ()), LOG_ANOMALIES)
        self.done.lacks.append(Lack(self._work.topic, why))

    def _write_waiting(self, table: Table) -> None:
        waiting = self._waiting.pop(table, [])
        if waiting:
            rows, log_partitions = zip(*waiting, strict=True)
            self.write(table, _rows_table(table, rows, log_partitions))

    def write(self, table: Table, rows: pa.Table, *, is_settled: bool = True) -> None:
        """Append rows to a gold table, without the columns that are one for all: `made_schema`."""
        if not rows.num_rows:
            return
        self._write_waiting(table)
        rows = _coded(with_former_log_partitions(table, rows, self._work.places.get(self._work.topic, {})))
        for name, value in (("cluster_id", self._work.cluster_id), ("is_settled", is_settled)):
            if name in table.partition_by:
                kind = arrow_schema(table).field(name).type
                rows = rows.append_column(name, constant(value, kind, rows.num_rows))
        self._buffered.setdefault(table, []).append(rows)
        self._buffered_bytes[table] += rows.nbytes
        if self._buffered_bytes.total() > BUFFERED_BYTES_MAX:
            self._write_buffered(self._buffered_bytes.most_common(1)[0][0])

    def _write_buffered(self, table: Table) -> None:
        del self._buffered_bytes[table]
        rows = pa.concat_tables(self._buffered.pop(table)).unify_dictionaries()
        written = write_parts(self._work.targets[table.full_name], rows, f"part-{self._work.number:05d}")
        self.done.files.setdefault(table.full_name, []).extend(written)

    def keep(self, log_partition: int, state: bytes) -> None:
        """Write the state of a log partition for the next audit."""
        topic, watermark = self._work.topic, self._work.watermarks.get(log_partition, Watermark(0, ()))
        bucket = 0 if self._work.bucket is None else self._work.bucket.number
        row = watermark_row(watermark) | {"topic": topic, "log_partition": log_partition, "bucket": bucket}
        row |= {"state": state}
        if self._states is None:
            target, values = self._work.targets[AUDITED_LOGS.full_name], {"cluster_id": self._work.cluster_id}
            part = PartWriter(target, f"part-{self._work.number:05d}", values)
            self._states = self._stack.enter_context(part)
        # a row group each: states are read one by one
        self._states.write(_coded(pa.Table.from_pylist([row], schema=arrow_schema(AUDITED_LOGS))))

    def remove(self, table: Table, outdated: Outdated) -> None:
        """Remove rows that the last audit wrote."""
        self.done.outdated.setdefault(table.full_name, []).append(outdated)

    def remove_all(self, log_partition: int, *tables: Table) -> None:
        """Remove all rows of a log partition that the last audit wrote."""
        for table in tables:
            self.remove(table, Outdated(self._work.topic, log_partition, after=NO_PLACE))

    def former_log_anomalies(self) -> pa.Table:
        """The last audit's rows of the task's log partitions, of all groups."""
        if self._former_log_anomalies is None:
            columns = ("log_topic", LOG_PARTITION, "rule", "log_offset", "at", "details")
            parts = [read_file(file, LOG_ANOMALIES, columns) for file in self._work.former.files(LOG_ANOMALIES)]
            rows = pa.concat_tables([columns_read(LOG_ANOMALIES, columns).empty_table(), *parts])
            own = pa.array(self._work.log_partitions, pa.int32())
            self._former_log_anomalies = rows.filter(pc.is_in(rows[LOG_PARTITION], own))
        return self._former_log_anomalies

    def former_days(self) -> FormerDays:
        """The days of groups, as the last audit wrote them."""
        if self._former_days is None:
            self._former_days = FormerDays(self._work.former.files(GROUP_SUMMARY), self._work.log_partitions)
        return self._former_days


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
