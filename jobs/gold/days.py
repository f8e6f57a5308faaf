"""The days of groups, as the last audit wrote them: look-ups, and updates of their counts."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.inference.audit.days import NO_DAY, DayCounts
from coordinator_core.inference.facts.calendar import DAY_MS
from coordinator_core.inference.facts.rows import GroupDayRow
from jobs.delta.arrow_columns import codes_of, columns_read, day_starts, numbers_of
from jobs.delta.arrow_schemas import DAY, made_schema
from jobs.delta.part_files import LOG_PARTITION
from jobs.delta.table_files import TableFile, read_file
from jobs.gold.group_tables import EVERY_PLACE
from jobs.silver.rows import rows_of
from schemas.tables.gold import GROUP_SUMMARY

Counts = Mapping[tuple[str, int], DayCounts]
"""By group and start of the day (ms)."""
COLUMNS: Final = tuple(made_schema(GROUP_SUMMARY).names)


class FormerDays:
    """Rows of gold.group_summary of some log partitions. Days are read when they are first asked for, the newest first.

    There may be many rows (groups x days), so only those asked for become Python objects.
    """

    def __init__(self, files: Sequence[TableFile], log_partitions: Sequence[int]) -> None:
        self._files = [(_start_of(file.partition_values[DAY]), file) for file in files]
        self._own = pa.array(sorted(log_partitions), pa.int32())
        self._from_day = EVERY_PLACE
        self._index(columns_read(GROUP_SUMMARY, COLUMNS).empty_table())

    def _index(self, rows: pa.Table) -> None:
        group, group_ids = codes_of(rows["group_id"])
        places = np.stack((numbers_of(rows[LOG_PARTITION]), group))
        self._rows, self._day = rows, day_starts(rows[DAY])
        distinct, self._group = np.unique(places, axis=1, return_inverse=True)
        self._group = self._group.reshape(-1)
        self._numbers = {(log, group_ids[code]): number for number, (log, code) in enumerate(distinct.T.tolist())}
        self._counts = tuple(numbers_of(rows[name]) for name in DayCounts._fields)
        self._order = np.lexsort((self._day, self._group))
        self._bounds = np.searchsorted(self._group[self._order], np.arange(len(self._numbers) + 1))

    def _read(self, from_day: int) -> None:
        """Read the days from one on, as far as they are not read."""
        if from_day >= self._from_day:
            return
        parts = [self._rows]
        for day, file in self._files:
            if from_day <= day < self._from_day:
                rows = read_file(file, GROUP_SUMMARY, COLUMNS)
                parts.append(rows.filter(pc.is_in(rows[LOG_PARTITION], self._own)))
        self._from_day = from_day
        if len(parts) > 1:
            self._index(pa.concat_tables(parts))

    def of(self, log_partition: int, group_id: str, from_day: int = NO_DAY) -> dict[int, GroupDayRow]:
        """The days of a group from one on, ascending."""
        self._read(from_day)
        rows = self._of_group(log_partition, group_id)
        rows = rows[self._day[rows] >= from_day]
        found = self._rows.take(pa.array(rows))
        found = found.set_column(found.schema.get_field_index(DAY), DAY, pa.array(self._day[rows]))
        return {row.day: row for row in rows_of(found, GroupDayRow)}

    def _of_group(self, log_partition: int, group_id: str) -> Any:
        number = self._numbers.get((log_partition, group_id), -1)
        return self._order[self._bounds[number] : self._bounds[number + 1]] if number >= 0 else self._order[:0]

    def has(self, log_partition: int, group_id: str, day: int) -> bool:
        return self._row(log_partition, group_id, day) >= 0

    def _row(self, log_partition: int, group_id: str, day: int) -> int:
        """The index of the row of a day; -1 if there is none."""
        self._read(day)
        rows = self._of_group(log_partition, group_id)
        place = int(np.searchsorted(self._day[rows], day))
        return int(rows[place]) if place < len(rows) and self._day[rows[place]] == day else -1

    def counted(self, log_partition: int, added: Counts, rebuilt: Mapping[str, int]) -> tuple[pa.Table, dict[str, int]]:
        """Rows to be written again, with `added` counts; and by group, the position after which they take the place of
        the former ones. `rebuilt`: groups whose rows after a day are made again."""
        self._read(min((day for _, day in added), default=EVERY_PLACE))
        found = [
            (row, group_id, day, counts)
            for (group_id, day), counts in added.items()
            if (row := self._row(log_partition, group_id, day)) >= 0
        ]
        after, until = dict(rebuilt), np.full(len(self._numbers), EVERY_PLACE, np.int64)
        for _, group_id, day, _ in found:
            after[group_id] = min(after.get(group_id, EVERY_PLACE), day - DAY_MS)
        behind = until.copy()
        for group_id, day in after.items():
            number = self._numbers.get((log_partition, group_id), -1)
            if number >= 0:
                behind[number], until[number] = day, rebuilt.get(group_id, EVERY_PLACE)
        at = np.array([row for row, *_ in found], np.int64)
        rows = self._rows
        for index, name in enumerate(DayCounts._fields):
            column = self._counts[index].copy()
            column[at] += np.array([counts[index] for *_, counts in found], np.int64)
            field = rows.schema.field(name)
            rows = rows.set_column(rows.schema.get_field_index(name), field, pa.array(column).cast(field.type))
        is_again = (self._day > behind[self._group]) & (self._day <= until[self._group])
        return rows.filter(pa.array(is_again)), after


def _start_of(day: date | None) -> int:
    return NO_DAY if day is None else (day - date(1970, 1, 1)).days * DAY_MS
