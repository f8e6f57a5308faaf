"""Whole processes, timed and watched."""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
POLL_SECONDS: Final = 0.1
"""Peaks are the kernel's own: what a process used before it ended is missed only after the last look at it."""
STEPS: Final = ("capture", "replay", "audit")
STEP: Final = re.compile(rf"^({'|'.join(STEPS)}): ([\d.]+) s$", re.MULTILINE)
PEAK: Final = re.compile(r"VmHWM:\s+(\d+) kB")

WORKER: Final = b"pyspark.daemon"
JVM: Final = b"org.apache.spark.deploy.SparkSubmit"
DRIVER: Final = b"jobs/__main__.py"
"""In the command lines of Python workers, of the JVM and of the job's own Python."""


@dataclass(slots=True)
class Peaks:
    """The largest resident sets of one process each, in bytes."""

    worker_bytes: int = 0
    jvm_bytes: int = 0
    driver_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """One whole process."""

    seconds: float
    output: str
    peaks: Peaks = field(default_factory=Peaks)


def run(command: list[str], *, output: int | None = subprocess.PIPE, accepted: tuple[int, ...] = (0,)) -> Run:
    """Run a process to its end, watching all that it starts."""
    peaks = Peaks()
    ended = threading.Event()
    started = perf_counter()
    # a session of its own: what it starts is known by it
    with subprocess.Popen(
        command, stdout=output, stderr=subprocess.STDOUT, text=True, cwd=ROOT, start_new_session=True
    ) as process:
        watcher = threading.Thread(target=_watch, args=(process.pid, peaks, ended), daemon=True)
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
    return Run(seconds, text or "", peaks)


def _watch(session_id: int, peaks: Peaks, ended: threading.Event) -> None:
    while not ended.wait(POLL_SECONDS):
        for command, peak_bytes in _processes_of(session_id):
            if WORKER in command:
                peaks.worker_bytes = max(peaks.worker_bytes, peak_bytes)
            elif JVM in command:
                peaks.jvm_bytes = max(peaks.jvm_bytes, peak_bytes)
            elif DRIVER in command:
                peaks.driver_bytes = max(peaks.driver_bytes, peak_bytes)


def _processes_of(session_id: int) -> Iterator[tuple[bytes, int]]:
    """The command line of each process of a session, and the largest resident set that it had."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # "pid (name) state ppid pgrp session ...", and the name may hold anything
            if int((folder / "stat").read_text().rpartition(")")[2].split()[3]) != session_id:
                continue
            found = PEAK.search((folder / "status").read_text())
            yield (folder / "cmdline").read_bytes(), int(found[1]) * 1024 if found else 0
        except OSError:
            continue  # the process has ended meanwhile


def step_seconds(output: str) -> dict[str, float]:
    """How long the steps of a job took, as it told."""
    return {step: float(seconds) for step, seconds in STEP.findall(output)}
