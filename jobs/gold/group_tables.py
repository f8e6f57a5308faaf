"""The gold tables with rows of groups: where their rows come from, and which earlier rows an audit keeps.

An incremental audit infers the groups with new records that affect more than counts. It rewrites the rows of such a
group after the end of its settled past, and keeps earlier rows. So two entries must use the same scale: `place`, the
position of a row of gold, and `watermark`, the position up to which rows stay.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.inference.audit.audit_watermark import AuditWatermark
from coordinator_core.inference.audit.groups import GroupGold
from jobs.delta.arrow_columns import day_starts, epoch_ms_column, numbers_of
from schemas.tables.declare import Table
from schemas.tables.gold import COMMIT_ANOMALIES, GROUP_SUMMARY, LAG_HISTORY, PARTITION_OWNERS, REBALANCES

NO_PLACE: Final = -(2**62)
EVERY_PLACE: Final = 2**62


@dataclass(frozen=True, slots=True)
class GroupTable:
    """One gold table with rows of groups."""

    table: Table
    rows: Callable[[GroupGold], Sequence[Any]] | None
    """Its rows in the result of the inference; None: they do not come from there."""
    place: Callable[[pa.Table], I64] | None = None
    """The position of each row. None: all rows of a group are rewritten if it is audited from its beginning, else it
    only gets additional rows."""
    watermark: Callable[[AuditWatermark], int] | None = None
    """The position, on the same scale, up to which rows of a group with a settled past stay."""

    def written_again(
        self, noted: Set[str], whole: Set[str], watermarks: Mapping[str, AuditWatermark]
    ) -> dict[str, int]:
        """The groups whose rows are rewritten, with the position after which they are.

        `noted`: groups with new records that affect more than counts; `whole`: those of them that are audited from
        their beginning.
        """
        if self.watermark is None:
            return dict.fromkeys(whole, NO_PLACE)
        return dict.fromkeys(noted, NO_PLACE) | {
            group_id: self.watermark(past) for group_id, past in watermarks.items()
        }

    def places(self, rows: pa.Table) -> I64:
        """The positions of rows of gold."""
        return np.zeros(rows.num_rows, np.int64) if self.place is None else self.place(rows)


def _ends(rows: pa.Table) -> I64:
    ends = numbers_of(rows["to_log_offset"])
    return np.where(ends < 0, EVERY_PLACE, ends)


GROUP_TABLES: Final[Mapping[Table, GroupTable]] = {
    entry.table: entry
    for entry in (
        GroupTable(PARTITION_OWNERS, attrgetter("owners"), _ends, attrgetter("generation_at")),
        GroupTable(
            REBALANCES, attrgetter("rebalances"), lambda rows: epoch_ms_column(rows["started_at"]), attrgetter("at_ms")
        ),
        GroupTable(COMMIT_ANOMALIES, attrgetter("anomalies")),
        GroupTable(GROUP_SUMMARY, attrgetter("days"), lambda rows: day_starts(rows["day"])),
        GroupTable(LAG_HISTORY, None, lambda rows: numbers_of(rows["log_offset"])),
    )
}
ADDED_UP: Final = frozenset({GROUP_SUMMARY, LAG_HISTORY})
"""Tables whose earlier rows do not go by which groups are judged: counts are added to those of days, and the lag of a
commit depends on samples (`jobs.gold.audit_lag`)."""
