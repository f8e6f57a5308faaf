"""Delta tables that a job has opened: each is opened once, and brought up to date when it is asked for.

A job looks at each table a dozen times. To open one is to read Delta's log since its last checkpoint; to bring a handle
up to date is to list that log and to read what was committed since. On a local disk the folder of the log says whether
anything was: nearly always nothing, which then costs two calls of the system.
"""

from pathlib import Path
from typing import NamedTuple

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError


class _Opened(NamedTuple):
    table: DeltaTable
    changed_ns: int | None
    """When the folder of its log had last changed, before the table was looked at; None of a store."""


class Handles:
    """Tables as they were when they were last looked at, by path or URI."""

    def __init__(self) -> None:
        self._opened: dict[str, _Opened] = {}

    def put(self, path: str, table: DeltaTable) -> None:
        """Take over a table that was opened elsewhere, or just created."""
        self._opened[path] = _Opened(table, None)

    def newest(self, path: str) -> DeltaTable:
        """The table at its newest version."""
        log = None if "://" in path else Path(path, "_delta_log")
        changed_ns = None if log is None else _changed_ns(log)
        opened = self._opened.get(path)
        if (
            opened is not None
            and log is not None
            and changed_ns is not None
            and changed_ns == opened.changed_ns
            # the folder's time is coarse: a commit in the same moment is seen by its file
            and not (log / f"{opened.table.version() + 1:020}.json").exists()
        ):
            return opened.table
        table = None if opened is None else _updated(opened.table)
        self._opened[path] = _Opened(table or DeltaTable(path), changed_ns)
        return self._opened[path].table


def _updated(table: DeltaTable) -> DeltaTable | None:
    """The table with what was committed since; None where its log of that time was cleaned up."""
    try:
        table.update_incremental()
    except DeltaError:
        return None
    return table


def _changed_ns(folder: Path) -> int | None:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return None
