"""Merge small files of a table: which files are merged, and the task that merges them.

Delta's own OPTIMIZE (in Spark and delta-rs) selects files of a bin by size and mixes their rows. Readers here rely on
more: replay treats all offsets between the first and the last of a bronze file as captured, and reads row groups in
offset order; the audit reads only row groups of one log partition. So adjacent files are merged, row group by row group
in that order, and only where no offset between them can be captured later.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, groupby
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.bytes.coverage import subtract
from coordinator_core.bytes.log_partitions import LogPartition, OffsetRange
from jobs.bronze.writer import BATCHES, is_damaged, offsets_of
from jobs.delta.arrow_schemas import TIMESTAMP_TYPE
from jobs.delta.part_files import PartTarget, PartWriter, WrittenFile
from jobs.delta.row_groups import row_groups_in_order
from jobs.delta.table_files import TableFile
from schemas.tables.bronze import RECORD_BATCHES
from schemas.tables.declare import Table

MERGED: Final = "merged"
"""Name of merged files in all tables except bronze's."""
ROW_GROUP_BYTES: Final = 8 * 1024 * 1024
"""Smaller row groups are merged: a reader reads this much at a time."""
FULL_SHARE: Final = 0.75
"""A file with this share of the wanted size is large enough."""


@dataclass(frozen=True, slots=True)
class MergeWork:
    """Files of one partition of a table to be merged. Small and picklable, as it is sent to a task."""

    target: PartTarget
    files: tuple[TableFile, ...]
    keep_from: datetime | None = None
    """Rows that are older, by the table's `age_column`, are left out."""


@dataclass(frozen=True, slots=True)
class MergeDone:
    removed: tuple[TableFile, ...]
    added: tuple[WrittenFile, ...]
    row_count: int
    """Number of rows in the files removed."""

    @property
    def left_out_count(self) -> int:
        """Number of rows that no new file contains."""
        return self.row_count - sum(file.row_count for file in self.added)


def merge_plan(
    files: Iterable[TableFile],
    target: PartTarget,
    *,
    file_bytes: int,
    file_count_min: int,
    holes: Mapping[tuple[str, LogPartition], Sequence[OffsetRange]] | None = None,
) -> list[MergeWork]:
    """The files to be merged: adjacent files smaller than `file_bytes`, at least `file_count_min` together.

    Unsettled rows are skipped, since the next run replaces them. For bronze.record_batches, files are adjacent if no
    offset is missing between them other than compacted ones: `holes`, by (cluster id, log partition).
    """
    works = []
    partitions = sorted(files, key=_partition_key)
    for _, in_partition in groupby(partitions, key=_partition_key):
        together = list(in_partition)
        if together[0].partition_values.get("is_settled") is False:
            continue
        slices: Iterable[list[TableFile]] = [sorted(together, key=lambda file: file.path)]
        if target.table is RECORD_BATCHES:
            slices = _intervals(together, holes or {})
        for slice_ in slices:
            works += [
                MergeWork(target, tuple(bin_)) for bin_ in _bins(slice_, file_bytes) if len(bin_) >= file_count_min
            ]
    return works


def _partition_key(file: TableFile) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, repr(value)) for name, value in file.partition_values.items()))


def _bins(slice_: Iterable[TableFile], file_bytes: int) -> Iterator[list[TableFile]]:
    bin_: list[TableFile] = []
    size_bytes = 0
    for file in slice_:
        is_full = file.size_bytes >= FULL_SHARE * file_bytes
        if bin_ and (is_full or size_bytes + file.size_bytes > file_bytes):
            yield bin_
            bin_, size_bytes = [], 0
        if not is_full:
            bin_.append(file)
            size_bytes += file.size_bytes
    if bin_:
        yield bin_


def _intervals(
    files: Iterable[TableFile], holes: Mapping[tuple[str, LogPartition], Sequence[OffsetRange]]
) -> Iterator[list[TableFile]]:
    """Yield files of one log partition in offset order, split where an offset could still be captured."""
    whole = [file for file in files if file.row_count and not is_damaged(file)]
    slice_: list[TableFile] = []
    next_offset = 0
    for file in sorted(whole, key=lambda file: (file.minimum["base_offset"], file.path)):
        first, last = offsets_of(file)
        if slice_ and first > next_offset and subtract([(next_offset, first - 1)], holes.get(log_of(file), ())):
            yield slice_
            slice_ = []
        slice_.append(file)
        next_offset = max(next_offset, last + 1)
    if slice_:
        yield slice_


def log_of(file: TableFile) -> tuple[str, LogPartition]:
    """(cluster id, log partition) of a file of bronze.record_batches."""
    values = file.partition_values
    return values["cluster_id"], (values["topic"], values["partition"])


def merge_files(work: MergeWork) -> MergeDone:
    """Merge some files into one. Runs in a Spark task, with a row group or two in memory."""
    table = work.target.table
    row_count = 0

    def kept() -> Iterator[pa.Table]:
        nonlocal row_count
        for rows in row_groups_in_order(work.files, table):
            row_count += rows.num_rows
            yield rows if work.keep_from is None else _young(rows, table, work.keep_from)

    chunks = large_chunks(kept())
    first = next(chunks, None)
    if first is None:
        return MergeDone(work.files, (), row_count)
    name = BATCHES if table is RECORD_BATCHES else MERGED
    with PartWriter(work.target, name, work.files[0].partition_values) as writer:
        for rows in chain([first], chunks):
            writer.write(rows)
        added = writer.close()
    return MergeDone(work.files, (added,), row_count)


def large_chunks(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in larger chunks, none of them empty."""
    waiting: list[pa.Table] = []
    for part in parts:
        if part.num_rows:
            waiting.append(part)
        if sum(rows.nbytes for rows in waiting) >= ROW_GROUP_BYTES:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _young(rows: pa.Table, table: Table, keep_from: datetime) -> pa.Table:
    """Without rows older than `keep_from`; rows without a time stay."""
    assert table.age_column is not None
    is_young = pc.greater_equal(rows[table.age_column], pa.scalar(keep_from, TIMESTAMP_TYPE))
    return rows.filter(pc.fill_null(is_young, True))
