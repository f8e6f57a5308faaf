"""What is the same of two warehouses, however they came about, and the processes of a job that can be killed."""

import os
import signal
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from jobs.delta.warehouse import Warehouse
from schemas.tables import TABLES
from schemas.tables.state import AUDIT_STARTS, AUDITED_LOGS, REPLAY_STARTS, RUN_METRICS

CLUSTER: Final = "test"

OF_THE_RUN: Final = frozenset(
    {
        *("captured_at", "capture_id", "observed_at", "seen_at", "first_seen_at", "run_id", "started_at"),
        *("bronze_version", "admin_version", "replay_version", "audit_version", "table_versions"),
    }
)
"""Columns that say when, and by which run, a row was written: another run writes others."""
NOT_COMPARED: Final = frozenset(
    {REPLAY_STARTS.full_name, AUDIT_STARTS.full_name, AUDITED_LOGS.full_name, RUN_METRICS.full_name}
)
"""A row a run that began: one that broke off has one, too. And what an audit keeps, which hangs on the one before."""

WORKER: Final = b"-m\0jobs.spark.worker_daemon"
EXECUTOR: Final = b"CoarseGrainedExecutorBackend"


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
    found: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_bytes()
            # "pid (name) state ppid pgrp session ...", and the name may hold anything
            ppid, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[1:4]
        except OSError:
            continue
        if int(session) == session_id and marker in command:
            found[int(folder.name)] = int(ppid)
    forked = [pid for pid, ppid in found.items() if ppid in found]
    return sorted(forked or found)


def kill(pid: int) -> bool:
    """kill -9; was it there?"""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
