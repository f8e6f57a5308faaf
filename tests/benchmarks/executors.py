"""Two executors against one, each with one core, on a standalone cluster of this machine: the same logs, in turns.

    python -m tests.benchmarks.executors [TURNS]      the hot log partition alone

Nights of one application each. Replay and audit count; capture does not, for in its time executors fetch and unpack the
environment, which local mode need not. The tables of all nights must be the same.
"""

import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import duckdb

from jobs.delta.warehouse import Warehouse
from schemas.tables.gold import GOLD_TABLES
from schemas.tables.silver import SILVER_TABLES
from tests.benchmarks.runs import run, step_seconds
from tests.benchmarks.skewed import hot_log_partition
from tests.cluster.standalone import StandaloneCluster

COUNTS: Final = (1, 2)
COUNTED: Final = ("replay", "audit")
AIM: Final = 1.6


def compare(logs: Path, turns: int, scratch: Path, name: str = "executors") -> None:
    """Print a line a night, and one for all: bronze to gold by one executor and by two."""
    made: list[Mapping[str, object]] = []
    seconds: dict[int, list[float]] = {count: [] for count in COUNTS}
    for turn in range(turns):
        for count in COUNTS:
            with StandaloneCluster(scratch / f"cluster-{turn}-{count}", worker_count=count, memory="3g") as cluster:
                seconds[count].append(_run(cluster.url, logs, scratch / "warehouse"))
            made.append(sums(Warehouse(str(scratch / "warehouse"))))
    if any(tables != made[0] for tables in made):
        raise SystemExit(f"{name}: the tables of two executors are not those of one")
    one, two = (statistics.median(seconds[count]) for count in COUNTS)
    print(
        f"{name}, bronze to gold: one {one:.1f} s, two {two:.1f} s, {one / two:.2f} times as fast "
        f"(the aim is {AIM}); identical tables",
        flush=True,
    )


def compare_hot(turns: int, scratch: Path, commit_count: int = 10_000_000) -> None:
    """The same of a log with all commits in one log partition."""
    hot_log_partition(scratch / "logs", commit_count)
    compare(scratch / "logs", turns, scratch, f"executors, {commit_count:,} commits in one log partition")


def sums(warehouse: Warehouse) -> Mapping[str, object]:
    """By table and partition of it: how many rows, and a sum over all of them in whatever order."""
    found: dict[str, object] = {}
    for table in (*SILVER_TABLES, *GOLD_TABLES):
        files: dict[str, list[str]] = {}
        for file in warehouse.files(table):
            files.setdefault(f"{table.full_name} {sorted(file.partition_values.items())}", []).append(file.path)
        columns = ", ".join(f'"{name}"' for name in sorted(table.column_names) if name not in table.partition_by)
        for name, paths in files.items():
            of_file = f"from (select {columns} from read_parquet({paths})) as rows"
            found[name] = duckdb.execute(f"select count(*), sum(hash(rows)::hugeint) {of_file}").fetchall()
    return found


def _run(master: str, logs: Path, warehouse: Path) -> float:
    shutil.rmtree(warehouse, ignore_errors=True)
    words = ["nightly", "--segments", str(logs), "--warehouse", str(warehouse)]
    reported = step_seconds(run(["./spark-submit.sh", "--master", master, *words], accepted=(0, 3)).output)
    print(f"  {', '.join(f'{step} {seconds:.1f}' for step, seconds in reported.items())}", flush=True)
    return sum(reported[step] for step in COUNTED)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        compare_hot(int(sys.argv[1]) if len(sys.argv) > 1 else 3, Path(folder))
