"""Commits of a group by partition."""

import numpy as np

from coordinator_core.bytes.log.chunk import I32, I64, BoolArray
from coordinator_core.bytes.log.kernels import compiled
from coordinator_core.inference.facts.columns import distinct, is_countable, numbered_pairs
from coordinator_core.inference.facts.life import GroupCommits
from coordinator_core.inference.facts.ordering import grouped

ByPartition = tuple[I32, I64]
"""Rows of commits by partition, and where the rows of each partition begin, plus the end."""


def by_partition(
    commits: GroupCommits, chosen: BoolArray, *, group: I64 | None = None, is_in_log_order: bool = False
) -> ByPartition:
    """The chosen rows by topic, partition and applied log offset; and where the rows of each partition begin, plus the
    end.

    `group`, a number for each row: for commits of several groups, sorted by group first. `is_in_log_order`: sort by log
    offset instead.
    """
    if not chosen.any():
        return np.zeros(0, np.int32), np.zeros(1, np.int64)
    number, count = _numbered(commits, group)
    if not is_in_log_order and (commits.is_transactional & chosen).any():
        rows: I32 = np.flatnonzero(chosen).astype(np.int32)
        # sorted by applied offset first
        rows, ends = grouped(number, count, rows[np.argsort(commits.applied_log_offset[rows], kind="stable")])
    else:
        # the rows are in log order already
        ends = np.zeros(count, np.int64)
        rows = np.empty(np.count_nonzero(chosen), np.int32)
        _group(number, chosen, ends, rows)
    bounds = np.append(np.int64(0), ends)
    return rows, bounds[np.append(True, bounds[1:] != bounds[:-1])]


def _numbered(commits: GroupCommits, group: I64 | None) -> tuple[I32, int]:
    """For each commit the number of its partition, in the order of groups, topics and partitions; and an upper bound of
    these numbers."""
    topic: I32 | I64 = commits.topic if group is None else numbered_pairs(group, commits.topic.astype(np.int64))
    partition = commits.partition
    lowest, span = int(partition.min()), int(partition.max()) - int(partition.min()) + 1
    first = int(topic.min())
    count = (int(topic.max()) - first + 1) * span
    if not is_countable(count, len(commits)):
        found, of_row = distinct(numbered_pairs(topic.astype(np.int64), partition.astype(np.int64)))
        return of_row.astype(np.int32), len(found)
    number: I32 = np.empty(len(commits), np.int32)
    _number(topic, first, partition, lowest, span, number)
    return number, count


@compiled
def _number(topic: I32 | I64, first: int, partition: I32, lowest: int, span: int, number: I32) -> None:
    for row in range(len(number)):
        number[row] = (topic[row] - first) * span + (partition[row] - lowest)


@compiled
def _group(number: I32, chosen: BoolArray, ends: I64, rows: I32) -> None:
    """Like `ordering.grouped`, for the chosen rows in their own order: it saves one column of memory."""
    for row in range(len(number)):
        if chosen[row]:
            ends[number[row]] += 1
    next_place = 0
    for index in range(len(ends)):
        count = ends[index]
        ends[index] = next_place
        next_place += count
    for row in range(len(number)):
        if chosen[row]:
            rows[ends[number[row]]] = row
            ends[number[row]] += 1
