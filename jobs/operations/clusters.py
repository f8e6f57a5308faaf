"""nightly of many clusters in one warehouse: each in a process of its own, as many at a time as there are cores.

Spark spreads the tasks of one large cluster. Of many small ones each has less to do than Spark takes to hand it out,
so here a cluster's tasks run in the process that the cluster has (`jobs.spark.in_driver`), and clusters are spread. A
process takes one cluster at a time: memory is that of the largest cluster, once a core. What happens to one, its error
or the end of its process, happens to no other.
"""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from io import StringIO
from time import perf_counter
from typing import Any, Final

from deltalake.exceptions import DeltaError
from rich.console import Console
from rich.table import Table as RichTable

from jobs.console.names import short
from jobs.console.output import printable
from jobs.console.progress import Steps
from jobs.delta.warehouse import Warehouse
from jobs.errors import JobError, WarehouseError
from jobs.operations.metrics import Metrics
from jobs.operations.nightly import DONE, FAILED, INCOMPLETE, run_nightly
from jobs.operations.run_context import RunContext
from jobs.queries.sql import one_line
from jobs.settings import Settings
from jobs.spark.in_driver import in_driver
from jobs.spark.worker_memory import few_cycles
from schemas.tables import TABLES

WORST_LAST: Final = (DONE, INCOMPLETE, FAILED)
"""Exit codes of a cluster."""
CLUSTERS_A_PROCESS: Final = 100
"""Then it ends, and another takes its place: whatever a library keeps goes with it."""
LINE_WIDTH: Final = 160
CHECKPOINT_EVERY: Final = 32
"""Clusters that ended. Each commits to some forty tables: whoever opens one reads its log from the last checkpoint on.
"""


@dataclass(frozen=True, slots=True)
class ClusterNight:
    """What became of one cluster."""

    cluster_id: str
    exit_code: int
    seconds: float
    lines: tuple[str, ...]
    """What its nightly said."""
    facts: dict[str, Any]
    error: str = ""

    @property
    def summary(self) -> str:
        """In one line."""
        if self.exit_code == FAILED:
            return f"{short(self.cluster_id)}: failed: {self.error}"
        records = self.facts["ledger"]["total"]["record_count"]
        lacks = "" if self.exit_code == DONE else ", something is missing or could not be read"
        return (
            f"{short(self.cluster_id)}: done in {self.seconds:.1f} s{lacks}: {records:,} records; "
            f"{self.facts['found']['headline']}"
        )

    def as_json(self) -> dict[str, Any]:
        """For another program."""
        error = {"error": self.error} if self.error else {}
        return {"cluster_id": self.cluster_id, "exit_code": self.exit_code, **error, **self.facts}


def run_clusters(
    clusters: Sequence[Settings],
    *,
    run_id: str,
    started_at: datetime,
    say: Callable[[str], None],
    process_count: int | None = None,
) -> list[ClusterNight]:
    """The nights of clusters, in their order; each is reported in one line as it ends."""
    nights: dict[str, ClusterNight] = {}
    for night in _nights(clusters, run_id, started_at, process_count or _core_count()):
        nights[night.cluster_id] = night
        say(night.summary)
        if len(nights) % CHECKPOINT_EVERY == 0:
            _checkpoint(clusters[0].warehouse, say)
    return [nights[settings.cluster_id] for settings in clusters]


def _checkpoint(root: str, say: Callable[[str], None]) -> None:
    """Put what the logs of the tables say into a file each: the next clusters open them sooner."""
    warehouse = Warehouse(root, takes_turns=True)
    for table in TABLES.values():
        if warehouse.exists(table):
            try:
                warehouse.checkpoint(table)
            except (DeltaError, OSError, WarehouseError) as error:
                say(f"no checkpoint of {table.full_name}, all else goes on: {printable(str(error))}")


def _core_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worst(nights: Sequence[ClusterNight]) -> int:
    """The exit code of all of them."""
    return max((night.exit_code for night in nights), key=WORST_LAST.index, default=DONE)


class _Lines(Steps):
    """What a nightly says in lines; nobody sees its tables, which take a twentieth of a small night to draw."""

    def table(self, table: RichTable) -> None:
        """Not drawn: its numbers are in the facts."""


@cache
def _warehouse(root: str, codec: str, codecs: tuple[tuple[str, str], ...]) -> Warehouse:
    """The warehouse as this process knows it: its next cluster opens no table again."""
    return Warehouse(root, codec=codec, codecs=dict(codecs), takes_turns=True)


def night_of(settings: Settings, run_id: str, started_at: datetime) -> ClusterNight:
    """The night of one cluster, in this process."""
    began = perf_counter()
    out = StringIO()
    steps = _Lines(console=Console(file=out, width=LINE_WIDTH, highlight=False, emoji=False))
    error = ""
    try:
        warehouse = _warehouse(settings.warehouse, settings.codec, tuple(settings.codecs.items()))
        metrics = Metrics(
            warehouse,
            cluster_id=settings.cluster_id,
            run_id=run_id,
            clock=lambda: datetime.now(UTC),
            textfile=settings.metrics_textfile,
            groups_max=settings.metrics_groups,
            say=steps.say,
        )
        with few_cycles():
            code = run_nightly(RunContext(in_driver(), warehouse, settings, run_id, started_at, steps, metrics))
    except Exception as raised:
        code, text = FAILED, one_line(raised)
        _warehouse.cache_clear()
        error = printable(text if isinstance(raised, JobError) else f"{type(raised).__name__}: {text}")
    lines = tuple(out.getvalue().splitlines())
    return ClusterNight(settings.cluster_id, code, perf_counter() - began, lines, steps.facts, error)


def _nights(
    clusters: Sequence[Settings], run_id: str, started_at: datetime, process_count: int
) -> Iterator[ClusterNight]:
    ended = set()
    for night in _at_once(clusters, run_id, started_at, process_count):
        ended.add(night.cluster_id)
        yield night
    # a process that was killed takes the whole pool with it: who is left gets one alone, so that it is known who it was
    for settings in clusters:
        if settings.cluster_id not in ended:
            yield from _at_once([settings], run_id, started_at, 1)


def _at_once(
    clusters: Sequence[Settings], run_id: str, started_at: datetime, process_count: int
) -> Iterator[ClusterNight]:
    """Nights of those whose process lived; of one cluster alone in any case."""
    pool = ProcessPoolExecutor(
        min(process_count, len(clusters)) or 1,
        multiprocessing.get_context("spawn"),
        max_tasks_per_child=CLUSTERS_A_PROCESS,
    )
    with pool:
        futures: dict[Future[ClusterNight], Settings] = {
            pool.submit(night_of, settings, run_id, started_at): settings for settings in clusters
        }
        for future in as_completed(futures):
            try:
                yield future.result()
            except BrokenProcessPool:
                if len(clusters) > 1:
                    continue
                error = (
                    "its process was killed, as the system does where memory runs out: "
                    f"run it by itself with nightly --cluster-id {printable(clusters[0].cluster_id)}"
                )
                yield ClusterNight(clusters[0].cluster_id, FAILED, 0.0, (), {}, error)
