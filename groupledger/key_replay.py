"""Grouped functions of the replay, which run in workers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.log.chunk import Finding
from coordinator_core.history.offsets_log import OffsetsLogOutput, OffsetsLogReplay
from coordinator_core.inference.audit.log_anomalies import NOT_REPLAYED
from coordinator_core.replay.columnar.offsets_columnar import OUTCOMES, ColumnarOffsetReplay, CommitColumns
from coordinator_core.replay.columnar.share_state_columnar import ColumnarOutput, ColumnarShareReplay
from coordinator_core.replay.offsets.replay import NO_PRODUCER_ID
from groupledger.chunks import KeyChunk, key_chunks
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

Batches = Iterator[pa.RecordBatch]
ReplayKey = Callable[[Batches], Iterator[pa.Table]]
"""From the records of one key, rows of a table."""


def arrow_function(replay: ReplayKey, schema: pa.Schema) -> Callable[[Any], Any]:
    """For `for_each_key`: the rows of one key with the columns of a schema."""

    def apply(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _as_declared(replay, schema, batches)

    return apply


def pandas_function(replay: ReplayKey, schema: pa.Schema, given: pa.Schema) -> Callable[[Any], Any]:
    """For applyInPandas: as `arrow_function`, for records with the columns of `given`, or their texts."""

    def apply(rows: Any) -> Any:
        arrays = [pa.Array.from_pandas(rows[field.name]).cast(field.type) for field in given]
        batches = pa.Table.from_arrays(arrays, schema=given).to_batches()
        made = pa.Table.from_batches(_as_declared(replay, schema, iter(batches)), schema=schema)
        pandas = import_module("pandas")  # not a dependency: callers who use this have it
        nullable = {
            pa.int64(): pandas.Int64Dtype(),
            pa.int32(): pandas.Int32Dtype(),
            pa.int8(): pandas.Int8Dtype(),
            pa.bool_(): pandas.BooleanDtype(),
        }
        return made.to_pandas(types_mapper=nullable.get, maps_as_pydicts="strict")

    return apply


def _as_declared(replay: ReplayKey, schema: pa.Schema, batches: Batches) -> Batches:
    """The rows of one key, cast to a schema."""
    cluster_id: list[str | None] = [None]

    def noted() -> Batches:
        for batch in batches:
            if "cluster_id" in batch.schema.names:
                cluster_id[0] = batch["cluster_id"][0].as_py()
            yield batch

    def declared() -> Batches:
        for rows in replay(given):
            if rows.num_rows:
                columns = dict(zip(rows.column_names, rows.columns, strict=True))
                if "cluster_id" in schema.names:
                    columns["cluster_id"] = pa.repeat(pa.scalar(cluster_id[0], pa.string()), rows.num_rows)
                arrays = [_cast(columns[field.name], field.type) for field in schema]
                yield from pa.Table.from_arrays(arrays, schema=schema).to_batches(max_chunksize=ROWS_MAX)

    given = noted()
    try:
        yield from declared()
    except NOT_ISOLATED:
        raise
    except Exception:
        pass  # a bug with one key must not affect the rows of others: `errors` reports it


def _cast(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    # a cast without effect still takes time, for each column of each key
    return column if column.type == type_ else column.cast(type_)


ROWS_MAX: Final = 1 << 16
"""Maximum number of rows in an Arrow batch returned to Spark."""


def _settled(rows: pa.Table, is_settled: bool) -> pa.Table:
    return rows.append_column("is_settled", pa.array(np.full(rows.num_rows, is_settled)))


@dataclass(frozen=True, slots=True)
class ReplayCommits:
    """Commits of one group, without its history."""

    has_markers: bool

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        columnar, partition = ColumnarOffsetReplay(), 0
        for chunk in key_chunks(batches, keeps_operations=False):
            partition = chunk.log_partition
            commits = columnar.feed(chunk.records).commits
            columnar.faults.raise_first()
            is_known = chunk.are_known(commits.log_offset)
            yield _settled(self._decided(commits, commits_table(commits, partition, is_known)), True)
        commits = columnar.finish()
        if len(commits):
            yield _settled(self._decided(commits, commits_table(commits, partition)), False)

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


def _outputs(batches: Batches) -> Iterator[tuple[KeyChunk, OffsetsLogOutput, bool]]:
    """Yield the history of a group: chunk by chunk, then the open rows. The last flag: are the rows settled?"""
    replay, chunk = OffsetsLogReplay(), None
    for chunk in key_chunks(batches, keeps_operations=True):
        output = replay.feed(chunk.records)
        replay.faults.raise_first()
        yield chunk, output, True
    if chunk is not None:
        output = replay.finish()
        replay.faults.raise_first()
        yield chunk, output, False


@dataclass(frozen=True, slots=True)
class ReplayGroups:
    """Rows of one table of groups."""

    table: Table

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        for chunk, output, is_settled in _outputs(batches):
            if self.table == MEMBER_ASSIGNMENTS:
                if output.groups.assignments:
                    yield _settled(assignments_table(output.groups.assignments, chunk.log_partition), is_settled)
            elif rows := ROWS_OF_GROUPS[self.table](output.groups):
                yield _settled(rows_table(self.table, rows, {"log_partition": chunk.log_partition}), is_settled)


class _Learned(NamedTuple):
    """A name of a topic id, in columns of silver.topics."""

    topic_id: str
    topic: str
    valid_from: int
    learned_from: str


def learned_topics(batches: Batches) -> Iterator[pa.Table]:
    """Topic names in records of groups."""
    for _, output, _ in _outputs(batches):
        if output.groups.topics:
            yield rows_table(TOPICS, [_Learned(*name) for name in output.groups.topics], {"valid_to": None})


def group_findings(batches: Batches) -> Iterator[pa.Table]:
    """Records of `__consumer_offsets` that could not be read, and the group itself if it cannot be replayed."""
    given = GivenRecords(batches)
    made = (_checked_findings(chunk, output) for chunk, output, _ in _outputs(iter(given)))
    yield from _with_failure(chain.from_iterable(made), given, OFFSETS_TOPIC)


def _checked_findings(chunk: KeyChunk, output: OffsetsLogOutput) -> Iterator[pa.Table]:
    """Findings of a chunk; raises an error if the rows of any table cannot be made."""
    commits_table(output.commits, chunk.log_partition)
    if output.groups.assignments:
        assignments_table(output.groups.assignments, chunk.log_partition)
    for table, rows_of in ROWS_OF_GROUPS.items():
        if rows := rows_of(output.groups):
            rows_table(table, rows, {"log_partition": chunk.log_partition})
    yield from _findings(chunk, output.findings, OFFSETS_TOPIC)


class GivenRecords:
    """The records of one key, and their key."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self.first: dict[str, Any] = {}
        """Values of the first record."""

    def __iter__(self) -> Batches:
        for batch in self._batches:
            if not self.first:
                names = {"log_partition", "log_offset", "group_id", "topic_id", "partition"} & set(batch.schema.names)
                self.first = {name: batch[name][0].as_py() for name in names}
            yield batch


def _with_failure(made: Iterator[pa.Table], given: GivenRecords, topic: str) -> Iterator[pa.Table]:
    """Rows of quarantine, plus one if the replay fails."""
    try:
        yield from made
    except NOT_ISOLATED:
        raise
    except Exception as error:
        fault, first = Fault.of(error, None), given.first
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

    def __call__(self, batches: Batches) -> Iterator[pa.Table]:
        for chunk, output, is_settled in _share_outputs(batches):
            rows = ROWS_OF_SHARE_STATE[self.table](output, ShareKeys(output.keys, {}), chunk.log_partition)
            yield _settled(rows, is_settled)


def _share_outputs(batches: Batches) -> Iterator[tuple[KeyChunk, ColumnarOutput, bool]]:
    columnar, chunk = ColumnarShareReplay(), None
    for chunk in key_chunks(batches, keeps_operations=False):
        output = columnar.feed(chunk.records)
        columnar.faults.raise_first()
        yield chunk, output, True
    if chunk is not None:
        yield chunk, columnar.finish(), False


def share_findings(batches: Batches) -> Iterator[pa.Table]:
    """Records of `__share_group_state` that could not be read, and the share partition itself if it cannot be
    replayed.
    """
    given = GivenRecords(batches)
    made = (_checked_share_findings(chunk, output) for chunk, output, _ in _share_outputs(iter(given)))
    yield from _with_failure(chain.from_iterable(made), given, SHARE_TOPIC)


def _checked_share_findings(chunk: KeyChunk, output: ColumnarOutput) -> Iterator[pa.Table]:
    """Findings of a chunk; raises an error if the rows of any table cannot be made."""
    for rows_of in ROWS_OF_SHARE_STATE.values():
        rows_of(output, ShareKeys(output.keys, {}), chunk.log_partition)
    yield from _findings(chunk, output.findings, SHARE_TOPIC)


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
