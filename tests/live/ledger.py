"""Warehouses which the jobs make of a live broker, and what is compared of them."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from deltalake import DeltaTable

from jobs.spark.executors import Executor
from tests.conformance.recordings import make_warehouse_of
from tests.conformance.tables import Rows
from tests.live.disk import TOPICS

CLUSTER_ID: Final = "live"
SILVER: Final = (
    "silver.offset_commits",
    "silver.group_generations",
    "silver.group_members",
    "silver.member_assignments",
    "silver.group_events",
    "silver.share_partition_states",
    "silver.share_state_batches",
    "silver.share_batch_transitions",
)
"""Tables which follow from the logs of groups alone: names of topics and configs come from elsewhere too."""


class Ledger:
    """A warehouse with bronze and silver."""

    def __init__(self, executor: Executor, root: Path, **sources: Any) -> None:
        """Capture the sources (fields of `jobs.settings.Settings`) into a new warehouse, and replay."""
        self.root = root
        make_warehouse_of(executor, root, cluster_id=CLUSTER_ID, topics=TOPICS, **sources)

    def rows(self, table: str) -> Rows:
        """All rows of a table."""
        return rows_in(self.root, table)


def rows_in(warehouse: Path, table: str, columns: Sequence[str] | None = None) -> Rows:
    """All rows of a table of a warehouse, or some columns of them."""
    asked = None if columns is None else list(columns)
    rows: Rows = DeltaTable(str(warehouse / table.replace(".", "/"))).to_pyarrow_table(columns=asked).to_pylist()
    return rows


def counted(rows: Rows, without: Sequence[str] = ()) -> Counter[str]:
    """Rows as a multiset, without some columns."""
    return Counter(repr(sorted((name, row[name]) for name in row if name not in without)) for row in rows)
