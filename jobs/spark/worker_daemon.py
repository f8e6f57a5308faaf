"""Spark forks Python workers from this process: it has all loaded that their tasks need (spark.python.daemon.module).

Modules and compiled loops are loaded once a machine instead of once a worker, and workers share the memory of them.
"""

import sys
from contextlib import suppress
from importlib import import_module
from typing import Final

from jobs import PACKAGE
from jobs.spark.gc_freeze import loaded_for_good
from jobs.spark.workers_ahead import WAIT, hand_over, take_over

TASKS: Final = (".bronze.tasks", ".silver.tasks", ".gold.audit")
"""Modules of tasks, below `jobs`."""


def load() -> None:
    """Import the modules, use every loop once, and let no worker look for cycles among what is there."""
    # only a head start: a worker that cannot load fails its first task, and says why
    with loaded_for_good(), suppress(Exception):
        import_module("pyspark.worker")
        for name in TASKS:
            import_module(name, PACKAGE)
        import_module(".operations.compile_kernels", PACKAGE).compile_kernels()


def main(arguments: list[str]) -> None:
    """Be the daemon, now or when Spark asks for one; or, as Spark's child, let the one that waits for it be it."""
    if arguments[0] == WAIT:
        load()
        if not take_over(int(arguments[1]), arguments[2]):
            return
    elif hand_over(arguments):
        return
    else:
        load()
    import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main(sys.argv[1:])
