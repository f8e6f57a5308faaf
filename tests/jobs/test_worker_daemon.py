"""What Python workers are forked with."""

import gc

from jobs.audit import audit_logs
from jobs.capture_tasks import run_task
from jobs.replay_tasks import replay_logs
from jobs.worker_daemon import TASKS, load


def test_what_a_night_runs_is_loaded_before_workers_are_forked() -> None:
    """The modules of all its tasks are, and nothing of them is looked at for cycles."""
    assert [function.__module__ for function in (run_task, replay_logs, audit_logs)] == list(TASKS)
    try:
        load()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
