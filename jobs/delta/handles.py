"""Open Delta tables of a job: each is opened once, and refreshed on access.

A job uses each table a dozen times. Opening one means reading Delta's log since its last checkpoint; refreshing a
handle means listing the log and reading newer commits. On a local disk the modification time of the log folder shows
whether there are any. Mostly there are none, which then costs two system calls.
"""

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Final, NamedTuple

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from jobs.delta.filesystems import filesystem_of, table_of
from jobs.delta.scanner import Scanner, fault_of
from jobs.errors import TableDamaged

LOG: Final = "_delta_log"
COMMIT: Final = ".json"
CHECKPOINT: Final = re.compile(r"\d{20}\.checkpoint\.(.+\.)?parquet$")
"""Names of files in a log: a version, and what it is."""
UNFINISHED: Final = ("*#*", "_commit_*.json.tmp")
"""Names of temporary files in a log on a local disk: of this delta-rs, and of former releases."""


class _Opened(NamedTuple):
    table: DeltaTable
    changed_ns: int | None
    """Modification time of the log folder before the table was read; None for object stores."""
    last_versions: dict[str, tuple[int, int]]
    """By application id: a version of the table, and the newest version that the application had committed to it."""


class Handles:
    """Tables as of the last refresh, by path or URI."""

    def __init__(self) -> None:
        self._opened: dict[str, _Opened] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._opened

    def put(self, path: str, table: DeltaTable) -> None:
        """Add a table that was just created."""
        self._opened[path] = _Opened(table, _changed_ns(path), {})

    def forget(self, path: str) -> None:
        """Drop the table, whose folder was deleted."""
        self._opened.pop(path, None)

    def newest(self, path: str) -> DeltaTable:
        changed_at_ns = _changed_ns(path)
        opened = self._opened.get(path)
        if (
            opened is not None
            and changed_at_ns is not None
            and changed_at_ns == opened.changed_ns
            # the folder's time is coarse: a commit within the same clock step is found by its file name
            and not os.access(f"{path}/{LOG}/{opened.table.version() + 1:020}.json", os.F_OK)
        ):
            return opened.table
        table = None if opened is None else _updated(opened.table)
        last_versions = {} if opened is None or table is None else opened.last_versions
        self._opened[path] = _Opened(table or open_table(path), changed_at_ns, last_versions)
        return self._opened[path].table

    def last_version(self, path: str, app_id: str) -> int:
        """The newest version that an application committed to the table, or -1. delta-rs, which takes 2 ms, is asked
        once for each version of the table."""
        table = self.newest(path)
        versions = self._opened[path].last_versions
        if app_id not in versions or versions[app_id][0] != table.version():
            last = table.transaction_version(app_id)
            versions[app_id] = table.version(), -1 if last is None else int(last)
        return versions[app_id][1]


def open_table(path: str, version: int | None = None) -> DeltaTable:
    """Open a table. Raises TableDamaged where a file of its log is gone, or is not what was written."""
    try:
        table = DeltaTable(path, version=version)
    except (DeltaError, OSError) as error:
        damage = log_damage(path, is_parsed=True)
        if damage is None:
            raise
        raise damage from error
    # delta-rs takes an empty commit for one that changes nothing
    if version is None and "://" not in path and (damage := log_damage(path, is_parsed=False)) is not None:
        raise damage
    return table


def log_damage(path: str, *, is_parsed: bool) -> TableDamaged | None:
    """The first damaged file of a table's log, of those that its newest version needs; None: there is none.

    `is_parsed`: read the files, too; else only look at their sizes.
    """
    place = table_of(path)
    if place is None:
        return None
    filesystem, folder = filesystem_of(f"{path}/{LOG}")
    infos = {info.base_name: info for info in filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))}

    def text_of(name: str) -> str:
        with filesystem.open_input_file(f"{folder}/{name}") as source:
            return str(source.read(), "utf-8")

    def fault_in(name: str) -> str | None:
        fault = fault_of(infos.get(name, fs.FileInfo(name, fs.FileType.NotFound)), None)
        if fault is not None or not is_parsed:
            return fault
        try:
            if name.endswith(COMMIT):
                for line in filter(str.strip, text_of(name).split("\n")):
                    json.loads(line)
            else:
                with Scanner(f"{path}/{LOG}/{name}") as scanner:
                    scanner.read()
        except TableDamaged as damage:
            return damage.fault
        except PermissionError:
            return "permission denied"
        except ValueError:
            return "it is not what was written"
        return None

    checkpoint = max((int(name[:20]) for name in infos if CHECKPOINT.match(name)), default=-1)
    with suppress(KeyError, ValueError, OSError):  # it is only a hint
        checkpoint = max(checkpoint, int(json.loads(text_of("_last_checkpoint"))["version"]))
    commits = [int(name[:20]) for name in infos if name.endswith(COMMIT) and name[:20].isdigit()]
    needed = [f"{version:020}{COMMIT}" for version in range(checkpoint + 1, max(commits, default=0) + 1)]
    if checkpoint >= 0:
        needed += [name for name in infos if CHECKPOINT.match(name) and int(name[:20]) == checkpoint] or [
            f"{checkpoint:020}.checkpoint.parquet"
        ]
    for name in needed:
        if (fault := fault_in(name)) is not None:
            return TableDamaged(place[1], f"{path}/{LOG}/{name}", fault)
    return None


def _updated(table: DeltaTable) -> DeltaTable | None:
    """The refreshed table; None where the log files it needs were cleaned up."""
    try:
        table.update_incremental()
    except DeltaError:
        return None
    return table


def has_log(path: str) -> bool:
    """Does the folder have a Delta log? Called hundreds of times a night; a `Path` would take longer than the check."""
    return os.access(f"{path}/{LOG}", os.F_OK)


def delete_unfinished(path: str, *, age_seconds_min: float) -> None:
    """Delete temporary files of killed commits from a table's log, since they contain statistics of rows."""
    for name in UNFINISHED if "://" not in path else ():
        for file in Path(path, LOG).glob(name):
            with suppress(OSError):
                if time() - file.stat().st_mtime >= age_seconds_min:
                    file.unlink()


def _changed_ns(path: str) -> int | None:
    """When the log of a table was last changed (ns); None where it cannot be read, and in object stores."""
    try:
        # asked thousands of times a night: a Path costs more
        return None if "://" in path else os.stat(f"{path}/{LOG}").st_mtime_ns  # noqa: PTH116
    except OSError:
        return None
