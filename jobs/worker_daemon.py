"""Spark forks Python workers from this process: it has all loaded that their tasks need (spark.python.daemon.module).

Modules and compiled loops are loaded once a machine instead of once a worker, and workers share the memory of them.
"""

import sys
from contextlib import suppress
from importlib import import_module
from typing import Final

from jobs.loading import loaded_for_good
from jobs.workers_ahead import WAIT, hand_over, take_over

TASKS: Final = (".capture_tasks", ".replay_tasks", ".audit")
"""Modules of tasks, in this package."""


def load() -> None:
    """Import the modules, use every loop once, and let no worker look for cycles among what is there."""
    # only a head start: a worker that cannot load fails its first task, and says why
    with loaded_for_good(), suppress(Exception):
        import_module("pyspark.worker")
        for name in TASKS:
            import_module(name, __package__)
        import_module(".warm_up", __package__).warm_up()


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
