"""Refuse a warehouse that a newer version of the project wrote: what an older one would make of it is less."""

import json
from typing import Final

from coordinator_core.history.checkpoint import STATE_FORMAT
from jobs.delta.silver_format import NEWER, SILVER_FORMAT, other_version
from jobs.delta.warehouse import Warehouse
from jobs.errors import WarehouseError
from jobs.gold.snapshot import AUDIT_FORMAT
from schemas.tables.state import RUN_STARTS, RUNS

FORMATS: Final = (
    (RUNS, "replay_version", "silver_format", SILVER_FORMAT),
    (RUN_STARTS, "replay_version", "silver_format", SILVER_FORMAT),
    (RUN_STARTS, "replay_version", "state_format", STATE_FORMAT),
    (RUNS, "audit_version", "settings", AUDIT_FORMAT),
)
"""Where runs keep the format of what they write: the table, the number of a run, the column, and our own format."""


def require_not_newer(warehouse: Warehouse) -> None:
    """Raise WarehouseError where the newest run of any cluster has a format above our own. It only reads."""
    for table, number, column, own in FORMATS:
        rows = warehouse.read(table, ["cluster_id", number, column]).to_pylist()
        newest = {row["cluster_id"]: row[column] for row in sorted(rows, key=lambda row: row[number] or -1)}
        for cluster_id, found in newest.items():
            format_ = json.loads(found or "{}").get("format") if column == "settings" else found
            if other_version(format_, own) == NEWER:
                raise WarehouseError(
                    f"cluster {cluster_id!r} in {warehouse.root} was made by {NEWER} of the project "
                    f"({table.full_name}: format {format_}, here {own}): run that version; nothing was changed"
                )
