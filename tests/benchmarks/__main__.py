"""Segments to bronze and silver, side by side with Kafka's own dump tool; capture of a live cluster, side by side with
that of the same segments; two executors against one; what a night costs as the log grows (see `growth`) and where one
key of it is out of proportion (see `skewed`).

    make bench LOGS=DIR            DIR holds <topic>-<partition>/*.log, as a broker's log directory does

Whole processes, one after the other in turns, so that a noisy machine is noisy for both. Our times are those of the
steps as the job reports them, Spark's start-up aside; the dump tool's JVM start-up is part of its time. A broker's load
of the same log is what its coordinator says when it has it. Each figure is the median of the turns. A night is short
compared with the dump tool, so other work of the machine disturbs it more: there are several of them in a turn. Each
process finds the log in the system's memory, which else may be true of one and not of the other. Without LOGS the logs
are made here, smaller (two shapes of `skewed`): good for a look, not for a verdict.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks import executors, growth, live_capture, skewed
from tests.benchmarks.runs import ROOT, STEPS, run, step_seconds
from tests.benchmarks.skewed import OFFSETS_TOPIC, SHARE_TOPIC

CACHE = ROOT / ".cache" / "benchmarks"
TOPICS = {OFFSETS_TOPIC: "--offsets-decoder", SHARE_TOPIC: "--share-group-state-decoder"}
NIGHTS = 3
"""In a turn."""
RECORDS_IN = re.compile(r"([\d,]+) records in = ")


def kafka_lib() -> Path:
    """Kafka's jars, from Maven Central at the first call."""
    folder = CACHE / "kafka"
    if not any(folder.glob("kafka-tools-*.jar")):
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
        subprocess.run(["mvn", "-q", "-f", str(ROOT / "tests/benchmarks/pom.xml"), *goal], check=True)
    return folder


def only(logs: Path, topic: str, scratch: Path) -> Path:
    """A log directory with one topic of `logs`, by links."""
    folder = scratch / topic
    folder.mkdir()
    for partition in sorted(logs.glob(f"{topic}-[0-9]*")):
        (folder / partition.name).symlink_to(partition.resolve())
    return folder


def into_memory(files: Sequence[Path]) -> None:
    """Read files, so that whoever comes next need not wait for a disk."""
    buffer = bytearray(1 << 22)
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def compare(topic: str, folder: Path, lib: Path, turns: int, scratch: Path) -> None:
    """Print one line for a topic."""
    files = [file.resolve() for file in sorted(folder.glob("*/*.log")) if file.stat().st_size]
    dump = ["java", "-Xmx1g", "-cp", f"{lib}/*", "org.apache.kafka.tools.DumpLogSegments"]
    dump += [TOPICS[topic], "--print-data-log", "--files", ",".join(map(str, files))]
    theirs, records, worker_bytes = [], 0, 0
    steps: dict[str, list[float]] = {step: [] for step in STEPS}
    for night in range(turns * NIGHTS):
        if night % NIGHTS == 0:
            into_memory(files)
            theirs.append(run(dump, output=subprocess.DEVNULL).seconds)
        into_memory(files)
        warehouse = scratch / "warehouse"
        shutil.rmtree(warehouse, ignore_errors=True)
        nightly = ["./spark-submit.sh", "nightly", "--segments", str(folder), "--warehouse", str(warehouse)]
        done = run(nightly, accepted=(0, 3))
        worker_bytes = max(worker_bytes, done.used.worker_bytes)
        found = RECORDS_IN.search(done.output)
        reported = step_seconds(done.output)
        if found is None or not reported.keys() >= steps.keys():
            raise SystemExit(f"no ledger or no times in the output:\n{done.output}")
        records = int(found[1].replace(",", ""))
        for step, seconds in steps.items():
            seconds.append(reported[step])
    their_seconds = statistics.median(theirs)
    median = {step: statistics.median(seconds) for step, seconds in steps.items()}
    our_seconds = median["capture"] + median["replay"]
    print(
        f"{topic}: {records:,} records; dump tool {their_seconds:.1f} s, {records / their_seconds:,.0f}/s; "
        f"segments to silver {our_seconds:.1f} s (capture {median['capture']:.1f}, replay {median['replay']:.1f}), "
        f"{records / our_seconds:,.0f}/s; ratio {their_seconds / our_seconds:.2f}; "
        f"gold {median['audit']:.1f} s; largest Python worker {worker_bytes / 2**20:,.0f} MiB",
        flush=True,
    )


def main() -> None:
    """Compare both topics."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--logs", type=Path, help="a log directory with __consumer_offsets and __share_group_state")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    if shutil.which("mvn") is None or shutil.which("java") is None:
        sys.exit("the benchmark needs Maven and Java for Kafka's dump tool: install maven and a JDK 17")
    lib = kafka_lib()
    logs = options.logs or CACHE / "logs"
    if options.logs is None and not logs.is_dir():
        skewed.many_groups(logs)
        skewed.hot_share_partition(logs, 200_000)
    print(f"{os.cpu_count()} cores, {options.turns} turns, logs of {logs}")
    with tempfile.TemporaryDirectory() as scratch:
        for topic in TOPICS:
            if any(logs.glob(f"{topic}-*/*.log")):
                folder = only(logs, topic, Path(scratch))
                compare(topic, folder, lib, options.turns, Path(scratch))
                live_capture.compare(topic, folder, options.turns, Path(scratch) / f"live-{topic}")
        executors.compare(logs, options.turns, Path(scratch) / "executors")
        executors.compare_hot(options.turns, Path(scratch) / "hot")
        growth.show(growth.measured(logs, Path(scratch) / "growth", growth.DAYS))
        skewed.compare(Path(scratch) / "skewed")


if __name__ == "__main__":
    main()
