"""What release 0.1.0 stored under another name, and no log has: the first job that writes carries it over.

Silver, gold and the state of their jobs are rebuilt from bronze instead. One release later, remove this module.
"""

from dataclasses import replace
from typing import Final

import pyarrow as pa

from jobs.delta.filesystems import delete_folder
from jobs.delta.warehouse import Warehouse
from schemas.tables.bronze import CONFIGS, TOPICS
from schemas.tables.state import OFFSET_RANGES, Ranges

CARRIED: Final = (
    (OFFSET_RANGES, "dropped", "deleted_at", "dropped_at"),
    (TOPICS, TOPICS.name, "observed_at", "told_at"),
    (CONFIGS, CONFIGS.name, "observed_at", "told_at"),
)
"""Tables, each with its name in 0.1.0, and a column with its name there."""
REBUILT: Final = ("starts", "logs", "groups", "names", "watermarks", "config_changes", "audits", "audit_starts")
"""Tables of `state` whose rows are made again."""


def carry_over(warehouse: Warehouse) -> None:
    """Store what 0.1.0 stored as this version does. Each table is one Delta commit: a job that ends in between leaves
    the old table or the new one, and the next job goes on."""
    for table, name, column, former_column in CARRIED:
        columns = (replace(it, name=former_column) if it.name == column else it for it in table.columns)
        former = replace(table, name=name, columns=tuple(columns), partition_by=("cluster_id",))
        if not warehouse.exists(former):
            continue
        if former_column in (warehouse.columns(former) or ()) and (name == table.name or not warehouse.exists(table)):
            rows = warehouse.read(former).rename_columns(list(table.column_names))
            if table is OFFSET_RANGES:
                kinds = pa.array([Ranges.DELETED] * rows.num_rows, pa.string())
                rows = rows.set_column(rows.column_names.index("kind"), "kind", kinds)
            warehouse.rebuild(table, rows)
        if name != table.name:
            warehouse.delete(former)
    for name in REBUILT:
        delete_folder(f"{warehouse.root}/state/{name}")
