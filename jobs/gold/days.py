"""The days of groups of one log partition, as the last audit wrote them: look-ups, and updates of their counts."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from coordinator_core.inference.audit.days import DayCounts
from jobs.delta.arrow_columns import codes_of, epoch_ms_column, numbers_of

Counts = Mapping[tuple[str, int], DayCounts]
"""By group and start of the day (ms)."""


class FormerDays:
    """Rows of gold.group_summary.

    There may be many (groups x days), so only the rows asked for become Python objects.
    """

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._group, group_ids = codes_of(rows["group_id"])
        self._day = epoch_ms_column(rows["day"])
        self._counts = tuple(numbers_of(rows[name]) for name in DayCounts._fields)
        self._numbers = {group_id: number for number, group_id in enumerate(group_ids)}
        self._order = np.lexsort((self._day, self._group))
        self._bounds = np.searchsorted(self._group[self._order], np.arange(len(group_ids) + 1))

    def of(self, group_id: str) -> dict[int, DayCounts]:
        number = self._numbers.get(group_id)
        if number is None:
            return {}
        rows = self._order[self._bounds[number] : self._bounds[number + 1]]
        columns = (column[rows].tolist() for column in self._counts)
        counts = map(DayCounts._make, zip(*columns, strict=True))
        return dict(zip(self._day[rows].tolist(), counts, strict=True))

    def has(self, group_id: str, day: int) -> bool:
        return self._row(group_id, day) >= 0

    def _row(self, group_id: str, day: int) -> int:
        """The index of the row of a day; -1 if there is none."""
        number = self._numbers.get(group_id)
        if number is None:
            return -1
        rows = self._order[self._bounds[number] : self._bounds[number + 1]]
        place = int(np.searchsorted(self._day[rows], day))
        return int(rows[place]) if place < len(rows) and self._day[rows[place]] == day else -1

    def counted(self, added: Counts, rebuilt: Mapping[str, int]) -> pa.Table:
        """The rows with `added` counts. Of `rebuilt` groups, only the rows up to the given day, inclusive."""
        found = [(row, counts) for place, counts in added.items() if (row := self._row(*place)) >= 0]
        at = np.array([row for row, _ in found], np.int64)
        rows = self._rows
        for index, name in enumerate(DayCounts._fields):
            column = self._counts[index].copy()
            column[at] += np.array([counts[index] for _, counts in found], np.int64)
            place = rows.schema.get_field_index(name)
            rows = rows.set_column(place, rows.schema.field(place), pa.array(column))
        newest = int(self._day.max(initial=0))
        until = np.full(len(self._numbers), newest, np.int64)
        for group_id, day in rebuilt.items():
            if group_id in self._numbers:
                until[self._numbers[group_id]] = day
        is_kept = self._day <= until[self._group]
        return rows if is_kept.all() else rows.filter(pa.array(is_kept))
