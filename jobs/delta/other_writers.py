"""Find writes to the ledger's tables by anyone but its own jobs: otherwise a deleted row would go unnoticed.

Every commit of a job names its application (Delta's `txn` action). A commit that changes rows without one is foreign: a
DELETE, MERGE or RESTORE in SQL, for example. Commits that only move rows (OPTIMIZE, VACUUM), and those that change
other columns or properties, change no answer.

A replay or audit saves the version of each table. Readers check the commits after it. So does the next run, which keeps
its findings (`foreign_versions` of state.runs) until everything is rebuilt.

A table of an earlier version was deleted, or restored from an older copy than the others (`set_back`). Then silver and
gold are made again; of bronze nothing can be made again, so captures are refused.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from pyarrow import fs

from jobs.console.command_name import command
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.filesystems import filesystem_of
from jobs.delta.replay_runs import newest_row
from jobs.delta.warehouse import Warehouse
from jobs.errors import WarehouseError
from schemas.tables import TABLES
from schemas.tables.bronze import COVERAGE, QUARANTINE, RECORD_BATCHES
from schemas.tables.declare import Table

SOURCE_TABLES: Final = (RECORD_BATCHES, COVERAGE, QUARANTINE)
"""Tables of bronze from which silver and gold are made."""
COMMITS_READ_MAX: Final = 500
"""Maximum number of commits checked for one table: a continuous capture makes one each second."""

_OURS: Final = re.compile(r'"appId"\s*:\s*"(groupledger/|capture/|watch/)')
_CHANGES_ROWS: Final = re.compile(r'"dataChange"\s*:\s*true')
"""Quotes are escaped inside JSON strings, so neither pattern can match within a value."""
_OWN_OPERATIONS: Final = frozenset({"Manual Update", "CREATE OR REPLACE TABLE"})
"""Operations of maintain in older versions, and of recreating a table with another layout; SQL DML has others."""

RESTORE_BRONZE: Final = "restore the whole warehouse from one copy, or capture into a new warehouse"
"""What to do about tables of bronze that are older than a run left them."""


class ForeignWrite(NamedTuple):
    """A foreign commit that changed rows."""

    table: str
    version: int
    operation: str = ""
    """As Delta's log names it; empty where the log no longer has it."""
    is_set_back: bool = False
    """No write: the table is of this version, and the last run left a later one."""


def foreign_writes(
    warehouse: Warehouse, table: Table, after_version: int, to_version: int | None = None
) -> Iterator[ForeignWrite]:
    """Foreign commits to a table after one version, up to another (None: the newest), in order."""
    filesystem, folder = filesystem_of(f"{warehouse.path(table)}/_delta_log")
    first = after_version + 1
    if to_version is not None:
        first = max(first, to_version - COMMITS_READ_MAX)
    for version in range(first, first + COMMITS_READ_MAX):
        path = f"{folder}/{version:020d}.json"
        if to_version is not None and version > to_version:
            return
        if filesystem.get_file_info(path).type != fs.FileType.File:
            if to_version is None:
                return
            continue  # removed by Delta's log cleanup
        with filesystem.open_input_file(path) as source:
            text = source.read().decode("utf-8", errors="replace")
        operation = _operation(text)
        if _CHANGES_ROWS.search(text) and not _OURS.search(text) and operation not in _OWN_OPERATIONS:
            yield ForeignWrite(table.full_name, version, operation)


def _operation(text: str) -> str:
    for line in text.splitlines():
        if '"commitInfo"' in line:
            try:
                return str(json.loads(line).get("commitInfo", {}).get("operation", ""))
            except (ValueError, AttributeError):
                return ""
    return ""


def later_writes(
    warehouse: Warehouse, known: Mapping[str, int], before: Mapping[str, int], after: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Versions of foreign writes, by table: the `known` ones, and those between two versions of each table (`after`
    None: up to the newest).
    """
    found = dict(known)
    for name, version in before.items():
        if name in TABLES and (after is None or name in after):
            to_version = None if after is None else after[name]
            for write in foreign_writes(warehouse, TABLES[name], version, to_version):
                found[name] = write.version
    return found


def set_back(warehouse: Warehouse, left: Mapping[str, int]) -> dict[str, int]:
    """The versions of the tables that are older than a run left them (`left`)."""
    tables = [TABLES[name] for name in left if name in TABLES]
    now = zip(tables, warehouse.at_once(warehouse.version, tables), strict=True)
    return {table.full_name: version for table, version in now if version < left[table.full_name]}


def lacks_run(warehouse: Warehouse, left: Mapping[str, int], app_id: str, number: int) -> bool:
    """Was a table that a run left (`left`) deleted, or restored from an older copy? `number`: the version of the run's
    commits; what other clusters wrote since may have made the table's version as high as before."""
    tables = [TABLES[name] for name in left if name in TABLES]
    last = warehouse.at_once(lambda table: warehouse.last_version(table, app_id), tables)
    return bool(set_back(warehouse, left)) or any(version < number for version in last)


def refuse_older_bronze(tables: ClusterTables) -> None:
    """Raise WarehouseError where tables of bronze are older than the last replay read them: coverage would speak of
    batches that are gone."""
    newest = newest_row(tables, "replay_version", ["bronze_versions"])
    back = {} if newest is None else set_back(tables.warehouse, dict(newest["bronze_versions"] or ()))
    if back:
        those = f"{', '.join(sorted(back))} {'is' if len(back) == 1 else 'are'}"
        raise WarehouseError(
            f"{those} older than the last replay read it: it was deleted, or restored from an older copy. "
            + RESTORE_BRONZE.capitalize()
        )


def written_by_others(tables: ClusterTables) -> list[ForeignWrite]:
    """The last foreign write of each table with rows of a cluster, by table."""
    found: dict[str, ForeignWrite] = {}
    for number in ("replay_version", "audit_version"):
        newest = newest_row(tables, number, ["table_versions", "bronze_versions", "foreign_versions"])
        if newest is None:
            continue
        for name, version in dict(newest["foreign_versions"] or ()).items():
            found[name] = ForeignWrite(name, version)
        left = {**dict(newest["table_versions"] or ()), **dict(newest["bronze_versions"] or ())}
        back = set_back(tables.warehouse, left)
        found |= {name: ForeignWrite(name, version, is_set_back=True) for name, version in back.items()}
        for name, version in left.items():
            if name in TABLES and name not in back:
                for write in foreign_writes(tables.warehouse, TABLES[name], version):
                    found[name] = write
    return [found[name] for name in sorted(found)]


def lines(writes: Iterable[ForeignWrite], options: str = "") -> Iterator[str]:
    """A line for each foreign write, with its remedy. `options` are added to the command."""
    for write in writes:
        by = f" with {write.operation}" if write.operation else ""
        layer = TABLES[write.table].layer
        job = "audit --rebuild" if write.table.startswith("gold.") or write.table == "state.audited_logs" else ""
        remedy = f"rebuild it with {command((job or 'replay --rebuild') + options)}"
        if write.is_set_back:
            if layer == "bronze":
                remedy = RESTORE_BRONZE
            yield f"{write.table} is older than the last run left it, deleted or restored from an older copy: {remedy}"
            continue
        if layer == "bronze":
            remedy = (
                f"restore its version {write.version - 1} (RESTORE TABLE, with sql --write) or capture into a new "
                f"warehouse, then run {command('replay --rebuild' + options)}"
            )
        yield f"{write.table} was changed by another program{by}, in version {write.version}: {remedy}"
