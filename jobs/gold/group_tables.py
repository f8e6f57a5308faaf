"""The gold tables with rows of groups: where their rows come from, and which earlier rows an audit keeps.

An incremental audit infers the groups with new records that affect more than counts. Of such a group, rows of days
until the end of its settled past stay, and so do those of later days as long as they are what they were: a day that
differs is written again, with all later ones. What is open has no day, and comes after all days.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.inference.audit.groups import GroupGold
from coordinator_core.inference.facts.calendar import DAY_MS
from coordinator_core.inference.facts.clock import is_time
from jobs.delta.arrow_columns import day_starts, numbers_of
from jobs.delta.arrow_schemas import DAY
from schemas.tables.declare import Table
from schemas.tables.gold import COMMIT_ANOMALIES, GROUP_SUMMARY, LAG_HISTORY, PARTITION_OWNERS, REBALANCES

NO_PLACE: Final = -(2**62)
EVERY_PLACE: Final = 2**62


@dataclass(frozen=True, slots=True)
class GroupTable:
    """One gold table with rows of groups."""

    table: Table
    rows: Callable[[GroupGold], list[Any]] | None
    """Its rows in the result of the inference; None: they do not come from there."""
    goes_by_end: bool = False
    """Whether a group that is judged again gets all rows again that are not settled; else it only gets additional ones,
    unless it is judged from its beginning."""
    goes_by_offset: bool = False
    """Whether positions are log offsets; else they are first instants of days."""

    def places(self, rows: pa.Table) -> I64:
        """The positions of rows of gold."""
        if self.goes_by_offset:
            return numbers_of(rows["log_offset"])
        days = rows[DAY]
        return np.where(days.is_null().to_numpy(), EVERY_PLACE, day_starts(days))

    def leave_out(self, gold: GroupGold, until: int) -> None:
        """Leave out its rows up to a position."""
        if self.rows is not None:
            rows = self.rows(gold)
            rows[:] = [row for row in rows if self._place(row) > until]

    def sums(self, gold: GroupGold, after: int = NO_PLACE) -> dict[int, int]:
        """By position: a checksum of its rows of one group there."""
        found: dict[int, list[Any]] = {}
        for row in () if self.rows is None else self.rows(gold):
            if (place := self._place(row)) > after:
                found.setdefault(place, []).append(row)
        return {place: _sum_of(rows) for place, rows in found.items()}

    def _place(self, row: Any) -> int:
        at_ms = getattr(row, str(self.table.day_of))
        return at_ms // DAY_MS * DAY_MS if is_time(at_ms) else EVERY_PLACE


def _sum_of(rows: Sequence[Any]) -> int:
    return int.from_bytes(blake2b(repr(rows).encode(), digest_size=8).digest())


def equal_until(before: Mapping[int, int], now: Mapping[int, int]) -> int:
    """The position up to which the rows of two audits are equal, by their checksums; EVERY_PLACE: all are."""
    different = (day for day in {*before, *now} if before.get(day) != now.get(day))
    return min(different, default=EVERY_PLACE + 1) - 1


GROUP_TABLES: Final[Mapping[Table, GroupTable]] = {
    entry.table: entry
    for entry in (
        GroupTable(PARTITION_OWNERS, attrgetter("owners"), goes_by_end=True),
        GroupTable(REBALANCES, attrgetter("rebalances"), goes_by_end=True),
        GroupTable(COMMIT_ANOMALIES, attrgetter("anomalies")),
        GroupTable(GROUP_SUMMARY, attrgetter("days")),
        GroupTable(LAG_HISTORY, None, goes_by_offset=True),
    )
}
ADDED_UP: Final = frozenset({GROUP_SUMMARY, LAG_HISTORY})
"""Tables whose earlier rows do not go by which groups are judged: counts are added to those of days, and the lag of a
commit depends on samples (`jobs.gold.audit_lag`)."""
