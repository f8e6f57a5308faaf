"""Which rows of a group an audit needs: open rows, and rows that can still change a result."""

from collections.abc import Mapping, Set
from typing import Final

import numpy as np
import pyarrow as pa

from coordinator_core.bytes.log.chunk import I64, BoolArray
from coordinator_core.inference.audit.audit_watermark import AuditWatermark
from jobs.delta.arrow_columns import codes_of, numbers_of
from jobs.delta.part_files import LOG_PARTITION, TO_LOG_OFFSET
from jobs.silver.row_groups import END_OF_LOG, LOG_OFFSET, LogPartitions
from schemas.tables.declare import Table
from schemas.tables.silver import GROUP_EVENTS, OFFSET_COMMITS

TEXT_BYTES: Final = 100
"""Estimated memory of a string with its code."""


class SharedGroups:
    """The group of each row of a row group, and the log offset that decides whether the row is needed."""

    def __init__(self, table: Table, rows: pa.Table) -> None:
        self._table = table
        self._group, self._group_ids = codes_of(rows["group_id"])
        self._numbers = {group_id: number for number, group_id in enumerate(self._group_ids)}
        self._place = _places_of(table, rows)
        self._log_partitions = LogPartitions(numbers_of(rows[LOG_PARTITION]))
        self.size_bytes = rows.num_rows * 3 * np.dtype(np.int64).itemsize + len(self._group_ids) * TEXT_BYTES

    def needed_counts(self, log_partition: int, group_ids: Set[str], watermarks: "AuditWatermarks") -> dict[str, int]:
        """Number of needed rows of each of some groups in a log partition."""
        is_needed = self.needed(log_partition, group_ids, watermarks)
        if not is_needed.any():
            return {}
        counts = np.bincount(self._group[self._log_partitions.rows_of(log_partition)][is_needed])
        return {self._group_ids[number]: int(counts[number]) for number in np.flatnonzero(counts).tolist()}

    def needed(self, log_partition: int, group_ids: Set[str], watermarks: "AuditWatermarks") -> BoolArray:
        """Which rows of a log partition are needed, for some groups."""
        own = self._log_partitions.rows_of(log_partition)
        group, place = self._group[own], self._place[own]
        if not len(group):
            return np.zeros(0, np.bool_)
        after = np.full(len(self._numbers), END_OF_LOG)
        for group_id in group_ids & self._numbers.keys():
            after[self._numbers[group_id]] = _needed_after(self._table, watermarks.get(group_id))
        is_needed: BoolArray = place > after[group]
        return is_needed


AuditWatermarks = Mapping[str, AuditWatermark]
"""By group id, which of its rows are needed; of other groups, all are."""
NO_WATERMARKS: Final[AuditWatermarks] = {}


def _needed_after(table: Table, watermarks: AuditWatermark | None) -> int:
    """Rows of a group after this log offset are needed; -1: all are."""
    if watermarks is None:
        return -1
    return watermarks.events_from - 1 if table is GROUP_EVENTS else watermarks.generation_at


def _places_of(table: Table, rows: pa.Table) -> I64:
    """The log offset of each row that decides whether it is needed; END_OF_LOG for open rows."""
    places = numbers_of(rows[place_column(table)])
    return np.where(places < 0, END_OF_LOG, places)


def events_from(table: Table, only: Set[str] | None, watermarks: AuditWatermarks) -> int:
    """Events of some groups are needed from this log offset on; 0: all are needed, or it is another table."""
    if table is not GROUP_EVENTS or only is None or not only <= watermarks.keys():
        return 0
    return min((watermarks[group_id].events_from for group_id in only), default=0)


def all_ended_by(table: Table, only: Set[str] | None, watermarks: AuditWatermarks) -> int:
    """Rows of some groups that ended up to this log offset are not needed; -1: all are needed, or it is
    another table.
    """
    if table in (GROUP_EVENTS, OFFSET_COMMITS) or only is None or not only <= watermarks.keys():
        return -1
    return min((watermarks[group_id].generation_at for group_id in only), default=-1)


def place_column(table: Table) -> str:
    return LOG_OFFSET if table in (GROUP_EVENTS, OFFSET_COMMITS) else TO_LOG_OFFSET
