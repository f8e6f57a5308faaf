"""The tables of gold with rows of groups: where their rows come from, and which rows of before an audit keeps.

An audit that goes on infers the groups of which more than commits is new. Of such a group, a table's rows are written
again from where its settled past ends; rows of before stay. So an entry says two things that must fit: `place`, the
column that says where a row of gold is, and `watermark`, the place of a settled past up to which rows stay.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from coordinator_core.inference.audit_watermark import AuditWatermark
from coordinator_core.inference.groups import GroupGold
from coordinator_core.log.chunk import I64
from jobs.delta.arrow_columns import epoch_ms_column, numbers_of
from schemas.tables.declare import Table
from schemas.tables.gold import COMMIT_ANOMALIES, GROUP_SUMMARY, LAG_HISTORY, PARTITION_OWNERS, REBALANCES

NO_PLACE: Final = -(2**62)
EVERY_PLACE: Final = 2**62


@dataclass(frozen=True, slots=True)
class GroupTable:
    """One table with rows of groups."""

    table: Table
    rows: Callable[[GroupGold], Sequence[Any]] | None
    """Its rows among those that were inferred; None: they do not come from there."""
    place: Callable[[pa.Table], I64] | None = None
    """Where each row is, in the terms of `watermark`. None: a group that is audited from its beginning has all of its
    rows written again, and another one only gets more."""
    watermark: Callable[[AuditWatermark], int] | None = None
    """Up to which place rows of a group with a settled past stay."""

    def written_again(
        self, noted: Set[str], whole: Set[str], watermarks: Mapping[str, AuditWatermark]
    ) -> dict[str, int]:
        """The groups of which rows are written again, and the place behind which they are. `noted`: of which more than
        commits is new; `whole`: those of them that are audited from their beginning."""
        if self.watermark is None:
            return dict.fromkeys(whole, NO_PLACE)
        return dict.fromkeys(noted, NO_PLACE) | {
            group_id: self.watermark(past) for group_id, past in watermarks.items()
        }

    def places(self, rows: pa.Table) -> I64:
        """Where rows of gold are."""
        return np.zeros(rows.num_rows, np.int64) if self.place is None else self.place(rows)


def _ends(rows: pa.Table) -> I64:
    ends = numbers_of(rows["to_log_offset"])
    return np.where(ends < 0, EVERY_PLACE, ends)


def _starts_ms(rows: pa.Table) -> I64:
    return epoch_ms_column(rows["started_at"])


GROUP_TABLES: Final[Mapping[Table, GroupTable]] = {
    entry.table: entry
    for entry in (
        GroupTable(PARTITION_OWNERS, attrgetter("owners"), _ends, attrgetter("generation_at")),
        GroupTable(REBALANCES, attrgetter("rebalances"), _starts_ms, attrgetter("at_ms")),
        GroupTable(COMMIT_ANOMALIES, attrgetter("anomalies")),
        GroupTable(GROUP_SUMMARY, attrgetter("days")),
        GroupTable(LAG_HISTORY, None),
    )
}
ADDED_UP: Final = frozenset({GROUP_SUMMARY, LAG_HISTORY})
"""An audit that goes on writes their rows of before itself: it adds to the counts of days, and has no samples."""
