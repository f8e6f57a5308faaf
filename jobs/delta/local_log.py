"""The Delta log of a table on a local disk, read and written commit by commit.

delta-rs opens a table. This module then reads each later commit (a small JSON file) and writes commits of files: asking
delta-rs each time, which reads the log again, took half of a small night. delta-rs remains responsible for everything
but adding and removing files (schema, properties), for the commit that creates a checkpoint, and for a commit that lost
a race.
"""

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.scanner import Scanner
from jobs.delta.table_files import TableFile, files_by_name, place_of
from jobs.delta.times import epoch_ms
from schemas.tables.declare import Table

LOG: Final = "_delta_log"
PROTOCOL: Final = (1, 2)
"""Reader and writer versions of tables whose commits of files need nothing else."""
BOUND_BY: Final = ("delta.invariants", "delta.appendOnly")
"""Table features of that writer version that restrict rows or files; the ledger's tables use none."""
CHECKPOINT_INTERVAL: Final = ("delta.checkpointInterval", 100)
"""The property, and delta-rs's default."""
PLAIN: Final = frozenset({"commitInfo", "add", "remove", "txn"})
TEMPORARY: Final = ("_commit_", ".json.tmp")
"""Prefix and suffix of a commit's temporary file, as delta-rs names it."""
ASKED_MAX: Final = 2
"""For at most this many applications delta-rs is asked; after that the log is read for all of them."""
UNFINISHED_SECONDS_MAX: Final = 3600
"""Temporary files older than this belong to a process that no longer runs."""


class LocalLog:
    """The newest version of a table, according to its log."""

    def __init__(self, path: str, table: Table, delta: DeltaTable) -> None:
        """`delta`: the table as delta-rs has just opened it."""
        self._path = path
        self._schema = arrow_schema(table)
        self._delta = delta
        self._changed_ns = -1
        metadata = delta.metadata()
        protocol = delta.protocol()
        about = delta.schema().to_json() + json.dumps(metadata.configuration)
        name, default = CHECKPOINT_INTERVAL
        self._partition_by = list(metadata.partition_columns)
        self._checkpoint_interval = int(metadata.configuration.get(name, default))
        self._is_plain = (protocol.min_reader_version, protocol.min_writer_version) == PROTOCOL and not any(
            word in about for word in BOUND_BY
        )
        self.version = int(delta.version())
        self._transactions: dict[str, int] = {}
        self._asked_count = 0
        self._is_cleared = False
        self.files: dict[str, TableFile] = files_by_name(delta, path, {})
        """By path in the log; files of the newest commit first, in the order of delta-rs."""

    def catch_up(self) -> bool:
        """Read new commits. False where delta-rs must open the table again."""
        changed_at_ns = changed_ns(f"{self._path}/{LOG}")
        # the folder's time is coarse: a commit within the same clock step is found by its file name
        if changed_at_ns == self._changed_ns and not self._has(self.version + 1):
            return True
        while (text := _text_of(self._commit_file(self.version + 1))) is not None:
            try:
                is_plain = bool(text) and self._apply(text)
            except ValueError:
                is_plain = False
            if not is_plain:
                return False
            self.version += 1
        # after a log cleanup, newer commits may exist only in a checkpoint
        is_whole = changed_at_ns is not None and self._has(self.version)
        self._changed_ns = -1 if changed_at_ns is None else changed_at_ns
        return is_whole

    def transaction_version(self, app_id: str) -> int:
        """The newest version that this application committed, or -1."""
        if self._asked_count > ASKED_MAX:
            return self._transactions.get(app_id, -1)
        if app_id not in self._transactions:
            # delta-rs reads its log again for each application, and each cluster has one
            self._asked_count += 1
            if self._asked_count > ASKED_MAX:
                every = _transactions(f"{self._path}/{LOG}", self.version)
                if every is not None:
                    self._transactions = every
                    return self.transaction_version(app_id)
                self._asked_count = 0
            last = self._delta.transaction_version(app_id)
            self._transactions[app_id] = -1 if last is None else int(last)
        return self._transactions[app_id]

    def commit(
        self, added: Iterable[AddAction], removed: Iterable[RemoveAction], transactions: Mapping[str, int], mode: str
    ) -> int | None:
        """Write the next commit into the log atomically.

        Returns its version; None where delta-rs must commit, and nothing was changed.
        """
        version = self.version + 1
        # delta-rs writes a checkpoint, and cleans up the log, with the last commit of each interval
        if not self._is_plain or (version + 1) % self._checkpoint_interval == 0:
            return None
        made_at_ms = epoch_ms(datetime.now(UTC))
        info = {
            "timestamp": made_at_ms,
            "operation": "WRITE",
            "operationParameters": {"mode": mode.capitalize(), "partitionBy": _json(self._partition_by)},
            "engineInfo": "groupledger",
        }
        actions = [
            {"commitInfo": info},
            *({"add": _add(action)} for action in added),
            *({"remove": _remove(action)} for action in removed),
            *(
                {"txn": {"appId": app_id, "version": of, "lastUpdated": made_at_ms}}
                for app_id, of in transactions.items()
            ),
        ]
        if not self._is_cleared:
            delete_unfinished(self._path, age_seconds_min=UNFINISHED_SECONDS_MAX)
            self._is_cleared = True
        temporary = Path(self._path, LOG, uuid4().hex.join(TEMPORARY))
        try:
            temporary.write_bytes("\n".join(map(_json, actions)).encode())
            os.link(temporary, self._commit_file(version))
        except (FileExistsError, FileNotFoundError):
            # another writer was faster, or an erasure deleted all unfinished commits
            return None
        finally:
            temporary.unlink(missing_ok=True)
        self.catch_up()
        return version

    def _has(self, version: int) -> bool:
        return os.access(self._commit_file(version), os.F_OK)

    def _commit_file(self, version: int) -> str:
        return f"{self._path}/{LOG}/{version:020}.json"

    def _apply(self, text: str) -> bool:
        added: dict[str, TableFile] = {}
        for line in text.split("\n"):
            if not line.strip():
                continue
            for kind, action in json.loads(line).items():
                if kind not in PLAIN:
                    return False
                if kind == "add":
                    added[action["path"]] = self._file_of(action)
                elif kind == "remove":
                    self.files.pop(action["path"], None)
                elif kind == "txn":
                    self._transactions[action["appId"]] = action["version"]
        self.files = added | self.files
        return True

    def _file_of(self, action: Mapping[str, Any]) -> TableFile:
        stats = json.loads(action.get("stats") or "{}")
        return TableFile(
            path=place_of(action["path"], self._path),
            size_bytes=action["size"],
            row_count=stats.get("numRecords"),
            partition_values={name: self._value(name, text) for name, text in action["partitionValues"].items()},
            minimum=self._bounds(stats.get("minValues")),
            maximum=self._bounds(stats.get("maxValues")),
        )

    def _bounds(self, values: Mapping[str, Any] | None) -> dict[str, Any]:
        return {name: self._bound(name, value) for name, value in (values or {}).items() if value is not None}

    def _bound(self, name: str, value: Any) -> Any:
        place = self._schema.get_field_index(name)
        is_time = place >= 0 and pa.types.is_timestamp(self._schema.field(place).type)
        return datetime.fromisoformat(value) if is_time else value

    def _value(self, name: str, text: str | None) -> Any:
        """A partition value in its declared type; Delta's log has strings."""
        type_ = self._schema.field(name).type
        return text if text is None or pa.types.is_string(type_) else pa.scalar(text).cast(type_).as_py()


def delete_unfinished(path: str, *, age_seconds_min: float) -> None:
    """Delete temporary files of killed commits from a table's log, since they contain statistics of rows."""
    begin, end = TEMPORARY
    for file in Path(path, LOG).glob(f"{begin}*{end}"):
        with suppress(OSError):
            if time() - file.stat().st_mtime >= age_seconds_min:
                file.unlink()


def has_log(path: str) -> bool:
    """Does the folder have a Delta log? Called hundreds of times a night; a `Path` would take longer than the check."""
    return os.access(f"{path}/{LOG}", os.F_OK)


def _transactions(log: str, version: int) -> dict[str, int] | None:
    """The newest version that each application committed, up to a version of the table. None where the log is not a
    single-file checkpoint followed by commits."""
    found: dict[str, int] = {}
    commits = range(version + 1)
    if (text := _text_of(f"{log}/_last_checkpoint")) is not None:
        try:
            commits = range(json.loads(text)["version"] + 1, version + 1)
        except (KeyError, ValueError):
            # half-written: it is only a hint, and readers can do without it
            return None
        path = f"{log}/{commits.start - 1:020}.checkpoint.parquet"
        if not os.access(path, os.F_OK):
            return None
        with Scanner(path) as scanner:
            rows = scanner.read(["txn.appId", "txn.version"]) if "txn" in scanner.schema.names else None
        made = [] if rows is None else rows["txn"].drop_null().to_pylist()
        found = {one["appId"]: one["version"] for one in made}
    for number in commits:
        if (text := _text_of(f"{log}/{number:020}.json")) is None:
            return None
        for line in text.split("\n"):
            if line.startswith('{"txn"'):
                made_by = json.loads(line)["txn"]
                found[made_by["appId"]] = made_by["version"]
    return found


def _add(action: AddAction) -> dict[str, Any]:
    return {
        "path": action.path,
        "partitionValues": action.partition_values,
        "size": action.size,
        "modificationTime": action.modification_time,
        "dataChange": action.data_change,
        "stats": action.stats,
    }


def _remove(action: RemoveAction) -> dict[str, Any]:
    return {
        "path": action.path,
        "deletionTimestamp": action.deletion_timestamp,
        "dataChange": action.data_change,
        "extendedFileMetadata": True,
        "partitionValues": action.partition_values,
        "size": action.size,
    }


def _json(value: Any) -> str:
    # arrow-rs misreads the escapes of some characters outside the basic multilingual plane
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _text_of(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError):
        return None


def changed_ns(folder: str) -> int | None:
    """When a folder was last changed (ns); None where it cannot be read."""
    try:
        return os.stat(folder).st_mtime_ns  # noqa: PTH116  (asked thousands of times a night: a Path costs more)
    except OSError:
        return None
