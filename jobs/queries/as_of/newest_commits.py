"""The newest commit of each group and partition."""

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.inference.facts.columns import distinct, numbered_pairs
from jobs.delta.arrow_columns import codes_of, numbers_of

COMMIT_KEY: Final = ("group_id", "topic", "partition", "applied_log_offset", "log_partition")


def newest_commits(commits: Iterable[pa.RecordBatch]) -> pa.Table:
    """The last applied commit of each group and partition; `commits` must have the columns `COMMIT_KEY`."""
    return newest_of((pa.Table.from_batches([batch]), np.arange(batch.num_rows)) for batch in commits)


def newest_of(parts: Iterable[tuple[pa.Table, I64]]) -> pa.Table:
    """As `newest_commits`, for chosen rows of each part."""
    newest = [rows.take(pa.array(_newest(rows, chosen))) for rows, chosen in parts]
    if not newest:
        return pa.table({})
    rows = pa.concat_tables(newest)
    return rows.take(pa.array(_newest(rows, np.arange(rows.num_rows))))


def _newest(rows: pa.Table, chosen: I64) -> I64:
    """The indices of the last applied among the chosen rows, by group and partition."""
    group, _ = codes_of(rows["group_id"])
    topic, topics = codes_of(rows["topic"])
    partition, applied_at = (numbers_of(rows[name])[chosen] for name in ("partition", "applied_log_offset"))
    if np.any(applied_at[1:] < applied_at[:-1]):
        order = np.argsort(applied_at, kind="stable")
        chosen, partition = chosen[order], partition[order]
    group = _by_log_partitions(group, rows, chosen)
    # in two steps: the product of all three may overflow
    _, owner = distinct(group[chosen] * len(topics) + topic[chosen])
    keys, key = distinct(numbered_pairs(owner, partition))
    # with repeated indices, numpy keeps the last value
    last = np.zeros(len(keys), np.int64)
    last[key] = chosen
    return np.sort(last)


def _by_log_partitions(group: I64, rows: pa.Table, chosen: I64) -> I64:
    """Group codes; a group with rows in several log partitions has one code for each."""
    numbers = numbers_of(rows["log_partition"])
    places = np.zeros(int(group.max(initial=-1)) + 1, np.int64)
    places[group[chosen]] = numbers[chosen]
    if np.array_equal(places[group[chosen]], numbers[chosen]):
        return group
    _, owner = distinct(numbered_pairs(group[chosen], numbers[chosen]))
    numbered = np.zeros(len(group), np.int64)
    numbered[chosen] = owner
    return numbered
