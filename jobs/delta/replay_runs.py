"""Runs of replay: whole ones, failed ones, and the tables as of a whole run.

A run writes its start (state.run_starts), then its tables one after another, each in its own Delta transaction. Its
row in state.runs comes last, with the version of each table. Readers use these versions, so they do not see what a
running or failed run has written. Nor do they see a replay that a night is about to audit: silver and gold of a night
appear together.

The next run repeats a failed one from the same version of bronze and the same state. Since the result is the same,
tables that already have it are skipped.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self, TypeVar

import pyarrow as pa

from coordinator_core.history.checkpoint import STATE_FORMAT
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.silver_format import SILVER_FORMAT
from jobs.delta.table_files import TableFile
from schemas.tables.declare import Table
from schemas.tables.state import RUN_STARTS, RUNS

Read = TypeVar("Read")
OTHERS_COLUMNS: Final = ("bronze_versions", "foreign_versions")
"""Columns of state.runs that identify foreign writes (`jobs.delta.other_writers`)."""


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a run: everything that determines what it writes."""

    replay_version: int
    run_id: str
    started_at: datetime
    bronze_version: int
    topics_version: int
    configs_version: int
    is_rebuild: bool
    silver_format: int = SILVER_FORMAT
    state_format: int = STATE_FORMAT
    capture_version: int | None = None
    """Number of the last capture that had committed to bronze."""

    @property
    def is_repeatable(self) -> bool:
        """True: this version of the project would write the same."""
        return (self.silver_format, self.state_format) == (SILVER_FORMAT, STATE_FORMAT)


class PinnedTables:
    """A cluster's rows of tables, each at its pinned Delta version, or at the newest where none is pinned.

    A run records its start before it writes. So if no start was recorded after a table was read, the newest version is
    whole. Otherwise the versions of the last whole run are pinned from then on.
    """

    def __init__(self, tables: ClusterTables, versions: Mapping[str, int]) -> None:
        self._tables = tables
        self._versions = dict(versions)
        self.left_versions: Mapping[str, int] = dict(versions)
        """The version of each table as of the last whole run."""
        self._left: Mapping[str, int] = {}
        """The versions to pin once another run has begun."""
        self._has_begun: Callable[[], bool] = lambda: False

    def watch(self, starts: Table, has_begun: Callable[[], bool], *, is_writer: bool) -> bool:
        """Pin nothing until another run begins: the tables are whole at their newest versions, whatever job wrote to
        them since the last run. Returns whether a run has begun already, which rules that out.

        `starts`: the table with starts of runs; it is read again only if its version changes. `is_writer`: nobody else
        can begin a run.
        """
        seen = self._tables.warehouse.version(starts)
        if has_begun():
            return True
        self._left, self._versions = self._versions, {}
        self._has_begun = lambda: not is_writer and self._tables.warehouse.version(starts) != seen and has_begun()
        return False

    def _while_whole(self, read: Callable[[], Read]) -> Read:
        """What is read of tables that are whole: if another run has begun meanwhile, the versions of the last whole run
        are pinned, and read in its place."""
        found = read()
        if not self._left or not self._has_begun():
            return found
        self._versions, self._left = dict(self._left), {}
        return read()

    def is_readable(self, table: Table) -> bool:
        """Does the pinned version still exist, with all its files? True for a table that is not pinned."""
        version = self.version_of(table)
        return version is None or self._tables.warehouse.has_version(table, version)

    def version_of(self, table: Table) -> int | None:
        """The Delta version at which to read a table; None: the newest."""
        return self._versions.get(table.full_name)

    def files(self, table: Table) -> tuple[TableFile, ...]:
        """The files of the cluster's rows."""
        return self._while_whole(lambda: self._tables.files(table, self.version_of(table)))

    def read(self, table: Table, columns: Sequence[str] | None = None, **where: Any) -> pa.Table:
        """The cluster's rows, on the driver; `where`: column values to filter by."""
        return self._while_whole(lambda: self._tables.read(table, columns, version=self.version_of(table), **where))


class WholeRun(PinnedTables):
    """The newest whole run of a cluster, and the tables as of that run.

    The newest version of a table is read if no run is known, if none has begun since, or if the run did not write the
    table.
    """

    def __init__(self, tables: ClusterTables, row: Mapping[str, Any] | None) -> None:
        super().__init__(tables, (row or {}).get("table_versions") or {})
        self.is_known = row is not None
        self.bronze_versions = dict((row or {}).get("bronze_versions") or ())
        self.foreign_versions = dict((row or {}).get("foreign_versions") or ())
        self.replay_version: int = number_of((row or {}).get("replay_version"))
        self.admin_version: int | None = None if row is None else row["admin_version"]
        """Version of the Admin snapshots that the run read (sum over both tables)."""

    @classmethod
    def newest(cls, tables: ClusterTables, *, is_writer: bool = False, with_unaudited: bool = False) -> Self:
        """From the current state.runs. `is_writer`: the caller is about to begin a run, and nobody else can.
        `with_unaudited`: also a run that its night has not audited yet, which only jobs may see."""
        columns = ["table_versions", "admin_version", "audited_version", "is_audited_next", *OTHERS_COLUMNS]
        rows = tables.read(RUNS, ["audit_version", "replay_version", "started_at", *columns]).to_pylist()
        replays = [row for row in rows if row["audit_version"] is None]
        is_all = is_writer or with_unaudited
        whole = cls(tables, _newest(replays if is_all else visible(rows), "replay_version"))
        whole.watch(RUN_STARTS, lambda: broken_off(tables, whole) is not None, is_writer=is_writer)
        return whole


def number_of(version: int | None) -> int:
    """-1 for None: runs of older versions of the project have no number."""
    return -1 if version is None else version


def ended(tables: ClusterTables, number: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of state.runs; `number`: the column with the numbers of the runs, of replays or of audits."""
    names = dict.fromkeys(("audit_version", number, *columns))
    rows = tables.read(RUNS, list(names)).to_pylist()
    return [row for row in rows if (row["audit_version"] is not None) == (number == "audit_version")]


def newest_row(tables: ClusterTables, number: str, columns: Sequence[str]) -> Mapping[str, Any] | None:
    """The row of the newest run of a cluster; `number`: the column with the numbers of the runs."""
    return _newest(ended(tables, number, ["started_at", *columns]), number)


def _newest(rows: Iterable[Mapping[str, Any]], number: str) -> Mapping[str, Any] | None:
    return max(rows, key=lambda row: (number_of(row[number]), row["started_at"]), default=None)


def visible(rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The replays that readers may see, among the rows of state.runs of one cluster: not those that a night has not
    audited yet. All, as long as there is no other."""
    audited = max((number_of(row["audited_version"]) for row in rows), default=-1)
    replays = [row for row in rows if row["audit_version"] is None]
    seen = [row for row in replays if not row["is_audited_next"] or number_of(row["replay_version"]) <= audited]
    return seen or replays


def earlier_runs(tables: ClusterTables, whole: WholeRun) -> Iterator[WholeRun]:
    """Yield the whole runs before this one, newest first, each with the tables as of that run.

    Only those since the last rebuild: earlier ones may have another format or other settings.
    """
    starts = tables.read(RUN_STARTS, ["replay_version", "is_rebuild"]).to_pylist()
    rebuilt = max((row["replay_version"] for row in starts if row["is_rebuild"]), default=0)
    columns = ["replay_version", "table_versions", "admin_version"]
    rows = tables.read(RUNS, columns).to_pylist()
    by_version = {row["replay_version"]: row for row in rows if row["replay_version"] is not None}
    for version in sorted(by_version, reverse=True):
        if rebuilt <= version < whole.replay_version and by_version[version]["table_versions"]:
            yield WholeRun(tables, by_version[version])


def is_renamed_since(tables: ClusterTables, replay_version: int) -> bool:
    """Did a whole run after this one rewrite earlier rows under other names? True where that is not known."""
    rows = tables.read(RUNS, ["replay_version", "is_renamed"]).to_pylist()
    return any(row["is_renamed"] is not False for row in rows if (row["replay_version"] or -1) > replay_version)


def broken_off(tables: ClusterTables, whole: WholeRun) -> Start | None:
    """The last run that began after the newest whole one and did not end."""
    names = [field.name for field in dataclasses.fields(Start)]
    rows = tables.read(RUN_STARTS, names).to_pylist()
    started = [Start(**row) for row in rows if number_of(row["replay_version"]) > whole.replay_version]
    return max(started, key=lambda start: start.replay_version, default=None)
