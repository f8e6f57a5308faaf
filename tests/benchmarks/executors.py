"""Two executors against one, each with one core, on a standalone cluster of this machine: the same logs, in turns."""

import shutil
import statistics
from pathlib import Path
from typing import Final

from tests.benchmarks.runs import run, step_seconds
from tests.cluster.standalone import StandaloneCluster

COUNTS: Final = (1, 2)
AIM: Final = 1.6


def compare(logs: Path, turns: int, scratch: Path) -> None:
    """Print one line: segments to silver by one executor and by two, Spark's start-up aside."""
    seconds: dict[int, list[float]] = {count: [] for count in COUNTS}
    for turn in range(turns):
        for count in COUNTS:
            with StandaloneCluster(scratch / f"cluster-{turn}-{count}", worker_count=count, memory="3g") as cluster:
                seconds[count].append(_run(cluster.url, logs, scratch / "warehouse"))
    one, two = (statistics.median(seconds[count]) for count in COUNTS)
    print(f"executors: one {one:.1f} s, two {two:.1f} s, {one / two:.2f} times as fast (the aim is {AIM})", flush=True)


def _run(master: str, logs: Path, warehouse: Path) -> float:
    shutil.rmtree(warehouse, ignore_errors=True)
    total = 0.0
    for job, words in (("capture", ["--segments", str(logs)]), ("replay", [])):
        command = ["./spark-submit.sh", "--master", master, job, "--warehouse", str(warehouse), *words]
        total += step_seconds(run(command, accepted=(0, 3)).output)[job]
    return total
