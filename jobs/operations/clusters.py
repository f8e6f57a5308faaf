"""nightly of many clusters in one warehouse, in parallel processes, as many as there are cores.

Spark distributes the tasks of one large cluster. Each of many small clusters has less work than Spark needs to
distribute it. So here a cluster's tasks run in one process (`jobs.spark.executors`), and the clusters are distributed.
A process handles one cluster at a time: memory is that of the largest cluster, times the number of cores. An error of
one cluster, or the end of its process, does not affect others.

The processes are forked from one that has loaded what a night needs (`jobs.operations.clusters_ahead`); the parent
process only waits for them and loads nothing of it.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from multiprocessing.context import BaseContext
from multiprocessing.forkserver import ensure_running
from typing import Any, Final

from jobs import PACKAGE
from jobs.console.names import cut, short
from jobs.console.output import printable
from jobs.exit_codes import DONE, FAILED, INCOMPLETE
from jobs.settings import Settings

WORST_LAST: Final = (DONE, INCOMPLETE, FAILED)
"""Exit codes of a cluster, the worst last."""
CLUSTERS_A_PROCESS: Final = 100
"""Number of clusters after which a process is replaced, which frees whatever libraries keep."""
NIGHT: Final = ".operations.cluster_night"


@dataclass(frozen=True, slots=True)
class ClusterNight:
    cluster_id: str
    exit_code: int
    seconds: float
    lines: tuple[str, ...]
    """The output of its nightly."""
    facts: dict[str, Any]
    error: str = ""

    @property
    def summary(self) -> tuple[str, ...]:
        """Its headline, and a line of what it found if that is anything new."""
        if self.exit_code == FAILED:
            return (f"{short(self.cluster_id)}: failed: {self.error}",)
        found = self.facts["found"]
        return found["headline"], *((cut(f"  {found['summary']}"),) if found["new"] or found["over"] else ())

    def as_json(self) -> dict[str, Any]:
        """For other programs."""
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
    """Run the nightlies of clusters, reporting each in a line or two as it ends.

    Returns the results in the order of the clusters.
    """
    nights: dict[str, ClusterNight] = {}
    core_count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for done in _nights(clusters, run_id, started_at, process_count or core_count):
        nights[done.cluster_id] = done
        for line in done.summary:
            say(line)
    return [nights[settings.cluster_id] for settings in clusters]


def worst(nights: Sequence[ClusterNight]) -> int:
    return max((night.exit_code for night in nights), key=WORST_LAST.index, default=DONE)


def night_of(settings: Settings, run_id: str, started_at: datetime) -> ClusterNight:
    """Run the nightly of one cluster in this process."""
    night: ClusterNight = import_module(NIGHT, PACKAGE).night_of(settings, run_id, started_at)
    return night


def _nights(
    clusters: Sequence[Settings], run_id: str, started_at: datetime, process_count: int
) -> Iterator[ClusterNight]:
    """Yield results as clusters complete."""
    ended = set()
    for done in _at_once(clusters, run_id, started_at, process_count):
        ended.add(done.cluster_id)
        yield done
    # a killed process breaks the whole pool: run each remaining cluster alone, to find out which one was the cause
    for settings in clusters:
        if settings.cluster_id not in ended:
            yield from _at_once([settings], run_id, started_at, 1)


def _at_once(
    clusters: Sequence[Settings], run_id: str, started_at: datetime, process_count: int
) -> Iterator[ClusterNight]:
    """Yield the results of clusters whose process survived; a single cluster always gets a result."""
    pool = ProcessPoolExecutor(
        min(process_count, len(clusters)) or 1,
        _context(),
        initializer=_end_with_the_command,
        max_tasks_per_child=CLUSTERS_A_PROCESS,
    )
    try:
        futures = [pool.submit(night_of, settings, run_id, started_at) for settings in clusters]
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
    finally:
        # on an interrupt, do not wait for clusters that have not begun
        pool.shutdown(cancel_futures=True)


def _context() -> BaseContext:
    """The start method of processes: forked from one that has loaded everything, where possible."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", f"{PACKAGE}.operations.clusters_ahead"])
    try:
        ensure_running()
    except OSError:
        # the fork server's socket is in the temporary folder, and socket paths have a length limit
        return multiprocessing.get_context("spawn")
    return context


def _end_with_the_command() -> None:
    """End this process when the command ends, for example on Ctrl-C, which the command reports."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_wait_for_its_end, daemon=True).start()


def _wait_for_its_end() -> None:
    command = multiprocessing.parent_process()
    if command is not None:
        command.join()
        os._exit(FAILED)
