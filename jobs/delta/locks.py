"""One run of a kind at a time: a lock that the system releases when its process ends, however it ends.

For local warehouses only. Object stores have no such lock; there Delta's conflict detection refuses the second writer
of a table, and since a failed run is repeated with the same inputs, two runs would write the same.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import IO, Final

from jobs.delta.warehouse import LOCKS, Warehouse
from jobs.errors import WarehouseError, writing

LOCK_BYTES_MAX: Final = 200
LOOKED_AT_SECONDS: Final = (0.05, 0.2)
"""To wait before the next attempts: `is_at_work` has a lock for a moment."""
NIGHTLY: Final = "nightly"
AUDIT: Final = "audit"


@contextmanager
def only_one(
    warehouse: Warehouse, job: str, cluster_id: str, *, since: datetime, holder: str | None = None, waits: bool = False
) -> Iterator[None]:
    """Context in which no other process does this job for the same cluster and warehouse.

    `holder`: what to call the process that has the lock, if that is another job. `waits`: until another process has
    ended; else WarehouseError is raised, which says who has the lock and since when.
    """
    if "://" in warehouse.root:
        yield
        return
    path = _path(warehouse, job, cluster_id)
    with writing("a lock", str(path.parent)):
        path.parent.mkdir(parents=True, exist_ok=True)
        # unbuffered: otherwise closing the file could fail again
        file = path.open("a+b", buffering=0)
    with file:
        if not _is_taken(file, waits=waits):
            file.seek(0)
            owner = file.read(LOCK_BYTES_MAX).decode("ascii", "replace")
            raise WarehouseError(
                f"another {job} of cluster {cluster_id!r} is at work on this warehouse ({owner}): "
                "run this one when it has ended"
            )
        by = "" if holder is None else f", by {holder}"
        with writing("a lock", str(path.parent)):
            file.truncate(0)
            file.write(f"process {os.getpid()}, since {since.isoformat(timespec='seconds')}{by}".encode())
        yield


def _is_taken(file: IO[bytes], *, waits: bool) -> bool:
    for seconds in (*LOOKED_AT_SECONDS, None):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            if seconds is not None:
                time.sleep(seconds)
        else:
            return True
    return False


def is_at_work(warehouse: Warehouse, job: str, cluster_id: str) -> bool:
    """Does another process do this job for the same cluster and warehouse?"""
    path = _path(warehouse, job, cluster_id)
    if "://" in warehouse.root or not path.exists():
        return False
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _path(warehouse: Warehouse, job: str, cluster_id: str) -> Path:
    return Path(warehouse.root) / LOCKS / f"{job}-{sha256(cluster_id.encode()).hexdigest()[:16]}.lock"
