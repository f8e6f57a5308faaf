"""What is the same of two warehouses, however they came about, and the processes of a job that can be killed."""

import os
import signal
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from jobs.delta.warehouse import Warehouse
from schemas.tables import TABLES
from schemas.tables.state import AUDITED_LOGS, RUN_METRICS, RUN_STARTS

CLUSTER: Final = "test"

OF_THE_RUN: Final = frozenset(
    {
        *("captured_at", "capture_id", "observed_at", "seen_at", "first_seen_at", "run_id", "started_at"),
        *(
            "bronze_version",
            "bronze_versions",
            "admin_version",
            "replay_version",
            "audit_version",
            "audited_version",
            "table_versions",
        ),
    }
)
"""Columns that say when, and by which run, a row was written: another run writes others."""
NOT_COMPARED: Final = frozenset({RUN_STARTS.full_name, AUDITED_LOGS.full_name, RUN_METRICS.full_name})
"""A row a run that began: one that broke off has one, too. And what an audit keeps, which hangs on the one before."""

WORKER: Final = b"-m\0pyspark.daemon"
EXECUTOR: Final = b"CoarseGrainedExecutorBackend"
TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def digests(warehouse: Warehouse) -> dict[str, tuple[int, str]]:
    """By table: rows, and a hash of all of them in one order. No natural key may be there twice."""
    found = {}
    for name, table in TABLES.items():
        if name in NOT_COMPARED or not warehouse.exists(table):
            continue
        rows = warehouse.read(table)
        if table.key and not set(table.key) & OF_THE_RUN:
            assert rows.group_by(list(table.key)).aggregate([]).num_rows == rows.num_rows, (
                f"{name}: rows are there twice"
            )
        kept = [column for column in table.column_names if column not in OF_THE_RUN]
        lines = sorted(map(repr, rows.select(kept).to_pylist()))
        found[name] = len(lines), sha256("\n".join(lines).encode()).hexdigest()
    return found


def differences(found: Mapping[str, tuple[int, str]], expected: Mapping[str, tuple[int, str]]) -> list[str]:
    """Tables which are not the same, with their rows."""
    return [
        f"{name}: {found.get(name, (0, ''))[0]} rows, expected {expected.get(name, (0, ''))[0]}"
        for name in sorted({*found, *expected})
        if found.get(name) != expected.get(name)
    ]


def processes_of(session_id: int, marker: bytes) -> list[int]:
    """Processes of a session whose command line holds a text; of a daemon and what it forked the latter alone."""
    found = {it.pid: it.ppid for it in _processes_in(session_id) if marker in it.command}
    forked = [pid for pid, ppid in found.items() if ppid in found]
    return sorted(forked or found)


def processor_seconds(session_id: int) -> float:
    """What a session's processes took of processors so far: unlike time it does not pass while others have them."""
    return sum(it.ticks for it in _processes_in(session_id)) / TICKS_PER_SECOND


class _Process(NamedTuple):
    pid: int
    ppid: int
    command: bytes
    ticks: int
    """Of processors, those of its children that have ended included."""


def _processes_in(session_id: int) -> Iterator[_Process]:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_bytes()
            # "pid (name) state ppid pgrp session ...", and the name may hold anything; user and system time are the
            # 14th and 15th field, those of children that have ended the next two
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session_id:
            yield _Process(int(folder.name), int(fields[1]), command, sum(map(int, fields[11:15])))


def kill(pid: int) -> bool:
    """kill -9; was it there?"""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
