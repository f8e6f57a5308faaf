"""What many small clusters in one nightly take, compared with one: the sample recording under as many names.

    python -m tests.benchmarks.fleet

Whole commands into new warehouses, in turns. Fifty clusters are to take less than three times what one takes.
"""

import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Final

from tests.benchmarks.runs import ROOT, Run, run

CLUSTERS: Final = 50
TURNS: Final = 3
LOGS: Final = ROOT / "recordings" / "full-a" / "logs"


def night(scratch: Path, count: int, *options: str) -> Run:
    """A nightly of so many clusters."""
    warehouse = scratch / "warehouse"
    shutil.rmtree(warehouse, ignore_errors=True)
    listed = scratch / "fleet.toml"
    clusters = (f'[clusters.c{number}]\nsegments = ["{LOGS}"]\n' for number in range(count))
    listed.write_text(f'warehouse = "{warehouse}"\n' + "".join(clusters))
    return run(["env", f"GROUPLEDGER_CONFIG={listed}", "./spark-submit.sh", "nightly", *options])


def compare(scratch: Path) -> None:
    """Print a line for one cluster by Spark, for one of a list, and for all of a list."""
    scratch.mkdir(parents=True, exist_ok=True)
    kinds = {
        "one cluster": (1, ["--cluster-id", "c0", "--segments", str(LOGS)]),
        "one of a list": (1, ["--all-clusters"]),
        f"{CLUSTERS} of a list": (CLUSTERS, ["--all-clusters"]),
    }
    done: dict[str, list[Run]] = {name: [] for name in kinds}
    for _ in range(TURNS):
        for name, (count, options) in kinds.items():
            done[name].append(night(scratch, count, *options))
    seconds = {name: statistics.median(it.seconds for it in runs) for name, runs in done.items()}
    for name, runs in done.items():
        cpu = statistics.median(it.used.cpu_seconds for it in runs)
        times = seconds[name] / seconds["one cluster"]
        print(
            f"nightly of {name}: {seconds[name]:.1f} s, {times:.1f} times one; processor time {cpu:.1f} s", flush=True
        )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        compare(Path(folder))
