"""What Python workers are forked with."""

import gc
import subprocess
import sys

from coordinator_core.bytes import interning
from coordinator_core.replay.columnar import share_state_kernels as kernels
from jobs.bronze.tasks import run_task
from jobs.gold.audit import audit_logs
from jobs.silver.tasks import replay_logs
from jobs.spark.worker_daemon import TASKS, load


def test_what_a_night_runs_is_loaded_before_workers_are_forked() -> None:
    """The modules of all its tasks are, and nothing of them is looked at for cycles."""
    assert [function.__module__ for function in (run_task, replay_logs, audit_logs)] == [
        f"jobs{name}" for name in TASKS
    ]
    try:
        load()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_what_a_later_night_runs_is_loaded_too() -> None:
    """Loops that only go on from saved state, or make room, are."""
    loops = (interning._fill_slots, interning._intern_each, kernels.pack_pool)
    names = [(loop.__module__, loop.__name__) for loop in loops]
    reported = (
        "from importlib import import_module; from jobs.spark.worker_daemon import load; load(); "
        f"print([len(getattr(import_module(module), name).signatures) for module, name in {names}])"
    )
    done = subprocess.run([sys.executable, "-c", reported], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[1, 1, 1]"
