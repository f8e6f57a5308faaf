"""Grouped functions of the replay, which run in workers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from coordinator_core.bytes.log.chunk import BoolArray, Finding
from coordinator_core.history.checkpoint import unpack_group
from coordinator_core.history.intervals import Intervals
from coordinator_core.history.log_checkpoint import pack_offset_state, pack_share_state
from coordinator_core.history.offsets_log import OffsetsLogOutput, OffsetsLogReplay, OffsetsLogState
from coordinator_core.history.rows import EventRow, GenerationRow, GroupRows
from coordinator_core.inference.audit.log_anomalies import NOT_REPLAYED
from coordinator_core.replay.columnar.offsets_columnar import (
    OUTCOMES,
    ColumnarOffsetReplay,
    ColumnarState,
    CommitColumns,
)
from coordinator_core.replay.columnar.share_state_columnar import ColumnarOutput, ColumnarShareReplay
from coordinator_core.replay.offsets.replay import NO_PRODUCER_ID
from groupledger.chunks import KeyChunk, chunk_of, cut, key_rows
from groupledger.key_state import AT_START, KEY_STATES, Begin, KeyState, LogPlace, begun, state_row
from groupledger.records import batch_findings
from groupledger.sparks import ROWS_MAX, Batches
from jobs.delta.arrow_columns import columns_read
from jobs.delta.arrow_schemas import arrow_schema
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
)
from jobs.silver.replay_failures import Fault
from jobs.silver.tasks import NOT_ISOLATED, TABLES_OF_TOPIC
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.tables.bronze import QUARANTINE
from schemas.tables.declare import Table
from schemas.tables.silver import (
    MEMBER_ASSIGNMENTS,
    OFFSET_COMMITS,
    SHARE_BATCH_TRANSITIONS,
    SHARE_PARTITION_STATES,
    SHARE_STATE_BATCHES,
    TOPICS,
)

UNDECIDED: Final = "UNDECIDED"
"""Outcome of a transactional commit where the records have no markers."""


Made = Iterator[tuple[Table, pa.Table]]
"""Rows of tables."""


class ReplayKey(Protocol):
    """From the records of one key, rows of tables."""

    def __call__(self, batches: Batches, begin: Begin = AT_START, /) -> Made: ...


def declared_function(
    replay: ReplayKey, later_logs: Set[LogPlace] = frozenset(), cluster_id: str | None = None
) -> Callable[[Batches], Made]:
    """For `for_each_key`: the rows of one key with the columns of `made_schema`. `later_logs`: as for `begun`;
    `cluster_id`: of records that name none."""

    def apply(batches: Batches) -> Made:
        begin, records = begun(batches, later_logs)
        try:
            for table, rows in replay(records, begin):
                if rows.num_rows:
                    columns = dict(zip(rows.column_names, rows.columns, strict=True))
                    cluster = pa.scalar(cluster_id if begin.cluster_id is None else begin.cluster_id, pa.string())
                    columns["cluster_id"] = pa.repeat(cluster, rows.num_rows)
                    schema = made_schema(table)
                    arrays = [_cast(columns[field.name], field.type) for field in schema]
                    yield table, pa.Table.from_arrays(arrays, schema=schema)
        except NOT_ISOLATED:
            raise
        except Exception:
            pass  # a bug with one key must not affect the rows of others: `errors` reports it

    return apply


def columns_made(table: Table) -> tuple[str, ...]:
    """The columns of a table that a worker knows."""
    left_out = _NOT_MADE.get(table, ())
    return tuple(name for name in table.column_names if name not in left_out)


@cache
def made_schema(table: Table) -> pa.Schema:
    """Arrow's schema of `columns_made`."""
    return columns_read(table, columns_made(table))


_NOT_MADE: Final = {
    TOPICS: ("valid_to",),
    KEY_STATES: ("log_topic", "log_first_offset", "log_last_offset", "log_ranges", "state_format"),
}


def arrow_function(
    replay: ReplayKey, later_logs: Set[LogPlace] = frozenset(), cluster_id: str | None = None
) -> Callable[[Batches], Batches]:
    """As `declared_function`, of one table, for Spark."""
    declared = declared_function(replay, later_logs, cluster_id)

    def apply(batches: Batches) -> Batches:
        for _, rows in declared(batches):
            yield from rows.to_batches(max_chunksize=ROWS_MAX)

    return apply


def pandas_function(
    replay: ReplayKey,
    table: Table,
    given: pa.Schema,
    later_logs: Set[LogPlace] = frozenset(),
    cluster_id: str | None = None,
) -> Callable[[Any], Any]:
    """For applyInPandas: as `arrow_function`, for records with the columns of `given`, or their texts."""
    function = arrow_function(replay, later_logs, cluster_id)

    def apply(rows: Any) -> Any:
        arrays = [pa.Array.from_pandas(rows[field.name]).cast(field.type) for field in given]
        batches = pa.Table.from_arrays(arrays, schema=given).to_batches()
        made = pa.Table.from_batches(function(iter(batches)), schema=made_schema(table))
        pandas = import_module("pandas")  # not a dependency: callers who use this have it
        nullable = {
            pa.int64(): pandas.Int64Dtype(),
            pa.int32(): pandas.Int32Dtype(),
            pa.int8(): pandas.Int8Dtype(),
            pa.bool_(): pandas.BooleanDtype(),
        }
        return made.to_pandas(types_mapper=nullable.get, maps_as_pydicts="strict")

    return apply


def _cast(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    # a cast without effect still takes time, for each column of each key
    return column if column.type == type_ else column.cast(type_)


def _settled(rows: pa.Table, is_settled: bool | Sequence[bool] | BoolArray) -> pa.Table:
    flags = np.full(rows.num_rows, is_settled) if isinstance(is_settled, bool) else is_settled
    return rows.append_column("is_settled", pa.array(flags, pa.bool_()))


@dataclass(frozen=True, slots=True)
class ReplayCommits:
    """Commits of one group, without its history."""

    has_markers: bool

    def __call__(self, batches: Batches, begin: Begin = AT_START, /) -> Made:
        saved, chunk = begin.offsets_log, None
        columnar = ColumnarOffsetReplay(None if saved is None else saved.columnar)
        past = Past(begin, saved)
        for chunk in map(chunk_of, key_rows(batches, keeps_operations=False)):
            commits = columnar.feed(chunk.records).commits
            columnar.faults.raise_first()
            yield OFFSET_COMMITS, _decided(commits, chunk, past, has_markers=self.has_markers)
        if chunk is not None:
            yield OFFSET_COMMITS, _open(columnar.finish(), chunk, has_markers=self.has_markers)


def _decided(commits: CommitColumns, chunk: KeyChunk, past: "Past", *, has_markers: bool) -> pa.Table:
    """Rows of commits that a chunk decided."""
    doubtful = past.doubtful(commits)
    commits = replace(commits, change=np.where(doubtful & commits.is_value, np.int8(-1), commits.change))
    rows = commits_table(commits, chunk.log_partition, chunk.are_known(commits.log_offset))
    return _settled(_undecided(commits, rows, has_markers=has_markers), ~doubtful)


def _open(commits: CommitColumns, chunk: KeyChunk, *, has_markers: bool) -> pa.Table:
    """Rows of commits that nothing decided."""
    return _settled(_undecided(commits, commits_table(commits, chunk.log_partition), has_markers=has_markers), False)


def _undecided(commits: CommitColumns, rows: pa.Table, *, has_markers: bool) -> pa.Table:
    """Without markers the outcome of a transaction is unknown, even if the same producer commits again."""
    if has_markers or not len(commits):
        return rows
    is_open = (commits.producer_id != NO_PRODUCER_ID) & commits.is_value
    is_open &= commits.outcome != OUTCOMES.index("APPLIED")
    if not is_open.any():
        return rows
    outcome = pc.if_else(pa.array(is_open), UNDECIDED, rows["outcome"].cast(pa.string()))
    return rows.set_column(rows.column_names.index("outcome"), "outcome", outcome)


class Past:
    """What is known of the past of a group whose earlier records were not read."""

    def __init__(self, begin: Begin, saved: OffsetsLogState | None) -> None:
        self._is_known = begin.knows_past
        self._seen: set[tuple[int, int]] = set()
        """Topics and partitions of which a record took effect: their offset in force is known from there on."""
        self._was_seen = False
        """The group existed in records that were read."""
        if saved is not None and not begin.knows_past:
            keys = saved.columnar.key_arrays
            rows = np.flatnonzero(keys.has_offset | (keys.record_offset > 0))
            self._seen.update(zip(keys.topic[rows].tolist(), keys.partition[rows].tolist(), strict=True))
            groups = (unpack_group(group).intervals for group in saved.groups.values())
            self._was_seen = any(it is not None and it.incarnation >= 0 for it in groups)

    def doubtful(self, commits: CommitColumns) -> BoolArray:
        """Commits and tombstones that take effect where the offset in force before is not known."""
        found = np.zeros(len(commits), np.bool_)
        if self._is_known:
            return found
        rows = np.flatnonzero(commits.applied_valid & ~commits.previous_offset_valid)
        for row in rows[np.argsort(commits.applied_log_offset[rows], kind="stable")].tolist():
            place = int(commits.topic[row]), int(commits.partition[row])
            found[row] = place not in self._seen
            self._seen.add(place)
        return found

    def noted(self, columnar: ColumnarState) -> ColumnarState:
        """The state in which deleted offsets have a record, too."""
        keys = columnar.key_arrays
        places = zip(keys.topic.tolist(), keys.partition.tolist(), strict=True)
        is_seen = np.fromiter((place in self._seen for place in places), np.bool_, len(keys.topic))
        return replace(columnar, key_arrays=keys._replace(record_offset=np.maximum(keys.record_offset, is_seen)))

    def note(self, rows: GroupRows) -> None:
        """Say of the first generation, and of the group's creation, that there may have been others before."""
        if self._is_known:
            return
        for index, row in enumerate(rows.generations):
            if is_doubtful(row):
                rows.generations[index] = row._replace(is_contiguous=False)
        for index, event in enumerate(rows.events):
            if event.event_type == "GROUP_CREATED" and not self._was_seen:
                rows.events[index] = event._replace(details={**event.details, "first_seen": _NOT_READ})
                self._was_seen = True


def is_doubtful(row: NamedTuple) -> bool:
    """Could an earlier record change a row of a group of which the past is not known?"""
    if isinstance(row, EventRow):
        return row.details.get("first_seen") == _NOT_READ
    return isinstance(row, GenerationRow) and row.incarnation == 0 and row.previous_generation is None


_NOT_READ: Final = "earlier records were not read"


class _Replay(ABC):
    """The replay of one key, chunk by chunk: rows of some tables, and of others that cost nothing."""

    def __init__(self, begin: Begin, tables: Set[Table], *, has_markers: bool) -> None:
        self._begin = begin
        self._tables = tables
        self._has_markers = has_markers

    @abstractmethod
    def feed(self, chunk: KeyChunk) -> Made:
        """Rows that a chunk decided or closed."""

    @abstractmethod
    def finish(self, chunk: KeyChunk) -> Made:
        """Rows that are open. `chunk`: the last one."""

    @abstractmethod
    def state(self, made: KeyState) -> KeyState:
        """The state after the chunks so far."""


class _GroupReplay(_Replay):
    def __init__(self, begin: Begin, tables: Set[Table], *, has_markers: bool) -> None:
        super().__init__(begin, tables, has_markers=has_markers)
        self._saved = begin.offsets_log
        self._replay, self._past = OffsetsLogReplay(self._saved), Past(begin, self._saved)

    def feed(self, chunk: KeyChunk) -> Made:
        output = self._replay.feed(chunk.records)
        self._replay.faults.raise_first()
        if OFFSET_COMMITS in self._tables:
            yield OFFSET_COMMITS, _decided(output.commits, chunk, self._past, has_markers=self._has_markers)
        else:
            self._past.doubtful(output.commits)
        yield from self._rows(chunk, output, is_settled=True)

    def finish(self, chunk: KeyChunk) -> Made:
        output = self._replay.finish()
        self._replay.faults.raise_first()
        for group_id, state in () if self._saved is None else self._saved.groups.items():
            if group_id in self._replay.serialized:  # it has new records of offsets alone
                found = unpack_group(state)
                if found.group is not None and found.intervals is not None:
                    Intervals(group_id, found.intervals, output.groups).close_all(found.group, None, None)
        if OFFSET_COMMITS in self._tables:
            yield OFFSET_COMMITS, _open(output.commits, chunk, has_markers=self._has_markers)
        yield from self._rows(chunk, output, is_settled=False)

    def _rows(self, chunk: KeyChunk, output: OffsetsLogOutput, *, is_settled: bool) -> Made:
        self._past.note(output.groups)
        if MEMBER_ASSIGNMENTS in self._tables and output.groups.assignments:
            made = assignments_table(output.groups.assignments, chunk.log_partition)
            yield MEMBER_ASSIGNMENTS, _settled(made, is_settled)
        for table, rows_of in ROWS_OF_GROUPS.items():
            if table in self._tables and (rows := rows_of(output.groups)):
                made = rows_table(table, rows, {"log_partition": chunk.log_partition})
                knows_past = self._begin.knows_past
                yield table, _settled(made, is_settled and (knows_past or [not is_doubtful(row) for row in rows]))
        if TOPICS in self._tables and output.groups.topics:
            yield TOPICS, rows_table(TOPICS, [_Learned(*name) for name in output.groups.topics], {"valid_to": None})
        if output.findings:
            yield QUARANTINE, _quarantine(output.findings, OFFSETS_TOPIC, chunk.log_partition)

    def state(self, made: KeyState) -> KeyState:
        exported = self._replay.export_state()
        columnar = self._past.noted(exported.columnar)
        producers = {*made.open_producers, *columnar.carried.producer_id.tolist()}
        return structs.replace(
            made, replay=pack_offset_state(columnar), groups=dict(exported.groups), open_producers=sorted(producers)
        )


class _Learned(NamedTuple):
    """A name of a topic id, in columns of silver.topics."""

    topic_id: str
    topic: str
    valid_from: int
    learned_from: str


ROWS_OF_SHARE_STATE: Final[Mapping[Table, Callable[[ColumnarOutput, ShareKeys, int], pa.Table]]] = {
    SHARE_PARTITION_STATES: lambda output, keys, partition: share_states_table(
        output.partition_states, keys, partition
    ),
    SHARE_STATE_BATCHES: lambda output, keys, partition: share_batches_table(output.state_batches, keys, partition),
    SHARE_BATCH_TRANSITIONS: lambda output, keys, partition: share_transitions_table(
        output.transitions, keys, partition
    ),
}


class _ShareReplay(_Replay):
    def __init__(self, begin: Begin, tables: Set[Table], *, has_markers: bool) -> None:
        super().__init__(begin, tables, has_markers=has_markers)
        self._replay = ColumnarShareReplay(begin.share_state)

    def feed(self, chunk: KeyChunk) -> Made:
        output = self._replay.feed(chunk.records)
        self._replay.faults.raise_first()
        yield from self._rows(chunk, output, is_settled=True)

    def finish(self, chunk: KeyChunk) -> Made:
        yield from self._rows(chunk, self._replay.finish(), is_settled=False)

    def _rows(self, chunk: KeyChunk, output: ColumnarOutput, *, is_settled: bool) -> Made:
        for table, rows_of in ROWS_OF_SHARE_STATE.items():
            if table in self._tables:
                yield table, _settled(rows_of(output, ShareKeys(output.keys, {}), chunk.log_partition), is_settled)
        if output.findings:
            yield QUARANTINE, _quarantine(output.findings, SHARE_TOPIC, chunk.log_partition)

    def state(self, made: KeyState) -> KeyState:
        return structs.replace(made, replay=pack_share_state(self._replay.export_state()))


_REPLAYS: Final = {OFFSETS_TOPIC: _GroupReplay, SHARE_TOPIC: _ShareReplay}
MADE_OF: Final[Mapping[str, frozenset[Table]]] = {
    OFFSETS_TOPIC: frozenset((*TABLES_OF_TOPIC[OFFSETS_TOPIC], TOPICS, QUARANTINE, KEY_STATES)),
    SHARE_TOPIC: frozenset((*TABLES_OF_TOPIC[SHARE_TOPIC], QUARANTINE, KEY_STATES)),
}
"""By internal topic, the tables that a replay of it makes: silver, what cannot be read or replayed, and the states."""


@dataclass(frozen=True, slots=True)
class ReplayTables:
    """Rows of some tables of an internal topic, in one pass over the records of a key."""

    topic: str
    tables: frozenset[Table]
    has_markers: bool = True

    def __call__(self, batches: Batches, begin: Begin = AT_START, /) -> Made:
        keeps_state = KEY_STATES in self.tables
        # that the rows of any table cannot be made is a finding
        tables = MADE_OF[self.topic] if QUARANTINE in self.tables else self.tables
        parts = key_rows(batches, keeps_operations=keeps_state or self.topic == OFFSETS_TOPIC)
        state, last_offset = begin.state, -1 if begin.state is None else begin.state.last_offset
        chunk = last = None
        try:
            replay = _REPLAYS[self.topic](begin, tables, has_markers=self.has_markers)
            for rows in parts:
                last_offset = rows["log_offset"][-1].as_py()
                before, after = cut(rows, keeps_operations=True) if keeps_state else (rows, None)
                for some in (last, before):
                    if some is not None and some.num_rows:
                        chunk = chunk_of(some)
                        yield from self._wanted(replay.feed(chunk))
                last = after
            if last is not None:  # the state is that before the last operation, with its records
                state, chunk = replay.state(KeyState.before(last)), chunk_of(last)
                yield from self._wanted(replay.feed(chunk))
            if chunk is not None:
                yield from self._wanted(replay.finish(chunk))
        except NOT_ISOLATED:
            raise
        except Exception as error:  # the next records are those of a key whose past is not known
            if QUARANTINE in self.tables:
                yield QUARANTINE, _failure(error, begin, self.topic)
            last_offset = max([last_offset, *(rows["log_offset"][-1].as_py() for rows in parts)])
            state = KeyState(last_offset, last_offset)
        if keeps_state and begin.first["group_id"] is not None:  # None: of unreadable keys
            assert state is not None, "a key has a state or records"
            yield KEY_STATES, state_row(begin, state)

    def _wanted(self, made: Made) -> Made:
        return ((table, rows) for table, rows in made if table in self.tables)


def _failure(error: Exception, begin: Begin, topic: str) -> pa.Table:
    """A row of quarantine that says that a key cannot be replayed."""
    fault, first = Fault.of(error, None), begin.first
    group_id = first.get("group_id") if fault.group_id is None else fault.group_id
    share = f" of partition {first['partition']} of topic id {first['topic_id']}" if "topic_id" in first else ""
    at = "" if fault.log_offset is None else f" at offset {fault.log_offset}"
    message = (
        f"group {group_id!r} could not be replayed{share}: {fault.text}{at}. Its rows are missing, from the first "
        "records on that were replayed together with it; all other groups are there. This is a fault of "
        "Groupledger: please report it with this message, and if you can with the records of the group"
    )
    offset = first["log_offset"] if fault.log_offset is None else fault.log_offset
    finding = Finding("REPLAY", NOT_REPLAYED, message, offset=offset, group_id=group_id)
    return _quarantine([finding], topic, first["log_partition"])


def _quarantine(findings: Sequence[Finding], topic: str, partition: int) -> pa.Table:
    """Rows of bronze.quarantine, without times, since no run found them."""
    made = quarantine_table([(finding, None) for finding in findings], topic=topic, partition=partition, seen_at_ms=0)
    return made.set_column(made.column_names.index("seen_at"), "seen_at", pa.nulls(made.num_rows, made["seen_at"].type))


def unread_batches(rows: Batches) -> Batches:
    """Batches that could not be decoded, as rows of bronze.quarantine."""
    schema = arrow_schema(QUARANTINE)
    for place, findings in batch_findings(rows):
        made = _quarantine(findings, place["topic"], place["partition"])
        cluster_id = pa.repeat(pa.scalar(place.get("cluster_id"), pa.string()), made.num_rows)
        yield from made.append_column("cluster_id", cluster_id).select(schema.names).cast(schema).to_batches()


def replay_of(table: Table, topic: str, *, has_markers: bool) -> ReplayKey:
    """The function that makes rows of one table."""
    if table is OFFSET_COMMITS:
        return ReplayCommits(has_markers)
    return ReplayTables(topic, frozenset((table,)), has_markers)


def topic_of(name: str) -> str | None:
    """The internal topic from whose records a replay makes a table of silver; None: it makes none of this name."""
    of_topic = ((topic, table.full_name) for topic, tables in TABLES_OF_TOPIC.items() for table in tables)
    return next((topic for topic, full_name in of_topic if full_name == name), None)
