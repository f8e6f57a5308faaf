"""maintain --erase: a client id, host or member is taken out of everything that the warehouse holds.

A pseudonym of the same length comes in its place (`coordinator_core.log.redact`), the same everywhere, so that all
tables still fit together and bronze, replayed again, makes the same silver. Batches that change get a new checksum and
say so (`redacted_at`). Then nothing is left of older versions: no file, no entry of Delta's log.

A pseudonym follows from the id and the warehouse's key alone (`_erasure_key` in the warehouse), so an erasure that was
killed between two tables and is repeated gives the same one. Who has the key can check whether a pseudonym belongs to
an id that they know; nobody else can. What the source still has of the id comes with the next capture: there it must be
erased first.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from coordinator_core.errors import NotRedactable
from coordinator_core.log.redact import ID_BYTES_MAX, ID_BYTES_MIN, Redaction
from jobs.bronze.writer import BATCHES, DAMAGED, is_damaged
from jobs.console.command_name import command
from jobs.console.progress import Steps
from jobs.delta.arrow_schemas import TIMESTAMP_TYPE, file_schema
from jobs.delta.audit_runs import WholeAudit
from jobs.delta.filesystems import delete_folder, filesystem_of
from jobs.delta.part_files import PartTarget, PartWriter, WrittenFile
from jobs.delta.replay_runs import WholeRun, broken_off
from jobs.delta.row_groups import row_groups_in_order
from jobs.delta.table_files import TableFile
from jobs.delta.warehouse import Warehouse
from jobs.errors import SettingsError, WarehouseError
from jobs.operations.compaction import MERGED
from jobs.operations.maintain import STAGING, clusters_of, nobody_else, writers_of
from jobs.operations.metrics import Metrics, job_of
from jobs.settings import place_words
from jobs.spark.tasks import run_tasks
from schemas.tables import TABLES
from schemas.tables.bronze import RECORD_BATCHES
from schemas.tables.declare import Table
from schemas.tables.state import GROUP_CHECKPOINTS, LOG_CHECKPOINTS

CLIENT_ID: Final = "client-id"
HOST: Final = "host"
MEMBER: Final = "member"
KINDS: Final = (CLIENT_ID, HOST, MEMBER)

KEY_FILE: Final = "_erasure_key"
"""In the warehouse, made by the first erasure."""
KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class EraseWork:
    """One file of a table. Small and picklable: it goes to a task."""

    target: PartTarget
    file: TableFile
    redaction: Redaction
    at: datetime


@dataclass(frozen=True, slots=True)
class EraseDone:
    """What a task found. `written` is None where none of the ids is in the file."""

    file: TableFile
    written: WrittenFile | None
    row_count: int = 0
    """Rows that were changed."""
    is_left: bool = False
    """An id is still there, in saved state that packs texts back to back: the state must go."""


def erased_ids(asked: Iterable[str]) -> list[str]:
    """Ids as logs hold them, of what the command line asks for: `client-id=...`, `host=...`, `member=...`.

    A host is written with and without the `/` that Kafka puts before it. Raises SettingsError.
    """
    ids = []
    for item in asked:
        kind, _, value = item.partition("=")
        if kind not in KINDS or not value:
            raise SettingsError(f"--erase takes {', '.join(f'{known}=...' for known in KINDS)}")
        if not ID_BYTES_MIN <= len(value.encode()) <= ID_BYTES_MAX:
            raise SettingsError(
                f"an id of {ID_BYTES_MIN} to {ID_BYTES_MAX} bytes can be erased: shorter ones would be found in others"
            )
        ids += ["/" + value.lstrip("/"), value.lstrip("/")] if kind == HOST else [value]
    return ids


def erase(
    session: SparkSession,
    warehouse: Warehouse,
    *,
    ids: Sequence[str],
    new_key: bytes,
    at: datetime,
    metrics: Metrics | None = None,
) -> dict[str, int]:
    """Put pseudonyms in place of ids in all tables; changed rows, by table.

    `new_key`: KEY_BYTES random bytes, the warehouse's key where it has none yet. Raises WarehouseError while replay,
    audit or maintain is at work, after a replay that broke off, and for what cannot be redacted.
    """
    clusters = clusters_of(warehouse)
    with nobody_else(warehouse, clusters, since=at), job_of(metrics, "erase") as job:
        for cluster_id in clusters:
            if broken_off(warehouse, cluster_id, WholeRun.newest(warehouse, cluster_id)) is not None:
                raise WarehouseError(
                    f"the last replay of cluster {cluster_id!r} broke off, and needs tables as they are: "
                    f"run {command('replay' + place_words(warehouse.root, cluster_id))} first"
                )
            if WholeAudit.newest(warehouse, cluster_id).has_broken_off:
                raise WarehouseError(
                    f"the last audit of cluster {cluster_id!r} broke off: run "
                    f"{command('audit' + place_words(warehouse.root, cluster_id))} first"
                )
        redaction = Redaction.of(ids, _key_of(warehouse, new_key))
        warehouse.ensure_names(TABLES.values())
        tables = [table for table in TABLES.values() if warehouse.exists(table)]
        lost: set[tuple[str, str]] = set()
        counts = {}
        # state last: when it has to go, all that it is rebuilt from is redacted
        for table in sorted(tables, key=lambda table: table in (LOG_CHECKPOINTS, GROUP_CHECKPOINTS)):
            counts[table.full_name] = _erase_in(session, warehouse, table, redaction, at, clusters, lost)
        if lost:
            _drop_state(warehouse, lost, at, clusters)
        for table in tables:
            warehouse.forget_history(table)
        delete_folder(f"{warehouse.root}/{STAGING}")
        job.row_counts = {name: count for name, count in counts.items() if count}
    return counts


def _key_of(warehouse: Warehouse, new_key: bytes) -> bytes:
    """The key of the warehouse, written down before the first table changes. A key that was not written whole has
    changed no table yet."""
    filesystem, path = filesystem_of(f"{warehouse.root}/{KEY_FILE}")
    if filesystem.get_file_info(path).size == KEY_BYTES:
        with filesystem.open_input_file(path) as source:
            key: bytes = source.read()
        return key
    assert len(new_key) == KEY_BYTES
    with filesystem.open_output_stream(path) as sink:
        sink.write(new_key)
    if "://" not in warehouse.root:
        Path(path).chmod(0o600)
    return new_key


def _erase_in(
    session: SparkSession,
    warehouse: Warehouse,
    table: Table,
    redaction: Redaction,
    at: datetime,
    clusters: Sequence[str],
    lost: set[tuple[str, str]],
) -> int:
    warehouse.ensure(table)
    version = warehouse.version(table)
    target = warehouse.target(table)
    works = [EraseWork(target, file, redaction, at) for file in warehouse.files(table, version)]
    done = run_tasks(session, erase_in_file, works, f"files of {table.full_name}")
    changed = [item for item in done if item.written is not None]
    if changed:
        warehouse.swap(
            table,
            [item.file for item in changed],
            [item.written for item in changed if item.written is not None],
            version=version,
            at=at,
            writers=writers_of(clusters),
            changes_rows=True,
        )
    lost |= {
        (item.file.partition_values["cluster_id"], item.file.partition_values["log"]) for item in done if item.is_left
    }
    return sum(item.row_count for item in done)


def _drop_state(warehouse: Warehouse, lost: set[tuple[str, str]], at: datetime, clusters: Sequence[str]) -> None:
    """Log partitions without state are replayed from their beginning by the next run."""
    for table in (LOG_CHECKPOINTS, GROUP_CHECKPOINTS):
        gone = [
            file
            for file in warehouse.files(table)
            if (file.partition_values["cluster_id"], file.partition_values["log"]) in lost
        ]
        if gone:
            version = warehouse.version(table)
            warehouse.swap(table, gone, [], version=version, at=at, writers=writers_of(clusters), changes_rows=True)


def erase_in_file(work: EraseWork) -> EraseDone:
    """Write a file again with pseudonyms, if it holds any of the ids. Runs in a Spark task."""
    table = work.target.table
    if not any(_has_any(rows, table, work.redaction) for rows in row_groups_in_order((work.file,), table)):
        return EraseDone(work.file, None)
    name = MERGED if table is not RECORD_BATCHES else DAMAGED if is_damaged(work.file) else BATCHES
    row_count, is_left = 0, False
    with PartWriter(work.target, name, work.file.partition_values) as writer:
        for rows in row_groups_in_order((work.file,), table):
            redacted, changed_count = redact_rows(rows, table, work.redaction, work.at)
            writer.write(redacted)
            row_count += changed_count
            is_left = is_left or (
                table in (LOG_CHECKPOINTS, GROUP_CHECKPOINTS) and _is_in_buffers(redacted, work.redaction)
            )
        written = writer.close()
    if row_count or is_left:
        return EraseDone(work.file, written, row_count, is_left)
    # what looked like an id was part of another: the file stays as it was, and the new one is of no table
    return EraseDone(work.file, None)


def _has_any(rows: pa.Table, table: Table, redaction: Redaction) -> bool:
    if table is RECORD_BATCHES:
        return any(redaction.of_batch(batch) != batch for batch in _batches(rows)) or _is_in_buffers(
            rows.drop_columns(["batch"]), redaction
        )
    return _is_in_buffers(rows, redaction)


def _is_in_buffers(rows: pa.Table, redaction: Redaction) -> bool:
    """Are the bytes of an id anywhere? Quicker than to look at each value, and may be wrong only where it says yes."""
    buffers = chain.from_iterable(chunk.buffers() for column in rows.columns for chunk in column.chunks)
    return any(redaction.may_be_in(memoryview(buffer)) for buffer in buffers if buffer is not None)


def _batches(rows: pa.Table) -> Iterator[bytes]:
    return (batch for batch in rows["batch"].to_pylist() if batch is not None)


def redact_rows(rows: pa.Table, table: Table, redaction: Redaction, at: datetime) -> tuple[pa.Table, int]:
    """Rows with pseudonyms, and how many of them were changed. Batches that were changed say so."""
    schema = file_schema(table)
    is_changed = [False] * rows.num_rows
    columns = {name: rows[name] for name in rows.column_names}
    for name, column in columns.items():
        is_batch = table is RECORD_BATCHES and name == "batch"
        if not is_batch and not _is_in_buffers(rows.select([name]), redaction):
            continue
        values = column.to_pylist()
        try:
            made = [_redacted(value, redaction, is_batch=is_batch) for value in values]
        except NotRedactable as error:
            raise WarehouseError(f"{table.full_name}: {error}; take such batches out by [retention] first") from error
        is_changed = [was or old != new for was, old, new in zip(is_changed, values, made, strict=True)]
        columns[name] = pa.chunked_array([pa.array(made, schema.field(name).type)])
    if table is RECORD_BATCHES:
        before = columns["redacted_at"].to_pylist()
        times = [at if changed else was for changed, was in zip(is_changed, before, strict=True)]
        columns["redacted_at"] = pa.chunked_array([pa.array(times, TIMESTAMP_TYPE)])
    return pa.table(columns, schema=schema), sum(is_changed)


def _redacted(value: Any, redaction: Redaction, *, is_batch: bool) -> Any:
    """A value of any type: texts and bytes, and what is made of them."""
    match value:
        case bytes():
            return redaction.of_batch(value) if is_batch else redaction.of_bytes(value)
        case str():
            return redaction.of_text(value)
        case list():
            return [_redacted(item, redaction, is_batch=False) for item in value]
        case tuple():
            return tuple(_redacted(item, redaction, is_batch=False) for item in value)
        case dict():
            return {name: _redacted(item, redaction, is_batch=False) for name, item in value.items()}
        case _:
            return value


def tell_erased(counts: dict[str, int], steps: Steps) -> None:
    """Where ids were, and what remains to be done elsewhere."""
    steps.facts["erased"] = {"row_counts": dict(counts)}
    for name, count in counts.items():
        if count:
            steps.say(f"{name}: {count:,} rows were changed")
    if not any(counts.values()):
        steps.say("none of the ids was in any table")
    steps.say(
        "older versions of all tables are gone. What the sources still hold of the ids comes again with the next "
        "capture; copies, backups and reports made before are not touched"
    )
