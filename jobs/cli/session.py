"""The Spark session of a job and the context of its run."""

import threading
import uuid
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING

from jobs import PACKAGE
from jobs.settings import Settings

if TYPE_CHECKING:
    from jobs.console.progress import Steps
    from jobs.delta.warehouse import Warehouse
    from jobs.operations.run_context import RunContext
    from jobs.spark.executors import SparkExecutor


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its id and its start, which are in every row that it writes."""

    run_id: str
    started_at: datetime

    @classmethod
    def start(cls) -> "Run":
        started_at = datetime.now(UTC)
        return cls(f"{started_at:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}", started_at)


def open_session(
    job: str, settings: Settings, *, meanwhile: str | None = None
) -> "tuple[SparkExecutor, Warehouse, Steps]":
    """Spark as the executor of a job, its warehouse, and its output.

    `meanwhile`: the module of a job that writes tables, imported while the JVM starts, which takes seconds during which
    Python is idle.
    """
    from jobs.spark.session import start_session

    loading = threading.Thread(target=load_modules, args=(meanwhile,), daemon=True)
    loading.start()
    session = start_session(job, wakes_workers=meanwhile is not None)
    loading.join()
    from jobs.console.progress import Steps
    from jobs.delta.warehouse import Warehouse
    from jobs.spark.executors import SparkExecutor

    tables = Warehouse(settings.warehouse, codec=settings.codec, codecs=settings.codecs)
    executor = SparkExecutor(session)
    return executor, tables, Steps(executor)


def load_modules(module: str | None) -> None:
    """Import what a job needs; a job with a module writes tables, and imports what its first write needs."""
    import_module(module or ".delta.warehouse", PACKAGE)
    if module is not None:
        with suppress(Exception):  # only an optimization: the write itself reports errors
            import_module("pyarrow.acero")


def start_run(job: str, settings: Settings, *, meanwhile: str | None = None, has_metrics: bool = True) -> "RunContext":
    """Open the session of a job. Returns the context of its run, which starts now.

    Raises WarehouseError for tables of a newer version, before anything is written, and for a read-only warehouse.
    """
    if meanwhile is not None:
        from jobs.delta.filesystems import require_writable

        require_writable(settings.warehouse)
    executor, warehouse, steps = open_session(job, settings, meanwhile=meanwhile)
    from jobs.operations.newer_warehouse import require_not_newer

    require_not_newer(warehouse)
    from jobs.delta.cluster_tables import ClusterTables
    from jobs.operations.metrics import Metrics
    from jobs.operations.run_context import RunContext

    run = Run.start()
    metrics = Metrics.of_run(ClusterTables(warehouse, settings.cluster_id), settings, run.run_id, steps.say)
    return RunContext(
        executor, warehouse, settings, run.run_id, run.started_at, steps, metrics if has_metrics else None
    )
