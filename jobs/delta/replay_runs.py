"""Runs of replay: which ones are whole, which one broke off, and the tables as a whole run left them.

A run writes its start (state.replay_starts), then its tables one after another, each in a Delta transaction of its own.
Its row in state.runs comes last, with the version that each table then has. Readers read at these versions: they do not
see what a run that is under way, or broke off, has written.

A run that broke off is repeated by the next one, from the same version of bronze and the same state: what it makes is
the same, so tables which have it already are left as they are.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

import pyarrow as pa

from coordinator_core.history.checkpoint import STATE_FORMAT
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.silver_format import SILVER_FORMAT
from jobs.delta.table_files import TableFile
from jobs.delta.warehouse import Warehouse
from schemas.tables.declare import Table
from schemas.tables.state import REPLAY_STARTS, RUNS

OTHERS_COLUMNS: Final = ("bronze_versions", "foreign_versions")
"""Of state.runs: by which writes of others are known (`jobs.delta.other_writers`)."""


@dataclass(frozen=True, slots=True)
class Start:
    """How a run began: all that decides what it writes."""

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
        """This version of the project would write the same."""
        return (self.silver_format, self.state_format) == (SILVER_FORMAT, STATE_FORMAT)

    def table(self, cluster_id: str) -> pa.Table:
        """Its row of state.replay_starts."""
        row = dataclasses.asdict(self) | {"cluster_id": cluster_id}
        return pa.Table.from_pylist([row], schema=arrow_schema(REPLAY_STARTS))


class PinnedTables:
    """A cluster's rows of tables, each at its pinned Delta version, or at the newest where none is pinned.

    A run records its start before it writes. So if no start was recorded after a table was looked at, the newest
    version that was seen is whole. Otherwise the versions that the last whole run left are pinned from then on.
    """

    def __init__(self, warehouse: Warehouse, cluster_id: str, versions: Mapping[str, int]) -> None:
        self._warehouse = warehouse
        self._cluster_id = cluster_id
        self._versions = dict(versions)
        self.left_versions: Mapping[str, int] = dict(versions)
        """The version of each table as the last whole run left it."""
        self._left: Mapping[str, int] = {}
        """The versions to pin once another run has begun."""
        self._has_begun: Callable[[], bool] = lambda: False

    def watch(self, starts: Table, has_begun: Callable[[], bool], *, is_writer: bool) -> bool:
        """Pin nothing until another run has begun: the tables are whole at their newest versions, whatever job wrote to
        them since the last one. Answers whether one has begun already, where that cannot be.

        `starts`: where runs say so, which is read again only once it has another version. `is_writer`: nobody else can
        begin one.
        """
        seen = self._warehouse.version(starts)
        if has_begun():
            return True
        self._left, self._versions = self._versions, {}
        self._has_begun = lambda: not is_writer and self._warehouse.version(starts) != seen and has_begun()
        return False

    def _is_overtaken(self) -> bool:
        """Has another run begun, so that other versions are pinned from now on?"""
        if not self._left or not self._has_begun():
            return False
        self._versions, self._left = dict(self._left), {}
        return True

    def is_readable(self, table: Table) -> bool:
        """Is the pinned version still there, with all its files? A table that is not pinned always is."""
        version = self.version_of(table)
        return version is None or self._warehouse.has_version(table, version)

    def version_of(self, table: Table) -> int | None:
        """The Delta version at which to read a table; None: the newest."""
        return self._versions.get(table.full_name)

    def files(self, table: Table) -> tuple[TableFile, ...]:
        """The files of the cluster's rows."""
        files = self._warehouse.files(table, self.version_of(table))
        if self._is_overtaken():
            files = self._warehouse.files(table, self.version_of(table))
        return tuple(file for file in files if file.partition_values["cluster_id"] == self._cluster_id)

    def read(self, table: Table, columns: Sequence[str] | None = None, **where: Any) -> pa.Table:
        """The cluster's rows, on the driver; `where`: columns which must equal a value."""
        of_cluster = {"cluster_id": self._cluster_id, **where}
        rows = self._warehouse.read(table, columns, where=of_cluster, version=self.version_of(table))
        if self._is_overtaken():
            rows = self._warehouse.read(table, columns, where=of_cluster, version=self.version_of(table))
        return rows


class WholeRun(PinnedTables):
    """The newest whole run of a cluster, and the tables as it left them.

    Where no run is known, none has begun since, or the run did not write a table, the newest version is read.
    """

    def __init__(self, warehouse: Warehouse, cluster_id: str, row: Mapping[str, Any] | None) -> None:
        super().__init__(warehouse, cluster_id, (row or {}).get("table_versions") or {})
        self.is_known = row is not None
        self.bronze_versions = dict((row or {}).get("bronze_versions") or ())
        self.foreign_versions = dict((row or {}).get("foreign_versions") or ())
        version = None if row is None else row["replay_version"]
        self.replay_version: int = -1 if version is None else version
        self.admin_version: int | None = None if row is None else row["admin_version"]
        """Versions of the Admin snapshots that the run read."""

    @classmethod
    def newest(cls, warehouse: Warehouse, cluster_id: str, *, is_writer: bool = False) -> Self:
        """As state.runs has it now. `is_writer`: whoever asks is about to begin a run, and nobody else can."""
        columns = ["started_at", "replay_version", "table_versions", "admin_version", *OTHERS_COLUMNS]
        rows = warehouse.read(RUNS, columns, where={"cluster_id": cluster_id}).to_pylist()
        newest = max(rows, key=lambda row: (row["replay_version"] or -1, row["started_at"]), default=None)
        whole = cls(warehouse, cluster_id, newest)
        whole.watch(REPLAY_STARTS, lambda: broken_off(warehouse, cluster_id, whole) is not None, is_writer=is_writer)
        return whole


def earlier_runs(warehouse: Warehouse, cluster_id: str, whole: WholeRun) -> Iterator[WholeRun]:
    """The whole runs before one, the newest first, each with the tables as it left them.

    Only those since the last rebuild: what was there before may be of another format, or of other settings.
    """
    starts = warehouse.read(
        REPLAY_STARTS, ["replay_version", "is_rebuild"], where={"cluster_id": cluster_id}
    ).to_pylist()
    rebuilt = max((row["replay_version"] for row in starts if row["is_rebuild"]), default=0)
    columns = ["replay_version", "table_versions", "admin_version"]
    rows = warehouse.read(RUNS, columns, where={"cluster_id": cluster_id}).to_pylist()
    by_version = {row["replay_version"]: row for row in rows if row["replay_version"] is not None}
    for version in sorted(by_version, reverse=True):
        if rebuilt <= version < whole.replay_version and by_version[version]["table_versions"]:
            yield WholeRun(warehouse, cluster_id, by_version[version])


def is_renamed_since(warehouse: Warehouse, cluster_id: str, replay_version: int) -> bool:
    """Did a whole run after the one of a version rewrite earlier rows, as far as is known?"""
    rows = warehouse.read(RUNS, ["replay_version", "is_renamed"], where={"cluster_id": cluster_id}).to_pylist()
    return any(row["is_renamed"] is not False for row in rows if (row["replay_version"] or -1) > replay_version)


def broken_off(warehouse: Warehouse, cluster_id: str, whole: WholeRun) -> Start | None:
    """The run which began after the newest whole one and did not end; the last one where there are several."""
    names = [field.name for field in dataclasses.fields(Start)]
    rows = warehouse.read(REPLAY_STARTS, names, where={"cluster_id": cluster_id}).to_pylist()
    started = [Start(**row) for row in rows if row["replay_version"] > whole.replay_version]
    return max(started, key=lambda start: start.replay_version, default=None)
