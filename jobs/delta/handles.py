"""Open Delta tables of a job: each is opened once, and refreshed on access.

A job uses each table a dozen times. Opening one means reading Delta's log since its last checkpoint; refreshing a
handle means listing the log and reading newer commits. On a local disk the modification time of the log folder shows
whether there are any. Mostly there are none, which then costs two system calls.
"""

from pathlib import Path
from typing import NamedTuple

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from jobs.delta.local_log import LOG, changed_ns


class _Opened(NamedTuple):
    table: DeltaTable
    changed_ns: int | None
    """Modification time of the log folder before the table was read; None for object stores."""


class Handles:
    """Tables as of the last refresh, by path or URI."""

    def __init__(self) -> None:
        self._opened: dict[str, _Opened] = {}

    def put(self, path: str, table: DeltaTable) -> None:
        """Add a table that was opened elsewhere or just created."""
        self._opened[path] = _Opened(table, None)

    def newest(self, path: str) -> DeltaTable:
        log = None if "://" in path else Path(path, LOG)
        changed_at_ns = None if log is None else changed_ns(str(log))
        opened = self._opened.get(path)
        if (
            opened is not None
            and log is not None
            and changed_at_ns is not None
            and changed_at_ns == opened.changed_ns
            # the folder's time is coarse: a commit within the same clock step is found by its file name
            and not (log / f"{opened.table.version() + 1:020}.json").exists()
        ):
            return opened.table
        table = None if opened is None else _updated(opened.table)
        self._opened[path] = _Opened(table or DeltaTable(path), changed_at_ns)
        return self._opened[path].table


def _updated(table: DeltaTable) -> DeltaTable | None:
    """The refreshed table; None where the log files it needs were cleaned up."""
    try:
        table.update_incremental()
    except DeltaError:
        return None
    return table
