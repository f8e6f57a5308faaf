"""Spark forks Python workers from this process: it has all loaded that their tasks need (spark.python.daemon.module).

Modules and compiled loops are loaded once a machine instead of once a worker, and workers share the memory of them.
"""

import gc
from contextlib import suppress
from importlib import import_module
from typing import Final

from pyspark.daemon import manager

TASKS: Final = ("jobs.capture_tasks", "jobs.replay_tasks", "jobs.audit")
"""Modules of tasks."""


def load() -> None:
    """Import the modules, use every loop once, and let no worker look for cycles among what is there."""
    with suppress(Exception):  # only a head start: a worker that cannot load fails its first task, and says why
        for name in TASKS:
            import_module(name)
        import_module("jobs.warm_up").warm_up()
    gc.freeze()


if __name__ == "__main__":
    load()
    manager()
