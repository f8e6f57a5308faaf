"""The API on each Spark from the registry, in an environment of its own below .cache/sparks: every table that it makes
of all recordings, compared with nightly's, and in three days with one replay; and what it refuses. Prints a table of
versions and results (`docs/spark.md` keeps it).

    python -m tests.sparks [3.5.9 ...]        all, or some
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table as Shown

from groupledger.audit import GROUP_TABLES, SHARE_TABLES
from groupledger.key_replay import ROWS_OF_SHARE_STATE
from jobs.silver.tasks import TABLES_OF_TOPIC
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.tables.bronze import COVERAGE, QUARANTINE, RECORD_BATCHES
from schemas.tables.gold import HANGING_TRANSACTIONS
from schemas.tables.silver import CONFIGS, PARTITION_COUNTS, TOPICS
from tests.cases.harness import Ledger
from tests.conftest import PROJECT_ROOT
from tests.groupledger.raw import RECORDINGS, raw_records, recording
from tests.sparks.on_this_spark import LIBRARIES
from tests.test_packaging import interpreter

CACHE: Final = PROJECT_ROOT / ".cache" / "sparks"
UV: Final = PROJECT_ROOT / ".venv" / "bin" / "uv"
PROGRAM: Final = PROJECT_ROOT / "tests" / "sparks" / "on_this_spark.py"
TABLES: Final = (
    *(*TABLES_OF_TOPIC[OFFSETS_TOPIC], *ROWS_OF_SHARE_STATE, TOPICS, CONFIGS, PARTITION_COUNTS),
    *(*GROUP_TABLES, *SHARE_TABLES, HANGING_TRANSACTIONS, RECORD_BATCHES, COVERAGE, QUARANTINE),
)


@dataclass(frozen=True)
class Environment:
    """A Spark, and what it runs on."""

    spark: str
    python: str
    resolution: str
    """uv's: `lowest-direct` takes the lower bounds of pyproject.toml, `highest` the newest versions."""
    modes: tuple[str, ...] = ("classic", "Connect")

    @property
    def folder(self) -> Path:
        """Where it is made, once."""
        return CACHE / f"{self.spark}-{self.python}-{self.resolution}"

    def make(self) -> None:
        """Install Spark, and the dependencies of the API."""
        text = (PROJECT_ROOT / "pyproject.toml").read_text("utf-8")
        stamp = self.folder / "pyproject.toml"
        if stamp.is_file() and stamp.read_text("utf-8") == text:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        subprocess.run([UV, "venv", "--quiet", "--python", interpreter(self.python), self.folder], check=True)
        command: list[str | Path] = [UV, "pip", "install", "--quiet", "--python", self.folder / "bin" / "python"]
        command += ["--resolution", self.resolution, "--requirement", "pyproject.toml", "--extra", "spark"]
        spark = "pyspark[connect]" if "Connect" in self.modes else "pyspark"
        subprocess.run([*command, f"{spark}=={self.spark}"], cwd=PROJECT_ROOT, check=True)
        stamp.write_text(text, "utf-8")

    def run(self, tables: Path, mode: str) -> dict[str, Any]:
        """What the program printed."""
        python = self.folder / "bin" / "python"
        own = {
            "PYTHONPATH": str(PROJECT_ROOT),
            "PYSPARK_PYTHON": str(python),
            "NUMBA_CACHE_DIR": str(self.folder / "numba"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
        done = subprocess.run(
            [python, PROGRAM, tables, mode],
            cwd=self.folder,
            env=environment | own,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return {"failed": {"all": done.stderr[-4000:]}, "equal": []}
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result


ENVIRONMENTS: Final = (
    Environment("3.5.9", "3.11", "lowest-direct", ("classic",)),
    Environment("3.5.9", "3.11", "highest", ("classic",)),
    Environment("4.0.5", "3.11", "lowest-direct"),
    Environment("4.1.4", "3.12", "highest"),
    Environment("4.2.1", "3.13", "highest"),
    Environment("4.3.0", "3.13", "highest"),
)


def write_tables(folder: Path) -> None:
    """Tables of nightly and raw records, of all recordings, each as a cluster of its name."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    parts: dict[str, list[pa.Table]] = {}
    for name in RECORDINGS:
        ledger = Ledger(folder / name, cluster_id=name)
        ledger.night(recording(name))
        records = raw_records(ledger.warehouse)
        parts.setdefault("records", []).append(records.append_column("cluster_id", pa.repeat(name, len(records))))
        for table in TABLES:
            parts.setdefault(table.full_name, []).append(ledger.table(table.full_name))
        shutil.rmtree(folder / name)
    for name, some in parts.items():
        pq.write_table(pa.concat_tables(some), folder / f"{name}.parquet")


def main(sparks: list[str]) -> int:
    """Returns the exit code: 1 where a table differs."""
    chosen = [it for it in ENVIRONMENTS if not sparks or it.spark in sparks]
    write_tables(CACHE / "tables")
    shown = Shown("Spark", "", "Python", *LIBRARIES[1:], "as expected", box=MARKDOWN)
    is_good = True
    for environment in chosen:
        environment.make()
        for mode in environment.modes:
            result = environment.run(CACHE / "tables", mode)
            equal, failed = result["equal"], result["failed"]
            versions = (str(result.get(name)) for name in ("python", *LIBRARIES[1:]))
            shown.add_row(environment.spark, mode, *versions, f"{len(equal)} of {len(equal) + len(failed)}")
            for name, difference in failed.items():
                is_good = False
                print(f"{environment.spark} {mode}: {name}: {difference}", file=sys.stderr)
            print(f"{environment.spark} {mode}: {len(equal)} equal", file=sys.stderr, flush=True)
    Console(width=200).print(shown)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
