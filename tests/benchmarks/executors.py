"""Two executors against one, each with one core, on a standalone cluster of this machine: the same logs, in turns.

Nights of one application each. Replay and audit count; capture does not, for in its time executors fetch and unpack the
environment, which local mode need not.
"""

import shutil
import statistics
from pathlib import Path
from typing import Final

from tests.benchmarks.runs import run, step_seconds
from tests.cluster.standalone import StandaloneCluster

COUNTS: Final = (1, 2)
COUNTED: Final = ("replay", "audit")
AIM: Final = 1.6


def compare(logs: Path, turns: int, scratch: Path) -> None:
    """Print a line a night, and one for all: bronze to gold by one executor and by two."""
    seconds: dict[int, list[float]] = {count: [] for count in COUNTS}
    for turn in range(turns):
        for count in COUNTS:
            with StandaloneCluster(scratch / f"cluster-{turn}-{count}", worker_count=count, memory="3g") as cluster:
                seconds[count].append(_run(cluster.url, logs, scratch / "warehouse"))
    one, two = (statistics.median(seconds[count]) for count in COUNTS)
    print(
        f"executors, bronze to gold: one {one:.1f} s, two {two:.1f} s, {one / two:.2f} times as fast "
        f"(the aim is {AIM})",
        flush=True,
    )


def _run(master: str, logs: Path, warehouse: Path) -> float:
    shutil.rmtree(warehouse, ignore_errors=True)
    words = ["nightly", "--segments", str(logs), "--warehouse", str(warehouse)]
    told = step_seconds(run(["./spark-submit.sh", "--master", master, *words], accepted=(0, 3)).output)
    print(f"  {', '.join(f'{step} {seconds:.1f}' for step, seconds in told.items())}", flush=True)
    return sum(told[step] for step in COUNTED)
