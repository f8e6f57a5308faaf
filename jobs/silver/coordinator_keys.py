"""The groups and share partitions with records in each log partition of a coordinator topic, and since when.

Tasks of replay collect them, state.checkpoints keeps them, and `jobs.silver.homes` decides by them.

Only records that create something count: a generation, a commit that took effect, a share state. Tombstones do not
count, since the former coordinator continues to write them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.log.chunk import I32, I64, BoolArray
from coordinator_core.bytes.log.kernels import compiled
from coordinator_core.history.rows import GenerationRow
from coordinator_core.replay.columnar.offsets_columnar import CommitColumns
from coordinator_core.replay.columnar.share_state_columnar import KeyDictionary
from coordinator_core.replay.columnar.share_state_rows import RECORD_KINDS, PartitionStateRows
from jobs.delta.arrow_columns import columns_read
from jobs.delta.arrow_schemas import TIMESTAMP_MS_MAX, arrow_schema, timestamps
from jobs.delta.core_tables import applied_at_ms
from schemas import consumer_offsets, share_group_state
from schemas.tables.state import CHECKPOINTS

NO_RECORD: Final = 2**63 - 1
NO_TIME: Final = 2**63 - 2
"""Later than any timestamp, so that a record with a timestamp wins over records without one."""
TOMBSTONE: Final = RECORD_KINDS.index("TOMBSTONE")
KEY_COLUMNS: Final = ("group_id", "topic_id", "partition")
PLACE_COLUMNS: Final = ("log_topic", "log_partition", *KEY_COLUMNS)
TABLE_COLUMNS: Final = (*PLACE_COLUMNS, "at")


class _Earliest:
    """The earliest time of each code."""

    def __init__(self) -> None:
        self._times = np.zeros(0, np.int64)

    def add(self, codes: I64 | I32, times: I64, is_chosen: BoolArray, count: int) -> None:
        """Add the chosen rows; `count`: number of codes so far."""
        if count > len(self._times):
            more = np.full(max(count, 2 * len(self._times)) - len(self._times), NO_RECORD)
            self._times = np.concatenate([self._times, more])
        _keep_earliest(codes, times, is_chosen, self._times)

    def found(self) -> tuple[I64, I64]:
        """The codes that have rows, and the earliest time of each."""
        codes = np.flatnonzero(self._times != NO_RECORD)
        return codes, self._times[codes]


@compiled
def _keep_earliest(codes: I64 | I32, times: I64, is_chosen: BoolArray, earliest: I64) -> None:
    for row in range(len(codes)):
        if is_chosen[row]:
            time = times[row] if 0 <= times[row] <= TIMESTAMP_MS_MAX else NO_TIME
            earliest[codes[row]] = min(earliest[codes[row]], time)


class GroupKeys:
    """Collects the groups of one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self._committed = _Earliest()
        self._names: Sequence[str] = ()
        self._generations: dict[str, int] = {}

    def add(self, commits: CommitColumns, generations: Iterable[GenerationRow]) -> None:
        """Add the keys that a chunk creates."""
        self._names = commits.groups
        is_there = commits.applied_valid & commits.is_value
        self._committed.add(commits.group, applied_at_ms(commits), is_there, len(commits.groups))
        for row in generations:
            at = row.valid_from if 0 <= row.valid_from <= TIMESTAMP_MS_MAX else NO_TIME
            self._generations[row.group_id] = min(at, self._generations.get(row.group_id, at))

    def table(self, log_partition: int) -> pa.Table:
        """Rows of state.checkpoints, without the partition columns."""
        codes, times = self._committed.found()
        began = self._generations
        for code, time in zip(codes.tolist(), times.tolist(), strict=True):
            name = self._names[code]
            began[name] = min(time, began.get(name, time))
        nulls = [None] * len(began)
        at = np.fromiter(began.values(), np.int64, len(began))
        return _table(consumer_offsets.TOPIC, log_partition, (list(began), nulls, nulls), at)


class ShareStateKeys:
    """Collects the share partitions of one partition of `__share_group_state`."""

    def __init__(self) -> None:
        self._states = _Earliest()
        self._keys: KeyDictionary | None = None

    def add(self, keys: KeyDictionary, rows: PartitionStateRows) -> None:
        """Add the keys that a chunk creates."""
        self._keys = keys
        is_there: BoolArray = rows.record_kind != TOMBSTONE
        self._states.add(rows.key, rows.valid_from_ms, is_there, len(keys))

    def table(self, log_partition: int) -> pa.Table:
        """Rows of state.checkpoints, without the partition columns."""
        codes, times = self._states.found()
        keys = [] if self._keys is None else [self._keys[code] for code in codes.tolist()]
        names = [key.group_id for key in keys], [key.topic_id for key in keys], [key.partition for key in keys]
        return _table(share_group_state.TOPIC, log_partition, names, times)


def _table(
    topic: str, log_partition: int, keys: tuple[Sequence[str], Sequence[str | None], Sequence[int | None]], at: I64
) -> pa.Table:
    schema = arrow_schema(CHECKPOINTS)
    columns = dict(zip(KEY_COLUMNS, keys, strict=True))
    made = {name: pa.array(values, schema.field(name).type) for name, values in columns.items()}
    return pa.table(
        {
            "log_topic": pa.repeat(pa.scalar(topic, pa.string()), len(at)),
            "log_partition": pa.repeat(pa.scalar(log_partition, pa.int32()), len(at)),
            **made,
            "at": timestamps(np.where(at == NO_TIME, -1, at)),
        }
    )


def merged_keys(parts: Iterable[pa.Table]) -> pa.Table:
    """Merge rows of state.checkpoints: one row for each key and log partition, sorted."""
    empty = columns_read(CHECKPOINTS, TABLE_COLUMNS).empty_table()
    rows = pa.concat_tables([empty, *(part.select(list(TABLE_COLUMNS)).cast(empty.schema) for part in parts)])
    earliest = rows.group_by(list(PLACE_COLUMNS), use_threads=False).aggregate([("at", "min")])
    earliest = earliest.rename_columns({"at_min": "at"}).select(list(TABLE_COLUMNS))
    return earliest.cast(empty.schema).sort_by([(name, "ascending") for name in PLACE_COLUMNS])


def without_logs(rows: pa.Table, logs: Mapping[str, Iterable[int]]) -> pa.Table:
    """Rows of log partitions other than `logs`, which are given by topic."""
    for topic, partitions in logs.items():
        of_topic = pc.equal(rows["log_topic"], topic)
        those = pc.is_in(rows["log_partition"], value_set=pa.array(sorted(partitions), pa.int32()))
        rows = rows.filter(pc.invert(pc.and_(of_topic, those)))
    return rows


def of_log(rows: pa.Table, topic: str, log_partition: int) -> pa.Table:
    return rows.filter(pc.and_(pc.equal(rows["log_topic"], topic), pc.equal(rows["log_partition"], log_partition)))


def in_several(rows: pa.Table) -> pa.Table:
    """Rows of keys that have records in several log partitions."""
    key = ["log_topic", *KEY_COLUMNS]
    counts = rows.group_by(key, use_threads=False).aggregate([("log_partition", "count")])
    several = counts.filter(pc.greater(counts["log_partition_count"], 1))
    if not several.num_rows:
        return rows.slice(0, 0)
    # a join does not match null with null
    filled = [_filled(rows), _filled(several)]
    chosen = filled[0].join(filled[1].select(key), key, join_type="left semi")["row"].to_numpy()
    return rows.take(np.sort(chosen))


def _filled(rows: pa.Table) -> pa.Table:
    names = {"topic_id": "", "partition": -1}
    columns = {
        name: pc.fill_null(rows[name], names[name]) if name in names else rows[name]
        for name in ("log_topic", *KEY_COLUMNS)
    }
    return pa.table({**columns, "row": np.arange(rows.num_rows)})
