"""Whole processes, timed and watched."""

import csv
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
BUILD: Final = ROOT / "build"
POLL_SECONDS: Final = 0.5
"""Peaks are the kernel's own: what a process used before it ended is missed only after the last look at it."""
TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
STEPS: Final = ("capture", "replay", "audit")
STEP: Final = re.compile(rf"^({'|'.join(STEPS)}): ([\d.]+) s$", re.MULTILINE)
PEAK: Final = re.compile(r"VmHWM:\s+(\d+) kB")

WORKER: Final = b"-m\0pyspark.daemon"
JVM: Final = b"org.apache.spark.deploy.SparkSubmit"
"""In the command lines of Python workers and of the JVM."""


@dataclass(slots=True)
class Used:
    """What the processes of a run used: the largest resident set of one of a kind, and the processor's time."""

    worker_bytes: int = 0
    jvm_bytes: int = 0
    seconds_of: dict[int, float] = field(default_factory=dict)
    """Of each process, by its id."""

    @property
    def cpu_seconds(self) -> float:
        """Of all together: on a machine that is shared it tells more than the time that passed."""
        return sum(self.seconds_of.values())


@dataclass(frozen=True, slots=True)
class Run:
    """One whole process."""

    seconds: float
    output: str
    used: Used


def run(command: list[str], *, output: int | None = subprocess.PIPE, accepted: tuple[int, ...] = (0,)) -> Run:
    """Run a process to its end, watching all that it starts."""
    used = Used()
    ended = threading.Event()
    started = perf_counter()
    # a session of its own: what it starts is known by it
    with subprocess.Popen(
        command, stdout=output, stderr=subprocess.STDOUT, text=True, cwd=ROOT, start_new_session=True
    ) as process:
        watcher = threading.Thread(target=_watch, args=(process.pid, used, ended), daemon=True)
        watcher.start()
        try:
            text, _ = process.communicate()
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            raise
        finally:
            ended.set()
    watcher.join()
    seconds = perf_counter() - started
    if process.returncode not in accepted:
        raise SystemExit(f"{command[0]} ended with {process.returncode}:\n{text}")
    return Run(seconds, text or "", used)


def _watch(session_id: int, used: Used, ended: threading.Event) -> None:
    while not ended.wait(POLL_SECONDS):
        for pid, command, peak_bytes, cpu_seconds in _processes_of(session_id):
            used.seconds_of[pid] = cpu_seconds
            if WORKER in command:
                used.worker_bytes = max(used.worker_bytes, peak_bytes)
            elif JVM in command:
                used.jvm_bytes = max(used.jvm_bytes, peak_bytes)


def _processes_of(session_id: int) -> Iterator[tuple[int, bytes, int, float]]:
    """Of each process of a session its id, command line, largest resident set so far and processor time so far."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # "pid (name) state ppid pgrp session ...", and the name may hold anything; user and system time are the
            # 14th and 15th field
            reported = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(reported[3]) != session_id:
                continue
            found = PEAK.search((folder / "status").read_text())
            ticks = int(reported[11]) + int(reported[12])
            peak_bytes = int(found[1]) * 1024 if found else 0
            yield int(folder.name), (folder / "cmdline").read_bytes(), peak_bytes, ticks / TICKS_PER_SECOND
        except OSError:
            continue  # the process has ended meanwhile


def step_seconds(output: str) -> dict[str, float]:
    """How long the steps of a job took, as it reported."""
    return {step: float(seconds) for step, seconds in STEP.findall(output)}


def run_night(name: str, logs: Path, warehouse: Path) -> tuple[dict[str, float], float]:
    """Run a night and tell what it took: seconds by step, 0 of those that had nothing to do, and processor time."""
    command = ["./spark-submit.sh", "nightly", "--segments", str(logs), "--warehouse", str(warehouse)]
    done = run(command, accepted=(0, 3))
    reported = step_seconds(done.output)
    seconds = {step: reported.get(step, 0.0) for step in STEPS}
    steps = ", ".join(f"{step} {of_step:.1f}" for step, of_step in seconds.items())
    cpu = done.used.cpu_seconds
    print(f"{name}: {sum(seconds.values()):.1f} s ({steps}); processor time {cpu:.1f} s", flush=True)
    return seconds, cpu


def write_figures(name: str, rows: Sequence[NamedTuple], picture: str) -> None:
    """Write figures and their picture (SVG) into build/, and say where they are."""
    BUILD.mkdir(exist_ok=True)
    with (BUILD / f"{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(rows[0]._fields)
        writer.writerows(rows)
    (BUILD / f"{name}.svg").write_text(picture)
    print(f"see {BUILD / f'{name}.csv'} and {BUILD / f'{name}.svg'}")
