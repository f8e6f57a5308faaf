"""maintain --erase: remove a client id, host or member from everything in the warehouse.

It is replaced by a pseudonym of the same length (`coordinator_core.bytes.log.redact`), the same in all tables, so that
these still match and bronze, replayed again, gives the same silver. Changed batches get a new CRC and are marked
(`redacted_at`). Older versions are then deleted completely: files, and entries of Delta's log.

A pseudonym depends only on the id and the warehouse's key (`_erasure_key` in the warehouse), so an erasure that was
killed between two tables gives the same one when repeated. With the key, one can check whether a pseudonym belongs to a
known id; without it, nobody can. If the source still has the id, the next capture brings it back: it must be erased
there first.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from coordinator_core.bytes.log.redact import ID_BYTES_MAX, ID_BYTES_MIN, Redaction
from coordinator_core.errors import NotRedactable
from coordinator_core.text import counted
from jobs.bronze.writer import BATCHES, DAMAGED, is_damaged
from jobs.console.command_name import command
from jobs.console.progress import Steps
from jobs.delta.arrow_schemas import TIMESTAMP_TYPE, arrow_schema, file_schema
from jobs.delta.audit_runs import WholeAudit
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.filesystems import delete_folder, filesystem_of
from jobs.delta.last_release import carry_over
from jobs.delta.other_writers import later_writes
from jobs.delta.part_files import PartTarget, PartWriter, WrittenFile
from jobs.delta.replay_runs import WholeRun, broken_off, newest_row
from jobs.delta.row_groups import row_groups_in_order
from jobs.delta.table_files import TableFile
from jobs.delta.warehouse import Warehouse
from jobs.errors import SettingsError, WarehouseError
from jobs.operations.compaction import MERGED
from jobs.operations.maintain import STAGING, clusters_of, nobody_else, writers_of
from jobs.operations.metrics import Metrics, job_of
from jobs.spark.executors import Executor
from jobs.spark.tasks import run_tasks
from schemas.tables import TABLES
from schemas.tables.bronze import RECORD_BATCHES
from schemas.tables.declare import Table
from schemas.tables.state import ALL_LOGS, CHECKPOINTS, RUNS

CLIENT_ID: Final = "client-id"
HOST: Final = "host"
MEMBER: Final = "member"
KINDS: Final = (CLIENT_ID, HOST, MEMBER)

NUMBERS: Final = ("replay_version", "audit_version")
"""Columns of state.runs with the number of a run of each kind."""
VERSIONS: Final = ("table_versions", "bronze_versions")
"""Those with versions of tables when it ended."""

KEY_FILE: Final = "_erasure_key"
"""File in the warehouse, made by the first erasure."""
KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class EraseWork:
    """One file of a table. Small and picklable, as it is sent to a task."""

    target: PartTarget
    file: TableFile
    redaction: Redaction
    at: datetime


@dataclass(frozen=True, slots=True)
class EraseDone:
    """The result of a task. `written` is None where the file has none of the ids."""

    file: TableFile
    written: WrittenFile | None
    row_count: int = 0
    """Number of changed rows."""
    is_left: bool = False
    """An id remains in saved state, which packs strings back to back: the state must be dropped."""


def erased_ids(asked: Iterable[str]) -> list[str]:
    """The ids as logs contain them, from the command line's `client-id=...`, `host=...`, `member=...`.

    A host is written both with and without Kafka's leading `/`. Raises SettingsError.
    """
    ids = []
    for item in asked:
        kind, _, value = item.partition("=")
        if kind not in KINDS or not value:
            raise SettingsError(f"--erase takes {', '.join(f'{known}=...' for known in KINDS)}")
        if not ID_BYTES_MIN <= len(value.encode()) <= ID_BYTES_MAX:
            raise SettingsError(
                f"--erase {kind}=...: an id of {ID_BYTES_MIN} to {ID_BYTES_MAX} bytes can be erased: shorter ones "
                "would be found in others"
            )
        ids += ["/" + value.lstrip("/"), value.lstrip("/")] if kind == HOST else [value]
    return ids


def erase(
    executor: Executor,
    warehouse: Warehouse,
    *,
    ids: Sequence[str],
    new_key: bytes,
    at: datetime,
    metrics: Metrics | None = None,
) -> dict[str, int]:
    """Replace ids by pseudonyms in all tables. Returns the number of changed rows by table.

    `new_key`: KEY_BYTES random bytes, to be the warehouse's key if it has none yet. Raises WarehouseError while replay,
    audit or maintain is running, after a failed replay, and for data that cannot be redacted.
    """
    clusters = clusters_of(warehouse)
    with nobody_else(warehouse, clusters, since=at), job_of(metrics, "erase") as job:
        for cluster_id in clusters:
            tables = ClusterTables(warehouse, cluster_id)
            if broken_off(tables, whole := WholeRun.newest(tables, with_unaudited=True)) is not None:
                raise WarehouseError(
                    f"the last replay of cluster {cluster_id!r} was interrupted, and continues from unchanged tables: "
                    f"run {command('replay' + tables.place_words)} first"
                )
            is_audited = whole.replay_version == WholeRun.newest(tables).replay_version
            if not is_audited or WholeAudit.newest(tables).has_broken_off:
                raise WarehouseError(
                    f"the last audit of cluster {cluster_id!r} was interrupted: run "
                    f"{command('audit' + tables.place_words)} first"
                )
        redaction = Redaction.of(ids, _key_of(warehouse, new_key))
        carry_over(warehouse)
        others = {cluster_id: _writes_of_others(ClusterTables(warehouse, cluster_id)) for cluster_id in clusters}
        existing = [table for table in TABLES.values() if warehouse.exists(table)]
        lost: set[tuple[str, str]] = set()
        counts = {}
        # state comes last: if it must be dropped, everything that it is rebuilt from is redacted
        for table in sorted(existing, key=lambda table: table is CHECKPOINTS):
            counts[table.full_name] = _erase_in(executor, warehouse, table, redaction, at, clusters, lost)
        if lost:
            _drop_state(warehouse, lost, at, clusters)
        for table in existing:
            if table is not RUNS:
                warehouse.forget_history(table)
        if RUNS in existing:
            _pin_again(warehouse, others)
            warehouse.forget_history(RUNS)
        delete_folder(f"{warehouse.root}/{STAGING}")
        job.row_counts = {name: count for name, count in counts.items() if count}
    return counts


def _key_of(warehouse: Warehouse, new_key: bytes) -> bytes:
    """The key of the warehouse, stored before the first table changes. If it was not stored completely, no table has
    changed yet."""
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
    executor: Executor,
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
    done = run_tasks(executor, erase_in_file, works, f"files of {table.full_name}")
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
    """Drop the state of some log partitions: the next run replays them from their beginning."""
    gone = [
        file
        for file in warehouse.files(CHECKPOINTS)
        if (file.partition_values["cluster_id"], file.partition_values["log"]) in lost
    ]
    version = warehouse.version(CHECKPOINTS)
    warehouse.swap(CHECKPOINTS, gone, [], version=version, at=at, writers=writers_of(clusters), changes_rows=True)


def _writes_of_others(tables: ClusterTables) -> dict[str, dict[str, int]]:
    """Foreign writes to the tables that the newest replay and audit read or wrote: Delta's log forgets them."""
    found = {}
    for number in NUMBERS:
        if newest := newest_row(tables, number, [*VERSIONS, "foreign_versions"]):
            left = {name: version for column in VERSIONS for name, version in newest[column] or ()}
            found[number] = later_writes(tables.warehouse, dict(newest["foreign_versions"] or ()), left)
    return found


def _pin_again(warehouse: Warehouse, others: Mapping[str, Mapping[str, Mapping[str, int]]]) -> None:
    """Let the newest replay and audit of each cluster end at the versions that are left: readers find these while the
    next run writes. `others`: foreign writes, by cluster and kind of run."""
    rows = warehouse.read(RUNS).to_pylist()
    for cluster_id, by_number in others.items():
        for number, foreign in by_number.items():
            own = [row for row in rows if row["cluster_id"] == cluster_id and row[number] is not None]
            newest = max(row[number] for row in own)
            for row in own:
                if row[number] == newest:
                    for column in VERSIONS:
                        known = [TABLES[name] for name, _ in row[column] or () if name in TABLES]
                        row[column] = [(table.full_name, warehouse.version(table)) for table in known]
                    row["foreign_versions"] = list(foreign.items())
    warehouse.rebuild(RUNS, pa.Table.from_pylist(rows, schema=arrow_schema(RUNS)))


def erase_in_file(work: EraseWork) -> EraseDone:
    """Rewrite a file with pseudonyms, if it has any of the ids. Runs in a Spark task."""
    table = work.target.table
    if not any(_has_any(rows, table, work.redaction) for rows in row_groups_in_order((work.file,), table)):
        return EraseDone(work.file, None)
    name = MERGED if table is not RECORD_BATCHES else DAMAGED if is_damaged(work.file) else BATCHES
    row_count, is_left, is_state = 0, False, work.file.partition_values.get("log", ALL_LOGS) != ALL_LOGS
    with PartWriter(work.target, name, work.file.partition_values) as writer:
        for rows in row_groups_in_order((work.file,), table):
            redacted, changed_count = redact_rows(rows, table, work.redaction, work.at)
            writer.write(redacted)
            row_count += changed_count
            is_left = is_left or (is_state and _is_in_buffers(redacted, work.redaction))
        written = writer.close()
    if row_count or is_left:
        return EraseDone(work.file, written, row_count, is_left)
    # the match was a part of another id: the file stays, and the new one is not committed
    return EraseDone(work.file, None)


def _has_any(rows: pa.Table, table: Table, redaction: Redaction) -> bool:
    if table is RECORD_BATCHES:
        batches = rows["batch"].drop_null().to_pylist()
        return any(redaction.of_batch(batch) != batch for batch in batches) or _is_in_buffers(
            rows.drop_columns(["batch"]), redaction
        )
    return _is_in_buffers(rows, redaction)


def _is_in_buffers(rows: pa.Table, redaction: Redaction) -> bool:
    """Do the bytes of an id occur anywhere? Faster than checking each value; only a True may be wrong."""
    buffers = chain.from_iterable(chunk.buffers() for column in rows.columns for chunk in column.chunks)
    return any(redaction.may_be_in(memoryview(buffer)) for buffer in buffers if buffer is not None)


def redact_rows(rows: pa.Table, table: Table, redaction: Redaction, at: datetime) -> tuple[pa.Table, int]:
    """Rows with pseudonyms, and the number of changed rows. Changed batches are marked."""
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
    """A value of any type, including nested strings and bytes."""
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


def print_erased(counts: dict[str, int], steps: Steps) -> None:
    """Print where ids were found, and what remains to be done elsewhere."""
    steps.facts["erased"] = {"row_counts": dict(counts)}
    for name, count in counts.items():
        if count:
            steps.say(f"{name}: {counted(count, 'row')} changed")
    if not any(counts.values()):
        steps.say("none of the ids was in any table")
    steps.say(
        "older versions of all tables are gone. What the sources still hold of the ids comes again with the next "
        "capture; copies, backups and reports made before are not touched"
    )
