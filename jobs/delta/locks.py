"""One run of a kind at a time: a lock that the system releases when its process ends, however it ends.

For local warehouses only. Object stores have no such lock; there Delta's conflict detection refuses the second writer
of a table, and since a failed run is repeated with the same inputs, two runs would write the same.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

from jobs.delta.warehouse import LOCKS, Warehouse
from jobs.errors import WarehouseError, writing

LOCK_BYTES_MAX: Final = 200


@contextmanager
def only_one(
    warehouse: Warehouse, job: str, cluster_id: str, *, since: datetime, holder: str | None = None
) -> Iterator[None]:
    """Context in which no other process does this job for the same cluster and warehouse.

    `holder`: what to call the process that has the lock, if that is another job. Raises WarehouseError, which says who
    has the lock and since when.
    """
    if "://" in warehouse.root:
        yield
        return
    folder = Path(warehouse.root) / LOCKS
    name = f"{job}-{sha256(cluster_id.encode()).hexdigest()[:16]}.lock"
    with writing("a lock", str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        # unbuffered: otherwise closing the file could fail again
        file = (folder / name).open("a+b", buffering=0)
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read(LOCK_BYTES_MAX).decode("ascii", "replace")
            raise WarehouseError(
                f"another {job} of cluster {cluster_id!r} is at work on this warehouse ({owner}): "
                "run this one when it has ended"
            ) from None
        by = "" if holder is None else f", by {holder}"
        with writing("a lock", str(folder)):
            file.truncate(0)
            file.write(f"process {os.getpid()}, since {since.isoformat(timespec='seconds')}{by}".encode())
        yield
