"""The process from which Spark forks Python workers; it has imported what their tasks need
(spark.python.daemon.module).

Modules and compiled loops are loaded once per machine instead of once per worker, and workers share their memory.
"""

import sys
from contextlib import suppress
from importlib import import_module
from typing import Final

from jobs import PACKAGE
from jobs.spark.gc_freeze import loaded_for_good
from jobs.spark.workers_ahead import WAIT, hand_over, take_over

TASKS: Final = (".bronze.tasks", ".silver.tasks", ".gold.audit")
"""Modules with tasks, below `jobs`."""


def load() -> None:
    """Import the modules, run every loop once, and exclude all of it from the workers' garbage collection."""
    # only an optimization: if loading fails, each worker's first task fails too, and reports why
    with loaded_for_good(), suppress(Exception):
        import_module("pyspark.worker")
        for name in TASKS:
            import_module(name, PACKAGE)
        import_module(".operations.compile_kernels", PACKAGE).compile_kernels()


def main(arguments: list[str]) -> None:
    """Be the daemon, now or when Spark asks for one; or, as Spark's child, hand over to a process that was started
    ahead.
    """
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
