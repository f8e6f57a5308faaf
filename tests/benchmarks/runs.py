"""Whole processes, timed and watched."""

import re
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep

ROOT = Path(__file__).resolve().parents[2]
POLL_SECONDS = 0.05
WORKER_MARK = "pyspark.daemon"
STEPS = ("capture", "replay", "audit")
STEP = re.compile(rf"^({'|'.join(STEPS)}): ([\d.]+) s$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Run:
    """One whole process."""

    seconds: float
    output: str
    worker_bytes_max: int
    """Largest resident set of one Python worker."""


def run(command: list[str], *, output: int | None = subprocess.PIPE, accepted: tuple[int, ...] = (0,)) -> Run:
    """Run a process to its end, watching the Python workers below it."""
    peak = [0]
    started = perf_counter()
    with subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True, cwd=ROOT) as process:
        watcher = threading.Thread(target=_watch, args=(process, peak), daemon=True)
        watcher.start()
        text, _ = process.communicate()
    watcher.join()
    seconds = perf_counter() - started
    if process.returncode not in accepted:
        raise SystemExit(f"{command[0]} ended with {process.returncode}:\n{text}")
    return Run(seconds, text or "", peak[0])


def _watch(process: "subprocess.Popen[str]", peak: list[int]) -> None:
    while process.poll() is None:
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                if WORKER_MARK.encode() in (status.parent / "cmdline").read_bytes():
                    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
                    peak[0] = max(peak[0], int(found[1]) * 1024 if found else 0)
            except OSError:
                continue  # the process has ended meanwhile
        sleep(POLL_SECONDS)


def step_seconds(output: str) -> dict[str, float]:
    """How long the steps of a job took, as it told."""
    return {step: float(seconds) for step, seconds in STEP.findall(output)}
