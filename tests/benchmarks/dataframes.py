"""The Python API on a table of raw records: commits of a whole log, replayed by group id and written as a Delta table.

A process of its own makes the table of the bronze that a night left, which is not timed, and then times the replay with
the write, in a session that is up. Unlike a night's, all rows pass the JVM: they are shuffled by group, and Delta's own
writer writes them. Spark's just-in-time compiler is whole here, as it is in a job of a user's own.
"""

import os
import re
import shutil
import sys
from pathlib import Path
from time import perf_counter
from typing import Final

from pyspark.sql import functions as F  # noqa: N812

import groupledger
from groupledger.records import read_records
from jobs.spark.session import start_session
from tests.benchmarks.runs import Run, run
from tests.spark_defaults import spark_defaults

REPORTED: Final = re.compile(r"^api: ([\d.]+) s$", re.MULTILINE)
SETTINGS: Final = {
    "spark.master": f"local[{os.cpu_count()}]",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.driver.memory": "3g",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""INT96, Spark's default for times, takes a fifth more time."""


def measure(warehouse: Path, scratch: Path) -> tuple[float, Run]:
    """Seconds of the replay with its write, and what its processes used."""
    shutil.rmtree(scratch, ignore_errors=True)
    done = run([sys.executable, "-m", "tests.benchmarks.dataframes", str(warehouse), str(scratch)])
    found = REPORTED.search(done.output)
    if found is None:
        raise SystemExit(f"no time in the output:\n{done.output}")
    return float(found[1]), done


def main(warehouse: str, scratch: str) -> None:
    """Make the table, replay it, and tell the time."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = start_session("benchmark", spark_defaults() | SETTINGS)
    batches = session.read.format("delta").load(f"{warehouse}/bronze/record_batches")
    opened = read_records(batches.where("topic = '__consumer_offsets'")).frame
    raw = opened.where("control_type < 0").select(
        *("key", "value", "topic"),
        F.col("log_partition").alias("partition"),
        F.col("log_offset").alias("offset"),
        F.timestamp_millis("timestamp_ms").alias("timestamp"),
    )
    raw.write.parquet(f"{scratch}/raw")
    records = session.read.parquet(f"{scratch}/raw")
    started = perf_counter()
    commits = groupledger.replay_groups(records).commits
    options = groupledger.write_options("silver.offset_commits")
    commits.write.format("delta").options(**options).save(f"{scratch}/commits")
    print(f"api: {perf_counter() - started:.2f} s", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
