"""The Delta tables of a warehouse, and the only place that writes them.

Spark tasks write part files (`jobs.delta.part_files`) and return `WrittenFile`s; the driver commits all files of a
table in one Delta transaction (`Warehouse.commit`), through delta-rs. No row passes through the JVM.

Every commit has an application id and a version, Delta's `txn` action. A version at or below the application's last one
is skipped, so a repeated run changes nothing. Part files that no commit names (of a failed or retried task) do not
belong to a table; VACUUM deletes them.
"""

import fcntl
import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import sleep
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions
from pyarrow import fs

from jobs.delta.arrow_schemas import (
    STATISTICS_PROPERTY,
    arrow_schema,
    delta_struct,
    statistics_columns,
    table_properties,
)
from jobs.delta.commits import APPEND, OVERWRITE, Committed
from jobs.delta.filesystems import delete_folder, filesystem_of
from jobs.delta.handles import Handles, delete_unfinished, has_log, open_table
from jobs.delta.part_files import PartTarget, WrittenFile, partition_text, write_parts
from jobs.delta.scanner import fault_of
from jobs.delta.table_files import TableFile, files_by_name, read_file
from jobs.delta.times import epoch_ms
from jobs.errors import TableDamaged, WarehouseError, writing
from jobs.faults import reached
from schemas.tables.declare import Column, Table

Item = TypeVar("Item")
Result = TypeVar("Result")

LOCKS: Final = "_locks"
"""Folder of a local warehouse with lock files."""

SCHEMES: Final = frozenset({"file", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "hdfs", "viewfs"})
"""Stores on which a commit of delta-rs is atomic."""

MAINTAIN_APPLICATION: Final = "groupledger/maintain"
"""The application id of commits that replace files."""

LOG_RETENTION: Final = {
    "delta.logRetentionDuration": "interval 30 days",
    "delta.deletedFileRetentionDuration": "interval 1 week",
}
"""How long Delta keeps the log and the files of older versions by default."""
CLOCK_STEP_S: Final = 0.02
"""Resolution of file times: after this delay, existing files have an earlier time than now."""

UNFINISHED_SECONDS_MAX: Final = 3600
"""Temporary files older than this belong to a process that no longer runs."""

ENCODED: Final = re.compile("%[0-9a-fA-F]{2}")

DERIVED_LAYERS: Final = frozenset({"silver", "gold"})
"""Layers whose tables can be rebuilt from the layers before."""

TABLES_AT_ONCE: Final = 8
"""Number of tables that the driver processes in parallel."""


@dataclass(frozen=True, slots=True)
class _Change:
    """The arguments of `Warehouse.commit`."""

    table: Table
    files: Sequence[WrittenFile]
    app_id: str
    version: int
    mode: str
    replace: Mapping[str, Any]
    removed: Sequence[TableFile]

    def taken_out(self, there: Collection[TableFile]) -> Collection[TableFile]:
        """The distinct files that it removes: those to be removed, and those whose rows it overwrites. Raises
        WarehouseError where one to be removed no longer exists."""
        if not {file.path for file in self.removed} <= {file.path for file in there}:
            raise WarehouseError(f"{self.table.full_name}: another run took files out meanwhile: run this one again")
        others = filter(self._overwrites, there) if self.mode == OVERWRITE else ()
        return {file.path: file for file in (*self.removed, *others)}.values()

    def _overwrites(self, file: TableFile) -> bool:
        return all(
            file.partition_values[name] in (value if isinstance(value, tuple) else (value,))
            for name, value in self.replace.items()
        )


class Warehouse:
    """The Delta tables under one folder or URI: `<root>/<layer>/<table>`.

    Raises WarehouseError for a place that delta-rs cannot write.
    """

    def __init__(
        self, root: str, *, codec: str = "zstd", codecs: Mapping[str, str] | None = None, takes_turns: bool = False
    ) -> None:
        """`takes_turns`: processes of several clusters commit to these tables concurrently. On a local disk they
        wait for each other; in an object store Delta refuses one of two, which raises an error."""
        self.root = root.rstrip("/")
        scheme = root.partition("://")[0] if "://" in root else "file"
        if scheme not in SCHEMES:
            names = ", ".join(f"{name}://" for name in sorted(SCHEMES - {"file"}))
            raise WarehouseError(f"{root}: no warehouse can be there: name a local folder or one of {names}")
        if ENCODED.search(self.root):
            # delta-rs 1.6 decodes `%41` in the name of a folder, and then uses another folder
            raise WarehouseError(f"{root}: % and two hexadecimal digits in its name: Delta takes them for a character")
        self._codec = codec
        self._codecs = dict(codecs or {})
        self._takes_turns = takes_turns and scheme == "file" and "://" not in root
        self._up_to_date: set[str] = set()
        """Tables that are known to have all their columns."""
        self._handles = Handles()
        self._listed: dict[str, tuple[int, dict[str, TableFile]]] = {}
        """By path of a table: a version of it, and its files by their paths in Delta's log."""

    def path(self, table: Table) -> str:
        """The table's folder or URI."""
        return f"{self.root}/{table.layer}/{table.name}"

    def exists(self, table: Table) -> bool:
        path = self.path(table)
        if "://" not in path:
            is_there = has_log(path)
            if path in self._handles or not is_there:
                return is_there
        return bool(DeltaTable.is_deltatable(path))

    def ensure(self, table: Table) -> None:
        """Create the table, with its comments, if it does not exist. Add missing columns to an older table.

        A derived table with other partition columns is recreated empty: whoever writes such a table writes all rows of
        a cluster again if another version wrote them.
        """
        if self.exists(table):
            if table.full_name in self._up_to_date:
                return
            delete_unfinished(self.path(table), age_seconds_min=UNFINISHED_SECONDS_MAX)
            if tuple(self._newest(table).metadata().partition_columns) == table.partition_by:
                self._add_columns(table)
            elif table.layer in DERIVED_LAYERS:
                self._create(table, replaces=True)
            else:
                raise WarehouseError(f"{table.full_name} is not partitioned by {', '.join(table.partition_by)}")
        else:
            self._create(table, replaces=False)
        self._up_to_date.add(table.full_name)

    def rebuild(self, table: Table, rows: pa.Table) -> None:
        """Replace all rows of a table, and its columns by the declared ones, in one commit."""
        path, files = self.path(table), write_parts(self.target(table), rows)
        partition_by = list(table.partition_by)
        with self._writing(table):
            added = self._add_actions(table, files, data_change=True)
            if self.exists(table):
                delta = open_table(path)
                stored = {field.name for field in delta.schema().fields}
                # readers refuse a property that names columns which the table lacks
                kept = ",".join(name for name in statistics_columns(table) if name in stored)
                delta.alter.set_table_properties({STATISTICS_PROPERTY: kept})
                properties = CommitProperties(app_transactions=[next_version(delta, MAINTAIN_APPLICATION)])
                delta.create_write_transaction(
                    added, OVERWRITE, delta_schema(table), partition_by, commit_properties=properties
                )
                open_table(path).alter.set_table_properties({STATISTICS_PROPERTY: ",".join(statistics_columns(table))})
            else:
                properties = CommitProperties(app_transactions=[Transaction(MAINTAIN_APPLICATION, 0)])
                create_table_with_add_actions(
                    path,
                    delta_schema(table),
                    added,
                    partition_by=partition_by,
                    name=table.full_name,
                    description=table.comment,
                    configuration=table_properties(table),
                    commit_properties=properties,
                )
        self._forget(table)

    @contextmanager
    def _writing(self, table: Table) -> Iterator[None]:
        with writing(table.full_name, self.path(table)), self._turn(table):
            yield

    @contextmanager
    def _turn(self, table: Table) -> Iterator[None]:
        """Wait until no other process that takes turns commits to the table."""
        if not self._takes_turns:
            yield
            return
        folder = Path(self.root) / LOCKS
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"commit-{table.full_name}.lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _create(self, table: Table, *, replaces: bool) -> None:
        with self._writing(table):
            created = DeltaTable.create(
                self.path(table),
                schema=delta_schema(table),
                mode="overwrite" if replaces else "ignore",
                partition_by=list(table.partition_by),
                name=table.full_name,
                description=table.comment,
                configuration=table_properties(table),
            )
            self._handles.put(self.path(table), created)

    def _add_columns(self, table: Table) -> None:
        """Append the declared columns that the table lacks: existing rows have nulls there."""
        lacking = self._lacking(table)
        if not lacking:
            return
        names = {column.name for column in lacking}
        delta = open_table(self.path(table))
        try:
            delta.alter.add_columns([field for field in delta_schema(table).fields if field.name in names])
            delta.alter.set_table_properties({STATISTICS_PROPERTY: ",".join(statistics_columns(table))})
        except DeltaError as error:
            # another run may have added them meanwhile
            if self._lacking(table):
                listed = ", ".join(column.name for column in lacking)
                raise WarehouseError(f"{table.full_name}: cannot add the columns {listed}: {error}") from error

    def _lacking(self, table: Table) -> list[Column]:
        stored = {field.name for field in self._newest(table).schema().fields}
        return [column for column in table.columns if column.name not in stored]

    def target(self, table: Table) -> PartTarget:
        """Where tasks write part files, for `commit` or `swap`."""
        return PartTarget(table.full_name, self.path(table), self._codecs.get(table.full_name, self._codec))

    def last_version(self, table: Table, app_id: str) -> int:
        """The newest version that this application committed to the table, or -1."""
        if not self.exists(table):
            return -1
        return self._handles.last_version(self.path(table), app_id)

    def ensure_all(self, tables: Sequence[Table], app_id: str) -> dict[str, int]:
        """Ensure several tables. Returns the newest version that an application committed to each, by full name, or
        -1."""

        def version_of(table: Table) -> int:
            self.ensure(table)
            return self.last_version(table, app_id)

        return dict(zip((table.full_name for table in tables), self.at_once(version_of, tables), strict=True))

    def at_once(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Call `function` for each item, each about a table of its own; results in order. The first error is raised.

        In parallel, since most of the time is spent waiting for the store, and delta-rs releases the GIL. Sequentially
        where processes take turns: each has one core, and a local disk causes no such waits.
        """
        if self._takes_turns:
            return [function(item) for item in items]
        with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
            return list(pool.map(function, items))

    def commit(
        self,
        table: Table,
        files: Sequence[WrittenFile],
        *,
        app_id: str,
        version: int,
        mode: str = APPEND,
        replace: Mapping[str, Any] | None = None,
        removed: Sequence[TableFile] = (),
    ) -> Committed:
        """Commit part files in one Delta transaction; skipped if the application has committed this version already.

        The files must be those of `target(table)`. `mode` "overwrite" removes all former rows; with `replace` (a value
        or a tuple of values for some partition columns), only those of these partitions, and the files in `removed`,
        which are in other partitions. `mode` "append" removes only the files in `removed`, and fails if maintain
        committed meanwhile. Raises WarehouseError when a part file is missing or differs, or another writer was faster.
        """
        self.ensure(table)
        reached(f"before {table.full_name}")
        try:
            with self._writing(table):
                committed = self._commit(_Change(table, files, app_id, version, mode, replace or {}, removed))
        except CommitFailedError as error:
            # the other writer may have been an earlier attempt of this run
            if self.last_version(table, app_id) >= version:
                return Committed(self.version(table), 0, skipped=True)
            raise WarehouseError(f"{table.full_name}: another writer committed meanwhile: {error}") from error
        reached(f"after {table.full_name}")
        return committed

    def write(
        self,
        table: Table,
        rows: pa.Table,
        *,
        app_id: str,
        version: int,
        mode: str = APPEND,
        replace: Mapping[str, Any] | None = None,
    ) -> Committed:
        """Write and commit small results of the driver."""
        target = self.target(table)
        if self.last_version(table, app_id) >= version:
            return Committed(self.version(table), 0, skipped=True)
        files = write_parts(target, rows)
        return self.commit(table, files, app_id=app_id, version=version, mode=mode, replace=replace)

    def swap(
        self,
        table: Table,
        removed: Sequence[TableFile],
        added: Sequence[WrittenFile],
        *,
        version: int,
        at: datetime,
        writers: Iterable[str],
        changes_rows: bool,
    ) -> int:
        """Replace files of a version in one Delta transaction. Returns the new version.

        `added` were written to `target(table)`. `changes_rows`: false where the same rows are only arranged
        differently. Raises WarehouseError when one of `writers` (application ids), or another swap, committed to the
        table since `version`: then nothing is changed, and the written files do not belong to any table. Concurrent
        appends of others are allowed.
        """
        reached(f"before swap of {table.full_name}")
        try:
            with self._writing(table):
                swapped = self._swap(table, removed, added, version, at, tuple(writers), changes_rows)
        except CommitFailedError as error:
            raise WarehouseError(f"{table.full_name}: another run wrote to it meanwhile: maintain it later") from error
        reached(f"after swap of {table.full_name}")
        return swapped

    def vacuum(self, table: Table, *, retention_hours: int, keep_versions: Sequence[int] = ()) -> None:
        """Delete files that neither a version of the last `retention_hours` nor one of `keep_versions` has, and
        older part files that no commit names. Writes nothing if there are none."""
        if self.unreferenced(table, retention_hours=retention_hours, keep_versions=keep_versions):
            self._vacuum(table, retention_hours, keep_versions, dry_run=False, full=True)

    def unreferenced(
        self, table: Table, *, retention_hours: int, keep_versions: Sequence[int] = (), orphans_only: bool = False
    ) -> list[str]:
        """Files in the table's folder that `vacuum` would delete, by relative path.

        `orphans_only`: only those that no commit ever named, including files of running jobs.
        """
        files = set(self._vacuum(table, retention_hours, keep_versions, dry_run=True, full=True))
        if orphans_only:
            files -= set(self._vacuum(table, retention_hours, keep_versions, dry_run=True, full=False))
        return sorted(files)

    def _vacuum(
        self, table: Table, retention_hours: int, keep_versions: Sequence[int], *, dry_run: bool, full: bool
    ) -> list[str]:
        files: list[str] = open_table(self.path(table)).vacuum(
            retention_hours,
            dry_run=dry_run,
            enforce_retention_duration=False,
            full=full,
            keep_versions=list(keep_versions) or None,
        )
        return files

    def checkpoint(self, table: Table) -> None:
        """Write a checkpoint of Delta's log, so that readers need not read it commit by commit."""
        with self._writing(table):
            open_table(self.path(table)).create_checkpoint()

    def forget_history(self, table: Table) -> None:
        """Delete everything of the table but its newest version: files, and log entries of other versions and failed
        commits.

        Readers of an older version fail.
        """
        self.vacuum(table, retention_hours=0)
        delete_unfinished(self.path(table), age_seconds_min=0)
        delta = open_table(self.path(table))
        properties = delta.metadata().configuration
        delta.alter.set_table_properties(dict.fromkeys(LOG_RETENTION, "interval 0 seconds"))
        sleep(CLOCK_STEP_S)
        delta = open_table(self.path(table))
        delta.create_checkpoint()
        delta.cleanup_metadata()
        delta.alter.set_table_properties({name: properties.get(name, usual) for name, usual in LOG_RETENTION.items()})

    def version(self, table: Table) -> int:
        """The newest version of the table, or -1 if it does not exist."""
        if not self.exists(table):
            return -1
        return int(self._newest(table).version())

    def has_version(self, table: Table, version: int) -> bool:
        """Can this version of the table still be read? Its log must exist, and all its files."""
        try:
            files = self.files(table, version)
        except (DeltaError, TableDamaged):
            return False
        paths = [filesystem_of(file.path) for file in files]
        return not paths or all(
            info.type == fs.FileType.File for info in paths[0][0].get_file_info([path for _, path in paths])
        )

    def damaged_files(self, table: Table, cluster_id: str | None = None) -> list[TableDamaged]:
        """The data files of the table's newest version, of one cluster or of all, that are gone or differ in size."""
        files = [file for file in self.files(table) if cluster_id in (None, file.partition_values.get("cluster_id"))]
        filesystem, folder = filesystem_of(self.path(table))
        listed = {it.path: it.size for it in filesystem.get_file_info(fs.FileSelector(folder, recursive=True))}
        paths = [filesystem_of(file.path)[1] for file in files]
        # a listing costs one request for many files; each that it does not show as it was written is asked for itself
        asked = [index for index, file in enumerate(files) if listed.get(paths[index]) != file.size_bytes]
        infos = filesystem.get_file_info([paths[index] for index in asked])
        faults = ((files[at], fault_of(info, files[at].size_bytes)) for at, info in zip(asked, infos, strict=True))
        return [TableDamaged(table.full_name, file.path, fault) for file, fault in faults if fault is not None]

    def delete(self, table: Table) -> None:
        """Delete a table with all its versions."""
        with self._writing(table):
            delete_folder(self.path(table))
        self._forget(table)

    def _forget(self, table: Table) -> None:
        """Forget what was read of the table's log."""
        self._handles.forget(self.path(table))
        self._listed.pop(self.path(table), None)
        self._up_to_date.discard(table.full_name)

    def files(self, table: Table, version: int | None = None) -> list[TableFile]:
        """The files of the table (newest or given version), for direct reading; empty if there is no table."""
        if not self.exists(table):
            return []
        return list(self._files_of(self._at(table, version), table).values())

    def columns(
        self, table: Table, version: int | None = None, *, reader_version_max: int = sys.maxsize
    ) -> list[str] | None:
        """The stored columns of a version; None where it needs a higher Delta reader version than
        `reader_version_max`."""
        delta = self._at(table, version)
        if delta.protocol().min_reader_version > reader_version_max:
            return None
        return [field.name for field in delta.schema().fields]

    def _files_of(self, delta: DeltaTable, table: Table) -> dict[str, TableFile]:
        """By their paths in Delta's log; cached for the version that was read last."""
        path, version = self.path(table), int(delta.version())
        last, known = self._listed.get(path, (-1, {}))
        if last != version:
            known = files_by_name(delta, path, known)
            self._listed[path] = version, known
        return known

    def read(
        self,
        table: Table,
        columns: Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        version: int | None = None,
    ) -> pa.Table:
        """Rows of a small table on the driver, from its newest or the given version. `where`: column values to
        filter by. Empty if there is no table."""
        wanted = list(columns) if columns is not None else list(table.column_names)
        needed = [*wanted, *(name for name in (where or {}) if name not in wanted)]
        schema = pa.schema([arrow_schema(table).field(name) for name in needed])
        parts = [
            read_file(file, table, needed)
            for file in self.files(table, version)
            if all(file.partition_values.get(name, value) == value for name, value in (where or {}).items())
        ]
        rows = pa.concat_tables(parts) if parts else schema.empty_table()
        for name, value in (where or {}).items():
            rows = rows.filter(pc.equal(rows[name], pa.scalar(value, schema.field(name).type)))
        return rows.select(wanted).replace_schema_metadata(None)

    def _newest(self, table: Table) -> DeltaTable:
        return self._handles.newest(self.path(table))

    def _at(self, table: Table, version: int | None) -> DeltaTable:
        """The table at one of its versions, or at the newest."""
        newest = self._newest(table)
        return newest if version in (None, newest.version()) else open_table(self.path(table), version)

    def _commit(self, change: _Change) -> Committed:
        table = change.table
        # One handle from the check to the commit: delta-rs does not compare application versions itself, but it refuses
        # a commit if the same application committed after this handle was refreshed.
        delta = self._newest(table)
        if self.last_version(table, change.app_id) >= change.version:
            return Committed(int(delta.version()), 0, skipped=True)
        mode = change.mode
        filters = [
            (name, "in", [partition_text(item) for item in value])
            if isinstance(value, tuple)
            else (name, "=", partition_text(value))
            for name, value in change.replace.items()
        ]
        removals: list[RemoveAction] = []
        transactions = [Transaction(change.app_id, change.version)]
        if change.removed:
            # delta-rs's own overwrite removes whole partitions only
            taken = change.taken_out(self._files_of(delta, table).values())
            removals = self._remove_actions(table, taken, at=datetime.now(UTC), data_change=True)
            if mode == APPEND:
                # conflict with maintain, which merges files while captures run
                transactions.append(next_version(delta, MAINTAIN_APPLICATION))
            mode, filters = APPEND, []
        delta.create_write_transaction(
            [*self._add_actions(table, change.files, data_change=True), *removals],
            mode=mode,
            schema=delta.schema(),
            partition_by=list(table.partition_by),
            partition_filters=filters or None,
            commit_properties=CommitProperties(app_transactions=transactions),
        )
        return Committed(self.version(table), sum(file.row_count for file in change.files), skipped=False)

    def _swap(
        self,
        table: Table,
        removed: Sequence[TableFile],
        added: Sequence[WrittenFile],
        version: int,
        at: datetime,
        writers: Sequence[str],
        changes_rows: bool,
    ) -> int:
        # delta-rs does not compare the files or rows of two commits, only their applications: so this one names all
        # whose commits would conflict with it, each at its current version
        delta = open_table(self.path(table), version)  # a handle of its own: the commit advances it
        versions = {app_id: delta.transaction_version(app_id) for app_id in writers}
        delta.create_write_transaction(
            [
                *self._add_actions(table, added, data_change=changes_rows),
                *self._remove_actions(table, removed, at=at, data_change=changes_rows),
            ],
            mode=APPEND,
            schema=delta.schema(),
            partition_by=list(table.partition_by),
            commit_properties=CommitProperties(
                app_transactions=[
                    *(Transaction(app_id, last) for app_id, last in versions.items() if last is not None),
                    next_version(delta, MAINTAIN_APPLICATION),
                ]
            ),
        )
        now = self._newest(table)
        gone = {file.path for file in removed}
        if gone & {file.path for file in self.files(table)}:
            raise WarehouseError(f"{table.full_name}: files which were taken out are still in the table")
        return int(now.version())

    def _add_actions(self, table: Table, files: Sequence[WrittenFile], *, data_change: bool) -> list[AddAction]:
        """Raises WarehouseError when a file is missing or differs in size, which delta-rs would not notice."""
        filesystem, folder = filesystem_of(self.path(table))
        infos = filesystem.get_file_info([f"{folder}/{file.path}" for file in files])
        for file, info in zip(files, infos, strict=True):
            if info.type != fs.FileType.File or info.size != file.size_bytes:
                raise WarehouseError(f"{table.full_name}: part file {file.path} is not there as it was written")
        return [
            AddAction(
                path=file.path,
                size=file.size_bytes,
                partition_values=dict(file.partition_values),
                modification_time=0 if info.mtime_ns is None else info.mtime_ns // 1_000_000,
                data_change=data_change,
                stats=file.stats,
            )
            for file, info in zip(files, infos, strict=True)
        ]

    def _remove_actions(
        self, table: Table, files: Iterable[TableFile], *, at: datetime, data_change: bool
    ) -> list[RemoveAction]:
        return [
            RemoveAction(
                path=file.path[len(self.path(table)) + 1 :],
                data_change=data_change,
                deletion_timestamp=epoch_ms(at),
                size=file.size_bytes,
                partition_values={name: partition_text(value) for name, value in file.partition_values.items()},
            )
            for file in files
        ]


def delta_schema(table: Table) -> Schema:
    """delta-rs's schema, with the comments."""
    return Schema.from_json(json.dumps(delta_struct(table.columns)))


def next_version(delta: DeltaTable, app_id: str) -> Transaction:
    """The next transaction version of an application: a concurrent commit with the same version is refused."""
    last = delta.transaction_version(app_id)
    return Transaction(app_id, 0 if last is None else last + 1)
