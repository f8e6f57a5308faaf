"""The format of silver: a number kept with each replay that identifies incompatible versions of the project.

Replay rebuilds silver of another version from bronze. Jobs that only read silver raise an error instead: rows of other
versions lack columns, or have another meaning.
"""

from typing import Final

from jobs.console.command_name import command
from jobs.delta.cluster_tables import ClusterTables
from jobs.errors import WarehouseError
from schemas.tables.state import RUN_STARTS, RUNS

SILVER_FORMAT: Final = 7
"""Raise it when the columns of silver, or what replay writes into them, change."""
UNNUMBERED: Final = 1
"""The format of runs without a number."""

NEWER: Final = "a newer version"

NAMED_MAX: Final = 20
"""Number of clusters named in an error."""


def silver_format(tables: ClusterTables) -> int | None:
    """The format of a cluster's silver tables; None if no replay of it ever finished."""
    rows = tables.read(RUNS, ["started_at", "silver_format", "audit_version"]).to_pylist()
    replays = (row for row in rows if row["audit_version"] is None)
    newest = max(replays, key=lambda row: (row["started_at"], row["silver_format"] or UNNUMBERED), default=None)
    return None if newest is None else newest["silver_format"] or UNNUMBERED


def other_version(found: int | None, expected: int) -> str | None:
    """A name for a format that differs from the expected one; None where there is none, or where it is the expected
    one.
    """
    if found in (None, expected):
        return None
    assert found is not None
    return "an older version" if found < expected else NEWER


def require_current_silver(tables: ClusterTables) -> None:
    """Raise WarehouseError, with the remedy, where a cluster's silver is of another version or its first replay has not
    ended; also where the warehouse has only other clusters.
    """
    found = silver_format(tables)
    if found is None and tables.read(RUN_STARTS, ["run_id"]).num_rows:
        raise WarehouseError(
            f"the first replay of cluster {tables.cluster_id!r} in {tables.warehouse.root} has not ended: wait for it, "
            f"or, if it was interrupted, run {command('replay' + tables.place_words)}"
        )
    clusters = (
        sorted(set(tables.warehouse.read(RUNS, ["cluster_id"])["cluster_id"].to_pylist())) if found is None else []
    )
    if clusters:
        raise WarehouseError(
            f"{tables.warehouse.root} has nothing of cluster {tables.cluster_id!r}: name another --cluster-id, of "
            f"{', '.join(map(repr, clusters[:NAMED_MAX]))}{' and more' if len(clusters) > NAMED_MAX else ''}"
        )
    other = other_version(found, SILVER_FORMAT)
    if other is not None:
        remedy = f"run {command('replay' + tables.place_words)}, which rebuilds it"
        raise WarehouseError(
            f"silver of cluster {tables.cluster_id!r} in {tables.warehouse.root} was made by {other} of the project: "
            f"{'run that version' if other == NEWER else remedy}"
        )
