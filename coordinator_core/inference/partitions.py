"""Commits of a group by the partition they are for."""

from typing import Final

import numpy as np

from coordinator_core.inference.columns import numbered_pairs
from coordinator_core.inference.life import GroupCommits
from coordinator_core.log.chunk import I64, BoolArray

RADIX_KEYS_MAX: Final = 1 << 16
"""numpy sorts keys of 16 bits in linear time."""


def by_partition(
    commits: GroupCommits, chosen: BoolArray, *, group: I64 | None = None, is_in_log_order: bool = False
) -> tuple[I64, I64]:
    """The chosen rows by topic, partition and place where applied; and where each partition's begin, with the end.

    `group`, a number a row: of several groups, by group first. `is_in_log_order`: by place in the log instead.
    """
    rows = np.flatnonzero(chosen)
    key = commits.topic[rows].astype(np.int64)
    if group is not None:
        key = numbered_pairs(group[rows], key)
    key = numbered_pairs(key, commits.partition[rows].astype(np.int64))
    # applied order first; it is the log's own unless there were transactions
    if not is_in_log_order and commits.is_transactional[rows].any():
        order = np.argsort(commits.applied_log_offset[rows], kind="stable")
        rows, key = rows[order], key[order]
    if len(key) and int(key.max()) < RADIX_KEYS_MAX:
        key = key.astype(np.uint16)
    order = np.argsort(key, kind="stable")
    rows, key = rows[order], key[order]
    starts = np.flatnonzero(np.diff(key, prepend=np.int64(-1)) != 0) if len(key) else np.zeros(0, np.int64)
    return rows, np.append(starts, len(rows))
