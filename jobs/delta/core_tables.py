"""Convert rows and columns of the core to Arrow tables of the silver schemas; the writer adds partition columns."""

from collections.abc import Callable, Mapping, Sequence, Set
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.log.chunk import I8, I32, I64, BoolArray, Finding
from coordinator_core.history.rows import (
    GROUP_TYPES_WITH_TASKS,
    GROUP_TYPES_WITH_TOPIC_IDS,
    AssignmentRows,
    AssignmentRun,
    GroupRows,
)
from coordinator_core.replay.columnar.offsets_columnar import CHANGES, OUTCOMES, CommitColumns
from coordinator_core.replay.columnar.share_state_columnar import DELIVERY_STATES, KeyDictionary, delivery_state_name
from coordinator_core.replay.columnar.share_state_rows import (
    RECORD_KINDS,
    TRANSITION_KINDS,
    PartitionStateRows,
    StateBatchRows,
    TransitionRows,
)
from jobs.delta.arrow_schemas import (
    DAY,
    NO_TIMESTAMP_MS,
    TIMESTAMP_MS_MAX,
    TIMESTAMP_TYPE,
    arrow_schema,
    file_schema,
    made_schema,
    timestamps,
)
from schemas.tables.bronze import QUARANTINE
from schemas.tables.declare import Table
from schemas.tables.silver import (
    GROUP_EVENTS,
    GROUP_GENERATIONS,
    GROUP_MEMBERS,
    MEMBER_ASSIGNMENTS,
    MEMBER_ATTRIBUTES,
    SHARE_PARTITION_STATES,
)

ROWS_OF_GROUPS: Final[Mapping[Table, Callable[[GroupRows], Sequence[NamedTuple]]]] = {
    GROUP_GENERATIONS: attrgetter("generations"),
    GROUP_MEMBERS: attrgetter("members"),
    MEMBER_ATTRIBUTES: attrgetter("attributes"),
    GROUP_EVENTS: attrgetter("events"),
}
"""By table, its rows in `GroupRows`; silver.member_assignments has `assignments_table`."""


def rows_table(table: Table, rows: Sequence[NamedTuple], constants: Mapping[str, Any]) -> pa.Table:
    """Convert rows of the core, at least one. `constants`: whole columns, as Arrow arrays or as one value.

    Integers in a TIMESTAMP column of `rows` are epoch milliseconds; -1 is null.
    """
    columns = _columns(rows)
    schema = made_schema(table)
    arrays = [
        constant(constants[field.name], field.type, len(rows))
        if field.name in constants
        else _array(columns[table.day_of if field.name == DAY and table.day_of else field.name], field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def days(times: pa.Array) -> pa.Array:
    """The UTC days of times; null for null."""
    return times.cast(pa.timestamp("us")).cast(pa.date32())


def assignments_table(rows: AssignmentRows, log_partition: int | pa.Array) -> pa.Table:
    """Rows of silver.member_assignments, at least one.

    Values that rows share are made once for each run or topic. `log_partition`: of all rows, or of each row.
    """
    schema = file_schema(MEMBER_ASSIGNMENTS)
    of_run = dict(zip(AssignmentRun._fields, zip(*rows.runs, strict=True), strict=True))
    row_counts = np.fromiter(map(len, rows.partitions), np.int64, len(rows.partitions))
    topic = np.repeat(np.arange(len(rows.keys)), row_counts)
    run = np.repeat(np.arange(len(rows.runs)), rows.lengths)[topic]
    arrays = {
        "log_partition": constant(log_partition, pa.int32(), len(topic)),
        **{name: _array(values, schema.field(name).type).take(run) for name, values in of_run.items()},
        **_key_columns(rows, of_run["group_type"], topic),
        "partition": pa.array([*chain.from_iterable(rows.partitions)], schema.field("partition").type),
    }
    return pa.Table.from_arrays([arrays[name] for name in schema.names], schema=schema)


def _key_columns(rows: AssignmentRows, group_types: Sequence[str], topic: I64) -> dict[str, pa.Array]:
    """The key columns of each row: a topic id, a topic, or a task type and a subtopology.

    `group_types`: of the runs. `topic`: index of each row's key.
    """
    topics: Sequence[Any] = rows.keys
    task_type = pa.nulls(len(topic), pa.string())
    if not GROUP_TYPES_WITH_TASKS.isdisjoint(group_types):
        topics = [key if isinstance(key, str) else key[1] for key in rows.keys]
        task_types = [None if isinstance(key, str) else key[0] for key in rows.keys]
        task_type = pa.array(task_types, pa.string()).take(topic)
    named = pa.array(topics, pa.string())
    is_id = np.repeat([group_type in GROUP_TYPES_WITH_TOPIC_IDS for group_type in group_types], rows.lengths)[topic]
    return {
        "task_type": task_type,
        "topic_id": named.take(pa.array(topic, mask=~is_id)),
        "topic": named.take(pa.array(topic, mask=is_id)),
    }


def commits_table(commits: CommitColumns, log_partition: int, has_header: BoolArray | None = None) -> pa.Table:
    """Rows of silver.offset_commits; strings stay dictionary-encoded until they are in Parquet.

    `has_header`, one bool a row: False where the producer of the record is unknown.
    """
    count = len(commits)
    is_value = commits.is_value
    is_known = np.ones(count, np.bool_) if has_header is None else has_header
    committed = _masked(commits.committed_offset, is_value)
    columns = {
        "log_partition": constant(log_partition, pa.int32(), count),
        "log_offset": pa.array(commits.log_offset),
        "group_id": _coded(commits.group, commits.groups),
        "topic": _coded(commits.topic, commits.topics),
        "topic_id": _coded(commits.topic_id, commits.topic_ids),
        "partition": pa.array(commits.partition),
        "committed_offset": committed,
        "leader_epoch": _masked(commits.leader_epoch, commits.leader_epoch_valid),
        "metadata": _texts(commits.metadata_offsets, commits.metadata_data, is_value),
        "commit_time": _masked_times(commits.commit_time_ms, is_value),
        "expire_time": _masked_times(commits.expire_time_ms, commits.expire_time_valid),
        "recorded_at": timestamps(commits.recorded_at_ms),
        "producer_id": _masked(commits.producer_id, is_known),
        "is_transactional": _masked(commits.is_transactional, is_known),
        "outcome": _named(pa.array(commits.outcome), OUTCOMES),
        "applied_log_offset": _masked(commits.applied_log_offset, commits.applied_valid),
        "applied_at": _masked_times(applied_at_ms(commits), commits.applied_valid),
        "change": _named(_masked(commits.change, commits.change >= 0), CHANGES),
        "previous_offset": _masked(commits.previous_offset, commits.previous_offset_valid),
        "delta": _masked(commits.delta, commits.delta_valid),
    }
    return _table(columns, _NEVER_NULL_IN_COMMITS)


def applied_at_ms(commits: CommitColumns) -> I64:
    """When commits took effect.

    A plain commit takes effect when it is recorded; where the record has no valid timestamp, the commit timestamp in
    its value is used.
    """
    recorded, applied = commits.recorded_at_ms, commits.applied_at_ms
    if not len(recorded) or (recorded.min() >= 0 and recorded.max() <= TIMESTAMP_MS_MAX):
        return applied
    is_lacking = ((recorded < 0) | (recorded > TIMESTAMP_MS_MAX)) & commits.is_value & ~commits.is_transactional
    return np.where(is_lacking, commits.commit_time_ms, applied)


def _ends_ms(begins_ms: I64, ends_ms: I64) -> I64:
    """Ends of intervals: never before their beginning, even if the clock of the leader that wrote the end is behind."""
    return np.where(ends_ms < 0, ends_ms, np.maximum(begins_ms, ends_ms))


class ShareKeys:
    """Group, topic id, topic and partition of share partitions, by their index in the rows of a columnar replay."""

    def __init__(self, keys: KeyDictionary, names: Mapping[str, str]) -> None:
        self._groups, self._group = _distinct(keys.group_ids)
        self._topic_ids, self._topic_id = _distinct(keys.topic_ids)
        known = [names.get(topic_id) for topic_id in keys.topic_ids]
        self._topics, self._topic = _distinct(known)
        self._partition = keys.partitions

    def columns(self, key: I32) -> dict[str, Any]:
        return {
            "group_id": _named(pa.array(np.take(self._group, key)), self._groups),
            "topic_id": _named(pa.array(np.take(self._topic_id, key)), self._topic_ids),
            "topic": _coded(np.take(self._topic, key), self._topics),
            "partition": pa.array(np.take(self._partition, key)),
        }


def share_states_table(rows: PartitionStateRows, keys: ShareKeys, log_partition: int) -> pa.Table:
    has_state, changed = rows.has_state, rows.changed_batches
    batches = pa.StructArray.from_arrays(
        [
            pa.array(changed.first_offset),
            pa.array(changed.last_offset),
            _delivery_states(changed.delivery_state),
            pa.array(changed.delivery_count),
        ],
        ["first_offset", "last_offset", "delivery_state", "delivery_count"],
    )
    element = arrow_schema(SHARE_PARTITION_STATES).field("changed_batches").type.value_field
    list_type = pa.list_(element.with_type(batches.type))
    columns = keys.columns(rows.key) | {
        "log_offset": pa.array(rows.log_offset),
        "log_partition": constant(log_partition, pa.int32(), len(rows.key)),
        "record_kind": _named(pa.array(rows.record_kind), RECORD_KINDS),
        "valid_from": timestamps(rows.valid_from_ms),
        "valid_to": _masked_times(_ends_ms(rows.valid_from_ms, rows.valid_to_ms), rows.has_end),
        "to_log_offset": _masked(rows.to_log_offset, rows.has_end),
        "snapshot_epoch": _masked(rows.snapshot_epoch, has_state),
        "state_epoch": _masked(rows.state_epoch, has_state),
        "leader_epoch": _masked(rows.leader_epoch, has_state),
        "start_offset": _masked(rows.start_offset, has_state),
        "effective_start_offset": _masked(rows.effective_start_offset, has_state),
        "delivery_complete_count": _masked(rows.delivery_complete_count, rows.has_delivery_complete_count),
        "create_time": _masked_times(rows.create_time_ms, rows.has_create_time),
        "write_time": _masked_times(rows.write_time_ms, rows.has_write_time),
        "changed_batches": pa.ListArray.from_arrays(pa.array(changed.offsets), batches, type=list_type),
        "batch_count": pa.array(rows.batch_count),
        "available_count": pa.array(rows.available_count),
        "acknowledged_count": pa.array(rows.acknowledged_count),
        "archiving_count": pa.array(rows.archiving_count),
        "archived_count": pa.array(rows.archived_count),
        "is_complete": _flags(rows.is_complete),
    }
    return _table(columns, _NEVER_NULL_IN_STATES)


def share_batches_table(rows: StateBatchRows, keys: ShareKeys, log_partition: int) -> pa.Table:
    columns = keys.columns(rows.key) | {
        "first_offset": pa.array(rows.first_offset),
        "from_log_offset": pa.array(rows.from_log_offset),
        "log_partition": constant(log_partition, pa.int32(), len(rows.key)),
        "last_offset": pa.array(rows.last_offset),
        "delivery_state": _delivery_states(rows.delivery_state),
        "delivery_state_code": pa.array(rows.delivery_state.astype(np.int32)),
        "delivery_count": pa.array(rows.delivery_count),
        "valid_from": timestamps(rows.valid_from_ms),
        "valid_to": _masked_times(_ends_ms(rows.valid_from_ms, rows.valid_to_ms), rows.has_end),
        "to_log_offset": _masked(rows.to_log_offset, rows.has_end),
        "is_complete": _flags(rows.is_complete),
    }
    return _table(columns, _NEVER_NULL_IN_BATCHES)


def share_transitions_table(rows: TransitionRows, keys: ShareKeys, log_partition: int) -> pa.Table:
    columns = keys.columns(rows.key) | {
        "log_offset": pa.array(rows.log_offset),
        "first_offset": pa.array(rows.first_offset),
        "log_partition": constant(log_partition, pa.int32(), len(rows.key)),
        "last_offset": pa.array(rows.last_offset),
        "at": timestamps(rows.at_ms),
        "from_state": _delivery_states(rows.from_state, rows.has_from),
        "from_delivery_count": _masked(rows.from_delivery_count, rows.has_from),
        "to_state": _delivery_states(rows.to_state, rows.has_to),
        "to_delivery_count": _masked(rows.to_delivery_count, rows.has_to),
        "leader_changed": _flags(rows.leader_changed),
        "kind": _named(pa.array(rows.kind), TRANSITION_KINDS),
    }
    return _table(columns, _NEVER_NULL_IN_TRANSITIONS)


_NEVER_NULL_IN_COMMITS: Final = frozenset({"log_partition", "log_offset", "group_id", "topic", "partition", "outcome"})
_SHARE_KEY: Final = frozenset({"group_id", "topic_id", "partition", "log_partition"})
_NEVER_NULL_IN_STATES: Final = _SHARE_KEY | {
    *("log_offset", "record_kind", "changed_batches"),
    *("batch_count", "available_count", "acknowledged_count", "archiving_count", "archived_count", "is_complete"),
}
_NEVER_NULL_IN_BATCHES: Final = _SHARE_KEY | {
    *("first_offset", "last_offset", "from_log_offset"),
    *("delivery_state", "delivery_state_code", "delivery_count", "is_complete"),
}
_NEVER_NULL_IN_TRANSITIONS: Final = _SHARE_KEY | {"log_offset", "first_offset", "last_offset", "leader_changed", "kind"}


def _table(columns: Mapping[str, pa.Array], never_null: Set[str]) -> pa.Table:
    """A table in which the columns in `never_null` are declared without nulls: Parquet then needs no definition
    levels."""
    fields = [pa.field(name, column.type, nullable=name not in never_null) for name, column in columns.items()]
    return pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))


class QuarantineRow(NamedTuple):
    """Columns of bronze.quarantine without those that are the same for a whole log partition."""

    offset: int | None
    base_offset: int | None
    stage: str
    code: str
    message: str
    byte_position: int | None
    bytes: bytes
    source: str | None
    group_id: str | None


_OF_FINDING: Final = attrgetter("offset", "base_offset", "stage", "code", "message", "byte_position", "payload")


def quarantine_table(
    findings: Sequence[tuple[Finding, str | None]], *, topic: str, partition: int, seen_at_ms: int
) -> pa.Table:
    """Rows of bronze.quarantine, from findings and the sources of their batches."""
    rows = [QuarantineRow._make((*_OF_FINDING(finding), source, finding.group_id)) for finding, source in findings]
    constants = {
        "topic": topic,
        "partition": partition,
        "seen_at": seen_at_ms * 1000,
        # only for bytes that are not a batch, which replay does not see
        "from_offset": None,
        "to_offset": None,
        "resolved_at": None,
        "resolved_by": None,
    }
    return rows_table(QUARANTINE, rows, constants)


def with_names(rows: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """The rows with the name of `topic_id` in `topic`, where it is known."""
    ids = pa.array(list(names), pa.string())
    values = pa.array(list(names.values()), pa.string())
    found = pc.take(values, pc.index_in(rows["topic_id"], ids))
    return rows.set_column(rows.schema.get_field_index("topic"), "topic", pc.coalesce(found, rows["topic"]))


def constant(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    """A column of `count` equal values; `value` may be a whole column already."""
    if isinstance(value, pa.Array):
        return value
    if pa.types.is_integer(kind) and value is not None:
        return pa.array(np.full(count, value, kind.to_pandas_dtype()))  # pa.repeat appends one value at a time
    return pa.repeat(pa.scalar(value, kind), count)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if kind == TIMESTAMP_TYPE:
        return _times(values)
    if pa.types.is_date32(kind):
        return days(_times(values))
    return _maps(values, kind) if pa.types.is_map(kind) else pa.array(values, kind)


def _times(values: Sequence[int | None]) -> pa.Array:
    return timestamps(pa.array(values, pa.int64()).fill_null(NO_TIMESTAMP_MS).to_numpy())


def _columns(rows: Sequence[NamedTuple]) -> Mapping[str, Sequence[Any]]:
    """Rows as columns, in portions that stay in the processor's cache for all of their columns."""
    columns: dict[str, list[Any]] = {name: [] for name in rows[0]._fields}
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        some = zip(*rows[start : start + _ROWS_AT_ONCE], strict=True)
        for column, values in zip(columns.values(), some, strict=True):
            column.extend(values)
    return columns


_ROWS_AT_ONCE: Final = 512


def _maps(values: Sequence[Mapping[str, str]], kind: pa.MapType) -> pa.Array:
    """Mappings as a column; most are empty."""
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, len(values)), out=ends[1:])
    filled = [value for value in values if value]
    keys = pa.array([key for value in filled for key in value], kind.key_type)
    items = pa.array([item for value in filled for item in value.values()], kind.item_type)
    return pa.MapArray.from_arrays(pa.array(ends), keys, items)


def _masked(values: Any, valid: BoolArray) -> pa.Array:
    """Values without a copy, null where they are not valid."""
    if values.dtype == np.bool_:
        return _flags(values) if valid.all() else pa.array(values, mask=~valid)
    if valid.all():
        return pa.array(values)
    buffers = [_bitmap(valid), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def _masked_times(timestamp_ms: I64, valid: BoolArray) -> pa.Array:
    if not valid.any():
        return pa.nulls(len(valid), TIMESTAMP_TYPE)
    shown = timestamps(timestamp_ms)
    if valid.all():
        return shown
    if shown.null_count:
        return timestamps(np.where(valid, timestamp_ms, NO_TIMESTAMP_MS))
    return pa.Array.from_buffers(shown.type, len(shown), [_bitmap(valid), shown.buffers()[1]])


def _flags(values: BoolArray) -> pa.BooleanArray:
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bitmap(values)])


def _bitmap(values: BoolArray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def _named(codes: pa.Array, names: Sequence[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(codes, pa.array(names, pa.string()), safe=False)


def _delivery_states(codes: I8, valid: BoolArray | None = None) -> pa.DictionaryArray:
    """Names of Kafka's delivery state codes; every code that fits a byte has a name.

    A byte-sized index cannot address more names than that, and unifying dictionaries needs some spare room.
    """
    names: Sequence[str] = DELIVERY_STATES
    if len(codes) and (codes.min() < 0 or codes.max() >= len(DELIVERY_STATES)):
        names = _NAMES_OF_ANY_CODE
    indices = codes.view(np.uint8).astype(np.int16)
    return _named(pa.array(indices) if valid is None else _masked(indices, valid), names)


_NAMES_OF_ANY_CODE: Final = tuple(map(delivery_state_name, np.arange(256, dtype=np.uint8).view(np.int8).tolist()))


def _distinct(texts: Sequence[str | None]) -> tuple[list[str], I32]:
    """The distinct strings in order of appearance, and the index of each string, -1 for None."""
    numbers: dict[str, int] = {}
    indices = [-1 if text is None else numbers.setdefault(text, len(numbers)) for text in texts]
    return list(numbers), np.array(indices, np.int32)


def _coded(indices: Any, texts: Sequence[str]) -> pa.DictionaryArray:
    """A dictionary-encoded column; index -1 is null."""
    return _named(_masked(indices, indices >= 0), texts)


def _texts(offsets: Any, data: Any, valid: BoolArray) -> pa.Array:
    """UTF-8 strings from their bytes, without a copy."""
    bitmap = None if valid.all() else _bitmap(valid)
    kind = pa.StringArray if offsets.dtype == np.int32 else pa.LargeStringArray
    texts = kind.from_buffers(len(valid), pa.py_buffer(offsets), pa.py_buffer(data), bitmap)
    return texts if offsets.dtype == np.int32 else texts.cast(pa.string())
