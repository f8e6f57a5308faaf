"""Read silver's offset commits as columns."""

from collections.abc import Iterator, Sequence, Set
from typing import Any, Final

import numpy as np
import pyarrow as pa

from coordinator_core.bytes.log.chunk import I32, I64
from coordinator_core.inference.audit.group_past import GroupedCommits
from coordinator_core.inference.facts.life import NO_EXPIRY, GroupCommits
from coordinator_core.inference.facts.ordering import is_ascending, ordered_by
from coordinator_core.replay.columnar.offsets_columnar import CHANGES, OUTCOMES
from jobs.delta.arrow_columns import codes_of, epoch_ms_column, indices_in, numbers_of, small_numbers_of
from jobs.silver.reader import SilverFiles
from jobs.silver.rows import only_groups
from schemas.tables.silver import OFFSET_COMMITS

COMMIT_COLUMNS: Final = (
    "group_id",
    "topic",
    "partition",
    "log_offset",
    "recorded_at",
    "applied_log_offset",
    "applied_at",
    "committed_offset",
    "previous_offset",
    "outcome",
    "change",
    "is_transactional",
    "expire_time",
)
COMMIT_TEXTS: Final = ("group_id", "topic", "outcome", "change")


def new_commits(
    files: SilverFiles, log_partition: int, from_log_offset: int, only: Set[str] | None = None
) -> Iterator[tuple[GroupCommits, I64, Sequence[str]]]:
    """Yield the commits of one log partition from a log offset on, of all groups or `only` some, row group by row
    group: columns, the index of each commit's group, and the group ids.
    """
    pieces = files.iterate(OFFSET_COMMITS, COMMIT_COLUMNS, log_partition, COMMIT_TEXTS, from_log_offset=from_log_offset)
    for rows in only_groups(pieces, only):
        group, group_ids = codes_of(rows["group_id"])
        topic, topics = codes_of(rows["topic"])
        yield GroupCommits(tuple(topics), topic=topic.astype(np.int32), **_commit_columns(rows)), group, group_ids


def commits_by_group(
    files: SilverFiles, log_partition: int, only: Set[str] | None, from_log_offset: int
) -> GroupedCommits:
    group_ids: dict[str, int] = {}
    topics: dict[str, int] = {}
    columns: dict[str, Any] = {}
    # np.zeros uses no memory until it is written to. So each column is filled row group by row group, and a column of
    # zeros only (one group, one topic, no transactions) uses none.
    counts = np.zeros(0, np.int64)
    count, capacity = 0, files.row_count_max(OFFSET_COMMITS, log_partition, from_log_offset=from_log_offset)
    pieces = files.iterate(OFFSET_COMMITS, COMMIT_COLUMNS, log_partition, COMMIT_TEXTS, from_log_offset=from_log_offset)
    for rows in only_groups(pieces, only):
        piece = {"group": _numbered(rows["group_id"], group_ids), "topic": _numbered(rows["topic"], topics)}
        piece |= _commit_columns(rows)
        so_far, counts = counts, np.bincount(piece["group"], minlength=len(group_ids))
        counts[: len(so_far)] += so_far
        end = count + rows.num_rows
        for name, values in piece.items():
            same = APPLIED_AS_RECORDED.get(name)
            if name not in columns:
                if same is not None and values is piece[same]:
                    continue
                columns[name] = np.zeros(capacity, values.dtype)
                if same is not None:
                    columns[name][:count] = columns[same][:count]
            if values.any():
                columns[name][count:end] = values
        count = end
    if not count:
        return GroupedCommits.of(())
    columns = {name: values[:count] for name, values in columns.items()}
    group = columns.pop("group")
    # after a filter the dictionary still has the strings of all rows
    present = np.flatnonzero(counts)
    if len(present) > 1 or not is_ascending(columns["log_offset"]):
        order = ordered_by(group, len(group_ids), columns["log_offset"])
        for name in columns:
            columns[name] = columns[name][order]
    for name, same in APPLIED_AS_RECORDED.items():
        columns.setdefault(name, columns[same])
    texts = list(group_ids)
    return GroupedCommits(
        tuple(texts[code] for code in present.tolist()),
        np.repeat(np.arange(len(present)), counts[present]) if len(present) > 1 else np.zeros(count, np.int64),
        GroupCommits(tuple(topics), **columns),
    )


APPLIED_AS_RECORDED: Final = {"applied_log_offset": "log_offset", "applied_at_ms": "recorded_at_ms"}
"""Pairs of columns that are equal for plain commits, so that one array serves both."""


def _numbered(column: pa.ChunkedArray, numbers: dict[str, int]) -> I32:
    """Strings as numbers, in order of appearance over all row groups; -1: null."""
    codes, texts = codes_of(column)
    of_text = np.array([*(numbers.setdefault(text, len(numbers)) for text in texts), -1], np.int32)
    return of_text[codes]


def _expiry_column(column: pa.ChunkedArray) -> I64:
    """Times as epoch milliseconds; NO_EXPIRY for null, as nearly all are."""
    if column.null_count == len(column):
        return np.full(len(column), NO_EXPIRY, np.int64)
    found = epoch_ms_column(column)
    return np.where(found < 0, NO_EXPIRY, found)


def _commit_columns(rows: pa.Table) -> dict[str, Any]:
    """Columns of `GroupCommits` without topics; equal columns share one array."""
    columns = {
        "partition": small_numbers_of(rows["partition"]),
        "log_offset": numbers_of(rows["log_offset"]),
        "recorded_at_ms": epoch_ms_column(rows["recorded_at"]),
        "applied_log_offset": numbers_of(rows["applied_log_offset"]),
        "applied_at_ms": epoch_ms_column(rows["applied_at"]),
        "committed_offset": numbers_of(rows["committed_offset"]),
        "previous_offset": numbers_of(rows["previous_offset"]),
        "outcome": indices_in(rows["outcome"], OUTCOMES),
        "change": indices_in(rows["change"], CHANGES),
        "is_transactional": rows["is_transactional"].fill_null(False).to_numpy(),
        "expire_at_ms": _expiry_column(rows["expire_time"]),
        "may_be_transactional": rows["is_transactional"].is_null().to_numpy(),
    }
    for name, other in APPLIED_AS_RECORDED.items():
        if np.array_equal(columns[name], columns[other]):
            columns[name] = columns[other]
    return columns
