"""Grouped functions of the replay, which run in workers."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import chain
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
from groupledger.chunks import KeyChunk, chunk_of, cut, key_chunks, key_rows
from groupledger.key_state import AT_START, Batches, Begin, KeyState, LogPlace, begun, state_row
from groupledger.records import batch_findings
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
from jobs.silver.tasks import NOT_ISOLATED
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


class ReplayKey(Protocol):
    """From the records of one key, rows of a table."""

    def __call__(self, batches: Batches, begin: Begin = AT_START, /) -> Iterator[pa.Table]: ...


def arrow_function(
    replay: ReplayKey, schema: pa.Schema, later_logs: Set[LogPlace] = frozenset()
) -> Callable[[Any], Any]:
    """For `for_each_key`: the rows of one key with the columns of a schema. `later_logs`: as for `begun`."""

    def apply(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _as_declared(replay, schema, later_logs, batches)

    return apply


def pandas_function(
    replay: ReplayKey, schema: pa.Schema, given: pa.Schema, later_logs: Set[LogPlace] = frozenset()
) -> Callable[[Any], Any]:
    """For applyInPandas: as `arrow_function`, for records with the columns of `given`, or their texts."""

    def apply(rows: Any) -> Any:
        arrays = [pa.Array.from_pandas(rows[field.name]).cast(field.type) for field in given]
        batches = pa.Table.from_arrays(arrays, schema=given).to_batches()
        made = pa.Table.from_batches(_as_declared(replay, schema, later_logs, iter(batches)), schema=schema)
        pandas = import_module("pandas")  # not a dependency: callers who use this have it
        nullable = {
            pa.int64(): pandas.Int64Dtype(),
            pa.int32(): pandas.Int32Dtype(),
            pa.int8(): pandas.Int8Dtype(),
            pa.bool_(): pandas.BooleanDtype(),
        }
        return made.to_pandas(types_mapper=nullable.get, maps_as_pydicts="strict")

    return apply


def _as_declared(replay: ReplayKey, schema: pa.Schema, later_logs: Set[LogPlace], batches: Batches) -> Batches:
    """The rows of one key, cast to a schema."""
    begin, records = begun(batches, later_logs)
    try:
        for rows in replay(records, begin):
            if rows.num_rows:
                columns = dict(zip(rows.column_names, rows.columns, strict=True))
                if "cluster_id" in schema.names:
                    columns["cluster_id"] = pa.repeat(pa.scalar(begin.cluster_id, pa.string()), rows.num_rows)
                arrays = [_cast(columns[field.name], field.type) for field in schema]
                yield from pa.Table.from_arrays(arrays, schema=schema).to_batches(max_chunksize=ROWS_MAX)
    except NOT_ISOLATED:
        raise
    except Exception:
        pass  # a bug with one key must not affect the rows of others: `errors` reports it


def _cast(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    # a cast without effect still takes time, for each column of each key
    return column if column.type == type_ else column.cast(type_)


ROWS_MAX: Final = 1 << 16
"""Maximum number of rows in an Arrow batch returned to Spark."""


def _settled(rows: pa.Table, is_settled: bool | Sequence[bool] | BoolArray) -> pa.Table:
    flags = np.full(rows.num_rows, is_settled) if isinstance(is_settled, bool) else is_settled
    return rows.append_column("is_settled", pa.array(flags, pa.bool_()))


@dataclass(frozen=True, slots=True)
class ReplayCommits:
    """Commits of one group, without its history."""

    has_markers: bool

    def __call__(self, batches: Batches, begin: Begin = AT_START, /) -> Iterator[pa.Table]:
        saved, chunk = begin.offsets_log, None
        columnar = ColumnarOffsetReplay(None if saved is None else saved.columnar)
        past = Past(begin, saved)
        for chunk in key_chunks(batches, keeps_operations=False):
            commits = columnar.feed(chunk.records).commits
            columnar.faults.raise_first()
            is_known = chunk.are_known(commits.log_offset)
            doubtful = past.doubtful(commits)
            commits = replace(commits, change=np.where(doubtful & commits.is_value, np.int8(-1), commits.change))
            rows = self._decided(commits, commits_table(commits, chunk.log_partition, is_known))
            yield _settled(rows, ~doubtful)
        commits = columnar.finish()
        if chunk is not None and len(commits):
            yield _settled(self._decided(commits, commits_table(commits, chunk.log_partition)), False)

    def _decided(self, commits: CommitColumns, rows: pa.Table) -> pa.Table:
        """Without markers the outcome of a transaction is unknown, even if the same producer commits again."""
        if self.has_markers or not len(commits):
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


def _outputs(batches: Batches, begin: Begin) -> Iterator[tuple[KeyChunk, OffsetsLogOutput, bool]]:
    """Yield the history of a group: chunk by chunk, then the open rows. The last flag: are the rows settled?"""
    saved, chunk = begin.offsets_log, None
    replay, past = OffsetsLogReplay(saved), Past(begin, saved)
    for chunk in key_chunks(batches, keeps_operations=True):
        output = replay.feed(chunk.records)
        replay.faults.raise_first()
        past.note(output.groups)
        yield chunk, output, True
    if chunk is not None:
        output = replay.finish()
        replay.faults.raise_first()
        for group_id, state in () if saved is None else saved.groups.items():
            if group_id in replay.serialized:  # it has new records of offsets alone
                found = unpack_group(state)
                if found.group is not None and found.intervals is not None:
                    Intervals(group_id, found.intervals, output.groups).close_all(found.group, None, None)
        past.note(output.groups)
        yield chunk, output, False


@dataclass(frozen=True, slots=True)
class ReplayGroups:
    """Rows of one table of groups."""

    table: Table

    def __call__(self, batches: Batches, begin: Begin = AT_START, /) -> Iterator[pa.Table]:
        for chunk, output, is_settled in _outputs(batches, begin):
            if self.table == MEMBER_ASSIGNMENTS:
                if output.groups.assignments:
                    yield _settled(assignments_table(output.groups.assignments, chunk.log_partition), is_settled)
            elif rows := ROWS_OF_GROUPS[self.table](output.groups):
                made = rows_table(self.table, rows, {"log_partition": chunk.log_partition})
                yield _settled(made, is_settled and (begin.knows_past or [not is_doubtful(row) for row in rows]))


class _Learned(NamedTuple):
    """A name of a topic id, in columns of silver.topics."""

    topic_id: str
    topic: str
    valid_from: int
    learned_from: str


def learned_topics(batches: Batches, begin: Begin = AT_START, /) -> Iterator[pa.Table]:
    """Topic names in records of groups."""
    for _, output, _ in _outputs(batches, begin):
        if output.groups.topics:
            yield rows_table(TOPICS, [_Learned(*name) for name in output.groups.topics], {"valid_to": None})


def group_findings(batches: Batches, begin: Begin = AT_START, /) -> Iterator[pa.Table]:
    """Records of `__consumer_offsets` that could not be read, and the group itself if it cannot be replayed."""
    made = (_checked_findings(chunk, output) for chunk, output, _ in _outputs(batches, begin))
    yield from _with_failure(chain.from_iterable(made), begin, OFFSETS_TOPIC)


def _checked_findings(chunk: KeyChunk, output: OffsetsLogOutput) -> Iterator[pa.Table]:
    """Findings of a chunk; raises an error if the rows of any table cannot be made."""
    commits_table(output.commits, chunk.log_partition)
    if output.groups.assignments:
        assignments_table(output.groups.assignments, chunk.log_partition)
    for table, rows_of in ROWS_OF_GROUPS.items():
        if rows := rows_of(output.groups):
            rows_table(table, rows, {"log_partition": chunk.log_partition})
    yield from _findings(chunk, output.findings, OFFSETS_TOPIC)


def _with_failure(made: Iterator[pa.Table], begin: Begin, topic: str) -> Iterator[pa.Table]:
    """Rows of quarantine, plus one if the replay fails."""
    try:
        yield from made
    except NOT_ISOLATED:
        raise
    except Exception as error:
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
        yield _quarantine([finding], topic, first["log_partition"])


def _findings(chunk: KeyChunk, findings: Sequence[Finding], topic: str) -> Iterator[pa.Table]:
    if findings:
        yield _quarantine(findings, topic, chunk.log_partition)


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


ROWS_OF_SHARE_STATE: Final[Mapping[Table, Callable[[ColumnarOutput, ShareKeys, int], pa.Table]]] = {
    SHARE_PARTITION_STATES: lambda output, keys, partition: share_states_table(
        output.partition_states, keys, partition
    ),
    SHARE_STATE_BATCHES: lambda output, keys, partition: share_batches_table(output.state_batches, keys, partition),
    SHARE_BATCH_TRANSITIONS: lambda output, keys, partition: share_transitions_table(
        output.transitions, keys, partition
    ),
}


@dataclass(frozen=True, slots=True)
class ReplayShareState:
    """Rows of one table, for one share partition."""

    table: Table

    def __call__(self, batches: Batches, begin: Begin = AT_START, /) -> Iterator[pa.Table]:
        for chunk, output, is_settled in _share_outputs(batches, begin):
            rows = ROWS_OF_SHARE_STATE[self.table](output, ShareKeys(output.keys, {}), chunk.log_partition)
            yield _settled(rows, is_settled)


def _share_outputs(batches: Batches, begin: Begin) -> Iterator[tuple[KeyChunk, ColumnarOutput, bool]]:
    columnar, chunk = ColumnarShareReplay(begin.share_state), None
    for chunk in key_chunks(batches, keeps_operations=False):
        output = columnar.feed(chunk.records)
        columnar.faults.raise_first()
        yield chunk, output, True
    if chunk is not None:
        yield chunk, columnar.finish(), False


def share_findings(batches: Batches, begin: Begin = AT_START, /) -> Iterator[pa.Table]:
    """Records of `__share_group_state` that could not be read, and the share partition itself if it cannot be
    replayed.
    """
    made = (_checked_share_findings(chunk, output) for chunk, output, _ in _share_outputs(batches, begin))
    yield from _with_failure(chain.from_iterable(made), begin, SHARE_TOPIC)


def _checked_share_findings(chunk: KeyChunk, output: ColumnarOutput) -> Iterator[pa.Table]:
    """Findings of a chunk; raises an error if the rows of any table cannot be made."""
    for rows_of in ROWS_OF_SHARE_STATE.values():
        rows_of(output, ShareKeys(output.keys, {}), chunk.log_partition)
    yield from _findings(chunk, output.findings, SHARE_TOPIC)


def group_states(batches: Batches, begin: Begin = AT_START, /) -> Iterator[pa.Table]:
    """The state of one group: a row of `KEY_STATES`."""
    saved = begin.offsets_log
    replay, past = OffsetsLogReplay(saved), Past(begin, saved)

    def feed(chunk: KeyChunk) -> None:
        commits = replay.feed(chunk.records).commits
        replay.faults.raise_first()
        past.doubtful(commits)

    def state(made: KeyState) -> KeyState:
        exported = replay.export_state()
        columnar = past.noted(exported.columnar)
        producers = {*made.open_producers, *columnar.carried.producer_id.tolist()}
        return structs.replace(
            made, replay=pack_offset_state(columnar), groups=dict(exported.groups), open_producers=sorted(producers)
        )

    yield from _states(batches, begin, feed, state)


def share_states(batches: Batches, begin: Begin = AT_START, /) -> Iterator[pa.Table]:
    """The state of one share partition: a row of `KEY_STATES`."""
    columnar = ColumnarShareReplay(begin.share_state)

    def feed(chunk: KeyChunk) -> None:
        columnar.feed(chunk.records)
        columnar.faults.raise_first()

    yield from _states(
        batches, begin, feed, lambda made: structs.replace(made, replay=pack_share_state(columnar.export_state()))
    )


def _states(
    batches: Batches, begin: Begin, feed: Callable[[KeyChunk], None], state: Callable[[KeyState], KeyState]
) -> Iterator[pa.Table]:
    """The state before the last operation, with the records of that."""
    if begin.first["group_id"] is None:  # of unreadable keys
        return
    made, last = begin.state, None
    parts = key_rows(batches, keeps_operations=True)
    try:
        for rows in parts:
            made = KeyState(rows["log_offset"][-1].as_py(), rows["log_offset"][-1].as_py())
            if last is not None:
                feed(chunk_of(last))
            before, last = cut(rows, keeps_operations=True)
            if before.num_rows:
                feed(chunk_of(before))
        if last is not None and made is not None:
            made = state(KeyState.before(last))
    except NOT_ISOLATED:
        raise
    except Exception:  # `errors` reports it; the next records are those of a key whose past is not known
        last_offset = max(
            [-1 if made is None else made.last_offset, *(rows["log_offset"][-1].as_py() for rows in parts)]
        )
        made = KeyState(last_offset, last_offset)
    assert made is not None, "a key has a state or records"
    yield state_row(begin, made)


def replay_of(name: str, *, has_markers: bool) -> ReplayKey | None:
    """The function that makes rows of a silver table from the records of one key; None: not made by a replay."""
    if name == OFFSET_COMMITS.full_name:
        return ReplayCommits(has_markers)
    for table in (*ROWS_OF_GROUPS, MEMBER_ASSIGNMENTS):
        if table.full_name == name:
            return ReplayGroups(table)
    for table in ROWS_OF_SHARE_STATE:
        if table.full_name == name:
            return ReplayShareState(table)
    return None
