"""One run of a kind at a time: a lock which the system releases when its process ends, however it ends.

Local warehouses only. On object stores nothing of the kind is to be had; there Delta's own conflict detection refuses
the second writer of a table, and what a run that broke off is repeated with makes two runs write the same.
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
    """While it lasts, no other process does this job on the same cluster and warehouse.

    `holder`: who keeps the job from running, where it is another one. Raises WarehouseError, which says who does, and
    since when.
    """
    if "://" in warehouse.root:
        yield
        return
    folder = Path(warehouse.root) / LOCKS
    name = f"{job}-{sha256(cluster_id.encode()).hexdigest()[:16]}.lock"
    with writing("a lock", str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        # nothing is kept back: to close it could only fail again
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
